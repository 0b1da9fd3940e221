//! The command line of Lustre's `lhsmtool_posix`: as a daemon it is our agent, with `--import` our import.

use std::path::PathBuf;

use brindle_hsm::Layout;
use brindle_types::hsm::ARCHIVE_ID_MAX;
use brindle_types::{Code, Fault, Result};

use super::Args;
use crate::exit::Done;
use crate::hsm::backend::{At, Backend, S3Args, layout};
use crate::hsm::{agent, import};

/// The command line of `lhsmtool_posix`.
#[derive(clap::Args, Clone, Debug)]
pub struct PosixToolArgs {
    /// Go to the background once it works
    #[arg(long)]
    daemon: bool,
    /// Number of the archive; repeat it for more, leave it out for any
    #[arg(long, short = 'A', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(ARCHIVE_ID_MAX)))]
    archive: Vec<u32>,
    /// Directory of the archive
    #[arg(long, short = 'p', value_name = "DIR")]
    hsm_root: PathBuf,
    /// Layout of the archive: v1 or v2
    #[arg(long, short = 'F', value_name = "LAYOUT", default_value = "v1", value_parser = layout)]
    archive_format: Layout,
    /// Most MB a second
    #[arg(long, short = 'b', value_name = "MB")]
    bandwidth: Option<u64>,
    /// Make no links with the paths of files
    #[arg(long)]
    no_shadow: bool,
    /// Write the process number to this file
    #[arg(long, short = 'P', value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Taken, without effect: extended attributes are not archived
    #[arg(long, hide = true)]
    no_xattr: bool,
    /// Taken, without effect: how often it tells how far it is is fixed
    #[arg(long, short = 'u', value_name = "SECONDS", hide = true)]
    update_interval: Option<u32>,
    /// Taken, without effect: the size of parts is fixed
    #[arg(long, short = 'c', value_name = "SIZE", hide = true)]
    chunk_size: Option<u64>,
    /// Taken, without effect: the log says what is done
    #[arg(long, short = 'q', hide = true)]
    quiet: bool,
    /// Taken, without effect
    #[arg(long, short = 'v', hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Import what lies at SRC in the archive as DST: SRC DST MNT
    #[arg(long, short = 'i')]
    import: bool,
    /// With --import: say what would be imported
    #[arg(long)]
    dry_run: bool,
    /// Taken, without effect: whatever cannot be imported is named, and the rest is
    #[arg(long, hide = true)]
    abort_on_error: bool,
    /// The mount point; with --import SRC, relative to --hsm-root or a FID, and DST, absolute, in front of it
    #[arg(value_name = "MNT", required = true, num_args = 1..=3)]
    what: Vec<String>,
}

/// Runs `lhsmtool_posix`.
pub fn run(tool: PosixToolArgs) -> Result<Done> {
    let usage =
        |why: &str| Fault::new(Code::BadArgument).what("cannot use this command line").why(why.to_owned());
    match (tool.import, &tool.what[..]) {
        (false, [_]) if !tool.dry_run => agent::run(&serving(tool)?),
        (false, [_]) => Err(usage("--dry-run belongs to --import")),
        (false, _) => Err(usage("one mount point is needed; SRC and DST belong to --import")),
        (true, [from, to, mount]) => {
            let (from, to, mount) = (from.clone(), PathBuf::from(to), mount.clone());
            import::run_as_tool(&import::Tool {
                at: at(&tool),
                archive: tool.archive.first().copied().unwrap_or(1),
                from,
                to,
                mount,
                dry_run: tool.dry_run,
            })
        }
        (true, _) => Err(usage(
            "--import needs SRC, relative to --hsm-root or a FID, DST, an absolute path, and the mount point",
        )),
    }
}

fn at(tool: &PosixToolArgs) -> At {
    At {
        backend: Backend::Posix(tool.hsm_root.clone()),
        s3: S3Args::default(),
        archive_format: tool.archive_format,
        no_shadow: tool.no_shadow,
    }
}

fn serving(tool: PosixToolArgs) -> Result<Args> {
    let at = at(&tool);
    let what = tool.what.into_iter().next();
    Ok(Args {
        archive: tool.archive,
        at,
        streams: 4,
        bandwidth: tool.bandwidth.map(|mb| mb.saturating_mul(1 << 20)),
        identity: None,
        security: None,
        log: None,
        daemon: tool.daemon,
        pid_file: tool.pid_file,
        ready_json: false,
        what: what.ok_or_else(|| Fault::new(Code::BadArgument).why("no mount point is given"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PosixToolArgs,
    }

    #[test]
    fn the_seeds_line_is_understood() {
        let words = ["lhsmtool_posix", "--daemon", "--hsm-root", "/arch", "--archive=1", "/mnt"];
        let args = serving(Line::try_parse_from(words).unwrap().args).unwrap();
        assert_eq!((args.at.backend.clone(), &args.archive[..]), (Backend::Posix("/arch".into()), &[1][..]));
        assert!(args.daemon && args.what == "/mnt");
        assert!(Line::try_parse_from(["lhsmtool_posix", "--hsm-root", "/a", "-A", "33", "/mnt"]).is_err());
    }

    #[test]
    fn import_needs_where_from_and_where_to() {
        let run = |words: &[&str]| {
            let line = ["lhsmtool_posix", "--hsm-root", "/none"].iter().chain(words);
            run(Line::try_parse_from(line).unwrap().args).unwrap_err().to_string()
        };
        assert!(run(&["--import", "shadow", "/mnt"]).contains("SRC"));
        assert!(run(&["shadow", "/mnt/x", "/mnt"]).contains("--import"));
        assert!(run(&["--dry-run", "/mnt"]).contains("--import"));
    }
}
