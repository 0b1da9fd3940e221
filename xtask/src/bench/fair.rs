//! `cargo xtask bench-fair-share`: the effect of a job of 64 processes on the `ls -l` of another job, with fair sharing and without.
//!
//! The queue of the MDT is the bottleneck: a control group gives it a fifth of a processor. The noisy client, its programs and its mount,
//! is pinned to the last processor of this machine, so that the quiet client competes with it for the MDT only. Clusters with `fair-share`
//! auto and off are measured in turn.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::median;
use crate::Session;
use crate::cluster::Cluster;
use crate::run::interrupted;

/// Processes of the noisy job.
const NOISY: usize = 64;
/// Pairs of measurements.
const PAIRS: usize = 3;
/// Directories that are listed in one measurement; each once, since a mount remembers what it has listed.
const LISTS: usize = 15;
/// Files of each.
const FILES: usize = 50;
/// The share of the MDT: so many microseconds of a processor in each period.
const QUOTA_US: u32 = 1_000;
const PERIOD_US: u32 = 5_000;
/// Control groups of processors.
const GROUPS: &str = "/sys/fs/cgroup/cpu";
/// A process of the noisy job: creates files and asks for names that do not exist. The commands of the loop are the shell's own: no further
/// program starts.
const NOISE: &str = "mkdir $0 && cd $0 && i=0; while :; do : >f$i; [ -e g$i ]; i=$((i+1)); done";
/// Variable of the programs that a mount names jobs by.
const JOB: &str = "SLURM_JOB_ID";

/// Milliseconds of the lists of one measurement.
#[derive(Default)]
struct Lists {
    alone: Vec<f64>,
    crowded: Vec<f64>,
}

/// Runs the command.
pub fn run(session: &Session) -> Result<(), String> {
    crate::build(session)?;
    let (mut turns, mut none) = (Lists::default(), Lists::default());
    for pair in 1..=PAIRS {
        for (mode, lists) in [("auto", &mut turns), ("off", &mut none)] {
            println!("pair {pair} of {PAIRS}: fair-share={mode}");
            measure(session, mode, lists)?;
        }
    }
    println!("\nls -l of {FILES} files, ms (median, largest of {} lists)", PAIRS * LISTS);
    println!("{:<18} {:>16} {:>24}", "", "ALONE", format!("BESIDE {NOISY} PROCESSES"));
    for (name, lists) in [("fair-share=auto", turns), ("fair-share=off", none)] {
        let shown =
            |all: &[f64]| format!("{:.1} ({:.1})", median(all), all.iter().copied().fold(0.0, f64::max));
        let ratio = median(&lists.crowded) / median(&lists.alone);
        println!("{name:<18} {:>16} {:>24}  {ratio:.2}x", shown(&lists.alone), shown(&lists.crowded));
    }
    Ok(())
}

fn measure(session: &Session, mode: &str, lists: &mut Lists) -> Result<(), String> {
    let mut cluster = Cluster::new(session, "fair-share")?;
    cluster.up_with(&[("BRINDLE_FAIR_SHARE", mode)])?;
    let measured = measure_on(session, &cluster, lists);
    cluster.remove()?;
    measured
}

fn measure_on(session: &Session, cluster: &Cluster, lists: &mut Lists) -> Result<(), String> {
    let status = Command::new(session.brindle())
        .args(["dev", "status", "-o", "json", "--dir"])
        .arg(cluster.state())
        .output()
        .map_err(|e| format!("brindle dev status: {e}"))?;
    let status: Value = serde_json::from_slice(&status.stdout).map_err(|e| e.to_string())?;
    let pid = |name: &str| {
        let all = status["processes"].as_array().into_iter().flatten();
        let found = all.filter(|process| process["name"] == name).find_map(|process| process["pid"].as_i64());
        found.ok_or_else(|| format!("no process is called {name}"))
    };
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    done(Command::new("taskset").args(["-a", "-c", "-p", &last.to_string(), &pid("client0")?.to_string()]))?;
    make_dirs(&cluster.a())?;
    let group = Group::of(pid("mdt0")?)?;
    list(&cluster.b(), 0..LISTS, &mut lists.alone)?;
    let noise = Noise::start(&cluster.a(), last)?;
    // The noise begins with a burst of new directories.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let listed = list(&cluster.b(), LISTS..2 * LISTS, &mut lists.crowded);
    drop(noise);
    drop(group);
    listed
}

/// Directories with files, that the other mount has not seen.
fn make_dirs(at: &Path) -> Result<(), String> {
    for dir in 0..2 * LISTS {
        let dir = at.join(format!("d{dir}"));
        let made = std::fs::create_dir(&dir);
        let files = (0..FILES).try_for_each(|n| std::fs::write(dir.join(format!("file{n}")), b"x"));
        made.and(files).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    Ok(())
}

/// Milliseconds of an `ls -l` of each directory.
fn list(at: &Path, dirs: std::ops::Range<usize>, times: &mut Vec<f64>) -> Result<(), String> {
    for dir in dirs {
        if interrupted() {
            return Err("interrupted".to_owned());
        }
        let began = Instant::now();
        let dir = at.join(format!("d{dir}"));
        done(Command::new("ls").arg("-l").arg(dir).env(JOB, "quiet").stdout(Stdio::null()))?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}

fn done(command: &mut Command) -> Result<(), String> {
    let what = format!("{command:?}");
    match command.stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what}: {status}")),
        Err(e) => Err(format!("{what}: {e}")),
    }
}

/// A control group with little of a processor.
struct Group(PathBuf);

impl Group {
    fn of(pid: i64) -> Result<Group, String> {
        let group = Group(PathBuf::from(GROUPS).join(format!("brindle-bench-{}", std::process::id())));
        let write = |name: &str, value: String| std::fs::write(group.0.join(name), value);
        std::fs::create_dir(&group.0)
            .and_then(|()| write("cpu.cfs_period_us", PERIOD_US.to_string()))
            .and_then(|()| write("cpu.cfs_quota_us", QUOTA_US.to_string()))
            .and_then(|()| write("cgroup.procs", pid.to_string()))
            .map_err(|e| format!("{}: {e}; control groups of version 1 are needed", group.0.display()))?;
        Ok(group)
    }
}

impl Drop for Group {
    /// The process goes back: a group with processes stays.
    fn drop(&mut self) {
        for pid in std::fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            // A process that has ended meanwhile is in no group.
            let _ = std::fs::write(Path::new(GROUPS).join("cgroup.procs"), pid);
        }
        if let Err(e) = std::fs::remove_dir(&self.0) {
            eprintln!("{}: {e}", self.0.display());
        }
    }
}

/// The processes of the noisy job; they end with it.
struct Noise(Vec<Child>);

impl Noise {
    fn start(at: &Path, processor: usize) -> Result<Noise, String> {
        let mut noise = Noise(Vec::new());
        for n in 0..NOISY {
            let mut command = Command::new("taskset");
            command.args(["-c", &processor.to_string(), "sh", "-c", NOISE]).arg(at.join(format!("n{n}")));
            command.env(JOB, "noisy").stdout(Stdio::null()).stderr(Stdio::null());
            noise.0.push(command.spawn().map_err(|e| format!("taskset: {e}"))?);
        }
        Ok(noise)
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A child that has ended by itself is fine.
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}
