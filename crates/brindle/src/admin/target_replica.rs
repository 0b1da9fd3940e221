//! `brindle target replica`, and `brindle target add --copies`: targets with members on several hosts.

use brindle_admin::place::FsLocation;
use brindle_admin::replica::{ReplicaSetView, outcome, progress, until_settled, view};
use brindle_types::{Code, Fault, FsName, Nid, Result, Role, TargetId};
use brindle_wire::mgs::replica::{MemberPlace, ReplicaSetChange, ReplicaSetState};

use super::ask::{self, servers};
use super::place::{PlaceArgs, one};
use super::target_assign::{TargetArgs, Wanted};
use super::target_replica_move;
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};

/// The verbs of `brindle target replica`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the copies of all targets that have several
    List(ListArgs),
    /// Give an OST or an MDT one more copy, on another host; programs go on
    Add(AddArgs),
    /// Take a copy of a target away; what lies in its directory stays there
    Remove(MemberArgs),
    /// Move a copy to another host: one more is made there, and once it is complete the former one goes
    Move(target_replica_move::MoveArgs),
    /// Have another complete copy serve the target; programs pause for a few seconds and go on
    Promote(MemberArgs),
    /// Have a copy serve that may lack acknowledged changes, because every copy that had them is lost for good
    AcceptLoss(LossArgs),
}

/// Arguments of `brindle target replica list`.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle target replica add`.
#[derive(clap::Args)]
pub struct AddArgs {
    #[command(flatten)]
    at: MemberArgs,
    /// Directory on that host, empty or not there yet; the one of the first copy without it
    #[arg(long = "replica-dir", value_name = "DIR")]
    replica_dir: Option<String>,
    /// Have the copy in the rack of another one, although a host of another rack could have it
    #[arg(long)]
    same_rack: bool,
}

/// A copy of a target.
#[derive(clap::Args)]
pub struct MemberArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Host of the copy, as in brindle node list
    #[arg(long = "node", value_name = "HOST", add = live::nodes())]
    host: String,
}

/// Arguments of `brindle target replica accept-loss`.
#[derive(clap::Args)]
pub struct LossArgs {
    #[command(flatten)]
    at: MemberArgs,
    /// Files may have lost what was written and even synced lately: I have looked, and nothing else is left
    #[arg(long)]
    yes: bool,
}

/// Runs a verb.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::List(args) => list(args),
        Command::Add(args) => add_copy(args),
        Command::Remove(args) => remove(args),
        Command::Move(args) => target_replica_move::run(args),
        Command::Promote(args) => promote(args),
        Command::AcceptLoss(args) => accept_loss(args),
    }
}

fn list(args: &ListArgs) -> Result<Done> {
    let place = one(&args.place)?;
    let views = runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        let sets = servers.replicas(&place).await?;
        Ok::<_, Fault>(sets.sets.iter().map(|info| view(&map.fs, info)).collect::<Vec<_>>())
    })?;
    if args.output.json() {
        for view in &views {
            print_json(view)?;
        }
    } else {
        print!("{}", lines(&views));
    }
    Ok(Done::Ok)
}

/// Replica sets for people, a line a member.
pub fn lines(views: &[ReplicaSetView]) -> String {
    let mut rows = Vec::new();
    for view in views {
        let (name, state) = (view.name.clone(), view.state.to_owned());
        rows.push(vec![name, state, String::new(), String::new()]);
        for m in &view.members {
            let mended = match m.mended_blocks {
                0 => String::new(),
                n => format!("{n} damaged blocks mended"),
            };
            let more = if progress(m).is_empty() { mended } else { progress(m) };
            rows.push(vec![format!("  {}", m.host), m.role.to_owned(), m.state.to_owned(), more]);
        }
    }
    if rows.is_empty() { String::new() } else { table(&["REPLICAS", "ROLE", "STATE", ""], rows) + "\n" }
}

/// Hosts of a new target with copies.
pub struct Hosts<'a> {
    /// Names of the hosts.
    pub names: &'a [String],
    /// Number of copies, if it was given.
    pub copies: Option<usize>,
    /// Whether the copies may be in one rack.
    pub is_same_rack: bool,
}

/// Makes a target with several copies, and waits until all have everything.
pub fn add(
    mgs: &[Nid],
    Hosts { names: hosts, copies, is_same_rack }: Hosts<'_>,
    wanted: Wanted,
    is_dry_run: bool,
    output: Output,
) -> Result<Done> {
    if let Some(copies) = copies.filter(|copies| *copies != hosts.len()) {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot add a target")
            .why(format!(
                "{copies} copies are wanted, and {} hosts are named: each copy needs a host of its own",
                hosts.len()
            ))
            .data("nothing was changed")
            .next("give --node HOST once for each copy"));
    }
    let place = one(&PlaceArgs { path: None, mgs: mgs.to_vec(), dir: None })?;
    let places =
        hosts.iter().map(|host| MemberPlace { host: host.clone(), dir: wanted.dir.clone() }).collect();
    let index = wanted.index;
    let change = match wanted.role {
        Role::Mdt => ReplicaSetChange::CreateMdt { index, places },
        _ => ReplicaSetChange::Create { index, places },
    };
    changed(&place, change.in_same_rack(is_same_rack), (is_dry_run, output), |fs, set| {
        let hosts: Vec<&str> = set.members.iter().map(|m| m.host.as_str()).collect();
        format!("{} with copies on {}, port {}", fs.target(set.target), hosts.join(", "), set.port)
    })
}

fn add_copy(args: &AddArgs) -> Result<Done> {
    let TargetArgs { target, dry_run, fs, output } = &args.at.target;
    let place = fs.place()?;
    let (target, host) = (target.target, args.at.host.clone());
    let dir = match &args.replica_dir {
        Some(dir) => dir.clone(),
        None => runtime()?.block_on(present_dir(&place, target))?,
    };
    let change = ReplicaSetChange::Add { target, place: MemberPlace { host: host.clone(), dir } };
    changed(&place, change.in_same_rack(args.same_rack), (*dry_run, *output), |fs, set| {
        format!("a copy of {} on {host}", fs.target(set.target))
    })
}

/// Directory of the first copy of a target.
pub(super) async fn present_dir(place: &FsLocation, target: TargetId) -> Result<String> {
    let servers = servers();
    let sets = servers.replicas(place).await?;
    let set = sets.sets.iter().find(|info| info.set.target == target);
    if let Some(member) = set.and_then(|info| info.set.members.first()) {
        return Ok(member.dir.clone());
    }
    let hosts = servers.hosts(place).await?;
    let assigned = hosts.hosts.iter().flat_map(|host| &host.assignments).find(|a| a.target == target);
    assigned.map(|a| a.dir.clone()).ok_or_else(|| {
        Fault::new(Code::UnknownTarget)
            .subject(target.to_string())
            .why("no host of the cluster was told to serve it")
            .data("nothing was changed")
            .next("list targets and their hosts: brindle node list")
    })
}

fn remove(args: &MemberArgs) -> Result<Done> {
    let TargetArgs { target, dry_run, fs, output } = &args.target;
    let place = fs.place()?;
    let change = ReplicaSetChange::Remove { target: target.target, host: args.host.clone() };
    changed(&place, change, (*dry_run, *output), |fs, set| {
        let left: Vec<&str> = set.members.iter().map(|m| m.host.as_str()).collect();
        format!("{} without {}: on {}", fs.target(set.target), args.host, left.join(", "))
    })
}

fn promote(args: &MemberArgs) -> Result<Done> {
    let TargetArgs { target, dry_run, fs, output } = &args.target;
    let place = fs.place()?;
    let change = ReplicaSetChange::Promote { target: target.target, host: args.host.clone() };
    changed(&place, change, (*dry_run, *output), |fs, set| {
        format!("{} served by {}", fs.target(set.target), args.host)
    })
}

fn accept_loss(args: &LossArgs) -> Result<Done> {
    let TargetArgs { target, dry_run, fs, output } = &args.at.target;
    if !args.yes && !dry_run {
        return Err(Fault::new(Code::BadArgument)
            .what("will not give up acknowledged changes of")
            .subject(target.target.to_string())
            .why("every copy that has all of them is away, and may come back")
            .data("nothing was changed; files may lose what was written, and even synced, since this copy fell behind")
            .next("if those copies are lost for good: add --yes"));
    }
    let place = fs.place()?;
    let change = ReplicaSetChange::AcceptLoss { target: target.target, host: args.at.host.clone() };
    changed(&place, change, (*dry_run, *output), |fs, set| {
        format!("{} as it is on {}", fs.target(set.target), args.at.host)
    })
}

/// Makes a change, and waits until the set is complete.
fn changed(
    place: &FsLocation,
    change: ReplicaSetChange,
    (is_dry_run, output): (bool, Output),
    say: impl Fn(&FsName, &ReplicaSetState) -> String,
) -> Result<Done> {
    let waits = !matches!(change, ReplicaSetChange::AcceptLoss { .. } | ReplicaSetChange::Remove { .. });
    runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, place).await?;
        let done = servers.change_replicas(place, change, is_dry_run).await?;
        let said = say(&map.fs, &done.set);
        if is_dry_run {
            println!("would have {said}");
            return Ok(Done::Ok);
        }
        if !waits {
            println!("{said}");
            return Ok(Done::Ok);
        }
        eprintln!("{said}");
        let tell = |view: &ReplicaSetView| {
            if !output.json() && view.state != "serving" {
                let members: Vec<String> =
                    view.members.iter().map(|m| format!("{} {} {}", m.host, m.role, m.state)).collect();
                eprintln!("{}: {} ({})", view.name, view.state, members.join(", "));
            }
        };
        let view = until_settled(&servers, place, (&map.fs, done.set.target), tell).await?;
        if output.json() {
            print_json(&view)?;
        }
        outcome(&view, done.set.target)?;
        if !output.json() {
            let hosts: Vec<&str> = view.members.iter().map(|m| m.host.as_str()).collect();
            println!("{}: serving on {}, complete on {}", view.name, view.primary, hosts.join(", "));
        }
        Ok(Done::Ok)
    })
}
