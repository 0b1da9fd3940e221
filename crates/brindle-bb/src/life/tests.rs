//! All buffers that can come to be, by all goals, outcomes and crashes: the machine has no hidden state, so this is exhaustive.

use std::collections::{HashSet, VecDeque};

use super::*;
use crate::directive::{CopyEnd, Entry};

/// Most steps to any goal.
const STEPS_MAX: usize = 8;

fn slice(bytes: u64) -> Slice {
    Slice { serial: 1, brick: "b0".to_owned(), bytes, image_bytes: Some(48), node: None }
}

fn buffer(stages: bool) -> Buffer {
    let (place, outside, inside) = (CopyEnd::Striped, "/x".to_owned(), "x".to_owned());
    let transfer = Transfer { entry: Entry::File, outside, place, inside };
    let transfers = if stages { vec![transfer] } else { Vec::new() };
    Buffer {
        serial: 1,
        token: "7".to_owned(),
        uid: 1001,
        gid: 1001,
        pool: "default".to_owned(),
        bytes: 16,
        created_s: 0,
        slices: vec![slice(16)],
        stage_in: transfers.clone(),
        stage_out: transfers,
        phase: Phase::Allocated,
        nodes: Vec::new(),
        ran: false,
        staged_out: false,
        stage_out_tried: false,
        torn_down: false,
        reason: String::new(),
        persistent: false,
        access: Access::Striped,
        uses: Vec::new(),
        group: None,
        discarded: false,
        discarded_s: None,
        grow_max_bytes: None,
        shrink_to: None,
        unsettled: false,
        resize_failure: String::new(),
        lost: String::new(),
        swap: None,
        passed: Vec::new(),
        users: Vec::new(),
        staging: None,
    }
}

fn goals() -> Vec<Goal> {
    vec![
        Goal::Setup,
        Goal::DataIn,
        Goal::PreRun(vec!["n1".to_owned(), "n2".to_owned()]),
        Goal::PostRun,
        Goal::DataOut,
        Goal::Teardown { hurry: false },
        Goal::Teardown { hurry: true },
        Goal::Retry,
        Goal::Drop,
        Goal::Expire,
        Goal::Grow(vec![slice(48)]),
        Goal::Shrink(vec![slice(16)]),
        Goal::Settle,
    ]
}

/// Every buffer that can be stored, with what may be done to it next. A crash is a buffer whose action has no outcome: it is among them.
fn all_buffers(each: &mut dyn FnMut(&Buffer, &Goal, &Step)) -> HashSet<Buffer> {
    let mut seen = HashSet::new();
    let swap = Some(Swap { bytes: 4, nodes: 2, beside_bytes: 8 });
    let with_swap = [true, false].map(|stages| Buffer { swap: swap.clone(), ..buffer(stages) });
    let mut queue: VecDeque<Buffer> = [buffer(true), buffer(false)].into_iter().chain(with_swap).collect();
    while let Some(now) = queue.pop_front() {
        if !seen.insert(now.clone()) {
            continue;
        }
        for goal in goals() {
            let Ok(next) = step(&now, &Event::Asked(goal.clone())) else { continue };
            each(&now, &goal, &next);
            queue.push_back(next.buffer.clone());
            if let Some(action) = next.action {
                for event in [Event::Done(action), Event::Failed(action, "because".to_owned())] {
                    queue.push_back(step(&next.buffer, &event).expect("outcomes are taken").buffer);
                }
                if action == Action::Unmount {
                    // Node `n1` is done, and the other nodes are awaited.
                    let one = Event::UnmountedFrom(vec!["n1".to_owned()]);
                    let fewer = step(&next.buffer, &one).expect("outcomes are taken").buffer;
                    assert!(!fewer.nodes.is_empty(), "{fewer:?}");
                    let failed = Event::Failed(action, "n2 is away".to_owned());
                    queue.push_back(step(&fewer, &failed).expect("outcomes are taken").buffer);
                }
            }
        }
    }
    seen
}

/// Goes on until the goal is reached, every action working; the actions.
fn pursue(from: &Buffer, goal: &Goal) -> Result<(Buffer, Vec<Action>)> {
    let mut now = from.clone();
    let mut actions = Vec::new();
    while actions.len() < STEPS_MAX {
        let next = step(&now, &Event::Asked(goal.clone()))?;
        now = next.buffer;
        let Some(action) = next.action else { return Ok((now, actions)) };
        actions.push(action);
        now = step(&now, &Event::Done(action))?.buffer;
    }
    panic!("{goal:?} is not reached from {from:?}: {actions:?}");
}

/// Whether files may be given up: somebody says so, or has thrown them away and the time is over.
fn is_word(buffer: &Buffer, goal: &Goal) -> bool {
    *goal == Goal::Drop || (*goal == Goal::Expire && buffer.discarded && buffer.torn_down)
}

#[test]
fn what_is_to_be_staged_out_is_never_destroyed_and_mounts_are_gone_first() {
    let mut checked = 0;
    let seen = all_buffers(&mut |before, goal, next| {
        checked += 1;
        let case = format!("{before:?}\n{goal:?}\n{next:?}");
        let begins_to_destroy = next.action == Some(Action::Destroy) && before.phase != Phase::Destroying;
        assert!(!begins_to_destroy || !before.is_pending() || is_word(before, goal), "{case}");
        if matches!(next.action, Some(Action::Destroy | Action::StageOut)) {
            assert!(next.buffer.nodes.is_empty(), "{case}");
        }
        if next.action == Some(Action::StageOut) {
            assert!(next.buffer.is_pending(), "{case}");
        }
        // Only a copy that worked says so, and only nodes that were asked for have mounts.
        assert!(next.buffer.staged_out == before.staged_out || before.stage_out.is_empty(), "{case}");
        assert!(next.buffer.ran == before.ran, "{case}");
    });
    assert!(seen.len() > 40 && checked > 200, "{} buffers, {checked} cases", seen.len());
}

#[test]
fn teardown_ends_every_buffer_and_can_be_repeated() {
    for from in all_buffers(&mut |_, _, _| {}) {
        for hurry in [false, true] {
            let teardown = Goal::Teardown { hurry };
            let (end, _) = pursue(&from, &teardown).unwrap();
            let kept =
                end.phase == Phase::Kept && end.is_pending() && end.torn_down && !end.reason.is_empty();
            assert!(kept || end.phase == Phase::Gone, "{from:?}\n{end:?}");
            let (again, actions) = pursue(&end, &teardown).unwrap();
            assert!(again == end && actions.is_empty(), "{end:?}\n{again:?}");
            if kept {
                assert!(from.ran, "a job that never ran leaves nothing behind: {from:?}");
                let (retried, actions) = pursue(&end, &Goal::Retry).unwrap();
                assert_eq!(
                    (retried.phase, actions.as_slice()),
                    (Phase::Gone, [Action::StageOut, Action::Destroy].as_slice())
                );
                assert_eq!(pursue(&end, &Goal::Drop).unwrap().0.phase, Phase::Gone);
            }
        }
    }
}

#[test]
fn a_failed_action_can_be_asked_for_again_and_reaches_the_same() {
    all_buffers(&mut |before, goal, next| {
        let Some(action) = next.action else { return };
        // The pursuit after a crash in the action, and after its failure, ends where the undisturbed one ends.
        let whole = pursue(before, goal).unwrap().0;
        let after_crash = pursue(&next.buffer, goal).unwrap().0;
        assert_eq!(after_crash.phase, whole.phase, "{before:?} {goal:?}");
        let failed = step(&next.buffer, &Event::Failed(action, "because".to_owned())).unwrap().buffer;
        let after_failure = pursue(&failed, goal).unwrap().0;
        let kept = after_failure.phase == Phase::Kept && after_failure.is_pending();
        assert!(after_failure.phase == whole.phase || kept, "{before:?} {goal:?} {after_failure:?}");
    });
}

#[test]
fn a_job_lives_as_slurm_calls_it() {
    let nodes = vec!["n1".to_owned(), "n2".to_owned()];
    let calls = [
        (Goal::Setup, vec![Action::Make], Phase::Ready),
        (Goal::DataIn, vec![Action::StageIn], Phase::StagedIn),
        (Goal::PreRun(nodes), vec![Action::Mount], Phase::Mounted),
        (Goal::PostRun, vec![Action::Unmount], Phase::Unmounted),
        (Goal::DataOut, vec![Action::StageOut], Phase::StagedOut),
        (Goal::Teardown { hurry: false }, vec![Action::Destroy], Phase::Gone),
    ];
    let mut now = buffer(true);
    for (goal, actions, phase) in calls {
        let (next, done) = pursue(&now, &goal).unwrap();
        assert_eq!((done, next.phase), (actions, phase), "{goal:?}");
        now = next;
    }
}

#[test]
fn a_failed_post_run_does_not_skip_the_copy() {
    let mounted = pursue(
        &pursue(&pursue(&buffer(true), &Goal::Setup).unwrap().0, &Goal::DataIn).unwrap().0,
        &Goal::PreRun(vec!["n1".to_owned()]),
    )
    .unwrap()
    .0;
    let torn = pursue(&mounted, &Goal::Teardown { hurry: false }).unwrap();
    assert_eq!(torn.1, [Action::Unmount, Action::StageOut, Action::Destroy]);
    let hurried = pursue(&mounted, &Goal::Teardown { hurry: true }).unwrap();
    assert_eq!((hurried.1, hurried.0.phase), (vec![Action::Unmount], Phase::Kept));
}

#[test]
fn a_running_job_keeps_its_buffer() {
    let mut now =
        pursue(&pursue(&buffer(false), &Goal::Setup).unwrap().0, &Goal::PreRun(vec!["n1".to_owned()]))
            .unwrap()
            .0;
    assert_eq!(now.phase, Phase::Mounted);
    for goal in [Goal::Drop, Goal::Retry, Goal::DataIn] {
        assert_eq!(pursue(&now, &goal).unwrap_err().code, Code::WrongPhase);
    }
    now = pursue(&now, &Goal::PostRun).unwrap().0;
    assert_eq!(pursue(&now, &Goal::Drop).unwrap().0.phase, Phase::Gone);
}

#[test]
fn a_rescue_that_fails_does_not_let_the_buffer_expire() {
    let ran = Buffer { ran: true, ..buffer(true).at(Phase::Unmounted) };
    let hurried = step(&ran, &Event::Asked(Goal::Teardown { hurry: true })).unwrap().buffer;
    let hurried = Buffer { discarded_s: Some(5), ..hurried };
    assert!(hurried.phase == Phase::Kept && hurried.discarded);
    assert!(step(&hurried, &Event::Asked(Goal::Expire)).is_ok());
    let rescue = step(&hurried, &Event::Asked(Goal::Retry)).unwrap();
    assert_eq!(rescue.action, Some(Action::StageOut));
    let failed = Event::Failed(Action::StageOut, "no room".to_owned());
    let failed = step(&rescue.buffer, &failed).unwrap().buffer;
    assert_eq!((failed.phase, failed.discarded, failed.discarded_s), (Phase::Kept, false, None));
    assert!(step(&failed, &Event::Asked(Goal::Expire)).is_err());
    // The scheduler repeats its hurried teardowns.
    let again = step(&failed, &Event::Asked(Goal::Teardown { hurry: true })).unwrap().buffer;
    assert!(!again.discarded && step(&again, &Event::Asked(Goal::Expire)).is_err());
    let (end, actions) = pursue(&again, &Goal::Retry).unwrap();
    assert_eq!((end.phase, actions), (Phase::Gone, vec![Action::StageOut, Action::Destroy]));
}

#[test]
fn only_what_was_thrown_away_expires() {
    for from in all_buffers(&mut |_, _, _| {}) {
        assert!(!from.discarded || from.torn_down, "{from:?}");
        if let Ok((end, _)) = pursue(&from, &Goal::Expire) {
            assert_eq!(end.phase, Phase::Gone);
            let ends = matches!(from.phase, Phase::Gone | Phase::Destroying);
            assert!(ends || (from.phase == Phase::Kept && from.discarded), "{from:?}");
        }
    }
}

/// A persistent buffer and the rows of two jobs that use it, or have not begun to, or have ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shared {
    buffer: Buffer,
    jobs: [Option<Buffer>; 2],
}

impl Shared {
    /// The persistent buffer as the orchestrator sees it under the buffer's lock.
    fn locked(&self) -> Buffer {
        let users = self.jobs.iter().flatten().map(|job| job.token.clone()).collect();
        Buffer { users, ..self.buffer.clone() }
    }

    /// The states after a step of the persistent buffer, with every outcome and a crash.
    fn of_buffer(&self, goal: &Goal) -> Vec<Shared> {
        let Ok(next) = step(&self.locked(), &Event::Asked(goal.clone())) else { return Vec::new() };
        if next.action == Some(Action::Destroy) {
            assert!(self.jobs.iter().all(Option::is_none), "{self:?} {goal:?}");
        }
        let outcomes = next.action.into_iter().flat_map(|action| {
            let events = [Event::Done(action), Event::Failed(action, "because".to_owned())];
            events.map(|event| step(&next.buffer, &event).unwrap().buffer)
        });
        let all = std::iter::once(next.buffer.clone()).chain(outcomes);
        all.map(|buffer| Shared { buffer: Buffer { users: Vec::new(), ..buffer }, ..self.clone() }).collect()
    }

    /// The states after a step of a job. The job's row comes with its allocation, which refuses a buffer that is not ready.
    fn of_job(&self, index: usize, goal: &Goal) -> Vec<Shared> {
        let with = |job: Option<Buffer>| {
            let mut next = self.clone();
            next.jobs[index] = job.filter(|job| job.phase != Phase::Gone);
            next
        };
        let Some(job) = &self.jobs[index] else {
            let fresh = Buffer { serial: index as u64 + 2, token: format!("{index}"), ..buffer(index == 0) };
            return self.buffer.refuse_use().map(|()| with(Some(fresh))).into_iter().collect();
        };
        let Ok(next) = step(job, &Event::Asked(goal.clone())) else { return Vec::new() };
        if matches!(next.action, Some(Action::Mount | Action::StageIn | Action::StageOut)) {
            assert_eq!(self.buffer.phase, Phase::Ready, "{self:?} {goal:?}");
        }
        let mut all = vec![with(Some(next.buffer.clone()))];
        if let Some(action) = next.action {
            for event in [Event::Done(action), Event::Failed(action, "because".to_owned())] {
                all.push(with(Some(step(&next.buffer, &event).unwrap().buffer)));
            }
        }
        all
    }
}

#[test]
fn a_persistent_buffer_outlives_all_jobs_that_use_it() {
    let fresh = Buffer { persistent: true, token: "data".to_owned(), ..buffer(false) };
    let mut seen = HashSet::new();
    let mut queue: VecDeque<Shared> = [Shared { buffer: fresh, jobs: [None, None] }].into();
    while let Some(now) = queue.pop_front() {
        if !seen.insert(now.clone()) {
            continue;
        }
        let reachable = [Phase::Allocated, Phase::Making, Phase::Ready, Phase::Destroying, Phase::Gone];
        assert!(reachable.contains(&now.buffer.phase), "{now:?}");
        // Jobs are alike: the goals of the second one are those that Slurm sends when all goes well.
        for goal in goals() {
            queue.extend(now.of_buffer(&goal));
            // The size of a job's own buffer has nothing to do with it.
            let resizes = matches!(goal, Goal::Grow(_) | Goal::Shrink(_) | Goal::Settle);
            queue.extend((!resizes).then(|| now.of_job(0, &goal)).into_iter().flatten());
        }
        for goal in [Goal::Setup, Goal::PreRun(vec!["n1".to_owned()]), Goal::Teardown { hurry: true }] {
            queue.extend(now.of_job(1, &goal));
        }
    }
    let phases: HashSet<Phase> = seen.iter().map(|shared| shared.buffer.phase).collect();
    assert!(phases.len() == 5 && seen.len() > 300, "{} states, {phases:?}", seen.len());
}

#[test]
fn a_persistent_buffer_in_use_is_not_destroyed_and_takes_no_goals_of_jobs() {
    let fresh = Buffer { persistent: true, token: "data".to_owned(), ..buffer(false) };
    assert_eq!(fresh.refuse_use().unwrap_err().code, Code::WrongPhase);
    let (ready, actions) = pursue(&fresh, &Goal::Setup).unwrap();
    assert_eq!((ready.phase, actions), (Phase::Ready, vec![Action::Make]));
    ready.refuse_use().unwrap();
    assert_eq!(buffer(false).refuse_use().unwrap_err().code, Code::WrongPhase);
    let used = Buffer { users: vec!["7".to_owned(), "9".to_owned()], ..ready.clone() };
    for goal in [Goal::Drop, Goal::Teardown { hurry: true }] {
        let fault = pursue(&used, &goal).unwrap_err();
        assert_eq!((fault.code, fault.why[0].as_ref()), (Code::BufferInUse, "used by job 7, 9"));
        assert_eq!(pursue(&ready, &goal).unwrap().0.phase, Phase::Gone);
    }
    for goal in [Goal::DataIn, Goal::PreRun(Vec::new()), Goal::PostRun, Goal::DataOut, Goal::Retry] {
        assert_eq!(pursue(&ready, &goal).unwrap_err().code, Code::WrongPhase, "{goal:?}");
    }
}

/// A buffer, and bytes that its targets hold.
type Held = (Buffer, u64);

/// The states of a buffer after a step: done, failed and cut off, with its targets as they were, as they should be, or between both.
fn resized((now, held): &Held, goal: &Goal) -> Vec<Held> {
    let Ok(next) = step(now, &Event::Asked(goal.clone())) else { return Vec::new() };
    let Some(action) = next.action else { return vec![(next.buffer, *held)] };
    let wanted = match (&next.buffer.shrink_to, action) {
        (Some(smaller), Action::Shrink) => smaller[0].bytes,
        (_, Action::Resize) => next.buffer.slices[0].bytes,
        _ => *held,
    };
    let failed = Event::Failed(action, "because".to_owned());
    let mut all = vec![(step(&next.buffer, &Event::Done(action)).unwrap().buffer, wanted)];
    for held in [*held, u64::midpoint(*held, wanted), wanted] {
        all.push((next.buffer.clone(), held));
        all.push((step(&next.buffer, &failed).unwrap().buffer, held));
    }
    all
}

#[test]
fn a_buffer_never_holds_more_than_its_row_says_however_its_resizing_is_cut_off() {
    let goals = [
        Goal::Grow(vec![slice(48)]),
        Goal::Grow(vec![slice(32)]),
        Goal::Shrink(vec![slice(16)]),
        Goal::Settle,
        Goal::PostRun,
        Goal::DataOut,
    ];
    let ready = pursue(&Buffer { bytes: 16, ..buffer(true) }, &Goal::Setup).unwrap().0;
    let staged = pursue(&ready, &Goal::DataIn).unwrap().0;
    let made = pursue(&staged, &Goal::PreRun(vec!["n1".to_owned()])).unwrap().0;
    let mut seen = HashSet::new();
    let mut queue: VecDeque<Held> = [(made, 16)].into();
    while let Some(state) = queue.pop_front() {
        if !seen.insert(state.clone()) {
            continue;
        }
        let (now, held) = &state;
        assert!(*held <= now.bytes && now.bytes == now.slices[0].bytes, "{state:?}");
        assert!(now.unsettled || *held == now.bytes, "{state:?}");
        // Settling reaches what the row says, and nothing else of the buffer changes.
        let settled = pursue(now, &Goal::Settle).unwrap().0;
        assert!(!settled.unsettled && settled.shrink_to.is_none() && settled.bytes == now.bytes);
        assert_eq!((settled.phase, &settled.reason), (now.phase, &now.reason));
        for goal in &goals {
            // The pool grows what is smaller, and shrinks what is larger.
            let fits = match goal {
                Goal::Grow(to) => to[0].bytes >= now.bytes,
                Goal::Shrink(to) => to[0].bytes <= now.bytes,
                _ => true,
            };
            queue.extend(fits.then(|| resized(&state, goal)).into_iter().flatten());
        }
    }
    assert!(seen.len() > 30, "{} states", seen.len());
}

#[test]
fn only_what_is_there_is_resized() {
    let grown = Goal::Grow(vec![slice(48)]);
    assert_eq!(pursue(&buffer(false), &grown).unwrap_err().code, Code::WrongPhase);
    let ready = pursue(&buffer(false), &Goal::Setup).unwrap().0;
    let (grown, actions) = pursue(&ready, &grown).unwrap();
    assert_eq!((grown.bytes, grown.phase, actions), (48, Phase::Ready, vec![Action::Resize]));
    let (small, actions) = pursue(&grown, &Goal::Shrink(vec![slice(16)])).unwrap();
    assert_eq!((small.bytes, actions), (16, vec![Action::Shrink]));
    let gone = pursue(&small, &Goal::Drop).unwrap().0;
    assert_eq!(pursue(&gone, &Goal::Settle).unwrap_err().code, Code::WrongPhase);
    let bare = Buffer { slices: Vec::new(), ..ready };
    assert_eq!(pursue(&bare, &Goal::Settle).unwrap_err().code, Code::WrongPhase);
}

#[test]
fn steps_are_noted_once_each_and_the_first_is_never_forgotten() {
    let mut buffer = buffer(false);
    buffer.note(5, "");
    buffer.note(6, "");
    buffer.phase = Phase::Making;
    buffer.note(7, "");
    buffer.note(8, "no room");
    let noted: Vec<_> = buffer.passed.iter().map(|p| (p.phase, p.at_ms, p.failure.as_str())).collect();
    assert_eq!(noted, [(Phase::Allocated, 5, ""), (Phase::Making, 7, ""), (Phase::Making, 8, "no room")]);
    let row = serde_json::to_string(&buffer).unwrap();
    assert_eq!(serde_json::from_str::<Buffer>(&row).unwrap(), buffer);
    for n in 0..200 {
        buffer.note(10 + n, "again");
    }
    assert_eq!((buffer.passed.len(), buffer.passed[0].at_ms), (PASSED_MAX, 5));
    assert_eq!(buffer.passed.last().map(|p| p.at_ms), Some(209));
}
