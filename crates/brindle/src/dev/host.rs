//! `brindle dev host`: the hosts of a cluster on one machine, to be killed, frozen, cut off and shaped, and to run commands on.

use std::ffi::OsString;
use std::path::PathBuf;

use brindle_host::cluster::network::parse_rate;
use brindle_host::cluster::{HostView, On, init, run_on};
use brindle_host::process::Said;
use brindle_types::Result;

use super::{DirArg, installed, on};
use crate::exit::Done;
use crate::output::{Output, print_json, table};
use crate::serve::say;

/// The verbs.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Show the hosts
    List(ListArgs),
    /// Run a command on a host, as if you had logged in there
    Run(RunArgs),
    /// Take the power from a host: it vanishes from the network, its process is gone
    Kill(KillArgs),
    /// Start a host that was killed
    Start(HostArgs),
    /// Stop the process of a host (SIGSTOP), as if it hung
    Freeze(HostArgs),
    /// Let a frozen host go on
    Thaw(HostArgs),
    /// Cut the link of a host
    Cut(CutArgs),
    /// Mend the link of a host
    Heal(HealArgs),
    /// Let the link of a host pass so many bits a second, each way
    Shape(ShapeArgs),
}

/// Arguments of `brindle dev host list`.
#[derive(clap::Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    dir: DirArg,
    #[command(flatten)]
    output: Output,
}

/// Arguments of verbs that need nothing but the host.
#[derive(clap::Args, Debug)]
pub struct HostArgs {
    /// Name of the host as in `brindle dev host list`: mds1, oss1, c1; h1 of bare hosts
    #[arg(value_name = "HOST", add = crate::completion::live::hosts())]
    host: String,
    #[command(flatten)]
    dir: DirArg,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle dev host run`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  brindle dev host run --dir /tmp/d h1 -- bash\n  \
                        brindle dev host run --dir /tmp/d h2 -- sh -c 'hostname; cat /etc/hosts; ls /etc/brindle'\n\
                        The exit code is that of the command, or 128 and the number of the signal that killed it.")]
pub struct RunArgs {
    #[command(flatten)]
    dir: DirArg,
    /// Name of the host as in `brindle dev host list`: h1, mds1, c1
    #[arg(value_name = "HOST", add = crate::completion::live::hosts())]
    host: String,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<OsString>,
}

/// Arguments of `brindle dev host-init`.
#[derive(clap::Args, Debug)]
pub struct InitArgs {
    /// The files of the host
    #[arg(long, value_name = "DIR")]
    files: PathBuf,
    /// The log of the host, which is standard error already; the process is known by it
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
}

/// Arguments of `brindle dev host kill`.
#[derive(clap::Args, Debug)]
pub struct KillArgs {
    #[command(flatten)]
    at: HostArgs,
    /// Empty its storage too: what lies only there is lost
    #[arg(long)]
    destroy_disks: bool,
}

/// Arguments of `brindle dev host cut`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Without --in or --out the cable is pulled: the host sees that, and nothing passes either way."
)]
pub struct CutArgs {
    #[command(flatten)]
    at: HostArgs,
    /// Bytes that are sent to the host do not arrive; nobody is told
    #[arg(long = "in")]
    inwards: bool,
    /// Bytes that the host sends do not arrive; nobody is told
    #[arg(long = "out")]
    outwards: bool,
    /// Only the link of this rail: 0, 1
    #[arg(long, value_name = "N")]
    rail: Option<usize>,
}

/// Arguments of `brindle dev host heal`.
#[derive(clap::Args, Debug)]
pub struct HealArgs {
    #[command(flatten)]
    at: HostArgs,
    /// Only the link of this rail: 0, 1
    #[arg(long, value_name = "N")]
    rail: Option<usize>,
}

/// Arguments of `brindle dev host shape`.
#[derive(clap::Args, Debug)]
pub struct ShapeArgs {
    #[command(flatten)]
    at: HostArgs,
    /// Rate, such as 1gbit or 99.2mbit; none: as fast as the machine is
    #[arg(value_name = "RATE", value_parser = rate)]
    rate: Rate,
}

/// A rate of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

/// Parses a rate.
pub fn rate(text: &str) -> std::result::Result<Rate, String> {
    parse_rate(text).map(Rate)
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::List(args) => list(args),
        Command::Run(args) => run_on(&args.dir.absolute()?, &args.host, &args.command).map(Done::Code),
        Command::Kill(args) => change(&args.at, "is dead", |on, host| on.kill_host(host, args.destroy_disks)),
        Command::Start(args) => {
            let done = change(args, "runs", |on, host| on.start_host(host))?;
            installed::boot(&args.dir.absolute()?, &args.host).map(|()| done)
        }
        Command::Freeze(args) => change(args, "is frozen", |on, host| on.freeze_host(host)),
        Command::Thaw(args) => change(args, "goes on", |on, host| on.thaw_host(host)),
        Command::Cut(args) => {
            let both = !args.inwards && !args.outwards;
            let (inwards, outwards) = (args.inwards || both, args.outwards || both);
            let done = if args.rail.is_some() { "is cut off on one rail" } else { "is cut off" };
            change(&args.at, done, |on, host| on.cut_host(host, args.rail, inwards, outwards))
        }
        Command::Heal(args) => change(&args.at, "is connected", |on, host| on.heal_host(host, args.rail)),
        Command::Shape(args) => {
            change(&args.at, "has another link", |on, host| on.shape_host(host, args.rate.0))
        }
    }
}

/// Boots a bare host and keeps it.
pub fn keep(args: &InitArgs) -> Result<Done> {
    let kept = init::keep(&args.files, |booted| say(&Said::Ready(booted)));
    if let Err(fault) = &kept {
        say(&Said::<()>::Failed(fault.clone()));
    }
    kept.map(|()| Done::Ok)
}

fn change(args: &HostArgs, done: &str, change: impl FnOnce(&On, &str) -> Result<HostView>) -> Result<Done> {
    let view = on(&args.dir, None, |on| change(on, &args.host))?;
    if args.output.json() {
        print_json(&view)?;
    } else {
        println!("{} {done} ({})", view.name, describe(&view));
    }
    Ok(Done::Ok)
}

fn describe(view: &HostView) -> String {
    let link = match view.link.as_str() {
        "up" => format!("link {}", rate_text(view)),
        cut => format!("link {cut}"),
    };
    let role = if view.mount.is_empty() { view.targets.join(" ") } else { view.mount.clone() };
    [view.state.to_owned(), link, role]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

fn rate_text(view: &HostView) -> String {
    match view.rate_bits_per_second {
        None => "unshaped".to_owned(),
        Some(bits) if bits >= 1_000_000_000 => format!("{} Gbit/s", bits as f64 / 1e9),
        Some(bits) => format!("{} Mbit/s", bits as f64 / 1e6),
    }
}

fn list(args: &ListArgs) -> Result<Done> {
    let view = on(&args.dir, None, |on| on.hosts())?;
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    if view.hosts.is_empty() {
        println!("all of this cluster runs on this one host");
        return Ok(Done::Ok);
    }
    let rows = view.hosts.into_iter().map(|host| {
        let pid = host.pid.filter(|_| host.state != "dead").map_or("-".to_owned(), |pid| pid.to_string());
        let rate = rate_text(&host);
        let addresses: Vec<&str> = host.rails.iter().map(|rail| rail.address.as_str()).collect();
        let addresses = addresses.join(",");
        let role = if host.mount.is_empty() { host.targets.join(" ") } else { host.mount };
        let role = if role.is_empty() { "-".to_owned() } else { role };
        vec![host.name, host.state.to_owned(), host.link, rate, addresses, pid, role]
    });
    println!(
        "{}",
        table(&["HOST", "STATE", "LINK", "RATE", "ADDRESS", "PID", "TARGETS/MOUNT"], rows.collect())
    );
    Ok(Done::Ok)
}
