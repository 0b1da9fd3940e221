//! `brindle trace`: requests to servers one by one, while they are answered, and a summary of them.
//!
//! Servers keep records for a reader that asks again and again ([`brindle_net::trace`]). [`Reader`] asks all targets of a trace;
//! [`Summary`] counts what it was told.

use std::collections::{BTreeMap, BTreeSet};

use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::{Code, Fault, Ino, Result, Role, TargetId};
use brindle_wire::Op;
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::trace::{MdtTraceReq, OstTraceReq, TraceFilter, TraceRecord, TraceReq, TraceResp};
use futures_util::stream::{self, StreamExt as _};
use schemars::JsonSchema;
use serde::Serialize;

use crate::logs::{TroubleView, why};
use crate::servers::Servers;

/// Targets that are asked at once.
const ASKED_AT_ONCE: usize = 32;
/// Slowest operations in a summary.
pub const SLOWEST_MAX: usize = 10;
/// Operations that a wrong name is answered with.
const NEAR: usize = 3;
/// Steps of a [`Durations`] between a time and twice that time.
const STEPS: u64 = 16;
/// Counters of a [`Durations`]: enough for every `u64`.
const COUNTERS: usize = 16 + 60 * 16;

/// A request that a server has answered. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OperationView {
    /// Arrival at the server by its clock, like `2026-11-20T14:05:06.123456Z`.
    pub at: String,
    /// Full name of the target.
    pub target: String,
    /// Host of the mount or server that asked.
    pub client: String,
    /// Operation: `create`, `write` and so on.
    pub operation: String,
    /// FID of the file; that of the directory where there is a `name`; empty where the request is about no file.
    pub fid: String,
    /// Name in the directory; empty if the request has none.
    pub name: String,
    /// First byte, where the request is about bytes.
    pub offset: Option<u64>,
    /// Further files of the same request.
    pub other_files: u32,
    /// Job; empty where the request names none.
    pub job: String,
    /// User of the job.
    pub uid: Option<u32>,
    /// Bytes of files read.
    pub read_bytes: u64,
    /// Bytes of files written.
    pub written_bytes: u64,
    /// Time in the queue of the client, for a connection and for credits.
    pub client_queue_us: u64,
    /// Time on the network, there and back, of the client's request before this one over the same connection; 0 if it is not known. It
    /// is in no sum.
    pub network_us: u64,
    /// Time in the queue of the server: for its turn, and by limits.
    pub queue_us: u64,
    /// Time of the server itself.
    pub server_us: u64,
    /// Time of the disk: the object store of an OST, the log of an MDT.
    pub disk_us: u64,
    /// Time in which the server waited for other clients: for leases, locks, archives.
    pub others_us: u64,
    /// Sum of these times, without the network.
    pub total_us: u64,
    /// Code of the error, like `E3001`; empty if there was none.
    pub code: String,
    /// The error in words; empty if there was none.
    pub error: String,
}
document!(OperationView, "brindle.trace.operation", 1);

/// The operations of a trace, counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SummaryView {
    /// Operations that were seen.
    pub count: u64,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Operations that servers had no space to keep, so that nobody saw them.
    pub dropped: u64,
    /// By operation, those with most time in all first.
    pub operations: Vec<OperationSummary>,
    /// The slowest, the slowest first.
    pub slowest: Vec<OperationView>,
    /// Targets that did not tell, and why.
    pub troubles: Vec<TroubleView>,
}
document!(SummaryView, "brindle.trace.summary", 1);

/// All operations of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct OperationSummary {
    /// Operation.
    pub operation: String,
    /// Number of them.
    pub count: u64,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Bytes of files read and written.
    pub bytes: u64,
    /// Time that half of them took, or less, in microseconds; to 6 %.
    pub median_us: u64,
    /// Time that 99 of 100 took, or less, in microseconds; to 6 %.
    pub p99_us: u64,
    /// Time of the slowest, in microseconds.
    pub max_us: u64,
    /// Sum of the times, in microseconds.
    pub total_us: u64,
}

/// Operations since the last look.
#[derive(Debug, Default)]
pub struct Batch {
    /// Operations in order of time.
    pub operations: Vec<OperationView>,
    /// Operations that servers had no space to keep.
    pub dropped: u64,
    /// Targets whose process was started anew since the last look: operations in between are missing.
    pub restarted: Vec<String>,
    /// Targets that do not tell, and why.
    pub troubles: Vec<TroubleView>,
    /// Servers have further operations: look again at once.
    pub has_more: bool,
}

/// The reader of a trace.
pub struct Reader<'a> {
    servers: &'a Servers,
    number: u64,
    filter: TraceFilter,
    begun: BTreeSet<TargetId>,
}

impl<'a> Reader<'a> {
    /// A trace that has not begun.
    pub fn new(servers: &'a Servers, filter: TraceFilter) -> Reader<'a> {
        let number = servers.seams().rng.next_u64();
        Reader { servers, number, filter, begun: BTreeSet::new() }
    }

    /// Operations since the last look; the first look begins the trace. A refusal where every target refuses.
    pub async fn look(&mut self, map: &Map, targets: &[TargetId]) -> Result<Batch> {
        self.ask(map, targets, false).await
    }

    /// The last look: servers forget the trace.
    pub async fn end(&mut self, map: &Map, targets: &[TargetId]) -> Result<Batch> {
        self.ask(map, targets, true).await
    }

    async fn ask(&mut self, map: &Map, targets: &[TargetId], ends: bool) -> Result<Batch> {
        let entries = map.targets.iter().filter(|entry| targets.contains(&entry.id));
        let request = TraceReq { trace: self.number, filter: self.filter.clone(), ends };
        let servers = self.servers;
        let asking = entries.map(|entry| {
            let request = request.clone();
            async move { (entry, ask(servers, map, entry, request).await) }
        });
        let answers: Vec<(&TargetEntry, Result<TraceResp>)> =
            stream::iter(asking.collect::<Vec<_>>()).buffer_unordered(ASKED_AT_ONCE).collect().await;
        let mut batch = Batch::default();
        let mut records: Vec<(String, TraceRecord)> = Vec::new();
        let (mut refusal, mut has_told) = (None, false);
        for (entry, answer) in answers {
            let name = map.fs.target(entry.id);
            match answer {
                Ok(told) => {
                    has_told = true;
                    if !self.begun.insert(entry.id) && told.has_begun {
                        batch.restarted.push(name.clone());
                    }
                    batch.dropped += told.dropped;
                    batch.has_more |= told.has_more;
                    records.extend(told.records.into_iter().map(|record| (name.clone(), record)));
                }
                Err(fault) => {
                    let host = entry.host().to_owned();
                    batch.troubles.push(TroubleView { target: name, host, why: why(&fault) });
                    refusal = Some(fault);
                }
            }
        }
        if let Some(fault) = refusal.filter(|_| !has_told && self.begun.is_empty()) {
            return Err(fault);
        }
        records.sort_by_key(|(_, record)| record.at_ns);
        batch.operations = records.into_iter().map(|(target, record)| view(target, record)).collect();
        batch.troubles.sort_by(|a, b| a.target.cmp(&b.target));
        Ok(batch)
    }
}

async fn ask(servers: &Servers, map: &Map, entry: &TargetEntry, request: TraceReq) -> Result<TraceResp> {
    match entry.id.role {
        Role::Mdt => servers.ask(map, entry.id, &MdtTraceReq(request)).await,
        Role::Ost => servers.ask(map, entry.id, &OstTraceReq(request)).await,
        Role::Mgt => Err(Fault::new(Code::BadArgument)
            .what("cannot trace")
            .subject(map.fs.target(entry.id))
            .why("the MGS serves no files")),
    }
}

/// The number of the operation of this name; the refusal names the others.
pub fn operation(name: &str) -> std::result::Result<u16, String> {
    // Operations of mounts and servers; those of administrators are not traced.
    let is_served = |op: Op| op.is_served_by(Role::Mdt) || op.is_served_by(Role::Ost);
    let is_traced = |op: &&Op| !op.askers().is_administrators_only() && is_served(**op);
    let known: Vec<&Op> = Op::ALL.iter().filter(is_traced).collect();
    known.iter().find(|op| op.name() == name).map(|op| **op as u16).ok_or_else(|| {
        let mut near: Vec<&str> = known.iter().map(|op| op.name()).collect();
        near.sort_by_cached_key(|other| strsim::damerau_levenshtein(name, other));
        format!("no operation has this name; near to it are {}", near[..NEAR.min(near.len())].join(", "))
    })
}

/// A record as it is shown.
fn view(target: String, record: TraceRecord) -> OperationView {
    let TraceRecord { queue_us, service_us, disk_us, others_us, client_queue_us, .. } = record;
    let subject = record.subject.unwrap_or_default();
    let fid = if subject.ino == 0 { String::new() } else { Ino(subject.ino).fid().to_string() };
    let fault = Code::from_number(record.code).unwrap_or(Code::UnknownCode);
    let has_failed = record.code != 0;
    let at = Timestamp::new(
        record.at_ns.div_euclid(1_000_000_000),
        u32::try_from(record.at_ns.rem_euclid(1_000_000_000)).unwrap_or(0),
    );
    OperationView {
        at: rfc3339(at),
        target,
        client: plain(&record.client),
        operation: Op::from_number(record.op)
            .map_or_else(|| record.op.to_string(), |op| op.name().to_owned()),
        fid,
        name: plain(&String::from_utf8_lossy(&subject.name)),
        offset: subject.offset,
        other_files: subject.others,
        job: plain(&record.job),
        uid: record.uid,
        read_bytes: record.read_bytes,
        written_bytes: record.written_bytes,
        client_queue_us,
        network_us: record.network_us,
        queue_us,
        server_us: service_us.saturating_sub(disk_us.saturating_add(others_us)),
        disk_us,
        others_us,
        total_us: client_queue_us.saturating_add(queue_us).saturating_add(service_us),
        code: if has_failed { format!("E{:04}", record.code) } else { String::new() },
        error: if has_failed { fault.title().to_owned() } else { String::new() },
    }
}

/// Text that somebody else chose, without the characters that steer a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

/// Operations, counted while they come, in bounded memory.
#[derive(Default)]
pub struct Summary {
    count: u64,
    errors: u64,
    dropped: u64,
    by_operation: BTreeMap<String, OfOperation>,
    slowest: Vec<OperationView>,
}

#[derive(Default)]
struct OfOperation {
    count: u64,
    errors: u64,
    bytes: u64,
    total_us: u64,
    max_us: u64,
    durations: Durations,
}

impl Summary {
    /// Counts the operations of a look.
    pub fn add(&mut self, batch: &Batch) {
        self.dropped += batch.dropped;
        for operation in &batch.operations {
            let (us, has_failed) = (operation.total_us, !operation.code.is_empty());
            self.count += 1;
            self.errors += u64::from(has_failed);
            let kind = self.by_operation.entry(operation.operation.clone()).or_default();
            kind.count += 1;
            kind.errors += u64::from(has_failed);
            kind.bytes += operation.read_bytes + operation.written_bytes;
            kind.total_us = kind.total_us.saturating_add(us);
            kind.max_us = kind.max_us.max(us);
            kind.durations.add(us);
            let at = self.slowest.partition_point(|other| other.total_us >= us);
            if at < SLOWEST_MAX {
                self.slowest.insert(at, operation.clone());
                self.slowest.truncate(SLOWEST_MAX);
            }
        }
    }

    /// The summary; `troubles`: targets that do not tell.
    pub fn view(self, troubles: Vec<TroubleView>) -> SummaryView {
        let of = |(operation, kind): (String, OfOperation)| OperationSummary {
            operation,
            count: kind.count,
            errors: kind.errors,
            bytes: kind.bytes,
            median_us: kind.durations.at_share(0.5).min(kind.max_us),
            p99_us: kind.durations.at_share(0.99).min(kind.max_us),
            max_us: kind.max_us,
            total_us: kind.total_us,
        };
        let mut operations: Vec<OperationSummary> = self.by_operation.into_iter().map(of).collect();
        operations.sort_by_key(|kind| std::cmp::Reverse(kind.total_us));
        let Summary { count, errors, dropped, slowest, .. } =
            Summary { by_operation: BTreeMap::new(), ..self };
        SummaryView { count, errors, dropped, operations, slowest, troubles }
    }
}

/// A histogram of times: exact below 16 microseconds, to 1/16 above.
struct Durations(Vec<u64>);

impl Default for Durations {
    fn default() -> Durations {
        Durations(vec![0; COUNTERS])
    }
}

impl Durations {
    fn add(&mut self, us: u64) {
        self.0[Durations::index(us)] += 1;
    }

    fn index(us: u64) -> usize {
        let octave = u64::from(us.max(STEPS).ilog2() - STEPS.ilog2());
        let index = octave * STEPS + (us >> octave);
        usize::try_from(index).expect("below the number of counters")
    }

    /// Highest time of a counter.
    fn highest(index: usize) -> u64 {
        let index = index as u64;
        if index < STEPS {
            return index;
        }
        let (octave, step) = (index / STEPS - 1, index % STEPS);
        ((STEPS + step) << octave) + ((1 << octave) - 1)
    }

    /// Time that this share of all took, or less; 0 without any.
    fn at_share(&self, share: f64) -> u64 {
        let count: u64 = self.0.iter().sum();
        let wanted = (count as f64 * share).ceil();
        let mut seen = 0;
        for (index, counted) in self.0.iter().enumerate() {
            seen += counted;
            if *counted > 0 && seen as f64 >= wanted {
                return Durations::highest(index);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use brindle_wire::trace::TraceSubject;

    use super::*;

    fn record(us: u64, code: u16) -> TraceRecord {
        TraceRecord {
            at_ns: 1_000_000_000_123_456_789,
            client: "n1".into(),
            op: Op::Write as u16,
            subject: Some(TraceSubject { ino: 5, name: Vec::new(), offset: Some(4096), others: 0 }),
            job: "4711".into(),
            uid: Some(1000),
            read_bytes: 0,
            written_bytes: 100,
            client_queue_us: 1,
            network_us: 50,
            queue_us: 2,
            service_us: us,
            disk_us: us / 2,
            others_us: 0,
            code,
        }
    }

    #[test]
    fn a_record_is_shown_with_its_parts_and_its_error() {
        let shown = view("b-OST0001".into(), record(100, Code::StaleSession.number()));
        assert_eq!((shown.target.as_str(), shown.operation.as_str()), ("b-OST0001", "write"));
        assert_eq!(shown.at, "2001-09-09T01:46:40.123456Z");
        assert_eq!(shown.fid, Ino(5).fid().to_string());
        assert_eq!((shown.server_us, shown.disk_us, shown.total_us), (50, 50, 103));
        assert_eq!(shown.code, Code::StaleSession.to_string());
        assert_eq!(shown.error, Code::StaleSession.title());
        let named = TraceRecord {
            subject: Some(TraceSubject { ino: 1, name: b"a\x1b[31m".into(), ..TraceSubject::default() }),
            ..record(1, 0)
        };
        let shown = view("b-MDT0000".into(), named);
        assert_eq!((shown.name.as_str(), shown.code.as_str()), ("a\u{FFFD}[31m", ""));
    }

    #[test]
    fn operations_are_found_by_name() {
        assert_eq!(operation("write"), Ok(Op::Write as u16));
        assert!(operation("wirte").unwrap_err().contains("write"));
        for never in ["mdt_trace", "get_map", "recall_notice"] {
            assert!(operation(never).is_err(), "{never} is never traced");
        }
    }

    #[test]
    fn a_summary_counts_all_and_keeps_the_slowest() {
        let mut summary = Summary::default();
        let operations = (1..=1000).map(|us| view("t".into(), record(us, u16::from(us == 7) * 2001)));
        summary.add(&Batch { operations: operations.collect(), dropped: 3, ..Batch::default() });
        let view = summary.view(Vec::new());
        assert_eq!((view.count, view.errors, view.dropped), (1000, 1, 3));
        let kind = &view.operations[0];
        assert_eq!(
            (kind.operation.as_str(), kind.count, kind.bytes, kind.max_us),
            ("write", 1000, 100_000, 1003)
        );
        let is_near = |us: u64, exact: u64| us >= exact && us <= exact + exact / 16 + 1;
        assert!(is_near(kind.median_us, 503) && is_near(kind.p99_us, 993), "{kind:?}");
        let slowest: Vec<u64> = view.slowest.iter().map(|operation| operation.total_us).collect();
        assert_eq!(slowest, (994..=1003).rev().collect::<Vec<_>>());
    }

    #[test]
    fn times_of_any_length_have_a_counter() {
        for us in [0, 1, 15, 16, 17, 31, 32, 1000, 1 << 40, u64::MAX] {
            let index = Durations::index(us);
            assert!(index < COUNTERS, "{us}");
            let highest = Durations::highest(index);
            assert!(highest >= us && highest - us <= us / 16, "{us} {highest}");
        }
        assert_eq!(Durations::default().at_share(0.5), 0);
    }
}
