//! Open files that are being released. close(2) returns before the mount has heard of it, and the servers hold the locks that go with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_types::Ino;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Releases that have begun and not ended, by inode.
#[derive(Default)]
pub(crate) struct Releases {
    by_inode: Mutex<BTreeMap<Ino, usize>>,
    ended: Notify,
}

/// A release under way, until it is dropped.
pub(crate) struct Release {
    all: Arc<Releases>,
    ino: Ino,
}

impl Releases {
    /// Begins a release.
    pub fn begin(self: &Arc<Self>, ino: Ino) -> Release {
        *self.by_inode.lock().entry(ino).or_default() += 1;
        Release { all: self.clone(), ino }
    }

    /// Completes when none of an inode is under way.
    pub async fn over(&self, ino: Ino) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.by_inode.lock().contains_key(&ino) {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let mut table = self.all.by_inode.lock();
        if let Some(count) = table.get_mut(&self.ino) {
            *count -= 1;
            if *count == 0 {
                table.remove(&self.ino);
            }
        }
        drop(table);
        self.all.ended.notify_waiters();
    }
}
