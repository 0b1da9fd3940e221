//! Deltas: the changes from one version of the map to a later one.
//!
//! The MGS sends a delta to a caller that has one of the versions that the MGS remembers, and the whole map to all
//! others.

use std::collections::BTreeMap;

use brindle_types::{PoolName, TargetId};
use serde::{Deserialize, Serialize};

use super::{HostEntry, Map, Network, Pool, RemovedTarget, TargetEntry, TargetState};
use crate::form::FormatLevel;

/// A change of a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapChange {
    /// A target is new, or changed.
    Target(TargetEntry),
    /// A target is gone.
    NoTarget(TargetId),
    /// A host is new, or changed.
    Host(HostEntry),
    /// A host is gone.
    NoHost(String),
    /// A pool is new, or changed.
    Pool(Pool),
    /// A pool is gone.
    NoPool(PoolName),
    /// The networks from now on.
    Networks(Vec<Network>),
    /// The OSTs that are drained from now on.
    Draining(Vec<u16>),
    /// The removed targets from now on.
    Removed(Vec<RemovedTarget>),
    /// The format level from now on.
    FormatLevel(FormatLevel),
}

/// The changes from one version to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapDelta {
    /// Version that it changes.
    pub from: u64,
    /// Version that comes of it.
    pub to: u64,
    /// The changes, in any order.
    pub changes: Vec<MapChange>,
    /// Targets that are not heard of at this moment. (That changes without a new version.)
    pub down: Vec<TargetId>,
}

/// A newer map, as the MGS tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapUpdate {
    /// All of it.
    Whole(Map),
    /// The changes since the caller's version.
    Delta(MapDelta),
}

/// Entries that `new` has and `old` has not, or not so; and keys that only `old` has.
fn differences<T: Clone + PartialEq, K: Ord + Clone>(
    old: &[T],
    new: &[T],
    key: impl Fn(&T) -> K,
) -> (Vec<T>, Vec<K>) {
    let mut before: BTreeMap<K, &T> = old.iter().map(|entry| (key(entry), entry)).collect();
    let is_changed = |entry: &&T| before.remove(&key(entry)) != Some(*entry);
    let changed = new.iter().filter(is_changed).cloned().collect();
    (changed, before.into_keys().collect())
}

/// Puts an entry into a sorted list, or takes it out.
fn set<T, K: Ord>(list: &mut Vec<T>, key: impl Fn(&T) -> K, at: &K, entry: Option<T>) {
    match (list.binary_search_by_key(at, key), entry) {
        (Ok(found), Some(entry)) => list[found] = entry,
        (Ok(found), None) => drop(list.remove(found)),
        (Err(place), Some(entry)) => list.insert(place, entry),
        (Err(_), None) => {}
    }
}

impl MapDelta {
    /// The delta that changes `old` into `new`, two versions of the map of one file system.
    pub fn between(old: &Map, new: &Map) -> MapDelta {
        assert!(old.fs_id == new.fs_id && old.version < new.version, "versions of one map, in order");
        // The state of a target is not part of the version.
        let stateless = |map: &Map| -> Vec<TargetEntry> {
            map.targets.iter().map(|t| TargetEntry { state: TargetState::Up, ..t.clone() }).collect()
        };
        let (targets, no_targets) = differences(&stateless(old), &stateless(new), |t| t.id);
        let (hosts, no_hosts) = differences(&old.hosts, &new.hosts, |h| h.name.clone());
        let (pools, no_pools) = differences(&old.pools, &new.pools, |p| p.name.clone());
        let mut changes: Vec<MapChange> = targets.into_iter().map(MapChange::Target).collect();
        changes.extend(no_targets.into_iter().map(MapChange::NoTarget));
        changes.extend(hosts.into_iter().map(MapChange::Host));
        changes.extend(no_hosts.into_iter().map(MapChange::NoHost));
        changes.extend(pools.into_iter().map(MapChange::Pool));
        changes.extend(no_pools.into_iter().map(MapChange::NoPool));
        if old.networks != new.networks {
            changes.push(MapChange::Networks(new.networks.clone()));
        }
        if old.draining != new.draining {
            changes.push(MapChange::Draining(new.draining.clone()));
        }
        if old.removed != new.removed {
            changes.push(MapChange::Removed(new.removed.clone()));
        }
        if old.format_level != new.format_level {
            changes.push(MapChange::FormatLevel(new.format_level));
        }
        let is_down = |t: &&TargetEntry| t.state == TargetState::Down;
        let down = new.targets.iter().filter(is_down).map(|t| t.id).collect();
        MapDelta { from: old.version, to: new.version, changes, down }
    }
}

impl Map {
    /// The map that a delta makes of this one; `None` if it changes another version.
    pub fn changed_by(&self, delta: MapDelta) -> Option<Map> {
        if delta.from != self.version || delta.to <= delta.from {
            return None;
        }
        let mut map = Map { version: delta.to, ..self.clone() };
        for change in delta.changes {
            match change {
                MapChange::Target(t) => set(&mut map.targets, |t| t.id, &t.id.clone(), Some(t)),
                MapChange::NoTarget(id) => set(&mut map.targets, |t| t.id, &id, None),
                MapChange::Host(h) => set(&mut map.hosts, |h| h.name.clone(), &h.name.clone(), Some(h)),
                MapChange::NoHost(name) => set(&mut map.hosts, |h| h.name.clone(), &name, None),
                MapChange::Pool(p) => set(&mut map.pools, |p| p.name.clone(), &p.name.clone(), Some(p)),
                MapChange::NoPool(name) => set(&mut map.pools, |p| p.name.clone(), &name, None),
                MapChange::Networks(networks) => map.networks = networks,
                MapChange::Draining(draining) => map.draining = draining,
                MapChange::Removed(removed) => map.removed = removed,
                MapChange::FormatLevel(level) => map.format_level = level,
            }
        }
        for target in &mut map.targets {
            let is_down = delta.down.contains(&target.id);
            target.state = if is_down { TargetState::Down } else { TargetState::Up };
        }
        Some(map)
    }

    /// The map after an update; `None` if that is a delta to another version.
    pub fn updated(&self, update: MapUpdate) -> Option<Map> {
        match update {
            MapUpdate::Whole(map) => Some(map),
            MapUpdate::Delta(delta) => self.changed_by(delta),
        }
    }

    /// A host serves a target of the file system: it has an entry from now on.
    pub fn note_host(&mut self, name: &str) {
        if self.host(name).is_none() && !name.is_empty() {
            let host = HostEntry { name: name.to_owned(), nids: Vec::new(), failure_domain: String::new() };
            set(&mut self.hosts, |h| h.name.clone(), &name.to_owned(), Some(host));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::map::ReplicaSet;

    fn map(version: u64, parts: &Parts) -> Map {
        let (targets, pools, hosts, draining) = parts;
        let mut map = Map { version, ..Map::new("scratch".parse().expect("a name"), 7) };
        for (index, (epoch, is_down)) in targets {
            let state = if *is_down { TargetState::Down } else { TargetState::Up };
            let id = TargetId::ost(*index);
            let entry = TargetEntry {
                id,
                uuid: [*index as u8; 16],
                nids: Vec::new(),
                epoch: *epoch,
                state,
                replicas: ReplicaSet::of("oss1"),
                format_level_max: FormatLevel::FIRST,
            };
            set(&mut map.targets, |t| t.id, &id, Some(entry));
        }
        for (n, osts) in pools {
            let pool = Pool { name: format!("p{n}").parse().expect("a name"), osts: osts.clone() };
            set(&mut map.pools, |p| p.name.clone(), &pool.name.clone(), Some(pool));
        }
        hosts.iter().for_each(|n| map.note_host(&format!("h{n}")));
        map.draining = draining.clone();
        map
    }

    /// Targets with epoch and whether they are down, pools, hosts, drained OSTs.
    type Parts = (BTreeMap<u16, (u32, bool)>, BTreeMap<u8, Vec<u16>>, Vec<u8>, Vec<u16>);

    fn parts() -> impl Strategy<Value = Parts> {
        use prop::collection::{btree_map, vec};
        (
            btree_map(0u16..6, (1u32..3, any::<bool>()), 0..6),
            btree_map(0u8..3, vec(0u16..3, 0..2), 0..3),
            vec(0u8..4, 0..4),
            vec(0u16..3, 0..2),
        )
    }

    proptest! {
        #[test]
        fn a_delta_makes_the_newer_map_of_the_older_one(old in parts(), new in parts(), versions in 1u64..9) {
            let (old, new) = (map(5, &old), map(5 + versions, &new));
            let delta = MapDelta::between(&old, &new);
            prop_assert_eq!(old.changed_by(delta.clone()), Some(new.clone()));
            prop_assert_eq!(new.changed_by(delta.clone()), None, "it does not fit another version");
            let bytes = crate::frame::encode_body(&MapUpdate::Delta(delta));
            let read: MapUpdate = crate::frame::decode_body(&bytes).expect("decodes");
            prop_assert_eq!(old.updated(read), Some(new));
        }
    }
}
