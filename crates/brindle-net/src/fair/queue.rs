//! Places and the queue before them: start-time fair queueing as a state machine without a clock.
//!
//! ```text
//! offer --a place is free--> in service --leave--> paused or done
//!   |                            ^  ^                  |
//!   +--none is free--> queued ---+  +----- resume -----+
//! ```
//!
//! Every class has a finish: the virtual time at which what it has asked for so far is served. A request starts at the finish of its class,
//! or at the virtual time of now if that is later, and the queued request with the earliest start is the next. Therefore a class that asks
//! seldom is served before one that asks much, and classes that ask much take turns by the cost of their requests.
//!
//! Invariants: a request is queued only while every place is taken; a request that pauses has no place; while the queue is empty, the state
//! of classes is empty, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_stdx::Mono;
use brindle_wire::job::JobTag;

/// Most requests that are queued at one target. Further ones are served at once, as if the queue were empty: they are in memory already,
/// and clients have credits for a bounded number of them.
pub const QUEUED_MAX: usize = 65_536;
/// Cost of a request without bytes of files, in bytes: a request of 16 KiB costs twice as much as an empty one.
pub const REQUEST_COST_BYTES: u64 = 16 << 10;
/// Most classes with a standing of their own. Beyond that, classes that owe nothing are forgotten; then new jobs of a user share one class.
const CLASSES_MAX: usize = 4_096;
/// Most users whose further jobs share a class each; beyond them all do. The same number bounds the users whose new jobs
/// are counted.
const USERS_MAX: usize = 1_024;
/// Name of the class that new jobs of a user share.
const FURTHER_JOBS: &str = "~";
/// New jobs of a user that may start now, as if their user had no other. Further new jobs start one after the other, like the requests of
/// one job. Names of jobs cost nothing: without this bound a user could give each request a new job.
const NEW_JOBS_MAX: u64 = 16;
/// Requests that get a place between two searches for classes that owe nothing.
const SEARCH_EVERY: u64 = 256;

/// Requests that share one place in the order: those of a job, or those of a host that names no job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A job of a user.
    Job(JobTag),
    /// A host.
    Host(Arc<str>),
}

/// A request that waits for a place.
struct Queued<T> {
    class: Class,
    /// Class whose standing it has: that of all further jobs of a user, or its own.
    standing: Option<Class>,
    work: T,
    since: Mono,
    /// Requests of other classes that had got a place when it came.
    others_before: u64,
}

/// A request that has got a place after a wait.
#[derive(Debug)]
pub struct Dispatched<T> {
    /// Class of the request.
    pub class: Class,
    /// The request.
    pub work: T,
    /// Time at which the request came.
    pub since: Mono,
    /// Requests of other classes that got a place while this one waited.
    pub overtaken_by: u64,
}

/// Place of a class in virtual time.
#[derive(Clone, Copy, Default)]
struct Standing {
    /// Virtual time at which all that it has asked for is served.
    finish: u64,
    /// Requests of the class that got a place after a wait.
    dispatched: u64,
}

/// Outcome of an offer.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered<T> {
    /// The request has a place: it is to be served.
    Serve(T),
    /// The request waits; [`Queue::leave`] gives it back.
    Queued,
}

/// Places of a target, and the requests that wait for them.
pub struct Queue<T> {
    places: usize,
    in_service: usize,
    queued: BTreeMap<(u64, u64), Queued<T>>,
    standings: BTreeMap<Class, Standing>,
    /// Virtual time at which the first requests of all new jobs of a user are served.
    new_jobs: BTreeMap<u32, u64>,
    /// Value of `dispatched` at which it is worth while to look for classes that owe nothing.
    search_at: u64,
    virtual_now: u64,
    next_number: u64,
    dispatched: u64,
}

impl<T> Queue<T> {
    /// An empty queue. `places` (at least one) requests can be served at once.
    pub fn new(places: usize) -> Queue<T> {
        Queue {
            places: places.max(1),
            in_service: 0,
            queued: BTreeMap::new(),
            standings: BTreeMap::new(),
            new_jobs: BTreeMap::new(),
            search_at: 0,
            virtual_now: 0,
            next_number: 0,
            dispatched: 0,
        }
    }

    /// Requests that can be served at once.
    pub fn places(&self) -> usize {
        self.places
    }

    /// Requests that have a place; more than there are places while some go on after a pause.
    pub fn in_service(&self) -> usize {
        self.in_service
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// A request of a class has come.
    pub fn offer(&mut self, now: Mono, class: &Class, cost_bytes: u64, work: T) -> Offered<T> {
        if self.in_service < self.places && self.queued.is_empty() || self.queued.len() >= QUEUED_MAX {
            self.in_service += 1;
            self.dispatched += 1;
            return Offered::Serve(work);
        }
        let cost = cost_bytes.saturating_add(REQUEST_COST_BYTES);
        let shared = self.shared_class(class);
        let key = shared.as_ref().unwrap_or(class);
        let is_known = shared.is_none() && self.standings.contains_key(key);
        let earliest = match (is_known, key) {
            // Further jobs of a user share a standing, and start like new jobs: otherwise the user would get an additional
            // share.
            (false, Class::Job(job)) => self.start_of_a_new_job(job.uid(), cost),
            _ => self.virtual_now,
        };
        let standing = self.standings.entry(key.clone()).or_default();
        let start = standing.finish.max(earliest);
        standing.finish = start.saturating_add(cost);
        let others_before = self.dispatched - standing.dispatched;
        let number = self.next_number;
        self.next_number += 1;
        let queued = Queued { class: class.clone(), standing: shared, work, since: now, others_before };
        self.queued.insert((start, number), queued);
        Offered::Queued
    }

    /// Class that an unknown one shares with others, where there are too many classes.
    fn shared_class(&mut self, class: &Class) -> Option<Class> {
        if self.standings.len() < CLASSES_MAX || self.standings.contains_key(class) {
            return None;
        }
        if self.dispatched >= self.search_at {
            self.search_at = self.dispatched.saturating_add(SEARCH_EVERY);
            let now = self.virtual_now;
            self.standings.retain(|_, standing| standing.finish > now);
            self.new_jobs.retain(|_, finish| *finish > now);
            if self.standings.len() < CLASSES_MAX {
                return None;
            }
        }
        let of_user = match class {
            Class::Job(job) => Class::Job(JobTag::new(FURTHER_JOBS, job.uid())),
            Class::Host(_) => Class::Host(Arc::from(FURTHER_JOBS)),
        };
        let has_room =
            self.standings.len() < CLASSES_MAX + USERS_MAX || self.standings.contains_key(&of_user);
        Some(if has_room { of_user } else { Class::Host(Arc::from(FURTHER_JOBS)) })
    }

    /// Earliest start of the first request of an unknown job. The first [`NEW_JOBS_MAX`] jobs of a user start now, further ones one after
    /// the other.
    fn start_of_a_new_job(&mut self, uid: u32, cost: u64) -> u64 {
        // (All users beyond the bound count as one.)
        let is_counted = self.new_jobs.len() < USERS_MAX || self.new_jobs.contains_key(&uid);
        let finish = self.new_jobs.entry(if is_counted { uid } else { u32::MAX }).or_default();
        let start = (*finish).max(self.virtual_now);
        *finish = start.saturating_add(cost);
        start.saturating_sub(NEW_JOBS_MAX * REQUEST_COST_BYTES).max(self.virtual_now)
    }

    /// The next request that waits, if a place is free; it has that place then.
    pub fn serve_next(&mut self) -> Option<Dispatched<T>> {
        if self.in_service >= self.places {
            return None;
        }
        let ((start, _), queued) = self.queued.pop_first()?;
        let Queued { class, standing, work, since, others_before } = queued;
        self.virtual_now = start;
        self.in_service += 1;
        // The standing of a class that waits is never forgotten.
        let standing = self.standings.entry(standing.unwrap_or_else(|| class.clone())).or_default();
        let overtaken_by = (self.dispatched - standing.dispatched).saturating_sub(others_before);
        standing.dispatched += 1;
        self.dispatched += 1;
        Some(Dispatched { class, work, since, overtaken_by })
    }

    /// A request pauses, or is done: its place is free.
    pub fn leave(&mut self) {
        assert!(self.in_service > 0, "only what has a place leaves it");
        self.in_service = self.in_service.saturating_sub(1);
        if self.queued.is_empty() && !self.standings.is_empty() {
            // A class that asks next owes nothing for requests that were served before.
            self.standings.clear();
            self.new_jobs.clear();
            self.search_at = 0;
            self.dispatched = 0;
            self.virtual_now = 0;
        }
    }

    /// A request goes on after a pause: at once, whatever waits. Others may wait for it.
    pub fn resume(&mut self) {
        self.in_service += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn class(n: u32) -> Class {
        Class::Job(JobTag::new(&format!("job{n}"), 0))
    }

    const NOW: Mono = Mono(0);

    #[test]
    fn nothing_waits_while_a_place_is_free() {
        let mut queue = Queue::new(2);
        assert_eq!(queue.offer(NOW, &class(0), 0, 'a'), Offered::Serve('a'));
        assert_eq!(queue.offer(NOW, &class(0), 0, 'b'), Offered::Serve('b'));
        assert_eq!(queue.offer(NOW, &class(0), 0, 'c'), Offered::Queued);
        assert!(queue.serve_next().is_none(), "both places are taken");
        queue.leave();
        assert_eq!(queue.serve_next().map(|next| next.work), Some('c'));
        assert!(queue.serve_next().is_none());
    }

    #[test]
    fn a_request_of_a_quiet_class_goes_before_all_that_a_noisy_one_has_queued() {
        let mut queue = Queue::new(1);
        for n in 0..64 {
            queue.offer(NOW, &class(0), 0, n);
        }
        queue.leave();
        assert_eq!(queue.serve_next().map(|next| next.work), Some(1));
        queue.offer(NOW, &class(1), 0, 1_000);
        queue.leave();
        let next = queue.serve_next().expect("somebody waits");
        assert_eq!((next.work, next.overtaken_by), (1_000, 0));
        queue.leave();
        assert_eq!(queue.serve_next().map(|next| (next.work, next.overtaken_by)), Some((2, 1)));
    }

    #[test]
    fn classes_that_ask_much_share_by_bytes() {
        let mut queue = Queue::new(1);
        queue.offer(NOW, &class(9), 0, 9);
        for _ in 0..400 {
            queue.offer(NOW, &class(0), 3 * REQUEST_COST_BYTES, 0);
            queue.offer(NOW, &class(1), 0, 1);
        }
        let mut served = [0, 0];
        for _ in 0..100 {
            queue.leave();
            served[queue.serve_next().expect("somebody waits").work] += 1;
        }
        assert_eq!(served, [20, 80], "four small requests for a large one");
    }

    #[test]
    fn a_pause_frees_the_place_and_going_on_needs_none() {
        let mut queue = Queue::new(1);
        queue.offer(NOW, &class(0), 0, 'a');
        queue.offer(NOW, &class(0), 0, 'b');
        // 'a' waits for an effect of 'b'.
        queue.leave();
        assert_eq!(queue.serve_next().map(|next| next.work), Some('b'));
        queue.resume();
        assert_eq!(queue.in_service(), 2);
        queue.offer(NOW, &class(0), 0, 'c');
        queue.leave();
        assert!(queue.serve_next().is_none(), "'a' and 'b' had one place");
        queue.leave();
        assert_eq!(queue.serve_next().map(|next| next.work), Some('c'));
    }

    /// A user who gives each request a name of its own has no more than other jobs have, and costs no more memory.
    #[test]
    fn thousands_of_fresh_names_starve_nobody() {
        let job = |name: &str, uid| Class::Job(JobTag::new(name, uid));
        let mut queue = Queue::new(1);
        queue.offer(NOW, &job("first", 0), 0, "first");
        let (mut fresh, mut victim, mut others) = (0, 0, 0);
        let rounds = 20_000;
        for n in 0..rounds {
            // The noisy user keeps many requests queued; the others ask for one at a time.
            for m in 0..3 {
                queue.offer(NOW, &job(&format!("f{n}-{m}"), 7), 0, "fresh");
            }
            if n < 2 {
                queue.offer(NOW, &job("victim", 8), 0, "victim");
                queue.offer(NOW, &job("other", 7), 0, "other");
            }
            queue.leave();
            match queue.serve_next().expect("somebody waits").work {
                "fresh" => fresh += 1,
                "victim" => {
                    victim += 1;
                    queue.offer(NOW, &job("victim", 8), 0, "victim");
                }
                _ => {
                    others += 1;
                    queue.offer(NOW, &job("other", 7), 0, "other");
                }
            }
            assert!(queue.standings.len() <= CLASSES_MAX + USERS_MAX, "{}", queue.standings.len());
            assert!(queue.new_jobs.len() <= USERS_MAX);
        }
        let third = rounds / 3;
        let is_a_third = |served: i32| (served - third).abs() < 100;
        assert!(is_a_third(victim) && is_a_third(others) && is_a_third(fresh), "{victim} {others} {fresh}");
        // Somebody who comes now, of another user, is the next but for one request of each.
        queue.offer(NOW, &job("late", 9), 0, "late");
        let mut before = 0;
        loop {
            queue.leave();
            match queue.serve_next().expect("somebody waits").work {
                "late" => break,
                _ => before += 1,
            }
        }
        assert!(before <= 4, "{before}");
    }

    #[test]
    fn a_full_queue_lets_requests_through() {
        let mut queue = Queue::new(1);
        for n in 0..=QUEUED_MAX {
            queue.offer(NOW, &class(0), 0, n);
        }
        assert_eq!((queue.in_service(), queue.len()), (1, QUEUED_MAX));
        assert_eq!(queue.offer(NOW, &class(1), 0, 7), Offered::Serve(7));
    }

    /// An event at a queue.
    #[derive(Clone, Debug)]
    enum Event {
        Offer(u32, u64),
        Leave,
        Resume,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => (0u32..5, 0u64..100_000).prop_map(|(class, bytes)| Event::Offer(class, bytes)),
            2 => Just(Event::Leave),
            1 => Just(Event::Resume),
        ]
    }

    proptest! {
        /// Random requests: those of a class are served in order, each exactly once; no request waits beside a free place. A class with an
        /// empty queue waits for at most one request of each other class, and for earlier requests that were larger than others.
        #[test]
        fn the_queue_keeps_its_promises(places in 1usize..4, events in prop::collection::vec(event(), 0..200)) {
            let mut queue = Queue::new(places);
            let (mut offered, mut served) = (vec![0u64; 5], vec![0u64; 5]);
            let mut paused = 0usize;
            for event in events {
                match event {
                    Event::Offer(n, bytes) => {
                        let work = (n, offered[n as usize]);
                        offered[n as usize] += 1;
                        if let Offered::Serve((n, number)) = queue.offer(NOW, &class(n), bytes, work) {
                            prop_assert_eq!(served[n as usize], number);
                            served[n as usize] += 1;
                        }
                    }
                    Event::Leave if queue.in_service() > 0 => {
                        queue.leave();
                        paused += 1;
                    }
                    Event::Resume if paused > 0 => {
                        queue.resume();
                        paused -= 1;
                    }
                    Event::Leave | Event::Resume => {}
                }
                while let Some(next) = queue.serve_next() {
                    let (n, number) = next.work;
                    prop_assert_eq!(served[n as usize], number);
                    served[n as usize] += 1;
                }
                prop_assert!(queue.is_empty() || queue.in_service() >= places);
            }
            // Requests with places leave: nobody is forgotten.
            while queue.in_service() > 0 {
                queue.leave();
                while let Some(next) = queue.serve_next() {
                    served[next.work.0 as usize] += 1;
                }
            }
            prop_assert_eq!(served, offered);
        }

        /// A class with one request at a time waits for no more than one request of each noisy class, if all cost the same.
        #[test]
        fn a_quiet_class_waits_for_one_request_of_each_other(
            noisy in 1u32..6,
            depth in 1u64..100,
            rounds in 1usize..30,
        ) {
            let mut queue = Queue::new(1);
            for _ in 0..depth {
                for n in 0..noisy {
                    queue.offer(NOW, &class(n), 0, n);
                }
            }
            for _ in 0..rounds {
                queue.leave();
                if let Some(next) = queue.serve_next() {
                    queue.offer(NOW, &class(next.work), 0, next.work);
                }
                let quiet = 1_000;
                if queue.offer(NOW, &class(quiet), 0, quiet) == Offered::Queued {
                    loop {
                        queue.leave();
                        let next = queue.serve_next().expect("somebody waits");
                        if next.work == quiet {
                            prop_assert!(next.overtaken_by <= u64::from(noisy), "{}", next.overtaken_by);
                            break;
                        }
                        queue.offer(NOW, &class(next.work), 0, next.work);
                    }
                }
            }
        }
    }
}
