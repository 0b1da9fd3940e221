//! `C|session`: clients. A row lives until the client says goodbye or an administrator removes it, not until its
//! lease ends.

use brindle_types::{Pair, Result, SessionId};
use serde::{Deserialize, Serialize};

use super::{Changes, Rows, for_each, keys, row};

row::first_form!(Session);

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Chosen by the client at mount.
    pub client_uuid: [u8; 16],
    /// Fencing epoch: everything older is refused here and at the OSTs.
    pub epoch: Pair,
    /// The lease ran out (or the session was removed): its handles are dead, its replies are kept.
    pub ended: bool,
    /// The OSTs know of `epoch` since the session was last ended.
    pub fenced: bool,
    /// Host, for people.
    pub host: String,
    /// Mount point, for people.
    pub mount: String,
}

/// A session.
pub fn find(rows: &(impl Rows + ?Sized), id: SessionId) -> Result<Option<Session>> {
    let key = keys::session(id);
    rows.row(&key)?.map(|value| row::decode("session", &key, &value)).transpose()
}

/// Sets a session.
pub fn put(t: &mut Changes<'_>, id: SessionId, session: &Session) {
    t.put_row(keys::session(id), session);
}

/// Removes a session.
pub fn delete(t: &mut Changes<'_>, id: SessionId) {
    t.delete(keys::session(id));
}

/// All sessions in order of id.
pub fn list(rows: &(impl Rows + ?Sized)) -> Result<Vec<(SessionId, Session)>> {
    let mut sessions = Vec::new();
    for_each(rows, &[keys::SESSION], |key, value| {
        let (id, _) = keys::split_ino(key).ok_or_else(|| row::damaged("session", key, "short key".into()))?;
        sessions.push((SessionId(id.0), row::decode("session", key, value)?));
        Ok(true)
    })?;
    Ok(sessions)
}
