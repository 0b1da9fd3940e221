//! Current connection of each session: the way of notices to clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_net::ServerConn;
use brindle_stdx::BoxFuture;
use brindle_types::{Result, SessionId, TargetId};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, Header};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::ask::{Notifier, not_connected};

/// Connections of sessions. A session has one at a time: the last that it was opened or resumed on.
pub struct Connections {
    target: TargetId,
    by_session: Mutex<BTreeMap<SessionId, Arc<ServerConn>>>,
}

impl Connections {
    /// A table without connections.
    pub fn new(target: TargetId) -> Arc<Connections> {
        Arc::new(Connections { target, by_session: Mutex::default() })
    }

    /// The session is on this connection from now on.
    pub fn bind(&self, session: SessionId, conn: &Arc<ServerConn>) {
        self.by_session.lock().insert(session, conn.clone());
    }

    /// Whether the session has gone on to another connection than this one.
    pub fn has_moved(&self, session: SessionId, conn_id: u64) -> bool {
        self.by_session.lock().get(&session).is_some_and(|conn| conn.id() != conn_id)
    }

    /// The session said goodbye.
    pub fn unbind(&self, session: SessionId) {
        self.by_session.lock().remove(&session);
    }

    /// Notes that a connection has ended. Returns the sessions that were on it.
    pub fn closed(&self, conn_id: u64) -> Vec<SessionId> {
        let mut table = self.by_session.lock();
        let gone: Vec<SessionId> =
            table.iter().filter(|(_, conn)| conn.id() == conn_id).map(|(id, _)| *id).collect();
        gone.iter().for_each(|id| drop(table.remove(id)));
        gone
    }

    /// Sessions that are connected.
    pub fn count(&self) -> usize {
        self.by_session.lock().len()
    }
}

impl Notifier for Connections {
    fn nid(&self, session: SessionId) -> Option<String> {
        let table = self.by_session.lock();
        let peer = table.get(&session)?.peer();
        let rail = if peer.rail == 0 { String::new() } else { peer.rail.to_string() };
        Some(format!("{}@tcp{rail}", peer.host))
    }

    fn ask(&self, session: SessionId, op: Op, body: Bytes) -> BoxFuture<'static, Result<Bytes>> {
        let conn = self.by_session.lock().get(&session).cloned();
        let header = Header { op: op as u16, session, target: Some(self.target), ..Header::default() };
        Box::pin(async move {
            let conn = conn.ok_or_else(|| not_connected(session))?;
            Ok(conn.notify(Frame::new(header, body)).await?.body)
        })
    }
}
