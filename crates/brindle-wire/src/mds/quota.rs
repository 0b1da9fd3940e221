//! quota_use, quota_set and quota_room: what users, groups and projects use of a file system, and what they may use
//! (`lfs quota`, `lfs setquota`).

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use crate::{Cred, message};

/// Whose usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaOwner {
    /// A user's.
    User,
    /// A group's.
    Group,
    /// A project's.
    Project,
}

/// Asks what somebody uses and may use. Root may ask for all, others for themselves and their groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUseReq {
    /// Whose usage.
    pub owner: QuotaOwner,
    /// Number of the user, group or project.
    pub id: u32,
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// Usage; zeros for an owner who has nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUseResp {
    /// Inodes.
    pub inodes: u64,
    /// Allocated bytes.
    pub bytes: u64,
    /// Most inodes; 0 for no limit.
    pub inodes_max: u64,
    /// Most allocated bytes; 0 for no limit.
    pub bytes_max: u64,
}
message!(QuotaUseReq => QuotaUseResp, QuotaUse);

/// Limits what somebody may use. Durable when it is answered; root only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaSetReq {
    /// Whose limits.
    pub owner: QuotaOwner,
    /// Number of the user, group or project.
    pub id: u32,
    /// Most inodes; 0 for no limit, `None` to leave that as it is.
    pub inodes_max: Option<u64>,
    /// Most allocated bytes; likewise.
    pub bytes_max: Option<u64>,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(QuotaSetReq => QuotaUseResp, QuotaSet);

/// A mount asks for room for bytes of files of one user and group. Its reports of what it wrote went before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaRoomReq {
    /// Owner of the files.
    pub uid: u32,
    /// Group of the files.
    pub gid: u32,
    /// Bytes that are wanted.
    pub wanted_bytes: u64,
    /// Bytes taken of the user's earlier reservation that no report has named yet: they are buffered, or on their way to an OST.
    pub user: RoomUse,
    /// Bytes taken of the group's earlier reservation that no report has named yet.
    pub group: RoomUse,
    /// The file that is written: where there is little room for new blocks, how far it has blocks already.
    pub ino: Ino,
}

/// A mount's use of its reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomUse {
    /// Taken, and not at an OST yet.
    pub held_bytes: u64,
    /// At OSTs since the last question, in files that several write: nobody but the OSTs knows what those have allocated.
    pub uncounted_bytes: u64,
}

/// Room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaRoomResp {
    /// Bytes that the user's files may grow by, in the place of what was left of earlier room; `None`: there is no limit.
    pub user_bytes: Option<u64>,
    /// Use of the group's reservation.
    pub group_bytes: Option<u64>,
    /// Where less is given than was wanted: below this byte the file has all its blocks, so that writing there needs no room. 0 if it
    /// may have holes, `None` if that cannot be known at the moment. Where enough is given 0 says nothing.
    pub dense_end: Option<u64>,
}
message!(QuotaRoomReq => QuotaRoomResp, QuotaRoom);
