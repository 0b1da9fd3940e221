//! Extended attributes that are known not to exist, because the file was looked up a moment ago in the same call.
//!
//! On its way along a path the kernel asks for the ACL of each directory right after its LOOKUP, and `ls -l` does so of
//! each file. The attributes that the LOOKUP brought say whether there are any, so that the MDT needs not be asked.
//!
//! Invariant: only what the thread's own last request, a LOOKUP, brought counts, and only for a moment: an answer from
//! here is never older than the call that asks, but for a thread that asks by descriptor right after a path.

use std::collections::BTreeMap;

use brindle_stdx::Mono;
use brindle_types::{Attr, Ino};
use parking_lot::Mutex;

/// How long a LOOKUP counts.
const GOOD_FOR_MS: u64 = 20;
/// Threads remembered; beyond them all are forgotten.
const THREADS_MAX: usize = 4096;
/// Prefixes of attributes that a file may have; of others it is the MDT that says why not.
const PREFIXES: [&[u8]; 4] = [ACL_PREFIX, b"security.", b"user.", b"trusted."];
/// Prefix of the names of ACLs.
const ACL_PREFIX: &[u8] = b"system.posix_acl_";

#[derive(Clone, Copy)]
struct Seen {
    ino: Ino,
    at: Mono,
    has_acl: bool,
    has_xattr: bool,
}

/// The last LOOKUP of each thread whose last request was one.
#[derive(Default)]
pub(crate) struct Recent(Mutex<BTreeMap<u32, Seen>>);

impl Recent {
    /// A LOOKUP of the thread `tid` found an inode.
    pub fn found(&self, tid: u32, attr: &Attr, at: Mono) {
        let mut threads = self.0.lock();
        if threads.len() >= THREADS_MAX {
            threads.clear();
        }
        let seen = Seen { ino: attr.ino, at, has_acl: attr.has_acl, has_xattr: attr.has_xattr };
        threads.insert(tid, seen);
    }

    /// The thread asks for something else.
    pub fn forget(&self, tid: u32) {
        self.0.lock().remove(&tid);
    }

    /// Whether the inode is known not to have the attribute.
    pub fn lacks(&self, tid: u32, ino: Ino, name: &[u8], now: Mono) -> bool {
        if !PREFIXES.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len()) {
            return false;
        }
        let acl = name.starts_with(ACL_PREFIX);
        self.seen(tid, ino, now).is_some_and(|seen| !(if acl { seen.has_acl } else { seen.has_xattr }))
    }

    /// Whether the inode is known to have no attribute at all.
    pub fn lacks_all(&self, tid: u32, ino: Ino, now: Mono) -> bool {
        self.seen(tid, ino, now).is_some_and(|seen| !seen.has_acl && !seen.has_xattr)
    }

    fn seen(&self, tid: u32, ino: Ino, now: Mono) -> Option<Seen> {
        let seen = *self.0.lock().get(&tid)?;
        (tid != 0 && seen.ino == ino && now.ms_since(seen.at) < GOOD_FOR_MS).then_some(seen)
    }
}
