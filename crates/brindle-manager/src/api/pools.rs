//! Pools of OSTs.

use std::sync::Arc;

use brindle_admin::pool::PoolsView;
use brindle_types::Result;

use super::tasks;
use super::{Call, Nothing};
use crate::plan::PlanView;
use crate::pools::{self, Change, PoolReq, Verb};

/// All pools.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<PoolsView> {
    pools::list(&call.manager.managed).await
}

/// Plans a change of a pool, or makes it.
pub async fn change(call: Arc<Call>, request: PoolReq) -> Result<PlanView> {
    let verb = call.param("action").parse::<Verb>()?;
    let change = Change::of(call.param("pool"), verb, &request)?;
    let plan = change.plan(&call.manager.managed).await?;
    if request.dry_run || !plan.changes {
        return Ok(plan);
    }
    let (manager, name) = (call.manager.clone(), change.name());
    let noted = match verb {
        Verb::Create => "pool.create",
        Verb::Add => "pool.add",
        Verb::Remove => "pool.remove",
        Verb::Destroy => "pool.destroy",
    };
    let making = async move { change.make(&manager.managed).await.map(|()| plan) };
    tasks::at_once(&call, noted, name, making).await
}
