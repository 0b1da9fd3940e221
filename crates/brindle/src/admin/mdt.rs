//! `brindle mdt`: backups of MDTs.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use brindle_admin::job;
use brindle_admin::mdt_backup::{self, Backup, Restore, Restored};
use brindle_host::need_root;
use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Nid, Result, Role, TargetId};

use super::ask::servers;
use super::place::{PlaceArgs, one};
use crate::cli::text;
use crate::exit::Done;
use crate::follow::{Show, follow};
use crate::format::{parse, runtime};
use crate::output::{Output, print_json};

/// The verbs.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Write all metadata of an MDT, as it is at one moment, into a file
    Backup(BackupArgs),
    /// Check a backup, and say what it has
    Show(ShowArgs),
    /// Make an MDT from a backup, in place of one that was lost
    Restore(RestoreArgs),
}

/// Arguments of `brindle mdt backup`.
#[derive(clap::Args)]
#[command(after_help = "Example: brindle mdt backup --to /backup/scratch-MDT0000.$(date +%F) /mnt/scratch\n\
                        The MDT goes on meanwhile. The file has names, owners, sizes, layouts and small files; the bytes of other files are \
                        on the OSTs.")]
pub struct BackupArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// File to write; there must be none of this name
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// The MDT
    #[arg(long, value_name = "TARGET", default_value = "MDT0000", value_parser = parse::<TargetId>)]
    mdt: TargetId,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle mdt show`.
#[derive(clap::Args)]
pub struct ShowArgs {
    /// The backup
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// Arguments of `brindle mdt restore`.
#[derive(clap::Args)]
#[command(
    after_help = "Example: brindle mdt restore --from /backup/scratch-MDT0000.2026-11-29 --to /data/mdt0\n\
                        Then serve the directory as before. Mounts lose what they had open. What was written after the backup into \
                        files that it does not know is set aside by the OSTs, and not destroyed."
)]
pub struct RestoreArgs {
    /// The backup
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Directory that becomes the MDT
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Address of the MGS; without it, where it was at the time of the backup
    #[arg(long, value_name = "NID", value_parser = parse::<Nid>, value_delimiter = ',')]
    mgs: Vec<Nid>,
    /// Go on although some OSTs do not answer: only if they are lost
    #[arg(long)]
    without_silent: bool,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Backup(args) => backup(args),
        Command::Show(args) => show(args),
        Command::Restore(args) => restore(args),
    }
}

fn backup(args: &BackupArgs) -> Result<Done> {
    if args.mdt.role != Role::Mdt {
        let why = "this is no MDT; an OST has no backup: its files are archived (brindle hsm) or copied";
        return Err(Fault::new(Code::BadArgument).subject(args.mdt.to_string()).why(why));
    }
    let (place, path) = (one(&args.place)?, text(&args.to)?);
    keep_private();
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let servers = runtime.block_on(async { servers() });
    let mdt = args.mdt;
    let running =
        job::start(&seams, "admin.mdt backup", move |job| mdt_backup::backup(servers, place, mdt, path, job));
    let done = follow(&runtime, running, Show::Whole.on_terminal(args.output.json()))?;
    if args.output.json() {
        print_json(&done)?;
    } else {
        println!("backed up {}", describe(&done));
    }
    Ok(Done::Ok)
}

/// Makes new files private: a backup has the names of all files, and the bytes of small ones.
fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

fn describe(backup: &Backup) -> String {
    let when = rfc3339(Timestamp { secs: backup.taken_at, nanos: 0 });
    let (mdt, rows, bytes) = (&backup.mdt, backup.rows, format_bytes(backup.bytes));
    format!("{mdt} as of {when}: {rows} rows, {bytes}, in {}", backup.file)
}

fn show(args: &ShowArgs) -> Result<Done> {
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let found = mdt_backup::show(&*seams.disk, &text(&args.file)?)?;
    if args.output.json() {
        print_json(&found)?;
    } else {
        println!("whole: {}", describe(&found));
    }
    Ok(Done::Ok)
}

fn restore(args: &RestoreArgs) -> Result<Done> {
    need_root("restoring an MDT")?;
    let wanted = Restore {
        file: text(&args.from)?,
        dir: text(&args.to)?,
        mgs: args.mgs.clone(),
        without_silent: args.without_silent,
        dry_run: args.dry_run,
    };
    keep_private();
    let runtime = runtime()?;
    let seams = brindle_stdx::real::seams(runtime.handle().clone());
    let servers = runtime.block_on(async { servers() });
    let running =
        job::start(&seams, "admin.mdt restore", move |job| mdt_backup::restore(servers, wanted, job));
    let done = follow(&runtime, running, Show::Whole.on_terminal(args.output.json()))?;
    if done.changed {
        // The directory of a target is private; an existing one may have been open to others.
        std::fs::set_permissions(&args.to, std::fs::Permissions::from_mode(0o700)).map_err(|e| {
            Fault::io(Code::NotWritable, "restored, but cannot close to others", done.dir.clone(), &e)
        })?;
    }
    if args.output.json() {
        print_json(&done)?;
    } else {
        print_restored(&done);
    }
    Ok(Done::Ok)
}

fn print_restored(done: &Restored) {
    let Restored { dir, backup, highest_term, silent, changed } = done;
    if !silent.is_empty() {
        println!("without {}, which did not answer", silent.join(", "));
    }
    if !changed {
        println!("would restore {}\ninto {dir}, with terms above {highest_term}", describe(backup));
        return;
    }
    println!("restored {}\ninto {dir}, with terms above {highest_term}", describe(backup));
    println!("next: serve it as before; mounts lose what they had open");
    println!(
        "      then look for what was made after the backup: brindle fsck lists objects that were set aside"
    );
}
