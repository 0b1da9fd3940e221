//! readdir: entries behind a cookie.

use brindle_net::job;
use brindle_types::{Fault, Ino};
use brindle_wire::mds::readdir::{COOKIE_FIRST, DirEntry, ReaddirReq};

use crate::Client;
use crate::dirs::{Behind, Listed};

/// Most entries asked for at once; with names of 255 bytes and attributes they fit in one reply.
pub const ENTRIES_MAX: u32 = 1024;

/// A part of a directory's entries.
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
    /// far as the lease of the directory covers them, unless it was known here; they answer the lookups that follow.
    pub async fn readdir(
        &self,
        ino: Ino,
        after: u64,
        entries_max: u32,
        plus: bool,
    ) -> Result<Listing, Fault> {
        let entries_max = entries_max.clamp(1, ENTRIES_MAX);
        if let Some(known) = self.known_listing(ino, after, entries_max, plus) {
            return Ok(known);
        }
        if let Some(coming) = self.dirs.coming(ino, after) {
            // An error says nothing but that it is over, too.
            let _ = coming.await;
            if let Some(known) = self.known_listing(ino, after, entries_max, plus) {
                return Ok(known);
            }
        }
        let (listing, is_quiet) = self.list(ino, after, entries_max, plus, Listed::Asked).await?;
        // A reader that goes on where a part has ended will probably go on. The part read ahead for it is
        // kept while nothing changes.
        let last = listing.entries.last().filter(|_| is_quiet && after >= COOKIE_FIRST && !listing.end);
        if let Some(last) = last {
            self.read_on(ino, last.cookie, plus);
        }
        Ok(listing)
    }

    /// The listing as far as it is known here, under leases that are held.
    fn known_listing(&self, ino: Ino, after: u64, entries_max: u32, plus: bool) -> Option<Listing> {
        if !self.session.is_held() {
            return None;
        }
        if after >= COOKIE_FIRST && self.dirs.ends_at(ino, after) {
            // The parent is told with the first entries.
            return Some(Listing { entries: Vec::new(), end: true, parent: ino });
        }
        let Behind { told, read_on } = self.dirs.listing(ino, after, entries_max as usize)?;
        if let Some(after) = read_on {
            self.read_on(ino, after, plus);
        }
        Some(Listing { entries: told.entries, end: told.end, parent: told.parent })
    }

    /// Reads what follows the cookie `after` for somebody who will ask for it.
    fn read_on(&self, dir: Ino, after: u64, plus: bool) {
        let Some(this) = self.this.upgrade() else { return };
        if !self.dirs.begin_reading_on(dir, after) {
            return;
        }
        let looking = async move {
            let read = this.list(dir, after, ENTRIES_MAX, plus, Listed::ReadAhead).await;
            this.dirs.listed_ahead(dir, &[]);
            if let Err(fault) = read {
                // The reader that wants these entries asks itself, and hears of the fault.
                tracing::debug!(dir = dir.0, code = %fault.code, "cannot read ahead: {fault}");
            }
        };
        self.seams.spawn("client.read_on", job::carry(looking));
    }

    /// Lists from the MDT. Also returns whether a lease covers the answer and nothing has changed since the
    /// part before.
    pub(crate) async fn list(
        &self,
        ino: Ino,
        after: u64,
        entries_max: u32,
        plus: bool,
        how: Listed,
    ) -> Result<(Listing, bool), Fault> {
        let asked = self.dirs.asked();
        let (answer, news) = self.mds.ask_with_updates(&ReaddirReq { ino, after, entries_max, plus }).await?;
        let leased = news.leased.first();
        let is_quiet = leased.is_some_and(|leased| self.dirs.listed(asked, leased, after, &answer, how));
        Ok((Listing { entries: answer.entries, end: answer.end, parent: answer.parent }, is_quiet))
    }
}
