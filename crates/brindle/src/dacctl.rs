//! `dacctl`: the command that Slurm's plug-in `burst_buffer/datawarp` calls, with DataWarp's arguments, JSON and exit codes.
//!
//! Errors are printed on standard output, because Slurm shows that to the user, and the exit code is 1. The orchestrator does the work
//! ([`crate::bb`]); while it starts anew, `dacctl` waits for it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use brindle_bb::answer::{self, Configurations};
use brindle_bb::directive::{self, JobRequest};
use brindle_host::bb::persistent::main_group;
use brindle_host::bb::protocol::{Create, Reply, Request, Setup, unexpected};
use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, Result};

use crate::bb::SocketArg;
use crate::exit::Done;

/// Longest wait of a phase of a job for an orchestrator that does not run.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait of calls that Slurm itself waits for.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// Largest job script.
const SCRIPT_MAX_BYTES: u64 = 4 << 20;
/// Names of this program: its own, and those that Slurm gives to `GetSysState` and `GetSysStatus`.
const NAMES: [&str; 3] = ["dacctl", "dw_wlm_cli", "dwstat"];
/// The functions that are called by name. Any other words are those of `scontrol show bbstat`.
const FUNCTIONS: [&str; 15] = [
    "pools",
    "show_instances",
    "show_sessions",
    "show_configurations",
    "job_process",
    "setup",
    "data_in",
    "real_size",
    "paths",
    "pre_run",
    "post_run",
    "data_out",
    "teardown",
    "create_persistent",
    "status",
];

/// Calls of the plug-in.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    socket: SocketArg,
    #[command(subcommand)]
    function: Function,
}

/// The functions.
#[derive(clap::Subcommand)]
#[command(rename_all = "snake_case")]
pub enum Function {
    /// Print the pools
    Pools,
    /// Print the buffers
    ShowInstances,
    /// Print the owners of the buffers
    ShowSessions,
    /// Print nothing but an empty list
    ShowConfigurations,
    /// Check the directives of a job script
    JobProcess(JobArg),
    /// Make the buffer of a job
    Setup(SetupArgs),
    /// Copy files into it
    DataIn(TokenArgs),
    /// Print its size
    RealSize(TokenArgs),
    /// Write the variables of the job
    Paths(PathsArgs),
    /// Mount it on nodes
    PreRun(PreRunArgs),
    /// Unmount it
    PostRun(TokenArgs),
    /// Copy files out of it
    DataOut(TokenArgs),
    /// Destroy it
    Teardown(TeardownArgs),
    /// Make a persistent buffer
    CreatePersistent(PersistentArgs),
    /// Print the buffers for people
    Status(StatusArgs),
}

/// A job script.
#[derive(clap::Args)]
pub struct JobArg {
    /// The script
    #[arg(short, long, value_name = "SCRIPT")]
    job: PathBuf,
}

/// A job.
#[derive(clap::Args)]
pub struct TokenArgs {
    /// The job
    #[arg(short, long)]
    token: String,
    /// Script
    #[arg(short, long, value_name = "SCRIPT")]
    job: Option<PathBuf>,
}

/// Arguments of `setup`.
#[derive(clap::Args)]
pub struct SetupArgs {
    #[command(flatten)]
    job: TokenArgs,
    /// Whoever calls
    #[arg(short, long)]
    caller: Option<String>,
    /// Owner
    #[arg(short, long)]
    user: u32,
    /// Group of the owner
    #[arg(short, long, alias = "group")]
    groupid: Option<u32>,
    /// POOL:SIZE
    #[arg(short = 'C', long)]
    capacity: String,
    /// File with names of nodes
    #[arg(long, value_name = "FILE")]
    nodehostnamefile: Option<PathBuf>,
}

/// Arguments of `paths`.
#[derive(clap::Args)]
pub struct PathsArgs {
    #[command(flatten)]
    job: TokenArgs,
    /// File to write
    #[arg(long, value_name = "FILE")]
    pathfile: PathBuf,
}

/// Arguments of `pre_run`.
#[derive(clap::Args)]
pub struct PreRunArgs {
    #[command(flatten)]
    job: TokenArgs,
    /// File with names of nodes; without it Slurm is asked
    #[arg(long, value_name = "FILE")]
    nodehostnamefile: Option<PathBuf>,
    /// File with the name of the node of the batch script
    #[arg(long, value_name = "FILE")]
    jobexecutionnodefile: Option<PathBuf>,
}

/// Arguments of `teardown`.
#[derive(clap::Args)]
pub struct TeardownArgs {
    #[command(flatten)]
    job: TokenArgs,
    /// Do not wait for files to be copied out
    #[arg(long)]
    hurry: bool,
}

/// Arguments of `create_persistent`.
#[derive(clap::Args)]
pub struct PersistentArgs {
    /// Name of the buffer
    #[arg(short, long)]
    token: String,
    /// Whoever calls
    #[arg(short, long)]
    caller: Option<String>,
    /// POOL:SIZE
    #[arg(short = 'C', long)]
    capacity: String,
    /// Owner
    #[arg(short, long)]
    user: u32,
    /// Group of the owner
    #[arg(short, long, alias = "group")]
    groupid: Option<u32>,
    /// Access mode
    #[arg(short, long)]
    access: Option<String>,
    /// Type of the buffer
    #[arg(short = 'T', long = "type")]
    kind: Option<String>,
}

/// Words of `scontrol show bbstat`.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// A job, after the word 'job'
    words: Vec<String>,
}

/// Whether this program was called as `dacctl`. Slurm calls it by other names, whatever the path of the program is.
pub fn is_asked(name: &OsStr, first: Option<&OsString>) -> bool {
    NAMES.iter().any(|known| name == *known) || first.is_some_and(|word| word == "--function")
}

/// The command line of `brindle` that the words of `dacctl` mean: `--function` may stand before a function, and a word that is none asks
/// for the status.
pub fn command_line(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.first().is_some_and(|word| word == "--function") {
        words.remove(0);
    }
    let known = |word: &OsString| {
        word.to_str().is_some_and(|w| FUNCTIONS.contains(&w) || w.starts_with('-') || w == "help")
    };
    let status = words.first().is_none_or(|word| !known(word)).then(|| OsString::from("status"));
    ["brindle", "dacctl"].into_iter().map(OsString::from).chain(status).chain(words).collect()
}

/// Runs a function. Slurm reads standard output, so faults go there.
pub fn run(args: &Args) -> Result<Done> {
    match call(args) {
        Ok(text) => {
            if !text.is_empty() {
                println!("{text}");
            }
            Ok(Done::Ok)
        }
        Err(fault) => {
            match &args.function {
                Function::JobProcess(_) => println!("{}", shown(&fault, true)),
                // Slurm would show the end of the line, too.
                Function::DataOut(job) => {
                    print!(
                        "{}; the buffer is kept: brindle bb stage --retry {}",
                        shown(&fault, false),
                        job.token
                    );
                }
                _ => print!("{}", shown(&fault, false)),
            }
            Ok(Done::Code(1))
        }
    }
}

/// A fault as Slurm shows it: `sbatch` all lines, anything else one.
fn shown(fault: &Fault, lines: bool) -> String {
    let next = if fault.next.is_empty() { fault.code.advice() } else { &fault.next };
    let mut parts = vec![format!("{} {} {}", fault.code, fault.what, fault.subject).trim_end().to_owned()];
    if lines {
        parts.extend(fault.why.iter().map(|why| format!("  why:  {why}")));
        parts.extend((!next.is_empty()).then(|| format!("  next: {next}")));
        return parts.join("\n");
    }
    let mut text = parts.remove(0);
    fault.why.iter().for_each(|why| text += &format!(": {}", why.replace('\n', " ")));
    if !next.is_empty() {
        text += &format!("; {next}");
    }
    text
}

fn call(args: &Args) -> Result<String> {
    let ask = |request: Request, patience| args.socket.ask(&request, patience);
    let step = |request: Request| match ask(request, PATIENCE)? {
        Reply::Done(text) => Ok(text),
        other => Err(unexpected(&other)),
    };
    match &args.function {
        Function::Pools => match ask(Request::Pools, SHORT_PATIENCE)? {
            Reply::Pools(pools) => Ok(answer::json(&pools)),
            other => Err(unexpected(&other)),
        },
        Function::ShowInstances => match ask(Request::Instances, SHORT_PATIENCE)? {
            Reply::Instances(instances) => Ok(answer::json(&instances)),
            other => Err(unexpected(&other)),
        },
        Function::ShowSessions => match ask(Request::Sessions, SHORT_PATIENCE)? {
            Reply::Sessions(sessions) => Ok(answer::json(&sessions)),
            other => Err(unexpected(&other)),
        },
        Function::ShowConfigurations => Ok(answer::json(&Configurations::default())),
        Function::JobProcess(job) => {
            let request = read_script(&job.job)?;
            ask(Request::Check(request), SHORT_PATIENCE)?;
            Ok(String::new())
        }
        Function::Setup(setup) => step(Request::Setup(setup_of(setup)?)),
        Function::DataIn(job) => step(Request::DataIn(job.token.clone())),
        Function::RealSize(job) => match ask(Request::RealSize(job.token.clone()), PATIENCE)? {
            Reply::RealSize(size) => Ok(answer::json(&size)),
            other => Err(unexpected(&other)),
        },
        Function::Paths(paths) => match ask(Request::Paths(paths.job.token.clone()), SHORT_PATIENCE)? {
            Reply::Variables(variables) => write_paths(&paths.pathfile, &variables),
            Reply::Path(striped) => write_paths(&paths.pathfile, &[("DW_JOB_STRIPED".to_owned(), striped)]),
            other => Err(unexpected(&other)),
        },
        Function::PreRun(run) => {
            let nodes = match &run.nodehostnamefile {
                Some(file) => read_nodes(file)?,
                None => nodes_of(&run.job.token)?,
            };
            step(Request::PreRun(run.job.token.clone(), nodes))
        }
        Function::PostRun(job) => step(Request::PostRun(job.token.clone())),
        Function::DataOut(job) => step(Request::DataOut(job.token.clone())),
        Function::Teardown(t) => step(Request::Teardown { token: t.job.token.clone(), hurry: t.hurry }),
        Function::CreatePersistent(args) => step(Request::CreatePersistent(create_of(args)?)),
        Function::Status(status) => status_text(args, &status.words),
    }
}

fn setup_of(args: &SetupArgs) -> Result<Setup> {
    let (pool, bytes) = pool_and_size(&args.capacity)?;
    let request = args.job.job.as_deref().map(read_script).transpose()?.unwrap_or_default();
    let token = args.job.token.clone();
    // Without a group it is that of the same number, as everywhere that numbers users by themselves.
    let gid = args.groupid.unwrap_or(args.user);
    let makes_persistent = args.is_called_by_lua();
    // Slurm does not say it here. A job that gets more nodes than it asked for at least has its buffer enlarged when it starts.
    let nodes = request.swap.as_ref().and_then(|_| node_count(&token));
    Ok(Setup { token, uid: args.user, gid, pool, bytes, request, makes_persistent, nodes })
}

impl SetupArgs {
    /// Whether `burst_buffer.lua` calls: Slurm then leaves persistent buffers to it.
    fn is_called_by_lua(&self) -> bool {
        self.caller.as_deref() == Some("LUA")
    }
}

fn create_of(args: &PersistentArgs) -> Result<Create> {
    let refused = |what: &'static str, value: &str, next: &'static str| {
        Err(Fault::new(Code::NotOffered)
            .what(format!("cannot make the persistent buffer {}: {what}", args.token))
            .subject(value.to_owned())
            .data("nothing was made")
            .next(next))
    };
    match (args.access.as_deref(), args.kind.as_deref()) {
        (Some(other), _) if other != "striped" => {
            return refused("access mode", other, "all nodes share it: write access_mode=striped");
        }
        (_, Some(other)) if other != "scratch" => {
            return refused("type", other, "write type=scratch");
        }
        _ => {}
    }
    let (pool, bytes) = pool_and_size(&args.capacity)?;
    // Slurm gives no group here.
    let gid = args.groupid.unwrap_or_else(|| main_group(args.user));
    Ok(Create { name: args.token.clone(), uid: args.user, gid, pool, bytes, group: None })
}

fn pool_and_size(text: &str) -> Result<(String, u64)> {
    let wrong = || {
        Fault::new(Code::BadArgument)
            .what("cannot use as POOL:SIZE")
            .subject(text.to_owned())
            .next("such as default:4GiB")
    };
    let (pool, size) = text.split_once(':').ok_or_else(wrong)?;
    let bytes = parse_bytes(size).map_err(|why| wrong().why(why))?;
    Ok((pool.to_owned(), bytes))
}

fn read_script(path: &Path) -> Result<JobRequest> {
    directive::parse(&read(path)?)
}

fn read_nodes(path: &Path) -> Result<Vec<String>> {
    Ok(read(path)?.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// The nodes of a job, as Slurm has them: its plug-in `burst_buffer/lua` does not say them.
fn nodes_of(job: &str) -> Result<Vec<String>> {
    let ask = |program: &str, args: &[&str]| {
        let mut command = std::process::Command::new(program);
        brindle_host::system::run_for_output(command.args(args), "slurm-client", &[0])
    };
    let list = ask("squeue", &["--noheader", "--format=%N", &format!("--jobs={job}")])?;
    let names = ask("scontrol", &["show", "hostnames", list.trim()])?;
    Ok(names.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Nodes that a waiting job needs at least, where Slurm says so.
fn node_count(job: &str) -> Option<u64> {
    let mut squeue = std::process::Command::new("squeue");
    squeue.args(["--noheader", "--format=%D", &format!("--jobs={job}")]);
    let said = brindle_host::system::run_for_output(&mut squeue, "slurm-client", &[0]).ok()?;
    said.lines().next()?.trim().parse().ok()
}

/// A file of Slurm. Bytes that are no text stand in no directive that could be used.
fn read(path: &Path) -> Result<String> {
    use std::io::Read;
    let cannot =
        |e: &std::io::Error| Fault::io(Code::BadArgument, "cannot read", path.display().to_string(), e);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| cannot(&e))?;
    file.take(SCRIPT_MAX_BYTES).read_to_end(&mut bytes).map_err(|e| cannot(&e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write_paths(path: &Path, variables: &[(String, String)]) -> Result<String> {
    std::fs::write(path, answer::variable_lines(variables))
        .map_err(|e| Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), &e))?;
    Ok(String::new())
}

/// A line a buffer; with `job N` of that job only.
fn status_text(args: &Args, words: &[String]) -> Result<String> {
    let wanted = words.last().filter(|word| *word != "job");
    match args.socket.ask(&Request::List, Duration::from_secs(1))? {
        Reply::Buffers(buffers) => {
            let shown = buffers.iter().filter(|b| wanted.is_none_or(|token| *token == b.token));
            let line = |b: &brindle_bb::Buffer| {
                let reason = if b.reason.is_empty() { String::new() } else { format!(": {}", b.reason) };
                let kind = if b.persistent { "persistent buffer" } else { "job" };
                let staging = b.staging.as_ref().filter(|staging| !staging.ended);
                let state = staging.map_or_else(|| b.phase.word().to_owned(), |staging| staging.line());
                format!("{kind} {}: {state}{reason}", b.token)
            };
            let lines: Vec<String> = shown.map(line).collect();
            Ok(if lines.is_empty() { "no buffers".to_owned() } else { lines.join("\n") })
        }
        other => Err(unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> String {
        let line = command_line(line.split_whitespace().map(OsString::from));
        line.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_words_of_slurm_are_understood() {
        assert_eq!(words("--function pools"), "brindle dacctl pools");
        assert_eq!(words("pools"), "brindle dacctl pools");
        assert_eq!(words("job 12"), "brindle dacctl status job 12");
        assert_eq!(words(""), "brindle dacctl status");
        let calls = [
            "setup --token 1 --caller SLURM --user 1001 --groupid 1001 --capacity default:4GiB --job /s/script",
            "pre_run --token 1 --job /s/script --nodehostnamefile /s/client_nids",
            "teardown --token 1 --job /s/script --hurry",
            "create_persistent -c CLI -t mybuf -u 1001 -C default:5368709120 -a striped -T scratch",
        ];
        for call in calls {
            let line = command_line(format!("--function {call}").split_whitespace().map(OsString::from));
            crate::cli::declaration().try_get_matches_from(line).unwrap();
        }
    }

    #[test]
    fn faults_are_told_in_one_line_or_several() {
        let fault = Fault::new(Code::PoolFull)
            .what("cannot make a buffer: pool")
            .subject("default")
            .why("3 GiB are free")
            .next("wait");
        assert_eq!(shown(&fault, false), "E7003 cannot make a buffer: pool default: 3 GiB are free; wait");
        assert_eq!(
            shown(&fault, true),
            "E7003 cannot make a buffer: pool default\n  why:  3 GiB are free\n  next: wait"
        );
    }
}
