//! Names on a simulated disk: what programs see, what is durable, and the changes in between.
//!
//! A change becomes durable when each directory that it touches was synced after it. At a power cut each unsynced
//! change is kept or dropped; where one is dropped, all later ones that touch the same name are dropped too. A
//! rename is one change: both its names survive together, unless the disk tears renames. A directory is renamed with all that is in it;
//! where that is lost, so are changes in the directory that were not durable before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use brindle_stdx::disk::parent;

use super::content::Style;
use super::{Fate, InodeId, Survival};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Dir,
    File(InodeId),
}

#[derive(Clone)]
enum Change {
    Set(Entry),
    Remove,
    /// The file moves here; the name it had goes.
    MoveFrom(String, Entry),
    /// The directory moves here, with all that is in it.
    MoveDirFrom(String),
}

#[derive(Clone)]
struct Unsynced {
    path: String,
    change: Change,
    /// Directories that have not been synced since.
    waits_for: BTreeSet<String>,
    /// Counts the changes of this name since the disk was made.
    ordinal: u64,
}

#[derive(Default)]
pub(super) struct Names {
    live: BTreeMap<String, Entry>,
    durable: BTreeMap<String, Entry>,
    unsynced: Vec<Unsynced>,
    ordinals: BTreeMap<String, u64>,
    /// The two names of a rename survive each by itself.
    tears_renames: bool,
}

impl Unsynced {
    fn names(&self) -> impl Iterator<Item = &String> {
        let other = match &self.change {
            Change::MoveFrom(from, _) | Change::MoveDirFrom(from) => Some(from),
            Change::Set(_) | Change::Remove => None,
        };
        std::iter::once(&self.path).chain(other)
    }

    fn apply(&self, map: &mut BTreeMap<String, Entry>) {
        match &self.change {
            Change::Set(entry) => drop(map.insert(self.path.clone(), *entry)),
            Change::Remove => drop(map.remove(&self.path)),
            Change::MoveFrom(from, entry) => {
                map.remove(from);
                map.insert(self.path.clone(), *entry);
            }
            Change::MoveDirFrom(from) => {
                let moved: Vec<String> = map.keys().filter(|name| is_within(name, from)).cloned().collect();
                for name in moved {
                    let entry = map.remove(&name);
                    map.extend(entry.map(|entry| (moved_to(&name, from, &self.path), entry)));
                }
            }
        }
    }

    /// Follows the directory that the change was made in.
    fn follow(&mut self, from: &str, to: &str) {
        self.path = moved_to(&self.path, from, to);
        if let Change::MoveFrom(other, _) | Change::MoveDirFrom(other) = &mut self.change {
            *other = moved_to(other, from, to);
        }
        self.waits_for = self.waits_for.iter().map(|dir| moved_to(dir, from, to)).collect();
    }
}

/// Whether a name is that of a directory, or below it.
fn is_within(name: &str, dir: &str) -> bool {
    name.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A name after a directory was moved.
fn moved_to(name: &str, from: &str, to: &str) -> String {
    match name.strip_prefix(from) {
        Some(rest) if is_within(name, from) => format!("{to}{rest}"),
        _ => name.to_owned(),
    }
}

fn error(kind: io::ErrorKind, path: &str) -> io::Error {
    io::Error::new(kind, format!("{path}: {kind}"))
}

/// Path without a slash at the end.
pub(super) fn clean(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { "/" } else { trimmed }
}

impl Names {
    pub fn new(tears_renames: bool) -> Names {
        Names { tears_renames, ..Names::default() }
    }

    pub fn get(&self, path: &str) -> io::Result<Entry> {
        match clean(path) {
            "/" => Ok(Entry::Dir),
            path => self.live.get(path).copied().ok_or_else(|| error(io::ErrorKind::NotFound, path)),
        }
    }

    pub fn live(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.live.iter()
    }

    pub fn live_inodes(&self) -> impl Iterator<Item = InodeId> {
        self.live.values().filter_map(file)
    }

    /// Inodes that have a name, or may have one after a power cut.
    pub fn reachable_inodes(&self) -> BTreeSet<InodeId> {
        let changes = self.unsynced.iter().filter_map(|u| match &u.change {
            Change::Set(entry) | Change::MoveFrom(_, entry) => file(entry),
            Change::Remove | Change::MoveDirFrom(_) => None,
        });
        self.live_inodes().chain(self.durable.values().filter_map(file)).chain(changes).collect()
    }

    fn parent_must_be_dir(&self, path: &str) -> io::Result<()> {
        match self.get(parent(path))? {
            Entry::Dir => Ok(()),
            Entry::File(_) => Err(error(io::ErrorKind::NotADirectory, path)),
        }
    }

    /// Gives a file a durable name, in directories that are made where they are missing.
    pub fn put(&mut self, path: &str, entry: Entry) {
        let mut dir = parent(path);
        while dir != "/" {
            self.live.insert(dir.to_owned(), Entry::Dir);
            self.durable.insert(dir.to_owned(), Entry::Dir);
            dir = parent(dir);
        }
        self.live.insert(path.to_owned(), entry);
        self.durable.insert(path.to_owned(), entry);
    }

    fn record(&mut self, path: &str, change: Change) {
        let mut waits_for = BTreeSet::from([parent(path).to_owned()]);
        if let Change::MoveFrom(from, _) | Change::MoveDirFrom(from) = &change {
            waits_for.insert(parent(from).to_owned());
        }
        let ordinal = self.ordinals.entry(path.to_owned()).or_default();
        *ordinal += 1;
        let unsynced = Unsynced { path: path.to_owned(), change, waits_for, ordinal: *ordinal };
        unsynced.apply(&mut self.live);
        self.unsynced.push(unsynced);
    }

    pub fn create(&mut self, path: &str, inode: InodeId) -> io::Result<()> {
        self.parent_must_be_dir(path)?;
        self.record(path, Change::Set(Entry::File(inode)));
        Ok(())
    }

    pub fn create_dir_all(&mut self, path: &str) -> io::Result<()> {
        let path = clean(path);
        match self.get(path) {
            Ok(Entry::Dir) => return Ok(()),
            Ok(Entry::File(_)) => return Err(error(io::ErrorKind::AlreadyExists, path)),
            Err(_) => self.create_dir_all(parent(path))?,
        }
        self.record(path, Change::Set(Entry::Dir));
        Ok(())
    }

    pub fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let entry = self.get(from)?;
        self.parent_must_be_dir(to)?;
        if entry == Entry::Dir {
            return self.rename_dir(clean(from), clean(to));
        }
        if self.get(to).is_ok_and(|e| e == Entry::Dir) {
            return Err(error(io::ErrorKind::IsADirectory, from));
        }
        if from != to && self.tears_renames {
            self.record(from, Change::Remove);
            self.record(to, Change::Set(entry));
        } else if from != to {
            self.record(to, Change::MoveFrom(from.to_owned(), entry));
        }
        Ok(())
    }

    fn rename_dir(&mut self, from: &str, to: &str) -> io::Result<()> {
        match self.get(to) {
            Ok(Entry::File(_)) => return Err(error(io::ErrorKind::NotADirectory, to)),
            Ok(Entry::Dir) if !self.list(to)?.is_empty() => {
                return Err(error(io::ErrorKind::DirectoryNotEmpty, to));
            }
            _ if from != to && is_within(to, from) => return Err(error(io::ErrorKind::InvalidInput, to)),
            Ok(Entry::Dir) | Err(_) => {}
        }
        if from == to {
            return Ok(());
        }
        let below = |u: &Unsynced| u.path != from && is_within(&u.path, from);
        let (mut inside, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unsynced).into_iter().partition(below);
        self.unsynced = others;
        self.record(to, Change::MoveDirFrom(from.to_owned()));
        inside.iter_mut().for_each(|u| u.follow(from, to));
        self.unsynced.extend(inside);
        Ok(())
    }

    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        match self.get(path)? {
            Entry::Dir => Err(error(io::ErrorKind::IsADirectory, path)),
            Entry::File(_) => {
                self.record(path, Change::Remove);
                Ok(())
            }
        }
    }

    pub fn remove_dir(&mut self, path: &str) -> io::Result<()> {
        let path = clean(path);
        if !matches!(self.get(path)?, Entry::Dir) {
            return Err(error(io::ErrorKind::NotADirectory, path));
        }
        if !self.list(path)?.is_empty() {
            return Err(error(io::ErrorKind::DirectoryNotEmpty, path));
        }
        self.record(path, Change::Remove);
        Ok(())
    }

    pub fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let path = clean(path);
        if self.get(path)? != Entry::Dir {
            return Err(error(io::ErrorKind::NotADirectory, path));
        }
        let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let below = self.live.range(prefix.clone()..).take_while(|(p, _)| p.starts_with(&prefix));
        let names = below.map(|(p, _)| &p[prefix.len()..]).filter(|name| !name.contains('/'));
        Ok(names.map(str::to_owned).collect())
    }

    /// Makes the changes in a directory durable, as far as those before them on the same names are.
    pub fn sync_dir(&mut self, path: &str) -> io::Result<()> {
        let path = clean(path);
        if self.get(path)? != Entry::Dir {
            return Err(error(io::ErrorKind::NotADirectory, path));
        }
        let mut blocked = BTreeSet::new();
        let durable = &mut self.durable;
        self.unsynced.retain_mut(|u| {
            u.waits_for.remove(path);
            let held = !u.waits_for.is_empty() || u.names().any(|name| blocked.contains(name));
            if held {
                blocked.extend(u.names().cloned());
            } else {
                u.apply(durable);
            }
            held
        });
        Ok(())
    }

    /// Chooses which unsynced changes survive.
    pub fn power_cut(&mut self, survival: Survival, fate: Fate) {
        let style = survival.of_names(fate);
        let mut blocked = BTreeSet::new();
        for u in std::mem::take(&mut self.unsynced) {
            let kept = match style {
                Style::Nothing => false,
                Style::Everything => true,
                Style::Any | Style::MostlyNewest => fate.choose(&u.path, u.ordinal, 2) == 0,
            };
            if kept && !u.names().any(|name| blocked.contains(name)) {
                u.apply(&mut self.durable);
            } else {
                blocked.extend(u.names().cloned());
            }
        }
        self.drop_orphans();
        self.live = self.durable.clone();
    }

    /// Names below a directory that did not survive are gone with it.
    fn drop_orphans(&mut self) {
        let all = self.durable.clone();
        self.durable.retain(|path, _| {
            let mut dir = parent(path);
            while dir != "/" {
                if all.get(dir) != Some(&Entry::Dir) {
                    return false;
                }
                dir = parent(dir);
            }
            true
        });
    }
}

fn file(entry: &Entry) -> Option<InodeId> {
    match entry {
        Entry::File(id) => Some(*id),
        Entry::Dir => None,
    }
}
