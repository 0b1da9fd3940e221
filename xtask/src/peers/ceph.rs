//! CephFS: one monitor, manager and metadata server, two BlueStore OSDs, ceph-fuse as client.

use std::time::Duration;

use super::packages;
use super::place::{ADDRESS, SystemPlace};
use super::scale::Scale;
use super::system::{Role, System};
use crate::run::{Cmd, capture};

/// Longest time until everything is active.
const ACTIVE_PATIENCE: Duration = Duration::from_secs(180);
/// Space of each data disk that BlueStore's file does not get: for the file system around it, and the OSD's
/// small files.
const SPARE_BYTES: u64 = 256 << 20;
/// Units that the packages enable.
const UNITS: &[&str] = &[
    "ceph.target",
    "ceph-mon.target",
    "ceph-mgr.target",
    "ceph-mds.target",
    "ceph-osd.target",
    "ceph-fuse.target",
    "ceph-crash.service",
];

/// CephFS.
pub struct Ceph {
    /// Copies of everything: 1 or 2, since there are two OSDs.
    pub copies: u32,
}

impl Ceph {
    fn daemon(place: &SystemPlace, program: &str) -> Cmd {
        place.inside(program).args(["--conf", &place.path("ceph.conf")])
    }

    fn cli(place: &mut SystemPlace, args: &[&str]) -> Result<String, String> {
        let command = Self::daemon(place, "ceph").args(args);
        place.run("ceph", command)
    }

    fn osd(place: &mut SystemPlace, number: u32, scale: &Scale) -> Result<(), String> {
        place.disk(&format!("data{number}"), scale.data_bytes)?;
        place.mkdir(&format!("data{number}/osd"))?;
        let uuid = uuid()?;
        Self::cli(place, &["osd", "new", &uuid])?;
        // By hand: an OSD that does it as it starts may send the command before it knows the cluster's id, and end.
        let name = format!("osd.{number}");
        Self::cli(place, &["osd", "crush", "add", &name, "1.0", "host=peers", "root=default"])?;
        let number = number.to_string();
        let mkfs = Self::daemon(place, "ceph-osd").args(["-i", &number, "--mkfs", "--osd-uuid", &uuid]);
        place.run("osd-mkfs", mkfs)?;
        place.run("ceph-osd", Self::daemon(place, "ceph-osd").args(["-i", &number])).map(drop)
    }
}

impl System for Ceph {
    fn name(&self) -> &'static str {
        if self.copies == 1 { "ceph" } else { "ceph-2" }
    }

    fn role(&self) -> Role {
        if self.copies == 1 { Role::Peer } else { Role::Shown }
    }

    fn prepare(&self) -> Result<(), String> {
        packages::need("peers-ceph", UNITS, &[])
    }

    fn version(&self) -> String {
        let said = capture("ceph-osd", &["--version"]).unwrap_or_default();
        let version = said.split_whitespace().nth(2).unwrap_or("of unknown version");
        format!("CephFS {version}, ceph-fuse")
    }

    fn settings(&self) -> String {
        let copies = if self.copies == 1 { "1 copy" } else { "2 copies" };
        format!(
            "monitor, manager, metadata server and 2 BlueStore OSDs, each with a file for its blocks on a disk of its own, {copies}; \
             no authentication; osd memory target and mds cache 1 GiB; fsync reaches the disk"
        )
    }

    fn clients(&self) -> usize {
        2
    }

    fn up(&self, place: &mut SystemPlace, scale: &Scale) -> Result<(), String> {
        place.disk("metadata", scale.metadata_bytes)?;
        for dir in ["log", "run", "metadata/mon", "metadata/mgr", "metadata/mds"] {
            place.mkdir(dir)?;
        }
        let fsid = uuid()?;
        place.write("ceph.conf", &config(place, &fsid, scale, self.copies))?;
        let map = place.path("monmap");
        let make = place.inside("monmaptool").args(["--create", "--fsid", &fsid, "--addv", "a"]);
        let make = make.args([&format!("[v1:{ADDRESS}:6789]"), "--set-min-mon-release", "pacific", &map]);
        place.run("monmaptool", make)?;
        let mkfs = Self::daemon(place, "ceph-mon").args(["-i", "a", "--mkfs", "--monmap", &map]);
        place.run("mon-mkfs", mkfs.args(["--keyring", "/dev/null"]))?;
        for program in ["ceph-mon", "ceph-mgr"] {
            place.run(program, Self::daemon(place, program).args(["-i", "a"]))?;
        }
        (0..2).try_for_each(|number| Self::osd(place, number, scale))?;
        for (pool, groups) in [("metadata", "16"), ("data", "32")] {
            Self::cli(place, &["osd", "pool", "create", pool, groups, groups])?;
            Self::cli(place, &["osd", "pool", "set", pool, "pg_autoscale_mode", "off"])?;
        }
        Self::cli(place, &["fs", "new", "peers", "metadata", "data"])?;
        place.run("ceph-mds", Self::daemon(place, "ceph-mds").args(["-i", "a"]))?;
        place.wait("CephFS is active", ACTIVE_PATIENCE, |place| {
            Self::cli(place, &["status", "--format", "json"]).is_ok_and(|text| is_active(&text))
        })
    }

    fn mount(&self, place: &mut SystemPlace, number: usize) -> Result<(), String> {
        // Without a pid file and a socket: the second client would refuse to start because of the first one's.
        let command =
            Self::daemon(place, "ceph-fuse").args(["--id", "admin", "--admin-socket=", "--pid-file="]);
        place.run("ceph-fuse", command.arg(place.client(number))).map(drop)
    }

    fn down(&self, place: &mut SystemPlace) -> Result<(), String> {
        // Each needs the ones behind it to end in order.
        for program in ["ceph-mds", "ceph-osd", "ceph-mgr", "ceph-mon"] {
            place.end_program(program);
        }
        Ok(())
    }
}

fn uuid() -> Result<String, String> {
    let path = "/proc/sys/kernel/random/uuid";
    std::fs::read_to_string(path)
        .map(|id| id.trim().to_owned())
        .map_err(|e| format!("cannot read {path}: {e}"))
}

/// Whether all placement groups are clean, both OSDs up and the metadata server active.
fn is_active(status: &str) -> bool {
    // Warnings of the client may stand before the document.
    let json = status.find('{').map(|at| &status[at..]).unwrap_or_default();
    let Ok(status) = serde_json::from_str::<serde_json::Value>(json) else { return false };
    let states = status["pgmap"]["pgs_by_state"].as_array().cloned().unwrap_or_default();
    let clean = !states.is_empty() && states.iter().all(|s| s["state_name"] == "active+clean");
    let osds = status["osdmap"]["num_up_osds"] == 2;
    let ranks = status["fsmap"]["by_rank"].as_array().cloned().unwrap_or_default();
    clean && osds && ranks.iter().any(|r| r["status"] == "up:active")
}

fn config(place: &SystemPlace, fsid: &str, scale: &Scale, copies: u32) -> String {
    let dir = place.dir().display();
    let block_bytes = scale.data_bytes - SPARE_BYTES;
    format!(
        "[global]
fsid = {fsid}
mon host = v1:{ADDRESS}:6789
public addr = {ADDRESS}
auth cluster required = none
auth service required = none
auth client required = none
run dir = {dir}/run
log file = {dir}/log/$name.log
mon cluster log file = {dir}/log/cluster.log
admin socket = {dir}/run/$name.$pid.asok
pid file = {dir}/run/$name.pid
crash dir = {dir}/log
keyring = {dir}/keyring
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail warn = 1
mon data avail crit = 1
mon osd full ratio = .97
mon osd backfillfull ratio = .96
mon osd nearfull ratio = .95
osd pool default size = {copies}
osd pool default min size = 1
osd crush chooseleaf type = 0
osd crush update on start = false
osd class update on start = false
osd memory target = 1073741824
mds cache memory limit = 1073741824
bluestore block size = {block_bytes}
[mon.a]
mon data = {dir}/metadata/mon
[mgr.a]
mgr data = {dir}/metadata/mgr
[mds.a]
mds data = {dir}/metadata/mds
[osd.0]
osd data = {dir}/data0/osd
[osd.1]
osd data = {dir}/data1/osd
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_means_all_of_it() {
        let status = |state: &str, osds: u32| {
            format!(
                "a warning\n{{\"pgmap\":{{\"pgs_by_state\":[{{\"state_name\":\"{state}\"}}]}},\
                 \"osdmap\":{{\"num_up_osds\":{osds}}},\"fsmap\":{{\"by_rank\":[{{\"status\":\"up:active\"}}]}}}}"
            )
        };
        assert!(is_active(&status("active+clean", 2)));
        assert!(!is_active(&status("creating", 2)));
        assert!(!is_active(&status("active+clean", 1)));
        assert!(!is_active("timed out"));
    }
}
