//! Cache of directories whose leases this client holds: names, names that are not there, attributes.
//!
//! Updates that every answer of the MDT carries fill the cache ([`brindle_wire::cache_updates`]). Recalls empty it, and so does any
//! time in which the session may have been without its lease. Answers come in any order, so every fact has its place in the MDT's log.
//! Of two facts the one with the higher place counts. A recall, and a change that leaves nothing to know, also has a place: facts up
//! to that place are refused ([`Floors`]).
//!
//! Invariants: what is known is what the MDT would answer, as long as the session's lease is held; before a change of a
//! directory's attributes is told to anybody, or given way to, the kernel has forgotten what it kept of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use brindle_stdx::cast::to_usize;
use brindle_types::layout::INLINE_MAX_BYTES;
use brindle_types::{Attr, FileType, Ino};
use brindle_wire::cache_updates::{CacheUpdates, Leased};
use parking_lot::{Mutex, RwLock};

pub(crate) use self::credit::Ahead;
use self::credit::Credit;
use self::listing::Coming;
pub(crate) use self::listing::Listed;
pub(crate) use self::parts::Behind;
use self::parts::Parts;
use crate::cache::{Forgetting, KernelCache, NoCache, all_of};

mod credit;
mod listing;
mod parts;

/// Names and attributes that are remembered; some 250 bytes each. Beyond that directories are forgotten, those first
/// that were not looked at for the longest time.
const FACTS_MAX: usize = 1 << 18;
/// Floors are kept by remainder of the inode number, so that their memory is bounded; sharing one costs an answer that
/// is not remembered.
const FLOORS: usize = 4096;

/// Files that are looked at to find some to be opened ahead.
const LOOKED_AT_MAX: usize = 1024;

/// Target of a name: an inode, or none.
pub(crate) type Lead = Option<(Ino, FileType)>;

/// Cache of names and attributes, with the leases that cover them.
pub(crate) struct Dirs {
    inner: Mutex<Inner>,
    /// The keeper of attributes of directories.
    kernel: RwLock<Arc<dyn KernelCache>>,
}

impl Default for Dirs {
    fn default() -> Dirs {
        Dirs { inner: Mutex::default(), kernel: RwLock::new(Arc::new(NoCache)) }
    }
}

#[derive(Default)]
struct Inner {
    /// Counts how often everything was forgotten.
    generation: u64,
    dirs: BTreeMap<Ino, Dir>,
    attrs: HashMap<Ino, Known>,
    /// Directories whose rights the lease of their parent covers: of those attributes only they are known.
    rights: HashMap<Ino, Known>,
    /// Floors of attributes and rights.
    floors: Floors,
    /// Floors of leases, and of information under them. Apart from the others, because every file that is
    /// made and open for writing raises a floor: 4096 of them would take along the directory that they are
    /// made in.
    dir_floors: Floors,
    /// Directories in order of their last use.
    used: BTreeMap<u64, Ino>,
    uses: u64,
    /// Leases so far.
    births: u64,
    names: usize,
    /// Directories that are being listed ahead.
    ahead: BTreeMap<Ino, Coming>,
}

/// A directory whose lease is held.
#[derive(Default)]
struct Dir {
    names: HashMap<Vec<u8>, Name>,
    /// Inodes whose attributes its lease covers.
    covers: BTreeSet<Ino>,
    /// Directories whose rights its lease covers.
    rights_of: BTreeSet<Ino>,
    /// Names that are not known do not exist.
    complete: bool,
    /// Cookie up to which a listing from the start has come.
    listed: Option<u64>,
    /// Cookie at which a listing has ended, if no name was added since.
    end: Option<u64>,
    /// Place of the newest name that leads somewhere.
    named: u64,
    /// Place of the newest name that was found to lead elsewhere than it was known to.
    changed: u64,
    parts: Parts,
    /// The directory has not changed since a part was listed.
    is_quiet: bool,
    credit: Credit,
    /// Number of the lease: each lease of a directory has another one.
    born: u64,
    used: u64,
}

#[derive(Clone, Copy)]
struct Name {
    lead: Lead,
    at: u64,
    /// Whether it was listed ahead, and nobody has looked at it yet.
    is_ahead: bool,
}

struct Known {
    attr: Attr,
    by: Ino,
    at: u64,
}

/// A directory that is being forgotten.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forgotten {
    /// Right, but memory is scarce.
    True,
    /// The information may not be right any more.
    Void,
}

/// Places in the log: what was told of an inode, or under the lease of a directory, up to its floor is void.
struct Floors(Vec<u64>);

impl Default for Floors {
    fn default() -> Floors {
        Floors(vec![0; FLOORS])
    }
}

impl Floors {
    fn raise(&mut self, ino: Ino, at: u64) {
        let floor = &mut self.0[to_usize(ino.0 % FLOORS as u64)];
        *floor = (*floor).max(at);
    }

    fn allows(&self, ino: Ino, at: u64) -> bool {
        at > self.0[to_usize(ino.0 % FLOORS as u64)]
    }
}

impl Dirs {
    /// Tells who may keep attributes of directories.
    pub fn set_kernel(&self, kernel: Arc<dyn KernelCache>) {
        *self.kernel.write() = kernel;
    }

    /// The moment before a request is sent, for what its answer tells.
    pub fn asked(&self) -> u64 {
        self.inner.lock().generation
    }

    /// Takes in what an answer to a request of the moment `asked` told. If everything was forgotten since, what it changed
    /// is not known, but known to be no longer what it was.
    /// The caller awaits the result before anybody gets the answer: until then the kernel may show old attributes.
    pub fn told(&self, asked: u64, news: &CacheUpdates) -> Forgetting {
        if news.is_empty() {
            return None;
        }
        self.take_in(asked, news);
        let kernel = self.kernel.read().clone();
        all_of(news.inodes.iter().map(|inode| kernel.forget_attr(inode.ino)))
    }

    fn take_in(&self, asked: u64, news: &CacheUpdates) {
        let mut inner = self.inner.lock();
        if inner.generation != asked {
            news.inodes.iter().for_each(|inode| inner.no_longer(inode.ino, inode.at));
            news.names.iter().for_each(|name| inner.leads_elsewhere(name.dir, &name.name, name.at));
            return;
        }
        news.leased.iter().for_each(|leased| inner.lease(leased));
        for inode in &news.inodes {
            match &inode.known {
                Some(known) if known.is_rights_only() => inner.has_rights(&known.attr, known.by, inode.at),
                known => {
                    inner.inode(inode.ino, inode.at, known.as_ref().map(|known| (&known.attr, known.by)))
                }
            }
        }
        for name in &news.names {
            inner.name(name.dir, &name.name, name.to, name.at);
        }
        inner.shrink();
    }

    /// Leases are taken back: what was told under them up to the place `at` is void.
    pub fn recalled(&self, dirs: &[Ino], at: u64) -> Forgetting {
        if brindle_stdx::planted("client_keeps_recalled_leases") {
            return None;
        }
        let mut inner = self.inner.lock();
        for dir in dirs {
            inner.dir_floors.raise(*dir, at);
            inner.forget_dir(*dir, Forgotten::Void);
        }
        drop(inner);
        let kernel = self.kernel.read().clone();
        let of_dirs = all_of(dirs.iter().map(|dir| kernel.forget_attr(*dir)));
        // The leases may cover more files than can be named, so the kernel forgets all files.
        all_of([of_dirs, kernel.forget_files()])
    }

    /// Forgets everything, and what is being told at this moment.
    pub fn clear(&self) -> Forgetting {
        let mut inner = self.inner.lock();
        *inner = Inner { generation: inner.generation + 1, ..Inner::default() };
        drop(inner);
        let kernel = self.kernel.read().clone();
        kernel.forget_attrs()
    }

    /// Target of a name, if it is known.
    pub fn lead(&self, dir: Ino, name: &[u8]) -> Option<Lead> {
        let mut inner = self.inner.lock();
        inner.use_dir(dir);
        let known = inner.dirs.get(&dir)?;
        match known.names.get(name) {
            Some(name) => Some(name.lead),
            None => known.complete.then_some(None),
        }
    }

    /// The directory whose lease covers the attributes of an inode, if they are known.
    pub fn covered_by(&self, ino: Ino) -> Option<Ino> {
        self.inner.lock().attrs.get(&ino).map(|known| known.by)
    }

    /// Up to `count` regular files with few bytes that the lease of `dir` covers: those `wanted` of the next ones behind `ino` in
    /// order of number, which is that in which they were made.
    pub fn small_files_behind(
        &self,
        dir: Ino,
        ino: Ino,
        count: usize,
        wanted: impl Fn(Ino) -> bool,
    ) -> Vec<Ino> {
        let inner = self.inner.lock();
        let Some(known) = inner.dirs.get(&dir) else { return Vec::new() };
        let is_small = |ino: &&Ino| {
            let attr = inner.attrs.get(ino).map(|known| &known.attr);
            let small = 1..=INLINE_MAX_BYTES;
            attr.is_some_and(|attr| attr.kind == FileType::Regular && small.contains(&attr.size_bytes))
        };
        let behind = known.covers.range((Bound::Excluded(ino), Bound::Unbounded));
        let looked_at = behind.take(LOOKED_AT_MAX);
        looked_at.filter(is_small).filter(|ino| wanted(**ino)).take(count).copied().collect()
    }

    /// Attributes of a directory, of which only the rights are sure to be right, if they are known.
    pub fn rights(&self, ino: Ino) -> Option<Attr> {
        let inner = self.inner.lock();
        let known = inner.attrs.get(&ino).filter(|known| known.attr.kind == FileType::Directory);
        known.or_else(|| inner.rights.get(&ino)).map(|known| known.attr.clone())
    }

    /// Attributes of an inode, if they are known.
    pub fn attr(&self, ino: Ino) -> Option<Attr> {
        self.inner.lock().attrs.get(&ino).map(|known| known.attr.clone())
    }
}

impl Dir {
    /// The directory has changed at the log position `at`.
    fn changed(&mut self, at: u64) {
        self.changed = self.changed.max(at);
        self.is_quiet = false;
        if !brindle_stdx::planted("client_keeps_old_listings") {
            self.parts.clear();
        }
    }
}

impl Inner {
    fn holds(&self, dir: Ino, at: u64) -> bool {
        self.dirs.contains_key(&dir) && self.dir_floors.allows(dir, at)
    }

    fn lease(&mut self, leased: &Leased) {
        if !self.dir_floors.allows(leased.dir, leased.at) {
            return;
        }
        if !self.dirs.contains_key(&leased.dir) {
            // Answers under an earlier lease may still arrive, if they were sent while it was being recalled.
            self.dir_floors.raise(leased.dir, leased.at.saturating_sub(1));
        }
        let born = self.births + 1;
        let known = self.dirs.entry(leased.dir).or_insert_with(|| Dir { born, ..Dir::default() });
        known.complete |= leased.is_new;
        self.births = self.births.max(known.born);
        self.use_dir(leased.dir);
    }

    fn use_dir(&mut self, ino: Ino) {
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        if dir.used == self.uses && self.uses > 0 {
            return;
        }
        self.used.remove(&dir.used);
        self.uses += 1;
        dir.used = self.uses;
        self.used.insert(self.uses, ino);
    }

    /// Takes in the target of a name.
    fn name(&mut self, dir: Ino, name: &[u8], to: Lead, at: u64) {
        if !self.holds(dir, at) {
            return self.leads_elsewhere(dir, name, at);
        }
        self.found(dir, name, to, at, None);
    }

    /// Takes in the target of a name under a lease that is held. A listing also has the cookie of the entry.
    fn found(&mut self, dir: Ino, name: &[u8], to: Lead, at: u64, cookie: Option<u64>) {
        let Some(dir) = self.dirs.get_mut(&dir) else { return };
        if to.is_some() {
            dir.named = dir.named.max(at);
            dir.end = None;
        }
        let now = Name { lead: to, at, is_ahead: false };
        match dir.names.get_mut(name) {
            Some(known) if known.at > at => {}
            Some(known) if known.lead == to => {
                known.at = at;
                dir.changed = dir.changed.max(at);
            }
            Some(known) => {
                *known = now;
                dir.changed(at);
            }
            None => {
                dir.names.insert(name.to_vec(), now);
                self.names += 1;
                match cookie {
                    // A name that a part of a listing does not have has come since.
                    Some(cookie) if !dir.parts.have(cookie) => dir.changed = dir.changed.max(at),
                    _ => dir.changed(at),
                }
            }
        }
    }

    /// Forgets what the name was known to lead to up to the log position `at`; answers up to there that are
    /// still on their way are refused.
    fn leads_elsewhere(&mut self, ino: Ino, name: &[u8], at: u64) {
        self.dir_floors.raise(ino, at);
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        if dir.names.get(name).is_some_and(|known| known.at > at) {
            return;
        }
        dir.complete = false;
        dir.listed = None;
        dir.end = None;
        dir.changed(at);
        self.names -= usize::from(dir.names.remove(name).is_some());
    }

    fn inode(&mut self, ino: Ino, at: u64, known: Option<(&Attr, Ino)>) {
        let stands = |(_, by): &(&Attr, Ino)| self.holds(*by, at) && self.floors.allows(ino, at);
        let Some((attr, by)) = known.filter(stands) else {
            return self.no_longer(ino, at);
        };
        let is_news = self.attrs.get(&ino).is_none_or(|known| known.attr != *attr);
        if is_news {
            self.may_have_moved(ino, at);
        }
        if attr.kind == FileType::Directory {
            self.no_older_rights(ino, at);
        }
        let now = || Known { attr: attr.clone(), by, at };
        match self.attrs.get_mut(&ino) {
            Some(known) if known.at > at => return,
            Some(known) if known.by == by => return *known = now(),
            _ => {}
        }
        self.forget_attr(ino);
        if let Some(dir) = self.dirs.get_mut(&by) {
            dir.covers.insert(ino);
            self.attrs.insert(ino, now());
        }
    }

    /// Forgets the attributes of an inode up to the log position `at`; answers up to there that are still on
    /// their way are refused.
    fn no_longer(&mut self, ino: Ino, at: u64) {
        self.floors.raise(ino, at);
        self.may_have_moved(ino, at);
        if self.attrs.get(&ino).is_some_and(|known| known.at <= at) {
            self.forget_attr(ino);
        }
        if self.rights.get(&ino).is_some_and(|known| known.at <= at) {
            self.forget_rights(ino);
        }
    }

    /// Takes in the rights of a directory: other attributes are from before the log position `at`, or may be.
    fn has_rights(&mut self, attr: &Attr, by: Ino, at: u64) {
        if !self.holds(by, at) || !self.floors.allows(attr.ino, at) {
            return self.no_longer(attr.ino, at);
        }
        self.no_older_rights(attr.ino, at);
        if self.attrs.get(&attr.ino).is_some_and(|known| known.at < at) {
            self.forget_attr(attr.ino);
        }
        self.may_have_moved(attr.ino, at);
        self.forget_rights(attr.ino);
        if let Some(dir) = self.dirs.get_mut(&by) {
            dir.rights_of.insert(attr.ino);
            self.rights.insert(attr.ino, Known { attr: attr.clone(), by, at });
        }
    }

    /// Refuses rights of a directory from before the log position `at`.
    fn no_older_rights(&mut self, ino: Ino, at: u64) {
        self.floors.raise(ino, at.saturating_sub(1));
        if self.rights.get(&ino).is_some_and(|known| known.at < at) {
            self.forget_rights(ino);
        }
    }

    fn forget_rights(&mut self, ino: Ino) {
        if let Some(known) = self.rights.remove(&ino)
            && let Some(dir) = self.dirs.get_mut(&known.by)
        {
            dir.rights_of.remove(&ino);
        }
    }

    /// Notes that a directory itself has changed at the log position `at`. A move would change its listing,
    /// which tells the parent.
    fn may_have_moved(&mut self, ino: Ino, at: u64) {
        if let Some(dir) = self.dirs.get_mut(&ino) {
            dir.changed(at);
        }
    }

    fn forget_attr(&mut self, ino: Ino) {
        if let Some(known) = self.attrs.remove(&ino)
            && let Some(dir) = self.dirs.get_mut(&known.by)
        {
            dir.covers.remove(&ino);
        }
    }

    fn forget_dir(&mut self, ino: Ino, what: Forgotten) {
        let Some(dir) = self.dirs.remove(&ino) else { return };
        self.used.remove(&dir.used);
        self.names -= dir.names.len();
        // Answers that are on their way may be older than the entries forgotten here.
        let newest = dir.names.values().map(|name| name.at);
        let covered = dir.covers.iter().filter_map(|ino| self.attrs.get(ino));
        let covered = covered.chain(dir.rights_of.iter().filter_map(|ino| self.rights.get(ino)));
        let newest = newest.chain(covered.map(|known| known.at));
        if let Some(at) = newest.max() {
            // Entries that are still true may be told again with the same position: in a file system without
            // changes all have one position.
            let at = if what == Forgotten::True { at.saturating_sub(1) } else { at };
            self.dir_floors.raise(ino, at);
        }
        for covered in dir.covers {
            self.attrs.remove(&covered);
        }
        for dir in dir.rights_of {
            self.rights.remove(&dir);
        }
    }

    fn shrink(&mut self) {
        while self.names + self.attrs.len() + self.rights.len() > FACTS_MAX {
            let Some((_, oldest)) = self.used.first_key_value() else { return };
            let oldest = *oldest;
            self.forget_dir(oldest, Forgotten::True);
        }
    }
}

#[cfg(test)]
mod tests;
