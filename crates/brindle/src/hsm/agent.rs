//! `brindle agent`, and `lhsmtool_posix` as the command lines of Lustre start it: a process that moves files between a file system and an
//! archive, with a client of its own ([`brindle_hsm`]).

pub mod posix_tool;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::place::Source;
use brindle_auth::Modes;
use brindle_client::{Client, Switches};
use brindle_host::announcement::Working;
use brindle_host::control::MountHere;
use brindle_host::process::Said;
use brindle_hsm::{Agent, Archive, Settings};
use brindle_telemetry::panic;
use brindle_types::hsm::ARCHIVE_ID_MAX;
use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, Result};

use super::backend::At;
use crate::background;
use crate::exit::Done;
use crate::mount::{Connect, connect};
use crate::serve::{failed, raise_limits, say, start_log, stop_signal};

/// Log of agents in the background that were given none.
const LOG_DEFAULT: &str = "/var/log/brindle/agent.log";
/// Threads.
const WORKERS: usize = 4;

/// Arguments of `brindle agent`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:\n  brindle agent --archive 1 --backend posix:/arch /mnt/scratch\n  \
                        brindle agent --archive 1 --backend posix:/arch --daemon mgs1:/scratch\n  \
                        brindle agent --archive 2 --backend s3://arch/scratch --s3-endpoint https://s3.example:9000 --s3-credentials /etc/brindle/s3 mgs1:/scratch\n\
                        It needs no mount: a mount point only says which file system is meant. Several agents may serve one archive.")]
pub struct Args {
    /// Number of the archive, 1 to 32; repeat it for more, leave it out for any
    #[arg(long, short = 'A', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(ARCHIVE_ID_MAX)))]
    archive: Vec<u32>,
    #[command(flatten)]
    at: At,
    /// Files at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=i64::from(brindle_hsm::agent::STREAMS_MAX)))]
    streams: u16,
    /// Most bytes a second, such as 200MB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    bandwidth: Option<u64>,
    /// The host's identity; /etc/brindle/identity.pem where there is one
    #[arg(long, env = "BRINDLE_IDENTITY", value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The weakest protection of frames: auth, integrity, privacy or none
    #[arg(long, env = "BRINDLE_SECURITY", value_name = "MODE", value_parser = crate::format::parse::<Modes>)]
    security: Option<Modes>,
    /// Write the log to the end of this file; without it standard error, or /var/log/brindle/agent.log with --daemon
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Go to the background once it works
    #[arg(long)]
    daemon: bool,
    /// Write the process number to this file
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Print one line of JSON on standard output when it works
    #[arg(long, hide = true)]
    ready_json: bool,
    /// The file system: a path in a mount of it, or HOST[:PORT]:/FSNAME
    #[arg(value_name = "MNT|SOURCE")]
    what: String,
}

/// Runs `brindle agent`.
pub fn run(args: &Args) -> Result<Done> {
    if args.daemon {
        return in_background(args);
    }
    start_log(args.log.as_deref())?;
    panic::install("brindle agent".to_owned(), panic::After::Abort);
    raise_limits();
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = built.map_err(|e| Fault::io(Code::Bug, "cannot start threads", "", &e))?;
    let outcome = runtime.block_on(work(args));
    runtime.shutdown_background();
    if let Err(fault) = &outcome {
        failed(fault, args.ready_json, args.log.is_some());
    }
    outcome
}

/// The file system that a mount point or a source names.
pub fn source(what: &str) -> Result<Source> {
    if what.contains(":/") {
        return what.parse().map_err(|why: String| {
            Fault::new(Code::BadArgument).what("cannot serve").subject(what.to_owned()).why(why)
        });
    }
    let mount = MountHere::of(Path::new(what))?;
    mount.line().source.parse().map_err(|why: String| {
        Fault::new(Code::BadArgument).what("cannot serve").subject(what.to_owned()).why(why)
    })
}

async fn work(args: &Args) -> Result<Done> {
    let mut stop = std::pin::pin!(stop_signal()?);
    let source = source(&args.what)?;
    let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
    let archive = tokio::select! {
        biased;
        () = &mut stop => return Ok(Done::Ok),
        opened = args.at.open(&seams) => opened?,
    };
    let root = archive.place();
    // The agent reads each file once, so no file is opened ahead. The agent's reads are no use of a file.
    let switches = Switches {
        open_prefetch: false,
        readdir_prefetch: false,
        access_times: false,
        ..Switches::default()
    };
    let joining = Connect {
        source: &source,
        identity: args.identity.as_deref(),
        security: args.security,
        switches,
        sync: false,
        failout_s: None,
        mount: format!("agent of {root}"),
        lives_long: true,
    };
    let client = tokio::select! {
        biased;
        () = &mut stop => return Ok(Done::Ok),
        connected = connect(&joining, seams.tasks.clone()) => connected?,
    };
    if let Some(path) = &args.pid_file {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|e| Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), &e))?;
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), archive = root, "brindle agent works");
    if args.ready_json {
        say(&Said::Ready(Working { archive: root }));
    }
    serve(args, client, archive, stop).await;
    Ok(Done::Ok)
}

async fn serve(args: &Args, client: Arc<Client>, archive: Archive, stop: impl Future<Output = ()>) {
    let file_system = format!("{}.{:016x}", client.config().fs, client.map().fs_id);
    let archive = archive.of_file_system(&file_system);
    let settings = Settings {
        host: client.config().host.clone(),
        archives: args.archive.clone(),
        streams: args.streams,
        bytes_per_sec: args.bandwidth,
    };
    Agent::new(client.clone(), archive, settings).run(stop).await;
    client.unmount().await;
    tracing::info!("the agent has ended");
}

/// Starts the agent as a process of its own, and waits until it works.
fn in_background(args: &Args) -> Result<Done> {
    let log = args.log.clone().unwrap_or_else(|| PathBuf::from(LOG_DEFAULT));
    background::start("the agent", &log, |log| foreground_arguments(args, log))
}

fn foreground_arguments(args: &Args, log: &Path) -> Result<Vec<String>> {
    let mut arguments = vec![
        "agent".to_owned(),
        "--ready-json".to_owned(),
        format!("--log={}", log.display()),
        format!("--streams={}", args.streams),
    ];
    arguments.extend(args.archive.iter().map(|archive| format!("--archive={archive}")));
    arguments.extend(args.at.arguments()?);
    arguments.extend(args.bandwidth.map(|bytes| format!("--bandwidth={bytes}")));
    arguments.extend(args.identity.iter().map(|path| format!("--identity={}", path.display())));
    arguments.extend(args.security.iter().map(|mode| format!("--security={mode}")));
    arguments.extend(args.pid_file.iter().map(|path| format!("--pid-file={}", path.display())));
    arguments.push(args.what.clone());
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hsm::backend::{Backend, endpoint};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_process_in_the_background_gets_what_the_command_got() {
        let words =
            ["agent", "-A", "2", "--backend", "posix:/a", "--bandwidth", "1MiB", "--no-shadow", "m:/fs"];
        let args = Line::try_parse_from(words).unwrap().args;
        let again = foreground_arguments(&args, Path::new("/log")).unwrap();
        let again = Line::try_parse_from(&again).unwrap().args;
        assert_eq!(
            (again.archive, again.at.backend, again.bandwidth),
            (vec![2], Backend::Posix("/a".into()), Some(1 << 20))
        );
        assert!(again.at.no_shadow && again.ready_json && !again.daemon);
        assert!(Line::try_parse_from(["agent", "--backend", "tape:/x", "m:/fs"]).is_err());
    }

    #[test]
    fn a_bucket_and_how_it_is_reached_go_to_the_background_too() {
        let words = [
            "agent",
            "--backend=s3://arch/a/b",
            "--s3-endpoint=http://h:90",
            "--s3-region=eu",
            "--s3-credentials=/c",
            "m:/fs",
        ];
        let args = Line::try_parse_from(words).unwrap().args;
        assert_eq!(args.at.backend, Backend::S3("arch".to_owned(), "a/b".to_owned()));
        let again = foreground_arguments(&args, Path::new("/log")).unwrap();
        let again = Line::try_parse_from(&again).unwrap().args;
        assert_eq!((again.at.backend, again.at.s3), (args.at.backend, args.at.s3));
        for wrong in ["h:90", "ftp://h", "http://", "http://me:secret@h", "http://h/path"] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
        assert!(Line::try_parse_from(["agent", "--backend=s3://B", "m:/fs"]).is_err());
    }
}
