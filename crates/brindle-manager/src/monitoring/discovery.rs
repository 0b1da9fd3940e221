//! Prometheus's HTTP service discovery: a list of groups, each with its targets and their labels
//! (<https://prometheus.io/docs/prometheus/latest/http_sd/>). A file of the same contents serves `file_sd_configs`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cluster::Daemon;

/// Label by which Prometheus learns of another path than `/metrics`.
const PATH_LABEL: &str = "__metrics_path__";
/// The usual path.
const PATH_USUAL: &str = "/metrics";

/// A group of Prometheus's targets.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// `HOST:PORT`.
    pub targets: Vec<String>,
    /// Labels of all their series.
    pub labels: BTreeMap<String, String>,
}

/// A group for each daemon.
pub fn groups(daemons: Vec<Daemon>) -> Vec<Group> {
    let group = |daemon: Daemon| {
        let rest = daemon.url.strip_prefix("http://")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let mut labels = daemon.labels;
        if !path.is_empty() && path != PATH_USUAL {
            labels.insert(PATH_LABEL.to_owned(), path.to_owned());
        }
        Some(Group { targets: vec![authority.to_owned()], labels })
    };
    daemons.into_iter().filter_map(group).collect()
}

/// The groups as JSON.
pub fn text(groups: &[Group]) -> String {
    serde_json::to_string_pretty(groups).expect("plain fields always serialise") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_a_group_with_its_labels() {
        let daemon = |url: &str| Daemon {
            url: url.to_owned(),
            labels: BTreeMap::from([("host".to_owned(), "oss1".to_owned())]),
        };
        let all = ["http://10.0.0.7:9870/metrics", "http://[::1]:9/x", "http://a:1"].map(daemon).to_vec();
        let shown: serde_json::Value = serde_json::from_str(&text(&groups(all))).unwrap();
        let expected = serde_json::json!([
            { "targets": ["10.0.0.7:9870"], "labels": { "host": "oss1" } },
            { "targets": ["[::1]:9"], "labels": { "host": "oss1", "__metrics_path__": "/x" } },
            { "targets": ["a:1"], "labels": { "host": "oss1" } },
        ]);
        assert_eq!(shown, expected);
    }
}
