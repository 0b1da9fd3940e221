//! `brindle target add --node`, `start` and `stop`: targets that hosts of the cluster are told to serve.

use brindle_admin::hosts::{HOSTED_LIMIT_MS, HostedView, host_of, outcome, until_hosted};
use brindle_admin::place::FsLocation;
use brindle_types::{Code, Fault, FsName, Nid, Result, Role, TargetId};
use brindle_wire::mgs::hosts::HostChange;
use brindle_wire::mgs::shared::SharedChange;

use super::ask::{self, servers};
use super::place::{PlaceArgs, one};
use super::target_shared;
use crate::completion::live;
use crate::exit::Done;
use crate::format::{parse, runtime};
use crate::output::{Output, print_json};
use crate::pool::FsArgs;

/// A target that a host is to serve.
pub struct Wanted {
    /// Role of the target.
    pub role: Role,
    /// Index of the target; `None`: the lowest free one.
    pub index: Option<u16>,
    /// Directory of the target on the host.
    pub dir: String,
}

/// A target to be started, stopped or moved.
#[derive(clap::Args)]
pub struct TargetArgs {
    /// The target: OST0003, scratch-OST0003, MDT0000
    #[arg(value_name = "TARGET", value_parser = parse::<Named>, add = live::targets())]
    pub(super) target: Named,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) fs: FsArgs,
    #[command(flatten)]
    pub(super) output: Output,
}

/// A target as people name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    fs: Option<FsName>,
    pub(super) target: TargetId,
}

impl Named {
    /// Refuses the name of a target of another file system.
    pub(super) fn check_fs(&self, fs: &FsName) -> Result<()> {
        match self.fs.as_ref().filter(|own| *own != fs) {
            Some(other) => Err(Fault::new(Code::UnknownTarget)
                .subject(other.target(self.target))
                .why(format!("the file system is {fs}"))),
            None => Ok(()),
        }
    }
}

impl std::str::FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Named, String> {
        let text = text.strip_suffix("_UUID").unwrap_or(text);
        // The name of a file system may have a '-' in it; that of a target has none.
        match text.rsplit_once('-') {
            Some((fs, target)) => Ok(Named { fs: Some(fs.parse()?), target: target.parse()? }),
            None => Ok(Named { fs: None, target: text.parse()? }),
        }
    }
}

/// Has a host serve a new target, and waits until it does.
pub fn add(mgs: &[Nid], host: &str, wanted: Wanted, is_dry_run: bool, output: Output) -> Result<Done> {
    let place = one(&PlaceArgs { path: None, mgs: mgs.to_vec(), dir: None })?;
    let Wanted { role, index, dir } = wanted;
    let change = match role {
        Role::Mgt => HostChange::AddMgs { dir },
        role => HostChange::AddTarget { is_mdt: role == Role::Mdt, index, dir },
    };
    runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        let answer = servers.change_host(&place, host, change, is_dry_run).await?;
        let added = answer.target.ok_or_else(|| Fault::new(Code::Bug).why("the MGS names no target"))?;
        let name = map.fs.target(added.target);
        if is_dry_run {
            println!("would have {host} format {} as {name} and serve it at port {}", added.dir, added.port);
            return Ok(Done::Ok);
        }
        eprintln!("{host} is to serve {name} from {}, port {}", added.dir, added.port);
        followed(&place, &map.fs, (host, added.target), output).await
    })
}

/// Has its host serve a target, or not, and waits until that is so.
pub fn want(args: &TargetArgs, is_wanted: bool) -> Result<Done> {
    let place = args.fs.place()?;
    runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        let target = args.target.target;
        args.target.check_fs(&map.fs)?;
        let shared = servers.shared(&place).await?;
        if shared.targets.iter().any(|info| info.target.target == target) {
            let change = SharedChange::Want { target, is_wanted };
            let done = servers.change_shared(&place, change, args.dry_run).await?;
            if args.dry_run {
                let verb = if is_wanted { "start" } else { "stop" };
                println!("{} would {verb} {}", done.target.owner, map.fs.target(target));
                return Ok(Done::Ok);
            }
            return target_shared::followed(&place, &map.fs, (target, None), args.output).await;
        }
        if servers.replicas(&place).await?.sets.iter().any(|info| info.set.target == target) {
            return Err(copies_go_on(map.fs.target(target)));
        }
        let answer = servers.hosts(&place).await?;
        let host = host_of(&answer, &map.fs, target)?.name.clone();
        let change = HostChange::WantTarget { target, is_wanted };
        let done = servers.change_host(&place, &host, change, args.dry_run).await?;
        let verb = if is_wanted { "start" } else { "stop" };
        if args.dry_run {
            let would = if done.changed {
                "would"
            } else {
                "would have nothing to do: it was told before; would have"
            };
            println!("{host} {would} {verb} {}", map.fs.target(target));
            return Ok(Done::Ok);
        }
        followed(&place, &map.fs, (&host, target), args.output).await
    })
}

/// A target with copies is served for as long as a host that has everything runs.
fn copies_go_on(name: String) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot start or stop")
        .subject(name)
        .why("it has copies on several hosts, and one of them serves it for as long as that host runs")
        .data("nothing was changed")
        .next(
            "see its members: brindle target replica list; to stop a member, stop brindle-serve on its host",
        )
}

/// Waits for the host, and prints how it went.
async fn followed(
    place: &FsLocation,
    fs: &FsName,
    (host, target): (&str, TargetId),
    output: Output,
) -> Result<Done> {
    let tell = |view: &HostedView| {
        if !output.json() && !matches!(view.state, "serving" | "stopped") {
            match view.state {
                "unknown" => eprintln!("{}: {host} is silent; waiting for its brindle-serve", view.name),
                state => eprintln!("{}: {state}", view.name),
            }
        }
    };
    let (view, failure) = until_hosted(&servers(), place, fs, (host, target), HOSTED_LIMIT_MS, tell).await?;
    if output.json() {
        print_json(&view)?;
    }
    outcome(&view, failure, host, target)?;
    if !output.json() {
        println!("{}: {} on {host}", view.name, view.state);
    }
    Ok(Done::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_with_and_without_their_file_system() {
        let named =
            |fs: Option<&str>| Named { fs: fs.map(|fs| fs.parse().unwrap()), target: TargetId::ost(10) };
        assert_eq!("OST000a".parse(), Ok(named(None)));
        assert_eq!("scratch-OST000a".parse(), Ok(named(Some("scratch"))));
        assert_eq!("a-b-OST000a_UUID".parse(), Ok(named(Some("a-b"))));
        assert!("OST10".parse::<Named>().is_err() && "-OST000a".parse::<Named>().is_err());
    }
}
