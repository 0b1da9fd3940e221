//! Counters of the cluster's processes, read from their metrics endpoints.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::Session;
use crate::run::capture;

/// Longest time for one process to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Counters of requests, as their names end.
const RPCS: [&str; 2] = ["brindle_mds_requests_total", "brindle_oss_requests_total"];
/// Counters of fdatasyncs.
const SYNCS: [&str; 2] = ["brindle_mds_log_syncs_total", "brindle_oss_fdatasyncs_total"];
/// Counter of processor time.
const CPU: &str = "brindle_process_cpu_seconds_total";

/// Cost of an operation.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Requests to MDT and OSTs.
    pub rpcs: f64,
    /// fdatasyncs of MDT and OSTs.
    pub fdatasyncs: f64,
    /// Processor time by kind of process.
    pub cpu_seconds: BTreeMap<String, f64>,
}

impl Cost {
    /// Cost added since `before`.
    pub fn since(&self, before: &Cost) -> Cost {
        let cpu = self
            .cpu_seconds
            .iter()
            .map(|(kind, now)| (kind.clone(), now - before.cpu_seconds.get(kind).copied().unwrap_or(0.0)));
        Cost {
            rpcs: self.rpcs - before.rpcs,
            fdatasyncs: self.fdatasyncs - before.fdatasyncs,
            cpu_seconds: cpu.collect(),
        }
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Cost) {
        self.rpcs += other.rpcs;
        self.fdatasyncs += other.fdatasyncs;
        for (kind, seconds) in &other.cpu_seconds {
            *self.cpu_seconds.entry(kind.clone()).or_default() += seconds;
        }
    }
}

/// The endpoints of a cluster's processes, with the kind of each.
#[derive(Clone)]
pub struct Counters {
    endpoints: Vec<(String, String)>,
}

impl Counters {
    /// The processes of the cluster in `state`.
    pub fn of(session: &Session, state: &Path) -> Result<Counters, String> {
        let (brindle, state) = (session.brindle().display().to_string(), state.display().to_string());
        let text = capture(&brindle, &["dev", "status", "--dir", &state, "-o", "json"]);
        let text = text.ok_or("brindle dev status failed")?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(|e| format!("dev status: {e}"))?;
        let all = json["processes"].as_array().cloned().unwrap_or_default();
        let field = |p: &serde_json::Value, name: &str| p[name].as_str().unwrap_or_default().to_owned();
        let endpoints = all.iter().map(|p| (field(p, "kind"), field(p, "metrics_url"))).collect();
        Ok(Counters { endpoints })
    }

    /// All counters now; a process that does not answer counts as nothing.
    pub fn read(&self) -> Cost {
        let mut cost = Cost::default();
        for (kind, url) in &self.endpoints {
            let text = fetch(url).unwrap_or_default();
            cost.rpcs += RPCS.iter().map(|name| sum(&text, name)).sum::<f64>();
            cost.fdatasyncs += SYNCS.iter().map(|name| sum(&text, name)).sum::<f64>();
            *cost.cpu_seconds.entry(kind.clone()).or_default() += sum(&text, CPU);
        }
        cost
    }
}

/// The body of an HTTP answer.
fn fetch(url: &str) -> std::io::Result<String> {
    let rest = url.trim_start_matches("http://");
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The sum over all series of a family: lines `name{labels} value`.
fn sum(text: &str, name: &str) -> f64 {
    let of_name = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
    of_name.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_family_are_added() {
        let text = "# TYPE a counter\na_total{x=\"1 2\"} 3\na_total{x=\"b\"} 4.5\nab_total 100\n";
        assert_eq!(sum(text, "a_total"), 7.5);
        assert_eq!(sum(text, "ab_total"), 100.0);
        assert_eq!(sum(text, "missing"), 0.0);
    }

    #[test]
    fn costs_are_differences() {
        let of = |rpcs, cpu| Cost { rpcs, fdatasyncs: 1.0, cpu_seconds: [("ost".to_owned(), cpu)].into() };
        let mut cost = of(10.0, 3.0).since(&of(4.0, 1.0));
        assert_eq!((cost.rpcs, cost.fdatasyncs, cost.cpu_seconds["ost"]), (6.0, 0.0, 2.0));
        cost.add(&of(1.0, 1.0));
        assert_eq!((cost.rpcs, cost.fdatasyncs, cost.cpu_seconds["ost"]), (7.0, 1.0, 3.0));
    }
}
