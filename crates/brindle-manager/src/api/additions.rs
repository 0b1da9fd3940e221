//! Requests that make a cluster grow.

use std::sync::Arc;

use brindle_types::Result;

use super::Call;
use super::tasks::{self, Progress};
use crate::actions::Tell;
use crate::additions::{self, AddTargetReq, JoinTokenReq, JoinTokenView};
use crate::plan::PlanView;
use crate::tasks::Room;

/// Makes a token for a host that is to join.
pub async fn join_token(call: Arc<Call>, request: JoinTokenReq) -> Result<JoinTokenView> {
    let manager = call.manager.clone();
    let subject = format!("{} {}", request.roles, request.host).trim_end().to_owned();
    let making = async move { additions::join_token(&manager.managed, &request).await };
    tasks::at_once(&call, "host.token", subject, making).await
}

/// Plans a new target, or begins to add it.
pub async fn add_target(call: Arc<Call>, request: AddTargetReq) -> Result<PlanView> {
    let addition = additions::plan(&call.manager.managed, &request).await?;
    if request.dry_run {
        return Ok(addition.view);
    }
    let view = addition.view.clone();
    let work = move |progress: Progress| async move {
        let told = progress.clone();
        let tell: Tell = Arc::new(move |line| told.tell(line));
        let manager = progress.manager();
        let outcome = additions::carry_out(&manager.managed, &addition, &tell).await;
        // When the task is shown as ended, its effect must be visible in the state, too.
        manager.look().await;
        outcome
    };
    tasks::begin(&call, view, "target.add".to_owned(), Room::Targets, false, work)
}
