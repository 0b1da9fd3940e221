//! Findings, for people and for programs.

use std::io::IsTerminal;
use std::time::Duration;

use brindle_types::{Fault, Result};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::output::{FaultView, Output, print_json};

/// How often the progress line moves.
const TICK: Duration = Duration::from_millis(200);

/// Report of a check.
pub struct Report {
    /// Name of each target that was checked.
    pub targets: Vec<String>,
    /// Faults that must not be, with their targets.
    pub findings: Vec<(String, Fault)>,
    /// Traces that crashes leave by right.
    pub notes: Vec<(String, Fault)>,
    /// Regular files seen.
    pub files: u64,
    /// Objects seen.
    pub objects: u64,
    /// Bytes of objects seen.
    pub bytes: u64,
    progress: ProgressBar,
}

#[derive(Serialize)]
struct View {
    clean: bool,
    targets: Vec<String>,
    files: u64,
    objects: u64,
    bytes: u64,
    findings: Vec<Entry>,
    notes: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    target: String,
    #[serde(flatten)]
    fault: FaultView,
}

fn entries(list: &[(String, Fault)]) -> Vec<Entry> {
    let entry = |(target, fault): &(String, Fault)| Entry { target: target.clone(), fault: fault.into() };
    list.iter().map(entry).collect()
}

impl Report {
    /// Nothing was looked at yet.
    pub fn new() -> Report {
        let progress =
            if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        progress.enable_steady_tick(TICK);
        Report {
            targets: Vec::new(),
            findings: Vec::new(),
            notes: Vec::new(),
            files: 0,
            objects: 0,
            bytes: 0,
            progress,
        }
    }

    /// Says what is being checked.
    pub fn checking(&mut self, target: &str) {
        self.targets.push(target.to_owned());
        self.progress.set_message(format!("checking {target}"));
    }

    /// Something that must not be.
    pub fn finding(&mut self, target: &str, fault: Fault) {
        self.findings.push((target.to_owned(), fault));
    }

    /// Something to know.
    pub fn note(&mut self, target: &str, fault: Fault) {
        self.notes.push((target.to_owned(), fault));
    }

    /// Counts an object.
    pub fn object(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Prints everything.
    pub fn print(&self, output: Output) -> Result<()> {
        self.progress.finish_and_clear();
        if output.json() {
            let view = View {
                clean: self.findings.is_empty(),
                targets: self.targets.clone(),
                files: self.files,
                objects: self.objects,
                bytes: self.bytes,
                findings: entries(&self.findings),
                notes: entries(&self.notes),
            };
            return print_json("brindle.fsck", 1, &view);
        }
        for (target, fault) in &self.findings {
            println!("finding: {target}: {fault}");
        }
        for (target, fault) in &self.notes {
            println!("note: {target}: {fault}");
        }
        let verdict = match self.findings.len() {
            0 => "clean".to_owned(),
            1 => "1 finding".to_owned(),
            n => format!("{n} findings"),
        };
        let (targets, files, objects) = (self.targets.len(), self.files, self.objects);
        let bytes = brindle_types::units::format_bytes(self.bytes);
        println!(
            "{verdict} ({} notes): {targets} targets, {files} files, {objects} objects with {bytes}; nothing was changed",
            self.notes.len()
        );
        Ok(())
    }
}
