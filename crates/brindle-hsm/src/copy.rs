//! The bytes: from the file system into an archive, and back. Blocks of zeros become holes on both sides; the checksum is of all bytes.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use blake3::Hasher;
use brindle_client::{Client, Ctx, SetAttr, WriteIn};
use brindle_types::{ArchivedCopy, Attr, Code, Fault, Ino, Result};
use brindle_wire::mds::hsm::HsmWork;
use brindle_wire::mds::open::Access;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::archive::{Archive, CopyName, Incoming, damaged};
use crate::attempts::Attempt;
use crate::pace::Pace;

/// Bytes of a file that are copied at once.
const PART_BYTES: u64 = 1 << 20;
/// Parts of a file that are on their way.
const PARTS_AT_ONCE: usize = 8;

const READ: Access = Access { read: true, write: false, truncate: false, execute: false };
const WRITE: Access = Access { read: false, write: true, truncate: false, execute: false };
/// Nobody but root sees a file that is being restored.
const PRIVATE_MODE: u32 = 0o600;

/// What copying needs.
pub struct Copier<'a> {
    /// The file system.
    pub client: &'a Client,
    /// The archive.
    pub archive: &'a Archive,
    /// The pace of the agent.
    pub pace: &'a Pace,
    /// The attempt that this is.
    pub attempt: &'a Attempt,
}

fn parts(size_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..size_bytes.div_ceil(PART_BYTES)).map(|n| n * PART_BYTES);
    starts.map(move |start| (start, PART_BYTES.min(size_bytes - start)))
}

fn is_hole(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Runs what waits for a disk where nobody else waits.
pub async fn off_thread<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(job).await;
    joined.unwrap_or_else(|e| Err(Fault::new(Code::Bug).why(e.to_string())))
}

impl Copier<'_> {
    /// Copies a file into the archive, durably, under the name of this attempt.
    pub async fn archive(&self, work: &HsmWork) -> Result<(ArchivedCopy, Arc<Incoming>)> {
        let name = CopyName { ino: work.ino, data_version: work.data_version, attempt: work.attempt };
        let opened = self.attempt.until(self.client.open(&Ctx::root(), work.ino, READ, false)).await?;
        let archive = self.archive.clone();
        let incoming = match off_thread(move || archive.begin(&name).map(Arc::new)).await {
            Ok(incoming) => incoming,
            Err(fault) => {
                self.client.close(opened.handle).await?;
                return Err(fault);
            }
        };
        let copied = self.attempt.until(self.copy_out(opened.handle, work.size_bytes, &incoming)).await;
        self.client.close(opened.handle).await?;
        let finished = match copied {
            Ok(checksum) => self.finish(work, &incoming, opened.attr, checksum).await,
            Err(fault) => Err(fault),
        };
        match finished {
            Ok(copy) => Ok((copy, incoming)),
            Err(fault) => {
                discard(incoming).await?;
                Err(fault)
            }
        }
    }

    async fn finish(
        &self,
        work: &HsmWork,
        incoming: &Arc<Incoming>,
        attr: Attr,
        checksum: [u8; 32],
    ) -> Result<ArchivedCopy> {
        let (incoming, size_bytes) = (incoming.clone(), work.size_bytes);
        off_thread(move || incoming.finish(size_bytes, &attr)).await?;
        Ok(ArchivedCopy { data_version: work.data_version, attempt: work.attempt, size_bytes, checksum })
    }

    async fn copy_out(&self, handle: u64, size_bytes: u64, to: &Arc<Incoming>) -> Result<[u8; 32]> {
        let read = |(start, len): (u64, u64)| async move {
            self.pace.wait(self.client.seams(), len).await;
            let bytes = self.client.read(handle, start, len, false).await?.into_bytes();
            Ok::<_, Fault>((start, len, bytes))
        };
        let mut reads = stream::iter(parts(size_bytes)).map(read).buffered(PARTS_AT_ONCE);
        let mut hasher = Hasher::new();
        while let Some((start, len, bytes)) = reads.try_next().await? {
            if bytes.len() as u64 != len {
                let why = format!("it ends at byte {} of {size_bytes}", start + bytes.len() as u64);
                return Err(Fault::new(Code::ChangedMeanwhile).why(why));
            }
            let to = to.clone();
            hasher = off_thread(move || {
                hasher.update(&bytes);
                if !is_hole(&bytes) {
                    to.write(&bytes, start)?;
                }
                Ok(hasher)
            })
            .await?;
            self.attempt.moved(len);
        }
        Ok(*hasher.finalize().as_bytes())
    }

    /// Copies the current copy of a file into a new one without a name, durably. Its number, and its handle, which keeps it.
    pub async fn restore(&self, work: &HsmWork) -> Result<(Ino, u64)> {
        let copy = work.copy.ok_or_else(|| Fault::new(Code::Bug).why("a released file without a copy"))?;
        let (archive, ino) = (self.archive.clone(), work.ino);
        let source = Arc::new(off_thread(move || archive.open_copy(ino, &copy)).await?);
        let (ctx, root) = (Ctx::root(), self.client.root());
        let making = self.client.tmpfile(&ctx, root, PRIVATE_MODE, 0, WRITE);
        let made = self.attempt.until(making).await?;
        let filled = self.attempt.until(self.fill(made.handle, made.attr.ino, work, &copy, &source)).await;
        match filled {
            Ok(()) => Ok((made.attr.ino, made.handle)),
            Err(fault) => {
                self.client.close(made.handle).await?;
                Err(fault)
            }
        }
    }

    async fn fill(
        &self,
        handle: u64,
        to: Ino,
        work: &HsmWork,
        copy: &ArchivedCopy,
        source: &Arc<std::fs::File>,
    ) -> Result<()> {
        let path = self.archive.path(&CopyName::of(work.ino, copy));
        let read = |(start, len): (u64, u64)| {
            let (source, path) = (source.clone(), path.clone());
            async move {
                self.pace.wait(self.client.seams(), len).await;
                off_thread(move || {
                    let mut bytes = vec![0; len as usize];
                    source.read_exact_at(&mut bytes, start).map_err(|e| {
                        Fault::io(Code::ArchiveFailed, "cannot read the copy", path.display().to_string(), &e)
                    })?;
                    Ok((start, Bytes::from(bytes)))
                })
                .await
            }
        };
        let mut reads = stream::iter(parts(copy.size_bytes)).map(read).buffered(PARTS_AT_ONCE);
        let mut hasher = Hasher::new();
        let mut end = 0;
        while let Some((start, data)) = reads.try_next().await? {
            hasher.update(&data);
            let len = data.len() as u64;
            if !is_hole(&data) {
                self.write(handle, start, data).await?;
                end = start + len;
            }
            self.attempt.moved(len);
        }
        if *hasher.finalize().as_bytes() != copy.checksum {
            let why = "its bytes are not those that were archived: the checksum differs";
            return Err(damaged(&path, why.to_owned()));
        }
        if end < copy.size_bytes {
            let set = SetAttr { size_bytes: Some(copy.size_bytes), handle, ..SetAttr::default() };
            self.client.setattr(&Ctx::root(), to, set).await?;
        }
        self.client.fsync(handle).await
    }

    async fn write(&self, handle: u64, mut offset: u64, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            let write = WriteIn { offset, data: data.clone(), ..WriteIn::default() };
            let written = self.client.write(&Ctx::root(), handle, write).await?;
            if written == 0 {
                return Err(
                    Fault::new(Code::OstFull).why("an OST has taken nothing of what was to be restored")
                );
            }
            offset += written;
            data = data.slice(written as usize..);
        }
        Ok(())
    }
}

/// Removes a copy that does not count.
pub async fn discard(incoming: Arc<Incoming>) -> Result<()> {
    off_thread(move || {
        if let Some(incoming) = Arc::into_inner(incoming) {
            incoming.discard();
        }
        Ok(())
    })
    .await
}
