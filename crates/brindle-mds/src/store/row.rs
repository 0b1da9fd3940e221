//! The value of a row: a version byte, then postcard.

use brindle_types::{Code, Fault, Result};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of every row (1 was that of single components, 2 that of layouts without pools and moves). A row whose form changes gets its own
/// version and a conversion from the one before.
pub const VERSION: u8 = 3;

/// The bytes of a row.
pub fn encode<T: Serialize + ?Sized>(row: &T) -> Bytes {
    brindle_wire::frame::encode_behind([VERSION], row)
}

/// Reads a row; `what` and `key` name it where it is damaged.
pub fn decode<T: DeserializeOwned>(what: &'static str, key: &[u8], bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => match postcard::take_from_bytes(rest) {
            Ok((row, [])) => Ok(row),
            Ok((_, left)) => Err(damaged(what, key, format!("{} bytes are left over", left.len()))),
            Err(e) => Err(damaged(what, key, e.to_string())),
        },
        Some((version, _)) => Err(Fault::new(Code::NewerFormat)
            .what("cannot read a row of")
            .subject(what)
            .why(format!("its version is {version}, this release knows {VERSION}"))),
        None => Err(damaged(what, key, "it is empty".into())),
    }
}

/// A row that does not decode.
pub fn damaged(what: &'static str, key: &[u8], why: String) -> Fault {
    let key: String = key.escape_ascii().to_string();
    Fault::new(Code::KvDamaged).subject(format!("{what} row '{key}'")).why(why)
}
