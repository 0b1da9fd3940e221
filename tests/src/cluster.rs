//! A cluster of real processes and real mounts for one test, made by `brindle dev`.
//!
//! Called by the fault tests. Needs root, /dev/fuse and the binary that was built with them (`BRINDLE_BIN` names another one). Invariants:
//! one cluster at a time in a process; when a [`Cluster`] is dropped, panicking or not, no process, mount, loop device or file of it is
//! left; no call waits for it longer than its [`Watchdog`] allows, because the watchdog aborts the mounts' connections.

mod command;
mod leftovers;
mod power;
mod turn;
mod watchdog;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

pub use command::Output;
use command::Starter;
pub use turn::Turn;
pub use watchdog::Watchdog;

/// Base directory of clusters: on a disk, because tmpfs has no O_DIRECT and no honest fsync.
const BASE: &str = "/var/tmp";
/// First part of the names of their directories; the pid of the test process follows.
const PREFIX: &str = "brindle-cluster-";
/// Longest time of one command.
const COMMAND_LIMIT: Duration = Duration::from_secs(90);
/// Longest time until a killed process is gone.
const KILL_LIMIT: Duration = Duration::from_secs(10);

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Cluster to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of OSTs.
    pub osts: u16,
    /// Number of mounts: A, B.
    pub mounts: usize,
    /// Put OSTs on loop images of this size.
    pub ost_size: Option<&'static str>,
    /// Put the MDT on a loop image of this size.
    pub mdt_size: Option<&'static str>,
    /// File system of the images: `ext4` or `xfs`.
    pub image_fs: &'static str,
    /// Start an agent, too, that serves the directory `archive` beside the cluster.
    pub archive: bool,
    /// Make it of so many server hosts; the mounts are on client hosts of their own.
    pub hosts: Option<u8>,
    /// Longest time of the whole test.
    pub limit: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            osts: 4,
            mounts: 2,
            ost_size: None,
            mdt_size: None,
            image_fs: "ext4",
            archive: false,
            hosts: None,
            limit: Duration::from_secs(150),
        }
    }
}

/// A process as `brindle dev status -o json` shows it.
#[derive(Clone, Debug, Deserialize)]
pub struct Process {
    /// `mgs`, `mdt0`, `ost0`, `client0`.
    pub name: String,
    /// `mgs`, `mdt`, `ost` or `client`; `host` of a bare host.
    pub kind: String,
    /// `running` or `dead`.
    pub state: String,
    /// The process, or the last one there was.
    pub pid: Option<i32>,
    /// `127.0.0.1:1234@tcp`.
    pub addresses: Vec<String>,
    /// Directory of the target's data.
    pub data: PathBuf,
    /// The mount point.
    pub mount: PathBuf,
    /// Log file of the process.
    pub log: PathBuf,
    /// URL of the metrics.
    pub metrics_url: String,
}

impl Process {
    /// Whether it runs.
    pub fn running(&self) -> bool {
        self.state == "running"
    }

    /// Address and port to connect to.
    ///
    /// # Panics
    /// When it has none.
    pub fn socket(&self) -> String {
        let address = self.addresses.first().unwrap_or_else(|| panic!("{} has no address", self.name));
        address.trim_end_matches("@tcp").to_owned()
    }

    /// Memory in use, in bytes; 0 when it has ended.
    pub fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid.unwrap_or(0)));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
    }
}

#[derive(Deserialize)]
struct Status {
    processes: Vec<Process>,
}

/// A running cluster.
pub struct Cluster {
    base: PathBuf,
    name: String,
    mounts: Vec<PathBuf>,
    watchdog: Watchdog,
    starter: Mutex<Starter>,
    /// Program of another release; `None` for the one under test.
    program: Mutex<Option<PathBuf>>,
    _turn: Turn,
}

impl Cluster {
    /// Starts a cluster for the test `name` and mounts it.
    ///
    /// # Panics
    /// When that fails.
    pub fn up(name: &str, options: &Options) -> Cluster {
        let cluster = Cluster::prepare(name, options);
        let up = cluster.dev_up(options);
        assert!(up.ok(), "brindle dev up failed: {up}");
        cluster
    }

    /// Starts a cluster with the program of another release.
    ///
    /// # Panics
    /// When that fails.
    pub fn up_by(program: &Path, name: &str, options: &Options) -> Cluster {
        let cluster = Cluster::prepare(name, options);
        cluster.go_on_with(Some(program));
        let up = cluster.dev_up(options);
        assert!(up.ok(), "brindle dev up of the other release failed: {up}");
        cluster
    }

    /// Runs commands, and so starts processes, with the program of another release from now on; `None`: with the one under test.
    pub fn go_on_with(&self, program: Option<&Path>) {
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = program.map(Path::to_owned);
    }

    /// Starts a cluster of so many server hosts with two rails, and one client host, with further flags of `brindle dev up`.
    ///
    /// # Panics
    /// When that fails.
    pub fn up_with_rails(name: &str, hosts: u8, flags: &[&str]) -> Cluster {
        let options =
            Options { mounts: 1, hosts: Some(hosts), limit: Duration::from_secs(240), ..Options::default() };
        let cluster = Cluster::prepare(name, &options);
        let mut words = vec!["up".to_owned(), format!("--hosts={hosts}"), "--rails=2".to_owned()];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let up = cluster.dev(&words);
        assert!(up.ok(), "brindle dev up failed: {up}");
        cluster
    }

    /// Starts so many bare hosts for the test `name`: h1, h2, ...
    ///
    /// # Panics
    /// When that fails.
    pub fn up_bare(name: &str, hosts: u8) -> Cluster {
        Cluster::up_on_hosts(name, hosts, &["--bare"])
    }

    /// Starts a cluster with two copies of each OST, installed on bare hosts: h1 has the MGS and the MDT, the others the OSTs, the last one mounts.
    ///
    /// # Panics
    /// When that fails.
    pub fn up_with_copies(name: &str, hosts: u8) -> Cluster {
        Cluster::up_on_hosts(name, hosts, &["--clients=1", "--copies=2", "--fsname=scratch"])
    }

    fn up_on_hosts(name: &str, hosts: u8, flags: &[&str]) -> Cluster {
        let options = Options { mounts: 0, hosts: Some(hosts), ..Options::default() };
        let cluster = Cluster::prepare(name, &options);
        let mut words = vec!["up".to_owned(), format!("--hosts={hosts}")];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let up = cluster.dev(&words);
        assert!(up.ok(), "brindle dev up failed: {up}");
        cluster
    }

    /// Starts a cluster for the test `name` from the directory of an earlier release: `cluster.tar.gz` in `fixture`, which has one mount,
    /// A. The `state.json` in it says `@BASE@` for the directory in which it lies.
    ///
    /// # Panics
    /// When that fails.
    pub fn up_from(name: &str, fixture: &Path) -> Cluster {
        let cluster = Cluster::prepare(name, &Options { mounts: 1, ..Options::default() });
        let archive = fixture.join("cluster.tar.gz");
        let mut tar = std::process::Command::new("tar");
        let unpacked = tar.arg("-xzf").arg(&archive).current_dir(&cluster.base).status().expect("tar runs");
        assert!(unpacked.success(), "{} is not unpacked", archive.display());
        let state = cluster.dir().join("state.json");
        let text = std::fs::read_to_string(&state).expect("the fixture has a state.json");
        let base = cluster.base.to_str().expect("a path of our own");
        std::fs::write(&state, text.replace("@BASE@", base)).expect("state.json is written");
        cluster.up_again();
        cluster
    }

    /// The place for a cluster, with a watchdog, and nothing in it.
    fn prepare(name: &str, options: &Options) -> Cluster {
        // Hosts that are only waited for share the machine.
        let turn = if options.mounts == 0 { Turn::beside_another() } else { Turn::alone() };
        leftovers::sweep();
        // SAFETY: geteuid only reads the process's credentials.
        assert_eq!(unsafe { libc::geteuid() }, 0, "these tests mount file systems, which needs root");
        let binary = binary();
        assert!(binary.exists(), "{} does not exist; build it: make build", binary.display());
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let base = Path::new(BASE).join(format!("{PREFIX}{}-{number}", std::process::id()));
        std::fs::create_dir_all(&base).expect("a directory for the cluster");
        let points = match options.hosts {
            None => ["a", "b"],
            Some(_) => ["state/mnt/c1", "state/mnt/c2"],
        };
        let mounts: Vec<PathBuf> = points.iter().take(options.mounts).map(|at| base.join(at)).collect();
        let watchdog = Watchdog::start(name, &base, options.limit);
        let (starter, program) = (Mutex::new(Starter::new()), Mutex::default());
        Cluster { base, name: name.to_owned(), mounts, watchdog, starter, program, _turn: turn }
    }

    fn dev_up(&self, options: &Options) -> Output {
        let mut args = vec!["up".to_owned(), format!("--osts={}", options.osts)];
        match options.hosts {
            None => args.extend(self.mounts.iter().map(|at| format!("--mount={}", at.display()))),
            Some(hosts) => {
                args.extend([format!("--hosts={hosts}"), format!("--clients={}", options.mounts)]);
            }
        }
        args.extend(options.ost_size.map(|size| format!("--ost-size={size}")));
        args.extend(options.mdt_size.map(|size| format!("--mdt-size={size}")));
        args.push(format!("--image-fs={}", options.image_fs));
        if options.archive {
            args.push(format!("--archive={}", self.archive().display()));
        }
        self.dev(&args)
    }

    /// Directory of the archive.
    pub fn archive(&self) -> PathBuf {
        self.base.join("archive")
    }

    /// Directory of the cluster's state, for `--dir`.
    pub fn dir(&self) -> PathBuf {
        self.base.join("state")
    }

    /// A directory outside the file system under test that goes with the cluster.
    pub fn outside(&self) -> &Path {
        &self.base
    }

    /// The mount points: A, B.
    pub fn mounts(&self) -> &[PathBuf] {
        &self.mounts
    }

    /// Mount A.
    pub fn a(&self) -> &Path {
        &self.mounts[0]
    }

    /// Mount B.
    ///
    /// # Panics
    /// When there is one mount.
    pub fn b(&self) -> &Path {
        &self.mounts[1]
    }

    /// Runs `brindle ARGS`.
    pub fn brindle<S: AsRef<str>>(&self, args: &[S]) -> Output {
        let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        let program = self.program.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut starter = self.starter.lock().unwrap_or_else(PoisonError::into_inner);
        starter.run(&program.unwrap_or_else(binary), &args, COMMAND_LIMIT)
    }

    /// Runs `brindle lfs ARGS`, which has to succeed.
    ///
    /// # Panics
    /// When it fails.
    pub fn lfs(&self, args: &[&str]) -> String {
        let words: Vec<&str> = std::iter::once("lfs").chain(args.iter().copied()).collect();
        let out = self.brindle(&words);
        assert!(out.ok(), "brindle {} failed: {out}", words.join(" "));
        out.text
    }

    /// Runs `brindle dev ARGS`, with the directory of the cluster.
    pub fn dev<S: AsRef<str>>(&self, args: &[S]) -> Output {
        let mut words = vec!["dev".to_owned()];
        words.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        words.push(format!("--dir={}", self.dir().display()));
        self.brindle(&words)
    }

    /// All processes.
    ///
    /// # Panics
    /// When they cannot be listed.
    pub fn processes(&self) -> Vec<Process> {
        let out = self.dev(&["status", "-o", "json"]);
        assert!(out.ok(), "brindle dev status failed: {out}");
        let status: Status = serde_json::from_str(&out.stdout).expect("dev status prints JSON");
        status.processes
    }

    /// The process of this name.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn process(&self, name: &str) -> Process {
        let all = self.processes();
        all.into_iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no process is called {name}"))
    }

    /// Names of the server processes of these kinds, in order.
    pub fn servers(&self, kinds: &[&str]) -> Vec<String> {
        let all = self.processes().into_iter();
        all.filter(|p| kinds.contains(&p.kind.as_str())).map(|p| p.name).collect()
    }

    /// SIGKILL to all of them at the same moment; returns when they are gone.
    ///
    /// # Panics
    /// When one does not go.
    pub fn kill(&self, names: &[&str]) {
        let all = self.processes();
        let chosen: Vec<&Process> =
            all.iter().filter(|p| names.contains(&p.name.as_str()) && p.running()).collect();
        for pid in chosen.iter().filter_map(|p| p.pid) {
            // SAFETY: `dev status` compares the process's start time, so this is the cluster's own process.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let since = Instant::now();
        for process in chosen {
            while process.pid.is_some_and(leftovers::exists) {
                assert!(since.elapsed() < KILL_LIMIT, "{} does not go away when killed", process.name);
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Starts killed processes again; returns when they are ready.
    ///
    /// # Panics
    /// When one does not start.
    pub fn start(&self, names: &[&str]) {
        for name in names {
            let out = self.dev(&["start", name]);
            assert!(out.ok(), "brindle dev start {name} failed: {out}");
        }
    }

    /// Cuts the power of these targets at the same moment: the processes are killed, and what their file systems had not written to the
    /// loop images is forgotten. The targets stay down until [`Cluster::start`]. Targets without an image are only killed.
    ///
    /// # Panics
    /// When that cannot be done.
    pub fn cut_power(&self, names: &[&str]) {
        let all = self.processes();
        self.kill(names);
        let images = all.iter().filter(|p| names.contains(&p.name.as_str()));
        let images: Vec<&Path> =
            images.map(|p| p.data.as_path()).filter(|data| leftovers::is_mount_point(data)).collect();
        images.iter().for_each(|data| power::forget_unwritten(data));
        images.iter().for_each(|data| power::unmount(data));
    }

    /// Ends all processes; the data stays.
    ///
    /// # Panics
    /// When that fails.
    pub fn down(&self) {
        let out = self.dev(&["down"]);
        assert!(out.ok(), "brindle dev down failed: {out}");
    }

    /// Starts everything again after [`Cluster::down`].
    ///
    /// # Panics
    /// When that fails.
    pub fn up_again(&self) {
        let out = self.dev(&["up"]);
        assert!(out.ok(), "brindle dev up on existing data failed: {out}");
    }

    /// Runs `brindle fsck` on the stopped or quiet cluster.
    pub fn fsck(&self) -> Output {
        self.brindle(&["fsck".to_owned(), format!("--dir={}", self.dir().display())])
    }

    /// Stops the cluster and has `fsck` find nothing.
    ///
    /// # Panics
    /// When it finds something.
    pub fn assert_sound(&self) {
        self.down();
        let found = self.fsck();
        assert_eq!(found.code, 0, "fsck is not content: {found}");
    }

    /// Whether the time of the test is over and its mounts were aborted.
    pub fn timed_out(&self) -> bool {
        self.watchdog.fired()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        if panicking {
            leftovers::keep_logs(&self.dir(), &self.name);
            leftovers::abort_mounts(&self.base);
        }
        let down = self.dev(&["down", "--purge"]);
        let left = leftovers::clear(&self.base);
        if !panicking {
            assert!(down.ok(), "brindle dev down --purge failed: {down}");
            assert!(left.is_empty(), "brindle dev down left behind: {}", left.join(", "));
        }
    }
}

/// Held by a test that has processes of its own kind, so that no cluster runs beside it.
pub fn alone() -> Turn {
    Turn::alone()
}

/// The binary under test: cargo builds it beside the directory of the tests, `deps`.
pub fn binary() -> PathBuf {
    let tests = std::env::current_exe().unwrap_or_default();
    let built = tests.ancestors().nth(2).unwrap_or(Path::new("")).join("brindle");
    std::env::var_os("BRINDLE_BIN").map_or(built, PathBuf::from)
}
