//! Traces of the requests to a server: a record each, while a command asks for them.
//!
//! A request looks at one word in memory ([`Tracer::is_on`]). Only while a trace runs is its record made: its file is read from its body, its
//! times are taken ([`in_part`]), and each trace that chooses it keeps the record until its reader fetches it ([`Tracer::answer`]).
//!
//! Invariants: a trace keeps at most [`RECORDS_MAX`] records and [`BYTES_MAX`] bytes, and counts those for which there is no space; a trace
//! whose reader does not ask for [`IDLE_MS`] is forgotten, with its records.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use brindle_stdx::cast::to_u64;
use brindle_stdx::{Clock, Mono, Seams, Timestamp};
use brindle_types::{Code, Fault, Result};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, decode_body};
use brindle_wire::job::JobTag;
use brindle_wire::principal::{Principal, PrincipalKind};
use brindle_wire::trace::{
    self, ANSWER_BYTES_MAX, TraceFilter, TraceRecord, TraceReq, TraceResp, TraceSubject,
};
use parking_lot::Mutex;

use crate::job;
use crate::usage::{Cost, shown};

/// Most traces at once of one server.
pub const TRACES_MAX: usize = 4;
/// Most records that a trace keeps for its reader.
pub const RECORDS_MAX: usize = 8_192;
/// Most bytes of these records.
pub const BYTES_MAX: usize = 2 << 20;
/// A trace whose reader has not asked for so long is forgotten.
pub const IDLE_MS: u64 = 10_000;
/// Pause between two looks for traces without readers.
const LOOK_MS: u64 = 1_000;
/// Bytes of a record without its names.
const RECORD_BYTES: usize = size_of::<TraceRecord>();

/// The traces of a server.
pub struct Tracer {
    seams: Seams,
    is_on: AtomicBool,
    traces: Mutex<BTreeMap<u64, Trace>>,
    /// Whether a task looks for traces without readers; changed under the lock of `traces`.
    is_looking: AtomicBool,
}

/// A trace.
struct Trace {
    filter: TraceFilter,
    records: VecDeque<TraceRecord>,
    bytes: usize,
    dropped: u64,
    asked: Mono,
}

/// A request that some trace may choose, on its way through the server.
pub(crate) struct Traced {
    at: Timestamp,
    arrived: Mono,
    began: Mono,
    client_queue_us: u64,
    network_us: u64,
    subject: Option<TraceSubject>,
    spans: Arc<Spans>,
}

/// Part of the time of a request that is told by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Work of the object store or the log: a disk.
    Disk,
    /// Wait for other clients and operations.
    Others,
}

/// Times of the parts of a request.
pub(crate) struct Spans {
    clock: Arc<dyn Clock>,
    /// Whether the request is in a part already: a part within another one counts for the outer one.
    is_inside: AtomicBool,
    disk_ns: AtomicU64,
    others_ns: AtomicU64,
}

/// Runs a part of the request of this task. Outside of a traced request it only runs it.
pub async fn in_part<F: Future>(part: Part, work: F) -> F::Output {
    let spans = job::spans().filter(|spans| !spans.is_inside.swap(true, Ordering::Relaxed));
    let Some(spans) = spans else { return work.await };
    let began = spans.clock.now();
    let done = work.await;
    let total = match part {
        Part::Disk => &spans.disk_ns,
        Part::Others => &spans.others_ns,
    };
    total.fetch_add(spans.clock.now().0.saturating_sub(began.0), Ordering::Relaxed);
    spans.is_inside.store(false, Ordering::Relaxed);
    done
}

impl Tracer {
    /// No traces.
    pub fn new(seams: &Seams) -> Arc<Tracer> {
        Arc::new(Tracer {
            seams: seams.clone(),
            is_on: AtomicBool::new(false),
            traces: Mutex::default(),
            is_looking: AtomicBool::new(false),
        })
    }

    /// Whether a trace runs: all that a request costs where none does.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// A request begins that arrived when a trace ran; `None` if no trace chooses it.
    pub(crate) fn begin(
        &self,
        (principal, job): (&Principal, Option<&JobTag>),
        op: Op,
        frame: &Frame,
        arrived: Mono,
    ) -> Option<Box<Traced>> {
        // A trace would see itself, and every other question of an administrator.
        let is_traced =
            matches!(principal.kind, PrincipalKind::Client | PrincipalKind::Mdt | PrincipalKind::Ost);
        if !is_traced {
            return None;
        }
        let subject = trace::subject(op, &frame.body);
        let named = job.map(|job| (job.name(), job.uid()));
        let is_chosen =
            |trace: &Trace| trace.filter.has_request(op, shown(&principal.host), named, subject.as_ref());
        if !self.traces.lock().values().any(is_chosen) {
            return None;
        }
        Some(Box::new(Traced {
            at: self.seams.wall(),
            arrived,
            began: self.seams.now(),
            client_queue_us: frame.header.queued_us.into(),
            network_us: frame.header.network_us.into(),
            subject,
            spans: Arc::new(Spans {
                clock: self.seams.clock.clone(),
                is_inside: AtomicBool::new(false),
                disk_ns: AtomicU64::new(0),
                others_ns: AtomicU64::new(0),
            }),
        }))
    }

    /// A request was answered.
    pub(crate) fn end(
        &self,
        (principal, job): (&Principal, Option<&JobTag>),
        traced: Traced,
        cost: Cost,
        code: u16,
    ) {
        let us = |from: Mono, to: Mono| to.0.saturating_sub(from.0) / 1_000;
        let Traced { at, arrived, began, client_queue_us, network_us, subject, spans } = traced;
        let (queue_us, service_us) = (us(arrived, began), us(began, self.seams.now()));
        let record = TraceRecord {
            // The wall clock was looked at when the request got its turn.
            at_ns: wall_ns(at).saturating_sub(i64::try_from(queue_us * 1_000).unwrap_or(i64::MAX)),
            client: shown(&principal.host).to_owned(),
            op: cost.op as u16,
            subject,
            job: job.map(|job| job.name().to_owned()).unwrap_or_default(),
            uid: job.map(JobTag::uid),
            read_bytes: cost.read_bytes,
            written_bytes: cost.written_bytes,
            client_queue_us,
            network_us,
            queue_us,
            service_us,
            disk_us: spans.disk_ns.load(Ordering::Relaxed) / 1_000,
            others_us: spans.others_ns.load(Ordering::Relaxed) / 1_000,
            code,
        };
        let named = job.map(|job| (job.name(), job.uid()));
        for trace in self.traces.lock().values_mut() {
            let filter = &trace.filter;
            if filter.has_request(cost.op, &record.client, named, record.subject.as_ref())
                && filter.has_outcome(queue_us.saturating_add(service_us), code)
            {
                trace.keep(&record);
            }
        }
    }

    /// Records since the last question; the first question begins a trace.
    pub fn answer(self: &Arc<Self>, request: &TraceReq) -> Result<TraceResp> {
        if let Some(excess) = request.filter.excess() {
            return Err(refused().why(format!("its filter has {excess}")).next("choose fewer"));
        }
        let now = self.seams.now();
        let mut traces = self.traces.lock();
        let has_begun = !traces.contains_key(&request.trace);
        if has_begun {
            if request.ends {
                return Ok(TraceResp { has_begun, ..TraceResp::default() });
            }
            if traces.len() >= TRACES_MAX {
                return Err(refused().why(format!("it makes {TRACES_MAX} traces already")).next(format!(
                    "end one of them; a trace whose reader is gone ends after {} s",
                    IDLE_MS / 1_000
                )));
            }
            if !self.is_looking.swap(true, Ordering::Relaxed) {
                let looking = self.clone();
                self.seams.spawn("server.trace", async move { looking.forget_unread().await });
            }
            traces.insert(request.trace, Trace::new(now));
        }
        let Some(trace) = traces.get_mut(&request.trace) else { return Err(refused()) };
        trace.asked = now;
        trace.filter.clone_from(&request.filter);
        let mut answer = trace.fetch(has_begun);
        if request.ends {
            let unread = traces.remove(&request.trace).map_or(0, |trace| trace.records.len());
            answer.dropped += to_u64(unread);
        }
        self.is_on.store(!traces.is_empty(), Ordering::Relaxed);
        Ok(answer)
    }

    /// Forgets traces that nobody reads, until there are none.
    async fn forget_unread(&self) {
        loop {
            self.seams.sleep_ms(LOOK_MS).await;
            let now = self.seams.now();
            let mut traces = self.traces.lock();
            traces.retain(|_, trace| now.ms_since(trace.asked) < IDLE_MS);
            self.is_on.store(!traces.is_empty(), Ordering::Relaxed);
            if traces.is_empty() {
                self.is_looking.store(false, Ordering::Relaxed);
                return;
            }
        }
    }
}

impl Trace {
    fn new(asked: Mono) -> Trace {
        Trace { filter: TraceFilter::default(), records: VecDeque::new(), bytes: 0, dropped: 0, asked }
    }

    fn keep(&mut self, record: &TraceRecord) {
        let bytes = bytes_of(record);
        if self.records.len() >= RECORDS_MAX || self.bytes + bytes > BYTES_MAX {
            self.dropped += 1;
            return;
        }
        self.bytes += bytes;
        self.records.push_back(record.clone());
    }

    /// As many records as fit into an answer.
    fn fetch(&mut self, has_begun: bool) -> TraceResp {
        let (mut records, mut fetched) = (Vec::new(), 0);
        while let Some(record) = self.records.pop_front() {
            let bytes = bytes_of(&record);
            if fetched + bytes > ANSWER_BYTES_MAX {
                self.records.push_front(record);
                break;
            }
            fetched += bytes;
            records.push(record);
        }
        self.bytes -= fetched;
        let has_more = !self.records.is_empty();
        TraceResp { has_begun, records, dropped: std::mem::take(&mut self.dropped), has_more }
    }
}

impl Traced {
    /// Times of its parts.
    pub(crate) fn spans(&self) -> Arc<Spans> {
        self.spans.clone()
    }
}

/// Number of the code of the error that an answer is; 0 for any other answer.
pub(crate) fn code_of(answer: &Frame) -> u16 {
    if answer.outcome().first() != Some(&1) {
        return 0;
    }
    // An outcome that begins with 1 and is no fault would be refused by the caller.
    match decode_body::<Result<()>>(answer.outcome()) {
        Ok(Err(fault)) => fault.code.number(),
        Ok(Ok(())) | Err(_) => Code::BadFrame.number(),
    }
}

fn refused() -> Fault {
    Fault::new(Code::Overloaded).what("the server cannot make the trace").data("nothing was changed")
}

/// Bytes of a record in memory; on the wire it has fewer.
fn bytes_of(record: &TraceRecord) -> usize {
    let name = record.subject.as_ref().map_or(0, |subject| subject.name.len());
    RECORD_BYTES + record.client.len() + record.job.len() + name
}

/// Nanoseconds since 1970.
fn wall_ns(at: Timestamp) -> i64 {
    at.secs.saturating_mul(1_000_000_000).saturating_add(at.nanos.into())
}

#[cfg(test)]
mod tests {
    use brindle_stdx::BoxFuture;
    use brindle_types::{Gen, Ino, ObjectId, Pair};
    use brindle_wire::frame::{Header, encode_body};
    use brindle_wire::oss::Ticket;
    use brindle_wire::oss::read::ReadReq;

    use super::*;

    /// A clock that stands still until it is set; a sleep lasts until then.
    #[derive(Default)]
    struct Hand(AtomicU64, tokio::sync::Notify);

    impl Hand {
        fn set_ms(&self, ms: u64) {
            self.0.store(ms, Ordering::SeqCst);
            self.1.notify_waiters();
        }
    }

    /// A clock of many owners.
    #[derive(Clone, Default)]
    struct Shared(Arc<Hand>);

    impl Clock for Shared {
        fn now(&self) -> Mono {
            Mono(self.0.0.load(Ordering::SeqCst) * 1_000_000)
        }

        fn wall(&self) -> Timestamp {
            Timestamp::new(1_000, 0)
        }

        fn sleep_until(&self, at: Mono) -> BoxFuture<'static, ()> {
            let hand = self.clone();
            Box::pin(async move {
                loop {
                    let set = hand.0.1.notified();
                    let mut set = std::pin::pin!(set);
                    set.as_mut().enable();
                    if hand.now() >= at {
                        return;
                    }
                    set.await;
                }
            })
        }
    }

    struct Rig {
        hand: Arc<Hand>,
        tracer: Arc<Tracer>,
    }

    impl Rig {
        fn new() -> Rig {
            let clock = Shared::default();
            let real = brindle_stdx::real::seams(tokio::runtime::Handle::current());
            let seams = Seams { clock: Arc::new(clock.clone()), ..real };
            Rig { hand: clock.0, tracer: Tracer::new(&seams) }
        }

        /// A read of 100 bytes that a mount asks for and that ends with `code`; the server takes 5 ms. Whether it was traced.
        async fn read(&self, host: &str, job: &str, ino: u64, code: u16) -> bool {
            let principal = Principal { kind: PrincipalKind::Client, host: host.into(), target: None };
            let object = ObjectId { ino: Ino(ino), generation: Gen { term: 1, counter: 1 }, stripe: 0 };
            let ticket = Ticket {
                layout_epoch: Pair::ZERO,
                truncate_epoch: Pair::ZERO,
                attr_epoch: Pair::ZERO,
                must_exist: false,
            };
            let request = ReadReq { object, offset: 4096, len_bytes: 100, may_cache: false, ticket };
            let header = Header { queued_us: 77, ..Header::default() };
            let frame = Frame::new(header, encode_body(&request));
            if !self.tracer.is_on() {
                return false;
            }
            let job = JobTag::new(job, 1000);
            let arrived = self.tracer.seams.now();
            let Some(traced) = self.tracer.begin((&principal, Some(&job)), Op::Read, &frame, arrived) else {
                return false;
            };
            let now = self.hand.0.load(Ordering::SeqCst);
            let work = in_part(Part::Disk, in_part(Part::Others, async { self.hand.set_ms(now + 3) }));
            job::with_spans(None, Some(traced.spans()), work).await;
            self.hand.set_ms(now + 5);
            let cost = Cost { op: Op::Read, read_bytes: 100, written_bytes: 0, micros: 0 };
            self.tracer.end((&principal, Some(&job)), *traced, cost, code);
            true
        }

        fn ask(&self, trace: u64, filter: &TraceFilter) -> TraceResp {
            let request = TraceReq { trace, filter: filter.clone(), ends: false };
            self.tracer.answer(&request).expect("answered")
        }
    }

    #[tokio::test]
    async fn a_request_is_told_with_its_times_to_the_trace_that_chooses_it() {
        let rig = Rig::new();
        assert!(!rig.read("n1", "a", 5, 0).await, "no trace runs");
        let (all, of_b) = (TraceFilter::default(), TraceFilter { job: "b".into(), ..TraceFilter::default() });
        assert!(rig.ask(1, &all).has_begun && rig.ask(2, &of_b).has_begun);
        assert!(rig.read("n1", "a", 5, 0).await && rig.read("n2", "b", 6, 2001).await);
        let told = rig.ask(1, &all);
        assert_eq!((told.has_begun, told.records.len(), told.dropped, told.has_more), (false, 2, 0, false));
        let record = &told.records[0];
        assert_eq!((record.client.as_str(), record.job.as_str(), record.uid), ("n1", "a", Some(1000)));
        assert_eq!((record.op, record.read_bytes, record.code), (Op::Read as u16, 100, 0));
        let subject = record.subject.as_ref().expect("a file");
        assert_eq!((subject.ino, subject.offset), (5, Some(4096)));
        assert_eq!((record.client_queue_us, record.queue_us, record.service_us), (77, 0, 5_000));
        assert_eq!((record.disk_us, record.others_us), (3_000, 0), "the inner part belongs to the outer one");
        assert_eq!(record.at_ns, 1_000_000_000_000);
        let told = rig.ask(2, &of_b);
        assert_eq!(told.records.iter().map(|r| (r.job.as_str(), r.code)).collect::<Vec<_>>(), [("b", 2001)]);
        assert!(rig.ask(1, &all).records.is_empty(), "each record is told once");
    }

    #[tokio::test]
    async fn a_trace_ends_when_it_is_told_to_and_when_its_reader_is_gone() {
        let rig = Rig::new();
        let all = TraceFilter::default();
        rig.ask(1, &all);
        rig.ask(2, &all);
        let last = TraceReq { trace: 1, filter: all.clone(), ends: true };
        assert!(!rig.tracer.answer(&last).expect("ended").has_begun);
        assert!(rig.tracer.answer(&last).expect("it is gone").has_begun);
        assert!(rig.tracer.is_on(), "the other one goes on");
        tokio::task::yield_now().await;
        let mut now = 0;
        while rig.tracer.is_on() {
            now += LOOK_MS;
            assert!(now <= 3 * IDLE_MS, "nobody has forgotten the trace");
            rig.hand.set_ms(now);
            // The look runs on this thread.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
        assert!(now >= IDLE_MS, "{now}");
        assert!(rig.ask(2, &all).has_begun, "its records are gone");
    }

    #[tokio::test]
    async fn traces_that_come_and_go_have_one_task_that_looks_for_their_readers() {
        let rig = Rig::new();
        let alone = Arc::strong_count(&rig.tracer);
        for trace in 0..20 {
            rig.ask(trace, &TraceFilter::default());
            let last = TraceReq { trace, filter: TraceFilter::default(), ends: true };
            assert!(!rig.tracer.answer(&last).expect("ended").has_begun);
        }
        assert_eq!(Arc::strong_count(&rig.tracer), alone + 1);
    }

    #[tokio::test]
    async fn a_trace_is_bounded_and_counts_what_finds_no_space() {
        let rig = Rig::new();
        let all = TraceFilter::default();
        rig.ask(1, &all);
        for _ in 0..RECORDS_MAX + 3 {
            assert!(rig.read("n1", "a", 5, 0).await);
            // The reader is there.
            rig.hand.0.store(0, Ordering::SeqCst);
        }
        let mut told = rig.ask(1, &all);
        assert_eq!(told.dropped, 3);
        let mut records = 0;
        loop {
            records += told.records.len();
            assert!(encode_body(&told).len() < ANSWER_BYTES_MAX + (4 << 10));
            if !told.has_more {
                break;
            }
            told = rig.ask(1, &all);
            assert_eq!(told.dropped, 0);
        }
        assert_eq!(records, RECORDS_MAX);
        for trace in 2..=TRACES_MAX as u64 {
            rig.ask(trace, &all);
        }
        let further = TraceReq { trace: 99, filter: all.clone(), ends: false };
        assert_eq!(rig.tracer.answer(&further).expect_err("too many").code, Code::Overloaded);
        let long = TraceFilter { job: "x".repeat(300), ..all };
        let long = TraceReq { trace: 1, filter: long, ends: false };
        assert!(rig.tracer.answer(&long).expect_err("too long").to_string().contains("256 bytes"));
    }

    #[test]
    fn the_code_of_an_answer_is_that_of_its_fault() {
        let fault = Frame::fault_reply_to(&Header::default(), &Fault::new(Code::StaleSession));
        assert_eq!(code_of(&fault), Code::StaleSession.number());
        let fine: Result<u32> = Ok(7);
        assert_eq!(code_of(&Frame::reply_to(&Header::default(), encode_body(&fine))), 0);
        assert_eq!(code_of(&Frame::new(Header::default(), vec![1, 2].into())), Code::BadFrame.number());
    }
}
