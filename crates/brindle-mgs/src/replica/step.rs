//! Decisions on a replica set whose members die, hang or start anew. [`step`] is a plain function of the set
//! and of the reports that were heard.
//!
//! ```text
//!   primary dead or failed, another member in sync and as it was:  epoch + 1, that one is primary, the former one a learner
//!   primary started anew with another boot term:                   likewise; if every member in sync did, or it is the only one:
//!                                                                   epoch + 1, term + 1, the others are learners
//!   another member in sync started anew with another boot term:     epoch + 1, it is a learner
//!   no such member:                                                 nobody serves; the set waits
//! ```
//!
//! Invariants: only a member that is stored as in sync becomes primary; the epoch rises with every change of the primary or of who is in sync; the
//! told term rises whenever acknowledged changes that nobody synced may be gone. A wrong verdict of death costs a moment, never data: a new
//! primary serves only when the lease that it has granted has ended.

use std::collections::BTreeMap;

use brindle_stdx::planted;
use brindle_wire::mgs::replica::{MemberRole, ReplicaSetState};

#[cfg(test)]
mod tests;

/// Whether a bug is planted, which the exploration in the tests has to find.
#[cfg(test)]
use tests::bug;
#[cfg(not(test))]
const fn bug(_: &str) -> bool {
    false
}

/// A member, as it was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Heard {
    /// The daemon reports the member; its store has this boot term.
    Alive {
        /// The boot term.
        boot_term: u32,
    },
    /// The member was heard a moment ago, or is starting: nothing is concluded.
    Unclear,
    /// The daemon says that the member cannot be served.
    Failed,
    /// The host of the member is silent.
    Dead,
}

/// Step to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// No step.
    Nothing,
    /// The set becomes this one.
    Change(ReplicaSetState),
    /// No member can serve the set, with the reason.
    Waits(String),
}

/// See the module.
pub(crate) fn step(set: &ReplicaSetState, heard: &BTreeMap<String, Heard>) -> Step {
    let of = |host: &str| heard.get(host).copied().unwrap_or(Heard::Unclear);
    let Some(primary) = set.member(&set.primary) else { return Step::Nothing };
    match of(&set.primary) {
        Heard::Unclear => Step::Nothing,
        Heard::Alive { boot_term } if primary.boot_term == 0 => Step::Change(noted(set, boot_term)),
        Heard::Alive { boot_term } if boot_term == primary.boot_term => demoted(set, &of),
        Heard::Alive { .. } | Heard::Failed | Heard::Dead => replaced(set, &of),
    }
}

/// The primary of a new set tells its boot term for the first time.
fn noted(set: &ReplicaSetState, boot_term: u32) -> ReplicaSetState {
    let mut next = set.clone();
    next.term = next.term.max(boot_term);
    member(&mut next, &set.primary, |m| m.boot_term = boot_term);
    next
}

fn member(
    set: &mut ReplicaSetState,
    host: &str,
    change: impl FnOnce(&mut brindle_wire::mgs::replica::ReplicaMember),
) {
    if let Some(found) = set.members.iter_mut().find(|m| m.host == host) {
        change(found);
    }
}

/// The primary is well: members that have lost what nobody synced are not in sync any more.
fn demoted(set: &ReplicaSetState, of: &impl Fn(&str) -> Heard) -> Step {
    let lost = |host: &str, boot_term: u32| {
        host != set.primary && matches!(of(host), Heard::Alive { boot_term: now } if now != boot_term)
    };
    let gone: Vec<String> =
        set.in_sync().filter(|m| lost(&m.host, m.boot_term)).map(|m| m.host.clone()).collect();
    if gone.is_empty() {
        return Step::Nothing;
    }
    let mut next = set.clone();
    next.epoch += 1;
    for host in gone {
        member(&mut next, &host, |m| m.role = MemberRole::Learner);
    }
    Step::Change(next)
}

/// The next set when the primary cannot go on.
fn replaced(set: &ReplicaSetState, of: &impl Fn(&str) -> Heard) -> Step {
    let is_as_it_was =
        |host: &str, boot_term: u32| matches!(of(host), Heard::Alive { boot_term: now } if now == boot_term);
    let candidates = set.members.iter().filter(|m| {
        m.host != set.primary
            && (m.role == MemberRole::InSync
                || bug("replica_promotes_learner")
                || planted("set_promotes_a_learner"))
            && is_as_it_was(&m.host, m.boot_term)
    });
    if let Some(successor) = candidates.map(|m| m.host.clone()).next() {
        let mut next = set.clone();
        next.epoch += 1;
        member(&mut next, &set.primary, |m| m.role = MemberRole::Learner);
        member(&mut next, &successor, |m| m.role = MemberRole::InSync);
        next.primary = successor;
        return Step::Change(next);
    }
    // Each of these members has lost unsynced changes, or may have.
    let started = |host: &str| match of(host) {
        Heard::Alive { boot_term } => Some(boot_term),
        _ => None,
    };
    let missing: Vec<&str> =
        set.in_sync().map(|m| m.host.as_str()).filter(|host| started(host).is_none()).collect();
    let leader = set.in_sync().map(|m| m.host.as_str()).find(|host| started(host).is_some());
    match leader {
        Some(_) if missing.is_empty() => {
            // All members have the synced bytes, so any one can lead. The former primary is preferred, if it
            // has started.
            let leader = if started(&set.primary).is_some() && set.is_in_sync(&set.primary) {
                set.primary.clone()
            } else {
                leader.unwrap_or_default().to_owned()
            };
            let boot_term = started(&leader).unwrap_or_default();
            let mut next = set.clone();
            next.epoch += 1;
            if !bug("replica_hides_a_loss") && !planted("set_hides_a_loss") {
                next.term += 1;
            }
            next.members.iter_mut().for_each(|m| m.role = MemberRole::Learner);
            member(&mut next, &leader, |m| {
                m.role = MemberRole::InSync;
                m.boot_term = boot_term;
            });
            next.primary = leader;
            Step::Change(next)
        }
        _ if missing.iter().any(|host| of(host) == Heard::Unclear) => Step::Nothing,
        _ => {
            Step::Waits(format!("its data is complete only on {}, which cannot serve it", missing.join(", ")))
        }
    }
}
