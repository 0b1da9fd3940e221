//! Limits of jobs, users and hosts, and the requests that servers have delayed because of limits
//! and of fair sharing.

mod tbf;

use std::collections::BTreeMap;

use brindle_stdx::BoxFuture;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result, Role};
use brindle_wire::job::{JobHeld, MdtSharesReq, OstSharesReq, SharesReq, SharesResp};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mgs::limit::{ChangeLimitReq, LimitAt, LimitChange, LimitOf, LimitRule, WatchLimitsReq};
use futures_util::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;
pub use tbf::parse as parse_tbf;

/// Targets that are asked at once.
const ASKED_AT_ONCE: usize = 32;

/// Limits of a file system.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LimitsView {
    /// The file system.
    pub fs: String,
    /// Limits by name.
    pub limits: Vec<LimitView>,
    /// Jobs, and hosts that name none, whose requests have waited; the longest waits first.
    pub jobs: Vec<HeldJobView>,
    /// Targets that did not tell, with the reason.
    pub silent: Vec<String>,
}
document!(LimitsView, "brindle.limit.list", 1);

/// A limit.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LimitView {
    /// Name of the limit.
    pub name: String,
    /// Jobs that it is for; `*` stands for any characters.
    pub jobs: Vec<String>,
    /// Users, by number.
    pub users: Vec<u32>,
    /// Hosts, by name or address; `*` stands for any characters.
    pub hosts: Vec<String>,
    /// Targets at which it counts: `all`, `mdt` or `ost`.
    pub at: &'static str,
    /// Requests a second at each target.
    pub iops: Option<u64>,
    /// Bytes of files a second at each target.
    pub bytes_per_s: Option<u64>,
    /// End of the limit, in seconds since 1970; none for one that stays.
    pub ends_s: Option<i64>,
    /// Requests that it has counted for, over all targets that tell.
    pub requests: u64,
    /// Requests that were held.
    pub held: u64,
    /// For how long, in seconds.
    pub held_seconds: f64,
    /// Held requests that went on before their time, because none is held for longer than 4 s.
    pub overdue: u64,
}

impl LimitView {
    /// Rates, subjects and targets of the limit, in words; `user` names a user.
    pub fn in_words(&self, user: impl Fn(u32) -> String) -> String {
        format!("{} for {} at {}", self.rates(), self.subjects(user), self.places())
    }

    /// Rates of the limit, in words.
    pub fn rates(&self) -> String {
        let iops = self.iops.map(|rate| format!("{rate} requests/s"));
        let bytes = self.bytes_per_s.map(|rate| format!("{}/s", format_bytes(rate)));
        iops.into_iter().chain(bytes).collect::<Vec<_>>().join(" and ")
    }

    /// Jobs, users and hosts that the limit is for, in words.
    pub fn subjects(&self, user: impl Fn(u32) -> String) -> String {
        let jobs = self.jobs.iter().map(|job| format!("job {job}"));
        let users = self.users.iter().map(|uid| format!("user {}", user(*uid)));
        let hosts = self.hosts.iter().map(|host| format!("host {host}"));
        jobs.chain(users).chain(hosts).collect::<Vec<_>>().join(", ")
    }

    /// Targets at which the limit counts, in words.
    pub fn places(&self) -> &'static str {
        match self.at {
            "mdt" => "each MDT",
            "ost" => "each OST",
            _ => "each target",
        }
    }
}

/// A job whose requests have waited at a target since that was started.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HeldJobView {
    /// The job; the host where requests name none.
    pub name: String,
    /// Full name of the target.
    pub target: String,
    /// Requests that waited for their turn.
    pub queued: u64,
    /// For how long, in seconds.
    pub queued_seconds: f64,
    /// Most requests of others that one of these let go first.
    pub overtaken_max: u64,
    /// Requests that a limit held.
    pub held: u64,
    /// For how long, in seconds.
    pub held_seconds: f64,
    /// The limit that has held it last.
    pub limit: Option<String>,
}

/// A change of a limit.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LimitChanged {
    /// Name of the limit.
    pub name: String,
    /// Whether anything was changed, or would be.
    pub changed: bool,
    /// Only told, and not done.
    pub dry_run: bool,
    /// The limit as it is then; none if it was removed.
    pub limit: Option<LimitView>,
}
document!(LimitChanged, "brindle.limit.change", 1);

/// Requests that targets have held back, by the full name of the target.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// The file system.
    pub fs: String,
    /// Targets that told.
    pub told: BTreeMap<String, SharesResp>,
    /// Targets that did not tell, with the reason.
    pub silent: Vec<String>,
}

impl Shares {
    /// Asks all targets.
    pub async fn take(servers: &Servers, place: &FsLocation) -> Result<Shares> {
        let (map, _) = servers.map(place).await?;
        let targets = map.targets.iter().filter(|entry| entry.id.role != Role::Mgt);
        let map = &map;
        let asking = targets.map(|entry| -> BoxFuture<'_, (String, Result<SharesResp>)> {
            Box::pin(async move { (map.fs.target(entry.id), ask(servers, map, entry).await) })
        });
        let asking: Vec<BoxFuture<'_, (String, Result<SharesResp>)>> = asking.collect();
        let answers: Vec<(String, Result<SharesResp>)> =
            stream::iter(asking).buffer_unordered(ASKED_AT_ONCE).collect().await;
        let mut shares = Shares { fs: map.fs.to_string(), ..Shares::default() };
        for (name, answer) in answers {
            match answer {
                Ok(told) => drop(shares.told.insert(name, told)),
                Err(fault) => shares.silent.push(format!("{name}: {}", why(&fault))),
            }
        }
        shares.silent.sort();
        Ok(shares)
    }

    /// Jobs and hosts that have waited, the longest waits first.
    fn jobs(&self) -> Vec<HeldJobView> {
        let rows = self.told.iter().flat_map(|(target, told)| told.jobs.iter().map(move |row| (target, row)));
        let shown = rows.map(|(target, row)| HeldJobView {
            name: row.name.clone(),
            target: target.clone(),
            queued: row.queued.count,
            queued_seconds: row.queued.sum as f64 / 1e6,
            overtaken_max: row.overtaken.max,
            held: row.held.count,
            held_seconds: row.held.sum as f64 / 1e6,
            limit: Some(row.rule.clone()).filter(|rule| !rule.is_empty()),
        });
        let mut jobs: Vec<HeldJobView> = shown.collect();
        let waited = |job: &HeldJobView| job.queued_seconds + job.held_seconds;
        jobs.sort_by(|a, b| waited(b).total_cmp(&waited(a)));
        jobs
    }

    /// Waits of a job at each target since an earlier look.
    pub fn since<'a>(&'a self, earlier: &'a Shares, job: &'a str) -> impl Iterator<Item = (&'a str, Waited)> {
        self.told.iter().filter_map(move |(target, told)| {
            let now = told.jobs.iter().filter(|row| row.name == job);
            let before = earlier.told.get(target);
            let before = before.into_iter().flat_map(|told| &told.jobs).filter(|row| row.name == job);
            let waited = Waited::of(now).less(&Waited::of(before));
            (waited.queued > 0 || waited.held > 0).then_some((target.as_str(), waited))
        })
    }
}

/// Waits of a job at a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Requests that waited for their turn.
    pub queued: u64,
    /// For how long, in microseconds.
    pub queued_micros: u64,
    /// Requests that a limit held.
    pub held: u64,
    /// For how long, in microseconds.
    pub held_micros: u64,
    /// The limit that has held it last.
    pub rule: String,
}

impl Waited {
    /// Sum over the users of one job name.
    fn of<'a>(rows: impl Iterator<Item = &'a JobHeld>) -> Waited {
        rows.fold(Waited::default(), |sum, row| Waited {
            queued: sum.queued + row.queued.count,
            queued_micros: sum.queued_micros + row.queued.sum,
            held: sum.held + row.held.count,
            held_micros: sum.held_micros + row.held.sum,
            rule: if row.rule.is_empty() { sum.rule } else { row.rule.clone() },
        })
    }

    /// Numbers since `before`; all numbers where the server has begun anew.
    fn less(self, before: &Waited) -> Waited {
        if self.queued < before.queued || self.held < before.held {
            return self;
        }
        Waited {
            queued: self.queued - before.queued,
            queued_micros: self.queued_micros.saturating_sub(before.queued_micros),
            held: self.held - before.held,
            held_micros: self.held_micros.saturating_sub(before.held_micros),
            rule: self.rule,
        }
    }
}

async fn ask(servers: &Servers, map: &Map, entry: &TargetEntry) -> Result<SharesResp> {
    match entry.id.role {
        Role::Mdt => servers.ask(map, entry.id, &MdtSharesReq(SharesReq {})).await,
        _ => servers.ask(map, entry.id, &OstSharesReq(SharesReq {})).await,
    }
}

fn why(fault: &Fault) -> String {
    match fault.code {
        Code::UnknownOp => "its release knows no limits and takes no turns".to_owned(),
        Code::TargetDown => "it does not answer".to_owned(),
        _ => fault.why.first().map_or_else(|| fault.what.to_string(), ToString::to_string),
    }
}

/// A rule for people and programs, with what targets have counted.
fn view(rule: &LimitRule, shares: &Shares) -> LimitView {
    let mut shown = LimitView {
        name: rule.name.clone(),
        jobs: Vec::new(),
        users: Vec::new(),
        hosts: Vec::new(),
        at: match rule.at {
            LimitAt::Everywhere => "all",
            LimitAt::Mdts => "mdt",
            LimitAt::Osts => "ost",
        },
        iops: rule.requests_per_s,
        bytes_per_s: rule.bytes_per_s,
        ends_s: rule.ends_s,
        requests: 0,
        held: 0,
        held_seconds: 0.0,
        overdue: 0,
    };
    for of in &rule.of {
        match of {
            LimitOf::Job(job) => shown.jobs.push(job.clone()),
            LimitOf::User(uid) => shown.users.push(*uid),
            LimitOf::Host(host) => shown.hosts.push(host.clone()),
        }
    }
    let counted = shares.told.values().flat_map(|told| &told.rules).filter(|held| held.name == rule.name);
    for held in counted {
        shown.requests += held.requests;
        shown.held += held.held;
        shown.held_seconds += held.held_micros as f64 / 1e6;
        shown.overdue += held.overdue;
    }
    shown
}

impl Servers {
    /// Limits of a file system, and how many requests targets have held back by each.
    pub async fn limits(&self, place: &FsLocation) -> Result<LimitsView> {
        let request = WatchLimitsReq { known_version: 0, wait_ms: 0 };
        let rules = self.ask_the_mgs(place, &request).await?.rules.unwrap_or_default();
        let shares = Shares::take(self, place).await?;
        let limits = rules.iter().map(|rule| view(rule, &shares)).collect();
        let jobs = shares.jobs();
        Ok(LimitsView { fs: shares.fs, limits, jobs, silent: shares.silent })
    }

    /// Makes, changes or removes a limit.
    pub async fn change_limit(
        &self,
        place: &FsLocation,
        change: LimitChange,
        is_dry_run: bool,
    ) -> Result<LimitChanged> {
        let name = change.name().to_owned();
        let answer = self.ask_the_mgs(place, &ChangeLimitReq { change, is_dry_run }).await?;
        let limit = answer.rule.map(|rule| view(&rule, &Shares::default()));
        Ok(LimitChanged { name, changed: answer.changed, dry_run: is_dry_run, limit })
    }
}

#[cfg(test)]
mod tests {
    use brindle_wire::job::{RuleHeld, Tally};

    use super::*;

    fn tally(count: u64, sum: u64) -> Tally {
        Tally { count, sum, ..Tally::default() }
    }

    fn shares(queued: Tally, held: Tally) -> Shares {
        let row = JobHeld { name: "a".into(), queued, overtaken: tally(0, 0), held, rule: "slow".into() };
        let rule = RuleHeld { name: "slow".into(), requests: 9, held: 3, held_micros: 500_000, overdue: 1 };
        let told = SharesResp { jobs: vec![row], rules: vec![rule], ..SharesResp::default() };
        Shares {
            told: BTreeMap::from([("MDT0".to_owned(), told.clone()), ("OST0".to_owned(), told)]),
            ..Shares::default()
        }
    }

    #[test]
    fn waits_are_differences() {
        let (earlier, later) = (shares(tally(1, 10), tally(0, 0)), shares(tally(3, 50), tally(2, 2_000)));
        let waits: Vec<_> = later.since(&earlier, "a").collect();
        assert_eq!(waits.len(), 2);
        let waited = &waits[0].1;
        assert_eq!((waited.queued, waited.queued_micros, waited.held), (2, 40, 2));
        assert_eq!(waited.rule, "slow");
        assert_eq!(later.since(&later, "a").count(), 0, "nothing since");
        assert_eq!(later.since(&earlier, "b").count(), 0, "another job");
        // A server that was started anew has counted all of it since.
        assert_eq!(earlier.since(&later, "a").map(|(_, waited)| waited.queued).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn a_limit_shows_what_all_targets_have_held() {
        let rule = LimitRule {
            name: "slow".into(),
            of: vec![LimitOf::Job("a".into()), LimitOf::User(7), LimitOf::Host("n*".into())],
            at: LimitAt::Mdts,
            requests_per_s: Some(5),
            bytes_per_s: None,
            ends_s: None,
        };
        let shown = view(&rule, &shares(tally(0, 0), tally(0, 0)));
        assert_eq!((shown.requests, shown.held, shown.held_seconds, shown.overdue), (18, 6, 1.0, 2));
        assert_eq!((shown.at, &shown.jobs[..], &shown.users[..]), ("mdt", &["a".to_owned()][..], &[7][..]));
    }
}
