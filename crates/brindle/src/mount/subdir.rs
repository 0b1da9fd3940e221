//! Mounting a directory of the file system. The whole is mounted out of sight, its directory is put in place, and the
//! whole is unmounted again. The remaining mount ends the daemon when it goes.

use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, Result};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree, unmount};

/// Temporary mount of the whole file system.
pub struct Whole {
    at: PathBuf,
}

impl Whole {
    /// Makes the place.
    pub fn prepare() -> Result<Whole> {
        let at = PathBuf::from(format!("{}/whole-{}", crate::control::RUN_DIR, std::process::id()));
        crate::control::make_run_dir()?;
        std::fs::create_dir_all(&at)
            .map_err(|e| Fault::io(Code::NotWritable, "cannot make", at.display().to_string(), &e))?;
        Ok(Whole { at })
    }

    /// The place.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Puts `subdir` of what is mounted there in place at `mount_point`, and takes the rest away. Waits for the daemon:
    /// call it on a thread that does not serve.
    pub fn put(self, subdir: &str, mount_point: &Path) -> Result<()> {
        let inner = self.at.join(subdir);
        let failed = |what: &'static str, path: &Path, e: rustix::io::Errno| {
            Fault::io(Code::MountFailed, what, path.display().to_string(), &e.into())
        };
        let shown = PathBuf::from(format!("/{subdir}"));
        if !inner.is_dir() {
            return Err(Fault::new(Code::MountFailed)
                .what("cannot mount the directory")
                .subject(shown.display().to_string())
                .why("the file system has no such directory")
                .next("mount the whole file system and make it there, or name another"));
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree =
            open_tree(CWD, &inner, flags).map_err(|e| failed("cannot mount the directory", &shown, e))?;
        move_mount(&tree, "", CWD, mount_point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|e| failed("cannot mount on", mount_point, e))
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // Not mounted any more, or never: then there is nothing to take away.
        let _ = unmount(&self.at, UnmountFlags::DETACH);
        let _ = std::fs::remove_dir(&self.at);
    }
}
