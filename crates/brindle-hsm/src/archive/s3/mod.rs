//! An archive in a bucket of an S3 server.
//!
//! | key | what |
//! |---|---|
//! | `PREFIX/FS.FSID/8f/02/200000401-1-0/v3-17.a3-1a.data` | the bytes: version 3.17 of the contents, by attempt 3.26 |
//! | `PREFIX/FS.FSID/8f/02/200000401-1-0/v3-17.a3-1a.json` | its [manifest](super::manifest), written after them |
//! | `PREFIX/FS.FSID/8f/02/200000401-1-0/v3-17.a3-1a.data.ref.FSID2` | the bytes are also those of a file that was imported into the file system of this id: they stay |
//!
//! `8f/02` is the beginning of BLAKE3 of the FID's text. No key is ever written with two contents, and none is a part of another one's path,
//! which servers that keep objects as files refuse. An object is durable once the server has answered. SHA-256 of every part goes with it and is
//! compared by the server; what is read back is compared with BLAKE3 of the whole, which the MDT and the manifest have.

mod explain;
mod found;
mod http;
mod place;
mod upload;

pub use self::found::{Copies, Listed, Listing};
pub use self::place::{BucketLocation, Credentials, REGION_DEFAULT, bucket_and_prefix};
pub use self::upload::{Part, Upload};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use brindle_stdx::Seams;
use brindle_types::{ArchivedCopy, Fid, Ino, Pair, Result};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::path::Path;
use object_store::{BackoffConfig, Error, ObjectStore, ObjectStoreExt, RetryConfig};

use self::explain::explain;
use super::{CopyName, damaged};

/// Bytes that are read at once.
pub const RANGE_BYTES: u64 = 8 << 20;
/// Parts of a file that are on their way, in either direction.
pub const PARTS_AT_ONCE: usize = 4;
/// Number of repetitions of a request after a failure of the server or the network.
const RETRIES: usize = 4;
/// After so long nothing is sent again: longer than one request that is not answered may take, and shorter than a signature holds (5 min).
const RETRY_LIMIT: Duration = Duration::from_secs(240);
/// The first and the longest pause before that.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));
/// Last part of a key: of the bytes of a copy, and of its manifest.
const DATA: &str = "data";
const MANIFEST: &str = "json";
/// Suffix of a mark, between the key of the bytes and the id of another file system that has them, too.
const MARK: &str = ".ref.";

/// A bucket, and where in it the copies of a file system lie.
#[derive(Clone)]
pub struct Bucket {
    store: Arc<AmazonS3>,
    place: Arc<BucketLocation>,
    /// Prefix of every key, without a slash at the end.
    root: String,
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}

/// A FID in a key.
fn fid_name(fid: Fid) -> String {
    format!("{:x}-{:x}-{:x}", fid.seq, fid.oid, fid.ver)
}

/// The directory of a file below a root.
fn dir_of(root: &str, ino: Ino) -> String {
    let fid = fid_name(ino.fid());
    let hash = blake3::hash(fid.as_bytes());
    let [first, second, ..] = hash.as_bytes();
    let slash = if root.is_empty() { "" } else { "/" };
    format!("{root}{slash}{first:02x}/{second:02x}/{fid}")
}

fn leaf(name: &CopyName, kind: &str) -> String {
    let CopyName { data_version: v, attempt: a, .. } = name;
    format!("v{:x}-{:x}.a{:x}-{:x}.{kind}", v.term, v.counter, a.term, a.counter)
}

/// The attempt in the last part of a key.
fn attempt_of(leaf: &str) -> Option<Pair> {
    let (_, rest) = leaf.strip_prefix('v')?.split_once(".a")?;
    let (attempt, _) = rest.split_once('.')?;
    let (term, counter) = attempt.split_once('-')?;
    Some(Pair { term: u32::from_str_radix(term, 16).ok()?, counter: u64::from_str_radix(counter, 16).ok()? })
}

/// The key of the bytes that a mark lies beside; `None` if the key is no mark.
fn marked(key: &str) -> Option<&str> {
    let (object, by) = key.rsplit_once(MARK)?;
    (object.ends_with(DATA) && !by.contains('/')).then_some(object)
}

fn text(key: &Path) -> &str {
    key.as_ref()
}

/// Whether a key is one of an attempt before this one.
fn is_older(key: &Path, before: Pair) -> bool {
    key.filename().and_then(attempt_of).is_some_and(|attempt| attempt < before)
}

impl Bucket {
    /// A bucket. Fails if copies could not be made there.
    pub async fn open(place: BucketLocation, credentials: &Credentials, seams: &Seams) -> Result<Bucket> {
        let connector = http::Connector::new(&place, seams)?;
        let backoff = BackoffConfig { init_backoff: PAUSES.0, max_backoff: PAUSES.1, base: 2.0 };
        let retry = RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_LIMIT };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&place.bucket)
            .with_region(&place.region)
            .with_checksum_algorithm(Checksum::SHA256)
            .with_disable_bulk_delete(true)
            .with_retry(retry)
            .with_http_connector(connector);
        if let Some(endpoint) = &place.endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        let built = credentials.enter(builder).build();
        let store = built.map_err(|e| explain("cannot use the archive", &place, &e))?;
        let root = place.prefix.clone();
        let bucket = Bucket { store: Arc::new(store), place: Arc::new(place), root };
        bucket.try_out(seams.rng.next_u64()).await?;
        Ok(bucket)
    }

    /// Makes an object, and removes it.
    async fn try_out(&self, number: u64) -> Result<()> {
        let slash = if self.root.is_empty() { "" } else { "/" };
        let key = Path::from(format!("{}{slash}try-{number:016x}", self.root));
        let tried = async {
            self.store.put(&key, Bytes::from_static(b"brindle").into()).await?;
            self.store.delete(&key).await
        };
        tried.await.map_err(|e| explain("cannot use the archive", self, &e))
    }

    /// The part of it that belongs to a file system.
    pub fn of_file_system(mut self, name: &str) -> Bucket {
        let slash = if self.root.is_empty() { "" } else { "/" };
        self.root = format!("{}{slash}{name}", self.root);
        self
    }

    fn dir(&self, ino: Ino) -> String {
        dir_of(&self.root, ino)
    }

    fn key(&self, name: &CopyName, kind: &str) -> Path {
        Path::from(format!("{}/{}", self.dir(name.ino), leaf(name, kind)))
    }

    /// `s3://BUCKET/KEY`.
    fn url(&self, key: &Path) -> String {
        format!("s3://{}/{key}", self.place.bucket)
    }

    fn failed(&self, what: &'static str, key: &Path, e: &Error) -> brindle_types::Fault {
        explain(what, &self.url(key), e)
    }

    /// Begins a copy of so many bytes.
    pub async fn begin(&self, name: CopyName, size_bytes: u64) -> Result<Upload> {
        Upload::begin(self.clone(), name, size_bytes).await
    }

    /// Begins a copy that several agents upload. Returns the name of the upload, too.
    pub async fn begin_divided(&self, name: CopyName) -> Result<(Upload, String)> {
        Upload::begin_divided(self.clone(), name).await
    }

    /// Begins a part of an upload.
    pub fn open_part(&self, name: CopyName, upload: &str, number: u32) -> Part {
        Part::new(self.clone(), &name, upload, number)
    }

    /// Removes copies by earlier attempts than this one.
    pub async fn remove_older(&self, name: &CopyName) -> Result<()> {
        self.remove(name.ino, name.attempt).await
    }

    /// Removes the copies of a file by attempts before this one. Bytes that a file of another file system has, too, stay.
    pub async fn remove(&self, ino: Ino, before: Pair) -> Result<()> {
        let dir = self.dir(ino);
        let mut keys = self.keys_of(&dir).await?;
        keys.retain(|key| is_older(key, before));
        if keys.is_empty() {
            return Ok(());
        }
        keys.retain(|key| text(key).ends_with(MANIFEST));
        // Manifests first: there is none without its bytes, and an import that finds one relies on its mark being seen below.
        for key in &keys {
            self.delete(key).await?;
        }
        let mut keys = self.keys_of(&dir).await?;
        let kept: Vec<String> = keys.iter().filter_map(|key| marked(text(key))).map(str::to_owned).collect();
        keys.retain(|key| {
            let is_kept = marked(text(key)).is_some() || kept.iter().any(|bytes| bytes == text(key));
            is_older(key, before) && !is_kept
        });
        for key in &keys {
            self.delete(key).await?;
        }
        Ok(())
    }

    /// Removes a copy. The bytes stay if a file of another file system has them, too.
    async fn remove_one(&self, name: &CopyName) -> Result<()> {
        self.delete(&self.key(name, MANIFEST)).await?;
        let bytes = self.key(name, DATA);
        match self.is_marked(&self.dir(name.ino), &bytes).await? {
            true => Ok(()),
            false => self.delete(&bytes).await,
        }
    }

    /// Whether a file of another file system has the bytes of this key in this directory.
    async fn is_marked(&self, dir: &str, bytes: &Path) -> Result<bool> {
        let keys = self.keys_of(dir).await?;
        Ok(keys.iter().any(|key| marked(text(key)) == Some(text(bytes))))
    }

    /// The keys of a directory.
    async fn keys_of(&self, dir: &str) -> Result<Vec<Path>> {
        let dir = Path::from(dir);
        let listed = self.store.list(Some(&dir)).map_ok(|meta| meta.location).try_collect::<Vec<Path>>();
        listed.await.map_err(|e| self.failed("cannot list copies in the archive:", &dir, &e))
    }

    /// Removes an object, if it is there.
    async fn delete(&self, key: &Path) -> Result<()> {
        match self.store.delete(key).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed("cannot remove a copy from the archive:", key, &e)),
        }
    }

    /// Opens a copy that the MDT knows.
    pub async fn open_copy(&self, ino: Ino, copy: &ArchivedCopy) -> Result<Object> {
        let name = CopyName::of(ino, copy);
        let own = self.key(&name, DATA);
        let (key, len_bytes) = match self.length(&own).await? {
            Some(len_bytes) => (own, len_bytes),
            None => self.elsewhere(&name, &own).await?,
        };
        if len_bytes != copy.size_bytes {
            let why = format!("it has {len_bytes} bytes, {} were archived", copy.size_bytes);
            return Err(damaged(&self.url(&key), why));
        }
        Ok(Object { bucket: self.clone(), key })
    }
}

impl Bucket {
    /// The length of an object; `None` if there is none.
    async fn length(&self, key: &Path) -> Result<Option<u64>> {
        match self.store.head(key).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("cannot read the copy", key, &e)),
        }
    }

    /// Location and length of the bytes of an imported file, from its manifest.
    async fn elsewhere(&self, name: &CopyName, own: &Path) -> Result<(Path, u64)> {
        let missing = |key: &Path| damaged(&self.url(key), "it is not there".to_owned());
        let manifest = self.key(name, MANIFEST);
        if self.length(&manifest).await?.is_none() {
            return Err(missing(own));
        }
        let key = Path::from(self.manifest(manifest.as_ref()).await?.object);
        match self.length(&key).await? {
            Some(len_bytes) => Ok((key, len_bytes)),
            None => Err(missing(&key)),
        }
    }
}

/// An object with the bytes of a copy.
pub struct Object {
    bucket: Bucket,
    key: Path,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bucket.url(&self.key).fmt(f)
    }
}

impl Object {
    /// Reads a part.
    pub async fn read(&self, start: u64, len: u64) -> Result<Bytes> {
        let read = self.bucket.store.get_range(&self.key, start..start + len).await;
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(Error::NotFound { .. }) => return Err(damaged(self, "it is not there any more".to_owned())),
            Err(e) => return Err(self.bucket.failed("cannot read the copy", &self.key, &e)),
        };
        if bytes.len() as u64 != len {
            return Err(damaged(self, format!("it ends at byte {}", start + bytes.len() as u64)));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: CopyName = CopyName {
        ino: Ino(1 << 48 | 7),
        data_version: Pair { term: 3, counter: 17 },
        attempt: Pair { term: 3, counter: 26 },
    };

    #[test]
    fn keys_have_file_version_and_attempt_and_are_equally_deep() {
        assert_eq!(leaf(&NAME, DATA), "v3-11.a3-1a.data");
        assert_eq!(attempt_of(&leaf(&NAME, MANIFEST)), Some(NAME.attempt));
        for strange in ["", "v3-11", "v3-11.a3.data", "x3-11.a3-1a.data", "v3-11.a3-1a", "v3-11.a3--1.data"] {
            assert_eq!(attempt_of(strange), None, "{strange}");
        }
        let bytes = format!("p/fs.01/{}", leaf(&NAME, DATA));
        assert_eq!(marked(&format!("{bytes}{MARK}01")), Some(&bytes[..]));
        assert_eq!((marked(&bytes), marked("a.data.ref.b/c"), marked("a.json.ref.01")), (None, None, None));
        let dirs = [dir_of("p/fs.01", NAME.ino), dir_of("p/fs.01", Ino(1 << 48 | 8))];
        assert!(dirs.iter().all(|dir| dir.split('/').count() == 5), "{dirs:?}");
        assert_ne!(dirs[0], dirs[1]);
        assert_eq!(dir_of("", NAME.ino).split('/').count(), 3, "no part is empty");
    }
}
