//! The table beside a model of the kernel's side: whatever order readers work in, a signal is never lost.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn a_handler_sees_the_signal_before_and_after_it_looks() {
    let table = Interrupts::new();
    let early = table.register(7);
    assert!(table.interrupt(7));
    assert!(early.cancel().is_requested());
    assert!(ready(&mut Box::pin(early.cancel().requested())));

    let late = table.register(8);
    let mut waiting = Box::pin(late.cancel().requested());
    assert!(!ready(&mut waiting));
    assert!(table.interrupt(8));
    assert!(ready(&mut waiting));
    assert!(!table.interrupt(9), "unknown");
}

#[test]
fn a_request_is_known_until_its_registration_is_dropped() {
    let table = Interrupts::new();
    let registration = table.register(7);
    let cancel = registration.cancel();
    drop(registration);
    assert!(!table.interrupt(7));
    assert!(!cancel.is_requested());
    assert!(table.is_empty());
}

#[test]
fn every_handler_that_waits_is_woken() {
    let cancel = Cancel::new();
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(cancel.requested())).collect();
    assert!(waiting.iter_mut().all(|w| !ready(w)));
    cancel.request();
    assert!(waiting.iter_mut().all(ready));
}

#[test]
fn nobody_else_has_a_kill_pending() {
    assert!(!kill_pending(std::process::id()));
    assert!(!kill_pending(u32::MAX));
}

fn ready<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> bool {
    future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
}

/// A request as the kernel sees it.
#[derive(Default)]
struct Asked {
    registration: Option<Registration>,
    cancel: Option<Cancel>,
    signalled: bool,
    answered: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// A reader has read the request from the device, and registers it later.
    Sent(u64),
    /// The reader registers it.
    Registered(u64),
    /// The caller gets a signal: the kernel queues an INTERRUPT.
    Signal(u64),
    /// A reader handles the oldest INTERRUPT.
    Interrupt,
    /// The handler answers.
    Answered(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..6u64;
    prop_oneof![
        id.clone().prop_map(Step::Sent),
        id.clone().prop_map(Step::Registered),
        id.clone().prop_map(Step::Signal),
        Just(Step::Interrupt),
        id.prop_map(Step::Answered),
    ]
}

/// Runs the steps. At the end the table must be empty, with no INTERRUPT left: each was delivered, or its
/// request was answered.
fn run(steps: Vec<Step>) {
    let table = Interrupts::new();
    let mut asked: BTreeMap<u64, Asked> = BTreeMap::new();
    let mut interrupts: Vec<u64> = Vec::new();
    let handle = |interrupts: &mut Vec<u64>, asked: &BTreeMap<u64, Asked>| {
        let Some(id) = (!interrupts.is_empty()).then(|| interrupts.remove(0)) else { return };
        if !table.interrupt(id) && !asked[&id].answered {
            // EAGAIN: the kernel sends it again, because the request lives.
            interrupts.push(id);
        }
    };
    for step in steps {
        match step {
            Step::Sent(id) => drop(asked.entry(id).or_default()),
            Step::Registered(id) => {
                if let Some(a) = asked.get_mut(&id).filter(|a| a.cancel.is_none()) {
                    let registration = table.register(id);
                    a.cancel = Some(registration.cancel());
                    a.registration = Some(registration);
                }
            }
            Step::Signal(id) => {
                if let Some(a) = asked.get_mut(&id).filter(|a| !a.signalled && !a.answered) {
                    a.signalled = true;
                    interrupts.push(id);
                }
            }
            Step::Interrupt => handle(&mut interrupts, &asked),
            Step::Answered(id) => {
                if let Some(a) = asked.get_mut(&id).filter(|a| a.registration.is_some()) {
                    a.answered = true;
                    a.registration = None;
                }
            }
        }
    }
    for (id, a) in asked.iter_mut().filter(|(_, a)| a.cancel.is_none()) {
        let registration = table.register(*id);
        a.cancel = Some(registration.cancel());
        a.registration = Some(registration);
    }
    for _ in 0..interrupts.len() {
        handle(&mut interrupts, &asked);
    }
    assert!(interrupts.is_empty());
    for (id, a) in &asked {
        let fired = a.cancel.as_ref().is_some_and(Cancel::is_requested);
        assert!(!fired || a.signalled, "{id} was cancelled without a signal");
        assert!(fired || !a.signalled || a.answered, "the signal for {id} was lost");
    }
    assert_eq!(table.len(), asked.values().filter(|a| a.registration.is_some()).count());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_signal_is_lost_in_any_order(steps in prop::collection::vec(step(), 0..60)) {
        run(steps);
    }
}
