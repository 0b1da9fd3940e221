//! Runs the operations of the POSIX model as system calls on directories: one root a client, all showing one tree.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use brindle_testkit::model::{How, Op, Outcome, RenameHow, StatView, pattern};

/// Clients over system calls.
pub struct Syscalls {
    roots: Vec<PathBuf>,
    slots_per_client: usize,
    files: BTreeMap<usize, (File, bool)>,
}

type Res = io::Result<Outcome>;

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).expect("model paths hold no NUL")
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl Syscalls {
    /// Client `n` works below `roots[n]` with the slots from `n * slots_per_client`.
    pub fn new(roots: Vec<PathBuf>, slots_per_client: usize) -> Syscalls {
        Syscalls { roots, slots_per_client, files: BTreeMap::new() }
    }

    /// Runs one operation as `client`.
    pub fn apply(&mut self, client: usize, op: &Op) -> Outcome {
        match self.run(client, op) {
            Ok(outcome) => outcome,
            Err(e) => Outcome::Errno(e.raw_os_error().unwrap_or(-1)),
        }
    }

    fn at(&self, client: usize, path: &str) -> PathBuf {
        self.roots[client].join(path)
    }

    fn file(&self, slot: usize) -> io::Result<&(File, bool)> {
        self.files.get(&slot).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn run(&mut self, client: usize, op: &Op) -> Res {
        match op {
            Op::Mkdir { path, mode } => {
                let p = c(&self.at(client, path));
                // SAFETY: `p` is a valid C string for the call.
                check(unsafe { libc::mkdir(p.as_ptr(), *mode) } as i64)?;
            }
            Op::Rmdir { path } => std::fs::remove_dir(self.at(client, path))?,
            Op::Unlink { path } => {
                let p = c(&self.at(client, path));
                // SAFETY: `p` is a valid C string for the call.
                check(unsafe { libc::unlink(p.as_ptr()) } as i64)?;
            }
            Op::Rename { from, to, how } => self.rename(client, from, to, *how)?,
            Op::Link { from, to } => std::fs::hard_link(self.at(client, from), self.at(client, to))?,
            Op::Symlink { target, path } => std::os::unix::fs::symlink(target, self.at(client, path))?,
            Op::Readlink { path } => {
                let target = std::fs::read_link(self.at(client, path))?;
                return Ok(Outcome::Bytes(target.as_os_str().as_encoded_bytes().to_vec()));
            }
            Op::Stat { path } => return Ok(view(&std::fs::symlink_metadata(self.at(client, path))?)),
            Op::List { path } => {
                let mut names = Vec::new();
                for entry in std::fs::read_dir(self.at(client, path))? {
                    names.push(entry?.file_name().to_string_lossy().into_owned());
                }
                names.sort();
                return Ok(Outcome::Names(names));
            }
            Op::Chmod { path, mode } => {
                let permissions = std::os::unix::fs::PermissionsExt::from_mode(*mode);
                std::fs::set_permissions(self.at(client, path), permissions)?;
            }
            Op::Truncate { path, size } => {
                let p = c(&self.at(client, path));
                // SAFETY: `p` is a valid C string for the call.
                check(unsafe { libc::truncate(p.as_ptr(), *size as i64) } as i64)?;
            }
            Op::SetXattr { .. } | Op::GetXattr { .. } | Op::RemoveXattr { .. } => {
                return self.xattr(client, op);
            }
            Op::Open { slot, path, how } => return self.open(client, *slot, path, *how),
            Op::Tmpfile { slot, dir } => {
                self.files.remove(slot);
                let p = c(&self.at(client, dir));
                // SAFETY: `p` is a valid C string for the call.
                let fd =
                    check(unsafe { libc::open(p.as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600) } as i64)?;
                // SAFETY: the descriptor was just opened and belongs to nobody else.
                self.files.insert(*slot, (unsafe { File::from_raw_fd(fd as i32) }, false));
            }
            _ => return self.run_handle(op),
        }
        Ok(Outcome::Done)
    }

    fn rename(&self, client: usize, from: &str, to: &str, how: RenameHow) -> io::Result<()> {
        if std::env::var_os("XX_PRELOOK").is_some() {
            let _ = std::fs::symlink_metadata(self.at(client, from));
            let _ = std::fs::symlink_metadata(self.at(client, to));
        }
        let (a, b) = (c(&self.at(client, from)), c(&self.at(client, to)));
        let flags = match how {
            RenameHow::Plain => 0,
            RenameHow::NoReplace => libc::RENAME_NOREPLACE,
            RenameHow::Exchange => libc::RENAME_EXCHANGE,
        };
        // SAFETY: both are valid C strings for the call.
        check(
            unsafe { libc::renameat2(libc::AT_FDCWD, a.as_ptr(), libc::AT_FDCWD, b.as_ptr(), flags) } as i64
        )?;
        Ok(())
    }

    fn xattr(&self, client: usize, op: &Op) -> Res {
        // SAFETY (all three calls): paths and names are valid C strings, buffers are as long as said.
        match op {
            Op::SetXattr { path, name, value } => {
                let (p, n) = (c(&self.at(client, path)), c(Path::new(name)));
                let v = value.as_ptr().cast();
                check(unsafe { libc::setxattr(p.as_ptr(), n.as_ptr(), v, value.len(), 0) } as i64)?;
                Ok(Outcome::Done)
            }
            Op::GetXattr { path, name } => {
                let (p, n) = (c(&self.at(client, path)), c(Path::new(name)));
                let mut buf = vec![0u8; 65_536];
                let v = buf.as_mut_ptr().cast();
                let len = check(unsafe { libc::getxattr(p.as_ptr(), n.as_ptr(), v, buf.len()) } as i64)?;
                buf.truncate(len as usize);
                Ok(Outcome::Bytes(buf))
            }
            Op::RemoveXattr { path, name } => {
                let (p, n) = (c(&self.at(client, path)), c(Path::new(name)));
                check(unsafe { libc::removexattr(p.as_ptr(), n.as_ptr()) } as i64)?;
                Ok(Outcome::Done)
            }
            _ => unreachable!("only attribute operations come here"),
        }
    }

    fn open(&mut self, client: usize, slot: usize, path: &str, how: How) -> Res {
        debug_assert_eq!(slot / self.slots_per_client, client, "a slot belongs to one client");
        self.files.remove(&slot);
        let mut flags = match (how.read, how.write) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            _ => libc::O_RDONLY,
        };
        for (wanted, flag) in [
            (how.append, libc::O_APPEND),
            (how.truncate, libc::O_TRUNC),
            (how.create, libc::O_CREAT),
            (how.create && how.exclusive, libc::O_EXCL),
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        let p = c(&self.at(client, path));
        // SAFETY: `p` is a valid C string for the call.
        let fd = check(unsafe { libc::open(p.as_ptr(), flags, 0o644) } as i64)?;
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        let file = unsafe { File::from_raw_fd(fd as i32) };
        if file.metadata()?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        self.files.insert(slot, (file, how.append));
        Ok(Outcome::Done)
    }

    fn run_handle(&mut self, op: &Op) -> Res {
        match *op {
            Op::Close { slot } => {
                self.file(slot)?;
                self.files.remove(&slot);
            }
            Op::Write { slot, offset, len, fill } => {
                let data = pattern(fill, len);
                self.file(slot)?.0.write_all_at(&data, offset)?;
                return Ok(Outcome::Count(len));
            }
            Op::Read { slot, offset, len } => {
                let mut buf = vec![0; len];
                let mut done = 0;
                while done < len {
                    match self.file(slot)?.0.read_at(&mut buf[done..], offset + done as u64)? {
                        0 => break,
                        n => done += n,
                    }
                }
                buf.truncate(done);
                return Ok(Outcome::Bytes(buf));
            }
            Op::Fstat { slot } => return Ok(view(&self.file(slot)?.0.metadata()?)),
            Op::Ftruncate { slot, size } => {
                let fd = self.file(slot)?.0.as_raw_fd();
                // SAFETY: plain system call on an open descriptor.
                check(unsafe { libc::ftruncate(fd, size as i64) } as i64)?;
            }
            Op::Punch { slot, offset, len } => {
                self.fallocate(slot, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len)?;
            }
            Op::Zero { slot, offset, len } => {
                self.fallocate(slot, libc::FALLOC_FL_ZERO_RANGE, offset, len)?
            }
            Op::Fallocate { slot, offset, len } => self.fallocate(slot, 0, offset, len)?,
            Op::Fsync { slot } => self.file(slot)?.0.sync_all()?,
            Op::Copy { from, to, from_offset, to_offset, len } => {
                return self.copy(from, to, from_offset, to_offset, len);
            }
            _ => unreachable!("named operations are handled by run"),
        }
        Ok(Outcome::Done)
    }

    fn fallocate(&self, slot: usize, mode: i32, offset: u64, len: u64) -> io::Result<()> {
        let fd = self.file(slot)?.0.as_raw_fd();
        // SAFETY: plain system call on an open descriptor.
        check(unsafe { libc::fallocate(fd, mode, offset as i64, len as i64) } as i64)?;
        Ok(())
    }

    fn copy(&self, from: usize, to: usize, from_offset: u64, to_offset: u64, len: usize) -> Res {
        let (source, sink) = (self.file(from)?, self.file(to)?);
        let (mut a, mut b) = (from_offset as i64, to_offset as i64);
        // A copy within one file must not go on into what it has just written.
        let left = source.0.metadata()?.len().saturating_sub(from_offset);
        let len = len.min(left as usize).max(usize::from(left == 0));
        let mut done = 0;
        while done < len {
            let (i, o) = (source.0.as_raw_fd(), sink.0.as_raw_fd());
            // SAFETY: both descriptors are open, both offsets live for the call.
            let n = check(unsafe { libc::copy_file_range(i, &mut a, o, &mut b, len - done, 0) } as i64)?;
            if n == 0 {
                break;
            }
            done += n as usize;
        }
        Ok(Outcome::Count(done))
    }
}

fn view(m: &std::fs::Metadata) -> Outcome {
    let size = if m.is_dir() { 0 } else { m.len() };
    Outcome::Stat(StatView { ino: m.ino(), mode: m.mode(), nlink: m.nlink() as u32, size })
}
