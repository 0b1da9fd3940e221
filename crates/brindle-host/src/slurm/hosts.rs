//! A private Slurm on hosts of their own: the bare hosts of a development cluster ([`crate::cluster`]) in the same directory.
//!
//! | host | what runs there |
//! |---|---|
//! | `head` | the MGS of the cluster that the hosts have joined, the orchestrator of burst buffers, munged, slurmctld |
//! | `oss1`, `oss2`, ... | an agent, for the brick of the host |
//! | `n1`, `n2`, ... | an agent and slurmd |
//!
//! Each host has a script that starts what runs there; it runs it after each boot. Hosts share the directory of the cluster, and with it
//! the socket of munged. Buffers are mounted in a directory that each host has for itself.
//!
//! Invariant: everything runs on hosts, so it ends with the hosts of the development cluster.

use std::path::Path;

use brindle_bb::Buffer;
use brindle_bb::pool::GRANULE_DEFAULT_BYTES;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};

use super::conf::{self, Daemon, Daemons, Plugin};
use super::up::munged_options;
use super::{Places, Tell, up};
use crate::Host;
use crate::bb::protocol::{self, Reply, Request};
use crate::bb::store::Store;
use crate::cluster::init::files_of;
use crate::cluster::{Cluster, Event, Hosts, On, Up, image};

/// The host of slurmctld and the orchestrator.
pub const HEAD: &str = "head";
/// Directory of the brick of a host, on that host.
pub const BRICK: &str = "/var/lib/brindle/brick";
/// Where jobs find their buffers. Each host has this directory for itself.
const MOUNT_ROOT: &str = "/run/brindle/jobs";
/// Most hosts with bricks.
pub const STORAGE_MAX: u8 = 16;
/// Port of slurmctld, as Slurm has it.
const CONTROLLER_PORT: u16 = 6817;
/// Port of slurmd, as Slurm has it.
const NODE_PORT: u16 = 6818;
/// How often a head that boots looks for its orchestrator, ten times a second, before it starts slurmctld.
const LOOKS: u32 = 300;

/// A cluster on hosts of its own.
#[derive(Clone, Debug)]
pub struct OnHosts {
    /// Number of nodes.
    pub nodes: u8,
    /// Number of hosts with bricks.
    pub storage: u8,
    /// Bits a second of each link, each way; `None`: as fast as the machine is.
    pub rate_bits: Option<u64>,
    /// Size of the pool of bricks.
    pub pool_bytes: u64,
    /// Slurm's plug-in.
    pub plugin: Plugin,
}

impl OnHosts {
    /// Names of the hosts with bricks.
    pub fn storage_names(&self) -> Vec<String> {
        (1..=self.storage).map(|n| format!("oss{n}")).collect()
    }

    /// Names of the nodes, as Slurm has them.
    pub fn node_names(&self) -> Vec<String> {
        (0..usize::from(self.nodes)).map(conf::node).collect()
    }

    /// Bytes of each brick.
    pub fn brick_bytes(&self) -> Result<u64> {
        let each = self.pool_bytes / u64::from(self.storage.max(1));
        let whole = each / GRANULE_DEFAULT_BYTES * GRANULE_DEFAULT_BYTES;
        if whole > 0 {
            return Ok(whole);
        }
        let least_mib = u64::from(self.storage) * (GRANULE_DEFAULT_BYTES >> 20);
        Err(Fault::new(Code::BadArgument)
            .what("cannot divide a pool of")
            .subject(format!("{} among {} hosts", format_bytes(self.pool_bytes), self.storage))
            .why(format!("each brick has {} at least", format_bytes(GRANULE_DEFAULT_BYTES)))
            .data("nothing was changed")
            .next(format!("give a larger pool: --bb-pool {least_mib}MiB")))
    }

    /// Starts the hosts, which are empty machines, in a new or empty directory.
    pub fn make(&self, on: &On) -> Result<Cluster> {
        let names: Vec<String> =
            std::iter::once(HEAD.to_owned()).chain(self.storage_names()).chain(self.node_names()).collect();
        on.up(&Up {
            osts: None,
            mount_points: Vec::new(),
            mounts: true,
            archive: None,
            fs: None,
            ost_size_bytes: None,
            mdt_size_bytes: None,
            image_kind: image::Kind::Ext4,
            manager: false,
            hosts: Some(Hosts {
                servers: names.len(),
                clients: 0,
                rate_bits: self.rate_bits,
                rails: None,
                bare: true,
                security: None,
            }),
            bare_names: names,
        })
    }

    /// Makes the files that Slurm reads on these hosts.
    pub fn make_files(&self, host: &Host, places: &Places, cluster: &Cluster) -> Result<()> {
        let daemon = |name: &str, port| {
            let found = cluster.host(name);
            let found =
                found.ok_or_else(|| Fault::new(Code::Bug).why(format!("no host is called {name}")))?;
            Ok(Daemon { host: name.to_owned(), address: found.address, port })
        };
        let controller = daemon(HEAD, CONTROLLER_PORT)?;
        let nodes = self.node_names().iter().map(|name| daemon(name, NODE_PORT)).collect::<Result<_>>()?;
        up::make_files(host, places, &Daemons { controller, nodes }, self.plugin)
    }
}

/// Scripts of the hosts: each starts something in the background, and is run again after a boot.
pub struct Scripts<'a> {
    /// Places of the cluster.
    pub places: &'a Places,
    /// Path of the running binary.
    pub program: &'a Path,
}

impl Scripts<'_> {
    /// The head serves the MGS.
    pub fn serve(&self) -> String {
        self.background(&format!("serve --log {}", quoted(&self.places.log("serve.head"))))
    }

    /// The head runs the orchestrator.
    pub fn orchestrate(&self) -> String {
        let (socket, log) = (quoted(&self.places.socket()), quoted(&self.places.log("bb")));
        self.background(&format!(
            "bb serve --listen {HEAD} --mount-root {MOUNT_ROOT} --socket {socket} --log {log}"
        ))
    }

    /// The head runs munged and slurmctld, once the orchestrator answers: Slurm asks it for the pools when it starts.
    pub fn control(&self) -> String {
        let (program, socket) = (quoted(self.program), quoted(&self.places.socket()));
        let run_dir = self.places.dir.join("run");
        let stale = ["munge.sock", "munge.sock.lock", "munge.pid"].map(|name| quoted(&run_dir.join(name)));
        let munged: Vec<String> = munged_options(self.places).iter().map(|word| quoted_word(word)).collect();
        let (conf, dacctl) = (quoted(&self.places.conf()), quoted(&self.places.dacctl()));
        format!(
            "for look in $(seq {LOOKS}); do {program} bb pool --socket {socket} > /dev/null 2>&1 && break; sleep 0.1; done\n\
             rm -f {stale}\n\
             munged {munged} || exit 1\n\
             cd {dir} || exit 1\n\
             SLURM_CONF={conf} {variable}={socket} BRINDLE_DACCTL={dacctl} slurmctld -f {conf} || exit 1\n",
            stale = stale.join(" "),
            munged = munged.join(" "),
            dir = quoted(&self.places.dir),
            variable = protocol::SOCKET_VARIABLE,
        )
    }

    /// A host with a brick runs an agent.
    pub fn storage(&self, host: &str) -> String {
        format!("mkdir -p {BRICK}\n{}", self.agent(host, ""))
    }

    /// A node runs slurmd, and an agent that stages files of the machine, whose file system all hosts share.
    pub fn node(&self, name: &str) -> String {
        let (conf, dir) = (quoted(&self.places.conf()), quoted(&self.places.dir));
        let agent = self.agent(name, "--stage /");
        format!("{agent}cd {dir} || exit 1\nSLURM_CONF={conf} slurmd -f {conf} -N {name} || exit 1\n")
    }

    fn agent(&self, host: &str, options: &str) -> String {
        let log = quoted(&self.places.log(&format!("agent.{host}")));
        self.background(&format!("bb agent {HEAD} --mount-root {MOUNT_ROOT} {options} --log {log}"))
    }

    fn background(&self, words: &str) -> String {
        format!("setsid {} {words} < /dev/null > /dev/null 2>&1 &\n", quoted(self.program))
    }
}

/// A path as a word of the shell.
fn quoted(path: &Path) -> String {
    quoted_word(&path.display().to_string())
}

fn quoted_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether a directory has a Slurm on hosts of its own, or what is left of one.
pub fn are_in(dir: &Path) -> bool {
    Cluster::load(dir).is_ok_and(|cluster| cluster.is_bare() && cluster.host(HEAD).is_some())
}

/// Ends all hosts, with all that runs there; the buffers that had files to be staged out. The directory stays.
pub fn end(host: &Host, places: &Places, tell: Tell) -> Result<Vec<Buffer>> {
    if Cluster::load(&places.dir)?.host(HEAD).is_some_and(|head| !head.frozen) {
        end_swap(places);
    }
    let warn = |event: Event| {
        if let Event::Warning(fault) = event {
            tracing::warn!(%fault, "while the hosts end");
        }
    };
    On { host, dir: places.dir.clone(), tell: &warn }.down(false)?;
    tell("all hosts have ended");
    let state = files_of(&places.dir, HEAD).join("lib/bb");
    if !state.join("state").exists() {
        return Ok(Vec::new());
    }
    let buffers = Store::open(host, &state)?.buffers()?.into_iter().map(|(_, buffer)| buffer);
    Ok(buffers.filter(|buffer| buffer.is_pending() || buffer.persistent).collect())
}

/// Has swap of jobs turned off while the servers of their buffers run: afterwards nobody could read the pages.
fn end_swap(places: &Places) {
    let ask = |request: &Request| protocol::ask(&places.socket(), request, std::time::Duration::ZERO);
    let buffers = match ask(&Request::List) {
        Ok(Reply::Buffers(buffers)) => buffers,
        // Without an orchestrator there is nobody who knows of swap.
        Ok(_) | Err(_) => return,
    };
    for buffer in buffers.into_iter().filter(|buffer| buffer.swap.is_some()) {
        if let Err(fault) = ask(&Request::PostRun(buffer.token.clone())) {
            tracing::warn!(%fault, job = buffer.token, "swap may be on still");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(storage: u8, pool_bytes: u64) -> OnHosts {
        OnHosts { nodes: 2, storage, rate_bits: None, pool_bytes, plugin: Plugin::Datawarp }
    }

    #[test]
    fn a_pool_is_divided_among_the_hosts_with_bricks() {
        assert_eq!(wanted(3, 100 << 20).brick_bytes().unwrap(), 32 << 20);
        let refused = wanted(3, 32 << 20).brick_bytes().unwrap_err();
        assert!(refused.next.ends_with("--bb-pool 48MiB"), "{refused:?}");
        assert_eq!(wanted(2, 1).storage_names(), ["oss1", "oss2"]);
        assert_eq!(wanted(2, 1).node_names(), ["n1", "n2"]);
    }

    #[test]
    fn paths_are_words_of_the_scripts_whatever_is_in_them() {
        let places = Places { dir: "/d'; reboot '".into() };
        let scripts = Scripts { places: &places, program: Path::new("/p q") };
        assert!(
            scripts
                .serve()
                .starts_with("setsid '/p q' serve --log '/d'\\''; reboot '\\''/log/serve.head.log' <")
        );
        assert!(scripts.control().contains("slurmctld -f '/d'\\''; reboot '\\''/etc/slurm.conf' ||"));
        assert!(scripts.node("n1").contains("slurmd -f '/d'\\''; reboot '\\''/etc/slurm.conf' -N n1"));
    }
}
