//! The primary of an MDT's replica set: takes over, sends its log to all members before anything is answered, fills learners, keeps its lease.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use brindle_kv::{Kv, LogPos, OpenReport, Replica};
use brindle_net::Transport;
use brindle_net::latch::Latch;
use brindle_stdx::{BoxFuture, Seams};
use brindle_targets::replica::{
    Around, CHANGE_LIMIT_MS, GRANT_LIMIT_MS, Link, NO_BULK, RENEW_EVERY_MS, SetMember, Standing,
};
use brindle_targets::{Directory, OwnerLease};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::replica::*;
use brindle_wire::mgs::NoteTermReq;
use brindle_wire::mgs::replica::{MemberPhase, MemberRole, ReplicaMember, Resync};
use parking_lot::Mutex;

use super::shipping::{Shipment, Shipments};
use super::{TAIL_BYTES_MAX, check_disk, place, pos, promise};
use crate::config::{Config, Identity};
use crate::mdt::Mdt;
use crate::ops::backup;
use crate::store::engine;

/// Interval of the search for learners, and for members that cannot go on.
const LOOK_EVERY_MS: u64 = 500;
const FAILED_LOOK_MS: u64 = 20;
/// Pause before a learner that failed is tried again.
const AGAIN_MS: u64 = 1_000;
/// Longest time of a step of a filling: the last step makes everything durable.
const FILL_LIMIT_MS: u64 = 60_000;
/// A learner that lacks fewer records than that is asked to join: what is left is sent while others wait.
const NEARLY_THERE: u64 = 2_000;
/// Terms that a primary without others in sync leaves out. A lost one may have taken some while the MGS was away, and a loss was accepted since.
const TERMS_SKIPPED: u32 = 256;
/// Longest wait for the MGS to tell the highest term, before it is asked again.
const MGS_LIMIT_MS: u64 = 2_000;
/// A learner that joins has to sync everything within this time.
const JOIN_LIMIT_MS: u64 = 10_000;

/// A primary. Its tasks end with [`Leader::stop`].
pub struct Leader {
    set: SetMember,
    seams: Seams,
    shipments: Arc<Shipments>,
    kv: Kv,
    stop: Latch,
    /// Reason why the member does not lead any more, unless another member leads.
    failed: Mutex<Option<Fault>>,
}

/// A primary for as long as this is kept.
pub struct Led(pub Arc<Leader>);

impl Drop for Led {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Attaches a member, which keeps the term. The last record of its log, unless that knows a term that this one is not above.
async fn attach(
    set: &SetMember,
    member: &ReplicaMember,
    epoch: u64,
    term: u32,
) -> Result<(Arc<Link>, Option<LogPos>)> {
    let mut link = set.new_link(member, epoch);
    let request = MemberAttachReq { attachment: link.attachment, term };
    let (answer, _) = link.call(&request, NO_BULK, 0, CHANGE_LIMIT_MS).await?;
    link.boot_term = answer.boot_term;
    Ok((Arc::new(link), answer.last.filter(|_| answer.term_max <= term).map(pos)))
}

/// The highest term that any member is known to have had. After an accepted loss only the MGS knows it, since the member that serves then
/// may not have heard of it.
async fn highest_term(
    set: &SetMember,
    config: &Config,
    identity: &Identity,
    targets: &Directory,
) -> Result<u32> {
    let kept = promise::load(&*set.seams.disk, &config.dir)?.max(set.seat.term_floor());
    let state = set.set();
    if set.seat.told().recorded_epoch >= state.epoch {
        // The member was the primary of this epoch before; a later primary has another epoch.
        return Ok(kept);
    }
    let request = NoteTermReq {
        fs: identity.fs.clone(),
        target: identity.target(),
        uuid: identity.uuid,
        // 0 only asks: the answer tells the highest term.
        term: 0,
        opening: 0,
    };
    loop {
        match set.seams.timeout_ms(MGS_LIMIT_MS, targets.mgs().probe(&request)).await {
            Some(Ok(answer)) => {
                let alone = state.in_sync().count() == 1;
                return Ok(kept.max(answer.highest) + if alone { TERMS_SKIPPED } else { 0 });
            }
            // An MDT that was never served has no place in the map.
            Some(Err(fault)) if matches!(fault.code, Code::UnknownTarget | Code::UnknownOp) => {
                return Ok(kept);
            }
            Some(Err(fault)) => {
                tracing::warn!(code = %fault.code, "the MGS does not tell the highest term: {fault}")
            }
            None => targets.map().mgs_is_silent(),
        }
        if set.set().primary != set.seat.host {
            return Err(Fault::new(Code::NotOwner));
        }
        set.seams.sleep_ms(AGAIN_MS).await;
    }
}

/// Becomes the primary. Waits for the end of the former primary's lease, tells every member in sync the new term, goes on without members
/// whose log is not a beginning of the local one, and opens the store.
pub async fn take_over(
    config: &Config,
    identity: &Identity,
    seams: &Seams,
    (fs_id, transport, targets): (u64, Arc<dyn Transport>, Arc<Directory>),
) -> Result<(Led, OpenReport)> {
    let Some(seat) = config.seat.clone() else { return Err(Fault::new(Code::Bug).why("no seat")) };
    let found_epoch = check_disk(seams, &config.dir, &seat)?.epoch;
    seat.tell(|told| told.phase = MemberPhase::TakingOver);
    let shipments = Arc::<Shipments>::default();
    let around = Around { fs_id, dir: config.dir.clone(), transport, targets: targets.clone() };
    let set = SetMember::new(seat, seams, around, shipments.clone());
    set.outlive_granted_lease().await;
    let floor = highest_term(&set, config, identity, &targets).await?;
    let state = set.set();
    set.record(state.epoch)?;
    set.apply(&state)?;
    let replica = open(config, identity, seams, floor).await?;
    let term = replica.next_term();
    let mut members = Vec::new();
    for member in state.in_sync().filter(|m| m.host != set.seat.host) {
        let reached = set.reached(member, |epoch| attach(&set, member, epoch, term)).await;
        // A member that lacks records gets them. A member that has more, or other records, is filled anew.
        let known = reached.and_then(|(link, last)| {
            let last = last.filter(|last| replica.records_after(*last, 1).is_some())?;
            Some((link, last))
        });
        match known {
            Some((link, last)) => {
                link.raise(Standing::InSync);
                let shipment = Shipment::new(&link, last.index);
                set.replace(|links| links.push(link));
                shipments.add(&shipment);
                members.push((shipment, last));
            }
            None => set.put_out(&member.host, None).await?,
        }
    }
    set.note_opening(found_epoch).await?;
    let led = seams.run_blocking(move || replica.lead()).await;
    let (kv, report) = led.unwrap_or_else(|| Err(Fault::new(Code::Bug).why("opening the log panicked")))?;
    shipments.serve(kv.clone());
    // All who are in sync are attached, or were put out.
    set.serve();
    let leader =
        Leader { set, seams: seams.clone(), shipments, kv, stop: Latch::default(), failed: Mutex::default() };
    let led = Led(Arc::new(leader));
    for (shipment, last) in members {
        led.0.ship(&shipment, last);
    }
    if let Err(fault) = led.0.renew_lease().await {
        led.0.end().await;
        return Err(fault);
    }
    led.0.run();
    Ok((led, report))
}

/// Opens the store of a member that is to lead. The next term will be above `floor`.
async fn open(config: &Config, identity: &Identity, seams: &Seams, floor: u32) -> Result<Replica> {
    let mut options = config.kv_options(identity);
    options.tail_bytes_max = TAIL_BYTES_MAX;
    let (own, dir) = (seams.clone(), config.store_dir());
    let opened = seams.run_blocking(move || {
        let options = engine::sized(&own, &dir, options)?;
        let mut replica = Replica::open(own, &dir, options)?;
        if replica.next_term() <= floor {
            replica.begin_term(floor)?;
        }
        Ok(replica)
    });
    opened.await.unwrap_or_else(|| Err(Fault::new(Code::Bug).why("opening the log panicked")))
}

impl Leader {
    /// The store.
    pub fn kv(&self) -> &Kv {
        &self.kv
    }

    /// The lease under which it answers.
    pub fn lease(&self) -> Arc<OwnerLease> {
        self.set.lease.clone()
    }

    /// Whether another member is the primary now.
    pub fn is_deposed(&self) -> bool {
        self.set.deposed.is_set()
    }

    /// Stops sending records to members.
    pub fn stop(&self) {
        self.set.deposed.set();
        self.stop.set();
    }

    /// Starts the tasks of a primary: one keeps the lease, one follows the orders of the MGS.
    fn run(self: &Arc<Self>) {
        let tasks: [(&'static str, BoxFuture<'static, ()>); 2] = [
            ("mds.lease", Box::pin(keep_lease(Arc::downgrade(self)))),
            ("mds.orders", Box::pin(follow_orders(Arc::downgrade(self)))),
        ];
        for (name, task) in tasks {
            let leader = self.clone();
            self.seams.spawn(name, async move {
                leader.stop.until(task).await;
            });
        }
    }

    /// Notes that the member serves clients.
    pub fn serves(&self) {
        self.set.seat.tell(|told| told.phase = MemberPhase::Serving);
    }

    /// Completes when it does not lead any more, with the reason.
    pub async fn until_ended(self: Arc<Self>, name: String) -> Fault {
        self.set.deposed.wait().await;
        let failed = self.failed.lock().clone();
        failed
            .unwrap_or_else(|| Fault::new(Code::NotPrimary).subject(name).why("another member serves it now"))
    }

    /// Ends everything of it: nothing touches the store any more on return.
    pub async fn end(&self) {
        self.stop();
        self.kv.abandon();
        // Unanswered requests do not matter: the next primary has all others.
        if let Err(fault) = self.kv.clone().close().await {
            tracing::debug!(code = %fault.code, "{fault}");
        }
    }

    /// Members that have every record, as this primary knows.
    pub(crate) fn members(&self) -> Vec<Arc<Link>> {
        let links = self.set.current();
        links.links.iter().filter(|link| link.is_required() && !link.has_failed()).cloned().collect()
    }

    /// Name of this host.
    pub(crate) fn host(&self) -> &str {
        &self.set.seat.host
    }

    /// Goes on without a member whose store is damaged. The member has noted that, and is filled anew as a learner.
    pub(crate) async fn put_out(&self, link: &Arc<Link>, why: &Fault) -> Result<()> {
        link.fail(why);
        self.set.put_out(&link.host, Some(link)).await
    }

    /// Ends, because the store here is damaged: another member in sync is to serve, and this one is filled anew.
    pub(crate) fn give_way(&self, store_dir: &str, fault: Fault) -> Result<()> {
        super::held::mark_damaged(&self.seams, store_dir, &fault.to_string())?;
        *self.failed.lock() = Some(fault);
        self.set.deposed.set();
        Ok(())
    }

    async fn renew_lease(&self) -> Result<()> {
        let ask = async |link: Arc<Link>, epoch| {
            let request = MemberLeaseReq { attachment: link.attachment, epoch };
            let (answer, _) = link.call(&request, NO_BULK, 0, GRANT_LIMIT_MS).await?;
            Ok((answer.boot_term, answer.available_bytes))
        };
        self.set.renew(ask).await
    }

    /// Sends the log to a member until that fails; then it is put out.
    fn ship(self: &Arc<Self>, shipment: &Arc<Shipment>, at: LogPos) {
        let (leader, shipment) = (self.clone(), shipment.clone());
        self.seams.spawn("mds.ship", async move {
            let sent = leader.shipments.send(&leader.kv, &shipment, at);
            let synced = leader.shipments.sync(&leader.kv, &shipment);
            let ended = async {
                tokio::select! {
                    biased;
                    fault = sent => fault,
                    fault = synced => fault,
                }
            };
            let failed = async {
                shipment.link.fail(&ended.await);
                if let Err(fault) = leader.set.put_out(&shipment.link.host, Some(&shipment.link)).await {
                    tracing::debug!(code = %fault.code, "{fault}");
                }
            };
            leader.stop.until(failed).await;
        });
    }

    /// Fills a learner, unless what it has is the beginning of the log here, and has it join.
    async fn fill(self: &Arc<Self>, mdt: &Mdt, member: &ReplicaMember, done_bytes: &AtomicU64) -> Result<()> {
        self.kv.hold_records(true);
        let filled = self.fill_held(mdt, member, done_bytes).await;
        self.kv.hold_records(false);
        filled
    }

    async fn fill_held(
        self: &Arc<Self>,
        mdt: &Mdt,
        member: &ReplicaMember,
        done_bytes: &AtomicU64,
    ) -> Result<()> {
        let (link, last) = attach(&self.set, member, self.set.current().epoch, self.kv.term()).await?;
        let at = match last.filter(|last| self.kv.records_after(*last, 1).is_some()) {
            Some(last) => last,
            None => self.copy(mdt, &link, done_bytes).await?,
        };
        let shipment = Shipment::new(&link, at.index);
        self.set.replace(|links| links.push(link.clone()));
        self.shipments.add(&shipment);
        self.ship(&shipment, at);
        let joined = self.catch_up(&shipment).await;
        if let Err(fault) = &joined {
            link.fail(fault);
            self.set.put_out(&link.host, Some(&link)).await?;
        }
        joined
    }

    /// Copies all rows as they are at one moment; the last record of that.
    async fn copy(&self, mdt: &Mdt, link: &Link, done_bytes: &AtomicU64) -> Result<LogPos> {
        let snapshot = self.kv.snapshot().await?;
        let at = snapshot.at();
        if at.term != self.kv.term() {
            return Err(Fault::new(Code::TryAgain).why("nothing was changed in this term yet"));
        }
        self.fill_step(link, FillStep::Begin { at: place(at) }, bytes::Bytes::new()).await?;
        let mut after = bytes::Bytes::new();
        loop {
            let rows = {
                let _turn = mdt.scans().acquire().await;
                backup::page(&snapshot, &after)?
            };
            let Some((last, _)) = rows.last() else { break };
            after = last.clone();
            let bytes = brindle_kv::encode_rows(at, rows);
            done_bytes.fetch_add(bytes.len() as u64, Ordering::AcqRel);
            self.fill_step(link, FillStep::Rows, bytes).await?;
            if self.set.deposed.is_set() {
                return Err(Fault::new(Code::NotOwner));
            }
        }
        self.fill_step(link, FillStep::End, bytes::Bytes::new()).await?;
        Ok(at)
    }

    async fn fill_step(&self, link: &Link, step: FillStep, bytes: bytes::Bytes) -> Result<()> {
        let request = MemberFillReq { attachment: link.attachment, step };
        let crc = brindle_stdx::crc(&bytes);
        link.call(&request, (bytes, crc), 0, FILL_LIMIT_MS).await.map(drop)
    }

    /// Waits until a learner lacks little, and has it join.
    async fn catch_up(&self, shipment: &Shipment) -> Result<()> {
        let mut reached = shipment.reached();
        while self.kv.last_pos().index.saturating_sub(shipment.written()) > NEARLY_THERE {
            self.set.still_fills(&shipment.link)?;
            // Failures of the link wake nobody, so the link is checked at this interval.
            let _ = self.seams.timeout_ms(LOOK_EVERY_MS, reached.changed()).await;
        }
        // Records that were acknowledged without the learner are synced there before it counts as in sync.
        let synced = async {
            let wanted = self.kv.last_pos().index;
            self.kv.want_synced(wanted);
            let mut reached = shipment.reached();
            let deadline = self.seams.now().plus_ms(JOIN_LIMIT_MS);
            while shipment.synced() < wanted {
                self.set.still_fills(&shipment.link)?;
                if self.seams.now() >= deadline {
                    let why = format!("it has not synced everything within {JOIN_LIMIT_MS} ms");
                    return Err(Fault::new(Code::TargetDown).subject(shipment.link.host.clone()).why(why));
                }
                let _ = self.seams.timeout_ms(FAILED_LOOK_MS, reached.changed()).await;
            }
            Ok(())
        };
        self.set.join(&shipment.link, synced).await
    }
}

/// Renews the lease for as long as it leads, and puts members out that have failed.
async fn keep_lease(leader: Weak<Leader>) {
    while let Some(leader) = leader.upgrade() {
        if let Err(fault) = leader.renew_lease().await {
            tracing::error!(code = %fault.code, "cannot renew the lease: {fault}");
        }
        if let Err(fault) = leader.set.put_out_failed(&leader.set.current()).await {
            tracing::debug!(code = %fault.code, "{fault}");
        }
        let seams = leader.seams.clone();
        drop(leader);
        seams.sleep_ms(RENEW_EVERY_MS).await;
    }
}

/// Follows the orders of the MGS, until another member is the primary or an error ends the task.
async fn follow_orders(leader: Weak<Leader>) {
    let Some(mut orders) = leader.upgrade().map(|leader| leader.set.seat.subscribe()) else { return };
    loop {
        let set = orders.borrow_and_update().clone();
        let Some(leader) = leader.upgrade() else { return };
        if set.primary != leader.set.seat.host {
            leader.set.depose(&set);
        } else if let Err(fault) = leader.set.apply(&set) {
            *leader.failed.lock() = Some(fault);
            leader.set.deposed.set();
        }
        if leader.set.deposed.is_set() {
            return;
        }
        drop(leader);
        if orders.changed().await.is_err() {
            return;
        }
    }
}

/// Fills learners for as long as the MDT runs, one after the other.
pub(crate) async fn fill_learners(leader: Weak<Leader>, mdt: Weak<Mdt>) {
    while let (Some(leader), Some(mdt)) = (leader.upgrade(), mdt.upgrade()) {
        let set = leader.set.set();
        let is_linked = |host: &str| leader.set.current().links.iter().any(|link| link.host == host);
        let learners: Vec<&ReplicaMember> =
            set.members.iter().filter(|m| m.role == MemberRole::Learner).collect();
        for member in &learners {
            if member.is_formatted && !member.nids.is_empty() && !is_linked(&member.host) {
                fill_one(&leader, &mdt, member).await;
            }
        }
        let is_learner = |resync: &Resync| learners.iter().any(|member| member.host == resync.host);
        leader.set.seat.tell(|told| told.resyncs.retain(is_learner));
        let seams = leader.seams.clone();
        drop((leader, mdt));
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

async fn fill_one(leader: &Arc<Leader>, mdt: &Mdt, member: &ReplicaMember) {
    let began = leader.seams.now();
    let total_bytes = mdt.engine().checkpoint_bytes();
    let done_bytes = AtomicU64::new(0);
    let tell = |trouble: String| {
        let done = done_bytes.load(Ordering::Acquire);
        let resync = Resync {
            host: member.host.clone(),
            done_bytes: done.min(total_bytes),
            total_bytes,
            copied_bytes: done,
            running_ms: leader.seams.now().ms_since(began),
            trouble,
        };
        leader.set.seat.tell(|told| {
            told.resyncs.retain(|other| other.host != resync.host);
            told.resyncs.push(resync);
        });
    };
    let mut filling = std::pin::pin!(leader.fill(mdt, member, &done_bytes));
    let filled = loop {
        if let Some(filled) = leader.seams.timeout_ms(LOOK_EVERY_MS, &mut filling).await {
            break filled;
        }
        tell(String::new());
    };
    match filled {
        Ok(()) => leader.set.seat.tell(|told| told.resyncs.retain(|other| other.host != member.host)),
        Err(fault) => {
            tracing::warn!(code = %fault.code, member = %member.host, "cannot fill a member of the replica set: {fault}");
            tell(fault.why.first().map_or_else(|| fault.what.to_string(), ToString::to_string));
            leader.seams.sleep_ms(AGAIN_MS).await;
        }
    }
}
