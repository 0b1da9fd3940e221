//! Tiering of large files: an action that several agents of an archive carry out together (design note 058).
//!
//! The agent that has the attempt *divides* the file into spans of equal length. All agents of the archive take spans, the one that has the
//! attempt among them, and tell what they have made of each. A span is given out under a claim; a claim that was given up does not count.

use brindle_types::{ArchivedCopy, Fault, HsmKind, Ino, Pair};
use serde::{Deserialize, Serialize};

use super::Empty;
use super::hsm::HsmAttempt;
use crate::{Cred, message};

/// Most finished spans in one answer of [`HsmDivideReq`].
pub const SPANS_TOLD_MAX: usize = 64;
/// Most spans that an agent has at once, over all files.
pub const SPANS_HELD_MAX: usize = 256;
/// Most checksums of a span: its extents.
pub const SPAN_SUMS_MAX: usize = 4096;
/// Longest name that an archive gives an upload, or a part of one.
pub const ARCHIVE_NAME_BYTES_MAX: usize = 2048;
/// Most files in an answer of [`HsmSharesReq`].
pub const SHARES_MAX: usize = 128;

/// The place that the spans of a file go to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmPlace {
    /// A copy in the archive under the name of the attempt. The upload, as its server names it; none for a directory.
    Copy(Option<String>),
    /// The file without a name that has the bytes of a restore, with its full length.
    File(Ino),
}

/// The agent that has an attempt divides its file over the agents of the archive, and asks how far they are. Keeps its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmDivideReq {
    /// The agent.
    pub agent: [u8; 16],
    /// Its attempt.
    pub attempt: HsmAttempt,
    /// The place; `None` to ask whether the file is to be divided.
    pub place: Option<HsmPlace>,
    /// Length of a span.
    pub span_bytes: u64,
    /// Spans that the agent knows to be finished, with what was made of them: the bits of [`brindle_types::hsm::Spans`].
    pub known: Vec<u8>,
    /// Credentials of the agent: root's.
    pub cred: Cred,
}

/// Whether a file is divided, and what was finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmDivideResp {
    /// Whether the file is to be divided. Otherwise the agent carries out the action alone.
    pub is_divided: bool,
    /// Finished spans that the agent does not know; at most [`SPANS_TOLD_MAX`].
    pub finished: Vec<HsmSpanFinished>,
}
message!(HsmDivideReq => HsmDivideResp, HsmDivide);

/// A finished span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSpanFinished {
    /// Number of the span.
    pub span: u32,
    /// Result of the span.
    pub made: HsmSpanMade,
}

/// Result of a span: its bytes are at their place, on stable storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSpanMade {
    /// BLAKE3 chaining values of its extents, where it was archived; at most [`SPAN_SUMS_MAX`].
    pub sums: Vec<[u8; 32]>,
    /// The part of an upload, as its server names it.
    pub part: Option<String>,
}

/// A span that an agent works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HsmClaim {
    /// The attempt that the span is of.
    pub attempt: HsmAttempt,
    /// Number of the span.
    pub span: u32,
    /// Number under which it was given out.
    pub claim: Pair,
}

/// An agent asks for a span of a divided file. Keeps its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSpanTakeReq {
    /// The agent.
    pub agent: [u8; 16],
    /// Host of the agent, for people.
    pub host: String,
    /// Archives that it serves; none for any.
    pub archives: Vec<u32>,
    /// The attempt of its own that it wants a span of, at once; `None` for a span of an attempt of another agent, for which it waits some
    /// seconds.
    pub of: Option<HsmAttempt>,
    /// The spans that it works on; at most [`SPANS_HELD_MAX`]. Others that it should have are given to others: it has not heard of them.
    pub holds: Vec<HsmClaim>,
    /// Credentials of the agent: root's.
    pub cred: Cred,
}

/// A span for an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSpan {
    /// The span, and the claim on it.
    pub claim: HsmClaim,
    /// Length of the spans of the file; the last one may be shorter.
    pub span_bytes: u64,
    /// Kind of the action: an archive or a restore.
    pub kind: HsmKind,
    /// The place that the bytes go to.
    pub place: HsmPlace,
    /// Contents of the file that are to be archived.
    pub data_version: Pair,
    /// Length of the file.
    pub size_bytes: u64,
    /// The copy that is to be restored.
    pub copy: Option<ArchivedCopy>,
}

/// A span; none if there is none to give out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSpanTakeResp {
    /// The span.
    pub span: Option<HsmSpan>,
}
message!(HsmSpanTakeReq => HsmSpanTakeResp, HsmSpanTake);

/// The end of the work on a span. May be sent twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSpanDoneReq {
    /// The agent.
    pub agent: [u8; 16],
    /// The span, and the claim on it.
    pub claim: HsmClaim,
    /// Result of the span, or why there is none. An agent that has failed gets no more spans of the attempt.
    pub outcome: Result<HsmSpanMade, Fault>,
    /// Credentials of the agent: root's.
    pub cred: Cred,
}
message!(HsmSpanDoneReq => Empty, HsmSpanDone);

/// Asks how agents share divided files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSharesReq {
    /// Credentials of the program that asks.
    pub cred: Cred,
}

/// Share of an agent in a divided file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmShare {
    /// The agent.
    pub agent: [u8; 16],
    /// Host of the agent.
    pub host: String,
    /// Spans that the agent has finished.
    pub spans: u32,
    /// Bytes of these spans.
    pub moved_bytes: u64,
}

/// A divided file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmDivided {
    /// The file.
    pub ino: Ino,
    /// Kind of the action.
    pub kind: HsmKind,
    /// Whether the action goes on; otherwise it has ended a moment ago.
    pub is_running: bool,
    /// Length of the file.
    pub size_bytes: u64,
    /// Shares of the agents, as far as the MDT has heard since it started.
    pub shares: Vec<HsmShare>,
}

/// Divided files: those under way, then those that have ended a moment ago; at most [`SHARES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmSharesResp {
    /// The files.
    pub divided: Vec<HsmDivided>,
}
message!(HsmSharesReq => HsmSharesResp, HsmShares);
