//! The log of one opening: group commit, rotation of segments, background syncs.
//!
//! `append` only fills the group buffer. The first waiter writes the whole buffer with one call, under `writer`;
//! fdatasyncs and new segments are the work of one task, so that a waiter that is dropped never takes the result of a
//! failed fdatasync with it. A failed write or fdatasync stops the log for good.
//!
//! Lock order: `writer`, `group`, then the memtable's lock, which a callback of `append` takes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use brindle_stdx::cast::to_usize;
use brindle_stdx::watch;
use brindle_stdx::{DiskFile, Mono, Seams};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::batch::{LogPos, RowChange};
use crate::fault::{log_io, log_stopped};
use crate::format::{HEADER_BYTES, Record, SegmentHeader, encode_record};
use crate::group::{GroupBuffer, Spare};
use crate::options::{Durability, DurabilityMode};
use crate::scan::{Segment, needed_from};
use crate::segment::{make_segment, prepare_spare};
use crate::tail::Shipping;

/// Unsynced records of this age are synced, in both modes.
pub(crate) const SYNC_AFTER_MS: u64 = 500;
/// In relaxed mode nothing is acknowledged while a record of this age is unsynced.
pub(crate) const UNSYNCED_AGE_MAX_MS: u64 = 1000;
/// After this time without appends a mark says that the last records were synced, so that damage in them is named.
const MARK_AFTER_MS: u64 = 1000;
/// A segment that found no space is tried again after this time, or when a checkpoint has freed some.
const SPACE_RETRY_MS: u64 = 1000;
/// The log asks the device for its free space after this many bytes, or after a part of the reserve if that is less.
/// Everything accepted in between has to fit into the reserve.
const SPACE_CHECK_BYTES: u64 = 1 << 20;
const SPACE_CHECK_SHARE: u64 = 16;
/// Part of the reserve that must be free on the device itself, whatever the checkpoint file has free.
const REUSE_FLOOR_PART: u64 = 4;

/// When fewer zeros than this lie ahead of the records, the log writes [`ZEROS_BYTES`] more. Otherwise the first sync of each
/// piece of allocated space has to mark it as written, which is a commit of the file system's own journal (ext4 on a loop
/// device: 250 us instead of 700 for each sync; note 007).
const ZEROS_LEFT_BYTES: u64 = 128 << 10;
const ZEROS_BYTES: u64 = 512 << 10;
const PAGE_BYTES: u64 = 4096;
static ZEROS: [u8; to_usize(ZEROS_BYTES)] = [0; to_usize(ZEROS_BYTES)];

/// Parts of a log at open.
pub(crate) struct LogStart {
    pub seams: Seams,
    pub dir: String,
    pub segment_bytes: u64,
    pub reserve_bytes: u64,
    pub mode: DurabilityMode,
    /// The last record of earlier terms.
    pub last: LogPos,
    /// Every segment, the new one of this term last.
    pub segments: Vec<Segment>,
    pub file: Arc<dyn DiskFile>,
    /// Records for other members, if the store is the primary of a replica set.
    pub shipping: Option<Shipping>,
}

struct Writer {
    file: Arc<dyn DiskFile>,
    path: String,
    /// Offset of the next record.
    offset: u64,
    /// Offset up to which zeros lie ahead of the records.
    zeros_to: u64,
}

impl Writer {
    fn new(file: Arc<dyn DiskFile>, path: String) -> Writer {
        Writer { file, path, offset: HEADER_BYTES as u64, zeros_to: 0 }
    }

    /// Writes zeros ahead, to be synced together with records.
    fn zero_ahead(&mut self, segment_bytes: u64) -> std::io::Result<()> {
        let left = self.zeros_to.saturating_sub(self.offset);
        let from = self.offset.next_multiple_of(PAGE_BYTES).max(self.zeros_to);
        if left >= ZEROS_LEFT_BYTES || from >= segment_bytes {
            return Ok(());
        }
        let len_bytes = ZEROS_BYTES.min(segment_bytes - from);
        self.file.write_at(&ZEROS[..to_usize(len_bytes)], from)?;
        self.zeros_to = from + len_bytes;
        Ok(())
    }
}

/// Counters of the log.
#[derive(Default)]
pub(crate) struct LogCounters {
    pub batches: AtomicU64,
    pub bytes: AtomicU64,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
}

/// See the module.
pub(crate) struct Log {
    seams: Seams,
    dir: String,
    /// Header of this term's first segment; the later ones differ in `first_index`.
    header: SegmentHeader,
    seed: u32,
    /// The last record of earlier terms.
    before: LogPos,
    segment_bytes: u64,
    reserve_bytes: u64,
    /// The device was down to the reserve when it was last asked.
    device_low: AtomicBool,
    /// Time at which a checkpoint was last asked for because of low space.
    space_asked_at: Mutex<Option<Mono>>,
    /// Bytes in the checkpoint file that are free for new rows; known only while the device is nearly full.
    reusable_bytes: AtomicU64,
    group: Mutex<GroupBuffer>,
    writer: Mutex<Writer>,
    segments: Mutex<Vec<Segment>>,
    mode: Mutex<DurabilityMode>,
    written: AtomicU64,
    synced: AtomicU64,
    /// Highest index whose sync a caller waits for.
    wanted: AtomicU64,
    /// Time at which the last fdatasync returned.
    synced_at: Mutex<Mono>,
    /// Changes whenever a waiter has reason to look again.
    progress: watch::Sender<u64>,
    work: Notify,
    /// Wakes the checkpointer: the device is full and segments should be freed.
    pub need_space: Notify,
    failed: OnceLock<Fault>,
    closing: AtomicBool,
    shipping: Option<Shipping>,
    pub counters: LogCounters,
}

impl Log {
    pub fn new(start: LogStart) -> Log {
        let newest = start.segments.last().expect("opening has made a segment");
        let (header, path) = (newest.header, newest.path.clone());
        let before = start.last.index;
        let now = start.seams.now();
        Log {
            seed: header.seed(),
            before: start.last,
            header,
            group: Mutex::new(GroupBuffer::new(header.first_index, start.segment_bytes)),
            writer: Mutex::new(Writer::new(start.file, path)),
            segments: Mutex::new(start.segments),
            mode: Mutex::new(start.mode),
            written: AtomicU64::new(before),
            synced: AtomicU64::new(before),
            wanted: AtomicU64::new(before),
            synced_at: Mutex::new(now),
            progress: watch::Sender::new(0),
            work: Notify::new(),
            need_space: Notify::new(),
            failed: OnceLock::new(),
            closing: AtomicBool::new(false),
            shipping: start.shipping,
            counters: LogCounters::default(),
            seams: start.seams,
            dir: start.dir,
            segment_bytes: start.segment_bytes,
            reserve_bytes: start.reserve_bytes,
            device_low: AtomicBool::new(false),
            space_asked_at: Mutex::new(None),
            reusable_bytes: AtomicU64::new(0),
        }
    }

    pub fn term(&self) -> u32 {
        self.header.term
    }

    fn pos(&self, index: u64) -> LogPos {
        if index <= self.before.index { self.before } else { LogPos { term: self.header.term, index } }
    }

    pub fn last_pos(&self) -> LogPos {
        self.pos(self.group.lock().last_index())
    }

    pub fn written_pos(&self) -> LogPos {
        self.pos(self.written.load(Ordering::Acquire))
    }

    pub fn synced_pos(&self) -> LogPos {
        self.pos(self.synced.load(Ordering::Acquire))
    }

    pub fn mode(&self) -> DurabilityMode {
        *self.mode.lock()
    }

    pub fn set_mode(&self, mode: DurabilityMode) {
        *self.mode.lock() = mode;
        self.publish();
        // Records that were let grow old are synced now.
        self.work.notify_one();
    }

    pub fn failed(&self) -> Option<Fault> {
        self.failed.get().cloned()
    }

    /// Stops the log: nothing more is accepted or acknowledged.
    pub fn fail(&self, fault: Fault) {
        tracing::error!(code = %fault.code, %fault, "the metadata log stopped");
        // A second failure adds nothing.
        let _ = self.failed.set(fault);
        self.publish();
        self.work.notify_one();
    }

    pub async fn until_failed(&self) -> Fault {
        let mut progress = self.progress.subscribe();
        loop {
            progress.borrow_and_update();
            if let Some(fault) = self.failed() {
                return fault;
            }
            // The sender lives as long as `self`.
            let _ = progress.changed().await;
        }
    }

    fn check_running(&self) -> Result<()> {
        match self.failed.get() {
            Some(first) => Err(log_stopped(first)),
            None => Ok(()),
        }
    }

    fn publish(&self) {
        self.progress.send_modify(|tick| *tick = tick.wrapping_add(1));
    }

    /// Puts a record into the group buffer; `apply` gets it under the buffer's lock, so that the memtable sees records
    /// in their order.
    pub fn append(
        &self,
        changes: &[RowChange],
        frees_space: bool,
        apply: impl FnOnce(LogPos, usize, Vec<RowChange>),
    ) -> Result<LogPos> {
        self.check_running()?;
        self.check_space(frees_space);
        let mut group = self.group.lock();
        let pos = LogPos { term: self.header.term, index: group.next_index };
        let synced = self.synced.load(Ordering::Acquire);
        let record = Bytes::from(encode_record(self.seed, pos, synced, changes));
        self.check_room(&group, record.len(), frees_space)?;
        let was_idle = group.oldest().is_none();
        group.push(&record, Some(self.seams.now()));
        group.claimed = synced;
        self.keep(pos, &record);
        let wake = was_idle || group.segment_due().is_some();
        let len = record.len();
        apply(pos, len, Record::changes_of_encoded(record));
        drop(group);
        if wake {
            self.work.notify_one();
        }
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(len as u64, Ordering::Relaxed);
        Ok(pos)
    }

    /// Keeps a record for members that lack it. Under the lock of the group buffer, so that they come in order.
    fn keep(&self, pos: LogPos, record: &Bytes) {
        if let Some(shipping) = &self.shipping {
            shipping.tail.lock().push(pos, record.clone());
        }
    }

    /// Records behind `pos` that are written; `None` if `pos` is not known in memory, or of a log that went another way.
    pub fn records_after(&self, pos: LogPos, bytes_max: usize) -> Option<Vec<(LogPos, Bytes)>> {
        let written = self.written.load(Ordering::Acquire);
        self.shipping.as_ref()?.tail.lock().after(pos, written, bytes_max)
    }

    /// A member is being filled, or not any more: records are kept for it.
    pub fn hold_records(&self, is_held: bool) {
        if let Some(shipping) = &self.shipping {
            shipping.tail.lock().hold(is_held);
        }
    }

    /// Sets the log positions that all required members have reached: `written` and `synced`.
    pub fn require(&self, written: u64, synced: u64) {
        if let Some(shipping) = &self.shipping {
            shipping.required.set(written, synced);
            self.publish();
        }
    }

    /// Changes whenever something was written or synced, or somebody waits for a sync.
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    /// Highest index whose sync a caller waits for.
    pub fn synced_wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    fn check_room(&self, group: &GroupBuffer, record_bytes: usize, frees_space: bool) -> Result<()> {
        if record_bytes as u64 > self.segment_bytes - HEADER_BYTES as u64 {
            return Err(Fault::new(Code::Bug)
                .what("cannot log a batch that is larger than a segment")
                .why(format!("{record_bytes} bytes; segments have {} bytes", self.segment_bytes)));
        }
        let no_spare = matches!(group.spare, Spare::NoSpace(_));
        let full = if frees_space {
            no_spare && group.needs_segment(record_bytes)
        } else {
            no_spare || group.space_low
        };
        if full { Err(Fault::new(Code::MdtFull)) } else { Ok(()) }
    }

    /// Asks the device for its space, once a megabyte of log and whenever it was low.
    fn check_space(&self, frees_space: bool) {
        let check_bytes = SPACE_CHECK_BYTES.min(self.reserve_bytes / SPACE_CHECK_SHARE);
        let group = self.group.lock();
        let due = group.bytes_since_space_check >= check_bytes || (group.space_low && !frees_space);
        drop(group);
        if due {
            self.look_at_space();
        }
    }

    /// Finds out whether the device is full, and asks for a checkpoint if so.
    pub fn look_at_space(&self) {
        // A device that cannot be asked fails the writes soon enough.
        let Ok(space) = self.seams.disk.space(&self.dir) else { return };
        let low = space.available_bytes < self.reserve_bytes;
        let full = low && !self.may_reuse(space.available_bytes);
        self.device_low.store(low, Ordering::Release);
        let mut group = self.group.lock();
        group.bytes_since_space_check = 0;
        group.space_low = full;
        drop(group);
        if full {
            // Removed rows free their pages with the next checkpoint.
            self.ask_for_checkpoint();
        }
    }

    /// Whether free pages of the checkpoint file stand in for a part of the reserve. They never stand in for all of
    /// it: segments of the log cannot lie in them, and a checkpoint may need more pages.
    fn may_reuse(&self, available_bytes: u64) -> bool {
        available_bytes >= self.reserve_bytes / REUSE_FLOOR_PART
            && available_bytes.saturating_add(self.reusable_bytes()) >= self.reserve_bytes
    }

    fn ask_for_checkpoint(&self) {
        let now = self.seams.now();
        let mut asked_at = self.space_asked_at.lock();
        if asked_at.is_none_or(|at| now.ms_since(at) >= SPACE_RETRY_MS) {
            *asked_at = Some(now);
            self.need_space.notify_one();
        }
    }

    /// Whether the device was down to the reserve when it was last asked.
    pub fn is_space_low(&self) -> bool {
        self.device_low.load(Ordering::Acquire)
    }

    /// Bytes in the checkpoint file that are free for new rows, as far as it is known.
    pub fn reusable_bytes(&self) -> u64 {
        self.reusable_bytes.load(Ordering::Acquire)
    }

    /// Tells how much of the checkpoint file is free for new rows.
    pub fn set_reusable(&self, bytes: u64) {
        self.reusable_bytes.store(bytes, Ordering::Release);
    }

    /// Whether everything up to `pos` is as safe as `durability` says, and replies may leave.
    fn reached(&self, pos: LogPos, durability: Durability) -> Result<bool> {
        self.check_running()?;
        let (written, synced) = match &self.shipping {
            Some(shipping) => (shipping.required.written(), shipping.required.synced()),
            None => (u64::MAX, u64::MAX),
        };
        match durability {
            Durability::Synced => Ok(self.synced.load(Ordering::Acquire).min(synced) >= pos.index),
            Durability::Written => {
                Ok(self.written.load(Ordering::Acquire).min(written) >= pos.index
                    && !self.holds_replies_back())
            }
        }
    }

    /// Relaxed mode: something unsynced is too old.
    fn holds_replies_back(&self) -> bool {
        if self.mode() == DurabilityMode::Scratch {
            return false;
        }
        let oldest = self.group.lock().oldest();
        oldest.is_some_and(|at| self.seams.now().ms_since(at) > UNSYNCED_AGE_MAX_MS)
    }

    pub async fn wait(&self, pos: LogPos, durability: Durability) -> Result<()> {
        if crate::planted("log_reply_before_write") {
            return Ok(());
        }
        if pos > self.last_pos() {
            let why = format!("the last record of this opening is {}", self.last_pos());
            return Err(Fault::new(Code::Bug)
                .what("cannot wait for a record that was not appended")
                .why(why));
        }
        self.try_flush();
        if self.reached(pos, durability)? {
            return Ok(());
        }
        let mut progress = self.progress.subscribe();
        loop {
            progress.borrow_and_update();
            self.try_flush();
            if self.reached(pos, durability)? {
                return Ok(());
            }
            if durability == Durability::Synced {
                self.want_synced(pos.index);
            }
            // The sender lives as long as `self`.
            let _ = progress.changed().await;
        }
    }

    /// Has everything up to an index synced.
    pub fn want_synced(&self, index: u64) {
        if self.wanted.fetch_max(index, Ordering::AcqRel) >= index {
            return;
        }
        self.work.notify_one();
        if self.shipping.is_some() {
            // Members are to sync, too.
            self.publish();
        }
    }

    /// Writes what is in the buffer, unless somebody else is at it: that one looks again before it leaves, and tells.
    fn try_flush(&self) {
        let mut wrote = false;
        while let Some(mut writer) = self.writer.try_lock() {
            wrote |= self.flush(&mut writer);
            drop(writer);
            if !self.group.lock().has_writable() || self.failed.get().is_some() {
                break;
            }
        }
        if wrote {
            self.publish();
        }
    }

    fn flush(&self, writer: &mut Writer) -> bool {
        let mut wrote = false;
        loop {
            if self.failed.get().is_some() {
                return wrote;
            }
            let Some(chunk) = self.group.lock().take_writable() else { return wrote };
            if let Err(e) = writer.file.write_at(&chunk.bytes, writer.offset) {
                let mut fault = log_io("cannot write the metadata log", &writer.path, &e);
                fault.code = Code::LogFailed;
                self.fail(fault);
                return true;
            }
            writer.offset += chunk.bytes.len() as u64;
            self.written.store(chunk.last_index, Ordering::Release);
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
            wrote = true;
        }
    }

    /// The log's task: makes segments, syncs, marks. Ends when the log is closed or has failed.
    pub async fn run(self: Arc<Self>) {
        while !self.closing.load(Ordering::Acquire) && self.failed.get().is_none() {
            match self.step().await {
                Err(fault) => self.fail(fault),
                Ok(true) => {}
                Ok(false) => match self.next_due_ms() {
                    None => self.work.notified().await,
                    // Woken or timed out: either way there may be work.
                    Some(ms) => {
                        let _ = self.seams.timeout_ms(ms, self.work.notified()).await;
                    }
                },
            }
        }
    }

    /// Ends the task at its next step.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.work.notify_one();
    }

    /// Does the most urgent piece of work; false if there is none.
    async fn step(&self) -> Result<bool> {
        let (due, may_allocate, spare_wanted) = {
            let group = self.group.lock();
            let may_allocate = match group.spare {
                Spare::NoSpace(at) => self.seams.now().ms_since(at) >= SPACE_RETRY_MS,
                Spare::Ready | Spare::Wanted => true,
            };
            (group.segment_due(), may_allocate, group.spare != Spare::Ready)
        };
        if let Some(first_index) = due
            && may_allocate
        {
            return self.rotate(first_index).await.map(|()| true);
        }
        if self.sync_due() {
            return self.sync().await.map(|()| true);
        }
        if spare_wanted && may_allocate {
            return self.make_spare().await.map(|()| true);
        }
        if self.mark_due_ms() == Some(0) {
            self.mark();
            return Ok(true);
        }
        Ok(false)
    }

    fn sync_due(&self) -> bool {
        // A record that waits for a segment cannot be synced yet.
        let (oldest, writable_to) = {
            let group = self.group.lock();
            (group.oldest(), group.segment_due().map_or(group.last_index(), |first| first - 1))
        };
        if self.synced.load(Ordering::Acquire) >= writable_to {
            return false;
        }
        let wanted = self.wanted.load(Ordering::Acquire) > self.synced.load(Ordering::Acquire);
        let by_age = self.mode() != DurabilityMode::Scratch;
        wanted || (by_age && oldest.is_some_and(|at| self.seams.now().ms_since(at) >= SYNC_AFTER_MS))
    }

    fn next_due_ms(&self) -> Option<u64> {
        let (oldest, spare) = {
            let group = self.group.lock();
            (group.oldest(), group.spare)
        };
        let oldest = oldest.filter(|_| self.mode() != DurabilityMode::Scratch);
        let sync = oldest.map(|at| SYNC_AFTER_MS.saturating_sub(self.seams.now().ms_since(at)).max(1));
        let space = match spare {
            Spare::NoSpace(at) => Some(SPACE_RETRY_MS.saturating_sub(self.seams.now().ms_since(at)).max(1)),
            Spare::Ready | Spare::Wanted => None,
        };
        [sync, space, self.mark_due_ms()].into_iter().flatten().min()
    }

    async fn sync(&self) -> Result<()> {
        let (file, path, target) = {
            let mut writer = self.writer.lock();
            self.flush(&mut writer);
            writer.zero_ahead(self.segment_bytes).map_err(|e| {
                let mut fault = log_io("cannot write the metadata log", &writer.path, &e);
                fault.code = Code::LogFailed;
                fault
            })?;
            (writer.file.clone(), writer.path.clone(), self.written.load(Ordering::Acquire))
        };
        self.publish();
        self.check_running()?;
        if !crate::planted("log_skip_fdatasync") {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            file.sync_data_async().await.map_err(|e| {
                let mut fault = log_io("cannot sync the metadata log", &path, &e);
                fault.code = Code::LogFailed;
                fault
            })?;
        }
        self.synced.fetch_max(target, Ordering::AcqRel);
        *self.synced_at.lock() = self.seams.now();
        self.group.lock().synced_to(target);
        self.publish();
        Ok(())
    }

    async fn rotate(&self, first_index: u64) -> Result<()> {
        // A segment's header says that everything before it is durable.
        while self.synced.load(Ordering::Acquire) + 1 < first_index && !crate::planted("log_rotate_unsynced")
        {
            self.sync().await?;
        }
        let header = SegmentHeader { first_index, ..self.header };
        let (disk, dir, bytes) = (self.seams.disk.clone(), self.dir.clone(), self.segment_bytes);
        let made = self.seams.run_blocking(move || make_segment(&*disk, &dir, header, bytes)).await;
        match made.unwrap_or_else(|| Err(blocking_panicked())) {
            Ok((segment, file)) => {
                let mut writer = self.writer.lock();
                *writer = Writer::new(file, segment.path.clone());
                let mut group = self.group.lock();
                group.segment_made();
                group.spare = Spare::Wanted;
                drop(group);
                self.segments.lock().push(segment);
                self.flush(&mut writer);
                drop(writer);
                self.publish();
                Ok(())
            }
            Err(fault) if fault.code == Code::MdtFull => {
                self.out_of_space();
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    async fn make_spare(&self) -> Result<()> {
        let (disk, dir, bytes) = (self.seams.disk.clone(), self.dir.clone(), self.segment_bytes);
        let made = self.seams.run_blocking(move || prepare_spare(&*disk, &dir, bytes)).await;
        match made.unwrap_or_else(|| Err(blocking_panicked())) {
            Ok(()) => {
                self.group.lock().spare = Spare::Ready;
                Ok(())
            }
            Err(fault) if fault.code == Code::MdtFull => {
                self.out_of_space();
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    fn out_of_space(&self) {
        self.group.lock().spare = Spare::NoSpace(self.seams.now());
        self.need_space.notify_one();
    }

    /// Milliseconds until a mark is to be written; `None` if none is needed.
    fn mark_due_ms(&self) -> Option<u64> {
        let synced = self.synced.load(Ordering::Acquire);
        let group = self.group.lock();
        if group.claimed >= synced || group.last_index() != synced {
            return None;
        }
        drop(group);
        Some(MARK_AFTER_MS.saturating_sub(self.seams.now().ms_since(*self.synced_at.lock())))
    }

    /// Writes a record without changes whose `synced_index` covers everything before it.
    fn mark(&self) {
        let synced = self.synced.load(Ordering::Acquire);
        let mut group = self.group.lock();
        let pos = LogPos { term: self.header.term, index: group.next_index };
        let record = Bytes::from(encode_record(self.seed, pos, synced, &[]));
        group.claimed = synced;
        if !group.needs_segment(record.len()) {
            group.push(&record, None);
            self.keep(pos, &record);
        }
        drop(group);
        self.try_flush();
    }

    /// Tries again for a spare segment, after space was freed.
    pub fn space_freed(&self) {
        let mut group = self.group.lock();
        if group.spare != Spare::Ready {
            group.spare = Spare::Wanted;
        }
        group.bytes_since_space_check = u64::MAX;
        drop(group);
        self.work.notify_one();
    }

    /// Takes the segments out of the list that hold nothing behind `applied`, for removal.
    pub fn take_needless_segments(&self, applied: LogPos) -> Vec<Segment> {
        let mut segments = self.segments.lock();
        let keep = needed_from(&segments, applied);
        segments.drain(..keep).collect()
    }

    /// Makes the next record begin a new segment; the present one has a record. `MdtFull` unless the new segment is there in advance: records would
    /// otherwise wait for room that the present segment has.
    pub fn end_segment(&self) -> Result<()> {
        let mut group = self.group.lock();
        if group.spare != Spare::Ready {
            return Err(
                Fault::new(Code::MdtFull).why("there is no room for another segment of the metadata log")
            );
        }
        group.end_segment();
        Ok(())
    }

    /// All segments in their order, and the index of the last record that is on the device.
    pub fn segments(&self) -> (Vec<Segment>, u64) {
        // In this order: a segment that is made meanwhile begins behind what was synced before.
        let synced = self.synced.load(Ordering::Acquire);
        (self.segments.lock().clone(), synced)
    }

    pub fn segment_count(&self) -> usize {
        self.segments.lock().len()
    }
}

fn blocking_panicked() -> Fault {
    Fault::new(Code::Bug).why("a job of the metadata log panicked")
}
