use brindle_stdx::Timestamp;
use brindle_types::Nid;
use brindle_wire::map::{ReplicaSet, TargetEntry, TargetState};

use super::*;
use crate::hosts::rows::TokenRow;

const NOW_S: i64 = 1_800_000_000;

struct Zeros;

impl brindle_stdx::Rng for Zeros {
    fn next_u64(&self) -> u64 {
        7
    }
}

fn host(name: &str, key: u8) -> HostRow {
    HostRow {
        name: name.to_owned(),
        key: [key; 32],
        roles: "server".to_owned(),
        joined_s: 1,
        certificate_ends_s: 2,
        assignments: Vec::new(),
    }
}

fn sample() -> ConfigBackup {
    let now = Timestamp { secs: NOW_S, nanos: 0 };
    let superblock = Superblock::new("scratch".parse().unwrap(), TargetId::MGT, Vec::new(), now, &Zeros);
    let nid: Nid = "10.0.0.1:9880".parse().unwrap();
    let entry = TargetEntry {
        id: TargetId::ost(0),
        uuid: [3; 16],
        nids: vec![nid],
        epoch: 4,
        state: TargetState::Up,
        replicas: ReplicaSet::of("h2"),
        format_level_max: FormatLevel::FIRST,
    };
    let mut map =
        Map { version: 6, targets: vec![entry], ..Map::new(superblock.fs.clone(), superblock.fs_id) };
    map.note_host("h2");
    let token = TokenRow {
        id: [1; 8],
        secret_hash: [2; 32],
        roles: "server".to_owned(),
        host: String::new(),
        expires_s: NOW_S + 60,
        used_by: None,
    };
    let none = Rows::default();
    let mut entries =
        vec![(crate::store::key(&superblock.fs), form::encode(FormatLevel::NEWEST, &map).unwrap().to_vec())];
    for change in [Change::Host(host("h1", 1)), Change::Host(host("h2", 2)), Change::Token(token)] {
        let (key, _, value) = change.entry(&none).unwrap();
        entries.push((key, value.unwrap()));
    }
    entries.sort();
    let superblock = superblock.to_bytes();
    ConfigBackup { made_s: NOW_S, superblock, authority: String::new(), entries }
}

#[test]
fn a_restored_configuration_is_above_all_that_was_told() {
    let backup = sample();
    let removed = BTreeSet::from([[2; 32], [9; 32]]);
    let new_key = Some(NewKey { host: "h1".into(), key: [5; 32], roles: "server,admin".into() });
    let known = Known { now_s: NOW_S, removed, new_key };
    let restored = backup.restored(&known).unwrap();
    assert_eq!((restored.hosts, restored.removed), (vec!["h1".to_owned()], vec!["h2".to_owned()]));
    let again = ConfigBackup { entries: restored.entries, ..backup.clone() };
    let rows = again.rows().unwrap();
    assert_eq!(rows.tokens().len(), 0, "tokens are void");
    assert!([[2; 32], [9; 32], [1; 32]].iter().all(|key| rows.is_removed(key)), "nobody comes back in");
    assert_eq!(rows.host("h1").map(|row| row.key), Some([5; 32]));
    let (_, map) = again.map(&backup.superblock().unwrap()).unwrap();
    assert!(map.version >= u64::try_from(NOW_S).unwrap() << VERSION_BITS && map.targets[0].epoch > 4);
    // A second restore of the same backup is above the first.
    let later = backup.restored(&Known { now_s: NOW_S + 1, ..Known::default() }).unwrap();
    assert!(later.revision > restored.revision);
    let unknown = NewKey { host: "h7".into(), key: [5; 32], roles: "server".into() };
    let fault = backup.restored(&Known { new_key: Some(unknown), ..Known::default() }).unwrap_err();
    assert_eq!(fault.code, Code::UnknownHost);
}

#[test]
fn a_file_that_is_cut_or_changed_is_refused() {
    let backup = sample();
    let bytes = backup.to_bytes();
    assert_eq!(ConfigBackup::from_bytes("f", &bytes).unwrap(), backup);
    for len in 0..bytes.len() {
        assert!(ConfigBackup::from_bytes("f", &bytes[..len]).is_err(), "cut at {len}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(ConfigBackup::from_bytes("f", &changed).is_err(), "byte {at}");
    }
    let newer = brindle_config::envelope::seal(MAGIC, FORMAT_VERSION + 1, b"x");
    assert_eq!(ConfigBackup::from_bytes("f", &newer).unwrap_err().code, Code::NewerFormat);
    let fault = ConfigBackup::from_bytes("f", b"not a backup").unwrap_err();
    assert_eq!(fault.code, Code::BadConfigBackup);
}
