//! The durability of a target: a long poll at the MGS for as long as the target is served, and a file in its directory for a start without the MGS.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use brindle_stdx::{Disk, Seams};
use brindle_types::{Result, TargetId};
use brindle_wire::mgs::durability::{KeptMode, Mode, WatchDurabilityReq, WatchDurabilityResp};

use crate::Directory;
use crate::follow::{self, POLL_MS};
use crate::replica::kept;

/// File of the mode, in the directory of the target.
const FILE: &str = "durability";
/// Longest wait for the MGS when a target starts.
const START_MS: u64 = 1_000;
/// The mode of a target.
pub struct TargetMode {
    target: TargetId,
    dir: String,
    mode: AtomicU8,
    /// Whether the file in the directory says the same.
    is_kept: AtomicBool,
    /// Set where the mode is not for the MGS to say.
    is_fixed: bool,
}

impl TargetMode {
    /// The mode that never changes.
    pub fn fixed(target: TargetId, mode: Mode) -> TargetMode {
        let (mode, is_kept) = (AtomicU8::new(mode.number()), AtomicBool::new(true));
        TargetMode { target, dir: String::new(), mode, is_kept, is_fixed: true }
    }

    /// The mode of the target in `dir`: what the MGS says now, or what is on file where it does not answer soon.
    pub async fn begin(seams: &Seams, targets: &Directory, target: TargetId, dir: &str) -> TargetMode {
        let kept: Result<Option<KeptMode>> =
            kept::load(&*seams.disk, &path(dir), "the durability of the target");
        let is_kept = AtomicBool::new(kept.is_ok());
        let kept = kept.map(Option::unwrap_or_default).unwrap_or_else(|fault| {
            // The MGS has the mode, too. Until the MGS tells it, the target uses the strongest mode.
            tracing::warn!(code = %fault.code, "{fault}");
            KeptMode { mode: Mode::Sync }
        });
        let mode = AtomicU8::new(kept.mode.number());
        let own = TargetMode { target, dir: dir.to_owned(), mode, is_kept, is_fixed: false };
        let request = WatchDurabilityReq { known_version: 0, wait_ms: 0 };
        match targets.mgs().probe_within(&request, START_MS).await {
            Ok(answer) => own.take(&*seams.disk, answer.modes.unwrap_or_default().of(target)),
            Err(fault) => {
                tracing::debug!(code = %fault.code, "the MGS does not tell the durability: {fault}")
            }
        }
        own
    }

    /// Whether the mode is not for the MGS to say: the store syncs before each reply then.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// The mode now.
    pub fn now(&self) -> Mode {
        Mode::from_number(self.mode.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// Applies a mode from now on, and records it.
    fn take(&self, disk: &dyn Disk, mode: Mode) {
        let is_news = self.mode.swap(mode.number(), Ordering::AcqRel) != mode.number();
        if is_news {
            tracing::info!(target_name = %self.target, %mode, "changes are answered by another durability");
        } else if self.is_kept.load(Ordering::Acquire) {
            return;
        }
        let saved = kept::save(disk, &path(&self.dir), &KeptMode { mode });
        self.is_kept.store(saved.is_ok(), Ordering::Release);
        if let Err(fault) = saved {
            tracing::warn!(code = %fault.code, "cannot keep the durability of the target: {fault}");
        }
    }

    /// Follows the durability that the MGS of `targets` sets, for as long as the target is served. `changed` hears of
    /// each mode.
    pub async fn follow(
        self: Arc<TargetMode>,
        seams: Seams,
        targets: Arc<Directory>,
        changed: impl Fn(Mode) + Send,
    ) {
        if self.is_fixed {
            return;
        }
        let ask = |known_version| WatchDurabilityReq { known_version, wait_ms: POLL_MS };
        let take = |answer: WatchDurabilityResp| {
            if let Some(modes) = answer.modes {
                self.take(&*seams.disk, modes.of(self.target));
                changed(self.now());
            }
            answer.version
        };
        follow::follow(&seams, &targets, ask, take).await;
    }
}

fn path(dir: &str) -> String {
    format!("{dir}/{FILE}")
}
