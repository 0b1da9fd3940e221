//! Limits of jobs, users and hosts.

use std::sync::Arc;

use brindle_admin::limits::LimitsView;
use brindle_types::Result;

use super::tasks;
use super::views::ActReq;
use super::{Call, Nothing};
use crate::limits::{self, Change, LimitReq};
use crate::plan::PlanView;

/// Limits, and what targets have held back.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<LimitsView> {
    limits::list(&call.manager.managed).await
}

/// Plans a limit, or makes it.
pub async fn add(call: Arc<Call>, request: LimitReq) -> Result<PlanView> {
    let name = limits::checked_name(call.param("name"))?.to_owned();
    let change = Change::add(&name, &request, call.manager.seams.wall().secs).await?;
    make(&call, "limit.add", name, change, request.dry_run).await
}

/// Plans to remove a limit, or does.
pub async fn remove(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    let name = limits::checked_name(call.param("name"))?.to_owned();
    let change = Change::remove(&name);
    make(&call, "limit.remove", name, change, request.dry_run).await
}

async fn make(
    call: &Call,
    noted: &'static str,
    name: String,
    change: Change,
    dry_run: bool,
) -> Result<PlanView> {
    let planned = change.make(&call.manager.managed, true).await?;
    if dry_run || !planned.changes {
        return Ok(planned);
    }
    let manager = call.manager.clone();
    let making = async move { change.make(&manager.managed, false).await };
    tasks::at_once(call, noted, name, making).await
}
