//! `brindle policy run`: the engine, as a process or once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_auth::Modes;
use brindle_client::{Client, Switches};
use brindle_host::announcement::Working;
use brindle_host::control::MountHere;
use brindle_host::process::Said;
use brindle_hsm::policy::{self, Engine, Options, State};
use brindle_telemetry::panic;
use brindle_types::{Code, Fault, Result};

use super::text::{self, HostNames, StateArg, TextArgs};
use crate::background;
use crate::exit::Done;
use crate::mount::{Connect, connect};
use crate::serve::{failed, raise_limits, say, start_log, stop_signal};
use brindle_host::users;

/// Log of engines in the background that were given none.
const LOG_DEFAULT: &str = "/var/log/brindle/policy.log";
/// Threads.
const WORKERS: usize = 2;

/// Arguments of `brindle policy run`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:\n  brindle policy run /etc/brindle/policy.conf /mnt/scratch --daemon\n  \
                        brindle policy run --once /etc/brindle/policy.conf /mnt/scratch\n\
                        What deletes stays off until the text was previewed and confirmed: brindle policy preview, brindle policy confirm.\n\
                        The text is read again when it changes.")]
pub struct Args {
    #[command(flatten)]
    text: TextArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    state: StateArg,
    /// Look at each trigger once, now, and end
    #[arg(long, conflicts_with = "daemon")]
    once: bool,
    /// The user that commands of policies, cmd(), run as; without it such policies are refused
    #[arg(long, value_name = "USER")]
    cmd_user: Option<String>,
    /// Write the log to the end of this file; without it standard error, or /var/log/brindle/policy.log with --daemon
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
}

/// A file system, and how this host proves who it is.
#[derive(clap::Args, Clone, Debug)]
pub struct PlaceArgs {
    /// The file system: a path in a mount of it, or HOST[:PORT]:/FSNAME
    #[arg(value_name = "MNT|SOURCE")]
    pub what: String,
    /// The host's identity; /etc/brindle/identity.pem where there is one
    #[arg(long, env = "BRINDLE_IDENTITY", value_name = "FILE")]
    identity: Option<PathBuf>,
    /// The weakest protection of frames: auth, integrity, privacy or none
    #[arg(long, env = "BRINDLE_SECURITY", value_name = "MODE", value_parser = crate::format::parse::<Modes>)]
    security: Option<Modes>,
}

impl PlaceArgs {
    /// The file system of a path.
    pub fn of(what: String) -> PlaceArgs {
        PlaceArgs { what, identity: None, security: None }
    }

    /// Mount point, if the options name a mount of the whole file system.
    pub fn mount(&self) -> Result<Option<String>> {
        if self.what.contains(":/") {
            return Ok(None);
        }
        let mount = MountHere::of(Path::new(&self.what))?;
        let at = crate::cli::text(&mount.line().mount_point)?;
        mount.whole()?;
        Ok(Some(at))
    }

    /// A client of it.
    pub async fn connect(&self) -> Result<Arc<Client>> {
        let source = crate::hsm::agent::source(&self.what)?;
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let switches = Switches {
            open_prefetch: false,
            readdir_prefetch: false,
            access_times: false,
            ..Switches::default()
        };
        let joining = Connect {
            source: &source,
            identity: self.identity.as_deref(),
            security: self.security,
            switches,
            sync: false,
            failout_s: None,
            mount: "policy engine".to_owned(),
            lives_long: true,
        };
        connect(&joining, seams.tasks.clone()).await
    }
}

/// Runs `brindle policy run`.
pub fn run(args: &Args) -> Result<Done> {
    let mounts: Vec<String> = args.place.mount()?.into_iter().collect();
    let program = args.text.load_at(&mounts)?;
    let options = options(args, &mounts)?;
    text::check_commands(&program, options.command_user.is_some(), !mounts.is_empty())?;
    if args.daemon {
        return in_background(args);
    }
    start_log(args.log.as_deref())?;
    panic::install("brindle policy".to_owned(), panic::After::Abort);
    raise_limits();
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = built.map_err(|e| Fault::io(Code::Bug, "cannot start threads", "", &e))?;
    let outcome = runtime.block_on(work(args, &mounts, options));
    runtime.shutdown_background();
    if let Err(fault) = &outcome {
        failed(fault, args.ready_json, args.log.is_some());
    }
    outcome
}

fn options(args: &Args, mounts: &[String]) -> Result<Options> {
    let command_user = args.cmd_user.as_deref().map(command_user).transpose()?;
    Ok(Options { command_user, mount: mounts.first().cloned() })
}

/// User and group that commands run as; never root.
fn command_user(name: &str) -> Result<(u32, u32)> {
    let wrong = |why: String| {
        Fault::new(Code::BadArgument).what("cannot run commands as").subject(name.to_owned()).why(why)
    };
    let uid = users::uid_of(name).map_err(|e| wrong(e.to_string()))?;
    let uid = uid.ok_or_else(|| wrong("there is no such user".to_owned()))?;
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    let gid = user.map(|user| user.gid.as_raw()).ok_or_else(|| wrong("its group is not known".to_owned()))?;
    if uid == 0 || gid == 0 {
        return Err(wrong("names of files are arguments of the commands, and anybody makes them".to_owned())
            .next("name a user without rights, such as nobody"));
    }
    Ok((uid, gid))
}

fn absolute(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path)
        .map_err(|e| Fault::io(Code::BadArgument, "cannot use the path", path.display().to_string(), &e))?;
    Ok(absolute.display().to_string())
}

async fn work(args: &Args, mounts: &[String], options: Options) -> Result<Done> {
    let mut stop = std::pin::pin!(stop_signal()?);
    let mut state = State::take(&args.state.state)?;
    let client = tokio::select! {
        biased;
        () = &mut stop => return Ok(Done::Ok),
        connected = args.place.connect() => connected?,
    };
    if let Some(path) = &args.pid_file {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|e| Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), &e))?;
    }
    let engine = Engine::new(client.clone(), Arc::new(HostNames), options);
    let has_user = args.cmd_user.is_some();
    let load = || {
        let program = args.text.load_at(mounts)?;
        text::check_commands(&program, has_user, !mounts.is_empty())?;
        Ok(program)
    };
    let program = load()?;
    let began_secs = text::mark(&args.text.file).at_secs;
    text::warn_unusual(&program);
    // Readers of the history may have another working directory.
    state.history.file = absolute(&args.text.file)?;
    state.history.source = match args.place.what.contains(":/") {
        true => args.place.what.clone(),
        false => absolute(Path::new(&args.place.what))?,
    };
    state.history.defines = args.text.defines();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        file = state.history.file,
        sum = program.sum,
        "brindle policy works"
    );
    if args.ready_json {
        say(&Said::Ready(Working { archive: state.history.file.clone() }));
    }
    let ended = tokio::select! {
        biased;
        () = stop => Ok(0),
        ended = policy::run(&engine, program, &load, &mut state, args.once) => ended,
    };
    client.unmount().await;
    if args.once && !args.ready_json {
        super::history::tell(&state, began_secs);
    }
    match ended? {
        0 => Ok(Done::Ok),
        _ => Ok(Done::Partly),
    }
}

/// Starts the engine as a process of its own, and waits until it works.
fn in_background(args: &Args) -> Result<Done> {
    let log = args.log.clone().unwrap_or_else(|| PathBuf::from(LOG_DEFAULT));
    background::start("the policy engine", &log, |log| foreground_arguments(args, log))
}

fn foreground_arguments(args: &Args, log: &Path) -> Result<Vec<String>> {
    let mut arguments = vec![
        "policy".to_owned(),
        "run".to_owned(),
        "--ready-json".to_owned(),
        format!("--log={}", log.display()),
        format!("--state={}", crate::cli::text(&args.state.state)?),
    ];
    arguments.extend(args.cmd_user.iter().map(|user| format!("--cmd-user={user}")));
    arguments.extend(args.place.identity.iter().map(|path| format!("--identity={}", path.display())));
    arguments.extend(args.place.security.iter().map(|mode| format!("--security={mode}")));
    arguments.extend(args.pid_file.iter().map(|path| format!("--pid-file={}", path.display())));
    arguments.extend(args.text.arguments()?);
    arguments.push(args.place.what.clone());
    Ok(arguments)
}
