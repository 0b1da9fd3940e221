//! The orchestrator of burst buffers: makes, mounts, stages and destroys them as [`brindle_bb`] says.
//!
//! A buffer is a cluster of its own ([`crate::cluster`]) whose targets lie in slices of bricks. [`protocol`] is how `dacctl` and
//! `brindle bb` reach the orchestrator, [`store`] its state, [`orchestrator`] the locks and the loop around the state machine,
//! [`actions`] what is done to processes and mounts, [`copy`] the process that copies files as the user of a job,
//! [`logs`] what the orchestrator and its agents tell of their logs.
//!
//! Invariant: the stored row of a buffer names every resource of the buffer before the resource exists; the next start therefore finds
//! all of them, whatever was killed.

pub mod actions;
mod beneath;
mod brick;
pub mod copy;
mod elsewhere;
mod job_lock;
pub mod logs;
mod mounting;
pub mod node;
pub mod orchestrator;
mod part;
mod parts;
pub mod persistent;
pub mod protocol;
mod resize;
pub mod server;
mod staging;
pub mod store;
mod swap;
mod unmount;
pub mod view;

use std::path::{Path, PathBuf};
use std::time::Duration;

use brindle_types::{Code, Fault, Result};

pub use node::hub::Network;
pub use orchestrator::Orchestrator;

/// [`Config::keep_discarded`] unless told otherwise.
pub const KEEP_DISCARDED_DEFAULT: Duration = Duration::from_secs(24 * 3600);

/// Name of the file system of every buffer.
pub const FS: &str = "bb";

/// Name of the pool that is there without being made.
pub const POOL_DEFAULT: &str = "default";

/// Places of an orchestrator.
#[derive(Clone, Debug)]
pub struct Config {
    /// State of the orchestrator, and the work directories of buffers.
    pub dir: PathBuf,
    /// Where jobs see their buffers: `MOUNT_ROOT/JOB`.
    pub mount_root: PathBuf,
    /// Where the directory of each node is (`NODES_DIR/NODE/JOB`), for nodes that are all on this machine and show it at `mount_root`.
    /// Without it the only node is this host.
    pub nodes_dir: Option<PathBuf>,
    /// How long a buffer is kept that a hurried teardown has thrown away while its files had still to be staged out.
    pub keep_discarded: Duration,
    /// How compute nodes on other hosts reach this one; `None`: they do not.
    pub network: Option<Network>,
    /// The user, beside root, that may ask for everything: the one that slurmctld runs as.
    pub slurm_uid: u32,
}

impl Config {
    /// Directory of the mounts of a node that is on this machine, seen from here. Names of the mounts: the token of a job,
    /// [`private_name`], [`persistent_name`], [`swap_name`].
    pub fn mounts_of(&self, node: &str) -> PathBuf {
        self.nodes_dir.as_ref().map_or_else(|| self.mount_root.clone(), |dir| dir.join(node))
    }

    /// The directory of a job's buffer, as the job sees it.
    pub fn striped(&self, token: &str) -> PathBuf {
        self.mount_root.join(token).join(GLOBAL)
    }

    /// The directory of its node, as the job sees it.
    pub fn private(&self, token: &str) -> PathBuf {
        self.mount_root.join(private_name(token))
    }

    /// A persistent buffer, as the job sees it.
    pub fn persistent(&self, token: &str, name: &str) -> PathBuf {
        self.mount_root.join(persistent_name(token, name)).join(GLOBAL)
    }
}

/// The directory of a buffer that all nodes of a job share.
pub const GLOBAL: &str = "global";

/// The directory of a buffer with a directory for each node; only root enters it.
pub const PRIVATE: &str = "private";

/// The directory of a buffer with the swap file of each node; only root enters it.
pub const SWAP: &str = "swap";

/// The mount of a job on which a node finds its own directory.
pub fn private_name(token: &str) -> String {
    format!("{token}_private")
}

/// The mount of a job on which a node finds a persistent buffer.
pub fn persistent_name(token: &str, name: &str) -> String {
    format!("{token}_persistent_{name}")
}

/// The mount of a job for the swap of a node, and nothing else.
pub fn swap_name(token: &str) -> String {
    format!("{token}_swap")
}

/// Whether a word can be a part of a path: a token of a job, a name of a node.
pub fn is_plain(word: &str) -> bool {
    (1..=64).contains(&word.len())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !word.starts_with('.')
}

/// Makes a directory that everybody may pass through.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot make", dir.display().to_string(), &e))
}
