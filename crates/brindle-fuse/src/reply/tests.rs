//! The bytes of answers.

use brindle_types::{FileType, Ino};

use super::*;

fn attr() -> Attr {
    let time = |secs, nanos| Time { secs, nanos };
    Attr {
        ino: Ino(0x1122),
        kind: FileType::Regular,
        perm: 0o4755,
        nlink: 3,
        uid: 1000,
        gid: 100,
        rdev: 0,
        size_bytes: 5000,
        allocated_bytes: 8193,
        atime: time(1, 2),
        mtime: time(-3, 4),
        ctime: time(5, 6),
        btime: time(7, 8),
        has_acl: false,
        has_xattr: false,
        data_version: None,
        blksize_bytes: 1 << 20,
    }
}

/// The message as it goes to the kernel for request 9.
fn bytes(reply: &Reply) -> Vec<u8> {
    let data: Vec<u8> = reply.data.concat();
    [reply.head(9).as_bytes(), &reply.fixed, &data].concat()
}

fn head(len: u32, error: i32) -> Vec<u8> {
    [&len.to_ne_bytes()[..], &error.to_ne_bytes(), &9u64.to_ne_bytes()].concat()
}

/// Little helper for fixtures: 64-bit and 32-bit words in the order of the structure.
fn fields(parts: &[(u32, u64)]) -> Vec<u8> {
    let one = |(bits, value): &(u32, u64)| value.to_ne_bytes()[..*bits as usize / 8].to_vec();
    parts.iter().flat_map(one).collect()
}

fn attr_bytes() -> Vec<u8> {
    let minus3 = -3i64 as u64;
    fields(&[
        (64, 0x1122),
        (64, 5000),
        (64, 17),
        (64, 1),
        (64, minus3),
        (64, 5),
        (32, 2),
        (32, 4),
        (32, 6),
        (32, 0o104755),
        (32, 3),
        (32, 1000),
        (32, 100),
        (32, 0),
        (32, 1 << 20),
        (32, 0),
    ])
}

#[test]
fn empty_answers_and_errors() {
    assert_eq!(bytes(&Reply::ok()), head(16, 0));
    assert_eq!(bytes(&Reply::err(2)), head(16, -2));
    for odd in [0, -5, 512, i32::MAX, i32::MIN] {
        assert_eq!(bytes(&Reply::err(odd)), head(16, -5), "{odd} would be refused by the kernel");
    }
}

#[test]
fn entries_and_attributes() {
    let attr = attr();
    let valid = Duration::new(10, 20);
    let entry = Entry {
        attr: &attr,
        nodeid: attr.ino.0,
        generation: 4,
        entry_valid: valid,
        attr_valid: Duration::from_millis(1500),
    };
    let start = fields(&[(64, 0x1122), (64, 4), (64, 10), (64, 1), (32, 20), (32, 500_000_000)]);
    let entry_bytes = [start, attr_bytes()].concat();
    assert_eq!(bytes(&Reply::entry(&entry)), [head(144, 0), entry_bytes.clone()].concat());
    let opened = Opened { fh: 77, flags: 65 };
    let open_bytes = fields(&[(64, 77), (32, 65), (32, 0)]);
    assert_eq!(bytes(&Reply::opened(opened)), [head(32, 0), open_bytes.clone()].concat());
    assert_eq!(bytes(&Reply::created(&entry, opened)), [head(160, 0), entry_bytes, open_bytes].concat());
    let attr_out = [fields(&[(64, 10), (32, 20), (32, 0)]), attr_bytes()].concat();
    assert_eq!(bytes(&Reply::attr(&attr, valid)), [head(120, 0), attr_out].concat());
    let none = bytes(&Reply::no_entry(valid));
    assert_eq!((none.len(), &none[16..24]), (144, &[0u8; 8][..]));
}

#[test]
fn statx_with_birth_time_and_device() {
    let attr = Attr { kind: FileType::CharDevice, rdev: libc::makedev(8, 17) as u32, ..attr() };
    let out = bytes(&Reply::statx(&attr, Duration::ZERO));
    assert_eq!(out.len(), 16 + 288);
    let stat = &out[16 + 32..];
    let begin = fields(&[
        (32, 0xfff),
        (32, 1 << 20),
        (64, 0),
        (32, 3),
        (32, 1000),
        (32, 100),
        (16, 0o024755),
        (16, 0),
        (64, 0x1122),
        (64, 5000),
        (64, 17),
        (64, 0),
        (64, 1),
        (32, 2),
        (32, 0),
        (64, 7),
        (32, 8),
        (32, 0),
        (64, 5),
        (32, 6),
        (32, 0),
        (64, -3i64 as u64),
        (32, 4),
        (32, 0),
        (32, 8),
        (32, 17),
        (32, 0),
        (32, 0),
    ]);
    assert_eq!(&stat[..144], begin);
    assert!(stat[144..].iter().all(|b| *b == 0));
}

#[test]
fn data_goes_out_in_pieces() {
    let reply = Reply::pieces(vec!["ab".into(), "".into(), "cde".into()]);
    assert_eq!(reply.data.len(), 3);
    assert_eq!(bytes(&reply), [head(21, 0), b"abcde".to_vec()].concat());
    let many = Reply::pieces(vec![Bytes::from_static(b"x"); PIECES_MAX + 1]);
    assert_eq!((many.data.len(), many.body_len()), (1, PIECES_MAX + 1));
}

#[test]
fn extended_attributes_know_their_room() {
    let value = Bytes::from_static(b"value");
    assert_eq!(bytes(&Reply::xattr(value.clone(), 0)), [head(24, 0), fields(&[(32, 5), (32, 0)])].concat());
    assert_eq!(bytes(&Reply::xattr(value.clone(), 4)), head(16, -34));
    assert_eq!(bytes(&Reply::xattr(value, 5)), [head(21, 0), b"value".to_vec()].concat());
}

#[test]
fn numbers() {
    assert_eq!(bytes(&Reply::written(5)), [head(24, 0), fields(&[(32, 5), (32, 0)])].concat());
    assert_eq!(bytes(&Reply::offset(5)), [head(24, 0), fields(&[(64, 5)])].concat());
    let copy = |wide| CopyFileRange {
        fh_in: 1,
        offset_in: 0,
        ino_out: 2,
        fh_out: 2,
        offset_out: 0,
        length: 0,
        flags: 0,
        wide,
    };
    assert_eq!(bytes(&Reply::copied(1 << 33, &copy(true))), [head(24, 0), fields(&[(64, 1 << 33)])].concat());
    assert_eq!(bytes(&Reply::copied(5, &copy(false))), [head(24, 0), fields(&[(32, 5), (32, 0)])].concat());
    assert_eq!(bytes(&Reply::copied(1 << 33, &copy(false))), head(16, -22), "more than the answer can say");
}

#[test]
fn locks_and_statfs() {
    let lock = Lock { fh: 1, owner: 2, flock: false, kind: LockKind::Write, start: 10, end: 19, pid: 42 };
    let held = fields(&[(64, 10), (64, 19), (32, 1), (32, 42)]);
    assert_eq!(bytes(&Reply::lock(Some(&lock))), [head(40, 0), held].concat());
    assert_eq!(
        bytes(&Reply::lock(None)),
        [head(40, 0), fields(&[(64, 0), (64, 0), (32, 2), (32, 0)])].concat()
    );
    let s = Statfs {
        blocks: 1,
        free: 2,
        available: 3,
        inodes: 4,
        inodes_free: 5,
        bsize_bytes: 6,
        frsize_bytes: 7,
        name_max_bytes: 8,
    };
    let out = fields(&[(64, 1), (64, 2), (64, 3), (64, 4), (64, 5), (32, 6), (32, 8), (32, 7)]);
    assert_eq!(bytes(&Reply::statfs(&s)), [head(96, 0), out, vec![0; 28]].concat());
}

#[test]
fn directory_records_end_on_the_grid() {
    let mut plain = DirBuffer::new(80);
    assert!(plain.add(b"abc", 5, FileType::Directory, 1));
    assert!(plain.add(b"12345678", 6, FileType::Regular, 2));
    assert!(!plain.add(b"x", 7, FileType::Fifo, 3), "no room for 32 more");
    let first = [fields(&[(64, 5), (64, 1), (32, 3), (32, 4)]), b"abc\0\0\0\0\0".to_vec()].concat();
    let second = [fields(&[(64, 6), (64, 2), (32, 8), (32, 8)]), b"12345678".to_vec()].concat();
    assert_eq!(bytes(&Reply::directory(plain)), [head(80, 0), first, second].concat());

    let attr = attr();
    let mut plus = DirBuffer::new(4096);
    assert!(plus.is_empty());
    assert!(plus.add_plain(b".", 1, FileType::Directory, 1));
    assert!(plus.add_plus(b"f", &Entry::uncached(&attr), 2));
    let out = plus.into_bytes();
    assert_eq!(out.len(), 2 * 160);
    assert_eq!(&out[..8], [0; 8], "the kernel takes no reference");
    assert_eq!(&out[128..136], 1u64.to_ne_bytes());
    assert_eq!(&out[160..168], 0x1122u64.to_ne_bytes());
    assert_eq!(&out[160 + 40..160 + 128], attr_bytes());
    assert_eq!(&out[160 + 128..160 + 152], fields(&[(64, 0x1122), (64, 2), (32, 1), (32, 8)]));
}
