//! Announcements of servers, mounts and bare hosts that are usable ([`crate::process::Said`]).

use serde::{Deserialize, Serialize};

/// Announcement of a server that is ready.
#[derive(Debug, Serialize, Deserialize)]
pub struct Serving {
    /// Its targets.
    pub targets: Vec<ServedTarget>,
    /// Where its numbers are; empty for nowhere.
    pub metrics_url: String,
}

/// A target that is served.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServedTarget {
    /// Full name: `scratch-OST0000`.
    pub name: String,
    /// Where it is served.
    pub nid: String,
    /// Its directory.
    pub dir: String,
}

/// Announcement of a manager that is ready.
#[derive(Debug, Serialize, Deserialize)]
pub struct Managing {
    /// Where browsers find it.
    pub url: String,
    /// Where somebody logs in for the first time: a secret. `None` where there are users.
    pub first_log_in_url: Option<String>,
    /// SHA-256 of its certificate; empty without TLS.
    pub fingerprint: String,
}

/// Announcement of a bare host that runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Booted {
    /// Its init, by its pid on the machine.
    pub pid: u32,
}

/// Announcement of a mount that is usable.
#[derive(Debug, Serialize, Deserialize)]
pub struct Mounted {
    /// Where it is mounted.
    pub mount: String,
    /// Number of the connection under /sys/fs/fuse/connections.
    pub connection: u32,
    /// Where its numbers are; empty for nowhere.
    pub metrics_url: String,
}

/// Announcement of an agent that works.
#[derive(Debug, Serialize, Deserialize)]
pub struct Working {
    /// The archive that it serves.
    pub archive: String,
}
