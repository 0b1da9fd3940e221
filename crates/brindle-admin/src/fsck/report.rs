//! Findings, for people and for programs.

use brindle_types::Fault;
use schemars::JsonSchema;
use serde::Serialize;

use crate::document::FaultView;

/// Report of a check.
#[derive(Debug, Default)]
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
}

/// The report as a document has it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReportView {
    /// Whether nothing was found that must not be.
    pub clean: bool,
    /// Full names of the targets that were checked.
    pub targets: Vec<String>,
    /// Regular files seen.
    pub files: u64,
    /// Objects seen.
    pub objects: u64,
    /// Bytes of objects seen.
    pub bytes: u64,
    /// Things that must not be.
    pub findings: Vec<Entry>,
    /// Traces that crashes leave by right.
    pub notes: Vec<Entry>,
}
document!(ReportView, "brindle.fsck", 1);

/// A finding or a note, and the target that it is about.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Entry {
    target: String,
    #[serde(flatten)]
    fault: FaultView,
}

fn entries(list: &[(String, Fault)]) -> Vec<Entry> {
    let entry = |(target, fault): &(String, Fault)| Entry { target: target.clone(), fault: fault.into() };
    list.iter().map(entry).collect()
}

impl Report {
    /// Records a broken invariant.
    pub(crate) fn finding(&mut self, target: &str, fault: Fault) {
        self.findings.push((target.to_owned(), fault));
    }

    /// Records a remark: nothing is wrong.
    pub(crate) fn note(&mut self, target: &str, fault: Fault) {
        self.notes.push((target.to_owned(), fault));
    }

    /// Counts an object.
    pub(crate) fn object(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The report as a document has it.
    pub fn view(&self) -> ReportView {
        ReportView {
            clean: self.findings.is_empty(),
            targets: self.targets.clone(),
            files: self.files,
            objects: self.objects,
            bytes: self.bytes,
            findings: entries(&self.findings),
            notes: entries(&self.notes),
        }
    }
}
