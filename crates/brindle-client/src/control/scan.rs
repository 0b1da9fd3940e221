//! Scans asked for through a mount's socket: one request, then a line for each page.
//!
//! The cursor stays in the daemon: a caller cannot name directories to go on in.

use brindle_types::{Attr, Code, Fault, Ino};
use brindle_wire::Cred;
use brindle_wire::mds::scan::{ScanFound, ScanLinked, ScanRefused, ScanReq, ScanResp, ScanSum, Term, Wanted};
use serde::{Deserialize, Serialize};

/// Request for a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanAsk {
    /// Inode number of the file or directory to begin at.
    pub start: u64,
    /// Name of the start directory, for tests of names.
    pub start_name: Vec<u8>,
    /// The predicate, as postfix terms.
    pub predicate: Vec<Term>,
    /// Entries above this depth do not match.
    pub depth_min: u32,
    /// Entries below this depth are not looked at.
    pub depth_max: u32,
    /// The wanted part of each match.
    pub wanted: Wanted,
}

impl ScanAsk {
    /// The request to the MDT for the first page.
    pub fn request(self, cred: Cred) -> ScanReq {
        ScanReq {
            cred,
            start: Ino(self.start),
            start_name: self.start_name,
            predicate: self.predicate,
            depth_min: self.depth_min,
            depth_max: self.depth_max,
            wanted: self.wanted,
            cursor: None,
        }
    }
}

/// A path in JSON: text, or its bytes where they are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathText {
    /// UTF-8.
    Text(String),
    /// A path that is not UTF-8, byte by byte.
    Bytes(Vec<u8>),
}

impl From<Vec<u8>> for PathText {
    fn from(path: Vec<u8>) -> PathText {
        String::from_utf8(path).map_or_else(|e| PathText::Bytes(e.into_bytes()), PathText::Text)
    }
}

impl PathText {
    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            PathText::Text(text) => text.into_bytes(),
            PathText::Bytes(bytes) => bytes,
        }
    }
}

/// An entry that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundLine {
    /// Below the start.
    pub path: PathText,
    /// If asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attr: Option<Attr>,
}

/// A part of the space of a directory; see [`ScanSum`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumLine {
    /// The directory, below the start.
    pub path: PathText,
    /// Entries.
    pub entries: u64,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Sizes.
    pub size_bytes: u64,
    /// Entries with several names, each to be counted once.
    pub linked: Vec<ScanLinked>,
}

/// A directory that was not looked into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedLine {
    /// Below the start.
    pub path: PathText,
    /// Reason of the refusal.
    pub code: Code,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanPage {
    /// Entries that match.
    pub found: Vec<FoundLine>,
    /// Sums.
    pub sums: Vec<SumLine>,
    /// Directories that were not looked into.
    pub refused: Vec<RefusedLine>,
    /// Whether nothing follows.
    pub is_last: bool,
}

impl ScanPage {
    /// A page as it is told; `is_last` if it had no cursor.
    pub fn new(resp: ScanResp, is_last: bool) -> ScanPage {
        let found = |f: ScanFound| FoundLine { path: f.path.into(), attr: f.attr };
        let sum = |s: ScanSum| SumLine {
            path: s.path.into(),
            entries: s.entries,
            allocated_bytes: s.allocated_bytes,
            size_bytes: s.size_bytes,
            linked: s.linked,
        };
        let refused = |r: ScanRefused| RefusedLine { path: r.path.into(), code: r.code };
        ScanPage {
            found: resp.found.into_iter().map(found).collect(),
            sums: resp.sums.into_iter().map(sum).collect(),
            refused: resp.refused.into_iter().map(refused).collect(),
            is_last,
        }
    }
}

/// The refusal of a scan where one answer is wanted.
pub(super) fn not_one_answer() -> Fault {
    Fault::new(Code::InvalidArgument).what("a scan has no single answer").why("it is answered in pages")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_json_whatever_is_in_them() {
        for path in [&b"plain"[..], b"", b"new\nline \"quoted\"", b"\xff\xfe/x"] {
            let json = serde_json::to_string(&PathText::from(path.to_vec())).expect("plain data");
            let back: PathText = serde_json::from_str(&json).expect("our own");
            assert_eq!(back.into_bytes(), path);
        }
    }
}
