//! Hosts with two rails: one is cut under a load, and programs see a pause of less than a second.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_tests::cluster::Cluster;
use brindle_tests::{bytes, same_bytes};

/// Bytes of each file of the load.
const FILE_BYTES: usize = 2 << 20;
/// Time for which a rail stays cut.
const CUT: Duration = Duration::from_secs(3);
/// Longest time of a call of a program: a second, and some more on a machine that does something else meanwhile. Without rails it is ten.
const PAUSE: Duration = Duration::from_secs(2);
/// Longest time until a restored rail is used again.
const BACK: Duration = Duration::from_secs(15);

fn host(cluster: &Cluster, args: &[&str]) -> serde_json::Value {
    let words: Vec<&str> = ["host"].iter().chain(args).copied().chain(["-o", "json"]).collect();
    let out = cluster.dev(&words);
    assert!(out.ok(), "{out}");
    serde_json::from_str(&out.stdout).unwrap()
}

fn status(cluster: &Cluster) -> serde_json::Value {
    let out = cluster.brindle(&[
        "status".to_owned(),
        "-o".to_owned(),
        "json".to_owned(),
        format!("--dir={}", cluster.dir().display()),
    ]);
    assert!(out.ok(), "{out}");
    serde_json::from_str::<serde_json::Value>(&out.stdout).unwrap()["file_systems"][0].clone()
}

/// Rails that are not reached: `oss1 tcp1`.
fn down(cluster: &Cluster) -> Vec<String> {
    let status = status(cluster);
    let rails = status["rails"].as_array().unwrap();
    let word = |rail: &serde_json::Value, key: &str| rail[key].as_str().unwrap().to_owned();
    let down = rails.iter().filter(|rail| rail["state"] == "down");
    down.map(|rail| format!("{} {}", word(rail, "host"), word(rail, "rail"))).collect()
}

fn read_direct(path: &Path) -> Vec<u8> {
    let mut found = Vec::new();
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    file.read_to_end(&mut found).unwrap();
    found
}

/// A file is made, written, synced, renamed and read past the page cache. The longest of these calls.
fn one_round(at: &Path, n: u64) -> Duration {
    let mut longest = Duration::ZERO;
    let mut timed = |call: &mut dyn FnMut()| {
        let begun = Instant::now();
        call();
        longest = longest.max(begun.elapsed());
    };
    let (new, path) = (at.join(format!("new{n}")), at.join(format!("f{n}")));
    let wanted = bytes(n, FILE_BYTES);
    let mut file: Option<File> = None;
    timed(&mut || file = Some(File::create(&new).unwrap()));
    let mut file = file.unwrap();
    timed(&mut || file.write_all(&wanted).unwrap());
    timed(&mut || file.sync_all().unwrap());
    timed(&mut || fs::rename(&new, &path).unwrap());
    timed(&mut || same_bytes(&read_direct(&path), &wanted, &format!("f{n}")));
    longest
}

#[test]
fn a_rail_that_is_cut_is_done_without_and_used_again_when_it_is_back() {
    let cluster = Cluster::up_with_rails("rails", 3, &["--clients=1"]);
    let listed = host(&cluster, &["list"]);
    for host in listed["hosts"].as_array().unwrap() {
        assert_eq!(host["rails"].as_array().unwrap().len(), 2, "{host}");
    }
    let before = status(&cluster);
    for target in before["targets"].as_array().unwrap() {
        assert_eq!(target["addresses"].as_array().unwrap().len(), 2, "both are in the map: {target}");
    }
    assert_eq!(down(&cluster), Vec::<String>::new());
    let (done, longest) = (AtomicBool::new(false), Mutex::new(Duration::ZERO));
    let rounds = std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::SeqCst) {
                let round = one_round(cluster.a(), n);
                let mut longest = longest.lock().unwrap();
                *longest = round.max(*longest);
                n += 1;
            }
            n
        });
        let cuts: [(&str, &str, &[&str]); 6] = [
            ("oss1", "0", &[]),
            ("oss1", "1", &[]),
            ("mds1", "0", &["--in"]),
            ("c1", "0", &["--out"]),
            ("c1", "1", &[]),
            ("mds1", "1", &[]),
        ];
        for (name, rail, way) in cuts {
            *longest.lock().unwrap() = Duration::ZERO;
            let words = [&["cut", name, "--rail", rail][..], way].concat();
            let cut = host(&cluster, &words);
            assert_ne!(cut["link"], "up", "{cut}");
            // The length of the fault; nothing is waited for by it.
            std::thread::sleep(CUT);
            let other = if rail == "0" { "tcp" } else { "tcp1" };
            if way.is_empty() && name != "c1" {
                assert_eq!(down(&cluster), [format!("{name} {other}")], "status names it");
            }
            let pause = *longest.lock().unwrap();
            println!("{name} rail {rail} cut {way:?}: the longest call took {} ms", pause.as_millis());
            assert!(pause < PAUSE, "{name} rail {rail}: {pause:?}");
            assert_eq!(host(&cluster, &["heal", name, "--rail", rail])["link"], "up");
            let begun = Instant::now();
            while !down(&cluster).is_empty() {
                assert!(begun.elapsed() < BACK, "{name} rail {rail} is back");
            }
            // The next cut is of the other rail: this one has to be used again by then.
            std::thread::sleep(CUT);
        }
        done.store(true, Ordering::SeqCst);
        loading.join().unwrap()
    });
    assert!(rounds > 0);
    for n in 0..rounds {
        same_bytes(&read_direct(&cluster.a().join(format!("f{n}"))), &bytes(n, FILE_BYTES), &format!("f{n}"));
    }
    let wrong = cluster.dev(&["host", "cut", "oss1", "--rail", "2"]);
    assert!(!wrong.ok() && wrong.text.contains("0 to 1"), "{wrong}");
    let other = cluster.dev(&["up", "--hosts=3", "--rails=1"]);
    assert!(!other.ok(), "{other}");
    cluster.assert_sound();
}
