//! The changelog of an MDT: its readers and records (`lctl changelog_register`, `lfs changelog`). Commands ask with or
//! without a session; only root is answered.

use brindle_types::{Change, ChangeMask};
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::{Cred, message};

/// Most records in one answer.
pub const RECORDS_MAX: usize = 512;
/// Longest name of a reader in bytes.
pub const READER_NAME_BYTES_MAX: usize = 32;

/// Registers a reader: from now on changes are kept for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogRegisterReq {
    /// Drawn by the command: the same one again means the same reader.
    pub nonce: [u8; 16],
    /// Letters, digits, '_', '-' and '.'; may be empty.
    pub name: String,
    /// The types that it wants; `None`: those that the MDT records where nobody says otherwise.
    pub mask: Option<ChangeMask>,
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// The reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogRegisterResp {
    /// Number of the reader.
    pub id: u32,
}
message!(ChangelogRegisterReq => ChangelogRegisterResp, ChangelogRegister);

/// Removes a reader; with the last one the changelog goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogDeregisterReq {
    /// The reader.
    pub id: u32,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(ChangelogDeregisterReq => Empty, ChangelogDeregister);

/// A reader needs nothing up to an index any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogClearReq {
    /// The reader.
    pub id: u32,
    /// The last index that it does not need; 0 for everything so far.
    pub end: u64,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(ChangelogClearReq => Empty, ChangelogClear);

/// Asks for records that are durable, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogReadReq {
    /// On behalf of this reader: from where it has cleared, and of its types.
    pub reader: Option<u32>,
    /// The first index that is wanted.
    pub start: u64,
    /// The last index that is wanted; 0 for no end.
    pub end: u64,
    /// The types that are wanted; `None` for all (of the reader).
    pub mask: Option<ChangeMask>,
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// A part of the changelog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogReadResp {
    /// Index and change.
    pub records: Vec<(u64, Change)>,
    /// Index of the next part; records of other types may have been passed over.
    pub next: u64,
    /// Whether there was nothing more at this moment.
    pub is_end: bool,
}
message!(ChangelogReadReq => ChangelogReadResp, ChangelogRead);

/// Asks who reads, and how far they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogInfoReq {
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// A reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogReader {
    /// Number of the reader.
    pub id: u32,
    /// Name of the reader; may be empty.
    pub name: String,
    /// The types that it asked for.
    pub mask: Option<ChangeMask>,
    /// The reader needs no record up to this index.
    pub cleared: u64,
    /// Seconds since it was registered or has cleared something.
    pub idle_secs: u64,
}

/// The changelog and its readers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogInfoResp {
    /// The last index that was given out.
    pub current: u64,
    /// The types that are recorded for readers that did not say otherwise.
    pub mask: ChangeMask,
    /// Records that are kept.
    pub records: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Most bytes that they may take: then the oldest go.
    pub bytes_max: u64,
    /// Records up to this index went although a reader had not cleared them; 0 if none did.
    pub dropped_to: u64,
    /// The readers, in order of number.
    pub readers: Vec<ChangelogReader>,
}
message!(ChangelogInfoReq => ChangelogInfoResp, ChangelogInfo);

/// Sets the types that are recorded for readers that did not say otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangelogMaskReq {
    /// The types.
    pub mask: ChangeMask,
    /// Credentials of the program that asks.
    pub cred: Cred,
}
message!(ChangelogMaskReq => Empty, ChangelogMask);
