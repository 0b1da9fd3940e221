//! Printing of commands. A failed write is no panic.
//!
//! The macros of this module stand in for those of the standard library in the whole crate. A reader who has gone (`|
//! head`) ends the output quietly; any other error is kept until the command has done its work, and is its error then
//! ([`failed`]).

use std::fmt;
use std::io::{self, Write};
use std::sync::Mutex;

use brindle_types::{Code, Fault};

/// Prints on standard output.
macro_rules! print {
    ($($text:tt)*) => { $crate::print::out(format_args!($($text)*)) };
}
/// Prints a line on standard output.
macro_rules! println {
    () => { $crate::print::out(format_args!("\n")) };
    ($($text:tt)*) => { $crate::print::out(format_args!("{}\n", format_args!($($text)*))) };
}
/// Prints on standard error; nobody can be told where that fails.
macro_rules! eprint {
    ($($text:tt)*) => { $crate::print::err(format_args!($($text)*)) };
}
/// Prints a line on standard error; nobody can be told where that fails.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::print::err(format_args!("{}\n", format_args!($($text)*))) };
}

/// The first error of standard output.
static FIRST_ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

fn first_error() -> std::sync::MutexGuard<'static, Option<io::Error>> {
    FIRST_ERROR.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Prints on standard output; after an error nothing more is printed.
pub fn out(text: fmt::Arguments<'_>) {
    let mut error = first_error();
    if error.is_none() {
        let mut out = Raw { out: io::stdout().lock(), error: None };
        // An error of a part of the text itself would be no other; that of the output is kept.
        let _ = fmt::write(&mut out, text);
        *error = out.error;
    }
}

/// An output that has the bytes of paths in it ([`crate::paths`]).
struct Raw<W> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> fmt::Write for Raw<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        brindle_admin::paths::write_raw(&mut self.out, text).map_err(|e| {
            self.error = Some(e);
            fmt::Error
        })
    }
}

/// Prints on standard error.
pub fn err(text: fmt::Arguments<'_>) {
    // Standard error was the last place for the message.
    let _ = fmt::write(&mut Raw { out: io::stderr().lock(), error: None }, text);
}

/// Reason why not all of the output could be printed; `None` also if its reader has gone, because that is no
/// failure. Called at the end of a command.
pub fn failed() -> Option<Fault> {
    let mut error = first_error();
    if error.is_none() {
        *error = io::stdout().lock().flush().err();
    }
    error.as_ref().filter(|e| e.kind() != io::ErrorKind::BrokenPipe).map(fault)
}

/// The fault of an output that failed.
pub fn fault(e: &io::Error) -> Fault {
    Fault::io(Code::CannotPrint, "cannot print to", "standard output", e)
}
