//! `brindle log`: the level of servers' logs, while they run, and their last lines.

use std::collections::BTreeSet;
use std::time::Duration;

use brindle_admin::logs::{self, LogView};
use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::log_level::{LogLevelReq, LogLevelResp, MdtLogLevelReq, MgsLogLevelReq, OstLogLevelReq};
use brindle_wire::log_lines::{LINES_MAX, Severity};
use brindle_wire::map::{Map, TargetEntry};

use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, one};
use crate::exit::{self, Done};
use crate::format::runtime;
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
    /// Show the last lines of the logs of all servers, in the order of time
    Show(ShowArgs),
}

/// Arguments of `brindle log show`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle log show\n  brindle log show --text E4001 --lines 50\n  brindle log show scratch-OST0003 --level info --follow\n\n\
                  Each server keeps its last 8192 lines in memory, 2 MiB at most, for as long as it runs. Targets that share a process have one log. Older lines are in \
                  the log files of the hosts, or in their journals. The exit code is 7 where a server did not answer."
)]
pub struct ShowArgs {
    /// The target: scratch-OST0003 or OST0003; or all
    #[arg(value_name = "TARGET", default_value = ALL)]
    target: String,
    /// error, warn, info, debug or trace: lines of this importance or a greater one
    #[arg(long, value_name = "LEVEL", default_value = "warn", value_parser = severity)]
    level: Severity,
    /// Only lines with this text in them: a code, or a part of a message; capital letters do not matter
    #[arg(long, value_name = "TEXT", default_value = "")]
    text: String,
    /// Most lines of each process, the newest
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=LINES_MAX as i64))]
    lines: u32,
    /// Go on with new lines until interrupted
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    system: SystemArgs,
    #[command(flatten)]
    output: Output,
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
    let place = args.system.place()?;
    let query = logs::Query { severity: args.level, text: args.text.clone(), lines_max: args.lines };
    runtime()?.block_on(async {
        let servers = servers();
        let mut read = logs::Read::default();
        let mut silent = BTreeSet::new();
        loop {
            let (map, _) = servers.map(&place).await?;
            let targets: Vec<TargetId> = meant(&map, &args.target)?.iter().map(|entry| entry.id).collect();
            let mut view = logs::read(&servers, &map, &targets, &query, &mut read).await;
            if !args.follow && args.output.json() {
                print_json(&view)?;
                return Ok(done(&view));
            }
            let now: BTreeSet<String> = view.troubles.iter().map(|t| t.target.clone()).collect();
            view.troubles.retain(|trouble| !silent.contains(&trouble.target));
            print_lines(args, &view)?;
            if !args.follow {
                return Ok(done(&view));
            }
            silent = now;
            tokio::time::sleep(PAUSE).await;
        }
    })
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
        println!("{} {:<8} {:<5} {}{fields}", line.at, line.host, line.level, line.message);
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
