//! A host whose users and groups have other numbers in the file system. Properties: for every request, in the name of any user, the host
//! sees its own numbers only, and is judged by the numbers of the file system. A user without a number there is nobody, or is refused.

use std::sync::Arc;

use brindle_client::namespace::setattr::SetAttr;
use brindle_client::namespace::xattr::SetHow;
use brindle_client::{Client, Ctx, WriteIn};
use brindle_testkit::cluster::{Options, SimCluster};
use brindle_testkit::sim::World;
use brindle_types::{Attr, Code, FileType, Ino, TargetId};
use brindle_wire::mds::create::CreateReq;
use brindle_wire::mds::getattr::GetattrReq;
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::lookup::LookupReq;
use brindle_wire::mds::mkdir::MkdirReq;
use brindle_wire::mds::mknod::MknodReq;
use brindle_wire::mds::open::{Access, OpenReq};
use brindle_wire::mds::open_ahead::OpenAheadReq;
use brindle_wire::mds::quota::{QuotaOwner, QuotaRoomReq, QuotaShowReq, QuotaSubject, QuotaUseReq, RoomUse};
use brindle_wire::mds::readdir::ReaddirReq;
use brindle_wire::mds::scan::{Range, ScanReq, Term, Test, Wanted};
use brindle_wire::mds::setattr::SetattrReq;
use brindle_wire::mds::symlink::SymlinkReq;
use brindle_wire::mds::tmpfile::TmpfileReq;
use brindle_wire::mgs::id_map::{IdMap, MappedNodemap};
use brindle_wire::mgs::nodemap::Nodemap;
use brindle_wire::{Cred, Message};

use super::{BLOCK, RW, STEP_MS};

const MDT: TargetId = TargetId { role: brindle_types::Role::Mdt, index: 0 };
const R: Access = Access { read: true, write: false, truncate: false, execute: false };
/// Alice, in the file system and at the host; her group has the same numbers.
const ALICE: (u32, u32) = (5000, 1000);
/// A colleague, likewise.
const CAROL: (u32, u32) = (5001, 1001);
/// A user of the file system whom the host does not have.
const BOB: u32 = 7000;
const NOBODY: u32 = 65_534;

fn cred(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Vec::new() }
}

fn ids(deny_unknown: bool) -> IdMap {
    let ranges = || vec!["1000-1009:5000".parse().unwrap()];
    IdMap { uids: ranges(), gids: ranges(), deny_unknown }
}

fn nodemap(ids: IdMap) -> MappedNodemap {
    MappedNodemap { nodemap: Nodemap { hosts: vec!["c1".into()], ..Nodemap::new("lab") }, ids }
}

/// Files that a trusted client has made.
struct Tree {
    /// alice:alice 0777
    home: Ino,
    /// File in it, 0600, of alice.
    hers: Ino,
    /// File in it, 0600, of bob.
    his: Ino,
    /// File in it, 0666, of bob.
    shared: Ino,
    /// bob:bob 0700
    hidden: Ino,
}

async fn file(client: &Client, parent: Ino, name: &[u8], uid: u32, mode: u32) -> Ino {
    let create = brindle_client::namespace::create::CreateIn {
        parent,
        name,
        mode: 0o644,
        umask: 0,
        exclusive: true,
        access: RW,
    };
    let opened = client.create(&Ctx::root(), create).await.unwrap().opened;
    let data = vec![b's'; BLOCK].into();
    let write = WriteIn { offset: 0, data, direct: true, ..WriteIn::default() };
    client.write(&Ctx::root(), opened.handle, write).await.unwrap();
    client.close(opened.handle).await.unwrap();
    own(client, opened.attr.ino, uid, mode).await
}

async fn own(client: &Client, ino: Ino, uid: u32, mode: u32) -> Ino {
    let set = SetAttr { uid: Some(uid), gid: Some(uid), mode: Some(mode), ..SetAttr::default() };
    client.setattr(&Ctx::root(), ino, set).await.unwrap().ino
}

async fn tree(client: &Client) -> Tree {
    let root = client.root();
    let home = client.mkdir(&Ctx::root(), root, b"home", 0o777, 0).await.unwrap().ino;
    let hidden = client.mkdir(&Ctx::root(), root, b"hidden", 0o777, 0).await.unwrap().ino;
    let hers = file(client, home, b"hers", ALICE.0, 0o600).await;
    let his = file(client, home, b"his", BOB, 0o600).await;
    let shared = file(client, home, b"shared", BOB, 0o666).await;
    own(client, home, ALICE.0, 0o777).await;
    own(client, hidden, BOB, 0o700).await;
    Tree { home, hers, his, shared, hidden }
}

/// A trusted client on host c0, what it has made, and a client on host c1 with numbers of its own.
fn world(ids: IdMap) -> (World, Arc<Client>, Tree, Host) {
    let cluster = SimCluster::new(41, Options { osts: 1, clients: 2 });
    let world = cluster.world().clone();
    world.set_mapped_nodemaps(&[nodemap(ids)]);
    let mount = |host: &str| world.run_until(STEP_MS, SimCluster::mount(&world.node(host))).unwrap();
    let (honest, client) = (mount("c0"), mount("c1"));
    let made = world.run_until(STEP_MS, tree(&honest)).unwrap();
    (world, honest, made, Host(client))
}

/// Asks the MDT for whatever it likes.
struct Host(Arc<Client>);

impl Host {
    async fn ask<M: Message>(&self, request: &M) -> Result<M::Resp, Code> {
        let caller = self.0.targets().caller(MDT).await.unwrap();
        caller.ask(request).await.map_err(|fault| fault.code)
    }

    async fn opens(&self, ino: Ino, access: Access, uid: u32) -> Result<Attr, Code> {
        let open = OpenReq { ino, handle: 77, access, cred: cred(uid), kill_suidgid: false };
        let attr = self.ask(&open).await?.attr;
        self.ask(&brindle_wire::mds::close::CloseReq::one(ino, 77, None)).await.unwrap();
        Ok(attr)
    }
}

fn owners(attr: &Attr) -> (u32, u32) {
    (attr.uid, attr.gid)
}

fn set(ino: Ino, uid: u32) -> SetattrReq {
    SetattrReq {
        ino,
        cred: cred(uid),
        mode: None,
        uid: None,
        gid: None,
        size_bytes: None,
        atime: None,
        mtime: None,
        kill_suidgid: false,
        handle: 0,
        report: None,
    }
}

#[test]
fn numbers_of_the_file_system_and_of_strangers_open_nothing() {
    let (world, honest, tree, host) = world(ids(false));
    let attack = async {
        for uid in [0, ALICE.0, CAROL.1, BOB, NOBODY, u32::MAX] {
            assert_eq!(host.opens(tree.hers, R, uid).await.unwrap_err(), Code::PermissionDenied, "{uid}");
            let chmod = SetattrReq { mode: Some(0o777), ..set(tree.hers, uid) };
            assert_eq!(host.ask(&chmod).await.unwrap_err(), Code::NotPermitted, "{uid}");
        }
        for uid in [0, ALICE.0, ALICE.1, BOB, NOBODY] {
            assert_eq!(host.opens(tree.his, R, uid).await.unwrap_err(), Code::PermissionDenied, "{uid}");
            let make = LookupReq { parent: tree.hidden, name: b"x".to_vec() };
            assert_eq!(host.ask(&make).await.unwrap_err(), Code::PermissionDenied, "{uid}");
        }
        let ahead = host.ask(&OpenAheadReq { opens: vec![(tree.his, 80), (tree.hers, 81)] }).await.unwrap();
        assert_eq!(ahead.opened, [None, None]);
        assert_eq!(owners(&host.opens(tree.hers, RW, ALICE.1).await.unwrap()), (ALICE.1, ALICE.1));
        // No user becomes an owner whom the host does not know, and no other user's file becomes theirs.
        for uid in [BOB, NOBODY, 0, ALICE.0] {
            let chown = SetattrReq { uid: Some(uid), ..set(tree.hers, ALICE.1) };
            assert_eq!(host.ask(&chown).await.unwrap_err(), Code::NumberNotMapped, "{uid}");
            let chgrp = SetattrReq { gid: Some(uid), ..set(tree.hers, ALICE.1) };
            assert_eq!(host.ask(&chgrp).await.unwrap_err(), Code::NumberNotMapped, "{uid}");
        }
        let chown = SetattrReq { uid: Some(CAROL.1), ..set(tree.hers, ALICE.1) };
        assert_eq!(host.ask(&chown).await.unwrap_err(), Code::NotPermitted);
        let own = SetattrReq { uid: Some(ALICE.1), gid: Some(CAROL.1), ..set(tree.hers, ALICE.1) };
        assert_eq!(owners(&host.ask(&own).await.unwrap().attr), (ALICE.1, CAROL.1));
        assert_eq!(owners(&honest.getattr(tree.hers).await.unwrap()), (ALICE.0, CAROL.0));
        let back = SetattrReq { gid: Some(ALICE.1), ..set(tree.hers, ALICE.1) };
        assert_eq!(owners(&host.ask(&back).await.unwrap().attr), (ALICE.1, ALICE.1));
    };
    world.run_until(STEP_MS, attack).unwrap();
    world.end();
}

#[test]
fn every_answer_has_the_numbers_of_the_host() {
    let (world, honest, tree, host) = world(ids(false));
    let work = async {
        made(&host, &honest, tree.home).await;
        let look = LookupReq { parent: tree.home, name: b"his".to_vec() };
        assert_eq!(owners(&host.ask(&look).await.unwrap().attr), (NOBODY, NOBODY));
        let look = GetattrReq { ino: tree.hers, report: None };
        assert_eq!(owners(&host.ask(&look).await.unwrap().attr), (ALICE.1, ALICE.1));
        let look = GetattrReq { ino: host.0.root(), report: None };
        assert_eq!(
            owners(&host.ask(&look).await.unwrap().attr),
            (NOBODY, NOBODY),
            "root has no number there"
        );
        let ahead = host.ask(&OpenAheadReq { opens: vec![(tree.shared, 90)] }).await.unwrap();
        let opened = ahead.opened[0].as_ref().map(|opened| owners(&opened.attr));
        assert!(opened.is_none_or(|seen| seen == (NOBODY, NOBODY)), "{opened:?}");
        found(&host, tree.home).await;
    };
    world.run_until(STEP_MS, work).unwrap();
    // Through the caches of a mount, over changes of others.
    let mount = async {
        let listed = host.0.readdir(tree.home, 0, 100, true).await.unwrap();
        drop(listed);
        for mode in [0o640, 0o600, 0o644] {
            let chmod = SetAttr { mode: Some(mode), ..SetAttr::default() };
            honest.setattr(&Ctx::root(), tree.hers, chmod).await.unwrap();
            for _ in 0..2 {
                let seen = host.0.lookup(tree.home, b"hers").await.unwrap();
                assert_eq!((seen.uid, seen.gid, u32::from(seen.perm)), (ALICE.1, ALICE.1, mode));
                assert_eq!(owners(&host.0.getattr(tree.hers).await.unwrap()), (ALICE.1, ALICE.1));
            }
        }
        // A file of somebody who has no number here is written by whoever may.
        let opened = host.0.open(&Ctx::of(cred(ALICE.1)), tree.shared, RW, false).await.unwrap();
        let write = WriteIn { offset: 0, data: vec![b'w'; BLOCK].into(), direct: true, ..WriteIn::default() };
        host.0.write(&Ctx::of(cred(ALICE.1)), opened.handle, write).await.unwrap();
        let room = QuotaRoomReq {
            uid: NOBODY,
            gid: NOBODY,
            wanted_bytes: 1,
            user: RoomUse::default(),
            group: RoomUse::default(),
            ino: tree.shared,
        };
        assert_eq!(host.ask(&room).await.unwrap().user_bytes, None, "nobody limits bob");
        host.0.close(opened.handle).await.unwrap();
        assert_eq!(owners(&honest.getattr(tree.shared).await.unwrap()), (BOB, BOB));
    };
    world.run_until(STEP_MS, mount).unwrap();
    world.end();
}

/// Files that alice makes are hers on both sides.
async fn made(host: &Host, honest: &Client, parent: Ino) {
    let (mode, umask, alice) = (0o600, 0, cred(ALICE.1));
    let handle = |n: u64| 100 + n;
    let create = |name: &[u8], n| CreateReq {
        parent,
        name: name.to_vec(),
        mode,
        umask,
        exclusive: false,
        access: RW,
        handle: handle(n),
        cred: alice.clone(),
    };
    let name = |name: &str| name.as_bytes().to_vec();
    let mkdir = MkdirReq { parent, name: name("d"), mode, umask, cred: alice.clone() };
    let mknod =
        MknodReq { parent, name: name("p"), mode, umask, kind: FileType::Fifo, rdev: 0, cred: alice.clone() };
    let symlink = SymlinkReq { parent, name: name("s"), target: name("t"), cred: alice.clone() };
    let tmpfile = TmpfileReq { parent, mode, umask, access: RW, handle: handle(3), cred: alice.clone() };
    let mut seen = vec![
        host.ask(&create(b"f", 1)).await.unwrap().attr,
        host.ask(&create(b"f", 2)).await.unwrap().attr,
        host.ask(&mkdir).await.unwrap().attr,
        host.ask(&mknod).await.unwrap().attr,
        host.ask(&symlink).await.unwrap().attr,
        host.ask(&tmpfile).await.unwrap().attr,
    ];
    let link = LinkReq { ino: seen[0].ino, parent, name: name("l"), cred: alice.clone() };
    seen.push(host.ask(&link).await.unwrap().attr);
    for attr in &seen {
        assert_eq!(owners(attr), (ALICE.1, ALICE.1), "{attr:?}");
        assert_eq!(owners(&honest.getattr(attr.ino).await.unwrap()), (ALICE.0, ALICE.0), "{attr:?}");
    }
    // Root of the host, and users whom the file system does not know, are nobody.
    for (uid, n) in [(0, 4), (7, 5), (ALICE.0, 6)] {
        let file = CreateReq { cred: cred(uid), ..create(format!("of {uid}").as_bytes(), n) };
        let attr = host.ask(&file).await.unwrap().attr;
        assert_eq!(
            (owners(&attr), owners(&honest.getattr(attr.ino).await.unwrap())),
            ((NOBODY, NOBODY), (NOBODY, NOBODY))
        );
    }
}

/// Lists, searches and usage.
async fn found(host: &Host, home: Ino) {
    let list = ReaddirReq { ino: home, after: 0, entries_max: 100, plus: true };
    let listed = host.ask(&list).await.unwrap();
    for attr in listed.entries.iter().filter_map(|entry| entry.attr.as_ref()) {
        assert!([ALICE.1, NOBODY].contains(&attr.uid) && [ALICE.1, NOBODY].contains(&attr.gid), "{attr:?}");
    }
    let scan = |test: Test| ScanReq {
        cred: cred(ALICE.1),
        start: home,
        start_name: Vec::new(),
        predicate: vec![Term::Test(test)],
        depth_min: 1,
        depth_max: 1,
        wanted: Wanted::Attrs,
        cursor: None,
    };
    let one = |id: u32| Range { min: id.into(), max: id.into() };
    for (test, shown) in [
        (Test::Uid(one(ALICE.1)), Some(ALICE.1)),
        (Test::Gid(one(ALICE.1)), Some(ALICE.1)),
        (Test::Uid(one(NOBODY)), Some(NOBODY)),
        (Test::Uid(one(BOB)), None),
        (Test::Uid(one(ALICE.0)), None),
    ] {
        let found = host.ask(&scan(test.clone())).await.unwrap().found;
        let seen: Vec<u32> = found.iter().map(|found| found.attr.as_ref().unwrap().uid).collect();
        assert_eq!(seen.first().copied(), shown, "{test:?}");
        assert!(seen.iter().all(|uid| Some(*uid) == shown), "{test:?}: {seen:?}");
    }
    let usage = |id, uid| QuotaUseReq { owner: QuotaOwner::User, id, cred: cred(uid) };
    assert!(host.ask(&usage(ALICE.1, ALICE.1)).await.unwrap().inodes > 3);
    assert_eq!(host.ask(&usage(ALICE.0, ALICE.1)).await.unwrap_err(), Code::NumberNotMapped);
    assert_eq!(host.ask(&usage(CAROL.1, ALICE.1)).await.unwrap_err(), Code::NotPermitted);
    assert_eq!(host.ask(&usage(BOB, BOB)).await.unwrap_err(), Code::NumberNotMapped);
    let shown = |id, uid| {
        let subject = QuotaSubject::Owner { owner: QuotaOwner::User, id };
        QuotaShowReq { subject, cred: cred(uid) }
    };
    assert!(host.ask(&shown(ALICE.1, ALICE.1)).await.unwrap().inodes > 3);
    assert_eq!(host.ask(&shown(ALICE.0, ALICE.1)).await.unwrap_err(), Code::NumberNotMapped);
}

/// An access ACL that names two users and a group.
fn acl(users: [u32; 2], group: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries: [(u16, u16, u32); 7] = [
        (0x01, 6, none),
        (0x02, 4, users[0]),
        (0x02, 6, users[1]),
        (0x04, 0, none),
        (0x08, 4, group),
        (0x10, 6, none),
        (0x20, 0, none),
    ];
    let entry = |(tag, perm, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2u32.to_le_bytes().to_vec(), entries.into_iter().flat_map(entry).collect()].concat()
}

#[test]
fn acls_name_the_users_of_the_host() {
    let (world, honest, tree, host) = world(ids(false));
    let work = async {
        for name in [&b"system.posix_acl_access"[..], b"system.posix_acl_default"] {
            let ino = if name.ends_with(b"access") { tree.hers } else { tree.home };
            let theirs = acl([CAROL.0, BOB], CAROL.0);
            honest.setxattr(&Ctx::root(), ino, name, &theirs, SetHow::default()).await.unwrap();
            assert_eq!(host.0.getxattr(ino, name).await.unwrap(), acl([CAROL.1, NOBODY], CAROL.1));
            // An entry without a number is not taken back: bob would lose his right.
            for foreign in [acl([CAROL.1, NOBODY], CAROL.1), acl([CAROL.1, ALICE.1], BOB)] {
                let alice = Ctx::of(cred(ALICE.1));
                let refusal =
                    host.0.setxattr(&alice, ino, name, &foreign, SetHow::default()).await.unwrap_err();
                assert_eq!(refusal.code, Code::NumberNotMapped, "{refusal}");
            }
            assert_eq!(honest.getxattr(ino, name).await.unwrap(), theirs);
            let alice = Ctx::of(cred(ALICE.1));
            host.0
                .setxattr(&alice, ino, name, &acl([CAROL.1, ALICE.1], CAROL.1), SetHow::default())
                .await
                .unwrap();
            assert_eq!(honest.getxattr(ino, name).await.unwrap(), acl([CAROL.0, ALICE.0], CAROL.0));
        }
        // The group counts with the numbers of the file system.
        assert_eq!(owners(&host.opens(tree.hers, R, CAROL.1).await.unwrap()), (ALICE.1, ALICE.1));
        assert_eq!(host.opens(tree.hers, R, CAROL.0).await.unwrap_err(), Code::PermissionDenied);
    };
    world.run_until(STEP_MS, work).unwrap();
    world.end();
}

#[test]
fn strangers_are_refused_where_the_nodemap_says_so() {
    let (world, honest, tree, host) = world(ids(true));
    let attack = async {
        for uid in [0, ALICE.0, BOB, NOBODY] {
            assert_eq!(host.opens(tree.shared, R, uid).await.unwrap_err(), Code::UserNotMapped, "{uid}");
            let (parent, name) = (tree.home, b"new".to_vec());
            let make = MkdirReq { parent, name, mode: 0o777, umask: 0, cred: cred(uid) };
            assert_eq!(host.ask(&make).await.unwrap_err(), Code::UserNotMapped, "{uid}");
        }
        let stranger = Cred { gid: BOB, ..cred(ALICE.1) };
        let open = OpenReq { ino: tree.shared, handle: 5, access: R, cred: stranger, kill_suidgid: false };
        assert_eq!(host.ask(&open).await.unwrap_err(), Code::UserNotMapped, "his group");
        let alice = Ctx::of(cred(ALICE.1));
        let opened = host.0.open(&alice, tree.hers, RW, false).await.unwrap();
        let write = WriteIn { offset: 0, data: vec![b'w'; 100].into(), ..WriteIn::default() };
        host.0.write(&alice, opened.handle, write).await.unwrap();
        host.0.fsync(opened.handle).await.unwrap();
        host.0.close(opened.handle).await.unwrap();
        assert_eq!(owners(&honest.getattr(tree.hers).await.unwrap()), (ALICE.0, ALICE.0));
    };
    world.run_until(STEP_MS, attack).unwrap();
    world.end();
}

/// Attributes that a mount keeps have the numbers of the mapping before: it begins again.
#[test]
fn another_mapping_counts_for_what_a_mount_has_kept() {
    let (world, _honest, tree, host) = world(ids(false));
    let look = || world.run_until(STEP_MS, host.0.lookup(tree.home, b"hers")).unwrap().unwrap();
    assert_eq!(owners(&look()), (ALICE.1, ALICE.1));
    let other = IdMap { uids: vec!["2000:5000".parse().unwrap()], ..ids(false) };
    for (now, uid) in [(Some(other), 2000), (None, ALICE.0)] {
        world.set_mapped_nodemaps(&now.map(nodemap).into_iter().collect::<Vec<_>>());
        let seen = async {
            loop {
                if let Ok(attr) = host.0.lookup(tree.home, b"hers").await
                    && attr.uid == uid
                {
                    break;
                }
                host.0.seams().sleep_ms(100).await;
            }
        };
        world.run_until(STEP_MS, seen).unwrap();
    }
    world.end();
}
