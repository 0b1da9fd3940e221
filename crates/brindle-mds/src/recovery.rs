//! Recovery after a restart: clients declare again what they had open and locked; then files that no client declared are recovered.
//!
//! | while it lasts | waits |
//! |---|---|
//! | a client that had a session may still declare its opens | opens for writing, new locks, purging of files without names, the end of write sessions |
//!
//! An open for reading meanwhile does not get the right to keep pages, because a writer may not have declared itself yet. If a sole writer
//! does so later, it gives its right back ([`share_again`]).
//!
//! Recovery ends when every client of `C|` has declared, or has been silent for a lease in which others were heard ([`DOUBT_MS`] if none
//! was heard). Reading and everything else goes on. Nobody waits for clients that had ended before.

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_types::{Code, Fault, Ino, Result, SessionId};
use brindle_wire::Op;
use brindle_wire::mds::lock::LockState;
use brindle_wire::mds::open::{OpenGrant, OpenMode};
use brindle_wire::mds::session::{RECLAIM_ITEMS_MAX, ReclaimOpen, ReclaimReq, ReclaimResp};
use brindle_wire::notify::Recall;

use crate::hearing::DOUBT_MS;
use crate::locking::Answer;
use crate::mdt::{Call, Event, Live, Mdt, SideTask};
use crate::opens::Writing;
use crate::ops::append;
use crate::store::watch::Watched;
use crate::store::{self, inode, orphan, watch};
use crate::{admission, ask, expire, grant, namespace};

/// Interval at which the progress of reclaim is checked.
const LOOK_MS: u64 = 50;

/// Waits until clients have had their time to declare what they had before a restart.
pub async fn over(mdt: &Mdt) {
    loop {
        let over = {
            let mut live = mdt.live_mut();
            if !live.recovering {
                return;
            }
            live.events.wait(Event::Recovered)
        };
        // The sender is dropped, not used.
        let _ = over.await;
    }
}

/// Before the first request is served: reclaim is on if there is anybody to wait for, or anything to recover. The end of a
/// session that the stop cut short comes to its end, before the session may live again.
pub async fn begin(mdt: &Mdt) -> Result<()> {
    let reserved = store::append::all(mdt.engine())?;
    let mut ended: BTreeSet<SessionId> = reserved.into_iter().map(|(_, _, row)| row.session).collect();
    ended.retain(|session| !mdt.live().is_alive(*session));
    if !ended.is_empty() {
        expire::reservations(mdt, &ended).await?;
    }
    let watched = watch::list(mdt.engine())?;
    let left_over = !watched.is_empty() || !orphan::list(mdt.engine())?.is_empty();
    let mut cut_short = BTreeSet::new();
    for watched in watched {
        let ino = watched.ino;
        let file = inode::find(mdt.engine(), ino)?;
        if file.and_then(|file| file.file?.pending_cut).is_some() {
            cut_short.insert(ino);
        }
    }
    let mut live = mdt.live_mut();
    live.cut_short = cut_short;
    live.recovering = left_over || live.sessions.values().any(|s| s.must_reclaim);
    Ok(())
}

/// Waits until reclaim is over and recovers what is left.
pub async fn run(mdt: Arc<Mdt>) {
    // While no client at all is heard, recovery waits: the network of this host may not be up yet.
    let mut until = mdt.hearing().now().plus_ms(DOUBT_MS);
    let mut is_heard = false;
    loop {
        let missing: Vec<SessionId> = {
            let live = mdt.live();
            let (missing, heard): (Vec<_>, Vec<_>) =
                live.sessions.iter().filter(|(_, s)| !s.row.ended).partition(|(_, s)| s.must_reclaim);
            if !is_heard && !heard.is_empty() {
                is_heard = true;
                until = until.min(mdt.hearing().now().plus_ms(mdt.config().lease_ms.into()));
            }
            missing.into_iter().map(|(id, _)| *id).collect()
        };
        if missing.is_empty() {
            break;
        }
        if mdt.hearing().now() > until {
            for session in missing {
                expire::end(&mdt, session, "it did not come back after the MDT restarted").await;
            }
            break;
        }
        mdt.seams().sleep_ms(LOOK_MS).await;
    }
    if let Err(fault) = finish(&mdt).await {
        tracing::error!(%fault, "recovery after a restart did not finish");
    }
}

async fn finish(mdt: &Arc<Mdt>) -> Result<()> {
    let (watched, owed) = {
        let mut live = mdt.live_mut();
        let watched = watch::list(mdt.engine());
        // Only the objects know the writes of sessions that did not declare themselves again.
        let is_owed = |w: &Watched| w.is_owed || !live.opens.is_written(w.ino);
        let owed: BTreeSet<Ino> = watched.iter().flatten().filter(|w| is_owed(w)).map(|w| w.ino).collect();
        // In the same moment, so that no writer who closes one of them ends its write session before its objects are asked.
        owed.iter().for_each(|ino| live.recovery_due(*ino));
        live.recovering = false;
        live.events.fire(Event::Recovered);
        (watched?, owed)
    };
    for Watched { ino, .. } in watched {
        expire::recover_in_background(mdt, ino, None, owed.contains(&ino));
    }
    for ino in orphan::list(mdt.engine())? {
        purge(mdt, ino).await?;
    }
    tracing::info!("recovery is over");
    Ok(())
}

/// Removes an inode without a name, unless a client has declared it open.
pub async fn purge(mdt: &Mdt, ino: Ino) -> Result<()> {
    let call = Call::internal(Op::Unlink);
    mdt.step(&call, |t| {
        t.frees_space();
        t.idle(ino)?;
        if !t.live().may_purge(ino) {
            return Ok(());
        }
        match inode::find(t, ino)? {
            Some(file) if file.nlink == 0 => namespace::purge(t, &file),
            _ => {
                orphan::delete(t, ino);
                Ok(())
            }
        }
    })
    .await
}

/// Takes in what a client had before the restart.
pub async fn reclaim(mdt: &Mdt, call: &Call, req: ReclaimReq) -> Result<ReclaimResp> {
    if [req.opens.len(), req.locks.len(), req.appends.len()].iter().any(|n| *n > RECLAIM_ITEMS_MAX) {
        return Err(Fault::new(Code::InvalidArgument).why("too many opens, locks or appends at once"));
    }
    let term = mdt.numbers().term();
    if req.mdt_term != term {
        // A request that continues what an MDT was told that is gone. Were it taken in, the client would count as one that
        // has declared everything.
        let why = format!("the MDT was restarted: this is its term {term}, the request has {}", req.mdt_term);
        return Err(Fault::new(Code::Disconnected).why(why));
    }
    if !mdt.live().session(call.session, call.epoch).is_some_and(|s| s.must_reclaim) {
        return Err(Fault::new(Code::StaleSession).subject(call.session.to_string()));
    }
    let mut opens = Vec::with_capacity(req.opens.len());
    for open in &req.opens {
        opens.push(take_in(mdt, call, open).await);
    }
    // A limited host gets only handles that it may open.
    let is_limited = call.admission().is_some();
    let holds = |ino: Ino| !is_limited || mdt.live().opens.held(ino, call.session).is_some();
    let writes = |ino: Ino| !is_limited || mdt.live().opens.is_written_by(ino, call.session);
    for (ino, lock) in req.locks.iter().filter(|(ino, _)| holds(*ino)) {
        reclaim_lock(mdt, call.session, *ino, lock);
    }
    if req.done {
        let appends: Vec<_> = req.appends.iter().filter(|append| writes(append.ino)).cloned().collect();
        append::reclaim(mdt, call, &appends).await?;
        if let Some(session) = mdt.live_mut().sessions.get_mut(&call.session) {
            session.must_reclaim = false;
        }
        share_again(mdt, call.session);
    }
    Ok(ReclaimResp { opens })
}

/// Has sole writers that declared themselves give their exclusive right back if others have the file open. A power cut may have
/// taken the mark of the sole writer, so that others could open the file for reading first. Runs after the whole declaration, in
/// the background: the writer may be able to send its buffered writes only after it has this answer.
fn share_again(mdt: &Mdt, declared_by: SessionId) {
    let shared: BTreeSet<(Ino, SessionId)> = {
        let live = mdt.live();
        let declared = live.opens.of_session(declared_by).into_iter().map(|(ino, _)| ino);
        // The session that declared itself first holds the file.
        let held = |ino: Ino| match live.opens.writing(ino) {
            Writing::Exclusive(holder) if is_beside_others(&live, ino, holder) => Some((ino, holder)),
            _ => None,
        };
        declared.filter_map(held).collect()
    };
    for (ino, holder) in shared {
        let Some(mdt) = mdt.me() else { return };
        mdt.clone().spawn("share file", async move {
            if let Err(fault) = exclusive_back(&mdt, ino, holder).await {
                tracing::error!(%holder, inode = %ino.fid(), %fault, "a sole writer was not told of others");
            }
        });
    }
}

/// Whether the sole writer of a file is not the only one that has it open.
fn is_beside_others(live: &Live, ino: Ino, holder: SessionId) -> bool {
    live.opens.writing(ino) == Writing::Exclusive(holder) && !live.opens.others(ino, holder).is_empty()
}

async fn exclusive_back(mdt: &Mdt, ino: Ino, holder: SessionId) -> Result<()> {
    // A recall that was under way already may have been one of another right.
    while is_beside_others(&mdt.live(), ino, holder) {
        ask::run(mdt, SideTask::Recall { ino, right: Recall::Exclusive, from: vec![holder] }).await?;
    }
    Ok(())
}

async fn take_in(mdt: &Mdt, call: &Call, open: &ReclaimOpen) -> Result<OpenGrant> {
    let mode = match (open.exclusive, open.cached) {
        (true, _) => OpenMode::Exclusive,
        (_, true) => OpenMode::Cached,
        _ => OpenMode::Direct,
    };
    mdt.step(call, |t| {
        let Some(mut file) = inode::find(t, open.ino)? else {
            let why = "a power cut took its creation before anybody synced it";
            return Err(Fault::new(Code::HandleStale).subject(open.ino.fid().to_string()).why(why).into());
        };
        admission::may_reclaim(t, call, &file, open)?;
        grant::restore(t, call.session, &mut file, open, mode)?;
        let readable = open.access.read || open.access.execute || call.admission().is_none();
        Ok(grant::grant(t, &file, mode, readable)?)
    })
    .await
}

fn reclaim_lock(mdt: &Mdt, session: SessionId, ino: Ino, lock: &LockState) {
    if let Answer::Now(Err(fault)) = mdt.locks().set(ino, session, lock, None) {
        // Cannot happen while clients tell the truth: what they held before did not conflict.
        tracing::error!(%session, inode = %ino.fid(), %fault, "a lock could not be reclaimed");
    }
}
