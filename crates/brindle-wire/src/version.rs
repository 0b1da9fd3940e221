//! Versions of the protocol, and the hello that both sides begin a connection with.
//!
//! Called by `brindle-net` at connect. Hellos keep their encoding in every version, so that peers of any two
//! versions can at least tell each other why they cannot talk.

use std::fmt;

use brindle_types::{Code, Fault};
use serde::{Deserialize, Serialize};

/// Newest version that this release speaks.
pub const PROTOCOL_VERSION: u16 = 3;
/// Oldest version that this release speaks: the one before. [`crate::earlier`] has the forms of its messages.
pub const MIN_PROTOCOL_VERSION: u16 = 2;

/// A sentence on each version: what changed.
pub const VERSIONS: &[(u16, &str)] = &[
    (1, "First version: one MGS, one MDT, any number of OSTs, sessions with slots, leases, inline data."),
    (
        2,
        "Tickets say which objects must exist, clients tell the MDT which objects of closed files were synced and when they wrote, answers say \
         when they were made, objects whether they were cut short, renames may leave a whiteout.",
    ),
    (
        3,
        "Servers tell the releases at the other ends of their connections, requests how long they waited at their senders and were on the \
         network; mounts and agents of burst buffers tell lines of their logs and change the levels of those. Files that are being restored are opened, and read as far as they are here. MDTs take \
         orders about their scrub, which members verify together, and spare hosts tell their room.",
    ),
];

/// The server takes a [`crate::job::JobTag`] behind the bodies of requests.
pub const FEATURE_JOB: u64 = 1;
/// Features beyond the version that this release has.
pub const FEATURES: u64 = FEATURE_JOB;

/// A range of versions that one side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Oldest.
    pub min: u16,
    /// Newest.
    pub max: u16,
}

impl Versions {
    /// The versions that this release speaks.
    pub const OURS: Versions = Versions { min: MIN_PROTOCOL_VERSION, max: PROTOCOL_VERSION };
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "protocol {}", self.max)
        } else {
            write!(f, "protocols {} to {}", self.min, self.max)
        }
    }
}

/// The newest version that both sides speak.
pub fn negotiate(ours: Versions, theirs: Versions) -> Option<u16> {
    let version = ours.max.min(theirs.max);
    (version >= ours.min && version >= theirs.min).then_some(version)
}

/// Kind of the process that made a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerKind {
    /// A mount.
    Client,
    /// Another server.
    Server,
    /// A command.
    Tool,
    /// A mover or node agent.
    Agent,
}

/// First message on a connection, from the side that made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions that the sender speaks.
    pub versions: Versions,
    /// The file system it wants; 0 for any, at first contact with the MGS.
    pub fs_id: u64,
    /// Kind of the sender.
    pub kind: PeerKind,
    /// Release of its software, for messages: `brindle 0.1.0`.
    pub software: String,
    /// Name of its host, for messages and status.
    pub host: String,
    /// Features it has beyond the version: bits `FEATURE_*`. Unknown bits mean nothing.
    pub features: u64,
}

/// The answer, inside `Result<HelloReply, Fault>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloReply {
    /// Version that this connection speaks.
    pub version: u16,
    /// The file system that is served here; 0 for an MGS that has none.
    pub fs_id: u64,
    /// Release of the server's software.
    pub software: String,
    /// Features that both sides have.
    pub features: u64,
    /// Ordinary requests that may be in flight on this connection.
    pub requests_max: u32,
    /// Bytes of requests, with the bulk room of their replies, that may be in flight on this connection.
    pub bytes_max: u64,
}

/// Chooses the version for a connection of a side that speaks `ours`, or says why there is none.
pub fn accept(ours: Versions, hello: &Hello, our_software: &str) -> Result<u16, Fault> {
    negotiate(ours, hello.versions).ok_or_else(|| incompatible(ours, hello, our_software))
}

/// The refusal that names both versions and the cure.
fn incompatible(ours: Versions, hello: &Hello, our_software: &str) -> Fault {
    let theirs = hello.versions;
    let peer = if hello.host.is_empty() { "the peer".to_owned() } else { hello.host.clone() };
    let older = if theirs.max < ours.min { peer.as_str() } else { "this server" };
    Fault::new(Code::VersionMismatch)
        .what("no protocol version in common with")
        .subject(peer.clone())
        .why(format!("{peer} ({}) speaks {theirs}", hello.software))
        .why(format!("this server ({our_software}) speaks {ours}"))
        .next(format!("upgrade {older}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_overlap_or_not() {
        let v = |min, max| Versions { min, max };
        assert_eq!(negotiate(v(1, 2), v(2, 3)), Some(2));
        assert_eq!(negotiate(v(2, 3), v(1, 2)), Some(2));
        assert_eq!(negotiate(v(1, 5), v(2, 3)), Some(3));
        assert_eq!(negotiate(v(1, 1), v(2, 3)), None);
        assert_eq!(negotiate(v(4, 5), v(2, 3)), None);
        assert_eq!(negotiate(v(3, 2), v(1, 9)), None, "an empty range fits nothing");
    }

    #[test]
    fn each_version_has_its_sentence() {
        let numbers: Vec<u16> = VERSIONS.iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, (1..=PROTOCOL_VERSION).collect::<Vec<_>>());
    }

    #[test]
    fn the_refusal_names_both_versions_and_the_cure() {
        let hello = Hello {
            versions: Versions { min: 7, max: 8 },
            fs_id: 1,
            kind: PeerKind::Client,
            software: "brindle 1.5".into(),
            host: "cn042".into(),
            features: 0,
        };
        let text = accept(Versions::OURS, &hello, "brindle 0.1").expect_err("refused").to_string();
        assert_eq!(
            text,
            "no protocol version in common with cn042\
             \n  why:  cn042 (brindle 1.5) speaks protocols 7 to 8\
             \n  why:  this server (brindle 0.1) speaks protocols 2 to 3\
             \n  next: upgrade this server\
             \n  code: E8003 (brindle explain E8003)"
        );
    }
}
