//! The moment at which waits return, the cost of groups, and the effects of a failing disk.

use crate::{Durability, DurabilityMode, Kv, KvOptions};
use brindle_sim::{DiskOp, SimDisk};
use brindle_types::Code;
use futures_util::future::join_all;

use super::sim::{LARGE_BYTES, Sim, new_disk};
use super::{DIR, put, small_options};

fn opened(seed: u64, opts: KvOptions) -> (SimDisk, Sim, Kv) {
    let disk = new_disk(seed, LARGE_BYTES);
    Kv::create(&disk, DIR, &opts).expect("an empty disk takes a store");
    let sim = Sim::new(seed, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, opts).expect("a new store opens");
    (disk, sim, kv)
}

#[test]
fn many_waiters_share_an_fdatasync() {
    let (_, sim, kv) = opened(1, KvOptions { mode: DurabilityMode::Sync, ..small_options() });
    let one = |n: usize| {
        let kv = kv.clone();
        async move {
            for i in 0..10 {
                let pos = kv.append(put(&format!("k{n}"), &format!("{i}"))).expect("a healthy log");
                kv.wait_reply(pos).await.expect("a healthy log");
                assert!(kv.synced_pos() >= pos);
            }
        }
    };
    sim.run(join_all((0..32).map(one)));
    let stats = kv.stats();
    assert_eq!(stats.batches, 320);
    assert!(stats.syncs <= 60, "{} fdatasyncs for 320 batches of 32 writers", stats.syncs);
}

/// Returns the time (simulated ms) at which a relaxed reply leaves, of an append at `ms`, on a device whose
/// fdatasyncs hang until 3000 ms.
#[test]
fn relaxed_replies_wait_while_something_unsynced_is_too_old() {
    let (disk, sim, kv) = opened(2, small_options());
    disk.hold_syncs(true);
    let start = sim.seams.now();
    let reply_of_append_at = |ms: u64| {
        let (kv, seams) = (kv.clone(), sim.seams.clone());
        async move {
            seams.clock.sleep_until(start.plus_ms(ms)).await;
            let pos = kv.append(put("k", &ms.to_string())).expect("a healthy log");
            kv.wait_reply(pos).await.expect("a healthy log");
            seams.now().ms_since(start)
        }
    };
    let release = {
        let (disk, seams) = (disk.clone(), sim.seams.clone());
        async move {
            seams.clock.sleep_until(start.plus_ms(3000)).await;
            disk.hold_syncs(false);
            0
        }
    };
    let tasks: Vec<futures_util::future::BoxFuture<'_, u64>> = vec![
        Box::pin(reply_of_append_at(0)),
        Box::pin(reply_of_append_at(900)),
        Box::pin(reply_of_append_at(1200)),
        Box::pin(reply_of_append_at(2900)),
        Box::pin(release),
    ];
    let replies = sim.run(join_all(tasks));
    assert_eq!(
        replies,
        [0, 900, 3000, 3000, 0],
        "no reply leaves over a record that is unsynced for a second"
    );
}

#[test]
fn relaxed_records_are_synced_within_a_second_without_being_asked() {
    let (_, sim, kv) = opened(3, small_options());
    let pos = kv.append(put("a", "1")).expect("a healthy log");
    sim.pass_ms(1000);
    assert!(kv.synced_pos() >= pos);
}

#[test]
fn a_failed_fdatasync_stops_the_log_for_good() {
    let (disk, sim, kv) = opened(4, small_options());
    let kept = kv.append(put("a", "1")).expect("a healthy log");
    sim.run(kv.wait_synced(kept)).expect("a healthy log");
    let lost = kv.append(put("a", "2")).expect("a healthy log");
    disk.fail_next(DiskOp::Sync, u64::MAX);
    let code = |r: Result<(), brindle_types::Fault>| r.expect_err("the device failed").code;
    assert_eq!(code(sim.run(kv.wait_synced(lost))), Code::LogFailed);
    assert_eq!(code(sim.run(kv.wait(kept, Durability::Written))), Code::LogFailed);
    assert_eq!(code(kv.append(put("b", "3")).map(drop)), Code::LogFailed);
    assert_eq!(sim.run(kv.until_failed()).code, Code::LogFailed);
    let text = kv.append(put("b", "3")).expect_err("stopped").to_string();
    assert_eq!(
        text,
        "the metadata log cannot be written /mdt/kv/log-00000002-0000000000000001\n  \
         why:  cannot sync the metadata log\n  \
         why:  Input/output error (os error 5) (injected)\n  \
         data: what was acknowledged is safe; nothing more is acknowledged\n  \
         next: free or repair the disk, then start the MDT again\n  \
         code: E3024 (brindle explain E3024)"
    );
}

#[test]
fn a_closed_store_keeps_everything() {
    let (disk, sim, kv) = opened(5, small_options());
    for n in 0..300 {
        sim.run(kv.admit()).expect("a healthy log");
        kv.append(put(&format!("k{n:03}"), &"v".repeat(400))).expect("a healthy log");
    }
    let checkpoints = kv.stats().checkpoints;
    assert!(checkpoints > 2, "{checkpoints} checkpoints of 120 KB through 24 KB");
    sim.run(kv.close()).expect("a healthy log");
    let disk = disk.power_cut();
    let sim = Sim::new(6, &disk);
    let (kv, report) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("an orderly store");
    assert_eq!(kv.scan(b"", None, 1000).expect("readable").len(), 300);
    assert!(report.checkpoint.index > 100 && report.last.index >= 300);
}

#[test]
fn admission_is_bounded() {
    let (disk, sim, kv) = opened(7, small_options());
    disk.hold_syncs(true);
    let mut admitted = 0;
    while futures_util::FutureExt::now_or_never(kv.admit()).is_some() {
        kv.append(put(&format!("k{admitted}"), &"v".repeat(1000))).expect("a healthy log");
        admitted += 1;
        assert!(admitted < 1000, "admission has no bound");
        // Lets the checkpointer freeze the memtable; its wait for the log hangs.
        sim.pass_ms(1);
    }
    let stats = kv.stats();
    assert!(stats.memtable_bytes + stats.frozen_bytes < 3 * small_options().memtable_bytes_max as u64);
    disk.hold_syncs(false);
    sim.run(kv.admit()).expect("room comes back");
}

#[test]
fn options_and_rows_outside_of_the_limits_are_refused() {
    let disk = new_disk(1, LARGE_BYTES);
    let tiny = KvOptions { segment_bytes: 100, ..small_options() };
    assert_eq!(Kv::create(&disk, DIR, &tiny).expect_err("too small").code, Code::BadConfigValue);
    let sim = Sim::new(8, &disk);
    let open = |disk: &SimDisk, opts| {
        let sim = Sim::new(8, disk);
        Kv::open(sim.seams.clone(), DIR, opts).map(drop).expect_err("not this one").code
    };
    assert_eq!(open(&disk, small_options()), Code::TargetIncomplete);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    assert_eq!(Kv::create(&disk, DIR, &small_options()).expect_err("twice").code, Code::AlreadyFormatted);
    let other = KvOptions { target_uuid: [1; 16], ..small_options() };
    assert_eq!(open(&disk, other), Code::ForeignTarget);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    let code = |batch| kv.append(batch).expect_err("refused").code;
    assert_eq!(code(put("", "v")), Code::Bug);
    assert_eq!(code(put("\0x", "v")), Code::Bug);
    assert_eq!(code(put(&"k".repeat(2000), "v")), Code::Bug);
    assert_eq!(code(put("k", &"v".repeat(100_000))), Code::Bug, "larger than a segment");
    let beyond = crate::LogPos { index: 99, term: kv.term() };
    assert_eq!(sim.run(kv.wait_synced(beyond)).expect_err("never appended").code, Code::Bug);
}
