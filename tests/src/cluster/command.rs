//! A command with a time limit, whose output goes to files, so that daemons it starts cannot hold a pipe open.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Exit code of timeout(1) when it killed the command.
const KILLED: i32 = 137;
/// Code of a command that was killed because of its limit.
pub const TIMED_OUT: i32 = -1;

/// Output of a finished command.
#[derive(Clone, Debug)]
pub struct Output {
    /// Command line.
    pub line: String,
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard output, then standard error.
    pub text: String,
}

impl Output {
    /// Exit code 0.
    pub fn ok(&self) -> bool {
        self.code == 0
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how =
            if self.code == TIMED_OUT { "killed at its limit".to_owned() } else { self.code.to_string() };
        write!(f, "{}\n(exit {how})\n{}", self.line, self.text)
    }
}

/// Starts commands for a test whose threads have files of the file system open.
///
/// A process made by fork has copies of these descriptors until it becomes the command, and closing a copy asks the
/// file system (FLUSH), which may wait for the very server that the command is to start. Commands are therefore
/// children of a shell that was started before any file was opened.
pub struct Starter {
    shell: Child,
    orders: Option<ChildStdin>,
    ends: BufReader<ChildStdout>,
    files: tempfile::TempDir,
}

impl Starter {
    /// Starts the shell.
    ///
    /// # Panics
    /// When that fails.
    pub fn new() -> Starter {
        let mut command = Command::new("sh");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().expect("sh can be started");
        let orders = shell.stdin.take();
        let ends = BufReader::new(shell.stdout.take().expect("its output is a pipe"));
        let files = tempfile::tempdir().expect("a directory for what commands print");
        Starter { shell, orders, ends, files }
    }

    /// Runs a program to its end, or kills it at the limit.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(&mut self, program: &Path, args: &[&str], limit: Duration) -> Output {
        let line = format!("{} {}", program.display(), args.join(" "));
        let words: Vec<String> = std::iter::once(program.to_str().expect("paths of tests are text"))
            .chain(args.iter().copied())
            .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
            .collect();
        let (out, err) = (self.files.path().join("out"), self.files.path().join("err"));
        let order = format!(
            "timeout -s KILL {} {} </dev/null >'{}' 2>'{}'; echo $?\n",
            limit.as_secs(),
            words.join(" "),
            out.display(),
            err.display()
        );
        self.orders
            .as_mut()
            .expect("open until it is dropped")
            .write_all(order.as_bytes())
            .expect("sh lives");
        let mut end = String::new();
        self.ends.read_line(&mut end).expect("sh says how it ended");
        let code = match end.trim().parse() {
            Ok(KILLED) => TIMED_OUT,
            Ok(code) => code,
            Err(_) => panic!("sh ended instead of running {line}"),
        };
        let stdout = text(&out);
        let text = format!("{stdout}{}", text(&err));
        Output { line, code, stdout, text }
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.orders = None;
        // However it ends, it has ended.
        let _ = self.shell.wait();
    }
}

fn text(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).expect("what a command printed can be read")).into_owned()
}
