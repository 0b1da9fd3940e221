//! Tiering: files whose bytes lie in an archive too, or only there (design note 028).
//!
//! | promise | by |
//! |---|---|
//! | a file is released only if its copy is complete and of its contents | compare of `data_version`, in the batch that lets the objects go |
//! | the copy counts only if nobody wrote meanwhile | compare of `data_version` in the batch that completes it; every stripe is synced before |
//! | late work of a silent agent has no effect | each time an action is given out it has a new attempt, which the batch compares |
//! | an action and its change of the file are atomic | the `H|` rows and the inode change in one batch |
//! | the only copy of a released file is never removed | a remove clears ARCHIVED when it is queued, and is refused for a released file |
//!
//! A released file looks like an inline one that has no bytes: its components have no objects, its size stays. An open is answered with
//! `Released`. A mount that only reads then opens the file nevertheless, and reads the parts that are here ([`extents`], design note 054);
//! another one asks for a restore, waits, and opens the file again.

pub mod divided;
pub mod extents;
pub mod queue;
pub mod restore;
pub mod sync;

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_stdx::Mono;
use brindle_types::hsm::{HSM_ARCHIVED, HSM_DIRTY, HSM_EXISTS, HSM_RELEASED};
use brindle_types::{ChangeKind, Code, Fault, HsmKind, Ino, Pair, Result};
use brindle_wire::mds::hsm::{HsmAttempt, HsmStatus};
use brindle_wire::{Cred, Op};

use crate::changelog;
use crate::mdt::{Call, Event, Mdt, Txn};
use crate::store::hsm::{self as rows, Action, State};
use crate::store::{Inode, Rows};

/// Space that a released file counts for: tools must not take it for one big hole.
pub const RELEASED_BYTES: u64 = 512;
/// Silence of an agent, in milliseconds, after which its work is given to others.
pub const AGENT_LEASE_MS: u64 = 10_000;
/// Interval at which agents are checked.
const LOOK_MS: u64 = 1_000;
/// Attempts that may end without a word before an action fails.
pub const LOST_ATTEMPTS_MAX: u32 = 8;

/// Event in a changelog record of type HSM, with Lustre's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HsmEvent {
    /// A copy was made.
    Archive = 0,
    /// The bytes came back.
    Restore = 1,
    /// An action was given up.
    Cancel = 2,
    /// The bytes were let go.
    Release = 3,
    /// A copy was removed.
    Remove = 4,
    /// Flags were set.
    State = 5,
}

/// Position of the event in the flags of a record.
const TOLD_SHIFT: u32 = 7;
/// An error, in the flags of a record: that of an I/O error, since the others have no number there.
const TOLD_FAILED: u32 = 5;

/// Puts a record into the changelog.
pub fn tell(t: &mut Txn<'_>, told: HsmEvent, ino: Ino, cred: Option<&Cred>, is_failed: bool) {
    let error = if is_failed { TOLD_FAILED } else { 0 };
    changelog::note(t, ChangeKind::Hsm, |change| {
        change.target = Some(ino);
        change.flags = (told as u32) << TOLD_SHIFT | error;
        change.user = cred.map(|cred| (cred.uid, cred.gid));
    });
}

/// The flags of a file.
pub fn flags(file: &Inode, state: &State) -> u32 {
    let mut flags = state.flags & !HSM_EXISTS;
    if let Some(copy) = &state.copy {
        flags |= HSM_EXISTS;
        let has_changed = file.open_for_write || file.data_version != copy.data_version;
        if flags & HSM_RELEASED == 0 && has_changed {
            flags |= HSM_DIRTY;
        }
    }
    flags
}

/// Whether the bytes of a file lie in an archive only.
pub fn is_released(t: &Txn<'_>, file: &Inode) -> Result<bool> {
    // A released file looks like this; so the others need no look at a row.
    let may_be = t.live().hsm.is_used && file.is_inline() && file.size_bytes > 0;
    Ok(may_be && rows::state(t, file.ino)?.flags & HSM_RELEASED != 0)
}

/// Whether the bytes of a file lie in an archive only, and somebody has asked for them.
pub fn is_restoring(t: &Txn<'_>, file: &Inode) -> Result<bool> {
    Ok(t.live().hsm.actions.contains_key(&file.ino) && is_released(t, file)?)
}

/// Refuses with `Released` if the bytes of a file lie in an archive only.
pub fn here(t: &Txn<'_>, file: &Inode) -> Result<()> {
    match is_released(t, file)? {
        false => Ok(()),
        true => Err(Fault::new(Code::Released).subject(file.ino.fid().to_string())),
    }
}

/// Sets the state of a file.
pub fn put_state(t: &mut Txn<'_>, ino: Ino, state: State) {
    rows::put_state(t, ino, state);
    t.after(|live| live.hsm.is_used = true);
}

/// Queues an action, or changes it.
pub fn put_action(t: &mut Txn<'_>, ino: Ino, action: Action) {
    rows::put_action(t, ino, &action);
    t.after(move |live| {
        live.hsm.put(ino, action);
        if action.running.is_none() {
            live.events.fire(Event::HsmWork);
        }
        live.events.fire(Event::HsmExtents(ino));
    });
}

/// The action on a file ends.
pub fn end_action(t: &mut Txn<'_>, ino: Ino, status: HsmStatus) {
    rows::delete_action(t, ino);
    t.after(move |live| {
        live.hsm.end(ino, status);
        live.events.fire(Event::Hsm(ino));
        live.events.fire(Event::HsmExtents(ino));
    });
}

/// Forgets everything that tiering knows of an inode that is removed. The copy in the archive stays there, unless somebody has asked for its
/// removal before.
pub fn forget(t: &mut Txn<'_>, ino: Ino) {
    if !t.live().hsm.is_used && !t.live().hsm.actions.contains_key(&ino) {
        return;
    }
    rows::put_state(t, ino, State::default());
    if t.live().hsm.actions.get(&ino).is_some_and(|action| action.kind != HsmKind::Remove) {
        end_action(t, ino, HsmStatus::Cancelled);
    }
}

/// Notes that a file becomes empty: a restore is not needed any more.
pub fn emptied(t: &mut Txn<'_>, file: &Inode) -> Result<()> {
    if !is_released(t, file)? {
        return Ok(());
    }
    let state = rows::state(t, file.ino)?;
    put_state(t, file.ino, State { flags: state.flags & !HSM_RELEASED, ..state });
    if t.live().hsm.actions.contains_key(&file.ino) {
        end_action(t, file.ino, HsmStatus::Cancelled);
    }
    Ok(())
}

/// The action that this is the attempt of; `StaleAttempt` if it was given up.
pub fn attempt(t: &Txn<'_>, attempt: &HsmAttempt) -> Result<Action> {
    let action = t.live().hsm.actions.get(&attempt.ino).copied();
    let is_running =
        |action: &Action| action.running.is_some_and(|running| running.attempt == attempt.attempt);
    action.filter(is_running).ok_or_else(|| stale_attempt(attempt.ino))
}

/// The refusal of what an attempt says that is over.
pub fn stale_attempt(ino: Ino) -> Fault {
    let why = "the action was cancelled or given to another agent, or its file was removed or emptied";
    Fault::new(Code::StaleAttempt).subject(ino.fid().to_string()).why(why)
}

/// Refuses everybody but the owner of a file and root.
pub fn owner_only(file: &Inode, cred: &Cred) -> Result<()> {
    match cred.uid == 0 || cred.uid == file.uid {
        true => Ok(()),
        false => Err(Fault::new(Code::NotPermitted)
            .subject(file.ino.fid().to_string())
            .why("only its owner or root may do this")
            .data("nothing was changed")),
    }
}

/// Refuses everybody but root.
pub fn root_only(cred: &Cred, what: &'static str) -> Result<()> {
    match cred.uid {
        0 => Ok(()),
        uid => Err(Fault::new(Code::NotPermitted)
            .what(what)
            .why(format!("only root may, and this is user {uid}"))),
    }
}

/// The copy of a file is not what it was: it is complete, or it goes.
pub fn without_copy(state: &State) -> State {
    State { flags: state.flags & !(HSM_ARCHIVED | HSM_EXISTS), copy: None, ..*state }
}

/// Gives what silent agents have to others, for as long as the MDT runs.
pub async fn watch_agents(mdt: Arc<Mdt>) {
    loop {
        mdt.seams().sleep_ms(LOOK_MS).await;
        let now = mdt.hearing().now();
        let silent = mdt.live().hsm.silent_agents(now, AGENT_LEASE_MS);
        for agent in silent {
            if let Err(fault) = take_back(&mdt, agent, "it was silent").await {
                tracing::error!(%fault, "what a silent agent has is given to others later");
            }
        }
    }
}

/// Queues the actions of an agent for another one, under new attempts. The agent is forgotten until it asks
/// again.
pub async fn take_back(mdt: &Mdt, agent: [u8; 16], why: &'static str) -> Result<()> {
    let held: Vec<(Ino, Pair)> = mdt.live().hsm.held_by(agent);
    if !held.is_empty() {
        tracing::warn!(actions = held.len(), why, "the work of an agent is given to others");
    }
    mdt.step(&Call::internal(Op::HsmProgress), |t| {
        queue_again(t, &held);
        t.after(move |live| {
            if live.hsm.free_spans_of(agent) {
                tracing::warn!(why, "spans of an agent are given to others");
                live.events.fire(Event::HsmWork);
            }
            live.hsm.forget_agent(agent);
        });
        Ok(())
    })
    .await
}

/// Queues again what an agent should have and does not work on: the answer that told it so was lost.
pub async fn take_back_unheard_of(
    mdt: &Mdt,
    agent: [u8; 16],
    works_on: &BTreeSet<HsmAttempt>,
    now: Mono,
) -> Result<()> {
    let held = mdt.live().hsm.unheard_of(agent, works_on, now, AGENT_LEASE_MS);
    if held.is_empty() {
        return Ok(());
    }
    tracing::warn!(actions = held.len(), "an agent does not know of its work, which is given out again");
    mdt.step(&Call::internal(Op::HsmProgress), |t| {
        queue_again(t, &held);
        Ok(())
    })
    .await
}

/// Queues attempts that end without an outcome. An action that has lost too many of them fails.
fn queue_again(t: &mut Txn<'_>, held: &[(Ino, Pair)]) {
    t.frees_space();
    for (ino, number) in held {
        // An action that is being completed at this moment is left alone: its batch decides.
        if t.live().busy.contains(ino) {
            continue;
        }
        let found = attempt(t, &HsmAttempt { ino: *ino, attempt: *number });
        let Ok(action) = found else { continue };
        let lost_attempts = action.lost_attempts + 1;
        if lost_attempts < LOST_ATTEMPTS_MAX {
            put_action(t, *ino, Action { running: None, lost_attempts, ..action });
            continue;
        }
        let fault = Fault::new(Code::ArchiveFailed)
            .subject(ino.fid().to_string())
            .why(format!("{lost_attempts} agents that took it fell silent"))
            .next("look at the logs of the agents");
        end_action(t, *ino, HsmStatus::Failed(fault));
    }
}

/// Whether a row of tiering belongs to an inode, for checks: the flags that its state would show.
pub fn state_of(rows_of: &(impl Rows + ?Sized), ino: Ino) -> Result<State> {
    rows::state(rows_of, ino)
}
