//! `M|name`: rows that are one of a kind.

use brindle_types::attr::Time;
use brindle_types::{Code, Fault, Result, SessionId};
use serde::{Deserialize, Serialize};

use super::dirent::HashKey;
use super::row::FormatLevel;
use super::{Changes, Rows, keys, row};

row::first_form!(Format, LostTerms, AccessTimes);

const FORMAT: &str = "format";
const INODES: &str = "inodes";
const LEVEL: &str = "format-level";
const SESSIONS: &str = "sessions";
const LOST: &str = "lost-terms";
const ACCESS_TIMES: &str = "access-times";

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

/// Terms of which only the part before a backup is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostTerms {
    /// Terms of each restore: from the term in which the backup was made up to that of the restored MDT.
    pub ranges: Vec<std::ops::Range<u32>>,
}

/// Since when reads of files are in their access times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessTimes {
    /// Since then, without a gap.
    pub since: Time,
    /// The last term in which they were kept.
    pub term: u32,
}

/// Since when access times are kept; `None` in an MDT that was never served by a release that keeps them.
pub fn access_times(rows: &(impl Rows + ?Sized)) -> Result<Option<AccessTimes>> {
    let key = keys::meta(ACCESS_TIMES);
    rows.row(&key)?.map(|value| row::decode("access times", &key, &value)).transpose()
}

/// Stores the row of access times.
pub fn put_access_times(t: &mut Changes<'_>, kept: AccessTimes) {
    t.put_row(keys::meta(ACCESS_TIMES), &kept);
}

/// The terms that backups have lost; none in an MDT that was never restored.
pub fn lost_terms(rows: &(impl Rows + ?Sized)) -> Result<LostTerms> {
    let key = keys::meta(LOST);
    let found = rows.row(&key)?.map(|value| row::decode("lost terms", &key, &value)).transpose()?;
    Ok(found.unwrap_or_default())
}

/// Stores the lost terms.
pub fn put_lost_terms(t: &mut Changes<'_>, lost: &LostTerms) {
    t.put_row(keys::meta(LOST), lost);
}

/// The last session id that was given out.
pub fn last_session(rows: &(impl Rows + ?Sized)) -> Result<u64> {
    let key = keys::meta(SESSIONS);
    let last = rows.row(&key)?.map(|value| row::decode("session counter", &key, &value)).transpose()?;
    Ok(last.unwrap_or(0))
}

/// Stores the last session id.
pub fn put_last_session(t: &mut Changes<'_>, last: u64) {
    t.put_row(keys::meta(SESSIONS), &last);
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

/// Takes the next session id. The client learns it only when the batch is synced.
pub fn next_session(t: &mut Changes<'_>) -> Result<SessionId> {
    let next = last_session(t)? + 1;
    put_last_session(t, next);
    Ok(SessionId(next))
}
