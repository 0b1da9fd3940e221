//! Memory that is there when the clock runs, also on a virtual machine whose hypervisor takes free memory back.
//!
//! Free page reporting (of virtio-balloon, say) hands free memory to the hypervisor after some seconds, and the machine gets
//! it again page by page, slowly, when somebody uses it. On one such machine a file went into the page cache at 0.4 GB/s
//! through memory that had been free for 20 s, and at 5 GB/s through memory that had just been freed; a write of 1 GiB with
//! its fsync took between 0.7 and 4.3 s on ext4. Dropping caches frees memory, so cold phases measured the hypervisor.
//!
//! What is reported are whole free blocks of 2 MiB and more. [`Warm`] uses memory once and gives all of it back but for one
//! page of each block: what is free between these pages never becomes a whole block again, and stays. Where nothing is
//! taken back this costs about half a second for each GiB, once.

use std::ffi::c_void;
use std::ptr;

use brindle_types::units::{GIB, KIB, MIB};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Memory that a benchmark may use for each byte of its files: caches of a client, of a server, and of the disk below.
const BYTES_PER_BYTE: u64 = 3;
/// And for each file or directory: inodes and entries, also several times.
const BYTES_PER_FILE: u64 = 16 * KIB;
/// Most that one benchmark warms.
const WARM_BYTES_MAX: u64 = 4 * GIB;
/// What the kernel reports is never smaller: a huge page.
const BLOCK_BYTES: usize = 2 * MIB as usize;
/// What is kept of a block.
const PAGE_BYTES: usize = 4 * KIB as usize;

/// Memory that was used once, and of which one page in each 2 MiB is kept until this is dropped.
pub struct Warm {
    start: *mut c_void,
    blocks: usize,
}

impl Warm {
    /// Enough for files of so many bytes, and so many files; at most 4 GiB.
    pub fn for_files(bytes: u64, files: u64) -> Warm {
        Warm::bytes(wanted(bytes, files))
    }

    /// So many bytes, but at most half of what is free; nothing where the memory cannot be had.
    pub fn bytes(bytes: u64) -> Warm {
        let most = free_bytes().unwrap_or(0) / 2;
        let blocks = usize::try_from(bytes.min(most)).unwrap_or(0) / BLOCK_BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else refers to it.
        let mapped = (blocks > 0).then(|| unsafe {
            mmap_anonymous(ptr::null_mut(), blocks * BLOCK_BYTES, ProtFlags::READ | ProtFlags::WRITE, flags)
        });
        let Some(Ok(start)) = mapped else { return Warm { start: ptr::null_mut(), blocks: 0 } };
        let warm = Warm { start, blocks };
        warm.touch();
        warm
    }

    /// How much was used; 0 when nothing was.
    pub fn len_bytes(&self) -> u64 {
        (self.blocks * BLOCK_BYTES) as u64
    }

    /// For the notes of a run.
    pub fn note(&self) -> String {
        format!(
            "{} MiB of memory were used once before, so that none has to come from a hypervisor meanwhile.",
            self.len_bytes() / MIB
        )
    }

    /// Uses all of it in pages of 4 KiB (a huge page would not be given back in parts at once), then keeps the first page of
    /// each block.
    fn touch(&self) {
        // SAFETY: the range is that of the mapping.
        let advised = unsafe { madvise(self.start, self.blocks * BLOCK_BYTES, Advice::LinuxNoHugepage) };
        if advised.is_err() {
            return;
        }
        for page in 0..self.blocks * BLOCK_BYTES / PAGE_BYTES {
            // SAFETY: the byte is within the mapping, which is writable and which only this refers to.
            unsafe { self.start.cast::<u8>().add(page * PAGE_BYTES).write_volatile(1) };
        }
        for block in 0..self.blocks {
            // SAFETY: within the mapping; nobody reads these pages.
            let given_back = unsafe {
                let rest = self.start.cast::<u8>().add(block * BLOCK_BYTES + PAGE_BYTES);
                madvise(rest.cast(), BLOCK_BYTES - PAGE_BYTES, Advice::LinuxDontNeed)
            };
            if given_back.is_err() {
                return;
            }
        }
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        if self.blocks > 0 {
            // SAFETY: the mapping of `bytes`, to which nothing refers any more. It cannot fail for one that exists.
            let _ = unsafe { munmap(self.start, self.blocks * BLOCK_BYTES) };
        }
    }
}

fn wanted(bytes: u64, files: u64) -> u64 {
    let of_files = files.saturating_mul(BYTES_PER_FILE);
    bytes.saturating_mul(BYTES_PER_BYTE).saturating_add(of_files).min(WARM_BYTES_MAX)
}

/// Memory that nothing is in.
fn free_bytes() -> Option<u64> {
    std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| free_of(&text))
}

fn free_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemFree:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_bounded() {
        assert_eq!(wanted(MIB, 1), 3 * MIB + 16 * KIB);
        assert_eq!(wanted(0, 1024), 16 * MIB);
        assert_eq!(wanted(u64::MAX, u64::MAX), WARM_BYTES_MAX);
    }

    #[test]
    fn free_memory_is_read() {
        assert_eq!(free_of("MemTotal: 24684084 kB\nMemFree:        24449024 kB\n"), Some(24_449_024 * KIB));
        assert_eq!(free_of("MemFree: many kB\n"), None);
        assert!(free_bytes().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn one_page_of_each_block_is_kept() {
        let warm = Warm::bytes(3 * BLOCK_BYTES as u64 + 1);
        assert_eq!(warm.blocks, 3);
        let begin = format!("{:x}-", warm.start as usize);
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("readable");
        let own = maps.lines().skip_while(|line| !line.starts_with(&begin));
        let resident = own.into_iter().find_map(|line| line.strip_prefix("Rss:")).map(str::trim);
        assert_eq!(resident, Some("12 kB"), "three pages");
        assert_eq!(Warm::bytes(0).len_bytes(), 0);
    }
}
