//! Lock table of one inode: ranges with owners, fcntl (and OFD) beside flock.

use brindle_fuse::request::{Lock, LockKind};

/// Locks that are held.
#[derive(Default)]
pub struct Locks(Vec<Lock>);

impl Locks {
    /// A held lock that is in the way of `wanted`.
    pub fn conflict(&self, wanted: &Lock) -> Option<&Lock> {
        self.0.iter().find(|held| {
            held.flock == wanted.flock
                && held.owner != wanted.owner
                && held.start <= wanted.end
                && wanted.start <= held.end
                && (held.kind == LockKind::Write || wanted.kind == LockKind::Write)
        })
    }

    /// Takes or drops a lock that is not in conflict.
    pub fn set(&mut self, new: Lock) {
        let mut kept = Vec::new();
        for held in self.0.drain(..) {
            let same = held.flock == new.flock && held.owner == new.owner;
            if !same || held.end < new.start || new.end < held.start {
                kept.push(held);
                continue;
            }
            if held.start < new.start {
                kept.push(Lock { end: new.start - 1, ..held });
            }
            if held.end > new.end {
                kept.push(Lock { start: new.end + 1, ..held });
            }
        }
        if new.kind != LockKind::Unlock {
            kept.push(new);
        }
        self.0 = kept;
    }

    /// Drops what matches.
    pub fn drop_where(&mut self, matches: impl Fn(&Lock) -> bool) {
        self.0.retain(|l| !matches(l));
    }
}
