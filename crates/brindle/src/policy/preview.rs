//! `brindle policy preview` and `why`: what would happen, and nothing does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::paths;
use brindle_host::control::MountHere;
use brindle_hsm::policy::{Due, Engine, Options, State};
use brindle_policy::trigger::Target;
use brindle_policy::{Plan, Policy, Program};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;

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

/// What a text would do.
#[derive(Serialize, JsonSchema)]
pub struct PreviewView {
    /// The sum over its words, which a confirmation is about.
    sum: String,
    /// From when on the file system keeps access times, in seconds since 1970, if the text goes by them: no file counts as unused before.
    #[serde(skip_serializing_if = "Option::is_none")]
    access_times_since_secs: Option<i64>,
    /// The policies, in order of the text.
    policies: Vec<PolicyLine>,
}
brindle_admin::document!(PreviewView, "brindle.policy.preview", 1);

/// What a policy would do.
#[derive(Serialize, JsonSchema)]
struct PolicyLine {
    /// Its name.
    policy: String,
    /// Its action.
    action: &'static str,
    /// Whether it deletes.
    deletes: bool,
    /// Why it would run; or what it would do if it ran, since nothing starts it now.
    why: String,
    /// Whether something starts it now.
    is_due: bool,
    /// Entries that match.
    matched: u64,
    /// Bytes of the entries that are chosen.
    bytes: u64,
    /// Whether its target is reached.
    is_reached: bool,
    /// The entries that are chosen, in order.
    entries: Vec<EntryLine>,
}

/// An entry.
#[derive(Serialize, JsonSchema)]
struct EntryLine {
    /// From the root of the file system.
    path: String,
    /// The action.
    action: &'static str,
    /// The rule.
    rule: String,
    /// Bytes that it moves or frees.
    bytes: u64,
}

/// What would run now; a policy that nothing starts is shown with all that matches.
fn dues(program: &Program, engine: &Engine, usages: &brindle_policy::trigger::Usages) -> Vec<(Due, bool)> {
    let mut all = Vec::new();
    for (index, policy) in program.policies.iter().enumerate() {
        let targets: Vec<Target> =
            policy.triggers.iter().flat_map(|trigger| trigger.targets(usages, engine.names())).collect();
        if !targets.is_empty() {
            all.extend(targets.into_iter().map(|target| (Due { policy: index, target }, true)));
            continue;
        }
        let by_interval = policy.triggers.is_empty() && policy.parameters.interval_secs.is_some();
        let why = match by_interval {
            true => "its interval",
            false => "nothing starts it now; if it ran without a target",
        };
        all.push((Due { policy: index, target: Target::all(why) }, by_interval));
    }
    all
}

/// Runs `brindle policy preview`.
pub fn run(args: &Args) -> Result<Done> {
    let mounts: Vec<String> = args.place.mount()?.into_iter().collect();
    let program = args.text.load_at(&mounts)?;
    let view = runtime()?.block_on(async {
        let client = args.place.connect().await?;
        let engine = Engine::new(client.clone(), Arc::new(HostNames), Options::default());
        let planned = async {
            let since = engine.access_times(&program).await?;
            let usages = engine.usages(&program).await?;
            let (due, is_due): (Vec<Due>, Vec<bool>) = dues(&program, &engine, &usages).into_iter().unzip();
            let planned = engine.plan(&program, &due).await?;
            let lines = due.iter().zip(is_due).zip(&planned.plans);
            Ok::<_, Fault>(PreviewView {
                sum: program.sum.clone(),
                access_times_since_secs: since.map(|since| since.secs),
                policies: lines.map(|((due, is_due), plan)| line(&program, due, is_due, plan)).collect(),
            })
        };
        let planned = planned.await;
        client.unmount().await;
        planned
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

fn line(program: &Program, due: &Due, is_due: bool, plan: &Plan) -> PolicyLine {
    let policy: &Policy = &program.policies[due.policy];
    let entries = plan.chosen.iter().map(|chosen| EntryLine {
        path: chosen.entry.path.clone(),
        action: chosen.action.name(),
        rule: policy.rules[chosen.rule].name.clone(),
        bytes: chosen.bytes,
    });
    PolicyLine {
        policy: policy.name.clone(),
        action: policy.action.name(),
        deletes: policy.deletes(),
        why: due.target.why.clone(),
        is_due,
        matched: plan.matched,
        bytes: plan.bytes,
        is_reached: plan.is_reached,
        entries: entries.collect(),
    }
}

fn show(policy: &PolicyLine, all: bool) {
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
