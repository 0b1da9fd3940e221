//! Reports of OSTs to the MGS about their scrubs, for its events.

use brindle_types::TargetId;
use serde::{Deserialize, Serialize};

use crate::message;
use crate::oss::scrub::ScrubPass;

/// An OST tells of a pass: at its end, and when it has found damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteScrubReq {
    /// The target.
    pub target: TargetId,
    /// The pass so far.
    pub pass: ScrubPass,
}

/// Acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteScrubResp {}
message!(NoteScrubReq => NoteScrubResp, NoteScrub);
