//! Searching a tree: find(1) and du(1) on the mount beside commands that ask the metadata server.
//!
//! The caller names pairs of commands; both of a pair run in turn within each repetition, and have to print the same.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Files in one directory of the tree.
const FILES_PER_DIR: u32 = 1000;
/// Every so many files one has this many bytes; the others are empty.
const LARGE: (u32, usize) = (100, 6000);

/// Programs to run, and the size of the tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchOptions {
    /// Files of the tree.
    pub files: u32,
    /// Repetitions of each command.
    pub repetitions: u32,
}

/// Two commands that do the same; the directory of the tree is put in for the word `{}`.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Name of the task.
    pub name: &'static str,
    /// Walks the mount.
    pub walk: Vec<OsString>,
    /// Asks the metadata server.
    pub ask: Vec<OsString>,
}

/// Figures of one pair, in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchRow {
    /// Name of the task.
    pub name: String,
    /// Lines that both print.
    pub lines: u64,
    /// Median of walking.
    pub walk_seconds: f64,
    /// Median of asking.
    pub ask_seconds: f64,
    /// Ratio of the times: walking over asking.
    pub ratio: f64,
}

/// All figures. Schema `brindle-bench-search/1`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchReport {
    /// `brindle-bench-search/1`.
    pub schema: String,
    /// Options of the run.
    pub options: SearchOptions,
    /// The figures.
    pub rows: Vec<SearchRow>,
}

/// Makes a tree below `directory`, runs the pairs on it and removes it; `progress` is told what is done.
///
/// # Errors
/// The first system call or command that fails, and commands of a pair that do not agree.
pub fn search(
    directory: &Path,
    options: &SearchOptions,
    pairs: &[Pair],
    progress: &mut dyn FnMut(&str),
) -> io::Result<SearchReport> {
    let work = directory.join(format!("brindle-bench-{}", std::process::id()));
    std::fs::create_dir(&work)?;
    let rows =
        make_tree(&work, options.files, progress).and_then(|()| contest(&work, options, pairs, progress));
    progress("the tree is removed");
    let removed = std::fs::remove_dir_all(&work);
    let rows = rows?;
    removed?;
    Ok(SearchReport { schema: "brindle-bench-search/1".to_owned(), options: options.clone(), rows })
}

fn make_tree(work: &Path, files: u32, progress: &mut dyn FnMut(&str)) -> io::Result<()> {
    let mut dir = PathBuf::new();
    for number in 0..files {
        if number % FILES_PER_DIR == 0 {
            progress(&format!("{number} of {files} files are made"));
            dir = work.join(format!("dir.{}", number / FILES_PER_DIR));
            std::fs::create_dir(&dir)?;
        }
        let mut file = File::create_new(dir.join(format!("file.{number}")))?;
        if number % LARGE.0 == 0 {
            file.write_all(&vec![b'x'; LARGE.1])?;
        }
    }
    File::open(work)?.sync_all()
}

fn contest(
    work: &Path,
    options: &SearchOptions,
    pairs: &[Pair],
    progress: &mut dyn FnMut(&str),
) -> io::Result<Vec<SearchRow>> {
    let mut rows = Vec::new();
    for pair in pairs {
        progress(pair.name);
        let (mut walks, mut asks, mut lines) = (Vec::new(), Vec::new(), 0);
        for _ in 0..options.repetitions {
            let (seconds, walked) = timed(&pair.walk, work)?;
            walks.push(seconds);
            let (seconds, asked) = timed(&pair.ask, work)?;
            asks.push(seconds);
            if walked != asked {
                let what =
                    format!("{}: {} lines and {} lines, not the same", pair.name, walked.len(), asked.len());
                return Err(io::Error::other(what));
            }
            lines = walked.len() as u64;
        }
        let (walk_seconds, ask_seconds) = (median(walks), median(asks));
        let ratio = walk_seconds / ask_seconds;
        rows.push(SearchRow { name: pair.name.to_owned(), lines, walk_seconds, ask_seconds, ratio });
    }
    Ok(rows)
}

/// Seconds that a command takes, and its lines in order of their text.
fn timed(words: &[OsString], work: &Path) -> io::Result<(f64, Vec<Vec<u8>>)> {
    let put = |word: &OsString| if word == "{}" { work.as_os_str().to_owned() } else { word.clone() };
    let words: Vec<OsString> = words.iter().map(put).collect();
    let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("an empty command"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit());
    let start = Instant::now();
    let output = command.stdout(Stdio::piped()).spawn()?.wait_with_output()?;
    let seconds = start.elapsed().as_secs_f64();
    if !output.status.success() {
        return Err(io::Error::other(format!("{} ended with {}", program.display(), output.status)));
    }
    let mut lines: Vec<Vec<u8>> = output.stdout.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    lines.retain(|line| !line.is_empty());
    lines.sort_unstable();
    Ok((seconds, lines))
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn pairs_are_timed_compared_and_leave_nothing_behind() {
        let dir = std::env::temp_dir().join(format!("brindle-bench-search-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("temporary directory");
        let options = SearchOptions { files: 2100, repetitions: 2 };
        let pair = |ask: &str| Pair { name: "files", walk: words("find {} -type f"), ask: words(ask) };
        let good = search(&dir, &options, &[pair("find {} ! -type d")], &mut |_| {}).expect("they agree");
        assert_eq!(good.rows[0].lines, 2100);
        assert!(good.rows[0].ratio > 0.0);
        let bad = search(&dir, &options, &[pair("find {} -type d")], &mut |_| {}).expect_err("they differ");
        assert_eq!(bad.to_string(), "files: 2100 lines and 4 lines, not the same");
        assert_eq!(std::fs::read_dir(&dir).expect("readable").count(), 0);
        std::fs::remove_dir(&dir).expect("empty");
    }
}
