//! Whether somebody pressed Ctrl-C: a flag that every loop of the benchmark looks at, so that its files are removed before
//! it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_types::{Code, Fault, Result};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_signal: libc::c_int) {
    ASKED.store(true, Ordering::SeqCst);
}

/// Makes SIGINT and SIGTERM raise the flag, and do nothing else.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler stores into an atomic and nothing else, which is async-signal-safe.
        unsafe { libc::signal(signal, ask as *const () as libc::sighandler_t) };
    }
}

/// Whether the benchmark is to end.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Fault of an interrupted benchmark.
pub fn fault() -> Fault {
    Fault::new(Code::Interrupted).what("the benchmark was interrupted").data("its own files were removed")
}

/// A fault when the benchmark is to end.
pub fn check() -> Result<()> {
    if asked() { Err(fault()) } else { Ok(()) }
}

/// Ends the ranks of one team: because of Ctrl-C, or because another rank has failed.
#[derive(Clone, Debug, Default)]
pub struct Halt(Arc<AtomicBool>);

impl Halt {
    /// Ends them.
    pub fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// A fault when they are to end.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) || asked() { Err(fault()) } else { Ok(()) }
    }
}
