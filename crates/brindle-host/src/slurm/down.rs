//! Removal of the private Slurm: every process, mount and file.

use std::path::Path;
use std::time::Duration;

use brindle_bb::Buffer;
use brindle_types::{Code, Fault, Result};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;

use super::up::anything_mounted;
use super::{Places, Tell, hosts};
use crate::bb::Orchestrator;
use crate::process::Identity;
use crate::{Host, mounts, need_root};

/// Longest time for processes to end by themselves, and again after they were killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Looks for processes that others started meanwhile.
const ROUNDS_MAX: usize = 10;

/// A cluster that has ended.
pub enum Downed {
    /// The directory does not exist.
    NothingThere,
    /// The cluster is gone, and so are the files of these buffers that had not been staged out.
    Gone(Vec<Buffer>),
}

/// Ends the cluster and removes its directory.
pub fn down(host: &Host, places: &Places, tell: Tell) -> Result<Downed> {
    need_root("cannot end Slurm")?;
    let dir = &places.dir;
    if !dir.exists() {
        return Ok(Downed::NothingThere);
    }
    let refused = |why: String| {
        Fault::new(Code::TargetBusy).what("will not remove").subject(dir.display().to_string()).why(why)
    };
    let on_hosts = hosts::are_in(dir);
    if !on_hosts && !places.conf().exists() && !places.key().exists() {
        return Err(refused("it holds no Slurm cluster of brindle dev slurm".to_owned()));
    }
    let lost = if on_hosts { hosts::end(host, places, tell)? } else { end(host, places, tell)? };
    if let Some(left) = anything_mounted(dir) {
        return Err(refused(format!("{left} is still mounted")));
    }
    std::fs::remove_dir_all(dir)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot remove", dir.display().to_string(), &e))?;
    Ok(Downed::Gone(lost))
}

/// Ends every process and unmounts everything; the buffers that had files to be staged out.
pub fn end(host: &Host, places: &Places, tell: Tell) -> Result<Vec<Buffer>> {
    end_where(|process| is_of_slurm(places, process))?;
    tell("slurmd, slurmctld and munged have ended");
    end_where(|process| has_word(process, &format!("--socket={}", places.socket().display())))?;
    let lost = match places.bb().dir.join("state").exists() {
        true => Orchestrator::open(host, places.bb())?.destroy_all()?,
        false => Vec::new(),
    };
    let nodes = places.nodes();
    while mounts::find(&nodes).is_some() {
        unmount(&nodes, UnmountFlags::NOFOLLOW).map_err(|e| {
            Fault::io(Code::TargetBusy, "cannot unmount", nodes.display().to_string(), &e.into())
        })?;
    }
    tell("buffers, bricks and the orchestrator are gone");
    Ok(lost)
}

/// Ends processes until there are none.
fn end_where(is_it: impl Fn(&procfs::process::Process) -> bool) -> Result<()> {
    for _ in 0..ROUNDS_MAX {
        // A process that ends meanwhile is passed over.
        let all = procfs::process::all_processes().into_iter().flatten().flatten();
        let own = std::process::id();
        let found: Vec<Identity> = all
            .filter(|process| u32::try_from(process.pid).is_ok_and(|pid| pid != own) && is_it(process))
            .filter_map(|process| Identity::of(u32::try_from(process.pid).ok()?))
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        for signal in [Signal::TERM, Signal::KILL] {
            found.iter().for_each(|process| process.signal(signal));
            for process in &found {
                // The next round looks for processes that are left.
                let _ = process.wait_end(PATIENCE);
            }
        }
    }
    Err(Fault::new(Code::ProcessFailed).what("cannot end all processes of the cluster"))
}

/// A process of the nodes is known by its mount namespace, the controller and munged by their configuration.
fn is_of_slurm(places: &Places, process: &procfs::process::Process) -> bool {
    let word = |path: &Path| path.display().to_string();
    let in_node = || {
        let proc_dir = format!("/proc/{}", process.pid);
        mounts::all_of(Path::new(&proc_dir)).iter().any(|line| line.mount_point == places.mount_root())
    };
    let is_daemon = || {
        process
            .cmdline()
            .is_ok_and(|w| w.first().is_some_and(|w| w.ends_with("slurmctld") || w.ends_with("slurmd")))
    };
    (has_word(process, &word(&places.conf())) && is_daemon())
        || has_word(process, &format!("--key-file={}", places.key().display()))
        || has_word(process, &word(&places.dacctl()))
        || in_node()
}

fn has_word(process: &procfs::process::Process, word: &str) -> bool {
    process.cmdline().is_ok_and(|words| words.iter().any(|w| w == word))
}
