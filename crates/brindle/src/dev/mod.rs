//! `brindle dev`: a whole cluster on this machine, for trying, testing and showing.
//!
//! One `brindle serve` process per target and one `brindle mount` process per mount point, all state below one
//! directory ([`state`]). Invariant: the state file names every process, image and mount point that this command made,
//! before the next one is made, so that `down` finds them all, whatever was killed in between.

mod add_ost;
mod down;
mod image;
mod node;
mod remove_ost;
mod state;
mod status;
mod up;

use std::path::PathBuf;

use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, FsName, Nid, Result};

use crate::cli;
use crate::exit::Done;
use crate::output::Output;

/// Where a development cluster lies unless told otherwise.
const DIR_DEFAULT: &str = ".brindle-dev";
/// Name of its file system unless told otherwise.
const FS_DEFAULT: &str = "dev";
/// OSTs unless told otherwise.
const OSTS_DEFAULT: u16 = 4;
/// Most OSTs: each is a process.
const OSTS_MAX: u16 = 256;

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Start a cluster, or start it again with its data, and mount it
    Up(UpArgs),
    /// Show its processes
    Status(StatusArgs),
    /// Kill one of its processes (SIGKILL), as a crash would
    Kill(NameArgs),
    /// Start one of its processes again
    Start(NameArgs),
    /// Add an OST while the cluster runs; new files lie on it at once
    AddOst(AddOstArgs),
    /// Remove an OST that was drained, with its process and its directory
    RemoveOst(NameArgs),
    /// Unmount, and end every process; the data stays
    Down(DownArgs),
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
#[command(after_help = "Example: brindle dev up --dir /tmp/b --osts 4 --mount /mnt/a --mount /mnt/b\n\
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
    #[arg(long, value_enum, default_value_t = image::Kind::Ext4)]
    image_fs: image::Kind,
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

/// Arguments of `brindle dev kill`, `start` and `remove-ost`.
#[derive(clap::Args, Debug)]
pub struct NameArgs {
    #[command(flatten)]
    dir: DirArg,
    /// Name of the process as in `brindle dev status`: mgs, mdt0, ost0, client0
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
    image_fs: Option<image::Kind>,
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
        Command::Up(args) => up::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Kill(args) => node::kill(&args),
        Command::Start(args) => node::start(&args),
        Command::AddOst(args) => add_ost::run(&args),
        Command::RemoveOst(args) => remove_ost::run(&args),
        Command::Down(args) => down::run(&args),
    }
}

/// Where a development cluster lies unless told otherwise.
pub fn default_dir() -> PathBuf {
    PathBuf::from(DIR_DEFAULT)
}

/// The processes of the cluster in `dir`, and whether each runs.
pub fn process_names(dir: &std::path::Path) -> Result<Vec<(String, &'static str)>> {
    let cluster = state::Cluster::load(dir)?;
    let word = |run: Option<&state::Run>| if state::alive(run) { "running" } else { "stopped" };
    let servers = cluster.servers.iter().map(|s| (s.name.clone(), word(s.run.as_ref())));
    let mounts = cluster.mounts.iter().map(|m| (m.name.clone(), word(m.run.as_ref())));
    Ok(servers.chain(mounts).collect())
}

/// Where the MGS of the cluster in `dir` is, and the name of its file system.
pub fn address_of(dir: &std::path::Path) -> Result<(Nid, FsName)> {
    let cluster = state::Cluster::load(dir)?;
    let mgs = cluster.mgs().ok_or_else(|| {
        Fault::new(Code::NoMgs)
            .subject(dir.display().to_string())
            .why("the cluster is stopped")
            .next(format!("start it: brindle dev up --dir {}", dir.display()))
    })?;
    Ok((mgs, cluster.fs))
}

/// Directories of the targets of a cluster, reachable while this lives.
pub struct TargetDirs {
    /// The directories.
    pub dirs: Vec<PathBuf>,
    /// Those whose images were mounted for it.
    attached: Vec<PathBuf>,
}

impl Drop for TargetDirs {
    fn drop(&mut self) {
        for dir in &self.attached {
            if let Err(fault) = image::detach(dir) {
                crate::exit::warn(&fault);
            }
        }
    }
}

/// The directories of the targets of the cluster in `dir`; images that are not mounted are mounted meanwhile.
pub fn target_dirs(dir: &std::path::Path) -> Result<TargetDirs> {
    let cluster = state::Cluster::load(dir)?;
    let dirs = cluster.servers.iter().map(|s| s.dir.clone()).collect();
    let mut found = TargetDirs { dirs, attached: Vec::new() };
    for server in &cluster.servers {
        if let Some(image) = server.image.as_ref().filter(|_| crate::mounts::find(&server.dir).is_none()) {
            image::attach(image, &server.dir)?;
            found.attached.push(server.dir.clone());
        }
    }
    Ok(found)
}

/// Mounting and loop devices need root, and so do targets that keep owners.
fn need_root(what: &'static str) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Fault::new(Code::NeedsRoot).what(what).why("this user is not root"))
}
