//! Common parts of the jobs that move many files (drain, rebalance): finding the files on an OST, moving one after the other at a
//! pace, counting what was done.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use brindle_client::control::ScanAsk;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::mds::scan::{DEPTH_MAX, Term, Wanted};

use crate::job::Job;
use crate::migrate::{Pace, Plan, migrate};
use crate::mount::Mount;

/// Files that are listed before the first of them is moved.
const FILES_AT_ONCE: usize = 100_000;

/// A mount of a whole file system, and where it is.
#[derive(Clone)]
pub struct WholeMount {
    /// The mount.
    pub mount: Arc<dyn Mount>,
    /// Mount point, for the names of files.
    pub root: PathBuf,
}

/// A file that may be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The file.
    pub ino: Ino,
    /// A name of the file; it may have others.
    pub path: PathBuf,
    /// Bytes that it takes up.
    pub allocated_bytes: u64,
}

/// Work that was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Files that are where they belong now.
    pub files: u64,
    /// Bytes that were copied for it.
    pub copied_bytes: u64,
    /// Files that could not be moved.
    pub failed: u64,
}

/// A mount of a whole file system, and how its files are moved.
pub(crate) struct Mover<'a> {
    job: &'a Job,
    whole: &'a WholeMount,
    pace: Pace,
    /// Work done so far.
    pub work: Work,
}

impl<'a> Mover<'a> {
    /// Works on all of a file system.
    pub fn new(job: &'a Job, whole: &'a WholeMount, bandwidth_bytes: Option<u64>) -> Mover<'a> {
        let pace = Pace::new(bandwidth_bytes, job.seams().now());
        Mover { job, whole, pace, work: Work::default() }
    }

    /// Files that match, some of them if there are many, each once.
    pub async fn files(&self, predicate: Vec<Term>) -> Result<Vec<File>> {
        let WholeMount { mount, root } = self.whole;
        let ask = ScanAsk {
            start: mount.root()?.0,
            start_name: Vec::new(),
            predicate,
            depth_min: 0,
            depth_max: DEPTH_MAX,
            wanted: Wanted::Attrs,
        };
        let mut files = Vec::new();
        let mut refused = 0;
        let mut take = |page: brindle_client::control::ScanPage| {
            refused += page.refused.len();
            for found in page.found {
                let Some(attr) = found.attr.filter(|_| files.len() < FILES_AT_ONCE) else { continue };
                let path = root.join(OsString::from_vec(found.path.into_bytes()));
                files.push(File { ino: attr.ino, path, allocated_bytes: attr.allocated_bytes });
            }
            Ok(())
        };
        mount.scan(ask, &mut take).await?;
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

    /// Moves a file; returns the bytes that were copied. A file that cannot be moved is reported and counted. The job ends only when no
    /// OST has space, or when it is cancelled.
    pub async fn move_file(&mut self, file: &File, plan: &Plan) -> Result<u64> {
        let mount = &*self.whole.mount;
        match migrate(self.job, mount, file.ino, &file.path, plan, &mut self.pace).await {
            Ok(moved) => {
                self.work.files += 1;
                self.work.copied_bytes += moved.copied_bytes;
                return Ok(moved.copied_bytes);
            }
            // Removed meanwhile.
            Err(fault) if fault.code == Code::NotFound => {}
            Err(fault) if fault.code == Code::OstFull => {
                let next = "make room, or add an OST: brindle target add; then go on";
                return Err(fault.why(self.so_far()).next(next));
            }
            Err(fault) if fault.code == Code::Interrupted => return Err(fault.why(self.so_far())),
            Err(fault) => {
                self.work.failed += 1;
                self.job.warn(fault.why(file.path.display().to_string())).await;
            }
        }
        Ok(0)
    }

    fn so_far(&self) -> String {
        let Work { files, copied_bytes, .. } = &self.work;
        format!("{files} files are moved, {}", format_bytes(*copied_bytes))
    }
}
