//! Extended attributes: names, sizes, flags, and their visibility to users.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use brindle_tests::area::Area;
use brindle_tests::users::{ANN, BOB, run_as};
use brindle_tests::{bytes, fails};
use rustix::fs::{
    Mode, XattrFlags, fgetxattr, fsetxattr, getxattr, lgetxattr, listxattr, lsetxattr, removexattr, setxattr,
};
use rustix::io::Errno;

fn set(path: &Path, name: &str, value: &[u8]) -> rustix::io::Result<()> {
    setxattr(path, name, value, XattrFlags::empty())
}

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; 65_536];
    let len = getxattr(path, name, &mut buf[..])?;
    buf.truncate(len);
    Ok(buf)
}

/// The names, sorted, without those of the machine's own security module.
fn list(path: &Path) -> Vec<String> {
    let mut buf = vec![0u8; 65_536];
    let len = listxattr(path, &mut buf[..]).unwrap();
    let names = buf[..len].split(|b| *b == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> = names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    names.retain(|name| name != "security.selinux");
    names.sort();
    names
}

#[test]
fn values_of_all_sizes_in_all_name_spaces() {
    let area = Area::new();
    let (file, dir) = (area.file("f", ""), area.dir("d", 0o755));
    for path in [&file, &dir] {
        for (n, space) in ["user", "trusted", "security"].iter().enumerate() {
            for len in [0, 1, 100, 1000] {
                let name = format!("{space}.v{len}");
                set(path, &name, &bytes(n as u64 + len, len as usize)).unwrap();
                assert_eq!(get(path, &name).unwrap(), bytes(n as u64 + len, len as usize), "{name}");
            }
            for len in [0, 1, 100, 1000] {
                removexattr(path, format!("{space}.v{len}")).unwrap();
            }
        }
        assert_eq!(list(path), Vec::<String>::new());
    }
    set(&file, "user.large", &bytes(1, 3000)).unwrap();
    set(&file, "user.large", &bytes(2, 2000)).unwrap();
    assert_eq!(get(&file, "user.large").unwrap(), bytes(2, 2000));
}

#[test]
fn flags_and_missing_names() {
    let area = Area::new();
    let path = area.file("f", "");
    assert_eq!(fails(get(&path, "user.a")), Errno::NODATA);
    assert_eq!(fails(removexattr(&path, "user.a")), Errno::NODATA);
    assert_eq!(fails(setxattr(&path, "user.a", b"1", XattrFlags::REPLACE)), Errno::NODATA);
    setxattr(&path, "user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(fails(setxattr(&path, "user.a", b"2", XattrFlags::CREATE)), Errno::EXIST);
    setxattr(&path, "user.a", b"3", XattrFlags::REPLACE).unwrap();
    assert_eq!(get(&path, "user.a").unwrap(), b"3");
    assert_eq!(fails(set(&path, "nospace.a", b"")), Errno::OPNOTSUPP);
    assert_eq!(fails(set(&path, "plain", b"")), Errno::OPNOTSUPP);
    assert_eq!(fails(set(&path, "user.", b"")), Errno::INVAL);
    assert_eq!(fails(set(&area.at("missing"), "user.a", b"")), Errno::NOENT);
}

#[test]
fn limits_of_names_and_values() {
    let area = Area::new();
    let path = area.file("f", "");
    let name = |len: usize| format!("user.{}", "n".repeat(len - 5));
    set(&path, &name(255), b"long").unwrap();
    assert_eq!(get(&path, &name(255)).unwrap(), b"long");
    assert_eq!(list(&path), [name(255)]);
    assert_eq!(fails(set(&path, &name(256), b"")), Errno::RANGE);
    assert_eq!(fails(set(&path, "user.v", &vec![0; 65_537])), Errno::TOOBIG);
}

#[test]
fn buffers_that_are_too_small() {
    let area = Area::new();
    let path = area.file("f", "");
    set(&path, "user.abc", b"0123456789").unwrap();
    let mut nine = [0u8; 9];
    assert_eq!(fails(getxattr(&path, "user.abc", &mut nine[..])), Errno::RANGE);
    assert_eq!(rustix::fs::getxattr_query(&path, "user.abc").unwrap(), 10);
    let mut four = [0u8; 4];
    assert_eq!(fails(listxattr(&path, &mut four[..])), Errno::RANGE);
    assert!(rustix::fs::listxattr_query(&path).unwrap() >= 9);
}

#[test]
fn many_names_come_and_go() {
    let area = Area::new();
    let path = area.file("f", "content");
    for n in 0..60 {
        set(&path, &format!("user.name{n:02}"), &bytes(n, 20)).unwrap();
    }
    for n in (0..60).step_by(2) {
        removexattr(&path, format!("user.name{n:02}")).unwrap();
    }
    let wanted: Vec<String> = (0..60).filter(|n| n % 2 == 1).map(|n| format!("user.name{n:02}")).collect();
    assert_eq!(list(&path), wanted);
    for n in (1..60).step_by(2) {
        assert_eq!(get(&path, &format!("user.name{n:02}")).unwrap(), bytes(n, 20));
    }
    assert_eq!(fs::read(&path).unwrap(), b"content");
}

#[test]
fn attributes_belong_to_the_inode() {
    let area = Area::new();
    let path = area.file("f", "");
    set(&path, "user.a", b"1").unwrap();
    fs::hard_link(&path, area.at("g")).unwrap();
    assert_eq!(get(&area.at("g"), "user.a").unwrap(), b"1");
    fs::rename(&path, area.at("h")).unwrap();
    let file = File::open(area.at("h")).unwrap();
    fs::remove_file(area.at("h")).unwrap();
    fs::remove_file(area.at("g")).unwrap();
    let mut one = [0u8; 1];
    assert_eq!(fgetxattr(&file, "user.a", &mut one[..]).unwrap(), 1);
    fsetxattr(&file, "user.b", b"22", XattrFlags::empty()).unwrap();
    area.file("h", "");
    assert_eq!(fails(get(&area.at("h"), "user.a")), Errno::NODATA);
}

#[test]
fn who_may_see_and_set() {
    let area = Area::new();
    let path = area.file("f", "");
    chown(&path, Some(ANN.uid), None).unwrap();
    set(&path, "user.a", b"1").unwrap();
    set(&path, "trusted.t", b"1").unwrap();
    set(&path, "security.s", b"1").unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    run_as(ANN, || {
        assert_eq!(list(&path), ["security.s", "user.a"], "trusted names are for root");
        assert_eq!(fails(get(&path, "trusted.t")), Errno::NODATA);
        assert_eq!(fails(set(&path, "trusted.t", b"2")), Errno::PERM);
        assert_eq!(get(&path, "security.s").unwrap(), b"1");
        assert_eq!(fails(set(&path, "security.s", b"2")), Errno::PERM);
        set(&path, "user.a", b"2").unwrap();
    });
    run_as(BOB, || {
        assert_eq!(fails(get(&path, "user.a")), Errno::ACCESS);
        assert_eq!(fails(set(&path, "user.a", b"2")), Errno::ACCESS);
    });
    let sticky = area.dir("sticky", 0o1777);
    run_as(BOB, || assert_eq!(fails(set(&sticky, "user.a", b"1")), Errno::PERM));
    fs::set_permissions(&sticky, PermissionsExt::from_mode(0o777)).unwrap();
    run_as(BOB, || set(&sticky, "user.a", b"1").unwrap());
}

#[test]
fn user_names_are_for_files_and_directories() {
    let area = Area::new();
    area.file("f", "");
    symlink("f", area.at("link")).unwrap();
    let fifo = area.at("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    let empty = XattrFlags::empty();
    assert_eq!(fails(lsetxattr(area.at("link"), "user.a", b"1", empty)), Errno::PERM);
    assert_eq!(fails(set(&fifo, "user.a", b"1")), Errno::PERM);
    lsetxattr(area.at("link"), "trusted.a", b"1", empty).unwrap();
    lsetxattr(&fifo, "trusted.a", b"1", empty).unwrap();
    let mut one = [0u8; 1];
    assert_eq!(lgetxattr(area.at("link"), "trusted.a", &mut one[..]).unwrap(), 1);
    assert_eq!(fails(get(&area.at("f"), "trusted.a")), Errno::NODATA);
    set(&area.at("link"), "user.through", b"1").unwrap();
    assert_eq!(list(&area.at("f")), ["user.through"]);
}

/// A thread that has just been told that there is none asks again by descriptor, after another one has set it. (Of a name
/// for which the kernel checks no permission of the file: that would ask the servers meanwhile.)
#[test]
fn an_attribute_that_another_thread_has_set_is_there() {
    let area = Area::new();
    for round in 0..20 {
        let path = area.file(&format!("f{round}"), "");
        let file = File::open(&path).unwrap();
        assert_eq!(fails(get(&path, "trusted.x")), Errno::NODATA);
        let other = path.clone();
        std::thread::spawn(move || set(&other, "trusted.x", b"set").unwrap()).join().unwrap();
        let mut value = [0; 10];
        assert_eq!(fgetxattr(&file, "trusted.x", &mut value), Ok(3), "in round {round}");
    }
}
