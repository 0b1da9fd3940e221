//! Costs of operations: requests at the MDT and at the OSTs, counted. Leases of directories answer the rest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options};
use brindle_tests::fails;
use brindle_tests::users::{ANN, BOB, run_as};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

use crate::dice::seed;

/// Operations of each kind.
const ROUNDS: usize = 40;
/// Files of a directory that is listed in several requests.
const MANY: usize = 2000;
/// Longest time until the kernel tells that files are closed.
const CLOSED_LIMIT: Duration = Duration::from_secs(10);

/// Requests so far, by target and operation.
type Counts = BTreeMap<(String, String), u64>;

fn counts(cluster: &Cluster) -> Counts {
    let servers = cluster.processes().into_iter().filter(|p| matches!(&p.kind[..], "mdt" | "ost"));
    let mut counts = Counts::new();
    for server in servers {
        for line in metrics(&server.metrics_url).lines() {
            let Some((name, value)) = line.split_once("} ") else { continue };
            let Some(op) =
                name.split_once("_operations_total{").and_then(|(_, rest)| rest.split_once("op=\""))
            else {
                continue;
            };
            let op = op.1.split('"').next().unwrap_or_default().to_owned();
            let count = value.trim().parse::<f64>().expect("a number") as u64;
            counts.insert(
                (server.kind.clone(), op.clone()),
                count + counts.get(&(server.kind.clone(), op)).unwrap_or(&0),
            );
        }
    }
    counts
}

/// `ls -l`, which asks for extended attributes too.
fn ls(path: &Path) {
    let listed = Command::new("ls").arg("-l").arg(path).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
}

/// Requests of one kind so far, at all servers.
pub fn requests(cluster: &Cluster, op: &str) -> u64 {
    counts(cluster).into_iter().filter(|((_, name), _)| name == op).map(|(_, count)| count).sum()
}

/// Text of the metrics of a process.
pub fn metrics(url: &str) -> String {
    let place = url.strip_prefix("http://").expect("http").split('/').next().expect("an address");
    let mut stream = TcpStream::connect(place).expect("the metrics can be asked for");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    text
}

/// Does something often; the requests of clients that it cost, those in the background left out.
fn cost(cluster: &Cluster, mut work: impl FnMut(usize)) -> BTreeMap<String, u64> {
    let before = counts(cluster);
    (0..ROUNDS).for_each(&mut work);
    settle(cluster);
    let mut spent = BTreeMap::new();
    for ((kind, op), after) in counts(cluster) {
        let new = after - before.get(&(kind.clone(), op.clone())).unwrap_or(&0);
        // A few are somebody else's: statfs of OSTs by the MDT, renewals, reports of what was written; and reads are told now and then.
        let others = ["ost_statfs", "destroy_objects", "fence_table", "report", "note_access"];
        if new > 0 && !others.contains(&&op[..]) {
            *spent.entry(op).or_default() += new;
        }
    }
    spent
}

/// The kernel sends RELEASE after close has returned: every file is closed at the MDT when nobody has one open.
pub fn settle(cluster: &Cluster) {
    let (mdt, since) = (cluster.process("mdt0"), Instant::now());
    let is_closed = || {
        let text = metrics(&mdt.metrics_url);
        let open = text.lines().find(|line| line.starts_with("brindle_mds_open_handles{"));
        open.and_then(|line| line.rsplit(' ').next()).is_some_and(|n| n.parse::<f64>() == Ok(0.0))
    };
    while !is_closed() {
        assert!(since.elapsed() < CLOSED_LIMIT, "files are still open");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the mount of a path is given the leases of all directories on the way.
pub fn leased(cluster: &Cluster, path: &Path) {
    let since = Instant::now();
    while !cost(cluster, |_| assert!(fs::metadata(path).is_ok())).is_empty() {
        assert!(since.elapsed() < CLOSED_LIMIT, "no lease is given");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn each(op: &str, times: usize) -> (String, u64) {
    (op.to_owned(), (ROUNDS * times) as u64)
}

/// Handles of each round are given back many at once, and each once: how many at once is a matter of time.
fn but_closes(spent: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    but_closes_of(1, spent)
}

/// Like [`but_closes`], where each round closes so many files.
fn but_closes_of(handles: usize, mut spent: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let closes = spent.remove("close").expect("they are closed");
    assert!(closes <= (handles * ROUNDS) as u64, "{closes}");
    spent
}

fn small(path: &Path) {
    fs::write(path, vec![7; 3901]).unwrap();
}

#[test]
fn operations_cost_the_requests_that_they_must() {
    seed("leases");
    let cluster = Cluster::up("leases", &Options { osts: 2, mounts: 2, ..Options::default() });
    let (a, b) = (cluster.a().join("x/y/z"), cluster.mounts()[1].join("x/y/z"));
    fs::create_dir_all(&a).unwrap();
    let at = |n: usize| a.join(format!("f{n}"));

    let made = cost(&cluster, |n| small(&at(n)));
    assert_eq!(but_closes(made), BTreeMap::from([each("create", 1), each("inline_write", 1)]));
    let synced = cost(&cluster, |n| {
        let mut file = File::create(a.join(format!("s{n}"))).unwrap();
        file.write_all(&[7; 1900]).unwrap();
        file.write_all(&[8; 1900]).unwrap();
        file.sync_all().unwrap();
    });
    let with_their_bytes = BTreeMap::from([each("create", 1), each("inline_write", 1)]);
    assert_eq!(but_closes(synced), with_their_bytes, "bytes of small files travel with their fsync");
    (0..ROUNDS).for_each(|n| fs::remove_file(a.join(format!("s{n}"))).unwrap());
    // Writes in pieces, as stdio and tar write. The mount has a grant for buffered bytes once an OST has answered some writes.
    let pieces = |n: usize, name: &str| {
        let mut file = File::create(a.join(format!("{name}{n}"))).unwrap();
        (0..5).for_each(|piece| file.write_all(&[piece; 4096]).unwrap());
        file
    };
    for n in 0..4 {
        fs::write(a.join(format!("first{n}")), vec![7; 100_000]).unwrap();
        fs::remove_file(a.join(format!("first{n}"))).unwrap();
    }
    settle(&cluster);
    let grown = cost(&cluster, |n| drop(pieces(n, "g")));
    assert_eq!(
        but_closes(grown),
        BTreeMap::from([each("create", 1), each("convert", 1), each("write", 1)]),
        "what was buffered for the MDT goes to the OST with the rest"
    );
    let grown = cost(&cluster, |n| pieces(n, "h").sync_all().unwrap());
    let with_syncs = [each("create", 1), each("convert", 1), each("write", 1), each("sync_objects", 1)];
    assert_eq!(
        but_closes(grown).into_iter().filter(|(op, _)| op != "fsync").collect::<BTreeMap<_, _>>(),
        with_syncs.into()
    );
    for n in 0..ROUNDS {
        for name in ["g", "h"] {
            let bytes: Vec<u8> = (0..5).flat_map(|piece| [piece; 4096]).collect();
            assert_eq!(fs::read(b.join(format!("{name}{n}"))).unwrap(), bytes);
            fs::remove_file(a.join(format!("{name}{n}"))).unwrap();
        }
    }
    settle(&cluster);
    let seen = cost(&cluster, |n| assert_eq!(fs::metadata(at(n)).unwrap().len(), 3901));
    assert_eq!(seen, BTreeMap::new(), "a file of its own is known");
    let read = cost(&cluster, |n| assert_eq!(fs::read(at(n)).unwrap().len(), 3901));
    let asked: u64 = but_closes(read.clone()).values().sum();
    let only_opens = read.keys().all(|op| ["open", "open_ahead", "close"].contains(&&op[..]));
    assert!(only_opens && asked <= ROUNDS as u64 / 4, "most were opened ahead: {read:?}");
    let absent = cost(&cluster, |n| assert!(fs::metadata(a.join(format!("none{n}"))).is_err()));
    assert_eq!(absent, BTreeMap::new(), "so is what it has not made");

    // The other mount lists once, and knows the entries as soon as it is given leases. A directory that
    // another client has just changed is contested for a while.
    leased(&cluster, &b);
    fs::read_dir(&b).unwrap().for_each(|entry| assert!(entry.unwrap().metadata().is_ok()));
    let listed = cost(&cluster, |_| assert_eq!(fs::read_dir(&b).unwrap().count(), ROUNDS));
    assert_eq!(listed, BTreeMap::new(), "what was listed is known");
    let known = cost(&cluster, |n| ls(&b.join(format!("f{n}"))));
    assert_eq!(known, BTreeMap::new(), "ls -l asks no OST and for no extended attribute");

    // Entries are known too when the listing ends before the first file is looked at, as with ls -l, find and du.
    for n in 0..MANY {
        File::create(a.join(format!("m{n}"))).unwrap();
    }
    // Files with objects, too.
    for n in 0..ROUNDS {
        let mut file = File::create(a.join(format!("o{n}"))).unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.sync_all().unwrap();
    }
    settle(&cluster);
    leased(&cluster, &b);
    let mut names = Vec::new();
    let listed = cost(&cluster, |n| {
        if n == 0 {
            names = fs::read_dir(&b).unwrap().map(|entry| entry.unwrap().path()).collect();
            ls(&b);
        }
    });
    assert_eq!(names.len(), MANY + 2 * ROUNDS);
    let pages = listed.get("readdir").copied().unwrap_or(0);
    assert!(listed.len() == 1 && (1..=20).contains(&pages), "{listed:?}");

    // `ls -l` asks for the label of each file unless it hears at the first that there are none.
    for path in [at(0), b.join("f1"), names[0].clone()] {
        assert_eq!(fails(getxattr(path, "security.selinux", &mut [0u8; 8])), Errno::OPNOTSUPP);
    }
    setxattr(at(2), "security.selinux", b"label", XattrFlags::empty()).unwrap();
    for path in [at(2), b.join("f2")] {
        assert_eq!(getxattr(path, "security.selinux", &mut [0u8; 8]), Ok(5), "one that was set is shown");
    }

    // Each mount sees changes of the other at once, and neither shows the state before.
    for n in 0..ROUNDS {
        fs::set_permissions(at(n), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(fs::metadata(b.join(format!("f{n}"))).unwrap().permissions().mode() & 0o777, 0o600);
    }
    File::create(b.join("new")).unwrap();
    assert!(at(0).with_file_name("new").exists(), "a complete directory of another is complete no more");
    fs::remove_file(b.join("new")).unwrap();
    assert!(!at(0).with_file_name("new").exists());

    fs::create_dir(a.join("d")).unwrap();
    let at = |n: usize| a.join(format!("d/f{n}"));
    (0..ROUNDS).for_each(|n| small(&at(n)));
    leased(&cluster, &a.join("d"));
    let removed = cost(&cluster, |n| fs::remove_file(at(n)).unwrap());
    assert_eq!(removed, BTreeMap::from([each("unlink", 1)]));
    cluster.assert_sound();
}

/// A thread that the mount finds running, because it has not come to wait yet, has its permissions asked for.
const AWAKE_MAX: u64 = ROUNDS as u64;

#[test]
fn in_a_directory_that_two_clients_change_a_create_and_an_unlink_are_two_requests() {
    seed("leases-contested");
    let cluster = Cluster::up("leases-contested", &Options { osts: 1, mounts: 2, ..Options::default() });
    let dirs: Vec<PathBuf> = cluster.mounts().iter().map(|mount| mount.join("x/y/shared")).collect();
    fs::create_dir_all(&dirs[0]).unwrap();
    // Neither mount may have the lease again between two of these.
    let change = |n: usize| {
        dirs.iter()
            .enumerate()
            .for_each(|(m, dir)| drop(File::create(dir.join(format!("f{m}.{n}"))).unwrap()))
    };
    let remove = |n: usize| {
        dirs.iter().enumerate().for_each(|(m, dir)| fs::remove_file(dir.join(format!("f{m}.{n}"))).unwrap())
    };
    dirs.iter().for_each(|dir| leased(&cluster, dir.parent().unwrap()));
    (ROUNDS..2 * ROUNDS).for_each(change);
    let but_permissions = |mut spent: BTreeMap<String, u64>| {
        let asked = spent.remove("getattr").unwrap_or(0);
        assert!(asked <= AWAKE_MAX, "permissions were asked for {asked} times");
        spent
    };
    let made = but_permissions(but_closes_of(dirs.len(), cost(&cluster, change)));
    assert_eq!(made, BTreeMap::from([each("lookup", 2), each("create", 2)]));
    let removed = but_permissions(cost(&cluster, remove));
    assert_eq!(removed, BTreeMap::from([each("lookup", 2), each("unlink", 2)]));
    cluster.assert_sound();
}

#[test]
fn rights_that_another_client_takes_are_gone_and_times_that_it_changes_are_seen() {
    seed("leases-rights");
    let cluster = Cluster::up("leases-rights", &Options { osts: 1, mounts: 2, ..Options::default() });
    let (a, b) = (cluster.a().join("x/shared"), cluster.mounts()[1].join("x/shared"));
    fs::create_dir_all(&a).unwrap();
    chown(&a, Some(ANN.uid), Some(ANN.gid)).unwrap();
    for round in 0..ROUNDS / 4 {
        let mode = if round % 2 == 0 { 0o755 } else { 0o555 };
        fs::set_permissions(&b, PermissionsExt::from_mode(0o755)).unwrap();
        // The lease that covers the rights is held again, and neither holds that of the directory, because both change it.
        leased(&cluster, a.parent().unwrap());
        // By root, whom it does not belong to: for such the kernel asks for its ACL.
        let change = |n: usize| {
            [&a, &b].iter().enumerate().for_each(|(m, dir)| {
                drop(File::create(dir.join(format!("e{round}.{m}.{n}"))).unwrap());
            });
        };
        (ROUNDS..2 * ROUNDS).for_each(change);
        let asked = cost(&cluster, change);
        assert!(asked.get("getattr").is_none_or(|n| *n <= AWAKE_MAX), "they do without: {asked:?}");
        assert!(!asked.contains_key("getxattr"), "{asked:?}");
        run_as(ANN, || {
            let (from, to) = (a.join("from"), b.join(format!("b{round}")));
            drop(File::create(&from).unwrap());
            drop(File::create(to).unwrap());
            drop(File::create(a.join(format!("a{round}"))).unwrap());
            let seen = [&a, &b].map(|dir| fs::metadata(dir).unwrap());
            assert_eq!(seen[0].mtime_nsec(), seen[1].mtime_nsec(), "in round {round}");
            fs::set_permissions(&b, PermissionsExt::from_mode(mode)).unwrap();
            let made = File::create(a.join(format!("c{round}"))).map(drop).map_err(|fault| fault.kind());
            let removed = fs::remove_file(&from).map_err(|fault| fault.kind());
            let expected = if mode == 0o755 { Ok(()) } else { Err(ErrorKind::PermissionDenied) };
            assert_eq!((made, removed), (expected, expected), "in round {round}");
            assert_eq!(fs::metadata(&a).unwrap().mode() & 0o7777, mode);
        });
        // A former owner may change nothing there, from the next call on.
        chown(&b, Some(BOB.uid), Some(BOB.gid)).unwrap();
        let made = run_as(ANN, || File::create(a.join(format!("d{round}"))).map(drop));
        assert_eq!(made.map_err(|fault| fault.kind()), Err(ErrorKind::PermissionDenied), "in round {round}");
        chown(&a, Some(ANN.uid), Some(ANN.gid)).unwrap();
    }
    cluster.assert_sound();
}

#[test]
fn each_create_is_one_request_however_many_files_a_mount_makes() {
    seed("leases-many");
    let cluster = Cluster::up("leases-many", &Options { osts: 1, mounts: 1, ..Options::default() });
    let dir = cluster.a().join("many");
    fs::create_dir(&dir).unwrap();
    // More than the client keeps floors for.
    let each_round = 3 * MANY / ROUNDS;
    let mut made = cost(&cluster, |round| {
        (0..each_round).for_each(|n| drop(File::create(dir.join(format!("f{round}.{n}"))).unwrap()));
    });
    let closes = made.remove("close").expect("they are closed");
    assert!(closes < 3 * MANY as u64 / 2, "{closes}");
    assert_eq!(made, BTreeMap::from([each("create", each_round)]));
    cluster.assert_sound();
}

#[test]
fn a_directory_whose_names_are_looked_for_is_listed_ahead() {
    seed("leases-ahead");
    let cluster = Cluster::up("leases-ahead", &Options { osts: 1, mounts: 2, ..Options::default() });
    for (dir, looked_for) in [("all", MANY), ("few", 20)] {
        let (a, b) = (cluster.a().join(dir), cluster.mounts()[1].join(dir));
        fs::create_dir(&a).unwrap();
        (0..MANY).for_each(|n| drop(File::create(a.join(format!("f{n}"))).unwrap()));
        leased(&cluster, &b);
        let spent = cost(&cluster, |n| {
            let all = (0..looked_for).filter(|_| n == 0);
            all.for_each(|n| assert!(b.join(format!("f{n}")).is_file()));
        });
        let (asked, listed) = (spent["lookup"] as usize, spent.get("readdir").map_or(0, |n| *n as usize));
        // A sixteenth, and those that were asked for while the listing was on its way.
        assert!(asked <= (MANY / 8).min(looked_for), "{spent:?}");
        // At least 128 entries at a time, each once, and no more than what is looked at is worth.
        assert!((1..=(looked_for / 8 + 1).min(MANY / 128 + 1)).contains(&listed), "{spent:?}");
        assert_eq!(spent.len(), 2, "{spent:?}");
    }
    cluster.assert_sound();
}
