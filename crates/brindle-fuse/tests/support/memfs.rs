//! The file system itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brindle_fuse::abi::flags::fopen;
use brindle_fuse::notify::Notifier;
use brindle_fuse::request::*;
use brindle_fuse::{DirBuffer, Entry, Filesystem, Opened, Reply, Statfs};
use brindle_stdx::BoxFuture;
use brindle_types::attr::Time;
use brindle_types::errno::*;
use brindle_types::{Attr, FileType, Ino};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::locks::Locks;

type Answer = Result<Reply, i32>;

enum Body {
    File(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, u64>),
    Symlink(Bytes),
    Other,
}

struct Inode {
    attr: Attr,
    body: Body,
    locks: Locks,
    xattrs: BTreeMap<Vec<u8>, Bytes>,
}

#[derive(Default)]
struct State {
    inodes: BTreeMap<u64, Inode>,
    lookups: BTreeMap<u64, u64>,
    last_ino: u64,
    last_fh: u64,
    clock: u32,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Inode.
    pub ino: u64,
    /// User, group and thread that it came from.
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Whether it came a second time.
    pub resent: bool,
    /// Operation.
    pub op: Op,
}

type Matches = Box<dyn Fn(&Seen) -> bool + Send>;

struct Gate {
    matches: Matches,
    open: watch::Receiver<bool>,
    held: watch::Sender<usize>,
    stubborn: bool,
}

/// Holds matching requests back until it is dropped or opened.
pub struct GateKey {
    open: watch::Sender<bool>,
    held: watch::Receiver<usize>,
}

impl GateKey {
    /// Lets them go.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Number of requests that came to the gate so far.
    pub fn arrived(&self) -> usize {
        *self.held.borrow()
    }
}

impl Drop for GateKey {
    fn drop(&mut self) {
        self.open();
    }
}

/// Answers to opens, and lifetimes of entries and attributes in the kernel.
#[derive(Clone, Copy)]
pub struct Policy {
    /// Bits of `fopen`.
    pub open_flags: u32,
    /// Timeout of attributes.
    pub attr_valid: Duration,
    /// Timeout of names.
    pub entry_valid: Duration,
}

/// The file system.
pub struct MemFs {
    state: Mutex<State>,
    policy: Mutex<Policy>,
    log: Mutex<Vec<Seen>>,
    gates: Mutex<Vec<Gate>>,
    unlocked: Notify,
    notifier: Notifier,
}

pub const DIRECT: u32 = fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;

impl MemFs {
    pub fn new(notifier: Notifier) -> Arc<MemFs> {
        let mut state = State { last_ino: 1, ..State::default() };
        state.inodes.insert(1, inode(1, FileType::Directory, 0o1777, Body::Dir(BTreeMap::new())));
        let policy = Policy { open_flags: 0, attr_valid: Duration::ZERO, entry_valid: Duration::ZERO };
        Arc::new(MemFs {
            state: Mutex::new(state),
            policy: Mutex::new(policy),
            log: Mutex::default(),
            gates: Mutex::default(),
            unlocked: Notify::new(),
            notifier,
        })
    }

    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Changes how opens from now on are answered.
    pub fn open_with(&self, flags: u32) {
        self.policy.lock().open_flags = flags;
    }

    pub fn policy(&self, change: impl FnOnce(&mut Policy)) {
        change(&mut self.policy.lock());
    }

    /// Requests that arrived since the last call.
    pub fn take_log(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.log.lock())
    }

    /// Number of requests in the log that match.
    pub fn count(&self, matches: impl Fn(&Seen) -> bool) -> usize {
        self.log.lock().iter().filter(|s| matches(s)).count()
    }

    /// Makes matching requests wait; a signal to the caller ends the wait.
    pub fn gate(&self, matches: impl Fn(&Seen) -> bool + Send + 'static) -> GateKey {
        self.gate_of(Box::new(matches), false)
    }

    /// Like [`MemFs::gate`], and signals are ignored.
    pub fn stubborn_gate(&self, matches: impl Fn(&Seen) -> bool + Send + 'static) -> GateKey {
        self.gate_of(Box::new(matches), true)
    }

    fn gate_of(&self, matches: Matches, stubborn: bool) -> GateKey {
        let (open, open_rx) = watch::channel(false);
        let (held, held_rx) = watch::channel(0);
        self.gates.lock().push(Gate { matches, open: open_rx, held, stubborn });
        GateKey { open, held: held_rx }
    }

    /// Inode of a name in the root directory.
    pub fn ino(&self, name: &str) -> u64 {
        let state = self.state.lock();
        let Body::Dir(entries) = &state.inodes[&1].body else { panic!("the root is a directory") };
        entries[name.as_bytes()]
    }

    /// Contents of a file, as the server has them.
    pub fn contents(&self, ino: u64) -> Vec<u8> {
        match &self.state.lock().inodes[&ino].body {
            Body::File(data) => data.clone(),
            _ => panic!("not a file"),
        }
    }

    /// Lookup references that the kernel holds.
    pub fn lookups(&self, ino: u64) -> u64 {
        self.state.lock().lookups.get(&ino).copied().unwrap_or(0)
    }

    /// A write by another client, which this kernel is not told of.
    pub fn remote_write(&self, ino: u64, offset: usize, data: &[u8], touch: bool) {
        let mut state = self.state.lock();
        let before = state.inodes[&ino].attr.mtime;
        write_bytes(&mut state, ino, offset, data).expect("a file");
        if !touch {
            state.inodes.get_mut(&ino).expect("a file").attr.mtime = before;
        }
    }

    /// A truncation by another client.
    pub fn remote_truncate(&self, ino: u64, size: usize) {
        let mut state = self.state.lock();
        set_size(&mut state, ino, size).expect("a file");
    }

    async fn serve(self: Arc<Self>, request: Request) -> Reply {
        match self.answer(&request).await {
            Ok(reply) => reply,
            Err(errno) => Reply::err(errno),
        }
    }

    async fn answer(&self, r: &Request) -> Answer {
        let seen = Seen {
            ino: r.nodeid,
            uid: r.uid,
            gid: r.gid,
            pid: r.pid,
            groups: r.groups.clone(),
            resent: r.resent,
            op: r.op.clone(),
        };
        self.log.lock().push(seen.clone());
        self.pass_gates(&seen, r).await?;
        match &r.op {
            Op::Setlk(l) => self.setlk(r, l).await,
            op => self.fast_path(r, op),
        }
    }

    async fn pass_gates(&self, seen: &Seen, r: &Request) -> Result<(), i32> {
        let mut wait = Vec::new();
        for gate in self.gates.lock().iter() {
            if !*gate.open.borrow() && (gate.matches)(seen) {
                gate.held.send_modify(|n| *n += 1);
                wait.push((gate.open.clone(), gate.stubborn));
            }
        }
        for (mut open, stubborn) in wait {
            let cancelled = r.cancel.requested();
            tokio::select! { biased;
                _ = open.wait_for(|o| *o) => {}
                () = cancelled, if !stubborn => return Err(EINTR),
            }
        }
        Ok(())
    }

    fn fast_path(&self, r: &Request, op: &Op) -> Answer {
        let policy = *self.policy.lock();
        let mut state = self.state.lock();
        let s = &mut *state;
        let dir = r.nodeid;
        match op {
            Op::Lookup(l) => {
                let ino = if &l.name[..] == b"." { dir } else { s.child(dir, &l.name)? };
                s.entry(ino, &policy)
            }
            Op::Getattr(_) => Ok(Reply::attr(&s.get(dir)?.attr, policy.attr_valid)),
            Op::Statx(_) => Ok(Reply::statx(&s.get(dir)?.attr, policy.attr_valid)),
            Op::Setattr(a) => s.setattr(dir, a, &policy),
            Op::Readlink => match &s.get(dir)?.body {
                Body::Symlink(target) => Ok(Reply::data(target.clone())),
                _ => Err(EINVAL),
            },
            Op::Symlink(l) => {
                let ino =
                    s.make(dir, Some(&l.name), FileType::Symlink, 0o777, Body::Symlink(l.target.clone()))?;
                s.entry(ino, &policy)
            }
            Op::Mknod(m) => {
                let kind = FileType::from_mode(m.mode).ok_or(EINVAL)?;
                let body = if kind == FileType::Regular { Body::File(Vec::new()) } else { Body::Other };
                let ino = s.make(dir, Some(&m.name), kind, m.mode & !m.umask, body)?;
                s.get_mut(ino)?.attr.rdev = m.rdev;
                s.entry(ino, &policy)
            }
            Op::Mkdir(m) => {
                let body = Body::Dir(BTreeMap::new());
                let ino = s.make(dir, Some(&m.name), FileType::Directory, m.mode & !m.umask, body)?;
                s.entry(ino, &policy)
            }
            Op::Unlink(u) => s.unlink(dir, &u.name),
            Op::Rmdir(u) => s.unlink(dir, &u.name),
            Op::Rename(n) => s.rename(dir, n),
            Op::Link(l) => {
                s.dir(dir)?.insert(l.name.to_vec(), l.ino);
                s.get_mut(l.ino)?.attr.nlink += 1;
                s.entry(l.ino, &policy)
            }
            Op::Open(o) => {
                if o.flags & libc::O_TRUNC as u32 != 0 {
                    set_size(s, dir, 0)?;
                }
                Ok(Reply::opened(s.open(policy.open_flags)))
            }
            Op::Opendir(_) => Ok(Reply::opened(s.open(0))),
            Op::Create(c) => {
                let perm = c.mode & !c.umask;
                let ino = s.make(dir, Some(&c.name), FileType::Regular, perm, Body::File(Vec::new()))?;
                let attr = &mut s.get_mut(ino)?.attr;
                (attr.uid, attr.gid) = (r.uid, r.gid);
                s.created(ino, &policy)
            }
            Op::Tmpfile(t) => {
                let ino = s.make(dir, None, FileType::Regular, t.mode & !t.umask, Body::File(Vec::new()))?;
                s.created(ino, &policy)
            }
            other => self.on_inode(s, dir, other, &policy),
        }
    }

    /// Operations that concern no name.
    fn on_inode(&self, s: &mut State, dir: u64, op: &Op, policy: &Policy) -> Answer {
        match op {
            Op::Read(rd) => s.read(dir, rd),
            Op::Write(w) => s.write(dir, w),
            Op::CopyFileRange(c) => s.copy(dir, c),
            Op::Lseek(l) => s.seek(dir, l),
            Op::Fallocate(f) => {
                let end = (f.offset + f.length) as usize;
                let size = s.file(dir)?.len();
                if f.mode & libc::FALLOC_FL_KEEP_SIZE as u32 == 0 && end > size {
                    set_size(s, dir, end)?;
                }
                if f.mode & libc::FALLOC_FL_PUNCH_HOLE as u32 != 0 {
                    s.file(dir)?[f.offset as usize..end.min(size)].fill(0);
                }
                Ok(Reply::ok())
            }
            Op::Flush(f) => {
                s.get_mut(dir)?.locks.drop_where(|l| !l.flock && l.owner == f.lock_owner);
                self.unlocked.notify_waiters();
                Ok(Reply::ok())
            }
            Op::Release(f) => {
                s.get_mut(dir)?.locks.drop_where(|l| l.fh == f.fh);
                self.unlocked.notify_waiters();
                Ok(Reply::ok())
            }
            Op::Getlk(l) => Ok(Reply::lock(s.get(dir)?.locks.conflict(l))),
            Op::Setxattr(x) => {
                s.get_mut(dir)?.xattrs.insert(x.name.to_vec(), x.value.clone());
                Ok(Reply::ok())
            }
            Op::Getxattr(x) => {
                let value = s.get(dir)?.xattrs.get(&x.name[..]).cloned().ok_or(ENODATA)?;
                Ok(Reply::xattr(value, x.size))
            }
            Op::Listxattr(x) => {
                let list: Vec<u8> = s.get(dir)?.xattrs.keys().flat_map(|n| [&n[..], &[0]].concat()).collect();
                Ok(Reply::xattr(list.into(), x.size))
            }
            Op::Removexattr(x) => {
                s.get_mut(dir)?.xattrs.remove(&x.name[..]).map(|_| Reply::ok()).ok_or(ENODATA)
            }
            Op::Readdir(d) => s.readdir(dir, d, policy),
            Op::Ioctl(_) => Err(ENOTTY),
            Op::Fsync(_) | Op::Fsyncdir(_) | Op::Releasedir(_) | Op::Access(_) => Ok(Reply::ok()),
            Op::Statfs => Ok(Reply::statfs(&Statfs {
                blocks: 1000,
                free: 900,
                available: 800,
                inodes: 70,
                inodes_free: 60,
                bsize_bytes: 1 << 20,
                frsize_bytes: 4096,
                name_max_bytes: 255,
            })),
            other => unreachable!("{other:?} is handled before"),
        }
    }

    async fn setlk(&self, r: &Request, want: &Setlk) -> Answer {
        loop {
            let woken = self.unlocked.notified();
            {
                let mut state = self.state.lock();
                let locks = &mut state.get_mut(r.nodeid)?.locks;
                if want.lock.kind == LockKind::Unlock || locks.conflict(&want.lock).is_none() {
                    locks.set(want.lock);
                    drop(state);
                    self.unlocked.notify_waiters();
                    return Ok(Reply::ok());
                }
            }
            if !want.wait {
                return Err(EAGAIN);
            }
            tokio::select! { biased;
                () = r.cancel.requested() => return Err(EINTR),
                () = woken => {}
            }
        }
    }
}

impl Filesystem for MemFs {
    fn handle(self: &Arc<Self>, request: Request) -> BoxFuture<'static, Reply> {
        Box::pin(self.clone().serve(request))
    }

    fn forget(&self, ino: u64, nlookup: u64) {
        if let Some(n) = self.state.lock().lookups.get_mut(&ino) {
            *n = n.checked_sub(nlookup).expect("the kernel forgets no more than it looked up");
        }
    }
}

fn inode(ino: u64, kind: FileType, perm: u32, body: Body) -> Inode {
    let start = Time { secs: 1_700_000_000, nanos: 1 };
    let attr = Attr {
        ino: Ino(ino),
        kind,
        perm: (perm & 0o7777) as u16,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        size_bytes: 0,
        allocated_bytes: 0,
        atime: start,
        mtime: start,
        ctime: start,
        btime: Time { secs: 1_600_000_000, nanos: 123_456_789 },
        has_acl: false,
        has_xattr: false,
        data_version: None,
        blksize_bytes: 1 << 20,
    };
    Inode { attr, body, locks: Locks::default(), xattrs: BTreeMap::new() }
}

fn set_size(s: &mut State, ino: u64, size: usize) -> Result<(), i32> {
    s.clock += 1;
    let nanos = s.clock;
    s.file(ino)?.resize(size, 0);
    let attr = &mut s.get_mut(ino)?.attr;
    attr.size_bytes = size as u64;
    attr.allocated_bytes = size as u64;
    attr.mtime = Time { secs: 1_700_000_001, nanos };
    attr.ctime = attr.mtime;
    Ok(())
}

fn write_bytes(s: &mut State, ino: u64, offset: usize, data: &[u8]) -> Result<(), i32> {
    let size = s.file(ino)?.len().max(offset + data.len());
    set_size(s, ino, size)?;
    s.file(ino)?[offset..offset + data.len()].copy_from_slice(data);
    Ok(())
}

impl State {
    fn get(&self, ino: u64) -> Result<&Inode, i32> {
        self.inodes.get(&ino).ok_or(ESTALE)
    }

    fn get_mut(&mut self, ino: u64) -> Result<&mut Inode, i32> {
        self.inodes.get_mut(&ino).ok_or(ESTALE)
    }

    fn file(&mut self, ino: u64) -> Result<&mut Vec<u8>, i32> {
        match &mut self.get_mut(ino)?.body {
            Body::File(data) => Ok(data),
            _ => Err(EINVAL),
        }
    }

    fn dir(&mut self, ino: u64) -> Result<&mut BTreeMap<Vec<u8>, u64>, i32> {
        match &mut self.get_mut(ino)?.body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }

    fn child(&mut self, dir: u64, name: &[u8]) -> Result<u64, i32> {
        self.dir(dir)?.get(name).copied().ok_or(ENOENT)
    }

    fn make(
        &mut self,
        dir: u64,
        name: Option<&[u8]>,
        kind: FileType,
        perm: u32,
        body: Body,
    ) -> Result<u64, i32> {
        self.last_ino += 1;
        let ino = self.last_ino;
        if let Some(name) = name
            && self.dir(dir)?.insert(name.to_vec(), ino).is_some()
        {
            return Err(EEXIST);
        }
        self.inodes.insert(ino, inode(ino, kind, perm, body));
        if name.is_none() {
            self.get_mut(ino)?.attr.nlink = 0;
        }
        Ok(ino)
    }

    fn entry(&mut self, ino: u64, policy: &Policy) -> Answer {
        *self.lookups.entry(ino).or_default() += 1;
        let attr = &self.get(ino)?.attr;
        Ok(Reply::entry(&Entry {
            attr,
            nodeid: attr.ino.0,
            generation: 0,
            entry_valid: policy.entry_valid,
            attr_valid: policy.attr_valid,
        }))
    }

    fn open(&mut self, flags: u32) -> Opened {
        self.last_fh += 1;
        Opened { fh: self.last_fh, flags }
    }

    fn created(&mut self, ino: u64, policy: &Policy) -> Answer {
        *self.lookups.entry(ino).or_default() += 1;
        let opened = self.open(policy.open_flags);
        Ok(Reply::created(&Entry::uncached(&self.get(ino)?.attr), opened))
    }

    fn unlink(&mut self, dir: u64, name: &[u8]) -> Answer {
        let ino = self.child(dir, name)?;
        self.dir(dir)?.remove(name);
        self.get_mut(ino)?.attr.nlink -= 1;
        Ok(Reply::ok())
    }

    fn rename(&mut self, dir: u64, n: &Rename) -> Answer {
        let from = self.child(dir, &n.name)?;
        let to = self.child(n.new_parent, &n.new_name).ok();
        match n.flags {
            libc::RENAME_NOREPLACE if to.is_some() => return Err(EEXIST),
            libc::RENAME_EXCHANGE => {
                self.dir(dir)?.insert(n.name.to_vec(), to.ok_or(ENOENT)?);
            }
            _ => drop(self.dir(dir)?.remove(&n.name[..])),
        }
        self.dir(n.new_parent)?.insert(n.new_name.to_vec(), from);
        Ok(Reply::ok())
    }

    fn setattr(&mut self, ino: u64, a: &Setattr, policy: &Policy) -> Answer {
        if let Some(size) = a.size {
            set_size(self, ino, size as usize)?;
        }
        let attr = &mut self.get_mut(ino)?.attr;
        attr.perm = a.mode.map_or(attr.perm, |m| (m & 0o7777) as u16);
        attr.uid = a.uid.unwrap_or(attr.uid);
        attr.gid = a.gid.unwrap_or(attr.gid);
        if let Some(SetTime::To(t)) = a.mtime {
            attr.mtime = t;
        }
        if let Some(SetTime::To(t)) = a.atime {
            attr.atime = t;
        }
        Ok(Reply::attr(&self.get(ino)?.attr, policy.attr_valid))
    }

    /// In two pieces, so that the kernel sees a gathered write.
    fn read(&mut self, ino: u64, r: &Read) -> Answer {
        let data = self.file(ino)?;
        let start = data.len().min(r.offset as usize);
        let end = data.len().min(start + r.size as usize);
        let all = Bytes::copy_from_slice(&data[start..end]);
        let half = all.len() / 2;
        Ok(Reply::pieces(vec![all.slice(..half), all.slice(half..)]))
    }

    fn write(&mut self, ino: u64, w: &Write) -> Answer {
        let append = w.flags & libc::O_APPEND as u32 != 0 && !w.from_cache;
        let offset = if append { self.file(ino)?.len() } else { w.offset as usize };
        write_bytes(self, ino, offset, &w.data)?;
        Ok(Reply::written(w.data.len() as u32))
    }

    fn copy(&mut self, ino: u64, c: &CopyFileRange) -> Answer {
        let source = self.file(ino)?;
        let start = source.len().min(c.offset_in as usize);
        let end = source.len().min(start + c.length as usize);
        let data = source[start..end].to_vec();
        write_bytes(self, c.ino_out, c.offset_out as usize, &data)?;
        Ok(Reply::copied(data.len() as u64, c))
    }

    /// Zero bytes count as holes.
    fn seek(&mut self, ino: u64, l: &Lseek) -> Answer {
        let data = self.file(ino)?;
        let from = l.offset as usize;
        if from >= data.len() {
            return Err(ENXIO);
        }
        let hole = l.whence == libc::SEEK_HOLE as u32;
        let found = data[from..].iter().position(|b| (*b == 0) == hole);
        match found {
            Some(n) => Ok(Reply::offset((from + n) as u64)),
            None if hole => Ok(Reply::offset(data.len() as u64)),
            None => Err(ENXIO),
        }
    }

    fn readdir(&mut self, dir: u64, d: &Readdir, policy: &Policy) -> Answer {
        let mut out = DirBuffer::new(d.size);
        let names: Vec<(Vec<u8>, u64)> = self.dir(dir)?.iter().map(|(n, i)| (n.clone(), *i)).collect();
        let dots = [(b".".to_vec(), dir), (b"..".to_vec(), 1)];
        for (i, (name, ino)) in dots.into_iter().chain(names).enumerate().skip(d.offset as usize) {
            let (attr, cookie) = (self.get(ino)?.attr.clone(), i as u64 + 1);
            let entry = Entry {
                nodeid: attr.ino.0,
                attr: &attr,
                generation: 0,
                entry_valid: policy.entry_valid,
                attr_valid: policy.attr_valid,
            };
            let fits = match (d.plus, i < 2) {
                (false, _) => out.add(&name, ino, attr.kind, cookie),
                (true, true) => out.add_plain(&name, ino, attr.kind, cookie),
                (true, false) => out.add_plus(&name, &entry, cookie),
            };
            if !fits {
                break;
            }
            if d.plus && i >= 2 {
                *self.lookups.entry(ino).or_default() += 1;
            }
        }
        Ok(Reply::directory(out))
    }
}
