//! Choices from fixed seeds.

use super::*;
use proptest::prelude::*;

const MARK: u64 = HIGH_WATER_PERCENT_DEFAULT;

fn ost(index: u16, free: u64) -> Candidate {
    Candidate { index, free_bytes: free, total_bytes: 1000, up: true, ..Candidate::default() }
}

fn ask(count: u32) -> Ask {
    let count = StripeCount::Exactly(count);
    Ask { count, start_ost: None, cursor: 0, random: 7, high_water_percent: MARK }
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
fn osts_of_different_hosts_take_turns() {
    // Three hosts have two OSTs each: 0 and 1, 2 and 3, 4 and 5.
    let osts: Vec<Candidate> = (0..6).map(|i| Candidate { rank: i % 2, ..ost(i, 900) }).collect();
    let firsts: Vec<u16> =
        (0..6).map(|cursor| place(&osts, &Ask { cursor, ..ask(1) }).expect("placed")[0]).collect();
    assert_eq!(firsts, [0, 2, 4, 1, 3, 5]);
    assert_eq!(place(&osts, &Ask { cursor: 1, ..ask(3) }).expect("placed"), [2, 4, 1]);
}

#[test]
fn emptier_osts_get_more() {
    let osts = [ost(0, 930), ost(1, 130)];
    let firsts = (0..1000u64)
        .filter(|n| place(&osts, &Ask { random: mix(*n), ..ask(1) }).expect("placed") == [0])
        .count();
    assert!((860..940).contains(&firsts), "{firsts} of 1000 for nine tenths of the room");
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
    let all = place(&all_full, &Ask { count: StripeCount::All, ..ask(1) }).expect("placed");
    assert_eq!(all, [1, 0], "the emptiest first");
    assert_eq!(place(&all_full, &ask(3)).expect_err("too many").code, Code::BadStripe);
    assert_eq!(place(&[], &ask(1)).expect_err("nobody").code, Code::BadStripe);
}

#[test]
fn the_mark_counts_bytes_and_objects_and_can_be_moved() {
    assert!(usable(&ost(0, 30), 97) && !usable(&ost(0, 29), 97));
    assert!(usable(&ost(0, 100), 90) && !usable(&ost(0, 99), 90));
    let objects = Candidate { free_inodes: 2, total_inodes: 100, ..ost(0, 900) };
    assert!(!usable(&objects, 97) && usable(&Candidate { free_inodes: 3, ..objects }, 97));
    let failing = Candidate { degraded: true, ..ost(0, 900) };
    assert!(!usable(&failing, 97), "a disk that returns errors");
    let osts = [failing, ost(1, 10), Candidate { up: false, ..ost(2, 900) }, ost(3, 900)];
    assert_eq!(place(&osts, &ask(4)).expect("placed"), [3, 0, 1, 2], "the least bad first");
}

#[test]
fn a_chosen_start_is_kept_and_the_others_follow() {
    let osts = [ost(0, 900), ost(1, 10), ost(2, 900), ost(3, 900)];
    let start = |i, n| place(&osts, &Ask { start_ost: Some(i), ..ask(n) });
    assert_eq!(start(2, 3).expect("placed"), [2, 3, 0]);
    assert_eq!(start(1, 2).expect("placed"), [1, 2]);
    assert_eq!(start(9, 1).expect_err("no such OST").code, Code::BadStripe);
}

#[test]
fn an_empty_ost_among_fuller_ones_gets_its_share_at_once() {
    let osts: Vec<Candidate> = (0..4).map(|i| ost(i, 230)).chain([ost(4, 1000)]).collect();
    let got = |n: u64| place(&osts, &Ask { random: mix(n), ..ask(1) }).expect("placed")[0];
    let new = (0..1000).filter(|n| got(*n) == 4).count();
    // 970 of 4 * 200 + 970.
    assert!((500..600).contains(&new), "{new} of 1000");
}

/// Fills OSTs with files of `count` stripes of one byte each until one would go above the mark for lack of others.
/// Returns what is left.
fn fill(mut osts: Vec<Candidate>, count: u32, mut random: u64) -> Vec<Candidate> {
    let mut cursor = 0;
    while osts.iter().filter(|o| usable(o, MARK)).count() >= count as usize {
        random = mix(random);
        let got = place(&osts, &Ask { random, cursor, ..ask(count) }).expect("placed");
        cursor += got.len() as u64;
        for index in got {
            let ost = osts.iter_mut().find(|o| o.index == index).expect("one of them");
            assert!(usable(ost, MARK), "above the mark while others have room: {ost:?}");
            ost.free_bytes -= 1;
        }
    }
    osts
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn the_choice_is_distinct_and_complete(
        list in proptest::collection::vec((0u16..50, 0u64..1000, any::<bool>(), any::<bool>()), 1..20),
        count in 1u32..20, cursor: u64, random: u64,
    ) {
        let osts: Vec<Candidate> = list
            .iter()
            .map(|(i, f, up, degraded)| Candidate { up: *up, degraded: *degraded, ..ost(*i, *f) })
            .collect();
        let mut indices: Vec<u16> = osts.iter().map(|o| o.index).collect();
        indices.sort_unstable();
        indices.dedup();
        let wish = Ask { cursor, random, ..ask(count) };
        let got = place(&osts, &wish);
        prop_assert_eq!(&got, &place(&osts, &wish), "the same seed makes the same choice");
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

    #[test]
    fn unusable_ones_come_last(
        list in proptest::collection::vec((0u64..1000, any::<bool>(), any::<bool>()), 1..12), random: u64,
    ) {
        let osts: Vec<Candidate> = (0u16..)
            .zip(&list)
            .map(|(i, (free, up, degraded))| Candidate { up: *up, degraded: *degraded, ..ost(i, *free) })
            .collect();
        let good = osts.iter().filter(|o| usable(o, MARK)).count();
        let got = place(&osts, &Ask { random, ..ask(osts.len() as u32) }).expect("placed");
        let is_good = |index: &u16| usable(&osts[*index as usize], MARK);
        prop_assert!(got[..good].iter().all(is_good) && !got[good..].iter().any(is_good));
    }

    #[test]
    fn shares_follow_the_room(frees in proptest::collection::vec(30u64..1000, 2..8), seed: u64) {
        let osts: Vec<Candidate> = (0u16..).zip(&frees).map(|(i, free)| ost(i, *free)).collect();
        let rounds = 4000u64;
        let mut hits = vec![0u64; osts.len()];
        let mut random = seed;
        for cursor in 0..rounds {
            random = mix(random);
            hits[place(&osts, &Ask { random, cursor, ..ask(1) }).expect("placed")[0] as usize] += 1;
        }
        let sum: u64 = osts.iter().map(|o| room(o, MARK)).sum();
        for (ost, hits) in osts.iter().zip(hits) {
            let due = if alike(&osts, MARK) {
                rounds as f64 / osts.len() as f64
            } else {
                rounds as f64 * room(ost, MARK) as f64 / sum as f64
            };
            // Five standard deviations of a binomial distribution.
            let slack = 5.0 * due.sqrt() + 1.0;
            prop_assert!((hits as f64 - due).abs() <= slack, "{ost:?}: {hits} of {due}");
        }
    }

    #[test]
    fn osts_fill_up_together(frees in proptest::collection::vec(100u64..1000, 2..6), count in 1u32..3, seed: u64) {
        let osts: Vec<Candidate> = (0u16..).zip(&frees).map(|(i, free)| ost(i, *free)).collect();
        let room_before: u64 = osts.iter().map(|o| room(o, MARK)).sum();
        let left: u64 = fill(osts.clone(), count, seed).iter().filter(|o| usable(o, MARK)).map(|o| room(o, MARK)).sum();
        // With one stripe nothing is left; with two, what one OST has more than the others together cannot be used.
        let most = frees.iter().max().copied().unwrap_or(0);
        let others: u64 = frees.iter().sum::<u64>() - most;
        let unusable = if count == 1 { 0 } else { most.saturating_sub(others) };
        prop_assert!(left <= unusable + room_before / 5 + 10, "{left} of {room_before} left, {unusable} unusable");
    }
}
