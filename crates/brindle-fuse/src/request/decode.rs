//! From the bytes of a message to what it asks. Pure; called by the session's readers.

use brindle_types::attr::Time;
use bytes::{Buf, Bytes};
use zerocopy::FromBytes;

use super::ops::*;
use crate::abi::inputs::*;
use crate::abi::{align8, flags, opcode};

/// Reason why a message cannot be decoded. The kernel never sends such a message unless one side has a
/// defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than the head of a request.
    #[error("message of {0} bytes has no head")]
    NoHead(usize),
    /// The length in the head is not the message's.
    #[error("head says {said} bytes, message has {has}")]
    Length {
        /// Bytes according to the head.
        said: u32,
        /// Bytes that arrived.
        has: usize,
    },
    /// The arguments end too early.
    #[error("arguments of {0} end too early")]
    Short(&'static str),
    /// A name has no end, is empty or holds a slash where none may be.
    #[error("{0} is not a name")]
    Name(&'static str),
    /// An extension does not fit in what the head says.
    #[error("wrong extension")]
    Extension,
    /// A lock of a kind that does not exist, or a range that ends before it starts.
    #[error("impossible lock")]
    Lock,
}

/// Kind of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request that wants an answer.
    Request(Op),
    /// The kernel dropped references: (inode, number of lookups). No answer.
    Forget(Vec<(u64, u64)>),
    /// The caller of this request got a signal. Answered only with EAGAIN, when the request is not known (yet).
    Interrupt(u64),
    /// First message of a connection.
    Init(InitIn),
    /// Last message of some connections.
    Destroy,
    /// The answer to a notification we never send; wants none.
    NotifyReply,
    /// An operation that this layer leaves to the kernel, or does not know: answered ENOSYS.
    Unsupported(u32),
}

/// Head, extensions and contents of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The head.
    pub head: InHeader,
    /// Supplementary groups of the caller.
    pub groups: Vec<u32>,
    /// The contents.
    pub message: Message,
}

/// Reads the head alone, so that a message whose rest is wrong can be answered.
pub fn head(bytes: &[u8]) -> Result<InHeader, Malformed> {
    let (head, _) = InHeader::read_from_prefix(bytes).map_err(|_| Malformed::NoHead(bytes.len()))?;
    if head.len as usize != bytes.len() {
        return Err(Malformed::Length { said: head.len, has: bytes.len() });
    }
    Ok(head)
}

/// Decodes one message. `setxattr_ext`: whether SETXATTR_EXT was negotiated.
pub fn message(bytes: Bytes, setxattr_ext: bool) -> Result<Decoded, Malformed> {
    let head = head(&bytes)?;
    let mut body = bytes;
    body.advance(size_of::<InHeader>());
    let extensions = body.len().checked_sub(head.total_extlen as usize * 8).ok_or(Malformed::Extension)?;
    let groups = groups(body.split_off(extensions))?;
    let args = Args { rest: body, what: name_of(head.opcode) };
    let message = contents(&head, args, setxattr_ext)?;
    Ok(Decoded { head, groups, message })
}

/// The supplementary groups among the extensions; others are skipped.
fn groups(mut rest: Bytes) -> Result<Vec<u32>, Malformed> {
    let mut groups = Vec::new();
    while !rest.is_empty() {
        let (ext, _) = ExtHeader::read_from_prefix(&rest).map_err(|_| Malformed::Extension)?;
        let size = ext.size as usize;
        if size < size_of::<ExtHeader>() || size > rest.len() {
            return Err(Malformed::Extension);
        }
        let body = rest.slice(size_of::<ExtHeader>()..size);
        if ext.kind == flags::EXT_GROUPS {
            let (count, ids) = u32::read_from_prefix(&body).map_err(|_| Malformed::Extension)?;
            if count as usize > ids.len() / 4 {
                return Err(Malformed::Extension);
            }
            let ids = ids.chunks_exact(4).take(count as usize);
            groups.extend(ids.map(|id| u32::from_ne_bytes([id[0], id[1], id[2], id[3]])));
        }
        rest.advance(align8(size).min(rest.len()));
    }
    Ok(groups)
}

/// Remaining arguments of a message.
struct Args {
    rest: Bytes,
    what: &'static str,
}

impl Args {
    /// The next structure.
    fn take<T: FromBytes>(&mut self) -> Result<T, Malformed> {
        let (value, _) = T::read_from_prefix(&self.rest).map_err(|_| Malformed::Short(self.what))?;
        self.rest.advance(size_of::<T>());
        Ok(value)
    }

    /// The next text, without the zero byte that ends it. May be empty.
    fn text(&mut self) -> Result<Bytes, Malformed> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or(Malformed::Name(self.what))?;
        let text = self.rest.split_to(end);
        self.rest.advance(1);
        Ok(text)
    }

    /// The next name of a directory entry: not empty, without slash.
    fn name(&mut self) -> Result<Bytes, Malformed> {
        let name = self.text()?;
        if name.is_empty() || name.contains(&b'/') {
            return Err(Malformed::Name(self.what));
        }
        Ok(name)
    }

    /// The next `len` bytes.
    fn data(&mut self, len: u32) -> Result<Bytes, Malformed> {
        if len as usize > self.rest.len() {
            return Err(Malformed::Short(self.what));
        }
        Ok(self.rest.split_to(len as usize))
    }
}

fn contents(head: &InHeader, mut args: Args, setxattr_ext: bool) -> Result<Message, Malformed> {
    use opcode::*;
    let op = match head.opcode {
        LOOKUP => Op::Lookup(Lookup { name: args.name()? }),
        GETATTR => getattr(args.take()?),
        STATX => statx(args.take()?),
        SETATTR => Op::Setattr(setattr(args.take()?)),
        READLINK => Op::Readlink,
        SYMLINK => Op::Symlink(Symlink { name: args.name()?, target: args.text()? }),
        MKNOD => mknod(args.take()?, args.name()?),
        MKDIR => mkdir(args.take()?, args.name()?),
        UNLINK => Op::Unlink(Unlink { name: args.name()? }),
        RMDIR => Op::Rmdir(Rmdir { name: args.name()? }),
        RENAME => {
            let RenameIn { newdir } = args.take()?;
            rename(Rename2In { newdir, ..Default::default() }, args)?
        }
        RENAME2 => rename(args.take()?, args)?,
        LINK => Op::Link(Link { ino: args.take::<LinkIn>()?.oldnodeid, name: args.name()? }),
        OPEN => Op::Open(open(args.take()?)),
        OPENDIR => Op::Opendir(open(args.take()?)),
        CREATE => create(args.take()?, args.name()?),
        TMPFILE => tmpfile(args.take()?),
        READ => Op::Read(read(args.take()?)),
        WRITE => write(args)?,
        FLUSH => flush(args.take()?),
        FSYNC => Op::Fsync(fsync(args.take()?)),
        FSYNCDIR => Op::Fsyncdir(fsync(args.take()?)),
        RELEASE => Op::Release(release(args.take()?)),
        RELEASEDIR => Op::Releasedir(release(args.take()?)),
        FALLOCATE => fallocate(args.take()?),
        LSEEK => lseek(args.take()?),
        IOCTL => ioctl(args)?,
        COPY_FILE_RANGE => copy_file_range(args.take()?, false),
        COPY_FILE_RANGE_64 => copy_file_range(args.take()?, true),
        GETLK => Op::Getlk(lock(args.take()?)?),
        SETLK => Op::Setlk(Setlk { lock: lock(args.take()?)?, wait: false }),
        SETLKW => Op::Setlk(Setlk { lock: lock(args.take()?)?, wait: true }),
        SETXATTR => setxattr(args, setxattr_ext)?,
        GETXATTR => Op::Getxattr(Getxattr { size: args.take::<GetxattrIn>()?.size, name: args.text()? }),
        LISTXATTR => Op::Listxattr(Listxattr { size: args.take::<GetxattrIn>()?.size }),
        REMOVEXATTR => Op::Removexattr(Removexattr { name: args.text()? }),
        READDIR => readdir(args.take()?, false),
        READDIRPLUS => readdir(args.take()?, true),
        STATFS => Op::Statfs,
        ACCESS => Op::Access(Access { mask: args.take::<AccessIn>()?.mask }),
        _ => return without_answer(head, args),
    };
    Ok(Message::Request(op))
}

fn without_answer(head: &InHeader, mut args: Args) -> Result<Message, Malformed> {
    Ok(match head.opcode {
        opcode::INIT => Message::Init(init(args)?),
        opcode::DESTROY => Message::Destroy,
        opcode::INTERRUPT => Message::Interrupt(args.take::<InterruptIn>()?.unique),
        opcode::FORGET => Message::Forget(vec![(head.nodeid, args.take::<ForgetIn>()?.nlookup)]),
        opcode::BATCH_FORGET => Message::Forget(batch_forget(args)?),
        opcode::NOTIFY_REPLY => Message::NotifyReply,
        other => Message::Unsupported(other),
    })
}

fn batch_forget(mut args: Args) -> Result<Vec<(u64, u64)>, Malformed> {
    let BatchForgetIn { count, .. } = args.take()?;
    if count as usize > args.rest.len() / size_of::<ForgetOne>() {
        return Err(Malformed::Short(args.what));
    }
    let one = |_| args.take::<ForgetOne>().map(|f| (f.nodeid, f.nlookup));
    (0..count).map(one).collect()
}

/// INIT has grown; what an older kernel does not send is zero.
fn init(args: Args) -> Result<InitIn, Malformed> {
    const FIRST_FORM_BYTES: usize = 16;
    if args.rest.len() < FIRST_FORM_BYTES {
        return Err(Malformed::Short(args.what));
    }
    let mut whole = [0u8; size_of::<InitIn>()];
    let n = whole.len().min(args.rest.len());
    whole[..n].copy_from_slice(&args.rest[..n]);
    Ok(zerocopy::transmute!(whole))
}

fn when(bit: bool, value: u64) -> Option<u64> {
    bit.then_some(value)
}

fn getattr(a: GetattrIn) -> Op {
    Op::Getattr(Getattr { fh: when(a.getattr_flags & flags::GETATTR_FH != 0, a.fh) })
}

fn statx(a: StatxIn) -> Op {
    let fh = when(a.getattr_flags & flags::GETATTR_FH != 0, a.fh);
    Op::Statx(Statx { fh, flags: a.sx_flags, mask: a.sx_mask })
}

fn time(secs: u64, nanos: u32) -> Time {
    Time { secs: secs.cast_signed(), nanos: nanos.min(999_999_999) }
}

fn setattr(a: SetattrIn) -> Setattr {
    use flags::fattr::*;
    let has = |bit| a.valid & bit != 0;
    let stamp = |set: u32, now: u32, secs, nanos| {
        has(set).then(|| if has(now) { SetTime::Now } else { SetTime::To(time(secs, nanos)) })
    };
    Setattr {
        fh: when(has(FH), a.fh),
        mode: has(MODE).then_some(a.mode),
        uid: has(UID).then_some(a.uid),
        gid: has(GID).then_some(a.gid),
        size: when(has(SIZE), a.size),
        atime: stamp(ATIME, ATIME_NOW, a.atime, a.atimensec),
        mtime: stamp(MTIME, MTIME_NOW, a.mtime, a.mtimensec),
        ctime: has(CTIME).then(|| time(a.ctime, a.ctimensec)),
        lock_owner: when(has(LOCKOWNER), a.lock_owner),
        kill_suidgid: has(KILL_SUIDGID),
    }
}

fn mknod(a: MknodIn, name: Bytes) -> Op {
    Op::Mknod(Mknod { name, mode: a.mode, rdev: a.rdev, umask: a.umask })
}

fn mkdir(a: MkdirIn, name: Bytes) -> Op {
    Op::Mkdir(Mkdir { name, mode: a.mode, umask: a.umask })
}

fn rename(a: Rename2In, mut args: Args) -> Result<Op, Malformed> {
    let (name, new_name) = (args.name()?, args.name()?);
    Ok(Op::Rename(Rename { name, new_parent: a.newdir, new_name, flags: a.flags }))
}

fn open(a: OpenIn) -> Open {
    Open { flags: a.flags, kill_suidgid: a.open_flags & flags::OPEN_KILL_SUIDGID != 0 }
}

fn create(a: CreateIn, name: Bytes) -> Op {
    let kill_suidgid = a.open_flags & flags::OPEN_KILL_SUIDGID != 0;
    Op::Create(Create { name, flags: a.flags, mode: a.mode, umask: a.umask, kill_suidgid })
}

/// The name that follows is a placeholder of the kernel.
fn tmpfile(a: CreateIn) -> Op {
    Op::Tmpfile(Tmpfile { flags: a.flags, mode: a.mode, umask: a.umask })
}

fn read(a: ReadIn) -> Read {
    let lock_owner = when(a.read_flags & flags::READ_LOCKOWNER != 0, a.lock_owner);
    Read { fh: a.fh, offset: a.offset, size: a.size, flags: a.flags, lock_owner }
}

fn write(mut args: Args) -> Result<Op, Malformed> {
    let a: WriteIn = args.take()?;
    let data = args.data(a.size)?;
    let has = |bit| a.write_flags & bit != 0;
    Ok(Op::Write(Write {
        fh: a.fh,
        offset: a.offset,
        data,
        flags: a.flags,
        from_cache: has(flags::WRITE_CACHE),
        kill_suidgid: has(flags::WRITE_KILL_SUIDGID),
        lock_owner: when(has(flags::WRITE_LOCKOWNER), a.lock_owner),
    }))
}

fn flush(a: FlushIn) -> Op {
    Op::Flush(Flush { fh: a.fh, lock_owner: a.lock_owner })
}

fn fsync(a: FsyncIn) -> Fsync {
    Fsync { fh: a.fh, data_only: a.fsync_flags & flags::FSYNC_FDATASYNC != 0 }
}

fn release(a: ReleaseIn) -> Release {
    let flock_owner = when(a.release_flags & flags::RELEASE_FLOCK_UNLOCK != 0, a.lock_owner);
    Release { fh: a.fh, flags: a.flags, flock_owner }
}

fn fallocate(a: FallocateIn) -> Op {
    Op::Fallocate(Fallocate { fh: a.fh, offset: a.offset, length: a.length, mode: a.mode })
}

fn ioctl(mut args: Args) -> Result<Op, Malformed> {
    let IoctlIn { cmd, in_size, out_size, .. } = args.take()?;
    Ok(Op::Ioctl(Ioctl { command: cmd, data: args.data(in_size)?, room: out_size }))
}

fn lseek(a: LseekIn) -> Op {
    Op::Lseek(Lseek { fh: a.fh, offset: a.offset, whence: a.whence })
}

fn copy_file_range(a: CopyFileRangeIn, wide: bool) -> Op {
    /// The most that the 32-bit answer can say, on the grid of pages.
    const NARROW_BYTES_MAX: u64 = u32::MAX as u64 & !0xfff;
    let length = if wide { a.len } else { a.len.min(NARROW_BYTES_MAX) };
    Op::CopyFileRange(CopyFileRange {
        fh_in: a.fh_in,
        offset_in: a.off_in,
        ino_out: a.nodeid_out,
        fh_out: a.fh_out,
        offset_out: a.off_out,
        length,
        flags: a.flags,
        wide,
    })
}

fn lock(a: LkIn) -> Result<Lock, Malformed> {
    let kind = LockKind::from_kernel(a.lk.kind).ok_or(Malformed::Lock)?;
    if a.lk.end < a.lk.start {
        return Err(Malformed::Lock);
    }
    let flock = a.lk_flags & flags::LK_FLOCK != 0;
    let FileLock { start, end, pid, .. } = a.lk;
    Ok(Lock { fh: a.fh, owner: a.owner, flock, kind, start, end, pid })
}

fn setxattr(mut args: Args, extended: bool) -> Result<Op, Malformed> {
    let a: SetxattrIn = if extended {
        args.take()?
    } else {
        let SetxattrInCompat { size, flags } = args.take()?;
        SetxattrIn { size, flags, ..Default::default() }
    };
    let name = args.text()?;
    let value = args.data(a.size)?;
    let kill_sgid = a.setxattr_flags & flags::SETXATTR_ACL_KILL_SGID != 0;
    Ok(Op::Setxattr(Setxattr { name, value, flags: a.flags, kill_sgid }))
}

fn readdir(a: ReadIn, plus: bool) -> Op {
    Op::Readdir(Readdir { fh: a.fh, offset: a.offset, size: a.size, plus })
}

impl LockKind {
    /// Kind for `F_RDLCK`, `F_WRLCK`, `F_UNLCK`.
    pub(crate) fn from_kernel(kind: u32) -> Option<LockKind> {
        match kind.cast_signed() {
            libc::F_RDLCK => Some(LockKind::Read),
            libc::F_WRLCK => Some(LockKind::Write),
            libc::F_UNLCK => Some(LockKind::Unlock),
            _ => None,
        }
    }

    /// Number for the kernel: `F_RDLCK`, `F_WRLCK`, `F_UNLCK`.
    pub(crate) fn to_kernel(self) -> u32 {
        match self {
            LockKind::Read => libc::F_RDLCK as u32,
            LockKind::Write => libc::F_WRLCK as u32,
            LockKind::Unlock => libc::F_UNLCK as u32,
        }
    }
}

/// Name of an operation for messages and traces.
pub fn name_of(code: u32) -> &'static str {
    const NAMES: [&str; 54] = [
        "op 0",
        "LOOKUP",
        "FORGET",
        "GETATTR",
        "SETATTR",
        "READLINK",
        "SYMLINK",
        "op 7",
        "MKNOD",
        "MKDIR",
        "UNLINK",
        "RMDIR",
        "RENAME",
        "LINK",
        "OPEN",
        "READ",
        "WRITE",
        "STATFS",
        "RELEASE",
        "op 19",
        "FSYNC",
        "SETXATTR",
        "GETXATTR",
        "LISTXATTR",
        "REMOVEXATTR",
        "FLUSH",
        "INIT",
        "OPENDIR",
        "READDIR",
        "RELEASEDIR",
        "FSYNCDIR",
        "GETLK",
        "SETLK",
        "SETLKW",
        "ACCESS",
        "CREATE",
        "INTERRUPT",
        "BMAP",
        "DESTROY",
        "IOCTL",
        "POLL",
        "NOTIFY_REPLY",
        "BATCH_FORGET",
        "FALLOCATE",
        "READDIRPLUS",
        "RENAME2",
        "LSEEK",
        "COPY_FILE_RANGE",
        "SETUPMAPPING",
        "REMOVEMAPPING",
        "SYNCFS",
        "TMPFILE",
        "STATX",
        "COPY_FILE_RANGE_64",
    ];
    NAMES.get(code as usize).copied().unwrap_or("unknown operation")
}
