//! A private Slurm on this machine with burst buffers of Brindle, for `brindle dev slurm`: real munged, slurmctld and slurmd.
//!
//! Everything lies in one directory: configuration, keys, sockets, logs, bricks. Each node is a slurmd in a mount namespace of its own, in
//! which `DIR/mnt` is the directory `DIR/nodes/NODE`; what the orchestrator mounts there appears in it. Jobs therefore see one path on all
//! nodes, and each node has a mount of its own there, as on real nodes.
//!
//! With [`hosts`] the daemons are on hosts of their own instead, which can be killed, frozen and cut off.
//!
//! Invariant: every process of the cluster is known by what it was started with or by its mount namespace, so that [`down`] finds all
//! of them, whatever was killed before.

mod conf;
mod down;
pub mod hosts;
mod packages;
mod up;

use std::path::{Path, PathBuf};

use brindle_types::Result;

use crate::bb;

pub use conf::{LUA, Plugin};
pub use down::{Downed, down};
pub use packages::install;
pub use up::{Up, prepare, up, wait_idle};

/// Most nodes: each is a slurmd.
pub const NODES_MAX: u8 = 16;

/// Places below the directory of the cluster.
#[derive(Clone, Debug)]
pub struct Places {
    /// The directory, absolute.
    pub dir: PathBuf,
}

impl Places {
    /// Places of the cluster in `dir`.
    pub fn of(dir: &Path) -> Result<Places> {
        Ok(Places { dir: PathBuf::from(crate::text(dir)?) })
    }

    /// `slurm.conf`, which `SLURM_CONF` names.
    pub fn conf(&self) -> PathBuf {
        self.dir.join("etc/slurm.conf")
    }

    /// The socket of the orchestrator.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("run/bb.sock")
    }

    fn key(&self) -> PathBuf {
        self.dir.join("run/munge.key")
    }

    fn dacctl(&self) -> PathBuf {
        self.dir.join("bin/dacctl")
    }

    fn nodes(&self) -> PathBuf {
        self.dir.join("nodes")
    }

    fn mount_root(&self) -> PathBuf {
        self.dir.join("mnt")
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.join("log").join(format!("{name}.log"))
    }

    /// The places of its orchestrator.
    fn bb(&self) -> bb::Config {
        bb::Config {
            dir: self.dir.join("bb"),
            mount_root: self.mount_root(),
            nodes_dir: Some(self.nodes()),
            network: None,
            keep_discarded: bb::KEEP_DISCARDED_DEFAULT,
            slurm_uid: 0,
        }
    }
}

/// Listener for messages while the cluster starts or ends.
pub type Tell<'a> = &'a dyn Fn(&str);
