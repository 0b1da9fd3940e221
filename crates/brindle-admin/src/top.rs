//! `brindle top`: who asks the servers of a file system for what, by job, user, client or target.
//!
//! Servers count since a row began ([`brindle_net::usage`]); two looks one after the other give the rates.

use std::collections::BTreeMap;

use brindle_stdx::{BoxFuture, Mono};
use brindle_types::{Code, Fault, Result, Role};
use brindle_wire::Op;
use brindle_wire::job::{MdtUsageReq, OstUsageReq, UsageBy, UsageReq, UsageResp, UsageRow};
use brindle_wire::map::{Map, TargetEntry};
use futures_util::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;

/// Targets that are asked at once.
const ASKED_AT_ONCE: usize = 32;

/// The table of counters: a row for each job, user, client or target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// Job.
    #[default]
    Jobs,
    /// User id.
    Users,
    /// Host of the mount.
    Clients,
    /// Target: all that clients ask it.
    Targets,
}

impl By {
    /// All of them.
    pub const ALL: [By; 4] = [By::Jobs, By::Users, By::Clients, By::Targets];

    /// Word of the grouping in options and output.
    pub fn name(self) -> &'static str {
        match self {
            By::Jobs => "jobs",
            By::Users => "users",
            By::Clients => "clients",
            By::Targets => "targets",
        }
    }
}

impl std::str::FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<By, String> {
        let found = By::ALL.into_iter().find(|by| by.name() == text);
        found.ok_or_else(|| "it is jobs, users, clients or targets".to_owned())
    }
}

/// Requests by client, user and job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TopView {
    /// The file system.
    pub fs: String,
    /// `jobs`, `users`, `clients` or `targets`.
    pub by: String,
    /// When, seconds since 1970.
    pub at_s: i64,
    /// Length of time over which the numbers per second are taken; 0 at the first look, when they are all 0.
    pub seconds: f64,
    /// Rows, in no order that means anything.
    pub rows: Vec<TopRow>,
    /// Targets that did not tell, with the reason.
    pub silent: Vec<String>,
    /// Rows that servers had no room for in their answers.
    pub left_out: u64,
}
document!(TopView, "brindle.top", 1);

/// A job, user, client or target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TopRow {
    /// The job, the number of the user, the host, or the target.
    pub name: String,
    /// Last request, seconds since 1970.
    pub last_s: i64,
    /// Requests since the counters began.
    pub operations: u64,
    /// Requests for names and attributes, at MDTs.
    pub metadata_operations: u64,
    /// Bytes of files read.
    pub read_bytes: u64,
    /// Bytes of files written.
    pub written_bytes: u64,
    /// Time that its requests took at servers; those that ran side by side count each.
    pub busy_seconds: f64,
    /// Requests each second.
    pub operations_per_second: f64,
    /// Requests each second for names and attributes.
    pub metadata_per_second: f64,
    /// Bytes read each second.
    pub read_bytes_per_second: f64,
    /// Bytes written each second.
    pub written_bytes_per_second: f64,
    /// Server time each second: 1.0 keeps one thread of one server busy.
    pub busy: f64,
    /// Requests by operation since the counters began.
    pub by_operation: BTreeMap<String, u64>,
    /// Targets that were asked.
    pub targets: Vec<String>,
}

/// The counters of all servers at one moment.
pub struct Look {
    fs: String,
    by: By,
    at: Mono,
    at_s: i64,
    told: BTreeMap<String, UsageResp>,
    silent: Vec<String>,
}

impl Look {
    /// Asks all targets of a file system.
    pub async fn take(servers: &Servers, place: &FsLocation, by: By) -> Result<Look> {
        let (map, _) = servers.map(place).await?;
        let targets = map.targets.iter().filter(|entry| entry.id.role != Role::Mgt);
        let map = &map;
        let asking = targets.map(|entry| -> BoxFuture<'_, (String, Result<UsageResp>)> {
            Box::pin(async move { (map.fs.target(entry.id), ask(servers, map, entry, by).await) })
        });
        let asking: Vec<BoxFuture<'_, (String, Result<UsageResp>)>> = asking.collect();
        let answers: Vec<(String, Result<UsageResp>)> =
            stream::iter(asking).buffer_unordered(ASKED_AT_ONCE).collect().await;
        let mut look = Look {
            fs: map.fs.to_string(),
            by,
            at: servers.seams().now(),
            at_s: servers.seams().wall().secs,
            told: BTreeMap::new(),
            silent: Vec::new(),
        };
        let mut refused = None;
        for (name, answer) in answers {
            match answer {
                Ok(told) => drop(look.told.insert(name, told)),
                Err(fault) => {
                    look.silent.push(format!("{name}: {}", why(&fault)));
                    refused = Some(fault);
                }
            }
        }
        look.silent.sort();
        match refused {
            // No target has answered: the refusal is the result. The refusal says, for example, that the caller lacks the right.
            Some(fault) if look.told.is_empty() => Err(fault),
            _ => Ok(look),
        }
    }

    /// The table for people and programs, with rates since an earlier look if there was one.
    pub fn since(&self, earlier: Option<&Look>) -> TopView {
        let earlier = earlier.filter(|earlier| earlier.by == self.by && earlier.fs == self.fs);
        let seconds = earlier.map_or(0.0, |earlier| self.at.ms_since(earlier.at) as f64 / 1_000.0);
        let mut rows: BTreeMap<&str, TopRow> = BTreeMap::new();
        for (target, told) in &self.told {
            let told_before = earlier.and_then(|earlier| earlier.told.get(target));
            let before: BTreeMap<&str, &UsageRow> = told_before
                .map(|told| told.rows.iter().map(|row| (row.name.as_str(), row)).collect())
                .unwrap_or_default();
            // The clock of the target counts: another target that is silent for long changes nothing.
            let passed_ns = told_before.map_or(0, |before| told.now_ns - before.now_ns);
            if self.by == By::Targets {
                // A target without requests is shown, too.
                rows.entry(target).or_insert_with(|| TopRow { name: target.clone(), ..TopRow::default() });
            }
            for row in &told.rows {
                let name = if self.by == By::Targets { target.as_str() } else { row.name.as_str() };
                let shown =
                    rows.entry(name).or_insert_with(|| TopRow { name: name.to_owned(), ..TopRow::default() });
                // A row that was forgotten meanwhile has begun anew.
                let before = before.get(row.name.as_str()).filter(|before| before.since_ns == row.since_ns);
                // The rate of a row that the earlier look lacks is known only if the row began after that
                // look.
                let is_new = told_before.is_some_and(|before| row.since_ns > before.now_ns);
                let has_rate = before.is_some() || is_new;
                add(shown, row, before.copied(), if has_rate { passed_ns as f64 / 1e9 } else { 0.0 });
                if shown.targets.last() != Some(target) {
                    shown.targets.push(target.clone());
                }
            }
        }
        TopView {
            fs: self.fs.clone(),
            by: self.by.name().to_owned(),
            at_s: self.at_s,
            seconds,
            rows: rows.into_values().collect(),
            silent: self.silent.clone(),
            left_out: self.told.values().map(|told| u64::from(told.left_out)).sum(),
        }
    }

    /// Time of the look.
    pub fn at(&self) -> Mono {
        self.at
    }

    /// When it was taken, in seconds since 1970.
    pub(crate) fn at_s(&self) -> i64 {
        self.at_s
    }

    /// The file system.
    pub(crate) fn fs(&self) -> &str {
        &self.fs
    }

    /// Counters of each target that told, by its full name.
    pub(crate) fn told(&self) -> &BTreeMap<String, UsageResp> {
        &self.told
    }

    /// Targets that did not tell, with the reason.
    pub(crate) fn silent(&self) -> &[String] {
        &self.silent
    }

    /// Whether a target counts something for this name.
    pub fn knows(&self, name: &str) -> bool {
        self.told.values().any(|told| told.rows.iter().any(|row| row.name == name))
    }
}

/// Sums of a row over the servers that were asked so far.
struct Sums {
    operations: u64,
    metadata: u64,
    read: u64,
    written: u64,
    micros: u64,
}

fn sums(row: &UsageRow) -> Sums {
    let count = |is_counted: fn(u16) -> bool| {
        row.ops.iter().filter(|(op, _)| is_counted(*op)).map(|(_, tally)| tally.count).sum()
    };
    Sums {
        operations: count(|_| true),
        metadata: count(|op| op < 300),
        read: row.read.sum,
        written: row.written.sum,
        micros: row.ops.iter().map(|(_, tally)| tally.sum).sum(),
    }
}

fn add(shown: &mut TopRow, row: &UsageRow, before: Option<&UsageRow>, seconds: f64) {
    let now = sums(row);
    shown.last_s = shown.last_s.max(row.last_ns / 1_000_000_000);
    shown.operations += now.operations;
    shown.metadata_operations += now.metadata;
    shown.read_bytes += now.read;
    shown.written_bytes += now.written;
    shown.busy_seconds += now.micros as f64 / 1e6;
    for (op, tally) in &row.ops {
        let name = Op::from_number(*op).map_or_else(|| format!("operation {op}"), |op| op.name().to_owned());
        *shown.by_operation.entry(name).or_default() += tally.count;
    }
    if seconds <= 0.0 {
        return;
    }
    let before = before.map_or(Sums { operations: 0, metadata: 0, read: 0, written: 0, micros: 0 }, sums);
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    shown.operations_per_second += rate(now.operations, before.operations);
    shown.metadata_per_second += rate(now.metadata, before.metadata);
    shown.read_bytes_per_second += rate(now.read, before.read);
    shown.written_bytes_per_second += rate(now.written, before.written);
    shown.busy += rate(now.micros, before.micros) / 1e6;
}

async fn ask(servers: &Servers, map: &Map, entry: &TargetEntry, by: By) -> Result<UsageResp> {
    let by = match by {
        By::Jobs => UsageBy::Job,
        By::Users => UsageBy::User,
        By::Clients | By::Targets => UsageBy::Client,
    };
    let request = UsageReq { by, clear: None };
    match entry.id.role {
        Role::Mdt => servers.ask(map, entry.id, &MdtUsageReq(request)).await,
        _ => servers.ask(map, entry.id, &OstUsageReq(request)).await,
    }
}

fn why(fault: &Fault) -> String {
    match fault.code {
        Code::UnknownOp => "its release does not count by job yet".to_owned(),
        Code::TargetDown => "it does not answer".to_owned(),
        _ => fault.why.first().map_or_else(|| fault.what.to_string(), ToString::to_string),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use brindle_wire::job::Tally;

    use super::*;

    /// Time after the first second, in nanoseconds.
    const ANEW_NS: i64 = 1_500_000_000;

    pub(crate) fn tally(count: u64, sum: u64) -> Tally {
        Tally { count, sum, ..Tally::default() }
    }

    pub(crate) fn row(name: &str, since_ns: i64, written: u64, op: Op, count: u64) -> UsageRow {
        UsageRow {
            name: name.to_owned(),
            since_ns,
            last_ns: 5_000_000_000,
            read: Tally::default(),
            written: tally(1, written),
            ops: vec![(op as u16, tally(count, count * 1_000))],
        }
    }

    /// A look by jobs.
    pub(crate) fn look_at(at_s: u64, told: Vec<(&str, Vec<UsageRow>)>) -> Look {
        look(By::Jobs, at_s, told)
    }

    fn look(by: By, at_s: u64, told: Vec<(&str, Vec<UsageRow>)>) -> Look {
        let answer = |rows| UsageResp { now_ns: at_s as i64 * 1_000_000_000, rows, left_out: 1 };
        Look {
            fs: "scratch".to_owned(),
            by,
            at: Mono(at_s * 1_000_000_000),
            at_s: at_s as i64,
            told: told.into_iter().map(|(name, rows)| (name.to_owned(), answer(rows))).collect(),
            silent: Vec::new(),
        }
    }

    #[test]
    fn rows_of_all_targets_come_together_and_rates_are_differences() {
        let earlier = look(By::Jobs, 10, vec![("OST0", vec![row("a", 1, 100, Op::Write, 2)])]);
        let later = look(
            By::Jobs,
            12,
            vec![
                ("MDT0", vec![row("a", 1, 0, Op::Create, 4)]),
                ("OST0", vec![row("a", 1, 300, Op::Write, 6), row("b", 1, 50, Op::Write, 1)]),
            ],
        );
        // MDT0 was silent in the earlier look, and b found no place in the answer: their work of the two seconds is unknown.
        let view = later.since(Some(&earlier));
        assert_eq!((view.seconds, view.left_out, view.rows.len()), (2.0, 2, 2));
        let a = &view.rows[0];
        assert_eq!(
            (a.name.as_str(), a.operations, a.metadata_operations, a.written_bytes),
            ("a", 10, 4, 300)
        );
        assert_eq!((a.operations_per_second, a.metadata_per_second), (2.0, 0.0));
        assert_eq!(view.rows[1].operations_per_second, 0.0);
        assert_eq!((a.written_bytes_per_second, a.last_s), (100.0, 5));
        assert_eq!(a.targets, ["MDT0", "OST0"]);
        assert_eq!(a.by_operation, BTreeMap::from([("create".into(), 4), ("write".into(), 6)]));
        assert!((a.busy - 0.002).abs() < 1e-9 && (a.busy_seconds - 0.010).abs() < 1e-9, "{a:?}");
        let first = later.since(None);
        assert_eq!((first.seconds, first.rows[0].operations_per_second), (0.0, 0.0));
    }

    #[test]
    fn a_row_that_began_anew_counts_from_zero_and_targets_are_sums_of_clients() {
        let earlier = look(By::Targets, 1, vec![("OST0", vec![row("n1", 1, 900, Op::Write, 90)])]);
        let rows = vec![row("n1", ANEW_NS, 10, Op::Write, 1), row("n2", ANEW_NS, 30, Op::Write, 3)];
        let view = look(By::Targets, 2, vec![("OST0", rows)]).since(Some(&earlier));
        assert_eq!(view.rows.len(), 1);
        let ost = &view.rows[0];
        assert_eq!((ost.name.as_str(), ost.operations_per_second), ("OST0", 4.0));
        assert_eq!((ost.written_bytes_per_second, &ost.targets[..]), (40.0, &["OST0".to_owned()][..]));
        let other = look(By::Users, 1, Vec::new());
        assert_eq!(view.rows.len(), look(By::Targets, 2, Vec::new()).since(Some(&other)).rows.len() + 1);
    }
}
