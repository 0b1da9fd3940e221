//! sync_all: what sync(2) would do if the kernel told a user-space server of it (`brindle sync`).

use std::collections::BTreeMap;

use brindle_stdx::BoxFuture;
use brindle_types::{Fault, ObjectId, TargetId};
use brindle_wire::mds::sync_all::SyncAllReq;
use brindle_wire::oss::sync::SyncObjectsReq;

use super::try_gather;
use crate::Client;
use crate::inodes::Inode;

/// OSTs sync what is dirty within 5 s; after this time a closed file needs no sync any more.
const OSTS_SYNC_WITHIN_MS: u64 = 10_000;
/// Most objects of closed files that are remembered; the oldest go first.
const LEFT_MAX: usize = 1 << 16;
/// Objects in one request.
const OBJECTS_MAX: usize = 4096;

impl Client {
    /// Makes everything durable that this mount wrote and the servers acknowledged so far.
    pub async fn sync_all(&self) -> Result<(), Fault> {
        for inode in self.inodes.all() {
            if inode.lock().writers > 0 {
                self.sync_inode(&inode).await?;
            }
        }
        let left = self.left_unsynced.lock().clone();
        let mut by_ost: BTreeMap<u16, Vec<ObjectId>> = BTreeMap::new();
        let map = self.map.current();
        // What lay on an OST that was removed was moved and synced before.
        for (object, (ost, _)) in left.iter().filter(|(_, (ost, _))| !map.is_removed(TargetId::ost(*ost))) {
            by_ost.entry(*ost).or_default().push(*object);
        }
        let syncing = by_ost.into_iter().map(|(ost, objects)| -> BoxFuture<'_, _> {
            Box::pin(async move {
                for objects in objects.chunks(OBJECTS_MAX) {
                    self.ost(ost).await?.ask(&SyncObjectsReq { objects: objects.to_vec() }).await?;
                }
                Ok(())
            })
        });
        try_gather::<()>(syncing.collect()).await?;
        // What was closed meanwhile, also again, is for the next one.
        self.left_unsynced.lock().retain(|object, closed| left.get(object) != Some(closed));
        self.mds.ask(&SyncAllReq {}).await.map(drop)
    }

    /// The last writer of a file closes it: what is not synced is remembered for a while.
    pub(crate) fn note_left_unsynced(&self, inode: &Inode) {
        let now = self.seams.now();
        let mut left = self.left_unsynced.lock();
        let state = inode.lock();
        let Some(layout) = &state.layout else { return };
        for stripe in state.unsynced.keys() {
            let Some(ost) = layout.ost_of(*stripe) else { continue };
            left.insert(ObjectId::of(inode.ino, *stripe), (ost, now));
        }
        drop(state);
        if left.len() > LEFT_MAX {
            left.retain(|_, (_, closed)| now.ms_since(*closed) < OSTS_SYNC_WITHIN_MS);
        }
        while left.len() > LEFT_MAX {
            left.pop_first();
        }
    }
}
