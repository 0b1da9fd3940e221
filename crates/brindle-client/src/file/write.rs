//! write: step 4, from `brindle-fuse/src/ops/write.rs` to [`super::scatter`]. Small files stay in the MDT.

use brindle_stdx::cast::to_usize;
use brindle_targets::Options;
use brindle_types::layout::{FILE_SIZE_MAX_BYTES, INLINE_MAX_BYTES};
use brindle_types::{Code, Fault};
use brindle_wire::mds::inline::InlineWriteReq;
use bytes::Bytes;

use super::Tries;
use super::scatter::How;
use super::write_behind::{Rights, WritePosition};
use crate::handles::Handle;
use crate::inodes::{Inode, LayoutSnapshot};
use crate::quota::{Bound, Growth};
use crate::rope::Rope;
use crate::{Client, Ctx};

/// Bytes to write.
#[derive(Clone, Debug, Default)]
pub struct WriteIn {
    /// First byte; ignored with `append`.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
    /// Whether the write goes to the end of the file (O_APPEND).
    pub append: bool,
    /// Whether the bytes must be on stable storage before the answer (O_SYNC, O_DSYNC).
    pub sync: bool,
    /// Whether the write clears set-id bits.
    pub kill_suidgid: bool,
    /// Whether this is a writeback of a mapped page.
    pub page: bool,
    /// Whether an OST must have acknowledged the bytes (O_DIRECT).
    pub direct: bool,
    /// The process that writes, by any number that identifies it ([`Client::flush`]); `None`: not known.
    pub process: Option<u64>,
}

impl Client {
    /// Writes bytes and returns their number (fewer where an OST is full or the file ends at its largest size). The
    /// future must be run to its end, or handed to [`Client::detachable`].
    pub async fn write(&self, ctx: &Ctx, handle: u64, mut write: WriteIn) -> Result<u64, Fault> {
        write.sync |= self.config.sync && !write.page;
        let handle = self.writable_handle(handle)?;
        if write.data.is_empty() {
            return Ok(0);
        }
        handle.written_by(write.process);
        self.begin_write(&handle.inode);
        let _under_way = handle.inode.writing();
        let written = if write.append {
            Box::pin(self.append(ctx, &handle, &write)).await
        } else if write.page {
            self.write_back(ctx, &handle, &write).await
        } else {
            self.write_at(ctx, &handle, &write).await
        };
        let written = handle.changed(written)?;
        if write.sync {
            Box::pin(self.sync_writes(&handle)).await?;
        }
        Ok(written)
    }

    /// From now on this moment counts as the file's last write, if this client alone writes it.
    pub(crate) fn begin_write(&self, inode: &Inode) {
        let now = self.clock.time(self.seams.now());
        let mut state = inode.lock();
        // If other clients write too, the objects have the time of the last write.
        state.written_at = if state.exclusive { state.written_at.max(now) } else { None };
    }

    /// Writeback of a page. The kernel holds the page until the answer, so an invalidation that comes meanwhile leaves
    /// the page out; it is dropped afterwards.
    async fn write_back(&self, ctx: &Ctx, handle: &Handle, write: &WriteIn) -> Result<u64, Fault> {
        let range = write.offset..write.offset.saturating_add(write.data.len() as u64);
        let page = handle.inode.reads.begin_write(range.clone());
        let written = self.write_at(ctx, handle, write).await;
        let met_invalidation = !page.settle();
        drop(page);
        if met_invalidation && let Some(this) = self.this.upgrade() {
            let inode = handle.inode.clone();
            self.seams.spawn("client.invalidate", async move { this.invalidate(&inode, range).await });
        }
        written
    }

    async fn write_at(&self, ctx: &Ctx, handle: &Handle, write: &WriteIn) -> Result<u64, Fault> {
        let room = FILE_SIZE_MAX_BYTES.checked_sub(write.offset).filter(|room| *room > 0);
        let room = room.ok_or_else(|| Fault::new(Code::TooLarge))?;
        let data = write.data.slice(..write.data.len().min(to_usize(room)));
        let end = write.offset + data.len() as u64;
        let inode = &handle.inode;
        let rights = write.rights(ctx);
        if write.may_wait() && self.put_behind(handle, WritePosition::At(write.offset), &data, rights) {
            return Ok(data.len() as u64);
        }
        if write.may_wait() && self.outgrows_mdt(inode, end) {
            Box::pin(self.outgrow(inode, write.offset..end)).await?;
            if self.put_behind(handle, WritePosition::At(write.offset), &data, rights) {
                return Ok(data.len() as u64);
            }
        }
        self.flush_behind_under(inode, &(write.offset..end)).await;
        let charge = self.room(inode, rights.bound, Growth::Range(write.offset..end)).await?;
        let len_bytes = data.len() as u64;
        let written = Box::pin(self.write_through(ctx, handle, write, data)).await;
        self.room_used(inode, charge, written == Ok(len_bytes));
        written
    }

    async fn write_through(
        &self,
        ctx: &Ctx,
        handle: &Handle,
        write: &WriteIn,
        data: Bytes,
    ) -> Result<u64, Fault> {
        let inode = &handle.inode;
        let end = write.offset + data.len() as u64;
        let data = Rope::from(data);
        let mut tries = Tries::default();
        loop {
            let snapshot = self.snapshot(inode).await?;
            if !snapshot.layout.inline || end > INLINE_MAX_BYTES {
                return self.write_objects(inode, write.offset, &data, write.how(handle)).await;
            }
            match self.write_inline(ctx, handle, &snapshot, write, data.clone().into_bytes()).await {
                Err(fault) => self.retry(inode, &mut tries, fault).await?,
                done => return done,
            }
        }
    }

    /// Writes into a file whose bytes lie in the MDT.
    pub(crate) async fn write_inline(
        &self,
        ctx: &Ctx,
        handle: &Handle,
        snapshot: &LayoutSnapshot,
        write: &WriteIn,
        data: Bytes,
    ) -> Result<u64, Fault> {
        let len_bytes = data.len() as u64;
        let request = InlineWriteReq {
            ino: handle.inode.ino,
            handle: handle.number,
            layout_epoch: snapshot.layout.epoch,
            offset: write.offset,
            append: write.append,
            data,
            written_at: handle.inode.lock().written_at,
            kill_suidgid: write.kill_suidgid,
            cred: ctx.cred.clone(),
            sync: write.sync,
            promised: false,
        };
        self.write_at_mdt(&handle.inode, &request, handle.options()).await?;
        Ok(len_bytes)
    }

    pub(crate) async fn write_at_mdt(
        &self,
        inode: &Inode,
        write: &InlineWriteReq,
        options: Options,
    ) -> Result<(), Fault> {
        let asked = inode.asked();
        let (answer, _) = self.mds.call_with(write, Vec::new(), options).await?;
        let (offset, size_bytes) = (answer.offset, answer.attr.size_bytes);
        tracing::trace!(ino = inode.ino.0, offset, len = write.data.len(), size_bytes, "written to the MDT");
        let mut state = inode.lock();
        state.wrote_at_mdt(asked, offset + write.data.len() as u64, size_bytes);
        state.changed_at_mdt(answer.changed);
        if write.sync {
            state.synced_at_mdt(Some(answer.changed));
        }
        Ok(())
    }
}

impl WriteIn {
    pub(crate) fn rights(&self, ctx: &Ctx) -> Rights {
        Rights { kill_suidgid: self.kill_suidgid, bound: Bound::of(ctx, self.page) }
    }

    pub(crate) fn how(&self, handle: &Handle) -> How {
        let session = handle.session;
        How { sync: self.sync, kill_suidgid: self.kill_suidgid, page: self.page, session, ..How::default() }
    }

    /// Whether the write may be acknowledged before an OST has it.
    pub(crate) fn may_wait(&self) -> bool {
        !self.sync && !self.page && !self.direct
    }
}
