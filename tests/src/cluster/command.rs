//! A command with a time limit, whose output goes to files, so that daemons it starts cannot hold a pipe open.

use std::fmt;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(3);
/// Code of a command that was killed because of its limit.
pub const TIMED_OUT: i32 = -1;

/// What a finished command printed.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its command line.
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

/// Runs a program to its end.
///
/// # Panics
/// When it cannot be started.
pub fn run(program: &Path, args: &[&str], limit: Duration) -> Output {
    let mut out = tempfile::tempfile().expect("a temporary file");
    let mut err = tempfile::tempfile().expect("a temporary file");
    let copy = |file: &std::fs::File| Stdio::from(file.try_clone().expect("a second descriptor"));
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(copy(&out)).stderr(copy(&err));
    let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {}: {e}", program.display()));
    let since = Instant::now();
    let code = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            use std::os::unix::process::ExitStatusExt;
            break status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        }
        if since.elapsed() > limit {
            // Its end is not waited for: it may be stuck in the file system under test.
            let _ = child.kill();
            break TIMED_OUT;
        }
        std::thread::sleep(POLL);
    };
    let stdout = text(&mut out);
    let text = format!("{stdout}{}", text(&mut err));
    Output { line: format!("{} {}", program.display(), args.join(" ")), code, stdout, text }
}

fn text(file: &mut std::fs::File) -> String {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.expect("a temporary file can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}
