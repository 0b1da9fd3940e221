//! Questions of the MDT to clients: recalls, reports, invalidations. Every question is answered within the lease, or the
//! client's session is ended.

use std::collections::BTreeMap;

use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Ino, Pair, Result, SessionId};
use brindle_wire::frame::{decode_body, encode_body};
use brindle_wire::mds::report::WriteReport;
use brindle_wire::notify::{
    ClosedNotice, InvalidateNotice, LayoutNotice, LeaseNotice, Recall, RecallNotice, ReportNotice,
};
use brindle_wire::{Message, Op};
use bytes::Bytes;
use futures_util::future::{Either, join_all, select};

use crate::leases::Conflicts;
use crate::mdt::{Call, Event, Mdt, SideTask, Step, Txn};
use crate::reports::{self, Worth};
use crate::store::inode;
use crate::{admission, expire, hsm};

/// Pause before a session is asked again that has said "later".
const LATER_PAUSE_MS: u64 = 20;

/// Longest wait of an operation for a client to give back handles that are closed there.
const CLOSES_WAIT_MS: u64 = 1_000;

/// The way to clients: over their own connections (`service`), or a test's.
pub trait Notifier: Send + Sync + 'static {
    /// Asks a session; the body of its reply. `Disconnected` at once when it has no connection, or when that ends.
    fn ask(&self, session: SessionId, op: Op, body: Bytes) -> BoxFuture<'static, Result<Bytes>>;

    /// Address of a session's client in Lustre's form, `10.0.0.1@tcp`, while it is connected.
    fn nid(&self, _session: SessionId) -> Option<String> {
        None
    }

    /// Whether the session has a connection that is not known to have ended.
    fn is_connected(&self, session: SessionId) -> bool {
        self.nid(session).is_some()
    }
}

/// Message to a client after a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Layout or truncate epoch changed.
    Layout(LayoutNotice),
    /// Pages of a range are old.
    Invalidate(InvalidateNotice),
}

/// Asks a session and waits for its answer, over reconnections, for a lease at most; then the session is ended. `None`
/// when the session is not alive (any more) and the OSTs know it: whatever right it had is void.
pub async fn ask<M: Message>(mdt: &Mdt, session: SessionId, question: &M) -> Option<M::Resp> {
    let lease_ms = u64::from(mdt.config().lease_ms);
    let mut deadline = mdt.hearing().now().plus_ms(lease_ms);
    let _listed = mdt.waits().enter(M::OP.name(), || format!("the answer of {session}"));
    let body = encode_body(question);
    let why = loop {
        let (is_alive, changed) = {
            let mut live = mdt.live_mut();
            let is_alive = live.is_alive(session);
            if !is_alive && !live.fencing.contains(&session) {
                return None;
            }
            (is_alive, live.events.wait(Event::Session(session)))
        };
        if !is_alive {
            // Requests that the client sent to an OST before may still arrive there. (The sender is dropped,
            // not used.)
            let _ = changed.await;
            continue;
        }
        let asked = mdt.hearing().wait_until(deadline, mdt.notifier().ask(session, M::OP, body.clone()));
        let (answered, changed) = match select(Box::pin(asked), changed).await {
            Either::Left(first) => first,
            // The client has reconnected. An answer on the old connection, which may not have ended for us,
            // may never come.
            Either::Right(_) => continue,
        };
        match answered {
            // The silence may be the fault of this server. If it turns out not to be, the check in `hearing`
            // ends the session.
            None if mdt.live().hears_few => deadline = mdt.hearing().now().plus_ms(lease_ms),
            None => break "it did not answer".to_owned(),
            Some(Ok(answer)) => match decode_body::<Result<M::Resp>>(&answer) {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(fault)) | Err(fault) => break format!("its answer was: {}", fault.what),
            },
            Some(Err(_)) => {
                if mdt.hearing().wait_until(deadline, changed).await.is_none() {
                    break "it is not connected".to_owned();
                }
            }
        }
    };
    expire::end(mdt, session, &format!("{} was not answered: {why}", M::OP.name())).await;
    None
}

/// Does what an operation needs done before it can go on.
pub fn run(mdt: &Mdt, side_task: SideTask) -> BoxFuture<'_, Result<()>> {
    match side_task {
        SideTask::Recall { ino, right, from } => Box::pin(recall(mdt, ino, right, from)),
        SideTask::Release { ino, from } => Box::pin(async move {
            join_all(from.into_iter().map(|session| release_closed(mdt, ino, session))).await;
            Ok(())
        }),
        SideTask::CancelRestore { ino } => Box::pin(hsm::restore::cancel(mdt, ino)),
        SideTask::RecallLeases(conflicts) => Box::pin(recall_leases(mdt, conflicts)),
        SideTask::Report { ino, attr_epoch, from } => Box::pin(report(mdt, ino, attr_epoch, from)),
    }
}

/// Has a client release handles of a file that its programs have closed. The client's kernel reports a close a moment after close(2) has
/// returned, and the client gives handles back many at once. A client that does not answer in time keeps its handles until its lease is
/// over.
pub async fn release_closed(mdt: &Mdt, ino: Ino, session: SessionId) {
    let asked = mdt.notifier().ask(session, Op::ClosedNotice, encode_body(&ClosedNotice { ino }));
    drop(mdt.seams().timeout_ms(CLOSES_WAIT_MS, asked).await);
}

/// The mark of a recall under way: opens of the inode wait.
struct Recalling<'a> {
    mdt: &'a Mdt,
    ino: Ino,
}

impl Drop for Recalling<'_> {
    fn drop(&mut self) {
        let mut live = self.mdt.live_mut();
        live.recalling.remove(&self.ino);
        live.events.fire(Event::Recalled(self.ino));
    }
}

async fn recall(mdt: &Mdt, ino: Ino, right: Recall, from: Vec<SessionId>) -> Result<()> {
    let under_way = {
        let mut live = mdt.live_mut();
        match live.recalling.insert(ino) {
            true => None,
            false => Some(live.events.wait(Event::Recalled(ino))),
        }
    };
    if let Some(under_way) = under_way {
        // The sender is dropped, not used.
        let _ = under_way.await;
        return Ok(());
    }
    let _mark = Recalling { mdt, ino };
    let question = RecallNotice { ino, recall: right };
    let mut reports: Vec<(SessionId, WriteReport)> = Vec::new();
    if brindle_stdx::planted("mds_recall_not_awaited") {
        for session in &from {
            let asked = mdt.notifier().ask(*session, Op::RecallNotice, encode_body(&question));
            mdt.spawn("recall", async move { drop(asked.await) });
        }
    } else {
        // Slow is not dead: who has bytes for an OST that is away says so, within its lease each time.
        let mut waiting = from.clone();
        while !waiting.is_empty() {
            let acks = join_all(waiting.iter().map(|session| ask(mdt, *session, &question))).await;
            let answered = waiting.iter().zip(&acks).filter_map(|(s, ack)| Some((*s, ack.as_ref()?)));
            let (later, done): (Vec<_>, Vec<_>) = answered.partition(|(_, ack)| ack.later);
            reports.extend(done.into_iter().filter_map(|(s, ack)| Some((s, ack.report.clone()?))));
            waiting = later.into_iter().map(|(s, _)| s).collect();
            if !waiting.is_empty() {
                mdt.seams().sleep_ms(LATER_PAUSE_MS).await;
            }
        }
    }
    mdt.step(&Call::internal(Op::RecallNotice), |t| {
        apply_reports(t, ino, &reports)?;
        let from = from.clone();
        t.after(move |live| from.iter().for_each(|s| live.opens.revoke(ino, *s, right)));
        Ok(())
    })
    .await
}

/// The marks of recalls of leases under way: nobody is given them meanwhile.
struct RecallingLeases<'a> {
    mdt: &'a Mdt,
    dirs: Vec<Ino>,
}

impl Drop for RecallingLeases<'_> {
    fn drop(&mut self) {
        let mut live = self.mdt.live_mut();
        for dir in &self.dirs {
            live.leases.get_mut().end_recall(*dir);
            live.events.fire(Event::LeaseFree(*dir));
        }
    }
}

/// Takes leases of directories back, one question to each session.
async fn recall_leases(mdt: &Mdt, conflicts: Conflicts) -> Result<()> {
    let (under_way, at) = {
        let mut live = mdt.live_mut();
        let under_way = live.leases.get_mut().begin_recall(conflicts.iter().map(|(dir, _)| *dir));
        // From here on the MDT sends no cache updates under these leases.
        (under_way.map(|dir| live.events.wait(Event::LeaseFree(dir))), mdt.engine().last_pos().index)
    };
    if let Some(under_way) = under_way {
        // The sender is dropped, not used.
        let _ = under_way.await;
        return Ok(());
    }
    let _marks = RecallingLeases { mdt, dirs: conflicts.iter().map(|(dir, _)| *dir).collect() };
    let mut by_session: BTreeMap<SessionId, Vec<Ino>> = BTreeMap::new();
    for (dir, sessions) in &conflicts {
        sessions.iter().for_each(|session| by_session.entry(*session).or_default().push(*dir));
    }
    let questions: Vec<(SessionId, LeaseNotice)> =
        by_session.into_iter().map(|(session, dirs)| (session, LeaseNotice { dirs, at })).collect();
    // A client that does not answer is ended: its leases are worthless then.
    join_all(questions.iter().map(|(session, question)| ask(mdt, *session, question))).await;
    let now = mdt.seams().now();
    let mut live = mdt.live_mut();
    for (session, question) in &questions {
        question.dirs.iter().for_each(|dir| live.leases.get_mut().revoke(*dir, *session, now));
    }
    Ok(())
}

/// Tells writers of a new attribute epoch. On return their writes under older epochs are in the inode. Like a recall,
/// it keeps clients from opening the inode meanwhile: otherwise the operation that sets times would have to tell
/// writers again and again.
async fn report(mdt: &Mdt, ino: Ino, attr_epoch: Pair, from: Vec<SessionId>) -> Result<()> {
    // If a recall is under way, its mark keeps opens away already. The recall may wait for an OST that is away; this
    // report does not.
    let _mark = mdt.live_mut().recalling.insert(ino).then(|| Recalling { mdt, ino });
    let question = ReportNotice { ino, attr_epoch: Some(attr_epoch) };
    let answers = join_all(from.iter().map(|session| ask(mdt, *session, &question))).await;
    let told = from.iter().zip(answers).filter_map(|(s, answer)| Some((*s, answer?.report?)));
    let reports: Vec<(SessionId, WriteReport)> = told.collect();
    mdt.step(&Call::internal(Op::ReportNotice), |t| apply_reports(t, ino, &reports)).await
}

/// Tells clients what a batch has changed and waits for their answers.
pub fn notify_all(mdt: &Mdt, notices: Vec<(SessionId, Notice)>) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        let told = notices.iter().map(|(session, notice)| tell(mdt, *session, notice));
        let reports: Vec<_> = join_all(told).await.into_iter().flatten().collect();
        for (ino, session, report) in reports {
            let report = [(session, report)];
            mdt.step(&Call::internal(Op::LayoutNotice), |t| apply_reports(t, ino, &report)).await?;
        }
        Ok(())
    })
}

async fn tell(mdt: &Mdt, session: SessionId, notice: &Notice) -> Option<(Ino, SessionId, WriteReport)> {
    match notice {
        Notice::Layout(layout) => {
            let ack = ask(mdt, session, layout).await?;
            if ack.later {
                let (ino, offset) = (layout.ino, layout.drop_from);
                drop_pages(mdt, session, &InvalidateNotice { ino, offset, len_bytes: u64::MAX }).await;
            }
            Some((layout.ino, session, ack.report?))
        }
        Notice::Invalidate(range) => {
            drop_pages(mdt, session, range).await;
            None
        }
    }
}

/// Has a session drop pages. As with a recall, slow is not dead: pages that were dirtied through a mapping may wait for an OST that
/// is away. A client that says so within its lease is asked again.
pub async fn drop_pages(mdt: &Mdt, session: SessionId, range: &InvalidateNotice) {
    while ask(mdt, session, range).await.is_some_and(|ack| ack.later) {
        mdt.seams().sleep_ms(LATER_PAUSE_MS).await;
    }
}

/// Applies reports that came with answers; the inode may be gone by now.
pub fn apply_reports(t: &mut Txn<'_>, ino: Ino, reports: &[(SessionId, WriteReport)]) -> Step<()> {
    if reports.is_empty() {
        return Ok(());
    }
    // Rows do not grow, and reports of writers must be taken in when the MDT is full.
    t.frees_space();
    let Some(mut file) = inode::find(t, ino)? else { return Ok(()) };
    for (session, report) in reports {
        let Some(report) = admission::tidied(t, ino, *session, report) else { continue };
        let known = t.live().opens.reported(ino, *session).unwrap_or(0);
        if report.number < known {
            // A later report has overtaken this one; it said all this and more.
            continue;
        }
        let is_news = report.number > known;
        let tells_allocation = admission::tells_allocation(t, *session);
        reports::apply(t, &mut file, &report, Worth { is_news, tells_allocation })?;
        let (session, number) = (*session, report.number);
        t.after(move |live| live.opens.set_reported(ino, session, number));
    }
    inode::put(t, &file)?;
    Ok(())
}

/// The fault of a notifier that has no connection to a session.
pub fn not_connected(session: SessionId) -> Fault {
    Fault::new(Code::Disconnected).subject(session.to_string())
}
