//! readdir: entries in order of the hash of their names (design note 003).

use brindle_types::{FileType, Ino, Result};
use brindle_wire::mds::readdir::{DirEntry, ReaddirReq, ReaddirResp};

use crate::admission;
use crate::mdt::{Call, Mdt, Txn};
use crate::namespace;
use crate::store::dirent::{self, ScannedEntry};
use crate::store::inode;

/// Most entries in one answer.
pub const ENTRIES_MAX: u32 = 1024;
/// Most entries with attributes in one answer.
pub const ENTRIES_PLUS_MAX: u32 = 512;

/// Entries behind a cookie.
pub async fn handle(mdt: &Mdt, call: &Call, req: ReaddirReq) -> Result<ReaddirResp> {
    let max = if req.plus { ENTRIES_PLUS_MAX } else { ENTRIES_MAX };
    let limit = req.entries_max.clamp(1, max) as usize;
    mdt.read(|t| {
        // A directory that was removed while it is open is empty, not gone.
        let dir = inode::get(t, req.ino)?;
        if dir.nlink > 0 {
            inode::dir(t, req.ino)?;
        }
        let leased = dir.nlink > 0 && t.lease(call, dir.ino);
        let (found, end) = dirent::page(t, dir.ino, req.after, limit)?;
        let plus = req.plus && leased && admission::may_show_entries(t, call, dir.ino)?;
        let entries = found.into_iter().map(|f| entry(t, dir.ino, f, plus));
        Ok(ReaddirResp { entries: entries.collect::<Result<_>>()?, end, parent: dir.parent })
    })
    .await
}

fn entry(t: &Txn<'_>, dir: Ino, found: ScannedEntry, plus: bool) -> Result<DirEntry> {
    let mut attr = None;
    if plus && found.entry.kind != FileType::Directory {
        // Each inode is read once, so skip the cache of hot inodes.
        let inode = namespace::named(t.mdt().engine(), dir, &found.name, found.entry)?;
        attr = (inode::covered(t, &inode)? == Some(dir)).then(|| inode.attr());
    }
    let (ino, kind) = (found.entry.ino, found.entry.kind);
    Ok(DirEntry { name: found.name, ino, kind, cookie: found.hash, attr })
}
