//! Tiering: the states of a file whose bytes lie, or lay, in an archive, under Lustre's words and bits.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Pair;

/// An archive has a copy of the file, perhaps an old one.
pub const HSM_EXISTS: u32 = 0x01;
/// The file has changed since it was archived.
pub const HSM_DIRTY: u32 = 0x02;
/// The bytes lie in the archive only.
pub const HSM_RELEASED: u32 = 0x04;
/// The copy was completed.
pub const HSM_ARCHIVED: u32 = 0x08;
/// The file is never to be released.
pub const HSM_NORELEASE: u32 = 0x10;
/// The file is never to be archived.
pub const HSM_NOARCHIVE: u32 = 0x20;
/// The copy was lost.
pub const HSM_LOST: u32 = 0x40;
/// The flags that the owner of a file may set and clear; root more ([`HSM_ROOT_FLAGS`]).
pub const HSM_USER_FLAGS: u32 = HSM_NORELEASE | HSM_NOARCHIVE | HSM_DIRTY;
/// The flags that root may set and clear.
pub const HSM_ROOT_FLAGS: u32 = HSM_USER_FLAGS | HSM_EXISTS | HSM_ARCHIVED | HSM_LOST;
/// Archives have the numbers 1 to this one.
pub const ARCHIVE_ID_MAX: u32 = 32;

/// The checksum of a copy that was made by another tool, which kept none: its bytes are taken as they are.
pub const CHECKSUM_UNKNOWN: [u8; 32] = [0; 32];

/// Bits and words in the order in which Lustre prints them.
const WORDS: [(u32, &str); 7] = [
    (HSM_RELEASED, "released"),
    (HSM_EXISTS, "exists"),
    (HSM_DIRTY, "dirty"),
    (HSM_ARCHIVED, "archived"),
    (HSM_NORELEASE, "never_release"),
    (HSM_NOARCHIVE, "never_archive"),
    (HSM_LOST, "lost_from_hsm"),
];

/// The words of flags, as Lustre has them.
pub fn hsm_words(flags: u32) -> Vec<&'static str> {
    WORDS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| *word).collect()
}

/// An action that an agent carries out. In the order in which they are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HsmKind {
    /// The bytes come back from the archive.
    Restore,
    /// The copy in the archive goes.
    Remove,
    /// A copy is made.
    Archive,
}

impl HsmKind {
    /// All of them, in the order in which they are given out.
    pub const ALL: [HsmKind; 3] = [HsmKind::Restore, HsmKind::Remove, HsmKind::Archive];
}

impl fmt::Display for HsmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HsmKind::Restore => "RESTORE",
            HsmKind::Remove => "REMOVE",
            HsmKind::Archive => "ARCHIVE",
        })
    }
}

/// A complete copy in an archive. Data version and attempt are in its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedCopy {
    /// `data_version` of the file that was copied.
    pub data_version: Pair,
    /// The attempt that has made the copy.
    pub attempt: Pair,
    /// Length of the copy.
    pub size_bytes: u64,
    /// BLAKE3 of its bytes.
    pub checksum: [u8; 32],
}

/// Whether actions are given out (`hsm_control`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmControl {
    /// Actions are given out.
    #[default]
    Enabled,
    /// Actions are queued, and wait.
    Disabled,
    /// New actions are refused.
    Stopped,
}

impl fmt::Display for HsmControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HsmControl::Enabled => "enabled",
            HsmControl::Disabled => "disabled",
            HsmControl::Stopped => "stopped",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_lustres_order() {
        assert_eq!(hsm_words(0xd), ["released", "exists", "archived"]);
        assert_eq!(hsm_words(0xb), ["exists", "dirty", "archived"]);
        assert_eq!(hsm_words(0x70), ["never_release", "never_archive", "lost_from_hsm"]);
        assert!(hsm_words(0).is_empty());
    }
}
