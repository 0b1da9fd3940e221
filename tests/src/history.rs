//! Record of the calls of programs and their results, kept outside of the file system: the witness against
//! it.
//!
//! Called by every load. Each operation has a line, written when the operation has ended: the caller, the time of the
//! call, the time of the answer, the operation, its result. Invariant: the clock of a history only goes forward, and is
//! the same for all its writers.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Times at which an operation was asked and answered, in nanoseconds since the start of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Just before the call.
    pub asked: u64,
    /// Just after it.
    pub answered: u64,
}

/// The witness; clones write to the same file.
#[derive(Clone)]
pub struct History {
    start: Instant,
    out: Arc<Mutex<BufWriter<File>>>,
}

impl History {
    /// A new history in the file `path`.
    ///
    /// # Panics
    /// When the file cannot be made.
    pub fn create(path: &Path) -> History {
        let file = File::create(path).expect("the history can be made");
        History { start: Instant::now(), out: Arc::new(Mutex::new(BufWriter::new(file))) }
    }

    /// Nanoseconds since its start.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a test ends within 584 years")
    }

    /// Does something and writes down when and how it ended.
    pub fn record<T>(
        &self,
        who: &str,
        what: impl std::fmt::Display,
        work: impl FnOnce() -> std::io::Result<T>,
    ) -> (Span, std::io::Result<T>) {
        let asked = self.now();
        let result = work();
        let span = Span { asked, answered: self.now() };
        match &result {
            Ok(_) => self.line(who, span, &format!("{what}: ok")),
            Err(e) => self.line(who, span, &format!("{what}: {e}")),
        }
        (span, result)
    }

    /// Writes something down that is not an operation: a fault, a remark.
    pub fn note(&self, who: &str, what: &str) {
        let now = self.now();
        self.line(who, Span { asked: now, answered: now }, what);
        // A note is rare; with it everything before it is on disk if the test process dies.
        let _ = self.out.lock().unwrap_or_else(PoisonError::into_inner).flush();
    }

    fn line(&self, who: &str, span: Span, what: &str) {
        let micros = |ns: u64| ns / 1000;
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        // A full disk outside the file system under test shows in everything else too.
        let _ = writeln!(out, "{:>12} {:>12} {who:<10} {what}", micros(span.asked), micros(span.answered));
    }
}
