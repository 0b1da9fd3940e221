//! The disk of the MDT is lost, and a backup is restored in its place. Files of the time of the backup are there again, the OSTs keep
//! the objects of later files, and the old disk can do no harm any more.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};
use brindle_tests::{bytes, same_bytes};

use crate::dice::seed;

/// The pause of a mount whose MDT was away, and the time of a slow machine.
const WITHIN: Duration = Duration::from_secs(30);
/// A length between the old one of a file and none.
const CUT_TO: u64 = 1_500_000;
const LOOK_EVERY: Duration = Duration::from_millis(50);

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of our own")
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < WITHIN, "this does not happen: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Makes files for as long as it is told to, while `work` runs.
fn beside_a_writer<T>(dir: &Path, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                fs::write(dir.join(format!("w{n}")), bytes(n, 5000)).unwrap();
            }
        });
        let done = work();
        is_over.store(true, Ordering::SeqCst);
        done
    })
}

#[test]
fn a_lost_mdt_comes_back_from_its_backup() {
    seed("backup");
    let cluster = Cluster::up("backup", &Options { osts: 2, mounts: 1, ..Options::default() });
    let a = cluster.a().to_owned();
    let files: Vec<_> =
        [("small", 100), ("large", 3 << 20)].map(|(name, len)| (a.join(name), bytes(7, len))).into();
    for (path, data) in &files {
        fs::write(path, data).unwrap();
    }
    fs::write(a.join("moved"), bytes(3, 1 << 20)).unwrap();
    fs::create_dir(a.join("busy")).unwrap();
    // A backup knows the objects of a file as soon as its bytes are synced.
    assert!(cluster.brindle(&["sync", text(&a)]).ok());
    let backup = cluster.outside().join("mdt.backup");
    let taken = beside_a_writer(&a.join("busy"), || {
        cluster.brindle(&["mdt", "backup", "--to", text(&backup), text(&a)])
    });
    assert!(taken.ok(), "{taken}");
    assert!(cluster.brindle(&["mdt", "show", text(&backup)]).ok());
    assert_eq!(fs::metadata(&backup).unwrap().mode() & 0o777, 0o600, "nobody else reads small files in it");
    // Changes of files after the backup leave their marks at the OSTs.
    let (cut, moved) = (a.join("large"), a.join("moved"));
    fs::OpenOptions::new().write(true).open(&cut).unwrap().set_len(CUT_TO).unwrap();
    cluster.lfs(&["migrate", "-c", "2", text(&moved)]);
    let later = a.join("later");
    fs::write(&later, bytes(9, 2 << 20)).unwrap();
    assert!(cluster.brindle(&["sync", text(&a)]).ok());

    cluster.kill(&["mdt0"]);
    let dir = cluster.process("mdt0").data;
    let restore = || cluster.brindle(&["mdt", "restore", "--from", text(&backup), "--to", text(&dir)]);
    let refused = restore();
    assert!(!refused.ok() && refused.text.contains("it holds a target"), "{refused}");
    let old = dir.with_extension("old");
    fs::rename(&dir, &old).unwrap();
    // A backup that is cut off makes no target.
    let cut_off = cluster.outside().join("cut.backup");
    let whole = fs::read(&backup).unwrap();
    fs::write(&cut_off, &whole[..whole.len() - 1]).unwrap();
    let refused = cluster.brindle(&["mdt", "restore", "--from", text(&cut_off), "--to", text(&dir)]);
    assert!(!refused.ok() && refused.text.contains("E3038"), "{refused}");
    assert!(!dir.exists());
    // Nor does one while an OST may know of a later term.
    cluster.kill(&["ost1"]);
    let refused = restore();
    assert!(!refused.ok() && refused.text.contains("OST0001"), "{refused}");
    cluster.start(&["ost1"]);
    wait("the OST answers again, and the MDT is restored", || restore().ok());
    assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
    cluster.start(&["mdt0"]);

    wait("the mount goes on", || fs::metadata(&files[0].0).is_ok());
    same_bytes(&fs::read(&files[0].0).unwrap(), &files[0].1, "small");
    // The file has its old length again, with zeros behind the cut.
    let mut expected = files[1].1.clone();
    expected[CUT_TO as usize..].fill(0);
    same_bytes(&fs::read(&cut).unwrap(), &expected, "a file that was cut");
    let open = || fs::OpenOptions::new().write(true).open(&cut).unwrap();
    // The mount that made the cut says through one handle that it was lost; from then on all is as ever.
    if let Err(e) = open().sync_all() {
        assert_eq!(e.raw_os_error(), Some(libc::EIO));
    }
    let file = open();
    file.write_all_at(&files[1].1, 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    same_bytes(&fs::read(&cut).unwrap(), &files[1].1, "a file that was cut is written again");
    // The former objects are there yet, or set aside. A read gives the right bytes or an error at once, and
    // neither zeros nor an endless wait.
    match fs::read(&moved) {
        Ok(found) => same_bytes(&found, &bytes(3, 1 << 20), "a file that was moved"),
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::EIO)),
    }
    fs::remove_file(&moved).unwrap();
    assert_eq!(fs::metadata(&later).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let new = a.join("new");
    fs::write(&new, bytes(11, 4 << 20)).unwrap();
    same_bytes(&fs::read(&new).unwrap(), &bytes(11, 4 << 20), "new");

    // No server takes the old disk for the MDT any more.
    cluster.kill(&["mdt0"]);
    let restored = dir.with_extension("restored");
    fs::rename(&dir, &restored).unwrap();
    fs::rename(&old, &dir).unwrap();
    cluster.dev(&["start", "mdt0"]);
    wait("the old one stops", || !cluster.process("mdt0").running());
    let log = fs::read_to_string(cluster.process("mdt0").log).unwrap();
    assert!(log.contains("E3039"), "{log}");
    fs::rename(&dir, &old).unwrap();
    fs::rename(&restored, &dir).unwrap();
    cluster.start(&["mdt0"]);
    wait("the mount goes on", || fs::metadata(&new).is_ok());
    same_bytes(&fs::read(&new).unwrap(), &bytes(11, 4 << 20), "new");
    fs::remove_file(&new).unwrap();

    let events = cluster.brindle(&["events", "--last", "500", "-o", "json", text(&a)]);
    assert!(events.ok(), "{events}");
    for (name, subject) in [("target.added", "MDT0000"), ("target.added", "OST0001"), ("mgs.active", "")] {
        let is_it = |line: &str| line.contains(name) && line.contains(subject);
        assert!(events.stdout.lines().any(is_it), "{name} {subject}: {events}");
    }
}
