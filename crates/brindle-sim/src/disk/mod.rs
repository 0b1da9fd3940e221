//! The simulated disk: a file system in memory, with everything that a power cut may do.
//!
//! A process that is killed loses nothing: what it wrote is in the page cache. A power cut keeps, for each sector
//! (512 bytes) written since the last sync, any one of its versions or none, the same for each length, and for each
//! name the effects of a prefix of its unsynced changes ([`Survival`] says how likely which outcome is). The choice is
//! a hash of (seed, number of the cut, path, sector): it does not depend on the order in which independent things were
//! written.
//!
//! [`SimDisk`] is both what a process works with ([`brindle_stdx::Disk`]) and a test's hand on it (`faults.rs`). A disk
//! of a simulated node takes virtual time and writes into the trace of its simulation; a disk alone ([`SimDisk::new`])
//! needs no simulation around it.
//!
//! | part | file |
//! |---|---|
//! | contents of one file | `content.rs`: bytes in `pages.rs`, space in `ranges.rs` |
//! | names | `names.rs` |
//! | the `Disk` and `DiskFile` traits | `handle.rs` |
//! | faults, crash points, and what tests look at | `faults.rs` |

mod content;
mod faults;
mod handle;
mod names;
mod pages;
mod ranges;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::Semaphore;

pub use content::SECTOR_LEN;
pub use faults::{DiskOp, LIMITED_BYTES};
pub use handle::SimDisk;

use crate::exec::Group;
use crate::rng::{SplitMix, mix, mix_text};
use content::{Content, Style};
use names::{Entry, Names};

/// Space that a disk that is never full claims to have.
const CAPACITY_DEFAULT_BYTES: u64 = 64 << 30;
/// Inodes of a disk, for `space`.
const INODES: u64 = 1 << 20;

/// Unreachable contents that may be kept before they are looked for.
const COLLECT_AFTER: usize = 64;

/// Number of a file's contents; never reused.
type InodeId = u64;

/// Unsynced writes that a power cut keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// Of each sector, length and name any version, each by itself.
    Any,
    /// One file in four loses everything, one keeps everything, one keeps any versions, and one loses a few of the newest.
    Mixed,
}

impl Survival {
    fn of_file(self, fate: Fate, path: &str) -> Style {
        match self {
            Survival::Nothing => Style::Nothing,
            Survival::Any => Style::Any,
            Survival::Mixed => mixed(fate.choose(path, u64::MAX, 4)),
        }
    }

    fn of_names(self, fate: Fate) -> Style {
        match self {
            Survival::Nothing => Style::Nothing,
            Survival::Any => Style::Any,
            Survival::Mixed => mixed(fate.choose("names", 0, 4)),
        }
    }
}

fn mixed(number: u64) -> Style {
    match number {
        0 => Style::Nothing,
        1 => Style::Everything,
        2 => Style::Any,
        _ => Style::MostlyNewest,
    }
}

/// Properties of a disk.
#[derive(Clone, Debug)]
pub struct DiskModel {
    /// Writes that survive a power cut.
    pub survival: Survival,
    /// A power cut may keep one name of a rename without the other, and lose both. No file system on Linux does so.
    pub tears_renames: bool,
    /// Bytes of an allocation block, a multiple of [`SECTOR_LEN`].
    pub block_bytes: u64,
    /// Times that an asynchronous sync of a disk alone lets other tasks run. They may write meanwhile; the sync does not
    /// cover that.
    pub sync_pauses: u32,
}

impl Default for DiskModel {
    fn default() -> DiskModel {
        let block_bytes = SECTOR_LEN as u64;
        DiskModel { survival: Survival::Mixed, tears_renames: false, block_bytes, sync_pauses: 0 }
    }
}

/// State of a disk.
struct State {
    name: String,
    seed: u64,
    model: DiskModel,
    names: Names,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    cuts: u64,
    /// Bytes in all; `None` for a disk that is never full.
    capacity_bytes: Option<u64>,
    /// Bytes in use by other files.
    filled_bytes: u64,
    /// Bytes that the node keeps as room ([`brindle_stdx::Disk::keep_room`]).
    kept_bytes: u64,
    /// Operations that changed or synced something so far.
    ops: u64,
    /// Hash of these operations, in their order.
    ops_hash: u64,
    /// The process of this incarnation can do nothing more.
    frozen: bool,
    freeze_after: Option<u64>,
    on_freeze: Option<Box<dyn FnOnce() + Send>>,
    failing: Failing,
    sync_ms: (u64, u64),
    /// Asynchronous syncs that do not return, while they are held.
    held_syncs: Option<Vec<Waker>>,
    /// Syncs return, and sync nothing.
    lies: bool,
    /// I/Os that may be in flight at once, if that is bounded.
    permits: Option<Arc<Semaphore>>,
    rng: SplitMix,
    /// Names and handles given up since contents were last collected.
    given_up: usize,
}

/// Errors that are to come.
#[derive(Default)]
struct Failing {
    /// Operations of a kind that succeed before those that fail, and the number of those.
    next: BTreeMap<DiskOp, (u64, u64)>,
    /// Writes that begin at a place of a file: how many of them fail.
    writes_at: BTreeMap<(InodeId, u64), u64>,
    /// Bytes of files that the medium has lost, until they are written.
    lost: Vec<(InodeId, Range<u64>)>,
    /// Files that cannot be removed.
    stuck: BTreeSet<String>,
    /// Longest length that can be set.
    len_max: Option<u64>,
    /// Direct reads find nothing of what was written.
    stale_direct: bool,
}

struct Inode {
    content: Content,
    handles: usize,
    mtime_ns: i64,
}

/// The place of a chosen bit in the world: what a power cut keeps is decided by it and nothing else.
#[derive(Clone, Copy)]
struct Fate(u64);

impl Fate {
    /// Chooses one of `n` possibilities for the thing called `name` with number `number`.
    fn choose(self, name: &str, number: u64, n: u64) -> u64 {
        mix(mix_text(self.0, name), number) % n
    }
}

impl State {
    fn new(name: &str, seed: u64, model: DiskModel) -> State {
        State {
            name: name.to_owned(),
            seed,
            names: Names::new(model.tears_renames),
            model,
            inodes: BTreeMap::new(),
            next_inode: 1,
            cuts: 0,
            capacity_bytes: None,
            filled_bytes: 0,
            kept_bytes: 0,
            ops: 0,
            ops_hash: 0,
            frozen: false,
            freeze_after: None,
            on_freeze: None,
            failing: Failing::default(),
            sync_ms: (0, 3),
            held_syncs: None,
            lies: false,
            permits: None,
            rng: SplitMix::new(mix_text(seed, name)),
            given_up: 0,
        }
    }

    /// Admits an operation of `group`: refuses those of dead incarnations and of frozen disks, and injected errors.
    fn begin(&mut self, group: &Group, op: DiskOp) -> io::Result<()> {
        if !group.is_alive() {
            return Err(eio("this process was killed"));
        }
        if op != DiskOp::Read {
            self.count_op();
        }
        if self.frozen {
            return Err(eio("the disk is frozen"));
        }
        if self.failing.hits(op) || op == DiskOp::SyncFile && self.failing.hits(DiskOp::Sync) {
            return Err(eio("injected"));
        }
        Ok(())
    }

    /// Counts towards the planned crash point, which lies *before* the operation that reaches it.
    fn count_op(&mut self) {
        match &mut self.freeze_after {
            Some(0) => {
                self.frozen = true;
                if let Some(tell) = self.on_freeze.take() {
                    tell();
                }
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.ops += 1;
    }

    fn used_bytes(&self) -> u64 {
        let open: u64 =
            self.inodes.values().filter(|i| i.handles > 0).map(|i| i.content.allocated_bytes()).sum();
        let named = self.names.live_inodes().filter_map(|id| self.inodes.get(&id));
        let closed: u64 = named.filter(|i| i.handles == 0).map(|i| i.content.allocated_bytes()).sum();
        open + closed + self.kept_bytes + self.filled_bytes
    }

    /// Bytes that are free; as good as endless on a disk that is never full, where looking would be dear.
    fn room_bytes(&self) -> u64 {
        self.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used_bytes()))
    }

    /// Refuses to grow beyond the capacity.
    fn reserve(&self, more_bytes: u64) -> io::Result<()> {
        if more_bytes > 0 && more_bytes > self.room_bytes() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn inode(&mut self, id: InodeId) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| eio("the file was lost in a power cut"))
    }

    fn new_inode(&mut self, now_ns: i64) -> InodeId {
        let id = self.next_inode;
        self.next_inode += 1;
        let content = Content::new(self.model.block_bytes);
        self.inodes.insert(id, Inode { content, handles: 0, mtime_ns: now_ns });
        id
    }

    /// Collects once in a while, so that many small changes stay cheap.
    fn collect_some(&mut self) {
        self.given_up += 1;
        if self.given_up > COLLECT_AFTER + self.inodes.len() {
            self.collect();
        }
    }

    /// Drops contents that no name and no handle can reach, now or after a power cut.
    fn collect(&mut self) {
        self.given_up = 0;
        let reachable = self.names.reachable_inodes();
        self.inodes.retain(|id, inode| inode.handles > 0 || reachable.contains(id));
        self.failing.forget_all_but(&self.inodes);
    }

    /// The process is gone: nothing is lost, and a frozen disk works again.
    fn process_died(&mut self) {
        self.frozen = false;
        self.freeze_after = None;
        self.on_freeze = None;
        self.held_syncs = None;
        self.inodes.values_mut().for_each(|i| i.handles = 0);
        self.collect();
    }

    /// Decides what the platter holds, and forgets the page cache.
    fn power_cut(&mut self) {
        self.process_died();
        self.cuts += 1;
        let fate = Fate(mix(mix_text(self.seed, &self.name), self.cuts));
        let survival = self.model.survival;
        self.names.power_cut(survival, fate);
        self.collect();
        for (path, entry) in self.names.live() {
            if let Entry::File(id) = entry
                && let Some(inode) = self.inodes.get_mut(id)
            {
                inode.content.power_cut(survival, fate, path);
            }
        }
    }

    fn boot_id(&self) -> String {
        format!("{}-boot-{}", self.name, self.cuts)
    }
}

impl Failing {
    /// Whether the next operation of a kind fails; counts it.
    fn hits(&mut self, op: DiskOp) -> bool {
        match self.next.get_mut(&op) {
            Some((good, left)) if *left > 0 => {
                let hits = *good == 0;
                *if hits { left } else { good } -= 1;
                hits
            }
            _ => false,
        }
    }

    /// Whether a write that begins at `offset` fails; counts it.
    fn hits_write(&mut self, id: InodeId, offset: u64) -> bool {
        match self.writes_at.get_mut(&(id, offset)) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Forgets files that are gone.
    fn forget_all_but(&mut self, inodes: &BTreeMap<InodeId, Inode>) {
        self.writes_at.retain(|(id, _), _| inodes.contains_key(id));
        self.lost.retain(|(id, _)| inodes.contains_key(id));
    }
}

const EIO: i32 = 5;

/// EIO with its reason in the text.
fn eio(why: &str) -> io::Error {
    io::Error::other(format!("{} ({why})", io::Error::from_raw_os_error(EIO)))
}
