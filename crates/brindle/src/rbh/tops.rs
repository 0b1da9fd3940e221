//! The largest of many entries, and the usage of each directory, in bounded memory.

use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The N first of everything that was offered.
pub struct Top<T> {
    most: usize,
    /// Smallest keys first come last: by key, then in the order of offering.
    best: BTreeSet<(u64, Reverse<u64>)>,
    values: std::collections::HashMap<u64, T>,
    is_reversed: bool,
    offered: u64,
}

impl<T> Top<T> {
    /// The `most` largest, or smallest.
    pub fn new(most: usize, is_reversed: bool) -> Top<T> {
        Top { most, best: BTreeSet::new(), values: Default::default(), is_reversed, offered: 0 }
    }

    /// Whether something with this key would be kept now.
    pub fn takes(&self, key: u64) -> bool {
        let key = self.rank(key);
        self.best.len() < self.most || self.best.first().is_some_and(|(least, _)| *least < key)
    }

    fn rank(&self, key: u64) -> u64 {
        if self.is_reversed { u64::MAX - key } else { key }
    }

    /// Offers something.
    pub fn offer(&mut self, key: u64, value: T) {
        if !self.takes(key) {
            return;
        }
        self.offered += 1;
        self.best.insert((self.rank(key), Reverse(self.offered)));
        self.values.insert(self.offered, value);
        if self.best.len() > self.most
            && let Some((_, Reverse(number))) = self.best.pop_first()
        {
            self.values.remove(&number);
        }
    }

    /// The first ones, the first one first.
    pub fn finish(mut self) -> Vec<T> {
        let order = self.best.iter().rev().map(|(_, Reverse(number))| *number).collect::<Vec<_>>();
        order.into_iter().filter_map(|number| self.values.remove(&number)).collect()
    }
}

/// Direct entries of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents<T> {
    /// The directory.
    pub dir: T,
    /// Entries.
    pub count: u64,
    /// Files, and the sum of their sizes.
    pub files: (u64, u64),
}

impl<T> Contents<T> {
    /// Average size of the files.
    pub fn average(&self) -> u64 {
        (self.files.1 + self.files.0 / 2).checked_div(self.files.0).unwrap_or(0)
    }
}

/// Counts what is in directories, in the order of a scan: each directory before what is in it.
pub struct Tree<T> {
    open: Vec<Contents<T>>,
}

impl<T> Default for Tree<T> {
    fn default() -> Tree<T> {
        Tree { open: Vec::new() }
    }
}

impl<T> Tree<T> {
    /// Takes in an entry so many levels below the start; `size_bytes` of a file; `dir` of a directory. Tells the directories that are behind it.
    pub fn add(
        &mut self,
        depth: usize,
        size_bytes: Option<u64>,
        dir: Option<T>,
        done: &mut impl FnMut(Contents<T>),
    ) {
        while self.open.len() > depth {
            self.open.pop().into_iter().for_each(&mut *done);
        }
        if let Some(above) = self.open.last_mut() {
            above.count += 1;
            if let Some(size_bytes) = size_bytes {
                above.files.0 += 1;
                above.files.1 = above.files.1.saturating_add(size_bytes);
            }
        }
        if let Some(dir) = dir {
            self.open.push(Contents { dir, count: 0, files: (0, 0) });
        }
    }

    /// Tells the directories that are left.
    pub fn finish(mut self, done: &mut impl FnMut(Contents<T>)) {
        while let Some(contents) = self.open.pop() {
            done(contents);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_and_of_equals_the_first() {
        let keys = [3, 9, 1, 9, 4, 0];
        let first = |most, is_reversed| {
            let mut top = Top::new(most, is_reversed);
            keys.iter().enumerate().for_each(|(n, key)| top.offer(*key, n));
            top.finish()
        };
        assert_eq!(first(3, false), [1, 3, 4]);
        assert_eq!(first(2, true), [5, 2]);
        assert_eq!(first(1, false), [1]);
        assert!(first(0, false).is_empty());
    }

    #[test]
    fn directories_are_counted_as_a_scan_passes_them() {
        let mut told = Vec::new();
        let mut done =
            |contents: Contents<&'static str>| told.push((contents.dir, contents.count, contents.average()));
        let mut tree = Tree::default();
        tree.add(0, None, Some("root"), &mut done);
        tree.add(1, None, Some("a"), &mut done);
        tree.add(2, Some(10), None, &mut done);
        tree.add(2, Some(21), None, &mut done);
        tree.add(2, None, Some("a/b"), &mut done);
        tree.add(1, Some(7), None, &mut done);
        tree.add(1, None, None, &mut done);
        tree.finish(&mut done);
        assert_eq!(told, [("a/b", 0, 0), ("a", 3, 16), ("root", 3, 7)]);
    }
}
