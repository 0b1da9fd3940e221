//! Parts of listings as the MDT returned them, for a caller that lists a directory again, or goes on.
//!
//! The listing of a small directory that was listed at once is kept as long as the directory is unchanged: `rm -r` and many
//! others list twice. Of a larger directory the next part is kept when it was read ahead.
//!
//! Invariant of the owner: the directory has not changed since the MDT returned its parts.

use std::collections::VecDeque;

use brindle_wire::mds::readdir::{COOKIE_FIRST, DirEntry, ReaddirResp};

/// Entries of a directory whose listing is kept; some 60 bytes each.
const WHOLE_MAX: usize = 128;
/// Parts that are kept: two for each of two who list at a time, one that is being read, and the next.
const PARTS_MAX: usize = 4;

/// The parts of a directory.
#[derive(Default)]
pub(super) struct Parts(VecDeque<Part>);

/// A run of consecutive entries.
pub(super) struct Part {
    after: u64,
    /// Without attributes.
    told: ReaddirResp,
}

/// The entries that follow a cookie.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Entries without attributes.
    pub told: ReaddirResp,
    /// The cookie behind which nothing was read ahead yet, and something follows.
    pub read_on: Option<u64>,
}

impl Part {
    /// The entries that followed the cookie `after`.
    pub fn told(after: u64, answer: &ReaddirResp) -> Part {
        let bare = |entry: &DirEntry| DirEntry { attr: None, ..entry.clone() };
        let entries = answer.entries.iter().map(bare).collect();
        let after = if after < COOKIE_FIRST { 0 } else { after };
        Part { after, told: ReaddirResp { entries, ..*answer } }
    }

    fn last(&self) -> u64 {
        self.told.entries.last().map_or(self.after, |entry| entry.cookie)
    }

    fn follows(&self, cookie: u64) -> bool {
        cookie >= self.after && (self.told.end || cookie < self.last())
    }
}

impl Parts {
    /// Whether what followed the cookie `after` is all of a small directory.
    pub fn is_small(after: u64, answer: &ReaddirResp) -> bool {
        after < COOKIE_FIRST && answer.end && answer.entries.len() <= WHOLE_MAX
    }

    /// Keeps a part, and forgets the oldest one if there are too many.
    pub fn keep(&mut self, part: Part) {
        self.0.retain(|known| known.after != part.after);
        if self.0.len() >= PARTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(part);
    }

    /// The directory has changed.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether a name with this cookie would be in one of them.
    pub fn have(&self, cookie: u64) -> bool {
        self.0.iter().any(|part| cookie > part.after && (part.told.end || cookie <= part.last()))
    }

    /// At most `entries_max` entries behind the cookie `after`, if they are here.
    pub fn behind(&self, after: u64, entries_max: usize) -> Option<Behind> {
        let part = self.0.iter().find(|part| part.follows(after))?;
        let all = &part.told.entries;
        let rest = &all[all.partition_point(|entry| entry.cookie <= after)..];
        let entries = rest.iter().take(entries_max).cloned().collect();
        let end = part.told.end && rest.len() <= entries_max;
        let told = ReaddirResp { entries, end, parent: part.told.parent };
        let is_last = !part.told.end && !self.0.iter().any(|next| next.after == part.last());
        Some(Behind { told, read_on: is_last.then(|| part.last()) })
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

    fn read(parts: &Parts, after: u64, max: usize) -> Option<(Vec<u64>, bool, Option<u64>)> {
        let Behind { told, read_on } = parts.behind(after, max)?;
        Some((told.entries.iter().map(|entry| entry.cookie).collect(), told.end, read_on))
    }

    #[test]
    fn a_small_directory_is_listed_from_any_place_as_often_as_one_likes() {
        let mut parts = Parts::default();
        let (start, small) = (COOKIE_FIRST - 1, told(100..110, true));
        assert!(Parts::is_small(start, &small) && !Parts::is_small(100, &small));
        assert!(!Parts::is_small(0, &told(100..110, false)) && !Parts::is_small(0, &told(100..300, true)));
        parts.keep(Part::told(start, &small));
        for _ in 0..2 {
            assert_eq!(read(&parts, 0, 6), Some(((100..106).collect(), false, None)));
            assert_eq!(read(&parts, 105, 6), Some(((106..110).collect(), true, None)));
            assert_eq!(read(&parts, 109, 6), Some((vec![], true, None)));
        }
        parts.clear();
        assert!(read(&parts, 0, 6).is_none());
        parts.keep(Part::told(0, &told(0..0, true)));
        assert_eq!(read(&parts, COOKIE_FIRST - 1, 6), Some((vec![], true, None)), "an empty one");
    }

    #[test]
    fn what_was_read_ahead_is_read_one_part_after_the_other() {
        let mut parts = Parts::default();
        parts.keep(Part::told(109, &told(110..120, false)));
        assert!(read(&parts, 100, 5).is_none() && read(&parts, 119, 5).is_none());
        assert_eq!(read(&parts, 109, 5), Some(((110..115).collect(), false, Some(119))));
        parts.keep(Part::told(119, &told(120..130, false)));
        assert_eq!(read(&parts, 114, 9), Some(((115..120).collect(), false, None)), "the next one is here");
        assert_eq!(read(&parts, 119, 5), Some(((120..125).collect(), false, Some(129))));
        parts.keep(Part::told(129, &told(130..140, true)));
        assert_eq!(read(&parts, 129, 10), Some(((130..140).collect(), true, None)));
        assert_eq!(read(&parts, 139, 10), Some((vec![], true, None)));
        parts.keep(Part::told(129, &told(130..138, true)));
        assert_eq!((parts.0.len(), read(&parts, 129, 10)), (3, Some(((130..138).collect(), true, None))));
        (0..9).for_each(|n| parts.keep(Part::told(100 * n + 99, &told(100 * n + 100..100 * n + 110, false))));
        assert_eq!(parts.0.len(), PARTS_MAX);
    }

    #[test]
    fn the_place_of_a_name_is_in_a_part_or_not() {
        let mut parts = Parts::default();
        parts.keep(Part::told(109, &told(110..120, false)));
        assert_eq!([109, 110, 119, 120].map(|cookie| parts.have(cookie)), [false, true, true, false]);
        parts.keep(Part::told(129, &told(130..140, true)));
        assert_eq!([129, 130, 500].map(|cookie| parts.have(cookie)), [false, true, true]);
    }
}
