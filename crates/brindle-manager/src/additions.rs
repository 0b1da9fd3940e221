//! Growth of a cluster: tokens for hosts that are to join, and targets on hosts that have joined.

use brindle_admin::hosts::{self, HOSTED_LIMIT_MS, NewTokenView, until_hosted};
use brindle_admin::place::FsLocation;
use brindle_types::{Code, Fault, FsName, Result, Role, TargetId};
use brindle_wire::mgs::hosts::HostChange;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::actions::Tell;
use crate::cluster::Managed;
use crate::plan::{PlanView, quoted};

/// Longest life of a token.
const TOKEN_HOURS_MAX: u32 = 7 * 24;

/// A token for a host that is to join.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinTokenReq {
    /// Roles of the host, with commas: `server`, `client`, `agent`, `admin`.
    pub roles: String,
    /// Name of the host; empty for any.
    #[serde(default)]
    pub host: String,
    /// For how many hours it can be used.
    pub hours: u32,
}

/// A new token, and where to type it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JoinTokenView {
    /// The token: a secret, which is shown this once.
    #[serde(flatten)]
    pub token: NewTokenView,
    /// The command for the new host; it asks for the token.
    pub command: String,
    /// The command that makes such a token.
    pub same: String,
}

/// Makes a token.
pub async fn join_token(managed: &Managed, request: &JoinTokenReq) -> Result<JoinTokenView> {
    if !(1..=TOKEN_HOURS_MAX).contains(&request.hours) {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot make the token")
            .why(format!("it lives for 1 to {TOKEN_HOURS_MAX} hours, not {}", request.hours))
            .data("nothing was changed"));
    }
    let place = managed.place()?;
    let lifetime_s = u64::from(request.hours) * 3_600;
    let made = managed.servers.create_token(&place, &request.roles, &request.host, lifetime_s).await?;
    let mgs: Vec<String> = place.mgs.iter().map(ToString::to_string).collect();
    let host =
        if request.host.is_empty() { String::new() } else { format!(" --host {}", quoted(&request.host)) };
    Ok(JoinTokenView {
        token: hosts::new_token(&request.roles, made),
        command: format!("brindle join {}", mgs.join(",")),
        same: format!(
            "brindle cluster token --role {}{host} --expires {}h {}",
            quoted(&request.roles),
            request.hours,
            managed.place_word(&place)
        ),
    })
}

/// A target to be added.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddTargetReq {
    /// `mdt` or `ost`.
    pub kind: String,
    /// The host, as the list of hosts names it.
    pub node: String,
    /// Directory on that host, empty or not there yet.
    pub dir: String,
    /// Says what would be, and changes nothing.
    pub dry_run: bool,
}

/// A target that can be added.
#[derive(Clone, Debug)]
pub struct Addition {
    /// For people and programs.
    pub view: PlanView,
    place: FsLocation,
    fs: FsName,
    host: String,
    change: HostChange,
}

/// The plan for a new target; nothing is changed.
pub async fn plan(managed: &Managed, request: &AddTargetReq) -> Result<Addition> {
    let is_mdt = match request.kind.as_str() {
        "mdt" => true,
        "ost" => false,
        _ => {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot add a target of the kind")
                .subject(request.kind.chars().take(80).collect::<String>())
                .why("there are 'mdt' and 'ost'")
                .data("nothing was changed"));
        }
    };
    let place = managed.place()?;
    let (map, _) = managed.servers.map(&place).await?;
    let change = HostChange::AddTarget { is_mdt, index: None, dir: request.dir.clone() };
    let answer = managed.servers.change_host(&place, &request.node, change.clone(), true).await?;
    let added = answer.target.ok_or_else(|| Fault::new(Code::Bug).why("the MGS names no target"))?;
    let name = map.fs.target(added.target);
    let view = PlanView {
        target: name.clone(),
        action: "target.add".to_owned(),
        would: format!(
            "{} would format {} as {name} and serve it at port {}",
            request.node, added.dir, added.port
        ),
        effects: effects(added.target.role),
        changes: true,
        command: format!(
            "brindle target add{} --node {} --dir {} --mgsnode {}",
            if is_mdt { " --mdt" } else { "" },
            quoted(&request.node),
            quoted(&request.dir),
            place.mgs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        ),
        request: format!(
            "POST /api/v1/targets {}",
            serde_json::json!({ "kind": request.kind, "node": request.node, "dir": request.dir, "dry_run": false })
        ),
        task: None,
    };
    Ok(Addition { view, place, fs: map.fs, host: request.node.clone(), change })
}

fn effects(role: Role) -> Vec<String> {
    let used = match role {
        Role::Ost => {
            "New files use it at once. Files that are there stay where they are; 'brindle fs rebalance' spreads them."
        }
        _ => "Names lie on it.",
    };
    vec![used.to_owned(), "The directory must be empty, or not there yet: nothing is overwritten.".to_owned()]
}

/// Adds the target, and waits until it is served; the result in a sentence.
pub async fn carry_out(managed: &Managed, addition: &Addition, tell: &Tell) -> Result<String> {
    let Addition { place, fs, host, change, .. } = addition;
    let answer = managed.servers.change_host(place, host, change.clone(), false).await?;
    let target: TargetId =
        answer.target.ok_or_else(|| Fault::new(Code::Bug).why("the MGS names no target"))?.target;
    let name = fs.target(target);
    tell(format!("{host} was told to make {name}"));
    let told = tell.clone();
    let progress = move |view: &hosts::HostedView| told(format!("{}: {}", view.name, view.state));
    let waited = until_hosted(&managed.servers, place, fs, (host, target), HOSTED_LIMIT_MS, progress).await;
    let (view, failure) = waited?;
    hosts::outcome(&view, failure, host, target)?;
    Ok(format!("{name}: {} on {host}", view.state))
}
