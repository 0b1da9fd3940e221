//! Choice of the OSTs of a new component: in turn while the room on them is alike, weighted by it when not.
//!
//! Room is what is free below the high-water mark, in bytes. OSTs that can take new objects ([`usable`]) come
//! first. Others are chosen only where those are too few, the least bad first. Pure: chance is handed in, so
//! that the same seed makes the same choice. The load of an OST does not count: no OST reports it yet.

use brindle_types::{Code, Fault};

use crate::policy::StripeCount;

/// An OST that is fuller than this takes no new objects while others can, unless configured otherwise.
pub const HIGH_WATER_PERCENT_DEFAULT: u64 = 97;
/// Lowest and highest mark that can be configured.
pub const HIGH_WATER_PERCENT_RANGE: std::ops::RangeInclusive<u64> = 50..=99;
/// Room counts as alike when the smallest is at most this far below the largest.
pub const ALIKE_PERCENT: u64 = 17;

/// An OST that a file might be placed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Index of the OST.
    pub index: u16,
    /// Bytes that users may still use.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Objects that would still fit.
    pub free_inodes: u64,
    /// Objects in all; 0 where there is no limit of its own.
    pub total_inodes: u64,
    /// Whether the OST answers.
    pub up: bool,
    /// Whether the OST answers, and its disk returns errors.
    pub degraded: bool,
    /// Number among the OSTs of its host: those with the same number take their turns before those with a higher one, so that
    /// files that follow each other, and stripes of a file, are on different hosts.
    pub rank: u16,
}

/// Request for a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Wanted number of OSTs.
    pub count: StripeCount,
    /// First OST by the user's choice: taken whatever its state, the others follow it in order.
    pub start_ost: Option<u16>,
    /// Place in the round; the caller adds the number of OSTs returned after every choice.
    pub cursor: u64,
    /// 64 random bits, used when the room is not alike.
    pub random: u64,
    /// Fuller OSTs take no new objects while others can.
    pub high_water_percent: u64,
}

/// Chooses distinct OSTs. An OST that is not usable is taken only when there are too few others (for
/// [`StripeCount::All`] only when there is no other).
pub fn place(candidates: &[Candidate], ask: &Ask) -> Result<Vec<u16>, Fault> {
    let mut all = candidates.to_vec();
    all.sort_by_key(|c| c.index);
    all.dedup_by_key(|c| c.index);
    let mark = ask.high_water_percent;
    let good: Vec<Candidate> = all.iter().copied().filter(|c| usable(c, mark)).collect();
    let wanted = match ask.count {
        StripeCount::All if good.is_empty() => all.len(),
        StripeCount::All => good.len(),
        StripeCount::Exactly(n) => n as usize,
    };
    if wanted == 0 || wanted > all.len() {
        return Err(Fault::new(Code::BadStripe)
            .what("cannot stripe with")
            .subject(format!("stripe count {wanted}"))
            .why(format!("there are {} OSTs to choose from", all.len())));
    }
    let mut order = match ask.start_ost {
        Some(start) => after(&all, &good, start)?,
        None if alike(&good, mark) => round(&good, ask.cursor),
        None => weighted(good, mark, ask.random),
    };
    // If there are too few good OSTs: first failing ones, then full ones (the emptiest first), then silent ones.
    let mut rest: Vec<Candidate> = all.into_iter().filter(|c| !order.contains(&c.index)).collect();
    rest.sort_by_key(|c| (!c.up, is_full(c, mark), std::cmp::Reverse(c.free_bytes), c.index));
    order.extend(rest.iter().map(|c| c.index));
    order.truncate(wanted);
    Ok(order)
}

/// Whether it can take new objects: it answers, its disk is well, and it is not above the mark.
pub fn usable(c: &Candidate, high_water_percent: u64) -> bool {
    c.up && !c.degraded && !is_full(c, high_water_percent)
}

/// Whether an OST is above the high-water mark, in bytes or in objects.
pub fn is_full(c: &Candidate, high_water_percent: u64) -> bool {
    let above = |free: u64, total: u64| {
        let used = u128::from(total.saturating_sub(free));
        used * 100 > u128::from(total) * u128::from(high_water_percent)
    };
    c.total_bytes == 0 || above(c.free_bytes, c.total_bytes) || above(c.free_inodes, c.total_inodes)
}

/// Bytes that fit below the mark; at least one, so that everybody usable has a chance.
fn room(c: &Candidate, high_water_percent: u64) -> u64 {
    let kept = u128::from(c.total_bytes) * u128::from(100 - high_water_percent.min(100)) / 100;
    c.free_bytes.saturating_sub(u64::try_from(kept).unwrap_or(u64::MAX)).max(1)
}

fn alike(good: &[Candidate], mark: u64) -> bool {
    let least = good.iter().map(|c| room(c, mark)).min().unwrap_or(0);
    let most = good.iter().map(|c| room(c, mark)).max().unwrap_or(0);
    u128::from(least) * 100 >= u128::from(most) * u128::from(100 - ALIKE_PERCENT)
}

fn round(good: &[Candidate], cursor: u64) -> Vec<u16> {
    let mut good = good.to_vec();
    good.sort_by_key(|c| (c.rank, c.index));
    let first = cursor % good.len().max(1) as u64;
    let first = usize::try_from(first).expect("it is below a length");
    good.iter().cycle().skip(first).take(good.len()).map(|c| c.index).collect()
}

fn after(all: &[Candidate], good: &[Candidate], start: u16) -> Result<Vec<u16>, Fault> {
    if !all.iter().any(|c| c.index == start) {
        let why = format!("there is no OST of index {start}");
        return Err(Fault::new(Code::BadStripe)
            .what("cannot stripe with")
            .subject(format!("start OST {start}"))
            .why(why));
    }
    let (before, behind): (Vec<u16>, Vec<u16>) =
        good.iter().map(|c| c.index).filter(|i| *i != start).partition(|i| *i < start);
    Ok([vec![start], behind, before].concat())
}

/// Draws without putting back, each with a chance in proportion to its room.
fn weighted(mut good: Vec<Candidate>, mark: u64, mut random: u64) -> Vec<u16> {
    let mut order = Vec::with_capacity(good.len());
    while !good.is_empty() {
        let sum: u128 = good.iter().map(|c| u128::from(room(c, mark))).sum();
        random = mix(random);
        let mut ticket = (u128::from(random) * sum) >> 64;
        let hit = good.iter().position(|c| {
            let weight = u128::from(room(c, mark));
            let here = ticket < weight;
            ticket = ticket.saturating_sub(weight);
            here
        });
        order.push(good.remove(hit.unwrap_or(0)).index);
    }
    order
}

/// The next of a sequence of well mixed numbers (splitmix64).
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
