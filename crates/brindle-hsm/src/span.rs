//! The work on one span of a divided file (design note 058), for the agent that has the attempt as for any other.
//!
//! | promise | by |
//! |---|---|
//! | late bytes of an agent whose span was given to another change nothing | they are the bytes that lie there already: of the `data_version` of the attempt, which the MDT is asked for between read and write, or those that the checksum of an extent was compared with before it is written |
//! | a span that was told of is on stable storage | it is synced before |

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_client::{Client, Ctx, WriteIn};
use brindle_stdx::cast::to_usize;
use brindle_types::hsm::extent_bytes;
use brindle_types::{ArchivedCopy, Code, Fault, HsmKind, Ino, Result};
use brindle_wire::mds::getattr::GetattrReq;
use brindle_wire::mds::hsm::HsmAttempt;
use brindle_wire::mds::hsm_span::{HsmPlace, HsmSpan, HsmSpanMade};
use brindle_wire::mds::open::Access;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::archive::sums::{SpanSumming, Sums};
use crate::archive::{Archive, CopyName, PART_BYTES, PARTS_AT_ONCE, Source, damaged, off_thread};
use crate::copy::{changed, is_hole, parts};

const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
const WRITE: Access = Access { read: false, write: true, truncate: false, execute: false };
/// Bytes that are read before the MDT is asked whether the file is still as it was, and then written.
const BATCH_BYTES: u64 = 8 << 20;
/// Most copies that an agent keeps open, with the checksums of their extents.
const OPEN_COPIES_MAX: usize = 8;

/// A copy that spans are restored from.
struct OpenCopy {
    source: Source,
    sums: Sums,
}

/// An agent's means for the work on spans.
pub struct SpanWork {
    client: Arc<Client>,
    archive: Archive,
    copies: Mutex<BTreeMap<HsmAttempt, Arc<OpenCopy>>>,
}

/// First byte of a span, and the one behind it.
fn range_of(span: &HsmSpan) -> Result<(u64, u64)> {
    let start = u64::from(span.claim.span).checked_mul(span.span_bytes);
    let range = start.map(|start| (start, span.size_bytes.min(start.saturating_add(span.span_bytes))));
    let found = range.filter(|(start, end)| start < end);
    found.ok_or_else(|| Fault::new(Code::InvalidArgument).why("the file has no such span"))
}

impl SpanWork {
    /// Between a file system and an archive.
    pub fn new(client: Arc<Client>, archive: Archive) -> SpanWork {
        SpanWork { client, archive, copies: Mutex::default() }
    }

    /// Copies a span, durably.
    pub async fn copy(&self, span: &HsmSpan) -> Result<HsmSpanMade> {
        match (span.kind, &span.place) {
            (HsmKind::Archive, HsmPlace::Copy(upload)) => self.archive(span, upload.as_deref()).await,
            (HsmKind::Restore, HsmPlace::File(to)) => self.restore(span, *to).await,
            _ => Err(Fault::new(Code::InvalidArgument).why("an action of another kind has that place")),
        }
    }

    async fn archive(&self, span: &HsmSpan, upload: Option<&str>) -> Result<HsmSpanMade> {
        let opened = self.client.open(&Ctx::root(), span.claim.attempt.ino, READ, false).await?;
        let made = self.copy_out(opened.handle, span, upload).await;
        self.client.close(opened.handle).await?;
        made
    }

    async fn copy_out(&self, handle: u64, span: &HsmSpan, upload: Option<&str>) -> Result<HsmSpanMade> {
        let attempt = span.claim.attempt;
        let name = CopyName { ino: attempt.ino, data_version: span.data_version, attempt: attempt.attempt };
        let (start, end) = range_of(span)?;
        let mut part = self.archive.open_part(name, upload, span.claim.span).await?;
        let mut summing = SpanSumming::new(span.size_bytes, start);
        for (within, len) in parts(end - start, BATCH_BYTES) {
            let batch = self.read(handle, start + within, len).await?;
            let hashed = batch.clone();
            let (next, holes) = off_thread(move || {
                hashed.iter().for_each(|(_, bytes)| summing.update(bytes));
                let holes: Vec<bool> = hashed.iter().map(|(_, bytes)| is_hole(bytes)).collect();
                Ok((summing, holes))
            })
            .await?;
            summing = next;
            self.is_as_it_was(span).await?;
            for ((at, bytes), hole) in batch.into_iter().zip(holes) {
                part.write(at, bytes, hole).await?;
            }
        }
        Ok(HsmSpanMade { sums: summing.finish(), part: part.finish().await? })
    }

    /// Reads bytes of a file, in pieces with their places.
    async fn read(&self, handle: u64, from: u64, len: u64) -> Result<Vec<(u64, Bytes)>> {
        let read = |(within, len): (u64, u64)| async move {
            let at = from + within;
            let bytes = self.client.read(handle, at, len, false).await?.into_bytes();
            if bytes.len() as u64 != len {
                return Err(changed(format!("it ends at byte {}", at + bytes.len() as u64)));
            }
            Ok::<_, Fault>((at, bytes))
        };
        stream::iter(parts(len, PART_BYTES)).map(read).buffered(PARTS_AT_ONCE).try_collect().await
    }

    /// Refuses a file that has changed since the attempt was given out. The MDT itself is asked: this agent may have been stopped for
    /// long, and what it remembers be old.
    async fn is_as_it_was(&self, span: &HsmSpan) -> Result<()> {
        let request = GetattrReq { ino: span.claim.attempt.ino, report: None };
        let attr = self.client.ask_as_agent(&request).await?.attr;
        match attr.data_version == Some(span.data_version) && attr.size_bytes == span.size_bytes {
            true => Ok(()),
            false => Err(changed("somebody wrote to it, or opened it for writing".to_owned())),
        }
    }

    async fn restore(&self, span: &HsmSpan, to: Ino) -> Result<HsmSpanMade> {
        let copy = span.copy.ok_or_else(|| Fault::new(Code::Bug).why("a released file without a copy"))?;
        let from = self.open_copy(span.claim.attempt, copy).await?;
        let opened = self.client.open(&Ctx::root(), to, WRITE, false).await?;
        let copied = self.copy_in(opened.handle, span, &from).await;
        self.client.close(opened.handle).await?;
        copied.map(|()| HsmSpanMade { sums: Vec::new(), part: None })
    }

    /// A copy with the checksums of its extents.
    async fn open_copy(&self, attempt: HsmAttempt, copy: ArchivedCopy) -> Result<Arc<OpenCopy>> {
        if let Some(known) = self.copies.lock().get(&attempt) {
            return Ok(known.clone());
        }
        let source = self.archive.open_copy(attempt.ino, copy).await?;
        let sums = self.archive.sums(attempt.ino, &copy).await;
        let sums =
            sums.ok_or_else(|| damaged(&source, "the checksums of its parts are missing".to_owned()))?;
        let opened = Arc::new(OpenCopy { source, sums });
        let mut copies = self.copies.lock();
        if copies.len() >= OPEN_COPIES_MAX {
            copies.pop_first();
        }
        copies.insert(attempt, opened.clone());
        Ok(opened)
    }

    async fn copy_in(&self, handle: u64, span: &HsmSpan, from: &OpenCopy) -> Result<()> {
        let (start, end) = range_of(span)?;
        let extent = extent_bytes(span.size_bytes);
        for (within, len) in parts(end - start, extent) {
            self.copy_extent(handle, from, (start + within) / extent, (start + within, len)).await?;
        }
        self.client.fsync(handle).await
    }

    /// Reads an extent, compares it, and only then writes it.
    async fn copy_extent(&self, handle: u64, from: &OpenCopy, extent: u64, at: (u64, u64)) -> Result<()> {
        let (start, len) = at;
        let (part_bytes, parts_at_once) = from.source.pace();
        let read = |(within, len): (u64, u64)| from.source.read(start + within, len);
        let reads = stream::iter(parts(len, part_bytes)).map(read).buffered(parts_at_once);
        let data: Vec<Bytes> = reads.try_collect().await?;
        let mut check = from.sums.check(extent);
        data.iter().for_each(|bytes| check.update(bytes));
        if !check.is_good() {
            let why = format!(
                "its bytes {start} to {} are not those that were archived: the checksum differs",
                start + len
            );
            return Err(damaged(&from.source, why));
        }
        let mut place = start;
        for bytes in data {
            for (within, len) in parts(bytes.len() as u64, PART_BYTES) {
                let piece = bytes.slice(to_usize(within)..to_usize(within + len));
                if !is_hole(&piece) {
                    write(&self.client, handle, place + within, piece).await?;
                }
            }
            place += bytes.len() as u64;
        }
        Ok(())
    }
}

/// Writes all of these bytes.
pub async fn write(client: &Client, handle: u64, mut offset: u64, mut data: Bytes) -> Result<()> {
    while !data.is_empty() {
        let write = WriteIn { offset, data: data.clone(), ..WriteIn::default() };
        let written = client.write(&Ctx::root(), handle, write).await?;
        if written == 0 {
            return Err(Fault::new(Code::OstFull).why("an OST has taken nothing of what was to be restored"));
        }
        offset += written;
        data = data.slice(to_usize(written)..);
    }
    Ok(())
}
