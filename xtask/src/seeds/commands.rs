//! Commands of the program that is measured, and clusters that they make.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use brindle_bench::run::Run;
use serde_json::Value;

use crate::Session;
use crate::run::Cmd;

/// Longest time of one command: the slowest load moves a few seconds' worth of bytes over one link.
const COMMAND_SECS_MAX: u64 = 900;

/// Commands of the program that is measured.
pub struct Commands<'a> {
    session: &'a Session,
    program: PathBuf,
    logs: PathBuf,
    /// Environment of every command, and of the servers that it starts.
    env: Vec<(&'static str, String)>,
}

impl<'a> Commands<'a> {
    /// Those of a place, with their logs.
    pub fn new(session: &'a Session, place: &str, program: &Path) -> Commands<'a> {
        let logs = session.logs().join("seeds").join(place);
        Commands { session, program: program.to_owned(), logs, env: Vec::new() }
    }

    /// The same with a variable in the environment.
    pub fn with_env(mut self, name: &'static str, value: impl Into<String>) -> Commands<'a> {
        self.env.push((name, value.into()));
        self
    }

    /// Directory of what a place makes.
    pub fn place_dir(&self, place: &str) -> PathBuf {
        self.session.root.join("target").join(format!("seeds-{place}"))
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The log of a command.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Runs the program; what it prints. Commands that run at once have logs of their own.
    pub fn brindle(&self, words: &[&str], log: &str) -> Result<String, String> {
        self.finished(self.command(words), log)
    }

    fn command(&self, words: &[&str]) -> Cmd {
        let command =
            Cmd::new(&self.program).args(words).dir(&self.session.root).limit_secs(COMMAND_SECS_MAX);
        self.env.iter().fold(command, |command, (name, value)| command.env(name, value))
    }

    fn finished(&self, command: Cmd, log: &str) -> Result<String, String> {
        let done = command.run(&self.log(log));
        if done.ok() { Ok(done.output()) } else { Err(done.explain()) }
    }

    /// The JSON document that a command prints.
    pub fn json(&self, words: &[&str], log: &str) -> Result<Value, String> {
        let said = self.brindle(&[words, &["-o", "json"]].concat(), log)?;
        serde_json::from_str(document_of(&said))
            .map_err(|e| format!("brindle {}: {e}\n{said}", words.join(" ")))
    }

    /// Runs a benchmark.
    pub fn bench(&self, words: &[String]) -> Result<Run, String> {
        let words: Vec<&str> = std::iter::once("bench").chain(words.iter().map(String::as_str)).collect();
        run_of(&self.brindle(&words, &words[..2].join("-"))?)
    }

    /// `brindle dev VERB --dir DIR WORDS`.
    pub fn dev(&self, dir: &Path, verb: &[&str], words: &[String]) -> Result<String, String> {
        let shown = dir.display().to_string();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let all = [&["dev"], verb, &["--dir", &shown], &words[..]].concat();
        self.brindle(&all, &log_of(dir, verb))
    }

    /// The hosts of a cluster, as `brindle dev host list` has them.
    pub fn hosts(&self, dir: &Path) -> Result<Vec<Value>, String> {
        let shown = dir.display().to_string();
        let mut listed =
            self.json(&["dev", "host", "list", "--dir", &shown], &log_of(dir, &["host-list"]))?;
        match listed["hosts"].take() {
            Value::Array(hosts) => Ok(hosts),
            _ => Err(format!("brindle dev host list --dir {shown} names no hosts")),
        }
    }

    /// Like [`Commands::dev`], for what ends a cluster: also after Ctrl-C.
    pub fn end(&self, dir: &Path, verb: &[&str], words: &[&str]) -> Result<(), String> {
        let shown = dir.display().to_string();
        let all = [&["dev"], verb, &["--dir", &shown], words].concat();
        self.finished(self.command(&all).even_when_interrupted(), &log_of(dir, verb)).map(drop)
    }

    /// Ends what a run that was killed has left in a directory.
    pub fn end_former(&self, dir: &Path) -> Result<(), String> {
        if dir.join("state.json").exists() { self.end(dir, &["down"], &["--purge"]) } else { Ok(()) }
    }

    /// A process of the program that stays, with the program's environment and nobody to talk to.
    pub fn process(&self) -> std::process::Command {
        let mut command = std::process::Command::new(&self.program);
        command.stdin(Stdio::null()).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Name of the log of a command about a cluster.
fn log_of(dir: &Path, verb: &[&str]) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    format!("{name}-{}", verb.join("-"))
}

/// The document in what a command printed. Messages come before it.
fn document_of(said: &str) -> &str {
    said.find('{').map_or("", |at| &said[at..])
}

/// The run that `brindle bench -o json` has told of.
pub fn run_of(said: &str) -> Result<Run, String> {
    serde_json::from_str(document_of(said)).map_err(|e| format!("brindle bench: {e}\n{said}"))
}
