//! Policies on real mounts: the tier drains itself and files come back. Policies that delete are off until they were confirmed. An engine
//! that is killed in the middle loses and doubles nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use brindle_tests::cluster::{Cluster, Options, Output, binary};
use brindle_tests::{bytes, same_bytes};

use crate::dice::seed;

/// Longest wait of these tests: each step takes seconds, and more on a busy machine.
const DONE_WITHIN: Duration = Duration::from_secs(60);
/// Interval of the checks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const MIB: u64 = 1 << 20;

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < DONE_WITHIN, "this does not happen: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of our own")
}

fn state_dir(cluster: &Cluster) -> PathBuf {
    cluster.outside().join("policy")
}

/// Writes a text of policies.
fn policy(cluster: &Cluster, content: &str) -> PathBuf {
    let path = cluster.outside().join("policy.conf");
    fs::write(&path, content).unwrap();
    path
}

/// `brindle policy VERB FILE MNT`.
fn ask(cluster: &Cluster, verb: &str, file: &Path) -> Output {
    let state = format!("--state={}", state_dir(cluster).display());
    let mut args = vec!["policy", verb, &state];
    if verb == "run" {
        args.push("--once");
    }
    args.push(text(file));
    if verb != "confirm" {
        args.push(text(cluster.a()));
    }
    cluster.brindle(&args)
}

/// An engine; killed when it goes.
struct Engine(Child);

impl Engine {
    fn start(cluster: &Cluster, file: &Path) -> Engine {
        let log = format!("--log={}", cluster.outside().join("policy.log").display());
        let state = format!("--state={}", state_dir(cluster).display());
        let args = ["policy", "run", &log, &state, text(file), text(cluster.a())];
        Engine(Command::new(binary()).args(args).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn used_bytes(mount: &Path) -> u64 {
    let space = rustix::fs::statvfs(mount).unwrap();
    (space.f_blocks - space.f_bavail) * space.f_frsize
}

fn count(cluster: &Cluster, files: &[PathBuf], word: &str) -> usize {
    let mut args = vec!["hsm_state"];
    args.extend(files.iter().map(|path| text(path)));
    cluster.lfs(&args).lines().filter(|line| line.contains(word)).count()
}

#[test]
fn the_tier_drains_itself_and_files_come_back() {
    seed("policies_drain");
    let options =
        Options { osts: 2, mounts: 1, ost_size: Some("128MiB"), archive: true, ..Options::default() };
    let cluster = Cluster::up("policies_drain", &options);
    let before = used_bytes(cluster.a());
    let (high, low) = (before + 30 * MIB, before + 14 * MIB);
    let file = policy(
        &cluster,
        &format!(
            "Migration_policies {{ policy default {{ condition {{ last_mod >= 1s }} }} }}
             Migration_parameters {{ runtime_interval = 1s; }}
             Purge_trigger {{ trigger_on = global_usage; high_threshold_vol = {high}; low_threshold_vol = {low}; check_interval = 1s;
                              post_trigger_wait = 3s; }}"
        ),
    );
    let _engine = Engine::start(&cluster, &file);
    let files: Vec<(PathBuf, Vec<u8>)> =
        (0..8).map(|n| (cluster.a().join(format!("f{n}")), bytes(n, 6 << 20))).collect();
    for (path, data) in &files {
        fs::write(path, data).unwrap();
    }
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| path.clone()).collect();
    wait("the tier drains", || used_bytes(cluster.a()) <= low + MIB);
    let released = count(&cluster, &paths, "released");
    assert!((5..8).contains(&released), "down to the low mark and no further: {released}");
    for (path, data) in &files {
        same_bytes(&fs::read(path).unwrap(), data, "a file that a policy has released");
    }
    let why = cluster.brindle(&["policy", "why", "--file", text(&file), text(&paths[7])]);
    assert!(why.ok() && why.text.contains("migration: ") && why.text.contains("purge: "), "{why}");
    cluster.assert_sound();
}

#[test]
fn what_deletes_is_confirmed_first_and_a_killed_engine_doubles_nothing() {
    seed("policies_confirm");
    let cluster = Cluster::up("policies_confirm", &Options { osts: 2, archive: true, ..Options::default() });
    // The cluster's own engine would archive old files beside those that are counted here.
    cluster.kill(&["policy"]);
    nothing_is_deleted_unless_it_was_confirmed(&cluster);
    nobody_serves_archive_9(&cluster);
    an_engine_is_killed_in_the_middle(&cluster);
    cluster.assert_sound();
}

fn nothing_is_deleted_unless_it_was_confirmed(cluster: &Cluster) {
    let dir = cluster.a().join("scratch");
    fs::create_dir(&dir).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(7200);
    let make = |name: &str, is_old: bool| {
        let path = dir.join(name);
        fs::write(&path, name).unwrap();
        if is_old {
            File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        }
        path
    };
    let (old, keep, young) = (make("old", true), make("keep.me", true), make("young", false));
    let open = make("open", true);
    let held = File::open(cluster.b().join("scratch/open")).unwrap();
    let content = format!(
        "cleanup_rules {{ ignore {{ name == keep.* }} rule default {{ condition {{ tree == \"{}\" and last_mod > 1h }} }} }}
         cleanup_trigger {{ trigger_on = periodic; check_interval = 1s; }}",
        dir.display()
    );
    let file = policy(cluster, &content);
    assert!(ask(cluster, "run", &file).ok());
    assert!(old.exists(), "it was not confirmed");
    let refused = ask(cluster, "confirm", &file);
    assert!(!refused.ok() && refused.text.contains("not previewed"), "{refused}");
    let preview = ask(cluster, "preview", &file);
    assert!(
        preview.ok() && preview.text.contains("/scratch/old") && !preview.text.contains("keep.me"),
        "{preview}"
    );
    assert!(old.exists(), "a preview changes nothing");
    assert!(ask(cluster, "confirm", &file).ok());
    // A changed text is not confirmed by the confirmation of the first one.
    let file = policy(cluster, &content.replace("1h", "90min"));
    assert!(ask(cluster, "run", &file).ok() && old.exists());
    let file = policy(cluster, &format!("# a comment\n{content}"));
    assert!(ask(cluster, "run", &file).ok());
    assert!(!old.exists() && keep.exists() && young.exists() && open.exists());
    drop(held);
    wait("what is open no more goes, too", || {
        assert!(ask(cluster, "run", &file).ok());
        !open.exists()
    });
    assert!(keep.exists() && young.exists() && dir.exists());
    let typo = policy(cluster, "cleanup_rules {\n rule default { condition { last_mode > 1h } } }");
    let refused = ask(cluster, "run", &typo);
    assert!(!refused.ok() && refused.text.contains(":2:29"), "{refused}");
}

/// The status names actions that wait for an archive without an agent.
fn nobody_serves_archive_9(cluster: &Cluster) {
    let path = cluster.a().join("nine");
    fs::write(&path, "nine").unwrap();
    cluster.lfs(&["hsm_archive", "--archive", "9", text(&path)]);
    let status = cluster.brindle(&["hsm", "status", text(cluster.a())]);
    assert!(status.text.contains("nobody serves archive 9"), "{status}");
    wait("the alarm", || {
        let status = cluster.brindle(&["status", text(cluster.a())]);
        status.text.contains("nobody serves archive 9") && status.text.contains("E6016")
    });
    cluster.lfs(&["hsm_cancel", text(&path)]);
}

fn an_engine_is_killed_in_the_middle(cluster: &Cluster) {
    const FILES: usize = 120;
    let dir = cluster.a().join("many");
    fs::create_dir(&dir).unwrap();
    let files: Vec<PathBuf> = (0..FILES).map(|n| dir.join(format!("f{n}"))).collect();
    for path in &files {
        fs::write(path, text(path)).unwrap();
    }
    let file = policy(
        cluster,
        "migration_rules { rule default { condition { tree == many and last_mod >= 0 } } }
         migration_parameters { runtime_interval = 1s; rate_limit { max_count = 20; period_ms = 400; } }",
    );
    let engine = Engine::start(cluster, &file);
    wait("it is in the middle", || (20..FILES).contains(&count(cluster, &files, "archived")));
    drop(engine);
    let history = fs::read_to_string(state_dir(cluster).join("history.json")).unwrap();
    assert!(history.contains("\"running\": {"), "it was in a run: {history}");
    let _engine = Engine::start(cluster, &file);
    wait("all are archived", || count(cluster, &files, "archived") == FILES);
    let agents = cluster.brindle(&["lctl", "get_param", "mdt.*.hsm.agents"]);
    assert!(agents.text.contains(&format!("ok:{FILES} errors:0")), "each was archived once: {agents}");
    for path in &files {
        let copy = cluster.archive().join("shadow/many").join(path.file_name().unwrap());
        assert_eq!(fs::read_to_string(copy).unwrap(), text(path));
    }
    let status =
        cluster.brindle(&["policy", "history", &format!("--state={}", state_dir(cluster).display())]);
    assert!(status.text.contains("was killed while it ran"), "{status}");
}
