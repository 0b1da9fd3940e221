//! Locked memory of daemons that serve swap. Such a daemon never waits for a page of its own, nor for the kernel to page other processes
//! out through it.

use brindle_types::{Code, Fault, Result};
use rustix::mm::{MlockAllFlags, mlockall};

/// Locks the memory of this process, all that it has and all that it will have, and keeps the kernel from choosing it when memory is short.
/// To be called before there are threads.
pub fn lock() -> Result<()> {
    flush_without_recursion();
    // Pages are locked when they are first used: much of what is mapped never is.
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).map_err(|e| {
        Fault::io(Code::PermissionDenied, "cannot lock the memory of", "this process", &e.into())
            .next("run it as root, or give it CAP_IPC_LOCK")
    })?;
    if let Err(e) = std::fs::write("/proc/self/oom_score_adj", "-1000") {
        tracing::info!(error = %e, "the kernel may end this process where memory is short");
    }
    Ok(())
}

/// Tells the kernel that this process writes back what others dirtied, so that memory pressure does not make it wait for itself.
pub fn flush_without_recursion() {
    /// PR_SET_IO_FLUSHER of linux/prctl.h.
    const SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: this prctl takes plain numbers and touches no memory.
    let done = unsafe { libc::prctl(SET_IO_FLUSHER, 1, 0, 0, 0) };
    if done < 0 {
        tracing::info!(error = %std::io::Error::last_os_error(), "not marked as an I/O flusher");
    }
}
