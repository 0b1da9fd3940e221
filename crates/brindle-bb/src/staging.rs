//! How far a copy into or out of a buffer is, and which hosts copy.

use serde::{Deserialize, Serialize};

/// A copy that runs, or ran last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Staging {
    /// Whether into the buffer.
    pub stages_in: bool,
    /// Whether it has ended.
    pub ended: bool,
    /// Files to look at; 0 as long as nobody has counted them.
    pub all_files: u64,
    /// Bytes that the destination did not have at the start.
    pub all_bytes: u64,
    /// The hosts, the orchestrator's own first.
    pub hosts: Vec<StagingHost>,
}

impl Staging {
    /// Files that were copied.
    pub fn files(&self) -> u64 {
        self.hosts.iter().map(|host| host.files).sum()
    }

    /// Bytes that were copied.
    pub fn bytes(&self) -> u64 {
        self.hosts.iter().map(|host| host.bytes).sum()
    }
}

/// A host that copies, or why it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StagingHost {
    /// Name.
    pub name: String,
    /// Files that it has copied as a whole.
    pub files: u64,
    /// Bytes that it has copied.
    pub bytes: u64,
    /// Why it is not used, or no longer; empty where it is.
    pub reason: String,
}
