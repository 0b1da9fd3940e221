//! The way from a path to the mount that holds it: the daemon's control socket.
//!
//! The socket's name is made of the mount's device number, which /proc/self/mountinfo shows. A caller therefore finds the
//! socket without touching the file system (which may wait for a dead server).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use brindle_admin::mount::{EachPage, Mount};
use brindle_admin::moving::WholeMount;
use brindle_admin::place::{FsLocation, Source};
use brindle_admin::servers::OtherSource;
use brindle_client::control::{self, Answer, Request, ScanAsk};
use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Code, Fault, Ino, Nid, Result};
use brindle_wire::map::Map;

use crate::enrolment;
use crate::mounts::{self, MountLine};

/// Directory of the sockets.
pub const RUN_DIR: &str = "/run/brindle";
/// Longest wait for a daemon to tell its map.
const MAP_WAIT_MS: u64 = 3_000;

/// The socket of the mount with this device number.
pub fn socket(minor: u32) -> PathBuf {
    PathBuf::from(format!("{RUN_DIR}/mount-{minor}.sock"))
}

/// Makes the directory of the sockets.
pub fn make_run_dir() -> Result<()> {
    std::fs::create_dir_all(RUN_DIR).map_err(|e| Fault::io(Code::NotWritable, "cannot make", RUN_DIR, &e))
}

/// A mount of this host, whose daemon answers at its socket.
#[derive(Clone, Debug)]
pub struct MountHere {
    line: MountLine,
}

impl MountHere {
    /// The mount that holds `path`.
    pub fn of(path: &Path) -> Result<MountHere> {
        let line = mounts::mount_of(path)?;
        crate::identity::use_mount(&line.mount_point);
        Ok(MountHere { line })
    }

    /// Line of the mount in the mount table.
    pub fn line(&self) -> &MountLine {
        &self.line
    }

    /// The mount, for jobs on all files. Refuses a mount of a subdirectory of the file system.
    pub fn whole(self) -> Result<WholeMount> {
        let source: Option<Source> = self.line.source.parse().ok();
        if source.is_some_and(|source| !source.subdir.is_empty()) {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot see all files of the file system at")
                .subject(self.line.mount_point.display().to_string())
                .why("only a directory of it is mounted there")
                .data("nothing was moved")
                .next("mount all of it, and give that mount"));
        }
        let root = self.line.mount_point.clone();
        Ok(WholeMount { mount: std::sync::Arc::new(self), root })
    }

    fn socket(&self) -> Result<PathBuf> {
        let socket = socket(self.line.minor);
        if socket.exists() {
            return Ok(socket);
        }
        Err(Fault::new(Code::NotMounted)
            .what("cannot ask the daemon of")
            .subject(self.line.mount_point.display().to_string())
            .why(format!("it has no socket {}", socket.display()))
            .next("mount it again, if its daemon is dead"))
    }

    /// A daemon that does not answer, by the name of its mount.
    fn named(&self, fault: Fault) -> Fault {
        if fault.code != Code::NotABrindlePath {
            return fault;
        }
        let mount = self.line.mount_point.display().to_string();
        let named = Fault::new(Code::NotMounted).what("no answer from the daemon of").subject(mount);
        fault.why.into_iter().fold(named, Fault::why).next("mount it again, if its daemon is dead")
    }
}

impl Mount for MountHere {
    fn root(&self) -> Result<Ino> {
        ino(&self.line.mount_point)
    }

    fn ask<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Result<Answer>> {
        Box::pin(async { control::ask(&self.socket()?, request).await.map_err(|fault| self.named(fault)) })
    }

    fn scan<'a>(&'a self, ask: ScanAsk, each: EachPage<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            control::ask_scan(&self.socket()?, ask, each).await.map_err(|fault| self.named(fault))
        })
    }
}

/// The mounts of this host, as a source of maps.
pub struct MountsHere {
    seams: Seams,
}

impl MountsHere {
    /// All of them.
    pub fn new(seams: Seams) -> MountsHere {
        MountsHere { seams }
    }
}

impl OtherSource for MountsHere {
    fn map<'a>(&'a self, place: &'a FsLocation) -> BoxFuture<'a, Option<Map>> {
        Box::pin(async {
            for line in mounts::ours().filter(|line| place.is_mounted_from(&line.source)) {
                let socket = socket(line.minor);
                let asking = control::ask(&socket, &Request::Map);
                if let Some(Ok(Answer::Map(map))) = self.seams.timeout_ms(MAP_WAIT_MS, asking).await {
                    return Some(map);
                }
            }
            None
        })
    }

    /// Addresses of the MGS from the file of the cluster that this host has joined.
    fn mgs(&self, place: &FsLocation) -> Vec<Nid> {
        match enrolment::cluster_here() {
            Ok(Some(file)) if place.fs.as_ref().is_none_or(|fs| *fs == file.fs) => {
                let nids = file.nids().unwrap_or_default();
                // If none of the given addresses is among them, the user may mean another cluster.
                let is_it = place.fs.is_some() || nids.iter().any(|nid| place.mgs.contains(nid));
                if is_it { nids } else { Vec::new() }
            }
            _ => Vec::new(),
        }
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
