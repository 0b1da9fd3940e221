//! fence_table: the fence table, which an OST that was away fetches before it serves again.

use brindle_types::{Pair, SessionId};
use serde::{Deserialize, Serialize};

use crate::message;

/// Asks for the epoch of every session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceTableReq {}

/// Fence table: requests of an older epoch of a session are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceTableResp {
    /// Session and lowest epoch that is accepted.
    pub fences: Vec<(SessionId, Pair)>,
    /// Version of the table: everything that an MDT has told under this version, or a lower one, is in it.
    pub version: u64,
}
message!(FenceTableReq => FenceTableResp, FenceTable);
