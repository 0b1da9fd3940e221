//! The end of a mount on a node: nothing of the job writes into the buffer afterwards.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use brindle_types::{Code, Fault, Result};
use rustix::process::Signal;

use crate::control::socket;
use crate::mounts;
use crate::process::Identity;

/// How long the daemon of a mount may take to send what it has and end.
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);

/// Unmounts and waits until the daemon has ended, so that all that programs wrote is with the servers. A mount that programs still use is
/// taken away from them.
pub fn unmount(at: &Path) -> Result<()> {
    let Some(line) = mounts::find(at).filter(|line| line.fs_type == mounts::FUSE_TYPE) else { return Ok(()) };
    let daemon = daemon_of(line.minor);
    if let Err(fault) = mounts::unmount(at, false) {
        tracing::warn!(%fault, "programs of an ended job lose its buffer");
        mounts::unmount(at, true)?;
    }
    let Some(daemon) = daemon else { return Ok(()) };
    // One whose mount was in use lives on until its last program has gone.
    for (signal, limit) in [
        (None, Duration::from_secs(1)),
        (Some(Signal::TERM), GOODBYE_LIMIT),
        (Some(Signal::KILL), GOODBYE_LIMIT),
    ] {
        if let Some(signal) = signal {
            daemon.signal(signal);
        }
        if daemon.wait_end(limit) {
            return Ok(());
        }
    }
    Err(Fault::new(Code::ProcessFailed).what("cannot end").subject(format!(
        "the daemon of {} (process {})",
        at.display(),
        daemon.pid
    )))
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
    let Some(daemon) = daemon else { return Ok(()) };
    daemon.signal(Signal::KILL);
    if daemon.wait_end(GOODBYE_LIMIT) {
        return Ok(());
    }
    let what = format!("the daemon of {} (process {})", at.display(), daemon.pid);
    Err(Fault::new(Code::ProcessFailed).what("cannot end").subject(what))
}

/// The process at the other end of the control socket of a mount.
fn daemon_of(minor: u32) -> Option<Identity> {
    let stream = UnixStream::connect(socket(minor)).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    Identity::of(u32::try_from(peer.pid.as_raw_nonzero().get()).ok()?)
}
