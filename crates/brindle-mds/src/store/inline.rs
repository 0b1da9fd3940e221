//! `N|ino`: the bytes of a small file, or the target of a symbolic link.

use brindle_types::{Ino, Result};
use bytes::Bytes;

use super::{Changes, Rows, keys, row};

/// The bytes; empty where there is no row.
pub fn get(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<Bytes> {
    let key = keys::of_ino(keys::INLINE, ino);
    let value = rows.row(&key)?;
    match value.as_ref().map(|v| v.split_first()) {
        None => Ok(Bytes::new()),
        Some(Some((&row::FIRST_VERSION, _))) => Ok(value.map(|v| v.slice(1..)).unwrap_or_default()),
        Some(_) => Err(row::damaged("inline data", &key, "its version is unknown".into())),
    }
}

/// Replaces the bytes.
pub fn put(t: &mut Changes<'_>, ino: Ino, bytes: &[u8]) {
    let key = keys::of_ino(keys::INLINE, ino);
    if bytes.is_empty() {
        t.delete(key);
    } else {
        t.put(key, [&[row::FIRST_VERSION], bytes].concat());
    }
}

/// Removes the bytes.
pub fn delete(t: &mut Changes<'_>, ino: Ino) {
    t.delete(keys::of_ino(keys::INLINE, ino));
}
