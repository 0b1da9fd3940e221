//! Structure of a source file: its lines of tests, and whether its bytes are plain.

use super::{Finding, TextFile};

/// Whether the whole file is test code: an integration test, a test module in its own file, a benchmark.
pub fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.contains("/benches/")
        || path.contains("/examples/")
        || name == "tests.rs"
        || name.ends_with("_tests.rs")
}

/// The lines before the first `#[cfg(test)]` item: by the convention of this code, tests come last in a file.
/// `#[cfg(test)]` on anything but a module with a body does not end the code.
pub fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if line.trim() != "#[cfg(test)]" {
            continue;
        }
        let next = lines[index + 1..].iter().map(|l| l.trim()).find(|l| !l.starts_with("#["));
        if next.is_some_and(|l| l.starts_with("mod ") && l.ends_with('{')) {
            return index;
        }
    }
    lines.len()
}

/// Plain bytes: no trailing blanks, a newline at the end, no tabs or non-ASCII characters in Rust.
pub fn check_bytes(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let rust = file.path.ends_with(".rs");
        for (index, line) in file.text.lines().enumerate() {
            if line.ends_with([' ', '\t', '\r']) && !is_generated(&file.path) {
                findings.push(file.finding(index + 1, "blanks at the end of the line; remove them"));
            }
            if rust && line.contains('\t') {
                findings.push(file.finding(index + 1, "a tab; use spaces, or \\t in a string"));
            }
            if let Some(odd) = line.chars().find(|c| rust && !c.is_ascii()) {
                let code = odd as u32;
                findings.push(
                    file.finding(index + 1, format!("not ASCII; write \\u{{{code:x}}} or plain words")),
                );
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            findings.push(file.finding(file.text.lines().count(), "no newline at the end; add one"));
        }
    }
    findings
}

/// Written by a tool whose output is committed as it is.
fn is_generated(path: &str) -> bool {
    path.starts_with("docs/reference/")
        || path.starts_with("bench/")
        || path.ends_with(".proptest-regressions")
        || path.contains("/snapshots/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_ends_where_the_test_module_begins() {
        assert_eq!(code_lines("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!(code_lines("a\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n"), 1);
        assert_eq!(code_lines("a\n#[cfg(test)]\nmod tests;\nb\n"), 4);
        assert_eq!(code_lines("a\n#[cfg(test)]\nfn helper() {}\nb\n"), 4);
    }

    #[test]
    fn odd_bytes_are_named() {
        let text = "fn a() {} \n\tfn b() {}\n// \u{e9}".to_owned();
        let found = check_bytes(&[TextFile { path: "a.rs".into(), text }]);
        let lines: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert_eq!(
            lines,
            [
                "a.rs:1: blanks at the end of the line; remove them",
                "a.rs:2: a tab; use spaces, or \\t in a string",
                "a.rs:3: not ASCII; write \\u{e9} or plain words",
                "a.rs:3: no newline at the end; add one",
            ]
        );
    }
}
