//! sync_all: what sync(2) would do if the kernel told a user-space server of it (`brindle sync`).

use std::collections::BTreeMap;

use brindle_stdx::BoxFuture;
use brindle_types::{Fault, Ino, ObjectId, Pair, Stripe, TargetId};
use brindle_wire::mds::report::{REPORT_ITEMS_MAX, ReportReq, SyncedObjects};
use brindle_wire::mds::sync_all::SyncAllReq;
use brindle_wire::oss::sync::SyncObjectsReq;

use super::gather;
use crate::Client;
use crate::closed_unsynced::ClosedObject;

/// Objects in one request.
const OBJECTS_MAX: usize = 4096;

impl Client {
    /// Makes everything durable that this mount wrote and the servers acknowledged so far. A failure or loss
    /// on one object does not keep others from being made durable.
    pub async fn sync_all(&self) -> Result<(), Fault> {
        let mut first: Option<Fault> = None;
        for inode in self.inodes.all() {
            if inode.lock().writers > 0
                && let Err(fault) = self.sync_inode(&inode).await
            {
                first.get_or_insert(fault);
            }
            if let Some(fault) = self.tell_lost(&inode) {
                first.get_or_insert(fault);
            }
        }
        let map = self.map();
        // Objects of a removed OST were moved and synced before.
        let left = self.closed_unsynced.by_ost(|left| !map.is_removed(TargetId::ost(left.ost)));
        let syncing = left.into_iter().map(|(ost, left)| -> BoxFuture<'_, Result<(), Fault>> {
            Box::pin(async move { self.sync_left(ost, &left).await })
        });
        let failed = gather(syncing.collect()).await.into_iter().find_map(Result::err);
        let at_mdt = self.mds.ask(&SyncAllReq {}).await.err();
        first.or(failed).or(at_mdt).or(self.handles.take_unsaid()).map_or(Ok(()), Err)
    }

    /// Has an OST sync objects of closed files.
    pub(crate) async fn sync_left(&self, ost: u16, left: &[(ObjectId, ClosedObject)]) -> Result<(), Fault> {
        let mut lost = None;
        for left in left.chunks(OBJECTS_MAX) {
            let objects = left.iter().map(|(object, _)| *object).collect();
            let answer = self.ost(ost).await?.ask(&SyncObjectsReq { objects }).await?;
            let is_synced = |(object, exists): (&(ObjectId, ClosedObject), &bool)| {
                (*exists && object.1.term == answer.boot_term).then_some(*object)
            };
            self.record_synced(left.iter().zip(&answer.exists).filter_map(is_synced)).await?;
            lost = lost.or(self.settle_left(left, answer.boot_term));
        }
        lost.map_or(Ok(()), Err)
    }

    /// Tells the MDT which objects of closed files exist on stable storage, so that one that is missing later is no hole.
    async fn record_synced(
        &self,
        objects: impl Iterator<Item = (ObjectId, ClosedObject)>,
    ) -> Result<(), Fault> {
        let mut by_file: BTreeMap<(Ino, Pair), Vec<Stripe>> = BTreeMap::new();
        for (object, left) in objects {
            by_file.entry((object.ino, left.body)).or_default().push(object.named());
        }
        let files = by_file.into_iter().map(|((ino, body), stripes)| SyncedObjects { ino, body, stripes });
        let files: Vec<SyncedObjects> = files.collect();
        for synced in files.chunks(REPORT_ITEMS_MAX) {
            self.mds.ask(&ReportReq { items: Vec::new(), synced: synced.to_vec() }).await?;
        }
        Ok(())
    }
}
