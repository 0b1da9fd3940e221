//! `brindle dev`: a whole cluster on this machine, for trying, testing and showing ([`brindle_host::cluster`]).

pub mod host;
mod installed;
mod s3;
mod slurm;
mod slurm_hosts;
pub mod status;

use std::path::{Path, PathBuf};
use std::time::Instant;

use brindle_auth::Mode;
use brindle_host::Host;
use brindle_host::cluster::image::Kind;
use brindle_host::cluster::network::HOSTS_MAX;
use brindle_host::cluster::s3::S3;
use brindle_host::cluster::{
    self, ArchiveAt, Cluster, Down, Event, Hosts, Killed, OSTS_MAX, On, Started, Up,
};
use brindle_host::identity;
use brindle_net::peer::RAILS_MAX;
use brindle_types::units::parse_bytes;
use brindle_types::{FsName, Result};

use crate::cli;
use crate::exit::{Done, warn};
use crate::format::runtime;
use crate::output::Output;

/// Default directory of a development cluster.
const DIR_DEFAULT: &str = ".brindle-dev";

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Start a cluster, or start it again with its data, and mount it
    Up(UpArgs),
    /// Show its processes
    Status(StatusArgs),
    /// Kill one of its processes (SIGKILL), as a crash would
    Kill(NameArgs),
    /// End one of its servers in order (SIGTERM); programs that need it wait
    Stop(NameArgs),
    /// Start one of its processes again
    Start(NameArgs),
    /// Add an OST while the cluster runs; new files lie on it at once
    AddOst(AddOstArgs),
    /// Remove an OST that was drained, with its process and its directory
    RemoveOst(NameArgs),
    /// The hosts of a cluster that is made of hosts
    #[command(subcommand)]
    Host(host::Command),
    /// A private Slurm whose jobs get burst buffers
    #[command(subcommand)]
    Slurm(slurm::Command),
    /// Unmount, and end every process; the data stays
    Down(DownArgs),
    /// The first process of a bare host
    #[command(hide = true)]
    HostInit(host::InitArgs),
    /// The S3 server of a cluster
    #[command(hide = true)]
    S3Server(s3::Args),
}

/// The option that every verb has.
#[derive(clap::Args, Debug)]
pub struct DirArg {
    /// Directory of the cluster
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT)]
    dir: PathBuf,
}

impl DirArg {
    fn absolute(&self) -> Result<PathBuf> {
        Ok(PathBuf::from(cli::text(&self.dir)?))
    }
}

/// Arguments of `brindle dev up`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  brindle dev up --dir /tmp/b --osts 4 --mount /mnt/a --mount /mnt/b\n  \
                        brindle dev up --dir /tmp/c --hosts 6 --clients 2 --rate 1gbit\n  \
                        brindle dev up --dir /tmp/d --hosts 3 --bare\n  \
                        brindle dev up --dir /tmp/e --hosts 4 --copies 2\n  \
                        brindle dev up --dir /tmp/b --manager\n\
                        The options of the first start are kept; later ones may add OSTs and change the mount points.")]
pub struct UpArgs {
    #[command(flatten)]
    dir: DirArg,
    /// Number of OSTs; 4 at the first start
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=OSTS_MAX as i64))]
    osts: Option<u16>,
    /// Mount point; given twice, there are two clients. DIR/mnt at the first start
    #[arg(long, value_name = "MNT")]
    mount: Vec<PathBuf>,
    /// Do not mount
    #[arg(long, conflicts_with = "mount")]
    no_mount: bool,
    /// Start an agent, too, which serves this directory as archive 1 (or, with 's3', a bucket of an S3 server that is started for it), and a policy
    /// engine with an example, policy.conf in the directory of the cluster (docs/operations/tiering.md)
    #[arg(long, value_name = "DIR|s3", conflicts_with = "hosts")]
    archive: Option<PathBuf>,
    /// Name of the file system; 'dev' at the first start
    #[arg(long, value_name = "NAME", value_parser = crate::format::parse::<FsName>)]
    fsname: Option<FsName>,
    /// Put each OST on a loop image of this size, such as 512MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    ost_size: Option<u64>,
    /// Put the MDT on a loop image of this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    mdt_size: Option<u64>,
    /// File system of the loop images
    #[arg(long, value_enum, default_value_t = ImageFs::Ext4)]
    image_fs: ImageFs,
    /// Make it of so many server hosts, each a network namespace with an address and a link of its own: two for the MGS and the MDT from
    /// four on (else one), two OSTs on each of the others
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=HOSTS_MAX as i64), conflicts_with_all = ["mount", "no_mount"])]
    hosts: Option<u8>,
    /// And so many client hosts, which mount at DIR/mnt/c1, DIR/mnt/c2, ...
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=HOSTS_MAX as i64), requires = "hosts", default_value_t = 1)]
    clients: u8,
    /// Make the hosts empty machines h1, h2, ... without targets and mounts, to try an installation on
    #[arg(long, requires = "hosts", conflicts_with_all = ["clients", "osts", "mount", "no_mount", "fsname", "ost_size", "mdt_size", "image_fs", "security"])]
    bare: bool,
    /// Give the MDT and each OST so many copies on different hosts. The cluster is made on bare hosts, with init, join, target add and mount: the
    /// MGS on h1, targets on the other server hosts, clients behind them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3), requires = "hosts",
          conflicts_with_all = ["bare", "osts", "ost_size", "mdt_size", "image_fs", "security", "manager"])]
    copies: Option<u8>,
    /// Let each link pass so many bits a second each way, such as 1gbit
    #[arg(long, value_name = "RATE", value_parser = host::rate, requires = "hosts")]
    rate: Option<host::Rate>,
    /// Give each host so many links, each to a switch of its own: servers listen on all of these rails, and clients use them; 1 at the first start
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=RAILS_MAX as i64), requires = "hosts", conflicts_with = "copies")]
    rails: Option<u8>,
    /// Start a manager too, and print the address of its console
    #[arg(long, conflicts_with = "bare")]
    manager: bool,
    /// How hosts protect what they say to each other: auth (the default), integrity, privacy or none
    #[arg(long, value_name = "MODE", value_parser = crate::format::parse::<Mode>, requires = "hosts")]
    security: Option<Mode>,
}

/// File system of a loop image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ImageFs {
    /// ext4
    Ext4,
    /// XFS (images of 300 MiB or more)
    Xfs,
}

impl From<ImageFs> for Kind {
    fn from(fs: ImageFs) -> Kind {
        match fs {
            ImageFs::Ext4 => Kind::Ext4,
            ImageFs::Xfs => Kind::Xfs,
        }
    }
}

/// Smallest loop image: a journal and some room.
const IMAGE_MIN_BYTES: u64 = 16 << 20;

fn size(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < IMAGE_MIN_BYTES {
        return Err("at least 16MiB are needed".to_owned());
    }
    Ok(bytes)
}

/// Arguments of `brindle dev status`.
#[derive(clap::Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    dir: DirArg,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle dev kill`, `stop`, `start` and `remove-ost`.
#[derive(clap::Args, Debug)]
pub struct NameArgs {
    #[command(flatten)]
    dir: DirArg,
    /// Name of the process as in `brindle dev status`: mgs, mdt0, ost0, client0, manager
    #[arg(add = crate::completion::live::processes())]
    name: String,
}

/// Arguments of `brindle dev add-ost`.
#[derive(clap::Args, Debug)]
pub struct AddOstArgs {
    #[command(flatten)]
    dir: DirArg,
    /// Put it on a loop image of this size; like the last OST unless told otherwise
    #[arg(long, value_name = "SIZE", value_parser = size)]
    ost_size: Option<u64>,
    /// File system of the loop image
    #[arg(long, value_enum)]
    image_fs: Option<ImageFs>,
}

/// Arguments of `brindle dev down`.
#[derive(clap::Args, Debug)]
pub struct DownArgs {
    #[command(flatten)]
    dir: DirArg,
    /// Remove the directory with all data too
    #[arg(long)]
    purge: bool,
}

/// Runs the command.
pub fn run(command: Command) -> Result<Done> {
    match command {
        Command::Up(args) => up(&args),
        Command::Status(args) => status::run(&args),
        Command::Kill(args) => kill(&args),
        Command::Stop(args) => stop(&args),
        Command::Start(args) => start(&args),
        Command::AddOst(args) => add_ost(&args),
        Command::RemoveOst(args) => remove_ost(&args),
        Command::Host(command) => host::run(&command),
        Command::Slurm(command) => slurm::run(&command),
        Command::Down(args) => down(&args),
        Command::HostInit(args) => host::keep(&args),
        Command::S3Server(args) => s3::run(&args),
    }
}

/// Default directory of a development cluster.
pub fn default_dir() -> PathBuf {
    PathBuf::from(DIR_DEFAULT)
}

/// The processes of the cluster in `dir`, and whether each runs.
pub fn process_names(dir: &Path) -> Result<Vec<(String, &'static str)>> {
    let cluster = Cluster::load(dir)?;
    let word = |run| if cluster::alive(run) { "running" } else { "stopped" };
    let servers = cluster.servers.iter().map(|s| (s.name.clone(), word(s.run.as_ref())));
    let mounts = cluster.mounts.iter().map(|m| (m.name.clone(), word(m.run.as_ref())));
    let agents = cluster.agents.iter().map(|a| (a.name.clone(), word(a.run.as_ref())));
    let manager = cluster.manager.iter().map(|m| (cluster::MANAGER.to_owned(), word(m.run.as_ref())));
    Ok(servers.chain(mounts).chain(agents).chain(manager).collect())
}

/// The hosts of the cluster in `dir`, and how each is.
pub fn host_names(dir: &Path) -> Result<Vec<(String, &'static str)>> {
    let cluster = Cluster::load(dir)?;
    let state = |host: &cluster::HostState| (host.name.clone(), cluster.host_view(host).state);
    Ok(cluster.hosts.iter().map(state).collect())
}

/// Does something with the cluster in a directory; what happens meanwhile is said on standard error, with `since` with the time
/// since then.
fn on<T>(dir: &DirArg, since: Option<Instant>, work: impl FnOnce(&On) -> Result<T>) -> Result<T> {
    let runtime = runtime()?;
    let host = Host::new(&runtime)?;
    let tell = |event: Event| match event {
        Event::Waits(fault) => eprintln!("waiting for {}: {}", fault.subject, fault.why.join(": ")),
        Event::Serves { name, target, address } => line(since, name, &format!("{target} at {address}")),
        Event::Runs { name, address } => line(since, name, &format!("runs at {address}")),
        Event::Mounted { name, mount_point } => {
            line(since, name, &format!("mounted at {}", mount_point.display()));
        }
        Event::Agent { name, archive } => {
            line(since, name, &format!("serves archive 1 at {archive}"));
        }
        Event::Stores { name, endpoint } => line(since, name, &format!("S3 server at {endpoint}")),
        Event::Policy { name, file } => line(since, name, &format!("carries out {}", file.display())),
        Event::Manages { announced } => crate::manager::print(announced),
        Event::NotTold(name) => {
            eprintln!(
                "warning: {name} does not know of the change yet; it takes it in when it finds the MGS"
            );
        }
        Event::Warning(fault) => warn(&fault),
    };
    let dir = dir.absolute()?;
    identity::use_dev_cluster(&dir);
    work(&On { host: &host, dir, tell: &tell })
}

fn line(since: Option<Instant>, name: &str, what: &str) {
    if let Some(since) = since {
        let line = format!("{:6.2} s  {name:<8} {what}", since.elapsed().as_secs_f64());
        eprintln!("{}", line.trim_end());
    }
}

fn up(args: &UpArgs) -> Result<Done> {
    let since = Some(Instant::now());
    let servers = usize::from(args.hosts.unwrap_or_default());
    let clients = usize::from(args.clients);
    let copies = args.copies.map(usize::from);
    if let Some(copies) = copies {
        installed::check(servers, copies)?;
    }
    let up = Up {
        osts: args.osts,
        mount_points: args.mount.clone(),
        mounts: !args.no_mount,
        archive: args.archive.clone().map(|at| match at.as_os_str() == S3 {
            true => ArchiveAt::S3,
            false => ArchiveAt::Dir(at),
        }),
        fs: args.fsname.clone(),
        ost_size_bytes: args.ost_size,
        mdt_size_bytes: args.mdt_size,
        image_kind: args.image_fs.into(),
        manager: args.manager,
        hosts: args.hosts.map(|_| Hosts {
            // A bare host is what is installed on it.
            servers: if copies.is_some() { servers + clients } else { servers },
            clients: if args.bare || copies.is_some() { 0 } else { clients },
            bare: args.bare || copies.is_some(),
            rate_bits: args.rate.and_then(|rate| rate.0),
            rails: args.rails.map(usize::from),
            security: args.security,
        }),
        bare_names: Vec::new(),
    };
    let dir = args.dir.absolute()?;
    let is_new = !cluster::exists(&dir);
    let cluster = on(&args.dir, since, |on| on.up(&up))?;
    match copies.filter(|_| is_new) {
        Some(copies) => {
            let wanted = installed::Wanted { servers, clients, copies, fs: cluster.fs.clone() };
            let installed = installed::install(&dir, &wanted, |host, what| line(since, host, what));
            if let Err(fault) = installed {
                // The new cluster holds no data yet.
                on(&args.dir, None, |on| on.down(true))?;
                return Err(fault);
            }
        }
        None if cluster.is_bare() => {
            cluster.hosts.iter().try_for_each(|host| installed::boot(&dir, &host.name))?;
        }
        None => {}
    }
    line(since, "ready", "");
    for mount in &cluster.mounts {
        println!("{}", mount.mount_point.display());
    }
    let dir = dir.display();
    if let Some(host) = cluster.hosts.first().filter(|host| host.bare) {
        eprintln!(
            "next: brindle dev host run --dir {dir} {} -- bash | brindle dev host list --dir {dir} | brindle dev down --dir {dir}",
            host.name
        );
        return Ok(Done::Ok);
    }
    if !cluster.hosts.is_empty() {
        eprintln!(
            "next: brindle dev host list --dir {dir} | brindle status --dir {dir} | brindle dev down --dir {dir}"
        );
        return Ok(Done::Ok);
    }
    eprintln!(
        "next: brindle dev status --dir {dir} | brindle dev kill --dir {dir} ost0 | brindle dev down --dir {dir}"
    );
    Ok(Done::Ok)
}

fn kill(args: &NameArgs) -> Result<Done> {
    match on(&args.dir, None, |on| on.kill(&args.name))? {
        Killed::DidNotRun => println!("{} does not run", args.name),
        Killed::Now(pid) => println!("{} killed (process {pid})", args.name),
    }
    Ok(Done::Ok)
}

fn stop(args: &NameArgs) -> Result<Done> {
    match on(&args.dir, None, |on| on.stop(&args.name))? {
        Killed::DidNotRun => println!("{} does not run", args.name),
        Killed::Now(pid) => println!("{} stopped (process {pid})", args.name),
    }
    Ok(Done::Ok)
}

fn start(args: &NameArgs) -> Result<Done> {
    let started = on(&args.dir, None, |on| on.start(&args.name))?;
    if let Started::Before(pid) = started {
        println!("{} runs already (process {pid})", args.name);
        return Ok(Done::Ok);
    }
    if matches!(started, Started::Now { waits: true }) {
        eprintln!("{} runs, and waits for other servers", args.name);
    }
    println!("{} started", args.name);
    Ok(Done::Ok)
}

fn add_ost(args: &AddOstArgs) -> Result<Done> {
    let kind = args.image_fs.map(Kind::from);
    let (server, target) = on(&args.dir, None, |on| on.add_ost(args.ost_size, kind))?;
    let address = server.run.as_ref().and_then(|r| r.addresses.first()).cloned().unwrap_or_default();
    println!("{} serves {target} at {address}; new files lie on it from now on", server.name);
    Ok(Done::Ok)
}

fn remove_ost(args: &NameArgs) -> Result<Done> {
    let removed = on(&args.dir, None, |on| on.remove_ost(&args.name))?;
    match removed.before {
        false => println!("{} is removed, with its process and its directory", removed.target),
        true => println!("{} was removed before; its directory is gone now too", removed.target),
    }
    Ok(Done::Ok)
}

fn down(args: &DownArgs) -> Result<Done> {
    let dir = args.dir.absolute()?;
    let dir = dir.display();
    match on(&args.dir, None, |on| on.down(args.purge))? {
        Down::NothingThere => println!("nothing to do: {dir} does not exist"),
        Down::Ended => println!("down; the data stays in {dir}"),
        Down::Purged { mounts } => println!("down; {dir} removed ({mounts} mounts)"),
    }
    Ok(Done::Ok)
}
