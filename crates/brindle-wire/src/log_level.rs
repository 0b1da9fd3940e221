//! The level of the log of a server, a mount or an agent, read and changed while its process runs.

use brindle_types::SessionId;
use serde::{Deserialize, Serialize};

use crate::message;

/// Longest level or filter in bytes.
pub const LEVEL_BYTES_MAX: usize = 256;

/// Asks for the level of the log of a process, and changes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLevelReq {
    /// The new level, or filter such as `warn,brindle_mds=debug`; `None` only asks.
    pub level: Option<String>,
}

/// The level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLevelResp {
    /// Level now.
    pub level: String,
    /// Level before.
    pub before: String,
}

/// [`LogLevelReq`] to an MDT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtLogLevelReq(pub LogLevelReq);
message!(MdtLogLevelReq => LogLevelResp, MdtLogLevel);

/// [`LogLevelReq`] to an OST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OstLogLevelReq(pub LogLevelReq);
message!(OstLogLevelReq => LogLevelResp, OstLogLevel);

/// [`LogLevelReq`] to an MGS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MgsLogLevelReq(pub LogLevelReq);
message!(MgsLogLevelReq => LogLevelResp, MgsLogLevel);

/// Asks an MDT for the level of the log of a mount, or changes it. The MDT asks the mount over the mount's own connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountLogLevelReq {
    /// Session of the mount.
    pub session: SessionId,
    /// The level.
    pub level: LogLevelReq,
}
message!(MountLogLevelReq => LogLevelResp, MountLogLevel);

/// [`LogLevelReq`] of an MDT to a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLevelNotice {
    /// The level.
    pub level: LogLevelReq,
    /// Who asks, for the log of the mount.
    pub by: String,
}
message!(LogLevelNotice => LogLevelResp, LogLevelNotice);

/// [`LogLevelReq`] of the orchestrator of burst buffers to the agent of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLogLevelReq(pub LogLevelReq);
message!(NodeLogLevelReq => LogLevelResp, NodeLogLevel);
