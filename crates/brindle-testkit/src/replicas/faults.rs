//! [`Faults`]: draws faults from the seed, and brings everything back.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_stdx::Seams;
use brindle_wire::mgs::replica::ReplicaSetChange;
use parking_lot::Mutex;

use super::Menu;
use super::cluster::{CLIENTS, MGS, SetCluster};
use crate::history::History;
use crate::sim::{Crash, Direction, DiskOp};

/// Interval at which the supervisor looks.
const LOOK_MS: u64 = 50;
/// Longest time that a node stays down.
const DOWN_MAX_MS: u64 = 6_000;
/// Longest pause between two faults, unless more are close together.
const PAUSE_MAX_MS: u64 = 7_000;
/// Longest pause between two that are close together.
const CLOSE_MS: u64 = 300;
/// A cut this long or longer outlasts every lease of members.
const LONG_CUT_MS: u64 = 4_000;
/// Longest time for which a process stands still, beyond a lease.
const STILL_MAX_MS: u64 = 6_000;
/// A disk hangs for at least this long, and at most twice as long: longer than the watch waits.
const HANG_MIN_MS: u64 = 3_000;
/// Disk operations after which a planned crash comes, at most.
const CRASH_POINT_MAX: u64 = 40;
/// New time of a planned crash when no more crashes are wanted.
const NEVER: u64 = u64::MAX / 2;
/// Longest time for which frames of a broken connection come late.
const LATE_MAX_MS: u64 = 3_000;

/// The driver. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct Faults {
    cluster: SetCluster,
    history: History,
    menu: Menu,
    /// Nodes that are down, and until when.
    down: Arc<Mutex<BTreeMap<String, u64>>>,
    /// The driver's own node, which never goes down.
    seams: Seams,
}

impl Faults {
    /// Faults for a cluster. The disk that lies begins at once.
    pub fn new(cluster: SetCluster, history: History, menu: Menu) -> Faults {
        let seams = cluster.world().node("driver").seams;
        if menu == Menu::Lies {
            let hosts = cluster.hosts();
            let liar = &hosts[cluster.world().choose(hosts.len() as u64) as usize];
            history.fault("a disk lies");
            cluster.world().disk(liar).lie(true);
            cluster.has_liar_now(liar);
        }
        Faults { cluster, history, menu, down: Arc::default(), seams }
    }

    /// Restarts nodes that are down; clients with `revive`. Never ends.
    pub async fn supervise(self, revive: impl Fn(&str)) {
        loop {
            self.seams.sleep_ms(LOOK_MS).await;
            let now_ns = self.history.now_ns();
            for name in self.cluster.nodes() {
                if self.cluster.world().is_running(&name) {
                    continue;
                }
                let until_ns = self.down.lock().get(&name).copied();
                match until_ns {
                    None => {
                        let until_ns = now_ns + self.choose(DOWN_MAX_MS) * 1_000_000;
                        self.down.lock().insert(name, until_ns);
                    }
                    Some(until_ns) if now_ns < until_ns => {}
                    Some(_) => {
                        self.down.lock().remove(&name);
                        match CLIENTS.contains(&name.as_str()) {
                            true => revive(&name),
                            false => self.cluster.restart(&name),
                        }
                    }
                }
            }
        }
    }

    fn choose(&self, n: u64) -> u64 {
        self.cluster.world().choose(n)
    }

    fn pick(&self, names: &[String]) -> String {
        names[self.choose(names.len() as u64) as usize].clone()
    }

    /// A host; the primary more often than others.
    fn host(&self) -> String {
        match self.cluster.set() {
            Some(set) if self.choose(2) == 0 => set.primary,
            _ => self.pick(&self.cluster.hosts()),
        }
    }

    /// A host, the MGS or a client, other than `one`.
    fn other_than(&self, one: &str) -> String {
        let others: Vec<String> = self.cluster.nodes().into_iter().filter(|name| name != one).collect();
        self.pick(&others)
    }

    /// Injects `count` faults.
    pub async fn run(&self, count: usize) {
        for _ in 0..count {
            let pause_ms = if self.choose(4) == 0 { CLOSE_MS } else { PAUSE_MAX_MS };
            self.seams.sleep_ms(1 + self.choose(pause_ms)).await;
            let kinds = match self.menu {
                Menu::Nothing => return,
                Menu::Kills => 10,
                Menu::Partitions => 20,
                Menu::Everything => 28,
                Menu::Lies => 22,
            };
            self.one(self.choose(kinds));
        }
    }

    fn one(&self, kind: u64) {
        let world = self.cluster.world();
        match kind {
            0..3 => {
                self.history.fault("kill a host's daemon");
                world.kill(&self.host());
            }
            3 => {
                self.history.fault("kill all daemons");
                self.cluster.hosts().iter().for_each(|name| world.kill(name));
            }
            4 => {
                self.history.fault("kill the MGS");
                world.kill(MGS);
            }
            5 => {
                self.history.fault("a process stands still");
                let name = if self.choose(4) == 0 { MGS.to_owned() } else { self.host() };
                world.stand_still(&name, 500 + self.choose(STILL_MAX_MS));
            }
            6 => {
                self.history.fault("kill between two disk operations");
                world.crash_after(&self.host(), self.choose(CRASH_POINT_MAX), Crash::Kill);
            }
            7 => self.break_connections(),
            8 => self.slow_disk(),
            9 => self.jump_or_promote(),
            10..14 => self.partition(),
            14..16 => self.isolate(),
            16..19 => self.split(),
            19 => {
                self.history.fault("kill a client");
                world.kill(CLIENTS[self.choose(CLIENTS.len() as u64) as usize]);
            }
            _ if self.menu == Menu::Lies => self.cut_the_liar(),
            20..22 => {
                self.history.fault("a disk hangs");
                self.hang(&self.host());
            }
            22 => {
                self.history.fault("EIO at a sync of a member");
                world.disk(&self.host()).fail_next(DiskOp::Sync, 1 + self.choose(3));
            }
            23 => {
                self.history.fault("power cut between two disk operations");
                world.crash_after(&self.host(), self.choose(CRASH_POINT_MAX), Crash::PowerCut);
            }
            24..27 => {
                self.history.fault("power cut of a host");
                world.power_cut(&self.host());
            }
            _ => {
                self.history.fault("power cut of all hosts");
                self.cluster.hosts().iter().for_each(|name| world.power_cut(name));
            }
        }
    }

    /// The host whose disk lies loses its power, while another member has everything.
    fn cut_the_liar(&self) {
        let Some((set, liar)) = self.cluster.set().zip(self.cluster.liar()) else { return };
        if set.in_sync().count() > 1 {
            self.history.fault("power cut of the host whose disk lies");
            self.cluster.world().power_cut(&liar);
        }
    }

    fn break_connections(&self) {
        let one = self.host();
        let other = self.other_than(&one);
        if self.choose(2) == 0 {
            self.history.fault("connection break");
            self.cluster.world().break_connections(&one, &other);
        } else {
            self.history.fault("late frames of a broken connection");
            self.cluster.world().break_late(&one, &other, 1 + self.choose(LATE_MAX_MS));
        }
    }

    fn slow_disk(&self) {
        self.history.fault("slow disk");
        let disk = self.cluster.world().disk(&self.host());
        disk.set_sync_ms(200, 200 + self.choose(1_500));
        let (seams, ms) = (self.seams.clone(), 500 + self.choose(6_000));
        self.seams.spawn("faults.fast again", async move {
            seams.sleep_ms(ms).await;
            disk.set_sync_ms(0, 3);
        });
    }

    fn hang(&self, host: &str) {
        let disk = self.cluster.world().disk(host);
        disk.hold_syncs(true);
        let (seams, ms) = (self.seams.clone(), HANG_MIN_MS + self.choose(4 * HANG_MIN_MS));
        self.seams.spawn("faults.answers again", async move {
            seams.sleep_ms(ms).await;
            disk.hold_syncs(false);
        });
    }

    fn jump_or_promote(&self) {
        if self.choose(2) == 0 {
            self.history.fault("wall clock jump");
            let node = if self.choose(4) == 0 { MGS.to_owned() } else { self.host() };
            self.cluster.world().jump_wall(&node, self.choose(7_200_000) as i64 - 3_600_000);
            return;
        }
        self.history.fault("an administrator promotes a member");
        let change = ReplicaSetChange::Promote {
            target: self.cluster.target(),
            host: self.pick(&self.cluster.hosts()),
        };
        let cluster = self.cluster.clone();
        self.seams.spawn("faults.promote", async move {
            // A member that is not in sync is refused.
            if let Err(fault) = cluster.change(change).await {
                tracing::info!("not promoted: {fault}");
            }
        });
    }

    fn cut_ms(&self) -> u64 {
        if self.choose(2) == 0 { self.choose(LONG_CUT_MS) } else { LONG_CUT_MS + self.choose(12_000) }
    }

    fn direction(&self) -> Direction {
        if self.choose(2) == 0 { Direction::Both } else { Direction::OneWay }
    }

    /// Cuts the way between two nodes, one of them a host.
    fn partition(&self) {
        let (mut from, direction) = (self.host(), self.direction());
        let mut to = self.other_than(&from);
        if self.choose(2) == 0 {
            std::mem::swap(&mut from, &mut to);
        }
        self.history.fault(match direction {
            Direction::Both => "partition",
            Direction::OneWay => "one-way partition",
        });
        self.cluster.world().partition(&from, &to, direction);
        self.heal_after(vec![(from, to)], self.cut_ms());
    }

    /// Cuts a host off from all others; or what it sends, or what is sent to it.
    fn isolate(&self) {
        self.history.fault("isolated host");
        let (host, direction) = (self.host(), self.direction());
        let is_deaf = self.choose(2) == 0;
        let others = self.cluster.nodes().into_iter().filter(|name| *name != host);
        let ways: Vec<(String, String)> =
            others.map(|name| if is_deaf { (name, host.clone()) } else { (host.clone(), name) }).collect();
        ways.iter().for_each(|(from, to)| self.cluster.world().partition(from, to, direction));
        self.heal_after(ways, self.cut_ms());
    }

    /// Parts all nodes into two halves.
    fn split(&self) {
        self.history.fault("two halves of the network");
        let direction = self.direction();
        let (mut one, mut other): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        for name in self.cluster.nodes() {
            if self.choose(2) == 0 { one.push(name) } else { other.push(name) }
        }
        let ways: Vec<(String, String)> =
            one.iter().flat_map(|a| other.iter().map(|b| (a.clone(), b.clone()))).collect();
        ways.iter().for_each(|(from, to)| self.cluster.world().partition(from, to, direction));
        self.heal_after(ways, self.cut_ms());
    }

    fn heal_after(&self, ways: Vec<(String, String)>, ms: u64) {
        let (world, seams) = (self.cluster.world().clone(), self.seams.clone());
        self.seams.spawn("faults.heal", async move {
            seams.sleep_ms(ms).await;
            for (from, to) in ways {
                world.heal_between(&from, &to);
            }
        });
    }

    /// Ends all faults. Nodes that are down come back by themselves.
    pub fn heal(&self) {
        let world = self.cluster.world();
        world.heal();
        for name in self.cluster.servers() {
            let disk = world.disk(&name);
            disk.die_after(NEVER);
            disk.fail_next(DiskOp::Sync, 0);
            disk.set_sync_ms(0, 3);
            disk.hold_syncs(false);
        }
    }
}
