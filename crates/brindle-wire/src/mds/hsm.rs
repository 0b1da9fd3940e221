//! Tiering: the state of files, requested actions, and the work that agents take (design note 028).
//!
//! An agent *takes* work under a lease that every [`HsmTakeReq`] and [`HsmProgressReq`] renews. An action has a new attempt each time it is
//! given out; messages of older attempts do not count.

use brindle_types::{ArchivedCopy, Fault, HsmControl, HsmKind, Ino, Pair};
use serde::{Deserialize, Serialize};

use super::Empty;
use super::open::{OpenGrant, OpenReq, OpenResp};
use crate::{Cred, message};

/// Most actions that an agent takes at once.
pub const TAKE_MAX: u16 = 64;
/// Most attempts that one request tells of.
pub const PROGRESS_MAX: usize = 256;
/// Most extents of one file that readers wait for, as the MDT keeps them and tells an agent.
pub const WANTED_MAX: usize = 256;
/// Most actions in one answer of [`HsmInfoReq`].
pub const ACTIONS_MAX: usize = 1000;

/// Asks for the state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmStateReq {
    /// The file.
    pub ino: Ino,
}

/// The action on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmUnderWay {
    /// Kind of the action.
    pub kind: HsmKind,
    /// Whether an agent has it; otherwise it waits for one.
    pub running: bool,
    /// Bytes that were copied.
    pub moved_bytes: u64,
}

/// The state of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmStateResp {
    /// Bits of [`brindle_types::hsm`].
    pub flags: u32,
    /// Number of the archive; 0 for none.
    pub archive: u32,
    /// The action on it, if there is one.
    pub under_way: Option<HsmUnderWay>,
}
message!(HsmStateReq => HsmStateResp, HsmState);

/// Action on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmAsk {
    /// Copy it into the archive of this number; 0 for the one that it has, or the first.
    Archive(u32),
    /// Let its bytes go; they lie in the archive.
    Release,
    /// Bring its bytes back.
    Restore,
    /// Let its copy go.
    Remove,
    /// Give up the action on it.
    Cancel,
}

/// Asks for something to be done with a file. Release is done at the answer; the others are queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmActReq {
    /// The file.
    pub ino: Ino,
    /// Action to queue.
    pub ask: HsmAsk,
    /// Credentials of the program that asks: the owner's, or root's.
    pub cred: Cred,
}
message!(HsmActReq => Empty, HsmAct);

/// Lets the copies of a file in one archive go, also of a file that was removed. Queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmRemoveReq {
    /// The file; it may be gone.
    pub ino: Ino,
    /// Number of the archive.
    pub archive: u32,
    /// Credentials of the program that asks: root's, or the owner's of a file that is there.
    pub cred: Cred,
}
message!(HsmRemoveReq => Empty, HsmRemove);

/// Sets and clears flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSetReq {
    /// The file.
    pub ino: Ino,
    /// Flags that are set.
    pub set: u32,
    /// Flags that are cleared.
    pub clear: u32,
    /// Number of the archive, if it is to be another one.
    pub archive: Option<u32>,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(HsmSetReq => Empty, HsmSet);

/// Waits until a file is here, for whoever opens it. Answered after some seconds at the latest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmRecallReq {
    /// The file.
    pub ino: Ino,
    /// The restore that is waited for, as the answer before told; `None`: one is begun if there is none.
    pub waits_for: Option<Pair>,
    /// Credentials of the program that waits.
    pub cred: Cred,
}

/// Progress of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmRecallResp {
    /// The file is here.
    Here,
    /// The restore with this number is queued or under way.
    Waiting(Pair),
    /// The restore has failed.
    Failed(Fault),
}
message!(HsmRecallReq => HsmRecallResp, HsmRecall);

/// Opens a released file for reading or executing without waiting for its bytes: begins its restore if there is none. A file that is not
/// released is opened, too. Reads go by [`HsmReadReq`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmOpenReq {
    /// The open; neither for writing nor with O_TRUNC.
    pub open: OpenReq,
}
message!(HsmOpenReq => OpenResp, HsmOpen);

/// Waits until a range of a released file is here, for whoever reads it. Answered after some seconds at the latest, or at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmReadReq {
    /// The file.
    pub ino: Ino,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
    /// Whether the answer may wait for the range.
    pub waits: bool,
    /// The restore that is waited for, as an earlier answer told; `None`: one is begun if there is none.
    pub waits_for: Option<Pair>,
    /// Credentials of the program that waits.
    pub cred: Cred,
}

/// Bytes of a released file that are here already: in the file without a name that the restore puts them into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmPart {
    /// Number of the restore.
    pub cookie: Pair,
    /// Its attempt. The bytes count only as long as this attempt goes on.
    pub attempt: Pair,
    /// The file without a name.
    pub from: Ino,
    /// Layout and epochs of that file.
    pub grant: OpenGrant,
}

/// Place of a range of a released file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmReadResp {
    /// The file is not released any more.
    Here,
    /// The restore with this number is queued or under way, and the range is not here yet.
    Waiting(Pair),
    /// The restore has failed.
    Failed(Fault),
    /// The whole range is here, and compared with the checksums of the copy.
    Part(HsmPart),
}
message!(HsmReadReq => HsmReadResp, HsmRead);

/// An attempt at an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HsmAttempt {
    /// The file.
    pub ino: Ino,
    /// Number of the attempt.
    pub attempt: Pair,
}

/// An agent asks for work. Answered after some seconds at the latest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmTakeReq {
    /// The agent: a random number of its process.
    pub agent: [u8; 16],
    /// Host of the agent, for people.
    pub host: String,
    /// Archives that it serves; none for any.
    pub archives: Vec<u32>,
    /// Most actions; at most [`TAKE_MAX`].
    pub max: u16,
    /// Credentials of the agent: root's.
    pub cred: Cred,
}

/// An action for an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmWork {
    /// The file.
    pub ino: Ino,
    /// Number of this attempt.
    pub attempt: Pair,
    /// Kind of the action.
    pub kind: HsmKind,
    /// The archive.
    pub archive: u32,
    /// Contents of the file that are to be archived.
    pub data_version: Pair,
    /// Length of the file.
    pub size_bytes: u64,
    /// The copy that is to be restored or removed.
    pub copy: Option<ArchivedCopy>,
    /// A path of the file, from the root of the file system.
    pub path: Vec<u8>,
}

/// Work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmTakeResp {
    /// The actions; none if there was nothing to do for a while.
    pub work: Vec<HsmWork>,
    /// Time that the agent may be silent, in milliseconds.
    pub lease_ms: u32,
}
message!(HsmTakeReq => HsmTakeResp, HsmTake);

/// An agent tells how far it is, and keeps its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmProgressReq {
    /// The agent.
    pub agent: [u8; 16],
    /// Bytes that its attempts have copied; at most [`PROGRESS_MAX`].
    pub moved_bytes: Vec<(HsmAttempt, u64)>,
    /// The agent ends: what it has is given to others.
    pub leaves: bool,
    /// Credentials of the agent: root's.
    pub cred: Cred,
}

/// Attempts that the agent need not go on with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmProgressResp {
    /// Attempts that were cancelled, or given to others.
    pub gone: Vec<HsmAttempt>,
}
message!(HsmProgressReq => HsmProgressResp, HsmProgress);

/// An agent tells which extents of a file it has restored, and asks which ones readers wait for. Keeps its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmExtentsReq {
    /// The agent.
    pub agent: [u8; 16],
    /// The attempt.
    pub attempt: HsmAttempt,
    /// The file without a name that the bytes are in.
    pub from: Ino,
    /// Every extent that is there, compared with its checksum and synced: the bits of [`brindle_types::hsm::Extents`].
    pub here: Vec<u8>,
    /// Credentials of the agent: root's.
    pub cred: Cred,
}

/// Extents that readers wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmExtentsResp {
    /// Numbers of extents that are not here, in the order in which they were asked for; at most [`WANTED_MAX`].
    pub wanted: Vec<u64>,
}
message!(HsmExtentsReq => HsmExtentsResp, HsmExtents);

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmOutcome {
    /// The copy is in the archive, on stable storage.
    Archived(ArchivedCopy),
    /// The bytes are in this file without a name, synced; it has the length of the released one.
    Restored(Ino),
    /// The copy is gone.
    Removed,
    /// The attempt failed.
    Failed(Fault),
}

/// The end of an attempt. May be sent twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmDoneReq {
    /// The attempt.
    pub attempt: HsmAttempt,
    /// Outcome of the attempt.
    pub outcome: HsmOutcome,
    /// Credentials of the agent: root's.
    pub cred: Cred,
}
message!(HsmDoneReq => Empty, HsmDone);

/// Has an empty file without a name, that nobody writes, be a released one: its bytes are those of a copy that lies in an archive already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmImportReq {
    /// The file.
    pub ino: Ino,
    /// Number of the archive.
    pub archive: u32,
    /// Length of the copy.
    pub size_bytes: u64,
    /// BLAKE3 of it, or [`brindle_types::hsm::CHECKSUM_UNKNOWN`].
    pub checksum: [u8; 32],
    /// Credentials of the program that asks: root's.
    pub cred: Cred,
}

/// The copy of an imported file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmImportResp {
    /// Copy as the MDT knows it. The caller puts it into the archive under this name, before the file gets
    /// its own name.
    pub copy: ArchivedCopy,
}
message!(HsmImportReq => HsmImportResp, HsmImport);

/// Asks what is queued and who works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmInfoReq {
    /// Actions behind this file, in order of inode number; `None` from the first on.
    pub behind: Option<Ino>,
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmAgent {
    /// Number of the agent.
    pub agent: [u8; 16],
    /// Host of the agent.
    pub host: String,
    /// Archives that it serves; none for any.
    pub archives: Vec<u32>,
    /// Actions that it has now.
    pub current: u32,
    /// Actions that went well since the MDT started.
    pub ok: u64,
    /// Actions that failed.
    pub errors: u64,
}

/// Status of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmStatus {
    /// The action waits for an agent.
    Waiting,
    /// An agent has it.
    Started,
    /// The action succeeded a moment ago.
    Succeeded,
    /// The action failed a moment ago.
    Failed(Fault),
    /// The action was cancelled a moment ago.
    Cancelled,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmAction {
    /// The file.
    pub ino: Ino,
    /// Number of the action, in the order of requests.
    pub cookie: Pair,
    /// Kind of the action.
    pub kind: HsmKind,
    /// The archive.
    pub archive: u32,
    /// User that asked.
    pub uid: u32,
    /// Time of the request, in seconds since 1970.
    pub asked_secs: i64,
    /// Bytes that were copied.
    pub moved_bytes: u64,
    /// Status of the action.
    pub status: HsmStatus,
}

/// Queue of actions, and agents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmInfoResp {
    /// Whether actions are given out.
    pub control: HsmControl,
    /// Actions that wait or are under way.
    pub queued: u64,
    /// The agents.
    pub agents: Vec<HsmAgent>,
    /// Actions in order of inode number, at most [`ACTIONS_MAX`].
    pub actions: Vec<HsmAction>,
    /// Actions that have ended a moment ago; with the first page only.
    pub finished: Vec<HsmAction>,
    /// Start of the next page.
    pub next: Option<Ino>,
}
message!(HsmInfoReq => HsmInfoResp, HsmInfo);

/// A value of `hsm_control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmSwitch {
    /// Sets the control state.
    Control(HsmControl),
    /// Give up everything that is queued or under way.
    Purge,
}

/// Sets `hsm_control`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSwitchReq {
    /// New value.
    pub switch: HsmSwitch,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(HsmSwitchReq => Empty, HsmSwitch);
