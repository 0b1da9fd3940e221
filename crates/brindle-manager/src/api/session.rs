//! Logging in and out.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};

use super::guard::{self, cookie};
use super::views::{FirstReq, LogInReq, SessionView};
use super::{Call, Nothing};
use crate::Manager;
use crate::access::Role;

fn view(manager: &Manager, user: &str, role: Role, csrf: &str) -> SessionView {
    SessionView {
        user: user.to_owned(),
        role,
        csrf: csrf.to_owned(),
        fs: manager.state().fs.as_ref().map(|fs| fs.fs.clone()).unwrap_or_default(),
        version: env!("CARGO_PKG_VERSION"),
    }
}

/// Begins a session. An earlier session of the browser ends, so that nobody can choose the number of somebody else's
/// session.
fn begin(call: &Call, user: &str, role: Role) -> Result<SessionView> {
    let manager = &call.manager;
    if let Some(before) = guard::shown_session(&call.headers, manager.is_secure) {
        manager.sessions.end(before);
    }
    let begun = manager.sessions.begin(user)?;
    call.set_cookie(cookie(manager.is_secure, Some(&begun.id)));
    Ok(view(manager, user, role, &begun.csrf))
}

/// Logs a user in.
pub async fn log_in(call: Arc<Call>, request: LogInReq) -> Result<SessionView> {
    let (manager, address) = (&call.manager, call.peer.0.ip());
    let doer = call.doer_named(request.name.clone());
    let exists = manager.users.role(&request.name).is_some();
    if let Err(refused) = manager.attempts.begin_for(address, &request.name, exists) {
        if refused.is_first {
            manager.audit.note_refused_log_in(&doer, "log-in", refused.fault.code);
        }
        return Err(refused.fault);
    }
    let LogInReq { name, password } = request;
    let fits = manager.has_password(&name, &password).await?;
    let role = manager.users.role(&name).filter(|_| fits);
    let Some(role) = role else {
        manager.audit.note_refused_log_in(&doer, "log-in", Code::LogInRefused);
        return Err(Fault::new(Code::LogInRefused).why("there is no user of this name with this password"));
    };
    manager.attempts.succeeded(address, &name);
    manager.audit.note(&doer, "log-in", "", "done", None)?;
    begin(&call, &name, role)
}

/// Makes the first administrator and logs in.
pub async fn first(call: Arc<Call>, request: FirstReq) -> Result<SessionView> {
    let manager = &call.manager;
    let FirstReq { token, name, password } = request;
    let doer = call.doer_named(name.clone());
    manager.attempts.begin(call.peer.0.ip(), "")?;
    let taken = match manager.first.take(&token) {
        Ok(taken) => taken,
        Err(fault) => {
            manager.audit.note_refused_log_in(&doer, "log-in.first", fault.code);
            return Err(fault);
        }
    };
    let asked = name.clone();
    let noted = manager.audit.note(&doer, "log-in.first", &name, "accepted", None);
    let added = match noted {
        Ok(()) => manager.hashing(move |manager| manager.users.add_first(&asked, &password)).await,
        Err(fault) => Err(fault),
    };
    if let Err(fault) = added.and_then(|added| added) {
        taken.give_back();
        return Err(fault);
    }
    manager.attempts.succeeded(call.peer.0.ip(), "");
    begin(&call, &name, Role::Administrator)
}

/// Shows the user of the session.
pub async fn show(call: Arc<Call>, _: Nothing) -> Result<SessionView> {
    let caller = call.caller()?;
    Ok(view(&call.manager, &caller.session.user, caller.role, &caller.session.csrf))
}

/// Logs out.
pub async fn log_out(call: Arc<Call>, _: Nothing) -> Result<Nothing> {
    call.manager.sessions.end(&call.caller()?.session_id);
    call.set_cookie(cookie(call.manager.is_secure, None));
    call.manager.audit.note(&call.doer(), "log-out", "", "done", None)?;
    Ok(Nothing {})
}
