//! `brindle policy status` and `history`: present and past runs of a directory's engine.

pub use brindle_host::policy::PolicyStatusView;
use brindle_host::policy::{RunView, view};
use brindle_hsm::policy::State;
use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::Result;
use brindle_types::units::format_bytes;

use super::text::StateArg;
use crate::exit::Done;
use crate::output::{Output, print_json, table};

/// Runs that `status` shows.
const SHOWN: usize = 5;

/// Arguments of `brindle policy status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    state: StateArg,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle policy history`.
#[derive(clap::Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    state: StateArg,
    #[command(flatten)]
    output: Output,
}

/// A time, UTC, to the second.
fn time_text(secs: i64) -> String {
    let text = rfc3339(Timestamp { secs, nanos: 0 });
    text.split('.').next().unwrap_or_default().replace('T', " ")
}

fn runs_table(runs: &[RunView]) -> String {
    let row = |run: &RunView| {
        vec![
            time_text(run.began_secs),
            run.policy.clone(),
            run.matched.to_string(),
            run.done.to_string(),
            format_bytes(run.bytes),
            run.left.to_string(),
            run.failed.to_string(),
            run.why.clone(),
        ]
    };
    table(
        &["BEGAN", "POLICY", "MATCHED", "DONE", "BYTES", "CHANGED", "FAILED", "WHY"],
        runs.iter().map(row).collect(),
    )
}

/// Says what has run since a time.
pub fn tell(state: &State, since_secs: i64) {
    let view = view(state);
    let runs: Vec<RunView> = view.runs.into_iter().filter(|run| run.began_secs >= since_secs).collect();
    for name in &view.unconfirmed {
        println!("off: {name} deletes, and this text was not confirmed");
    }
    match runs.is_empty() {
        true => println!("nothing was to be done"),
        false => println!("{}", runs_table(&runs)),
    }
    for run in &runs {
        run.notes.iter().for_each(|note| println!("{}: {note}", run.policy));
    }
}

/// Runs `brindle policy status`.
pub fn status(args: &StatusArgs) -> Result<Done> {
    let view = view(&State::look(&args.state.state)?);
    let is_well = view.problem.is_none();
    if args.output.json() {
        print_json(&view)?;
        return Ok(if is_well { Done::Ok } else { Done::Unhealthy });
    }
    match (view.is_running, view.file.is_empty()) {
        (true, _) => println!("running: {} for {}", view.file, view.source),
        (false, false) => println!("not running; its text was {} for {}", view.file, view.source),
        (false, true) => println!("no engine has run in {}", args.state.state.display()),
    }
    if let Some(problem) = &view.problem {
        println!("the text cannot be used as it is now, and the one before goes on: {problem}");
    }
    for name in &view.unconfirmed {
        println!(
            "off: {name} deletes, and this text was not confirmed (brindle policy preview, brindle policy confirm)"
        );
    }
    for name in &view.off {
        println!("off: {name} was switched off (brindle policy enable {name})");
    }
    if let Some(run) = &view.running {
        println!("under way: {}, {} entries; {}", run.policy, run.matched, run.why);
    }
    let first = view.runs.len().saturating_sub(SHOWN);
    if !view.runs.is_empty() {
        println!("{}", runs_table(&view.runs[first..]));
    }
    for run in &view.runs[first..] {
        run.notes.iter().for_each(|note| println!("{}: {note}", run.policy));
    }
    Ok(if is_well { Done::Ok } else { Done::Unhealthy })
}

/// Runs `brindle policy history`.
pub fn history(args: &HistoryArgs) -> Result<Done> {
    let view = view(&State::look(&args.state.state)?);
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    println!("{}", runs_table(&view.runs));
    for run in &view.runs {
        run.notes.iter().for_each(|note| println!("{} at {}: {note}", run.policy, time_text(run.began_secs)));
    }
    Ok(Done::Ok)
}
