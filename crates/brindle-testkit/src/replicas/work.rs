//! [`Work`]: clients that make and remove names, look up each other's, and what of it must be there at the end.
//!
//! Every name is new, so that an operation whose outcome is not known spoils nothing. Lookups go past all caches of the client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_client::{Client, Ctx, MountConfig, Switches};
use brindle_types::{Code, Fault, Ino};
use parking_lot::Mutex;

use super::cluster::{CLIENTS, MGS, SetCluster};
use super::rules::Witness;
use crate::cluster::{fs_name, nid};
use crate::history::{End, History};
use crate::sim::NodeSeams;

/// Pause between operations of a task, at most.
const PAUSE_MAX_MS: u64 = 120;
/// Pause before a mount is tried again.
const MOUNT_AGAIN_MS: u64 = 500;
/// One operation in so many is a sync, one a removal.
const SYNC_ONE_IN: u64 = 12;
const REMOVE_ONE_IN: u64 = 6;
/// Tasks of each client.
const TASKS: usize = 2;
/// Entries of a listing that are asked for at once.
const LIST_BATCH: u32 = 256;

/// Times of an acknowledged operation.
#[derive(Clone, Copy)]
struct Acked {
    /// Time of the request.
    asked_ns: u64,
    /// Time of the answer.
    answered_ns: u64,
}

/// A name that a client has made, or tried to.
#[derive(Clone, Copy, Default)]
struct Name {
    made: Option<Acked>,
    /// A removal was asked for.
    removes: bool,
    removed: Option<Acked>,
}

/// Names in the directory of one client.
#[derive(Default)]
struct Names {
    names: BTreeMap<u64, Name>,
    next: u64,
}

struct Shared {
    cluster: SetCluster,
    witness: Arc<Witness>,
    dirs: Vec<Ino>,
    names: Vec<Mutex<Names>>,
    /// Acknowledged syncs.
    syncs: Mutex<Vec<Acked>>,
    stop: AtomicBool,
    /// Lives by client: its incarnation, and the number of its tasks that have not ended.
    lives: Mutex<BTreeMap<usize, (u64, usize)>>,
}

/// See the module. Cloning gives another handle to the same work.
#[derive(Clone)]
pub struct Work(Arc<Shared>);

/// Mounts on a node, trying until that succeeds.
async fn mount(node: &NodeSeams) -> Arc<Client> {
    loop {
        let config = MountConfig {
            mgs: vec![nid(MGS)],
            fs: fs_name(),
            host: node.name.clone(),
            mount: "/mnt".into(),
            // Lookups are to ask the MDT each time.
            switches: Switches { readdir_prefetch: false, ..Switches::default() },
            sync: false,
            failout_ms: None,
        };
        let tasks = node.seams.tasks.clone();
        match Client::mount(config, node.seams.clone(), tasks, node.transport.clone()).await {
            Ok(client) => return client,
            Err(fault) => tracing::warn!(node = %node.name, "cannot mount: {fault}"),
        }
        node.seams.sleep_ms(MOUNT_AGAIN_MS).await;
    }
}

fn name_of(number: u64) -> String {
    format!("d{number}")
}

impl Work {
    /// Makes a directory for each client, durably, and lets them work.
    pub async fn begin(cluster: &SetCluster, witness: &Arc<Witness>) -> Result<Work, Fault> {
        let node = cluster.world().node("setup");
        let client = mount(&node).await;
        let mut dirs = Vec::new();
        for name in CLIENTS {
            dirs.push(client.mkdir(&Ctx::root(), client.root(), name.as_bytes(), 0o755, 0).await?.ino);
        }
        client.fsync_dir(client.root()).await?;
        client.unmount().await;
        let work = Work(Arc::new(Shared {
            cluster: cluster.clone(),
            witness: witness.clone(),
            names: dirs.iter().map(|_| Mutex::default()).collect(),
            dirs,
            syncs: Mutex::default(),
            stop: AtomicBool::new(false),
            lives: Mutex::default(),
        }));
        (0..CLIENTS.len()).for_each(|index| work.begin_life(index, 1));
        Ok(work)
    }

    /// A client that died begins anew.
    pub fn revive(&self, name: &str) {
        let Some(index) = CLIENTS.iter().position(|client| *client == name) else { return };
        let number = self.0.lives.lock().get(&index).map_or(0, |(number, _)| *number);
        self.0.cluster.world().restart(name);
        self.begin_life(index, number + 1);
    }

    fn begin_life(&self, index: usize, number: u64) {
        self.0.lives.lock().insert(index, (number, TASKS));
        let node = self.0.cluster.world().node(CLIENTS[index]);
        let work = self.clone();
        node.seams.clone().spawn("mount", async move {
            let client = mount(&node).await;
            let life = Life { work, index, number, node: node.clone(), client };
            let (maker, reader) = (life.clone(), life);
            node.seams.spawn("work.make", async move { maker.make().await });
            node.seams.spawn("work.read", async move { reader.read().await });
        });
    }

    /// Tasks end behind their present operations.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// Tasks that have not ended.
    pub fn left(&self) -> usize {
        self.0.lives.lock().values().map(|(_, left)| *left).sum()
    }

    /// Waits until all tasks have ended.
    pub async fn until_ended(&self) {
        let seams = self.0.cluster.world().node("driver").seams;
        while self.left() > 0 {
            seams.sleep_ms(PAUSE_MAX_MS).await;
        }
    }

    /// Compares what is there with what was acknowledged.
    pub async fn verdict(&self, witness: &Witness) -> Result<(), Fault> {
        let node = self.0.cluster.world().node("witness");
        let client = mount(&node).await;
        client.fsync_dir(client.root()).await?;
        for (index, dir) in self.0.dirs.iter().enumerate() {
            let found = listed(&client, *dir).await?;
            let names = self.0.names[index].lock();
            for (number, name) in &names.names {
                let is_there = found.contains(&name_of(*number));
                if let Some(why) = self.wrong(name, is_there, witness) {
                    let text = format!("R1: {}/{} {why}", CLIENTS[index], name_of(*number));
                    witness.history().violation(text);
                }
            }
        }
        client.unmount().await;
        Ok(())
    }

    /// What is wrong about a name that is there, or is not.
    fn wrong(&self, name: &Name, is_there: bool, witness: &Witness) -> Option<String> {
        let (acked, what) = match (name.removed, name.made, is_there) {
            (Some(removed), _, true) => (removed, "is there, and its removal was acknowledged"),
            (None, Some(made), false) if !name.removes => (made, "is not there, and was acknowledged"),
            _ => return None,
        };
        let syncs = self.0.syncs.lock();
        let rose_ns = witness.term_rose_at(acked.asked_ns);
        let covers = |sync: &Acked| {
            sync.asked_ns >= acked.answered_ns && rose_ns.is_none_or(|rose_ns| sync.answered_ns < rose_ns)
        };
        let is_synced = syncs.iter().any(covers);
        let at = acked.answered_ns as f64 / 1e9;
        match (is_synced && !self.0.cluster.has_liar(), rose_ns.is_some()) {
            (true, _) => Some(format!("{what} at {at:.3} s, and synced")),
            (false, false) => Some(format!("{what} at {at:.3} s")),
            (false, true) => None,
        }
    }
}

/// All names in a directory.
async fn listed(client: &Client, dir: Ino) -> Result<Vec<String>, Fault> {
    let (mut names, mut after) = (Vec::new(), 0);
    loop {
        let page = client.readdir(dir, after, LIST_BATCH, false).await?;
        let Some(last) = page.entries.last() else { return Ok(names) };
        after = last.cookie;
        names.extend(page.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
        if page.end {
            return Ok(names);
        }
    }
}

/// An incarnation of a client.
#[derive(Clone)]
struct Life {
    work: Work,
    index: usize,
    number: u64,
    node: NodeSeams,
    client: Arc<Client>,
}

impl Life {
    fn history(&self) -> &History {
        self.work.0.witness.history()
    }

    fn choose(&self, n: u64) -> u64 {
        self.node.seams.rng.next_u64() % n
    }

    async fn pause(&self) {
        self.node.seams.sleep_ms(1 + self.choose(PAUSE_MAX_MS)).await;
    }

    fn goes_on(&self) -> bool {
        !self.work.0.stop.load(Ordering::Relaxed)
    }

    fn ended(&self) {
        if let Some((number, left)) = self.work.0.lives.lock().get_mut(&self.index)
            && *number == self.number
        {
            *left -= 1;
        }
    }

    /// Runs an operation with its notes; its times where it was acknowledged.
    async fn asked<T>(
        &self,
        what: String,
        op: impl Future<Output = Result<T, Fault>>,
    ) -> (Result<T, Fault>, Acked) {
        let (history, asked_ns) = (self.history(), self.history().now_ns());
        let id = history.begin(&self.node.name, self.number, what);
        let done = op.await;
        let end = match &done {
            Ok(_) => End::Ok,
            Err(fault) if crate::fs::is_posix(fault.code) => End::Fail,
            Err(_) => End::Unknown,
        };
        history.end(id, end);
        (done, Acked { asked_ns, answered_ns: history.now_ns() })
    }

    /// Makes names, removes some, and syncs now and then.
    async fn make(self) {
        let (ctx, dir, names) = (Ctx::root(), self.work.0.dirs[self.index], &self.work.0.names[self.index]);
        while self.goes_on() {
            self.pause().await;
            if self.choose(SYNC_ONE_IN) == 0 {
                let (done, acked) = self.asked("sync".to_owned(), self.client.fsync_dir(dir)).await;
                if done.is_ok() {
                    self.work.0.syncs.lock().push(acked);
                }
                continue;
            }
            if self.choose(REMOVE_ONE_IN) == 0 {
                self.remove(dir).await;
                continue;
            }
            let number = {
                let mut names = names.lock();
                let number = names.next;
                names.next += 1;
                names.names.insert(number, Name::default());
                number
            };
            let name = name_of(number);
            let made = self.client.mkdir(&ctx, dir, name.as_bytes(), 0o755, 0);
            let (done, acked) = self.asked(format!("mkdir {name}"), made).await;
            if done.is_ok()
                && let Some(name) = names.lock().names.get_mut(&number)
            {
                name.made = Some(acked);
            }
        }
        self.ended();
    }

    async fn remove(&self, dir: Ino) {
        let names = &self.work.0.names[self.index];
        let number = {
            let mut names = names.lock();
            let kept = names.names.iter().filter(|(_, name)| name.made.is_some() && !name.removes);
            let kept: Vec<u64> = kept.map(|(number, _)| *number).collect();
            if kept.is_empty() {
                return;
            }
            let number = kept[self.choose(kept.len() as u64) as usize];
            if let Some(name) = names.names.get_mut(&number) {
                name.removes = true;
            }
            number
        };
        let name = name_of(number);
        let ctx = Ctx::root();
        let removed = self.client.rmdir(&ctx, dir, name.as_bytes());
        let (done, acked) = self.asked(format!("rmdir {name}"), removed).await;
        if done.is_ok()
            && let Some(name) = names.lock().names.get_mut(&number)
        {
            name.removed = Some(acked);
        }
    }

    /// Looks up names that the other client has made, the newest most often.
    async fn read(self) {
        let other = 1 - self.index;
        let (dir, names) = (self.work.0.dirs[other], &self.work.0.names[other]);
        while self.goes_on() {
            self.pause().await;
            let found = {
                let names = names.lock();
                let made = names.names.iter().rev().filter(|(_, name)| name.made.is_some());
                let back = self.choose(4) as usize;
                made.map(|(number, name)| (*number, *name)).nth(back)
            };
            let Some((number, before)) = found else { continue };
            let name = name_of(number);
            let (done, _) =
                self.asked(format!("lookup {name}"), self.client.lookup(dir, name.as_bytes())).await;
            let is_there = match done {
                Ok(_) => true,
                Err(fault) if fault.code == Code::NotFound => false,
                Err(_) => continue,
            };
            let now = names.lock().names.get(&number).copied().unwrap_or_default();
            // A removal that was asked for meanwhile may have been done or not.
            let expected = Name { removes: now.removes, ..before };
            if let Some(why) = self.work.wrong(&expected, is_there, &self.work.0.witness) {
                let text = format!("R5: {} looks up {name}: it {why}", self.node.name);
                self.history().violation(text);
            }
        }
        self.ended();
    }
}
