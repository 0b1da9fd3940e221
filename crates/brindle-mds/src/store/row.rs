//! The value of a row: a version byte, then postcard (`brindle_wire::form`).
//!
//! Each type of row has a version of its own. A row is rewritten in the newest form that the format level allows when it is changed.

use brindle_types::{Code, Fault, Result};
use brindle_wire::form::{self, Unreadable};
pub use brindle_wire::form::{Form, FormatLevel};
use bytes::Bytes;

/// Version of every row of release 0.1.0. (Older numbers were used before the first release, and are refused.)
pub const FIRST_VERSION: u8 = 3;

/// Declares types whose rows have the form of release 0.1.0.
macro_rules! first_form {
    ($($row:ty),+ $(,)?) => {
        brindle_wire::first_form!($crate::store::row::FIRST_VERSION => $($row),+);
    };
}
pub(crate) use first_form;

/// The bytes of a row in a file system of this level.
pub fn encode<T: Form>(level: FormatLevel, row: &T) -> Result<Bytes> {
    form::encode(level, row)
}

/// Reads a row of any release up to this one; `what` and `key` name it where it is damaged.
pub fn decode<T: Form>(what: &'static str, key: &[u8], bytes: &[u8]) -> Result<T> {
    let newer = |fault: Fault| {
        if fault.code == Code::NewerFormat { fault.what("cannot read a row of") } else { fault }
    };
    form::decode(bytes).map_err(|why: Unreadable| newer(why.fault(what, |why| damaged(what, key, why))))
}

/// A row that does not decode.
pub fn damaged(what: &'static str, key: &[u8], why: String) -> Fault {
    let key: String = key.escape_ascii().to_string();
    Fault::new(Code::KvDamaged).subject(format!("{what} row '{key}'")).why(why)
}
