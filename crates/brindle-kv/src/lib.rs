//! The ordered key-value store of one MDT, behind its own group-commit log.
//!
//! ```text
//!   log (truth)  ->  memtable (batches since the last checkpoint)  ->  redb file (checkpoint)
//! ```
//!
//! Called by `brindle-mds/store` only, under the MDT's single-writer lock for [`Kv::append`], from anywhere for reads
//! and waits, and by fsck through [`KvReader`].
//!
//! Invariants: what survives a crash is a prefix of the appended batches, each whole or not at all; it contains
//! everything that [`Kv::wait`] returned for (Written: process death, Synced: power cut). Every opening has a term of
//! its own, so a pair (term, index) never names two records. Damage is named, never returned as data.

mod batch;
mod options;

pub use batch::{BATCH_BYTES_MAX, Batch, KEY_BYTES_MAX, LogPos, VALUE_BYTES_MAX};
pub use options::{
    CACHE_BYTES_MAX, Damage, Durability, DurabilityMode, KvOptions, KvStats, MEMTABLE_BYTES_MAX, OpenReport,
    RESERVE_BYTES, SEGMENT_BYTES, SEGMENT_BYTES_MIN,
};

use brindle_stdx::Seams;
use brindle_stdx::disk::{Disk, DiskSpace};
use brindle_types::{Fault, Result};
use bytes::Bytes;

/// An open store. Clones share it; dropping the last clone stops its background tasks (as a kill would: nothing is
/// flushed). [`Kv::close`] stops it in order.
#[derive(Clone)]
pub struct Kv {}

#[allow(unused_variables, clippy::unimplemented, clippy::unused_async)]
impl Kv {
    /// Makes an empty store in `dir` (created where missing) and syncs it. Refuses a directory that holds one
    /// ([`brindle_types::Code::AlreadyFormatted`]). [`Kv::open`] never makes one.
    pub fn create(disk: &dyn Disk, dir: &str, opts: &KvOptions) -> Result<()> {
        unimplemented!()
    }

    /// Opens the store, durably takes a new term, replays the log, starts the background tasks.
    ///
    /// Fails with `LogDamaged`, `KvDamaged`, `ForeignTarget`, `NewerFormat`, `NotATarget`, `MdtFull`, or `LogFailed`
    /// where the disk returns errors. Blocks the thread for as long as reading and checking takes.
    pub fn open(seams: Seams, dir: &str, opts: KvOptions) -> Result<(Kv, OpenReport)> {
        unimplemented!()
    }

    /// Term of this opening.
    pub fn term(&self) -> u32 {
        unimplemented!()
    }

    /// The value of a row, with every appended batch applied.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        unimplemented!()
    }

    /// At most `limit` rows with `start <= key < end` in order of key; `end` `None` is the end of the store.
    pub fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        unimplemented!()
    }

    /// At most `limit` rows whose key begins with `prefix`, in order, those behind the key `after` only if given
    /// (to go on where the last call ended).
    pub fn scan_prefix(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        unimplemented!()
    }

    /// The last row whose key begins with `prefix`.
    pub fn last_with_prefix(&self, prefix: &[u8]) -> Result<Option<(Bytes, Bytes)>> {
        unimplemented!()
    }

    /// Puts the batch into the group buffer of the log and into the memtable, so that every later read sees it. Never
    /// blocks on I/O. One caller at a time (the MDT's single-writer lock) decides the order.
    ///
    /// `MdtFull` when the device is down to the reserve and the batch is not marked [`Batch::frees_space`];
    /// `LogFailed` after a failed write or sync.
    pub fn append(&self, batch: Batch) -> Result<LogPos> {
        unimplemented!()
    }

    /// Position of the last appended batch: what a reply that shows the present state has to wait for.
    pub fn last_pos(&self) -> LogPos {
        unimplemented!()
    }

    /// Everything up to here is written.
    pub fn written_pos(&self) -> LogPos {
        unimplemented!()
    }

    /// Everything up to here is on the device.
    pub fn synced_pos(&self) -> LogPos {
        unimplemented!()
    }

    /// Waits until everything up to `pos` is as safe as `durability` says. Cancel-safe.
    pub async fn wait(&self, pos: LogPos, durability: Durability) -> Result<()> {
        unimplemented!()
    }

    /// Waits until a reply that shows state up to `pos` may leave, by the store's [`DurabilityMode`].
    pub async fn wait_reply(&self, pos: LogPos) -> Result<()> {
        unimplemented!()
    }

    /// [`Kv::wait`] for [`Durability::Synced`]: fsync, and before anything irreversible leaves the MDT.
    pub async fn wait_synced(&self, pos: LogPos) -> Result<()> {
        unimplemented!()
    }

    /// Waits until there is room for another operation (back-pressure of checkpoints). Await it before taking the
    /// single-writer lock. Returns at once nearly always.
    pub async fn admit(&self) -> Result<()> {
        unimplemented!()
    }

    /// Space of the device, with the reserve taken off what is available.
    pub fn space(&self) -> Result<DiskSpace> {
        unimplemented!()
    }

    /// Why the log stopped, if it did: the server must stop the MDT.
    pub fn failed(&self) -> Option<Fault> {
        unimplemented!()
    }

    /// Completes when the log has stopped, with the reason. Never completes while the store is healthy.
    pub async fn until_failed(&self) -> Fault {
        unimplemented!()
    }

    /// Changes the durability mode of an open store.
    pub fn set_mode(&self, mode: DurabilityMode) {
        unimplemented!()
    }

    /// Counters.
    pub fn stats(&self) -> KvStats {
        unimplemented!()
    }

    /// Writes a checkpoint of everything appended so far and returns when it is durable (tests, `brindle sync`).
    pub async fn checkpoint(&self) -> Result<()> {
        unimplemented!()
    }

    /// Syncs everything, stops the background tasks and waits until they have ended.
    pub async fn close(self) -> Result<()> {
        unimplemented!()
    }
}

/// A store seen without changing it: for fsck, on a stopped target. Damage is collected, not fatal.
pub struct KvReader {}

#[allow(unused_variables, clippy::unimplemented)]
impl KvReader {
    /// Reads checkpoint and log of `dir` without writing anything. Fails only where there is no store at all.
    pub fn open_read_only(disk: &dyn Disk, dir: &str) -> Result<KvReader> {
        unimplemented!()
    }

    /// What is wrong with the files.
    pub fn damage(&self) -> &[Damage] {
        unimplemented!()
    }

    /// What an opening would find.
    pub fn report(&self) -> &OpenReport {
        unimplemented!()
    }

    /// A row; a damaged one is a fault.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        unimplemented!()
    }

    /// At most `limit` rows with `start <= key < end`, in order.
    pub fn scan(&self, start: &[u8], end: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        unimplemented!()
    }

    /// Calls `each` for every row whose key begins with `prefix`, in order; damaged rows come as faults, and it goes on.
    pub fn for_each(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], Result<Bytes>)) -> Result<()> {
        unimplemented!()
    }
}
