//! The mount option `failout=`: a dead OST fails its own files only, and only where the option is given.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options, binary};
use brindle_tests::{bytes, same_bytes};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

const OPTIONS: Options = Options {
    archive: false,
    osts: 4,
    mounts: 2,
    ost_size: None,
    mdt_size: None,
    image_fs: "ext4",
    hosts: Some(4),
    limit: Duration::from_secs(240),
};
const FILE_BYTES: usize = 3 << 20;
/// A host that vanished is noticed by TCP's own time-outs.
const NOTICED: Duration = Duration::from_secs(25);
/// "At once", on a machine that builds something else meanwhile.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A mount in the network of the host `c2`, with options.
struct Mounted<'a> {
    cluster: &'a Cluster,
    at: PathBuf,
    log: PathBuf,
}

impl Mounted<'_> {
    fn new<'a>(cluster: &'a Cluster, hosts: &serde_json::Value, options: &str) -> Mounted<'a> {
        let at = cluster.outside().join("failout");
        let log = cluster.outside().join("failout.log");
        fs::create_dir(&at).unwrap();
        let hosts = hosts["hosts"].as_array().unwrap();
        let c2 = hosts.iter().find(|host| host["name"] == "c2").unwrap();
        let done = Command::new("nsenter")
            .arg(format!("--net={}", c2["namespace"].as_str().unwrap()))
            .arg(binary())
            .args(["mount", "-o", options])
            .arg(format!("--log={}", log.display()))
            .arg(format!("--identity={}", cluster.dir().join("identities/c2.pem").display()))
            .arg(format!("{}:/dev", hosts[0]["address"].as_str().unwrap()))
            .arg(&at)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Mounted { cluster, at, log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let out = self.cluster.brindle(&["umount", self.at.to_str().unwrap()]);
        assert!(out.ok() || std::thread::panicking(), "{out}");
    }
}

/// The number of an OST of a host, for setstripe.
fn ost_of(hosts: &serde_json::Value, name: &str) -> String {
    let host = hosts["hosts"].as_array().unwrap().iter().find(|host| host["name"] == name).unwrap();
    let target = host["targets"][0].as_str().unwrap();
    u16::from_str_radix(&target[target.len() - 4..], 16).unwrap().to_string()
}

/// A file with one stripe, on this OST.
fn striped(cluster: &Cluster, at: &Path, ost: &str) {
    cluster.lfs(&["setstripe", "-c", "1", "-i", ost, at.to_str().unwrap()]);
}

/// Reads the file past the page cache.
fn read_direct(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut found = Vec::new();
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?.read_to_end(&mut found)?;
    Ok(found)
}

fn assert_eio<T>(outcome: std::io::Result<T>, what: &str) {
    let errno = outcome.map(drop).unwrap_err().raw_os_error();
    assert_eq!(errno, Some(libc::EIO), "{what}");
}

#[test]
fn a_dead_ost_fails_its_own_files_only_and_only_where_that_is_asked_for() {
    let cluster = Cluster::up("failout", &OPTIONS);
    let listed = cluster.dev(&["host", "list", "-o", "json"]);
    let hosts: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let mounted = Mounted::new(&cluster, &hosts, "failout=1");
    let (with, without) = (mounted.at.as_path(), cluster.a());
    let (oss1, oss2) = (ost_of(&hosts, "oss1"), ost_of(&hosts, "oss2"));
    for (name, ost) in [("dead", &oss2), ("live", &oss1), ("cut", &oss2), ("mine", &oss2)] {
        striped(&cluster, &without.join(name), ost);
        fs::write(without.join(name), bytes(1, FILE_BYTES)).unwrap();
        File::open(without.join(name)).unwrap().sync_all().unwrap();
        same_bytes(&read_direct(&with.join(name)).unwrap(), &bytes(1, FILE_BYTES), name);
    }
    let mut mine = OpenOptions::new().write(true).open(with.join("mine")).unwrap();
    mine.write_all(b"before").unwrap();
    mine.sync_all().unwrap();
    rustix::fs::fcntl_lock(&mine, FlockOperation::LockExclusive).unwrap();

    let killed = cluster.dev(&["host", "kill", "oss2"]);
    assert!(killed.ok(), "{killed}");
    // The failure is not known yet, so the write is accepted; fsync tells that it cannot be sent.
    mine.write_all_at(b"taken", 0).unwrap();
    let since = Instant::now();
    let waits = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let found = read_direct(&without.join("dead"));
            waits.store(false, Ordering::SeqCst);
            found
        });
        assert_eio(read_direct(&with.join("dead")), "it was unreachable for a second");
        assert!(since.elapsed() < NOTICED, "{:?}", since.elapsed());
        assert_eio(mine.sync_all(), "what was acknowledged and is lost is told");
        let begun = Instant::now();
        assert_eio(read_direct(&with.join("dead")), "at once");
        assert_eio(mine.write_all_at(b"refused", 8).and_then(|()| mine.sync_all()), "at once");
        // The lock of a process goes with the first descriptor of the file that it closes, as when it ends.
        drop(File::open(with.join("mine")).unwrap());
        let cut = OpenOptions::new().write(true).open(with.join("cut")).unwrap();
        assert_eio(cut.set_len(100), "the MDT is not asked for what it cannot do");
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());

        let begun = Instant::now();
        same_bytes(&read_direct(&with.join("live")).unwrap(), &bytes(1, FILE_BYTES), "others go on");
        for n in 0..8 {
            let new = with.join(format!("new{n}"));
            fs::write(&new, bytes(n, FILE_BYTES)).unwrap();
            File::open(&new).unwrap().sync_all().unwrap();
        }
        assert!(begun.elapsed() < NOTICED, "new files are made elsewhere: {:?}", begun.elapsed());
        assert!(waits.load(Ordering::SeqCst), "without the option nothing fails");

        let started = cluster.dev(&["host", "start", "oss2"]);
        assert!(started.ok(), "{started}");
        let found = waiting.join().unwrap().unwrap();
        same_bytes(&found, &bytes(1, FILE_BYTES), "who waited gets everything");
    });
    let begun = Instant::now();
    while let Err(e) = read_direct(&with.join("dead")) {
        assert_eq!(e.raw_os_error(), Some(libc::EIO));
        assert!(begun.elapsed() < NOTICED, "it works again by itself");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(mine);
    let others = OpenOptions::new().write(true).open(without.join("mine")).unwrap();
    let begun = Instant::now();
    while let Err(e) = rustix::fs::fcntl_lock(&others, FlockOperation::NonBlockingLockExclusive) {
        assert!(matches!(e, Errno::AGAIN | Errno::ACCESS), "{e}");
        assert!(begun.elapsed() < NOTICED, "the lock goes when what was given up is settled");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(others);
    fs::write(with.join("mine"), bytes(7, FILE_BYTES)).unwrap();
    OpenOptions::new().write(true).open(with.join("cut")).unwrap().set_len(100).unwrap();
    for (name, wanted) in [("mine", bytes(7, FILE_BYTES)), ("cut", bytes(1, FILE_BYTES)[..100].to_vec())] {
        same_bytes(&fs::read(without.join(name)).unwrap(), &wanted, name);
    }
    let log = mounted.log();
    assert!(log.contains("E2014") && log.contains("failout=1") && log.contains("answers again"), "{log}");
    let explained = cluster.brindle(&["explain", "E2014"]);
    assert!(explained.ok() && explained.text.contains("failout"), "{explained}");
    drop(mounted);
    cluster.assert_sound();
}
