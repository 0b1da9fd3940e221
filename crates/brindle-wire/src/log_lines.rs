//! The last lines of a server's log, as its process keeps them in memory.

use serde::{Deserialize, Serialize};

use crate::message;

/// Longest text that is looked for, bytes.
pub const TEXT_BYTES_MAX: usize = 256;
/// Most lines of an answer.
pub const LINES_MAX: u32 = 2000;
/// Most bytes of the lines of an answer.
pub const ANSWER_BYTES_MAX: usize = 512 << 10;

/// Importance of a line, the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Something failed.
    Error,
    /// Something needs to be looked at.
    Warn,
    /// Ordinary events.
    Info,
    /// For who looks for a cause.
    Debug,
    /// Everything.
    Trace,
}

/// Asks for lines of the log of a server's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLinesReq {
    /// Lines with a higher number than this; 0 for all.
    pub after: u64,
    /// Of those that fit, at most so many of the newest.
    pub lines_max: u32,
    /// Lines of this importance or a greater one.
    pub severity: Severity,
    /// Lines with this text in them, in small or capital letters; empty for all.
    pub text: String,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Number in the process, from 1.
    pub number: u64,
    /// The line, as `brindle_telemetry::log` writes it.
    pub text: String,
}

/// Lines of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLinesResp {
    /// Number of the process, another one after each start: targets of one process have one log.
    pub process: u64,
    /// Number of the oldest line that the process keeps.
    pub first: u64,
    /// Number of the line that comes next.
    pub next: u64,
    /// Lines that fit and were left out, because there were too many.
    pub left_out: u64,
    /// Lines, the oldest first.
    pub lines: Vec<LogLine>,
}

/// [`LogLinesReq`] to an MDT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtLogLinesReq(pub LogLinesReq);
message!(MdtLogLinesReq => LogLinesResp, MdtLogLines);

/// [`LogLinesReq`] to an OST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OstLogLinesReq(pub LogLinesReq);
message!(OstLogLinesReq => LogLinesResp, OstLogLines);

/// [`LogLinesReq`] to an MGS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MgsLogLinesReq(pub LogLinesReq);
message!(MgsLogLinesReq => LogLinesResp, MgsLogLines);
