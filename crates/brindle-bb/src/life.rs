//! The life of a buffer: a state machine without I/O.
//!
//! Whoever holds the lock of the buffer asks for a [`Goal`] with [`step`] until nothing is left to do. Each step stores the buffer that it
//! returns *before* its action is carried out, and reports the outcome with another step. A crash may therefore cut off any action, and the
//! action is asked for again; every action can be repeated.
//!
//! | phase | on disk | goes on with |
//! |---|---|---|
//! | `Allocated` | nothing | `Make` |
//! | `Making` | perhaps a part | `Make` again |
//! | `Ready` | an empty file system | `StageIn` |
//! | `StagingIn` | perhaps a part of the files | `StageIn` again |
//! | `StagedIn` | the files of the job | `Mount` |
//! | `Mounting` | mounted on some of `nodes` | `Mount` again |
//! | `Mounted` | mounted on all of `nodes`; the job runs | `Unmount` |
//! | `Unmounting` | mounted on some of `nodes` | `Unmount` again |
//! | `Unmounted` | what the job left | `StageOut` |
//! | `StagingOut` | the same; a part is copied | `StageOut` again |
//! | `StagedOut` | the same; all is copied | `Destroy` |
//! | `Kept` | the same; the copy failed or was stopped | `StageOut` when somebody asks |
//! | `Destroying` | perhaps a part | `Destroy` again |
//! | `Gone` | nothing | - |
//!
//! A persistent buffer belongs to no job: it is made and destroyed by name, and jobs use it. The phases of such a buffer are `Allocated`,
//! `Making`, `Ready`, `Destroying` and `Gone`. The row of a job names the persistent buffers that it uses, from its allocation to its end;
//! a job that only uses persistent buffers has a row without slices. The users of a persistent buffer are read from those rows, and stored
//! nowhere else.
//!
//! A buffer that has been made can be resized in any phase until it is destroyed, and its phase stays. Growing writes the larger `slices`
//! down, then makes them so (`Resize`). Shrinking writes `shrink_to` down, takes the space away (`Shrink`), and only then writes the
//! smaller `slices` down. A buffer that is `unsettled` may hold less than `slices` say, and never more; `Resize` makes the buffer hold
//! exactly `slices` again.
//!
//! Swap is a part of a mount: `StageIn` writes its files in full, `Mount` turns it on and `Unmount` turns it off, on each node. A node on which that
//! fails stays among `nodes`, so nothing is staged out or destroyed under it.
//!
//! Invariants: a buffer that [`Buffer::is_pending`] is destroyed for [`Goal::Drop`] only, or for [`Goal::Expire`] where a hurried teardown
//! has thrown it away and nobody has asked for [`Goal::Retry`] since; nothing is staged out or destroyed while it is mounted on a node; no persistent buffer is destroyed while the row of
//! a job names it.

use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

use crate::directive::{Access, Transfer};
use crate::pool::Slice;
use crate::staging::Staging;

/// A persistent buffer that a job uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PersistentUse {
    /// Name of the buffer.
    pub name: String,
    /// Serial number of the buffer.
    pub serial: u64,
}

/// Swap of the nodes of a job: a file of the buffer for each node, whose blocks are all allocated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Swap {
    /// Bytes for each node.
    pub bytes: u64,
    /// Nodes that the buffer has room for.
    pub nodes: u64,
    /// Bytes of the buffer for files of the job, beside the swap; 0 where the job has swap only.
    pub beside_bytes: u64,
}

impl Swap {
    /// Bytes on all nodes.
    pub fn all_bytes(&self) -> u64 {
        self.bytes.saturating_mul(self.nodes)
    }
}

/// Most steps of a buffer that are remembered; the first one always is.
pub const PASSED_MAX: usize = 64;

/// A phase that a buffer has come to, or a failure in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Passed {
    /// The phase.
    pub phase: Phase,
    /// Time of the step, in milliseconds since 1970.
    pub at_ms: u64,
    /// Failure of an action at that moment; empty if none failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

/// A buffer, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Buffer {
    /// Serial number of the buffer; never used twice.
    pub serial: u64,
    /// The job, as Slurm names it; of a persistent buffer its name.
    pub token: String,
    /// Owner.
    pub uid: u32,
    /// Group of the owner.
    pub gid: u32,
    /// The pool that it lies in.
    pub pool: String,
    /// Size of the buffer in bytes.
    pub bytes: u64,
    /// Time of the allocation, in seconds since 1970.
    pub created_s: u64,
    /// Bricks of the buffer, with the size of its part of each.
    pub slices: Vec<Slice>,
    /// Copied in before the job starts.
    pub stage_in: Vec<Transfer>,
    /// Copied out after the job has ended.
    pub stage_out: Vec<Transfer>,
    /// Phase of the buffer.
    pub phase: Phase,
    /// Nodes on which it may be mounted.
    pub nodes: Vec<String>,
    /// Whether the job may have run.
    pub ran: bool,
    /// Whether everything that was to be staged out has been, durably.
    pub staged_out: bool,
    /// Whether staging out has been tried.
    pub stage_out_tried: bool,
    /// Whether the scheduler has forgotten it.
    pub torn_down: bool,
    /// Reason why the last action failed; empty if it did not.
    pub reason: String,
    /// Whether it is persistent.
    #[serde(default)]
    pub persistent: bool,
    /// View that the nodes of the job have of the buffer.
    #[serde(default)]
    pub access: Access,
    /// Persistent buffers that the job uses.
    #[serde(default)]
    pub uses: Vec<PersistentUse>,
    /// Group whose members may use a persistent buffer beside its owner.
    #[serde(default)]
    pub group: Option<u32>,
    /// Whether a hurried teardown has thrown it away while files had still to be staged out.
    #[serde(default)]
    pub discarded: bool,
    /// Time at which the buffer was discarded, in seconds since 1970.
    #[serde(default)]
    pub discarded_s: Option<u64>,
    /// Largest size that it grows to by itself; its owner does not make it larger, either.
    #[serde(default)]
    pub grow_max_bytes: Option<u64>,
    /// Slices that it is being shrunk to.
    #[serde(default)]
    pub shrink_to: Option<Vec<Slice>>,
    /// Whether its bricks may hold less than `slices` say, because it is being resized.
    #[serde(default)]
    pub unsettled: bool,
    /// Reason why the last resizing failed; empty if it did not.
    #[serde(default)]
    pub resize_failure: String,
    /// Why something that programs of the job wrote may have been thrown away when it was unmounted; empty where nothing was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lost: String,
    /// Swap of its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// History of the buffer: phases and failures, with times. The caller that stores the buffer adds to it;
    /// no decision depends on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<Passed>,
    /// Jobs that use a persistent buffer. Read from the rows of the jobs, under the lock of the buffer, before each step; never stored.
    #[serde(default)]
    pub users: Vec<String>,
    /// The copy that runs or ran last. The orchestrator adds it to what it shows; never stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<Staging>,
}

/// Phase of the life of a buffer; see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the table of the module has them")]
pub enum Phase {
    Allocated,
    Making,
    Ready,
    StagingIn,
    StagedIn,
    Mounting,
    Mounted,
    Unmounting,
    Unmounted,
    StagingOut,
    StagedOut,
    Kept,
    Destroying,
    Gone,
}

/// A state of the buffer that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    /// A file system.
    Setup,
    /// The files of the job in it.
    DataIn,
    /// Mounts on these nodes.
    PreRun(Vec<String>),
    /// No mount on any node.
    PostRun,
    /// The files of the buffer are copied out.
    DataOut,
    /// The buffer is gone. A buffer whose files would be lost is kept.
    Teardown {
        /// Whether the teardown skips copying files out.
        hurry: bool,
    },
    /// The files are copied out, and the buffer is gone if the scheduler has forgotten its job.
    Retry,
    /// The buffer is gone, whatever it holds.
    Drop,
    /// The buffer is gone: a hurried teardown had thrown it away, and the time for which such a buffer is
    /// kept is over.
    Expire,
    /// Larger slices, which the pool has given to the buffer: none is smaller than before.
    Grow(Vec<Slice>),
    /// Smaller slices: none is larger than before.
    Shrink(Vec<Slice>),
    /// The end of a resizing that was cut off or has failed.
    Settle,
}

/// Work on processes, mounts and disks, for the caller to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Format, serve and mount it for staging.
    Make,
    /// Allocate the files of its swap; copy `stage_in`.
    StageIn,
    /// Mount it on `nodes`.
    Mount,
    /// Unmount it from `nodes`.
    Unmount,
    /// Copy `stage_out`, durably.
    StageOut,
    /// Unmount it, end its servers, remove its slices.
    Destroy,
    /// Make its targets as large as `slices` say.
    Resize,
    /// Make its targets as small as `shrink_to` says, where they hold no more.
    Shrink,
}

/// Input of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The caller asks for a goal.
    Asked(Goal),
    /// An action has been carried out.
    Done(Action),
    /// An action has failed, and why.
    Failed(Action, String),
    /// Unmounting goes on, and these nodes have nothing of it any more.
    UnmountedFrom(Vec<String>),
}

/// The outcome of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The buffer from now on; to be stored before the action.
    pub buffer: Buffer,
    /// The next work; none where the goal is reached.
    pub action: Option<Action>,
}

impl Buffer {
    /// Whether files of a job that may have run have not been staged out yet.
    pub fn is_pending(&self) -> bool {
        self.ran && !self.staged_out && !self.stage_out.is_empty()
    }

    /// Refuses a job that wants to use a persistent buffer which is not there, or not any more.
    pub fn refuse_use(&self) -> Result<()> {
        if self.persistent && self.phase == Phase::Ready {
            return Ok(());
        }
        Err(unfit(self, "use"))
    }

    /// Whether it exists: it has been made, and is not being destroyed.
    pub fn is_made(&self) -> bool {
        !matches!(self.phase, Phase::Allocated | Phase::Making | Phase::Destroying | Phase::Gone)
            && !self.slices.is_empty()
    }

    /// Notes the phase, if it is another one than before, or a failure.
    pub fn note(&mut self, at_ms: u64, failure: &str) {
        let is_same = self.passed.last().is_some_and(|last| last.phase == self.phase);
        if is_same && failure.is_empty() {
            return;
        }
        if self.passed.len() >= PASSED_MAX {
            self.passed.remove(1);
        }
        self.passed.push(Passed { phase: self.phase, at_ms, failure: failure.to_owned() });
    }

    /// Whether somebody may still write into it: the job that it was made for has not ended.
    pub fn may_be_written(&self) -> bool {
        let has_ended = matches!(
            self.phase,
            Phase::Unmounting | Phase::Unmounted | Phase::StagingOut | Phase::StagedOut | Phase::Kept
        );
        self.is_made() && !has_ended
    }

    /// Whether the job has a directory in it: it has slices, and not for swap only.
    pub fn has_directory(&self) -> bool {
        !self.slices.is_empty() && self.swap.as_ref().is_none_or(|swap| swap.beside_bytes > 0)
    }

    /// Bytes of it that are swap.
    pub fn swap_bytes(&self) -> u64 {
        self.swap.as_ref().map_or(0, Swap::all_bytes)
    }

    /// The buffer with the slices of a goal that grows it.
    fn with_slices(&self, goal: &Goal) -> Buffer {
        let Goal::Grow(slices) = goal else { return self.clone() };
        Buffer { slices: slices.clone(), bytes: sum(slices), ..self.clone() }
    }

    /// The buffer in another phase.
    fn at(&self, phase: Phase) -> Buffer {
        Buffer { phase, ..self.clone() }
    }
}

/// The buffer after an event. A refusal changes nothing.
pub fn step(buffer: &Buffer, event: &Event) -> Result<Step> {
    match event {
        Event::Asked(goal) => asked(buffer, goal),
        Event::Done(action) => Ok(reached(done(buffer, *action))),
        Event::Failed(action, why) => Ok(reached(failed(buffer, *action, why))),
        Event::UnmountedFrom(nodes) => {
            let mut fewer = buffer.clone();
            // The last one leaves when the action is done.
            let is_left = |node: &String| !nodes.contains(node);
            if buffer.phase == Phase::Unmounting && buffer.nodes.iter().any(is_left) {
                fewer.nodes.retain(is_left);
            }
            Ok(reached(fewer))
        }
    }
}

fn sum(slices: &[Slice]) -> u64 {
    slices.iter().map(|slice| slice.bytes).sum()
}

fn reached(buffer: Buffer) -> Step {
    Step { buffer, action: None }
}

fn act(buffer: Buffer, action: Action) -> Result<Step> {
    Ok(Step { buffer, action: Some(action) })
}

fn asked(buffer: &Buffer, goal: &Goal) -> Result<Step> {
    let ends = matches!(goal, Goal::Teardown { .. } | Goal::Drop | Goal::Retry | Goal::Expire);
    // A buffer that is half destroyed is never used again.
    match buffer.phase {
        Phase::Gone | Phase::Destroying if !ends => return Err(unfit(buffer, goal.verb())),
        Phase::Gone => return Ok(reached(buffer.clone())),
        Phase::Destroying => return act(buffer.clone(), Action::Destroy),
        _ => {}
    }
    match goal {
        Goal::Grow(_) | Goal::Shrink(_) | Goal::Settle => return resize(buffer, goal),
        _ if buffer.persistent => return asked_of_persistent(buffer, goal),
        _ => {}
    }
    match goal {
        Goal::Setup => setup(buffer),
        Goal::DataIn => data_in(buffer, goal),
        Goal::PreRun(nodes) => pre_run(buffer, goal, nodes),
        Goal::PostRun if buffer.nodes.is_empty() => Ok(reached(buffer.clone())),
        Goal::PostRun => unmount(buffer),
        Goal::DataOut => data_out(buffer, goal),
        Goal::Teardown { hurry } => teardown(buffer, *hurry),
        Goal::Retry => retry(buffer, goal),
        Goal::Drop => drop_it(buffer, goal),
        Goal::Expire if buffer.phase == Phase::Kept && buffer.discarded => drop_it(buffer, goal),
        Goal::Expire | Goal::Grow(_) | Goal::Shrink(_) | Goal::Settle => Err(unfit(buffer, goal.verb())),
    }
}

/// The next step of resizing. An earlier one that was cut off is ended first: a shrinking as if nobody had asked for it, a growing with all that the pool
/// has given.
fn resize(buffer: &Buffer, goal: &Goal) -> Result<Step> {
    if matches!(buffer.phase, Phase::Allocated | Phase::Making) || buffer.slices.is_empty() {
        return Err(unfit(buffer, goal.verb()));
    }
    if buffer.unsettled {
        return act(Buffer { shrink_to: None, ..buffer.with_slices(goal) }, Action::Resize);
    }
    match goal {
        Goal::Grow(slices) if buffer.slices != *slices => {
            act(Buffer { unsettled: true, ..buffer.with_slices(goal) }, Action::Resize)
        }
        Goal::Shrink(slices) if buffer.slices != *slices => {
            let shrink_to = Some(slices.clone());
            act(Buffer { unsettled: true, shrink_to, ..buffer.clone() }, Action::Shrink)
        }
        _ => Ok(reached(buffer.clone())),
    }
}

fn asked_of_persistent(buffer: &Buffer, goal: &Goal) -> Result<Step> {
    match goal {
        Goal::Setup => setup(buffer),
        Goal::Teardown { .. } | Goal::Drop if buffer.users.is_empty() => {
            act(buffer.at(Phase::Destroying), Action::Destroy)
        }
        Goal::Teardown { .. } | Goal::Drop => Err(Fault::new(Code::BufferInUse)
            .what("cannot destroy the persistent buffer")
            .subject(buffer.token.clone())
            .why(format!("used by job {}", buffer.users.join(", ")))
            .data("nothing was changed")),
        _ => Err(unfit(buffer, goal.verb()).why("it is a persistent buffer")),
    }
}

fn setup(buffer: &Buffer) -> Result<Step> {
    match buffer.phase {
        Phase::Allocated | Phase::Making => act(buffer.at(Phase::Making), Action::Make),
        _ => Ok(reached(buffer.clone())),
    }
}

fn data_in(buffer: &Buffer, goal: &Goal) -> Result<Step> {
    match buffer.phase {
        Phase::Ready | Phase::StagingIn if buffer.stage_in.is_empty() && buffer.swap.is_none() => {
            Ok(reached(buffer.at(Phase::StagedIn)))
        }
        Phase::Ready | Phase::StagingIn => act(buffer.at(Phase::StagingIn), Action::StageIn),
        Phase::StagedIn => Ok(reached(buffer.clone())),
        _ => Err(unfit(buffer, goal.verb())),
    }
}

/// Nodes that a mount was begun on stay among the buffer's, so that all of them are unmounted.
fn pre_run(buffer: &Buffer, goal: &Goal, nodes: &[String]) -> Result<Step> {
    if buffer.phase == Phase::Mounted && nodes.iter().all(|node| buffer.nodes.contains(node)) {
        return Ok(reached(buffer.clone()));
    }
    let fits = match buffer.phase {
        Phase::StagedIn | Phase::Mounting | Phase::Mounted => true,
        Phase::Ready => buffer.stage_in.is_empty(),
        _ => false,
    };
    if !fits {
        return Err(unfit(buffer, goal.verb()));
    }
    let mut next = buffer.at(Phase::Mounting);
    next.nodes.extend(nodes.iter().cloned());
    next.nodes.sort();
    next.nodes.dedup();
    act(next, Action::Mount)
}

fn unmount(buffer: &Buffer) -> Result<Step> {
    act(buffer.at(Phase::Unmounting), Action::Unmount)
}

fn data_out(buffer: &Buffer, goal: &Goal) -> Result<Step> {
    if !buffer.ran && buffer.stage_out.is_empty() && buffer.nodes.is_empty() {
        // Slurm mounts nothing for a job that only makes or destroys persistent buffers.
        return Ok(reached(buffer.clone()));
    }
    if !buffer.ran {
        return Err(unfit(buffer, goal.verb()));
    }
    if !buffer.nodes.is_empty() {
        return unmount(buffer);
    }
    if buffer.is_pending() {
        return act(buffer.at(Phase::StagingOut), Action::StageOut);
    }
    Ok(reached(Buffer { staged_out: true, ..buffer.at(Phase::StagedOut) }))
}

/// A job that never ran has nothing to lose. Pending files are copied out once. If that failed, or there is
/// no time, the buffer is kept.
fn teardown(buffer: &Buffer, hurry: bool) -> Result<Step> {
    if !buffer.nodes.is_empty() {
        return unmount(buffer);
    }
    if !buffer.is_pending() {
        return act(buffer.at(Phase::Destroying), Action::Destroy);
    }
    if !hurry && !buffer.stage_out_tried {
        return act(buffer.at(Phase::StagingOut), Action::StageOut);
    }
    let discarded = buffer.discarded || (hurry && !buffer.torn_down);
    let mut kept = Buffer { torn_down: true, discarded, ..buffer.at(Phase::Kept) };
    if kept.reason.is_empty() {
        kept.reason = "the job was ended before its files were staged out".to_owned();
    }
    Ok(reached(kept))
}

fn retry(buffer: &Buffer, goal: &Goal) -> Result<Step> {
    if matches!(buffer.phase, Phase::Mounting | Phase::Mounted) {
        return Err(unfit(buffer, goal.verb()).why("its job runs"));
    }
    // Somebody wants the files after all. The files stay until they are copied out, also where this copy fails.
    let buffer = &match buffer.is_pending() {
        true => Buffer { discarded: false, discarded_s: None, ..buffer.clone() },
        false => buffer.clone(),
    };
    if !buffer.nodes.is_empty() {
        return unmount(buffer);
    }
    if buffer.is_pending() {
        return act(buffer.at(Phase::StagingOut), Action::StageOut);
    }
    if buffer.torn_down {
        return act(buffer.at(Phase::Destroying), Action::Destroy);
    }
    Ok(reached(buffer.clone()))
}

fn drop_it(buffer: &Buffer, goal: &Goal) -> Result<Step> {
    if matches!(buffer.phase, Phase::Mounting | Phase::Mounted) {
        return Err(unfit(buffer, goal.verb())
            .why("its job runs")
            .next(format!("end the job first: scancel {}", buffer.token)));
    }
    if !buffer.nodes.is_empty() {
        return unmount(buffer);
    }
    act(buffer.at(Phase::Destroying), Action::Destroy)
}

fn done(buffer: &Buffer, action: Action) -> Buffer {
    let fine = Buffer { reason: String::new(), ..buffer.clone() };
    match action {
        Action::Resize | Action::Shrink => {
            let slices = match &buffer.shrink_to {
                Some(smaller) if action == Action::Shrink => smaller.clone(),
                _ => buffer.slices.clone(),
            };
            Buffer {
                bytes: sum(&slices),
                slices,
                shrink_to: None,
                unsettled: false,
                resize_failure: String::new(),
                ..buffer.clone()
            }
        }
        Action::Make => fine.at(Phase::Ready),
        Action::StageIn => fine.at(Phase::StagedIn),
        Action::Mount => Buffer { ran: true, ..fine.at(Phase::Mounted) },
        // The reason of a failed copy stays until it has worked.
        Action::Unmount if buffer.stage_out_tried => Buffer { nodes: Vec::new(), ..buffer.at(Phase::Kept) },
        Action::Unmount => {
            let phase = if buffer.ran { Phase::Unmounted } else { Phase::StagedIn };
            Buffer { nodes: Vec::new(), ..fine.at(phase) }
        }
        Action::StageOut => Buffer { staged_out: true, stage_out_tried: true, ..fine.at(Phase::StagedOut) },
        Action::Destroy => fine.at(Phase::Gone),
    }
}

fn failed(buffer: &Buffer, action: Action, why: &str) -> Buffer {
    let sad = Buffer { reason: why.to_owned(), ..buffer.clone() };
    match action {
        // The reason of a buffer that is kept stays.
        Action::Resize | Action::Shrink => {
            Buffer { shrink_to: None, resize_failure: why.to_owned(), ..buffer.clone() }
        }
        Action::Make => sad.at(Phase::Making),
        Action::StageIn => sad.at(Phase::Ready),
        Action::Mount => sad.at(Phase::Mounting),
        Action::Unmount => sad.at(Phase::Unmounting),
        Action::StageOut => Buffer { stage_out_tried: true, ..sad.at(Phase::Kept) },
        Action::Destroy => sad.at(Phase::Destroying),
    }
}

impl Goal {
    /// Verb of the goal, for the text of a refusal.
    fn verb(&self) -> &'static str {
        match self {
            Goal::Setup => "set up",
            Goal::DataIn => "stage files into",
            Goal::PreRun(_) => "mount",
            Goal::PostRun => "unmount",
            Goal::DataOut | Goal::Retry => "stage files out of",
            Goal::Teardown { .. } | Goal::Drop | Goal::Expire => "destroy",
            Goal::Grow(_) => "grow",
            Goal::Shrink(_) => "shrink",
            Goal::Settle => "resize",
        }
    }
}

/// Refusal of a request that does not fit the phase.
fn unfit(buffer: &Buffer, verb: &str) -> Fault {
    let kind = if buffer.persistent { "persistent buffer" } else { "buffer of job" };
    let fault = Fault::new(Code::WrongPhase)
        .what(format!("cannot {verb} the {kind}"))
        .subject(buffer.token.clone())
        .why(format!("it is {}", buffer.phase.word()))
        .data("nothing was changed");
    if buffer.reason.is_empty() { fault } else { fault.why(buffer.reason.clone()) }
}

impl Phase {
    /// The phase in a word, for people.
    pub fn word(self) -> &'static str {
        match self {
            Phase::Allocated => "allocated",
            Phase::Making => "being made",
            Phase::Ready => "ready",
            Phase::StagingIn => "staging in",
            Phase::StagedIn => "staged in",
            Phase::Mounting => "being mounted",
            Phase::Mounted => "mounted",
            Phase::Unmounting => "being unmounted",
            Phase::Unmounted => "unmounted",
            Phase::StagingOut => "staging out",
            Phase::StagedOut => "staged out",
            Phase::Kept => "kept",
            Phase::Destroying => "being destroyed",
            Phase::Gone => "gone",
        }
    }
}

#[cfg(test)]
mod tests;
