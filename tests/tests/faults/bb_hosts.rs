//! Burst buffers whose compute nodes are other hosts: the orchestrator on one host, agents on two others, and a fourth host that has not
//! joined.

use std::collections::BTreeSet;
use std::process::Child;

use brindle_tests::cluster::{Cluster, binary};

use crate::bare_hosts::{said, sh, start, until};
use crate::dice::seed;
use crate::enrolment::{brindle, done, end, join, serve};

/// Where jobs find their buffers.
const ROOT: &str = "/run/brindle/jobs";
/// The user of the jobs.
const UID: u32 = 4711;
/// The user of slurmctld.
const SLURM_UID: u32 = 4712;

struct Site {
    cluster: Cluster,
    /// Processes that hosts run, as this test has started them.
    children: Vec<Child>,
}

impl Site {
    /// The orchestrator on h1 with a brick, agents on h2 and h3.
    fn up(name: &str) -> Site {
        seed(name);
        let cluster = Cluster::up_bare(name, 4);
        done(&cluster, "h1", "cluster init --fs scratch");
        let children = vec![serve(&cluster, "h1")];
        for host in ["h2", "h3"] {
            let joined = join(&cluster, host, "client");
            assert!(joined.ok(), "{joined}");
        }
        let mut site = Site { cluster, children };
        said(
            &site.cluster,
            "h1",
            &format!("mkdir -p /var/lib/brindle/brick /run/brindle/out && chown {UID} /run/brindle/out"),
        );
        site.orchestrate("h1");
        done(&site.cluster, "h1", "bb brick add --name b0 --capacity 256MiB /var/lib/brindle/brick");
        for host in ["h2", "h3"] {
            site.agent(host);
        }
        site
    }

    fn orchestrate(&mut self, host: &str) {
        let program = binary().display().to_string();
        let script = format!(
            "exec '{program}' bb serve --listen {host} --mount-root {ROOT} --slurm-uid {SLURM_UID} --log /var/lib/brindle/bb.log"
        );
        self.children.push(start(&self.cluster, host, &script));
        until("orchestrating", || brindle(&self.cluster, host, "bb node list").ok());
    }

    /// Starts the agent of a node, and waits until it has registered.
    fn agent(&mut self, host: &str) {
        let program = binary().display().to_string();
        let script = format!(
            "echo $$ > /run/brindle/agent.pid; exec '{program}' bb agent h1 --mount-root {ROOT} --log /var/lib/brindle/agent.log"
        );
        self.children.push(start(&self.cluster, host, &script));
        until("registering", || self.node(host)["state"] == "up");
    }

    fn kill_agent(&self, host: &str) {
        said(&self.cluster, host, "kill -9 $(cat /run/brindle/agent.pid)");
        until("the agent's end", || self.node(host)["state"] == "away");
    }

    fn json(&self, words: &str) -> serde_json::Value {
        serde_json::from_str(&done(&self.cluster, "h1", &format!("{words} -o json"))).unwrap()
    }

    fn node(&self, name: &str) -> serde_json::Value {
        let all = self.json("bb node list");
        let found = all["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).cloned();
        found.unwrap_or_default()
    }

    fn buffer(&self, job: &str) -> serde_json::Value {
        let all = self.json("bb list");
        let found = all["buffers"].as_array().unwrap().iter().find(|buffer| buffer["job"] == job).cloned();
        found.unwrap_or_default()
    }

    /// A call of Slurm, which has to succeed.
    fn call(&self, words: &str) -> String {
        done(&self.cluster, "h1", &format!("dacctl {words}"))
    }

    /// A job with a buffer whose directory `d` is to be staged out, mounted on nodes.
    fn job(&self, job: &str, access: &str, nodes: &str) {
        let script = format!(
            "printf '#!/bin/sh\\n#DW jobdw type=scratch capacity=64MiB access_mode={access}\\n\
             #DW stage_out source=$DW_JOB_STRIPED/d destination=/run/brindle/out/{job} type=directory\\n' > /run/brindle/{job}.sh; \
             printf '{nodes}' > /run/brindle/{job}.nodes"
        );
        said(&self.cluster, "h1", &script);
        let file = format!("--token {job} --job /run/brindle/{job}.sh");
        self.call(&format!(
            "setup {file} --caller SLURM --user {UID} --groupid {UID} --capacity default:64MiB"
        ));
        self.call(&format!("data_in {file}"));
    }

    fn pre_run(&self, job: &str) -> brindle_tests::cluster::Output {
        let words = format!(
            "dacctl pre_run --token {job} --job /run/brindle/{job}.sh --nodehostnamefile /run/brindle/{job}.nodes"
        );
        brindle(&self.cluster, "h1", &words)
    }

    fn mounted(&self, host: &str) -> String {
        said(&self.cluster, host, &format!("grep ' {ROOT}/' /proc/mounts || true"))
    }

    /// Ends a job whose buffer is mounted nowhere any more: its files are out, and nothing of it is left.
    fn ends(&self, job: &str, files: &[(&str, &str)]) {
        self.call(&format!("data_out --token {job}"));
        self.call(&format!("teardown --token {job}"));
        for (file, text) in files {
            assert_eq!(
                said(&self.cluster, "h1", &format!("cat /run/brindle/out/{job}/{file}")),
                *text,
                "{file}"
            );
        }
        assert!(self.buffer(job).is_null(), "{}", self.buffer(job));
    }
}

#[test]
fn buffers_are_mounted_on_other_hosts_by_agents_that_may_die() {
    let mut site = Site::up("bb-hosts");
    site.strangers_are_refused();
    site.logs_are_told_to_root_alone();
    site.job("7", "striped,private", "h2\\nh3\\n");
    let ran = site.pre_run("7");
    assert!(ran.ok(), "{ran}");
    let at = format!("{ROOT}/7/global/d");
    said(&site.cluster, "h2", &format!("mkdir -m 777 {at} && echo two > {at}/h2 && sync {at}/h2"));
    assert_eq!(
        said(
            &site.cluster,
            "h3",
            &format!("cat {at}/h2; echo three > {at}/h3; echo own > {ROOT}/7_private/f")
        ),
        "two"
    );
    assert_eq!(
        said(&site.cluster, "h2", &format!("ls {ROOT}/7_private")),
        "",
        "a node sees its own directory"
    );
    assert_eq!(site.node("h2")["buffers"], serde_json::json!(["7"]));
    site.a_stranger_cannot_mount("7");
    // The agent of h3 dies. The agent's mounts go on; the job ends, and its buffer waits for h3 alone.
    site.kill_agent("h3");
    site.an_agent_that_is_away_is_named();
    said(&site.cluster, "h3", &format!("echo more >> {at}/h3"));
    let post = brindle(&site.cluster, "h1", "dacctl post_run --token 7");
    assert!(!post.ok() && post.text.contains("waiting for node h3"), "{post}");
    let buffer = site.buffer("7");
    assert_eq!((&buffer["state"], &buffer["nodes"]), (&"being unmounted".into(), &serde_json::json!(["h3"])));
    assert!(buffer["reason"].as_str().unwrap().contains("node h3: its agent is not connected"), "{buffer}");
    assert_eq!(site.mounted("h2"), "");
    let early = brindle(&site.cluster, "h1", "bb destroy --yes 7");
    assert!(!early.ok(), "nothing is destroyed under a node: {early}");
    // The node comes back, and nobody has to ask again.
    site.agent("h3");
    until("unmounting", || site.buffer("7")["state"] == "unmounted");
    assert_eq!(site.mounted("h3"), "");
    site.ends("7", &[("h2", "two"), ("h3", "three\nmore")]);
    site.a_dead_node_is_given_up();
    site.stale_orders_are_refused();
    for host in ["h2", "h3"] {
        assert_eq!(site.mounted(host), "");
    }
    end(site.cluster, site.children);
}

impl Site {
    /// A host that has not proven its right orders, mounts and registers nothing.
    fn strangers_are_refused(&self) {
        let agent = format!("bb agent h1 --mount-root {ROOT}");
        let refused = brindle(&self.cluster, "h4", &agent);
        assert!(!refused.ok() && refused.text.contains("E8010"), "{refused}");
        let refused = brindle(&self.cluster, "h4", "bb serve --listen h4");
        assert!(!refused.ok() && refused.text.contains("E8010"), "{refused}");
    }

    /// The orchestrator tells lines of its log and of its agents', changes their levels, and puts them into a bundle.
    fn logs_are_told_to_root_alone(&self) {
        let processes = |view: &serde_json::Value| -> BTreeSet<String> {
            let word =
                |line: &serde_json::Value| format!("{} {}", line["host"], line["mount"]).replace('"', "");
            view["lines"].as_array().unwrap().iter().map(word).collect()
        };
        let all = ["h1 burst buffers", "h2 agent of burst buffers", "h3 agent of burst buffers"];
        assert_eq!(processes(&self.json("log show --bb --level info")), all.map(str::to_owned).into());
        assert_eq!(processes(&self.json("log show --bb h2 --level info")), [all[1].to_owned()].into());
        let changed = done(&self.cluster, "h1", "log level --bb h2 debug");
        assert_eq!(changed.trim(), "agent of burst buffers on h2: info -> debug");
        let now = done(&self.cluster, "h1", "log level --bb all");
        assert_eq!(
            now.trim(),
            "burst buffers on h1: info\nagent of burst buffers on h2: debug\nagent of burst buffers on h3: info"
        );
        let log = said(&self.cluster, "h2", "cat /var/lib/brindle/agent.log");
        assert!(log.contains("\"the level of this log was changed\" by="), "{log}");
        let found = done(&self.cluster, "h1", "log show --bb --text 'the LEVEL of this log'");
        assert!(found.lines().count() == 1 && found.contains(" h2 "), "{found}");
        for (words, why) in [
            ("log level --bb h2 brindle=loud", "nothing was changed"),
            ("log show --bb h9", "E7020"),
            ("log show --bb h2 --mounts", "cannot be used with"),
        ] {
            let refused = brindle(&self.cluster, "h1", words);
            assert!(!refused.ok() && refused.text.contains(why), "{words}: {refused}");
        }
        done(&self.cluster, "h1", "log level --bb h2 info");
        // Without names in a bundle: the time, the level, the part and the code of each line.
        let bundle = brindle(&self.cluster, "h1", "support bundle --to /run/brindle/b.tar.gz");
        assert!([0, 7].contains(&bundle.code), "{bundle}");
        let lines = "tar --to-stdout -xzf /run/brindle/b.tar.gz brindle-support/logs/burst-buffers.log";
        let lines = said(&self.cluster, "h1", lines);
        for host in ["h1", "h2", "h3"] {
            assert!(lines.contains(&format!("host={host} ts=")), "{lines}");
        }
        assert!(!lines.contains("msg=") && !lines.contains("/var/lib"), "{lines}");
        // Neither users nor the user of slurmctld, who may order buffers, read lines with names of users' files.
        said(&self.cluster, "h1", &format!("cp '{}' /run/brindle/b", binary().display()));
        for uid in [UID, SLURM_UID] {
            for words in ["log show --bb", "log level --bb all debug"] {
                let call =
                    format!("setpriv --reuid={uid} --regid={uid} --clear-groups /run/brindle/b {words}");
                let refused = sh(&self.cluster, "h1", &call);
                assert!(!refused.ok() && refused.text.contains("only root "), "{words}: {refused}");
                assert!(refused.stdout.is_empty(), "{words}: {refused}");
            }
        }
    }

    fn an_agent_that_is_away_is_named(&self) {
        let shown = brindle(&self.cluster, "h1", "log show --bb --level info");
        assert!(shown.code == 7 && shown.stdout.contains(" h2 "), "{shown}");
        assert!(
            shown.text.contains("agent of burst buffers on h3 tells nothing: its agent is away"),
            "{shown}"
        );
        let level = brindle(&self.cluster, "h1", "log level --bb all");
        assert!(level.code == 7 && level.stdout.lines().count() == 2, "{level}");
    }

    /// Without a certificate nothing is mounted; a host that has joined as a client gives no orders, and takes none.
    fn a_stranger_cannot_mount(&mut self, job: &str) {
        let source =
            said(&self.cluster, "h2", &format!("grep ' {ROOT}/{job} ' /proc/mounts | cut -d' ' -f1"));
        let mount = format!(
            "mkdir -p /run/brindle/x; timeout 20 '{}' mount {source} /run/brindle/x",
            binary().display()
        );
        let refused = sh(&self.cluster, "h4", &mount);
        assert!(!refused.ok() && refused.text.contains("E8010"), "{refused}");
        assert!(join(&self.cluster, "h4", "client").ok());
        let refused = brindle(
            &self.cluster,
            "h4",
            "bb serve --listen h4 --dir /run/brindle/bb --mount-root /run/brindle/m",
        );
        assert!(!refused.ok() && refused.text.contains("has joined as client, not as server"), "{refused}");
        let far = sh(&self.cluster, "h1", "printf 'h4\\n' > /run/brindle/far.nodes");
        assert!(far.ok());
        let run = "dacctl pre_run --token 7 --nodehostnamefile /run/brindle/far.nodes";
        let refused = brindle(&self.cluster, "h1", run);
        assert!(
            !refused.ok() && refused.text.contains("no agent of such a node has ever registered"),
            "{refused}"
        );
        // A client may be a node, under its own name and no other; that gives it no say.
        self.agent("h4");
        assert_eq!(self.node("h4")["buffers"], serde_json::json!([]));
        assert!(!brindle(&self.cluster, "h4", "bb node forget --yes h2").ok());
        self.kill_agent("h4");
    }

    /// The agent of h3 is gone, and its mount is alive: after the administrator's word it writes nothing any more.
    fn a_dead_node_is_given_up(&mut self) {
        self.job("8", "striped", "h2\\nh3\\n");
        let ran = self.pre_run("8");
        assert!(ran.ok(), "{ran}");
        let at = format!("{ROOT}/8/global/d");
        said(&self.cluster, "h3", &format!("mkdir -m 777 {at} && echo three > {at}/h3 && sync {at}/h3"));
        self.kill_agent("h3");
        let mut writes = start(
            &self.cluster,
            "h3",
            &format!("while echo late && sync {at}/late; do :; done >> {at}/late"),
        );
        until("a write", || sh(&self.cluster, "h2", &format!("test -s {at}/late")).ok());
        assert!(!brindle(&self.cluster, "h1", "dacctl post_run --token 8").ok());
        for (node, options, why) in [
            ("h2", "--yes", "its agent answers"),
            ("h3", "", "not synced is lost then"),
            ("h9", "--yes", "E7020"),
        ] {
            let refused = brindle(&self.cluster, "h1", &format!("bb node forget {options} {node}"));
            assert!(!refused.ok() && refused.text.contains(why), "{refused}");
        }
        assert_eq!(self.buffer("8")["nodes"], serde_json::json!(["h3"]));
        done(&self.cluster, "h1", "bb node forget --yes h3");
        until("fencing", || self.buffer("8")["state"] == "unmounted");
        self.call("data_out --token 8");
        let size =
            |site: &Site| said(&site.cluster, "h1", "stat -c %s /var/lib/brindle/bb/stage/*/global/d/late");
        let before = size(self);
        // The node is back, and loses the mounts that are not its own any more; none of its late bytes has arrived.
        self.agent("h3");
        until("a clean node", || self.mounted("h3").is_empty());
        assert_eq!(size(self), before);
        self.ends("8", &[("h3", "three")]);
        // The writer has lost its file.
        writes.wait().unwrap();
    }

    /// An order that is older than one which the node has carried out changes nothing.
    fn stale_orders_are_refused(&mut self) {
        self.job("9", "striped", "h2\\n");
        let serial = self.buffer("9")["serial"].clone();
        self.kill_agent("h2");
        let file = "/var/lib/brindle/bb-agent/revisions.json";
        said(
            &self.cluster,
            "h2",
            &format!("printf '{{\"{serial}\":{{\"revision\":999999999,\"order\":99}}}}' > {file}"),
        );
        self.agent("h2");
        let refused = self.pre_run("9");
        assert!(!refused.ok() && refused.text.contains("E7019"), "{refused}");
        assert_eq!(self.mounted("h2"), "");
        // A node that remembers nothing takes orders again.
        self.kill_agent("h2");
        said(&self.cluster, "h2", &format!("rm {file}"));
        self.agent("h2");
        self.call("teardown --token 9 --hurry");
        assert!(self.buffer("9").is_null());
    }
}
