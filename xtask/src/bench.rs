//! `make bench`: the same program on a mount and on the local file system below it, in turn within one run, with what each
//! operation costs in requests, syncs and processor time.
//!
//! Prints a table and writes `bench/runs/DATE-COMMIT.json`. Figures are medians over the repetitions, smallest and
//! largest beside them in the file. The machine is described, not named.

mod counters;
pub mod fair;
pub mod machine;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brindle_bench::small::{self, Moment, Options, Report, Row};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::run::{capture, interrupted};
use crate::{Session, setup};
use counters::{Cost, Counters};

/// Repetitions, unless `REPETITIONS` says otherwise.
const REPETITIONS: u32 = 3;
/// Longest time of one repetition on one of the two.
const REPETITION_MAX: Duration = Duration::from_secs(600);

/// `cargo xtask bench`.
pub fn run(session: &Session) -> Result<(), String> {
    setup::need("bench")?;
    crate::build(session)?;
    let given = std::env::var("REPETITIONS").ok().and_then(|text| text.parse().ok());
    let repetitions = given.unwrap_or(REPETITIONS).max(1);
    let mut cluster = Cluster::new(session, "bench")?;
    cluster.up()?;
    let measured = measure(session, &cluster, repetitions);
    cluster.remove()?;
    let lines = measured?;
    print_table(&lines);
    write_run(session, repetitions, &lines)
}

/// The machine in one line.
pub fn describe_machine() -> String {
    machine::describe().to_string()
}

/// A workload and phase on both directories.
struct Line {
    name: String,
    unit: String,
    /// Operations (or MiB) of one repetition.
    amount: f64,
    mount: Vec<f64>,
    local: Vec<f64>,
    /// Cost of all repetitions on the mount.
    cost: Cost,
}

fn measure(session: &Session, cluster: &Cluster, repetitions: u32) -> Result<Vec<Line>, String> {
    let base = cluster.a().parent().map(Path::to_owned).unwrap_or_default();
    let local = base.join("local");
    std::fs::create_dir(&local).map_err(|e| format!("cannot make {}: {e}", local.display()))?;
    let counters = Counters::of(session, &base.join("state"))?;
    let mut lines: Vec<Line> = Vec::new();
    for repetition in 1..=repetitions {
        println!(
            "repetition {repetition} of {repetitions}: the mount, then {}",
            machine::file_system(&local)
        );
        let costs = Arc::new(std::sync::Mutex::new(BTreeMap::new()));
        let watcher = Watcher { counters: counters.clone(), costs: costs.clone(), before: Cost::default() };
        let mount = once(&cluster.a(), Some(watcher))?;
        let local = once(&local, None)?;
        let costs = costs.lock().map_err(|_| "the measuring thread panicked")?;
        add(&mut lines, mount.rows, local.rows, &costs);
    }
    Ok(lines)
}

/// Reads the counters at the edges of each phase.
struct Watcher {
    counters: Counters,
    costs: Arc<std::sync::Mutex<BTreeMap<String, Cost>>>,
    before: Cost,
}

impl Watcher {
    fn see(&mut self, moment: Moment<'_>) {
        match moment {
            Moment::Repetition(..) => {}
            Moment::Begin(_) => self.before = self.counters.read(),
            Moment::End(name) => {
                let cost = self.counters.read().since(&self.before);
                if let Ok(mut costs) = self.costs.lock() {
                    costs.insert(name.to_owned(), cost);
                }
            }
        }
    }
}

/// Runs a repetition, on a thread of its own, so that a mount that hangs can be left behind.
fn once(directory: &Path, watcher: Option<Watcher>) -> Result<Report, String> {
    let over = Arc::new(AtomicBool::new(false));
    let (directory, ended) = (directory.to_owned(), over.clone());
    let thread = std::thread::spawn(move || {
        let mut watcher = watcher;
        let options = Options { repetitions: 1, ..Options::default() };
        let mut watch = |moment: Moment<'_>| watcher.iter_mut().for_each(|w| w.see(moment));
        let report = small::run(&directory, &options, &mut watch);
        ended.store(true, Ordering::SeqCst);
        report.map_err(|e| format!("{}: {e}", directory.display()))
    });
    let since = Instant::now();
    while !over.load(Ordering::SeqCst) && !thread.is_finished() {
        if interrupted() {
            return Err("interrupted".to_owned());
        }
        if since.elapsed() > REPETITION_MAX {
            return Err(format!("a repetition took longer than {} s", REPETITION_MAX.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    thread.join().map_err(|_| "the measuring thread panicked".to_owned())?
}

fn add(lines: &mut Vec<Line>, mount: Vec<Row>, local: Vec<Row>, costs: &BTreeMap<String, Cost>) {
    for (on_mount, on_local) in mount.into_iter().zip(local) {
        let cost = costs.get(&on_mount.name).cloned().unwrap_or_default();
        let line = match lines.iter_mut().find(|line| line.name == on_mount.name) {
            Some(line) => line,
            None => {
                let (name, unit, amount) = (on_mount.name, on_mount.unit, on_mount.amount);
                let (mount, local) = (Vec::new(), Vec::new());
                lines.push(Line { name, unit, amount, mount, local, cost: Cost::default() });
                lines.last_mut().expect("just pushed")
            }
        };
        line.mount.push(on_mount.median);
        line.local.push(on_local.median);
        line.cost.add(&cost);
    }
}

impl Line {
    /// Operations of all repetitions.
    fn operations(&self) -> f64 {
        self.amount * self.mount.len() as f64
    }

    fn ratio(&self) -> f64 {
        median(&self.mount) / median(&self.local)
    }

    fn json(&self) -> Value {
        let per = |n: f64| n / self.operations();
        let cpu: BTreeMap<&str, f64> =
            self.cost.cpu_seconds.iter().map(|(kind, n)| (kind.as_str(), per(*n))).collect();
        json!({
            "name": self.name,
            "unit": self.unit,
            "amount": self.amount,
            "brindle": spread(&self.mount),
            "local": spread(&self.local),
            "ratio": self.ratio(),
            "per_operation": {
                "rpcs": per(self.cost.rpcs),
                "fdatasyncs": per(self.cost.fdatasyncs),
                "cpu_seconds": cpu,
            },
        })
    }
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median(samples: &[f64]) -> f64 {
    sorted(samples).get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(samples: &[f64]) -> Value {
    let sorted = sorted(samples);
    json!({ "median": median(samples), "min": sorted.first(), "max": sorted.last() })
}

fn print_table(lines: &[Line]) {
    println!();
    println!(
        "{:<22} {:>9} {:>9} {:>6} {:>6} | per operation (or MiB): {:>6} {:>6} {:>9}",
        "WORKLOAD", "BRINDLE", "LOCAL", "UNIT", "RATIO", "RPCs", "SYNCs", "CPU us"
    );
    for line in lines {
        let per = |n: f64| n / line.operations();
        println!(
            "{:<22} {:>9} {:>9} {:>6} {:>5.2}x | {:>30.2} {:>6.2} {:>9.0}",
            line.name,
            figure(median(&line.mount)),
            figure(median(&line.local)),
            line.unit,
            line.ratio(),
            per(line.cost.rpcs),
            per(line.cost.fdatasyncs),
            per(line.cost.cpu_seconds.values().sum::<f64>()) * 1e6,
        );
    }
    println!("\nCPU: of all server and mount processes; SYNCs: fdatasyncs of MDT and OSTs.");
}

fn figure(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn write_run(session: &Session, repetitions: u32, lines: &[Line]) -> Result<(), String> {
    let said = |program: &str, args: &[&str]| {
        capture(program, args).map(|text| text.trim().to_owned()).unwrap_or_else(|| "unknown".to_owned())
    };
    let root = session.root.display().to_string();
    let date = said("date", &["-u", "+%Y-%m-%d"]);
    let commit = said("git", &["-C", &root, "rev-parse", "--short", "HEAD"]);
    let changed = !said("git", &["-C", &root, "status", "--porcelain", "--untracked-files=no"]).is_empty();
    let run = json!({
        "schema": "brindle-bench-run/1",
        "date": date,
        "commit": commit,
        "changed_since_commit": changed,
        "machine": machine::describe(),
        "cluster": "1 MGS, 1 MDT, 4 OSTs, one process each, loopback TCP, all on the local file system below",
        "repetitions": repetitions,
        "rows": lines.iter().map(Line::json).collect::<Vec<Value>>(),
    });
    let dir = session.root.join("bench/runs");
    let path = dir.join(format!("{date}-{commit}.json"));
    let text = serde_json::to_string_pretty(&run).map_err(|e| e.to_string())?;
    let written = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&path, text + "\n"));
    written.map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    println!("written: {}", path.strip_prefix(&session.root).unwrap_or(&path).display());
    Ok(())
}
