//! `Snapshot`: the rows of a store at one moment, for a backup that is read while the store goes on.

use std::sync::Arc;

use brindle_types::Result;
use bytes::Bytes;

use crate::batch::LogPos;
use crate::engine::scan_layers;
use crate::memtable::{Layers, Memtable, successor};

/// Rows that do not change any more. Holds a state of the checkpoint, and the changes that were on their way into the next one;
/// what came later is not in it.
///
/// Fails with `KvFailed` once a checkpoint has failed under it (the device was full): then it is taken again.
pub struct Snapshot {
    layers: Layers,
    at: LogPos,
}

impl Snapshot {
    /// The state below the memtable that still changes.
    pub(crate) fn of(layers: &Layers) -> Snapshot {
        let (frozen, view) = (layers.frozen.clone(), Arc::clone(&layers.view));
        Snapshot { layers: Layers { active: Memtable::default(), frozen, view }, at: layers.active.base }
    }

    /// The snapshot with later changes on top, up to record `at`.
    pub(crate) fn on_top(&self, active: Memtable, at: LogPos) -> Snapshot {
        let (frozen, view) = (self.layers.frozen.clone(), Arc::clone(&self.layers.view));
        Snapshot { layers: Layers { active, frozen, view }, at }
    }

    /// At most `limit` rows in order of key: those behind `after`, which may be empty, up to `to` where it is given.
    pub(crate) fn rows_to(
        &self,
        after: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        let start = if after.is_empty() { Vec::new() } else { successor(after) };
        let end = to.map(successor);
        scan_layers(&|start, end| self.layers.chunk(start, end), &start, end.as_deref(), limit)
    }

    /// The last record whose rows are in the snapshot. Records without rows may follow that change nothing.
    pub fn at(&self) -> LogPos {
        self.at
    }

    /// At most `limit` rows in order of key, those behind `after` where it is given.
    pub fn rows(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let start = after.map_or_else(Vec::new, successor);
        scan_layers(&|start, end| self.layers.chunk(start, end), &start, None, limit)
    }
}
