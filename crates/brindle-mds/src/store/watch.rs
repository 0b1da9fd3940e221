//! `W|ino`: inodes to look at after a restart: somebody had them open for writing, or a cut of their objects was under
//! way. A list beside the inodes, so that nobody has to read them all. Behind the version may be a byte: [`OWED`].

use brindle_types::{Ino, Result};
use bytes::Bytes;

use super::{Changes, Rows, for_each, keys, row};

/// A vanished client may have written bytes to the objects that no report mentions. The objects must be asked, whatever other
/// clients with the file open report.
const OWED: u8 = 1;

/// An inode on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The inode.
    pub ino: Ino,
    /// A client that is gone may have written more than is known.
    pub is_owed: bool,
}

/// Puts an inode on the list.
pub fn put(t: &mut Changes<'_>, ino: Ino) {
    t.put(keys::of_ino(keys::WATCH, ino), Bytes::from_static(&[row::FIRST_VERSION]));
}

/// Notes that a client that is gone may have written more than is known.
pub fn put_owed(t: &mut Changes<'_>, ino: Ino) {
    t.put(keys::of_ino(keys::WATCH, ino), Bytes::from_static(&[row::FIRST_VERSION, OWED]));
}

/// Takes an inode off the list.
pub fn delete(t: &mut Changes<'_>, ino: Ino) {
    t.delete(keys::of_ino(keys::WATCH, ino));
}

/// The list, in order.
pub fn list(rows: &(impl Rows + ?Sized)) -> Result<Vec<Watched>> {
    let mut watched = Vec::new();
    for_each(rows, &[keys::WATCH], |key, value| {
        let (ino, _) = keys::split_ino(key).ok_or_else(|| row::damaged("watch", key, "short key".into()))?;
        watched.push(Watched { ino, is_owed: value.get(1) == Some(&OWED) });
        Ok(true)
    })?;
    Ok(watched)
}
