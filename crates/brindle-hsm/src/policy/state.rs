//! The directory of an engine: who runs in it, what was previewed and confirmed, and what the last runs did.
//!
//! | name | what it is |
//! |---|---|
//! | `lock` | held by the engine that runs |
//! | `previewed/SUM`, `confirmed/SUM` | marks of texts, by the sum over their words |
//! | `off/POLICY` | marks of policies that somebody has switched off |
//! | `history.json` | the last runs, replaced as a whole |
//!
//! Commands add and remove marks, the engine only writes the history, so neither waits for the other.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

use super::describe::Description;

/// Runs that are remembered.
pub const RUNS_MAX: usize = 200;
/// Longest name of a policy that can be switched off.
const NAME_MAX_BYTES: usize = 100;

/// A run of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The policy.
    pub policy: String,
    /// Reason for the run.
    pub why: String,
    /// Start of the run, in seconds since 1970.
    pub began_secs: i64,
    /// End of the run.
    pub ended_secs: i64,
    /// Entries that matched.
    pub matched: u64,
    /// Actions that were taken.
    pub done: u64,
    /// Bytes of these entries.
    pub bytes: u64,
    /// Entries that had changed or were busy.
    pub left: u64,
    /// Actions that failed.
    pub failed: u64,
    /// Remarks on the run.
    pub notes: Vec<String>,
}

/// State that an engine remembers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// The text that the engine runs.
    pub file: String,
    /// The sum over its words.
    pub sum: String,
    /// Variables of the text that the engine was started with.
    #[serde(default)]
    pub defines: BTreeMap<String, String>,
    /// The policies of the text, in words.
    #[serde(default)]
    pub policies: Vec<Description>,
    /// The file system.
    pub source: String,
    /// Time at which each trigger last ran its policy, in seconds since 1970.
    pub last_runs: BTreeMap<String, i64>,
    /// Policies that delete and wait for their text to be confirmed.
    pub unconfirmed: Vec<String>,
    /// Fault in the present text; the engine goes on with the previous one.
    pub problem: Option<String>,
    /// The run that is under way.
    pub running: Option<Run>,
    /// The last runs, the newest last.
    pub runs: Vec<Run>,
}

/// A mark of a text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// Time of the confirmation, in seconds since 1970.
    pub at_secs: i64,
    /// User id of that user.
    pub uid: u32,
    /// The text's file.
    pub file: String,
}

/// The directory.
#[derive(Debug)]
pub struct State {
    dir: PathBuf,
    /// Remembered state.
    pub history: History,
    _lock: Option<File>,
}

fn cannot(what: &'static str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(Code::NotWritable, what, path.display().to_string(), e)
}

fn damaged(path: &Path, why: impl ToString) -> Fault {
    Fault::new(Code::PolicyStateDamaged)
        .subject(path.display().to_string())
        .why(why.to_string())
        .next("remove it: only the history is lost")
}

impl State {
    /// Looks into a directory, which need not be there.
    pub fn look(dir: &Path) -> Result<State> {
        let path = dir.join("history.json");
        let history = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| damaged(&path, e))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => History::default(),
            Err(e) => return Err(damaged(&path, e)),
        };
        Ok(State { dir: dir.to_owned(), history, _lock: None })
    }

    /// Takes a directory for an engine; one that is cut off leaves its run in the history.
    pub fn take(dir: &Path) -> Result<State> {
        fs::create_dir_all(dir).map_err(|e| cannot("cannot make", dir, &e))?;
        let path = dir.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(|e| cannot("cannot open", &path, &e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Fault::new(Code::PolicyRuns).subject(dir.display().to_string()));
            }
            Err(TryLockError::Error(e)) => return Err(cannot("cannot lock", &path, &e)),
        }
        let mut state = State::look(dir)?;
        if let Some(mut run) = state.history.running.take() {
            run.notes.push("the engine was killed while it ran; what it had asked for goes on".to_owned());
            state.ended(run);
        }
        state._lock = Some(lock);
        Ok(state)
    }

    /// Whether an engine runs in the directory.
    pub fn is_running(&self) -> bool {
        let Ok(lock) = File::open(self.dir.join("lock")) else { return false };
        matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// A run is over.
    pub fn ended(&mut self, run: Run) {
        self.history.running = None;
        self.history.runs.push(run);
        let surplus = self.history.runs.len().saturating_sub(RUNS_MAX);
        self.history.runs.drain(..surplus);
    }

    /// Writes the history, as a whole.
    pub fn save(&self) -> Result<()> {
        let path = self.dir.join("history.json");
        let bytes = serde_json::to_vec_pretty(&self.history).map_err(|e| damaged(&path, e))?;
        replace(&path, &bytes)
    }

    fn mark_path(&self, kind: &str, sum: &str) -> PathBuf {
        self.dir.join(kind).join(sum)
    }

    fn mark(&self, kind: &str, sum: &str, mark: &Mark) -> Result<()> {
        let path = self.mark_path(kind, sum);
        let parent = self.dir.join(kind);
        if !parent.is_dir() {
            let made = fs::create_dir_all(&parent).and_then(|()| sync_dir(&self.dir));
            made.map_err(|e| cannot("cannot make", &parent, &e))?;
        }
        let bytes = serde_json::to_vec(mark).map_err(|e| damaged(&path, e))?;
        replace(&path, &bytes)
    }

    fn marked(&self, kind: &str, sum: &str) -> bool {
        let Ok(bytes) = fs::read(self.mark_path(kind, sum)) else { return false };
        serde_json::from_slice::<Mark>(&bytes).is_ok()
    }

    /// A text was previewed.
    pub fn previewed(&self, sum: &str, mark: &Mark) -> Result<()> {
        self.mark("previewed", sum, mark)
    }

    /// Whether a text was previewed.
    pub fn is_previewed(&self, sum: &str) -> bool {
        self.marked("previewed", sum)
    }

    /// A text is confirmed; it must have been previewed.
    pub fn confirm(&self, sum: &str, mark: &Mark) -> Result<()> {
        if !self.is_previewed(sum) {
            return Err(Fault::new(Code::NotPreviewed)
                .subject(mark.file.clone())
                .data("nothing was confirmed"));
        }
        self.mark("confirmed", sum, mark)
    }

    /// Where the mark of a policy that is off lies. Names are words of a text, and become names of files only if they can be no more.
    fn off_path(&self, policy: &str) -> Result<PathBuf> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if (1..=NAME_MAX_BYTES).contains(&policy.len())
            && policy.bytes().all(is_plain)
            && !policy.starts_with('.')
        {
            return Ok(self.dir.join("off").join(policy));
        }
        Err(Fault::new(Code::BadArgument)
            .what("cannot switch a policy by the name")
            .subject(format!("'{policy}'"))
            .why(format!("a name has at most {NAME_MAX_BYTES} letters, digits, '-', '_' and '.'"))
            .data("nothing was changed")
            .next("give it another name in the text"))
    }

    /// Switches a policy off: its next runs do not begin. A run that is under way goes on.
    pub fn turn_off(&self, policy: &str, mark: &Mark) -> Result<()> {
        self.off_path(policy)?;
        self.mark("off", policy, mark)
    }

    /// Switches a policy on again.
    pub fn turn_on(&self, policy: &str) -> Result<()> {
        let path = self.off_path(policy)?;
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(cannot("cannot remove", &path, &e)),
            _ => Ok(()),
        }
    }

    /// Whether a policy is off. A mark that cannot be looked at counts: nothing is done that somebody may have forbidden.
    pub fn is_off(&self, policy: &str) -> bool {
        let Ok(path) = self.off_path(policy) else { return false };
        !matches!(fs::symlink_metadata(path), Err(e) if e.kind() == std::io::ErrorKind::NotFound)
    }

    /// Names of the policies that are off.
    pub fn off(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir.join("off")).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        // A mark that is being written has another name for a moment.
        let mut off: Vec<String> = names.filter(|name| !is_new(name)).collect();
        off.sort();
        off
    }

    /// Whether a text is confirmed.
    pub fn is_confirmed(&self, sum: &str) -> bool {
        self.marked("confirmed", sum)
    }
}

/// Whether a name is that of a file that is being written, as [`replace`] gives it.
fn is_new(name: &str) -> bool {
    let number = name.rsplit_once(".new").map_or("", |(_, number)| number);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'-')
}

fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Replaces a file: a crash leaves the old or the new one, and the new one once this has returned.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    // The process may write the same file in two threads at a time.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new{}-{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
    let new = PathBuf::from(new);
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&new, path)?;
        path.parent().map_or(Ok(()), sync_dir)
    };
    write().map_err(|e| {
        // The temporary file is there only if the write or the rename has failed, and has no other use.
        let _ = fs::remove_file(&new);
        cannot("cannot write", path, &e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_run_is_in_the_history_and_one_engine_runs() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::take(dir.path()).unwrap();
        assert_eq!(State::take(dir.path()).unwrap_err().code, Code::PolicyRuns);
        assert!(State::look(dir.path()).unwrap().is_running());
        state.history.running = Some(Run { policy: "purge".into(), ..Run::default() });
        state.save().unwrap();
        drop(state);
        let mut state = State::take(dir.path()).unwrap();
        assert!(state.history.running.is_none() && state.history.runs[0].notes[0].contains("killed"));
        (0..RUNS_MAX).for_each(|_| state.ended(Run::default()));
        assert_eq!(state.history.runs.len(), RUNS_MAX);
    }

    #[test]
    fn policies_are_switched_off_and_on_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::look(dir.path()).unwrap();
        let mark = Mark { at_secs: 1, uid: 0, file: "f".into() };
        assert!(!state.is_off("purge") && state.off().is_empty());
        state.turn_off("purge", &mark).unwrap();
        state.turn_off("purge.2", &mark).unwrap();
        assert!(state.is_off("purge") && !state.is_off("archive"));
        fs::write(dir.path().join("off/purge.new77"), "").unwrap();
        fs::write(dir.path().join("off/purge.new77-3"), "").unwrap();
        assert_eq!(state.off(), ["purge", "purge.2"]);
        fs::write(dir.path().join("off/purge"), "").unwrap();
        assert!(state.is_off("purge"), "a mark that cannot be read counts");
        state.turn_on("purge").unwrap();
        state.turn_on("purge").unwrap();
        assert_eq!(state.off(), ["purge.2"]);
        for name in ["", "..", "../x", "a/b", ".hidden", "a b", &"x".repeat(101)] {
            assert_eq!(state.turn_off(name, &mark).unwrap_err().code, Code::BadArgument, "{name}");
            assert_eq!(state.turn_on(name).unwrap_err().code, Code::BadArgument, "{name}");
            assert!(!state.is_off(name), "{name}");
        }
    }

    #[test]
    fn only_what_was_previewed_is_confirmed() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::look(dir.path()).unwrap();
        let mark = Mark { at_secs: 1, uid: 0, file: "f".into() };
        assert_eq!(state.confirm("abc", &mark).unwrap_err().code, Code::NotPreviewed);
        state.previewed("abc", &mark).unwrap();
        assert!(!state.is_confirmed("abc"));
        state.confirm("abc", &mark).unwrap();
        assert!(state.is_confirmed("abc") && !state.is_confirmed("abd"));
        fs::write(dir.path().join("confirmed/abc"), "").unwrap();
        assert!(!state.is_confirmed("abc"), "what cannot be read does not count");
        fs::write(dir.path().join("history.json"), "{").unwrap();
        assert_eq!(State::look(dir.path()).unwrap_err().code, Code::PolicyStateDamaged);
    }
}
