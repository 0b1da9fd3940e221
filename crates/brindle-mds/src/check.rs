//! Checks the rows of an MDT against the invariants (DESIGN section 12), without changing anything.
//!
//! Called by `brindle fsck` on a stopped MDT (over `KvReader`), and by tests after everything they do. The
//! caller checks OSTs with [`for_each_file`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brindle_types::hsm::{HSM_ARCHIVED, HSM_RELEASED};
use brindle_types::layout::{Component, FILE_SIZE_MAX_BYTES, INLINE_MAX_BYTES};
use brindle_types::{ArchivedCopy, Change, FileType, HsmKind, Ino, Layout, Pair, Result, Stripe};

use crate::acl;
use crate::store::dirent::{Dirent, HashKey};
use crate::store::usage::{Delta, Kind, Usage};
use crate::store::{
    Inode, Rows, changelog, destroy_queue, for_each, hsm, keys, link, meta, orphan, row, session, usage,
    watch,
};

/// Broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Number of the invariant in DESIGN section 12; 0 for the form of rows.
    pub invariant: u8,
    /// The thing.
    pub subject: String,
    /// The finding.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.subject, self.what)
    }
}

/// A regular file as the caller compares it with the OSTs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileObjects {
    /// The file.
    pub ino: Ino,
    /// Size of the file at the MDT.
    pub size_bytes: u64,
    /// Layout of the file.
    pub layout: Layout,
    /// Objects may exist although the bytes lie in the MDT.
    pub convert_begun: bool,
    /// The file was open for writing, so its size may be behind its objects.
    pub open_for_write: bool,
    /// Objects beside the layout: a move of its bytes was under way.
    pub aside: Vec<Component>,
    /// A cut of its objects was under way.
    pub pending_cut: Option<u64>,
    /// Stripes that were written and never synced, with the boot term of the OST at the write.
    pub unsynced: Vec<(Stripe, u32)>,
}

fn generations(layout: &Layout) -> Vec<Pair> {
    let placed: BTreeSet<Pair> =
        layout.components.iter().filter(|c| c.is_placed()).map(|c| c.generation).collect();
    placed.into_iter().collect()
}

/// Calls `each` for every regular file.
pub fn for_each_file(rows: &(impl Rows + ?Sized), mut each: impl FnMut(FileObjects)) -> Result<()> {
    for_each(rows, &[keys::INODE], |key, value| {
        let inode: Inode = row::decode("inode", key, value)?;
        if let Some(body) = inode.file.map(Arc::unwrap_or_clone) {
            each(FileObjects {
                ino: inode.ino,
                size_bytes: inode.size_bytes,
                layout: body.layout,
                convert_begun: body.convert_begun,
                open_for_write: inode.open_for_write,
                aside: body.aside,
                pending_cut: body.pending_cut,
                unsynced: body.unsynced,
            });
        }
        Ok(true)
    })
}

/// The part of an inode that the checks need.
struct Seen {
    kind: FileType,
    nlink: u32,
    parent: Ino,
    name_hint: Vec<u8>,
    /// Generations of components that have OSTs.
    generations: Vec<Pair>,
    inline: bool,
    size_bytes: u64,
    data_version: Pair,
    has_acl: bool,
    has_xattr: bool,
    /// The inode must be on the list of inodes to look at after a restart.
    watched: bool,
}

/// State of one check.
struct Checker<'a, R: Rows + ?Sized> {
    rows: &'a R,
    hash_key: HashKey,
    inodes: BTreeMap<Ino, Seen>,
    entries: BTreeMap<Ino, u32>,
    subdirs: BTreeMap<Ino, u32>,
    used: BTreeMap<(Kind, u32), Usage>,
    findings: Vec<Finding>,
}

/// Checks everything; findings in order of what is checked. Fails only where rows cannot be read at all.
pub fn verify(rows: &(impl Rows + ?Sized)) -> Result<Vec<Finding>> {
    let Some(format) = meta::format(rows)? else {
        let what = "the store has no format row".to_owned();
        return Ok(vec![Finding { invariant: 0, subject: "MDT".into(), what }]);
    };
    let mut checker = Checker {
        rows,
        hash_key: format.hash_key,
        inodes: BTreeMap::new(),
        entries: BTreeMap::new(),
        subdirs: BTreeMap::new(),
        used: BTreeMap::new(),
        findings: Vec::new(),
    };
    checker.read_inodes()?;
    checker.entries()?;
    checker.names()?;
    checker.tree();
    checker.orphans()?;
    checker.attachments()?;
    checker.usage()?;
    checker.destroys()?;
    checker.tiering()?;
    checker.sessions()?;
    checker.changelog()?;
    Ok(checker.findings)
}

impl<R: Rows + ?Sized> Checker<'_, R> {
    fn found(&mut self, invariant: u8, subject: impl Into<String>, what: impl Into<String>) {
        self.findings.push(Finding { invariant, subject: subject.into(), what: what.into() });
    }

    fn inode(&mut self, invariant: u8, ino: Ino, what: impl Into<String>) {
        self.found(invariant, format!("inode {}", ino.fid()), what);
    }

    /// Components follow each other, and only what has OSTs has objects.
    fn layout(&mut self, ino: Ino, layout: &Layout) {
        if let Err(fault) = brindle_layout::check(layout) {
            self.inode(7, ino, format!("its layout is impossible: {}", fault.why.join("; ")));
        }
        for component in layout.components.iter().filter(|c| c.is_placed()) {
            let first = layout.component(component.generation);
            let whole = |c: &Component| Component { start: 0, end: 0, ..c.clone() };
            if first.is_some_and(|first| whole(first) != whole(component)) {
                self.inode(
                    7,
                    ino,
                    "two of its components have objects of the same names that are not the same",
                );
            }
        }
        for component in &layout.components {
            let known = &component.objects;
            let stripes = component.osts.len();
            let beyond = known
                .iter()
                .enumerate()
                .any(|(word, bits)| (0..64).any(|bit| bits >> bit & 1 == 1 && word * 64 + bit >= stripes));
            if beyond {
                self.inode(7, ino, "an object is known of a stripe that it does not have");
            }
            if layout.inline && known.iter().any(|bits| *bits != 0) {
                self.inode(7, ino, "its bytes lie in the MDT, and objects are known");
            }
        }
        if !layout.inline && layout.components.first().is_none_or(|first| !first.is_placed()) {
            self.inode(7, ino, "its bytes lie in objects, and it has no OST");
        }
    }

    fn read_inodes(&mut self) -> Result<()> {
        let reserved = meta::inodes_reserved(self.rows)?;
        let rows = self.rows;
        for_each(rows, &[keys::INODE], |key, value| {
            match row::decode::<Inode>("inode", key, value) {
                Ok(inode) => self.take(inode, reserved),
                Err(fault) => self.found(0, fault.subject.into_owned(), fault.why.join(": ")),
            }
            Ok(true)
        })
    }

    fn take(&mut self, inode: Inode, reserved: u64) {
        if inode.ino.counter() >= reserved {
            self.inode(14, inode.ino, "its number was never reserved");
        }
        if inode.file.is_some() != (inode.kind == FileType::Regular) {
            self.inode(0, inode.ino, "only regular files have a layout, and all of them");
        }
        if inode.size_bytes > FILE_SIZE_MAX_BYTES {
            self.inode(7, inode.ino, "it is larger than a file can be");
        }
        if let Some(body) = &inode.file {
            self.layout(inode.ino, &body.layout);
        }
        for owner in inode.owners().each() {
            let used = self.used.entry(owner).or_default();
            *used = used.apply(Delta::of(&inode, 1));
        }
        let watched = inode.is_watched();
        let seen = Seen {
            kind: inode.kind,
            nlink: inode.nlink,
            parent: inode.parent,
            generations: inode.file.iter().flat_map(|body| generations(&body.layout)).collect(),
            inline: inode.is_inline(),
            name_hint: inode.name_hint.to_vec(),
            size_bytes: inode.size_bytes,
            data_version: inode.data_version,
            has_acl: inode.has_acl,
            has_xattr: inode.has_xattr,
            watched,
        };
        self.inodes.insert(inode.ino, seen);
    }

    /// Invariant 1: every entry leads to an inode, of the type it says, from a directory.
    fn entries(&mut self) -> Result<()> {
        let rows = self.rows;
        for_each(rows, &[keys::DIRENT], |key, value| {
            let Some((dir, hash, name)) = keys::split_dirent(key) else {
                self.found(0, key.escape_ascii().to_string(), "the key of an entry is too short");
                return Ok(true);
            };
            let subject = format!("'{}' in {}", name.escape_ascii(), dir.fid());
            if hash != self.hash_key.hash(name) {
                self.found(0, subject.clone(), "the entry has a wrong place");
            }
            if !self.inodes.get(&dir).is_some_and(|d| d.kind == FileType::Directory && d.nlink > 0) {
                self.found(1, subject.clone(), "the entry is in something that is no directory");
            }
            let entry: Dirent = match row::decode("directory entry", key, value) {
                Ok(entry) => entry,
                Err(fault) => {
                    self.found(0, subject, fault.why.join(": "));
                    return Ok(true);
                }
            };
            match self.inodes.get(&entry.ino).map(|child| child.kind) {
                None => {
                    self.found(1, subject, format!("it leads to {}, which does not exist", entry.ino.fid()))
                }
                Some(kind) if kind != entry.kind => {
                    self.found(1, subject, "it says another type than its inode")
                }
                Some(_) => {}
            }
            *self.entries.entry(entry.ino).or_default() += 1;
            if entry.kind == FileType::Directory {
                *self.subdirs.entry(dir).or_default() += 1;
            }
            Ok(true)
        })
    }

    /// Invariant 2, and the way back from inodes to names.
    fn names(&mut self) -> Result<()> {
        let mut findings = Vec::new();
        for (ino, seen) in &self.inodes {
            let mut say = |what: String| findings.push((*ino, what));
            let entries = self.entries.get(ino).copied().unwrap_or(0);
            let links = link::list(self.rows, *ino)?;
            if seen.kind == FileType::Directory {
                let subdirs = self.subdirs.get(ino).copied().unwrap_or(0);
                let named = *ino == Ino::ROOT || entries == 1;
                if seen.nlink != if named { 2 + subdirs } else { 0 } {
                    say(format!(
                        "nlink is {}, it has {entries} names and {subdirs} subdirectories",
                        seen.nlink
                    ));
                }
            } else if seen.nlink != entries {
                say(format!("nlink is {}, it has {entries} names", seen.nlink));
            }
            if seen.nlink > 0 && *ino != Ino::ROOT && !self.leads_to(seen.parent, &seen.name_hint, *ino)? {
                let name = seen.name_hint.escape_ascii();
                say(format!("'{name}' in {} is not its name", seen.parent.fid()));
            }
            let several = seen.kind != FileType::Directory && seen.nlink > 1;
            if links.len() != if several { seen.nlink as usize } else { 0 } {
                say(format!("nlink is {}, it has {} link rows", seen.nlink, links.len()));
            }
            for (parent, name) in &links {
                if !self.leads_to(*parent, name, *ino)? {
                    say(format!("'{}' in {} is not its name", name.escape_ascii(), parent.fid()));
                }
            }
        }
        findings.into_iter().for_each(|(ino, what)| self.inode(2, ino, what));
        Ok(())
    }

    fn leads_to(&self, dir: Ino, name: &[u8], ino: Ino) -> Result<bool> {
        let key = keys::dirent(dir, self.hash_key.hash(name), name);
        let Some(value) = self.rows.row(&key)? else { return Ok(false) };
        Ok(row::decode::<Dirent>("directory entry", &key, &value).is_ok_and(|entry| entry.ino == ino))
    }

    /// Every directory hangs below the root.
    fn tree(&mut self) {
        let mut good = BTreeSet::from([Ino::ROOT]);
        let dirs = self.inodes.iter().filter(|(_, s)| s.kind == FileType::Directory && s.nlink > 0);
        let dirs: Vec<Ino> = dirs.map(|(ino, _)| *ino).collect();
        for dir in dirs {
            let mut path = BTreeSet::new();
            let mut at = dir;
            while !good.contains(&at) && path.insert(at) {
                match self.inodes.get(&at) {
                    Some(seen) => at = seen.parent,
                    None => break,
                }
            }
            if good.contains(&at) {
                good.extend(path);
            } else {
                self.inode(1, dir, "the root cannot be reached from it");
            }
        }
    }

    /// An inode without a name is an orphan, and the other way.
    fn orphans(&mut self) -> Result<()> {
        let orphans: BTreeSet<Ino> = orphan::list(self.rows)?.into_iter().collect();
        for ino in &orphans {
            match self.inodes.get(ino).map(|seen| seen.nlink) {
                None => self.inode(1, *ino, "it is an orphan that does not exist"),
                Some(0) => {}
                Some(nlink) => self.inode(2, *ino, format!("it is an orphan with {nlink} names")),
            }
        }
        let lost: Vec<Ino> = self
            .inodes
            .iter()
            .filter(|(i, s)| s.nlink == 0 && !orphans.contains(i))
            .map(|(i, _)| *i)
            .collect();
        lost.into_iter().for_each(|ino| self.inode(2, ino, "it has no name and is no orphan"));
        let watched: BTreeSet<Ino> = watch::list(self.rows)?.into_iter().map(|watched| watched.ino).collect();
        let unwatched: Vec<Ino> =
            self.inodes.iter().filter(|(i, s)| s.watched && !watched.contains(i)).map(|(i, _)| *i).collect();
        for ino in unwatched {
            self.inode(
                7,
                ino,
                "it is open for writing or being cut, and would not be looked at after a restart",
            );
        }
        Ok(())
    }

    /// Rows beside inodes: extended attributes, inline bytes, reservations of appends.
    fn attachments(&mut self) -> Result<()> {
        let rows = self.rows;
        for_each(rows, &[keys::XATTR], |key, _| {
            let Some((ino, name)) = keys::split_ino(key) else { return Ok(true) };
            let flagged =
                self.inodes.get(&ino).map(|s| if acl::is_acl(name) { s.has_acl } else { s.has_xattr });
            if flagged != Some(true) {
                self.inode(1, ino, format!("it does not know of its attribute '{}'", name.escape_ascii()));
            }
            Ok(true)
        })?;
        for_each(rows, &[keys::INLINE], |key, value| {
            let Some((ino, _)) = keys::split_ino(key) else { return Ok(true) };
            let len = value.len() as u64 - 1;
            let what = match self.inodes.get(&ino) {
                None => Some("inline bytes of no inode"),
                Some(s) if s.kind == FileType::Symlink && s.size_bytes != len => {
                    Some("its target has another length")
                }
                Some(s) if s.kind == FileType::Regular && !s.inline => Some("inline bytes beside objects"),
                Some(s) if s.kind == FileType::Regular && (len > s.size_bytes || len > INLINE_MAX_BYTES) => {
                    Some("more inline bytes than its size, or than can be")
                }
                Some(_) => None,
            };
            what.into_iter().for_each(|what| self.inode(7, ino, what));
            Ok(true)
        })?;
        for kind in [keys::APPEND, keys::LINK] {
            for_each(rows, &[kind], |key, _| {
                if let Some((ino, _)) = keys::split_ino(key).filter(|(ino, _)| !self.inodes.contains_key(ino))
                {
                    self.inode(1, ino, "rows of an inode that does not exist");
                }
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// Invariant 11.
    fn usage(&mut self) -> Result<()> {
        for kind in Kind::ALL {
            let counted: BTreeMap<u32, Usage> = usage::list(self.rows, kind)?.into_iter().collect();
            let real = self.used.iter().filter(|((k, _), _)| *k == kind).map(|((_, id), used)| (*id, *used));
            let real: BTreeMap<u32, Usage> = real.collect();
            let ids: BTreeSet<u32> = counted.keys().chain(real.keys()).copied().collect();
            for id in ids {
                let count = |map: &BTreeMap<u32, Usage>| map.get(&id).copied().unwrap_or_default();
                let (counted, real) = (count(&counted), count(&real));
                if counted != real {
                    self.found(11, format!("{kind:?} {id}"), format!("counted {counted:?}, really {real:?}"));
                }
            }
        }
        Ok(())
    }

    /// Invariant 8: objects that are queued to be destroyed belong to no file.
    fn destroys(&mut self) -> Result<()> {
        for ost in destroy_queue::osts(self.rows)? {
            let rows = self.rows;
            for_each(rows, &keys::destroy_at(ost), |key, _| {
                let Some((_, object)) = keys::split_destroy(key) else { return Ok(true) };
                let owner = self.inodes.get(&object.ino);
                if owner.is_some_and(|seen| seen.generations.contains(&object.generation)) {
                    self.inode(8, object.ino, format!("its object {object} is queued to be destroyed"));
                }
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// Invariant 12: released only if archived, of the same contents; and actions are on files that exist, but for removals of copies.
    fn tiering(&mut self) -> Result<()> {
        for (ino, state) in hsm::states(self.rows)? {
            let Some(seen) = self.inodes.get(&ino) else {
                self.inode(1, ino, "tiering has a state of it, and it does not exist");
                continue;
            };
            if state.flags & HSM_RELEASED == 0 {
                continue;
            }
            let of_contents = |copy: &ArchivedCopy| {
                copy.data_version == seen.data_version && copy.size_bytes == seen.size_bytes
            };
            let is_archived = state.flags & HSM_ARCHIVED != 0 && state.copy.as_ref().is_some_and(of_contents);
            let has_bytes = !seen.inline || self.rows.row(&keys::of_ino(keys::INLINE, ino))?.is_some();
            let what = match (is_archived, has_bytes) {
                (false, _) => "it is released, and no copy of its contents is known",
                (true, true) => "it is released, and has bytes of its own",
                (true, false) => continue,
            };
            self.inode(12, ino, what);
        }
        for (ino, _) in
            hsm::actions(self.rows)?.into_iter().filter(|(_, action)| action.kind != HsmKind::Remove)
        {
            if !self.inodes.contains_key(&ino) {
                self.inode(1, ino, "an action of tiering is on it, and it does not exist");
            }
        }
        Ok(())
    }

    /// The changelog is counted, within bounds of what one row can be.
    fn changelog(&mut self) -> Result<()> {
        let (state, counted) = (changelog::state(self.rows)?, changelog::size(self.rows)?);
        let mut real = changelog::Size::default();
        let rows = self.rows;
        for_each(rows, &[keys::CHANGE], |key, value| {
            if let Err(fault) = row::decode::<Change>("change", key, value) {
                self.found(0, fault.subject.into_owned(), fault.why.join(": "));
            }
            if keys::split_change(key).is_none_or(|index| index == 0) {
                self.found(14, key.escape_ascii().to_string(), "a record of the changelog has no index");
            }
            real.records += 1;
            real.bytes += (key.len() + value.len()) as u64;
            Ok(true)
        })?;
        if counted != real {
            self.found(0, "changelog", format!("counted {counted:?}, really {real:?}"));
        }
        let ids: BTreeSet<u32> = state.readers.iter().map(|reader| reader.id).collect();
        if ids.len() != state.readers.len() || ids.last().is_some_and(|last| *last >= state.next_id) {
            self.found(
                14,
                "changelog",
                "two of its readers have one number, or one has a number of the future",
            );
        }
        Ok(())
    }

    /// Reply rows belong to sessions.
    fn sessions(&mut self) -> Result<()> {
        let known: BTreeSet<u64> = session::list(self.rows)?.into_iter().map(|(id, _)| id.0).collect();
        let rows = self.rows;
        for_each(rows, &[keys::REPLY], |key, _| {
            if let Some((id, _)) = keys::split_ino(key).filter(|(id, _)| !known.contains(&id.0)) {
                self.found(
                    4,
                    format!("session c{}", id.0),
                    "a reply is kept of a session that does not exist",
                );
            }
            Ok(true)
        })
    }
}
