//! Questions about usage, limits and projects.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::quota::{QuotaChangeReq, QuotaListReq, QuotaSetReq, QuotaShowReq, QuotaUseReq};

use super::{Answer, Request, scan};
use crate::{Client, Ctx};

/// Answers one of them.
pub(super) async fn answer(client: &Client, ctx: &Ctx, request: Request) -> Result<Answer, Fault> {
    let (mds, cred) = (&client.mds, ctx.cred.clone());
    match request {
        Request::Quota { owner, id } => mds.ask(&QuotaUseReq { owner, id, cred }).await.map(Answer::Quota),
        Request::SetQuota { owner, id, inodes_max, bytes_max } => {
            let request = QuotaSetReq { owner, id, inodes_max, bytes_max, cred };
            mds.ask(&request).await.map(Answer::Quota)
        }
        Request::QuotaShow { subject } => {
            mds.ask(&QuotaShowReq { subject, cred }).await.map(Answer::QuotaShow)
        }
        Request::QuotaChange { subject, change, dry_run } => {
            let request = QuotaChangeReq { subject, change, dry_run, cred };
            mds.ask(&request).await.map(Answer::QuotaShow)
        }
        Request::QuotaList { owner, behind } => {
            mds.ask(&QuotaListReq { owner, behind, cred }).await.map(Answer::QuotaList)
        }
        Request::Project { ino } => client.project(Ino(ino)).await.map(Answer::Project),
        Request::SetProject { ino, id, inherits } => {
            client.set_project(ctx, Ino(ino), id, inherits).await.map(Answer::Project)
        }
        _ => Err(scan::not_one_answer()),
    }
}
