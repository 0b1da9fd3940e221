//! Exactly once: which requests run now, and which were answered before.
//!
//! A slotted request enters through [`Slots::enter`]. While it runs, the same request sent again on another connection waits
//! for it; when it is done, the reply row answers. Late duplicates of older requests are refused.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use brindle_types::{Code, Fault, Pair, Result, SessionId};
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::frame::{FLAG_RESENT, Header};
use brindle_wire::{Op, earlier};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Txn;
use crate::admission::Admitted;
use crate::store::{Rows, reply};

/// Slots of a session.
pub const SLOTS_MAX: u16 = 256;

/// A call: the part of a request's header that operations need.
#[derive(Debug)]
pub struct Call {
    /// Session; 0 for the MDT itself and for requests outside of sessions.
    pub session: SessionId,
    /// Epoch of the session, as the client knows it.
    pub epoch: Pair,
    /// Slot.
    pub slot: u16,
    /// Sequence in the slot; 0 for operations without one.
    pub sequence: u64,
    /// Operation.
    pub op: Op,
    /// Whether the request was sent before, on another connection.
    pub resent: bool,
    /// Once the reply row is in a batch: the answer in it, if it is the whole answer.
    stored: OnceLock<Option<Bytes>>,
    /// Limits and view of a host that is not trusted fully.
    admitted: OnceLock<Admitted>,
    news: Mutex<CacheUpdates>,
}

impl Call {
    /// The call of a request.
    pub fn new(header: &Header, op: Op) -> Call {
        Call {
            session: header.session,
            epoch: header.session_epoch,
            slot: header.slot,
            sequence: if op.slotted() { header.sequence } else { 0 },
            op,
            resent: header.flags & FLAG_RESENT != 0,
            stored: OnceLock::new(),
            admitted: OnceLock::new(),
            news: Mutex::default(),
        }
    }

    /// The request is one of a host that is not trusted fully, and needs this.
    pub fn admitted(&self, admitted: Admitted) {
        // A request is admitted once.
        drop(self.admitted.set(admitted));
    }

    /// The condition for the request, if its host is not trusted fully.
    pub fn admission(&self) -> Option<&Admitted> {
        self.admitted.get()
    }

    /// Refuses what the request's host may not do at this moment.
    pub fn check(&self, t: &Txn<'_>) -> Result<()> {
        self.admitted.get().map_or(Ok(()), |admitted| admitted.check(t, self.session))
    }

    /// Adds to the cache updates of the reply; only sessions get any.
    pub fn tell(&self, tell: impl FnOnce(&mut CacheUpdates)) {
        if self.session != SessionId(0) {
            tell(&mut self.news.lock());
        }
    }

    /// Cache updates that go with the answer.
    pub fn take_cache_updates(&self) -> CacheUpdates {
        std::mem::take(&mut self.news.lock())
    }

    /// Work of the MDT's own.
    pub fn internal(op: Op) -> Call {
        Call::new(&Header::default(), op)
    }

    /// Whether the reply goes into the reply cache and is not there yet.
    pub(super) fn wants_row(&self) -> bool {
        self.sequence != 0 && self.stored.get().is_none()
    }

    /// The reply row is in a batch, with this answer (`None`: with a shorter one than the first sending gets).
    pub(super) fn set_stored(&self, whole: Option<Bytes>) {
        // An operation has one final batch.
        drop(self.stored.set(whole));
    }

    /// The answer that the reply row holds, if it is the whole answer.
    pub(super) fn stored(&self) -> Option<Bytes> {
        self.stored.get().cloned().flatten()
    }
}

/// Requests that run now, by slot.
#[derive(Default)]
pub struct Slots {
    running: Mutex<BTreeMap<(SessionId, u16), Running>>,
}

struct Running {
    sequence: u64,
    /// Ended by being dropped.
    waiters: Vec<oneshot::Sender<()>>,
}

/// Course of a request.
pub enum Entry<'a> {
    /// The request is new: run it, and keep this until it is answered.
    Run(Occupied<'a>),
    /// The request was answered before, with this reply.
    Answered(Bytes),
}

/// A slot with a request that runs; free again when dropped.
pub struct Occupied<'a> {
    slots: &'a Slots,
    key: (SessionId, u16),
}

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        drop(self.slots.running.lock().remove(&self.key));
    }
}

impl Slots {
    /// Admits a slotted request, after what runs in its slot now. `StaleWrite` or `OutcomeUnknown` for a request older
    /// than the slot's last.
    pub async fn enter(&self, rows: &impl Rows, call: &Call) -> Result<Entry<'_>> {
        if call.slot >= SLOTS_MAX || call.sequence == 0 {
            let why = format!("slot {} with sequence {}", call.slot, call.sequence);
            return Err(Fault::new(Code::BadFrame).why(why));
        }
        let key = (call.session, call.slot);
        loop {
            let earlier = {
                let mut running = self.running.lock();
                match running.get_mut(&key) {
                    None => {
                        running.insert(key, Running { sequence: call.sequence, waiters: Vec::new() });
                        break;
                    }
                    Some(r) if call.sequence < r.sequence => return Err(too_late(call, r.sequence)),
                    Some(r) => {
                        let (tell, told) = oneshot::channel();
                        r.waiters.push(tell);
                        told
                    }
                }
            };
            // Success and error both mean that the earlier request is done.
            let _ = earlier.await;
        }
        let occupied = Occupied { slots: self, key };
        match reply::find(rows, call.session, call.slot)? {
            Some(last) if last.sequence == call.sequence && last.op == call.op as u16 => {
                Ok(Entry::Answered(earlier::unstore(call.op, &last.body)?))
            }
            Some(last) if last.sequence == call.sequence => Err(Fault::new(Code::BadFrame)
                .why(format!("sequence {} was another operation before", call.sequence))),
            Some(last) if last.sequence > call.sequence => Err(too_late(call, last.sequence)),
            _ => Ok(Entry::Run(occupied)),
        }
    }
}

fn too_late(call: &Call, last: u64) -> Fault {
    let code = if call.resent { Code::OutcomeUnknown } else { Code::StaleWrite };
    Fault::new(code)
        .what(call.op.name())
        .subject(format!("of {}", call.session))
        .why(format!("slot {} is at sequence {last}, the request has {}", call.slot, call.sequence))
}
