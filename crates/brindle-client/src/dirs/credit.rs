//! Number of entries of a directory that are listed ahead of lookups.
//!
//! To list an entry that nobody needs costs the servers a small part of a LOOKUP. Each name that had to be asked for is therefore worth
//! some entries. Each entry that was listed ahead and then looked at is worth some, too. In a directory that is walked through, only the
//! beginning therefore has to be asked for, even where this mount looks at only a part of the listing because other clients look at the
//! rest.

/// Entries for each name that had to be asked for: a directory that is gone through in any order is known after a sixteenth of it.
pub(super) const OF_EACH_ASKED: u32 = 16;
/// Entries for each entry that was listed ahead and looked at. If a quarter of the listed entries are looked at, listing goes on by
/// itself. If an eighth are, the listing is twice as long as the names that were asked for alone would allow.
pub(super) const OF_EACH_USED: u32 = 4;
/// Entries listed ahead at once.
pub(super) const AHEAD_MIN: u32 = 128;
pub(super) const AHEAD_MAX: u32 = 512;

/// Entries of one directory that may be listed ahead.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credit(u32);

/// A part of a directory that is to be listed ahead of questions about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// The cookie behind which it begins.
    pub after: u64,
    pub entries_max: u32,
}

impl Credit {
    /// A name had to be asked for.
    pub fn asked(&mut self) {
        self.0 = self.0.saturating_add(OF_EACH_ASKED);
    }

    /// A program looked at an entry that was listed ahead, for the first time.
    pub fn used(&mut self) {
        self.0 = self.0.saturating_add(OF_EACH_USED);
    }

    /// The part behind the cookie `after`, if listing it is worth a request.
    pub fn spend(&mut self, after: u64) -> Option<Ahead> {
        if self.0 < AHEAD_MIN {
            return None;
        }
        let entries_max = self.0.min(AHEAD_MAX);
        self.0 -= entries_max;
        Some(Ahead { after, entries_max })
    }
}
