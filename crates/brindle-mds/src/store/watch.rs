//! `W|ino`: inodes to look at after a restart: somebody had them open for writing, or a cut of their objects was under
//! way. A list beside the inodes, so that nobody has to read them all.

use brindle_types::{Ino, Result};
use bytes::Bytes;

use super::{Changes, Rows, for_each, keys, row};

/// Puts an inode on the list.
pub fn put(t: &mut Changes<'_>, ino: Ino) {
    t.put(keys::of_ino(keys::WATCH, ino), Bytes::from_static(&[row::VERSION]));
}

/// Takes it off.
pub fn delete(t: &mut Changes<'_>, ino: Ino) {
    t.delete(keys::of_ino(keys::WATCH, ino));
}

/// The list, in order.
pub fn list(rows: &(impl Rows + ?Sized)) -> Result<Vec<Ino>> {
    let mut inodes = Vec::new();
    for_each(rows, &[keys::WATCH], |key, _| {
        let (ino, _) = keys::split_ino(key).ok_or_else(|| row::damaged("watch", key, "short key".into()))?;
        inodes.push(ino);
        Ok(true)
    })?;
    Ok(inodes)
}
