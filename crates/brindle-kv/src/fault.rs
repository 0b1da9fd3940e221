//! The messages of this crate, in one place, so that they read alike.

use std::io;

use brindle_types::{Code, Fault};

use crate::options::Damage;

const WHAT_LOG: &str = "cannot use the metadata log";
const WHAT_STORE: &str = "cannot use the metadata store";

/// A damaged place in a log segment.
pub(crate) fn log_damaged(path: &str, offset: u64, index: u64, why: impl Into<String>) -> Damage {
    let fault = Fault::new(Code::LogDamaged)
        .what(WHAT_LOG)
        .subject(format!("{path} at offset {offset}"))
        .why(why.into())
        .data(format!("records before {index} are intact; nothing was changed on disk"));
    Damage { file: path.to_owned(), offset: Some(offset), fault }
}

/// Records that should be in the log and are in no file.
pub(crate) fn log_missing(dir: &str, why: impl Into<String>) -> Damage {
    let fault = Fault::new(Code::LogDamaged)
        .what(WHAT_LOG)
        .subject(dir.to_owned())
        .why(why.into())
        .data("nothing was changed on disk");
    Damage { file: dir.to_owned(), offset: None, fault }
}

/// A failed call on a log file or the log's directory.
pub(crate) fn log_io(what: &'static str, path: &str, e: &io::Error) -> Fault {
    if is_full(e) {
        return Fault::io(Code::MdtFull, what, path.to_owned(), e);
    }
    Fault::io(Code::LogFailed, what, path.to_owned(), e)
}

/// Fault of every append and wait after the log stopped.
pub(crate) fn log_stopped(first: &Fault) -> Fault {
    // The request was abandoned: the present server may have the record, so the caller asks there.
    let code = if first.code == Code::NotOwner { Code::NotOwner } else { Code::LogFailed };
    let mut fault = Fault::new(code).subject(first.subject.clone()).why(first.what.clone());
    fault.why.extend(first.why.iter().cloned());
    fault.data("what was acknowledged is safe; nothing more is acknowledged")
}

/// The checkpoint file is damaged as a whole.
pub(crate) fn store_damaged(path: &str, why: impl Into<String>) -> Fault {
    Fault::new(Code::KvDamaged)
        .what(WHAT_STORE)
        .subject(path.to_owned())
        .why(why.into())
        .data("the damaged rows are not returned as data; nothing is rebuilt from them")
}

/// One row of the checkpoint file is damaged.
pub(crate) fn row_damaged(path: &str, key: &[u8]) -> Fault {
    Fault::new(Code::KvDamaged)
        .what("cannot read a row of the metadata store")
        .subject(format!("{} in {path}", row_name(key)))
        .why("its value does not match its checksum")
        .data("the damaged row is not returned as data")
}

/// A failed call on the checkpoint file.
pub(crate) fn store_io(what: &'static str, path: &str, e: &io::Error) -> Fault {
    if is_full(e) {
        return Fault::io(Code::MdtFull, what, path.to_owned(), e);
    }
    Fault::io(Code::KvFailed, what, path.to_owned(), e)
}

/// Whether a call failed for lack of space.
pub(crate) fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A key for people: its kind (the first byte, a letter in all of the MDT's rows) and the rest in hexadecimal.
pub fn row_name(key: &[u8]) -> String {
    let Some((&kind, rest)) = key.split_first() else { return "a row without a key".to_owned() };
    let mut name = if kind.is_ascii_graphic() {
        format!("row {}", kind as char)
    } else {
        format!("row of kind {kind:#04x}")
    };
    if !rest.is_empty() {
        name.push(' ');
        for byte in rest {
            name.push_str(&format!("{byte:02x}"));
        }
    }
    name
}
