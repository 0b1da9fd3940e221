//! Labels of hosts: the rack that a host stands in.

use brindle_types::Result;
use brindle_wire::mgs::hosts::HostChange;
use schemars::JsonSchema;
use serde::Serialize;

use crate::hosts::one;
use crate::known::Known;
use crate::place::FsLocation;
use crate::servers::Servers;

/// A host with a label.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LabelView {
    /// Name of the host.
    pub host: String,
    /// Rack that it stands in; empty if nothing is said.
    pub rack: String,
    /// Whether anything was changed, or would be.
    pub changed: bool,
    /// Whether this was only a look at what would be done.
    pub dry_run: bool,
    /// Targets that have two copies in this rack then.
    pub crowded: Vec<String>,
}
document!(LabelView, "brindle.node.label", 1);

/// Targets that have a copy on the host and another one in its rack.
fn crowded(known: &Known, host: &str, rack: &str) -> Vec<String> {
    let is_there = |other: &str| {
        other != host && known.map.host(other).is_some_and(|entry| entry.failure_domain == rack)
    };
    let sets = known.replicas.sets.iter().map(|info| &info.set);
    let both = sets.filter(|set| !rack.is_empty() && set.member(host).is_some());
    let both = both.filter(|set| set.members.iter().any(|member| is_there(&member.host)));
    both.map(|set| known.map.fs.target(set.target)).collect()
}

/// Sets the rack of a host; an empty name removes the label.
pub async fn label(
    servers: &Servers,
    place: &FsLocation,
    (host, rack): (&str, &str),
    is_dry_run: bool,
) -> Result<LabelView> {
    let known = servers.known(place).await?;
    one(&known.hosts, host)?;
    let change = HostChange::Rack { rack: rack.to_owned() };
    let changed = servers.change_host(place, host, change, is_dry_run).await?.changed;
    Ok(LabelView {
        host: host.to_owned(),
        rack: rack.to_owned(),
        changed,
        dry_run: is_dry_run,
        crowded: crowded(&known, host, rack),
    })
}
