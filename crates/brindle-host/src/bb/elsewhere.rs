//! Buffers with parts on other hosts. If a host fails, another one is chosen. When a host is back, the parts that it still has are
//! removed.

use brindle_bb::{Buffer, Goal, Phase};
use brindle_types::{Code, Fault, Result};

use super::job_lock::JobLock;
use super::orchestrator::{Orchestrator, short};

/// How often the hosts of a new buffer are chosen.
const HOSTS_TRIED_MAX: usize = 3;

impl Orchestrator<'_> {
    /// Makes a buffer that was allocated. Where a host of its slices fails, others are chosen: the buffer is allocated `again`, and what
    /// there is of the first one goes when its host is back.
    pub(super) fn make_somewhere(
        &self,
        lock: &JobLock,
        (mut version, mut buffer): (u64, Buffer),
        again: &dyn Fn() -> Result<(u64, Buffer)>,
    ) -> Result<()> {
        for left in (0..HOSTS_TRIED_MAX).rev() {
            let serial = buffer.serial;
            let Err(fault) = self.pursue(lock, version, buffer, &Goal::Setup) else { return Ok(()) };
            let half = self.store.buffer(serial)?.filter(|(_, b)| b.phase == Phase::Making);
            let Some((at, half)) = half.filter(|(_, b)| left > 0 && self.actions.has_trouble(b)) else {
                return Err(fault);
            };
            tracing::warn!(%fault, job = half.token, serial, "a host has failed, and others are chosen");
            self.pursue(lock, at, half, &Goal::Drop)?;
            (version, buffer) = again().map_err(|full| full.why(short(&fault)))?;
        }
        Ok(())
    }

    /// Goes on with destroying what lies on other hosts, when they are back.
    pub(super) fn look_after_bricks(&self) {
        let all = match self.store.buffers() {
            Ok(all) => all,
            Err(fault) => return tracing::warn!(%fault, "cannot look after bricks"),
        };
        let lies_elsewhere = |b: &Buffer| b.slices.iter().any(|slice| slice.node.is_some());
        let waits = |b: &Buffer| b.phase == Phase::Destroying && lies_elsewhere(b);
        for (_, buffer) in all.into_iter().filter(|(_, b)| waits(b)) {
            let Ok(pool) = self.store.pool(&buffer.pool) else { continue };
            if !self.actions.may_be_removed(&buffer, &pool) {
                continue;
            }
            let lock = self.lock_of(&buffer.token);
            let Some(_step) = lock.step.try_lock() else { continue };
            let (job, serial) = (buffer.token, buffer.serial);
            let done = self.store.buffer(serial).and_then(|found| match found.filter(|(_, b)| waits(b)) {
                Some((version, b)) => self.pursue(&JobLock::default(), version, b, &Goal::Drop).map(drop),
                None => Ok(()),
            });
            if let Err(fault) = done {
                tracing::warn!(%fault, job, serial, "cannot remove what hosts have of the buffer");
            }
        }
    }
}

/// Whether a buffer could not be destroyed because of other hosts, so that nobody but them can go on.
pub(super) fn waits_for_hosts(buffer: &Buffer, fault: &Fault) -> bool {
    fault.code != Code::SwapFailed && buffer.slices.iter().any(|slice| slice.node.is_some())
}
