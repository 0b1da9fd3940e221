//! Authentication and authorisation of requests: sessions by cookie, requests forged by other pages, roles.

use axum::http::{HeaderMap, Method, header};
use brindle_types::{Code, Fault, Result};

use super::{Caller, Endpoint, Needs};
use crate::Manager;
use crate::access::Role;
use crate::access::secret::hashed;
use crate::access::sessions::{LOCAL_USER, Session};

/// Header that a request which changes something must carry. Pages of others cannot set it.
pub const CSRF_HEADER: &str = "x-brindle-csrf";
/// Name of the cookie behind TLS. Browsers take one of this name only from this very host, over TLS.
const COOKIE_SECURE: &str = "__Host-brindle-session";
/// Name of the cookie without TLS.
const COOKIE_PLAIN: &str = "brindle-session";

/// Name of the session's cookie.
pub fn cookie_name(is_secure: bool) -> &'static str {
    if is_secure { COOKIE_SECURE } else { COOKIE_PLAIN }
}

/// The cookie of a session, or the one that removes it.
pub fn cookie(is_secure: bool, id: Option<&str>) -> String {
    let (name, secure) = (cookie_name(is_secure), if is_secure { "; Secure" } else { "" });
    match id {
        Some(id) => format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict{secure}"),
        None => format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{secure}"),
    }
}

/// The session's number that a request shows.
pub fn shown_session(headers: &HeaderMap, is_secure: bool) -> Option<&str> {
    let name = cookie_name(is_secure);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Lets a request pass, or refuses it; who asks.
pub fn check(manager: &Manager, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Option<Caller>> {
    let changes = endpoint.method != Method::GET;
    if changes {
        check_origin(headers)?;
    }
    if let (Needs::Role(needed), Some(secret)) = (endpoint.needs, shown_token(headers)) {
        // No page of others can have a browser send this header.
        let caller = of_token(manager, secret)?;
        return has_role(caller, needed).map(Some);
    }
    let Needs::Role(needed) = endpoint.needs else {
        // The caller is still unknown; the presence of the header proves that no other page's form has sent the request.
        return if headers.contains_key(CSRF_HEADER) {
            Ok(None)
        } else {
            Err(forged("the header X-Brindle-CSRF is missing"))
        };
    };
    let caller = caller(manager, headers)?;
    if changes {
        let shown = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if hashed(shown) != hashed(&caller.session.csrf) {
            return Err(forged("the header X-Brindle-CSRF is missing, or is not that of the session"));
        }
    }
    has_role(caller, needed).map(Some)
}

fn has_role(caller: Caller, needed: Role) -> Result<Caller> {
    if caller.role >= needed {
        return Ok(caller);
    }
    Err(Fault::new(Code::RoleForbids)
        .what("may not do this:")
        .subject(caller.session.user)
        .why(format!("the role is {}, and {} is needed", caller.role.word(), needed.word()))
        .data("nothing was changed"))
}

/// The token that a request shows.
fn shown_token(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// The user for whom a token acts. Guesses are not counted: 256 bits cannot be guessed, and with a count strangers could use it up.
fn of_token(manager: &Manager, secret: &str) -> Result<Caller> {
    let none = || {
        Fault::new(Code::NotLoggedIn)
            .why("there is no such token: it has ended, or was revoked")
            .next("make another one")
    };
    let token = manager.tokens.shown(secret).ok_or_else(none)?;
    let role = manager.users.role(&token.user).or_else(|| is_local(&token.user)).ok_or_else(none)?;
    let session = Session::of_token(&token.user, manager.seams.now());
    Ok(Caller { session_id: String::new(), session, role: role.min(token.role), is_token: true })
}

/// A user of the local socket is an administrator, and may have tokens.
fn is_local(user: &str) -> Option<Role> {
    (user == LOCAL_USER).then_some(Role::Administrator)
}

/// The caller at the local socket, which only root may open.
pub fn local(manager: &Manager) -> Caller {
    let session = Session::local(manager.seams.now());
    Caller { session_id: String::new(), session, role: Role::Administrator, is_token: false }
}

/// The user whose session a request shows, with the role that the user has now.
pub fn caller(manager: &Manager, headers: &HeaderMap) -> Result<Caller> {
    let none = || Fault::new(Code::NotLoggedIn);
    let id = shown_session(headers, manager.is_secure).ok_or_else(none)?;
    let session = manager.sessions.used(id).ok_or_else(none)?;
    let role = manager.users.role(&session.user).ok_or_else(none)?;
    Ok(Caller { session_id: id.to_owned(), session, role, is_token: false })
}

/// Refuses what a browser says to come from another page.
fn check_origin(headers: &HeaderMap) -> Result<()> {
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or("?"));
    if let Some(site) = site.filter(|site| !matches!(*site, "same-origin" | "none")) {
        return Err(forged(&format!("the browser says that it comes from a page elsewhere ({site})")));
    }
    if let Some(origin) = text(header::ORIGIN) {
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        if text(header::HOST) != Some(host) {
            return Err(forged("its origin is another address than the manager's"));
        }
    }
    let is_json = text(header::CONTENT_TYPE).is_none_or(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    });
    if is_json { Ok(()) } else { Err(forged("its body is not said to be JSON")) }
}

fn forged(why: &str) -> Fault {
    Fault::new(Code::ForgedRequest).why(why.to_owned()).data("nothing was changed")
}
