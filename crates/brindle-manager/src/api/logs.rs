//! The logs of servers, of mounts and agents, of burst buffers, and of the manager.

use std::sync::Arc;

use brindle_admin::logs::{self, LogView, Query, Read, TroubleView};
use brindle_types::{Code, Fault, Result, TargetId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Call;

/// Lines of each process, where nobody says how many.
const LINES_DEFAULT: u32 = 200;

/// Processes whose logs are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Of {
    /// Servers.
    #[default]
    Servers,
    /// Mounts, agents of tiering, engines of policies.
    Mounts,
    /// The orchestrator of burst buffers on the manager's host, and its agents.
    Buffers,
    /// The manager.
    Manager,
    /// All of them.
    All,
}

/// Name of the manager in the lines of its log.
const MANAGER: &str = "manager";

/// Choice of lines of the logs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogReq {
    /// `error`, `warn`, `info`, `debug` or `trace`: lines of this importance or a greater one.
    pub level: String,
    /// Only lines with this text in them: a code, a part of a message; empty for all.
    #[serde(default)]
    pub text: String,
    /// Only lines of processes on this host; empty for all.
    #[serde(default)]
    pub host: String,
    /// Processes: `servers`, `mounts` (with agents and policy engines), `buffers` (the orchestrator of burst buffers and its agents), `manager` or `all`.
    #[serde(default)]
    pub of: Of,
    /// Most lines of each process, the newest; 200 if not given.
    pub lines: Option<u32>,
}

/// Lines of the logs.
pub async fn read(call: Arc<Call>, request: LogReq) -> Result<LogView> {
    let severity = logs::severity(&request.level).ok_or_else(|| {
        Fault::new(Code::BadArgument)
            .what("there is no level of a log called")
            .subject(request.level.clone())
            .next("error, warn, info, debug, trace")
    })?;
    let lines_max = request.lines.unwrap_or(LINES_DEFAULT);
    let query = Query { severity, text: request.text, lines_max };
    let mut view = LogView::default();
    let is_meant = |host: &str| request.host.is_empty() || request.host == host;
    let here = brindle_host::name();
    if matches!(request.of, Of::Manager | Of::All) && is_meant(&here) {
        view.merge(logs::own(MANAGER, &here, &query)?);
    }
    let managed = &call.manager.managed;
    let orchestrator = &managed.orchestrator;
    if request.of == Of::Buffers {
        view.merge(orchestrator.logs(&request.host, &query).await?);
    } else if request.of == Of::All && orchestrator.is_here() {
        match orchestrator.logs(&request.host, &query).await {
            Ok(lines) => view.merge(lines),
            // The lines of all others are shown.
            Err(fault) => {
                let (target, why) = (logs::ORCHESTRATOR.to_owned(), logs::why(&fault));
                view.troubles.push(TroubleView { target, host: here, why });
            }
        }
    }
    if matches!(request.of, Of::Manager | Of::Buffers) {
        return Ok(view);
    }
    let (map, _) = managed.servers.map(&managed.place()?).await?;
    let read = &mut Read::default();
    if matches!(request.of, Of::Servers | Of::All) {
        let targets: Vec<TargetId> =
            map.targets.iter().filter(|entry| is_meant(entry.host())).map(|entry| entry.id).collect();
        view.merge(logs::read(&managed.servers, &map, &targets, &query, read).await);
    }
    if matches!(request.of, Of::Mounts | Of::All) {
        let mounts = logs::mounts(&managed.servers, &map, &request.host).await?;
        view.merge(logs::read_mounts(&managed.servers, &map, &mounts, &query, read).await);
    }
    Ok(view)
}
