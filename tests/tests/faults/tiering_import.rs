//! Disaster recovery from an archive: files are archived, the cluster is destroyed, and a new one makes the files again from the archive
//! alone, with every byte, owner, mode, time, extended attribute, hard link and layout. The archive is a directory, a bucket, or the work
//! of another tool.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use brindle_tests::cluster::{Cluster, Options};
use brindle_tests::s3::{SECRET_KEY, Server};
use brindle_tests::users::{ANN, BOB};
use brindle_tests::{bytes, same_bytes};
use serde_json::Value;

use crate::dice::seed;
use crate::tiering::{ARCHIVED, Agent, FAST, RELEASED, archive, make_files, state, text, wait};

/// Properties of an entry that the archive has to bring back.
#[derive(Debug, PartialEq, Eq)]
struct EntryProperties {
    is_dir: bool,
    len: u64,
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    /// Links of a file.
    links: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user.") || name.starts_with(b"system."));
    let read = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        (name.to_vec(), value[..len].to_vec())
    };
    names.map(read).collect()
}

/// All entries below a directory, by path.
fn look(dir: &Path) -> BTreeMap<PathBuf, EntryProperties> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            let kept = EntryProperties {
                is_dir: meta.is_dir(),
                len: if meta.is_dir() { 0 } else { meta.len() },
                mode: meta.mode() & 0o7777,
                owner: (meta.uid(), meta.gid()),
                mtime: (meta.mtime(), meta.mtime_nsec()),
                links: if meta.is_dir() { 0 } else { meta.nlink() },
                xattrs: xattrs(&path),
            };
            if meta.is_dir() {
                dirs.push(path.clone());
            }
            all.insert(path.strip_prefix(dir).unwrap().to_owned(), kept);
        }
    }
    all
}

/// An ACL that lets Bob read: version 2, then tag, permissions and number of each entry.
fn acl() -> Vec<u8> {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, bits, id) in [(1_u16, 6_u16, none), (2, 4, BOB.uid), (4, 4, none), (16, 4, none), (32, 0, none)]
    {
        acl.extend(tag.to_le_bytes());
        acl.extend(bits.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

fn set_mtime(path: &Path, secs: u64, nanos: u32) {
    let at = std::time::UNIX_EPOCH + std::time::Duration::new(secs, nanos);
    let times = fs::FileTimes::new().set_modified(at).set_accessed(at);
    fs::File::open(path).unwrap().set_times(times).unwrap();
}

/// A tree with everything that a manifest tells of, all of it archived. The bytes of its files, by path in it.
fn make_tree(cluster: &Cluster) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = cluster.a().to_owned();
    let run = root.join("project/run 1");
    fs::create_dir_all(&run).unwrap();
    let mut contents: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for (path, data) in make_files(&run) {
        contents.insert(path.strip_prefix(&root).unwrap().to_owned(), data);
    }
    for (name, data) in
        [("project/f \u{fc}", "a name with a letter that is not ASCII"), ("project/empty", "")]
    {
        let path = PathBuf::from(name);
        fs::write(root.join(&path), data).unwrap();
        contents.insert(path, data.as_bytes().to_vec());
    }
    let wide = root.join("project/wide");
    cluster.lfs(&["setstripe", "-c", "2", "-S", "128k", text(&wide)]);
    fs::write(&wide, bytes(3, 3 << 20)).unwrap();
    contents.insert("project/wide".into(), bytes(3, 3 << 20));
    let odd = run.join("odd");
    fs::create_dir(root.join("links")).unwrap();
    fs::hard_link(&odd, root.join("links/odd too")).unwrap();
    contents.insert("links/odd too".into(), contents[Path::new("project/run 1/odd")].clone());
    std::os::unix::fs::chown(&odd, Some(ANN.uid), Some(ANN.gid)).unwrap();
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o4751)).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set(&odd, "user.origin", b"a telescope\0\xff");
    set(&run.join("small"), "system.posix_acl_access", &acl());
    set(&root.join("project"), "system.posix_acl_default", &acl());
    set(&root.join("project"), "user.project", b"stars");
    for path in contents.keys() {
        set_mtime(&root.join(path), 1_200_000_000, 123_456_789);
    }
    // All names of a file lie in an archive once it does.
    for path in contents.keys().filter(|path| !path.ends_with("odd too")) {
        archive(cluster, &root.join(path));
    }
    fs::set_permissions(&run, fs::Permissions::from_mode(0o2750)).unwrap();
    std::os::unix::fs::chown(&run, Some(ANN.uid), Some(ANN.gid)).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o2750)).unwrap();
    set_mtime(&run, 1_100_000_000, 7);
    // The manifest of the last copy has the later changes of the directories.
    let last = run.join("last");
    fs::write(&last, "last").unwrap();
    set_mtime(&last, 1_200_000_000, 5);
    set_mtime(&run, 1_100_000_000, 7);
    contents.insert("project/run 1/last".into(), b"last".to_vec());
    archive(cluster, &last);
    contents
}

fn import(cluster: &Cluster, more: &[String], flags: &[&str]) -> (bool, Value) {
    let mut words = vec!["hsm".to_owned(), "import".to_owned(), "-o".to_owned(), "json".to_owned()];
    words.extend(more.iter().cloned());
    words.extend(flags.iter().map(|flag| (*flag).to_owned()));
    words.push(text(cluster.a()).to_owned());
    let out = cluster.brindle(&words);
    let view = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out}"));
    (out.ok(), view)
}

fn refused(cluster: &Cluster, more: &[&str], why: &str) {
    let words = [&["hsm", "import"], more, &[text(cluster.a())]].concat();
    let out = cluster.brindle(&words);
    assert!(!out.ok() && out.text.contains(why), "{why}: {out}");
}

fn count(view: &Value, name: &str) -> u64 {
    view[name].as_u64().unwrap_or_else(|| panic!("{name} in {view}"))
}

/// Imports into a new cluster, and compares.
fn import_all(
    cluster: &Cluster,
    arguments: &[String],
    before: &BTreeMap<PathBuf, EntryProperties>,
    contents: &BTreeMap<PathBuf, Vec<u8>>,
) {
    let files = contents.len() as u64 - 1;
    let (ok, would) = import(cluster, arguments, &["--dry-run"]);
    assert!(ok && count(&would, "files") == files && count(&would, "directories") == 3, "{would}");
    assert!(!cluster.a().join("project").exists(), "nothing was made");
    let (ok, view) = import(cluster, arguments, &[]);
    assert!(ok, "{view}");
    assert_eq!(
        (count(&view, "files"), count(&view, "links"), count(&view, "failed")),
        (files, 1, 0),
        "{view}"
    );
    let after = look(cluster.b());
    for (path, kept) in before {
        let found = after.get(path).unwrap_or_else(|| panic!("{} is not there", path.display()));
        // The times of directories are those of when a file in them was archived last.
        let kept_mtime = if kept.is_dir && !path.ends_with("run 1") { found.mtime } else { kept.mtime };
        assert_eq!(
            (found, found.mtime),
            (&EntryProperties { mtime: kept_mtime, xattrs: kept.xattrs.clone(), ..*kept }, kept_mtime),
            "{}",
            path.display()
        );
    }
    for (path, data) in contents {
        let there = cluster.a().join(path);
        let is_empty = data.is_empty();
        assert_eq!(state(cluster, &there), if is_empty { ARCHIVED } else { RELEASED }, "{}", path.display());
        assert_eq!(there.metadata().unwrap().blocks(), u64::from(!is_empty));
    }
    let striping = cluster.lfs(&["getstripe", "-c", text(&cluster.a().join("project/wide"))]);
    assert_eq!(striping.trim(), "2");
}

fn compare_bytes(cluster: &Cluster, contents: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, data) in contents {
        same_bytes(&fs::read(cluster.b().join(path)).unwrap(), data, &path.display().to_string());
    }
}

#[test]
fn a_destroyed_cluster_comes_back_from_its_directory() {
    seed("tiering_import");
    let outside = tempfile::tempdir().unwrap();
    let (old, new) = (outside.path().join("old"), outside.path().join("new"));
    fs::create_dir_all(&old).unwrap();
    fs::create_dir_all(&new).unwrap();
    let backend = |dir: &Path| format!("--backend=posix:{}", dir.display());
    let options = Options { osts: 2, ..Options::default() };
    let first = Cluster::up("tiering_import", &options);
    let agent = Agent::start_with(&first, FAST, &[backend(&old)]);
    let contents = make_tree(&first);
    let before = look(first.a());
    drop(agent);
    drop(first);
    let second = Cluster::up("tiering_import_new", &options);
    // The new file gets an inode number that a file of the first cluster had.
    fs::write(second.a().join("mine"), "mine").unwrap();
    let arguments = [backend(&new), format!("--from=posix:{}", old.display())];
    import_all(&second, &arguments, &before, &contents);
    // A name that an interruption has kept from its file comes with the next import.
    fs::remove_file(second.a().join("links/odd too")).unwrap();
    let (ok, view) = import(&second, &arguments, &["--skip-existing"]);
    assert!(ok && count(&view, "files") == 0 && count(&view, "links") == 1, "{view}");
    let _agent = Agent::start_with(&second, FAST, &[backend(&new)]);
    compare_bytes(&second, &contents);
    // A second time nothing is touched; going on is no failure.
    let (ok, again) = import(&second, &arguments, &[]);
    assert!(!ok && count(&again, "files") == 0 && count(&again, "existing") > 0, "{again}");
    let (ok, again) = import(&second, &arguments, &["--skip-existing"]);
    assert!(ok && again["problems"][0]["code"] == "E3002", "{again}");
    refusals(&second, &old, &new);
    // A file removed by mistake comes back from the archive of its own file system.
    let odd = second.a().join("project/run 1/odd");
    fs::remove_file(&odd).unwrap();
    fs::remove_file(second.a().join("links/odd too")).unwrap();
    let (ok, back) = import(&second, &[backend(&new)], &["--skip-existing"]);
    assert!(ok && count(&back, "files") == 1, "{back}");
    same_bytes(&fs::read(&odd).unwrap(), &contents[Path::new("project/run 1/odd")], "what was removed");
    second.assert_sound();
}

/// Files that cannot be imported are named, with the reason.
fn refusals(cluster: &Cluster, old: &Path, new: &Path) {
    let backend = format!("--backend=posix:{}", new.display());
    let from = |dir: &Path| format!("--from=posix:{}", dir.display());
    refused(cluster, &[&backend, "--from=s3://arch"], "is a directory");
    refused(cluster, &[&backend, &from(new.parent().unwrap())], "E6030");
    refused(cluster, &[&backend, &from(Path::new("/proc"))], "another file system");
    let in_place = format!("--backend=posix:{}", old.display());
    let (ok, view) = import(cluster, &[in_place], &["--into=/in place"]);
    assert!(!ok && count(&view, "files") == 0, "{view}");
    assert!(view["problems"][0]["message"].as_str().unwrap().contains("of another file system"), "{view}");
    // A manifest that is damaged, one that is gone, and bytes that are gone.
    let find = |name: &str| fs::canonicalize(old.join("shadow/project").join(name)).unwrap();
    let manifest = |name: &str| {
        let (dir, fid) = (find(name).parent().unwrap().to_owned(), find(name));
        let fid = fid.file_name().unwrap().to_str().unwrap().to_owned();
        let mut names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        names
            .find(|path| {
                path.to_str().unwrap().contains(&format!("{fid}.v"))
                    && path.extension().is_some_and(|e| e == "json")
            })
            .unwrap()
    };
    fs::write(manifest("wide"), "{\"version\": 1, ").unwrap();
    fs::remove_file(find("run 1/small")).unwrap();
    let (ok, view) = import(cluster, &[backend, from(old)], &["--into=/again"]);
    assert!(!ok && count(&view, "failed") == 2, "{view}");
    let problems = view["problems"].as_array().unwrap();
    let named = |code: &str, name: &str| {
        problems.iter().any(|p| p["code"] == code && p["message"].as_str().unwrap().contains(name))
    };
    assert!(named("E6031", manifest("wide").to_str().unwrap()) && named("E6005", "small"), "{view}");
    same_bytes(
        &fs::read(cluster.a().join("again/project/run 1/last")).unwrap(),
        b"last",
        "the others are there",
    );
}

#[test]
fn a_destroyed_cluster_comes_back_from_its_bucket() {
    seed("tiering_import_s3");
    let outside = tempfile::tempdir().unwrap();
    let server = Server::start(&outside.path().join("s3"));
    let arguments = server.arguments(&server.credentials("keys", SECRET_KEY));
    let options = Options { osts: 2, ..Options::default() };
    let first = Cluster::up("tiering_import_s3", &options);
    let agent = Agent::start_with(&first, FAST, &arguments);
    let mut contents = make_tree(&first);
    // A name that another file had: the one that was archived later has it.
    let reused = first.a().join("links/reused");
    for text in ["the first of this name", "the second"] {
        let _ = fs::remove_file(&reused);
        fs::write(&reused, text).unwrap();
        archive(&first, &reused);
    }
    contents.insert("links/reused".into(), b"the second".to_vec());
    let before = look(first.a());
    drop(agent);
    drop(first);
    let old_keys = server.keys();
    let second = Cluster::up("tiering_import_s3_new", &options);
    fs::write(second.a().join("mine"), "mine").unwrap();
    import_all(&second, &arguments, &before, &contents);
    assert!(old_keys.iter().all(|key| server.keys().contains(key)), "nothing of the first one's goes");
    let marks = server.keys().iter().filter(|key| key.contains(".data.ref.")).count();
    assert!(marks >= contents.len() - 1, "agents of the first one leave what is marked: {marks}");
    let agent = Agent::start_with(&second, FAST, &arguments);
    compare_bytes(&second, &contents);
    // New contents lie where those of every file do, and only the manifest of the import goes.
    let odd = second.a().join("project/run 1/odd");
    fs::write(&odd, "new").unwrap();
    archive(&second, &odd);
    wait("its bytes lie at their own key", || {
        server.keys().iter().any(|key| key.ends_with(".data") && !old_keys.contains(key))
    });
    assert!(old_keys.iter().all(|key| server.keys().contains(key)));
    drop(agent);
    refused(&second, &strs(&arguments, &["--from=none.0123456789abcdef"]), "E6030");
    let damaged = old_keys.iter().find(|key| key.ends_with(".json")).unwrap();
    server.put(damaged, b"{\"version\": 7}");
    let own: Vec<String> = old_keys[0].split('/').map(str::to_owned).collect();
    let from = format!("--from={}", own[1]);
    let (ok, view) = import(&second, &arguments, &[&from, "--into=/again"]);
    assert!(!ok && count(&view, "failed") == 1, "{view}");
    assert!(view["problems"][0]["message"].as_str().unwrap().contains(damaged.as_str()), "{view}");
    second.assert_sound();
}

fn strs<'a>(words: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    words.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

/// A copy as `lhsmtool_posix` has it: owner, mode, times and extended attributes of its file, a link with the path, and the striping beside.
fn put_copy(root: &Path, dir: &str, oid: u32, path: &str, data: &[u8]) {
    let copy = root.join(dir).join(format!("0x200000401:{oid:#x}:0x0"));
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    fs::write(&copy, data).unwrap();
    fs::write(copy.with_extension("lov"), "striping").unwrap();
    std::os::unix::fs::chown(&copy, Some(ANN.uid), Some(BOB.gid)).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o640)).unwrap();
    set_mtime(&copy, 1_000_000_000, 55);
    let link = root.join("shadow").join(path);
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    let up = "../".repeat(path.split('/').count());
    symlink(format!("{up}{dir}/{}", copy.file_name().unwrap().to_str().unwrap()), link).unwrap();
}

#[test]
fn archives_of_lustres_tool_are_imported_by_their_links() {
    seed("tiering_import_tool");
    let outside = tempfile::tempdir().unwrap();
    let new = outside.path().join("new");
    let (v1, v2) = (outside.path().join("v1"), new.join("v2"));
    fs::create_dir_all(&new).unwrap();
    let data = bytes(11, 100_000);
    put_copy(&v1, "0001/0000/0401/0000/0002/0000", 1, "home/ann/f", &data);
    put_copy(&v1, "0002/0000/0401/0000/0002/0000", 2, "home/ann/g", b"g");
    put_copy(&v2, "0402", 3, "home/bob/h", &data);
    fs::set_permissions(v1.join("shadow/home/ann"), fs::Permissions::from_mode(0o750)).unwrap();
    let cluster = Cluster::up("tiering_import_tool", &Options { osts: 2, ..Options::default() });
    let backend = format!("--backend=posix:{}", new.display());
    let from = format!("--from=posix:{}", v1.display());
    let (ok, view) = import(&cluster, &[backend.clone(), from], &["--checksums", "--into=/old"]);
    assert!(ok && count(&view, "files") == 2 && count(&view, "directories") == 3, "{view}");
    let f = cluster.a().join("old/home/ann/f");
    let meta = f.metadata().unwrap();
    assert_eq!(
        (meta.len(), meta.mode() & 0o7777, meta.uid(), meta.gid()),
        (100_000, 0o640, ANN.uid, BOB.gid)
    );
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000_000, 55));
    assert_eq!(cluster.a().join("old/home/ann").metadata().unwrap().mode() & 0o7777, 0o750);
    assert_eq!(state(&cluster, &f), RELEASED);
    // The tool keeps the name of the tree below the archive.
    let root = format!("--hsm-root={}", new.display());
    let to = cluster.a().join("tool");
    let tool = |words: &[&str]| {
        cluster.brindle(&[&["lhsmtool_posix", &root, "--archive=1"], words, &[text(cluster.a())]].concat())
    };
    let done = tool(&["--dry-run", "--import", "v2/shadow", text(&to)]);
    assert!(done.ok() && done.text.contains("1 files") && !to.exists(), "{done}");
    let done = tool(&["--import", "v2/shadow", text(&to)]);
    assert!(done.ok(), "{done}");
    let done = tool(&["--import", "v2/shadow/home/bob/h", text(&cluster.a().join("one"))]);
    assert!(done.ok(), "{done}");
    let _agent = Agent::start_with(&cluster, FAST, &[backend]);
    for path in ["old/home/ann/f", "tool/v2/shadow/home/bob/h", "one"] {
        same_bytes(&fs::read(cluster.b().join(path)).unwrap(), &data, path);
    }
    let wrong = tool(&["--import", "/v2/shadow", text(&to)]);
    assert!(!wrong.ok() && wrong.text.contains("relative"), "{wrong}");
    cluster.assert_sound();
}

#[test]
fn a_tree_comes_back_at_once() {
    seed("tiering_tree");
    let cluster = Cluster::up("tiering_tree", &Options { osts: 2, archive: true, ..Options::default() });
    let dir = cluster.a().join("d/e");
    fs::create_dir_all(&dir).unwrap();
    let paths: Vec<PathBuf> = (0..40).map(|n| dir.join(format!("f{n}"))).collect();
    for (n, path) in paths.iter().enumerate() {
        fs::write(path, bytes(n as u64, 10_000)).unwrap();
    }
    let all: Vec<&str> = paths.iter().map(|path| text(path)).collect();
    cluster.lfs(&[&["hsm_archive"], &all[..]].concat());
    wait("all are archived", || paths.iter().all(|path| state(&cluster, path) == ARCHIVED));
    cluster.lfs(&[&["hsm_release"], &all[1..]].concat());
    let restore = |more: &[&str]| {
        let top = cluster.a().join("d");
        let out = cluster.brindle(&[&["hsm", "restore", "-r", "-o", "json"], more, &[text(&top)]].concat());
        let view: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out}"));
        (out.ok(), view)
    };
    let (ok, view) = restore(&["--pending=3"]);
    assert!(ok && count(&view, "restored") == 39 && count(&view, "restored_bytes") == 390_000, "{view}");
    assert!(paths.iter().all(|path| state(&cluster, path) == ARCHIVED));
    // A file whose copy is damaged is named, and the others come back.
    cluster.lfs(&[&["hsm_release"], &all[..]].concat());
    let copy = fs::canonicalize(cluster.archive().join("shadow/d/e/f7")).unwrap();
    let mut wrong = bytes(7, 10_000);
    wrong[5000] ^= 1;
    fs::write(copy, wrong).unwrap();
    let (ok, view) = restore(&[]);
    assert!(!ok && count(&view, "restored") == 39 && count(&view, "failed") == 1, "{view}");
    assert!(view["failures"][0]["path"].as_str().unwrap().ends_with("d/e/f7"), "{view}");
    assert_eq!(state(&cluster, &paths[7]), RELEASED);
    cluster.assert_sound();
}
