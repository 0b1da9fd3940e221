//! Tests of the requirements of POSIX, by operation.

use brindle_types::attr::Time;
use brindle_types::{Attr, Code, FileType, Ino, Result, StripePolicy};
use brindle_wire::mds::inline::{InlineReadReq, InlineWriteReq};
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::mkdir::MkdirReq;
use brindle_wire::mds::mknod::MknodReq;
use brindle_wire::mds::open::{Access, OpenReq};
use brindle_wire::mds::path::PathOfReq;
use brindle_wire::mds::readdir::{COOKIE_FIRST, ReaddirReq};
use brindle_wire::mds::readlink::ReadlinkReq;
use brindle_wire::mds::rename::RenameReq;
use brindle_wire::mds::setattr::{SetTime, SetattrReq};
use brindle_wire::mds::stripe::{GetStripeReq, SetStripeReq};
use brindle_wire::mds::symlink::SymlinkReq;
use brindle_wire::mds::tmpfile::TmpfileReq;
use brindle_wire::mds::unlink::RmdirReq;
use brindle_wire::mds::xattr::*;

use super::rig::*;
use crate::acl;

fn rename_req(from: (Ino, &str), to: (Ino, &str)) -> RenameReq {
    RenameReq {
        parent: from.0,
        name: from.1.into(),
        new_parent: to.0,
        new_name: to.1.into(),
        no_replace: false,
        exchange: false,
        whiteout: false,
        cred: root(),
    }
}

async fn file(rig: &Rig, dir: Ino, name: &str) -> Ino {
    let req = create_req(dir, name, RW);
    let made = rig.ask(A, req.clone()).await.expect("made").attr.ino;
    rig.close(A, made, req.handle).await.expect("closed");
    made
}

async fn link(rig: &Rig, ino: Ino, dir: Ino, name: &str) -> Result<Attr> {
    Ok(rig.ask(A, LinkReq { ino, parent: dir, name: name.into(), cred: root() }).await?.attr)
}

async fn rename(rig: &Rig, from: (Ino, &str), to: (Ino, &str)) -> Result<()> {
    rig.ask(A, rename_req(from, to)).await.map(drop)
}

async fn rmdir(rig: &Rig, dir: Ino, name: &str) -> Result<()> {
    rig.ask(A, RmdirReq { parent: dir, name: name.into(), cred: root() }).await.map(drop)
}

const TOP: Ino = Ino::ROOT;

#[test]
fn names_are_checked() {
    run(async {
        let rig = Rig::new().await;
        for (name, expected) in [
            ("", Code::NotFound),
            (".", Code::Exists),
            ("..", Code::Exists),
            ("a/b", Code::InvalidArgument),
            ("a\0b", Code::InvalidArgument),
            (&"x".repeat(256), Code::NameTooLong),
        ] {
            assert_eq!(code(rig.create(A, TOP, name, RW).await), Some(expected), "{name:?}");
            assert_eq!(code(rig.mkdir(TOP, name).await), Some(expected), "{name:?}");
        }
        rig.create(A, TOP, &"x".repeat(255), RW).await.expect("longest name");
        let made = file(&rig, TOP, "f").await;
        assert_eq!(code(rig.create(A, made, "x", RW).await), Some(Code::NotDirectory));
        assert_eq!(code(rig.create(A, Ino(999), "x", RW).await), Some(Code::NotFound));
        assert_eq!(code(rig.unlink(TOP, "absent").await), Some(Code::NotFound));
        assert_eq!(rig.lookup(TOP, "..").await.expect("root").ino, TOP);
        rig.verify();
    });
}

#[test]
fn directories_count_their_children() {
    run(async {
        let rig = Rig::new().await;
        let d = rig.mkdir(TOP, "d").await.expect("made");
        assert_eq!((d.nlink, d.kind, d.size_bytes), (2, FileType::Directory, 4096));
        let e = rig.mkdir(d.ino, "e").await.expect("made").ino;
        assert_eq!(rig.stat(A, d.ino).await.expect("there").nlink, 3);
        assert_eq!(rig.lookup(e, "..").await.expect("parent").ino, d.ino);
        assert_eq!(code(rmdir(&rig, TOP, "d").await), Some(Code::NotEmpty));
        assert_eq!(code(rig.unlink(d.ino, "e").await), Some(Code::IsDirectory));
        assert_eq!(code(rmdir(&rig, d.ino, ".").await), Some(Code::InvalidArgument));
        assert_eq!(code(rmdir(&rig, d.ino, "..").await), Some(Code::NotEmpty));
        file(&rig, d.ino, "f").await;
        assert_eq!(code(rmdir(&rig, d.ino, "f").await), Some(Code::NotDirectory));
        rmdir(&rig, d.ino, "e").await.expect("removed");
        assert_eq!(rig.stat(A, d.ino).await.expect("there").nlink, 2);
        assert_eq!(code(rig.create(A, e, "x", RW).await), Some(Code::NotFound));
        rig.verify();
    });
}

#[test]
fn links_keep_the_inode_until_the_last_is_gone() {
    run(async {
        let rig = Rig::new().await;
        let d = rig.mkdir(TOP, "d").await.expect("made").ino;
        let f = file(&rig, TOP, "f").await;
        assert_eq!(link(&rig, f, d, "g").await.expect("linked").nlink, 2);
        assert_eq!(link(&rig, f, TOP, "h").await.expect("linked").nlink, 3);
        assert_eq!(code(link(&rig, f, TOP, "h").await), Some(Code::Exists));
        assert_eq!(code(link(&rig, d, TOP, "i").await), Some(Code::NotPermitted));
        rig.verify();
        let mut paths = rig.ask(A, PathOfReq { ino: f }).await.expect("paths").paths;
        paths.sort();
        assert_eq!(paths, [b"d/g".to_vec(), b"f".to_vec(), b"h".to_vec()]);
        rig.unlink(TOP, "f").await.expect("removed");
        rename(&rig, (TOP, "h"), (d, "k")).await.expect("renamed");
        rig.verify();
        rig.unlink(d, "g").await.expect("removed");
        assert_eq!(rig.lookup(d, "k").await.expect("there").nlink, 1);
        assert_eq!(rig.ask(A, PathOfReq { ino: f }).await.expect("paths").paths, [b"d/k".to_vec()]);
        rig.unlink(d, "k").await.expect("removed");
        assert_eq!(code(rig.stat(A, f).await), Some(Code::NotFound));
        rig.verify();
    });
}

#[test]
fn rename_follows_posix() {
    run(async {
        let rig = Rig::new().await;
        let a = rig.mkdir(TOP, "a").await.expect("made").ino;
        let b = rig.mkdir(a, "b").await.expect("made").ino;
        let f = file(&rig, TOP, "f").await;
        assert_eq!(code(rename(&rig, (TOP, "a"), (b, "x")).await), Some(Code::RenameLoop));
        assert_eq!(code(rename(&rig, (TOP, "a"), (a, "x")).await), Some(Code::RenameLoop));
        assert_eq!(code(rename(&rig, (a, "b"), (TOP, "a")).await), Some(Code::NotEmpty));
        assert_eq!(code(rename(&rig, (TOP, "f"), (TOP, "a")).await), Some(Code::IsDirectory));
        assert_eq!(code(rename(&rig, (TOP, "a"), (TOP, "f")).await), Some(Code::NotDirectory));
        assert_eq!(code(rename(&rig, (TOP, "none"), (TOP, "x")).await), Some(Code::NotFound));
        rename(&rig, (TOP, "f"), (TOP, "f")).await.expect("onto itself");
        link(&rig, f, a, "g").await.expect("linked");
        rename(&rig, (TOP, "f"), (a, "g")).await.expect("two names of one inode");
        assert_eq!(rig.lookup(TOP, "f").await.expect("both stay").nlink, 2);
        rename(&rig, (a, "b"), (TOP, "b")).await.expect("moved");
        assert_eq!(rig.lookup(b, "..").await.expect("parent").ino, TOP);
        assert_eq!(rig.stat(A, a).await.expect("there").nlink, 2);
        rename(&rig, (TOP, "b"), (TOP, "c")).await.expect("renamed");
        rig.mkdir(TOP, "empty").await.expect("made");
        rename(&rig, (TOP, "c"), (TOP, "empty")).await.expect("over an empty directory");
        assert_eq!(rig.lookup(TOP, "empty").await.expect("there").ino, b);
        let g = file(&rig, TOP, "g").await;
        rename(&rig, (TOP, "f"), (TOP, "g")).await.expect("over a file");
        assert_eq!(rig.stat(A, g).await.expect("who has just looked it up may open it").nlink, 0);
        let seams = rig.mdt.seams().clone();
        seams.spawn("test", crate::background::purge_replaced(rig.mdt.clone()));
        seams.sleep_ms(2_000).await;
        assert_eq!(code(rig.stat(A, g).await), Some(Code::NotFound));
        rig.verify();
    });
}

#[test]
fn rename_flags() {
    run(async {
        let rig = Rig::new().await;
        let a = rig.mkdir(TOP, "a").await.expect("made").ino;
        let b = rig.mkdir(a, "b").await.expect("made").ino;
        let f = file(&rig, TOP, "f").await;
        let keep = RenameReq { no_replace: true, ..rename_req((TOP, "f"), (TOP, "a")) };
        assert_eq!(code(rig.ask(A, keep).await), Some(Code::Exists));
        let swap = |from, to| RenameReq { exchange: true, ..rename_req(from, to) };
        assert_eq!(code(rig.ask(A, swap((TOP, "f"), (TOP, "none"))).await), Some(Code::NotFound));
        assert_eq!(code(rig.ask(A, swap((TOP, "a"), (a, "b"))).await), Some(Code::RenameLoop));
        assert_eq!(code(rig.ask(A, swap((a, "b"), (TOP, "a"))).await), Some(Code::RenameLoop));
        rig.ask(A, swap((TOP, "f"), (a, "b"))).await.expect("swapped");
        assert_eq!(rig.lookup(TOP, "f").await.expect("there").ino, b);
        assert_eq!(rig.lookup(a, "b").await.expect("there").ino, f);
        assert_eq!(rig.lookup(b, "..").await.expect("parent").ino, TOP);
        assert_eq!(rig.stat(A, a).await.expect("there").nlink, 2);
        rig.verify();
        let both = RenameReq { no_replace: true, ..swap((TOP, "f"), (a, "b")) };
        assert_eq!(code(rig.ask(A, both).await), Some(Code::InvalidArgument));
    });
}

#[test]
fn open_files_outlive_their_names() {
    run(async {
        let mut rig = Rig::new().await;
        let req = create_req(TOP, "f", RW);
        let made = rig.ask(A, req.clone()).await.expect("made");
        let ino = made.attr.ino;
        rig.unlink(TOP, "f").await.expect("removed");
        assert_eq!(rig.stat(A, ino).await.expect("still open").nlink, 0);
        assert_eq!(code(rig.ask(A, PathOfReq { ino }).await), Some(Code::NotFound));
        rig.verify();
        rig.close(A, ino, req.handle).await.expect("closed");
        assert_eq!(code(rig.stat(A, ino).await), Some(Code::NotFound));
        let tmp = TmpfileReq { parent: TOP, mode: 0o600, umask: 0, access: RW, handle: 9, cred: root() };
        let made = rig.ask(A, tmp).await.expect("made").attr;
        assert_eq!(made.nlink, 0);
        rig.verify();
        assert_eq!(link(&rig, made.ino, TOP, "named").await.expect("linked").nlink, 1);
        rig.close(A, made.ino, 9).await.expect("closed");
        rig.restart().await;
        assert_eq!(rig.lookup(TOP, "named").await.expect("there").ino, made.ino);
        rig.verify();
    });
}

#[test]
fn a_removed_directory_that_is_open_is_empty() {
    run(async {
        let rig = Rig::new().await;
        let d = rig.mkdir(TOP, "d").await.expect("made").ino;
        let open = OpenReq { ino: d, handle: 5, access: RO, cred: root(), kill_suidgid: false };
        rig.ask(A, open.clone()).await.expect("opened");
        let write = OpenReq { access: RW, ..open };
        assert_eq!(code(rig.ask(A, write).await), Some(Code::IsDirectory));
        rmdir(&rig, TOP, "d").await.expect("removed");
        assert_eq!(rig.stat(A, d).await.expect("open").nlink, 0);
        let list = rig.ask(A, ReaddirReq { ino: d, after: 0, entries_max: 9, plus: false }).await;
        assert!(list.expect("listed").entries.is_empty());
        assert_eq!(code(rig.create(A, d, "x", RW).await), Some(Code::NotFound));
        rig.verify();
        rig.close(A, d, 5).await.expect("closed");
        assert_eq!(code(rig.stat(A, d).await), Some(Code::NotFound));
        rig.verify();
    });
}

#[test]
fn special_files_and_symbolic_links() {
    run(async {
        let rig = Rig::new().await;
        let node = |name: &str, kind, rdev| MknodReq {
            parent: TOP,
            name: name.into(),
            kind,
            mode: 0o666,
            umask: 0o022,
            rdev,
            cred: root(),
        };
        let dev = rig.ask(A, node("dev", FileType::CharDevice, 0x103)).await.expect("made").attr;
        assert_eq!((dev.rdev, dev.perm, dev.kind), (0x103, 0o644, FileType::CharDevice));
        let fifo = rig.ask(A, node("fifo", FileType::Fifo, 7)).await.expect("made").attr;
        assert_eq!(fifo.rdev, 0);
        assert_eq!(code(rig.ask(A, node("d", FileType::Directory, 0)).await), Some(Code::InvalidArgument));
        rig.ask(A, node("plain", FileType::Regular, 0)).await.expect("made");
        let symlink = |name: &str, target: &[u8]| SymlinkReq {
            parent: TOP,
            name: name.into(),
            target: target.to_vec(),
            cred: root(),
        };
        let long = vec![b'x'; 4095];
        let made = rig.ask(A, symlink("l", &long)).await.expect("made").attr;
        assert_eq!((made.size_bytes, made.perm), (4095, 0o777));
        assert_eq!(rig.ask(A, ReadlinkReq { ino: made.ino }).await.expect("read").target, long);
        assert_eq!(code(rig.ask(A, symlink("m", &[b'x'; 4096])).await), Some(Code::NameTooLong));
        assert_eq!(code(rig.ask(A, symlink("m", b"")).await), Some(Code::NotFound));
        assert_eq!(code(rig.ask(A, ReadlinkReq { ino: dev.ino }).await), Some(Code::InvalidArgument));
        rig.unlink(TOP, "l").await.expect("removed");
        rig.verify();
    });
}

#[test]
fn set_group_id_directories_and_umask() {
    run(async {
        let rig = Rig::new().await;
        let mkdir = MkdirReq { parent: TOP, name: "d".into(), mode: 0o2775, umask: 0, cred: root() };
        let d = rig.ask(A, mkdir).await.expect("made").attr;
        assert_eq!(d.perm, 0o2775);
        rig.ask(A, SetattrReq { gid: Some(50), mode: Some(0o2775), ..setattr_req(d.ino, root()) })
            .await
            .expect("chown");
        let mut req = create_req(d.ino, "f", RW);
        (req.mode, req.umask, req.cred) = (0o2771, 0o027, user(1000));
        let f = rig.ask(A, req).await.expect("made").attr;
        assert_eq!((f.gid, f.uid, f.perm), (50, 1000, 0o750), "not in the group: no set-group-id");
        let sub = MkdirReq { parent: d.ino, name: "sub".into(), mode: 0o755, umask: 0, cred: user(1000) };
        let sub = rig.ask(A, sub).await.expect("made").attr;
        assert_eq!((sub.gid, sub.perm), (50, 0o2755));
        rig.verify();
    });
}

#[test]
fn chown_and_writes_clear_set_id() {
    run(async {
        let rig = Rig::new().await;
        let req = create_req(TOP, "f", RW);
        let made = rig.ask(A, req.clone()).await.expect("made");
        let f = made.attr.ino;
        let chmod = |mode| SetattrReq { mode: Some(mode), ..setattr_req(f, root()) };
        let perm = |attr: brindle_wire::mds::setattr::SetattrResp| attr.attr.perm;
        rig.ask(A, chmod(0o6755)).await.expect("chmod");
        let owned = rig.ask(A, SetattrReq { uid: Some(7), ..setattr_req(f, root()) }).await.expect("chown");
        assert_eq!(perm(owned), 0o755);
        rig.ask(A, chmod(0o6745)).await.expect("chmod");
        let owned = rig.ask(A, SetattrReq { gid: Some(7), ..setattr_req(f, root()) }).await.expect("chown");
        assert_eq!(perm(owned), 0o2745, "without group execution set-group-id means something else");
        rig.ask(A, chmod(0o6755)).await.expect("chmod");
        let value = SetxattrReq {
            ino: f,
            name: b"security.capability".to_vec(),
            value: b"cap".to_vec(),
            create: false,
            replace: false,
            kill_sgid: false,
            cred: root(),
        };
        rig.ask(A, value).await.expect("set");
        assert!(rig.stat(A, f).await.expect("there").has_xattr);
        let write = InlineWriteReq {
            ino: f,
            handle: req.handle,
            layout_epoch: made.grant.layout.epoch,
            offset: 0,
            append: false,
            data: "x".into(),
            written_at: None,
            kill_suidgid: true,
            cred: root(),
            sync: false,
            promised: false,
        };
        let attr = rig.ask(A, write).await.expect("written").attr;
        assert_eq!((attr.perm, attr.has_xattr), (0o755, false));
        rig.verify();
    });
}

#[test]
fn times_are_kept_to_the_nanosecond() {
    run(async {
        let rig = Rig::new().await;
        let f = file(&rig, TOP, "f").await;
        let before = rig.stat(A, f).await.expect("there");
        let time = Time { secs: -1, nanos: 999_999_999 };
        let req = SetattrReq { mtime: Some(SetTime::At(time)), ..setattr_req(f, root()) };
        let answer = rig.ask(A, req).await.expect("set");
        assert_eq!((answer.attr.mtime, answer.attr.atime), (time, before.atime));
        assert!(answer.attr.ctime >= before.ctime && answer.attr.btime == before.btime);
        assert!(answer.grant.expect("epochs").attr_epoch > brindle_types::Pair::ZERO);
        let parent = rig.stat(A, TOP).await.expect("there");
        rig.unlink(TOP, "f").await.expect("removed");
        let after = rig.stat(A, TOP).await.expect("there");
        assert!(after.mtime > parent.mtime && after.ctime > parent.ctime && after.atime == parent.atime);
    });
}

#[test]
fn cookies_stay_valid_over_changes_and_restarts() {
    run(async {
        let mut rig = Rig::new().await;
        for n in 0..50 {
            file(&rig, TOP, &format!("f{n}")).await;
        }
        let list = |after, entries_max| ReaddirReq { ino: TOP, after, entries_max, plus: false };
        let all = rig.ask(A, list(0, 1000)).await.expect("listed");
        assert!(all.end && all.entries.len() == 50);
        assert!(all.entries.is_sorted_by_key(|e| e.cookie) && all.entries[0].cookie >= COOKIE_FIRST);
        let half = rig.ask(A, list(0, 25)).await.expect("listed");
        assert_eq!(half.entries, all.entries[..25]);
        for entry in &all.entries[20..30] {
            let name = String::from_utf8(entry.name.clone()).expect("text");
            rig.unlink(TOP, &name).await.expect("removed");
        }
        for n in 50..80 {
            file(&rig, TOP, &format!("f{n}")).await;
        }
        rig.restart().await;
        let mut rest = Vec::new();
        let mut after = half.entries[24].cookie;
        loop {
            let page = rig.ask(A, list(after, 7)).await.expect("listed");
            rest.extend(page.entries);
            if page.end {
                break;
            }
            after = rest.last().expect("a page has entries").cookie;
        }
        let survivors: Vec<_> = all.entries[30..].iter().collect();
        assert!(survivors.iter().all(|e| rest.iter().filter(|r| r == e).count() == 1), "each exactly once");
        rig.verify();
    });
}

#[test]
fn extended_attributes() {
    run(async {
        let rig = Rig::new().await;
        let f = file(&rig, TOP, "f").await;
        let set = |name: &str, len: usize| SetxattrReq {
            ino: f,
            name: name.into(),
            value: vec![1; len],
            create: false,
            replace: false,
            kill_sgid: false,
            cred: root(),
        };
        let get = |name: &str| GetxattrReq { ino: f, name: name.into() };
        assert_eq!(
            code(rig.ask(A, SetxattrReq { replace: true, ..set("user.a", 3) }).await),
            Some(Code::NoXattr)
        );
        rig.ask(A, set("user.a", 3)).await.expect("set");
        assert_eq!(
            code(rig.ask(A, SetxattrReq { create: true, ..set("user.a", 3) }).await),
            Some(Code::Exists)
        );
        rig.ask(A, set("trusted.b", XATTR_VALUE_MAX_BYTES)).await.expect("largest");
        assert_eq!(
            code(rig.ask(A, set("user.c", XATTR_VALUE_MAX_BYTES + 1)).await),
            Some(Code::XattrTooLarge)
        );
        assert_eq!(code(rig.ask(A, set("nonsense", 1)).await), Some(Code::NotSupported));
        assert_eq!(code(rig.ask(A, set("user.", 1)).await), Some(Code::InvalidArgument));
        assert_eq!(rig.ask(A, get("user.a")).await.expect("there").value, [1; 3]);
        assert_eq!(code(rig.ask(A, get("user.z")).await), Some(Code::NoXattr));
        let names = rig.ask(A, ListxattrReq { ino: f }).await.expect("listed").names;
        assert_eq!(names, [b"trusted.b".to_vec(), b"user.a".to_vec()]);
        for n in 0..7 {
            rig.ask(A, set(&format!("user.big{n}"), XATTR_VALUE_MAX_BYTES - 1000)).await.expect("room");
        }
        assert_eq!(code(rig.ask(A, set("user.more", XATTR_VALUE_MAX_BYTES)).await), Some(Code::MdtFull));
        for name in ["user.a", "trusted.b"] {
            let req = RemovexattrReq { ino: f, name: name.into(), cred: root() };
            rig.ask(A, req.clone()).await.expect("removed");
            assert_eq!(code(rig.ask(A, req).await), Some(Code::NoXattr));
        }
        rig.verify();
        rig.unlink(TOP, "f").await.expect("removed");
        rig.verify();
    });
}

#[test]
fn acls_and_mode_bits_follow_each_other() {
    run(async {
        let rig = Rig::new().await;
        let d = rig.mkdir(TOP, "d").await.expect("made").ino;
        let entry = |tag: u16, perm: u16, id: u32| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let acl = [
            2u32.to_le_bytes().to_vec(),
            entry(1, 7, none),
            entry(2, 7, 1000),
            entry(4, 5, none),
            entry(16, 7, none),
            entry(32, 0, none),
        ]
        .concat();
        let set = |ino, name: &[u8], value: &[u8]| SetxattrReq {
            ino,
            name: name.to_vec(),
            value: value.to_vec(),
            create: false,
            replace: false,
            kill_sgid: false,
            cred: root(),
        };
        rig.ask(A, set(d, acl::DEFAULT, &acl)).await.expect("set");
        assert_eq!(rig.stat(A, d).await.expect("there").perm, 0o755, "a default ACL changes no bits");
        let mut req = create_req(d, "f", RW);
        (req.mode, req.umask) = (0o666, 0o077);
        let f = rig.ask(A, req).await.expect("made").attr;
        assert_eq!((f.perm, f.has_acl), (0o660, true), "the umask does not count");
        let sub = rig.mkdir(d, "sub").await.expect("made");
        assert!(sub.has_acl);
        let names = rig.ask(A, ListxattrReq { ino: sub.ino }).await.expect("listed").names;
        assert_eq!(names, [acl::ACCESS.to_vec(), acl::DEFAULT.to_vec()]);
        rig.ask(A, SetattrReq { mode: Some(0o640), ..setattr_req(f.ino, root()) }).await.expect("chmod");
        let stored = rig.ask(A, GetxattrReq { ino: f.ino, name: acl::ACCESS.to_vec() }).await.expect("there");
        let stored = acl::Acl::decode(&stored.value).expect("valid").expect("some");
        assert_eq!(stored.mode_bits(), 0o640);
        let minimal = acl::Acl::from_mode(0o604).encode();
        rig.ask(A, set(f.ino, acl::ACCESS, &minimal)).await.expect("set");
        let f = rig.stat(A, f.ino).await.expect("there");
        assert_eq!((f.perm, f.has_acl), (0o604, false), "a minimal ACL is mode bits");
        assert_eq!(code(rig.ask(A, set(f.ino, acl::DEFAULT, &acl)).await), Some(Code::PermissionDenied));
        assert_eq!(code(rig.ask(A, set(f.ino, acl::ACCESS, &acl[..20])).await), Some(Code::InvalidArgument));
        rig.ask(A, set(d, acl::DEFAULT, &[])).await.expect("emptied");
        assert!(!rig.stat(A, d).await.expect("there").has_acl);
        rig.verify();
    });
}

#[test]
fn stripes_are_inherited_and_fixed_with_data() {
    run(async {
        let rig = Rig::new().await;
        let policy = StripePolicy {
            count: Some(2),
            size_bytes: Some(65536),
            start_ost: Some(3),
            ..Default::default()
        };
        let set = |ino, policy: Option<StripePolicy>| {
            let policy = policy.map(Into::into);
            SetStripeReq { ino, policy, cred: root() }
        };
        let d = rig.mkdir(TOP, "d").await.expect("made").ino;
        rig.ask(A, set(d, Some(policy.clone()))).await.expect("set");
        let sub = rig.mkdir(d, "sub").await.expect("made").ino;
        let req = create_req(sub, "f", RW);
        let made = rig.ask(A, req.clone()).await.expect("made");
        let component = &made.grant.layout.components[0];
        assert_eq!((component.stripe_size_bytes, &component.osts[..]), (65536, &[3, 0][..]));
        let f = made.attr.ino;
        rig.ask(A, set(f, Some(StripePolicy { count: Some(-1), ..Default::default() })))
            .await
            .expect("empty");
        let got = rig.ask(A, GetStripeReq { ino: f }).await.expect("got");
        let layout = got.layout.expect("a file");
        assert_eq!((layout.components[0].osts.len(), got.layout_gen), (4, 1));
        assert_eq!(
            code(rig.ask(A, set(f, Some(StripePolicy { count: Some(2500), ..policy.clone() }))).await),
            Some(Code::BadStripe)
        );
        let write = InlineWriteReq {
            ino: f,
            handle: req.handle,
            layout_epoch: layout.epoch,
            offset: 0,
            append: true,
            data: "x".into(),
            written_at: None,
            kill_suidgid: false,
            cred: root(),
            sync: false,
            promised: false,
        };
        rig.ask(A, write).await.expect("written");
        assert_eq!(code(rig.ask(A, set(f, Some(policy.clone()))).await), Some(Code::LayoutFixed));
        let got = rig.ask(A, GetStripeReq { ino: sub }).await.expect("got");
        assert_eq!((got.policy, got.effective), (Some(policy.clone().into()), policy.into()));
        rig.ask(A, set(sub, None)).await.expect("deleted");
        assert_eq!(rig.ask(A, GetStripeReq { ino: sub }).await.expect("got").policy, None);
        rig.verify();
    });
}

#[test]
fn opening_checks_the_kind_and_racing_creates_check_access() {
    run(async {
        let rig = Rig::new().await;
        let mut req = create_req(TOP, "f", RW);
        req.mode = 0o600;
        let made = rig.ask(A, req.clone()).await.expect("made");
        assert!(made.created);
        let mut again = create_req(TOP, "f", RO);
        again.exclusive = false;
        let found = rig.ask(A, again.clone()).await.expect("found");
        assert!(!found.created && found.attr.ino == made.attr.ino);
        again.cred = user(1000);
        assert_eq!(code(rig.ask(A, again.clone()).await), Some(Code::PermissionDenied));
        rig.mkdir(TOP, "d").await.expect("made");
        (again.name, again.cred) = (b"d".to_vec(), root());
        assert_eq!(code(rig.ask(A, again).await), Some(Code::IsDirectory));
        assert_eq!(code(rig.ask(A, InlineReadReq { ino: TOP }).await), Some(Code::IsDirectory));
        let truncate = Access { truncate: true, ..RO };
        let open = OpenReq { ino: TOP, handle: 3, access: truncate, cred: root(), kill_suidgid: false };
        assert_eq!(code(rig.ask(A, open).await), Some(Code::IsDirectory));
    });
}

#[test]
fn a_full_device_still_lets_go() {
    run(async {
        let rig = Rig::new().await;
        let f = file(&rig, TOP, "f").await;
        rig.mkdir(TOP, "d").await.expect("made");
        rig.disk.set_room_bytes(Some(1 << 20));
        let mut refused = None;
        for n in 0..200_000 {
            refused = code(rig.create(A, TOP, &format!("x{n}"), RW).await);
            if refused.is_some() {
                break;
            }
        }
        assert_eq!(refused, Some(Code::MdtFull));
        let open = OpenReq { ino: f, handle: 3, access: RW, cred: root(), kill_suidgid: false };
        rig.ask(A, open).await.expect("opened");
        rig.ask(A, SetattrReq { mode: Some(0o600), ..setattr_req(f, root()) }).await.expect("chmod");
        rig.close(A, f, 3).await.expect("closed");
        rig.ask(A, SetattrReq { size_bytes: Some(0), ..setattr_req(f, root()) }).await.expect("truncated");
        rig.unlink(TOP, "f").await.expect("removed");
        rmdir(&rig, TOP, "d").await.expect("removed");
        rig.verify();
    });
}
