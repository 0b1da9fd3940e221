//! `Kv`: the handle of an open store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_stdx::Seams;
use brindle_stdx::disk::{Disk, DiskSpace};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;

use crate::batch::{Batch, LogPos};
use crate::engine::Engine;
use crate::fault::store_io;
use crate::open::{self, Replayed};
use crate::options::{Durability, DurabilityMode, KvOptions, KvStats, OpenReport};
use crate::snapshot::Snapshot;
use crate::verify::Verifier;

/// An open store. Clones share it; dropping the last clone stops its background tasks (as a kill would: nothing is
/// flushed). [`Kv::close`] stops it in order.
#[derive(Clone)]
pub struct Kv {
    engine: Arc<Engine>,
    _life: Arc<Life>,
}

/// Dropped with the last clone of a [`Kv`].
struct Life(Arc<Engine>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Kv {
    /// Makes an empty store in `dir` (created where missing) and syncs it. Refuses a directory that holds one
    /// ([`brindle_types::Code::AlreadyFormatted`]). [`Kv::open`] never makes one.
    pub fn create(disk: &dyn Disk, dir: &str, opts: &KvOptions) -> Result<()> {
        open::create(disk, dir, opts, 1)
    }

    /// Makes an empty store in the place of one that was lost, as [`Kv::create`] does: its first opening has a term above `term`.
    pub fn create_above(disk: &dyn Disk, dir: &str, opts: &KvOptions, term: u32) -> Result<()> {
        open::create(disk, dir, opts, term.max(1))
    }

    /// Opens the store, durably takes a new term, replays the log, starts the background tasks.
    ///
    /// Fails with `LogDamaged`, `KvDamaged`, `ForeignTarget`, `NewerFormat`, `TargetIncomplete`, `MdtFull`, or `LogFailed`
    /// where the disk returns errors. Blocks the thread for as long as reading and checking takes.
    pub fn open(seams: Seams, dir: &str, opts: KvOptions) -> Result<(Kv, OpenReport)> {
        Kv::serve(open::replay(seams, dir, opts)?)
    }

    pub(crate) fn serve(replayed: Replayed) -> Result<(Kv, OpenReport)> {
        let (engine, report) = replayed.serve()?;
        Ok((Kv { _life: Arc::new(Life(engine.clone())), engine }, report))
    }

    /// Term of this opening.
    pub fn term(&self) -> u32 {
        self.engine.log.term()
    }

    /// The value of a row, with every appended batch applied.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.engine.get(key)
    }

    /// At most `limit` rows with `start <= key < end` in order of key; `end` `None` is the end of the store.
    pub fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        self.engine.scan(start, end, limit)
    }

    /// At most `limit` rows whose key begins with `prefix`, in order. With `after`, only rows behind that key, to go
    /// on where the last call ended.
    pub fn scan_prefix(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        self.engine.scan_prefix(prefix, after, limit)
    }

    /// The last row whose key begins with `prefix`.
    pub fn last_with_prefix(&self, prefix: &[u8]) -> Result<Option<(Bytes, Bytes)>> {
        self.engine.last_with_prefix(prefix)
    }

    /// Puts the batch into the group buffer of the log and into the memtable, so that every later read sees it. Never
    /// blocks on I/O. One caller at a time (the MDT's single-writer lock) decides the order.
    ///
    /// `MdtFull` when the device is down to the reserve and the batch is not marked [`Batch::frees_space`];
    /// `LogFailed` after a failed write or sync.
    pub fn append(&self, batch: Batch) -> Result<LogPos> {
        self.engine.append(batch)
    }

    /// Position of the last appended batch: what a reply that shows the present state has to wait for.
    pub fn last_pos(&self) -> LogPos {
        self.engine.log.last_pos()
    }

    /// Position of the last record that is written.
    pub fn written_pos(&self) -> LogPos {
        self.engine.log.written_pos()
    }

    /// Position of the last record that is on the device.
    pub fn synced_pos(&self) -> LogPos {
        self.engine.log.synced_pos()
    }

    /// Waits until everything up to `pos` is as safe as `durability` says. Cancel-safe.
    pub async fn wait(&self, pos: LogPos, durability: Durability) -> Result<()> {
        self.engine.log.wait(pos, durability).await
    }

    /// Waits until a reply that shows state up to `pos` may leave, by the store's [`DurabilityMode`].
    pub async fn wait_reply(&self, pos: LogPos) -> Result<()> {
        let durability = match self.engine.log.mode() {
            DurabilityMode::Relaxed | DurabilityMode::Scratch => Durability::Written,
            DurabilityMode::Sync => Durability::Synced,
        };
        self.wait(pos, durability).await
    }

    /// [`Kv::wait`] for [`Durability::Synced`]: fsync, and before anything irreversible leaves the MDT.
    pub async fn wait_synced(&self, pos: LogPos) -> Result<()> {
        self.wait(pos, Durability::Synced).await
    }

    /// Written records behind `pos` as they lie in the log: at least one, then at most `bytes_max` bytes. `None` if `pos` is not in memory
    /// any more, is ahead, or belongs to a log that has gone another way: the member at `pos` has to be filled anew.
    pub fn records_after(&self, pos: LogPos, bytes_max: usize) -> Option<Vec<(LogPos, Bytes)>> {
        self.engine.log.records_after(pos, bytes_max)
    }

    /// Keeps the records that come from now on for a member that is being filled, up to 1 GiB of them; `false`: not any more.
    pub fn hold_records(&self, is_held: bool) {
        self.engine.log.hold_records(is_held);
    }

    /// Makes waits end only for records written up to index `written`, and synced up to `synced`, on all
    /// other required members; `u64::MAX` where there are none.
    pub fn require(&self, written: u64, synced: u64) {
        self.engine.log.require(written, synced);
    }

    /// Changes whenever something was written or synced, or somebody waits for a sync.
    pub fn progress(&self) -> brindle_stdx::watch::Receiver<u64> {
        self.engine.log.progress()
    }

    /// Highest index whose sync a caller waits for.
    pub fn synced_wanted(&self) -> u64 {
        self.engine.log.synced_wanted()
    }

    /// Has everything up to an index synced, here and by members, without waiting for it.
    pub fn want_synced(&self, index: u64) {
        self.engine.log.want_synced(index);
    }

    /// Waits until there is room for another operation (back-pressure of checkpoints). Await it before taking the
    /// single-writer lock. Returns at once nearly always.
    pub async fn admit(&self) -> Result<()> {
        self.engine.admit().await
    }

    /// Space of the device, with the reserve taken off what is available.
    pub fn space(&self) -> Result<DiskSpace> {
        let engine = &self.engine;
        let mut space = engine
            .seams
            .disk
            .space(&engine.dir)
            .map_err(|e| store_io("cannot ask for the space of the metadata store", &engine.dir, &e))?;
        let usable = space.available_bytes.saturating_add(engine.log.reusable_bytes());
        space.available_bytes = usable.saturating_sub(engine.reserve_bytes);
        Ok(space)
    }

    /// Whether the device was down to the reserve when it was last asked.
    pub fn is_space_low(&self) -> bool {
        self.engine.log.is_space_low()
    }

    /// Fault that stopped the log, if one did: the server must stop the MDT.
    pub fn failed(&self) -> Option<Fault> {
        self.engine.log.failed()
    }

    /// Completes when the log has stopped, with the reason. Never completes while the store is healthy.
    pub async fn until_failed(&self) -> Fault {
        self.engine.log.until_failed().await
    }

    /// The durability mode.
    pub fn mode(&self) -> DurabilityMode {
        self.engine.log.mode()
    }

    /// Changes the durability mode of an open store.
    pub fn set_mode(&self, mode: DurabilityMode) {
        self.engine.log.set_mode(mode);
    }

    /// Counters.
    pub fn stats(&self) -> KvStats {
        let counters = &self.engine.log.counters;
        let layers = self.engine.layers.read();
        KvStats {
            batches: counters.batches.load(Ordering::Relaxed),
            log_bytes: counters.bytes.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            syncs: counters.syncs.load(Ordering::Relaxed),
            checkpoints: self.engine.checkpoints.load(Ordering::Relaxed),
            compactions: self.engine.compactions.load(Ordering::Relaxed),
            checkpoint_pieces: self.engine.pieces.load(Ordering::Relaxed),
            memtable_bytes: layers.active.bytes as u64,
            frozen_bytes: layers.frozen.as_ref().map_or(0, |f| f.bytes as u64),
            segments: self.engine.log.segment_count() as u64,
        }
    }

    /// Writes a checkpoint of everything appended so far and returns when it is durable (tests, `brindle sync`).
    pub async fn checkpoint(&self) -> Result<()> {
        self.engine.checkpoint().await
    }

    /// All rows as they are at one moment, which is after everything that was appended before the call. Writes a checkpoint first.
    /// The pages that it shows stay in the file for as long as it is kept.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.checkpoint().await?;
        Ok(Snapshot::of(&self.engine.layers.read()))
    }

    /// The files as they are now, for [`crate::verify`].
    pub fn verifier(&self) -> Verifier {
        self.engine.verifier()
    }

    /// Makes all segments of the log needless that there are now: begins a new one and writes a checkpoint. Mends damage in the log, because all rows of
    /// it are in memory or in the checkpoint.
    pub async fn renew_log(&self) -> Result<()> {
        self.engine.renew_log().await
    }

    /// Bytes of the file of the last checkpoint; 0 where that cannot be told.
    pub fn checkpoint_bytes(&self) -> u64 {
        let path = format!("{}/{}", self.engine.dir, crate::store::STORE_FILE);
        self.engine.seams.disk.stat(&path).map_or(0, |stat| stat.len_bytes)
    }

    /// Stops the log without a failure of the disk: whatever waits fails, and nothing more is taken in.
    /// Records on the disk stay.
    pub fn abandon(&self) {
        self.engine
            .log
            .fail(Fault::new(Code::NotOwner).why("another member of the replica set is to serve it"));
    }

    /// Syncs everything, stops the background tasks and waits until they have ended, also where it cannot be synced.
    pub async fn close(self) -> Result<()> {
        let synced = self.wait_synced(self.last_pos()).await;
        self.engine.stop();
        let mut running = self.engine.running.subscribe();
        // The sender lives as long as `self`.
        let _ = running.wait_for(|n| *n == 0).await;
        synced
    }
}
