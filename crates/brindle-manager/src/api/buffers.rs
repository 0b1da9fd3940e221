//! Burst buffers: the list, and requests for one of them.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::quota::QuotaOwner;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tasks::{self, Progress};
use super::views::ActReq;
use super::{Call, Nothing};
use crate::buffers::{Ask, BurstBuffersView};
use crate::plan::PlanView;
use crate::tasks::Room;

/// Another size of a buffer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeReq {
    /// New size, rounded up to granules of the pool.
    pub bytes: u64,
    /// Says what would be done, and changes nothing.
    pub dry_run: bool,
}

/// Pools and buffers.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<BurstBuffersView> {
    let manager = &call.manager;
    let mut view = manager.managed.orchestrator.view(|uid| uid.to_string()).await?;
    let uids = view.buffers.iter().map(|buffer| buffer.buffer.uid).collect();
    let known = manager.names.of(QuotaOwner::User, uids).await?;
    for buffer in &mut view.buffers {
        if let Some(name) = known.get(&buffer.buffer.uid) {
            buffer.user.clone_from(name);
        }
    }
    Ok(view)
}

/// Plans to stage the files of a kept buffer out, or begins it.
pub async fn retry(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    act(&call, Ask::Retry, request.dry_run).await
}

/// Plans another size, or begins it.
pub async fn resize(call: Arc<Call>, request: ResizeReq) -> Result<PlanView> {
    act(&call, Ask::Resize(request.bytes), request.dry_run).await
}

/// Plans to destroy a buffer with all it holds, or begins it.
pub async fn destroy(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    act(&call, Ask::Destroy, request.dry_run).await
}

/// Plans to drain a brick or to give it buffers again, or does it.
pub async fn drain(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    let is_draining = match call.param("action") {
        "drain" => true,
        "undrain" => false,
        other => {
            return Err(Fault::new(Code::UnknownResource)
                .what("a brick has no action called")
                .subject(other.to_owned())
                .next("drain, undrain"));
        }
    };
    let (pool, brick) = (call.param("pool").to_owned(), call.param("brick").to_owned());
    let plan = call.manager.managed.orchestrator.plan_drain(&pool, &brick, is_draining).await?;
    if request.dry_run || !plan.changes {
        return Ok(plan);
    }
    let noted = if is_draining { "brick.drain" } else { "brick.undrain" };
    let (manager, subject) = (call.manager.clone(), brick.clone());
    let draining =
        async move { manager.managed.orchestrator.drain(&pool, &brick, is_draining).await.map(|_| plan) };
    tasks::at_once(&call, noted, subject, draining).await
}

async fn act(call: &Call, asked: Ask, dry_run: bool) -> Result<PlanView> {
    let name = call.param("buffer").to_owned();
    let plan = call.manager.managed.orchestrator.plan(&name, asked).await?;
    let user = call.doer().user;
    if dry_run || !plan.changes {
        call.manager.shown.note(&user, &plan);
        return Ok(plan);
    }
    // Meanwhile it may have come to hold the only copy of something.
    if asked == Ask::Destroy {
        call.manager.shown.check(&user, &plan)?;
    }
    let noted = format!("buffer.{}", asked.word());
    tasks::begin(call, plan, noted, Room::Files, true, move |progress: Progress| async move {
        tokio::select! {
            done = progress.manager().managed.orchestrator.carry_out(&name, asked) => done,
            () = progress.cancelled() => {
                Err(Fault::new(Code::BufferBusy)
                    .what("no longer waited for")
                    .subject(name.clone())
                    .why("the task was given up")
                    .data("the orchestrator goes on with it to its end")
                    .next("see what came of it: brindle bb list"))
            }
        }
    })
}
