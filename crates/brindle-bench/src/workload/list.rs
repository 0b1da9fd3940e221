//! A large directory: `ls -l` of it with cold caches, by one process. The files are empty and made by all ranks before.

use std::fs::File;
use std::process::Command;

use brindle_types::Result;
use serde::{Deserialize, Serialize};

use super::tree::command;
use crate::files;
use crate::plan::{Plan, Setting, Step};
use crate::rank::{self, Done, Phase, Spec};
use crate::run::Unit;
use crate::stop::Halt;

/// Size of the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Files of the directory.
    pub files: u32,
}

pub(crate) fn run(spec: &Spec, job: &Job, phase: Phase, halt: &Halt) -> Result<Done> {
    match phase {
        Phase::Create => create(spec, job, halt),
        Phase::List => list(spec, job, halt),
        other => Err(super::no_such_phase(other)),
    }
}

/// Ranks make files in turn.
fn create(spec: &Spec, job: &Job, halt: &Halt) -> Result<Done> {
    let mut done = Done::default();
    for number in (spec.rank..job.files).step_by(spec.ranks.max(1) as usize) {
        halt.check()?;
        let path = spec.dir().join(format!("file.{number}"));
        File::create_new(&path).map_err(|e| files::failed("cannot create", &path, &e))?;
        done.operations += 1;
    }
    let dir = File::open(spec.dir()).map_err(|e| files::failed("cannot open", spec.dir(), &e))?;
    files::sync(&dir, spec.dir(), spec.fsync)?;
    Ok(done)
}

fn list(spec: &Spec, job: &Job, halt: &Halt) -> Result<Done> {
    if spec.rank > 0 {
        return Ok(Done::default());
    }
    command(Command::new("ls").arg("-l").arg(spec.dir()), halt)?;
    Ok(Done { operations: job.files.into(), bytes: 0 })
}

/// The plan.
pub fn plans(job: Job, setting: &Setting) -> Vec<Plan> {
    let files = job.files;
    vec![Plan {
        case: format!("{files} files"),
        files: files.into(),
        once: vec![Phase::Create],
        steps: vec![Step::cold(Phase::List, "ls -l", Unit::Seconds)],
        ..Plan::new(setting.ranks, rank::Job::List(job))
    }]
}
