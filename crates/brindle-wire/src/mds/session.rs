//! Sessions: a client's identity at one MDT, durable there until it says goodbye.

use brindle_types::{Ino, Pair, SessionId, TargetId};
use serde::{Deserialize, Serialize};

use super::Empty;
use super::lock::LockState;
use super::open::{Access, OpenGrant};
use crate::earlier::Changed;
use crate::message;

/// Bit of [`SessionOpenResp::limits_serial`]: bytes of some project are limited, so mounts ask for room by project too.
pub const LIMITS_OF_PROJECTS: u64 = 1 << 63;

/// Opens a session, or finds the one that this client had (same uuid).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpenReq {
    /// Chosen by the client at mount; the same after reconnects.
    pub client_uuid: [u8; 16],
    /// Host name, for people.
    pub host: String,
    /// Mount point, for people.
    pub mount: String,
    /// Connect to an existing session of this uuid only; a client that had one and gets `StaleSession` has lost its
    /// handles and opens a new one.
    pub resume: bool,
}

/// The session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpenResp {
    /// Identity for every later frame.
    pub session: SessionId,
    /// Session epoch: OSTs refuse writes of older ones.
    pub epoch: Pair,
    /// The lease in milliseconds: what is not renewed for this long is ended.
    pub lease_ms: u32,
    /// Number of slots that the client may use.
    pub slots_max: u16,
    /// Term of the MDT's log; a client that sees a new one reclaims its opens and drops its caches.
    pub mdt_term: u32,
    /// Root inode of the mounted tree.
    pub root: Ino,
    /// Id of this connection's incarnation at the server is new: the client must reclaim.
    pub must_reclaim: bool,
    /// State of the limits of bytes: 0 where there are none, another number after each change; with [`LIMITS_OF_PROJECTS`] where there
    /// are any of projects.
    pub limits_serial: u64,
}
message!(SessionOpenReq => SessionOpenResp, SessionOpen);

/// Keeps the session alive; sent every third of the lease by a thread that does no I/O.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRenewReq {}

/// Answer to a session that is still alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRenewResp {
    /// Term of the MDT's log.
    pub mdt_term: u32,
    /// Serial number of the limits, as in [`SessionOpenResp::limits_serial`].
    pub limits_serial: u64,
}
message!(SessionRenewReq => SessionRenewResp, SessionRenew);

/// Goodbye: handles, locks, reply rows and the session row go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCloseReq {}
message!(SessionCloseReq => Empty, SessionClose);

/// Most opens or locks in one [`ReclaimReq`].
pub const RECLAIM_ITEMS_MAX: usize = 1024;

/// An open that the client had before the MDT restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimOpen {
    /// The file.
    pub ino: Ino,
    /// The client's number of the handle.
    pub handle: u64,
    /// Access of the handle.
    pub access: Access,
    /// Whether it may hold pages.
    pub cached: bool,
    /// Whether the client held the exclusive right.
    pub exclusive: bool,
}

/// An append by several that was under way when the MDT restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimAppend {
    /// The file.
    pub ino: Ino,
    /// The client's number of it.
    pub number: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Reserved offset while bytes are being written there, with the truncate epoch of the reservation.
    /// `None` before the offset was told, and once the bytes are written: then the repeated request tells
    /// all.
    pub writing_at: Option<(u64, Pair)>,
}

/// Declares opens, locks and appends again after the MDT restarted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimReq {
    /// Term of the MDT's log in the answer to the session's opening: a later MDT refuses, as it was told nothing of what
    /// the request continues.
    pub mdt_term: u32,
    /// Opens, at most [`RECLAIM_ITEMS_MAX`].
    pub opens: Vec<ReclaimOpen>,
    /// Held locks, at most [`RECLAIM_ITEMS_MAX`].
    pub locks: Vec<(Ino, LockState)>,
    /// With `done`: every append under way, at most [`RECLAIM_ITEMS_MAX`]. Other reservations of this client are finished,
    /// whatever a power cut made the MDT forget.
    pub appends: Vec<ReclaimAppend>,
    /// Last part of the declaration: the MDT stops waiting for this client.
    pub done: bool,
}

/// The outcome of each reclaimed open, in the order of the request: the new grant, or why the handle is dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimResp {
    /// An outcome for each reclaimed open.
    pub opens: Vec<Result<OpenGrant, brindle_types::Fault>>,
}
message!(ReclaimReq => ReclaimResp, Reclaim);

/// Asks any server which target it is and how it does (status, fsck, tests).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfoReq {}

/// Name of the counter with the highest term of an MDT that a server knows of: `term of MDT0000`.
pub fn term_counter(mdt: TargetId) -> String {
    format!("term of {mdt}")
}

/// Status of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfoResp {
    /// Full name: `scratch-OST000a`.
    pub name: String,
    /// Software version.
    pub version: String,
    /// Term (MDT) or boot term (OST).
    pub term: u32,
    /// State in a word: `active`, `recovering`, `full`, `failed`.
    pub state: String,
    /// Faults of the target; empty when it is healthy.
    pub problems: Vec<brindle_types::Fault>,
    /// Number of sessions or connections.
    pub clients: u32,
    /// Total bytes of the target.
    pub total_bytes: u64,
    /// Bytes available to users.
    pub available_bytes: u64,
    /// Counters worth showing, by name (re-summed blocks, lost objects, orphans, ...).
    pub counters: Vec<(String, u64)>,
    /// Releases at the other ends of the connections, at most [`RELEASES_MAX`]; empty where the server does not tell.
    pub releases: Vec<ReleaseCount>,
}
message!(TargetInfoReq => TargetInfoResp, TargetInfo);

/// Most releases that a server tells apart.
pub const RELEASES_MAX: usize = 16;

/// Connections of one release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReleaseCount {
    /// The release, as its hello says: `brindle 0.2.0`.
    pub software: String,
    /// Version of the protocol that is spoken with it.
    pub protocol: u16,
    /// Number of connections.
    pub connections: u32,
}

/// Status of a target in protocol 2.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfoRespV2 {
    name: String,
    version: String,
    term: u32,
    state: String,
    problems: Vec<brindle_types::Fault>,
    clients: u32,
    total_bytes: u64,
    available_bytes: u64,
    counters: Vec<(String, u64)>,
}

impl Changed for TargetInfoResp {
    const SINCE: u16 = 3;
    type Previous = TargetInfoRespV2;

    fn from_previous(previous: TargetInfoRespV2) -> TargetInfoResp {
        let TargetInfoRespV2 {
            name,
            version,
            term,
            state,
            problems,
            clients,
            total_bytes,
            available_bytes,
            counters,
        } = previous;
        let releases = Vec::new();
        TargetInfoResp {
            name,
            version,
            term,
            state,
            problems,
            clients,
            total_bytes,
            available_bytes,
            counters,
            releases,
        }
    }

    fn to_previous(&self) -> Option<TargetInfoRespV2> {
        // Whoever speaks protocol 2 does not ask for the releases.
        Some(TargetInfoRespV2 {
            name: self.name.clone(),
            version: self.version.clone(),
            term: self.term,
            state: self.state.clone(),
            problems: self.problems.clone(),
            clients: self.clients,
            total_bytes: self.total_bytes,
            available_bytes: self.available_bytes,
            counters: self.counters.clone(),
        })
    }
}
