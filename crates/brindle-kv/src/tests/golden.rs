//! Bytes of the log, made once and compared for ever: `golden/v1/`. Set BRINDLE_GOLDEN=write to make those of a new
//! version.

use std::path::PathBuf;
use std::sync::Arc;

use brindle_sim::SimDisk;
use brindle_stdx::Rng;

use crate::{Batch, Kv};

use super::sim::{LARGE_BYTES, Sim, new_disk};
use super::{DIR, put, small_options};

const FILES: [&str; 2] = ["log-00000002-0000000000000001", "log-00000003-0000000000000004"];

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1").join(name)
}

/// Bytes without the zeros behind the last record.
fn trimmed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    bytes.truncate(end.max(4096).next_multiple_of(8));
    bytes
}

/// Chance that gives the salt of the golden bytes.
struct Salt(u64);

impl Rng for Salt {
    fn next_u64(&self) -> u64 {
        self.0
    }
}

/// A process whose log has a salt.
fn salted(seed: u64, salt: u64, disk: &SimDisk) -> Sim {
    let mut sim = Sim::new(seed, disk);
    sim.seams.rng = Arc::new(Salt(salt));
    sim
}

fn scripted() -> SimDisk {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = salted(1, 0x97c1_2250_fe73_feb8, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    let mut batch = Batch::new();
    batch.put(&b"I\0\0\0\0\0\0\0\x01"[..], &b"root"[..]);
    batch.put(&b"D\0\0\0\0\0\0\0\x01\0\0a"[..], vec![0; 20]);
    batch.delete(&b"O\0\0\0\0\0\0\0\x02"[..]);
    kv.append(batch).expect("a healthy log");
    let pos = kv.append(put("k", "")).expect("a healthy log");
    sim.run(kv.wait_synced(pos)).expect("a healthy log");
    let pos = kv.append(put("k", "v2")).expect("a healthy log");
    sim.run(kv.wait_synced(pos)).expect("a healthy log");
    drop(kv);
    sim.kill_tasks();
    let disk = disk.kill();
    let sim = salted(2, 0x8b34_78c7_d94c_c60e, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("an undamaged store");
    let pos = kv.append(put("z", "last")).expect("a healthy log");
    sim.run(kv.wait_synced(pos)).expect("a healthy log");
    disk
}

#[test]
fn the_same_batches_give_the_same_bytes() {
    let files = scripted().contents();
    for name in FILES {
        let bytes = trimmed(files[&format!("{DIR}/{name}")].clone());
        if std::env::var("BRINDLE_GOLDEN").as_deref() == Ok("write") {
            std::fs::write(golden(name), &bytes).expect("the golden directory exists");
        }
        let kept = std::fs::read(golden(name)).expect("golden bytes exist");
        assert!(bytes == kept, "{name} differs from golden/v1: a change of format needs a new version");
    }
}

#[test]
fn golden_bytes_open() {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    for name in FILES {
        disk.put(&format!("{DIR}/{name}"), &std::fs::read(golden(name)).expect("golden bytes exist"));
    }
    let sim = Sim::new(3, &disk);
    let (kv, report) =
        Kv::open(sim.seams.clone(), DIR, small_options()).expect("the first format still opens");
    assert_eq!((report.term, report.last.index, report.replayed_records), (4, 4, 4));
    let keys: Vec<_> =
        kv.scan(b"", None, 10).expect("readable").into_iter().map(|(k, v)| (k, v.len())).collect();
    let expected: [(&[u8], usize); 4] =
        [(b"D\0\0\0\0\0\0\0\x01\0\0a", 20), (b"I\0\0\0\0\0\0\0\x01", 4), (b"k", 2), (b"z", 4)];
    assert_eq!(keys.iter().map(|(k, n)| (&k[..], *n)).collect::<Vec<_>>(), expected);
}
