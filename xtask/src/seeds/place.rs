//! A place: its cluster of hosts, what plain TCP moves in it, and loads on it.
//!
//! Invariant: when a [`Running`] is dropped, no host, mount or file of it is left.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use brindle_bench::run::Unit;
use serde_json::Value;

use super::buffers::Mounted;
use super::commands::Commands;
use super::report::Figure;
use super::rows::{HostCluster, Kind, Load, Row, Work};
use crate::Session;

const MIB: u64 = 1 << 20;
/// First port of the programs that measure plain TCP.
const PORT: u32 = 5201;
/// Files that each process of a metadata load makes, for each second of a phase.
const FILES_EACH_SECOND: u32 = 10;
/// Bytes of the files of a random load: more than the servers take in a phase.
const RANDOM_SIZE: &str = "256MiB";

/// Most that the links carry, in MB/s (10^6 bytes) of all servers together.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// To the servers.
    pub to: f64,
    /// From the servers.
    pub from: f64,
}

/// A host of the place.
pub(super) struct Host {
    pub(super) name: String,
    addresses: Vec<String>,
    /// Indices of the OSTs that it serves.
    osts: Vec<u32>,
}

/// A place that runs.
pub struct Running<'a> {
    pub(super) commands: Commands<'a>,
    pub(super) place: &'static HostCluster,
    pub(super) dir: PathBuf,
    pub(super) servers: Vec<Host>,
    pub(super) clients: Vec<Host>,
    /// The burst buffer that is mounted now.
    pub(super) buffer: RefCell<Option<Mounted>>,
    /// Number of the next one.
    pub(super) next_token: Cell<u32>,
    /// Pools of OSTs that were made.
    pools: RefCell<BTreeSet<String>>,
}

impl Running<'_> {
    /// Starts the hosts and mounts the file system on all clients.
    pub fn up<'a>(
        session: &'a Session,
        place: &'static HostCluster,
        program: &Path,
    ) -> Result<Running<'a>, String> {
        let commands = Commands::new(session, place.name, program);
        let dir = commands.place_dir(place.name);
        let (servers, clients) = (Vec::new(), Vec::new());
        let (buffer, next_token) = (RefCell::new(None), Cell::new(1));
        let pools = RefCell::default();
        let mut running = Running { commands, place, dir, servers, clients, buffer, next_token, pools };
        let client_prefix = match place.kind {
            Kind::FileSystem => {
                running.up_with_file_system()?;
                'c'
            }
            Kind::BurstBuffers => {
                running.up_with_buffers()?;
                'n'
            }
            Kind::Devices | Kind::Tiers => return Err("its places are no single cluster of hosts".to_owned()),
        };
        for host in running.commands.hosts(&running.dir)?.iter().map(Host::of) {
            match &host.name {
                name if name.starts_with("oss") => running.servers.push(host),
                name if name.starts_with(client_prefix) => running.clients.push(host),
                _ => {}
            }
        }
        let found = (running.servers.len(), running.clients.len());
        if found != (place.oss as usize, place.clients as usize) {
            return Err(format!("{} servers and {} clients are there", found.0, found.1));
        }
        for client in &running.clients {
            if let Some(kbit) = place.client_kbit_per_second {
                running.dev(&["host", "shape"], &[client.name.clone(), format!("{kbit}kbit")])?;
            }
        }
        Ok(running)
    }

    fn up_with_file_system(&self) -> Result<(), String> {
        let place = self.place;
        // From four servers on, the MGS and the MDT have two of them.
        let hosts = if place.oss >= 2 { place.oss + 2 } else { place.oss + 1 };
        let mut words = vec![format!("--hosts={hosts}"), format!("--clients={}", place.clients)];
        words.push(format!("--rate={}kbit", place.kbit_per_second));
        if place.rails > 1 {
            words.push(format!("--rails={}", place.rails));
        }
        self.dev(&["up"], &words).map(drop)
    }

    /// Measures plain TCP between all clients and all servers at once.
    pub fn limit(&self, seconds: u32) -> Result<Limit, String> {
        Ok(Limit { to: self.tcp(seconds, false)?, from: self.tcp(seconds, true)? })
    }

    /// MB/s of plain TCP over all links at once; `reverse`: from the servers.
    fn tcp(&self, seconds: u32, reverse: bool) -> Result<f64, String> {
        let mut flows: Vec<(&Host, &Host, usize)> = Vec::new();
        for n in 0..self.servers.len().max(self.clients.len()) {
            let (server, client) =
                (&self.servers[n % self.servers.len()], &self.clients[n % self.clients.len()]);
            flows.extend((0..self.place.rails as usize).map(|rail| (server, client, rail)));
        }
        let mut listening = Vec::new();
        for (n, (server, ..)) in flows.iter().enumerate() {
            let script = format!("exec iperf3 -s -1 --forceflush -p {}", PORT + n as u32);
            listening.push(self.until_it_says(&server.name, &script, "Server listening")?);
        }
        let mut sending = Vec::new();
        for (n, (server, client, rail)) in flows.iter().enumerate() {
            let address = server.addresses.get(*rail).ok_or("a host has no address on a rail")?;
            let back = if reverse { "-R" } else { "" };
            let script = format!("exec iperf3 -c {address} -p {} -t {seconds} -J {back}", PORT + n as u32);
            let child = self.on(&client.name, &script).stdout(Stdio::piped()).spawn();
            sending.push(child.map_err(|e| format!("cannot run iperf3: {e}"))?);
        }
        let mut bits_per_second = 0.0;
        for child in sending {
            let out = child.wait_with_output().map_err(|e| format!("iperf3: {e}"))?;
            let said: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("iperf3: {e}"))?;
            let received = said["end"]["sum_received"]["bits_per_second"].as_f64();
            bits_per_second += received.ok_or_else(|| format!("iperf3: {}", said["error"]))?;
        }
        for mut child in listening {
            child.wait().map_err(|e| format!("iperf3: {e}"))?;
        }
        Ok((bits_per_second / 8e5).round() / 10.0)
    }

    /// The part of the place's limit that a load can have.
    fn share(&self, limit: f64, load: &Load) -> f64 {
        let client = f64::from(self.place.client_kbit_per_second.unwrap_or(self.place.kbit_per_second));
        let allowed = |oss: u32, clients: u32| {
            (f64::from(oss) * f64::from(self.place.kbit_per_second)).min(f64::from(clients) * client)
        };
        limit * allowed(load.oss, load.clients) / allowed(self.place.oss, self.place.clients)
    }

    /// Runs a load; a figure for each of its phases.
    pub fn run(
        &self,
        row: &'static Row,
        load: &Load,
        limit: Limit,
        seconds: u32,
    ) -> Result<Vec<Figure>, String> {
        if load.work == Work::MakeBuffers {
            return self.make_and_end(row, load, seconds);
        }
        let cut = load.work == Work::CutRail;
        let links = if cut { f64::from(self.place.rails) } else { 1.0 };
        let allowed = [self.share(limit.to, load) / links, self.share(limit.from, load) / links];
        let dirs = self.dirs(load)?;
        if cut {
            // A cable is pulled in the middle of a run, which has to end without an error; then one link is measured.
            let words = self.words(load, &dirs, allowed[0] * links, seconds);
            let beneath = self.started(&words)?;
            // No step waits by it: it is the moment of the fault.
            std::thread::sleep(std::time::Duration::from_secs(u64::from(seconds) / 2));
            let pulled = self.dev(&["host", "cut"], &["--rail=1".to_owned(), self.servers[0].name.clone()]);
            self.ended(beneath)?;
            pulled?;
        }
        let bench = self.commands.bench(&self.words(load, &dirs, allowed[0], seconds));
        if cut {
            self.dev(&["host", "heal"], &["--rail=1".to_owned(), self.servers[0].name.clone()])?;
        }
        let run = bench?;
        // A shared file is measured on one mount, too; the last case is that on all of them.
        let last_case = run.figures.last().map(|figure| figure.case.clone());
        let mut made = Vec::new();
        let is_metadata = load.work == Work::Metadata;
        // Cases of metadata are of one mount or of all.
        let is_of_all = |case: &String| load.clients == 1 || !case.ends_with(", 1 mount");
        let is_shown =
            |case: &String| if is_metadata { is_of_all(case) } else { Some(case) == last_case.as_ref() };
        for figure in run.figures.iter().filter(|figure| is_shown(&figure.case)) {
            let is_read = figure.phase.ends_with("read");
            let stream = figure.unit == Unit::MibPerSecond;
            made.push(Figure {
                place: self.place.name,
                row: row.name,
                load: load.about(),
                phase: if is_metadata {
                    format!("{}, {}", figure.case, figure.phase)
                } else {
                    figure.phase.clone()
                },
                unit: if stream { "MB/s" } else { "/s" },
                value: if stream { figure.summary.median * MIB as f64 / 1e6 } else { figure.summary.median },
                limit: stream.then_some(allowed[usize::from(is_read)]),
                document: row.document[usize::from(is_read)],
            });
        }
        Ok(made)
    }

    /// The directory of a load, through the mounts of its clients. The load's files lie on the OSTs of the servers in
    /// use.
    fn dirs(&self, load: &Load) -> Result<Vec<PathBuf>, String> {
        if self.place.kind == Kind::BurstBuffers {
            return self.buffer_dirs(load);
        }
        let (pool, is_shared) = (format!("on{}", load.oss), load.work == Work::SharedFile);
        let name = if is_shared { format!("{pool}-shared") } else { pool.clone() };
        let mounts = self.clients.iter().take(load.clients as usize);
        let mounts: Vec<PathBuf> =
            mounts.map(|client| self.dir.join("mnt").join(&client.name).join(&name)).collect();
        let first = mounts.first().ok_or("a load has no client")?;
        if !first.exists() {
            let osts: Vec<String> = self
                .servers
                .iter()
                .take(load.oss as usize)
                .flat_map(|host| &host.osts)
                .map(u32::to_string)
                .collect();
            let dir = self.dir.display().to_string();
            if self.pools.borrow_mut().insert(pool.clone()) {
                self.brindle(&["pool", "create", "--dir", &dir, &pool, &osts.join(",")])?;
            }
            std::fs::create_dir(first).map_err(|e| format!("{}: {e}", first.display()))?;
            let mut words = vec!["lfs", "setstripe", "-p", &pool];
            words.extend(if is_shared { "-c -1" } else { self.place.stripes }.split(' '));
            let first = first.display().to_string();
            words.push(&first);
            self.brindle(&words)?;
        }
        Ok(mounts)
    }

    /// The words of `brindle bench` for a load of some seconds where the links allow `megabytes_per_second`.
    fn words(&self, load: &Load, dirs: &[PathBuf], megabytes_per_second: f64, seconds: u32) -> Vec<String> {
        let bytes = megabytes_per_second * 1e6 * f64::from(seconds) / f64::from(load.ranks);
        let size = format!("{}MiB", (bytes / MIB as f64).ceil().max(1.0));
        let words = match load.work {
            Work::FilePerProcess | Work::CutRail => {
                format!("ior --case easy --direct --size {size} --ranks {}", load.ranks)
            }
            Work::SharedFile => format!("ior --case segmented --size {size} --ranks {}", load.ranks),
            Work::Metadata => {
                format!("mdtest --files {} --ranks {}", FILES_EACH_SECOND * seconds, load.ranks)
            }
            // They have no load of the benchmark, or make it themselves.
            Work::MakeBuffers | Work::Devices | Work::Checkpoint => String::new(),
            Work::Random => format!("random --size {RANDOM_SIZE} --seconds {seconds} --ranks {}", load.ranks),
        };
        let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        words.extend(["--no-limit", "--repeat", "1", "-o", "json"].map(str::to_owned));
        for dir in dirs {
            words.extend(["--dir".to_owned(), dir.display().to_string()]);
        }
        words
    }

    fn started(&self, words: &[String]) -> Result<Child, String> {
        let mut command = self.commands.process();
        command.arg("bench").args(words).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map_err(|e| format!("cannot run brindle bench: {e}"))
    }

    fn ended(&self, child: Child) -> Result<(), String> {
        let out = child.wait_with_output().map_err(|e| format!("brindle bench: {e}"))?;
        let said = String::from_utf8_lossy(&out.stderr);
        if out.status.success() { Ok(()) } else { Err(format!("a program saw an error: {said}")) }
    }

    pub(super) fn brindle(&self, words: &[&str]) -> Result<String, String> {
        self.commands.brindle(words, &words.iter().take(2).copied().collect::<Vec<_>>().join("-"))
    }

    /// `brindle dev VERB --dir DIR WORDS`.
    pub(super) fn dev(&self, verb: &[&str], words: &[String]) -> Result<String, String> {
        self.commands.dev(&self.dir, verb, words)
    }

    /// A script on a host.
    fn on(&self, host: &str, script: &str) -> Command {
        let mut command = self.commands.process();
        let dir = format!("--dir={}", self.dir.display());
        command.args(["dev", "host", "run", &dir, host, "--", "sh", "-c", script]);
        command
    }

    /// Starts a script on a host; returns when it has printed these words.
    fn until_it_says(&self, host: &str, script: &str, words: &str) -> Result<Child, String> {
        let child = self.on(host, script).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("cannot run a script on {host}: {e}"))?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        if !lines.by_ref().map_while(Result::ok).any(|line| line.contains(words)) {
            let ended = child.wait().map_err(|e| e.to_string())?;
            return Err(format!("'{script}' ended on {host} ({ended})"));
        }
        // The rest is read until the end, so that the program is not kept from going on.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(child)
    }
}

impl Host {
    fn of(listed: &Value) -> Host {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let index = |target: &Value| {
            let name = text(target);
            let (_, number) = name.rsplit_once("OST")?;
            u32::from_str_radix(number, 16).ok()
        };
        Host {
            name: text(&listed["name"]),
            addresses: list(&listed["rails"]).iter().map(|rail| text(&rail["address"])).collect(),
            osts: list(&listed["targets"]).iter().filter_map(index).collect(),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let ended = match self.place.kind {
            Kind::BurstBuffers => self.commands.end(&self.dir, &["slurm", "down"], &[]),
            _ => self.commands.end(&self.dir, &["down"], &["--purge"]),
        };
        if let Err(why) = ended {
            eprintln!("the hosts of {} could not be ended: {why}", self.dir.display());
        }
    }
}
