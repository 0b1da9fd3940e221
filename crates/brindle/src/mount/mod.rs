//! `brindle mount` and `mount.brindle`: a FUSE mount, one daemon each; `brindle umount`.
//!
//! Without `--foreground` the command starts the daemon (this program again, with `--foreground`), waits until the mount
//! is usable and ends: [`launch`]. The daemon is [`daemon`]. A daemon that is killed loses its mount; its locks and open
//! files go with its lease.

mod daemon;
mod launch;
mod options;
mod remount;
mod subdir;
pub mod switches;
mod umount;

use std::path::PathBuf;

use brindle_auth::Modes;
use brindle_types::Result;

pub use daemon::{Connect, connect, keep_certificate};
pub use options::{is_asked_by_mount, mount_helper};
pub use umount::{UmountArgs, run as umount};

use crate::cpu_latency::CpuLatency;
use crate::exit::Done;
use brindle_admin::place::Source;
use brindle_host::requirements;

/// Arguments of `brindle mount`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  brindle mount mgs1:/scratch /scratch\n  \
                        brindle mount -o ro mgs1,mgs2:9990:/scratch/home /home\n\
                        In fstab: mgs1:/scratch /scratch brindle _netdev 0 0")]
pub struct Args {
    /// What to mount: HOST[:PORT][,HOST[:PORT]]:/FSNAME[/SUBDIR]
    #[arg(value_parser = crate::format::parse::<Source>)]
    source: Source,
    /// Where: an existing directory
    #[arg(value_name = "MNT")]
    mount_point: PathBuf,
    /// Options, separated by commas: ro, nodev, nosuid, noexec, remount, log=FILE, metrics=ADDRESS:PORT,
    /// cpu-latency=auto|system|MICROSECONDS, sync (every write is on disk when it returns), failout=SECONDS (what needs an OST that
    /// was unreachable for so long fails, instead of waiting), and switches of single mechanisms such as write-behind=off (docs/reference/tuning.md)
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Check the options, the mount point and this machine, and mount nothing
    #[arg(long)]
    dry_run: bool,
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    foreground: bool,
    /// Write the log to the end of this file; without it /var/log/brindle/mount.log, or standard error in the foreground
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The host's identity, with which it proves who it is; /etc/brindle/identity.pem where there is one
    #[arg(long, env = "BRINDLE_IDENTITY", value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The weakest protection of frames: auth, integrity, privacy or none; 'auth' with an identity, else 'none'. Networks can have modes of
    /// their own: auth:tcp1=privacy
    #[arg(long, env = "BRINDLE_SECURITY", value_name = "MODE", value_parser = crate::format::parse::<Modes>)]
    security: Option<Modes>,
    /// Where to serve metrics over HTTP; port 0 for any free one, 'none' for not at all
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    metrics: String,
    /// Threads
    #[arg(long, default_value_t = WORKERS_DEFAULT, value_parser = clap::value_parser!(u16).range(2..=256))]
    workers: u16,
    /// How fast processors have to wake up while the mount is busy, in microseconds; 'auto' for what suits the machine,
    /// 'system' to leave them alone
    #[arg(long, env = "BRINDLE_CPU_LATENCY", value_name = "MICROSECONDS", default_value_t = CpuLatency::Auto)]
    cpu_latency: CpuLatency,
    /// Keep all memory locked, where swap lies in this mount: a daemon that waits for its own pages would wait for itself
    #[arg(long)]
    lock_memory: bool,
    /// Print one line of JSON on standard output when usable
    #[arg(long, hide = true)]
    ready_json: bool,
}

/// Threads of a mount daemon, besides those that read the kernel's requests.
const WORKERS_DEFAULT: u16 = 4;

/// Runs `brindle mount`.
pub fn run(args: Args) -> Result<Done> {
    let dry_run = args.dry_run;
    let settings = options::settle(args)?;
    if settings.remount {
        return if dry_run { Ok(Done::Ok) } else { remount::run(&settings) };
    }
    requirements::free_mount_point(&settings.mount_point)?;
    requirements::is_directory(&settings.mount_point)?;
    requirements::check()?;
    if dry_run {
        return Ok(Done::Ok);
    }
    if settings.foreground { daemon::run(&settings) } else { launch::run(&settings) }
}
