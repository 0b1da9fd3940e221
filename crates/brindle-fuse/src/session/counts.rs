//! Number of requests of each kind from the kernel, and of the bytes in them: the counters of a mount.
//!
//! Answers out of the kernel's own caches are not counted. Readers raise a counter with one relaxed addition a request.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::request::Op;
use crate::request::decode::name_of;

/// Operations that have a number of their own; others share the first place, which no operation has.
const CODES: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct RequestCounts {
    by_code: [AtomicU64; CODES],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Default for RequestCounts {
    fn default() -> RequestCounts {
        RequestCounts {
            by_code: std::array::from_fn(|_| AtomicU64::new(0)),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }
}

impl RequestCounts {
    /// A request has come.
    pub(super) fn came(&self, code: u32, op: &Op) {
        let at = usize::try_from(code).ok().filter(|at| *at < CODES).unwrap_or(0);
        self.by_code[at].fetch_add(1, Ordering::Relaxed);
        if let Op::Write(write) = op {
            self.written_bytes.fetch_add(write.data.len() as u64, Ordering::Relaxed);
        }
    }

    /// A READ was answered with so many bytes.
    pub(super) fn read(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Operations that were asked for, by the number of [`crate::abi::opcode`].
    pub fn of(&self, code: u32) -> u64 {
        let at = usize::try_from(code).ok().and_then(|at| self.by_code.get(at));
        at.map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Bytes that READs were answered with.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that came with WRITEs.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }
}

/// Operations of programs, by number and by name in small letters (`lookup`).
pub fn counted() -> impl Iterator<Item = (u32, String)> {
    use crate::abi::opcode::*;
    const COUNTED: [u32; 33] = [
        LOOKUP,
        GETATTR,
        SETATTR,
        READLINK,
        SYMLINK,
        MKNOD,
        MKDIR,
        UNLINK,
        RMDIR,
        RENAME,
        LINK,
        OPEN,
        READ,
        WRITE,
        STATFS,
        RELEASE,
        FSYNC,
        SETXATTR,
        GETXATTR,
        LISTXATTR,
        REMOVEXATTR,
        FLUSH,
        OPENDIR,
        READDIR,
        RELEASEDIR,
        FSYNCDIR,
        SETLK,
        SETLKW,
        ACCESS,
        CREATE,
        FALLOCATE,
        READDIRPLUS,
        RENAME2,
    ];
    COUNTED.into_iter().map(|code| (code, name_of(code).to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::opcode;

    #[test]
    fn a_number_that_nobody_knows_is_counted_nowhere_else() {
        let counts = RequestCounts::default();
        counts.came(opcode::STATFS, &Op::Statfs);
        counts.came(u32::MAX, &Op::Statfs);
        assert_eq!((counts.of(opcode::STATFS), counts.of(0), counts.of(u32::MAX)), (1, 1, 0));
    }

    #[test]
    fn names_are_those_of_the_kernel_once_each() {
        let names: std::collections::BTreeSet<String> = counted().map(|(_, name)| name).collect();
        assert_eq!(names.len(), counted().count());
        assert!(
            names.contains("readdirplus") && names.iter().all(|name| !name.starts_with("op ")),
            "{names:?}"
        );
    }
}
