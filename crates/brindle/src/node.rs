//! `brindle node`: hosts of a cluster, as its MGS knows them.

use std::path::PathBuf;

use brindle_admin::hosts::{self, HostView, HostedView};
use brindle_admin::rails;
use brindle_admin::replica::ReplicaSetView;
use brindle_admin::shared::SharedView;
use brindle_admin::target;
use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::mgs::TargetChange;
use brindle_wire::mgs::hosts::HostChange;

use crate::admin::ask::{self, servers};
use crate::admin::place::{PlaceArgs, one};
use crate::admin::target_drain;
use crate::completion::live;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json, table};
use crate::pool::FsArgs;
use crate::{node_label, node_rename, node_spare};

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List the hosts that have joined, and tokens that can still be used
    List(ListArgs),
    /// Show one host
    Show(ShowArgs),
    /// Move everything off all OSTs of a host, and give them no new files
    Drain(DrainArgs),
    /// Have a host get a copy of a target when one of its copies is lost
    Spare(node_spare::Args),
    /// Say in which rack a host stands: copies of a target are in different racks
    Label(node_label::Args),
    /// Give a host another name; it keeps its targets, roles, copies and nodemaps
    Rename(node_rename::Args),
    /// Take the name that an administrator has given this host; for hosts that are no servers
    TakeName(node_rename::TakeArgs),
    /// Let a host in no more; its connections end within seconds
    Remove(RemoveArgs),
}

/// Arguments of `brindle node list`.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle node show`.
#[derive(clap::Args)]
pub struct ShowArgs {
    /// Name of the host
    #[arg(value_name = "HOST", add = live::nodes())]
    host: String,
    #[command(flatten)]
    fs: FsArgs,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle node drain`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle node drain oss3 /scratch\n\
                        Programs may use the files meanwhile. After an interruption the same command goes on. Then, for each OST: \
                        brindle target remove, and at last: brindle node remove oss3. To keep them: brindle target undrain.")]
pub struct DrainArgs {
    /// Name of the host
    #[arg(value_name = "HOST", add = live::nodes())]
    host: String,
    /// Where the file system is mounted
    #[arg(value_name = "MOUNT", add = live::mount_points())]
    mount: PathBuf,
    /// Most bytes a second, such as 100MiB
    #[arg(long, value_name = "BYTES", value_parser = brindle_types::units::parse_bytes)]
    bandwidth: Option<u64>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle node remove`.
#[derive(clap::Args)]
#[command(
    after_help = "A host that serves targets is not removed: empty its OSTs first (brindle target drain, brindle target remove).\n\
                        To let it join again it needs a new token."
)]
pub struct RemoveArgs {
    /// Name of the host
    #[arg(value_name = "HOST", add = live::nodes())]
    host: String,
    /// Even if it serves targets: they are lost with it
    #[arg(long)]
    with_targets: bool,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    fs: FsArgs,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::List(args) => list(args),
        Command::Show(args) => show(args),
        Command::Drain(args) => drain(args),
        Command::Spare(args) => node_spare::run(args),
        Command::Label(args) => node_label::run(args),
        Command::Rename(args) => node_rename::run(args),
        Command::TakeName(args) => node_rename::take(args),
        Command::Remove(args) => remove(args),
    }
}

fn list(args: &ListArgs) -> Result<Done> {
    let place = args.fs.place()?;
    let view = runtime()?.block_on(async {
        let known = servers().known(&place).await?;
        Ok::<_, Fault>(hosts::list(&known))
    })?;
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let rows = view.hosts.iter().map(|host| {
        let own = host.targets.iter().map(in_a_word);
        let shared = view.shared.iter().filter_map(|target| shared_in_a_word(target, &host.name));
        let copies = view.replicas.iter().filter_map(|set| copy_in_a_word(set, &host.name));
        let targets = own.chain(shared).chain(copies).collect::<Vec<_>>().join(" ");
        let rack = if host.rack.is_empty() { "-" } else { &host.rack };
        vec![host.name.clone(), host.state.to_owned(), host.roles.join(","), rack.to_owned(), targets]
    });
    println!("{}", table(&["HOST", "STATE", "ROLES", "RACK", "TARGETS"], rows.collect()));
    for target in view.shared.iter().filter(|target| !target.why.is_empty() && target.state != "stopped") {
        println!("\n{}: {}", target.name, target.state);
        target.why.lines().for_each(|line| println!("  {line}"));
    }
    if !view.tokens.is_empty() {
        let n = view.tokens.len();
        println!("\n{n} {} not used yet", if n == 1 { "token is" } else { "tokens are" });
    }
    Ok(Done::Ok)
}

/// A target that does what it should is named; another one with its state.
fn in_a_word(target: &HostedView) -> String {
    match target.state {
        "serving" => target.name.clone(),
        state => format!("{} ({state})", target.name),
    }
}

/// A shared target as one of its hosts has it.
fn shared_in_a_word(target: &SharedView, host: &str) -> Option<String> {
    let name = &target.name;
    let own = target.hosts.iter().find(|own| own.host == host)?;
    Some(match (own.state, target.owner == host) {
        ("failed", false) => format!("{name} (standby, failed)"),
        (state, false) => format!("{name} ({state})"),
        (_, true) if target.state == "serving" => name.clone(),
        (_, true) => format!("{name} ({})", target.state),
    })
}

/// A target with copies as one of its hosts has it.
fn copy_in_a_word(set: &ReplicaSetView, host: &str) -> Option<String> {
    let name = &set.name;
    let own = set.members.iter().find(|own| own.host == host)?;
    Some(match (own.role, own.state) {
        ("primary", "up") => name.clone(),
        ("primary", state) => format!("{name} ({state})"),
        ("in-sync", "up") => format!("{name} (copy)"),
        ("in-sync", state) => format!("{name} (copy, {state})"),
        (role, _) => format!("{name} (copy, {role})"),
    })
}

fn show(args: &ShowArgs) -> Result<Done> {
    let place = args.fs.place()?;
    let view: HostView = runtime()?.block_on(async {
        let known = servers().known(&place).await?;
        let view = hosts::one(&known.hosts, &args.host).map(|host| hosts::view(&known, host))?;
        Ok::<_, Fault>(HostView {
            rails: rails::look(&servers(), &known.map, Some(&args.host)).await,
            ..view
        })
    })?;
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let heard = match view.heard_seconds_ago {
        Some(seconds) => format!("{} {seconds:.0} s ago", view.software),
        None => "not since the MGS has started".to_owned(),
    };
    println!("       host: {}", view.name);
    println!("      state: {}", view.state);
    println!("      roles: {}", view.roles.join(", "));
    if !view.rack.is_empty() {
        println!("       rack: {}", view.rack);
    }
    println!("        key: {}...", view.key);
    println!("     joined: {}", date(view.joined_s));
    println!("certificate: holds until {}, renewed before", date(view.certificate_ends_s));
    println!("     daemon: {heard}");
    for rail in &view.rails {
        println!("       rail: {} at {}: {}", rail.rail, rail.address, rail.state);
    }
    for target in &view.targets {
        println!("     target: {} in {}, port {}: {}", target.name, target.dir, target.port, target.state);
        target.why.lines().for_each(|line| println!("             {line}"));
    }
    for target in &view.shared {
        let own = target.hosts.iter().find(|own| own.host == view.name);
        let (device, state) = own.map_or(("", ""), |own| (own.device.as_str(), own.state));
        println!("     shared: {} on {device}: {state}; {} on {}", target.name, target.state, target.owner);
        let why = own.map_or("", |own| own.why.as_str());
        why.lines().for_each(|line| println!("             {line}"));
    }
    for set in &view.replicas {
        let Some(own) = set.members.iter().find(|own| own.host == view.name) else { continue };
        println!(
            "       copy: {} in {}: {}, {}; {} on {}",
            set.name, own.dir, own.role, own.state, set.state, set.primary
        );
        own.why.lines().for_each(|line| println!("             {line}"));
    }
    Ok(Done::Ok)
}

fn date(seconds: i64) -> String {
    rfc3339(Timestamp { secs: seconds, nanos: 0 })
}

/// First all OSTs of the host get no new files, so that nothing moves from one of them to another.
fn drain(args: &DrainArgs) -> Result<Done> {
    let place = one(&PlaceArgs { path: Some(args.mount.clone()), mgs: Vec::new(), dir: None })?;
    let osts = runtime()?.block_on(async {
        let servers = servers();
        let map = ask::map(&servers, &place).await?;
        let of_host = map.targets.iter().filter(|t| t.host() == args.host);
        let osts: Vec<TargetId> = of_host.map(|t| t.id).filter(|id| id.role == Role::Ost).collect();
        if osts.is_empty() {
            return Err(Fault::new(Code::UnknownTarget)
                .what("nothing to drain on")
                .subject(args.host.clone())
                .why("the map names no OST that this host serves")
                .data("nothing was changed")
                .next("list the targets with their hosts: brindle target list"));
        }
        if !args.dry_run {
            for ost in &osts {
                let changed = target::change(&servers, &place, ost.index, TargetChange::Drain).await?;
                ask::warn_not_told(&changed.not_told);
            }
        }
        Ok(osts)
    })?;
    let mut outcome = Done::Ok;
    for ost in osts {
        if args.dry_run {
            println!("would drain {ost}");
            continue;
        }
        let list = ost.to_string().parse().map_err(|why: String| Fault::new(Code::Bug).why(why))?;
        let one = target_drain::DrainArgs::of(list, args.mount.clone(), args.bandwidth, args.output);
        match target_drain::drain(&one)? {
            Done::Ok => {}
            other => outcome = other,
        }
    }
    Ok(outcome)
}

fn remove(args: &RemoveArgs) -> Result<Done> {
    let place = args.fs.place()?;
    let change = HostChange::Remove { with_targets: args.with_targets };
    runtime()?.block_on(async { servers().change_host(&place, &args.host, change, args.dry_run).await })?;
    match args.dry_run {
        true => println!(
            "would remove {}: its connections would end, and its certificate would be of no use",
            args.host
        ),
        false => println!(
            "removed {}: its connections end within seconds, its certificate is of no use any more",
            args.host
        ),
    }
    Ok(Done::Ok)
}
