//! readdir: entries behind a cookie.

use brindle_types::{Fault, Ino};
use brindle_wire::mds::readdir::{DirEntry, ReaddirReq};

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
    /// The parent directory, for `..`.
    pub parent: Ino,
}

impl Client {
    /// Up to `entries_max` entries behind the cookie `after` (0 for the start), with attributes if `plus`.
    pub async fn readdir(
        &self,
        ino: Ino,
        after: u64,
        entries_max: u32,
        plus: bool,
    ) -> Result<Listing, Fault> {
        let entries_max = entries_max.clamp(1, ENTRIES_MAX);
        let answer = self.mds.ask(&ReaddirReq { ino, after, entries_max, plus }).await?;
        Ok(Listing { entries: answer.entries, end: answer.end, parent: answer.parent })
    }
}
