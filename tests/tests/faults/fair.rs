//! Fair share between jobs, and limits: a job does not wait behind all requests of a crowd of another job, and limits are kept.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use brindle_tests::cluster::{Cluster, Options};
use serde_json::Value;

use crate::bare_hosts::until;
use crate::leases::metrics;

/// Processes of the noisy job.
const CROWD: usize = 64;
/// The variable that names the job of a program.
const JOB: &str = "SLURM_JOB_ID";
/// Creates files and asks for names that do not exist, without programs of its own.
const NOISE: &str = "mkdir -p $0 && cd $0 && i=0; while :; do : >f$i; [ -e g$i ]; i=$((i+1)); done";
/// Creates so many files.
const CREATE: &str = "cd $0 && i=0; while [ $i -lt $1 ]; do : >$2$i; i=$((i+1)); done";

/// Processes of a job, which end with this.
struct Crowd(Vec<Child>);

impl Crowd {
    fn start(at: &Path, job: &str) -> Crowd {
        let start = |n: usize| {
            let dir = at.join(format!("{job}{n}"));
            let mut command = Command::new("sh");
            command.args(["-c", NOISE]).arg(dir).env(JOB, job).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        Crowd((0..CROWD).map(start).collect())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A child that has ended by itself is fine.
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

fn as_job(job: &str, program: &str, args: &[&str]) {
    let status = Command::new(program).args(args).env(JOB, job).stdout(Stdio::null()).status().unwrap();
    assert!(status.success(), "{program} {args:?}");
}

/// A document of a command about the cluster.
fn told(cluster: &Cluster, words: &[&str]) -> Value {
    let dir = cluster.dir().display().to_string();
    let all: Vec<&str> = words.iter().copied().chain(["-o", "json", "--dir", &dir]).collect();
    let output = cluster.brindle(&all);
    assert!(output.ok(), "{output}");
    serde_json::from_str(&output.stdout).unwrap()
}

/// A number of the MDT.
fn metric(cluster: &Cluster, name: &str) -> f64 {
    let text = metrics(&cluster.process("mdt0").metrics_url);
    let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
}

#[test]
fn a_crowd_of_one_job_does_not_stand_before_another_job() {
    let cluster = Cluster::up("fair", &Options { osts: 1, mounts: 2, ..Options::default() });
    for dir in 0..20 {
        let dir = cluster.a().join(format!("d{dir}"));
        fs::create_dir(&dir).unwrap();
        (0..20).for_each(|n| fs::write(dir.join(format!("file{n}")), b"x").unwrap());
    }
    let crowd = Crowd::start(cluster.a(), "noisy");
    until("a queue", || metric(&cluster, "brindle_mds_turns_waited_for_total") > 1_000.0);
    for dir in 0..20 {
        as_job("quiet", "ls", &["-l", &cluster.b().join(format!("d{dir}")).display().to_string()]);
    }
    let jobs = told(&cluster, &["limit", "list"])["jobs"].clone();
    drop(crowd);
    let row = |name: &str| {
        let all = jobs.as_array().unwrap();
        all.iter().find(|row| row["name"] == name && row["target"].as_str().unwrap().contains("MDT")).cloned()
    };
    let noisy = row("noisy").expect("the crowd has waited");
    assert!(noisy["queued"].as_u64().unwrap() > 1_000, "{noisy}");
    // Each other class has one request before it at most: the crowd, and the mounts themselves.
    if let Some(quiet) = row("quiet") {
        assert!(quiet["overtaken_max"].as_u64().unwrap() <= 4, "{quiet}");
    }
    until("the end of the queue", || metric(&cluster, "brindle_mds_requests_queued{") == 0.0);
    cluster.assert_sound();
}

#[test]
fn a_limit_holds_and_is_told_of_and_goes() {
    let cluster = Cluster::up("limits", &Options { osts: 1, mounts: 1, ..Options::default() });
    refusals(&cluster);
    let at = cluster.a().join("d");
    fs::create_dir(&at).unwrap();
    let dir = cluster.dir().display().to_string();
    let limit = |words: &[&str]| {
        let all: Vec<&str> =
            ["limit"].into_iter().chain(words.iter().copied()).chain(["--dir", &dir]).collect();
        let output = cluster.brindle(&all);
        assert!(output.ok(), "{output}");
        output.text
    };
    let text = limit(&["add", "slow", "--job", "held*", "--iops", "40", "--dry-run"]);
    assert!(text.starts_with("would make slow: 40 requests/s for job held* at each target"), "{text}");
    assert_eq!(told(&cluster, &["limit", "list"])["limits"], serde_json::json!([]));
    limit(&["add", "slow", "--job", "held*", "--iops", "40"]);
    let has_heard = || {
        as_job("held", "sh", &["-c", "cd $0 && : >heard && rm heard", &at.display().to_string()]);
        counted(&cluster).0 > 0
    };
    until("servers hear of it", has_heard);
    // At 40 a second, with 10 in the bucket: the requests that were served between two looks are no more than tokens came.
    let (before, since) = (counted(&cluster), Instant::now());
    let create =
        |prefix: &str| as_job("held", "sh", &["-c", CREATE, &at.display().to_string(), "60", prefix]);
    create("f");
    let (after, seconds) = (counted(&cluster), since.elapsed().as_secs_f64());
    let served = after.0 - before.0;
    assert!(served >= 60, "{served} requests");
    let tokens = 40.0 * seconds + 10.0 + 1.0;
    assert!(served as f64 <= tokens, "{served} requests in {seconds} s");
    assert!(after.1 > before.1, "some were held: {after:?}");
    // A different job is not held.
    let held = counted(&cluster).1;
    as_job("free", "sh", &["-c", CREATE, &at.display().to_string(), "200", "g"]);
    assert_eq!(counted(&cluster).1, held);
    why_says_so(&cluster, &at);
    // A restart of the servers forgets no limit.
    cluster.kill(&["mgs", "mdt0"]);
    cluster.start(&["mgs", "mdt0"]);
    until("the limit is heard of", || {
        as_job("held", "sh", &["-c", "cd $0 && : >again && rm again", &at.display().to_string()]);
        metric(&cluster, "brindle_mds_limited_requests_total{") > 0.0
    });
    let text = limit(&["remove", "slow"]);
    assert_eq!(text.trim(), "removed slow");
    as_lustre_says(&cluster);
    cluster.assert_sound();
}

/// Requests that the limit has counted for, and those that were held.
fn counted(cluster: &Cluster) -> (u64, u64) {
    let list = told(cluster, &["limit", "list"]);
    let number = |field: &str| list["limits"][0][field].as_u64().unwrap_or(0);
    (number("requests"), number("held"))
}

/// `brindle why` names the limit while the job is held.
fn why_says_so(cluster: &Cluster, at: &Path) {
    let mut held = Command::new("sh")
        .args(["-c", CREATE, &at.display().to_string(), "400", "w"])
        .env(JOB, "held")
        .spawn()
        .unwrap();
    let dir = cluster.dir().display().to_string();
    let why = cluster.brindle(&["why", "held", "--interval", "2", "--dir", &dir]);
    assert!(why.text.contains("the limit slow holds it back at"), "{why}");
    let _ = held.kill();
    let _ = held.wait();
}

/// Impossible limits are refused, with their codes.
fn refusals(cluster: &Cluster) {
    let dir = cluster.dir().display().to_string();
    for (words, why) in [
        (&["add", "x", "--job", "a", "--iops", "0"][..], "no rate"),
        (&["add", "x", "--job", "a", "--iops", "-5"], "no rate"),
        (&["add", "x", "--job", "a", "--bytes-per-s", "10 parsecs"], "is not a size"),
        (&["add", "x", "--job", "a"], "E5092"),
        (&["add", "x", "--iops", "5"], "E5092"),
        (&["add", &"x".repeat(40), "--job", "a", "--iops", "5"], "E5092"),
        (&["add", "x", "--user", "nobody-of-this-name", "--iops", "5"], "there is no user"),
        (&["remove", "x"], "E5091"),
        (&["apply", "--tbf", "start x gid={5} rate=1"], "do not go by gid"),
    ] {
        let all: Vec<&str> =
            ["limit"].into_iter().chain(words.iter().copied()).chain(["--dir", &dir]).collect();
        let output = cluster.brindle(&all);
        assert!(!output.ok() && output.text.contains(why), "{words:?}: {output}");
    }
}

/// Lustre's text makes the same rules.
fn as_lustre_says(cluster: &Cluster) {
    let dir = cluster.dir().display().to_string();
    let set = |text: &str| {
        let setting = format!("ost.OSS.ost_io.nrs_tbf_rule={text}");
        let output = cluster.brindle(&["lctl", "set_param", "--dir", &dir, &setting]);
        assert!(output.ok(), "{output}");
    };
    set("start dd_user jobid={dd.0 iozone.500} rate=100");
    let list = told(cluster, &["limit", "list"]);
    let limit = &list["limits"][0];
    assert_eq!(
        (&limit["name"], &limit["at"], &limit["iops"]),
        (&"dd_user".into(), &"ost".into(), &100.into())
    );
    assert_eq!(limit["jobs"], serde_json::json!(["dd.0", "iozone.500"]));
    set("change dd_user rate=200");
    assert_eq!(told(cluster, &["limit", "list"])["limits"][0]["iops"], 200);
    set("stop dd_user");
    assert_eq!(told(cluster, &["limit", "list"])["limits"], serde_json::json!([]));
}
