//! Targets and mounts of one host, as processes: made, started, watched, ended.
//!
//! `brindle dev` runs a whole cluster with this crate; daemons of hosts and of burst buffers start targets and mounts with it. Each target
//! is a process `brindle serve`, each mount a process `brindle mount`.
//!
//! Invariant: each resource is written down before it is started or made ([`cluster::state`]), so that it is found again whatever is killed
//! in between. A process is signalled only if more than its number identifies it ([`process`]).
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

pub mod access;
pub mod announcement;
pub mod bb;
pub mod child;
pub mod cluster;
pub mod config_backup;
pub mod control;
pub mod daemon;
mod disk_watch;
pub mod enrolment;
pub mod format;
pub mod hardware;
mod hosting;
pub mod identity;
pub mod listener;
mod loops;
mod mgt;
pub mod mounts;
pub mod move_config;
pub mod policy;
pub mod policy_text;
pub mod process;
pub mod replica;
pub mod requirements;
pub mod service;
pub mod shared;
pub mod slurm;
pub mod spare;
pub mod superblocks;
pub mod system;
pub mod target_dir;
pub mod users;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::servers::Servers;
use brindle_net::Transport;
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Result};

/// Program of this host's processes, and connections to servers.
pub struct Host {
    /// The `brindle` program.
    pub program: PathBuf,
    /// The way to servers.
    pub servers: Servers,
    runtime: tokio::runtime::Handle,
}

impl Host {
    /// Host whose processes run the same program as this one.
    pub fn new(runtime: &tokio::runtime::Runtime) -> Result<Host> {
        let runtime = runtime.handle().clone();
        let seams = brindle_stdx::real::seams(runtime.clone());
        Host::with(servers(&seams), runtime)
    }

    /// Host with existing connections to servers and an existing runtime.
    pub fn with(servers: Servers, runtime: tokio::runtime::Handle) -> Result<Host> {
        let program = std::env::current_exe()
            .map_err(|e| Fault::io(Code::ProcessFailed, "cannot find", "this program", &e))?;
        Ok(Host { program, servers, runtime })
    }

    /// Time, tasks, chance, disk.
    pub fn seams(&self) -> &Seams {
        self.servers.seams()
    }

    /// Waits for work on the host's threads. Not to be called on one of them.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

/// The way to servers from this host: over TCP; a mount here tells the map where no MGS answers. Call it within a tokio runtime, or with seams of
/// one.
pub fn servers(seams: &Seams) -> Servers {
    let transport: Arc<dyn Transport> = Arc::new(identity::CommandTransport::new(seams.clone()));
    Servers::new(seams.clone(), transport, Arc::new(control::MountsHere::new(seams.clone())), &name())
}

/// Name of this host.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A path, absolute, as the text that disks and messages use.
pub fn text(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path)
        .map_err(|e| Fault::io(Code::BadArgument, "cannot use the path", path.display().to_string(), &e))?;
    absolute.to_str().map(str::to_owned).ok_or_else(|| {
        Fault::new(Code::BadArgument)
            .what("cannot use the path")
            .subject(path.display().to_string())
            .why("it is not UTF-8")
    })
}

/// Mounting and loop devices need root, and so do targets that keep owners.
pub fn need_root(what: &'static str) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Fault::new(Code::NeedsRoot).what(what).why("this user is not root"))
}

#[cfg(test)]
mod tests;
