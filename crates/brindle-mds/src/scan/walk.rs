//! The walk of one page: depth first, a directory before what is in it, in the order of readdir.

use std::collections::VecDeque;

use brindle_stdx::cast::len_u32;
use brindle_types::attr::Time;
use brindle_types::{Code, Fault, FileType, Ino, Result};
use brindle_wire::mds::scan::{
    DEPTH_MAX, PATH_BYTES_MAX, ScanCursor, ScanFound, ScanLevel, ScanLinked, ScanRefused, ScanReq, ScanResp,
    ScanSum, Wanted,
};

use super::Predicate;
use crate::access;
use crate::namespace::{self, NAME_BYTES_MAX};
use crate::store::dirent::{self, Dirent, HashKey};
use crate::store::{Inode, Rows, inode};

/// Bounds of one page.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The page ends when this many rows were read for it.
    pub rows: usize,
    /// Size in bytes at which the page ends; it has at most one path more.
    pub bytes: usize,
}

impl Limits {
    /// The limits for clients: a few milliseconds of work.
    pub const PAGE: Limits = Limits { rows: 4096, bytes: 128 << 10 };
}

/// Entries that are read ahead in a directory at first, and at most.
const AHEAD: (usize, usize) = (32, 256);
/// Bytes that attributes count for.
const ATTR_BYTES: usize = 128;
/// Bytes that a sum counts for beside its path.
const SUM_BYTES: usize = 48;
/// Bytes that an inode with several names counts for.
const LINKED_BYTES: usize = 32;
/// Space is counted in blocks of this size, as stat(2) has it.
const BLOCK_BYTES: u64 = 512;

/// A directory that is being read.
struct Level {
    dir: Ino,
    after: Vec<u8>,
    /// Length of its own path.
    path_bytes: usize,
    ahead: VecDeque<dirent::ScannedEntry>,
    ahead_max: usize,
    is_read: bool,
}

/// A page in the making.
pub struct Walk<'a, R: Rows> {
    rows: &'a R,
    hash_key: HashKey,
    req: &'a ScanReq,
    predicate: Predicate<'a>,
    began: Time,
    levels: Vec<Level>,
    /// Path of the innermost level.
    path: Vec<u8>,
    rows_read: usize,
    bytes: usize,
    page: ScanResp,
}

impl<'a, R: Rows> Walk<'a, R> {
    /// Makes the page that `req` asks for.
    pub fn page(
        rows: &'a R,
        hash_key: HashKey,
        req: &'a ScanReq,
        now: Time,
        limits: Limits,
    ) -> Result<ScanResp> {
        Walk::page_for(None, rows, hash_key, req, now, limits)
    }

    /// Like [`Walk::page`], for a host whose nodemap may give users and groups other numbers.
    pub fn page_for(
        host: Option<&'a brindle_net::Limits>,
        rows: &'a R,
        hash_key: HashKey,
        req: &'a ScanReq,
        now: Time,
        limits: Limits,
    ) -> Result<ScanResp> {
        let began = req.cursor.as_ref().map_or(now, |cursor| cursor.began);
        let mut walk = Walk {
            rows,
            hash_key,
            req,
            predicate: Predicate::new(&req.predicate, began)?.seen_by(host),
            began,
            levels: Vec::new(),
            path: Vec::new(),
            rows_read: 0,
            bytes: 0,
            page: ScanResp { found: Vec::new(), sums: Vec::new(), refused: Vec::new(), cursor: None },
        };
        match &req.cursor {
            Some(cursor) => walk.go_on(cursor)?,
            None => walk.begin()?,
        }
        while walk.rows_read < limits.rows && walk.bytes < limits.bytes && walk.step()? {}
        Ok(walk.into_page())
    }

    fn into_page(self) -> ScanResp {
        let level = |level: Level| ScanLevel { dir: level.dir, after: level.after };
        let levels: Vec<ScanLevel> = self.levels.into_iter().map(level).collect();
        let cursor = (!levels.is_empty()).then_some(ScanCursor { began: self.began, levels });
        ScanResp { cursor, ..self.page }
    }

    /// The start itself.
    fn begin(&mut self) -> Result<()> {
        let start = inode::get(self.rows, self.req.start)?;
        self.check_above(&start)?;
        let entry = Dirent { ino: start.ino, kind: start.kind };
        let name = self.req.start_name.clone();
        self.judge(&name, &entry, Some(start), 0)
    }

    /// Refuses callers that may not search the directories above the start.
    fn check_above(&self, start: &Inode) -> Result<()> {
        if self.req.cred.uid == 0 {
            return Ok(());
        }
        let (mut at, mut above) = (start.ino, start.parent);
        for _ in 0..DEPTH_MAX {
            if at == Ino::ROOT {
                return Ok(());
            }
            let dir = inode::dir(self.rows, above)?;
            access::check(self.rows, &dir, &self.req.cred, access::SEARCH)?;
            (at, above) = (dir.ino, dir.parent);
        }
        Err(Fault::new(Code::NameTooLong).why(format!("it lies deeper than {DEPTH_MAX} directories")))
    }

    /// Puts the directories of a cursor in place. The cursor comes from a client, so it is checked.
    fn go_on(&mut self, cursor: &ScanCursor) -> Result<()> {
        let wrong = || Fault::new(Code::InvalidArgument).what("cannot go on with this scan");
        let depth = cursor.levels.len();
        if depth == 0 || depth > DEPTH_MAX as usize {
            return Err(wrong().why(format!("its cursor has {depth} levels")));
        }
        for (index, level) in cursor.levels.iter().enumerate() {
            let is_last = index + 1 == depth;
            if level.after.len() > NAME_BYTES_MAX || level.after.is_empty() && !is_last {
                return Err(wrong().why("its cursor has a name that cannot be"));
            }
            self.push_level(level.dir, level.after.clone());
            if !is_last {
                push_name(&mut self.path, &level.after);
            }
        }
        if self.path.len() > PATH_BYTES_MAX {
            return Err(wrong().why("its cursor has too long a path"));
        }
        Ok(())
    }

    fn push_level(&mut self, dir: Ino, after: Vec<u8>) {
        self.levels.push(Level {
            dir,
            after,
            path_bytes: self.path.len(),
            ahead: VecDeque::new(),
            ahead_max: AHEAD.0,
            is_read: false,
        });
    }

    /// Looks at the next entry; false at the end.
    fn step(&mut self) -> Result<bool> {
        let depth = len_u32(self.levels.len());
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        self.path.truncate(level.path_bytes);
        if level.ahead.is_empty() && !level.is_read {
            let limit = level.ahead_max;
            level.ahead_max = (limit * 2).min(AHEAD.1);
            let found = dirent::behind(self.rows, self.hash_key, level.dir, &level.after, limit)?;
            level.is_read = found.len() < limit;
            self.rows_read += found.len() + 1;
            level.ahead = found.into();
        }
        let Some(found) = level.ahead.pop_front() else {
            self.levels.pop();
            return Ok(!self.levels.is_empty());
        };
        level.after.clone_from(&found.name);
        let (name, entry) = (found.name, found.entry);
        self.judge(&name, &entry, None, depth)?;
        Ok(true)
    }

    /// Whether an entry of the innermost level matches, and what follows from that; goes into directories.
    fn judge(&mut self, name: &[u8], entry: &Dirent, known: Option<Inode>, depth: u32) -> Result<()> {
        let mut inode = known;
        let needs_inode = self.req.wanted != Wanted::Paths;
        let matches = match self.predicate.matches(name, entry, inode.as_ref()) {
            Some(decided) if inode.is_some() || !(decided && needs_inode) => decided,
            _ => {
                let Some(found) = self.inode_of(name, entry, depth)? else { return Ok(()) };
                inode = Some(found);
                self.predicate.matches(name, entry, inode.as_ref()).unwrap_or(false)
            }
        };
        let above = self.path.len();
        if depth > 0 {
            push_name(&mut self.path, name);
        }
        let counts = matches && depth >= self.req.depth_min;
        if let Wanted::Sums { depth_max } = self.req.wanted {
            self.add(entry, inode.as_ref().filter(|_| counts), depth, above, depth_max);
        } else if counts {
            let attr = inode.as_ref().filter(|_| needs_inode).map(Inode::attr);
            self.bytes += self.path.len() + 8 + if attr.is_some() { ATTR_BYTES } else { 0 };
            self.page.found.push(ScanFound { path: self.path.clone(), attr });
        }
        if entry.kind == FileType::Directory && depth < self.req.depth_max {
            self.go_down(entry, inode, depth)?;
        }
        Ok(())
    }

    /// The inode of an entry; `None` if the entry was removed meanwhile.
    fn inode_of(&mut self, name: &[u8], entry: &Dirent, depth: u32) -> Result<Option<Inode>> {
        self.rows_read += 1;
        if let Some(found) = inode::find(self.rows, entry.ino)? {
            return Ok(Some(found));
        }
        let Some(level) = self.levels.last().filter(|_| depth > 0) else { return Ok(None) };
        // An entry and its inode go in one batch: with the entry still there, the inode must be.
        match dirent::find(self.rows, self.hash_key, level.dir, name)? {
            Some(still) if still.ino == entry.ino => {
                namespace::named(self.rows, level.dir, name, still).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn go_down(&mut self, entry: &Dirent, inode: Option<Inode>, depth: u32) -> Result<()> {
        let mut code = (depth + 1 >= DEPTH_MAX || self.path.len() + NAME_BYTES_MAX >= PATH_BYTES_MAX)
            .then_some(Code::NameTooLong);
        if code.is_none() && self.req.cred.uid != 0 {
            let dir = match inode {
                Some(dir) => Some(dir),
                None => {
                    self.rows_read += 1;
                    inode::find(self.rows, entry.ino)?
                }
            };
            // Check the rights one after the other, as the kernel does: different entries of an ACL may give them.
            let Some(dir) = dir else { return Ok(()) };
            for right in [access::READ, access::SEARCH] {
                match access::check(self.rows, &dir, &self.req.cred, right) {
                    Err(fault) if fault.code == Code::PermissionDenied => code = Some(fault.code),
                    other => other?,
                }
            }
        }
        match code {
            Some(code) => {
                self.bytes += self.path.len() + 8;
                self.page.refused.push(ScanRefused { path: self.path.clone(), code });
            }
            None => self.push_level(entry.ino, Vec::new()),
        }
        Ok(())
    }

    /// Adds an entry (`inode` if it counts) to the sum of a directory. A directory down to `depth_max` has a sum of
    /// its own. Any other entry belongs to the directory above, whose path has `above` bytes, or to that one's
    /// ancestor at `depth_max`.
    fn add(&mut self, entry: &Dirent, inode: Option<&Inode>, depth: u32, above: usize, depth_max: u32) {
        let is_own = entry.kind == FileType::Directory && depth <= depth_max;
        let of = if is_own || depth == 0 { &self.path[..] } else { ancestor(&self.path[..above], depth_max) };
        if self.page.sums.last().is_none_or(|sum| sum.path != of) {
            self.bytes += of.len() + SUM_BYTES;
            let path = of.to_vec();
            let sum = ScanSum { path, entries: 0, allocated_bytes: 0, size_bytes: 0, linked: Vec::new() };
            self.page.sums.push(sum);
        }
        let (Some(sum), Some(inode)) = (self.page.sums.last_mut(), inode) else { return };
        let allocated_bytes = inode.allocated_bytes.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX);
        let has_size = matches!(inode.kind, FileType::Regular | FileType::Symlink);
        let size_bytes = if has_size { inode.size_bytes } else { 0 };
        if inode.nlink > 1 && !inode.is_dir() {
            self.bytes += LINKED_BYTES;
            sum.linked.push(ScanLinked { ino: inode.ino, allocated_bytes, size_bytes });
            return;
        }
        sum.entries += 1;
        sum.allocated_bytes = sum.allocated_bytes.saturating_add(allocated_bytes);
        sum.size_bytes = sum.size_bytes.saturating_add(size_bytes);
    }
}

/// The first `depth` directories of a path.
fn ancestor(path: &[u8], depth: u32) -> &[u8] {
    let Some(last) = (depth as usize).checked_sub(1) else { return b"" };
    let slash = path.iter().enumerate().filter(|(_, b)| **b == b'/').nth(last);
    slash.map_or(path, |(at, _)| &path[..at])
}

fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_are_cut_at_their_depth() {
        assert_eq!(ancestor(b"a/b/c", 0), b"");
        assert_eq!(ancestor(b"a/b/c", 1), b"a");
        assert_eq!(ancestor(b"a/b/c", 2), b"a/b");
        assert_eq!(ancestor(b"a/b/c", 3), b"a/b/c");
        assert_eq!(ancestor(b"", 3), b"");
    }
}
