//! A cluster without mounts, from `dev up` to `dev down --purge`: what is printed, what comes back after kills, what
//! does not stay behind. (Mounts need root and a kernel; `tests/` has them.)

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod support;

use std::process::Command;

use support::{Scratch, check};

/// A cluster that is taken down whatever the test does.
struct Cluster {
    scratch: Scratch,
}

impl Cluster {
    fn up(options: &[&str]) -> Cluster {
        let cluster = Cluster { scratch: Scratch::new() };
        let said = cluster.run(&[&["up", "--no-mount"], options].concat());
        assert!(said.ends_with("[exit code 0]\n"), "{said}");
        cluster
    }

    /// `brindle dev VERB --dir c ...`.
    fn run(&self, words: &[&str]) -> String {
        self.scratch.run(&[&["dev", words[0], "--dir", "c"], &words[1..]].concat())
    }

    fn status(&self) -> serde_json::Value {
        let out = Command::new(env!("CARGO_BIN_EXE_brindle"))
            .args(["dev", "status", "--dir", "c", "-o", "json"])
            .current_dir(self.scratch.path())
            .output()
            .unwrap();
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// Replaces what differs from run to run.
    fn normal(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for process in self.status()["processes"].as_array().unwrap() {
            let name = process["name"].as_str().unwrap().to_uppercase();
            text = text.replace(&format!("\"pid\": {}", process["pid"]), "\"pid\": PID");
            text = text.replace(&format!("process {})", process["pid"]), "process PID)");
            for address in process["addresses"].as_array().unwrap() {
                let address = address.as_str().unwrap();
                text = text.replace(address, &format!("{name}_ADDRESS"));
            }
            let url = process["metrics_url"].as_str().unwrap();
            if !url.is_empty() {
                text = text.replace(url, &format!("{name}_METRICS"));
            }
        }
        text
    }

    fn pids(&self) -> Vec<u64> {
        let status = self.status();
        status["processes"].as_array().unwrap().iter().filter_map(|p| p["pid"].as_u64()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.run(&["down", "--purge"]);
    }
}

fn alive(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Times at the beginning of progress lines are cut off.
fn without_times(text: &str) -> String {
    text.lines().map(|l| l.split_once(" s  ").map_or(l, |(_, rest)| rest).to_owned() + "\n").collect()
}

#[test]
fn a_cluster_lives_through_kills_and_leaves_nothing_behind() {
    let cluster = Cluster { scratch: Scratch::new() };
    let up = without_times(&cluster.run(&["up", "--no-mount", "--osts", "2"]));
    let mut text = vec![cluster.normal(&up)];
    let status = cluster.run(&["status", "-o", "json"]);
    text.push(cluster.normal(&status));
    let pids = cluster.pids();
    assert_eq!(pids.len(), 4);
    text.push(cluster.normal(&cluster.run(&["up", "--no-mount"])));
    text.push(cluster.normal(&cluster.run(&["kill", "ost1"])));
    text.push(cluster.run(&["kill", "ost1"]));
    text.push(cluster.run(&["kill", "ots1"]));
    text.push(cluster.normal(&cluster.run(&["up", "--no-mount"])));
    text.push(cluster.run(&["start", "ost1"]));
    check("cluster", &text.join("\n"));
    let addresses = |status: &str| status.matches("127.0.0.1").count();
    let again = cluster.run(&["status", "-o", "json"]);
    assert_eq!(addresses(&again), addresses(&status));
    let down = cluster.run(&["down"]);
    assert!(down.ends_with("[exit code 0]\n"), "{down}");
    let left: Vec<u64> = pids.into_iter().chain(cluster.pids()).filter(|pid| alive(*pid)).collect();
    assert!(left.is_empty(), "still there: {left:?}");
    let purged = cluster.run(&["down", "--purge"]);
    assert!(purged.ends_with("[exit code 0]\n"), "{purged}");
    assert!(!cluster.scratch.path().join("c").exists());
}

#[test]
fn everything_killed_comes_back_at_the_same_addresses_in_any_order() {
    let cluster = Cluster::up(&["--osts", "2"]);
    let addresses = |s: &serde_json::Value| -> Vec<String> {
        s["processes"].as_array().unwrap().iter().map(|p| p["addresses"].to_string()).collect()
    };
    let before = addresses(&cluster.status());
    for name in ["mgs", "mdt0", "ost0", "ost1"] {
        cluster.run(&["kill", name]);
    }
    for name in ["ost1", "ost0", "mdt0", "mgs"] {
        let said = cluster.run(&["start", name]);
        assert!(said.ends_with("[exit code 0]\n"), "{said}");
    }
    assert_eq!(addresses(&cluster.status()), before);
    let fsck = {
        cluster.run(&["down"]);
        cluster.scratch.run(&["fsck", "--dir", "c"])
    };
    assert!(fsck.contains("clean") && fsck.ends_with("[exit code 0]\n"), "{fsck}");
    let up = cluster.run(&["up", "--no-mount"]);
    assert!(up.ends_with("[exit code 0]\n"), "{up}");
    assert_eq!(addresses(&cluster.status()), before);
}

#[test]
fn status_says_who_is_missing_and_what_to_do() {
    // Disks of their own: how full that of this machine is must not be part of what is compared.
    let cluster = Cluster::up(&["--osts", "1", "--ost-size", "64MiB", "--mdt-size", "128MiB"]);
    let all = |c: &Cluster| {
        [
            c.scratch.run(&["status", "--dir", "c", "-x", "--exit-code"]),
            c.scratch.run(&["target", "list", "--dir", "c", "-o", "json"]),
        ]
        .join("\n")
    };
    let well = all(&cluster);
    assert!(well.contains("all file systems are healthy\n[exit code 0]"), "{well}");
    cluster.run(&["kill", "ost0"]);
    let ill = cluster.scratch.run(&["status", "--dir", "c", "--exit-code"]);
    assert!(ill.ends_with("[exit code 8]\n"), "{ill}");
    let head: String = ill.split("config:").next().unwrap().to_owned();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    check("status-degraded", &head.replace(&format!(" on {}", host.trim()), " on HOST"));
}

#[test]
fn pools_by_brindle_and_by_lctl() {
    let cluster = Cluster::up(&["--osts", "4"]);
    let run = |words: &[&str]| cluster.scratch.run(&[words, &["--dir", "c"]].concat());
    let text = [
        run(&["pool", "create", "flash", "0-1"]),
        run(&["pool", "create", "flash"]),
        run(&["pool", "create", "disk", "2-7"]),
        run(&["pool", "create", "none"]),
        run(&["pool", "create", "sixteen_letters_"]),
        run(&["lctl", "pool_new", "dev.disk"]),
        run(&["lctl", "pool_add", "dev.disk", "OST[2-3]"]),
        run(&["lctl", "pool_add", "dev.disk", "other-OST0000"]),
        run(&["lctl", "pool_add", "dev.disk", "OST[0-a/0]"]),
        run(&["lctl", "pool_add", "dev.disc", "OST0000"]),
        run(&["lctl", "pool_list", "dev"]),
        run(&["lctl", "pool_list", "dev.disk"]),
        run(&["lfs", "pool_list", "dev.flush"]),
        run(&["pool", "list"]),
        run(&["pool", "remove", "flash", "OST0003"]),
        run(&["pool", "remove", "flash", "1"]),
        run(&["lctl", "pool_destroy", "dev.disk"]),
        run(&["lctl", "pool_remove", "dev.disk", "dev-OST[2-3]_UUID"]),
        run(&["lctl", "pool_destroy", "dev.disk"]),
        run(&["pool", "destroy", "flash"]),
        run(&["pool", "list", "flash", "-o", "json"]),
        run(&["pool", "destroy", "flash", "--yes"]),
        run(&["pool", "list"]),
    ];
    // The map's version counts registrations too, in any order of the servers.
    let versions = |line: &&str| !line.contains("\"map_version\"");
    let text: String = text.join("\n").lines().filter(versions).map(|line| format!("{line}\n")).collect();
    check("pools", &text);
}

#[test]
fn an_added_ost_is_part_of_the_cluster() {
    let cluster = Cluster::up(&["--osts", "1"]);
    let said = cluster.run(&["add-ost"]);
    assert!(said.contains("ost1 serves dev-OST0001 at 127.0.0.1:"), "{said}");
    let names = |c: &Cluster| -> Vec<String> {
        let processes = c.status()["processes"].as_array().unwrap().clone();
        processes.iter().map(|p| format!("{} {}", p["name"], p["state"]).replace('"', "")).collect()
    };
    let all = ["mgs running", "mdt0 running", "ost0 running", "ost1 running"];
    assert_eq!(names(&cluster), all);
    cluster.run(&["down"]);
    let refused = cluster.run(&["add-ost"]);
    assert!(refused.contains("its MGS does not run") && refused.contains("[exit code 6]"), "{refused}");
    assert_eq!(names(&cluster).len(), 4, "nothing was added");
    let up = cluster.run(&["up", "--no-mount"]);
    assert!(up.ends_with("[exit code 0]\n"), "{up}");
    assert_eq!(names(&cluster), all);
}

/// A server that this test started, ended with it.
struct Served(std::process::Child);

impl Drop for Served {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_target_is_added_in_one_command() {
    use std::io::BufRead as _;
    let cluster = Cluster::up(&["--osts", "1"]);
    let status = cluster.status();
    let mgs = status["processes"][0]["addresses"][0].as_str().unwrap().to_owned();
    let run = |words: &[&str]| cluster.scratch.run(&[&["target", "add", "--mgsnode", &mgs], words].concat());
    let taken = run(&["--index", "0", "--dir", "new"]);
    assert!(taken.contains("the lowest free index is 1") && taken.contains("E5003"), "{taken}");
    assert!(!cluster.scratch.path().join("new").exists(), "nothing was changed");
    std::fs::create_dir(cluster.scratch.path().join("full")).unwrap();
    std::fs::write(cluster.scratch.path().join("full/photo.jpg"), "x").unwrap();
    let full = run(&["--dir", "full"]);
    assert!(full.contains("it holds 'photo.jpg'"), "{full}");
    let two = run(&["--dir", "a", "--dir", "b"]);
    assert!(two.contains("2 directories are given, and one is needed"), "{two}");

    let nowhere = cluster.scratch.run(&["serve", "--dir", "c/ost0", "--port", "0", "--numa-node", "4095"]);
    assert!(nowhere.contains("cannot run on NUMA node 4095") && nowhere.contains("E1003"), "{nowhere}");
    let has_nodes = std::path::Path::new("/sys/devices/system/node/node0").exists();

    // The second time it is only served.
    for _ in 0..2 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_brindle"))
            .args(["target", "add", "--mgsnode", &mgs, "--dir", "new", "--port", "0", "--ready-json"])
            .args(["--metrics", "none", "--log", "new.log", "--numa-node", "0"])
            .current_dir(cluster.scratch.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let _served = Served(child);
        if !has_nodes {
            continue;
        }
        let ready = std::io::BufReader::new(out)
            .lines()
            .map(Result::unwrap)
            .find(|line| line.contains("dev-OST0001"));
        assert!(ready.is_some(), "it was not served");
        let list = cluster.scratch.run(&["target", "list", "--dir", "c"]);
        assert!(list.contains("dev-OST0001"), "{list}");
    }
}

#[test]
fn a_second_server_of_a_target_and_an_occupied_port_are_refused() {
    let cluster = Cluster::up(&["--osts", "1"]);
    let without_log = |said: String| -> String {
        said.lines().filter(|l| !l.starts_with("ts=")).map(|l| format!("{l}\n")).collect()
    };
    let second = without_log(cluster.scratch.run(&["serve", "--port", "0", "--dir", "c/ost0"]));
    let status = cluster.status();
    let address = status["processes"][0]["addresses"][0].as_str().unwrap().to_owned();
    let port = address.trim_end_matches("@tcp").rsplit(':').next().unwrap().to_owned();
    cluster.scratch.run(&["format", "--mgs", "--fsname", "other", "o"]);
    let serve = ["serve", "--metrics", "none", "--dir", "o", "--port", &port];
    let occupied = without_log(cluster.scratch.run(&serve)).replace(&format!("--port {port}"), "--port PORT");
    let pid = |name: &str| {
        let processes = status["processes"].as_array().unwrap();
        processes.iter().find(|p| p["name"] == name).unwrap()["pid"].to_string()
    };
    let named = |text: &str, name: &str| text.replace(&format!("process {} ", pid(name)), "process PID ");
    let text = [named(&second, "ost0"), named(&occupied, "mgs").replace(&address, "ADDRESS")];
    check("occupied", &text.join("\n"));
    let foreign = cluster.scratch.run(&["fsck", "o", "c/ost0"]);
    assert!(foreign.contains("E1005") && foreign.contains("[exit code 1]"), "{foreign}");
}

#[test]
fn fsck_names_damage_and_changes_nothing() {
    let cluster = Cluster::up(&["--osts", "1"]);
    cluster.run(&["down"]);
    let at = |path: &str| cluster.scratch.path().join("c").join(path);
    let fsck = || cluster.scratch.run(&["fsck", "--dir", "c"]);
    assert!(fsck().ends_with("[exit code 0]\n"));
    let mut store = std::fs::read(at("mgs/config")).unwrap();
    store[30] ^= 1;
    std::fs::write(at("mgs/config"), &store).unwrap();
    std::fs::remove_file(at("ost0/superblock")).unwrap();
    let found = fsck();
    assert!(found.contains("E5006") && found.contains("E1007") && found.contains("2 findings"), "{found}");
    assert!(found.ends_with("[exit code 8]\n"), "{found}");
    assert_eq!(std::fs::read(at("mgs/config")).unwrap(), store);
    assert!(!at("ost0/superblock").exists(), "fsck repairs nothing");
}

#[test]
fn lctl_reads_and_sets_parameters() {
    let cluster = Cluster::up(&["--osts", "2"]);
    let run = |words: &[&str]| cluster.scratch.run(&[&["lctl"], words, &["--dir", "c"]].concat());
    let get = |pattern: &str| run(&["get_param", pattern]);
    let has = |said: String, lines: &[&str]| {
        assert!(lines.iter().all(|line| said.lines().any(|l| l == *line)), "{lines:?} in {said}");
    };
    has(
        get("obdfilter.*.no_create"),
        &["obdfilter.dev-OST0000.no_create=0", "obdfilter.dev-OST0001.no_create=0"],
    );
    has(run(&["set_param", "obdfilter.dev-OST0001.no_create=1"]), &["obdfilter.dev-OST0001.no_create=1"]);
    has(get("obdfilter/*1/no_create"), &["obdfilter.dev-OST0001.no_create=1", "[exit code 0]"]);
    has(run(&["set_param", "-n", "obdfilter.*.no_create=0"]), &["[exit code 0]"]);
    has(run(&["get_param", "-n", "obdfilter.*.no_create"]), &["0", "[exit code 0]"]);
    has(get("mdt.*.{recovery_status,num_exports}"), &["mdt.dev-MDT0000.recovery_status=status: COMPLETE"]);
    has(get("health_check"), &["health_check=healthy"]);
    let devices = run(&["dl"]);
    assert!(devices.contains("\n  3 UP obdfilter dev-OST0001 dev-OST0001_UUID "), "{devices}");
    has(devices, &["  0 UP mgs MGS MGS 4"]);
    let nids = run(&["list_nids"]);
    assert_eq!(nids.matches("127.0.0.1:").count(), 4, "{nids}");
    let text = [
        run(&["list_param", "-F", "obdfilter.*1.*"]),
        run(&["get_param", "-n", "version", "jobid_var"]).replace(env!("CARGO_PKG_VERSION"), "VERSION"),
        get("obdfiltre.*.no_create"),
        get("obdfilter.*.no_craete"),
        get("obdfilter.*.colour"),
        get("obdfilter.*.read_cache_enable"),
        get("obdfilter.dev-OST0007.no_create"),
        get("obdfilter.*"),
        get("colour"),
        run(&["set_param", "obdfilter.*.no_create=2"]),
        run(&["set_param", "obdfilter.*.kbytesfree=2"]),
        run(&["set_param", "obdfilter.*.no_create"]),
        run(&["set_param", "obdfilter.*=1"]),
    ];
    check("parameters", &text.join("\n"));
    cluster.run(&["kill", "ost1"]);
    has(get("health_check"), &["device dev-OST0001 reported unhealthy", "NOT HEALTHY"]);
    let half = get("obdfilter.*.kbytestotal");
    assert!(half.contains("does not answer: dev-OST0001") && half.ends_with("[exit code 7]\n"), "{half}");
}

/// Indices hold the term of the MDT, which is that of its start; how long readers are idle differs from run to run, and how
/// much is kept from device to device.
fn without_index(text: &str) -> String {
    let mut shown = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let is_idle = shown.ends_with(" (") || shown.ends_with("\"idle_seconds\": ");
        match digits.len() {
            0 => {}
            _ if shown.ends_with("\"bytes_max\": ") => shown.push_str("BYTES"),
            12.. => shown.push_str("INDEX"),
            _ if is_idle => shown.push_str("IDLE"),
            _ => shown.push_str(&digits),
        }
        digits.clear();
        shown.push(c);
    }
    shown
}

#[test]
fn readers_of_a_changelog_come_stay_and_go() {
    if !rustix::process::geteuid().is_root() {
        // Only root is answered.
        return;
    }
    let cluster = Cluster::up(&["--osts", "1"]);
    let run = |words: &[&str]| cluster.scratch.run(&[words, &["--dir", "c"]].concat());
    let register = ["lctl", "--device", "dev-MDT0000", "changelog_register"];
    let users = ["lctl", "get_param", "mdd.*.changelog_users"];
    let killed = || {
        cluster.run(&["kill", "mdt0"]);
        let said = cluster.run(&["start", "mdt0"]);
        assert!(said.ends_with("[exit code 0]\n"), "{said}");
        String::new()
    };
    let text = [
        run(&["lctl", "changelog_register"]),
        run(&["lctl", "--device", "dev-MDT0001", "changelog_register"]),
        run(&["lctl", "--device", "dev-OST0000", "changelog_register"]),
        run(&["lctl", "--device", "dev-MDT0000", "list_nids"]),
        run(&users),
        run(&register),
        run(&[&register[..], &["-n", "-u", "rbh", "-m", "CREAT,UNLNK"]].concat()),
        run(&[&register[..], &["-m", "CRAET"]].concat()),
        run(&[&register[..], &["-u", "a b"]].concat()),
        run(&users),
        run(&["lctl", "set_param", "mdd.*.changelog_mask=-CLOSE +ATIME"]),
        run(&["lctl", "get_param", "mdd.*.changelog_mask", "mdd.*.changelog_size"]),
        run(&["lfs", "changelog", "dev-MDT0000"]),
        run(&["lfs", "changelog", "--user", "cl9", "dev-MDT0000"]),
        run(&["lfs", "changelog_clear", "dev-MDT0000", "cl1", "0"]),
        run(&["lfs", "changelog_clear", "dev-MDT0000", "cl1", "999999999999999999"]),
        run(&["lfs", "changelog_clear", "dev-MDT0000", "1", "0"]),
        killed(),
        run(&["changelog", "list", "dev-MDT0000", "-o", "json"]),
        run(&["changelog", "clear", "dev-MDT0000", "cl2", "0"]),
        run(&["changelog", "deregister", "dev-MDT0000", "cl2", "-o", "json"]),
        run(&["lctl", "--device", "dev-MDT0000", "changelog_deregister", "cl1"]),
        run(&["lctl", "--device", "dev-MDT0000", "changelog_deregister", "cl1"]),
        run(&["changelog", "register", "dev-MDT0000"]),
    ];
    check("changelog", &without_index(&cluster.normal(&text.join("\n"))));
}

/// Offers of bash for the last of these words.
fn offered(cluster: &Cluster, words: &[&str]) -> Vec<String> {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_brindle"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let script = r#"
        source <(brindle completion bash)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9 COMPREPLY=()
        _clap_complete_brindle "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        [ ${#COMPREPLY[@]} = 0 ] || printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let out = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .args(words)
        .env("PATH", path)
        .current_dir(cluster.scratch.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{words:?}");
    String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_names_that_exist_now() {
    let cluster = Cluster::up(&["--osts", "2"]);
    cluster.scratch.run(&["pool", "create", "flash", "0-1", "--dir", "c"]);
    let offered = |words: &[&str]| offered(&cluster, words);
    assert_eq!(offered(&["brindle", "pool", "remove", "--dir", "c", ""]), ["flash"]);
    assert_eq!(
        offered(&["brindle", "pool", "remove", "--dir=c", "flash", ""]),
        ["dev-OST0000", "dev-OST0001"]
    );
    assert_eq!(offered(&["lctl", "pool_list", "--dir", "c", ""]), ["dev", "dev.flash"]);
    assert_eq!(offered(&["brindle", "dev", "kill", "--dir", "c", "o"]), ["ost0", "ost1"]);
    // Two parameters of each of two OSTs.
    assert_eq!(offered(&["lctl", "set_param", "--dir", "c", "obdf"]).len(), 4);
    assert_eq!(offered(&["lctl", "get_param", "--dir", "c", "ver"]), ["version"]);
    assert_eq!(offered(&["brindle", "explain", "E500"]).first().map(String::as_str), Some("E5001"));
    assert_eq!(offered(&["lfs", "getst"]), ["getstripe"]);
    cluster.run(&["kill", "mgs"]);
    // An address to which packets go and from which none come back.
    for nowhere in [["--dir", "c"], ["--mgs", "192.0.2.1"]] {
        let begun = std::time::Instant::now();
        assert_eq!(offered(&[&["brindle", "pool", "remove"], &nowhere[..], &["f"]].concat()), [""; 0]);
        assert!(begun.elapsed().as_millis() < 2_000, "{nowhere:?} took {:?}", begun.elapsed());
    }
}
