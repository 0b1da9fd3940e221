//! The logs of all servers, as their processes keep the last lines in memory.
//!
//! A process has one log for all of its targets, so each target is asked and each process counts once.

use std::collections::BTreeMap;

use brindle_types::{Fault, Result, Role, TargetId};
use brindle_wire::log_lines::{
    LogLinesReq, LogLinesResp, MdtLogLinesReq, MgsLogLinesReq, OstLogLinesReq, Severity,
};
use brindle_wire::map::{Map, TargetEntry};
use futures_util::stream::{self, StreamExt as _};
use schemars::JsonSchema;
use serde::Serialize;

use crate::servers::Servers;

/// Servers that are asked at once.
const ASKED_AT_ONCE: usize = 16;

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
}

/// Lines of logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LineView {
    /// Time at which it was written, like `2026-11-20T14:05:06.123456Z`; empty for a line of another form.
    pub at: String,
    /// Host of the process.
    pub host: String,
    /// Targets of the process.
    pub targets: Vec<String>,
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

/// A server that did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TroubleView {
    /// Full name of the target.
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
    answer: LogLinesResp,
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
                let known = process.or_insert_with(|| Process { host, targets: Vec::new(), answer });
                known.targets.push(name);
            }
            Err(fault) => view.troubles.push(TroubleView { target: name, host, why: why(&fault) }),
        }
    }
    let mut found: Vec<((String, u64, u64), LineView)> = Vec::new();
    for (number, mut process) in processes {
        process.targets.sort();
        let from = read.up_to.get(&number).copied().unwrap_or(0);
        let gone = if from > 0 { process.answer.first.saturating_sub(from + 1) } else { 0 };
        view.left_out += process.answer.left_out + gone;
        for line in process.answer.lines.iter().filter(|line| line.number > from) {
            let told = LineView {
                host: process.host.clone(),
                targets: process.targets.clone(),
                ..parse(&line.text)
            };
            found.push(((told.at.clone(), number, line.number), told));
        }
        read.up_to.insert(number, process.answer.next.saturating_sub(1));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    view.lines = found.into_iter().map(|(_, line)| line).collect();
    view.troubles.sort_by(|a, b| a.target.cmp(&b.target));
    view
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
fn why(fault: &Fault) -> String {
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
        return LineView { message: line.to_owned(), level: "info".to_owned(), ..LineView::default() };
    };
    let code = fields.split(' ').find_map(|word| word.strip_prefix("code=")).unwrap_or_default();
    LineView {
        at: at.to_owned(),
        level: level.to_owned(),
        part: part.to_owned(),
        code: code.to_owned(),
        message,
        fields: fields.to_owned(),
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
    fn any_line_is_shown() {
        for line in ["", "ts=", "ts=1 level=warn", "a panic", "ts=1 level=info target=a msg=\"cut of"] {
            let shown = parse(line);
            assert!(shown.message == line || shown.message == "cut of", "{shown:?}");
        }
    }
}
