//! Small records of a member beside its store: one in a file, with a checksum, replaced as a whole.

use brindle_stdx::disk::{read_file, replace_file};
use brindle_stdx::{Disk, crc};
use brindle_types::{Code, Fault, Result};
use brindle_wire::form::{self, Form, FormatLevel};

/// Largest file that is taken for a record.
const RECORD_MAX_BYTES: usize = 64 << 10;

fn damaged(what: &'static str, path: &str, why: &str) -> Fault {
    Fault::new(Code::BadSuperblock)
        .what(format!("{what} is damaged:"))
        .subject(path.to_owned())
        .why(why.to_owned())
        .data("objects and rows are not touched")
        .next("have the member filled anew: brindle target replica remove, empty the directory, brindle target replica add")
}

/// Reads a record, `what` it is for people; `None` where there is none.
pub fn load<T: Form>(disk: &dyn Disk, path: &str, what: &'static str) -> Result<Option<T>> {
    let bytes = match read_file(disk, path, RECORD_MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Fault::io(Code::BadSuperblock, "cannot read", path.to_owned(), &e)),
    };
    let Some((sum, body)) = bytes.split_first_chunk::<4>() else {
        return Err(damaged(what, path, "it is too short"));
    };
    if u32::from_le_bytes(*sum) != crc(body) {
        return Err(damaged(what, path, "its checksum is wrong"));
    }
    form::decode(body).map(Some).map_err(|why| why.fault(what, |why| damaged(what, path, &why)))
}

/// Writes a record; durable on return.
pub fn save<T: Form>(disk: &dyn Disk, path: &str, record: &T) -> Result<()> {
    let body = form::encode(FormatLevel::FIRST, record)?;
    let bytes = [&crc(&body).to_le_bytes()[..], &body].concat();
    replace_file(disk, path, &bytes)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot write", path.to_owned(), &e))
}
