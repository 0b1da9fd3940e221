//! Names of files until they are complete. A file is written under a name beside its own, for one copy alone, and renamed at its end.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, Result};
use rustix::fs::FlockOperation;

use super::failed;

/// End of the name of a file until it is complete.
pub(super) const PARTIAL: &str = ".brindle-stage";
/// How often the usual name is tried that other copies give away at that moment.
const OPEN_TRIES_MAX: usize = 10;
/// Longest name of a file.
const NAME_BYTES_MAX: usize = 255;

/// The name of a file until it is complete, with an ending of its own where another copy has the usual name.
pub(super) fn partial(to: &Path, ending: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(to.file_name().unwrap_or_default());
    name.push(PARTIAL);
    name.push(ending);
    // A name that would be too long is cut off: whoever else has it holds its lock.
    let name = if name.len() > NAME_BYTES_MAX { format!("{PARTIAL}{ending}").into() } else { name };
    to.with_file_name(name)
}

/// A name that no other copy has.
pub(super) fn own_partial(to: &Path) -> PathBuf {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), to);
    partial(to, &format!(".{random:016x}"))
}

/// Opens the empty file that becomes `to`, for this copy alone. The usual name is that of whoever locks its file, so that what a killed copy
/// has left is used again; another copy to `to` at the same time gets a name of its own.
pub(super) fn open_partial(to: &Path) -> Result<(File, PathBuf)> {
    let cannot = |e: std::io::Error| failed("cannot write", to, &e);
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let usual = partial(to, "");
    for _ in 0..OPEN_TRIES_MAX {
        let file = match options.clone().create(true).truncate(false).open(&usual) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                if remove_unlocked(&usual) {
                    continue;
                }
                // The file belongs to another user.
                break;
            }
            opened => opened.map_err(cannot)?,
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The file may have been renamed or removed by the copy that held the lock.
            Ok(()) if !is_at(&file, &usual) => {}
            Ok(()) => {
                file.set_len(0).map_err(cannot)?;
                return Ok((file, usual));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => break,
            // On a file system without locks, no copy has the usual name.
            Err(_) => {
                remove_if_there(&usual)?;
                break;
            }
        }
    }
    let own = own_partial(to);
    let file = options.create_new(true).open(&own).map_err(cannot)?;
    Ok((file, own))
}

/// Removes what a killed copy has left with its last permissions, which need not let its owner write.
fn remove_unlocked(path: &Path) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let Ok(file) = opened else { return false };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && is_at(&file, path)
        && std::fs::remove_file(path).is_ok()
}

/// Whether a file still has this name.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |meta: Metadata| (meta.dev(), meta.ino());
    let there = std::fs::symlink_metadata(path).map(identity);
    file.metadata().map(identity).is_ok_and(|own| there.is_ok_and(|there| own == there))
}

pub(super) fn replaced(to: &Path) -> Fault {
    Fault::new(Code::StageFailed)
        .what("cannot rename to")
        .subject(to.display().to_string())
        .why("the file that was written for it has been renamed, replaced or removed meanwhile")
        .data("what was there before is unchanged")
}

pub(super) fn rename_or_remove(partial: &Path, to: &Path) -> Result<()> {
    std::fs::rename(partial, to).map_err(|e| {
        // The fault is what counts.
        let _ = std::fs::remove_file(partial);
        failed("cannot rename to", to, &e)
    })?;
    // rename(2) of one of two names of a file to the other does nothing, and leaves both.
    remove_if_there(partial)
}

pub(super) fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed("cannot replace", path, &e)),
        _ => Ok(()),
    }
}
