//! A full disk: ENOSPC, nothing harmed, removing always works.

use brindle_types::Code;

use super::*;

fn other(n: u32) -> ObjectId {
    ObjectId { stripe: n, ..O }
}

#[test]
fn a_full_target_refuses_writes_and_keeps_what_it_has() {
    let mut b = Bench::new(5);
    b.disk.set_capacity_bytes(Some(60 << 20));
    let chunk = noise(1, 1 << 20);
    let mut written = 0;
    let fault = loop {
        match b.write_to(other(written / 8), u64::from(written % 8) << 20, &chunk) {
            Ok(_) => written += 1,
            Err(fault) => break fault,
        }
    };
    assert!(written > 40, "{written} MiB of 60");
    assert_eq!(fault.code, Code::OstFull);
    assert_eq!(fault.data, "nothing was written");
    assert!(b.store.space().expect("space").available_bytes < 2 << 20);
    b.write_to(other(0), 4096, &noise(2, 4096)).expect("what has its blocks can be overwritten");
    block_on(b.store.sync_all()).expect("synced");
    b.power_cut();
    for n in 1..written {
        let read = b.read_of(other(n / 8), u64::from(n % 8) << 20, 1 << 20).expect("read");
        assert!(read.data == chunk, "chunk {n}");
    }
    assert_eq!(block_on(b.store.destroy(&[other(0), other(1)])).expect("removed").removed, 2);
    b.clock.advance_ms(1000);
    b.write_to(other(99), 0, &chunk).expect("there is room again");
}

#[test]
fn running_out_of_blocks_in_the_middle_never_leaves_a_wrong_checksum() {
    // The file system below fills up by others' hands, far below the reserve.
    for room_pages in 0..12 {
        let b = Bench::new(6);
        b.write(0, &noise(1, 10_000)).expect("written");
        let space = brindle_stdx::Disk::space(&b.disk, "/ost").expect("space");
        b.clock.advance_ms(1);
        let used = space.total_bytes - space.available_bytes;
        b.disk.set_capacity_bytes(Some(used + room_pages * 4096));
        // The store still believes in the room that it asked for a moment ago.
        let outcome = b.write(8192, &noise(2, 30_000));
        let data = b.read(0, 1 << 20).expect("every block verifies");
        assert_eq!(&data[..8192], &noise(1, 10_000)[..8192]);
        match outcome {
            Ok(_) => assert_eq!(&data[8192..], &noise(2, 30_000)[..]),
            Err(fault) => assert_eq!(fault.code, Code::OstFull),
        }
    }
}
