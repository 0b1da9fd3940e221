//! An archive in a directory, in the layout of `lhsmtool_posix`: a file for each FID, and a tree of links with the paths that they had.
//!
//! | name | what |
//! |---|---|
//! | `DIR/0x200000401:0x1:0x0` | the current copy, as that tool names it |
//! | `DIR/0x200000401:0x1:0x0.v3-17.a3-20` | the copy of contents 3.17 by attempt 3.20; the current one has this name too |
//! | `DIR/0x200000401:0x1:0x0.v3-17.a3-20.json` | its [manifest](super::manifest), which other tools do not know |
//! | `shadow/PATH` | link to the current copy, by the path at the time of archiving |
//!
//! `DIR` comes from the FID ([`Layout`]). A copy is written under its own name, which no other attempt has, and is on stable storage before
//! the MDT is told; the name without a version leads to it only after the MDT has taken it. Late writes of a silent agent are therefore
//! garbage, which the next complete copy of the file removes.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use brindle_types::attr::Time;
use brindle_types::{ArchivedCopy, Attr, Code, Fault, Fid, Ino, Pair, Result};
use parking_lot::Mutex;

use super::manifest::{MANIFEST_BYTES_MAX, Manifest};
use super::{CopyName, Whole, damaged};

/// Directory of the links with paths.
pub const SHADOW: &str = "shadow";
/// Suffix of a copy's manifest.
const MANIFEST: &str = ".json";
/// Between the FID and the version in the name of a copy that is about to become the current one.
const FRESH: &str = ".new";
/// Most directories that are remembered as durable.
const DURABLE_MAX: usize = 1 << 16;
/// Longest path that gets a link.
const PATH_BYTES_MAX: usize = 4096;

/// Layout of the directories of FIDs, as `--archive-format` of that tool has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// `0001/0000/0401/0000/0002/0000`.
    #[default]
    V1,
    /// `0400`.
    V2,
}

impl std::str::FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Layout, String> {
        match text {
            "v1" | "1" => Ok(Layout::V1),
            "v2" | "2" => Ok(Layout::V2),
            other => Err(format!("'{other}' is not v1 or v2")),
        }
    }
}

/// An archive in a directory.
#[derive(Clone, Debug)]
pub struct Directory {
    root: PathBuf,
    layout: Layout,
    shadow: bool,
    /// Directories that this process has synced, with those above them.
    durable: Arc<Mutex<HashSet<PathBuf>>>,
}

/// A copy that is being written.
pub struct Incoming {
    file: File,
    path: PathBuf,
    /// Name of the file below the root.
    name: String,
}

/// A span of a copy that another agent may have begun. Every agent writes at the places of its spans only.
pub struct Part {
    file: File,
    path: PathBuf,
}

impl Part {
    /// Writes bytes at their place in the file.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|e| failed("cannot write the copy", &self.path, &e))
    }

    /// Makes what was written durable: the agent that finishes the copy may be on another host.
    pub fn finish(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| failed("cannot write the copy", &self.path, &e))
    }
}

/// The name of a FID in an archive: without brackets.
fn fid_name(fid: Fid) -> String {
    format!("{:#x}:{:#x}:{:#x}", fid.seq, fid.oid, fid.ver)
}

fn dir_name(fid: Fid, layout: Layout) -> String {
    let (oid, seq) = (u64::from(fid.oid), fid.seq);
    let part = |n: u64, shift: u32| n >> shift & 0xffff;
    match layout {
        Layout::V1 => {
            [part(oid, 0), part(oid, 16), part(seq, 0), part(seq, 16), part(seq, 32), part(seq, 48)]
                .map(|n| format!("{n:04x}"))
                .join("/")
        }
        Layout::V2 => format!("{:04x}", (oid ^ seq) & 0xffff),
    }
}

fn version_suffix(name: &CopyName) -> String {
    let CopyName { data_version: v, attempt: a, .. } = name;
    format!(".v{:x}-{:x}.a{:x}-{:x}", v.term, v.counter, a.term, a.counter)
}

/// The attempt in the name of a copy of this file, of its manifest, or of a copy that was to become the current one.
fn attempt_of(name: &str, fid: &str) -> Option<Pair> {
    let name = name.strip_suffix(MANIFEST).unwrap_or(name).strip_prefix(fid)?;
    let (_, attempt) = name.strip_prefix(FRESH).unwrap_or(name).strip_prefix(".v")?.split_once(".a")?;
    let (term, counter) = attempt.split_once('-')?;
    Some(Pair { term: u32::from_str_radix(term, 16).ok()?, counter: u64::from_str_radix(counter, 16).ok()? })
}

/// The manifest of a copy.
fn manifest_of(copy: &Path) -> PathBuf {
    let mut name = copy.as_os_str().to_owned();
    name.push(MANIFEST);
    PathBuf::from(name)
}

/// Reads a manifest.
pub(crate) fn read_manifest(path: &Path) -> Result<Manifest> {
    let read = || -> io::Result<Vec<u8>> {
        let mut json = Vec::new();
        File::open(path)?.take(MANIFEST_BYTES_MAX).read_to_end(&mut json)?;
        Ok(json)
    };
    let json = read().map_err(|e| failed("cannot read the manifest", path, &e))?;
    Manifest::from_json(&json)
        .map_err(|why| Fault::new(Code::ManifestDamaged).subject(path.display().to_string()).why(why))
}

/// Writes the manifest of a copy, durably but for its name.
fn write_manifest(copy: &Path, manifest: &Manifest) -> Result<()> {
    let path = manifest_of(copy);
    let json = manifest.to_json()?;
    let mut options = OpenOptions::new();
    // Names and attributes of users: nobody else reads them.
    options.write(true).create(true).truncate(true).mode(0o600);
    let write = || -> io::Result<()> {
        let file = options.open(&path)?;
        file.write_all_at(&json, 0)?;
        file.sync_all()
    };
    write().map_err(|e| failed("cannot write the manifest", &path, &e))
}

pub(crate) fn failed(what: &'static str, path: &Path, e: &io::Error) -> Fault {
    Fault::io(Code::ArchiveFailed, what, path.display().to_string(), e)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

impl Directory {
    /// The archive in a directory. Fails if copies could not be made there.
    pub fn open(root: &Path, layout: Layout, shadow: bool) -> Result<Directory> {
        let root = root.canonicalize().map_err(|e| failed("cannot use the archive", root, &e))?;
        let archive = Directory { root, layout, shadow, durable: Arc::default() };
        archive.try_out().map_err(|e| {
            failed("cannot use the archive", &archive.root, &e)
                .next("it must be a directory that this user may write to, on a file system with hard links")
        })?;
        Ok(archive)
    }

    /// Makes a file with two names, and removes it.
    fn try_out(&self) -> io::Result<()> {
        let id = std::process::id();
        let (one, two) = (self.root.join(format!(".try-{id}")), self.root.join(format!(".try-{id}-link")));
        File::create(&one)?.sync_all()?;
        let linked = fs::hard_link(&one, &two);
        let removed = fs::remove_file(&one);
        if linked.is_ok() {
            fs::remove_file(&two)?;
        }
        linked.and(removed)
    }

    /// Root directory of the archive.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn dir(&self, ino: Ino) -> PathBuf {
        self.root.join(dir_name(ino.fid(), self.layout))
    }

    /// The current copy of a file.
    pub fn current(&self, ino: Ino) -> PathBuf {
        self.dir(ino).join(fid_name(ino.fid()))
    }

    /// A copy of a file, by its own name.
    pub fn path(&self, name: &CopyName) -> PathBuf {
        self.dir(name.ino).join(fid_name(name.ino.fid()) + &version_suffix(name))
    }

    /// The name of a copy below the root.
    fn name(&self, name: &CopyName) -> String {
        let fid = name.ino.fid();
        format!("{}/{}{}", dir_name(fid, self.layout), fid_name(fid), version_suffix(name))
    }

    /// Gives a copy that lies in the archive already the name of another file, too, and a manifest.
    pub fn adopt(&self, from: &Path, name: &CopyName, manifest: &Manifest, path: &[u8]) -> Result<()> {
        let (dir, own) = (self.dir(name.ino), self.path(name));
        let linked = self.make_dir(&dir).and_then(|()| fs::hard_link(from, &own));
        linked.map_err(|e| failed("cannot give a copy another name:", from, &e))?;
        let whole = Manifest { object: self.name(name), ..manifest.clone() };
        write_manifest(&own, &whole)?;
        self.make_current(name, path)
    }

    /// Whether the current copy of a file is this one.
    pub fn is_copy_of(&self, ino: Ino, from: &Path) -> Result<bool> {
        let current = self.current(ino);
        let (own, other) = match current.metadata() {
            Ok(own) => (own, from.metadata().map_err(|e| failed("cannot look at", from, &e))?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(failed("cannot look at", &current, &e)),
        };
        Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    /// An archive of another file system, from which copies can get names here.
    pub fn beside(&self, other: &Path) -> Result<PathBuf> {
        let root = other.canonicalize().map_err(|e| failed("cannot import from", other, &e))?;
        let dev = |path: &Path| {
            path.metadata().map(|meta| meta.dev()).map_err(|e| failed("cannot look at", path, &e))
        };
        if dev(&root)? != dev(&self.root)? {
            let why = format!(
                "it lies on another file system than {}: copies stay where they are, and only get further names",
                self.root.display()
            );
            let fault =
                Fault::new(Code::BadArgument).what("cannot import from").subject(other.display().to_string());
            return Err(fault.why(why).data("nothing was changed"));
        }
        Ok(root)
    }

    /// The name of the current copy of a FID below the root of an archive.
    pub fn name_in(fid: Fid, layout: Layout) -> String {
        format!("{}/{}", dir_name(fid, layout), fid_name(fid))
    }

    /// Whether this is where the copy of a file of ours would lie.
    pub fn is_own_name(&self, copy: &Path) -> bool {
        let fid = copy.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<Fid>().ok());
        fid.is_some_and(|fid| self.root.join(Directory::name_in(fid, self.layout)) == copy)
    }

    /// Begins a copy.
    pub fn begin(&self, name: &CopyName) -> Result<Incoming> {
        let (dir, path) = (self.dir(name.ino), self.path(name));
        let made = self.make_dir(&dir).and_then(|()| {
            let mut options = OpenOptions::new();
            // Bytes of users: nobody else reads them before the owner is set.
            options.write(true).create_new(true).mode(0o600).open(&path)
        });
        let file = made.map_err(|e| failed("cannot make a copy in the archive:", &path, &e))?;
        let name = self.name(name);
        Ok(Incoming { file, path, name })
    }

    /// Opens a copy that an agent has begun, to write a span of it.
    pub fn open_part(&self, name: &CopyName) -> Result<Part> {
        let path = self.path(name);
        let opened = OpenOptions::new().write(true).open(&path);
        let file = opened.map_err(|e| {
            failed("cannot write a part of the copy", &path, &e)
                .next("all agents of one archive must see the same directory")
        })?;
        Ok(Part { file, path })
    }

    /// Makes a directory below the root, durably.
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let is_there = dir.is_dir();
        if is_there && self.durable.lock().contains(dir) {
            return Ok(());
        }
        if !is_there {
            fs::create_dir_all(dir)?;
        }
        // An existing directory need not be durable: another stream has made it a moment ago, or an agent that was killed then.
        for above in dir.ancestors().take_while(|above| above.starts_with(&self.root)) {
            sync_dir(above)?;
        }
        let mut durable = self.durable.lock();
        if durable.len() >= DURABLE_MAX {
            durable.clear();
        }
        durable.insert(dir.to_owned());
        Ok(())
    }

    /// The MDT has taken a copy: it is the current one, and copies by earlier attempts go. `path`: of the file, for its link.
    pub fn make_current(&self, name: &CopyName, path: &[u8]) -> Result<()> {
        let (copy, current) = (self.path(name), self.current(name.ino));
        let fresh =
            current.with_file_name(format!("{}{FRESH}{}", fid_name(name.ino.fid()), version_suffix(name)));
        let linked = match fs::hard_link(&copy, &fresh) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        };
        let placed =
            linked.and_then(|()| fs::rename(&fresh, &current)).and_then(|()| self.remove_fresh(&fresh));
        placed
            .and_then(|()| sync_dir(&self.dir(name.ino)))
            .map_err(|e| failed("cannot make a copy the current one:", &current, &e))?;
        self.remove_attempts(name.ino, |attempt| attempt < name.attempt)?;
        if self.shadow { self.put_link(name.ino, path) } else { Ok(()) }
    }

    /// rename(2) of one of two names of a file to the other does nothing, and leaves both.
    fn remove_fresh(&self, fresh: &Path) -> io::Result<()> {
        match fs::remove_file(fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn remove_attempts(&self, ino: Ino, goes: impl Fn(Pair) -> bool) -> Result<()> {
        let (dir, fid) = (self.dir(ino), fid_name(ino.fid()));
        let remove = || -> io::Result<()> {
            for entry in fs::read_dir(&dir)? {
                let name = entry?.file_name();
                if name.to_str().and_then(|name| attempt_of(name, &fid)).is_some_and(&goes) {
                    self.remove_fresh(&dir.join(name))?;
                }
            }
            Ok(())
        };
        match remove() {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(failed("cannot remove old copies in", &dir, &e))
            }
            _ => Ok(()),
        }
    }

    /// Whether there is a copy of a file by any attempt.
    fn has_attempts(&self, ino: Ino) -> Result<bool> {
        let (dir, fid) = (self.dir(ino), fid_name(ino.fid()));
        let look = || -> io::Result<bool> {
            for entry in fs::read_dir(&dir)? {
                if entry?.file_name().to_str().and_then(|name| attempt_of(name, &fid)).is_some() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        match look() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            looked => looked.map_err(|e| failed("cannot list the copies in", &dir, &e)),
        }
    }

    /// `shadow/PATH` leads to the current copy. An older link in its place goes; anything else there stays.
    fn put_link(&self, ino: Ino, path: &[u8]) -> Result<()> {
        let Some(link) = self.link_of(path) else { return Ok(()) };
        let above = link.strip_prefix(&self.root).map_or(0, |below| below.components().count() - 1);
        let target: PathBuf = std::iter::repeat_n("..", above).collect::<PathBuf>();
        let target = target.join(dir_name(ino.fid(), self.layout)).join(fid_name(ino.fid()));
        let put = || -> io::Result<()> {
            if let Some(dir) = link.parent() {
                fs::create_dir_all(dir)?;
            }
            match fs::read_link(&link) {
                Ok(known) if known == target => return Ok(()),
                Ok(_) => fs::remove_file(&link)?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
            symlink(&target, &link)
        };
        put().map_err(|e| failed("cannot make the link", &link, &e))
    }

    /// The link of a path; `None` for what cannot have one.
    fn link_of(&self, path: &[u8]) -> Option<PathBuf> {
        let path = Path::new(std::ffi::OsStr::new(std::str::from_utf8(path).ok()?));
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let is_meant = is_plain && !path.as_os_str().is_empty() && path.as_os_str().len() < PATH_BYTES_MAX;
        is_meant.then(|| self.root.join(SHADOW).join(path))
    }

    /// The manifest of a copy that the MDT knows; `None` if there is none.
    pub fn manifest_of(&self, name: &CopyName) -> Result<Option<Manifest>> {
        let path = manifest_of(&self.path(name));
        let is_there = path.try_exists().map_err(|e| failed("cannot read the manifest", &path, &e))?;
        is_there.then(|| read_manifest(&path)).transpose()
    }

    /// Opens a copy that the MDT knows. The copy's length is unchanged; the caller that reads the copy compares the checksum.
    pub fn open_copy(&self, ino: Ino, copy: &ArchivedCopy) -> Result<File> {
        let path = self.path(&CopyName::of(ino, copy));
        let opened = match File::open(&path) {
            // The name without a version may be all that a backup of the archive has brought back.
            Err(e) if e.kind() == io::ErrorKind::NotFound => File::open(self.current(ino)),
            opened => opened,
        };
        let file = match opened {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(&path.display(), "it is not there".to_owned()));
            }
            opened => opened.map_err(|e| failed("cannot read the copy", &path, &e))?,
        };
        let len_bytes = file.metadata().map_err(|e| failed("cannot read the copy", &path, &e))?.len();
        if len_bytes != copy.size_bytes {
            return Err(damaged(
                &path.display(),
                format!("it has {len_bytes} bytes, {} were archived", copy.size_bytes),
            ));
        }
        Ok(file)
    }

    /// Removes the copies of a file by attempts before this one.
    pub fn remove(&self, ino: Ino, before: Pair, path: &[u8]) -> Result<()> {
        self.remove_attempts(ino, |attempt| attempt < before)?;
        if self.has_attempts(ino)? {
            // The file was archived again since the remove was given out.
            return Ok(());
        }
        let current = self.current(ino);
        if let Some(link) = self.link_of(path)
            && fs::read_link(&link).is_ok_and(|target| target.ends_with(fid_name(ino.fid())))
        {
            self.remove_fresh(&link).map_err(|e| failed("cannot remove the link", &link, &e))?;
        }
        self.remove_fresh(&current).map_err(|e| failed("cannot remove the copy", &current, &e))
    }
}

impl Incoming {
    /// Writes a part.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|e| failed("cannot write the copy", &self.path, &e))
    }

    /// Gives the copy its length and its attributes, and makes it durable, with its name.
    pub fn finish(&self, whole: &Whole) -> Result<()> {
        let mut manifest = whole.manifest.clone();
        manifest.complete(&whole.copy, self.name.clone());
        write_manifest(&self.path, &manifest)?;
        self.finish_bytes(whole.copy.size_bytes, &whole.attr)
    }

    fn finish_bytes(&self, size_bytes: u64, attr: &Attr) -> Result<()> {
        let finish = || -> io::Result<()> {
            self.file.set_len(size_bytes)?;
            let owned = std::os::unix::fs::fchown(&self.file, Some(attr.uid), Some(attr.gid));
            if let Err(e) = owned {
                // An archive that belongs to a user, as on a server that trusts nobody's root.
                tracing::debug!(error = %e, "the copy keeps its owner");
            }
            self.file.set_permissions(fs::Permissions::from_mode(u32::from(attr.perm) & 0o777))?;
            let times = fs::FileTimes::new()
                .set_modified(system_time(attr.mtime))
                .set_accessed(system_time(attr.atime));
            self.file.set_times(times)?;
            self.file.sync_all()?;
            self.path.parent().map_or(Ok(()), sync_dir)
        };
        finish().map_err(|e| failed("cannot finish the copy", &self.path, &e))
    }

    /// Removes a copy that does not count.
    pub fn discard(self) {
        if let Err(e) = fs::remove_file(manifest_of(&self.path))
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), error = %e, "the manifest of a copy that does not count is left; the next one removes it");
        }
        if let Err(e) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), error = %e, "a copy that does not count is left; the next one removes it");
        }
    }
}

fn system_time(time: Time) -> std::time::SystemTime {
    let nanos = std::time::Duration::from_nanos(time.nanos.into());
    let secs = std::time::Duration::from_secs(time.secs.unsigned_abs());
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    let at = if time.secs < 0 { epoch.checked_sub(secs) } else { epoch.checked_add(secs) };
    at.and_then(|at| at.checked_add(nanos)).unwrap_or(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::FileType;

    const INO: Ino = Ino(1 << 48 | 7);

    fn name(version: u64, attempt: u64) -> CopyName {
        let pair = |counter| Pair { term: 3, counter };
        CopyName { ino: INO, data_version: pair(version), attempt: pair(attempt) }
    }

    fn attr() -> Attr {
        let time = Time { secs: 1_000_000, nanos: 5 };
        Attr {
            ino: INO,
            kind: FileType::Regular,
            perm: 0o640,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes: 5,
            allocated_bytes: 512,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            has_acl: false,
            has_xattr: false,
            data_version: None,
            blksize_bytes: 4096,
        }
    }

    fn put(archive: &Directory, name: &CopyName, bytes: &[u8]) {
        let copy = archive.begin(name).expect("begun");
        copy.write(bytes, 0).expect("written");
        copy.finish_bytes(bytes.len() as u64, &attr()).expect("finished");
    }

    #[test]
    fn directories_are_those_of_lhsmtool_posix() {
        let fid = Fid { seq: 0x2_0000_0401, oid: 1, ver: 0 };
        assert_eq!(dir_name(fid, Layout::V1), "0001/0000/0401/0000/0002/0000");
        assert_eq!(dir_name(fid, Layout::V2), "0400");
        assert_eq!(fid_name(fid), "0x200000401:0x1:0x0");
    }

    #[test]
    fn a_copy_is_current_only_once_it_is_made_so_and_then_older_ones_go() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Directory::open(dir.path(), Layout::V1, true).unwrap();
        put(&archive, &name(1, 1), b"old");
        archive.make_current(&name(1, 1), b"a/b").unwrap();
        put(&archive, &name(2, 2), b"late and never taken");
        put(&archive, &name(2, 3), b"fresh");
        assert_eq!(fs::read(archive.current(INO)).unwrap(), b"old");
        archive.make_current(&name(2, 3), b"a/b").unwrap();
        archive.make_current(&name(2, 3), b"a/b").unwrap();
        assert_eq!(fs::read(archive.current(INO)).unwrap(), b"fresh");
        assert_eq!(fs::read(dir.path().join("shadow/a/b")).unwrap(), b"fresh", "the link leads there");
        assert!(!archive.path(&name(1, 1)).exists() && !archive.path(&name(2, 2)).exists());
        let left = fs::read_dir(archive.dir(INO)).unwrap().count();
        assert_eq!(left, 2, "the current name and its own");
        // A remove that was given out before the last copy was made, and is carried out late.
        archive.remove(INO, name(2, 3).attempt, b"a/b").unwrap();
        assert_eq!(fs::read(archive.current(INO)).unwrap(), b"fresh");
        assert!(archive.path(&name(2, 3)).exists());
        archive.remove(INO, name(2, 4).attempt, b"a/b").unwrap();
        assert_eq!(fs::read_dir(archive.dir(INO)).unwrap().count(), 0);
        assert!(dir.path().join("shadow/a/b").symlink_metadata().is_err());
    }

    #[test]
    fn a_name_that_a_killed_agent_left_between_two_steps_goes_with_the_next_copy() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Directory::open(dir.path(), Layout::V1, false).unwrap();
        put(&archive, &name(1, 1), b"old");
        let fresh = format!("{}.new{}", fid_name(INO.fid()), version_suffix(&name(1, 1)));
        let fresh = archive.dir(INO).join(fresh);
        fs::hard_link(archive.path(&name(1, 1)), &fresh).unwrap();
        put(&archive, &name(2, 2), b"fresh");
        archive.make_current(&name(2, 2), b"").unwrap();
        assert!(!fresh.exists());
        assert_eq!(fs::read_dir(archive.dir(INO)).unwrap().count(), 2, "the current name and its own");
        fs::hard_link(archive.path(&name(2, 2)), &fresh).unwrap();
        archive.remove(INO, name(2, 3).attempt, b"").unwrap();
        assert_eq!(fs::read_dir(archive.dir(INO)).unwrap().count(), 0);
    }

    #[test]
    fn directories_that_others_have_made_are_synced_before_a_copy_counts() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Directory::open(dir.path(), Layout::V1, false).unwrap();
        fs::create_dir_all(archive.dir(INO)).unwrap();
        put(&archive, &name(1, 1), b"old");
        assert!(archive.durable.lock().contains(&archive.dir(INO)));
        // A directory that was removed and made again is not synced.
        fs::remove_dir_all(archive.dir(INO)).unwrap();
        put(&archive, &name(1, 2), b"new");
        assert!(archive.path(&name(1, 2)).exists());
    }

    #[test]
    fn a_copy_of_another_length_is_damage_and_one_that_is_missing_too() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Directory::open(dir.path(), Layout::V2, false).unwrap();
        put(&archive, &name(1, 1), b"bytes");
        let CopyName { data_version, attempt, .. } = name(1, 1);
        let copy = ArchivedCopy { data_version, attempt, size_bytes: 5, checksum: [0; 32] };
        archive.open_copy(INO, &copy).unwrap();
        let longer = ArchivedCopy { size_bytes: 6, ..copy };
        assert_eq!(archive.open_copy(INO, &longer).unwrap_err().code, Code::ArchiveDamaged);
        fs::remove_file(archive.path(&name(1, 1))).unwrap();
        assert_eq!(archive.open_copy(INO, &copy).unwrap_err().code, Code::ArchiveDamaged);
    }

    #[test]
    fn paths_stay_in_the_shadow_tree() {
        let dir = tempfile::tempdir().unwrap();
        let archive = Directory::open(dir.path(), Layout::V2, true).unwrap();
        for path in [&b"../x"[..], b"/etc/x", b"a/../../x", b"", b"\xff"] {
            assert_eq!(archive.link_of(path), None, "{path:?}");
        }
        let fault = Directory::open(&dir.path().join("none"), Layout::V2, true).unwrap_err();
        assert_eq!(fault.code, Code::ArchiveFailed);
    }
}
