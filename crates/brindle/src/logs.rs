//! `brindle log`: the levels of logs, while their processes run, and their last lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brindle_admin::logs::{self, LogView, TroubleView};
use brindle_admin::mount_levels;
use brindle_admin::place::FsLocation;
use brindle_admin::servers::Servers;
use brindle_host::bb;
use brindle_host::bb::logs::Process;
use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::log_level::{LogLevelReq, LogLevelResp, MdtLogLevelReq, MgsLogLevelReq, OstLogLevelReq};
use brindle_wire::log_lines::{LINES_MAX, Severity, TEXT_BYTES_MAX};
use brindle_wire::map::{Map, TargetEntry};

use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, one};
use crate::bb::SocketArg;
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
    /// Show or change the level of the log of a process, until that ends
    Level(LevelArgs),
    /// Show the last lines of the logs of servers, mounts, agents, burst buffers and the manager, in the order of time
    Show(ShowArgs),
}

/// Arguments of `brindle log show`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle log show\n  brindle log show --text E4001 --lines 50\n  brindle log show scratch-OST0003 --level info --follow\n  \
                  brindle log show --mounts\n  brindle log show --client n7 --level info\n  brindle log show --manager\n  brindle log show --bb\n  brindle log show --bb n7 --level info --follow\n\n\
                  Each server keeps its last 8192 lines in memory, 2 MiB at most, for as long as it runs. Targets that share a process have one log. Older lines are in \
                  the log files of the hosts, or in their journals. Mounts, agents of tiering and policy engines do the same; their MDT asks them, 1024 at most. Lines of mounts may have names of users' files in them. \
                  The orchestrator of burst buffers, on whose host --bb is given, asks its agents; root alone may. \
                  The exit code is 7 where a server, mount or agent did not answer."
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
    /// Only lines of the orchestrator of burst buffers on this host and of its agents (brindle bb agent); of HOST alone if given
    #[arg(long, value_name = "HOST", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["target", "mounts", "client", "manager", "mount", "mgs", "dir"])]
    bb: Option<String>,
    #[command(flatten)]
    orchestrator: SocketArg,
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
                  brindle log level MDT0000 info,brindle_mds=debug --dir /tmp/b\n  brindle log level --mounts n7 debug\n  brindle log level --bb all debug\n\n\
                  Targets that share a process have one log. After a restart the level is that of BRINDLE_LOG again, or info."
)]
pub struct LevelArgs {
    /// The target: scratch-OST0003 or OST0003; with --mounts or --bb a host; or all
    #[arg(value_name = "TARGET")]
    target: String,
    /// error, warn, info, debug or trace; or a filter; without it the present one is shown
    #[arg(value_name = "LEVEL")]
    level: Option<String>,
    /// TARGET is a host: of its mounts, agents of tiering and policy engines
    #[arg(long, conflicts_with = "bb")]
    mounts: bool,
    /// TARGET is a host: of its agent of burst buffers, or of the orchestrator on this host
    #[arg(long, conflicts_with_all = ["mount", "mgs", "dir"])]
    bb: bool,
    #[command(flatten)]
    orchestrator: SocketArg,
    #[command(flatten)]
    system: SystemArgs,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Level(args) => level(args),
        Command::Show(args) => show(args),
    }
}

/// Shows or changes levels. With several processes those that do not answer are warned of.
fn level(args: &LevelArgs) -> Result<Done> {
    let levels = match args.bb {
        true => levels_of_buffers(args)?,
        false => levels_of_system(args)?,
    };
    let (count, mut done) = (levels.len(), Done::Ok);
    for (name, answer) in levels {
        match answer {
            Ok(LogLevelResp { level, before }) if args.level.is_some() => {
                println!("{name}: {before} -> {level}");
            }
            Ok(LogLevelResp { level, .. }) => println!("{name}: {level}"),
            Err(fault) if count > 1 => {
                exit::warn(&fault);
                done = Done::Partly;
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(done)
}

/// Levels of processes, by what they are.
type Levels = Vec<(String, Result<LogLevelResp>)>;

/// Levels of servers, or of mounts.
fn levels_of_system(args: &LevelArgs) -> Result<Levels> {
    let place = args.system.place()?;
    runtime()?.block_on(async {
        let servers = servers();
        let (map, _) = servers.map(&place).await?;
        if args.mounts {
            return levels_of_mounts(args, &servers, &map).await;
        }
        let mut levels = Vec::new();
        for entry in meant(&map, &args.target)? {
            let name = format!("{} on {}", map.fs.target(entry.id), entry.host());
            levels.push((name, ask(&servers, &map, entry, args.level.clone()).await));
        }
        Ok(levels)
    })
}

/// Levels of mounts of one host, or of all.
async fn levels_of_mounts(args: &LevelArgs, servers: &Servers, map: &Map) -> Result<Levels> {
    let host = if args.target == ALL { "" } else { &args.target };
    let mounts = logs::mounts(servers, map, host).await?;
    if mounts.is_empty() {
        return Err(no_mounts(&args.target));
    }
    let silent = mounts.troubles().iter().map(|trouble| {
        let fault = Fault::new(Code::Disconnected).what("cannot read").subject(trouble.target.clone());
        (trouble.target.clone(), Err(fault.why(trouble.why.clone())))
    });
    let told = mount_levels::set(servers, map, &mounts, args.level.as_deref()).await;
    let told = told.into_iter().map(|level| (format!("{} on {}", level.mount, level.host), level.answer));
    Ok(silent.chain(told).collect())
}

/// Levels of the orchestrator of burst buffers and its agents: of one host, or of all.
fn levels_of_buffers(args: &LevelArgs) -> Result<Levels> {
    let socket = args.orchestrator.path();
    let host = if args.target == ALL { "" } else { &args.target };
    let level = |process: Process| {
        let name = format!("{} on {}", process.word(), process.host);
        (name, bb::logs::level(&socket, &process, args.level.clone()))
    };
    Ok(of_host(bb::logs::processes(&socket)?, host)?.into_iter().map(level).collect())
}

/// Lines of one host; of all where `host` is empty.
fn of_host(mut processes: Vec<Process>, host: &str) -> Result<Vec<Process>> {
    processes.retain(|process| host.is_empty() || process.host == host);
    if processes.is_empty() {
        return Err(Fault::new(Code::NoSuchNode)
            .subject(host.to_owned())
            .data("nothing was changed")
            .next("brindle bb node list names the nodes with agents"));
    }
    Ok(processes)
}

fn no_mounts(host: &str) -> Fault {
    Fault::new(Code::NotFound)
        .what("no mount has a session from")
        .subject(format!("host {host}"))
        .next("brindle log show --mounts shows those of all hosts")
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
    if let Some(host) = &args.bb {
        return show_buffers(args, &query, host);
    }
    let place = args.system.place()?;
    runtime()?.block_on(async {
        let servers = servers();
        let mut read = logs::Read::default();
        let mut silent = Silent::new();
        loop {
            let (map, _) = servers.map(&place).await?;
            let view = look(args, &servers, &map, &query, &mut read).await?;
            if let Some(done) = tell(args, view, &mut silent)? {
                return Ok(done);
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// Shows lines of the logs of the orchestrator of burst buffers and its agents.
fn show_buffers(args: &ShowArgs, query: &logs::Query, host: &str) -> Result<Done> {
    let socket = args.orchestrator.path();
    let mut read = bb::logs::Read::default();
    let mut silent = Silent::new();
    loop {
        let processes = of_host(bb::logs::processes(&socket)?, host)?;
        let view = bb::logs::read(&socket, &processes, query, &mut read);
        if let Some(done) = tell(args, view, &mut silent)? {
            return Ok(done);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Hosts and processes that did not answer at the last look.
type Silent = BTreeSet<(String, String)>;

/// Shows what a look has found; the end of the command, unless lines are followed.
fn tell(args: &ShowArgs, mut view: LogView, silent: &mut Silent) -> Result<Option<Done>> {
    if !args.follow && args.output.json() {
        print_json(&view)?;
        return Ok(Some(done(&view)));
    }
    let name = |t: &TroubleView| (t.host.clone(), t.target.clone());
    let now: Silent = view.troubles.iter().map(name).collect();
    view.troubles.retain(|trouble| !silent.contains(&name(trouble)));
    print_lines(args, &view)?;
    *silent = now;
    Ok((!args.follow).then(|| done(&view)))
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
            return Err(no_mounts(&args.client));
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
