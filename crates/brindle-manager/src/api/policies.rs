//! Policies: what the engine does, on and off, previews.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};

use super::tasks::{self, Progress};
use super::views::ActReq;
use super::{Call, Nothing};
use crate::plan::PlanView;
use crate::policies::{self, LastPreviewView, PoliciesView, Text};

/// What the engine does and has done.
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
    tasks::begin(&call, plan, "policy.preview".to_owned(), false, move |progress: Progress| async move {
        let manager = progress.manager();
        text.preview(&manager.managed, &manager.previews, manager.seams.wall().secs).await
    })
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
    let planned = policies::switch(managed, name, is_on, true).await?;
    if request.dry_run || !planned.changes {
        return Ok(planned);
    }
    let noted = if is_on { "policy.enable" } else { "policy.disable" };
    tasks::at_once(&call, noted, name, policies::switch(managed, name, is_on, false)).await
}
