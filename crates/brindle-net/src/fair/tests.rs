//! Tests of sharing over real tasks: the order of requests, and that two requests never wait for each other.

use std::sync::atomic::{AtomicUsize, Ordering};

use brindle_wire::mgs::limit::{LimitAt, LimitOf};
use tokio::sync::{Semaphore, mpsc};

use super::*;

/// Longest time of a test that must not hang.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

struct Setup {
    fair: Arc<Fair>,
    seams: Seams,
    principal: Principal,
    host: Arc<str>,
}

fn run(test: impl AsyncFnOnce(Setup, Seams), places: Option<usize>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("runtime").block_on(async {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let fair = Fair::new(&seams, FairConfig { role: Role::Mdt, places });
        let principal = Principal { kind: PrincipalKind::Client, host: "n1".into(), target: None };
        let setup = Setup { fair, seams: seams.clone(), principal, host: "n1".into() };
        let done = tokio::time::timeout(LIMIT, test(setup, seams.clone())).await;
        assert!(done.is_ok(), "somebody waits for ever");
    });
}

impl Setup {
    fn ask(&self, op: Op, job: &str, work: impl Future<Output = ()> + Send + 'static) {
        let job = JobTag::new(job, 0);
        let request = Request {
            op: Some(op),
            principal: &self.principal,
            host: &self.host,
            address: "10.0.0.1",
            job: Some(&job),
            bytes: 0,
        };
        self.fair.run(&request, work);
    }
}

/// Blocks a thread until it may go on, as work of a processor or a disk does.
struct Blocker(std::sync::mpsc::Sender<()>);

impl Blocker {
    fn take_the_place(setup: &Setup) -> Blocker {
        let (go_on, may_go_on) = std::sync::mpsc::channel();
        setup.ask(Op::Getattr, "blocker", async move {
            tokio::task::block_in_place(|| may_go_on.recv().unwrap_or_default());
        });
        Blocker(go_on)
    }

    fn let_go(self) {
        self.0.send(()).expect("it waits");
    }
}

#[test]
fn a_quiet_job_goes_before_what_a_noisy_one_has_queued() {
    let test = async |setup: Setup, _| {
        let blocker = Blocker::take_the_place(&setup);
        let (done, mut order) = mpsc::unbounded_channel();
        for n in 0..64 {
            let done = done.clone();
            setup.ask(Op::Create, "noisy", async move { done.send(n).expect("open") });
        }
        setup.ask(Op::Lookup, "quiet", async move { done.send(1_000).expect("open") });
        assert_eq!(setup.fair.answer().queued, 65);
        blocker.let_go();
        let mut served = Vec::new();
        while let Some(n) = order.recv().await {
            served.push(n);
        }
        let before = served.iter().position(|n| *n == 1_000).expect("served");
        assert!(before <= 1, "{before} requests of the noisy job went first");
        assert_eq!(served.len(), 65);
        let told = setup.fair.answer();
        let quiet = told.jobs.iter().find(|job| job.name == "quiet").expect("it waited");
        assert!(quiet.overtaken.max <= 1 && quiet.queued.count == 1, "{quiet:?}");
        assert_eq!(setup.fair.totals().queued, 65);
    };
    run(test, Some(1));
}

/// Requests that park give their place up: those that they wait for come later, and are queued behind them.
#[test]
fn whoever_waits_for_another_request_has_no_place() {
    let test = async |setup: Setup, _| {
        let (recalled, done) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        // Start more requests of one job than there are places. All of them wait for the last request of their own
        // class.
        for _ in 0..100 {
            let (recalled, done) = (recalled.clone(), done.clone());
            setup.ask(Op::Open, "job", async move {
                recalled.acquire().await.expect("open").forget();
                done.add_permits(1);
            });
        }
        setup.ask(Op::InlineWrite, "job", async move { recalled.add_permits(100) });
        done.acquire_many(100).await.expect("open").forget();
    };
    run(test, Some(2));
}

/// Requests that others wait for pass while every place is taken by a thread that does not come back.
#[test]
fn answers_pass_at_once() {
    let test = async |setup: Setup, _| {
        let blocker = Blocker::take_the_place(&setup);
        for op in [Op::Close, Op::Report, Op::SessionRenew, Op::SetLock, Op::ReturnGrant, Op::AppendDone] {
            let (done, told) = tokio::sync::oneshot::channel();
            setup.ask(op, "blocker", async move { done.send(()).expect("open") });
            told.await.expect("it passes");
        }
        // Servers pass, too, whatever they ask for.
        let (done, told) = tokio::sync::oneshot::channel();
        let mdt = Principal { kind: PrincipalKind::Mdt, host: "m".into(), target: None };
        let request = Request {
            op: Some(Op::Write),
            principal: &mdt,
            host: &setup.host,
            address: "",
            job: None,
            bytes: 0,
        };
        setup.fair.run(&request, async move { done.send(()).expect("open") });
        told.await.expect("it passes");
        blocker.let_go();
    };
    run(test, Some(1));
}

#[test]
fn a_request_that_panics_leaves_its_place() {
    let test = async |setup: Setup, _| {
        let blocker = Blocker::take_the_place(&setup);
        setup.ask(Op::Create, "job", async { panic!("as a handler with a defect would") });
        let (done, told) = tokio::sync::oneshot::channel();
        setup.ask(Op::Create, "job", async move { done.send(()).expect("open") });
        blocker.let_go();
        told.await.expect("the next one is served");
    };
    run(test, Some(1));
}

/// Any mix of requests that pause, yield and wait for each other is served to its end.
#[test]
fn a_crowd_is_served_to_the_end() {
    let test = async |setup: Setup, seams: Seams| {
        let served = Arc::new(AtomicUsize::new(0));
        let turnstile = Arc::new(Semaphore::new(3));
        for n in 0..5_000u64 {
            let (served, turnstile, seams) = (served.clone(), turnstile.clone(), seams.clone());
            let job = format!("job{}", n % 7);
            setup.ask(Op::Create, &job, async move {
                let _turn = turnstile.acquire().await.expect("open");
                tokio::task::yield_now().await;
                if n % 50 == 0 {
                    seams.sleep_ms(1).await;
                }
                served.fetch_add(1, Ordering::Relaxed);
            });
        }
        while served.load(Ordering::Relaxed) < 5_000 {
            setup.seams.sleep_ms(1).await;
        }
        let told = setup.fair.answer();
        assert_eq!((told.queued, told.held), (0, 0));
    };
    run(test, Some(4));
}

#[test]
fn a_limit_holds_and_its_end_lets_go() {
    let test = async |setup: Setup, _| {
        let rule = LimitRule {
            name: "slow".into(),
            of: vec![LimitOf::Job("job".into())],
            at: LimitAt::Everywhere,
            requests_per_s: Some(1),
            bytes_per_s: None,
            ends_s: None,
        };
        setup.fair.set_limits(&[rule]);
        let served = Arc::new(Semaphore::new(0));
        for _ in 0..5 {
            let served = served.clone();
            setup.ask(Op::Create, "job", async move { served.add_permits(1) });
        }
        // A close is no request that a limit holds.
        let (done, told) = tokio::sync::oneshot::channel();
        setup.ask(Op::Close, "job", async move { done.send(()).expect("open") });
        told.await.expect("it passes");
        served.acquire().await.expect("open").forget();
        let told = setup.fair.answer();
        assert_eq!((told.held, told.rules[0].requests, told.rules[0].held), (4, 5, 4), "{told:?}");
        assert_eq!((told.jobs[0].rule.as_str(), told.jobs[0].held.count), ("slow", 4));
        setup.fair.set_limits(&[]);
        served.acquire_many(4).await.expect("open").forget();
        assert_eq!(setup.fair.answer().held, 0);
    };
    run(test, None);
}

#[test]
fn a_change_of_one_limit_lets_go_what_that_one_holds_and_nothing_else() {
    let test = async |setup: Setup, _| {
        let rule = |name: &str, job: &str, rate| LimitRule {
            name: name.into(),
            of: vec![LimitOf::Job(job.into())],
            at: LimitAt::Everywhere,
            requests_per_s: Some(rate),
            bytes_per_s: None,
            ends_s: None,
        };
        setup.fair.set_limits(&[rule("a", "a", 1), rule("b", "b", 1)]);
        let served = Arc::new(Semaphore::new(0));
        for job in ["a", "a", "a", "b", "b", "b"] {
            let served = served.clone();
            setup.ask(Op::Create, job, async move { served.add_permits(usize::from(job == "b")) });
        }
        assert_eq!(setup.fair.answer().held, 4);
        // Add one rule and change the rates of another. The numbers of rules change.
        setup.fair.set_limits(&[rule("new", "c", 5), rule("b", "b", 2), rule("a", "a", 1)]);
        assert_eq!(setup.fair.answer().held, 2, "those of a");
        served.acquire_many(3).await.expect("open").forget();
        setup.fair.set_limits(&[rule("a", "a", 1)]);
        assert_eq!(setup.fair.answer().held, 2, "a moved to another number");
        setup.fair.set_limits(&[]);
        assert_eq!(setup.fair.answer().held, 0);
    };
    run(test, None);
}
