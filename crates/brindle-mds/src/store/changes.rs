//! The rows one operation changes, in the making: reads see them, the log gets them as one batch.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;

use brindle_kv::{Batch, Kv};
use brindle_types::{Attr, Fault, FileType, Ino, Result};
use bytes::Bytes;

use super::hot::Hot;
use super::row::{Form, FormatLevel};
use super::usage::{Delta, Kind};
use super::{Inode, Rows, inode, keys, row, usage};

/// A batch in the making over a store.
pub struct Changes<'a> {
    base: &'a Kv,
    hot: &'a Hot,
    rows: BTreeMap<Bytes, Option<Bytes>>,
    /// Inodes as the batch sees them, so that each is read and decoded once; others may be in `hot`.
    inodes: RefCell<BTreeMap<Ino, Option<Inode>>>,
    usage: BTreeMap<(Kind, u32), Delta>,
    frees_space: bool,
    /// The limits of users, groups and projects count.
    limited: bool,
    effects: Effects,
    /// Rows are written in forms up to this level.
    level: FormatLevel,
    /// Reason why a row cannot be written at this level.
    refusal: Option<Fault>,
}

/// Changes of the tree in a batch: leases cover them, and callers are told of them.
#[derive(Debug, Default)]
pub struct Effects {
    /// Entries, in the order in which they change.
    pub names: Vec<NameEffect>,
    /// Inodes, in the order in which they change.
    pub inodes: Vec<InodeEffect>,
}

/// A name leads elsewhere from now on.
#[derive(Debug)]
pub struct NameEffect {
    /// Directory.
    pub dir: Ino,
    /// Name.
    pub name: Vec<u8>,
    /// Target of the name; `None` for none.
    pub to: Option<(Ino, FileType)>,
}

/// An inode changes.
#[derive(Debug)]
pub struct InodeEffect {
    /// The inode.
    pub ino: Ino,
    /// The directory whose lease covered its attributes; `None` if it is new, or none did.
    pub was_covered_by: Option<Ino>,
    /// The directory whose lease covered the rights of a directory, if they change.
    pub rights_were_covered_by: Option<Ino>,
    /// Attributes of the inode, and the directory whose lease covers them from now on.
    pub now: Option<(Attr, Ino)>,
    /// The directory whose lease covers the rights of a directory from now on.
    pub rights_covered_by: Option<Ino>,
    /// Whether this batch makes the inode, a directory.
    pub is_new_dir: bool,
    /// Whether the inode is gone.
    pub is_gone: bool,
}

impl<'a> Changes<'a> {
    /// No changes yet.
    pub fn new(base: &'a Kv, hot: &'a Hot, level: FormatLevel) -> Changes<'a> {
        Changes {
            base,
            hot,
            rows: BTreeMap::new(),
            inodes: RefCell::default(),
            usage: BTreeMap::new(),
            frees_space: false,
            limited: false,
            effects: Effects::default(),
            level,
            refusal: None,
        }
    }

    /// Notes what the batch changes of the tree.
    pub fn effects_mut(&mut self) -> &mut Effects {
        &mut self.effects
    }

    /// Changes of the tree in the batch.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Takes the changes of the tree out, to keep them when the batch is made.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Sets a row.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.rows.insert(key.into(), Some(value.into()));
    }

    /// Sets a row to a value, in the newest form that the format level allows; how many bytes it has. A value that no such form can
    /// hold makes the batch fail.
    pub fn put_row<T: Form>(&mut self, key: impl Into<Bytes>, value: &T) -> usize {
        match row::encode(self.level, value) {
            Ok(bytes) => {
                let len = bytes.len();
                self.put(key, bytes);
                len
            }
            Err(fault) => {
                self.refuse(fault);
                0
            }
        }
    }

    /// Makes the batch fail.
    pub fn refuse(&mut self, fault: Fault) {
        self.refusal.get_or_insert(fault);
    }

    /// The format level that rows are written in.
    pub fn level(&self) -> FormatLevel {
        self.level
    }

    /// Removes a row.
    pub fn delete(&mut self, key: impl Into<Bytes>) {
        self.rows.insert(key.into(), None);
    }

    /// Sets what an inode is from now on, and gives what it was; the caller puts or deletes its row.
    pub(super) fn change_inode(&mut self, ino: Ino, now: Option<Inode>) -> Result<Option<Inode>> {
        let known = self.inodes.get_mut().insert(ino, now);
        let hot = || self.hot.get(ino).map_or_else(|| inode::decode(self, ino), |inode| Ok(Some(inode)));
        known.map_or_else(hot, Ok)
    }

    /// The inodes that the batch has seen or made.
    pub(super) fn take_inodes(&mut self) -> BTreeMap<Ino, Option<Inode>> {
        std::mem::take(self.inodes.get_mut())
    }

    /// Notes that the inode number is new: there is no row to look for.
    pub fn number_is_new(&self, ino: Ino) {
        self.inodes.borrow_mut().insert(ino, None);
    }

    /// The batch frees space: it is accepted even when the MDT is full.
    pub fn frees_space(&mut self) {
        self.frees_space = true;
    }

    /// Enforces the limits of users, groups and projects for the batch, unless root asks: a batch that takes one of them over its limit, or
    /// further over it, is refused.
    pub fn within_limits(&mut self, uid: u32) {
        self.limited |= uid != 0;
    }

    /// Whether limits count for the batch.
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// Changes of the usage of users, groups and projects.
    pub fn usage_changes(&self) -> impl Iterator<Item = ((Kind, u32), Delta)> {
        self.usage.iter().map(|(owner, delta)| (*owner, *delta))
    }

    /// Charges the difference of two states of an inode to its owners.
    pub fn charge(&mut self, old: Option<&Inode>, new: Option<&Inode>) {
        for (inode, sign) in [(old, -1), (new, 1)] {
            let Some(inode) = inode else { continue };
            for owner in inode.owners().each() {
                self.usage.entry(owner).or_default().add(Delta::of(inode, sign));
            }
        }
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.usage.values().all(|d| *d == Delta::default())
    }

    /// The batch, usage included.
    pub fn into_batch(mut self) -> Result<Batch> {
        for ((kind, id), delta) in std::mem::take(&mut self.usage) {
            if delta != Delta::default() {
                let used = usage::get(&self, (kind, id))?.apply(delta);
                let key = keys::usage(kind as u8, id);
                match used == usage::Usage::default() {
                    true => self.delete(key),
                    false => drop(self.put_row(key, &used)),
                }
            }
        }
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let mut batch = Batch::new();
        if self.frees_space {
            batch.frees_space();
        }
        for (key, value) in self.rows {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        Ok(batch)
    }
}

impl Rows for Changes<'_> {
    fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        if let Some(known) = self.inodes.borrow().get(&ino) {
            return Ok(known.clone());
        }
        if let Some(hot) = self.hot.get(ino) {
            return Ok(Some(hot));
        }
        let found = inode::decode(self, ino)?;
        self.inodes.borrow_mut().insert(ino, found.clone());
        Ok(found)
    }

    fn row(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.rows.get(key) {
            Some(changed) => Ok(changed.clone()),
            None => self.base.get(key),
        }
    }

    fn rows(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let changed = self.rows.range::<[u8], _>((start, Bound::Unbounded));
        let changed: Vec<_> = changed.take_while(|(key, _)| key.starts_with(prefix)).collect();
        if changed.is_empty() {
            return self.base.scan_prefix(prefix, after, limit);
        }
        // Enough of the base that `limit` rows are left when every change is a deletion.
        let base = self.base.scan_prefix(prefix, after, limit + changed.len())?;
        let mut merged: BTreeMap<Bytes, Bytes> = base.into_iter().collect();
        for (key, value) in changed {
            match value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        Ok(merged.into_iter().take(limit).collect())
    }
}
