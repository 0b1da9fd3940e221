//! The limits of jobs, users and hosts: a long poll at the MGS, for as long as a target is served.
//!
//! While the MGS is away those count that were heard last.

use std::sync::Arc;

use brindle_net::Fair;
use brindle_stdx::Seams;
use brindle_types::Code;
use brindle_wire::mgs::limit::WatchLimitsReq;

use crate::Directory;

/// Longest time that the MGS holds a question.
const POLL_MS: u32 = 10_000;
/// Additional time for the answer.
const GRACE_MS: u64 = 5_000;
/// Pause after a question that was not answered, or at once.
const PAUSE_MS: u64 = 1_000;
/// Pause after an MGS of an earlier release has said that it knows of no limits.
const NOTHING_PAUSE_MS: u64 = 30_000;

/// Goes by the limits that the MGS of `targets` tells.
pub async fn follow(seams: Seams, targets: Arc<Directory>, fair: Arc<Fair>) {
    let mut known_version = 0;
    loop {
        let request = WatchLimitsReq { known_version, wait_ms: POLL_MS };
        let asked = seams.now();
        let patience_ms = u64::from(POLL_MS) + GRACE_MS;
        match seams.timeout_ms(patience_ms, targets.mgs().probe(&request)).await {
            Some(Ok(answer)) => {
                let is_new = answer.version != known_version;
                known_version = answer.version;
                if let Some(rules) = answer.rules {
                    fair.set_limits(&rules);
                }
                if !is_new && seams.now().ms_since(asked) < PAUSE_MS {
                    // The MGS has too many who wait.
                    seams.sleep_ms(PAUSE_MS).await;
                }
            }
            Some(Err(fault)) if fault.code == Code::UnknownOp => seams.sleep_ms(NOTHING_PAUSE_MS).await,
            Some(Err(fault)) => {
                tracing::debug!(code = %fault.code, "the MGS does not tell the limits: {fault}");
                seams.sleep_ms(PAUSE_MS).await;
            }
            None => targets.map().mgs_is_silent(),
        }
    }
}
