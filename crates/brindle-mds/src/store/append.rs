//! `A|ino|offset`: places reserved for appends that are not finished.

use brindle_types::{Ino, Result, SessionId};
use serde::{Deserialize, Serialize};

use super::{Changes, Rows, for_each, keys, row};

row::first_form!(Reservation);

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Session that made the reservation.
    pub session: SessionId,
    /// The session's number of the append.
    pub number: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// The bytes are written, but an earlier reservation is not finished.
    pub done: bool,
}

/// Sets a reservation.
pub fn put(t: &mut Changes<'_>, ino: Ino, offset: u64, reservation: &Reservation) {
    t.put_row(keys::append(ino, offset), reservation);
}

/// Removes a reservation.
pub fn delete(t: &mut Changes<'_>, ino: Ino, offset: u64) {
    t.delete(keys::append(ino, offset));
}

/// Reservations of all files: (file, offset, reservation).
pub fn all(rows: &(impl Rows + ?Sized)) -> Result<Vec<(Ino, u64, Reservation)>> {
    let mut all = Vec::new();
    for_each(rows, &[keys::APPEND], |key, value| {
        let (ino, offset) =
            keys::split_append(key).ok_or_else(|| row::damaged("append", key, "short key".into()))?;
        all.push((ino, offset, row::decode("append", key, value)?));
        Ok(true)
    })?;
    Ok(all)
}

/// Reservations of a file in order of offset.
pub fn list(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<Vec<(u64, Reservation)>> {
    let mut all = Vec::new();
    for_each(rows, &keys::of_ino(keys::APPEND, ino), |key, value| {
        let (_, offset) =
            keys::split_append(key).ok_or_else(|| row::damaged("append", key, "short key".into()))?;
        all.push((offset, row::decode("append", key, value)?));
        Ok(true)
    })?;
    Ok(all)
}
