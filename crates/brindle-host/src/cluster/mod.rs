//! A cluster on this host: one process per target and per mount, all state below one directory ([`state`]).
//!
//! Invariant: the state file names every process, image and mount point that was made, before the next one is made, so that
//! [`down`] finds them all, whatever was killed in between.

mod bare;
mod down;
mod hosts;
pub mod image;
pub mod init;
mod manager;
pub mod network;
mod node;
mod osts;
mod part;
mod run;
pub mod s3;
pub mod security;
mod state;
mod up;

use std::path::{Path, PathBuf};

use brindle_admin::place::{DevCluster, FsLocation};
use brindle_types::{Code, Fault, Nid, Result, TargetId};

use crate::Host;
use crate::announcement::Managing;
use crate::mounts;
use crate::target_dir::DirLock;

pub use down::{Down, end_all};
pub use hosts::{HostView, HostsView};
pub use node::{Killed, Started};
pub use osts::Removed;
pub use part::Wanted;
pub use run::run_on;
pub use state::{
    AgentState, Cluster, HostState, Image, MANAGER, ManagerState, Mount, Reach, Run, Server, alive,
};
pub use up::{ArchiveAt, Hosts, Up};

/// Name of the file system unless told otherwise.
const FS_DEFAULT: &str = "dev";
/// OSTs unless told otherwise.
const OSTS_DEFAULT: u16 = 4;
/// Most OSTs: each is a process.
pub const OSTS_MAX: u16 = 256;

/// Event while a cluster is changed.
#[derive(Debug)]
pub enum Event<'a> {
    /// A second command changes the cluster, and is waited for: the fault names the command.
    Waits(&'a Fault),
    /// A server is ready.
    Serves {
        /// Name of the server: `ost0`.
        name: &'a str,
        /// Full name of its target.
        target: String,
        /// Address at which the server listens.
        address: String,
    },
    /// A bare host runs.
    Runs {
        /// Name of the host: `h1`.
        name: &'a str,
        /// Address of the host.
        address: String,
    },
    /// A policy engine works.
    Policy {
        /// Name of the policy engine: `policy`.
        name: &'a str,
        /// The text that it carries out.
        file: &'a Path,
    },
    /// An agent works.
    Agent {
        /// Name of the agent: `agent1`.
        name: &'a str,
        /// Archive of the agent, as its back end is named.
        archive: &'a str,
    },
    /// The S3 server works.
    Stores {
        /// Name of the server: `s3`.
        name: &'a str,
        /// Endpoint of the server.
        endpoint: &'a str,
    },
    /// A mount is usable.
    Mounted {
        /// Name of the mount: `client0`.
        name: &'a str,
        /// Mount point.
        mount_point: &'a Path,
    },
    /// The manager is ready.
    Manages {
        /// Announcement with the URL of the console, and the URL for the first log-in.
        announced: &'a Managing,
    },
    /// The named MDT does not know of a change yet; it takes the change in when it finds the MGS.
    NotTold(String),
    /// A step has failed, and the command goes on.
    Warning(Fault),
}

/// Listener for events.
pub type Tell<'a> = &'a dyn Fn(Event);

/// A cluster's directory, the host that it runs on, and who is told what happens.
pub struct On<'a> {
    /// The host.
    pub host: &'a Host,
    /// Absolute directory of the cluster.
    pub dir: PathBuf,
    /// Listener for events.
    pub tell: Tell<'a>,
}

impl On<'_> {
    /// Keeps other commands from changing the cluster meanwhile: they wait.
    fn lock(&self) -> Result<DirLock> {
        state::lock(&self.dir, self.tell)
    }

    fn warn(&self, fault: Fault) {
        (self.tell)(Event::Warning(fault));
    }

    /// The file system of the cluster.
    fn place(&self, cluster: &Cluster) -> FsLocation {
        let mgs = cluster.mgs().into_iter().collect();
        FsLocation {
            mgs,
            fs: Some(cluster.fs.clone()),
            dev: Some(DevCluster { dir: self.dir.clone(), of_hosts: !cluster.hosts.is_empty() }),
        }
    }

    /// The address of its MGS, which must run; `what` cannot be done without.
    fn running_mgs(&self, cluster: &Cluster, what: &'static str) -> Result<Nid> {
        let runs = cluster.servers.iter().any(|s| s.target == TargetId::MGT && alive(s.run.as_ref()));
        cluster.mgs().filter(|_| runs).ok_or_else(|| {
            Fault::new(Code::NoMgs)
                .what(what)
                .subject(self.dir.display().to_string())
                .why("its MGS does not run")
                .data("nothing was changed")
                .next(format!("start it: brindle dev up --dir {}", self.dir.display()))
        })
    }

    /// Tells of MDTs that do not know of a change.
    fn not_told(&self, names: Vec<String>) {
        names.into_iter().for_each(|name| (self.tell)(Event::NotTold(name)));
    }
}

/// Whether there is a cluster in `dir`, or what is left of one.
pub fn exists(dir: &Path) -> bool {
    !matches!(Cluster::load(dir), Err(fault) if fault.code == Code::NoSuchCluster)
}

/// The file system of the cluster in `dir`.
pub fn place_of(dir: &Path) -> Result<FsLocation> {
    let cluster = Cluster::load(dir)?;
    crate::identity::use_dev_cluster(dir);
    if let Some(host) = cluster.hosts.first().filter(|host| host.bare) {
        let (dir, host) = (dir.display(), &host.name);
        return Err(Fault::new(Code::NoMgs)
            .subject(dir.to_string())
            .why("its hosts are bare: it is not known what was installed on them")
            .next(format!("ask on a host: brindle dev host run --dir {dir} {host} -- brindle status")));
    }
    let mgs = cluster.mgs().ok_or_else(|| {
        Fault::new(Code::NoMgs)
            .subject(dir.display().to_string())
            .why("the cluster is stopped")
            .next(format!("start it: brindle dev up --dir {}", dir.display()))
    })?;
    let dev = DevCluster { dir: dir.to_owned(), of_hosts: !cluster.hosts.is_empty() };
    Ok(FsLocation { mgs: vec![mgs], fs: Some(cluster.fs), dev: Some(dev) })
}

/// Directories of the targets of a cluster, reachable while this lives.
pub struct TargetDirs {
    /// The directories.
    pub dirs: Vec<PathBuf>,
    /// Directories whose images were mounted for this value.
    attached: Vec<PathBuf>,
}

impl TargetDirs {
    /// The directories of the targets of the cluster in `dir`; images that are not mounted are mounted meanwhile.
    pub fn of(dir: &Path) -> Result<TargetDirs> {
        let cluster = Cluster::load(dir)?;
        let dirs = cluster.servers.iter().map(|s| s.dir.clone()).collect();
        let mut found = TargetDirs { dirs, attached: Vec::new() };
        for server in &cluster.servers {
            if let Some(image) = server.image.as_ref().filter(|_| mounts::find(&server.dir).is_none()) {
                image::attach(image, &server.dir)?;
                found.attached.push(server.dir.clone());
            }
        }
        Ok(found)
    }

    /// Unmounts the images again, all that can be; the first fault.
    pub fn release(mut self) -> Result<()> {
        let mut first = Ok(());
        for dir in std::mem::take(&mut self.attached) {
            first = first.and(image::detach(&dir));
        }
        first
    }
}

impl Drop for TargetDirs {
    fn drop(&mut self) {
        for dir in &self.attached {
            if let Err(fault) = image::detach(dir) {
                tracing::warn!(%fault, "an image stays mounted");
            }
        }
    }
}
