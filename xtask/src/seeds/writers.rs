//! The processes of a checkpoint: `brindle bench ior`, which stops between writing and reading until it is told to go on.
//!
//! Files are opened with O_DIRECT: nodes of the document write far more than they could keep in memory, and these must not keep it either.
//!
//! Its option `--cold-command` runs a command before files are read. Here that makes a file when everything is written, and waits for another one.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use brindle_bench::run::Run;

use super::commands::{self, Commands};
use crate::run;

/// What the benchmark says when its processes are there and begin to write.
const BEGINS: &str = "repetition 1 of";

/// Processes that write a checkpoint, and read it later.
pub struct Writers {
    child: Child,
    /// When they began to write.
    began: Arc<OnceLock<SystemTime>>,
    /// Made when all files are written and synced.
    written: PathBuf,
    /// Whoever makes it lets them read.
    go: PathBuf,
    /// What the benchmark prints.
    out: PathBuf,
    err: PathBuf,
}

impl Writers {
    /// Starts a process for each of the directories, which are one directory in several mounts.
    pub fn start(
        commands: &Commands<'_>,
        control: &Path,
        name: &str,
        dirs: &[PathBuf],
        file_mib: u64,
    ) -> Result<Writers, String> {
        let [written, go] = ["written", "go"].map(|what| control.join(format!("{name}.{what}")));
        let (out, err) = (commands.log(&format!("{name}-out")), commands.log(&format!("{name}-err")));
        let cannot = |path: &Path, e: &std::io::Error| format!("{}: {e}", path.display());
        let hook =
            format!(": > '{}'; until [ -e '{}' ]; do sleep 0.1; done", written.display(), go.display());
        let mut command = commands.process();
        command.args([
            "bench",
            "ior",
            "--case=easy",
            "--no-limit",
            "--repeat=1",
            "--direct",
            "--keep-caches",
            "--progress",
        ]);
        command.args([format!("--size={file_mib}MiB"), format!("--ranks={}", dirs.len())]);
        command.args(["-o", "json", "--cold-command", &hook]);
        dirs.iter().for_each(|dir| _ = command.arg("--dir").arg(dir));
        let to = std::fs::File::create(&out).map_err(|e| cannot(&out, &e))?;
        command.stdout(to).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|e| format!("cannot run brindle bench: {e}"))?;
        let began = Arc::new(OnceLock::new());
        if let Some(said) = child.stderr.take() {
            let (began, err) = (began.clone(), err.clone());
            std::thread::spawn(move || {
                let mut all = String::new();
                for line in BufReader::new(said).lines().map_while(Result::ok) {
                    if line.contains(BEGINS) {
                        began.get_or_init(SystemTime::now);
                    }
                    all += &line;
                    all.push('\n');
                }
                // It is only shown beside a failure.
                let _ = std::fs::write(err, all);
            });
        }
        Ok(Writers { child, began, written, go, out, err })
    }

    /// When they began to write and when everything was written and synced, if it is.
    pub fn written(&mut self) -> Result<Option<(SystemTime, SystemTime)>, String> {
        if let Ok(made) = std::fs::metadata(&self.written).and_then(|meta| meta.modified()) {
            let began = self.began.get().ok_or("brindle bench did not say when it began to write")?;
            return Ok(Some((*began, made)));
        }
        match self.child.try_wait() {
            Ok(None) => Ok(None),
            Ok(Some(status)) => Err(self.failure(&status.to_string())),
            Err(e) => Err(format!("brindle bench: {e}")),
        }
    }

    /// Lets them read what they wrote.
    pub fn go(&self) -> Result<(), String> {
        std::fs::write(&self.go, "").map_err(|e| format!("{}: {e}", self.go.display()))
    }

    /// What was measured, if they have ended.
    pub fn ended(&mut self) -> Result<Option<Run>, String> {
        match self.child.try_wait().map_err(|e| format!("brindle bench: {e}"))? {
            None => Ok(None),
            Some(status) if status.success() => {
                let said =
                    std::fs::read_to_string(&self.out).map_err(|e| format!("{}: {e}", self.out.display()))?;
                commands::run_of(&said).map(Some)
            }
            Some(status) => Err(self.failure(&status.to_string())),
        }
    }

    fn failure(&self, status: &str) -> String {
        let said =
            [&self.out, &self.err].map(|path| std::fs::read_to_string(path).unwrap_or_default()).concat();
        format!("brindle bench has ended ({status}):\n{}", run::tail(&said, run::TAIL_LINES))
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        // Their files go with the cluster.
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        if !has_ended && !run::kill_group(&mut self.child) {
            eprintln!("brindle bench did not go away when killed (process {})", self.child.id());
        }
    }
}
