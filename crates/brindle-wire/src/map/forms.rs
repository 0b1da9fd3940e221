//! The forms in which releases have stored the map.
//!
//! | version | from | new in it |
//! |---|---|---|
//! | 1 | before 0.1.0 | |
//! | 2 | before 0.1.0 | pools |
//! | 3 | 0.1.0 | OSTs that are drained, removed targets |
//! | 4 | 0.2.0 | hosts, replica sets, networks, the format level |
//!
//! Only the MGS reads the stored map. A newer form is therefore written at once: a host takes the map over only when it is of this
//! release.

use brindle_types::{FsName, Nid, TargetId};
use serde::{Deserialize, Serialize};

use super::{Map, Pool, RemovedTarget, ReplicaSet, TargetEntry, TargetState};
use crate::first_form;
use crate::form::{Form, FormatLevel};

/// A target, up to version 3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetEntryV1 {
    id: TargetId,
    uuid: [u8; 16],
    nids: Vec<Nid>,
    epoch: u32,
    state: TargetState,
    host: String,
}

/// The map of version 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapV1 {
    fs: FsName,
    fs_id: u64,
    version: u64,
    targets: Vec<TargetEntryV1>,
}
first_form!(1 => MapV1);

/// The map of version 2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapV2 {
    fs: FsName,
    fs_id: u64,
    version: u64,
    targets: Vec<TargetEntryV1>,
    pools: Vec<Pool>,
}

impl Form for MapV2 {
    const VERSION: u8 = 2;
    const LEVEL: FormatLevel = FormatLevel::FIRST;
    type Previous = MapV1;

    fn from_previous(MapV1 { fs, fs_id, version, targets }: MapV1) -> MapV2 {
        MapV2 { fs, fs_id, version, targets, pools: Vec::new() }
    }

    fn to_previous(&self) -> Option<MapV1> {
        None
    }
}

/// The map of version 3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapV3 {
    fs: FsName,
    fs_id: u64,
    version: u64,
    targets: Vec<TargetEntryV1>,
    pools: Vec<Pool>,
    draining: Vec<u16>,
    removed: Vec<RemovedTarget>,
}

impl Form for MapV3 {
    const VERSION: u8 = 3;
    const LEVEL: FormatLevel = FormatLevel::FIRST;
    type Previous = MapV2;

    fn from_previous(MapV2 { fs, fs_id, version, targets, pools }: MapV2) -> MapV3 {
        MapV3 { fs, fs_id, version, targets, pools, draining: Vec::new(), removed: Vec::new() }
    }

    fn to_previous(&self) -> Option<MapV2> {
        None
    }
}

impl Form for Map {
    const VERSION: u8 = 4;
    const LEVEL: FormatLevel = FormatLevel::FIRST;
    type Previous = MapV3;

    fn from_previous(old: MapV3) -> Map {
        let target = |t: TargetEntryV1| TargetEntry {
            id: t.id,
            uuid: t.uuid,
            nids: t.nids,
            epoch: t.epoch,
            state: t.state,
            replicas: ReplicaSet::of(t.host),
            format_level_max: FormatLevel::FIRST,
        };
        let mut map = Map {
            version: old.version,
            format_level: FormatLevel::FIRST,
            targets: old.targets.into_iter().map(target).collect(),
            pools: old.pools,
            draining: old.draining,
            removed: old.removed,
            ..Map::new(old.fs, old.fs_id)
        };
        let hosts: Vec<String> = map.targets.iter().map(|t| t.host().to_owned()).collect();
        hosts.iter().for_each(|host| map.note_host(host));
        map
    }

    fn to_previous(&self) -> Option<MapV3> {
        None
    }
}
