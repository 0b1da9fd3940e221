//! Burst buffers as a place: a buffer on as many server hosts as a row has, mounted on the client hosts, and the time that buffers take.
//!
//! `brindle dev slurm up --hosts` makes the hosts. The buffer of a row is made, mounted and ended with the calls that Slurm makes
//! (`dacctl`). Servers that a row does without are drained, as the Data Accelerator's were left out of the pool.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::place::Running;
use super::report::Figure;
use super::rows::{self, Load, Row};

/// Size of the brick of each server: more than a phase writes through the link of its host.
const BRICK_MIB: u32 = 1024;
/// Size of the buffers that are only made and ended: one granule, on one server.
const SMALL_MIB: u32 = 16;
/// The user of the buffers: one that every Debian has.
const USER: &str = "65534";
/// Where jobs find their buffers on the hosts.
const MOUNT_ROOT: &str = "run/brindle/jobs";
/// Numbers of buffers that are made at once, and ended.
const MADE: [u32; 3] = [1, 10, 100];
/// The same, for a run that only checks that everything works.
const MADE_QUICK: [u32; 2] = [1, 10];
/// Most commands that ask for a buffer at the same time.
const ASKERS: u32 = 8;

/// A buffer that is mounted on client hosts.
pub struct Mounted {
    /// Servers that it lies on.
    oss: u32,
    /// Clients on which it is mounted.
    clients: u32,
    /// The job that it belongs to.
    token: String,
}

impl Running<'_> {
    /// Starts the hosts of the place.
    pub(super) fn up_with_buffers(&self) -> Result<(), String> {
        let place = self.place;
        let words = [
            format!("--hosts={}", place.oss),
            format!("--nodes={}", place.clients),
            format!("--rate={}kbit", place.kbit_per_second),
            format!("--bb-pool={}MiB", place.oss * BRICK_MIB),
        ];
        self.dev(&["slurm", "up"], &words).map(drop)
    }

    /// A call as Slurm makes it.
    fn dacctl(&self, words: &[&str]) -> Result<String, String> {
        self.commands.brindle(&[&["dacctl", &self.socket()], words].concat(), &format!("dacctl-{}", words[0]))
    }

    fn socket(&self) -> String {
        format!("--socket={}", self.dir.join("run/bb.sock").display())
    }

    /// The directory of a buffer for a load, through the mounts of its clients. A buffer for other servers or clients is ended first.
    pub(super) fn buffer_dirs(&self, load: &Load) -> Result<Vec<PathBuf>, String> {
        let fits = |now: &Mounted| (now.oss, now.clients) == (load.oss, load.clients);
        if !self.buffer.borrow().as_ref().is_some_and(fits) {
            self.end_buffer()?;
            self.make_buffer(load)?;
        }
        let now = self.buffer.borrow();
        let token = &now.as_ref().ok_or("no buffer is mounted")?.token;
        let hosts = self.commands.hosts(&self.dir)?;
        let clients = self.clients.iter().take(load.clients as usize);
        let dir = |client: &super::place::Host| {
            let host = hosts.iter().find(|host| host["name"] == client.name.as_str());
            let init = host.and_then(|host| host["pid"].as_u64());
            let init = init.ok_or_else(|| format!("{} does not run", client.name))?;
            // Mounts of a host are seen from outside through the root directory of its init.
            Ok(PathBuf::from(format!("/proc/{init}/root/{MOUNT_ROOT}/{token}/global")))
        };
        clients.map(dir).collect()
    }

    /// Makes a buffer on the first servers with all that their bricks have, and mounts it on the clients.
    fn make_buffer(&self, load: &Load) -> Result<(), String> {
        self.use_servers(load.oss)?;
        let token = self.next_token.get().to_string();
        self.next_token.set(self.next_token.get() + 1);
        let (script, nodes) = (self.dir.join("job.sh"), self.dir.join("job.nodes"));
        let capacity = format!("{}MiB", load.oss * BRICK_MIB);
        let text =
            format!("#!/bin/sh\n#DW jobdw type=scratch capacity={capacity} access_mode=striped\nexit 0\n");
        let mut names = String::new();
        for client in self.clients.iter().take(load.clients as usize) {
            // Writing to a String cannot fail.
            let _ = writeln!(names, "{}", client.name);
        }
        for (path, text) in [(&script, text), (&nodes, names)] {
            std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let (script, nodes) = (script.display().to_string(), nodes.display().to_string());
        let job = ["--token", &token, "--job", &script];
        let pool = format!("default:{capacity}");
        let setup = ["--caller", "SLURM", "--user", USER, "--groupid", USER, "--capacity", &pool];
        self.dacctl(&[&["setup"][..], &job, &setup].concat())?;
        self.dacctl(&[&["data_in"][..], &job].concat())?;
        self.dacctl(&[&["pre_run"][..], &job, &["--nodehostnamefile", &nodes]].concat())?;
        println!("  a buffer of {capacity} on {} servers, mounted on {} clients", load.oss, load.clients);
        *self.buffer.borrow_mut() = Some(Mounted { oss: load.oss, clients: load.clients, token });
        Ok(())
    }

    /// Unmounts and destroys the buffer that is mounted, if there is one.
    pub(super) fn end_buffer(&self) -> Result<(), String> {
        let Some(Mounted { token, .. }) = self.buffer.borrow_mut().take() else { return Ok(()) };
        for function in ["post_run", "teardown"] {
            self.dacctl(&[function, "--token", &token])?;
        }
        Ok(())
    }

    /// New buffers lie on the first servers only.
    fn use_servers(&self, oss: u32) -> Result<(), String> {
        for (n, server) in (0..).zip(&self.servers) {
            let brick = format!("{}-brick", server.name);
            let stop: &[&str] = if n < oss { &["--stop"] } else { &[] };
            self.brindle(&[&["bb", "brick", "drain", &brick, &self.socket()][..], stop].concat())?;
        }
        Ok(())
    }

    /// Makes buffers on the servers of a load, all at once, and ends them; the seconds of both, for each number of buffers.
    pub(super) fn make_and_end(
        &self,
        row: &'static Row,
        load: &Load,
        seconds: u32,
    ) -> Result<Vec<Figure>, String> {
        self.end_buffer()?;
        self.use_servers(load.oss)?;
        let counts: &[u32] = if seconds == rows::SECONDS_QUICK { &MADE_QUICK } else { &MADE };
        let mut figures = Vec::new();
        for count in counts {
            let capacity = format!("--capacity={SMALL_MIB}MiB");
            let made = self.timed(*count, "make", &["bb", "create", &capacity, "--user", USER]);
            // Those that were made are ended, also where others could not be made.
            let ended = self.timed(*count, "end", &["bb", "destroy", "--yes"]);
            for (verb, value) in [("make", made?), ("end", ended?)] {
                figures.push(Figure {
                    place: self.place.name,
                    row: row.name,
                    load: load.about(),
                    phase: format!("{verb} {count}"),
                    unit: "s",
                    value,
                    limit: None,
                    document: row.document[usize::from(verb == "end")],
                });
            }
        }
        Ok(figures)
    }

    /// Seconds in which a command is done for so many buffers, some at once; the first fault.
    fn timed(&self, count: u32, verb: &str, words: &[&str]) -> Result<f64, String> {
        let (commands, socket, next) = (&self.commands, self.socket(), AtomicU32::new(0));
        let ask = || {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok(());
                }
                let name = format!("seed{n}");
                commands.brindle(&[words, &[&name, &socket]].concat(), &format!("bb-{verb}-{name}"))?;
            }
        };
        let since = Instant::now();
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..ASKERS.min(count)).map(|_| scope.spawn(ask)).collect();
            let panicked = |_| Err("a thread that asks for buffers panicked".to_owned());
            asking.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
        })?;
        Ok(since.elapsed().as_secs_f64())
    }
}
