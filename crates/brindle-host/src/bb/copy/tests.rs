use std::os::unix::fs::symlink;

use super::*;

fn work(root: &Path, stages_in: bool, transfers: &[(Entry, &Path, &str)]) -> CopyWork {
    let transfer = |(entry, outside, inside): &(Entry, &Path, &str)| Transfer {
        entry: *entry,
        outside: outside.display().to_string(),
        inside: (*inside).to_owned(),
    };
    CopyWork {
        uid: 1,
        gid: 1,
        root: root.to_owned(),
        stages_in,
        transfers: transfers.iter().map(transfer).collect(),
    }
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
