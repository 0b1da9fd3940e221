//! Space on a real cluster: a target that fills up is told of long before it is full, an added OST is used at once, and
//! two file systems on one machine do not meet.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use brindle_tests::cluster::{Cluster, Options};

use crate::dice::seed;

/// Bytes written between two looks at the status.
const STEP_BYTES: usize = 4 << 20;
/// Far more steps than an OST of these tests has room for.
const STEPS_MAX: u64 = 64;
/// New files of each look.
const FILES: usize = 12;

fn status(cluster: &Cluster) -> serde_json::Value {
    let said = cluster.brindle(&["status", "-o", "json", "--dir", &cluster.dir().display().to_string()]);
    serde_json::from_str(&said.stdout).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// Codes of what the status says about an OST in one of its lists.
fn codes(status: &serde_json::Value, list: &str, ost: &str) -> Vec<String> {
    let faults = status["file_systems"][0][list].as_array().unwrap();
    let of_ost = faults.iter().filter(|f| f["subject"].as_str().unwrap().contains(ost));
    of_ost.map(|f| f["code"].as_str().unwrap().to_owned()).collect()
}

/// OSTs of new files in a directory, each named once.
fn osts_of_new_files(cluster: &Cluster, dir: &Path, run: &str) -> Vec<String> {
    let mut osts = Vec::new();
    for n in 0..FILES {
        let path = dir.join(format!("{run}-{n}"));
        std::fs::write(&path, vec![7; 64 << 10]).unwrap();
        osts.push(cluster.lfs(&["getstripe", "-i", &path.display().to_string()]).trim().to_owned());
    }
    osts.sort();
    osts.dedup();
    osts
}

fn dir_of_single_stripes(cluster: &Cluster) -> PathBuf {
    let dir = cluster.a().join("d");
    std::fs::create_dir(&dir).unwrap();
    cluster.lfs(&["setstripe", "-c", "1", &dir.display().to_string()]);
    dir
}

#[test]
fn an_ost_is_told_of_before_it_is_full_and_gets_nothing_new_above_the_mark() {
    seed("space-alarm");
    let options = Options { osts: 2, mounts: 1, ost_size: Some("128MiB"), ..Options::default() };
    let cluster = Cluster::up("space-alarm", &options);
    let dir = dir_of_single_stripes(&cluster);
    let path = cluster.a().join("filling");
    cluster.lfs(&["setstripe", "-c", "1", "-i", "0", &path.display().to_string()]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut warned_at = None;
    let mut above_at = None;
    for step in 0..STEPS_MAX {
        let bytes = vec![step as u8 + 1; STEP_BYTES];
        let full =
            file.write_all_at(&bytes, step * STEP_BYTES as u64).and_then(|()| file.sync_all()).is_err();
        let told = status(&cluster);
        let (warnings, problems) = (codes(&told, "warnings", "OST0000"), codes(&told, "problems", "OST0000"));
        if warnings.contains(&"E4012".to_owned()) {
            warned_at.get_or_insert(step);
            assert_eq!(told["healthy"], true, "a warning is no problem yet: {told}");
        }
        if problems.contains(&"E4011".to_owned()) || problems.contains(&"E4001".to_owned()) {
            above_at.get_or_insert(step);
            break;
        }
        assert!(!full, "it is full, and nobody was told: {told}");
        assert!(codes(&told, "warnings", "OST0001").is_empty(), "{told}");
    }
    let (warned_at, above_at) = (warned_at.expect("a warning"), above_at.expect("a problem"));
    assert!(warned_at + 2 < above_at, "warned at step {warned_at}, above the mark at step {above_at}");
    // The MDT asks for space every two seconds; whoever asks it with the map of now waits for nothing older.
    let since = std::time::Instant::now();
    while osts_of_new_files(&cluster, &dir, &format!("above-{}", since.elapsed().as_millis())) != ["1"] {
        assert!(since.elapsed().as_secs() < 15, "new files go to an OST above the high-water mark");
    }
    assert_eq!(osts_of_new_files(&cluster, &dir, "then"), ["1"]);
    drop(file);
    cluster.assert_sound();
}

#[test]
fn an_added_ost_is_used_at_once_and_stays() {
    seed("space-add");
    let cluster = Cluster::up("space-add", &Options { osts: 2, mounts: 1, ..Options::default() });
    let dir = dir_of_single_stripes(&cluster);
    assert_eq!(osts_of_new_files(&cluster, &dir, "before"), ["0", "1"]);
    let state = cluster.dir().display().to_string();
    let added = cluster.brindle(&["dev", "add-ost", "--dir", &state]);
    assert!(added.ok() && added.stdout.contains("ost2 serves dev-OST0002"), "{added}");
    let on_it = cluster.a().join("on-it");
    cluster.lfs(&["setstripe", "-i", "2", &on_it.display().to_string()]);
    std::fs::write(&on_it, vec![1; 1 << 20]).unwrap();
    assert_eq!(osts_of_new_files(&cluster, &dir, "after"), ["0", "1", "2"]);
    cluster.kill(&["ost2", "mdt0"]);
    cluster.start(&["ost2", "mdt0"]);
    assert_eq!(std::fs::read(&on_it).unwrap(), vec![1; 1 << 20]);
    assert!(cluster.process("ost2").running());
    cluster.assert_sound();
}

/// A second file system, taken down whatever the test does.
struct Second<'a> {
    cluster: &'a Cluster,
    dir: String,
}

impl Drop for Second<'_> {
    fn drop(&mut self) {
        let down = self.cluster.brindle(&["dev", "down", "--purge", "--dir", &self.dir]);
        assert!(down.ok() || std::thread::panicking(), "{down}");
    }
}

#[test]
fn two_file_systems_on_one_machine_do_not_meet() {
    seed("space-two");
    let cluster = Cluster::up("space-two", &Options { osts: 2, mounts: 1, ..Options::default() });
    let second = Second { cluster: &cluster, dir: cluster.outside().join("second").display().to_string() };
    let at = cluster.outside().join("s");
    let mount = at.display().to_string();
    let words = ["dev", "up", "--fsname", "other", "--osts", "1", "--dir", &second.dir, "--mount", &mount];
    let up = cluster.brindle(&words);
    assert!(up.ok(), "{up}");
    std::fs::write(cluster.a().join("f"), "first").unwrap();
    std::fs::write(at.join("f"), "second").unwrap();
    assert_eq!(std::fs::read_to_string(cluster.a().join("f")).unwrap(), "first");
    let linked = std::fs::hard_link(cluster.a().join("f"), at.join("g")).unwrap_err();
    assert_eq!(linked.raw_os_error(), Some(libc::EXDEV), "{linked}");

    // Each path leads to its own; a name that is not that of the path's file system is refused.
    let first = cluster.a().display().to_string();
    let df = |path: &str| cluster.lfs(&["df", path]);
    assert!(df(&first).contains("dev-OST0001_UUID") && !df(&first).contains("other-OST"), "{}", df(&first));
    assert!(df(&mount).contains("other-OST0000_UUID") && !df(&mount).contains("dev-OST"), "{}", df(&mount));
    let pool = cluster.brindle(&["lctl", "pool_new", "other.flash"]);
    assert!(pool.ok(), "{pool}");
    assert!(cluster.lfs(&["pool_list", &mount]).contains("other.flash"));
    assert!(!cluster.lfs(&["pool_list", &first]).contains("flash"));
    let foreign = cluster.brindle(&["lctl", "pool_add", "other.flash", "dev-OST0000"]);
    assert!(!foreign.ok(), "{foreign}");
    let which = cluster.brindle(&["pool", "list"]);
    assert!(which.text.contains("several are mounted here"), "{which}");

    // One may go while the other is used.
    drop(second);
    assert!(!at.join("f").exists());
    assert_eq!(std::fs::read_to_string(cluster.a().join("f")).unwrap(), "first");
    cluster.assert_sound();
}
