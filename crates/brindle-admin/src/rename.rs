//! Renaming a host: what the rename changes, and how long it takes.

use crate::nodemaps::NodemapView;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mgs::hosts::HostChange;
use schemars::JsonSchema;
use serde::Serialize;

use crate::hosts::{one, words};
use crate::known::Known;
use crate::place::FsLocation;
use crate::servers::Servers;

/// Longest time until the daemon of a renamed host is heard under its new name.
pub const RENAMED_LIMIT_MS: u64 = 60_000;
/// Interval between two looks.
const LOOK_EVERY_MS: u64 = 300;

/// A host that gets another name.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RenameView {
    /// Former name of the host.
    pub from: String,
    /// New name of the host.
    pub to: String,
    /// `renamed` (its daemon goes by the new name), `waiting` (it has not shown it yet), `told` (a host without a daemon: it takes the name by `brindle node
    /// take-name`), `planned` (a dry run), or `unchanged` (it had this name before).
    pub state: &'static str,
    /// Rows that have the new name: targets, copies, nodemaps.
    pub keeps: Vec<String>,
    /// Seconds until its daemon was heard under the new name.
    pub seconds: Option<f64>,
}
document!(RenameView, "brindle.node.rename", 1);

/// Rows that go with the host to its new name, in words.
pub fn keeps(known: &Known, nodemaps: &[NodemapView], host: &str) -> Result<Vec<String>> {
    let (info, fs) = (one(&known.hosts, host)?, &known.map.fs);
    let mut keeps: Vec<String> =
        info.assignments.iter().map(|a| format!("{} in {}", fs.target(a.target), a.dir)).collect();
    for shared in known.shared.targets.iter().map(|info| &info.target) {
        if shared.hosts.iter().any(|own| own.host == host) {
            let role = if shared.owner == host { "serves it" } else { "stands by" };
            keeps.push(format!("{} ({role})", fs.target(shared.target)));
        }
    }
    for set in known.replicas.sets.iter().map(|info| &info.set) {
        if set.member(host).is_some() {
            let role = match set.primary == host {
                true => "serves it",
                false => "a copy; it is compared with the others once",
            };
            keeps.push(format!("{} ({role})", fs.target(set.target)));
        }
    }
    let named = nodemaps.iter().filter(|nodemap| nodemap.hosts.iter().any(|own| own == host));
    keeps.extend(named.map(|nodemap| format!("nodemap {}", nodemap.name)));
    let domain = known.map.host(host).map_or("", |entry| entry.failure_domain.as_str());
    keeps.extend((!domain.is_empty()).then(|| format!("rack {domain}")));
    Ok(keeps)
}

/// Gives a host another name, and waits for a bounded time until its daemon uses the name.
pub async fn rename(
    servers: &Servers,
    place: &FsLocation,
    (from, to): (&str, &str),
    is_dry_run: bool,
) -> Result<RenameView> {
    let known = servers.known(place).await?;
    let has_daemon = words(&one(&known.hosts, from)?.roles).iter().any(|role| role == "server");
    let keeps = keeps(&known, &servers.nodemaps(place).await?.nodemaps, from)?;
    let change = HostChange::Rename { to: to.to_owned() };
    let (seams, since) = (servers.seams().clone(), servers.seams().now());
    let deadline = since.plus_ms(RENAMED_LIMIT_MS);
    let answer = loop {
        match servers.change_host(place, from, change.clone(), is_dry_run).await {
            Ok(answer) => break answer,
            // An MGS that has renamed its own host may have had no time to answer: it says so when it is asked again.
            Err(fault) if is_away(&fault) && !is_dry_run && seams.now() < deadline => {
                seams.sleep_ms(LOOK_EVERY_MS).await;
            }
            Err(fault) => return Err(fault),
        }
    };
    let view =
        |state, seconds| RenameView { from: from.to_owned(), to: to.to_owned(), state, keeps, seconds };
    if !answer.changed {
        return Ok(view("unchanged", None));
    }
    if is_dry_run {
        return Ok(view("planned", None));
    }
    if !has_daemon {
        return Ok(view("told", None));
    }
    loop {
        let is_heard = match servers.hosts(place).await {
            Ok(hosts) => one(&hosts, to)?.heard_ms_ago.is_some(),
            Err(fault) if is_away(&fault) => false,
            Err(fault) => return Err(fault),
        };
        let now = seams.now();
        if is_heard {
            return Ok(view("renamed", Some(now.ms_since(since) as f64 / 1000.0)));
        }
        if now >= deadline {
            return Ok(view("waiting", None));
        }
        seams.sleep_ms(LOOK_EVERY_MS).await;
    }
}

/// Whether the MGS is not reached for a moment. It may be on the host that is renamed.
fn is_away(fault: &Fault) -> bool {
    matches!(
        fault.code,
        Code::NoMgs | Code::TargetDown | Code::Disconnected | Code::NotLeading | Code::HostRenamed
    )
}

/// The fault to show where a host was renamed and does not show its new name.
pub fn outcome(view: &RenameView) -> Result<()> {
    if view.state != "waiting" {
        return Ok(());
    }
    Err(Fault::new(Code::HostSilent)
        .what("renamed, and not heard under the new name yet:")
        .subject(view.to.clone())
        .why(format!("its daemon has not shown a certificate for it within {} s", RENAMED_LIMIT_MS / 1000))
        .data("the rename stands; its targets wait for it, or go to other hosts that have them")
        .next(
            "on that host: systemctl status brindle-serve; it takes the name as soon as it reaches the MGS",
        ))
}
