//! The rules of the house that neither rustfmt nor clippy checks.
//!
//! Called by `cargo xtask tidy` and `make test`. Reads the files git knows (and new ones it does not ignore) and
//! prints one line a finding: `file:line: what is wrong; the cure`. Changes nothing.

mod layers;
mod lengths;
mod source;
mod words;

use std::path::Path;

use crate::report::Report;

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// File, relative to the repository.
    pub file: String,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Problem and its cure.
    pub text: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.text),
            line => write!(f, "{}:{line}: {}", self.file, self.text),
        }
    }
}

/// A text file of the repository.
pub struct TextFile {
    /// Path relative to the repository.
    pub path: String,
    /// Contents of the file.
    pub text: String,
}

impl TextFile {
    fn finding(&self, line: usize, text: impl Into<String>) -> Finding {
        Finding { file: self.path.clone(), line, text: text.into() }
    }
}

/// Checks the repository at `root`; every rule is one check.
pub fn run(root: &Path) -> Report {
    let files = match text_files(root) {
        Ok(files) => files,
        Err(why) => return Report::fail("tidy::files", why),
    };
    let long_files = std::fs::read_to_string(root.join("xtask/long-files.txt")).unwrap_or_default();
    let mut report = Report::default();
    for (rule, findings) in [
        ("layers", layers::check(&files)),
        ("lengths", lengths::check(&files, &long_files)),
        ("words", words::check(&files)),
        ("bytes", source::check_bytes(&files)),
    ] {
        let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
        let verdict = if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) };
        report.add(Report::check(&format!("tidy::{rule}"), verdict));
    }
    report
}

/// Endings of the files that are looked at.
const TEXT_ENDINGS: [&str; 8] = ["rs", "toml", "md", "sh", "txt", "py", "yml", "json"];

fn text_files(root: &Path) -> Result<Vec<TextFile>, String> {
    let root_text = root.to_string_lossy();
    let list = ["-C", &root_text, "ls-files", "--cached", "--others", "--exclude-standard"];
    let listing =
        crate::run::capture("git", &list).ok_or("'git ls-files' failed: is this a git work tree?")?;
    let mut files = Vec::new();
    for path in listing.lines() {
        let ending = path.rsplit('.').next().unwrap_or_default();
        let wanted = TEXT_ENDINGS.contains(&ending) || path == "Makefile" || path == ".ci/run";
        // A file may be deleted in the work tree and still be in the index, or not be text at all.
        let Some(bytes) = wanted.then(|| std::fs::read(root.join(path)).ok()).flatten() else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path: path.to_owned(), text });
        }
    }
    Ok(files)
}
