//! The report on quotas: owners near a limit or over one, sent once a day or a week by mail and to the webhook.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::quota::{LimitView, QuotaView, kind_name};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::quota::QuotaOwner;
use serde::Serialize;

use crate::{Manager, quotas};

/// The share of a limit from which somebody is in the report, in thousandths.
const NEAR_THOUSANDTHS: u64 = 800;
/// Owners of each kind in a report.
const OWNERS_MAX: usize = 100;
/// Pause between two looks at the clock, and between two tries.
const LOOK_EVERY_MS: u64 = 60_000;
/// Name of the file that remembers the last report.
const FILE: &str = "quota-report";
/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// How often a report is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// Each day, after midnight UTC.
    Day,
    /// Each week, after midnight UTC before Monday.
    Week,
}

impl std::str::FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Every, String> {
        match text {
            "daily" => Ok(Every::Day),
            "weekly" => Ok(Every::Week),
            _ => Err("it is daily or weekly".to_owned()),
        }
    }
}

impl Every {
    /// The number of the day or week that a time lies in.
    fn period(self, at_s: i64) -> i64 {
        let day = at_s.div_euclid(DAY_S);
        match self {
            Every::Day => day,
            // The first of January 1970 was a Thursday.
            Every::Week => (day + 3).div_euclid(7),
        }
    }
}

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaReport {
    /// `quota-report`.
    pub event: &'static str,
    /// Name of the file system.
    pub fs: String,
    /// When, seconds since 1970.
    pub at_s: i64,
    /// Owners, as in `brindle quota list -o json`, the nearest to a limit first.
    pub quotas: Vec<QuotaView>,
    /// Owners that found no room.
    pub left_out: u64,
    /// Whether there are so many owners that not all were looked at.
    pub has_more: bool,
}

impl QuotaReport {
    /// The report in words, for a mail.
    pub fn text(&self) -> String {
        let mut text = format!("Near a limit or over one on {}:\n\n", self.fs);
        for quota in &self.quotas {
            let name = quota.name.as_deref().unwrap_or("?");
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{} {name}: {}; {}",
                quota.kind,
                of("space", &quota.space_bytes, format_bytes),
                of("inodes", &quota.inodes, |count| count.to_string())
            );
        }
        if self.left_out > 0 {
            let _ = writeln!(text, "and {} more", self.left_out);
        }
        if self.has_more {
            text += "there are too many owners to look at all: those with high numbers are missing here\n";
        }
        text + "\nall of them: brindle quota list users|groups|projects\n"
    }
}

fn of(what: &str, limit: &LimitView, show: impl Fn(u64) -> String) -> String {
    let used = show(limit.used);
    let limits: Vec<String> = [(limit.soft, "soft"), (limit.hard, "hard")]
        .into_iter()
        .filter(|(limit, _)| *limit > 0)
        .map(|(limit, word)| format!("{} {word}", show(limit)))
        .collect();
    if limits.is_empty() {
        return format!("{what} {used}, not limited");
    }
    let state = match (limit.state, limit.grace_left_seconds) {
        ("full", _) => ", at the limit".to_owned(),
        ("expired", _) => ", the grace time is over".to_owned(),
        ("grace", Some(left_s)) => format!(", {} hours of grace left", left_s / 3600),
        _ => String::new(),
    };
    format!("{what} {used} of {}{state}", limits.join(", "))
}

/// Whether somebody is in a report.
pub fn is_near(quota: &QuotaView) -> bool {
    quota.id.is_some() && quota.nearness() >= NEAR_THOUSANDTHS
}

/// Asks the MDT who is near a limit.
async fn make(manager: &Arc<Manager>, at_s: i64) -> Result<QuotaReport> {
    let (map, _) = manager.managed.servers.map(&manager.managed.place()?).await?;
    let fs = map.fs.to_string();
    let mut report =
        QuotaReport { event: "quota-report", fs, at_s, quotas: Vec::new(), left_out: 0, has_more: false };
    for kind in [QuotaOwner::User, QuotaOwner::Group, QuotaOwner::Project] {
        let listed = quotas::looked_at(manager, kind).await?;
        let near = listed.quotas.quotas.iter().filter(|quota| is_near(quota)).take(OWNERS_MAX);
        let before = report.quotas.len();
        report.quotas.extend(near.cloned());
        report.left_out += listed.near.saturating_sub((report.quotas.len() - before) as u64);
        report.has_more |= listed.has_more;
        tracing::debug!(kind = kind_name(kind), near = listed.near, "near a limit");
    }
    Ok(report)
}

/// Record of the last report, in the manager's directory.
pub struct Reported {
    path: PathBuf,
    every: Every,
}

impl Reported {
    /// Of a manager with its files in `dir`.
    pub fn new(dir: &Path, every: Every) -> Reported {
        Reported { path: dir.join(FILE), every }
    }

    fn is_due(&self, now_s: i64) -> bool {
        let last = std::fs::read_to_string(&self.path).ok().and_then(|text| text.trim().parse::<i64>().ok());
        // A clock that was set back sends nothing twice; without a file the first report is due.
        last.is_none_or(|last_s| self.every.period(now_s) > self.every.period(last_s))
    }

    fn keep(&self, at_s: i64) -> Result<()> {
        let written = std::fs::write(&self.path, format!("{at_s}\n"));
        written.map_err(|e| Fault::io(Code::NotWritable, "cannot keep", self.path.display().to_string(), &e))
    }
}

/// Sends a report when its time has come, as long as the process.
pub async fn always(manager: Arc<Manager>, reported: Reported) {
    let mut is_failing = false;
    loop {
        let now_s = manager.seams.wall().secs;
        if reported.is_due(now_s) {
            // Remembered before it is sent: a manager that is killed in between sends one report less, and never a hundred.
            let sent = match make(&manager, now_s).await {
                Ok(report) => reported.keep(now_s).map(|()| report),
                Err(fault) => Err(fault),
            };
            match sent {
                Ok(report) if report.quotas.is_empty() => tracing::info!("nobody is near a limit"),
                Ok(report) => manager.notifier.report(report),
                Err(fault) if !is_failing => {
                    tracing::warn!(code = %fault.code, "the report on quotas waits: {fault}");
                }
                Err(_) => {}
            }
            is_failing = reported.is_due(now_s);
        }
        manager.seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_begin_on_monday_and_a_report_is_sent_once() {
        let monday_s = 4 * DAY_S;
        assert_eq!(Every::Week.period(monday_s - 1) + 1, Every::Week.period(monday_s));
        assert_eq!(Every::Week.period(monday_s), Every::Week.period(monday_s + 7 * DAY_S - 1));
        let dir = tempfile::tempdir().unwrap();
        let reported = Reported::new(dir.path(), Every::Day);
        assert!(reported.is_due(100), "the first one");
        reported.keep(100).unwrap();
        assert!(!Reported::new(dir.path(), Every::Day).is_due(DAY_S - 1), "also after a restart");
        assert!(reported.is_due(DAY_S) && !reported.is_due(-5));
        assert!("hourly".parse::<Every>().is_err());
    }

    #[test]
    fn whoever_is_near_is_named_with_his_limits() {
        let limit = |used, hard, soft, state, left| LimitView {
            used,
            hard,
            soft,
            grace_seconds: 0,
            grace_left_seconds: left,
            state,
        };
        let quota = |used| QuotaView {
            kind: "user",
            id: Some(7),
            name: Some("bob".to_owned()),
            is_default: false,
            space_bytes: limit(used, 10 << 30, 8 << 30, "grace", Some(7300)),
            inodes: limit(5, 0, 0, "ok", None),
        };
        assert!(is_near(&quota(7 << 30)) && !is_near(&quota(6 << 30)));
        let report = QuotaReport {
            event: "quota-report",
            fs: "x".to_owned(),
            at_s: 0,
            quotas: vec![quota(9 << 30)],
            left_out: 2,
            has_more: true,
        };
        let text = report.text();
        assert!(text.contains("too many owners to look at all"), "{text}");
        let line = "user bob: space 9.0 GiB of 8.0 GiB soft, 10.0 GiB hard, 2 hours of grace left; inodes 5, not limited";
        assert!(text.contains(line) && text.contains("and 2 more"), "{text}");
    }
}
