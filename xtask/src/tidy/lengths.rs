//! A file has at most 800 lines that are not tests; exceptions are listed by name with a reason.

use std::collections::BTreeMap;

use super::source::{code_lines, is_test_file};
use super::{Finding, TextFile};

/// Lines of code a file may have.
const LINES_MAX: usize = 800;

/// `long_files`: the exceptions, one `PATH  REASON` a line.
pub fn check(files: &[TextFile], long_files: &str) -> Vec<Finding> {
    let list = "xtask/long-files.txt";
    let mut findings = Vec::new();
    let mut excused: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, line) in
        long_files.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#'))
    {
        match line.trim().split_once(char::is_whitespace) {
            Some((path, _)) => drop(excused.insert(path, index + 1)),
            None => findings.push(Finding {
                file: list.into(),
                line: index + 1,
                text: format!("'{}' has no reason; add one after the path", line.trim()),
            }),
        }
    }
    for file in files.iter().filter(|f| f.path.ends_with(".rs") && !is_test_file(&f.path)) {
        let lines = code_lines(&file.text);
        let excuse = excused.remove(file.path.as_str());
        if lines > LINES_MAX && excuse.is_none() {
            let text = format!("{lines} lines of code, {LINES_MAX} allowed; split it, or list it in {list}");
            findings.push(file.finding(0, text));
        } else if let (true, Some(line)) = (lines <= LINES_MAX, excuse) {
            let text = format!("'{}' has only {lines} lines; remove this line", file.path);
            findings.push(Finding { file: list.into(), line, text });
        }
    }
    findings.extend(excused.into_iter().map(|(path, line)| {
        let text = format!("'{path}' does not exist; remove this line");
        Finding { file: list.into(), line, text }
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, lines: usize) -> TextFile {
        TextFile { path: path.into(), text: "x\n".repeat(lines) }
    }

    #[test]
    fn long_files_need_a_reason() {
        let files = [file("a.rs", 801), file("b.rs", 800), file("c.rs", 900), file("tests/d.rs", 5000)];
        let found: Vec<String> = check(&files, "c.rs one table\n").iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            ["a.rs: 801 lines of code, 800 allowed; split it, or list it in xtask/long-files.txt"]
        );
    }

    #[test]
    fn the_list_itself_is_kept_true() {
        let found = check(&[file("b.rs", 10)], "# files\nb.rs was long\ngone.rs why\nc.rs\n");
        let found: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            [
                "xtask/long-files.txt:4: 'c.rs' has no reason; add one after the path",
                "xtask/long-files.txt:2: 'b.rs' has only 10 lines; remove this line",
                "xtask/long-files.txt:3: 'gone.rs' does not exist; remove this line",
            ]
        );
    }
}
