//! statfs: the space of all OSTs and the inodes of the MDT, or of a project.

use std::collections::BTreeSet;

use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Ino, Role, TargetId};
use brindle_wire::mds::quota::{QuotaOwner, QuotaShowReq, QuotaShowResp, QuotaSubject};
use brindle_wire::mds::statfs::{MdtStatfsReq, MdtStatfsResp};
use brindle_wire::oss::statfs::{OstStatfsReq, OstStatfsResp};
use futures_util::future::join_all;

use crate::{Client, Ctx};

/// An OST that does not answer in this time is left out of the sum.
const OST_TIMEOUT_MS: u64 = 2_000;

/// Space of a file system, or of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes still available to users.
    pub available_bytes: u64,
    /// Inodes in all.
    pub total_inodes: u64,
    /// Inodes that would still fit.
    pub free_inodes: u64,
}

/// Space of each target, as far as they answer.
#[derive(Clone, Debug)]
pub struct Spaces {
    /// The MDT.
    pub mdt: MdtStatfsResp,
    /// The OSTs in order; `None` for those that did not answer.
    pub osts: Vec<(TargetId, Option<OstStatfsResp>)>,
}

impl Space {
    /// Space that the limits of a project leave. The hard limit counts; without one, the soft limit.
    fn of_project(self, shown: &QuotaShowResp) -> Space {
        let limits = shown.limits;
        let limit =
            |hard: u64, soft: u64| [hard, soft].into_iter().find(|limit| *limit > 0).unwrap_or(u64::MAX);
        let bytes = limit(limits.bytes_max, limits.bytes_soft);
        let inodes = limit(limits.inodes_max, limits.inodes_soft);
        Space {
            total_bytes: self.total_bytes.min(bytes),
            available_bytes: self.available_bytes.min(bytes.saturating_sub(shown.bytes)),
            total_inodes: self.total_inodes.min(inodes),
            free_inodes: self.free_inodes.min(inodes.saturating_sub(shown.inodes)),
        }
    }
}

impl Client {
    /// Space as a program in a directory has it: that of the directory's project, where it is inherited and space of projects is limited.
    pub async fn statfs_in(&self, ctx: &Ctx, ino: Ino) -> Result<Space, Fault> {
        let space = self.statfs().await?;
        if !self.limits.limits_projects() {
            return Ok(space);
        }
        let project = match self.project(ino).await {
            // The directory was removed.
            Err(fault) if fault.code == Code::NotFound => return Ok(space),
            project => project?,
        };
        if !project.inherits || project.id == 0 {
            return Ok(space);
        }
        let subject = QuotaSubject::Owner { owner: QuotaOwner::Project, id: project.id };
        let shown = self.mds.ask(&QuotaShowReq { subject, cred: ctx.cred.clone() }).await?;
        Ok(space.of_project(&shown))
    }

    /// Space of the file system: bytes of the OSTs (each device once), inodes of the MDT.
    pub async fn statfs(&self) -> Result<Space, Fault> {
        let spaces = self.spaces().await?;
        let mut devices = BTreeSet::new();
        let answered = spaces.osts.iter().filter_map(|(_, space)| space.as_ref());
        let distinct = answered.filter(|space| devices.insert(space.device_id));
        let (total_bytes, available_bytes) = distinct.fold((0u64, 0u64), |(total, available), space| {
            (total.saturating_add(space.total_bytes), available.saturating_add(space.available_bytes))
        });
        let mdt = &spaces.mdt;
        Ok(Space {
            total_bytes,
            available_bytes,
            total_inodes: mdt.inodes_used.saturating_add(mdt.inodes_free),
            free_inodes: mdt.inodes_free,
        })
    }

    /// Space of each target.
    pub async fn spaces(&self) -> Result<Spaces, Fault> {
        let mdt = self.mds.ask(&MdtStatfsReq {}).await?;
        let map = self.map();
        let osts = map.targets.iter().map(|t| t.id).filter(|id| id.role == Role::Ost);
        let asking = osts.map(|id| -> BoxFuture<'_, _> {
            Box::pin(async move {
                let ask = async { self.ost(id.index).await?.ask(&OstStatfsReq {}).await };
                (id, self.seams.timeout_ms(OST_TIMEOUT_MS, ask).await.and_then(Result::ok))
            })
        });
        Ok(Spaces { mdt, osts: join_all(asking).await })
    }
}

#[cfg(test)]
mod tests {
    use brindle_wire::mds::quota::QuotaLimits;

    use super::*;

    #[test]
    fn a_project_has_no_more_than_its_limits() {
        let all = Space { total_bytes: 1000, available_bytes: 500, total_inodes: 100, free_inodes: 50 };
        let limits = QuotaLimits { bytes_max: 0, bytes_soft: 400, inodes_max: 90, inodes_soft: 10 };
        let shown = QuotaShowResp { bytes: 300, inodes: 89, limits, ..QuotaShowResp::default() };
        let expected = Space { total_bytes: 400, available_bytes: 100, total_inodes: 90, free_inodes: 1 };
        assert_eq!(all.of_project(&shown), expected);
        let over = QuotaShowResp { bytes: 700, ..shown };
        assert_eq!(all.of_project(&over).available_bytes, 0);
        assert_eq!(all.of_project(&QuotaShowResp::default()), all, "no limits");
    }
}
