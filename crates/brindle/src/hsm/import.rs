//! `brindle hsm import`, and `lhsmtool_posix --import`: files are made again from an archive alone ([`brindle_hsm::import`]).

use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use brindle_admin::document;
use brindle_auth::Modes;
use brindle_client::Switches;
use brindle_hsm::Archive;
use brindle_hsm::import::tally::{Problem, Tally};
use brindle_hsm::import::{Origin, Wanted, import};
use brindle_stdx::Seams;
use brindle_types::hsm::ARCHIVE_ID_MAX;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Fid, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::agent::source;
use super::backend::{At, Backend};
use crate::exit::{Done, warn};
use crate::format::runtime;
use crate::mount::{Connect, connect};
use crate::output::{Output, print_json};
use crate::serve::stop_signal;

/// Pause between two looks of the line that is written over again and again.
const LOOK_MS: u64 = 200;
/// Directory of the links with paths, in an archive of `lhsmtool_posix`.
const SHADOW: &str = "shadow";
/// Problems that are listed for people; JSON has more.
const LISTED_MAX: usize = 20;

/// Arguments of `brindle hsm import`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle hsm import --archive 1 --from posix:/arch.old --backend posix:/arch mgs1:/scratch --dry-run\n  \
                        brindle hsm import --archive 2 --backend s3://arch/scratch --s3-endpoint https://s3.example:9000 --s3-credentials /etc/brindle/s3 /mnt/scratch\n\
                        Files appear released; opening them brings the bytes back, by an agent of --archive with the same --backend. What is there already stays as it is."
)]
pub struct Args {
    /// Number of the archive that the files are to lie in, 1 to 32
    #[arg(long, short = 'A', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(ARCHIVE_ID_MAX)))]
    archive: u32,
    /// The archive of the file system that is imported into, as its agent has it
    #[command(flatten)]
    at: At,
    /// Where the files come from: posix:DIR, an archive beside that of --backend; for s3:// a file system in the bucket, NAME.FSID, where there
    /// are several. Without it what this file system itself has archived: files that were removed come back
    #[arg(long, value_name = "PLACE")]
    from: Option<String>,
    /// Directory of the file system that they go below
    #[arg(long, value_name = "DIR", default_value = "/")]
    into: PathBuf,
    /// Only what was at or below this path
    #[arg(long, value_name = "PATH", default_value = "/", hide_default_value = true)]
    only: PathBuf,
    /// Say what would be imported, and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Names that exist are no failure: to go on after an interruption
    #[arg(long)]
    skip_existing: bool,
    /// Read the copies of other tools, which kept no checksums, so that damage is found from now on
    #[arg(long)]
    checksums: bool,
    /// The host's identity; /etc/brindle/identity.pem where there is one
    #[arg(long, env = "BRINDLE_IDENTITY", value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The weakest protection of frames: auth, integrity, privacy or none
    #[arg(long, env = "BRINDLE_SECURITY", value_name = "MODE", value_parser = crate::format::parse::<Modes>)]
    security: Option<Modes>,
    #[command(flatten)]
    output: Output,
    /// The file system: a path in a mount of it, or HOST[:PORT]:/FSNAME
    #[arg(value_name = "MNT|SOURCE")]
    what: String,
}

/// Result of an import.
#[derive(Serialize, JsonSchema)]
pub struct ImportView {
    /// Source of the files.
    from: String,
    /// Number of the archive that the files lie in.
    archive: u32,
    /// Directory that they went below.
    into: String,
    /// Whether nothing was changed (`--dry-run`).
    is_dry_run: bool,
    /// Whether a signal ended the import; the same command goes on.
    is_interrupted: bool,
    /// Files that were made, or would be.
    files: u64,
    /// Further names of them (hard links).
    links: u64,
    /// Directories that were made, or would be.
    directories: u64,
    /// Bytes that the files have.
    bytes: u64,
    /// Files that were left out, since their names exist.
    existing: u64,
    /// Files that were left out, since one that was archived later had their name.
    superseded: u64,
    /// Files with another layout than they had: there are fewer OSTs, or no pool of that name.
    other_layouts: u64,
    /// Files that could not be imported.
    failed: u64,
    /// The first 1000 that were left out or failed.
    problems: Vec<ProblemView>,
}
document!(ImportView, "brindle.hsm.import", 1);

/// A file that was not imported.
#[derive(Serialize, JsonSchema)]
struct ProblemView {
    /// Manifest of the file, or its link in the archive.
    subject: String,
    /// Code of the fault, such as E6031.
    code: String,
    /// Problem.
    message: String,
}

/// The command line of `lhsmtool_posix --import`.
pub struct Tool {
    /// The archive.
    pub at: At,
    /// Number of the archive.
    pub archive: u32,
    /// Below the archive, or a FID.
    pub from: String,
    /// The path that the file gets, or the directory that the tree goes below.
    pub to: PathBuf,
    /// The mount point.
    pub mount: String,
    /// Dry run: nothing is changed.
    pub dry_run: bool,
}

fn bad(what: impl Into<String>, why: impl Into<String>) -> Fault {
    Fault::new(Code::BadArgument)
        .what("cannot import")
        .subject(what.into())
        .why(why.into())
        .data("nothing was changed")
}

/// A path without its leading slash and without `.` and `..`.
fn plain(path: &Path) -> Result<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => parts.push(name.as_bytes()),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(bad(path.display().to_string(), "paths with '..' are not taken"));
            }
        }
    }
    Ok(parts.join(&b'/'))
}

/// Source of the files.
fn origin(at: &At, from: Option<&str>) -> Result<Origin> {
    let posix = |root: &Path| Origin::Posix { root: root.to_owned(), links: SHADOW.into(), by_links: false };
    match (&at.backend, from) {
        (Backend::Posix(own), None) => Ok(posix(own)),
        (Backend::Posix(_), Some(from)) => match from.parse::<Backend>() {
            Ok(Backend::Posix(dir)) => Ok(posix(&dir)),
            Ok(Backend::S3(..)) => Err(bad(
                from,
                "the archive of this file system is a directory, and copies stay where they are",
            )),
            Err(why) => Err(bad(from, why)),
        },
        (Backend::S3(..), Some(from)) if from.starts_with("posix:") => {
            Err(bad(from, "the archive of this file system is a bucket, and copies stay where they are"))
        }
        (Backend::S3(..), Some(from)) if from.contains('/') => Err(bad(
            from,
            "for a bucket the name of a file system in it is taken, NAME.FSID; bucket and prefix stand in --backend",
        )),
        (Backend::S3(..), from) => Ok(Origin::S3(from.map(str::to_owned))),
    }
}

/// Runs `brindle hsm import`.
pub fn run(args: &Args) -> Result<Done> {
    let wanted = Wanted {
        origin: origin(&args.at, args.from.as_deref())?,
        archive: args.archive,
        into: plain(&args.into)?,
        only: plain(&args.only)?,
        is_one_file: false,
        dry_run: args.dry_run,
        checksums: args.checksums,
    };
    let access = Access {
        at: &args.at,
        what: &args.what,
        identity: args.identity.as_deref(),
        security: args.security,
    };
    let view = carry_out(&access, wanted, !args.output.json())?;
    if args.output.json() {
        print_json(&view)?;
    } else {
        show(&view);
    }
    Ok(outcome(&view, args.skip_existing))
}

/// Runs `lhsmtool_posix --import`: files get the paths that their links have below the archive, `DST/SRC/...`, as with that tool.
pub fn run_as_tool(tool: &Tool) -> Result<Done> {
    let Backend::Posix(root) = &tool.at.backend else { return Err(bad(tool.from.clone(), "no directory")) };
    if tool.from.starts_with('/') {
        return Err(bad(tool.from.clone(), "the source is relative to --hsm-root, or a FID"));
    }
    let to = tool.to.strip_prefix(&tool.mount).map_err(|_| {
        bad(tool.to.display().to_string(), format!("the destination is an absolute path in {}", tool.mount))
    })?;
    let (from, is_fid) = match tool.from.parse::<Fid>() {
        Ok(fid) => (brindle_hsm::Directory::name_in(fid, tool.at.archive_format), true),
        Err(_) => (tool.from.clone(), false),
    };
    let wanted = Wanted {
        origin: Origin::Posix { root: root.clone(), links: PathBuf::new(), by_links: true },
        archive: tool.archive,
        into: plain(to)?,
        only: plain(Path::new(&from))?,
        is_one_file: is_fid || !root.join(&from).is_dir(),
        dry_run: tool.dry_run,
        checksums: false,
    };
    let access = Access { at: &tool.at, what: &tool.mount, identity: None, security: None };
    let view = carry_out(&access, wanted, true)?;
    show(&view);
    Ok(outcome(&view, false))
}

fn outcome(view: &ImportView, skip_existing: bool) -> Done {
    let is_whole = view.failed == 0 && (view.existing == 0 || skip_existing) && !view.is_interrupted;
    if is_whole { Done::Ok } else { Done::Partly }
}

/// Access to the archive and to the file system.
struct Access<'a> {
    at: &'a At,
    what: &'a str,
    identity: Option<&'a Path>,
    security: Option<Modes>,
}

fn carry_out(access: &Access<'_>, wanted: Wanted, for_people: bool) -> Result<ImportView> {
    let source = source(access.what)?;
    runtime()?.block_on(async {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let archive = access.at.open(&seams).await?;
        let joining = Connect {
            source: &source,
            identity: access.identity,
            security: access.security,
            switches: Switches {
                open_prefetch: false,
                readdir_prefetch: false,
                access_times: false,
                ..Switches::default()
            },
            sync: false,
            failout_s: None,
            mount: format!("import from {}", archive.place()),
            lives_long: true,
        };
        let client = connect(&joining, seams.tasks.clone()).await?;
        let shows = for_people && std::io::stderr().is_terminal();
        let imported = follow(&seams, client.clone(), archive, wanted, shows).await;
        client.unmount().await;
        imported
    })
}

/// Imports, and tells how far it is.
async fn follow(
    seams: &Seams,
    client: Arc<brindle_client::Client>,
    archive: Archive,
    wanted: Wanted,
    shows: bool,
) -> Result<ImportView> {
    let tally: Arc<Tally> = Arc::default();
    let is_interrupted = std::sync::atomic::AtomicBool::new(false);
    let stop = stop_signal()?;
    let stopped = async {
        stop.await;
        is_interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    let (archive_id, into, dry_run) =
        (wanted.archive, String::from_utf8_lossy(&wanted.into).into_owned(), wanted.dry_run);
    let importing = import(client, archive, wanted, tally.clone(), stopped);
    let telling = async {
        loop {
            seams.sleep_ms(LOOK_MS).await;
            if shows {
                eprint!("\r\x1b[K{}", progress(&tally));
                // A line that cannot be shown is no reason to stop.
                let _ = std::io::stderr().flush();
            }
        }
    };
    let from = tokio::select! {
        imported = importing => imported,
        () = telling => Err(Fault::new(Code::Bug).why("progress has an end")),
    };
    if shows {
        eprint!("\r\x1b[K");
    }
    let get = Tally::get;
    Ok(ImportView {
        from: from?,
        archive: archive_id,
        into: format!("/{into}"),
        is_dry_run: dry_run,
        is_interrupted: is_interrupted.load(std::sync::atomic::Ordering::Relaxed),
        files: get(&tally.files),
        links: get(&tally.links),
        directories: get(&tally.directories),
        bytes: get(&tally.bytes),
        existing: get(&tally.existing),
        superseded: get(&tally.superseded),
        other_layouts: get(&tally.other_layouts),
        failed: get(&tally.failed),
        problems: tally.problems().iter().map(problem).collect(),
    })
}

fn progress(tally: &Tally) -> String {
    let (files, bytes) = (Tally::get(&tally.files), format_bytes(Tally::get(&tally.bytes)));
    let left_out = Tally::get(&tally.failed) + Tally::get(&tally.existing);
    format!("{files} files, {bytes}, {left_out} left out")
}

fn problem(problem: &Problem) -> ProblemView {
    ProblemView {
        subject: problem.subject.clone(),
        code: problem.fault.code.to_string(),
        message: problem.fault.to_string(),
    }
}

fn show(view: &ImportView) {
    for problem in view.problems.iter().take(LISTED_MAX) {
        let fault = match problem.message.contains(&problem.subject) {
            true => problem.message.clone(),
            false => format!("{}: {}", problem.subject, problem.message),
        };
        eprintln!("warning: {fault}");
    }
    let listed = view.problems.len().min(LISTED_MAX) as u64;
    let unlisted = (view.failed + view.existing).saturating_sub(listed);
    if unlisted > 0 {
        eprintln!("warning: and {unlisted} more; -o json lists the first 1000");
    }
    if view.is_interrupted {
        warn(
            &Fault::new(Code::Interrupted)
                .what("the import was interrupted")
                .data("every file that was made is whole")
                .next("the same command with --skip-existing goes on"),
        );
    }
    let would = if view.is_dry_run { "would be " } else { "" };
    println!(
        "{} files ({}), {} further names and {} directories {would}imported from {} into {}, archive {}",
        view.files,
        format_bytes(view.bytes),
        view.links,
        view.directories,
        view.from,
        view.into,
        view.archive
    );
    let left_out = [
        (view.existing, "left out: their names exist"),
        (view.superseded, "left out: others that were archived later had their names"),
        (view.failed, "could not be imported"),
        (view.other_layouts, "lie differently than they did"),
    ];
    for (count, what) in left_out.iter().filter(|(count, _)| *count > 0) {
        println!("{count} files {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        let line = ["import"].iter().chain(words).chain(&["m:/fs"]);
        Line::try_parse_from(line).unwrap().args
    }

    #[test]
    fn where_files_come_from_is_of_the_kind_of_the_archive() {
        let of = |words: &[&str]| {
            let args = args(words);
            origin(&args.at, args.from.as_deref()).map_err(|fault| fault.to_string())
        };
        let posix = |dir: &str| Origin::Posix { root: dir.into(), links: SHADOW.into(), by_links: false };
        assert_eq!(of(&["--backend=posix:/new", "--from=posix:/old"]), Ok(posix("/old")));
        assert_eq!(of(&["--backend=posix:/new"]), Ok(posix("/new")), "what was removed comes back");
        assert_eq!(of(&["--backend=s3://arch"]), Ok(Origin::S3(None)));
        let named = "scratch.0123456789abcdef";
        assert_eq!(of(&["--backend=s3://arch", "--from", named]), Ok(Origin::S3(Some(named.to_owned()))));
        for (backend, from) in [
            ("posix:/new", "s3://arch"),
            ("posix:/new", "/old"),
            ("s3://arch", "posix:/old"),
            ("s3://arch", "s3://arch/scratch.0123456789abcdef"),
        ] {
            let refused = of(&["--backend", backend, "--from", from]).unwrap_err();
            assert!(refused.contains("nothing was changed"), "{backend} {from}: {refused}");
        }
    }

    #[test]
    fn paths_stay_in_the_file_system() {
        assert_eq!(plain(Path::new("/a/./b/")).unwrap(), b"a/b");
        assert_eq!(plain(Path::new("/")).unwrap(), b"");
        assert!(plain(Path::new("/a/../b")).is_err());
    }
}
