//! The lock on a target's directory: at most one process serves, formats or moves a target.
//!
//! The lock is flock(2) on the file `lock`. The lock goes with the process that holds it, however the process dies. The file's text
//! names the holder, for messages only.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use brindle_types::{Code, Fault, Result};
use rustix::fs::FlockOperation;

/// Name of the lock file in a target's directory.
pub const LOCK_FILE: &str = "lock";
/// Permissions of the lock file.
const LOCK_MODE: u32 = 0o600;

/// The lock; given back when dropped or when the process dies.
#[derive(Debug)]
pub struct DirLock {
    file: File,
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing alone would not do: a child that another thread has just forked keeps a copy of the descriptor until its exec, and the
        // lock with it. Where this fails, closing gives the lock back a moment later.
        if let Err(e) = rustix::fs::flock(&self.file, FlockOperation::Unlock) {
            tracing::warn!(error = %e, "a lock is given back when its file is closed");
        }
    }
}

impl DirLock {
    /// Takes the lock of `dir`, or names the process that has it. `busy` is the fault's beginning.
    pub fn take(dir: &Path, busy: Fault) -> Result<DirLock> {
        let path = dir.join(LOCK_FILE);
        let cannot = |e: &std::io::Error| cannot_lock(dir, e);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(LOCK_MODE)
            .open(&path);
        let mut file = opened.map_err(|e| cannot(&e))?;
        close_to_others(&file).map_err(|e| cannot(&e))?;
        if let Err(e) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if e != rustix::io::Errno::WOULDBLOCK {
                return Err(cannot(&e.into()));
            }
            let mut holder = String::new();
            // The text is a courtesy; the lock is what counts.
            let _ = file.read_to_string(&mut holder);
            return Err(busy.why(format!("it is locked by {}", holder.trim())));
        }
        sign(&mut file).map_err(|e| cannot(&e))?;
        Ok(DirLock { file })
    }

    /// Takes the lock of `dir`, waiting for whoever has it; `what` says whose end is waited for, and `waits` is told who has it.
    pub fn wait(dir: &Path, what: &str, waits: impl FnOnce(&Fault)) -> Result<DirLock> {
        let busy = Fault::new(Code::TargetBusy).what("waiting for").subject(what.to_owned());
        match DirLock::take(dir, busy) {
            Err(fault) if fault.code == Code::TargetBusy => {
                waits(&fault);
                let path = dir.join(LOCK_FILE);
                let cannot = |e: &std::io::Error| cannot_lock(dir, e);
                let mut file =
                    OpenOptions::new().read(true).write(true).open(path).map_err(|e| cannot(&e))?;
                rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|e| cannot(&e.into()))?;
                sign(&mut file).map_err(|e| cannot(&e))?;
                Ok(DirLock { file })
            }
            outcome => outcome,
        }
    }

    /// Takes the lock of a target's directory.
    pub fn target(dir: &Path) -> Result<DirLock> {
        DirLock::take(dir, Fault::new(Code::TargetBusy).what("cannot use").subject(dir.display().to_string()))
    }
}

/// A user that can read the file can lock it. Earlier releases made it readable for all.
fn close_to_others(file: &File) -> std::io::Result<()> {
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 == 0 { Ok(()) } else { file.set_permissions(Permissions::from_mode(LOCK_MODE)) }
}

fn cannot_lock(dir: &Path, e: &std::io::Error) -> Fault {
    let fault = Fault::io(Code::NotWritable, "cannot lock", dir.display().to_string(), e);
    if e.kind() != std::io::ErrorKind::ReadOnlyFilesystem {
        return fault;
    }
    fault.data("nothing was changed").next(format!(
        "find out why it is read-only (dmesg; findmnt -T {}), repair it, and mount it writable",
        dir.display()
    ))
}

/// Writes who has the lock.
fn sign(file: &mut File) -> std::io::Result<()> {
    let holder = format!("process {} ({})\n", std::process::id(), command_line());
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(holder.as_bytes())
}

fn command_line() -> String {
    let words: Vec<String> = std::env::args().take(2).collect();
    let name = words.first().map(|w| w.rsplit('/').next().unwrap_or(w).to_owned()).unwrap_or_default();
    words.get(1).map_or(name.clone(), |verb| format!("{name} {verb}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_by_name_and_the_third_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::target(dir.path()).unwrap();
        let fault = DirLock::target(dir.path()).unwrap_err();
        assert_eq!(fault.code, Code::TargetBusy);
        assert!(fault.why[0].contains(&std::process::id().to_string()), "{fault}");
        drop(first);
        DirLock::target(dir.path()).unwrap();
    }

    #[test]
    fn a_copy_of_the_descriptor_in_a_forked_child_does_not_keep_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirLock::target(dir.path()).unwrap();
        let copy = first.file.try_clone().unwrap();
        assert_eq!(DirLock::target(dir.path()).unwrap_err().code, Code::TargetBusy);
        drop(first);
        DirLock::target(dir.path()).unwrap();
        drop(copy);
    }
}
