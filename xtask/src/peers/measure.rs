//! Runs the workloads. Each repetition runs every group on every system in turn, so that a disturbance of the machine
//! meets all of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use brindle_bench::cpu::ProcessMemory;
use brindle_bench::run::{Run, Sample, Unit};

use super::place::SystemPlace;
use super::rows::{Group, WARM_UP};
use super::scale::Scale;
use super::system::{self, System};
use crate::run::{Cmd, interrupted};

/// Longest time of one group on one system.
const GROUP_SECS_MAX: u64 = 3600;

/// A figure of one repetition.
pub struct Record {
    /// The system.
    pub system: &'static str,
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// The group.
    pub group: &'static str,
    /// The case, without the number of mounts.
    pub case: String,
    /// Mounts at once.
    pub mounts: u32,
    /// The phase.
    pub phase: String,
    /// Unit of the figure.
    pub unit: Unit,
    /// Measured sample.
    pub sample: Sample,
    /// Load average of the machine before.
    pub load: f64,
}

/// Failure of a step; the run goes on without it.
pub struct Failure {
    /// The system.
    pub system: &'static str,
    /// Step of the failure: which repetition of what.
    pub when: String,
    /// Message of the failure.
    pub why: String,
}

/// Work of a run.
pub struct Order<'a> {
    /// The program that measures, and that is Brindle.
    pub program: &'a Path,
    /// Directory whose files make up the tree.
    pub source: &'a Path,
    /// Amounts.
    pub scale: &'a Scale,
    /// Repetitions.
    pub repeat: u32,
    /// Groups of cases to measure.
    pub groups: Vec<&'static Group>,
    /// Directory of logs.
    pub logs: &'a Path,
}

/// All figures of a run.
#[derive(Default)]
pub struct Figures {
    /// Measured records.
    pub records: Vec<Record>,
    /// Cases that were not measured.
    pub failures: Vec<Failure>,
    /// Memory by system: the processes of each name, in the state with the most memory at the end of a
    /// workload.
    pub memory: BTreeMap<&'static str, BTreeMap<String, ProcessMemory>>,
}

impl Figures {
    fn remember(&mut self, system: &'static str, memory: &[ProcessMemory]) {
        let known = self.memory.entry(system).or_default();
        for process in memory {
            // Of mounts not where.
            let name = process.process.split(" /").next().unwrap_or_default().to_owned();
            let most = known.entry(name).or_insert_with(|| process.clone());
            if process.peak_bytes > most.peak_bytes {
                *most = process.clone();
            }
        }
    }
}

/// A system that is up.
pub type Up = (Box<dyn System>, SystemPlace);

/// Measures everything; stops early only when somebody asks for it.
pub fn run(order: &Order<'_>, systems: &mut [Up], figures: &mut Figures) {
    warm_up(order, systems, figures);
    for repetition in 1..=order.repeat {
        for group in &order.groups {
            // Each repetition begins with a different system: no system always runs after the same one.
            let first = repetition as usize - 1;
            for turn in 0..systems.len() {
                if interrupted() {
                    return;
                }
                let index = (first + turn) % systems.len();
                let (system, place) = &mut systems[index];
                if !system.takes(group.inodes(order.scale)) {
                    continue;
                }
                turn_of(order, group, repetition, system.as_ref(), place, figures);
            }
        }
    }
}

/// The workload of [`WARM_UP`] once on every system, for nothing: images whose blocks nobody has written yet would else
/// count against whoever is measured first.
fn warm_up(order: &Order<'_>, systems: &mut [Up], figures: &mut Figures) {
    for (system, place) in systems {
        if interrupted() {
            return;
        }
        println!("warming up: {:<12}", system.name());
        if let Err(why) = measure(order, WARM_UP, 0, system.as_ref(), place) {
            figures.failures.push(Failure { system: system.name(), when: "warming up".to_owned(), why });
        }
        place.trim();
        place.settle();
    }
}

fn turn_of(
    order: &Order<'_>,
    group: &'static Group,
    repetition: u32,
    system: &dyn System,
    place: &mut SystemPlace,
    figures: &mut Figures,
) {
    let load = load_average();
    let when = format!("repetition {repetition}, {}", group.name);
    match measure(order, group, repetition, system, place) {
        Ok(run) => {
            let records = records(&run, system.name(), repetition, group.name, load);
            let shown: Vec<String> = records.iter().map(show).collect();
            println!("{when}: {:<12} {}", system.name(), shown.join(", "));
            figures.records.extend(records);
            figures.remember(system.name(), &run.memory);
        }
        Err(why) if interrupted() => println!("{when}: {} was interrupted: {why}", system.name()),
        Err(why) => {
            println!("{when}: {:<12} failed", system.name());
            figures.failures.push(Failure { system: system.name(), when: when.clone(), why });
            // The next group begins with clients that know nothing of this.
            if let Err(why) = system::remount(system, place) {
                figures.failures.push(Failure { system: system.name(), when, why });
            }
        }
    }
    place.trim();
    place.settle();
}

fn measure(
    order: &Order<'_>,
    group: &Group,
    repetition: u32,
    system: &dyn System,
    place: &mut SystemPlace,
) -> Result<Run, String> {
    let name = format!("{}-{}-{repetition}", system.name(), group.name);
    let document = order.logs.join(format!("{name}.json"));
    let mut command = Cmd::new(order.program).arg("bench").args((group.arguments)(order.scale, order.source));
    command = command.args(["--repeat", "1", "--no-limit", "--json"]).arg(&document);
    for pattern in system.processes().iter().copied().chain([place.path("").as_str()]) {
        command = command.args(["--cpu-of", pattern]);
    }
    if system.clients() > 0 {
        command = command.arg("--cold-command").arg(remount_command(system.name(), order.program));
    }
    let mounts = if group.two_mounts { 2 } else { 1 };
    for dir in system::measured(system, place).into_iter().take(mounts) {
        command = command.arg("--dir").arg(dir);
    }
    let log = order.logs.join(format!("{name}.log"));
    let done = command.dir(Path::new("/")).limit_secs(GROUP_SECS_MAX).run(&log);
    if !done.ok() {
        return Err(done.explain());
    }
    let read = |e: &dyn std::fmt::Display| format!("cannot read {}: {e}", document.display());
    let text = std::fs::read_to_string(&document).map_err(|e| read(&e))?;
    serde_json::from_str(&text).map_err(|e| read(&e))
}

/// Command of this program for between the phases; it names the running process, so that a build meanwhile
/// does no harm.
fn remount_command(name: &str, brindle: &Path) -> String {
    let program = std::process::id();
    format!("exec /proc/{program}/exe peers --remount {name} --binary '{}'", brindle.display())
}

fn records(run: &Run, system: &'static str, repetition: u32, group: &'static str, load: f64) -> Vec<Record> {
    let mut records = Vec::new();
    for figure in &run.figures {
        let (case, mounts) = case_and_mounts(&figure.case);
        records.extend(figure.samples.iter().map(|sample| Record {
            system,
            repetition,
            group,
            case: case.to_owned(),
            mounts,
            phase: figure.phase.clone(),
            unit: figure.unit,
            sample: sample.clone(),
            load,
        }));
    }
    records
}

/// `hard, 2 mounts` taken apart; names of runs through one mount do not say so.
fn case_and_mounts(name: &str) -> (&str, u32) {
    let parts = name.rsplit_once(", ").and_then(|(case, end)| {
        let number = end.strip_suffix(" mounts").or(end.strip_suffix(" mount"))?;
        Some((case, number.parse().ok()?))
    });
    parts.unwrap_or((name, 1))
}

fn show(record: &Record) -> String {
    let Record { phase, sample, unit, .. } = record;
    format!("{phase} {} {}", figure(sample.value), unit.text())
}

/// Three digits that say something.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Processes that ran or waited for a processor or a disk, over the last minute.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0)
}

/// Empty directory for logs and documents of this run.
pub fn fresh_logs(dir: &Path) -> Result<PathBuf, String> {
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    Ok(dir.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_processes_of_one_name_the_largest_is_remembered() {
        let process = |process: &str, peak_bytes| ProcessMemory {
            process: process.to_owned(),
            peak_bytes,
            resident_bytes: 1,
            bytes_max: None,
        };
        let mut figures = Figures::default();
        figures.remember("x", &[process("mount /a", 5), process("mount /b", 7), process("serve ost0", 3)]);
        figures.remember("x", &[process("mount /a", 6)]);
        let known: Vec<_> = figures.memory["x"].iter().map(|(name, m)| (&name[..], m.peak_bytes)).collect();
        assert_eq!(known, [("mount", 7), ("serve ost0", 3)]);
    }

    #[test]
    fn cases_are_told_from_mounts() {
        assert_eq!(case_and_mounts("hard: shared file, 47008 B in turns, 2 mounts").1, 2);
        assert_eq!(case_and_mounts("shared file, in turns, 1 mount"), ("shared file, in turns", 1));
        assert_eq!(case_and_mounts("shared file, in turns"), ("shared file, in turns", 1));
        assert_eq!([123.4, 12.34, 1.234].map(figure), ["123", "12.3", "1.23"]);
    }
}
