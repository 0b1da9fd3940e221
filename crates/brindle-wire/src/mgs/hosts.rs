//! Messages of the MGS about hosts: joining, assigned targets, removed hosts.
//!
//! Names of roles and keys are those of `brindle-auth`: roles as text (`server,admin`), a key as the SHA-256 of its public half.

use brindle_types::{Fault, FsName, Nid, TargetId};
use serde::{Deserialize, Serialize};

use crate::message;

/// A host that has no certificate asks for one, with a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinReq {
    /// Number of the token.
    pub token: [u8; 8],
    /// Name that the host wants.
    pub host: String,
    /// Public half of its key, Ed25519.
    pub public_key: [u8; 32],
    /// Shows that the host has the token's secret, without telling it; covers the name and the key.
    pub proof: [u8; 32],
}

/// Membership data that the host needs from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinResp {
    /// Certificate of the host, DER.
    pub certificate: Vec<u8>,
    /// The authority's certificate, DER.
    pub authority: Vec<u8>,
    /// The file system of the cluster.
    pub fs: FsName,
    /// Addresses of the MGS.
    pub mgs: Vec<Nid>,
}
message!(JoinReq => JoinResp, Join);

/// A host asks for a new certificate under its name, before the old one ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewCertificateReq {
    /// Public half of its key: the one of the certificate that it shows.
    pub public_key: [u8; 32],
}

/// The new certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewCertificateResp {
    /// The certificate, DER.
    pub certificate: Vec<u8>,
}
message!(RenewCertificateReq => RenewCertificateResp, RenewCertificate);

/// A target that a host is to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Role and index.
    pub target: TargetId,
    /// Identity that it is formatted with.
    pub uuid: [u8; 16],
    /// Directory of the target on the host.
    pub dir: String,
    /// Port that it is served at.
    pub port: u16,
    /// Whether it was formatted. If it was, an empty directory is a disk that is not mounted; otherwise the host formats it.
    pub is_formatted: bool,
    /// Whether it is to be served now.
    pub is_wanted: bool,
}

/// A host's daemon asks what it is to serve; answered when that is newer than `known_version`, or after `wait_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchHostReq {
    /// Version that the daemon has; 0 for none.
    pub known_version: u64,
    /// Longest wait for newer assignments, in milliseconds.
    pub wait_ms: u32,
}

/// Targets that the host is to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchHostResp {
    /// Version of what the MGS knows of hosts.
    pub version: u64,
    /// All its targets; `None` where the daemon's version is the newest.
    pub assignments: Option<Vec<Assignment>>,
}
message!(WatchHostReq => WatchHostResp, WatchHost);

/// State of a target on its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostedState {
    /// The target is being formatted or started.
    Starting,
    /// The target is served.
    Serving,
    /// The target was stopped, as it should be.
    Stopped,
    /// The target cannot be served; the daemon tries again.
    Failed(Box<Fault>),
}

/// A target on its host, as the host's daemon has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedTarget {
    /// Role and index.
    pub target: TargetId,
    /// Identity of the target.
    pub uuid: [u8; 16],
    /// Whether its directory holds it.
    pub is_formatted: bool,
    /// State of the target.
    pub state: HostedState,
}

/// A host's daemon tells what it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportHostReq {
    /// Release of the software on the host.
    pub software: String,
    /// All that it was asked to serve.
    pub targets: Vec<HostedTarget>,
}

/// The report was taken in; what it says of formatted targets is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportHostResp {}
message!(ReportHostReq => ReportHostResp, ReportHost);

/// A server asks who is not let in any more; answered when that is newer than `known_version`, or after `wait_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchAccessReq {
    /// Version that the server has; 0 for none.
    pub known_version: u64,
    /// Longest wait for a newer list, in milliseconds.
    pub wait_ms: u32,
}

/// Hosts that are not let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchAccessResp {
    /// Version of what the MGS knows of hosts.
    pub version: u64,
    /// Keys of hosts that were removed and whose certificates have not ended; `None` where the server's version is the newest.
    pub removed_keys: Option<Vec<[u8; 32]>>,
}
message!(WatchAccessReq => WatchAccessResp, WatchAccess);

/// Asks for all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListHostsReq {}

/// A host that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// Name of the host.
    pub name: String,
    /// Roles of the host.
    pub roles: String,
    /// Key of the host.
    pub key: [u8; 32],
    /// Time at which the host joined, in seconds since 1970.
    pub joined_s: i64,
    /// End of its certificate, in seconds since 1970.
    pub certificate_ends_s: i64,
    /// Time since the daemon was heard of, in milliseconds; `None`: not since the MGS has started.
    pub heard_ms_ago: Option<u64>,
    /// Release of its daemon; empty if it was not heard of.
    pub software: String,
    /// Targets that it is to serve.
    pub assignments: Vec<Assignment>,
    /// Assigned targets that the daemon has told of.
    pub hosted: Vec<HostedTarget>,
}

/// A token that is not used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Number of the token.
    pub id: [u8; 8],
    /// Roles that it gives.
    pub roles: String,
    /// Name that it is for; empty for any.
    pub host: String,
    /// End of the token, in seconds since 1970.
    pub expires_s: i64,
}

/// All hosts, by name, and tokens that can still be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListHostsResp {
    /// The cluster.
    pub cluster: u64,
    /// Hosts.
    pub hosts: Vec<HostInfo>,
    /// Tokens.
    pub tokens: Vec<TokenInfo>,
}
message!(ListHostsReq => ListHostsResp, ListHosts);

/// Asks for a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTokenReq {
    /// Roles that it gives: `server`, `client,agent`.
    pub roles: String,
    /// Name of the host that it is for; empty for any.
    pub host: String,
    /// Lifetime of the token, in seconds.
    pub lifetime_s: u64,
}

/// The token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTokenResp {
    /// The token's text: a secret.
    pub token: String,
    /// End of the token, in seconds since 1970.
    pub expires_s: i64,
}
message!(CreateTokenReq => CreateTokenResp, CreateToken);

/// A change of what a host does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostChange {
    /// The host is not let in any more.
    Remove {
        /// Even if targets are assigned to it.
        with_targets: bool,
    },
    /// The host is to serve one more target, which it formats.
    AddTarget {
        /// An MDT, or an OST.
        is_mdt: bool,
        /// Index of the target; `None`: the lowest free one.
        index: Option<u16>,
        /// Directory of the target on the host.
        dir: String,
    },
    /// The host is to serve a target that it has, or not.
    WantTarget {
        /// The target.
        target: TargetId,
        /// Whether it is to be served.
        is_wanted: bool,
    },
    /// The host is not to make a target that it was told to make and that was never served.
    ForgetTarget {
        /// The target.
        target: TargetId,
    },
    /// The host is to run the MGS too, and to become active when the active one is away.
    AddMgs {
        /// Directory of its MGT on the host.
        dir: String,
    },
    /// The host gets another name.
    Rename {
        /// The new name.
        to: String,
    },
    /// The host stands in this rack, and fails with the others there.
    Rack {
        /// Name of the rack; empty: nothing is said of it.
        rack: String,
    },
}

/// Changes what a host does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeHostReq {
    /// The host.
    pub host: String,
    /// The change.
    pub change: HostChange,
    /// Only say what would be done.
    pub is_dry_run: bool,
}

/// The change as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeHostResp {
    /// Whether anything was changed.
    pub changed: bool,
    /// The target that it is about.
    pub target: Option<Assignment>,
}
message!(ChangeHostReq => ChangeHostResp, ChangeHost);

/// The daemon of a host that is to run the MGS asks for what its MGT holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchMgtReq {
    /// Addresses at which others reach the MGS of this host.
    pub nids: Vec<Nid>,
}

/// Contents that every MGT of the cluster has. The texts are secrets: they are written to files that only
/// root reads, and never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchMgtResp {
    /// The superblock, as in its file.
    pub superblock: Vec<u8>,
    /// The authority, with its key, PEM.
    pub authority: String,
    /// Text of `etcd.toml`: location of the configuration, and the key to it.
    pub store: String,
}
message!(FetchMgtReq => FetchMgtResp, FetchMgt);

impl std::fmt::Debug for FetchMgtResp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FetchMgtResp")
    }
}

/// The daemon of a host asks whether it is to start anew; answered as soon as it is, or after `wait_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOrdersReq {
    /// Number of this start of the daemon, chosen at random.
    pub start: u64,
    /// Longest wait for orders, in milliseconds.
    pub wait_ms: u32,
}

/// The order for the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOrdersResp {
    /// Stop everything in order, and start anew.
    pub restart: bool,
}
message!(TakeOrdersReq => TakeOrdersResp, TakeOrders);

/// Has the daemon of a host start anew, or asks which start of it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartHostReq {
    /// The host.
    pub host: String,
    /// The start that is to end; `None` only asks. Another one that runs by now goes on.
    pub start: Option<u64>,
}

/// The daemon, as it was heard last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartHostResp {
    /// Number of its start; `None` where it was not heard of, or is of a release that takes no orders.
    pub start: Option<u64>,
}
message!(RestartHostReq => RestartHostResp, RestartHost);
