//! Space of a file system, target by target.

use std::collections::BTreeSet;

use brindle_types::{Fault, Result, Role, TargetId};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mds::statfs::MdtStatfsReq;
use brindle_wire::oss::statfs::OstStatfsReq;
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;

/// Space of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes still available.
    pub available_bytes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Inodes still free.
    pub inodes_free: u64,
    /// The device, so that targets on one are counted once.
    pub device_id: u64,
    /// The target's disk returns errors.
    pub degraded: bool,
}

/// Every MDT and OST with its space, or why there is none.
pub struct Spaces {
    /// The map.
    pub map: Map,
    /// Reason why the map is not from the MGS, if another source told it.
    pub without_mgs: Option<Fault>,
    /// Targets in the order of the map, with their space.
    pub targets: Vec<(TargetId, Result<Space>)>,
}

impl Spaces {
    /// Asks every target at once.
    pub async fn of(servers: &Servers, place: &FsLocation) -> Result<Spaces> {
        let (map, without_mgs) = servers.map(place).await?;
        let wanted = map.targets.iter().filter(|t| t.id.role != Role::Mgt);
        let asking = wanted.map(|entry| async { (entry.id, space(servers, entry, &map).await) });
        let targets = join_all(asking).await;
        Ok(Spaces { map, without_mgs, targets })
    }

    /// Space of the mount as df and df -i show it: bytes of the OSTs (each device once) and inodes of the MDTs.
    pub fn sum(&self) -> Space {
        let mut sum = Space::default();
        let mut devices = BTreeSet::new();
        for (id, space) in &self.targets {
            let Ok(space) = space else { continue };
            if id.role == Role::Mdt {
                sum.inodes_used = sum.inodes_used.saturating_add(space.inodes_used);
                sum.inodes_free = sum.inodes_free.saturating_add(space.inodes_free);
            }
            if id.role != Role::Ost || !devices.insert(space.device_id) {
                continue;
            }
            sum.total_bytes = sum.total_bytes.saturating_add(space.total_bytes);
            sum.available_bytes = sum.available_bytes.saturating_add(space.available_bytes);
        }
        sum
    }

    /// The space as a document has it.
    pub fn view(&self) -> SpaceView {
        let sum = self.sum();
        let target = |(id, space): &(TargetId, Result<Space>)| {
            let s = space.as_ref().copied().unwrap_or_default();
            TargetSpaceView {
                name: self.map.fs.target(*id),
                answers: space.is_ok(),
                total_bytes: s.total_bytes,
                available_bytes: s.available_bytes,
                inodes_used: s.inodes_used,
                inodes_free: s.inodes_free,
                device_id: s.device_id,
                degraded: s.degraded,
            }
        };
        SpaceView {
            fs: self.map.fs.to_string(),
            targets: self.targets.iter().map(target).collect(),
            total_bytes: sum.total_bytes,
            available_bytes: sum.available_bytes,
        }
    }
}

/// Space of one target.
pub async fn space(servers: &Servers, entry: &TargetEntry, map: &Map) -> Result<Space> {
    if entry.id.role == Role::Mdt {
        let s = servers.ask(map, entry.id, &MdtStatfsReq {}).await?;
        return Ok(Space {
            total_bytes: s.total_bytes,
            available_bytes: s.available_bytes,
            inodes_used: s.inodes_used,
            inodes_free: s.inodes_free,
            device_id: s.device_id,
            degraded: false,
        });
    }
    let s = servers.ask(map, entry.id, &OstStatfsReq {}).await?;
    Ok(Space {
        total_bytes: s.total_bytes,
        available_bytes: s.available_bytes,
        inodes_used: s.total_inodes.saturating_sub(s.free_inodes),
        inodes_free: s.free_inodes,
        device_id: s.device_id,
        degraded: s.degraded,
    })
}

/// Space of a file system.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SpaceView {
    /// Name of the file system.
    pub fs: String,
    /// MDTs and OSTs, in the order of the map.
    pub targets: Vec<TargetSpaceView>,
    /// Bytes of the OSTs, each device once.
    pub total_bytes: u64,
    /// Of those, bytes still available.
    pub available_bytes: u64,
}
document!(SpaceView, "brindle.fs.df", 1);

/// Space of a target; zeros where it does not answer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetSpaceView {
    /// Full name.
    pub name: String,
    /// Whether it answers.
    pub answers: bool,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes still available.
    pub available_bytes: u64,
    /// Inodes (of an OST: objects) in use.
    pub inodes_used: u64,
    /// Inodes (of an OST: objects) still free.
    pub inodes_free: u64,
    /// The device that it lies on; targets with the same one share its space.
    pub device_id: u64,
    /// Whether its disk returns errors.
    pub degraded: bool,
}

#[cfg(test)]
mod tests {
    use brindle_types::Code;

    use super::*;

    #[test]
    fn one_disk_is_counted_once() {
        let map = Map::new("dev".parse().expect("a name"), 1);
        let space = |device_id| Space {
            total_bytes: 100,
            available_bytes: 40,
            inodes_used: device_id,
            inodes_free: 1,
            device_id,
            degraded: false,
        };
        let down = Err(Fault::new(Code::TargetDown));
        let targets = vec![
            (TargetId::mdt(0), Ok(space(9))),
            (TargetId::ost(0), Ok(space(1))),
            (TargetId::ost(1), Ok(space(1))),
            (TargetId::ost(2), Ok(space(2))),
            (TargetId::ost(3), down),
        ];
        let sum = Spaces { map, without_mgs: None, targets }.sum();
        assert_eq!((sum.total_bytes, sum.available_bytes), (200, 80));
        assert_eq!((sum.inodes_used, sum.inodes_free), (9, 1));
    }
}
