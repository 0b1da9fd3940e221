//! State of tiering by the words of the MDTs: agents, the queue, waiting restores. Used by `brindle hsm status` and `list`, and by a page of the console.

use std::fmt::Write as _;

use brindle_types::{Code, Ino, Result, Role, TargetId};
use brindle_wire::Cred;
use brindle_wire::map::Map;
use brindle_wire::mds::hsm::{HsmAction, HsmAgent, HsmInfoReq, HsmInfoResp, HsmStatus};
use brindle_wire::mds::hsm_span::{HsmDivided, HsmShare, HsmSharesReq};
use brindle_wire::mds::policy::{HsmBacklog, HsmBacklogReq};
use schemars::JsonSchema;
use serde::Serialize;

use crate::place::FsLocation;
use crate::servers::Servers;
use crate::space::Spaces;

/// Tiering of a file system.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HsmStatusView {
    /// The fast tier.
    pub tier: TierView,
    /// The MDTs.
    pub mdts: Vec<MdtTieringView>,
}
document!(HsmStatusView, "brindle.hsm.status", 1);

/// Tiering at an MDT.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MdtTieringView {
    /// Name.
    pub mdt: String,
    /// enabled, disabled or stopped.
    pub control: String,
    /// Actions that wait or are under way.
    pub queued: u64,
    /// The agents.
    pub agents: Vec<AgentView>,
    /// Actions that have failed a moment ago.
    pub failed: Vec<HsmActionView>,
    /// Actions that wait or are under way, by archive and kind.
    pub backlog: Vec<BacklogView>,
    /// Long files that several agents share: those under way, then those that have ended a moment ago.
    pub divided: Vec<DividedView>,
}

/// A long file that several agents share.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DividedView {
    /// The file.
    pub fid: String,
    /// RESTORE or ARCHIVE.
    pub action: String,
    /// Whether the action goes on; otherwise it has ended a moment ago.
    pub is_running: bool,
    /// Length of the file.
    pub size_bytes: u64,
    /// Shares of the agents, as far as the MDT has heard since it started.
    pub shares: Vec<ShareView>,
}

/// Share of an agent in a long file.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ShareView {
    /// Number of the agent.
    pub uuid: String,
    /// Host of the agent.
    pub host: String,
    /// Bytes that the agent has copied.
    pub moved_bytes: u64,
}

/// Actions of one kind for one archive.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BacklogView {
    /// The archive.
    pub archive: u32,
    /// RESTORE, REMOVE or ARCHIVE.
    pub action: String,
    /// Actions that wait for an agent.
    pub waiting: u64,
    /// Actions that agents have.
    pub running: u64,
    /// How long the oldest of those that wait has waited, in seconds.
    pub oldest_waits_secs: u64,
    /// The file of that one.
    pub oldest: Option<String>,
    /// Whether an agent serves this archive.
    pub is_served: bool,
}

/// The tier: the OSTs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TierView {
    /// Bytes of the OSTs, each device once.
    pub total_bytes: u64,
    /// Of those, bytes that are used.
    pub used_bytes: u64,
}

/// An agent.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AgentView {
    /// Number.
    pub uuid: String,
    /// Host.
    pub host: String,
    /// Archives that it serves; none for any.
    pub archives: Vec<u32>,
    /// Actions that it has now.
    pub current: u32,
    /// Actions that went well since the MDT started.
    pub ok: u64,
    /// Actions that failed.
    pub errors: u64,
}

/// Actions of a file system.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HsmListView {
    /// Actions that wait or are under way, in order of FID; then those that ended a moment ago.
    pub actions: Vec<HsmActionView>,
}
document!(HsmListView, "brindle.hsm.list", 1);

/// An action.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HsmActionView {
    /// The file.
    pub fid: String,
    /// RESTORE, REMOVE or ARCHIVE.
    pub action: String,
    /// The archive.
    pub archive: u32,
    /// waiting, running, succeeded, failed or cancelled.
    pub status: &'static str,
    /// Bytes that were copied.
    pub moved_bytes: u64,
    /// Who asked.
    pub uid: u32,
    /// When, in seconds since 1970.
    pub asked_secs: i64,
    /// Why it has failed.
    pub error: Option<String>,
}

impl From<&HsmAction> for HsmActionView {
    fn from(action: &HsmAction) -> HsmActionView {
        let (status, error) = match &action.status {
            HsmStatus::Waiting => ("waiting", None),
            HsmStatus::Started => ("running", None),
            HsmStatus::Succeeded => ("succeeded", None),
            HsmStatus::Failed(fault) => ("failed", Some(fault.to_string())),
            HsmStatus::Cancelled => ("cancelled", None),
        };
        HsmActionView {
            fid: action.ino.fid().to_string(),
            action: action.kind.to_string(),
            archive: action.archive,
            status,
            moved_bytes: action.moved_bytes,
            uid: action.uid,
            asked_secs: action.asked_secs,
            error,
        }
    }
}

impl From<&HsmAgent> for AgentView {
    fn from(agent: &HsmAgent) -> AgentView {
        AgentView {
            uuid: uuid_text(&agent.agent),
            host: agent.host.clone(),
            archives: agent.archives.clone(),
            current: agent.current,
            ok: agent.ok,
            errors: agent.errors,
        }
    }
}

impl From<&HsmBacklog> for BacklogView {
    fn from(line: &HsmBacklog) -> BacklogView {
        BacklogView {
            archive: line.archive,
            action: line.kind.to_string(),
            waiting: line.waiting,
            running: line.running,
            oldest_waits_secs: line.oldest_waits_secs,
            oldest: line.oldest.map(|ino| ino.fid().to_string()),
            is_served: line.is_served,
        }
    }
}

impl From<&HsmDivided> for DividedView {
    fn from(file: &HsmDivided) -> DividedView {
        let share = |share: &HsmShare| ShareView {
            uuid: uuid_text(&share.agent),
            host: share.host.clone(),
            moved_bytes: share.moved_bytes,
        };
        DividedView {
            fid: file.ino.fid().to_string(),
            action: file.kind.to_string(),
            is_running: file.is_running,
            size_bytes: file.size_bytes,
            shares: file.shares.iter().map(share).collect(),
        }
    }
}

/// The number of an agent, in the form of a UUID.
pub fn uuid_text(number: &[u8; 16]) -> String {
    let hex: String = number.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Fullness of the OSTs, agents of archives, and waiting actions; `cred` is the caller's.
pub async fn status(servers: &Servers, place: &FsLocation, cred: &Cred) -> Result<HsmStatusView> {
    let spaces = Spaces::of(servers, place).await?;
    let sum = spaces.sum();
    let mut mdts = Vec::new();
    for target in spaces.map.targets.iter().filter(|target| target.id.role == Role::Mdt) {
        let first = HsmInfoReq { behind: None, cred: cred.clone() };
        let info = servers.ask(&spaces.map, target.id, &first).await?;
        let backlog = backlog(servers, &spaces.map, target.id, cred).await?;
        let divided = divided(servers, &spaces.map, target.id, cred).await?;
        mdts.push(MdtTieringView { divided, ..tiering_of(spaces.map.fs.target(target.id), &info, backlog) });
    }
    let used_bytes = sum.total_bytes.saturating_sub(sum.available_bytes);
    Ok(HsmStatusView { tier: TierView { total_bytes: sum.total_bytes, used_bytes }, mdts })
}

fn tiering_of(mdt: String, info: &HsmInfoResp, backlog: Vec<BacklogView>) -> MdtTieringView {
    let failed = info.finished.iter().filter(|action| matches!(action.status, HsmStatus::Failed(_)));
    MdtTieringView {
        mdt,
        control: info.control.to_string(),
        queued: info.queued,
        agents: info.agents.iter().map(AgentView::from).collect(),
        failed: failed.map(HsmActionView::from).collect(),
        backlog,
        divided: Vec::new(),
    }
}

/// Queue of an MDT; empty if its server is of a release that cannot tell.
async fn backlog(servers: &Servers, map: &Map, mdt: TargetId, cred: &Cred) -> Result<Vec<BacklogView>> {
    match servers.ask(map, mdt, &HsmBacklogReq { cred: cred.clone() }).await {
        Err(fault) if fault.code == Code::UnknownOp => Ok(Vec::new()),
        told => Ok(told?.lines.iter().map(BacklogView::from).collect()),
    }
}

/// Long files that agents share; none if the server of the MDT is of a release that divides no files.
async fn divided(servers: &Servers, map: &Map, mdt: TargetId, cred: &Cred) -> Result<Vec<DividedView>> {
    match servers.ask(map, mdt, &HsmSharesReq { cred: cred.clone() }).await {
        Err(fault) if fault.code == Code::UnknownOp => Ok(Vec::new()),
        told => Ok(told?.divided.iter().map(DividedView::from).collect()),
    }
}

/// Actions of all MDTs: those that wait or are under way, then those that have ended a moment ago. Only the first page of each MDT unless
/// `all`.
pub async fn list(servers: &Servers, place: &FsLocation, cred: &Cred, all: bool) -> Result<HsmListView> {
    let (map, _) = servers.map(place).await?;
    let mut actions = Vec::new();
    for target in map.targets.iter().filter(|target| target.id.role == Role::Mdt) {
        let ask = async |behind: Option<Ino>| {
            servers.ask(&map, target.id, &HsmInfoReq { behind, cred: cred.clone() }).await
        };
        let mut info = ask(None).await?;
        while let Some(behind) = info.next.filter(|_| all) {
            let page = ask(Some(behind)).await?;
            info.actions.extend(page.actions);
            info.next = page.next;
        }
        actions.extend(info.actions.iter().chain(&info.finished).map(HsmActionView::from));
    }
    Ok(HsmListView { actions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_agents_look_like_uuids() {
        assert_eq!(uuid_text(b"0123456789abcdef"), "30313233-3435-3637-3839-616263646566");
    }
}
