//! `Batch`: the rows one operation changes, all or none; and `LogPos`, the place it got in the log.

use std::fmt;

use brindle_types::{Code, Fault, Result};
use bytes::Bytes;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Largest batch: the bytes of its keys and values and [`CHANGE_OVERHEAD_BYTES`] for each change. Long work (purging a
/// large directory) goes in several batches.
pub const BATCH_BYTES_MAX: usize = 3 << 19;
/// Bytes that a change takes in the log beside key and value, at most.
pub const CHANGE_OVERHEAD_BYTES: usize = 7;

/// A position in the log. Indices are consecutive over all terms; ordered by (index, term), which is also the order
/// of (term, index), because a later term only has later indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPos {
    /// Index of the record; the first one ever is 1, and 0 is before everything.
    pub index: u64,
    /// Term in which the record was written.
    pub term: u32,
}

impl fmt::Display for LogPos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.index)
    }
}

/// A change of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowChange {
    pub key: Bytes,
    /// `None` deletes the row.
    pub value: Option<Bytes>,
}

/// All the rows that one operation changes. Later changes of a key override earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) changes: Vec<RowChange>,
    pub(crate) frees_space: bool,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Sets a row. Keys are 1 to [`KEY_BYTES_MAX`] bytes and do not begin with a zero byte (those are the store's own).
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.changes.push(RowChange { key: key.into(), value: Some(value.into()) });
    }

    /// Removes a row, whether it exists or not.
    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.changes.push(RowChange { key: key.into(), value: None });
    }

    /// Marks the batch as one that frees space (unlink, rmdir, truncate to 0, purge, session end, ...). The store
    /// accepts it even when the MDT is full, out of the reserve that is kept for such batches.
    pub fn frees_space(&mut self) {
        self.frees_space = true;
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Number of row changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Size as [`BATCH_BYTES_MAX`] counts it.
    pub fn len_bytes(&self) -> usize {
        let value = |c: &RowChange| c.value.as_ref().map_or(0, Bytes::len);
        self.changes.iter().map(|c| CHANGE_OVERHEAD_BYTES + c.key.len() + value(c)).sum()
    }

    /// Refuses keys and values outside of the limits; these are defects of the caller.
    pub(crate) fn check(&self) -> Result<()> {
        if self.len_bytes() > BATCH_BYTES_MAX {
            return Err(Fault::new(Code::Bug).what("cannot log a batch of this size").why(format!(
                "{} changes with {} bytes; at most {BATCH_BYTES_MAX} bytes fit",
                self.len(),
                self.len_bytes()
            )));
        }
        for change in &self.changes {
            let value_len = change.value.as_ref().map_or(0, |v| v.len());
            let key_wrong = change.key.is_empty() || change.key.len() > KEY_BYTES_MAX || change.key[0] == 0;
            if key_wrong || value_len > VALUE_BYTES_MAX {
                return Err(Fault::new(Code::Bug).what("cannot store a row outside of the limits").why(format!(
                    "key of {} bytes (1 to {KEY_BYTES_MAX}, first byte not 0), value of {value_len} bytes (at most {VALUE_BYTES_MAX})",
                    change.key.len()
                )));
            }
        }
        Ok(())
    }
}
