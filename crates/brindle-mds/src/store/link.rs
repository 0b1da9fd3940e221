//! `P|ino|parent|name`: the names of an inode that has several. With one name, the hint in the inode is exact and there
//! are no rows.

use brindle_types::{Ino, Result};
use bytes::Bytes;

use super::{Changes, Rows, for_each, keys, row};

/// Records a name.
pub fn put(t: &mut Changes<'_>, ino: Ino, parent: Ino, name: &[u8]) {
    t.put(keys::link(ino, parent, name), Bytes::from_static(&[row::FIRST_VERSION]));
}

/// Forgets a name.
pub fn delete(t: &mut Changes<'_>, ino: Ino, parent: Ino, name: &[u8]) {
    t.delete(keys::link(ino, parent, name));
}

/// All names that have rows: (parent, name).
pub fn list(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<Vec<(Ino, Vec<u8>)>> {
    let mut links = Vec::new();
    for_each(rows, &keys::of_ino(keys::LINK, ino), |key, _| {
        let (_, parent, name) =
            keys::split_link(key).ok_or_else(|| row::damaged("link", key, "short key".into()))?;
        links.push((parent, name.to_vec()));
        Ok(true)
    })?;
    Ok(links)
}

/// A name that has a row, other than `not`.
pub fn another(rows: &(impl Rows + ?Sized), ino: Ino, not: (Ino, &[u8])) -> Result<Option<(Ino, Vec<u8>)>> {
    let mut found = None;
    for_each(rows, &keys::of_ino(keys::LINK, ino), |key, _| {
        let (_, parent, name) =
            keys::split_link(key).ok_or_else(|| row::damaged("link", key, "short key".into()))?;
        if (parent, name) != not {
            found = Some((parent, name.to_vec()));
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}
