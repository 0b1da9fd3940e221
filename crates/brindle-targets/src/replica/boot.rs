//! The boot term of a member whose store has none of its own: a number that changes whenever unsynced changes may have been lost.
//!
//! A start under the same boot of the host and the same mount keeps it, since a killed process loses nothing that was written. Any other start
//! takes the next one, which is durable before it is used.

use brindle_stdx::{Disk, planted};
use brindle_types::{Code, Fault, Result};
use brindle_wire::first_form;
use serde::{Deserialize, Serialize};

use super::kept;

/// File of the record, in the directory of the target.
const RECORD_FILE: &str = "boot";
/// Name of the record, for people.
const WHAT: &str = "the record of boot terms";

/// The recorded term, and under which boot and mount it was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BootRecord {
    term: u32,
    boot_id: String,
    mount_id: u64,
}
first_form!(1 => BootRecord);

/// The boot term of this start of the target in `dir`.
pub fn term(disk: &dyn Disk, dir: &str) -> Result<u32> {
    let path = format!("{dir}/{RECORD_FILE}");
    let now = disk.boot_identity(dir).map_err(|e| {
        Fault::io(Code::BadSuperblock, "cannot tell the boot and mount of", dir.to_owned(), &e)
    })?;
    let recorded: Option<BootRecord> = kept::load(disk, &path, WHAT)?;
    if let Some(known) = recorded.as_ref().filter(|_| planted("set_keeps_the_boot_term")) {
        return Ok(known.term);
    }
    if let Some(known) = &recorded
        && (known.boot_id.as_str(), known.mount_id) == (now.boot_id.as_str(), now.mount_id)
    {
        return Ok(known.term);
    }
    let next = recorded.map_or(Some(1), |known| known.term.checked_add(1));
    let term =
        next.ok_or_else(|| Fault::new(Code::Bug).what("the member has had all boot terms there are"))?;
    let record = BootRecord { term, boot_id: now.boot_id, mount_id: now.mount_id };
    kept::save(disk, &path, &record)?;
    Ok(term)
}

#[cfg(test)]
mod tests {
    use brindle_stdx::real_disk::RealDisk;
    use brindle_wire::form::{self, FormatLevel};

    use super::*;

    #[test]
    fn a_start_in_the_same_boot_keeps_the_term_and_another_does_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let disk = RealDisk::new(runtime.handle().clone());
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().display().to_string();
        assert_eq!(term(&disk, &dir).expect("recorded"), 1);
        assert_eq!(term(&disk, &dir).expect("read"), 1);
        let path = format!("{dir}/{RECORD_FILE}");
        let mut record: BootRecord = kept::load(&disk, &path, WHAT).expect("read").expect("there");
        record.boot_id = "another".to_owned();
        kept::save(&disk, &path, &record).expect("written");
        let bytes = std::fs::read(&path).expect("there");
        assert_eq!(term(&disk, &dir).expect("recorded"), 2);
        std::fs::write(&path, &bytes[..9]).expect("written");
        assert_eq!(term(&disk, &dir).map_err(|fault| fault.code), Err(Code::BadSuperblock));
    }

    #[test]
    fn bytes_on_disk_never_change() {
        let record = BootRecord { term: 7, boot_id: "ab".to_owned(), mount_id: 258 };
        let body = form::encode(FormatLevel::FIRST, &record).expect("encoded");
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "01070261628202");
    }
}
