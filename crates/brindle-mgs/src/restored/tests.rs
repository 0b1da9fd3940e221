//! Histories of a set, of which a backup has only the beginning. Property: whoever serves after the restore has everything that was acknowledged.

use brindle_stdx::Mono;
use brindle_wire::mgs::replica::ReplicaMember;
use brindle_wire::mgs::shared::SharedReport;

use super::*;
use crate::shared::listening::Listening;

const NOW_S: i64 = 1_800_000_000;
const HOSTS: [&str; 3] = ["a", "b", "c"];

/// A small generator; the tests name their seeds.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Contents of a member's disk.
#[derive(Clone, Debug, Default)]
struct Disk {
    epoch: u64,
    in_sync: Vec<String>,
    /// Changes that the member has.
    changes: u64,
}

struct History {
    set: ReplicaSetState,
    disks: BTreeMap<String, Disk>,
    acknowledged: u64,
}

fn first() -> ReplicaSetState {
    let member = |n: usize| ReplicaMember {
        host: HOSTS[n].to_owned(),
        dir: "/data".to_owned(),
        is_formatted: true,
        role: if n == 0 { MemberRole::InSync } else { MemberRole::Learner },
        boot_term: 1,
        recorded_epoch: 0,
        nids: Vec::new(),
    };
    let members = (0..HOSTS.len()).map(member).collect();
    let (target, uuid, primary) = (TargetId::ost(3), [7; 16], HOSTS[0].to_owned());
    ReplicaSetState { target, uuid, epoch: 1, term: 1, port: 9, primary, members }
}

impl History {
    fn new() -> History {
        let disks = HOSTS.iter().map(|host| ((*host).to_owned(), Disk::default())).collect();
        let mut history = History { set: first(), disks, acknowledged: 0 };
        history.record("a");
        history
    }

    /// A member goes by the set as it is now.
    fn record(&mut self, host: &str) {
        let in_sync = self.set.in_sync().map(|m| m.host.clone()).collect();
        let disk = self.disks.get_mut(host).unwrap();
        (disk.epoch, disk.in_sync) = (self.set.epoch, in_sync);
    }

    fn role(&mut self, host: &str, role: MemberRole) {
        self.set.members.iter_mut().find(|m| m.host == host).unwrap().role = role;
        self.set.epoch += 1;
    }

    fn step(&mut self, chance: &mut Chance) {
        let (host, primary) = (HOSTS[chance.below(3)].to_owned(), self.set.primary.clone());
        match chance.below(5) {
            0 if host != primary => {
                // The primary is not heard of any more.
                if self.set.is_in_sync(&host) {
                    self.role(&primary, MemberRole::Learner);
                    self.set.primary.clone_from(&host);
                    if chance.below(2) == 0 {
                        self.record(&host);
                    }
                }
            }
            1 if host != primary && self.set.is_in_sync(&host) => self.role(&host, MemberRole::Learner),
            2 if host != primary && !self.set.is_in_sync(&host) => {
                self.disks.get_mut(&host).unwrap().changes = self.acknowledged;
                self.record(&host);
                self.role(&host, MemberRole::InSync);
            }
            3 => self.record(&host),
            _ => {
                // A change: the primary goes by the newest epoch, and all who are in sync have it before it is acknowledged.
                self.record(&primary);
                self.acknowledged += 1;
                for m in self.set.in_sync() {
                    self.disks.get_mut(&m.host).unwrap().changes = self.acknowledged;
                }
            }
        }
    }

    fn words(&self, backup: &ReplicaSetState) -> BTreeMap<String, Word> {
        let word = |disk: &Disk| {
            let is_ahead = disk.epoch > backup.epoch;
            let phase = match is_ahead {
                true => MemberPhase::Failed(Box::new(Fault::new(Code::OlderSet))),
                false => MemberPhase::Following,
            };
            let shown = is_ahead.then(|| Shown { epoch: disk.epoch, in_sync: disk.in_sync.clone(), term: 0 });
            Word { report: Some(report(backup, phase, disk.epoch)), shown }
        };
        self.disks.iter().map(|(host, disk)| (host.clone(), word(disk))).collect()
    }
}

fn report(set: &ReplicaSetState, phase: MemberPhase, recorded_epoch: u64) -> MemberReport {
    let boot_term = if matches!(phase, MemberPhase::Failed(_)) { 0 } else { 1 };
    MemberReport {
        target: set.target,
        uuid: set.uuid,
        epoch: set.epoch,
        is_formatted: true,
        boot_term,
        recorded_epoch,
        nids: Vec::new(),
        phase,
        resyncs: Vec::new(),
        mended_blocks: 0,
    }
}

#[test]
fn whoever_serves_after_a_restore_has_everything() {
    let (mut as_it_was, mut becomes) = (0, 0);
    for seed in 0..20_000 {
        let mut chance = Chance(seed);
        let mut history = History::new();
        for _ in 0..chance.below(12) {
            history.step(&mut chance);
        }
        let backup = history.set.clone();
        for _ in 0..chance.below(12) {
            history.step(&mut chance);
        }
        let complete = |host: &str| history.disks[host].changes == history.acknowledged;
        match set(&backup, &history.words(&backup), NOW_S) {
            Settled::AsItWas => {
                as_it_was += 1;
                assert!(
                    backup.in_sync().all(|m| complete(&m.host)),
                    "seed {seed}: {backup:?} {:?}",
                    history.disks
                );
            }
            Settled::Becomes(next) => {
                becomes += 1;
                assert!(
                    next.in_sync().all(|m| complete(&m.host)),
                    "seed {seed}: {next:?} {:?}",
                    history.disks
                );
                assert!(
                    history.disks.values().all(|disk| disk.epoch < next.epoch) && next.term > backup.term
                );
                assert!(next.is_in_sync(&next.primary));
            }
            Settled::Waits(fault) => panic!("seed {seed}: everybody has told: {fault}"),
        }
    }
    assert!(as_it_was > 1000 && becomes > 1000, "{as_it_was} {becomes}");
}

#[test]
fn nobody_serves_before_all_members_have_shown_what_they_have() {
    let mut history = History::new();
    history.role("b", MemberRole::InSync);
    let backup = history.set.clone();
    history.role("b", MemberRole::Learner);
    history.record("a");
    let words = history.words(&backup);
    let without = |host: &str| {
        let mut words = words.clone();
        words.remove(host);
        set(&backup, &words, NOW_S)
    };
    for host in HOSTS {
        let Settled::Waits(fault) = without(host) else { panic!("{host} is silent") };
        assert!(fault.code == Code::RestoredTarget && fault.why[0].starts_with(host), "{fault}");
    }
    let mut unshown = words.clone();
    unshown.get_mut("a").unwrap().shown = None;
    assert!(matches!(set(&backup, &unshown, NOW_S), Settled::Waits(_)), "who was in sync is not known");
    let mut elsewhere = words.clone();
    elsewhere.get_mut("a").unwrap().shown = Some(Shown { epoch: 9, in_sync: vec!["z".into()], term: 0 });
    let Settled::Waits(fault) = set(&backup, &elsewhere, NOW_S) else { panic!("only z has everything") };
    assert_eq!(fault.code, Code::LastReplicaLost);
    let beside = elsewhere.get_mut("a").unwrap();
    beside.shown = Some(Shown { epoch: 9, in_sync: vec!["a".into(), "z".into()], term: 0 });
    assert!(matches!(set(&backup, &elsewhere, NOW_S), Settled::Waits(_)), "z may have gone on alone");
    // A primary that has gone on meanwhile goes on: nothing is lost, and clients are told so.
    let mut running = words;
    let serving = MemberReport { epoch: 3, boot_term: 8, ..report(&backup, MemberPhase::Serving, 3) };
    let shown = Shown { epoch: 3, in_sync: vec!["a".into()], term: 5 };
    running.insert("a".into(), Word { report: Some(serving), shown: Some(shown) });
    let Settled::Becomes(next) = set(&backup, &running, NOW_S) else { panic!("all have told") };
    assert_eq!((next.primary.as_str(), next.term), ("a", 5));
    assert!(next.epoch >= u64::try_from(NOW_S).unwrap(), "above what anybody could have");
    assert_eq!(next.member("a").map(|m| m.boot_term), Some(8));
}

/// A shared target of which `a` is the owner in turn 5.
fn shared_row() -> SharedRow {
    let mut row = crate::shared::failover::tests::row();
    for (host, name) in row.target.hosts.iter_mut().zip(["a", "b"]) {
        host.host = name.to_owned();
    }
    row.target.owner = "a".to_owned();
    row.target.turn = 5;
    row
}

/// Verdict on the target from the reports of both hosts; `None` for a silent one.
fn judged(a: Option<(u64, SharedState)>, b: Option<(u64, SharedState)>) -> Settled<SharedRow> {
    with_words(a, b, |s| shared(&shared_row(), s))
}

fn with_words<T>(
    a: Option<(u64, SharedState)>,
    b: Option<(u64, SharedState)>,
    use_it: impl FnOnce(&Situation) -> T,
) -> T {
    let now = Mono(0).plus_ms(100_000);
    let mut listening = Listening::new(Mono(0));
    for (host, told) in [("a", a), ("b", b)] {
        if let Some((turn, state)) = told {
            let (target, uuid) = (TargetId::ost(0), [7; 16]);
            listening.told(host, now, vec![SharedReport { target, uuid, turn, is_formatted: true, state }]);
        }
    }
    use_it(&Situation {
        now,
        now_s: NOW_S,
        listening: &listening,
        others: &[],
        has_fence: false,
        failback_after_ms: None,
        fencing: &BTreeMap::new(),
        fenced: &std::collections::BTreeSet::new(),
    })
}

#[test]
fn a_shared_target_stays_with_whoever_has_it() {
    let by = |turn| Some((5, SharedState::StandingBy { turn, is_released: false }));
    let failed = |is_held| SharedState::Failed { fault: Box::new(Fault::new(Code::NotOwner)), is_held };
    let becomes = |settled: Settled<SharedRow>| match settled {
        Settled::Becomes(row) => (row.target.owner, row.target.turn),
        other => panic!("{other:?}"),
    };
    assert_eq!(judged(Some((5, SharedState::Serving)), by(5)), Settled::AsItWas);
    assert_eq!(becomes(judged(by(9), Some((9, SharedState::Serving)))), ("b".into(), 9), "b took it since");
    assert_eq!(
        becomes(judged(Some((5, failed(false))), by(9))),
        ("a".into(), u64::try_from(NOW_S).unwrap()),
        "b had it, and was started anew"
    );
    for (a, b) in [
        (None, by(5)),
        (Some((5, SharedState::Serving)), None),
        (Some((5, SharedState::Starting)), by(9)),
        (Some((5, failed(true))), by(9)),
        (Some((5, failed(false))), Some((5, failed(false)))),
    ] {
        assert!(matches!(judged(a.clone(), b.clone()), Settled::Waits(_)), "{a:?} {b:?}");
    }
}

#[test]
fn a_word_counts_for_silent_hosts_only() {
    let by = |turn| Some((5, SharedState::StandingBy { turn, is_released: false }));
    let word = |a, b, to: &str| with_words(a, b, |s| shared_by_word(&shared_row(), to, s));
    let row = word(None, by(9), "b").unwrap();
    assert_eq!((row.target.owner.as_str(), row.target.turn), ("b", u64::try_from(NOW_S).unwrap()));
    assert!(word(by(9), by(9), "b").unwrap_err().contains("a is not off"));
    assert!(word(Some((9, SharedState::Serving)), by(9), "b").unwrap_err().contains("in use"));
    assert!(word(None, by(9), "a").is_err(), "a is silent, and b is not");
}
