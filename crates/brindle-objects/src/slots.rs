//! The slot table: what makes a write that is sent twice land once.
//!
//! One record for each (session, slot) in a plain file: written before the data with the range in flight, and behind the data with the
//! answer. The table survives the death of the process. A power cut loses it (a resend then counts as a new write), unless replies wait for
//! syncs ([`crate::replies`]). A slot belongs to one connection, which is closed before a newer connection of the same rail serves the
//! slot. Connections over different rails live side by side and share their session's slots: the sequence exposes a request that one of
//! them delivers late.
//!
//! | request's sequence | record | what happens |
//! |---|---|---|
//! | lower | any | dropped: a late duplicate |
//! | equal | done | the stored answer |
//! | equal | in flight, interrupted | runs (again) |
//! | higher | any | runs |

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_stdx::cast::len_u16;
use brindle_stdx::codec::Reader;
use brindle_stdx::disk::OpenHow;
use brindle_stdx::{Disk, DiskFile, planted};
use brindle_types::{Code, Fault, ObjectId, Pair, SessionId};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::format::{put_object, put_pair, seal, take_object, take_pair, unseal};

const MAGIC: u32 = 0x4253_4c54; // BSLT
const RECORD: usize = 512;
/// Longest answer that is stored.
pub const REPLY_MAX: usize = 420;
/// Most records; beyond them those of idle slots are used again, longest idle first.
const RECORDS_MAX: u32 = 1 << 18;
/// Records by which the file grows.
const GROW: u32 = 256;
/// When no record is free, this part of all slots is given up.
const EVICT_PART: usize = 8;

/// A slot of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotKey {
    /// The session.
    pub session: SessionId,
    /// The slot.
    pub slot: u16,
}

/// The connection that a request came over.
pub trait Line: Send + Sync {
    /// Number; newer connections have higher ones.
    fn id(&self) -> u64;
    /// Number of the network of the connection.
    fn rail(&self) -> u8 {
        0
    }
    /// Ends the connection.
    fn close(&self);
    /// Whether the connection has ended.
    fn is_closed(&self) -> bool;
}

/// A range of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The object.
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    InFlight = 1,
    Done = 2,
    Interrupted = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    key: SlotKey,
    epoch: Pair,
    sequence: u64,
    state: State,
    range: Option<InFlight>,
    reply: Bytes,
}

impl Record {
    fn encode(&self) -> [u8; RECORD] {
        let mut body = Vec::with_capacity(RECORD);
        body.extend(MAGIC.to_be_bytes());
        body.extend(self.key.session.0.to_be_bytes());
        body.extend(self.key.slot.to_be_bytes());
        body.push(self.state as u8);
        body.push(u8::from(self.range.is_some()));
        put_pair(&mut body, self.epoch);
        body.extend(self.sequence.to_be_bytes());
        let none = ObjectId { ino: Default::default(), generation: Pair::ZERO, stripe: 0 };
        let range = self.range.unwrap_or(InFlight { object: none, offset: 0, len_bytes: 0 });
        put_object(&mut body, &range.object);
        body.extend(range.offset.to_be_bytes());
        body.extend(range.len_bytes.to_be_bytes());
        body.extend(len_u16(self.reply.len()).to_be_bytes());
        body.extend(&self.reply);
        seal(&body)
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let mut r = Reader::new(unseal(bytes)?);
        (r.u32()? == MAGIC).then_some(())?;
        let key = SlotKey { session: SessionId(r.u64()?), slot: r.u16()? };
        let state = match r.u8()? {
            1 => State::InFlight,
            2 => State::Done,
            3 => State::Interrupted,
            _ => return None,
        };
        let has_range = r.u8()? == 1;
        let epoch = take_pair(&mut r)?;
        let sequence = r.u64()?;
        let range = InFlight { object: take_object(&mut r)?, offset: r.u64()?, len_bytes: r.u64()? };
        let reply_len = r.u16()? as usize;
        let reply = Bytes::copy_from_slice(r.take(reply_len)?);
        Some(Record { key, epoch, sequence, state, range: has_range.then_some(range), reply })
    }
}

/// The table.
pub struct SlotTable {
    file: Arc<dyn DiskFile>,
    inner: Mutex<Inner>,
    /// Answers recorded so far.
    answers: AtomicU64,
    /// Number of durable answers; locked by the task that syncs. `None` once a sync failed or was given up:
    /// no later sync can be believed.
    durable: tokio::sync::Mutex<Option<u64>>,
}

struct Inner {
    slots: BTreeMap<SlotKey, Slot>,
    free: BTreeSet<u32>,
    capacity: u32,
    tick: u64,
}

struct Slot {
    record: u32,
    last_use: u64,
    owner: Option<Arc<dyn Line>>,
    turn: Arc<tokio::sync::Mutex<Last>>,
}

/// The last request of a slot.
#[derive(Clone, Debug, Default)]
struct Last {
    epoch: Pair,
    sequence: u64,
    reply: Option<Bytes>,
}

/// Decision on a request.
pub enum Enter {
    /// Execute the request.
    Run(Turn),
    /// The request was executed: this is the answer.
    Answered(Bytes),
}

/// An answer that was recorded.
pub(crate) struct Answer {
    /// Number of answers that the table had then.
    pub number: u64,
    reply: Bytes,
}

/// The right to execute one request of a slot; nothing else of the slot runs meanwhile.
pub struct Turn {
    table: Arc<SlotTable>,
    key: SlotKey,
    record: u32,
    /// `None` for work that came through no slot; then the record goes back with the turn.
    last: Option<OwnedMutexGuard<Last>>,
    epoch: Pair,
    sequence: u64,
    line: Option<Arc<dyn Line>>,
    in_flight: Option<InFlight>,
}

/// Writes in flight by a table on disk, for fsck.
pub fn load_in_flight(file: &dyn DiskFile) -> io::Result<Vec<InFlight>> {
    let mut bytes = vec![0; RECORD];
    let mut in_flight = Vec::new();
    for at in (0..file.len()?).step_by(RECORD) {
        file.read_at(&mut bytes, at)?;
        let record = Record::decode(&bytes).filter(|r| r.state == State::InFlight);
        in_flight.extend(record.and_then(|r| r.range));
    }
    Ok(in_flight)
}

impl SlotTable {
    /// Opens the table, or begins a new one (`fresh`: after a power cut). Returns what was in flight when the last
    /// process ended.
    pub fn open(disk: &dyn Disk, path: &str, fresh: bool) -> Result<(Arc<SlotTable>, Vec<InFlight>), Fault> {
        let io = |e: io::Error| Fault::io(Code::OstIo, "cannot open the slot table", path.to_owned(), &e);
        let file = disk.open(path, OpenHow::OpenOrCreate).map_err(io)?;
        if fresh {
            file.set_len(0).map_err(io)?;
        }
        let records = file.len().map_err(io)? / RECORD as u64;
        let capacity = u32::try_from(records).unwrap_or(u32::MAX).min(RECORDS_MAX);
        let mut inner = Inner { slots: BTreeMap::new(), free: BTreeSet::new(), capacity, tick: 0 };
        let mut in_flight = Vec::new();
        let mut bytes = vec![0; RECORD];
        for index in 0..capacity {
            file.read_at(&mut bytes, u64::from(index) * RECORD as u64).map_err(io)?;
            match Record::decode(&bytes) {
                Some(record) => {
                    if record.state == State::InFlight {
                        in_flight.extend(record.range);
                    }
                    inner.adopt(index, record);
                }
                None => drop(inner.free.insert(index)),
            }
        }
        let (inner, durable) = (Mutex::new(inner), tokio::sync::Mutex::new(Some(0)));
        Ok((Arc::new(SlotTable { file, inner, answers: AtomicU64::new(0), durable }), in_flight))
    }

    /// Whether any request was recorded before the table was opened.
    pub fn was_used(&self) -> bool {
        self.inner.lock().capacity > 0
    }

    /// Writes every row again as it is, and makes the table durable.
    pub(crate) fn write_again(&self) -> io::Result<()> {
        let inner = self.inner.lock();
        let mut rows = vec![0; GROW as usize * RECORD];
        for first in (0..inner.capacity).step_by(GROW as usize) {
            let at = u64::from(first) * RECORD as u64;
            let len = self.file.read_at(&mut rows, at)?;
            self.file.write_at(&rows[..len], at)?;
        }
        self.file.sync_data()
    }

    /// Makes the first `needed` answers durable; many callers share one sync. Returns whether this call synced.
    pub(crate) async fn sync(&self, needed: u64) -> io::Result<bool> {
        let mut durable = self.durable.lock().await;
        match durable.take() {
            None => return Err(io::Error::other("an earlier sync failed")),
            Some(known) if known >= needed => {
                *durable = Some(known);
                return Ok(false);
            }
            Some(_) => {}
        }
        let written = self.answers.load(Ordering::Acquire);
        self.file.sync_data_async().await?;
        *durable = Some(written);
        Ok(true)
    }

    /// Notes that writes in flight at the end of the last process have been put right.
    pub fn settled(&self) -> Result<(), Fault> {
        let inner = self.inner.lock();
        let mut bytes = vec![0; RECORD];
        for index in 0..inner.capacity {
            let at = u64::from(index) * RECORD as u64;
            let settled = self.file.read_at(&mut bytes, at).and_then(|_| match Record::decode(&bytes) {
                Some(r) if r.state == State::InFlight => {
                    self.file.write_at(&Record { state: State::Interrupted, ..r }.encode(), at)
                }
                _ => Ok(()),
            });
            settled.map_err(write_failed)?;
        }
        Ok(())
    }

    /// Waits for the slot's turn and decides what to do with a request that came over `line`.
    pub async fn enter(
        self: &Arc<Self>,
        key: SlotKey,
        epoch: Pair,
        sequence: u64,
        line: Arc<dyn Line>,
    ) -> Result<Enter, Fault> {
        let (record, turn) = self.claim(key, &line)?;
        let mut last = turn.lock_owned().await;
        if line.is_closed() {
            return Err(stale(key, "its connection has ended"));
        }
        if epoch < last.epoch {
            return Err(Fault::new(Code::Fenced).why(format!("the slot serves epoch {}", last.epoch)));
        }
        if epoch > last.epoch {
            *last = Last { epoch, ..Last::default() };
        }
        if sequence < last.sequence && !planted("ost_accept_old_sequence") {
            return Err(stale(key, "a later one was served"));
        }
        if sequence == last.sequence
            && let Some(reply) = &last.reply
        {
            return Ok(Enter::Answered(reply.clone()));
        }
        last.sequence = sequence;
        last.reply = None;
        Ok(Enter::Run(Turn {
            table: self.clone(),
            key,
            record,
            last: Some(last),
            epoch,
            sequence,
            line: Some(line),
            in_flight: None,
        }))
    }

    /// A turn for work that came through no slot (another server's, or of this one itself).
    pub fn anonymous(self: &Arc<Self>, line: Option<Arc<dyn Line>>) -> Result<Turn, Fault> {
        let record = self.inner.lock().take_record(&*self.file)?;
        Ok(Turn {
            table: self.clone(),
            key: SlotKey::default(),
            record,
            last: None,
            epoch: Pair::ZERO,
            sequence: 0,
            line,
            in_flight: None,
        })
    }

    /// Finds or makes the slot, and closes the connection of the same rail that it belonged to.
    fn claim(
        &self,
        key: SlotKey,
        line: &Arc<dyn Line>,
    ) -> Result<(u32, Arc<tokio::sync::Mutex<Last>>), Fault> {
        let mut inner = self.inner.lock();
        inner.tick += 1;
        let tick = inner.tick;
        if !inner.slots.contains_key(&key) {
            let record = inner.take_record(&*self.file)?;
            inner.slots.insert(key, Slot { record, last_use: tick, owner: None, turn: Arc::default() });
        }
        let slot = inner.slots.get_mut(&key).expect("it was just made");
        slot.last_use = tick;
        match &slot.owner {
            Some(owner) if owner.id() == line.id() => {}
            // The bug of forgetting that a request may be late: by its connection, and by its number below.
            Some(_) if planted("ost_accept_old_sequence") => {}
            Some(owner) if owner.rail() != line.rail() => slot.owner = Some(line.clone()),
            Some(owner) if owner.id() > line.id() => {
                return Err(stale(key, "it came over an older connection"));
            }
            older => {
                older.iter().for_each(|o| o.close());
                slot.owner = Some(line.clone());
            }
        }
        Ok((slot.record, slot.turn.clone()))
    }

    /// A session was ended: its slots of older epochs can be used by others.
    pub fn end_session(&self, session: SessionId, below: Pair) {
        let mut inner = self.inner.lock();
        let range = SlotKey { session, slot: 0 }..=SlotKey { session, slot: u16::MAX };
        let over: Vec<SlotKey> = inner.slots.range(range).map(|(k, _)| *k).collect();
        for key in over {
            let idle = inner.slots[&key].turn.clone().try_lock_owned().is_ok_and(|last| last.epoch < below);
            if idle && let Some(slot) = inner.slots.remove(&key) {
                // A record that stays is read again by the next start, and does no harm: its epoch is fenced.
                drop(self.file.write_at(&[0; RECORD], u64::from(slot.record) * RECORD as u64));
                inner.free.insert(slot.record);
            }
        }
    }

    /// Number of known slots.
    pub fn len(&self) -> usize {
        self.inner.lock().slots.len()
    }

    /// Whether no slot is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn write(&self, record: u32, r: &Record) -> Result<(), Fault> {
        self.file.write_at(&r.encode(), u64::from(record) * RECORD as u64).map_err(write_failed)
    }
}

impl Inner {
    fn adopt(&mut self, index: u32, record: Record) {
        if record.sequence == 0 {
            self.free.insert(index);
            return;
        }
        let age = (record.epoch, record.sequence);
        if let Some(known) = self.slots.get(&record.key) {
            // Rows of idle slots are given to others, and stay until those use them.
            let known_age = known.turn.try_lock().map(|last| (last.epoch, last.sequence)).unwrap_or_default();
            if known_age >= age {
                self.free.insert(index);
                return;
            }
            self.free.insert(known.record);
        }
        let reply = (record.state == State::Done).then_some(record.reply);
        let last = Last { epoch: record.epoch, sequence: record.sequence, reply };
        let turn = Arc::new(tokio::sync::Mutex::new(last));
        self.slots.insert(record.key, Slot { record: index, last_use: 0, owner: None, turn });
    }

    fn take_record(&mut self, file: &dyn DiskFile) -> Result<u32, Fault> {
        if self.free.is_empty() && self.capacity < RECORDS_MAX {
            // Written, not left as a hole, so that a full disk is met here and not in the middle of a write.
            let zeros = vec![0; GROW as usize * RECORD];
            file.write_at(&zeros, u64::from(self.capacity) * RECORD as u64).map_err(write_failed)?;
            self.free.extend(self.capacity..self.capacity + GROW);
            self.capacity += GROW;
        }
        if self.free.is_empty() {
            self.evict();
        }
        let record = self.free.pop_first();
        record.ok_or_else(|| Fault::new(Code::Overloaded).why("every record of the slot table is in use"))
    }

    fn evict(&mut self) {
        let idle = |s: &Slot| s.turn.try_lock().is_ok();
        let mut keys: Vec<(u64, SlotKey)> =
            self.slots.iter().filter(|(_, s)| idle(s)).map(|(k, s)| (s.last_use, *k)).collect();
        keys.sort_unstable();
        for (_, key) in keys.iter().take((self.slots.len() / EVICT_PART).max(1)) {
            if let Some(slot) = self.slots.remove(key) {
                self.free.insert(slot.record);
            }
        }
    }
}

fn stale(key: SlotKey, why: &'static str) -> Fault {
    Fault::new(Code::StaleWrite).subject(format!("slot {} of session {}", key.slot, key.session)).why(why)
}

fn write_failed(e: io::Error) -> Fault {
    Fault::io(Code::OstIo, "cannot write", "the slot table", &e)
}

impl Turn {
    /// The session that the work is done for, and its epoch; 0 for none.
    pub fn session(&self) -> (SessionId, Pair) {
        if self.last.is_none() {
            // The work belongs to no session, so the end of a session does not concern it.
            return (self.key.session, Pair { term: u32::MAX, counter: u64::MAX });
        }
        (self.key.session, self.epoch)
    }

    /// Records the range that is about to be changed. Refused when the connection has ended meanwhile: the request
    /// may have been sent again over another one.
    pub fn begin(&mut self, range: InFlight) -> Result<(), Fault> {
        if self.line.as_ref().is_some_and(|l| l.is_closed()) {
            return Err(stale(self.key, "its connection has ended"));
        }
        self.in_flight = Some(range);
        self.put(State::InFlight, Bytes::new())
    }

    /// Records the answer. An answer that is too long is replaced by `short`.
    /// `None` for work that came through no slot.
    pub(crate) fn record(
        &mut self,
        reply: &Bytes,
        short: impl FnOnce() -> Bytes,
    ) -> Result<Option<Answer>, Fault> {
        if self.last.is_none() {
            return Ok(None);
        }
        let reply = if reply.len() <= REPLY_MAX { reply.clone() } else { short() };
        assert!(reply.len() <= REPLY_MAX, "the short answer is too long");
        self.in_flight = None;
        self.put(State::Done, reply.clone())?;
        let number = self.table.answers.fetch_add(1, Ordering::AcqRel) + 1;
        Ok(Some(Answer { number, reply }))
    }

    /// The end of the turn: from now on the request is answered with this.
    pub(crate) fn answered(mut self, answer: Answer) {
        if let Some(last) = &mut self.last {
            last.reply = Some(answer.reply);
        }
    }

    fn put(&self, state: State, reply: Bytes) -> Result<(), Fault> {
        let (key, epoch, sequence) = (self.key, self.epoch, self.sequence);
        self.table.write(self.record, &Record { key, epoch, sequence, state, range: self.in_flight, reply })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            // The range has no torn block: before a turn is dropped, the range is finished or its sums are right.
            drop(self.put(State::Interrupted, Bytes::new()));
        }
        if self.last.is_none() {
            self.table.inner.lock().free.insert(self.record);
        }
    }
}

/// Whether bytes are a record of this table, for tests with garbage.
#[cfg(test)]
pub(crate) fn decodes(record: &[u8]) -> bool {
    Record::decode(record).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{block_on, new_disk};
    use brindle_types::Ino;
    use std::sync::atomic::{AtomicBool, Ordering};

    pub(crate) struct TestLine(u64, AtomicBool, u8);

    impl Line for TestLine {
        fn id(&self) -> u64 {
            self.0
        }
        fn rail(&self) -> u8 {
            self.2
        }
        fn close(&self) {
            self.1.store(true, Ordering::SeqCst);
        }
        fn is_closed(&self) -> bool {
            self.1.load(Ordering::SeqCst)
        }
    }

    fn line(id: u64) -> Arc<TestLine> {
        Arc::new(TestLine(id, AtomicBool::new(false), 0))
    }

    const KEY: SlotKey = SlotKey { session: SessionId(7), slot: 3 };

    fn range() -> InFlight {
        let object = ObjectId { ino: Ino(1), generation: Pair { term: 2, counter: 3 }, stripe: 4 };
        InFlight { object, offset: 5, len_bytes: 6 }
    }

    fn epoch(n: u64) -> Pair {
        Pair { term: 1, counter: n }
    }

    fn run(table: &Arc<SlotTable>, e: u64, sequence: u64, on: &Arc<TestLine>) -> Turn {
        match block_on(table.enter(KEY, epoch(e), sequence, on.clone())) {
            Ok(Enter::Run(turn)) => turn,
            Ok(Enter::Answered(_)) => panic!("was answered"),
            Err(f) => panic!("{f}"),
        }
    }

    fn done(mut turn: Turn, reply: &Bytes, short: impl FnOnce() -> Bytes) {
        let answer = turn.record(reply, short).expect("recorded").expect("of a slot");
        turn.answered(answer);
    }

    fn finish(turn: Turn, reply: &'static [u8]) {
        done(turn, &Bytes::from_static(reply), Bytes::new);
    }

    #[test]
    fn golden_record() {
        let record = Record {
            key: KEY,
            epoch: epoch(9),
            sequence: 8,
            state: State::Done,
            range: Some(range()),
            reply: Bytes::from_static(b"ok"),
        };
        let bytes = record.encode();
        let golden = "42534c540000000000000007000302010000000100000000000000090000000000000008\
                      000000000000000100000002000000000000000300000004\
                      0000000000000005000000000000000600026f6b";
        assert_eq!(crate::hex(&bytes[..golden.len() / 2]), golden);
        assert_eq!(Record::decode(&bytes), Some(record));
    }

    #[test]
    fn a_request_runs_once_across_resends_and_restarts() {
        let disk = new_disk(1);
        disk.put_dir("/t");
        let (table, none) = SlotTable::open(&disk, "/t/slots", true).expect("open");
        assert!(none.is_empty());
        let first = line(1);
        let mut turn = run(&table, 1, 5, &first);
        turn.begin(range()).expect("begun");
        std::mem::forget(turn); // the process dies here

        let (table, in_flight) = SlotTable::open(&disk, "/t/slots", false).expect("open");
        assert_eq!(in_flight, [range()]);
        table.settled().expect("settled");
        assert!(SlotTable::open(&disk, "/t/slots", false).expect("open").1.is_empty(), "settled once");
        let mut turn = run(&table, 1, 5, &first);
        turn.begin(range()).expect("begun");
        finish(turn, b"answer");

        let (table, in_flight) = SlotTable::open(&disk, "/t/slots", false).expect("open");
        assert!(in_flight.is_empty());
        let answer = block_on(table.enter(KEY, epoch(1), 5, line(2))).expect("known");
        assert!(matches!(answer, Enter::Answered(b) if b == "answer"));
        let late = block_on(table.enter(KEY, epoch(1), 4, line(3))).err().expect("late");
        assert_eq!(late.code, Code::StaleWrite);
        finish(run(&table, 2, 1, &line(4)), b"a new epoch begins again");
        let old = block_on(table.enter(KEY, epoch(1), 9, line(5))).err().expect("old epoch");
        assert_eq!(old.code, Code::Fenced);
        table.end_session(KEY.session, epoch(3));
        assert!(table.is_empty());
    }

    #[test]
    fn a_slot_belongs_to_the_newest_connection() {
        let disk = new_disk(1);
        disk.put_dir("/t");
        let (table, _) = SlotTable::open(&disk, "/t/slots", true).expect("open");
        let (old, new) = (line(1), line(2));
        let mut turn = run(&table, 1, 1, &old);
        let mut again = Box::pin(table.enter(KEY, epoch(1), 1, new.clone()));
        assert!(futures_util::FutureExt::now_or_never(&mut again).is_none(), "waits for the one that runs");
        assert!(old.is_closed());
        assert_eq!(turn.begin(range()).expect_err("its connection is closed").code, Code::StaleWrite);
        drop(turn);
        assert!(matches!(block_on(again), Ok(Enter::Run(_))));
        let late = block_on(table.enter(KEY, epoch(1), 2, old)).err().expect("older connection");
        assert_eq!(late.code, Code::StaleWrite);
    }

    #[test]
    fn connections_of_different_rails_share_a_slot_and_what_is_late_is_known_by_its_number() {
        let disk = new_disk(1);
        disk.put_dir("/t");
        let (table, _) = SlotTable::open(&disk, "/t/slots", true).expect("open");
        let second = |id| Arc::new(TestLine(id, AtomicBool::new(false), 1));
        let (one, other) = (line(1), second(2));
        finish(run(&table, 1, 1, &one), b"first");
        finish(run(&table, 1, 2, &other), b"second");
        finish(run(&table, 1, 3, &one), b"third");
        assert!(!one.is_closed() && !other.is_closed(), "both live on");
        // One rail is dead: its requests are sent again over the other, while the first attempt may still run.
        let mut turn = run(&table, 1, 4, &other);
        let mut again = Box::pin(table.enter(KEY, epoch(1), 4, one.clone()));
        assert!(futures_util::FutureExt::now_or_never(&mut again).is_none(), "waits for the one that runs");
        turn.begin(range()).expect("its connection is not closed");
        finish(turn, b"fourth");
        assert!(matches!(block_on(again), Ok(Enter::Answered(b)) if b == "fourth"), "it ran once");
        finish(run(&table, 1, 5, &one), b"fifth");
        let late = block_on(table.enter(KEY, epoch(1), 4, other.clone())).err().expect("a late duplicate");
        assert_eq!(late.code, Code::StaleWrite);
        // The newest connection of a rail counts, whatever the other rail does.
        let newer = second(3);
        finish(run(&table, 1, 6, &other), b"sixth");
        finish(run(&table, 1, 7, &newer), b"seventh");
        assert!(other.is_closed() && !one.is_closed());
        assert!(block_on(table.enter(KEY, epoch(1), 8, other)).is_err(), "its connection is older");
    }

    #[test]
    fn long_answers_are_replaced_and_anonymous_work_leaves_nothing() {
        let disk = new_disk(1);
        disk.put_dir("/t");
        let (table, _) = SlotTable::open(&disk, "/t/slots", true).expect("open");
        let turn = run(&table, 1, 1, &line(1));
        done(turn, &Bytes::from(vec![1; 1000]), || Bytes::from_static(b"short"));
        let got = block_on(table.enter(KEY, epoch(1), 1, line(1))).expect("known");
        assert!(matches!(got, Enter::Answered(b) if b == "short"));
        let mut turn = table.anonymous(None).expect("a record");
        turn.begin(range()).expect("begun");
        drop(turn);
        assert!(SlotTable::open(&disk, "/t/slots", false).expect("open").1.is_empty());
    }
}
