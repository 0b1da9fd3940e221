//! The loop: looks at the triggers when their time has come, scans once for all policies that are due, and acts.

use brindle_policy::trigger::{On, Target};
use brindle_policy::{Plan, Program};
use brindle_stdx::Mono;
use brindle_types::Result;

use super::describe::describe;
use super::state::{Run, State};
use super::{Due, Engine, Outcome};

/// Interval at which the text is checked, and the shortest time between two checks of the triggers.
const TICK_MS: u64 = 500;
/// A policy that is not started by usage pauses so many times as long as its scan took: a scan is at most 5 % of the MDT's time.
const PAUSE_FACTOR: u64 = 19;
/// Pause after a run by usage where the text gives none: released objects go from the OSTs a little later.
const POST_WAIT_SECS: u64 = 60;

/// Reads the text again.
pub type Load<'a> = dyn Fn() -> Result<Program> + Send + Sync + 'a;

/// Time at which a trigger of a policy is checked next.
struct Timer {
    policy: usize,
    /// `None`: the policy has no trigger, and an interval.
    trigger: Option<usize>,
    interval_ms: u64,
    next: Mono,
}

impl Timer {
    fn key(&self, program: &Program) -> String {
        let name = &program.policies[self.policy].name;
        self.trigger.map_or_else(|| name.clone(), |trigger| format!("{name}#{trigger}"))
    }

    fn is_on(&self, program: &Program, state: &State) -> bool {
        !state.is_off(&program.policies[self.policy].name)
    }

    /// Whether the policy's run may begin now. A policy that was switched off stays due.
    fn may_begin(&mut self, policy: &str, state: &State, now: Mono) -> bool {
        let is_on = !state.is_off(policy);
        if !is_on {
            self.next = now;
        }
        is_on
    }

    fn is_by_usage(&self, program: &Program) -> bool {
        let policy = &program.policies[self.policy];
        self.trigger.is_some_and(|trigger| policy.triggers[trigger].on != On::Periodic)
    }
}

fn timers(engine: &Engine, program: &Program, state: &State) -> Vec<Timer> {
    let now = engine.client.seams().now();
    let wall = engine.client.seams().wall().secs;
    let mut all = Vec::new();
    for (index, policy) in program.policies.iter().enumerate() {
        let by_trigger =
            policy.triggers.iter().enumerate().map(|(n, trigger)| (Some(n), trigger.interval_secs));
        let by_interval = policy.parameters.interval_secs.filter(|_| policy.triggers.is_empty());
        for (trigger, secs) in by_trigger.chain(by_interval.map(|secs| (None, secs))) {
            let mut timer =
                Timer { policy: index, trigger, interval_ms: secs.saturating_mul(1000), next: now };
            // A restart does not begin a week anew.
            let last =
                state.history.last_runs.get(&timer.key(program)).filter(|_| !timer.is_by_usage(program));
            if let Some(last) = last {
                let passed_ms = u64::try_from(wall - last).unwrap_or(0).saturating_mul(1000);
                timer.next = now.plus_ms(timer.interval_ms.saturating_sub(passed_ms));
            }
            all.push(timer);
        }
    }
    all
}

/// Runs a text until it is dropped; with `once` each trigger is looked at once, now.
pub async fn run(
    engine: &Engine,
    mut program: Program,
    load: &Load<'_>,
    state: &mut State,
    once: bool,
) -> Result<u64> {
    engine.access_times(&program).await?;
    state.history.sum.clone_from(&program.sum);
    state.history.policies = describe(&program);
    state.history.problem = None;
    state.history.unconfirmed.clear();
    state.save()?;
    let mut timers = timers(engine, &program, state);
    if once {
        let on = timers.iter_mut().filter(|timer| timer.is_on(&program, state)).collect();
        return pass(engine, &program, state, on).await;
    }
    loop {
        if let Some(newer) = reload(&program, load, state)? {
            tracing::info!(sum = newer.sum, "the text has changed");
            program = newer;
            timers = self::timers(engine, &program, state);
        }
        let now = engine.client.seams().now();
        // A policy that is off stays due, so that it runs as soon as it is on.
        let is_due = |timer: &&mut Timer| timer.next <= now && timer.is_on(&program, state);
        let due: Vec<&mut Timer> = timers.iter_mut().filter(is_due).collect();
        if !due.is_empty()
            && let Err(fault) = pass(engine, &program, state, due).await
        {
            tracing::warn!(%fault, "this pass of the policies is given up; the next one comes");
        }
        engine.client.seams().sleep_ms(TICK_MS).await;
    }
}

/// The text, if it has changed since and is good; a bad one is noted, and the one before goes on.
fn reload(program: &Program, load: &Load<'_>, state: &mut State) -> Result<Option<Program>> {
    let (newer, problem) = match load() {
        Ok(newer) => (Some(newer).filter(|newer| newer.sum != program.sum), None),
        Err(fault) => (None, Some(fault.to_string())),
    };
    if problem != state.history.problem {
        if let Some(problem) = &problem {
            tracing::error!("the text cannot be used; the one before goes on: {problem}");
        }
        state.history.problem = problem;
        state.save()?;
    }
    if let Some(newer) = &newer {
        state.history.sum.clone_from(&newer.sum);
        state.history.policies = describe(newer);
        state.save()?;
    }
    Ok(newer)
}

/// Looks at some triggers, and runs what follows. Answers with the number of actions that failed.
async fn pass(
    engine: &Engine,
    program: &Program,
    state: &mut State,
    mut timers: Vec<&mut Timer>,
) -> Result<u64> {
    let now = engine.client.seams().now();
    for timer in &mut timers {
        timer.next = now.plus_ms(timer.interval_ms);
    }
    let (due, owners) = due(engine, program, state, &timers).await?;
    if due.is_empty() {
        return Ok(0);
    }
    let planned = engine.plan(program, &due).await?;
    let mut failed = 0;
    for ((due, owner), plan) in due.iter().zip(owners).zip(&planned.plans) {
        let timer = &mut timers[owner];
        // The scan and the runs before it may have taken hours, and somebody may have switched it off meanwhile.
        let name = &program.policies[timer.policy].name;
        if !timer.may_begin(name, state, engine.client.seams().now()) {
            continue;
        }
        let outcome = carry_out(engine, program, state, due, plan, &timer.key(program)).await?;
        failed += outcome.failed;
        let now = engine.client.seams().now();
        if !timer.is_by_usage(program) {
            let pause_ms = planned.took_ms.saturating_mul(PAUSE_FACTOR).max(timer.interval_ms);
            timer.next = now.plus_ms(pause_ms);
        } else if outcome.done > 0 {
            timer.next = now.plus_ms(post_wait_ms(program, timer).max(timer.interval_ms));
        }
    }
    Ok(failed)
}

fn post_wait_ms(program: &Program, timer: &Timer) -> u64 {
    let policy = &program.policies[timer.policy];
    let own = timer.trigger.and_then(|trigger| policy.triggers[trigger].post_wait_secs);
    own.or(policy.parameters.post_wait_secs).unwrap_or(POST_WAIT_SECS).saturating_mul(1000)
}

/// Policies that the triggers ask for now, and the timer that asks for each.
async fn due(
    engine: &Engine,
    program: &Program,
    state: &mut State,
    timers: &[&mut Timer],
) -> Result<(Vec<Due>, Vec<usize>)> {
    let is_by_usage = timers.iter().any(|timer| timer.is_by_usage(program));
    let usages = if is_by_usage { engine.usages(program).await? } else { Default::default() };
    let is_confirmed = state.is_confirmed(&program.sum);
    let (mut all, mut owners, mut unconfirmed) = (Vec::new(), Vec::new(), Vec::new());
    for (index, timer) in timers.iter().enumerate() {
        let policy = &program.policies[timer.policy];
        let targets = match timer.trigger {
            Some(trigger) => policy.triggers[trigger].targets(&usages, engine.names()),
            None => vec![Target::all("its time has come")],
        };
        if policy.deletes() && !is_confirmed {
            unconfirmed.push(policy.name.clone());
            continue;
        }
        owners.extend(targets.iter().map(|_| index));
        all.extend(targets.into_iter().map(|target| Due { policy: timer.policy, target }));
    }
    if is_confirmed {
        unconfirmed.clear();
        state.history.unconfirmed.clear();
    }
    for name in
        unconfirmed.into_iter().filter(|name| !state.history.unconfirmed.contains(name)).collect::<Vec<_>>()
    {
        tracing::warn!(policy = name, "it deletes, and this text was not confirmed: it stays off");
        state.history.unconfirmed.push(name);
        state.save()?;
    }
    Ok((all, owners))
}

async fn carry_out(
    engine: &Engine,
    program: &Program,
    state: &mut State,
    due: &Due,
    plan: &Plan,
    key: &str,
) -> Result<Outcome> {
    let policy = &program.policies[due.policy];
    let wall = || engine.client.seams().wall().secs;
    let mut run = Run {
        policy: policy.name.clone(),
        why: due.target.why.clone(),
        began_secs: wall(),
        matched: plan.matched,
        ..Run::default()
    };
    state.history.last_runs.insert(key.to_owned(), run.began_secs);
    state.history.running = Some(run.clone());
    state.save()?;
    let outcome = engine.carry_out(policy, plan).await;
    run.ended_secs = wall();
    (run.done, run.bytes, run.left, run.failed) = (outcome.done, outcome.bytes, outcome.left, outcome.failed);
    run.notes.extend(outcome.stopped.clone());
    run.notes.extend(outcome.errors.clone());
    if !plan.is_reached {
        let note = format!(
            "the target is not reached: {} of the entries that match are not enough",
            plan.chosen.len()
        );
        tracing::warn!(policy = policy.name, why = run.why, "{note}");
        run.notes.push(note);
    }
    let is_worth_telling = run.matched > 0 || !run.notes.is_empty();
    if is_worth_telling {
        tracing::info!(
            policy = run.policy,
            why = run.why,
            matched = run.matched,
            done = run.done,
            bytes = run.bytes,
            failed = run.failed,
            "ran"
        );
        state.ended(run);
    }
    state.history.running = None;
    state.save()?;
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::state::Mark;

    #[test]
    fn a_policy_that_is_switched_off_during_the_run_before_it_does_not_begin_and_stays_due() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::look(dir.path()).unwrap();
        let (now, later) = (Mono(0).plus_ms(7_000), Mono(0).plus_ms(60_000));
        let mut timer = Timer { policy: 0, trigger: None, interval_ms: 53_000, next: later };
        assert!(timer.may_begin("purge", &state, now) && timer.next == later);
        // As a command does it meanwhile, in another process.
        let mark = Mark { at_secs: 1, uid: 0, file: "f".into() };
        State::look(dir.path()).unwrap().turn_off("purge", &mark).unwrap();
        assert!(!timer.may_begin("purge", &state, now) && timer.next == now);
    }
}
