//! hsm_state, hsm_act, hsm_set and hsm_recall: what users ask of tiering (`lfs hsm_*`), and who waits for a released file.

use brindle_types::hsm::{
    ARCHIVE_ID_MAX, HSM_ARCHIVED, HSM_DIRTY, HSM_EXISTS, HSM_LOST, HSM_NOARCHIVE, HSM_NORELEASE,
    HSM_RELEASED, HSM_ROOT_FLAGS, HSM_USER_FLAGS, hsm_words,
};
use brindle_types::{Code, Fault, HsmControl, HsmKind, Ino, Pair, Result, SessionId};
use brindle_wire::Cred;
use brindle_wire::mds::Empty;
use brindle_wire::mds::hsm::{
    HsmActReq, HsmAsk, HsmRecallReq, HsmRecallResp, HsmRemoveReq, HsmSetReq, HsmStateReq, HsmStateResp,
    HsmStatus, HsmUnderWay,
};

use crate::hsm::{self, HsmEvent, RELEASED_BYTES};
use crate::mdt::{Call, Event, Mdt, SideTask, Step, Stop, Txn};
use crate::store::hsm::{Action, State};
use crate::store::{Inode, append, inode};
use crate::{access, truncate};

/// Longest wait of one request for a restore; the caller asks again.
const RECALL_WAIT_MS: u64 = 5_000;

/// What fails where a copy cannot be removed.
const REMOVE: &str = "cannot remove the copy of";

/// The state of a file.
pub async fn handle_state(mdt: &Mdt, _call: &Call, req: HsmStateReq) -> Result<HsmStateResp> {
    mdt.read(|t| {
        let file = inode::get(t, req.ino)?;
        file.file()?;
        let state = hsm::state_of(t, req.ino)?;
        let queue = &t.live().hsm;
        let under_way = queue.actions.get(&req.ino).map(|action| HsmUnderWay {
            kind: action.kind,
            running: action.running.is_some(),
            moved_bytes: queue.moved_bytes(req.ino),
        });
        Ok(HsmStateResp { flags: hsm::flags(&file, &state), archive: state.archive, under_way })
    })
    .await
}

/// A file that something is asked for.
struct Asked<'a> {
    file: Inode,
    state: State,
    flags: u32,
    cred: &'a Cred,
}

impl Asked<'_> {
    fn refused(&self, what: &'static str, why: impl Into<String>) -> Fault {
        Fault::new(Code::HsmRefused)
            .what(what)
            .subject(self.file.ino.fid().to_string())
            .why(why.into())
            .data("nothing was changed")
    }

    fn busy(&self, what: &'static str, why: impl Into<String>) -> Fault {
        Fault { code: Code::FileBusy, ..self.refused(what, why) }
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Archives, releases, restores, removes, or gives up what is under way.
pub async fn handle_act(mdt: &Mdt, call: &Call, req: HsmActReq) -> Result<Empty> {
    if let HsmAsk::Archive(number) = req.ask
        && number > ARCHIVE_ID_MAX
    {
        let why = format!("archives have the numbers 1 to {ARCHIVE_ID_MAX}, not {number}");
        return Err(Fault::new(Code::InvalidArgument).what("no such archive").why(why));
    }
    let mut has_asked = false;
    let done = mdt.modify(call, |t| {
        t.frees_space();
        t.idle(req.ino)?;
        let file = inode::get(t, req.ino)?;
        file.file()?;
        let state = hsm::state_of(t, req.ino)?;
        let asked = Asked { flags: hsm::flags(&file, &state), file, state, cred: &req.cred };
        match req.ask {
            HsmAsk::Restore => access::check(t, &asked.file, &req.cred, access::READ)?,
            _ => hsm::owner_only(&asked.file, &req.cred)?,
        }
        match req.ask {
            HsmAsk::Archive(number) => archive(t, asked, number, &mut has_asked)?,
            HsmAsk::Release => release(t, asked, &mut has_asked)?,
            HsmAsk::Restore => restore(t, &asked)?,
            HsmAsk::Remove => remove(t, &asked)?,
            HsmAsk::Cancel => cancel(t, &asked),
        }
        Ok(Empty {})
    });
    done.await
}

/// Removes the copies of a file from one archive, also those of a file that is gone.
pub async fn handle_remove(mdt: &Mdt, call: &Call, req: HsmRemoveReq) -> Result<Empty> {
    let HsmRemoveReq { ino, archive, ref cred } = req;
    if archive == 0 || archive > ARCHIVE_ID_MAX {
        let why = format!("archives have the numbers 1 to {ARCHIVE_ID_MAX}, not {archive}");
        return Err(Fault::new(Code::InvalidArgument).what("no such archive").why(why));
    }
    mdt.modify(call, |t| {
        t.frees_space();
        t.idle(ino)?;
        let Some(file) = inode::find(t, ino)? else {
            hsm::root_only(cred, "cannot remove the copies of a file that is gone")?;
            queue(t, ino, cred, REMOVE, HsmKind::Remove, archive)?;
            return Ok(Empty {});
        };
        file.file()?;
        hsm::owner_only(&file, cred)?;
        let state = hsm::state_of(t, ino)?;
        let asked = Asked { flags: hsm::flags(&file, &state), file, state, cred };
        if asked.has(HSM_EXISTS) && asked.state.archive != archive {
            return Err(asked.refused(REMOVE, format!("it has none in archive {archive}")).into());
        }
        remove(t, &asked)?;
        Ok(Empty {})
    })
    .await
}

/// Queues an action, unless the same one is queued.
fn queue(
    t: &mut Txn<'_>,
    ino: Ino,
    cred: &Cred,
    what: &'static str,
    kind: HsmKind,
    archive: u32,
) -> Result<()> {
    let live = t.live();
    if let Some(other) = live.hsm.actions.get(&ino) {
        let is_same = other.kind == kind && other.archive == archive;
        let why = format!("{} is queued or under way: lfs hsm_cancel gives that up", other.kind);
        let busy = Fault::new(Code::FileBusy).what(what).subject(ino.fid().to_string()).why(why);
        return if is_same { Ok(()) } else { Err(busy.data("nothing was changed")) };
    }
    if live.hsm.control == HsmControl::Stopped {
        return Err(Fault::new(Code::HsmOff)
            .what(what)
            .subject(ino.fid().to_string())
            .data("nothing was changed"));
    }
    if !live.hsm.has_room(kind) {
        let why = format!("{} actions wait already", live.hsm.actions.len());
        return Err(Fault::new(Code::Overloaded).what(what).why(why).data("nothing was changed"));
    }
    let cookie = t.pair();
    let (asked_at, uid) = (t.now, cred.uid);
    let action = Action { kind, archive, uid, cookie, asked: asked_at, running: None, lost_attempts: 0 };
    hsm::put_action(t, ino, action);
    Ok(())
}

fn archive(t: &mut Txn<'_>, asked: Asked<'_>, number: u32, has_asked: &mut bool) -> Step<()> {
    const WHAT: &str = "cannot archive";
    let ino = asked.file.ino;
    let number = [number, asked.state.archive, 1].into_iter().find(|n| *n > 0).unwrap_or(1);
    if asked.file.nlink == 0 {
        return Err(asked.refused(WHAT, "it has no name any more").into());
    }
    if asked.has(HSM_NOARCHIVE) {
        return Err(asked.refused(WHAT, "it is marked never_archive: lfs hsm_clear --noarchive").into());
    }
    if asked.has(HSM_RELEASED) {
        return Err(asked.refused(WHAT, "it is released: its bytes lie in the archive only").into());
    }
    if asked.has(HSM_EXISTS) && asked.state.archive != number {
        let why = format!("archive {} has a copy of it: remove that one first", asked.state.archive);
        return Err(asked.refused(WHAT, why).into());
    }
    let writers = t.live().opens.other_writers(ino, SessionId(0));
    if !writers.is_empty() && !std::mem::replace(has_asked, true) {
        // A program that has closed it is not one that writes it.
        return Err(Stop::First(SideTask::Release { ino, from: writers }));
    }
    if asked.has(HSM_ARCHIVED) && !asked.has(HSM_DIRTY) {
        return Ok(());
    }
    Ok(queue(t, ino, asked.cred, WHAT, HsmKind::Archive, number)?)
}

fn restore(t: &mut Txn<'_>, asked: &Asked<'_>) -> Result<()> {
    const WHAT: &str = "cannot restore";
    if !asked.has(HSM_RELEASED) {
        if asked.has(HSM_EXISTS) && asked.has(HSM_DIRTY) {
            let why =
                "it has changed since it was archived: its bytes are here, and newer than those of the copy";
            return Err(asked.refused(WHAT, why));
        }
        return Ok(());
    }
    if asked.has(HSM_LOST) {
        return Err(lost(asked.file.ino));
    }
    queue(t, asked.file.ino, asked.cred, WHAT, HsmKind::Restore, asked.state.archive)
}

fn lost(ino: Ino) -> Fault {
    Fault::new(Code::NotRecalled)
        .subject(ino.fid().to_string())
        .why("its copy is marked as lost")
        .next("if it was found again: lfs hsm_clear --lost FILE")
}

/// The copy goes, and counts no more from now on.
fn remove(t: &mut Txn<'_>, asked: &Asked<'_>) -> Result<()> {
    if asked.has(HSM_RELEASED) {
        return Err(asked
            .refused(REMOVE, "it is released: that copy is the only one")
            .next("bring it back first: lfs hsm_restore FILE"));
    }
    if !asked.has(HSM_EXISTS) {
        return Err(asked.refused(REMOVE, "it has none"));
    }
    queue(t, asked.file.ino, asked.cred, REMOVE, HsmKind::Remove, asked.state.archive)?;
    let flags = asked.state.flags & !HSM_ARCHIVED;
    hsm::put_state(t, asked.file.ino, State { flags, ..asked.state });
    Ok(())
}

fn cancel(t: &mut Txn<'_>, asked: &Asked<'_>) {
    let ino = asked.file.ino;
    if t.live().hsm.actions.contains_key(&ino) {
        hsm::end_action(t, ino, HsmStatus::Cancelled);
        hsm::tell(t, HsmEvent::Cancel, ino, Some(asked.cred), false);
    }
}

/// The objects go, in the batch that says that the file is released.
fn release(t: &mut Txn<'_>, asked: Asked<'_>, has_asked: &mut bool) -> Step<()> {
    const WHAT: &str = "cannot release";
    let ino = asked.file.ino;
    if asked.has(HSM_RELEASED) {
        return Ok(());
    }
    if t.live().recovering {
        // Some clients have not declared their open files yet.
        return Err(Stop::RetryAfter(Event::Recovered));
    }
    let open_at = t.live().opens.others(ino, SessionId(0));
    if !open_at.is_empty() && !std::mem::replace(has_asked, true) {
        return Err(Stop::First(SideTask::Release { ino, from: open_at }));
    }
    releasable(t, &asked, WHAT)?;
    if let Some(session) = open_at.first() {
        let host = t.live().sessions.get(session).map(|s| s.row.host.clone()).unwrap_or_default();
        return Err(asked.busy(WHAT, format!("it is open on {host}")).into());
    }
    if asked.file.size_bytes == 0 {
        // An empty file has no bytes in the archive.
        return Ok(());
    }
    let Asked { mut file, state, cred, .. } = asked;
    truncate::let_go(t, &mut file)?;
    file.allocated_bytes = RELEASED_BYTES;
    inode::put(t, &file)?;
    hsm::put_state(t, ino, State { flags: state.flags | HSM_RELEASED, ..state });
    hsm::tell(t, HsmEvent::Release, ino, Some(cred), false);
    Ok(())
}

/// Whether nothing would be lost.
fn releasable(t: &Txn<'_>, asked: &Asked<'_>, what: &'static str) -> Step<()> {
    let refused = |why: &str| Err(asked.refused(what, why).into());
    if !asked.has(HSM_ARCHIVED) || asked.state.copy.is_none() {
        return Err(asked
            .refused(what, "it is not archived")
            .next("archive it first: lfs hsm_archive FILE")
            .into());
    }
    if asked.has(HSM_NORELEASE) {
        return refused("it is marked never_release: lfs hsm_clear --norelease");
    }
    if asked.has(HSM_LOST) {
        return refused("its copy is marked as lost: lfs hsm_clear --lost, if it was found again");
    }
    if asked.has(HSM_DIRTY) {
        let why = match asked.file.open_for_write {
            true => "it is open for writing",
            false => "it has changed since it was archived",
        };
        return Err(asked.refused(what, why).next("archive it again: lfs hsm_archive FILE").into());
    }
    if t.live().hsm.actions.contains_key(&asked.file.ino) {
        return Err(asked.busy(what, "an action on it is queued or under way").into());
    }
    let body = asked.file.file()?;
    let is_settled = body.unsynced.is_empty() && body.aside.is_empty() && body.pending_cut.is_none();
    let is_whole = asked.state.copy.is_some_and(|copy| copy.size_bytes == asked.file.size_bytes);
    if !is_settled || !is_whole || !append::list(t, asked.file.ino)?.is_empty() {
        return Err(asked.busy(what, "a change of it is not finished yet").into());
    }
    Ok(())
}

/// Sets and clears flags.
pub async fn handle_set(mdt: &Mdt, call: &Call, req: HsmSetReq) -> Result<Empty> {
    mdt.modify(call, |t| {
        t.idle(req.ino)?;
        let file = inode::get(t, req.ino)?;
        file.file()?;
        hsm::owner_only(&file, &req.cred)?;
        let state = hsm::state_of(t, req.ino)?;
        let asked = Asked { flags: hsm::flags(&file, &state), file, state, cred: &req.cred };
        let state = changed(&asked, &req)?;
        hsm::put_state(t, req.ino, state);
        hsm::tell(t, HsmEvent::State, req.ino, Some(&req.cred), false);
        Ok(Empty {})
    })
    .await
}

fn changed(asked: &Asked<'_>, req: &HsmSetReq) -> Result<State> {
    const WHAT: &str = "cannot change the flags of";
    let allowed = if req.cred.uid == 0 { HSM_ROOT_FLAGS } else { HSM_USER_FLAGS };
    let beyond = (req.set | req.clear) & !allowed;
    if beyond != 0 || (req.archive.is_some() && req.cred.uid != 0) {
        let words = if beyond == 0 { "the archive".to_owned() } else { hsm_words(beyond).join(", ") };
        let who = if req.cred.uid == 0 { "nobody" } else { "only root" };
        let fault = Fault::new(Code::NotPermitted).what(WHAT).subject(asked.file.ino.fid().to_string());
        return Err(fault.why(format!("{who} may change {words}")).data("nothing was changed"));
    }
    if req.set & (HSM_EXISTS | HSM_ARCHIVED) & !asked.flags != 0 {
        let why = "only a copy that was completed makes it exist and be archived: else it would be lost when it is released";
        return Err(asked.refused(WHAT, why));
    }
    let copy_flags = HSM_EXISTS | HSM_ARCHIVED;
    if req.clear & copy_flags != 0 && asked.has(HSM_RELEASED) {
        return Err(asked.refused(WHAT, "it is released: its only copy would be forgotten"));
    }
    if req.clear & HSM_DIRTY != 0 && asked.has(HSM_DIRTY) && asked.state.flags & HSM_DIRTY == 0 {
        return Err(asked.refused(WHAT, "it has changed since it was archived, and is dirty by that"));
    }
    let mut state = asked.state;
    if req.clear & HSM_EXISTS != 0 {
        state = hsm::without_copy(&state);
    }
    state.flags = (state.flags & !req.clear | req.set) & !HSM_EXISTS;
    if let Some(archive) = req.archive {
        if archive == 0 || archive > ARCHIVE_ID_MAX {
            return Err(asked.refused(WHAT, format!("archives have the numbers 1 to {ARCHIVE_ID_MAX}")));
        }
        if state.copy.is_some() && archive != state.archive {
            return Err(asked.refused(WHAT, format!("its copy lies in archive {}", state.archive)));
        }
        state.archive = archive;
    }
    Ok(state)
}

/// Begins a restore if there is none, and waits for it for a while.
pub async fn handle_recall(mdt: &Mdt, call: &Call, req: HsmRecallReq) -> Result<HsmRecallResp> {
    let cookie = match recall(mdt, call, &req, req.waits_for).await? {
        HsmRecallResp::Waiting(cookie) => cookie,
        done => return Ok(done),
    };
    let ended = {
        let mut live = mdt.live_mut();
        let is_there = live.hsm.actions.get(&req.ino).is_some_and(|action| action.cookie == cookie);
        is_there.then(|| live.events.wait(Event::Hsm(req.ino)))
    };
    if let Some(ended) = ended {
        let _listed = mdt.waits().enter("hsm_recall", || format!("the restore of {}", req.ino.fid()));
        // The sender is dropped, not used; after the time the answer is that it goes on.
        let _ = mdt.seams().timeout_ms(RECALL_WAIT_MS, ended).await;
    }
    recall(mdt, call, &req, Some(cookie)).await
}

async fn recall(
    mdt: &Mdt,
    call: &Call,
    req: &HsmRecallReq,
    waits_for: Option<Pair>,
) -> Result<HsmRecallResp> {
    mdt.step(call, |t| Ok(recalled(t, req, waits_for)?)).await
}

/// The restore of a released file, which begins here if there is none. `waits_for`: the restore whose outcome the caller wants to know.
pub(super) fn recalled(
    t: &mut Txn<'_>,
    req: &HsmRecallReq,
    waits_for: Option<Pair>,
) -> Result<HsmRecallResp> {
    t.frees_space();
    let file = inode::get(t, req.ino)?;
    if !hsm::is_released(t, &file)? {
        return Ok(HsmRecallResp::Here);
    }
    let fid = req.ino.fid().to_string();
    let live = t.live();
    if let Some(action) = live.hsm.actions.get(&req.ino) {
        if live.hsm.control == HsmControl::Stopped && action.running.is_none() {
            let fault = Fault::new(Code::HsmOff).what("cannot restore").subject(fid);
            return Ok(HsmRecallResp::Failed(fault));
        }
        return Ok(HsmRecallResp::Waiting(action.cookie));
    }
    if live.recalling.contains(&req.ino) {
        // Whoever empties it waits until others have given back what they have of it.
        let fault = Fault::new(Code::NotRecalled).subject(fid).why("a program empties it at this moment");
        return Ok(HsmRecallResp::Failed(fault));
    }
    match waits_for.and_then(|cookie| live.hsm.outcome(req.ino, cookie)) {
        Some(HsmStatus::Failed(fault)) => return Ok(HsmRecallResp::Failed(fault.clone())),
        Some(HsmStatus::Cancelled) => {
            let why = "its restore was cancelled (lfs hsm_cancel, or a program empties it)";
            let fault = Fault::new(Code::NotRecalled).subject(fid).why(why);
            return Ok(HsmRecallResp::Failed(fault));
        }
        _ => {}
    }
    let state = hsm::state_of(t, req.ino)?;
    let asked = Asked { flags: hsm::flags(&file, &state), file, state, cred: &req.cred };
    if asked.has(HSM_LOST) {
        return Ok(HsmRecallResp::Failed(lost(req.ino)));
    }
    match queue(t, req.ino, &req.cred, "cannot restore", HsmKind::Restore, asked.state.archive) {
        // The action gets its number with the batch; the caller asks once more at once.
        Ok(()) => Ok(HsmRecallResp::Waiting(Pair::ZERO)),
        Err(fault) => Ok(HsmRecallResp::Failed(fault)),
    }
}
