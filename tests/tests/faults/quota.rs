//! Limits of users and groups, hard and soft: an acknowledged write never meets a limit, no limit is exceeded, and a write that needs no
//! space is not refused.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};
use brindle_tests::users::{ANN, BOB, User, run_as};

use crate::dice::seed;
use crate::stripes::{self, BLOCK};

/// The limit of the tests.
pub const LIMIT_BYTES: u64 = 48 << 20;
/// Mounts hear of a limit with the renewal of their lease, a third of it after the one before; three times slack.
const HEARD_WITHIN: Duration = Duration::from_secs(6);
/// Counters are behind what was written by a second or so; three times slack and more.
const COUNTED_WITHIN: Duration = Duration::from_secs(10);
/// Interval of the tries: a file that was not refused takes its space until its object is destroyed.
const PROBE_EVERY: Duration = Duration::from_millis(500);
/// Interval of the checks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub fn up(name: &str) -> Cluster {
    seed(name);
    let cluster = Cluster::up(name, &Options { osts: 2, ost_size: Some("1GiB"), ..Options::default() });
    std::fs::set_permissions(cluster.a(), PermissionsExt::from_mode(0o1777)).unwrap();
    cluster
}

/// Limits the space of a user, and waits until both mounts have heard of it.
pub fn limit(cluster: &Cluster, user: User, bytes: u64) {
    let mount = cluster.a().display().to_string();
    let uid = user.uid.to_string();
    cluster.lfs(&["setquota", "-u", &uid, "-B", &(bytes / 1024).to_string(), &mount]);
    wait_until_heard(cluster, user, "", bytes);
    wait_for_usage(cluster, &["-u", &uid], 0);
}

/// Waits until both mounts have heard of a limit: a file of the user in a directory cannot be made larger than all that is allowed.
pub fn wait_until_heard(cluster: &Cluster, user: User, dir: &str, bytes: u64) {
    for (at, mount) in cluster.mounts().iter().enumerate() {
        let path = mount.join(dir).join(format!("probe{at}"));
        let since = Instant::now();
        let is_refused = || {
            let file = File::create(&path).unwrap();
            match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, bytes + 4096) {
                Ok(()) => false,
                Err(e) => {
                    assert_eq!(e, rustix::io::Errno::DQUOT);
                    true
                }
            }
        };
        while !run_as(user, is_refused) {
            std::fs::remove_file(&path).unwrap();
            assert!(since.elapsed() < HEARD_WITHIN, "a mount does not hear of a limit");
            std::thread::sleep(PROBE_EVERY);
        }
        std::fs::remove_file(&path).unwrap();
    }
}

/// Waits until no more is counted for an owner, as `lfs quota` takes him.
pub fn wait_for_usage(cluster: &Cluster, owner: &[&str], bytes_max: u64) {
    let since = Instant::now();
    while used_bytes(cluster, owner) > bytes_max {
        assert!(since.elapsed() < COUNTED_WITHIN, "what is gone stays counted");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Bytes that are counted for an owner.
pub fn used_bytes(cluster: &Cluster, owner: &[&str]) -> u64 {
    let mount = cluster.a().display().to_string();
    let line = cluster.lfs(&[&["quota", "-q"], owner, &[&mount]].concat());
    let words: Vec<&str> = line.split_whitespace().collect();
    // A mount point that is long stands in a line of its own.
    let kib = words.iter().find_map(|word| word.trim_end_matches('*').parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("no figure in {line:?}")) * 1024
}

fn counted_bytes(cluster: &Cluster, user: User, at_least: u64) -> u64 {
    counted(cluster, &["-u", &user.uid.to_string()], at_least)
}

/// Usage of an owner when all writers are done.
pub fn counted(cluster: &Cluster, owner: &[&str], at_least: u64) -> u64 {
    let since = Instant::now();
    loop {
        let used = used_bytes(cluster, owner);
        if used >= at_least || since.elapsed() > COUNTED_WITHIN {
            return used;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Writes blocks until one is refused; how many were not.
pub fn fill(file: &File, id: u64, mut index: u64, step: u64) -> u64 {
    let mut done = 0;
    loop {
        match file.write_all_at(&stripes::block(id, index, 1), index * BLOCK as u64) {
            Ok(()) => done += 1,
            Err(e) => {
                assert_eq!(e.raw_os_error(), Some(libc::EDQUOT), "{e}");
                return done;
            }
        }
        index += step;
    }
}

pub fn check(path: &Path, id: u64, blocks: impl Iterator<Item = u64>) {
    let file = File::open(path).unwrap();
    let mut bytes = vec![0; BLOCK];
    for index in blocks {
        file.read_exact_at(&mut bytes, index * BLOCK as u64).unwrap();
        assert_eq!(stripes::generation_of(&bytes, id, index), Ok(1), "{}", path.display());
    }
}

pub fn over<T: std::fmt::Debug>(outcome: io::Result<T>) {
    assert_eq!(outcome.expect_err("it is over the limit").raw_os_error(), Some(libc::EDQUOT));
}

#[test]
fn what_was_acknowledged_meets_no_limit_on_two_mounts_that_fill_it() {
    let cluster = up("quota-two");
    limit(&cluster, BOB, LIMIT_BYTES);
    let filling = |(id, mount): (u64, &std::path::PathBuf)| {
        let path = mount.join(format!("fill{id}"));
        std::thread::spawn(move || {
            run_as(BOB, || {
                let file = File::create(&path).unwrap();
                let done = fill(&file, id, 0, 1);
                file.sync_all().unwrap_or_else(|e| panic!("{done} blocks were acknowledged: {e}"));
                done
            })
        })
    };
    let writers: Vec<_> = (1..).zip(cluster.mounts()).map(filling).collect();
    let written: Vec<u64> = writers.into_iter().map(|w| w.join().unwrap()).collect();
    let bytes = written.iter().sum::<u64>() * BLOCK as u64;
    assert!(bytes > LIMIT_BYTES / 4 * 3, "only {written:?} blocks were allowed");
    let used = counted_bytes(&cluster, BOB, bytes);
    assert!(bytes <= used && used <= LIMIT_BYTES, "{bytes} bytes, counted {used}");
    for (id, done) in (1..).zip(&written) {
        check(&cluster.mounts()[2 - id as usize].join(format!("fill{id}")), id, 0..*done);
    }

    // Existing bytes can be overwritten, in a new handle too, and after a restart of the MDT.
    let path = cluster.a().join("fill1");
    let again = |generation: u64| {
        run_as(BOB, || {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            for index in 0..written[0] {
                file.write_all_at(&stripes::block(1, index, generation), index * BLOCK as u64).unwrap();
            }
            file.sync_all().unwrap();
            let behind = written[0] * BLOCK as u64 + (8 << 20);
            over(
                rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), behind, LIMIT_BYTES)
                    .map_err(io::Error::from),
            );
        });
    };
    again(2);
    cluster.kill(&["mdt0"]);
    cluster.start(&["mdt0"]);
    again(1);
    check(&cluster.b().join("fill1"), 1, 0..written[0]);

    // No limit counts for root, nor Bob's for Ann; and what he removes he has again.
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, &vec![7; 4 << 20]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    run_as(ANN, || std::fs::write(cluster.b().join("ann"), vec![1; 8 << 20]).unwrap());
    let since = Instant::now();
    run_as(BOB, || std::fs::remove_file(&path).unwrap());
    let write = || std::fs::write(cluster.a().join("small"), vec![1; 64 << 10]);
    while let Err(e) = run_as(BOB, write) {
        assert_eq!(e.raw_os_error(), Some(libc::EDQUOT), "{e}");
        assert!(since.elapsed() < COUNTED_WITHIN, "what is removed is not given back");
        std::thread::sleep(LOOK_EVERY);
    }
    cluster.assert_sound();
}

#[test]
fn a_file_that_two_mounts_write_stays_below_the_limit() {
    let cluster = up("quota-shared");
    limit(&cluster, BOB, LIMIT_BYTES);
    let paths: Vec<_> = cluster.mounts().iter().map(|mount| mount.join("shared")).collect();
    let files = run_as(BOB, || {
        let first = File::create(&paths[0]).unwrap();
        [first, OpenOptions::new().write(true).open(&paths[1]).unwrap()]
    });
    let filling = (0..).zip(&files).map(|(at, file)| {
        let file = file.try_clone().unwrap();
        std::thread::spawn(move || {
            run_as(BOB, || {
                let done = fill(&file, 1, at, 2);
                file.sync_all().unwrap_or_else(|e| panic!("{done} blocks were acknowledged: {e}"));
                done
            })
        })
    });
    let filling: Vec<_> = filling.collect();
    let written: Vec<u64> = filling.into_iter().map(|w| w.join().unwrap()).collect();
    let bytes = written.iter().sum::<u64>() * BLOCK as u64;
    assert!(bytes > LIMIT_BYTES / 2, "only {written:?} blocks were allowed");
    for (at, done) in (0..).zip(&written) {
        check(&paths[1 - at as usize], 1, (0..*done).map(|n| at + 2 * n));
    }
    // No byte is buffered, and only the OSTs know the allocated blocks. Bytes that have blocks can be
    // overwritten all the same, as long as there are no holes.
    let both = 2 * written[0].min(written[1]);
    files[0].set_len(both * BLOCK as u64).unwrap();
    run_as(BOB, || {
        let more = fill(&files[1], 1, both, 1);
        for index in [0, both, both + more - 1] {
            files[0].write_all_at(&stripes::block(1, index, 1), index * BLOCK as u64).unwrap();
        }
        let bytes = (both + more) * BLOCK as u64;
        assert!(bytes > LIMIT_BYTES / 2, "only {bytes} bytes were allowed");
        over(files[0].write_all_at(&[1; 1 << 20], bytes + (8 << 20)));
    });
    drop(files);
    let used = counted_bytes(&cluster, BOB, both * BLOCK as u64);
    assert!(used <= LIMIT_BYTES, "counted {used}");
    cluster.assert_sound();
}

#[test]
fn a_write_that_goes_on_behind_what_is_there_needs_room_for_the_rest() {
    let cluster = up("quota-part");
    limit(&cluster, BOB, LIMIT_BYTES);
    let full = cluster.a().join("full");
    let left_bytes = 512 << 10;
    run_as(BOB, || {
        for name in ["own", "shared"] {
            let file = File::create(cluster.a().join(name)).unwrap();
            file.write_all_at(&vec![1; 600 << 10], 0).unwrap();
            file.sync_all().unwrap();
        }
        let file = File::create(&full).unwrap();
        fill(&file, 1, 0, 1);
        file.sync_all().unwrap();
    });
    // Only the OSTs know the allocated blocks of a file with several writers.
    let other = run_as(BOB, || OpenOptions::new().write(true).open(cluster.b().join("shared")).unwrap());
    for name in ["own", "shared"] {
        let file = OpenOptions::new().write(true).open(&full).unwrap();
        file.set_len(file.metadata().unwrap().len() - left_bytes).unwrap();
        drop(file);
        wait_for_usage(&cluster, &["-u", &BOB.uid.to_string()], LIMIT_BYTES - left_bytes);
        // A single request of the kernel; the mount does not know which blocks of its range are allocated.
        let path = cluster.a().join(name);
        run_as(BOB, || {
            let file = OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(&path).unwrap();
            file.write_all_at(&vec![2; 1 << 20], 0).unwrap_or_else(|e| panic!("{name}: {e}"));
            over(file.write_all_at(&vec![2; 1 << 20], 1 << 20));
        });
    }
    drop(other);
    cluster.assert_sound();
}

#[test]
fn no_more_inodes_are_made_than_a_group_may_have() {
    let cluster = up("quota-inodes");
    let mount = cluster.a().display().to_string();
    cluster.lfs(&["setquota", "-g", &BOB.gid.to_string(), "-I", "3", &mount]);
    run_as(BOB, || {
        std::fs::create_dir(cluster.a().join("d")).unwrap();
        File::create(cluster.b().join("d/f")).unwrap();
        std::os::unix::fs::symlink("f", cluster.a().join("d/s")).unwrap();
        over(File::create(cluster.a().join("d/g")));
        over(std::fs::create_dir(cluster.b().join("d/e")));
        std::fs::hard_link(cluster.a().join("d/f"), cluster.a().join("d/l")).unwrap();
        std::fs::write(cluster.a().join("d/f"), "a file that is there can be written").unwrap();
    });
    chown(cluster.a().join("d/s"), Some(ANN.uid), Some(ANN.gid)).unwrap_or_else(|e| panic!("{e}"));
    let line = cluster.lfs(&["quota", "-q", "-g", &BOB.gid.to_string(), &mount]);
    let figures: Vec<&str> = line.split_whitespace().rev().take(4).collect();
    // (chown follows the link: the file is Ann's now.)
    assert_eq!(figures, ["-", "3", "0", "2"], "{line}");
    run_as(BOB, || drop(File::create(cluster.a().join("d/g")).unwrap()));
    cluster.assert_sound();
}

/// A file that both mounts have open for writing, so that nobody but the OSTs knows what it takes, with so many blocks.
fn shared(cluster: &Cluster, blocks: u64) -> [File; 2] {
    let paths: Vec<_> = cluster.mounts().iter().map(|mount| mount.join("shared")).collect();
    run_as(BOB, || {
        let files =
            [File::create(&paths[0]).unwrap(), OpenOptions::new().write(true).open(&paths[1]).unwrap()];
        for index in 0..blocks {
            let file = &files[index as usize % 2];
            file.write_all_at(&stripes::block(1, index, 1), index * BLOCK as u64).unwrap();
        }
        files
    })
}

#[test]
fn a_restarted_mdt_has_files_counted_that_several_write() {
    let cluster = up("quota-restart");
    limit(&cluster, BOB, LIMIT_BYTES);
    let files = shared(&cluster, (40 << 20) / BLOCK as u64);
    cluster.kill(&["mdt0"]);
    cluster.start(&["mdt0"]);
    let path = cluster.a().join("other");
    let done = run_as(BOB, || {
        let other = File::create(&path).unwrap();
        let done = fill(&other, 2, 0, 1);
        other.sync_all().unwrap();
        done * BLOCK as u64
    });
    assert!(done > 4 << 20, "only {done} bytes were allowed");
    drop(files);
    let used = counted_bytes(&cluster, BOB, (40 << 20) + done);
    assert!(used <= LIMIT_BYTES, "counted {used}");
    cluster.assert_sound();
}

#[test]
fn an_ost_that_is_away_keeps_nobody_waiting_who_writes_elsewhere() {
    let cluster = up("quota-away");
    let on = |name: &str, ost: &str| {
        let path = cluster.a().join(name);
        cluster.lfs(&["setstripe", "-c", "1", "-i", ost, &path.display().to_string()]);
        chown(&path, Some(BOB.uid), Some(BOB.gid)).unwrap();
        path
    };
    on("shared", "1");
    let other = on("other", "0");
    limit(&cluster, BOB, LIMIT_BYTES);
    let shared_bytes = 8 << 20;
    let files = shared(&cluster, shared_bytes / BLOCK as u64);
    let appending = run_as(BOB, || OpenOptions::new().append(true).open(cluster.a().join("shared")).unwrap());
    cluster.kill(&["ost1"]);
    let since = Instant::now();
    let done = run_as(BOB, || {
        let other = OpenOptions::new().write(true).open(&other).unwrap();
        let done = fill(&other, 2, 0, 1);
        other.sync_all().unwrap();
        done * BLOCK as u64
    });
    assert!(done > 32 << 20, "only {done} bytes were allowed");
    // An append needs blocks, whatever the OST has: it is refused at once, without a wait for the OST.
    run_as(BOB, || over(std::io::Write::write_all(&mut &appending, &[1; 1 << 20])));
    // Each question takes 1 s for the OST and as much for its blocks; the buffers are sent once; three times slack.
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    cluster.start(&["ost1"]);
    drop((files, appending));
    // The uncounted bytes of the file on that OST were not known.
    let used = counted_bytes(&cluster, BOB, shared_bytes + done);
    assert!(used <= LIMIT_BYTES + shared_bytes, "counted {used}");
    cluster.assert_sound();
}

#[test]
fn a_soft_limit_holds_when_its_grace_time_is_over_also_after_a_restart() {
    let cluster = up("quota-soft");
    let mount = cluster.a().display().to_string();
    let uid = BOB.uid.to_string();
    let figures = || -> Vec<String> {
        let line = cluster.lfs(&["quota", "-q", "-u", &uid, &mount]);
        line.split_whitespace().rev().take(4).map(str::to_owned).collect()
    };
    cluster.lfs(&["setquota", "-t", "-u", "--block-grace", "1w", "--inode-grace", "2h", &mount]);
    assert_eq!(cluster.lfs(&["quota", "-t", "-u", &mount]), "Block grace time: 1w; Inode grace time: 2h\n");
    cluster.lfs(&["setquota", "-u", &uid, "-i", "1", "-I", "4", &mount]);
    let make = |name: &str| run_as(BOB, || File::create(cluster.a().join(name)).map(drop));
    make("first").unwrap();
    assert_eq!(figures(), ["-", "4", "1", "1"]);
    make("second").unwrap();
    let [grace, hard, soft, used] = &figures()[..] else { panic!() };
    assert_eq!([&hard[..], &soft[..], &used[..]], ["4", "1", "2*"]);
    assert!(grace == "2h" || grace.starts_with("1h59m"), "{grace}");

    // Time that began before runs on; below the limit it begins anew, with the time that is set then.
    std::fs::remove_file(cluster.b().join("second")).unwrap();
    cluster.lfs(&["setquota", "-t", "-u", "--inode-grace", "0", &mount]);
    make("second").unwrap();
    cluster.kill(&["mdt0"]);
    cluster.start(&["mdt0"]);
    over(make("third"));
    assert_eq!(figures(), ["none", "4", "1", "2*"]);
    std::fs::remove_file(cluster.b().join("second")).unwrap();
    make("third").unwrap();

    // A user without limits has the default ones.
    cluster.lfs(&["setquota", "-U", "-I", "1", &mount]);
    let ann = |name: &str| run_as(ANN, || File::create(cluster.b().join(name)).map(drop));
    ann("of ann").unwrap();
    over(ann("another"));
    cluster.lfs(&["setquota", "-u", &ANN.uid.to_string(), "-I", "2", &mount]);
    ann("another").unwrap();
    let shown = cluster.brindle(&["quota", "list", "users", "--path", &mount, "-o", "json"]).stdout;
    assert!(shown.contains(&format!("\"id\": {}", ANN.uid)), "{shown}");
    cluster.assert_sound();
}
