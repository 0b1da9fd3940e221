//! [`run`]: one seed from the empty disks to the verdict.
//!
//! Formats a cluster, lets all clients work while faults happen, heals, waits until everybody has come to an end, and
//! then compares what is there with the history. Called by the tests, by `make sim` and by `make sim-teeth`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sim::World;
use brindle_client::namespace::create::CreateIn;
use brindle_client::{Client, Ctx};
use brindle_stdx::Seams;
use brindle_types::layout::{ComponentPolicy, EOF};
use brindle_types::{Fault, Ino, LayoutPolicy, StripePolicy};
use brindle_wire::mds::open::Access;
use parking_lot::Mutex;

use crate::aim::Aim;
use crate::cluster::{Options, SimCluster};
use crate::faults::{Chaos, Menu};
use crate::history::History;
use crate::pages::PageCache;
use crate::strangers;
use crate::workload::Life;
use crate::workload::blocks::Blocks;
use crate::workload::brief::{self, Brief};
use crate::workload::locks::{self, Locks};
use crate::workload::log::{self, Log};
use crate::workload::shared::{self, Shared};
use crate::workload::shelf::{self, Shelf};
use crate::workload::stamps::{self, Stamps};
use crate::workload::tree::Tree;

/// Tasks of each client.
const TASKS: usize = 8;
/// Longest time of the work that is left when the last fault was injected.
const WORK_MS: u64 = 300_000;
/// After healing, everything under way ends within this. (Clients that are dead all at once are waited for.)
const LIVENESS_MS: u64 = 30_000 + brindle_mds::hearing::DOUBT_MS;
/// After that the MDT has asked all OSTs for their space, those too that it could not reach for a while.
const SPACE_KNOWN_MS: u64 = 6_000;
/// Longest time for the last looks, each.
const VERDICT_MS: u64 = 120_000;
/// Longest time of everything.
const RUN_MAX_MS: u64 = 3_600_000;
/// Time for which the servers are left alone before their disks are checked. Destroys drain, and each OST
/// asks its MDT once more about every object.
const DRAIN_MS: u64 = 45_000;
/// Stripe size of the shared files.
const STRIPE_BYTES: u32 = 64 << 10;

/// Plan of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Kinds of faults.
    pub menu: Menu,
    /// Aim of the faults and of the work.
    pub aim: Aim,
    /// Number of faults.
    pub faults: usize,
    /// Operations of clients, at least.
    pub operations: usize,
    /// Nodes.
    pub cluster: Options,
    /// Lines of the trace to keep for the report.
    pub lines: usize,
}

impl Default for Plan {
    fn default() -> Plan {
        let cluster = Options::default();
        Plan { menu: Menu::Everything, aim: Aim::General, faults: 20, operations: 2_000, cluster, lines: 0 }
    }
}

impl Plan {
    /// The plan that every seed has by itself: of eleven, three aim at nothing (one only kills, so that the strictest rules
    /// apply, one parts networks, one cuts power), and each other aim has one.
    pub fn of(seed: u64) -> Plan {
        match seed % 11 {
            0 => Plan::general(0),
            1 => Plan::general(1),
            2 => Plan::aimed(Aim::Names, seed),
            3 => Plan::aimed(Aim::Pages, seed),
            4 => Plan::aimed(Aim::Late, seed),
            5 => Plan::aimed(Aim::Rot, seed),
            6 => Plan::aimed(Aim::Room, seed),
            7 => Plan::aimed(Aim::Moves, seed),
            8 => Plan::aimed(Aim::Restarts, seed),
            9 => Plan::aimed(Aim::Full, seed),
            _ => Plan::general(2),
        }
    }

    /// A seed's plan that aims at nothing.
    fn general(seed: u64) -> Plan {
        let menu = match seed % 4 {
            0 => Menu::Kills,
            1 => Menu::Partitions,
            _ => Menu::Everything,
        };
        Plan { menu, ..Plan::default() }
    }

    /// A seed's plan under an aim. Power is cut only where that is aimed at: it excuses much.
    pub fn aimed(aim: Aim, seed: u64) -> Plan {
        let menu = match aim {
            Aim::General => return Plan::general(seed),
            Aim::Names => Menu::Everything,
            Aim::Pages | Aim::Rot => Menu::Partitions,
            Aim::Late | Aim::Room | Aim::Moves | Aim::Restarts | Aim::Full => Menu::Kills,
        };
        Plan { menu, aim, ..Plan::default() }
    }

    /// The plan of a seed in which processes die and connections break, and nothing else.
    pub fn kills(_: u64) -> Plan {
        Plan { menu: Menu::Kills, ..Plan::default() }
    }
}

/// Report of a seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Hash of everything that happened.
    pub trace_hash: u64,
    /// Operations of clients.
    pub operations: usize,
    /// Virtual seconds.
    pub seconds: u64,
    /// Injected faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Violations.
    pub violations: Vec<String>,
    /// The last operations, and the last events if they were kept.
    pub tail: Vec<String>,
}

impl Report {
    /// The report of a run, whose world ends. Of operations and events the last `lines` are kept, and 60 at least.
    pub(crate) fn of(seed: u64, world: &World, history: &History, lines: usize) -> Report {
        let mut tail = history.tail(lines.max(60));
        tail.extend(world.lines());
        let report = Report {
            seed,
            trace_hash: world.trace_hash(),
            operations: history.len(),
            seconds: history.now_ns() / 1_000_000_000,
            faults: history.faults(),
            violations: history.violations(),
            tail,
        };
        world.end();
        report
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.violations.is_empty() { "held" } else { "BROKEN" };
        write!(
            f,
            "seed {}: {verdict}, {} operations in {} virtual seconds, trace {:016x}",
            self.seed, self.operations, self.seconds, self.trace_hash
        )?;
        for violation in &self.violations {
            write!(f, "\n  {violation}")?;
        }
        Ok(())
    }
}

/// Files that the clients' tasks work on.
#[derive(Clone)]
struct Works {
    trees: Vec<Arc<tokio::sync::Mutex<Tree>>>,
    blocks: Blocks,
    log: Log,
    shared: Shared,
    stamps: Stamps,
    shelf: Shelf,
    locks: Locks,
    brief: Brief,
}

/// A run.
#[derive(Clone)]
struct Run {
    aim: Aim,
    cluster: SimCluster,
    history: History,
    works: Works,
    stop: Arc<AtomicBool>,
    /// Lives by client: its incarnation, and the number of its tasks that have not ended.
    lives: Arc<Mutex<BTreeMap<usize, (u64, usize)>>>,
    mounts: Arc<Mutex<BTreeMap<usize, Arc<Client>>>>,
}

/// Runs a seed.
pub fn run(seed: u64, plan: &Plan) -> Report {
    let cluster = SimCluster::new(seed, plan.cluster.clone());
    let world = cluster.world().clone();
    world.keep_lines(plan.lines);
    let history = History::new(world.clone());
    let trees = (0..plan.cluster.clients as u64).map(|n| Tree::new(seed.wrapping_mul(31) + n)).collect();
    let works = Works {
        trees,
        blocks: Blocks::new(plan.aim),
        log: Log::default(),
        shared: Shared::default(),
        stamps: Stamps::default(),
        shelf: Shelf::default(),
        locks: Locks::default(),
        brief: Brief::new(plan.aim),
    };
    let run = Run {
        aim: plan.aim,
        cluster,
        history: history.clone(),
        works,
        stop: Arc::default(),
        lives: Arc::default(),
        mounts: Arc::default(),
    };
    if let Err(stuck) = world.run_until(RUN_MAX_MS, run.all(plan)) {
        history.violation(format!("I6: the run did not end: {stuck:?}"));
    }
    if history.violations().is_empty() {
        crate::check::disks(&run.cluster, &history);
    }
    run.mounts.lock().clear();
    Report::of(seed, &world, &history, plan.lines)
}

impl Run {
    fn driver(&self) -> Seams {
        self.cluster.world().node("driver").seams
    }

    async fn all(&self, plan: &Plan) {
        let seams = self.driver();
        if seams.timeout_ms(VERDICT_MS, self.prepare()).await.is_none() {
            return self.history.violation("I6: the cluster did not come up".into());
        }
        let chaos = Chaos::new(self.cluster.clone(), self.history.clone(), self.works.blocks.clone());
        if plan.aim == Aim::Full {
            chaos.leave_little_room().await;
        }
        for index in 0..plan.cluster.clients {
            self.begin_life(index, 1);
        }
        let this = self.clone();
        seams.spawn("faults.supervise", chaos.clone().supervise(move |name| this.revive(name)));
        chaos.run(plan.menu, plan.aim, plan.faults).await;
        let working = async {
            while self.history.len() < plan.operations {
                seams.sleep_ms(50).await;
            }
        };
        if seams.timeout_ms(WORK_MS, working).await.is_none() {
            let done = self.history.len();
            let wanted = plan.operations;
            self.history.violation(format!(
                "I6: {done} operations, {wanted} wanted, {} s after the last fault",
                WORK_MS / 1000
            ));
        }
        if seams.timeout_ms(LIVENESS_MS, chaos.heal()).await.is_none() {
            for name in self.cluster.servers() {
                if let Some(fault) = self.cluster.start_fault(&name) {
                    self.history.violation(format!("I6: {name} does not start: {fault:?}"));
                }
            }
            return self.history.violation("I6: not everything is up after healing".into());
        }
        self.stop.store(true, Ordering::Relaxed);
        self.wait_for_ends(&seams).await;
        chaos.make_room();
        seams.sleep_ms(SPACE_KNOWN_MS).await;
        let mounts: Vec<Arc<Client>> = self.mounts.lock().values().cloned().collect();
        strangers::try_all(&self.cluster, &mounts, &self.history).await;
        if self.history.violations().is_empty() {
            let verdict = async {
                if let Err(fault) = self.verdict().await {
                    self.history.violation(format!("I1: the last look failed: {fault:?}"));
                }
            };
            if seams.timeout_ms(VERDICT_MS, verdict).await.is_none() {
                self.history.violation("I6: the last look does not end".into());
            }
        }
        self.unmount_all(&seams).await;
    }

    /// Makes what the clients work on, durably.
    async fn prepare(&self) {
        let node = self.cluster.world().node("setup");
        let client = SimCluster::mount(&node).await;
        let life = self.life(0, 0, "setup", client.clone());
        if let Err(fault) = self.make(&life).await {
            self.history.violation(format!("I9: cannot prepare: {fault:?}"));
        }
        client.unmount().await;
    }

    async fn make(&self, life: &Life) -> Result<(), Fault> {
        let (client, ctx) = (&life.client, &life.ctx);
        let root = client.root();
        for n in 0..self.works.trees.len() {
            client.mkdir(ctx, root, format!("t{n}").as_bytes(), 0o755, 0).await?;
        }
        let data = client.mkdir(ctx, root, b"data", 0o755, 0).await?.ino;
        client.set_stripe(ctx, data, Some(growing())).await?;
        self.works.blocks.fill(life, data).await?;
        client.mkdir(ctx, root, brief::DIR.as_bytes(), 0o755, 0).await?;
        let above = client.mkdir(ctx, root, stamps::DIR.as_bytes(), 0o755, 0).await?.ino;
        for _ in 0..self.works.trees.len() {
            self.works.stamps.make(life, above).await?;
        }
        let dir = client.mkdir(ctx, root, shelf::DIR.as_bytes(), 0o755, 0).await?.ino;
        self.works.shelf.make(life, dir).await?;
        let dir = client.mkdir(ctx, root, shared::DIR.as_bytes(), 0o755, 0).await?.ino;
        let files = [(dir, shared::TOKENS[0]), (dir, "anchor"), (root, log::FILE), (root, locks::FILE)];
        for (parent, name) in files {
            make_file(client, ctx, parent, name).await?;
        }
        client.fsync_dir(root).await
    }

    fn life(&self, index: usize, number: u64, node: &str, client: Arc<Client>) -> Life {
        let pages = PageCache::default();
        client.set_cache(Arc::new(pages.clone()));
        Life {
            index,
            number,
            node: self.cluster.world().node(node),
            ctx: Ctx::root(),
            client,
            pages,
            history: self.history.clone(),
            stop: self.stop.clone(),
        }
    }

    fn revive(&self, name: &str) {
        let index: usize = name[1..].parse().expect("clients are called c and a number");
        let number = self.lives.lock().get(&index).map_or(0, |(number, _)| *number);
        self.history.unsent(name, number);
        self.cluster.world().restart(name);
        self.begin_life(index, number + 1);
    }

    /// Mounts on a client's node and lets its tasks work.
    fn begin_life(&self, index: usize, number: u64) {
        let only_brief = self.aim == Aim::Full;
        self.lives.lock().insert(index, (number, if only_brief { 1 } else { TASKS }));
        let name = format!("c{index}");
        let node = self.cluster.world().node(&name);
        let this = self.clone();
        node.seams.clone().spawn("mount", async move {
            let client = SimCluster::mount(&node).await;
            this.mounts.lock().insert(index, client.clone());
            let life = this.life(index, number, &name, client);
            let works = this.works.clone();
            this.task("brief", &life, works.brief.run(life.clone()));
            if only_brief {
                return;
            }
            let tree = works.trees[index].clone();
            this.task("tree", &life, Tree::run(tree, life.clone()));
            this.task("blocks", &life, works.blocks.run(life.clone()));
            this.task("log", &life, works.log.run(life.clone()));
            this.task("shared", &life, works.shared.run(life.clone()));
            this.task("stamps", &life, works.stamps.run(life.clone()));
            this.task("shelf", &life, works.shelf.run(life.clone(), works.trees.len()));
            this.task("locks", &life, works.locks.run(life.clone()));
        });
    }

    fn task(&self, name: &'static str, life: &Life, work: impl Future<Output = ()> + Send + 'static) {
        let (lives, index, number) = (self.lives.clone(), life.index, life.number);
        life.node.seams.spawn(name, async move {
            work.await;
            if let Some((current, left)) = lives.lock().get_mut(&index)
                && *current == number
            {
                *left -= 1;
            }
        });
    }

    /// Waits until every task has come to an end by itself.
    async fn wait_for_ends(&self, seams: &Seams) {
        let ended = async {
            while self.lives.lock().values().any(|(_, left)| *left > 0) {
                seams.sleep_ms(50).await;
            }
        };
        if seams.timeout_ms(LIVENESS_MS, ended).await.is_some() {
            return;
        }
        let lives = self.lives.lock().clone();
        let alive = |client: &str, number: u64| {
            lives.iter().any(|(index, (n, _))| format!("c{index}") == client && *n == number)
        };
        for entry in self.history.pending() {
            if alive(&entry.client, entry.life) {
                self.history.violation(format!(
                    "I6: still not answered {} s after healing: {} of {}, asked at {:.3} s",
                    LIVENESS_MS / 1000,
                    entry.what,
                    entry.client,
                    entry.invoke_ns as f64 / 1e9
                ));
            }
        }
        self.history.violation(format!("I6: tasks left after healing (life, tasks): {lives:?}"));
    }

    /// Compares the files with the history.
    async fn verdict(&self) -> Result<(), Fault> {
        let node = self.cluster.world().node("witness");
        let client = SimCluster::mount(&node).await;
        let life = self.life(99, 0, "witness", client.clone());
        let cuts = self.history.cuts();
        self.works.blocks.read_all(&life).await?;
        // The MDT may not have heard yet that there is room again.
        if self.aim != Aim::Full {
            self.works.blocks.move_all(&life).await?;
            self.works.blocks.read_all(&life).await?;
        }
        let mut wrong = self.works.blocks.check(&self.history, &cuts);
        wrong.extend(self.works.log.check(&life, &cuts).await?);
        wrong.extend(self.works.shared.check(&life, &cuts).await?);
        wrong.extend(self.works.locks.check());
        wrong.extend(self.works.brief.check(&life, &cuts).await?);
        wrong.into_iter().for_each(|text| self.history.violation(text));
        client.unmount().await;
        Ok(())
    }

    async fn unmount_all(&self, seams: &Seams) {
        let mounts = std::mem::take(&mut *self.mounts.lock());
        for client in mounts.into_values() {
            client.unmount().await;
        }
        seams.sleep_ms(DRAIN_MS).await;
    }
}

async fn make_file(client: &Client, ctx: &Ctx, parent: Ino, name: &str) -> Result<(), Fault> {
    let access = Access { read: true, write: true, truncate: false, execute: false };
    let name = name.as_bytes();
    let create = CreateIn { parent, name, mode: 0o644, umask: 0, exclusive: true, access };
    let opened = client.create(ctx, create).await?.opened;
    client.fsync(opened.handle).await?;
    client.close(opened.handle).await
}

/// A layout of three components, so small that the files of a run lie in all of them. For files whose writes are checked
/// block by block: one that meets several objects may be done in part.
fn growing() -> LayoutPolicy {
    let unit = u64::from(STRIPE_BYTES);
    let part = |end_bytes, count| {
        let stripe =
            StripePolicy { count: Some(count), size_bytes: Some(STRIPE_BYTES), ..StripePolicy::default() };
        ComponentPolicy { end_bytes, stripe }
    };
    let components = vec![part(unit, 1), part(2 * unit, -1), part(EOF, -1)];
    LayoutPolicy { components, ..LayoutPolicy::default() }
}
