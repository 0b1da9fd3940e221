//! Rails of servers that have several: which rails are reached from here.

use std::collections::BTreeMap;

use brindle_types::{Code, Fault, Nid, TargetId};
use brindle_wire::map::Map;
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;

use crate::servers::Servers;

/// A rail of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RailView {
    /// The host.
    pub host: String,
    /// Name of the rail in addresses: `tcp`, `tcp1`.
    pub rail: String,
    /// The address of the host there.
    pub address: String,
    /// `up`, or `down` where no server of the host answers there.
    pub state: &'static str,
}

impl RailView {
    fn is_up(&self) -> bool {
        self.state == "up"
    }
}

/// An address on each rail of every host that has several.
fn addresses(map: &Map) -> BTreeMap<&str, &[Nid]> {
    let mut hosts = BTreeMap::new();
    for target in map.targets.iter().filter(|target| target.nids.len() > 1) {
        // Where several hosts run the MGS, the entry of the MGT has the addresses of all of them.
        if target.id != TargetId::MGT || target.replicas.standby.is_empty() {
            hosts.entry(target.host()).or_insert(&target.nids[..]);
        }
    }
    hosts
}

/// Rails of all hosts that have several, or of one of them; empty where there is one network.
pub async fn look(servers: &Servers, map: &Map, host: Option<&str>) -> Vec<RailView> {
    let hosts = addresses(map).into_iter().filter(|(name, _)| host.is_none_or(|host| host == *name));
    let rails = hosts.flat_map(|(name, nids)| nids.iter().map(move |nid| (name, nid)));
    let looking = rails.map(|(name, nid)| async move {
        RailView {
            host: name.to_owned(),
            rail: if nid.rail == 0 { "tcp".to_owned() } else { format!("tcp{}", nid.rail) },
            address: nid.host.clone(),
            state: if servers.is_reached(map.fs_id, nid).await { "up" } else { "down" },
        }
    });
    join_all(looking).await
}

/// Rails that are down of hosts that are reached over others.
pub(crate) fn warnings(rails: &[RailView]) -> Vec<Fault> {
    let others = |down: &RailView| rails.iter().any(|rail| rail.host == down.host && rail.is_up());
    let down = rails.iter().filter(|rail| !rail.is_up() && others(rail));
    let warning = |rail: &RailView| {
        Fault::new(Code::RailDown)
            .subject(format!("{} of {}", rail.rail, rail.host))
            .why(format!("no server answers at {}", rail.address))
            .data("nothing is lost: requests go over the other rails of the host")
    };
    down.map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rail(host: &str, number: u8, state: &'static str) -> RailView {
        let rail = format!("tcp{number}");
        RailView { host: host.to_owned(), rail, address: format!("10.{number}.0.1"), state }
    }

    #[test]
    fn a_rail_is_told_of_where_another_is_left() {
        let rails = [rail("a", 0, "up"), rail("a", 1, "down"), rail("b", 0, "down"), rail("b", 1, "down")];
        let told: Vec<String> = warnings(&rails).iter().map(|fault| fault.subject.to_string()).collect();
        assert_eq!(told, ["tcp1 of a"], "a host that is down altogether is a problem of its own");
    }
}
