//! How much room is left, asked of the local file system now and then.

use std::sync::Arc;

use brindle_stdx::Disk;
use brindle_stdx::disk::DiskSpace;
use brindle_stdx::time::Mono;
use brindle_types::{Code, Fault};
use parking_lot::Mutex;

/// Bytes that users never get: headers, sums, tables, and what removing needs.
pub const RESERVE_BYTES: u64 = 16 << 20;
/// Part of a large target that users never get, as a divisor; the smaller of both reserves counts on small ones.
const RESERVE_PART: u64 = 20;
/// Part of a target that is kept back for what clients have acknowledged and not yet sent ([`crate::grants`]), as a divisor.
const HOLD_PART: u64 = 64;
/// Objects that users never get.
const RESERVE_INODES: u64 = 64;
/// Below this much room every write reserves its blocks before it touches any.
const CAREFUL_BYTES: u64 = 256 << 20;
/// How old an answer of the file system may be, milliseconds.
const AGE_MAX_MS: u64 = 100;

/// The room of a target.
pub struct Space {
    disk: Arc<dyn Disk>,
    path: String,
    known: Mutex<Option<Known>>,
}

#[derive(Clone, Copy)]
struct Known {
    at: Mono,
    space: DiskSpace,
    taken_since: u64,
}

/// What may be promised to clients in all.
#[derive(Clone, Copy, Debug)]
pub struct ToPromise {
    /// Bytes.
    pub bytes: u64,
    /// Nothing of what is kept back for it has been used up.
    pub is_whole: bool,
}

/// What a write must do about space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Nothing.
    Plenty,
    /// Reserve its blocks first.
    Little,
}

fn reserve(space: &DiskSpace) -> u64 {
    RESERVE_BYTES.min(space.total_bytes / RESERVE_PART)
}

fn hold(space: &DiskSpace) -> u64 {
    space.total_bytes / HOLD_PART
}

impl Space {
    /// The room of the file system that holds `path`.
    pub fn new(disk: Arc<dyn Disk>, path: &str) -> Space {
        Space { disk, path: path.to_owned(), known: Mutex::new(None) }
    }

    /// Space as users may have it.
    pub fn users(&self) -> Result<DiskSpace, Fault> {
        let mut space = self.ask()?;
        let kept = reserve(&space) + hold(&space);
        space.available_bytes = space.available_bytes.saturating_sub(kept);
        space.free_inodes = space.free_inodes.saturating_sub(RESERVE_INODES);
        Ok(space)
    }

    /// What may be promised to clients in all.
    pub fn to_promise(&self, now: Mono) -> Result<ToPromise, Fault> {
        let mut known = self.known.lock();
        let fresh = known.filter(|k| now.ms_since(k.at) <= AGE_MAX_MS && k.at <= now && self.sure(k, 0));
        let k = match fresh {
            Some(k) => k,
            None => Known { at: now, space: self.ask()?, taken_since: 0 },
        };
        *known = Some(k);
        let left = k.space.available_bytes.saturating_sub(k.taken_since + reserve(&k.space));
        let hold = hold(&k.space);
        Ok(ToPromise { bytes: left.min(hold), is_whole: left >= hold })
    }

    /// Refuses a write of `bytes` when there is no room for it. `covered`: room was promised for it.
    pub fn take(&self, bytes: u64, new_object: bool, covered: bool, now: Mono) -> Result<Room, Fault> {
        let mut known = self.known.lock();
        let fresh = known.filter(|k| now.ms_since(k.at) <= AGE_MAX_MS && k.at <= now && self.sure(k, bytes));
        let mut k = match fresh {
            Some(k) => k,
            None => Known { at: now, space: self.ask()?, taken_since: 0 },
        };
        let kept = reserve(&k.space) + if covered { 0 } else { hold(&k.space) };
        let left = k.space.available_bytes.saturating_sub(k.taken_since + kept);
        if bytes > left {
            *known = None;
            return Err(self.full(format!("{left} bytes are left for users, {bytes} are needed")));
        }
        // File systems that make inodes as they need them say 0 of 0.
        if new_object && k.space.total_inodes > 0 && k.space.free_inodes <= RESERVE_INODES {
            *known = None;
            return Err(self.full("no inodes are left for new objects".to_owned()));
        }
        k.taken_since += bytes;
        *known = Some(k);
        Ok(if left - bytes < CAREFUL_BYTES { Room::Little } else { Room::Plenty })
    }

    /// Forgets what is known, after something was removed.
    pub fn forget(&self) {
        *self.known.lock() = None;
    }

    /// Whether the known figures allow the write without a doubt.
    fn sure(&self, k: &Known, bytes: u64) -> bool {
        let kept = reserve(&k.space) + hold(&k.space) + CAREFUL_BYTES;
        k.space.available_bytes.saturating_sub(k.taken_since) > bytes + kept
    }

    fn ask(&self) -> Result<DiskSpace, Fault> {
        self.disk
            .space(&self.path)
            .map_err(|e| Fault::io(Code::OstIo, "cannot tell the space of", self.path.clone(), &e))
    }

    fn full(&self, why: String) -> Fault {
        Fault::new(Code::OstFull).why(why).data("nothing was written")
    }
}
