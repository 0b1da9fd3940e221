//! `brindle fsck`: checks stopped (or quiesced) targets of one file system, changes nothing.

use std::path::PathBuf;

use brindle_admin::fsck::{Check, Report};
use brindle_admin::job;
use brindle_host::cluster::TargetDirs;
use brindle_types::Result;
use brindle_types::units::format_bytes;

use crate::cli::text;
use crate::exit::Done;
use crate::follow::{Show, follow};
use crate::format::runtime;
use crate::output::{Output, print_json};

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
        Some(dir) => Some(TargetDirs::of(&PathBuf::from(text(dir)?))?),
        None => None,
    };
    let outcome = check(args, cluster.as_ref().map_or(&args.targets, |c| &c.dirs));
    if let Some(Err(fault)) = cluster.map(TargetDirs::release) {
        crate::exit::warn(&fault);
    }
    let report = outcome?;
    if args.output.json() {
        print_json(&report.view())?;
    } else {
        print(&report);
    }
    Ok(if report.findings.is_empty() { Done::Ok } else { Done::Unhealthy })
}

fn check(args: &Args, dirs: &[PathBuf]) -> Result<Report> {
    let dirs = dirs.iter().map(|dir| text(dir)).collect::<Result<_>>()?;
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let check = Check { dirs, contents: !args.quick };
    let running = job::start(&seams, "admin.fsck", |job| check.run(seams.disk.clone(), job));
    follow(&runtime, running, Show::Subjects.on_terminal(args.output.json()))
}

fn print(report: &Report) {
    for (target, fault) in &report.findings {
        println!("finding: {target}: {fault}");
    }
    for (target, fault) in &report.notes {
        println!("note: {target}: {fault}");
    }
    let verdict = match report.findings.len() {
        0 => "clean".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    let (targets, files, objects) = (report.targets.len(), report.files, report.objects);
    println!(
        "{verdict} ({} notes): {targets} targets, {files} files, {objects} objects with {}; nothing was changed",
        report.notes.len(),
        format_bytes(report.bytes)
    );
}
