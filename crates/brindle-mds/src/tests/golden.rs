//! Rows on disk never change without a version: their bytes are compared with files made once.

use brindle_types::attr::Time;
use brindle_types::layout::{Component, ComponentPolicy, EOF};
use brindle_types::{
    ArchivedCopy, Change, ChangeKind, ChangeMask, ChangeSource, FileType, HsmControl, HsmKind, Ino, Layout,
    LayoutPolicy, Pair, PoolChoice, SessionId, Stripe, StripePolicy,
};
use bytes::Bytes;

use crate::store::append::Reservation;
use crate::store::changelog::{Reader, Size, State};
use crate::store::dirent::{Dirent, HashKey};
use crate::store::hsm;
use crate::store::inode::FileBody;
use crate::store::limit::{KindSettings, Limit, Settings};
use crate::store::meta::{AccessTimes, Format};
use crate::store::reply::Reply;
use crate::store::session::Session;
use crate::store::usage::{Kind, Usage};
use crate::store::{Inode, row};

/// Row in the newest form.
fn encoded<T: row::Form>(value: &T) -> Bytes {
    row::encode(row::FormatLevel::NEWEST, value).expect("the newest level holds every form")
}

/// Row in the form of release 0.1.0.
fn first<T: row::Form>(value: &T) -> Bytes {
    row::encode(row::FormatLevel::FIRST, value).expect("the first level holds it")
}

fn pair(term: u32, counter: u64) -> Pair {
    Pair { term, counter }
}

fn body() -> FileBody {
    let component = Component {
        start: 0,
        end: 1 << 20,
        origin: 0,
        generation: pair(3, 4),
        stripe_size_bytes: 65536,
        asked: StripePolicy { count: Some(2), size_bytes: Some(65536), ..StripePolicy::default() },
        osts: vec![2, 0xa],
        objects: vec![0b10],
    };
    let last = Component {
        start: 1 << 20,
        end: EOF,
        origin: 1 << 20,
        osts: Vec::new(),
        objects: Vec::new(),
        asked: StripePolicy {
            count: Some(-1),
            pool: Some(PoolChoice::Named("flash".parse().expect("a good name"))),
            ..StripePolicy::default()
        },
        ..component.clone()
    };
    let old = Component { generation: pair(3, 1), ..component.clone() };
    FileBody {
        layout: Layout {
            epoch: pair(3, 5),
            body: pair(3, 6),
            inline: false,
            components: vec![component, last],
        },
        layout_gen: 1,
        convert_begun: false,
        unsynced: vec![(Stripe { generation: pair(3, 4), index: 0 }, 9)],
        aside: vec![old],
        pending_cut: Some(100),
        changed: pair(3, 6),
    }
}

fn inode(file: bool) -> Inode {
    let time = |secs| Time { secs, nanos: 7 };
    Inode {
        ino: Ino(0x1234),
        kind: if file { FileType::Regular } else { FileType::Directory },
        perm: 0o2755,
        nlink: 2,
        uid: 1000,
        gid: 50,
        rdev: 0,
        size_bytes: 1 << 40,
        allocated_bytes: 4096,
        atime: time(-1),
        mtime: time(2),
        ctime: time(3),
        btime: time(4),
        parent: Ino::ROOT,
        name_hint: b"name"[..].into(),
        data_version: pair(3, 1),
        has_acl: true,
        has_xattr: false,
        open_for_write: true,
        attr_epoch: pair(3, 2),
        truncate_epoch: pair(3, 3),
        file: file.then(|| body().into()),
        layout_policy: (!file).then_some(LayoutPolicy {
            stripe: StripePolicy { count: Some(-1), start_ost: Some(3), ..StripePolicy::default() },
            components: vec![ComponentPolicy {
                end_bytes: EOF,
                stripe: StripePolicy {
                    osts: vec![7, 1],
                    pool: Some(PoolChoice::All),
                    ..StripePolicy::default()
                },
            }],
        }),
        project: 0,
        inherits_project: false,
    }
}

fn in_project(inode: Inode) -> Inode {
    let inherits_project = inode.is_dir();
    Inode { project: 300, inherits_project, ..inode }
}

fn limit() -> Limit {
    Limit { inodes_max: 100, bytes_max: 1 << 40, ..Limit::default() }
}

fn soft_limit() -> Limit {
    let (inodes_soft, bytes_soft) = (90, 1 << 39);
    let (inodes_grace_end, bytes_grace_end) = (None, Some(1_800_000_000));
    Limit { inodes_soft, bytes_soft, inodes_grace_end, bytes_grace_end, is_default: true, ..limit() }
}

fn settings() -> Settings {
    let group = KindSettings { limit: limit(), inodes_grace_secs: 60, bytes_grace_secs: 600 };
    Settings::default().with(Kind::Group, group)
}

fn change() -> Change {
    Change {
        kind: ChangeKind::Rename,
        flags: 1,
        time: Time { secs: 5, nanos: 7 },
        target: Some(Ino(0x1234)),
        parent: Some(Ino::ROOT),
        name: b"new".to_vec(),
        source: Some(ChangeSource { ino: Ino(0x1235), parent: Ino(0x10), name: b"old".to_vec() }),
        user: Some((1000, 50)),
        nid: "10.0.0.1@tcp".into(),
        xattr: b"user.k".to_vec(),
    }
}

fn readers() -> State {
    let reader = Reader {
        id: 4,
        name: "rbh".into(),
        nonce: [3; 16],
        mask: Some(ChangeMask(0b10)),
        cleared: 3 << 40 | 7,
        active: Time { secs: 5, nanos: 7 },
    };
    State { next_id: 5, mask: ChangeMask::DEFAULT, dropped_to: 3 << 40 | 2, readers: vec![reader] }
}

fn hsm_state() -> hsm::State {
    let copy = ArchivedCopy {
        data_version: pair(3, 1),
        attempt: pair(3, 7),
        size_bytes: 1 << 40,
        checksum: [5; 32],
    };
    hsm::State { flags: 0xc, archive: 1, copy: Some(copy) }
}

fn hsm_action() -> hsm::Action {
    let running = hsm::Running { attempt: pair(3, 9), agent: [6; 16], data_version: pair(3, 1) };
    hsm::Action {
        kind: HsmKind::Archive,
        archive: 2,
        uid: 1000,
        cookie: pair(3, 8),
        asked: Time { secs: 5, nanos: 7 },
        running: Some(running),
        lost_attempts: 1,
    }
}

fn samples() -> Vec<(&'static str, Bytes)> {
    let session = Session {
        client_uuid: [9; 16],
        epoch: pair(1, 2),
        ended: true,
        fenced: false,
        host: "cn1".into(),
        mount: "/mnt".into(),
    };
    let key = HashKey(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
    vec![
        ("inode-file", encoded(&in_project(inode(true)))),
        ("inode-dir", encoded(&in_project(inode(false)))),
        ("inode-file-3", first(&inode(true))),
        ("inode-dir-3", first(&inode(false))),
        ("dirent", encoded(&Dirent { ino: Ino(7), kind: FileType::Symlink })),
        ("session", encoded(&session)),
        ("reply", encoded(&Reply { sequence: 300, op: 103, body: Bytes::from_static(b"body") })),
        ("usage", encoded(&Usage { inodes: 3, bytes: 1 << 33 })),
        ("limit", encoded(&soft_limit())),
        ("limit-3", first(&limit())),
        ("quota-settings", encoded(&settings())),
        ("append", encoded(&Reservation { session: SessionId(5), number: 7, len_bytes: 4096, done: true })),
        ("change", encoded(&change())),
        ("changelog-state", encoded(&readers())),
        ("changelog-size", encoded(&Size { records: 3, bytes: 300 })),
        ("hsm-state", encoded(&hsm_state())),
        ("hsm-action", encoded(&hsm_action())),
        ("hsm-control", encoded(&hsm::Control(HsmControl::Stopped))),
        ("format", encoded(&Format { uuid: [1; 16], mdt_index: 0, hash_key: key })),
        ("access-times", encoded(&AccessTimes { since: Time { secs: 5, nanos: 7 }, term: 3 })),
        ("hash", Bytes::copy_from_slice(&key.hash(b"a name").to_be_bytes())),
    ]
}

#[test]
fn rows_keep_their_bytes() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    for (name, bytes) in samples() {
        let path = format!("{dir}/{name}.bin");
        if std::env::var_os("BRINDLE_MAKE_GOLDEN").is_some() {
            std::fs::write(&path, &bytes).expect("written");
        }
        let golden = std::fs::read(&path).expect("golden file");
        assert_eq!(golden, bytes, "{name}");
    }
    let bytes = encoded(&change());
    assert_eq!(row::decode::<Change>("change", b"k", &bytes), Ok(change()));
    let decoded = |at: usize| row::decode::<Inode>("inode", b"k", &samples()[at].1).expect("decodes");
    assert_eq!(decoded(0), in_project(inode(true)));
    assert_eq!(decoded(2), inode(true), "in its first form");
}

#[test]
fn damaged_and_newer_rows_are_named() {
    let refused = |bytes: &[u8]| row::decode::<Usage>("usage", b"U\x00k", bytes).expect_err("refused");
    assert_eq!(
        refused(&[row::FIRST_VERSION, 2]).to_string(),
        "the metadata store is damaged usage row 'U\\x00k'\
         \n  why:  Hit the end of buffer, expected more data\
         \n  next: run: brindle fsck\
         \n  code: E3023 (brindle explain E3023)"
    );
    assert_eq!(refused(&[row::FIRST_VERSION + 1, 2]).code, brindle_types::Code::NewerFormat);
    assert_eq!(refused(&[]).code, brindle_types::Code::KvDamaged);
    assert_eq!(refused(&[row::FIRST_VERSION, 2, 3, 4]).code, brindle_types::Code::KvDamaged);
}
