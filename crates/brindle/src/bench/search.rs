//! `brindle bench search`: commands that ask the MDT beside those that walk the mount.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use brindle_bench::{Pair, SearchOptions, SearchReport};
use brindle_types::{Code, Fault, Result};

use crate::exit::Done;
use crate::output::{Output, table};

/// Arguments of `brindle bench search`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle bench search --files 200000 /mnt/b\n\
                        Makes a tree of small files in a new directory below DIR, which is removed afterwards. Both commands \
                        of a pair have to print the same.")]
pub struct Args {
    /// Directory in a mount
    dir: PathBuf,
    /// Files in the tree
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,
    /// Repetitions of each command; the median is shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    #[command(flatten)]
    output: Output,
}

/// Commands that do the same, the second of each by this program.
fn pairs() -> Result<Vec<Pair>> {
    let own = std::env::current_exe()
        .map_err(|e| Fault::io(Code::CommandFailed, "cannot find", "this program", &e))?
        .into_os_string();
    let pair = |name, walk: &[&str], ask: &[&str]| Pair {
        name,
        walk: walk.iter().map(OsString::from).collect(),
        ask: std::iter::once(own.clone()).chain(ask.iter().map(OsString::from)).collect(),
    };
    Ok(vec![
        pair(
            "find by size and age",
            &["find", "{}", "-type", "f", "-size", "+4k", "-mtime", "-1"],
            &["lfs", "find", "{}", "-type", "f", "-size", "+4k", "-mtime", "-1"],
        ),
        pair(
            "find by name",
            &["find", "{}", "-name", "file.*99"],
            &["lfs", "find", "{}", "-name", "file.*99"],
        ),
        pair("find everything", &["find", "{}"], &["lfs", "find", "{}"]),
        pair("du -s", &["du", "-s", "{}"], &["file", "du", "-s", "{}"]),
    ])
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    // Asking needs a mount; better said before the tree is made.
    brindle_host::mounts::mount_of(&args.dir)?;
    let options = SearchOptions { files: args.files, repetitions: args.repetitions };
    let watched = std::io::stderr().is_terminal();
    let mut progress = |what: &str| {
        if watched {
            eprintln!("{what}");
        }
    };
    let shown = args.dir.display().to_string();
    let report = brindle_bench::search(&args.dir, &options, &pairs()?, &mut progress)
        .map_err(|e| Fault::io(Code::CommandFailed, "cannot measure", shown, &e))?;
    if args.output.json() {
        // The report is a document of its own schema already.
        let text = serde_json::to_string_pretty(&report)
            .map_err(|e| Fault::new(Code::Bug).what("cannot print JSON").why(e.to_string()))?;
        println!("{text}");
    } else {
        println!("{}", search_page(&report));
    }
    Ok(Done::Ok)
}

fn search_page(report: &SearchReport) -> String {
    let seconds = |s: f64| format!("{s:.3} s");
    let rows = report.rows.iter().map(|r| {
        let times = format!("{:.1}x", r.ratio);
        vec![r.name.clone(), r.lines.to_string(), seconds(r.walk_seconds), seconds(r.ask_seconds), times]
    });
    let files = format!("{} files", report.options.files);
    table(&[&files, "LINES", "ON THE MOUNT", "IN THE MDT", "FASTER"], rows.collect())
}
