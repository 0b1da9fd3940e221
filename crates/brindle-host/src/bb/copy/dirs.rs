//! Directories that a copy writes into: opened without following links of others, and durable once they are made.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use brindle_types::{Code, Fault, Result};

use super::{MODE_BITS, failed};

/// Opens a destination that is a directory, or at the top a link to one.
pub(super) fn open_dir(dir: &Path, is_top: bool, flags: i32) -> Result<File> {
    let no_link = if is_top { 0 } else { libc::O_NOFOLLOW };
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags | no_link | libc::O_DIRECTORY);
    options.open(dir).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOTDIR | libc::ELOOP) => no_directory(dir),
        _ => failed("cannot open", dir, &e),
    })
}

pub(super) fn no_directory(to: &Path) -> Fault {
    let is_link = std::fs::symlink_metadata(to).is_ok_and(|there| there.is_symlink());
    let (why, next) = match is_link {
        true => (
            "it is a symbolic link, and links below the destination are not followed",
            "remove the link, or stage the directory that it leads to by a directive of its own",
        ),
        false => ("a directory is to be copied there, and it is none", "remove it, or give it another name"),
    };
    Fault::new(Code::StageFailed)
        .what("will not write into")
        .subject(to.display().to_string())
        .why(why)
        .next(next)
}

/// A directory of this user's that an earlier copy has closed again is opened until its contents are complete.
pub(super) fn open_to_owner(dir: &Path, is_top: bool) -> Result<()> {
    let held = open_dir(dir, is_top, libc::O_PATH)?;
    let meta = held.metadata().map_err(|e| failed("cannot look at", dir, &e))?;
    let mode = meta.mode() & MODE_BITS;
    if meta.uid() != rustix::process::geteuid().as_raw() || mode & 0o700 == 0o700 {
        return Ok(());
    }
    // By way of what is held: its name may lead elsewhere by now.
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode | 0o700))
        .map_err(|e| failed("cannot set the permissions of", dir, &e))
}

/// Makes the directories above a destination, with the usual permissions, and syncs them.
pub(super) fn make_parents(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(above) = dir.parent() {
        make_parents(above)?;
    }
    std::fs::create_dir(dir).map_err(|e| failed("cannot make", dir, &e))?;
    let usual = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir, usual).map_err(|e| failed("cannot set the permissions of", dir, &e))?;
    sync_entry(dir.parent().unwrap_or(Path::new("/")), dir)
}

/// Makes the entry of `made` in `dir` durable, also where the user may write to `dir` and not read it.
pub(super) fn sync_entry(dir: &Path, made: &Path) -> Result<()> {
    let whole = match File::open(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => File::open(made),
        opened => return opened.and_then(|dir| dir.sync_all()).map_err(|e| failed("cannot sync", dir, &e)),
    };
    whole.and_then(|made| Ok(rustix::fs::syncfs(made)?)).map_err(|e| failed("cannot sync", made, &e))
}
