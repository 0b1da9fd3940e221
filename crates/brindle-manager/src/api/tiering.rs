//! Tiering: agents and queue, and requests for paths.

use std::sync::Arc;

use brindle_admin::hsm::{self, HsmListView, HsmStatusView};
use brindle_types::{Code, Fault, Fid, Result};
use brindle_wire::Cred;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tasks::{self, Progress};
use super::{Call, Nothing};
use crate::plan::PlanView;
use crate::tasks::Room;
use crate::tiering::{self, Asked, Verb, What};

/// Request for a path, or for a file of the queue.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HsmReq {
    /// A file, or a directory with everything below it: from the root of the file system, or below a mount on the manager's host.
    pub path: Option<String>,
    /// A file by its FID, as the queue has it.
    pub fid: Option<String>,
    /// The archive; 0 for the one that a file has, or archive 1.
    #[serde(default)]
    pub archive: u32,
    /// Says what would be done, and changes nothing.
    pub dry_run: bool,
}

/// Agents, queue and backlog.
pub async fn status(call: Arc<Call>, _: Nothing) -> Result<HsmStatusView> {
    let managed = &call.manager.managed;
    hsm::status(&managed.servers, &managed.place()?, &Cred::default()).await
}

/// Actions that wait, run, or ended a moment ago: the first thousand of each MDT.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<HsmListView> {
    let managed = &call.manager.managed;
    hsm::list(&managed.servers, &managed.place()?, &Cred::default(), false).await
}

/// Plans archive, release, restore or cancel, or begins it.
pub async fn act(call: Arc<Call>, request: HsmReq) -> Result<PlanView> {
    let verb: Verb = call.param("action").parse()?;
    let managed = &call.manager.managed;
    let bad = |why: &'static str| {
        Fault::new(Code::BadArgument)
            .what("cannot understand what is asked for")
            .why(why)
            .data("nothing was changed")
    };
    let what = match (&request.path, &request.fid) {
        (Some(path), None) => What::Path(managed.name(&managed.place()?, path)?),
        (None, Some(text)) => {
            let fid: Fid = text.parse().map_err(|why: String| bad("").why(why))?;
            What::File(fid.ino().ok_or_else(|| bad("no file has this FID"))?, fid.to_string())
        }
        _ => return Err(bad("either path or fid is named")),
    };
    tiering::check_archive(request.archive)?;
    let asked = Asked { verb, what, archive: request.archive };
    let plan = tiering::plan(managed, &asked).await?;
    if request.dry_run || !plan.changes {
        return Ok(plan);
    }
    let noted = format!("hsm.{}", verb.word());
    tasks::begin(&call, plan, noted, Room::Files, true, move |progress: Progress| async move {
        tiering::carry_out(&progress.manager().managed, &asked, &progress).await
    })
}
