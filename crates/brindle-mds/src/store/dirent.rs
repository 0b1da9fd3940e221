//! `D|dir|shard|hash|name`: directory entries, in order of a keyed hash of the name (design note 003).
//!
//! The hash is also the cookie of readdir and telldir: it stays valid whatever is added or removed, over restarts and on
//! every client, because it depends on nothing but the name and the file system's key.

use std::hash::Hasher;

use brindle_types::{FileType, Ino, Result};
use brindle_wire::mds::readdir::COOKIE_FIRST;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use super::changes::NameEffect;
use super::{Changes, Rows, keys, row};

row::first_form!(Dirent);

/// Entries with one hash that are read at once; more than one is a rarity.
const COLLISIONS_MAX: usize = 1024;

/// Key of the hash of names: from the format row, so that it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashKey(pub u64, pub u64);

impl HashKey {
    /// Place of a name in its directory: 63 bits, at least [`COOKIE_FIRST`].
    pub fn hash(self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
        hasher.write(name);
        (hasher.finish() >> 1).max(COOKIE_FIRST)
    }
}

/// Target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dirent {
    /// Inode.
    pub ino: Ino,
    /// Type of the entry.
    pub kind: FileType,
}

/// An entry as a scan finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedEntry {
    /// Place.
    pub hash: u64,
    /// Name.
    pub name: Vec<u8>,
    /// Target of the name.
    pub entry: Dirent,
}

/// The entry of a name.
pub fn find(rows: &(impl Rows + ?Sized), key: HashKey, dir: Ino, name: &[u8]) -> Result<Option<Dirent>> {
    let key = keys::dirent(dir, key.hash(name), name);
    rows.row(&key)?.map(|value| row::decode("directory entry", &key, &value)).transpose()
}

/// Sets an entry.
pub fn put(t: &mut Changes<'_>, key: HashKey, dir: Ino, name: &[u8], entry: &Dirent) {
    t.put_row(keys::dirent(dir, key.hash(name), name), entry);
    let to = Some((entry.ino, entry.kind));
    t.effects_mut().names.push(NameEffect { dir, name: name.to_vec(), to });
}

/// Removes an entry.
pub fn delete(t: &mut Changes<'_>, key: HashKey, dir: Ino, name: &[u8]) {
    t.delete(keys::dirent(dir, key.hash(name), name));
    t.effects_mut().names.push(NameEffect { dir, name: name.to_vec(), to: None });
}

/// Whether a directory has no entries.
pub fn is_empty(rows: &(impl Rows + ?Sized), dir: Ino) -> Result<bool> {
    Ok(rows.rows(&keys::dir(dir), None, 1)?.is_empty())
}

fn decode(key: &[u8], value: &Bytes) -> Result<ScannedEntry> {
    let (_, hash, name) =
        keys::split_dirent(key).ok_or_else(|| row::damaged("directory entry", key, "short key".into()))?;
    Ok(ScannedEntry { hash, name: name.to_vec(), entry: row::decode("directory entry", key, value)? })
}

/// Entries behind the cookie `after`, about `limit` of them, and whether nothing follows. A page never ends between
/// two entries of one hash, so that the last cookie names a place that a reader can go on from.
pub fn page(
    rows: &(impl Rows + ?Sized),
    dir: Ino,
    after: u64,
    limit: usize,
) -> Result<(Vec<ScannedEntry>, bool)> {
    let prefix = keys::dir(dir);
    // Larger than every key of this hash: names are at most 255 bytes long.
    let from = (after >= COOKIE_FIRST).then(|| [&keys::dir_hash(dir, after)[..], &[0xff; 256]].concat());
    let found = rows.rows(&prefix, from.as_deref(), limit + 1)?;
    let end = found.len() <= limit;
    let mut entries = found.iter().take(limit).map(|(k, v)| decode(k, v)).collect::<Result<Vec<_>>>()?;
    let (Some(last), false) = (entries.last(), end) else { return Ok((entries, end)) };
    let last_key = &found[limit - 1].0;
    let same = rows.rows(&keys::dir_hash(dir, last.hash), Some(last_key), COLLISIONS_MAX)?;
    for (key, value) in &same {
        entries.push(decode(key, value)?);
    }
    Ok((entries, false))
}

/// At most `limit` entries behind the one of this name (all, where it is empty), whether or not that is still there.
pub fn behind(
    rows: &(impl Rows + ?Sized),
    key: HashKey,
    dir: Ino,
    name: &[u8],
    limit: usize,
) -> Result<Vec<ScannedEntry>> {
    let after = (!name.is_empty()).then(|| keys::dirent(dir, key.hash(name), name));
    let found = rows.rows(&keys::dir(dir), after.as_deref(), limit)?;
    found.iter().map(|(k, v)| decode(k, v)).collect()
}
