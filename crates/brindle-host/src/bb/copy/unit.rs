//! Copies that another host has divided off: the process that makes them, as the user.
//!
//! It opens every directory without following a link below the one that it was told, and gives no file its name: that does the
//! orchestrator's host, which takes only the files of a try that has answered. So a process that is late writes into files that nobody takes.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, Result};
use brindle_wire::bb::{StageFile, StageRange, StageTop, StageUnit, StagedFile};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat, openat2};
use serde::{Deserialize, Serialize};

use super::partial::partial;
use super::share::{Share, ending_of};
use super::{Copy, failed, has_changed, is_same, user};

/// A look at directories, as the user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckWork {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// Directories below which this host stages files.
    pub offers: Vec<String>,
    /// The directories.
    pub tops: Vec<StageTop>,
}

/// Files to copy, as the user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnitWork {
    /// The directory of the buffer that nodes share, in the mount of this host.
    pub root: PathBuf,
    /// Directories below which this host stages files.
    pub offers: Vec<String>,
    /// The files.
    pub unit: StageUnit,
}

/// Flags of a directory that only leads to others.
const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Why a directory is not what it is on the orchestrator's host; empty where all are.
pub(super) fn check(work: &CheckWork) -> Result<String> {
    user::become_user(work.uid, work.gid)?;
    Ok(work.tops.iter().find_map(|top| open_top(top, &work.offers, true).err()).unwrap_or_default())
}

/// Opens a directory that is the one on the orchestrator's host, as far as that can be seen.
fn open_top(top: &StageTop, offers: &[String], is_first: bool) -> std::result::Result<OwnedFd, String> {
    let path = &top.path;
    let cannot = |what: &str, e: std::io::Error| format!("{path}: {what}: {e}");
    let real = std::fs::canonicalize(path).map_err(|e| cannot("cannot enter it", e))?;
    let is_offered = |offer: &String| std::fs::canonicalize(offer).is_ok_and(|dir| real.starts_with(dir));
    if !offers.iter().any(is_offered) {
        return Err(format!("{path}: its agent stages files below {} only", offers.join(", ")));
    }
    // What became a link since then is not followed.
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let dir = openat2(CWD, &real, DIR, Mode::empty(), how).map_err(|e| cannot("cannot open it", e.into()))?;
    let (stat, kind) = fstat(&dir)
        .and_then(|stat| Ok((stat, fstatfs(&dir)?.f_type)))
        .map_err(|e| cannot("cannot look at it", e.into()))?;
    let time = (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(i64::MAX));
    // A directory that has changed since has a later time; each file is compared as well.
    let is_older = is_first && time < (top.mtime_s, top.mtime_ns);
    if (stat.st_ino, kind) != (top.inode, top.kind) || is_older {
        return Err(format!(
            "{path} is another directory there: another file system is mounted at that path"
        ));
    }
    Ok(dir)
}

/// The directories that the files of a unit are in. The last one is kept: files come directory by directory.
struct Tree {
    top: OwnedFd,
    last: Option<(PathBuf, OwnedFd)>,
}

impl Tree {
    fn new(top: OwnedFd) -> Tree {
        Tree { top, last: None }
    }

    /// A path to an entry for this process, and the inode number of its directory.
    fn entry(&mut self, path: &str) -> std::io::Result<(PathBuf, u64)> {
        let path = Path::new(path);
        let wrong = || std::io::Error::from(std::io::ErrorKind::InvalidInput);
        let (name, dir) = (path.file_name().ok_or_else(wrong)?, path.parent().ok_or_else(wrong)?);
        let held = match self.last.take() {
            Some((known, held)) if known == dir => held,
            _ => beneath(&self.top, dir)?,
        };
        let at = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())).join(name);
        let inode = fstat(&held)?.st_ino;
        self.last = Some((dir.to_owned(), held));
        Ok((at, inode))
    }
}

/// A directory below another one, reached without any link.
fn beneath(top: &OwnedFd, path: &Path) -> std::io::Result<OwnedFd> {
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    Ok(openat2(top, path, DIR, Mode::empty(), how)?)
}

/// Copies what a unit has.
pub(super) fn copy(work: &UnitWork) -> Result<Vec<StagedFile>> {
    let unit = &work.unit;
    user::become_user(unit.uid, unit.gid)?;
    copy_files(work)
}

/// Copies what a unit has; called as the user.
pub(super) fn copy_files(work: &UnitWork) -> Result<Vec<StagedFile>> {
    let unit = &work.unit;
    let refused = |why: String| Fault::new(Code::StageFailed).what("cannot stage").why(why);
    let outside = open_top(&unit.outside, &work.offers, false).map_err(refused)?;
    let root = openat(CWD, &work.root, DIR, Mode::empty())
        .map_err(|e| failed("cannot enter the buffer", &work.root, &e.into()))?;
    let inside = beneath(&root, Path::new(&unit.inside))
        .map_err(|e| failed("cannot enter the buffer", &work.root, &e))?;
    let (from, to) = if unit.stages_in { (outside, inside) } else { (inside, outside) };
    let (mut from, mut to) = (Tree::new(from), Tree::new(to));
    let mut copy = Copy::new(Share::alone());
    let each = unit.files.iter().enumerate().map(|(index, file)| {
        let copied = match unit.range {
            None => whole(&mut copy, (&mut from, &mut to), file, &ending_of(&unit.ending, index)),
            Some(range) if range.compares => compare(&mut copy, (&mut from, &mut to), file, range),
            Some(range) => {
                part(&mut copy, (&mut from, &mut to), file, &ending_of(&unit.ending, index), range)
            }
        };
        copied.unwrap_or_else(|fault| StagedFile::Failed { why: crate::bb::orchestrator::short(&fault) })
    });
    Ok(each.collect())
}

/// Opens a source that is the one which the orchestrator's host has seen, and the path of its copy.
fn open(file: &StageFile, (from, to): (&mut Tree, &mut Tree)) -> Result<(File, PathBuf)> {
    let cannot = |e: std::io::Error| failed("cannot open", Path::new(&file.from), &e);
    let differs = |what: &'static str, path: &str| {
        Fault::new(Code::StageFailed)
            .what("cannot stage")
            .subject(path.to_owned())
            .why(format!("{what} is another one here than on the host of the orchestrator"))
    };
    let (at, _) = from.entry(&file.from).map_err(cannot)?;
    let source = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(at).map_err(cannot)?;
    let meta = source.metadata().map_err(cannot)?;
    let seen = (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    if !meta.is_file() || seen != (file.inode, file.bytes, file.mtime_s, file.mtime_ns) {
        return Err(differs("the file", &file.from));
    }
    let (at, inode) = to.entry(&file.to).map_err(|e| failed("cannot open", Path::new(&file.to), &e))?;
    if inode != file.into {
        return Err(differs("the directory of the copy", &file.to));
    }
    Ok((source, at))
}

/// Copies a file; its name is still to be given.
fn whole(
    copy: &mut Copy,
    trees: (&mut Tree, &mut Tree),
    file: &StageFile,
    ending: &str,
) -> Result<StagedFile> {
    let (source, to) = open(file, trees)?;
    let meta = source.metadata().map_err(|e| failed("cannot look at", &to, &e))?;
    let shown = Path::new(&file.from);
    let looks_same = std::fs::symlink_metadata(&to).is_ok_and(|there| is_same(&there, &meta));
    if looks_same && copy.has_contents(&source, shown, &to)? && !has_changed(&source, &meta, shown)? {
        return Ok(StagedFile::Unchanged);
    }
    let part = partial(&to, ending);
    let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let target = target.map_err(|e| failed("cannot make the copy of", shown, &e))?;
    let lost = copy.outcome.attributes_lost;
    match copy.fill(&source, &target, shown, &to) {
        // Only the orchestrator's host, which may know more groups of the user, decides that a group is lost.
        Ok(_) if target.metadata().is_ok_and(|made| made.gid() != meta.gid()) => {
            std::fs::remove_file(&part).map_err(|e| failed("cannot remove", shown, &e))?;
            Ok(StagedFile::Failed { why: format!("{}: the user is not in its group here", file.from) })
        }
        Ok((bytes, _)) => {
            Ok(StagedFile::Copied { bytes, attributes_lost: copy.outcome.attributes_lost - lost })
        }
        Err(fault) => {
            // The fault is what counts; the orchestrator's host removes what stays.
            let _ = std::fs::remove_file(&part);
            Err(fault)
        }
    }
}

/// Copies a part of a file.
fn part(
    copy: &mut Copy,
    trees: (&mut Tree, &mut Tree),
    file: &StageFile,
    ending: &str,
    range: StageRange,
) -> Result<StagedFile> {
    let (source, to) = open(file, trees)?;
    let shown = Path::new(&file.to);
    let target = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(partial(&to, ending));
    let target = target.map_err(|e| failed("cannot write", shown, &e))?;
    let bytes = copy.part(&source, &target, range.start..range.end, (Path::new(&file.from), shown))?;
    target.sync_all().map_err(|e| failed("cannot sync", shown, &e))?;
    Ok(StagedFile::Copied { bytes, attributes_lost: 0 })
}

/// Compares a part of a file with that which is there already.
fn compare(
    copy: &mut Copy,
    trees: (&mut Tree, &mut Tree),
    file: &StageFile,
    range: StageRange,
) -> Result<StagedFile> {
    let (source, to) = open(file, trees)?;
    let shown = Path::new(&file.to);
    let there = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&to);
    let there = there.map_err(|e| failed("cannot read", shown, &e))?;
    if copy.is_equal(&source, &there, range.start..range.end, Path::new(&file.from))? {
        return Ok(StagedFile::Unchanged);
    }
    Ok(StagedFile::Failed { why: format!("{} differs from its source, and is copied again", file.to) })
}
