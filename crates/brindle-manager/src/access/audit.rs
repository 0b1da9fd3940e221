//! The audit log: who changed what, from where, and with which outcome. The file `audit.log` has a line of JSON for each
//! change; one older file is kept.
//!
//! Anybody who reaches the manager can be refused any number of times. Refused log-ins therefore have a file of their own,
//! `refused-log-ins.log`, with an older one: they push no change out.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_stdx::Clock;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names of the file of changes and of the older one.
const CHANGES: Names = Names { file: "audit.log", older: "audit.log.1" };
/// Names of the file of refused log-ins and of the older one.
const REFUSED: Names = Names { file: "refused-log-ins.log", older: "refused-log-ins.log.1" };
/// A file of this size becomes the older one.
const FILE_MAX_BYTES: u64 = 16 << 20;
/// Records that are kept in memory and shown, of each file.
pub const SHOWN_MAX: usize = 500;
/// Longest text of a field.
const TEXT_MAX_CHARS: usize = 400;

/// A change, or a try to log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    /// When, seconds since 1970.
    pub at_s: i64,
    /// The user; at a log-in, the name that was given.
    pub user: String,
    /// Address of the browser.
    pub from: String,
    /// What: `log-in`, `log-out`, `target.stop`, `user.add` and so on.
    pub action: String,
    /// The target or the user that it concerns.
    pub subject: String,
    /// `accepted`, `done`, `failed` or `refused`.
    pub outcome: String,
    /// Code of the fault, if there was one.
    pub code: String,
}

/// The log.
pub struct Audit {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    changes: Mutex<Log>,
    refused: Mutex<Log>,
}

#[derive(Clone, Copy)]
struct Names {
    file: &'static str,
    older: &'static str,
}

/// A file of records, and the last ones in memory.
struct Log {
    names: Names,
    file: File,
    bytes: u64,
    shown: VecDeque<AuditRecord>,
}

impl Log {
    fn open(dir: &Path, names: Names) -> std::io::Result<Log> {
        let (file, bytes) = open(dir, names)?;
        let mut shown = VecDeque::new();
        for name in [names.older, names.file] {
            read(&dir.join(name), &mut shown)?;
        }
        Ok(Log { names, file, bytes, shown })
    }

    fn add(&mut self, dir: &Path, record: AuditRecord) -> std::io::Result<()> {
        let line = serde_json::to_string(&record).expect("plain fields always serialise") + "\n";
        if self.bytes + line.len() as u64 > FILE_MAX_BYTES {
            std::fs::rename(dir.join(self.names.file), dir.join(self.names.older))?;
            (self.file, self.bytes) = open(dir, self.names)?;
        }
        self.file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        remember(&mut self.shown, record);
        Ok(())
    }
}

/// Author of an action, and where the author is.
#[derive(Clone, Debug)]
pub struct Doer {
    /// The user.
    pub user: String,
    /// Address of the browser.
    pub from: String,
}

impl Audit {
    /// Opens the log in a directory.
    pub fn open(dir: &Path, clock: Arc<dyn Clock>) -> Result<Audit> {
        let open = |names| Log::open(dir, names).map(Mutex::new).map_err(|e| cannot(dir, &e));
        Ok(Audit { dir: dir.to_owned(), clock, changes: open(CHANGES)?, refused: open(REFUSED)? })
    }

    /// Notes what somebody does. If the note fails, the change must not be made.
    pub fn note(
        &self,
        doer: &Doer,
        action: &str,
        subject: &str,
        outcome: &str,
        code: Option<Code>,
    ) -> Result<()> {
        let record = self.record(doer, action, subject, outcome, code);
        let mut log = self.changes.lock();
        log.add(&self.dir, record).and_then(|()| log.file.sync_data()).map_err(|e| cannot(&self.dir, &e))
    }

    /// Notes a refused log-in. The log-in has changed nothing, so nobody waits for the disk, and the refusal does not depend
    /// on the note.
    pub fn note_refused_log_in(&self, doer: &Doer, action: &str, code: Code) {
        let record = self.record(doer, action, "", "refused", Some(code));
        let noted = self.refused.lock().add(&self.dir, record);
        if let Err(e) = noted.map_err(|e| cannot(&self.dir, &e)) {
            tracing::warn!(code = %e.code, from = %doer.from, "a refused log-in is not noted: {e}");
        }
    }

    fn record(
        &self,
        doer: &Doer,
        action: &str,
        subject: &str,
        outcome: &str,
        code: Option<Code>,
    ) -> AuditRecord {
        AuditRecord {
            at_s: self.clock.wall().secs,
            user: shortened(&doer.user),
            from: shortened(&doer.from),
            action: shortened(action),
            subject: shortened(subject),
            outcome: outcome.to_owned(),
            code: code.map(|code| code.to_string()).unwrap_or_default(),
        }
    }

    /// The last records, the newest first.
    pub fn last(&self) -> Vec<AuditRecord> {
        let changes = self.changes.lock().shown.iter().rev().cloned().collect::<Vec<_>>();
        let refused = self.refused.lock().shown.iter().rev().cloned().collect::<Vec<_>>();
        let mut all = [changes, refused].concat();
        // (Stable: records of one second keep their order.)
        all.sort_by_key(|record| std::cmp::Reverse(record.at_s));
        all
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_MAX_CHARS).collect()
}

fn remember(shown: &mut VecDeque<AuditRecord>, record: AuditRecord) {
    if shown.len() >= SHOWN_MAX {
        shown.pop_front();
    }
    shown.push_back(record);
}

fn open(dir: &Path, names: Names) -> std::io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(dir.join(names.file))?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

/// Takes in the records of a file. A line that a crash cut off is passed over.
fn read(path: &Path, shown: &mut VecDeque<AuditRecord>) -> std::io::Result<()> {
    let file = match File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    for line in BufReader::new(file).split(b'\n') {
        if let Ok(record) = serde_json::from_slice(&line?) {
            remember(shown, record);
        }
    }
    Ok(())
}

fn cannot(dir: &Path, e: &std::io::Error) -> Fault {
    Fault::io(Code::AuditFailed, "cannot write the audit log in", dir.display().to_string(), e)
        .data("nothing was changed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Hand;

    #[test]
    fn records_survive_a_restart_and_a_torn_line() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let doer = Doer { user: "ada".to_owned(), from: "127.0.0.1".to_owned() };
        let audit = Audit::open(dir.path(), Hand::new()).unwrap();
        audit.note(&doer, "target.stop", "dev-OST0000", "accepted", None).unwrap();
        let path = dir.path().join(CHANGES.file);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"at_s\":1,\"us\n").unwrap();
        let audit = Audit::open(dir.path(), Hand::new()).unwrap();
        audit.note(&doer, "target.start", "x\ny", "failed", Some(Code::TargetDown)).unwrap();
        let last = audit.last();
        assert_eq!(last.len(), 2);
        assert_eq!(last[0].action, "target.start");
        assert_eq!(last[0].code, Code::TargetDown.to_string());
        assert_eq!(last[1].subject, "dev-OST0000");
    }

    #[test]
    fn refused_log_ins_push_no_change_out() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path(), Hand::new()).unwrap();
        let ada = Doer { user: "ada".to_owned(), from: "127.0.0.1".to_owned() };
        audit.note(&ada, "target.stop", "dev-OST0000", "done", None).unwrap();
        let mallory = Doer { user: "\u{1}".repeat(5000), from: "192.0.2.1".to_owned() };
        let line_bytes = {
            audit.note_refused_log_in(&mallory, "log-in", Code::LogInRefused);
            audit.refused.lock().bytes
        };
        for _ in 0..3 * FILE_MAX_BYTES / line_bytes {
            audit.note_refused_log_in(&mallory, "log-in", Code::LogInRefused);
        }
        for audit in [audit, Audit::open(dir.path(), Hand::new()).unwrap()] {
            let last = audit.last();
            assert!(last.iter().any(|record| record.action == "target.stop"));
            assert!(last.iter().any(|record| record.code == Code::LogInRefused.to_string()));
            assert!(last.len() <= 2 * SHOWN_MAX);
        }
        let bytes: u64 =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes <= 3 * FILE_MAX_BYTES, "{bytes} bytes");
    }
}
