//! The document's experiment: a checkpoint is written, waits, is archived; older ones are released when the fast tier is 66 % full.
//!
//! | step | what happens |
//! |---|---|
//! | 1 | a checkpoint with the document's policy: its files are archived when they are as old as the text says |
//! | 2 | a second one whose files are archived as soon as they are closed |
//! | 3 | a third one, which fills the fast tier to more than 66 %; then it is released down to 33 % |
//! | 4 | the first one is read: all of it comes back from the archive, and every byte is compared |
//!
//! Times are told in those of the document: what stands for its 300 s gives the factor.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use super::report::Figure;
use super::rows::{self, HostCluster, Row, Said};
use super::tiers::{FULL, Limits, QUICK, Scale, Tiers};
use super::writers::Writers;
use crate::Session;

const MIB: u64 = 1 << 20;
/// The document's wait, in seconds.
const WAIT_SECS: f64 = 300.0;
/// The low watermark, in percent, and what may lie above it because files are released whole.
const LOW_PERCENT: f64 = 33.0;
const LOW_SLACK_PERCENT: f64 = 1.0;

const fn said(words: &'static str, share: f64) -> Option<Said> {
    Some(Said { words, share: Some(share) })
}

/// What the document has.
const WRITE: Option<Said> = said("16 of 17.28 GB/s", 0.926);
const WAITED: Option<Said> = Some(Said { words: "300 s", share: None });
const ARCHIVE: Option<Said> = said("4 of 6 GB/s", 0.667);
const RPO: Option<Said> = said("940 s; 769 s with a full pipe", 769.0 / 940.0);

/// Moments of a checkpoint.
#[derive(Clone, Copy, Debug)]
struct Times {
    began: SystemTime,
    written: SystemTime,
    /// An agent has the first file.
    taken: SystemTime,
    archived: SystemTime,
}

fn seconds(from: SystemTime, to: SystemTime) -> f64 {
    to.duration_since(from).map_or(0.0, |between| between.as_secs_f64())
}

/// A checkpoint that lies in the fast tier.
struct Checkpoint {
    writers: Writers,
    files: Vec<PathBuf>,
    times: Times,
}

/// Figures, with what they have in common.
struct Table {
    place: &'static str,
    load: String,
    /// Bytes of a checkpoint.
    bytes: f64,
    /// Seconds of the document for a second here.
    factor: f64,
    wait_secs: f64,
    limits: Limits,
    figures: Vec<Figure>,
}

impl Table {
    fn add(
        &mut self,
        row: &'static str,
        phase: &str,
        unit: &'static str,
        value: f64,
        limit: Option<f64>,
        document: Option<Said>,
    ) {
        let figure = Figure {
            place: self.place,
            row,
            load: self.load.clone(),
            phase: phase.to_owned(),
            unit,
            value,
            limit,
            document,
        };
        println!("  {}", figure.line());
        self.figures.push(figure);
    }

    fn rate(&self, seconds: f64) -> f64 {
        self.bytes / 1e6 / seconds
    }

    /// The figures of a checkpoint; `waits`: whether it is the document's own, which waits before it is archived.
    fn checkpoint(&mut self, times: &Times, waits: bool) {
        let row = if waits { "G: with the wait of 300 s" } else { "G: without the wait" };
        let (fast, archive) = (self.limits.fast.to, self.limits.archive.to);
        let Times { began, written, taken, archived } = *times;
        self.add(
            row,
            "write",
            "MB/s",
            self.rate(seconds(began, written)),
            Some(fast),
            WRITE.filter(|_| waits),
        );
        if waits {
            self.add(row, "wait", "s", seconds(written, taken) * self.factor, None, WAITED);
        }
        self.add(
            row,
            "archive",
            "MB/s",
            self.rate(seconds(taken, archived)),
            Some(archive),
            ARCHIVE.filter(|_| waits),
        );
        let wait_secs = if waits { self.wait_secs } else { 0.0 };
        let pipe = self.bytes / 1e6 / fast + wait_secs + self.bytes / 1e6 / archive;
        let rpo = seconds(began, archived);
        self.add(row, "RPO", "s", rpo * self.factor, Some(pipe * self.factor), RPO.filter(|_| waits));
    }
}

/// Measures the place. Nothing of it is left on return.
pub fn measure(
    session: &Session,
    program: &Path,
    place: &'static HostCluster,
    rows: &[&'static Row],
    seconds: u32,
) -> Result<Vec<Figure>, String> {
    let scale = if seconds == rows::SECONDS_QUICK { QUICK } else { FULL };
    let ranks = rows.iter().flat_map(|row| row.loads).map(|load| load.ranks).max().unwrap_or(place.clients);
    let mut tiers = Tiers::up(session, program, place, scale)?;
    let limits = tiers.limits(seconds)?;
    println!(
        "  the devices allow {} MB/s into the fast tier, {} MB/s into the archive, {} MB/s out of it (plain files)",
        limits.fast.to, limits.archive.to, limits.archive.from
    );
    let factor = WAIT_SECS / scale.wait_secs as f64;
    let mut table = Table {
        place: place.name,
        load: format!(
            "{ranks} processes on as many clients, a file of {} MiB each; times are multiplied by {factor:.1}",
            scale.file_mib
        ),
        bytes: (u64::from(ranks) * scale.file_mib * MIB) as f64,
        factor,
        wait_secs: scale.wait_secs as f64,
        limits,
        figures: Vec::new(),
    };
    experiment(&mut tiers, &mut table, scale, ranks)?;
    Ok(table.figures)
}

fn experiment(tiers: &mut Tiers<'_>, table: &mut Table, scale: Scale, ranks: u32) -> Result<(), String> {
    tiers.policies(&format!("last_mod > {}s", scale.wait_secs))?;
    let first = Checkpoint::make(tiers, 1, ranks)?;
    table.checkpoint(&first.times, true);
    tiers.policies("last_mod > 0s")?;
    let second = Checkpoint::make(tiers, 2, ranks)?;
    table.checkpoint(&second.times, false);
    // What releases is off until the fast tier has all three, so that the watermark is crossed at a known moment.
    tiers.switch_purge("disable")?;
    let third = Checkpoint::make(tiers, 3, ranks)?;
    release(tiers, table, &first, &third)?;
    read_back(tiers, table, first)
}

/// The fast tier is released down to the low watermark.
fn release(
    tiers: &mut Tiers<'_>,
    table: &mut Table,
    first: &Checkpoint,
    newest: &Checkpoint,
) -> Result<(), String> {
    const ROW: &str = "G: release at 66 %, down to 33 %";
    table.add(ROW, "fill before", "%", tiers.fill_percent()?, None, None);
    let since = SystemTime::now();
    tiers.switch_purge("enable")?;
    let done = tiers.until("the fast tier is released", |tiers| {
        Ok(tiers.fill_percent()? <= LOW_PERCENT + LOW_SLACK_PERCENT)
    })?;
    table.add(ROW, "fill after", "%", tiers.fill_percent()?, None, None);
    table.add(ROW, "release", "s", seconds(since, done) * table.factor, None, None);
    let is_released = |state: &Value| has(state, "released");
    if tiers.states(&newest.files)?.iter().any(is_released) {
        return Err("files of the newest checkpoint are released, before those of older ones".to_owned());
    }
    match tiers.states(&first.files)?.iter().filter(|state| is_released(state)).count() {
        count if count == first.files.len() => Ok(()),
        count => Err(format!("{count} of {} files of the oldest checkpoint are released", first.files.len())),
    }
}

/// The oldest checkpoint is read, and comes back.
fn read_back(tiers: &mut Tiers<'_>, table: &mut Table, mut first: Checkpoint) -> Result<(), String> {
    first.writers.go()?;
    let mut run = None;
    tiers.until("the first checkpoint is read", |_| {
        run = first.writers.ended()?;
        Ok(run.is_some())
    })?;
    let figures = run.map(|run| run.figures).unwrap_or_default();
    let read =
        figures.iter().find(|figure| figure.phase == "read").ok_or("brindle bench has read nothing")?;
    let rate = read.summary.median * MIB as f64 / 1e6;
    table.add(
        "G: read again, out of the archive",
        "read",
        "MB/s",
        rate,
        Some(table.limits.archive.from),
        None,
    );
    Ok(())
}

fn has(state: &Value, flag: &str) -> bool {
    state["flags"].as_array().is_some_and(|flags| flags.iter().any(|word| word == flag))
}

impl Checkpoint {
    /// Writes a checkpoint, and returns when all of it is archived.
    fn make(tiers: &mut Tiers<'_>, number: u32, ranks: u32) -> Result<Checkpoint, String> {
        let name = format!("ckpt.{number}");
        let dirs: Vec<PathBuf> = (1..=ranks).map(|client| tiers.mount(client).join(&name)).collect();
        let first = dirs.first().ok_or("a checkpoint has no process")?;
        std::fs::create_dir(first).map_err(|e| format!("{}: {e}", first.display()))?;
        tiers.stripe(first, 1)?;
        let control = tiers.control_dir().to_owned();
        let mut writers = Writers::start(tiers.commands(), &control, &name, &dirs, tiers.scale().file_mib)?;
        println!("  {name}: {ranks} processes write");
        let (mut at, mut taken) = (None, None);
        tiers.until("the checkpoint is written", |tiers| {
            // A file that is closed early may be taken while others are written.
            if taken.is_none() && tiers.is_moving()? {
                taken = Some(SystemTime::now());
            }
            at = writers.written()?;
            Ok(at.is_some())
        })?;
        let (began, written) = at.ok_or("the checkpoint was not written")?;
        let files = files_below(first)?;
        if files.len() != ranks as usize {
            return Err(format!("{} files are in {}, not {ranks}", files.len(), first.display()));
        }
        let is_archived = |state: &Value| has(state, "archived") && !has(state, "dirty");
        let taken = match taken {
            Some(taken) => taken,
            None => tiers.until("an agent takes a file", |tiers| {
                Ok(tiers.is_moving()? || tiers.states(&files)?.iter().any(is_archived))
            })?,
        };
        let archived = tiers
            .until("the checkpoint is archived", |tiers| Ok(tiers.states(&files)?.iter().all(is_archived)))?;
        Ok(Checkpoint { writers, files, times: Times { began, written, taken, archived } })
    }
}

/// All files below a directory.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))? {
            let entry = entry.map_err(|e| format!("{}: {e}", dir.display()))?;
            let kind = entry.file_type().map_err(|e| format!("{}: {e}", entry.path().display()))?;
            if kind.is_dir() { open.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::place::Limit;
    use std::time::Duration;

    #[test]
    fn a_pipe_that_is_always_full_is_all_of_the_limit() {
        let limits = Limits { fast: Limit { to: 160.0, from: 0.0 }, archive: Limit { to: 60.0, from: 0.0 } };
        let mut table = Table {
            place: "p",
            load: String::new(),
            bytes: 2.048e9,
            factor: 10.0,
            wait_secs: 30.0,
            limits,
            figures: Vec::new(),
        };
        let at = |secs: f64| SystemTime::UNIX_EPOCH + Duration::from_secs_f64(secs);
        let times = Times {
            began: at(100.0),
            written: at(112.8),
            taken: at(142.8),
            archived: at(142.8 + 2048.0 / 60.0),
        };
        table.checkpoint(&times, true);
        let rpo = table.figures.last().unwrap();
        assert!((rpo.value - 769.0).abs() < 1.0, "the document's: {}", rpo.value);
        assert!(table.figures.iter().filter_map(Figure::share).all(|share| (share - 1.0).abs() < 1e-6));
        let late = Times { archived: at(230.0), ..times };
        table.checkpoint(&late, true);
        assert!(table.figures.last().unwrap().share().unwrap() < 0.6, "a longer time is a smaller share");
    }
}
