//! What somebody above keeps of our files, pages and attributes, seen from below.

use std::collections::BTreeMap;

use brindle_stdx::BoxFuture;
use brindle_types::{Ino, Pair};
use parking_lot::Mutex;

/// Most inodes whose kept version is remembered.
const VERSIONS_MAX: usize = 1 << 16;

/// Whoever keeps pages: the kernel below a mount, a model of it in the simulator, nobody under a library.
pub trait KernelCache: Send + Sync + 'static {
    /// Drops kept pages of a range (`len_bytes` is `u64::MAX` for all that follows); completes when they are gone.
    /// The client has left out what is being read at this moment, so this never waits for a READ that was in flight
    /// when it began.
    fn invalidate(&self, ino: Ino, offset: u64, len_bytes: u64) -> BoxFuture<'static, ()>;

    /// Has the size of a file asked for, if it is kept; completes when the new one is known, or cannot be had. A kernel that keeps
    /// a size from before a cut, and reads at two places behind it at once, may take the first page for longer than it is.
    fn refresh_size(&self, _ino: Ino) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Drops the attributes that are kept of an inode, and those that are just being answered; they are gone when it
    /// returns. Waits for no request.
    fn forget_attr(&self, _ino: Ino) {}

    /// The same for everything but directories.
    fn forget_files(&self) {}

    /// The same for everything.
    fn forget_attrs(&self) {}

    /// Completes when no names are kept any more in these directories (in any, for `None`), whose leases are given up already.
    fn names_gone(&self, _dirs: Option<Vec<Ino>>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Keeps nothing.
pub struct NoCache;

impl KernelCache for NoCache {
    fn invalidate(&self, _: Ino, _: u64, _: u64) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// For each inode the version of the contents that pages were kept under when it was last open for reading. Pages may
/// be used again by a later open only under the same version.
#[derive(Default)]
pub(crate) struct KeptVersions {
    versions: Mutex<BTreeMap<Ino, Pair>>,
}

impl KeptVersions {
    /// Whether pages kept so far are of `version`; from now on those that are kept are.
    pub fn keep(&self, ino: Ino, version: Pair) -> bool {
        let mut versions = self.versions.lock();
        if versions.len() >= VERSIONS_MAX && !versions.contains_key(&ino) {
            versions.pop_first();
        }
        versions.insert(ino, version) == Some(version)
    }

    /// Pages kept so far are of no version any more.
    pub fn forget(&self, ino: Ino) {
        self.versions.lock().remove(&ino);
    }

    /// The same for every inode.
    pub fn clear(&self) {
        self.versions.lock().clear();
    }
}
