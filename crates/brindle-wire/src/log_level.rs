//! The level of a server's log, read and changed while it runs.

use serde::{Deserialize, Serialize};

use crate::message;

/// Longest level or filter in bytes.
pub const LEVEL_BYTES_MAX: usize = 256;

/// Asks for the level of the log of a server's process, and changes it.
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
