//! Replies that wait for syncs: after a power cut, a kill or a failed sync at any moment, no answered change is lost, and
//! no answered request is executed again.

use brindle_sim::DiskOp;
use std::collections::BTreeMap;

use brindle_types::{Code, SessionId};
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};

use super::*;
use crate::replies::NOTHING_LOST;
use crate::slots::{Enter, Line, SlotKey};

/// Bytes that belong to one request of a round; several lanes share a block.
const LANE: u64 = 3000;
const LANES: u64 = 8;
const SPACE: usize = (LANE * LANES) as usize;
const OBJECTS: u64 = 5;

/// A connection that lives as long as the process.
struct Always;

impl Line for Always {
    fn id(&self) -> u64 {
        1
    }
    fn close(&self) {}
    fn is_closed(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Write(u8),
    Punch,
    Allocate,
}

/// A request of a slot.
#[derive(Clone, Copy, Debug)]
struct Request {
    slot: u16,
    sequence: u64,
    change: Change,
    object: ObjectId,
    from: u64,
    to: u64,
    ticket: Ticket,
}

fn object(n: u64) -> ObjectId {
    ObjectId { stripe: n as u32, ..O }
}

impl Request {
    fn byte(&self) -> Option<u8> {
        match self.change {
            Change::Write(byte) => Some(byte),
            Change::Punch => Some(0),
            Change::Allocate => None,
        }
    }

    fn reply(&self) -> Bytes {
        format!("{}/{}", self.slot, self.sequence).into()
    }

    /// Serves the request as an OST does. Returns the reply, and whether the request was executed now.
    async fn serve(self, store: Arc<ObjectStore>) -> Result<(Bytes, bool), Fault> {
        let key = SlotKey { session: SessionId(9), slot: self.slot };
        let mut turn = match store.slots().enter(key, pair(1), self.sequence, Arc::new(Always)).await? {
            Enter::Run(turn) => turn,
            Enter::Answered(reply) => return Ok((reply, false)),
        };
        let Request { object, from, to, ticket, .. } = self;
        let punch = PunchOp { object, offset: from, len_bytes: to - from, ticket };
        let changed = match self.change {
            Change::Write(byte) => {
                let data = Bytes::from(vec![byte; (to - from) as usize]);
                let crc = crc(&data);
                let op = WriteOp { object, offset: from, data, crc, ticket, sync: false, covered: false };
                store.write(&op, &mut turn).await?
            }
            Change::Punch => store.punch(&punch, false, &mut turn).await?,
            Change::Allocate => store.allocate(&punch, false, &mut turn).await?,
        };
        store.sync_before_reply(object, changed.boot_term).await?;
        store.record_reply(turn, &self.reply(), Bytes::new).await?;
        Ok((self.reply(), true))
    }
}

/// Answered changes, and changes that may have been made besides.
struct Known {
    bytes: Vec<u8>,
    /// Byte values that a request without an answer may have written.
    maybe: Vec<Option<u8>>,
    truncate_epoch: Pair,
}

struct Run {
    b: Bench,
    seed: u64,
    random: u64,
    known: BTreeMap<ObjectId, Known>,
    /// The last request of each slot, and whether it was answered.
    last: BTreeMap<u16, (Request, bool)>,
    sequence: u64,
}

fn synced_bench(seed: u64) -> Bench {
    let mut b = Bench::new(seed);
    b.replies = Replies::Synced;
    b.restart();
    b
}

impl Run {
    fn new(seed: u64) -> Run {
        let b = synced_bench(seed);
        b.disk.set_sync_pauses(1);
        let nothing =
            || Known { bytes: vec![0; SPACE], maybe: vec![None; SPACE], truncate_epoch: Pair::ZERO };
        let known = (0..OBJECTS).map(|n| (object(n), nothing())).collect();
        Run { b, seed, random: seed ^ 0x5eed, known, last: BTreeMap::new(), sequence: 0 }
    }

    fn draw(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % n
    }

    /// Requests of several slots at once, each in a lane of its own; `false` when one was not answered.
    fn round(&mut self) -> bool {
        let shift = self.draw(LANES);
        let mut requests = Vec::new();
        for slot in 0..LANES {
            if self.draw(2) == 0 {
                continue;
            }
            self.sequence += 1;
            let start = (slot + shift) % LANES * LANE;
            let from = start + self.draw(LANE / 2);
            let to = from + 1 + self.draw(start + LANE - from);
            let change = match self.draw(8) {
                0 => Change::Punch,
                1 => Change::Allocate,
                _ => Change::Write(self.draw(255) as u8 + 1),
            };
            let object = object(self.draw(OBJECTS));
            let ticket = Ticket { truncate_epoch: self.known[&object].truncate_epoch, ..self.b.ticket };
            requests.push(Request {
                slot: slot as u16,
                sequence: self.sequence,
                change,
                object,
                from,
                to,
                ticket,
            });
        }
        let serving = requests.iter().map(|r| r.serve(self.b.store.clone()).map(|done| (*r, done)));
        let served: Vec<_> = block_on(stream::iter(serving).buffer_unordered(LANES as usize).collect());
        served.into_iter().fold(true, |all, (request, done)| self.note(request, done.is_ok()) && all)
    }

    fn note(&mut self, request: Request, answered: bool) -> bool {
        self.last.insert(request.slot, (request, answered));
        let known = self.known.get_mut(&request.object).expect("one of the objects");
        for at in request.from as usize..request.to as usize {
            match request.byte() {
                Some(byte) if answered => known.bytes[at] = byte,
                maybe => known.maybe[at] = maybe,
            }
        }
        answered
    }

    fn truncate(&mut self) -> bool {
        let (id, len) = (object(self.draw(OBJECTS)), self.draw(SPACE as u64));
        let known = self.known.get_mut(&id).expect("one of the objects");
        let epoch = pair(known.truncate_epoch.counter + 1);
        let answered = block_on(self.b.store.truncate(id, len, epoch, true, false)).is_ok();
        if answered {
            known.truncate_epoch = epoch;
            known.bytes[len as usize..].fill(0);
        } else {
            known.maybe[len as usize..].fill(Some(0));
        }
        answered
    }

    fn step(&mut self) -> bool {
        match self.draw(8) {
            0 => self.truncate(),
            1 => {
                self.b.pass_ms(1500);
                true
            }
            _ => self.round(),
        }
    }

    fn read(&self, id: ObjectId) -> Vec<u8> {
        let ticket = Ticket { truncate_epoch: self.known[&id].truncate_epoch, ..self.b.ticket };
        let read = block_on(self.b.store.read(id, 0, SPACE as u64, &ticket));
        let data = read.unwrap_or_else(|f| panic!("seed {}: {f}", self.seed)).data;
        let mut bytes = data.to_vec();
        bytes.resize(SPACE, 0);
        bytes
    }

    /// After a crash: what was answered is there, and becomes what is known with what is there besides.
    fn check(&mut self, what: &str) {
        for id in self.known.keys().copied().collect::<Vec<_>>() {
            let bytes = self.read(id);
            let epoch = block_on(self.b.store.stat(id)).expect("stat").truncate_epoch;
            let known = self.known.get_mut(&id).expect("one of the objects");
            assert!(epoch >= known.truncate_epoch, "seed {}: after {what}: a truncate was lost", self.seed);
            for (at, byte) in bytes.iter().enumerate() {
                let is_known = known.bytes[at] == *byte || known.maybe[at] == Some(*byte);
                assert!(
                    is_known,
                    "seed {}: after {what}: byte {at} of {id} is {byte}, {} was answered",
                    self.seed, known.bytes[at]
                );
            }
            *known = Known { bytes, maybe: vec![None; SPACE], truncate_epoch: epoch };
        }
        assert_eq!(self.b.stat("damaged_blocks"), 0, "seed {}: after {what}", self.seed);
    }

    /// Every slot sends its last request again.
    fn resend(&mut self) {
        for (request, answered) in self.last.values().copied().collect::<Vec<_>>() {
            // An unanswered truncate may have been made; clients learn of it before they send again.
            let truncate_epoch = self.known[&request.object].truncate_epoch;
            let ticket = Ticket { truncate_epoch, ..request.ticket };
            let again = block_on(Request { ticket, ..request }.serve(self.b.store.clone()));
            let (reply, executed) = again.unwrap_or_else(|f| panic!("seed {}: {f}", self.seed));
            assert_eq!(reply, request.reply());
            assert!(!(answered && executed), "seed {}: {request:?} was executed again", self.seed);
            if !answered {
                self.note(request, true);
            }
        }
    }

    fn crash(&mut self) {
        match self.draw(4) {
            0 => {
                self.b.restart();
                self.check("a kill");
            }
            _ => {
                let term = self.b.store.boot_term();
                self.b.power_cut();
                assert!(self.b.store.boot_term() > term, "recovery knows of the power cut");
                self.check("a power cut");
            }
        }
        self.resend();
        self.b.power_cut();
        self.check("a second power cut");
    }
}

fn run(seed: u64) {
    let mut run = Run::new(seed);
    for _ in 0..4 {
        let is_dying = run.draw(3) > 0;
        if is_dying {
            let ops_to_live = run.draw(250);
            run.b.disk.die_after(ops_to_live);
        } else {
            let good_syncs = run.draw(40);
            run.b.disk.fail_later(DiskOp::SyncFile, good_syncs, 1);
        }
        let mut alive = true;
        for _ in 0..12 {
            alive = run.step();
            if !alive {
                break;
            }
        }
        assert!(alive || is_dying || run.b.store.has_ended(), "seed {seed}: a failed sync ends the store");
        run.b.disk.fail_next(DiskOp::SyncFile, 0);
        run.crash();
    }
}

#[test]
fn nothing_that_was_answered_is_lost_or_executed_again() {
    let first = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let count: u64 = std::env::var("SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(200);
    first.map_or(0..count, |s: u64| s..s + 1).for_each(run);
}

fn write_of(slot: u16, sequence: u64, byte: u8) -> Request {
    let change = Change::Write(byte);
    Request { slot, sequence, change, object: O, from: 10, to: 5000, ticket: Ticket::default() }
}

#[test]
fn a_resend_after_a_takeover_does_not_undo_what_another_client_wrote_since() {
    let mut b = synced_bench(1);
    block_on(write_of(1, 1, 11).serve(b.store.clone())).expect("answered");
    block_on(write_of(2, 1, 22).serve(b.store.clone())).expect("answered");
    b.power_cut();
    let again = block_on(write_of(1, 1, 11).serve(b.store.clone())).expect("answered");
    assert_eq!(again, ("1/1".into(), false));
    assert_eq!(b.read(10, 4990).expect("read"), vec![22; 4990]);
    assert_eq!(b.store.told_term(b.store.boot_term()), NOTHING_LOST);
}

#[test]
fn a_failed_sync_ends_the_store_and_its_successor_goes_on() {
    // The first sync is that of the object, the second that of the slot table.
    for good_syncs in 0..2 {
        let mut b = synced_bench(1);
        block_on(write_of(1, 1, 11).serve(b.store.clone())).expect("answered");
        let term = b.store.boot_term();
        b.disk.fail_later(DiskOp::SyncFile, good_syncs, 1);
        assert!(b.store.until_failed().now_or_never().is_none());
        let request = Request { object: object(3), ..write_of(2, 1, 22) };
        let refused = block_on(request.serve(b.store.clone())).expect_err("not on the disk");
        let fault = b.store.until_failed().now_or_never().expect("the store has ended");
        assert_eq!((refused.code, &fault), (Code::OstIo, &refused));
        let later =
            block_on(write_of(1, 2, 33).serve(b.store.clone())).expect_err("nothing is answered any more");
        assert_eq!(later, fault);
        b.pass_ms(1000);
        assert!(b.store.failure().is_some(), "no later sync is believed");

        b.restart();
        assert!(b.store.boot_term() > term, "pages may be clean in memory only");
        let (_, executed) = block_on(request.serve(b.store.clone())).expect("answered");
        assert_eq!(executed, good_syncs == 0);
        b.power_cut();
        assert_eq!(b.read_of(object(3), 10, 4990).expect("read").data, vec![22; 4990]);
        assert_eq!(b.read(10, 4990).expect("read"), vec![11; 4990]);
    }
}

#[test]
fn rows_from_before_replies_waited_are_not_believed_after_a_power_cut() {
    let mut b = Bench::new(1);
    block_on(write_of(1, 1, 11).serve(b.store.clone())).expect("answered");
    b.replies = Replies::Synced;
    b.power_cut();
    let (_, executed) = block_on(write_of(1, 1, 11).serve(b.store.clone())).expect("answered");
    assert!(executed, "the power cut may have taken the bytes");
    // The mode changes back: the last rows may be believed, later ones may not.
    b.replies = Replies::Written;
    b.power_cut();
    assert_eq!(block_on(write_of(1, 1, 11).serve(b.store.clone())).expect("known"), ("1/1".into(), false));
    b.power_cut();
    let (_, executed) = block_on(write_of(1, 1, 11).serve(b.store.clone())).expect("answered");
    assert!(executed);
}
