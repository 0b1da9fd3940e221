//! Usage and limits of users, groups and projects of a file system (`lfs quota`, `lfs setquota`, `brindle
//! quota`).
//!
//! quota_use, quota_set and quota_room are of the first release: hard limits only, of users and groups. quota_show, quota_change and
//! quota_file_room know soft and default limits, and projects.

use brindle_types::Ino;
use serde::{Deserialize, Serialize};

use crate::{Cred, message};

/// Owner of usage: kind and number.
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
    /// Owner of the usage.
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
    /// Owner of the limits.
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
    /// Bytes taken that are not at an OST yet.
    pub held_bytes: u64,
    /// Bytes at OSTs since the last question, in files with several writers: only the OSTs know the allocated
    /// bytes of these.
    pub uncounted_bytes: u64,
}

/// Room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaRoomResp {
    /// Bytes that the user's files may grow by, in the place of what was left of earlier room; `None`: there is no limit.
    pub user_bytes: Option<u64>,
    /// Use of the group's reservation.
    pub group_bytes: Option<u64>,
    /// Offset below which all blocks of the file are allocated, so that writes there need no room; told where
    /// less room is given than was wanted. 0: the file may have holes. `None`: unknown at the moment. Where
    /// enough room is given, 0 says nothing.
    pub allocated_end: Option<u64>,
}
message!(QuotaRoomReq => QuotaRoomResp, QuotaRoom);

/// Like [`QuotaRoomReq`], of the file's project too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaFileRoomReq {
    /// The file that is written.
    pub ino: Ino,
    /// Owner of the file.
    pub uid: u32,
    /// Group of the file.
    pub gid: u32,
    /// Project of the file, as the mount knows it; `None`: the mount does not know it.
    pub project: Option<u32>,
    /// Bytes that are wanted.
    pub wanted_bytes: u64,
    /// Bytes taken of the user's earlier reservation that no report has named yet.
    pub user: RoomUse,
    /// Bytes taken of the group's.
    pub group: RoomUse,
    /// Bytes taken of the project's.
    pub in_project: RoomUse,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaFileRoomResp {
    /// The project of the file.
    pub project: u32,
    /// Room. `None` where the mount took the file to be in another project: nothing was given or taken in.
    pub room: Option<QuotaFileRoom>,
}
message!(QuotaFileRoomReq => QuotaFileRoomResp, QuotaFileRoom);

/// Room of a file's user, group and project; see [`QuotaRoomResp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaFileRoom {
    /// Bytes that the user's files may grow by.
    pub user_bytes: Option<u64>,
    /// Bytes that the group's may.
    pub group_bytes: Option<u64>,
    /// Bytes that the project's may.
    pub project_bytes: Option<u64>,
    /// Below which byte the file has all its blocks.
    pub allocated_end: Option<u64>,
}

/// Subject of limits: one owner, or the default of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaSubject {
    /// A user's, a group's or a project's.
    Owner {
        /// Kind and number of the owner.
        owner: QuotaOwner,
        /// Number.
        id: u32,
    },
    /// Default limits of one kind, for owners without limits of their own.
    Default(QuotaOwner),
}

/// Limits; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaLimits {
    /// Most inodes.
    pub inodes_max: u64,
    /// Most allocated bytes.
    pub bytes_max: u64,
    /// Most inodes for longer than the grace time.
    pub inodes_soft: u64,
    /// Most allocated bytes for longer than the grace time.
    pub bytes_soft: u64,
}

/// Grace times: longest times for which soft limits may be exceeded, by kind of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaGrace {
    /// Grace time of inodes, in seconds.
    pub inodes_secs: u32,
    /// Grace time of bytes, in seconds.
    pub bytes_secs: u32,
}

impl Default for QuotaGrace {
    fn default() -> QuotaGrace {
        QuotaGrace { inodes_secs: GRACE_DEFAULT_SECS, bytes_secs: GRACE_DEFAULT_SECS }
    }
}

/// Grace times unless somebody sets others: a week.
pub const GRACE_DEFAULT_SECS: u32 = 7 * 24 * 60 * 60;
/// Most owners in one answer of [`QuotaListReq`].
pub const QUOTA_LIST_MAX: usize = 500;

/// Asks what somebody uses and may use. Root may ask for all, others for themselves, their groups, projects and defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaShowReq {
    /// Subject to show.
    pub subject: QuotaSubject,
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// Usage and limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaShowResp {
    /// Inodes; 0 of a default.
    pub inodes: u64,
    /// Allocated bytes; 0 of a default.
    pub bytes: u64,
    /// Limits that count.
    pub limits: QuotaLimits,
    /// The limits are the default ones.
    pub is_default: bool,
    /// End of the grace time of inodes, in seconds since 1970 by the clock of the MDT; `None` below the soft
    /// limit.
    pub inodes_grace_end: Option<i64>,
    /// End of the grace time of bytes.
    pub bytes_grace_end: Option<i64>,
    /// Grace times of this kind of owner.
    pub grace: QuotaGrace,
    /// The time of the MDT, in seconds since 1970.
    pub now_secs: i64,
}
message!(QuotaShowReq => QuotaShowResp, QuotaShow);

/// A change of limits. A value of `None` leaves the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaChange {
    /// Most inodes; 0 for no limit.
    pub inodes_max: Option<u64>,
    /// Most allocated bytes; 0 for no limit.
    pub bytes_max: Option<u64>,
    /// Soft limit of inodes; 0 for none.
    pub inodes_soft: Option<u64>,
    /// Soft limit of bytes; 0 for none.
    pub bytes_soft: Option<u64>,
    /// Grace time of inodes in seconds. Of a default: that of the kind of owner. Of an owner over his soft limit: from now on.
    pub inodes_grace_secs: Option<u32>,
    /// Grace time of bytes in seconds; likewise.
    pub bytes_grace_secs: Option<u32>,
    /// The owner has the default limits from now on.
    pub to_default: bool,
}

/// Changes limits. Durable when it is answered; root only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaChangeReq {
    /// Subject to change.
    pub subject: QuotaSubject,
    /// Change of the limits.
    pub change: QuotaChange,
    /// Only say what would be.
    pub dry_run: bool,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(QuotaChangeReq => QuotaShowResp, QuotaChange);

/// Asks for everybody who uses something or has limits. Root only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaListReq {
    /// Kind of owner.
    pub owner: QuotaOwner,
    /// Owners behind this number; `None` from the first on.
    pub behind: Option<u32>,
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// Owners in order of number, at most [`QUOTA_LIST_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaListResp {
    /// Number, usage and limits.
    pub owners: Vec<(u32, QuotaShowResp)>,
    /// Whether there are more behind the last one.
    pub has_more: bool,
}
message!(QuotaListReq => QuotaListResp, QuotaList);
