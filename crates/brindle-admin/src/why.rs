//! `brindle why`: where the time of a job, a user or a file goes, as far as servers can tell, with the evidence and the next step.
//!
//! Servers count requests and their time by job and by user ([`crate::top`]). Two looks show what each target did in between: for the
//! subject, and for everybody else. Findings are conclusions from these numbers and from the states of targets; a mount adds its waits.

use std::collections::{BTreeMap, BTreeSet};

use brindle_types::units::format_bytes;
use brindle_wire::Op;
use brindle_wire::job::{Tally, UsageResp, UsageRow};
use schemars::JsonSchema;
use serde::Serialize;

use crate::limits::Waited;
use crate::top::Look;

/// Server time each second from which somebody keeps a target busy: 1.0 is one thread.
const BUSY: f64 = 0.3;
/// Server time each second below which servers are no reason for slowness.
const IDLE: f64 = 0.2;
/// Times the subject's server time, from which another one stands in its way.
const CROWD_FACTOR: f64 = 2.0;
/// Share of names and attributes in the subject's server time, from which they are the reason.
const NAMES_SHARE: f64 = 0.7;
/// Bytes of a read or write below which it is small.
const SMALL_BYTES: u64 = 64 << 10;
/// Reads and writes each second from which small ones are worth a word.
const SMALL_PER_SECOND: f64 = 100.0;
/// Times the median of its peers, from which an OST is slow.
const SLOW_FACTOR: f64 = 3.0;
/// Milliseconds of an operation below which no OST is called slow.
const SLOW_MS: f64 = 2.0;
/// Requests below which a mean says nothing.
const COUNT_MIN: u64 = 20;
/// Seconds from which a wait is worth a word.
const WAIT_S: f64 = 1.0;
/// Seconds of waits each second for a turn, or by a limit, from which they are worth a word.
const HELD: f64 = 0.05;
/// Operations that are shown for each target.
const OPERATIONS_SHOWN: usize = 3;
/// Numbers of operations below this are those of MDTs.
const OST_OPERATIONS_FROM: u16 = 300;

/// Whose time it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A job, by its name.
    Job(String),
    /// A user, by number.
    User(u32),
    /// A file or directory: nobody counts by file, so the targets that it lies on are looked at.
    File {
        /// Path of the file.
        path: String,
        /// Full names of its targets.
        targets: BTreeSet<String>,
    },
}

/// Where the time goes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WhyView {
    /// The file system.
    pub fs: String,
    /// `job`, `user` or `path`.
    pub kind: String,
    /// The job, the number of the user, or the path.
    pub subject: String,
    /// Seconds between the two looks.
    pub seconds: f64,
    /// Conclusions, the weightiest first.
    pub findings: Vec<Finding>,
    /// Targets that the subject asked for something, or lies on.
    pub targets: Vec<WhyTarget>,
    /// Targets that did not tell, with the reason.
    pub silent: Vec<String>,
}
document!(WhyView, "brindle.why", 1);

/// A conclusion.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// The conclusion, in a sentence.
    pub what: String,
    /// The numbers behind it.
    pub evidence: String,
    /// The next step.
    pub next: String,
}

/// A target between the two looks.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WhyTarget {
    /// Full name.
    pub name: String,
    /// `active`, `recovering`, `full`, `draining`, `unreachable` and so on.
    pub state: String,
    /// Requests of the subject each second.
    pub operations_per_second: f64,
    /// Mean time of such a request at the server, in milliseconds.
    pub ms_per_operation: f64,
    /// Server time each second for the subject: 1.0 keeps one thread busy.
    pub busy: f64,
    /// Server time each second for all others.
    pub busy_others: f64,
    /// The one of the others with most of it.
    pub busiest_other: Option<String>,
    /// Operations of the subject that took most time, with their share of it, 0 to 1.
    pub operations: Vec<(String, f64)>,
}

/// A call of a mount that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The call.
    pub what: String,
    /// The target, client or lock that it waits for.
    pub target: String,
    /// For how long, in seconds.
    pub seconds: f64,
}

/// Two looks at one table of counters, and what else is known.
pub struct Evidence<'a> {
    /// The earlier look.
    pub earlier: &'a Look,
    /// The later one.
    pub later: &'a Look,
    /// State of each target, by full name.
    pub states: &'a BTreeMap<String, String>,
    /// Waits of the mounts here.
    pub waits: &'a [Waiting],
    /// Requests of the job that targets have held back between the two looks, by full name of the target.
    pub held: &'a [(String, Waited)],
}

/// Requests of one name to one target between two looks.
struct Asked<'a> {
    name: &'a str,
    /// Number of the operation, requests, microseconds.
    operations: Vec<(u16, u64, u64)>,
    /// Reads and writes, and their bytes.
    transfers: (u64, u64),
}

impl Asked<'_> {
    fn count(&self) -> u64 {
        self.operations.iter().map(|(_, count, _)| count).sum()
    }

    fn micros(&self) -> u64 {
        self.operations.iter().map(|(_, _, micros)| micros).sum()
    }
}

/// A target and all that was asked of it.
struct Part<'a> {
    target: &'a str,
    seconds: f64,
    asked: Vec<Asked<'a>>,
}

impl Part<'_> {
    fn busy(&self, asked: &Asked<'_>) -> f64 {
        asked.micros() as f64 / 1e6 / self.seconds
    }

    /// Mean milliseconds of an operation, whoever asks, and how many there were.
    fn mean_ms(&self, operation: u16) -> (f64, u64) {
        let of_it = self.asked.iter().flat_map(|asked| &asked.operations).filter(|(op, ..)| *op == operation);
        let (count, micros) = of_it.fold((0, 0), |(n, sum), (_, count, micros)| (n + count, sum + micros));
        (ms(micros, count), count)
    }
}

/// Conclusions about a subject from two looks and the states of targets.
pub fn explain(subject: &Subject, evidence: &Evidence<'_>) -> WhyView {
    let parts = parts(evidence.earlier, evidence.later);
    let name = match subject {
        Subject::Job(job) => Some(job.clone()),
        Subject::User(uid) => Some(uid.to_string()),
        Subject::File { .. } => None,
    };
    let concerns = |part: &&Part<'_>| match (subject, &name) {
        (Subject::File { targets, .. }, _) => targets.contains(part.target),
        (_, Some(name)) => part.asked.iter().any(|asked| asked.name == name.as_str()),
        _ => false,
    };
    let concerned: Vec<&Part<'_>> = parts.iter().filter(concerns).collect();
    let targets: Vec<WhyTarget> =
        concerned.iter().map(|part| target(part, name.as_deref(), evidence.states)).collect();
    let mut findings = waits(evidence.waits);
    findings.extend(states(subject, &targets, evidence.states));
    findings.extend(held_back(evidence));
    if let Some(name) = &name {
        let own: Vec<&Asked<'_>> = concerned
            .iter()
            .flat_map(|part| &part.asked)
            .filter(|asked| asked.name == name.as_str() && asked.count() > 0)
            .collect();
        findings.extend(crowds(&targets));
        findings.extend(slow_targets(&parts, &concerned));
        findings.extend(own_ways(evidence, name, &own, &targets));
    } else {
        findings.extend(crowds(&targets));
        findings.extend(slow_targets(&parts, &concerned));
    }
    let (kind, text) = match subject {
        Subject::Job(job) => ("job", job.clone()),
        Subject::User(uid) => ("user", uid.to_string()),
        Subject::File { path, .. } => ("path", path.clone()),
    };
    WhyView {
        fs: evidence.later.fs().to_owned(),
        kind: kind.to_owned(),
        subject: text,
        seconds: evidence.later.at().ms_since(evidence.earlier.at()) as f64 / 1000.0,
        findings,
        targets,
        silent: evidence.later.silent().to_vec(),
    }
}

/// Targets that told twice, and the differences of their counters.
fn parts<'a>(earlier: &'a Look, later: &'a Look) -> Vec<Part<'a>> {
    let part = |(target, told): (&'a String, &'a UsageResp)| {
        let before = earlier.told().get(target)?;
        let seconds = told.now_ns.saturating_sub(before.now_ns) as f64 / 1e9;
        let rows = told.rows.iter().filter_map(|row| asked(row, before));
        (seconds > 0.0).then(|| Part { target, seconds, asked: rows.collect() })
    };
    later.told().iter().filter_map(part).collect()
}

/// Increase of a row since the earlier look; `None` if it is not known, because the earlier answer had no room for the row.
fn asked<'a>(row: &'a UsageRow, before: &UsageResp) -> Option<Asked<'a>> {
    let same = before.rows.iter().find(|other| other.name == row.name && other.since_ns == row.since_ns);
    if same.is_none() && row.since_ns <= before.now_ns {
        return None;
    }
    let none = Tally::default();
    let earlier = |op: u16| {
        let found = same.and_then(|same| same.ops.iter().find(|(other, _)| *other == op));
        found.map_or(none, |(_, tally)| *tally)
    };
    let difference = |now: &Tally, before: &Tally| {
        (now.count.saturating_sub(before.count), now.sum.saturating_sub(before.sum))
    };
    let operations = row.ops.iter().map(|(op, tally)| {
        let (count, micros) = difference(tally, &earlier(*op));
        (*op, count, micros)
    });
    let read = difference(&row.read, same.map_or(&none, |same| &same.read));
    let written = difference(&row.written, same.map_or(&none, |same| &same.written));
    Some(Asked {
        name: &row.name,
        operations: operations.filter(|(_, count, _)| *count > 0).collect(),
        transfers: (read.0 + written.0, read.1 + written.1),
    })
}

fn target(part: &Part<'_>, name: Option<&str>, states: &BTreeMap<String, String>) -> WhyTarget {
    let own = part.asked.iter().find(|asked| Some(asked.name) == name);
    let others = || part.asked.iter().filter(|asked| Some(asked.name) != name);
    let busiest = others().max_by_key(|asked| asked.micros()).filter(|asked| asked.micros() > 0);
    let mut operations: Vec<(u16, u64)> =
        own.map_or_else(Vec::new, |own| own.operations.iter().map(|(op, _, us)| (*op, *us)).collect());
    operations.sort_by_key(|(_, micros)| std::cmp::Reverse(*micros));
    let all = own.map_or(0, Asked::micros).max(1);
    let shown = operations.iter().take(OPERATIONS_SHOWN);
    WhyTarget {
        name: part.target.to_owned(),
        state: states.get(part.target).cloned().unwrap_or_else(|| "unknown".to_owned()),
        operations_per_second: own.map_or(0, Asked::count) as f64 / part.seconds,
        ms_per_operation: own.map_or(0.0, |own| ms(own.micros(), own.count())),
        busy: own.map_or(0.0, |own| part.busy(own)),
        // The sum of nothing is -0.0.
        busy_others: others().map(|other| part.busy(other)).fold(0.0, |sum, busy| sum + busy),
        busiest_other: busiest.map(|other| other.name.to_owned()),
        operations: shown.map(|(op, micros)| (word(*op), *micros as f64 / all as f64)).collect(),
    }
}

fn waits(waits: &[Waiting]) -> Vec<Finding> {
    let mut long: Vec<&Waiting> = waits.iter().filter(|wait| wait.seconds >= WAIT_S).collect();
    long.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let Some(longest) = long.first() else { return Vec::new() };
    vec![Finding {
        what: format!("calls wait for {}", longest.target),
        evidence: format!(
            "{} waiting here; the longest for {:.1} s: {}",
            long.len(),
            longest.seconds,
            longest.what
        ),
        next: "see all of them: brindle waits MNT".to_owned(),
    }]
}

/// Targets that do not serve as they should. A job or user may need any of them; a file only its own.
fn states(subject: &Subject, targets: &[WhyTarget], states: &BTreeMap<String, String>) -> Vec<Finding> {
    let is_concerned = |name: &String| match subject {
        Subject::File { targets, .. } => targets.contains(name),
        _ => true,
    };
    let is_bad = |state: &str| !matches!(state, "active" | "draining" | "unknown");
    let bad = states.iter().filter(|(name, state)| is_concerned(name) && is_bad(state));
    let evidence = |name: &String| match targets.iter().any(|target| target.name == *name) {
        true => "it is asked for something at this moment".to_owned(),
        false => "whatever lies on it waits or fails".to_owned(),
    };
    bad.map(|(name, state)| Finding {
        what: format!("{name} is {state}"),
        evidence: evidence(name),
        next: "see why, and what to do: brindle status".to_owned(),
    })
    .collect()
}

/// Limits that hold the job, and targets at which it waits for its turn.
fn held_back(evidence: &Evidence<'_>) -> Vec<Finding> {
    let seconds = (evidence.later.at().ms_since(evidence.earlier.at()) as f64 / 1000.0).max(0.001);
    let is_much = |micros: u64| micros as f64 / 1e6 / seconds >= HELD;
    let limits = evidence.held.iter().filter(|(_, waited)| is_much(waited.held_micros));
    let limits = limits.map(|(target, waited)| Finding {
        what: format!("the limit {} holds it back at {target}", waited.rule),
        evidence: format!(
            "{} requests were held, {:.1} ms each",
            waited.held,
            ms(waited.held_micros, waited.held)
        ),
        next: format!(
            "see the limit: brindle limit list; give it another rate: brindle limit set {}",
            waited.rule
        ),
    });
    let turns = evidence.held.iter().filter(|(_, waited)| is_much(waited.queued_micros));
    let turns = turns.map(|(target, waited)| Finding {
        what: format!("{target} is busy, and it has no more than its fair share"),
        evidence: format!(
            "{} requests waited for their turn, {:.1} ms each",
            waited.queued,
            ms(waited.queued_micros, waited.queued)
        ),
        next: "see who else asks for much: brindle top; fewer processes do not wait longer".to_owned(),
    });
    limits.chain(turns).collect()
}

/// Targets at which somebody else takes much more time.
fn crowds(targets: &[WhyTarget]) -> Vec<Finding> {
    let crowded = |target: &&WhyTarget| {
        target.busiest_other.is_some()
            && target.busy_others >= BUSY
            && target.busy_others >= CROWD_FACTOR * target.busy
    };
    let mut found: Vec<&WhyTarget> = targets.iter().filter(crowded).collect();
    found.sort_by(|a, b| b.busy_others.total_cmp(&a.busy_others));
    found
        .into_iter()
        .map(|target| {
            let other = target.busiest_other.clone().unwrap_or_default();
            Finding {
                what: format!("others keep {} busy, most of all {other}", target.name),
                evidence: format!(
                    "they take {:.2} s of its time each second, this one {:.2} s",
                    target.busy_others, target.busy
                ),
                next: format!("see what it does: brindle top --filter {other}"),
            }
        })
        .collect()
}

/// OSTs that need much longer than their peers for the same operation.
fn slow_targets(parts: &[Part<'_>], concerned: &[&Part<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for part in concerned {
        let operations: BTreeSet<u16> = part
            .asked
            .iter()
            .flat_map(|asked| &asked.operations)
            .map(|(op, ..)| *op)
            .filter(|op| *op >= OST_OPERATIONS_FROM)
            .collect();
        let slower = operations.into_iter().filter_map(|op| {
            let (own_ms, count) = part.mean_ms(op);
            let mut peers: Vec<f64> = parts
                .iter()
                .filter(|peer| peer.target != part.target)
                .map(|peer| peer.mean_ms(op))
                .filter(|(_, count)| *count >= COUNT_MIN)
                .map(|(ms, _)| ms)
                .collect();
            peers.sort_by(f64::total_cmp);
            let peer_ms = *peers.get(peers.len() / 2)?;
            let is_slow = count >= COUNT_MIN && own_ms >= SLOW_MS && own_ms >= SLOW_FACTOR * peer_ms;
            is_slow.then_some((op, own_ms, peer_ms))
        });
        // A target gets one finding: the operation with the longest time.
        let Some((op, own_ms, peer_ms)) = slower.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
        findings.push(Finding {
            what: format!("{} is slower than its peers", part.target),
            evidence: format!("{} takes {own_ms:.1} ms there, {peer_ms:.1} ms elsewhere", word(op)),
            next: "look at its disk and its host; to give it nothing new: brindle target drain".to_owned(),
        });
    }
    findings
}

/// Reasons that lie in the subject's own requests, or in their absence.
fn own_ways(evidence: &Evidence<'_>, name: &str, own: &[&Asked<'_>], targets: &[WhyTarget]) -> Vec<Finding> {
    let seconds = (evidence.later.at().ms_since(evidence.earlier.at()) as f64 / 1000.0).max(0.001);
    let count: u64 = own.iter().map(|asked| asked.count()).sum();
    if count == 0 {
        return vec![absent(evidence.later, name)];
    }
    let micros: u64 = own.iter().map(|asked| asked.micros()).sum();
    let busy: f64 = targets.iter().map(|target| target.busy).sum();
    let elsewhere = || Finding {
        what: "servers are not what it waits for".to_owned(),
        evidence: format!(
            "{:.0} requests each second, {:.2} ms each at servers: {:.0} % of its time",
            count as f64 / seconds,
            ms(micros, count),
            100.0 * busy
        ),
        next: "look at its host: the program, its processor, its network; brindle waits MNT there".to_owned(),
    };
    let names = if busy >= IDLE { names(own, micros) } else { None };
    let reasons = [small(own, seconds), names, (busy < IDLE).then(elsewhere)];
    reasons.into_iter().flatten().collect()
}

/// The subject asks for nothing.
fn absent(later: &Look, name: &str) -> Finding {
    let rows = later.told().values().flat_map(|told| &told.rows);
    let evidence = match rows.filter(|row| row.name == name).map(|row| row.last_ns).max() {
        Some(last_ns) => {
            format!("its last request was {} s ago", later.at_s().saturating_sub(last_ns / 1_000_000_000))
        }
        None => "servers know nothing of it: they forget who asks for nothing for ten minutes".to_owned(),
    };
    Finding {
        what: "it asks the servers for nothing".to_owned(),
        evidence,
        next:
            "it computes, sleeps, reads what its host has in memory, or waits: brindle waits MNT on its host"
                .to_owned(),
    }
}

/// Many small reads and writes.
fn small(own: &[&Asked<'_>], seconds: f64) -> Option<Finding> {
    let sum = |(count, bytes): (u64, u64), asked: &&Asked<'_>| {
        (count + asked.transfers.0, bytes + asked.transfers.1)
    };
    let (count, bytes) = own.iter().fold((0, 0), sum);
    let each = bytes / count.max(1);
    let per_second = count as f64 / seconds;
    (per_second >= SMALL_PER_SECOND && each < SMALL_BYTES).then(|| Finding {
        what: "its reads and writes are small".to_owned(),
        evidence: format!("{per_second:.0} each second, of {} each", format_bytes(each)),
        next: "let the program read and write 1 MiB at a time, and sync less often".to_owned(),
    })
}

/// Most of the time goes into names and attributes.
fn names(own: &[&Asked<'_>], micros: u64) -> Option<Finding> {
    let mut by_operation: BTreeMap<u16, u64> = BTreeMap::new();
    for (op, _, micros) in own.iter().flat_map(|asked| &asked.operations) {
        if *op < OST_OPERATIONS_FROM {
            *by_operation.entry(*op).or_default() += micros;
        }
    }
    let share = |part: u64| part as f64 / micros.max(1) as f64;
    if share(by_operation.values().sum()) < NAMES_SHARE {
        return None;
    }
    let mut most: Vec<(u16, u64)> = by_operation.into_iter().collect();
    most.sort_by_key(|(_, micros)| std::cmp::Reverse(*micros));
    let shown = most.iter().take(OPERATIONS_SHOWN);
    let words: Vec<String> =
        shown.map(|(op, micros)| format!("{} {:.0} %", word(*op), 100.0 * share(*micros))).collect();
    Some(Finding {
        what: "its time at servers goes into names and attributes, not into data".to_owned(),
        evidence: words.join(", "),
        next: "fewer and larger files cost less; so does one process for one directory".to_owned(),
    })
}

/// Mean milliseconds of so many requests.
fn ms(micros: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { micros as f64 / count as f64 / 1000.0 }
}

fn word(op: u16) -> String {
    Op::from_number(op).map_or_else(|| format!("operation {op}"), |op| op.name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::{look_at, row, tally};

    fn states(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect()
    }

    /// A row of one operation with so many requests of so many microseconds.
    fn did(name: &str, op: Op, count: u64, micros_each: u64, bytes: u64) -> UsageRow {
        let ops = vec![(op as u16, tally(count, count * micros_each))];
        let writes = if bytes > 0 { count } else { 0 };
        UsageRow { ops, written: tally(writes, bytes), ..row(name, 1, 0, op, 0) }
    }

    fn why(
        subject: &Subject,
        before: Vec<(&str, Vec<UsageRow>)>,
        after: Vec<(&str, Vec<UsageRow>)>,
    ) -> WhyView {
        let (earlier, later) = (look_at(10, before), look_at(12, after));
        let states =
            states(&[("MDT0", "active"), ("OST0", "active"), ("OST1", "active"), ("OST2", "active")]);
        explain(
            subject,
            &Evidence { earlier: &earlier, later: &later, states: &states, waits: &[], held: &[] },
        )
    }

    fn whats(view: &WhyView) -> Vec<&str> {
        view.findings.iter().map(|finding| finding.what.as_str()).collect()
    }

    #[test]
    fn a_job_that_asks_for_nothing_and_one_that_nobody_knows_are_told_apart() {
        let rows = || vec![("MDT0", vec![did("a", Op::Create, 4, 100, 0)])];
        let idle = why(&Subject::Job("a".into()), rows(), rows());
        assert_eq!(whats(&idle), ["it asks the servers for nothing"]);
        assert_eq!(idle.findings[0].evidence, "its last request was 7 s ago");
        let unknown = why(&Subject::Job("b".into()), rows(), rows());
        assert!(unknown.findings[0].evidence.contains("know nothing of it") && unknown.targets.is_empty());
    }

    #[test]
    fn names_small_writes_crowds_and_idle_servers_are_found() {
        let nothing = |name: &str| did(name, Op::Create, 0, 0, 0);
        let before = || vec![("MDT0", vec![nothing("a"), nothing("b")])];
        // 1 s of 2 s for a, all of it names.
        let busy = why(
            &Subject::Job("a".into()),
            before(),
            vec![("MDT0", vec![did("a", Op::Create, 10_000, 100, 0), nothing("b")])],
        );
        assert_eq!(whats(&busy), ["its time at servers goes into names and attributes, not into data"]);
        assert_eq!(busy.findings[0].evidence, "create 100 %");
        assert!((busy.targets[0].busy - 0.5).abs() < 1e-9 && busy.targets[0].busiest_other.is_none());
        // b takes 100 times as much.
        let crowded = why(
            &Subject::Job("a".into()),
            before(),
            vec![("MDT0", vec![did("a", Op::Create, 100, 100, 0), did("b", Op::Create, 10_000, 100, 0)])],
        );
        assert_eq!(
            whats(&crowded),
            ["others keep MDT0 busy, most of all b", "servers are not what it waits for"]
        );
        assert_eq!(crowded.findings[0].evidence, "they take 0.50 s of its time each second, this one 0.01 s");
        let write = |name: &str, count, micros| did(name, Op::Write, count, micros, count * 4096);
        let alone = why(
            &Subject::Job("a".into()),
            vec![("MDT0", vec![nothing("a")])],
            vec![("MDT0", vec![did("a", Op::Create, 10_000, 100, 0)])],
        );
        assert_eq!(format!("{:.2}", alone.targets[0].busy_others), "0.00");
        let small = why(
            &Subject::User(1000),
            vec![("OST0", vec![write("1000", 0, 0)])],
            vec![("OST0", vec![write("1000", 1000, 10)])],
        );
        assert_eq!(whats(&small), ["its reads and writes are small", "servers are not what it waits for"]);
        assert_eq!(small.findings[0].evidence, "500 each second, of 4.0 KiB each");
    }

    #[test]
    fn a_slow_ost_is_found_by_its_peers_and_a_file_sees_its_own_targets_only() {
        let write = |count, micros| vec![did("a", Op::Write, count, micros, count << 20)];
        let all = |count, slow| {
            vec![("OST0", write(count, 1000)), ("OST1", write(count, slow)), ("OST2", write(count, 1000))]
        };
        let job = why(&Subject::Job("a".into()), all(0, 0), all(100, 20_000));
        assert!(whats(&job).contains(&"OST1 is slower than its peers"), "{job:?}");
        let file = |on: &str| Subject::File { path: "/x".into(), targets: BTreeSet::from([on.to_owned()]) };
        let slow = why(&file("OST1"), all(0, 0), all(100, 20_000));
        assert_eq!(whats(&slow), ["others keep OST1 busy, most of all a", "OST1 is slower than its peers"]);
        assert!(whats(&why(&file("OST0"), all(0, 0), all(100, 20_000))).is_empty());
        // Too few requests say nothing.
        assert!(
            !whats(&why(&file("OST1"), all(0, 0), all(10, 20_000)))
                .contains(&"OST1 is slower than its peers")
        );
    }

    #[test]
    fn a_job_that_is_held_back_hears_of_it() {
        let rows = |count| vec![("MDT0", vec![did("a", Op::Create, count, 100, 0)])];
        let (earlier, later) = (look_at(10, rows(0)), look_at(12, rows(100)));
        let states = states(&[("MDT0", "active")]);
        let waited = |queued_micros, held_micros| Waited {
            queued: 50,
            queued_micros,
            held: 20,
            held_micros,
            rule: "slow".into(),
        };
        let found = |waited: Waited| {
            let held = [("MDT0".to_owned(), waited)];
            let evidence =
                Evidence { earlier: &earlier, later: &later, states: &states, waits: &[], held: &held };
            explain(&Subject::Job("a".into()), &evidence)
        };
        let limited = found(waited(0, 1_000_000));
        assert_eq!(whats(&limited)[0], "the limit slow holds it back at MDT0");
        assert_eq!(limited.findings[0].evidence, "20 requests were held, 50.0 ms each");
        let queued = found(waited(500_000, 0));
        assert_eq!(whats(&queued)[0], "MDT0 is busy, and it has no more than its fair share");
        assert_eq!(queued.findings[0].evidence, "50 requests waited for their turn, 10.0 ms each");
        assert_eq!(whats(&found(waited(1_000, 1_000))), ["servers are not what it waits for"]);
    }

    #[test]
    fn targets_that_do_not_serve_and_long_waits_come_first() {
        let (earlier, later) = (look_at(10, Vec::new()), look_at(12, Vec::new()));
        let states = states(&[("OST0", "unreachable"), ("OST1", "active")]);
        let waits = [
            Waiting { what: "write".into(), target: "OST0".into(), seconds: 12.04 },
            Waiting { what: "read".into(), target: "OST0".into(), seconds: 0.2 },
        ];
        let evidence =
            Evidence { earlier: &earlier, later: &later, states: &states, waits: &waits, held: &[] };
        let job = explain(&Subject::Job("a".into()), &evidence);
        assert_eq!(whats(&job)[..2], ["calls wait for OST0", "OST0 is unreachable"]);
        assert_eq!(job.findings[0].evidence, "1 waiting here; the longest for 12.0 s: write");
        let file = Subject::File { path: "/x".into(), targets: BTreeSet::from(["OST1".to_owned()]) };
        assert_eq!(whats(&explain(&file, &evidence)), ["calls wait for OST0"]);
    }
}
