//! Latest reports of daemons about shared targets: volatile. Silence is measured here, and only while this
//! MGS could hear.

use std::collections::BTreeMap;
use std::mem::discriminant;

use brindle_stdx::Mono;
use brindle_types::TargetId;
use brindle_wire::mgs::shared::SharedReport;

use super::failover::DEAD_MS;

/// A target on a host, and since when it is in its present kind of state there, without a silence in between.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) report: SharedReport,
    pub(crate) since: Mono,
}

#[derive(Clone, Debug)]
struct Words {
    at: Mono,
    targets: BTreeMap<TargetId, Told>,
}

/// Last words of all daemons.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    started: Mono,
    hosts: BTreeMap<String, Words>,
}

impl Listening {
    /// Table without hosts: none has been heard of yet.
    pub(crate) fn new(started: Mono) -> Listening {
        Listening { started, hosts: BTreeMap::new() }
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
        let told = |report: SharedReport| (report.target, Told { since: since(&report), report });
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
        for words in self.hosts.values_mut() {
            words.at = words.at.plus_ms(ms);
            words.targets.values_mut().for_each(|told| told.since = told.since.plus_ms(ms));
        }
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
    pub(crate) fn of(&self, host: &str, target: TargetId) -> Option<&Told> {
        self.hosts.get(host)?.targets.get(&target)
    }
}
