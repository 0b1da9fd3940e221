//! statfs: the space of all OSTs and the inodes of the MDT.

use std::collections::BTreeSet;

use brindle_stdx::BoxFuture;
use brindle_types::{Fault, Role, TargetId};
use brindle_wire::mds::statfs::{MdtStatfsReq, MdtStatfsResp};
use brindle_wire::oss::statfs::{OstStatfsReq, OstStatfsResp};
use futures_util::future::join_all;

use crate::Client;

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

impl Client {
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
