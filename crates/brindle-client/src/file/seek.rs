//! seek: SEEK_DATA and SEEK_HOLE.

use std::sync::Arc;

use brindle_stdx::BoxFuture;
use brindle_types::layout::{HOLE_BYTES, INLINE_MAX_BYTES};
use brindle_types::{Code, Fault, ObjectId, Stripe};
use brindle_wire::oss::seek::SeekReq;

use super::{Tries, try_gather};
use crate::Client;
use crate::inodes::{Inode, LayoutSnapshot};

/// First data (or hole) at or after `from`, which is below `size_bytes`, in a file whose first bytes these are and that has only a
/// hole behind them. A block of zeros is a hole.
fn seek_bytes(bytes: &[u8], from: u64, size_bytes: u64, data: bool) -> Option<u64> {
    let blocks = bytes.chunks(HOLE_BYTES).map(|block| block.iter().any(|byte| *byte != 0));
    let starts = (0u64..).step_by(HOLE_BYTES);
    let behind = (bytes.len() as u64).next_multiple_of(HOLE_BYTES as u64);
    let mut runs = starts.zip(blocks).chain([(behind, false)]);
    let found = runs
        .find(|(start, is_data)| *is_data == data && (start + HOLE_BYTES as u64 > from || *start == behind));
    let at = found.map(|(start, _)| start.max(from)).filter(|at| *at < size_bytes);
    // The end of the file is a hole.
    if data { at } else { Some(at.unwrap_or(size_bytes)) }
}

impl Client {
    /// First data (or hole) at or after `from`; `NoDataThere` if there is none, or if `from` lies behind the end. A released file, also
    /// one that is being restored, is data up to its end: only the whole file would show where its holes are.
    pub async fn seek(&self, handle: u64, from: u64, data: bool) -> Result<u64, Fault> {
        let handle = self.live_handle(handle)?;
        let found = self.seek_in(&handle.inode, from, data).await;
        handle.seen(found)
    }

    async fn seek_in(&self, inode: &Arc<Inode>, from: u64, data: bool) -> Result<u64, Fault> {
        if inode.lock().writers > 0 {
            // Bytes changed through a mapping are data that only the kernel has. The kernel writes them back to the OSTs first.
            let wanted = self.want_pages_dropped(inode, 0..u64::MAX);
            inode.wait_until(|state| state.drops.is_over(wanted)).await;
        }
        let mut tries = Tries::default();
        loop {
            self.flush_behind(inode).await;
            let snapshot = self.snapshot(inode).await?;
            let size_bytes = self.size_for(inode, u64::MAX).await?;
            let found = if from >= size_bytes {
                None
            } else {
                let sought = match snapshot.layout.inline {
                    true => self.seek_inline(inode, from, size_bytes, data).await,
                    false => self.seek_objects(inode, &snapshot, from, size_bytes, data).await,
                };
                match sought {
                    Ok(found) => found,
                    Err(fault) if fault.code == Code::Released => Some(if data { from } else { size_bytes }),
                    Err(fault) => {
                        self.retry(inode, &mut tries, fault).await?;
                        continue;
                    }
                }
            };
            if inode.is_still(&snapshot) {
                return found.ok_or_else(|| Fault::new(Code::NoDataThere));
            }
        }
    }

    async fn seek_inline(
        &self,
        inode: &Inode,
        from: u64,
        size_bytes: u64,
        data: bool,
    ) -> Result<Option<u64>, Fault> {
        let bytes = self.read_inline(inode, 0..size_bytes.min(INLINE_MAX_BYTES)).await?.concat();
        Ok(seek_bytes(&bytes, from, size_bytes, data))
    }

    async fn seek_objects(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        from: u64,
        size_bytes: u64,
        data: bool,
    ) -> Result<Option<u64>, Fault> {
        let asked = brindle_layout::seek_start(&snapshot.layout, from);
        let asking = asked.into_iter().map(|(stripe, ost, from)| -> BoxFuture<'_, _> {
            Box::pin(self.seek_object(inode, snapshot, (stripe, ost), from, data))
        });
        let answers: Vec<(Stripe, Option<u64>)> = try_gather(asking.collect()).await?;
        Ok(brindle_layout::seek_join(&snapshot.layout, &answers, from, size_bytes, data))
    }

    async fn seek_object(
        &self,
        inode: &Inode,
        snapshot: &LayoutSnapshot,
        (stripe, ost): (Stripe, u16),
        offset: u64,
        data: bool,
    ) -> Result<(Stripe, Option<u64>), Fault> {
        let object = ObjectId::of(inode.ino, stripe);
        let must_exist = snapshot.layout.object_known(stripe);
        match self.ost(ost).await?.ask(&SeekReq { object, offset, data, must_exist }).await {
            Ok(answer) => Ok((stripe, answer.offset)),
            Err(fault) if fault.code == Code::ObjectUnknown => Ok((stripe, (!data).then_some(offset))),
            Err(fault) => Err(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::seek_bytes;

    /// Every place of every file of three blocks, against the definition byte by byte.
    #[test]
    fn blocks_of_zeros_are_holes_in_small_files() {
        for (len, size) in [(0, 0), (0, 5), (1, 1), (100, 32_768), (4096, 4096), (5000, 5000), (8192, 9000)] {
            for kinds in 0..4u8 {
                let byte = |at: u64| u8::from(at < len && kinds >> (at / 4096) & 1 == 1);
                let is_data = |at: u64| (at / 4096 * 4096..(at / 4096 + 1) * 4096).any(|at| byte(at) != 0);
                let bytes: Vec<u8> = (0..len).map(byte).collect();
                for from in [0, 1, 99, 4095, 4096, 4097, 8191, 8192, 8193, 9000, 12_288]
                    .into_iter()
                    .filter(|from| *from < size)
                {
                    let first = |data| (from..size).find(|at| is_data(*at) == data);
                    assert_eq!(
                        seek_bytes(&bytes, from, size, true),
                        first(true),
                        "{len} {size} {kinds} {from}"
                    );
                    let hole = first(false).unwrap_or(size);
                    assert_eq!(
                        seek_bytes(&bytes, from, size, false),
                        Some(hole),
                        "{len} {size} {kinds} {from}"
                    );
                }
            }
        }
    }
}
