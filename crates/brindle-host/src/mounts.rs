//! Mounts of this machine, and unmounting that ends in bounded time even when a FUSE server is dead.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use brindle_types::{Code, Fault, Result};
use rustix::mount::{MountFlags, UnmountFlags, unmount as umount2};

/// Longest time for an unmount, before the connection to its daemon is aborted.
const PATIENCE: Duration = Duration::from_secs(8);
/// Longest wait for a daemon to show that it lives.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Directory in which the kernel shows the connections of FUSE.
const CONNECTIONS_DIR: &str = "/sys/fs/fuse/connections";
/// Type of our mounts.
pub const FUSE_TYPE: &str = "fuse.brindle";

/// A line of /proc/self/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountLine {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device: the number of the FUSE connection.
    pub minor: u32,
    /// Mounted part of the file system: `/` for all of it, a directory for others and for bind mounts.
    pub root: PathBuf,
    /// Mount point.
    pub mount_point: PathBuf,
    /// File system type.
    pub fs_type: String,
    /// Source of the mount.
    pub source: String,
    /// Reads change no times of access.
    pub is_noatime: bool,
}

/// All mounts of this process, in the order of mounting.
pub fn all() -> Vec<MountLine> {
    all_of(Path::new("/proc/self"))
}

/// All mounts that a process sees; `process` is its directory `/proc/PID`.
pub(crate) fn all_of(process: &Path) -> Vec<MountLine> {
    let text = std::fs::read(process.join("mountinfo")).unwrap_or_default();
    text.split(|b| *b == b'\n').filter_map(parse).collect()
}

/// Mount points in mount namespaces other than that of this process.
pub fn elsewhere() -> BTreeSet<PathBuf> {
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
    let mut seen: BTreeSet<_> = namespace(Path::new("/proc/self")).into_iter().collect();
    let mut points = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        // Kernel threads and processes that have ended have none.
        if namespace(&entry.path()).is_some_and(|found| seen.insert(found)) {
            points.extend(all_of(&entry.path()).into_iter().map(|line| line.mount_point));
        }
    }
    points
}

/// The Brindle file systems that are mounted.
pub fn ours() -> impl Iterator<Item = MountLine> {
    all().into_iter().filter(|line| line.fs_type == FUSE_TYPE)
}

/// The topmost mount at exactly this path.
pub fn find(at: &Path) -> Option<MountLine> {
    all().into_iter().rev().find(|m| m.mount_point == at)
}

/// The Brindle mount that holds `path`. `path` must be absolute and resolved.
pub fn holding(path: &Path) -> Option<MountLine> {
    deepest(path).filter(|m| m.fs_type == FUSE_TYPE)
}

/// The mount that holds a path.
pub fn mount_of(path: &Path) -> Result<MountLine> {
    let shown = path.display().to_string();
    // The path itself may hang on a dead server; its text up to the mount point does not.
    let absolute = std::path::absolute(path)
        .map_err(|e| Fault::io(Code::BadArgument, "cannot use the path", shown.clone(), &e))?;
    let direct = holding(&absolute);
    let found = direct.or_else(|| holding(&std::fs::canonicalize(path).ok()?));
    found.ok_or_else(|| {
        let fault = Fault::new(Code::NotABrindlePath).what("not in a Brindle file system:").subject(shown);
        match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => fault.why("there is no such path"),
            _ => fault,
        }
        .next("give a path in a mount; list them: findmnt -t fuse.brindle")
    })
}

/// The type of the file system that holds `path`, which must be absolute and resolved. `/proc/PID/root/...` is a path among the mounts of
/// that process.
pub fn type_of(path: &Path) -> Option<String> {
    match beyond(path) {
        Some((process, within)) => deepest_of(&all_of(&process), &within),
        None => deepest(path),
    }
    .map(|m| m.fs_type)
}

/// The directory of the process through whose root a path leads, and the path as that process has it.
fn beyond(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut parts = path.strip_prefix("/proc").ok()?.components();
    let process = Path::new("/proc").join(parts.next()?);
    (parts.next()?.as_os_str() == "root").then(|| (process, Path::new("/").join(parts.as_path())))
}

fn deepest(path: &Path) -> Option<MountLine> {
    deepest_of(&all(), path)
}

fn deepest_of(mounts: &[MountLine], path: &Path) -> Option<MountLine> {
    let longest = mounts.iter().rev().filter(|m| path.starts_with(&m.mount_point));
    // Of several mounts on one point the last one counts, which `max_by_key` over the reversed list would not give.
    let deepest = longest.fold(None::<&MountLine>, |best, m| match best {
        Some(b) if b.mount_point.as_os_str().len() >= m.mount_point.as_os_str().len() => Some(b),
        _ => Some(m),
    });
    deepest.cloned()
}

fn parse(line: &[u8]) -> Option<MountLine> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = fields.iter().position(|f| *f == b"-")?;
    let device = std::str::from_utf8(fields.get(2)?).ok()?;
    let text = |at: usize| Some(String::from_utf8_lossy(&unescape(fields.get(at)?)).into_owned());
    Some(MountLine {
        major: device.split_once(':')?.0.parse().ok()?,
        minor: device.split_once(':')?.1.parse().ok()?,
        root: PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.get(3)?))),
        mount_point: PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.get(4)?))),
        fs_type: text(dash + 1)?,
        source: text(dash + 2)?,
        is_noatime: text(5)?.split(',').any(|option| option == "noatime"),
    })
}

/// `\040` and the like are bytes in octal.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = (*first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// Unmounts a FUSE mount at `at`, whose daemon may be dead or stuck. With `force`, a mount that is in use is taken out of the tree.
/// File systems other than ours stay. `Ok` when no FUSE mount of ours is there (any more).
pub fn unmount(at: &Path, force: bool) -> Result<()> {
    unmount_within(at, force, PATIENCE, &|| Ok(()))
}

/// [`unmount`] with another patience than usual. Before the connection to the daemon is aborted, which may lose what programs wrote,
/// `before_abort` is called; where that fails, nothing is aborted.
pub fn unmount_within(
    at: &Path,
    force: bool,
    patience: Duration,
    before_abort: &dyn Fn() -> Result<()>,
) -> Result<()> {
    while let Some(line) = find(at).filter(|m| m.fs_type == FUSE_TYPE) {
        match bounded(at, &line, patience, before_abort)? {
            Ok(()) => {}
            Err(rustix::io::Errno::BUSY) if !force => {
                let fault =
                    Fault::new(Code::TargetBusy).what("cannot unmount").subject(at.display().to_string());
                let inside = |m: &&MountLine| m.mount_point != at && m.mount_point.starts_with(at);
                return Err(
                    match all().iter().rev().find(inside).map(|m| m.mount_point.display().to_string()) {
                        Some(inner) => fault
                            .why(format!("something else is mounted in it: {inner}"))
                            .next(format!("unmount that first: umount {inner}")),
                        None => fault
                            .why("programs use it")
                            .next(format!("find them: fuser -vm {}", at.display())),
                    },
                );
            }
            Err(_) => detach(at)?,
        }
    }
    Ok(())
}

/// Whether the daemon of the FUSE mount at `at` has died. A daemon that does not answer within two seconds counts as alive.
pub fn is_dead(at: &Path) -> bool {
    let (done, result) = mpsc::channel();
    let path = at.to_owned();
    // A thread of its own: it waits for the daemon.
    std::thread::spawn(move || {
        // ECONNABORTED: the connection was aborted while the question was in it.
        let gone = |e: std::io::Error| matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED));
        // Attributes of a directory may be the kernel's own; this question goes to the daemon every time.
        let dead = rustix::fs::statvfs(path).map_err(std::io::Error::from).is_err_and(gone);
        // After the time limit nobody listens any more.
        let _ = done.send(dead);
    });
    result.recv_timeout(ANSWER_LIMIT).unwrap_or(false)
}

fn detach(at: &Path) -> Result<()> {
    match umount2(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(e) if e == rustix::io::Errno::INVAL || e == rustix::io::Errno::NOENT => Ok(()),
        Err(e) => Err(Fault::io(Code::MountFailed, "cannot unmount", at.display().to_string(), &e.into())),
    }
}

/// umount2(2) in a thread of its own: it waits for the daemon, and a daemon may never answer.
fn bounded(
    at: &Path,
    line: &MountLine,
    patience: Duration,
    before_abort: &dyn Fn() -> Result<()>,
) -> Result<rustix::io::Result<()>> {
    let (done, result) = mpsc::channel();
    let path = at.to_owned();
    std::thread::spawn(move || {
        // After the time limit nobody listens any more.
        let _ = done.send(umount2(&path, UnmountFlags::NOFOLLOW));
    });
    if let Ok(result) = result.recv_timeout(patience) {
        return Ok(result);
    }
    before_abort()?;
    abort(line.minor);
    Ok(result.recv_timeout(PATIENCE).unwrap_or(Err(rustix::io::Errno::TIMEDOUT)))
}

/// Ends a FUSE connection: everything that waits for its daemon fails.
pub fn abort(connection: u32) {
    // Systemd mounts it where it runs; without it nothing that waits could be ended. A caller that may not
    // mount it, or finds it mounted, goes on.
    if !Path::new(CONNECTIONS_DIR).join(connection.to_string()).exists() {
        let _ = rustix::mount::mount("none", CONNECTIONS_DIR, "fusectl", MountFlags::empty(), None);
    }
    // The connection may be gone already.
    let _ = std::fs::write(format!("{CONNECTIONS_DIR}/{connection}/abort"), "1");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_whatever_is_in_the_path() {
        let line = b"36 35 98:7 / /mnt\\040a\\134b rw,noatime master:1 - fuse.brindle mgs:/fs rw,user_id=0";
        let m = parse(line).unwrap();
        assert_eq!(m.mount_point, PathBuf::from("/mnt a\\b"));
        assert_eq!((m.minor, m.fs_type.as_str(), m.source.as_str()), (7, "fuse.brindle", "mgs:/fs"));
        assert!(m.is_noatime);
        assert_eq!(parse(b""), None);
        assert!(find(Path::new("/")).is_some());
    }

    #[test]
    fn a_path_through_the_root_of_a_process_is_among_its_mounts() {
        let found = beyond(Path::new("/proc/7/root/run/x"));
        assert_eq!(found, Some(("/proc/7".into(), "/run/x".into())));
        assert_eq!(beyond(Path::new("/proc/7/cwd/x")), None);
        assert_eq!(type_of(Path::new("/proc/self/root/proc/1")), Some("proc".to_owned()));
    }
}
