//! What jobs that move many files have in common (`brindle target drain`, `brindle fs rebalance`): finding the files on an
//! OST, moving one after the other at a pace, counting what was done.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brindle_client::control::ScanAsk;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::mds::scan::{DEPTH_MAX, Term, Wanted};

use super::place::Source;
use crate::control::{Control, path_fault};
use crate::stripe::migrate::{Pace, Plan, migrate_inode};

/// Files that are listed before the first of them is moved.
const FILES_AT_ONCE: usize = 100_000;

/// A file that may be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The file.
    pub ino: Ino,
    /// One of its names.
    pub path: PathBuf,
    /// Bytes that it takes up.
    pub allocated_bytes: u64,
}

/// Work that was done.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Files that are where they belong now.
    pub files: u64,
    /// Bytes that were copied for it.
    pub copied_bytes: u64,
    /// Files that could not be moved.
    pub failed: u64,
}

/// A mount of a whole file system, and how its files are moved.
pub struct Mover {
    control: Control,
    root: PathBuf,
    pace: Pace,
    /// Work done so far.
    pub done: Done,
}

impl Mover {
    /// Works on the file system that is mounted at `mount`, all of it.
    pub fn new(mount: &Path, bandwidth_bytes: Option<u64>) -> Result<Mover> {
        let control = Control::of(mount)?;
        let source: Option<Source> = control.mount().source.parse().ok();
        if source.is_some_and(|source| !source.subdir.is_empty()) {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot see all files of the file system at")
                .subject(mount.display().to_string())
                .why("only a directory of it is mounted there")
                .data("nothing was moved")
                .next("mount all of it, and give that mount"));
        }
        let root = control.mount().mount_point.clone();
        Ok(Mover { control, root, pace: Pace::new(bandwidth_bytes), done: Done::default() })
    }

    /// Files that match, some of them if there are many, each once.
    pub fn files(&self, predicate: Vec<Term>) -> Result<Vec<File>> {
        let root = &self.root;
        let meta = std::fs::metadata(root).map_err(|e| path_fault("cannot look at", root, &e))?;
        let ask = ScanAsk {
            start: meta.ino(),
            start_name: Vec::new(),
            predicate,
            depth_min: 0,
            depth_max: DEPTH_MAX,
            wanted: Wanted::Attrs,
        };
        let mut files = Vec::new();
        let mut refused = 0;
        self.control.scan(ask, &mut |page| {
            refused += page.refused.len();
            for found in page.found {
                let Some(attr) = found.attr.filter(|_| files.len() < FILES_AT_ONCE) else { continue };
                let path = root.join(OsString::from_vec(found.path.into_bytes()));
                files.push(File { ino: attr.ino, path, allocated_bytes: attr.allocated_bytes });
            }
            Ok(())
        })?;
        if refused > 0 {
            return Err(Fault::new(Code::PermissionDenied)
                .what("cannot look into")
                .subject(format!("{refused} directories"))
                .why("files there may lie on the OST")
                .next("run it as root"));
        }
        // A file of several names is found by each.
        files.sort_by_key(|file| file.ino);
        files.dedup_by_key(|file| file.ino);
        Ok(files)
    }

    /// Moves a file; bytes that were copied. One that cannot be moved is told of and counted; only when nobody has room is
    /// that the end.
    pub fn move_file(&mut self, file: &File, plan: &Plan) -> Result<u64> {
        match migrate_inode(&self.control, file.ino, &file.path, plan, &mut self.pace) {
            Ok(moved) => {
                self.done.files += 1;
                self.done.copied_bytes += moved.copied_bytes;
                return Ok(moved.copied_bytes);
            }
            // Removed meanwhile.
            Err(fault) if fault.code == Code::NotFound => {}
            Err(fault) if fault.code == Code::OstFull => {
                let Done { files, copied_bytes, .. } = &self.done;
                let why = format!("{} of {files} files are moved", format_bytes(*copied_bytes));
                return Err(fault.why(why).next("make room, or add an OST: brindle target add; then go on"));
            }
            Err(fault) => {
                self.done.failed += 1;
                crate::exit::warn(&fault.why(file.path.display().to_string()));
            }
        }
        Ok(0)
    }
}
