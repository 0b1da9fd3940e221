//! Commands of users without rights, and commands about files whose names are no UTF-8.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use brindle_tests::cluster::{Cluster, Options, binary};

/// A user without rights.
const USER: u32 = 1234;
/// The exit code of a denied command.
const DENIED: i32 = 4;

/// A copy of the binary that every user may run.
fn anybodys(cluster: &Cluster) -> PathBuf {
    let copy = cluster.outside().join("brindle");
    fs::copy(binary(), &copy).unwrap();
    for path in [cluster.outside(), &copy] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    copy
}

#[test]
fn an_ordinary_user_changes_nothing_of_the_file_system() {
    let cluster = Cluster::up("users", &Options { osts: 2, mounts: 1, ..Options::default() });
    let (program, a) = (anybodys(&cluster), cluster.a().display().to_string());
    let (mgs, mdt) = (cluster.process("mgs").socket(), "dev-MDT0000");
    let commands: &[&[&str]] = &[
        &["pool", "create", "qa", "0-1", "--path", &a],
        &["lctl", "set_param", "--mgs", &mgs, "obdfilter.*OST0001*.no_create=1"],
        &["target", "drain", "1", &a],
        &["target", "remove", "1", &a],
        &["changelog", "register", mdt, "--mgs", &mgs],
    ];
    for command in commands {
        let done = Command::new(&program).args(*command).uid(USER).gid(USER).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(DENIED), "{command:?}: {said}");
        assert!(said.contains("user 1234 is not root") && said.contains("nothing was changed"), "{said}");
    }
    let targets = cluster.brindle(&["target", "list", &a]).stdout;
    assert!(!targets.contains("draining") && targets.contains("OST0001"), "{targets}");
    assert!(cluster.brindle(&["pool", "list", "--path", &a]).stdout.contains("has no pools"));
    // Root may run the same command.
    assert!(cluster.brindle(commands[0]).ok());
}

/// Runs a command that has to succeed.
fn run(words: &[&OsStr]) -> Vec<u8> {
    let done: Output = Command::new(binary()).args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

#[test]
fn names_that_are_not_utf8_are_taken_and_printed_as_they_are() {
    let cluster = Cluster::up("names", &Options { osts: 2, ..Options::default() });
    let path = cluster.a().join(OsStr::from_bytes(b"caf\xe9 \xff.dat"));
    fs::write(&path, vec![1; 3_000_000]).unwrap();
    let (bytes, file) = (path.as_os_str().as_bytes(), path.as_os_str());
    let of = |words: &[&str]| {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).chain([file]).collect();
        run(&words)
    };
    let has_name = |out: &[u8]| out.windows(bytes.len()).any(|part| part == bytes);
    assert!(has_name(&of(&["lfs", "getstripe"])) && has_name(&of(&["stripe", "get"])));
    assert!(has_name(&of(&["stripe", "migrate", "-c", "2"])), "moved");
    assert!(has_name(&of(&["file", "du"])) && has_name(&of(&["lfs", "find"])));
    let fid = String::from_utf8(of(&["lfs", "path2fid"])).unwrap();
    let a = cluster.a().as_os_str();
    let found = run(&[OsStr::new("lfs"), OsStr::new("fid2path"), a, OsStr::new(fid.trim())]);
    assert_eq!(OsString::from(OsStr::from_bytes(found.trim_ascii_end())), file);
    let json: Vec<Vec<u8>> = [
        &["file", "fid", "-o", "json"][..],
        &["stripe", "get", "-o", "json"],
        &["file", "find", "-o", "json"],
    ]
    .iter()
    .map(|words| of(words))
    .collect();
    for document in json {
        let text = String::from_utf8(document).expect("JSON is text");
        assert!(text.contains("_bytes\":") && text.contains('\u{fffd}'), "{text}");
    }
}
