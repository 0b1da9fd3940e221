//! Policies: what the engine does, on and off, previews.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};

use schemars::JsonSchema;
use serde::Deserialize;

use super::tasks::{self, Progress};
use super::views::ActReq;
use super::{Call, Nothing};
use crate::access::Role;
use crate::plan::PlanView;
use crate::policies::{self, LastPreviewView, PoliciesView, Text};
use crate::policy_text::{self, CheckedView, Confirming, PolicyTextView, Saving};
use crate::tasks::Room;

/// State and history of the engine.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<PoliciesView> {
    policies::view(&call.manager.managed).await
}

/// The last preview.
pub async fn last_preview(call: Arc<Call>, _: Nothing) -> Result<LastPreviewView> {
    Ok(call.manager.previews.last())
}

/// A preview of the engine's text, or of another one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewReq {
    /// A text as it would stand in the engine's file, which needs an administrator; the engine's own without it.
    #[serde(default)]
    pub text: Option<String>,
    /// Says what would be done, and looks at nothing.
    pub dry_run: bool,
}

/// A text that is not saved.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckReq {
    /// The text.
    pub text: String,
}

/// A text that is to be saved.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveTextReq {
    /// The text.
    pub text: String,
    /// Version of the text from which it was made.
    pub version: String,
    /// Says what would be done, and changes nothing.
    pub dry_run: bool,
}

/// A text that may delete.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmReq {
    /// The sum over its words, as its preview shows it.
    pub sum: String,
    /// Says what would be done, and changes nothing.
    pub dry_run: bool,
}

/// The text of the engine.
pub async fn text(call: Arc<Call>, _: Nothing) -> Result<PolicyTextView> {
    policy_text::view(&call.manager.managed).await
}

/// Says whether a text is understood.
pub async fn check(call: Arc<Call>, request: CheckReq) -> Result<CheckedView> {
    policy_text::check(&call.manager.managed, request.text).await
}

/// Plans to replace the engine's text, or does it.
pub async fn save(call: Arc<Call>, request: SaveTextReq) -> Result<PlanView> {
    let saving = Saving::plan(&call.manager.managed, request.text, request.version).await?;
    if request.dry_run || !saving.plan.changes {
        return Ok(saving.plan);
    }
    tasks::at_once(&call, "policy.save", saving.plan.target.clone(), saving.save()).await
}

/// Plans to allow what the engine's text deletes, or does it.
pub async fn confirm(call: Arc<Call>, request: ConfirmReq) -> Result<PlanView> {
    let last = call.manager.previews.last().preview;
    let confirming = Confirming::plan(&call.manager.managed, request.sum, last).await?;
    if request.dry_run || !confirming.plan.changes {
        return Ok(confirming.plan);
    }
    tasks::at_once(&call, "policy.confirm", confirming.plan.target.clone(), confirming.confirm()).await
}

/// Plans a preview of the engine's text or of another one, or begins it.
pub async fn preview(call: Arc<Call>, request: PreviewReq) -> Result<PlanView> {
    // Includes of a text are read with the rights of the manager, and mistakes quote them.
    if request.text.is_some() && call.caller()?.role < Role::Administrator {
        return Err(Fault::new(Code::RoleForbids)
            .what("may not preview a text that is not in force:")
            .subject(call.caller()?.session.user.clone())
            .why("the role administrator is needed")
            .data("nothing was changed"));
    }
    let text = Text::of(&call.manager.managed, request.text).await?;
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
