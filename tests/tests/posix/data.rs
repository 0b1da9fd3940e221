//! Bytes: reads and writes of every kind, truncation, copies, direct I/O.

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use brindle_tests::area::{Area, mtime};
use brindle_tests::child::Child;
use brindle_tests::{bytes, fails, same_bytes};
use rustix::fs::copy_file_range;
use rustix::io::Errno;

/// Offsets where something changes inside: blocks, the inline limit, stripes.
const EDGES: [u64; 7] = [1, 4095, 4096, 8192, 65_536, 1 << 20, 4 << 20];

fn new_file(area: &Area, name: &str) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(area.at(name)).unwrap()
}

fn all_of(file: &File) -> Vec<u8> {
    let mut data = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut data, 0).unwrap();
    data
}

#[test]
fn sizes_around_every_edge() {
    let area = Area::new();
    for edge in EDGES {
        for len in [edge - 1, edge, edge + 1] {
            let data = bytes(len, len as usize);
            let path = area.file("f", &data);
            same_bytes(&fs::read(&path).unwrap(), &data, &format!("a file of {len} bytes"));
            let file = File::open(&path).unwrap();
            assert_eq!(file.read_at(&mut [0; 10], len).unwrap(), 0);
            assert_eq!(file.read_at(&mut [0; 10], len + 100_000).unwrap(), 0);
        }
    }
}

#[test]
fn a_large_file_comes_back_as_it_was() {
    let area = Area::new();
    let data = bytes(7, 48 << 20);
    let mut file = new_file(&area, "f");
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    same_bytes(&fs::read(area.at("f")).unwrap(), &data, "48 MiB");
    let used = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
    assert!((40 << 20..64 << 20).contains(&used), "48 MiB take {used} bytes");
}

#[test]
fn what_truncate_cut_off_never_comes_back() {
    let area = Area::new();
    for edge in EDGES {
        let file = new_file(&area, "f");
        let len = (2 * edge + 5000) as usize;
        file.write_all_at(&vec![0xff; len], 0).unwrap();
        file.set_len(edge).unwrap();
        assert_eq!(file.metadata().unwrap().len(), edge);
        file.set_len(len as u64).unwrap();
        let mut wanted = vec![0xff; edge as usize];
        wanted.resize(len, 0);
        same_bytes(&all_of(&file), &wanted, &format!("cut at {edge} and extended"));
        // A write beyond the end leaves zeros between, not what was there before.
        file.set_len(edge).unwrap();
        file.write_all_at(b"end", edge + 4321).unwrap();
        let mut wanted = vec![0xff; edge as usize];
        wanted.resize(edge as usize + 4321, 0);
        wanted.extend(b"end");
        same_bytes(&all_of(&file), &wanted, &format!("cut at {edge} and written behind"));
    }
}

#[test]
fn truncation_by_path_by_open_and_by_descriptor() {
    let area = Area::new();
    let path = area.file("f", bytes(1, 100_000));
    let reader = File::open(&path).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(50_000).unwrap();
    same_bytes(&all_of(&reader), &bytes(1, 50_000), "half");
    drop(File::create(&path).unwrap());
    assert_eq!(reader.metadata().unwrap().len(), 0);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    assert_eq!(all_of(&reader), [0; 10]);
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(fails(rustix::fs::ftruncate(&writer, u64::MAX)), Errno::INVAL);
}

#[test]
fn random_writes_agree_with_memory() {
    const LEN: usize = 3 << 20;
    let area = Area::new();
    let file = new_file(&area, "f");
    let mut wanted: Vec<u8> = Vec::new();
    let draws = bytes(42, 8 * 3 * 400);
    let draw = |i: usize| u64::from_le_bytes(draws[i * 8..i * 8 + 8].try_into().unwrap()) as usize;
    for step in 0..400 {
        let (at, len) = (draw(3 * step) % LEN, draw(3 * step + 1) % 70_000);
        if draw(3 * step + 2) % 16 == 0 {
            wanted.resize(at, 0);
            file.set_len(at as u64).unwrap();
        } else {
            let data = bytes(step as u64, len);
            if len > 0 && wanted.len() < at + len {
                wanted.resize(at + len, 0);
            }
            if len > 0 {
                wanted[at..at + len].copy_from_slice(&data);
            }
            file.write_all_at(&data, at as u64).unwrap();
        }
        if step % 40 == 0 {
            same_bytes(&all_of(&file), &wanted, &format!("after step {step}"));
        }
    }
    drop(file);
    same_bytes(&fs::read(area.at("f")).unwrap(), &wanted, "at the end");
}

#[test]
fn writes_of_nothing_change_nothing() {
    let area = Area::new();
    let path = area.file("f", "x");
    let before = mtime(&path);
    area.tick();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(file.write_at(b"", 1000).unwrap(), 0);
    assert_eq!((file.metadata().unwrap().len(), mtime(&path)), (1, before));
}

#[test]
fn scattered_and_gathered() {
    let area = Area::new();
    let mut file = new_file(&area, "f");
    let (a, b, c) = (bytes(1, 10), bytes(2, 100_000), bytes(3, 4097));
    let parts = [IoSlice::new(&a), IoSlice::new(&b), IoSlice::new(&c)];
    assert_eq!(file.write_vectored(&parts).unwrap(), 104_107);
    file.seek(SeekFrom::Start(5)).unwrap();
    let (mut x, mut y) = (vec![0; 5], vec![0; 100_001]);
    let mut into = [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)];
    assert_eq!(file.read_vectored(&mut into).unwrap(), 100_006);
    assert_eq!(x, a[5..]);
    same_bytes(&y, &[b, c[..1].to_vec()].concat(), "the second part");
    assert_eq!(file.seek(SeekFrom::End(-7)).unwrap(), 104_100);
    assert_eq!(fails(file.seek(SeekFrom::Current(-200_000))), Errno::INVAL);
}

#[test]
fn copies_inside_and_between_files() {
    let area = Area::new();
    let data = bytes(5, 3 << 20);
    let (from, to) = (new_file(&area, "from"), new_file(&area, "to"));
    from.write_all_at(&data, 0).unwrap();
    let copy = |from: &File, to: &File, mut a: u64, mut b: u64, len: usize| {
        let mut done = 0;
        while done < len {
            match copy_file_range(from, Some(&mut a), to, Some(&mut b), len - done)? {
                0 => break,
                n => done += n,
            }
        }
        rustix::io::Result::Ok(done)
    };
    assert_eq!(copy(&from, &to, 0, 0, data.len()).unwrap(), data.len());
    same_bytes(&all_of(&to), &data, "a copy of the whole file");
    assert_eq!(copy(&from, &to, 1_000_001, 77, 1_500_000).unwrap(), 1_500_000);
    let mut wanted = data.clone();
    wanted[77..1_500_077].copy_from_slice(&data[1_000_001..2_500_001]);
    same_bytes(&all_of(&to), &wanted, "an unaligned copy over it");
    assert_eq!(copy(&from, &to, data.len() as u64 - 10, 5_000_000, 100).unwrap(), 10);
    wanted.resize(5_000_000, 0);
    wanted.extend(&data[data.len() - 10..]);
    same_bytes(&all_of(&to), &wanted, "a copy behind the end");
    assert_eq!(copy(&from, &to, data.len() as u64, 0, 10).unwrap(), 0);
    assert_eq!(copy(&to, &to, 0, 3 << 20, 1 << 20).unwrap(), 1 << 20);
    assert_eq!(fails(copy(&to, &to, 0, 10, 100)), Errno::INVAL);
    let read_only = File::open(area.at("to")).unwrap();
    assert_eq!(fails(copy(&from, &read_only, 0, 0, 10)), Errno::BADF);
    let appending = OpenOptions::new().append(true).open(area.at("to")).unwrap();
    assert_eq!(fails(copy(&from, &appending, 0, 0, 10)), Errno::BADF);
}

#[test]
fn sendfile_and_splice() {
    let area = Area::new();
    let data = bytes(6, 200_000);
    let from = File::open(area.file("from", &data)).unwrap();
    let to = new_file(&area, "to");
    let mut offset = 1;
    let mut left = data.len() - 1;
    while left > 0 {
        left -= rustix::fs::sendfile(&to, &from, Some(&mut offset), left).unwrap();
    }
    same_bytes(&all_of(&to), &data[1..], "through sendfile");

    let spliced = new_file(&area, "spliced");
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let flags = rustix::pipe::SpliceFlags::empty();
    let (mut from_at, mut to_at) = (0, 0);
    while from_at < data.len() as u64 {
        let n = rustix::pipe::splice(&from, Some(&mut from_at), &writer, None, 32_768, flags).unwrap();
        let mut left = n;
        while left > 0 {
            left -= rustix::pipe::splice(&reader, None, &spliced, Some(&mut to_at), left, flags).unwrap();
        }
    }
    same_bytes(&all_of(&spliced), &data, "through a pipe");
}

/// Memory that direct I/O accepts.
struct Aligned {
    all: Vec<u8>,
    start: usize,
}

impl Aligned {
    const BLOCK: usize = 4096;

    fn new(data: &[u8]) -> Aligned {
        let mut all = vec![0; data.len() + Aligned::BLOCK];
        let start = all.as_ptr().align_offset(Aligned::BLOCK);
        all[start..start + data.len()].copy_from_slice(data);
        Aligned { all, start }
    }

    fn part(&mut self, len: usize) -> &mut [u8] {
        &mut self.all[self.start..self.start + len]
    }
}

#[test]
fn direct_and_buffered_descriptors_see_each_other() {
    const LEN: usize = 3 << 20;
    let area = Area::new();
    let buffered = new_file(&area, "f");
    let direct =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(area.at("f")).unwrap();
    let mut data = Aligned::new(&bytes(1, LEN));
    direct.write_all_at(data.part(LEN), 0).unwrap();
    same_bytes(&all_of(&buffered), &bytes(1, LEN), "written direct, read buffered");
    buffered.write_all_at(&bytes(2, 100_000), 1_000_000).unwrap();
    let mut wanted = bytes(1, LEN);
    wanted[1_000_000..1_100_000].copy_from_slice(&bytes(2, 100_000));
    let mut found = Aligned::new(&vec![0; LEN]);
    direct.read_exact_at(found.part(LEN), 0).unwrap();
    same_bytes(found.part(LEN), &wanted, "written buffered, read direct");
    // The last block, and behind the end.
    buffered.set_len(LEN as u64 - 1000).unwrap();
    assert_eq!(direct.read_at(found.part(8192), LEN as u64 - 4096).unwrap(), 3096);
    assert_eq!(direct.read_at(found.part(4096), LEN as u64).unwrap(), 0);
}

#[test]
fn a_write_beyond_the_largest_file_changes_nothing() {
    let area = Area::new();
    let file = new_file(&area, "f");
    file.write_all_at(b"kept", 0).unwrap();
    // Whether it is possible depends on the local file system below, and on the number of stripes.
    if let Err(refused) = file.write_all_at(b"far", (16 << 40) - 1) {
        assert_eq!(refused.raw_os_error(), Some(libc::EFBIG));
        assert_eq!(file.metadata().unwrap().len(), 4);
    }
    assert_eq!(file.write_all_at(b"too far", 1 << 62).unwrap_err().raw_os_error(), Some(libc::EFBIG));
    let mut text = [0; 4];
    file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"kept");
}

#[test]
fn a_very_large_sparse_file() {
    // ext4 with 4 KiB blocks ends just below 16 TiB: a local file, or each stripe of one on OSTs.
    let far: u64 = 8 << 40;
    let area = Area::new();
    let mut file = new_file(&area, "f");
    file.write_all_at(b"start", 0).unwrap();
    file.write_all_at(b"across the mark", far - 5).unwrap();
    assert_eq!(file.metadata().unwrap().len(), far + 10);
    let mut text = [0; 15];
    file.read_exact_at(&mut text, far - 5).unwrap();
    assert_eq!(&text, b"across the mark");
    let mut hole = [1; 9000];
    file.read_exact_at(&mut hole, far / 2 + 123).unwrap();
    assert_eq!(hole, [0; 9000]);
    assert_eq!(file.seek(SeekFrom::End(-10)).unwrap(), far);
    let mut tail = String::new();
    file.read_to_string(&mut tail).unwrap();
    assert_eq!(tail, "s the mark");
    file.sync_all().unwrap();
    let used = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
    assert!(used < 64 << 20, "a sparse file takes {used} bytes");
    file.set_len(3).unwrap();
    file.set_len(far).unwrap();
    file.read_exact_at(&mut text, far - 15).unwrap();
    assert_eq!(text, [0; 15]);
}

#[test]
fn the_limit_of_the_file_size_is_kept() {
    let area = Area::new();
    let path = area.at("f");
    let child = Child::start(move |_| {
        let limit = libc::rlimit { rlim_cur: 10_000, rlim_max: 10_000 };
        // SAFETY: plain system calls in a process of its own.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
        }
        let mut file = File::create(&path)?;
        let first = file.write(&[1; 20_000])?;
        let wrong = |n: i32| Err(std::io::Error::from_raw_os_error(n));
        match (first, file.write(&[1]).map_err(|e| e.raw_os_error())) {
            (10_000, Err(Some(libc::EFBIG))) => {}
            _ => return wrong(libc::ERANGE),
        }
        match file.set_len(10_001).map_err(|e| e.raw_os_error()) {
            Err(Some(libc::EFBIG)) => file.set_len(10_000),
            _ => wrong(libc::EDOM),
        }
    });
    child.ok();
    assert_eq!(fs::metadata(area.at("f")).unwrap().len(), 10_000);
}

#[test]
fn many_threads_write_their_own_parts() {
    const PART: usize = 100_003;
    let area = Area::new();
    let file = new_file(&area, "f");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let file = &file;
            scope.spawn(move || {
                // Small steps, so that the threads meet in blocks and stripes.
                for (i, part) in bytes(n, PART).chunks(7777).enumerate() {
                    file.write_all_at(part, n * PART as u64 + i as u64 * 7777).unwrap();
                }
            });
        }
    });
    let wanted: Vec<u8> = (0..8).flat_map(|n| bytes(n, PART)).collect();
    same_bytes(&all_of(&file), &wanted, "eight parts");
}

#[test]
fn syncing_works_on_everything() {
    let area = Area::new();
    let mut file = new_file(&area, "f");
    file.write_all(b"x").unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    File::open(area.at("f")).unwrap().sync_all().unwrap();
    let dir = File::open(area.root()).unwrap();
    dir.sync_all().unwrap();
    rustix::fs::syncfs(&dir).unwrap();
    fs::remove_file(area.at("f")).unwrap();
    file.sync_all().unwrap();
}
