//! `brindle bench`: measures any directory, so that a mount and a local file system are compared by the same program.

use std::io::IsTerminal;
use std::path::PathBuf;

use brindle_bench::{Moment, Options, Report};
use brindle_types::{Code, Fault, Result};

use crate::exit::Done;
use crate::output::{Output, table};

/// The benchmarks.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Streams, metadata operations and a small tree in a directory: about a minute
    Quick(QuickArgs),
}

/// Arguments of `brindle bench quick`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle bench quick /mnt/b -o json\n\
                        Everything happens in a new directory below DIR, which is removed afterwards. Every write phase ends \
                        with fsync.")]
pub struct QuickArgs {
    /// Directory to measure, on any file system
    dir: PathBuf,
    /// Repetitions of each phase; the median is shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Quick(args) => quick(args),
    }
}

fn quick(args: &QuickArgs) -> Result<Done> {
    let options = Options { repetitions: args.repetitions, ..Options::default() };
    let watched = std::io::stderr().is_terminal();
    let mut progress = |moment: Moment<'_>| match moment {
        Moment::Repetition(number, of) if watched => eprintln!("repetition {number} of {of}"),
        _ => {}
    };
    let shown = args.dir.display().to_string();
    let report = brindle_bench::quick(&args.dir, &options, &mut progress)
        .map_err(|e| Fault::io(Code::CommandFailed, "cannot measure", shown, &e))?;
    if args.output.json() {
        // The report is a document of its own schema already.
        let text = serde_json::to_string_pretty(&report)
            .map_err(|e| Fault::new(Code::Bug).what("cannot print JSON").why(e.to_string()))?;
        println!("{text}");
    } else {
        println!("{}", page(&report));
    }
    Ok(Done::Ok)
}

fn page(report: &Report) -> String {
    let figure = |value: f64| if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    let rows = report
        .rows
        .iter()
        .map(|r| vec![r.name.clone(), figure(r.median), figure(r.min), figure(r.max), r.unit.clone()]);
    table(&["WORKLOAD", "MEDIAN", "MIN", "MAX", "UNIT"], rows.collect())
}
