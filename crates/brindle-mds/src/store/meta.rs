//! `M|name`: rows that are one of a kind.

use brindle_types::{Result, SessionId};
use serde::{Deserialize, Serialize};

use super::dirent::HashKey;
use super::{Changes, Rows, keys, row};

row::first_form!(Format);

const FORMAT: &str = "format";
const INODES: &str = "inodes";
const SESSIONS: &str = "sessions";

/// What was decided when the MDT was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// Identity of the target.
    pub uuid: [u8; 16],
    /// Index of this MDT.
    pub mdt_index: u16,
    /// Key of the order of directories.
    pub hash_key: HashKey,
}

/// The format row; `None` in a store that was never formatted.
pub fn format(rows: &(impl Rows + ?Sized)) -> Result<Option<Format>> {
    let key = keys::meta(FORMAT);
    rows.row(&key)?.map(|value| row::decode("format", &key, &value)).transpose()
}

/// Sets the format row.
pub fn put_format(t: &mut Changes<'_>, format: &Format) {
    t.put(keys::meta(FORMAT), row::encode(format));
}

/// First inode counter that no reservation covers yet.
pub fn inodes_reserved(rows: &(impl Rows + ?Sized)) -> Result<u64> {
    let key = keys::meta(INODES);
    let found = rows.row(&key)?.map(|value| row::decode("inode reservation", &key, &value)).transpose()?;
    Ok(found.unwrap_or(0))
}

/// Reserves inode counters up to `end`.
pub fn put_inodes_reserved(t: &mut Changes<'_>, end: u64) {
    t.put(keys::meta(INODES), row::encode(&end));
}

/// Takes the next session id. It is told to the client only when the batch is synced.
pub fn next_session(t: &mut Changes<'_>) -> Result<SessionId> {
    let key = keys::meta(SESSIONS);
    let last: Option<u64> =
        t.row(&key)?.map(|value| row::decode("session counter", &key, &value)).transpose()?;
    let next = last.unwrap_or(0) + 1;
    t.put(key, row::encode(&next));
    Ok(SessionId(next))
}
