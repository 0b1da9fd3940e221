//! `brindle fsck`: reads stopped (or quiesced) targets of one file system, compares them, changes nothing.
//!
//! [`targets`] finds out what the directories hold, [`mdt`] checks names and inodes, [`osts`] checks objects and
//! compares them with the inodes. A *finding* is something that must not be and makes the exit code 8; a *note* is what
//! crashes leave by right: torn unsynced blocks, garbage that waits for its collector, files lost in a cut.

mod mdt;
mod osts;
mod report;
mod targets;

use std::path::PathBuf;
use std::sync::Arc;

use brindle_stdx::disk::Disk;
use brindle_types::{Code, Fault, Result};

use crate::dev;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::Output;
use report::Report;

/// Arguments of `brindle fsck`.
#[derive(clap::Args)]
#[command(after_help = "Examples: brindle fsck /data/mgt /data/mdt0 /data/ost*; brindle fsck --dir /tmp/b\n\
                        Exit codes: 0 clean, 8 findings.")]
pub struct Args {
    /// Directories of targets of one file system
    #[arg(value_name = "TARGET_DIR", required_unless_present = "dir")]
    targets: Vec<PathBuf>,
    /// A development cluster: all of its targets
    #[arg(long, value_name = "DIR", conflicts_with = "targets")]
    dir: Option<PathBuf>,
    /// Do not read the contents of objects
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let cluster = match &args.dir {
        Some(dir) => Some(dev::target_dirs(&PathBuf::from(crate::cli::text(dir)?))?),
        None => None,
    };
    let dirs = cluster.as_ref().map_or(&args.targets, |c| &c.dirs);
    let runtime = runtime()?;
    let disk: Arc<dyn Disk> = Arc::new(brindle_stdx::real_disk::RealDisk::new(runtime.handle().clone()));
    let mut report = Report::new();
    let found = targets::find(&*disk, dirs, &mut report)?;
    if found.is_empty() && report.findings.is_empty() {
        return Err(Fault::new(Code::NotATarget)
            .what("nothing to check in")
            .subject(dirs.iter().map(|d| d.display().to_string()).collect::<Vec<_>>().join(", ")));
    }
    for mgt in found.mgts() {
        if let Err(fault) = runtime.block_on(brindle_mgs::check(disk.clone(), &mgt.dir)) {
            report.finding(&mgt.name, fault);
        }
    }
    let reader = found.mdt().and_then(|mdt| mdt::check(&*disk, mdt, &mut report));
    osts::check(&*disk, &found, reader.as_ref(), !args.quick, &mut report);
    report.print(args.output)?;
    Ok(if report.findings.is_empty() { Done::Ok } else { Done::Unhealthy })
}
