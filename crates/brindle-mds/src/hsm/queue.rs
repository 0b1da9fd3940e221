//! The actions in memory: in the order in which they are given out, and with the agents that have them. Rebuilt from the rows when the MDT
//! starts.
//!
//! Restores come before removes, those before archives; within a kind users take turns, and the requests of one user keep their order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use brindle_stdx::Mono;
use brindle_stdx::cast::len_u32;
use brindle_types::{Code, Fault, HsmControl, HsmKind, Ino, Pair, Result};
use brindle_wire::mds::hsm::{HsmAction, HsmAgent, HsmAttempt, HsmStatus};
use brindle_wire::mds::hsm_span::HsmDivided;

use super::divided::Divided;
use super::extents::Restoring;
use crate::store::Rows;
use crate::store::hsm::{self as rows, Action};

/// Most actions that are queued or under way.
pub const QUEUED_MAX: usize = 1 << 18;
/// Most actions other than restores. Programs wait for restores, so the rest of the queue is theirs.
pub const QUEUED_PATIENT_MAX: usize = QUEUED_MAX / 4 * 3;
/// Actions that have ended and can still be looked at.
const FINISHED_MAX: usize = 256;
/// Agents that are known at once.
const AGENTS_MAX: usize = 1024;
/// Actions of a user that are passed over because they are for another archive, in one look.
const PASSED_MAX: usize = 256;

/// An agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Host of the agent.
    pub host: String,
    /// Archives that it serves; none for any.
    pub archives: Vec<u32>,
    /// Time at which the agent was heard last, by the clock of [`crate::hearing`].
    pub heard: Mono,
    /// Actions that went well.
    pub ok: u64,
    /// Actions that failed.
    pub errors: u64,
    /// Whether the agent has asked since the MDT started. Other agents are known only from their attempts in the
    /// rows.
    pub has_asked: bool,
}

/// The actions.
#[derive(Default)]
pub struct Queue {
    /// Any file has a state or an action, or had one since the MDT started.
    pub is_used: bool,
    /// Whether actions are given out.
    pub control: HsmControl,
    /// The actions, as their rows are.
    pub actions: BTreeMap<Ino, Action>,
    /// The agents.
    pub agents: BTreeMap<[u8; 16], Agent>,
    waiting: BTreeMap<HsmKind, BTreeMap<u32, BTreeMap<Pair, Ino>>>,
    running: BTreeMap<Ino, Pair>,
    /// Time at which the agent of a running action was told of it, or will have been at the latest.
    told: BTreeMap<Ino, Mono>,
    /// The user who had the last turn.
    turn: BTreeMap<HsmKind, u32>,
    moved_bytes: BTreeMap<Ino, u64>,
    /// Extents of files that are being restored.
    pub(super) restoring: BTreeMap<Ino, Restoring>,
    /// Files that several agents work on.
    pub(super) divided: BTreeMap<Ino, Divided>,
    /// Divided files whose actions ended a moment ago.
    pub(super) ended_divided: VecDeque<HsmDivided>,
    finished: VecDeque<HsmAction>,
    /// Actions that went well since the MDT started.
    pub succeeded: u64,
    /// Actions that failed since the MDT started.
    pub failed: u64,
}

impl Queue {
    /// The actions as the rows have them. Actions that were under way may still be: their agents have a lease
    /// from now on.
    pub fn load(from: &(impl Rows + ?Sized), now: Mono) -> Result<Queue> {
        let mut queue =
            Queue { is_used: rows::is_used(from)?, control: rows::control(from)?, ..Queue::default() };
        for (ino, action) in rows::actions(from)? {
            queue.is_used = true;
            queue.put(ino, action);
            if let Some(running) = action.running {
                queue.told.insert(ino, now);
                queue.agents.entry(running.agent).or_insert(Agent {
                    host: String::new(),
                    archives: Vec::new(),
                    heard: now,
                    ok: 0,
                    errors: 0,
                    has_asked: false,
                });
            }
        }
        Ok(queue)
    }

    /// Queues an action, or changes it.
    pub fn put(&mut self, ino: Ino, action: Action) {
        self.take_out(ino);
        self.is_used = true;
        match &action.running {
            Some(running) => _ = self.running.insert(ino, running.attempt),
            None => {
                let of_kind = self.waiting.entry(action.kind).or_default();
                of_kind.entry(action.uid).or_default().insert(action.cookie, ino);
            }
        }
        self.actions.insert(ino, action);
    }

    fn take_out(&mut self, ino: Ino) -> Option<Action> {
        let action = self.actions.remove(&ino)?;
        self.end_attempt(ino);
        self.end_divided(ino, false);
        self.running.remove(&ino);
        self.told.remove(&ino);
        self.moved_bytes.remove(&ino);
        if let Some(of_kind) = self.waiting.get_mut(&action.kind)
            && let Some(of_user) = of_kind.get_mut(&action.uid)
        {
            of_user.remove(&action.cookie);
            if of_user.is_empty() {
                of_kind.remove(&action.uid);
            }
        }
        Some(action)
    }

    /// An action has ended.
    pub fn end(&mut self, ino: Ino, status: HsmStatus) {
        let moved_bytes = self.moved_bytes(ino);
        self.end_divided(ino, true);
        let Some(action) = self.take_out(ino) else { return };
        self.restoring.remove(&ino);
        match status {
            HsmStatus::Succeeded => self.succeeded += 1,
            HsmStatus::Failed(_) => self.failed += 1,
            _ => {}
        }
        if let Some(agent) = action.running.and_then(|running| self.agents.get_mut(&running.agent)) {
            match status {
                HsmStatus::Succeeded => agent.ok += 1,
                HsmStatus::Failed(_) => agent.errors += 1,
                _ => {}
            }
        }
        if self.finished.len() >= FINISHED_MAX {
            self.finished.pop_front();
        }
        self.finished.push_back(shown(ino, &action, moved_bytes, status));
    }

    /// Actions of a kind that no agent has.
    pub fn waiting(&self, kind: HsmKind) -> usize {
        self.waiting.get(&kind).map_or(0, |of_kind| of_kind.values().map(BTreeMap::len).sum())
    }

    /// Actions that an agent has.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Time at which the oldest action without an agent was asked for, in seconds since 1970.
    pub fn oldest_waiting_s(&self) -> Option<i64> {
        let lines = self.waiting.values().flat_map(BTreeMap::values);
        let first = lines.filter_map(|line| line.values().next());
        first.filter_map(|ino| self.actions.get(ino)).map(|action| action.asked.secs).min()
    }

    /// Agents that have asked for work since the MDT started and are not silent.
    pub fn working_agents(&self) -> usize {
        self.agents.values().filter(|agent| agent.has_asked).count()
    }

    /// Whether one more action may be queued.
    pub fn has_room(&self, kind: HsmKind) -> bool {
        let most = if kind == HsmKind::Restore { QUEUED_MAX } else { QUEUED_PATIENT_MAX };
        self.actions.len() < most
    }

    /// Whether an agent that serves these archives would be given anything.
    pub fn has_work(&self, archives: &[u32]) -> bool {
        !self.pick(archives, 1).is_empty()
    }

    /// The next actions for an agent that serves these archives.
    pub fn pick(&self, archives: &[u32], most: usize) -> Vec<Ino> {
        let mut picked = Vec::new();
        if self.control != HsmControl::Enabled {
            return picked;
        }
        let is_served = |ino: &&Ino| {
            let archive = self.actions.get(*ino).map(|action| action.archive);
            archives.is_empty() || archive.is_some_and(|archive| archives.contains(&archive))
        };
        for (kind, of_kind) in &self.waiting {
            let last = self.turn.get(kind).copied().unwrap_or(u32::MAX);
            let users =
                of_kind.range((Bound::Excluded(last), Bound::Unbounded)).chain(of_kind.range(..=last));
            let mut lines: Vec<_> =
                users.map(|(_, line)| line.values().take(PASSED_MAX + most).filter(is_served)).collect();
            // Each user gets one action in turn, until there are none left.
            while picked.len() < most {
                let before = picked.len();
                for line in &mut lines {
                    if picked.len() < most {
                        picked.extend(line.next());
                    }
                }
                if picked.len() == before {
                    break;
                }
            }
        }
        picked
    }

    /// A user has had a turn.
    pub fn had_turn(&mut self, kind: HsmKind, uid: u32) {
        self.turn.insert(kind, uid);
    }

    /// An agent has said something. `Overloaded` where there are too many others.
    pub fn heard(&mut self, agent: [u8; 16], host: &str, archives: &[u32], now: Mono) -> Result<()> {
        if self.agents.len() >= AGENTS_MAX && !self.agents.contains_key(&agent) {
            let why = format!("there are {AGENTS_MAX} agents already");
            return Err(Fault::new(Code::Overloaded).what("cannot serve an archive").why(why));
        }
        let entry = self.agents.entry(agent).or_insert_with(|| Agent {
            host: host.to_owned(),
            archives: archives.to_vec(),
            heard: now,
            ok: 0,
            errors: 0,
            has_asked: true,
        });
        entry.heard = now;
        entry.has_asked = true;
        host.clone_into(&mut entry.host);
        archives.clone_into(&mut entry.archives);
        Ok(())
    }

    /// An agent keeps its lease. `false`: it is not known.
    pub fn keeps(&mut self, agent: [u8; 16], now: Mono) -> bool {
        self.agents.get_mut(&agent).map(|known| known.heard = now).is_some()
    }

    /// Whether this is the attempt at a file's action that is under way.
    pub(super) fn is_running(&self, at: &HsmAttempt) -> bool {
        self.running.get(&at.ino) == Some(&at.attempt)
    }

    /// Notes how many bytes an attempt has copied. `false`: it was given up.
    pub fn progress(&mut self, ino: Ino, attempt: Pair, moved_bytes: u64) -> bool {
        let is_running = self.running.get(&ino) == Some(&attempt);
        if is_running {
            self.moved_bytes.insert(ino, moved_bytes);
        }
        is_running
    }

    /// Bytes that the attempt at a file's action has copied.
    pub fn moved_bytes(&self, ino: Ino) -> u64 {
        self.moved_bytes.get(&ino).copied().unwrap_or(0)
    }

    /// An agent has been told of an attempt, or will have been by that time.
    pub fn told(&mut self, at: &HsmAttempt, when: Mono) {
        if self.running.get(&at.ino) == Some(&at.attempt) {
            self.told.insert(at.ino, when);
        }
    }

    /// Agents whose lease is over, and agents that have actions but are not known.
    pub fn silent_agents(&self, now: Mono, lease_ms: u64) -> Vec<[u8; 16]> {
        let silent = self.agents.iter().filter(|(_, agent)| now.ms_since(agent.heard) > lease_ms);
        let holders = self.running.keys().filter_map(|ino| self.actions.get(ino)?.running);
        let unknown = holders.map(|running| running.agent).filter(|agent| !self.agents.contains_key(agent));
        silent.map(|(number, _)| *number).chain(unknown).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Attempts given to an agent more than a lease ago that it does not work on: the answer with them was lost.
    pub fn unheard_of(
        &self,
        agent: [u8; 16],
        works_on: &BTreeSet<HsmAttempt>,
        now: Mono,
        lease_ms: u64,
    ) -> Vec<(Ino, Pair)> {
        let mut held = self.held_by(agent);
        held.retain(|(ino, attempt)| {
            let is_old = self.told.get(ino).is_some_and(|told| now.ms_since(*told) > lease_ms);
            is_old && !works_on.contains(&HsmAttempt { ino: *ino, attempt: *attempt })
        });
        held
    }

    /// Attempts that an agent has.
    pub fn held_by(&self, agent: [u8; 16]) -> Vec<(Ino, Pair)> {
        let held = self.running.iter().filter(|(ino, _)| {
            self.actions.get(ino).and_then(|action| action.running).is_some_and(|r| r.agent == agent)
        });
        held.map(|(ino, attempt)| (*ino, *attempt)).collect()
    }

    /// Forgets an agent that has gone, unless it still has an attempt.
    pub fn forget_agent(&mut self, agent: [u8; 16]) {
        if self.held_by(agent).is_empty() {
            self.agents.remove(&agent);
        }
    }

    /// Whether an agent serves an archive.
    pub fn is_served(&self, archive: u32) -> bool {
        self.agents
            .values()
            .any(|agent| agent.has_asked && (agent.archives.is_empty() || agent.archives.contains(&archive)))
    }

    /// The outcome of an action that has ended a moment ago.
    pub fn outcome(&self, ino: Ino, cookie: Pair) -> Option<&HsmStatus> {
        let ended = self.finished.iter().rev().find(|ended| ended.ino == ino && ended.cookie == cookie);
        ended.map(|ended| &ended.status)
    }

    /// The agents, for people.
    pub fn shown_agents(&self) -> Vec<HsmAgent> {
        let has_asked = self.agents.iter().filter(|(_, agent)| agent.has_asked);
        has_asked
            .map(|(number, agent)| HsmAgent {
                agent: *number,
                host: agent.host.clone(),
                archives: agent.archives.clone(),
                current: len_u32(self.held_by(*number).len()),
                ok: agent.ok,
                errors: agent.errors,
            })
            .collect()
    }

    /// Actions behind a file, for people.
    pub fn shown_actions(&self, behind: Option<Ino>, most: usize) -> Vec<HsmAction> {
        let start = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let actions = self.actions.range((start, Bound::Unbounded)).take(most);
        actions
            .map(|(ino, action)| {
                let status = if action.running.is_some() { HsmStatus::Started } else { HsmStatus::Waiting };
                shown(*ino, action, self.moved_bytes(*ino), status)
            })
            .collect()
    }

    /// Actions that have ended a moment ago.
    pub fn shown_finished(&self) -> Vec<HsmAction> {
        self.finished.iter().cloned().collect()
    }

    /// Files with an action, in order.
    pub fn files(&self, most: usize) -> BTreeSet<Ino> {
        self.actions.keys().take(most).copied().collect()
    }
}

fn shown(ino: Ino, action: &Action, moved_bytes: u64, status: HsmStatus) -> HsmAction {
    HsmAction {
        ino,
        cookie: action.cookie,
        kind: action.kind,
        archive: action.archive,
        uid: action.uid,
        asked_secs: action.asked.secs,
        moved_bytes,
        status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::attr::Time;

    fn action(kind: HsmKind, uid: u32, number: u64) -> Action {
        let cookie = Pair { term: 1, counter: number };
        let asked = Time { secs: 0, nanos: 0 };
        Action { kind, archive: 1 + uid % 2, uid, cookie, asked, running: None, lost_attempts: 0 }
    }

    fn order(queue: &Queue, archives: &[u32], most: usize) -> Vec<u64> {
        queue.pick(archives, most).iter().map(|ino| ino.0).collect()
    }

    #[test]
    fn what_waits_is_counted_by_kind_with_the_age_of_the_oldest() {
        let mut queue = Queue::default();
        assert_eq!((queue.waiting(HsmKind::Archive), queue.oldest_waiting_s()), (0, None));
        for (ino, uid, secs) in [(1, 7, 300), (2, 7, 100), (3, 8, 200)] {
            let asked = Time { secs, nanos: 0 };
            queue.put(Ino(ino), Action { asked, ..action(HsmKind::Archive, uid, ino) });
        }
        // Within a user's line the first one is the oldest, unless the clock was set back.
        assert_eq!((queue.waiting(HsmKind::Archive), queue.oldest_waiting_s()), (3, Some(200)));
        assert_eq!((queue.waiting(HsmKind::Restore), queue.running(), queue.working_agents()), (0, 0, 0));
        queue.end(Ino(3), HsmStatus::Succeeded);
        queue.end(Ino(3), HsmStatus::Succeeded);
        queue.end(Ino(1), HsmStatus::Failed(brindle_types::Fault::new(brindle_types::Code::Bug)));
        assert_eq!((queue.waiting(HsmKind::Archive), queue.succeeded, queue.failed), (1, 1, 1));
        assert_eq!(queue.oldest_waiting_s(), Some(100));
    }

    #[test]
    fn restores_come_first_and_users_take_turns() {
        let mut queue = Queue::default();
        for (ino, kind, uid) in [
            (1, HsmKind::Archive, 7),
            (2, HsmKind::Archive, 7),
            (3, HsmKind::Archive, 7),
            (4, HsmKind::Archive, 8),
            (5, HsmKind::Remove, 7),
            (6, HsmKind::Restore, 9),
        ] {
            queue.put(Ino(ino), action(kind, uid, ino));
        }
        assert_eq!(order(&queue, &[], 10), [6, 5, 1, 4, 2, 3]);
        assert_eq!(order(&queue, &[1], 10), [4], "of user 8 only");
        queue.had_turn(HsmKind::Archive, 7);
        queue.end(Ino(6), HsmStatus::Succeeded);
        queue.end(Ino(5), HsmStatus::Succeeded);
        assert_eq!(order(&queue, &[], 3), [4, 1, 2], "user 7 has had a turn");
        queue.control = HsmControl::Disabled;
        assert!(order(&queue, &[], 3).is_empty());
    }

    #[test]
    fn a_user_with_a_long_line_for_another_archive_holds_nobody_up() {
        let mut queue = Queue::default();
        (0..1000).for_each(|n| queue.put(Ino(n), action(HsmKind::Archive, 7, n)));
        queue.put(Ino(5000), action(HsmKind::Archive, 8, 5000));
        assert_eq!(order(&queue, &[1], 5), [5000]);
    }

    #[test]
    fn whoever_has_an_action_and_is_not_known_counts_as_silent() {
        let mut queue = Queue::default();
        let number = Pair { term: 1, counter: 9 };
        let running =
            Some(crate::store::hsm::Running { attempt: number, agent: [3; 16], data_version: number });
        queue.put(Ino(1), Action { running, ..action(HsmKind::Archive, 7, 1) });
        queue.put(Ino(2), Action { running, ..action(HsmKind::Archive, 7, 2) });
        assert_eq!(queue.silent_agents(Mono::default(), 10), [[3; 16]]);
        queue.heard([3; 16], "h", &[], Mono::default()).expect("there is room");
        assert!(queue.silent_agents(Mono::default(), 10).is_empty());
    }

    #[test]
    fn there_is_always_room_for_some_restores() {
        let mut queue = Queue::default();
        (0..QUEUED_PATIENT_MAX as u64).for_each(|n| queue.put(Ino(n), action(HsmKind::Archive, 1, n)));
        assert!(!queue.has_room(HsmKind::Archive) && !queue.has_room(HsmKind::Remove));
        assert!(queue.has_room(HsmKind::Restore));
    }
}
