//! Calls and words that do not belong in their file: clocks and disks outside their seams, printing outside the
//! binary, unfinished work, paths of one machine.

use super::source::{code_lines, is_test_file};
use super::{Finding, TextFile};

/// A banned word.
struct Rule {
    word: &'static str,
    cure: &'static str,
    /// Path prefixes where it is fine.
    except: &'static [&'static str],
    /// Whether test code is bound too.
    in_tests: bool,
}

/// Places that may choose real seams: the seams themselves, the binary, processes of a host, measurements
/// from outside.
const OUTSIDE: &[&str] = &[
    "crates/brindle-stdx/",
    "crates/brindle/",
    "crates/brindle-host/",
    "crates/brindle-manager/",
    "crates/brindle-bench/",
    "xtask/",
];
/// Places that may use real time: those above, and the HTTP server of the metrics, which only real processes
/// have.
const REAL_TIME: &[&str] = &[
    "crates/brindle-stdx/",
    "crates/brindle/",
    "crates/brindle-host/",
    "crates/brindle-manager/",
    "crates/brindle-bench/",
    "xtask/",
    "crates/brindle-telemetry/src/bounded.rs",
];
/// Places whose files are not data of Brindle: those above, archives in directories of other file systems,
/// and files whose loss in a power cut does no harm (sockets, logs).
const NOT_DATA: &[&str] = &[
    "crates/brindle-stdx/",
    "crates/brindle/",
    "crates/brindle-host/",
    "crates/brindle-manager/",
    "crates/brindle-bench/",
    "crates/brindle-hsm/",
    "xtask/",
    "crates/brindle-telemetry/src/log.rs",
    "crates/brindle-client/src/control.rs",
    "crates/brindle-fuse/src/fs.rs",
];
/// Places that may print.
const PRINTERS: &[&str] = &["crates/brindle/", "xtask/"];

const RULES: &[Rule] = &[
    Rule { word: "Instant::now(", cure: "take time from the Clock seam", except: OUTSIDE, in_tests: false },
    Rule {
        word: "SystemTime::now(",
        cure: "take time from the Clock seam",
        except: OUTSIDE,
        in_tests: false,
    },
    Rule { word: "tokio::spawn(", cure: "spawn through the Spawn seam", except: OUTSIDE, in_tests: false },
    Rule { word: "tokio::time::", cure: "sleep through the Clock seam", except: REAL_TIME, in_tests: false },
    Rule { word: "std::fs::", cure: "go through the Disk seam", except: NOT_DATA, in_tests: false },
    Rule {
        word: "println!(",
        cure: "only the binary prints; log or return it",
        except: PRINTERS,
        in_tests: false,
    },
    Rule { word: concat!("TO", "DO"), cure: "finish it, or write an issue", except: &[], in_tests: true },
    Rule { word: concat!("FIX", "ME"), cure: "mend it, or write an issue", except: &[], in_tests: true },
    Rule { word: concat!("to", "do!("), cure: "finish it", except: &[], in_tests: true },
    Rule { word: concat!("unimplemented", "!("), cure: "finish it", except: &[], in_tests: true },
    Rule {
        word: concat!("/work/", "main"),
        cure: "no path of one machine; make it relative",
        except: &[],
        in_tests: true,
    },
    Rule { word: concat!("/work/", "shared"), cure: "no path of one machine", except: &[], in_tests: true },
    Rule { word: concat!("/root", "/."), cure: "no path of one machine", except: &[], in_tests: true },
];

/// Functions this long are clippy's business; an exception must say why.
const ALLOW_LONG: &str = concat!("allow(clippy::too_many", "_lines");

/// Checks every file.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &TextFile) -> Vec<Finding> {
    let rust = file.path.ends_with(".rs");
    let test_file = is_test_file(&file.path);
    let code = if test_file { 0 } else { code_lines(&file.text) };
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let in_tests = index >= code;
        for rule in RULES {
            let bound = rule.in_tests || (rust && !in_tests);
            let excepted = rule.except.iter().any(|prefix| file.path.starts_with(prefix));
            if bound && !excepted && contains_word(line, rule.word) && !is_comment(line, rule) {
                let text =
                    format!("'{}' does not belong here; {}", rule.word.trim_end_matches('('), rule.cure);
                findings.push(file.finding(index + 1, text));
            }
        }
        if rust && line.contains(ALLOW_LONG) && !line.contains("reason = \"") {
            findings.push(
                file.finding(index + 1, "a long function is allowed without a reason; add reason = \"...\""),
            );
        }
    }
    findings
}

/// `word` not in the middle of a longer identifier (so `eprintln!(` is found by its own rule, `Autodoc` by none).
fn contains_word(line: &str, word: &str) -> bool {
    let starts = line.match_indices(word).map(|(at, _)| at);
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut whole = starts.filter(|&at| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let open_end = word.ends_with(|c| !letter(c));
        !before.is_some_and(|c| letter(c) && c != 'e') && (open_end || !after.is_some_and(letter))
    });
    whole.next().is_some()
}

/// Prose may name a call; it may not hold unfinished work.
fn is_comment(line: &str, rule: &Rule) -> bool {
    !rule.in_tests && line.trim_start().starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&[TextFile { path: path.into(), text: text.into() }]).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn seams_are_kept() {
        let text = "fn a() { let t = Instant::now(); }\n// Instant::now() in prose\n";
        let cure = "crates/brindle-mds/src/a.rs:1: 'Instant::now' does not belong here; take time from the Clock seam";
        assert_eq!(found("crates/brindle-mds/src/a.rs", text), [cure]);
        assert_eq!(found("crates/brindle-stdx/src/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn tests_may_use_the_real_world_but_leave_nothing_unfinished() {
        let text = format!(
            "#[cfg(test)]\nmod tests {{\nstd::fs::read(\"x\");\n// {}: more\n}}\n",
            concat!("TO", "DO")
        );
        let lines = found("crates/brindle-kv/src/a.rs", &text);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("crates/brindle-kv/src/a.rs:4:"));
    }

    #[test]
    fn printing_belongs_to_the_binary() {
        assert_eq!(found("crates/brindle-oss/src/a.rs", "eprintln!(\"x\");\nprintln!();\n").len(), 2);
        assert_eq!(found("crates/brindle/src/a.rs", "println!();\n").len(), 0);
    }

    #[test]
    fn long_functions_say_why() {
        let text = format!("#[{})]\n#[{}, reason = \"one table\")]\n", ALLOW_LONG, ALLOW_LONG);
        assert_eq!(found("crates/brindle/src/a.rs", &text).len(), 1);
    }

    #[test]
    fn words_inside_words_are_fine() {
        assert!(contains_word("x TOKEN y", "TOKEN"));
        assert!(!contains_word("BROKEN_TOKENS", "TOKEN"));
        assert!(contains_word("eprintln!(\"a\")", "println!("));
    }
}
