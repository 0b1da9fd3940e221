//! Choice of the OSTs of a new file: strict round robin while free space is alike, weighted by it when not.

use brindle_types::{Code, Fault};

use crate::policy::StripeCount;

/// An OST above this fullness takes no new files while others can.
pub const HIGH_WATER_PERCENT: u64 = 95;
/// Free space counts as alike when the smallest is at most this far below the largest.
pub const ALIKE_PERCENT: u64 = 17;

/// An OST that a file might be placed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its index.
    pub index: u16,
    /// Bytes that users may still use.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Whether it answers.
    pub up: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How many OSTs.
    pub count: StripeCount,
    /// First OST by the user's choice: taken whatever its state, the others follow it in order.
    pub start_ost: Option<u16>,
    /// Place in the round; the caller adds the number of OSTs returned after every choice.
    pub cursor: u64,
    /// 64 random bits, used when free space is not alike.
    pub random: u64,
}

/// Chooses distinct OSTs. An OST that is down or above the high-water mark is taken only when there are not enough
/// others (and never for [`StripeCount::All`] while there is any other).
pub fn place(candidates: &[Candidate], ask: &Ask) -> Result<Vec<u16>, Fault> {
    let mut all = candidates.to_vec();
    all.sort_by_key(|c| c.index);
    all.dedup_by_key(|c| c.index);
    let good: Vec<Candidate> = all.iter().copied().filter(usable).collect();
    let wanted = match ask.count {
        StripeCount::All if good.is_empty() => all.len(),
        StripeCount::All => good.len(),
        StripeCount::Exactly(n) => n as usize,
    };
    if wanted == 0 || wanted > all.len() {
        return Err(Fault::new(Code::BadStripe)
            .what("cannot stripe with")
            .subject(format!("stripe count {wanted}"))
            .why(format!("the file system has {} OSTs", all.len())));
    }
    let mut order = match ask.start_ost {
        Some(start) => after(&all, &good, start)?,
        None if alike(&good) => round(&good, ask.cursor),
        None => weighted(good, ask.random),
    };
    // Not enough good ones: the full before the silent.
    let mut rest: Vec<Candidate> = all.into_iter().filter(|c| !order.contains(&c.index)).collect();
    rest.sort_by_key(|c| (!c.up, c.index));
    order.extend(rest.iter().map(|c| c.index));
    order.truncate(wanted);
    Ok(order)
}

fn usable(c: &Candidate) -> bool {
    let used = u128::from(c.total_bytes.saturating_sub(c.free_bytes));
    c.up && used * 100 <= u128::from(c.total_bytes) * u128::from(HIGH_WATER_PERCENT) && c.total_bytes > 0
}

fn alike(good: &[Candidate]) -> bool {
    let least = good.iter().map(|c| c.free_bytes).min().unwrap_or(0);
    let most = good.iter().map(|c| c.free_bytes).max().unwrap_or(0);
    u128::from(least) * 100 >= u128::from(most) * u128::from(100 - ALIKE_PERCENT)
}

fn round(good: &[Candidate], cursor: u64) -> Vec<u16> {
    let n = good.len().max(1);
    let first = (cursor % n as u64) as usize;
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

/// Draws without putting back, each with a chance in proportion to its free space.
fn weighted(mut good: Vec<Candidate>, mut random: u64) -> Vec<u16> {
    let mut order = Vec::with_capacity(good.len());
    while !good.is_empty() {
        let sum: u128 = good.iter().map(|c| u128::from(c.free_bytes)).sum();
        random = mix(random);
        let mut ticket = (u128::from(random) * sum) >> 64;
        let hit = good.iter().position(|c| {
            let weight = u128::from(c.free_bytes);
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ost(index: u16, free: u64) -> Candidate {
        Candidate { index, free_bytes: free, total_bytes: 1000, up: true }
    }

    fn ask(count: u32) -> Ask {
        Ask { count: StripeCount::Exactly(count), start_ost: None, cursor: 0, random: 7 }
    }

    #[test]
    fn alike_osts_are_used_in_turn() {
        let osts = [ost(2, 900), ost(0, 850), ost(1, 899)];
        let mut cursor = 0;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let got = place(&osts, &Ask { cursor, ..ask(2) }).expect("placed");
            cursor += got.len() as u64;
            seen.extend(got);
        }
        assert_eq!(seen, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn emptier_osts_get_more() {
        let osts = [ost(0, 900), ost(1, 100)];
        let firsts = (0..1000u64)
            .filter(|n| place(&osts, &Ask { random: mix(*n), ..ask(1) }).expect("placed") == [0])
            .count();
        assert!((860..940).contains(&firsts), "{firsts} of 1000 for nine tenths of the space");
    }

    #[test]
    fn full_and_silent_ones_only_when_nobody_else() {
        let down = Candidate { up: false, ..ost(1, 900) };
        let osts = [ost(0, 10), down, ost(2, 900)];
        for cursor in 0..5 {
            assert_eq!(place(&osts, &Ask { cursor, ..ask(1) }).expect("placed"), [2]);
        }
        assert_eq!(place(&osts, &ask(3)).expect("placed"), [2, 0, 1]);
        assert_eq!(place(&osts, &Ask { count: StripeCount::All, ..ask(1) }).expect("placed"), [2]);
        let all_full = [ost(0, 10), ost(1, 20)];
        assert_eq!(place(&all_full, &Ask { count: StripeCount::All, ..ask(1) }).expect("placed"), [0, 1]);
        assert_eq!(place(&all_full, &ask(3)).expect_err("too many").code, Code::BadStripe);
        assert_eq!(place(&[], &ask(1)).expect_err("nobody").code, Code::BadStripe);
    }

    #[test]
    fn a_chosen_start_is_kept_and_the_others_follow() {
        let osts = [ost(0, 900), ost(1, 10), ost(2, 900), ost(3, 900)];
        let start = |i, n| place(&osts, &Ask { start_ost: Some(i), ..ask(n) });
        assert_eq!(start(2, 3).expect("placed"), [2, 3, 0]);
        assert_eq!(start(1, 2).expect("placed"), [1, 2]);
        assert_eq!(start(9, 1).expect_err("no such OST").code, Code::BadStripe);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_choice_is_distinct_and_complete(
            list in proptest::collection::vec((0u16..50, 0u64..1000, any::<bool>()), 1..20),
            count in 1u32..20, cursor: u64, random: u64,
        ) {
            let osts: Vec<Candidate> =
                list.iter().map(|(i, f, up)| Candidate { up: *up, ..ost(*i, *f) }).collect();
            let mut indices: Vec<u16> = osts.iter().map(|o| o.index).collect();
            indices.sort_unstable();
            indices.dedup();
            let got = place(&osts, &Ask { cursor, random, ..ask(count) });
            if count as usize > indices.len() {
                prop_assert!(got.is_err());
            } else {
                let mut got = got.expect("placed");
                prop_assert_eq!(got.len(), count as usize);
                got.sort_unstable();
                got.dedup();
                prop_assert_eq!(got.len(), count as usize);
            }
        }
    }
}
