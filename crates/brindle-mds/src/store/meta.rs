//! `M|name`: rows that are one of a kind.

use brindle_types::{Code, Fault, Result, SessionId};
use serde::{Deserialize, Serialize};

use super::dirent::HashKey;
use super::row::FormatLevel;
use super::{Changes, Rows, keys, row};

row::first_form!(Format);

const FORMAT: &str = "format";
const INODES: &str = "inodes";
const LEVEL: &str = "format-level";
const SESSIONS: &str = "sessions";

/// Settings of the MDT since it was made.
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
    t.put_row(keys::meta(FORMAT), format);
}

/// The format level that rows may be written in; the first where none is set.
pub fn format_level(rows: &(impl Rows + ?Sized)) -> Result<FormatLevel> {
    let key = keys::meta(LEVEL);
    let found: Option<u64> =
        rows.row(&key)?.map(|value| row::decode("format level", &key, &value)).transpose()?;
    let level =
        found.map_or(FormatLevel::FIRST, |level| FormatLevel(u16::try_from(level).unwrap_or(u16::MAX)));
    if level <= FormatLevel::NEWEST {
        return Ok(level);
    }
    Err(Fault::new(Code::NewerFormat)
        .why(format!("its format level is {}, this release knows {}", level.0, FormatLevel::NEWEST.0))
        .data("nothing was changed"))
}

/// Sets the format level.
pub fn put_format_level(t: &mut Changes<'_>, level: FormatLevel) {
    t.put_row(keys::meta(LEVEL), &u64::from(level.0));
}

/// First inode counter that no reservation covers yet.
pub fn inodes_reserved(rows: &(impl Rows + ?Sized)) -> Result<u64> {
    let key = keys::meta(INODES);
    let found = rows.row(&key)?.map(|value| row::decode("inode reservation", &key, &value)).transpose()?;
    Ok(found.unwrap_or(0))
}

/// Reserves inode counters up to `end`.
pub fn put_inodes_reserved(t: &mut Changes<'_>, end: u64) {
    t.put_row(keys::meta(INODES), &end);
}

/// Takes the next session id. It is told to the client only when the batch is synced.
pub fn next_session(t: &mut Changes<'_>) -> Result<SessionId> {
    let key = keys::meta(SESSIONS);
    let last: Option<u64> =
        t.row(&key)?.map(|value| row::decode("session counter", &key, &value)).transpose()?;
    let next = last.unwrap_or(0) + 1;
    t.put_row(key, &next);
    Ok(SessionId(next))
}
