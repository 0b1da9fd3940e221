//! The state of the cluster, its history, and what is done to targets.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::views::ActReq;
use super::{Call, Nothing};
use crate::actions::{self, Action, PlanView, Tell};
use crate::live::history::{HistoryView, SPANS};
use crate::live::state::StateView;
use crate::tasks::TasksView;

/// The state, shared with whoever else is shown it.
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

/// All tasks.
pub async fn tasks(call: Arc<Call>, _: Nothing) -> Result<TasksView> {
    Ok(call.manager.tasks.view())
}

/// Plans an action on a target, or begins it.
pub async fn act(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    let manager = &call.manager;
    let (target, action) = (call.param("target").to_owned(), call.param("action").parse::<Action>()?);
    let plan = actions::plan(&manager.managed, &target, action).await?;
    if request.dry_run || !plan.view.changes {
        return Ok(plan.view);
    }
    let (doer, noted) = (call.doer(), format!("target.{}", action.verb()));
    let id = manager.tasks.begin(&plan, &doer.user)?;
    if let Err(fault) = manager.audit.note(&doer, &noted, &target, "accepted", None) {
        manager.tasks.end(id, &Err(fault.clone()));
        return Err(fault);
    }
    manager.tell_tasks();
    let (view, manager) = (PlanView { task: Some(id), ..plan.view.clone() }, manager.clone());
    tokio::spawn(async move {
        let watched = manager.clone();
        let tell: Tell = Arc::new(move |line| {
            watched.tasks.progress(id, line);
            watched.tell_tasks();
        });
        let outcome = actions::carry_out(&manager.managed, &plan, &tell).await;
        let (word, code) = match &outcome {
            Ok(_) => ("done", None),
            Err(fault) => ("failed", Some(fault.code)),
        };
        // What is shown as ended must be visible in the state, too.
        manager.look().await;
        manager.tasks.end(id, &outcome);
        manager.tell_tasks();
        if let Err(fault) = manager.audit.note(&doer, &noted, &target, word, code) {
            tracing::error!(code = %fault.code, "{fault}");
        }
    });
    Ok(view)
}
