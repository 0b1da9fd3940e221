//! Burst buffers whose bricks lie on other hosts: h1 has the orchestrator and no brick, h2 and h3 have bricks, h4 is a compute node.

use std::process::Child;
use std::time::Duration;

use brindle_tests::cluster::{Cluster, Output, binary};

use crate::bare_hosts::{said, start, until, until_within};
use crate::dice::{Dice, rounds, seed};
use crate::enrolment::{brindle, done, end, join, serve};

/// Where jobs find their buffers.
const ROOT: &str = "/run/brindle/jobs";
/// Bricks of each host.
const BRICK: &str = "/var/lib/brindle/brick";
/// The user of the jobs.
const UID: u32 = 4711;
/// Bytes of a brick.
const BRICK_BYTES: u64 = 128 << 20;
/// Longest wait for what begins when a host has been silent for a while.
const SILENT_LIMIT: Duration = Duration::from_secs(60);

struct Site {
    cluster: Cluster,
    /// Processes that hosts run, as this test has started them.
    children: Vec<Child>,
}

impl Site {
    fn up(name: &str) -> Site {
        let cluster = Cluster::up_bare(name, 4);
        done(&cluster, "h1", "cluster init --fs scratch");
        let children = vec![serve(&cluster, "h1")];
        for (host, role) in [("h2", "server"), ("h3", "server"), ("h4", "client")] {
            let joined = join(&cluster, host, role);
            assert!(joined.ok(), "{joined}");
            said(&cluster, host, &format!("mkdir -p {BRICK}"));
        }
        said(&cluster, "h1", &format!("mkdir -p /run/brindle/out && chown {UID} /run/brindle/out"));
        let mut site = Site { cluster, children };
        site.orchestrate();
        for host in ["h2", "h3", "h4"] {
            site.agent(host);
        }
        site
    }

    /// Like `up`, with a brick on h2 and on h3.
    fn with_bricks(name: &str) -> Site {
        let site = Site::up(name);
        for host in ["h2", "h3"] {
            site.add_brick(host);
        }
        assert_eq!(site.free(), [BRICK_BYTES, BRICK_BYTES]);
        site
    }

    fn add_brick(&self, host: &str) {
        done(&self.cluster, "h1", &format!("bb brick add --node {host} --dir {BRICK} --capacity 128MiB"));
    }

    fn orchestrate(&mut self) {
        let program = binary().display().to_string();
        let script = format!(
            "echo $$ > /run/brindle/bb.pid; exec '{program}' bb serve --listen h1 --mount-root {ROOT} --log /var/lib/brindle/bb.log"
        );
        self.children.push(start(&self.cluster, "h1", &script));
        until("orchestrating", || brindle(&self.cluster, "h1", "bb node list").ok());
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

    /// The power of a host fails.
    fn kill_host(&self, host: &str) {
        assert!(self.cluster.dev(&["host", "kill", host]).ok());
    }

    fn start_host(&mut self, host: &str) {
        assert!(self.cluster.dev(&["host", "start", host]).ok());
        said(&self.cluster, host, &format!("mkdir -p {ROOT}"));
        self.agent(host);
    }

    fn json(&self, words: &str) -> serde_json::Value {
        serde_json::from_str(&done(&self.cluster, "h1", &format!("{words} -o json"))).unwrap()
    }

    fn node(&self, name: &str) -> serde_json::Value {
        let all = self.json("bb node list");
        let found = all["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).cloned();
        found.unwrap_or_default()
    }

    fn bricks(&self) -> Vec<serde_json::Value> {
        self.json("bb brick list")["pools"][0]["bricks"].as_array().unwrap().clone()
    }

    fn brick(&self, name: &str) -> serde_json::Value {
        self.bricks().into_iter().find(|brick| brick["name"] == name).unwrap_or_default()
    }

    /// Free bytes of each brick.
    fn free(&self) -> Vec<u64> {
        self.bricks().iter().map(|brick| brick["free_bytes"].as_u64().unwrap()).collect()
    }

    fn buffers(&self, name: &str) -> Vec<serde_json::Value> {
        let all = self.json("bb list");
        all["buffers"].as_array().unwrap().iter().filter(|b| b["job"] == name).cloned().collect()
    }

    /// Hosts of the parts of a buffer.
    fn hosts_of(buffer: &serde_json::Value) -> Vec<String> {
        let parts = buffer["parts"].as_array().unwrap();
        parts.iter().map(|part| part["node"].as_str().unwrap().to_owned()).collect()
    }

    fn create(&self, name: &str, size: &str) -> Output {
        brindle(&self.cluster, "h1", &format!("bb create --capacity {size} --user {UID} {name}"))
    }

    /// Resources of buffers on a host: slices in its brick, loop devices over them, server processes.
    fn left_on(&self, host: &str) -> String {
        let script = format!(
            "ls {BRICK}/brindle-bb | grep -v owner; ls /var/lib/brindle/bb-agent/slices 2>/dev/null; \
             grep {BRICK}/ /proc/mounts; \
             for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep 'serve.*{BRICK}/' | grep -v grep; done; true"
        );
        said(&self.cluster, host, &script)
    }

    fn holds_nothing(&self, host: &str) {
        assert_eq!(self.left_on(host), "", "left on {host}");
    }

    fn call(&self, words: &str) -> String {
        done(&self.cluster, "h1", &format!("dacctl {words}"))
    }
}

#[test]
fn a_buffer_is_striped_over_the_bricks_of_other_hosts() {
    seed("bb-bricks");
    let mut site = Site::up("bb-bricks");
    site.wrong_bricks_are_refused();
    for host in ["h2", "h3"] {
        site.add_brick(host);
        site.add_brick(host);
        let brick = site.brick(&format!("{host}-brick"));
        assert_eq!((&brick["node"], &brick["state"]), (&host.into(), &"up".into()), "{brick}");
    }
    let script = "printf '#!/bin/sh\\n#DW jobdw type=scratch capacity=64MiB access_mode=striped\\n\
         #DW stage_out source=$DW_JOB_STRIPED/d destination=/run/brindle/out/7 type=directory\\n' > /run/brindle/7.sh; \
         printf 'h4\\n' > /run/brindle/7.nodes";
    said(&site.cluster, "h1", script);
    let file = "--token 7 --job /run/brindle/7.sh";
    // On a busy machine an agent may have been silent for a moment, and its host gets no part of a buffer then.
    until("both bricks are up", || {
        ["h2", "h3"].iter().all(|host| site.brick(&format!("{host}-brick"))["state"] == "up")
    });
    site.call(&format!("setup {file} --caller SLURM --user {UID} --groupid {UID} --capacity default:64MiB"));
    site.call(&format!("data_in {file}"));
    let buffer = site.buffers("7").remove(0);
    assert_eq!(Site::hosts_of(&buffer), ["h2", "h3"]);
    let shown = done(&site.cluster, "h1", "bb show 7");
    assert!(shown.contains("ost1  h3    h3-brick"), "{shown}");
    assert_eq!(site.free(), [BRICK_BYTES - (32 << 20); 2]);
    site.call(&format!("pre_run {file} --nodehostnamefile /run/brindle/7.nodes"));
    let at = format!("{ROOT}/7/global/d");
    let write = format!(
        "mkdir -m 777 {at} && cd {at} && for n in 1 2 3 4 5 6; do head -c 5000000 /dev/urandom > f$n; done; sync; md5sum f* > sums; sync"
    );
    said(&site.cluster, "h4", &write);
    for host in ["h2", "h3"] {
        let used = said(
            &site.cluster,
            host,
            &format!("df --output=used -k {BRICK}/brindle-bb/*/ost[0-9] | tail -1"),
        );
        assert!(used.trim().parse::<u64>().unwrap() > 5000, "{host} has {used} KiB");
    }
    site.processes_that_die_on_a_host_with_a_brick_are_started_again(&at);
    // Larger, on both hosts, while it is used; and smaller again.
    done(&site.cluster, "h1", "bb resize 7 128MiB");
    assert_eq!(site.free(), [BRICK_BYTES - (64 << 20); 2]);
    let room = said(&site.cluster, "h4", &format!("df --output=size -BM {at} | tail -1"));
    assert!(room.trim().trim_end_matches('M').parse::<u64>().unwrap() >= 110, "{room}");
    let less = brindle(&site.cluster, "h1", "bb resize 7 16MiB");
    assert!(!less.ok() && less.text.contains("E7013"), "{less}");
    done(&site.cluster, "h1", "bb resize 7 96MiB");
    assert_eq!(site.free().iter().sum::<u64>(), 2 * BRICK_BYTES - (96 << 20));
    // A brick that is to go gets no new buffers, and the job keeps its part.
    let drained = done(&site.cluster, "h1", "bb brick drain h3-brick");
    assert!(drained.contains("1 buffer has a part of it still"), "{drained}");
    assert!(done(&site.cluster, "h1", "bb brick list").contains("up, draining"));
    done(&site.cluster, "h1", &format!("bb create --capacity 16MiB --user {UID} p"));
    assert_eq!(Site::hosts_of(&site.buffers("p")[0]), ["h2"]);
    done(&site.cluster, "h1", "bb destroy --yes p");
    said(&site.cluster, "h4", &format!("cd {at} && md5sum -c sums"));
    site.call("post_run --token 7");
    site.call("data_out --token 7");
    site.call("teardown --token 7");
    said(&site.cluster, "h1", "cd /run/brindle/out/7 && md5sum -c sums");
    assert_eq!(
        site.free(),
        [BRICK_BYTES; 2],
        "{}",
        said(&site.cluster, "h1", "tail /var/lib/brindle/bb.log")
    );
    for host in ["h2", "h3"] {
        site.holds_nothing(host);
    }
    // A brick that nothing lies on goes at once, with its mark.
    done(&site.cluster, "h1", "bb brick remove h3-brick");
    assert_eq!(said(&site.cluster, "h3", &format!("ls {BRICK}")), "");
    end(site.cluster, site.children);
}

impl Site {
    fn wrong_bricks_are_refused(&self) {
        for (words, why) in [
            (format!("--node h9 --dir {BRICK} --capacity 128MiB"), "E7020"),
            (format!("--node h4 --dir {BRICK} --capacity 128MiB"), "has joined as client, not as server"),
            ("--node h2 --dir /nowhere --capacity 128MiB".to_owned(), "it is no directory on that host"),
            ("--node h2 --dir brick --capacity 128MiB".to_owned(), "it is no absolute path"),
            (format!("--node h2 --dir {BRICK} --capacity 900PiB"), "are promised"),
        ] {
            let refused = brindle(&self.cluster, "h1", &format!("bb brick add {words}"));
            assert!(!refused.ok() && refused.text.contains(why), "{refused}");
        }
        assert!(self.bricks().is_empty());
        for host in ["h2", "h3", "h4"] {
            assert_eq!(said(&self.cluster, host, &format!("ls {BRICK}")), "");
        }
    }

    /// Agents and servers of h2 are killed under a job that writes.
    fn processes_that_die_on_a_host_with_a_brick_are_started_again(&mut self, at: &str) {
        said(&self.cluster, "h2", "kill -9 $(cat /run/brindle/agent.pid)");
        until("the agent's end", || self.node("h2")["state"] == "away");
        said(&self.cluster, "h4", &format!("cd {at} && md5sum -c sums"));
        let all = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q 'serv[e].*brindle-bb/' && kill -9 ${p#/proc/}; done; true";
        said(&self.cluster, "h2", all);
        let mut writes = start(
            &self.cluster,
            "h4",
            &format!("cd {at} && echo more > more && sync more && md5sum -c sums"),
        );
        self.agent("h2");
        assert!(writes.wait().unwrap().success(), "a program that waited for the servers of h2 saw an error");
    }
}

#[test]
fn a_host_that_is_down_gives_no_slices_and_its_own_are_free_when_it_says_so() {
    seed("bb-bricks-down");
    let mut site = Site::with_bricks("bb-bricks-down");
    let made = site.create("p", "64MiB");
    assert!(made.ok(), "{made}");
    site.kill_host("h3");
    // The orchestrator does not know yet that the host is dead: the buffer is made on the other one.
    let made = site.create("q", "64MiB");
    assert!(made.ok(), "{made}");
    let of_q = site.buffers("q");
    let live: Vec<_> = of_q.iter().filter(|b| b["state"] == "ready").collect();
    assert_eq!(Site::hosts_of(live[0]), ["h2"], "{of_q:?}");
    assert_eq!(site.brick("h3-brick")["state"], "away");
    // Free space on the dead host's brick counts as unavailable.
    let refused = site.create("r", "64MiB");
    let why = "more are free on hosts that cannot be used now: h3";
    assert!(!refused.ok() && refused.text.contains("E7003") && refused.text.contains(why), "{refused}");
    let pools = site.call("pools");
    let half_tried = of_q.len() > 1;
    // 128 MiB of h2: 32 of p, 64 of q, and 32 of a q whose part on h3 is awaited.
    let free = if half_tried { 0 } else { 2 };
    assert!(pools.contains(&format!("\"free\":{free}}}")), "{pools}");
    // The buffer is not destroyed without its host, and none of its space is free.
    let destroyed = done(&site.cluster, "h1", "bb destroy --yes p");
    assert!(destroyed.contains("is being destroyed") && destroyed.contains("h3"), "{destroyed}");
    let p = site.buffers("p").remove(0);
    assert_eq!(p["state"], "being destroyed");
    assert!(p["reason"].as_str().unwrap().contains("waiting for node h3"), "{p}");
    assert_eq!(
        site.brick("h2-brick")["free_bytes"],
        BRICK_BYTES - (96 << 20) - if half_tried { 32 << 20 } else { 0 }
    );
    let refused = brindle(&site.cluster, "h1", "bb brick remove h3-brick");
    assert!(
        !refused.ok() && refused.text.contains("lies on it") && refused.text.contains("--lost"),
        "{refused}"
    );
    // The name is free, and the orchestrator may die.
    said(&site.cluster, "h1", "kill -9 $(cat /run/brindle/bb.pid)");
    site.orchestrate();
    until("registering", || site.node("h2")["state"] == "up");
    assert_eq!(site.buffers("p").len(), 1);
    site.start_host("h3");
    until_within(SILENT_LIMIT, "emptying", || site.buffers("p").is_empty() && site.buffers("q").len() == 1);
    assert_eq!(site.free(), [BRICK_BYTES - (64 << 20), BRICK_BYTES]);
    site.holds_nothing("h3");
    site.a_disk_that_is_lost_is_given_up_by_a_word();
    end(site.cluster, site.children);
}

impl Site {
    /// q lies on h2. h3 goes for good with a part of s; then it is back after all, and gets its brick anew.
    fn a_disk_that_is_lost_is_given_up_by_a_word(&mut self) {
        let made = self.create("s", "96MiB");
        assert!(made.ok(), "{made}");
        assert_eq!(Site::hosts_of(&self.buffers("s")[0]).len(), 2);
        let refused = brindle(&self.cluster, "h1", "bb brick remove --lost h3-brick");
        assert!(
            !refused.ok() && refused.text.contains("bb destroy --yes s."),
            "a buffer that lives: {refused}"
        );
        self.kill_host("h3");
        until_within(SILENT_LIMIT, "silence", || self.brick("h3-brick")["state"] != "up");
        done(&self.cluster, "h1", "bb destroy --yes s");
        assert_eq!(self.buffers("s")[0]["state"], "being destroyed");
        done(&self.cluster, "h1", "bb brick remove --lost h3-brick");
        until_within(SILENT_LIMIT, "the end of s", || self.buffers("s").is_empty());
        assert_eq!(self.free(), [BRICK_BYTES - (64 << 20)]);
        self.start_host("h3");
        assert_ne!(self.left_on("h3"), "", "what was given up is there");
        self.add_brick("h3");
        self.holds_nothing("h3");
        assert_eq!(self.free(), [BRICK_BYTES - (64 << 20), BRICK_BYTES]);
        done(&self.cluster, "h1", "bb destroy --yes q");
        assert_eq!(self.free(), [BRICK_BYTES; 2]);
        self.holds_nothing("h2");
    }
}

#[test]
fn an_orchestrator_that_is_killed_at_any_step_leaves_no_slice_that_nobody_has() {
    let mut dice = Dice::new(seed("bb-bricks-kill"));
    let mut site = Site::with_bricks("bb-bricks-kill");
    for round in 0..2 * rounds() {
        let name = format!("p{round}");
        for words in [
            format!("bb create --capacity 64MiB --user {UID} {name}"),
            format!("bb resize {name} 128MiB"),
            format!("bb destroy --yes {name}"),
        ] {
            let program = binary().display().to_string();
            let mut asks = start(&site.cluster, "h1", &format!("'{program}' {words}"));
            // Killed at any step: the dice say when.
            std::thread::sleep(dice.millis(20, 900));
            said(&site.cluster, "h1", "kill -9 $(cat /run/brindle/bb.pid)");
            asks.wait().unwrap();
            site.orchestrate();
            until("registering", || ["h2", "h3"].iter().all(|host| site.node(host)["state"] == "up"));
            // Asked again it is done, or it was done.
            let again = brindle(&site.cluster, "h1", &words);
            let is_gone = words.contains("destroy") && again.text.contains("E7004");
            assert!(again.ok() || is_gone, "{again}");
        }
        until("the end of a buffer", || site.buffers(&name).is_empty());
        assert_eq!(site.free(), [BRICK_BYTES; 2], "after {name}");
        for host in ["h2", "h3"] {
            site.holds_nothing(host);
        }
    }
    end(site.cluster, site.children);
}
