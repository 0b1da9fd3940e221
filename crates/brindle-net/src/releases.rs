//! Releases at the other ends of a server's connections, for administrators who upgrade hosts.

use std::collections::BTreeMap;

use brindle_wire::mds::session::{RELEASES_MAX, ReleaseCount};
use parking_lot::Mutex;

/// Longest name of a release that is kept, in bytes.
const NAME_MAX: usize = 64;
/// Name for all releases beyond [`RELEASES_MAX`].
const OTHERS: &str = "others";

/// Connections by release and version of the protocol.
#[derive(Default)]
pub(crate) struct Releases {
    counts: Mutex<BTreeMap<(String, u16), u32>>,
}

fn shown(software: &str) -> String {
    software.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect()
}

impl Releases {
    /// A connection was accepted.
    pub(crate) fn came(&self, software: &str, protocol: u16) {
        let mut counts = self.counts.lock();
        let mut key = (shown(software), protocol);
        if !counts.contains_key(&key) && counts.len() >= RELEASES_MAX - 1 {
            key = (OTHERS.to_owned(), 0);
        }
        *counts.entry(key).or_default() += 1;
    }

    /// An accepted connection has ended.
    pub(crate) fn left(&self, software: &str, protocol: u16) {
        let mut counts = self.counts.lock();
        let mut key = (shown(software), protocol);
        if !counts.contains_key(&key) {
            key = (OTHERS.to_owned(), 0);
        }
        if let Some(count) = counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&key);
            }
        }
    }

    /// The counts.
    pub(crate) fn list(&self) -> Vec<ReleaseCount> {
        let counts = self.counts.lock();
        let release = |((software, protocol), n): (&(String, u16), &u32)| ReleaseCount {
            software: software.clone(),
            protocol: *protocol,
            connections: *n,
        };
        counts.iter().map(release).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_release_and_nothing_grows_without_bound() {
        let releases = Releases::default();
        releases.came("brindle 0.2.0", 2);
        releases.came("brindle 0.2.0", 2);
        releases.came("brindle 0.3.0", 3);
        releases.left("brindle 0.2.0", 2);
        let count = |software: &str, protocol, connections| ReleaseCount {
            software: software.to_owned(),
            protocol,
            connections,
        };
        assert_eq!(releases.list(), [count("brindle 0.2.0", 2, 1), count("brindle 0.3.0", 3, 1)]);
        (0..1000).for_each(|n| releases.came(&format!("strange {n}"), 3));
        assert_eq!(releases.list().len(), RELEASES_MAX);
        let all: u32 = releases.list().iter().map(|release| release.connections).sum();
        assert_eq!(all, 1002);
        (0..1000).for_each(|n| releases.left(&format!("strange {n}"), 3));
        releases.left("brindle 0.2.0", 2);
        releases.left("brindle 0.3.0", 3);
        assert_eq!(releases.list(), []);
    }
}
