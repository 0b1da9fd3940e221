//! Answers that a thread got a moment ago, in the same system call: attributes of a file that it has just made, and
//! extended attributes that are known not to exist.
//!
//! On its way along a path the kernel asks for the ACL of each directory right after its LOOKUP, and `ls -l` does so for each file. The
//! attributes in the LOOKUP's reply say whether there is an ACL, so the MDT need not be asked. In a chmod the kernel also asks for ACLs,
//! right after the SETATTR. After every CREATE, in the same open(2), the kernel asks for the attributes that it has just been given.
//!
//! Invariant: only the reply to the thread's own last request (a LOOKUP, SETATTR or CREATE) counts, only for a moment, and once: a
//! thread that then asks by descriptor may have heard of a change. Files that a lease covers are not answered from here.

use std::collections::BTreeMap;

use brindle_stdx::Mono;
use brindle_types::{Attr, Ino};
use parking_lot::Mutex;

/// Validity of a LOOKUP or a CREATE.
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
    extras: Extras,
}

/// The last LOOKUP or CREATE of each thread whose last request was one.
#[derive(Default)]
pub(crate) struct Recent {
    found: Mutex<BTreeMap<u32, Seen>>,
    made: Mutex<BTreeMap<u32, (Attr, Mono)>>,
}

impl Recent {
    /// A LOOKUP of the thread `tid` found an inode.
    pub fn found(&self, tid: u32, attr: &Attr, at: Mono) {
        self.saw(tid, Seen { ino: attr.ino, at, extras: Extras::of(attr) });
    }

    /// A SETATTR of the thread `tid` set a mode.
    pub fn mode_set(&self, tid: u32, attr: &Attr, at: Mono) {
        // The kernel asks for no others.
        let extras = Extras { others: true, ..Extras::of(attr) };
        self.saw(tid, Seen { ino: attr.ino, at, extras });
    }

    fn saw(&self, tid: u32, seen: Seen) {
        let mut threads = self.found.lock();
        if threads.len() >= THREADS_MAX {
            threads.clear();
        }
        threads.insert(tid, seen);
    }

    /// A CREATE of the thread `tid`, asked for at `at`, made an inode.
    pub fn made(&self, tid: u32, attr: &Attr, at: Mono) {
        let mut threads = self.made.lock();
        if threads.len() >= THREADS_MAX {
            threads.clear();
        }
        threads.insert(tid, (attr.clone(), at));
    }

    /// The thread asks for something else. The attributes of what its last request made, once, if that is what it asks for.
    pub fn forget(&self, tid: u32, ino: Ino, now: Mono) -> Option<Attr> {
        self.found.lock().remove(&tid);
        let (attr, at) = self.made.lock().remove(&tid)?;
        (tid != 0 && attr.ino == ino && now.ms_since(at) < GOOD_FOR_MS).then_some(attr)
    }

    /// Extended attributes were changed, here or elsewhere.
    pub fn forget_extras(&self) {
        self.found.lock().clear();
    }

    /// Extended attributes of the inode, if an answer to this thread has just told them; each answer is used
    /// once.
    pub fn extras(&self, tid: u32, ino: Ino, now: Mono) -> Option<Extras> {
        let seen = self.found.lock().remove(&tid)?;
        (tid != 0 && seen.ino == ino && now.ms_since(seen.at) < GOOD_FOR_MS).then_some(seen.extras)
    }
}

/// Kinds of extended attributes that an inode has.
#[derive(Clone, Copy)]
pub(crate) struct Extras {
    acl: bool,
    others: bool,
}

impl Extras {
    /// Kinds that the attributes tell.
    pub fn of(attr: &Attr) -> Extras {
        Extras { acl: attr.has_acl, others: attr.has_xattr }
    }

    /// Whether it is known not to have this one.
    pub fn lack(self, name: &[u8]) -> bool {
        if !PREFIXES.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len()) {
            return false;
        }
        !(if name.starts_with(ACL_PREFIX) { self.acl } else { self.others })
    }

    /// Whether it is known to have none at all.
    pub fn are_none(self) -> bool {
        !self.acl && !self.others
    }
}
