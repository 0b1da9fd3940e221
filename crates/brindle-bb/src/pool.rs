//! A pool of bricks, and which slice of which brick belongs to which buffer.
//!
//! A brick is a directory with a capacity. A buffer gets a slice of one or more bricks. All sizes are whole *granules*, because Slurm
//! counts pools in granules. Invariant: the slices of a brick never exceed its capacity, and a pool refuses a buffer only where the
//! granules that are free on all bricks together are too few.

use std::collections::BTreeMap;

use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

/// Granularity of new pools.
pub const GRANULE_DEFAULT_BYTES: u64 = 16 << 20;
/// Most bricks that one buffer lies on: each slice is a server process.
pub const SLICES_MAX: u64 = 8;
/// Longest name of a brick or a pool.
const NAME_MAX: usize = 32;

/// A directory that buffers lie in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brick {
    /// The directory.
    pub dir: String,
    /// Bytes that buffers may have of it.
    pub bytes: u64,
}

/// A part of a brick that belongs to a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// Serial number of the buffer.
    pub serial: u64,
    /// Name of the brick.
    pub brick: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Bricks and their slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Name, such as `default`.
    pub name: String,
    /// Sizes are multiples of this.
    pub granule_bytes: u64,
    /// Bricks by name.
    pub bricks: BTreeMap<String, Brick>,
    /// Slices that belong to buffers.
    pub slices: Vec<Slice>,
    /// Serial number of the next buffer; never used twice.
    pub next_serial: u64,
}

impl Pool {
    /// A pool without bricks.
    pub fn new(name: &str, granule_bytes: u64) -> Pool {
        assert!(granule_bytes > 0, "a granule has a size");
        Pool {
            name: name.to_owned(),
            granule_bytes,
            bricks: BTreeMap::new(),
            slices: Vec::new(),
            next_serial: 1,
        }
    }

    /// Adds a brick. A brick of the same name, directory and size is there already; another one of the same name is refused.
    pub fn add_brick(&mut self, name: &str, brick: Brick) -> Result<()> {
        let refused = |why: String| {
            Fault::new(Code::BadArgument)
                .what("cannot add the brick")
                .subject(name.to_owned())
                .why(why)
                .data("nothing was changed")
        };
        if !is_name(name) {
            return Err(refused(format!("a name has 1 to {NAME_MAX} letters, digits, '-' or '_'")));
        }
        if self.bricks.get(name) == Some(&brick) {
            return Ok(());
        }
        if let Some(old) = self.bricks.get(name) {
            let size = format_bytes(old.bytes);
            return Err(refused(format!("there is one of this name: {} with {size}", old.dir)));
        }
        if let Some((other, _)) = self.bricks.iter().find(|(_, b)| b.dir == brick.dir) {
            return Err(refused(format!("brick '{other}' has the directory {}", brick.dir)));
        }
        if brick.bytes < self.granule_bytes {
            let least = format_bytes(self.granule_bytes);
            return Err(refused(format!("{} is less than a granule ({least})", format_bytes(brick.bytes))));
        }
        self.bricks.insert(name.to_owned(), brick);
        Ok(())
    }

    /// Granules of all bricks.
    pub fn granules(&self) -> u64 {
        self.bricks.values().map(|brick| brick.bytes / self.granule_bytes).sum()
    }

    /// Granules that no buffer has.
    pub fn free_granules(&self) -> u64 {
        self.bricks.keys().map(|name| self.free_of(name)).sum()
    }

    /// Free granules of a brick.
    pub fn free_of(&self, name: &str) -> u64 {
        let Some(brick) = self.bricks.get(name) else { return 0 };
        let used: u64 = self.slices.iter().filter(|s| s.brick == name).map(|s| s.bytes).sum();
        (brick.bytes / self.granule_bytes).saturating_sub(used.div_ceil(self.granule_bytes))
    }

    /// Bytes rounded up to whole granules; one at least.
    pub fn rounded(&self, bytes: u64) -> Option<u64> {
        bytes.max(1).div_ceil(self.granule_bytes).checked_mul(self.granule_bytes)
    }

    /// Gives a new buffer its slices: equal ones on as many bricks as possible; where no equal ones fit, whatever is free. Returns the
    /// buffer's serial number and slices. A refusal changes nothing.
    pub fn allocate(&mut self, bytes: u64) -> Result<(u64, Vec<Slice>)> {
        let wanted = bytes.max(1).div_ceil(self.granule_bytes);
        let mut free: Vec<(u64, String)> = self
            .bricks
            .keys()
            .map(|name| (self.free_of(name), name.clone()))
            .filter(|(n, _)| *n > 0)
            .collect();
        // The emptiest brick first; bricks that are equally empty in the order of their names.
        free.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let shares = equal_shares(&free, wanted)
            .or_else(|| any_shares(&free, wanted))
            .ok_or_else(|| self.full(bytes))?;
        let serial = self.number();
        let slices: Vec<Slice> = shares
            .into_iter()
            .map(|(granules, brick)| Slice { serial, brick, bytes: granules * self.granule_bytes })
            .collect();
        self.slices.extend(slices.iter().cloned());
        Ok((serial, slices))
    }

    /// The serial number of a job that has no slices of its own.
    pub fn number(&mut self) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        serial
    }

    /// Takes the slices of a buffer back; nothing happens where it has none.
    pub fn release(&mut self, serial: u64) {
        self.slices.retain(|slice| slice.serial != serial);
    }

    /// Takes back the slices of buffers that do not exist: their allocation was cut off by a crash. Returns how many slices there were.
    pub fn reconcile(&mut self, serials: impl IntoIterator<Item = u64>) -> usize {
        let known: Vec<u64> = serials.into_iter().collect();
        let before = self.slices.len();
        self.slices.retain(|slice| known.contains(&slice.serial));
        before - self.slices.len()
    }

    /// The refusal of a buffer that does not fit now.
    fn full(&self, bytes: u64) -> Fault {
        let free = format_bytes(self.free_granules() * self.granule_bytes);
        Fault::new(Code::PoolFull)
            .what("cannot make a buffer: pool")
            .subject(self.name.clone())
            .why(format!("{free} are free, {} are asked for", format_bytes(bytes)))
            .data("nothing was allocated")
    }

    /// Refuses a size that the pool could not hold if it were empty.
    pub fn refuse_impossible(&self, bytes: u64) -> Result<()> {
        if bytes.div_ceil(self.granule_bytes) <= self.granules() {
            return Ok(());
        }
        let all = format_bytes(self.granules() * self.granule_bytes);
        Err(Fault::new(Code::PoolFull)
            .what("no job can get so large a buffer: pool")
            .subject(self.name.clone())
            .why(format!("it has {all} in all, {} are asked for", format_bytes(bytes)))
            .data("the job was not submitted")
            .next("ask for less"))
    }
}

/// Spreads `wanted` granules evenly over as many bricks as possible; shares differ by one granule at most.
fn equal_shares(free: &[(u64, String)], wanted: u64) -> Option<Vec<(u64, String)>> {
    let most = (free.len() as u64).min(SLICES_MAX).min(wanted);
    (1..=most).rev().find_map(|n| {
        let share = |index: u64| wanted / n + u64::from(index < wanted % n);
        let chosen: Vec<_> =
            (0..n).zip(free).map(|(i, (room, name))| (share(i), *room, name.clone())).collect();
        let fits = chosen.iter().all(|(share, room, _)| share <= room);
        fits.then(|| chosen.into_iter().map(|(share, _, name)| (share, name)).collect())
    })
}

/// Takes free granules brick by brick, from the emptiest brick on.
fn any_shares(free: &[(u64, String)], wanted: u64) -> Option<Vec<(u64, String)>> {
    let mut left = wanted;
    let mut shares = Vec::new();
    for (room, name) in free {
        if left > 0 {
            let share = left.min(*room);
            shares.push((share, name.clone()));
            left -= share;
        }
    }
    (left == 0).then_some(shares)
}

/// Whether a word can be the name of a pool or a brick.
pub fn is_name(word: &str) -> bool {
    (1..=NAME_MAX).contains(&word.len())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRANULE: u64 = 16;

    fn pool(bricks: &[u64]) -> Pool {
        let mut pool = Pool::new("default", GRANULE);
        for (n, bytes) in bricks.iter().enumerate() {
            pool.add_brick(&format!("b{n}"), Brick { dir: format!("/b{n}"), bytes: *bytes }).unwrap();
        }
        pool
    }

    fn used(pool: &Pool, brick: &str) -> u64 {
        pool.slices.iter().filter(|s| s.brick == brick).map(|s| s.bytes).sum()
    }

    #[test]
    fn a_buffer_is_spread_evenly_and_a_fragmented_pool_still_gives_all_it_has() {
        let mut pool = pool(&[160, 160, 160, 160]);
        let (serial, slices) = pool.allocate(100).unwrap();
        assert_eq!((serial, slices.len()), (1, 4));
        assert_eq!(slices.iter().map(|s| s.bytes).collect::<Vec<_>>(), [32, 32, 32, 16]);
        // One granule more than four equal shares have: what is left is unequal.
        let (_, slices) = pool.allocate(33 * GRANULE).unwrap();
        assert_eq!(slices.iter().map(|s| s.bytes).sum::<u64>(), 33 * GRANULE);
        assert_eq!(pool.free_granules(), 0);
        assert_eq!(pool.allocate(1).unwrap_err().code, Code::PoolFull);
        pool.release(serial);
        assert_eq!(pool.free_granules(), 7);
    }

    #[test]
    fn bricks_are_added_once() {
        let mut pool = pool(&[160]);
        pool.add_brick("b0", Brick { dir: "/b0".to_owned(), bytes: 160 }).unwrap();
        for (name, dir, bytes) in [("b0", "/b0", 320), ("c", "/b0", 160), ("a/b", "/x", 160), ("c", "/c", 15)]
        {
            let before = pool.clone();
            pool.add_brick(name, Brick { dir: dir.to_owned(), bytes }).unwrap_err();
            assert_eq!(pool, before);
        }
    }

    /// A request to a pool, of a random run of them.
    #[derive(Clone, Debug)]
    enum Ask {
        Allocate(u64),
        Release(usize),
        /// A crash behind the allocation of the newest buffer, before the buffer was recorded.
        Forget,
    }

    fn asks() -> impl Strategy<Value = Vec<Ask>> {
        let one = prop_oneof![
            4 => (1u64..400).prop_map(Ask::Allocate),
            2 => (0usize..8).prop_map(Ask::Release),
            1 => Just(Ask::Forget),
        ];
        prop::collection::vec(one, 1..40)
    }

    proptest! {
        #[test]
        fn no_brick_is_given_out_twice_and_nothing_is_refused_that_fits(
            bricks in prop::collection::vec(16u64..300, 1..10),
            asks in asks(),
        ) {
            let mut pool = pool(&bricks);
            let mut live: Vec<u64> = Vec::new();
            let mut newest = 0;
            for ask in asks {
                let free = pool.free_granules();
                match ask {
                    Ask::Allocate(bytes) => {
                        let wanted = bytes.div_ceil(GRANULE);
                        let before = pool.clone();
                        match pool.allocate(bytes) {
                            Ok((serial, slices)) => {
                                prop_assert!(serial > newest, "serials only rise");
                                newest = serial;
                                prop_assert_eq!(slices.iter().map(|s| s.bytes).sum::<u64>(), wanted * GRANULE);
                                prop_assert_eq!(pool.free_granules(), free - wanted);
                                live.push(serial);
                            }
                            Err(_) => {
                                prop_assert!(wanted > free, "{} granules were free, {} asked", free, wanted);
                                prop_assert_eq!(&pool, &before);
                            }
                        }
                    }
                    Ask::Release(n) if !live.is_empty() => {
                        let serial = live.remove(n % live.len());
                        pool.release(serial);
                        pool.release(serial);
                    }
                    Ask::Release(_) => {}
                    Ask::Forget => {
                        live.pop();
                        pool.reconcile(live.iter().copied());
                        prop_assert_eq!(pool.reconcile(live.iter().copied()), 0);
                    }
                }
                for (n, bytes) in bricks.iter().enumerate() {
                    let used = used(&pool, &format!("b{n}"));
                    prop_assert!(used <= *bytes);
                }
                let used: u64 = pool.slices.iter().map(|s| s.bytes / GRANULE).sum();
                prop_assert_eq!(pool.free_granules() + used, pool.granules());
            }
        }
    }
}
