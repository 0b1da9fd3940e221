use std::os::unix::fs::symlink;

use brindle_bb::Place;

use super::*;

fn work(root: &Path, stages_in: bool, transfers: &[(Entry, &Path, &str)]) -> CopyWork {
    let transfer = |(entry, outside, inside): &(Entry, &Path, &str)| {
        let (outside, inside) = (outside.display().to_string(), (*inside).to_owned());
        (Transfer { entry: *entry, outside, place: Place::Striped, inside }, root.to_owned())
    };
    CopyWork { uid: 1, gid: 1, stages_in, transfers: transfers.iter().map(transfer).collect() }
}

fn copied(work: &CopyWork) -> Result<CopyOutcome> {
    copy_all(work, Path::new("/nowhere"))
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
    // Another directive makes another copy.
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
    // The same out of the buffer, where a list says nothing of other places.
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
