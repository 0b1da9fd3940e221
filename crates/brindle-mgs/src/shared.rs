//! Shared targets: on devices that two hosts reach, of which one serves and the other stands by (design note 027).
//!
//! Daemons tell every half second how their shared targets are ([`listening`]). A few times a second the MGS
//! looks at each target ([`failover`]), stores what has to change, and has hosts fenced. Requests of
//! administrators are in [`decide`].

pub(crate) mod decide;
pub(crate) mod failover;
pub(crate) mod listening;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use brindle_auth::{HostRole, Roles};
use brindle_stdx::{BoxFuture, Mono};
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::mgs::shared::{SharedPhase, SharedTarget};

use crate::Mgs;
use crate::events::FenceOutcome;
use crate::hosts::Hosts;
use crate::hosts::rename;
use crate::hosts::rows::{Change, RestoredRow, Rows};
use crate::restored::{self, Settled};
use failover::{Fencing, Situation, Verdict, judge, newer_turn};
use listening::Listening;

/// Interval at which shared targets are checked.
const LOOK_EVERY_MS: u64 = 200;
/// A pause of this MGS that is longer counts for nobody's silence.
const PAUSE_MS: u64 = 600;
/// Pause after a failed fencing, before the program is run again.
const FENCE_AGAIN_MS: u64 = 5_000;

/// Switches a host off, or cuts it off from the storage that it shares, for certain.
pub trait Fence: Debug + Send + Sync {
    /// Completes when the host cannot write any more. Bounded in time by itself.
    fn fence<'a>(&'a self, host: &'a str) -> BoxFuture<'a, Result<()>>;
}

/// Volatile state of shared targets, beside their rows.
#[derive(Debug)]
pub(crate) struct Shared {
    state: parking_lot::Mutex<State>,
}

#[derive(Debug)]
struct State {
    listening: Listening,
    fencing: BTreeMap<String, Fencing>,
    /// Targets whose owners were fenced, with the turns in which that was done.
    fenced: BTreeSet<(TargetId, u64)>,
    hindrances: BTreeMap<TargetId, Fault>,
}

impl Shared {
    pub(crate) fn new(now: Mono) -> Shared {
        let listening = Listening::new(now);
        Shared {
            state: parking_lot::Mutex::new(State {
                listening,
                fencing: BTreeMap::new(),
                fenced: BTreeSet::new(),
                hindrances: BTreeMap::new(),
            }),
        }
    }

    /// Gives access to the reports of the daemons.
    pub(crate) fn listening<T>(&self, use_it: impl FnOnce(&mut Listening) -> T) -> T {
        use_it(&mut self.state.lock().listening)
    }

    /// Reason why nothing is done about a target.
    pub(crate) fn hindrance(&self, target: TargetId) -> Option<Fault> {
        self.state.lock().hindrances.get(&target).cloned()
    }

    /// Hosts that are being fenced, with the outcome where there is one.
    pub(crate) fn fencing_now(&self) -> BTreeMap<String, Option<FenceOutcome>> {
        let outcome = |fencing: &Fencing| match fencing {
            Fencing::Running => None,
            Fencing::Done => Some(Ok(())),
            Fencing::Failed(fault) => Some(Err(fault.why.join("; "))),
        };
        let state = self.state.lock();
        state.fencing.iter().map(|(host, fencing)| (host.clone(), outcome(fencing))).collect()
    }

    fn note_hindrance(&self, target: TargetId, hindrance: Option<Fault>) {
        let mut state = self.state.lock();
        match hindrance {
            Some(fault) => {
                let code = fault.code;
                if state.hindrances.get(&target).is_none_or(|before| before.code != code) {
                    tracing::error!(%code, target_name = %target, "{fault}");
                }
                state.hindrances.insert(target, fault);
            }
            None => drop(state.hindrances.remove(&target)),
        }
    }
}

impl Mgs {
    /// Decides with what is known at this moment.
    pub(crate) fn with_situation<T>(&self, rows: &Rows, decide: impl FnOnce(&Situation) -> T) -> T {
        let others = self.other_servers(rows);
        let state = self.shared.state.lock();
        decide(&Situation {
            now: self.seams.now(),
            now_s: self.seams.wall().secs,
            listening: &state.listening,
            others: &others,
            has_fence: self.config.fence.is_some(),
            failback_after_ms: self.config.failback_after_ms,
            fencing: &state.fencing,
            fenced: &state.fenced,
        })
    }

    /// Other hosts with daemons of servers.
    fn other_servers(&self, rows: &Rows) -> Vec<String> {
        let is_server = |roles: &str| roles.parse::<Roles>().is_ok_and(|roles| roles.has(HostRole::Server));
        let own = rename::name_in_rows(rows, &self.config.host);
        let servers = rows.hosts().filter(|row| is_server(&row.roles) && row.name != own);
        servers.map(|row| row.name.clone()).collect()
    }
}

/// Looks after shared targets for as long as the MGS runs.
pub(crate) async fn watch(mgs: Weak<Mgs>) {
    let mut last = None;
    while let Some(mgs) = mgs.upgrade() {
        let now = mgs.seams.now();
        let pause_ms = last.map_or(0, |last| now.ms_since(last));
        if pause_ms > PAUSE_MS {
            mgs.shared.listening(|listening| listening.was_deaf_for(pause_ms));
        }
        last = Some(now);
        if let Some(hosts) = &mgs.hosts {
            look(&mgs, hosts).await;
        }
        let (seams, sleep_ms) = (mgs.seams.clone(), LOOK_EVERY_MS);
        drop(mgs);
        seams.sleep_ms(sleep_ms).await;
    }
}

/// Looks at each shared target once.
async fn look(mgs: &Arc<Mgs>, hosts: &Hosts) {
    let rows = hosts.rows();
    listen(mgs, &rows);
    for target in rows.shared().map(|row| row.target.target) {
        if rows.is_restored(target) {
            settle(mgs, hosts, target).await;
            continue;
        }
        if was_put_back(mgs, hosts, &rows, target).await {
            continue;
        }
        let judged = |rows: &Rows| match rows.shared_target(target) {
            Some(row) => mgs.with_situation(rows, |situation| judge(row, situation)),
            None => Verdict::Nothing,
        };
        match judged(&rows) {
            Verdict::Nothing => mgs.shared.note_hindrance(target, None),
            Verdict::Hindered(fault) => mgs.shared.note_hindrance(target, Some(fault)),
            Verdict::Fence => fence(mgs, &rows, target),
            Verdict::Change(_) => {
                // Judged again with the rows that the change is made from.
                let decide = |rows: &Rows| -> Result<_> {
                    Ok(match judged(rows) {
                        Verdict::Change(row) => (vec![Change::Shared(Box::new(row.clone()))], Some(row)),
                        _ => (Vec::new(), None),
                    })
                };
                match hosts.change(decide).await {
                    Ok((_, Some(row))) => {
                        let t = row.target;
                        tracing::warn!(
                            target_name = %mgs.superblock.fs.target(target), owner = %t.owner, turn = t.turn,
                            phase = ?t.phase, "the owner of a shared target changes"
                        );
                    }
                    Ok((_, None)) => {}
                    Err(fault) => mgs.shared.note_hindrance(target, Some(fault)),
                }
            }
        }
    }
    forget_fencing(mgs, hosts);
}

/// Notes whether this MGS hears any host, and the orders to the hosts of shared targets.
fn listen(mgs: &Mgs, rows: &Rows) {
    let (now, others) = (mgs.seams.now(), mgs.other_servers(rows));
    mgs.shared.listening(|listening| {
        listening.look(&others, now);
        rows.shared().for_each(|row| listening.ordered(&row.target, now));
        listening.keep_orders(|target| rows.shared_target(target).is_some());
    });
}

/// Whether a row is older than the turn that its hosts have followed. Such a row was put back, for example by a restore of etcd itself, and
/// is settled like a row of a restored configuration.
async fn was_put_back(mgs: &Arc<Mgs>, hosts: &Hosts, rows: &Rows, target: TargetId) -> bool {
    let newer = |rows: &Rows| {
        let row = rows.shared_target(target).filter(|_| !rows.is_restored(target))?;
        mgs.with_situation(rows, |situation| newer_turn(row, situation))
    };
    if newer(rows).is_none() {
        return false;
    }
    let decide = |rows: &Rows| -> Result<_> {
        let restored_s = mgs.seams.wall().secs;
        let mark = |_| Change::Restored(RestoredRow { target, restored_s });
        let turn = newer(rows);
        Ok((turn.map(mark).into_iter().collect(), turn))
    };
    match hosts.change(decide).await {
        Ok((_, Some(turn))) => {
            tracing::error!(
                code = %Code::RestoredTarget, target_name = %mgs.superblock.fs.target(target), turn,
                "the row of a shared target is older than what its hosts go by"
            );
        }
        Ok((_, None)) => {}
        Err(fault) => mgs.shared.note_hindrance(target, Some(fault)),
    }
    true
}

/// Finds out how a target stands whose row was restored.
async fn settle(mgs: &Arc<Mgs>, hosts: &Hosts, target: TargetId) {
    let decide = |rows: &Rows| -> Result<_> {
        let Some(row) = rows.shared_target(target).filter(|_| rows.is_restored(target)) else {
            return Ok((Vec::new(), None));
        };
        match mgs.with_situation(rows, |situation| restored::shared(row, situation)) {
            Settled::Waits(fault) => Err(fault.subject(mgs.superblock.fs.target(target))),
            Settled::AsItWas => Ok((vec![Change::NotRestored(target)], Some(row.clone()))),
            Settled::Becomes(row) => {
                let changes = vec![Change::Shared(Box::new(row.clone())), Change::NotRestored(target)];
                Ok((changes, Some(row)))
            }
        }
    };
    match hosts.change(decide).await {
        Ok((true, Some(row))) => {
            mgs.shared.note_hindrance(target, None);
            tracing::warn!(
                target_name = %mgs.superblock.fs.target(target), owner = %row.target.owner, turn = row.target.turn,
                "all its hosts have shown what they have: the restored row counts from now on"
            );
        }
        Ok(_) => {}
        Err(fault) => mgs.shared.note_hindrance(target, Some(fault)),
    }
}

/// Has the owner of a target fenced, in the background.
fn fence(mgs: &Arc<Mgs>, rows: &Rows, target: TargetId) {
    let (Some(row), Some(fence)) = (rows.shared_target(target), mgs.config.fence.clone()) else { return };
    if let Err(fault) = mgs.check_leads() {
        return mgs.shared.note_hindrance(target, Some(fault));
    }
    let host = row.target.owner.clone();
    let waiting = waiting(rows, &host);
    mgs.shared.state.lock().fencing.insert(host.clone(), Fencing::Running);
    let weak = Arc::downgrade(mgs);
    tracing::warn!(%host, target_name = %target, audit = true, "fencing");
    mgs.seams.spawn("shared.fence", async move {
        let outcome = fence.fence(&host).await;
        let Some(mgs) = weak.upgrade() else { return };
        match outcome {
            Ok(()) => {
                tracing::warn!(%host, audit = true, "fenced");
                let mut state = mgs.shared.state.lock();
                state.fenced.extend(waiting);
                state.fencing.insert(host, Fencing::Done);
            }
            Err(fault) => {
                let fault = Fault::new(Code::FencingFailed)
                    .subject(host.clone())
                    .why(fault.to_string().replace('\n', ";"))
                    .data("nothing is lost; clients wait");
                tracing::error!(%host, code = %fault.code, "{fault}");
                mgs.shared.state.lock().fencing.insert(host.clone(), Fencing::Failed(fault));
                mgs.seams.sleep_ms(FENCE_AGAIN_MS).await;
                let mut state = mgs.shared.state.lock();
                if matches!(state.fencing.get(&host), Some(Fencing::Failed(_))) {
                    state.fencing.remove(&host);
                }
            }
        }
    });
}

/// Targets that wait for a host to be fenced, with their turns.
fn waiting(rows: &Rows, host: &str) -> BTreeSet<(TargetId, u64)> {
    let is_one = |t: &SharedTarget| t.owner == host && matches!(t.phase, SharedPhase::Fencing { .. });
    let targets = rows.shared().map(|row| &row.target).filter(|t| is_one(t));
    targets.map(|t| (t.target, t.turn)).collect()
}

/// Forgets the fencing of hosts that no target waits for: a host that was started again may have to be fenced
/// again.
fn forget_fencing(mgs: &Mgs, hosts: &Hosts) {
    let rows = hosts.rows();
    let mut state = mgs.shared.state.lock();
    let is_waited_for = |host: &String| !waiting(&rows, host).is_empty();
    state.fencing.retain(|host, fencing| matches!(fencing, Fencing::Running) || is_waited_for(host));
    let waits = |(target, turn): &(TargetId, u64)| {
        let row = rows.shared_target(*target).filter(|row| row.target.turn == *turn);
        row.is_some_and(|row| matches!(row.target.phase, SharedPhase::Fencing { .. }))
    };
    state.fenced.retain(waits);
}
