//! The cache above the client, seen from below: files, pages and attributes that the kernel keeps.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use brindle_stdx::BoxFuture;
use brindle_types::{Ino, Pair};
use parking_lot::Mutex;

use crate::Client;
use crate::handles::Handle;

/// Most inodes whose kept version is remembered.
const VERSIONS_MAX: usize = 1 << 16;

/// Invalidation of attributes in the kernel that is still under way, to be awaited; `None` when the kernel
/// has forgotten them already.
pub type Forgetting = Option<BoxFuture<'static, ()>>;

/// Completes when all of these are done.
pub(crate) fn all_of(parts: impl IntoIterator<Item = Forgetting>) -> Forgetting {
    let left: Vec<BoxFuture<'static, ()>> = parts.into_iter().flatten().collect();
    if left.is_empty() {
        return None;
    }
    Some(Box::pin(async move {
        for part in left {
            part.await;
        }
    }))
}

/// The keeper of pages: the kernel above a mount, a model of it in the simulator, nobody above a library.
pub trait KernelCache: Send + Sync + 'static {
    /// Drops kept pages of a range (`len_bytes` is `u64::MAX` for the rest of the file); completes when they are gone. The client has
    /// left out ranges that are being read, so the call never waits for a READ that was in flight when it began.
    fn invalidate(&self, ino: Ino, offset: u64, len_bytes: u64) -> BoxFuture<'static, ()>;

    /// Has the kernel ask for the size of a file, if the kernel keeps it; completes when the new size is known, or cannot be had. If a
    /// kernel keeps a size from before a truncate, and reads at two places after it at once, it may take the first page for longer than
    /// it is.
    fn refresh_size(&self, _ino: Ino) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Completes when all earlier closes of this file have been released, with their locks, also closes that the kernel has not yet
    /// told of.
    fn closed(&self, _ino: Ino) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Drops the kept attributes of an inode, and attributes in answers under way. Waits for no request, and never blocks: if a thread
    /// is just taking in an answer, the returned future does the rest.
    fn forget_attr(&self, _ino: Ino) -> Forgetting {
        None
    }

    /// Forgets the attributes of everything but directories.
    fn forget_files(&self) -> Forgetting {
        None
    }

    /// Forgets all attributes.
    fn forget_attrs(&self) -> Forgetting {
        None
    }

    /// Completes when no names are kept any more in these directories (in any directory, for `None`). Their leases are given up
    /// already.
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

/// For each inode the version of the contents that its kept pages are of. Pages may be used again by a later open only under
/// the same version.
///
/// Where an open finds another version, the kernel drops its pages, but only when that open returns in the kernel. Other opens may be
/// answered earlier, and an open whose caller was killed never returns. A version therefore counts only when the kernel has used the
/// handle and nothing has been forgotten meanwhile.
#[derive(Default)]
pub(crate) struct KeptVersions {
    versions: Mutex<Versions>,
}

#[derive(Default)]
struct Versions {
    found: BTreeMap<Ino, FoundVersion>,
    /// Number of the last version that was found.
    number: u64,
}

/// A version that an open has found.
struct FoundVersion {
    version: Pair,
    /// Number that is never used twice: a forgotten version is not taken for the same version, found again.
    number: u64,
    /// Whether pages of other versions are gone.
    has_returned: bool,
}

impl Versions {
    fn get(&self, ino: Ino, version: Pair) -> Option<&FoundVersion> {
        self.found.get(&ino).filter(|found| found.version == version)
    }

    fn put(&mut self, ino: Ino, version: Pair) -> u64 {
        if self.found.len() >= VERSIONS_MAX && !self.found.contains_key(&ino) {
            self.found.pop_first();
        }
        self.number += 1;
        self.found.insert(ino, FoundVersion { version, number: self.number, has_returned: false });
        self.number
    }
}

impl KeptVersions {
    /// Whether pages kept so far are of `version`. If not, they have no version any more.
    pub fn keep(&self, ino: Ino, version: Pair) -> bool {
        let mut versions = self.versions.lock();
        let is_kept = versions.get(ino, version).is_some_and(|found| found.has_returned);
        if !is_kept {
            versions.found.remove(&ino);
        }
        is_kept
    }

    /// An open has found `version`. `None` if the pages kept so far are of this version. Else the pages have no version until
    /// [`KeptVersions::returned`] is called with the returned number.
    pub fn found(&self, ino: Ino, version: Pair) -> Option<u64> {
        let mut versions = self.versions.lock();
        match versions.get(ino, version).map(|found| (found.number, found.has_returned)) {
            Some((_, true)) => None,
            Some((number, false)) => Some(number),
            None => Some(versions.put(ino, version)),
        }
    }

    /// An open that got this number has returned: the kernel has dropped pages of other versions.
    pub fn returned(&self, ino: Ino, number: u64) {
        if let Some(found) = self.versions.lock().found.get_mut(&ino) {
            found.has_returned |= found.number == number;
        }
    }

    /// Pages kept so far lose their version.
    pub fn forget(&self, ino: Ino) {
        self.versions.lock().found.remove(&ino);
    }

    /// Forgets the versions of every inode.
    pub fn clear(&self) {
        self.versions.lock().found.clear();
    }
}

impl Client {
    /// Whether pages that are kept of a file are good for a handle that was opened under `version` of the contents.
    pub(crate) fn keeps_pages(&self, handle: &Handle, version: Pair) -> bool {
        let number = self.kept_versions.found(handle.inode.ino, version);
        handle.version_found.store(number.unwrap_or(0), Ordering::Relaxed);
        number.is_none()
    }

    /// Notes that the open of this handle has returned in the kernel. A read through the handle, or the close
    /// of a descriptor, proves it. If [`crate::Opened::keep_cache`] was not set, the older pages are gone by
    /// then. Not to be called for a RELEASE: a handle gets only a RELEASE where an open fails after its
    /// answer.
    pub fn open_returned(&self, number: u64) {
        let Ok(handle) = self.handles.get(number) else { return };
        // Once is enough.
        let found = handle.version_found.swap(0, Ordering::Relaxed);
        if found != 0 && handle.inode.lock().cached {
            self.kept_versions.returned(handle.inode.ino, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Ino = Ino(7);

    fn version(counter: u64) -> Pair {
        Pair { term: 1, counter }
    }

    #[test]
    fn a_version_counts_when_an_open_that_found_it_has_returned() {
        let kept = KeptVersions::default();
        let first = kept.found(F, version(1)).unwrap();
        assert_eq!(kept.found(F, version(1)), Some(first), "the first is under way, or was killed");
        kept.returned(F, first);
        assert_eq!(kept.found(F, version(1)), None);
        let second = kept.found(F, version(2)).unwrap();
        kept.returned(F, first);
        assert_eq!(kept.found(F, version(2)), Some(second), "a handle of before does not know it");
        kept.returned(F, second);
        assert!(kept.keep(F, version(2)));
    }

    #[test]
    fn what_was_forgotten_does_not_count_whatever_returns_after_that() {
        let kept = KeptVersions::default();
        let before = kept.found(F, version(1)).unwrap();
        kept.forget(F);
        kept.returned(F, before);
        let after = kept.found(F, version(1)).unwrap();
        kept.returned(F, before);
        assert_eq!(kept.found(F, version(1)), Some(after));
        kept.clear();
        kept.returned(F, after);
        let last = kept.found(F, version(1)).unwrap();
        assert!(![before, after].contains(&last));
        assert!(!kept.keep(F, version(1)), "the kernel has not shown that it has dropped any");
        kept.returned(F, last);
        assert!(kept.found(F, version(1)).is_some());
    }
}
