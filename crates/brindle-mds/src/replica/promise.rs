//! Terms that other members take, and that this member therefore never takes.
//!
//! A primary tells its term to every member in sync before it takes it, so that no two openings of any members share a term. The record
//! lies beside the store: records of earlier terms may still be on their way, and a segment of the new one would end the log before them.

use brindle_stdx::Disk;
use brindle_targets::replica::kept;
use brindle_types::Result;
use brindle_wire::first_form;
use serde::{Deserialize, Serialize};

/// File of the record, in the directory of the target.
const RECORD_FILE: &str = "promised-term";

/// The record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PromisedTerm {
    /// Highest term that another member was about to take.
    term: u32,
}
first_form!(1 => PromisedTerm);

fn path(dir: &str) -> String {
    format!("{dir}/{RECORD_FILE}")
}

/// Highest term that another member was about to take; 0 for none.
pub(super) fn load(disk: &dyn Disk, dir: &str) -> Result<u32> {
    let found: Option<PromisedTerm> = kept::load(disk, &path(dir), "the record of terms")?;
    Ok(found.unwrap_or_default().term)
}

/// Records that another member is about to take this term. Durable on return.
pub(super) fn keep(disk: &dyn Disk, dir: &str, term: u32) -> Result<()> {
    if load(disk, dir)? >= term { Ok(()) } else { kept::save(disk, &path(dir), &PromisedTerm { term }) }
}

#[cfg(test)]
mod tests {
    use brindle_stdx::real_disk::RealDisk;
    use brindle_types::Code;

    use super::*;

    #[test]
    fn a_promise_only_rises_and_damage_is_named() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let disk = RealDisk::new(runtime.handle().clone());
        let dir = std::env::temp_dir().join(format!("promise-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let at = dir.display().to_string();
        assert_eq!(load(&disk, &at), Ok(0));
        for (told, kept) in [(7, 7), (5, 7), (9, 9)] {
            keep(&disk, &at, told).expect("kept");
            assert_eq!(load(&disk, &at), Ok(kept));
        }
        assert_eq!(std::fs::read(path(&at)).expect("there")[4..], [1, 9], "bytes on disk never change");
        std::fs::write(path(&at), [0; 3]).expect("written");
        assert_eq!(load(&disk, &at).map_err(|fault| fault.code), Err(Code::BadSuperblock));
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
