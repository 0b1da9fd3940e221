//! The limits of jobs, users and hosts, as the MGS tells them.

use std::sync::Arc;

use brindle_net::Fair;
use brindle_stdx::Seams;
use brindle_wire::mgs::limit::{WatchLimitsReq, WatchLimitsResp};

use crate::Directory;
use crate::follow::{self, POLL_MS};

/// Goes by the limits that the MGS of `targets` tells.
pub async fn follow(seams: Seams, targets: Arc<Directory>, fair: Arc<Fair>) {
    let ask = |known_version| WatchLimitsReq { known_version, wait_ms: POLL_MS };
    let take = |answer: WatchLimitsResp| {
        if let Some(rules) = answer.rules {
            fair.set_limits(&rules);
        }
        answer.version
    };
    follow::follow(&seams, &targets, ask, take).await;
}
