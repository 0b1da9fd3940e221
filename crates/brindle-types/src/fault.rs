//! `Fault`: an error as the product. It crosses the wire; an errno is derived from it, never the other way round.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::code::Code;

/// Description of a failure: what happened, to what, why, whether data is safe, and what to do next.
///
/// Rules for the texts (STYLE section 7): the verb first; the thing as the user named it; numbers with units; `next`
/// is a command where one exists; outer text never repeats the inner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Stable number; decides the errno, the explanation and where the message belongs.
    pub code: Code,
    /// Failed action, without its subject: `cannot create`.
    pub what: Cow<'static, str>,
    /// The thing it happened to, as the user named it: `/scratch/run7/out.h5`.
    pub subject: Cow<'static, str>,
    /// Causes, outermost first.
    pub why: Vec<Cow<'static, str>>,
    /// Whether data is safe; empty where no data is concerned.
    pub data: Cow<'static, str>,
    /// Next step; empty where the code's own advice is all there is.
    pub next: Cow<'static, str>,
}

impl Fault {
    /// A fault with the code's own title and nothing else; cheap, for outcomes that are part of normal work
    /// (a name that does not exist).
    pub fn new(code: Code) -> Fault {
        Fault {
            code,
            what: Cow::Borrowed(code.title()),
            subject: Cow::Borrowed(""),
            why: Vec::new(),
            data: Cow::Borrowed(""),
            next: Cow::Borrowed(""),
        }
    }

    /// Says what happened, in place of the code's title.
    pub fn what(mut self, what: impl Into<Cow<'static, str>>) -> Fault {
        self.what = what.into();
        self
    }

    /// Names the thing it happened to.
    pub fn subject(mut self, subject: impl Into<Cow<'static, str>>) -> Fault {
        self.subject = subject.into();
        self
    }

    /// Adds a cause, innermost last.
    pub fn why(mut self, why: impl Into<Cow<'static, str>>) -> Fault {
        self.why.push(why.into());
        self
    }

    /// Says whether data is safe.
    pub fn data(mut self, data: impl Into<Cow<'static, str>>) -> Fault {
        self.data = data.into();
        self
    }

    /// Says what to do next.
    pub fn next(mut self, next: impl Into<Cow<'static, str>>) -> Fault {
        self.next = next.into();
        self
    }

    /// A failed system call underneath: the code, what was tried on what, and the system's reason.
    pub fn io(
        code: Code,
        what: &'static str,
        subject: impl Into<Cow<'static, str>>,
        e: &std::io::Error,
    ) -> Fault {
        Fault::new(code).what(what).subject(subject).why(e.to_string())
    }

    /// The errno that a system call returns for this fault.
    pub fn errno(&self) -> i32 {
        self.code.errno()
    }
}

impl fmt::Display for Fault {
    /// The full message, as commands print it after `error: `.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.subject.is_empty() {
            write!(f, " {}", self.subject)?;
        }
        for why in &self.why {
            write!(f, "\n  why:  {why}")?;
        }
        if !self.data.is_empty() {
            write!(f, "\n  data: {}", self.data)?;
        }
        let next = if self.next.is_empty() { self.code.advice() } else { &self.next };
        if !next.is_empty() {
            write!(f, "\n  next: {next}")?;
        }
        write!(f, "\n  code: {} (brindle explain {})", self.code, self.code)
    }
}

impl std::error::Error for Fault {}
