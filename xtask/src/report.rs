//! Findings of a step: the names that passed, failed and were skipped, and the one line at the end of a run.
//!
//! Called by every step and suite. Invariant: no finding is dropped; a skip that `tests/allowed-skips` does not
//! name with a reason counts as a failure.

use std::collections::BTreeMap;
use std::path::Path;

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Full name, `step::case`.
    pub name: String,
    /// Details for a person.
    pub detail: String,
}

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of checks that passed.
    pub passed: u64,
    /// Checks that failed.
    pub failed: Vec<Failure>,
    /// Names of checks that were skipped.
    pub skipped: Vec<String>,
}

impl Report {
    /// A report with one check that passed.
    pub fn pass() -> Report {
        Report { passed: 1, ..Report::default() }
    }

    /// A report with one check that failed.
    pub fn fail(name: impl Into<String>, detail: impl Into<String>) -> Report {
        let mut report = Report::default();
        report.add_failure(name, detail);
        report
    }

    /// Passed, or failed with `detail`.
    pub fn check(name: &str, result: Result<(), String>) -> Report {
        match result {
            Ok(()) => Report::pass(),
            Err(detail) => Report::fail(name, detail),
        }
    }

    /// Adds a failed check.
    pub fn add_failure(&mut self, name: impl Into<String>, detail: impl Into<String>) {
        self.failed.push(Failure { name: name.into(), detail: detail.into() });
    }

    /// Adds another report's findings.
    pub fn add(&mut self, other: Report) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }

    /// Puts `prefix::` before every name.
    pub fn prefixed(mut self, prefix: &str) -> Report {
        for failure in &mut self.failed {
            failure.name = format!("{prefix}::{}", failure.name);
        }
        for skipped in &mut self.skipped {
            *skipped = format!("{prefix}::{skipped}");
        }
        self
    }

    /// Turns every skip that is not allowed into a failure.
    pub fn enforce(mut self, allowed: &AllowedSkips) -> Report {
        let (fine, refused) = self.skipped.into_iter().partition(|name| allowed.reason(name).is_some());
        self.skipped = fine;
        for name in refused {
            let cure = "it was skipped, and tests/allowed-skips does not name it with a reason";
            self.failed.push(Failure { name, detail: cure.to_owned() });
        }
        self
    }

    /// The last line of a run.
    pub fn summary(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped.len())
    }
}

/// The skips that are known and have a reason: `tests/allowed-skips`, one `NAME  REASON` a line.
#[derive(Debug, Default)]
pub struct AllowedSkips {
    reasons: BTreeMap<String, String>,
}

impl AllowedSkips {
    /// Reads `root/tests/allowed-skips`.
    pub fn load(root: &Path) -> Result<AllowedSkips, String> {
        let path = root.join("tests/allowed-skips");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        AllowedSkips::parse(&text)
    }

    /// Parses the file; a name without a reason or given twice is refused.
    pub fn parse(text: &str) -> Result<AllowedSkips, String> {
        let mut reasons = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = format!("tests/allowed-skips:{}", index + 1);
            let (name, reason) =
                line.split_once(char::is_whitespace).ok_or(format!("{at}: '{line}' has no reason"))?;
            if reasons.insert(name.to_owned(), reason.trim().to_owned()).is_some() {
                return Err(format!("{at}: '{name}' is listed twice"));
            }
        }
        Ok(AllowedSkips { reasons })
    }

    /// Reason why `name` may be skipped, if it may.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.reasons.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlisted_skip_is_a_failure() {
        let allowed = AllowedSkips::parse("# why\nsuite::a  the kernel has no such call\n").unwrap();
        let report = Report { passed: 3, failed: vec![], skipped: vec!["a".into(), "b".into()] };
        let report = report.prefixed("suite").enforce(&allowed);
        assert_eq!(report.summary(), "3 passed, 1 failed, 1 skipped");
        assert_eq!(report.failed[0].name, "suite::b");
    }

    #[test]
    fn a_skip_needs_a_reason() {
        let err = AllowedSkips::parse("suite::a\n").unwrap_err();
        assert_eq!(err, "tests/allowed-skips:1: 'suite::a' has no reason");
        let err = AllowedSkips::parse("a x\na y\n").unwrap_err();
        assert_eq!(err, "tests/allowed-skips:2: 'a' is listed twice");
    }
}
