//! Long writes: past the page cache, and on to the device while the stream goes on.

use super::*;
use crate::format::{BLOCK, REGION};
use crate::write::DIRECT_BYTES_MIN;
use crate::writeback_hint::EARLY_BYTES;
use brindle_sim::DiskOp;

/// Bytes that begin `head` bytes behind the start of a page of memory.
fn placed(head: usize, bytes: &[u8]) -> Bytes {
    let mut buffer = brindle_stdx::buffers::Buffer::new(head + bytes.len());
    buffer[head..].copy_from_slice(bytes);
    buffer.freeze(head + bytes.len()).slice(head..)
}

#[test]
fn whole_blocks_of_long_writes_go_past_the_page_cache_and_their_edges_do_not() {
    let b = Bench::new(4);
    let region = REGION as usize;
    let mut expected = vec![0; 3 * region];
    // Each case has an offset, a length, and the number of bytes that are whole blocks of a piece that is
    // long enough.
    let cases = [
        (0, 1 << 20, 1 << 20),
        (0, (1 << 20) + 1000, 1 << 20),
        (4096 - 7, (1 << 20) + 7, 1 << 20),
        (100, 100_000, 0),
        (region - (1 << 20), 2 << 20, 2 << 20),
        // A small part of the write lies in the first region.
        (region - 8192, 1 << 20, (1 << 20) - 8192),
        (2 * region + 4096, (256 << 10) - 1, 0),
    ];
    for (seed, (offset, len, whole)) in cases.into_iter().enumerate() {
        let bytes = noise(seed as u64, len);
        expected[offset..offset + len].copy_from_slice(&bytes);
        let before = b.stat("direct_bytes");
        // Whole blocks must be aligned in memory, as they are in a received message.
        let head = offset % BLOCK as usize;
        let op = WriteOp {
            object: O,
            offset: offset as u64,
            crc: crc(&bytes),
            data: placed(head, &bytes),
            ticket: b.ticket,
            sync: false,
            covered: false,
        };
        let mut turn = b.store.slots().anonymous(None).expect("a turn");
        block_on(b.store.write(&op, &mut turn)).expect("written");
        assert_eq!(b.stat("direct_bytes") - before, whole as u64, "{len} bytes at {offset}");
    }
    let len = b.len();
    assert_eq!(b.read(0, len).expect("read"), expected[..len as usize]);
    // Bytes that lie anywhere in memory are written all the same.
    let before = b.stat("direct_bytes");
    let op = WriteOp {
        object: O,
        offset: 0,
        crc: crc(&expected[..1 << 20]),
        data: placed(1, &expected[..1 << 20]),
        ticket: b.ticket,
        sync: false,
        covered: false,
    };
    let mut turn = b.store.slots().anonymous(None).expect("a turn");
    block_on(b.store.write(&op, &mut turn)).expect("written");
    assert_eq!(b.stat("direct_bytes"), before);
}

#[test]
fn long_reads_go_past_the_page_cache_until_something_is_read_again() {
    let b = Bench::new(8);
    stream(&b, 0, 8 << 20);
    let direct = |offset: u64, len: u64| {
        let before = b.stat("direct_read_bytes");
        let expected = noise(7, 1 << 20);
        let read = b.read(offset, len).expect("read");
        assert!(
            read.iter()
                .zip(expected.iter().cycle().skip(offset as usize % expected.len()))
                .all(|(a, b)| a == b)
        );
        b.stat("direct_read_bytes") - before
    };
    assert_eq!(direct(0, 1 << 20), 1 << 20);
    assert_eq!(direct(1 << 20, 100_000), 0, "short");
    assert_eq!(
        direct((1 << 20) + 100, 1 << 20),
        (1 << 20) + BLOCK,
        "with the blocks that it begins and ends in"
    );
    assert_eq!(direct((3 << 20) + 100, DIRECT_BYTES_MIN as u64), DIRECT_BYTES_MIN as u64 + BLOCK);
    assert_eq!(direct(7 << 20, 2 << 20), 1 << 20, "as far as the object goes");
    assert_eq!(direct(0, 1 << 20), 0, "again");
    assert_eq!(direct(4 << 20, 1 << 20), 0, "with others that are read next");
    let object = block_on(b.store.ready(O)).expect("it is there");
    object.state.lock().keep_bytes = 1 << 20;
    assert_eq!(direct(5 << 20, 1 << 20), 1 << 20, "until it is forgotten");
}

#[test]
fn the_switch_of_the_read_cache_keeps_all_reads_or_none() {
    for (read_cache, direct_bytes) in [(ReadCache::On, 0), (ReadCache::Off, 2 << 20)] {
        let mut b = Bench::new(11);
        let config = StoreConfig {
            root: "/ost".into(),
            fs_id: FS_ID,
            replies: Replies::Written,
            is_member: false,
            read_cache,
        };
        b.store =
            block_on(ObjectStore::open(b.clock.seams(Arc::new(b.disk.clone())), config)).expect("opens");
        stream(&b, 0, 1 << 20);
        for _ in 0..2 {
            assert_eq!(b.read(0, 1 << 20).expect("read"), noise(7, 1 << 20));
        }
        assert_eq!(b.stat("direct_read_bytes"), direct_bytes, "{read_cache}");
        assert_eq!(b.read(4096, 8192).expect("short").len(), 8192);
        assert_eq!(b.stat("direct_read_bytes"), direct_bytes, "{read_cache}: short reads go through it");
    }
}

/// A stream of `len` bytes, in pieces of a MiB.
fn stream(b: &Bench, from: u64, len: u64) {
    let bytes = noise(7, 1 << 20);
    for offset in (from..from + len).step_by(1 << 20) {
        let data = placed(0, &bytes);
        let crc = crc(&data);
        let op = WriteOp { object: O, offset, data, crc, ticket: b.ticket, sync: false, covered: false };
        let mut turn = b.store.slots().anonymous(None).expect("a turn");
        block_on(b.store.write(&op, &mut turn)).expect("written");
    }
}

#[test]
fn what_the_device_does_not_have_yet_is_read_from_the_page_cache() {
    let b = Bench::new(9);
    stream(&b, 0, 1 << 20);
    b.disk.make_direct_reads_stale();
    assert_eq!(b.read(0, 1 << 20).expect("read"), noise(7, 1 << 20));
    assert_eq!(b.stat("damaged_blocks"), 0);
    assert_eq!(b.stat("direct_read_bytes"), 1 << 20, "it was tried");
}

#[test]
fn the_device_is_asked_early_to_write_a_stream_down() {
    let b = Bench::new(5);
    stream(&b, 0, EARLY_BYTES - (1 << 20));
    assert!(!block_on(b.store.sync_early_once()), "not enough yet");
    stream(&b, EARLY_BYTES - (1 << 20), 1 << 20);
    let syncs = b.stat("fdatasyncs");
    assert!(block_on(b.store.sync_early_once()));
    assert_eq!(b.stat("fdatasyncs") - syncs, 1);
    assert!(!block_on(b.store.sync_early_once()), "once is enough");
    // An early sync promises nothing.
    let object = block_on(b.store.ready(O)).expect("it is there");
    assert!(!object.state.lock().clean());
    assert_eq!(b.stat("object_syncs"), 0);
    // A sync under way does the same.
    stream(&b, 0, EARLY_BYTES);
    let syncing = block_on(object.syncing.lock());
    assert!(block_on(b.store.sync_early_once()));
    assert_eq!(b.stat("early_syncs"), 1);
    drop(syncing);
    // A removed object needs no sync.
    stream(&b, 0, EARLY_BYTES);
    block_on(b.store.destroy(&[O])).expect("destroyed");
    assert!(block_on(b.store.sync_early_once()));
    assert_eq!(b.stat("early_syncs"), 1);
}

#[test]
fn what_an_early_sync_could_not_write_is_told_to_those_who_wrote_it() {
    let b = Bench::new(6);
    stream(&b, 0, EARLY_BYTES);
    let term = b.store.boot_term();
    b.disk.fail_next(DiskOp::SyncFile, 1);
    assert!(block_on(b.store.sync_early_once()));
    assert!(
        b.sync().expect("what can be synced is") > term,
        "clients know by the term that something may be lost"
    );
}
