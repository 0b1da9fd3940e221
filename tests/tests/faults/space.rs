//! Space on a real cluster: a target that fills up is reported long before it is full, an added OST is used at once,
//! and two file systems on one machine do not mix.

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

/// Runs a command of an administrator on one OST.
fn target(cluster: &Cluster, verb: &str, ost: &str) -> brindle_tests::cluster::Output {
    cluster.brindle(&["target", verb, ost, &cluster.a().display().to_string()])
}

/// Reads and writes a file over and over on the second mount; gives what it wrote at last.
fn churn(path: PathBuf, stop: std::sync::Arc<std::sync::atomic::AtomicBool>) -> std::thread::JoinHandle<u8> {
    std::thread::spawn(move || {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut round = 1u8;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            file.write_all_at(&vec![round; 3 << 20], 12345).unwrap();
            let mut back = vec![0; 3 << 20];
            file.read_exact_at(&mut back, 12345).unwrap();
            assert!(back.iter().all(|b| *b == round), "other bytes than were written in round {round}");
            round = round.wrapping_add(1).max(1);
        }
        round.wrapping_sub(1).max(1)
    })
}

#[test]
fn an_ost_with_files_stays_and_an_empty_one_is_removed_for_good() {
    seed("space-remove");
    let cluster = Cluster::up("space-remove", &Options { osts: 3, ..Options::default() });
    let dir = dir_of_single_stripes(&cluster);
    for n in 0..12 {
        std::fs::write(dir.join(n.to_string()), vec![n + 1; 2 << 20]).unwrap();
    }
    let on_it = |name: &str| {
        let path = cluster.a().join(name);
        cluster.lfs(&["setstripe", "-c", "1", "-i", "1", &path.display().to_string()]);
        std::fs::write(&path, vec![0; 4 << 20]).unwrap();
        path
    };
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    on_it("busy");
    let busy = churn(cluster.b().join("busy"), stop.clone());
    let nameless = OpenOptions::new().read(true).open(on_it("nameless")).unwrap();
    std::fs::remove_file(cluster.a().join("nameless")).unwrap();

    let refused = target(&cluster, "remove", "1");
    assert!(!refused.ok() && refused.text.contains("parts of 6 files lie on it, 1 of them"), "{refused}");
    assert!(refused.text.contains("brindle target drain 1 "), "{refused}");
    let drained = target(&cluster, "drain", "OST0001");
    assert!(drained.text.contains("1 file lie on it that have no name"), "{drained}");
    assert_eq!(osts_of_new_files(&cluster, &dir, "then"), ["0", "2"]);
    assert!(!target(&cluster, "remove", "1").ok(), "an open file lies on it");
    let mut back = vec![1; 4 << 20];
    nameless.read_exact_at(&mut back, 0).unwrap();
    assert!(back.iter().all(|b| *b == 0));
    drop(nameless);
    let since = std::time::Instant::now();
    while !target(&cluster, "drain", "1").ok() {
        assert!(since.elapsed().as_secs() < 15, "the closed file stays on it");
    }
    // The OST leaves the map while its server still runs. Then the server goes, and a client that held files
    // is lost.
    let removed = target(&cluster, "remove", "1");
    assert!(removed.ok(), "{removed}");
    let state = cluster.dir().display().to_string();
    let gone = cluster.brindle(&["dev", "remove-ost", "--dir", &state, "ost1"]);
    assert!(gone.ok() && gone.stdout.contains("was removed before"), "{gone}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let last = busy.join().unwrap();
    assert_eq!(std::fs::read(cluster.a().join("busy")).unwrap()[12345], last);
    cluster.kill(&["client1"]);
    cluster.start(&["client1"]);
    for n in 0..12 {
        assert_eq!(std::fs::read(cluster.b().join(format!("d/{n}"))).unwrap(), vec![n + 1; 2 << 20]);
        std::fs::remove_file(cluster.b().join(format!("d/{n}"))).unwrap();
    }
    cluster.kill(&["mdt0", "mgs"]);
    cluster.start(&["mgs", "mdt0"]);
    let list = cluster.brindle(&["target", "list", &cluster.a().display().to_string()]);
    assert!(list.ok() && !list.stdout.contains("OST0001"), "{list}");
    assert_eq!(osts_of_new_files(&cluster, &dir, "last"), ["0", "2"]);
    assert!(cluster.brindle(&["sync", &cluster.a().display().to_string()]).ok());
    cluster.assert_sound();
}

#[test]
fn files_move_to_an_added_ost_until_all_are_alike() {
    seed("space-rebalance");
    let options = Options { osts: 1, mounts: 1, ost_size: Some("128MiB"), ..Options::default() };
    let cluster = Cluster::up("space-rebalance", &options);
    let dir = dir_of_single_stripes(&cluster);
    let path = |n: u8| dir.join(n.to_string());
    for n in 0..20 {
        std::fs::write(path(n), vec![n + 1; 2 << 20]).unwrap();
    }
    let state = cluster.dir().display().to_string();
    assert!(cluster.brindle(&["dev", "add-ost", "--dir", &state]).ok());
    let rebalance = |more: &str| {
        let said =
            cluster.brindle(&["fs", "rebalance", &cluster.a().display().to_string(), "-o", "json", more]);
        assert!(said.ok(), "{said}");
        serde_json::from_str::<serde_json::Value>(&said.stdout).unwrap()
    };
    let planned = rebalance("--dry-run");
    assert_eq!((&planned["balanced"], &planned["files"]), (&false.into(), &0.into()), "{planned}");
    let done = rebalance("--spread=5");
    assert_eq!((&done["balanced"], &done["failed"]), (&true.into(), &0.into()), "{done}");
    assert!((8..=12).contains(&done["files"].as_u64().unwrap()), "half of the files move: {done}");
    assert_eq!(rebalance("--spread=5")["files"], 0, "and not again");
    for n in 0..20 {
        assert_eq!(std::fs::read(path(n)).unwrap(), vec![n + 1; 2 << 20]);
    }
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

    // A mount may go while the other is used.
    drop(second);
    assert!(!at.join("f").exists());
    assert_eq!(std::fs::read_to_string(cluster.a().join("f")).unwrap(), "first");
    cluster.assert_sound();
}
