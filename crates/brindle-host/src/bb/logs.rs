//! The logs of the orchestrator and of its agents.
//!
//! Agents listen at no address: the orchestrator asks them over their own connections. The orchestrator is asked over its local socket. An
//! answer has the lines of one process, and so fits into a line of the socket.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brindle_admin::logs::{self, LogView, Query, TroubleView};
use brindle_targets::{log_level, log_lines};
use brindle_types::{Code, Fault, Result};
use brindle_wire::log_level::{LogLevelReq, LogLevelResp, NodeLogLevelReq};
use brindle_wire::log_lines::{LogLinesReq, LogLinesResp, NodeLogLinesReq};
use parking_lot::Mutex;

use super::node::hub::Hub;
use super::orchestrator::Orchestrator;
use super::protocol::{self, NodeState, Reply, Request, unexpected};
use crate::Host;

/// Agents that are asked at once.
const ASKED_AT_ONCE: usize = 16;
/// An agent in lines of logs.
const AGENT: &str = "agent of burst buffers";

impl Orchestrator<'_> {
    /// The way to agents.
    fn agents(&self, node: &str) -> Result<(&Hub, &Host)> {
        let hub = self.actions.hub().ok_or_else(|| {
            Fault::new(Code::NoSuchNode)
                .subject(node.to_owned())
                .why("the orchestrator runs without --listen, so it has no agents")
                .data("nothing was changed")
        })?;
        Ok((hub, self.actions.host))
    }

    /// Lines of the log of the agent of a node, or of this process.
    pub(super) fn log_lines(&self, node: Option<&str>, request: &LogLinesReq) -> Result<Reply> {
        let answer = match node {
            None => log_lines::handle(request)?,
            Some(node) => {
                let (hub, host) = self.agents(node)?;
                hub.ask_about_log(host, node, &NodeLogLinesReq(request.clone()))?
            }
        };
        Ok(Reply::LogLines(answer))
    }

    /// Level of the log of the agent of a node, or of this process.
    pub(super) fn log_level(&self, node: Option<&str>, request: &LogLevelReq) -> Result<Reply> {
        let answer = match node {
            None => log_level::change("root of this host", "", request)?,
            Some(node) => {
                let (hub, host) = self.agents(node)?;
                hub.ask_about_log(host, node, &NodeLogLevelReq(request.clone()))?
            }
        };
        Ok(Reply::LogLevel(answer))
    }
}

/// The orchestrator or an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its host.
    pub host: String,
    /// Whether it is an agent.
    pub is_agent: bool,
    /// Why it cannot be asked; empty where it can.
    pub silent: String,
}

impl Process {
    /// Word for it in lines of logs.
    pub fn word(&self) -> &'static str {
        if self.is_agent { AGENT } else { logs::ORCHESTRATOR }
    }

    fn node(&self) -> Option<String> {
        self.is_agent.then(|| self.host.clone())
    }

    fn trouble(&self, why: String) -> TroubleView {
        TroubleView { target: self.word().to_owned(), host: self.host.clone(), why }
    }
}

/// Lines that were read already: the process of a host, and the number of its last line.
#[derive(Clone, Debug, Default)]
pub struct Read(BTreeMap<(String, bool), (u64, u64)>);

/// The orchestrator behind a socket, which runs on this host, and its agents. Nodes that were given up are left out.
pub fn processes(socket: &Path) -> Result<Vec<Process>> {
    match protocol::ask(socket, &Request::Nodes, Duration::ZERO)? {
        Reply::Nodes(nodes) => Ok(processes_of(&crate::name(), nodes)),
        other => Err(unexpected(&other)),
    }
}

fn processes_of(here: &str, nodes: Vec<NodeState>) -> Vec<Process> {
    let own = Process { host: here.to_owned(), is_agent: false, silent: String::new() };
    let agents = nodes.into_iter().filter(|node| !matches!(node.state.as_str(), "local" | "forgotten"));
    let agent = |node: NodeState| {
        let silent = match node.state.as_str() {
            "up" => String::new(),
            state => format!("its agent is {state}"),
        };
        Process { host: node.name, is_agent: true, silent }
    };
    std::iter::once(own).chain(agents.map(agent)).collect()
}

/// Lines of the logs of these processes, after the lines `read`, which are continued.
pub fn read(socket: &Path, processes: &[Process], query: &Query, read: &mut Read) -> LogView {
    let (next, view) = (AtomicUsize::new(0), Mutex::new((LogView::default(), Read::default())));
    let before = &*read;
    let work = || {
        while let Some(process) = processes.get(next.fetch_add(1, Ordering::Relaxed)) {
            let key = (process.host.clone(), process.is_agent);
            let known = before.0.get(&key).copied();
            let asked = match process.silent.as_str() {
                "" => lines_behind(socket, process, query, known),
                silent => Err(Fault::new(Code::NodeAway).what(silent.to_owned())),
            };
            let mut view = view.lock();
            match asked {
                Ok((answer, from)) => {
                    view.1.0.insert(key, (answer.process, answer.next.saturating_sub(1)));
                    view.0.merge(logs::of_process(&process.host, process.word(), answer, from));
                }
                Err(fault) => view.0.troubles.push(process.trouble(logs::why(&fault))),
            }
        }
    };
    std::thread::scope(|scope| {
        (0..processes.len().min(ASKED_AT_ONCE)).for_each(|_| drop(scope.spawn(work)));
    });
    let (mut view, now) = view.into_inner();
    read.0.extend(now.0);
    view.troubles.sort_by(|a, b| (&a.host, &a.target).cmp(&(&b.host, &b.target)));
    view
}

/// Lines of a process behind those that were read, and the number of the last one of those: 0 where it was started anew.
fn lines_behind(
    socket: &Path,
    process: &Process,
    query: &Query,
    known: Option<(u64, u64)>,
) -> Result<(LogLinesResp, u64)> {
    let ask = |after| {
        let Query { severity, text, lines_max } = query.clone();
        let lines = LogLinesReq { after, lines_max, severity, text };
        match protocol::ask(socket, &Request::LogLines { node: process.node(), lines }, Duration::ZERO)? {
            Reply::LogLines(answer) => Ok(answer),
            other => Err(unexpected(&other)),
        }
    };
    let Some((number, up_to)) = known else { return Ok((ask(0)?, 0)) };
    let answer = ask(up_to)?;
    match answer.process == number {
        true => Ok((answer, up_to)),
        false => Ok((ask(0)?, 0)),
    }
}

/// Level of the log of a process; a new one where one is given.
pub fn level(socket: &Path, process: &Process, level: Option<String>) -> Result<LogLevelResp> {
    if !process.silent.is_empty() {
        return Err(Fault::new(Code::NodeAway)
            .what("cannot ask for the level of the log on node")
            .subject(process.host.clone())
            .why(process.silent.clone())
            .data("nothing was changed"));
    }
    let request = Request::LogLevel { node: process.node(), level: LogLevelReq { level } };
    match protocol::ask(socket, &request, Duration::ZERO)? {
        Reply::LogLevel(answer) => Ok(answer),
        other => Err(unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_that_are_away_are_named_and_those_given_up_are_not() {
        let node = |name: &str, state: &str| NodeState {
            name: name.to_owned(),
            address: String::new(),
            state: state.to_owned(),
            buffers: Vec::new(),
            reason: String::new(),
        };
        let nodes = vec![node("h1", "local"), node("h2", "up"), node("h3", "away"), node("h4", "forgotten")];
        let process = |host: &str, is_agent, silent: &str| Process {
            host: host.to_owned(),
            is_agent,
            silent: silent.to_owned(),
        };
        assert_eq!(
            processes_of("h1", nodes),
            [process("h1", false, ""), process("h2", true, ""), process("h3", true, "its agent is away")]
        );
        // The one that is away is told of without a question; nobody listens here.
        let mut seen = Read::default();
        let query =
            Query { severity: brindle_wire::log_lines::Severity::Warn, text: String::new(), lines_max: 1 };
        let away = [process("h3", true, "its agent is away")];
        let view = read(Path::new("/nowhere/bb.sock"), &away, &query, &mut seen);
        assert!(view.lines.is_empty() && view.troubles.len() == 1, "{view:?}");
        assert!(view.troubles[0].host == "h3" && view.troubles[0].why.contains("away"), "{view:?}");
    }
}
