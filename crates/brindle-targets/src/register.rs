//! A server's registration with the MGS, and the heartbeats that keep its target `Up` in the map.
//!
//! Used by MDS and OSS. Losing the MGS does not disturb a server: it goes on serving under the epoch it has, and
//! registers again when the MGS is back and does not know it. Invariant: the epoch never goes back.

use std::sync::Arc;

use brindle_net::latch::Latch;
use brindle_stdx::{Seams, watch};
use brindle_types::{Code, Fault};
use brindle_wire::mgs::{HeartbeatReq, RegisterReq};

use crate::Directory;
use crate::map_watch::MapWatch;

/// Pause after a failed attempt.
const PAUSE_MS: u64 = 200;
/// An MGS that does not answer a heartbeat for this long is asked anew.
const HEARTBEAT_TIMEOUT_MS: u64 = 5_000;
/// Shortest time between two heartbeats.
const HEARTBEAT_MIN_MS: u64 = 50;
/// Longest wait of a request that knows a newer epoch, until the MGS has told of that epoch.
const EPOCH_WAIT_MS: u64 = 1_000;

/// A registered target.
pub struct Registration {
    seams: Seams,
    targets: Arc<Directory>,
    announce: RegisterReq,
    epoch: watch::Sender<u32>,
    stop: Latch,
}

impl Registration {
    /// Registers with the MGS of `targets`, takes in its map, and goes on with heartbeats. Waits for the MGS; fails with its refusal
    /// (`IndexInUse`, `WrongFs`).
    pub async fn start(
        seams: &Seams,
        targets: Arc<Directory>,
        announce: RegisterReq,
    ) -> Result<Arc<Registration>, Fault> {
        let answer = loop {
            match targets.mgs().probe(&announce).await {
                Ok(answer) => break answer,
                Err(f) if f.code == Code::Disconnected => seams.sleep_ms(PAUSE_MS).await,
                // The MGS that was asked cannot answer now; another one may be the active one.
                Err(f) if matches!(f.code, Code::NotLeading | Code::StoreUnreachable | Code::Overloaded) => {
                    tracing::debug!(code = %f.code, "the MGS does not register this target yet: {f}");
                    targets.map().mgs_is_silent();
                    seams.sleep_ms(PAUSE_MS).await;
                }
                Err(f) => return Err(f),
            }
        };
        targets.map().offer(answer.map);
        targets.map().watch();
        let epoch = watch::Sender::new(answer.epoch);
        let (seams, stop) = (seams.clone(), Latch::default());
        let this = Arc::new(Registration { seams, targets, announce, epoch, stop });
        let looping = this.clone();
        this.seams.spawn("register.heartbeat", async move {
            looping.stop.until(looping.beat(u64::from(answer.heartbeat_ms))).await;
        });
        Ok(this)
    }

    /// Epoch under which the target serves.
    pub fn epoch(&self) -> u32 {
        *self.epoch.borrow()
    }

    /// Waits, for a second at most, until the epoch is at least this: others may hear of it from the MGS first. The epoch then.
    pub async fn until_epoch(&self, epoch: u32) -> u32 {
        let mut news = self.epoch.subscribe();
        // When the time is over the epoch that is known counts.
        let _ = self.seams.timeout_ms(EPOCH_WAIT_MS, news.wait_for(|now| *now >= epoch)).await;
        self.epoch()
    }

    /// The map, kept up to date.
    pub fn map(&self) -> &Arc<MapWatch> {
        self.targets.map()
    }

    /// Ends heartbeats.
    pub fn stop(&self) {
        self.stop.set();
    }

    async fn beat(&self, every_ms: u64) {
        let mut refused = None;
        loop {
            self.seams.sleep_ms(every_ms.max(HEARTBEAT_MIN_MS)).await;
            let heartbeat = HeartbeatReq {
                fs: self.announce.fs.clone(),
                target: self.announce.target,
                uuid: self.announce.uuid,
                epoch: self.epoch(),
            };
            let answer =
                self.seams.timeout_ms(HEARTBEAT_TIMEOUT_MS, self.targets.mgs().probe(&heartbeat)).await;
            if let Some(Ok(answer)) = answer
                && !answer.known
            {
                let refusal = self.again().await.err();
                if let Some(fault) = refusal.as_ref().filter(|fault| refused != Some(fault.code)) {
                    tracing::error!(code = %fault.code, "the MGS refuses this target: {fault}");
                }
                refused = refusal.map(|fault| fault.code);
            }
        }
    }

    async fn again(&self) -> Result<(), Fault> {
        let mut announce = self.announce.clone();
        announce.fs_id = self.map().current().fs_id;
        let answer = self.targets.mgs().probe(&announce).await?;
        self.epoch.send_if_modified(|epoch| {
            let is_newer = answer.epoch > *epoch;
            *epoch = answer.epoch.max(*epoch);
            is_newer
        });
        self.map().offer(answer.map);
        Ok(())
    }
}
