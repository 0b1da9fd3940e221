//! A replica set of an MDT or of an OST in the simulator: one MGS, two or three hosts with a member each, clients; the real services, over
//! simulated seams (design notes 032 and 044).
//!
//! | module | holds |
//! |---|---|
//! | [`host`] | the daemon of a host: tells the MGS of its member, and serves it as the set says |
//! | [`cluster`] | formats everything and makes the set; nodes that go down and come back |
//! | [`work`] | what clients do, and what of it must be there at the end: [`names`] of an MDT, [`blocks`] on an OST |
//! | [`clients`] | clients that die and mount anew; when what they had acknowledged may be lost |
//! | [`faults`] | crashes, power cuts, partitions, slow, hung and lying disks, wrong clocks |
//! | [`rules`] | what holds at every moment, and what the members' stores hold at the end |
//!
//! The rules, as they are named in violations:
//!
//! | rule | text |
//! |---|---|
//! | R1 | what was acknowledged and synced is never lost; what was acknowledged only if the told term has risen |
//! | R2 | at most one member has the right to answer |
//! | R3 | no two openings of any members have one term |
//! | R4 | members of an MDT in sync have equal rows, once nothing changes any more; whichever member serves at the end, everything is there |
//! | R5 | whoever looks finds what was acknowledged before that: no answer comes from a former primary |
//! | R6 | after the last fault everything comes to an end, and every member is in sync |
//! | R7 | the told term rises only when a power cut may have taken something from every member in sync |

pub mod blocks;
pub mod clients;
pub mod cluster;
pub mod faults;
pub mod host;
pub mod names;
pub mod rules;
pub mod work;

use std::sync::Arc;

use brindle_sim::rng::mix;
use brindle_types::{Fault, Role};

use crate::history::History;
use crate::run::Report;

use cluster::SetCluster;
use faults::Faults;
use rules::Witness;
use work::Work;

/// Longest time of making the set, and until all members are in sync.
const PREPARE_MS: u64 = 120_000;
/// After the last fault everything under way ends within this, and all members are in sync.
const QUIET_MS: u64 = 90_000;
/// Longest time for the last looks.
const VERDICT_MS: u64 = 120_000;
/// Purpose of a number that follows from the seed.
const OF_ROLE: u64 = 11;
/// Longest time of everything.
const RUN_MAX_MS: u64 = 3_600_000;

/// Kinds of faults of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Menu {
    /// No faults.
    Nothing,
    /// Processes die or stand still, connections break, disks are slow: no power cut, so the told term stays.
    Kills,
    /// Also, ways between hosts are cut, in one direction or both.
    Partitions,
    /// Also, disks hang or fail, and hosts lose power.
    Everything,
    /// Like `Partitions`, with one disk that acknowledges syncs that it does not carry out; its host loses power.
    Lies,
}

/// Plan of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kinds of faults.
    pub menu: Menu,
    /// Role of the target that has members: an MDT or an OST.
    pub role: Role,
    /// Members of the set.
    pub members: usize,
    /// Number of faults.
    pub faults: usize,
    /// Lines of the trace to keep for the report.
    pub lines: usize,
}

impl Plan {
    /// The plan that every seed has by itself.
    pub fn of(seed: u64) -> Plan {
        let menu = match seed % 5 {
            0 => Menu::Kills,
            1 | 2 => Menu::Partitions,
            3 => Menu::Everything,
            _ => Menu::Lies,
        };
        let members = match seed / 5 % 8 {
            0 => 1,
            1..5 => 2,
            _ => 3,
        };
        // A lie of the only disk is one that nobody can find out.
        let menu = if members == 1 && menu == Menu::Lies { Menu::Everything } else { menu };
        let role = if mix(seed, OF_ROLE).is_multiple_of(3) { Role::Ost } else { Role::Mdt };
        Plan { menu, role, members, faults: 12, lines: 0 }
    }
}

/// Runs a seed.
pub fn run(seed: u64, plan: &Plan) -> Report {
    let cluster = SetCluster::new(seed, plan.role, plan.members);
    let world = cluster.world().clone();
    world.keep_lines(plan.lines);
    let history = History::new(world.clone());
    let witness = Arc::new(Witness::new(history.clone()));
    let done = world.run_until(RUN_MAX_MS, all(&cluster, &witness, plan));
    if let Err(stuck) = done {
        history.violation(format!("R6: the run did not end: {stuck:?}"));
    }
    Report::of(seed, &world, &history, plan.lines)
}

async fn all(cluster: &SetCluster, witness: &Arc<Witness>, plan: &Plan) {
    let (history, seams) = (witness.history().clone(), cluster.world().node("driver").seams);
    let begun = async {
        cluster.make_set().await?;
        cluster.until_complete().await;
        Work::begin(cluster, witness).await
    };
    let work = match seams.timeout_ms(PREPARE_MS, begun).await {
        Some(Ok(work)) => work,
        Some(Err(fault)) => return history.violation(format!("R6: the set cannot be made: {fault:?}")),
        None => {
            let stands = cluster.stands();
            return history.violation(format!("R6: the set is not complete at the beginning: {stands}"));
        }
    };
    let (own, watched) = (cluster.clone(), witness.clone());
    seams.spawn("rules.watch", async move { watched.watch(own).await });
    let faults = Faults::new(cluster.clone(), history.clone(), plan.menu);
    let revived = work.clone();
    seams.spawn("faults.supervise", faults.clone().supervise(move |name| revived.revive(name)));
    faults.run(plan.faults).await;
    faults.heal();
    let complete = async {
        cluster.until_complete().await;
        work.clients().stop();
        work.clients().until_ended().await;
    };
    if seams.timeout_ms(QUIET_MS, complete).await.is_none() {
        let (left, stands) = (work.clients().left(), cluster.stands());
        return history.violation(format!(
            "R6: {} s after the last fault: {left} tasks of clients left, {stands}",
            QUIET_MS / 1000
        ));
    }
    let verdict = async {
        if let Err(fault) = look_at_all(cluster, witness, &work).await {
            history.violation(format!("R1: the last look failed: {fault:?}"));
        }
    };
    if seams.timeout_ms(VERDICT_MS, verdict).await.is_none() {
        history.violation(format!("R6: the last look does not end: {}", cluster.stands()));
    }
    if matches!(plan.menu, Menu::Nothing | Menu::Kills | Menu::Partitions) {
        witness.no_term_has_risen();
    }
}

/// Compares what is there with what was acknowledged, with each member in sync as the primary in turn.
async fn look_at_all(cluster: &SetCluster, witness: &Witness, work: &Work) -> Result<(), Fault> {
    work.verdict().await?;
    if cluster.target().role == Role::Mdt {
        witness.compare_members(cluster).await;
    }
    let others = cluster.set().map(|set| {
        let others = set.in_sync().filter(|member| member.host != set.primary);
        others.map(|member| member.host.clone()).collect::<Vec<_>>()
    });
    for host in others.unwrap_or_default() {
        cluster.promote(&host).await;
        cluster.until_served_by(&host).await;
        work.verdict().await?;
    }
    Ok(())
}
