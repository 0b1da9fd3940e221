//! `brindle target drain`, `undrain` and `remove`.

use std::path::{Path, PathBuf};

use brindle_admin::drain::{Drain, Drained};
use brindle_admin::job;
use brindle_admin::osts::OstList;
use brindle_admin::place::FsLocation;
use brindle_admin::servers::{Servers, Use};
use brindle_admin::target::{self, describe_use, one_ost};
use brindle_host::control::MountHere;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::TargetChange;
use brindle_wire::mgs::hosts::HostChange;
use brindle_wire::mgs::shared::SharedChange;

use super::ask::{self, servers};
use super::place::{PlaceArgs, one};
use crate::completion::live;
use crate::exit::Done;
use crate::follow::{Show, follow};
use crate::format::{parse, runtime};
use crate::output::{Output, print_json};

/// Arguments of `brindle target drain`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle target drain OST0003 /mnt/b --bandwidth 200MiB\n\
                        Programs may use the files meanwhile. After an interruption the same command goes on.")]
pub struct DrainArgs {
    /// The OST: its index, or its name
    #[arg(value_parser = parse::<OstList>, add = live::osts_to_drain())]
    ost: OstList,
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    mount: PathBuf,
    /// Most bytes a second, such as 100MiB
    #[arg(long, value_name = "BYTES", value_parser = brindle_types::units::parse_bytes)]
    bandwidth: Option<u64>,
    #[command(flatten)]
    output: Output,
}

impl DrainArgs {
    /// Draining one OST of several.
    pub fn of(ost: OstList, mount: PathBuf, bandwidth: Option<u64>, output: Output) -> DrainArgs {
        DrainArgs { ost, mount, bandwidth, output }
    }
}

/// Arguments of `brindle target undrain`.
#[derive(clap::Args)]
pub struct UndrainArgs {
    /// The OST: its index, or its name
    #[arg(value_parser = parse::<OstList>, add = live::drained_osts())]
    ost: OstList,
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    mount: PathBuf,
}

/// Arguments of `brindle target remove`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle target drain 3 /mnt/b && brindle target remove 3 /mnt/b\n\
                        An OST with files on it is not removed. One that does not answer is, if no file lies on it.")]
pub struct RemoveArgs {
    /// The OST: its index, or its name; also an MDT that a host was told to make and has not made
    #[arg(value_name = "OST", value_parser = parse::<Removable>, add = live::osts())]
    target: Removable,
    /// Where the file system is mounted; not needed where only one is, nor on a host of the cluster
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    mount: Option<PathBuf>,
}

/// Runs `brindle target drain`.
pub fn drain(args: &DrainArgs) -> Result<Done> {
    let (map, ost) = change(&args.ost, &args.mount, TargetChange::Drain)?;
    let name = map.fs.target(TargetId::ost(ost));
    let whole = MountHere::of(&args.mount)
        .and_then(MountHere::whole)
        .map_err(|fault| fault.data(format!("{name} gets no new files; nothing was moved")))?;
    let runtime = runtime()?;
    let drain = Drain { map, ost, whole, bandwidth_bytes: args.bandwidth };
    let running = runtime.block_on(async {
        let servers = servers();
        job::start(&servers.seams().clone(), "admin.drain", |job| drain.run(servers, job))
    });
    let drained = follow(&runtime, running, Show::Files.on_terminal(args.output.json()))?;
    if args.output.json() {
        print_json(&drained)?;
    } else {
        println!("{}", describe(&drained, ost));
    }
    Ok(if drained.empty { Done::Ok } else { Done::Partly })
}

/// Runs `brindle target undrain`.
pub fn undrain(args: &UndrainArgs) -> Result<Done> {
    let (map, ost) = change(&args.ost, &args.mount, TargetChange::Undrain)?;
    println!("{} gets new files again", map.fs.target(TargetId::ost(ost)));
    Ok(Done::Ok)
}

/// A target that may be removed.
#[derive(Clone, Debug)]
enum Removable {
    Ost(OstList),
    Mdt(TargetId),
}

impl std::str::FromStr for Removable {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Removable, String> {
        match text.rsplit('-').next().unwrap_or(text).parse::<TargetId>() {
            Ok(target) if target.role == Role::Mdt => Ok(Removable::Mdt(target)),
            _ => text.parse().map(Removable::Ost),
        }
    }
}

/// Runs `brindle target remove`.
pub fn remove(args: &RemoveArgs) -> Result<Done> {
    let place = one(&PlaceArgs { path: args.mount.clone(), mgs: Vec::new(), dir: None })?;
    let mount = args.mount.as_ref().map_or_else(|| "MOUNT".to_owned(), |mount| mount.display().to_string());
    let removed = runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        let id = match &args.target {
            Removable::Ost(list) => TargetId::ost(one_ost(list, &map.fs)?),
            Removable::Mdt(target) => *target,
        };
        if map.target(id).is_none()
            && let Some(host) = take_back(&servers, &place, id).await?
        {
            println!("{host} is not to make {} any more", map.fs.target(id));
            return Ok(None);
        }
        if id.role == Role::Mdt {
            return Err(Fault::new(Code::TargetInUse)
                .what("cannot remove")
                .subject(map.fs.target(id))
                .why("an MDT that was made holds names of files")
                .data("nothing was changed"));
        }
        target::remove(&servers, &place, &map, id.index, &mount).await.map(Some)
    })?;
    let Some(removed) = removed else { return Ok(Done::Ok) };
    ask::warn_not_told(&removed.not_told);
    println!(
        "{} is removed. {} serves it no more; if brindle serve --dir names it there, end that. Its directory is used again only when it was formatted.",
        removed.name, removed.host
    );
    Ok(Done::Ok)
}

/// Takes the order back to make a target, if a host has one and has not made it; the host.
async fn take_back(servers: &Servers, place: &FsLocation, target: TargetId) -> Result<Option<String>> {
    let hosts = match servers.hosts(place).await {
        Ok(hosts) => hosts,
        // No host is told what to serve there, or the MGS is of an earlier release.
        Err(fault) if matches!(fault.code, Code::NoAuthority | Code::UnknownOp) => return Ok(None),
        Err(fault) => return Err(fault),
    };
    let ordered = hosts.hosts.iter().find(|host| host.assignments.iter().any(|a| a.target == target));
    let Some(host) = ordered else {
        let shared = servers.shared(place).await?;
        if shared.targets.iter().all(|info| info.target.target != target) {
            return Ok(None);
        }
        let done = servers.change_shared(place, SharedChange::Forget { target }, false).await?;
        return Ok(Some(done.target.owner));
    };
    servers.change_host(place, &host.name, HostChange::ForgetTarget { target }, false).await?;
    Ok(Some(host.name.clone()))
}

fn describe(drained: &Drained, ost: u16) -> String {
    let Drained { target, files, copied_bytes, failed, nameless, empty } = drained;
    let moved = format!("{files} files moved, {}", format_bytes(*copied_bytes));
    match empty {
        true => format!(
            "{target} is empty, and gets no new files ({moved}); next: brindle target remove, or take it back: brindle target undrain"
        ),
        false if *failed > 0 => {
            format!("{target}: {moved}; {failed} files could not be moved; the same command tries again")
        }
        false if *nameless > 0 => {
            let used = Use { files: *nameless, nameless: *nameless };
            format!("{target}: {moved}; {}; they go when those close them", describe_use(used))
        }
        false => format!("{target}: {moved}; there are still files on it: lfs find MOUNT -ost {ost}"),
    }
}

/// Changes the OST in the map, and waits until the MDTs know.
fn change(list: &OstList, mount: &Path, change: TargetChange) -> Result<(Map, u16)> {
    let place = one(&PlaceArgs { path: Some(mount.to_owned()), mgs: Vec::new(), dir: None })?;
    runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        let ost = one_ost(list, &map.fs)?;
        let changed = target::change(&servers, &place, ost, change).await?;
        ask::warn_not_told(&changed.not_told);
        Ok((changed.map, ost))
    })
}
