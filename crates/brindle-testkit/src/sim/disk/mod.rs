//! The simulated disk of a node: [`Disk`] in memory, with everything a power cut may do.
//!
//! A process that is killed loses nothing: what it wrote is in the page cache. A power cut keeps, for each sector
//! (512 bytes) written since the last sync, any one of its versions or none, the same for each length, and for each
//! name the effects of a prefix of its unsynced changes. The choice is a hash of (seed, number of the cut, path,
//! sector): it does not depend on the order in which independent things were written.
//!
//! | part | file |
//! |---|---|
//! | contents of one file | `content.rs` |
//! | names | `names.rs` |
//! | the `Disk` and `DiskFile` traits | `handle.rs` |
//! | faults, and what tests look at | `control.rs` |

mod content;
mod control;
mod handle;
mod names;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

pub use content::SECTOR_LEN;
pub use control::{DiskControl, DiskOp, LIMITED_BYTES};
pub(super) use handle::SimDisk;

use super::exec::Group;
use super::rng::{SplitMix, mix, mix_text};
use content::Content;
use names::{Entry, Names};

/// Space on a disk unless a test says otherwise.
const CAPACITY_DEFAULT_BYTES: u64 = 64 << 30;
/// Inodes of a disk, for `space`.
const INODES: u64 = 1 << 20;

/// Unreachable contents that may be kept before they are looked for.
const COLLECT_AFTER: usize = 64;

/// Number of a file's contents; never reused.
type InodeId = u64;

/// A node's disk.
pub(super) struct Disk {
    node: String,
    seed: u64,
    names: Names,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    cuts: u64,
    capacity_bytes: u64,
    /// Bytes in use by other files.
    filled_bytes: u64,
    /// Bytes that the node keeps as room ([`brindle_stdx::Disk::keep_room`]).
    kept_bytes: u64,
    /// Operations that changed or synced something so far.
    ops: u64,
    /// The process of this incarnation can do nothing more.
    frozen: bool,
    freeze_after: Option<u64>,
    on_freeze: Option<Box<dyn FnOnce() + Send>>,
    fail_next: BTreeMap<DiskOp, u64>,
    sync_ms: (u64, u64),
    rng: SplitMix,
    /// Names and handles given up since contents were last collected.
    given_up: usize,
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

/// Effect of an operation on the disk, for bounds and faults.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Changes,
}

impl Disk {
    pub fn new(node: &str, seed: u64) -> Arc<Mutex<Disk>> {
        Arc::new(Mutex::new(Disk {
            node: node.to_owned(),
            seed,
            names: Names::default(),
            inodes: BTreeMap::new(),
            next_inode: 1,
            cuts: 0,
            capacity_bytes: CAPACITY_DEFAULT_BYTES,
            filled_bytes: 0,
            kept_bytes: 0,
            ops: 0,
            frozen: false,
            freeze_after: None,
            on_freeze: None,
            fail_next: BTreeMap::new(),
            sync_ms: (0, 3),
            rng: SplitMix::new(mix_text(seed, node)),
            given_up: 0,
        }))
    }

    /// Admits an operation of `group`: refuses those of dead incarnations and of frozen disks, and injected errors.
    fn begin(&mut self, group: &Group, op: DiskOp) -> io::Result<()> {
        if !group.is_alive() {
            return Err(eio("this process was killed"));
        }
        let effect = if op == DiskOp::Read { Effect::Reads } else { Effect::Changes };
        if effect == Effect::Changes {
            self.count_op();
        }
        if self.frozen {
            return Err(eio("the disk is frozen"));
        }
        match self.fail_next.get_mut(&op) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(eio("injected"))
            }
            _ => Ok(()),
        }
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
        let sectors: usize =
            self.inodes.values().filter(|i| i.handles > 0).map(|i| i.content.sectors()).sum();
        let named = self.names.live_inodes().filter_map(|id| self.inodes.get(&id));
        let closed: usize = named.filter(|i| i.handles == 0).map(|i| i.content.sectors()).sum();
        ((sectors + closed) * SECTOR_LEN) as u64 + self.kept_bytes + self.filled_bytes
    }

    /// Refuses to grow beyond the capacity.
    fn reserve(&self, more_sectors: usize) -> io::Result<()> {
        // Looking is dear, so the usual disk, much larger than any test, is not looked at.
        if more_sectors == 0 || self.capacity_bytes >= CAPACITY_DEFAULT_BYTES {
            return Ok(());
        }
        if self.used_bytes() + (more_sectors * SECTOR_LEN) as u64 > self.capacity_bytes {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        Ok(())
    }

    fn inode(&mut self, id: InodeId) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| eio("the file was lost in a power cut"))
    }

    fn new_inode(&mut self, now_ns: i64) -> InodeId {
        let id = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(id, Inode { content: Content::default(), handles: 0, mtime_ns: now_ns });
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
    }

    /// The process is gone: nothing is lost, and a frozen disk works again.
    pub fn process_died(&mut self) {
        self.frozen = false;
        self.freeze_after = None;
        self.on_freeze = None;
        self.inodes.values_mut().for_each(|i| i.handles = 0);
        self.collect();
    }

    /// Decides what the platter holds, and forgets the page cache.
    pub fn power_cut(&mut self) {
        self.process_died();
        self.cuts += 1;
        let fate = Fate(mix(mix_text(self.seed, &self.node), self.cuts));
        self.names.power_cut(fate);
        self.collect();
        for (path, entry) in self.names.live() {
            if let Entry::File(id) = entry
                && let Some(inode) = self.inodes.get_mut(id)
            {
                inode.content.power_cut(fate, path);
            }
        }
    }

    fn boot_id(&self) -> String {
        format!("{}-boot-{}", self.node, self.cuts)
    }
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// EIO with its reason in the text.
fn eio(why: &str) -> io::Error {
    io::Error::other(format!("{} ({why})", io::Error::from_raw_os_error(EIO)))
}
