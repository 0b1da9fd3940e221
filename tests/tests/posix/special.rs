//! Pipes, sockets, devices, programs, and the file system as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use brindle_tests::area::Area;
use brindle_tests::child::{Child, no_copies, output};
use brindle_tests::fails;
use brindle_tests::users::{ANN, BOB};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat, statvfs};
use rustix::io::Errno;

fn mknod(path: &Path, kind: FileType, device: u64) -> rustix::io::Result<()> {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), device)
}

#[test]
fn a_pipe_with_a_name() {
    let area = Area::new();
    let path = area.at("fifo");
    mknod(&path, FileType::Fifo, 0).unwrap();
    let nonblocking = |write: bool| {
        let mut options = OpenOptions::new();
        options.read(!write).write(write).custom_flags(libc::O_NONBLOCK).open(&path)
    };
    assert_eq!(fails(nonblocking(true)), Errno::NXIO);
    let mut reader = nonblocking(false).unwrap();
    let inside = path.clone();
    Child::start(move |_| OpenOptions::new().write(true).open(&inside)?.write_all(b"through the pipe")).ok();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "through the pipe");
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(fails(mknod(&path, FileType::Fifo, 0)), Errno::EXIST);
}

#[test]
fn a_socket_with_a_name() {
    let area = Area::new();
    // Short paths: the address of a socket holds 107 bytes.
    let path = area.at("s");
    let _guard = no_copies();
    let listener = UnixListener::bind(&path).unwrap();
    assert!(fs::metadata(&path).unwrap().file_type().is_socket());
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"ping").unwrap();
    let mut four = [0; 4];
    listener.accept().unwrap().0.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"ping");
    assert_eq!(fails(UnixListener::bind(&path)), Errno::ADDRINUSE);
    assert_eq!(fails(File::open(&path)), Errno::NXIO);
    drop(listener);
    assert_eq!(fails(UnixStream::connect(&path)), Errno::CONNREFUSED);
}

#[test]
fn devices_work_and_keep_their_numbers() {
    let area = Area::new();
    let zero = area.at("zero");
    mknod(&zero, FileType::CharacterDevice, makedev(1, 5)).unwrap();
    let mut four = [1; 4];
    File::open(&zero).unwrap().read_exact(&mut four).unwrap();
    assert_eq!(four, [0; 4]);
    for (major, minor) in [(0, 0), (7, 200), (259, 70_000), (4095, 1_048_575)] {
        let path = area.at(format!("b{major}-{minor}"));
        mknod(&path, FileType::BlockDevice, makedev(major, minor)).unwrap();
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(found.file_type().is_block_device());
        assert_eq!(found.rdev(), makedev(major, minor));
    }
    mknod(&area.at("plain"), FileType::RegularFile, 0).unwrap();
    assert_eq!(fs::read(area.at("plain")).unwrap(), b"");
}

/// Copies a program of the machine and makes it executable.
fn program(area: &Area, from: &str, mode: u32) -> std::path::PathBuf {
    let path = area.file("program", fs::read(from).unwrap());
    fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    path
}

#[test]
fn a_copied_program_runs() {
    let area = Area::new();
    let path = program(&area, "/bin/echo", 0o755);
    let out = output(Command::new(&path).arg("hello")).unwrap();
    assert_eq!(out.stdout, b"hello\n");
    let script = area.file("script", "#!/bin/sh\necho script $1\n");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(output(Command::new(&script).arg("x")).unwrap().stdout, b"script x\n");
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(fails(output(&mut Command::new(&path))), Errno::TXTBSY);
    drop(writer);
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(fails(output(&mut Command::new(&path))), Errno::ACCESS);
}

#[test]
fn a_setuid_program_runs_as_its_owner() {
    let area = Area::new();
    let path = program(&area, "/usr/bin/id", 0o755);
    chown(&path, Some(ANN.uid), Some(ANN.gid)).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4755)).unwrap();
    let mut command = Command::new(&path);
    std::os::unix::process::CommandExt::uid(&mut command, BOB.uid);
    let out = output(command.arg("-u")).unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), ANN.uid.to_string());
}

#[test]
fn the_file_system_describes_itself() {
    let area = Area::new();
    let found = statvfs(area.root()).unwrap();
    assert_eq!(found.f_namemax, 255);
    assert!(found.f_bsize >= 512 && found.f_frsize >= 512);
    assert!(found.f_blocks > 0 && found.f_bfree <= found.f_blocks && found.f_bavail <= found.f_bfree);
    assert!(found.f_files > 0 && found.f_ffree <= found.f_files);
}

#[test]
fn a_process_finds_where_it_is_after_a_rename() {
    let area = Area::new();
    let dir = area.dir("before", 0o755);
    fs::create_dir(dir.join("sub")).unwrap();
    let (inside, wanted) = (dir.join("sub"), area.at("after/sub"));
    let mut child = Child::start(move |link| {
        std::env::set_current_dir(&inside)?;
        link.say(1)?;
        link.hear()?;
        fs::write("here", "x")?;
        let found = std::env::current_dir()?;
        if found == wanted { Ok(()) } else { Err(std::io::Error::from_raw_os_error(libc::EPROTO)) }
    });
    child.hear();
    fs::rename(&dir, area.at("after")).unwrap();
    child.say(1);
    child.ok();
    assert!(area.at("after/sub/here").exists());
}

#[test]
fn a_process_in_a_removed_directory_is_nowhere() {
    let area = Area::new();
    let dir = area.dir("d", 0o755);
    let mut child = Child::start(move |link| {
        std::env::set_current_dir(&dir)?;
        link.say(1)?;
        link.hear()?;
        match (std::env::current_dir(), fs::write("x", "")) {
            (Err(a), Err(b)) if a.kind() == b.kind() => Err(b),
            _ => Ok(()),
        }
    });
    child.hear();
    fs::remove_dir(area.at("d")).unwrap();
    child.say(1);
    assert_eq!(child.end(), brindle_tests::child::Ending::Errno(libc::ENOENT));
}
