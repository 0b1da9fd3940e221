//! Where names led in directories whose lease is not held: several clients change them.
//!
//! None of it needs to be right any more. It is for whoever removes a file: the kernel looks its name up first, of which it
//! uses nothing but that it is one, and the MDT finds by name what is removed ([`crate::Client::last_lead`]).

use std::collections::HashMap;

use brindle_types::{FileType, Ino};
use brindle_wire::mds::readdir::{DirEntry, ReaddirResp};

use super::Lead;
use super::credit::{Ahead, Credit};

/// Names that are remembered, some 80 bytes each, and directories. Beyond them all others are forgotten.
const PAST_MAX: usize = 1 << 17;

/// By directory.
#[derive(Default)]
pub(super) struct Past {
    dirs: HashMap<Ino, Dir>,
    names: usize,
}

#[derive(Default)]
struct Dir {
    files: HashMap<Vec<u8>, File>,
    /// How far a listing has come that is made for names to be removed.
    listed: u64,
    credit: Credit,
}

#[derive(Clone, Copy)]
struct File {
    ino: Ino,
    /// It was listed ahead, and nobody has looked at it yet.
    is_ahead: bool,
}

impl Past {
    /// Names of `dir` led to these. Only regular files are remembered.
    pub fn led(&mut self, dir: Ino, names: impl Iterator<Item = (Vec<u8>, Lead)>) {
        for (name, lead) in names {
            let Some((ino, FileType::Regular)) = lead else { continue };
            self.make_room();
            let file = File { ino, is_ahead: false };
            let is_new = self.dirs.entry(dir).or_default().files.insert(name, file).is_none();
            self.names += usize::from(is_new);
        }
    }

    /// What followed the cookie `after` in `dir`.
    pub fn listed(&mut self, dir: Ino, after: u64, answer: &ReaddirResp) {
        let entries = answer.entries.iter();
        self.led(dir, entries.map(|entry| (entry.name.clone(), Some((entry.ino, entry.kind)))));
        if let Some(known) = self.dirs.get_mut(&dir).filter(|known| known.listed == after) {
            let last = answer.entries.last().map_or(after, |entry| entry.cookie);
            // After the end it begins again: others may have made more.
            known.listed = if answer.end { 0 } else { last };
        }
    }

    /// These entries were listed ahead.
    pub fn is_listed_ahead(&mut self, dir: Ino, entries: &[DirEntry]) {
        let Some(known) = self.dirs.get_mut(&dir) else { return };
        for entry in entries {
            known.files.get_mut(&entry.name[..]).into_iter().for_each(|file| file.is_ahead = true);
        }
    }

    /// The file that a name led to which is to be removed.
    pub fn look_at(&mut self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.make_room();
        let known = self.dirs.entry(dir).or_default();
        let Some(file) = known.files.get_mut(name) else {
            known.credit.asked();
            return None;
        };
        if std::mem::take(&mut file.is_ahead) {
            known.credit.used();
        }
        Some(file.ino)
    }

    /// What is to be listed ahead of files that are to be removed.
    pub fn spend(&mut self, dir: Ino) -> Option<Ahead> {
        let known = self.dirs.get_mut(&dir)?;
        known.credit.spend(known.listed)
    }

    /// It leads there no longer.
    pub fn forget(&mut self, dir: Ino, name: &[u8]) {
        let Some(known) = self.dirs.get_mut(&dir) else { return };
        self.names -= usize::from(known.files.remove(name).is_some());
    }

    fn make_room(&mut self) {
        if self.names >= PAST_MAX || self.dirs.len() >= PAST_MAX {
            *self = Past::default();
        }
    }

    /// Everything about a directory whose lease is held now.
    pub fn forget_dir(&mut self, dir: Ino) {
        self.names -= self.dirs.remove(&dir).map_or(0, |known| known.files.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(ino: u64) -> Lead {
        Some((Ino(ino), FileType::Regular))
    }

    #[test]
    fn memory_is_bounded_and_the_newest_stay() {
        let mut past = Past::default();
        let names = |from: u64, count: u64| {
            (from..from + count).map(|at| (at.to_string().into_bytes(), file(at + 1000)))
        };
        past.led(Ino(1), names(0, 10));
        past.led(Ino(1), names(5, 10));
        assert_eq!((past.names, past.look_at(Ino(1), b"12")), (15, Some(Ino(1012))));
        let count = PAST_MAX as u64 * 2;
        past.led(Ino(2), names(0, count));
        assert!(past.names <= PAST_MAX && past.look_at(Ino(1), b"12").is_none());
        let last = (count - 1).to_string();
        assert!(past.look_at(Ino(2), last.as_bytes()).is_some());
        past.forget(Ino(2), last.as_bytes());
        past.forget(Ino(2), last.as_bytes());
        past.forget(Ino(3), b"x");
        assert!(past.look_at(Ino(2), last.as_bytes()).is_none());
        for dir in 3..2 * PAST_MAX as u64 {
            past.led(Ino(dir), names(0, 1));
            past.forget(Ino(dir), b"0");
        }
        assert!(past.dirs.len() <= PAST_MAX);
        past.led(Ino(2), names(0, 7));
        let counted: usize = past.dirs.values().map(|dir| dir.files.len()).sum();
        assert_eq!(counted, past.names);
        past.forget_dir(Ino(2));
        assert_eq!((past.names, !past.dirs.contains_key(&Ino(2))), (0, true));
    }

    #[test]
    fn only_files_are_remembered() {
        let mut past = Past::default();
        let dir = Some((Ino(7), FileType::Directory));
        let names = [(b"d".to_vec(), dir), (b"n".to_vec(), None), (b"f".to_vec(), file(8))];
        past.led(Ino(1), names.into_iter());
        assert_eq!((past.look_at(Ino(1), b"d"), past.look_at(Ino(1), b"n")), (None, None));
        assert_eq!((past.look_at(Ino(1), b"f"), past.names), (Some(Ino(8)), 1));
    }

    #[test]
    fn it_is_listed_in_parts_and_again_from_the_start() {
        let mut past = Past::default();
        let next = |past: &mut Past| {
            let asked = (0..1000).find_map(|_| {
                assert_eq!(past.look_at(Ino(1), b"unknown"), None);
                past.spend(Ino(1))
            });
            asked.expect("some time")
        };
        let part = |cookies: std::ops::Range<u64>, end| {
            let entry = |cookie: u64| DirEntry {
                cookie,
                name: cookie.to_string().into_bytes(),
                ino: Ino(cookie),
                kind: FileType::Regular,
                attr: None,
            };
            ReaddirResp { entries: cookies.map(entry).collect(), end, parent: Ino(2) }
        };
        let first = next(&mut past);
        assert_eq!(first.after, 0);
        past.listed(Ino(1), 0, &part(10..20, false));
        assert_eq!(past.look_at(Ino(1), b"15"), Some(Ino(15)));
        assert_eq!(next(&mut past).after, 19);
        past.listed(Ino(1), 5, &part(6..9, false));
        assert_eq!(next(&mut past).after, 19, "a listing of somebody else");
        past.listed(Ino(1), 19, &part(20..22, true));
        assert_eq!(next(&mut past).after, 0);
        // Those that were listed ahead count when they are looked at, once.
        let all = part(1000..2000, false);
        past.listed(Ino(1), 0, &all);
        past.is_listed_ahead(Ino(1), &all.entries);
        let mut used = || {
            all.entries
                .iter()
                .filter(|entry| {
                    assert_eq!(past.look_at(Ino(1), &entry.name), Some(entry.ino));
                    past.spend(Ino(1)).is_some()
                })
                .count()
        };
        assert!(used() > 5);
        assert_eq!(used(), 0);
    }
}
