//! Policies: what the engine does, on and off, previews.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};

use super::tasks::{self, Progress};
use super::views::ActReq;
use super::{Call, Nothing};
use crate::access::Role;
use crate::plan::PlanView;
use crate::policies::{self, LastPreviewView, PoliciesView, Text};
use crate::tasks::Room;

/// State and history of the engine.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<PoliciesView> {
    policies::view(&call.manager.managed).await
}

/// The last preview.
pub async fn last_preview(call: Arc<Call>, _: Nothing) -> Result<LastPreviewView> {
    Ok(call.manager.previews.last())
}

/// Plans a preview of the engine's text, or begins it.
pub async fn preview(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    let text = Text::of(&call.manager.managed).await?;
    let plan = text.plan();
    if request.dry_run {
        return Ok(plan);
    }
    tasks::begin(
        &call,
        plan,
        "policy.preview".to_owned(),
        Room::Files,
        true,
        move |progress: Progress| async move { text.preview(&progress).await },
    )
}

/// Plans to switch a policy on or off, or does it.
pub async fn switch(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    let (managed, name) = (&call.manager.managed, call.param("policy"));
    let is_on = match call.param("action") {
        "enable" => true,
        "disable" => false,
        other => {
            return Err(Fault::new(Code::UnknownResource)
                .what("a policy has no action called")
                .subject(other.to_owned())
                .next("enable, disable"));
        }
    };
    // A policy may be off because its text is wrong; on, it may delete at once.
    if is_on && policies::may_delete(managed, name).await? && call.caller()?.role < Role::Administrator {
        return Err(Fault::new(Code::RoleForbids)
            .what("may not switch on a policy that deletes:")
            .subject(name.to_owned())
            .why("the role administrator is needed")
            .data("nothing was changed"));
    }
    let planned = policies::switch(managed, name, is_on, true).await?;
    if request.dry_run || !planned.changes {
        return Ok(planned);
    }
    let noted = if is_on { "policy.enable" } else { "policy.disable" };
    let (manager, subject) = (call.manager.clone(), name.to_owned());
    let named = subject.clone();
    let switching = async move { policies::switch(&manager.managed, &named, is_on, false).await };
    tasks::at_once(&call, noted, subject, switching).await
}
