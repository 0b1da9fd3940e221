//! A directory for one test, on the file system under test.
//!
//! `BRINDLE_TEST_DIR` names the directory (a mount); without it a local one is used, which checks the tests themselves
//! against the kernel's own file system. `BRINDLE_TEST_DIRS=A:B` names two mounts of one file system.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW};

/// Base directory of tests without `BRINDLE_TEST_DIR`: on a disk, and with all directories above open to
/// every user.
const LOCAL_ROOT: &str = "/var/tmp";

static COUNTER: AtomicU32 = AtomicU32::new(0);
static PREPARED: Once = Once::new();

/// A directory that exists for one test; removing it is part of the test.
pub struct Area {
    roots: Vec<PathBuf>,
}

impl Area {
    /// A new directory, seen from one mount. Modes given to calls are exact: the umask is 0.
    pub fn new() -> Area {
        Area::make(vec![root("BRINDLE_TEST_DIR").unwrap_or_else(|| LOCAL_ROOT.into())])
    }

    /// A new directory, seen from two mounts: [`Area::at`] is on the first, [`Area::other`] on the second.
    pub fn on_two_mounts() -> Area {
        let dirs =
            std::env::var("BRINDLE_TEST_DIRS").unwrap_or_else(|_| format!("{LOCAL_ROOT}:{LOCAL_ROOT}"));
        let roots: Vec<PathBuf> = dirs.split(':').map(PathBuf::from).collect();
        assert!(roots.len() == 2, "BRINDLE_TEST_DIRS names two directories: A:B");
        Area::make(roots)
    }

    fn make(parents: Vec<PathBuf>) -> Area {
        PREPARED.call_once(|| {
            rustix::process::umask(rustix::fs::Mode::empty());
        });
        let name = format!("test-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let roots: Vec<PathBuf> = parents.iter().map(|parent| parent.join(&name)).collect();
        std::fs::create_dir(&roots[0]).expect("a directory for the test");
        std::fs::set_permissions(&roots[0], PermissionsExt::from_mode(0o755)).expect("mode of the directory");
        Area { roots }
    }

    /// A path in the directory.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.roots[0].join(name)
    }

    /// Path of the same file on the second mount.
    pub fn other(&self, name: impl AsRef<Path>) -> PathBuf {
        self.roots[self.roots.len() - 1].join(name)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.roots[0]
    }

    /// A new file with this content.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, content).expect("a file of the test can be written");
        path
    }

    /// A new directory with this mode.
    pub fn dir(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.at(name);
        std::fs::create_dir(&path).expect("a directory of the test can be made");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("mode of the directory");
        path
    }

    /// Returns once the file system gives later times than it gave before the call.
    pub fn tick(&self) {
        let probe = self.at(".tick");
        let file = File::create(&probe).expect("the probe can be made");
        let before = ctime(&probe);
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        while ctime(&probe) <= before {
            std::thread::yield_now();
            let times = Timestamps { last_access: now, last_modification: now };
            rustix::fs::futimens(&file, &times).expect("the probe can be touched");
        }
        std::fs::remove_file(&probe).expect("the probe can be removed");
    }
}

impl Default for Area {
    fn default() -> Self {
        Area::new()
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir_all(&self.roots[0]);
        if !std::thread::panicking() {
            removed.expect("what the test left can be removed");
        }
    }
}

fn root(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// Whether the tests run on the local file system, to check themselves.
pub fn is_local() -> bool {
    root("BRINDLE_TEST_DIR").is_none()
}

/// Status-change time, seconds and nanoseconds.
pub fn ctime(path: &Path) -> (i64, i64) {
    let found = std::fs::symlink_metadata(path).expect("the file has a ctime");
    (found.ctime(), found.ctime_nsec())
}

/// Modification time, seconds and nanoseconds.
pub fn mtime(path: &Path) -> (i64, i64) {
    let found = std::fs::symlink_metadata(path).expect("the file has an mtime");
    (found.mtime(), found.mtime_nsec())
}

/// Number of names.
pub fn nlink(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).expect("the file has a link count").nlink()
}

/// Permission bits with set-id and sticky bits.
pub fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("the file has a mode").mode() & 0o7777
}

/// The names in a directory, sorted.
pub fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).expect("the directory can be listed");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("an entry can be read").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}
