//! The end of a mount on a node: afterwards no process of the job writes into the buffer.
//!
//! A note beside the logs of the mount names its daemon before the mount ends, so that whoever comes after a crash waits for the same
//! daemon. The note also says, before the connection is cut, that something may be thrown away. A note of a loss stays: everybody who asks
//! again is told.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use brindle_types::{Code, Fault, Result};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::orchestrator::now_s;
use crate::control::socket;
use crate::identity::write_whole;
use crate::mounts;
use crate::process::Identity;

/// How long the kernel and the daemon may take to unmount, before the connection between them is cut. Pages that programs have mapped are written then.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(35);
/// Like `UNMOUNT_LIMIT`, where nobody needs what was written.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(8);
/// How long a daemon may take to send what nobody needs.
const GIVE_UP_WITHIN_S: u64 = 4;
/// How long the daemon may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(1);
/// A daemon that ends within this time has lost nothing: it waits 30 s for its servers (`END_WAIT_MS` of brindle-client) before it gives up
/// what it has.
const SENT_WITHIN_S: u64 = 28;
/// How much longer it may take to end when it has given up.
const GOODBYE_LIMIT: Duration = Duration::from_secs(7);
/// How long a process that was killed may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Permissions of a note.
const NOTE_MODE: u32 = 0o600;

/// A mount that ends, or has ended with a loss.
#[derive(Default, Serialize, Deserialize)]
struct Note {
    /// Daemon of the mount.
    daemon: Option<Identity>,
    /// When its end began, in seconds since 1970.
    #[serde(default)]
    began_s: u64,
    /// Why something may have been thrown away; empty where nothing was.
    #[serde(default)]
    lost: String,
}

impl Note {
    fn read(path: &Path) -> Result<Option<Note>> {
        let damaged = |why: String| {
            Fault::new(Code::StoreDamaged)
                .what("cannot read the note of a mount that ends,")
                .subject(path.display().to_string())
                .why(why)
                .data("the buffer is kept")
                .next("end the daemon of the mount, then remove the file")
        };
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| damaged(e.to_string())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(damaged(e.to_string())),
        }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).expect("plain fields always serialise");
        path.parent().map_or(Ok(()), super::make_dir)?;
        write_whole(path, &text, NOTE_MODE).map_err(|e| {
            Fault::io(Code::NotWritable, "cannot write", path.display().to_string(), &e)
                .data("the buffer is kept")
        })
    }

    /// Notes a loss, before it happens. The first one is told.
    fn lose(&mut self, path: &Path, at: &Path, why: &str) -> Result<()> {
        tracing::warn!(at = %at.display(), why, "what programs wrote into a buffer may be incomplete");
        if self.lost.is_empty() {
            why.clone_into(&mut self.lost);
        }
        self.write(path)
    }
}

/// Why something of the mount may have been thrown away, as its note says.
pub fn lost(note: &Path) -> Result<Option<String>> {
    Ok(Note::read(note)?.map(|note| note.lost).filter(|lost| !lost.is_empty()))
}

/// Forgets a mount.
pub fn forget(note: &Path) {
    // The note exists only where something was lost.
    let _ = std::fs::remove_file(note);
}

/// Unmounts and waits until the daemon has ended, so that all that programs wrote is with the servers, or [`lost`] says why not. A mount that
/// programs still use is taken away from them.
pub fn unmount(at: &Path, path: &Path) -> Result<()> {
    unmount_within(at, path, &Patience { unmount: UNMOUNT_LIMIT, sent_within_s: SENT_WITHIN_S })
}

/// [`unmount`] of what nobody needs any more: its servers are gone, or refuse this host.
pub fn give_up(at: &Path, path: &Path) -> Result<()> {
    unmount_within(at, path, &Patience { unmount: GIVE_UP_LIMIT, sent_within_s: GIVE_UP_WITHIN_S })?;
    forget(path);
    Ok(())
}

/// How long bytes that programs wrote are waited for.
struct Patience {
    unmount: Duration,
    sent_within_s: u64,
}

fn unmount_within(at: &Path, path: &Path, patience: &Patience) -> Result<()> {
    let mut note = Note::read(path)?.unwrap_or_default();
    if let Some(line) = mounts::find(at).filter(|line| line.fs_type == mounts::FUSE_TYPE) {
        note.daemon = daemon_of(line.minor).or(note.daemon);
        note.began_s = now_s();
        note.write(path)?;
        if note.daemon.is_none() {
            let why = if mounts::is_dead(at) { "its daemon had died" } else { "its daemon cannot be found" };
            note.lose(path, at, why)?;
        }
        let noted = std::cell::RefCell::new(&mut note);
        let before_abort = || {
            let why =
                format!("it was not unmounted within {} s, and was cut off", patience.unmount.as_secs());
            noted.borrow_mut().lose(path, at, &why)
        };
        if let Err(fault) = mounts::unmount_within(at, false, patience.unmount, &before_abort) {
            if fault.code != Code::TargetBusy {
                return Err(fault);
            }
            tracing::warn!(%fault, "programs of an ended job lose its buffer");
            mounts::unmount_within(at, true, patience.unmount, &before_abort)?;
        }
    }
    if let Some(daemon) = note.daemon {
        end(&daemon, &mut note, path, at, patience)?;
    }
    if note.lost.is_empty() {
        forget(path);
    }
    Ok(())
}

/// Waits for a daemon. A daemon whose mount was in use lives on until its last program has gone.
fn end(daemon: &Identity, note: &mut Note, path: &Path, at: &Path, patience: &Patience) -> Result<()> {
    let left_s = |note: &Note| patience.sent_within_s.saturating_sub(now_s().saturating_sub(note.began_s));
    let mut ended = daemon.wait_end(END_LIMIT);
    if !ended {
        daemon.signal(Signal::TERM);
        ended = daemon.wait_end(Duration::from_secs(left_s(note)));
    }
    if ended && left_s(note) > 0 {
        return Ok(());
    }
    let limit_s = patience.sent_within_s;
    note.lose(path, at, &format!("its daemon may not have sent everything within {limit_s} s"))?;
    if ended || daemon.wait_end(GOODBYE_LIMIT) {
        return Ok(());
    }
    kill(daemon, at)
}

fn kill(daemon: &Identity, at: &Path) -> Result<()> {
    daemon.signal(Signal::KILL);
    if daemon.wait_end(KILL_LIMIT) {
        return Ok(());
    }
    let what = format!("the daemon of {} (process {})", at.display(), daemon.pid);
    Err(Fault::new(Code::ProcessFailed).what("cannot end").subject(what))
}

/// Unmounts the directory of a node, whose daemon serves another mount that ends afterwards.
pub fn unbind(at: &Path) -> Result<()> {
    if let Err(fault) = mounts::unmount(at, false) {
        tracing::warn!(%fault, "programs of an ended job lose their directory");
        mounts::unmount(at, true)?;
    }
    Ok(())
}

/// Kills the daemon of a mount, which stays and answers everything with an error.
pub fn end_daemon(at: &Path) -> Result<()> {
    let daemon = mounts::find(at).and_then(|line| daemon_of(line.minor));
    daemon.map_or(Ok(()), |daemon| kill(&daemon, at))
}

/// The process at the other end of the control socket of a mount.
fn daemon_of(minor: u32) -> Option<Identity> {
    let stream = UnixStream::connect(socket(minor)).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    Identity::of(u32::try_from(peer.pid.as_raw_nonzero().get()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_again_and_a_clean_end_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (at, path) = (dir.path().join("7"), dir.path().join("end-7"));
        unmount(&at, &path).unwrap();
        assert!(!path.exists());
        // A process that has ended, as a crash before the end of the wait leaves it.
        let gone = Identity { pid: u32::MAX >> 1, start_ticks: 1 };
        let mut note = Note { daemon: Some(gone), began_s: now_s(), lost: String::new() };
        note.write(&path).unwrap();
        unmount(&at, &path).unwrap();
        assert!(!path.exists());
        // The daemon ended while no process watched it, so its time is not known.
        note.began_s -= SENT_WITHIN_S + 1;
        note.write(&path).unwrap();
        unmount(&at, &path).unwrap();
        assert!(lost(&path).unwrap().is_some());
        note.lose(&path, &at, "first").unwrap();
        note.lose(&path, &at, "second").unwrap();
        for _ in 0..2 {
            unmount(&at, &path).unwrap();
            assert_eq!(lost(&path).unwrap().as_deref(), Some("first"));
        }
        forget(&path);
        assert_eq!(lost(&path).unwrap(), None);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(unmount(&at, &path).unwrap_err().code, Code::StoreDamaged);
    }
}
