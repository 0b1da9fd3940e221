//! Announcements of servers, mounts and bare hosts that are usable ([`crate::process::Said`]).

use serde::{Deserialize, Serialize};

/// Announcement of a server that is ready.
#[derive(Debug, Serialize, Deserialize)]
pub struct Serving {
    /// Targets of the process.
    pub targets: Vec<ServedTarget>,
    /// URL of the metrics; empty for none.
    pub metrics_url: String,
}

/// A target that is served.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServedTarget {
    /// Full name: `scratch-OST0000`.
    pub name: String,
    /// Address at which the target is served.
    pub nid: String,
    /// Directory of the target.
    pub dir: String,
}

/// Announcement of a manager that is ready.
#[derive(Debug, Serialize, Deserialize)]
pub struct Managing {
    /// URL of the console.
    pub url: String,
    /// URL for the first log-in; it contains a secret. `None` if there are users.
    pub first_log_in_url: Option<String>,
    /// SHA-256 of its certificate; empty without TLS.
    pub fingerprint: String,
}

/// Announcement of a bare host that runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Booted {
    /// Process id of the host's init on the machine.
    pub pid: u32,
}

/// Announcement of a mount that is usable.
#[derive(Debug, Serialize, Deserialize)]
pub struct Mounted {
    /// Mount point.
    pub mount: String,
    /// Number of the connection under /sys/fs/fuse/connections.
    pub connection: u32,
    /// URL of the metrics; empty for none.
    pub metrics_url: String,
}

/// Announcement of an agent that works.
#[derive(Debug, Serialize, Deserialize)]
pub struct Working {
    /// The archive that it serves.
    pub archive: String,
}
