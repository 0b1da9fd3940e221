//! Tokens of programs: each user has some, and an administrator sees all of them.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};

use super::views::{AddTokenReq, NewTokenView, TokensView};
use super::{Call, Nothing};
use crate::access::Role;

/// Whose tokens somebody may see and revoke; `None` for everybody's.
fn of(call: &Call) -> Result<Option<&str>> {
    let caller = call.caller()?;
    Ok((caller.role < Role::Administrator).then_some(caller.session.user.as_str()))
}

/// A token manages neither tokens nor users: a stolen token could otherwise keep the door open for
/// ever.
pub(super) fn person(call: &Call) -> Result<()> {
    if !call.caller()?.is_token {
        return Ok(());
    }
    Err(Fault::new(Code::RoleForbids)
        .what("may not do this:")
        .subject("a token")
        .why("users and tokens are managed by people who are logged in")
        .data("nothing was changed")
        .next("log in at the console, or use 'brindle manager user' and 'token' on the manager's host"))
}

/// The tokens.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<TokensView> {
    Ok(TokensView { tokens: call.manager.tokens.list(of(&call)?) })
}

/// Makes a token for the caller.
pub async fn add(call: Arc<Call>, request: AddTokenReq) -> Result<NewTokenView> {
    person(&call)?;
    let (manager, doer, caller) = (&call.manager, call.doer(), call.caller()?);
    let subject = format!("{} ({}, {} days)", request.name, request.role.word(), request.days);
    if request.role > caller.role {
        return Err(Fault::new(Code::RoleForbids)
            .what("cannot make the token")
            .subject(request.name)
            .why(format!("its role is {}, and yours is {}", request.role.word(), caller.role.word()))
            .data("nothing was changed"));
    }
    manager.audit.note(&doer, "token.add", &subject, "accepted", None)?;
    let made = manager.tokens.add(&caller.session.user, &request.name, request.role, request.days);
    if let Err(fault) = &made {
        manager.audit.note(&doer, "token.add", &subject, "refused", Some(fault.code))?;
    }
    made.map(|(token, secret)| NewTokenView { secret, token })
}

/// Revokes a token.
pub async fn revoke(call: Arc<Call>, _: Nothing) -> Result<TokensView> {
    person(&call)?;
    let (manager, doer, id) = (&call.manager, call.doer(), call.param("id").to_owned());
    manager.audit.note(&doer, "token.revoke", &id, "accepted", None)?;
    // A text that is no number counts as 0, the number of no token.
    if let Err(fault) = manager.tokens.revoke(of(&call)?, id.parse().unwrap_or(0)) {
        manager.audit.note(&doer, "token.revoke", &id, "refused", Some(fault.code))?;
        return Err(fault);
    }
    list(call, Nothing {}).await
}
