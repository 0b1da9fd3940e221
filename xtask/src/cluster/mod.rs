//! A cluster of real processes with two mounts, for one step: made by `brindle dev`, below a directory of its own.
//!
//! Called by the step `mounted` and by the soak. Invariant: when a [`Cluster`] is dropped, whatever happened, no process, mount,
//! loop device or file of it is left. A part that could not be ended in order is ended by force and named.

pub mod leftovers;

use std::path::{Path, PathBuf};

use crate::Session;
use crate::run::{Cmd, Finished};

/// Base directory, on a disk: a memory file system has no direct I/O. Open to all users, like every directory
/// above it.
const BASE: &str = "/var/tmp";
/// The directory whose files lie on all OSTs.
const STRIPED: &str = "striped";
/// Longest time of `brindle dev up` and `down`.
const DEV_SECS_MAX: u64 = 120;
/// Longest time of one check of everything.
const FSCK_SECS_MAX: u64 = 120;
/// Longest time for a mount to answer a stat.
const STAT_SECS_MAX: u64 = 60;

/// A cluster, started or stopped.
pub struct Cluster {
    base: PathBuf,
    brindle: PathBuf,
    logs: PathBuf,
    log_number: u32,
}

impl Cluster {
    /// A new directory for a cluster; no process runs yet. The cluster's logs go to `target/test-logs/NAME`.
    pub fn new(session: &Session, name: &str) -> Result<Cluster, String> {
        // Short: the name of a socket, path and all, has 107 bytes.
        let base = PathBuf::from(BASE).join(format!("brindle-{}", std::process::id()));
        for dir in [base.clone(), base.join("a"), base.join("b")] {
            std::fs::create_dir(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        }
        let logs = session.logs().join(name);
        let _ = std::fs::remove_dir_all(&logs);
        Ok(Cluster { base, brindle: session.brindle(), logs, log_number: 0 })
    }

    /// The first mount.
    pub fn a(&self) -> PathBuf {
        self.base.join("a")
    }

    /// The second mount, a client of its own.
    pub fn b(&self) -> PathBuf {
        self.base.join("b")
    }

    /// A directory on both mounts: the root with the default layout, or the one whose files lie on all OSTs.
    pub fn dirs(&self, striped: bool) -> (PathBuf, PathBuf) {
        if striped { (self.a().join(STRIPED), self.b().join(STRIPED)) } else { (self.a(), self.b()) }
    }

    /// Makes the directory whose files lie on all OSTs, in the smallest stripes.
    pub fn make_striped(&mut self) -> Result<(), String> {
        let (dir, _) = self.dirs(true);
        ended("mkdir", &self.log("mkdir", Cmd::new("mkdir").arg(&dir).limit_secs(STAT_SECS_MAX)))?;
        let command = self.brindle(&["lfs", "setstripe", "--count", "-1", "--size", "64K"]).arg(dir);
        ended("brindle lfs setstripe", &self.log("setstripe", command))
    }

    /// Directory of the logs of this cluster and its step.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Directory of the cluster's state, for `--dir`.
    pub fn state(&self) -> PathBuf {
        self.base.join("state")
    }

    /// Starts all processes (again, with the data there is) and mounts.
    pub fn up(&mut self) -> Result<(), String> {
        self.up_with(&[])
    }

    /// Like [`Cluster::up`], with variables in the environment of all processes.
    pub fn up_with(&mut self, variables: &[(&str, &str)]) -> Result<(), String> {
        let (state, a, b) = (self.state(), self.a(), self.b());
        let command = self.brindle(&["dev", "up", "--osts", "4", "--dir"]).arg(state);
        let command = variables.iter().fold(command, |command, (key, value)| command.env(key, value));
        ended("brindle dev up", &self.log("up", command.arg("--mount").arg(a).arg("--mount").arg(b)))
    }

    /// Like [`Cluster::up`], with an archive, an agent, and an engine that carries out this policy.
    pub fn up_tiered(&mut self, policy: &str) -> Result<(), String> {
        let (state, a, b) = (self.state(), self.a(), self.b());
        let command = self.brindle(&["dev", "up", "--osts", "4", "--dir"]).arg(state).arg("--archive");
        let command = command.arg(self.base.join("archive")).arg("--mount").arg(a).arg("--mount").arg(b);
        ended("brindle dev up", &self.log("up", command))?;
        // The engine reads its text again when it has changed.
        let text = self.state().join("policy.conf");
        std::fs::write(&text, policy).map_err(|e| format!("cannot write {}: {e}", text.display()))
    }

    /// Starts a cluster of hosts, as these options of `brindle dev up` say.
    pub fn up_on_hosts(&mut self, options: &[&str]) -> Result<(), String> {
        let command = self.brindle(&["dev", "up", "--dir"]).arg(self.state()).args(options);
        ended("brindle dev up", &self.log("up", command))
    }

    /// The mount of the first client host.
    pub fn client(&self) -> PathBuf {
        self.state().join("mnt").join("c1")
    }

    /// Where the policy engine keeps its state.
    pub fn policy_state(&self) -> PathBuf {
        self.state().join("policy")
    }

    /// What a command tells as JSON of a path. It may end with an exit code of its own.
    pub fn asked(&mut self, args: &[&str], path: &Path) -> Result<serde_json::Value, String> {
        let command = self.brindle(args).arg(path).args(["-o", "json"]);
        let done = self.log("asked", command);
        serde_json::from_str(&done.output()).map_err(|e| format!("{e}\n{}", done.explain()))
    }

    /// Unmounts and ends all processes; the data stays.
    pub fn down(&mut self) -> Result<(), String> {
        let command = self.brindle(&["dev", "down", "--dir"]).arg(self.state());
        ended("brindle dev down", &self.log("down", command))
    }

    /// Checks the stopped cluster; anything but "clean" is an error.
    pub fn fsck(&mut self) -> Result<(), String> {
        let command = self.brindle(&["fsck", "--dir"]).arg(self.state()).limit_secs(FSCK_SECS_MAX);
        ended("brindle fsck", &self.log("fsck", command))
    }

    /// Whether both mounts answer.
    pub fn answers(&mut self) -> Result<(), String> {
        let command = Cmd::new("stat").arg(self.a()).arg(self.b()).limit_secs(STAT_SECS_MAX);
        ended("stat of both mounts", &self.log("stat", command))
    }

    /// Ends everything and removes it; an error names what did not end in order.
    pub fn remove(mut self) -> Result<(), String> {
        self.clear()
    }

    fn clear(&mut self) -> Result<(), String> {
        if !self.base.exists() {
            return Ok(());
        }
        self.keep_logs();
        let down = if self.state().exists() { self.down() } else { Ok(()) };
        let left = leftovers::clear(&self.base);
        match (down, left.is_empty()) {
            (Err(why), _) => Err(format!("{why}\nended by force: {}", left.join(", "))),
            (Ok(()), false) => Err(format!("left by 'brindle dev down': {}", left.join(", "))),
            (Ok(()), true) => Ok(()),
        }
    }

    /// Copies the logs of the processes to where those of the step are.
    fn keep_logs(&self) {
        let Ok(logs) = std::fs::read_dir(self.state().join("log")) else { return };
        for log in logs.flatten() {
            let to = self.logs.join(log.file_name());
            if let Err(e) = std::fs::copy(log.path(), &to) {
                eprintln!("cannot keep {}: {e}", to.display());
            }
        }
    }

    fn brindle(&self, args: &[&str]) -> Cmd {
        Cmd::new(&self.brindle).args(args).limit_secs(DEV_SECS_MAX).even_when_interrupted()
    }

    fn log(&mut self, name: &str, command: Cmd) -> Finished {
        self.log_number += 1;
        command.run(&self.logs.join(format!("{:02}-{name}.log", self.log_number)))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(why) = self.clear() {
            eprintln!("{why}");
        }
    }
}

fn ended(what: &str, done: &Finished) -> Result<(), String> {
    if done.ok() { Ok(()) } else { Err(format!("'{what}' failed\n{}", done.explain())) }
}
