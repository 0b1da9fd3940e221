//! The directory that a benchmark makes for itself below those that it was given, and removes again.
//!
//! Invariant: the benchmark writes and removes only in this directory. The directory must not have been there before,
//! and goes when the [`Site`] is dropped, also after a failure and after Ctrl-C.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use brindle_types::units::{MIB, format_bytes};
use brindle_types::{Code, Fault, Result};

use crate::files::failed;

/// Names of this process so far.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Number of tries to remove, while a killed rank is still going away.
const REMOVE_TRIES: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);
/// Free space that is left to others.
const SPARE_BYTES: u64 = 64 * MIB;
/// Additional space to ask for, as a part of the written bytes: file systems keep records of their own.
const OVERHEAD_OF: u64 = 16;

/// A directory of the benchmark's own, as seen through each of the directories that were given.
#[derive(Debug)]
pub struct Site {
    work: Vec<PathBuf>,
    removed: bool,
}

impl Site {
    /// Makes it. All of `dirs` have to show the same files.
    pub fn new(dirs: &[PathBuf]) -> Result<Site> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("brindle-bench-{}-{number}", std::process::id());
        let work: Vec<PathBuf> = dirs.iter().map(|dir| dir.join(&name)).collect();
        let first = work.first().ok_or_else(|| Fault::new(Code::Bug).why("no directory to measure"))?;
        std::fs::create_dir(first).map_err(|e| failed("cannot make the directory", first, &e))?;
        let site = Site { removed: false, work };
        for (seen, dir) in site.work.iter().zip(dirs).skip(1) {
            if let Err(e) = std::fs::metadata(seen) {
                return Err(Fault::new(Code::BadArgument)
                    .what("cannot measure through several mounts:")
                    .subject(dir.display().to_string())
                    .why(format!("what is made in {} is not seen there: {e}", dirs[0].display()))
                    .next("give directories that are the same directory of one file system, each in a mount of its own"));
            }
        }
        Ok(site)
    }

    /// A new directory in it, as seen through the first `mounts` of the directories.
    pub fn case(&self, number: usize, mounts: usize) -> Result<Vec<PathBuf>> {
        let name = format!("case.{number}");
        let dirs: Vec<PathBuf> = self.work.iter().take(mounts.max(1)).map(|dir| dir.join(&name)).collect();
        std::fs::create_dir(&dirs[0]).map_err(|e| failed("cannot make the directory", &dirs[0], &e))?;
        Ok(dirs)
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.work[0]
    }

    /// Removes it with all that is in it.
    pub fn remove(mut self) -> Result<()> {
        self.removed = true;
        remove_all(&self.work[0])
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !self.removed {
            // A failure is on its way to the user already.
            let _ = remove_all(&self.work[0]);
        }
    }
}

/// Removes a directory of the benchmark; a rank that was killed may still be finishing a call in it.
pub(crate) fn remove_all(dir: &Path) -> Result<()> {
    let mut tries = REMOVE_TRIES;
    loop {
        match std::fs::remove_dir_all(dir) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) if tries == 0 => return Err(failed("cannot remove", dir, &e)),
            Err(_) => {
                tries -= 1;
                std::thread::sleep(REMOVE_PAUSE);
            }
        }
    }
}

/// Free bytes and free inodes (`None` where the file system has no fixed number) of the file system of `dir`.
pub fn free(dir: &Path) -> Result<(u64, Option<u64>)> {
    let found = rustix::fs::statvfs(dir).map_err(|e| failed("cannot measure", dir, &e.into()))?;
    let bytes = found.f_bavail.saturating_mul(found.f_frsize);
    Ok((bytes, (found.f_files > 0).then_some(found.f_favail)))
}

/// Refuses when the file system of `dir` has not enough room.
pub fn need(dir: &Path, bytes: u64, files: u64) -> Result<()> {
    let (free_bytes, free_files) = free(dir)?;
    let needed = bytes.saturating_add(bytes / OVERHEAD_OF).saturating_add(SPARE_BYTES);
    let refuse = |why: String| {
        Fault::new(Code::NoRoom).what("cannot measure").subject(dir.display().to_string()).why(why)
    };
    if free_bytes < needed {
        let (needed, free) = (format_bytes(needed), format_bytes(free_bytes));
        return Err(refuse(format!("{needed} of free space are needed, {free} are there")));
    }
    match free_files {
        Some(free) if free < files => {
            Err(refuse(format!("{files} free inodes are needed, {free} are there")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_removes_what_it_made_and_nothing_else() {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::write(dir.path().join("theirs"), "x").expect("writes");
        let site = Site::new(&[dir.path().to_owned()]).expect("made");
        let case = site.case(0, 1).expect("made");
        std::fs::write(case[0].join("ours"), "x").expect("writes");
        drop(site);
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).expect("lists").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["theirs"]);
    }

    #[test]
    fn directories_of_different_file_systems_are_refused() {
        let (a, b) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        let fault = Site::new(&[a.path().to_owned(), b.path().to_owned()]).expect_err("refused");
        assert_eq!(fault.code, Code::BadArgument);
        assert_eq!(fault.subject, b.path().display().to_string());
        assert_eq!(std::fs::read_dir(a.path()).expect("lists").count(), 0);
    }

    #[test]
    fn too_little_room_is_refused_with_the_amount() {
        let dir = tempfile::tempdir().expect("temporary directory");
        need(dir.path(), 0, 1).expect("room for nothing");
        let fault = need(dir.path(), 1 << 60, 1).expect_err("no exbibyte");
        assert_eq!(fault.code, Code::NoRoom);
        assert!(fault.why[0].starts_with("1.1 EiB of free space are needed, "), "{:?}", fault.why);
    }
}
