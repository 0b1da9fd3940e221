//! Descriptors: files without names, several descriptors of one file, flags of open.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use brindle_tests::area::{Area, mode, names, nlink};
use brindle_tests::child::{Child, Ending};
use brindle_tests::users::{ANN, run_as};
use brindle_tests::{bytes, fails, same_bytes};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::io::Errno;

fn read_write() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options
}

fn through_proc(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let area = Area::new();
    let path = area.file("f", bytes(1, 300_000));
    let file = read_write().open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(names(area.root()), Vec::<String>::new());
    let found = file.metadata().unwrap();
    assert_eq!((found.nlink(), found.len()), (0, 300_000));
    let mut all = vec![0; 300_000];
    file.read_exact_at(&mut all, 0).unwrap();
    same_bytes(&all, &bytes(1, 300_000), "an unlinked file");
    file.write_all_at(&bytes(2, 5_000_000), 10).unwrap();
    file.sync_all().unwrap();
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5_000_010);
    file.set_len(20).unwrap();
    assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().mode() & 0o777), (20, 0o640));
    fs::write(&path, "another").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 20);
}

#[test]
fn an_unlinked_file_can_be_opened_again_through_proc() {
    let area = Area::new();
    let path = area.file("f", "content");
    let file = read_write().open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let mut again = read_write().open(through_proc(&file)).unwrap();
    drop(file);
    let mut text = String::new();
    again.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), again.metadata().unwrap().nlink()), ("content", 0));
}

#[test]
fn a_tmpfile_has_no_name_until_it_gets_one() {
    let area = Area::new();
    let options = |flags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE | flags).mode(0o640);
        options.open(area.root())
    };
    let mut file = options(0).unwrap();
    assert_eq!(names(area.root()), Vec::<String>::new());
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all(&bytes(3, 70_000)).unwrap();
    linkat(CWD, through_proc(&file), CWD, area.at("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!((nlink(&area.at("named")), mode(&area.at("named"))), (1, 0o640));
    file.write_all(b"more").unwrap();
    let wanted = [bytes(3, 70_000), b"more".to_vec()].concat();
    same_bytes(&fs::read(area.at("named")).unwrap(), &wanted, "a tmpfile with a name");
    linkat(&file, "", CWD, area.at("second"), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);

    let exclusive = options(libc::O_EXCL).unwrap();
    let refused = linkat(CWD, through_proc(&exclusive), CWD, area.at("no"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(fails(refused), Errno::NOENT);
    let read_only = OpenOptions::new().read(true).custom_flags(libc::O_TMPFILE).open(area.root());
    assert_eq!(fails(read_only), Errno::INVAL);
    let occupied =
        linkat(CWD, through_proc(&options(0).unwrap()), CWD, area.at("named"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(fails(occupied), Errno::EXIST);
}

#[test]
fn a_file_whose_last_name_went_cannot_get_a_new_one() {
    let area = Area::new();
    let path = area.file("f", "x");
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let refused = linkat(CWD, through_proc(&file), CWD, area.at("back"), AtFlags::SYMLINK_FOLLOW);
    assert_eq!(fails(refused), Errno::NOENT);
}

#[test]
fn of_many_exclusive_creates_one_wins() {
    let area = Area::new();
    for round in 0..20 {
        let path = area.at(format!("f{round}"));
        let create = || File::create_new(&path).is_ok() as u32;
        let won: u32 = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(won, 1);
    }
}

#[test]
fn two_descriptors_have_two_offsets_and_a_duplicate_shares_one() {
    let area = Area::new();
    let path = area.file("f", "0123456789");
    let (mut a, mut b) = (File::open(&path).unwrap(), File::open(&path).unwrap());
    let mut dup = a.try_clone().unwrap();
    let mut four = [0; 4];
    a.read_exact(&mut four).unwrap();
    dup.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"4567");
    b.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"0123");
    assert_eq!(a.stream_position().unwrap(), 8);
}

#[test]
fn what_one_descriptor_writes_the_others_read() {
    let area = Area::new();
    let path = area.at("f");
    let writer = read_write().open(&path).unwrap();
    let before = File::open(&path).unwrap();
    let mut buf = [0; 5];
    for round in 0u8..50 {
        writer.write_all_at(&[round; 5], u64::from(round) * 3).unwrap();
        for reader in [&before, &File::open(&path).unwrap(), &writer] {
            reader.read_exact_at(&mut buf, u64::from(round) * 3).unwrap();
            assert_eq!(buf, [round; 5]);
            assert_eq!(reader.metadata().unwrap().len(), u64::from(round) * 3 + 5);
        }
    }
    writer.set_len(2).unwrap();
    assert_eq!(before.read_at(&mut buf, 0).unwrap(), 2);
    assert_eq!(before.read_at(&mut buf, 2).unwrap(), 0);
}

#[test]
fn a_descriptor_keeps_the_rights_it_was_opened_with() {
    let area = Area::new();
    area.dir("open", 0o777);
    let path = area.at("open/f");
    run_as(ANN, || {
        let create = OFlags::CREATE | OFlags::RDWR | OFlags::EXCL;
        let file = open(&path, create, Mode::RUSR | Mode::RGRP).unwrap();
        assert_eq!(rustix::io::write(&file, b"mode 0440, and open for writing").unwrap(), 31);
        assert_eq!(fails(open(&path, OFlags::RDWR, Mode::empty())), Errno::ACCESS);
        rustix::fs::fchmod(&file, Mode::empty()).unwrap();
        assert_eq!(rustix::io::pwrite(&file, b"M", 0).unwrap(), 1);
        rustix::fs::ftruncate(&file, 4).unwrap();
        let mut four = [0; 4];
        assert_eq!(rustix::io::pread(&file, &mut four, 0).unwrap(), 4);
        assert_eq!(&four, b"Mode");
        assert_eq!(fails(open(&path, OFlags::RDONLY, Mode::empty())), Errno::ACCESS);
        let none = OFlags::CREATE | OFlags::WRONLY;
        let file = open(path.with_file_name("g"), none, Mode::empty()).unwrap();
        assert_eq!(rustix::io::write(&file, b"mode 0").unwrap(), 6);
    });
    let (reader, writer) = (File::open(&path).unwrap(), OpenOptions::new().write(true).open(&path).unwrap());
    assert_eq!(fails(reader.write_at(b"x", 0)), Errno::BADF);
    assert_eq!(fails(writer.read_at(&mut [0], 0)), Errno::BADF);
    assert_eq!(fails(reader.set_len(0)), Errno::INVAL);
}

#[test]
fn flags_of_open() {
    let area = Area::new();
    let path = area.file("f", "content");
    drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(fails(File::create_new(&path)), Errno::EXIST);
    assert_eq!(fails(File::open(area.at("missing"))), Errno::NOENT);
    let handle = open(&path, OFlags::PATH, Mode::empty()).unwrap();
    assert_eq!(rustix::fs::fstat(&handle).unwrap().st_size, 0);
    assert_eq!(fails(rustix::io::write(&handle, b"x")), Errno::BADF);
    for flags in [libc::O_SYNC, libc::O_DSYNC] {
        let mut file = OpenOptions::new().append(true).custom_flags(flags).open(&path).unwrap();
        file.write_all(&[1; 5000]).unwrap();
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
}

#[test]
fn appends_go_to_the_end_wherever_the_offset_is() {
    let area = Area::new();
    let path = area.file("f", "start ");
    let mut file = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.write_all(b"one ").unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"two ").unwrap();
    file.write_all(b"three ").unwrap();
    // On Linux the offset of pwrite is ignored too.
    file.write_all_at(b"four", 0).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "start one two three four");
    file.set_len(5).unwrap();
    file.write_all(b"!").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "start!");
}

#[test]
fn appends_of_four_processes_do_not_overlap() {
    const RECORDS: usize = 300;
    let area = Area::new();
    let path = area.file("log", "");
    let append = |writer: u8| {
        let path = path.clone();
        Child::start(move |_| {
            let mut file = OpenOptions::new().append(true).open(&path)?;
            for n in 0..RECORDS {
                // Length in the first two bytes, then the writer all through.
                let len = 3 + (n * 37 + usize::from(writer) * 11) % 3000;
                let mut record = vec![writer; len];
                record[..2].copy_from_slice(&(len as u16).to_le_bytes());
                if file.write(&record)? != len {
                    return Err(std::io::Error::from_raw_os_error(libc::EIO));
                }
            }
            Ok(())
        })
    };
    let children: Vec<Child> = (1..=4).map(append).collect();
    children.into_iter().for_each(Child::ok);
    let all = fs::read(&path).unwrap();
    let (mut at, mut counts) = (0, [0; 5]);
    while at < all.len() {
        let len = usize::from(u16::from_le_bytes([all[at], all[at + 1]]));
        let writer = all[at + 2];
        assert!(all[at + 2..at + len].iter().all(|b| *b == writer), "a record at {at} is torn");
        counts[usize::from(writer)] += 1;
        at += len;
    }
    assert_eq!(counts, [0, RECORDS, RECORDS, RECORDS, RECORDS]);
}

#[test]
fn a_killed_process_closes_what_it_had_open() {
    let area = Area::new();
    let path = area.file("f", "x");
    let inside = path.clone();
    let mut child = Child::start(move |link| {
        let _file = read_write().open(&inside)?;
        fs::remove_file(&inside)?;
        link.say(1)?;
        link.hear().map(drop)
    });
    child.hear();
    child.signal(libc::SIGKILL);
    assert_eq!(child.end(), Ending::Signal(libc::SIGKILL));
    fs::write(&path, "new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
}
