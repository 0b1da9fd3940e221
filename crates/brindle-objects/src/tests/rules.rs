//! Epochs, terms, names: the promises of an object store other than its bytes.

use brindle_sim::DiskOp;
use brindle_stdx::disk::{Disk, OpenHow};
use brindle_types::{Code, SessionId};
use brindle_wire::oss::write::Claim;
use futures_util::FutureExt;

use super::*;
use crate::format::{BLOCK, OBJECT_LEN_MAX, REGION};

#[test]
fn checksums_of_the_sender_are_verified() {
    let b = Bench::new(1);
    let op = WriteOp {
        object: O,
        offset: 3,
        data: Bytes::from_static(b"abc"),
        crc: 1,
        ticket: b.ticket,
        sync: false,
        covered: false,
    };
    let mut turn = b.store.slots().anonymous(None).expect("a turn");
    let fault = block_on(b.store.write(&op, &mut turn)).expect_err("damaged on the way");
    assert_eq!((fault.code, fault.data.as_ref()), (Code::BadChecksum, "nothing was written"));
    assert!(!b.read_of(O, 0, 10).expect("read").exists);
}

#[test]
fn fences_hold_for_objects_that_exist_and_that_do_not_and_survive_power_cuts() {
    let mut b = Bench::new(2);
    block_on(b.store.fence_layout(O, pair(3))).expect("fenced");
    block_on(b.store.truncate(ObjectId { stripe: 1, ..O }, 0, pair(4), false, false)).expect("cut");
    b.power_cut();
    assert!(!b.read_of(ObjectId { stripe: 1, ..O }, 0, 1).expect("read").exists, "fences make no object");
    let ticket = |layout, truncate| Ticket {
        layout_epoch: pair(layout),
        truncate_epoch: pair(truncate),
        ..Ticket::default()
    };
    b.ticket = ticket(2, 9);
    assert_eq!(b.write(0, b"x").expect_err("an old layout").code, Code::StaleLayout);
    b.ticket = ticket(3, 0);
    b.write(0, b"x").expect("the fenced epoch itself");
    assert_eq!(b.write_to(ObjectId { stripe: 1, ..O }, 0, b"x").expect_err("cut").code, Code::StaleLayout);
    let (list, end) = block_on(b.store.list(None, 10)).expect("listed");
    let mut found: Vec<_> = list.iter().map(|l| (l.object.stripe, l.exists, l.len_bytes)).collect();
    found.sort_unstable();
    assert_eq!((found, end), (vec![(0, true, 1), (1, false, 0)], true));

    block_on(b.store.fence_sessions(vec![(SessionId(4), pair(8))])).expect("fenced");
    b.power_cut();
    assert_eq!(b.store.check_session(SessionId(4), pair(7)).expect_err("old").code, Code::Fenced);
    b.store.check_session(SessionId(4), pair(8)).expect("current");
}

#[test]
fn what_a_power_cut_keeps_behind_a_fence_is_nobodys() {
    for seed in 0..60 {
        let mut b = Bench::new(seed);
        block_on(b.store.truncate(O, 0, pair(4), false, false)).expect("a fence");
        b.ticket.truncate_epoch = pair(4);
        b.write(0, &[1; 40_000]).expect("written");
        b.power_cut();
        let lost = !b.read_of(O, 0, 1).expect("read").exists;
        // Part of a block that the cut may have torn.
        b.write(5000, &[2; 100]).expect("never damage");
        let read = b.read_of(O, 0, 40_000).expect("never damage");
        assert_eq!(&read.data[5000..5100], &[2; 100]);
        if lost {
            assert!(read.data[..5000].iter().all(|byte| *byte == 0), "seed {seed}: what was lost comes back");
            assert_eq!(b.len(), 5100, "seed {seed}");
        }
    }
}

#[test]
fn a_cut_happens_once() {
    let mut b = Bench::new(3);
    b.write(0, &[1; 10_000]).expect("written");
    b.truncate(100).expect("cut");
    b.write(0, &[2; 5000]).expect("written");
    block_on(b.store.truncate(O, 100, b.ticket.truncate_epoch, true, false)).expect("the same cut again");
    assert_eq!(b.len(), 5000);
    b.restart();
    assert_eq!(b.len(), 5000);
}

/// A length that the file system below cannot hold is refused, and whatever happens then, the object is what it was.
#[test]
fn an_object_that_would_be_too_large_stays_what_it_was() {
    let mut b = Bench::new(40);
    b.write(0, &noise(1, 5000)).expect("written");
    b.sync().expect("synced");
    b.disk.limit_len(1 << 44);
    assert_eq!(b.truncate(20 << 40).expect_err("as on ext4").code, Code::TooLarge);
    assert_eq!(b.len(), 5000);
    b.power_cut();
    assert_eq!(b.len(), 5000);
    assert_eq!(b.read(0, 5000).expect("synced"), noise(1, 5000));
    b.write(5000, b"more").expect("under the epoch of before");
}

#[test]
fn numbers_beyond_every_object_are_refused_and_change_nothing() {
    let b = Bench::new(1);
    b.write(0, b"here").expect("written");
    let all = [OBJECT_LEN_MAX, 1 << 62, i64::MAX as u64, u64::MAX - 4095, u64::MAX];
    for at in all {
        for data in [&b"xy"[..], &[7; 5000]] {
            assert_eq!(b.write(at, data).expect_err("beyond the end").code, Code::TooLarge, "write at {at}");
        }
        assert!(b.read(at, u64::MAX).expect("nothing is there").is_empty());
        b.punch(at, u64::MAX, false).expect("nothing is there");
        assert_eq!(block_on(b.store.seek(O, at, true, true)), Ok(None));
        for len in all {
            assert_eq!(b.allocate(at, len, false).expect_err("too much").code, Code::TooLarge);
        }
        assert!(block_on(b.store.verify(O, at, u64::MAX)).expect("nothing is there").sums.is_empty());
        let (image, sums) = block_on(b.store.look(O, at, u64::MAX)).expect("looked at");
        assert_eq!((image.len_bytes, sums.len()), (4, 0));
    }
    assert_eq!(b.read(0, u64::MAX).expect("read"), &b"here"[..]);
}

#[test]
fn an_extension_that_the_disk_refuses_never_comes_true() {
    for power in [false, true] {
        let mut b = Bench::new(41);
        b.write(0, &noise(1, 5000)).expect("written");
        b.sync().expect("synced");
        b.disk.fail_next(DiskOp::SyncFile, 1);
        assert_eq!(b.truncate(9000).expect_err("refused").code, Code::OstIo);
        assert_eq!(b.len(), 5000);
        b.write(100, b"more").expect("under the epoch of before");
        b.sync().expect("synced");
        match power {
            true => b.power_cut(),
            false => b.restart(),
        }
        assert_eq!(b.len(), 5000);
        assert_eq!(b.read(100, 4).expect("synced"), b"more"[..]);
        assert_eq!(b.read(200, 4800).expect("synced"), noise(1, 5000)[200..]);
        b.truncate(9000).expect("extended");
        assert_eq!(b.read(5000, 4000).expect("a hole"), [0; 4000][..]);
    }
}

/// An extension of a file makes only the object longer that holds the last byte: if its OST refuses, no other object has
/// become longer.
#[test]
fn nothing_is_extended_without_need() {
    let mut b = Bench::new(42);
    b.write(0, &[1; 5000]).expect("written");
    block_on(b.store.truncate(O, 9000, pair(1), false, false)).expect("fenced");
    assert_eq!(b.len(), 5000);
    assert_eq!(b.write(0, b"late").expect_err("of before the cut").code, Code::StaleLayout);
    block_on(b.store.truncate(O, 4000, pair(2), false, false)).expect("cut");
    b.power_cut();
    assert_eq!(b.len(), 4000);
}

#[test]
fn an_object_that_cannot_be_put_right_can_be_removed() {
    let b = Bench::new(43);
    b.write(0, &noise(1, 50_000)).expect("written");
    b.disk.fail_next(DiskOp::SyncFile, u64::MAX);
    b.sync().expect_err("failed");
    assert_eq!(b.read(0, 10).expect_err("it cannot be written again").code, Code::OstIo);
    let destroyed = block_on(b.store.destroy(&[O])).expect("answered");
    assert_eq!((destroyed.removed, destroyed.stuck), (1, Vec::new()));
}

#[test]
fn an_object_that_the_disk_keeps_keeps_no_other() {
    let b = Bench::new(44);
    let others = [1, 2].map(|stripe| ObjectId { stripe, ..O });
    for object in [O, others[0], others[1]] {
        b.write_to(object, 0, b"x").expect("written");
    }
    b.disk.stick(&b.store.path(&others[0]));
    let destroyed = block_on(b.store.destroy(&[O, others[0], others[1]])).expect("answered");
    assert_eq!((destroyed.removed, destroyed.stuck), (2, vec![others[0]]));
    assert!(!b.read_of(O, 0, 1).expect("read").exists);
    assert!(!b.read_of(others[1], 0, 1).expect("read").exists);
}

#[test]
fn destroyed_objects_stay_destroyed_and_unknown_ones_are_kept_aside() {
    let mut b = Bench::new(4);
    b.write(0, b"x").expect("written");
    assert_eq!(block_on(b.store.destroy(&[O, ObjectId { stripe: 7, ..O }])).expect("removed").removed, 1);
    assert_eq!(b.write(0, b"late").expect_err("a late write").code, Code::StaleLayout);
    b.power_cut();
    assert!(!b.read_of(O, 0, 1).expect("read").exists);
    let known = Ticket { must_exist: true, ..b.ticket };
    assert_eq!(
        block_on(b.store.read(O, 0, 1, &known)).expect_err("known to exist").code,
        Code::ObjectMissing
    );
    b.write(0, b"1").expect("after a restart only the MDT's word tells");
    block_on(b.store.quarantine(O)).expect("set aside");
    b.write(0, b"2").expect("written");
    block_on(b.store.quarantine(O)).expect("set aside");
    b.power_cut();
    let names = crate::check::quarantined(&b.disk, "/ost").expect("listed");
    assert_eq!(names, [O.to_string(), format!("{O}~1")]);
    assert_eq!(block_on(b.store.list(None, 10)).expect("listed").0, []);
}

#[test]
fn the_boot_term_changes_with_a_power_cut_or_a_failed_sync_and_not_with_a_kill() {
    let mut b = Bench::new(5);
    let first = b.write(0, &[1; 5000]).expect("written").boot_term;
    b.restart();
    assert_eq!(b.store.boot_term(), first);
    b.disk.fail_next(DiskOp::SyncFile, 1);
    assert_eq!(b.sync().expect_err("failed").code, Code::OstIo);
    let second = b.write(100, &[2; 10]).expect("written").boot_term;
    assert!(second > first);
    assert_eq!(b.sync().expect("synced"), second);
    b.restart();
    assert_eq!(b.store.boot_term(), second);
    b.power_cut();
    assert!(b.store.boot_term() > second);
    let mut expected = vec![1; 5000];
    expected[100..110].fill(2);
    assert_eq!(b.read(0, 5000).expect("synced"), expected);
}

/// A disk that refuses all writes: objects that were synced before can be read, even if they were not in use; all else is
/// refused at once.
#[test]
fn what_was_synced_is_read_from_a_disk_that_failed() {
    let mut b = Bench::new(6);
    let other = ObjectId { stripe: 9, ..O };
    b.write(0, &noise(1, 9000)).expect("written");
    b.sync().expect("synced");
    b.restart();
    b.write_to(other, 0, &[2; 5000]).expect("written");
    // Two syncs fail: that of the object, and that of the new boot term's record.
    b.disk.fail_next(DiskOp::SyncFile, 1);
    b.disk.fail_writes_at("/ost/boot", 0, u64::MAX);
    assert_eq!(block_on(b.store.sync(&[other])).expect_err("failed").code, Code::OstIo);
    assert!(b.store.failure().is_some());
    assert_eq!(b.read(0, 9000).expect("it was synced"), noise(1, 9000));
    assert_eq!(b.read_of(other, 0, 10).expect_err("it may be lost").code, Code::OstIo);
    assert_eq!(b.write(0, b"x").expect_err("nothing is taken").code, Code::OstIo);
    b.disk.fail_writes_at("/ost/boot", 0, 0);
    b.pass_ms(1000);
    assert!(b.store.failure().is_none(), "the disk is back");
    assert_eq!(b.read_of(other, 0, 10).expect("it is in memory still").data, [2; 10][..]);
    assert_eq!(b.read(0, 9000).expect("read"), noise(1, 9000));
}

/// Bytes that a failed sync left in memory only are written again before they count as synced: by the same process,
/// and by the next process after a kill. Without that, a later power cut would leave less than the header says.
#[test]
fn what_a_failed_sync_left_in_memory_reaches_the_disk_with_the_next_one() {
    for killed in [false, true] {
        for failures in 1..4 {
            let mut b = Bench::new(20 + failures);
            b.write(0, &[1; 9000]).expect("written");
            b.sync().expect("synced");
            b.write(3 * BLOCK, &noise(1, 50_000)).expect("written behind the end");
            let first = b.write(100, &[2; 10]).expect("overwritten").boot_term;
            b.disk.fail_next(DiskOp::SyncFile, failures);
            for _ in 0..failures {
                assert_eq!(b.sync().expect_err("failed").code, Code::OstIo);
            }
            if killed {
                b.restart();
            }
            assert!(b.store.boot_term() > first, "whoever wrote is told, after a kill as well");
            assert_eq!(b.sync().expect("synced"), b.store.boot_term());
            b.power_cut();
            assert_eq!(b.len(), 3 * BLOCK + 50_000);
            assert_eq!(b.read(3 * BLOCK, 50_000).expect("whole"), noise(1, 50_000));
            assert_eq!(b.read(100, 10).expect("whole"), [2; 10][..]);
        }
    }
}

/// Two ask for a sync at once, and that of the first fails. The second sync would succeed without writing
/// anything: the kernel counts pages that it could not write as clean.
#[test]
fn a_sync_that_waited_for_one_that_failed_writes_everything_again() {
    let mut b = Bench::new(24);
    b.write(0, &noise(1, 5000)).expect("written");
    let object = block_on(b.store.ready(O)).expect("it is there");
    b.disk.fail_next(DiskOp::SyncFile, 1);
    assert_eq!(b.sync().expect_err("failed").code, Code::OstIo);
    block_on(b.store.sync_object(&object)).expect("synced");
    b.power_cut();
    assert_eq!(b.read(0, 5000).expect("synced"), noise(1, 5000));
}

#[test]
fn a_sync_of_an_object_that_was_destroyed_ends() {
    let b = Bench::new(27);
    b.write(0, &noise(1, 5000)).expect("written");
    let object = block_on(b.store.ready(O)).expect("it is there");
    b.disk.fail_next(DiskOp::SyncFile, 1);
    assert_eq!(b.sync().expect_err("failed").code, Code::OstIo);
    assert_eq!(block_on(b.store.destroy(&[O])).expect("answered").removed, 1);
    // In a runtime what never ends comes to a pause, so that the test does.
    let ended = block_on(async { b.store.sync_object(&object).now_or_never() });
    ended.expect("nothing is waited for").expect("nothing is left to sync");
}

/// More writers than permits: a holder of a permit must not wait for a range whose holder waits for a permit.
#[test]
fn synchronous_writes_of_an_object_never_wait_for_each_others_permit() {
    const POLLS_MAX: usize = 16;
    let b = Bench::new(28);
    b.write(0, &[1; 9000]).expect("written");
    let permits = b.disk.limit_in_flight(1);
    let held = permits.try_acquire_owned().expect("nothing is in flight");
    let op = |offset| {
        let data = Bytes::from_static(b"abc");
        let crc = crc(&data);
        WriteOp { object: O, offset, data, crc, ticket: b.ticket, sync: true, covered: false }
    };
    let (one, two) = (op(0), op(BLOCK));
    let mut turns = [0, 1].map(|_| b.store.slots().anonymous(None).expect("a turn"));
    let [first, second] = &mut turns;
    let both = futures_util::future::join(b.store.write(&one, first), b.store.write(&two, second));
    let mut both = Box::pin(both);
    for _ in 0..POLLS_MAX {
        assert!((&mut both).now_or_never().is_none(), "both hold their ranges and wait for a permit");
    }
    drop(held);
    let written = (0..POLLS_MAX).find_map(|_| (&mut both).now_or_never());
    let (one, two) = written.expect("neither keeps the other from its end");
    one.expect("written");
    two.expect("written");
}

/// A header that the disk refused is written by the next change: or a process after a kill would not know of it.
#[test]
fn a_change_after_one_whose_header_was_refused_is_known_after_a_kill() {
    let mut b = Bench::new(29);
    b.write(0, &noise(1, 5000)).expect("written");
    b.sync().expect("synced");
    b.disk.fail_writes_at(&b.store.path(&O), 0, 1);
    assert_eq!(b.write(3 * BLOCK, &noise(2, 50_000)).expect_err("refused").code, Code::OstIo);
    b.write(3 * BLOCK, &noise(3, 50_000)).expect("written");
    b.restart();
    b.sync().expect("synced");
    b.power_cut();
    assert_eq!(b.read(3 * BLOCK, 50_000).expect("synced"), noise(3, 50_000));
}

#[test]
fn an_object_whose_first_header_was_refused_does_not_exist() {
    let mut b = Bench::new(31);
    block_on(b.store.fence_layout(O, pair(1))).expect("fenced");
    b.ticket.layout_epoch = pair(1);
    b.disk.fail_writes_at(&b.store.path(&O), 0, 1);
    assert_eq!(b.write(0, b"refused").expect_err("refused").code, Code::OstIo);
    assert!(!b.read_of(O, 0, 1).expect("read").exists);
    b.write(0, b"written").expect("written");
    b.restart();
    assert_eq!(b.read(0, 7).expect("read"), b"written"[..]);
}

/// A process died in a fence, and it is asked for again: answered means durable, wherever that was.
#[test]
fn a_fence_that_is_raised_again_after_a_kill_survives_a_power_cut() {
    const OPERATIONS_MAX: u64 = 10;
    for (seed, cut) in (0..8).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut ended = false;
        for operation in 0..OPERATIONS_MAX {
            let mut b = Bench::new(seed);
            b.write(0, &noise(1, 5000)).expect("written");
            b.sync().expect("synced");
            b.pass_ms(2000);
            let fence = |b: &Bench| match cut {
                true => block_on(b.store.truncate(O, 9000, pair(3), false, false)).map(drop),
                false => block_on(b.store.fence_layout(O, pair(3))),
            };
            b.disk.die_after(operation);
            ended = fence(&b).is_ok();
            b.restart();
            fence(&b).expect("raised");
            b.power_cut();
            let late = b.write(0, b"late").expect_err("of before the fence");
            assert_eq!(late.code, Code::StaleLayout, "seed {seed}, killed at operation {operation}");
            if ended {
                break;
            }
        }
        assert!(ended, "the process died at every operation");
    }
}

#[test]
fn a_fence_below_the_epoch_of_a_session_leaves_what_it_was_granted() {
    let b = Bench::new(32);
    let session = SessionId(4);
    let claim = Claim { covered: false, holds_bytes: 0 };
    assert!(!b.store.covers((session, pair(8)), claim, 4096).expect("told"));
    let granted = b.store.next_grant(session, 0).expect("told").bytes;
    assert!(granted > 0);
    block_on(b.store.fence_sessions(vec![(session, pair(8))])).expect("fenced");
    assert_eq!(b.store.granted_bytes(), granted, "the session lives in this epoch");
    block_on(b.store.fence_sessions(vec![(session, pair(9))])).expect("fenced");
    assert_eq!(b.store.granted_bytes(), 0);
}

#[test]
fn a_synchronous_write_is_not_acknowledged_when_a_sync_fails_on_its_way() {
    let b = Bench::new(25);
    let term = b.write(0, &[1; 5000]).expect("written").boot_term;
    b.sync().expect("synced");
    let object = block_on(b.store.ready(O)).expect("it is there");
    let data = Bytes::from_static(b"abc");
    let crc = crc(&data);
    let op = WriteOp { object: O, offset: 3, data, crc, ticket: b.ticket, sync: true, covered: false };
    let mut turn = b.store.slots().anonymous(None).expect("a turn");
    let fault = block_on(async {
        let syncing = object.syncing.lock().await;
        let fails = async {
            b.store.sync_failed(term, "another sync".to_owned(), &std::io::Error::other("injected"));
            drop(syncing);
        };
        futures_util::future::join(b.store.write(&op, &mut turn), fails).await.0
    });
    assert_eq!(fault.expect_err("it may be lost").code, Code::OstIo);
}

/// The terms of failed syncs need not be durable, because a boot never takes a number of the boot before.
#[test]
fn a_power_cut_that_takes_the_record_of_a_term_never_brings_the_term_back() {
    let mut b = Bench::new(30);
    let mut last = 0;
    for _ in 0..8 {
        b.write(0, &[1; 10]).expect("written");
        b.disk.fail_next(DiskOp::SyncFile, 1);
        b.sync().expect_err("failed");
        let used = b.write(0, &[2; 10]).expect("written").boot_term;
        assert!(used > last);
        b.power_cut();
        assert!(b.store.boot_term() > used);
        last = b.store.boot_term();
    }
}

#[test]
fn syncing_is_shared_and_what_is_clean_costs_nothing() {
    let b = Bench::new(6);
    b.write(0, &[1; 9000]).expect("written");
    b.sync().expect("synced");
    let before = b.stat("object_syncs");
    b.sync().expect("clean");
    assert_eq!(b.stat("object_syncs"), before);
    b.write(0, &[2; 10]).expect("written");
    b.write(20, &[2; 10]).expect("written");
    assert_eq!(b.stat("intent_syncs"), 1, "one mark for both");
    b.pass_ms(5000);
    assert_eq!(b.stat("object_syncs"), before + 1, "the background syncs within 5 s");
    let fdatasyncs = b.stat("fdatasyncs");
    b.pass_ms(10_000);
    assert_eq!(b.stat("fdatasyncs"), fdatasyncs, "and then it is quiet");
}

#[test]
fn times_of_last_writes_and_lengths() {
    let mut b = Bench::new(7);
    b.clock.advance_ms(5000);
    b.ticket.attr_epoch = pair(6);
    b.write(REGION, &[1; 10]).expect("written");
    let stat = block_on(b.store.stat(O)).expect("stat");
    assert_eq!((stat.exists, stat.len_bytes), (true, REGION + 10));
    let (epoch, time) = stat.last_write.expect("written");
    assert_eq!((epoch, time.secs), (pair(6), 1_000_005));
    assert!(stat.allocated_bytes < 64 << 10, "holes stay holes: {}", stat.allocated_bytes);
    b.sync().expect("synced");
    b.power_cut();
    assert_eq!(block_on(b.store.stat(O)).expect("stat"), stat);
}

#[test]
fn listing_goes_on_where_it_ended() {
    let b = Bench::new(8);
    for n in 0..40 {
        b.write_to(ObjectId { stripe: n, ..O }, 0, b"x").expect("written");
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let (batch, end) = block_on(b.store.list(after, 7)).expect("listed");
        after = batch.last().map(|l| l.object);
        seen.extend(batch.iter().map(|l| l.object.stripe));
        if end {
            break;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..40).collect::<Vec<_>>());
}

#[test]
fn a_huge_sparse_object_is_cheap() {
    let mut b = Bench::new(9);
    const TIB: u64 = 1 << 40;
    b.write(17 * TIB + 5, b"far").expect("written");
    b.truncate(40 * TIB).expect("extended");
    b.punch(3, 30 * TIB, false).expect("punched");
    assert_eq!(b.read(17 * TIB, 10).expect("read"), vec![0; 10]);
    b.write(39 * TIB, b"x").expect("written");
    assert_eq!(block_on(b.store.seek(O, 0, true, false)).expect("sought"), Some(39 * TIB));
    assert_eq!(block_on(b.store.seek(O, 0, false, false)).expect("sought"), Some(0));
    b.power_cut();
    assert_eq!(b.len(), 40 * TIB);
    let far = b.truncate(1 << 62).expect_err("too large");
    assert_eq!(far.code, Code::TooLarge);
}

/// The outcome of every operation on an object under the bench's ticket.
fn every_operation(b: &mut Bench) -> Vec<(&'static str, Result<(), Fault>)> {
    let epoch = pair(b.ticket.truncate_epoch.counter + 1);
    let must_exist = b.ticket.must_exist;
    vec![
        ("read", b.read(8191, 1).map(drop)),
        ("write", b.write(0, &[7; 4096]).map(drop)),
        ("append", b.write(1 << 20, b"x").map(drop)),
        ("punch", b.punch(0, 4096, false).map(drop)),
        ("zero range", b.punch(0, 4096, true).map(drop)),
        ("allocate", b.allocate(0, 4096, false).map(drop)),
        ("cut", block_on(b.store.truncate(O, 10, epoch, true, must_exist)).map(drop)),
        ("extend", block_on(b.store.truncate(O, 1 << 30, epoch, true, must_exist)).map(drop)),
        ("seek data", block_on(b.store.seek(O, 0, true, must_exist)).map(drop)),
        ("seek hole", block_on(b.store.seek(O, 0, false, must_exist)).map(drop)),
    ]
}

#[test]
fn every_operation_refuses_a_missing_object_that_must_exist_and_makes_none() {
    let mut b = Bench::new(9);
    b.ticket.must_exist = true;
    for (what, outcome) in every_operation(&mut b) {
        assert_eq!(outcome.expect_err(what).code, Code::ObjectMissing, "{what}");
    }
    block_on(b.store.fence_layout(O, pair(0))).expect("a fence of something that is not there");
    assert!(b.read(0, 1).is_err(), "a fence makes no object");
    let (list, _) = block_on(b.store.list(None, 10)).expect("listed");
    assert!(list.iter().all(|object| !object.exists), "nothing was made");
    let kinds: Vec<_> = b.store.findings().iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [crate::findings::FindingKind::Missing], "and it is found once");
}

#[test]
fn every_operation_refuses_an_object_that_is_shorter_than_what_was_synced() {
    let mut b = Bench::new(10);
    b.write(0, &[1; 8192]).expect("written");
    block_on(b.store.sync(&[O])).expect("synced");
    let path = b.store.path(&O);
    let file = b.disk.open(&path, OpenHow::Existing).expect("its file");
    file.set_len(crate::format::file_len(4096)).expect("cut by somebody else");
    b.restart();
    assert_eq!(b.read(0, 4096).expect("what is there").len(), 4096);
    for (what, outcome) in every_operation(&mut b) {
        assert_eq!(outcome.expect_err(what).code, Code::ObjectDamaged, "{what}");
    }
    block_on(b.store.sync_all()).expect("synced");
    b.restart();
    assert_eq!(b.read(4096, 4096).expect_err("a sync does not hide it").code, Code::ObjectDamaged);
}

#[test]
fn a_target_of_which_a_part_is_gone_does_not_start() {
    for part in ["boot", "fences", "slots", "intents"] {
        let b = Bench::new(11);
        b.write(0, b"data").expect("written");
        block_on(b.store.close()).expect("closed");
        let (disk, moved) = (b.disk.clone(), format!("/ost/{part}.gone"));
        disk.rename(&format!("/ost/{part}"), &moved).expect("renamed");
        let fault = Bench::open(&disk, &b.clock).err().unwrap_or_else(|| panic!("it starts without {part}"));
        assert_eq!(fault.code, Code::TargetIncomplete, "{part}: {fault}");
        assert!(fault.why[0].contains(part), "{fault}");
        disk.rename(&moved, &format!("/ost/{part}")).expect("put back");
        Bench::open(&disk, &b.clock).expect("it starts when the part is back");
    }
    let b = Bench::new(12);
    block_on(b.store.close()).expect("closed");
    b.disk.remove_dir("/ost/objects").expect("removed");
    let fault = Bench::open(&b.disk, &b.clock).err().expect("it starts without objects");
    assert_eq!((fault.code, fault.why[0].contains("'objects'")), (Code::TargetIncomplete, true), "{fault}");
}
