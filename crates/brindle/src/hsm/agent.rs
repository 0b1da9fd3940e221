//! `brindle agent`, and `lhsmtool_posix` as the command lines of Lustre start it: a process that moves files between a file system and an
//! archive, with a client of its own ([`brindle_hsm`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_admin::place::Source;
use brindle_auth::Mode;
use brindle_client::{Client, Switches};
use brindle_host::announcement::Working;
use brindle_host::control::MountHere;
use brindle_host::process::Said;
use brindle_hsm::archive::s3::{self, Bucket, Credentials, Place};
use brindle_hsm::{Agent, Archive, Directory, Layout, Settings};
use brindle_stdx::Seams;
use brindle_telemetry::panic;
use brindle_types::hsm::ARCHIVE_ID_MAX;
use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, Result};

use crate::background;
use crate::exit::Done;
use crate::mount::{Connect, connect};
use crate::serve::{failed, raise_limits, say, start_log, stop_signal};

/// Log of agents in the background that were given none.
const LOG_DEFAULT: &str = "/var/log/brindle/agent.log";
/// Where Debian, and most others, have certificate authorities.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
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
    /// Where the archive is: posix:DIR, or s3://BUCKET[/PREFIX]
    #[arg(long, value_name = "PLACE", value_parser = crate::format::parse::<Backend>)]
    backend: Backend,
    /// Layout of the archive, as lhsmtool_posix has it: v1 or v2
    #[arg(long, value_name = "LAYOUT", default_value = "v1", value_parser = layout)]
    archive_format: Layout,
    /// Make no links with the paths of files
    #[arg(long)]
    no_shadow: bool,
    /// Options of s3://
    #[command(flatten)]
    s3: S3Args,
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
    #[arg(long, env = "BRINDLE_SECURITY", value_name = "MODE", value_parser = crate::format::parse::<Mode>)]
    security: Option<Mode>,
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

/// How an S3 server is reached.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Args {
    /// Address of the S3 server, http://HOST[:PORT] or https://...; without it Amazon's
    #[arg(long = "s3-endpoint", value_name = "URL", value_parser = endpoint)]
    endpoint: Option<String>,
    /// Region
    #[arg(long = "s3-region", value_name = "REGION", default_value = s3::REGION_DEFAULT)]
    region: String,
    /// File with the keys, as ~/.aws/credentials has them; nobody but its owner may read it (mode 0600)
    #[arg(long = "s3-credentials", value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Certificate authorities that the server's certificate is checked by, PEM
    #[arg(long = "s3-ca", value_name = "FILE", default_value = AUTHORITIES)]
    authorities: PathBuf,
}

/// The address of a server, without a path, a user or a secret.
fn endpoint(text: &str) -> std::result::Result<String, String> {
    let text = text.trim_end_matches('/');
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let rest = rest.ok_or("it begins with neither https:// nor http://")?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    if rest.is_empty() || !rest.chars().all(is_host) {
        return Err("it is not http://HOST[:PORT] or https://HOST[:PORT]".to_owned());
    }
    Ok(text.to_owned())
}

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
    /// The mount point
    #[arg(value_name = "MNT")]
    what: String,
}

impl From<PosixToolArgs> for Args {
    fn from(tool: PosixToolArgs) -> Args {
        Args {
            archive: tool.archive,
            backend: Backend::Posix(tool.hsm_root),
            s3: S3Args::default(),
            archive_format: tool.archive_format,
            no_shadow: tool.no_shadow,
            streams: 4,
            bandwidth: tool.bandwidth.map(|mb| mb.saturating_mul(1 << 20)),
            identity: None,
            security: None,
            log: None,
            daemon: tool.daemon,
            pid_file: tool.pid_file,
            ready_json: false,
            what: tool.what,
        }
    }
}

/// `posix:DIR` or `s3://BUCKET[/PREFIX]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A directory.
    Posix(PathBuf),
    /// A bucket and a prefix.
    S3(String, String),
}

impl std::str::FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Backend, String> {
        if let Some(place) = text.strip_prefix("s3://") {
            let (bucket, prefix) = s3::bucket_and_prefix(place)?;
            return Ok(Backend::S3(bucket, prefix));
        }
        match text.split_once(':') {
            Some(("posix", dir)) if !dir.is_empty() => Ok(Backend::Posix(PathBuf::from(dir))),
            Some((kind, _)) if kind != "posix" && kind != "s3" => Err(format!(
                "there is no archive of kind '{kind}'; there are posix:DIR and s3://BUCKET[/PREFIX]"
            )),
            _ => Err(format!("'{text}' is not posix:DIR or s3://BUCKET[/PREFIX]")),
        }
    }
}

impl Backend {
    /// As it is written on a command line.
    fn argument(&self) -> Result<String> {
        Ok(match self {
            Backend::Posix(dir) => format!("posix:{}", crate::cli::text(dir)?),
            Backend::S3(bucket, prefix) if prefix.is_empty() => format!("s3://{bucket}"),
            Backend::S3(bucket, prefix) => format!("s3://{bucket}/{prefix}"),
        })
    }
}

/// Opens the archive that is asked for.
async fn open(args: &Args, seams: &Seams) -> Result<Archive> {
    let (bucket, prefix) = match &args.backend {
        Backend::Posix(dir) => {
            return Ok(Archive::Posix(Directory::open(dir, args.archive_format, !args.no_shadow)?));
        }
        Backend::S3(bucket, prefix) => (bucket.clone(), prefix.clone()),
    };
    let S3Args { endpoint, region, credentials, authorities } = args.s3.clone();
    let path = credentials.ok_or_else(|| {
        Fault::new(Code::BadArgument)
            .what("cannot serve")
            .subject(format!("s3://{bucket}"))
            .why("no --s3-credentials is given, the file with its keys")
    })?;
    let credentials = Credentials::read(&path)?;
    let place = Place { bucket, prefix, endpoint, region, authorities };
    Ok(Archive::S3(Bucket::open(place, &credentials, seams).await?))
}

fn layout(text: &str) -> std::result::Result<Layout, String> {
    text.parse()
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
        opened = open(args, &seams) => opened?,
    };
    let root = archive.place();
    // What it reads it reads once, and nothing of it is opened ahead.
    let switches = Switches { open_prefetch: false, readdir_prefetch: false, ..Switches::default() };
    let joining = Connect {
        source: &source,
        identity: args.identity.as_deref(),
        security: args.security,
        switches,
        sync: false,
        failout_s: None,
        mount: format!("agent of {root}"),
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
    let archive = match archive {
        Archive::S3(bucket) => {
            Archive::S3(bucket.of_file_system(&client.config().fs.to_string(), client.map().fs_id))
        }
        posix @ Archive::Posix(_) => posix,
    };
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
    let layout = match args.archive_format {
        Layout::V1 => "v1",
        Layout::V2 => "v2",
    };
    let mut arguments = vec![
        "agent".to_owned(),
        "--ready-json".to_owned(),
        format!("--log={}", log.display()),
        format!("--backend={}", args.backend.argument()?),
        format!("--archive-format={layout}"),
        format!("--streams={}", args.streams),
    ];
    arguments.extend(args.archive.iter().map(|archive| format!("--archive={archive}")));
    arguments.extend(s3_arguments(args)?);
    arguments.extend(args.no_shadow.then(|| "--no-shadow".to_owned()));
    arguments.extend(args.bandwidth.map(|bytes| format!("--bandwidth={bytes}")));
    arguments.extend(args.identity.iter().map(|path| format!("--identity={}", path.display())));
    arguments.extend(args.security.iter().map(|mode| format!("--security={mode}")));
    arguments.extend(args.pid_file.iter().map(|path| format!("--pid-file={}", path.display())));
    arguments.push(args.what.clone());
    Ok(arguments)
}

fn s3_arguments(args: &Args) -> Result<Vec<String>> {
    if matches!(args.backend, Backend::Posix(_)) {
        return Ok(Vec::new());
    }
    let S3Args { endpoint, region, credentials, authorities } = &args.s3;
    let mut arguments =
        vec![format!("--s3-region={region}"), format!("--s3-ca={}", crate::cli::text(authorities)?)];
    arguments.extend(endpoint.iter().map(|endpoint| format!("--s3-endpoint={endpoint}")));
    if let Some(path) = credentials {
        arguments.push(format!("--s3-credentials={}", crate::cli::text(path)?));
    }
    Ok(arguments)
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

    #[derive(Parser)]
    struct ToolLine {
        #[command(flatten)]
        args: PosixToolArgs,
    }

    #[test]
    fn the_seeds_line_is_understood() {
        let words = ["lhsmtool_posix", "--daemon", "--hsm-root", "/arch", "--archive=1", "/mnt"];
        let args = Args::from(ToolLine::try_parse_from(words).unwrap().args);
        assert_eq!((args.backend.clone(), &args.archive[..]), (Backend::Posix("/arch".into()), &[1][..]));
        assert!(args.daemon && args.what == "/mnt");
        assert!(
            ToolLine::try_parse_from(["lhsmtool_posix", "--hsm-root", "/a", "-A", "33", "/mnt"]).is_err()
        );
    }

    #[test]
    fn the_process_in_the_background_gets_what_the_command_got() {
        let words =
            ["agent", "-A", "2", "--backend", "posix:/a", "--bandwidth", "1MiB", "--no-shadow", "m:/fs"];
        let args = Line::try_parse_from(words).unwrap().args;
        let again = foreground_arguments(&args, Path::new("/log")).unwrap();
        let again = Line::try_parse_from(&again).unwrap().args;
        assert_eq!(
            (again.archive, again.backend, again.bandwidth),
            (vec![2], Backend::Posix("/a".into()), Some(1 << 20))
        );
        assert!(again.no_shadow && again.ready_json && !again.daemon);
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
        assert_eq!(args.backend, Backend::S3("arch".to_owned(), "a/b".to_owned()));
        let again = foreground_arguments(&args, Path::new("/log")).unwrap();
        let again = Line::try_parse_from(&again).unwrap().args;
        assert_eq!((again.backend, again.s3), (args.backend, args.s3));
        for wrong in ["h:90", "ftp://h", "http://", "http://me:secret@h", "http://h/path"] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
        assert!(Line::try_parse_from(["agent", "--backend=s3://B", "m:/fs"]).is_err());
    }
}
