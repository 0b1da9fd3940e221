//! What this client knows of directories whose leases it holds: names, names that are not there, attributes.
//!
//! Filled from the news that every answer of the MDT carries ([`brindle_wire::news`]), emptied by recalls and whenever the
//! session may have been without its lease. Answers come in any order, so everything has its place in the MDT's log:
//! of two facts the one with the higher place counts, and what was told up to the place of a recall or of a change that
//! left nothing to know is refused ([`Floors`]).
//!
//! Invariants: what is known is what the MDT would answer, as long as the session's lease is held; before a change of a
//! directory's attributes is told to anybody, or given way to, the kernel has forgotten what it kept of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use brindle_types::layout::INLINE_MAX_BYTES;
use brindle_types::{Attr, FileType, Ino};
use brindle_wire::mds::readdir::{COOKIE_FIRST, DirEntry, ReaddirResp};
use brindle_wire::news::{Leased, News};
use parking_lot::{Mutex, RwLock};

use crate::cache::{KernelCache, NoCache};

/// Names and attributes that are remembered; some 250 bytes each. Beyond that directories are forgotten, those first
/// that were not looked at for the longest time.
const FACTS_MAX: usize = 1 << 18;
/// Entries of a directory that are listed ahead for each name that had to be asked for: what nobody needs costs a few
/// times as little as asking did, and a directory that is gone through in any order is known after a sixteenth of it.
const AHEAD_OF_EACH: u32 = 16;
/// Entries listed ahead at once.
const AHEAD_MIN: u32 = 128;
const AHEAD_MAX: u32 = 512;
/// Directories that are listed ahead at a time.
const AHEAD_DIRS_MAX: usize = 4;
/// Facts about one directory beyond which it is not listed further ahead: it would push out all others, then itself.
const AHEAD_FACTS_MAX: usize = FACTS_MAX / 2;
/// Floors are kept by remainder of the inode number, so that their memory is bounded; sharing one costs an answer that
/// is not remembered.
const FLOORS: usize = 4096;

/// Files that are looked at to find some to be opened ahead.
const LOOKED_AT_MAX: usize = 1024;

/// Entries of a directory whose listing is kept as well; some 60 bytes each.
const WHOLE_MAX: usize = 128;

/// Where a name leads: an inode, or nowhere.
pub(crate) type Lead = Option<(Ino, FileType)>;

/// Everything known.
pub(crate) struct Dirs {
    inner: Mutex<Inner>,
    /// Who may keep attributes of directories.
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
    /// Of attributes.
    floors: Floors,
    /// Of leases, and of what was told under them. Apart from the others, because every file that is made and open for writing
    /// raises a floor: 4096 of them would take along the directory that they are made in.
    dir_floors: Floors,
    /// Directories in order of their last use.
    used: BTreeMap<u64, Ino>,
    uses: u64,
    names: usize,
    /// Directories that are being listed ahead.
    ahead: BTreeSet<Ino>,
}

/// A directory whose lease is held.
#[derive(Default)]
struct Dir {
    names: HashMap<Vec<u8>, (Lead, u64)>,
    /// Inodes whose attributes its lease covers.
    covers: BTreeSet<Ino>,
    /// Names that are not known do not exist.
    complete: bool,
    /// How far a listing from the start has come.
    listed: Option<u64>,
    /// Where a listing has ended, if no name has come since.
    end: Option<u64>,
    /// Place of the newest name that leads somewhere.
    named: u64,
    /// Place of the newest name that was found to lead elsewhere than it was known to.
    changed: u64,
    /// All entries in order, without attributes, and the parent; of small directories that were listed at once.
    whole: Option<(Vec<DirEntry>, Ino)>,
    used: u64,
    /// Entries that may be listed ahead.
    credit: u32,
}

/// A part of a directory that is to be listed ahead of questions about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// What follows this cookie.
    pub after: u64,
    pub entries_max: u32,
}

struct Known {
    attr: Attr,
    by: Ino,
    at: u64,
}

/// What a directory that is forgotten was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forgotten {
    /// Right, but memory is scarce.
    True,
    /// Perhaps not right any more.
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
        let floor = &mut self.0[(ino.0 % FLOORS as u64) as usize];
        *floor = (*floor).max(at);
    }

    fn allows(&self, ino: Ino, at: u64) -> bool {
        at > self.0[(ino.0 % FLOORS as u64) as usize]
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
    pub fn told(&self, asked: u64, news: &News) {
        if news.is_empty() {
            return;
        }
        self.take_in(asked, news);
        let kernel = self.kernel.read().clone();
        news.inodes.iter().for_each(|inode| kernel.forget_attr(inode.ino));
    }

    fn take_in(&self, asked: u64, news: &News) {
        let mut inner = self.inner.lock();
        if inner.generation != asked {
            news.inodes.iter().for_each(|inode| inner.no_longer(inode.ino, inode.at));
            news.names.iter().for_each(|name| inner.leads_elsewhere(name.dir, &name.name, name.at));
            return;
        }
        news.leased.iter().for_each(|leased| inner.lease(leased));
        for inode in &news.inodes {
            inner.inode(inode.ino, inode.at, inode.known.as_ref().map(|known| (&known.attr, known.by)));
        }
        for name in &news.names {
            inner.name(name.dir, &name.name, name.to, name.at);
        }
        inner.shrink();
    }

    /// Takes in a part of a listing that was told with the lease of `dir`: what follows the cookie `after`.
    pub fn listed(&self, asked: u64, leased: &Leased, after: u64, answer: &ReaddirResp) {
        let (entries, end) = (&answer.entries, answer.end);
        let mut inner = self.inner.lock();
        if inner.generation != asked || !inner.holds(leased.dir, leased.at) {
            return;
        }
        let (dir, at) = (leased.dir, leased.at);
        for entry in entries {
            inner.name(dir, &entry.name, Some((entry.ino, entry.kind)), at);
            if let Some(attr) = &entry.attr {
                inner.inode(entry.ino, at, Some((attr, dir)));
            }
        }
        if let Some(known) = inner.dirs.get_mut(&dir) {
            let follows = after < COOKIE_FIRST || known.listed == Some(after);
            if follows {
                known.listed = entries.last().map(|entry| entry.cookie).or(known.listed).or(Some(after));
                known.complete |= end;
                // An answer that a name of our own has overtaken does not know what lies behind.
                known.end = known.listed.filter(|_| end && known.named <= at);
            }
            let is_whole = after < COOKIE_FIRST && end && entries.len() <= WHOLE_MAX;
            if is_whole && known.changed <= at {
                let bare = |entry: &DirEntry| DirEntry { attr: None, ..entry.clone() };
                known.whole = Some((entries.iter().map(bare).collect(), answer.parent));
            }
        }
        inner.shrink();
    }

    /// Leases are taken back: what was told under them up to the place `at` is void.
    pub fn recalled(&self, dirs: &[Ino], at: u64) {
        if brindle_stdx::planted("client_keeps_recalled_leases") {
            return;
        }
        let mut inner = self.inner.lock();
        for dir in dirs {
            inner.dir_floors.raise(*dir, at);
            inner.forget_dir(*dir, Forgotten::Void);
        }
        drop(inner);
        let kernel = self.kernel.read().clone();
        dirs.iter().for_each(|dir| kernel.forget_attr(*dir));
        // Those that the leases cover may be more than can be named.
        kernel.forget_files();
    }

    /// Forgets everything, and what is being told at this moment.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        *inner = Inner { generation: inner.generation + 1, ..Inner::default() };
        drop(inner);
        let kernel = self.kernel.read().clone();
        kernel.forget_attrs();
    }

    /// Where a name leads, if that is known.
    pub fn lead(&self, dir: Ino, name: &[u8]) -> Option<Lead> {
        let mut inner = self.inner.lock();
        inner.use_dir(dir);
        let known = inner.dirs.get(&dir)?;
        match known.names.get(name) {
            Some((lead, _)) => Some(*lead),
            None => known.complete.then_some(None),
        }
    }

    /// The MDT was asked where a name in `dir` leads, and it leads somewhere. Whoever looks at many names of a directory will
    /// look at more: what is to be listed ahead of that, until [`Dirs::is_listed_ahead`].
    pub fn ahead(&self, dir: Ino) -> Option<Ahead> {
        let mut inner = self.inner.lock();
        let may = inner.ahead.len() < AHEAD_DIRS_MAX && !inner.ahead.contains(&dir);
        let known = inner.dirs.get_mut(&dir).filter(|known| !known.complete)?;
        let facts = known.names.len() + known.covers.len() + 2 * AHEAD_MAX as usize;
        known.credit = known.credit.saturating_add(AHEAD_OF_EACH);
        if !may || known.credit < AHEAD_MIN || facts > AHEAD_FACTS_MAX {
            return None;
        }
        let ahead =
            Ahead { after: known.listed.unwrap_or_default(), entries_max: known.credit.min(AHEAD_MAX) };
        known.credit -= ahead.entries_max;
        inner.ahead.insert(dir);
        Some(ahead)
    }

    /// The listing that [`Dirs::ahead`] began is over.
    pub fn is_listed_ahead(&self, dir: Ino) {
        self.inner.lock().ahead.remove(&dir);
    }

    /// What follows the cookie `after` in a listing of `dir`, at most `entries_max`, if all of it is known.
    pub fn listing(&self, dir: Ino, after: u64, entries_max: usize) -> Option<ReaddirResp> {
        let inner = self.inner.lock();
        let (all, parent) = inner.dirs.get(&dir)?.whole.as_ref()?;
        let rest = &all[all.partition_point(|entry| entry.cookie <= after)..];
        let attr = |entry: &DirEntry| inner.attrs.get(&entry.ino).map(|known| known.attr.clone());
        let entries = rest.iter().take(entries_max);
        let entries = entries.map(|entry| DirEntry { attr: attr(entry), ..entry.clone() }).collect();
        Some(ReaddirResp { entries, end: rest.len() <= entries_max, parent: *parent })
    }

    /// Whether nothing follows the cookie `after` in a listing of `dir`.
    pub fn ends_at(&self, dir: Ino, after: u64) -> bool {
        let inner = self.inner.lock();
        inner.dirs.get(&dir).is_some_and(|known| known.complete && known.end == Some(after))
    }

    /// The directory whose lease covers the attributes of an inode, if they are known.
    pub fn covered_by(&self, ino: Ino) -> Option<Ino> {
        self.inner.lock().attrs.get(&ino).map(|known| known.by)
    }

    /// Up to `count` regular files with few bytes that the lease of `dir` covers: those `wanted` of the next ones behind `ino` in
    /// order of number, which is that in which they were made, from the start again at the end.
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
        let before = known.covers.range(..ino);
        let looked_at = behind.chain(before).take(LOOKED_AT_MAX);
        looked_at.filter(is_small).filter(|ino| wanted(**ino)).take(count).copied().collect()
    }

    /// Attributes of an inode, if they are known.
    pub fn attr(&self, ino: Ino) -> Option<Attr> {
        self.inner.lock().attrs.get(&ino).map(|known| known.attr.clone())
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
        self.dirs.entry(leased.dir).or_default().complete |= leased.is_new;
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

    fn name(&mut self, dir: Ino, name: &[u8], to: Lead, at: u64) {
        if !self.holds(dir, at) {
            return self.leads_elsewhere(dir, name, at);
        }
        let Some(dir) = self.dirs.get_mut(&dir) else { return };
        if to.is_some() {
            dir.named = dir.named.max(at);
            dir.end = None;
        }
        match dir.names.get_mut(name) {
            Some((_, known_at)) if *known_at > at => return,
            Some((lead, known_at)) if *lead == to => {
                *known_at = at;
                dir.changed = dir.changed.max(at);
                return;
            }
            Some(known) => *known = (to, at),
            None => {
                dir.names.insert(name.to_vec(), (to, at));
                self.names += 1;
            }
        }
        dir.changed = dir.changed.max(at);
        dir.whole = None;
    }

    /// What is known of a name up to the place `at` is void, and so is what is being told of it.
    fn leads_elsewhere(&mut self, ino: Ino, name: &[u8], at: u64) {
        self.dir_floors.raise(ino, at);
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        if dir.names.get(name).is_some_and(|(_, known)| *known > at) {
            return;
        }
        dir.complete = false;
        dir.listed = None;
        dir.end = None;
        dir.changed = dir.changed.max(at);
        dir.whole = None;
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

    /// What is known of an inode up to the place `at` is void, and so is what is being told of it.
    fn no_longer(&mut self, ino: Ino, at: u64) {
        self.floors.raise(ino, at);
        self.may_have_moved(ino, at);
        if self.attrs.get(&ino).is_some_and(|known| known.at <= at) {
            self.forget_attr(ino);
        }
    }

    /// Something of a directory itself has changed at the place `at`: its listing tells a parent.
    fn may_have_moved(&mut self, ino: Ino, at: u64) {
        if let Some(dir) = self.dirs.get_mut(&ino) {
            dir.changed = dir.changed.max(at);
            dir.whole = None;
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
        // What is on its way about any of this may be older than what is forgotten here.
        let newest = dir.names.values().map(|(_, at)| *at);
        let newest =
            newest.chain(dir.covers.iter().filter_map(|ino| self.attrs.get(ino)).map(|known| known.at));
        if let Some(at) = newest.max() {
            // Of what is true, the same may be told again: in a file system that nobody changes everything has one place.
            let at = if what == Forgotten::True { at.saturating_sub(1) } else { at };
            self.dir_floors.raise(ino, at);
        }
        for covered in dir.covers {
            self.attrs.remove(&covered);
        }
    }

    fn shrink(&mut self) {
        while self.names + self.attrs.len() > FACTS_MAX {
            let Some((_, oldest)) = self.used.first_key_value() else { return };
            let oldest = *oldest;
            self.forget_dir(oldest, Forgotten::True);
        }
    }
}

#[cfg(test)]
mod tests {
    use brindle_wire::news::{Covered, InodeNews, NameNews};

    use super::*;

    const D: Ino = Ino(10);
    const E: Ino = Ino(11);
    const F: Ino = Ino(20);

    fn attr(ino: Ino, size_bytes: u64) -> Attr {
        let kind = if ino == F { FileType::Regular } else { FileType::Directory };
        let time = brindle_types::attr::Time::default();
        Attr {
            ino,
            kind,
            perm: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes,
            allocated_bytes: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            has_acl: false,
            has_xattr: false,
            data_version: None,
            blksize_bytes: 4096,
        }
    }

    fn leased(dir: Ino, at: u64, is_new: bool) -> News {
        News { leased: vec![Leased { dir, at, is_new }], ..News::default() }
    }

    fn name(dir: Ino, name: &str, to: Lead, at: u64) -> News {
        News { names: vec![NameNews { dir, name: name.into(), to, at }], ..News::default() }
    }

    fn inode(ino: Ino, size_bytes: u64, by: Ino, at: u64) -> News {
        let known = Some(Covered { attr: attr(ino, size_bytes), by });
        News { inodes: vec![InodeNews { ino, at, known }], ..News::default() }
    }

    fn gone(ino: Ino, at: u64) -> News {
        News { inodes: vec![InodeNews { ino, at, known: None }], ..News::default() }
    }

    fn listing(entries: &[DirEntry], end: bool) -> ReaddirResp {
        ReaddirResp { entries: entries.to_vec(), end, parent: Ino(2) }
    }

    const FILE: Lead = Some((F, FileType::Regular));

    /// Writes down what it is to forget.
    #[derive(Default)]
    struct Kernel(Mutex<Vec<Ino>>);

    impl KernelCache for Kernel {
        fn invalidate(&self, _: Ino, _: u64, _: u64) -> brindle_stdx::BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }

        fn forget_attr(&self, ino: Ino) {
            self.0.lock().push(ino);
        }

        fn forget_files(&self) {
            self.0.lock().push(Ino(1));
        }

        fn forget_attrs(&self) {
            self.0.lock().push(Ino(0));
        }
    }

    #[test]
    fn the_kernel_forgets_what_changes_and_what_is_taken_back() {
        let (dirs, kernel) = (Dirs::default(), Arc::new(Kernel::default()));
        dirs.set_kernel(kernel.clone());
        let forgotten = || std::mem::take(&mut *kernel.0.lock());
        dirs.told(0, &leased(D, 5, true));
        assert_eq!(forgotten(), []);
        dirs.told(0, &inode(D, 1, D, 6));
        assert_eq!(forgotten(), [D], "it has changed it itself");
        dirs.recalled(&[D, E], 9);
        assert_eq!(forgotten(), [D, E, Ino(1)], "also what is not known any more, and all files");
        dirs.clear();
        assert_eq!(forgotten(), [Ino(0)]);
        dirs.told(0, &gone(D, 10));
        assert_eq!(forgotten(), [D], "asked for before everything was forgotten");
    }

    fn size(dirs: &Dirs) -> Option<u64> {
        dirs.attr(F).map(|attr| attr.size_bytes)
    }

    #[test]
    fn the_newest_fact_counts_whatever_the_order_of_answers() {
        let dirs = Dirs::default();
        dirs.told(0, &name(D, "f", FILE, 4));
        assert_eq!(dirs.lead(D, b"f"), None, "no lease, no knowledge");
        dirs.told(0, &leased(D, 5, false));
        dirs.told(0, &name(D, "f", None, 7));
        dirs.told(0, &name(D, "f", FILE, 6));
        assert_eq!((dirs.lead(D, b"f"), dirs.lead(D, b"g")), (Some(None), None));
        dirs.told(0, &inode(F, 8, D, 8));
        dirs.told(0, &inode(F, 6, D, 6));
        assert_eq!(size(&dirs), Some(8));
        dirs.told(0, &gone(F, 10));
        dirs.told(0, &inode(F, 9, D, 9));
        assert_eq!(size(&dirs), None, "asked before it changed");
        dirs.told(0, &inode(F, 11, D, 11));
        assert_eq!(size(&dirs), Some(11));
    }

    #[test]
    fn a_recall_voids_what_is_on_its_way() {
        let dirs = Dirs::default();
        dirs.told(0, &leased(D, 5, true));
        dirs.told(0, &inode(F, 5, D, 5));
        assert_eq!((dirs.lead(D, b"x"), size(&dirs)), (Some(None), Some(5)), "a new directory is empty");
        dirs.recalled(&[D], 9);
        dirs.told(0, &leased(D, 9, false));
        dirs.told(0, &name(D, "f", FILE, 9));
        assert_eq!((dirs.lead(D, b"f"), size(&dirs)), (None, None));
        dirs.told(0, &leased(D, 10, false));
        dirs.told(0, &name(D, "f", FILE, 9));
        dirs.told(0, &inode(F, 9, D, 9));
        assert_eq!((dirs.lead(D, b"f"), size(&dirs)), (None, None), "told under the lease before");
    }

    #[test]
    fn changes_that_were_asked_for_before_everything_was_forgotten_count() {
        let dirs = Dirs::default();
        let asked = dirs.asked();
        dirs.clear();
        dirs.told(asked, &leased(E, 20, true));
        assert_eq!(dirs.lead(E, b"x"), None, "no lease comes from before");
        dirs.told(1, &leased(D, 4, true));
        dirs.told(1, &name(D, "f", None, 5));
        dirs.told(1, &inode(F, 5, D, 5));
        dirs.told(asked, &name(D, "f", FILE, 6));
        dirs.told(asked, &inode(F, 6, D, 6));
        assert_eq!((dirs.lead(D, b"f"), dirs.lead(D, b"g"), size(&dirs)), (None, None, None));
    }

    #[test]
    fn a_fact_that_is_not_kept_voids_older_ones() {
        let dirs = Dirs::default();
        let twin = Ino(D.0 + FLOORS as u64);
        dirs.told(0, &leased(D, 5, true));
        dirs.told(0, &inode(F, 5, D, 5));
        dirs.told(0, &name(twin, "x", FILE, 9));
        dirs.told(0, &name(D, "f", FILE, 7));
        dirs.told(0, &inode(F, 7, D, 7));
        assert_eq!((dirs.lead(D, b"f"), size(&dirs)), (None, None), "the floor is its twin's");
    }

    /// Otherwise every create behind the 4096th of a client would cost a LOOKUP at the MDT.
    #[test]
    fn a_new_directory_stays_complete_however_many_open_files_are_made_in_it() {
        let dirs = Dirs::default();
        dirs.told(0, &leased(D, 1, true));
        for n in 1..=2 * FLOORS as u64 {
            // As an answer to CREATE tells it: the file, which is open for writing, its directory and its name.
            let (at, file) = (1 + n, Ino(1000 + n));
            let told = [gone(file, at), inode(D, n, D, at)];
            let inodes = told.into_iter().flat_map(|news| news.inodes).collect();
            let names = name(D, &format!("f{n}"), Some((file, FileType::Regular)), at).names;
            dirs.told(0, &News { inodes, names, ..News::default() });
            assert_eq!(dirs.lead(D, b"another"), Some(None), "after {n} files");
        }
    }

    #[test]
    fn a_listing_to_the_end_knows_every_name() {
        let dirs = Dirs::default();
        let lease = Leased { dir: D, at: 5, is_new: false };
        dirs.told(0, &leased(D, 5, false));
        let entry = |name: &str, cookie| DirEntry {
            name: name.into(),
            ino: F,
            kind: FileType::Regular,
            cookie,
            attr: Some(attr(F, 3)),
        };
        dirs.listed(0, &lease, 40, &listing(&[entry("c", 50)], true));
        assert_eq!(dirs.lead(D, b"x"), None, "the end of a listing that was not followed from its start");
        dirs.listed(0, &lease, 0, &listing(&[entry("a", 30), entry("b", 40)], false));
        assert_eq!((dirs.lead(D, b"a"), dirs.lead(D, b"x")), (Some(FILE), None));
        dirs.told(0, &name(D, "new", FILE, 6));
        dirs.listed(0, &lease, 40, &listing(&[entry("c", 50)], true));
        assert_eq!(
            (dirs.lead(D, b"x"), dirs.lead(D, b"new"), size(&dirs)),
            (Some(None), Some(FILE), Some(3))
        );
        assert!(!dirs.ends_at(D, 50), "the new name may lie behind");
        dirs.listed(0, &Leased { at: 6, ..lease }, 0, &listing(&[entry("b", 40), entry("c", 50)], true));
        assert!(dirs.ends_at(D, 50) && !dirs.ends_at(D, 40));
        dirs.told(0, &name(D, "y", None, 7));
        assert!(dirs.ends_at(D, 50));
        dirs.told(0, &name(D, "newer", FILE, 8));
        assert!(!dirs.ends_at(D, 50), "it may lie behind");
        dirs.listed(0, &Leased { at: 8, ..lease }, 0, &listing(&[entry("b", 40), entry("c", 50)], true));
        assert!(dirs.ends_at(D, 50));
        // A listing that was answered before a name was made, and arrives after it.
        dirs.told(0, &name(D, "overtaking", FILE, 9));
        dirs.listed(0, &Leased { at: 8, ..lease }, 0, &listing(&[entry("b", 40), entry("c", 50)], true));
        assert!(!dirs.ends_at(D, 50), "the name may lie behind");
        dirs.listed(0, &Leased { at: 9, ..lease }, 0, &listing(&[entry("b", 40), entry("c", 50)], true));
        assert!(dirs.ends_at(D, 50));
        dirs.recalled(&[D], 9);
        assert!(!dirs.ends_at(D, 50));
    }

    #[test]
    fn a_small_directory_is_listed_again_from_memory_until_a_name_changes() {
        let dirs = Dirs::default();
        dirs.told(0, &leased(D, 5, false));
        let entry = |name: &str, cookie| {
            let (name, ino, kind) = (name.into(), F, FileType::Regular);
            DirEntry { name, ino, kind, cookie, attr: Some(attr(F, 3)) }
        };
        let all = [entry("a", 30), entry("b", 40)];
        let at = |at| Leased { dir: D, at, is_new: false };
        let names = |after, max| {
            let found = dirs.listing(D, after, max)?;
            let names: Vec<_> =
                found.entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
            Some((names.concat(), found.end))
        };
        dirs.listed(0, &at(5), 0, &listing(&all, false));
        assert_eq!(names(0, 9), None, "that is not all");
        dirs.listed(0, &at(5), 0, &listing(&all, true));
        assert_eq!(names(0, 9), Some(("ab".into(), true)));
        assert_eq!(dirs.listing(D, 0, 9).expect("known"), listing(&all, true), "with attributes and parent");
        assert_eq!((names(0, 1), names(30, 1)), (Some(("a".into(), false)), Some(("b".into(), true))));
        assert_eq!(names(40, 1), Some((String::new(), true)));
        dirs.told(0, &name(D, "a", FILE, 6));
        assert!(names(0, 9).is_some(), "that was known");
        dirs.told(0, &name(D, "a", None, 7));
        assert_eq!(names(0, 9), None);
        dirs.listed(0, &at(6), 0, &listing(&all, true));
        assert_eq!(names(0, 9), None, "answered before the name was removed");
        dirs.listed(0, &at(7), 0, &listing(&all[1..], true));
        assert_eq!(names(0, 9), Some(("b".into(), true)));
        dirs.told(0, &name(D, "new", FILE, 8));
        assert_eq!(names(0, 9), None);
        dirs.listed(0, &at(8), 0, &listing(&all, true));
        dirs.told(0, &inode(D, 2, D, 9));
        assert_eq!(names(0, 9), None, "it may have another parent");
        dirs.listed(0, &at(8), 0, &listing(&all, true));
        assert_eq!(names(0, 9), None, "answered before it was moved");
        dirs.listed(0, &at(9), 0, &listing(&all, true));
        dirs.told(0, &inode(D, 2, D, 10));
        assert!(names(0, 9).is_some(), "nothing has changed");
        dirs.recalled(&[D], 9);
        assert_eq!(names(0, 9), None);
    }

    #[test]
    fn what_was_forgotten_for_want_of_memory_is_remembered_when_it_is_told_again() {
        let dirs = Dirs::default();
        let dir = |n: u64| Ino(100_000 + n);
        // Nobody changes anything: every answer is of the same place.
        let tell = |n: u64| {
            dirs.told(0, &leased(dir(n), 7, false));
            for name_of in 0..1000 {
                dirs.told(0, &name(dir(n), &name_of.to_string(), FILE, 7));
            }
        };
        let many = FACTS_MAX as u64 / 1000 + 10;
        (0..many).for_each(tell);
        assert_eq!(dirs.lead(dir(0), b"5"), None, "it was forgotten");
        tell(0);
        assert_eq!(dirs.lead(dir(0), b"5"), Some(FILE));
        // What is older is refused all the same.
        dirs.told(0, &leased(dir(1), 6, false));
        dirs.told(0, &name(dir(1), "5", None, 6));
        assert_eq!(dirs.lead(dir(1), b"5"), None);
    }

    #[test]
    fn a_directory_is_listed_ahead_as_far_as_it_is_asked_about() {
        let dirs = Dirs::default();
        let lease = Leased { dir: D, at: 5, is_new: false };
        let asked = |times: u32| (0..times).filter_map(|_| dirs.ahead(D)).collect::<Vec<_>>();
        assert_eq!(asked(1000), [], "nothing can be known of it");
        dirs.told(0, &leased(D, 5, false));
        let few = AHEAD_MIN / AHEAD_OF_EACH;
        assert_eq!(asked(few - 1), []);
        assert_eq!(asked(1), [Ahead { after: 0, entries_max: AHEAD_MIN }]);
        assert_eq!(asked(100), [], "it is being listed");
        let entry = |cookie: u64| DirEntry {
            name: cookie.to_string().into(),
            ino: Ino(cookie),
            kind: FileType::Regular,
            cookie,
            attr: None,
        };
        dirs.listed(0, &lease, 0, &listing(&[entry(30), entry(40)], false));
        dirs.is_listed_ahead(D);
        assert_eq!(
            asked(1),
            [Ahead { after: 40, entries_max: AHEAD_MAX }],
            "what was asked meanwhile counts"
        );
        dirs.listed(0, &lease, 40, &listing(&[entry(50)], true));
        dirs.is_listed_ahead(D);
        assert_eq!(asked(1000), [], "nothing is left to be listed");
        // One directory does not push out all others.
        dirs.told(0, &leased(E, 5, false));
        let many: Vec<DirEntry> = (16..AHEAD_FACTS_MAX as u64).map(entry).collect();
        dirs.listed(0, &Leased { dir: E, ..lease }, 0, &listing(&many, false));
        assert_eq!((0..1000).filter_map(|_| dirs.ahead(E)).count(), 0);
    }

    #[test]
    fn memory_is_bounded_and_what_was_not_used_goes_first() {
        let dirs = Dirs::default();
        dirs.told(0, &leased(D, 1, false));
        dirs.told(0, &leased(E, 1, false));
        dirs.told(0, &name(D, "f", FILE, 2));
        for n in 0..FACTS_MAX as u64 - 1 {
            dirs.told(0, &name(E, &n.to_string(), None, n + 2));
        }
        assert_eq!(dirs.lead(D, b"f"), Some(FILE), "and it is used");
        dirs.told(0, &name(D, "g", FILE, 2));
        assert_eq!((dirs.lead(E, b"0"), dirs.lead(D, b"f")), (None, Some(FILE)));
        let inner = dirs.inner.lock();
        assert_eq!((inner.names, inner.dirs.len(), inner.used.len()), (2, 1, 1));
    }
}
