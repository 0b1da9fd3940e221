//! Memory that other processes of this machine may read. The blocks of [`crate::buffers`] lie in one file in memory (memfd). A process
//! that is given its descriptor maps the file and reads a block in place, which saves two copies through a socket (`brindle-net`,
//! `tcp/shared_memory.rs`; design note 015).
//!
//! Invariants: a range of the file belongs to one [`Memory`] at a time, or is free and uses no memory; the file never becomes shorter, so
//! that what was mapped stays readable; others are given a descriptor for reading.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of addresses of the file; it uses memory only for blocks that are in use or kept for the next.
/// Blocks that find no room in it are ordinary memory, which others do not see.
pub const ARENA_BYTES: usize = 1 << 30;
/// `statfs` of a file in memory (`linux/magic.h`).
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Ranges begin at pages.
const PAGE_BYTES: usize = crate::buffers::ALIGN_BYTES;

/// A file in memory, mapped.
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is memory, and nothing in it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: what is handed out of it is an atomic, or a pointer whose user answers for what he does.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first `len` bytes of a file of this process.
    pub fn writable(file: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        Mapping::new(file, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps the whole of a file that another process has made.
    ///
    /// # Errors
    /// `InvalidData` if the file could become shorter, is longer than `max_len`, or is of another kind (for example huge pages, of which
    /// there may be none left): a read of a page that cannot be had kills the reader.
    pub fn of_another(file: BorrowedFd<'_>, max_len: usize, writes: bool) -> io::Result<Mapping> {
        let len = usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(usize::MAX);
        let sealed = rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        let is_plain = rustix::fs::fstatfs(file)?.f_type == TMPFS_MAGIC;
        if !sealed || !is_plain || len == 0 || len > max_len {
            let why = format!("a file of {len} bytes, at most {max_len} that stay, was expected");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let write = if writes { ProtFlags::WRITE } else { ProtFlags::empty() };
        Mapping::new(file, len, ProtFlags::READ | write)
    }

    fn new(file: BorrowedFd<'_>, len: usize, prot: ProtFlags) -> io::Result<Mapping> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping, where the kernel chooses.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, file, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { base, len };
        // Keep the memory out of core dumps, which would allocate its pages.
        // SAFETY: it changes nothing of the memory.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, rustix::mm::Advice::LinuxDontDump)? };
        Ok(mapping)
    }

    /// Length of the mapping.
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// Address of bytes within the mapping.
    pub fn at(&self, offset: usize, len: usize) -> Option<*const u8> {
        let end = offset.checked_add(len)?;
        // SAFETY: not behind its end.
        (end <= self.len).then(|| unsafe { self.base.as_ptr().add(offset).cast_const() })
    }

    /// A word of the mapping, by its index.
    ///
    /// # Panics
    /// When it has fewer.
    pub fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.len / size_of::<AtomicU32>(), "word {index} of {} bytes", self.len);
        // SAFETY: it lies within, at a multiple of its size; it is looked at as an atomic only.
        unsafe { &*self.base.as_ptr().cast::<AtomicU32>().add(index) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: whoever had something of it has kept it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A file in memory that never becomes shorter nor longer.
pub fn file(name: &str, len: usize) -> io::Result<OwnedFd> {
    let longest = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if longest.is_some_and(|longest| longest < len as u64) {
        // The kernel kills a process that exceeds the limit (SIGXFSZ).
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the limit of file sizes (ulimit -f) is too low",
        ));
    }
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&file, len as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

struct Arena {
    file: OwnedFd,
    /// Descriptor of the same file, for reading only.
    to_read: OwnedFd,
    mapping: Mapping,
    ranges: Mutex<Ranges>,
}

#[derive(Default)]
struct Ranges {
    /// Offset behind which no range has been used yet.
    next: usize,
    /// Returned ranges, by their length.
    free: BTreeMap<usize, Vec<usize>>,
}

fn arena() -> Option<&'static Arena> {
    static ARENA: OnceLock<Option<Arena>> = OnceLock::new();
    let make = || {
        let made = Arena::new();
        made.inspect_err(|error| tracing::info!(%error, "no memory that others of this machine can see")).ok()
    };
    ARENA.get_or_init(make).as_ref()
}

impl Arena {
    fn new() -> io::Result<Arena> {
        let file = file("brindle-blocks", ARENA_BYTES)?;
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let to_read = rustix::fs::open(again, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mapping = Mapping::writable(file.as_fd(), ARENA_BYTES)?;
        Ok(Arena { file, to_read, mapping, ranges: Mutex::default() })
    }

    fn take(&self, len: usize) -> Option<usize> {
        let mut ranges = self.ranges.lock();
        if let Some(at) = ranges.free.get_mut(&len).and_then(Vec::pop) {
            return Some(at);
        }
        let at = ranges.next;
        ranges.next = at.checked_add(len).filter(|end| *end <= ARENA_BYTES)?;
        Some(at)
    }

    fn give_back(&self, at: usize, len: usize) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = rustix::fs::fallocate(&self.file, hole, at as u64, len as u64) {
            tracing::debug!(%error, "memory stays in use until the same block is used again");
        }
        self.ranges.lock().free.entry(len).or_default().push(at);
    }
}

/// The file of this process, for somebody who may read all of it. `None` where there is none.
pub fn descriptor() -> Option<BorrowedFd<'static>> {
    arena().map(|arena| arena.to_read.as_fd())
}

/// Offset of bytes in the file; `None` if they lie elsewhere.
pub fn locate(bytes: &[u8]) -> Option<u64> {
    let base = arena()?.mapping.base.as_ptr() as usize;
    let at = (bytes.as_ptr() as usize).checked_sub(base)?;
    (at.checked_add(bytes.len())? <= ARENA_BYTES).then_some(at as u64)
}

/// A block of memory, in the file if it has room.
pub(crate) enum Memory {
    /// Elsewhere.
    Own(Vec<u8>),
    /// Memory in the file, with its offset and length.
    Shared(&'static Mapping, usize, usize),
}

impl Memory {
    /// Zeroed memory of at least this many bytes, in whole pages.
    pub fn new(len: usize) -> Memory {
        let len = len.next_multiple_of(PAGE_BYTES);
        let taken = arena().and_then(|arena| Some((arena, arena.take(len)?)));
        match taken {
            Some((arena, at)) => Memory::Shared(&arena.mapping, at, len),
            None => Memory::Own(vec![0; len]),
        }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Own(Vec::new())
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Memory::Own(memory) => memory,
            // SAFETY: the range lies in the mapping and belongs to this value, which nobody changes while it is borrowed.
            Memory::Shared(mapping, at, len) => unsafe {
                std::slice::from_raw_parts(mapping.base.as_ptr().add(*at), *len)
            },
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Own(memory) => memory,
            // SAFETY: the same; other processes can only read it.
            Memory::Shared(mapping, at, len) => unsafe {
                std::slice::from_raw_parts_mut(mapping.base.as_ptr().add(*at), *len)
            },
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let (Memory::Shared(_, at, len), Some(arena)) = (&*self, arena()) {
            arena.give_back(*at, *len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that this file uses, in bytes.
    fn used() -> i64 {
        rustix::fs::fstat(descriptor().expect("it is there")).expect("told").st_blocks * 512
    }

    #[test]
    fn others_see_a_block_where_it_lies_and_cannot_write() {
        let mut block = Memory::new(5000);
        block[1234] = 7;
        assert_eq!(block.len(), 2 * PAGE_BYTES);
        let file = descriptor().expect("it is there");
        let other = Mapping::of_another(file, ARENA_BYTES, false).expect("mapped");
        let at = locate(&block[1000..2000]).expect("it lies there") as usize;
        let seen = other.at(at, 1000).expect("within");
        // SAFETY: within the mapping, which is kept.
        assert_eq!(unsafe { *seen.add(234) }, 7);
        assert!(Mapping::of_another(file, ARENA_BYTES, true).is_err(), "to write");
        assert!(other.at(ARENA_BYTES - 5, 6).is_none() && other.at(usize::MAX, 2).is_none());
        assert!(locate(&[0; 10]).is_none());
    }

    #[test]
    fn what_could_become_shorter_is_not_mapped() {
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::ALLOW_SEALING).expect("made");
        rustix::fs::ftruncate(&loose, 8192).expect("longer");
        let refused = Mapping::of_another(loose.as_fd(), 8192, false).err().expect("refused");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let tight = file("tight", 8192).expect("made");
        assert!(Mapping::of_another(tight.as_fd(), 8191, false).is_err(), "too long");
        assert!(Mapping::of_another(tight.as_fd(), 8192, true).is_ok());
        assert!(rustix::fs::ftruncate(&tight, 0).is_err());
    }

    #[test]
    fn a_block_that_is_given_back_uses_no_memory_and_comes_again_as_zeros() {
        const LEN: usize = 64 << 20;
        let mut block = Memory::new(LEN);
        block.fill(1);
        let place = locate(&block);
        let full = used();
        drop(block);
        assert!(full - used() > LEN as i64 / 2, "{full} bytes, then {}", used());
        let again = Memory::new(LEN);
        assert_eq!(locate(&again), place);
        assert!(again.iter().all(|byte| *byte == 0));
        let beyond = Memory::new(ARENA_BYTES);
        assert!(locate(&beyond).is_none(), "no room");
    }
}
