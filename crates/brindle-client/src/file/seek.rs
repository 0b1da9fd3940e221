//! seek: SEEK_DATA and SEEK_HOLE.

use std::sync::Arc;

use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, ObjectId, Stripe};
use brindle_wire::oss::seek::SeekReq;

use super::{Tries, try_gather};
use crate::Client;
use crate::inodes::{Inode, Sight};

impl Client {
    /// First data (or hole) at or after `from`; `NoDataThere` if there is none, or if `from` lies behind the end.
    pub async fn seek(&self, handle: u64, from: u64, data: bool) -> Result<u64, Fault> {
        let handle = self.live_handle(handle)?;
        let found = self.seek_in(&handle.inode, from, data).await;
        handle.seen(found)
    }

    async fn seek_in(&self, inode: &Arc<Inode>, from: u64, data: bool) -> Result<u64, Fault> {
        if inode.lock().writers > 0 {
            // What is changed through a mapping is data, and only the kernel has it: pages go by way of the OSTs.
            let wanted = self.want_pages_dropped(inode, 0..u64::MAX);
            inode.wait_until(|state| state.drops.is_over(wanted)).await;
        }
        let mut tries = Tries::default();
        loop {
            self.flush_behind(inode).await;
            let sight = self.sight(inode).await?;
            let size_bytes = self.size_for(inode, u64::MAX).await?;
            let found = if from >= size_bytes {
                None
            } else if sight.layout.inline {
                Some(if data { from } else { size_bytes })
            } else {
                match self.seek_objects(inode, &sight, from, size_bytes, data).await {
                    Ok(found) => found,
                    Err(fault) => {
                        self.retry(inode, &mut tries, fault).await?;
                        continue;
                    }
                }
            };
            if inode.is_still(&sight) {
                return found.ok_or_else(|| Fault::new(Code::NoDataThere));
            }
        }
    }

    async fn seek_objects(
        &self,
        inode: &Inode,
        sight: &Sight,
        from: u64,
        size_bytes: u64,
        data: bool,
    ) -> Result<Option<u64>, Fault> {
        let asked = brindle_layout::seek_start(&sight.layout, from);
        let asking = asked.into_iter().map(|(stripe, ost, from)| -> BoxFuture<'_, _> {
            Box::pin(self.seek_object(inode, sight, (stripe, ost), from, data))
        });
        let answers: Vec<(Stripe, Option<u64>)> = try_gather(asking.collect()).await?;
        Ok(brindle_layout::seek_join(&sight.layout, &answers, from, size_bytes, data))
    }

    async fn seek_object(
        &self,
        inode: &Inode,
        sight: &Sight,
        (stripe, ost): (Stripe, u16),
        offset: u64,
        data: bool,
    ) -> Result<(Stripe, Option<u64>), Fault> {
        let object = ObjectId::of(inode.ino, stripe);
        let must_exist = sight.layout.object_known(stripe);
        match self.ost(ost).await?.ask(&SeekReq { object, offset, data, must_exist }).await {
            Ok(answer) => Ok((stripe, answer.offset)),
            Err(fault) if fault.code == Code::ObjectUnknown => Ok((stripe, (!data).then_some(offset))),
            Err(fault) => Err(fault),
        }
    }
}
