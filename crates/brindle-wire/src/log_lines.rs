//! The last lines of the log of a server, a mount or an agent, as its process keeps them in memory.

use brindle_types::SessionId;
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

impl Severity {
    /// Word of it in lines and options.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warn => "warn",
            Severity::Info => "info",
            Severity::Debug => "debug",
            Severity::Trace => "trace",
        }
    }
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

/// Most mounts of an answer.
pub const MOUNTS_MAX: usize = 1024;
/// Longest host or mount point of an answer, bytes; of a longer one the end is left out.
pub const MOUNT_BYTES_MAX: usize = 255;

/// Asks an MDT for the mounts that have sessions there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListMountsReq {
    /// Sessions with a higher number than this; 0 for all.
    pub after: u64,
    /// Host of the mounts; empty for all.
    pub host: String,
}

/// A mount, or an agent or another program that has a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountEntry {
    /// The session.
    pub session: SessionId,
    /// Host of the mount.
    pub host: String,
    /// Mount point, or what the program is: `agent of /archive`.
    pub mount: String,
    /// Whether it is connected.
    pub is_connected: bool,
}

/// Mounts in order of session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListMountsResp {
    /// At most [`MOUNTS_MAX`] mounts.
    pub mounts: Vec<MountEntry>,
    /// There are further mounts behind the last one.
    pub has_more: bool,
}
message!(ListMountsReq => ListMountsResp, ListMounts);

/// Asks an MDT for lines of the log of a mount, which it asks over the mount's own connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountLogLinesReq {
    /// Session of the mount.
    pub session: SessionId,
    /// The lines.
    pub lines: LogLinesReq,
}
message!(MountLogLinesReq => LogLinesResp, MountLogLines);

/// [`LogLinesReq`] of an MDT to a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLinesNotice(pub LogLinesReq);
message!(LogLinesNotice => LogLinesResp, LogLinesNotice);

/// [`LogLinesReq`] of the orchestrator of burst buffers to the agent of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLogLinesReq(pub LogLinesReq);
message!(NodeLogLinesReq => LogLinesResp, NodeLogLines);
