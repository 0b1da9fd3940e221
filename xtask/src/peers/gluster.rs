//! GlusterFS: glusterd and two bricks, files distributed over them.

use super::packages;
use super::place::{ADDRESS, SystemPlace};
use super::scale::Scale;
use super::system::{Role, System};
use crate::run::{Cmd, capture};

/// The volume.
const VOLUME: &str = "peers";
/// Directories in which its daemons write whatever their configuration says: they get our own there, in a mount
/// namespace of the servers.
const FIXED: [(&str, &str); 3] =
    [("log", "/var/log/glusterfs"), ("run", "/var/run/gluster"), ("lib", "/var/lib/glusterd")];
/// Lets go of file systems of others, which would stay mounted here when their owners have unmounted them.
const LET_GO: &str = r#"while read -r device at kind rest; do
    case "$at" in "$own"/*) continue ;; esac
    case "$device $kind" in /dev/loop*|*" fuse"*) umount --lazy "$at" || true ;; esac
done </proc/self/mounts
"#;
/// Settings of people who care for speed: the group of the package for metadata, and room for data.
const SETTINGS: [[&str; 2]; 6] = [
    ["group", "metadata-cache"],
    ["performance.parallel-readdir", "on"],
    ["client.event-threads", "2"],
    ["server.event-threads", "2"],
    ["performance.cache-size", "256MB"],
    ["performance.write-behind-window-size", "4MB"],
];

/// GlusterFS.
pub struct Gluster {
    /// Copies of everything: 1 (files are distributed over two bricks), or as many as there are bricks, 2 or 3.
    pub copies: u32,
}

impl Gluster {
    fn cli(place: &SystemPlace, args: &[&str]) -> Cmd {
        let socket = format!("--glusterd-sock={}", place.path("glusterd.socket"));
        let log = format!("--log-file={}", place.path("cli.log"));
        // The program writes below the fixed directory as well.
        let (_, fixed) = FIXED[2];
        let script = format!("mount --bind '{}' {fixed} && exec gluster \"$@\"", place.path("lib"));
        let command =
            place.inside("unshare").args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        command.args(["gluster", "--mode=script", &socket, &log]).args(args)
    }
}

impl System for Gluster {
    fn name(&self) -> &'static str {
        match self.copies {
            1 => "gluster",
            2 => "gluster-2",
            _ => "gluster-3",
        }
    }

    fn role(&self) -> Role {
        if self.copies == 1 { Role::Peer } else { Role::Shown }
    }

    fn prepare(&self) -> Result<(), String> {
        packages::need("peers-gluster", &["glusterd.service"], &[])
    }

    fn version(&self) -> String {
        let said = capture("glusterd", &["--version"]).unwrap_or_default();
        let version = said.split_whitespace().nth(1).unwrap_or("of unknown version");
        format!("GlusterFS {version}")
    }

    fn settings(&self) -> String {
        let set: Vec<String> = SETTINGS.iter().map(|pair| pair.join(" ")).collect();
        let bricks = match self.copies {
            1 => "2 bricks with a disk each, distributed, 1 copy".to_owned(),
            copies => format!("{copies} bricks with a disk each, {copies} copies"),
        };
        format!("glusterd and {bricks}; {}; fsync reaches the disk", set.join(", "))
    }

    fn clients(&self) -> usize {
        2
    }

    fn up(&self, place: &mut SystemPlace, scale: &Scale) -> Result<(), String> {
        let mut bricks = Vec::new();
        for number in 0..self.copies.max(2) {
            place.disk(&format!("data{number}"), scale.data_bytes)?;
            let brick = place.mkdir(&format!("data{number}/brick"))?;
            bricks.push(format!("{ADDRESS}:{}", brick.display()));
        }
        let mut script = format!("set -e\nown='{}'\n{LET_GO}", place.dir().display());
        for (name, at) in FIXED {
            let own = place.mkdir(name)?;
            std::fs::create_dir_all(at).map_err(|e| format!("cannot make {at}: {e}"))?;
            // Hooks and groups of options are part of the package.
            script += &format!("cp -a {at}/. {own}/ && mount --bind {own} {at}\n", own = own.display());
        }
        let volfile = place.write("glusterd.vol", &volfile(place))?;
        script += &format!(
            "exec glusterd --volfile={} -p {} -l {}\n",
            volfile.display(),
            place.path("glusterd.pid"),
            place.path("log/glusterd.log")
        );
        let script = place.write("start-glusterd.sh", &script)?;
        let start = place.inside("unshare").args(["--mount", "--propagation", "private", "sh"]).arg(script);
        place.run("glusterd", start)?;
        let mut create = Self::cli(place, &["volume", "create", VOLUME]);
        if self.copies > 1 {
            create = create.args(["replica", &self.copies.to_string()]);
        }
        create = create.args(bricks);
        if self.copies > 1 {
            // All bricks are on this machine.
            create = create.arg("force");
        }
        place.run("volume-create", create)?;
        for [key, value] in SETTINGS {
            place.run("volume-set", Self::cli(place, &["volume", "set", VOLUME, key, value]))?;
        }
        place.run("volume-start", Self::cli(place, &["volume", "start", VOLUME])).map(drop)
    }

    fn mount(&self, place: &mut SystemPlace, number: usize) -> Result<(), String> {
        let log = format!("--log-file={}", place.path(&format!("client{number}.log")));
        let (server, volume) = (format!("--volfile-server={ADDRESS}"), format!("--volfile-id={VOLUME}"));
        let command = place.inside("glusterfs").args(["--process-name", "fuse", &server, &volume, &log]);
        place.run("glusterfs", command.arg(place.client(number))).map(drop)
    }
}

fn volfile(place: &SystemPlace) -> String {
    format!(
        "volume management\n    type mgmt/glusterd\n    option working-directory {lib}\n    option run-directory {run}\n    \
         option glusterd-sockfile {socket}\n    option transport-type socket\n    \
         option transport.socket.listen-port 24007\n    option transport.socket.bind-address {ADDRESS}\n    \
         option ping-timeout 0\n    option event-threads 1\nend-volume\n",
        lib = place.path("lib"),
        run = place.path("run"),
        socket = place.path("glusterd.socket"),
    )
}
