//! Backups of an MDT: taken while the MDT serves, and restored in the place of a lost one.
//!
//! A backup has every row of one moment. Later files, and bytes that were placed anew later, are not in it; their objects stay at the
//! OSTs. If the restored MDT does not know an object, the OST sets it aside.
//!
//! [`backup`] and [`restore`] are jobs; [`file`] is the form of the file.

pub mod file;

use brindle_config::Superblock;
use brindle_mds::restore::Restoring;
use brindle_types::{Code, Fault, Nid, Result, Role, TargetId};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mds::backup::BackupReadReq;
use brindle_wire::mds::session::{TargetInfoReq, TargetInfoResp, term_counter};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::job::{Job, Progress};
use crate::place::FsLocation;
use crate::servers::Servers;
use file::{Header, Reader, Writer};

/// Longest time that an MDT may take for a page: the first one waits for a checkpoint.
const PAGE_PATIENCE_MS: u64 = 60_000;

/// A backup of an MDT: where it is, and how much it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Backup {
    /// The file.
    pub file: String,
    /// Full name of the MDT.
    pub mdt: String,
    /// When it was taken, seconds since 1970.
    pub taken_at: i64,
    /// Term of the MDT then.
    pub term: u32,
    /// Rows.
    pub rows: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}
document!(Backup, "brindle.mdt.backup", 1);

/// Outcome of a restore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Restored {
    /// Directory of the MDT.
    pub dir: String,
    /// The backup that was restored.
    pub backup: Backup,
    /// The highest term that anybody knew of.
    pub highest_term: u32,
    /// Servers that did not say what term they know of.
    pub silent: Vec<String>,
    /// Whether anything was written.
    pub changed: bool,
}
document!(Restored, "brindle.mdt.restore", 1);

/// Writes a backup of an MDT into a new file.
pub async fn backup(
    servers: Servers,
    place: FsLocation,
    mdt: TargetId,
    path: String,
    job: Job,
) -> Result<Backup> {
    let (map, _) = servers.map(&place).await?;
    let entry = mdt_of(&map, mdt)?;
    let mut page = ask_page(&servers, &map, mdt, 0, Bytes::new()).await?;
    let header = Header {
        superblock: superblock(&map, entry, place.mgs.clone()).to_bytes(),
        taken_at_s: servers.seams().wall().secs,
        term: page.term,
    };
    let mut writer = Writer::create(&*servers.seams().disk, &path, &header)?;
    loop {
        if let Err(cancelled) = job.check() {
            writer.discard();
            return Err(cancelled.data("the file was removed").next("begin again when you like"));
        }
        let moment = page.moment;
        let Some((last, _)) = page.rows.last() else { break };
        let after = last.clone();
        writer.rows(page.rows)?;
        let done_bytes = writer.len_bytes();
        let subject = map.fs.target(mdt);
        job.progress(Progress { subject, done_bytes, total_bytes: 0, copied_bytes: done_bytes });
        page = ask_page(&servers, &map, mdt, moment, after).await?;
    }
    let (rows, bytes) = writer.finish()?;
    let (mdt, taken_at) = (map.fs.target(mdt), header.taken_at_s);
    Ok(Backup { file: path, mdt, taken_at, term: header.term, rows, bytes })
}

async fn ask_page(
    servers: &Servers,
    map: &Map,
    mdt: TargetId,
    moment: u64,
    after: Bytes,
) -> Result<brindle_wire::mds::backup::BackupReadResp> {
    servers.ask_within(map, mdt, &BackupReadReq { moment, after }, PAGE_PATIENCE_MS).await
}

fn mdt_of(map: &Map, mdt: TargetId) -> Result<&TargetEntry> {
    let found = map.target(mdt).filter(|_| mdt.role == Role::Mdt);
    found.ok_or_else(|| {
        let mdts = map.targets.iter().filter(|t| t.id.role == Role::Mdt).map(|t| map.fs.target(t.id));
        let mdts: Vec<String> = mdts.collect();
        Fault::new(Code::UnknownTarget).subject(map.fs.target(mdt)).why(format!(
            "{} has these MDTs: {}",
            map.fs,
            mdts.join(", ")
        ))
    })
}

/// The superblock that a target of the map has.
fn superblock(map: &Map, entry: &TargetEntry, mgs: Vec<Nid>) -> Superblock {
    Superblock {
        generation: 0,
        fs: map.fs.clone(),
        fs_id: map.fs_id,
        target: entry.id,
        uuid: entry.uuid,
        created: (0, 0),
        mgs,
    }
}

/// Reads a whole backup and compares every checksum.
pub fn show(disk: &dyn brindle_stdx::Disk, path: &str) -> Result<Backup> {
    let mut reader = Reader::open(disk, path)?;
    while reader.rows()?.is_some() {}
    describe(path, &reader)
}

fn describe(path: &str, reader: &Reader) -> Result<Backup> {
    let header = reader.header();
    Ok(Backup {
        file: path.to_owned(),
        mdt: Superblock::from_bytes(&header.superblock)?.name(),
        taken_at: header.taken_at_s,
        term: header.term,
        rows: reader.rows_read(),
        bytes: reader.len_bytes(),
    })
}

/// A restore that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// The backup.
    pub file: String,
    /// Directory that becomes the MDT; it holds none yet.
    pub dir: String,
    /// Addresses of the MGS, where they are not those of the time of the backup.
    pub mgs: Vec<Nid>,
    /// Go on although some servers do not say what they know of the lost MDT.
    pub without_silent: bool,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// Makes an MDT from a backup. Refuses, and changes nothing, where the backup is not whole, the directory holds a target,
/// or a server that may know a later term is silent.
pub async fn restore(servers: Servers, restore: Restore, job: Job) -> Result<Restored> {
    let Restore { file, dir, mgs, .. } = &restore;
    let disk = servers.seams().disk.clone();
    let backup = show(&*disk, file)?;
    if Superblock::exists(&*disk, dir)? {
        return Err(Fault::new(Code::AlreadyFormatted)
            .what("cannot restore an MDT into")
            .subject(dir.clone())
            .why("it holds a target")
            .data("nothing was changed")
            .next("give another directory; the old one is best kept until the new one is at work"));
    }
    let mut reader = Reader::open(&*disk, file)?;
    let mut superblock = Superblock::from_bytes(&reader.header().superblock)?;
    if !mgs.is_empty() {
        superblock.mgs.clone_from(mgs);
    }
    let place = FsLocation { mgs: superblock.mgs.clone(), fs: Some(superblock.fs.clone()), dev: None };
    let known = terms_known(&servers, &place, &superblock).await?;
    if !known.silent.is_empty() && !restore.without_silent {
        return Err(Fault::new(Code::TargetDown)
            .what("cannot restore")
            .subject(superblock.name())
            .why(format!("no answer from {}", known.silent.join(", ")))
            .why("each may know of a later term of the lost MDT, and the restored one has to begin above it")
            .data("nothing was changed")
            .next("start them; only if they are lost, too: --without-silent"));
    }
    let highest_term = known.highest.max(backup.term);
    let silent = known.silent;
    if !restore.dry_run {
        let seams = servers.seams();
        let identity = brindle_mds::Identity::of(&superblock);
        let mut restoring =
            Restoring::begin(seams, dir, identity, highest_term).map_err(|fault| left_over(fault, dir))?;
        while let Some(rows) = reader.rows()? {
            restoring.put(rows).await?;
            let (subject, done_bytes) = (superblock.name(), reader.read_bytes());
            let (total_bytes, copied_bytes) = (backup.bytes, done_bytes);
            job.progress(Progress { subject, done_bytes, total_bytes, copied_bytes });
        }
        restoring.finish(backup.term).await?;
        superblock.created = (job.seams().wall().secs, 0);
        superblock.save(&*disk, dir)?;
    }
    Ok(Restored { dir: dir.clone(), backup, highest_term, silent, changed: !restore.dry_run })
}

/// A store without superblock is what an interrupted restore has left.
fn left_over(fault: Fault, dir: &str) -> Fault {
    if fault.code != Code::AlreadyFormatted {
        return fault;
    }
    fault
        .what("cannot restore an MDT into")
        .subject(dir.to_owned())
        .why("it holds a store of metadata and no superblock, as an interrupted restore leaves it")
        .data("nothing was changed")
        .next("empty the directory, then give the same command again")
}

struct Known {
    highest: u32,
    silent: Vec<String>,
}

/// The highest term of an MDT that the MGS and the OSTs know of, and who of them is silent.
async fn terms_known(servers: &Servers, place: &FsLocation, superblock: &Superblock) -> Result<Known> {
    let mdt = superblock.target;
    let map = servers.mgs_map(place).await?;
    if map.fs_id != superblock.fs_id || mdt_of(&map, mdt)?.uuid != superblock.uuid {
        return Err(Fault::new(Code::ForeignTarget)
            .what("cannot restore")
            .subject(superblock.name())
            .why(format!("the MGS at {} knows another MDT of this name", shown(&place.mgs)))
            .data("nothing was changed"));
    }
    let mgs: TargetInfoResp = servers.ask_the_mgs(place, &TargetInfoReq {}).await?;
    let mut known = Known { highest: term_in(&mgs, mdt), silent: Vec::new() };
    for ost in map.targets.iter().filter(|t| t.id.role == Role::Ost && !map.is_removed(t.id)) {
        match servers.info(&map, ost).await {
            Ok(info) => known.highest = known.highest.max(term_in(&info, mdt)),
            Err(_) => known.silent.push(map.fs.target(ost.id)),
        }
    }
    Ok(known)
}

fn shown(nids: &[Nid]) -> String {
    nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn term_in(info: &TargetInfoResp, mdt: TargetId) -> u32 {
    let name = term_counter(mdt);
    let found = info.counters.iter().find(|(counter, _)| *counter == name);
    found.map_or(0, |(_, term)| u32::try_from(*term).unwrap_or(u32::MAX))
}
