//! `brindle target add --standby`, `failover` and `failback`: targets on devices that two hosts reach.

use brindle_admin::place::FsLocation;
use brindle_admin::shared::{SETTLED_LIMIT_MS, SharedView, outcome, until_settled};
use brindle_types::{Fault, FsName, Nid, Result, Role, TargetId};
use brindle_wire::mgs::shared::{SharedChange, SharedHost};

use super::ask::{self, servers};
use super::place::{PlaceArgs, one};
use super::target_assign::{TargetArgs, Wanted};
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json};

/// Arguments of `brindle target failover`.
#[derive(clap::Args)]
#[command(
    after_help = "The present owner stops the target and releases the device, then the other host takes it; programs wait for that moment and get no error.\n\
                        If the owner is silent, it is fenced first. Where there is no program for that, and you know that the host is off: --owner-is-off."
)]
pub struct FailoverArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Host that is to serve it; the other one by default
    #[arg(long, value_name = "HOST", add = live::nodes())]
    to: Option<String>,
    /// The present owner is switched off: I have looked. If it runs and writes on, the target is destroyed
    #[arg(long)]
    owner_is_off: bool,
}

/// Has two hosts share a new target, and waits until the first one serves it.
pub fn add(
    mgs: &[Nid],
    hosts: Vec<SharedHost>,
    wanted: Wanted,
    is_dry_run: bool,
    output: Output,
) -> Result<Done> {
    let place = one(&PlaceArgs { path: None, mgs: mgs.to_vec(), dir: None })?;
    let Wanted { role, index, dir } = wanted;
    let is_mdt = role == Role::Mdt;
    runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        let change = SharedChange::Add { is_mdt, index, hosts, dir };
        let added = servers.change_shared(&place, change, is_dry_run).await?.target;
        let name = map.fs.target(added.target);
        let hosts: Vec<&str> = added.hosts.iter().map(|host| host.host.as_str()).collect();
        let (owner, device) = (&added.owner, &added.hosts[0].device);
        if is_dry_run {
            println!(
                "would have {owner} format {device} as {name} and serve it from {}, port {}; hosts: {}",
                added.dir,
                added.port,
                hosts.join(", ")
            );
            return Ok(Done::Ok);
        }
        eprintln!("{owner} is to serve {name} from {device}; hosts: {}", hosts.join(", "));
        followed(&place, &map.fs, (added.target, None), output).await
    })
}

/// Has the other host serve a target.
pub fn failover(args: &FailoverArgs) -> Result<Done> {
    shift(&args.target, args.to.clone(), args.owner_is_off)
}

/// Has the preferred host serve a target again.
pub fn failback(args: &TargetArgs) -> Result<Done> {
    let place = args.fs.place()?;
    let preferred = runtime()?.block_on(async {
        let shared = servers().shared(&place).await?;
        let info = shared.targets.into_iter().find(|info| info.target.target == args.target.target);
        Ok::<_, Fault>(info.and_then(|info| info.target.hosts.into_iter().next()))
    })?;
    let to = preferred.map(|host| host.host);
    shift(args, to, false)
}

fn shift(args: &TargetArgs, to: Option<String>, is_owner_off: bool) -> Result<Done> {
    let place = args.fs.place()?;
    runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        args.target.check_fs(&map.fs)?;
        let target = args.target.target;
        let before = servers.shared(&place).await?;
        let before = before.targets.into_iter().find(|info| info.target.target == target);
        let change = SharedChange::Move { target, to: to.clone(), is_owner_off };
        let done = servers.change_shared(&place, change, args.dry_run).await?;
        let (from, name) = (before.map(|info| info.target.owner).unwrap_or_default(), map.fs.target(target));
        let other = done.target.hosts.iter().map(|host| &host.host).find(|host| **host != from);
        let to = to.or_else(|| other.cloned()).unwrap_or_default();
        if !done.changed {
            println!("{name}: {to} owns it already; nothing was changed");
            return Ok(Done::Ok);
        }
        if args.dry_run {
            println!("would move {name} from {from} to {to}");
            return Ok(Done::Ok);
        }
        eprintln!("{name}: from {from} to {to}");
        followed(&place, &map.fs, (target, Some(&to)), args.output).await
    })
}

/// Waits until the target is in the wanted state, and prints the outcome.
pub async fn followed(
    place: &FsLocation,
    fs: &FsName,
    (target, owner): (TargetId, Option<&str>),
    output: Output,
) -> Result<Done> {
    let tell = |view: &SharedView| {
        if !output.json() && !matches!(view.state, "serving" | "stopped") {
            eprintln!("{}: {} on {}", view.name, view.state, view.owner);
        }
    };
    let view = until_settled(&servers(), place, fs, (target, owner), SETTLED_LIMIT_MS, tell).await?;
    if output.json() {
        print_json(&view)?;
    }
    outcome(&view, owner, target)?;
    if !output.json() {
        println!("{}: {} on {}", view.name, view.state, view.owner);
    }
    Ok(Done::Ok)
}
