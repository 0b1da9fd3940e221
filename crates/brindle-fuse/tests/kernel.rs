//! The protocol layer against the real kernel. Needs root and /dev/fuse.
//!
//! One test after the other: each has a mount of its own, but some count requests or measure time.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use brindle_fuse::Ended;
use brindle_fuse::abi::flags::init;
use support::Mount;

#[test]
fn files_directories_and_links_work() {
    let m = Mount::new();
    let n = m.session.negotiated();
    for feature in [init::POSIX_LOCKS, init::DIRECT_IO_ALLOW_MMAP, init::POSIX_ACL, init::HANDLE_KILLPRIV_V2]
    {
        assert!(n.has(feature), "{feature:#x}");
    }
    fs::create_dir(m.path("d")).expect("mkdir");
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(m.path("d/a"), &data).expect("write");
    assert_eq!(fs::read(m.path("d/a")).expect("read"), data);
    std::os::unix::fs::symlink("d/a", m.path("s")).expect("symlink");
    assert_eq!(fs::metadata(m.path("s")).expect("stat").len(), data.len() as u64);
    fs::hard_link(m.path("d/a"), m.path("h")).expect("link");
    assert_eq!(fs::metadata(m.path("h")).expect("stat").nlink(), 2);
    fs::rename(m.path("h"), m.path("d/b")).expect("rename");
    let mut names: Vec<_> =
        fs::read_dir(m.path("d")).expect("readdir").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    fs::remove_file(m.path("d/a")).expect("unlink");
    fs::remove_file(m.path("d/b")).expect("unlink");
    fs::remove_dir(m.path("d")).expect("rmdir");
    assert_eq!(fs::read_dir(m.path("")).expect("readdir").count(), 1);
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let line = mounts.lines().find(|l| l.contains(m.path("").to_str().expect("utf-8").trim_end_matches('/')));
    let line = line.expect("mounted");
    assert!(line.starts_with("memfs ") && line.contains(" fuse.brindle rw,"), "{line}");
    assert!(line.contains("default_permissions,allow_other") && !line.contains("nosuid"), "{line}");
}

#[test]
fn unmounting_ends_the_session() {
    let m = Mount::new();
    let f = File::create(m.path("f")).expect("create");
    let busy = m.session.unmount(false).expect_err("a file is open");
    assert_eq!(busy.code, brindle_types::Code::FileBusy);
    drop(f);
    m.session.unmount(false).expect("nothing is open");
    assert_eq!(m.runtime.block_on(m.session.ended()), Ended::Unmounted);
    assert_eq!(
        m.runtime.block_on(m.session.notifier().post(brindle_fuse::Notice::IncEpoch)),
        brindle_fuse::Outcome::Ended
    );
}

#[test]
fn an_abort_is_told_from_an_unmount() {
    let m = Mount::new();
    m.session.abort().expect("abort");
    assert_eq!(m.runtime.block_on(m.session.ended()), Ended::Aborted);
    assert!(fs::metadata(m.path("x")).is_err());
}

#[test]
fn write_then_read_through_one_descriptor() {
    let m = Mount::new();
    let mut f =
        OpenOptions::new().read(true).write(true).create(true).mode(0o640).open(m.path("f")).expect("open");
    f.write_all(b"hello").expect("write");
    f.write_all_at(b"J", 0).expect("pwrite");
    let mut s = String::new();
    File::open(m.path("f")).expect("open").read_to_string(&mut s).expect("read");
    assert_eq!(s, "Jello");
    assert_eq!(f.metadata().expect("fstat").mode() & 0o777, 0o640);
}
