//! The decisions against a model of two hosts, their daemons, a device and a fence. Whatever dies, hangs or is cut off, no host takes the
//! target while another may write, and once all is well some host serves it.

use brindle_types::TargetId;
use brindle_wire::mgs::shared::{SharedHost, SharedReport};

use super::*;
use crate::restored::{self, Settled};

const NAMES: [&str; 2] = ["oss1", "oss2"];
/// Time that daemons wait after the last rewrite of the owner block, in milliseconds.
const LEASE_MS: u64 = 2_500;
/// Pause of the MGS after a failed fencing, in milliseconds.
const FENCE_AGAIN_MS: u64 = 5_000;

/// A small generator; the tests name their seeds.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[derive(Clone, Default)]
struct Host {
    is_up: bool,
    is_frozen: bool,
    is_cut: bool,
    order: Option<SharedTarget>,
    /// Turn under which the host serves, and writes.
    serves: Option<u64>,
    has_released: bool,
    /// Reads and writes of the device by this host fail.
    has_no_path: bool,
    /// Turn of a process that the host can neither stop nor serve from.
    held: Option<u64>,
}

/// The owner block.
#[derive(Clone)]
struct Block {
    host: usize,
    turn: u64,
    is_released: bool,
    changed: Mono,
}

struct Model {
    now: Mono,
    row: SharedRow,
    listening: Listening,
    fencing: BTreeMap<String, Fencing>,
    fenced: BTreeSet<(TargetId, u64)>,
    fence_failed: Mono,
    /// Rows so far, of which an older one may be put back.
    earlier: Vec<SharedRow>,
    is_restored: bool,
    others: Vec<String>,
    has_fence: bool,
    fence_works: bool,
    failback_after_ms: Option<u64>,
    hosts: [Host; 2],
    block: Block,
    log: Vec<String>,
}

pub(crate) fn row() -> SharedRow {
    let hosts = NAMES.map(|host| SharedHost { host: host.to_owned(), device: "/dev/lun".into() });
    let target = SharedTarget {
        target: TargetId::ost(0),
        uuid: [7; 16],
        hosts: hosts.to_vec(),
        dir: "/srv/ost0".into(),
        port: 9881,
        is_formatted: true,
        is_wanted: true,
        owner: NAMES[0].into(),
        turn: 1,
        phase: SharedPhase::Owned,
    };
    SharedRow { target, moved_for_failure_s: 0 }
}

impl Model {
    fn new(has_fence: bool) -> Model {
        let now = Mono(0).plus_ms(100_000);
        let up = Host { is_up: true, ..Host::default() };
        Model {
            now,
            row: row(),
            listening: Listening::new(now),
            fencing: BTreeMap::new(),
            fenced: BTreeSet::new(),
            fence_failed: now,
            earlier: Vec::new(),
            is_restored: false,
            others: NAMES.map(str::to_owned).to_vec(),
            has_fence,
            fence_works: true,
            failback_after_ms: None,
            hosts: [up.clone(), up],
            block: Block { host: 0, turn: 0, is_released: true, changed: now },
            log: Vec::new(),
        }
    }

    /// 200 ms pass.
    fn tick(&mut self) {
        self.now = self.now.plus_ms(200);
        for (n, name) in NAMES.into_iter().enumerate() {
            let host = &self.hosts[n];
            if !host.is_up || host.is_frozen {
                continue;
            }
            let is_newer = host.order.as_ref().is_none_or(|order| self.row.target.turn >= order.turn);
            if !host.is_cut && is_newer {
                self.hosts[n].order = Some(self.row.target.clone());
            }
            self.daemon(n);
            if !self.hosts[n].is_cut {
                let report = self.report(n);
                self.listening.told(name, self.now, report.into_iter().collect());
            }
        }
        self.listening.look(&self.others, self.now);
        self.listening.ordered(&self.row.target, self.now);
        if self.now.ms_since(self.fence_failed) >= FENCE_AGAIN_MS {
            self.fencing.retain(|_, fencing| !matches!(fencing, Fencing::Failed(_)));
        }
        self.decide();
        if self.row.target.phase == SharedPhase::Owned {
            self.fencing.clear();
            self.fenced.clear();
        }
    }

    fn situation(&self) -> Situation<'_> {
        Situation {
            now: self.now,
            now_s: 1_000_000 + (self.now.0 / 1_000_000_000) as i64,
            listening: &self.listening,
            others: &self.others,
            has_fence: self.has_fence,
            failback_after_ms: self.failback_after_ms,
            fencing: &self.fencing,
            fenced: &self.fenced,
        }
    }

    /// The MGS looks at the target.
    fn decide(&mut self) {
        self.is_restored |= newer_turn(&self.row, &self.situation()).is_some();
        if self.is_restored {
            match restored::shared(&self.row, &self.situation()) {
                Settled::Waits(_) => return,
                Settled::AsItWas => {}
                Settled::Becomes(row) => self.change(row),
            }
            self.is_restored = false;
            return;
        }
        match judge(&self.row, &self.situation()) {
            Verdict::Change(row) => self.change(row),
            Verdict::Fence => self.fence(),
            Verdict::Nothing | Verdict::Hindered(_) => {}
        }
    }

    fn change(&mut self, row: SharedRow) {
        let t = &row.target;
        self.log.push(format!("{} ms: {:?} turn {}", self.now.0 / 1_000_000, t.phase, t.turn));
        self.earlier.push(std::mem::replace(&mut self.row, row));
    }

    fn fence(&mut self) {
        let owner = self.row.target.owner.clone();
        let n = NAMES.iter().position(|name| *name == owner).expect("a host");
        let outcome = if self.fence_works {
            self.hosts[n] = Host { is_cut: self.hosts[n].is_cut, ..Host::default() };
            self.fenced.insert((self.row.target.target, self.row.target.turn));
            Fencing::Done
        } else {
            self.fence_failed = self.now;
            Fencing::Failed(Fault::new(Code::FencingFailed))
        };
        self.log.push(format!("{} ms: fence {owner}: {}", self.now.0 / 1_000_000, self.fence_works));
        self.fencing.insert(owner, outcome);
    }

    /// Daemon `n` carries out its order.
    fn daemon(&mut self, n: usize) {
        let Some(order) = self.hosts[n].order.clone() else { return };
        let host = &mut self.hosts[n];
        host.has_released = false;
        if host.held.is_some() || host.has_no_path {
            // A target that the host cannot stop may still be written.
            host.serves = host.held.and(host.serves);
            return;
        }
        let owns = order.owner == NAMES[n];
        let may_serve = owns && order.is_wanted && order.phase == SharedPhase::Owned;
        let stays = owns && matches!(order.phase, SharedPhase::Fencing { .. });
        if let Some(turn) = self.hosts[n].serves {
            assert_eq!(self.block.host, n, "its block was taken from it: {:#?}", self.log);
            if may_serve || (stays && turn == order.turn) {
                self.hosts[n].serves = Some(order.turn.max(turn));
                self.block = Block { turn: order.turn.max(turn), changed: self.now, ..self.block.clone() };
            } else {
                self.hosts[n].serves = None;
                self.block = Block { is_released: true, changed: self.now, ..self.block.clone() };
            }
        }
        let block = self.block.clone();
        let is_handed = owns && matches!(order.phase, SharedPhase::Handing { .. });
        let stops = owns && (!order.is_wanted || is_handed) && self.hosts[n].serves.is_none();
        if stops && block.host == n && block.turn <= order.turn {
            self.block = Block { turn: order.turn, is_released: true, ..block.clone() };
        }
        let block = self.block.clone();
        let has_released = owns && block.host == n && block.turn == order.turn && block.is_released;
        self.hosts[n].has_released = has_released || (stops && is_handed && block.turn < order.turn);
        if !may_serve || self.hosts[n].serves.is_some() || self.hosts[n].has_released {
            return;
        }
        if block.turn > order.turn || (block.turn == order.turn && block.host != n) {
            return;
        }
        if block.is_released || block.host == n || self.now.ms_since(block.changed) > LEASE_MS {
            let other = &self.hosts[1 - n];
            assert!(
                other.serves.is_none(),
                "{} takes what the other one writes to: {:#?}",
                NAMES[n],
                self.log
            );
            self.block = Block { host: n, turn: order.turn, is_released: false, changed: self.now };
            self.hosts[n].serves = Some(order.turn);
        }
    }

    fn report(&self, n: usize) -> Option<SharedReport> {
        let host = &self.hosts[n];
        let order = host.order.as_ref()?;
        let is_newer =
            self.block.turn > order.turn || (self.block.turn == order.turn && self.block.host != n);
        let owns = order.owner == NAMES[n] && order.phase == SharedPhase::Owned;
        let failed = |is_held| SharedState::Failed { fault: Box::new(Fault::new(Code::NotOwner)), is_held };
        let state = match host.serves {
            _ if host.held.is_some() => failed(true),
            _ if host.has_no_path || (owns && is_newer) => failed(false),
            Some(_) => SharedState::Serving,
            None if host.has_released => SharedState::Released,
            None if owns => SharedState::Starting,
            None => SharedState::StandingBy { turn: self.block.turn, is_released: self.block.is_released },
        };
        let SharedTarget { target, uuid, turn, .. } = order.clone();
        let turn = host.held.unwrap_or(turn);
        Some(SharedReport { target, uuid, turn, is_formatted: true, state })
    }

    fn event(&mut self, chance: &mut Chance) {
        let n = chance.below(2) as usize;
        let host = &mut self.hosts[n];
        let what = match chance.below(14) {
            0 => {
                *host = Host { is_cut: host.is_cut, ..Host::default() };
                "dies"
            }
            1 | 2 => {
                host.is_up = true;
                "is started"
            }
            3 => {
                host.is_frozen = host.is_up;
                "freezes"
            }
            4 => {
                host.is_frozen = false;
                "thaws"
            }
            5 => {
                host.is_cut = true;
                "is cut off"
            }
            6 => {
                host.is_cut = false;
                "is connected again"
            }
            7 => {
                self.fence_works = !self.fence_works;
                "has its fence changed"
            }
            8 => {
                host.has_no_path = true;
                "gets errors from the device"
            }
            9 | 10 => {
                host.has_no_path = false;
                "reaches the device again"
            }
            11 => {
                host.held = host.held.or(host.serves);
                "cannot stop what it serves"
            }
            12 if !self.earlier.is_empty() => {
                self.row = self.earlier[chance.below(self.earlier.len() as u64) as usize].clone();
                "is told of an older row"
            }
            _ => {
                let to = NAMES[n].to_owned();
                if self.row.target.phase == SharedPhase::Owned && self.row.target.owner != to {
                    self.row.target.phase = SharedPhase::Handing { to };
                }
                "is to have it"
            }
        };
        self.log.push(format!("{} ms: {} {what}", self.now.0 / 1_000_000, NAMES[n]));
    }
}

#[test]
fn nobody_takes_what_somebody_may_write_to_and_in_the_end_somebody_serves() {
    for seed in 0..3_000 {
        let mut chance = Chance(seed);
        let mut model = Model::new(seed % 4 != 0);
        model.failback_after_ms = (seed % 3 == 0).then_some(5_000);
        for _ in 0..400 {
            model.tick();
            if chance.below(8) == 0 {
                model.event(&mut chance);
            }
        }
        model.fence_works = true;
        for host in &mut model.hosts {
            (host.is_up, host.is_frozen, host.is_cut, host.has_no_path) = (true, false, false, false);
        }
        (0..50).for_each(|_| model.tick());
        // An administrator reads what is to be done, and starts the host anew.
        let is_waiting = !model.has_fence || model.is_restored;
        for host in model.hosts.iter_mut().filter(|host| host.held.is_some() && is_waiting) {
            *host = Host { is_up: true, ..Host::default() };
        }
        let is_held = |model: &Model| model.hosts.iter().any(|host| host.held.is_some());
        // A target that was moved because of a failure stays for a while.
        let seconds = if is_held(&model) { 40 + FAILURE_PAUSE_S } else { 40 };
        for _ in 0..5 * seconds {
            model.tick();
        }
        assert!(!is_held(&model), "seed {seed}: {:#?}", model.log);
        let serving: Vec<&str> =
            (0..2).filter(|n| model.hosts[*n].serves.is_some()).map(|n| NAMES[n]).collect();
        assert_eq!(
            serving,
            [model.row.target.owner.as_str()],
            "seed {seed}: {:#?} {:?} {:?} {:?}",
            model.log,
            model.row.target,
            model.hosts.each_ref().map(|h| (h.is_up, h.serves, h.has_released)),
            (model.block.host, model.block.turn, model.block.is_released)
        );
    }
}

/// Milliseconds until the other host serves after the first one died.
fn takeover_ms(has_fence: bool, kill: impl Fn(&mut Host)) -> Option<u64> {
    let mut model = Model::new(has_fence);
    (0..20).for_each(|_| model.tick());
    assert!(model.hosts[0].serves.is_some());
    kill(&mut model.hosts[0]);
    let died = model.now;
    for _ in 0..100 {
        model.tick();
        if model.hosts[1].serves.is_some() {
            return Some(model.now.ms_since(died));
        }
    }
    None
}

#[test]
fn a_dead_a_frozen_and_a_cut_owner_are_replaced_within_six_seconds() {
    let kills: [fn(&mut Host); 3] =
        [|host| *host = Host::default(), |host| host.is_frozen = true, |host| host.is_cut = true];
    for kill in kills {
        let ms = takeover_ms(true, kill).expect("it is replaced");
        assert!((2_500..6_000).contains(&ms), "{ms} ms");
    }
}

#[test]
fn without_a_fence_a_silent_owner_keeps_its_target() {
    assert_eq!(takeover_ms(false, |host| host.is_frozen = true), None);
}

#[test]
fn an_mgs_that_hears_nobody_blames_itself() {
    let mut model = Model::new(true);
    model.others.push("mds1".into());
    (0..20).for_each(|_| model.tick());
    model.hosts.iter_mut().for_each(|host| host.is_cut = true);
    (0..200).for_each(|_| model.tick());
    assert_eq!(model.row.target, SharedTarget { turn: model.row.target.turn, ..row().target });
    assert!(model.fencing.is_empty() && model.hosts[0].serves.is_some());
}

#[test]
fn a_target_goes_back_to_its_preferred_host_when_that_has_stood_by_for_the_set_time() {
    let mut model = Model::new(true);
    model.failback_after_ms = Some(20_000);
    (0..20).for_each(|_| model.tick());
    model.hosts[0] = Host::default();
    (0..50).for_each(|_| model.tick());
    assert_eq!(model.row.target.owner, "oss2");
    // The host comes and goes: the time begins anew each time.
    for _ in 0..3 {
        model.hosts[0].is_up = true;
        (0..75).for_each(|_| model.tick());
        assert_eq!(model.row.target.owner, "oss2", "{:#?}", model.log);
        model.hosts[0] = Host::default();
        (0..50).for_each(|_| model.tick());
    }
    model.hosts[0].is_up = true;
    let since = model.now;
    while model.hosts[0].serves.is_none() {
        model.tick();
        assert!(model.now.ms_since(since) < 25_000, "{:#?}", model.log);
    }
    assert!(model.now.ms_since(since) >= 20_000);
}

#[test]
fn an_owner_that_cannot_reach_its_device_is_replaced() {
    let ms = takeover_ms(true, |host| host.has_no_path = true).expect("it is replaced");
    assert!((2 * FAILED_MS..12_000).contains(&ms), "{ms} ms");
    assert_eq!(takeover_ms(false, |host| host.has_no_path = true), None, "it may still write");
}

#[test]
fn where_both_hosts_fail_nobody_is_fenced() {
    let mut model = Model::new(true);
    (0..20).for_each(|_| model.tick());
    model.hosts.iter_mut().for_each(|host| host.has_no_path = true);
    (0..200).for_each(|_| model.tick());
    model.row.target.phase = SharedPhase::Handing { to: NAMES[1].to_owned() };
    (0..200).for_each(|_| model.tick());
    assert!(model.hosts.iter().all(|host| host.is_up), "{:#?}", model.log);
}

#[test]
fn an_owner_with_parts_that_it_cannot_stop_is_fenced_until_that_succeeds() {
    let mut model = Model::new(true);
    (0..20).for_each(|_| model.tick());
    model.hosts[0].held = model.hosts[0].serves;
    model.fence_works = false;
    (0..150).for_each(|_| model.tick());
    assert!(model.hosts[0].is_up && model.hosts[1].serves.is_none());
    model.fence_works = true;
    (0..50).for_each(|_| model.tick());
    assert!(!model.hosts[0].is_up && model.hosts[1].serves.is_some(), "{:#?}", model.log);
}

#[test]
fn an_mgs_that_was_cut_off_waits_for_hosts_that_come_back_later_than_others() {
    for away_ticks in [10, 13, 150] {
        let mut model = Model::new(true);
        model.others.push("mds1".into());
        (0..20).for_each(|_| model.tick());
        model.hosts.iter_mut().for_each(|host| host.is_cut = true);
        (0..away_ticks).for_each(|_| model.tick());
        model.hosts[1].is_cut = false;
        // An attempt to connect takes up to 3 s, a proof of identity 5 s.
        (0..45).for_each(|_| model.tick());
        model.hosts[0].is_cut = false;
        (0..50).for_each(|_| model.tick());
        assert_eq!(model.row.target.owner, NAMES[0], "{away_ticks}: {:#?}", model.log);
        assert!(model.hosts[0].is_up && model.hosts[0].serves.is_some());
        // A host that stays away is replaced.
        model.hosts[0] = Host::default();
        (0..60).for_each(|_| model.tick());
        assert!(model.hosts[1].serves.is_some(), "{:#?}", model.log);
    }
}

#[test]
fn a_new_mgs_waits_for_hosts_that_come_later_than_others() {
    let mut model = Model::new(true);
    (0..20).for_each(|_| model.tick());
    model.listening = Listening::new(model.now);
    model.hosts[0].is_cut = true;
    (0..45).for_each(|_| model.tick());
    model.hosts[0].is_cut = false;
    (0..50).for_each(|_| model.tick());
    assert!(model.hosts[0].is_up && model.row.target.owner == NAMES[0], "{:#?}", model.log);
}

#[test]
fn a_fencing_is_called_off_when_its_host_is_heard_again_and_waits_while_nobody_is_heard() {
    let mut model = Model::new(true);
    model.others.push("mds1".into());
    (0..20).for_each(|_| model.tick());
    let fencing = |model: &mut Model| {
        let row = in_phase(&model.row, SharedPhase::Fencing { to: NAMES[1].to_owned() });
        model.change(row);
    };
    // The host was silent when that was decided, and has been heard since.
    fencing(&mut model);
    model.tick();
    assert_eq!((&model.row.target.phase, model.row.target.owner.as_str()), (&SharedPhase::Owned, NAMES[0]));
    assert!(model.hosts[0].is_up, "{:#?}", model.log);
    // The MGS is cut off after it has decided.
    (0..20).for_each(|_| model.tick());
    model.hosts.iter_mut().for_each(|host| host.is_cut = true);
    (0..15).for_each(|_| model.tick());
    fencing(&mut model);
    (0..100).for_each(|_| model.tick());
    assert!(model.hosts[0].is_up, "{:#?}", model.log);
}

#[test]
fn a_fencing_from_before_vouches_for_no_other_target() {
    let mut model = Model::new(true);
    (0..20).for_each(|_| model.tick());
    // The host was fenced for another target, which nobody could take; it was started again, and dies.
    model.hosts[0].is_frozen = true;
    let silent = model.now;
    (0..10).for_each(|_| model.tick());
    model.fencing.insert(NAMES[0].to_owned(), Fencing::Done);
    model.fenced.insert((TargetId::ost(1), model.row.target.turn));
    model.row.target.phase = SharedPhase::Fencing { to: NAMES[1].to_owned() };
    while model.now.ms_since(silent) < DEAD_MS {
        assert_eq!(model.row.target.owner, NAMES[0], "{:#?}", model.log);
        model.tick();
    }
    (0..20).for_each(|_| model.tick());
    // The model refuses a host that takes a target which the frozen host may still write.
    assert!(!model.hosts[0].is_up && model.hosts[1].serves.is_some(), "{:#?}", model.log);
}

#[test]
fn a_row_that_was_put_back_is_noticed() {
    let mut model = Model::new(true);
    (0..20).for_each(|_| model.tick());
    let first = model.row.clone();
    model.row.target.phase = SharedPhase::Handing { to: NAMES[1].to_owned() };
    (0..20).for_each(|_| model.tick());
    assert!(model.hosts[1].serves.is_some());
    let turn = model.row.target.turn;
    model.row = first;
    (0..20).for_each(|_| model.tick());
    assert_eq!(
        (model.row.target.owner.as_str(), model.row.target.turn),
        (NAMES[1], turn),
        "{:#?}",
        model.log
    );
    assert!(!model.is_restored && model.hosts[1].serves.is_some());
}
