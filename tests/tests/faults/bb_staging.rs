//! Files of jobs are staged by several hosts: the orchestrator on h1 with a brick, agents on h2 and h3 that copy files below a directory which
//! all hosts share. The state of the source is told from here, outside of all hosts.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use brindle_tests::cluster::{Cluster, binary};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, lgetxattr, setxattr};
use tempfile::TempDir;

use crate::bare_hosts::{said, sh, start, until, until_within};
use crate::dice::seed;
use crate::enrolment::{brindle, done, end, join, serve};

/// Where jobs find their buffers.
const ROOT: &str = "/run/brindle/jobs";
/// The user of the jobs, and a group of the user's.
const UID: u32 = 4711;
/// Longest wait for a copy, and for what begins when a host was silent for a while.
const COPY_LIMIT: Duration = Duration::from_secs(120);
/// Files of a copy that takes so long that a host dies in its midst.
const MANY_FILES: u32 = 3000;

struct Site {
    cluster: Cluster,
    /// Processes that hosts run, as this test has started them.
    children: Vec<Child>,
    /// The file system that all hosts share.
    shared: TempDir,
}

impl Site {
    fn up(name: &str) -> Site {
        seed(name);
        let shared = tempfile::Builder::new().prefix("brindle-staging").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(shared.path(), Permissions::from_mode(0o755)).unwrap();
        chown(shared.path(), Some(UID), Some(UID)).unwrap();
        let cluster = Cluster::up_bare(name, 3);
        done(&cluster, "h1", "cluster init --fs scratch");
        let children = vec![serve(&cluster, "h1")];
        for host in ["h2", "h3"] {
            let joined = join(&cluster, host, "client");
            assert!(joined.ok(), "{joined}");
        }
        let mut site = Site { cluster, children, shared };
        said(&site.cluster, "h1", "mkdir -p /var/lib/brindle/brick");
        let program = binary().display().to_string();
        let script = format!(
            "exec '{program}' bb serve --listen h1 --mount-root {ROOT} --log /var/lib/brindle/bb.log"
        );
        site.children.push(start(&site.cluster, "h1", &script));
        until("orchestrating", || brindle(&site.cluster, "h1", "bb node list").ok());
        done(&site.cluster, "h1", "bb brick add --name b0 --capacity 512MiB /var/lib/brindle/brick");
        for host in ["h2", "h3"] {
            site.agent(host);
        }
        site
    }

    /// Starts the agent of a host, and waits until it has registered.
    fn agent(&mut self, host: &str) {
        let (program, shared) = (binary().display().to_string(), self.shared.path().display());
        let script = format!(
            "echo $$ > /run/brindle/agent.pid; exec '{program}' bb agent h1 --mount-root {ROOT} --stage {shared} \
             --log /var/lib/brindle/agent.log"
        );
        self.children.push(start(&self.cluster, host, &script));
        until("registering", || self.state_of(host) == "up");
    }

    fn kill_agent(&self, host: &str) {
        said(&self.cluster, host, "kill -9 $(cat /run/brindle/agent.pid)");
    }

    fn json(&self, words: &str) -> serde_json::Value {
        serde_json::from_str(&done(&self.cluster, "h1", &format!("{words} -o json"))).unwrap()
    }

    fn state_of(&self, node: &str) -> String {
        let all = self.json("bb node list");
        let found = all["nodes"].as_array().unwrap().iter().find(|one| one["name"] == node);
        found.map_or_else(String::new, |one| one["state"].as_str().unwrap().to_owned())
    }

    fn buffer(&self, job: &str) -> serde_json::Value {
        let all = self.json("bb list");
        let found = all["buffers"].as_array().unwrap().iter().find(|buffer| buffer["job"] == job).cloned();
        found.unwrap_or_default()
    }

    /// The copy of a job: the hosts that have made it, by name.
    fn hosts_of(&self, job: &str) -> BTreeMap<String, (u64, String)> {
        let buffer = self.buffer(job);
        let hosts = buffer["staging"]["hosts"].as_array().cloned().unwrap_or_default();
        let one = |host: &serde_json::Value| {
            let word = |key: &str| host[key].as_str().unwrap().to_owned();
            (word("name"), (host["files"].as_u64().unwrap(), word("reason")))
        };
        hosts.iter().map(one).collect()
    }

    /// A call of Slurm, which has to succeed.
    fn call(&self, words: &str) -> String {
        done(&self.cluster, "h1", &format!("dacctl {words}"))
    }

    /// A job that stages a directory in, and to `out` in the shared directory.
    fn set_up(&self, job: &str, source: &Path) {
        let (source, shared) = (source.display(), self.shared.path().display());
        let script = format!(
            "printf '#!/bin/sh\\n#DW jobdw type=scratch capacity=256MiB access_mode=striped\\n\
             #DW stage_in source={source} destination=$DW_JOB_STRIPED/d type=directory\\n\
             #DW stage_out source=$DW_JOB_STRIPED/d destination={shared}/out type=directory\\n' > /run/brindle/{job}.sh; \
             printf 'h2\\n' > /run/brindle/{job}.nodes"
        );
        said(&self.cluster, "h1", &script);
        self.call(&format!(
            "setup --token {job} --job /run/brindle/{job}.sh --caller SLURM --user {UID} --groupid {UID} \
             --capacity default:256MiB"
        ));
    }

    /// The job runs, and does nothing.
    fn run(&self, job: &str) {
        self.call(&format!(
            "pre_run --token {job} --job /run/brindle/{job}.sh --nodehostnamefile /run/brindle/{job}.nodes"
        ));
        self.call(&format!("post_run --token {job}"));
    }

    /// Begins a phase of a job that takes long.
    fn begin(&self, phase: &str, job: &str) -> Child {
        let program = binary().display().to_string();
        start(&self.cluster, "h1", &format!("exec '{program}' dacctl {phase} --token {job}"))
    }

    /// Nothing is mounted for staging on a host.
    fn is_free(&self, host: &str) {
        let mounted = "grep /var/lib/brindle/bb-agent/stage /proc/mounts || true";
        until("unmounting", || said(&self.cluster, host, mounted).is_empty());
    }
}

/// Everything of an entry that staging keeps.
#[derive(Debug, PartialEq)]
struct Kept {
    mode: u32,
    owner: (u32, u32),
    times: (i64, i64),
    bytes: Vec<u8>,
    link: Option<PathBuf>,
    /// The first name of the file, in the order of paths.
    first_name: PathBuf,
    attribute: Option<Vec<u8>>,
    is_sparse: bool,
}

fn kept(root: &Path) -> BTreeMap<PathBuf, Kept> {
    let (mut paths, mut at) = (vec![root.to_owned()], 0);
    while at < paths.len() {
        if fs::symlink_metadata(&paths[at]).unwrap().is_dir() {
            paths.extend(fs::read_dir(&paths[at]).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    paths.sort();
    let mut first_names = HashMap::new();
    let one = |path: PathBuf| {
        let meta = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().to_owned();
        let mut value = [0; 64];
        let attribute = lgetxattr(&path, "user.origin", &mut value[..]).ok();
        let kept = Kept {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            times: (meta.mtime(), meta.mtime_nsec()),
            bytes: if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() },
            link: fs::read_link(&path).ok(),
            first_name: first_names.entry(meta.ino()).or_insert_with(|| name.clone()).clone(),
            attribute: attribute.map(|n| value[..n].to_vec()),
            is_sparse: meta.len() > 1 << 20 && meta.blocks() * 512 < meta.len() / 2,
        };
        (name, kept)
    };
    paths.into_iter().map(one).collect()
}

/// What was staged is the source, entry by entry, and nothing else is there.
fn is_same(source: &Path, copy: &Path) {
    let (source, copy) = (kept(source), kept(copy));
    assert_eq!(source.keys().collect::<Vec<_>>(), copy.keys().collect::<Vec<_>>());
    for (name, kept) in &source {
        let copied = &copy[name];
        let (bytes, copied_bytes) = (kept.bytes.len(), copied.bytes.len());
        let facts =
            |kept: &Kept| format!("{:o} {:?} {:?} {:?}", kept.mode, kept.owner, kept.times, kept.attribute);
        assert!(
            kept == copied,
            "{} was {bytes} bytes, {}; is {copied_bytes} bytes, {}; links to {:?}, {:?}",
            name.display(),
            facts(kept),
            facts(copied),
            kept.first_name,
            copied.first_name
        );
    }
}

/// A file of the user's with times of its own.
fn give(path: &Path, mode: u32, at_s: i64) {
    lchown(path, Some(UID), Some(UID)).unwrap();
    if !path.is_symlink() {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let at = Timespec { tv_sec: at_s, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: at, last_modification: at };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Small files in several directories, further names of some, holes, links, attributes, and a file that is divided.
fn make_source(source: &Path, files: u32) {
    for sub in ["a/deep", "b", "closed", "empty"] {
        fs::create_dir_all(source.join(sub)).unwrap();
    }
    for number in 0..files {
        let file = source.join(["a/deep", "b", "closed"][number as usize % 3]).join(format!("f{number}"));
        fs::write(&file, format!("{number} ").repeat(number as usize % 700)).unwrap();
        if number % 10 == 0 {
            setxattr(&file, "user.origin", number.to_string().as_bytes(), XattrFlags::empty()).unwrap();
        }
        give(&file, [0o640, 0o755, 0o400][number as usize % 3], 1_000_000 + i64::from(number));
    }
    for (first, name) in [("a/deep/f0", "b/second"), ("a/deep/f0", "third"), ("b/f1", "a/again")] {
        fs::hard_link(source.join(first), source.join(name)).unwrap();
    }
    symlink("../b/f1", source.join("a/link")).unwrap();
    give(&source.join("a/link"), 0, 5_000);
    let large = File::create(source.join("large")).unwrap();
    large.set_len(150 << 20).unwrap();
    for at in [0, 20 << 20, 70 << 20, (150 << 20) - 100_000] {
        let bytes: Vec<u8> = (0..100_000_u64).map(|n| ((n + at) % 251) as u8).collect();
        large.write_all_at(&bytes, at).unwrap();
    }
    give(&source.join("large"), 0o644, 2_000);
    for (dir, mode) in
        [("a/deep", 0o750), ("a", 0o755), ("b", 0o2750), ("closed", 0o500), ("empty", 0o711), ("", 0o755)]
    {
        give(&source.join(dir), mode, 9_000);
    }
}

#[test]
fn several_hosts_stage_what_is_the_source_to_the_last_attribute() {
    let site = Site::up("bb-staging");
    let (source, out) = (site.shared.path().join("in"), site.shared.path().join("out"));
    make_source(&source, 900);
    site.set_up("1", &source);
    site.call("data_in --token 1");
    let hosts = site.hosts_of("1");
    for host in ["h2", "h3"] {
        let (files, reason) = &hosts[host];
        assert!(*files > 0 && reason.is_empty(), "{hosts:?}");
        site.is_free(host);
    }
    // 903 names of small files and the large one, by whichever host.
    let staging = site.buffer("1")["staging"].clone();
    assert_eq!((&staging["files"], &staging["all_files"]), (&904.into(), &904.into()), "{staging}");
    assert_eq!((&staging["ended"], &staging["direction"]), (&true.into(), &"in".into()));
    let shown = done(&site.cluster, "h1", "bb show 1");
    assert!(shown.contains("staged in: 904 of 904 files, "), "{shown}");
    assert!(shown.contains("NOT USED BECAUSE"), "{shown}");
    site.run("1");
    site.call("data_out --token 1");
    assert!(site.hosts_of("1").iter().filter(|(name, _)| *name != "h1").all(|(_, (files, _))| *files > 0));
    is_same(&source, &out);
    site.call("teardown --token 1");
    assert!(site.buffer("1").is_null());
    root_is_refused(&site);
    let elsewhere = tempfile::Builder::new().prefix("brindle-elsewhere").tempdir_in("/var/tmp").unwrap();
    directories_that_agents_do_not_offer_are_staged_by_the_orchestrator(&site, elsewhere.path());
    let Site { cluster, children, .. } = site;
    end(cluster, children);
}

/// The process that copies for an agent does nothing as root.
fn root_is_refused(site: &Site) {
    let program = binary().display().to_string();
    let work = r#"{"Check":{"uid":0,"gid":0,"offers":["/"],"tops":[]}}"#;
    let refused = sh(&site.cluster, "h2", &format!("echo '{work}' | '{program}' bb copy"));
    assert!(refused.stdout.contains("files are never staged as root"), "{refused}");
}

/// No agent is given paths that it does not offer, nor paths that lead there.
fn directories_that_agents_do_not_offer_are_staged_by_the_orchestrator(site: &Site, elsewhere: &Path) {
    chown(elsewhere, Some(UID), Some(UID)).unwrap();
    let (source, out) = (elsewhere.join("in"), site.shared.path().join("out"));
    make_source(&source, 300);
    fs::remove_dir_all(&out).unwrap();
    let link = site.shared.path().join("link");
    symlink(&source, &link).unwrap();
    for (job, source) in [("2", &source), ("3", &link)] {
        site.set_up(job, source);
        site.call(&format!("data_in --token {job}"));
        let hosts = site.hosts_of(job);
        for host in ["h2", "h3"] {
            let (files, reason) = &hosts[host];
            assert!(*files == 0 && reason.contains("stages files below"), "{hosts:?}");
        }
        site.run(job);
        site.call(&format!("data_out --token {job}"));
        is_same(&elsewhere.join("in"), &out);
        site.call(&format!("teardown --token {job}"));
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn agents_that_are_killed_while_they_copy_lose_and_double_nothing() {
    let mut site = Site::up("bb-staging-killed");
    let (source, out) = (site.shared.path().join("in"), site.shared.path().join("out"));
    make_source(&source, MANY_FILES);
    // One dies while files come in: the other one and the orchestrator's host copy its files.
    site.set_up("1", &source);
    let mut phase = site.begin("data_in", "1");
    until_within(COPY_LIMIT, "a copy by h3", || {
        site.hosts_of("1").get("h3").is_some_and(|(files, _)| *files > 0)
    });
    let status = done(&site.cluster, "h1", "dacctl status job 1");
    assert!(status.contains("staging in: ") && status.contains(" of 3004 files"), "{status}");
    site.kill_agent("h3");
    assert!(phase.wait().unwrap().success());
    let hosts = site.hosts_of("1");
    assert!(hosts["h3"].1.contains("waiting for node h3") && hosts["h2"].1.is_empty(), "{hosts:?}");
    assert!(hosts["h2"].0 > hosts["h3"].0, "{hosts:?}");
    // An agent that comes back ends what it had mounted.
    site.agent("h3");
    site.is_free("h3");
    site.run("1");
    // All die while files go out.
    let mut phase = site.begin("data_out", "1");
    until_within(COPY_LIMIT, "a copy by both", || {
        let (buffer, hosts) = (site.buffer("1"), site.hosts_of("1"));
        buffer["staging"]["direction"] == "out"
            && ["h2", "h3"].iter().all(|host| hosts.get(*host).is_some_and(|(files, _)| *files > 0))
    });
    for host in ["h2", "h3"] {
        site.kill_agent(host);
    }
    assert!(phase.wait().unwrap().success());
    let hosts = site.hosts_of("1");
    assert!(
        hosts["h1"].0 > 0 && ["h2", "h3"].iter().all(|host| hosts[*host].1.contains("waiting for node")),
        "{hosts:?}"
    );
    is_same(&source, &out);
    site.call("teardown --token 1");
    // An agent that has seen a later order of the job copies nothing.
    for host in ["h2", "h3"] {
        until("the agent's end", || site.state_of(host) == "away");
    }
    fs::remove_dir_all(&out).unwrap();
    site.set_up("2", &source);
    let serial = site.buffer("2")["serial"].clone();
    let file = "/var/lib/brindle/bb-agent/revisions.json";
    let later = format!("printf '{{\"{serial}\":{{\"revision\":999999999,\"order\":99}}}}' > {file}");
    said(&site.cluster, "h2", &later);
    for host in ["h2", "h3"] {
        site.agent(host);
    }
    site.call("data_in --token 2");
    let hosts = site.hosts_of("2");
    assert!(
        hosts["h2"].0 == 0 && hosts["h2"].1.contains("it has revision") && hosts["h3"].0 > 0,
        "{hosts:?}"
    );
    // The job never ran: its buffer is dropped.
    site.call("teardown --token 2 --hurry");
    for host in ["h2", "h3"] {
        site.is_free(host);
    }
    let Site { cluster, children, .. } = site;
    end(cluster, children);
}
