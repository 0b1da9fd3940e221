//! Alerts of the manager, on a real cluster. Each alert that one machine can cause is raised once, ended once, and told to a webhook and
//! by mail, also when the manager itself is killed in between.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brindle_tests::bytes;
use brindle_tests::cluster::{Cluster, Options, binary};
use serde_json::Value;

use crate::damage::objects;
use crate::stripes::BLOCK;

/// Longest time until an alert: the slowest waits for an agent for 20 s, and for a lease.
const LIMIT: Duration = Duration::from_secs(60);
/// Position of the first block of data in an object's file.
const DATA_AT: u64 = 2 * BLOCK as u64;
/// More than 85 % of an OST of 96 MiB, with what its file system takes, and not all of it.
const FILLING_BYTES: usize = 67 << 20;

type Notices = Arc<Mutex<Vec<Value>>>;

/// A webhook that keeps what it is told.
fn webhook() -> (String, Notices) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/alerts", listener.local_addr().unwrap());
    let notices = Notices::default();
    let kept = notices.clone();
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if let Some(notice) = stream.ok().and_then(take) {
                kept.lock().unwrap().push(notice);
            }
        }
    });
    (url, notices)
}

fn take(mut stream: TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    serde_json::from_slice(&body).ok()
}

/// A manager of a cluster, killed in the end.
struct Manager {
    child: Child,
    dir: PathBuf,
}

impl Manager {
    fn start(cluster: &Cluster, webhook: &str) -> Manager {
        let dir = cluster.outside().join("manager");
        let sendmail = cluster.outside().join("sendmail");
        let script = format!("#!/bin/sh\ncat >>{}\n", cluster.outside().join("mails").display());
        fs::write(&sendmail, script).unwrap();
        fs::set_permissions(&sendmail, fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(binary())
            .args(["manager", "--insecure-http", "--listen=127.0.0.1:0", "--ready-json"])
            .args(["--webhook", webhook, "--mail-to", "ops@example.org"])
            .arg(format!("--sendmail={}", sendmail.display()))
            .arg(format!("--dir={}", dir.display()))
            .arg(format!("--dev={}", cluster.dir().display()))
            .arg(format!("--log={}", cluster.outside().join("manager.log").display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.contains("url"), "{ready}");
        Manager { child, dir }
    }

    /// Times of the samples of the last ten minutes.
    fn history(&self) -> Vec<i64> {
        let mut stream = UnixStream::connect(self.dir.join("control.sock")).unwrap();
        let request = b"GET /api/v1/history/10m HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let body = &answer[answer.find('{').unwrap()..=answer.rfind('}').unwrap()];
        let history: Value = serde_json::from_str(body).unwrap();
        history["samples"].as_array().unwrap().iter().map(|sample| sample["at_s"].as_i64().unwrap()).collect()
    }

    fn alerts(&self, cluster: &Cluster, words: &[&str]) -> brindle_tests::cluster::Output {
        let dir = self.dir.display().to_string();
        cluster.brindle(&[&["alerts"], words, &["--manager", &dir]].concat())
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a notice of one of these codes; its subject.
fn until(notices: &Notices, event: &str, codes: &[&str], subject: &str) -> String {
    let since = Instant::now();
    loop {
        let found = notices.lock().unwrap().iter().find_map(|notice| {
            let alert = &notice["alert"];
            let is_it = notice["event"] == event
                && codes.iter().any(|code| alert["code"] == *code)
                && alert["subject"].as_str().is_some_and(|text| text.contains(subject));
            is_it.then(|| alert["subject"].as_str().unwrap_or_default().to_owned())
        });
        if let Some(found) = found {
            return found;
        }
        let told = || notices.lock().unwrap().clone();
        assert!(since.elapsed() < LIMIT, "{event} {codes:?} {subject} is not told: {:#?}", told());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A file whose bytes lie on one OST.
fn on_ost(cluster: &Cluster, name: &str, ost: &str, length: usize) -> PathBuf {
    let path = cluster.a().join(name);
    cluster.lfs(&["setstripe", "-c", "1", "-i", ost, path.to_str().unwrap()]);
    fs::write(&path, bytes(7, length)).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    path
}

/// Flips a bit in the object of a file on ost1, and has somebody read it.
fn damage(cluster: &Cluster) {
    let path = on_ost(cluster, "damaged", "1", 1 << 20);
    let found = objects(&cluster.process("ost1").data, fs::metadata(path).unwrap().ino());
    cluster.kill(&["ost1"]);
    let object = File::options().read(true).write(true).open(&found[0]).unwrap();
    let mut byte = [0];
    object.read_exact_at(&mut byte, DATA_AT).unwrap();
    object.write_all_at(&[byte[0] ^ 1], DATA_AT).unwrap();
    cluster.start(&["ost1"]);
    fs::read(cluster.b().join("damaged")).unwrap_err();
}

/// Each alert is told as raised, then as ended, and never twice.
fn check_order(notices: &[Value]) {
    let mut going_on = BTreeMap::new();
    for notice in notices {
        let alert = &notice["alert"];
        let is_raised = notice["event"] == "raised";
        let before = going_on.insert(alert["id"].as_u64().unwrap(), is_raised);
        assert_eq!(before, if is_raised { None } else { Some(true) }, "{notice:#}");
    }
}

#[test]
fn alerts_are_raised_once_and_ended_once_whoever_is_killed() {
    let options =
        Options { osts: 2, ost_size: Some("96MiB"), limit: Duration::from_secs(240), ..Options::default() };
    let cluster = Cluster::up("alerts", &options);
    let (url, notices) = webhook();
    let manager = Manager::start(&cluster, &url);
    let quiet = manager.alerts(&cluster, &["list"]);
    assert_eq!((quiet.code, quiet.stdout.trim()), (0, "no alerts"), "{quiet}");
    // The manager tells lines of its own log.
    let dir = manager.dir.display().to_string();
    let told = cluster.brindle(&["log", "show", "--manager", &dir, "--level", "info"]);
    assert!(told.ok() && told.stdout.lines().count() > 0, "{told}");
    assert!(told.stdout.lines().all(|line| line.contains(" manager: ")), "{told}");
    // No agent works for the archive.
    let waiting = cluster.a().join("waiting");
    fs::write(&waiting, b"x").unwrap();
    cluster.lfs(&["hsm_archive", "--archive", "1", waiting.to_str().unwrap()]);
    on_ost(&cluster, "filling", "0", FILLING_BYTES);
    damage(&cluster);
    cluster.kill(&["client1"]);
    assert!(until(&notices, "raised", &["E4003"], "").ends_with("OST0001"));
    assert!(until(&notices, "raised", &["E4012", "E4011", "E4001"], "").ends_with("OST0000"));
    assert!(until(&notices, "raised", &["E5057"], "").ends_with("MDT0000"));
    until(&notices, "raised", &["E5060"], "client1");
    cluster.kill(&["ost1"]);
    until(&notices, "raised", &["E5005"], "OST0001");
    let listed = manager.alerts(&cluster, &["list", "-o", "json"]);
    let listed_json: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!((listed.code, &listed_json["schema"]), (8, &Value::from("brindle.alerts")), "{listed}");
    let of = |code: &str| {
        listed_json["alerts"].as_array().unwrap().iter().find(|alert| alert["code"] == code).cloned()
    };
    let number = of("E5005").unwrap()["id"].to_string();
    let known = manager.alerts(&cluster, &["ack", &number]);
    assert!(known.ok() && known.text.contains("acknowledged: E5005"), "{known}");
    let unknown = manager.alerts(&cluster, &["ack", "99999"]);
    assert!(!unknown.ok() && unknown.text.contains("E5061"), "{unknown}");
    until(&notices, "raised", &["E5056"], "MDT0000");
    // A killed manager knows afterwards which alerts were raised, and what the cluster did.
    let before = manager.history();
    drop(manager);
    let manager = Manager::start(&cluster, &url);
    let after = manager.history();
    assert!(before.len() > 2 && before.iter().all(|at_s| after.contains(at_s)), "{before:?} {after:?}");
    cluster.start(&["ost1"]);
    until(&notices, "ended", &["E5005"], "OST0001");
    let all = manager.alerts(&cluster, &["list", "--all"]);
    assert!(all.text.contains("known to root") || all.text.contains("ended"), "{all}");
    let silenced =
        manager.alerts(&cluster, &["silence", "--code", "E5005", "--for", "1h", "--why", "a test"]);
    assert!(silenced.ok(), "{silenced}");
    check_order(&notices.lock().unwrap());
    let mails = fs::read_to_string(cluster.outside().join("mails")).unwrap();
    assert!(mails.contains("To: ops@example.org\n") && mails.contains("raised: E5005"), "{mails}");
    drop(manager);
}

/// A host with one disk, as the kernel and `smartctl` tell it; the disk fails for as long as there is the file `fails`.
fn failing_disk(cluster: &Cluster) -> PathBuf {
    let root = cluster.outside().join("hardware");
    for (path, text) in
        [("sys/block/sda/device/model", "TEST"), ("sys/class/net/eth0/statistics/rx_errors", "0")]
    {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let fails = root.join("fails");
    fs::write(&fails, "").unwrap();
    let script = format!(
        "#!/bin/sh\nif [ -e {} ]; then echo '{{\"smart_status\":{{\"passed\":false}}}}'; exit 8; fi\n\
         echo '{{\"smart_status\":{{\"passed\":true}}}}'\n",
        fails.display()
    );
    let program = root.join("smartctl");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    root
}

#[test]
fn a_disk_that_fails_is_an_alert_until_it_is_replaced() {
    let options = Options { osts: 1, mounts: 0, ..Options::default() };
    let cluster = Cluster::up("disk-alert", &options);
    let (url, notices) = webhook();
    let manager = Manager::start(&cluster, &url);
    let root = failing_disk(&cluster);
    // A daemon looks when it starts.
    let anew = || {
        cluster.kill(&["ost0"]);
        let started = Command::new(binary())
            .args(["dev", "start", "ost0", "--dir"])
            .arg(cluster.dir())
            .env("BRINDLE_SMARTCTL", root.join("smartctl"))
            .env("BRINDLE_HARDWARE_ROOT", &root)
            .output()
            .unwrap();
        assert!(started.status.success(), "{started:?}");
    };
    anew();
    assert!(until(&notices, "raised", &["E4014"], "").starts_with("sda of "));
    let listed = manager.alerts(&cluster, &["list"]);
    assert!(listed.code == 8 && listed.text.contains("says of itself that it fails"), "{listed}");
    fs::remove_file(root.join("fails")).unwrap();
    anew();
    until(&notices, "ended", &["E4014"], "sda of ");
    check_order(&notices.lock().unwrap());
    drop(manager);
}
