//! Replica sets and shared targets after the configuration was restored from a backup (design note 039).
//!
//! A backup may be older than the last change of who serves a target. An MGS that went by an old row could give the target to a host that
//! lacks acknowledged changes, or to two hosts at once. Therefore the MGS decides about a restored target only after all its hosts have
//! told what lies on their disks. [`set`] and [`shared`] are plain functions from the row and these reports to the state of the target.
//!
//! Invariant: the highest number counts. A member of a set records an epoch, and an owner writes its turn, before it acknowledges anything
//! in it. Therefore, once all have reported, no higher number exists.

use std::collections::BTreeMap;

use brindle_types::{Code, Fault, TargetId};
use brindle_wire::mgs::replica::{MemberPhase, MemberReport, MemberRole, ReplicaSetState};
use brindle_wire::mgs::shared::{SharedPhase, SharedState, SharedTarget};

use crate::hosts::rows::SharedRow;
use crate::shared::failover::Situation;

/// Verdict on a restored target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled<T> {
    /// The state of the target is not known yet, with the reason.
    Waits(Fault),
    /// The row is as new as the hosts' records.
    AsItWas,
    /// The row becomes this one.
    Becomes(T),
}

/// Set shown by a member that has gone by a higher epoch than its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The epoch.
    pub(crate) epoch: u64,
    /// Hosts that were in sync in this epoch.
    pub(crate) in_sync: Vec<String>,
    /// The term in this epoch; 0 if unknown.
    pub(crate) term: u32,
}

/// Knowledge about a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// Present report of the daemon; `None` while its host is silent.
    pub(crate) report: Option<MemberReport>,
    /// Set that the member has shown.
    pub(crate) shown: Option<Shown>,
}

impl Word {
    /// Whether the contents of the host's disk are known.
    fn is_conclusive(&self, set: &ReplicaSetState) -> bool {
        let Some(report) = self.report.as_ref().filter(|report| report.uuid == set.uuid) else {
            return false;
        };
        match &report.phase {
            MemberPhase::Failed(fault) => fault.code == Code::OlderSet && self.shown.is_some(),
            _ => report.boot_term != 0,
        }
    }

    /// Highest epoch that the host knows.
    fn epoch(&self) -> u64 {
        let told = self.report.as_ref().map_or(0, |report| report.recorded_epoch.max(report.epoch));
        told.max(self.shown.as_ref().map_or(0, |shown| shown.epoch))
    }
}

fn waits(code: Code, target: TargetId, missing: &[&str], next: String) -> Fault {
    let what = if missing.len() == 1 { "has" } else { "have" };
    Fault::new(code)
        .subject(target.to_string())
        .why(format!("{} {what} not shown yet what lies there", missing.join(", ")))
        .why("the configuration was restored from a backup, and may be older than the last change of who serves it")
        .data("nothing is lost; clients wait")
        .next(next)
}

/// The highest epoch that any member has told of.
pub(crate) fn newest(set: &ReplicaSetState, words: &BTreeMap<String, Word>) -> u64 {
    words.values().map(Word::epoch).max().unwrap_or(0).max(set.epoch)
}

/// A term that clients were not told before: terms rise by one, and far slower than seconds.
pub(crate) fn new_term(known: u32, now_s: i64) -> u32 {
    known.saturating_add(1).max(u32::try_from(now_s).unwrap_or(0))
}

/// An epoch or turn above all that were reported, and above those of hosts that could not report: both rise by one, far slower than
/// seconds, so the time in seconds is higher.
pub(crate) fn above(newest: u64, now_s: i64) -> u64 {
    newest.saturating_add(1).max(u64::try_from(now_s).unwrap_or(0))
}

/// Verdict on a replica set.
pub(crate) fn set(
    set: &ReplicaSetState,
    words: &BTreeMap<String, Word>,
    now_s: i64,
) -> Settled<ReplicaSetState> {
    let none = Word::default();
    let of = |host: &str| words.get(host).unwrap_or(&none);
    let hosts = set.members.iter().map(|m| m.host.as_str());
    let missing: Vec<&str> = hosts.filter(|host| !of(host).is_conclusive(set)).collect();
    if !missing.is_empty() {
        let next = format!(
            "start these hosts; or, if one is lost: brindle target replica accept-loss {} --node HOST, with the host whose copy is to count",
            set.target
        );
        return Settled::Waits(waits(Code::RestoredTarget, set.target, &missing, next));
    }
    let newest = newest(set, words);
    if newest <= set.epoch {
        return Settled::AsItWas;
    }
    let of_newest = |shown: &&Shown| shown.epoch == newest && !shown.in_sync.is_empty();
    let shown = words.values().filter_map(|word| word.shown.as_ref()).find(of_newest);
    let Some(shown) = shown else {
        let highest: Vec<&str> =
            words.iter().filter(|(_, word)| word.epoch() == newest).map(|(host, _)| host.as_str()).collect();
        let next = "brindle target replica list".to_owned();
        return Settled::Waits(waits(Code::RestoredTarget, set.target, &highest, next));
    };
    // Members that have everything that was acknowledged.
    let complete = || set.members.iter().filter(|m| shown.in_sync.contains(&m.host));
    let serves = |host: &str| {
        let report = of(host).report.as_ref();
        report.is_some_and(|r| {
            r.epoch == newest && matches!(r.phase, MemberPhase::Serving | MemberPhase::TakingOver)
        })
    };
    // A member that the row does not name may have gone on alone since.
    let knows_all = shown.in_sync.iter().all(|host| set.member(host).is_some());
    let leader = complete()
        .find(|m| serves(&m.host))
        .or_else(|| complete().find(|m| m.host == set.primary))
        .or_else(|| complete().next())
        .filter(|_| knows_all);
    let Some(leader) = leader.map(|m| m.host.clone()) else {
        return Settled::Waits(
            Fault::new(Code::LastReplicaLost)
                .subject(set.target.to_string())
                .why(format!("its data was complete on {}, and the restored configuration does not know all of these copies", shown.in_sync.join(", ")))
                .data("nothing is lost so far; clients wait")
                .next(format!(
                    "restore a newer backup; or, if there is none: brindle target replica accept-loss {} --node HOST",
                    set.target
                )),
        );
    };
    let term = match serves(&leader) && shown.term != 0 {
        true => shown.term,
        false => new_term(set.term.max(shown.term), now_s),
    };
    let epoch = above(newest, now_s);
    let mut next = ReplicaSetState { epoch, term, primary: leader.clone(), ..set.clone() };
    for m in &mut next.members {
        // The leader's records count, and the others are compared with them: a member that was in sync may
        // have been started anew since.
        m.role = if m.host == leader { MemberRole::InSync } else { MemberRole::Learner };
        if m.host == leader {
            m.is_formatted = true;
            m.boot_term = of(&leader).report.as_ref().map_or(0, |report| report.boot_term);
        }
    }
    Settled::Becomes(next)
}

/// Reports of the hosts of a shared target.
struct Device<'a> {
    /// Highest turn that any host goes by, or has read.
    newest_turn: u64,
    /// Hosts that serve it, begin to, or may still have parts of it: with their turns.
    in_use: Vec<(&'a str, u64, bool)>,
    /// Hosts that have told nothing of use.
    missing: Vec<&'a str>,
}

fn device<'a>(t: &'a SharedTarget, s: &Situation) -> Device<'a> {
    let mut found = Device { newest_turn: 0, in_use: Vec::new(), missing: Vec::new() };
    let mut is_read = false;
    for host in t.hosts.iter().map(|host| host.host.as_str()) {
        let told =
            s.listening.of(host, t.target).filter(|told| s.is_alive(host) && told.report.uuid == t.uuid);
        let Some(report) = told.map(|told| &told.report) else {
            found.missing.push(host);
            continue;
        };
        found.newest_turn = found.newest_turn.max(report.turn);
        match report.state {
            SharedState::StandingBy { turn, .. } => {
                found.newest_turn = found.newest_turn.max(turn);
                is_read = true;
            }
            SharedState::Released => is_read = true,
            SharedState::Serving => {
                found.in_use.push((host, report.turn, true));
                is_read = true;
            }
            SharedState::Starting | SharedState::Failed { is_held: true, .. } => {
                found.in_use.push((host, report.turn, false));
            }
            SharedState::Failed { is_held: false, .. } => {}
        }
    }
    if !is_read && found.missing.is_empty() {
        found.missing = t.hosts.iter().map(|host| host.host.as_str()).collect();
    }
    found
}

fn owned(row: &SharedRow, owner: &str, turn: u64) -> SharedRow {
    let target = SharedTarget {
        owner: owner.to_owned(),
        turn,
        phase: SharedPhase::Owned,
        is_formatted: true,
        ..row.target.clone()
    };
    SharedRow { target, ..row.clone() }
}

/// Verdict on a shared target.
pub(crate) fn shared(row: &SharedRow, s: &Situation) -> Settled<SharedRow> {
    let t = &row.target;
    let device = device(t, s);
    if !device.missing.is_empty() {
        let next = format!(
            "start these hosts; or, if one is off for certain: brindle target failover {} --to HOST --owner-is-off",
            t.target
        );
        return Settled::Waits(waits(Code::RestoredTarget, t.target, &device.missing, next));
    }
    match device.in_use[..] {
        // Every host has released the target: any may get it, with a turn above every earlier one.
        [] if device.newest_turn > t.turn => {
            Settled::Becomes(owned(row, &t.owner, above(device.newest_turn, s.now_s)))
        }
        // A block was read, so it was formatted, whatever the row says.
        [] if !t.is_formatted => Settled::Becomes(owned(row, &t.owner, t.turn)),
        [] => Settled::AsItWas,
        [(host, turn, true)] if turn == device.newest_turn => match turn > t.turn {
            true => Settled::Becomes(owned(row, host, turn)),
            false if host == t.owner && !t.is_formatted => Settled::Becomes(owned(row, host, turn)),
            false if host == t.owner => Settled::AsItWas,
            false => Settled::Waits(busy(t, &[host])),
        },
        _ => Settled::Waits(busy(t, &device.in_use.iter().map(|(host, ..)| *host).collect::<Vec<_>>())),
    }
}

fn busy(t: &SharedTarget, hosts: &[&str]) -> Fault {
    Fault::new(Code::RestoredTarget)
        .subject(t.target.to_string())
        .why(format!("{} may have it in use", hosts.join(", ")))
        .data("nothing is lost; clients wait")
        .next("if this stays for a minute, start that host anew")
}

/// A host gets a shared target by the word of an administrator: those that are silent are off.
pub(crate) fn shared_by_word(row: &SharedRow, to: &str, s: &Situation) -> Result<SharedRow, String> {
    let t = &row.target;
    let device = device(t, s);
    if let Some((host, ..)) = device.in_use.iter().find(|(host, ..)| *host != to) {
        return Err(format!("{host} is not off, and may have it in use"));
    }
    if let Some(host) = t.hosts.iter().find(|host| host.host != to && s.is_alive(&host.host)) {
        return Err(format!("{} is not off: it was heard of a moment ago", host.host));
    }
    if device.missing.contains(&to) {
        return Err(format!("{to} is silent, or does not reach the device"));
    }
    Ok(owned(row, to, above(device.newest_turn.max(t.turn), s.now_s)))
}

#[cfg(test)]
mod tests;
