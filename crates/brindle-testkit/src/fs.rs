//! [`ClientFs`]: the operations of the model, carried out by a real client the way a kernel would ask for them.
//!
//! Called by the model test and by the tree workload. Walks paths itself (lookup, readlink), keeps open files in
//! slots, and tells an answer of POSIX from a failure of the system.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_client::file::copy_range::CopyIn;
use brindle_client::file::fallocate::Allocation;
use brindle_client::namespace::create::CreateIn;
use brindle_client::namespace::rename::RenameIn;
use brindle_client::namespace::xattr::SetHow;
use brindle_client::{Client, Ctx, SetAttr, WriteIn};
use brindle_types::errno::*;
use brindle_types::{Attr, Code, Fault, FileType, Ino};
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use crate::model::{Content, How, Node, Op, Outcome, RenameHow, StatView, pattern};

/// Symbolic links followed in one path, as Linux.
const LINKS_MAX: usize = 40;
/// Entries asked for at once: few, so that a listing takes several calls.
const LIST_BATCH: u32 = 7;
/// More than any file of a test holds.
const READ_MAX: u64 = 16 << 20;

/// An open file.
#[derive(Clone, Copy)]
struct Open {
    handle: u64,
    ino: Ino,
    how: How,
}

/// Last entry of a path.
struct PathEnd {
    dir: Ino,
    name: String,
    found: Option<Attr>,
    /// Directories walked through, `dir` the last.
    trail: Vec<Ino>,
}

/// Operations below one directory of a mounted file system.
pub struct ClientFs {
    client: Arc<Client>,
    ctx: Ctx,
    base: Ino,
    slots: Mutex<BTreeMap<usize, Open>>,
    /// Files whose contents the last operation changed, and through which handle (0 for none).
    touched: Mutex<Vec<(Ino, u64)>>,
}

/// Reason why an operation has no outcome to compare.
enum Stop {
    Errno(i32),
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        if is_posix(fault.code) { Stop::Errno(fault.code.errno()) } else { Stop::Fault(fault) }
    }
}

/// Whether a code is an ordinary answer of a file system, not a failure of this one.
pub fn is_posix(code: Code) -> bool {
    match code {
        Code::LockConflict | Code::TryAgain | Code::Interrupted => true,
        _ => !matches!(code.errno(), EIO | ESTALE | ENOTCONN | EAGAIN | EPROTO | ETIMEDOUT | ENOSYS),
    }
}

type Res<T> = Result<T, Stop>;

impl ClientFs {
    /// Operations below `base`.
    pub fn new(client: Arc<Client>, base: Ino) -> ClientFs {
        ClientFs { client, ctx: Ctx::root(), base, slots: Mutex::default(), touched: Mutex::default() }
    }

    /// Carries out one operation. A fault means that the system failed, and that it is not known what happened.
    pub async fn apply(&self, op: &Op) -> Result<Outcome, Fault> {
        self.touched.lock().clear();
        match self.run(op).await {
            Ok(outcome) => Ok(outcome),
            Err(Stop::Errno(errno)) => Ok(Outcome::Errno(errno)),
            Err(Stop::Fault(fault)) => Err(fault),
        }
    }

    /// Files whose contents the last operation changed or may have, and through which handle (0 for none).
    pub fn touched(&self) -> Vec<(Ino, u64)> {
        self.touched.lock().clone()
    }

    /// Inode and handle of an open slot.
    pub fn slot_file(&self, slot: usize) -> Option<(Ino, u64)> {
        self.slots.lock().get(&slot).map(|open| (open.ino, open.handle))
    }

    /// Syncs every open file; those with which that succeeded, and why it did not with others (their bytes may be lost).
    pub async fn sync_all(&self) -> (Vec<(Ino, u64)>, Vec<Fault>) {
        let open: Vec<Open> = self.slots.lock().values().copied().collect();
        let (mut synced, mut faults) = (Vec::new(), Vec::new());
        for file in open {
            match self.client.fsync(file.handle).await {
                Ok(()) => synced.push((file.ino, file.handle)),
                Err(fault) => faults.push(fault),
            }
        }
        (synced, faults)
    }

    /// Whether an open file says that bytes were lost that were acknowledged.
    pub async fn has_lost(&self) -> bool {
        let open: Vec<Open> = self.slots.lock().values().copied().collect();
        for file in open {
            if self.client.flush(file.handle, None).await.is_err() {
                return true;
            }
        }
        false
    }

    /// Tree below the base, in the form of [`crate::model::Model::snapshot`].
    pub async fn snapshot(&self) -> Result<BTreeMap<String, Node>, Fault> {
        // A new question each time: until a client notices that the MDT is gone it answers from its cache of
        // before the cut.
        self.client.listxattr(self.base).await?;
        let mut found = BTreeMap::new();
        let mut todo = vec![".".to_owned()];
        while let Some(path) = todo.pop() {
            let Some(attr) = self.exact(&path).await? else { continue };
            if attr.kind == FileType::Directory {
                let Outcome::Names(names) = self.apply(&Op::List { path: path.clone() }).await? else {
                    continue;
                };
                let child = |name: String| if path == "." { name } else { format!("{path}/{name}") };
                todo.extend(names.into_iter().map(child));
            }
            let content = self.content(&attr).await?;
            let mut xattrs = BTreeMap::new();
            for name in self.client.listxattr(attr.ino).await? {
                let value = self.client.getxattr(attr.ino, &name).await?;
                xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value);
            }
            let v = view(&attr);
            found.insert(path, Node { ino: v.ino, mode: v.mode, nlink: v.nlink, content, xattrs });
        }
        Ok(found)
    }

    async fn exact(&self, path: &str) -> Result<Option<Attr>, Fault> {
        match self.find(path, false).await {
            Ok(attr) => Ok(Some(attr)),
            Err(Stop::Errno(_)) => Ok(None),
            Err(Stop::Fault(fault)) => Err(fault),
        }
    }

    async fn content(&self, attr: &Attr) -> Result<Content, Fault> {
        match attr.kind {
            FileType::Directory => Ok(Content::Dir),
            FileType::Symlink => {
                let target = self.client.readlink(attr.ino).await?;
                Ok(Content::Symlink(String::from_utf8_lossy(&target).into_owned()))
            }
            _ => {
                let access = Access { read: true, ..Access::default() };
                let opened = self.client.open(&self.ctx, attr.ino, access, false).await?;
                let read = self.client.read(opened.handle, 0, READ_MAX, false).await;
                self.client.close(opened.handle).await?;
                Ok(Content::File(Arc::new(read?.into_bytes().to_vec())))
            }
        }
    }

    fn touch(&self, ino: Ino, handle: u64) {
        self.touched.lock().push((ino, handle));
    }

    /// Closes everything, whatever comes of it.
    pub async fn close_all(&self) {
        let open = std::mem::take(&mut *self.slots.lock());
        for file in open.into_values() {
            // The answers are those of handles that are given up because they failed.
            let _ = self.client.flush(file.handle, None).await;
            let _ = self.client.close(file.handle).await;
        }
    }

    async fn run(&self, op: &Op) -> Res<Outcome> {
        let (client, ctx) = (&self.client, &self.ctx);
        match op {
            Op::Mkdir { path, mode } => {
                let at = self.absent(path).await?;
                client.mkdir(ctx, at.dir, at.name.as_bytes(), *mode, 0).await?;
            }
            Op::Rmdir { path } => {
                let at = self.present(path).await?;
                client.rmdir(ctx, at.dir, at.name.as_bytes()).await?;
            }
            Op::Unlink { path } => {
                let at = self.present(path).await?;
                client.unlink(ctx, at.dir, at.name.as_bytes()).await?;
            }
            Op::Rename { from, to, how } => self.rename(from, to, *how).await?,
            Op::Link { from, to } => {
                let source = self.find(from, false).await?;
                let at = self.absent(to).await?;
                client.link(ctx, source.ino, at.dir, at.name.as_bytes()).await?;
            }
            Op::Symlink { target, path } => {
                let at = self.absent(path).await?;
                client.symlink(ctx, at.dir, at.name.as_bytes(), target.as_bytes()).await?;
            }
            Op::Readlink { path } => {
                let ino = self.find(path, false).await?.ino;
                return Ok(Outcome::Bytes(client.readlink(ino).await?));
            }
            Op::Stat { path } => {
                let ino = self.find(path, false).await?.ino;
                // A check of permissions would use the rights; no other client works here.
                let rights = client.rights(ino);
                let attr = client.getattr(ino).await?;
                let perm = rights.map_or(attr.perm, |rights| rights.perm);
                return Ok(Outcome::Stat(view(&Attr { perm, ..attr })));
            }
            Op::List { path } => return self.list(path).await,
            Op::Chmod { path, mode } => {
                let set = SetAttr { mode: Some(*mode), ..SetAttr::default() };
                client.setattr(ctx, self.find(path, true).await?.ino, set).await?;
            }
            Op::Truncate { path, size } => {
                let set = SetAttr { size_bytes: Some(*size), ..SetAttr::default() };
                let ino = self.find(path, true).await?.ino;
                self.touch(ino, 0);
                client.setattr(ctx, ino, set).await?;
            }
            Op::SetXattr { path, name, value } => {
                let ino = self.find(path, true).await?.ino;
                client.setxattr(ctx, ino, name.as_bytes(), value, SetHow::default()).await?;
            }
            Op::GetXattr { path, name } => {
                let ino = self.find(path, true).await?.ino;
                return Ok(Outcome::Bytes(client.getxattr(ino, name.as_bytes()).await?));
            }
            Op::RemoveXattr { path, name } => {
                let ino = self.find(path, true).await?.ino;
                client.removexattr(ctx, ino, name.as_bytes()).await?;
            }
            Op::Open { slot, path, how } => self.open(*slot, path, *how).await?,
            Op::Tmpfile { slot, dir } => self.tmpfile(*slot, dir).await?,
            _ => return self.run_open(op).await,
        }
        Ok(Outcome::Done)
    }

    /// Operations on open files.
    async fn run_open(&self, op: &Op) -> Res<Outcome> {
        let (client, ctx) = (&self.client, &self.ctx);
        match *op {
            Op::Close { slot } => {
                let file = self.slots.lock().remove(&slot).ok_or(Stop::Errno(EBADF))?;
                let flushed = client.flush(file.handle, None).await;
                // A RELEASE of the kernel is not waited for either.
                drop(client.close_later(file.handle)?);
                flushed?;
            }
            Op::Write { slot, offset, len, fill } => {
                let file = self.slot(slot, |how| how.write, EBADF)?;
                self.touch(file.ino, file.handle);
                let data = pattern(fill, len).into();
                let write = WriteIn { offset, data, append: file.how.append, ..WriteIn::default() };
                return Ok(Outcome::Count(client.write(ctx, file.handle, write).await? as usize));
            }
            Op::Read { slot, offset, len } => {
                let file = self.slot(slot, |how| how.read, EBADF)?;
                let read = client.read(file.handle, offset, len as u64, false).await?;
                return Ok(Outcome::Bytes(read.into_bytes().to_vec()));
            }
            Op::Fstat { slot } => {
                let file = self.slot(slot, |_| true, EBADF)?;
                return Ok(Outcome::Stat(view(&client.getattr(file.ino).await?)));
            }
            Op::Ftruncate { slot, size } => {
                self.slot(slot, |_| true, EBADF)?;
                let file = self.slot(slot, |how| how.write, EINVAL)?;
                self.touch(file.ino, file.handle);
                let set = SetAttr { size_bytes: Some(size), handle: file.handle, ..SetAttr::default() };
                client.setattr(ctx, file.ino, set).await?;
            }
            Op::Punch { slot, offset, len } => {
                self.allocate(slot, offset, len, Allocation::Punch).await?;
            }
            Op::Zero { slot, offset, len } => {
                self.allocate(slot, offset, len, Allocation::Zero { keep_size: false }).await?;
            }
            Op::Fallocate { slot, offset, len } => {
                self.allocate(slot, offset, len, Allocation::Reserve { keep_size: false }).await?;
            }
            Op::Fsync { slot } => {
                let file = self.slot(slot, |_| true, EBADF)?;
                client.fsync(file.handle).await?;
            }
            Op::Copy { from, to, from_offset, to_offset, len } => {
                return self.copy(from, to, from_offset, to_offset, len as u64).await;
            }
            _ => unreachable!("named operations are handled by run"),
        }
        Ok(Outcome::Done)
    }

    async fn allocate(&self, slot: usize, offset: u64, len: u64, how: Allocation) -> Res<()> {
        let file = self.slot(slot, |how| how.write, EBADF)?;
        self.touch(file.ino, file.handle);
        self.client.fallocate(&self.ctx, file.handle, offset..offset + len, how).await?;
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str, how: RenameHow) -> Res<()> {
        let source = self.place(from, false).await?;
        let target = self.place(to, false).await?;
        if source.found.is_none() {
            return Err(Stop::Errno(ENOENT));
        }
        // A kernel checks these conditions before it sends the request.
        match (how, &target.found) {
            (RenameHow::NoReplace, Some(_)) => return Err(Stop::Errno(EEXIST)),
            (RenameHow::Exchange, None) => return Err(Stop::Errno(ENOENT)),
            _ => {}
        }
        let ino = |place: &PathEnd| place.found.as_ref().map(|attr| attr.ino);
        if ino(&source).is_some_and(|ino| target.trail.contains(&ino)) {
            return Err(Stop::Errno(EINVAL));
        }
        if ino(&target).is_some_and(|ino| source.trail.contains(&ino)) {
            return Err(Stop::Errno(if how == RenameHow::Exchange { EINVAL } else { ENOTEMPTY }));
        }
        let rename = RenameIn {
            parent: source.dir,
            name: source.name.as_bytes(),
            new_parent: target.dir,
            new_name: target.name.as_bytes(),
            no_replace: how == RenameHow::NoReplace,
            exchange: how == RenameHow::Exchange,
            whiteout: false,
        };
        Ok(self.client.rename(&self.ctx, rename).await?)
    }

    async fn list(&self, path: &str) -> Res<Outcome> {
        let dir = self.find(path, true).await?;
        if dir.kind != FileType::Directory {
            return Err(Stop::Errno(ENOTDIR));
        }
        let mut names = Vec::new();
        let mut after = 0;
        loop {
            let listing = self.client.readdir(dir.ino, after, LIST_BATCH, false).await?;
            for entry in &listing.entries {
                names.push(String::from_utf8_lossy(&entry.name).into_owned());
                after = entry.cookie;
            }
            if listing.end || listing.entries.is_empty() {
                names.sort();
                return Ok(Outcome::Names(names));
            }
        }
    }

    async fn open(&self, slot: usize, path: &str, how: How) -> Res<()> {
        self.close_slot(slot).await?;
        let follow = !(how.create && how.exclusive);
        let at = self.place(path, follow).await?;
        let access = Access { read: how.read, write: how.write, truncate: how.truncate, execute: false };
        let (handle, ino) = match at.found {
            Some(_) if how.create && how.exclusive => return Err(Stop::Errno(EEXIST)),
            Some(attr) if attr.kind == FileType::Directory => return Err(Stop::Errno(EISDIR)),
            Some(attr) if how.truncate => {
                self.touch(attr.ino, 0);
                (self.client.open(&self.ctx, attr.ino, access, false).await?.handle, attr.ino)
            }
            Some(attr) => (self.client.open(&self.ctx, attr.ino, access, false).await?.handle, attr.ino),
            None if !how.create => return Err(Stop::Errno(ENOENT)),
            None => {
                let create = CreateIn {
                    parent: at.dir,
                    name: at.name.as_bytes(),
                    mode: 0o644,
                    umask: 0,
                    exclusive: how.exclusive,
                    access,
                };
                let created = self.client.create(&self.ctx, create).await?;
                (created.opened.handle, created.opened.attr.ino)
            }
        };
        self.slots.lock().insert(slot, Open { handle, ino, how });
        Ok(())
    }

    async fn tmpfile(&self, slot: usize, dir: &str) -> Res<()> {
        self.close_slot(slot).await?;
        let dir = self.find(dir, true).await?;
        let access = Access { read: true, write: true, truncate: false, execute: false };
        let opened = self.client.tmpfile(&self.ctx, dir.ino, 0o600, 0, access).await?;
        let how = How { read: true, write: true, ..How::default() };
        self.slots.lock().insert(slot, Open { handle: opened.handle, ino: opened.attr.ino, how });
        Ok(())
    }

    async fn close_slot(&self, slot: usize) -> Res<()> {
        let old = self.slots.lock().remove(&slot);
        if let Some(file) = old {
            let flushed = self.client.flush(file.handle, None).await;
            self.client.close(file.handle).await?;
            flushed?;
        }
        Ok(())
    }

    /// The checks that a kernel makes, then the copy.
    async fn copy(&self, from: usize, to: usize, at: u64, put_at: u64, len: u64) -> Res<Outcome> {
        let source = self.slot(from, |how| how.read, EBADF)?;
        let target = self.slot(to, |how| how.write && !how.append, EBADF)?;
        let size = self.client.getattr(source.ino).await?.size_bytes;
        let len = len.min(size.saturating_sub(at));
        if source.ino == target.ino && len > 0 && at < put_at + len && put_at < at + len {
            return Err(Stop::Errno(EINVAL));
        }
        self.touch(target.ino, target.handle);
        let copy = CopyIn {
            source: source.handle,
            source_offset: at,
            target: target.handle,
            target_offset: put_at,
            len_bytes: len,
            kill_suidgid: false,
        };
        Ok(Outcome::Count(self.client.copy_range(&self.ctx, copy).await? as usize))
    }

    fn slot(&self, slot: usize, allowed: impl Fn(&How) -> bool, errno: i32) -> Res<Open> {
        let open = self.slots.lock().get(&slot).copied().ok_or(Stop::Errno(EBADF))?;
        if allowed(&open.how) { Ok(open) } else { Err(Stop::Errno(errno)) }
    }

    async fn find(&self, path: &str, follow: bool) -> Res<Attr> {
        self.place(path, follow).await?.found.ok_or(Stop::Errno(ENOENT))
    }

    async fn present(&self, path: &str) -> Res<PathEnd> {
        let at = self.place(path, false).await?;
        if at.found.is_some() { Ok(at) } else { Err(Stop::Errno(ENOENT)) }
    }

    async fn absent(&self, path: &str) -> Res<PathEnd> {
        let at = self.place(path, false).await?;
        if at.found.is_none() { Ok(at) } else { Err(Stop::Errno(EEXIST)) }
    }

    async fn lookup(&self, dir: Ino, name: &str) -> Res<Option<Attr>> {
        match self.client.lookup(dir, name.as_bytes()).await {
            Ok(attr) => Ok(Some(attr)),
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Walks to the last name. With `follow`, a symbolic link there is followed.
    async fn place(&self, path: &str, follow: bool) -> Res<PathEnd> {
        let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let (mut dir, mut links) = (self.base, 0);
        let mut trail = vec![dir];
        while let Some(name) = todo.pop() {
            if name == "." || name.is_empty() {
                continue;
            }
            let last = todo.is_empty();
            let Some(attr) = self.lookup(dir, &name).await? else {
                return if last {
                    Ok(PathEnd { dir, name, found: None, trail })
                } else {
                    Err(Stop::Errno(ENOENT))
                };
            };
            if attr.kind == FileType::Symlink && (!last || follow) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Stop::Errno(ELOOP));
                }
                let target = self.client.readlink(attr.ino).await?;
                let target = String::from_utf8_lossy(&target).into_owned();
                todo.extend(target.split('/').rev().map(str::to_owned));
            } else if last {
                return Ok(PathEnd { dir, name, found: Some(attr), trail });
            } else if attr.kind == FileType::Directory {
                dir = attr.ino;
                trail.push(dir);
            } else {
                return Err(Stop::Errno(ENOTDIR));
            }
        }
        let attr = self.client.getattr(dir).await?;
        Ok(PathEnd { dir, name: ".".into(), found: Some(attr), trail })
    }
}

/// Attributes of stat, as far as they must agree with the model.
pub fn view(attr: &Attr) -> StatView {
    let size = if attr.kind == FileType::Directory { 0 } else { attr.size_bytes };
    StatView { ino: attr.ino.0, mode: attr.kind.mode_bits() | u32::from(attr.perm), nlink: attr.nlink, size }
}

/// Map between inodes of the model and real ones.
#[derive(Clone, Default)]
pub struct InodeMap {
    real: BTreeMap<u64, u64>,
    model: BTreeMap<u64, u64>,
}

impl InodeMap {
    /// The map that two snapshots of one tree show.
    pub fn of(model: &BTreeMap<String, Node>, real: &BTreeMap<String, Node>) -> InodeMap {
        let mut map = InodeMap::default();
        for (path, node) in model {
            if let Some(seen) = real.get(path) {
                map.real.insert(node.ino, seen.ino);
                map.model.insert(seen.ino, node.ino);
            }
        }
        map
    }

    /// Whether a real outcome is the model's; inode numbers must map one to one.
    pub fn same(&mut self, expected: &Outcome, got: &Outcome) -> bool {
        let (Outcome::Stat(e), Outcome::Stat(g)) = (expected, got) else { return expected == got };
        let first = *self.real.entry(e.ino).or_insert(g.ino) == g.ino;
        let second = *self.model.entry(g.ino).or_insert(e.ino) == e.ino;
        let view = StatView { ino: e.ino, ..g.clone() };
        first && second && view == *e
    }
}
