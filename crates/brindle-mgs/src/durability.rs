//! The durability of targets in the config store, and in memory.
//!
//! Key `fs/<name>/durability`. Invariant: the modes in memory are those in the store; others are told only after the store has made them durable.

use std::sync::Arc;

use brindle_config::{ConfigStore, Swap};
use brindle_stdx::watch;
use brindle_types::{Code, Fault, FsName, Result, TargetId};
use brindle_wire::form::{self, FormatLevel};
use brindle_wire::mgs::durability::{Mode, ModeList};
use tokio::sync::Mutex;

/// The modes, and their place in the store.
pub(crate) struct Durability {
    store: Arc<dyn ConfigStore>,
    key: String,
    /// Version of the store's entry; 0 while there is none.
    entry_version: Mutex<u64>,
    current: watch::Sender<Told>,
}

/// Modes as callers are told. Version 0 stands for no answer yet.
#[derive(Clone, Default)]
struct Told {
    version: u64,
    modes: Arc<ModeList>,
}

fn told(entry_version: u64, modes: ModeList) -> Told {
    Told { version: entry_version.saturating_add(1), modes: Arc::new(modes) }
}

impl Durability {
    /// Reads the modes.
    pub(crate) async fn open(store: Arc<dyn ConfigStore>, fs: &FsName) -> Result<Durability> {
        let key = format!("fs/{fs}/durability");
        let (version, modes) = match store.get(&key).await? {
            None => (0, ModeList::default()),
            Some(entry) => {
                let damaged = |why| Fault::new(Code::StoreDamaged).subject(key.clone()).why(why);
                let modes = form::decode(&entry.value)
                    .map_err(|why| why.fault("the durability of targets", damaged))?;
                (entry.version, modes)
            }
        };
        let current = watch::Sender::new(told(version, modes));
        Ok(Durability { store, key, entry_version: Mutex::new(version), current })
    }

    /// The modes, and their version.
    pub(crate) fn now(&self) -> (u64, Arc<ModeList>) {
        let told = self.current.borrow().clone();
        (told.version, told.modes)
    }

    /// Completes when the version is another one.
    pub(crate) async fn other_than(&self, version: u64) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.current.subscribe().wait_for(|told| told.version != version).await;
    }

    /// Gives a target a mode. Whether that is news, and the mode before.
    pub(crate) async fn change(
        &self,
        target: TargetId,
        mode: Mode,
        is_dry_run: bool,
    ) -> Result<(bool, Mode)> {
        let mut version = self.entry_version.lock().await;
        let (_, now) = self.now();
        let (before, next) = (now.of(target), with(&now, target, mode));
        if next == *now || is_dry_run {
            return Ok((next != *now, before));
        }
        let value = form::encode(FormatLevel::NEWEST, &next)?;
        match self.store.compare_and_swap(&self.key, *version, Some(&value)).await? {
            Swap::Done(new) => {
                *version = new;
                self.current.send_replace(told(new, next));
                Ok((true, before))
            }
            Swap::Lost(_) => {
                Err(Fault::new(Code::NotLeading).why("another MGS has changed the durability of targets"))
            }
        }
    }
}

/// The modes with that of a target; the default one is not kept.
fn with(modes: &ModeList, target: TargetId, mode: Mode) -> ModeList {
    let mut next = modes.clone();
    next.targets.retain(|(id, _)| *id != target);
    next.targets.extend((mode != Mode::default()).then_some((target, mode)));
    next.targets.sort_unstable();
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_one_mode_and_the_default_one_is_not_kept() {
        let (a, b) = (TargetId::ost(1), TargetId::mdt(0));
        let one = with(&ModeList::default(), a, Mode::Sync);
        assert_eq!((one.of(a), one.of(b)), (Mode::Sync, Mode::Relaxed));
        let two = with(&with(&one, b, Mode::Scratch), a, Mode::Scratch);
        assert_eq!((two.of(a), two.of(b), two.targets.len()), (Mode::Scratch, Mode::Scratch, 2));
        assert_eq!(with(&with(&two, a, Mode::Relaxed), b, Mode::Relaxed), ModeList::default());
    }
}
