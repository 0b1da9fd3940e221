//! A full device: what frees space goes on, everything else is refused, and nothing is lost.

use crate::{Batch, Kv};
use brindle_types::Code;

use super::disk::CrashDisk;
use super::sim::Sim;
use super::{DIR, put, small_options};

fn deletion(key: &str) -> Batch {
    let mut batch = Batch::new();
    batch.delete(key.as_bytes().to_vec());
    batch.frees_space();
    batch
}

#[test]
fn a_full_device_takes_deletions_only_and_recovers() {
    let disk = CrashDisk::new(16 << 20);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    for n in 0..100 {
        kv.append(put(&format!("k{n:03}"), &"v".repeat(500))).expect("there is room");
        sim.run(kv.admit()).expect("a healthy log");
    }
    sim.run(kv.checkpoint()).expect("there is room");
    // Somebody else fills the device to within less than the reserve.
    disk.set_capacity(disk.used() + (200 << 10));
    sim.pass_ms(10);
    let mut refused = None;
    for n in 0..200 {
        match kv.append(put(&format!("x{n:03}"), &"v".repeat(30_000))) {
            Ok(pos) => sim.run(kv.wait_reply(pos)).expect("what was accepted is written"),
            Err(fault) => {
                refused = Some((n, fault.code));
                break;
            }
        }
        sim.run(kv.admit()).expect("a healthy log");
    }
    let (accepted, code) = refused.expect("the reserve is defended");
    assert_eq!(code, Code::MdtFull);
    assert_eq!(kv.space().expect("asked").available_bytes, 0);
    for n in 0..100 {
        let pos = kv.append(deletion(&format!("k{n:03}"))).expect("deleting always works");
        sim.run(kv.wait_synced(pos)).expect("deleting always works");
        sim.run(kv.admit()).expect("a healthy log");
    }
    assert_eq!(kv.failed(), None);
    assert_eq!(kv.scan(b"", None, 1000).expect("readable").len(), accepted);
    disk.set_capacity(64 << 20);
    sim.pass_ms(3000);
    let pos = kv.append(put("y", "1")).expect("there is room again");
    sim.run(kv.wait_reply(pos)).expect("there is room again");
    sim.run(kv.checkpoint()).expect("there is room again");
    drop(kv);
    let disk = disk.power_cut(&mut super::sim::Chance::new(3));
    let sim = Sim::new(2, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("nothing is damaged");
    assert_eq!(kv.scan(b"", None, 1000).expect("readable").len(), accepted + 1);
}

/// Nothing at all is left: the log lives on its spare segment, checkpoints fail and are tried again, reads go on.
#[test]
fn without_any_space_the_spare_segment_still_takes_deletions() {
    let disk = CrashDisk::new(16 << 20);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    for n in 0..600 {
        kv.append(put(&format!("k{n:03}"), &"v".repeat(100))).expect("there is room");
        sim.run(kv.admit()).expect("a healthy log");
    }
    sim.run(kv.checkpoint()).expect("there is room");
    sim.pass_ms(3000);
    disk.set_capacity(disk.used());
    let mut deletions = 0;
    let exhausted = loop {
        match kv.append(deletion(&format!("k{:03}", deletions % 600))) {
            Ok(pos) => {
                sim.run_for(5000, kv.wait_synced(pos)).expect("in time").expect("what was accepted is safe")
            }
            Err(fault) => break fault,
        }
        deletions += 1;
    };
    // A segment of 64 KiB takes more than a thousand deletions of 48 bytes.
    assert!(deletions > 1000, "only {deletions} deletions were taken");
    assert_eq!(exhausted.code, Code::MdtFull);
    sim.pass_ms(5000);
    assert_eq!(kv.failed(), None);
    assert_eq!(kv.append(put("y", "1")).expect_err("full").code, Code::MdtFull);
    assert_eq!(kv.scan(b"k", None, 1000).expect("readable").len(), 0);
    disk.set_capacity(64 << 20);
    sim.pass_ms(5000);
    let pos = kv.append(put("y", "1")).expect("there is room again");
    sim.run(kv.wait_synced(pos)).expect("there is room again");
    sim.run(kv.checkpoint()).expect("there is room again");
    let disk = disk.power_cut(&mut super::sim::Chance::new(3));
    let sim = Sim::new(2, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("nothing is damaged");
    assert_eq!(kv.scan(b"", None, 1000).expect("readable").len(), 1);
}
