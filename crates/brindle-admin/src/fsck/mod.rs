//! Checks stopped (or quiesced) targets of one file system: reads them, compares them, changes nothing.
//!
//! [`targets`] finds out what the directories hold, [`mdt`] checks names and inodes, [`osts`] checks objects and
//! compares them with the inodes. A *finding* is something that must not be; a *note* is what crashes leave by right: torn unsynced
//! blocks, garbage that waits for its collector, files lost in a cut.

mod mdt;
mod osts;
mod report;
mod targets;

use std::sync::Arc;

use brindle_stdx::disk::Disk;
use brindle_types::{Code, Fault, Result};

use crate::job::{Job, Progress};
pub use report::{Report, ReportView};

/// Request to check targets.
#[derive(Clone, Debug)]
pub struct Check {
    /// Absolute directories of targets of one file system.
    pub dirs: Vec<String>,
    /// Whether the contents of objects are read.
    pub contents: bool,
}

impl Check {
    /// Checks them, one after the other.
    pub async fn run(self, disk: Arc<dyn Disk>, job: Job) -> Result<Report> {
        let mut report = Report::default();
        let found = targets::find(&*disk, &self.dirs, &mut report)?;
        if found.is_empty() && report.findings.is_empty() {
            let dirs = self.dirs.join(", ");
            return Err(Fault::new(Code::NotATarget).what("nothing to check in").subject(dirs));
        }
        let next = |name: &str| {
            let subject = format!("checking {name}");
            job.progress(Progress { subject, done_bytes: 0, total_bytes: 0, copied_bytes: 0 });
            job.check()
        };
        for mgt in found.mgts() {
            next(&mgt.name)?;
            if let Err(fault) = brindle_mgs::check(disk.clone(), &mgt.dir).await {
                report.finding(&mgt.name, fault);
            }
        }
        let mut reader = None;
        if let Some(mdt) = found.mdt() {
            next(&mdt.name)?;
            reader = job.seams().blocking(|| mdt::check(&*disk, mdt, &mut report));
        }
        let mut seen = Vec::new();
        for target in found.osts() {
            next(&target.name)?;
            let alone = || osts::alone(&*disk, target, reader.as_ref(), self.contents, &mut report);
            seen.push((target.superblock.target.index, job.seams().blocking(alone)));
        }
        if let (Some(reader), Some(mdt)) = (&reader, found.mdt()) {
            job.seams().blocking(|| osts::compare(reader, mdt, &seen.into_iter().collect(), &mut report));
        }
        Ok(report)
    }
}
