//! A pool of bricks, and which slice of which brick belongs to which buffer.
//!
//! A brick is a directory with a capacity. A buffer gets a slice of one or more bricks. All sizes are whole *granules*, because Slurm
//! counts pools in granules. Invariant: the slices of a brick never exceed its capacity, and a pool refuses a buffer only where the
//! granules that are free on all bricks together are too few.

use std::collections::{BTreeMap, BTreeSet};

use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

/// Granularity of new pools.
pub const GRANULE_DEFAULT_BYTES: u64 = 16 << 20;
/// Most bricks that one buffer lies on: each slice is a server process.
pub const SLICES_MAX: u64 = 8;
/// Most slices of a buffer that has grown.
pub const SLICES_GROWN_MAX: u64 = 32;
/// Targets are made for so many times the size that they have at first, at most: their local file systems take some room for themselves, by
/// the size that they were made for.
const GROW_IN_PLACE_MAX: u64 = 16;
/// Longest name of a brick or a pool.
const NAME_MAX: usize = 32;

/// A directory that buffers lie in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brick {
    /// The directory.
    pub dir: String,
    /// Bytes that buffers may have of it.
    pub bytes: u64,
    /// The host that it is on; `None`: the orchestrator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl Brick {
    /// Whether it is on one of these hosts.
    fn is_on(&self, nodes: &BTreeSet<String>) -> bool {
        self.node.as_ref().is_some_and(|node| nodes.contains(node))
    }
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
    /// Size that its target was made for, where that is larger; the target is kept from using more than `bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_bytes: Option<u64>,
    /// The host of the brick; `None`: the orchestrator's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl Slice {
    /// Size that its target was made for.
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes.unwrap_or(0).max(self.bytes)
    }

    /// The slice with another size; its target stays.
    #[must_use]
    pub fn of_size(&self, bytes: u64) -> Slice {
        Slice { bytes, image_bytes: Some(self.image_bytes()), ..self.clone() }
    }
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
    /// Bricks, by name, that get no new slices.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub draining: BTreeSet<String>,
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
            draining: BTreeSet::new(),
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
        if let Some((other, _)) = self.bricks.iter().find(|(_, b)| b.dir == brick.dir && b.node == brick.node)
        {
            return Err(refused(format!("brick '{other}' has the directory {}", brick.dir)));
        }
        if brick.bytes < self.granule_bytes {
            let least = format_bytes(self.granule_bytes);
            return Err(refused(format!("{} is less than a granule ({least})", format_bytes(brick.bytes))));
        }
        self.bricks.insert(name.to_owned(), brick);
        Ok(())
    }

    /// Removes a brick. Slices that lie in it go with it: whoever asks has made sure that no buffer needs them.
    pub fn remove_brick(&mut self, name: &str) -> Result<Brick> {
        let removed = self.known(name)?.clone();
        self.bricks.remove(name);
        self.slices.retain(|slice| slice.brick != name);
        self.draining.remove(name);
        Ok(removed)
    }

    /// Keeps new slices out of a brick, or lets them in again. Buffers that have a part of it keep that part.
    pub fn drain_brick(&mut self, name: &str, is_draining: bool) -> Result<()> {
        self.known(name)?;
        match is_draining {
            true => self.draining.insert(name.to_owned()),
            false => self.draining.remove(name),
        };
        Ok(())
    }

    fn known(&self, name: &str) -> Result<&Brick> {
        self.bricks.get(name).ok_or_else(|| {
            Fault::new(Code::BadArgument)
                .what("no brick of this pool is called")
                .subject(name.to_owned())
                .data("nothing was changed")
                .next("list them: brindle bb brick list")
        })
    }

    /// Granules of all bricks.
    pub fn granules(&self) -> u64 {
        self.bricks.values().map(|brick| brick.bytes / self.granule_bytes).sum()
    }

    /// Granules that no buffer has.
    pub fn free_granules(&self) -> u64 {
        self.bricks.keys().map(|name| self.free_of(name)).sum()
    }

    /// Granules that a new buffer can have: on bricks of other hosts than these, and on none that is being drained.
    pub fn free_granules_without(&self, away: &BTreeSet<String>) -> u64 {
        self.free_without(away).map(|(granules, _)| granules).sum()
    }

    /// Free granules of each brick that is not on a host of `away`.
    fn free_without(&self, away: &BTreeSet<String>) -> impl Iterator<Item = (u64, String)> {
        let open =
            self.bricks.iter().filter(|(name, brick)| !brick.is_on(away) && !self.draining.contains(*name));
        open.map(|(name, _)| (self.free_of(name), name.clone()))
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
    /// buffer's serial number and slices. `away`: hosts whose bricks are not chosen. A refusal changes nothing.
    pub fn allocate(&mut self, bytes: u64, away: &BTreeSet<String>) -> Result<(u64, Vec<Slice>)> {
        let wanted = bytes.max(1).div_ceil(self.granule_bytes);
        let free = self.emptiest_first(self.free_without(away));
        let shares = equal_shares(&free, wanted)
            .or_else(|| any_shares(&free, wanted))
            .ok_or_else(|| self.full("make", bytes, away))?;
        let serial = self.number();
        let slices = self.new_slices(serial, shares);
        self.slices.extend(slices.iter().cloned());
        Ok((serial, slices))
    }

    /// Bricks with free granules, the emptiest first; bricks that are equally empty in the order of their names.
    fn emptiest_first(&self, all: impl Iterator<Item = (u64, String)>) -> Vec<(u64, String)> {
        let mut free: Vec<(u64, String)> = all.filter(|(granules, _)| *granules > 0).collect();
        free.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        free
    }

    fn new_slices(&self, serial: u64, shares: Vec<(u64, String)>) -> Vec<Slice> {
        let slice = |(granules, brick): (u64, String)| Slice {
            serial,
            node: self.bricks.get(&brick).and_then(|brick| brick.node.clone()),
            brick,
            bytes: granules * self.granule_bytes,
            image_bytes: None,
        };
        shares.into_iter().map(slice).collect()
    }

    /// The slices of a buffer, in the order of its targets.
    pub fn slices_of(&self, serial: u64) -> Vec<Slice> {
        self.slices.iter().filter(|slice| slice.serial == serial).cloned().collect()
    }

    /// Gives a buffer other slices than it has.
    pub fn set_slices(&mut self, serial: u64, slices: &[Slice]) {
        self.release(serial);
        self.slices.extend(slices.iter().cloned());
    }

    /// Has the targets of a new buffer made large enough for it to grow to `max_bytes`, or to its part of what the bricks have in all.
    pub fn make_growable(&mut self, serial: u64, max_bytes: u64) -> Vec<Slice> {
        let mut slices = self.slices_of(serial);
        let bytes: u64 = slices.iter().map(|slice| slice.bytes).sum();
        for slice in &mut slices {
            let part = u128::from(max_bytes) * u128::from(slice.bytes) / u128::from(bytes.max(1));
            let most = self.bricks.get(&slice.brick).map_or(0, |brick| brick.bytes);
            let most = most.min(slice.bytes.saturating_mul(GROW_IN_PLACE_MAX));
            let part = u64::try_from(part).unwrap_or(u64::MAX).min(most);
            slice.image_bytes = Some(self.rounded(part).unwrap_or(part).max(slice.bytes));
        }
        self.set_slices(serial, &slices);
        slices
    }

    /// Makes a buffer larger: first within the targets that it has, then by further slices. `away`: hosts whose bricks are not
    /// chosen. A refusal changes nothing.
    pub fn grow(&mut self, serial: u64, bytes: u64, away: &BTreeSet<String>) -> Result<Vec<Slice>> {
        let mut slices = self.slices_of(serial);
        let have: u64 = slices.iter().map(|slice| slice.bytes).sum();
        let missing = bytes.saturating_sub(have).div_ceil(self.granule_bytes);
        let mut free: BTreeMap<String, u64> =
            self.free_without(away).map(|(granules, name)| (name, granules)).collect();
        if missing > free.values().sum() {
            return Err(self.full("grow", missing * self.granule_bytes, away));
        }
        let room_of = |slice: &Slice| (slice.image_bytes() - slice.bytes) / self.granule_bytes;
        let room: Vec<u64> = slices
            .iter()
            .map(|slice| {
                let free = free.entry(slice.brick.clone()).or_default();
                let room = room_of(slice).min(*free);
                *free -= room;
                room
            })
            .collect();
        let more = spread(missing, &room);
        for ((slice, more), room) in slices.iter_mut().zip(&more).zip(&room) {
            if *more > 0 {
                *slice = slice.of_size(slice.bytes + more * self.granule_bytes);
            }
            *free.entry(slice.brick.clone()).or_default() += room - more;
        }
        let missing = missing - more.iter().sum::<u64>();
        if missing > 0 {
            let free = self.emptiest_first(free.into_iter().map(|(name, free)| (free, name)));
            let shares = equal_shares(&free, missing).or_else(|| any_shares(&free, missing));
            let shares = shares.ok_or_else(|| self.full("grow", missing * self.granule_bytes, away))?;
            let count = slices.len() + shares.len();
            if count as u64 > SLICES_GROWN_MAX {
                return Err(Fault::new(Code::GrowLimit)
                    .what("cannot grow a buffer of pool")
                    .subject(self.name.clone())
                    .why(format!("it would have {count} slices, and {SLICES_GROWN_MAX} are the most"))
                    .data("nothing was changed"));
            }
            slices.extend(self.new_slices(serial, shares));
        }
        self.set_slices(serial, &slices);
        Ok(slices)
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

    /// Gives each buffer the slices that its row says, and takes back those of buffers that do not exist: an allocation or a resizing was cut
    /// off by a crash. `rows`: the slices of every buffer of this pool, by its serial number. Returns how many granules are free that were
    /// not.
    pub fn reconcile(&mut self, rows: &BTreeMap<u64, Vec<Slice>>) -> u64 {
        let before = self.free_granules();
        self.slices.retain(|slice| rows.contains_key(&slice.serial));
        for (serial, slices) in rows {
            if self.slices_of(*serial) != *slices {
                self.set_slices(*serial, slices);
            }
        }
        self.free_granules().saturating_sub(before)
    }

    /// The refusal of a buffer that does not fit now.
    fn full(&self, verb: &str, bytes: u64, away: &BTreeSet<String>) -> Fault {
        let reached = self.free_granules_without(away);
        let drained: u64 = self.draining.iter().map(|name| self.free_of(name)).sum();
        let elsewhere = (self.free_granules() - reached).saturating_sub(drained);
        let free = format_bytes(reached * self.granule_bytes);
        let fault = Fault::new(Code::PoolFull)
            .what(format!("cannot {verb} a buffer: pool"))
            .subject(self.name.clone())
            .why(format!("{free} are free, {} are asked for", format_bytes(bytes)))
            .data("nothing was allocated");
        let fault = match drained {
            0 => fault,
            _ => fault.why(format!(
                "{} more are free on bricks that are being drained",
                format_bytes(drained * self.granule_bytes)
            )),
        };
        if elsewhere == 0 {
            return fault;
        }
        let hosts: BTreeSet<&str> = self
            .bricks
            .values()
            .filter(|brick| brick.is_on(away))
            .filter_map(|brick| brick.node.as_deref())
            .collect();
        let hosts = Vec::from_iter(hosts).join(", ");
        let more = format_bytes(elsewhere * self.granule_bytes);
        fault
            .why(format!("{more} more are free on hosts that cannot be used now: {hosts}"))
            .next("see why: brindle bb brick list; start their agents: systemctl start brindle-bb-agent")
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

/// Slices of `bytes` in all, of which each holds what is in use. `available_bytes`: what each of `slices` has free. A target keeps a granule
/// at least. Where more is in use the smallest size that is possible now.
pub fn shrunk(
    slices: &[Slice],
    available_bytes: &[u64],
    granule_bytes: u64,
    bytes: u64,
) -> std::result::Result<Vec<Slice>, u64> {
    let have: u64 = slices.iter().map(|slice| slice.bytes / granule_bytes).sum();
    let room: Vec<u64> = slices
        .iter()
        .zip(available_bytes)
        .map(|(slice, free)| (free / granule_bytes).min((slice.bytes / granule_bytes).saturating_sub(1)))
        .collect();
    let too_many = have.saturating_sub(bytes.div_ceil(granule_bytes));
    let less = spread(too_many, &room);
    if less.iter().sum::<u64>() < too_many {
        return Err((have - room.iter().sum::<u64>()) * granule_bytes);
    }
    let smaller = |(slice, less): (&Slice, &u64)| match less {
        0 => slice.clone(),
        less => slice.of_size(slice.bytes - less * granule_bytes),
    };
    Ok(slices.iter().zip(&less).map(smaller).collect())
}

/// Divides `total` as evenly as `most` of each allows; all of `most` where that is less.
fn spread(total: u64, most: &[u64]) -> Vec<u64> {
    let mut got = vec![0; most.len()];
    let mut left = total.min(most.iter().sum());
    while left > 0 {
        let open = got.iter().zip(most).filter(|(got, most)| got < most).count() as u64;
        let each = (left / open.max(1)).max(1);
        for (got, most) in got.iter_mut().zip(most) {
            let more = each.min(most - *got).min(left);
            *got += more;
            left -= more;
        }
    }
    got
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

    fn brick(dir: &str, bytes: u64) -> Brick {
        Brick { dir: dir.to_owned(), bytes, node: None }
    }

    fn none() -> BTreeSet<String> {
        BTreeSet::new()
    }

    #[test]
    fn bricks_of_hosts_that_are_away_are_not_chosen_and_a_refusal_names_them() {
        let mut pool = Pool::new("default", GRANULE);
        for node in ["h1", "h2", "h3"] {
            // The bricks have the same directory, each on its own host.
            pool.add_brick(node, Brick { node: Some(node.to_owned()), ..brick("/b", 160) }).unwrap();
        }
        pool.add_brick("h4", Brick { node: Some("h1".to_owned()), ..brick("/b", 160) }).unwrap_err();
        let away = BTreeSet::from(["h2".to_owned()]);
        let (serial, slices) = pool.allocate(64, &away).unwrap();
        let on: Vec<_> = slices.iter().map(|slice| slice.node.as_deref()).collect();
        assert_eq!(on, [Some("h1"), Some("h3")]);
        assert_eq!((pool.free_granules(), pool.free_granules_without(&away)), (26, 16));
        let before = pool.clone();
        let fault = pool.allocate(272, &away).unwrap_err();
        assert_eq!(fault.code, Code::PoolFull);
        assert_eq!(fault.why[1], "160 B more are free on hosts that cannot be used now: h2");
        pool.grow(serial, 352, &away).unwrap_err();
        assert_eq!(pool, before);
        pool.grow(serial, 352, &none()).unwrap();
        pool.release(serial);
        assert_eq!(pool.free_granules(), 30);
        pool.remove_brick("h3").unwrap();
        assert_eq!(pool.granules(), 20);
        pool.remove_brick("h3").unwrap_err();
    }

    #[test]
    fn a_brick_that_is_drained_gets_no_new_slices_and_keeps_those_it_has() {
        let mut pool = pool(&[160, 160]);
        let (serial, slices) = pool.allocate(64, &none()).unwrap();
        let (drained, other) = (slices[0].brick.clone(), slices[1].brick.clone());
        pool.drain_brick(&drained, true).unwrap();
        let free = pool.free_granules_without(&none());
        assert_eq!(free, pool.free_of(&other));
        let fault = pool.allocate(160, &none()).unwrap_err();
        assert!(fault.why[1].ends_with("more are free on bricks that are being drained"), "{fault}");
        let (_, new) = pool.allocate(32, &none()).unwrap();
        assert!(new.iter().all(|slice| slice.brick == other));
        let grown = pool.grow(serial, 96, &none()).unwrap();
        assert_eq!(grown.iter().find(|s| s.brick == drained), Some(&slices[0]), "it keeps what it has");
        pool.drain_brick(&drained, false).unwrap();
        pool.allocate(112, &none()).unwrap();
        pool.drain_brick("nobody", true).unwrap_err();
        pool.drain_brick(&drained, true).unwrap();
        pool.remove_brick(&drained).unwrap();
        assert!(pool.draining.is_empty());
    }

    fn pool(bricks: &[u64]) -> Pool {
        let mut pool = Pool::new("default", GRANULE);
        for (n, bytes) in bricks.iter().enumerate() {
            pool.add_brick(&format!("b{n}"), brick(&format!("/b{n}"), *bytes)).unwrap();
        }
        pool
    }

    fn used(pool: &Pool, brick: &str) -> u64 {
        pool.slices.iter().filter(|s| s.brick == brick).map(|s| s.bytes).sum()
    }

    #[test]
    fn a_buffer_is_spread_evenly_and_a_fragmented_pool_still_gives_all_it_has() {
        let mut pool = pool(&[160, 160, 160, 160]);
        let (serial, slices) = pool.allocate(100, &none()).unwrap();
        assert_eq!((serial, slices.len()), (1, 4));
        assert_eq!(slices.iter().map(|s| s.bytes).collect::<Vec<_>>(), [32, 32, 32, 16]);
        // The size is one granule more than four equal shares: what is left is unequal.
        let (_, slices) = pool.allocate(33 * GRANULE, &none()).unwrap();
        assert_eq!(slices.iter().map(|s| s.bytes).sum::<u64>(), 33 * GRANULE);
        assert_eq!(pool.free_granules(), 0);
        assert_eq!(pool.allocate(1, &none()).unwrap_err().code, Code::PoolFull);
        pool.release(serial);
        assert_eq!(pool.free_granules(), 7);
    }

    #[test]
    fn bricks_are_added_once() {
        let mut pool = pool(&[160]);
        pool.add_brick("b0", brick("/b0", 160)).unwrap();
        for (name, dir, bytes) in [("b0", "/b0", 320), ("c", "/b0", 160), ("a/b", "/x", 160), ("c", "/c", 15)]
        {
            let before = pool.clone();
            pool.add_brick(name, brick(dir, bytes)).unwrap_err();
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
        /// A buffer grows by so much; `false`: a crash comes before that is recorded.
        Grow(usize, u64, bool),
        /// A buffer shrinks by so much; `false`: the pool does not learn of it before a crash.
        Shrink(usize, u64, bool),
    }

    fn asks() -> impl Strategy<Value = Vec<Ask>> {
        let one = prop_oneof![
            4 => (1u64..400).prop_map(Ask::Allocate),
            2 => (0usize..8).prop_map(Ask::Release),
            1 => Just(Ask::Forget),
            3 => (0usize..8, 1u64..300, any::<bool>()).prop_map(|(n, bytes, ends)| Ask::Grow(n, bytes, ends)),
            3 => (0usize..8, 1u64..300, any::<bool>()).prop_map(|(n, bytes, ends)| Ask::Shrink(n, bytes, ends)),
        ];
        prop::collection::vec(one, 1..40)
    }

    /// A pool and the rows of its buffers.
    struct World {
        pool: Pool,
        rows: BTreeMap<u64, Vec<Slice>>,
        newest: u64,
    }

    impl World {
        fn allocate(&mut self, bytes: u64) -> std::result::Result<(), TestCaseError> {
            let (free, before) = (self.pool.free_granules(), self.pool.clone());
            let wanted = bytes.div_ceil(GRANULE);
            match self.pool.allocate(bytes, &none()) {
                Ok((serial, slices)) => {
                    prop_assert!(serial > self.newest, "serials only rise");
                    self.newest = serial;
                    prop_assert_eq!(slices.iter().map(|s| s.bytes).sum::<u64>(), wanted * GRANULE);
                    prop_assert_eq!(self.pool.free_granules(), free - wanted);
                    let slices = if bytes.is_multiple_of(2) {
                        self.pool.make_growable(serial, bytes * 3)
                    } else {
                        slices
                    };
                    prop_assert_eq!(self.pool.free_granules(), free - wanted);
                    self.rows.insert(serial, slices);
                }
                Err(_) => {
                    prop_assert!(wanted > free, "{} granules were free, {} asked", free, wanted);
                    prop_assert_eq!(&self.pool, &before);
                }
            }
            Ok(())
        }

        fn nth(&self, n: usize) -> Option<u64> {
            self.rows.keys().nth(n % self.rows.len().max(1)).copied()
        }

        fn grow(&mut self, serial: u64, more: u64, ends: bool) -> std::result::Result<(), TestCaseError> {
            let row = self.rows[&serial].clone();
            let have: u64 = row.iter().map(|s| s.bytes).sum();
            let (free, before) = (self.pool.free_granules(), self.pool.clone());
            match self.pool.grow(serial, have + more, &none()) {
                Ok(slices) => {
                    let now: u64 = slices.iter().map(|s| s.bytes).sum();
                    prop_assert_eq!(now, have + more.div_ceil(GRANULE) * GRANULE);
                    prop_assert!(slices.len() as u64 <= SLICES_GROWN_MAX);
                    for (old, new) in row.iter().zip(&slices) {
                        prop_assert!(new.bytes >= old.bytes && new.brick == old.brick);
                        prop_assert_eq!(new.image_bytes(), old.image_bytes());
                    }
                    if ends {
                        self.rows.insert(serial, slices);
                    } else {
                        self.pool.reconcile(&self.rows);
                    }
                }
                Err(fault) => {
                    prop_assert!(more.div_ceil(GRANULE) > free || fault.code == Code::GrowLimit);
                    prop_assert_eq!(&self.pool, &before);
                }
            }
            Ok(())
        }

        fn shrink(&mut self, serial: u64, less: u64, ends: bool) -> std::result::Result<(), TestCaseError> {
            let row = self.rows[&serial].clone();
            let have: u64 = row.iter().map(|s| s.bytes).sum();
            let free: Vec<u64> = row.iter().map(|s| s.bytes * (less % 7) / 6).collect();
            let wanted = have.saturating_sub(less);
            match shrunk(&row, &free, GRANULE, wanted) {
                Ok(slices) => {
                    let now: u64 = slices.iter().map(|s| s.bytes).sum();
                    prop_assert_eq!(now, wanted.div_ceil(GRANULE) * GRANULE);
                    for ((old, new), free) in row.iter().zip(&slices).zip(&free) {
                        prop_assert!(new.bytes >= GRANULE && old.bytes - new.bytes <= *free);
                        prop_assert_eq!(new.image_bytes(), old.image_bytes());
                    }
                    self.rows.insert(serial, slices.clone());
                    if ends {
                        self.pool.set_slices(serial, &slices);
                    } else {
                        self.pool.reconcile(&self.rows);
                    }
                }
                Err(least) => {
                    prop_assert!(least > wanted && least <= have);
                    prop_assert!(shrunk(&row, &free, GRANULE, least).is_ok());
                }
            }
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn no_brick_is_given_out_twice_and_nothing_is_refused_that_fits(
            bricks in prop::collection::vec(16u64..300, 1..10),
            asks in asks(),
        ) {
            let mut world = World { pool: pool(&bricks), rows: BTreeMap::new(), newest: 0 };
            for ask in asks {
                match ask {
                    Ask::Allocate(bytes) => world.allocate(bytes)?,
                    Ask::Release(n) => if let Some(serial) = world.nth(n) {
                        world.rows.remove(&serial);
                        world.pool.release(serial);
                        world.pool.release(serial);
                    },
                    Ask::Forget => {
                        world.rows.pop_last();
                        world.pool.reconcile(&world.rows);
                        prop_assert_eq!(world.pool.reconcile(&world.rows), 0);
                    }
                    Ask::Grow(n, more, ends) => if let Some(serial) = world.nth(n) {
                        world.grow(serial, more, ends)?;
                    },
                    Ask::Shrink(n, less, ends) => if let Some(serial) = world.nth(n) {
                        world.shrink(serial, less, ends)?;
                    },
                }
                for (n, bytes) in bricks.iter().enumerate() {
                    let used = used(&world.pool, &format!("b{n}"));
                    prop_assert!(used <= *bytes);
                }
                for (serial, row) in &world.rows {
                    prop_assert_eq!(&world.pool.slices_of(*serial), row);
                }
                let used: u64 = world.pool.slices.iter().map(|s| s.bytes / GRANULE).sum();
                prop_assert_eq!(world.pool.free_granules() + used, world.pool.granules());
            }
        }
    }
}
