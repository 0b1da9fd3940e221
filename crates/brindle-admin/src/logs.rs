//! The logs of servers and mounts, as their processes keep the last lines in memory.
//!
//! A process has one log for all of its targets, so each target is asked and each process counts once. Mounts, agents of tiering and engines of
//! policies listen at no address: their MDT asks them over the connections of their sessions.

use std::collections::BTreeMap;

use brindle_targets::log_lines;
use brindle_types::{Code, Fault, Result, Role, SessionId, TargetId};
use brindle_wire::log_lines::{
    ListMountsReq, LogLinesReq, LogLinesResp, MdtLogLinesReq, MgsLogLinesReq, MountEntry, MountLogLinesReq,
    OstLogLinesReq, Severity,
};
use brindle_wire::map::{Map, TargetEntry};
use futures_util::stream::{self, StreamExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::servers::Servers;
use crate::trace::plain;

/// Servers, or mounts, that are asked at once.
pub(crate) const ASKED_AT_ONCE: usize = 16;
/// Most mounts that are asked.
pub const MOUNTS_ASKED_MAX: usize = 1024;

/// The orchestrator of burst buffers in lines of logs.
pub const ORCHESTRATOR: &str = "burst buffers";

/// Choice of lines.
#[derive(Clone, Debug)]
pub struct Query {
    /// Lines of this importance or a greater one.
    pub severity: Severity,
    /// Lines with this text, or code, in them; empty for all.
    pub text: String,
    /// Most lines of each process, the newest.
    pub lines_max: u32,
}

/// Lines that were read already.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Number of the last line, by process.
    up_to: BTreeMap<u64, u64>,
    /// Process that a target was in.
    process_of: BTreeMap<TargetId, u64>,
    /// Process of a mount, and the number of the last line.
    mounts: BTreeMap<(TargetId, SessionId), (u64, u64)>,
}

/// Lines of logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogView {
    /// Lines of all processes, the oldest first.
    pub lines: Vec<LineView>,
    /// Lines that fit and are not here: there are too many, or a process keeps them no longer.
    pub left_out: u64,
    /// Servers that did not answer, and why.
    pub troubles: Vec<TroubleView>,
}
document!(LogView, "brindle.log.lines", 1);

/// A line of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineView {
    /// Time at which it was written, like `2026-11-20T14:05:06.123456Z`; empty for a line of another form.
    pub at: String,
    /// Host of the process.
    pub host: String,
    /// Targets of the process; none of a mount.
    pub targets: Vec<String>,
    /// Mount point of the process, or what it is: `agent of /archive`, `burst buffers`, `manager`; empty of a server.
    pub mount: String,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// Part of the program, like `brindle_oss::service`.
    pub part: String,
    /// Code that the line names, like `E4001`; empty if it names none.
    pub code: String,
    /// Message.
    pub message: String,
    /// Further fields of the line, as `name=value`.
    pub fields: String,
}

/// A server or mount that did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TroubleView {
    /// Full name of the target; the mount point of a mount.
    pub target: String,
    /// Host that it is on.
    pub host: String,
    /// Reason.
    pub why: String,
}

/// A process that has answered.
struct Process {
    host: String,
    targets: Vec<String>,
    mount: String,
    answer: LogLinesResp,
}

impl Process {
    /// Lines behind number `from`.
    fn lines(&self, from: u64) -> impl Iterator<Item = LineView> {
        self.answer.lines.iter().filter(move |line| line.number > from).map(|line| LineView {
            host: self.host.clone(),
            targets: self.targets.clone(),
            mount: self.mount.clone(),
            ..parse(&line.text)
        })
    }

    /// Lines behind number `from` that fit and were not told.
    fn left_out(&self, from: u64) -> u64 {
        let gone = if from > 0 { self.answer.first.saturating_sub(from + 1) } else { 0 };
        self.answer.left_out + gone
    }
}

impl LogView {
    /// Lines and troubles of another look, in order of time. Lines of the same moment keep their order.
    pub fn merge(&mut self, other: LogView) {
        self.lines.extend(other.lines);
        self.lines.sort_by(|a, b| a.at.cmp(&b.at));
        self.left_out += other.left_out;
        self.troubles.extend(other.troubles);
    }
}

/// Lines of the processes of `targets`, after the lines `read`, which are continued.
pub async fn read(
    servers: &Servers,
    map: &Map,
    targets: &[TargetId],
    query: &Query,
    read: &mut Read,
) -> LogView {
    let entries = map.targets.iter().filter(|entry| targets.contains(&entry.id));
    let before = read.clone();
    let asking = entries.map(|entry| {
        let before = &before;
        async move { (entry, ask_behind(servers, map, entry, query, before).await) }
    });
    let answers: Vec<(&TargetEntry, Result<LogLinesResp>)> =
        stream::iter(asking.collect::<Vec<_>>()).buffer_unordered(ASKED_AT_ONCE).collect().await;
    let mut view = LogView::default();
    let mut processes: BTreeMap<u64, Process> = BTreeMap::new();
    for (entry, answer) in answers {
        let (name, host) = (map.fs.target(entry.id), entry.host().to_owned());
        match answer {
            Ok(answer) => {
                read.process_of.insert(entry.id, answer.process);
                let process = processes.entry(answer.process);
                let (targets, mount) = (Vec::new(), String::new());
                let known = process.or_insert_with(|| Process { host, targets, mount, answer });
                known.targets.push(name);
            }
            Err(fault) => view.troubles.push(TroubleView { target: name, host, why: why(&fault) }),
        }
    }
    for (number, mut process) in processes {
        process.targets.sort();
        let from = read.up_to.get(&number).copied().unwrap_or(0);
        view.left_out += process.left_out(from);
        view.lines.extend(process.lines(from));
        read.up_to.insert(number, process.answer.next.saturating_sub(1));
    }
    view.lines.sort_by(|a, b| a.at.cmp(&b.at));
    view.troubles.sort_by(|a, b| a.target.cmp(&b.target));
    view
}

/// Lines of the log of this process, which is `name`, for example `manager`.
pub fn own(name: &str, host: &str, query: &Query) -> Result<LogView> {
    let Query { severity, text, lines_max } = query.clone();
    let answer = log_lines::handle(&LogLinesReq { after: 0, lines_max, severity, text })?;
    Ok(of_process(host, name, answer, 0))
}

/// Lines behind number `from` that a process without targets has told; `name` is what it is, for example `manager`.
pub fn of_process(host: &str, name: &str, answer: LogLinesResp, from: u64) -> LogView {
    let process = Process { host: host.to_owned(), targets: Vec::new(), mount: name.to_owned(), answer };
    LogView { lines: process.lines(from).collect(), left_out: process.left_out(from), troubles: Vec::new() }
}

/// Mounts, agents and engines of policies that have sessions.
#[derive(Debug, Default)]
pub struct Mounts {
    /// Each with its MDT.
    pub(crate) entries: Vec<(TargetId, MountEntry)>,
    /// MDTs that did not tell.
    troubles: Vec<TroubleView>,
}

impl Mounts {
    /// Whether there are none, as far as all MDTs have told.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.troubles.is_empty()
    }

    /// MDTs that did not tell their mounts.
    pub fn troubles(&self) -> &[TroubleView] {
        &self.troubles
    }
}

/// Mounts, agents and engines of policies that have sessions; of one host, if that is not empty.
pub async fn mounts(servers: &Servers, map: &Map, host: &str) -> Result<Mounts> {
    let mut found = Mounts::default();
    for entry in map.targets.iter().filter(|entry| entry.id.role == Role::Mdt) {
        if let Err(fault) = mounts_of(servers, map, entry.id, host, &mut found.entries).await {
            let target = format!("the list of mounts of {}", map.fs.target(entry.id));
            found.troubles.push(TroubleView { target, host: entry.host().to_owned(), why: why(&fault) });
        }
        if found.entries.len() > MOUNTS_ASKED_MAX {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot ask so many mounts for their logs")
                .why(format!("there are more than {MOUNTS_ASKED_MAX}"))
                .data("nothing was changed")
                .next("name a host: --client HOST"));
        }
    }
    Ok(found)
}

/// Adds the mounts of an MDT, as long as they are not too many.
async fn mounts_of(
    servers: &Servers,
    map: &Map,
    mdt: TargetId,
    host: &str,
    found: &mut Vec<(TargetId, MountEntry)>,
) -> Result<()> {
    let mut after = 0;
    while found.len() <= MOUNTS_ASKED_MAX {
        let request = ListMountsReq { after, host: host.to_owned() };
        let answer = servers.ask(map, mdt, &request).await?;
        let last = answer.mounts.last().map(|mount| mount.session.0);
        found.extend(answer.mounts.into_iter().map(|mount| (mdt, mount)));
        match last.filter(|last| answer.has_more && *last > after) {
            Some(last) => after = last,
            None => break,
        }
    }
    Ok(())
}

/// Lines of the logs of mounts, after the lines `read`, which are continued.
pub async fn read_mounts(
    servers: &Servers,
    map: &Map,
    mounts: &Mounts,
    query: &Query,
    read: &mut Read,
) -> LogView {
    let before = read.clone();
    let asking = mounts.entries.iter().map(|(mdt, mount)| {
        let before = &before;
        async move { (*mdt, mount, ask_mount(servers, map, (*mdt, mount), query, before).await) }
    });
    let answers: Vec<(TargetId, &MountEntry, Result<Behind>)> =
        stream::iter(asking.collect::<Vec<_>>()).buffer_unordered(ASKED_AT_ONCE).collect().await;
    let mut view = LogView { troubles: mounts.troubles.clone(), ..LogView::default() };
    for (mdt, entry, answer) in answers {
        let (host, mount) = (plain(&entry.host), plain(&entry.mount));
        let (answer, from) = match answer {
            Ok(answer) => answer,
            Err(fault) => {
                view.troubles.push(TroubleView { target: mount, host, why: why(&fault) });
                continue;
            }
        };
        read.mounts.insert((mdt, entry.session), (answer.process, answer.next.saturating_sub(1)));
        let process = Process { host, targets: Vec::new(), mount, answer };
        view.left_out += process.left_out(from);
        view.lines.extend(process.lines(from));
    }
    view.lines.sort_by(|a, b| a.at.cmp(&b.at));
    view.troubles.sort_by(|a, b| (&a.host, &a.target).cmp(&(&b.host, &b.target)));
    view
}

/// Lines, and the number behind which they are new.
type Behind = (LogLinesResp, u64);

/// Lines of a mount behind those that were read, and the number of the last one of those: 0 where its process was started anew.
async fn ask_mount(
    servers: &Servers,
    map: &Map,
    (mdt, mount): (TargetId, &MountEntry),
    query: &Query,
    read: &Read,
) -> Result<Behind> {
    let ask = async |after| {
        let Query { severity, text, lines_max } = query.clone();
        let lines = LogLinesReq { after, lines_max, severity, text };
        let asked = MountLogLinesReq { session: mount.session, lines };
        servers.ask(map, mdt, &asked).await.map_err(|fault| match fault.code {
            Code::UnknownOp => fault.why("its release tells no lines of its log"),
            _ => fault,
        })
    };
    let Some((process, up_to)) = read.mounts.get(&(mdt, mount.session)) else {
        return Ok((ask(0).await?, 0));
    };
    let answer = ask(*up_to).await?;
    match answer.process == *process {
        true => Ok((answer, *up_to)),
        false => Ok((ask(0).await?, 0)),
    }
}

/// Lines of a target's process behind those that were read; all of them, where it was started anew since.
async fn ask_behind(
    servers: &Servers,
    map: &Map,
    entry: &TargetEntry,
    query: &Query,
    read: &Read,
) -> Result<LogLinesResp> {
    let known = read.process_of.get(&entry.id).and_then(|n| read.up_to.get(n).map(|up_to| (*n, *up_to)));
    let Some((process, up_to)) = known else { return ask(servers, map, entry, query, 0).await };
    let answer = ask(servers, map, entry, query, up_to).await?;
    match answer.process == process {
        true => Ok(answer),
        false => ask(servers, map, entry, query, 0).await,
    }
}

async fn ask(
    servers: &Servers,
    map: &Map,
    entry: &TargetEntry,
    query: &Query,
    after: u64,
) -> Result<LogLinesResp> {
    let Query { severity, text, lines_max } = query.clone();
    let request = LogLinesReq { after, lines_max, severity, text };
    match entry.id.role {
        Role::Mdt => servers.ask(map, entry.id, &MdtLogLinesReq(request)).await,
        Role::Ost => servers.ask(map, entry.id, &OstLogLinesReq(request)).await,
        Role::Mgt => servers.ask(map, entry.id, &MgsLogLinesReq(request)).await,
    }
}

/// A fault in one line.
pub fn why(fault: &Fault) -> String {
    let mut words = vec![format!("{} {}", fault.what, fault.subject).trim().to_owned()];
    words.extend(fault.why.iter().map(ToString::to_string));
    words.retain(|word| !word.is_empty());
    format!("{} ({})", words.join(": "), fault.code)
}

/// The importance that a word names.
pub fn severity(word: &str) -> Option<Severity> {
    Some(match word {
        "error" => Severity::Error,
        "warn" => Severity::Warn,
        "info" => Severity::Info,
        "debug" => Severity::Debug,
        "trace" => Severity::Trace,
        _ => return None,
    })
}

/// The parts of a line: `ts=... level=... target=... msg=... name=value ...`.
fn parse(line: &str) -> LineView {
    let head = || {
        let (at, rest) = line.strip_prefix("ts=")?.split_once(' ')?;
        let (level, rest) = rest.strip_prefix("level=")?.split_once(' ')?;
        let (part, rest) = rest.strip_prefix("target=")?.split_once(' ')?;
        let (message, fields) = value(rest.strip_prefix("msg=")?);
        Some((at, level, part, message, fields))
    };
    let Some((at, level, part, message, fields)) = head() else {
        return LineView { message: plain(line), level: "info".to_owned(), ..LineView::default() };
    };
    let code = fields.split(' ').find_map(|word| word.strip_prefix("code=")).unwrap_or_default();
    // A mount chooses its lines.
    LineView {
        at: plain(at),
        level: plain(level),
        part: plain(part),
        code: plain(code),
        message: plain(&message),
        fields: plain(fields),
        ..LineView::default()
    }
}

/// A value at the beginning of `text`, without its quotes, and what follows.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (plain, rest) = text.split_once(' ').unwrap_or((text, ""));
        return (plain.to_owned(), rest);
    };
    let (mut plain, mut chars) = (String::new(), quoted.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (plain, quoted[at + 1..].trim_start()),
            '\\' => match chars.next() {
                Some((_, 'n' | 't' | 'r')) => plain.push(' '),
                Some((_, c)) => plain.push(c),
                None => {}
            },
            c => plain.push(c),
        }
    }
    // The end of the line was cut off.
    (plain, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = parse(
            r#"ts=2026-11-20T14:05:06.123456Z level=warn target=brindle_oss::service msg="cannot read \"x\"\nof it" code=E4001 subject="object 7""#,
        );
        assert_eq!((line.at.as_str(), line.level.as_str()), ("2026-11-20T14:05:06.123456Z", "warn"));
        assert_eq!((line.part.as_str(), line.code.as_str()), ("brindle_oss::service", "E4001"));
        assert_eq!(line.message, "cannot read \"x\" of it");
        assert_eq!(line.fields, r#"code=E4001 subject="object 7""#);
        let plain = parse("ts=1 level=info target=a msg=began");
        assert_eq!((plain.message.as_str(), plain.fields.as_str()), ("began", ""));
    }

    #[test]
    fn lines_of_several_processes_are_merged_in_order_of_time() {
        let line = |at: &str, message: &str| LineView {
            at: at.into(),
            message: message.into(),
            ..LineView::default()
        };
        let trouble = TroubleView { target: "/mnt".into(), ..TroubleView::default() };
        let mut view =
            LogView { lines: vec![line("1", "a"), line("3", "c")], left_out: 2, troubles: Vec::new() };
        view.merge(LogView {
            lines: vec![line("2", "b"), line("3", "d")],
            left_out: 1,
            troubles: vec![trouble],
        });
        let messages: Vec<&str> = view.lines.iter().map(|line| line.message.as_str()).collect();
        assert_eq!((messages, view.left_out, view.troubles.len()), (vec!["a", "b", "c", "d"], 3, 1));
    }

    #[test]
    fn a_line_cannot_steer_a_terminal() {
        for line in ["ts=1 level=info target=a msg=\x1b[31m b=\x07", "\x1b]0;title\x07"] {
            let shown = parse(line);
            let all = format!("{}{}", shown.message, shown.fields);
            assert!(!all.chars().any(char::is_control) && all.contains('\u{FFFD}'), "{all:?}");
        }
    }

    #[test]
    fn any_line_is_shown() {
        for line in ["", "ts=", "ts=1 level=warn", "a panic", "ts=1 level=info target=a msg=\"cut of"] {
            let shown = parse(line);
            assert!(shown.message == line || shown.message == "cut of", "{shown:?}");
        }
    }
}
