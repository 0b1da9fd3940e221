//! Rows in memory: everything appended since the last checkpoint, and the merge of such layers over the checkpoint.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use brindle_types::Result;
use bytes::Bytes;

use crate::batch::{LogPos, RowChange};
use crate::store::{ReadRow, View};

/// Memory that a changed row costs beside its bytes.
const ROW_OVERHEAD_BYTES: usize = 128;
/// Rows copied out of the changing memtable under its lock at a time.
const SCAN_CHUNK_ROWS: usize = 512;

/// A layer of changes; `None` is a deleted row.
#[derive(Default, Debug)]
pub(crate) struct Memtable {
    rows: BTreeMap<Bytes, Option<Bytes>>,
    /// Bytes of all log records applied: an upper bound of the memory of the rows, which are slices of records.
    pub bytes: usize,
    /// The last record applied.
    pub last: LogPos,
    /// The last record below the memtable.
    pub base: LogPos,
}

impl Memtable {
    /// An empty one on top of a checkpoint that ends with `applied`.
    pub fn on_top_of(applied: LogPos) -> Memtable {
        Memtable { last: applied, base: applied, ..Memtable::default() }
    }

    /// Applies one record of `record_bytes` bytes whose changes are slices of it.
    pub fn apply(&mut self, pos: LogPos, record_bytes: usize, changes: Vec<RowChange>) {
        assert!(self.is_empty() || pos.index > self.last.index, "record {pos:?} behind {:?}", self.last);
        self.bytes += record_bytes + changes.len() * ROW_OVERHEAD_BYTES;
        self.last = pos;
        for change in changes {
            self.rows.insert(change.key, change.value);
        }
    }

    /// Whether no record was applied.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn rows(&self) -> &BTreeMap<Bytes, Option<Bytes>> {
        &self.rows
    }

    fn get(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.rows.get(key)
    }

    pub fn range(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&Bytes, &Option<Bytes>)> {
        // An end before the start is an empty range, and not a panic.
        let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.max(start)));
        self.rows.range::<[u8], _>((Bound::Included(start), end))
    }
}

/// The three layers a read sees, newest first.
pub(crate) struct Layers {
    pub active: Memtable,
    pub frozen: Option<Arc<Memtable>>,
    pub view: Arc<View>,
}

/// Outcome of a point read in memory.
pub(crate) enum PointRead {
    Here(Option<Bytes>),
    Below(Arc<View>),
}

/// Part of a scan that was taken out of the layers in memory.
pub(crate) struct Chunk {
    active: Vec<(Bytes, Option<Bytes>)>,
    frozen: Option<Arc<Memtable>>,
    view: Arc<View>,
    /// The rows of `active` are complete up to here, exclusively; `None`: to the end asked for.
    covered: Option<Bytes>,
}

/// Takes a chunk out of layers, wherever they are kept.
pub(crate) type TakeChunk<'a> = &'a dyn Fn(&[u8], Option<&[u8]>) -> Chunk;

/// Rows as reads return them.
pub(crate) type Rows = Vec<(Bytes, Bytes)>;

impl Layers {
    pub fn find(&self, key: &[u8]) -> PointRead {
        if let Some(value) = self.active.get(key) {
            return PointRead::Here(value.clone());
        }
        if let Some(value) = self.frozen.as_ref().and_then(|f| f.get(key)) {
            return PointRead::Here(value.clone());
        }
        PointRead::Below(self.view.clone())
    }

    pub fn chunk(&self, start: &[u8], end: Option<&[u8]>) -> Chunk {
        let mut range = self.active.range(start, end);
        let active: Vec<_> =
            range.by_ref().take(SCAN_CHUNK_ROWS).map(|(k, v)| (k.clone(), v.clone())).collect();
        let covered = range.next().map(|(k, _)| k.clone());
        Chunk { active, frozen: self.frozen.clone(), view: self.view.clone(), covered }
    }

    /// The greatest changed key in `start..end` of the layers in memory, with its value.
    pub fn last_change(&self, start: &[u8], end: Option<&[u8]>) -> Option<(Bytes, Option<Bytes>)> {
        let own = |(k, v): (&Bytes, &Option<Bytes>)| (k.clone(), v.clone());
        let active = self.active.range(start, end).next_back().map(own);
        let frozen = self.frozen.as_ref().and_then(|f| f.range(start, end).next_back().map(own));
        match (active, frozen) {
            (Some(a), Some(f)) => Some(if a.0 >= f.0 { a } else { f }),
            (a, f) => a.or(f),
        }
    }
}

impl Chunk {
    /// Adds rows of this chunk to `rows` until there are `limit`; returns where the scan goes on, if it does.
    pub fn merge_into(
        self,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
        rows: &mut Rows,
    ) -> Result<Option<Bytes>> {
        let end = self.covered.as_deref().or(end);
        let mut active = self.active.iter().map(|(k, v)| (k, v)).peekable();
        let frozen = self.frozen.as_deref();
        let mut frozen = frozen.into_iter().flat_map(|f| f.range(start, end)).peekable();
        let mut below = self.view.range(start, end)?.map(whole);
        let mut next_below = below.next().transpose()?;
        while rows.len() < limit {
            let in_memory = match (active.peek(), frozen.peek()) {
                (Some(a), Some(f)) => Some(a.0.min(f.0)),
                (a, f) => a.or(f).map(|(k, _)| *k),
            };
            let Some(key) = in_memory else {
                let Some(row) = next_below.take() else { return Ok(self.covered.clone()) };
                rows.push(row);
                next_below = below.next().transpose()?;
                continue;
            };
            if let Some(row) = next_below.take_if(|(k, _)| *k < *key) {
                rows.push(row);
                next_below = below.next().transpose()?;
                continue;
            }
            if next_below.take_if(|(k, _)| *k == *key).is_some() {
                next_below = below.next().transpose()?;
            }
            let from_frozen = frozen.next_if(|(k, _)| *k == key);
            let newest = active.next_if(|(k, _)| *k == key).or(from_frozen);
            if let Some((key, Some(value))) = newest {
                rows.push((key.clone(), value.clone()));
            }
        }
        Ok(None)
    }
}

/// A row of the checkpoint, or the fault that keeps it from being one.
pub(crate) fn whole(row: Result<ReadRow>) -> Result<(Bytes, Bytes)> {
    let (key, value) = row?;
    Ok((key, value?))
}

/// The smallest key behind all that begin with `prefix`; `None` if there is none.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The smallest key behind `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}
