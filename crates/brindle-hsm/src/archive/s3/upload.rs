//! Writing a copy: one object for a small file, an upload in parts for a long one, with a constant number of them in memory.

use bytes::Bytes;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayloadMut, WriteMultipart};

use brindle_stdx::cast::to_usize;
use brindle_types::{Code, Fault, Result};

use super::super::{CopyName, Whole};
use super::{Bucket, DATA, MANIFEST, PARTS_AT_ONCE};

/// The least length of a part; a file that is not longer goes in one request.
const PART_BYTES_MIN: u64 = 8 << 20;
/// Most parts of an object, as S3 has it.
const PARTS_MAX: u64 = 10_000;

/// A copy that is being written.
pub struct Upload {
    bucket: Bucket,
    name: CopyName,
    state: State,
    parts_at_once: usize,
}

enum State {
    Small(PutPayloadMut),
    Parts(WriteMultipart),
    /// Several agents send the parts; their names, once all are there.
    Divided {
        id: String,
        parts: Vec<String>,
    },
    /// The bytes, and perhaps the manifest, are in the bucket.
    Stored,
}

/// Length of the parts of an object.
fn part_bytes(size_bytes: u64) -> u64 {
    let least = size_bytes.div_ceil(PARTS_MAX).max(PART_BYTES_MIN);
    least.next_multiple_of(1 << 20)
}

fn failed(bucket: &Bucket, key: &Path, e: &object_store::Error) -> Fault {
    bucket.failed("cannot write the copy", key, e)
}

/// Parts of an object that are on their way at once: with large parts fewer, so that memory stays bounded.
fn parts_at_once(part_bytes: u64) -> usize {
    to_usize(PART_BYTES_MIN * PARTS_AT_ONCE as u64 / part_bytes).max(1)
}

/// The server has put the parts together: to what length?
async fn compare_length(bucket: &Bucket, key: &Path, size_bytes: u64) -> Result<()> {
    let stored = bucket.store.head(key).await.map_err(|e| failed(bucket, key, &e))?;
    if stored.size == size_bytes {
        return Ok(());
    }
    let why = format!("the server has {} of {size_bytes} bytes", stored.size);
    Err(Fault::new(Code::S3Damaged).subject(bucket.url(key)).why(why))
}

impl Upload {
    /// Begins a copy of so many bytes.
    pub(super) async fn begin(bucket: Bucket, name: CopyName, size_bytes: u64) -> Result<Upload> {
        let state = if size_bytes <= PART_BYTES_MIN {
            State::Small(PutPayloadMut::new())
        } else {
            let key = bucket.key(&name, DATA);
            let begun = bucket.store.put_multipart(&key).await;
            let begun = begun.map_err(|e| bucket.failed("cannot make a copy in the archive:", &key, &e))?;
            State::Parts(WriteMultipart::new_with_chunk_size(begun, to_usize(part_bytes(size_bytes))))
        };
        let parts_at_once = parts_at_once(part_bytes(size_bytes));
        Ok(Upload { bucket, name, state, parts_at_once })
    }

    /// Begins a copy whose parts several agents send. Returns the name of the upload, too.
    pub(super) async fn begin_divided(bucket: Bucket, name: CopyName) -> Result<(Upload, String)> {
        let key = bucket.key(&name, DATA);
        let begun = MultipartStore::create_multipart(&*bucket.store, &key).await;
        let id = begun.map_err(|e| bucket.failed("cannot make a copy in the archive:", &key, &e))?;
        let state = State::Divided { id: id.clone(), parts: Vec::new() };
        Ok((Upload { bucket, name, state, parts_at_once: 1 }, id))
    }

    /// Takes the names of all parts, in order.
    pub fn has_parts(&mut self, all: Vec<String>) {
        if let State::Divided { parts, .. } = &mut self.state {
            *parts = all;
        }
    }

    /// Takes the next bytes.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        match &mut self.state {
            State::Small(whole) => whole.push(bytes),
            State::Parts(parts) => {
                if let Err(e) = parts.wait_for_capacity(self.parts_at_once).await {
                    return Err(failed(&self.bucket, &self.bucket.key(&self.name, DATA), &e));
                }
                parts.put(bytes);
            }
            State::Divided { .. } | State::Stored => {
                return Err(Fault::new(Code::Bug).why("bytes behind the end of a copy"));
            }
        }
        Ok(())
    }

    /// Sends the rest, then the manifest.
    pub async fn finish(&mut self, whole: &Whole) -> Result<()> {
        let key = self.bucket.key(&self.name, DATA);
        let stored = match std::mem::replace(&mut self.state, State::Stored) {
            State::Small(bytes) => self.bucket.store.put(&key, bytes.freeze()).await.map(drop),
            State::Parts(parts) => parts.finish().await.map(drop),
            State::Divided { id, parts } => {
                let parts: Vec<_> = parts.into_iter().map(|content_id| PartId { content_id }).collect();
                let completed = self.bucket.store.complete_multipart(&key, &id, parts.clone()).await;
                if completed.is_err() {
                    // The upload goes on, as far as this agent knows: it may be given up.
                    let parts = parts.into_iter().map(|part| part.content_id).collect();
                    self.state = State::Divided { id, parts };
                }
                completed.map(drop)
            }
            State::Stored => Ok(()),
        };
        stored.map_err(|e| failed(&self.bucket, &key, &e))?;
        compare_length(&self.bucket, &key, whole.copy.size_bytes).await?;
        let mut manifest = whole.manifest.clone();
        manifest.complete(&whole.copy, key.to_string());
        let key = self.bucket.key(&self.name, MANIFEST);
        let put = self.bucket.store.put(&key, manifest.to_json()?.into()).await;
        put.map(drop).map_err(|e| self.bucket.failed("cannot write the manifest", &key, &e))
    }

    /// Removes the written parts.
    pub async fn discard(self) {
        let Upload { bucket, name, state, .. } = self;
        let removed = match state {
            State::Small(_) => Ok(()),
            State::Parts(parts) => {
                let key = bucket.key(&name, DATA);
                let aborted = parts.abort().await;
                aborted.map_err(|e| bucket.failed("cannot give up an upload", &key, &e))
            }
            State::Divided { id, .. } => {
                let key = bucket.key(&name, DATA);
                let aborted = bucket.store.abort_multipart(&key, &id).await;
                aborted.map_err(|e| bucket.failed("cannot give up an upload", &key, &e))
            }
            State::Stored => bucket.remove_one(&name).await,
        };
        if let Err(fault) = removed {
            tracing::warn!(%fault, "a copy that does not count is left; the next one removes it");
        }
    }
}

/// A part of an upload that this agent or another one has begun.
pub struct Part {
    bucket: Bucket,
    key: Path,
    upload: String,
    number: u32,
    bytes: PutPayloadMut,
}

impl Part {
    pub(super) fn new(bucket: Bucket, name: &CopyName, upload: &str, number: u32) -> Part {
        let key = bucket.key(name, DATA);
        Part { bucket, key, upload: upload.to_owned(), number, bytes: PutPayloadMut::new() }
    }

    /// Takes the next bytes.
    pub fn write(&mut self, bytes: Bytes) {
        self.bytes.push(bytes);
    }

    /// Sends the part. Returns its name.
    pub async fn finish(self) -> Result<String> {
        let Part { bucket, key, upload, number, bytes } = self;
        let number = usize::try_from(number)
            .map_err(|_| Fault::new(Code::InvalidArgument).why("no upload has so many parts"))?;
        let put = bucket.store.put_part(&key, &upload, number, bytes.freeze()).await;
        put.map(|part| part.content_id).map_err(|e| failed(&bucket, &key, &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_object_has_more_parts_than_s3_takes() {
        assert_eq!(part_bytes(9 << 20), 8 << 20);
        for size_bytes in [1 << 30, 80 << 30, (80 << 30) + 1, 5 << 40] {
            let part = part_bytes(size_bytes);
            assert!(size_bytes.div_ceil(part) <= PARTS_MAX && part.is_multiple_of(1 << 20), "{size_bytes}");
        }
    }
}
