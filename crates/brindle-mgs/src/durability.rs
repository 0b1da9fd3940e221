//! The durability of targets: key `fs/<name>/durability` of the config store.

use std::sync::Arc;

use brindle_config::ConfigStore;
use brindle_types::{FsName, Result, TargetId};
use brindle_wire::mgs::durability::{Mode, ModeList};

use crate::published::Published;

/// The modes.
pub(crate) struct Durability(Published<ModeList>);

impl Durability {
    /// Reads the modes.
    pub(crate) async fn open(store: Arc<dyn ConfigStore>, fs: &FsName) -> Result<Durability> {
        let key = format!("fs/{fs}/durability");
        Published::open(store, key, "the durability of targets").await.map(Durability)
    }

    /// The modes, and their version.
    pub(crate) fn now(&self) -> (u64, Arc<ModeList>) {
        self.0.now()
    }

    /// Completes when the version is another one.
    pub(crate) async fn other_than(&self, version: u64) {
        self.0.other_than(version).await;
    }

    /// Gives a target a mode. Whether that is news, and the mode before.
    pub(crate) async fn change(
        &self,
        target: TargetId,
        mode: Mode,
        is_dry_run: bool,
    ) -> Result<(bool, Mode)> {
        self.0.change(is_dry_run, |modes| Ok((with(modes, target, mode), modes.of(target)))).await
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

    #[test]
    fn a_write_whose_answer_was_lost_blocks_no_later_change() {
        crate::testing::run(async {
            let (store, _dir) = crate::testing::Forgetful::new();
            let modes = Durability::open(store.clone(), &"scratch".parse().unwrap()).await.unwrap();
            let (a, b) = (TargetId::ost(1), TargetId::mdt(0));
            store.lose_next_answer();
            modes.change(a, Mode::Sync, false).await.unwrap_err();
            assert_eq!(modes.change(b, Mode::Scratch, false).await.unwrap(), (true, Mode::Relaxed));
            let (_, now) = modes.now();
            assert_eq!((now.of(a), now.of(b)), (Mode::Sync, Mode::Scratch), "the lost write was made");
        });
    }
}
