//! A device that two hosts reach: a block device, or an image file. All calls block.
//!
//! ```text
//! | ext4 with multiple-mount protection                     | last MiB: owner block |
//! ```
//!
//! The owner block lies outside of the file system, and is read and written past the page cache, because another host writes it too. ext4's
//! own protection (MMP) refuses a second mount as long as the first one lives; MMP would also hold up a mount after a crash for 11 s, so
//! its mark is cleared first. The caller of [`SharedDevice::mount`] has made sure that the former owner is gone.

use std::fs::{File, OpenOptions};
use std::io::Seek;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use brindle_types::{Code, Fault, Result};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::block::{BLOCK_BYTES, OwnerBlock};
use crate::mounts;
use crate::system::{run, run_for_output};

/// Packages of the commands.
const PACKAGES: &str = "e2fsprogs, mount, util-linux";
/// Smallest device, bytes.
pub const DEVICE_MIN_BYTES: u64 = 64 << 20;
/// The end of the device that is no part of its file system.
const TAIL_BYTES: u64 = 1 << 20;
/// Major number of loop devices.
const LOOP_MAJOR: u32 = 7;
/// Longest wait of an unmount while a process holds the file system.
const BUSY_LIMIT: Duration = Duration::from_secs(10);
const BUSY_LOOK: Duration = Duration::from_millis(50);
/// `EXT4_IOC_SHUTDOWN`: the file system takes and writes nothing more.
const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Flag: not even the journal is written.
const SHUTDOWN_NO_LOG_FLUSH: u32 = 2;

/// A buffer at an address that direct I/O takes.
#[repr(C, align(4096))]
struct Aligned([u8; BLOCK_BYTES]);

/// A device that two hosts reach.
#[derive(Debug)]
pub struct SharedDevice {
    path: PathBuf,
    file: File,
    is_block_device: bool,
    /// Offset of the owner block.
    tail_at: u64,
}

impl SharedDevice {
    /// Opens a block device or an image file.
    pub fn open(path: &Path) -> Result<SharedDevice> {
        let cannot = |e: &std::io::Error| {
            let fault = Fault::io(Code::NotATarget, "cannot open the device", path.display().to_string(), e);
            fault.data("nothing was changed").next("look whether this host reaches it: lsblk, multipath -ll")
        };
        let open =
            |flags: libc::c_int| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        // File systems without direct I/O can hold images, too; both hosts of such a pair are on one kernel.
        let mut file = match open(libc::O_DIRECT) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => open(libc::O_SYNC),
            opened => opened,
        }
        .map_err(|e| cannot(&e))?;
        let kind = file.metadata().map_err(|e| cannot(&e))?.file_type();
        let bytes = file.seek(std::io::SeekFrom::End(0)).map_err(|e| cannot(&e))?;
        if !(kind.is_block_device() || kind.is_file()) || bytes < DEVICE_MIN_BYTES {
            return Err(Fault::new(Code::NotATarget)
                .what("cannot use the device")
                .subject(path.display().to_string())
                .why(format!(
                    "it has {bytes} bytes; a block device or an image of {DEVICE_MIN_BYTES} or more is needed"
                ))
                .data("nothing was changed"));
        }
        let tail_at = bytes / TAIL_BYTES * TAIL_BYTES - TAIL_BYTES;
        Ok(SharedDevice { path: path.to_owned(), file, is_block_device: kind.is_block_device(), tail_at })
    }

    /// Path of the device on this host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn io(&self, what: &'static str, e: &std::io::Error) -> Fault {
        Fault::io(Code::BadOwnerBlock, what, self.path.display().to_string(), e)
    }

    /// Reads the owner block; `None` where nobody has ever written one.
    pub fn read_block(&self) -> Result<Option<OwnerBlock>> {
        let mut buffer = Box::new(Aligned([0; BLOCK_BYTES]));
        let read = self.file.read_exact_at(&mut buffer.0, self.tail_at);
        read.map_err(|e| self.io("cannot read the owner block of", &e))?;
        OwnerBlock::decode(&buffer.0).map_err(|fault| fault.subject(self.path.display().to_string()))
    }

    /// Writes the owner block, durably, and reads it back.
    pub fn write_block(&self, block: &OwnerBlock) -> Result<()> {
        let buffer = Box::new(Aligned(block.encode()));
        let written = self.file.write_all_at(&buffer.0, self.tail_at).and_then(|()| self.file.sync_data());
        written.map_err(|e| self.io("cannot write the owner block of", &e))?;
        match self.read_block()? {
            Some(found) if found == *block => Ok(()),
            found => Err(Fault::new(Code::BadOwnerBlock)
                .subject(self.path.display().to_string())
                .why("another block is read than was written a moment ago")
                .why(format!("it is of {}", found.map_or_else(|| "nobody".to_owned(), |found| found.host)))),
        }
    }

    /// Kind of the contents of the device, in a word, as far as blkid can tell: `ext4`, `LVM2_member`, `gpt`;
    /// `None` for a blank device.
    pub fn holds(&self) -> Result<Option<String>> {
        let mut blkid = Command::new("blkid");
        blkid
            .args(["--probe", "--output", "value", "--match-tag", "TYPE", "--match-tag", "PTTYPE"])
            .arg(&self.path);
        // blkid ends with 2 if it finds nothing.
        let words = run_for_output(&mut blkid, PACKAGES, &[0, 2])?;
        Ok(words.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned))
    }

    /// Makes the file system. Refuses a device that holds anything but the beginning of this very target, which the owner block vouches for.
    pub fn format(&self) -> Result<()> {
        let kib = self.tail_at / 1024;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-m", "0", "-O", "mmp", "-E", "mmp_update_interval=1,nodiscard"]);
        run(mkfs.arg(&self.path).arg(format!("{kib}k")), PACKAGES)
    }

    /// Refuses a device that holds something.
    pub fn must_be_blank(&self) -> Result<()> {
        match self.holds()? {
            None => Ok(()),
            Some(word) => Err(Fault::new(Code::AlreadyFormatted)
                .what("cannot format the device")
                .subject(self.path.display().to_string())
                .why(format!("it holds something: {word}"))
                .data("nothing was changed")
                .next("give a blank device; to destroy what it holds: wipefs --all DEVICE")),
        }
    }

    /// Mounts it. The caller owns the device, and has waited until the former owner is gone.
    pub fn mount(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir)
            .map_err(|e| Fault::io(Code::NotWritable, "cannot make", dir.display().to_string(), &e))?;
        match mounted_from(dir)? {
            Some(source) if same_file(&source, &self.path) => return Ok(()),
            Some(source) => {
                return Err(Fault::new(Code::MountFailed)
                    .what("cannot mount")
                    .subject(format!("{} at {}", self.path.display(), dir.display()))
                    .why(format!("{} is mounted there", source.display()))
                    .data("nothing was changed")
                    .next(format!("unmount it: umount {}", dir.display())));
            }
            None => {}
        }
        if self.is_block_device {
            return mount_device(&self.path, dir);
        }
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--direct-io=on"]).arg(&self.path);
        let node = run_for_output(&mut losetup, PACKAGES, &[0])?.trim().to_owned();
        let mounted = mount_device(Path::new(&node), dir);
        // The loop device stays as long as it is mounted, and goes with the mount.
        let let_go = run(Command::new("losetup").args(["--detach", &node]), PACKAGES);
        mounted.and(let_go)
    }
}

/// Mounts a device of this kernel, without the wait for a former owner that is gone.
fn mount_device(device: &Path, dir: &Path) -> Result<()> {
    run(Command::new("tune2fs").args(["-f", "-E", "clear_mmp"]).arg(device), PACKAGES)?;
    let options = "noatime,errors=remount-ro";
    run(Command::new("mount").args(["-t", "ext4", "-o", options]).arg(device).arg(dir), PACKAGES)
}

fn same_file(a: &Path, b: &Path) -> bool {
    let canonical = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    canonical(a) == canonical(b)
}

/// Source of the mount at exactly this directory: a block device, or the image file behind a loop device.
pub fn mounted_from(dir: &Path) -> Result<Option<PathBuf>> {
    let dir = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let Some(line) = mounts::find(&dir) else { return Ok(None) };
    if line.major != LOOP_MAJOR {
        return Ok(Some(PathBuf::from(line.source)));
    }
    let backing = format!("/sys/dev/block/{}:{}/loop/backing_file", line.major, line.minor);
    match std::fs::read_to_string(&backing) {
        Ok(file) => Ok(Some(PathBuf::from(file.trim_end()))),
        Err(e) => {
            Err(Fault::io(Code::MountFailed, "cannot tell what is mounted at", dir.display().to_string(), &e))
        }
    }
}

/// Unmounts; waits for a bounded time while something holds it.
pub fn unmount(dir: &Path) -> Result<()> {
    let since = Instant::now();
    loop {
        match rustix::mount::unmount(dir, UnmountFlags::empty()) {
            Ok(()) | Err(Errno::INVAL) => return Ok(()),
            // The kernel tells nobody when the last user lets go, so it is asked again.
            Err(Errno::BUSY) if since.elapsed() < BUSY_LIMIT => std::thread::sleep(BUSY_LOOK),
            Err(e) => {
                return Err(Fault::io(
                    Code::MountFailed,
                    "cannot unmount",
                    dir.display().to_string(),
                    &e.into(),
                )
                .next(format!("find who holds it: fuser -vm {}", dir.display())));
            }
        }
    }
}

/// Simulates a power failure of the host: unwritten bytes are lost, and nothing more is written. For hosts
/// that find that they do not own the device any more, and for development clusters.
pub fn cut_power(dir: &Path) -> Result<()> {
    shut_down(dir)?;
    let fault =
        |e: Errno| Fault::io(Code::MountFailed, "cannot unmount", dir.display().to_string(), &e.into());
    rustix::mount::unmount(dir, UnmountFlags::DETACH).map_err(fault)
}

/// Cuts the power of whatever a process has mounted from images, and this process has not: of a host that is played by a mount namespace. The
/// mounts themselves go with the namespace.
pub fn cut_power_of(pid: u32) -> Result<()> {
    let here: Vec<(u32, u32)> = mounts::all().iter().map(|line| (line.major, line.minor)).collect();
    let process = PathBuf::from(format!("/proc/{pid}"));
    for line in mounts::all_of(&process) {
        if line.major == LOOP_MAJOR && line.fs_type == "ext4" && !here.contains(&(line.major, line.minor)) {
            let below = line.mount_point.strip_prefix("/").unwrap_or(&line.mount_point);
            shut_down(&process.join("root").join(below))?;
        }
    }
    Ok(())
}

fn shut_down(dir: &Path) -> Result<()> {
    let fault =
        |e: &std::io::Error| Fault::io(Code::MountFailed, "cannot shut down", dir.display().to_string(), e);
    let file = match File::open(dir) {
        // The file system was shut down before.
        Err(e) if e.raw_os_error() == Some(libc::EIO) => return Ok(()),
        opened => opened.map_err(|e| fault(&e))?,
    };
    let flag = SHUTDOWN_NO_LOG_FLUSH;
    // SAFETY: the call reads one u32 at the given address, and the descriptor is open.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const flag) };
    if done == 0 { Ok(()) } else { Err(fault(&std::io::Error::last_os_error())) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// An image, and two directories as of two hosts; unmounted whatever happens.
    struct Image {
        dir: tempfile::TempDir,
    }

    impl Image {
        fn new() -> Image {
            let dir = tempfile::tempdir().unwrap();
            let file = File::create(dir.path().join("image")).unwrap();
            file.set_len(DEVICE_MIN_BYTES).unwrap();
            Image { dir }
        }

        fn open(&self) -> SharedDevice {
            SharedDevice::open(&self.dir.path().join("image")).unwrap()
        }

        fn at(&self, host: &str) -> PathBuf {
            self.dir.path().join(host)
        }
    }

    impl Drop for Image {
        fn drop(&mut self) {
            for host in ["a", "b"] {
                // Most are unmounted by now.
                let _ = rustix::mount::unmount(self.at(host), UnmountFlags::DETACH);
            }
        }
    }

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn a_takeover_after_a_power_cut_is_quick_and_finds_what_was_synced() {
        if !is_root() {
            return;
        }
        let image = Image::new();
        let device = image.open();
        device.must_be_blank().unwrap();
        device.format().unwrap();
        assert_eq!(device.must_be_blank().unwrap_err().code, Code::AlreadyFormatted);
        let (a, b) = (image.at("a"), image.at("b"));
        device.mount(&a).unwrap();
        device.mount(&a).unwrap();
        assert_eq!(mounted_from(&a).unwrap(), Some(device.path().to_owned()));
        let mut file = File::create(a.join("synced")).unwrap();
        file.write_all(b"good").unwrap();
        file.sync_all().unwrap();
        File::open(&a).unwrap().sync_all().unwrap();
        std::fs::write(a.join("unsynced"), vec![7; 1 << 20]).unwrap();
        drop(file);
        cut_power(&a).unwrap();
        let since = Instant::now();
        let other = image.open();
        other.mount(&b).unwrap();
        assert!(since.elapsed() < Duration::from_secs(5), "an MMP mark that is not cleared takes 11 s");
        let mut text = String::new();
        File::open(b.join("synced")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "good");
        assert!(!b.join("unsynced").exists(), "it was never written");
        unmount(&b).unwrap();
        assert_eq!(mounted_from(&b).unwrap(), None);
    }

    #[test]
    fn the_owner_block_lies_beside_the_file_system() {
        if !is_root() {
            return;
        }
        let image = Image::new();
        let (device, other) = (image.open(), image.open());
        device.format().unwrap();
        assert_eq!(device.read_block().unwrap(), None);
        let block = OwnerBlock {
            target: [1; 16],
            turn: 1,
            host: "oss1".into(),
            boot_id: [2; 16],
            process: 3,
            sequence: 4,
            is_released: false,
        };
        device.write_block(&block).unwrap();
        assert_eq!(other.read_block().unwrap(), Some(block.clone()), "past the cache of whoever reads");
        device.mount(&image.at("a")).unwrap();
        device.write_block(&OwnerBlock { sequence: 5, ..block }).unwrap();
        let full = std::fs::write(image.at("a").join("full"), vec![9; DEVICE_MIN_BYTES as usize]);
        assert!(full.is_err(), "the file system is smaller than the device");
        assert_eq!(other.read_block().unwrap().unwrap().sequence, 5);
        unmount(&image.at("a")).unwrap();
    }
}
