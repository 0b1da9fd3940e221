//! Output of a finished run: a table for people, one JSON document, a page of HTML.

use std::path::{Path, PathBuf};

use brindle_bench::run::{Figure, Run, Unit};
use brindle_bench::{html, stats};
use brindle_types::{Code, Fault, Result};

use crate::exit::Done;
use crate::output::{Output, print_json, table};
use brindle_admin::document;
use brindle_admin::document::json;
use schemars::JsonSchema;
use serde::Serialize;

/// A run of a benchmark.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
pub struct RunView<'a>(&'a Run);
document!(RunView<'_>, "brindle.bench", 1);

/// Where the results go.
#[derive(clap::Args)]
pub struct Reports {
    /// Name of this run in reports: a commit, a peer
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Write the whole run to this file too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots to this file too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Reports {
    /// Refuses files that could not be written when the run is over.
    pub fn check(&self) -> Result<()> {
        for path in self.json.iter().chain(&self.html) {
            let parent =
                path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let there = if path.exists() { path } else { parent };
            rustix::fs::access(there, rustix::fs::Access::WRITE_OK).map_err(|e| {
                Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), &e.into())
            })?;
        }
        Ok(())
    }

    /// Shows a run whose own files have been removed: what prints may end here, with its reader.
    pub fn show(&self, mut run: Run) -> Result<Done> {
        run.label.clone_from(&self.label);
        if let Some(path) = &self.json {
            write(path, &(json(&RunView(&run))? + "\n"))?;
        }
        if let Some(path) = &self.html {
            write(path, &html::page(&run))?;
        }
        crate::cli::end_with_the_reader();
        if self.output.json() {
            print_json(&RunView(&run))?;
        } else {
            println!("{}", text(&run));
        }
        Ok(Done::Ok)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), &e))
}

/// Three digits that matter.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v < 0.1 => format!("{value:.4}"),
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The run as people read it.
pub fn text(run: &Run) -> String {
    let with_x = run.figures.iter().find_map(|f| f.x.as_ref()).map(|x| x.name.to_uppercase());
    let limits = limit_names(run);
    let headings =
        limits.iter().flat_map(|name| [name.to_uppercase(), format!("OF {}", name.to_uppercase())]);
    let mut heading: Vec<String> = vec!["CASE".to_owned()];
    heading.extend(with_x.clone());
    heading.extend(["PHASE", "MEDIAN", "QUARTILES", "UNIT"].map(str::to_owned));
    heading.extend(headings);
    heading.extend(["CPU s/GiB", "CPU us/op"].map(str::to_owned));
    let rows = run.figures.iter().map(|f| row(f, with_x.is_some(), &limits)).collect();
    let headings: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut out = match directories(run) {
        none if none.is_empty() => format!("{}\n\n", run.workload),
        dirs => format!("{} of {dirs}\n\n", run.workload),
    };
    out += &table(&headings, rows);
    out += "\n";
    for note in run.notes.iter().chain(&run.memory_note()) {
        out += "\n";
        out += note;
    }
    out
}

fn directories(run: &Run) -> String {
    let each = run.directories.iter().map(|d| format!("{} ({})", d.path, d.file_system));
    each.collect::<Vec<_>>().join(" and ")
}

/// Names of limits in the order in which they first come.
fn limit_names(run: &Run) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for limit in run.figures.iter().flat_map(|f| &f.limits) {
        if !names.contains(&limit.name) {
            names.push(limit.name.clone());
        }
    }
    names
}

fn row(f: &Figure, with_x: bool, limits: &[String]) -> Vec<String> {
    let mut cells = vec![f.case.clone()];
    if with_x {
        cells.push(f.x.as_ref().map(|x| x.value.to_string()).unwrap_or_default());
    }
    cells.push(f.phase.clone());
    cells.push(figure(f.summary.median));
    cells.push(format!("{} - {}", figure(f.summary.quartile_1), figure(f.summary.quartile_3)));
    cells.push(f.unit.text().to_owned());
    for name in limits {
        match f.limits.iter().find(|limit| limit.name == *name) {
            Some(limit) => cells.extend([figure(limit.summary.median), stats::percent(limit.fraction)]),
            None => cells.extend(["-".to_owned(), "-".to_owned()]),
        }
    }
    let cost = |value: Option<f64>| value.map_or("-".to_owned(), figure);
    let per_gib = f.cpu_seconds_per_gib.filter(|_| f.unit == Unit::MibPerSecond);
    cells.extend([cost(per_gib), cost(f.cpu_microseconds_per_operation)]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_bench::driver::RunClock;
    use brindle_bench::run::{Directory, Sample};

    fn example() -> Run {
        let sample = |seconds| {
            let made = Sample {
                seconds,
                operations: 1024,
                bytes: 1 << 30,
                cpu_seconds: Some(1.5),
                ..Sample::default()
            };
            made.valued(Unit::MibPerSecond)
        };
        let samples = vec![sample(2.0), sample(4.0), sample(1.0)];
        let mut figure = Figure::new("easy: file per process", "write", Unit::MibPerSecond, None, samples)
            .expect("samples");
        figure.limit("disk", &[1024.0]);
        let mut run = RunClock::start().run("ior", vec!["Caches are kept.".to_owned()], vec![figure]);
        run.directories =
            vec![Directory { path: "/mnt/b".to_owned(), file_system: "fuse.brindle".to_owned() }];
        run
    }

    #[test]
    fn a_run_is_a_table_with_its_limits_and_costs() {
        let expected = "\
ior of /mnt/b (fuse.brindle)

CASE                    PHASE  MEDIAN  QUARTILES  UNIT   DISK  OF DISK  CPU s/GiB  CPU us/op
easy: file per process  write  512     384 - 768  MiB/s  1024  50 %     1.50       1465

Caches are kept.";
        assert_eq!(text(&example()), expected);
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.01234, 1.234, 12.34, 1234.5].map(figure), ["0.0123", "1.23", "12.3", "1234"]);
    }

    #[test]
    fn a_run_is_read_back_from_its_document() {
        let text = json(&RunView(&example())).expect("JSON");
        let back: Run = serde_json::from_str(&text).expect("reads");
        assert_eq!(back.figures[0].summary.median, 512.0);
        assert!(text.starts_with("{\n  \"schema\": \"brindle.bench\",\n  \"version\": 1,\n"), "{text}");
    }
}
