//! `brindle dev slurm up --hosts N`: Slurm, the orchestrator, agents and bricks on hosts of their own ([`brindle_host::slurm::hosts`]).
//!
//! The hosts join a cluster, bricks are added and daemons are started with the commands that an administrator types on real machines
//! (docs/operations/slurm.md), each on its host.

use std::time::{Duration, Instant};

use brindle_host::Host;
use brindle_host::bb::POOL_DEFAULT;
use brindle_host::bb::protocol::{self, Reply, Request, unexpected};
use brindle_host::cluster::{self, Event};
use brindle_host::slurm::hosts::{self, BRICK, HEAD, OnHosts, Scripts};
use brindle_host::slurm::{self, Places, Tell};
use brindle_types::{Code, Fault, Result};

use super::installed::On;

/// Name of the file system of the cluster that the hosts join; it gets no targets.
const FS: &str = "slurm";
/// Longest time until the orchestrator answers, and until all agents have registered.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Time between two looks at them.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Starts the cluster in a new or empty directory. Where that fails, all hosts end again; logs stay.
pub fn up(host: &Host, places: &Places, wanted: &OnHosts, tell: Tell) -> Result<()> {
    let brick_bytes = wanted.brick_bytes()?;
    slurm::prepare(places, tell)?;
    let event = |event: Event| match event {
        Event::Runs { name, address } => tell(&format!("{name} runs at {address}")),
        Event::Warning(fault) => tracing::warn!(%fault, "while the hosts start"),
        _ => {}
    };
    let on = cluster::On { host, dir: places.dir.clone(), tell: &event };
    let made = wanted.make(&on)?;
    let started = wanted
        .make_files(host, places, &made)
        .and_then(|()| Starting { host, places, wanted, tell }.all(brick_bytes));
    if started.is_err()
        && let Err(second) = hosts::end(host, places, tell)
    {
        tracing::warn!(fault = %second, "something of the cluster is left");
    }
    started
}

/// A cluster whose hosts run, and nothing on them yet.
struct Starting<'a> {
    host: &'a Host,
    places: &'a Places,
    wanted: &'a OnHosts,
    tell: Tell<'a>,
}

impl Starting<'_> {
    fn on(&self, host: &str) -> On<'_> {
        On { dir: &self.places.dir, host: host.to_owned() }
    }

    /// The head, then all others, then the bricks, then Slurm: slurmctld asks for the pools when it starts, and then every 30 s.
    fn all(&self, brick_bytes: u64) -> Result<()> {
        let scripts = Scripts { places: self.places, program: &self.host.program };
        let head = self.on(HEAD);
        let run = |script: &str| head.run(&["sh", "-c", script], "").map(drop);
        head.brindle(&["cluster", "init", "--fs", FS], "")?;
        run(&scripts.serve())?;
        head.until_answered()?;
        run(&scripts.orchestrate())?;
        head.enable_later(&format!("{}{}{}", scripts.serve(), scripts.orchestrate(), scripts.control()))?;
        self.ask(&Request::Bricks)?;
        (self.tell)(&format!("orchestrator of burst buffers at {}", self.places.socket().display()));
        let (storage, nodes) = (self.wanted.storage_names(), self.wanted.node_names());
        for (names, role) in [(&storage, "server"), (&nodes, "client")] {
            names.iter().try_for_each(|name| self.on(name).join(&head, role))?;
        }
        for name in &storage {
            self.on(name).enable(&scripts.storage(name))?;
        }
        self.wait_up(&storage)?;
        for name in &storage {
            let add = Request::AddBrick {
                pool: POOL_DEFAULT.to_owned(),
                name: format!("{name}-brick"),
                dir: BRICK.to_owned(),
                bytes: brick_bytes,
                node: Some(name.clone()),
            };
            self.ask(&add)?;
        }
        (self.tell)(&format!("bricks on {}", storage.join(", ")));
        run(&scripts.control())?;
        (self.tell)("slurmctld runs");
        for name in &nodes {
            self.on(name).enable(&scripts.node(name))?;
        }
        self.wait_up(&nodes)?;
        slurm::wait_idle(self.places, nodes.len())?;
        (self.tell)(&format!("{} nodes are idle", nodes.len()));
        Ok(())
    }

    fn ask(&self, request: &Request) -> Result<Reply> {
        protocol::ask(&self.places.socket(), request, READY_WITHIN)
    }

    /// Waits until the agents of hosts take orders.
    fn wait_up(&self, names: &[String]) -> Result<()> {
        let since = Instant::now();
        loop {
            let known = match self.ask(&Request::Nodes)? {
                Reply::Nodes(known) => known,
                other => return Err(unexpected(&other)),
            };
            let is_up = |name: &&String| known.iter().any(|node| node.name == **name && node.state == "up");
            let missing: Vec<&str> = names.iter().filter(|name| !is_up(name)).map(String::as_str).collect();
            if missing.is_empty() {
                return Ok(());
            }
            if since.elapsed() >= READY_WITHIN {
                return Err(Fault::new(Code::NodeAway)
                    .what("no agent has registered on")
                    .subject(missing.join(", "))
                    .why(format!("the orchestrator was waiting for {} s", READY_WITHIN.as_secs()))
                    .next(format!("read the logs in {}", self.places.dir.join("log").display())));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}
