//! A host that a nodemap limits, with a client program of its own. The program makes any request to the MDT and the OSTs, by inode number
//! and by object, in the name of any user. Property: the host gets and changes only what a user of the host may, and the honest clients go
//! on.

use std::sync::Arc;

use brindle_client::namespace::create::CreateIn;
use brindle_client::namespace::rename::RenameIn;
use brindle_client::namespace::setattr::SetAttr;
use brindle_client::{Client, Ctx, WriteIn};
use brindle_testkit::cluster::{Options, SimCluster};
use brindle_testkit::sim::World;
use brindle_types::{Attr, Code, FileType, Ino, Layout, ObjectId, Pair, TargetId};
use brindle_wire::mds::close::CloseReq;
use brindle_wire::mds::convert::{ConvertReq, LayoutGetReq, SpillReq};
use brindle_wire::mds::create::CreateReq;
use brindle_wire::mds::fsync::FsyncReq;
use brindle_wire::mds::getattr::GetattrReq;
use brindle_wire::mds::hsm::{HsmActReq, HsmAsk, HsmRecallReq, HsmSetReq, HsmStateReq, HsmTakeReq};
use brindle_wire::mds::inline::InlineReadReq;
use brindle_wire::mds::invalidate::{Holders, InvalidateReq};
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::lock::{LockKind, LockSpace, LockState, SetLockReq};
use brindle_wire::mds::lookup::LookupReq;
use brindle_wire::mds::migrate::MigrateReq;
use brindle_wire::mds::mkdir::MkdirReq;
use brindle_wire::mds::mknod::MknodReq;
use brindle_wire::mds::note_access::{Accessed, NoteAccessReq};
use brindle_wire::mds::open::{Access, OpenReq};
use brindle_wire::mds::open_ahead::OpenAheadReq;
use brindle_wire::mds::path::PathOfReq;
use brindle_wire::mds::policy::{HsmBacklogReq, PolicyRemoveReq, PolicyScanReq};
use brindle_wire::mds::project::{ProjectGetReq, ProjectSetReq};
use brindle_wire::mds::quota::{
    QuotaChange, QuotaChangeReq, QuotaFileRoomReq, QuotaListReq, QuotaOwner, QuotaRoomReq, QuotaSetReq,
    QuotaSubject, RoomUse,
};
use brindle_wire::mds::readdir::ReaddirReq;
use brindle_wire::mds::rename::RenameReq;
use brindle_wire::mds::report::{ReportReq, SyncedObjects, WriteReport};
use brindle_wire::mds::scan::{ScanCursor, ScanLevel, ScanReq, Wanted};
use brindle_wire::mds::setattr::{SetTime, SetattrReq};
use brindle_wire::mds::stripe::{GetStripeReq, SetStripeReq};
use brindle_wire::mds::symlink::SymlinkReq;
use brindle_wire::mds::tmpfile::TmpfileReq;
use brindle_wire::mds::unlink::{RmdirReq, UnlinkReq};
use brindle_wire::mds::waits::MdtWaitsReq;
use brindle_wire::mds::xattr::{GetxattrReq, ListxattrReq, RemovexattrReq, SetxattrReq};
use brindle_wire::mgs::nodemap::{Nodemap, Squash};
use brindle_wire::oss::Ticket;
use brindle_wire::oss::punch::{AllocateReq, PunchReq};
use brindle_wire::oss::read::ReadReq;
use brindle_wire::oss::seek::SeekReq;
use brindle_wire::oss::stat::StatObjectsReq;
use brindle_wire::oss::write::{CopyRangeReq, WriteReq};
use brindle_wire::{Cred, Message};

use super::{BLOCK, RW, STEP_MS};

const MDT: TargetId = TargetId { role: brindle_types::Role::Mdt, index: 0 };
const R: Access = Access { read: true, write: false, truncate: false, execute: false };
const NEWEST: Pair = Pair { term: u32::MAX, counter: u64::MAX };
const ALICE: u32 = 1000;
const MALLORY: u32 = 2000;

fn cred(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Vec::new() }
}

fn ticket() -> Ticket {
    Ticket { layout_epoch: NEWEST, truncate_epoch: NEWEST, attr_epoch: NEWEST, must_exist: false }
}

/// Files that a trusted client has made.
struct Tree {
    /// root:root 0700
    hidden: Ino,
    /// File in it, 0644, of root: its bytes lie in objects.
    deep: Ino,
    /// alice:alice 0755
    home: Ino,
    /// File in it, 0600, of alice: its bytes lie in objects.
    secret: Ino,
    /// root:root 1777
    tmp: Ino,
    /// File in it, 0644, of alice.
    hers: Ino,
    /// File in it, 0644, of mallory: its bytes lie in objects.
    own: Ino,
    secret_object: (ObjectId, u16),
    own_object: (ObjectId, u16),
}

async fn owned(client: &Client, ino: Ino, uid: u32, mode: u32) -> Attr {
    let set = SetAttr { uid: Some(uid), gid: Some(uid), mode: Some(mode), ..SetAttr::default() };
    client.setattr(&Ctx::root(), ino, set).await.unwrap()
}

async fn dir(client: &Client, name: &[u8], uid: u32, mode: u32) -> Ino {
    let made = client.mkdir(&Ctx::root(), client.root(), name, 0o755, 0).await.unwrap();
    owned(client, made.ino, uid, mode).await;
    made.ino
}

async fn file(client: &Client, parent: Ino, name: &[u8], uid: u32, mode: u32) -> Ino {
    let ctx = Ctx::root();
    let create = CreateIn { parent, name, mode: 0o644, umask: 0, exclusive: true, access: RW };
    let opened = client.create(&ctx, create).await.unwrap().opened;
    let data = vec![b's'; BLOCK].into();
    client
        .write(&ctx, opened.handle, WriteIn { offset: 0, data, direct: true, ..WriteIn::default() })
        .await
        .unwrap();
    client.fsync(opened.handle).await.unwrap();
    client.close(opened.handle).await.unwrap();
    owned(client, opened.attr.ino, uid, mode).await;
    opened.attr.ino
}

async fn object(client: &Client, ino: Ino) -> (ObjectId, u16) {
    let layout: Layout = client.get_stripe(ino).await.unwrap().layout.unwrap();
    let (stripe, ost) = layout.stripes().next().unwrap();
    (ObjectId::of(ino, stripe), ost)
}

async fn tree(client: &Client) -> Tree {
    let hidden = dir(client, b"hidden", 0, 0o700).await;
    let home = dir(client, b"home", ALICE, 0o755).await;
    let tmp = dir(client, b"tmp", 0, 0o1777).await;
    let deep = file(client, hidden, b"deep", 0, 0o644).await;
    let secret = file(client, home, b"secret", ALICE, 0o600).await;
    let hers = file(client, tmp, b"hers", ALICE, 0o644).await;
    let own = file(client, tmp, b"own", MALLORY, 0o644).await;
    let (secret_object, own_object) = (object(client, secret).await, object(client, own).await);
    Tree { hidden, deep, home, secret, tmp, hers, own, secret_object, own_object }
}

/// A trusted client on host c0, what it has made, and a client on host c1 that a nodemap limits.
fn world(nodemap: Nodemap) -> (World, Arc<Client>, Tree, Arc<Client>) {
    let (_, world, honest, tree, limited) = cluster(nodemap);
    (world, honest, tree, limited)
}

/// A cluster with the same limits, and its servers.
fn cluster(nodemap: Nodemap) -> (SimCluster, World, Arc<Client>, Tree, Arc<Client>) {
    let cluster = SimCluster::new(38, Options { osts: 2, clients: 2 });
    let world = cluster.world().clone();
    world.set_nodemaps(&[Nodemap { hosts: vec!["c1".into()], ..nodemap }]);
    let mount = |host: &str| world.run_until(STEP_MS, SimCluster::mount(&world.node(host))).unwrap();
    let (honest, hostile) = (mount("c0"), mount("c1"));
    let made = world.run_until(STEP_MS, tree(&honest)).unwrap();
    (cluster, world, honest, made, hostile)
}

/// A client that asks for forbidden things.
struct Hostile {
    client: Arc<Client>,
}

impl Hostile {
    async fn ask<M: Message>(&self, target: TargetId, request: &M) -> Result<M::Resp, Code> {
        let caller = self.client.targets().caller(target).await.unwrap();
        caller.ask(request).await.map_err(|fault| fault.code)
    }

    async fn refused<M: Message + std::fmt::Debug>(&self, target: TargetId, request: &M) {
        let refusals = [
            Code::PermissionDenied,
            Code::NotPermitted,
            Code::NotForNodemap,
            Code::ReadOnlyHost,
            Code::NotForCaller,
            Code::NeedsRoot,
            Code::NoXattr,
        ];
        match self.ask(target, request).await {
            Err(code) if refusals.contains(&code) => {}
            Err(code) => panic!("{}: refused with {code}", M::OP.name()),
            Ok(_) => panic!("{} was not refused: {request:?}", M::OP.name()),
        }
    }

    /// Sends every request that looks at a file or its bytes.
    async fn looks(&self, ino: Ino, parent: Ino, name: &[u8], uid: u32) {
        let execute = Access { read: true, execute: true, ..R };
        for access in [R, execute, Access::default()] {
            let open = OpenReq { ino, handle: 1 << 40, access, cred: cred(uid), kill_suidgid: false };
            self.refused(MDT, &open).await;
        }
        self.refused(MDT, &InlineReadReq { ino }).await;
        self.refused(MDT, &LayoutGetReq { ino }).await;
        self.refused(MDT, &ConvertReq { ino, offset: 0, len_bytes: 1, promised: false }).await;
        self.refused(MDT, &SpillReq { ino, offset: 0, len_bytes: 1, ost: 0 }).await;
        let holders = Holders::AllReaders;
        self.refused(MDT, &InvalidateReq { ino, offset: 0, len_bytes: 1, holders }).await;
        let lock =
            LockState { space: LockSpace::Flock, owner: 1, kind: LockKind::Write, start: 0, end: 9, pid: 1 };
        self.refused(MDT, &SetLockReq { ino, lock, wait: false, request: 1 }).await;
        self.refused(MDT, &PathOfReq { ino }).await;
        let recall = HsmRecallReq { ino, waits_for: None, cred: cred(uid) };
        self.refused(MDT, &recall).await;
        self.refused(MDT, &HsmActReq { ino, ask: HsmAsk::Restore, cred: cred(uid) }).await;
        let opened = self.ask(MDT, &OpenAheadReq { opens: vec![(ino, 1 << 41)] }).await.unwrap();
        assert_eq!(opened.opened, [None], "opened ahead");
        let create = CreateReq {
            parent,
            name: name.to_vec(),
            mode: 0o777,
            umask: 0,
            exclusive: false,
            access: R,
            handle: 1 << 42,
            cred: cred(uid),
        };
        self.refused(MDT, &create).await;
    }

    /// Sends every request that changes a file or its name.
    async fn changes(&self, tree: &Tree, ino: Ino, parent: Ino, name: &[u8], uid: u32) {
        let (name, cred) = (name.to_vec(), cred(uid));
        let write = Access { write: true, ..Access::default() };
        let cut = Access { truncate: true, ..Access::default() };
        for access in [write, cut] {
            let open = OpenReq { ino, handle: 1 << 43, access, cred: cred.clone(), kill_suidgid: false };
            self.refused(MDT, &open).await;
        }
        let none = SetattrReq {
            ino,
            cred: cred.clone(),
            mode: None,
            uid: None,
            gid: None,
            size_bytes: None,
            atime: None,
            mtime: None,
            kill_suidgid: false,
            handle: 0,
            report: None,
        };
        let at = Some(SetTime::At(brindle_types::attr::Time { secs: 1, nanos: 0 }));
        self.refused(MDT, &SetattrReq { mode: Some(0o777), ..none.clone() }).await;
        self.refused(MDT, &SetattrReq { uid: Some(uid), ..none.clone() }).await;
        self.refused(MDT, &SetattrReq { gid: Some(uid), ..none.clone() }).await;
        self.refused(MDT, &SetattrReq { size_bytes: Some(0), ..none.clone() }).await;
        self.refused(MDT, &SetattrReq { mtime: at, ..none.clone() }).await;
        self.refused(MDT, &SetattrReq { atime: Some(SetTime::Now), ..none }).await;
        for attribute in ["user.a", "trusted.a", "security.capability", "system.posix_acl_access"] {
            let set = SetxattrReq {
                ino,
                name: attribute.into(),
                value: Vec::new(),
                create: false,
                replace: false,
                kill_sgid: false,
                cred: cred.clone(),
            };
            self.refused(MDT, &set).await;
            self.refused(MDT, &RemovexattrReq { ino, name: attribute.into(), cred: cred.clone() }).await;
        }
        self.refused(MDT, &SetStripeReq { ino, policy: None, cred: cred.clone() }).await;
        let (policy, avoid, piece) = (None, vec![0], 64 << 10);
        self.refused(
            MDT,
            &MigrateReq { ino, offset: 0, policy, avoid, copy_max_bytes: piece, cred: cred.clone() },
        )
        .await;
        for ask in [HsmAsk::Archive(1), HsmAsk::Release, HsmAsk::Remove, HsmAsk::Cancel] {
            self.refused(MDT, &HsmActReq { ino, ask, cred: cred.clone() }).await;
        }
        self.refused(MDT, &HsmSetReq { ino, set: 1, clear: 0, archive: None, cred: cred.clone() }).await;
        self.refused(MDT, &UnlinkReq { parent, name: name.clone(), cred: cred.clone() }).await;
        self.refused(MDT, &RmdirReq { parent, name: name.clone(), cred: cred.clone() }).await;
        self.renames(tree, parent, name, cred).await;
    }

    /// Moving its name away, and another name onto it.
    async fn renames(&self, tree: &Tree, parent: Ino, name: Vec<u8>, cred: Cred) {
        let away = RenameReq {
            parent,
            name: name.clone(),
            new_parent: tree.tmp,
            new_name: b"taken".to_vec(),
            no_replace: false,
            exchange: false,
            whiteout: false,
            cred: cred.clone(),
        };
        self.refused(MDT, &away).await;
        let onto = RenameReq {
            parent: tree.tmp,
            name: b"own".to_vec(),
            new_parent: parent,
            new_name: name.clone(),
            ..away.clone()
        };
        self.refused(MDT, &onto).await;
        self.refused(MDT, &RenameReq { exchange: true, ..onto }).await;
    }

    /// The bytes of a file where they lie.
    async fn objects(&self, (object, ost): (ObjectId, u16), own: (ObjectId, u16)) {
        let (target, ticket) = (TargetId::ost(ost), ticket());
        let len_bytes = 4096;
        self.refused(target, &ReadReq { object, offset: 0, len_bytes, may_cache: false, ticket }).await;
        self.refused(target, &SeekReq { object, offset: 0, data: true, must_exist: false }).await;
        let (offset, len_bytes) = (0, 4096);
        self.refused(target, &PunchReq { object, offset, len_bytes, keep_space: false, ticket }).await;
        self.refused(target, &AllocateReq { object, offset, len_bytes, keep_len: false, ticket }).await;
        self.refused(target, &StatObjectsReq { objects: vec![object] }).await;
        let copy = |source: (ObjectId, u16), to: ObjectId| CopyRangeReq {
            source: source.0,
            source_ost: source.1,
            source_offset: 0,
            source_must_exist: false,
            object: to,
            offset: 0,
            len_bytes: 4096,
            ticket,
        };
        self.refused(TargetId::ost(own.1), &copy((object, ost), own.0)).await;
        self.refused(target, &copy(own, object)).await;
        let write = WriteReq { object, offset: 0, ticket, sync: false, told: Vec::new(), claim: None };
        let caller = self.client.targets().caller(target).await.unwrap();
        let refusal = caller.call(&write, vec![vec![b'!'; 4096].into()]).await.unwrap_err();
        assert!(matches!(refusal.code, Code::PermissionDenied | Code::ReadOnlyHost), "{refusal}");
    }

    /// Operations about the file system or other hosts, and those of administrators.
    async fn everything_else(&self, root: Ino) {
        let cred = Cred::default();
        self.refused(MDT, &MdtWaitsReq {}).await;
        self.refused(MDT, &HsmBacklogReq { cred: cred.clone() }).await;
        let scan = PolicyScanReq {
            start: root,
            predicate: Vec::new(),
            flags: Vec::new(),
            xattrs: Vec::new(),
            cursor: None,
            cred: cred.clone(),
        };
        self.refused(MDT, &scan).await;
        let (ctime, mtime) = Default::default();
        let remove =
            PolicyRemoveReq { path: b"tmp/hers".to_vec(), ino: root, ctime, mtime, cred: cred.clone() };
        self.refused(MDT, &remove).await;
        let take =
            HsmTakeReq { agent: [1; 16], host: "c1".into(), archives: vec![1], max: 1, cred: cred.clone() };
        self.refused(MDT, &take).await;
        let (owner, id, limit) = (QuotaOwner::User, ALICE, Some(1));
        let set = QuotaSetReq { owner, id, inodes_max: limit, bytes_max: limit, cred: cred.clone() };
        self.refused(MDT, &set).await;
        let change = QuotaChange { bytes_max: Some(0), ..QuotaChange::default() };
        let subject = QuotaSubject::Default(owner);
        self.refused(MDT, &QuotaChangeReq { subject, change, dry_run: true, cred: cred.clone() }).await;
        self.refused(MDT, &QuotaListReq { owner, behind: None, cred: cred.clone() }).await;
        // By its project the tree of a host is limited.
        self.refused(MDT, &ProjectSetReq { ino: root, id: Some(0), inherits: None, cred }).await;
    }
}

fn state(world: &World, honest: &Client, tree: &Tree) -> Vec<Attr> {
    let inodes = [tree.hidden, tree.deep, tree.home, tree.secret, tree.hers];
    let look = async {
        let mut found = Vec::new();
        for ino in inodes {
            found.push(honest.getattr(ino).await.unwrap());
        }
        found
    };
    world.run_until(STEP_MS, look).unwrap()
}

/// Reports that nobody has asked for: they are answered, and count for nothing.
async fn forge_reports(hostile: &Hostile, tree: &Tree) {
    for ino in [tree.secret, tree.deep, tree.hers] {
        let report = WriteReport {
            number: 77,
            end_bytes: 1 << 30,
            written: true,
            attr_epoch: NEWEST,
            truncate_epoch: NEWEST,
            allocated_bytes: Some(0),
            ..WriteReport::default()
        };
        let _ = hostile.ask(MDT, &CloseReq::one(ino, 5, Some(report.clone()))).await;
        let _ = hostile.ask(MDT, &FsyncReq { ino, report: Some(report.clone()) }).await;
        let _ = hostile.ask(MDT, &GetattrReq { ino, report: Some(report.clone()) }).await;
        let synced = vec![SyncedObjects { ino, body: NEWEST, stripes: Vec::new() }];
        let _ = hostile.ask(MDT, &ReportReq { items: vec![(ino, report)], synced }).await;
    }
}

#[test]
fn a_squashed_host_gets_nothing_by_numbers() {
    let (world, honest, tree, client) = world(Nodemap { squash: Squash::Root, ..Nodemap::new("lab") });
    let before = state(&world, &honest, &tree);
    let hostile = Hostile { client: client.clone() };
    let attack = async {
        // Below a directory that is root's alone nothing is reached, in nobody's name.
        for uid in [0, ALICE, MALLORY] {
            hostile.looks(tree.deep, tree.hidden, b"deep", uid).await;
            hostile.changes(&tree, tree.deep, tree.hidden, b"deep", uid).await;
        }
        for uid in [0, MALLORY] {
            hostile.looks(tree.secret, tree.home, b"secret", uid).await;
            hostile.changes(&tree, tree.secret, tree.home, b"secret", uid).await;
        }
        hostile.changes(&tree, tree.hers, tree.tmp, b"hers", MALLORY).await;
        hostile.refused(MDT, &LookupReq { parent: tree.hidden, name: b"deep".to_vec() }).await;
        hostile.refused(MDT, &LookupReq { parent: tree.deep, name: b".".to_vec() }).await;
        hostile.refused(MDT, &GetattrReq { ino: tree.deep, report: None }).await;
        hostile.refused(MDT, &GetStripeReq { ino: tree.deep }).await;
        hostile.refused(MDT, &HsmStateReq { ino: tree.deep }).await;
        hostile.refused(MDT, &ProjectGetReq { ino: tree.deep }).await;
        hostile.refused(MDT, &ListxattrReq { ino: tree.deep }).await;
        for name in ["trusted.a", "user.a"] {
            hostile.refused(MDT, &GetxattrReq { ino: tree.deep, name: name.into() }).await;
        }
        hostile.refused(MDT, &readdir(tree.hidden)).await;
        hostile.refused(MDT, &scan(tree.deep, None)).await;
        hostile.refused(MDT, &scan(tree.tmp, Some(tree.hidden))).await;
        let link = LinkReq { ino: tree.deep, parent: tree.tmp, name: b"in".to_vec(), cred: cred(MALLORY) };
        hostile.refused(MDT, &link).await;
        makes_nothing(&hostile, tree.home, 0).await;
        makes_nothing(&hostile, client.root(), 0).await;
        let (name, mode, umask, rdev) = (b"null".to_vec(), 0o666, 0, 259);
        let kind = FileType::CharDevice;
        hostile
            .refused(MDT, &MknodReq { parent: tree.tmp, name, mode, umask, kind, rdev, cred: cred(0) })
            .await;
        // The host may write a file of its own, and no other file's bytes come into it.
        let open = OpenReq { ino: tree.own, handle: 9, access: RW, cred: cred(MALLORY), kill_suidgid: false };
        hostile.ask(MDT, &open).await.unwrap();
        hostile.objects(tree.secret_object, tree.own_object).await;
        hostile.everything_else(client.root()).await;
        forge_reports(&hostile, &tree).await;
    };
    world.run_until(STEP_MS, attack).unwrap();
    assert_eq!(state(&world, &honest, &tree), before, "nothing has changed");
    world.end();
}

fn readdir(ino: Ino) -> ReaddirReq {
    ReaddirReq { ino, after: 0, entries_max: 10, plus: true }
}

fn scan(start: Ino, within: Option<Ino>) -> ScanReq {
    let level = |dir| ScanLevel { dir, after: Vec::new() };
    let cursor = within.map(|dir| ScanCursor { began: Default::default(), levels: vec![level(dir)] });
    ScanReq {
        cred: Cred::default(),
        start,
        start_name: Vec::new(),
        predicate: Vec::new(),
        depth_min: 0,
        depth_max: 10,
        wanted: Wanted::Attrs,
        cursor,
    }
}

async fn makes_nothing(hostile: &Hostile, parent: Ino, uid: u32) {
    let (name, mode, umask, cred) = (b"new".to_vec(), 0o777, 0, cred(uid));
    hostile.refused(MDT, &MkdirReq { parent, name: name.clone(), mode, umask, cred: cred.clone() }).await;
    let target = b"x".to_vec();
    hostile.refused(MDT, &SymlinkReq { parent, name: name.clone(), target, cred: cred.clone() }).await;
    let (kind, rdev) = (FileType::Fifo, 0);
    hostile
        .refused(MDT, &MknodReq { parent, name: name.clone(), mode, umask, kind, rdev, cred: cred.clone() })
        .await;
    let (access, handle) = (RW, 1 << 44);
    hostile.refused(MDT, &TmpfileReq { parent, mode, umask, access, handle, cred: cred.clone() }).await;
    hostile
        .refused(MDT, &CreateReq { parent, name, mode, umask, exclusive: true, access, handle, cred })
        .await;
}

/// Users of the host can do what they may, also over a restart of the MDT; a file that was opened before counts for nobody else.
#[test]
fn users_of_a_squashed_host_work_as_ever() {
    let nodemap = Nodemap { squash: Squash::Root, ..Nodemap::new("lab") };
    let (cluster, world, _honest, tree, client) = cluster(nodemap);
    let mallory = Ctx::of(cred(MALLORY));
    let work = async {
        let opened = client.open(&mallory, tree.own, RW, false).await.unwrap();
        let data = vec![b'w'; BLOCK].into();
        client
            .write(&mallory, opened.handle, WriteIn { offset: 0, data, direct: true, ..WriteIn::default() })
            .await
            .unwrap();
        client.fsync(opened.handle).await.unwrap();
        opened.handle
    };
    let handle = world.run_until(STEP_MS, work).unwrap();
    world.kill("mdt0");
    let again = async {
        let data = vec![b'x'; BLOCK].into();
        let write = WriteIn { offset: 0, data, direct: true, ..WriteIn::default() };
        client.write(&mallory, handle, write).await.unwrap();
        client.fsync(handle).await.unwrap();
        client.close(handle).await.unwrap();
        let read = client.open(&mallory, tree.own, R, false).await.unwrap();
        let seen = client.read(read.handle, 0, 1, true).await.unwrap().into_bytes()[0];
        assert_eq!(seen, b'x');
        // Root of the host is nobody: it reads what everybody reads, and makes what everybody makes.
        client.open(&Ctx::root(), tree.hers, R, false).await.unwrap();
        let create = CreateIn {
            parent: tree.tmp,
            name: b"of root",
            mode: 0o644,
            umask: 0,
            exclusive: true,
            access: RW,
        };
        let made = client.create(&Ctx::root(), create).await.unwrap();
        assert_eq!((made.opened.attr.uid, made.opened.attr.gid), (65_534, 65_534));
        let refusal = client.open(&Ctx::root(), tree.secret, R, false).await.unwrap_err();
        assert_eq!(refusal.code, Code::PermissionDenied);
        let alice = client.open(&Ctx::of(cred(ALICE)), tree.secret, R, false).await.unwrap();
        client.read(alice.handle, 0, 1, true).await.unwrap();
    };
    cluster.restart("mdt0");
    world.run_until(STEP_MS, again).unwrap();
    world.end();
}

#[test]
fn a_read_only_host_reads_everything_and_changes_nothing() {
    let (world, honest, tree, client) = world(Nodemap { read_only: true, ..Nodemap::new("lab") });
    let before = state(&world, &honest, &tree);
    let hostile = Hostile { client: client.clone() };
    let attack = async {
        hostile.changes(&tree, tree.deep, tree.hidden, b"deep", 0).await;
        hostile.changes(&tree, tree.own, tree.tmp, b"own", MALLORY).await;
        makes_nothing(&hostile, tree.tmp, 0).await;
        forge_reports(&hostile, &tree).await;
        let (object, ost) = tree.secret_object;
        let write =
            WriteReq { object, offset: 0, ticket: ticket(), sync: false, told: Vec::new(), claim: None };
        let caller = client.targets().caller(TargetId::ost(ost)).await.unwrap();
        let refusal = caller.call(&write, vec![vec![b'!'; 4096].into()]).await.unwrap_err();
        assert_eq!(refusal.code, Code::ReadOnlyHost);
        let opened = client.open(&Ctx::root(), tree.deep, R, false).await.unwrap();
        assert_eq!(client.read(opened.handle, 0, 1, true).await.unwrap().into_bytes()[0], b's');
    };
    world.run_until(STEP_MS, attack).unwrap();
    assert_eq!(state(&world, &honest, &tree), before, "nothing has changed");
    world.end();
}

/// Root of a host that sees one tree gets and changes nothing outside of it: neither by numbers nor by moving
/// or linking names.
#[test]
fn a_host_with_a_tree_of_its_own_sees_nothing_else() {
    let (world, honest, tree, client) = world(Nodemap { subtree: "/home".into(), ..Nodemap::new("lab") });
    let before = state(&world, &honest, &tree);
    let hostile = Hostile { client: client.clone() };
    let root = client.root();
    let attack = async {
        for (ino, parent, name) in [(tree.deep, tree.hidden, &b"deep"[..]), (tree.hers, tree.tmp, b"hers")] {
            hostile.looks(ino, parent, name, 0).await;
            hostile.changes(&tree, ino, parent, name, 0).await;
            hostile.refused(MDT, &LookupReq { parent, name: name.to_vec() }).await;
            hostile.refused(MDT, &LookupReq { parent: ino, name: b".".to_vec() }).await;
            hostile.refused(MDT, &GetattrReq { ino, report: None }).await;
            hostile.refused(MDT, &GetStripeReq { ino }).await;
            hostile.refused(MDT, &HsmStateReq { ino }).await;
            hostile.refused(MDT, &ListxattrReq { ino }).await;
            hostile
                .refused(MDT, &LinkReq { ino, parent: tree.home, name: b"in".to_vec(), cred: cred(0) })
                .await;
            hostile.refused(MDT, &scan(ino, None)).await;
            hostile.refused(MDT, &scan(tree.secret, Some(parent))).await;
        }
        // Above its tree there is the way to it, and nothing else.
        for name in [&b"tmp"[..], b"hidden", b"nothing"] {
            hostile.refused(MDT, &LookupReq { parent: root, name: name.to_vec() }).await;
        }
        hostile.refused(MDT, &LookupReq { parent: tree.home, name: b"..".to_vec() }).await;
        hostile.refused(MDT, &readdir(root)).await;
        hostile.refused(MDT, &scan(root, None)).await;
        hostile.refused(MDT, &PathOfReq { ino: tree.secret }).await;
        makes_nothing(&hostile, root, 0).await;
        makes_nothing(&hostile, tree.tmp, 0).await;
        let out = RenameReq {
            parent: tree.home,
            name: b"secret".to_vec(),
            new_parent: tree.tmp,
            new_name: b"out".to_vec(),
            no_replace: false,
            exchange: false,
            whiteout: false,
            cred: cred(0),
        };
        hostile.refused(MDT, &out).await;
        let over = RenameReq { new_name: b"hers".to_vec(), exchange: true, ..out.clone() };
        hostile.refused(MDT, &over).await;
        let open = OpenReq { ino: tree.secret, handle: 9, access: RW, cred: cred(0), kill_suidgid: false };
        hostile.ask(MDT, &open).await.unwrap();
        hostile.objects(tree.own_object, tree.secret_object).await;
        hostile.everything_else(root).await;
        // In its tree root is root.
        assert_eq!(client.lookup_path("/home/secret").await.unwrap().ino, tree.secret);
        let made = client.mkdir(&Ctx::root(), tree.home, b"d", 0o755, 0).await.unwrap();
        assert_eq!(made.uid, 0);
        client.rmdir(&Ctx::root(), tree.home, b"d").await.unwrap();
    };
    world.run_until(STEP_MS, attack).unwrap();
    let after = state(&world, &honest, &tree);
    assert_eq!((&after[..2], &after[4..]), (&before[..2], &before[4..]), "nothing outside has changed");
    // A tree that is not there any more shows nothing.
    let ctx = Ctx::root();
    let away = RenameIn {
        parent: root,
        name: b"home",
        new_parent: root,
        new_name: b"elsewhere",
        no_replace: true,
        exchange: false,
        whiteout: false,
    };
    world.run_until(STEP_MS, honest.rename(&ctx, away)).unwrap().unwrap();
    let refusal = world.run_until(STEP_MS, client.open(&ctx, tree.secret, R, false)).unwrap();
    assert!(refusal.is_ok_and(|opened| opened.attr.ino == tree.secret), "it has the file open");
    let refusal = world.run_until(STEP_MS, client.lookup(tree.home, b"secret")).unwrap().unwrap_err();
    assert_eq!(refusal.code, Code::PermissionDenied);
    world.end();
}

/// A nodemap that takes something away counts for what is open, too; one that gives it back ends nothing.
#[test]
fn a_nodemap_that_changes_counts_for_living_sessions() {
    let (world, _honest, tree, client) = world(Nodemap::new("lab"));
    let nodemap =
        |read_only, squash| Nodemap { hosts: vec!["c1".into()], read_only, squash, ..Nodemap::new("lab") };
    let open = |ino, access| {
        let client = client.clone();
        async move { client.open(&Ctx::root(), ino, access, false).await }
    };
    let write = |handle| {
        let client = client.clone();
        async move {
            let data = vec![b'n'; BLOCK].into();
            let write = WriteIn { offset: 0, data, direct: true, ..WriteIn::default() };
            client.write(&Ctx::root(), handle, write).await
        }
    };
    let opened = world.run_until(STEP_MS, open(tree.own, RW)).unwrap().unwrap();
    world.run_until(STEP_MS, write(opened.handle)).unwrap().unwrap();
    world.set_nodemaps(&[nodemap(true, Squash::None)]);
    world.run_until(STEP_MS, write(opened.handle)).unwrap().expect_err("it changes nothing from now on");
    world.run_for(20_000);
    let refusal = world.run_until(STEP_MS, open(tree.own, RW)).unwrap().unwrap_err();
    assert_eq!(refusal.code, Code::ReadOnlyHost);
    let reading = world.run_until(STEP_MS, open(tree.own, R)).unwrap().unwrap();
    world.set_nodemaps(&[nodemap(false, Squash::None)]);
    let writing = world.run_until(STEP_MS, open(tree.own, RW)).unwrap().unwrap();
    world.run_until(STEP_MS, write(writing.handle)).unwrap().unwrap();
    world.run_until(STEP_MS, client.read(reading.handle, 0, 1, true)).unwrap().expect("it goes on");
    world.set_nodemaps(&[nodemap(false, Squash::All)]);
    world.run_for(20_000);
    world.run_until(STEP_MS, write(writing.handle)).unwrap().expect_err("it was opened as root");
    world.set_nodemaps(&[]);
    let again = world.run_until(STEP_MS, open(tree.secret, RW)).unwrap().unwrap();
    world.run_until(STEP_MS, write(again.handle)).unwrap().expect("trusted again");
    world.end();
}

/// An open has to say what it is for; what nobody may run is not opened for running; and a writer takes room in the quota of the file's owner only.
#[test]
fn a_handle_is_for_what_was_asked_and_room_is_the_owners() {
    let (world, honest, tree, client) = world(Nodemap { squash: Squash::Root, ..Nodemap::new("lab") });
    let hostile = Hostile { client: client.clone() };
    let attack = async {
        let open = |ino, access| OpenReq { ino, handle: 77, access, cred: cred(ALICE), kill_suidgid: false };
        let run = Access { execute: true, ..R };
        hostile.refused(MDT, &open(tree.hers, Access::default())).await;
        hostile.refused(MDT, &open(tree.hers, run)).await;
        hostile.ask(MDT, &open(tree.hers, RW)).await.unwrap();
        let room = |uid| QuotaRoomReq {
            uid,
            gid: ALICE,
            wanted_bytes: 1 << 40,
            user: RoomUse::default(),
            group: RoomUse::default(),
            ino: tree.hers,
        };
        hostile.refused(MDT, &room(MALLORY)).await;
        hostile.ask(MDT, &room(ALICE)).await.unwrap();
        let in_project = |uid| QuotaFileRoomReq {
            ino: tree.hers,
            uid,
            gid: ALICE,
            project: Some(0),
            wanted_bytes: 1 << 40,
            user: RoomUse::default(),
            group: RoomUse::default(),
            in_project: RoomUse::default(),
        };
        hostile.refused(MDT, &in_project(MALLORY)).await;
        assert!(hostile.ask(MDT, &in_project(ALICE)).await.unwrap().room.is_some());
        assert_eq!(hostile.ask(MDT, &ProjectGetReq { ino: tree.hers }).await.unwrap().id, 0);
        honest
            .setattr(&Ctx::root(), tree.own, SetAttr { mode: Some(0o755), ..SetAttr::default() })
            .await
            .unwrap();
        hostile.ask(MDT, &open(tree.own, run)).await.unwrap();
    };
    world.run_until(STEP_MS, attack).unwrap();
    world.end();
}

/// A server that does not know the nodemaps yet lets in nobody whom they may limit.
#[test]
fn a_server_that_has_not_heard_of_nodemaps_lets_nobody_in() {
    let cluster = SimCluster::new(39, Options { osts: 1, clients: 1 });
    let world = cluster.world().clone();
    let node = world.node("c0");
    world.await_nodemaps();
    world.run_until(20_000, SimCluster::mount(&node)).map(|_| ()).expect_err("it waits");
    world.set_nodemaps(&[]);
    world.run_until(STEP_MS, SimCluster::mount(&node)).unwrap();
    world.end();
}

/// When the MDT says that a file was read last.
async fn atime(honest: &Client, ino: Ino) -> brindle_types::attr::Time {
    let mdt = honest.targets().caller(MDT).await.unwrap();
    mdt.ask(&GetattrReq { ino, report: None }).await.unwrap().attr.atime
}

/// A host that makes files look used, or tells a purge that they are not unused, does so only with files that one of its users may read.
#[test]
fn reads_by_a_limited_host_count_only_where_it_may_read() {
    let root_squashed = Nodemap { squash: Squash::Root, ..Nodemap::new("lab") };
    let read_only = Nodemap { read_only: true, ..Nodemap::new("lab") };
    let subtree = Nodemap { subtree: "/home".into(), ..Nodemap::new("lab") };
    for (nodemap, of_hidden, of_secret, of_hers) in
        [(root_squashed, false, true, true), (read_only, false, false, false), (subtree, false, true, false)]
    {
        let (world, honest, tree, client) = world(nodemap);
        let hostile = Hostile { client };
        let work = async {
            let at = brindle_types::attr::Time { secs: 1 << 40, nanos: 0 };
            for (ino, counts) in [(tree.deep, of_hidden), (tree.secret, of_secret), (tree.hers, of_hers)] {
                let before = atime(&honest, ino).await;
                let read = Accessed { ino, at, attr_epoch: NEWEST };
                hostile.ask(MDT, &NoteAccessReq { files: vec![read] }).await.unwrap();
                let after = atime(&honest, ino).await;
                assert_eq!(after != before, counts, "{ino:?}");
                assert!(after < at, "nor in the future");
            }
        };
        world.run_until(STEP_MS, work).unwrap();
        world.end();
    }
}
