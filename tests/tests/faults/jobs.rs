//! Jobs: every server that a program reaches counts its requests for the program's job, without additional requests. Requests that the
//! mount makes later in the background count for that job, too.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use brindle_tests::bytes;
use brindle_tests::cluster::{Cluster, Options};
use serde_json::Value;

use crate::leases::metrics;

/// Longest wait for an event whose time does not matter.
const LIMIT: Duration = Duration::from_secs(60);
/// A job that no other program here has.
const JOB: &str = "brindle-test-4711";
/// Bytes that the job writes.
const WRITTEN: usize = 3 << 20;
/// A job of programs on mounts that do not go by this variable.
const UNCOUNTED: &str = "brindle-test-4713";

/// The row of a name in `brindle top`; none while there is no such row.
fn told(cluster: &Cluster, by: &str, name: &str) -> Option<Value> {
    let dir = cluster.dir().display().to_string();
    let output =
        cluster.brindle(&["top", "--dir", &dir, "--once", "-o", "json", "--by", by, "--rows", "1000"]);
    assert!(output.ok(), "{output}");
    let view: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(view["schema"], "brindle.top");
    view["rows"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned()
}

/// Waits until what is told of a job is enough.
fn until(cluster: &Cluster, what: &str, name: &str, is_enough: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    loop {
        let row = told(cluster, "jobs", name);
        match row {
            Some(row) if is_enough(&row) => return row,
            row => assert!(since.elapsed() < LIMIT, "{what}: {row:#?}"),
        }
    }
}

fn shell(script: &str, job: Option<&str>) {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env_remove("SLURM_JOB_ID").stdout(Stdio::null());
    command.envs(job.map(|job| ("SLURM_JOB_ID", job)));
    assert!(command.status().unwrap().success(), "{script}");
}

/// Files that were opened ahead are closed some seconds later.
fn until_closed(cluster: &Cluster) {
    let since = Instant::now();
    loop {
        let text = metrics(&cluster.process("mdt0").metrics_url);
        let open = text.lines().find(|line| line.starts_with("brindle_mds_open_handles{"));
        if open.is_some_and(|line| line.ends_with(" 0") || line.ends_with(" 0.0")) {
            return;
        }
        assert!(since.elapsed() < LIMIT, "files are still open: {open:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("{field} of {row}"))
}

#[test]
fn what_a_job_does_is_counted_for_it_at_every_server() {
    let cluster = Cluster::up("jobs", &Options { osts: 2, mounts: 1, ..Options::default() });
    let dir = cluster.a().join("job");
    fs::write(cluster.outside().join("bytes"), bytes(3, WRITTEN)).unwrap();
    let script = format!(
        "mkdir {0} && cat {1} >{0}/large && echo small >{0}/small && cat {0}/large {0}/small >/dev/null && mv {0}/small {0}/moved && sync {0}/large",
        dir.display(),
        cluster.outside().join("bytes").display()
    );
    shell(&script, Some(JOB));
    let is_all = |row: &Value| number(row, "written_bytes") >= (WRITTEN + 6) as u64;
    let row = until(&cluster, "all that was written", JOB, is_all);
    assert_eq!(number(&row, "written_bytes"), (WRITTEN + 6) as u64, "each byte once");
    let by_operation = &row["by_operation"];
    for (op, count) in [("mkdir", 1), ("rename", 1)] {
        assert_eq!(by_operation[op], count, "{row:#}");
    }
    assert!(by_operation["write"].as_u64().unwrap() >= 3, "{row:#}");
    let targets: Vec<&str> = row["targets"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(targets.iter().any(|t| t.ends_with("MDT0000")) && targets.len() > 1, "{targets:?}");

    // A program without a job counts by program and user.
    shell(&format!("cp {0}/large {0}/copy", dir.display()), None);
    until(&cluster, "the copy", "cp.0", |row| number(row, "written_bytes") >= WRITTEN as u64);
    assert_eq!(number(&told(&cluster, "jobs", JOB).unwrap(), "written_bytes"), (WRITTEN + 6) as u64);
    let user = told(&cluster, "users", "0").expect("root is counted");
    assert!(number(&user, "written_bytes") >= (2 * WRITTEN + 6) as u64, "{user:#}");

    lustres_text(&cluster);
    series(&cluster);
    other_mounts(&cluster);
    cluster.assert_sound();
}

/// `lctl get_param *.*.job_stats`, and forgetting a job.
fn lustres_text(cluster: &Cluster) {
    let dir = cluster.dir().display().to_string();
    let stats = || {
        let output = cluster.brindle(&["lctl", "get_param", "-n", "*.*.job_stats", "--dir", &dir]);
        assert!(output.ok(), "{output}");
        output.stdout
    };
    let text = stats();
    assert_eq!(text.matches("job_stats:").count(), 3, "one MDT and two OSTs: {text}");
    assert!(text.contains(&format!("\n- job_id:          {JOB}\n  snapshot_time:   ")), "{text}");
    let mkdir = "\n  mkdir:           { samples:           1, unit: usecs, min: ";
    assert!(text.contains(mkdir), "{text}");
    let set = |value: &str| {
        let assignment = format!("*.*.job_stats={value}");
        let output = cluster.brindle(&["lctl", "set_param", "--dir", &dir, &assignment]);
        assert!(output.ok(), "{output}");
    };
    // Closes that come late would make a row anew.
    until_closed(cluster);
    set(JOB);
    let text = stats();
    assert!(!text.contains(JOB) && text.contains("cp.0"), "{text}");
    set("clear");
    assert!(!stats().contains("cp.0"));
}

/// The busiest jobs have series.
fn series(cluster: &Cluster) {
    shell(&format!("cat {} >/dev/null", cluster.a().join("job/copy").display()), Some("4712"));
    shell(&format!("touch {}", cluster.a().join("job/touched").display()), Some("4712"));
    until(cluster, "the job", "4712", |row| row["by_operation"]["create"] == 1);
    let text = metrics(&cluster.process("mdt0").metrics_url);
    assert!(text.contains("brindle_mds_job_operations_total{target=\""), "{text}");
    assert!(text.contains("job_id=\"4712\"} "), "{text}");
}

/// A mount can go by another variable, by the program, or by nothing.
fn other_mounts(cluster: &Cluster) {
    let at = cluster.outside().join("other").display().to_string();
    fs::create_dir(&at).unwrap();
    let source = format!("{}:/dev", cluster.process("mgs").socket());
    let log = format!("-olog={}", cluster.outside().join("mount.log").display());
    let sources = [
        ("PBS_JOBID", Some("77.pbs")),
        ("procname_uid", Some("touch.0")),
        ("off", None),
        ("PBS JOBID", None),
    ];
    for (from, is_counted_as) in sources {
        let option = format!("-ojob_from={from}");
        let mounted = cluster.brindle(&["mount", &log, &option, &source, &at]);
        if from.contains(' ') {
            assert!(mounted.text.contains("it must be the name of an environment variable"), "{mounted}");
            continue;
        }
        assert!(mounted.ok(), "{mounted}");
        let mut touch = Command::new("touch");
        touch.arg(format!("{at}/{from}")).env("PBS_JOBID", "77.pbs").env("SLURM_JOB_ID", UNCOUNTED);
        assert!(touch.status().unwrap().success());
        if let Some(job) = is_counted_as {
            until(cluster, from, job, |row| row["by_operation"]["create"] == 1);
        }
        assert_eq!(told(cluster, "jobs", UNCOUNTED), None, "{from}");
        let gone = cluster.brindle(&["umount", &at]);
        assert!(gone.ok(), "{gone}");
    }
}
