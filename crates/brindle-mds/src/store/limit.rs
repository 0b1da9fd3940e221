//! `B|kind|id`: what users and groups may use at most. Whoever has no row has no limit.

use brindle_types::Result;
use serde::{Deserialize, Serialize};

use super::usage::Kind;
use super::{Changes, Rows, for_each, keys, row};

row::first_form!(Limit);

/// Limits of one user or group; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Most inodes.
    pub inodes_max: u64,
    /// Most allocated bytes.
    pub bytes_max: u64,
}

/// Puts the limits of a user or group; no row where there are none.
pub fn put(changes: &mut Changes<'_>, kind: Kind, id: u32, limit: Limit) {
    let key = keys::limit(kind as u8, id);
    match limit == Limit::default() {
        true => changes.delete(key),
        false => drop(changes.put_row(key, &limit)),
    }
}

/// All of them.
pub fn list(rows: &(impl Rows + ?Sized)) -> Result<Vec<((Kind, u32), Limit)>> {
    let mut all = Vec::new();
    for kind in [Kind::User, Kind::Group] {
        for_each(rows, &[keys::LIMIT, kind as u8], |key, value| {
            let split = keys::split_owner(key);
            let (_, id) = split.ok_or_else(|| row::damaged("limit", key, "short key".into()))?;
            all.push(((kind, id), row::decode("limit", key, value)?));
            Ok(true)
        })?;
    }
    Ok(all)
}
