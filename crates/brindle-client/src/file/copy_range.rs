//! copy_file_range: a range of one file into another.

use std::sync::atomic::Ordering;

use brindle_types::Fault;
use bytes::Bytes;

use super::write::WriteIn;
use crate::{Client, Ctx};

/// Bytes copied at once.
const CHUNK_BYTES: u64 = 4 << 20;
/// Most bytes of one call; the caller asks again for the rest.
const CALL_BYTES_MAX: u64 = 256 << 20;

/// Source and destination of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyIn {
    /// Handle read from.
    pub source: u64,
    /// First byte of the source.
    pub source_offset: u64,
    /// Handle written to.
    pub target: u64,
    /// First byte of the target.
    pub target_offset: u64,
    /// Number of bytes.
    pub len_bytes: u64,
    /// Set-id bits of the target go.
    pub kill_suidgid: bool,
}

impl Client {
    /// Copies bytes and returns how many: fewer at the end of the source.
    pub async fn copy_range(&self, ctx: &Ctx, copy: CopyIn) -> Result<u64, Fault> {
        let mut done = 0;
        let len_bytes = copy.len_bytes.min(CALL_BYTES_MAX);
        while done < len_bytes {
            let chunk = CHUNK_BYTES.min(len_bytes - done);
            match self.copy_chunk(ctx, &copy, done, chunk).await {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(_) if done > 0 => break,
                Err(fault) => return Err(fault),
            }
        }
        Ok(done)
    }

    async fn copy_chunk(&self, ctx: &Ctx, copy: &CopyIn, done: u64, len_bytes: u64) -> Result<u64, Fault> {
        let read = self.read(copy.source, copy.source_offset + done, len_bytes, false).await?;
        let data: Bytes = read.into_bytes();
        let write = WriteIn {
            offset: copy.target_offset + done,
            data,
            kill_suidgid: copy.kill_suidgid,
            sync: self.handles.get(copy.target)?.is_synchronous.load(Ordering::Relaxed),
            ..WriteIn::default()
        };
        self.write(ctx, copy.target, write).await
    }
}
