//! `O|ino`: inodes without a name that somebody had open (or O_TMPFILE files). Purged when the last handle goes.

use brindle_types::{Ino, Result};
use bytes::Bytes;

use super::{Changes, Rows, for_each, keys, row};

/// Marks an inode as an orphan.
pub fn put(t: &mut Changes<'_>, ino: Ino) {
    t.put(keys::of_ino(keys::ORPHAN, ino), Bytes::from_static(&[row::FIRST_VERSION]));
}

/// Removes the orphan row: the inode has a name again, or is purged.
pub fn delete(t: &mut Changes<'_>, ino: Ino) {
    t.delete(keys::of_ino(keys::ORPHAN, ino));
}

/// Whether the inode is an orphan.
pub fn is(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<bool> {
    Ok(rows.row(&keys::of_ino(keys::ORPHAN, ino))?.is_some())
}

/// All orphans.
pub fn list(rows: &(impl Rows + ?Sized)) -> Result<Vec<Ino>> {
    let mut orphans = Vec::new();
    for_each(rows, &[keys::ORPHAN], |key, _| {
        let (ino, _) = keys::split_ino(key).ok_or_else(|| row::damaged("orphan", key, "short key".into()))?;
        orphans.push(ino);
        Ok(true)
    })?;
    Ok(orphans)
}
