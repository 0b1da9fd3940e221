//! Rows: the durable state of an MDT, one file per kind of row. The only code that touches `brindle-kv`.
//!
//! Called by `core` (batches), by the operations (through [`crate::mdt::Txn`]) and by fsck (through [`KvReader`]). Keys are
//! big-endian so that scans are ordered; a value is a version byte and the postcard form of the row
//! (`golden/`). Every operation changes all the rows it implies in one batch.

pub mod append;
pub mod changelog;
pub mod changes;
pub mod destroy_queue;
pub mod dirent;
pub mod engine;
pub mod hot;
pub mod hsm;
pub mod inline;
pub mod inode;
pub mod keys;
pub mod limit;
pub mod link;
pub mod meta;
pub mod orphan;
pub mod reply;
pub mod row;
pub mod session;
pub mod usage;
pub mod watch;
pub mod xattr;

pub use changes::Changes;
pub use engine::Engine;
pub use inode::Inode;

use brindle_kv::{Kv, KvReader};
use brindle_types::{Ino, Result};
use bytes::Bytes;

/// Rows that can be read: a store, a batch in the making, a store on a stopped target.
pub trait Rows {
    /// The value of a row.
    fn row(&self, key: &[u8]) -> Result<Option<Bytes>>;
    /// At most `limit` rows whose key begins with `prefix`, in order of key, those behind the key `after` only.
    fn rows(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>>;

    /// The inode, if it exists.
    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        inode::decode(self, ino)
    }
}

impl Rows for Kv {
    fn row(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.get(key)
    }

    fn rows(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        self.scan_prefix(prefix, after, limit)
    }
}

impl Rows for KvReader {
    fn row(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.get(key)
    }

    fn rows(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        // The first key behind `after` is `after` and a zero byte.
        let start = after.map_or_else(|| prefix.to_vec(), |a| [a, &[0]].concat());
        self.scan(&start, keys::successor(prefix).as_deref(), limit)
    }
}

/// Rows read at once by [`for_each`].
const PAGE_ROWS: usize = 512;

/// Calls `each` for every row whose key begins with `prefix`, in order, until it returns `false`.
pub fn for_each(
    rows: &(impl Rows + ?Sized),
    prefix: &[u8],
    mut each: impl FnMut(&[u8], &Bytes) -> Result<bool>,
) -> Result<()> {
    let mut after: Option<Bytes> = None;
    loop {
        let page = rows.rows(prefix, after.as_deref(), PAGE_ROWS)?;
        let full = page.len() == PAGE_ROWS;
        for (key, value) in &page {
            if !each(key, value)? {
                return Ok(());
            }
        }
        match page.into_iter().next_back() {
            Some((key, _)) if full => after = Some(key),
            _ => return Ok(()),
        }
    }
}
