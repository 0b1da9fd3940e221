use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, symlink};

use brindle_bb::CopyEnd;

use super::partial::partial;
use super::*;

fn work(root: &Path, stages_in: bool, transfers: &[(Entry, &Path, &str)]) -> CopyWork {
    let transfer = |(entry, outside, inside): &(Entry, &Path, &str)| {
        let (outside, inside) = (outside.display().to_string(), (*inside).to_owned());
        (Transfer { entry: *entry, outside, place: CopyEnd::Striped, inside }, root.to_owned())
    };
    CopyWork {
        uid: 1,
        gid: 1,
        stages_in,
        serial: 1,
        buffers: vec![1; transfers.len()],
        transfers: transfers.iter().map(transfer).collect(),
    }
}

fn copied(work: &CopyWork) -> Result<CopyOutcome> {
    copy_all(work, Path::new("/nowhere"), &mut Share::alone())
}

#[test]
fn a_directory_keeps_modes_times_links_and_holes_and_a_second_copy_finds_it_done() {
    let dir = tempfile::tempdir().unwrap();
    let (home, root) = (dir.path().join("home"), dir.path().join("buffer"));
    std::fs::create_dir_all(home.join("sub/empty")).unwrap();
    std::fs::create_dir(&root).unwrap();
    std::fs::write(home.join("sub/a"), b"contents").unwrap();
    std::fs::set_permissions(home.join("sub/a"), std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink("a", home.join("sub/link")).unwrap();
    let sparse = File::create(home.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    rustix::fs::seek(&sparse, SeekFrom::Start(32 << 20)).unwrap();
    (&sparse).write_all(&[7; 4096]).unwrap();
    let work = work(&root, true, &[(Entry::Directory, &home, "in/data")]);
    let first = copied(&work).unwrap();
    assert_eq!((first.files, first.unchanged, first.skipped), (2, 0, 0));
    let to = root.join("in/data");
    assert_eq!(std::fs::read(to.join("sub/a")).unwrap(), b"contents");
    assert!(to.join("sub/empty").is_dir());
    assert_eq!(std::fs::read_link(to.join("sub/link")).unwrap(), Path::new("a"));
    let (old, new) = (home.join("sub/a").metadata().unwrap(), to.join("sub/a").metadata().unwrap());
    assert_eq!((new.mode(), new.mtime(), new.mtime_nsec()), (old.mode(), old.mtime(), old.mtime_nsec()));
    let holes = to.join("sparse").metadata().unwrap();
    assert!(holes.len() == 64 << 20 && holes.blocks() * 512 < 1 << 20, "{} blocks", holes.blocks());
    let second = copied(&work).unwrap();
    assert_eq!((second.files, second.unchanged), (0, 2));
    std::fs::write(home.join("sub/a"), b"changed!").unwrap();
    assert_eq!(copied(&work).unwrap().files, 1);
    assert_eq!(std::fs::read(to.join("sub/a")).unwrap(), b"changed!");
}

#[test]
fn what_is_missing_is_found_before_the_first_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (home, root) = (dir.path().join("home"), dir.path().join("buffer"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&root).unwrap();
    std::fs::write(home.join("a"), b"a").unwrap();
    let cases: [(Entry, PathBuf, &str, &str); 4] = [
        (Entry::File, home.join("gone"), "x", "No such file"),
        (Entry::File, home.clone(), "x", "it is no file"),
        (Entry::Directory, home.join("a"), "x", "it is no directory"),
        (Entry::File, home.join("a"), "out/x", "leads out of the buffer"),
    ];
    symlink(&home, root.join("out")).unwrap();
    for (entry, outside, inside, why) in cases {
        let work = work(&root, true, &[(Entry::File, &home.join("a"), "first"), (entry, &outside, inside)]);
        let fault = copied(&work).unwrap_err();
        assert!(fault.why.join(" ").contains(why), "{fault}");
        assert!(!root.join("first").exists(), "{fault}");
    }
    let out = work(&root, false, &[(Entry::File, &home.join("b"), "out/a")]);
    assert!(copied(&out).unwrap_err().why[0].contains("leads out of the buffer"));
}

#[test]
fn files_go_into_directories_and_replace_what_links_lead_to() {
    let dir = tempfile::tempdir().unwrap();
    let (home, root) = (dir.path().join("home"), dir.path().join("buffer"));
    std::fs::create_dir(&home).unwrap();
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("result"), b"new").unwrap();
    std::fs::write(home.join("old"), b"old").unwrap();
    symlink("old", home.join("latest")).unwrap();
    let slash = PathBuf::from(format!("{}/made/", home.display()));
    let work = work(
        &root,
        false,
        &[
            (Entry::File, &home, "result"),
            (Entry::File, &slash, "result"),
            (Entry::File, &home.join("latest"), "result"),
        ],
    );
    assert_eq!(copied(&work).unwrap().files, 3);
    assert_eq!(std::fs::read(home.join("result")).unwrap(), b"new");
    assert_eq!(std::fs::read(home.join("made/result")).unwrap(), b"new");
    assert_eq!(std::fs::read(home.join("old")).unwrap(), b"new");
    assert!(home.join("latest").is_symlink());
}

#[test]
fn hard_links_attributes_times_of_links_and_closed_directories_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (home, root) = (dir.path().join("home"), dir.path().join("buffer"));
    std::fs::create_dir_all(home.join("closed")).unwrap();
    std::fs::create_dir(&root).unwrap();
    std::fs::write(home.join("a"), b"contents").unwrap();
    std::fs::hard_link(home.join("a"), home.join("closed/b")).unwrap();
    symlink("a", home.join("link")).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set(&home.join("a"), "user.origin", b"here");
    set(&home.join("closed"), "user.kind", &[0, 255]);
    std::fs::set_permissions(home.join("a"), std::fs::Permissions::from_mode(0o444)).unwrap();
    std::fs::set_permissions(home.join("closed"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let work = work(&root, true, &[(Entry::Directory, &home, "in")]);
    let first = copied(&work).unwrap();
    assert_eq!((first.files, first.links, first.attributes_lost), (1, 1, 0));
    let to = root.join("in");
    let inode = |path: &str| to.join(path).metadata().unwrap().ino();
    assert_eq!(inode("a"), inode("closed/b"));
    let get = |path: &Path, name: &str| {
        let mut value = [0; 64];
        rustix::fs::getxattr(path, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    assert_eq!(get(&to.join("a"), "user.origin").unwrap(), b"here");
    assert_eq!(get(&to.join("closed"), "user.kind").unwrap(), [0, 255]);
    assert_eq!(to.join("closed").metadata().unwrap().mode() & MODE_BITS, 0o555);
    let time = |path: PathBuf| std::fs::symlink_metadata(path).map(|m| (m.mtime(), m.mtime_nsec())).unwrap();
    assert_eq!(time(to.join("link")), time(home.join("link")));
    // A changed directive makes another copy.
    let other =
        self::work(&root, true, &[(Entry::Directory, &home, "in"), (Entry::File, &home.join("a"), "b")]);
    assert_eq!(copied(&other).unwrap().files, 1);
    assert_ne!(inode("a"), root.join("b").metadata().unwrap().ino());
    // A second copy finds all of it, and one after a change of an attribute only brings that.
    let second = copied(&work).unwrap();
    assert_eq!((second.files, second.unchanged, second.links), (0, 1, 0));
    set(&home.join("a"), "user.origin", b"there");
    let third = copied(&work).unwrap();
    assert_eq!((third.files, third.links), (1, 1));
    assert_eq!(get(&to.join("closed/b"), "user.origin").unwrap(), b"there");
    assert_eq!(inode("a"), inode("closed/b"));
}

#[test]
fn a_list_names_files_and_directories() {
    let dir = tempfile::tempdir().unwrap();
    let (home, root) = (dir.path().join("home"), dir.path().join("buffer"));
    std::fs::create_dir_all(home.join("sub/deep")).unwrap();
    std::fs::create_dir(&root).unwrap();
    std::fs::write(home.join("sub/deep/a"), b"a").unwrap();
    std::fs::write(home.join("b c"), b"b").unwrap();
    let list = home.join("list");
    let work = |stages_in: bool, outside: &Path, inside: &str| {
        work(&root, stages_in, &[(Entry::List, outside, inside)])
    };
    let text = format!("# what the job needs\n\n./sub/deep\n{}\r\n", home.join("b c").display());
    std::fs::write(&list, text).unwrap();
    assert_eq!(copied(&work(true, &list, "in")).unwrap().files, 2);
    assert_eq!(std::fs::read(root.join("in/sub/deep/a")).unwrap(), b"a");
    assert_eq!(std::fs::read(root.join("in/b c")).unwrap(), b"b");
    // A list out of the buffer says nothing of other places, and works alike.
    std::fs::write(root.join("in/list"), "sub/deep/a\nb c\n").unwrap();
    let out = dir.path().join("out");
    assert_eq!(copied(&work(false, &out, "in/list")).unwrap().files, 2);
    assert_eq!(std::fs::read(out.join("sub/deep/a")).unwrap(), b"a");
    symlink(&home, root.join("in/away")).unwrap();
    let cases = [
        ("b c\ngone\n", "line 2 of the list"),
        ("../in/list\n", "line 1: '../in/list' names no entry"),
        ("/etc/hostname\n", "line 1: '/etc/hostname' is absolute"),
        ("b c\n./b c\n", "line 2: an earlier line is copied to"),
        ("away/b c\n", "leads out of the buffer"),
    ];
    for (text, why) in cases {
        std::fs::write(root.join("in/list"), text).unwrap();
        let fault = copied(&work(false, &dir.path().join("none"), "in/list")).unwrap_err();
        assert!(fault.why.join(" ").contains(why), "{text}: {fault}");
        assert!(!dir.path().join("none").exists(), "{fault}");
    }
}

#[test]
fn of_two_copies_to_one_name_at_once_the_file_is_always_one_of_them() {
    const LEN: usize = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("buffer");
    std::fs::create_dir(&root).unwrap();
    let sources = [b'a', b'b'].map(|byte| {
        let source = dir.path().join(format!("{}", byte as char));
        std::fs::write(&source, vec![byte; LEN]).unwrap();
        source
    });
    let root = &root;
    std::thread::scope(|threads| {
        for source in &sources {
            threads.spawn(move || {
                for _ in 0..3 {
                    copied(&work(root, true, &[(Entry::File, source, "x")])).unwrap();
                    let there = std::fs::read(root.join("x")).unwrap();
                    assert_eq!(there.len(), LEN);
                    assert!(there.iter().all(|byte| *byte == there[0]), "bytes of both");
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(root).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn what_a_killed_copy_has_left_is_used_again_and_what_another_holds_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (root, source) = (dir.path().join("buffer"), dir.path().join("a"));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(&source, b"contents").unwrap();
    let work = work(&root, true, &[(Entry::File, &source, "x")]);
    let usual = partial(&root.join("x"), "");
    std::fs::write(&usual, b"a longer half of something else").unwrap();
    copied(&work).unwrap();
    assert_eq!(std::fs::read(root.join("x")).unwrap(), b"contents");
    assert!(!usual.exists());
    let (other, path) = open_partial(&root.join("x")).unwrap();
    assert_eq!(path, usual);
    (&other).write_all(b"half").unwrap();
    std::fs::remove_file(root.join("x")).unwrap();
    copied(&work).unwrap();
    assert_eq!(std::fs::read(root.join("x")).unwrap(), b"contents");
    assert_eq!(std::fs::read(&usual).unwrap(), b"half");
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 2);
}

#[test]
fn links_below_the_destination_are_refused_and_nothing_is_written_through_them() {
    let dir = tempfile::tempdir().unwrap();
    let (home, root) = (dir.path().join("home"), dir.path().join("buffer"));
    let other = dir.path().join("other");
    std::fs::create_dir_all(root.join("out/sub")).unwrap();
    std::fs::write(root.join("out/sub/f"), b"contents").unwrap();
    std::fs::create_dir_all(&other).unwrap();
    std::fs::create_dir_all(home.join("real")).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o750)).unwrap();
    symlink(&other, home.join("real/sub")).unwrap();
    symlink("real", home.join("latest")).unwrap();
    let work = work(&root, false, &[(Entry::Directory, &home.join("latest"), "out")]);
    let fault = copied(&work).unwrap_err();
    assert_eq!(fault.why, ["it is a symbolic link, and links below the destination are not followed"]);
    assert_eq!(fault.subject, home.join("latest/sub").display().to_string());
    // Also where the link comes after everything was looked at.
    let mut copy = Copy::new(Share::alone());
    let fault = copy.directory(&root.join("out"), &home.join("latest"), true).unwrap_err();
    assert_eq!(fault.subject, home.join("latest/sub").display().to_string());
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
    assert_eq!(other.metadata().unwrap().mode() & MODE_BITS, 0o750);
    // The destination itself may be a link of the user's.
    std::fs::remove_file(home.join("real/sub")).unwrap();
    assert_eq!(copied(&work).unwrap().files, 1);
    assert_eq!(std::fs::read(home.join("real/sub/f")).unwrap(), b"contents");
}

#[test]
fn a_file_that_is_written_all_the_time_is_not_called_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (source, root) = (dir.path().join("growing"), dir.path().join("buffer"));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(&source, vec![7; 64 << 20]).unwrap();
    let ends = std::sync::atomic::AtomicBool::new(false);
    let work = work(&root, true, &[(Entry::File, &source, "x")]);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut growing = OpenOptions::new().append(true).open(&source).unwrap();
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                growing.write_all(b"more").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let ended = copied(&work);
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        let fault = ended.unwrap_err();
        assert_eq!(fault.code, Code::StageFailed);
        assert_eq!(fault.subject, source.display().to_string());
        assert_eq!(fault.why, ["it was written each of the 3 times while it was copied"]);
    });
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "no half of it is left");
    // Once nobody writes it, it is copied.
    assert_eq!(copied(&work).unwrap().files, 1);
    assert_eq!(std::fs::read(root.join("x")).unwrap(), std::fs::read(&source).unwrap());
}

#[test]
fn a_source_that_has_changed_since_it_was_looked_at_is_known_by_its_length_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::write(&path, b"contents").unwrap();
    let source = File::open(&path).unwrap();
    let before = source.metadata().unwrap();
    assert!(!has_changed(&source, &before, &path).unwrap());
    // Times are as exact as the kernel's ticks: the next one has to come.
    let ctime = |of: &std::fs::Metadata| (of.ctime(), of.ctime_nsec());
    while ctime(&source.metadata().unwrap()) == ctime(&before) {
        std::fs::write(&path, b"CONTENTS").unwrap();
    }
    let now = source.metadata().unwrap();
    let times = std::fs::FileTimes::new().set_modified(before.modified().unwrap());
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    assert!(has_changed(&source, &before, &path).unwrap(), "{now:?}");
}

/// Does something as an ordinary user: root opens everything.
fn as_user(work: impl FnOnce() + Send) {
    const USER: u32 = 1001;
    std::thread::scope(|threads| {
        let thread = threads.spawn(move || {
            if rustix::process::geteuid().is_root() {
                // For this thread only. The rights of root over files go with it.
                rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(USER)).unwrap();
            }
            work();
        });
        thread.join().unwrap();
    });
}

#[test]
fn what_holds_the_destination_need_not_be_open_to_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let (home, outer) = (dir.path().join("home"), dir.path().join("outer"));
    let (root, dropbox) = (outer.join("global"), dir.path().join("dropbox"));
    std::fs::create_dir_all(home.join("sub")).unwrap();
    std::fs::write(home.join("sub/a"), b"contents").unwrap();
    std::fs::create_dir_all(&root).unwrap();
    std::fs::create_dir(&dropbox).unwrap();
    for path in [dir.path(), &home, &home.join("sub")] {
        set(path, 0o755);
    }
    set(&home.join("sub/a"), 0o644);
    set(&root, 0o777);
    // Of another user's: 0o711; here nobody may read them.
    set(&outer, 0o111);
    set(&dropbox, 0o333);
    as_user(|| {
        assert!(File::open(&outer).is_err() && File::open(&dropbox).is_err());
        let all = work(&root, true, &[(Entry::Directory, &home, "")]);
        assert_eq!(copied(&all).unwrap().files, 1);
        assert_eq!(std::fs::read(root.join("sub/a")).unwrap(), b"contents");
        let out = work(
            &root,
            false,
            &[(Entry::Directory, &dropbox.join("made"), "sub"), (Entry::File, &dropbox.join("b"), "sub/a")],
        );
        assert_eq!(copied(&out).unwrap().files, 2);
        assert_eq!(std::fs::read(dropbox.join("b")).unwrap(), b"contents");
    });
    set(&outer, 0o755);
    set(&dropbox, 0o755);
}
