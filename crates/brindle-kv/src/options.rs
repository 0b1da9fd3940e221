//! Options of a store at its creation and opening, and reports.

use brindle_types::Fault;

use crate::batch::LogPos;

/// Required safety of a record before its caller goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In the log file (page cache): survives the death of the process.
    Written,
    /// On the device: survives a power cut.
    Synced,
}

/// Moment at which replies of the MDT leave (`durability=` of the file system, DESIGN section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurabilityMode {
    /// Replies wait for [`Durability::Written`]; what was written is synced before it is a second old, and while
    /// something older is unsynced, replies wait.
    #[default]
    Relaxed,
    /// Replies wait for [`Durability::Synced`].
    Sync,
    /// Replies always wait for [`Durability::Written`] only. Written records are synced with the next checkpoint, or when something must
    /// not leave before its cause is on the device.
    Scratch,
}

/// Options of a store. [`KvOptions::new`] gives the defaults.
#[derive(Clone, Debug)]
pub struct KvOptions {
    /// Identity of the file system; written into every segment header and the checkpoint, and compared at open.
    pub fs_id: [u8; 16],
    /// Identity of the target; likewise.
    pub target_uuid: [u8; 16],
    /// Name of the target for messages, such as `scratch-MDT0000`.
    pub target: String,
    /// Moment at which replies leave.
    pub mode: DurabilityMode,
    /// Size of one log segment; at least [`SEGMENT_BYTES_MIN`].
    pub segment_bytes: u64,
    /// Bound of the memtable, and of the frozen one beside it. A checkpoint starts when the memtable is full, and
    /// [`crate::Kv::admit`] waits while both are.
    pub memtable_bytes_max: usize,
    /// Memory for pages of the checkpoint file.
    pub cache_bytes_max: usize,
    /// Free space kept on the device for batches that free space, and for the checkpoints that make it so: two segments,
    /// and twice the two memtables that may have been accepted when the device is found full.
    pub reserve_bytes: u64,
    /// Newest records that are kept in memory for members of a replica set that lack them; 0 where there are no such members.
    pub tail_bytes_max: usize,
}

/// Default of [`KvOptions::segment_bytes`].
pub const SEGMENT_BYTES: u64 = 32 << 20;
/// Smallest segment. Batches have to fit into one, so that only with segments of at least
/// [`SEGMENT_BYTES_FOR_ALL`] every batch is accepted.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Segments of this size take every batch of [`crate::BATCH_BYTES_MAX`].
pub const SEGMENT_BYTES_FOR_ALL: u64 = 2 << 20;
/// Default of [`KvOptions::memtable_bytes_max`].
pub const MEMTABLE_BYTES_MAX: usize = 64 << 20;
/// Default of [`KvOptions::cache_bytes_max`]. redb keeps pages that it writes only while there is room for them.
pub const CACHE_BYTES_MAX: usize = 256 << 20;
/// Default of [`KvOptions::reserve_bytes`].
pub const RESERVE_BYTES: u64 = 384 << 20;

impl KvOptions {
    /// The defaults for a target.
    pub fn new(fs_id: [u8; 16], target_uuid: [u8; 16], target: impl Into<String>) -> KvOptions {
        KvOptions {
            fs_id,
            target_uuid,
            target: target.into(),
            mode: DurabilityMode::Relaxed,
            segment_bytes: SEGMENT_BYTES,
            memtable_bytes_max: MEMTABLE_BYTES_MAX,
            cache_bytes_max: CACHE_BYTES_MAX,
            reserve_bytes: RESERVE_BYTES,
            tail_bytes_max: 0,
        }
    }

    /// Smaller log, memtable and reserve where the device is small (below 8 GiB), so that they leave it to the rows.
    pub fn sized_for(self, device_bytes: u64) -> KvOptions {
        KvOptions {
            segment_bytes: self.segment_bytes.min((device_bytes / 64).max(SEGMENT_BYTES_FOR_ALL)),
            memtable_bytes_max: self.memtable_bytes_max.min((device_bytes / 128).max(1 << 20) as usize),
            reserve_bytes: self.reserve_bytes.min((device_bytes / 16).max(2 * SEGMENT_BYTES_FOR_ALL)),
            ..self
        }
    }
}

/// Report of an opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The new term.
    pub term: u32,
    /// The former term.
    pub previous_term: u32,
    /// Last record that the checkpoint holds.
    pub checkpoint: LogPos,
    /// Last record that survived; everything up to it is in the store.
    pub last: LogPos,
    /// Records replayed from the log on top of the checkpoint.
    pub replayed_records: u64,
    /// Bytes behind the last record that were a torn or lost end, and were dropped.
    pub dropped_bytes: u64,
}

/// Damage that [`crate::KvReader`] found. The reader goes on behind the damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Offset in the file, if known.
    pub offset: Option<u64>,
    /// The fault.
    pub fault: Fault,
}

/// Counters since the opening, for metrics and benchmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvStats {
    /// Batches appended.
    pub batches: u64,
    /// Bytes of log records appended.
    pub log_bytes: u64,
    /// Group writes to the log.
    pub writes: u64,
    /// fdatasyncs of the log.
    pub syncs: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Times that the checkpoint file was made shorter, to give a full device space back.
    pub compactions: u64,
    /// Pieces of checkpoints that were too large for the free space of a full device.
    pub checkpoint_pieces: u64,
    /// Bytes in the memtable now.
    pub memtable_bytes: u64,
    /// Bytes in the frozen memtable now.
    pub frozen_bytes: u64,
    /// Log segments that exist now.
    pub segments: u64,
}
