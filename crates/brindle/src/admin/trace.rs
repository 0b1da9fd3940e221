//! `brindle trace`: requests to servers one by one, as they are answered, and a summary of them.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use brindle_admin::logs::TroubleView;
use brindle_admin::place::FsLocation;
use brindle_admin::trace::{Batch, OperationView, Reader, Summary, SummaryView, operation};
use brindle_host::users::uid_of;
use brindle_types::units::{format_bytes, parse_micros, parse_seconds};
use brindle_types::{Code, Fault, Nid, Result, Role, TargetId};
use brindle_wire::Name;
use brindle_wire::job::JobTag;
use brindle_wire::map::Map;
use brindle_wire::trace::{CHOSEN_MAX, TEXT_BYTES_MAX, TraceFilter};

use super::ask::servers;
use super::place::{PlaceArgs, one};
use crate::control::ino;
use crate::exit::Done;
use crate::format::runtime;
use crate::output::{Output, print_document_line, table};

/// Pause between two looks.
const PAUSE_MS: u64 = 500;
/// Longest trace.
const SECONDS_MAX: u64 = 86_400;
/// Most names, of files, targets or operations.
const NAMES_MAX: usize = CHOSEN_MAX;

/// Arguments of `brindle trace`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  brindle trace --slower 100ms\n  brindle trace --job 4711 --op write,fsync --seconds 10\n  brindle trace --path /mnt/b/results/out.h5\n  \
                  brindle trace scratch-OST0003 --errors -o json\n\n\
                  Each line is a request that a server has answered. CLIENT-Q is its wait at the client, for a connection and for credits; NETWORK the time on the way, there and back, of the request before \
                  over the same connection; QUEUE its wait for its turn at the server, \
                  and by limits; SERVER the server's own work; DISK that of the object store or the log; OTHERS the wait for other clients: for leases, locks, archives. A request that a client answers from its caches asks no server, and is not seen. Renewals of sessions, \
                  and questions of servers for free space, are shown only where --op names them.\n\n\
                  While a trace runs, each server keeps at most 8192 requests that fit, until they are fetched twice a second; what finds no space is counted. \
                  Four traces may run at once at a server. A trace ends with SIGINT, too. Names of files are shown: only administrators may trace."
)]
pub struct Args {
    /// The targets: scratch-OST0003 or OST0003; without any, all MDTs and OSTs
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Only these operations: create, write and so on
    #[arg(long, value_name = "OPERATION", value_delimiter = ',', value_parser = operation)]
    op: Vec<u16>,
    /// Only requests that took so long at the server, or longer, its queue included: 250us, 10ms, 2s
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = parse_micros)]
    slower: u64,
    /// Only requests that ended with an error
    #[arg(long)]
    errors: bool,
    /// Only requests of this job
    #[arg(long, value_name = "JOB", default_value = "", hide_default_value = true, value_parser = short)]
    job: String,
    /// Only requests of jobs of this user: a name or a number
    #[arg(long, value_name = "USER", value_parser = user)]
    uid: Option<u32>,
    /// Only requests about this file, or this directory and names in it; may be given several times
    #[arg(long, value_name = "PATH")]
    path: Vec<PathBuf>,
    /// Only requests from this host
    #[arg(long, value_name = "HOST", default_value = "", hide_default_value = true, value_parser = short)]
    client: String,
    /// End after this time: 30, 5min
    #[arg(long, value_name = "TIME", default_value = "30", value_parser = seconds)]
    seconds: u64,
    /// A path in a mount of the file system; without any of these options, that of --path, or what is mounted here
    #[arg(long = "mount", value_name = "PATH", conflicts_with_all = ["mgs", "dir"])]
    mount: Option<PathBuf>,
    /// Address of its MGS
    #[arg(long, value_name = "NID", value_parser = crate::format::parse::<Nid>, value_delimiter = ',', conflicts_with = "dir")]
    mgs: Vec<Nid>,
    /// Directory of a development cluster
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// A name that servers accept in a filter.
fn short(text: &str) -> std::result::Result<String, String> {
    match text.len() {
        0..=TEXT_BYTES_MAX => Ok(text.to_owned()),
        len => Err(format!("it has {len} bytes; a name has at most {TEXT_BYTES_MAX}")),
    }
}

fn user(text: &str) -> std::result::Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match uid_of(text) {
        Ok(Some(uid)) => Ok(uid),
        Ok(None) => Err("this host knows no such user".to_owned()),
        Err(e) => Err(format!("cannot look for the user: {e}")),
    }
}

fn seconds(text: &str) -> std::result::Result<u64, String> {
    match parse_seconds(text)? {
        seconds @ 1..=SECONDS_MAX => Ok(seconds),
        _ => Err(format!("it must be 1 to {SECONDS_MAX} seconds")),
    }
}

impl Args {
    fn place(&self) -> Result<FsLocation> {
        let has_other = !self.mgs.is_empty() || self.dir.is_some();
        let path = self.mount.clone().or_else(|| self.path.first().filter(|_| !has_other).cloned());
        one(&PlaceArgs { path, mgs: self.mgs.clone(), dir: self.dir.clone() })
    }

    fn filter(&self) -> Result<TraceFilter> {
        let mut files: Vec<(u64, Name)> = Vec::new();
        for path in &self.path {
            files.extend(names_of(path)?);
        }
        if files.len() > NAMES_MAX || self.op.len() > NAMES_MAX || self.targets.len() > NAMES_MAX {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot trace so many files, operations or targets")
                .why(format!("a trace names at most {NAMES_MAX} of each; a path counts twice"))
                .data("nothing was changed")
                .next("name fewer, or start several traces"));
        }
        Ok(TraceFilter {
            ops: self.op.clone(),
            slower_us: self.slower,
            errors_only: self.errors,
            job: if self.job.is_empty() {
                String::new()
            } else {
                JobTag::new(&self.job, 0).name().to_owned()
            },
            uid: self.uid,
            client: self.client.clone(),
            files,
        })
    }
}

/// The ways in which requests name a file: by its inode, and by its directory and name. A file that is not there yet has only the second.
fn names_of(path: &Path) -> Result<Vec<(u64, Name)>> {
    let file = ino(path);
    let entry = match (path.file_name(), path.parent()) {
        (Some(name), Some(parent)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            ino(parent).map(|dir| (dir.0, name.as_bytes().to_owned())).ok()
        }
        _ => None,
    };
    match (file, entry) {
        (Ok(file), entry) => Ok([(file.0, Name::new())].into_iter().chain(entry).collect()),
        (Err(fault), Some(entry)) if fault.code == Code::NotFound => Ok(vec![entry]),
        (Err(fault), _) => Err(fault),
    }
}

/// The targets that words name; without any all that serve files.
fn meant(map: &Map, words: &[String]) -> Result<Vec<TargetId>> {
    let ids = || map.targets.iter().map(|entry| entry.id).filter(|id| id.role != Role::Mgt);
    let found = |word: &String| ids().find(|id| *word == map.fs.target(*id) || *word == id.to_string());
    let unknown = |word: &String| {
        let all: Vec<String> = ids().map(|id| map.fs.target(id)).collect();
        Fault::new(Code::UnknownTarget)
            .subject(word.clone())
            .data("nothing was changed")
            .next(format!("name MDTs or OSTs: {}", all.join(", ")))
    };
    if words.is_empty() {
        return Ok(ids().collect());
    }
    words.iter().map(|word| found(word).ok_or_else(|| unknown(word))).collect()
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Done> {
    let (place, filter) = (args.place()?, args.filter()?);
    runtime()?.block_on(async {
        let servers = servers();
        let (map, _) = servers.map(&place).await?;
        let targets = meant(&map, &args.targets)?;
        let mut trace = Trace {
            reader: Reader::new(&servers, filter),
            summary: Summary::default(),
            silent: BTreeSet::new(),
            troubles: Vec::new(),
            json: args.output.json(),
        };
        // The first look begins the trace.
        let first = trace.reader.look(&map, &targets).await?;
        trace.heading(targets.len(), args.seconds);
        trace.take(first)?;
        let until = servers.seams().now().plus_ms(args.seconds * 1_000);
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        while servers.seams().now() < until {
            tokio::select! {
                biased;
                _ = &mut interrupted => break,
                () = servers.seams().sleep_ms(PAUSE_MS) => {}
            }
            trace.drain(&map, &targets).await?;
        }
        trace.drain(&map, &targets).await?;
        let last = trace.reader.end(&map, &targets).await?;
        trace.take(last)?;
        trace.conclude()
    })
}

/// A trace under way.
struct Trace<'a> {
    reader: Reader<'a>,
    summary: Summary,
    /// Targets that were said to be silent.
    silent: BTreeSet<String>,
    troubles: Vec<TroubleView>,
    json: bool,
}

impl Trace<'_> {
    /// Looks until servers have nothing more.
    async fn drain(&mut self, map: &Map, targets: &[TargetId]) -> Result<()> {
        loop {
            let batch = self.reader.look(map, targets).await?;
            let has_more = batch.has_more;
            self.take(batch)?;
            if !has_more {
                return Ok(());
            }
        }
    }

    fn heading(&self, targets: usize, seconds: u64) {
        let targets_word = if targets == 1 { "target" } else { "targets" };
        eprintln!("tracing {targets} {targets_word} for {seconds} s; Ctrl-C ends it, with a summary");
        if !self.json {
            println!("{}", LINE_HEADING);
        }
    }

    fn take(&mut self, batch: Batch) -> Result<()> {
        self.summary.add(&batch);
        for operation in &batch.operations {
            match self.json {
                true => print_document_line(operation)?,
                false => println!("{}", line(operation)),
            }
        }
        for target in &batch.restarted {
            eprintln!("warning: {target} was started anew: requests to it from before are missing");
        }
        let now: BTreeSet<String> = batch.troubles.iter().map(|t| t.target.clone()).collect();
        for trouble in batch.troubles.iter().filter(|t| !self.silent.contains(&t.target)) {
            eprintln!("warning: {} on {} tells nothing: {}", trouble.target, trouble.host, trouble.why);
        }
        self.troubles.retain(|t| !now.contains(&t.target));
        self.troubles.extend(batch.troubles);
        self.silent = now;
        Ok(())
    }

    fn conclude(self) -> Result<Done> {
        let has_troubles = !self.troubles.is_empty();
        let view = self.summary.view(self.troubles);
        match self.json {
            true => print_document_line(&view)?,
            false => println!("{}", page(&view)),
        }
        Ok(if has_troubles { Done::Partly } else { Done::Ok })
    }
}

/// Headings above the lines of [`line`].
const LINE_HEADING: &str = "TIME (UTC)       TARGET             CLIENT       OPERATION      CLIENT-Q  NETWORK    QUEUE   SERVER     DISK   OTHERS  FILE, JOB, BYTES, OUTCOME";

/// An operation in a line: fixed columns for what is compared, then what identifies it.
fn line(operation: &OperationView) -> String {
    let OperationView { at, target, client, operation: name, .. } = operation;
    let time = at.split('T').nth(1).unwrap_or(at).trim_end_matches('Z');
    let times = [
        operation.client_queue_us,
        operation.network_us,
        operation.queue_us,
        operation.server_us,
        operation.disk_us,
        operation.others_us,
    ];
    let times: Vec<String> = times.iter().map(|us| format!("{:>8}", time_text(*us))).collect();
    format!("{time:<15}  {target:<17}  {client:<11}  {name:<14} {}  {}", times.join(" "), details(operation))
}

/// File, job, bytes and outcome.
fn details(operation: &OperationView) -> String {
    let mut words = Vec::new();
    if !operation.fid.is_empty() {
        words.push(operation.fid.clone());
    }
    if !operation.name.is_empty() {
        words.push(format!("{:?}", operation.name));
    }
    if operation.other_files > 0 {
        words.push(format!("+{} files", operation.other_files));
    }
    if !operation.job.is_empty() {
        words.push(format!("job={}", operation.job));
    }
    if let Some(uid) = operation.uid {
        words.push(format!("uid={uid}"));
    }
    let bytes = operation.read_bytes + operation.written_bytes;
    if bytes > 0 {
        let offset = operation.offset.map(|offset| format!(" at {offset}")).unwrap_or_default();
        words.push(format!("{}{offset}", format_bytes(bytes)));
    }
    match operation.code.is_empty() {
        true => words.push("ok".to_owned()),
        false => words.push(format!("{} {}", operation.code, operation.error)),
    }
    words.join(" ")
}

/// A time in three digits or so.
fn time_text(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        1..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

/// The summary for people.
fn page(view: &SummaryView) -> String {
    let requests = if view.count == 1 { "request" } else { "requests" };
    let mut lines = vec![String::new(), format!("{} {requests}, {} with an error", view.count, view.errors)];
    if view.dropped > 0 {
        lines.push(format!(
            "{} more found no space at servers and are not counted: choose fewer",
            view.dropped
        ));
    }
    if !view.operations.is_empty() {
        let rows = view.operations.iter().map(|kind| {
            vec![
                kind.operation.clone(),
                kind.count.to_string(),
                kind.errors.to_string(),
                time_text(kind.median_us),
                time_text(kind.p99_us),
                time_text(kind.max_us),
                time_text(kind.total_us),
                format_bytes(kind.bytes),
            ]
        });
        let headings = ["OPERATION", "COUNT", "ERRORS", "MEDIAN", "P99", "MAX", "SUM", "BYTES"];
        lines.push(table(&headings, rows.collect()));
        lines.push(String::new());
        lines.push("the slowest:".to_owned());
        lines.push(LINE_HEADING.to_owned());
        lines.extend(view.slowest.iter().map(line));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation() -> OperationView {
        OperationView {
            at: "2026-11-20T14:05:06.123456Z".to_owned(),
            target: "scratch-OST0003".to_owned(),
            client: "n7".to_owned(),
            operation: "write".to_owned(),
            fid: "[0x200000400:0x5:0x0]".to_owned(),
            offset: Some(4096),
            job: "4711".to_owned(),
            uid: Some(1000),
            written_bytes: 1 << 20,
            client_queue_us: 0,
            network_us: 700,
            queue_us: 250,
            server_us: 3_100,
            disk_us: 2_500_000,
            total_us: 2_503_350,
            ..OperationView::default()
        }
    }

    #[test]
    fn an_operation_is_one_line_under_the_headings() {
        let shown = line(&operation());
        assert_eq!(
            shown,
            "14:05:06.123456  scratch-OST0003    n7           write                 -   700 us   250 us   3.1 ms    2.5 s        -  \
             [0x200000400:0x5:0x0] job=4711 uid=1000 1.0 MiB at 4096 ok"
        );
        assert_eq!(shown.find("[0x2"), LINE_HEADING.find("FILE"));
        let failed = OperationView {
            name: "a\nb".to_owned(),
            code: "E3001".to_owned(),
            error: "no such file".to_owned(),
            ..operation()
        };
        let shown = line(&failed);
        assert!(shown.ends_with(" E3001 no such file") && shown.contains(" \"a\\nb\" "), "{shown}");
    }

    #[test]
    fn the_summary_tells_of_what_was_dropped() {
        let mut summary = Summary::default();
        summary.add(&Batch { operations: vec![operation()], dropped: 5, ..Batch::default() });
        let text = page(&summary.view(Vec::new()));
        assert!(
            text.contains("1 request, 0 with an error") && text.contains("5 more found no space"),
            "{text}"
        );
        assert!(text.lines().any(|line| line.starts_with("write") && line.ends_with("1.0 MiB")), "{text}");
        assert!(text.ends_with("1.0 MiB at 4096 ok"), "{text}");
    }

    #[test]
    fn arguments_are_bounded() {
        assert!(
            short(&"x".repeat(TEXT_BYTES_MAX)).is_ok() && short(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err()
        );
        assert!(seconds("0").is_err() && seconds("2d").is_err());
        assert_eq!((seconds("30"), seconds("5min")), (Ok(30), Ok(300)));
        assert_eq!((user("0"), user("root")), (Ok(0), Ok(0)));
        assert!(user("no-such-user-here").is_err());
    }
}
