//! readdir: entries behind a cookie.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::readdir::{COOKIE_FIRST, DirEntry, ReaddirReq};

use crate::Client;

/// Most entries asked for at once; with names of 255 bytes and attributes they fit in one reply.
pub const ENTRIES_MAX: u32 = 1024;

/// Some entries of a directory.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Entries in order of their cookies, without `.` and `..`.
    pub entries: Vec<DirEntry>,
    /// Whether nothing follows.
    pub end: bool,
    /// The parent directory, for `..`; only at the start of the directory.
    pub parent: Ino,
}

impl Client {
    /// Up to `entries_max` entries behind the cookie `after` (0 for the start). With `plus` attributes come with them, as
    /// far as the lease of the directory covers them; they answer the lookups that follow.
    pub async fn readdir(
        &self,
        ino: Ino,
        after: u64,
        entries_max: u32,
        plus: bool,
    ) -> Result<Listing, Fault> {
        let entries_max = entries_max.clamp(1, ENTRIES_MAX);
        if after >= COOKIE_FIRST && self.session.is_held() && self.dirs.ends_at(ino, after) {
            // The parent is told with the first entries.
            return Ok(Listing { entries: Vec::new(), end: true, parent: ino });
        }
        if self.session.is_held()
            && let Some(known) = self.dirs.listing(ino, after, entries_max as usize)
        {
            return Ok(Listing { entries: known.entries, end: known.end, parent: known.parent });
        }
        let asked = self.dirs.asked();
        let (answer, news) = self.mds.ask_told(&ReaddirReq { ino, after, entries_max, plus }).await?;
        match news.leased.first() {
            Some(leased) => self.dirs.listed(asked, leased, after, &answer),
            None => self.dirs.listed_without_lease(ino, after, &answer),
        }
        Ok(Listing { entries: answer.entries, end: answer.end, parent: answer.parent })
    }
}
