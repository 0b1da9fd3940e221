//! `brindle bench` as users run it: ranks are processes of the real binary, on a directory of the local file system.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Scratch, check};

/// Runs a benchmark with warm caches, so that the test drops none of the machine's; gives its document.
fn bench(s: &Scratch, words: &[&str]) -> serde_json::Value {
    let out = Command::new(env!("CARGO_BIN_EXE_brindle"))
        .arg("bench")
        .args(words)
        .args(["--keep-caches", "--repeat", "1", "-o", "json"])
        .current_dir(s.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    let document: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&document["schema"], &document["version"]), (&"brindle.bench".into(), &1.into()));
    document
}

fn phases(document: &serde_json::Value) -> Vec<&str> {
    let figures = document["figures"].as_array().unwrap();
    assert!(figures.iter().all(|f| f["summary"]["median"].as_f64().unwrap() > 0.0));
    figures.iter().map(|f| f["phase"].as_str().unwrap()).collect()
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

fn data(s: &Scratch) -> std::path::PathBuf {
    let dir = s.path().join("data");
    std::fs::create_dir(&dir).unwrap();
    dir
}

#[test]
fn workloads_run_in_processes_and_leave_nothing_behind() {
    let s = Scratch::new();
    let dir = data(&s);
    let ior =
        bench(&s, &["ior", "data", "--dir", "data", "--ranks", "2", "--size", "1MiB", "--case", "easy,hard"]);
    assert_eq!(phases(&ior), ["write", "read"].repeat(3), "hard runs on one mount and on two");
    let mdtest = bench(&s, &["mdtest", "data", "--ranks", "3", "--files", "10", "--no-fsync"]);
    assert_eq!(phases(&mdtest), ["create", "stat", "remove", "create", "stat", "read", "remove"]);
    let list = bench(&s, &["ls", "data", "--ranks", "3", "--files", "10"]);
    assert_eq!(phases(&list), ["ls -l"]);
    let quick = bench(&s, &["quick", "data", "--limit-dir", ".", "--size", "1MiB", "--files", "10"]);
    assert_eq!(phases(&quick), ["write", "read", "create", "stat"]);
    let limits = quick["figures"][0]["limits"].as_array().unwrap();
    assert_eq!(limits.iter().map(|l| l["name"].as_str().unwrap()).collect::<Vec<_>>(), ["disk", "loopback"]);
    let threads = bench(&s, &["threads", "data", "--max", "4", "--size", "4MiB"]);
    assert_eq!(phases(&threads).len(), 9);
    let random =
        bench(&s, &["random", "data", "--ranks", "2", "--size", "2MiB", "--seconds", "1", "--buffered"]);
    assert_eq!(phases(&random), ["write", "read"]);
    assert!(is_empty(&dir));
}

#[test]
fn trees_stores_and_networks_are_measured() {
    let s = Scratch::new();
    let dir = data(&s);
    let source = s.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for n in 0..20 {
        std::fs::write(source.join(format!("file{n}.c")), vec![b'x'; n * 50]).unwrap();
    }
    let tree = bench(&s, &["tree", "data", "--source", "source", "--entries", "50"]);
    assert_eq!(phases(&tree), ["untar + fsync", "find -size", "du -s", "tar (read)", "rm -rf"]);
    assert_eq!(tree["figures"][0]["case"], "60 entries");
    let store =
        ["storage", "data", "--objects", "2", "--threads", "2,4", "--size", "1MiB", "--record-size", "64KiB"];
    assert_eq!(phases(&bench(&s, &store)), ["write", "rewrite", "read"].repeat(2));
    assert!(is_empty(&dir));
}

#[test]
fn runs_are_written_and_compared() {
    let s = Scratch::new();
    data(&s);
    for run in ["a", "b"] {
        let json = format!("{run}.json");
        let html = format!("{run}.html");
        let words = ["ior", "data", "--ranks", "1", "--size", "1MiB", "--case", "easy", "--label", run];
        bench(&s, &[&words[..], &["--json", &json, "--html", &html]].concat());
        let page = std::fs::read_to_string(s.path().join(html)).unwrap();
        assert!(page.contains(&format!("<title>brindle bench ior: {run}</title>")) && page.contains("<svg"));
    }
    let text = s.run(&["bench", "compare", "a.json", "b.json"]);
    assert!(text.contains("\nCASE                    PHASE  FIRST"), "{text}");
    assert!(text.ends_with("[exit code 0]\n"), "{text}");
    let json = s.run(&["bench", "compare", "a.json", "a.json", "-o", "json"]);
    assert!(json.contains("\"verdict\": \"within_noise\""), "{json}");
}

#[test]
fn an_interrupted_benchmark_removes_its_files_and_ends_its_ranks() {
    let s = Scratch::new();
    let dir = data(&s);
    let mut child = Command::new(env!("CARGO_BIN_EXE_brindle"))
        .args([
            "bench",
            "random",
            "--size",
            "8MiB",
            "--seconds",
            "600",
            "--buffered",
            "--keep-caches",
            "data",
        ])
        .current_dir(s.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let limit = Instant::now() + Duration::from_secs(20);
    let ranks = loop {
        let ranks = std::fs::read_to_string(&children).unwrap_or_default();
        if !is_empty(&dir) && !ranks.trim().is_empty() {
            break ranks;
        }
        assert!(Instant::now() < limit, "it has neither ranks nor files: '{ranks}'");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(&dir));
    for rank in ranks.split_whitespace() {
        assert!(!Path::new(&format!("/proc/{rank}")).exists(), "rank {rank} has ended");
    }
}

#[test]
fn texts() {
    let s = Scratch::new();
    data(&s);
    std::fs::create_dir(s.path().join("other")).unwrap();
    std::fs::write(s.path().join("not-a-run.json"), "{}").unwrap();
    let text = [
        s.run(&["bench", "--help"]),
        s.run(&["bench", "ior", "--help"]),
        s.run(&["bench", "net", "--help"]),
        s.run(&["bench", "ior"]),
        s.run(&["bench", "ior", "nowhere"]),
        s.run(&["bench", "ior", "not-a-run.json"]),
        s.run(&["bench", "ior", "--direct", "--transfer-size", "1000", "data"]),
        s.run(&["bench", "mdtest", "--dir", "data", "--dir", "other"]),
        s.run(&["bench", "ior", "--json", "nowhere/run.json", "data"]),
        s.run(&["bench", "tree", "--source", "other", "data"]),
        s.run(&["bench", "compare", "not-a-run.json", "not-a-run.json"]),
        s.run(&["bench", "net", "--serve", "127.0.0.1:1", "--to", "127.0.0.1:1"]),
        s.run(&["bench", "storage", "--record-size", "32MiB", "data"]),
    ];
    // The number of the process and of the directory it made.
    let text = text.join("\n").replace(&std::process::id().to_string(), "PID");
    check("benchmarks", &text);
}
