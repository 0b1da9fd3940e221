//! Archives: a directory ([`posix`]) or a bucket of an S3 server ([`s3`]).
//!
//! Either kind keeps complete copies. The name of a copy has the file, the version of its contents and the attempt ([`CopyName`]), so no
//! two attempts ever write to one name. Only the MDT knows which copy counts. A copy that the MDT has not taken is garbage, which the
//! next complete copy of the file removes.

pub mod manifest;
pub mod posix;
pub mod s3;
pub mod sums;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use brindle_stdx::cast::to_usize;
use brindle_types::{ArchivedCopy, Attr, Code, Fault, Ino, Pair, Result};
use bytes::Bytes;

use self::manifest::Manifest;
use self::sums::Sums;

/// Bytes that are copied at once from and to a directory.
pub const PART_BYTES: u64 = 1 << 20;
/// Parts of a file that are on their way from and to a directory.
pub const PARTS_AT_ONCE: usize = 8;

/// An archive.
#[derive(Clone)]
pub enum Archive {
    /// Archive in a directory.
    Posix(posix::Directory),
    /// Archive in a bucket.
    S3(s3::Bucket),
}

/// An attempt at a copy of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyName {
    /// The file.
    pub ino: Ino,
    /// Version of the contents.
    pub data_version: Pair,
    /// The attempt.
    pub attempt: Pair,
}

impl CopyName {
    /// The name of a copy that the MDT knows.
    pub fn of(ino: Ino, copy: &ArchivedCopy) -> CopyName {
        CopyName { ino, data_version: copy.data_version, attempt: copy.attempt }
    }
}

/// A copy that differs from the archived bytes.
pub fn damaged(name: &dyn fmt::Display, why: String) -> Fault {
    Fault::new(Code::ArchiveDamaged)
        .subject(name.to_string())
        .why(why)
        .data("the file stays released; nothing of the copy was returned")
}

/// Runs what waits for a disk where nobody else waits.
pub async fn off_thread<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(job).await;
    joined.unwrap_or_else(|e| Err(Fault::new(Code::Bug).why(e.to_string())))
}

impl Archive {
    /// Location of the archive, for people.
    pub fn place(&self) -> String {
        match self {
            Archive::Posix(dir) => dir.root().display().to_string(),
            Archive::S3(bucket) => bucket.to_string(),
        }
    }

    /// The part of it that belongs to a file system, `NAME.FSID`. A directory belongs to one as a whole.
    pub fn of_file_system(self, file_system: &str) -> Archive {
        match self {
            Archive::S3(bucket) => Archive::S3(bucket.of_file_system(file_system)),
            posix @ Archive::Posix(_) => posix,
        }
    }

    /// Begins a copy of so many bytes.
    pub async fn begin(&self, name: CopyName, size_bytes: u64) -> Result<Incoming> {
        match self {
            Archive::Posix(dir) => {
                let dir = dir.clone();
                off_thread(move || Ok(Incoming::Posix(Arc::new(dir.begin(&name)?)))).await
            }
            Archive::S3(bucket) => Ok(Incoming::S3(bucket.begin(name, size_bytes).await?)),
        }
    }

    /// Begins a copy whose spans several agents write. Returns the name of the upload, where the archive has uploads.
    pub async fn begin_divided(&self, name: CopyName, size_bytes: u64) -> Result<(Incoming, Option<String>)> {
        match self {
            Archive::Posix(_) => Ok((self.begin(name, size_bytes).await?, None)),
            Archive::S3(bucket) => {
                let (upload, id) = bucket.begin_divided(name).await?;
                Ok((Incoming::S3(upload), Some(id)))
            }
        }
    }

    /// Begins to write a span of a copy that another agent, or this one, has begun.
    pub async fn open_part(&self, name: CopyName, upload: Option<&str>, span: u32) -> Result<Part> {
        match (self, upload) {
            (Archive::Posix(dir), None) => {
                let dir = dir.clone();
                off_thread(move || Ok(Part::Posix(Arc::new(dir.open_part(&name)?)))).await
            }
            (Archive::S3(bucket), Some(id)) => Ok(Part::S3(bucket.open_part(name, id, span))),
            _ => Err(Fault::new(Code::ArchiveFailed)
                .subject(self.place())
                .why("the agent that has begun the copy serves an archive of another kind under this number")
                .next("start all agents of one number with the same archive")),
        }
    }

    /// The MDT has taken a copy: it is the current one, and copies by earlier attempts go. `path`: of the file, for people.
    pub async fn make_current(&self, name: CopyName, path: Vec<u8>) -> Result<()> {
        match self {
            Archive::Posix(dir) => {
                let dir = dir.clone();
                off_thread(move || dir.make_current(&name, &path)).await
            }
            Archive::S3(bucket) => bucket.remove_older(&name).await,
        }
    }

    /// Opens a copy that the MDT knows. The copy's length is unchanged; the caller that reads the copy compares the checksum.
    pub async fn open_copy(&self, ino: Ino, copy: ArchivedCopy) -> Result<Source> {
        match self {
            Archive::Posix(dir) => {
                let (dir, path) = (dir.clone(), dir.path(&CopyName::of(ino, &copy)));
                off_thread(move || Ok(Source::Posix { file: Arc::new(dir.open_copy(ino, &copy)?), path }))
                    .await
            }
            Archive::S3(bucket) => Ok(Source::S3(bucket.open_copy(ino, &copy).await?)),
        }
    }

    /// Checksums of the extents of a copy that the MDT knows; `None` if the copy has none: it is of an earlier release, or of another tool.
    pub async fn sums(&self, ino: Ino, copy: &ArchivedCopy) -> Option<Sums> {
        let name = CopyName::of(ino, copy);
        let manifest = match self {
            Archive::Posix(dir) => {
                let dir = dir.clone();
                off_thread(move || dir.manifest_of(&name)).await
            }
            Archive::S3(bucket) => bucket.manifest_of(&name).await,
        };
        let told = match manifest {
            Ok(manifest) => manifest?.extents?,
            Err(fault) => {
                tracing::warn!(file = %ino.fid(), %fault, "its readers wait until all of it is restored");
                return None;
            }
        };
        match Sums::of(&told, copy.size_bytes, &copy.checksum) {
            Ok(sums) => Some(sums),
            Err(why) => {
                tracing::warn!(file = %ino.fid(), why, "its readers wait until all of it is restored");
                None
            }
        }
    }

    /// Removes the copies of a file by attempts before this one: what is archived after the remove was given out stays, however late the
    /// agent is.
    pub async fn remove(&self, ino: Ino, before: Pair, path: Vec<u8>) -> Result<()> {
        match self {
            Archive::Posix(dir) => {
                let dir = dir.clone();
                off_thread(move || dir.remove(ino, before, &path)).await
            }
            Archive::S3(bucket) => bucket.remove(ino, before).await,
        }
    }
}

/// A complete copy, and the file that it is of.
pub struct Whole {
    /// The copy, as the MDT will know it.
    pub copy: ArchivedCopy,
    /// Attributes of the file.
    pub attr: Attr,
    /// The manifest.
    pub manifest: Manifest,
}

/// A copy that is being written.
pub enum Incoming {
    /// Into a directory.
    Posix(Arc<posix::Incoming>),
    /// Into a bucket.
    S3(s3::Upload),
}

impl Incoming {
    /// Takes the next bytes of the file, in order. `is_hole`: they are all zeros.
    pub async fn write(&mut self, start: u64, bytes: Bytes, is_hole: bool) -> Result<()> {
        match self {
            Incoming::Posix(_) if is_hole => Ok(()),
            Incoming::Posix(file) => {
                let file = file.clone();
                off_thread(move || file.write(&bytes, start)).await
            }
            Incoming::S3(upload) => upload.write(bytes).await,
        }
    }

    /// Takes the parts of an upload that several agents have written, in order.
    pub fn has_parts(&mut self, parts: Vec<String>) {
        if let Incoming::S3(upload) = self {
            upload.has_parts(parts);
        }
    }

    /// Makes the copy complete and durable under its own name.
    pub async fn finish(&mut self, whole: Whole) -> Result<()> {
        match self {
            Incoming::Posix(file) => {
                let file = file.clone();
                off_thread(move || file.finish(&whole)).await
            }
            Incoming::S3(upload) => upload.finish(&whole).await,
        }
    }

    /// Removes a copy that does not count.
    pub async fn discard(self) -> Result<()> {
        match self {
            Incoming::Posix(file) => {
                off_thread(move || {
                    if let Some(file) = Arc::into_inner(file) {
                        file.discard();
                    }
                    Ok(())
                })
                .await
            }
            Incoming::S3(upload) => {
                upload.discard().await;
                Ok(())
            }
        }
    }
}

/// A span of a copy that is being written.
pub enum Part {
    /// Span of a file in a directory.
    Posix(Arc<posix::Part>),
    /// Part of an upload.
    S3(s3::Part),
}

impl Part {
    /// Takes bytes at their place in the file, in order. `is_hole`: they are all zeros.
    pub async fn write(&mut self, start: u64, bytes: Bytes, is_hole: bool) -> Result<()> {
        match self {
            Part::Posix(_) if is_hole => Ok(()),
            Part::Posix(part) => {
                let part = part.clone();
                off_thread(move || part.write(&bytes, start)).await
            }
            Part::S3(part) => {
                part.write(bytes);
                Ok(())
            }
        }
    }

    /// Makes the span durable. Returns the name of the part, where the archive has uploads.
    pub async fn finish(self) -> Result<Option<String>> {
        match self {
            Part::Posix(part) => off_thread(move || part.finish()).await.map(|()| None),
            Part::S3(part) => part.finish().await.map(Some),
        }
    }
}

/// A copy that is being read.
pub enum Source {
    /// Copy in a directory.
    Posix {
        /// The copy.
        file: Arc<File>,
        /// Path of the file.
        path: PathBuf,
    },
    /// Copy in a bucket.
    S3(s3::Object),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Posix { path, .. } => path.display().fmt(f),
            Source::S3(object) => object.fmt(f),
        }
    }
}

impl Source {
    /// Bytes of one read, and number of reads on their way at once.
    pub fn pace(&self) -> (u64, usize) {
        match self {
            Source::Posix { .. } => (PART_BYTES, PARTS_AT_ONCE),
            Source::S3(_) => (s3::RANGE_BYTES, s3::PARTS_AT_ONCE),
        }
    }

    /// Reads a part.
    pub async fn read(&self, start: u64, len: u64) -> Result<Bytes> {
        match self {
            Source::Posix { file, path } => {
                let (file, path) = (file.clone(), path.clone());
                off_thread(move || {
                    let mut bytes = vec![0; to_usize(len)];
                    file.read_exact_at(&mut bytes, start).map_err(|e| {
                        Fault::io(Code::ArchiveFailed, "cannot read the copy", path.display().to_string(), &e)
                    })?;
                    Ok(Bytes::from(bytes))
                })
                .await
            }
            Source::S3(object) => object.read(start, len).await,
        }
    }
}
