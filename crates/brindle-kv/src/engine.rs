//! The open store behind [`crate::Kv`]: layers for reads, the log, and the checkpointer that joins them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use brindle_stdx::watch;
use brindle_stdx::{Mono, Seams};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::batch::{Batch, LogPos};
use crate::format::Identity;
use crate::log::Log;
use crate::memtable::{Layers, Memtable, PointRead, Rows, TakeChunk, prefix_end, successor, whole};
use crate::options::Durability;
use crate::segment::remove_segments;
use crate::store::{FIRST_KEY, Meta, Store, View};
use crate::verify::Verifier;

/// A checkpoint that found the device full is tried again after this time.
const CHECKPOINT_RETRY_MS: u64 = 1000;
/// Counting free pages is followed by a pause of this many times the time it took.
const COUNT_PAUSE_FACTOR: u64 = 20;
/// A checkpoint file with more rows than this is not made shorter: readers wait for that.
const COMPACT_BYTES_MAX: u64 = 128 << 20;
/// Most bytes of pages for a byte of the memtable, whose sizes include a row's overhead.
const PAGES_PER_ROW_BYTES: u64 = 2;

/// See the module.
pub(crate) struct Engine {
    pub seams: Seams,
    pub dir: String,
    pub identity: Identity,
    pub memtable_bytes_max: usize,
    pub reserve_bytes: u64,
    pub log: Arc<Log>,
    pub layers: RwLock<Layers>,
    pub store: Arc<Store>,
    /// Last record of the checkpoint.
    pub applied: watch::Sender<u64>,
    /// Records up to here are to be checkpointed although the memtable is not full.
    pub asked: AtomicU64,
    pub kick: Notify,
    pub closing: AtomicBool,
    /// Background tasks that still run.
    pub running: watch::Sender<usize>,
    pub checkpoints: AtomicU64,
    pub pieces: AtomicU64,
    pub compactions: AtomicU64,
    /// The checkpoint file has changed since its free pages were counted.
    pub reuse_stale: AtomicBool,
    /// Time from which on the free pages may be counted again.
    pub count_after: Mutex<Mono>,
}

fn checkpoint_panicked() -> Fault {
    Fault::new(Code::Bug).why("writing a checkpoint panicked")
}

impl Engine {
    pub fn append(&self, batch: Batch) -> Result<LogPos> {
        batch.check()?;
        let mut full = false;
        let pos = self.log.append(&batch.changes, batch.frees_space, |pos, record_bytes, changes| {
            let mut layers = self.layers.write();
            layers.active.apply(pos, record_bytes, changes);
            full = layers.active.bytes >= self.memtable_bytes_max;
        })?;
        if full {
            self.kick.notify_one();
        }
        Ok(pos)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.twice(|| {
            // No reader holds the lock of the layers while it waits for a page from the device.
            let found = self.layers.read().find(key);
            match found {
                PointRead::Here(value) => Ok(value),
                PointRead::Below(view) => view.get(key),
            }
        })
    }

    pub fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: usize) -> Result<Rows> {
        self.twice(|| scan_layers(&|start, end| self.layers.read().chunk(start, end), start, end, limit))
    }

    pub fn scan_prefix(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Rows> {
        let start = after.map_or_else(|| prefix.to_vec(), successor);
        self.scan(prefix.max(&start), prefix_end(prefix).as_deref(), limit)
    }

    pub fn last_with_prefix(&self, prefix: &[u8]) -> Result<Option<(Bytes, Bytes)>> {
        self.twice(|| self.last_in(prefix, prefix_end(prefix)))
    }

    fn last_in(&self, prefix: &[u8], mut end: Option<Vec<u8>>) -> Result<Option<(Bytes, Bytes)>> {
        let start = prefix.max(FIRST_KEY);
        loop {
            let (change, view) = {
                let layers = self.layers.read();
                (layers.last_change(start, end.as_deref()), layers.view.clone())
            };
            let below = view.range(start, end.as_deref())?.next_back().map(whole).transpose()?;
            match (change, below) {
                (Some((key, _)), Some(row)) if row.0 > key => return Ok(Some(row)),
                (Some((key, Some(value))), _) => return Ok(Some((key, value))),
                // The greatest change is a deletion: look below it.
                (Some((key, None)), _) => end = Some(key.to_vec()),
                (None, below) => return Ok(below),
            }
        }
    }

    /// Reads again when a checkpoint failed under the first read's view (a full device), with the view made since.
    fn twice<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        match read() {
            Err(fault) if fault.code == Code::KvFailed => {
                // Under the lock, so that the checkpointer cannot put a newer view in between.
                let mut layers = self.layers.write();
                layers.view = Arc::new(self.store.view()?);
                drop(layers);
                read()
            }
            other => other,
        }
    }

    fn has_room(&self) -> bool {
        let layers = self.layers.read();
        layers.active.bytes < self.memtable_bytes_max || layers.frozen.is_none()
    }

    pub async fn admit(&self) -> Result<()> {
        if self.has_room() {
            return Ok(());
        }
        let mut applied = self.applied.subscribe();
        loop {
            applied.borrow_and_update();
            if let Some(fault) = self.log.failed() {
                return Err(fault);
            }
            if self.has_room() {
                return Ok(());
            }
            // The sender lives as long as `self`.
            let _ = applied.changed().await;
        }
    }

    pub async fn checkpoint(&self) -> Result<()> {
        let last = {
            let layers = self.layers.read();
            layers.frozen.as_ref().map_or(0, |f| f.last.index).max(layers.active.last.index)
        };
        self.asked.fetch_max(last, Ordering::AcqRel);
        self.kick.notify_one();
        let mut applied = self.applied.subscribe();
        loop {
            if *applied.borrow_and_update() >= last {
                return Ok(());
            }
            if let Some(fault) = self.log.failed() {
                return Err(fault);
            }
            // The sender lives as long as `self`.
            let _ = applied.changed().await;
        }
    }

    /// Begins a new segment of the log, and writes a checkpoint of everything before it: all earlier segments go. Their rows come from memory,
    /// so that damage in these segments costs nothing.
    pub async fn renew_log(&self) -> Result<()> {
        let mut nothing = Batch::new();
        nothing.frees_space();
        // The present segment gets a record first: a segment without records would be replaced by one of its name.
        self.append(nothing.clone())?;
        self.log.end_segment()?;
        let first = self.append(nothing)?;
        self.log.wait(first, Durability::Synced).await?;
        self.checkpoint().await
    }

    /// Parts of the store that [`crate::verify`] reads.
    pub fn verifier(&self) -> Verifier {
        let (segments, synced) = self.log.segments();
        Verifier::new(self.seams.disk.clone(), &self.dir, self.store.sums(), &segments, synced)
    }

    /// The checkpointer's task. Ends when the store is closed or a checkpoint failed for another reason than space.
    pub async fn run_checkpoints(self: Arc<Self>) {
        while !self.closing.load(Ordering::Acquire) && self.log.failed().is_none() {
            if self.reuse_due() {
                if let Err(fault) = self.reuse().await {
                    self.log.fail(fault);
                }
                continue;
            }
            if !self.checkpoint_due() {
                self.kick.notified().await;
                continue;
            }
            match self.checkpoint_once().await {
                Ok(()) => {}
                Err(fault) if fault.code == Code::MdtFull => {
                    tracing::warn!(
                        dir = self.dir,
                        "no space for a checkpoint of the metadata store; it is tried again"
                    );
                    self.rest_ms(CHECKPOINT_RETRY_MS).await;
                }
                Err(fault) => self.log.fail(fault),
            }
            // Writers that wait for room must hear of a failure, too.
            self.applied.send_modify(|_| {});
        }
        self.applied.send_modify(|_| {});
    }

    /// Lets time pass, whatever asks for a checkpoint meanwhile; ends early when the store is closed.
    async fn rest_ms(&self, ms: u64) {
        let until = self.seams.now().plus_ms(ms);
        while self.seams.now() < until && !self.closing.load(Ordering::Acquire) {
            let left_ms = until.ms_since(self.seams.now()).max(1);
            // Kicked or timed out: the loop decides.
            let _ = self.seams.timeout_ms(left_ms, self.kick.notified()).await;
        }
    }

    fn checkpoint_due(&self) -> bool {
        let asked = self.asked.load(Ordering::Acquire);
        let layers = self.layers.read();
        let full = layers.active.bytes >= self.memtable_bytes_max;
        layers.frozen.is_some() || full || (!layers.active.is_empty() && asked > *self.applied.borrow())
    }

    async fn checkpoint_once(self: &Arc<Self>) -> Result<()> {
        let frozen = self.freeze();
        let applied = frozen.last;
        // Rows of the checkpoint must be in the log, too. Otherwise the log could end before the position that the
        // checkpoint claims.
        if !crate::planted("kv_checkpoint_before_log") {
            self.log.wait(applied, Durability::Synced).await?;
        }
        let meta = Meta { identity: self.identity, applied };
        let (engine, rows) = (self.clone(), frozen.clone());
        let written = self.seams.run_blocking(move || engine.write_checkpoint(rows.rows(), &meta)).await;
        let written = written.unwrap_or_else(|| Err(checkpoint_panicked()));
        self.show(written)?;
        self.reuse_changed(&frozen);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        // Before anybody hears of the checkpoint: whoever waits for it finds the segments gone.
        let needless = self.log.take_needless_segments(applied);
        let before = self.applied.send_replace(applied.index);
        assert!(
            before <= applied.index,
            "a checkpoint up to record {} behind one up to {before}",
            applied.index
        );
        let disk = self.seams.disk.clone();
        // A segment that stays is removed by the next opening.
        let _ = self.seams.run_blocking(move || remove_segments(&*disk, &needless)).await;
        self.log.space_freed();
        Ok(())
    }

    /// Writes a checkpoint; blocks for as long as that takes. Readers meanwhile see the frozen rows on top of any
    /// part of the checkpoint.
    fn write_checkpoint(&self, rows: &BTreeMap<Bytes, Option<Bytes>>, meta: &Meta) -> Result<View> {
        self.store.checkpoint(rows, meta, |view| {
            self.pieces.fetch_add(1, Ordering::Relaxed);
            self.layers.write().view = Arc::new(view);
        })
    }

    /// Whether the log should be told again what it may count on besides the free space of the device. Counting takes
    /// as long as reading the file, so that most of the time is left to checkpoints.
    fn reuse_due(&self) -> bool {
        self.log.is_space_low()
            && self.reuse_stale.load(Ordering::Acquire)
            && self.seams.now() >= *self.count_after.lock()
    }

    async fn reuse(self: &Arc<Self>) -> Result<()> {
        let since = self.seams.now();
        let engine = self.clone();
        self.reuse_stale.store(false, Ordering::Release);
        let found = self.seams.run_blocking(move || engine.reclaim()).await;
        let reusable_bytes = found.unwrap_or_else(|| Err(checkpoint_panicked()))?;
        let now = self.seams.now();
        *self.count_after.lock() = now.plus_ms(now.ms_since(since) * COUNT_PAUSE_FACTOR);
        self.log.set_reusable(reusable_bytes);
        self.log.space_freed();
        Ok(())
    }

    /// Gives the device back what removed rows have left in the checkpoint file; gives what stays there and is free for
    /// other rows.
    fn reclaim(&self) -> Result<u64> {
        let usage = self.store.usage()?;
        let free_bytes = usage.allocated_bytes.saturating_sub(usage.used_bytes);
        if free_bytes < self.reserve_bytes || usage.used_bytes > COMPACT_BYTES_MAX {
            return Ok(free_bytes);
        }
        // Readers of the checkpoint wait for this lock: none may read while pages move.
        let mut layers = self.layers.write();
        layers.view = Arc::new(View::nothing());
        let compacted = self.store.compact();
        layers.view = Arc::new(self.store.view()?);
        drop(layers);
        match compacted {
            Ok(true) => {
                self.compactions.fetch_add(1, Ordering::Relaxed);
                Ok(0)
            }
            Ok(false) => {
                self.reuse_stale.store(true, Ordering::Release);
                Ok(free_bytes)
            }
            Err(fault) if fault.code == Code::MdtFull => Ok(free_bytes),
            Err(fault) => Err(fault),
        }
    }

    /// Lowers the estimate of reusable bytes: the checkpoint has used free pages of the file. The pages that
    /// it has freed are not known yet.
    fn reuse_changed(&self, frozen: &Memtable) {
        if self.log.is_space_low() {
            let used_bytes = frozen.bytes as u64 * PAGES_PER_ROW_BYTES;
            self.log.set_reusable(self.log.reusable_bytes().saturating_sub(used_bytes));
        } else {
            self.log.set_reusable(0);
        }
        self.reuse_stale.store(true, Ordering::Release);
    }

    /// Puts a new checkpoint in the place of the frozen memtable.
    fn show(&self, written: Result<View>) -> Result<()> {
        match written {
            Ok(view) => {
                let mut layers = self.layers.write();
                layers.view = Arc::new(view);
                layers.frozen = None;
                Ok(())
            }
            Err(fault) => {
                // The view from before the failure reads no more.
                self.layers.write().view = Arc::new(self.store.view()?);
                Err(fault)
            }
        }
    }

    /// The frozen memtable: the one that a failed checkpoint left, or the active one.
    fn freeze(&self) -> Arc<Memtable> {
        let mut layers = self.layers.write();
        if let Some(frozen) = &layers.frozen {
            return frozen.clone();
        }
        let empty = Memtable::on_top_of(layers.active.last);
        let frozen = Arc::new(std::mem::replace(&mut layers.active, empty));
        layers.frozen = Some(frozen.clone());
        frozen
    }

    /// Asks for a checkpoint whenever the log needs the space of segments it no longer needs.
    pub async fn run_space(self: Arc<Self>) {
        while !self.closing.load(Ordering::Acquire) {
            self.log.need_space.notified().await;
            self.asked.fetch_max(self.layers.read().active.last.index, Ordering::AcqRel);
            self.kick.notify_one();
        }
    }

    /// Tells the background tasks to end.
    pub fn stop(&self) {
        self.closing.store(true, Ordering::Release);
        self.log.close();
        self.kick.notify_one();
        self.log.need_space.notify_one();
    }
}

/// Merges layers into rows, a chunk of the changing layer at a time.
pub(crate) fn scan_layers(
    chunk: TakeChunk<'_>,
    start: &[u8],
    end: Option<&[u8]>,
    limit: usize,
) -> Result<Rows> {
    let mut rows = Rows::new();
    let mut from = Bytes::copy_from_slice(start.max(FIRST_KEY));
    while rows.len() < limit && end.is_none_or(|end| &from[..] < end) {
        match chunk(&from, end).merge_into(&from, end, limit, &mut rows)? {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(rows)
}
