//! Scrubs of OSTs.

use std::sync::Arc;

use brindle_admin::scrub::ScrubsView;
use brindle_types::Result;

use super::tasks;
use super::views::ActReq;
use super::{Call, Nothing};
use crate::plan::PlanView;
use crate::scrubs::{self, Verb};

/// Scrubs of all OSTs.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<ScrubsView> {
    scrubs::list(&call.manager.managed).await
}

/// Plans an order to a scrub, or gives it.
pub async fn act(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    let (target, verb) = (call.param("target").to_owned(), call.param("action").parse::<Verb>()?);
    let plan = scrubs::plan(&call.manager.managed, &target, verb).await?;
    if request.dry_run || !plan.changes {
        return Ok(plan);
    }
    let manager = call.manager.clone();
    let noted = match verb {
        Verb::Start => "scrub.start",
        Verb::Stop => "scrub.stop",
    };
    let subject = target.clone();
    let ordering = async move { scrubs::order(&manager.managed, &target, verb).await.map(|()| plan) };
    tasks::at_once(&call, noted, subject, ordering).await
}
