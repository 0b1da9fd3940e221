//! Contents of a bucket, for an import: file systems, the copies of files, their manifests.

use std::collections::BTreeMap;

use brindle_types::{Code, Fault, Ino, Pair, Result};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt};

use super::{Bucket, DATA, MANIFEST, MARK, attempt_of, marked, text};
use crate::archive::CopyName;
use crate::archive::manifest::{MANIFEST_BYTES_MAX, Manifest};

/// Most copies of one file that are looked at: that of each attempt since the last complete one.
const COPIES_MAX: usize = 4096;

/// The copies of one file.
#[derive(Debug, Default)]
pub struct Copies {
    /// Directory of the copies, as a key.
    pub dir: String,
    /// Objects by attempt: length of the bytes, and whether there is a manifest.
    pub by_attempt: BTreeMap<Pair, Listed>,
}

/// Objects of one copy in the bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The key of the bytes, and their length.
    pub data: Option<(String, u64)>,
    /// The key of the manifest.
    pub manifest: Option<String>,
    /// A different file system has its bytes here.
    pub is_marked: bool,
}

/// The copies of a file. Bytes that are kept for another file system alone are none.
fn of_this_one(mut copies: Copies) -> Option<Copies> {
    copies.by_attempt.retain(|_, listed| listed.manifest.is_some() || !listed.is_marked);
    Some(copies).filter(|copies| !copies.by_attempt.is_empty())
}

/// Whether this is the name of a file system in a bucket: `NAME.FSID`.
fn is_file_system(name: &str) -> bool {
    let id = name.rsplit_once('.').filter(|(name, _)| !name.is_empty());
    id.is_some_and(|(_, id)| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Walks through a listing, file by file.
pub struct Listing {
    bucket: Bucket,
    objects: BoxStream<'static, object_store::Result<ObjectMeta>>,
    next: Copies,
}

impl Listing {
    /// The copies of the next file; `None` behind the last.
    pub async fn next(&mut self) -> Result<Option<Copies>> {
        loop {
            let object = self.objects.try_next().await.map_err(|e| {
                let dir = Path::from(self.bucket.root.clone());
                self.bucket.failed("cannot list copies in the archive:", &dir, &e)
            })?;
            let Some(object) = object else {
                let last = std::mem::take(&mut self.next);
                return Ok(of_this_one(last));
            };
            let key = object.location.to_string();
            let Some((dir, leaf)) = key.rsplit_once('/') else { continue };
            let Some(attempt) = attempt_of(leaf) else { continue };
            // Keys come in order, so those of a file stand together.
            let before = match self.next.dir == dir {
                true => None,
                false => Some(std::mem::replace(
                    &mut self.next,
                    Copies { dir: dir.to_owned(), by_attempt: BTreeMap::new() },
                )),
            };
            if self.next.by_attempt.len() < COPIES_MAX {
                let listed = self.next.by_attempt.entry(attempt).or_default();
                match (leaf.ends_with(MANIFEST), marked(leaf).is_some()) {
                    (true, _) => listed.manifest = Some(key),
                    (false, true) => listed.is_marked = true,
                    (false, false) => listed.data = Some((key, object.size)),
                }
            }
            if let Some(before) = before.and_then(of_this_one) {
                return Ok(Some(before));
            }
        }
    }
}

impl Bucket {
    /// The file systems that have copies here, as `NAME.FSID`; below the prefix that was given for the archive.
    pub async fn file_systems(&self) -> Result<Vec<String>> {
        let root = Path::from(self.root.clone());
        let listed = self.store.list_with_delimiter(Some(&root)).await;
        let listed = listed.map_err(|e| self.failed("cannot list the archive", &root, &e))?;
        let names = listed.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned));
        Ok(names.filter(|name| is_file_system(name)).collect())
    }

    /// The copies of a file system.
    pub fn copies(&self, file_system: &str) -> Listing {
        let slash = if self.root.is_empty() { "" } else { "/" };
        let dir = Path::from(format!("{}{slash}{file_system}", self.root));
        // The stream is fused: it is polled once more after its end, for the last file.
        let objects = self.store.list(Some(&dir)).fuse().boxed();
        Listing { bucket: self.clone(), objects, next: Copies::default() }
    }

    /// A key as people write it.
    pub fn shown(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.place.bucket)
    }

    /// The manifest of a copy that the MDT knows; `None` if there is none.
    pub async fn manifest_of(&self, name: &CopyName) -> Result<Option<Manifest>> {
        let key = self.key(name, MANIFEST);
        match self.length(&key).await? {
            Some(_) => Ok(Some(self.manifest(key.as_ref()).await?)),
            None => Ok(None),
        }
    }

    /// Reads a manifest.
    pub async fn manifest(&self, key: &str) -> Result<Manifest> {
        let path = Path::from(key);
        let wrong = |why: String| Fault::new(Code::ManifestDamaged).subject(self.shown(key)).why(why);
        let got = match self.store.get(&path).await {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Err(wrong("it is not there".to_owned())),
            Err(e) => return Err(self.failed("cannot read the manifest", &path, &e)),
        };
        if got.meta.size > MANIFEST_BYTES_MAX {
            return Err(wrong(format!("it has {} bytes, more than any manifest", got.meta.size)));
        }
        let json = got.bytes().await.map_err(|e| self.failed("cannot read the manifest", &path, &e))?;
        let manifest = Manifest::from_json(&json).map_err(wrong)?;
        let prefix = &self.place.prefix;
        let is_below = prefix.is_empty()
            || manifest.object.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
        match is_below && manifest.object.ends_with(DATA) {
            true => Ok(manifest),
            false => Err(wrong(format!("'{}' is no key of bytes of this archive", manifest.object))),
        }
    }

    /// Whether an object is there with this length.
    pub async fn has(&self, key: &str, len_bytes: u64) -> Result<bool> {
        Ok(self.length(&Path::from(key)).await? == Some(len_bytes))
    }

    /// Whether a file has the copy whose bytes have this key.
    pub async fn is_copy_of(&self, ino: Ino, object: &str) -> Result<bool> {
        let mut keys = self.keys_of(&self.dir(ino)).await?;
        keys.retain(|key| text(key).ends_with(MANIFEST));
        for key in &keys {
            if self.manifest(text(key)).await?.object == object {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes a mark beside bytes that a file of this file system is to have: another file system that removes its copies then leaves the
    /// bytes.
    ///
    /// A removal takes the manifest first, then looks for marks, then takes the bytes. If the manifest is still there after the mark was
    /// written, the removal therefore sees the mark. Marks are never removed: several files may have the same bytes.
    async fn mark(&self, object: &str, fs_id: &str) -> Result<()> {
        let wrong = || Fault::new(Code::Bug).subject(self.shown(object)).why("it is no key of bytes");
        let stem = object.strip_suffix(DATA).ok_or_else(wrong)?;
        let (dir, _) = object.rsplit_once('/').ok_or_else(wrong)?;
        let (bytes, mark) = (Path::from(object), Path::from(format!("{object}{MARK}{fs_id}")));
        let is_kept = self.is_marked(dir, &bytes).await?;
        let put = self.store.put(&mark, fs_id.as_bytes().to_vec().into()).await;
        put.map_err(|e| self.failed("cannot mark bytes as those of two files:", &mark, &e))?;
        let is_there = is_kept || self.length(&Path::from(format!("{stem}{MANIFEST}"))).await?.is_some();
        if is_there && self.length(&bytes).await?.is_some() {
            return Ok(());
        }
        // The mark stays: another file of this file system may count on it.
        Err(Fault::new(Code::ArchiveDamaged)
            .what("not imported")
            .subject(self.shown(object))
            .why("its manifest is gone: an agent of the file system that it is from removes the copy"))
    }

    /// Gives a copy that lies in the bucket already to another file: a manifest that says where the bytes are.
    pub async fn adopt(&self, name: &CopyName, manifest: &Manifest) -> Result<()> {
        self.mark(&manifest.object, &manifest.fs_id).await?;
        let key = self.key(name, MANIFEST);
        let put = self.store.put(&key, manifest.to_json()?.into()).await;
        put.map(drop).map_err(|e| self.failed("cannot write the manifest", &key, &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_kept_for_another_file_system_are_no_copy() {
        let listed = |manifest: Option<&str>, is_marked| Listed {
            data: Some(("d".to_owned(), 1)),
            manifest: manifest.map(str::to_owned),
            is_marked,
        };
        let of = |one: Listed| {
            let by_attempt = BTreeMap::from([(Pair { term: 1, counter: 1 }, one)]);
            of_this_one(Copies { dir: "d".to_owned(), by_attempt }).is_some()
        };
        assert!(of(listed(Some("m"), true)) && of(listed(None, false)));
        assert!(!of(listed(None, true)));
    }

    #[test]
    fn file_systems_are_told_from_whatever_else_lies_in_a_bucket() {
        assert!(is_file_system("scratch.0123456789abcdef") && is_file_system("a.b.0123456789abcdef"));
        for other in
            ["scratch", "scratch.01", ".0123456789abcdef", "try-0123456789abcdef", "s.0123456789abcdeg"]
        {
            assert!(!is_file_system(other), "{other}");
        }
    }
}
