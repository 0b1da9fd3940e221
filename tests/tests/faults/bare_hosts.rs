//! Bare hosts on one machine: an installation finds the files that it expects, and the end of the cluster leaves none of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brindle_tests::cluster::{Cluster, Options, Output, binary};

/// Longest wait for an event that happens at once.
const LIMIT: Duration = Duration::from_secs(20);
/// Directories of the machine that the hosts mount theirs on.
const MOUNT_POINTS: [&str; 3] = ["/etc/brindle", "/var/lib/brindle", "/run/brindle"];

/// `brindle dev host ARGS`, as JSON.
fn host(cluster: &Cluster, args: &[&str]) -> serde_json::Value {
    let words: Vec<&str> = ["host"].iter().chain(args).copied().chain(["-o", "json"]).collect();
    let out = cluster.dev(&words);
    assert!(out.ok(), "{out}");
    serde_json::from_str(&out.stdout).unwrap()
}

/// The words of `brindle dev host run HOST -- sh -c SCRIPT`.
fn words(cluster: &Cluster, host: &str, script: &str) -> Vec<String> {
    let dir = format!("--dir={}", cluster.dir().display());
    ["dev", "host", "run", &dir, host, "--", "sh", "-c", script].map(str::to_owned).to_vec()
}

/// Runs a script on a host.
pub(crate) fn sh(cluster: &Cluster, host: &str, script: &str) -> Output {
    cluster.brindle(&words(cluster, host, script))
}

/// Output of a script on a host; the script has to succeed.
pub(crate) fn said(cluster: &Cluster, host: &str, script: &str) -> String {
    let out = sh(cluster, host, script);
    assert!(out.ok(), "{out}");
    out.stdout.trim().to_owned()
}

/// Starts a script on a host, whose command line has a word by which it is found.
pub(crate) fn start(cluster: &Cluster, host: &str, script: &str) -> Child {
    starting(cluster, host, script).spawn().unwrap()
}

/// Starts a script on a host; what its programs complain of is kept in a file.
pub(crate) fn start_kept(cluster: &Cluster, host: &str, script: &str, complaints: &Path) -> Child {
    starting(cluster, host, script).stderr(fs::File::create(complaints).unwrap()).spawn().unwrap()
}

fn starting(cluster: &Cluster, host: &str, script: &str) -> Command {
    let mut command = Command::new(binary());
    command.args(words(cluster, host, script)).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Waits for a script that [`start_kept`] started, which has to succeed.
pub(crate) fn succeeds(child: &mut Child, complaints: &Path) {
    let ended = child.wait().unwrap();
    let said = fs::read_to_string(complaints).unwrap();
    assert!(ended.success(), "a program saw an error, {ended}: {said}");
}

/// Pids on the machine of the processes with exactly this command line.
fn pids(line: &[&str]) -> Vec<i32> {
    let wanted: String = line.iter().map(|word| format!("{word}\0")).collect();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == wanted.as_bytes()))
        .collect()
}

/// The letter of a process's state; none when it is gone.
fn state_of(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Stops a child that was not waited for. Until it is stopped it could still take in how its own child ended.
fn stop(child: &Child) {
    let pid = child.id().cast_signed();
    // SAFETY: a plain call; the pid is the child's until somebody waits for it.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    until("stopping", || state_of(pid) == Some('T'));
}

pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(LIMIT, what, is_so);
}

/// Waits for what takes longer than usual.
pub(crate) fn until_within(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < limit, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A word in the command lines of a test's processes that no other test has.
fn mark(number: u32) -> String {
    format!("{}.{number}", 7_000_000 + std::process::id())
}

/// Traces of a bare cluster that could be left on the machine.
struct Traces {
    dir: String,
    namespaces: Vec<String>,
    dirs_before: Vec<bool>,
}

impl Traces {
    /// Call it while the cluster is up, with what [`dirs_there`] said before.
    fn of(cluster: &Cluster, dirs_before: Vec<bool>) -> Traces {
        let hosts = host(cluster, &["list"]);
        let hosts = hosts["hosts"].as_array().unwrap();
        let namespaces = hosts.iter().map(|host| host["namespace"].as_str().unwrap().to_owned()).collect();
        Traces { dir: cluster.dir().display().to_string(), namespaces, dirs_before }
    }

    /// No process, namespace, mount or loop device is left, nor a directory that was made.
    fn assert_none(&self) {
        let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        for namespace in &self.namespaces {
            assert!(!Path::new(namespace).exists(), "{namespace}");
            let name = Path::new(namespace).file_name().unwrap().to_str().unwrap();
            assert!(!listed.contains(name), "{listed}");
        }
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let (line, mounts) = (read("cmdline"), read("mountinfo"));
            let (line, mounts) = (String::from_utf8_lossy(&line), String::from_utf8_lossy(&mounts));
            assert!(!line.contains("host-init") || !line.contains(&self.dir), "process {line}");
            assert!(!mounts.contains(&self.dir), "mount: {mounts}");
        }
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            assert!(!file.contains(&self.dir), "loop device of {file}");
        }
        assert_eq!(dirs_there(), self.dirs_before, "{MOUNT_POINTS:?}");
    }
}

fn dirs_there() -> Vec<bool> {
    MOUNT_POINTS.iter().map(|at| Path::new(at).exists()).collect()
}

fn init_of(cluster: &Cluster, name: &str) -> i32 {
    let process = cluster.process(name);
    assert!(process.running(), "{process:?}");
    process.pid.unwrap()
}

/// Has one host listen, and another speak to it by its name. Programs that could do that are not on every machine; this one is.
fn assert_reached(cluster: &Cluster, from: &str, to: &str) {
    let this = std::env::current_exe().unwrap();
    let role = |host: &str, role: &str| {
        let script = format!(
            "exec '{}' --exact bare_hosts::a_program_of_a_host --ignored --nocapture",
            this.display()
        );
        let mut command = Command::new(binary());
        command.args(words(cluster, host, &script)).env("BRINDLE_TEST_ROLE", role);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    };
    let mut listens = role(to, "listen");
    let mut speaks = role(from, &format!("speak:{to}"));
    assert!(speaks.wait().unwrap().success());
    assert!(listens.wait().unwrap().success());
}

/// Not a test by itself: it runs on the hosts of [`assert_reached`].
#[test]
#[ignore = "a part of another test"]
fn a_program_of_a_host() {
    use std::io::{Read, Write};
    const PORT: u16 = 4711;
    let role = std::env::var("BRINDLE_TEST_ROLE").unwrap_or_default();
    if role == "listen" {
        let (mut peer, _) = std::net::TcpListener::bind(("0.0.0.0", PORT)).unwrap().accept().unwrap();
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    } else if let Some(name) = role.strip_prefix("speak:") {
        let mut peer = None;
        until("a connection", || {
            peer = std::net::TcpStream::connect((name, PORT)).ok();
            peer.is_some()
        });
        peer.unwrap().write_all(b"hello").unwrap();
    }
}

#[test]
fn bare_hosts_have_names_files_and_processes_of_their_own() {
    let dirs_before = dirs_there();
    let cluster = Cluster::up_bare("bare", 2);
    let traces = Traces::of(&cluster, dirs_before);
    assert_eq!(said(&cluster, "h1", "hostname"), "h1");
    assert_reached(&cluster, "h1", "h2");
    assert_eq!(said(&cluster, "h1", "echo $$ && ls /proc | grep -c '^[0-9]'").lines().count(), 2);
    assert!(said(&cluster, "h2", "ls /proc | grep -c '^[0-9]'").parse::<u32>().unwrap() < 9, "own pids");
    let init = said(&cluster, "h1", "tr '\\0' ' ' </proc/1/cmdline");
    assert!(init.contains("dev host-init"), "{init}");
    for at in MOUNT_POINTS {
        said(&cluster, "h1", &format!("test -z \"$(ls {at})\" && echo h1 >{at}/mine"));
        assert_eq!(said(&cluster, "h2", &format!("ls {at}")), "");
        assert!(!Path::new(at).join("mine").exists(), "the machine has none of it");
    }
    said(
        &cluster,
        "h1",
        "mkdir -p /run/brindle/m && mount -t tmpfs none /run/brindle/m && touch /run/brindle/m/f",
    );
    assert_eq!(said(&cluster, "h1", "ls /run/brindle/m"), "f", "mounts last as long as the host");
    let there = "/var/lib/brindle/here";
    assert_eq!(said(&cluster, "h1", "pwd"), std::env::current_dir().unwrap().display().to_string());
    assert_eq!(said(&cluster, "h1", &format!("mkdir {there} && cd {there} && pwd")), there);
    assert_eq!(sh(&cluster, "h1", "exit 7").code, 7);
    assert_eq!(sh(&cluster, "h1", "kill -TERM $$").code, 128 + libc::SIGTERM);
    for (host, told) in [("h3", "did you mean 'h"), ("oss1", "h1, h2")] {
        let out = sh(&cluster, host, "true");
        assert!(!out.ok() && out.text.contains(told), "{out}");
    }
    cluster.down();
    traces.assert_none();
    let stopped = sh(&cluster, "h1", "true");
    assert!(!stopped.ok() && stopped.text.contains("the cluster is stopped"), "{stopped}");
    cluster.up_again();
    assert_eq!(said(&cluster, "h1", "ls /etc/brindle /run/brindle"), "/etc/brindle:\nmine\n\n/run/brindle:");
    let purged = cluster.dev(&["down", "--purge"]);
    assert!(purged.ok() && !cluster.dir().exists(), "{purged}");
    traces.assert_none();
}

#[test]
fn processes_of_a_bare_host_die_and_hang_with_it() {
    let cluster = Cluster::up_bare("bare-kill", 2);
    let (sleeper, orphan) = (mark(1), mark(2));
    said(&cluster, "h1", &format!("sleep {orphan} </dev/null >/dev/null 2>&1 & sh -c 'true &'"));
    let mut sent = start(&cluster, "h1", &format!("exec sleep {sleeper}"));
    let found = |mark: &str| pids(&["sleep", mark]);
    until("a process", || found(&sleeper).len() == 1 && found(&orphan).len() == 1);
    let both = [found(&sleeper)[0], found(&orphan)[0]];
    let zombies = "grep -l '^State:.Z' /proc/[0-9]*/status; true";
    until("reaping", || said(&cluster, "h1", zombies).is_empty());
    assert_eq!(host(&cluster, &["freeze", "h1"])["state"], "frozen");
    until("stopping", || both.iter().all(|pid| state_of(*pid) == Some('T')));
    let frozen = sh(&cluster, "h1", "true");
    assert!(!frozen.ok() && frozen.text.contains("dev host thaw"), "{frozen}");
    assert_eq!(host(&cluster, &["thaw", "h1"])["state"], "running");
    until("going on", || both.iter().all(|pid| state_of(*pid) == Some('S')));
    for (fault, link) in [("cut", "cut"), ("heal", "up")] {
        assert_eq!(host(&cluster, &[fault, "h1"])["link"], link);
    }
    assert_eq!(host(&cluster, &["shape", "h1", "1gbit"])["rate_bits_per_second"], 1_000_000_000);
    said(&cluster, "h1", "touch /var/lib/brindle/disk /etc/brindle/kept");
    // A process that waits for a command on the host, and is stopped meanwhile, does not keep the host from
    // ending.
    stop(&sent);
    assert_eq!(host(&cluster, &["kill", "h1", "--destroy-disks"])["state"], "dead");
    assert!(found(&sleeper).is_empty() && found(&orphan).is_empty());
    assert_eq!(sent.wait().unwrap().code(), Some(128 + libc::SIGKILL));
    let dead = sh(&cluster, "h1", "true");
    assert!(!dead.ok() && dead.text.contains("dev host start"), "{dead}");
    assert_eq!(said(&cluster, "h2", "hostname"), "h2");
    assert_eq!(host(&cluster, &["start", "h1"])["state"], "running");
    assert_eq!(said(&cluster, "h1", "ls /etc/brindle"), "kept");
    assert_eq!(said(&cluster, "h1", "ls /var/lib/brindle"), "");
    assert_reached(&cluster, "h2", "h1");
}

#[test]
fn nothing_is_left_of_bare_hosts_whatever_is_killed() {
    let dirs_before = dirs_there();
    let cluster = Cluster::up_bare("bare-crash", 3);
    let traces = Traces::of(&cluster, dirs_before);
    let orphan = mark(3);
    said(&cluster, "h1", &format!("sleep {orphan} </dev/null >/dev/null 2>&1 &"));
    cluster.kill(&["h1"]);
    until("the end of a host", || pids(&["sleep", &orphan]).is_empty());
    assert_eq!(host(&cluster, &["list"])["hosts"][0]["state"], "dead");
    let running = cluster.dev(&["up"]);
    assert!(!running.ok() && running.text.contains("dev host start"), "{running}");
    host(&cluster, &["freeze", "h2"]);
    host(&cluster, &["cut", "h3"]);
    cluster.down();
    traces.assert_none();
    cluster.up_again();
    // An init that was killed waits for a command whose sender is stopped.
    let sleeper = mark(4);
    let mut sent = start(&cluster, "h2", &format!("exec sleep {sleeper}"));
    until("a process", || !pids(&["sleep", &sleeper]).is_empty());
    let init = init_of(&cluster, "h2");
    stop(&sent);
    // SAFETY: a plain call; the process is the host's, as `dev status` has just compared.
    unsafe { libc::kill(init, libc::SIGKILL) };
    until("the end of a process", || pids(&["sleep", &sleeper]).is_empty());
    let since = Instant::now();
    cluster.down();
    assert!(since.elapsed() < Duration::from_secs(8), "nobody's patience ran out");
    sent.wait().unwrap();
    traces.assert_none();
    for wait_ms in [0, 10, 20, 40, 80] {
        let dir = format!("--dir={}", cluster.dir().display());
        let mut up = Command::new(binary());
        let mut up = up.args(["dev", "up", &dir]).stderr(Stdio::null()).spawn().unwrap();
        // The moment of the fault.
        std::thread::sleep(Duration::from_millis(wait_ms));
        up.kill().unwrap();
        up.wait().unwrap();
        cluster.down();
        traces.assert_none();
    }
    cluster.up_again();
    let init = init_of(&cluster, "h2");
    let killed = start(&cluster, "h2", "kill 1; sleep 60").wait().unwrap();
    assert_eq!(killed.code(), Some(128 + libc::SIGKILL), "an init ends at SIGTERM");
    until("the end of an init", || state_of(init).is_none_or(|state| state == 'Z'));
}

#[test]
fn bare_hosts_are_told_from_others() {
    let cluster = Cluster::up_bare("bare-wishes", 1);
    for (wish, told) in [
        (&["up", "--hosts=2", "--bare", "--osts=3"][..], "cannot be used with"),
        (&["up", "--hosts=2", "--bare", "--clients=1"][..], "cannot be used with"),
        (&["up", "--bare"][..], "--hosts"),
        (&["kill", "h1"][..], "are bare"),
        (&["add-ost"][..], "it is made of hosts"),
    ] {
        let out = cluster.dev(wish);
        assert!(!out.ok() && out.text.contains(told), "{out}");
    }
    let status = cluster.brindle(&["status".to_owned(), format!("--dir={}", cluster.dir().display())]);
    assert!(!status.ok() && status.text.contains("dev host run"), "{status}");
    cluster.down();
    for (wish, told) in [
        (&["up", "--hosts=2", "--bare"][..], "keeps the hosts"),
        (&["up", "--hosts=1"][..], "keeps the hosts"),
        (&["up", "--osts=2"][..], "are bare"),
    ] {
        let out = cluster.dev(wish);
        assert!(!out.ok() && out.text.contains(told), "{out}");
    }
    drop(cluster);
    let options = Options { hosts: Some(1), mounts: 0, osts: 1, ..Options::default() };
    let cluster = Cluster::up("bare-not", &options);
    assert_eq!(said(&cluster, "mds1", "hostname; ls /sys/class/net >/dev/null"), "mds1");
    let namespace = PathBuf::from(host(&cluster, &["list"])["hosts"][0]["namespace"].as_str().unwrap());
    let inside = said(&cluster, "mds1", "stat -L -c %i /proc/self/ns/net");
    let outside = std::os::unix::fs::MetadataExt::ino(&fs::metadata(namespace).unwrap());
    assert_eq!(inside, outside.to_string(), "its network");
    assert_eq!(sh(&cluster, "mds1", "exit 9").code, 9);
}
