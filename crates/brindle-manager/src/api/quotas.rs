//! Usage and limits, and the usage of the whole file system.

use std::sync::Arc;

use brindle_types::Result;
use brindle_wire::Cred;

use super::tasks::{self, Progress};
use super::views::ActReq;
use super::{Call, Nothing};
use crate::plan::PlanView;
use crate::quotas::{self, Change, QuotaListView, QuotaPlanView, QuotaReq, kind_of};
use crate::tasks::Room;
use crate::usage::{self, LastUsageView};

/// Everybody of a kind, the nearest to a limit first.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<Arc<QuotaListView>> {
    quotas::looked_at(&call.manager, kind_of(call.param("kind"))?).await
}

/// Plans other limits, or sets them.
pub async fn set(call: Arc<Call>, request: QuotaReq) -> Result<QuotaPlanView> {
    let kind = kind_of(call.param("kind"))?;
    let (managed, cred) = (&call.manager.managed, Cred::default());
    let change = Change::of(kind, &request).await?;
    let planned = change.make(managed, &cred, true).await?;
    if request.dry_run || !planned.plan.changes {
        return Ok(planned);
    }
    let (manager, who) = (call.manager.clone(), change.who());
    let setting = async move {
        let set = change.make(&manager.managed, &cred, false).await;
        manager.quota_looks.forget(kind).await;
        set
    };
    tasks::at_once(&call, "quota.set", who, setting).await
}

/// Contents of the file system, from the last look.
pub async fn usage(call: Arc<Call>, _: Nothing) -> Result<LastUsageView> {
    Ok(call.manager.usages.last())
}

/// Plans a look at everything, or begins it.
pub async fn look(call: Arc<Call>, request: ActReq) -> Result<PlanView> {
    let plan = usage::plan(&call.manager.managed)?;
    if request.dry_run {
        return Ok(plan);
    }
    let work = move |progress: Progress| async move { usage::look(&progress).await };
    tasks::begin(&call, plan, "usage.look".to_owned(), Room::Files, true, work)
}
