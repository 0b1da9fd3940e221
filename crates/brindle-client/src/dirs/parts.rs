//! Parts of listings as the MDT told them, for whoever lists a directory again, or goes on.
//!
//! Of a small directory that was listed at once the listing is kept as long as it stays as it is: `rm -r` and many others list
//! twice. Of a larger one what follows is kept from when it was read ahead until it is read.
//!
//! Invariant of the owner: nothing of the directory has changed since they were told.

use std::collections::VecDeque;

use brindle_wire::mds::readdir::{COOKIE_FIRST, DirEntry, ReaddirResp};

/// Entries of a directory whose listing is kept; some 60 bytes each.
const WHOLE_MAX: usize = 128;
/// Parts that are kept: one that is being read, and the next.
const PARTS_MAX: usize = 2;

/// Those of one directory.
#[derive(Default)]
pub(super) struct Parts(VecDeque<Part>);

struct Part {
    after: u64,
    /// Without attributes.
    told: ReaddirResp,
}

/// What follows a cookie.
pub(super) struct Behind {
    /// Entries without attributes.
    pub told: ReaddirResp,
    /// The cookie behind which nothing was read ahead yet, and something follows.
    pub read_on: Option<u64>,
}

impl Part {
    fn has(&self, after: u64) -> bool {
        let last = self.told.entries.last().map_or(self.after, |entry| entry.cookie);
        after >= self.after && (self.told.end || after < last)
    }

    fn is_whole(&self) -> bool {
        self.after < COOKIE_FIRST && self.told.end
    }
}

impl Parts {
    /// Whether what followed the cookie `after` is all of a small directory.
    pub fn is_small(after: u64, answer: &ReaddirResp) -> bool {
        after < COOKIE_FIRST && answer.end && answer.entries.len() <= WHOLE_MAX
    }

    /// What followed the cookie `after`.
    pub fn keep(&mut self, after: u64, answer: &ReaddirResp) {
        let bare = |entry: &DirEntry| DirEntry { attr: None, ..entry.clone() };
        let entries = answer.entries.iter().map(bare).collect();
        let after = if after < COOKIE_FIRST { 0 } else { after };
        if after == 0 {
            self.0.clear();
        }
        if self.0.len() >= PARTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Part { after, told: ReaddirResp { entries, ..*answer } });
    }

    /// The directory has changed.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// At most `entries_max` entries behind the cookie `after`, if they are here. What was read through is forgotten.
    pub fn behind(&mut self, after: u64, entries_max: usize) -> Option<Behind> {
        let index = self.0.iter().position(|part| part.has(after))?;
        self.0.drain(..index);
        let part = self.0.front()?;
        let all = &part.told.entries;
        let rest = &all[all.partition_point(|entry| entry.cookie <= after)..];
        let entries = rest.iter().take(entries_max).cloned().collect();
        let end = part.told.end && rest.len() <= entries_max;
        let told = ReaddirResp { entries, end, parent: part.told.parent };
        let last = self.0.back().filter(|part| !part.told.end).and_then(|part| part.told.entries.last());
        let read_on = last.map(|entry| entry.cookie).filter(|_| self.0.len() < PARTS_MAX);
        if end && !part.is_whole() {
            self.0.clear();
        }
        Some(Behind { told, read_on })
    }
}

#[cfg(test)]
mod tests {
    use brindle_types::{FileType, Ino};

    use super::*;

    fn told(cookies: std::ops::Range<u64>, end: bool) -> ReaddirResp {
        let entry = |cookie: u64| DirEntry {
            cookie,
            name: cookie.to_string().into_bytes(),
            ino: Ino(cookie),
            kind: FileType::Regular,
            attr: None,
        };
        ReaddirResp { entries: cookies.map(entry).collect(), end, parent: Ino(2) }
    }

    fn read(parts: &mut Parts, after: u64, max: usize) -> Option<(Vec<u64>, bool, Option<u64>)> {
        let Behind { told, read_on } = parts.behind(after, max)?;
        Some((told.entries.iter().map(|entry| entry.cookie).collect(), told.end, read_on))
    }

    #[test]
    fn a_small_directory_is_listed_from_any_place_as_often_as_one_likes() {
        let mut parts = Parts::default();
        let (start, small) = (COOKIE_FIRST - 1, told(100..110, true));
        assert!(Parts::is_small(start, &small) && !Parts::is_small(100, &small));
        assert!(!Parts::is_small(0, &told(100..110, false)) && !Parts::is_small(0, &told(100..300, true)));
        parts.keep(start, &small);
        for _ in 0..2 {
            assert_eq!(read(&mut parts, 0, 6), Some(((100..106).collect(), false, None)));
            assert_eq!(read(&mut parts, 105, 6), Some(((106..110).collect(), true, None)));
            assert_eq!(read(&mut parts, 109, 6), Some((vec![], true, None)));
        }
        parts.clear();
        assert!(read(&mut parts, 0, 6).is_none());
        parts.keep(0, &told(0..0, true));
        assert_eq!(read(&mut parts, COOKIE_FIRST - 1, 6), Some((vec![], true, None)), "an empty one");
    }

    #[test]
    fn what_was_read_ahead_is_read_once_and_one_part_after_the_other() {
        let mut parts = Parts::default();
        parts.keep(109, &told(110..120, false));
        assert!(read(&mut parts, 100, 5).is_none() && read(&mut parts, 119, 5).is_none());
        assert_eq!(read(&mut parts, 109, 5), Some(((110..115).collect(), false, Some(119))));
        parts.keep(119, &told(120..130, false));
        assert_eq!(
            read(&mut parts, 114, 9),
            Some(((115..120).collect(), false, None)),
            "the next one is here"
        );
        assert_eq!(read(&mut parts, 119, 5), Some(((120..125).collect(), false, Some(129))));
        assert!(read(&mut parts, 109, 5).is_none(), "it was read");
        parts.keep(129, &told(130..140, true));
        assert_eq!(read(&mut parts, 129, 10), Some(((130..140).collect(), true, None)));
        assert!(parts.0.is_empty());
        (0..9).for_each(|n| parts.keep(100 * n + 99, &told(100 * n + 100..100 * n + 110, false)));
        assert_eq!(parts.0.len(), PARTS_MAX);
    }
}
