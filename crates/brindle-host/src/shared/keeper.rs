//! Keeps the owner block of a device fresh: the lease of its owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_net::latch::Latch;
use brindle_stdx::{Seams, watch};
use brindle_targets::{OWNER_LEASE_MS, OwnerLease};
use brindle_types::{Code, Fault, Result};

use super::block::OwnerBlock;
use super::device::SharedDevice;

/// Interval at which the block is rewritten, in milliseconds. A lease (`OWNER_LEASE_MS`) survives two
/// failures.
const REWRITE_EVERY_MS: u64 = 500;

/// A device without an answer for this long counts as lost. Until then its target answers no request, and goes on when the
/// device does.
const SILENT_LIMIT_MS: u64 = 15_000;
/// Interval at which the keeper checks for silence, in milliseconds.
const LOOK_EVERY_MS: u64 = 250;

/// Reason why an owner has to stop.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    /// A host other than this one has written the block: nothing more may be written to the device.
    Taken(Fault),
    /// The device did not answer for a long time.
    Silent(Fault),
}

/// The keeper; goes on until it is stopped.
pub(crate) struct Keeper {
    seams: Seams,
    device: Arc<SharedDevice>,
    lease: Arc<OwnerLease>,
    /// Turn that the next write of the block shows.
    turn: AtomicU64,
    /// Turn that the block shows.
    shown: watch::Sender<u64>,
    block: parking_lot::Mutex<OwnerBlock>,
    lost: watch::Sender<Option<Lost>>,
    hurry: tokio::sync::Notify,
    stop: Latch,
    stopped: Latch,
}

impl Keeper {
    /// Writes `block` for the first time and keeps it fresh from then on.
    pub(crate) async fn start(
        seams: &Seams,
        device: Arc<SharedDevice>,
        block: OwnerBlock,
    ) -> Result<Arc<Keeper>> {
        let lease = Arc::new(OwnerLease::new(seams));
        let began = seams.now();
        write(&device, &block).await?;
        lease.extend(began);
        let keeper = Arc::new(Keeper {
            seams: seams.clone(),
            device,
            lease,
            turn: AtomicU64::new(block.turn),
            shown: watch::Sender::new(block.turn),
            block: parking_lot::Mutex::new(block),
            lost: watch::Sender::default(),
            hurry: tokio::sync::Notify::new(),
            stop: Latch::default(),
            stopped: Latch::default(),
        });
        let own = keeper.clone();
        seams.spawn("shared.keeper", async move {
            own.stop.until(own.keep()).await;
            own.stopped.set();
        });
        Ok(keeper)
    }

    /// The lease that the keeper extends.
    pub(crate) fn lease(&self) -> Arc<OwnerLease> {
        self.lease.clone()
    }

    /// Takes in a new turn of the same owner. Completes when the block shows the turn, or the keeper has
    /// lost.
    pub(crate) async fn show_turn(&self, turn: u64) {
        self.turn.fetch_max(turn, Ordering::AcqRel);
        self.hurry.notify_one();
        let mut shown = self.shown.subscribe();
        tokio::select! {
            // The sender lives as long as `self`, so waiting cannot fail.
            _ = shown.wait_for(|shown| *shown >= turn) => {}
            _ = self.until_lost() => {}
        }
    }

    /// Completes when the owner has to stop.
    pub(crate) async fn until_lost(&self) -> Lost {
        let mut lost = self.lost.subscribe();
        loop {
            let told = self.seams.timeout_ms(LOOK_EVERY_MS, lost.wait_for(Option::is_some)).await;
            if let Some(Ok(lost)) = told
                && let Some(lost) = lost.clone()
            {
                return lost;
            }
            // The device may hold a call for ever.
            if self.lease.ended_ms_ago().is_some_and(|ms| ms + OWNER_LEASE_MS > SILENT_LIMIT_MS) {
                let seconds = SILENT_LIMIT_MS / 1000;
                let why = format!("{} has not answered for {seconds} s", self.device.path().display());
                return Lost::Silent(Fault::new(Code::NotOwner).why(why));
            }
        }
    }

    /// Ends the keeper. Returns the block, which is not rewritten any more.
    pub(crate) async fn stop(&self) -> OwnerBlock {
        self.stop.set();
        self.stopped.wait().await;
        self.block.lock().clone()
    }

    async fn keep(&self) {
        loop {
            let began = self.seams.now();
            match self.rewrite().await {
                Ok(()) => self.lease.extend(began),
                Err(Lost::Taken(fault)) => {
                    self.lost.send_replace(Some(Lost::Taken(fault)));
                    return;
                }
                Err(Lost::Silent(fault)) => {
                    tracing::warn!(code = %fault.code, "cannot rewrite the owner block: {fault}");
                }
            }
            self.seams.timeout_ms(REWRITE_EVERY_MS, self.hurry.notified()).await;
        }
    }

    /// Reads the block, which must be as it was written, and writes the next one.
    async fn rewrite(&self) -> std::result::Result<(), Lost> {
        let device = self.device.clone();
        let read = tokio::task::spawn_blocking(move || device.read_block());
        let found = read.await.map_err(died).and_then(|read| read).map_err(Lost::Silent)?;
        let mut block = self.block.lock().clone();
        // A write that seemed to fail may have reached the device.
        let is_own = |found: &OwnerBlock| found.process == block.process && found.target == block.target;
        if !found.as_ref().is_some_and(is_own) {
            let owner = found.map_or_else(|| "nobody".to_owned(), |found| found.host);
            let fault = Fault::new(Code::NotOwner)
                .why(format!("the owner block of {} is of {owner} now", self.device.path().display()));
            return Err(Lost::Taken(fault));
        }
        block.sequence += 1;
        block.turn = self.turn.load(Ordering::Acquire);
        write(&self.device, &block).await.map_err(Lost::Silent)?;
        let turn = block.turn;
        *self.block.lock() = block;
        self.shown.send_replace(turn);
        Ok(())
    }
}

fn died(e: tokio::task::JoinError) -> Fault {
    Fault::new(Code::Bug).why(e.to_string())
}

/// Writes a block, on a thread for blocking calls.
pub(crate) async fn write(device: &Arc<SharedDevice>, block: &OwnerBlock) -> Result<()> {
    let (device, block) = (device.clone(), block.clone());
    tokio::task::spawn_blocking(move || device.write_block(&block)).await.map_err(died)?
}

/// Runs `work` on a thread for blocking calls.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(died)?
}
