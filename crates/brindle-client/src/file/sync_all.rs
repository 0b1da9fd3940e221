//! sync_all: what sync(2) would do if the kernel told a user-space server of it (`brindle sync`).

use super::try_gather;
use crate::Client;
use brindle_stdx::BoxFuture;
use brindle_types::{Fault, Role};
use brindle_wire::mds::sync_all::SyncAllReq;
use brindle_wire::oss::sync::SyncObjectsReq;

impl Client {
    /// Makes everything durable that was acknowledged so far: on every OST, then at the MDT.
    pub async fn sync_all(&self) -> Result<(), Fault> {
        for inode in self.inodes.all() {
            if inode.lock().writers > 0 {
                self.sync_inode(&inode).await?;
            }
        }
        // Files closed before: an OST takes an empty list for all its objects.
        let map = self.map.current();
        let osts = map.targets.iter().map(|t| t.id).filter(|id| id.role == Role::Ost);
        let syncing = osts.map(|id| -> BoxFuture<'_, _> {
            Box::pin(async move {
                let everything = SyncObjectsReq { objects: Vec::new() };
                self.ost(id.index).await?.ask(&everything).await
            })
        });
        try_gather(syncing.collect()).await?;
        // A file being written that failed to be reported is reported later, or with its fsync.
        let _ = self.report_all().await;
        self.mds.ask(&SyncAllReq {}).await.map(drop)
    }
}
