//! Latest reports of the daemons of hosts: volatile, like the liveness of targets.

use std::collections::BTreeMap;

use brindle_stdx::Mono;
use brindle_wire::mgs::hosts::HostedTarget;

/// Last words of a host's daemon.
#[derive(Clone, Debug, Default)]
struct Words {
    at: Option<Mono>,
    software: String,
    targets: Vec<HostedTarget>,
}

/// Last words of all daemons.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    hosts: BTreeMap<String, Words>,
}

impl Heard {
    /// The daemon of a host has asked for something.
    pub(crate) fn asked(&mut self, host: &str, now: Mono) {
        self.hosts.entry(host.to_owned()).or_default().at = Some(now);
    }

    /// The daemon of a host has told of its targets.
    pub(crate) fn told(&mut self, host: &str, now: Mono, software: String, targets: Vec<HostedTarget>) {
        self.hosts.insert(host.to_owned(), Words { at: Some(now), software, targets });
    }

    /// A host is gone.
    pub(crate) fn forget(&mut self, host: &str) {
        self.hosts.remove(host);
    }

    /// Time since the daemon was heard of, in milliseconds; its release; its targets.
    pub(crate) fn of(&self, host: &str, now: Mono) -> (Option<u64>, String, Vec<HostedTarget>) {
        let words = self.hosts.get(host).cloned().unwrap_or_default();
        (words.at.map(|at| now.ms_since(at)), words.software, words.targets)
    }
}
