//! Behaviour of the real kernel when one inode is open cached and direct, mapped, invalidated and changed elsewhere, all at once.
//! Each test asks one question; `docs/design/001-mixed-state.md` draws the rules from the answers. If a kernel answers
//! differently, a test fails, and the rules have to be revised.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "tests choose their numbers"
)]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use brindle_fuse::abi::flags::fopen::KEEP_CACHE;
use brindle_fuse::request::Op;
use brindle_fuse::{Notice, Outcome, PageInvalidation, Wanted};
use support::memfs::{DIRECT, Seen};
use support::mount::eventually;
use support::{Mapping, Mount, sys};

const PAGE: usize = 4096;
/// Long enough for anything that does not wait for us: upcalls here take well below a millisecond.
const WAITS: Duration = Duration::from_millis(150);

fn rw(m: &Mount, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(m.path(name)).expect("open")
}

/// Opens `f` with these flags in the answer.
fn open(m: &Mount, flags: u32) -> File {
    m.fs.open_with(flags);
    rw(m, "f")
}

fn byte(f: &File, at: u64) -> u8 {
    let mut b = [0];
    assert_eq!(f.read_at(&mut b, at).expect("read"), 1, "end of file at {at}");
    b[0]
}

fn is_read(s: &Seen) -> bool {
    matches!(s.op, Op::Read(_))
}

fn is_write(s: &Seen) -> bool {
    matches!(s.op, Op::Write(_))
}

fn is_attr(s: &Seen) -> bool {
    matches!(s.op, Op::Getattr(_) | Op::Statx(_))
}

fn cache_write(s: &Seen) -> bool {
    matches!(&s.op, Op::Write(w) if w.from_cache)
}

/// Short names of the requests that arrived: R read into the page cache, r direct read, W writeback of a page, w
/// write by a program, F flush, S fsync, T setattr, O open, C close.
fn letters(m: &Mount) -> String {
    let letter = |s: &Seen| match &s.op {
        Op::Read(r) if r.lock_owner.is_some() => 'r',
        Op::Read(_) => 'R',
        Op::Write(w) if w.from_cache => 'W',
        Op::Write(_) => 'w',
        Op::Flush(_) => 'F',
        Op::Fsync(_) => 'S',
        Op::Setattr(_) => 'T',
        Op::Open(_) => 'O',
        Op::Release(_) => 'C',
        // Lookups, attributes and the capability question before a write depend on what was asked before.
        _ => ' ',
    };
    m.fs.take_log().iter().map(letter).filter(|c| *c != ' ').collect()
}

fn inval(ino: u64, offset: u64, len: u64) -> Notice {
    Notice::InvalInode { ino, offset, len }
}

fn waits(answer: &Receiver<Outcome>) -> bool {
    answer.recv_timeout(WAITS) == Err(RecvTimeoutError::Timeout)
}

fn answered(answer: &Receiver<Outcome>) -> Outcome {
    answer.recv_timeout(Duration::from_secs(10)).expect("the kernel answers")
}

/// Runs `call` on a thread and says whether it is still running after a while.
fn start<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> (JoinHandle<T>, bool) {
    let running = thread::spawn(call);
    let deadline = std::time::Instant::now() + WAITS;
    while std::time::Instant::now() < deadline && !running.is_finished() {
        thread::sleep(Duration::from_millis(2));
    }
    let blocked = !running.is_finished();
    (running, blocked)
}

fn mount_with(page_invalidation: PageInvalidation) -> Mount {
    Mount::with(&Wanted { page_invalidation, ..Wanted::default() })
}

const ALL_MODES: [PageInvalidation; 3] =
    [PageInvalidation::Explicit, PageInvalidation::OnSize, PageInvalidation::OnSizeOrMtime];

// ---- 1: cached and direct descriptors of one inode ----

#[test]
fn q01_a_direct_write_drops_the_pages_it_covers_on_its_own_mount() {
    let m = Mount::new();
    m.put("f", &[b'a'; 3 * PAGE]);
    let (cached, direct) = (open(&m, 0), open(&m, DIRECT | KEEP_CACHE));
    assert_eq!((byte(&cached, 0), byte(&cached, 5000)), (b'a', b'a'));
    direct.write_all_at(b"B", 5000).expect("write");
    m.fs.take_log();
    assert_eq!((byte(&cached, 0), byte(&cached, 5000)), (b'a', b'B'));
    assert_eq!(letters(&m), "R", "only the page that was written is read again");
}

#[test]
fn q01_any_cached_open_makes_direct_writes_of_the_inode_serial() {
    let m = Mount::new();
    m.put("f", &vec![0; 4 << 20]);
    let in_flight = |m: &Mount| {
        m.fs.open_with(DIRECT);
        let gate = m.fs.gate(is_write);
        let write = |i: u64| {
            let f = rw(m, "f");
            thread::spawn(move || f.write_all_at(&[1; PAGE], i << 20).expect("write"))
        };
        let writers: Vec<_> = (0..4).map(write).collect();
        eventually("a write is in flight", || gate.arrived() > 0);
        thread::sleep(WAITS);
        let arrived = gate.arrived();
        gate.open();
        writers.into_iter().for_each(|w| w.join().expect("writer"));
        arrived
    };
    assert_eq!(in_flight(&m), 4);
    let cached = open(&m, 0);
    assert_eq!(in_flight(&m), 1, "even if nothing is cached");
    drop(cached);
    eventually("closed", || m.fs.count(|s| matches!(s.op, Op::Release(_))) > 8);
    assert_eq!(in_flight(&m), 4, "until it is closed");
    let map = Mapping::shared(&open(&m, DIRECT), PAGE).expect("mmap");
    assert_eq!(in_flight(&m), 1, "a shared mapping of a direct file does the same");
    drop(map);
}

#[test]
fn q01_a_private_mapping_does_not_make_direct_writes_serial() {
    let m = Mount::new();
    m.put("f", &vec![0; 4 << 20]);
    let map = Mapping::private(&open(&m, DIRECT), PAGE).expect("mmap");
    assert_eq!(map.get(0), 0);
    let gate = m.fs.gate(is_write);
    let (a, b) = (rw(&m, "f"), rw(&m, "f"));
    let a = thread::spawn(move || a.write_all_at(b"x", 1 << 20));
    let b = thread::spawn(move || b.write_all_at(b"x", 2 << 20));
    eventually("both are in flight", || gate.arrived() == 2);
    gate.open();
    a.join().expect("join").expect("write");
    b.join().expect("join").expect("write");
}

#[test]
fn q01_a_cached_open_waits_for_parallel_direct_writes_in_flight() {
    let m = Mount::new();
    m.put("f", &[0; 2 * PAGE]);
    let direct = open(&m, DIRECT);
    let gate = m.fs.gate(is_write);
    let writer = thread::spawn(move || direct.write_all_at(b"x", 0));
    eventually("in flight", || gate.arrived() == 1);
    m.fs.open_with(0);
    m.fs.take_log();
    let path = m.path("f");
    let (opener, blocked) = start(move || File::open(path).map(|_| ()));
    assert!(blocked, "in the kernel, although OPEN was answered");
    assert_eq!(letters(&m), "O");
    gate.open();
    opener.join().expect("join").expect("open");
    writer.join().expect("join").expect("write");
}

#[test]
fn q01_a_cached_open_that_waits_for_direct_writes_cannot_be_killed() {
    let m = Mount::new();
    m.put("f", &[0; 2 * PAGE]);
    let direct = open(&m, DIRECT);
    let gate = m.fs.gate(is_write);
    let writer = thread::spawn(move || direct.write_all_at(b"x", 0));
    eventually("in flight", || gate.arrived() == 1);
    m.fs.open_with(0);
    m.fs.take_log();
    let mut child = std::process::Command::new("cat").arg(m.path("f")).spawn().expect("start");
    eventually("OPEN", || m.fs.count(|s| matches!(s.op, Op::Open(_))) == 1);
    child.kill().expect("kill");
    thread::sleep(WAITS);
    assert!(child.try_wait().expect("wait").is_none());
    gate.open();
    child.wait().expect("wait");
    writer.join().expect("join").expect("write");
}

#[test]
fn q01_a_direct_open_does_not_wait_for_writes_in_flight() {
    let m = Mount::new();
    m.put("f", &[0; 2 * PAGE]);
    let direct = open(&m, DIRECT);
    let gate = m.fs.gate(is_write);
    let writer = thread::spawn(move || direct.write_all_at(b"x", 0));
    eventually("in flight", || gate.arrived() == 1);
    let path = m.path("f");
    let (opener, blocked) = start(move || File::open(path).map(|_| ()));
    assert!(!blocked);
    gate.open();
    opener.join().expect("join").expect("open");
    writer.join().expect("join").expect("write");
}

#[test]
fn q01_an_open_without_keep_cache_drops_all_pages_direct_or_not() {
    let m = Mount::new();
    m.put("f", &[b'a'; 2 * PAGE]);
    let cached = open(&m, 0);
    for (flags, again) in [(0, "R"), (DIRECT, "R"), (KEEP_CACHE, ""), (DIRECT | KEEP_CACHE, "")] {
        byte(&cached, 0);
        let other = open(&m, flags);
        m.fs.take_log();
        byte(&cached, 0);
        assert_eq!(letters(&m), again, "{flags:#x}");
        drop(other);
    }
}

#[test]
fn q01_an_open_without_keep_cache_waits_for_reads_in_flight() {
    let m = Mount::new();
    m.put("f", &[b'a'; 2 * PAGE]);
    let cached = open(&m, 0);
    for (flags, waits) in [(DIRECT, true), (DIRECT | KEEP_CACHE, false)] {
        m.notify(inval(m.fs.ino("f"), 0, 0));
        let gate = m.fs.gate(is_read);
        let f = cached.try_clone().expect("dup");
        let reader = thread::spawn(move || byte(&f, 0));
        eventually("in flight", || gate.arrived() == 1);
        m.fs.open_with(flags);
        let path = m.path("f");
        let (opener, blocked) = start(move || File::open(path).map(|_| ()));
        assert_eq!(blocked, waits, "{flags:#x}");
        gate.open();
        opener.join().expect("join").expect("open");
        reader.join().expect("join");
    }
}

#[test]
fn q01_a_direct_write_waits_for_cached_reads_in_flight_of_its_range() {
    let m = Mount::new();
    m.put("f", &[b'a'; 64 * PAGE]);
    let (cached, direct) = (open(&m, 0), open(&m, DIRECT | KEEP_CACHE));
    // Read-ahead would take in everything.
    let f = cached.try_clone().expect("dup");
    rustix::fs::fadvise(&f, 0, None, rustix::fs::Advice::Random).expect("fadvise");
    let gate = m.fs.gate(is_read);
    let reader = thread::spawn(move || byte(&f, 0));
    eventually("in flight", || gate.arrived() == 1);
    m.fs.take_log();
    direct.write_all_at(b"B", 8 * PAGE as u64).expect("another range does not wait");
    let (writer, blocked) = start(move || direct.write_all_at(b"B", 10));
    assert!(blocked);
    assert_eq!(letters(&m), "w", "the second is not sent yet");
    gate.open();
    writer.join().expect("join").expect("write");
    assert_eq!(reader.join().expect("join"), b'a');
    assert_eq!(byte(&cached, 10), b'B');
}

#[test]
fn q01_reads_into_the_cache_are_told_from_direct_reads_by_their_lock_owner() {
    let m = Mount::new();
    m.put("f", &[b'a'; 4 * PAGE]);
    let direct = open(&m, DIRECT);
    byte(&direct, 0);
    assert_eq!(letters(&m), "Or");
    let map = Mapping::private(&direct, PAGE).expect("mmap");
    m.fs.take_log();
    map.get(0);
    assert_eq!(letters(&m), "R", "a fault through a direct descriptor");
    drop(map);
    let cached = open(&m, 0);
    byte(&cached, 0);
    assert_eq!(letters(&m), "OR");
    m.fs.open_with(0);
    let o_direct =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(m.path("f")).expect("open");
    byte_aligned(&o_direct);
    assert_eq!(letters(&m), "Or", "O_DIRECT on a cached open");
}

#[test]
fn q01_copies_and_punched_holes_of_the_own_mount_drop_the_pages_they_change() {
    let m = Mount::new();
    m.put("from", &[b'b'; PAGE]);
    m.put("f", &[b'a'; 4 * PAGE]);
    let (cached, direct) = (open(&m, 0), open(&m, DIRECT | KEEP_CACHE));
    (0..4).for_each(|page| assert_eq!(byte(&cached, page * PAGE as u64), b'a'));
    let from = rw(&m, "from");
    assert_eq!(sys::copy_file_range(&from, &direct, PAGE).expect("copy"), PAGE as i64);
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    sys::fallocate(&direct, punch, 2 * PAGE as i64, PAGE as i64).expect("punch");
    m.fs.take_log();
    let seen: Vec<u8> = (0..4).map(|page| byte(&cached, page * PAGE as u64)).collect();
    assert_eq!(seen, [b'b', b'a', 0, b'a']);
}

#[test]
fn q01_an_extending_direct_write_is_serial_and_its_size_is_known_at_once() {
    let m = Mount::new();
    m.fs.policy(|p| p.attr_valid = Duration::from_secs(600));
    m.put("f", &[b'a'; 100]);
    let (cached, direct) = (open(&m, 0), open(&m, DIRECT | KEEP_CACHE));
    cached.metadata().expect("fstat");
    direct.write_all_at(b"b", 200).expect("write");
    assert_eq!((byte(&cached, 150), byte(&cached, 200)), (0, b'b'));
    drop(cached);
    eventually("closed", || m.fs.count(|s| matches!(s.op, Op::Release(_))) == 1);
    let gate = m.fs.gate(is_write);
    let writers: Vec<_> = (1..3u64)
        .map(|i| {
            let f = direct.try_clone().expect("dup");
            thread::spawn(move || f.write_all_at(b"c", i << 20).expect("write"))
        })
        .collect();
    eventually("in flight", || gate.arrived() == 1);
    thread::sleep(WAITS);
    assert_eq!(gate.arrived(), 1);
    gate.open();
    writers.into_iter().for_each(|w| w.join().expect("join"));
}

fn byte_aligned(f: &File) {
    let mut room = vec![0u8; 2 * PAGE];
    let skip = room.as_ptr().align_offset(PAGE);
    f.read_at(&mut room[skip..skip + PAGE], 0).expect("read");
}

// ---- 2: mappings of a direct descriptor ----

#[test]
fn q02_a_changed_page_is_written_at_msync_fsync_close_and_munmap() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 2 * PAGE + 10]);
    let f = open(&m, DIRECT);
    let map = Mapping::shared(&f, 3 * PAGE).expect("mmap");
    m.fs.take_log();
    map.set(0, b'1');
    assert_eq!(letters(&m), "R");
    map.msync().expect("msync");
    assert_eq!(letters(&m), "WS", "msync sends FSYNC too");
    map.set(0, b'2');
    f.sync_data().expect("fdatasync");
    assert_eq!(letters(&m), "WS");
    map.set(2 * PAGE, b'3');
    drop(f.try_clone().expect("dup"));
    let log = m.fs.take_log();
    let sizes: Vec<_> = log
        .iter()
        .filter_map(|s| if let Op::Write(w) = &s.op { Some((w.offset, w.data.len())) } else { None })
        .collect();
    assert_eq!(sizes, [(2 * PAGE as u64, 10)], "cut at the end of the file");
    assert!(matches!(log.last().expect("log").op, Op::Flush(_)), "close writes before FLUSH");
    let writeback = log.iter().find(|s| cache_write(s)).expect("WRITE");
    assert_eq!(writeback.pid, 0, "it comes from nobody");
    map.set(0, b'4');
    drop(map);
    assert_eq!(letters(&m), "W", "munmap writes before it returns");
    assert_eq!(m.fs.contents(ino)[0], b'4');
}

#[test]
fn q02_closing_does_not_end_a_mapping_and_its_last_write_comes_before_release() {
    let m = Mount::new();
    m.put("f", &[b'a'; PAGE]);
    let f = open(&m, DIRECT);
    let map = Mapping::shared(&f, PAGE).expect("mmap");
    map.set(0, b'b');
    m.fs.take_log();
    drop(f);
    assert_eq!(letters(&m), "WF");
    map.set(0, b'c');
    drop(map);
    eventually("RELEASE", || m.fs.count(|s| matches!(s.op, Op::Release(_))) == 1);
    assert_eq!(letters(&m), "WC", "changed after FLUSH, written before RELEASE");
}

#[test]
fn q02_a_private_mapping_never_writes() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; PAGE]);
    let map = Mapping::private(&open(&m, DIRECT), PAGE).expect("mmap");
    map.set(0, b'b');
    map.msync().expect("msync");
    m.fs.take_log();
    drop(map);
    assert_eq!(m.fs.count(is_write), 0);
    assert_eq!(m.fs.contents(ino)[0], b'a');
}

#[test]
fn q02_direct_reads_and_writes_write_changed_pages_of_their_range_back_first() {
    let m = Mount::new();
    m.put("f", &[b'a'; 4 * PAGE]);
    let f = open(&m, DIRECT);
    let map = Mapping::shared(&f, 4 * PAGE).expect("mmap");
    map.set(0, b'1');
    map.set(PAGE, b'1');
    m.fs.take_log();
    assert_eq!(byte(&f, 0), b'1');
    assert_eq!(letters(&m), "Wr", "a direct read, its own page only");
    f.write_all_at(b"2", PAGE as u64 + 1).expect("write");
    assert_eq!(letters(&m), "Ww", "a direct write inside a changed page");
    assert_eq!((map.get(PAGE), map.get(PAGE + 1)), (b'1', b'2'));
    assert_eq!(letters(&m), "R", "the mapping sees it by reading the page again");
}

#[test]
fn q02_mapping_a_direct_file_drops_all_pages() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 2 * PAGE]);
    let f = open(&m, DIRECT);
    let first = Mapping::shared(&f, 2 * PAGE).expect("mmap");
    assert_eq!(first.get(PAGE), b'a');
    m.fs.remote_write(ino, PAGE, b"B", true);
    assert_eq!(first.get(PAGE), b'a', "the kernel was not told");
    let second = Mapping::shared(&f, 2 * PAGE).expect("mmap");
    assert_eq!((first.get(PAGE), second.get(PAGE)), (b'B', b'B'));
}

#[test]
fn q02_direct_writes_beside_a_busy_mapping_do_not_fail() {
    let m = Mount::new();
    m.put("f", &[0; 4 * PAGE]);
    let f = open(&m, DIRECT);
    let map = Mapping::shared(&f, 4 * PAGE).expect("mmap");
    map.keep_busy();
    for i in 0..2000u32 {
        f.write_all_at(&i.to_le_bytes(), 8).expect("no EBUSY");
    }
}

#[test]
fn q02_one_changed_byte_writes_one_page_in_the_name_of_root() {
    let m = Mount::new();
    const LEN: usize = 4 << 20;
    m.put("f", &vec![b'a'; LEN]);
    let f = open(&m, DIRECT);
    let map = Mapping::shared(&f, LEN).expect("mmap");
    m.fs.take_log();
    for at in (0..LEN).step_by(PAGE) {
        map.get(at);
    }
    let big = |s: &Seen| matches!(&s.op, Op::Read(r) if r.size as usize > PAGE);
    assert!(m.fs.count(big) > 0, "pages came in bulk, so they may lie in large folios");
    map.set((2 << 20) + PAGE + 5, b'b');
    m.fs.take_log();
    map.msync().expect("msync");
    let log = m.fs.take_log();
    let write = log.iter().find_map(|s| if let Op::Write(w) = &s.op { Some((s, w)) } else { None });
    let (seen, write) = write.expect("WRITE");
    assert_eq!(
        (write.offset as usize, write.data.len()),
        ((2 << 20) + PAGE, PAGE),
        "else neighbours are clobbered"
    );
    assert_eq!((seen.uid, seen.gid, seen.pid), (0, 0, 0), "whoever changed it");
}

// ---- 3 and 4: NOTIFY_INVAL_INODE ----

#[test]
fn q03_invalidation_waits_for_a_read_in_flight_of_its_range_only() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 64 * PAGE]);
    let f = open(&m, 0);
    rustix::fs::fadvise(&f, 0, None, rustix::fs::Advice::Random).expect("fadvise");
    let gate = m.fs.gate(is_read);
    let reader = thread::spawn(move || byte(&f, 0));
    eventually("in flight", || gate.arrived() == 1);
    assert_eq!(m.notify(inval(ino, 32 * PAGE as u64, 1)), Outcome::Done, "another range");
    assert_eq!(m.notify(Notice::InvalAttr { ino }), Outcome::Done, "attributes only");
    let same = m.notify_later(inval(ino, 10, 1));
    assert!(waits(&same), "the same page");
    let other = m.notify_later(inval(ino, 32 * PAGE as u64, 1));
    assert_eq!(answered(&other), Outcome::Done, "another thread goes on meanwhile");
    m.fs.remote_write(ino, 0, b"B", false);
    gate.open();
    assert_eq!(answered(&same), Outcome::Done);
    reader.join().expect("join");
    assert_eq!(byte(&open(&m, KEEP_CACHE), 0), b'B');
}

#[test]
fn q03_a_direct_read_in_flight_holds_nothing_up() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 4 * PAGE]);
    let f = open(&m, DIRECT);
    let gate = m.fs.gate(is_read);
    let reader = thread::spawn(move || byte(&f, 0));
    eventually("in flight", || gate.arrived() == 1);
    assert_eq!(m.notify(inval(ino, 0, 0)), Outcome::Done);
    gate.open();
    reader.join().expect("join");
}

#[test]
fn q03_read_ahead_in_flight_counts_as_a_read_of_its_whole_range() {
    let m = Mount::new();
    let ino = m.put("f", &vec![b'a'; 256 * PAGE]);
    let f = open(&m, 0);
    let gate = m.fs.gate(is_read);
    let reader = thread::spawn(move || byte(&f, 0));
    eventually("in flight", || gate.arrived() >= 1);
    thread::sleep(WAITS);
    let log = m.fs.take_log();
    let end = log
        .iter()
        .filter_map(|s| if let Op::Read(r) = &s.op { Some(r.offset + r.size as u64) } else { None })
        .max();
    let end = end.expect("READ");
    assert!(end > PAGE as u64, "more than was asked for: {end}");
    let inside = m.notify_later(inval(ino, end - 1, 1));
    assert!(waits(&inside));
    gate.open();
    assert_eq!(answered(&inside), Outcome::Done);
    reader.join().expect("join");
}

#[test]
fn q03_invalidation_writes_changed_pages_back_and_waits_for_the_answer() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 4 * PAGE]);
    let map = Mapping::shared(&open(&m, DIRECT), 4 * PAGE).expect("mmap");
    map.set(0, b'b');
    map.set(2 * PAGE, b'c');
    m.fs.take_log();
    let gate = m.fs.gate(cache_write);
    assert_eq!(m.notify(inval(ino, PAGE as u64, 1)), Outcome::Done, "a page that is not changed");
    assert_eq!(m.fs.count(is_write), 0);
    let answer = m.notify_later(inval(ino, 0, 1));
    assert!(waits(&answer));
    assert_eq!(letters(&m), "W", "the page of the range, and no other");
    gate.open();
    assert_eq!(answered(&answer), Outcome::Done);
    assert_eq!(m.fs.contents(ino)[0], b'b');
}

#[test]
fn q03_invalidation_waits_for_writeback_in_flight() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 4 * PAGE]);
    let map = Arc::new(Mapping::shared(&open(&m, DIRECT), 4 * PAGE).expect("mmap"));
    map.set(0, b'b');
    let gate = m.fs.gate(cache_write);
    let synced = map.clone();
    let sync = thread::spawn(move || synced.msync());
    eventually("in flight", || gate.arrived() == 1);
    assert_eq!(m.notify(inval(ino, PAGE as u64, 1)), Outcome::Done, "another page");
    let answer = m.notify_later(inval(ino, 0, 1));
    assert!(waits(&answer));
    gate.open();
    assert_eq!(answered(&answer), Outcome::Done);
    sync.join().expect("join").expect("msync");
}

#[test]
fn q03_invalidation_does_not_wait_for_direct_writes_setattr_or_fsync_in_flight() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 4 * PAGE]);
    let f = open(&m, DIRECT);
    type Call = (fn(&Seen) -> bool, fn(&File));
    let calls: [Call; 3] = [
        (is_write, |f| f.write_all_at(b"x", 0).expect("write")),
        (|s| matches!(s.op, Op::Setattr(_)), |f| f.set_len(PAGE as u64).expect("truncate")),
        (|s| matches!(s.op, Op::Fsync(_)), |f| f.sync_all().expect("fsync")),
    ];
    for (matches, call) in calls {
        let gate = m.fs.gate(matches);
        let f = f.try_clone().expect("dup");
        let caller = thread::spawn(move || call(&f));
        eventually("in flight", || gate.arrived() == 1);
        assert_eq!(m.notify(inval(ino, 0, 0)), Outcome::Done);
        gate.open();
        caller.join().expect("join");
    }
}

#[test]
fn q04_dropping_attributes_never_waits() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 4 * PAGE]);
    m.fs.policy(|p| p.attr_valid = Duration::from_secs(600));
    let f = open(&m, 0);
    let map = Mapping::shared(&f, 4 * PAGE).expect("mmap");
    map.set(2 * PAGE, b'b');
    m.notify(inval(ino, 0, 1));
    let gate = m.fs.gate(|s| is_read(s) || is_write(s));
    let g = f.try_clone().expect("dup");
    let reader = thread::spawn(move || byte(&g, 0));
    eventually("in flight", || gate.arrived() == 1);
    let attrs = |n: usize| {
        m.fs.take_log();
        f.metadata().expect("fstat");
        assert_eq!(m.fs.count(is_attr), n);
    };
    f.metadata().expect("fstat");
    attrs(0);
    assert_eq!(m.notify(Notice::InvalAttr { ino }), Outcome::Done);
    attrs(1);
    gate.open();
    reader.join().expect("join");
    m.fs.take_log();
    byte(&f, 0);
    assert_eq!((m.fs.count(is_read), m.fs.count(is_write)), (0, 0), "pages stay, changed ones too");
}

// ---- 5 and 6: attributes, size, pages ----

#[test]
fn q05_what_asks_for_attributes_when_they_are_never_valid() {
    for mode in ALL_MODES {
        let m = mount_with(mode);
        let ino = m.put("f", &[b'a'; 2 * PAGE]);
        let f = open(&m, 0);
        let map = Mapping::shared(&f, 2 * PAGE).expect("mmap");
        // Path lookups ask for the directory's attributes too.
        let asks = |call: &dyn Fn()| {
            m.fs.take_log();
            call();
            m.fs.count(|s| is_attr(s) && s.ino == ino)
        };
        byte(&f, 0);
        let each_read = usize::from(mode == PageInvalidation::OnSizeOrMtime);
        assert_eq!(asks(&|| assert_ne!(byte(&f, 0), 0)), each_read, "cached read inside the size: {mode:?}");
        assert_eq!(
            asks(&|| assert_eq!(f.read_at(&mut [0; 100], 2 * PAGE as u64 - 50).expect("read"), 50)),
            1
        );
        assert_eq!(asks(&|| assert!(f.metadata().is_ok())), 1);
        assert_eq!(asks(&|| assert!(fs::metadata(m.path("f")).is_ok())), 1);
        assert_eq!(
            asks(&|| assert_eq!(sys::lseek(&f, 0, libc::SEEK_END).expect("seek"), 2 * PAGE as i64)),
            1
        );
        assert_eq!(asks(&|| assert!(sys::lseek(&f, 1, libc::SEEK_CUR).is_ok())), 0);
        assert_eq!(asks(&|| assert_eq!(map.get(PAGE), b'a')), 0, "fault");
        assert_eq!(asks(&|| f.write_all_at(b"x", 0).expect("write")), 0);
        let direct = open(&m, DIRECT | KEEP_CACHE);
        assert_eq!(asks(&|| assert_ne!(byte(&direct, 0), 0)), 0, "direct read");
        assert_eq!(asks(&|| assert_eq!(direct.read_at(&mut [0; 100], 9 * PAGE as u64).expect("read"), 0)), 0);
        assert_eq!(asks(&|| direct.write_all_at(b"x", 0).expect("write")), 0);
    }
}

#[test]
fn q05_what_a_size_or_mtime_seen_in_attributes_does_to_pages() {
    // (mode, pages kept when grown, when only mtime changed)
    let expect = [
        (PageInvalidation::Explicit, true, true),
        (PageInvalidation::OnSize, false, true),
        (PageInvalidation::OnSizeOrMtime, false, false),
    ];
    for (mode, grown, touched) in expect {
        let m = mount_with(mode);
        let ino = m.put("f", &[b'a'; 2 * PAGE]);
        let f = open(&m, 0);
        let kept = || {
            m.fs.take_log();
            byte(&f, 0);
            m.fs.count(is_read) == 0
        };
        byte(&f, 0);
        m.fs.remote_write(ino, 2 * PAGE, b"more", true);
        f.metadata().expect("fstat");
        assert_eq!(kept(), grown, "size: {mode:?}");
        m.fs.remote_write(ino, 0, b"B", true);
        f.metadata().expect("fstat");
        assert_eq!(kept(), touched, "mtime: {mode:?}");
        m.fs.remote_write(ino, 0, b"C", false);
        f.metadata().expect("fstat");
        assert!(kept(), "neither: {mode:?}");
    }
}

#[test]
fn q05_under_auto_invalidation_own_writes_drop_all_pages() {
    for mode in ALL_MODES {
        let m = mount_with(mode);
        m.put("f", &[b'a'; 2 * PAGE]);
        let (cached, direct) = (open(&m, 0), open(&m, DIRECT | KEEP_CACHE));
        byte(&cached, PAGE as u64);
        direct.write_all_at(b"b", 0).expect("write");
        m.fs.take_log();
        byte(&cached, PAGE as u64);
        assert_eq!(m.fs.count(is_read) > 0, mode == PageInvalidation::OnSizeOrMtime, "{mode:?}");
    }
}

#[test]
fn q05_keep_cache_keeps_pages_over_opens_while_attributes_stay() {
    for mode in ALL_MODES {
        let m = mount_with(mode);
        let ino = m.put("f", &[b'a'; 2 * PAGE]);
        byte(&open(&m, KEEP_CACHE), 0);
        let reads_again = || {
            let f = open(&m, KEEP_CACHE);
            m.fs.take_log();
            byte(&f, 0);
            m.fs.count(is_read) > 0
        };
        assert!(!reads_again(), "{mode:?}");
        m.fs.remote_write(ino, 0, b"B", true);
        assert_eq!(
            reads_again(),
            mode == PageInvalidation::OnSizeOrMtime,
            "mtime seen by the lookup: {mode:?}"
        );
        m.fs.remote_write(ino, 2 * PAGE, b"B", true);
        assert_eq!(reads_again(), mode != PageInvalidation::Explicit, "size seen by the lookup: {mode:?}");
    }
}

#[test]
fn q05_a_smaller_size_seen_in_attributes_cuts_the_pages() {
    for mode in ALL_MODES {
        let m = mount_with(mode);
        let ino = m.put("f", &[b'a'; 2 * PAGE]);
        let f = open(&m, 0);
        byte(&f, PAGE as u64 + 200);
        m.fs.remote_truncate(ino, 100);
        assert_eq!(f.metadata().expect("fstat").len(), 100);
        assert_eq!(f.read_at(&mut [0; 10], 100).expect("read"), 0);
        m.fs.remote_write(ino, 200, b"x", true);
        f.metadata().expect("fstat");
        assert_eq!((byte(&f, 99), byte(&f, 150)), (b'a', 0), "{mode:?}");
    }
}

#[test]
fn q05_under_explicit_invalidation_the_old_tail_of_a_page_reads_as_zeros_after_growth() {
    for (mode, sees) in [(PageInvalidation::Explicit, 0), (PageInvalidation::OnSize, b'b')] {
        let m = mount_with(mode);
        let ino = m.put("f", &[b'a'; 100]);
        let f = open(&m, 0);
        byte(&f, 0);
        m.fs.remote_write(ino, 100, &[b'b'; 100], true);
        let mut all = [0xff; 300];
        assert_eq!(f.read_at(&mut all, 0).expect("read"), 200, "the new size is seen");
        assert_eq!(all[150], sees, "{mode:?}");
        m.notify(inval(ino, 100, 100));
        assert_eq!(byte(&f, 150), b'b', "an invalidation of the range that was written mends it");
    }
}

#[test]
fn q06_a_cached_read_over_the_known_end_sees_remote_growth() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; PAGE]);
    let f = open(&m, 0);
    assert_eq!(f.read_at(&mut [0; 2 * PAGE], 0).expect("read"), PAGE);
    m.fs.remote_write(ino, PAGE, &[b'b'; PAGE], true);
    assert_eq!(byte(&f, PAGE as u64 + 5), b'b');
    m.fs.policy(|p| p.attr_valid = Duration::from_secs(600));
    f.metadata().expect("fstat");
    m.fs.remote_write(ino, 2 * PAGE, b"c", true);
    assert_eq!(f.read_at(&mut [0; 1], 2 * PAGE as u64).expect("read"), 0, "not while attributes are valid");
    m.notify(Notice::InvalAttr { ino });
    assert_eq!(byte(&f, 2 * PAGE as u64), b'c');
}

#[test]
fn q06_a_mapping_sees_growth_only_after_attributes_were_asked_for() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; PAGE]);
    let f = open(&m, DIRECT);
    let map = Mapping::shared(&f, 2 * PAGE).expect("mmap");
    assert_eq!(map.get(0), b'a');
    m.fs.remote_write(ino, PAGE, b"b", true);
    let killed = Mapping::shared(&f, 2 * PAGE).expect("mmap");
    assert_eq!(killed.try_get(PAGE), None, "SIGBUS: the kernel does not ask");
    f.metadata().expect("fstat");
    assert_eq!(map.get(PAGE), b'b');
}

#[test]
fn q06_direct_reads_see_remote_changes_and_leave_the_known_size() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 100]);
    let f = open(&m, DIRECT);
    m.fs.remote_write(ino, 100, b"bcd", true);
    let mut room = [0; 200];
    assert_eq!(f.read_at(&mut room, 0).expect("read"), 103);
    m.fs.remote_truncate(ino, 50);
    assert_eq!(f.read_at(&mut room, 0).expect("read"), 50);
}

#[test]
fn q06_a_remote_truncation_is_not_seen_inside_the_known_size_until_invalidated() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 2 * PAGE]);
    let f = open(&m, 0);
    byte(&f, 0);
    byte(&f, PAGE as u64);
    m.fs.remote_truncate(ino, 100);
    assert_eq!(byte(&f, 200), b'a', "from the page, without a question");
    m.notify(inval(ino, 100, 0));
    let mut room = [0xff; 300];
    let n = f.read_at(&mut room, 0).expect("read");
    assert_eq!(n, 100, "the short answer to READ cuts the known size");
}

// ---- 7: writes through a cached descriptor ----

#[test]
fn q07_a_cached_write_goes_through_at_once_and_leaves_whole_pages() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 4 * PAGE]);
    let f = open(&m, 0);
    f.write_all_at(&[b'b'; PAGE], 0).expect("write");
    assert_eq!(m.fs.contents(ino)[0], b'b', "before write returns");
    f.write_all_at(b"c", 2 * PAGE as u64 + 10).expect("write");
    m.fs.take_log();
    assert_eq!(byte(&f, 0), b'b');
    assert_eq!(letters(&m), "", "a whole page stays in the cache");
    assert_eq!(byte(&f, 2 * PAGE as u64), b'a');
    assert_eq!(letters(&m), "R", "a part of a page does not make it valid");
    f.write_all_at(b"d", 2 * PAGE as u64).expect("write");
    m.fs.take_log();
    assert_eq!(byte(&f, 2 * PAGE as u64), b'd');
    assert_eq!(letters(&m), "", "a part written into a valid page stays");
    f.sync_all().expect("fsync");
    assert_eq!(letters(&m), "S", "nothing is left to write");
}

#[test]
fn q07_readers_see_a_cached_write_before_it_is_answered() {
    let m = Mount::new();
    m.put("f", &[b'a'; PAGE]);
    let f = open(&m, 0);
    let gate = m.fs.gate(is_write);
    let g = f.try_clone().expect("dup");
    let writer = thread::spawn(move || g.write_all_at(&[b'b'; PAGE], 0));
    eventually("in flight", || gate.arrived() == 1);
    assert_eq!(byte(&f, 0), b'b');
    gate.open();
    writer.join().expect("join").expect("write");
}

#[test]
fn q07_invalidation_waits_for_a_cached_write_of_a_part_of_a_page() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; PAGE]);
    let f = open(&m, 0);
    let gate = m.fs.gate(is_write);
    let writer = thread::spawn(move || f.write_all_at(b"b", 0));
    eventually("in flight", || gate.arrived() == 1);
    let answer = m.notify_later(inval(ino, 0, 0));
    assert!(waits(&answer));
    gate.open();
    assert_eq!(answered(&answer), Outcome::Done);
    writer.join().expect("join").expect("write");
}

#[test]
fn q07_a_cached_append_after_remote_growth_leaves_wrong_pages() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 100]);
    let append = |flags: u32| {
        m.fs.open_with(flags);
        OpenOptions::new().read(true).append(true).open(m.path("f")).expect("open")
    };
    let mut f = append(0);
    byte(&f, 0);
    m.fs.remote_write(ino, 100, &[b'b'; 100], true);
    f.write_all(b"cc").expect("append");
    assert_eq!(&m.fs.contents(ino)[99..102], b"abb");
    assert_eq!(&m.fs.contents(ino)[200..], b"cc", "the server appends at the real end");
    assert_eq!(byte(&f, 100), b'c', "but the page has it at the kernel's idea of the end");
    drop(f);
    m.notify(inval(ino, 0, 0));
    let mut f = append(DIRECT);
    f.metadata().expect("fstat");
    m.fs.remote_write(ino, 202, b"dd", true);
    f.write_all(b"ee").expect("append");
    assert_eq!((byte(&f, 202), byte(&f, 204)), (b'd', b'e'), "a direct append has no such page");
}

// ---- 8 and 9: truncation ----

#[test]
fn q08_open_with_truncation_sends_no_setattr_and_drops_all_pages() {
    let m = Mount::new();
    m.put("f", &[b'a'; 2 * PAGE]);
    for flags in [0, KEEP_CACHE, DIRECT | KEEP_CACHE] {
        let cached = open(&m, 0);
        cached.write_all_at(&[b'a'; 2 * PAGE], 0).expect("write");
        let map = Mapping::shared(&cached, 2 * PAGE).expect("mmap");
        map.set(PAGE, b'x');
        m.fs.open_with(flags);
        m.fs.take_log();
        let truncated = OpenOptions::new().write(true).truncate(true).open(m.path("f")).expect("open");
        let log = m.fs.take_log();
        assert!(log.iter().any(|s| matches!(&s.op, Op::Open(o) if o.flags & libc::O_TRUNC as u32 != 0)));
        assert!(
            !log.iter().any(|s| is_write(s) || matches!(s.op, Op::Setattr(_))),
            "changed pages are thrown away"
        );
        assert_eq!(cached.metadata().expect("fstat").len(), 0);
        truncated.write_all_at(b"new", 10).expect("write");
        assert_eq!((byte(&cached, 0), byte(&cached, 10)), (0, b'n'), "{flags:#x}");
    }
}

#[test]
fn q08_open_with_truncation_waits_for_reads_in_flight_after_its_answer() {
    let m = Mount::new();
    m.put("f", &[b'a'; 2 * PAGE]);
    let cached = open(&m, 0);
    let gate = m.fs.gate(is_read);
    let reader = thread::spawn(move || cached.read_at(&mut [0; 10], 0));
    eventually("in flight", || gate.arrived() == 1);
    m.fs.open_with(DIRECT | KEEP_CACHE);
    m.fs.take_log();
    let path = m.path("f");
    let (opener, blocked) =
        start(move || OpenOptions::new().write(true).truncate(true).open(path).map(|_| ()));
    assert!(blocked);
    assert_eq!(letters(&m), "O");
    gate.open();
    opener.join().expect("join").expect("open");
    reader.join().expect("join").expect("read");
}

#[test]
fn q08_open_with_truncation_in_flight_holds_no_invalidation_up() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; PAGE]);
    let map = Mapping::shared(&open(&m, DIRECT), PAGE).expect("mmap");
    map.set(0, b'b');
    let gate = m.fs.gate(|s| matches!(s.op, Op::Open(_)));
    let path = m.path("f");
    let opener = thread::spawn(move || OpenOptions::new().write(true).truncate(true).open(path).map(|_| ()));
    eventually("in flight", || gate.arrived() == 1);
    m.fs.take_log();
    assert_eq!(m.notify(inval(ino, 0, 0)), Outcome::Done, "unlike SETATTR");
    assert_eq!(m.fs.count(cache_write), 1);
    gate.open();
    opener.join().expect("join").expect("open");
}

#[test]
fn q09_a_local_truncation_drops_pages_after_its_answer_and_waits_for_reads_in_flight() {
    let m = Mount::new();
    m.put("f", &[b'a'; 4 * PAGE]);
    let f = open(&m, 0);
    let gate = m.fs.gate(is_read);
    let reader = {
        let f = f.try_clone().expect("dup");
        thread::spawn(move || f.read_at(&mut [0; 10], 2 * PAGE as u64))
    };
    eventually("in flight", || gate.arrived() >= 1);
    m.fs.take_log();
    let g = f.try_clone().expect("dup");
    let (cutter, blocked) = start(move || g.set_len(PAGE as u64));
    assert!(blocked);
    assert_eq!(letters(&m), "T", "SETATTR was answered, the READ was not");
    gate.open();
    cutter.join().expect("join").expect("truncate");
    reader.join().expect("join").expect("read");
    assert_eq!(f.read_at(&mut [0; 10], PAGE as u64).expect("read"), 0);
}

#[test]
fn q09_while_setattr_of_the_size_is_in_flight_changed_pages_cannot_be_written_back() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 4 * PAGE]);
    let f = open(&m, DIRECT);
    let map = Mapping::shared(&f, 4 * PAGE).expect("mmap");
    map.set(0, b'b');
    let gate = m.fs.gate(|s| matches!(s.op, Op::Setattr(_)));
    let g = f.try_clone().expect("dup");
    let cutter = thread::spawn(move || g.set_len(PAGE as u64));
    eventually("in flight", || gate.arrived() == 1);
    m.fs.take_log();
    assert_eq!(m.notify(inval(ino, PAGE as u64, 1)), Outcome::Done, "a page that is not changed");
    let answer = m.notify_later(inval(ino, 0, 1));
    assert!(waits(&answer), "so an invalidation of a changed page waits for the SETATTR");
    assert_eq!(letters(&m), "");
    gate.open();
    assert_eq!(answered(&answer), Outcome::Done);
    cutter.join().expect("join").expect("truncate");
    assert_eq!(m.fs.count(cache_write), 1);
}

#[test]
fn q09_setattr_of_the_size_waits_for_writeback_and_direct_writes_in_flight() {
    let m = Mount::new();
    m.put("f", &[b'a'; 4 * PAGE]);
    let f = open(&m, DIRECT);
    let gate = m.fs.gate(is_write);
    let g = f.try_clone().expect("dup");
    let writer = thread::spawn(move || g.write_all_at(b"x", 0));
    eventually("in flight", || gate.arrived() == 1);
    m.fs.take_log();
    let g = f.try_clone().expect("dup");
    let (cutter, blocked) = start(move || g.set_len(PAGE as u64));
    assert!(blocked);
    assert_eq!(letters(&m), "", "SETATTR is not sent before the write is answered");
    gate.open();
    cutter.join().expect("join").expect("truncate");
    writer.join().expect("join").expect("write");
}

#[test]
fn q09_the_inode_lock_makes_these_wait_for_direct_writes_in_flight() {
    let m = Mount::new();
    m.put("f", &[b'a'; 4 * PAGE]);
    let f = open(&m, DIRECT);
    type Call = (&'static str, fn(&File), bool);
    let calls: [Call; 6] = [
        ("fsync", |f| f.sync_all().expect("fsync"), true),
        ("lseek to the end", |f| assert!(sys::lseek(f, 0, libc::SEEK_END).is_ok()), true),
        ("close", |f| drop(f.try_clone().expect("dup")), false),
        ("fstat", |f| assert!(f.metadata().is_ok()), false),
        ("direct read", |f| assert_ne!(byte(f, 0), 0), false),
        ("a direct write elsewhere", |f| f.write_all_at(b"y", 2 * PAGE as u64).expect("write"), false),
    ];
    for (what, call, waits) in calls {
        let gate = m.fs.gate(|s| matches!(&s.op, Op::Write(w) if w.offset == 0));
        let (g, h) = (f.try_clone().expect("dup"), f.try_clone().expect("dup"));
        let writer = thread::spawn(move || g.write_all_at(b"x", 0));
        eventually("in flight", || gate.arrived() == 1);
        let (caller, blocked) = start(move || {
            call(&h);
            std::mem::forget(h);
        });
        assert_eq!(blocked, waits, "{what}");
        gate.open();
        caller.join().expect("join");
        writer.join().expect("join").expect("write");
    }
}

#[test]
fn q09_fsync_in_flight_holds_up_direct_writes_but_not_reads() {
    let m = Mount::new();
    m.put("f", &[b'a'; 4 * PAGE]);
    let f = open(&m, DIRECT);
    let gate = m.fs.gate(|s| matches!(s.op, Op::Fsync(_)));
    let g = f.try_clone().expect("dup");
    let syncer = thread::spawn(move || g.sync_all());
    eventually("in flight", || gate.arrived() == 1);
    assert_eq!(byte(&f, 0), b'a');
    let g = f.try_clone().expect("dup");
    let (writer, blocked) = start(move || g.write_all_at(b"x", 0));
    assert!(blocked);
    gate.open();
    writer.join().expect("join").expect("write");
    syncer.join().expect("join").expect("fsync");
}

// ---- 10: programs, splice ----

#[test]
fn q10_programs_run_from_cached_and_direct_files() {
    let m = Mount::new();
    for flags in [0, KEEP_CACHE, DIRECT, DIRECT | KEEP_CACHE] {
        m.fs.open_with(flags);
        let program = m.path(&format!("true{flags}"));
        fs::copy("/bin/true", &program).expect("copy");
        m.fs.take_log();
        assert!(std::process::Command::new(&program).status().expect("exec").success());
        let log = m.fs.take_log();
        let cached = log.iter().any(|s| matches!(&s.op, Op::Read(r) if r.lock_owner.is_none()));
        assert!(
            cached || flags == 0 || flags == KEEP_CACHE,
            "a direct program is mapped through the page cache"
        );
        let busy = OpenOptions::new().write(true).open(m.path("true0"));
        drop(busy.expect("not running any more"));
    }
}

#[test]
fn q10_sendfile_from_a_direct_descriptor_goes_through_the_page_cache() {
    let m = Mount::new();
    let ino = m.put("f", &[b'a'; 2 * PAGE]);
    let f = open(&m, DIRECT);
    let send = || {
        let mut out = tempfile::tempfile().expect("a file");
        rustix::fs::sendfile(&out, &f, Some(&mut 0), 2 * PAGE).expect("sendfile");
        out.flush().expect("flush");
        byte(&out, 10)
    };
    m.fs.take_log();
    assert_eq!(send(), b'a');
    assert_eq!(letters(&m), "R", "told from a direct read");
    assert_eq!(send(), b'a');
    assert_eq!(letters(&m), "", "the pages stay");
    m.fs.remote_write(ino, 10, b"B", true);
    assert_eq!(send(), b'a', "and are used although the descriptor is direct");
    m.notify(inval(ino, 10, 1));
    assert_eq!(send(), b'B');
    f.write_all_at(b"C", 10).expect("write");
    assert_eq!(send(), b'C');
}

// ---- 11: signals and pages ----

extern "C" fn ignore(_: i32) {}

/// A process with a shared mapping of `f`; signals do nothing to it.
fn mapper(m: &Mount) -> Mapping {
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, ignore as *const () as usize) };
    Mapping::shared(&open(m, DIRECT | KEEP_CACHE), PAGE).expect("mmap")
}

/// Faults on its first page.
fn fault(map: Mapping) -> (libc::pid_t, JoinHandle<Option<u8>>) {
    (map.pid(), thread::spawn(move || map.try_get(0)))
}

fn kill(pid: libc::pid_t, signal: i32) {
    // SAFETY: a child of ours that was not waited for.
    unsafe { libc::kill(pid, signal) };
}

#[test]
fn q11_a_fault_whose_read_is_answered_eintr_asks_again_after_the_signal() {
    let m = Mount::new();
    m.put("f", &[b'a'; PAGE]);
    let map = mapper(&m).without_read_ahead();
    let gate = m.fs.gate(is_read);
    let (pid, touched) = fault(map);
    eventually("in flight", || gate.arrived() == 1);
    // A signal like any timer's.
    kill(pid, libc::SIGUSR1);
    eventually("it asks again", || gate.arrived() == 2);
    gate.open();
    assert_eq!(touched.join().expect("join"), Some(b'a'));
}

#[test]
fn q11_a_page_read_that_ends_with_its_killed_caller_is_repeated_by_others_who_wait() {
    let m = Mount::new();
    m.put("f", &[b'a'; PAGE]);
    let (first, second) = (mapper(&m).without_read_ahead(), mapper(&m).without_read_ahead());
    let gate = m.fs.gate(is_read);
    let (pid, killed) = fault(first);
    eventually("in flight", || gate.arrived() == 1);
    let (_, waiter) = fault(second);
    thread::sleep(WAITS);
    assert_eq!(gate.arrived(), 1, "the second waits for the page");
    kill(pid, libc::SIGKILL);
    assert_eq!(killed.join().expect("join"), None);
    eventually("it asks itself", || gate.arrived() == 2);
    gate.open();
    assert_eq!(waiter.join().expect("join"), Some(b'a'));
}

#[test]
fn q11_read_ahead_belongs_to_nobody_and_its_waiters_can_be_killed() {
    let m = Mount::new();
    m.put("f", &[b'a'; PAGE]);
    let (first, second) = (mapper(&m), mapper(&m));
    let gate = m.fs.gate(is_read);
    let (pid, killed) = fault(first);
    eventually("in flight", || gate.arrived() == 1);
    let (_, waiter) = fault(second);
    kill(pid, libc::SIGKILL);
    assert_eq!(killed.join().expect("join"), None, "gone without an INTERRUPT");
    thread::sleep(WAITS);
    assert_eq!(gate.arrived(), 1, "the READ goes on for the other");
    gate.open();
    assert_eq!(waiter.join().expect("join"), Some(b'a'));
}

#[test]
fn q11_mapping_a_direct_file_waits_for_reads_into_the_cache_in_flight() {
    let m = Mount::new();
    m.put("f", &[b'a'; PAGE]);
    let gate = m.fs.gate(is_read);
    let (_, touched) = fault(mapper(&m));
    eventually("in flight", || gate.arrived() == 1);
    let f = open(&m, DIRECT | KEEP_CACHE);
    let (mapping, blocked) = start(move || Mapping::shared(&f, PAGE).map(|_| ()));
    assert!(blocked);
    gate.open();
    mapping.join().expect("join").expect("mmap");
    assert_eq!(touched.join().expect("join"), Some(b'a'));
}

// ---- 12: names ----

#[test]
fn q12_which_notices_wait_for_a_create_in_flight_in_the_directory() {
    let m = Mount::new();
    let ino = m.put("f", b"");
    fs::metadata(m.path("f")).expect("stat");
    let gate = m.fs.gate(|s| matches!(s.op, Op::Create(_)));
    let path = m.path("new");
    let creator = thread::spawn(move || File::create(path).map(|_| ()));
    eventually("in flight", || gate.arrived() == 1);
    assert_eq!(m.notify(Notice::InvalAttr { ino: 1 }), Outcome::Done);
    assert_eq!(m.notify(inval(1, 0, 0)), Outcome::Done);
    assert_eq!(m.notify(Notice::IncEpoch), Outcome::Done);
    let entry = m.notify_later(Notice::InvalEntry { parent: 1, name: "f".into(), expire_only: false });
    let expire = m.notify_later(Notice::InvalEntry { parent: 1, name: "f".into(), expire_only: true });
    let delete = m.notify_later(Notice::Delete { parent: 1, child: ino, name: "f".into() });
    assert!(waits(&entry) && waits(&expire) && waits(&delete));
    gate.open();
    creator.join().expect("join").expect("create");
    assert_eq!(answered(&entry), Outcome::Done);
    answered(&expire);
    answered(&delete);
}

#[test]
fn q12_an_epoch_ends_all_names_at_once() {
    let m = Mount::new();
    m.fs.policy(|p| p.entry_valid = Duration::from_secs(600));
    m.put("f", b"");
    fs::metadata(m.path("f")).expect("stat");
    m.fs.take_log();
    assert_eq!(fs::metadata(m.path("f")).expect("stat").nlink(), 1);
    let lookups = || m.fs.count(|s| matches!(s.op, Op::Lookup(_)));
    assert_eq!(lookups(), 0, "the name is valid");
    assert_eq!(m.notify(Notice::IncEpoch), Outcome::Done);
    fs::metadata(m.path("f")).expect("stat");
    assert_eq!(lookups(), 1, "until the epoch ends");
}

// ---- 13: a store to a mapped page while a direct write of the same page is under way ----

/// The page is read before the write has had its effect, and written back whole before write(2) returns: a server that took it as
/// it is would lose the write.
#[test]
fn q13_a_page_that_was_read_beside_a_direct_write_is_written_back_without_it_before_that_returns() {
    let m = Mount::new();
    m.put("f", &[b'a'; PAGE]);
    let direct = open(&m, DIRECT | KEEP_CACHE);
    let map = Mapping::shared(&direct, PAGE).expect("mmap");
    m.fs.take_log();
    let gate = m.fs.gate(|s| is_write(s) && !cache_write(s));
    let writing = {
        let direct = direct.try_clone().expect("dup");
        thread::spawn(move || direct.write_all_at(b"WWWW", 100).expect("write"))
    };
    eventually("the write has arrived", || gate.arrived() > 0);
    map.set(2000, b'M');
    gate.open();
    writing.join().expect("writer");
    let log = m.fs.take_log();
    let back = log.iter().find(|s| cache_write(s)).expect("the page was written back before write returned");
    let Op::Write(back) = &back.op else { unreachable!("cache_write is a WRITE") };
    assert_eq!((back.offset, back.data.len()), (0, PAGE));
    assert_eq!((&back.data[100..104], back.data[2000]), (&b"aaaa"[..], b'M'));
}
