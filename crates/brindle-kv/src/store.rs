//! The checkpoint: one redb file with one table, written in one durable transaction per checkpoint.
//!
//! Invariants: the file holds the rows of exactly one position of the log, stored with them; every value carries a
//! checksum over key and value, verified on every read; a damaged file is named, and never made anew. redb panics on
//! some kinds of damage: those are caught here. Only this file knows redb.
//!
//! The file is never closed in order: dropping the store is like a kill, so that every opening takes the same path.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_stdx::codec::Reader;
use brindle_stdx::disk::{Disk, OpenHow};
use brindle_stdx::{DiskFile, crc, crc_append};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};

use crate::backend::{Backend, Gate, Sums};
use crate::batch::LogPos;
use crate::fault::{row_damaged, store_damaged, store_io};
use crate::format::Identity;

/// Name of the checkpoint file.
pub(crate) const STORE_FILE: &str = "checkpoint.redb";
/// Version of the rows' encoding and the meta row. 1: the first.
const STORE_VERSION: u32 = 1;
/// Key of the store's own row; keys of the MDT never begin with a zero byte.
const META_KEY: &[u8] = b"\0meta";
/// First key of the MDT's rows.
pub(crate) const FIRST_KEY: &[u8] = &[1];
/// Checksum behind every value.
const SUM_BYTES: usize = 4;
const FREE_LIST_DAMAGED: &str = "the metadata store's list of free pages does not match its pages";
/// Every page of a file up to this size is verified at open; larger ones are left to fsck.
const CHECK_BYTES_MAX: u64 = 1 << 30;
/// Free pages of a file up to this size are counted when the device is nearly full; counting reads all its pages.
const WALK_BYTES_MAX: u64 = 4 << 30;
/// A piece of a checkpoint that found no space is cut into this many.
const PIECE_CUT: usize = 4;
/// Bytes that a changed row costs until the transaction ends: copies of its leaf and of its share of the
/// pages above.
const ROW_COPY_BYTES: u64 = 8 << 10;

// One table only: redb stages table roots in a randomly ordered map, and with more than one the file's bytes would
// depend on that order, which would break replay in the simulator.
const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");

/// The checkpoint's own row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub identity: Identity,
    /// The last record whose rows are here.
    pub applied: LogPos,
}

impl Meta {
    fn encode(&self) -> Vec<u8> {
        let mut out = STORE_VERSION.to_be_bytes().to_vec();
        out.extend_from_slice(&self.identity.fs_id);
        out.extend_from_slice(&self.identity.target_uuid);
        out.extend_from_slice(&self.applied.term.to_be_bytes());
        out.extend_from_slice(&self.applied.index.to_be_bytes());
        out
    }

    fn decode(value: &[u8]) -> Option<(u32, Meta)> {
        let mut r = Reader::new(value);
        let version = r.u32()?;
        let identity =
            Identity { fs_id: r.take(16)?.try_into().ok()?, target_uuid: r.take(16)?.try_into().ok()? };
        let term = r.u32()?;
        Some((version, Meta { identity, applied: LogPos { term, index: r.u64()? } }))
    }
}

/// An immutable state of the checkpoint.
pub(crate) struct View {
    path: String,
    /// `None` while the file is made shorter.
    table: Option<ReadOnlyTable<&'static [u8], &'static [u8]>>,
}

/// A row as it was read: its key, and its value if that matches its checksum.
pub(crate) type ReadRow = (Bytes, Result<Bytes>);

/// Rows of a view in order, each verified. An `Err` is damage of the file's structure and ends the iteration.
pub(crate) struct ViewRows<'a> {
    view: &'a View,
    rows: redb::Range<'static, &'static [u8], &'static [u8]>,
    /// Set after an error of redb itself, which may come again forever.
    over: bool,
}

/// The open checkpoint file.
pub(crate) struct Store {
    path: String,
    disk: Arc<dyn Disk>,
    cache_bytes: usize,
    sums: Arc<Mutex<Sums>>,
    db: Mutex<Option<Open>>,
}

struct Open {
    db: Database,
    gate: Arc<Gate>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Writes of redb during its drop would make an orderly end differ from a kill.
        self.gate.shut();
    }
}

impl Store {
    /// Makes the file with an empty table. The caller syncs the directory.
    pub fn create(disk: &dyn Disk, dir: &str, identity: Identity) -> Result<()> {
        let path = format!("{dir}/{STORE_FILE}");
        let file = disk
            .open(&path, OpenHow::CreateNew)
            .map_err(|e| store_io("cannot create the metadata store", &path, &e))?;
        let (backend, gate) = Backend::new(file, Arc::default());
        let meta = Meta { identity, applied: LogPos::default() };
        guarded(&path, || {
            let db = builder(crate::options::CACHE_BYTES_MAX).create_with_backend(backend)?;
            let open = Open { db, gate };
            commit(&open.db, &[], Some(&meta))
        })
    }

    /// Opens and checks the file; it must exist and hold a store.
    pub fn open(disk: Arc<dyn Disk>, dir: &str, cache_bytes: usize) -> Result<(Store, View, Meta)> {
        let path = format!("{dir}/{STORE_FILE}");
        let store = Store { path, disk, cache_bytes, sums: Arc::default(), db: Mutex::new(None) };
        let mut open = store.open_file()?;
        check(&store.path, &mut open)?;
        let (view, meta) = read_view(&store.path, &open.db)?;
        *store.db.lock() = Some(open);
        Ok((store, view, meta))
    }

    /// Opens the file for an offline reader; everything redb would write stays in memory.
    pub fn open_unchanged(disk: &dyn Disk, dir: &str, cache_bytes: usize) -> Result<(Offline, View, Meta)> {
        let path = format!("{dir}/{STORE_FILE}");
        let file = open_existing(disk, &path, OpenHow::ReadOnly)?;
        let (backend, gate) = Backend::unchanged(file);
        let db = guarded(&path, || Ok(builder(cache_bytes).create_with_backend(backend)?))?;
        let mut open = Open { db, gate };
        let clean = check_pages(&path, &mut open.db)?;
        let free_list = (!clean).then(|| store_damaged(&path, FREE_LIST_DAMAGED).data("all rows are intact"));
        let (view, meta) = read_view(&path, &open.db)?;
        Ok((Offline { free_list, _open: open }, view, meta))
    }

    fn open_file(&self) -> Result<Open> {
        let file = open_existing(&*self.disk, &self.path, OpenHow::Existing)?;
        let (backend, gate) = Backend::new(file, self.sums.clone());
        let db = guarded(&self.path, || Ok(builder(self.cache_bytes).create_with_backend(backend)?))?;
        Ok(Open { db, gate })
    }

    /// Runs redb, and opens it again after a failure: it refuses everything after a failed read or write. `work` is
    /// repeated once where it only met an earlier failure.
    fn with_db<T>(&self, work: impl Fn(&mut Open) -> Result<T>) -> Result<T> {
        let mut db = self.db.lock();
        let mut failed_before = false;
        loop {
            let open = match &mut *db {
                Some(open) => open,
                None => db.insert(self.open_file()?),
            };
            match work(open) {
                Err(fault) => {
                    *db = None;
                    if failed_before || fault.code != Code::KvFailed {
                        return Err(fault);
                    }
                    failed_before = true;
                }
                done => return done,
            }
        }
    }

    /// Writes a checkpoint durably; blocks for as long as that takes. Uses one transaction; on a device without space for
    /// that, several, deletions first: rows all over the tree need a copy of most of its pages.
    ///
    /// Until the last transaction, the file says that it holds none of the checkpoint. A process that opens it then
    /// replays the log from the checkpoint before, these rows included. Pages that a transaction replaces are free for
    /// the next but one, unless a reader still uses them. After each transaction `shown` gets the view to read from.
    /// `MdtFull` leaves the file usable.
    pub fn checkpoint(
        &self,
        rows: &BTreeMap<Bytes, Option<Bytes>>,
        meta: &Meta,
        mut shown: impl FnMut(View),
    ) -> Result<View> {
        let (deletions, others): (Vec<_>, Vec<_>) = rows.iter().partition(|(_, value)| value.is_none());
        let rows = [deletions, others].concat();
        let mut piece = self.rows_at_once();
        let mut done = 0usize;
        loop {
            let end = rows.len().min(done.saturating_add(piece));
            let is_last = end == rows.len();
            let written = self.with_db(|open| {
                guarded(&self.path, || commit(&open.db, &rows[done..end], is_last.then_some(meta)))?;
                Ok(read_view(&self.path, &open.db)?.0)
            });
            match written {
                Ok(view) if is_last => return Ok(view),
                Ok(view) => {
                    shown(view);
                    done = end;
                }
                Err(fault) if fault.code == Code::MdtFull && end - done > 1 => {
                    piece = (end - done).div_ceil(PIECE_CUT);
                    // A view from before the failure reads no more.
                    shown(self.view()?);
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Rows of one transaction, so that the copies of their pages take half of the free space at most.
    fn rows_at_once(&self) -> usize {
        match self.disk.space(brindle_stdx::disk::parent(&self.path)) {
            Ok(space) => (space.available_bytes / 2 / ROW_COPY_BYTES).max(1) as usize,
            // A device that cannot be asked fails the writes soon enough.
            Err(_) => usize::MAX,
        }
    }

    /// Usage of the checkpoint file. The call reads every page in use, so it is made only when the device is
    /// nearly full. A file of more than [`WALK_BYTES_MAX`] counts as fully used.
    pub fn usage(&self) -> Result<Usage> {
        self.with_db(|open| {
            let allocated_bytes = open.gate.allocated_bytes();
            if allocated_bytes > WALK_BYTES_MAX {
                return Ok(Usage { allocated_bytes, used_bytes: allocated_bytes });
            }
            let stats = guarded(&self.path, || {
                let txn = open.db.begin_write()?;
                let stats = txn.stats()?;
                txn.abort()?;
                Ok(stats)
            })?;
            Ok(Usage { allocated_bytes, used_bytes: stats.allocated_pages() * stats.page_size() as u64 })
        })
    }

    /// Gives the device back what no row needs: moves the last pages to the front and cuts the file. False if a view is
    /// still being read. The time it takes is that of reading all pages in use.
    pub fn compact(&self) -> Result<bool> {
        self.with_db(|open| {
            guarded(&self.path, || match open.db.compact() {
                Ok(_) => Ok(true),
                Err(redb::CompactionError::TransactionInProgress) => Ok(false),
                Err(e) => Err(e.into()),
            })
        })
    }

    /// Checksums of the blocks of the file.
    pub fn sums(&self) -> Arc<Mutex<Sums>> {
        self.sums.clone()
    }

    /// The last durable state; waits for a checkpoint that is being written.
    pub fn view(&self) -> Result<View> {
        self.with_db(|open| Ok(read_view(&self.path, &open.db)?.0))
    }
}

/// Usage of a checkpoint file: bytes on the device without holes, and bytes of them that hold rows.
pub(crate) struct Usage {
    pub allocated_bytes: u64,
    pub used_bytes: u64,
}

/// Keeps an offline file open for as long as its view is used.
pub(crate) struct Offline {
    /// Damage that no row suffers from.
    pub free_list: Option<Fault>,
    _open: Open,
}

impl View {
    /// Reads nothing, and keeps nothing from being moved.
    pub fn nothing() -> View {
        View { path: String::new(), table: None }
    }

    fn table(&self) -> std::result::Result<&ReadOnlyTable<&'static [u8], &'static [u8]>, redb::Error> {
        self.table.as_ref().ok_or(redb::Error::DatabaseClosed)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let found = guarded(&self.path, || {
            let value = self.table()?.get(key)?;
            Ok(value.map(|guard| verified(key, guard.value())))
        })?;
        found.map(|value| value.ok_or_else(|| row_damaged(&self.path, key))).transpose()
    }

    /// Rows in `start..end`; an `end` before `start` is empty.
    pub fn range(&self, start: &[u8], end: Option<&[u8]>) -> Result<ViewRows<'_>> {
        let end = end.map_or(std::ops::Bound::Unbounded, |end| std::ops::Bound::Excluded(end.max(start)));
        let rows = guarded(&self.path, || {
            Ok(self.table()?.range::<&[u8]>((std::ops::Bound::Included(start), end))?)
        })?;
        Ok(ViewRows { view: self, rows, over: false })
    }
}

type RawRow = (redb::AccessGuard<'static, &'static [u8]>, redb::AccessGuard<'static, &'static [u8]>);

impl ViewRows<'_> {
    fn row(
        &mut self,
        step: impl FnOnce(&mut Self) -> Option<std::result::Result<RawRow, redb::StorageError>>,
    ) -> Option<Result<ReadRow>> {
        if self.over {
            return None;
        }
        let path = self.view.path.clone();
        let stepped = guarded(&path, || Ok(step(self).transpose()?));
        match stepped {
            Ok(None) => None,
            Ok(Some((key, value))) => {
                let key = Bytes::copy_from_slice(key.value());
                let value = verified(&key, value.value()).ok_or_else(|| row_damaged(&path, &key));
                Some(Ok((key, value)))
            }
            Err(fault) => {
                self.over = true;
                Some(Err(fault))
            }
        }
    }
}

impl Iterator for ViewRows<'_> {
    type Item = Result<ReadRow>;

    fn next(&mut self) -> Option<Self::Item> {
        self.row(|rows| rows.rows.next())
    }
}

impl DoubleEndedIterator for ViewRows<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.row(|rows| rows.rows.next_back())
    }
}

fn builder(cache_bytes: usize) -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(cache_bytes);
    builder
}

fn open_existing(disk: &dyn Disk, path: &str, how: OpenHow) -> Result<Arc<dyn DiskFile>> {
    let file = disk.open(path, how).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => store_damaged(path, "the file is missing"),
        _ => store_io("cannot open the metadata store", path, &e),
    })?;
    let len = file.len().map_err(|e| store_io("cannot open the metadata store", path, &e))?;
    if len == 0 {
        // redb would take an empty file for a new store.
        return Err(store_damaged(path, "the file is empty"));
    }
    Ok(file)
}

fn check(path: &str, open: &mut Open) -> Result<()> {
    if open.gate.len_bytes() > CHECK_BYTES_MAX {
        tracing::info!(path, "the metadata store is too large to be verified at every start; fsck does");
        return Ok(());
    }
    if !check_pages(path, &mut open.db)? {
        // The rows are verified by now, and no crash leaves this: the disk has changed something.
        tracing::warn!(path, "{FREE_LIST_DAMAGED}; it was made anew, and all rows are intact");
    }
    Ok(())
}

/// Verifies the checksum of every page; false if only redb's list of free pages was wrong, and was made anew.
fn check_pages(path: &str, db: &mut Database) -> Result<bool> {
    guarded(path, || Ok(db.check_integrity()?))
}

fn read_view(path: &str, db: &Database) -> Result<(View, Meta)> {
    let table = guarded(path, || Ok(db.begin_read()?.open_table(ROWS)?))?;
    let view = View { path: path.to_owned(), table: Some(table) };
    let value =
        view.get(META_KEY)?.ok_or_else(|| store_damaged(path, "the row that describes it is missing"))?;
    match Meta::decode(&value) {
        Some((STORE_VERSION, meta)) => Ok((view, meta)),
        Some((version, _)) => {
            let why = format!("the metadata store has format {version}, this release knows {STORE_VERSION}");
            Err(Fault::new(Code::NewerFormat).subject(path.to_owned()).why(why))
        }
        None => Err(store_damaged(path, "the row that describes it does not decode")),
    }
}

fn commit(
    db: &Database,
    rows: &[(&Bytes, &Option<Bytes>)],
    meta: Option<&Meta>,
) -> std::result::Result<(), redb::Error> {
    let mut txn = db.begin_write()?;
    // Two-phase commit with a stored list of free pages: the newest root is certain without reading every page,
    // a damaged one is an error and not a silent step back to the one before, and opening after a kill is quick.
    txn.set_two_phase_commit(true);
    txn.set_quick_repair(true);
    {
        let mut table = txn.open_table(ROWS)?;
        let mut summed = Vec::new();
        for (key, value) in rows {
            match value {
                Some(value) => table.insert(&key[..], with_sum(&mut summed, key, value))?,
                None => table.remove(&key[..])?,
            };
        }
        if let Some(meta) = meta {
            table.insert(META_KEY, with_sum(&mut summed, META_KEY, &meta.encode()))?;
        }
    }
    txn.commit()?;
    Ok(())
}

fn row_sum(key: &[u8], value: &[u8]) -> u32 {
    crc_append(crc(key), value)
}

fn with_sum<'a>(buf: &'a mut Vec<u8>, key: &[u8], value: &[u8]) -> &'a [u8] {
    buf.clear();
    buf.extend_from_slice(value);
    buf.extend_from_slice(&row_sum(key, value).to_be_bytes());
    buf
}

fn verified(key: &[u8], stored: &[u8]) -> Option<Bytes> {
    let (value, sum) = stored.split_at_checked(stored.len().checked_sub(SUM_BYTES)?)?;
    (row_sum(key, value).to_be_bytes() == sum).then(|| Bytes::copy_from_slice(value))
}

/// Runs redb and makes its errors and panics faults.
fn guarded<T>(path: &str, work: impl FnOnce() -> std::result::Result<T, redb::Error>) -> Result<T> {
    match brindle_stdx::caught::caught(work) {
        Ok(Ok(out)) => Ok(out),
        Ok(Err(redb::Error::Io(e))) if e.kind() == std::io::ErrorKind::InvalidData => {
            let why = e.get_ref().map_or("it does not begin as a store does".to_owned(), ToString::to_string);
            Err(store_damaged(path, why))
        }
        Ok(Err(redb::Error::Io(e))) => Err(store_io("cannot use the metadata store", path, &e)),
        Ok(Err(redb::Error::PreviousIo | redb::Error::DatabaseClosed)) => Err(Fault::new(Code::KvFailed)
            .subject(path.to_owned())
            .why("an earlier read or write of it failed")),
        Ok(Err(e)) => Err(store_damaged(path, e.to_string())),
        Err(panic) => Err(store_damaged(path, panic_text(&*panic))),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("an internal check of its structure failed: {text}")
}
