//! The membership of replica sets, explored: every order of events of a small set, up to a number of steps. The decisions are the real ones
//! ([`step`] and what a primary asks for); members and their messages are a model of `brindle-oss`. Members crash, start anew with or without what
//! was not synced, are cut off, and are taken for dead although they live; messages are late or lost.
//!
//! Held to be true in every state: whoever answers has everything that was acknowledged and that clients were not told to be lost; at most one
//! member answers.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use brindle_types::TargetId;
use brindle_wire::mgs::replica::{InSyncChange, MemberRole, ReplicaMember, ReplicaSetState};

use super::{Heard, Step, step};
use crate::replica::decide::swapped;

thread_local! {
    static BUG: Cell<&'static str> = const { Cell::new("") };
}

/// Whether a bug is planted in this run.
pub(super) fn bug(name: &str) -> bool {
    BUG.get() == name
}

const HOSTS: [&str; 3] = ["a", "b", "c"];
const WRITES: usize = 2;
/// Most states that are looked at for a planted bug.
const STATES_MAX: usize = 100_000;
/// States of a run without a bug.
const SOUND_STATES: usize = 15_000;

/// A member of the model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    is_up: bool,
    is_cut: bool,
    boot_term: u32,
    /// The set as the member knows it.
    known: ReplicaSetState,
    /// Writes that the member has, a bit each.
    data: u8,
    /// Primary that may change the member, and its epoch.
    attached: Option<(usize, u64)>,
    serves: bool,
    /// Whether its lease holds.
    lease: bool,
    /// Members that this one sends changes to.
    links: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    set: ReplicaSetState,
    nodes: Vec<Node>,
    /// The told term under which each write was acknowledged.
    acked: [Option<u32>; WRITES],
    next: usize,
    epochs_left: u8,
}

fn first(members: usize) -> World {
    let member = |host: &&str| ReplicaMember {
        host: (*host).to_owned(),
        dir: String::new(),
        is_formatted: true,
        role: MemberRole::InSync,
        boot_term: 1,
        recorded_epoch: 0,
        nids: Vec::new(),
    };
    let set = ReplicaSetState {
        target: TargetId::ost(0),
        uuid: [1; 16],
        epoch: 1,
        term: 1,
        port: 1,
        primary: HOSTS[0].to_owned(),
        members: HOSTS[..members].iter().map(member).collect(),
    };
    let node = |_| Node {
        is_up: true,
        is_cut: false,
        boot_term: 1,
        known: set.clone(),
        data: 0,
        attached: None,
        serves: false,
        lease: false,
        links: Vec::new(),
    };
    World { nodes: (0..members).map(node).collect(), set, acked: [None; WRITES], next: 0, epochs_left: 4 }
}

impl World {
    fn reaches(&self, a: usize, b: usize) -> bool {
        let well = |n: usize| self.nodes[n].is_up && !self.nodes[n].is_cut;
        well(a) && well(b)
    }

    /// Ends a process: its memory is lost.
    fn crash(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        (node.is_up, node.serves, node.lease, node.attached) = (false, false, false, None);
        node.links.clear();
    }

    /// The MGS hears of everybody, except of who is away or is taken to be; it does what is due.
    fn judge(&mut self, deaf_to: Option<usize>) -> bool {
        let heard = |n: usize| match &self.nodes[n] {
            node if !node.is_up || node.is_cut || deaf_to == Some(n) => Heard::Dead,
            node => Heard::Alive { boot_term: node.boot_term },
        };
        let heard: BTreeMap<String, Heard> =
            (0..self.nodes.len()).map(|n| (HOSTS[n].to_owned(), heard(n))).collect();
        let Step::Change(next) = step(&self.set, &heard) else { return false };
        if self.epochs_left == 0 {
            return false;
        }
        assert!(next.epoch > self.set.epoch, "the epoch rises");
        self.epochs_left -= 1;
        self.set = next;
        true
    }

    /// The set after a change that a primary asks the MGS for.
    fn swap(&mut self, n: usize, change: &InSyncChange) -> bool {
        if self.nodes[n].is_cut || self.epochs_left == 0 {
            return false;
        }
        let Some(next) = swapped(&self.set, HOSTS[n], self.nodes[n].known.epoch, change) else {
            return false;
        };
        self.epochs_left -= 1;
        self.set = next.clone();
        self.nodes[n].known = next;
        true
    }

    fn take_over(&mut self, n: usize) -> bool {
        let node = &self.nodes[n];
        let is_it = node.known.primary == HOSTS[n]
            && node.known.member(HOSTS[n]).is_some_and(|m| m.boot_term == node.boot_term);
        if !node.is_up || node.serves || !is_it {
            return false;
        }
        self.nodes[n].attached = None;
        if !bug("replica_serves_within_a_lease") {
            // The member waits as long as a lease that it may have granted, and grants none meanwhile.
            for other in 0..self.nodes.len() {
                if other != n && self.nodes[other].links.contains(&n) {
                    self.nodes[other].lease = false;
                }
            }
        }
        let known = self.nodes[n].known.clone();
        for (other, host) in HOSTS.iter().enumerate().take(self.nodes.len()) {
            if other == n || !known.is_in_sync(host) {
                continue;
            }
            let knows = self.nodes[other].known.epoch == known.epoch;
            let as_it_was = known.member(host).is_some_and(|m| m.boot_term == self.nodes[other].boot_term);
            if self.reaches(n, other) && knows && as_it_was {
                self.nodes[other].attached = Some((n, known.epoch));
                if !bug("replica_skips_marks") {
                    self.nodes[other].data = self.nodes[n].data;
                }
                self.nodes[n].links.push(other);
            } else if !self.swap(n, &InSyncChange::Drop { host: HOSTS[other].to_owned() }) {
                self.nodes[n].links.clear();
                return false;
            }
        }
        self.nodes[n].serves = true;
        self.renew(n);
        true
    }

    fn renew(&mut self, n: usize) -> bool {
        let granted = self.nodes[n].links.iter().all(|m| {
            let is_attached = self.nodes[*m].attached.is_some_and(|(primary, _)| primary == n);
            self.reaches(n, *m) && is_attached && self.nodes[*m].known.primary == HOSTS[n]
        });
        let changes = self.nodes[n].serves && granted && !self.nodes[n].lease;
        self.nodes[n].lease |= changes;
        changes
    }

    /// A write, of which `got` says who gets it; acknowledged when everybody has it or is out of the set.
    fn write(&mut self, n: usize, got: u8, answers: bool) -> bool {
        if !self.nodes[n].is_up || !self.nodes[n].serves || self.next == WRITES {
            return false;
        }
        let bit = 1 << self.next;
        self.nodes[n].data |= bit;
        let mut missed = Vec::new();
        for m in self.nodes[n].links.clone() {
            let is_attached = self.nodes[m].attached.is_some_and(|(primary, _)| primary == n);
            let takes = is_attached || bug("replica_takes_a_former_primary");
            if self.reaches(n, m) && takes && got & (1 << m) != 0 {
                self.nodes[m].data |= bit;
            } else {
                missed.push(m);
            }
        }
        let write = self.next;
        self.next += 1;
        if !answers {
            return true;
        }
        for m in missed {
            if !bug("replica_answers_before_the_swap")
                && !self.swap(n, &InSyncChange::Drop { host: HOSTS[m].to_owned() })
            {
                return true;
            }
            self.nodes[n].links.retain(|link| *link != m);
        }
        self.renew(n);
        if self.nodes[n].lease {
            self.acked[write] = Some(self.nodes[n].known.term);
        }
        true
    }

    /// A learner gets everything, and joins.
    fn fill(&mut self, n: usize, m: usize) -> bool {
        let (node, other) = (&self.nodes[n], &self.nodes[m]);
        let is_learner = node.known.member(HOSTS[m]).is_some_and(|member| member.role == MemberRole::Learner);
        let knows = other.known.epoch == node.known.epoch && other.known.primary == HOSTS[n];
        if !node.serves || !is_learner || !self.reaches(n, m) || !knows || node.links.contains(&m) {
            return false;
        }
        let (epoch, boot_term) = (node.known.epoch, other.boot_term);
        self.nodes[m].attached = Some((n, epoch));
        if !bug("replica_joins_unfilled") {
            self.nodes[m].data = self.nodes[n].data;
        }
        self.nodes[n].links.push(m);
        if !self.swap(n, &InSyncChange::Join { host: HOSTS[m].to_owned(), boot_term }) {
            self.nodes[n].links.retain(|link| *link != m);
            return false;
        }
        true
    }

    /// A member hears of the set.
    fn hear(&mut self, n: usize) -> bool {
        let set = self.set.clone();
        let node = &mut self.nodes[n];
        if !node.is_up || node.is_cut || node.known == set {
            return false;
        }
        if node.attached.is_some_and(|(primary, _)| HOSTS[primary] != set.primary) {
            node.attached = None;
        }
        if node.serves && set.primary != HOSTS[n] {
            (node.serves, node.lease) = (false, false);
            node.links.clear();
        }
        node.links.retain(|m| set.is_in_sync(HOSTS[*m]));
        node.known = set;
        true
    }

    fn start(&mut self, n: usize, has_lost: bool) -> bool {
        if self.nodes[n].is_up || has_lost && self.nodes[n].boot_term > 2 {
            return false;
        }
        self.nodes[n].is_up = true;
        if has_lost {
            self.nodes[n].boot_term += 1;
            self.nodes[n].data = 0;
        }
        true
    }

    fn check(&self) -> Result<(), String> {
        let answering: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.nodes[*n].serves && self.nodes[*n].lease).collect();
        if answering.len() > 1 {
            return Err(format!("{answering:?} answer at once"));
        }
        for n in answering {
            let node = &self.nodes[n];
            for (write, term) in self.acked.iter().enumerate() {
                if term.is_some_and(|term| term >= node.known.term) && node.data & (1 << write) == 0 {
                    return Err(format!("{} answers without write {write}", HOSTS[n]));
                }
            }
        }
        Ok(())
    }

    /// All worlds that one event leads to, with its name.
    fn next(&self) -> Vec<(String, World)> {
        let mut out = Vec::new();
        let mut try_it = |name: String, event: &dyn Fn(&mut World) -> bool| {
            let mut world = self.clone();
            if event(&mut world) {
                out.push((name, world));
            }
        };
        let all = self.nodes.len();
        for (n, name) in HOSTS.iter().enumerate().take(all) {
            try_it(format!("{name} hears"), &|w| w.hear(n));
            try_it(format!("{name} takes over"), &|w| w.take_over(n));
            for got in 0..1 << all {
                try_it(format!("{name} writes to {got:b}, answers"), &|w| w.write(n, got, true));
                try_it(format!("{name} writes to {got:b}"), &|w| w.write(n, got, false));
            }
            try_it(format!("{name} crashes"), &|w| {
                let was = w.nodes[n].is_up;
                w.crash(n);
                was
            });
            try_it(format!("{name} starts"), &|w| w.start(n, false));
            try_it(format!("{name} boots"), &|w| w.start(n, true));
            try_it(format!("{name} cut"), &|w| !std::mem::replace(&mut w.nodes[n].is_cut, true));
            try_it(format!("{name} healed"), &|w| std::mem::replace(&mut w.nodes[n].is_cut, false));
            try_it(format!("{name} renews"), &|w| w.renew(n));
            try_it(format!("{name} taken for dead"), &|w| w.judge(Some(n)));
            for m in (0..all).filter(|m| *m != n) {
                try_it(format!("{name} fills {}", HOSTS[m]), &|w| w.fill(n, m));
            }
        }
        try_it("the MGS looks".to_owned(), &|w| w.judge(None));
        out
    }
}

/// Explores breadth first, with events whose name contains one of some words. Returns the first way to a wrong state, if there is one,
/// and the number of states.
fn explore(
    members: usize,
    planted: &'static str,
    words: &[&str],
    states_max: usize,
) -> (Option<String>, usize) {
    BUG.set(planted);
    let mut seen = BTreeSet::from([first(members)]);
    let mut queue = VecDeque::from([(first(members), Vec::<String>::new())]);
    while let Some((world, way)) = queue.pop_front() {
        for (name, next) in world.next() {
            if !words.iter().any(|word| name.contains(word)) {
                continue;
            }
            if seen.len() >= states_max {
                return (None, seen.len());
            }
            if !seen.insert(next.clone()) {
                continue;
            }
            let mut way = way.clone();
            way.push(name);
            if let Err(why) = next.check() {
                return (Some(format!("{why}: {}", way.join("; "))), seen.len());
            }
            queue.push_back((next, way));
        }
    }
    (None, seen.len())
}

/// Every event.
const ALL: &[&str] = &[""];
/// Fewer events, looked at more deeply: power cuts of all members; members that leave and come back; verdicts that are wrong.
const POWER_CUTS: &[&str] = &["takes over", "11, answers", "crashes", "boots", "hears", "looks"];
const RETURNS: &[&str] = &["takes over", "1, answers", "fills", "hears", "crashes", "starts", "looks"];
const VERDICTS: &[&str] = &["takes over", "answers", "renews", "hears", "dead", "cut", "healed"];

#[test]
fn no_order_of_events_loses_what_was_acknowledged_or_has_two_answer() {
    for (members, words) in [(2, ALL), (3, ALL), (2, POWER_CUTS), (2, RETURNS), (2, VERDICTS), (3, VERDICTS)]
    {
        let (wrong, states) = explore(members, "", words, SOUND_STATES);
        assert_eq!(wrong, None, "{members} members, {words:?}");
        assert!(states > 100, "{states} states of {members} members, {words:?}");
    }
}

#[test]
fn the_exploration_finds_each_planted_bug() {
    for (planted, words) in [
        ("replica_promotes_learner", ALL),
        ("replica_serves_within_a_lease", ALL),
        ("replica_hides_a_loss", POWER_CUTS),
        ("replica_answers_before_the_swap", RETURNS),
        ("replica_joins_unfilled", RETURNS),
    ] {
        let (wrong, states) = explore(2, planted, words, STATES_MAX);
        println!("{planted}: {states} states: {}", wrong.clone().unwrap_or_default());
        assert!(wrong.is_some(), "{planted} was not found in {states} states");
    }
}
