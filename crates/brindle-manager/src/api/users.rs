//! Users, and the record of what they did.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};

use super::tokens::person;
use super::views::{AddUserReq, AuditView, UsersView};
use super::{Call, Nothing};
use crate::Manager;
use crate::access::users::Password;

/// All users.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<UsersView> {
    Ok(UsersView { users: call.manager.users.list() })
}

/// Adds a user.
pub async fn add(call: Arc<Call>, request: AddUserReq) -> Result<UsersView> {
    person(&call)?;
    let (manager, doer) = (&call.manager, call.doer());
    let AddUserReq { name, role, password, by_pam } = request;
    if by_pam == password.is_some() {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot add the user")
            .subject(name)
            .why("a user has either a password here, or one that the host knows")
            .data("nothing was changed")
            .next("give a password, or say that PAM is asked"));
    }
    let subject = format!("{name} ({}{})", role.word(), if by_pam { ", PAM" } else { "" });
    manager.audit.note(&doer, "user.add", &subject, "accepted", None)?;
    let add = move |manager: &Manager| {
        let password = password.as_deref().map_or(Password::ByPam, Password::Own);
        manager.users.add(&name, role, password)
    };
    let added = manager.hashing(add).await?;
    if let Err(fault) = &added {
        manager.audit.note(&doer, "user.add", &subject, "refused", Some(fault.code))?;
    }
    added?;
    list(call, Nothing {}).await
}

/// Removes a user and ends their sessions.
pub async fn remove(call: Arc<Call>, _: Nothing) -> Result<UsersView> {
    person(&call)?;
    let (manager, doer, name) = (&call.manager, call.doer(), call.param("name").to_owned());
    manager.audit.note(&doer, "user.remove", &name, "accepted", None)?;
    if let Err(fault) = manager.users.remove(&name) {
        manager.audit.note(&doer, "user.remove", &name, "refused", Some(fault.code))?;
        return Err(fault);
    }
    manager.sessions.end_of(&name);
    manager.tokens.revoke_of(&name)?;
    list(call, Nothing {}).await
}

/// The audit log.
pub async fn audit(call: Arc<Call>, _: Nothing) -> Result<AuditView> {
    Ok(AuditView { records: call.manager.audit.last() })
}
