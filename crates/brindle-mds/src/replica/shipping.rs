//! Records on their way to the other members, and how far those are.
//!
//! One task for each member sends what its log lacks, one message after the other; another one has it sync when a
//! request here waits for a sync. The tasks tell the log how far all required members are, and the log holds replies
//! until then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use brindle_kv::{Kv, LogPos};
use brindle_stdx::{planted, watch};
use brindle_targets::replica::{CHANGE_LIMIT_MS, Follows, Link, Links, NO_BULK};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::replica::{MemberAppendReq, MemberAppendResp, MemberSyncReq};
use brindle_wire::mgs::replica::ReplicaSetState;
use parking_lot::Mutex;

/// Bytes of records in one message, at most; a longer record goes alone.
const MESSAGE_BYTES: usize = 512 << 10;

/// A member, and how far it is.
pub(super) struct Shipment {
    pub link: Arc<Link>,
    written: AtomicU64,
    synced: AtomicU64,
    /// Changes with the member's progress.
    reached: watch::Sender<u64>,
}

impl Shipment {
    /// A member whose log ends with index `last`.
    pub fn new(link: &Arc<Link>, last: u64) -> Arc<Shipment> {
        Arc::new(Shipment {
            link: link.clone(),
            written: AtomicU64::new(last),
            synced: AtomicU64::new(0),
            reached: watch::Sender::new(last),
        })
    }

    /// Index of the last record that the member has.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Index up to which its records survive a power cut.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Signals whenever the member has more records.
    pub fn reached(&self) -> watch::Receiver<u64> {
        self.reached.subscribe()
    }
}

#[derive(Default)]
struct State {
    links: Vec<Arc<Link>>,
    shipments: Vec<Arc<Shipment>>,
}

/// All members that records are sent to.
#[derive(Default)]
pub(super) struct Shipments {
    kv: OnceLock<Kv>,
    state: Mutex<State>,
}

impl Follows for Shipments {
    fn set_changed(&self, _: &ReplicaSetState) {}

    fn links_changed(&self, links: &Links) {
        let mut state = self.state.lock();
        state.links.clone_from(&links.links);
        let State { links, shipments } = &mut *state;
        shipments.retain(|shipment| links.iter().any(|link| Arc::ptr_eq(link, &shipment.link)));
        self.tell(&state);
    }

    fn can_lead(&self) -> Result<()> {
        self.kv.get().and_then(Kv::failed).map_or(Ok(()), Err)
    }
}

impl Shipments {
    /// Sets the log of the records. Until then no reply of the log is sent.
    pub fn serve(&self, kv: Kv) {
        // A primary starts to serve once in its life.
        drop(self.kv.set(kv));
        self.tell(&self.state.lock());
    }

    /// Sends records to this member, too. Its link is in the set already.
    pub fn add(&self, shipment: &Arc<Shipment>) {
        let mut state = self.state.lock();
        state.shipments.push(shipment.clone());
        self.tell(&state);
    }

    /// Tells the log the last record that all required members have.
    fn tell(&self, state: &State) {
        let Some(kv) = self.kv.get() else { return };
        let (mut written, mut synced) = (u64::MAX, u64::MAX);
        for link in state.links.iter().filter(|link| link.is_required()) {
            let found = state.shipments.iter().find(|shipment| Arc::ptr_eq(&shipment.link, link));
            written = written.min(found.map_or(0, |shipment| shipment.written()));
            synced = synced.min(found.map_or(0, |shipment| shipment.synced()));
        }
        if planted("set_answers_before_members") {
            (written, synced) = (u64::MAX, u64::MAX);
        }
        kv.require(written, synced);
    }

    fn has_reached(&self, shipment: &Shipment, answer: &MemberAppendResp) {
        shipment.written.fetch_max(answer.written, Ordering::AcqRel);
        shipment.synced.fetch_max(answer.synced, Ordering::AcqRel);
        self.tell(&self.state.lock());
        // The progress counts even if only more records were synced.
        shipment.reached.send_replace(answer.written);
    }

    /// Sends records for as long as the member takes them, from behind `at`. Returns the reason why it ends.
    pub async fn send(&self, kv: &Kv, shipment: &Shipment, mut at: LogPos) -> Fault {
        let mut progress = kv.progress();
        loop {
            progress.borrow_and_update();
            let Some(records) = kv.records_after(at, MESSAGE_BYTES) else {
                return Fault::new(Code::LogDamaged)
                    .why(format!("it has the log up to {at}, and what follows is not in memory any more"));
            };
            let Some((last, _)) = records.last() else {
                if progress.changed().await.is_err() {
                    return Fault::new(Code::Shutdown);
                }
                continue;
            };
            let last = *last;
            let bytes: Vec<u8> = records.iter().flat_map(|(_, record)| record.iter().copied()).collect();
            match append(&shipment.link, bytes).await {
                Ok(answer) if answer.written >= last.index => self.has_reached(shipment, &answer),
                Ok(answer) => {
                    return Fault::new(Code::LogDamaged)
                        .why(format!("it has {} after it was sent {last}", answer.written));
                }
                Err(fault) => return fault,
            }
            at = last;
        }
    }

    /// Has a member sync whenever a request waits for a sync. Returns the reason why it ends.
    pub async fn sync(&self, kv: &Kv, shipment: &Shipment) -> Fault {
        let (mut progress, mut reached) = (kv.progress(), shipment.reached());
        loop {
            progress.borrow_and_update();
            reached.borrow_and_update();
            let synced = shipment.synced();
            let can_go_on = shipment.written() > synced && kv.synced_wanted() > synced;
            if can_go_on {
                let request = MemberSyncReq { attachment: shipment.link.attachment };
                match shipment.link.call(&request, NO_BULK, 0, CHANGE_LIMIT_MS).await {
                    Ok((answer, _)) => self.has_reached(shipment, &answer),
                    Err(fault) => return fault,
                }
                continue;
            }
            let changed = tokio::select! {
                biased;
                changed = reached.changed() => changed,
                changed = progress.changed() => changed,
            };
            if changed.is_err() {
                return Fault::new(Code::Shutdown);
            }
        }
    }
}

async fn append(link: &Link, bytes: Vec<u8>) -> Result<MemberAppendResp> {
    let request = MemberAppendReq { attachment: link.attachment };
    let crc = brindle_stdx::crc(&bytes);
    let (answer, _) = link.call(&request, (bytes.into(), crc), 0, CHANGE_LIMIT_MS).await?;
    Ok(answer)
}
