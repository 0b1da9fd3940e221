//! The documents of a run, `bench/runs/DATE-COMMIT-peers-SCALE.md` for people and `.json` with every sample, and the table on
//! the terminal.

mod copies;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use brindle_bench::run::{Sample, Unit};
use brindle_bench::stats::{Summary, median};
use serde_json::{Value, json};

use super::measure::{Figures, Order, Record, figure, load_average};
use super::rows::{Beside, ROWS, Row};
use super::system::{Role, System};
use super::verdict::{self, Judged, Speeds, Verdict};
use crate::Session;
use crate::bench::machine;
use crate::run::capture;

/// Fewer repetitions have no quartiles worth the name.
const REPETITIONS_MIN: u32 = 3;

/// A system as it was measured.
pub struct Described {
    name: &'static str,
    role: Role,
    version: String,
    settings: String,
}

impl Described {
    /// Description of a system.
    pub fn of(system: &dyn System) -> Described {
        Described {
            name: system.name(),
            role: system.role(),
            version: system.version(),
            settings: system.settings(),
        }
    }
}

/// A row of the table with one number of mounts.
struct Line {
    row: &'static Row,
    mounts: u32,
    unit: Unit,
    peer: Option<&'static str>,
    judged: Judged,
    systems: BTreeMap<&'static str, Cell>,
}

/// Result of a system in a row.
struct Cell {
    value: Summary,
    cpu: Option<f64>,
}

/// Data that is the same for all lines.
struct Table<'a> {
    systems: &'a [Described],
    records: &'a [Record],
}

impl Table<'_> {
    fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for row in ROWS {
            lines.extend([1, 2].into_iter().filter_map(|mounts| self.line(row, mounts)));
        }
        lines
    }

    /// The samples of a system in a row; systems without a second mount have the same in both.
    fn samples(&self, system: &str, row: &Row, mounts: u32) -> Vec<&Record> {
        let here = |r: &&Record| {
            r.system == system && r.group == row.group && r.phase == row.phase && r.case.starts_with(row.case)
        };
        let all: Vec<&Record> = self.records.iter().filter(here).collect();
        let most = all.iter().map(|r| r.mounts).max().unwrap_or(1);
        all.into_iter().filter(|r| r.mounts == mounts.min(most)).collect()
    }

    fn speeds(&self, system: &str, row: &Row, mounts: u32) -> Speeds {
        let samples = self.samples(system, row, mounts);
        samples.iter().map(|r| (r.repetition, verdict::speed(r.unit, r.sample.value))).collect()
    }

    fn with_role(&self, role: Role) -> impl Iterator<Item = &'static str> {
        self.systems.iter().filter(move |s| s.role == role).map(|s| s.name)
    }

    fn line(&self, row: &'static Row, mounts: u32) -> Option<Line> {
        let measured: Vec<&Record> =
            self.records.iter().filter(|r| r.group == row.group && r.phase == row.phase).collect();
        let unit = measured.iter().find(|r| r.mounts == mounts)?.unit;
        let ours = self.with_role(Role::Ours).next().unwrap_or_default();
        let speeds = |system: &'static str| (system, self.speeds(system, row, mounts));
        let peers: Vec<(&'static str, Speeds)> = self.with_role(Role::Peer).map(speeds).collect();
        let peer = verdict::best(peers.iter().map(|(name, speeds)| (*name, speeds)));
        let peer = peers.iter().find(|(name, _)| Some(*name) == peer);
        let none = Speeds::new();
        let beside = row.beside.map(|(beside, times)| (self.beside(beside, row), times));
        let judged = verdict::judge(
            &self.speeds(ours, row, mounts),
            (peer.map_or(&none, |(_, speeds)| speeds), row.peers),
            beside.as_ref().map(|(speeds, times)| (speeds, *times)),
        );
        let cells =
            self.systems.iter().filter_map(|s| Some((s.name, Cell::of(&self.samples(s.name, row, mounts))?)));
        Some(Line { row, mounts, unit, peer: peer.map(|(name, _)| *name), judged, systems: cells.collect() })
    }

    /// Speeds that the row is compared with beside peers.
    fn beside(&self, beside: Beside, row: &Row) -> Speeds {
        let row = match beside {
            Beside::Ext4 | Beside::Passthrough => Some(row),
            Beside::OwnEasy => ROWS.iter().find(|easy| easy.group == "easy" && easy.phase == row.phase),
        };
        let Some(row) = row else { return Speeds::new() };
        // Of two passthroughs one takes part in a row.
        let all = self.with_role(beside.role()).map(|system| self.speeds(system, row, 1));
        all.into_iter().find(|speeds| !speeds.is_empty()).unwrap_or_default()
    }
}

impl Cell {
    fn of(samples: &[&Record]) -> Option<Cell> {
        let values: Vec<f64> = samples.iter().map(|r| r.sample.value).collect();
        let cpu: Vec<f64> = samples.iter().filter_map(|r| cpu_of(r.unit, &r.sample)).collect();
        Some(Cell { value: Summary::of(&values)?, cpu: median(&cpu) })
    }
}

/// Processor time of the system's processes: seconds per GiB of streams, microseconds per operation of everything else.
fn cpu_of(unit: Unit, sample: &Sample) -> Option<f64> {
    let (amount, scale) = match unit {
        Unit::MibPerSecond => (sample.bytes as f64, f64::from(1 << 30)),
        Unit::OpsPerSecond | Unit::Seconds | Unit::Microseconds => (sample.operations as f64, 1e6),
    };
    (amount > 0.0).then_some(sample.cpu_seconds? / amount * scale)
}

/// A name that no run has: figures that took an hour are not replaced by those of the next run.
fn free_stem(dir: &Path, stem: &str) -> String {
    let is_free =
        |stem: &String| !["md", "json"].iter().any(|end| dir.join(format!("{stem}.{end}")).exists());
    let numbered = (2..).map(|n| format!("{stem}-{n}"));
    std::iter::once(stem.to_owned()).chain(numbered).find(is_free).expect("numbers do not end")
}

/// Writes both documents; returns what to print.
pub fn write(
    session: &Session,
    order: &Order<'_>,
    systems: &[Described],
    figures: &Figures,
    mut run: About,
) -> Result<String, String> {
    run.load_after = load_average();
    let table = Table { systems, records: &figures.records };
    let lines = table.lines();
    let dir = session.root.join("bench/runs");
    std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    let stem = free_stem(&dir, &format!("{}-{}-peers-{}", run.date, run.commit, order.scale.name));
    let has_ours = table.with_role(Role::Ours).next().is_some();
    let alone = has_ours.then(|| format!("{}\n{}\n", ratios(&lines), count(&lines)));
    let ratios = [alone, copies::ratios(&table, &lines)].into_iter().flatten().collect::<Vec<_>>().join("\n");
    let documents = [
        ("md", markdown(&run, order, systems, figures, &lines, &ratios)),
        ("json", document(&run, order, systems, figures, &lines)),
    ];
    let mut said = format!("\n{ratios}\n");
    for (ending, text) in documents {
        let path = dir.join(format!("{stem}.{ending}"));
        std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        let _ = writeln!(said, "written: bench/runs/{stem}.{ending}");
    }
    Ok(said)
}

/// Description of a run: when, of what and on what, as known before the first figure.
pub struct About {
    root: String,
    date: String,
    commit: String,
    changed: bool,
    machine: Value,
    load_before: f64,
    load_after: f64,
}

impl About {
    /// Description of a run that begins now.
    pub fn of(session: &Session, order: &Order<'_>) -> About {
        let said = |program: &str, args: &[&str]| {
            capture(program, args).map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned())
        };
        let root = session.root.display().to_string();
        let status = said("git", &["-C", &root, "status", "--porcelain", "--untracked-files=no"]);
        About {
            date: said("date", &["-u", "+%Y-%m-%d"]),
            commit: said("git", &["-C", &root, "rev-parse", "--short", "HEAD"]),
            // A binary from elsewhere may be of any source.
            changed: !status.is_empty() || order.program != session.dist(),
            machine: machine::describe(),
            load_before: load_average(),
            load_after: 0.0,
            root,
        }
    }

    /// Message of a failure, in one line that does not name this machine's directories; the rest is in the
    /// logs.
    fn in_short(&self, why: &str) -> String {
        let told = |line: &&str| line.starts_with("error:") || line.starts_with("why:");
        let lines: Vec<&str> = why.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let told: Vec<&str> = lines.iter().copied().filter(told).collect();
        let text = if told.is_empty() {
            lines.first().copied().unwrap_or_default().to_owned()
        } else {
            told.join("; ")
        };
        text.replace(&self.root, ".")
    }
}

fn markdown(
    run: &About,
    order: &Order<'_>,
    systems: &[Described],
    figures: &Figures,
    lines: &[Line],
    ratios: &str,
) -> String {
    let mut text = format!(
        "# Brindle beside other file systems, {} at {}{}\n\n",
        run.date,
        run.commit,
        if run.changed { " (with changes that are not in the commit, or with another binary)" } else { "" }
    );
    let loads: Vec<f64> = figures.records.iter().map(|r| r.load).collect();
    let load = Summary::of(&loads).map_or(0.0, |s| s.max);
    let _ = writeln!(
        text,
        "{} cores, {}, {} of memory, Linux {}. Scale {}, {} repetitions, 2 processes; systems in turn within each repetition. \
         Load average before {:.1}, during at most {load:.1}, after {:.1}.\n",
        run.machine["cores"],
        run.machine["processor"].as_str().unwrap_or("unknown processor"),
        brindle_types::units::format_bytes(run.machine["memory_bytes"].as_u64().unwrap_or(0)),
        run.machine["kernel"].as_str().unwrap_or("unknown"),
        order.scale.name,
        order.repeat,
        run.load_before,
        run.load_after,
    );
    text += &caveats(order, lines);
    let _ = writeln!(text, "\n## Ratios\n\n{LEGEND}\n\n{ratios}");
    let _ = writeln!(text, "## Figures\n\n{}", medians(systems, lines));
    text += "## Systems\n\n";
    for s in systems {
        let _ = writeln!(text, "- **{}**: {}; {}.", s.name, s.version, s.settings);
    }
    text += &memory(systems, figures);
    if !figures.failures.is_empty() {
        text += "\n## What failed\n\n";
        for f in &figures.failures {
            let _ = writeln!(text, "- {}, {}: {}", f.system, f.when, run.in_short(&f.why));
        }
    }
    text
}

/// Memory of the processes of each system.
fn memory(systems: &[Described], figures: &Figures) -> String {
    let mut text = String::from(
        "\n## Memory\n\nOf the processes of each name the most that one has had since it started (VmHWM), looked at after each workload; \
         behind `of`, what it may have: an MDT's server 200 bytes for each inode in memory besides, an OST's the requests in flight. Mounts are started anew within a workload. Where mount and servers look at each \
         other's pages (note 015), those count for both.\n\n",
    );
    let before = text.len();
    for system in systems {
        let Some(processes) = figures.memory.get(system.name).filter(|all| !all.is_empty()) else { continue };
        let each: Vec<String> = processes.iter().map(|(name, m)| format!("{name} {}", m.peak())).collect();
        let _ = writeln!(text, "- **{}**: {}.", system.name, each.join(", "));
    }
    if text.len() == before { String::new() } else { text }
}

const LEGEND: &str = "Ratios are Brindle's speed by that of the other, of pairs of the same repetition: median, quartiles in brackets, and what is \
asked for. The floor of a row is the lower of its two; `of floor` is Brindle by that, 1 is enough. A row passes or fails when both \
quartiles of it do. CPU is that of all processes of the system: s/GiB for streams, us/op for everything else.";

fn caveats(order: &Order<'_>, lines: &[Line]) -> String {
    let mut text = String::from(
        "All are backed by ext4 images on loop devices of one disk, which pass through the page cache of this kernel. Write phases end with fsync of each file. Before phases that read, \
         everything is synced, the kernel's caches are dropped and clients are remounted; servers keep running, with what they hold in memory \
         of their own. Memory was used once before and kept from going back to a hypervisor, so that nobody waits for it. GlusterFS and CephFS write to the disk on fsync. MooseFS does not as it is shipped; the column `moosefs` has \
         HDD_FSYNC_BEFORE_CLOSE 1, but its chunkservers close chunks after they have answered, and its master never fsyncs, so its write rows \
         still promise less than those of the others.\n",
    );
    if order.scale.name != "full" {
        text += "\n**Not the full scale:** sets fit into caches of servers, phases are short, and processor time is counted in ticks of 10 ms. \
                 This run shows that everything works; it is no basis for claims.\n";
    }
    if order.repeat < REPETITIONS_MIN {
        let _ = writeln!(
            text,
            "\n**Only {} repetition{}:** quartiles say little, and verdicts are those of a moment.",
            order.repeat,
            if order.repeat == 1 { "" } else { "s" }
        );
    }
    if lines.iter().any(|line| line.judged.verdict == Verdict::Missing) {
        text += "\nRows without a verdict were not measured on everything that they are compared with.\n";
    }
    text
}

/// The table of ratios.
fn ratios(lines: &[Line]) -> String {
    let mut rows = vec![cells(&[
        "workload",
        "mounts",
        "brindle",
        "CPU",
        "best peer",
        "ratio",
        "beside",
        "ratio",
        "of floor",
        "verdict",
    ])];
    for line in lines {
        let ours = line.systems.get("brindle");
        let peer = line.peer.and_then(|name| Some((name, line.systems.get(name)?)));
        rows.push(cells(&[
            line.row.name,
            &line.mounts.to_string(),
            &ours.map_or("-".to_owned(), |c| format!("{} {}", figure(c.value.median), line.unit.text())),
            &ours.map_or("-".to_owned(), |c| cpu_text(line.unit, c.cpu)),
            &peer.map_or("-".to_owned(), |(name, c)| format!("{name} {}", figure(c.value.median))),
            &ratio_text(line.judged.to_peer, Some(line.row.peers)),
            line.row.beside.map_or("-", |(beside, _)| beside.text()),
            &ratio_text(line.judged.to_beside, line.row.beside.map(|(_, times)| times)),
            &line.judged.to_floor.map_or("-".to_owned(), |s| figure(s.median)),
            line.judged.verdict.text(),
        ]));
    }
    aligned(&rows)
}

fn cpu_text(unit: Unit, cpu: Option<f64>) -> String {
    let per = if unit == Unit::MibPerSecond { "s/GiB" } else { "us/op" };
    cpu.map_or("-".to_owned(), |cpu| format!("{} {per}", figure(cpu)))
}

fn ratio_text(ratio: Option<Summary>, asked: Option<f64>) -> String {
    match (ratio, asked) {
        (Some(s), Some(asked)) => {
            format!("{} [{}-{}] of {asked}", figure(s.median), figure(s.quartile_1), figure(s.quartile_3))
        }
        _ => "-".to_owned(),
    }
}

/// All medians, with processor time.
fn medians(systems: &[Described], lines: &[Line]) -> String {
    let head = ["workload", "mounts", "unit"].into_iter().chain(systems.iter().map(|s| s.name));
    let mut rows = vec![cells(&head.collect::<Vec<&str>>())];
    for line in lines {
        let mut row = cells(&[line.row.name, &line.mounts.to_string(), line.unit.text()]);
        row.extend(systems.iter().map(|s| match line.systems.get(s.name) {
            Some(Cell { value, cpu: Some(cpu) }) => format!("{} ({})", figure(value.median), figure(*cpu)),
            Some(Cell { value, cpu: None }) => figure(value.median),
            None => "-".to_owned(),
        }));
        rows.push(row);
    }
    format!(
        "Medians; in parentheses processor time, in s/GiB or us/op. Less is better where the unit is s.\n\n{}",
        aligned(&rows)
    )
}

fn count(lines: &[Line]) -> String {
    let of = |verdict| lines.iter().filter(|line| line.judged.verdict == verdict).count();
    format!(
        "{} pass, {} fail, {} undecided, {} not measured",
        of(Verdict::Pass),
        of(Verdict::Fail),
        of(Verdict::Undecided),
        of(Verdict::Missing)
    )
}

fn cells(row: &[&str]) -> Vec<String> {
    row.iter().map(|&cell| cell.to_owned()).collect()
}

/// A table that reads well as text too.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |n: usize| rows.iter().filter_map(|row| row.get(n)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let padded: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "| {} |", padded.join(" | "));
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            let _ = writeln!(text, "|-{}-|", rules.join("-|-"));
        }
    }
    text
}

/// The document for programs: what was computed, then every sample on a line of its own.
fn document(
    run: &About,
    order: &Order<'_>,
    systems: &[Described],
    figures: &Figures,
    lines: &[Line],
) -> String {
    let systems: Vec<Value> = systems
        .iter()
        .map(|s| json!({ "name": s.name, "version": s.version, "settings": s.settings }))
        .collect();
    let failures: Vec<Value> = figures
        .failures
        .iter()
        .map(|f| json!({ "system": f.system, "when": f.when, "why": run.in_short(&f.why) }))
        .collect();
    let head = json!({
        "schema": "brindle-peers-run",
        "version": 1,
        "date": run.date,
        "commit": run.commit,
        "changed_since_commit": run.changed,
        "machine": run.machine,
        "load_before": run.load_before,
        "load_after": run.load_after,
        "scale": order.scale.name,
        "repetitions": order.repeat,
        "systems": systems,
        "memory": figures.memory,
        "failures": failures,
    });
    let rows: Vec<String> = lines.iter().map(|line| line.json().to_string()).collect();
    let samples: Vec<String> = figures.records.iter().map(|r| sample_json(r).to_string()).collect();
    let head = serde_json::to_string_pretty(&head).unwrap_or_default();
    let head = head.trim_end().trim_end_matches('}').trim_end();
    format!(
        "{head},\n  \"rows\": [\n    {}\n  ],\n  \"samples\": [\n    {}\n  ]\n}}\n",
        rows.join(",\n    "),
        samples.join(",\n    ")
    )
}

impl Line {
    fn json(&self) -> Value {
        json!({
            "row": self.row.name,
            "mounts": self.mounts,
            "unit": self.unit.text(),
            "best_peer": self.peer,
            "asked_of_peer": self.row.peers,
            "to_peer": summary_json(self.judged.to_peer),
            "beside": self.row.beside.map(|(beside, _)| beside.text()),
            "asked_of_beside": self.row.beside.map(|(_, times)| times),
            "to_beside": summary_json(self.judged.to_beside),
            "to_floor": summary_json(self.judged.to_floor),
            "verdict": self.judged.verdict.text(),
        })
    }
}

fn summary_json(summary: Option<Summary>) -> Value {
    summary.map_or(Value::Null, |s| json!([s.quartile_1, s.median, s.quartile_3]))
}

fn sample_json(record: &Record) -> Value {
    let sample = &record.sample;
    json!({
        "system": record.system,
        "repetition": record.repetition,
        "group": record.group,
        "case": record.case,
        "mounts": record.mounts,
        "phase": record.phase,
        "unit": record.unit.text(),
        "value": sample.value,
        "seconds": sample.seconds,
        "operations": sample.operations,
        "bytes": sample.bytes,
        "cpu_seconds": sample.cpu_seconds,
        "benchmark_cpu_seconds": sample.benchmark_cpu_seconds,
        "machine_cpu_seconds": sample.machine_cpu_seconds,
        "load": record.load,
    })
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
