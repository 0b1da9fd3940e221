//! A server's registration with the MGS, and the heartbeats that keep its target `Up` in the map.
//!
//! Used by MDS and OSS. Losing the MGS does not disturb a server: it goes on serving under the epoch it has, and
//! registers again when the MGS is back and does not know it. Invariant: the epoch never goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use brindle_net::Peer;
use brindle_net::latch::Latch;
use brindle_stdx::Seams;
use brindle_types::{Code, Fault};
use brindle_wire::mgs::{HeartbeatReq, RegisterReq};

use crate::map_watch::{MapWatch, ask_mgs};

/// Pause after a failed attempt.
const PAUSE_MS: u64 = 200;
/// An MGS that does not answer a heartbeat for so long is asked anew.
const HEARTBEAT_TIMEOUT_MS: u64 = 5_000;
/// Shortest time between two heartbeats.
const HEARTBEAT_MIN_MS: u64 = 50;

/// A registered target.
pub struct Registration {
    seams: Seams,
    mgs: Arc<Peer>,
    announce: RegisterReq,
    map: Arc<MapWatch>,
    epoch: AtomicU32,
    stop: Latch,
}

impl Registration {
    /// Registers and goes on with heartbeats. Waits for the MGS; fails with what it says (`IndexInUse`, `WrongFs`).
    pub async fn start(
        seams: &Seams,
        mgs: Arc<Peer>,
        announce: RegisterReq,
    ) -> Result<Arc<Registration>, Fault> {
        let answer = loop {
            match ask_mgs(&mgs, &announce).await {
                Ok(answer) => break answer,
                Err(f) if f.code == Code::Disconnected => seams.sleep_ms(PAUSE_MS).await,
                Err(f) => return Err(f),
            }
        };
        let map = MapWatch::with_map(seams, mgs.clone(), answer.map);
        let this = Arc::new(Registration {
            seams: seams.clone(),
            mgs,
            announce,
            map,
            epoch: AtomicU32::new(answer.epoch),
            stop: Latch::default(),
        });
        let looping = this.clone();
        seams.spawn("register.heartbeat", async move {
            looping.stop.until(looping.beat(u64::from(answer.heartbeat_ms))).await;
        });
        Ok(this)
    }

    /// Epoch under which the target serves.
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The map, kept up to date.
    pub fn map(&self) -> &Arc<MapWatch> {
        &self.map
    }

    /// Ends heartbeats and the watch of the map.
    pub fn stop(&self) {
        self.stop.set();
        self.map.stop();
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
            let answer = self.seams.timeout_ms(HEARTBEAT_TIMEOUT_MS, ask_mgs(&self.mgs, &heartbeat)).await;
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
        announce.fs_id = self.map.current().fs_id;
        let answer = ask_mgs(&self.mgs, &announce).await?;
        self.epoch.fetch_max(answer.epoch, Ordering::AcqRel);
        self.map.offer(answer.map);
        Ok(())
    }
}
