//! Two clients at the same name at the same time (promises 1 and 3).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brindle_tests::area::{Area, names};
use brindle_tests::{bytes, same_bytes};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Lets both clients do `attempt` at the same moment, and counts who succeeded; every other error must be `lost`.
fn race(
    area: &Area,
    rounds: usize,
    lost: i32,
    attempt: impl Fn(&Path, usize, usize) -> std::io::Result<()> + Sync,
) {
    let roots: [PathBuf; 2] = [area.at(""), area.other("")];
    for round in 0..rounds {
        let (start, won) = (Barrier::new(4), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (root, start, won, attempt) = (&roots[thread % 2], &start, &won, &attempt);
                scope.spawn(move || {
                    start.wait();
                    match attempt(root, round, thread) {
                        Ok(()) => drop(won.fetch_add(1, Ordering::SeqCst)),
                        Err(e) => assert_eq!(e.raw_os_error(), Some(lost), "round {round}"),
                    }
                });
            }
        });
        assert_eq!(won.load(Ordering::SeqCst), 1, "round {round}");
    }
}

#[test]
fn of_exclusive_creates_one_wins() {
    let area = Area::on_two_mounts();
    race(&area, 40, libc::EEXIST, |root, round, _| {
        File::create_new(root.join(format!("f{round}"))).map(drop)
    });
}

#[test]
fn of_mkdirs_one_wins() {
    let area = Area::on_two_mounts();
    race(&area, 40, libc::EEXIST, |root, round, _| fs::create_dir(root.join(format!("d{round}"))));
}

#[test]
fn of_links_one_wins() {
    let area = Area::on_two_mounts();
    fs::write(area.at("source"), "x").unwrap();
    race(&area, 40, libc::EEXIST, |root, round, _| {
        fs::hard_link(root.join("source"), root.join(format!("link{round}")))
    });
    assert_eq!(brindle_tests::area::nlink(&area.other("source")), 41);
}

#[test]
fn of_renames_without_replacing_one_wins() {
    let area = Area::on_two_mounts();
    for round in 0..40 {
        for thread in 0..4 {
            fs::write(area.at(format!("from-{round}-{thread}")), "x").unwrap();
        }
    }
    race(&area, 40, libc::EEXIST, |root, round, thread| {
        let (from, to) = (root.join(format!("from-{round}-{thread}")), root.join(format!("to-{round}")));
        Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
    });
    assert_eq!(names(&area.at("")).len(), 160);
}

#[test]
fn of_unlinks_one_wins() {
    let area = Area::on_two_mounts();
    for round in 0..40 {
        fs::write(area.at(format!("f{round}")), "x").unwrap();
    }
    race(&area, 40, libc::ENOENT, |root, round, _| fs::remove_file(root.join(format!("f{round}"))));
}

#[test]
fn a_name_replaced_again_and_again_is_never_missing_and_never_old() {
    const VERSIONS: u64 = 300;
    const LEN: usize = 20_000;
    let area = Area::on_two_mounts();
    let version = |n: u64| [&n.to_le_bytes()[..], &bytes(n, LEN)].concat();
    fs::write(area.at("current"), version(0)).unwrap();
    let (committed, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=VERSIONS {
                fs::write(area.at("new"), version(n)).unwrap();
                fs::rename(area.at("new"), area.at("current")).unwrap();
                committed.store(n, Ordering::SeqCst);
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut last = 0;
        while !done.load(Ordering::SeqCst) {
            let at_least = committed.load(Ordering::SeqCst);
            let found = fs::read(area.other("current")).unwrap();
            let n = u64::from_le_bytes(found[..8].try_into().unwrap());
            assert!(n >= at_least && n >= last, "version {n} after {at_least} and {last}");
            same_bytes(&found, &version(n), &format!("version {n}"));
            last = n;
        }
    });
}

#[test]
fn a_listing_shows_once_what_stays_while_the_other_client_changes_the_rest() {
    let area = Area::on_two_mounts();
    fs::create_dir(area.at("d")).unwrap();
    let stays: BTreeSet<String> = (0..500).map(|n| format!("stays-{n:03}")).collect();
    for name in &stays {
        fs::write(area.at("d").join(name), "").unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..400 {
                let (a, b) =
                    (area.at("d").join(format!("comes-{n}")), area.at("d").join(format!("goes-{n}")));
                fs::write(&a, "").unwrap();
                fs::rename(&a, &b).unwrap();
                fs::remove_file(&b).unwrap();
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            let found = names(&area.other("d"));
            let kept: Vec<&String> = found.iter().filter(|name| name.starts_with("stays-")).collect();
            assert_eq!(kept, stays.iter().collect::<Vec<_>>());
        }
    });
}

#[test]
fn trees_built_and_removed_side_by_side() {
    let area = Area::on_two_mounts();
    fs::create_dir(area.at("top")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let top = if thread % 2 == 0 { area.at("top") } else { area.other("top") };
            scope.spawn(move || {
                for round in 0..8 {
                    let tree = top.join(format!("{thread}-{round}"));
                    for dir in 0..5 {
                        fs::create_dir_all(tree.join(format!("{dir}"))).unwrap();
                        for file in 0..5 {
                            fs::write(tree.join(format!("{dir}/{file}")), format!("{dir}{file}")).unwrap();
                        }
                    }
                    if round % 2 == 0 {
                        fs::remove_dir_all(&tree).unwrap();
                    }
                }
            });
        }
    });
    for root in [area.at("top"), area.other("top")] {
        assert_eq!(names(&root).len(), 16);
        assert_eq!(fs::read(root.join("3-7/4/4")).unwrap(), b"44");
    }
}

#[test]
fn directories_moved_into_each_other_by_two_clients_make_no_loop() {
    let area = Area::on_two_mounts();
    for round in 0..40 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        fs::create_dir(area.at(&a)).unwrap();
        fs::create_dir(area.at(&b)).unwrap();
        let start = Barrier::new(2);
        let won: u32 = std::thread::scope(|scope| {
            let one = scope.spawn(|| {
                start.wait();
                fs::rename(area.at(&a), area.at(&b).join("in")).is_ok() as u32
            });
            let two = scope.spawn(|| {
                start.wait();
                fs::rename(area.other(&b), area.other(&a).join("in")).is_ok() as u32
            });
            one.join().unwrap() + two.join().unwrap()
        });
        assert_eq!(won, 1, "round {round}");
        let left = names(area.root());
        assert_eq!(left.len(), round + 1, "one of the two is still below the root: {left:?}");
    }
}

/// (xfstests generic/736 does the like.) A path leads to something or to nothing; ESTALE is for descriptors. A recall of the lease of
/// a directory waits for no thread that waits for that directory: that would last two seconds each time.
#[test]
fn a_tree_that_comes_and_goes_gives_no_program_estale() {
    const ROUNDS: usize = 400;
    const CALL_MAX: Duration = Duration::from_millis(1_500);
    let area = Area::on_two_mounts();
    let roots: [PathBuf; 2] = [area.at(""), area.other("")];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let root = &roots[thread % 2];
            scope.spawn(move || {
                let (dir, file) = (root.join("pd"), root.join("pd/x"));
                let create = || fs::OpenOptions::new().write(true).create(true).truncate(false).open(&file);
                let calls: [(&str, &dyn Fn() -> std::io::Result<()>); 7] = [
                    ("mkdir", &|| fs::create_dir(&dir)),
                    ("create", &|| create().map(drop)),
                    ("open", &|| File::open(&file).map(drop)),
                    ("stat", &|| fs::metadata(&file).map(drop)),
                    ("list", &|| fs::read_dir(&dir).map(drop)),
                    ("unlink", &|| fs::remove_file(&file)),
                    ("rmdir", &|| fs::remove_dir(&dir)),
                ];
                for round in 0..ROUNDS {
                    for (what, call) in calls {
                        let begun = Instant::now();
                        let error = call().err().and_then(|e| e.raw_os_error());
                        assert_ne!(error, Some(libc::ESTALE), "{what}, round {round}");
                        let took = begun.elapsed();
                        assert!(took < CALL_MAX, "{what}, round {round}: took {took:?}");
                    }
                }
            });
        }
    });
}
