//! Parses the output of `cargo test` into names and counts.
//!
//! Called by the test step and by suites whose runner prints in libtest's manner. Invariant: a test that was started
//! and whose result is missing (the process died) is a failure, never a silent gap.

use crate::report::Report;

/// Reads the merged standard output and error of `cargo test`, or of one test binary.
pub fn parse(output: &str) -> Report {
    let mut report = Report::default();
    let mut binary = String::new();
    let mut announced = 0u64;
    let mut seen = 0u64;
    for line in output.lines() {
        let line = line.trim_end();
        if let Some(name) = binary_of(line) {
            note_gap(&mut report, &binary, announced, seen);
            (binary, announced, seen) = (name, 0, 0);
        } else if let Some(count) = line.strip_prefix("running ").and_then(|rest| rest.split(' ').next()) {
            note_gap(&mut report, &binary, announced, seen);
            (announced, seen) = (count.parse().unwrap_or(0), 0);
        } else if let Some((name, verdict)) = verdict_of(line) {
            seen += 1;
            let full = if binary.is_empty() { name.to_owned() } else { format!("{binary}::{name}") };
            match verdict {
                Verdict::Passed => report.passed += 1,
                Verdict::Failed => report.add_failure(&full, details(output, name)),
                Verdict::Skipped => report.skipped.push(full),
            }
        }
    }
    note_gap(&mut report, &binary, announced, seen);
    report
}

fn note_gap(report: &mut Report, binary: &str, announced: u64, seen: u64) {
    if announced > seen {
        let detail = format!("{announced} tests were started and {seen} reported; the test process died");
        report.add_failure(format!("{binary}::(died)"), detail);
    }
}

/// `     Running unittests src/lib.rs (target/release/deps/brindle_wire-0123)` -> `brindle_wire`; integration tests
/// are named by their file, doc tests by their crate.
fn binary_of(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(krate) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{krate}::doc"));
    }
    let path = line.strip_prefix("Running ")?.split_once('(')?.1.strip_suffix(')')?;
    let file = path.rsplit('/').next()?;
    Some(file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned())
}

enum Verdict {
    Passed,
    Failed,
    Skipped,
}

fn verdict_of(line: &str) -> Option<(&str, Verdict)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.trim_end_matches(" - should panic");
    // Output of a test past the capture may stand between the dots and the verdict.
    let word = verdict.trim();
    if word == "ok" || word.ends_with(" ok") || word.starts_with("ok ") {
        Some((name, Verdict::Passed))
    } else if word.starts_with("FAILED") || word.ends_with("FAILED") {
        Some((name, Verdict::Failed))
    } else if word.starts_with("ignored") || word.starts_with("skipped") {
        Some((name, Verdict::Skipped))
    } else {
        None
    }
}

/// The captured output of a failed test: the `---- NAME stdout ----` part, without the backtrace of a panic, behind which
/// nobody would find what was wrong.
fn details(output: &str, name: &str) -> String {
    let head = format!("---- {name} stdout ----");
    let Some(start) = output.find(&head) else { return "see the log".to_owned() };
    let body = &output[start + head.len()..];
    let end =
        ["\n---- ", "\nfailures:\n"].iter().filter_map(|mark| body.find(mark)).min().unwrap_or(body.len());
    let told: Vec<&str> = without_backtraces(&body[..end]).collect();
    crate::run::tail(told.join("\n").trim(), crate::run::TAIL_LINES)
}

/// The lines from `stack backtrace:` to the note under it go.
fn without_backtraces(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let line = line.trim_start();
        let ends = inside && line.starts_with("note: ");
        inside = !ends && (inside || line == "stack backtrace:");
        !inside && !ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
     Running unittests src/lib.rs (target/release/deps/brindle_wire-00ff)

running 3 tests
test codec::round_trip ... ok
test codec::golden ... FAILED
test slow ... ignored, an hour

failures:

---- codec::golden stdout ----
thread 'codec::golden' panicked at src/codec.rs:1:
left != right
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/0/library/std/src/panicking.rs:1:5
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.

failures:
    codec::golden

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests brindle_wire

running 1 test
test crates/brindle-wire/src/lib.rs - Thing (line 3) ... ok
";

    #[test]
    fn counts_and_names() {
        let report = parse(SAMPLE);
        assert_eq!(report.summary(), "2 passed, 1 failed, 1 skipped");
        assert_eq!(report.failed[0].name, "brindle_wire::codec::golden");
        assert!(report.failed[0].detail.ends_with("left != right"), "{}", report.failed[0].detail);
        assert_eq!(report.skipped, ["brindle_wire::slow"]);
    }

    #[test]
    fn a_binary_that_dies_half_way_is_a_failure() {
        let report = parse("Running unittests src/lib.rs (x/deps/a-1)\n\nrunning 2 tests\ntest one ... ok\n");
        assert_eq!(report.summary(), "1 passed, 1 failed, 0 skipped");
        assert_eq!(report.failed[0].name, "a::(died)");
    }
}
