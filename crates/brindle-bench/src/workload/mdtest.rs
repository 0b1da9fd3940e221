//! The workload of mdtest: every rank makes files, stats and reads the files of the next rank, and removes
//! its own. Easy: empty files, a directory for each rank. Hard: files of 3,901 bytes, one directory for all.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use brindle_types::Result;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::pattern::Pattern;
use crate::plan::{Plan, Setting, Step};
use crate::rank::{self, Done, Phase, Spec};
use crate::run::Unit;
use crate::stop::Halt;

/// Bytes of a file in IO500's hard case.
pub const HARD_BYTES: u32 = 3901;

/// Kind of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Files of each rank.
    pub files: u32,
    /// Bytes of each.
    pub bytes: u32,
    /// Whether all ranks use the same directory.
    pub shared: bool,
}

impl Job {
    fn dir(&self, spec: &Spec, rank: u32) -> PathBuf {
        match self.shared {
            true => spec.dir().join("shared"),
            false => spec.dir().join(format!("rank.{rank}")),
        }
    }

    fn names(&self, rank: u32) -> impl Iterator<Item = (u32, String)> + use<> {
        (0..self.files).map(move |n| (n, format!("file.{rank}.{n}")))
    }

    fn pattern(&self, spec: &Spec, rank: u32, file: u32) -> Pattern {
        Pattern::of(spec.seed, (u64::from(rank) << 32) | u64::from(file))
    }

    fn done(&self, bytes_each: u32) -> Done {
        let operations = u64::from(self.files);
        Done { operations, bytes: operations * u64::from(bytes_each) }
    }
}

/// Runs a phase.
pub(crate) fn run(spec: &Spec, job: &Job, phase: Phase, halt: &Halt) -> Result<Done> {
    match phase {
        Phase::Create => create(spec, job, halt),
        Phase::Stat => stat(spec, job, halt),
        Phase::Read => read(spec, job, halt),
        Phase::Remove => remove(spec, job, halt),
        Phase::Clean => clean(spec, job),
        other => Err(super::no_such_phase(other)),
    }
}

fn create(spec: &Spec, job: &Job, halt: &Halt) -> Result<Done> {
    let dir = job.dir(spec, spec.rank);
    if let Err(e) = std::fs::create_dir(&dir) {
        // A different rank may have made the shared directory first.
        if !(job.shared && e.kind() == std::io::ErrorKind::AlreadyExists) {
            return Err(files::failed("cannot make the directory", &dir, &e));
        }
    }
    let mut data = vec![0; job.bytes as usize];
    for (n, name) in job.names(spec.rank) {
        halt.check()?;
        let path = dir.join(name);
        let mut file = File::create_new(&path).map_err(|e| files::failed("cannot create", &path, &e))?;
        if !data.is_empty() {
            job.pattern(spec, spec.rank, n).fill(0, &mut data);
            file.write_all(&data).map_err(|e| files::failed("cannot write", &path, &e))?;
            files::sync(&file, &path, spec.fsync)?;
        }
    }
    // Empty files are durable with the directory that names them.
    let open = File::open(&dir).map_err(|e| files::failed("cannot open", &dir, &e))?;
    files::sync(&open, &dir, spec.fsync)?;
    Ok(job.done(job.bytes))
}

fn stat(spec: &Spec, job: &Job, halt: &Halt) -> Result<Done> {
    let dir = job.dir(spec, spec.next());
    for (_, name) in job.names(spec.next()) {
        halt.check()?;
        let path = dir.join(name);
        let found = std::fs::metadata(&path).map_err(|e| files::failed("cannot stat", &path, &e))?;
        if spec.verify && found.len() != u64::from(job.bytes) {
            let why = format!("expected {} bytes, found {}", job.bytes, found.len());
            return Err(brindle_types::Fault::new(brindle_types::Code::WrongContents)
                .what("wrong size of")
                .subject(path.display().to_string())
                .why(why));
        }
    }
    Ok(job.done(0))
}

fn read(spec: &Spec, job: &Job, halt: &Halt) -> Result<Done> {
    let dir = job.dir(spec, spec.next());
    let mut data = vec![0; job.bytes as usize];
    for (n, name) in job.names(spec.next()) {
        halt.check()?;
        let path = dir.join(name);
        let file = files::open_read(&path, false)?;
        files::read_at(&file, &path, &mut data, 0)?;
        if spec.verify {
            files::compare(&path, job.pattern(spec, spec.next(), n), 0, &data)?;
        }
    }
    Ok(job.done(job.bytes))
}

fn remove(spec: &Spec, job: &Job, halt: &Halt) -> Result<Done> {
    let dir = job.dir(spec, spec.rank);
    for (_, name) in job.names(spec.rank) {
        halt.check()?;
        let path = dir.join(name);
        std::fs::remove_file(&path).map_err(|e| files::failed("cannot remove", &path, &e))?;
    }
    Ok(job.done(0))
}

fn clean(spec: &Spec, job: &Job) -> Result<Done> {
    if !job.shared || spec.rank == 0 {
        let dir = job.dir(spec, spec.rank);
        std::fs::remove_dir(&dir).map_err(|e| files::failed("cannot remove", &dir, &e))?;
    }
    Ok(Done::default())
}

/// Options of `brindle bench mdtest`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Own directories, empty files.
    pub easy: bool,
    /// A single directory, files of 3,901 bytes.
    pub hard: bool,
    /// Files of each rank.
    pub files: u32,
}

/// Plans of the cases; the shared directory is used through one mount and, if there are more, through all.
pub fn plans(options: &Options, setting: &Setting) -> Vec<Plan> {
    let mut plans = Vec::new();
    let all = setting.dirs.len();
    if options.easy {
        plans.push(plan(options, setting, false, all));
    }
    if options.hard {
        plans.push(plan(options, setting, true, 1));
        if all > 1 {
            plans.push(plan(options, setting, true, all));
        }
    }
    plans
}

fn plan(options: &Options, setting: &Setting, hard: bool, mounts: usize) -> Plan {
    let job = Job { files: options.files, bytes: if hard { HARD_BYTES } else { 0 }, shared: hard };
    let name = if hard { "hard: shared directory, 3901 B" } else { "easy: own directories, empty" };
    let mut steps = vec![
        Step::new(Phase::Create, "create", Unit::OpsPerSecond),
        Step::cold(Phase::Stat, "stat", Unit::OpsPerSecond),
        Step::cold(Phase::Remove, "remove", Unit::OpsPerSecond),
    ];
    if hard {
        steps.insert(2, Step::cold(Phase::Read, "read", Unit::OpsPerSecond));
    }
    let files = u64::from(options.files) * u64::from(setting.ranks);
    Plan {
        case: setting.case_name(name, mounts),
        mounts,
        bytes: files * u64::from(job.bytes).next_multiple_of(files::ALIGN_BYTES),
        files: files + u64::from(setting.ranks),
        steps,
        clean: true,
        loopback: true,
        ..Plan::new(setting.ranks, rank::Job::Mdtest(job))
    }
}
