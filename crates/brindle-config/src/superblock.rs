//! The superblock of a target: which file system, role and index a directory holds, and its identity.
//!
//! Two files with the same bytes, `superblock` and `superblock.copy`, so that one may be lost. Written by `brindle
//! format` and once more when the target learns its file system's id; read before anything else of the target is
//! touched. Invariant: a target whose identity is not certain is not served.

use std::io;

use brindle_stdx::disk::{read_file, replace_file};
use brindle_stdx::{Disk, Rng, Timestamp};
use brindle_types::{Code, Fault, FsName, Nid, Result, TargetId};
use brindle_wire::first_form;
use brindle_wire::form::{self, Form};
use serde::{Deserialize, Serialize};

use crate::envelope::{self, Unreadable};

/// First bytes of both files.
const MAGIC: &[u8; 8] = b"BRDLSUPR";
/// Format that this release writes.
const FORMAT_VERSION: u32 = <Superblock as Form>::VERSION as u32;
/// Largest file that is believed to be a superblock.
const FILE_MAX_BYTES: usize = 64 << 10;
/// Names of the two copies in the target's directory, the first one written first.
pub const FILES: [&str; 2] = ["superblock", "superblock.copy"];

/// Identity of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superblock {
    /// Counts the writes of this superblock; the copy with the higher number is the newer one.
    pub generation: u64,
    /// File system that the target belongs to.
    pub fs: FsName,
    /// Id of the file system: chosen when the MGT is formatted; 0 on other targets before their first registration.
    pub fs_id: u64,
    /// Role and index.
    pub target: TargetId,
    /// Identity, chosen at format time; an index belongs to one identity for ever.
    pub uuid: [u8; 16],
    /// Time of the format: seconds and nanoseconds since 1970.
    pub created: (i64, u32),
    /// Addresses of the MGS; empty for the MGT.
    pub mgs: Vec<Nid>,
}

first_form!(1 => Superblock);

/// Target that the caller expects; `None` means that any is fine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The file system.
    pub fs: Option<FsName>,
    /// Role and index.
    pub target: Option<TargetId>,
}

/// A superblock as found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The newer of the sound copies.
    pub superblock: Superblock,
    /// Fault of the other copy, if it has one; [`Superblock::save`] mends it.
    pub warning: Option<Fault>,
}

impl Superblock {
    /// The superblock of a new target.
    pub fn new(fs: FsName, target: TargetId, mgs: Vec<Nid>, now: Timestamp, rng: &dyn Rng) -> Superblock {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
        uuid[8..].copy_from_slice(&rng.next_u64().to_be_bytes());
        let fs_id = if target == TargetId::MGT { rng.next_u64().max(1) } else { 0 };
        Superblock { generation: 0, fs, fs_id, target, uuid, created: (now.secs, now.nanos), mgs }
    }

    /// Full name of the target: `scratch-OST000a`.
    pub fn name(&self) -> String {
        self.fs.target(self.target)
    }

    /// Whether the directory holds a superblock, sound or not.
    pub fn exists(disk: &dyn Disk, dir: &str) -> Result<bool> {
        for file in FILES {
            match disk.stat(&format!("{dir}/{file}")) {
                Ok(_) => return Ok(true),
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(e) => return Err(Fault::io(Code::NotATarget, "cannot look into", dir.to_owned(), &e)),
            }
        }
        Ok(false)
    }

    /// Writes both copies, one after the other, so that at least one is sound at every moment.
    pub fn save(&mut self, disk: &dyn Disk, dir: &str) -> Result<()> {
        self.generation += 1;
        let bytes = self.encode();
        for file in FILES {
            let path = format!("{dir}/{file}");
            replace_file(disk, &path, &bytes)
                .map_err(|e| Fault::io(Code::NotWritable, "cannot write the superblock", path.clone(), &e))?;
        }
        Ok(())
    }

    /// Reads the superblock of `dir` and compares it with what the caller expects.
    pub fn load(disk: &dyn Disk, dir: &str, expected: &Expected) -> Result<Loaded> {
        let copies = FILES.map(|file| read_copy(disk, &format!("{dir}/{file}")));
        let loaded = choose(dir, copies).map_err(|fault| not_mounted(disk, dir, fault))?;
        loaded.superblock.check(dir, expected)?;
        Ok(loaded)
    }

    fn check(&self, dir: &str, expected: &Expected) -> Result<()> {
        let mut why = Vec::new();
        if let Some(fs) = expected.fs.as_ref().filter(|fs| **fs != self.fs) {
            why.push(format!("it is {}, and a target of file system {fs} was asked for", self.name()));
        }
        if let Some(target) = expected.target.filter(|t| *t != self.target) {
            why.push(format!("it is {}, and {} was asked for", self.name(), self.fs.target(target)));
        }
        if why.is_empty() {
            return Ok(());
        }
        let fault = Fault::new(Code::ForeignTarget).what("cannot serve").subject(dir.to_owned());
        Err(why.into_iter().fold(fault, Fault::why).data("nothing was changed"))
    }

    /// The bytes of its file, for another host that is to have the same MGT.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode()
    }

    /// Reads what [`Superblock::to_bytes`] made on another host.
    pub fn from_bytes(bytes: &[u8]) -> Result<Superblock> {
        decode(bytes).map_err(|unreadable| {
            let fault = Fault::new(Code::BadSuperblock).what("cannot use the superblock that was sent");
            match unreadable {
                Unreadable::Damaged(why) => fault.why(why),
                Unreadable::Newer { found, known } => {
                    fault.why(format!("it has format {found}; this release knows up to {known}"))
                }
            }
        })
    }

    fn encode(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("plain fields always serialise");
        envelope::seal(MAGIC, FORMAT_VERSION, &body)
    }
}

/// An empty directory looks like a disk that is not mounted: says so.
fn not_mounted(disk: &dyn Disk, dir: &str, fault: Fault) -> Fault {
    let is_empty = || disk.list(dir).is_ok_and(|names| names.is_empty());
    if fault.code == Code::NotATarget && is_empty() {
        return fault
            .why("the directory is empty: perhaps its disk is not mounted")
            .data("nothing was changed");
    }
    fault
}

/// Reads a copy: `None` when the file does not exist.
fn read_copy(disk: &dyn Disk, path: &str) -> std::result::Result<Option<Superblock>, Unreadable> {
    let bytes = match read_file(disk, path, FILE_MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(Unreadable::Damaged(format!("it cannot be read: {e}"))),
    };
    decode(&bytes).map(Some)
}

fn decode(bytes: &[u8]) -> std::result::Result<Superblock, Unreadable> {
    let (version, body) = envelope::unseal(MAGIC, FORMAT_VERSION, bytes)?;
    let damaged = |why| Unreadable::Damaged(format!("it does not decode: {why}"));
    let version = u8::try_from(version).map_err(|_| damaged("its version is out of range".to_owned()))?;
    form::decode_version(version, body).map_err(damaged)
}

type Copy = std::result::Result<Option<Superblock>, Unreadable>;

fn choose(dir: &str, copies: [Copy; 2]) -> Result<Loaded> {
    if let Some(Err(Unreadable::Newer { found, known })) =
        copies.iter().find(|c| matches!(c, Err(Unreadable::Newer { .. })))
    {
        return Err(Fault::new(Code::NewerFormat)
            .what("cannot serve")
            .subject(dir.to_owned())
            .why(format!("its superblock has format {found}; this release knows up to {known}"))
            .data("nothing was changed"));
    }
    let warning = copy_warning(dir, &copies);
    let why = |n: usize| match &copies[n] {
        Err(Unreadable::Damaged(why)) => format!("{}: {why}", FILES[n]),
        _ => format!("{}: it is missing", FILES[n]),
    };
    match (&copies[0], &copies[1]) {
        (Ok(None), Ok(None)) => Err(Fault::new(Code::NotATarget)
            .what("cannot serve")
            .subject(dir.to_owned())
            .why("there is no superblock in it")),
        (Ok(Some(a)), Ok(Some(b))) => {
            let newer = if b.generation > a.generation { b } else { a };
            Ok(Loaded { superblock: newer.clone(), warning })
        }
        (Ok(Some(one)), _) | (_, Ok(Some(one))) => Ok(Loaded { superblock: one.clone(), warning }),
        _ => Err(Fault::new(Code::BadSuperblock)
            .what("cannot serve")
            .subject(dir.to_owned())
            .why(why(0))
            .why(why(1))
            .data("nothing was changed; the target's data was not touched")
            .next("restore one of the two files from a backup of this target")),
    }
}

/// Fault of one copy while the other one is sound.
fn copy_warning(dir: &str, copies: &[Copy; 2]) -> Option<Fault> {
    let fault = |n: usize, why: String| {
        Fault::new(Code::BadSuperblock)
            .what("one copy of the superblock is not usable:")
            .subject(format!("{dir}/{}", FILES[n]))
            .why(why)
            .data("the other copy is sound and was used")
            .next("nothing to do: it is written again at the next start")
    };
    let wrong = copies.iter().enumerate().find_map(|(n, copy)| match copy {
        Ok(Some(_)) => None,
        Ok(None) => Some((n, "it is missing".to_owned())),
        Err(Unreadable::Damaged(why)) => Some((n, why.clone())),
        Err(Unreadable::Newer { .. }) => None,
    });
    if let Some((n, why)) = wrong {
        return Some(fault(n, why));
    }
    match copies {
        [Ok(Some(a)), Ok(Some(b))] if a != b => {
            let older = usize::from(b.generation <= a.generation);
            Some(fault(older, "it is older than the other copy (a write of both was interrupted)".to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
