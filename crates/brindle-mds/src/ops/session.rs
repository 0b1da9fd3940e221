//! session_open, session_renew, session_close: a client's identity at this MDT.
//!
//! | the client | has a row | gets |
//! |---|---|---|
//! | is new | no | a new session, durable before it is told |
//! | resumes | alive | the same, and reclaims if the MDT restarted |
//! | resumes | ended, or being ended | `StaleSession`: its handles are dead |
//! | begins again | any | the same id under a new epoch, without handles; its replies are kept |
//!
//! A session belongs to the host that opened it. One whose host was renamed goes on under the new name of the host.

use brindle_stdx::Mono;
use brindle_types::{Code, Fault, Ino, Result, SessionId};
use brindle_wire::mds::Empty;
use brindle_wire::mds::session::{
    SessionCloseReq, SessionOpenReq, SessionOpenResp, SessionRenewReq, SessionRenewResp,
};

use brindle_wire::Op;

use crate::expire;
use crate::mdt::{Call, Event, LiveSession, Mdt, SLOTS_MAX};
use crate::store::{meta, reply, session};

/// Sessions of one MDT.
pub const SESSIONS_MAX: usize = 65_536;

/// The refusal of a host that uses another one's session.
pub fn of_another_host(session: SessionId, host: &str, owner: &str) -> Fault {
    Fault::new(Code::NotForCaller)
        .what(format!("{session} is not for"))
        .subject(format!("host {host}"))
        .why(format!("host {owner} has opened it"))
        .data("nothing was changed")
}

/// Opens a session for a client on `host`, or finds the one that the client had. `is_former_name`: whether the host went by a name before.
pub async fn handle_open(
    mdt: &Mdt,
    mut req: SessionOpenReq,
    host: &str,
    is_former_name: impl Fn(&str) -> bool,
) -> Result<SessionOpenResp> {
    // The connection says where the client is, whatever the request says.
    req.host = host.to_owned();
    if let Some((session, owner)) = owner(mdt, &req.client_uuid)
        && owner != host
        && !brindle_stdx::planted("mds_session_of_another_host")
    {
        if !is_former_name(&owner) {
            return Err(of_another_host(session, host, &owner));
        }
        rename_host(mdt, session, host).await?;
    }
    // The header names the session that the client had, if any; it need not be alive.
    let call = &Call::internal(Op::SessionOpen);
    match (find(mdt, &req.client_uuid), req.resume) {
        (Some((id, true)), true) => renewed(mdt, id),
        (_, true) => Err(Fault::new(Code::StaleSession).subject(req.mount)),
        (Some((id, _)), false) => {
            // The client begins anew, so nobody owns the session's former rights. (Or the first answer to the client was
            // lost.) Finish an end that is under way first: otherwise it would take rights of the new life of the session.
            if holds_something(mdt, id) {
                forgotten(mdt, id);
                expire::end(mdt, id, "its client began again").await;
            }
            revive(mdt, call, id, &req).await
        }
        (None, false) => make(mdt, call, &req).await,
    }
}

/// The host of a session goes by another name.
async fn rename_host(mdt: &Mdt, id: SessionId, host: &str) -> Result<()> {
    mdt.step(&Call::internal(Op::SessionOpen), |t| {
        t.frees_space();
        let Some(mut row) = session::find(t, id)? else {
            return Err(Fault::new(Code::StaleSession).subject(id.to_string()).into());
        };
        row.host = host.to_owned();
        session::put(t, id, &row);
        t.after(move |live| {
            if let Some(session) = live.sessions.get_mut(&id) {
                session.row = row;
            }
        });
        Ok(())
    })
    .await
}

/// The session of a client, and whether it lives on.
fn find(mdt: &Mdt, uuid: &[u8; 16]) -> Option<(SessionId, bool)> {
    let live = mdt.live();
    let found = live.sessions.iter().find(|(_, s)| s.row.client_uuid == *uuid);
    found.map(|(id, _)| (*id, live.may_renew(*id)))
}

/// The session of a client, and the host that has opened it.
fn owner(mdt: &Mdt, uuid: &[u8; 16]) -> Option<(SessionId, String)> {
    let live = mdt.live();
    let found = live.sessions.iter().find(|(_, s)| s.row.client_uuid == *uuid);
    found.map(|(id, s)| (*id, s.row.host.clone()))
}

/// The client has forgotten what it knew: the end of its session need not wait until the lease has run out.
fn forgotten(mdt: &Mdt, id: SessionId) {
    let mut live = mdt.live_mut();
    if let Some(session) = live.sessions.get_mut(&id) {
        session.renewed = Mono::default();
    }
    live.events.fire(Event::Session(id));
}

fn holds_something(mdt: &Mdt, id: SessionId) -> bool {
    let live = mdt.live();
    let reclaims = live.sessions.get(&id).is_some_and(|s| s.must_reclaim);
    reclaims || !live.opens.of_session(id).is_empty() || live.ending.contains(&id)
}

async fn make(mdt: &Mdt, call: &Call, req: &SessionOpenReq) -> Result<SessionOpenResp> {
    if mdt.live().sessions.len() >= SESSIONS_MAX {
        return Err(Fault::new(Code::Overloaded).why(format!("there are {SESSIONS_MAX} sessions")));
    }
    let made = mdt.step(call, |t| {
        // A full file system can still be mounted.
        t.frees_space();
        let id = meta::next_session(t)?;
        let row = session::Session {
            client_uuid: req.client_uuid,
            epoch: t.pair(),
            ended: false,
            fenced: true,
            host: req.host.clone(),
            mount: req.mount.clone(),
        };
        session::put(t, id, &row);
        let renewed = t.mdt().hearing().now();
        t.after(move |live| {
            live.sessions.insert(id, LiveSession { row, renewed, must_reclaim: false, limits: None });
        });
        Ok(id)
    });
    let id = made.await?;
    // Ids are not given out twice, not even after a power cut.
    mdt.synced().await?;
    renewed(mdt, id)
}

/// An ended session lives again, under the epoch that it was fenced with.
async fn revive(mdt: &Mdt, call: &Call, id: SessionId, req: &SessionOpenReq) -> Result<SessionOpenResp> {
    let revived = mdt.step(call, |t| {
        t.frees_space();
        let Some(mut row) = session::find(t, id)? else {
            return Err(Fault::new(Code::StaleSession).subject(id.to_string()).into());
        };
        row.ended = false;
        row.host = req.host.clone();
        row.mount = req.mount.clone();
        session::put(t, id, &row);
        let renewed = t.mdt().hearing().now();
        t.after(move |live| {
            if let Some(session) = live.sessions.get_mut(&id) {
                session.row = row;
                session.renewed = renewed;
                session.must_reclaim = false;
            }
        });
        Ok(())
    });
    revived.await?;
    mdt.synced().await?;
    renewed(mdt, id)
}

/// The lease begins anew, and operations that wait for the session to be reachable check again.
fn renewed(mdt: &Mdt, id: SessionId) -> Result<SessionOpenResp> {
    let now = mdt.hearing().now();
    let mut live = mdt.live_mut();
    live.events.fire(Event::Session(id));
    let may = live.may_renew(id);
    let limits_serial = live.limits.serial();
    let Some(session) = live.sessions.get_mut(&id).filter(|_| may) else {
        return Err(Fault::new(Code::StaleSession).subject(id.to_string()));
    };
    session.renewed = now;
    Ok(SessionOpenResp {
        session: id,
        epoch: session.row.epoch,
        lease_ms: mdt.config().lease_ms,
        slots_max: SLOTS_MAX,
        mdt_term: mdt.numbers().term(),
        root: Ino::ROOT,
        must_reclaim: session.must_reclaim,
        limits_serial,
    })
}

/// Keeps the session alive.
pub async fn handle_renew(mdt: &Mdt, call: &Call, _req: SessionRenewReq) -> Result<SessionRenewResp> {
    let now = mdt.hearing().now();
    let mut live = mdt.live_mut();
    if live.session(call.session, call.epoch).is_none() || !live.may_renew(call.session) {
        return Err(Fault::new(Code::StaleSession).subject(call.session.to_string()));
    }
    if let Some(session) = live.sessions.get_mut(&call.session) {
        session.renewed = now;
    }
    Ok(SessionRenewResp { mdt_term: mdt.numbers().term(), limits_serial: live.limits.serial() })
}

/// Goodbye: handles, locks, reply rows and the session row go.
pub async fn handle_close(mdt: &Mdt, call: &Call, _req: SessionCloseReq) -> Result<Empty> {
    let id = call.session;
    if mdt.live().session(id, call.epoch).is_none() {
        return Err(Fault::new(Code::StaleSession).subject(id.to_string()));
    }
    expire::release(mdt, id, None).await?;
    mdt.step(call, |t| {
        t.frees_space();
        reply::delete_all(t, id)?;
        session::delete(t, id);
        t.after(move |live| {
            live.sessions.remove(&id);
            live.limits.end(id);
            live.events.fire(Event::Session(id));
        });
        Ok(Empty {})
    })
    .await
}
