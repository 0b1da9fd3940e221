//! The suites on other ground than that of `make test`: on a cluster of hosts, on mirrored targets, and on a tree that a policy archives and
//! releases all the time, where every read and every write may find its file in the archive.

use std::path::Path;

use serde_json::Value;

use super::Soak;
use crate::cluster::Cluster;
use crate::report::Report;
use crate::run::interrupted;
use crate::suites::{self, SUITES};

/// Everything is archived as soon as it is seen, and released as soon as it is archived.
const POLICY: &str = "\
migration_rules { rule default { condition = true; } }
migration_parameters { runtime_interval = 1s; }
purge_rules { rule default { condition = true; } }
purge_trigger { trigger_on = periodic; check_interval = 1s; }
";
/// Hosts in pairs, which take over from each other.
const PAIRS: &[&str] = &["--hosts", "6", "--clients", "1"];
/// Two copies of everything.
const MIRRORED: &[&str] = &["--hosts", "4", "--copies", "2", "--clients", "1"];

/// On a cluster of hosts.
pub fn on_hosts(soak: &Soak<'_>) -> Report {
    on_ground(soak, "hosts", |cluster| cluster.up_on_hosts(PAIRS), Cluster::client, |_| Ok(()))
}

/// On targets with two copies each.
pub fn on_mirrored(soak: &Soak<'_>) -> Report {
    on_ground(soak, "mirrored", |cluster| cluster.up_on_hosts(MIRRORED), Cluster::client, |_| Ok(()))
}

/// On a tree that is archived and released.
pub fn on_tiered(soak: &Soak<'_>) -> Report {
    let up = |cluster: &mut Cluster| cluster.up_tiered(POLICY);
    on_ground(soak, "tiered", up, Cluster::a, |cluster| cluster.down().and_then(|()| cluster.fsck()))
}

/// Runs all suites, one after the other.
fn on_ground(
    soak: &Soak<'_>,
    name: &str,
    up: impl FnOnce(&mut Cluster) -> Result<(), String>,
    mount: fn(&Cluster) -> std::path::PathBuf,
    end: impl FnOnce(&mut Cluster) -> Result<(), String>,
) -> Report {
    let mut cluster = match Cluster::new(soak.session, &format!("soak-{name}")) {
        Ok(cluster) => cluster,
        Err(why) => return Report::fail("prepare", why),
    };
    let mut report = Report::default();
    match up(&mut cluster) {
        Ok(()) => {
            let seconds_each = soak.seconds_each / SUITES.len() as u64;
            let dir = mount(&cluster);
            for suite in SUITES.iter().filter(|_| !interrupted()) {
                report.add(suites::run_suite(soak.session, suite, &dir, seconds_each));
                let sound = is_sound(&mut cluster, &dir, name == "tiered");
                report.add(Report::check(&format!("{}::sound", suite.name), sound));
            }
            report.add(Report::check("end", end(&mut cluster)));
        }
        Err(why) => report.add_failure("up", why),
    }
    report.add(Report::check("remove", cluster.remove()));
    report.prefixed(name)
}

/// Whether all targets work; and where a policy moves files, whether it did: a run in which nothing moved says nothing.
fn is_sound(cluster: &mut Cluster, mount: &Path, is_tiered: bool) -> Result<(), String> {
    let status = cluster.asked(&["status"], mount)?;
    let problems = status["problems"].as_array().map_or(usize::MAX, Vec::len);
    if problems != 0 {
        return Err(format!("'brindle status' tells of problems: {status}"));
    }
    if is_tiered { has_moved(cluster) } else { Ok(()) }
}

fn has_moved(cluster: &mut Cluster) -> Result<(), String> {
    let status = cluster.asked(&["policy", "status", "--state"], &cluster.policy_state())?;
    let done = |policy: &str| -> u64 {
        let runs = status["runs"].as_array().into_iter().flatten();
        runs.filter(|run| run["policy"] == policy).filter_map(|run| run["done"].as_u64()).sum()
    };
    let (archived, released) = (done("migration"), done("purge"));
    let tiering = cluster.asked(&["hsm", "status"], &cluster.a())?;
    let agents = tiering["mdts"].as_array().into_iter().flatten().flat_map(agents_of);
    let (ok, failed) = agents.fold((0, 0), |(ok, failed), (good, bad)| (ok + good, failed + bad));
    println!(
        "      the last runs of the policy archived {archived} files and released {released}; agents did {ok} actions, {failed} went wrong"
    );
    if archived == 0 || released == 0 {
        return Err("the policy did not archive and release".to_owned());
    }
    Ok(())
}

fn agents_of(mdt: &Value) -> impl Iterator<Item = (u64, u64)> {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let agents = mdt["agents"].as_array().into_iter().flatten();
    agents.map(move |agent| (number(&agent["ok"]), number(&agent["errors"])))
}
