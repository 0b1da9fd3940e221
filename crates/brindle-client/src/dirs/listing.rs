//! Listings: their entries for the cache, and listing ahead of lookups.

use brindle_types::Ino;
use brindle_wire::cache_updates::Leased;
use brindle_wire::mds::readdir::{COOKIE_FIRST, DirEntry, ReaddirResp};
use tokio::sync::oneshot;

use super::credit::{AHEAD_MAX, Ahead};
use super::parts::{Behind, Part, Parts};
use super::{Dir, Dirs, FACTS_MAX, Inner, Lead};

/// Directories that are listed ahead at a time.
const AHEAD_DIRS_MAX: usize = 4;
/// Facts about one directory beyond which it is not listed further ahead: it would push out all others, then itself.
pub(super) const AHEAD_FACTS_MAX: usize = FACTS_MAX / 2;
/// Entries that are taken in before others may look at what is known.
const AT_ONCE: usize = 64;

/// A part of a listing that is on its way before anybody has asked for it.
pub(super) enum Coming {
    /// Entries for lookups of names.
    Names,
    /// Entries behind the cookie `after` for a listing, and the callers that wait for them.
    Part { after: u64, waiting: Vec<oneshot::Sender<()>> },
}

/// Cause of a request for a part of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// A caller that waits for the entries, or lookups of names one after the other.
    Asked,
    /// Read-ahead: the entries are kept until a caller asks.
    ReadAhead,
}

impl Dirs {
    /// Takes in a part of a listing that was told with the lease of `dir`: what follows the cookie `after`. Whether nothing of the
    /// directory has changed since the part before.
    pub fn listed(&self, asked: u64, leased: &Leased, after: u64, answer: &ReaddirResp, how: Listed) -> bool {
        let (entries, end) = (&answer.entries, answer.end);
        let (dir, at) = (leased.dir, leased.at);
        let keeps = how == Listed::ReadAhead || Parts::is_small(after, answer);
        let part = keeps.then(|| Part::told(after, answer));
        let mut born = None;
        let mut stands = |inner: &Inner| {
            let known = inner.dirs.get(&dir).filter(|_| inner.generation == asked && inner.holds(dir, at));
            // A later lease does not cover what was taken in under this one.
            known.is_some_and(|known| *born.get_or_insert(known.born) == known.born)
        };
        for entries in entries.chunks(AT_ONCE) {
            let mut inner = self.inner.lock();
            if !stands(&inner) {
                return false;
            }
            for entry in entries {
                let to = Some((entry.ino, entry.kind));
                inner.found(dir, &entry.name, to, at, Some(entry.cookie));
                if let Some(attr) = &entry.attr {
                    inner.inode(entry.ino, at, Some((attr, dir)));
                }
            }
        }
        let mut inner = self.inner.lock();
        if !stands(&inner) {
            return false;
        }
        let Some(known) = inner.dirs.get_mut(&dir) else { return false };
        let follows = after < COOKIE_FIRST || known.listed == Some(after);
        if follows {
            known.listed = entries.last().map(|entry| entry.cookie).or(known.listed).or(Some(after));
            known.complete |= end;
            // An answer that a name of our own has overtaken does not know what lies behind.
            known.end = known.listed.filter(|_| end && known.named <= at);
        }
        if let Some(part) = part
            && known.changed <= at
        {
            known.parts.keep(part);
        }
        let was_quiet = std::mem::replace(&mut known.is_quiet, true);
        inner.shrink();
        was_quiet
    }

    /// Target of a name, if it is known, for a caller that looks up names one after the other. Also returns
    /// the part of the directory to list ahead, until [`Dirs::listed_ahead`].
    pub fn walk(&self, dir: Ino, name: &[u8]) -> (Option<Lead>, Option<Ahead>) {
        let mut inner = self.inner.lock();
        inner.use_dir(dir);
        let Some(known) = inner.dirs.get_mut(&dir) else { return (None, None) };
        let Some(name) = known.names.get_mut(name) else { return (known.complete.then_some(None), None) };
        let lead = Some(name.lead);
        if !std::mem::take(&mut name.is_ahead) {
            return (lead, None);
        }
        known.credit.used();
        (lead, inner.list_ahead(dir))
    }

    /// The MDT was asked where a name in `dir` leads, and it leads somewhere. A program that looks at many names of a directory will
    /// look at more. Returns the part that is to be listed ahead, until [`Dirs::listed_ahead`].
    pub fn ahead(&self, dir: Ino) -> Option<Ahead> {
        let mut inner = self.inner.lock();
        let known = inner.dirs.get_mut(&dir)?;
        known.credit.asked();
        inner.list_ahead(dir)
    }

    /// A listing that was begun before anybody has asked for it is over, and has brought these entries for whoever looks at names.
    pub fn listed_ahead(&self, dir: Ino, entries: &[DirEntry]) {
        // Dropping the entry wakes the callers that wait for it.
        let over = self.inner.lock().ahead.remove(&dir);
        drop(over);
        for entries in entries.chunks(AT_ONCE) {
            let mut inner = self.inner.lock();
            let Some(known) = inner.dirs.get_mut(&dir) else { return };
            for entry in entries {
                known.names.get_mut(&entry.name[..]).into_iter().for_each(|name| name.is_ahead = true);
            }
        }
    }

    /// Entries behind the cookie `after` in a listing of `dir`, at most `entries_max`, if they are known.
    /// Also returns the cookie behind which it is worth reading ahead.
    pub fn listing(&self, dir: Ino, after: u64, entries_max: usize) -> Option<Behind> {
        self.inner.lock().dirs.get_mut(&dir)?.parts.behind(after, entries_max)
    }

    /// Whether nothing follows the cookie `after` in a listing of `dir`.
    pub fn ends_at(&self, dir: Ino, after: u64) -> bool {
        let inner = self.inner.lock();
        inner.dirs.get(&dir).is_some_and(|known| known.complete && known.end == Some(after))
    }

    /// Whether what follows the cookie `after` in `dir` is to be read ahead for somebody who lists it, until [`Dirs::listed_ahead`].
    pub fn begin_reading_on(&self, dir: Ino, after: u64) -> bool {
        let mut inner = self.inner.lock();
        let may = inner.may_list_ahead(dir) && inner.dirs.get(&dir).is_some_and(Dir::may_know_more);
        if may {
            inner.ahead.insert(dir, Coming::Part { after, waiting: Vec::new() });
        }
        may
    }

    /// Ends when what follows the cookie `cookie` in `dir` has come, or will not come, if it is on its way.
    pub fn coming(&self, dir: Ino, cookie: u64) -> Option<oneshot::Receiver<()>> {
        match self.inner.lock().ahead.get_mut(&dir)? {
            Coming::Part { after, waiting } if *after == cookie => {
                let (tell, told) = oneshot::channel();
                waiting.push(tell);
                Some(told)
            }
            _ => None,
        }
    }
}

impl Dir {
    /// Whether another part may be listed ahead without pushing everything else out.
    fn may_know_more(&self) -> bool {
        self.names.len() + self.covers.len() + 2 * (AHEAD_MAX as usize) <= AHEAD_FACTS_MAX
    }
}

impl Inner {
    /// The part to list ahead in a directory whose lease is held.
    fn list_ahead(&mut self, dir: Ino) -> Option<Ahead> {
        let may = self.may_list_ahead(dir);
        let known =
            self.dirs.get_mut(&dir).filter(|known| may && !known.complete && known.may_know_more())?;
        let ahead = known.credit.spend(known.listed.unwrap_or_default())?;
        self.ahead.insert(dir, Coming::Names);
        Some(ahead)
    }

    fn may_list_ahead(&self, dir: Ino) -> bool {
        self.ahead.len() < AHEAD_DIRS_MAX && !self.ahead.contains_key(&dir)
    }
}
