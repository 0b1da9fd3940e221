//! Decisions on a shared target whose owner dies, hangs, or is to give it up. [`judge`] is a plain function
//! of the target's row and of the reports that were heard; it is called a few times a second for each shared
//! target.
//!
//! ```text
//!            failover, failback (by order, or after a set time), owner says that it cannot serve
//!   Owned ------------------------------------------> Handing{to}
//!     ^ ^                                              |     |
//!     | `---- the owner has released it: turn + 1 -----'     | owner silent,
//!     |                                                      | or not able to release it
//!     |                 owner silent                         v
//!     |   Owned ------------------------------------> Fencing{to}
//!     |------ the owner was fenced: turn + 1 ----------------|
//!     `------ the owner is heard again before: turn + 1 -----'
//! ```
//!
//! Invariants: the owner changes only when the former one has released the target or was fenced (or an administrator vouches that it is
//! off). Silence of a host alone takes nothing from it. A fencing covers only targets that waited for it when it began: the host may have
//! been started again since. The turn rises with each change after which a host may serve, even the same host again, and a host never
//! serves under a turn that it has released. Therefore a report of a release stays valid however old it is.

use std::collections::{BTreeMap, BTreeSet};

use brindle_stdx::Mono;
use brindle_types::{Code, Fault, TargetId};
use brindle_wire::mgs::shared::{SharedPhase, SharedState, SharedTarget};

use super::listening::{Listening, StateSince};
use crate::hosts::rows::SharedRow;

/// A host whose daemon was not heard of for this long is taken for dead.
pub(crate) const DEAD_MS: u64 = 2_500;
/// Only a host that was heard of within this time is given a target.
pub(crate) const ALIVE_MS: u64 = 1_500;
/// After its start, and after it was deaf, an MGS that hears another host waits this long before it takes a host for dead that it has not
/// heard of yet. A daemon that tries the address of a dead MGS first needs some seconds: 3 s for that attempt, up to 5 s for the proof of
/// identity with the next one.
const GRACE_MS: u64 = 10_000;
/// ... and this long while the MGS hears no other host: the MGS itself may be cut off.
const GRACE_ALONE_MS: u64 = 12_000;
/// An owner that says that it cannot serve has so long to mend it; so has one that is to give the target up.
const FAILED_MS: u64 = 3_000;
/// A target that its owner could not serve goes to the other host once in this time: the cause may be the device.
const FAILURE_PAUSE_S: i64 = 600;

/// State of the fencing of a host.
#[derive(Clone, Debug)]
pub(crate) enum Fencing {
    /// The program runs.
    Running,
    /// The host is off, or cannot write any more.
    Done,
    /// The host is not known to be off.
    Failed(Fault),
}

/// Input of [`judge`], beside the row.
pub(crate) struct Situation<'a> {
    pub(crate) now: Mono,
    pub(crate) now_s: i64,
    pub(crate) listening: &'a Listening,
    /// Hosts with daemons, without the one of this MGS.
    pub(crate) others: &'a [String],
    pub(crate) has_fence: bool,
    /// Time for which the preferred host of a target must have stood by until it gets the target back;
    /// `None`: only by order.
    pub(crate) failback_after_ms: Option<u64>,
    pub(crate) fencing: &'a BTreeMap<String, Fencing>,
    /// Targets whose owners were fenced, with the turns in which that was done.
    pub(crate) fenced: &'a BTreeSet<(TargetId, u64)>,
}

/// Verdict of [`judge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No change is needed.
    Nothing,
    /// The row becomes this one.
    Change(SharedRow),
    /// The owner is to be fenced.
    Fence,
    /// A change is due and cannot be made, with the reason.
    Hindered(Fault),
}

impl Situation<'_> {
    /// Silence of a host in milliseconds, as far as this MGS could hear. A host that was not heard of since
    /// the start has a time of grace first.
    pub(crate) fn silent_ms(&self, host: &str) -> u64 {
        match self.listening.heard_ms_ago(host, self.now) {
            Some(ms) => ms,
            None => self.listening.listened_ms(self.now),
        }
    }

    pub(crate) fn is_dead(&self, host: &str) -> bool {
        let limit_ms = match self.listening.heard_ms_ago(host, self.now) {
            Some(_) => DEAD_MS,
            None if self.others.iter().any(|other| self.is_alive(other)) => GRACE_MS,
            None => GRACE_ALONE_MS,
        };
        self.silent_ms(host) >= limit_ms
    }

    pub(crate) fn is_alive(&self, host: &str) -> bool {
        self.listening.heard_ms_ago(host, self.now).is_some_and(|ms| ms <= ALIVE_MS)
    }

    /// Whether this MGS hears none of several hosts: then it is rather the one that is cut off.
    fn is_deaf(&self) -> bool {
        self.listening.is_deaf(self.others, self.now)
    }

    /// The owner's report in this turn, or an earlier one about parts that it cannot get rid of: those stay whatever turn it is.
    fn told_by_owner(&self, t: &SharedTarget) -> Option<&StateSince> {
        let told = self.listening.of(&t.owner, t.target)?;
        let is_held = matches!(told.report.state, SharedState::Failed { is_held: true, .. });
        let is_of_now = told.report.turn == t.turn || (is_held && told.report.turn < t.turn);
        (is_of_now && told.report.uuid == t.uuid).then_some(told)
    }

    /// The fault of an owner that has had its time to mend it, in what it is ordered now.
    fn failed(&self, t: &SharedTarget) -> Option<&Fault> {
        let told = self.told_by_owner(t)?;
        let SharedState::Failed { fault, .. } = &told.report.state else { return None };
        let ms = self.now.ms_since(told.since).min(self.listening.ordered_ms(t, self.now));
        (ms >= FAILED_MS).then_some(&**fault)
    }

    /// Whether the owner says that it cannot serve or give up the target.
    fn is_failing(&self, t: &SharedTarget) -> bool {
        self.told_by_owner(t).is_some_and(|told| matches!(told.report.state, SharedState::Failed { .. }))
    }

    /// Whether the owner has parts of the target that it cannot get rid of.
    fn is_held(&self, t: &SharedTarget) -> bool {
        let told = self.told_by_owner(t);
        told.is_some_and(|told| matches!(told.report.state, SharedState::Failed { is_held: true, .. }))
    }

    /// Whether the owner has given the target up, by its own word or by the owner block that another host reads.
    fn is_released(&self, t: &SharedTarget) -> bool {
        t.hosts.iter().any(|host| {
            let Some(told) = self.listening.of(&host.host, t.target) else { return false };
            match told.report.state {
                SharedState::Released => host.host == t.owner && told.report.turn == t.turn,
                SharedState::StandingBy { turn, is_released } => {
                    host.host != t.owner && is_released && turn == t.turn && self.is_alive(&host.host)
                }
                _ => false,
            }
        })
    }

    /// Whether a host is alive, reaches the device, and has nothing of the target in use.
    fn stands_by(&self, t: &SharedTarget, host: &str) -> bool {
        let told = self.listening.of(host, t.target);
        self.is_alive(host)
            && told.is_some_and(|told| matches!(told.report.state, SharedState::StandingBy { .. }))
    }

    /// Whether another host could take the target now.
    pub(crate) fn can_take(&self, t: &SharedTarget, host: &str) -> bool {
        host != t.owner && self.stands_by(t, host)
    }

    /// Another host that could take the target.
    pub(crate) fn standby(&self, t: &SharedTarget) -> Option<String> {
        let others = t.hosts.iter().filter(|host| host.host != t.owner);
        others.map(|host| host.host.clone()).find(|host| self.can_take(t, host))
    }
}

/// The row when a host owns the target from now on, or again.
pub(crate) fn taken_by(row: &SharedRow, to: &str) -> SharedRow {
    let owner = to.to_owned();
    let target =
        SharedTarget { owner, turn: row.target.turn + 1, phase: SharedPhase::Owned, ..row.target.clone() };
    SharedRow { target, ..row.clone() }
}

fn in_phase(row: &SharedRow, phase: SharedPhase) -> SharedRow {
    SharedRow { target: SharedTarget { phase, ..row.target.clone() }, ..row.clone() }
}

/// The highest turn that a host has reported or read on the device, if it is above the row's. The row was then put back to an older one.
pub(crate) fn newer_turn(row: &SharedRow, s: &Situation) -> Option<u64> {
    let t = &row.target;
    let turn = |host: &str| {
        let report = &s.listening.of(host, t.target).filter(|told| told.report.uuid == t.uuid)?.report;
        Some(match report.state {
            SharedState::StandingBy { turn, .. } => turn.max(report.turn),
            _ => report.turn,
        })
    };
    let told = t.hosts.iter().filter_map(|host| turn(&host.host)).max();
    told.filter(|turn| *turn > t.turn)
}

/// Verdict on one shared target.
pub(crate) fn judge(row: &SharedRow, s: &Situation) -> Verdict {
    let t = &row.target;
    match &t.phase {
        SharedPhase::Owned if !t.is_formatted || !t.is_wanted => Verdict::Nothing,
        SharedPhase::Owned => judge_owned(row, s),
        SharedPhase::Handing { to } => judge_handing(row, to, s),
        SharedPhase::Fencing { to } => judge_fencing(row, to, s),
    }
}

fn judge_owned(row: &SharedRow, s: &Situation) -> Verdict {
    let t = &row.target;
    if s.is_dead(&t.owner) {
        return match s.standby(t) {
            _ if s.is_deaf() => Verdict::Hindered(deaf(t, s)),
            None => Verdict::Hindered(no_standby(t, s)),
            Some(to) if s.is_released(t) => Verdict::Change(taken_by(row, &to)),
            Some(to) => fence_for(row, to, s),
        };
    }
    let Some(told) = s.told_by_owner(t) else { return Verdict::Nothing };
    if told.report.state == SharedState::Released {
        // The target was stopped in between, and is to be served again.
        return Verdict::Change(taken_by(row, &t.owner));
    }
    if !matches!(told.report.state, SharedState::Failed { .. }) {
        return failback(row, s);
    }
    let Some(fault) = s.failed(t) else { return Verdict::Nothing };
    if s.now_s < row.moved_for_failure_s + FAILURE_PAUSE_S {
        let why = format!("it was moved for that reason less than {} min ago", FAILURE_PAUSE_S / 60);
        return Verdict::Hindered(fault.clone().why(why));
    }
    match s.standby(t) {
        Some(to) => {
            let row = in_phase(row, SharedPhase::Handing { to });
            Verdict::Change(SharedRow { moved_for_failure_s: s.now_s, ..row })
        }
        None => Verdict::Hindered(no_standby(t, s)),
    }
}

/// Gives the target back to its preferred host once both hosts have been steady for long enough. The time begins anew for a host that has
/// just taken the target or come back.
fn failback(row: &SharedRow, s: &Situation) -> Verdict {
    let t = &row.target;
    let (Some(after_ms), Some(preferred)) = (s.failback_after_ms, t.hosts.first()) else {
        return Verdict::Nothing;
    };
    let is_steady = |host: &str| {
        s.listening.of(host, t.target).is_some_and(|told| s.now.ms_since(told.since) >= after_ms)
    };
    let rests = s.now_s >= row.moved_for_failure_s + FAILURE_PAUSE_S;
    match rests && s.can_take(t, &preferred.host) && is_steady(&preferred.host) && is_steady(&t.owner) {
        true => Verdict::Change(in_phase(row, SharedPhase::Handing { to: preferred.host.clone() })),
        false => Verdict::Nothing,
    }
}

fn judge_handing(row: &SharedRow, to: &str, s: &Situation) -> Verdict {
    let t = &row.target;
    if s.is_released(t) {
        return Verdict::Change(taken_by(row, if s.can_take(t, to) { to } else { &t.owner }));
    }
    if s.is_dead(to) {
        return Verdict::Change(taken_by(row, &t.owner));
    }
    if s.is_dead(&t.owner) {
        return fence_for(row, to.to_owned(), s);
    }
    match s.failed(t) {
        // The other host may fail for the same reason, and then fencing helps nobody.
        Some(_) if !s.can_take(t, to) => Verdict::Hindered(no_standby(t, s)),
        Some(_) => fence_for(row, to.to_owned(), s),
        None => Verdict::Nothing,
    }
}

fn judge_fencing(row: &SharedRow, to: &str, s: &Situation) -> Verdict {
    let t = &row.target;
    let next = || if s.can_take(t, to) { Some(to.to_owned()) } else { s.standby(t) };
    if s.is_released(t) || s.fenced.contains(&(t.target, t.turn)) {
        // A fenced owner that was started again may get the target, too.
        let again = || s.stands_by(t, &t.owner).then(|| t.owner.clone());
        return match next().or_else(again) {
            Some(to) => Verdict::Change(taken_by(row, &to)),
            None => Verdict::Hindered(no_standby(t, s)),
        };
    }
    let is_alive = s.is_alive(&t.owner);
    match s.fencing.get(&t.owner) {
        Some(Fencing::Running) => Verdict::Nothing,
        _ if s.is_deaf() => Verdict::Hindered(deaf(t, s)),
        // No other host has served since: the owner goes on, or begins anew.
        _ if is_alive && !s.is_failing(t) => Verdict::Change(taken_by(row, &t.owner)),
        // An owner without any part of it may try again; one that has some would wait for ever.
        Some(Fencing::Failed(_)) if is_alive && !s.is_held(t) => Verdict::Change(taken_by(row, &t.owner)),
        Some(Fencing::Failed(fault)) => Verdict::Hindered(fault.clone()),
        Some(Fencing::Done) | None if is_alive || s.is_dead(&t.owner) => Verdict::Fence,
        Some(Fencing::Done) | None => Verdict::Nothing,
    }
}

/// The owner is fenced next, where there is a way to do that.
fn fence_for(row: &SharedRow, to: String, s: &Situation) -> Verdict {
    if s.is_deaf() {
        return Verdict::Hindered(deaf(&row.target, s));
    }
    if s.has_fence {
        return Verdict::Change(in_phase(row, SharedPhase::Fencing { to }));
    }
    let t = &row.target;
    let why = match s.failed(t).filter(|_| s.is_alive(&t.owner)) {
        Some(fault) => {
            let line = fault.why.first().cloned().unwrap_or_else(|| fault.what.clone());
            format!("{} cannot give it up, and may still write: {line}", t.owner)
        }
        None => format!("{} is silent for {} s, and may still write", t.owner, s.silent_ms(&t.owner) / 1000),
    };
    Verdict::Hindered(
        Fault::new(Code::NoFence)
            .subject(t.target.to_string())
            .why(why)
            .why("the MGS has no program that fences hosts")
            .data("nothing is lost; clients wait")
            .next(format!(
                "start {0} again; or make sure that {0} is off, then: brindle target failover {1} --owner-is-off",
                t.owner, t.target
            )),
    )
}

fn no_standby(t: &SharedTarget, s: &Situation) -> Fault {
    let mut fault = Fault::new(Code::NoStandby).subject(t.target.to_string());
    for host in &t.hosts {
        let name = &host.host;
        fault = match s.listening.of(name, t.target).map(|told| &told.report.state) {
            _ if !s.is_alive(name) => {
                fault.why(format!("{name} is silent for {} s", s.silent_ms(name) / 1000))
            }
            Some(SharedState::Failed { fault: theirs, .. }) => {
                let line = theirs.why.first().cloned().unwrap_or_else(|| theirs.what.clone());
                fault.why(format!("{name} cannot: {line}"))
            }
            _ => fault,
        };
    }
    fault.data("nothing is lost; clients wait").next("start one of its hosts again")
}

fn deaf(t: &SharedTarget, s: &Situation) -> Fault {
    Fault::new(Code::NoStandby)
        .subject(t.target.to_string())
        .why(format!("this MGS hears none of {} hosts: it may be the one that is cut off", s.others.len()))
        .data("nothing is lost; clients wait")
        .next("look at the network of the MGS host")
}

#[cfg(test)]
pub(crate) mod tests;
