//! The bytes: from an archive back into the file system, into a file without a name (design notes 028 and 054).
//!
//! A copy with checksums of its extents comes back extent by extent, those first that readers wait for, and the MDT hears which are there.
//! Another copy is compared as a whole, so its readers wait for all of it.

use blake3::Hasher;
use brindle_client::{Ctx, SetAttr};
use brindle_stdx::cast::to_usize;
use brindle_types::hsm::{CHECKSUM_UNKNOWN, Extents, extent_bytes};
use brindle_types::{ArchivedCopy, Code, Fault, Ino, Result};
use brindle_wire::mds::hsm::{HsmAttempt, HsmExtentsReq, HsmWork};
use brindle_wire::mds::hsm_span::HsmPlace;
use brindle_wire::mds::open::Access;
use bytes::Bytes;
use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::agent::root;
use crate::archive::sums::Sums;
use crate::archive::{PART_BYTES, Source, damaged};
use crate::copy::{Copier, is_hole, parts};
use crate::divided::Division;
use crate::order::Order;
use crate::span::write;

const WRITE: Access = Access { read: false, write: true, truncate: false, execute: false };
/// Mode of a file that is being restored: only root may access it.
const PRIVATE_MODE: u32 = 0o600;
/// Most extents of a file that are on their way at once.
const EXTENTS_AT_ONCE: u64 = 16;
/// Interval at which the MDT hears which extents are there, and tells which ones readers wait for.
const TELL_MS: u64 = 200;

/// A restore under way.
struct Restore<'a> {
    copy: ArchivedCopy,
    source: &'a Source,
    attempt: HsmAttempt,
    /// The file without a name, and the handle on it.
    to: Ino,
    handle: u64,
    order: Mutex<Order>,
}

impl Copier<'_> {
    /// Copies the current copy of a file into a new file without a name, durably. Returns the inode number, and the handle, which keeps
    /// the file.
    pub async fn restore(&self, work: &HsmWork) -> Result<(Ino, u64)> {
        let copy = work.copy.ok_or_else(|| Fault::new(Code::Bug).why("a released file without a copy"))?;
        let source = self.attempt.until(self.archive.open_copy(work.ino, copy)).await?;
        let has_several = copy.size_bytes > extent_bytes(copy.size_bytes);
        let sums = if has_several { self.archive.sums(work.ino, &copy).await } else { None };
        let (ctx, root) = (Ctx::root(), self.client.root());
        let making = self.client.tmpfile(&ctx, root, PRIVATE_MODE, 0, WRITE);
        let made = self.attempt.until(making).await?;
        let restore = Restore {
            copy,
            source: &source,
            attempt: HsmAttempt { ino: work.ino, attempt: work.attempt },
            to: made.attr.ino,
            handle: made.handle,
            order: Mutex::new(Order::new(copy.size_bytes)),
        };
        let division = match &sums {
            Some(_) => self.attempt.until(self.division(work)).await,
            None => Ok(None),
        };
        let filled = match (division, &sums) {
            (Err(fault), _) => Err(fault),
            (Ok(Some(division)), _) => {
                self.attempt.until(Box::pin(self.fill_divided(&restore, &division))).await
            }
            (Ok(None), Some(sums)) => {
                self.attempt.until(Box::pin(self.fill_by_extents(&restore, sums))).await
            }
            (Ok(None), None) => self.attempt.until(Box::pin(self.fill(&restore))).await,
        };
        match filled {
            Ok(()) => Ok((made.attr.ino, made.handle)),
            Err(fault) => {
                self.client.close(made.handle).await?;
                Err(fault)
            }
        }
    }

    /// Copies all bytes in order, and compares them as a whole.
    async fn fill(&self, restore: &Restore<'_>) -> Result<()> {
        let Restore { copy, source, .. } = restore;
        let (part_bytes, parts_at_once) = source.pace();
        let read = |(start, len): (u64, u64)| async move {
            self.pace.wait(self.client.seams(), len).await;
            Ok::<_, Fault>((start, source.read(start, len).await?))
        };
        let mut reads = stream::iter(parts(copy.size_bytes, part_bytes)).map(read).buffered(parts_at_once);
        let mut hasher = Hasher::new();
        let mut end = 0;
        while let Some((start, data)) = reads.try_next().await? {
            hasher.update(&data);
            end = end.max(self.put(restore.handle, start, &data).await?);
        }
        let is_known = copy.checksum != CHECKSUM_UNKNOWN;
        if is_known && *hasher.finalize().as_bytes() != copy.checksum {
            let why = "its bytes are not those that were archived: the checksum differs";
            return Err(damaged(source, why.to_owned()));
        }
        self.finish(restore, end).await
    }

    /// Copies extents, those first that readers wait for, and tells the MDT of them meanwhile.
    async fn fill_by_extents(&self, restore: &Restore<'_>, sums: &Sums) -> Result<()> {
        let filling = Box::pin(self.fetch_all(restore, sums));
        let telling = Box::pin(self.tell_often(restore));
        let end = match select(filling, telling).await {
            Either::Left((end, _)) => end?,
            Either::Right((fault, _)) => return Err(fault),
        };
        self.finish(restore, end).await?;
        // While the OSTs make these bytes the file's, readers get them from here.
        self.tell(restore).await
    }

    /// Copies a file with all agents of the archive, and tells the MDT of extents meanwhile.
    async fn fill_divided(&self, restore: &Restore<'_>, division: &Division) -> Result<()> {
        // Nobody who writes a span changes the length.
        let size_bytes = Some(restore.copy.size_bytes);
        let set = SetAttr { size_bytes, handle: restore.handle, ..SetAttr::default() };
        self.client.setattr(&Ctx::root(), restore.to, set).await?;
        let extent = extent_bytes(restore.copy.size_bytes);
        let finished = |span| {
            let range = division.range(span);
            let mut order = restore.order.lock();
            (range.start / extent..range.end.div_ceil(extent)).for_each(|extent| order.is_here(extent));
        };
        let place = HsmPlace::File(restore.to);
        let copying = Box::pin(self.copy_divided(division, &place, finished));
        let telling = Box::pin(self.tell_often(restore));
        match select(copying, telling).await {
            Either::Left((copied, _)) => copied.map(drop)?,
            Either::Right((fault, _)) => return Err(fault),
        }
        self.client.fsync(restore.handle).await?;
        self.tell(restore).await
    }

    /// Fetches every extent. Returns the end of the last bytes that are not zeros.
    async fn fetch_all(&self, restore: &Restore<'_>, sums: &Sums) -> Result<u64> {
        let (size_bytes, (part_bytes, parts_at_once)) = (restore.copy.size_bytes, restore.source.pace());
        let len = extent_bytes(size_bytes);
        let at_once = (part_bytes * parts_at_once as u64 / len).clamp(1, EXTENTS_AT_ONCE);
        // Which extent it is to be is decided when its turn has come: a reader may have come meanwhile.
        let fetch = |_: u64| async move {
            self.pace.wait(self.client.seams(), len).await;
            let next = restore.order.lock().give_next();
            match next {
                Some(extent) => self.fetch(restore, sums, extent).await,
                None => Ok(0),
            }
        };
        let mut fetches =
            stream::iter(0..Extents::count_of(size_bytes)).map(fetch).buffer_unordered(to_usize(at_once));
        let mut end = 0;
        while let Some(fetched) = fetches.try_next().await? {
            end = end.max(fetched);
        }
        Ok(end)
    }

    /// Copies an extent, and compares it. Returns the end of its last bytes that are not zeros.
    async fn fetch(&self, restore: &Restore<'_>, sums: &Sums, extent: u64) -> Result<u64> {
        let size_bytes = restore.copy.size_bytes;
        let len = extent_bytes(size_bytes);
        let (start, stop) = (extent * len, size_bytes.min((extent + 1) * len));
        let mut check = sums.check(extent);
        let mut end = 0;
        for (within, len) in parts(stop - start, restore.source.pace().0) {
            let data = restore.source.read(start + within, len).await?;
            check.update(&data);
            end = end.max(self.put(restore.handle, start + within, &data).await?);
        }
        if !check.is_good() {
            let why =
                format!("its bytes {start} to {stop} are not those that were archived: the checksum differs");
            return Err(damaged(restore.source, why));
        }
        restore.order.lock().is_here(extent);
        Ok(end)
    }

    /// Writes bytes of the copy. Returns the end of the last ones that are not zeros.
    async fn put(&self, handle: u64, start: u64, data: &Bytes) -> Result<u64> {
        let mut end = 0;
        for (within, len) in parts(data.len() as u64, PART_BYTES) {
            let piece = data.slice(to_usize(within)..to_usize(within + len));
            if !is_hole(&piece) {
                write(self.client, handle, start + within, piece).await?;
                end = start + within + len;
            }
            self.attempt.moved(len);
        }
        Ok(end)
    }

    /// Gives the file its length, and makes it durable.
    async fn finish(&self, restore: &Restore<'_>, end: u64) -> Result<()> {
        let size_bytes = restore.copy.size_bytes;
        if end < size_bytes {
            let set = SetAttr { size_bytes: Some(size_bytes), handle: restore.handle, ..SetAttr::default() };
            self.client.setattr(&Ctx::root(), restore.to, set).await?;
        }
        self.client.fsync(restore.handle).await
    }

    /// Tells the MDT of extents for as long as the attempt is wanted. Returns the fault that ends the attempt.
    async fn tell_often(&self, restore: &Restore<'_>) -> Fault {
        let mut told = 0;
        loop {
            self.client.seams().sleep_ms(TELL_MS).await;
            let here = restore.order.lock().here().clone();
            if here.len() > told
                && let Err(fault) = self.client.fsync(restore.handle).await
            {
                return fault;
            }
            told = here.len();
            if let Err(fault) = self.tell_of(restore, &here).await {
                return fault;
            }
        }
    }

    async fn tell(&self, restore: &Restore<'_>) -> Result<()> {
        let here = restore.order.lock().here().clone();
        self.tell_of(restore, &here).await
    }

    /// Tells the MDT which extents are there, all of them durable, and hears which ones readers wait for.
    async fn tell_of(&self, restore: &Restore<'_>, here: &Extents) -> Result<()> {
        let request = HsmExtentsReq {
            agent: self.agent,
            attempt: restore.attempt,
            from: restore.to,
            here: here.bits().to_vec(),
            cred: root(),
        };
        match self.client.ask_as_agent(&request).await {
            Ok(answer) => restore.order.lock().want(answer.wanted),
            Err(fault) if fault.code == Code::StaleAttempt => return Err(fault),
            // An MDT of an earlier release: readers wait for the whole file.
            Err(fault) if fault.code == Code::UnknownOp => {}
            Err(fault) => {
                tracing::warn!(file = %restore.attempt.ino.fid(), %fault, "the MDT does not hear which parts of a file are here");
            }
        }
        Ok(())
    }
}
