//! Tests of the file size, when answers and changes cross each other.

use super::*;

/// Grant of an open for writing of a small file, with `mode`, after `cuts` truncates.
fn grant(mode: OpenMode, cuts: u64) -> OpenGrant {
    let layout = Layout { epoch: Pair::ZERO, body: Pair::ZERO, inline: true, components: Vec::new() };
    let (truncate_epoch, none) = (Pair { term: 1, counter: cuts }, Pair::ZERO);
    OpenGrant {
        mode,
        layout,
        truncate_epoch,
        attr_epoch: none,
        data_version: None,
        changed: none,
        inline: None,
    }
}

fn ask(state: &mut State) -> Asked {
    state.overtaken();
    Asked { notices: state.notices }
}

fn opened(state: &mut State, asked: Asked, grant: &OpenGrant, size_bytes: u64) {
    state.take_grant(asked, grant, None);
    state.take_mode(asked, grant);
    state.take_size(asked, size_bytes);
    state.overtaken();
}

fn exact_size(state: &State) -> Option<u64> {
    state.size_exact().then_some(state.size_bytes)
}

#[test]
fn a_close_does_not_make_an_older_answer_to_an_open_true() {
    let mut state = State::default();
    let first = ask(&mut state);
    opened(&mut state, first, &grant(OpenMode::Exclusive, 0), 0);
    let asked = ask(&mut state);
    state.wrote_at_mdt(asked, 25, 25);
    state.no_longer_exclusive();
    opened(&mut state, asked, &grant(OpenMode::Exclusive, 0), 0);
    assert_eq!(exact_size(&state), Some(25));
}

#[test]
fn an_end_of_before_a_cut_that_nobody_told_of_counts_no_more() {
    let mut state = State::default();
    let first = ask(&mut state);
    opened(&mut state, first, &grant(OpenMode::Exclusive, 0), 0);
    let asked = ask(&mut state);
    state.pending.wrote(1000, false);
    state.wrote_at_mdt(asked, 1000, 1000);
    state.no_longer_exclusive();
    // The handle was given back, and another mount has cut the file.
    opened(&mut state, asked, &grant(OpenMode::Exclusive, 1), 500);
    assert_eq!((exact_size(&state), state.report().end_bytes), (Some(500), 0));
}

#[test]
fn what_is_written_behind_a_cut_is_not_cut_by_its_answer() {
    // The cut is made; another process of the mount writes 25 bytes, and one of these comes next.
    for next in ["the layout", "the bytes", "the layout, the bytes"] {
        let mut state = State::default();
        let first = ask(&mut state);
        opened(&mut state, first, &grant(OpenMode::Exclusive, 0), 1000);
        let inode = Arc::new(Inodes::default()).hold(Ino(7));
        *inode.lock() = state;
        let cutting = inode.cutting();
        let (asked, cut) = (inode.asked(), grant(OpenMode::Exclusive, 1));
        let mut state = inode.lock();
        if next.contains("layout") {
            state.take_grant(asked, &cut, None);
            assert_eq!(exact_size(&state), None, "{next}: of before");
        }
        if next.contains("bytes") {
            state.wrote_at_mdt(asked, 25, 25);
        } else {
            state.pending.wrote(25, false);
        }
        cutting.end(&mut state);
        state.take_cut(asked, Some(&cut), 0);
        opened(&mut state, asked, &cut, 0);
        assert_ne!(exact_size(&state), Some(0), "{next}");
        assert!(next.contains("bytes") || state.report().end_bytes == 25, "{next}");
    }
}

#[test]
fn an_open_that_was_answered_before_a_write_does_not_take_its_bytes_back() {
    // A process of the same mount opens the file before, while and after another writes.
    for mode in [OpenMode::Exclusive, OpenMode::Direct] {
        for order in ["ask write", "write ask"] {
            let mut state = State::default();
            let asked = Asked { notices: 0 };
            opened(&mut state, asked, &grant(mode, 0), 0);
            let (mut asks, mut writes) = (asked, asked);
            for step in order.split(' ') {
                match step {
                    "ask" => asks = ask(&mut state),
                    _ => writes = Asked { notices: state.notices },
                }
            }
            state.wrote_at_mdt(writes, 25, 25);
            opened(&mut state, asks, &grant(OpenMode::Exclusive, 0), 0);
            assert_ne!(exact_size(&state), Some(0), "{mode:?}, {order}");
        }
    }
}

#[test]
fn a_cut_that_a_restart_has_interrupted_is_waited_for_before_anything_is_written() {
    let mut state = State::default();
    let first = ask(&mut state);
    opened(&mut state, first, &grant(OpenMode::Direct, 1), 10);
    let again = ask(&mut state);
    state.reclaimed(again, &grant(OpenMode::Direct, 1));
    assert!(!state.stale, "it was over before");
    let again = ask(&mut state);
    state.reclaimed(again, &grant(OpenMode::Direct, 2));
    assert!(state.stale, "the layout is asked for");
    state.reclaimed(again, &grant(OpenMode::Direct, 2));
    assert!(state.stale, "also where the file has two handles");
}
