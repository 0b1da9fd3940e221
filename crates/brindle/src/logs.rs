//! `brindle log`: the level of servers' logs, while they run, and their last lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brindle_admin::logs::{self, LogView, TroubleView};
use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::log_level::{LogLevelReq, LogLevelResp, MdtLogLevelReq, MgsLogLevelReq, OstLogLevelReq};
use brindle_wire::log_lines::{LINES_MAX, Severity, TEXT_BYTES_MAX};
use brindle_wire::map::{Map, TargetEntry};

use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, one};
use crate::exit::{self, Done};
use crate::format::runtime;
use crate::manager::DIR_DEFAULT;
use crate::manager::asking::ManagerArgs;
use crate::output::{Output, print_json, print_line};

/// Pause between two looks while new lines are followed.
const PAUSE: Duration = Duration::from_secs(1);
/// The word for every target.
const ALL: &str = "all";

/// The verbs of `brindle log`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show or change the level of the log of a target's process, until that ends
    Level(LevelArgs),
    /// Show the last lines of the logs of servers, mounts, agents and the manager, in the order of time
    Show(ShowArgs),
}

/// Arguments of `brindle log show`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle log show\n  brindle log show --text E4001 --lines 50\n  brindle log show scratch-OST0003 --level info --follow\n  \
                  brindle log show --mounts\n  brindle log show --client n7 --level info\n  brindle log show --manager\n\n\
                  Each server keeps its last 8192 lines in memory, 2 MiB at most, for as long as it runs. Targets that share a process have one log. Older lines are in \
                  the log files of the hosts, or in their journals. Mounts, agents of tiering and policy engines do the same; their MDT asks them, 1024 at most. Lines of mounts may have names of users' files in them. \
                  The exit code is 7 where a server or mount did not answer."
)]
pub struct ShowArgs {
    /// The target: scratch-OST0003 or OST0003; or all
    #[arg(value_name = "TARGET", default_value = ALL)]
    target: String,
    /// error, warn, info, debug or trace: lines of this importance or a greater one
    #[arg(long, value_name = "LEVEL", default_value = "warn", value_parser = severity)]
    level: Severity,
    /// Only lines with this text in them: a code, or a part of a message; capital letters do not matter
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = text)]
    text: String,
    /// Most lines of each process, the newest
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=LINES_MAX as i64))]
    lines: u32,
    /// Lines of mounts, agents and policy engines, too
    #[arg(long)]
    mounts: bool,
    /// Only lines of mounts, agents and policy engines of this host, and no servers'
    #[arg(
        long,
        value_name = "HOST",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "target"
    )]
    client: String,
    /// Only lines of the manager in this directory of this host
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = DIR_DEFAULT, conflicts_with_all = ["target", "mounts", "client", "follow"])]
    manager: Option<PathBuf>,
    /// Go on with new lines until interrupted
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    system: SystemArgs,
    #[command(flatten)]
    output: Output,
}

/// A text that servers look for.
fn text(text: &str) -> std::result::Result<String, String> {
    match text.len() {
        0..=TEXT_BYTES_MAX => Ok(text.to_owned()),
        len => Err(format!(
            "it has {len} bytes; logs are searched for at most {TEXT_BYTES_MAX}: look for a part of it"
        )),
    }
}

/// The importance that a word names.
fn severity(word: &str) -> std::result::Result<Severity, String> {
    logs::severity(word).ok_or_else(|| "it is none of error, warn, info, debug and trace".to_owned())
}

/// The file system whose servers are meant. (A path without an option would be taken for a target.)
#[derive(clap::Args)]
struct SystemArgs {
    /// A path in a mount of the file system; without any of these options, what is mounted here
    #[arg(long = "mount", value_name = "PATH", conflicts_with_all = ["mgs", "dir"])]
    mount: Option<std::path::PathBuf>,
    /// Address of its MGS
    #[arg(long, value_name = "NID", value_parser = crate::format::parse::<brindle_types::Nid>, value_delimiter = ',', conflicts_with = "dir")]
    mgs: Vec<brindle_types::Nid>,
    /// Directory of a development cluster
    #[arg(long, value_name = "DIR")]
    dir: Option<std::path::PathBuf>,
}

impl SystemArgs {
    fn place(&self) -> Result<FsLocation> {
        one(&PlaceArgs { path: self.mount.clone(), mgs: self.mgs.clone(), dir: self.dir.clone() })
    }
}

/// Arguments of `brindle log level`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle log level scratch-OST0003\n  brindle log level scratch-MDT0000 debug\n  brindle log level all info\n  \
                  brindle log level MDT0000 info,brindle_mds=debug --dir /tmp/b\n\n\
                  Targets that share a process have one log. After a restart the level is that of BRINDLE_LOG again, or info."
)]
pub struct LevelArgs {
    /// The target: scratch-OST0003 or OST0003; or all
    #[arg(value_name = "TARGET")]
    target: String,
    /// error, warn, info, debug or trace; or a filter; without it the present one is shown
    #[arg(value_name = "LEVEL")]
    level: Option<String>,
    #[command(flatten)]
    system: SystemArgs,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    let args = match command {
        Command::Level(args) => args,
        Command::Show(args) => return show(args),
    };
    let place = args.system.place()?;
    runtime()?.block_on(async {
        let servers = servers();
        let (map, _) = servers.map(&place).await?;
        let meant = meant(&map, &args.target)?;
        let mut failed = None;
        for entry in &meant {
            let name = map.fs.target(entry.id);
            match ask(&servers, &map, entry, args.level.clone()).await {
                Ok(LogLevelResp { level, before }) if args.level.is_some() => {
                    println!("{name} on {}: {before} -> {level}", entry.host());
                }
                Ok(LogLevelResp { level, .. }) => println!("{name} on {}: {level}", entry.host()),
                Err(fault) if meant.len() > 1 => {
                    exit::warn(&fault);
                    failed = Some(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(if failed.is_some() { Done::Partly } else { Done::Ok })
    })
}

/// Targets that a word names.
fn meant<'a>(map: &'a Map, word: &str) -> Result<Vec<&'a TargetEntry>> {
    let is_meant =
        |entry: &&TargetEntry| word == ALL || word == map.fs.target(entry.id) || word == entry.id.to_string();
    let meant: Vec<&TargetEntry> = map.targets.iter().filter(is_meant).collect();
    if meant.is_empty() {
        let all: Vec<String> = map.targets.iter().map(|entry| map.fs.target(entry.id)).collect();
        return Err(Fault::new(Code::UnknownTarget)
            .subject(word.to_owned())
            .data("nothing was changed")
            .next(format!("name one of these, or all: {}", all.join(", "))));
    }
    Ok(meant)
}

/// Shows lines of logs.
fn show(args: &ShowArgs) -> Result<Done> {
    let query = logs::Query { severity: args.level, text: args.text.clone(), lines_max: args.lines };
    if let Some(dir) = &args.manager {
        return show_manager(args, dir);
    }
    let place = args.system.place()?;
    runtime()?.block_on(async {
        let servers = servers();
        let mut read = logs::Read::default();
        let mut silent = BTreeSet::new();
        loop {
            let (map, _) = servers.map(&place).await?;
            let mut view = look(args, &servers, &map, &query, &mut read).await?;
            if !args.follow && args.output.json() {
                print_json(&view)?;
                return Ok(done(&view));
            }
            let name = |t: &TroubleView| (t.host.clone(), t.target.clone());
            let now: BTreeSet<(String, String)> = view.troubles.iter().map(name).collect();
            view.troubles.retain(|trouble| !silent.contains(&name(trouble)));
            print_lines(args, &view)?;
            if !args.follow {
                return Ok(done(&view));
            }
            silent = now;
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// New lines of the processes that are meant.
async fn look(
    args: &ShowArgs,
    servers: &Servers,
    map: &Map,
    query: &logs::Query,
    read: &mut logs::Read,
) -> Result<LogView> {
    let mut view = LogView::default();
    if args.client.is_empty() {
        let targets: Vec<TargetId> = meant(map, &args.target)?.iter().map(|entry| entry.id).collect();
        view.merge(logs::read(servers, map, &targets, query, read).await);
    }
    if args.mounts || !args.client.is_empty() {
        let mounts = logs::mounts(servers, map, &args.client).await?;
        if mounts.is_empty() && !args.client.is_empty() {
            return Err(Fault::new(Code::NotFound)
                .what("no mount has a session from")
                .subject(format!("host {}", args.client))
                .next("brindle log show --mounts shows those of all hosts"));
        }
        view.merge(logs::read_mounts(servers, map, &mounts, query, read).await);
    }
    Ok(view)
}

/// Shows lines of the log of a manager on this host.
fn show_manager(args: &ShowArgs, dir: &Path) -> Result<Done> {
    let level = args.level.name();
    let request =
        serde_json::json!({ "of": "manager", "level": level, "text": args.text, "lines": args.lines });
    let manager = ManagerArgs::of(dir);
    let view: LogView = manager.ask("POST", "/logs", &request)?;
    if args.output.json() {
        print_json(&view)?;
    } else {
        print_lines(args, &view)?;
    }
    Ok(done(&view))
}

fn done(view: &LogView) -> Done {
    if view.troubles.is_empty() { Done::Ok } else { Done::Partly }
}

fn print_lines(args: &ShowArgs, view: &LogView) -> Result<()> {
    if view.left_out > 0 && !args.output.json() {
        let lines = if view.left_out == 1 { "line is" } else { "lines are" };
        eprintln!("{} older {lines} not shown: --lines, --text and --level choose", view.left_out);
    }
    for line in &view.lines {
        if args.output.json() {
            print_line(line)?;
            continue;
        }
        let fields = if line.fields.is_empty() { String::new() } else { format!("  {}", line.fields) };
        let mount = if line.mount.is_empty() { String::new() } else { format!("{}: ", line.mount) };
        println!("{} {:<8} {:<5} {mount}{}{fields}", line.at, line.host, line.level, line.message);
    }
    for trouble in &view.troubles {
        eprintln!("{} on {} tells nothing: {}", trouble.target, trouble.host, trouble.why);
    }
    Ok(())
}

async fn ask(
    servers: &Servers,
    map: &Map,
    entry: &TargetEntry,
    level: Option<String>,
) -> Result<LogLevelResp> {
    let request = LogLevelReq { level };
    match entry.id.role {
        Role::Mdt => servers.ask(map, entry.id, &MdtLogLevelReq(request)).await,
        Role::Ost => servers.ask(map, entry.id, &OstLogLevelReq(request)).await,
        Role::Mgt => servers.ask(map, entry.id, &MgsLogLevelReq(request)).await,
    }
}
