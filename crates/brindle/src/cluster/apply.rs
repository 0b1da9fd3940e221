//! `brindle cluster export` and `apply`: a cluster as a file.

use std::path::PathBuf;

use brindle_admin::cluster_file::{self, ClusterFile, Plan, Step};
use brindle_admin::hosts::until_hosted;
use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_admin::{replica, shared};
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::hosts::HostChange;

use crate::admin::ask::{self, servers};
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json};
use crate::pool::FsArgs;

/// Longest time until a host serves a target.
const HOSTED_LIMIT_MS: u64 = 60_000;
/// Largest file that is read.
const FILE_MAX_BYTES: u64 = 4 << 20;

/// Arguments of `brindle cluster export`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle cluster export > cluster.toml\n\
                        Keys and data are not in it: it is no backup.")]
pub struct ExportArgs {
    #[command(flatten)]
    fs: FsArgs,
}

/// Arguments of `brindle cluster apply`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle cluster apply cluster.toml --dry-run\n\
                        The same file can be applied again: what is there already is not made again. Exit code 7 where something has \
                        to be done by hand first, such as letting a host join.")]
pub struct ApplyArgs {
    /// The file, as brindle cluster export writes it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the difference, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Runs `brindle cluster export`.
pub fn export(args: &ExportArgs) -> Result<Done> {
    let place = args.fs.place()?;
    let file = runtime()?.block_on(async {
        let known = servers().known(&place).await?;
        Ok::<_, Fault>(cluster_file::export(&known))
    })?;
    let text = toml::to_string(&file).map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?;
    print!("# A Brindle cluster: change this file, then: brindle cluster apply FILE\n{text}");
    Ok(Done::Ok)
}

/// Runs `brindle cluster apply`.
pub fn apply(args: &ApplyArgs) -> Result<Done> {
    let file = read(args)?;
    let place = args.fs.place()?;
    runtime()?.block_on(async {
        let servers = servers();
        let known = servers.known(&place).await?;
        let plan = cluster_file::plan(&file, &known)?;
        if !args.output.json() {
            print_plan(&plan, args.dry_run);
        }
        if !args.dry_run {
            carry_out(&servers, &place, &known.map, &plan, args.output).await?;
        }
        let view = plan.view(!args.dry_run);
        if args.output.json() {
            print_json(&view)?;
        }
        Ok(if view.missing.is_empty() { Done::Ok } else { Done::Partly })
    })
}

fn read(args: &ApplyArgs) -> Result<ClusterFile> {
    let subject = args.file.display().to_string();
    let cannot = |e: &std::io::Error| Fault::io(Code::BadArgument, "cannot read", subject.clone(), e);
    let len = std::fs::metadata(&args.file).map_err(|e| cannot(&e))?.len();
    if len > FILE_MAX_BYTES {
        return Err(Fault::new(Code::BadConfigValue).subject(subject).why(format!("it has {len} bytes")));
    }
    let text = std::fs::read_to_string(&args.file).map_err(|e| cannot(&e))?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(0, |span| text[..span.start].lines().count().max(1));
        Fault::new(Code::BadConfigValue)
            .what("cannot read")
            .subject(subject)
            .why(format!("line {line}: {}", e.message()))
            .data("nothing was changed")
    })
}

fn print_plan(plan: &Plan, is_dry_run: bool) {
    let view = plan.view(false);
    if plan.is_empty() {
        println!("nothing to change: the cluster is as the file says");
    }
    let prefix = if is_dry_run { "would " } else { "" };
    view.changes.iter().for_each(|change| println!("{prefix}{change}"));
    view.missing.iter().for_each(|missing| println!("first, by hand: {missing}"));
    if !view.left_alone.is_empty() {
        println!("not in the file, left alone: {}", view.left_alone.join(", "));
    }
}

async fn carry_out(
    servers: &Servers,
    place: &FsLocation,
    map: &Map,
    plan: &Plan,
    output: Output,
) -> Result<()> {
    for (host, rack) in &plan.racks {
        servers.change_host(place, host, HostChange::Rack { rack: rack.clone() }, false).await?;
    }
    for (host, target, step) in &plan.targets {
        ask_for(servers, place, host, step).await?;
        if step.makes() && plan.targets.iter().any(|(_, other, next)| other == target && next != step) {
            // The next step changes it right away.
            continue;
        }
        let (name, state, failure) = settled(servers, place, map, (host, *target), step).await?;
        if matches!(state, "serving" | "stopped") {
            if !output.json() {
                println!("{name}: {state} on {host}");
            }
            continue;
        }
        let fault = failure.unwrap_or_else(|| {
            let fault = Fault::new(Code::TargetDown).what("not served yet:").subject(name);
            fault.why(format!("its state is '{state}'"))
        });
        return Err(fault
            .why(format!("{host} says so, and tries again by itself: brindle node show {host}"))
            .data("what was made before stays; what is behind it in the file was not begun")
            .next("remove the cause, then apply the same file again"));
    }
    for (pool, change) in &plan.pools {
        let changed = brindle_admin::pool::change(servers, place, pool, change.clone()).await?;
        ask::warn_not_told(&changed.not_told);
    }
    Ok(())
}

async fn ask_for(servers: &Servers, place: &FsLocation, host: &str, step: &Step) -> Result<()> {
    match step {
        Step::Host(change) => drop(servers.change_host(place, host, change.clone(), false).await?),
        Step::Shared(change) => drop(servers.change_shared(place, change.clone(), false).await?),
        Step::Replicas(change) => drop(servers.change_replicas(place, change.clone(), false).await?),
    }
    Ok(())
}

/// Waits until the target of a step is as it should be: its name, its state, and why it is not.
async fn settled(
    servers: &Servers,
    place: &FsLocation,
    map: &Map,
    (host, target): (&str, TargetId),
    step: &Step,
) -> Result<(String, &'static str, Option<Fault>)> {
    let fault = |why: &str| (!why.is_empty()).then(|| Fault::new(Code::TargetDown).why(why.to_owned()));
    Ok(match step {
        Step::Host(_) => {
            let at = (host, target);
            let (view, failure) = until_hosted(servers, place, &map.fs, at, HOSTED_LIMIT_MS, |_| {}).await?;
            (view.name, view.state, failure)
        }
        Step::Shared(_) => {
            let at = (target, None);
            let view = shared::until_settled(servers, place, &map.fs, at, HOSTED_LIMIT_MS, |_| {}).await?;
            let failure = fault(&view.why);
            (view.name, view.state, failure)
        }
        Step::Replicas(_) => {
            let view = replica::until_settled(servers, place, (&map.fs, target), |_| {}).await?;
            let failure = replica::outcome(&view, target).err();
            (view.name, view.state, failure)
        }
    })
}
