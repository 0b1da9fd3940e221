//! Bare hosts: empty machines, on which an installation can be tried.
//!
//! A bare host has a network, a name, and files of its own below `DIR/hosts/NAME`, but no target and no mount. The host's init
//! ([`super::init`]) keeps the namespaces; [`super::run_on`] has started every other process there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, Result};
use rustix::process::Signal;

use super::init::{HOSTS_FILE, MOUNT_POINTS, files_of};
use super::network::{self, Link, Network};
use super::node::{READY_LIMIT, with_log};
use super::state::{Cluster, HostState, Run};
use super::{Hosts, On};
use crate::announcement::Booted;
use crate::mounts;
use crate::process::{Identity, Starting};

/// Most times that the processes of a host are looked through while they are stopped: one that is not stopped yet may start another.
const STOP_ROUNDS: usize = 100;

/// The hosts of a new bare cluster: those of these names, and h1, h2, ... beyond them.
pub fn wanted_bare(cluster: &mut Cluster, dir: &Path, hosts: Hosts, names: &[String]) -> Result<()> {
    network::check_tools()?;
    let network = Network::new(dir, hosts.rails.unwrap_or(1))?;
    for number in (1..).take(hosts.servers) {
        let name = names.get(usize::from(number) - 1).cloned().unwrap_or_else(|| format!("h{number}"));
        cluster.hosts.push(HostState {
            address: network.address(number),
            link: Link { rate_bits: hosts.rate_bits, ..Link::default() },
            further: vec![Link { rate_bits: hosts.rate_bits, ..Link::default() }; network.further.len()],
            frozen: false,
            log: dir.join("log").join(format!("{name}.log")),
            bare: true,
            init: None,
            name,
        });
    }
    cluster.network = Some(network);
    Ok(())
}

/// Starts the init of a host.
pub fn spawn(program: &Path, dir: &Path, cluster: &Cluster, index: usize) -> Result<Starting> {
    let host = &cluster.hosts[index];
    let files = files_of(dir, &host.name);
    make_files(cluster, &files)?;
    let arguments = [
        "dev".to_owned(),
        "host-init".to_owned(),
        format!("--files={}", files.display()),
        format!("--log={}", host.log.display()),
    ];
    let within = cluster.within(Some(&host.name));
    Starting::spawn_within(within.as_ref(), program, &host.name, &arguments, &host.log)
}

/// Waits until a host is booted, and records its init.
pub fn ready(cluster: &mut Cluster, index: usize, starting: Starting) -> Result<()> {
    let host = &mut cluster.hosts[index];
    let (_, said): (_, Booted) = starting.ready(READY_LIMIT).map_err(|f| with_log(f, &host.log))?;
    let ended = || {
        Fault::new(Code::ProcessFailed)
            .what("cannot start")
            .subject(host.name.clone())
            .why("its init ended at once")
            .next(format!("read {}", host.log.display()))
    };
    host.init = Some(Run::of(Identity::of(said.pid).ok_or_else(ended)?));
    Ok(())
}

/// Makes the files of a host. The host's /run does not survive a loss of power.
fn make_files(cluster: &Cluster, files: &Path) -> Result<()> {
    let run = files.join("run");
    if run.exists() {
        std::fs::remove_dir_all(&run).map_err(|e| cannot("cannot empty", &run, &e))?;
    }
    for (name, _) in MOUNT_POINTS {
        let path = files.join(name);
        std::fs::create_dir_all(&path).map_err(|e| cannot("cannot make", &path, &e))?;
    }
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for host in &cluster.hosts {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {}", host.address, host.name);
    }
    let path = files.join(HOSTS_FILE);
    std::fs::write(&path, text).map_err(|e| cannot("cannot write", &path, &e))
}

fn cannot(what: &'static str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(Code::NotWritable, what, path.display().to_string(), e)
}

impl On<'_> {
    /// Makes the directories of this machine that bare hosts mount theirs on, as far as they are missing. The state names them first.
    pub(super) fn make_mount_points(&self, cluster: &mut Cluster) -> Result<()> {
        for at in MOUNT_POINTS.map(|(_, at)| PathBuf::from(at)) {
            if at.exists() {
                continue;
            }
            if !cluster.made_dirs.contains(&at) {
                cluster.made_dirs.push(at.clone());
                cluster.save(&self.dir)?;
            }
            std::fs::create_dir_all(&at).map_err(|e| cannot("cannot make", &at, &e))?;
        }
        Ok(())
    }
}

/// Removes the directories that were made for bare hosts, unless something lies in them. A directory that hosts of another cluster use
/// stays: they would lose what they have mounted there.
pub fn remove_mount_points(cluster: &mut Cluster) {
    if cluster.made_dirs.is_empty() {
        return;
    }
    let used = mounts::elsewhere();
    cluster.made_dirs.retain(|at| {
        let is_used = used.contains(at);
        if !is_used {
            // The directory is in use, or gone already.
            let _ = std::fs::remove_dir(at);
        }
        is_used
    });
}

impl Cluster {
    /// Whether its hosts are bare.
    pub fn is_bare(&self) -> bool {
        self.hosts.iter().any(|host| host.bare)
    }

    /// The init of a bare host, which must run and not be frozen.
    pub(super) fn running_init(&self, index: usize, dir: &Path) -> Result<OwnedFd> {
        let host = &self.hosts[index];
        let refusal = |why: &'static str, verb: &str| {
            Fault::new(Code::ProcessFailed)
                .what("cannot run a command on")
                .subject(host.name.clone())
                .why(why)
                .data("nothing was changed")
                .next(format!("brindle dev host {verb} --dir {} {}", dir.display(), host.name))
        };
        let init = host.init.as_ref().and_then(|run| run.identity.open());
        let init = init.ok_or_else(|| refusal("it does not run", "start"))?;
        if host.frozen { Err(refusal("it is frozen", "thaw")) } else { Ok(init) }
    }
}

/// Sends a signal to all processes of a bare host but its init.
pub fn signal_all(host: &str, init: Identity, signal: Signal) -> Result<()> {
    let failed = |e: &std::io::Error| {
        Fault::io(Code::ProcessFailed, "cannot signal the processes of", host.to_owned(), e)
    };
    let mut done = vec![init];
    // Processes that go on may start others, which run anyway: one look finds all that were stopped.
    let rounds = if signal == Signal::STOP { STOP_ROUNDS } else { 1 };
    for _ in 0..rounds {
        let mut found = processes_with(init).map_err(|e| failed(&e))?;
        found.retain(|process| !done.contains(process));
        if found.is_empty() {
            break;
        }
        for process in found {
            process.try_signal(signal).map_err(|e| failed(&e))?;
            done.push(process);
        }
    }
    Ok(())
}

/// Has `dev host run` go on wherever it is stopped. An init that was killed ends when all processes of its host were waited for, and those that
/// were sent from outside have their parents there.
pub fn wake_senders(init: Identity) {
    // An init that has ended has no processes.
    let Ok(found) = pids_with(init) else { return };
    let others = found.iter().filter(|pid| **pid != init.pid);
    let parents: BTreeSet<u32> = others.filter_map(|pid| parent_of(*pid)).collect();
    for parent in parents.into_iter().filter(|parent| !found.contains(parent)).filter_map(Identity::of) {
        parent.signal(Signal::CONT);
    }
}

/// The live processes in the pid namespace of an init.
fn processes_with(init: Identity) -> std::io::Result<Vec<Identity>> {
    let before: Vec<Identity> = all_pids()?.filter_map(Identity::of).collect();
    // Identities are older than the look at their namespaces: a signal to one does not reach a later process of the same pid.
    let inside = pids_with(init)?;
    Ok(before.into_iter().filter(|process| inside.contains(&process.pid)).collect())
}

/// The pids in the pid namespace of an init, also of processes that have ended and were not waited for.
fn pids_with(init: Identity) -> std::io::Result<BTreeSet<u32>> {
    let namespace = |pid: u32| std::fs::metadata(format!("/proc/{pid}/ns/pid")).map(|meta| meta.ino());
    let wanted = namespace(init.pid)?;
    Ok(all_pids()?.filter(|pid| namespace(*pid).is_ok_and(|found| found == wanted)).collect())
}

fn all_pids() -> std::io::Result<impl Iterator<Item = u32>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat =
        procfs::process::Process::new(i32::try_from(pid).ok()?).and_then(|process| process.stat()).ok()?;
    u32::try_from(stat.ppid).ok()
}
