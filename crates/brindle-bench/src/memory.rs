//! Memory that is there when the clock runs, also on a virtual machine whose hypervisor takes free memory back.
//!
//! Free page reporting (of virtio-balloon, say) hands free memory to the hypervisor after some seconds, and the machine gets
//! it again page by page, slowly, when somebody uses it. On one such machine a file went into the page cache at 0.4 GB/s
//! through memory that had been free for 20 s, and at 5 GB/s through memory that had just been freed; a write of 1 GiB with
//! its fsync took between 0.7 and 4.3 s on ext4. Dropping caches frees memory, so cold phases measured the hypervisor.
//!
//! The kernel reports whole free blocks of 2 MiB and more. [`Warm`] uses memory once and gives all of it back but for one page of
//! each block: what is free between these pages does not become a whole block again, and stays (unless the kernel compacts memory
//! meanwhile). Huge pages have to come from other memory. Where the hypervisor takes nothing back, the warm-up costs about half a
//! second for each GiB, once.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr;

use brindle_stdx::cast::to_usize;
use brindle_types::units::{GIB, KIB, MIB};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Memory that a benchmark may use for each byte of its files: caches of a client, of a server, and of the disk below.
const BYTES_PER_BYTE: u64 = 3;
/// Memory for each file or directory: inodes and entries, also several times.
const BYTES_PER_FILE: u64 = 16 * KIB;
/// Most that one benchmark warms.
const WARM_BYTES_MAX: u64 = 4 * GIB;
/// Smallest unit of the kernel's figures: a huge page.
const BLOCK_BYTES: usize = 2 * to_usize(MIB);

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

    /// Warms `bytes` of memory, but at most half of the free memory and of the rest that the control group of
    /// this process may use. Warms nothing where the memory cannot be had. Empty caches first: only free
    /// memory can be warmed.
    pub fn bytes(bytes: u64) -> Warm {
        let most = free_bytes().unwrap_or(0).min(group_free_bytes().unwrap_or(u64::MAX)) / 2;
        let blocks = usize::try_from(bytes.min(most)).unwrap_or(0) / BLOCK_BYTES;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else refers to it.
        let mapped = (blocks > 0).then(|| unsafe {
            mmap_anonymous(ptr::null_mut(), blocks * BLOCK_BYTES, ProtFlags::READ | ProtFlags::WRITE, flags)
        });
        let Some(Ok(start)) = mapped else { return Warm::nothing() };
        let warm = Warm { start, blocks };
        if warm.touch().is_err() { Warm::nothing() } else { warm }
    }

    fn nothing() -> Warm {
        Warm { start: ptr::null_mut(), blocks: 0 }
    }

    /// Bytes that were warmed; 0 for none.
    pub fn len_bytes(&self) -> u64 {
        (self.blocks * BLOCK_BYTES) as u64
    }

    /// Text for the notes of a run, if there is something to say.
    pub fn note(&self) -> Option<String> {
        let mib = self.len_bytes() / MIB;
        (mib > 0).then(|| {
            format!("{mib} MiB of memory were used once before, so that none has to come from a hypervisor meanwhile.")
        })
    }

    /// Uses all of it, then keeps the first page of each block.
    fn touch(&self) -> rustix::io::Result<()> {
        let page_bytes = rustix::param::page_size();
        let first = self.start.cast::<u8>();
        // A huge page is not given back in parts at once. An error is that of a kernel without huge pages.
        // SAFETY: the range is that of the mapping.
        let _ = unsafe { madvise(self.start, self.blocks * BLOCK_BYTES, Advice::LinuxNoHugepage) };
        for page in 0..self.blocks * BLOCK_BYTES / page_bytes {
            // SAFETY: the byte is within the mapping, which is writable and which only this refers to.
            unsafe { first.add(page * page_bytes).write_volatile(1) };
        }
        for block in 0..self.blocks {
            // SAFETY: within the mapping, from a page on; nobody reads these pages.
            unsafe {
                let rest = first.add(block * BLOCK_BYTES + page_bytes);
                madvise(rest.cast(), BLOCK_BYTES - page_bytes, Advice::LinuxDontNeed)?;
            }
        }
        Ok(())
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        if self.blocks > 0 {
            // SAFETY: the mapping of `bytes`, to which nothing refers any more. munmap cannot fail for an existing mapping.
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

/// Memory that the tightest control group of this process leaves it; `None` when none limits it.
fn group_free_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups_of(&text).iter().filter_map(|group| group.free_bytes()).min()
}

/// A directory of a control group, and its files for memory.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    dir: PathBuf,
    limit: &'static str,
    used: &'static str,
}

impl Group {
    fn free_bytes(&self) -> Option<u64> {
        let number = |name| std::fs::read_to_string(self.dir.join(name)).ok()?.trim().parse::<u64>().ok();
        Some(number(self.limit)?.saturating_sub(number(self.used)?))
    }
}

/// The groups that a process is in, with those around them, of /proc/PID/cgroup in both versions of control groups.
fn groups_of(proc_cgroup: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in proc_cgroup.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (root, limit, used) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => continue,
        };
        for around in Path::new(path).ancestors() {
            let dir = Path::new(root).join(around.strip_prefix("/").unwrap_or(around));
            groups.push(Group { dir, limit, used });
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

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
    fn limits_of_control_groups_count_with_those_around_them() {
        let dirs = |text| groups_of(text).into_iter().map(|g| (g.dir, g.limit)).collect::<Vec<_>>();
        let v2 = [("/sys/fs/cgroup/job/step", "memory.max"), ("/sys/fs/cgroup/job", "memory.max")];
        let mut expected: Vec<_> = v2.map(|(dir, limit)| (PathBuf::from(dir), limit)).into();
        expected.push((PathBuf::from("/sys/fs/cgroup/"), "memory.max"));
        assert_eq!(dirs("0::/job/step\n"), expected);
        let v1 = dirs("5:cpu:/x\n4:memory:/y\n");
        assert_eq!(v1[0], (PathBuf::from("/sys/fs/cgroup/memory/y"), "memory.limit_in_bytes"));
        assert_eq!(v1.len(), 2);

        let dir = tempfile::tempdir().expect("made");
        let group = Group { dir: dir.path().to_owned(), limit: "memory.max", used: "memory.current" };
        assert_eq!(group.free_bytes(), None);
        let write = |name, text| std::fs::write(dir.path().join(name), text).expect("written");
        write("memory.current", "300\n");
        write("memory.max", "max\n");
        assert_eq!(group.free_bytes(), None, "no limit");
        write("memory.max", "1000\n");
        assert_eq!(group.free_bytes(), Some(700));
    }

    #[test]
    fn one_page_of_each_block_is_kept() {
        let warm = Warm::bytes(3 * BLOCK_BYTES as u64 + 1);
        assert_eq!(warm.blocks, 3);
        let page_bytes = rustix::param::page_size();
        let mut map = vec![0; 3 * BLOCK_BYTES / page_bytes * 8];
        let pages = std::fs::File::open("/proc/self/pagemap").expect("opens");
        let first = warm.start as u64 / page_bytes as u64 * 8;
        pages.read_exact_at(&mut map, first).expect("a word for each page");
        // Bit 63 says that the page is there.
        let there: Vec<usize> = (0..map.len() / 8).filter(|page| map[page * 8 + 7] & 0x80 != 0).collect();
        let each = BLOCK_BYTES / page_bytes;
        assert_eq!(there, [0, each, 2 * each]);
        assert!(warm.note().is_some_and(|note| note.starts_with("6 MiB")));
        assert_eq!(Warm::bytes(0).note(), None);
    }
}
