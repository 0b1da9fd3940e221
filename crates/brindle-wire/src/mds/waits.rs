//! mdt_waits: who waits for whom (`brindle waits`).

use serde::{Deserialize, Serialize};

use crate::message;

/// Asks what is waiting at the MDT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtWaitsReq {}

/// A line for each wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdtWaitsResp {
    /// (what waits, for what, milliseconds so far).
    pub waits: Vec<(String, String, u64)>,
}
message!(MdtWaitsReq => MdtWaitsResp, MdtWaits);
