//! mount(2) and umount(2) of a FUSE connection, and what sysfs offers for it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use brindle_stdx::cast::low_u32;
use brindle_types::{Code, Fault};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::mount::UnmountFlags;

use super::channel::{DEVICE, open_device};

/// Type of the file system, as `mount` and `/proc/mounts` show it.
pub const FS_TYPE: &str = "fuse.brindle";

/// Mount point and mount options.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// Source as `mount` shows it: `HOST:/FSNAME`.
    pub source: String,
    /// Refuse changes.
    pub read_only: bool,
    /// Ignore device nodes.
    pub nodev: bool,
    /// Ignore set-id bits.
    pub nosuid: bool,
    /// Refuse to execute.
    pub noexec: bool,
    /// Show that reads change no times of access. (The kernel keeps none of its own.)
    pub noatime: bool,
}

impl MountOptions {
    /// Read-write with devices and set-id programs, for every user.
    pub fn new(mountpoint: impl Into<PathBuf>, source: impl Into<String>) -> MountOptions {
        MountOptions {
            mountpoint: mountpoint.into(),
            source: source.into(),
            read_only: false,
            nodev: false,
            nosuid: false,
            noexec: false,
            noatime: false,
        }
    }
}

/// A mount of this process.
#[derive(Debug)]
pub struct Mounted {
    /// Mount point.
    pub path: PathBuf,
    /// Minor device number: the name of the connection and of the backing device info in sysfs.
    pub connection: u32,
    /// Number of the mount. The number of the connection is given to the next one at once, often to the mount
    /// that replaces it.
    id: u64,
}

fn failed(what: &'static str, path: &Path, e: &io::Error) -> Fault {
    Fault::io(Code::MountFailed, what, path.display().to_string(), e)
}

/// Opens the device and mounts it. The kernel has sent INIT when this returns; nobody has answered it.
pub fn mount(options: &MountOptions) -> Result<(OwnedFd, Mounted), Fault> {
    let path = &options.mountpoint;
    let fd = open_device().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Fault::new(Code::NoFuseDevice),
        _ => Fault::io(Code::MountFailed, "cannot open", DEVICE, &e),
    })?;
    let kind = rustix::fs::stat(path).map_err(|e| failed("cannot mount on", path, &e.into()))?.st_mode;
    if kind & libc::S_IFMT != libc::S_IFDIR {
        let e = io::Error::from_raw_os_error(libc::ENOTDIR);
        return Err(failed("cannot mount on", path, &e));
    }
    let flags = [
        (options.read_only, libc::MS_RDONLY),
        (options.nodev, libc::MS_NODEV),
        (options.nosuid, libc::MS_NOSUID),
        (options.noexec, libc::MS_NOEXEC),
        (options.noatime, libc::MS_NOATIME),
    ];
    let flags = flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, bit)| all | bit);
    let data =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", fd.as_raw_fd());
    mount_call(&options.source, path, flags, &data).map_err(|e| failed("cannot mount on", path, &e))?;
    let (connection, id) = numbers_of(path).inspect_err(|_| detach(path))?;
    Ok((fd, Mounted { path: path.clone(), connection, id }))
}

fn mount_call(source: &str, path: &Path, flags: libc::c_ulong, data: &str) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let c = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let (source, target) = (c(source.as_bytes())?, c(path.as_os_str().as_bytes())?);
    let (kind, data) = (c(FS_TYPE.as_bytes())?, c(data.as_bytes())?);
    // SAFETY: the four pointers are zero-terminated strings that live until the call returns.
    let done =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The minor device number and the number of the mount at `path`, without asking the file system.
fn numbers_of(path: &Path) -> Result<(u32, u64), Fault> {
    /// STATX_MNT_ID_UNIQUE of linux/stat.h (since 6.8). Older kernels tell none, and then the device decides.
    const MNT_ID_UNIQUE: u32 = 0x4000;
    let flags = AtFlags::from_bits_retain(libc::AT_STATX_DONT_SYNC as u32) | AtFlags::NO_AUTOMOUNT;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::from_bits_retain(MNT_ID_UNIQUE));
    let found = found.map_err(|e| failed("cannot find the mount on", path, &e.into()))?;
    let id = if found.stx_mask & MNT_ID_UNIQUE != 0 { found.stx_mnt_id } else { 0 };
    Ok((found.stx_dev_minor, id))
}

impl Mounted {
    /// Unmounts; fails with EBUSY in `why` while files are open, unless `lazy`: then the name is gone at once and
    /// the connection ends with the last open file.
    pub fn unmount(&self, lazy: bool) -> Result<(), Fault> {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        umount_call(&self.path, flags).map_err(|e| {
            let code = if e.raw_os_error() == Some(libc::EBUSY) { Code::FileBusy } else { Code::MountFailed };
            Fault::io(code, "cannot unmount", self.path.display().to_string(), &e)
        })
    }

    /// Whether it is (still) this connection that is mounted there.
    pub fn is_mounted(&self) -> bool {
        numbers_of(&self.path).is_ok_and(|numbers| numbers == (self.connection, self.id))
    }

    /// Ends the connection: every caller in it gets an error at once. Where the control file system is not mounted
    /// on `/sys/fs/fuse/connections` this is a forced unmount, so that the mount is gone too unless files are open;
    /// after a lazy unmount it then fails with ENOENT.
    pub fn abort(&self) -> io::Result<()> {
        let written = write_text(&format!("/sys/fs/fuse/connections/{}/abort", self.connection), "1");
        match written {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.is_mounted() => {
                let forced = umount_call(&self.path, UnmountFlags::FORCE);
                forced.or_else(|e| if e.raw_os_error() == Some(libc::EBUSY) { Ok(()) } else { Err(e) })
            }
            other => other,
        }
    }

    /// Ends the connection and takes the mount away, if it is still there.
    pub fn clear(&self) {
        if self.is_mounted() {
            let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
            if let Err(error) = umount_call(&self.path, flags) {
                tracing::warn!(path = %self.path.display(), %error, "cannot unmount");
            }
        }
    }

    /// Sets how far the kernel reads ahead; the size of its INIT cannot raise that. Best effort: without the right
    /// to write to sysfs, cached sequential reads stay at 128 KiB in flight.
    pub fn set_read_ahead(&self, kib: u32) -> io::Result<()> {
        write_text(&format!("/sys/class/bdi/0:{}/read_ahead_kb", self.connection), &kib.to_string())
    }
}

/// Has the kernel ask for the attributes of a file that it knows under `nodeid`, as a `stat` of a program would; they are in its
/// inode when this returns. Waits for the answer, so not to be called where requests are answered. `ESTALE`: it knows none.
pub fn have_attributes_asked(mountpoint: &Path, nodeid: u64) -> io::Result<()> {
    // The call that follows takes no O_PATH descriptor.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(mountpoint, flags, Mode::empty())?;
    let file = open_by_nodeid(&root, nodeid)?;
    let flags = AtFlags::from_bits_retain(libc::AT_STATX_FORCE_SYNC as u32) | AtFlags::EMPTY_PATH;
    rustix::fs::statx(&file, "", flags, StatxFlags::SIZE)?;
    Ok(())
}

/// The kernel's file handle of an inode of a FUSE file system: node id, high half first, and generation (always 0 here).
/// Source: `fuse_encode_fh`, Linux 6.18.
#[repr(C)]
struct FileHandle {
    handle_bytes: u32,
    handle_type: i32,
    nodeid_high: u32,
    nodeid_low: u32,
    generation: u32,
}

/// `FILEID_INO64_GEN`.
const FILE_HANDLE_TYPE: i32 = 0x81;

fn open_by_nodeid(root: &OwnedFd, nodeid: u64) -> io::Result<OwnedFd> {
    let (nodeid_high, nodeid_low) = ((nodeid >> 32) as u32, low_u32(nodeid));
    let mut handle = FileHandle {
        handle_bytes: 12,
        handle_type: FILE_HANDLE_TYPE,
        nodeid_high,
        nodeid_low,
        generation: 0,
    };
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the handle is laid out as the call wants it, with 12 bytes behind its head, and lives until the call returns.
    let fd = unsafe { libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned a descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lazily unmounts a mount that was made a moment ago.
pub fn detach(path: &Path) {
    if let Err(error) = umount_call(path, UnmountFlags::DETACH) {
        tracing::warn!(path = %path.display(), %error, "cannot unmount");
    }
}

fn umount_call(path: &Path, flags: UnmountFlags) -> io::Result<()> {
    Ok(rustix::mount::unmount(path, flags)?)
}

fn write_text(path: &str, text: &str) -> io::Result<()> {
    let fd = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&fd, text.as_bytes())?;
    Ok(())
}
