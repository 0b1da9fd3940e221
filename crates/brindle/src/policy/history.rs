//! `brindle policy status` and `history`: what the engine of a directory does and has done.

use brindle_hsm::policy::State;
use brindle_hsm::policy::state::{History, Run};
use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::Result;
use brindle_types::units::format_bytes;
use schemars::JsonSchema;
use serde::Serialize;

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

/// An engine and its runs.
#[derive(Serialize, JsonSchema)]
pub struct PolicyStatusView {
    /// Whether it runs now.
    is_running: bool,
    /// The text.
    file: String,
    /// The sum over its words.
    sum: String,
    /// The file system, as it was named.
    source: String,
    /// Policies that delete, and are off until the text is confirmed.
    unconfirmed: Vec<String>,
    /// What is wrong with the text as it is now.
    problem: Option<String>,
    /// The run that is under way.
    running: Option<RunLine>,
    /// The runs that are remembered, the newest last.
    runs: Vec<RunLine>,
}
brindle_admin::document!(PolicyStatusView, "brindle.policy.status", 1);

/// A run.
#[derive(Serialize, JsonSchema)]
struct RunLine {
    /// The policy.
    policy: String,
    /// Why it ran.
    why: String,
    /// When it began, in seconds since 1970.
    began_secs: i64,
    /// When it ended; 0 for one that has not.
    ended_secs: i64,
    /// Entries that matched.
    matched: u64,
    /// Actions that were taken.
    done: u64,
    /// Their bytes.
    bytes: u64,
    /// Entries that had changed or were busy.
    left: u64,
    /// Actions that failed.
    failed: u64,
    /// What there is to say.
    notes: Vec<String>,
}

impl From<&Run> for RunLine {
    fn from(run: &Run) -> RunLine {
        RunLine {
            policy: run.policy.clone(),
            why: run.why.clone(),
            began_secs: run.began_secs,
            ended_secs: run.ended_secs,
            matched: run.matched,
            done: run.done,
            bytes: run.bytes,
            left: run.left,
            failed: run.failed,
            notes: run.notes.clone(),
        }
    }
}

fn view(state: &State) -> PolicyStatusView {
    let History { file, sum, source, unconfirmed, problem, running, runs, .. } = &state.history;
    let is_running = state.is_running();
    PolicyStatusView {
        is_running,
        file: file.clone(),
        sum: sum.clone(),
        source: source.clone(),
        unconfirmed: if state.is_confirmed(sum) { Vec::new() } else { unconfirmed.clone() },
        problem: problem.clone(),
        running: running.as_ref().filter(|_| is_running).map(RunLine::from),
        runs: runs.iter().map(RunLine::from).collect(),
    }
}

/// A time, UTC, to the second.
fn time_text(secs: i64) -> String {
    let text = rfc3339(Timestamp { secs, nanos: 0 });
    text.split('.').next().unwrap_or_default().replace('T', " ")
}

fn runs_table(runs: &[RunLine]) -> String {
    let row = |run: &RunLine| {
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
    let runs: Vec<RunLine> = view.runs.into_iter().filter(|run| run.began_secs >= since_secs).collect();
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
