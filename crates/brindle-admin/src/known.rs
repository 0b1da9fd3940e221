//! The whole knowledge of the MGS about a cluster, asked for together.

use brindle_types::Result;
use brindle_wire::map::Map;
use brindle_wire::mgs::hosts::ListHostsResp;
use brindle_wire::mgs::replica::ListReplicasResp;
use brindle_wire::mgs::shared::ListSharedResp;

use crate::place::FsLocation;
use crate::servers::Servers;

/// A cluster, as its MGS knows it.
#[derive(Clone, Debug)]
pub struct Known {
    /// The map of targets.
    pub map: Map,
    /// Hosts, and what they were told to serve.
    pub hosts: ListHostsResp,
    /// Targets on devices that two hosts reach.
    pub shared: ListSharedResp,
    /// Targets with copies on several hosts.
    pub replicas: ListReplicasResp,
}

impl Servers {
    /// Asks the MGS for all of it. Only administrators and servers may ask.
    pub async fn known(&self, place: &FsLocation) -> Result<Known> {
        let (map, _) = self.map(place).await?;
        Ok(Known {
            map,
            hosts: self.hosts(place).await?,
            shared: self.shared(place).await?,
            replicas: self.replicas(place).await?,
        })
    }
}

/// Clusters for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use brindle_types::TargetId;
    use brindle_wire::form::FormatLevel;
    use brindle_wire::map::{Pool, ReplicaSet, TargetEntry, TargetState};
    use brindle_wire::mgs::hosts::{Assignment, HostInfo};
    use brindle_wire::mgs::replica::{MemberRole, ReplicaMember, ReplicaSetInfo, ReplicaSetState};
    use brindle_wire::mgs::shared::{SharedHost, SharedInfo, SharedPhase, SharedTarget};

    use super::*;

    pub fn host(name: &str, roles: &str, targets: &[(u16, &str)]) -> HostInfo {
        let assignment = |(index, dir): &(u16, &str)| Assignment {
            target: TargetId::ost(*index),
            uuid: [1; 16],
            dir: (*dir).to_owned(),
            port: 9881,
            is_formatted: true,
            is_wanted: true,
        };
        HostInfo {
            name: name.to_owned(),
            roles: roles.to_owned(),
            key: [0; 32],
            joined_s: 0,
            certificate_ends_s: 0,
            heard_ms_ago: None,
            software: String::new(),
            assignments: targets.iter().map(assignment).collect(),
            hosted: Vec::new(),
        }
    }

    pub fn cluster() -> Known {
        let entry = |index| TargetEntry {
            id: TargetId::ost(index),
            uuid: [1; 16],
            nids: Vec::new(),
            epoch: 1,
            state: TargetState::Up,
            replicas: ReplicaSet::of("oss1"),
            format_level_max: FormatLevel::FIRST,
        };
        let mut map = Map { targets: vec![entry(0), entry(1)], ..Map::new("scratch".parse().unwrap(), 1) };
        map.pools.push(Pool { name: "flash".parse().unwrap(), osts: vec![0] });
        let hosts =
            vec![host("c1", "client", &[]), host("oss1", "server", &[(0, "/data/a"), (1, "/data/b")])];
        Known {
            map,
            hosts: ListHostsResp { cluster: 7, hosts, tokens: Vec::new() },
            shared: ListSharedResp { targets: Vec::new(), has_fence: false },
            replicas: ListReplicasResp { sets: Vec::new() },
        }
    }

    /// OST0003 with copies on oss1 and oss2, and a host oss2.
    pub fn with_copies(mut known: Known) -> Known {
        let member = |host: &str| ReplicaMember {
            host: host.into(),
            dir: "/data/r".into(),
            is_formatted: true,
            role: MemberRole::InSync,
            boot_term: 1,
            recorded_epoch: 1,
            nids: Vec::new(),
        };
        let set = ReplicaSetState {
            target: TargetId::ost(3),
            uuid: [3; 16],
            epoch: 1,
            term: 1,
            port: 9884,
            primary: "oss2".into(),
            members: vec![member("oss2"), member("oss1")],
        };
        known.hosts.hosts.push(host("oss2", "server", &[]));
        known.replicas.sets.push(ReplicaSetInfo { set, words: Vec::new(), hindrance: None });
        known
    }

    /// OST0007 on a device of oss1 and oss2.
    pub fn shared() -> Known {
        let host = |host: &str| SharedHost { host: host.into(), device: "/dev/lun7".into() };
        let target = SharedTarget {
            target: TargetId::ost(7),
            uuid: [7; 16],
            hosts: vec![host("oss1"), host("c1")],
            dir: "/srv/ost7".into(),
            port: 9883,
            is_formatted: true,
            is_wanted: true,
            owner: "c1".into(),
            turn: 4,
            phase: SharedPhase::Owned,
        };
        let info = SharedInfo { target, words: Vec::new(), hindrance: None };
        Known { shared: ListSharedResp { targets: vec![info], has_fence: true }, ..cluster() }
    }
}
