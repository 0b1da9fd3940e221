//! Values that the MGS tells a target by a long poll for as long as the target is served: limits, durability.
//!
//! While the MGS is away, the last value stays in force.

use brindle_stdx::Seams;
use brindle_types::Code;
use brindle_wire::Message;

use crate::Directory;

/// Longest time that the MGS holds a question.
pub(crate) const POLL_MS: u32 = 10_000;
/// Additional time for the answer.
const GRACE_MS: u64 = 5_000;
/// Pause after a question that was not answered, or at once.
const PAUSE_MS: u64 = 1_000;
/// Pause after an MGS of an earlier release has said that it knows no such question.
const NOTHING_PAUSE_MS: u64 = 30_000;

/// Asks again and again. `ask` makes the question of somebody who knows a version; `take` gets each answer, and says its version.
pub(crate) async fn follow<Q: Message>(
    seams: &Seams,
    targets: &Directory,
    ask: impl Fn(u64) -> Q,
    mut take: impl FnMut(Q::Resp) -> u64,
) {
    let mut known_version = 0;
    loop {
        let asked = seams.now();
        let request = ask(known_version);
        let patience_ms = u64::from(POLL_MS) + GRACE_MS;
        match seams.timeout_ms(patience_ms, targets.mgs().probe(&request)).await {
            Some(Ok(answer)) => {
                let version = take(answer);
                let is_new = version != known_version;
                known_version = version;
                if !is_new && seams.now().ms_since(asked) < PAUSE_MS {
                    // The MGS has too many who wait.
                    seams.sleep_ms(PAUSE_MS).await;
                }
            }
            Some(Err(fault)) if fault.code == Code::UnknownOp => seams.sleep_ms(NOTHING_PAUSE_MS).await,
            Some(Err(fault)) => {
                tracing::debug!(code = %fault.code, op = Q::OP.name(), "the MGS does not tell: {fault}");
                seams.sleep_ms(PAUSE_MS).await;
            }
            None => targets.map().mgs_is_silent(),
        }
    }
}
