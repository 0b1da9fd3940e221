//! `brindle cluster backup` and `brindle cluster restore`: the configuration of a cluster, as a file and back.

use std::path::PathBuf;

use brindle_admin::document;
use brindle_host::config_backup::{self, Restore};
use brindle_host::enrolment::own_address;
use brindle_host::need_root;
use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::Result;
use brindle_types::ids::DEFAULT_PORT;
use schemars::JsonSchema;
use serde::Serialize;

use super::{MGT_DIR, OwnArgs, superblocks};
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_json};

/// Arguments of `brindle cluster backup`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle cluster backup --to /backup/scratch-config.$(date +%F)\n\
                        Run it on a host that runs the MGS; the MGS goes on. The file has the map, hosts, targets, pools and the key of the \
                        cluster's authority: whoever has it is the cluster.")]
pub struct BackupArgs {
    /// File to write; there must be none of this name
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Directory of the MGT
    #[arg(long, value_name = "DIR", default_value = MGT_DIR)]
    dir: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle cluster restore`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: brindle cluster restore --from /backup/scratch-config.2026-11-29 --dry-run\n\
                        Only when no MGS of the cluster has its configuration any more. This host takes the address of the MGS host that was lost. \
                        Targets with copies or a standby host are served when all their hosts have told what they have.\n\
                        Where there is no backup either: on each host that has targets, brindle cluster superblocks -o json > HOST.json; then here:\n  \
                        brindle cluster restore --from-superblocks h2.json --from-superblocks h3.json --dry-run"
)]
pub struct RestoreArgs {
    /// The backup
    #[arg(long, value_name = "FILE", required_unless_present = "from_superblocks")]
    from: Option<PathBuf>,
    #[command(flatten)]
    pub(super) superblocks: FromSuperblocks,
    /// Directory that becomes the MGT
    #[arg(long, value_name = "DIR", default_value = MGT_DIR)]
    pub(super) dir: PathBuf,
    /// Address that other hosts reach this one at; needed where it has several
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Port of the MGS
    #[arg(long, default_value_t = DEFAULT_PORT)]
    pub(super) port: u16,
    /// A server's list of removed hosts, /etc/brindle/identity.removed: who was removed after the backup stays out
    #[arg(long, value_name = "FILE")]
    pub(super) removed: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) own: OwnArgs,
    /// Only say what would happen
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Arguments for a configuration of which no backup is left.
#[derive(clap::Args)]
pub struct FromSuperblocks {
    /// Make the configuration anew from what the hosts have: a file of each, made with brindle cluster superblocks -o json
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub(super) from_superblocks: Vec<PathBuf>,
    /// The authority of the cluster with its key, authority.pem of any MGT; without it all hosts have to join again
    #[arg(long, value_name = "FILE", requires = "from_superblocks")]
    pub(super) authority: Option<PathBuf>,
    /// A host that is lost for good, although records of copies name it; or an OST that was removed or is lost, like OST0002
    #[arg(long, value_name = "HOST|OST", requires = "from_superblocks")]
    pub(super) lost: Vec<String>,
    /// A directory of a target that does not count
    #[arg(long, value_name = "HOST:DIR", requires = "from_superblocks", value_parser = place)]
    pub(super) leave_out: Vec<(String, String)>,
}

/// `HOST:DIR`.
fn place(text: &str) -> std::result::Result<(String, String), String> {
    let (host, dir) = text.split_once(':').ok_or("a directory is given as HOST:DIR")?;
    Ok((host.to_owned(), dir.to_owned()))
}

/// A backup that was made.
#[derive(Serialize, JsonSchema)]
pub struct BackupView {
    /// The file.
    file: String,
    /// File system.
    fs: String,
    /// When it was made, seconds since 1970.
    made_s: i64,
    /// Entries of the configuration.
    entries: usize,
    /// Hosts of the cluster.
    hosts: Vec<String>,
}
document!(BackupView, "brindle.cluster.backup", 1);

/// A configuration that was restored, or would be.
#[derive(Serialize, JsonSchema)]
pub struct RestoreView {
    /// Whether it was done.
    done: bool,
    /// File system.
    fs: String,
    /// When the backup was made, seconds since 1970.
    made_s: i64,
    /// Directory of the MGT.
    dir: String,
    /// Name of this host where it had no identity and got one.
    new_host: Option<String>,
    /// Hosts of the cluster.
    hosts: Vec<String>,
    /// Hosts that were removed after the backup and stay out.
    removed: Vec<String>,
    /// Targets that wait until all their hosts have told what they have.
    waiting: Vec<String>,
}
document!(RestoreView, "brindle.cluster.restore", 1);

fn shown(made_s: i64) -> String {
    rfc3339(Timestamp { secs: made_s, nanos: 0 })
}

/// Makes a backup.
pub fn backup(args: &BackupArgs) -> Result<Done> {
    need_root("cannot back up the configuration")?;
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let made = runtime.block_on(config_backup::save(&seams, &args.dir, &args.to))?;
    let view = BackupView {
        file: args.to.display().to_string(),
        fs: made.superblock()?.fs.to_string(),
        made_s: made.made_s,
        entries: made.entries.len(),
        hosts: made.hosts()?,
    };
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    let (entries, hosts) = (view.entries, view.hosts.len());
    println!(
        "backed up the configuration of {}: {entries} entries, {hosts} hosts, in {}",
        view.fs, view.file
    );
    println!("it has the key of the cluster's authority: keep it where only administrators read");
    Ok(Done::Ok)
}

/// Makes an MGT from a backup.
pub fn restore(args: &RestoreArgs) -> Result<Done> {
    need_root("cannot restore the configuration")?;
    let address = match &args.listen {
        Some(address) => address.clone(),
        None => own_address()?,
    };
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let host = args.own.host();
    let Some(file) = &args.from else { return superblocks::restore(&seams, args, address) };
    let wanted = Restore {
        file: file.clone(),
        dir: PathBuf::from(crate::cli::text(&args.dir)?),
        conf: args.own.conf.clone(),
        host: host.clone(),
        address,
        port: args.port,
        removed: args.removed.clone(),
        is_dry_run: args.dry_run,
    };
    let done = config_backup::restore(&seams, &wanted)?;
    let fs = done.backup.superblock()?.fs;
    let view = RestoreView {
        done: !args.dry_run,
        fs: fs.to_string(),
        made_s: done.backup.made_s,
        dir: wanted.dir.display().to_string(),
        new_host: done.is_new_host.then_some(host),
        hosts: done.restored.hosts,
        removed: done.restored.removed,
        waiting: done.restored.waiting.iter().map(|target| fs.target(*target)).collect(),
    };
    if args.output.json() {
        print_json(&view)?;
        return Ok(Done::Ok);
    }
    print(args, &view);
    Ok(Done::Ok)
}

fn print(args: &RestoreArgs, view: &RestoreView) {
    let verb = if view.done { "restored" } else { "would restore" };
    println!("{verb} the configuration of {} as of {} to {}", view.fs, shown(view.made_s), view.dir);
    if let Some(host) = &view.new_host {
        println!("  this host: {host}, with a new identity in {}", args.own.conf.display());
    }
    println!("  hosts of the cluster: {}", view.hosts.join(", "));
    if !view.removed.is_empty() {
        println!("  removed since, and stay out: {}", view.removed.join(", "));
    } else if args.removed.is_empty() {
        println!(
            "  a host that was removed after {} would be let in again: give the list of a server with --removed /etc/brindle/identity.removed, \
             or remove it again: brindle node remove HOST",
            shown(view.made_s)
        );
    }
    if !view.waiting.is_empty() {
        println!("  served when all their hosts have told what they have: {}", view.waiting.join(", "));
    }
    println!("  tokens are void");
    if !view.done {
        println!("nothing was changed; leave --dry-run out to do it");
        return;
    }
    println!("\nnext, on this host:\n  {}", args.own.how_to_serve());
    println!("then look at what waits:\n  brindle status");
}
