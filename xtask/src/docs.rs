//! Documents generated from the sources: written by `cargo xtask docs`, compared by `cargo xtask test`.
//!
//! Invariant: a generated document in the repository is exactly what the sources say.

use std::fmt::Write as _;
use std::path::Path;

use brindle_types::Code;

use crate::Session;
use crate::report::Report;
use crate::run::Cmd;

/// Path of the page that is ordered by error code.
const TROUBLESHOOTING: &str = "docs/troubleshooting.md";

/// Longest time for building the binary's tests and writing the reference.
const REFERENCE_SECS_MAX: u64 = 1200;

/// Writes the generated documents.
pub fn write(session: &Session) -> Result<(), String> {
    let path = session.root.join(TROUBLESHOOTING);
    std::fs::write(&path, troubleshooting()).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    println!("wrote {TROUBLESHOOTING}");
    write_reference(session)
}

/// Has the binary's own test write commands, man pages and completions: only the binary knows its options.
fn write_reference(session: &Session) -> Result<(), String> {
    // The whole workspace, as all steps name it: of one package cargo builds what it depends on a second time.
    let args = ["--quiet", "--workspace", "--bin", "brindle", "gen_docs"];
    let cargo = Cmd::new("cargo").arg("test").args(session.profile()).args(args);
    let cargo = cargo.env("BRINDLE_SNAPSHOTS", "update").dir(&session.root).limit_secs(REFERENCE_SECS_MAX);
    let done = cargo.run(&session.logs().join("docs.log"));
    if !done.ok() {
        return Err(done.explain());
    }
    println!("wrote docs/reference");
    Ok(())
}

/// Checks that each document is what the sources say.
pub fn check(session: &Session) -> Report {
    Report::check("docs::troubleshooting", compare(&session.root, TROUBLESHOOTING, &troubleshooting()))
}

fn compare(root: &Path, name: &str, wanted: &str) -> Result<(), String> {
    let found = std::fs::read_to_string(root.join(name)).unwrap_or_default();
    if found == wanted { Ok(()) } else { Err(format!("{name} is not what the sources say; run 'make docs'")) }
}

/// Headings of the number ranges.
const RANGES: &[(u16, &str)] = &[
    (1, "Configuration and command line"),
    (2, "Client I/O"),
    (3, "Metadata (MDS)"),
    (4, "Data (OSS)"),
    (5, "Management and map (MGS)"),
    (6, "HSM and policies"),
    (7, "Burst buffers"),
    (8, "Network and protocol"),
    (9, "Bugs"),
];

fn troubleshooting() -> String {
    let mut page = String::from(
        "# Troubleshooting, by code\n\n\
         Generated from the registry in `crates/brindle-types` by `make docs`; `brindle explain CODE` prints the same.\n\
         A message names what happened, to what, why, and what to do next; this page says what is behind its code.\n",
    );
    for (range, heading) in RANGES {
        let codes: Vec<&Code> = Code::ALL.iter().filter(|code| code.number() / 1000 == *range).collect();
        if codes.is_empty() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## {range}xxx: {heading}\n");
        for code in codes {
            let _ = write!(page, "\n### {code} {}\n\n{}\n", code.title(), code.explanation());
            let _ = writeln!(page, "\nPrograms see: {}.", errno_name(code.errno()));
            if !code.advice().is_empty() {
                let _ = writeln!(page, "Next: {}.", code.advice());
            }
        }
    }
    page
}

/// The name and text a program's user sees, such as `No space left on device (errno 28)`.
fn errno_name(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    format!("{} (errno {errno})", text.split(" (os error").next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_place() {
        let page = troubleshooting();
        for code in Code::ALL {
            assert!(page.contains(&format!("\n### {code} ")), "{code} is missing");
        }
    }
}
