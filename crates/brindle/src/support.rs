//! `brindle support bundle`: a file for somebody who helps from afar: states, numbers, versions, logs.
//!
//! A bundle is made when something is wrong. Each part that cannot be had is therefore noted in the bundle, and the other parts are
//! taken all the same.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};
use std::sync::Arc;

use brindle_admin::logs::{self, LineView};
use brindle_host::bb;
use brindle_host::cluster::Cluster;
use brindle_manager::cluster::{At, Managed};
use brindle_manager::live::{scrape, state};
use brindle_manager::web::local;
use brindle_stdx::Clock as _;
use brindle_stdx::real::RealClock;
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::log_lines::{self, Severity};

use crate::admin::ask::servers;
use crate::admin::place::{PlaceArgs, one};
use crate::bb::SocketArg;
use crate::exit::Done;
use crate::format::runtime;
use crate::manager::{DIR_DEFAULT, ShortMounts};

/// Most of a log that is taken: its end.
const LOG_MAX_BYTES: u64 = 8 << 20;
/// Lines of the journal.
const JOURNAL_LINES: &str = "50000";
/// Values of a line of a log that are kept where names are not asked for: none of them can name a file.
const KEPT: [&str; 5] = ["host", "ts", "level", "target", "code"];

/// The verbs of `brindle support`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Collect states, numbers, versions and logs in one file
    Bundle(BundleArgs),
}

/// Arguments of `brindle support bundle`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle support bundle --mgs mgs1 --port 9870\n  brindle support bundle --dir /tmp/b --with-names\n\
                        Logs are those of this host, and the last lines of those of all servers and mounts, and of burst buffers if their orchestrator runs on this host. Names of files, addresses in messages and whatever else a message says are left out: of each line \
                        there is the time, the level, the part and the code. --with-names takes whole lines."
)]
pub struct BundleArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// The file to write; without it brindle-support-TIME.tar.gz here
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Take whole lines of logs, which may have names of files in them
    #[arg(long)]
    with_names: bool,
    /// Port at which each server tells its numbers
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Port at which mounts tell their numbers, on each host that joined as a client
    #[arg(long, value_name = "PORT")]
    client_port: Option<u16>,
    /// Directory of a manager on this host, for its alerts
    #[arg(long, value_name = "DIR", default_value = DIR_DEFAULT)]
    manager: PathBuf,
    #[command(flatten)]
    orchestrator: SocketArg,
}

/// Runs the command.
pub fn run(command: &Command) -> Result<Done> {
    match command {
        Command::Bundle(args) => bundle(args),
    }
}

/// A bundle that is being made: a directory that goes when it is packed.
struct Bundle {
    dir: PathBuf,
    notes: Vec<String>,
}

impl Bundle {
    fn begin(beside: &Path) -> Result<Bundle> {
        let dir = beside.join(format!(".brindle-support-{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|e| Fault::io(Code::NotWritable, "cannot make", dir.display().to_string(), &e))?;
        Ok(Bundle { dir, notes: Vec::new() })
    }

    fn add(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.dir.join(name);
        let cannot =
            |e: &std::io::Error| Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), e);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| cannot(&e))?;
        }
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(|e| cannot(&e))
    }

    fn note(&mut self, what: &str, why: impl std::fmt::Display) {
        self.notes.push(format!("{what}: {why}"));
    }

    /// Packs the directory into a file that only its owner may read.
    fn pack(&self, file: &Path) -> Result<()> {
        let failed = |why: String| {
            Fault::new(Code::CommandFailed)
                .what("cannot write the bundle")
                .subject(file.display().to_string())
                .why(why)
        };
        let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
        let opened = opened
            .map_err(|e| Fault::io(Code::NotWritable, "cannot write", file.display().to_string(), &e))?;
        let done = Program::new("tar")
            .args([
                "--create",
                "--gzip",
                "--owner=0",
                "--group=0",
                "--transform=s,^[.],brindle-support,",
                "-C",
            ])
            .arg(&self.dir)
            .arg(".")
            .stdout(opened)
            .stderr(Stdio::piped())
            .output();
        match done {
            Ok(done) if done.status.success() => Ok(()),
            Ok(done) => Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
            Err(e) => Err(failed(format!("tar: {e}"))),
        }
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.dir) {
            eprintln!("warning: cannot remove {}: {e}", self.dir.display());
        }
    }
}

fn bundle(args: &BundleArgs) -> Result<Done> {
    let now = brindle_telemetry::log::rfc3339(RealClock.wall());
    let file = args.to.clone().unwrap_or_else(|| {
        let digits: String = now.chars().take(19).filter(char::is_ascii_digit).collect();
        PathBuf::from(format!("brindle-support-{digits}.tar.gz"))
    });
    if file.exists() {
        return Err(Fault::new(Code::NotWritable)
            .what("cannot write the bundle")
            .subject(file.display().to_string())
            .why("there is such a file already")
            .data("nothing was changed")
            .next("name another file: --to FILE"));
    }
    let beside = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut bundle = Bundle::begin(beside)?;
    bundle.add("version.txt", version(&now).as_bytes())?;
    let mut logs = BTreeMap::new();
    match one(&args.place) {
        Ok(place) => {
            let at = match &place.dev {
                Some(dev) => At::Dev(dev.dir.clone()),
                None => At::Fs(place),
            };
            if let At::Dev(dir) = &at {
                logs = logs_of(dir)?;
            }
            runtime()?.block_on(states(&mut bundle, args, at))?;
        }
        Err(fault) => bundle.note("the file system", fault),
    }
    buffers_logs(&mut bundle, args)?;
    if logs.is_empty() {
        journal(&mut bundle, args.with_names)?;
    }
    for (name, path) in logs {
        match tail(&path) {
            Ok(text) => bundle.add(&format!("logs/{name}.log"), kept(&text, args.with_names).as_bytes())?,
            Err(e) => bundle.note(&path.display().to_string(), e),
        }
    }
    bundle.add("notes.txt", (bundle.notes.join("\n") + "\n").as_bytes())?;
    bundle.pack(&file)?;
    println!("{}", file.display());
    for note in &bundle.notes {
        eprintln!("warning: not in it: {note}");
    }
    Ok(if bundle.notes.is_empty() { Done::Ok } else { Done::Partly })
}

fn version(now: &str) -> String {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    format!(
        "brindle {}\nmade {now}\nkernel {}{}\nmounts\n{}",
        env!("CARGO_PKG_VERSION"),
        text("/proc/sys/kernel/osrelease"),
        text("/etc/os-release"),
        text("/proc/mounts").lines().filter(|line| line.contains(" fuse.brindle ")).count(),
    )
}

/// The state of the cluster, the numbers of its daemons, the alerts of the manager.
async fn states(bundle: &mut Bundle, args: &BundleArgs, at: At) -> Result<()> {
    let manager = match &at {
        At::Dev(dir) => dir.join("manager"),
        At::Fs(_) => args.manager.clone(),
    };
    let managed = Managed {
        scrape_port: args.port,
        client_scrape_port: args.client_port,
        ..Managed::new(servers(), at, Arc::new(ShortMounts))
    };
    let at_s = RealClock.wall().secs;
    let state = match managed.ask().await {
        Ok(asked) => state::view(at_s, &asked),
        Err(fault) => {
            bundle.note("the state of the cluster", &fault);
            state::unreachable(at_s, &fault)
        }
    };
    let text = serde_json::to_vec_pretty(&state);
    bundle.add("state.json", &text.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?)?;
    let daemons = managed.daemons(&state);
    let texts = scrape::all(daemons.iter().map(|daemon| daemon.url.clone()).collect()).await;
    for daemon in &daemons {
        let name = daemon.labels.get("daemon").or(daemon.labels.get("host")).unwrap_or(&daemon.url);
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        match texts.iter().find(|(url, _)| *url == daemon.url) {
            Some((_, text)) => {
                bundle.add(&format!("metrics/{name}.txt"), numbers(text, args.with_names).as_bytes())?;
            }
            None => bundle.note(&format!("the numbers of {name}"), "it does not tell them"),
        }
    }
    servers_logs(bundle, args, &managed).await?;
    if manager.join(local::SOCKET).exists() {
        match local::alerts(&manager).await {
            Ok(alerts) => {
                bundle.add("alerts.json", brindle_admin::document::json(&alerts)?.as_bytes())?;
            }
            Err(fault) => bundle.note("the alerts of the manager", fault),
        }
    }
    Ok(())
}

/// The last lines of the logs of all servers and mounts, wherever they run.
async fn servers_logs(bundle: &mut Bundle, args: &BundleArgs, managed: &Managed) -> Result<()> {
    let map = match managed.place() {
        Ok(place) => managed.servers.map(&place).await,
        Err(fault) => Err(fault),
    };
    let map = match map {
        Ok((map, _)) => map,
        Err(fault) => {
            bundle.note("the logs of the servers", fault);
            return Ok(());
        }
    };
    let targets: Vec<TargetId> = map.targets.iter().map(|entry| entry.id).collect();
    let query = all_lines();
    let view = logs::read(&managed.servers, &map, &targets, &query, &mut logs::Read::default()).await;
    for trouble in &view.troubles {
        bundle.note(&format!("the log of {}", trouble.target), &trouble.why);
    }
    bundle.add("logs/servers.log", kept(&text(&view), args.with_names).as_bytes())?;
    let mounts = match logs::mounts(&managed.servers, &map, "").await {
        Ok(mounts) => mounts,
        Err(fault) => {
            bundle.note("the logs of the mounts", fault);
            return Ok(());
        }
    };
    let view = logs::read_mounts(&managed.servers, &map, &mounts, &query, &mut logs::Read::default()).await;
    for trouble in &view.troubles {
        bundle.note(&format!("the log of {} on {}", trouble.target, trouble.host), &trouble.why);
    }
    bundle.add("logs/mounts.log", kept(&text(&view), args.with_names).as_bytes())
}

/// The last lines of the logs of the orchestrator of burst buffers and its agents, where one has been started on this host.
fn buffers_logs(bundle: &mut Bundle, args: &BundleArgs) -> Result<()> {
    let socket = args.orchestrator.path();
    if !socket.exists() {
        return Ok(());
    }
    let processes = match bb::logs::processes(&socket) {
        Ok(processes) => processes,
        Err(fault) => {
            bundle.note("the logs of burst buffers", fault);
            return Ok(());
        }
    };
    let view = bb::logs::read(&socket, &processes, &all_lines(), &mut bb::logs::Read::default());
    for trouble in &view.troubles {
        bundle.note(&format!("the log of {} on {}", trouble.target, trouble.host), &trouble.why);
    }
    bundle.add("logs/burst-buffers.log", kept(&text(&view), args.with_names).as_bytes())
}

/// All lines that a process tells, from ordinary events on.
fn all_lines() -> logs::Query {
    logs::Query { severity: Severity::Info, text: String::new(), lines_max: log_lines::LINES_MAX }
}

/// Lines of logs in the form of our logs, with the host in front.
fn text(view: &logs::LogView) -> String {
    view.lines.iter().fold(String::new(), |all, line| {
        let LineView { at, host, level, part, message, fields, .. } = line;
        all + &format!("host={host} ts={at} level={level} target={part} msg={message:?} {fields}\n")
    })
}

/// Metrics without those of jobs, whose names may be those of programs.
fn numbers(text: &str, with_names: bool) -> String {
    let lines = text.lines().filter(|line| with_names || !line.contains("job_id=\""));
    lines.fold(String::new(), |all, line| all + line + "\n")
}

/// Logs of a development cluster, by process.
fn logs_of(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let cluster = Cluster::load(dir)?;
    let mut logs = BTreeMap::new();
    logs.extend(cluster.servers.iter().map(|server| (server.name.clone(), server.log.clone())));
    logs.extend(cluster.mounts.iter().map(|mount| (mount.name.clone(), mount.log.clone())));
    logs.extend(cluster.agents.iter().map(|agent| (agent.name.clone(), agent.log.clone())));
    logs.extend(cluster.hosts.iter().map(|host| (host.name.clone(), host.log.clone())));
    logs.extend(cluster.manager.iter().map(|manager| ("manager".to_owned(), manager.log.clone())));
    logs.retain(|_, path| path.exists());
    Ok(logs)
}

/// Adds lines of our units from the journal of this host.
fn journal(bundle: &mut Bundle, with_names: bool) -> Result<()> {
    let done = Program::new("journalctl")
        .args(["--unit=brindle*", "--output=cat", "--no-pager", "--lines", JOURNAL_LINES])
        .stdin(Stdio::null())
        .output();
    match done {
        Ok(done) if done.status.success() => {
            let text = String::from_utf8_lossy(&done.stdout);
            bundle.add("logs/journal.log", kept(&text, with_names).as_bytes())
        }
        Ok(done) => {
            bundle.note("the journal", String::from_utf8_lossy(&done.stderr).trim());
            Ok(())
        }
        Err(e) => {
            bundle.note("the journal", e);
            Ok(())
        }
    }
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_MAX_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The part of a log that goes into the bundle: whole lines, or the part of each that cannot name a file.
fn kept(text: &str, with_names: bool) -> String {
    if with_names {
        return text.to_owned();
    }
    let line = |line: &str| {
        // Values with blanks are in quotes, so the fields in front of the message end at blanks; behind it only the code is looked for.
        let (front, rest) = line.split_once(" msg=").unwrap_or((line, ""));
        let front = front.split(' ').filter(|field| is_kept(field));
        let code = rest.rsplit(' ').find(|field| is_code(field));
        front.chain(code).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(|text| line(text) + "\n").filter(|line| line != "\n").collect()
}

fn is_kept(field: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-:._".contains(c);
    field.split_once('=').is_some_and(|(key, value)| KEPT.contains(&key) && value.chars().all(is_plain))
}

fn is_code(field: &str) -> bool {
    field
        .strip_prefix("code=E")
        .is_some_and(|digits| digits.len() == 4 && digits.chars().all(|c| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_file_is_kept_unless_it_is_asked_for() {
        let log = "ts=2026-11-29T10:00:00.1Z level=warn target=brindle_mds::ops msg=\"cannot read /scratch/secret file\" code=E4003 subject=/scratch/secret\n\
                   ts=2026-11-29T10:00:01.1Z level=info target=brindle msg=serving dir=/data/ost0 name=\"secret code=E1234 x\"\n\
                   /scratch/secret panicked\n\
                   target=/scratch/secret level=secret/x\n\
                   \n";
        let short = kept(log, false);
        assert!(!short.contains("secret") && !short.contains("data"), "{short}");
        assert!(
            short.starts_with("ts=2026-11-29T10:00:00.1Z level=warn target=brindle_mds::ops code=E4003\n"),
            "{short}"
        );
        assert_eq!(kept(log, true), log);
    }
}
