//! The driver of faults: draws them from the seed, and brings everything back.
//!
//! Servers and clients that went down are restarted by [`Chaos::supervise`], whatever took them down. Invariant: a power cut is in the
//! history before any process runs on the disks that it left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brindle_stdx::Seams;
use parking_lot::Mutex;

use brindle_objects::format::{BLOCK, data_pos};
use brindle_objects::names;

use crate::aim::Aim;
use crate::cluster::{SimCluster, TARGET_DIR};
use crate::history::History;
use crate::sim::{Crash, Direction, DiskOp, LIMITED_BYTES};
use crate::workload::blocks::Blocks;

/// Interval at which the supervisor looks.
const LOOK_MS: u64 = 50;
/// Longest time that a server stays down.
const DOWN_MAX_MS: u64 = 5_000;
/// Longest time that a client stays down.
const CLIENT_DOWN_MAX_MS: u64 = 3_000;
/// Longest pause between two faults, unless more are close together.
const PAUSE_MAX_MS: u64 = 4_500;
/// A partition this long or longer outlasts a lease.
const LONG_CUT_MS: u64 = 7_000;
/// Longest time for which requests are held up before their connection breaks.
const HELD_UP_MAX_MS: u64 = 700;
/// Longest time after which they come all the same.
const LATE_MAX_MS: u64 = 3_000;
/// Shortest time for which a server stands still, longer than a lease; twice as long at most.
const STILL_MIN_MS: u64 = 7_000;
/// Longest wait for the MDT before one more of its faults.
const MDT_WAIT_MS: u64 = 15_000;
/// Disk operations after which a planned crash comes, at most.
const CRASH_POINT_MAX: u64 = 60;
/// New time of a planned crash when no more crashes are wanted.
const NEVER: u64 = u64::MAX / 2;

/// Node of the MDT.
const MDT: &str = "mdt0";

/// Kinds of faults that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Menu {
    /// No faults.
    Nothing,
    /// Processes die, connections break, disks are slow: nothing that was acknowledged may be lost.
    Kills,
    /// Also, networks part and clients die.
    Partitions,
    /// Also, power fails and disks refuse to sync.
    Everything,
}

/// Nodes that are down, since when, and until when.
#[derive(Default)]
struct Down {
    nodes: BTreeMap<String, (u64, u64)>,
    /// Cuts of each disk that are in the history already; a planned one comes when it comes.
    noted: BTreeMap<String, u64>,
    /// Time at which each server's service was last known to run.
    last_up_ns: BTreeMap<String, u64>,
}

/// Most bytes that a full OST has left for users.
const ROOM_LEFT_MAX_BYTES: u64 = 128 << 10;

/// The driver. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct Chaos {
    cluster: SimCluster,
    history: History,
    down: Arc<Mutex<Down>>,
    /// OSTs without room.
    full: Arc<Mutex<BTreeSet<String>>>,
    /// Blocks in which bits can flip without ending the work of a client.
    blocks: Blocks,
    /// The driver's own node, which never goes down.
    seams: Seams,
}

impl Chaos {
    /// Faults for a cluster.
    pub fn new(cluster: SimCluster, history: History, blocks: Blocks) -> Chaos {
        let seams = cluster.world().node("driver").seams;
        Chaos { cluster, history, down: Arc::default(), full: Arc::default(), blocks, seams }
    }

    /// Restarts nodes that are down; clients with `revive`. Never ends.
    pub async fn supervise(self, revive: impl Fn(&str)) {
        loop {
            self.seams.sleep_ms(LOOK_MS).await;
            self.cluster.bury();
            let now_ns = self.history.now_ns();
            for name in self.cluster.servers() {
                // A server that stands still syncs nothing either.
                if self.cluster.is_up(&name) && !self.cluster.world().is_still(&name) {
                    self.down.lock().last_up_ns.insert(name.clone(), now_ns);
                }
                if self.is_due(&name, now_ns, DOWN_MAX_MS) {
                    self.cluster.restart(&name);
                    tracing::info!(node = %name, "restarted");
                }
            }
            for name in self.cluster.clients() {
                if self.is_due(&name, now_ns, CLIENT_DOWN_MAX_MS) {
                    revive(&name);
                }
            }
        }
    }

    /// Whether a node is down and its time has come. The first look notes what took it down.
    fn is_due(&self, name: &str, now_ns: u64, longest_ms: u64) -> bool {
        if self.cluster.world().is_running(name) {
            return false;
        }
        let known = self.down.lock().nodes.get(name).copied();
        match known {
            Some((_, until_ns)) => {
                let due = now_ns >= until_ns;
                if due {
                    self.down.lock().nodes.remove(name);
                }
                due
            }
            None => {
                let cuts = self.cluster.world().disk(name).cuts();
                if cuts > self.down.lock().noted.get(name).copied().unwrap_or(0) {
                    self.note_cut(name, cuts);
                }
                let until_ns = now_ns + self.choose(longest_ms) * 1_000_000;
                self.down.lock().nodes.insert(name.to_owned(), (now_ns, until_ns));
                false
            }
        }
    }

    fn choose(&self, n: u64) -> u64 {
        self.cluster.world().choose(n)
    }

    fn pick<'a>(&self, names: &'a [String]) -> &'a str {
        &names[self.choose(names.len() as u64) as usize]
    }

    /// Injects `count` faults from `menu`, most of them those that are aimed at.
    pub async fn run(&self, menu: Menu, aim: Aim, count: usize) {
        for _ in 0..count {
            if menu == Menu::Nothing {
                return;
            }
            let pause_ms = if self.choose(5) == 0 { 200 } else { PAUSE_MAX_MS };
            self.seams.sleep_ms(1 + self.choose(pause_ms)).await;
            match aim {
                Aim::General | Aim::Full => self.one(menu),
                Aim::Rot => self.rot(),
                _ if self.choose(4) == 0 => self.one(menu),
                Aim::Names => self.names().await,
                Aim::Restarts => self.restarts().await,
                Aim::Pages => self.deafen(),
                Aim::Late => self.late(),
                Aim::Room => self.fill_up(),
                Aim::Moves => {
                    let client = self.pick(&self.cluster.clients()).to_owned();
                    self.break_late(client, self.pick(&self.cluster.osts()).to_owned());
                }
            }
        }
    }

    /// The MDT goes down while it works.
    async fn names(&self) {
        self.while_the_mdt_works().await;
        match self.choose(5) {
            0..3 => {
                self.history.fault("power cut of the MDT");
                self.power_cut(MDT);
            }
            3 => self.cut_between_operations(MDT),
            _ => self.kill_mdt(),
        }
    }

    /// OSTs go away, so that buffers fill, and a little later the MDT.
    async fn restarts(&self) {
        self.while_the_mdt_works().await;
        for ost in self.cluster.osts() {
            if self.choose(2) == 0 {
                self.history.fault("kill an OST before the MDT");
                self.cluster.world().kill(&ost);
            }
        }
        self.seams.sleep_ms(self.choose(600)).await;
        self.kill_mdt();
    }

    /// Waits until the MDT is up, and a while longer.
    async fn while_the_mdt_works(&self) {
        let working = async {
            while !self.cluster.is_up(MDT) {
                self.seams.sleep_ms(LOOK_MS).await;
            }
        };
        // The end of the run finds an MDT that does not come up.
        let _ = self.seams.timeout_ms(MDT_WAIT_MS, working).await;
        self.seams.sleep_ms(self.choose(2_500)).await;
    }

    fn kill_mdt(&self) {
        self.history.fault("kill the MDT");
        self.cluster.world().kill(MDT);
    }

    /// A client does not hear a server for a while.
    fn deafen(&self) {
        self.history.fault("client hears a server late");
        self.history.excuse(|e| e.silence = true);
        let (clients, servers) = (self.cluster.clients(), self.cluster.servers());
        let from = if self.choose(3) > 0 { MDT } else { self.pick(&servers[2..]) }.to_owned();
        let to = self.pick(&clients).to_owned();
        self.cluster.world().partition(&from, &to, Direction::OneWay);
        self.heal_after(vec![(from, to)], 1 + self.choose(LATE_MAX_MS));
    }

    /// Requests come late: sent again long ago, or of a session that has been ended, or of a client that is dead.
    fn late(&self) {
        let client = self.pick(&self.cluster.clients()).to_owned();
        match self.choose(6) {
            0..2 => self.break_late(client, self.pick(&self.cluster.osts()).to_owned()),
            2 => {
                self.history.fault("late requests of an ended session");
                self.history.excuse(|e| e.silence = true);
                let held_ms = LONG_CUT_MS + self.choose(3_000);
                for server in self.cluster.servers() {
                    self.hold_up(&client, &server, held_ms);
                }
            }
            3 => self.kill_late(client),
            _ => self.outlive(&client),
        }
    }

    /// Cuts a client off from all servers until its session has ended, while OSTs do not hear of that; then OSTs get its earlier
    /// messages.
    fn outlive(&self, client: &str) {
        self.history.fault("late requests where no fence is known");
        self.history.excuse(|e| e.silence = true);
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let osts = self.cluster.osts();
        let held: Vec<(String, String)> = osts.iter().map(|ost| pair(client, ost)).collect();
        held.iter().for_each(|(from, to)| self.cluster.world().partition(from, to, Direction::OneWay));
        let mut cut: Vec<(String, String)> = osts.iter().map(|ost| pair(MDT, ost)).collect();
        cut.push(pair(client, MDT));
        cut.iter().for_each(|(a, b)| self.cluster.world().partition(a, b, Direction::Both));
        let held_ms = LONG_CUT_MS + 1_500 + self.choose(3_000);
        self.heal_after(held, held_ms);
        self.heal_after(cut, held_ms + self.choose(LATE_MAX_MS));
    }

    fn kill_late(&self, client: String) {
        self.history.fault("client killed while its requests are held up");
        let osts = self.cluster.osts();
        let ways: Vec<(String, String)> = osts.into_iter().map(|ost| (client.clone(), ost)).collect();
        for (from, to) in &ways {
            self.cluster.world().partition(from, to, Direction::OneWay);
        }
        self.heal_after(ways, LONG_CUT_MS + self.choose(4_000));
        let (world, seams) = (self.cluster.world().clone(), self.seams.clone());
        let held_ms = self.choose(HELD_UP_MAX_MS);
        self.seams.spawn("faults.kill", async move {
            seams.sleep_ms(held_ms).await;
            world.kill(&client);
        });
    }

    fn break_late(&self, client: String, server: String) {
        self.history.fault("late requests of a broken connection");
        self.hold_up(&client, &server, 1 + self.choose(HELD_UP_MAX_MS));
    }

    /// Requests are held up, their connection breaks at the client's end, and they come when it has long sent them again.
    fn hold_up(&self, client: &str, server: &str, held_ms: u64) {
        let world = self.cluster.world().clone();
        world.partition(client, server, Direction::OneWay);
        let late_ms = self.choose(LATE_MAX_MS);
        let (seams, client, server) = (self.seams.clone(), client.to_owned(), server.to_owned());
        self.seams.spawn("faults.break late", async move {
            seams.sleep_ms(held_ms).await;
            world.break_late(&client, &server, late_ms);
            world.heal_between(&client, &server);
        });
    }

    /// A bit flips; or somebody sends again, or waits. No OST goes down: what a crash may have torn is summed anew by its
    /// next start, and nobody can tell rot from that.
    fn rot(&self) {
        let (servers, clients) = (self.cluster.servers(), self.cluster.clients());
        match self.choose(8) {
            0 => self.kill_mdt(),
            1 => self.break_connections(&servers, &clients),
            2 => self.slow_sync(&servers),
            _ => self.flip(),
        }
    }

    /// Makes all OSTs so small that the work fills them: beyond the space that they keep back, they have the
    /// space that they may promise, and little more.
    pub async fn leave_little_room(&self) {
        for name in self.cluster.osts() {
            let kept_bytes = LIMITED_BYTES / 20 + LIMITED_BYTES / 64;
            let room_bytes = kept_bytes + self.choose(ROOM_LEFT_MAX_BYTES);
            self.cluster.world().disk(&name).set_room_bytes(Some(room_bytes));
        }
        // The wait lets them stop trusting earlier looks at their disks.
        self.seams.sleep_ms(1_000).await;
    }

    /// Takes all space of an OST for a while. At least one OST always keeps space: a client that is told that no OST has space is told
    /// wrong.
    fn fill_up(&self) {
        let osts = self.cluster.osts();
        let free = |name: &&String| !self.full.lock().contains(*name);
        let candidates: Vec<&String> = osts.iter().filter(free).collect();
        if candidates.len() < 2 {
            return;
        }
        self.history.fault("an OST is full");
        let name = candidates[self.choose(candidates.len() as u64) as usize].clone();
        let disk = self.cluster.world().disk(&name);
        // The space is what the OST keeps back, and little more.
        disk.set_room_bytes(Some(LIMITED_BYTES / 20 + self.choose(ROOM_LEFT_MAX_BYTES)));
        self.full.lock().insert(name.clone());
        let (seams, full, ms) = (self.seams.clone(), self.full.clone(), 500 + self.choose(6_000));
        self.seams.spawn("faults.room again", async move {
            seams.sleep_ms(ms).await;
            disk.set_room_bytes(None);
            full.lock().remove(&name);
        });
    }

    fn flip(&self) {
        self.history.fault("bit rot");
        let Some((ost, object, offset)) = self.blocks.victim(|n| self.choose(n)) else { return };
        self.history.rot(object, offset / BLOCK);
        let path = names::path(TARGET_DIR, &object);
        self.cluster.world().disk(&self.cluster.osts()[ost as usize]).rot(&path, data_pos(offset));
    }

    fn one(&self, menu: Menu) {
        let kinds = match menu {
            Menu::Nothing => return,
            Menu::Kills => 10,
            Menu::Partitions => 15,
            Menu::Everything => 20,
        };
        let servers = self.cluster.servers();
        let clients = self.cluster.clients();
        let world = self.cluster.world();
        match self.choose(kinds) {
            0..3 => {
                self.history.fault("kill a server");
                world.kill(self.pick(&servers));
            }
            3 => {
                self.history.fault("kill all servers");
                servers.iter().for_each(|name| world.kill(name));
            }
            4 => self.stand_still(&servers),
            5 => {
                self.history.fault("kill between two disk operations");
                world.crash_after(self.pick(&servers), self.choose(CRASH_POINT_MAX), Crash::Kill);
            }
            6 => self.break_connections(&servers, &clients),
            7 => self.slow_sync(&servers),
            8 => {
                self.history.fault("wall clock jump");
                let ms = self.choose(7_200_000) as i64 - 3_600_000;
                let node = if self.choose(2) == 0 { self.pick(&servers) } else { self.pick(&clients) };
                world.jump_wall(node, ms);
            }
            9 => self.break_late(self.pick(&clients).to_owned(), self.pick(&servers[1..]).to_owned()),
            10..13 => self.partition(&servers, &clients),
            13 => self.isolate(&clients),
            14 => {
                self.history.fault("kill a client");
                world.kill(self.pick(&clients));
            }
            15..17 => {
                self.history.fault("power cut of a server");
                self.power_cut(self.pick(&servers[1..]));
            }
            17 => {
                self.history.fault("power cut of all servers");
                servers.iter().for_each(|name| self.power_cut(name));
            }
            18 => self.cut_between_operations(self.pick(&servers[1..])),
            _ => {
                self.history.fault("EIO at a sync of an OST");
                self.history.excuse(|e| e.data_loss = true);
                world.disk(self.pick(&self.cluster.osts())).fail_next(DiskOp::Sync, 1 + self.choose(3));
            }
        }
    }

    fn cut_between_operations(&self, name: &str) {
        self.history.fault("power cut between two disk operations");
        self.history.excuse(|e| {
            e.silence = true;
            e.data_loss = true;
            e.name_loss = true;
        });
        self.cluster.world().crash_after(name, self.choose(CRASH_POINT_MAX), Crash::PowerCut);
    }

    fn break_connections(&self, servers: &[String], clients: &[String]) {
        self.history.fault("connection break");
        let (from, to) = self.pair(servers, clients);
        self.cluster.world().break_connections(&from, &to);
    }

    /// A client and a server, or the MDT and an OST.
    fn pair(&self, servers: &[String], clients: &[String]) -> (String, String) {
        if self.choose(4) == 0 {
            return ("mdt0".to_owned(), self.pick(&servers[2..]).to_owned());
        }
        (self.pick(clients).to_owned(), self.pick(&servers[1..]).to_owned())
    }

    /// A server's process is stopped for longer than a lease, and goes on: nobody notices, except that it took long.
    fn stand_still(&self, servers: &[String]) {
        self.history.fault("a server stands still");
        let name = if self.choose(2) == 0 { MDT } else { self.pick(servers) };
        self.cluster.world().stand_still(name, STILL_MIN_MS + self.choose(STILL_MIN_MS));
    }

    fn slow_sync(&self, servers: &[String]) {
        self.history.fault("slow sync");
        let name = self.pick(servers).to_owned();
        let (world, seams) = (self.cluster.world().clone(), self.seams.clone());
        let disk = world.disk(&name);
        disk.set_sync_ms(200, 200 + self.choose(1_500));
        let ms = 500 + self.choose(3_000);
        self.seams.spawn("faults.fast again", async move {
            seams.sleep_ms(ms).await;
            disk.set_sync_ms(0, 3);
        });
    }

    fn partition(&self, servers: &[String], clients: &[String]) {
        let (mut from, mut to) = self.pair(servers, clients);
        if self.choose(2) == 0 {
            std::mem::swap(&mut from, &mut to);
        }
        let direction = if self.choose(2) == 0 { Direction::Both } else { Direction::OneWay };
        let ms = if self.choose(2) == 0 { self.choose(3_000) } else { LONG_CUT_MS + self.choose(7_000) };
        self.history.fault(match (direction, ms < LONG_CUT_MS) {
            (Direction::Both, true) => "short partition",
            (Direction::OneWay, true) => "short one-way partition",
            (Direction::Both, false) => "long partition",
            (Direction::OneWay, false) => "long one-way partition",
        });
        self.history.excuse(|e| e.silence = true);
        self.cluster.world().partition(&from, &to, direction);
        self.heal_after(vec![(from, to)], ms);
    }

    fn isolate(&self, clients: &[String]) {
        self.history.fault("isolated client");
        self.history.excuse(|e| e.silence = true);
        let client = self.pick(clients).to_owned();
        let servers = self.cluster.servers();
        for server in &servers {
            self.cluster.world().partition(&client, server, Direction::Both);
        }
        let ways = servers.into_iter().map(|server| (client.clone(), server)).collect();
        self.heal_after(ways, LONG_CUT_MS + self.choose(6_000));
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

    fn power_cut(&self, name: &str) {
        let cuts = self.cluster.world().disk(name).cuts();
        self.note_cut(name, cuts + 1);
        self.cluster.world().power_cut(name);
    }

    /// Notes that writes may be gone that were unsynced when the service last ran; `cuts` is the number of
    /// this cut of the disk.
    fn note_cut(&self, name: &str, cuts: u64) {
        let now_ns = self.history.now_ns();
        let mut down = self.down.lock();
        let last_up_ns = down.last_up_ns.get(name).copied().unwrap_or(0).min(now_ns);
        down.noted.insert(name.to_owned(), cuts);
        drop(down);
        self.history.cut(name, last_up_ns, now_ns);
    }

    /// Room for everything again. Not before the work has come to its end: what waits for room is to be told that there is none.
    pub fn make_room(&self) {
        for name in self.cluster.osts() {
            self.cluster.world().disk(&name).set_room_bytes(None);
        }
    }

    /// Ends all faults but want of room, and waits until everything is up.
    pub async fn heal(&self) {
        let world = self.cluster.world();
        world.heal();
        for name in self.cluster.servers() {
            let disk = world.disk(&name);
            disk.die_after(NEVER);
            disk.fail_next(DiskOp::Sync, 0);
            disk.set_sync_ms(0, 3);
        }
        loop {
            let servers = self.cluster.servers();
            if servers.iter().all(|name| self.cluster.is_up(name))
                && self.cluster.clients().iter().all(|name| world.is_running(name))
            {
                return;
            }
            self.seams.sleep_ms(LOOK_MS).await;
        }
    }
}
