//! Requests as the kernel lays them out, and malformed ones.

use brindle_types::attr::Time;
use bytes::Bytes;
use proptest::prelude::*;

use super::decode::{Decoded, Malformed, Message, head, message};
use super::*;

/// Little-endian fields: (bits, value).
fn fields(parts: &[(u32, u64)]) -> Vec<u8> {
    let one = |(bits, value): &(u32, u64)| value.to_ne_bytes()[..*bits as usize / 8].to_vec();
    parts.iter().flat_map(one).collect()
}

/// A request 0x11 on inode 0x22 by uid 3, gid 4, thread 5.
fn raw(opcode: u32, body: &[u8], extensions: &[u8]) -> Bytes {
    assert_eq!(extensions.len() % 8, 0);
    let len = 40 + body.len() + extensions.len();
    let head = fields(&[
        (32, len as u64),
        (32, opcode.into()),
        (64, 0x11),
        (64, 0x22),
        (32, 3),
        (32, 4),
        (32, 5),
        (16, extensions.len() as u64 / 8),
        (16, 0),
    ]);
    [head, body.to_vec(), extensions.to_vec()].concat().into()
}

fn op(opcode: u32, body: &[u8]) -> Op {
    match message(raw(opcode, body, &[]), true).expect("decodes").message {
        Message::Request(op) => op,
        other => panic!("{other:?}"),
    }
}

fn name(s: &'static str) -> Bytes {
    Bytes::from_static(s.as_bytes())
}

#[test]
fn the_head_says_who_asks() {
    let Decoded { head, groups, .. } = message(raw(17, &[], &[]), true).expect("STATFS");
    assert_eq!((head.unique, head.nodeid, head.uid, head.gid, head.pid), (0x11, 0x22, 3, 4, 5));
    assert!(groups.is_empty());
}

#[test]
fn names() {
    assert_eq!(op(1, b"abc\0"), Op::Lookup(Lookup { name: name("abc") }));
    assert_eq!(
        op(6, b"new\0to/there\0"),
        Op::Symlink(Symlink { name: name("new"), target: name("to/there") })
    );
    assert_eq!(op(10, b"a\0"), Op::Unlink(Unlink { name: name("a") }));
    assert_eq!(op(11, b"a\0"), Op::Rmdir(Rmdir { name: name("a") }));
    let body = [fields(&[(32, 0o100644), (32, 7), (32, 0o22), (32, 0)]), b"n\0".to_vec()].concat();
    assert_eq!(op(8, &body), Op::Mknod(Mknod { name: name("n"), mode: 0o100644, rdev: 7, umask: 0o22 }));
    let body = [fields(&[(32, 0o755), (32, 0o27)]), b"d\0".to_vec()].concat();
    assert_eq!(op(9, &body), Op::Mkdir(Mkdir { name: name("d"), mode: 0o755, umask: 0o27 }));
    let rename = |flags| Rename { name: name("a"), new_parent: 9, new_name: name("b"), flags };
    assert_eq!(op(12, &[fields(&[(64, 9)]), b"a\0b\0".to_vec()].concat()), Op::Rename(rename(0)));
    let body = [fields(&[(64, 9), (32, 2), (32, 0)]), b"a\0b\0".to_vec()].concat();
    assert_eq!(op(45, &body), Op::Rename(rename(2)));
    assert_eq!(
        op(13, &[fields(&[(64, 9)]), b"b\0".to_vec()].concat()),
        Op::Link(Link { ino: 9, name: name("b") })
    );
    assert_eq!(op(5, &[]), Op::Readlink);
}

#[test]
fn opens() {
    assert_eq!(
        op(14, &fields(&[(32, 0o1002), (32, 1)])),
        Op::Open(Open { flags: 0o1002, kill_suidgid: true })
    );
    assert_eq!(op(27, &fields(&[(32, 0), (32, 0)])), Op::Opendir(Open { flags: 0, kill_suidgid: false }));
    let body = [fields(&[(32, 0o302), (32, 0o100600), (32, 0o77), (32, 0)]), b"f\0".to_vec()].concat();
    let create = Create { name: name("f"), flags: 0o302, mode: 0o100600, umask: 0o77, kill_suidgid: false };
    assert_eq!(op(35, &body), Op::Create(create));
    let body = [fields(&[(32, 2), (32, 0o100600), (32, 0o77), (32, 0)]), b"/\0".to_vec()].concat();
    assert_eq!(op(51, &body), Op::Tmpfile(Tmpfile { flags: 2, mode: 0o100600, umask: 0o77 }));
    let release = fields(&[(64, 8), (32, 2), (32, 2), (64, 99)]);
    assert_eq!(op(18, &release), Op::Release(Release { fh: 8, flags: 2, flock_owner: Some(99) }));
    let release = fields(&[(64, 8), (32, 2), (32, 0), (64, 99)]);
    assert_eq!(op(29, &release), Op::Releasedir(Release { fh: 8, flags: 2, flock_owner: None }));
    assert_eq!(
        op(25, &fields(&[(64, 8), (32, 0), (32, 0), (64, 99)])),
        Op::Flush(Flush { fh: 8, lock_owner: 99 })
    );
    assert_eq!(op(20, &fields(&[(64, 8), (32, 1), (32, 0)])), Op::Fsync(Fsync { fh: 8, data_only: true }));
    assert_eq!(
        op(30, &fields(&[(64, 8), (32, 0), (32, 0)])),
        Op::Fsyncdir(Fsync { fh: 8, data_only: false })
    );
}

#[test]
fn bulk() {
    let read =
        |flags| fields(&[(64, 8), (64, 4096), (32, 100), (32, flags), (64, 77), (32, 0o40000), (32, 0)]);
    let expect = Read { fh: 8, offset: 4096, size: 100, flags: 0o40000, lock_owner: None };
    assert_eq!(op(15, &read(0)), Op::Read(expect));
    assert_eq!(op(15, &read(2)), Op::Read(Read { lock_owner: Some(77), ..expect }));
    let write = |flags| [read(flags), vec![7; 100]].concat();
    let data = Bytes::from(vec![7; 100]);
    let expect = Write {
        fh: 8,
        offset: 4096,
        data,
        flags: 0o40000,
        from_cache: false,
        kill_suidgid: false,
        lock_owner: Some(77),
    };
    assert_eq!(op(16, &write(2)), Op::Write(expect.clone()));
    let cache = Write { from_cache: true, lock_owner: None, ..expect.clone() };
    assert_eq!(op(16, &write(1)), Op::Write(cache));
    assert_eq!(op(16, &write(6)), Op::Write(Write { kill_suidgid: true, ..expect }));
    assert_eq!(op(28, &read(0)), Op::Readdir(Readdir { fh: 8, offset: 4096, size: 100, plus: false }));
    assert_eq!(op(44, &read(0)), Op::Readdir(Readdir { fh: 8, offset: 4096, size: 100, plus: true }));
}

#[test]
fn write_data_is_a_slice_of_the_message() {
    let body =
        [fields(&[(64, 8), (64, 0), (32, 64), (32, 0), (64, 0), (32, 0), (32, 0)]), vec![1; 64]].concat();
    let bytes = raw(16, &body, &[]);
    let at = bytes[80..].as_ptr();
    let Message::Request(Op::Write(w)) = message(bytes, true).expect("decodes").message else {
        panic!("a write")
    };
    assert_eq!(w.data.as_ptr(), at);
}

#[test]
fn attributes() {
    assert_eq!(op(3, &fields(&[(32, 0), (32, 0), (64, 8)])), Op::Getattr(Getattr { fh: None }));
    assert_eq!(op(3, &fields(&[(32, 1), (32, 0), (64, 8)])), Op::Getattr(Getattr { fh: Some(8) }));
    let statx = fields(&[(32, 1), (32, 0), (64, 8), (32, 0x4000), (32, 0xfff)]);
    assert_eq!(op(52, &statx), Op::Statx(Statx { fh: Some(8), flags: 0x4000, mask: 0xfff }));
    let setattr = |valid: u64| {
        fields(&[
            (32, valid),
            (32, 0),
            (64, 8),
            (64, 500),
            (64, 66),
            (64, 10),
            (64, -20i64 as u64),
            (64, 30),
            (32, 1),
            (32, 2),
            (32, 3),
            (32, 0o100644),
            (32, 0),
            (32, 1000),
            (32, 100),
            (32, 0),
        ])
    };
    assert_eq!(op(4, &setattr(0)), Op::Setattr(Setattr::default()));
    let all = Setattr {
        fh: Some(8),
        mode: Some(0o100644),
        uid: Some(1000),
        gid: Some(100),
        size: Some(500),
        atime: Some(SetTime::To(Time { secs: 10, nanos: 1 })),
        mtime: Some(SetTime::To(Time { secs: -20, nanos: 2 })),
        ctime: Some(Time { secs: 30, nanos: 3 }),
        lock_owner: Some(66),
        kill_suidgid: true,
    };
    assert_eq!(op(4, &setattr(0b1110_0111_1111)), Op::Setattr(all));
    let now = Setattr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..Setattr::default() };
    assert_eq!(op(4, &setattr(0b1_1011_0000)), Op::Setattr(now));
}

#[test]
fn locks() {
    let lk = |kind, flags| {
        fields(&[(64, 8), (64, 66), (64, 10), (64, 19), (32, kind), (32, 42), (32, flags), (32, 0)])
    };
    let lock = Lock { fh: 8, owner: 66, flock: false, kind: LockKind::Read, start: 10, end: 19, pid: 42 };
    assert_eq!(op(31, &lk(0, 0)), Op::Getlk(lock));
    assert_eq!(
        op(32, &lk(2, 0)),
        Op::Setlk(Setlk { lock: Lock { kind: LockKind::Unlock, ..lock }, wait: false })
    );
    let flock = Lock { flock: true, kind: LockKind::Write, ..lock };
    assert_eq!(op(33, &lk(1, 1)), Op::Setlk(Setlk { lock: flock, wait: true }));
    assert_eq!(message(raw(33, &lk(3, 0), &[]), true), Err(Malformed::Lock));
}

#[test]
fn extended_attributes_in_both_forms() {
    let tail = b"user.a\0value".to_vec();
    let expect = Setxattr { name: name("user.a"), value: name("value"), flags: 1, kill_sgid: false };
    let old = [fields(&[(32, 5), (32, 1)]), tail.clone()].concat();
    let Message::Request(decoded) = message(raw(21, &old, &[]), false).expect("decodes").message else {
        panic!()
    };
    assert_eq!(decoded, Op::Setxattr(expect.clone()));
    let new = [fields(&[(32, 5), (32, 1), (32, 1), (32, 0)]), tail].concat();
    assert_eq!(op(21, &new), Op::Setxattr(Setxattr { kill_sgid: true, ..expect }));
    let get = [fields(&[(32, 64), (32, 0)]), b"user.a\0".to_vec()].concat();
    assert_eq!(op(22, &get), Op::Getxattr(Getxattr { name: name("user.a"), size: 64 }));
    assert_eq!(op(23, &fields(&[(32, 64), (32, 0)])), Op::Listxattr(Listxattr { size: 64 }));
    assert_eq!(op(24, b"user.a\0"), Op::Removexattr(Removexattr { name: name("user.a") }));
}

#[test]
fn ranges() {
    let fallocate = fields(&[(64, 8), (64, 10), (64, 20), (32, 3), (32, 0)]);
    assert_eq!(op(43, &fallocate), Op::Fallocate(Fallocate { fh: 8, offset: 10, length: 20, mode: 3 }));
    assert_eq!(
        op(46, &fields(&[(64, 8), (64, 10), (32, 4), (32, 0)])),
        Op::Lseek(Lseek { fh: 8, offset: 10, whence: 4 })
    );
    let ioctl =
        [fields(&[(64, 8), (32, 1), (32, 77), (64, 9), (32, 4), (32, 28)]), vec![1, 2, 3, 4]].concat();
    let expect = Ioctl { command: 77, data: Bytes::from_static(&[1, 2, 3, 4]), room: 28 };
    assert_eq!(op(39, &ioctl), Op::Ioctl(expect));
    let copy = fields(&[(64, 8), (64, 1), (64, 0x33), (64, 9), (64, 2), (64, 1 << 40), (64, 0)]);
    let expect = CopyFileRange {
        fh_in: 8,
        offset_in: 1,
        ino_out: 0x33,
        fh_out: 9,
        offset_out: 2,
        length: 1 << 40,
        flags: 0,
        wide: true,
    };
    assert_eq!(op(53, &copy), Op::CopyFileRange(expect));
    let narrow = CopyFileRange { length: 0xffff_f000, wide: false, ..expect };
    assert_eq!(op(47, &copy), Op::CopyFileRange(narrow), "the answer has 32 bits");
    assert_eq!(op(34, &fields(&[(32, 5), (32, 0)])), Op::Access(Access { mask: 5 }));
    assert_eq!(op(17, &[]), Op::Statfs);
}

#[test]
fn messages_without_an_answer() {
    let decode = |opcode, body: &[u8]| message(raw(opcode, body, &[]), true).map(|d| d.message);
    assert_eq!(decode(2, &fields(&[(64, 3)])), Ok(Message::Forget(vec![(0x22, 3)])));
    let batch = fields(&[(32, 2), (32, 0), (64, 5), (64, 1), (64, 6), (64, 2)]);
    assert_eq!(decode(42, &batch), Ok(Message::Forget(vec![(5, 1), (6, 2)])));
    let lies = fields(&[(32, u64::from(u32::MAX)), (32, 0), (64, 5), (64, 1)]);
    assert_eq!(decode(42, &lies), Err(Malformed::Short("BATCH_FORGET")));
    assert_eq!(decode(36, &fields(&[(64, 0x10)])), Ok(Message::Interrupt(0x10)));
    assert_eq!(decode(38, &[]), Ok(Message::Destroy));
    for (opcode, body) in [(37u32, &[0u8; 16][..]), (40, &[0; 24]), (50, &[0; 8]), (4096, &[])] {
        assert_eq!(decode(opcode, body), Ok(Message::Unsupported(opcode)));
    }
    let Ok(Message::Init(init)) = decode(26, &fields(&[(32, 7), (32, 8), (32, 9), (32, 10)])) else {
        panic!("INIT")
    };
    assert_eq!((init.major, init.minor, init.flags, init.flags2), (7, 8, 10, 0));
    assert_eq!(decode(26, &[0; 15]), Err(Malformed::Short("INIT")));
}

#[test]
fn groups_come_in_an_extension() {
    let body = [fields(&[(32, 0o755), (32, 0)]), b"d\0".to_vec()].concat();
    let groups = fields(&[(32, 20), (32, 32), (32, 2), (32, 4321), (32, 77), (32, 0)]);
    let security = fields(&[(32, 16), (32, 1), (32, 0), (32, 0)]);
    let decoded = message(raw(9, &body, &[security, groups].concat()), true).expect("decodes");
    assert_eq!(decoded.groups, [4321, 77]);
    assert!(matches!(decoded.message, Message::Request(Op::Mkdir(_))));
    let wrong = [
        fields(&[(32, 4), (32, 32)]),
        fields(&[(32, 64), (32, 32)]),
        fields(&[(32, 16), (32, 32), (32, 9), (32, 1)]),
        fields(&[(32, 8), (32, 32)]),
    ];
    for extension in wrong {
        assert_eq!(message(raw(9, &body, &extension), true), Err(Malformed::Extension), "{extension:?}");
    }
}

#[test]
fn malformed_messages_are_named() {
    assert_eq!(head(&[0; 39]), Err(Malformed::NoHead(39)));
    let mut longer = raw(1, b"a\0", &[]).to_vec();
    longer.push(0);
    assert_eq!(head(&longer), Err(Malformed::Length { said: 42, has: 43 }));
    for bad in [&b"abc"[..], b"\0", b"a/b\0", b""] {
        assert_eq!(message(raw(1, bad, &[]), true), Err(Malformed::Name("LOOKUP")), "{bad:?}");
    }
    let write = fields(&[(64, 8), (64, 0), (32, 101), (32, 0), (64, 0), (32, 0), (32, 0)]);
    let short = [write, vec![0; 100]].concat();
    assert_eq!(message(raw(16, &short, &[]), true), Err(Malformed::Short("WRITE")));
    let e = Malformed::Length { said: 42, has: 43 };
    assert_eq!(e.to_string(), "head says 42 bytes, message has 43");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_message_makes_the_decoder_panic(
        opcode in 0u32..60, ext in 0u16..6, body in prop::collection::vec(any::<u8>(), 0..200), new in any::<bool>(),
    ) {
        let mut bytes = raw(opcode, &body, &[]).to_vec();
        bytes[36..38].copy_from_slice(&ext.to_ne_bytes());
        let _ = message(bytes.into(), new);
    }

    #[test]
    fn a_message_cut_short_never_decodes_to_more_than_it_holds(cut in 0usize..200, len in 0u32..120) {
        let body = [fields(&[(64, 8), (64, 0), (32, len.into()), (32, 0), (64, 0), (32, 0), (32, 0)]), vec![1; 100]].concat();
        let whole = raw(16, &body, &[]);
        let mut bytes = whole[..whole.len().min(40 + cut)].to_vec();
        let said = bytes.len() as u32;
        bytes[..4].copy_from_slice(&said.to_ne_bytes());
        match message(bytes.into(), true) {
            Ok(Decoded { message: Message::Request(Op::Write(w)), .. }) => prop_assert_eq!(w.data.len(), len as usize),
            Ok(other) => prop_assert!(false, "{:?}", other),
            Err(e) => prop_assert_eq!(e, Malformed::Short("WRITE")),
        }
    }
}
