//! `brindle trace`: requests one by one with their times and outcomes, by what is asked for, bounded, and for administrators alone.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brindle_tests::bytes;
use brindle_tests::cluster::{Cluster, Options, binary};
use serde_json::Value;

/// Longest wait for an event whose time does not matter.
const LIMIT: Duration = Duration::from_secs(60);
/// The job that is traced, and another one.
const JOB: &str = "trace-4711";
const OTHER: &str = "trace-4712";

/// A running trace, which has begun.
struct Trace {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    seen: Vec<Value>,
}

impl Trace {
    fn begin(cluster: &Cluster, words: &[&str]) -> Trace {
        let dir = cluster.dir().display().to_string();
        let mut command = Command::new(binary());
        command.args(["trace", "--dir", &dir, "-o", "json", "--seconds", "120"]).args(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut begun = String::new();
        said.read_line(&mut begun).unwrap();
        assert!(begun.starts_with("tracing "), "{begun}");
        let (tell, lines) = std::sync::mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines() {
                // The test may have ended.
                let _ = tell.send(line.unwrap());
            }
            // What is said on standard error is read to its end.
            drop(said);
        });
        Trace { child, lines, seen: Vec::new() }
    }

    /// Waits for an operation that fits.
    fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            if let Some(found) = self.seen.iter().find(|value| fits(value)) {
                return found.clone();
            }
            let left = LIMIT.saturating_sub(since.elapsed());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|e| panic!("{what}: {e}: {:#?}", self.seen));
            self.seen.push(serde_json::from_str(&line).unwrap());
        }
    }

    /// Interrupts it, and waits for the summary.
    fn end(mut self) -> (Vec<Value>, Value) {
        // SAFETY: kill(2) of a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGINT) }, 0);
        let summary = self.until("the summary", |value| value["schema"] == "brindle.trace.summary");
        assert!(self.child.wait().unwrap().success());
        self.seen.retain(|value| value["schema"] == "brindle.trace.operation");
        (std::mem::take(&mut self.seen), summary)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shell(script: &str, job: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("SLURM_JOB_ID", job).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap();
}

fn is(value: &Value, operation: &str) -> bool {
    value["operation"] == operation
}

#[test]
fn requests_of_a_job_are_seen_with_their_targets_and_outcomes() {
    let cluster = Cluster::up("trace", &Options { osts: 1, mounts: 1, ..Options::default() });
    let a = cluster.a().display().to_string();
    fs::write(cluster.outside().join("bytes"), bytes(3, 1 << 20)).unwrap();
    let from = cluster.outside().join("bytes").display().to_string();
    // Before any trace: nobody keeps this.
    shell(&format!("mkdir {a}/early"), JOB);
    let mut trace = Trace::begin(&cluster, &["--job", JOB]);
    let mut errors = Trace::begin(&cluster, &["--errors", "--op", "rmdir,unlink"]);
    let mut of_path = Trace::begin(&cluster, &["--path", &format!("{a}/job"), "MDT0000"]);
    shell(&format!("mkdir {a}/other"), OTHER);
    let script = format!("mkdir {a}/job && cat {from} >{a}/job/large && sync {a}/job/large; rmdir {a}/job");
    shell(&script, JOB);

    let made = trace.until("the mkdir", |value| is(value, "mkdir"));
    assert_eq!(
        (&made["target"], &made["name"], &made["job"]),
        (&"dev-MDT0000".into(), &"job".into(), &JOB.into())
    );
    assert!(made["code"] == "" && made["uid"] == 0 && !made["fid"].as_str().unwrap().is_empty(), "{made}");
    let written = trace.until("a write", |value| is(value, "write"));
    assert_eq!(written["target"], "dev-OST0000", "{written}");
    assert!(written["written_bytes"].as_u64().unwrap() > 0 && written["offset"].is_u64(), "{written}");
    assert!(written["disk_us"].as_u64().unwrap() > 0, "{written}");
    let sum: u64 = ["client_queue_us", "queue_us", "server_us", "disk_us", "others_us"]
        .iter()
        .map(|part| written[part].as_u64().unwrap())
        .sum();
    assert_eq!(written["total_us"], sum, "{written}");
    trace.until("the refused rmdir", |value| is(value, "rmdir") && value["code"] != "");
    let (seen, summary) = trace.end();
    assert!(seen.iter().all(|value| value["job"] == JOB), "{seen:#?}");
    assert!(seen.iter().all(|value| value["name"] != "early"), "{seen:#?}");
    assert_eq!(summary["count"], seen.len(), "{summary:#}");
    let kinds = summary["operations"].as_array().unwrap();
    let rmdir = kinds.iter().find(|kind| is(kind, "rmdir")).unwrap();
    assert_eq!((&rmdir["count"], &rmdir["errors"]), (&1.into(), &1.into()), "{rmdir}");

    let failed = errors.until("the refused rmdir", |_| true);
    assert!(is(&failed, "rmdir") && failed["name"] == "job", "{failed}");
    let (seen, _) = errors.end();
    assert_eq!(seen.len(), 1, "{seen:#?}");
    of_path.until("the mkdir", |value| is(value, "mkdir") && value["name"] == "job");
    let (seen, _) = of_path.end();
    assert!(seen.iter().all(|value| value["name"] == "job"), "{seen:#?}");
    cluster.assert_sound();
}

#[test]
fn traces_are_few_end_with_their_readers_and_are_for_administrators() {
    let cluster = Cluster::up("traces", &Options { osts: 1, mounts: 1, ..Options::default() });
    let dir = cluster.dir().display().to_string();
    let readers: Vec<Trace> = (0..4).map(|_| Trace::begin(&cluster, &["OST0000"])).collect();
    let once = || cluster.brindle(&["trace", "--dir", &dir, "--seconds", "1", "OST0000"]);
    let refused = once();
    assert!(!refused.ok() && refused.text.contains("it makes 4 traces already"), "{refused}");
    // Readers that are killed say nothing to the server: it finds out.
    drop(readers);
    let since = Instant::now();
    loop {
        let again = once();
        if again.ok() {
            assert!(again.stdout.contains(" with an error"), "{again}");
            break;
        }
        assert!(since.elapsed() < LIMIT, "{again}");
    }

    let mgs = cluster.process("mgs").socket();
    let as_root = cluster.brindle(&["trace", "--mgs", &mgs, "--seconds", "1"]);
    assert!(as_root.ok(), "{as_root}");
    // Another user has no key of this host, and is no administrator to any server.
    let program = cluster.outside().join("brindle");
    fs::copy(binary(), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=64001", "--regid=64001", "--clear-groups"]).arg(&program);
    let denied = command.args(["trace", "--mgs", &mgs, "--seconds", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&denied.stderr);
    assert!(!denied.status.success() && said.contains("administrator"), "{said}");
    assert!(denied.stdout.is_empty(), "nothing is shown");

    let long = cluster.brindle(&["log", "show", "--dir", &dir, "--text", &"x".repeat(257)]);
    assert!(long.code == 2 && long.text.contains("257 bytes"), "{long}");
    cluster.assert_sound();
}
