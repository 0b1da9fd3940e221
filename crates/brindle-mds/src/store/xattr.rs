//! `X|ino|name`: extended attributes, POSIX ACLs among them.

use brindle_types::{Ino, Result};
use bytes::Bytes;

use super::{Changes, Rows, for_each, keys, row};

/// A value; `None` if there is none.
pub fn find(rows: &(impl Rows + ?Sized), ino: Ino, name: &[u8]) -> Result<Option<Bytes>> {
    let key = keys::xattr(ino, name);
    let value: Option<Vec<u8>> =
        rows.row(&key)?.map(|value| row::decode("extended attribute", &key, &value)).transpose()?;
    Ok(value.map(Bytes::from))
}

/// Sets a value.
pub fn put(t: &mut Changes<'_>, ino: Ino, name: &[u8], value: &[u8]) {
    t.put_row(keys::xattr(ino, name), &value.to_vec());
}

/// Removes a value.
pub fn delete(t: &mut Changes<'_>, ino: Ino, name: &[u8]) {
    t.delete(keys::xattr(ino, name));
}

/// Names in order, with the length of each value.
pub fn list(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<Vec<(Vec<u8>, usize)>> {
    let mut names = Vec::new();
    for_each(rows, &keys::of_ino(keys::XATTR, ino), |key, value| {
        let (_, name) = keys::split_ino(key)
            .ok_or_else(|| row::damaged("extended attribute", key, "short key".into()))?;
        names.push((name.to_vec(), value.len()));
        Ok(true)
    })?;
    Ok(names)
}
