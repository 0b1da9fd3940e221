//! The state of the cluster, its history, and actions on targets.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::tasks::{self, Progress};
use super::views::ActReq;
use super::{Call, Nothing};
use crate::actions::{self, Action, Tell};
use crate::hardware::HostHardwareView;
use crate::live::history::{HistoryView, SPANS};
use crate::live::state::StateView;
use crate::plan::PlanView;
use crate::tasks::Room;

/// The state, shared with all other viewers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Shared(Arc<StateView>);

/// The state of the cluster.
pub async fn state(call: Arc<Call>, _: Nothing) -> Result<Shared> {
    Ok(Shared(call.manager.state()))
}

/// The samples of a span.
pub async fn history(call: Arc<Call>, _: Nothing) -> Result<HistoryView> {
    let name = call.param("span");
    let span = SPANS.into_iter().find(|span| span.name == name).ok_or_else(|| {
        Fault::new(Code::UnknownResource)
            .what("there is no history of")
            .subject(name.to_owned())
            .next(SPANS.map(|span| span.name).join(", "))
    })?;
    Ok(call.manager.history.lock().view(span))
}

/// Plans an action on a target, or begins it.
pub async fn act(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    let manager = &call.manager;
    let (target, action) = (call.param("target").to_owned(), call.param("action").parse::<Action>()?);
    let plan = actions::plan(&manager.managed, &target, action).await?;
    if request.dry_run || !plan.view.changes {
        return Ok(plan.view);
    }
    let (view, noted) = (plan.view.clone(), format!("target.{}", action.verb()));
    tasks::begin(&call, view, noted, Room::Targets, false, move |progress: Progress| async move {
        let told = progress.clone();
        let tell: Tell = Arc::new(move |line| told.tell(line));
        let manager = progress.manager();
        let outcome = actions::carry_out(&manager.managed, &plan, &tell).await;
        // When the task is shown as ended, its effect must be visible in the state, too.
        manager.look().await;
        outcome
    })
}

/// Disks, arrays and links of a host.
pub async fn hardware(call: Arc<Call>, _: Nothing) -> Result<HostHardwareView> {
    crate::hardware::of(&call.manager.managed, &call.manager.state(), call.param("host")).await
}
