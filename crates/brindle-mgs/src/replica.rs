//! Replica sets: OSTs with two or three members on different hosts, each with storage of its own (design note 032).
//!
//! Daemons tell a few times a second how their members are. The MGS looks at each set as often and stores
//! what has to change ([`step`]). Requests of administrators and primaries are in [`decide`]. Both are plain
//! functions; every change is one compare-and-swap of one row.

pub(crate) mod decide;
pub(crate) mod moving;
pub(crate) mod racks;
pub(crate) mod spare;
pub(crate) mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use brindle_stdx::Mono;
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::mgs::replica::{MemberPhase, MemberReport, MemberRole, ReplicaSetState};

use crate::Mgs;
use crate::hosts::Hosts;
use crate::hosts::rows::{Change, ReplicaRow, Rows};
use crate::restored::{self, Settled, Shown, Word};
use crate::shared::failover::{ALIVE_MS, DEAD_MS};
use step::{Heard, Step, step};

/// Interval at which replica sets are checked.
const LOOK_EVERY_MS: u64 = 200;
/// A pause of this MGS that is longer counts for nobody's silence.
const PAUSE_MS: u64 = 600;
/// Time after the start of an MGS in which it waits for hosts that it has not heard of yet.
const GRACE_MS: u64 = 8_000;

/// A spare host that was heard of so lately can be given a copy.
const SPARE_ALIVE_MS: u64 = 15_000;

/// A fill that gets this much further than the point where it met trouble counts as going on. A fill without space ends at
/// the same point each time.
const HEADWAY_BYTES: u64 = 64 << 20;

/// A copy whose fill met trouble, and has not got further since.
#[derive(Debug)]
struct Stuck {
    since: Mono,
    done_bytes: u64,
}

#[derive(Debug)]
struct Words {
    at: Mono,
    members: Vec<MemberReport>,
}

/// Latest reports of daemons about their members: volatile.
#[derive(Debug)]
pub(crate) struct Replicas {
    state: parking_lot::Mutex<State>,
}

#[derive(Debug)]
struct State {
    started: Mono,
    hosts: BTreeMap<String, Words>,
    hindrances: BTreeMap<TargetId, Fault>,
    /// Sets shown by members that know a higher epoch than their row, by target and host.
    shown: BTreeMap<(TargetId, String), Shown>,
    /// Time since when members are away or failed, by target and host.
    away: BTreeMap<(TargetId, String), Mono>,
    /// Fills that do not go on, by target and host.
    stuck: BTreeMap<(TargetId, String), Stuck>,
    /// Hosts on which a fill did not go on, each with the target: they get no other copy of it from this MGS.
    unfit: BTreeSet<(TargetId, String)>,
    /// Free bytes of spare hosts, as they told last.
    room: BTreeMap<String, u64>,
}

impl Replicas {
    pub(crate) fn new(now: Mono) -> Replicas {
        let state = State {
            started: now,
            hosts: BTreeMap::new(),
            hindrances: BTreeMap::new(),
            shown: BTreeMap::new(),
            away: BTreeMap::new(),
            stuck: BTreeMap::new(),
            unfit: BTreeSet::new(),
            room: BTreeMap::new(),
        };
        Replicas { state: parking_lot::Mutex::new(state) }
    }

    /// The daemon of a host has told of its members.
    pub(crate) fn told(&self, host: &str, now: Mono, members: Vec<MemberReport>) {
        self.state.lock().hosts.insert(host.to_owned(), Words { at: now, members });
    }

    /// A host is gone.
    pub(crate) fn forget(&self, host: &str) {
        let mut state = self.state.lock();
        state.hosts.remove(host);
        state.room.remove(host);
        state.shown.retain(|(_, from), _| from != host);
    }

    /// A member knows a higher epoch than its row has.
    pub(crate) fn showed(&self, target: TargetId, host: &str, shown: Shown) {
        self.state.lock().shown.insert((target, host.to_owned()), shown);
    }

    /// Reports and shown sets of the members of a set whose row was restored.
    pub(crate) fn words(&self, set: &ReplicaSetState, now: Mono) -> BTreeMap<String, Word> {
        let of = |host: &String| {
            let (heard_ms_ago, report) = self.of(host, set.target, now);
            let is_alive = heard_ms_ago.is_some_and(|ms| ms <= ALIVE_MS);
            let shown = self.state.lock().shown.get(&(set.target, host.clone())).cloned();
            Word { report: report.filter(|_| is_alive), shown }
        };
        set.members.iter().map(|m| (m.host.clone(), of(&m.host))).collect()
    }

    fn was_deaf_for(&self, ms: u64) {
        let mut state = self.state.lock();
        state.started = state.started.plus_ms(ms);
        state.hosts.values_mut().for_each(|words| words.at = words.at.plus_ms(ms));
        state.away.values_mut().for_each(|since| *since = since.plus_ms(ms));
        state.stuck.values_mut().for_each(|stuck| stuck.since = stuck.since.plus_ms(ms));
    }

    /// Time since a host was heard of, in milliseconds, and its report of a target.
    pub(crate) fn of(&self, host: &str, target: TargetId, now: Mono) -> (Option<u64>, Option<MemberReport>) {
        let state = self.state.lock();
        let Some(words) = state.hosts.get(host) else { return (None, None) };
        let report = words.members.iter().find(|report| report.target == target).cloned();
        (Some(now.ms_since(words.at)), report)
    }

    /// Reason why no member serves a set.
    pub(crate) fn hindrance(&self, target: TargetId) -> Option<Fault> {
        self.state.lock().hindrances.get(&target).cloned()
    }

    /// Input of [`step`]: state of each member, as it was heard.
    pub(crate) fn heard(&self, set: &ReplicaSetState, now: Mono) -> BTreeMap<String, Heard> {
        let listened_ms = now.ms_since(self.state.lock().started);
        let of = |host: &String| match self.of(host, set.target, now) {
            (None, _) if listened_ms < GRACE_MS => Heard::Unclear,
            (None, _) => Heard::Dead,
            (Some(ms), _) if ms >= DEAD_MS => Heard::Dead,
            (Some(ms), _) if ms > ALIVE_MS => Heard::Unclear,
            (Some(_), Some(report)) if report.uuid == set.uuid => match report.phase {
                // The member knows more than this MGS: no step follows from rows that are older than the
                // member.
                MemberPhase::Failed(fault) if fault.code == Code::OlderSet => Heard::Unclear,
                MemberPhase::Failed(_) => Heard::Failed,
                _ if report.boot_term == 0 => Heard::Unclear,
                _ => Heard::Alive { boot_term: report.boot_term },
            },
            (Some(_), _) => Heard::Unclear,
        };
        set.members.iter().map(|m| (m.host.clone(), of(&m.host))).collect()
    }

    /// Notes which fills do not go on, as the primary tells.
    fn note_fills(&self, set: &ReplicaSetState, now: Mono) {
        let (_, report) = self.of(&set.primary, set.target, now);
        let mut state = self.state.lock();
        let is_learner = |host: &str| set.member(host).is_some_and(|m| m.role == MemberRole::Learner);
        state.stuck.retain(|(target, host), _| *target != set.target || is_learner(host));
        for fill in report.iter().flat_map(|report| &report.resyncs).filter(|fill| is_learner(&fill.host)) {
            let key = (set.target, fill.host.clone());
            let gets_further =
                |stuck: &Stuck| fill.done_bytes > stuck.done_bytes.saturating_add(HEADWAY_BYTES);
            if state.stuck.get(&key).is_some_and(gets_further) {
                state.stuck.remove(&key);
            }
            if !fill.trouble.is_empty() {
                state.stuck.entry(key).or_insert(Stuck { since: now, done_bytes: fill.done_bytes });
            }
        }
    }

    /// A member was given up. If its fill did not go on, its host gets no other copy of the target.
    fn was_given_up(&self, target: TargetId, host: &str) {
        let mut state = self.state.lock();
        let key = (target, host.to_owned());
        if state.stuck.remove(&key).is_some() {
            state.unfit.insert(key);
        }
    }

    /// A spare host has told its room.
    pub(crate) fn has_room(&self, host: &str, available_bytes: u64) {
        self.state.lock().room.insert(host.to_owned(), available_bytes);
    }

    /// Free bytes of a spare host; 0 where it has not told.
    fn room(&self, host: &str) -> u64 {
        self.state.lock().room.get(host).copied().unwrap_or(0)
    }

    fn is_unfit(&self, target: TargetId, host: &str) -> bool {
        self.state.lock().unfit.contains(&(target, host.to_owned()))
    }

    /// Time for which members of a set have been away or failed, or could not be filled, in milliseconds, as far back as this
    /// MGS has looked.
    fn away_ms(
        &self,
        set: &ReplicaSetState,
        heard: &BTreeMap<String, Heard>,
        now: Mono,
    ) -> BTreeMap<String, u64> {
        let mut state = self.state.lock();
        state.away.retain(|(target, host), _| {
            // A member that restarts again and again is unclear now and then.
            *target != set.target
                || heard.get(host).is_some_and(|heard| !matches!(heard, Heard::Alive { .. }))
        });
        let bad = heard.iter().filter(|(_, heard)| matches!(heard, Heard::Dead | Heard::Failed));
        let away = bad.map(|(host, _)| {
            let since = *state.away.entry((set.target, host.clone())).or_insert(now);
            (host.clone(), now.ms_since(since))
        });
        let mut found: BTreeMap<String, u64> = away.collect();
        for ((_, host), stuck) in state.stuck.iter().filter(|((target, _), _)| *target == set.target) {
            let ms = found.entry(host.clone()).or_default();
            *ms = (*ms).max(now.ms_since(stuck.since));
        }
        found
    }

    /// Whether a member is heard of, under the boot term that the set has it with.
    pub(crate) fn is_well(&self, set: &ReplicaSetState, host: &str, now: Mono) -> bool {
        let wanted = set.member(host).map(|m| Heard::Alive { boot_term: m.boot_term });
        wanted.is_some() && self.heard(set, now).get(host).copied() == wanted
    }

    /// Whether the primary of a set serves, and is heard of.
    pub(crate) fn is_served(&self, set: &ReplicaSetState, now: Mono) -> bool {
        let (heard_ms_ago, report) = self.of(&set.primary, set.target, now);
        heard_ms_ago.is_some_and(|ms| ms <= ALIVE_MS)
            && report.is_some_and(|report| report.phase == MemberPhase::Serving)
    }

    fn note(&self, target: TargetId, hindrance: Option<Fault>) {
        let mut state = self.state.lock();
        match hindrance {
            Some(fault) => {
                if state.hindrances.get(&target).is_none_or(|before| before.why != fault.why) {
                    tracing::error!(code = %fault.code, target_name = %target, "{fault}");
                }
                state.hindrances.insert(target, fault);
            }
            None => drop(state.hindrances.remove(&target)),
        }
    }
}

/// Looks after replica sets for as long as the MGS runs.
pub(crate) async fn watch(mgs: Weak<Mgs>) {
    let mut last = None;
    while let Some(mgs) = mgs.upgrade() {
        let now = mgs.seams.now();
        let pause_ms = last.map_or(0, |last| now.ms_since(last));
        if pause_ms > PAUSE_MS {
            mgs.replicas.was_deaf_for(pause_ms);
        }
        last = Some(now);
        if let Some(hosts) = &mgs.hosts {
            look(&mgs, hosts).await;
        }
        let seams = mgs.seams.clone();
        drop(mgs);
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

async fn look(mgs: &Arc<Mgs>, hosts: &Hosts) {
    let rows = hosts.rows();
    for target in rows.moving().filter(|target| !rows.is_restored(*target)) {
        go_on_moving(mgs, hosts, target).await;
    }
    for target in spare::by_risk(&rows) {
        if rows.is_restored(target) {
            settle(mgs, hosts, target).await;
            continue;
        }
        let judged = |rows: &Rows| match rows.replica_set(target) {
            Some(row) => step(&row.set, &mgs.replicas.heard(&row.set, mgs.seams.now())),
            None => Step::Nothing,
        };
        match judged(&rows) {
            Step::Nothing => {
                mgs.replicas.note(target, None);
                replace(mgs, hosts, target).await;
            }
            Step::Waits(why) => {
                let fault = Fault::new(Code::LastReplicaLost)
                    .subject(mgs.superblock.fs.target(target))
                    .why(why)
                    .data("nothing is lost so far; clients wait");
                mgs.replicas.note(target, Some(fault));
            }
            Step::Change(_) => {
                // Judged again with the rows that the change is made from.
                let decide = |rows: &Rows| -> Result<_> {
                    Ok(match judged(rows) {
                        Step::Change(set) => {
                            (vec![Change::Replicas(Box::new(ReplicaRow { set: set.clone() }))], Some(set))
                        }
                        _ => (Vec::new(), None),
                    })
                };
                match hosts.change(decide).await {
                    Ok((_, Some(set))) => {
                        let in_sync: Vec<&str> = set.in_sync().map(|m| m.host.as_str()).collect();
                        tracing::warn!(
                            target_name = %mgs.superblock.fs.target(target), primary = %set.primary,
                            epoch = set.epoch, term = set.term, in_sync = in_sync.join(","),
                            "a replica set changes"
                        );
                    }
                    Ok((_, None)) => {}
                    Err(fault) => mgs.replicas.note(target, Some(fault)),
                }
            }
        }
    }
}

/// Takes the next step of a move of a copy, if there is one to take.
async fn go_on_moving(mgs: &Arc<Mgs>, hosts: &Hosts, target: TargetId) {
    let next = |rows: &Rows| {
        let now = mgs.seams.now();
        let seen = moving::Seen {
            is_served: &|set| mgs.replicas.is_served(set, now),
            is_well: &|set, host| mgs.replicas.is_well(set, host, now),
        };
        moving::next(rows, target, &seen)
    };
    if next(&hosts.rows()).is_none() {
        return;
    }
    let decide = |rows: &Rows| -> Result<_> {
        Ok(match next(rows) {
            Some((what, changes)) => (changes, Some(what)),
            None => (Vec::new(), None),
        })
    };
    match hosts.change(decide).await {
        Ok((true, Some(what))) => {
            tracing::warn!(target_name = %mgs.superblock.fs.target(target), "a copy moves to another host: {what}");
        }
        Ok(_) => {}
        Err(fault) => tracing::warn!(code = %fault.code, "cannot go on moving a copy: {fault}"),
    }
}

/// Gives up a member that has been away for too long, where a spare host can have its copy.
async fn replace(mgs: &Arc<Mgs>, hosts: &Hosts, target: TargetId) {
    let found = |rows: &Rows| {
        let set = &rows.replica_set(target)?.set;
        let now = mgs.seams.now();
        mgs.replicas.note_fills(set, now);
        let away_ms = mgs.replicas.away_ms(set, &mgs.replicas.heard(set, now), now);
        if rows.spares().len() == 0 || !mgs.replicas.is_served(set, now) {
            return None;
        }
        let is_heard = |host: &str| hosts.heard.lock().of(host, now).0.is_some_and(|ms| ms <= SPARE_ALIVE_MS);
        let is_alive = |host: &str| is_heard(host) && !mgs.replicas.is_unfit(target, host);
        spare::replaced(
            rows,
            &mgs.store.current(),
            set,
            &spare::Seen { away_ms: &away_ms, is_alive: &is_alive, room: &|host| mgs.replicas.room(host) },
        )
    };
    if found(&hosts.rows()).is_none() {
        return;
    }
    let decide = |rows: &Rows| -> Result<_> {
        Ok(match found(rows) {
            Some((replacement, change)) => (vec![change], Some(replacement)),
            None => (Vec::new(), None),
        })
    };
    match hosts.change(decide).await {
        Ok((true, Some(spare::Replacement { lost, place }))) => {
            mgs.replicas.was_given_up(target, &lost);
            tracing::warn!(
                target_name = %mgs.superblock.fs.target(target), lost, host = place.host, dir = place.dir,
                "a copy was away for too long, or could not be filled: it is made anew on a spare host"
            );
        }
        Ok(_) => {}
        Err(fault) => tracing::warn!(code = %fault.code, "cannot give a lost copy to a spare host: {fault}"),
    }
}

/// Finds out how a set stands whose row was restored.
async fn settle(mgs: &Arc<Mgs>, hosts: &Hosts, target: TargetId) {
    let decide = |rows: &Rows| -> Result<_> {
        let Some(row) = rows.replica_set(target).filter(|_| rows.is_restored(target)) else {
            return Ok((Vec::new(), None));
        };
        let words = mgs.replicas.words(&row.set, mgs.seams.now());
        match restored::set(&row.set, &words, mgs.seams.wall().secs) {
            Settled::Waits(fault) => Err(fault.subject(mgs.superblock.fs.target(target))),
            Settled::AsItWas => Ok((vec![Change::NotRestored(target)], Some(row.set.clone()))),
            Settled::Becomes(set) => {
                let changes = vec![
                    Change::Replicas(Box::new(ReplicaRow { set: set.clone() })),
                    Change::NotRestored(target),
                ];
                Ok((changes, Some(set)))
            }
        }
    };
    match hosts.change(decide).await {
        Ok((true, Some(set))) => {
            mgs.replicas.note(target, None);
            tracing::warn!(
                target_name = %mgs.superblock.fs.target(target), primary = %set.primary, epoch = set.epoch,
                "all members have shown what they have: the restored row counts from now on"
            );
        }
        Ok(_) => {}
        Err(fault) => mgs.replicas.note(target, Some(fault)),
    }
}

#[cfg(test)]
mod tests {
    use brindle_wire::mgs::replica::{ReplicaMember, Resync};

    use super::*;

    fn set() -> ReplicaSetState {
        let member = |host: &str, role| ReplicaMember {
            host: host.to_owned(),
            dir: "/data".to_owned(),
            is_formatted: true,
            role,
            boot_term: 1,
            recorded_epoch: 1,
            nids: Vec::new(),
        };
        let members = vec![member("a", MemberRole::InSync), member("s1", MemberRole::Learner)];
        let (target, primary) = (TargetId::ost(3), "a".to_owned());
        ReplicaSetState { target, uuid: [7; 16], epoch: 5, term: 1, port: 9884, primary, members }
    }

    fn report(set: &ReplicaSetState, phase: MemberPhase, resyncs: Vec<Resync>) -> MemberReport {
        let (target, uuid, epoch) = (set.target, set.uuid, set.epoch);
        MemberReport {
            target,
            uuid,
            epoch,
            is_formatted: true,
            boot_term: 1,
            recorded_epoch: epoch,
            nids: Vec::new(),
            phase,
            resyncs,
            mended_blocks: 0,
        }
    }

    /// Time for which the copy on the spare host counts as away, after each report of the primary: the bytes that were compared, and the trouble.
    fn away_ms(told: &[(u64, &str)]) -> Vec<Option<u64>> {
        let (set, mut now) = (set(), Mono(0).plus_ms(100_000));
        let replicas = Replicas::new(now);
        let mut found = Vec::new();
        for (done_bytes, trouble) in told {
            now = now.plus_ms(1_000);
            let (host, trouble) = ("s1".to_owned(), (*trouble).to_owned());
            let (total_bytes, copied_bytes, running_ms) = (1 << 40, *done_bytes, 1_000);
            let fill =
                Resync { host, done_bytes: *done_bytes, total_bytes, copied_bytes, running_ms, trouble };
            replicas.told("a", now, vec![report(&set, MemberPhase::Serving, vec![fill])]);
            replicas.told("s1", now, vec![report(&set, MemberPhase::Following, Vec::new())]);
            replicas.note_fills(&set, now);
            let away_ms = replicas.away_ms(&set, &replicas.heard(&set, now), now);
            found.push(away_ms.get("s1").copied());
        }
        found
    }

    #[test]
    fn a_copy_that_finds_no_room_counts_as_away() {
        let full = (1 << 30, "no space is left");
        let again = (1 << 20, "");
        assert_eq!(
            away_ms(&[again, full, again, full, again]),
            [None, Some(0), Some(1_000), Some(2_000), Some(3_000)]
        );
    }

    #[test]
    fn a_copy_that_is_filled_slowly_or_after_a_failure_does_not() {
        assert_eq!(away_ms(&[(1 << 20, ""), (2 << 20, ""), (3 << 20, "")]), [None; 3]);
        assert_eq!(
            away_ms(&[(1 << 30, "no answer"), (1 << 20, ""), (2 << 30, ""), (3 << 30, "")]),
            [Some(0), Some(1_000), None, None]
        );
    }

    #[test]
    fn a_host_without_room_gets_no_other_copy_of_the_target() {
        let (set, now) = (set(), Mono(0));
        let replicas = Replicas::new(now);
        replicas.was_given_up(set.target, "b");
        assert!(!replicas.is_unfit(set.target, "b"), "it was away, and may come back");
        let (host, trouble) = ("s1".to_owned(), "no space is left".to_owned());
        let fill = Resync { host, done_bytes: 1, total_bytes: 2, copied_bytes: 1, running_ms: 1, trouble };
        replicas.told("a", now, vec![report(&set, MemberPhase::Serving, vec![fill])]);
        replicas.note_fills(&set, now);
        replicas.was_given_up(set.target, "s1");
        assert!(replicas.is_unfit(set.target, "s1") && !replicas.is_unfit(TargetId::ost(4), "s1"));
    }
}
