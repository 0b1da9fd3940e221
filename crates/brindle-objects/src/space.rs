//! Free space of the target, asked of the local file system now and then; and the *ballast*. The ballast is a file of allocated blocks
//! without data. It keeps space for acknowledged bytes even if other files fill the file system. A write that was promised space takes
//! it from the ballast if the file system has no other.
//!
//! All figures of this module count the ballast as free space. The ballast is never larger than the part that is kept back from writes
//! without a promise, so these writes find their space outside of it.

use std::io;
use std::sync::Arc;

use brindle_stdx::Disk;
use brindle_stdx::disk::DiskSpace;
use brindle_stdx::time::Mono;
use brindle_types::{Code, Fault};
use parking_lot::Mutex;

/// Name of the ballast in the target's directory.
pub const BALLAST: &str = "ballast";
/// Name of a file in the target's directory whose length the target may not use, because what it was made for
/// has been made smaller. The resizing tool allocates the file's blocks first. Without the file, all of the
/// file system is the target's.
pub const WITHHELD: &str = "withheld";
/// Bytes that users never get: headers, sums, tables, and space for removing objects.
pub const RESERVE_BYTES: u64 = 16 << 20;
/// Part of a large target that users never get, as a divisor; the smaller of both reserves counts on small ones.
const RESERVE_PART: u64 = 20;
/// Part of a target, as a divisor, that is kept back for bytes that clients have acknowledged and not yet sent
/// ([`crate::grants`]).
const HOLD_PART: u64 = 64;
/// Objects that users never get.
const RESERVE_INODES: u64 = 64;
/// Below this much room every write reserves its blocks before it touches any.
const CAREFUL_BYTES: u64 = 256 << 20;
/// Smallest change of the ballast, so that it seldom changes.
const BALLAST_STEP_BYTES: u64 = 32 << 20;
/// Room beside the blocks of a write that it may need (maps of blocks), where it takes from the ballast.
const WRITE_SLACK_BYTES: u64 = 1 << 20;
/// Most times that a write takes more from the ballast, while others take the space that it has freed.
pub const BALLAST_TRIES: u32 = 4;
/// Longest age of an answer of the file system, in milliseconds.
const AGE_MAX_MS: u64 = 100;

/// The room of a target.
pub struct Space {
    disk: Arc<dyn Disk>,
    path: String,
    ballast_path: String,
    withheld_path: String,
    state: Mutex<State>,
}

struct State {
    known: Option<Known>,
    ballast_bytes: u64,
    /// Room of writes that are under way: what of it they have not allocated yet the file system does not tell.
    under_way_bytes: u64,
    /// The file system cannot promise room; that was said.
    is_unsupported: bool,
}

#[derive(Clone, Copy)]
struct Known {
    at: Mono,
    /// Space as the file system tells it: without the ballast.
    space: DiskSpace,
    taken_since: u64,
}

/// Bytes that may be promised to all clients together.
#[derive(Clone, Copy, Debug)]
pub struct ToPromise {
    /// Bytes.
    pub bytes: u64,
    /// Whether no byte of the space kept back for grants has been used up.
    pub is_whole: bool,
    /// Bytes of it that are there even if other files fill the file system: new grants stay below. Grants of
    /// an earlier process stay.
    pub held_bytes: u64,
}

/// Claim of a write to space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// No condition: the target has plenty of space.
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
    pub fn new(disk: Arc<dyn Disk>, path: &str) -> Result<Space, Fault> {
        let ballast_path = format!("{path}/{BALLAST}");
        let ballast_bytes = disk
            .kept_room(&ballast_path)
            .map_err(|e| Fault::io(Code::OstIo, "cannot tell the length of", ballast_path.clone(), &e))?;
        let state =
            Mutex::new(State { known: None, ballast_bytes, under_way_bytes: 0, is_unsupported: false });
        let withheld_path = format!("{path}/{WITHHELD}");
        Ok(Space { disk, path: path.to_owned(), ballast_path, withheld_path, state })
    }

    /// Space as users may have it.
    pub fn users(&self) -> Result<DiskSpace, Fault> {
        let mut state = self.state.lock();
        let mut space = self.ask(&mut state)?;
        space.available_bytes += state.ballast_bytes;
        drop(state);
        let kept = reserve(&space) + hold(&space);
        space.available_bytes = space.available_bytes.saturating_sub(kept);
        space.free_inodes = space.free_inodes.saturating_sub(RESERVE_INODES);
        Ok(space)
    }

    /// Bytes in use, without the ballast.
    pub fn used_bytes(&self) -> Result<u64, Fault> {
        let mut state = self.state.lock();
        let space = self.ask(&mut state)?;
        Ok(space.total_bytes.saturating_sub(space.available_bytes + state.ballast_bytes))
    }

    /// Bytes that may be promised to all clients together.
    pub fn to_promise(&self, now: Mono) -> Result<ToPromise, Fault> {
        let mut state = self.state.lock();
        let k = self.known(&mut state, 0, now)?;
        state.known = Some(k);
        let left = state.room(&k).saturating_sub(reserve(&k.space));
        let hold = hold(&k.space);
        let held = if state.is_unsupported { hold } else { state.ballast_bytes };
        Ok(ToPromise { bytes: left.min(hold), is_whole: left >= hold, held_bytes: held.min(left) })
    }

    /// Makes the ballast as large as the promises need: `promised_bytes` and space for one more client. If the file system has no
    /// space for that, the ballast stays as it is.
    pub fn hold(&self, promised_bytes: u64, now: Mono) -> Result<(), Fault> {
        let mut state = self.state.lock();
        if state.is_unsupported {
            return Ok(());
        }
        let k = self.known(&mut state, 0, now)?;
        state.known = Some(k);
        let (wanted, have) = (promised_bytes.saturating_add(BALLAST_STEP_BYTES), state.ballast_bytes);
        let wanted = wanted.min(hold(&k.space));
        let is_small = have < wanted && wanted - have >= BALLAST_STEP_BYTES.min(wanted / 4);
        let is_large = have > wanted && have - wanted >= 2 * BALLAST_STEP_BYTES;
        let free = k.space.available_bytes.saturating_sub(k.taken_since + WRITE_SLACK_BYTES);
        if is_large || is_small && wanted - have <= free {
            self.set_ballast(&mut state, wanted)?;
        }
        Ok(())
    }

    /// A write that was promised `bytes` met a full file system all the same: somebody else took what was freed for it. Frees more;
    /// `false` if nothing is left.
    pub fn free_more(&self, bytes: u64) -> Result<bool, Fault> {
        let mut state = self.state.lock();
        let less = state.ballast_bytes.saturating_sub(bytes.saturating_add(WRITE_SLACK_BYTES));
        let has_some = state.ballast_bytes > 0;
        if has_some {
            self.set_ballast(&mut state, less)?;
        }
        Ok(has_some)
    }

    fn set_ballast(&self, state: &mut State, bytes: u64) -> Result<(), Fault> {
        state.known = None;
        match self.disk.keep_room(&self.ballast_path, bytes) {
            Ok(()) => state.ballast_bytes = bytes,
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                state.is_unsupported = true;
                tracing::warn!(
                    path = self.path,
                    "this file system cannot keep room allocated: if something else fills it, bytes that programs wrote and did not sync may not find room"
                );
            }
            Err(e) if e.kind() == io::ErrorKind::StorageFull => {}
            Err(e) => {
                return Err(Fault::io(Code::OstIo, "cannot keep room in", self.ballast_path.clone(), &e));
            }
        }
        Ok(())
    }

    /// Known space. The file system is asked anew if the answer is old, or does not surely suffice for
    /// `bytes`.
    fn known(&self, state: &mut State, bytes: u64, now: Mono) -> Result<Known, Fault> {
        let fresh =
            state.known.filter(|k| now.ms_since(k.at) <= AGE_MAX_MS && k.at <= now && self.sure(k, bytes));
        match fresh {
            Some(k) => Ok(k),
            None => Ok(Known { at: now, space: self.ask(state)?, taken_since: 0 }),
        }
    }

    /// Refuses a write of `bytes` when there is no room for it. `covered`: room was promised for it.
    pub fn take(
        &self,
        bytes: u64,
        new_object: bool,
        covered: bool,
        now: Mono,
    ) -> Result<(Room, Taken<'_>), Fault> {
        let mut state = self.state.lock();
        let mut k = self.known(&mut state, bytes, now)?;
        // The sum of all promises is bounded; the reserve stays free beside them, unless others have taken it.
        let kept = if covered { 0 } else { reserve(&k.space) + hold(&k.space) };
        // Promises count each other already; who has none leaves room for whatever is under way.
        let others = if covered { 0 } else { state.under_way_bytes };
        let left = state.room(&k).saturating_sub(kept + others);
        if bytes > left {
            state.known = None;
            return Err(self.full(format!("{left} bytes are left for users, {bytes} are needed")));
        }
        // File systems that make inodes as they need them say 0 of 0.
        if new_object && k.space.total_inodes > 0 && k.space.free_inodes <= RESERVE_INODES {
            state.known = None;
            return Err(self.full("no inodes are left for new objects".to_owned()));
        }
        let free = k.space.available_bytes.saturating_sub(k.taken_since.max(state.under_way_bytes));
        let needed = bytes + WRITE_SLACK_BYTES;
        if covered && free < needed && state.ballast_bytes > 0 {
            let less = state.ballast_bytes.saturating_sub(needed - free);
            self.set_ballast(&mut state, less)?;
            k = self.known(&mut state, bytes, now)?;
        }
        k.taken_since += bytes;
        state.known = Some(k);
        state.under_way_bytes += bytes;
        let room = if left - bytes < CAREFUL_BYTES { Room::Little } else { Room::Plenty };
        Ok((room, Taken { space: self, bytes }))
    }

    /// Forgets the known free space, after objects were removed.
    pub fn forget(&self) {
        self.state.lock().known = None;
    }

    /// Whether the known figures allow the write without a doubt.
    fn sure(&self, k: &Known, bytes: u64) -> bool {
        let kept = reserve(&k.space) + hold(&k.space) + CAREFUL_BYTES;
        k.space.available_bytes.saturating_sub(k.taken_since) > bytes + kept
    }

    /// Asks the file system, also for the ballast: somebody may have removed it.
    fn ask(&self, state: &mut State) -> Result<DiskSpace, Fault> {
        let told = self.disk.kept_room(&self.ballast_path).and_then(|kept| {
            state.ballast_bytes = kept;
            self.disk.space(&self.path)
        });
        let withheld = match self.disk.stat(&self.withheld_path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(0),
            stat => stat.map(|stat| stat.len_bytes),
        };
        // The blocks of the ballast are allocated, so none of it is available.
        let told = told.and_then(|mut space| {
            space.total_bytes = space.total_bytes.saturating_sub(withheld?);
            Ok(space)
        });
        told.map_err(|e| Fault::io(Code::OstIo, "cannot tell the space of", self.path.clone(), &e))
    }

    fn full(&self, why: String) -> Fault {
        Fault::new(Code::OstFull).why(why).data("nothing was written")
    }
}

/// Room that a write has taken, until the write is over and the file system tells of it.
pub struct Taken<'a> {
    space: &'a Space,
    bytes: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.space.state.lock().under_way_bytes -= self.bytes;
    }
}

impl State {
    /// Room that is not used yet, the ballast included.
    fn room(&self, k: &Known) -> u64 {
        (k.space.available_bytes + self.ballast_bytes).saturating_sub(k.taken_since)
    }
}
