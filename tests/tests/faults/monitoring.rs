//! A site's own Prometheus beside a live cluster: it finds every daemon through the manager, every expression of the alert rules and the
//! boards in `deploy/prometheus` has a result, and every name says its unit.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brindle_tests::bytes;
use brindle_tests::cluster::{Cluster, Options};
use serde_json::Value;

/// Longest time until Prometheus has figures.
const LIMIT: Duration = Duration::from_secs(60);
/// Stands for Grafana's interval: some scrapes, one a second here.
const RATE_INTERVAL: &str = "15s";
/// Functions and words of PromQL that could be taken for the name of a metric.
const METRIC_UP: &str = "up";

fn deployed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus").canonicalize().unwrap()
}

/// The body of `http://ADDRESS/PATH`.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() {
            escaped.push(byte as char);
        } else {
            write!(escaped, "%{byte:02X}").unwrap();
        }
        escaped
    })
}

struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    /// Starts one with the committed configuration, at the places of this test.
    fn start(cluster: &Cluster) -> Prometheus {
        let dir = cluster.outside().join("prometheus");
        fs::create_dir(&dir).unwrap();
        let manager = cluster.process("manager").addresses[0].clone();
        let authority = manager.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let pem = fs::read_to_string(cluster.dir().join("manager/certificate.pem")).unwrap();
        let end = "-----END CERTIFICATE-----";
        let begin = pem.find("-----BEGIN CERTIFICATE-----").unwrap();
        let certificate = &pem[begin..pem.find(end).unwrap() + end.len()];
        fs::write(dir.join("manager.pem"), format!("{certificate}\n")).unwrap();
        let text = fs::read_to_string(deployed().join("brindle.yml")).unwrap();
        let token = cluster.dir().join("manager/monitoring-token");
        let text = text
            .replace("manager:8443", &authority)
            .replace("/etc/prometheus/brindle-token", token.to_str().unwrap())
            .replace("/etc/prometheus/brindle-manager.pem", dir.join("manager.pem").to_str().unwrap())
            .replace("brindle-alerts.yml", deployed().join("brindle-alerts.yml").to_str().unwrap())
            .replace(" 15s", " 1s")
            .replace(" 60s", " 1s");
        fs::write(dir.join("prometheus.yml"), text).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join("log")).unwrap())
            .spawn()
            .expect("prometheus is installed: cargo xtask setup test");
        Prometheus { child, address }
    }

    /// The series of an expression; why there are none.
    fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let path = format!("/api/v1/query?query={}", escaped(expression));
        let body = get(&self.address, &path).ok_or("it does not answer")?;
        let answer: Value = serde_json::from_str(&body).map_err(|e| format!("{e}: {body}"))?;
        if answer["status"] != "success" {
            return Err(answer["error"].to_string());
        }
        let found = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        Ok(found)
    }

    /// Waits until the expression has as many series.
    fn until(&self, expression: &str, count: usize, mut meanwhile: impl FnMut()) -> Vec<Value> {
        let since = Instant::now();
        loop {
            let found = self.query(expression);
            match found {
                Ok(series) if series.len() >= count => return series,
                found if since.elapsed() > LIMIT => {
                    panic!("{expression}: {count} series are expected, and there are {found:?}")
                }
                _ => meanwhile(),
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Names of metrics in an expression, each with the braces behind it.
fn selectors(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut rest, mut quoted) = (expression, false);
    while let Some(c) = rest.chars().next() {
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len()).max(c.len_utf8());
        let (word, behind) = rest.split_at(length);
        quoted ^= word == "\"";
        rest = behind;
        if !quoted && (word.starts_with("brindle_") || word == METRIC_UP) {
            let braces = if behind.starts_with('{') { &behind[..=behind.find('}').unwrap()] } else { "" };
            found.insert(format!("{word}{braces}"));
        }
    }
    found
}

/// Expressions of the alert rules.
fn rules() -> Vec<String> {
    let text = fs::read_to_string(deployed().join("brindle-alerts.yml")).unwrap();
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    lines.map(str::to_owned).collect()
}

/// Expressions of the boards. Each panel has a number of its own and a place that no other one has.
fn boards() -> Vec<String> {
    let mut expressions = Vec::new();
    let files = fs::read_dir(deployed().join("grafana")).unwrap().map(|entry| entry.unwrap().path());
    for file in files.collect::<BTreeSet<_>>() {
        let board: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let panels = board["panels"].as_array().unwrap();
        let (mut numbers, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for panel in panels {
            assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{}: {}", file.display(), panel["id"]);
            let side = |name: &str| panel["gridPos"][name].as_u64().unwrap();
            for x in side("x")..side("x") + side("w") {
                for y in side("y")..side("y") + side("h") {
                    assert!(x < 24 && cells.insert((x, y)), "{}: {} covers", file.display(), panel["title"]);
                }
            }
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{}: {} asks for nothing", file.display(), panel["title"]);
            expressions.extend(targets.iter().map(|target| target["expr"].as_str().unwrap().to_owned()));
        }
    }
    expressions
}

/// Bad metric names in the text of a daemon.
fn wrong_names(text: &str) -> Vec<String> {
    const SERVICES: [&str; 7] = ["mgs", "mds", "oss", "client", "process", "manager", "host"];
    const NO_UNITS: [&str; 10] = ["ms", "us", "ns", "kb", "kib", "mb", "mib", "percent", "minutes", "hours"];
    let mut wrong = Vec::new();
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        }
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            let series = line.split(['{', ' ']).next().unwrap_or_default();
            if line.starts_with("brindle_") && !text.contains(&format!("# TYPE {} ", family(series))) {
                wrong.push(format!("{series} has no type"));
            }
            continue;
        };
        let mut words = name.split('_');
        let is_ours =
            words.next() == Some("brindle") && words.next().is_some_and(|word| SERVICES.contains(&word));
        let has_no_other_unit = name.split('_').all(|word| !NO_UNITS.contains(&word));
        let counts_in_the_end = kind != "counter"
            || text.contains(&format!("\n{name}_total "))
            || text.contains(&format!("\n{name}_total{{"));
        let has_its_unit = match help.split(' ').next().unwrap_or_default() {
            "Bytes" | "Memory" => name.ends_with("_bytes"),
            "Age" | "Time" | "When" | "Processor" => name.ends_with("_seconds"),
            "Operations" | "Requests" | "Actions" | "Sessions" | "Targets" => !name.ends_with("_bytes"),
            word => !word.is_empty(),
        };
        if !is_ours || !has_no_other_unit || !counts_in_the_end || !has_its_unit || help.ends_with('.') {
            wrong.push(format!("{name} ({kind}): {help}"));
        }
    }
    wrong
}

/// The family that a series belongs to.
fn family(series: &str) -> &str {
    ["_total", "_bucket", "_count", "_sum"].iter().find_map(|end| series.strip_suffix(end)).unwrap_or(series)
}

#[test]
fn a_wrong_name_is_found() {
    let text = |name: &str, kind: &str, help: &str| {
        format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name}_total 1\n")
    };
    assert!(wrong_names(&text("brindle_oss_read_bytes", "counter", "Bytes read")).is_empty());
    for (name, help) in [
        ("brindle_oss_read", "Bytes read"),
        ("brindle_oss_wait_ms", "Waits"),
        ("other_oss_reads", "Reads"),
        ("brindle_oss_reads", ""),
        ("brindle_oss_reads", "Reads."),
    ] {
        assert!(!wrong_names(&text(name, "counter", help)).is_empty(), "{name} {help}");
    }
    let found = selectors("sum(rate(brindle_a_total{op=~\"up|b\"}[1m])) / on(x) up{job=\"y\"} > brindle_c");
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ["brindle_a_total{op=~\"up|b\"}", "brindle_c", "up{job=\"y\"}"]);
}

#[test]
fn prometheus_finds_every_daemon_and_every_expression_has_a_result() {
    for words in [&["check", "rules", "brindle-alerts.yml"], &["test", "rules", "brindle-alerts-test.yml"]] {
        let done = Command::new("promtool").args(words).current_dir(deployed()).output();
        let done = done.expect("promtool is installed: cargo xtask setup test");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let options = Options { osts: 2, mounts: 1, archive: true, ..Options::default() };
    let cluster = Cluster::up("monitoring", &options);
    cluster.down();
    let up = cluster.dev(&["up", "--manager"]);
    assert!(up.ok(), "{up}");
    let prometheus = Prometheus::start(&cluster);
    let mut round = 0;
    let mut load = || {
        round += 1;
        let path = cluster.a().join(format!("file-{round}"));
        fs::write(&path, bytes(round, 2 << 20)).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 2 << 20);
        fs::rename(&path, cluster.a().join("renamed")).unwrap();
    };
    // The MGS, the MDT, two OSTs and the mount; the manager.
    prometheus.until("up{job=\"brindle\"} == 1", 5, &mut load);
    prometheus.until("up{job=\"brindle-manager\"} == 1", 1, &mut load);
    // The numbers of limits are told once there is one.
    let dir = cluster.dir().display().to_string();
    let limit = cluster.brindle(&["limit", "add", "wide", "--job", "*", "--iops", "1000000", "--dir", &dir]);
    assert!(limit.ok(), "{limit}");
    for (service, targets) in [("mds", 1), ("oss", 2)] {
        prometheus.until(&format!("brindle_{service}_limited_requests_total"), targets, &mut load);
    }
    let listed = cluster.brindle(&[
        "prometheus".to_owned(),
        "targets".to_owned(),
        format!("--dir={}", cluster.dir().display()),
    ]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 5, "{listed}");
    let (rules, boards) = (rules(), boards());
    assert!(rules.len() > 20 && boards.len() > 60, "{} {}", rules.len(), boards.len());
    for rule in &rules {
        prometheus.query(rule).unwrap_or_else(|why| panic!("{rule}: {why}"));
    }
    for selector in rules.iter().flat_map(|rule| selectors(rule)).collect::<BTreeSet<_>>() {
        prometheus.until(&selector, 1, &mut load);
    }
    for expression in &boards {
        prometheus.until(&expression.replace("$__rate_interval", RATE_INTERVAL), 1, &mut load);
    }
    for process in cluster.processes().iter().filter(|process| !process.metrics_url.is_empty()) {
        let address = process.metrics_url.trim_start_matches("http://").trim_end_matches("/metrics");
        let wrong = wrong_names(&get(address, "/metrics").unwrap());
        assert!(wrong.is_empty(), "{}: {wrong:#?}", process.name);
    }
    // A daemon that is gone is missed.
    cluster.kill(&["ost1"]);
    let silent = prometheus.until("up{job=\"brindle\"} == 0", 1, || {});
    assert_eq!(silent[0]["metric"]["daemon"], "ost1", "{silent:?}");
    cluster.start(&["ost1"]);
}
