//! Times of last access on real mounts: which calls change them, and at which cost. A policy that goes by these times takes no file that is
//! new or was in use.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use brindle_tests::cluster::{Cluster, Options, binary};
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps, UTIME_OMIT, utimensat};

use crate::dice::seed;
use crate::leases::requests;

/// More than fit into three requests.
const FILES: usize = 1000;
/// Files in one request.
const REQUEST_FILES: usize = 256;
/// Reads are gathered for some seconds.
const TOLD_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const DAY_S: i64 = 24 * 3600;

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < TOLD_WITHIN, "this does not happen: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
}

fn atime(path: &Path) -> i64 {
    fs::metadata(path).unwrap().atime()
}

/// Sets the time of the last access, as `touch -a -d` does.
fn set_atime(path: &Path, secs: i64) {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: Timespec { tv_sec: secs, tv_nsec: 0 }, last_modification: omit };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of our own")
}

/// Files that the MDT takes for unread since ten days.
fn unread(cluster: &Cluster, dir: &Path) -> usize {
    cluster.lfs(&["find", text(dir), "-type", "f", "-atime", "+10"]).lines().count()
}

/// A mount of the cluster with options.
struct Mounted<'a>(&'a Cluster, PathBuf);

impl Mounted<'_> {
    fn new<'a>(cluster: &'a Cluster, options: &str) -> Mounted<'a> {
        let at = cluster.outside().join(options);
        fs::create_dir(&at).unwrap();
        let source = source(cluster);
        let log = format!("--log={}", cluster.outside().join(format!("{options}.log")).display());
        let args = ["mount", "-o", options, "--metrics=none", &log, &source, text(&at)];
        let done = Command::new(binary()).args(args).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Mounted(cluster, at)
    }

    fn source(&self) -> String {
        source(self.0)
    }
}

fn source(cluster: &Cluster) -> String {
    let address = cluster.process("mgs").addresses[0].clone();
    format!("{}:/dev", address.trim_end_matches("@tcp"))
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let out = self.0.brindle(&["umount", text(&self.1)]);
        assert!(out.ok() || std::thread::panicking(), "{out}");
    }
}

#[test]
fn reads_change_times_and_cost_a_few_requests() {
    seed("access_times");
    let cluster = Cluster::up("access_times", &Options { osts: 2, ..Options::default() });
    a_thousand_cold_reads_are_told_with_four_requests(&cluster);
    what_is_a_read(&cluster);
    times_that_were_set_stay(&cluster);
    mounts_that_change_no_times(&cluster);
    cluster.assert_sound();
}

fn a_thousand_cold_reads_are_told_with_four_requests(cluster: &Cluster) {
    let (made, dir) = (cluster.a().join("many"), cluster.b().join("many"));
    fs::create_dir(&made).unwrap();
    let old = now_s() - 20 * DAY_S;
    let name = |n: usize| format!("f{n}");
    for n in 0..=FILES {
        fs::write(made.join(name(n)), name(n)).unwrap();
        set_atime(&made.join(name(n)), old);
    }
    assert_eq!(unread(cluster, &made), FILES + 1);
    let before = requests(cluster, "note_access");
    let begun = now_s();
    for _ in 0..2 {
        for n in 0..FILES {
            assert_eq!(fs::read_to_string(dir.join(name(n))).unwrap(), name(n));
            assert!(atime(&dir.join(name(n))) >= begun, "the mount shows its own reads at once");
        }
    }
    wait("the MDT is told of every read", || unread(cluster, &made) == 1);
    let told = requests(cluster, "note_access") - before;
    // Reading may take longer than reads are gathered: then a request is sent that is not full, before and behind each of these moments.
    let least = FILES.div_ceil(REQUEST_FILES) as u64;
    let ticks = 2 * ((now_s() - begun) as u64 / 4);
    assert!((least..=least + ticks).contains(&told), "{told} requests");
    // The read of a further file is reported; the files that were read before are not reported again with it.
    for n in 0..=FILES {
        drop(fs::read(dir.join(name(n))).unwrap());
    }
    wait("the MDT is told of the last one", || unread(cluster, &made) == 0);
    assert_eq!(requests(cluster, "note_access") - before, told + 1, "one file, one request");
}

/// A file of mount A that nobody has read for long.
fn old_file(cluster: &Cluster, name: &str) -> PathBuf {
    let path = cluster.a().join(name);
    fs::write(&path, [b'x'; 100_000]).unwrap();
    set_atime(&path, now_s() - 20 * DAY_S);
    path
}

fn what_is_a_read(cluster: &Cluster) {
    let begun = now_s();
    let is_new = |path: &Path| atime(path) >= begun;
    let file = old_file(cluster, "read");
    drop(File::open(&file).unwrap());
    assert!(!is_new(&file), "opening alone is none");
    File::open(&file).unwrap().read_exact(&mut [0; 1]).unwrap();
    assert!(is_new(&file));
    // Linux's rule: what was written since is read for the first time.
    let first = fs::metadata(&file).unwrap();
    OpenOptions::new().write(true).open(&file).unwrap().write_all_at(b"y", 0).unwrap();
    wait("the write is later", || {
        fs::metadata(&file).unwrap().modified().unwrap() > first.accessed().unwrap()
    });
    drop(fs::read(&file).unwrap());
    assert!(fs::metadata(&file).unwrap().accessed().unwrap() > first.accessed().unwrap());
    // A program that runs is read; so is one whose pages the kernel has kept.
    let program = cluster.a().join("program");
    fs::copy("/bin/true", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for _ in 0..2 {
        set_atime(&program, now_s() - 20 * DAY_S);
        assert!(Command::new(&program).status().unwrap().success());
        assert!(is_new(&program), "it was run");
    }
    // Backups say that they do not use what they read.
    let kept = old_file(cluster, "kept");
    let mut backup = OpenOptions::new();
    let flags = i32::try_from(OFlags::NOATIME.bits()).unwrap();
    backup.read(true).custom_flags(flags).open(&kept).unwrap().read_exact(&mut [0; 10]).unwrap();
    assert!(!is_new(&kept), "O_NOATIME");
}

fn times_that_were_set_stay(cluster: &Cluster) {
    let (file, marker) = (old_file(cluster, "set"), old_file(cluster, "marker"));
    drop(fs::read(&file).unwrap());
    set_atime(&file, 100);
    assert_eq!(atime(&file), 100, "as stat(1) has it at once");
    drop(fs::read(&marker).unwrap());
    wait("reads of this moment are told", || {
        cluster.lfs(&["find", text(&marker), "-atime", "+10"]).is_empty()
    });
    assert_eq!((atime(&file), atime(&cluster.b().join("set"))), (100, 100), "the read was earlier");
    drop(fs::read(&file).unwrap());
    assert!(atime(&file) > 100);
}

fn mounts_that_change_no_times(cluster: &Cluster) {
    let (file, marker) = (old_file(cluster, "quiet"), old_file(cluster, "quiet_marker"));
    let old = atime(&file);
    for options in ["noatime", "ro"] {
        let mounted = Mounted::new(cluster, options);
        let path = mounted.1.join("quiet");
        drop(fs::read(&path).unwrap());
        assert_eq!(atime(&path), old, "{options}");
        let remount = |at: &Path, words: &str| {
            let source = mounted.source();
            Command::new(binary()).args(["mount", "-o", words, &source, text(at)]).output().unwrap()
        };
        if options == "noatime" {
            // As mount(8) repeats it from fstab; and where the mount was made without.
            let again = remount(&mounted.1, "remount,noatime");
            assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
            let refused = remount(cluster.a(), "remount,noatime");
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && said.contains("it is fixed while"), "{said}");
        }
        // A mount tells all that it has noted before it goes.
    }
    drop(fs::read(&marker).unwrap());
    wait("reads of this moment are told", || {
        cluster.lfs(&["find", text(&marker), "-atime", "+10"]).is_empty()
    });
    assert_eq!(cluster.lfs(&["find", text(&file), "-atime", "+10"]).lines().count(), 1);
}

/// The times that the MDT has are old, as those of an earlier release are; nobody has read the files since then, as far as is known.
#[test]
fn a_policy_takes_no_file_for_unused_before_access_times_were_kept() {
    seed("access_times_policy");
    let cluster = Cluster::up("access_times_policy", &Options { osts: 1, mounts: 1, ..Options::default() });
    let old = SystemTime::now() - Duration::from_secs(90 * 24 * 3600);
    let dir = cluster.a().join("scratch");
    fs::create_dir(&dir).unwrap();
    for name in ["one", "two"] {
        let path = dir.join(name);
        fs::write(&path, name).unwrap();
        let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    }
    let policy = cluster.outside().join("policy.conf");
    let state = format!("--state={}", cluster.outside().join("policy").display());
    let preview = |condition: &str| {
        let rules = format!(
            "fileclass scratch {{ definition {{ tree == scratch }} }}
             cleanup_rules {{ rule old {{ target_fileclass = scratch; condition {{ {condition} }} }} }}
             cleanup_trigger {{ trigger_on = periodic; check_interval = 1d; }}"
        );
        fs::write(&policy, rules).unwrap();
        let out =
            cluster.brindle(&["policy", "preview", &state, "-o", "json", text(&policy), text(cluster.a())]);
        assert!(out.ok(), "{out}");
        let view: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
        assert!(view["access_times_since_secs"].is_i64(), "{out}");
        view["policies"][0]["matched"].as_u64().unwrap()
    };
    assert_eq!(preview("last_access > 30d"), 0, "they are as old as the file system");
    assert_eq!(preview("last_access < 1h"), 2, "and not unread for long");
    wait("they are unread for a second", || preview("last_access >= 1s") == 2);
    let check = cluster.brindle(&["policy", "check", text(&policy)]);
    assert!(check.ok() && check.text.contains("last_access begins to count"), "{check}");
    cluster.assert_sound();
}
