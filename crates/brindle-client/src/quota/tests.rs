//! Tests of quota reservations: how much writes take, and when the MDT is asked.

use super::*;

const BOB: Owners = Owners { uid: 1000, gid: 50, project: None };
const NOW: Mono = Mono(0);

fn given(user: Option<u64>, group: Option<u64>) -> Arc<QuotaReservations> {
    let limits = Arc::<QuotaReservations>::default();
    limits.told(7);
    let asked = limits.ask(BOB, NOW);
    assert!(limits.answered(&asked, &[user, group], (0, NOW)).is_ok());
    limits
}

#[test]
fn no_more_is_taken_than_both_have() {
    let limits = given(Some(100), Some(60));
    let mut first = limits.take(BOB, 40, NOW).expect("given");
    assert!(limits.take(BOB, 40, NOW).is_none(), "the group has 20");
    let second = limits.take(BOB, 20, NOW).expect("given");
    assert!(first.join(second).is_ok());
    assert_eq!(limits.ask(BOB, NOW).told, [RoomUse { held_bytes: 60, uncounted_bytes: 0 }; 2]);
    assert!(limits.take(BOB, 0, NOW).is_none(), "nothing is given while the MDT is asked");
    drop(first);
    let stranger = Owners { uid: 1, gid: 1, project: None };
    assert!(limits.take(stranger, 1, NOW).is_none(), "the MDT is to be asked");
    let free = given(None, None);
    let all: Vec<Charge> = (0..3).filter_map(|_| free.take(BOB, u64::MAX, NOW)).collect();
    assert_eq!(all.len(), 3, "however much somebody without a limit reserves");
    all.into_iter().for_each(|charge| charge.arrived(false));
    assert_eq!(free.ask(BOB, NOW).told, [RoomUse::default(); 2]);
    let timed = given(Some(100), None);
    assert!(timed.take(BOB, 1, NOW.plus_ms(TRUSTED_MS)).is_none(), "told too long ago");
}

#[test]
fn what_nobody_reports_is_told_once_unless_the_answer_is_lost() {
    let limits = given(Some(100), None);
    limits.take(BOB, 40, NOW).expect("given").arrived(false);
    limits.take(BOB, 10, NOW).expect("given").arrived(true);
    let asked = limits.ask(BOB, NOW);
    assert_eq!(asked.told[0], RoomUse { held_bytes: 0, uncounted_bytes: 40 });
    limits.not_answered(&asked);
    assert_eq!(limits.ask(BOB, NOW).told, asked.told, "the MDT may not have heard of it");
    assert_eq!(limits.ask(BOB, NOW).told[0], RoomUse::default());
}

#[test]
fn another_serial_voids_what_was_given_and_keeps_what_is_held() {
    let limits = given(Some(100), None);
    let charge = limits.take(BOB, 40, NOW).expect("given");
    limits.told(7);
    assert!(limits.take(BOB, 1, NOW).is_some(), "the same");
    limits.told(8);
    assert!(limits.is_on() && limits.take(BOB, 1, NOW).is_none());
    assert_eq!(limits.held_bytes(BOB), 80, "of the user and of the group");
    let asked = limits.ask(BOB, NOW);
    limits.told(9);
    assert_eq!(limits.answered(&asked, &[None, None], (1, NOW)).err(), Some(Declined::Forgotten));
    assert!(limits.take(BOB, 1, NOW).is_none(), "that was given under other limits");
    limits.told(0);
    drop(charge);
    assert!(!limits.is_on() && limits.held_bytes(BOB) == 0);
}

#[test]
fn whoever_asks_takes_before_others_can() {
    let limits = given(Some(0), None);
    let asked = limits.ask(BOB, NOW);
    let taken = limits.answered(&asked, &[Some(100), None], (80, NOW));
    let charge = taken.unwrap_or_else(|declined| panic!("{declined:?}"));
    assert!(limits.take(BOB, 21, NOW).is_none() && limits.take(BOB, 20, NOW).is_some(), "the rest");
    assert_eq!(charge.bytes, 80);
    let asked = limits.ask(BOB, NOW);
    assert_eq!(asked.told[0].held_bytes, 80, "the rest was dropped");
    let declined = limits.answered(&asked, &[Some(100), Some(10)], (80, NOW)).err();
    assert_eq!(declined, Some(Declined::TooLittle), "the group has less");
    assert!(limits.take(BOB, 10, NOW).is_some(), "which others can take");
}

#[test]
fn the_project_of_a_file_is_asked_for_where_projects_are_limited() {
    let limits = given(Some(100), Some(100));
    let mut state = State { owners: Some(BOB), ..State::default() };
    assert_eq!(limits.owners(&state), Ok(Some(BOB)), "it does not matter");
    limits.told(7 | LIMITS_OF_PROJECTS);
    assert!(limits.owners(&state).is_err());
    limits.last_project.store(8, Ordering::Relaxed);
    let guess = Owners { project: Some(8), ..BOB };
    assert_eq!(limits.owners_or_guess(&state), Some(guess));
    let asked = limits.ask(guess, NOW);
    assert_eq!(asked.told.len(), 3);
    state.project = Some(KnownProject { id: 8, forgotten: asked.forgotten });
    assert_eq!(limits.owners(&state), Ok(Some(guess)));
    let room = [Some(100), None, Some(60)];
    assert!(limits.answered(&asked, &room, (40, NOW)).is_ok());
    assert!(limits.take(guess, 40, NOW).is_none(), "the project has 20");
    assert!(limits.take(guess, 20, NOW).is_some());
    limits.told(9 | LIMITS_OF_PROJECTS);
    assert!(limits.owners(&state).is_err(), "some file has another project");
    state.project = Some(KnownProject { id: 0, forgotten: asked.forgotten + 1 });
    let none = Owners { project: Some(0), ..BOB };
    assert_eq!(limits.owners(&state), Ok(Some(none)));
    assert_eq!(limits.ask(none, NOW).told.len(), 2, "0 is no project");
    assert!(guess.shares_one(Owners { uid: 1, gid: 1, project: Some(8) }));
    assert!(!none.shares_one(Owners { uid: 1, gid: 1, project: Some(0) }));
}

fn write(state: &mut State, range: Range<u64>) -> u64 {
    let growth = Growth::Range(range);
    let bytes = state.growth_bytes(&growth);
    state.grown(&growth);
    bytes
}

#[test]
fn only_what_has_no_blocks_yet_needs_room() {
    let mut state = State { exclusive: true, ..State::default() };
    assert_eq!(write(&mut state, 0..100), 4096);
    assert_eq!(write(&mut state, 100..4096), 0, "the same block");
    assert_eq!(write(&mut state, 4096..10_000), 8192);
    assert_eq!(write(&mut state, 50..12_288), 0, "over what is there");
    assert_eq!(write(&mut state, 20_000..20_001), 4096, "behind a hole");
    assert_eq!(write(&mut state, 20_000..20_001), 4096, "which is the shorter range");
    assert_eq!(write(&mut state, 12_288..24_576), 12_288);
    assert_eq!(state.growth_bytes(&Growth::Anywhere(1)), 8192);
    assert_eq!(state.growth_bytes(&Growth::Range(u64::MAX - 1..u64::MAX)), 4095);
    assert_eq!(state.growth_bytes(&Growth::Range(1 << 60..u64::MAX)), GROWTH_MAX_BYTES);
    state.add_allocated_range(0..32_768);
    assert_eq!(write(&mut state, 24_576..32_768), 0);
    state.noticed();
    assert_eq!(write(&mut state, 0..4096), 4096, "somebody may have cut it");
    let mut shared = State::default();
    assert_eq!(write(&mut shared, 0..100), 4096);
    shared.add_allocated_range(0..32_768);
    assert_eq!(write(&mut shared, 0..100), 4096, "somebody may have made a hole");
}

#[test]
fn a_log_that_is_opened_again_needs_a_block_for_each_block_of_lines() {
    let mut state = State { exclusive: true, ..State::default() };
    let lines = |state: &mut State, range: Range<u64>| -> u64 {
        range.step_by(100).map(|at| write(state, at..at + 100)).sum()
    };
    assert_eq!(lines(&mut state, 1_000_000..1_100_000), 25 * 4096);
    assert_eq!(write(&mut state, 0..4096), 4096, "its header");
    assert_eq!(lines(&mut state, 1_100_000..1_200_000), 24 * 4096);
    assert_eq!(write(&mut state, 0..1_000_000), 999_424, "up to the first of the lines");
    assert_eq!(write(&mut state, 0..1_200_000), 0);
}

#[test]
fn blocks_of_a_file_that_leaves_the_mdt_are_those_that_its_sectors_filled() {
    let mut state = State { exclusive: true, ..State::default() };
    state.allocated_range = 512..9_728;
    state.no_more_sectors();
    assert_eq!(state.allocated_range, 4096..8192);
    state.allocated_range = 512..2_048;
    state.no_more_sectors();
    assert_eq!(state.allocated_range, 0..0);
}
