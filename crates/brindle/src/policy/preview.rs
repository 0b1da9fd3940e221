//! `brindle policy preview` and `why`: the actions that a run would take; no action is taken.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::paths;
use brindle_host::control::MountHere;
use brindle_host::policy;
pub use brindle_host::policy::PreviewView;
use brindle_host::policy::PreviewedPolicy;
use brindle_hsm::policy::{Engine, Options, State};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};

use super::run::PlaceArgs;
use super::text::{HostNames, StateArg, TextArgs, mark};
use crate::control::ino;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json};

/// Entries of a policy that are shown unless all are asked for.
const SHOWN: usize = 20;

/// Arguments of `brindle policy preview`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    text: TextArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    state: StateArg,
    /// Show every entry, and not the first 20 of each policy
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle policy why`.
#[derive(clap::Args)]
pub struct WhyArgs {
    /// The text; that of the engine of --state without it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Set a variable of the text
    #[arg(long = "define", short = 'D', value_name = "NAME=VALUE")]
    define: Vec<String>,
    #[command(flatten)]
    state: StateArg,
    /// The file
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// Runs `brindle policy preview`.
pub fn run(args: &Args) -> Result<Done> {
    let mounts: Vec<String> = args.place.mount()?.into_iter().collect();
    let program = args.text.load_at(&mounts)?;
    let view = runtime()?.block_on(async {
        let client = args.place.connect().await?;
        let previewed = policy::preview(client.clone(), &program).await;
        client.unmount().await;
        previewed
    })?;
    if args.output.json() {
        print_json(&view)?;
    } else {
        if let Some(secs) = view.access_times_since_secs {
            println!(
                "access times are kept since {}: last_access counts from then on",
                crate::rbh::date(secs)
            );
        }
        view.policies.iter().for_each(|policy| show(policy, args.all));
    }
    if view.policies.iter().any(|policy| policy.deletes) {
        let state = State::look(&args.state.state)?;
        state.previewed(&program.sum, &mark(&args.text.file))?;
        if !state.is_confirmed(&program.sum) {
            eprintln!(
                "what deletes is off until it is confirmed: brindle policy confirm --state {} {}",
                args.state.state.display(),
                args.text.file.display()
            );
        }
    }
    Ok(Done::Ok)
}

fn show(policy: &PreviewedPolicy, all: bool) {
    let n = policy.entries.len();
    println!(
        "{} ({}): {n} entries, {}; {}",
        policy.policy,
        policy.action,
        format_bytes(policy.bytes),
        policy.why
    );
    if policy.matched > n as u64 {
        println!("  {} match; the limits and the target of a run come first", policy.matched);
    }
    if !policy.is_reached {
        println!("  that is not enough to reach the target");
    }
    let most = if all { n } else { SHOWN };
    for entry in policy.entries.iter().take(most) {
        println!(
            "  {:<10} {:>10}  {}  (rule {})",
            entry.action,
            format_bytes(entry.bytes),
            entry.path,
            entry.rule
        );
    }
    if n > most {
        println!("  ... and {} more: --all", n - most);
    }
}

/// Runs `brindle policy why`.
pub fn why(args: &WhyArgs) -> Result<Done> {
    let running = State::look(&args.state.state)?.history.file;
    let file = match &args.file {
        Some(file) => file.clone(),
        None if !running.is_empty() => PathBuf::from(running),
        None => {
            return Err(Fault::new(Code::BadArgument)
                .what("which text is meant?")
                .why(format!("no engine has run in {}", args.state.state.display()))
                .next("name it: --file FILE"));
        }
    };
    let text = TextArgs::of(file, &args.define)?;
    let path = std::path::absolute(&args.path)
        .map_err(|e| Fault::io(Code::NotFound, "cannot find", paths::text(&args.path), &e))?;
    let mount = MountHere::of(&path)?;
    let point = mount.line().mount_point.clone();
    mount.whole()?;
    let place = PlaceArgs::of(crate::cli::text(&point)?);
    let program = text.load_at(&[crate::cli::text(&point)?])?;
    let below = format!("/{}", path.strip_prefix(&point).unwrap_or(Path::new("")).display());
    let ino = ino(&path)?;
    let lines = runtime()?.block_on(async {
        let client = place.connect().await?;
        let engine = Engine::new(client.clone(), Arc::new(HostNames), Options::default());
        let lines = engine.why(&program, ino, &below).await;
        client.unmount().await;
        lines
    })?;
    lines.iter().for_each(|line| println!("{line}"));
    Ok(Done::Ok)
}
