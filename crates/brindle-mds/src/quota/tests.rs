//! Rooms, sums and limits, in all orders.

use super::*;

const BOB: Owner = (Kind::User, 1000);
const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const NOTHING: RoomUse = RoomUse { held_bytes: 0, uncounted_bytes: 0 };
const NOW: Mono = Mono(0);
const CIVIL: Time = Time { secs: 1000, nanos: 0 };

fn limited(bytes_max: u64) -> QuotaTable {
    let mut limits = QuotaTable { term: 3, ..QuotaTable::default() };
    limits.set(BOB, Some(Limit { bytes_max, ..Limit::default() }));
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(0), "the OSTs were not asked");
    count(&mut limits);
    limits
}

fn give(
    limits: &mut QuotaTable,
    used: (Owner, u64),
    session: SessionId,
    (room, wanted_bytes): (RoomUse, u64),
    now: Mono,
) -> Option<u64> {
    limits.give(used, session, Ask { room, wanted_bytes, doubts: Doubts::Count }, (now, CIVIL))
}

fn count(limits: &mut QuotaTable) {
    let counting = limits.counting(BOB, NOW).expect("there is something to count");
    limits.counted(BOB, counting, Outcome::All, NOW);
    assert_eq!(limits.counting(BOB, NOW), None);
}

#[test]
fn a_limited_host_is_believed_to_hold_what_it_was_given() {
    let mut limits = limited(1 << 30);
    let all = RoomUse { held_bytes: u64::MAX, uncounted_bytes: u64::MAX };
    let unknown = limits.believed(BOB, B, all);
    assert_eq!((unknown.held_bytes, unknown.uncounted_bytes), (64 << 20, 64 << 20));
    assert_eq!(give(&mut limits, (BOB, 0), B, (NOTHING, 4096), NOW), Some(32 << 20));
    let known = limits.believed(BOB, B, all);
    assert_eq!((known.held_bytes, known.uncounted_bytes), (32 << 20, 32 << 20));
    let less = RoomUse { held_bytes: 7, uncounted_bytes: 8 };
    assert_eq!(limits.believed(BOB, B, less), less);
    give(&mut limits, (BOB, 0), B, (known, 0), NOW);
    assert!(give(&mut limits, (BOB, 0), A, (NOTHING, 4096), NOW) > Some(4096), "others go on");
}

#[test]
fn no_number_that_a_mount_tells_is_kept_behind_a_count() {
    let mut limits = limited(1 << 20);
    let held = RoomUse { held_bytes: u64::MAX, uncounted_bytes: 0 };
    give(&mut limits, (BOB, 0), A, (held, 0), NOW);
    limits.add_uncounted(BOB, u64::MAX);
    limits.end(A);
    count(&mut limits);
    limits.add_uncounted(BOB, 1 << 20);
    assert_eq!(give(&mut limits, (BOB, 0), B, (NOTHING, 1), NOW), Some(0), "the limit is reached");
}

#[test]
fn counts_at_the_same_time_take_nothing_out_twice() {
    let left = |limits: &QuotaTable| limits.rooms[&BOB].uncounted_bytes;
    for is_first_first in [true, false] {
        let mut limits = limited(1 << 20);
        limits.add_uncounted(BOB, 100);
        let first = limits.counting(BOB, NOW).expect("there is something to count");
        let same = limits.counting(BOB, NOW).expect("there is something to count");
        limits.add_uncounted(BOB, 50);
        let second = limits.counting(BOB, NOW).expect("there is something to count");
        limits.add_uncounted(BOB, 7);
        let (one, other) = if is_first_first { (first, second) } else { (second, first) };
        limits.counted(BOB, one, Outcome::All, NOW);
        limits.counted(BOB, same, Outcome::All, NOW);
        limits.counted(BOB, other, Outcome::All, NOW);
        assert_eq!(left(&limits), 7);
    }
}

#[test]
fn the_serial_is_zero_without_limits_of_bytes_and_never_the_same_twice() {
    let mut limits = QuotaTable { term: 3, ..QuotaTable::default() };
    limits.set(BOB, Some(Limit { inodes_max: 5, ..Limit::default() }));
    assert_eq!(limits.serial(), 0, "inodes are counted without mounts");
    limits.set(BOB, Some(Limit { inodes_max: 5, bytes_max: 1, ..Limit::default() }));
    let first = limits.serial();
    limits.set(BOB, None);
    assert_eq!(limits.serial(), 0);
    limits.set(BOB, Some(Limit { bytes_max: 1, ..Limit::default() }));
    assert!(limits.serial() > first && first >> 32 == 3);
    assert_eq!(limits.of((Kind::Group, 1000)), Limit::default());
}

#[test]
fn what_is_given_counts_until_it_is_asked_for_again_or_lapses() {
    let mut limits = limited(1 << 20);
    assert_eq!(give(&mut limits, ((Kind::User, 7), 0), A, (NOTHING, 1), NOW), None, "no limit");
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 4096), NOW), Some(128 << 10), "an eighth of it");
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1 << 20), NOW), Some(1 << 20), "in the place of it");
    assert_eq!(give(&mut limits, (BOB, 0), B, (NOTHING, 4096), NOW), Some(0), "another mount has all");
    let held = RoomUse { held_bytes: 900 << 10, ..NOTHING };
    assert_eq!(give(&mut limits, (BOB, 0), A, (held, 200 << 10), NOW), Some(0));
    assert_eq!(give(&mut limits, (BOB, 0), B, (NOTHING, 4096), NOW), Some(15872), "what is held is not left");
    let later = NOW.plus_ms(LAPSE_MS);
    assert_eq!(
        give(&mut limits, (BOB, 0), B, (NOTHING, 200 << 10), later),
        Some(0),
        "A still holds what it holds"
    );
    limits.end(A);
    assert_eq!(
        give(&mut limits, (BOB, 0), B, (NOTHING, 200 << 10), later),
        Some(0),
        "it does not count twice"
    );
    count(&mut limits);
    assert_eq!(give(&mut limits, (BOB, 1 << 19), B, (NOTHING, 1 << 19), later), Some(1 << 19));
    limits.add_uncounted(BOB, 1 << 19);
    assert_eq!(give(&mut limits, (BOB, 1 << 19), B, (NOTHING, 1), later), Some(0), "nobody knows");
    let counting = limits.counting(BOB, NOW).expect("there is something to count");
    limits.add_uncounted(BOB, 1 << 18);
    limits.counted(BOB, counting, Outcome::All, NOW);
    assert_eq!(
        give(&mut limits, (BOB, 1 << 19), B, (NOTHING, 1), later),
        Some(1 << 15),
        "what came meanwhile counts"
    );
    limits.end(B);
    assert_eq!(
        give(&mut limits, (BOB, 1 << 19), A, (NOTHING, 1), later),
        Some(28672),
        "as if all were written"
    );
    assert_eq!(give(&mut limits, (BOB, 2 << 20), A, (NOTHING, 0), later), Some(0), "over the limit already");
}

#[test]
fn what_lapses_is_counted_before_others_get_it() {
    let mut limits = limited(1 << 20);
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1 << 20), NOW), Some(1 << 20));
    let later = NOW.plus_ms(LAPSE_MS);
    assert_eq!(give(&mut limits, (BOB, 0), B, (NOTHING, 1), later), Some(0));
    count(&mut limits);
    assert_eq!(
        give(&mut limits, (BOB, 1 << 19), B, (NOTHING, 1 << 19), later),
        Some(1 << 19),
        "A has written a half"
    );
}

#[test]
fn an_ost_that_does_not_answer_leaves_a_doubt_that_is_passed_over() {
    let mut limits = limited(1 << 20);
    limits.add_uncounted(BOB, 1 << 20);
    let counting = limits.counting(BOB, NOW).expect("nobody knows what it takes");
    limits.counted(BOB, counting, Outcome::SomeSilent, NOW);
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(1 << 17), "the others are believed");
    assert_eq!(limits.counting(BOB, NOW), None);
    limits.add_uncounted(BOB, 1);
    let counting = limits.counting(BOB, NOW).expect("the others may know better");
    limits.counted(BOB, counting, Outcome::SomeSilent, NOW);
    let later = NOW.plus_ms(PUT_OFF_MS);
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), later), Some(0), "it is asked again");
    assert!(limits.counting(BOB, later).is_some());
    let ask = Ask { room: NOTHING, wanted_bytes: 1, doubts: Doubts::Pass };
    assert_eq!(
        limits.give((BOB, 0), A, ask, (later, CIVIL)),
        Some(1 << 17),
        "and if it is silent again, believed"
    );
}

#[test]
fn what_takes_too_long_to_count_stays_uncounted_and_is_not_tried_at_once_again() {
    let mut limits = limited(1 << 20);
    limits.add_uncounted(BOB, 1 << 20);
    let counting = limits.counting(BOB, NOW).expect("nobody knows what it takes");
    limits.counted(BOB, counting, Outcome::TooSlow, NOW);
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(0), "it may be all");
    assert_eq!(limits.counting(BOB, NOW), None, "whoever is refused does not wait for that each time");
    let later = NOW.plus_ms(PUT_OFF_MS);
    let counting = limits.counting(BOB, later).expect("it is tried again");
    limits.counted(BOB, counting, Outcome::All, later);
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), later), Some(1 << 17));
}

#[test]
fn a_doubt_is_cleared_by_what_was_asked_after_it() {
    let mut limits = limited(1 << 20);
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(1 << 17));
    limits.doubt(Owners { uid: 1000, gid: 7, project: 0 });
    let counting = limits.counting(BOB, NOW).expect("a file is in doubt");
    limits.doubt(Owners { uid: 7, gid: 1000, project: 1000 });
    limits.doubt(Owners { uid: 1000, gid: 7, project: 0 });
    limits.counted(BOB, counting, Outcome::All, NOW);
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(0), "another one came meanwhile");
    let old = limits.counting(BOB, NOW).expect("it is in doubt");
    limits.set(BOB, None);
    limits.set(BOB, Some(Limit { bytes_max: 1 << 20, ..Limit::default() }));
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(0), "as with a first limit");
    limits.counted(BOB, old, Outcome::All, NOW);
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(0), "that was under another limit");
    count(&mut limits);
    assert_eq!(give(&mut limits, (BOB, 0), A, (NOTHING, 1), NOW), Some(1 << 17));
}

#[test]
fn however_mounts_ask_no_more_is_written_than_the_limit_allows() {
    let mut seed = 7u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let max = 1 << 30;
    let mut limits = limited(max);
    // By mount: room that is left, bytes in the buffer, bytes that are at OSTs and not reported.
    let mut mounts = [(0u64, 0u64, 0u64); 5];
    let (mut reported, mut refused) = (0u64, 0);
    for step in 0..50_000u64 {
        let at = below(5) as usize;
        let now = Mono(step * 1_000_000);
        let wanted = 1 + below(4 << 20);
        let (left, held, written) = mounts[at];
        mounts[at] = match below(3) {
            0 => (left, 0, written + held),
            _ if left >= wanted => (left - wanted, held + wanted, written),
            _ => {
                reported += written;
                let room = RoomUse { held_bytes: held, uncounted_bytes: 0 };
                let session = SessionId(1 + at as u64);
                let given =
                    give(&mut limits, (BOB, reported), session, (room, wanted), now).expect("limited");
                refused += u64::from(given < wanted);
                (given, held, 0)
            }
        };
        let all: u64 = mounts.iter().map(|(_, held, written)| held + written).sum();
        assert!(reported + all <= max, "step {step}");
        if reported > max / 2 && below(500) == 0 {
            reported -= max / 4;
        }
    }
    assert!(refused > 100, "the limit was never near");
}
