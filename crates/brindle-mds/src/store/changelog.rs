//! `L|index`: records of changes, written in the batch of the change, in order. Beside them two rows that are one of a kind:
//! who reads ([`State`]), and how much there is ([`Size`], changed with every record).

use brindle_types::attr::Time;
use brindle_types::{Change, ChangeMask, Result};
use serde::{Deserialize, Serialize};

use super::{Changes, Rows, keys, row};

row::first_form!(State, Size);

const STATE: &str = "changelog";
const SIZE: &str = "changelog-size";

/// A reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reader {
    /// Number; never given to another.
    pub id: u32,
    /// Name that the user chose at registration; may be empty.
    pub name: String,
    /// Random number of the command that registered the reader.
    pub nonce: [u8; 16],
    /// Types that the reader asked for.
    pub mask: Option<ChangeMask>,
    /// The reader needs no record up to this index.
    pub cleared: u64,
    /// Time at which the reader was registered or last cleared records.
    pub active: Time,
}

/// Readers of the changelog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Number of the next reader.
    pub next_id: u32,
    /// Types for readers that did not ask for others.
    pub mask: ChangeMask,
    /// Records up to here went although a reader had not cleared them.
    pub dropped_to: u64,
    /// Readers in order of number.
    pub readers: Vec<Reader>,
}

impl Default for State {
    fn default() -> State {
        State { next_id: 1, mask: ChangeMask::DEFAULT, dropped_to: 0, readers: Vec::new() }
    }
}

/// Number and bytes of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Records.
    pub records: u64,
    /// Bytes of the records, keys included.
    pub bytes: u64,
}

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Index.
    pub index: u64,
    /// Bytes that the record takes.
    pub bytes: u64,
    /// The change.
    pub change: Change,
}

/// Readers of the changelog; none in a store that never had one.
pub fn state(rows: &(impl Rows + ?Sized)) -> Result<State> {
    let key = keys::meta(STATE);
    let found = rows.row(&key)?.map(|value| row::decode("changelog", &key, &value)).transpose()?;
    Ok(found.unwrap_or_default())
}

/// Sets who reads.
pub fn put_state(t: &mut Changes<'_>, state: &State) {
    t.put_row(keys::meta(STATE), state);
}

/// Number and bytes of the records.
pub fn size(rows: &(impl Rows + ?Sized)) -> Result<Size> {
    let key = keys::meta(SIZE);
    let found = rows.row(&key)?.map(|value| row::decode("changelog size", &key, &value)).transpose()?;
    Ok(found.unwrap_or_default())
}

/// Sets how much there is.
pub fn put_size(t: &mut Changes<'_>, size: Size) {
    t.put_row(keys::meta(SIZE), &size);
}

/// Adds a record. Returns the bytes that it takes.
pub fn put(t: &mut Changes<'_>, index: u64, change: &Change) -> u64 {
    let key = keys::change(index);
    let key_bytes = key.len();
    (key_bytes + t.put_row(key, change)) as u64
}

/// Removes a record.
pub fn delete(t: &mut Changes<'_>, index: u64) {
    t.delete(keys::change(index));
}

/// Index and bytes of at most `limit` records behind an index, in order: also of those that cannot be read.
pub fn sizes_behind(rows: &(impl Rows + ?Sized), index: u64, limit: usize) -> Result<Vec<(u64, u64)>> {
    let found = rows.rows(&[keys::CHANGE], Some(&keys::change(index)), limit)?;
    let size = |key: &[u8], value: &[u8]| {
        let index = keys::split_change(key).ok_or_else(|| row::damaged("change", key, "no index".into()))?;
        Ok((index, (key.len() + value.len()) as u64))
    };
    found.iter().map(|(key, value)| size(key, value)).collect()
}

/// At most `limit` records behind an index, in order.
pub fn behind(rows: &(impl Rows + ?Sized), index: u64, limit: usize) -> Result<Vec<Stored>> {
    let found = rows.rows(&[keys::CHANGE], Some(&keys::change(index)), limit)?;
    let stored = |key: &[u8], value: &[u8]| {
        let index = keys::split_change(key).ok_or_else(|| row::damaged("change", key, "no index".into()))?;
        let bytes = (key.len() + value.len()) as u64;
        Ok(Stored { index, bytes, change: row::decode("change", key, value)? })
    };
    found.iter().map(|(key, value)| stored(key, value)).collect()
}
