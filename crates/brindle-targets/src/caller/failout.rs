//! Failout: calls to a target that has been unreachable for too long end with `OstUnreachable` (mount option `failout=`, note 041).
//!
//! A target is unreachable while there is no connection to it and an attempt to make one has failed since there was, or takes long.
//! Invariant: a slotted request that was given up is still sent until its outcome is known, and until then this side sends no other
//! request to the target. Therefore a write that was reported as failed never overwrites a later write of the program. Meanwhile the
//! guard of the request ([`Guard`]) keeps others from writing there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_stdx::watch;
use brindle_types::{Code, Fault};
use brindle_wire::Op;
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::frame::Frame;
use bytes::Bytes;

use super::{Abandoning, Caller, Guard, Inner, Options};

/// Interval between two looks at a target that calls wait for.
const LOOK_EVERY_MS: u64 = 100;

/// An attempt to connect that takes longer counts as failed: a host that is there answers sooner.
const ATTEMPT_MS: u64 = 1_000;

/// Failout state of a target.
#[derive(Default)]
pub(super) struct Failout {
    /// Requests that were given up, and whose outcome is not known yet.
    unsettled: watch::Sender<usize>,
    /// Whether it was logged that the target is given up.
    told: AtomicBool,
}

/// A request that was given up, until its outcome is known.
pub(super) struct Unsettled(watch::Sender<usize>);

impl Failout {
    /// Counts a request that was given up, until the return value is dropped.
    pub fn unsettled(&self) -> Unsettled {
        self.unsettled.send_modify(|count| *count += 1);
        Unsettled(self.unsettled.clone())
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Caller {
    /// Like a call without failout, but ends with `OstUnreachable` once the target has been unreachable for `limit_ms`.
    pub(super) async fn exchange_or_fail_out(
        &self,
        limit_ms: u64,
        op: Op,
        body: Bytes,
        bulk: Vec<Bytes>,
        options: Options,
        guard: Option<Guard>,
    ) -> Result<(Frame, CacheUpdates), Fault> {
        let inner = &self.inner;
        if let Some(fault) = inner.failed_out(limit_ms) {
            return Err(fault);
        }
        let given_up = Arc::<AtomicBool>::default();
        let abandoning = Abandoning { guard, given_up: Some(given_up.clone()) };
        let mut exchange = Box::pin(async {
            let mut unsettled = inner.failout.unsettled.subscribe();
            // `inner` holds the sender, so waiting cannot fail.
            let _ = unsettled.wait_for(|count| *count == 0).await;
            self.exchange_whatever_comes(op, body, bulk, options, abandoning).await
        });
        tokio::select! {
            biased;
            answer = &mut exchange => {
                inner.answers_again();
                answer
            }
            fault = inner.until_failed_out(limit_ms) => {
                given_up.store(true, Ordering::Release);
                drop(exchange);
                Err(fault)
            }
        }
    }

    /// Waits for a connection; `OstUnreachable` where the host gives the target up. Completes at once for hosts that wait for it.
    pub async fn until_reachable(&self) -> Result<(), Fault> {
        let Some(limit_ms) = self.inner.host.failout_ms() else { return Ok(()) };
        if let Some(fault) = self.inner.failed_out(limit_ms) {
            return Err(fault);
        }
        let connected = async {
            // A server that does not want us may think otherwise later.
            while self.inner.peer.wait_connected().await.is_err() && !self.inner.stop.is_set() {
                self.inner.seams.sleep_ms(LOOK_EVERY_MS).await;
            }
        };
        tokio::select! {
            biased;
            () = connected => Ok(()),
            fault = self.inner.until_failed_out(limit_ms) => Err(fault),
        }
    }

    /// Whether calls end with `OstUnreachable` now.
    pub fn is_failed_out(&self) -> bool {
        self.inner.host.failout_ms().is_some_and(|limit_ms| self.inner.failed_out(limit_ms).is_some())
    }
}

impl Inner {
    /// Reason why the target is given up now, if it is.
    fn failed_out(&self, limit_ms: u64) -> Option<Fault> {
        let state = self.peer.state();
        let ms = self.seams.now().ms_since(state.since);
        let is_tried = state.failed_attempts > 0 || ms >= ATTEMPT_MS;
        if state.connected || !is_tried || ms < limit_ms {
            return None;
        }
        let name = self.map.current().fs.target(self.target);
        let fault = Fault::new(Code::OstUnreachable).subject(name).why(format!(
            "it has not been reached for {} s, and this mount has failout={}",
            ms / 1000,
            limit_ms / 1000
        ));
        let causes = state.last_error.map(|last| match last.why.is_empty() {
            true => vec![last.what],
            false => last.why.iter().map(|why| format!("{}: {why}", last.subject).into()).collect(),
        });
        let fault = causes.unwrap_or_default().into_iter().fold(fault, Fault::why);
        if !self.failout.told.swap(true, Ordering::AcqRel) {
            tracing::warn!(code = %fault.code, "{fault}");
        }
        Some(fault)
    }

    /// Completes when the target is given up.
    async fn until_failed_out(&self, limit_ms: u64) -> Fault {
        loop {
            if let Some(fault) = self.failed_out(limit_ms) {
                return fault;
            }
            self.seams.sleep_ms(LOOK_EVERY_MS).await;
        }
    }

    /// The target has answered.
    fn answers_again(&self) {
        let is_told = self.failout.told.load(Ordering::Relaxed) && self.peer.state().connected;
        if is_told && self.failout.told.swap(false, Ordering::AcqRel) {
            tracing::info!("{} answers again", self.map.current().fs.target(self.target));
        }
    }
}
