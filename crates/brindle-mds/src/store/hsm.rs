//! `H|s|ino`: the copies and flags of a file that tiering knows of. `H|a|ino`: the action on a file, of which there is one at most.
//! `M|hsm-control`: whether actions are given out.

use brindle_types::attr::Time;
use brindle_types::{ArchivedCopy, HsmControl, HsmKind, Ino, Pair, Result};
use serde::{Deserialize, Serialize};

use super::{Changes, Rows, for_each, keys, row};

row::first_form!(State, Action, Control);

const CONTROL: &str = "hsm-control";

/// Whether actions are given out, as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control(pub HsmControl);

/// State of a file. A file without a row has no flags and no copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Bits of [`brindle_types::hsm`]. EXISTS follows from `copy`, and DIRTY also from the file.
    pub flags: u32,
    /// Number of the archive; 0 for none yet.
    pub archive: u32,
    /// The last complete copy.
    pub copy: Option<ArchivedCopy>,
}

/// An action that is queued or under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Kind of the action.
    pub kind: HsmKind,
    /// The archive.
    pub archive: u32,
    /// User that asked: users take turns.
    pub uid: u32,
    /// Number of the action, in the order of requests.
    pub cookie: Pair,
    /// Time of the request.
    pub asked: Time,
    /// The attempt that is under way.
    pub running: Option<Running>,
    /// Attempts that ended without an outcome: their agents were silent.
    pub lost_attempts: u32,
}

/// An attempt at an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Number of the attempt.
    pub attempt: Pair,
    /// Agent that has the attempt.
    pub agent: [u8; 16],
    /// Data version of the file when the attempt was given out.
    pub data_version: Pair,
}

/// The state of a file.
pub fn state(rows: &(impl Rows + ?Sized), ino: Ino) -> Result<State> {
    let key = keys::hsm_state(ino);
    let found = rows.row(&key)?.map(|value| row::decode("state of tiering", &key, &value)).transpose()?;
    Ok(found.unwrap_or_default())
}

/// Sets the state of a file; no row where there is nothing to tell.
pub fn put_state(t: &mut Changes<'_>, ino: Ino, state: State) {
    let key = keys::hsm_state(ino);
    match state.flags == 0 && state.copy.is_none() {
        true => t.delete(key),
        false => drop(t.put_row(key, &state)),
    }
}

/// Whether any file has a state.
pub fn is_used(rows: &(impl Rows + ?Sized)) -> Result<bool> {
    Ok(!rows.rows(&keys::hsm_states(), None, 1)?.is_empty())
}

/// Every state, in order of inode.
pub fn states(rows: &(impl Rows + ?Sized)) -> Result<Vec<(Ino, State)>> {
    list(rows, &keys::hsm_states(), "state of tiering")
}

/// Every action, in order of inode.
pub fn actions(rows: &(impl Rows + ?Sized)) -> Result<Vec<(Ino, Action)>> {
    list(rows, &keys::hsm_actions(), "action of tiering")
}

/// Sets the action on a file.
pub fn put_action(t: &mut Changes<'_>, ino: Ino, action: &Action) {
    t.put_row(keys::hsm_action(ino), action);
}

/// Removes the action.
pub fn delete_action(t: &mut Changes<'_>, ino: Ino) {
    t.delete(keys::hsm_action(ino));
}

/// Whether actions are given out.
pub fn control(rows: &(impl Rows + ?Sized)) -> Result<HsmControl> {
    let key = keys::meta(CONTROL);
    let found: Option<Control> =
        rows.row(&key)?.map(|value| row::decode("switch of tiering", &key, &value)).transpose()?;
    Ok(found.unwrap_or_default().0)
}

/// Sets whether they are.
pub fn put_control(t: &mut Changes<'_>, control: HsmControl) {
    t.put_row(keys::meta(CONTROL), &Control(control));
}

fn list<T: row::Form>(
    rows: &(impl Rows + ?Sized),
    prefix: &[u8],
    what: &'static str,
) -> Result<Vec<(Ino, T)>> {
    let mut all = Vec::new();
    for_each(rows, prefix, |key, value| {
        let ino = keys::split_hsm(key).ok_or_else(|| row::damaged(what, key, "short key".into()))?;
        all.push((ino, row::decode(what, key, value)?));
        Ok(true)
    })?;
    Ok(all)
}
