//! The exact text of what people read: help, messages, JSON. Files in `snapshots/`;
//! `BRINDLE_SNAPSHOTS=update` writes them. A word in capitals replaces text that differs from run to run (the
//! scratch directory, pids, ports).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod support;

use support::{Scratch, check};

#[test]
fn help() {
    let s = Scratch::new();
    let commands: &[&[&str]] = &[
        &["--help"],
        &["format", "--help"],
        &["serve", "--help"],
        &["dev", "--help"],
        &["dev", "up", "--help"],
        &["dev", "down", "--help"],
        &["dev", "host", "run", "--help"],
        &["status", "--help"],
        &["explain", "--help"],
        &["lfs", "find", "--help"],
        &["file", "du", "--help"],
    ];
    let text: Vec<String> = commands.iter().map(|c| s.run(c)).collect();
    check("help", &text.join("\n"));
}

#[test]
fn explain() {
    let s = Scratch::new();
    let text = [
        s.run(&["explain", "E3001"]),
        s.run(&["explain", "1004"]),
        s.run(&["explain", "E9999"]),
        s.run(&["explain", "e4003", "-o", "json"]),
    ];
    check("explain", &text.join("\n"));
}

#[test]
fn wrong_command_lines() {
    let s = Scratch::new();
    let text = [
        s.run(&["frobnicate"]),
        s.run(&["format", "x"]),
        s.run(&["format", "--ost", "--fsname", "much-too-long", "x"]),
        s.run(&["format", "--ost", "--fsname", "a", "x"]),
        s.run(&["format", "--ost", "--index", "0", "--fsname", "a", "x"]),
        s.run(&["format", "--mgs", "--mgsnode", "10.0.0.1", "--fsname", "a", "x"]),
        s.run(&["format", "--mdt", "--index", "3", "--mgsnode", "10.0.0.1", "--fsname", "a", "x"]),
        s.run(&["format", "--mdt", "--mgsnode", "10.0.0.1:x", "--fsname", "a", "x"]),
        s.run(&["serve"]),
        s.run(&["status", "--mgs", "127.0.0.1:1"]),
        s.run(&["status", "."]),
        s.run(&["dev", "up", "--ost-size", "1M"]),
        s.run(&["dev", "up", "--hosts", "2", "--bare", "--osts", "4"]),
        s.run(&["dev", "host", "run", "h1"]),
    ];
    check("wrong-command-lines", &text.join("\n"));
}

#[test]
fn searching() {
    let s = Scratch::new();
    let find = |words: &[&str]| s.run(&[&["lfs", "find", "."], words].concat());
    let text = [
        find(&["-nmae", "x"]),
        find(&["-size", "5Q"]),
        find(&["-type", "x"]),
        find(&["-mtime", "yesterday"]),
        find(&["-pool", "flash"]),
        find(&["-layout", "released"]),
        find(&["-ost", "first"]),
        find(&["-perm", "u=rwx"]),
        find(&["-user", "no-such-user-here"]),
        find(&["-exec", "rm", "{}", ";"]),
        find(&["(", "-type", "f"]),
        find(&["-type", "f", "-o"]),
        find(&["-name"]),
        find(&["-type", "f"]),
        s.run(&["lfs", "find", "nowhere"]),
        s.run(&["file", "du", "nowhere"]),
        s.run(&["file", "du", "-B", "0"]),
        s.run(&["bench", "search", "."]),
    ];
    check("searching", &text.join("\n"));
}

#[test]
fn formatting() {
    let s = Scratch::new();
    std::fs::create_dir(s.path().join("full")).unwrap();
    std::fs::write(s.path().join("full/photo.jpg"), "x").unwrap();
    std::fs::create_dir(s.path().join("damaged")).unwrap();
    std::fs::write(s.path().join("damaged/superblock"), "x").unwrap();
    let mgs = ["format", "--mgs", "--fsname", "scratch", "mgt"];
    let text = [
        s.run(&["format", "--mgs", "--fsname", "scratch", "--dry-run", "mgt"]),
        s.run(&mgs),
        s.run(&mgs),
        s.run(&["format", "--mgs", "--fsname", "scratch", "--reformat", "mgt"]),
        s.run(&["format", "--mgs", "--fsname", "scratch", "--reformat", "--dry-run", "mgt"]),
        s.run(&["format", "--mgs", "--fsname", "scratch", "--reformat", "--yes", "mgt"]),
        s.run(&["format", "--mgs", "--fsname", "scratch", "full"]),
        s.run(&["format", "--mgs", "--fsname", "scratch", "damaged"]),
        s.run(&["format", "--mgs", "--fsname", "scratch", "full/photo.jpg"]),
        s.run(&["format", "--mgs", "--fsname", "scratch", "/proc/none"]),
    ];
    check("formatting", &text.join("\n"));
}

#[test]
fn configuration() {
    let s = Scratch::new();
    let file = |name: &str, text: &str| std::fs::write(s.path().join(name), text).unwrap();
    file("good.toml", "dir = [\"/data/ost0\"]\nport = 9881\n");
    file("unknown.toml", "dir = [\"/data/ost0\"]\nworker = 8\n");
    file("far.toml", "colour = 8\n");
    file("value.toml", "workers = 1\n");
    file("type.toml", "port = 1.5\n");
    file("syntax.toml", "port = \n");
    let mut text = vec![s.run(&["config", "default"])];
    for name in ["good", "unknown", "far", "value", "type", "syntax", "missing"] {
        text.push(s.run(&["config", "check", &format!("{name}.toml")]));
    }
    check("configuration", &text.join("\n"));
}

#[test]
fn targets_that_cannot_be_served() {
    let s = Scratch::new();
    let dir = |name: &str| s.path().join(name);
    let serve = |name: &str| {
        let said = s.run(&["serve", "--port", "0", "--dir", name]);
        // The log goes to standard error too; its lines begin with the time.
        said.lines().filter(|l| !l.starts_with("ts=")).map(|l| format!("{l}\n")).collect::<String>()
    };
    std::fs::create_dir(dir("empty")).unwrap();
    s.run(&["format", "--mgs", "--fsname", "scratch", "both"]);
    for file in ["superblock", "superblock.copy"] {
        let mut bytes = std::fs::read(dir("both").join(file)).unwrap();
        bytes[30] ^= 1;
        std::fs::write(dir("both").join(file), bytes).unwrap();
    }
    s.run(&["format", "--mgs", "--fsname", "scratch", "store"]);
    let store = dir("store/config");
    let mut bytes = std::fs::read(&store).unwrap();
    bytes[30] ^= 1;
    std::fs::write(&store, bytes).unwrap();
    let text = [serve("missing"), serve("empty"), serve("both"), serve("store")];
    check("unservable", &hide_sums(&text.join("\n")));
}

/// Checksums differ from run to run, because identities do.
fn hide_sums(text: &str) -> String {
    let is_sum = |w: &str| w.len() == 8 && w.chars().all(|c| c.is_ascii_hexdigit());
    let hide = |line: &str| {
        let words = line.split(' ').map(|w| if is_sum(w.trim_end_matches(',')) { "SUM" } else { w });
        words.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(|l| hide(l) + "\n").collect()
}

#[test]
fn mounts_that_are_refused_before_any_server_is_asked() {
    let s = Scratch::new();
    std::fs::write(s.path().join("photo.jpg"), "x").unwrap();
    std::fs::create_dir(s.path().join("empty")).unwrap();
    let text = [
        s.run(&["mount", "mgs1:/scratch", "missing"]),
        s.run(&["mount", "mgs1:/scratch", "photo.jpg"]),
        s.run(&["mount", "mgs1/scratch", "empty"]),
        s.run(&["mount", "-o", "nosiud", "mgs1:/scratch", "empty"]),
        s.run(&["umount", "empty"]),
        s.run(&["umount", "/proc"]),
        s.run(&["sync", "empty"]),
        s.run(&["waits", "missing"]),
    ];
    check("mounting", &text.join("\n"));
}

#[test]
fn development_clusters_that_are_not_there() {
    let s = Scratch::new();
    std::fs::create_dir(s.path().join("foreign")).unwrap();
    std::fs::write(s.path().join("foreign/photo.jpg"), "x").unwrap();
    std::fs::create_dir(s.path().join("damaged")).unwrap();
    std::fs::write(s.path().join("damaged/state.json"), "{").unwrap();
    let text = [
        s.run(&["dev", "status", "--dir", "none"]),
        s.run(&["dev", "kill", "--dir", "none", "ost0"]),
        s.run(&["dev", "host", "run", "--dir", "none", "h1", "--", "true"]),
        s.run(&["dev", "down", "--dir", "none"]),
        s.run(&["dev", "up", "--dir", "foreign", "--no-mount"]),
        s.run(&["dev", "status", "--dir", "damaged"]),
    ];
    check("no-cluster", &text.join("\n"));
}
