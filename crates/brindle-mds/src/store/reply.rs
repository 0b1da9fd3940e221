//! `R|session|slot`: the last reply of a slot, written in the batch of its effect.

use brindle_types::{Result, SessionId};
use brindle_wire::{Op, earlier};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Changes, Rows, for_each, keys, row};

row::first_form!(Reply);

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Sequence of the request that the reply answers.
    pub sequence: u64,
    /// Operation, so that a different request under the same number is noticed.
    pub op: u16,
    /// Body of the reply frame, as [`earlier::store`] makes it.
    pub body: Bytes,
}

/// The last reply of a slot.
pub fn find(rows: &(impl Rows + ?Sized), session: SessionId, slot: u16) -> Result<Option<Reply>> {
    let key = keys::reply(session, slot);
    rows.row(&key)?.map(|value| row::decode("reply", &key, &value)).transpose()
}

/// Sets the last reply of a slot: an answer, as its request gets it.
pub fn put(t: &mut Changes<'_>, (session, slot): (SessionId, u16), sequence: u64, op: Op, answer: &Bytes) {
    match earlier::store(t.level(), op, answer) {
        Ok(body) => drop(t.put_row(keys::reply(session, slot), &Reply { sequence, op: op as u16, body })),
        Err(fault) => t.refuse(fault),
    }
}

/// Removes all replies of a session.
pub fn delete_all(t: &mut Changes<'_>, session: SessionId) -> Result<()> {
    let mut found = Vec::new();
    for_each(t, &keys::replies(session), |key, _| {
        found.push(key.to_vec());
        Ok(true)
    })?;
    found.into_iter().for_each(|key| t.delete(key));
    Ok(())
}
