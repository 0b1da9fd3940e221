//! The boot term: a number that changes whenever unsynced writes may have been lost.
//!
//! A start under the same boot of the host and the same mount keeps the term, because a killed process loses nothing
//! that was written. Any other start, and every failed sync, takes a new term. A disk that has just failed to sync may
//! fail to sync the new term, too. Therefore every boot has [`BOOT_TERMS`] numbers of its own. The first one is synced;
//! later ones need only be written, so that the next process finds them. A power cut that loses a later one also ends
//! the boot, and the next boot begins above all of them. Invariant: no term is used twice, whatever syncs fail; the
//! first of a boot is durable before it is used.

use std::io::ErrorKind;

use brindle_stdx::Disk;
use brindle_stdx::cast::len_u16;
use brindle_stdx::codec::Reader;
use brindle_stdx::disk::{BootIdentity, OpenHow, read_file, replace_file};
use brindle_types::{Code, Fault};

use crate::format::{seal, unseal};
use crate::replies::NOTHING_LOST;

const MAGIC: u32 = 0x4242_4f54; // BBOT
const VERSION: u16 = 1;
const FILE_LEN: usize = 256;
/// Terms that every boot has for itself: one for its start, the others for failed syncs.
pub const BOOT_TERMS: u32 = 1 << 16;
/// Longest boot id that is kept.
const BOOT_ID_MAX: usize = 128;

/// Term of a target that never ran before.
pub const FIRST_TERM: u32 = 1;

/// The recorded term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootFile {
    /// The term.
    pub term: u32,
    /// Boot and mount under which the term was taken.
    pub identity: BootIdentity,
}

impl BootFile {
    fn encode(&self) -> [u8; FILE_LEN] {
        let id = self.identity.boot_id.as_bytes();
        let id = &id[..id.len().min(BOOT_ID_MAX)];
        let mut body = Vec::with_capacity(FILE_LEN);
        body.extend(MAGIC.to_be_bytes());
        body.extend(VERSION.to_be_bytes());
        body.extend(len_u16(id.len()).to_be_bytes());
        body.extend(self.term.to_be_bytes());
        body.extend(self.identity.mount_id.to_be_bytes());
        body.extend(id);
        seal(&body)
    }

    fn decode(bytes: &[u8]) -> Option<BootFile> {
        let mut r = Reader::new(unseal(bytes)?);
        if r.u32()? != MAGIC || r.u16()? != VERSION {
            return None;
        }
        let id_len = r.u16()? as usize;
        let (term, mount_id) = (r.u32()?, r.u64()?);
        let boot_id = String::from_utf8(r.take(id_len)?.to_vec()).ok()?;
        Some(BootFile { term, identity: BootIdentity { boot_id, mount_id } })
    }

    /// The term after a failed sync; `None` when the boot has had all of its own.
    pub fn after_failed_sync(&self) -> Option<BootFile> {
        let is_ours = |next: &u32| same_boot(*next, self.term) && *next != NOTHING_LOST;
        let term = self.term.checked_add(1).filter(is_ours)?;
        Some(BootFile { term, identity: self.identity.clone() })
    }

    /// Writes the term so that it survives the process.
    pub fn write(&self, disk: &dyn Disk, path: &str) -> std::io::Result<()> {
        disk.open(path, OpenHow::Existing)?.write_at(&self.encode(), 0)
    }

    /// Makes the term durable.
    pub fn store(&self, disk: &dyn Disk, path: &str) -> Result<(), Fault> {
        replace_file(disk, path, &self.encode())
            .map_err(|e| Fault::io(Code::OstIo, "cannot record the boot term in", path.to_owned(), &e))
    }
}

/// Whether two terms are of one boot of the host: what was written between them is in the page cache, durable or not.
pub fn same_boot(a: u32, b: u32) -> bool {
    a / BOOT_TERMS == b / BOOT_TERMS
}

/// The recorded term, `None` on a target that never ran.
pub fn load(disk: &dyn Disk, path: &str) -> Result<Option<BootFile>, Fault> {
    let bytes = match read_file(disk, path, FILE_LEN) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Fault::io(Code::OstIo, "cannot read the boot term from", path.to_owned(), &e)),
        Ok(bytes) => bytes,
    };
    BootFile::decode(&bytes).map(Some).ok_or_else(|| {
        Fault::new(Code::BadSuperblock)
            .what("cannot serve: the record of boot terms is damaged:")
            .subject(path.to_owned())
            .data("objects are not touched")
            .next(
                "restore the file from a backup; its term must not be lower than any that clients have seen",
            )
    })
}

/// Decides the term of this start: (term, whether it is a new one). A new one is durable on return.
pub fn start(disk: &dyn Disk, root: &str, path: &str) -> Result<(BootFile, bool), Fault> {
    let identity = disk
        .boot_identity(root)
        .map_err(|e| Fault::io(Code::OstIo, "cannot tell the boot and mount of", root.to_owned(), &e))?;
    let recorded = load(disk, path)?;
    if let Some(file) = &recorded
        && file.identity == identity
    {
        return Ok((file.clone(), false));
    }
    let next = recorded.map_or(Some(FIRST_TERM), |f| (f.term / BOOT_TERMS + 1).checked_mul(BOOT_TERMS));
    let term = next.ok_or_else(|| Fault::new(Code::Bug).what("the OST has had all boot terms there are"))?;
    let file = BootFile { term, identity };
    file.store(disk, path)?;
    Ok((file, true))
}

/// Whether bytes are a record of this table, for tests with garbage.
#[cfg(test)]
pub(crate) fn decodes(record: &[u8]) -> bool {
    BootFile::decode(record).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let file = BootFile { term: 7, identity: BootIdentity { boot_id: "ab-cd".into(), mount_id: 0x0102 } };
        let bytes = file.encode();
        let head = "42424f540001000500000007000000000000010261622d6364";
        assert_eq!(crate::hex(&bytes[..25]), head);
        assert_eq!(BootFile::decode(&bytes), Some(file));
        let mut bad = bytes;
        bad[11] ^= 1;
        assert_eq!(BootFile::decode(&bad), None);
    }
}
