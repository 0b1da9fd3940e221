//! Damage is named and never returned as data; a torn end is neither.

use crate::{Kv, KvReader};
use brindle_sim::{SimDisk, SplitMix};
use brindle_types::{Code, Fault};

use super::sim::{LARGE_BYTES, Sim, new_disk};
use super::{DIR, put, small_options};

const STORE: &str = "/mdt/kv/checkpoint.redb";
const SEGMENT: &str = "/mdt/kv/log-00000002-0000000000000001";

/// A stopped store with `n` synced rows of about 100 bytes, in the log, or in the checkpoint as well.
fn stopped(n: usize, checkpointed: bool) -> SimDisk {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    for i in 0..n {
        let pos = kv.append(put(&format!("I{i:04}"), &format!("{i:0100}"))).expect("a healthy log");
        sim.run(kv.wait_synced(pos)).expect("a healthy log");
    }
    if checkpointed {
        sim.run(kv.checkpoint()).expect("a healthy store");
    }
    sim.pass_ms(3000);
    drop(kv);
    disk.kill()
}

fn open(disk: &SimDisk) -> Result<Vec<(String, String)>, Fault> {
    let sim = Sim::new(9, disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options())?;
    let rows = kv.scan(b"", None, usize::MAX)?;
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    Ok(rows.iter().map(|(k, v)| (text(k), text(v))).collect())
}

fn find(haystack: &[u8], needle: &[u8]) -> usize {
    haystack.windows(needle.len()).position(|w| w == needle).expect("it is there")
}

#[test]
fn damage_in_a_synced_record_is_named_and_refused() {
    for i in [0, 5, 18, 19] {
        let disk = stopped(20, false);
        disk.edit(SEGMENT, |bytes| {
            let at = find(bytes, format!("{i:0100}").as_bytes());
            bytes[at + 3] ^= 4;
        });
        let fault = open(&disk).expect_err("a synced record is damaged");
        assert_eq!(fault.code, Code::LogDamaged);
        let at = 4096 + i * 152;
        let last = 21;
        assert_eq!(
            fault.to_string(),
            format!(
                "cannot use the metadata log {SEGMENT} at offset {at}\n  \
                 why:  record {} does not match its checksum, and record {last} behind it says that it was synced\n  \
                 data: records before {} are intact; nothing was changed on disk\n  \
                 next: restore the MDT from its backup, or run: brindle fsck\n  \
                 code: E3022 (brindle explain E3022)",
                i + 1,
                i + 1
            )
        );
        let reader = KvReader::open_read_only(&disk, DIR).expect("there is a store");
        assert_eq!(reader.damage().len(), 1);
        assert_eq!(reader.damage()[0].offset, Some(at as u64));
        assert_eq!(
            reader.scan(b"", None, 100).expect("the rest").len(),
            19,
            "the reader goes on behind damage"
        );
    }
}

#[test]
fn damage_is_named_by_the_next_opening_s_header_too() {
    let disk = stopped(3, false);
    open(&disk).expect("an undamaged store");
    let disk = disk.kill();
    disk.edit(SEGMENT, |bytes| bytes[4096..].fill(0));
    let fault = open(&disk).expect_err("the log is gone");
    assert_eq!(fault.code, Code::LogDamaged);
    assert_eq!(
        fault.why[0],
        "record 1 does not match its checksum, and the checkpoint or the next segment says that it was synced"
    );
}

#[test]
fn missing_and_damaged_files_are_named() {
    let gone = |path: &str, openings: usize| {
        let mut disk = stopped(60, false);
        for _ in 0..openings {
            open(&disk).expect("an undamaged store");
            disk = disk.kill();
        }
        brindle_stdx::Disk::remove(&disk, path).expect("the file is there");
        let fault = open(&disk).expect_err("a file is gone");
        (fault.code, fault.subject.to_string(), fault.why[0].to_string())
    };
    let named = |code, subject: &str, why: &str| (code, subject.to_owned(), why.to_owned());
    assert_eq!(gone(STORE, 0), named(Code::KvDamaged, STORE, "the file is missing"));
    assert_eq!(gone(SEGMENT, 0), named(Code::LogDamaged, DIR, "there is no log segment"));
    let why = "the checkpoint ends with record 0, and the log begins with record 62";
    assert_eq!(gone(SEGMENT, 1), named(Code::LogDamaged, DIR, why));
    let why = "the log of term 3 is missing between log-00000002-0000000000000001 and log-00000004-000000000000003e";
    assert_eq!(gone("/mdt/kv/log-00000003-000000000000003e", 2), named(Code::LogDamaged, DIR, why));
    let disk = stopped(5, true);
    disk.edit(STORE, Vec::clear);
    assert_eq!(open(&disk).expect_err("empty").why[0], "the file is empty");
    let disk = stopped(5, true);
    disk.edit(SEGMENT, |bytes| bytes[20] ^= 1);
    let fault = open(&disk).expect_err("the header is damaged");
    assert_eq!((fault.code, &*fault.why[0]), (Code::LogDamaged, "its header does not match its checksum"));
}

/// Any damage of the checkpoint file is named, or does not matter; it never changes what is read.
#[test]
fn a_damaged_checkpoint_is_never_returned_as_data() {
    let whole = stopped(300, true);
    let rows = open(&stopped(300, true)).expect("an undamaged store");
    assert_eq!(rows.len(), 300);
    let contents = whole.contents();
    let used: Vec<usize> = (0..contents[STORE].len()).filter(|&at| contents[STORE][at] != 0).collect();
    let mut chance = SplitMix::new(77);
    let mut named = 0;
    for round in 0..150 {
        let disk = new_disk(1, LARGE_BYTES);
        for (path, bytes) in &contents {
            disk.put(path, bytes);
        }
        let at = if round < 64 { round } else { used[chance.below(used.len() as u64) as usize] };
        disk.edit(STORE, |bytes| bytes[at] ^= 1 << chance.below(8));
        let reader = KvReader::open_read_only(&disk, DIR).expect("there is a store");
        match open(&disk) {
            Ok(read) => assert!(read == rows, "a flipped bit at {at} changed what is read"),
            Err(fault) => {
                assert!(matches!(fault.code, Code::KvDamaged | Code::LogDamaged), "byte {at}: {fault}");
                let unread = reader.scan(b"", None, 1000).is_err();
                assert!(unread || !reader.damage().is_empty(), "byte {at}: the reader missed it");
                named += 1;
            }
        }
    }
    assert!(named > 60, "only {named} of 150 flipped bits were noticed");
}

#[test]
fn a_torn_end_is_dropped_and_its_numbers_are_not_used_again() {
    let disk = new_disk(1, LARGE_BYTES);
    Kv::create(&disk, DIR, &small_options()).expect("an empty disk takes a store");
    let sim = Sim::new(1, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a new store opens");
    let kept = kv.append(put("a", "1")).expect("a healthy log");
    sim.run(kv.wait_synced(kept)).expect("a healthy log");
    for n in 0..3 {
        let pos = kv.append(put("a", &format!("lost {n}"))).expect("a healthy log");
        sim.run(kv.wait_reply(pos)).expect("a healthy log");
    }
    drop(kv);
    sim.kill_tasks();
    let disk = disk.kill();
    // Of three unsynced records the middle one is torn; the third would be valid by itself.
    disk.edit(SEGMENT, |bytes| {
        let at = find(bytes, b"lost 1");
        bytes[at] = 0;
    });
    let sim = Sim::new(2, &disk);
    let (kv, report) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("a torn end is no damage");
    assert_eq!(kv.get(b"a").expect("readable").as_deref(), Some(&b"lost 0"[..]));
    assert_eq!((report.last.index, report.term, report.dropped_bytes > 40), (2, 3, true));
    let pos = kv.append(put("a", "new")).expect("a healthy log");
    assert_eq!((pos.term, pos.index), (3, 3));
    sim.run(kv.wait_synced(pos)).expect("a healthy log");
    drop(kv);
    assert_eq!(open(&disk.kill()).expect("no damage"), [("a".to_owned(), "new".to_owned())]);
}

#[test]
fn the_reader_changes_nothing() {
    let disk = stopped(200, true);
    let before = disk.contents();
    let trace = disk.ops_hash();
    let reader = KvReader::open_read_only(&disk, DIR).expect("there is a store");
    assert_eq!(reader.scan(b"", None, 1000).expect("readable").len(), 200);
    assert_eq!(reader.get(b"I0007").expect("readable").as_deref(), Some(format!("{:0100}", 7).as_bytes()));
    drop(reader);
    assert!(before == disk.contents() && trace == disk.ops_hash());
}

/// Cut short, overwritten, exchanged by an older copy: whatever happens to the checkpoint file, it has a name.
#[test]
fn a_ruined_checkpoint_is_named() {
    let contents = stopped(300, true).contents();
    let len = contents[STORE].len();
    let mut chance = SplitMix::new(5);
    for round in 0..40 {
        let disk = new_disk(1, LARGE_BYTES);
        for (path, bytes) in &contents {
            disk.put(path, bytes);
        }
        disk.edit(STORE, |bytes| match round % 4 {
            0 => bytes.truncate(chance.below(len as u64) as usize),
            1 => bytes[..len / 2].fill(0),
            2 => (0..bytes.len()).for_each(|at| bytes[at] = chance.next_u64() as u8),
            _ => bytes[chance.below(len as u64) as usize..].fill(0xff),
        });
        let reader = KvReader::open_read_only(&disk, DIR).expect("there is a store");
        match open(&disk) {
            Ok(rows) => assert_eq!(rows.len(), 300, "round {round}"),
            Err(fault) => {
                assert_eq!(fault.code, Code::KvDamaged, "round {round}: {fault}");
                let by_reader: Vec<_> = reader.damage().iter().map(|d| &d.file[..]).collect();
                assert_eq!(by_reader, [STORE], "round {round}: the reader blames the right file");
            }
        }
    }
}

/// An older copy of the checkpoint under a log that goes on behind a later one.
#[test]
fn an_older_checkpoint_is_named() {
    let disk = stopped(60, false);
    let older = disk.contents()[STORE].clone();
    let sim = Sim::new(3, &disk);
    let (kv, _) = Kv::open(sim.seams.clone(), DIR, small_options()).expect("an undamaged store");
    sim.run(kv.checkpoint()).expect("a healthy store");
    drop(kv);
    let disk = disk.kill();
    disk.edit(STORE, |bytes| *bytes = older);
    let fault = open(&disk).expect_err("rows are missing");
    let why = "the checkpoint ends with record 0, and the log begins with record 62";
    assert_eq!((fault.code, &*fault.why[0]), (Code::LogDamaged, why));
}

/// Blocks that change under an open store are noticed when they are read, inner pages of the tree too.
#[test]
fn damage_under_an_open_store_is_never_returned_as_data() {
    let contents = stopped(900, true).contents();
    let (mut named, mut read) = (0, 0);
    for block in 1..contents[STORE].len() / 4096 {
        let disk = new_disk(1, LARGE_BYTES);
        for (path, bytes) in &contents {
            disk.put(path, bytes);
        }
        let sim = Sim::new(9, &disk);
        let opts = crate::KvOptions { cache_bytes_max: 0, ..small_options() };
        let (kv, _) = Kv::open(sim.seams.clone(), DIR, opts).expect("an undamaged store");
        disk.edit(STORE, |bytes| bytes[block * 4096 + 70] ^= 0x10);
        for i in (0..900).step_by(10) {
            match kv.get(format!("I{i:04}").as_bytes()) {
                Ok(value) => {
                    assert_eq!(value.as_deref(), Some(format!("{i:0100}").as_bytes()), "block {block}");
                    read += 1;
                }
                Err(fault) => {
                    assert_eq!(fault.code, Code::KvDamaged, "block {block}: {fault}");
                    named += 1;
                }
            }
        }
    }
    // Every leaf is damaged once, and the inner page above them once.
    assert!((90..400).contains(&named), "damage was noticed {named} times");
    assert!(read > 1000, "only {read} reads beside damage succeeded");
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let disk = stopped(1, false);
    disk.edit(SEGMENT, |bytes| {
        bytes[11] = 9;
        let sum = brindle_stdx::crc(&bytes[..76]);
        bytes[76..80].copy_from_slice(&sum.to_be_bytes());
    });
    let fault = open(&disk).expect_err("of the future");
    let why = format!("{SEGMENT} has format 9, this release knows 1");
    assert_eq!((fault.code, fault.why[0].to_string()), (Code::NewerFormat, why));
}
