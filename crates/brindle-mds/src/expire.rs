//! The end of sessions whose lease ran out, and the fencing of silent clients.
//!
//! | step | then |
//! |---|---|
//! | 0 its lease is not renewed any more, and runs out | its client answers nothing from what it knows |
//! | 1 the session's epoch is raised and synced | the MDT refuses its requests |
//! | 2 every OST refuses older epochs | no late request of the session changes data any more; questions to it count as answered |
//! | 3 locks, handles, reservations go in batches | others are granted what it held |
//! | 4 files that it wrote: size := max(MDT, objects) | write opens of them wait, and their write sessions go on, until the size is known |
//!
//! An OST that does not answer in step 2 within [`FENCE_WAIT_MS`] learns of the fence before it serves any client that was told of a
//! later state. Every reply carries the version of the table of fences, every client shows the highest version it was told, and an OST
//! with an older table asks for the newer one first. (It also asks at its start and over each new connection to the MDT, and this side
//! goes on telling it.) Step 4 asks only OSTs that know of the fence, so that no late write extends a file after its recovery.

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_types::{Code, Ino, Result, SessionId};
use brindle_wire::Op;
use brindle_wire::oss::fence::FenceSessionReq;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::hearing::Doubt;
use crate::mdt::{Call, Event, Live, Mdt, Step, Txn};
use crate::ops::append;
use crate::store::{self, Rows, inode, watch};
use crate::{attrs, grant, namespace};

/// Interval at which leases are checked.
const LOOK_MS: u64 = 250;
/// Longest wait of the end of a session for OSTs that do not answer.
const FENCE_WAIT_MS: u64 = 2_000;
/// Pause before the recovery of a file that met a failing OST is tried again.
const RECOVER_AGAIN_MS: u64 = 1_000;
/// Files that are noted in one batch.
const OWED_AT_ONCE: usize = 10_000;
/// Tries after which the file is what the OSTs say that can: nobody could write it any more otherwise.
const RECOVER_TRIES: u32 = 30;

/// Ends sessions that were not renewed in time, for as long as the MDT runs.
pub async fn watch_leases(mdt: Arc<Mdt>) {
    let mut doubt = Doubt::default();
    loop {
        mdt.seams().sleep_ms(LOOK_MS).await;
        for session in doubt.due(&mdt) {
            let mdt = mdt.clone();
            mdt.clone().spawn("session end", async move {
                end(&mdt, session, "its lease ran out").await;
            });
        }
    }
}

/// Ends a session. Returns when operations that waited for the session may go on; at once if the session has ended
/// already.
pub async fn end(mdt: &Mdt, session: SessionId, reason: &str) {
    let mut has_waited = false;
    loop {
        let under_way = {
            let mut live = mdt.live_mut();
            if live.ending.contains(&session) {
                live.events.wait(Event::Session(session))
            } else if has_waited || !live.is_alive(session) {
                return;
            } else {
                live.ending.insert(session);
                break;
            }
        };
        // The sender is dropped, not used. The wait also ends for changes of connections, which do not end a session;
        // hence the loop.
        let _ = under_way.await;
        has_waited = true;
    }
    tracing::warn!(%session, reason, "a session is being ended");
    run_out(mdt, session).await;
    if let Err(fault) = give_up(mdt, session).await {
        tracing::error!(%session, %fault, "a session could not be ended");
    }
    let mut live = mdt.live_mut();
    live.limits.end(session);
    live.ending.remove(&session);
    live.events.fire(Event::Session(session));
}

/// Waits until the lease of a session that is being ended is over for its client, too. A client that left a question unanswered
/// may have renewed the lease since. Until the lease ends, the client answers from its cache and shows cached pages, whatever
/// others change.
async fn run_out(mdt: &Mdt, session: SessionId) {
    let lease_ms = u64::from(mdt.config().lease_ms);
    loop {
        let (left_ms, changed) = {
            let mut live = mdt.live_mut();
            let Some(renewed) = live.sessions.get(&session).map(|known| known.renewed) else { return };
            let since_ms = mdt.hearing().now().ms_since(renewed);
            if since_ms > lease_ms {
                return;
            }
            (lease_ms + 1 - since_ms, live.events.wait(Event::Session(session)))
        };
        // Sooner if its client begins again.
        let _ = mdt.seams().timeout_ms(left_ms, changed).await;
    }
}

/// Files to which a session may have written bytes that no report mentions: those that it has open for writing. If it has not
/// declared them since a restart, all files that were open for writing then.
fn owed_by(rows: &impl Rows, live: &Live, session: SessionId) -> Result<BTreeSet<Ino>> {
    if live.sessions.get(&session).is_some_and(|known| known.must_reclaim) {
        return Ok(watch::list(rows)?.into_iter().map(|watched| watched.ino).collect());
    }
    let opens = &live.opens;
    let handles = opens.of_session(session).into_iter();
    let written = handles.filter(|(ino, h)| opens.get(*ino, session, *h).is_some_and(|h| h.write));
    Ok(written.map(|(ino, _)| ino).collect())
}

/// Marks most of these files as owed, so that their objects are asked and the batch that ends the session has space for the rest.
async fn note_owed(mdt: &Mdt, session: SessionId) -> Result<BTreeSet<Ino>> {
    let mut noted = BTreeSet::new();
    loop {
        let owed = owed_by(mdt.engine(), &mdt.live(), session)?;
        let some: Vec<Ino> = owed.difference(&noted).take(OWED_AT_ONCE).copied().collect();
        if some.len() < OWED_AT_ONCE {
            return Ok(noted);
        }
        let call = Call::internal(Op::SessionClose);
        let note = mdt.step(&call, |t| {
            t.frees_space();
            some.iter().for_each(|ino| watch::put_owed(t, *ino));
            Ok(())
        });
        note.await?;
        noted.extend(some);
    }
}

async fn give_up(mdt: &Mdt, session: SessionId) -> Result<()> {
    let call = Call::internal(Op::SessionClose);
    let noted = note_owed(mdt, session).await?;
    let epoch = mdt
        .step(&call, |t| {
            t.frees_space();
            let epoch = t.pair();
            let Some(mut row) = store::session::find(t, session)? else { return Ok(epoch) };
            (row.ended, row.fenced, row.epoch) = (true, false, epoch);
            store::session::put(t, session, &row);
            // A restart forgets the handles of the session. From now on that includes handles that it would
            // have declared.
            owed_by(&*t, t.live(), session)?.difference(&noted).for_each(|ino| watch::put_owed(t, *ino));
            t.after(move |live| {
                if let Some(known) = live.sessions.get_mut(&session) {
                    known.row = row;
                    known.must_reclaim = false;
                }
                live.fencing.insert(session);
            });
            Ok(epoch)
        })
        .await?;
    mdt.fences_changed();
    let question = FenceSessionReq { session, epoch };
    let synced = mdt.synced().await;
    if synced.is_ok() {
        fence(mdt, question.clone()).await;
    }
    {
        let mut live = mdt.live_mut();
        live.fencing.remove(&session);
        live.events.fire(Event::Session(session));
    }
    synced?;
    release(mdt, session, Some(question)).await
}

/// Tells every OST; goes on in the background with those that do not answer soon.
async fn fence(mdt: &Mdt, question: FenceSessionReq) {
    let session = question.session;
    let (tell, told) = oneshot::channel();
    let Some(me) = mdt.me() else { return };
    let calls = async move {
        let fenced = me.osts().all().await;
        let asked = fenced.iter().map(|ost| me.osts().insist(*ost, &question));
        for refused in join_all(asked).await.into_iter().filter_map(|answer| answer.err()) {
            if refused.code == Code::TargetRemoved {
                continue;
            }
            tracing::error!(%session, fault = %refused, "an OST refused a fence");
        }
        // Fails if the receiver has stopped waiting.
        let _ = tell.send(());
    };
    mdt.spawn("fence", calls);
    if mdt.seams().timeout_ms(FENCE_WAIT_MS, told).await.is_none() {
        tracing::warn!(%session, "an OST does not answer; it is told of the fence before it serves again");
    }
}

/// Takes away everything that a session holds (it is ended, with the fence of that, or said goodbye).
pub async fn release(mdt: &Mdt, session: SessionId, fence: Option<FenceSessionReq>) -> Result<()> {
    mdt.locks().drop_session(session);
    mdt.live_mut().leases.get_mut().forget_session(session);
    let handles = mdt.live().opens.of_session(session);
    let mut wrote = Vec::new();
    let given_back = async {
        for (ino, handle) in handles {
            // Use one batch a handle: each sees the changes of the batch before.
            let call = Call::internal(Op::SessionClose);
            let recover = mdt.step(&call, |t| {
                t.frees_space();
                give_back(t, session, ino, handle)
            });
            if recover.await? {
                wrote.push(ino);
            }
        }
        reservations(mdt, &BTreeSet::from([session])).await
    };
    let outcome = given_back.await;
    // The files are recovered even if one handle could not be given back: no other task would do it for the
    // others.
    for ino in wrote {
        recover_in_background(mdt, ino, fence.clone(), true);
    }
    outcome
}

/// Gives one handle back. Returns `true` if a recovery of the file must follow, for one of two reasons. Either the size has
/// to be learnt from the objects, and the write session stays until then. Or the file is to go with this handle while an
/// operation of several steps works on it; waiting here is no option, because that operation may wait for the end of this
/// very session.
fn give_back(t: &mut Txn<'_>, session: SessionId, ino: Ino, handle: u64) -> Step<bool> {
    let Some(mut file) = inode::find(t, ino)? else {
        t.after(move |live| {
            live.opens.remove(ino, session, handle);
        });
        return Ok(false);
    };
    let opens = &t.live().opens;
    let wrote = opens.get(ino, session, handle).is_some_and(|h| h.write);
    let goes = file.nlink == 0 && opens.others(ino, session).is_empty();
    let goes_later = goes && t.idle(ino).is_err();
    if (!wrote || file.is_inline() || goes) && !goes_later {
        grant::close(t, session, &mut file, handle)?;
        return Ok(false);
    }
    if file.is_watched() {
        watch::put_owed(t, ino);
    }
    t.after(move |live| {
        live.opens.remove(ino, session, handle);
        // Do this in the same step, so that a close of the file does not end its write session before its objects are
        // asked.
        live.recovery_due(ino);
    });
    Ok(true)
}

/// Reservations of appends by sessions that have ended become holes.
pub async fn reservations(mdt: &Mdt, ended: &BTreeSet<SessionId>) -> Result<()> {
    let call = Call::internal(Op::AppendDone);
    mdt.step(&call, |t| {
        t.frees_space();
        for (ino, offset, row) in store::append::all(t)? {
            if ended.contains(&row.session) && !row.done {
                store::append::put(t, ino, offset, &store::append::Reservation { done: true, ..row });
                append::drop_done(t, ino)?;
            }
        }
        Ok(())
    })
    .await
}

/// Recovers a file that a vanished client may have written, however long its OSTs are away. An OST whose disk fails is waited for
/// only a limited number of tries. `is_owed`: the caller has called [`Live::recovery_due`], and opens for writing wait for this
/// recovery.
pub fn recover_in_background(mdt: &Mdt, ino: Ino, fence: Option<FenceSessionReq>, is_owed: bool) {
    let Some(mdt) = mdt.me() else { return };
    mdt.clone().spawn("recover file", async move {
        let mut tries = 0;
        while let Err(fault) = recover(&mdt, ino, fence.as_ref(), is_owed, tries >= RECOVER_TRIES).await {
            tries += 1;
            tracing::error!(inode = %ino.fid(), %fault, "a file's size could not be recovered; trying again");
            mdt.seams().sleep_ms(RECOVER_AGAIN_MS).await;
        }
    });
}

/// Whether the end of a session is under way that has a file open for writing.
fn is_left_by_others(live: &Live, ino: Ino) -> bool {
    live.opens.other_writers(ino, SessionId(0)).iter().any(|session| !live.may_renew(*session))
}

/// Sets the size to max(MDT, objects). Then the write session ends if nobody writes and no other recovery is due: this one may
/// have missed bytes of another client that has vanished. A file that has neither names nor handles is removed. `whatever`:
/// recovers even if some objects cannot tell their length.
pub async fn recover(
    mdt: &Mdt,
    ino: Ino,
    fence: Option<&FenceSessionReq>,
    is_owed: bool,
    whatever: bool,
) -> Result<()> {
    crate::truncate::finish_pending(mdt, ino).await?;
    crate::relocate::give_up_aside(mdt, ino, None).await?;
    let call = Call::internal(Op::Report);
    let file = mdt
        .read(|t| match inode::find(t, ino)? {
            Some(file) if file.open_for_write => Ok(Some(file)),
            _ => Ok(None),
        })
        .await?;
    // Bytes that lie in the MDT are the file; its objects are of a convert that was cut short.
    let stats = match file.filter(|f| f.may_have_objects() && !f.is_inline()) {
        Some(file) => {
            if let Some(fence) = fence {
                let osts: BTreeSet<u16> = attrs::objects(&file).iter().map(|(ost, _)| *ost).collect();
                let fenced = join_all(osts.into_iter().map(|ost| mdt.osts().insist(ost, fence))).await;
                fenced.into_iter().collect::<Result<Vec<_>>>()?;
            }
            let stats = match whatever {
                true => attrs::stat_answering(mdt, &file).await,
                false => attrs::stat_objects(mdt, &file).await?,
            };
            Some((stats, file.file()?.layout.body, file.truncate_epoch))
        }
        None => None,
    };
    mdt.step(&call, |t| {
        t.frees_space();
        t.idle(ino)?;
        let is_last = t.live().recoveries_due(ino) <= usize::from(is_owed);
        t.after(move |live| {
            if is_owed {
                live.recovery_done(ino);
            }
            live.events.fire(Event::Idle(ino));
        });
        let Some(mut file) = inode::find(t, ino)? else {
            watch::delete(t, ino);
            return Ok(());
        };
        if file.nlink == 0 && t.live().may_purge(ino) {
            // The file could not be purged with its last handle (see `give_back`).
            return namespace::purge(t, &file);
        }
        if let (Some((stats, body, epoch)), Some(now)) = (&stats, &file.file)
            && now.layout.body == *body
            && file.truncate_epoch == *epoch
        {
            attrs::merge_objects(&mut file, stats);
            inode::put(t, &file)?;
        }
        // (While clients declare what they had open this may be too early; then it is done again when they all have.)
        if file.open_for_write && is_last && !t.live().opens.is_written(ino) && !t.live().recovering {
            grant::end_writing(t, &mut file)?;
        } else if is_owed && is_last && file.is_watched() && !is_left_by_others(t.live(), ino) {
            watch::put(t, ino);
        }
        Ok(())
    })
    .await
}
