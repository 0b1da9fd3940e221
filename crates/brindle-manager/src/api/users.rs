//! Users, and the record of what they did.

use std::sync::Arc;

use brindle_types::Result;

use super::views::{AddUserReq, AuditView, UsersView};
use super::{Call, Nothing};

/// All users.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<UsersView> {
    Ok(UsersView { users: call.manager.users.list() })
}

/// Adds a user.
pub async fn add(call: Arc<Call>, request: AddUserReq) -> Result<UsersView> {
    let (manager, doer) = (&call.manager, call.doer());
    let AddUserReq { name, role, password } = request;
    let subject = format!("{name} ({})", role.word());
    manager.audit.note(&doer, "user.add", &subject, "accepted", None)?;
    let added = manager.hashing(move |manager| manager.users.add(&name, role, &password)).await?;
    if let Err(fault) = &added {
        manager.audit.note(&doer, "user.add", &subject, "refused", Some(fault.code))?;
    }
    added?;
    list(call, Nothing {}).await
}

/// Removes a user and ends their sessions.
pub async fn remove(call: Arc<Call>, _: Nothing) -> Result<UsersView> {
    let (manager, doer, name) = (&call.manager, call.doer(), call.param("name").to_owned());
    manager.audit.note(&doer, "user.remove", &name, "accepted", None)?;
    if let Err(fault) = manager.users.remove(&name) {
        manager.audit.note(&doer, "user.remove", &name, "refused", Some(fault.code))?;
        return Err(fault);
    }
    manager.sessions.end_of(&name);
    list(call, Nothing {}).await
}

/// The audit log.
pub async fn audit(call: Arc<Call>, _: Nothing) -> Result<AuditView> {
    Ok(AuditView { records: call.manager.audit.last() })
}
