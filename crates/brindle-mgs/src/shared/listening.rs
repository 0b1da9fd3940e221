//! Latest reports of daemons about shared targets: volatile. Silence is measured here, and only while this
//! MGS could hear.

use std::collections::BTreeMap;
use std::mem::discriminant;

use brindle_stdx::Mono;
use brindle_types::TargetId;
use brindle_wire::mgs::shared::{SharedPhase, SharedReport, SharedTarget};

use super::failover::{ALIVE_MS, DEAD_MS};

/// A target on a host, and since when it is in its present kind of state there, without a silence in between.
#[derive(Clone, Debug)]
pub(crate) struct StateSince {
    pub(crate) report: SharedReport,
    pub(crate) since: Mono,
}

#[derive(Clone, Debug)]
struct Words {
    at: Mono,
    targets: BTreeMap<TargetId, StateSince>,
}

/// Orders of a target, and since when its hosts are told so.
#[derive(Clone, Debug)]
struct Ordered {
    turn: u64,
    phase: SharedPhase,
    since: Mono,
}

/// Last words of all daemons.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    started: Mono,
    hosts: BTreeMap<String, Words>,
    /// Whether none of several hosts was heard at the last look.
    was_deaf: bool,
    orders: BTreeMap<TargetId, Ordered>,
}

impl Listening {
    /// Table without hosts: none has been heard of yet.
    pub(crate) fn new(started: Mono) -> Listening {
        Listening { started, hosts: BTreeMap::new(), was_deaf: false, orders: BTreeMap::new() }
    }

    /// The daemon of a host has told of its targets.
    pub(crate) fn told(&mut self, host: &str, now: Mono, reports: Vec<SharedReport>) {
        let before = self.hosts.remove(host);
        // The state of a target is unknown for the time in which its host was away.
        let before = before.filter(|words| now.ms_since(words.at) < DEAD_MS);
        let since = |report: &SharedReport| {
            let earlier = before.as_ref().and_then(|words| words.targets.get(&report.target));
            let same = earlier.filter(|told| {
                told.report.turn == report.turn
                    && discriminant(&told.report.state) == discriminant(&report.state)
            });
            same.map_or(now, |told| told.since)
        };
        let told = |report: SharedReport| (report.target, StateSince { since: since(&report), report });
        let targets = reports.into_iter().map(told).collect();
        self.hosts.insert(host.to_owned(), Words { at: now, targets });
    }

    /// A host is gone.
    pub(crate) fn forget(&mut self, host: &str) {
        self.hosts.remove(host);
    }

    /// Adds `ms` during which this MGS could hear no host: the time does not count as their silence.
    pub(crate) fn was_deaf_for(&mut self, ms: u64) {
        self.started = self.started.plus_ms(ms);
        self.orders.values_mut().for_each(|ordered| ordered.since = ordered.since.plus_ms(ms));
        for words in self.hosts.values_mut() {
            words.at = words.at.plus_ms(ms);
            words.targets.values_mut().for_each(|told| told.since = told.since.plus_ms(ms));
        }
    }

    /// Whether none of several hosts is heard: then this MGS is rather the one that is cut off.
    pub(crate) fn is_deaf(&self, others: &[String], now: Mono) -> bool {
        let is_alive = |host: &String| self.heard_ms_ago(host, now).is_some_and(|ms| ms <= ALIVE_MS);
        others.len() > 1 && !others.iter().any(is_alive)
    }

    /// Checks whether this MGS is deaf. When it hears again, the time of grace begins anew: hosts come back one after the other.
    pub(crate) fn look(&mut self, others: &[String], now: Mono) {
        let is_deaf = self.is_deaf(others, now);
        if self.was_deaf && !is_deaf {
            self.started = now;
            self.hosts.retain(|_, words| now.ms_since(words.at) <= ALIVE_MS);
        }
        self.was_deaf = is_deaf;
    }

    /// Notes what the hosts of a target are told now.
    pub(crate) fn ordered(&mut self, t: &SharedTarget, now: Mono) {
        let is_so = |known: &Ordered| known.turn == t.turn && known.phase == t.phase;
        if !self.orders.get(&t.target).is_some_and(is_so) {
            let ordered = Ordered { turn: t.turn, phase: t.phase.clone(), since: now };
            self.orders.insert(t.target, ordered);
        }
    }

    /// Forgets the orders of targets that are shared no more.
    pub(crate) fn keep_orders(&mut self, is_shared: impl Fn(TargetId) -> bool) {
        self.orders.retain(|target, _| is_shared(*target));
    }

    /// Time for which the hosts of a target have been told what they are told now, in milliseconds.
    pub(crate) fn ordered_ms(&self, t: &SharedTarget, now: Mono) -> u64 {
        let ordered = self.orders.get(&t.target).filter(|o| o.turn == t.turn && o.phase == t.phase);
        ordered.map_or(0, |ordered| now.ms_since(ordered.since))
    }

    /// Time since the daemon of a host was heard of; `None`: not since the MGS has started.
    pub(crate) fn heard_ms_ago(&self, host: &str, now: Mono) -> Option<u64> {
        self.hosts.get(host).map(|words| now.ms_since(words.at))
    }

    /// Time for which this MGS has listened, in milliseconds.
    pub(crate) fn listened_ms(&self, now: Mono) -> u64 {
        now.ms_since(self.started)
    }

    /// Report of a host about a target.
    pub(crate) fn of(&self, host: &str, target: TargetId) -> Option<&StateSince> {
        self.hosts.get(host)?.targets.get(&target)
    }
}
