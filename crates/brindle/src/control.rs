//! The way from a path to the mount that holds it: the daemon's control socket.
//!
//! The socket's name is made of the mount's device number, which /proc/self/mountinfo tells, so that commands find it
//! without touching the file system (which may wait for a dead server).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brindle_client::control::{self, Answer, Request, ScanAsk, ScanPage};
use brindle_types::{Code, Fault, Ino, Result};

use crate::admin::place::mount_of;
use crate::format::runtime;
use crate::mounts::MountLine;

/// Directory of the sockets.
pub const RUN_DIR: &str = "/run/brindle";

/// The socket of the mount with this device number.
pub fn socket(minor: u32) -> PathBuf {
    PathBuf::from(format!("{RUN_DIR}/mount-{minor}.sock"))
}

/// Makes the directory of the sockets.
pub fn make_run_dir() -> Result<()> {
    std::fs::create_dir_all(RUN_DIR).map_err(|e| Fault::io(Code::NotWritable, "cannot make", RUN_DIR, &e))
}

/// A mount that answers questions.
pub struct Control {
    mount: MountLine,
    runtime: tokio::runtime::Runtime,
}

impl Control {
    /// The mount that holds `path`.
    pub fn of(path: &Path) -> Result<Control> {
        Ok(Control { mount: mount_of(path)?, runtime: runtime()? })
    }

    /// Where it is mounted.
    pub fn mount(&self) -> &MountLine {
        &self.mount
    }

    /// Asks its daemon.
    pub fn ask(&self, request: &Request) -> Result<Answer> {
        let socket = self.socket()?;
        self.runtime.block_on(control::ask(&socket, request)).map_err(|fault| self.named(fault))
    }

    /// Has its daemon scan; `each` gets the pages.
    pub fn scan(&self, ask: ScanAsk, each: &mut (dyn FnMut(ScanPage) -> Result<()> + Send)) -> Result<()> {
        let socket = self.socket()?;
        self.runtime.block_on(control::ask_scan(&socket, ask, each)).map_err(|fault| self.named(fault))
    }

    fn socket(&self) -> Result<PathBuf> {
        let socket = socket(self.mount.minor);
        if socket.exists() {
            return Ok(socket);
        }
        Err(Fault::new(Code::NotMounted)
            .what("cannot ask the daemon of")
            .subject(self.mount.mount_point.display().to_string())
            .why(format!("it has no socket {}", socket.display()))
            .next("mount it again, if its daemon is dead"))
    }

    /// A daemon that does not answer, by the name of its mount.
    fn named(&self, fault: Fault) -> Fault {
        if fault.code != Code::NotABrindlePath {
            return fault;
        }
        let mount = self.mount.mount_point.display().to_string();
        let named = Fault::new(Code::NotMounted).what("no answer from the daemon of").subject(mount);
        fault.why.into_iter().fold(named, Fault::why).next("mount it again, if its daemon is dead")
    }
}

/// The inode behind a path in a mount; symbolic links are followed.
pub fn ino(path: &Path) -> Result<Ino> {
    let meta = std::fs::metadata(path).map_err(|e| path_fault("cannot look at", path, &e))?;
    Ok(Ino(meta.ino()))
}

/// A failed system call on a path, as the program's user knows it.
pub fn path_fault(what: &'static str, path: &Path, e: &std::io::Error) -> Fault {
    let code = match e.kind() {
        std::io::ErrorKind::NotFound => Code::NotFound,
        std::io::ErrorKind::PermissionDenied => Code::PermissionDenied,
        std::io::ErrorKind::AlreadyExists => Code::Exists,
        std::io::ErrorKind::NotADirectory => Code::NotDirectory,
        std::io::ErrorKind::ReadOnlyFilesystem => Code::NotWritable,
        std::io::ErrorKind::StorageFull => Code::MdtFull,
        _ => Code::CommandFailed,
    };
    Fault::io(code, what, path.display().to_string(), e)
}

/// An answer of another kind than the question asks for.
pub fn unexpected(answer: &Answer) -> Fault {
    Fault::new(Code::Bug).what("the mount's daemon answered another question").why(format!("{answer:?}"))
}
