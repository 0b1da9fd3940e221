//! The changelog: one record a change, in the order of the log, over resends, restarts and power cuts.

use std::collections::BTreeMap;

use brindle_types::changelog::{FLAG_ATIME, FLAG_LAST, FLAG_MODE, FLAG_MTIME, FLAG_SIZE, INDEX_TERM_SHIFT};
use brindle_types::{Change, ChangeKind, ChangeMask, ChangeSource, Code, FileType, Ino, Result};
use brindle_wire::Message;
use brindle_wire::mds::changelog::*;
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::mkdir::MkdirReq;
use brindle_wire::mds::mknod::MknodReq;
use brindle_wire::mds::open::OpenReq;
use brindle_wire::mds::readdir::ReaddirReq;
use brindle_wire::mds::rename::RenameReq;
use brindle_wire::mds::setattr::{SetTime, SetattrReq};
use brindle_wire::mds::stripe::SetStripeReq;
use brindle_wire::mds::symlink::SymlinkReq;
use brindle_wire::mds::sync_all::SyncAllReq;
use brindle_wire::mds::unlink::{RmdirReq, UnlinkReq};
use brindle_wire::mds::xattr::SetxattrReq;

use super::rig::*;

async fn register(rig: &Rig, mask: Option<ChangeMask>) -> u32 {
    let nonce = rig.next_sequence().to_be_bytes().repeat(2).try_into().expect("16 bytes");
    let req = ChangelogRegisterReq { nonce, name: String::new(), mask, cred: root() };
    rig.ask(A, req).await.expect("registered").id
}

async fn page(rig: &Rig, reader: Option<u32>, start: u64) -> ChangelogReadResp {
    let req = ChangelogReadReq { reader, start, end: 0, mask: None, cred: root() };
    rig.ask(A, req).await.expect("read")
}

/// Reads all records from an index on.
async fn read(rig: &Rig, reader: u32, mut start: u64) -> Vec<(u64, Change)> {
    let mut all = Vec::new();
    loop {
        let page = page(rig, Some(reader), start).await;
        start = page.next;
        all.extend(page.records);
        if page.is_end {
            return all;
        }
    }
}

async fn clear(rig: &Rig, id: u32, end: u64) -> Result<()> {
    rig.ask(A, ChangelogClearReq { id, end, cred: root() }).await.map(drop)
}

async fn info(rig: &Rig) -> ChangelogInfoResp {
    rig.ask(A, ChangelogInfoReq { cred: root() }).await.expect("told")
}

/// Removes all records that are due.
async fn tidied(rig: &Rig) {
    while crate::changelog::remove_some(&rig.mdt).await.expect("removed") {}
}

fn rename(from: (Ino, &str), to: (Ino, &str)) -> RenameReq {
    let (name, new_name) = (from.1.into(), to.1.into());
    let (no_replace, exchange) = (false, false);
    let cred = root();
    RenameReq {
        parent: from.0,
        name,
        new_parent: to.0,
        new_name,
        no_replace,
        exchange,
        whiteout: false,
        cred,
    }
}

fn unlink(parent: Ino, name: &str) -> UnlinkReq {
    UnlinkReq { parent, name: name.into(), cred: root() }
}

fn node(parent: Ino, name: &str, kind: FileType) -> MknodReq {
    MknodReq { parent, name: name.into(), kind, mode: 0o600, umask: 0, rdev: 0, cred: root() }
}

fn xattr(ino: Ino) -> SetxattrReq {
    SetxattrReq {
        ino,
        name: b"user.k".to_vec(),
        value: b"v".to_vec(),
        create: false,
        replace: false,
        kill_sgid: false,
        cred: user(1000),
    }
}

type User = Option<(u32, u32)>;

fn by(uid: u32) -> User {
    Some((uid, uid))
}

fn plain_record(kind: ChangeKind, flags: u32, target: Ino, user: User) -> Change {
    Change { flags, target: Some(target), user, ..Change::new(kind, Default::default()) }
}

fn named(kind: ChangeKind, flags: u32, parent: Ino, name: &str, target: Ino, user: User) -> Change {
    Change { parent: Some(parent), name: name.into(), ..plain_record(kind, flags, target, user) }
}

fn moved(from: (Ino, &str), to: (Ino, &str), ino: Ino, target: Option<Ino>, flags: u32) -> Change {
    Change {
        target,
        source: Some(ChangeSource { ino, parent: from.0, name: from.1.into() }),
        ..named(ChangeKind::Rename, flags, to.0, to.1, ino, by(0))
    }
}

#[test]
fn each_operation_leaves_its_record() {
    run(async {
        let rig = Rig::new().await;
        rig.mkdir(Ino::ROOT, "before").await.expect("made");
        let reader = register(&rig, None).await;
        let dir = rig.mkdir(Ino::ROOT, "d").await.expect("made").ino;
        let req = create_req(dir, "f", RW);
        let file = rig.ask(A, req.clone()).await.expect("made").attr.ino;
        rig.close(A, file, req.handle).await.expect("closed");
        let link = LinkReq { ino: file, parent: Ino::ROOT, name: b"g".to_vec(), cred: root() };
        rig.ask(A, link).await.expect("linked");
        let soft = SymlinkReq { parent: dir, name: b"s".to_vec(), target: b"f".to_vec(), cred: user(1000) };
        let soft = rig.ask(A, soft).await.expect("made").attr.ino;
        let fifo = rig.ask(A, node(dir, "p", FileType::Fifo)).await.expect("made").attr.ino;
        let plain = rig.ask(A, node(dir, "n", FileType::Regular)).await.expect("made").attr.ino;
        rig.ask(A, SetattrReq { mode: Some(0o600), ..setattr_req(file, user(1000)) }).await.expect("set");
        let times = SetattrReq {
            mtime: Some(SetTime::Now),
            atime: Some(SetTime::Now),
            ..setattr_req(file, user(1000))
        };
        rig.ask(A, times).await.expect("set");
        rig.ask(A, SetattrReq { atime: Some(SetTime::Now), ..setattr_req(file, user(1000)) })
            .await
            .expect("set");
        rig.ask(A, SetattrReq { size_bytes: Some(0), ..setattr_req(file, user(1000)) }).await.expect("cut");
        rig.ask(A, xattr(file)).await.expect("set");
        rig.ask(A, SetStripeReq { ino: dir, policy: None, cred: root() }).await.expect("set");
        rig.ask(A, rename((dir, "f"), (dir, "n"))).await.expect("renamed");
        rig.ask(A, rename((dir, "n"), (Ino::ROOT, "g"))).await.expect("two names of one file: nothing");
        rig.unlink(dir, "n").await.expect("removed");
        rig.unlink(Ino::ROOT, "g").await.expect("removed");
        assert_eq!(code(rig.unlink(Ino::ROOT, "g").await), Some(Code::NotFound), "refused: no record");
        rig.ask(A, rename((dir, "s"), (Ino::ROOT, "s"))).await.expect("renamed");
        rig.unlink(dir, "p").await.expect("removed");
        rig.ask(A, RmdirReq { parent: Ino::ROOT, name: b"d".to_vec(), cred: root() }).await.expect("removed");

        let records = read(&rig, reader, 0).await;
        let term = u64::from(rig.mdt.numbers().term());
        for (n, (index, _)) in records.iter().enumerate() {
            assert_eq!(*index, term << INDEX_TERM_SHIFT | (n as u64 + 1), "without holes, in order");
        }
        let wanted = vec![
            named(ChangeKind::Mkdir, 0, Ino::ROOT, "d", dir, by(0)),
            named(ChangeKind::Create, 0, dir, "f", file, by(0)),
            plain_record(ChangeKind::Close, 0, file, None),
            named(ChangeKind::Hardlink, 0, Ino::ROOT, "g", file, by(0)),
            named(ChangeKind::Symlink, 0, dir, "s", soft, by(1000)),
            named(ChangeKind::Mknod, 0, dir, "p", fifo, by(0)),
            named(ChangeKind::Create, 0, dir, "n", plain, by(0)),
            plain_record(ChangeKind::Setattr, FLAG_MODE, file, by(1000)),
            plain_record(ChangeKind::Mtime, FLAG_MTIME | FLAG_ATIME, file, by(1000)),
            plain_record(ChangeKind::Truncate, FLAG_SIZE, file, by(1000)),
            Change { xattr: b"user.k".to_vec(), ..plain_record(ChangeKind::Xattr, 0, file, by(1000)) },
            plain_record(ChangeKind::Layout, 0, dir, by(0)),
            moved((dir, "f"), (dir, "n"), file, Some(plain), FLAG_LAST),
            named(ChangeKind::Unlink, 0, dir, "n", file, by(0)),
            named(ChangeKind::Unlink, FLAG_LAST, Ino::ROOT, "g", file, by(0)),
            moved((dir, "s"), (Ino::ROOT, "s"), soft, None, 0),
            named(ChangeKind::Unlink, FLAG_LAST, dir, "p", fifo, by(0)),
            named(ChangeKind::Rmdir, FLAG_LAST, Ino::ROOT, "d", dir, by(0)),
        ];
        let without_time = |(_, change): (u64, Change)| Change { time: Default::default(), ..change };
        let found: Vec<Change> = records.into_iter().map(without_time).collect();
        assert_eq!(found, wanted);
        rig.verify();
    });
}

#[test]
fn without_a_reader_nothing_is_written() {
    run(async {
        let mut rig = Rig::new().await;
        rig.mkdir(Ino::ROOT, "d").await.expect("made");
        assert_eq!((info(&rig).await.records, info(&rig).await.bytes), (0, 0));
        assert!(page(&rig, None, 0).await.records.is_empty());
        let reader = register(&rig, None).await;
        rig.mkdir(Ino::ROOT, "e").await.expect("made");
        assert_eq!(page(&rig, None, 0).await.records.len(), 1);
        rig.ask(A, ChangelogDeregisterReq { id: reader, cred: root() }).await.expect("gone");
        rig.mkdir(Ino::ROOT, "f").await.expect("made");
        assert!(page(&rig, None, 0).await.records.is_empty());
        tidied(&rig).await;
        assert_eq!((info(&rig).await.records, info(&rig).await.bytes), (0, 0));
        rig.restart().await;
        assert_eq!(register(&rig, None).await, reader + 1, "a number is never given to another reader");
        rig.verify();
    });
}

#[test]
fn a_request_that_is_sent_again_leaves_no_second_record() {
    run(async {
        let mut rig = Rig::new().await;
        let reader = register(&rig, None).await;
        let req = create_req(Ino::ROOT, "f", RW);
        type Create = brindle_wire::mds::create::CreateReq;
        rig.send(&rig.call_at::<Create>(A, 3, 7), &req).await.expect("made");
        rig.send(&rig.call_at::<Create>(A, 3, 7), &req).await.expect("again");
        rig.restart().await;
        rig.send(&rig.call_at::<Create>(A, 3, 7), &req).await.expect("again");
        assert_eq!(read(&rig, reader, 0).await.len(), 1);
        let nonce = [9; 16];
        let again = ChangelogRegisterReq { nonce, name: "rbh".into(), mask: None, cred: root() };
        let first = rig.ask(A, again.clone()).await.expect("registered").id;
        assert_eq!(rig.ask(A, again).await.expect("the same").id, first);
    });
}

#[test]
fn readers_clear_for_themselves() {
    run(async {
        let mut rig = Rig::new().await;
        let (one, two) = (register(&rig, None).await, register(&rig, None).await);
        for n in 0..6 {
            rig.mkdir(Ino::ROOT, &format!("d{n}")).await.expect("made");
        }
        let all = read(&rig, one, 0).await;
        clear(&rig, one, all[3].0).await.expect("cleared");
        assert_eq!(read(&rig, one, 0).await, all[4..]);
        assert_eq!(read(&rig, two, 0).await, all[..]);
        assert_eq!(page(&rig, None, 0).await.records, all[..], "what somebody still needs");
        clear(&rig, two, all[1].0).await.expect("cleared");
        clear(&rig, two, all[0].0).await.expect("going back changes nothing");
        tidied(&rig).await;
        assert_eq!(info(&rig).await.records, 4);
        rig.restart().await;
        rig.verify();
        assert_eq!(read(&rig, two, 0).await, all[2..]);
        assert_eq!(read(&rig, two, all[4].0).await, all[4..]);
        let future = clear(&rig, one, all[5].0 + (1 << 50)).await.expect_err("refused");
        assert_eq!((future.code, future.data.as_ref()), (Code::InvalidArgument, "nothing was cleared"));
        clear(&rig, one, 0).await.expect("all");
        clear(&rig, two, 0).await.expect("all");
        tidied(&rig).await;
        assert_eq!(info(&rig).await.records, 0);
        let unknown = clear(&rig, 77, 0).await.expect_err("refused");
        assert_eq!(
            unknown.to_string(),
            "no such reader of the changelog of scratch-MDT0000: cl77\
             \n  why:  its readers: cl1, cl2\
             \n  next: list them: lctl get_param mdd.*.changelog_users\
             \n  code: E3001 (brindle explain E3001)"
        );
        rig.verify();
    });
}

#[test]
fn readers_get_what_they_asked_for_and_others_are_refused() {
    run(async {
        let rig = Rig::new().await;
        let mask = "MKDIR".parse().expect("a mask");
        let reader = register(&rig, Some(mask)).await;
        rig.create(A, Ino::ROOT, "f", RW).await.expect("made");
        let dir = rig.mkdir(Ino::ROOT, "d").await.expect("made").ino;
        let records = read(&rig, reader, 0).await;
        assert_eq!(records.len(), 1);
        assert_eq!((records[0].1.kind, records[0].1.target), (ChangeKind::Mkdir, Some(dir)));
        assert_eq!(info(&rig).await.records, 1, "what nobody wants is not recorded");
        let every = register(&rig, None).await;
        let only = ChangeMask(ChangeMask::DEFAULT.0 & !(1 << ChangeKind::Unlink as u32));
        rig.ask(A, ChangelogMaskReq { mask: only, cred: root() }).await.expect("set");
        rig.unlink(Ino::ROOT, "f").await.expect("removed");
        rig.mkdir(Ino::ROOT, "e").await.expect("made");
        assert_eq!(read(&rig, every, 0).await.len(), 1);
        assert_eq!(read(&rig, reader, 0).await.len(), 2);

        let req = ChangelogReadReq { reader: None, start: 0, end: 0, mask: None, cred: user(1000) };
        let refused = rig.ask(A, req).await.expect_err("refused");
        assert_eq!(
            refused.to_string(),
            "cannot read a changelog\
             \n  why:  it names files of everybody; only root may\
             \n  data: nothing was changed\
             \n  next: do it as root\
             \n  code: E3009 (brindle explain E3009)"
        );
        let register =
            |name: &str, mask| ChangelogRegisterReq { nonce: [8; 16], name: name.into(), mask, cred: root() };
        assert_eq!(code(rig.ask(A, register("a b", None)).await), Some(Code::InvalidArgument));
        assert_eq!(code(rig.ask(A, register(&"x".repeat(33), None)).await), Some(Code::InvalidArgument));
        let nonsense = Some(ChangeMask(1 << 31));
        assert_eq!(code(rig.ask(A, register("x", nonsense)).await), Some(Code::InvalidArgument));
        assert_eq!(info(&rig).await.readers.len(), 2, "refusals change nothing");
    });
}

#[test]
fn it_is_bounded_and_a_slow_reader_learns_what_it_missed() {
    run(async {
        let mut rig = Rig::new().await;
        let (slow, quick) = (register(&rig, None).await, register(&rig, None).await);
        let mut last = 0;
        let mut seen = 0;
        for n in 0..2000 {
            rig.mkdir(Ino::ROOT, &format!("d{n}")).await.expect("made");
            assert!(info(&rig).await.bytes <= CHANGELOG_BYTES_MAX);
            if n % 50 == 49 {
                let records = read(&rig, quick, last + 1).await;
                seen += records.len();
                last = records.last().expect("some").0;
                clear(&rig, quick, last).await.expect("cleared");
            }
        }
        assert_eq!(seen, 2000, "who keeps up misses nothing");
        let told = info(&rig).await;
        assert!(told.dropped_to > 0 && told.records < 1900, "{told:?}");
        rig.verify();
        rig.restart().await;
        rig.verify();
        let records = read(&rig, slow, 0).await;
        assert_eq!((records[0].0, records[0].1.kind), (told.dropped_to, ChangeKind::Gap));
        assert_eq!(records[1].0, told.dropped_to + 1, "nothing is missing behind the gap");
        assert_eq!(records.len() as u64, told.records + 1);
        assert!(read(&rig, quick, 0).await.is_empty(), "no gap for who had cleared");
        clear(&rig, slow, records[0].0).await.expect("the gap is cleared like a record");
        assert_eq!(read(&rig, slow, 0).await, records[1..]);
    });
}

#[test]
fn while_the_device_is_full_it_does_not_grow() {
    run(async {
        let rig = Rig::new().await;
        let reader = register(&rig, None).await;
        for n in 0..50 {
            rig.mkdir(Ino::ROOT, &format!("d{n}")).await.expect("made");
        }
        rig.disk.set_room_bytes(Some(1 << 20));
        let mut refused = 0;
        for n in 0..200_000 {
            if code(rig.mkdir(Ino::ROOT, &format!("e{n}")).await) == Some(Code::MdtFull) {
                refused += 1;
                break;
            }
        }
        assert_eq!(refused, 1, "the device was found full");
        let before = info(&rig).await;
        for n in 0..50 {
            let gone = RmdirReq { parent: Ino::ROOT, name: format!("d{n}").into(), cred: root() };
            rig.ask(A, gone).await.expect("removing always works");
            assert!(info(&rig).await.bytes <= before.bytes);
        }
        assert_eq!(read(&rig, reader, 0).await[0].1.kind, ChangeKind::Gap);
        rig.verify();
    });
}

#[test]
fn old_records_go() {
    run(async {
        let rig = Rig::new().await;
        let reader = register(&rig, None).await;
        let call = crate::mdt::Call::internal(brindle_wire::Op::Mkdir);
        for secs in [1_000_000_000, 1_000_000_001] {
            let old = rig.mdt.step(&call, |t| {
                crate::changelog::note(t, ChangeKind::Mark, |change| change.time.secs = secs);
                Ok(())
            });
            old.await.expect("noted");
        }
        rig.mkdir(Ino::ROOT, "new").await.expect("made");
        tidied(&rig).await;
        let kinds: Vec<ChangeKind> = read(&rig, reader, 0).await.iter().map(|(_, c)| c.kind).collect();
        assert_eq!(kinds, [ChangeKind::Gap, ChangeKind::Mkdir]);
        rig.verify();
    });
}

/// Names as a reader of the changelog knows them.
#[derive(Default)]
struct Follower {
    names: BTreeMap<(Ino, Vec<u8>), Ino>,
    next: u64,
    last: u64,
}

impl Follower {
    /// Applies what is new; everything must fit what is known.
    async fn follow(&mut self, rig: &Rig, reader: u32) {
        let records = read(rig, reader, self.next).await;
        for (index, change) in records {
            assert!(index > self.last, "an index came again");
            (self.last, self.next) = (index, index + 1);
            self.apply(change);
        }
        clear(rig, reader, self.last).await.expect("cleared");
    }

    fn apply(&mut self, change: Change) {
        let at = change.parent.map(|parent| (parent, change.name.clone()));
        let target = change.target;
        match change.kind {
            ChangeKind::Create | ChangeKind::Mkdir | ChangeKind::Hardlink => {
                let old = self.names.insert(at.expect("a name"), target.expect("an inode"));
                assert_eq!(old, None, "doubled or lost");
            }
            ChangeKind::Unlink | ChangeKind::Rmdir => {
                let gone = self.names.remove(&at.expect("a name"));
                assert_eq!(gone, target, "doubled or lost");
                let left = self.names.values().any(|ino| Some(*ino) == gone);
                assert_eq!(change.flags & FLAG_LAST != 0, !left);
            }
            ChangeKind::Rename => {
                let source = change.source.expect("a source");
                let from = (source.parent, source.name);
                // The other half of an exchange has moved the name already.
                if self.names.get(&from) == Some(&source.ino) {
                    self.names.remove(&from);
                }
                let old = self.names.insert(at.expect("a name"), source.ino);
                assert!(target.is_none() || old == target, "doubled or lost");
            }
            _ => {}
        }
    }
}

/// Names as they are.
async fn tree(rig: &Rig) -> BTreeMap<(Ino, Vec<u8>), Ino> {
    let mut names = BTreeMap::new();
    let mut dirs = vec![Ino::ROOT];
    while let Some(dir) = dirs.pop() {
        let list = ReaddirReq { ino: dir, after: 0, entries_max: 1000, plus: false };
        for entry in rig.ask(A, list).await.expect("listed").entries {
            if entry.kind == FileType::Directory {
                dirs.push(entry.ino);
            }
            names.insert((dir, entry.name), entry.ino);
        }
    }
    names
}

/// A request, sent twice from time to time.
async fn maybe_twice<M: Message + Clone>(rig: &Rig, twice: bool, req: M) -> Option<M::Resp> {
    let sequence = rig.next_sequence();
    let first = rig.send(&rig.call_at::<M>(A, 1, sequence), &req).await;
    if twice {
        let again = rig.send(&rig.call_at::<M>(A, 1, sequence), &req).await;
        assert_eq!(again.is_ok(), first.is_ok());
    }
    first.ok()
}

#[test]
fn who_follows_it_knows_the_tree_over_restarts_and_power_cuts() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    for seed in 1..=2_u64 {
        run(async {
            let mut rig = Rig::new().await;
            let reader = register(&rig, None).await;
            let mut follower = Follower::default();
            let mut random = seed;
            let mut draw = |n: usize| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) as usize % n
            };
            let mut known = BTreeMap::new();
            for step in 0..400 {
                if step % 8 == 0 {
                    known = tree(&rig).await;
                }
                let dirs: Vec<Ino> = known.keys().map(|(dir, _)| *dir).chain([Ino::ROOT]).collect();
                let inodes: Vec<Ino> = known.values().copied().collect();
                let (dir, to) = (dirs[draw(dirs.len())], dirs[draw(dirs.len())]);
                let (name, new_name) = (NAMES[draw(5)], NAMES[draw(5)]);
                let twice = draw(4) == 0;
                match draw(9) {
                    0 | 1 => drop(maybe_twice(&rig, twice, create_req(dir, name, RO)).await),
                    2 => {
                        let (name, cred) = (name.into(), root());
                        let req = MkdirReq { parent: dir, name, mode: 0o755, umask: 0, cred };
                        // An empty directory would not be found by what is drawn from.
                        if let Some(made) = maybe_twice(&rig, twice, req).await {
                            maybe_twice(&rig, twice, create_req(made.attr.ino, new_name, RO)).await;
                        }
                    }
                    3 => drop(maybe_twice(&rig, twice, unlink(dir, name)).await),
                    4 => {
                        let req = RmdirReq { parent: dir, name: name.into(), cred: root() };
                        maybe_twice(&rig, twice, req).await;
                    }
                    5 | 6 => {
                        let exchange = draw(3) == 0;
                        let req = RenameReq { exchange, ..rename((dir, name), (to, new_name)) };
                        maybe_twice(&rig, twice, req).await;
                    }
                    7 if !inodes.is_empty() => {
                        let ino = inodes[draw(inodes.len())];
                        let req = LinkReq { ino, parent: dir, name: name.into(), cred: root() };
                        maybe_twice(&rig, twice, req).await;
                    }
                    // Each time takes two syncs.
                    _ if draw(4) == 0 => follower.follow(&rig, reader).await,
                    _ => {}
                }
                match draw(60) {
                    0 => rig.restart().await,
                    1 => rig.power_cut().await,
                    2 => drop(rig.ask(A, SyncAllReq {}).await.expect("synced")),
                    _ => {}
                }
                if step % 100 == 99 {
                    follower.follow(&rig, reader).await;
                    assert_eq!(follower.names, tree(&rig).await, "seed {seed}, step {step}");
                    rig.verify();
                }
            }
        });
    }
}

#[test]
fn what_a_power_cut_may_take_is_not_told() {
    run(async {
        let mut rig = Rig::new().await;
        let reader = register(&rig, None).await;
        rig.mkdir(Ino::ROOT, "told").await.expect("made");
        let told = read(&rig, reader, 0).await;
        rig.mkdir(Ino::ROOT, "lost").await.expect("made");
        rig.power_cut().await;
        rig.mkdir(Ino::ROOT, "next").await.expect("made");
        let records = read(&rig, reader, 0).await;
        assert_eq!(records[0], told[0]);
        assert_eq!((records.len(), &records[1].1.name[..]), (2, &b"next"[..]));
        let (old, new) = (told[0].0 >> INDEX_TERM_SHIFT, records[1].0 >> INDEX_TERM_SHIFT);
        assert_eq!(new, old + 1, "an index of its own, although a record was lost");
    });
}

#[test]
fn the_end_of_a_write_session_is_told_whoever_ends_it() {
    run(async {
        let mut rig = Rig::new().await;
        let file = rig.create(A, Ino::ROOT, "f", RO).await.expect("made").attr.ino;
        let reader = register(&rig, None).await;
        let access = WO;
        let open = OpenReq { ino: file, handle: 900, access, cred: root(), kill_suidgid: false };
        rig.ask(B, open.clone()).await.expect("opened");
        rig.ask(B, OpenReq { handle: 901, ..open.clone() }).await.expect("opened");
        rig.close(B, file, 900).await.expect("closed");
        assert!(read(&rig, reader, 0).await.is_empty(), "somebody still writes");
        crate::expire::end(&rig.mdt, B, "a test").await;
        let kinds = |records: Vec<(u64, Change)>| records.iter().map(|(_, c)| c.kind).collect::<Vec<_>>();
        assert_eq!(kinds(read(&rig, reader, 0).await), [ChangeKind::Close]);
        let truncate = brindle_wire::mds::open::Access { truncate: true, ..WO };
        rig.ask(A, OpenReq { access: truncate, handle: 902, ..open }).await.expect("opened");
        rig.restart().await;
        let found = kinds(read(&rig, reader, 0).await);
        assert_eq!(found, [ChangeKind::Close, ChangeKind::Truncate]);
    });
}
