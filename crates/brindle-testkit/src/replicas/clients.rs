//! [`Clients`]: the clients of a run, their lives, and when what they had acknowledged may be lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_client::{Client, MountConfig, Switches};
use brindle_types::Fault;
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
/// Tasks of each client.
const TASKS: usize = 2;

/// Times of an acknowledged operation.
#[derive(Clone, Copy)]
pub struct Acked {
    /// Time of the request.
    pub asked_ns: u64,
    /// Time of the answer.
    pub answered_ns: u64,
}

/// See the module.
pub struct Clients {
    cluster: SetCluster,
    witness: Arc<Witness>,
    /// Acknowledged syncs, each with what it covers.
    syncs: Mutex<Vec<(usize, Acked)>>,
    stop: AtomicBool,
    /// Lives by client: its incarnation, and the number of its tasks that have not ended.
    lives: Mutex<BTreeMap<usize, (u64, usize)>>,
}

/// Mounts on a node, trying until that succeeds. Nothing is kept, so that each operation asks a server.
pub async fn mount(node: &NodeSeams) -> Arc<Client> {
    let switches = Switches {
        write_behind: false,
        readahead: false,
        readdir_prefetch: false,
        open_prefetch: false,
        ..Switches::default()
    };
    loop {
        let config = MountConfig {
            mgs: vec![nid(MGS)],
            fs: fs_name(),
            host: node.name.clone(),
            mount: "/mnt".into(),
            switches,
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

impl Clients {
    /// Clients that have not begun.
    pub fn new(cluster: &SetCluster, witness: &Arc<Witness>) -> Arc<Clients> {
        Arc::new(Clients {
            cluster: cluster.clone(),
            witness: witness.clone(),
            syncs: Mutex::default(),
            stop: AtomicBool::new(false),
            lives: Mutex::default(),
        })
    }

    /// The cluster.
    pub fn cluster(&self) -> &SetCluster {
        &self.cluster
    }

    /// The witness of the run.
    pub fn witness(&self) -> &Arc<Witness> {
        &self.witness
    }

    /// Restarts the node of a client that died: the client, and the number of its new life.
    pub fn reborn(&self, name: &str) -> Option<(usize, u64)> {
        let index = CLIENTS.iter().position(|client| *client == name)?;
        let number = self.lives.lock().get(&index).map_or(0, |(number, _)| *number);
        self.cluster.world().restart(name);
        Some((index, number + 1))
    }

    /// Mounts on a client's node, and gives the life to `work`, which ends it [`TASKS`] times.
    pub fn begin_life(self: &Arc<Self>, index: usize, number: u64, work: impl FnOnce(Life) + Send + 'static) {
        self.lives.lock().insert(index, (number, TASKS));
        let (node, clients) = (self.cluster.world().node(CLIENTS[index]), self.clone());
        node.seams.clone().spawn("mount", async move {
            let client = mount(&node).await;
            work(Life { clients, index, number, node, client });
        });
    }

    /// Tasks end behind their present operations.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Tasks that have not ended.
    pub fn left(&self) -> usize {
        self.lives.lock().values().map(|(_, left)| *left).sum()
    }

    /// Waits until all tasks have ended.
    pub async fn until_ended(&self) {
        let seams = self.cluster.world().node("driver").seams;
        while self.left() > 0 {
            seams.sleep_ms(PAUSE_MAX_MS).await;
        }
    }

    /// Notes a sync of what has the number `scope`.
    pub fn synced(&self, scope: usize, sync: Acked) {
        self.syncs.lock().push((scope, sync));
    }

    /// Why an acknowledged operation may not be lost; `None` if it may be. `scope`: the number of what it belongs to.
    pub fn must_be_kept(&self, scope: usize, acked: &Acked) -> Option<String> {
        let rose_ns = self.witness.term_rose_at(acked.asked_ns);
        let covers = |sync: &Acked| {
            sync.asked_ns >= acked.answered_ns && rose_ns.is_none_or(|rose_ns| sync.answered_ns < rose_ns)
        };
        let is_synced = self.syncs.lock().iter().any(|(of, sync)| *of == scope && covers(sync));
        let at = acked.answered_ns as f64 / 1e9;
        match (is_synced && !self.cluster.has_liar(), rose_ns) {
            (true, _) => Some(format!("acknowledged at {at:.3} s, and synced")),
            (false, None) => Some(format!("acknowledged at {at:.3} s")),
            (false, Some(_)) => None,
        }
    }
}

/// An incarnation of a client.
#[derive(Clone)]
pub struct Life {
    clients: Arc<Clients>,
    /// Number of the client.
    pub index: usize,
    number: u64,
    /// Its node.
    pub node: NodeSeams,
    /// Its mount.
    pub client: Arc<Client>,
}

impl Life {
    /// The history of the run.
    pub fn history(&self) -> &History {
        self.clients.witness.history()
    }

    /// A number below `n`.
    pub fn choose(&self, n: u64) -> u64 {
        self.node.seams.rng.next_u64() % n
    }

    /// Waits a moment.
    pub async fn pause(&self) {
        self.node.seams.sleep_ms(1 + self.choose(PAUSE_MAX_MS)).await;
    }

    /// Waits for at most `max_ms`, unless the work is to end.
    pub async fn rest(&self, max_ms: u64) {
        let until = self.node.seams.now().plus_ms(self.choose(max_ms));
        while self.goes_on() && self.node.seams.now() < until {
            self.node.seams.sleep_ms(PAUSE_MAX_MS).await;
        }
    }

    /// Whether the work is to go on.
    pub fn goes_on(&self) -> bool {
        !self.clients.stop.load(Ordering::Relaxed)
    }

    /// A task has ended.
    pub fn ended(&self) {
        if let Some((number, left)) = self.clients.lives.lock().get_mut(&self.index)
            && *number == self.number
        {
            *left -= 1;
        }
    }

    /// Runs an operation with its notes; its times where it was acknowledged.
    pub async fn asked<T>(
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
}
