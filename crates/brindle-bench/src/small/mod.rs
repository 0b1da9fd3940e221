//! The small set that `make bench` runs with counters of the servers at the edges of its phases: streams, metadata and
//! a small tree by one process, about a minute.

mod meta;
mod stream;
mod tree;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Work to run, and its size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    /// Repetitions of each phase.
    pub repetitions: u32,
    /// Size of the streamed file in bytes.
    pub stream_bytes: u64,
    /// Files of the metadata phases.
    pub files: u32,
    /// Files of the source tree.
    pub tree_files: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { repetitions: 3, stream_bytes: 256 << 20, files: 2000, tree_files: 1000 }
    }
}

/// A figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Workload and phase: `stream write`.
    pub name: String,
    /// `MiB/s` or `ops/s`.
    pub unit: String,
    /// Median over the repetitions.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Operations (or MiB) in one repetition.
    pub amount: f64,
}

/// All figures of one directory. Schema `brindle-bench/1`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `brindle-bench/1`.
    pub schema: String,
    /// The directory measured.
    pub directory: PathBuf,
    /// Options of the run.
    pub options: Options,
    /// The figures.
    pub rows: Vec<Row>,
}

/// Moment of a run, for progress and for counters that are read at the edges of phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment<'a> {
    /// A repetition begins: number from 1, of how many.
    Repetition(u32, u32),
    /// A phase begins; its time runs after the return of the watcher.
    Begin(&'a str),
    /// A phase has ended; its time has been taken.
    End(&'a str),
}

/// Runs the set on `directory`; `watch` is told where it is.
///
/// # Errors
/// The first system call that fails; what was made is removed.
pub fn run(directory: &Path, options: &Options, watch: &mut dyn FnMut(Moment<'_>)) -> io::Result<Report> {
    let work = directory.join(format!("brindle-bench-{}", std::process::id()));
    std::fs::create_dir(&work)?;
    let result = phases(&work, options, watch);
    let removed = std::fs::remove_dir_all(&work);
    let rows = result?;
    removed?;
    Ok(Report {
        schema: "brindle-bench/1".to_owned(),
        directory: directory.to_path_buf(),
        options: options.clone(),
        rows,
    })
}

fn phases(work: &Path, options: &Options, watch: &mut dyn FnMut(Moment<'_>)) -> io::Result<Vec<Row>> {
    let mut samples = Samples { phases: Vec::new(), watch };
    for repetition in 1..=options.repetitions {
        (samples.watch)(Moment::Repetition(repetition, options.repetitions));
        stream::run(work, options, &mut samples)?;
        meta::run(work, options, &mut samples)?;
        tree::run(work, options, &mut samples)?;
    }
    Ok(samples.rows())
}

/// Collects samples of each phase in the order in which they first came.
pub(crate) struct Samples<'a> {
    phases: Vec<(&'static str, &'static str, f64, Vec<f64>)>,
    watch: &'a mut dyn FnMut(Moment<'_>),
}

impl Samples<'_> {
    /// Times `work`, which does `amount` of `unit` (per second).
    pub(crate) fn time<T>(
        &mut self,
        name: &'static str,
        unit: &'static str,
        amount: f64,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        (self.watch)(Moment::Begin(name));
        let start = Instant::now();
        let out = work()?;
        let rate = amount / start.elapsed().as_secs_f64();
        (self.watch)(Moment::End(name));
        match self.phases.iter_mut().find(|p| p.0 == name) {
            Some(phase) => phase.3.push(rate),
            None => self.phases.push((name, unit, amount, vec![rate])),
        }
        Ok(out)
    }

    fn rows(mut self) -> Vec<Row> {
        let row = |(name, unit, amount, samples): &mut (&str, &str, f64, Vec<f64>)| {
            samples.sort_by(f64::total_cmp);
            Row {
                name: (*name).to_owned(),
                unit: (*unit).to_owned(),
                median: samples[samples.len() / 2],
                min: samples[0],
                max: samples[samples.len() - 1],
                amount: *amount,
            }
        };
        self.phases.iter_mut().map(row).collect()
    }
}

/// Tells the kernel to forget the pages of an open file (reads after it come from the file system).
pub(crate) fn forget_pages(file: &std::fs::File) -> io::Result<()> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_measured_and_nothing_stays_behind() {
        let dir = std::env::temp_dir().join(format!("brindle-bench-test-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("temporary directory");
        let options = Options { repetitions: 2, stream_bytes: 4 << 20, files: 20, tree_files: 20 };
        let mut seen = Vec::new();
        let mut watch = |moment: Moment<'_>| seen.push(format!("{moment:?}"));
        let report = run(&dir, &options, &mut watch).expect("runs on a local directory");
        assert_eq!(report.rows.len(), 8);
        assert_eq!(seen.len(), 2 * (1 + 2 * 8), "each repetition, each beginning, each end");
        assert_eq!(
            seen[..3],
            ["Repetition(1, 2)", "Begin(\"stream write + fsync\")", "End(\"stream write + fsync\")"]
        );
        assert!(report.rows.iter().all(|r| r.min > 0.0 && r.min <= r.median && r.median <= r.max));
        assert_eq!(std::fs::read_dir(&dir).expect("readable").count(), 0);
        std::fs::remove_dir(&dir).expect("empty");
    }
}
