//! A configuration made anew has every target at its place, and contradictions are refused by name.

use brindle_stdx::Timestamp;

use super::*;
use crate::backup::Known;

const NOW_S: i64 = 1_800_000_000;

struct Zeros;

impl brindle_stdx::Rng for Zeros {
    fn next_u64(&self) -> u64 {
        7
    }
}

fn superblock(target: TargetId, uuid: u8) -> Superblock {
    let now = Timestamp { secs: 5, nanos: 0 };
    let new = Superblock::new("scratch".parse().unwrap(), target, Vec::new(), now, &Zeros);
    Superblock { uuid: [uuid; 16], fs_id: 99, ..new }
}

fn dir(target: TargetId, uuid: u8, epoch: u64, in_sync: &[&str]) -> FoundTarget {
    FoundTarget {
        dir: format!("/data/{target}"),
        superblock: superblock(target, uuid),
        epoch,
        in_sync: in_sync.iter().map(|host| (*host).to_owned()).collect(),
    }
}

fn host(name: &str, key: u8, targets: Vec<FoundTarget>) -> FoundHost {
    FoundHost { name: name.to_owned(), key: [key; 32], roles: "server".to_owned(), targets }
}

fn own() -> HostRow {
    HostRow {
        name: "h1".to_owned(),
        key: [1; 32],
        roles: "server,admin".to_owned(),
        joined_s: NOW_S,
        certificate_ends_s: NOW_S,
        assignments: Vec::new(),
    }
}

/// The MDT on h2, OST0000 with copies on h2 and h3, OST0001 on h3 alone.
fn found() -> Vec<FoundHost> {
    let ost = TargetId::ost(0);
    vec![
        host("h2", 2, vec![dir(TargetId::mdt(0), 8, 0, &[]), dir(ost, 9, 6, &["h2"])]),
        host("h3", 3, vec![dir(ost, 9, 5, &["h3", "h2"]), dir(TargetId::ost(1), 10, 0, &[])]),
    ]
}

fn made(found: &[FoundHost], said: &Said) -> Result<Rebuilt> {
    let said = Said { now_s: NOW_S, ..said.clone() };
    rebuild(found, &said, superblock(TargetId::MGT, 77), own(), String::new())
}

fn why(found: &[FoundHost]) -> String {
    let fault = made(found, &Said::default()).unwrap_err();
    assert_eq!(fault.code, Code::SuperblocksContradict, "{fault}");
    fault.to_string()
}

#[test]
fn every_target_is_where_its_superblock_lies() {
    let rebuilt = made(&found(), &Said::default()).unwrap();
    assert_eq!(
        rebuilt.targets,
        [
            "scratch-MDT0000 on h2 in /data/MDT0000",
            "scratch-OST0000 with copies on h2 in /data/OST0000, h3 in /data/OST0000; epoch 6",
            "scratch-OST0001 on h3 in /data/OST0001"
        ]
    );
    assert_eq!(
        rebuilt.notes,
        ["the highest OST that was found is OST0001; if there were higher ones, they are missing"]
    );
    assert_eq!(rebuilt.backup.superblock().unwrap().fs_id, 99);
    let known = Known { now_s: NOW_S, ..Known::default() };
    let restored = rebuilt.backup.restored(&known).unwrap();
    assert_eq!(restored.hosts, ["h1", "h2", "h3"]);
    assert_eq!(restored.waiting, [TargetId::ost(0)], "a set waits for all its hosts");
    let rows = crate::hosts::rows::decode_all(
        restored.entries.iter().map(|(key, value)| (key.as_str(), value.as_slice())),
    )
    .unwrap();
    let set = &rows.replica_set(TargetId::ost(0)).unwrap().set;
    let above_all = crate::restored::above(6, NOW_S);
    assert_eq!((set.primary.as_str(), set.epoch, set.uuid), ("h2", above_all, [9; 16]));
    assert!(set.is_in_sync("h2") && !set.is_in_sync("h3"), "h3 lacks what epoch 6 acknowledged");
    let ports: BTreeSet<u16> = rows.hosts().flat_map(|row| row.assignments.iter().map(|a| a.port)).collect();
    assert_eq!(ports.len(), 2);
    let (_, value) = restored.entries.iter().find(|(key, _)| key == "fs/scratch/map").unwrap();
    let map = store::decode("map", value).unwrap();
    let epochs: Vec<u32> = map.targets.iter().map(|entry| entry.epoch).collect();
    assert!(
        epochs.iter().all(|epoch| u64::from(*epoch) >= NOW_S as u64),
        "above all that was told: {epochs:?}"
    );
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let change = |change: fn(&mut Vec<FoundHost>)| {
        let mut found = found();
        change(&mut found);
        why(&found)
    };
    let text = change(|f| f[0].targets.push(dir(TargetId::ost(1), 33, 0, &[])));
    assert!(
        text.contains("scratch-OST0001")
            && text.contains("h2:/data/OST0001")
            && text.contains("h3:/data/OST0001"),
        "{text}"
    );
    let text = change(|f| f[0].targets.push(dir(TargetId::ost(1), 10, 0, &[])));
    assert!(text.contains("copies of one directory"), "{text}");
    let text = change(|f| f[1].targets[1].superblock.fs = "other".parse().unwrap());
    assert!(text.contains("other-OST0001") && text.contains("--leave-out h3:/data/OST0001"), "{text}");
    let text = change(|f| f[1].targets[1].superblock.fs_id = 98);
    assert!(text.contains("0000000000000062"), "{text}");
    let text = change(|f| f[1].name = "h2".to_owned());
    assert!(text.contains("two files"), "{text}");
    let text = change(|f| f[0].targets[1].in_sync = vec!["h9".to_owned(), "h2".to_owned()]);
    assert!(text.contains("h9 had all of it in epoch 6") && text.contains("--lost h9"), "{text}");
    let text = change(|f| f[0].targets[0].superblock.target = TargetId::MGT);
    assert!(text.contains("holds an MGT"), "{text}");
    let text = change(|f| {
        let second = FoundTarget { dir: "/old".to_owned(), ..f[0].targets[1].clone() };
        f[0].targets.push(second);
    });
    assert!(text.contains("two copies on one host"), "{text}");
}

#[test]
fn an_administrator_can_say_what_does_not_count() {
    let mut all = found();
    all[0].targets.push(dir(TargetId::ost(1), 33, 0, &[]));
    let out = ("h2".to_owned(), "/data/OST0001".to_owned());
    let said = Said { left_out: BTreeSet::from([out]), ..Said::default() };
    assert_eq!(made(&all, &said).unwrap().targets.len(), 3);
    let said = Said { left_out: BTreeSet::from([("h2".to_owned(), "/x".to_owned())]), ..Said::default() };
    assert_eq!(made(&all, &said).unwrap_err().code, Code::BadArgument);
    let mut all = found();
    all[0].targets[1].in_sync = vec!["h9".to_owned(), "h2".to_owned()];
    let said = Said { lost: BTreeSet::from(["h9".to_owned()]), ..Said::default() };
    assert_eq!(made(&all, &said).unwrap().targets.len(), 3);
    // The only member in sync is lost: no other copy is taken for complete.
    all[0].targets[1].in_sync = vec!["h9".to_owned()];
    assert_eq!(made(&all, &said).unwrap_err().code, Code::SuperblocksContradict);
    // A gap between the OSTs is refused, unless an administrator says that nothing is there.
    let mut all = found();
    all[1].targets[1].superblock.target = TargetId::ost(3);
    let text = why(&all);
    assert!(text.contains("--lost OST0001 --lost OST0002"), "{text}");
    let lost = BTreeSet::from(["OST0001".to_owned(), "OST0002".to_owned()]);
    let rebuilt = made(&all, &Said { lost, ..Said::default() }).unwrap();
    assert!(rebuilt.notes[0].contains("OST0001, OST0002"), "{:?}", rebuilt.notes);
    // Two copies, and no record says which is complete.
    let mut all = found();
    all.iter_mut().flat_map(|host| &mut host.targets).for_each(|target| target.in_sync.clear());
    let text = why(&all);
    assert!(text.contains("no record says") && text.contains("--leave-out h2:/data/OST0000"), "{text}");
}
