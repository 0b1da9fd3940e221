//! The model itself: inodes in a map, directories as ordered maps, files as byte vectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_types::errno::*;

use super::{Content, How, Node, Op, Outcome, RenameHow, StatView, pattern};

/// Symbolic links followed in one path, as Linux.
const LINKS_MAX: usize = 40;
const ROOT: u64 = 1;

#[derive(Clone, Debug)]
enum Kind {
    Dir {
        entries: BTreeMap<String, u64>,
        parent: u64,
    },
    /// Shared with snapshots until one of them changes it.
    File(Arc<Vec<u8>>),
    Symlink(String),
}

#[derive(Clone, Debug)]
struct Inode {
    kind: Kind,
    perm: u32,
    nlink: u32,
    opens: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
struct Handle {
    ino: u64,
    how: How,
}

/// A POSIX tree in memory. A clone is a snapshot.
#[derive(Clone)]
pub struct Model {
    inodes: BTreeMap<u64, Inode>,
    handles: BTreeMap<usize, Handle>,
    next: u64,
}

type Res<T> = Result<T, i32>;

/// Last entry of a path: the directory, the last name, and the inode if there is one.
struct LastEntry {
    dir: u64,
    name: String,
    ino: Option<u64>,
}

impl Default for Model {
    fn default() -> Model {
        let root = Inode {
            kind: Kind::Dir { entries: BTreeMap::new(), parent: ROOT },
            perm: 0o755,
            nlink: 2,
            opens: 0,
            xattrs: BTreeMap::new(),
        };
        Model { inodes: BTreeMap::from([(ROOT, root)]), handles: BTreeMap::new(), next: ROOT + 1 }
    }
}

impl Model {
    /// Applies one operation and says what a POSIX system answers.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        self.run(op).unwrap_or_else(Outcome::Errno)
    }

    /// Paths of everything in the tree (the root not among them), at most `max`, and which are directories.
    pub fn paths(&self, max: usize) -> Vec<(String, bool)> {
        let mut found = Vec::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, dir)) = todo.pop() {
            let Ok(entries) = self.entries(dir) else { continue };
            for (name, ino) in entries {
                let child = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                found.push((child.clone(), self.is_dir(*ino)));
                if found.len() >= max {
                    return found;
                }
                if self.is_dir(*ino) {
                    todo.push((child, *ino));
                }
            }
        }
        found
    }

    /// All entries of the tree by path (the root is `.`), to compare with another view of it.
    pub fn snapshot(&self) -> BTreeMap<String, Node> {
        let mut found = BTreeMap::from([(".".to_owned(), self.node(ROOT))]);
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, dir)) = todo.pop() {
            let Ok(entries) = self.entries(dir) else { continue };
            for (name, ino) in entries {
                let child = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                found.insert(child.clone(), self.node(*ino));
                if self.is_dir(*ino) {
                    todo.push((child, *ino));
                }
            }
        }
        found
    }

    fn node(&self, ino: u64) -> Node {
        let i = self.inode(ino);
        let (kind, content) = match &i.kind {
            Kind::Dir { .. } => (0o040_000, Content::Dir),
            Kind::File(bytes) => (0o100_000, Content::File(bytes.clone())),
            Kind::Symlink(target) => (0o120_000, Content::Symlink(target.clone())),
        };
        Node { ino, mode: kind | i.perm, nlink: i.nlink, content, xattrs: i.xattrs.clone() }
    }

    /// Content of the inode with this number, even if it has no name left and is only open; `None` if it is
    /// gone.
    pub fn content(&self, ino: u64) -> Option<Content> {
        self.inodes.contains_key(&ino).then(|| self.node(ino).content)
    }

    /// Sets the contents of a file by its number in [`Model::snapshot`].
    pub fn set_content(&mut self, ino: u64, bytes: Arc<Vec<u8>>) {
        if let Kind::File(old) = &mut self.inode_mut(ino).kind {
            *old = bytes;
        }
    }

    /// Closes every slot, as the death of a process does.
    pub fn close_all(&mut self) {
        while let Some((slot, _)) = self.handles.first_key_value() {
            let slot = *slot;
            // The slot is open, so this succeeds.
            let _ = self.close(slot);
        }
    }

    /// Open slots from `first` on, `count` at most, that are open the way `wanted` says.
    pub fn open_slots(&self, first: usize, count: usize, wanted: impl Fn(&How) -> bool) -> Vec<usize> {
        let range = self.handles.range(first..first + count);
        range.filter(|(_, h)| wanted(&h.how)).map(|(slot, _)| *slot).collect()
    }

    fn run(&mut self, op: &Op) -> Res<Outcome> {
        match op {
            Op::Mkdir { path, mode } => self.mkdir(path, *mode),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Unlink { path } => self.unlink(path),
            Op::Rename { from, to, how } => self.rename(from, to, *how),
            Op::Link { from, to } => self.link(from, to),
            Op::Symlink { target, path } => self.symlink(target, path),
            Op::Readlink { path } => match &self.inode(self.find(path, false)?).kind {
                Kind::Symlink(t) => Ok(Outcome::Bytes(t.clone().into_bytes())),
                _ => Err(EINVAL),
            },
            Op::Stat { path } => Ok(self.stat(self.find(path, false)?)),
            Op::List { path } => {
                let dir = self.find(path, true)?;
                Ok(Outcome::Names(self.entries(dir)?.keys().cloned().collect()))
            }
            Op::Chmod { path, mode } => {
                let ino = self.find(path, true)?;
                self.inode_mut(ino).perm = mode & 0o7777;
                Ok(Outcome::Done)
            }
            Op::Truncate { path, size } => {
                let ino = self.find(path, true)?;
                self.cut(ino, *size)
            }
            Op::SetXattr { path, name, value } => {
                let ino = self.find(path, true)?;
                self.inode_mut(ino).xattrs.insert(name.clone(), value.clone());
                Ok(Outcome::Done)
            }
            Op::GetXattr { path, name } => {
                let ino = self.find(path, true)?;
                self.inode(ino).xattrs.get(name).cloned().map(Outcome::Bytes).ok_or(ENODATA)
            }
            Op::RemoveXattr { path, name } => {
                let ino = self.find(path, true)?;
                self.inode_mut(ino).xattrs.remove(name).map(|_| Outcome::Done).ok_or(ENODATA)
            }
            Op::Open { slot, path, how } => self.open(*slot, path, *how),
            Op::Tmpfile { slot, dir } => self.tmpfile(*slot, dir),
            _ => self.run_handle(op),
        }
    }

    fn run_handle(&mut self, op: &Op) -> Res<Outcome> {
        match *op {
            Op::Close { slot } => self.close(slot),
            Op::Write { slot, offset, len, fill } => {
                let h = self.handle(slot, |h| h.write)?;
                let data = pattern(fill, len);
                let bytes = self.bytes_mut(h.ino)?;
                let at = if h.append { bytes.len() } else { offset as usize };
                put(bytes, at, &data);
                Ok(Outcome::Count(len))
            }
            Op::Read { slot, offset, len } => {
                let h = self.handle(slot, |h| h.read)?;
                let bytes = self.bytes_mut(h.ino)?;
                let start = (offset as usize).min(bytes.len());
                let end = (start + len).min(bytes.len());
                Ok(Outcome::Bytes(bytes[start..end].to_vec()))
            }
            Op::Fstat { slot } => {
                let h = self.handles.get(&slot).ok_or(EBADF)?;
                Ok(self.stat(h.ino))
            }
            Op::Ftruncate { slot, size } => {
                let ino = self.handles.get(&slot).ok_or(EBADF)?.ino;
                self.handle(slot, |h| h.write).map_err(|_| EINVAL)?;
                self.cut(ino, size)
            }
            Op::Punch { slot, offset, len } => self.zero(slot, offset, len, false),
            Op::Zero { slot, offset, len } => self.zero(slot, offset, len, true),
            Op::Fallocate { slot, offset, len } => {
                let h = self.handle(slot, |h| h.write)?;
                let bytes = self.bytes_mut(h.ino)?;
                if bytes.len() < (offset + len) as usize {
                    bytes.resize((offset + len) as usize, 0);
                }
                Ok(Outcome::Done)
            }
            Op::Fsync { slot } => self.handles.get(&slot).map(|_| Outcome::Done).ok_or(EBADF),
            Op::Copy { from, to, from_offset, to_offset, len } => {
                self.copy(from, to, from_offset as usize, to_offset as usize, len)
            }
            _ => unreachable!("named operations are handled by run"),
        }
    }

    fn handle(&self, slot: usize, allowed: impl Fn(&How) -> bool) -> Res<Handle0> {
        let h = self.handles.get(&slot).ok_or(EBADF)?;
        if !allowed(&h.how) {
            return Err(EBADF);
        }
        Ok(Handle0 { ino: h.ino, append: h.how.append })
    }

    fn inode(&self, ino: u64) -> &Inode {
        &self.inodes[&ino]
    }

    fn inode_mut(&mut self, ino: u64) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("the model never keeps a number without its inode")
    }

    fn bytes_mut(&mut self, ino: u64) -> Res<&mut Vec<u8>> {
        match &mut self.inode_mut(ino).kind {
            Kind::File(bytes) => Ok(Arc::make_mut(bytes)),
            Kind::Dir { .. } => Err(EISDIR),
            Kind::Symlink(_) => Err(EINVAL),
        }
    }

    fn entries(&self, ino: u64) -> Res<&BTreeMap<String, u64>> {
        match &self.inode(ino).kind {
            Kind::Dir { entries, .. } => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }

    fn entries_mut(&mut self, ino: u64) -> &mut BTreeMap<String, u64> {
        match &mut self.inode_mut(ino).kind {
            Kind::Dir { entries, .. } => entries,
            _ => unreachable!("a place's directory is a directory"),
        }
    }

    /// Walks to the last name. With `follow`, a symbolic link there is followed.
    fn place(&self, path: &str, follow: bool) -> Res<LastEntry> {
        let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let (mut dir, mut links) = (ROOT, 0);
        while let Some(name) = todo.pop() {
            if name == "." || name.is_empty() {
                if todo.is_empty() {
                    return Ok(LastEntry { dir, name: ".".into(), ino: Some(dir) });
                }
                continue;
            }
            let found = self.entries(dir)?.get(&name).copied();
            let last = todo.is_empty();
            let Some(ino) = found else {
                return if last { Ok(LastEntry { dir, name, ino: None }) } else { Err(ENOENT) };
            };
            match &self.inode(ino).kind {
                Kind::Symlink(target) if !last || follow => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(ELOOP);
                    }
                    todo.extend(target.split('/').rev().map(str::to_owned));
                }
                _ if last => return Ok(LastEntry { dir, name, ino: Some(ino) }),
                Kind::Dir { .. } => dir = ino,
                _ => return Err(ENOTDIR),
            }
        }
        Ok(LastEntry { dir, name: ".".into(), ino: Some(dir) })
    }

    fn find(&self, path: &str, follow: bool) -> Res<u64> {
        self.place(path, follow)?.ino.ok_or(ENOENT)
    }

    fn make(&mut self, kind: Kind, perm: u32, nlink: u32) -> u64 {
        let ino = self.next;
        self.next += 1;
        self.inodes.insert(ino, Inode { kind, perm, nlink, opens: 0, xattrs: BTreeMap::new() });
        ino
    }

    fn forget_if_unused(&mut self, ino: u64) {
        let i = self.inode(ino);
        if i.nlink == 0 && i.opens == 0 {
            self.inodes.remove(&ino);
        }
    }

    fn stat(&self, ino: u64) -> Outcome {
        let i = self.inode(ino);
        let (kind, size) = match &i.kind {
            Kind::Dir { .. } => (0o040_000, 0),
            Kind::File(b) => (0o100_000, b.len() as u64),
            Kind::Symlink(t) => (0o120_000, t.len() as u64),
        };
        Outcome::Stat(StatView { ino, mode: kind | i.perm, nlink: i.nlink, size })
    }

    fn mkdir(&mut self, path: &str, mode: u32) -> Res<Outcome> {
        let at = self.place(path, false)?;
        if at.ino.is_some() {
            return Err(EEXIST);
        }
        let dir = self.make(Kind::Dir { entries: BTreeMap::new(), parent: at.dir }, mode & 0o1777, 2);
        self.entries_mut(at.dir).insert(at.name, dir);
        self.inode_mut(at.dir).nlink += 1;
        Ok(Outcome::Done)
    }

    fn rmdir(&mut self, path: &str) -> Res<Outcome> {
        let at = self.place(path, false)?;
        let ino = at.ino.ok_or(ENOENT)?;
        if !self.entries(ino)?.is_empty() {
            return Err(ENOTEMPTY);
        }
        self.entries_mut(at.dir).remove(&at.name);
        self.inode_mut(at.dir).nlink -= 1;
        self.inodes.remove(&ino);
        Ok(Outcome::Done)
    }

    fn is_dir(&self, ino: u64) -> bool {
        matches!(self.inode(ino).kind, Kind::Dir { .. })
    }

    fn unlink(&mut self, path: &str) -> Res<Outcome> {
        let at = self.place(path, false)?;
        let ino = at.ino.ok_or(ENOENT)?;
        if self.is_dir(ino) {
            return Err(EISDIR);
        }
        self.entries_mut(at.dir).remove(&at.name);
        self.inode_mut(ino).nlink -= 1;
        self.forget_if_unused(ino);
        Ok(Outcome::Done)
    }

    fn link(&mut self, from: &str, to: &str) -> Res<Outcome> {
        let source = self.find(from, false)?;
        let at = self.place(to, false)?;
        if at.ino.is_some() {
            return Err(EEXIST);
        }
        if self.is_dir(source) {
            return Err(EPERM);
        }
        self.entries_mut(at.dir).insert(at.name, source);
        self.inode_mut(source).nlink += 1;
        Ok(Outcome::Done)
    }

    fn symlink(&mut self, target: &str, path: &str) -> Res<Outcome> {
        let at = self.place(path, false)?;
        if at.ino.is_some() {
            return Err(EEXIST);
        }
        let ino = self.make(Kind::Symlink(target.to_owned()), 0o777, 1);
        self.entries_mut(at.dir).insert(at.name, ino);
        Ok(Outcome::Done)
    }

    fn below(&self, mut dir: u64, ancestor: u64) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            match &self.inode(dir).kind {
                Kind::Dir { parent, .. } if dir != ROOT => dir = *parent,
                _ => return false,
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str, how: RenameHow) -> Res<Outcome> {
        let a = self.place(from, false)?;
        let b = self.place(to, false)?;
        let source = a.ino.ok_or(ENOENT)?;
        match (how, b.ino) {
            (RenameHow::NoReplace, Some(_)) => return Err(EEXIST),
            (RenameHow::Exchange, None) => return Err(ENOENT),
            _ => {}
        }
        if self.is_dir(source) && self.below(b.dir, source) {
            return Err(EINVAL);
        }
        let covers_source = b.ino.is_some_and(|t| self.is_dir(t) && self.below(a.dir, t));
        if covers_source {
            return Err(if how == RenameHow::Exchange { EINVAL } else { ENOTEMPTY });
        }
        if b.ino == Some(source) {
            return Ok(Outcome::Done);
        }
        if how == RenameHow::Exchange {
            let target = b.ino.ok_or(ENOENT)?;
            self.entries_mut(a.dir).insert(a.name, target);
            self.entries_mut(b.dir).insert(b.name, source);
            self.moved(target, b.dir, a.dir);
            self.moved(source, a.dir, b.dir);
            return Ok(Outcome::Done);
        }
        if let Some(target) = b.ino {
            self.replace(source, target, b.dir)?;
        }
        self.entries_mut(a.dir).remove(&a.name);
        self.entries_mut(b.dir).insert(b.name, source);
        self.moved(source, a.dir, b.dir);
        Ok(Outcome::Done)
    }

    /// Checks and removes what a rename replaces.
    fn replace(&mut self, source: u64, target: u64, dir: u64) -> Res<()> {
        match (self.is_dir(source), self.is_dir(target)) {
            (true, false) => return Err(ENOTDIR),
            (false, true) => return Err(EISDIR),
            (true, true) if !self.entries(target)?.is_empty() => return Err(ENOTEMPTY),
            (true, true) => {
                self.inode_mut(dir).nlink -= 1;
                self.inodes.remove(&target);
            }
            (false, false) => {
                self.inode_mut(target).nlink -= 1;
                self.forget_if_unused(target);
            }
        }
        Ok(())
    }

    fn moved(&mut self, ino: u64, old: u64, new: u64) {
        if let Kind::Dir { parent, .. } = &mut self.inode_mut(ino).kind {
            *parent = new;
            self.inode_mut(old).nlink -= 1;
            self.inode_mut(new).nlink += 1;
        }
    }

    fn close(&mut self, slot: usize) -> Res<Outcome> {
        let h = self.handles.remove(&slot).ok_or(EBADF)?;
        self.inode_mut(h.ino).opens -= 1;
        self.forget_if_unused(h.ino);
        Ok(Outcome::Done)
    }

    /// Opens into `slot`; an open file in the slot is closed first, whatever becomes of the open.
    fn open(&mut self, slot: usize, path: &str, how: How) -> Res<Outcome> {
        if self.handles.contains_key(&slot) {
            self.close(slot)?;
        }
        let follow = !(how.create && how.exclusive);
        let at = self.place(path, follow)?;
        let ino = match at.ino {
            Some(_) if how.create && how.exclusive => return Err(EEXIST),
            // Directories are listed by name, never opened into a slot.
            Some(ino) if self.is_dir(ino) => return Err(EISDIR),
            Some(ino) => ino,
            None if !how.create => return Err(ENOENT),
            None => {
                let ino = self.make(Kind::File(Arc::default()), 0o644, 1);
                self.entries_mut(at.dir).insert(at.name, ino);
                ino
            }
        };
        if how.truncate {
            self.bytes_mut(ino)?.clear();
        }
        self.inode_mut(ino).opens += 1;
        self.handles.insert(slot, Handle { ino, how });
        Ok(Outcome::Done)
    }

    fn tmpfile(&mut self, slot: usize, dir: &str) -> Res<Outcome> {
        if self.handles.contains_key(&slot) {
            self.close(slot)?;
        }
        let dir = self.find(dir, true)?;
        self.entries(dir)?;
        let ino = self.make(Kind::File(Arc::default()), 0o600, 0);
        self.inode_mut(ino).opens += 1;
        self.handles.insert(slot, Handle { ino, how: How { read: true, write: true, ..How::default() } });
        Ok(Outcome::Done)
    }

    fn cut(&mut self, ino: u64, size: u64) -> Res<Outcome> {
        self.bytes_mut(ino)?.resize(size as usize, 0);
        Ok(Outcome::Done)
    }

    fn zero(&mut self, slot: usize, offset: u64, len: u64, extend: bool) -> Res<Outcome> {
        let h = self.handle(slot, |h| h.write)?;
        let bytes = self.bytes_mut(h.ino)?;
        let end = (offset + len) as usize;
        if extend && bytes.len() < end {
            bytes.resize(end, 0);
        }
        let (start, end) = ((offset as usize).min(bytes.len()), end.min(bytes.len()));
        bytes[start..end].fill(0);
        Ok(Outcome::Done)
    }

    fn copy(&mut self, from: usize, to: usize, at: usize, put_at: usize, len: usize) -> Res<Outcome> {
        let (source, sink) = (self.handle(from, |h| h.read)?, self.handle(to, |h| h.write)?);
        if sink.append {
            return Err(EBADF);
        }
        let size = self.bytes_mut(source.ino)?.len();
        let len = len.min(size.saturating_sub(at));
        let overlap = at < put_at + len && put_at < at + len;
        if source.ino == sink.ino && overlap && len > 0 {
            return Err(EINVAL);
        }
        let data = self.bytes_mut(source.ino)?[at.min(size)..at.min(size) + len].to_vec();
        put(self.bytes_mut(sink.ino)?, put_at, &data);
        Ok(Outcome::Count(len))
    }
}

struct Handle0 {
    ino: u64,
    append: bool,
}

fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}
