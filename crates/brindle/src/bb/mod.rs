//! `brindle bb`: burst buffers, their bricks and their orchestrator ([`brindle_host::bb`]).

mod agent;
mod node;
mod serve;
mod simulate;
mod timeline;

use std::path::PathBuf;
use std::time::Duration;

use brindle_bb::{Buffer, Pool, Staging, StagingHost};
use brindle_host::bb::persistent::main_group;
use brindle_host::bb::protocol::{self, Create, Reply, Request, SOCKET_VARIABLE, unexpected};
use brindle_host::bb::view::{BrickPoolView, BrickPoolsView, BufferView, BuffersView, PartView};
use brindle_host::bb::{POOL_DEFAULT, copy};
use brindle_types::units::{format_bytes, parse_bytes};
use brindle_types::{Code, Fault, Result};

use crate::cli;
use crate::exit::Done;
use crate::output::{Output, print_json, table};

/// Longest name that is made for a brick.
const BRICK_NAME_MAX: usize = 32;

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Run the orchestrator of burst buffers
    Serve(serve::Args),
    /// Run the agent of a compute node
    Agent(agent::Args),
    /// Compute nodes on other hosts
    #[command(subcommand)]
    Node(node::Command),
    /// Bricks: the directories that buffers lie in
    #[command(subcommand)]
    Brick(BrickCommand),
    /// Show the pools of bricks
    Pool(ListArgs),
    /// List buffers, and say of each that is not normal why
    List(ListArgs),
    /// Show one buffer
    Show(ShowArgs),
    /// Copy the files of a kept buffer out
    Stage(StageArgs),
    /// Make a persistent buffer
    Create(CreateArgs),
    /// Give a buffer another size, while it is used
    Resize(ResizeArgs),
    /// Make a buffer larger; jobs grow their own: brindle bb grow $DW_JOB_STRIPED 20GiB
    Grow(ResizeArgs),
    /// Destroy a buffer with everything in it
    Destroy(DestroyArgs),
    /// Replay a trace of jobs against pools: waiting, fragmentation, use
    Simulate(simulate::Args),
    /// Print burst_buffer.lua, for Slurm's plug-in burst_buffer/lua
    Lua,
    /// Copy files as a user; its work stands on standard input
    #[command(hide = true)]
    Copy,
}

/// Verbs of bricks.
#[derive(clap::Subcommand)]
pub enum BrickCommand {
    /// Add a directory to a pool
    Add(BrickAddArgs),
    /// List bricks, with the states of their hosts
    List(ListArgs),
    /// Give no new buffers a part of a brick, before it is removed; buffers that have one keep it
    Drain(BrickDrainArgs),
    /// Remove a brick that no buffer has a part of
    Remove(BrickRemoveArgs),
}

/// Where the orchestrator is.
#[derive(clap::Args, Clone, Debug)]
pub struct SocketArg {
    /// Socket of the orchestrator; /run/brindle/bb.sock unless given
    #[arg(long, value_name = "SOCKET", env = SOCKET_VARIABLE, hide_env_values = true)]
    socket: Option<PathBuf>,
}

impl SocketArg {
    /// Asks it; waits for `patience` for one that does not run.
    pub fn ask(&self, request: &Request, patience: Duration) -> Result<Reply> {
        protocol::ask(&protocol::socket(self.socket.as_deref()), request, patience)
    }

    /// The socket.
    pub fn path(&self) -> PathBuf {
        protocol::socket(self.socket.as_deref())
    }
}

/// Arguments of the commands that list.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle bb show`.
#[derive(clap::Args)]
pub struct ShowArgs {
    /// The job, or JOB.SERIAL
    #[arg(value_name = "JOB")]
    job: String,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle bb stage`.
#[derive(clap::Args)]
pub struct StageArgs {
    /// Try again to copy out what could not be copied
    #[arg(long, required = true)]
    retry: bool,
    /// The job, or JOB.SERIAL
    #[arg(value_name = "JOB")]
    job: String,
    #[command(flatten)]
    socket: SocketArg,
}

/// Arguments of `brindle bb create`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: brindle bb create --capacity 100GiB --user ann --group climate reference-data\n\
                        Users make one with a job: #BB create_persistent name=NAME capacity=SIZE access_mode=striped type=scratch"
)]
pub struct CreateArgs {
    /// Name of the buffer
    #[arg(value_name = "NAME")]
    name: String,
    /// Size
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    capacity: u64,
    /// Owner: a name or a number
    #[arg(long, value_name = "USER")]
    user: String,
    /// Group whose members may use it, too: a name or a number
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Pool of bricks
    #[arg(long, value_name = "POOL", default_value = POOL_DEFAULT)]
    pool: String,
    #[command(flatten)]
    socket: SocketArg,
}

/// Arguments of `brindle bb resize` and `brindle bb grow`.
#[derive(clap::Args)]
#[command(after_help = "Example, in a job: brindle bb grow $DW_JOB_STRIPED 20GiB\n\
                        Users resize their own buffers, operators all of them. A buffer that has SIZE already stays as it is.")]
pub struct ResizeArgs {
    /// The job, or JOB.SERIAL, or the name of a persistent buffer, or the path at which a job finds it
    #[arg(value_name = "NAME")]
    name: String,
    /// New size, with all that is in the buffer
    #[arg(value_name = "SIZE", value_parser = parse_bytes)]
    size: u64,
    #[command(flatten)]
    socket: SocketArg,
}

/// Arguments of `brindle bb destroy`.
#[derive(clap::Args)]
pub struct DestroyArgs {
    /// The job, or JOB.SERIAL, or the name of a persistent buffer
    #[arg(value_name = "JOB")]
    job: String,
    /// Destroy it, also files that were to be staged out
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    socket: SocketArg,
}

/// Arguments of `brindle bb brick add`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle bb brick add --node oss1 --dir /bricks/nvme0 --capacity 1400GiB\n  brindle bb brick add --name nvme0 --capacity 1400GiB /bricks/nvme0\n\
                        The host of a brick has joined the cluster as server (brindle cluster token --role server,client) and runs brindle bb agent."
)]
pub struct BrickAddArgs {
    /// Directory on that host
    #[arg(value_name = "DIR", required_unless_present = "at", conflicts_with = "at")]
    dir: Option<PathBuf>,
    /// Directory on that host
    #[arg(long = "dir", id = "at", value_name = "DIR")]
    at: Option<PathBuf>,
    /// Host of the brick, which runs an agent; the orchestrator's own unless given
    #[arg(long, value_name = "HOST")]
    node: Option<String>,
    /// Name of the brick; made of host and directory unless given
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Bytes that buffers may have of it
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    capacity: u64,
    /// Pool; one that does not exist is made
    #[arg(long, value_name = "POOL", default_value = POOL_DEFAULT)]
    pool: String,
    #[command(flatten)]
    socket: SocketArg,
}

/// Arguments of `brindle bb brick drain`.
#[derive(clap::Args)]
pub struct BrickDrainArgs {
    /// The brick
    #[arg(value_name = "NAME")]
    name: String,
    /// Let new buffers in again
    #[arg(long)]
    stop: bool,
    /// Pool
    #[arg(long, value_name = "POOL", default_value = POOL_DEFAULT)]
    pool: String,
    #[command(flatten)]
    socket: SocketArg,
}

/// Arguments of `brindle bb brick remove`.
#[derive(clap::Args)]
#[command(
    after_help = "With --lost a slice of a buffer that is being destroyed is given up without the word of its host. \
                        Buffers that live are never given up: destroy them first."
)]
pub struct BrickRemoveArgs {
    /// The brick
    #[arg(value_name = "NAME")]
    name: String,
    /// The disk is gone for good: do not wait for its host
    #[arg(long)]
    lost: bool,
    /// Pool
    #[arg(long, value_name = "POOL", default_value = POOL_DEFAULT)]
    pool: String,
    #[command(flatten)]
    socket: SocketArg,
}

/// Runs the command.
pub fn run(command: Command) -> Result<Done> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Node(command) => node::run(command),
        Command::Brick(BrickCommand::Add(args)) => add_brick(args),
        Command::Brick(BrickCommand::Remove(args)) => {
            let BrickRemoveArgs { name, lost, pool, socket } = args;
            say(&socket, &Request::RemoveBrick { pool, name, lost })
        }
        Command::Brick(BrickCommand::Drain(args)) => {
            let BrickDrainArgs { name, stop, pool, socket } = args;
            say(&socket, &Request::DrainBrick { pool, name, is_draining: !stop })
        }
        Command::Brick(BrickCommand::List(args)) => bricks(&args, true),
        Command::Pool(args) => bricks(&args, false),
        Command::List(args) => list(&args.socket, args.output, |_| true),
        Command::Show(args) => show(&args),
        Command::Stage(args) => say(&args.socket, &Request::Retry(args.job)),
        Command::Create(args) => create(args),
        Command::Resize(args) => resize(args, false),
        Command::Grow(args) => resize(args, true),
        Command::Destroy(args) => destroy(args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Lua => {
            print!("{}", brindle_host::slurm::LUA);
            Ok(Done::Ok)
        }
        Command::Copy => copy::run().map(|()| Done::Ok),
    }
}

fn add_brick(args: BrickAddArgs) -> Result<Done> {
    let BrickAddArgs { dir, at, node, name, capacity: bytes, pool, socket } = args;
    let given = dir.or(at).ok_or_else(|| Fault::new(Code::BadArgument).why("no directory is given"))?;
    let dir = match &node {
        None => cli::text(&given)?,
        // A relative path on another node has no meaning here.
        Some(node) if given.is_relative() => {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot add the brick")
                .subject(given.display().to_string())
                .why("it is no absolute path")
                .data("nothing was changed")
                .next(format!("give the path as it is on {node}: --dir /bricks/nvme0")));
        }
        Some(_) => cli::text(&given)?,
    };
    let name = name.unwrap_or_else(|| brick_name(node.as_deref(), &dir));
    say(&socket, &Request::AddBrick { pool, name, dir, bytes, node })
}

/// A name for a brick without one: its host and the last part of its directory.
fn brick_name(node: Option<&str>, dir: &str) -> String {
    let last = dir.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let words = node.into_iter().chain([last]).collect::<Vec<_>>().join("-");
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    words.chars().map(plain).take(BRICK_NAME_MAX).collect()
}

/// Asks for something, and prints what the orchestrator says.
fn say(socket: &SocketArg, request: &Request) -> Result<Done> {
    match socket.ask(request, Duration::ZERO)? {
        Reply::Done(text) => println!("{text}"),
        other => return Err(unexpected(&other)),
    }
    Ok(Done::Ok)
}

fn create(args: CreateArgs) -> Result<Done> {
    let CreateArgs { name, capacity: bytes, user, group, pool, socket } = args;
    let uid = user_of(&user)?;
    let create = Create { name, uid, gid: main_group(uid), pool, bytes, group };
    say(&socket, &Request::CreatePersistent(create))
}

fn resize(args: ResizeArgs, only_grow: bool) -> Result<Done> {
    let ResizeArgs { name, size: bytes, socket } = args;
    say(&socket, &Request::Resize { name, bytes, only_grow })
}

/// A user by name or number.
fn user_of(text: &str) -> Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let found = nix::unistd::User::from_name(text).ok().flatten();
    found.map(|user| user.uid.as_raw()).ok_or_else(|| {
        Fault::new(Code::BadArgument)
            .what("this host knows no user")
            .subject(text.to_owned())
            .data("nothing was made")
    })
}

fn destroy(args: DestroyArgs) -> Result<Done> {
    if args.yes {
        return say(&args.socket, &Request::Drop(args.job));
    }
    let found = named(buffers(&args.socket)?, &args.job);
    if found.iter().any(|buffer| buffer.persistent) {
        return Err(Fault::new(Code::BadArgument)
            .what("will not destroy the persistent buffer")
            .subject(args.job.clone())
            .why("everything in it is lost then")
            .data("nothing was changed")
            .next("add --yes"));
    }
    let pending = found.iter().any(Buffer::is_pending);
    let why =
        if pending { "it holds files that were to be staged out" } else { "everything in it is lost then" };
    Err(Fault::new(Code::BadArgument)
        .what("will not destroy the buffer of job")
        .subject(args.job.clone())
        .why(why)
        .data("nothing was changed")
        .next(format!("add --yes; or copy its files out: brindle bb stage --retry {}", args.job)))
}

fn buffers(socket: &SocketArg) -> Result<Vec<Buffer>> {
    match socket.ask(&Request::List, Duration::ZERO)? {
        Reply::Buffers(buffers) => Ok(buffers),
        other => Err(unexpected(&other)),
    }
}

fn named(buffers: Vec<Buffer>, name: &str) -> Vec<Buffer> {
    let is_it = |b: &Buffer| b.token == name || format!("{}.{}", b.token, b.serial) == name;
    buffers.into_iter().filter(is_it).collect()
}

fn show(args: &ShowArgs) -> Result<Done> {
    if named(buffers(&args.socket)?, &args.job).is_empty() {
        return Err(Fault::new(Code::NoSuchBuffer).what("no buffer of job").subject(args.job.clone()));
    }
    let name = args.job.clone();
    list(&args.socket, args.output, move |b| b.token == name || format!("{}.{}", b.token, b.serial) == name)?;
    if !args.output.json() {
        for buffer in named(buffers(&args.socket)?, &args.job) {
            if !buffer.slices.is_empty() {
                println!("\n{}", parts_text(&buffer));
            }
            if let Some(staging) = &buffer.staging {
                println!("\n{}", staging_text(staging));
            }
            println!("\n{}", timeline::text(&buffer));
        }
    }
    Ok(Done::Ok)
}

/// The progress of a copy, and its hosts.
fn staging_text(staging: &Staging) -> String {
    let row = |host: &StagingHost| {
        let rate = staging.rate(host.bytes).map(|rate| format!("{}/s", format_bytes(rate)));
        let (name, reason) = (host.name.clone(), host.reason.clone());
        vec![name, host.files.to_string(), format_bytes(host.bytes), rate.unwrap_or_default(), reason]
    };
    let rows = staging.hosts.iter().map(row).collect();
    format!("{}\n{}", staging.line(), table(&["HOST", "FILES", "BYTES", "RATE", "NOT USED BECAUSE"], rows))
}

/// Where the parts of a buffer lie.
fn parts_text(buffer: &Buffer) -> String {
    let row = |part: PartView| {
        let node = if part.node.is_empty() { "(local)".to_owned() } else { part.node };
        vec![part.target, node, part.brick, format_bytes(part.bytes)]
    };
    let rows = brindle_host::bb::view::parts(buffer).into_iter().map(row).collect();
    table(&["PART", "NODE", "BRICK", "SIZE"], rows)
}

fn list(socket: &SocketArg, output: Output, wanted: impl Fn(&Buffer) -> bool) -> Result<Done> {
    let shown: Vec<Buffer> = buffers(socket)?.into_iter().filter(wanted).collect();
    if output.json() {
        print_json(&BuffersView { buffers: shown.iter().map(BufferView::from).collect() })?;
        return Ok(Done::Ok);
    }
    if shown.is_empty() {
        println!("no buffers");
        return Ok(Done::Ok);
    }
    let row = |b: &Buffer| {
        vec![
            b.token.clone(),
            b.serial.to_string(),
            b.uid.to_string(),
            b.pool.clone(),
            format_bytes(b.bytes),
            b.phase.word().to_owned(),
            b.nodes.join(","),
            match b.users.as_slice() {
                [] if b.persistent => "persistent".to_owned(),
                users => users.join(","),
            },
        ]
    };
    println!(
        "{}",
        table(
            &["JOB", "SERIAL", "UID", "POOL", "SIZE", "STATE", "NODES", "USED BY"],
            shown.iter().map(row).collect()
        )
    );
    for buffer in shown.iter().filter(|b| !b.reason.is_empty()) {
        println!(
            "\n{} {}: {}",
            if buffer.persistent { "persistent buffer" } else { "job" },
            buffer.token,
            buffer.reason
        );
        if buffer.is_pending() {
            println!(
                "  its files are kept; copy them out: brindle bb stage --retry {}.{}",
                buffer.token, buffer.serial
            );
        }
    }
    Ok(Done::Ok)
}

fn bricks(args: &ListArgs, each: bool) -> Result<Done> {
    let pools: Vec<Pool> = match args.socket.ask(&Request::Bricks, Duration::ZERO)? {
        Reply::Bricks(pools) => pools,
        other => return Err(unexpected(&other)),
    };
    let nodes = node::nodes(&args.socket)?;
    let of = |pool: &Pool| BrickPoolView::from(pool).with_states(&nodes);
    let view = BrickPoolsView { pools: pools.iter().map(of).collect() };
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let rows = if each {
        let row = |pool: &BrickPoolView| {
            let name = pool.name.clone();
            let row = move |b: &brindle_host::bb::view::BrickView| {
                vec![
                    b.name.clone(),
                    name.clone(),
                    format_bytes(b.bytes),
                    format_bytes(b.free_bytes),
                    if b.node.is_empty() { "(local)".to_owned() } else { b.node.clone() },
                    if b.is_draining { format!("{}, draining", b.state) } else { b.state.clone() },
                    b.dir.clone(),
                    b.reason.clone(),
                ]
            };
            pool.bricks.iter().map(row).collect::<Vec<_>>()
        };
        (
            vec!["BRICK", "POOL", "SIZE", "FREE", "NODE", "STATE", "DIRECTORY", "REASON"],
            view.pools.iter().flat_map(row).collect(),
        )
    } else {
        let row = |pool: &BrickPoolView| {
            let (size, free) = (format_bytes(pool.bytes), format_bytes(pool.free_bytes));
            vec![
                pool.name.clone(),
                size,
                free,
                format_bytes(pool.granule_bytes),
                pool.bricks.len().to_string(),
            ]
        };
        (vec!["POOL", "SIZE", "FREE", "GRANULE", "BRICKS"], view.pools.iter().map(row).collect())
    };
    println!("{}", table(&rows.0, rows.1));
    Ok(Done::Ok)
}
