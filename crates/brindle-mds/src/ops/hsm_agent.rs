//! hsm_take, hsm_progress and hsm_done: an agent pulls work, tells how far it is, and ends attempts.

use brindle_stdx::Mono;
use brindle_stdx::cast::bounded_u32;
use brindle_types::hsm::{HSM_ARCHIVED, HSM_DIRTY, HSM_LOST};
use brindle_types::{ArchivedCopy, Code, Fault, HsmKind, Ino, Pair, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::hsm::{
    HsmAttempt, HsmDoneReq, HsmOutcome, HsmProgressReq, HsmProgressResp, HsmStatus, HsmTakeReq, HsmTakeResp,
    HsmWork, PROGRESS_MAX, TAKE_MAX,
};
use futures_util::future::join_all;

use crate::hsm::sync::{SYNC_WAIT_MS, sync_file};
use crate::hsm::{self, AGENT_LEASE_MS, HsmEvent, restore};
use crate::mdt::{Call, Event, Mdt, Step, Stop, Txn};
use crate::ops::path;
use crate::store::hsm::{Action, Running, State};
use crate::store::{Inode, inode};

/// Longest wait of a request for work.
const TAKE_WAIT_MS: u64 = 3_000;
/// Longest time from the choice of actions to the answer: files that are to be archived are synced in between.
const ANSWER_WAIT_MS: u64 = 2 * SYNC_WAIT_MS;
/// Longest name of an agent's host that is kept.
const HOST_BYTES_MAX: usize = 255;
/// Most archives that an agent can name.
const ARCHIVES_MAX: usize = 64;

/// Whether what an agent says of itself is short enough to be kept.
pub(super) fn is_bounded(host: &str, archives: &[u32]) -> bool {
    host.len() <= HOST_BYTES_MAX && archives.len() <= ARCHIVES_MAX
}

/// Gives out actions, each under a new attempt.
pub async fn handle_take(mdt: &Mdt, call: &Call, req: HsmTakeReq) -> Result<HsmTakeResp> {
    hsm::root_only(&req.cred, "cannot serve an archive")?;
    if req.max > TAKE_MAX || !is_bounded(&req.host, &req.archives) {
        return Err(Fault::new(Code::InvalidArgument).why("more actions, archives or letters than can be"));
    }
    let now = mdt.hearing().now();
    mdt.live_mut().hsm.heard(req.agent, &req.host, &req.archives, now)?;
    let lease_ms = bounded_u32(AGENT_LEASE_MS);
    // The wait changes nothing, so a timeout loses nothing.
    let waiting = mdt.step(call, |t| match t.live().hsm.has_work(&req.archives) {
        true => Ok(()),
        false => Err(Stop::RetryAfter(Event::HsmWork)),
    });
    match mdt.seams().timeout_ms(TAKE_WAIT_MS, waiting).await {
        None => return Ok(HsmTakeResp { work: Vec::new(), lease_ms }),
        Some(waited) => waited?,
    }
    // Until the answer is sent, the agent cannot know its new attempts.
    let told = mdt.hearing().now().plus_ms(ANSWER_WAIT_MS);
    let given = mdt.step(call, |t| give_out(t, &req, told)).await?;
    // Attempts must survive a power cut before they are given out. Then no other agent can get an equal attempt, and
    // the agent's work stays valid.
    mdt.synced().await?;
    // An OST that does not answer holds up the answer once, and not once a file.
    let prepared = join_all(given.iter().map(|item| prepare(mdt, item))).await;
    let mut work = Vec::with_capacity(given.len());
    for (item, prepared) in given.into_iter().zip(prepared) {
        let attempt = HsmAttempt { ino: item.ino, attempt: item.attempt };
        let Err(fault) = prepared else {
            work.push(item);
            continue;
        };
        match fail(mdt, call, &attempt, fault).await {
            // The action has ended meanwhile: its file was removed or emptied, or it was cancelled.
            Err(fault) if fault.code == Code::StaleAttempt => {}
            failed => failed?,
        }
    }
    let now = mdt.hearing().now();
    let mut live = mdt.live_mut();
    for item in &work {
        live.hsm.told(&HsmAttempt { ino: item.ino, attempt: item.attempt }, now);
    }
    drop(live);
    Ok(HsmTakeResp { work, lease_ms })
}

fn give_out(t: &mut Txn<'_>, req: &HsmTakeReq, told: Mono) -> Step<Vec<HsmWork>> {
    t.frees_space();
    let mut work: Vec<HsmWork> = Vec::new();
    if !t.live().hsm.agents.contains_key(&req.agent) {
        // The agent has left, or was silent, while its request waited.
        return Ok(work);
    }
    for ino in t.live().hsm.pick(&req.archives, req.max.into()) {
        let Some(action) = t.live().hsm.actions.get(&ino).copied() else { continue };
        if action.kind == HsmKind::Archive && work.first().is_some_and(|item| item.kind != HsmKind::Archive) {
            // Somebody waits for a restore, and files that are to be archived have to be synced first: the next request gets those.
            break;
        }
        let file = inode::find(t, ino)?;
        if file.is_none() && action.kind != HsmKind::Remove {
            hsm::end_action(t, ino, HsmStatus::Cancelled);
            continue;
        }
        let (data_version, size_bytes) =
            file.as_ref().map_or((Pair::ZERO, 0), |file| (file.data_version, file.size_bytes));
        let named = file.filter(|file| file.nlink > 0);
        let (kind, uid) = (action.kind, action.uid);
        t.after(move |live| live.hsm.had_turn(kind, uid));
        let attempt = t.pair();
        let running = Running { attempt, agent: req.agent, data_version };
        hsm::put_action(t, ino, Action { running: Some(running), ..action });
        t.after(move |live| live.hsm.told(&HsmAttempt { ino, attempt }, told));
        let state = hsm::state_of(t, ino)?;
        work.push(HsmWork {
            ino,
            attempt,
            kind,
            archive: action.archive,
            data_version,
            size_bytes,
            copy: state.copy,
            path: named.map_or(Ok(Vec::new()), |file| path::first(t, &file))?,
        });
    }
    Ok(work)
}

/// Makes the file that is to be archived durable, and checks that no client writes it.
async fn prepare(mdt: &Mdt, work: &HsmWork) -> Result<()> {
    if work.kind != HsmKind::Archive {
        return Ok(());
    }
    let file = mdt.read(|t| inode::get(t, work.ino)).await?;
    if file.open_for_write {
        return Err(changed_meanwhile(work.ino, "it is open for writing"));
    }
    sync_file(mdt, work.ino).await
}

fn changed_meanwhile(ino: Ino, why: &'static str) -> Fault {
    Fault::new(Code::ChangedMeanwhile).subject(ino.fid().to_string()).why(why)
}

/// Takes in how far an agent is.
pub async fn handle_progress(mdt: &Mdt, _call: &Call, req: HsmProgressReq) -> Result<HsmProgressResp> {
    hsm::root_only(&req.cred, "cannot serve an archive")?;
    if req.moved_bytes.len() > PROGRESS_MAX {
        return Err(Fault::new(Code::InvalidArgument).why("it tells of too many attempts at once"));
    }
    if req.leaves {
        hsm::take_back(mdt, req.agent, "it has ended").await?;
        return Ok(HsmProgressResp { gone: Vec::new() });
    }
    let now = mdt.hearing().now();
    mdt.live_mut().hsm.keeps(req.agent, now);
    // A list that may have been cut off does not tell what the agent does not know of.
    if req.moved_bytes.len() < PROGRESS_MAX {
        let works_on = req.moved_bytes.iter().map(|(at, _)| *at).collect();
        hsm::take_back_unheard_of(mdt, req.agent, &works_on, now).await?;
    }
    let mut live = mdt.live_mut();
    let told = req.moved_bytes.into_iter();
    let gone = told.filter(|(at, moved_bytes)| !live.hsm.progress(at.ino, at.attempt, *moved_bytes));
    Ok(HsmProgressResp { gone: gone.map(|(at, _)| at).collect() })
}

/// Ends an attempt.
pub async fn handle_done(mdt: &Mdt, call: &Call, req: HsmDoneReq) -> Result<Empty> {
    hsm::root_only(&req.cred, "cannot serve an archive")?;
    let attempt = req.attempt;
    match req.outcome {
        HsmOutcome::Archived(copy) => archived(mdt, call, &attempt, copy).await?,
        HsmOutcome::Restored(from) => restore::complete(mdt, call, &attempt, from).await?,
        HsmOutcome::Removed => removed(mdt, call, &attempt).await?,
        HsmOutcome::Failed(fault) => fail(mdt, call, &attempt, fault).await?,
    }
    // An agent that gets this answer may delete the previous copy.
    mdt.synced().await?;
    Ok(Empty {})
}

async fn fail(mdt: &Mdt, call: &Call, attempt: &HsmAttempt, fault: Fault) -> Result<()> {
    tracing::warn!(inode = %attempt.ino.fid(), %fault, "an action of tiering has failed");
    mdt.step(call, |t| {
        t.frees_space();
        let action = hsm::attempt(t, attempt)?;
        hsm::end_action(t, attempt.ino, HsmStatus::Failed(fault.clone()));
        hsm::tell(t, told(action.kind), attempt.ino, None, true);
        Ok(())
    })
    .await
}

fn told(kind: HsmKind) -> HsmEvent {
    match kind {
        HsmKind::Archive => HsmEvent::Archive,
        HsmKind::Restore => HsmEvent::Restore,
        HsmKind::Remove => HsmEvent::Remove,
    }
}

/// The copy is complete: it counts if it is of the contents that the file has now.
async fn archived(mdt: &Mdt, call: &Call, attempt: &HsmAttempt, copy: ArchivedCopy) -> Result<()> {
    let refused = mdt.step(call, |t| {
        t.frees_space();
        let ino = attempt.ino;
        let state = hsm::state_of(t, ino)?;
        if state.copy.is_some_and(|known| known == copy && known.attempt == attempt.attempt) {
            // The answer was lost.
            return Ok(None);
        }
        let action = hsm::attempt(t, attempt)?;
        if t.live().recovering {
            // A writer that has not declared itself yet may have the file open.
            return Err(Stop::RetryAfter(Event::Recovered));
        }
        t.idle(ino)?;
        let file = inode::get(t, ino)?;
        if let Some(fault) = unlike(&file, &action, attempt.attempt, &copy) {
            hsm::end_action(t, ino, HsmStatus::Failed(fault.clone()));
            hsm::tell(t, HsmEvent::Archive, ino, None, true);
            return Ok(Some(fault));
        }
        let flags = (state.flags | HSM_ARCHIVED) & !(HSM_DIRTY | HSM_LOST);
        hsm::put_state(t, ino, State { flags, archive: action.archive, copy: Some(copy) });
        hsm::end_action(t, ino, HsmStatus::Succeeded);
        hsm::tell(t, HsmEvent::Archive, ino, None, false);
        Ok(None)
    });
    refused.await?.map_or(Ok(()), Err)
}

/// Reason why a copy does not match the present contents of the file.
fn unlike(file: &Inode, action: &Action, attempt: Pair, copy: &ArchivedCopy) -> Option<Fault> {
    let ino = file.ino;
    let given = action.running.map(|running| running.data_version);
    if file.open_for_write {
        return Some(changed_meanwhile(ino, "it is open for writing"));
    }
    if given != Some(file.data_version)
        || copy.data_version != file.data_version
        || copy.size_bytes != file.size_bytes
    {
        return Some(changed_meanwhile(ino, "it was written"));
    }
    if file.file.as_ref().is_none_or(|body| !body.unsynced.is_empty()) {
        return Some(changed_meanwhile(ino, "parts of it are not known to be on disk"));
    }
    (copy.attempt != attempt).then(|| Fault::new(Code::InvalidArgument).why("the copy is of another attempt"))
}

async fn removed(mdt: &Mdt, call: &Call, attempt: &HsmAttempt) -> Result<()> {
    mdt.step(call, |t| {
        t.frees_space();
        let action = hsm::attempt(t, attempt)?;
        if action.kind != HsmKind::Remove {
            return Err(Fault::new(Code::InvalidArgument)
                .why("that attempt is not to remove anything")
                .into());
        }
        let state = hsm::state_of(t, attempt.ino)?;
        hsm::put_state(t, attempt.ino, hsm::without_copy(&state));
        hsm::end_action(t, attempt.ino, HsmStatus::Succeeded);
        hsm::tell(t, HsmEvent::Remove, attempt.ino, None, false);
        Ok(())
    })
    .await
}
