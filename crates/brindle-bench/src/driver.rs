//! Runs plans. For each plan, the repetitions run in turn on the measured directories and on the limit below them (A B A
//! B), so that a disturbance of the machine meets both.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use brindle_types::Result;
use serde_json::Value;

use crate::loopback;
use crate::machine::Machine;
use crate::memory::Warm;
use crate::plan::{Plan, Setting, Step};
use crate::rank::{Job, Phase, Spec};
use crate::run::{Figure, Run, Sample, Unit};
use crate::site::{self, Site};
use crate::stop;
use crate::team::{Launcher, Team};

/// Measuring time of each of the two rates of loopback, in each repetition.
const LOOPBACK_TIME: Duration = Duration::from_millis(400);

/// Explanation of the limit `loopback` for the reader.
const LOOPBACK_NOTE: &str = "Limit 'loopback': plain TCP sockets in the same run, 256-byte questions and answers (or 1 MiB pieces), \
                             one connection for each rank.";

/// Explanation of the verification for the reader.
const ALL_COMPARED: &str = "Everything that was read was compared with what had been written.";
const SIZES_COMPARED: &str = "Of what tar read back only the size was compared with what had been written.";

/// Tells somebody what is being done.
pub type Progress<'a> = &'a mut dyn FnMut(&str);

/// Runs the plans of one workload.
///
/// # Errors
/// The first fault of a rank; what was made has been removed.
pub fn run(
    workload: &str,
    plans: &[Plan],
    setting: &Setting,
    parameters: BTreeMap<String, Value>,
    progress: Progress<'_>,
) -> Result<Run> {
    for plan in plans {
        room(plan, setting)?;
    }
    setting.cold.drop_caches();
    let most = |of: fn(&Plan) -> u64| plans.iter().map(of).max().unwrap_or(0);
    let warm = Warm::for_files(most(|plan| plan.bytes), most(|plan| plan.files));
    let clock = RunClock::start();
    let measured = Site::new(&setting.paths())?;
    let limit = setting.limit.as_ref().map(|dir| Site::new(&[PathBuf::from(&dir.path)])).transpose()?;
    let sites: Vec<&Site> = [&measured].into_iter().chain(&limit).collect();
    let mut figures = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        figures.extend(case(number, plan, setting, &sites, progress)?);
    }
    measured.remove()?;
    limit.map(Site::remove).transpose()?;
    let mut notes = setting.notes();
    if setting.verify {
        let trees = plans.iter().any(|plan| matches!(plan.job, Job::Tree(_)));
        notes.push(if trees { SIZES_COMPARED } else { ALL_COMPARED }.to_owned());
    }
    if plans.iter().any(|plan| plan.loopback) {
        notes.insert(2, LOOPBACK_NOTE.to_owned());
    }
    notes.extend(warm.note());
    let mut run = clock.run(workload, notes, figures);
    run.directories.clone_from(&setting.dirs);
    run.limit.clone_from(&setting.limit);
    run.parameters = parameters;
    run.memory = setting.watched.memory();
    Ok(run)
}

/// Start of a run.
pub struct RunClock {
    began: Instant,
    unix_seconds: u64,
}

impl RunClock {
    /// Now.
    pub fn start() -> RunClock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        RunClock { began: Instant::now(), unix_seconds: unix.as_secs() }
    }

    /// A finished run, without directories and parameters.
    pub fn run(&self, workload: &str, notes: Vec<String>, figures: Vec<Figure>) -> Run {
        Run {
            workload: workload.to_owned(),
            program: concat!("brindle ", env!("CARGO_PKG_VERSION")).to_owned(),
            label: None,
            started_unix_seconds: self.unix_seconds,
            duration_seconds: self.began.elapsed().as_secs_f64(),
            machine: Machine::this(),
            directories: Vec::new(),
            limit: None,
            parameters: BTreeMap::new(),
            notes,
            memory: Vec::new(),
            figures,
        }
    }
}

fn room(plan: &Plan, setting: &Setting) -> Result<()> {
    for dir in setting.dirs.iter().take(1).chain(&setting.limit) {
        site::need(&PathBuf::from(&dir.path), plan.bytes, plan.files)?;
    }
    Ok(())
}

/// Samples of each step, by the index of the step.
type Samples = Vec<Vec<Sample>>;

fn case(
    number: usize,
    plan: &Plan,
    setting: &Setting,
    sites: &[&Site],
    progress: Progress<'_>,
) -> Result<Vec<Figure>> {
    let mut sides = Vec::new();
    for site in sites {
        let dirs = site.case(number, plan.mounts)?;
        sides.push((start(plan, setting, &dirs)?, dirs));
    }
    let shown = match &plan.x {
        Some(x) => format!("{}, {} {}", plan.case, x.value, x.name),
        None => plan.case.clone(),
    };
    for phase in &plan.once {
        for (team, _) in &mut sides {
            progress(&format!("{shown}: preparing"));
            team.run(*phase)?;
        }
    }
    let mut samples: Vec<Samples> = vec![vec![Vec::new(); plan.steps.len()]; sides.len()];
    let (mut trips, mut streams) = (Vec::new(), Vec::new());
    for repetition in 1..=setting.repeat {
        for (index, (team, _)) in sides.iter_mut().enumerate() {
            let place = if index == 0 { "measured" } else { "limit" };
            progress(&format!("{shown}: repetition {repetition} of {}, {place}", setting.repeat));
            repeat(plan, setting, team, &mut samples[index])?;
        }
        if plan.loopback {
            let rates = loopback::measure(plan.ranks, LOOPBACK_TIME)?;
            trips.push(rates.round_trips_per_second);
            streams.push(rates.mib_per_second);
        }
    }
    for (team, dirs) in sides {
        drop(team);
        site::remove_all(&dirs[0])?;
    }
    let figure = |(index, step): (usize, &Step)| {
        let name = step.name.as_deref()?;
        let own = samples[0][index].clone();
        let mut figure = Figure::new(&plan.case, name, step.unit, plan.x.clone(), own)?;
        if let Some(limit) = samples.get(1) {
            let values: Vec<f64> = limit[index].iter().map(|s| s.value).collect();
            figure.limit("disk", &values);
        }
        match step.unit {
            Unit::OpsPerSecond => figure.limit("loopback", &trips),
            Unit::MibPerSecond => figure.limit("loopback", &streams),
            Unit::Seconds | Unit::Microseconds => {}
        }
        Some(figure)
    };
    Ok(plan.steps.iter().enumerate().filter_map(figure).collect())
}

fn start(plan: &Plan, setting: &Setting, dirs: &[PathBuf]) -> Result<Team> {
    let spec = |rank| Spec {
        rank,
        ranks: plan.ranks,
        dirs: dirs.to_vec(),
        seed: setting.seed,
        verify: setting.verify,
        fsync: setting.fsync,
        thread: false,
        job: plan.job.clone(),
    };
    let launcher = if plan.threads { &Launcher::Threads } else { &setting.launcher };
    Team::start(launcher, (0..plan.ranks).map(spec).collect())
}

fn repeat(plan: &Plan, setting: &Setting, team: &mut Team, samples: &mut Samples) -> Result<()> {
    for (index, step) in plan.steps.iter().enumerate() {
        stop::check()?;
        if step.cold {
            setting.cold.make()?;
        }
        let before = setting.watched.read();
        let outcome = team.run(step.phase)?;
        let used = setting.watched.read().since(&before);
        if step.name.is_none() {
            continue;
        }
        let sample = Sample {
            value: 0.0,
            seconds: outcome.seconds,
            operations: outcome.operations,
            bytes: outcome.bytes,
            cpu_seconds: used.watched_seconds,
            benchmark_cpu_seconds: outcome.cpu_seconds,
            machine_cpu_seconds: used.machine_seconds,
        };
        samples[index].push(sample.valued(step.unit));
    }
    if plan.clean {
        team.run(Phase::Clean)?;
    }
    Ok(())
}

impl Setting {
    /// Notes that a reader of the figures needs.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![self.cold.note()];
        notes.push(match &self.limit {
            Some(dir) => format!(
                "Limit 'disk': the same program in {} ({}), in turn with the measured directory.",
                dir.path, dir.file_system
            ),
            None => {
                "Nothing is measured below: the directory is on a local disk itself, or --no-limit was given."
                    .to_owned()
            }
        });
        notes.push(match self.watched.count() {
            0 => "Processor time: none is counted. Name the processes of the file system with --cpu-of."
                .to_owned(),
            n => format!("Processor time: that of {n} processes, {}.", self.whose()),
        });
        if !self.fsync {
            notes.push("Files were not fsynced: write phases may have measured memory.".to_owned());
        }
        if self.dirs.len() == 1 {
            notes.push("One mount; give --dir again to use several mounts at once.".to_owned());
        }
        notes
    }

    fn whose(&self) -> String {
        match self.watched.patterns.as_slice() {
            [] => "all servers and mounts of Brindle on this machine".to_owned(),
            patterns => format!("whose command lines contain '{}'", patterns.join("' or '")),
        }
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
