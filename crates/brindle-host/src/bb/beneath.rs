//! Directories and files in a buffer that root works on, reached without following any link.
//!
//! Users cannot put a link where root works, but root of a host that has the buffer mounted can. The kernel therefore opens every step
//! with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`, and each further call works on the opened descriptor.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, Result};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat, openat2};
use rustix::io::Errno;

/// Permissions of directories until they have others.
const NEW_MODE: u32 = 0o700;
/// Kind of a file, in its mode, and that of an ordinary one.
const KIND_MASK: u32 = 0o170_000;
const ORDINARY: u32 = 0o100_000;

/// A directory, which stays the same whatever happens to its name.
pub struct Dir {
    fd: OwnedFd,
    shown: PathBuf,
}

impl Dir {
    /// The root of a mount.
    pub fn root(at: &Path) -> Result<Dir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(CWD, at, flags, Mode::empty()).map_err(|e| cannot(at, e))?;
        Ok(Dir { fd, shown: at.to_owned() })
    }

    /// A directory in it that is there.
    pub fn enter(&self, name: &str) -> Result<Dir> {
        let shown = self.shown.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.open(name, flags).map_err(|e| cannot(&shown, e))?;
        Ok(Dir { fd, shown })
    }

    /// A directory in it, which is made if need be.
    pub fn make(&self, name: &str) -> Result<Dir> {
        match mkdirat(&self.fd, name, Mode::from_raw_mode(NEW_MODE)) {
            Ok(()) | Err(Errno::EXIST) => self.enter(name),
            Err(e) => Err(cannot(&self.shown.join(name), e)),
        }
    }

    /// Refuses what is no ordinary file.
    pub fn check_file(&self, name: &str) -> Result<()> {
        let shown = self.shown.join(name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.open(name, flags).map_err(|e| cannot(&shown, e))?;
        let mode = fstat(&file).map_err(|e| cannot(&shown, e))?.st_mode;
        if mode & KIND_MASK == ORDINARY {
            return Ok(());
        }
        Err(Fault::new(Code::SwapFailed)
            .what("will not use as swap")
            .subject(shown.display().to_string())
            .why("it is no ordinary file: somebody has put something else there"))
    }

    fn open(&self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.fd, name, flags, Mode::empty(), how)
    }

    /// Gives it to a user and a group.
    pub fn give(&self, uid: u32, gid: u32) -> Result<()> {
        fchown(self.fd.as_fd(), Some(uid), Some(gid)).map_err(|e| self.cannot_change(&e))
    }

    /// Sets its permissions.
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        fchmod(&self.fd, Mode::from_raw_mode(mode)).map_err(|e| self.cannot_change(&e.into()))
    }

    fn cannot_change(&self, e: &std::io::Error) -> Fault {
        Fault::io(Code::NotWritable, "cannot give to its user", self.shown.display().to_string(), e)
    }

    /// A path to it for this process, as long as this lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}

fn cannot(at: &Path, e: Errno) -> Fault {
    Fault::io(Code::NotWritable, "cannot enter", at.display().to_string(), &e.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        std::fs::create_dir_all(inside.join("private")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("f"), "x").unwrap();
        let mode = std::fs::metadata(&outside).unwrap().mode();
        symlink(&outside, inside.join("private/n1")).unwrap();
        symlink("..", inside.join("up")).unwrap();
        symlink(outside.join("f"), inside.join("private/swap")).unwrap();
        let root = Dir::root(&inside).unwrap();
        assert!(root.make("up").is_err() && root.enter("..").is_err());
        let private = root.make("private").unwrap();
        assert!(private.make("n1").is_err());
        assert!(private.check_file("swap").is_err() && private.check_file("n1").is_err());
        let own = private.make("n2").unwrap();
        own.set_mode(0o750).unwrap();
        assert_eq!(std::fs::metadata(inside.join("private/n2")).unwrap().mode() & 0o777, 0o750);
        std::fs::write(own.path().join("f"), "y").unwrap();
        private.enter("n2").unwrap().check_file("f").unwrap();
        assert_eq!(std::fs::metadata(&outside).unwrap().mode(), mode);
    }
}
