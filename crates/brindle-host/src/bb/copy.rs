//! The process that copies files between a buffer and another file system, as the user of the job.
//!
//! Before the first byte is copied, sources, rights and space are checked. A file is written under another name, synced, and renamed, so
//! that a half is never taken for the file. A file that exists already with the same time and the same contents is not copied again: a copy
//! that was cut off continues where it was. Modes, times, groups, extended attributes, ACLs, hard links and holes are kept; sockets, pipes
//! and devices are passed over.

mod dirs;
mod large;
mod list;
mod partial;
mod share;
mod side;
mod unit;
mod user;
mod xattr;

pub use share::{Heard, Said};
pub use unit::{CheckWork, UnitWork};
pub use user::become_user;

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{BufRead, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brindle_bb::{Entry, Transfer};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use rustix::fs::{Access, AtFlags, CWD, SeekFrom, Timespec, Timestamps};
use serde::{Deserialize, Serialize};

use dirs::{make_parents, no_directory, open_dir, open_to_owner, sync_entry};
use partial::{is_at, open_partial, own_partial, rename_or_remove, replaced};
use share::{Later, Order, Share};
use side::Route;

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Deepest directory below the one that is staged.
const DEPTH_MAX: usize = 512;
/// How often a file is copied that is written meanwhile.
const CHANGED_TRIES_MAX: usize = 3;
/// Beginning of a fault about the source of a copy.
const CANNOT_READ: &str = "cannot read";
/// Bits of permissions.
const MODE_BITS: u32 = 0o7777;
/// Most files with several names whose first name is remembered; further ones become files of their own.
const HARD_LINKS_MAX: usize = 1 << 20;

/// Order to copy, and for whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyWork {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// Whether into the buffer.
    pub stages_in: bool,
    /// The copies, each with the directory of the buffer that it goes into or comes out of.
    pub transfers: Vec<(Transfer, PathBuf)>,
    /// Serial number of the job's buffer.
    pub serial: u64,
    /// Serial number of the buffer of each copy.
    pub buffers: Vec<u64>,
}

/// Result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOutcome {
    /// Files that were copied.
    pub files: u64,
    /// Bytes of the copied files.
    pub bytes: u64,
    /// Files that were there already.
    pub unchanged: u64,
    /// Sockets, pipes and devices.
    pub skipped: u64,
    /// Further names of files.
    pub links: u64,
    /// Extended attributes that the destination cannot hold.
    pub attributes_lost: u64,
}

/// A copy with its paths.
struct Pair {
    entry: Entry,
    from: PathBuf,
    to: PathBuf,
    /// The real path of the buffer's directory.
    root: PathBuf,
    /// The directive that asks for it. Names of a file become links within one directive: two of them make two copies.
    directive: usize,
}

/// Copies everything; called as the user.
fn copy_all(work: &CopyWork, home: &Path, share: &mut Share) -> Result<CopyOutcome> {
    let pairs: Vec<Pair> = work
        .transfers
        .iter()
        .enumerate()
        .map(|(directive, (transfer, dir))| {
            let root = std::fs::canonicalize(dir).map_err(|e| failed("cannot enter the buffer", dir, &e))?;
            Ok(Pair { directive, ..pair(transfer, work, root, home)? })
        })
        .collect::<Result<_>>()?;
    let (mut needed, mut files): (u64, u64) = (0, 0);
    let pairs = list::expand(pairs, work.stages_in, home)?;
    for pair in &pairs {
        refuse_outside(pair, work.stages_in)?;
        let mut look = Look { needed: 0, files: 0 };
        look.at(pair)?;
        let parent = existing_parent(&pair.to)?;
        needed = needed.saturating_add(look.needed);
        files = files.saturating_add(look.files);
        refuse_full(&parent, needed)?;
    }
    let route = |pair: &Pair| Route::of(pair, *work.buffers.get(pair.directive)?, work.stages_in);
    let routes: Vec<Option<Route>> = pairs.iter().map(route).collect();
    let CopyWork { uid, gid, stages_in, serial, .. } = *work;
    share.plan(Order { uid, gid, stages_in, serial }, (files, needed), &routes)?;
    let mut copy = Copy::new(std::mem::take(share));
    let copied = copy.pairs(pairs.iter().zip(routes));
    *share = copy.share;
    copied.map(|()| copy.outcome)
}

fn failed(what: &'static str, path: &Path, e: &std::io::Error) -> Fault {
    Fault::io(Code::StageFailed, what, path.display().to_string(), e)
}

/// The paths of a transfer. A file whose destination is a directory goes into it.
fn pair(transfer: &Transfer, work: &CopyWork, root: PathBuf, home: &Path) -> Result<Pair> {
    let inside = root.join(transfer.inside.trim_end_matches('/'));
    let outside = match transfer.outside.strip_prefix('~') {
        None => PathBuf::from(&transfer.outside),
        Some(_) if home.as_os_str().is_empty() => {
            let why = format!("user {} has no home directory on this host", work.uid);
            return Err(Fault::new(Code::StageFailed)
                .what("cannot stage")
                .subject(transfer.outside.clone())
                .why(why));
        }
        Some(rest) => home.join(rest.trim_start_matches('/')),
    };
    let written = if work.stages_in { &transfer.inside } else { &transfer.outside };
    let (from, mut to) = if work.stages_in { (outside, inside) } else { (inside, outside) };
    if transfer.entry == Entry::File && (written.ends_with('/') || written.is_empty() || to.is_dir()) {
        let name = from.file_name().ok_or_else(|| {
            Fault::new(Code::StageFailed)
                .what("cannot stage")
                .subject(from.display().to_string())
                .why("it has no name of a file")
        })?;
        to = to.join(name);
    }
    Ok(Pair { entry: transfer.entry, from, to, root, directive: 0 })
}

/// The nearest directory above a path that exists, by its real path.
fn existing_parent(path: &Path) -> Result<PathBuf> {
    let above = path.ancestors().find(|above| std::fs::symlink_metadata(above).is_ok());
    let above = above.unwrap_or(Path::new("/"));
    let real = std::fs::canonicalize(above).map_err(|e| failed("cannot write to", path, &e))?;
    if real.is_dir() {
        return Ok(real);
    }
    Ok(real.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Symbolic links may not lead out of the buffer on its side of the copy.
fn refuse_outside(pair: &Pair, stages_in: bool) -> Result<()> {
    let real = if stages_in {
        existing_parent(&pair.to)?
    } else {
        std::fs::canonicalize(&pair.from).map_err(|e| failed("cannot stage", &pair.from, &e))?
    };
    if real.starts_with(&pair.root) {
        return Ok(());
    }
    let shown = if stages_in { &pair.to } else { &pair.from };
    let why = format!("a symbolic link leads out of the buffer, to {}", real.display());
    Err(Fault::new(Code::StageFailed)
        .what("cannot stage")
        .subject(shown.display().to_string())
        .why(why)
        .data("nothing was copied"))
}

fn refuse_full(dir: &Path, needed: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(dir).map_err(|e| failed("cannot look at", dir, &e.into()))?;
    let room = stat.f_bavail.saturating_mul(stat.f_frsize);
    if needed <= room {
        return Ok(());
    }
    let why = format!("{} are to be copied, {} are free", format_bytes(needed), format_bytes(room));
    Err(Fault::new(Code::StageFailed)
        .what("no room in")
        .subject(dir.display().to_string())
        .why(why)
        .data("nothing was copied"))
}

/// A look at everything before the first byte.
struct Look {
    /// Bytes that the destination does not have yet.
    needed: u64,
    files: u64,
}

impl Look {
    fn at(&mut self, pair: &Pair) -> Result<()> {
        let meta = std::fs::metadata(&pair.from).map_err(|e| failed("cannot stage", &pair.from, &e))?;
        let wrong = |why: &str| {
            Fault::new(Code::StageFailed)
                .what("cannot stage")
                .subject(pair.from.display().to_string())
                .why(why.to_owned())
                .data("nothing was copied")
        };
        let parent = existing_parent(&pair.to)?;
        may(&parent, Access::WRITE_OK | Access::EXEC_OK, "cannot write to", &pair.to)?;
        match pair.entry {
            Entry::File if !meta.is_file() => {
                return Err(wrong("it is no file; write type=directory for a directory"));
            }
            Entry::Directory if !meta.is_dir() => {
                return Err(wrong("it is no directory; write type=file for a file"));
            }
            Entry::Directory if pair.to.exists() && !pair.to.is_dir() => {
                return Err(wrong(&format!("its destination {} is no directory", pair.to.display())));
            }
            Entry::File if pair.to.is_dir() => {
                return Err(wrong(&format!("its destination {} is a directory", pair.to.display())));
            }
            _ => {}
        }
        self.entry(&pair.from, &meta, &pair.to, 0)
    }

    fn entry(&mut self, from: &Path, meta: &Metadata, to: &Path, depth: usize) -> Result<()> {
        if meta.is_file() {
            may(from, Access::READ_OK, "cannot read", from)?;
            self.files += 1;
            let there = std::fs::symlink_metadata(to).map_or(0, |there| there.blocks() * 512);
            self.needed = self.needed.saturating_add((meta.blocks() * 512).saturating_sub(there));
        } else if meta.is_dir() {
            if depth > DEPTH_MAX {
                let why = format!("directories are nested deeper than {DEPTH_MAX}");
                return Err(Fault::new(Code::StageFailed)
                    .what("cannot stage")
                    .subject(from.display().to_string())
                    .why(why));
            }
            may(from, Access::READ_OK | Access::EXEC_OK, "cannot read", from)?;
            // Only the destination itself may be reached by a link: whoever makes files below it must not choose where the copy goes.
            if depth > 0 && std::fs::symlink_metadata(to).is_ok_and(|there| !there.is_dir()) {
                return Err(no_directory(to).data("nothing was copied"));
            }
            for entry in std::fs::read_dir(from).map_err(|e| failed("cannot read", from, &e))? {
                let entry = entry.map_err(|e| failed("cannot read", from, &e))?;
                let meta = entry.metadata().map_err(|e| failed("cannot look at", &entry.path(), &e))?;
                self.entry(&entry.path(), &meta, &to.join(entry.file_name()), depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Whether this user may do so.
fn may(path: &Path, access: Access, what: &'static str, subject: &Path) -> Result<()> {
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS)
        .map_err(|e| failed(what, subject, &e.into()).data("nothing was copied"))
}

struct Copy {
    outcome: CopyOutcome,
    chunk: Vec<u8>,
    /// The directive whose copies are made.
    directive: usize,
    /// Device and inode of each source of the directive that has several names, and where its copy is.
    first_names: HashMap<(u64, u64), PathBuf>,
    share: Share,
}

impl Copy {
    fn new(share: Share) -> Copy {
        let (outcome, chunk) = (CopyOutcome::default(), vec![0; CHUNK_BYTES]);
        Copy { outcome, chunk, directive: 0, first_names: HashMap::new(), share }
    }

    fn pairs<'a>(&mut self, pairs: impl Iterator<Item = (&'a Pair, Option<Route>)>) -> Result<()> {
        for (pair, route) in pairs {
            if pair.directive != self.directive {
                // What one directive copies may be what the next one replaces.
                self.settle()?;
                self.directive = pair.directive;
                self.first_names.clear();
            }
            self.share.follow(route);
            self.pair(pair)?;
        }
        self.settle()
    }

    fn pair(&mut self, pair: &Pair) -> Result<()> {
        let parent = pair.to.parent().unwrap_or(Path::new("/")).to_owned();
        make_parents(&parent)?;
        match pair.entry {
            Entry::File => {
                // The file that a link leads to is replaced, not the link.
                let to = std::fs::canonicalize(&pair.to).unwrap_or_else(|_| pair.to.clone());
                self.hand_out(&pair.from, &to)?;
                self.entry(to.parent().unwrap_or(&parent).to_owned(), to)
            }
            Entry::Directory => {
                match self.directory(&pair.from, &pair.to, true)? {
                    true => self.entry(parent, pair.to.clone()),
                    // The root of a buffer, or a home: its entry is older than this copy, and users need not be able to open what holds it.
                    false => Ok(()),
                }
            }
            Entry::List => Err(Fault::new(Code::Bug).what("a list was not read")),
        }
    }

    /// Makes an entry durable, once what it names is there.
    fn entry(&mut self, parent: PathBuf, to: PathBuf) -> Result<()> {
        if !self.share.is_shared() {
            self.settle()?;
            return sync_entry(&parent, &to);
        }
        self.do_later(Later::Entry { parent, to })
    }

    /// The contents of a directory; what else the destination holds stays. Only the uppermost destination may be a link to a directory.
    /// Returns whether it was made.
    fn directory(&mut self, from: &Path, to: &Path, is_top: bool) -> Result<bool> {
        let meta = std::fs::metadata(from).map_err(|e| failed("cannot look at", from, &e))?;
        let is_made = match std::fs::create_dir(to) {
            Ok(()) => true,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(failed("cannot make", to, &e)),
        };
        open_to_owner(to, is_top)?;
        for entry in std::fs::read_dir(from).map_err(|e| failed("cannot read", from, &e))? {
            let entry = entry.map_err(|e| failed("cannot read", from, &e))?;
            let (path, target) = (entry.path(), to.join(entry.file_name()));
            let kind = entry.file_type().map_err(|e| failed("cannot look at", &path, &e))?;
            if kind.is_dir() {
                self.directory(&path, &target, false)?;
            } else if kind.is_file() {
                self.hand_out(&path, &target)?;
            } else if kind.is_symlink() {
                link(&path, &target)?;
            } else {
                self.outcome.skipped += 1;
            }
        }
        if self.share.is_shared() {
            let (from, to, meta) = (from.to_owned(), to.to_owned(), Box::new(meta));
            self.do_later(Later::Dir { from, to, is_top, meta })?;
            return Ok(is_made);
        }
        self.settle()?;
        self.finish_dir(from, to, is_top, &meta)?;
        Ok(is_made)
    }

    /// Attributes of a directory whose contents are complete; then it is made durable.
    fn finish_dir(&mut self, from: &Path, to: &Path, is_top: bool, meta: &Metadata) -> Result<()> {
        let dir = open_dir(to, is_top, 0)?;
        // A directory of somebody else that was there before keeps its rights.
        if dir.metadata().is_ok_and(|there| there.uid() == rustix::process::geteuid().as_raw()) {
            let source = File::open(from).map_err(|e| failed("cannot read", from, &e))?;
            self.outcome.attributes_lost += xattr::copy(&source, &dir, to)?;
            dress(&dir, meta, to)?;
        }
        dir.sync_all().map_err(|e| failed("cannot sync", to, &e))
    }

    fn file(&mut self, from: &Path, to: &Path) -> Result<()> {
        let source = File::open(from).map_err(|e| failed("cannot read", from, &e))?;
        let meta = source.metadata().map_err(|e| failed("cannot look at", from, &e))?;
        if self.is_linked(&meta, to)? {
            self.share.done_file();
            return Ok(());
        }
        self.file_alone(from, to)
    }

    /// Copies a file, whatever other names it has.
    fn file_alone(&mut self, from: &Path, to: &Path) -> Result<()> {
        let source = File::open(from).map_err(|e| failed("cannot read", from, &e))?;
        let mut meta = source.metadata().map_err(|e| failed("cannot look at", from, &e))?;
        let looks_same = std::fs::symlink_metadata(to).is_ok_and(|there| is_same(&there, &meta));
        if looks_same && self.has_contents(&source, from, to)? && !has_changed(&source, &meta, from)? {
            self.outcome.unchanged += 1;
            self.share.done_file();
            self.remember(&meta, to);
            return Ok(());
        }
        let (target, partial) = open_partial(to)?;
        let copied = self.fill(&source, &target, from, to).and_then(|(bytes, copied_as)| {
            meta = copied_as;
            if !is_at(&target, &partial) {
                return Err(replaced(to));
            }
            std::fs::rename(&partial, to).map_err(|e| failed("cannot rename to", to, &e))?;
            Ok(bytes)
        });
        match copied {
            Ok(bytes) => {
                self.outcome.files += 1;
                self.outcome.bytes += bytes;
                self.share.done_file();
                self.remember(&meta, to);
                Ok(())
            }
            Err(fault) => {
                if is_at(&target, &partial) {
                    // The fault is what counts; a part that stays is overwritten by the next try.
                    let _ = std::fs::remove_file(&partial);
                }
                Err(fault)
            }
        }
    }

    /// Makes a file the copy of another, durably; all but its name.
    fn fill(&mut self, source: &File, target: &File, from: &Path, to: &Path) -> Result<(u64, Metadata)> {
        let (bytes, meta) = self.whole_contents(source, target, from, to)?;
        self.finish(source, target, &meta, to)?;
        Ok((bytes, meta))
    }

    /// Attributes, group, permissions and times of a copy whose contents are there; then it is made durable.
    fn finish(&mut self, source: &File, target: &File, meta: &Metadata, to: &Path) -> Result<()> {
        self.outcome.attributes_lost += xattr::copy(source, target, to)?;
        dress(target, meta, to)?;
        target.sync_all().map_err(|e| failed("cannot sync", to, &e))
    }

    /// Notes where the copy of a file with several names is.
    fn remember(&mut self, meta: &Metadata, to: &Path) {
        if meta.nlink() > 1 && self.first_names.len() < HARD_LINKS_MAX {
            self.first_names.insert((meta.dev(), meta.ino()), to.to_owned());
        }
    }

    /// Gives the copy of a source with several names this name, too. `false`: the source has to be copied.
    fn is_linked(&mut self, meta: &Metadata, to: &Path) -> Result<bool> {
        let Some(first) = self.first_names.get(&(meta.dev(), meta.ino())) else { return Ok(false) };
        let identity = |path: &Path| std::fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()));
        if identity(to).is_ok_and(|there| identity(first).is_ok_and(|first| first == there)) {
            return Ok(true);
        }
        let partial = own_partial(to);
        match std::fs::hard_link(first, &partial) {
            Ok(()) => {}
            // The target may be on another file system, on one without hard links, or have too many of them. A file of its own then holds
            // the same bytes.
            Err(e) if is_no_link(&e) => return Ok(false),
            Err(e) => return Err(failed("cannot link", to, &e)),
        }
        rename_or_remove(&partial, to)?;
        self.outcome.links += 1;
        Ok(true)
    }

    /// Whether the file at `to`, of the same length, has the contents of the source; it is on the disk then.
    fn has_contents(&mut self, source: &File, from: &Path, to: &Path) -> Result<bool> {
        // An unreadable target is written anew.
        let Ok(there) = File::open(to) else { return Ok(false) };
        if !xattr::are_same(source, &there) {
            return Ok(false);
        }
        if !self.is_equal(source, &there, 0..u64::MAX, from)? {
            return Ok(false);
        }
        there.sync_all().map_err(|e| failed("cannot sync", to, &e))?;
        Ok(true)
    }

    /// Whether two files have the same bytes in a range, as far as the source goes.
    fn is_equal(&mut self, source: &File, there: &File, range: Range<u64>, from: &Path) -> Result<bool> {
        let mut other = vec![0; CHUNK_BYTES];
        let mut at = range.start;
        while at < range.end {
            let most = usize::try_from(range.end - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let n =
                source.read_at(&mut self.chunk[..most], at).map_err(|e| failed("cannot read", from, &e))?;
            if n == 0 {
                break;
            }
            if there.read_exact_at(&mut other[..n], at).is_err() || self.chunk[..n] != other[..n] {
                return Ok(false);
            }
            at += n as u64;
        }
        Ok(true)
    }

    /// The bytes as they were at one time, and what the source was then: a source that is written meanwhile is copied again.
    fn whole_contents(
        &mut self,
        source: &File,
        target: &File,
        from: &Path,
        to: &Path,
    ) -> Result<(u64, Metadata)> {
        for _ in 0..CHANGED_TRIES_MAX {
            target.set_len(0).map_err(|e| failed("cannot write", to, &e))?;
            let before = source.metadata().map_err(|e| failed("cannot look at", from, &e))?;
            let copied = match self.contents(source, target, 0..before.len(), (from, to)) {
                Err(fault) if fault.what != CANNOT_READ => return Err(fault),
                // A source that has become shorter could not be read to its end.
                copied => copied,
            };
            if !has_changed(source, &before, from)? {
                return Ok((copied?, before));
            }
        }
        Err(Fault::new(Code::StageFailed)
            .what("cannot stage")
            .subject(from.display().to_string())
            .why(format!("it was written each of the {CHANGED_TRIES_MAX} times while it was copied"))
            .data("what the destination had before is unchanged")
            .next("end what writes it, and stage again"))
    }

    /// A range of the bytes, hole by hole.
    fn part(
        &mut self,
        mut source: &File,
        mut target: &File,
        range: Range<u64>,
        (from, to): (&Path, &Path),
    ) -> Result<u64> {
        let read_fault = |e: std::io::Error| failed(CANNOT_READ, from, &e);
        let write_fault = |e: std::io::Error| failed("cannot write", to, &e);
        let (mut at, end, mut copied) = (range.start, range.end, 0u64);
        while at < end {
            match rustix::fs::seek(source, SeekFrom::Data(at)) {
                Ok(data) if data >= end => break,
                Ok(data) => at = data,
                // Only a hole is left.
                Err(rustix::io::Errno::NXIO) => break,
                Err(e) => return Err(read_fault(e.into())),
            }
            let hole = rustix::fs::seek(source, SeekFrom::Hole(at)).map_err(|e| read_fault(e.into()))?;
            let hole = hole.min(end);
            rustix::fs::seek(source, SeekFrom::Start(at)).map_err(|e| read_fault(e.into()))?;
            rustix::fs::seek(target, SeekFrom::Start(at)).map_err(|e| write_fault(e.into()))?;
            while at < hole {
                let most = usize::try_from(hole - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
                let n = source.read(&mut self.chunk[..most]).map_err(read_fault)?;
                if n == 0 {
                    let why = std::io::Error::new(
                        std::io::ErrorKind::UnexpectedEof,
                        "it became shorter while it was copied",
                    );
                    return Err(read_fault(why));
                }
                target.write_all(&self.chunk[..n]).map_err(write_fault)?;
                at += n as u64;
                copied += n as u64;
                self.share.copied(n as u64);
            }
        }
        Ok(copied)
    }

    /// All bytes.
    fn contents(
        &mut self,
        source: &File,
        target: &File,
        range: Range<u64>,
        (from, to): (&Path, &Path),
    ) -> Result<u64> {
        let len = range.end;
        let copied = self.part(source, target, range, (from, to))?;
        // The file may end with a hole.
        target.set_len(len).map_err(|e| failed("cannot write", to, &e))?;
        Ok(copied)
    }
}

/// Whether a source was written, or got other attributes, since it was looked at.
fn has_changed(source: &File, before: &Metadata, from: &Path) -> Result<bool> {
    let now = source.metadata().map_err(|e| failed("cannot look at", from, &e))?;
    let stamp = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    Ok(stamp(&now) != stamp(before))
}

/// Whether a file may be the copy of another: a copy gets its time before its name.
fn is_same(there: &Metadata, source: &Metadata) -> bool {
    there.is_file()
        && there.len() == source.len()
        && (there.mtime(), there.mtime_nsec()) == (source.mtime(), source.mtime_nsec())
        && (there.mode() & MODE_BITS) == (source.mode() & MODE_BITS)
}

/// Group, permissions and times of the source. The owner is this user.
fn dress(target: &File, meta: &Metadata, shown: &Path) -> Result<()> {
    // A group that the user is not in stays at the source; then nobody gets rights by way of the other group.
    let same_group = std::os::unix::fs::fchown(target, None, Some(meta.gid())).is_ok();
    let lost = if same_group { 0 } else { 0o2000 };
    let mode = std::fs::Permissions::from_mode(meta.mode() & MODE_BITS & !lost);
    target.set_permissions(mode).map_err(|e| failed("cannot set the permissions of", shown, &e))?;
    rustix::fs::futimens(target, &times_of(meta))
        .map_err(|e| failed("cannot set the times of", shown, &e.into()))
}

fn times_of(meta: &Metadata) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: meta.atime(), tv_nsec: meta.atime_nsec() },
        last_modification: Timespec { tv_sec: meta.mtime(), tv_nsec: meta.mtime_nsec() },
    }
}

/// Errors of link(2) that say that there cannot be such a link.
fn is_no_link(e: &std::io::Error) -> bool {
    let none = [libc::EXDEV, libc::EMLINK, libc::EPERM, libc::EOPNOTSUPP];
    e.raw_os_error().is_some_and(|errno| none.contains(&errno))
}

/// A symbolic link with its times.
fn link(from: &Path, to: &Path) -> Result<()> {
    let target = std::fs::read_link(from).map_err(|e| failed("cannot read", from, &e))?;
    let meta = std::fs::symlink_metadata(from).map_err(|e| failed("cannot look at", from, &e))?;
    let time = |meta: &Metadata| (meta.mtime(), meta.mtime_nsec());
    let same_time = std::fs::symlink_metadata(to).is_ok_and(|there| time(&there) == time(&meta));
    if same_time && std::fs::read_link(to).is_ok_and(|there| there == target) {
        return Ok(());
    }
    let partial = own_partial(to);
    std::os::unix::fs::symlink(target, &partial).map_err(|e| failed("cannot make", to, &e))?;
    // A group that the user is not in stays at the source.
    let _ = std::os::unix::fs::lchown(&partial, None, Some(meta.gid()));
    if let Err(e) = rustix::fs::utimensat(CWD, &partial, &times_of(&meta), AtFlags::SYMLINK_NOFOLLOW) {
        // The fault is what counts.
        let _ = std::fs::remove_file(&partial);
        return Err(failed("cannot set the times of", to, &e.into()));
    }
    rename_or_remove(&partial, to)
}

/// What the process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Copy, alone or with other hosts; the answers are lines of [`Said`].
    All(CopyWork),
    /// Look at directories; the answer is the reason why one of them is another one.
    Check(CheckWork),
    /// Copy what another host has divided off; the answer is the outcome for each file.
    Unit(UnitWork),
}

/// Work of the process: reads a line with its work, becomes the user, copies. Answers are lines of JSON.
pub fn run() -> Result<()> {
    let mut input = std::io::BufReader::new(std::io::stdin());
    let mut line = String::new();
    let cannot = |why: String| Fault::new(Code::BadArgument).what("cannot understand what to copy").why(why);
    input.read_line(&mut line).map_err(|e| cannot(e.to_string()))?;
    match serde_json::from_str(&line).map_err(|e| cannot(e.to_string()))? {
        Work::All(work) => {
            let mut share = Share::told(Box::new(std::io::stdout()), Box::new(input));
            let outcome = become_user(work.uid, work.gid).and_then(|home| copy_all(&work, &home, &mut share));
            share.end(outcome)
        }
        Work::Check(work) => answer(&unit::check(&work)),
        Work::Unit(work) => answer(&unit::copy(&work)),
    }
}

fn answer<T: Serialize>(outcome: &Result<T>) -> Result<()> {
    let text = serde_json::to_string(outcome).expect("plain fields always serialise");
    writeln!(std::io::stdout(), "{text}")
        .map_err(|e| Fault::io(Code::StageStopped, "nobody hears the answer of", "a copy", &e))
}

#[cfg(test)]
mod shared_tests;
#[cfg(test)]
mod tests;
