//! Tests of read-ahead: ranges, readers, and how long chunks are kept.

use futures_util::FutureExt;

use super::*;
use crate::unsynced::Budget;

const TICKET: Ticket = Ticket {
    layout_epoch: Pair::ZERO,
    truncate_epoch: Pair::ZERO,
    attr_epoch: Pair::ZERO,
    must_exist: false,
};
const SEEN: Seen = Seen { contents: 3, body: Pair::ZERO, ticket: TICKET };
const MIB: u64 = 1 << 20;
const SIZE: u64 = 10 * MIB + 5000;

/// The byte of the file at `at`.
fn byte(at: u64) -> u8 {
    (at / 1000) as u8
}

/// Bytes that are there.
fn fetched(range: Range<u64>) -> Coming {
    let bytes = range.map(byte).collect();
    let room = Arc::new(Budget::new(1)).take(1).expect("there is room");
    let coming = async move { Some(Arc::new(Fetched { bytes, _room: room })) }.boxed().shared();
    coming.clone().now_or_never();
    coming
}

/// A file and its handles; what is wanted is there at once.
struct File {
    chunks: Chunks,
    handles: [Follow; 2],
    fetched: Vec<Range<u64>>,
    now: Mono,
    size: u64,
}

impl Default for File {
    fn default() -> File {
        let (chunks, handles) = Default::default();
        File { chunks, handles, fetched: Vec::new(), now: Mono::default(), size: SIZE }
    }
}

impl File {
    /// Whether the bytes of a read were there, or came as a chunk.
    fn read(&mut self, handle: usize, seen: Option<Seen>, range: Range<u64>, reader: Reader) -> bool {
        let (chunks, follow) = (&mut self.chunks, &mut self.handles[handle]);
        follow.note(&range, reader);
        let mut found = chunks.find(handle as u64, follow, seen, &range);
        while let Some(seen) = seen
            && let Some(wanted) = chunks.wanted(follow, &range, self.size)
        {
            self.fetched.push(wanted.clone());
            chunks.add(handle as u64, follow, seen, wanted.clone(), fetched(wanted));
        }
        if matches!(found, ReadState::Nothing) {
            found = chunks.find(handle as u64, follow, seen, &range);
        }
        chunks.reads(handle as u64, follow, range.end, self.now);
        match found {
            ReadState::Bytes(pieces) => {
                let bytes = pieces.concat();
                assert_eq!(bytes.len() as u64, range.end - range.start);
                assert!(
                    (range.start..).zip(&bytes).all(|(at, b)| *b == byte(at)),
                    "other bytes at {range:?}"
                );
                true
            }
            ReadState::Coming(_) => panic!("everything is there at once"),
            ReadState::Nothing => false,
        }
    }

    fn program(&mut self, range: Range<u64>) -> bool {
        self.read(0, Some(SEEN), range, Reader::Program)
    }

    fn fetched_bytes(&self) -> u64 {
        self.fetched.iter().map(|range| range.end - range.start).sum()
    }
}

#[test]
fn reads_in_steps_fetch_what_lies_between_unless_that_is_more() {
    let reads_until_a_chunk = |len: u64, step: u64, reader| {
        let mut follow = Follow::default();
        (0..10u64).find(|n| {
            let range = n * step..n * step + len;
            follow.note(&range, reader);
            Chunks::default().wanted(&follow, &range, SIZE).is_some()
        })
    };
    for reader in [Reader::Kernel, Reader::Program] {
        assert_eq!(reads_until_a_chunk(49152, 94208, reader), Some(1));
        assert_eq!(reads_until_a_chunk(4096, 3 * 4096, reader), None, "more gaps than pieces");
        assert_eq!(reads_until_a_chunk(STEP_BYTES_MAX, 2 * STEP_BYTES_MAX, reader), Some(1));
        assert_eq!(reads_until_a_chunk(STEP_BYTES_MAX + 1, 2 * STEP_BYTES_MAX + 1, reader), Some(2), "alone");
    }
    assert_eq!(reads_until_a_chunk(4096, 4096, Reader::Program), Some(1));
    assert_eq!(reads_until_a_chunk(4096, 4096, Reader::Kernel), None, "it does so itself");
    assert_eq!(reads_until_a_chunk(READ_BYTES_MAX, READ_BYTES_MAX, Reader::Program), Some(1));
    assert_eq!(reads_until_a_chunk(READ_BYTES_MAX + 1, READ_BYTES_MAX + 1, Reader::Program), None);
}

#[test]
fn every_byte_of_a_file_read_in_sequence_is_fetched_once() {
    let mut file = File::default();
    let reads = SIZE.div_ceil(47008);
    let alone = (0..reads).filter(|n| !file.program(n * 47008..SIZE.min((n + 1) * 47008))).count();
    assert_eq!((alone, file.fetched_bytes()), (1, SIZE - 47008), "all but the first read");
    assert!(file.fetched.windows(2).all(|pair| pair[0].end == pair[1].start && pair[1].start % MIB == 0));
    assert!(file.chunks.by_start.is_empty());
}

#[test]
fn processes_that_read_a_file_in_turns_on_one_mount_have_it_fetched_once() {
    let mut file = File::default();
    let reads = SIZE / 49152;
    // Handle 1 is always a little behind handle 0.
    for n in 0..reads + 9 {
        let turns = [(n % 2 == 0).then_some((0, n)), n.checked_sub(9).filter(|n| n % 2 == 1).map(|n| (1, n))];
        for (handle, n) in turns.into_iter().flatten().filter(|(_, n)| *n < reads) {
            file.read(handle, Some(SEEN), n * 49152..(n + 1) * 49152, Reader::Kernel);
        }
    }
    assert!(file.fetched_bytes() <= SIZE, "{} bytes", file.fetched_bytes());
    assert!(file.chunks.by_start.len() <= 2, "only what lies near the last reads");
    file.chunks.leave(0);
    file.chunks.leave(1);
    assert!(file.chunks.by_start.is_empty());
}

#[test]
fn of_long_pieces_at_one_distance_each_handle_has_its_own_fetched_once() {
    for (len, first, step, size, reader) in [
        (MIB, 0, 2 * MIB, 40 * MIB, Reader::Kernel),
        (MIB, 4096, 3 * MIB, 40 * MIB + 1000, Reader::Kernel),
        (MIB, 2048, 3 * MIB, 40 * MIB + 1000, Reader::Program),
        (300_000, 100, 2 * 300_000, 20 * MIB, Reader::Program),
        (MIB, 7, MIB + 1, 20 * MIB, Reader::Program),
    ] {
        let (mut file, mut alone, mut read) = (File { size, ..File::default() }, [0; 2], 0);
        for start in (first..size).step_by(step as usize) {
            // The second one reads what the first leaves out, if that is as long.
            let handles = if 2 * len <= step { 2 } else { 1 };
            for (handle, alone) in alone.iter_mut().enumerate().take(handles) {
                let start = start + handle as u64 * len;
                let end = size.min(start + len);
                if start < end {
                    *alone += u32::from(!file.read(handle, Some(SEEN), start..end, reader));
                    read += end - start;
                    let in_two = file.fetched.iter().any(|range| range.start % MIB != 0);
                    let most = 2 * PIECES_AHEAD_MAX as usize * if in_two { 2 } else { 1 };
                    assert!(file.chunks.by_start.len() <= most, "only what comes next");
                }
            }
        }
        assert!(alone[0] == 3 && alone[1] <= 3, "{alone:?} of {len} at {step}");
        assert!(file.fetched_bytes() <= read, "{} bytes of {read}", file.fetched_bytes());
        assert!(file.fetched.iter().all(|range| range.start / MIB == (range.end - 1) / MIB), "in one chunk");
        let mut fetched = file.fetched.clone();
        fetched.sort_by_key(|range| range.start);
        assert!(fetched.windows(2).all(|pair| pair[0].end <= pair[1].start), "once each");
        assert!(file.chunks.by_start.is_empty());
    }
}

#[test]
fn of_long_pieces_no_more_are_fetched_than_were_read_and_none_for_a_reader_that_went_elsewhere() {
    let mut file = File { size: 400 * MIB, ..File::default() };
    let mut ends = Vec::new();
    for n in 0..8 {
        file.program(n * 3 * MIB..(n * 3 + 1) * MIB);
        ends.push(file.chunks.by_start.len());
    }
    assert_eq!(ends, [0, 0, 2, 3, 4, 4, 4, 4]);
    // A different distance.
    assert!(!file.program(200 * MIB..201 * MIB));
    assert!(file.chunks.by_start.is_empty());
    // No distance twice: nothing. The distance of the first read from the beginning does not count.
    let before = file.fetched.len();
    (1..15).for_each(|n| assert!(!file.program((200 + n * n) * MIB..(201 + n * n) * MIB)));
    let mut other = File::default();
    (1..3).for_each(|n| assert!(!other.program(n * 2 * MIB..(n * 2 + 1) * MIB)));
    assert_eq!((file.fetched.len(), other.fetched.len()), (before, 0));
    // At the end of a file there is nothing to fetch, at the largest distance neither.
    let mut follow = Follow { run: 9, in_pieces: true, step: u64::MAX / 2, ..Follow::default() };
    let wanted = |follow: &Follow, at| file.chunks.wanted(follow, &(at..at + MIB), 400 * MIB);
    assert_eq!(wanted(&follow, 0), None);
    follow.step = 2 * MIB;
    assert_eq!(wanted(&follow, 397 * MIB), Some(399 * MIB..400 * MIB));
    assert_eq!(wanted(&follow, 398 * MIB + 5), None);
}

#[test]
fn short_runs_of_long_pieces_are_not_fetched_for_ever() {
    let mut file = File { size: 4000 * MIB, ..File::default() };
    let mut tile = |rows: u64, number: u64| {
        let before = file.fetched_bytes();
        // The next one begins farther to the right, at the top.
        let first = number * MIB;
        (0..rows).for_each(|row| _ = file.program(first + row * 70 * MIB..first + (row * 70 + 1) * MIB));
        file.fetched_bytes() - before
    };
    let wasted: u64 = (0..50).map(|number| tile(4, number)).sum();
    assert!(wasted <= 10 * MIB, "{wasted} bytes");
    // A long run makes good for it.
    tile(50, 50);
    assert_eq!(file.handles[0].patience, PATIENCE_MIN);
}

#[test]
fn several_reads_of_one_handle_wait_for_the_pieces_that_are_on_their_way() {
    let (mut chunks, mut follow) = (Chunks::default(), Follow::default());
    let piece = |n: u64| 2 * n * MIB..(2 * n + 1) * MIB;
    (0..4).for_each(|n| follow.note(&piece(n), Reader::Program));
    let mut senders = Vec::new();
    for n in 4..7 {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        senders.push(sender);
        let coming = receiver.map(move |_| fetched(piece(n)).now_or_never().flatten());
        chunks.add(0, &mut follow, SEEN, piece(n), coming.boxed().shared());
    }
    // Three reads find their piece on its way, the last one first.
    for n in [6, 5, 4] {
        follow.note(&piece(n), Reader::Program);
        (follow.run, follow.step, follow.in_pieces) = (5, 2 * MIB, true);
        let found = chunks.find(0, &mut follow, Some(SEEN), &piece(n));
        assert!(matches!(found, ReadState::Coming(_)));
        chunks.reads(0, &follow, piece(n).start, Mono::default());
    }
    senders.into_iter().for_each(|sender: tokio::sync::oneshot::Sender<()>| _ = sender.send(()));
    for (n, left) in [(5, 2), (4, 1), (6, 0)] {
        let coming: Vec<_> = chunks.by_start.values().map(|chunk| chunk.bytes.clone()).collect();
        coming.into_iter().for_each(|coming| _ = coming.now_or_never());
        let found = chunks.find(0, &mut follow, Some(SEEN), &piece(n));
        assert!(matches!(found, ReadState::Bytes(_)), "{n}");
        chunks.reads(0, &follow, piece(n).end, Mono::default());
        assert_eq!(chunks.by_start.len(), left);
    }
}

#[test]
fn what_is_there_in_part_is_not_waited_for() {
    let (mut chunks, mut follow) = (Chunks::default(), Follow::default());
    let (_sender, receiver) = tokio::sync::oneshot::channel::<()>();
    chunks.add(0, &mut follow, SEEN, 0..MIB, receiver.map(|_| None).boxed().shared());
    assert!(matches!(chunks.find(0, &mut follow, Some(SEEN), &(0..MIB)), ReadState::Coming(_)));
    assert!(matches!(chunks.find(0, &mut follow, Some(SEEN), &(0..MIB + 1)), ReadState::Nothing));
}

#[test]
fn pieces_of_one_handle_do_not_keep_what_was_fetched_for_others() {
    let mut file = File { size: 900 * MIB, ..File::default() };
    (0..6).for_each(|n| _ = file.read(1, Some(SEEN), n * 40 * MIB..(n * 40 + 1) * MIB, Reader::Kernel));
    let pieces = file.chunks.by_start.len();
    assert_eq!(pieces, 4);
    // Reads in sequence cover the place of the next pieces, and the range before them.
    let first = 205 * 16;
    (0..800u64).for_each(|n| _ = file.program((first + n) * 65536..(first + n + 1) * 65536));
    assert!(file.chunks.by_start.len() <= pieces + 4, "what the reader in sequence has passed is gone");
    file.chunks.leave(0);
    assert_eq!(file.chunks.by_start.len(), pieces);
    file.chunks.leave(1);
    assert!(file.chunks.by_start.is_empty());
}

#[test]
fn no_more_is_fetched_than_was_read_before_but_for_the_first_chunk() {
    let mut file = File::default();
    let mut ends = Vec::new();
    for n in 0..40 {
        let before = file.fetched.len();
        file.program(n * 65536..(n + 1) * 65536);
        ends.extend(file.fetched[before..].iter().map(|range| (n, range.end / MIB)));
        assert!(file.chunks.by_start.len() <= 4);
    }
    assert_eq!(ends, [(1, 1), (8, 2), (16, 3), (24, 4), (32, 5)], "up to two MiB ahead");
    assert_eq!(file.fetched[0].start, 65536);
}

#[test]
fn chunks_serve_in_any_order_until_they_are_passed_or_something_changes() {
    let mut file = File::default();
    let prepare = |file: &mut File| {
        *file = File::default();
        (0..18).for_each(|n| _ = file.program(n * 65536..(n + 1) * 65536));
        assert_eq!(file.chunks.by_start.keys().copied().collect::<Vec<_>>(), [MIB, 2 * MIB]);
    };
    let find = |file: &mut File, seen, range| match file.chunks.find(0, &mut file.handles[0], seen, &range) {
        ReadState::Bytes(pieces) => Some(pieces.iter().map(Bytes::len).sum::<usize>()),
        _ => None,
    };
    prepare(&mut file);
    assert_eq!(find(&mut file, Some(SEEN), 2 * MIB..2 * MIB + 100), Some(100));
    assert_eq!(find(&mut file, Some(SEEN), 2 * MIB - 1000..2 * MIB + 1), Some(1001), "of two chunks");
    assert_eq!(find(&mut file, Some(SEEN), MIB - 1..MIB + 1), None, "only part of it is there");
    assert_eq!(find(&mut file, Some(SEEN), MIB..MIB + 1), Some(1), "it is still there");
    for other in [
        Some(Seen { contents: 4, ..SEEN }),
        Some(Seen { body: Pair { term: 1, counter: 1 }, ..SEEN }),
        Some(Seen { ticket: Ticket { layout_epoch: Pair { term: 1, counter: 1 }, ..TICKET }, ..SEEN }),
        None,
    ] {
        prepare(&mut file);
        assert_eq!(find(&mut file, other, 2 * MIB..2 * MIB + 4096), None, "{other:?}");
        assert_eq!(find(&mut file, Some(SEEN), 2 * MIB..2 * MIB + 4096), None, "it is gone");
        assert_eq!(file.chunks.patience, 2 * PATIENCE_MIN);
    }
    prepare(&mut file);
    assert!(!file.program(9 * MIB..9 * MIB + 10));
    assert!(file.chunks.by_start.is_empty(), "the reader went elsewhere");
}

#[test]
fn nothing_is_kept_for_handles_that_are_closed_dead_or_idle() {
    let mut file = File::default();
    let read = |file: &mut File| {
        (0..18).for_each(|n| _ = file.program(n * 65536..(n + 1) * 65536));
        assert!(!file.chunks.by_start.is_empty());
    };
    read(&mut file);
    file.chunks.drop_idle(file.now.plus_ms(IDLE_MS - 1));
    assert!(!file.chunks.by_start.is_empty(), "it may still read");
    file.chunks.drop_idle(file.now.plus_ms(IDLE_MS));
    assert!(file.chunks.by_start.is_empty());
    read(&mut file);
    file.handles[0].end();
    file.chunks.leave(0);
    assert!(file.chunks.by_start.is_empty());
    // A read that was under way at that time.
    (18..40).for_each(|n| assert!(!file.program(n * 65536..(n + 1) * 65536)));
    assert!(file.chunks.by_start.is_empty() && file.chunks.readers.is_empty());
}

#[test]
fn a_change_makes_all_readers_patient_whoever_meets_it() {
    let mut file = File::default();
    (0..18).for_each(|n| _ = file.program(n * 65536..(n + 1) * 65536));
    let before = file.fetched.len();
    // The second handle reads in the file, and meets the change.
    let changed = Some(Seen { contents: 4, ..SEEN });
    assert!(!file.read(1, changed, 5 * MIB..5 * MIB + 10, Reader::Program));
    assert!(file.chunks.by_start.is_empty());
    (18..20).for_each(|n| assert!(!file.program(n * 65536..(n + 1) * 65536)));
    assert_eq!(file.fetched.len(), before, "not at once");
    (20..24).for_each(|n| _ = file.program(n * 65536..(n + 1) * 65536));
    assert!(file.fetched.len() > before);
}

#[test]
fn what_is_on_its_way_is_waited_for_and_what_could_not_be_read_is_asked_for_again() {
    let (mut chunks, mut follow) = (Chunks::default(), Follow::default());
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let coming = receiver.map(|_| None).boxed().shared();
    chunks.add(0, &mut follow, SEEN, 0..MIB, coming);
    let found = chunks.find(0, &mut follow, Some(SEEN), &(0..100));
    let ReadState::Coming(found) = found else { panic!("it is on its way") };
    sender.send(()).expect("somebody waits");
    assert!(found.now_or_never().expect("it has come").is_none());
    assert!(matches!(chunks.find(0, &mut follow, Some(SEEN), &(0..100)), ReadState::Nothing));
    assert!(chunks.by_start.is_empty() && follow.patience > PATIENCE_MIN, "it is not tried again at once");
}

#[test]
fn reads_of_several_threads_through_one_handle_may_overtake_each_other() {
    let mut follow = Follow::default();
    follow.note(&(0..100), Reader::Program);
    follow.note(&(10_000..10_100), Reader::Program);
    follow.note(&(10_100..10_200), Reader::Program);
    assert_eq!(Chunks::default().wanted(&follow, &(0..100), SIZE), Some(0..MIB));
}

#[test]
fn chunks_that_are_lost_to_changes_make_patient() {
    let mut file = File::default();
    let mut at = 0;
    let mut reads_until_a_chunk = || {
        let before = file.fetched.len();
        // The file has changed since the last chunk.
        file.chunks.find(0, &mut file.handles[0], None, &(0..1));
        for n in 1..100 {
            file.program(at..at + 100);
            at += 100;
            if file.fetched.len() > before {
                return n;
            }
        }
        0
    };
    let waits: Vec<u32> = (0..5).map(|_| reads_until_a_chunk()).collect();
    assert_eq!(waits, [2, 3, 7, 15, 31], "the run goes on from the read that met the change");
}

#[test]
fn readers_that_go_elsewhere_soon_make_patient_until_one_goes_on() {
    let mut file = File::default();
    for place in 0..200u64 {
        let at = place % 10 * MIB + place;
        for n in 0..4 {
            file.program(at + n * 512..at + (n + 1) * 512);
        }
    }
    assert_eq!(file.fetched.len(), 2, "at the second and the fourth read");
    let begun = 300_000;
    (0..20).for_each(|n| _ = file.program(begun + n * 65536..begun + (n + 1) * 65536));
    assert_eq!(file.handles[0].patience, PATIENCE_MIN);
}
