//! Documents of `brindle bb`.

use brindle_admin::document;
use brindle_bb::simulate::Outcome;
use brindle_bb::{Buffer, Pool, Slice, Staging, StagingHost};
use schemars::JsonSchema;
use serde::Serialize;

use super::protocol::NodeState;

/// Buffers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BuffersView {
    /// The buffers, in the order in which they were made.
    pub buffers: Vec<BufferView>,
}
document!(BuffersView, "brindle.burst-buffers", 1);

/// A buffer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BufferView {
    /// The job; of a persistent buffer its name.
    pub job: String,
    /// Whether it is persistent.
    pub persistent: bool,
    /// Group whose members may use a persistent buffer beside its owner.
    pub group: Option<u32>,
    /// Jobs that use a persistent buffer.
    pub used_by: Vec<String>,
    /// Persistent buffers that the job uses.
    pub uses: Vec<String>,
    /// Number of the buffer, never used twice.
    pub serial: u64,
    /// Owner.
    pub uid: u32,
    /// The pool that it lies in.
    pub pool: String,
    /// Size.
    pub bytes: u64,
    /// Size to which it grows by itself.
    pub grow_max_bytes: Option<u64>,
    /// Bytes of swap on each node.
    pub swap_bytes: Option<u64>,
    /// Seconds since 1970 at which it was allocated.
    pub created_s: u64,
    /// State in words, such as `mounted` or `kept`.
    pub state: String,
    /// Nodes on which it is mounted.
    pub nodes: Vec<String>,
    /// Whether files of it have still to be staged out.
    pub stage_out_pending: bool,
    /// Cause of the last failure; empty where there was none.
    pub reason: String,
    /// Steps in the life of the buffer, in order.
    pub steps: Vec<StepView>,
    /// The parts of the buffer: each is an OST in a slice of a brick. The MDT lies beside the first one.
    pub parts: Vec<PartView>,
    /// The copy of files into the buffer or out of it that runs, or ran last since the orchestrator started.
    pub staging: Option<StagingView>,
}

/// A copy of files into a buffer or out of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StagingView {
    /// `in` or `out`.
    pub direction: String,
    /// Whether it has ended.
    pub ended: bool,
    /// Milliseconds since its begin, or between its begin and its end.
    pub elapsed_ms: u64,
    /// Files that are done: copied, linked, or found to be there already.
    pub files: u64,
    /// Files to copy or to compare; 0 until they are counted.
    pub all_files: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Bytes that the destination did not have at the start.
    pub all_bytes: u64,
    /// Bytes in a second; none so early that it says nothing.
    pub bytes_per_second: Option<u64>,
    /// Seconds until the end if it goes on like this; none where that cannot be said.
    pub left_s: Option<u64>,
    /// The hosts that copy, the orchestrator's own first.
    pub hosts: Vec<StagingHostView>,
}

/// A host that copies files of a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StagingHostView {
    /// Name.
    pub name: String,
    /// Files that it has done.
    pub files: u64,
    /// Bytes that it has copied.
    pub bytes: u64,
    /// Why it is not used, or no longer; empty where it is.
    pub reason: String,
}

impl From<&Staging> for StagingView {
    fn from(staging: &Staging) -> StagingView {
        let host = |host: &StagingHost| {
            let StagingHost { name, files, bytes, reason } = host.clone();
            StagingHostView { name, files, bytes, reason }
        };
        StagingView {
            direction: if staging.stages_in { "in" } else { "out" }.to_owned(),
            ended: staging.ended,
            elapsed_ms: staging.elapsed_ms,
            files: staging.files(),
            all_files: staging.all_files,
            bytes: staging.bytes(),
            all_bytes: staging.all_bytes,
            bytes_per_second: staging.rate(staging.bytes()),
            left_s: staging.left_s(),
            hosts: staging.hosts.iter().map(host).collect(),
        }
    }
}

/// A part of a buffer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PartView {
    /// Name of the target, such as `ost0`.
    pub target: String,
    /// Brick that the target lies in.
    pub brick: String,
    /// Host of the brick; empty for the orchestrator's own.
    pub node: String,
    /// Bytes.
    pub bytes: u64,
}

/// The parts of a buffer.
pub fn parts(buffer: &Buffer) -> Vec<PartView> {
    let part = |(index, slice): (usize, &Slice)| PartView {
        target: format!("ost{index}"),
        brick: slice.brick.clone(),
        node: slice.node.clone().unwrap_or_default(),
        bytes: slice.bytes,
    };
    buffer.slices.iter().enumerate().map(part).collect()
}

/// A step in the life of a buffer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StepView {
    /// The state that it came to, in the words of `state`.
    pub state: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Duration of the state; the last state has none, because it lasts.
    pub took_ms: Option<u64>,
    /// Failure of an action at that moment; empty if none failed.
    pub failure: String,
}

/// The steps of a buffer.
pub fn steps(buffer: &Buffer) -> Vec<StepView> {
    let next = buffer.passed.iter().skip(1).map(|passed| Some(passed.at_ms)).chain([None]);
    let each = buffer.passed.iter().zip(next).map(|(passed, next)| StepView {
        state: passed.phase.word().to_owned(),
        at_ms: passed.at_ms,
        // A clock that was set back takes no time away.
        took_ms: next.map(|next| next.saturating_sub(passed.at_ms)),
        failure: passed.failure.clone(),
    });
    each.collect()
}

impl From<&Buffer> for BufferView {
    fn from(buffer: &Buffer) -> BufferView {
        BufferView {
            job: buffer.token.clone(),
            persistent: buffer.persistent,
            group: buffer.group,
            used_by: buffer.users.clone(),
            uses: buffer.uses.iter().map(|used| used.name.clone()).collect(),
            serial: buffer.serial,
            uid: buffer.uid,
            pool: buffer.pool.clone(),
            bytes: buffer.bytes,
            grow_max_bytes: buffer.grow_max_bytes,
            swap_bytes: buffer.swap.as_ref().map(|swap| swap.bytes),
            created_s: buffer.created_s,
            state: buffer.phase.word().to_owned(),
            nodes: buffer.nodes.clone(),
            stage_out_pending: buffer.is_pending(),
            reason: buffer.reason.clone(),
            steps: steps(buffer),
            parts: parts(buffer),
            staging: buffer.staging.as_ref().map(StagingView::from),
        }
    }
}

/// Compute nodes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodesView {
    /// The nodes: the orchestrator's own host, then those with agents, by name.
    pub nodes: Vec<NodeView>,
}
document!(NodesView, "brindle.burst-buffer-nodes", 1);

/// A compute node.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodeView {
    /// Name.
    pub name: String,
    /// The address that its agent called from last; empty of the orchestrator's own host.
    pub address: String,
    /// `local` (the orchestrator's own host), `up`, `silent` (connected, and not heard of for 15 s), `away` or `forgotten`.
    pub state: String,
    /// Jobs that may have something mounted there.
    pub buffers: Vec<String>,
    /// Why its agent takes no orders; empty where it does.
    pub reason: String,
}

impl From<NodeState> for NodeView {
    fn from(node: NodeState) -> NodeView {
        let NodeState { name, address, state, buffers, reason } = node;
        NodeView { name, address, state, buffers, reason }
    }
}

/// Pools with their bricks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BrickPoolsView {
    /// The pools.
    pub pools: Vec<BrickPoolView>,
}
document!(BrickPoolsView, "brindle.brick-pools", 1);

/// A pool of bricks.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BrickPoolView {
    /// Name.
    pub name: String,
    /// Bytes of a granule; buffers are multiples of it.
    pub granule_bytes: u64,
    /// Bytes of all bricks.
    pub bytes: u64,
    /// Bytes that no buffer has.
    pub free_bytes: u64,
    /// Bricks.
    pub bricks: Vec<BrickView>,
}

/// A brick.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BrickView {
    /// Name.
    pub name: String,
    /// Host; empty for the orchestrator's own.
    pub node: String,
    /// State of the host, as in `brindle bb node list`; `local` for the orchestrator's own, empty where nobody has asked for it.
    pub state: String,
    /// Whether it gets no new slices.
    pub is_draining: bool,
    /// Why no slices are made there now; empty where they are.
    pub reason: String,
    /// Directory.
    pub dir: String,
    /// Bytes.
    pub bytes: u64,
    /// Bytes that no buffer has.
    pub free_bytes: u64,
}

impl From<&Pool> for BrickPoolView {
    fn from(pool: &Pool) -> BrickPoolView {
        let bricks = pool.bricks.iter().map(|(name, brick)| BrickView {
            name: name.clone(),
            node: brick.node.clone().unwrap_or_default(),
            state: if brick.node.is_none() { "local".to_owned() } else { String::new() },
            is_draining: pool.draining.contains(name),
            reason: String::new(),
            dir: brick.dir.clone(),
            bytes: brick.bytes,
            free_bytes: pool.free_of(name) * pool.granule_bytes,
        });
        BrickPoolView {
            name: pool.name.clone(),
            granule_bytes: pool.granule_bytes,
            bytes: pool.granules() * pool.granule_bytes,
            free_bytes: pool.free_granules() * pool.granule_bytes,
            bricks: bricks.collect(),
        }
    }
}

impl BrickPoolView {
    /// The pool with the states of its hosts.
    #[must_use]
    pub fn with_states(mut self, nodes: &[NodeState]) -> BrickPoolView {
        for brick in self.bricks.iter_mut().filter(|brick| !brick.node.is_empty()) {
            let known = nodes.iter().find(|node| node.name == brick.node);
            brick.state = known.map_or("away", |node| &node.state).to_owned();
            brick.reason = known.map_or_else(String::new, |node| node.reason.clone());
        }
        self
    }
}

/// A trace of jobs against pools.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SimulationView {
    /// Jobs with a buffer.
    pub jobs: u64,
    /// Jobs without one.
    pub without_buffer: u64,
    /// Jobs with a buffer that had not started or not ended.
    pub unfinished: u64,
    /// The outcome with each pool.
    pub pools: Vec<SimulatedPoolView>,
}
document!(SimulationView, "brindle.burst-buffer-simulation", 1);

/// The outcome of a simulation with one pool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SimulatedPoolView {
    /// Name of the pool.
    pub name: String,
    /// Bytes of all bricks.
    pub bytes: u64,
    /// Number of bricks.
    pub bricks: usize,
    /// Jobs that got a buffer.
    pub served: u64,
    /// Jobs that waited for room.
    pub waited: u64,
    /// Mean wait, in seconds.
    pub wait_mean_s: f64,
    /// 95 of 100 jobs waited no longer, in seconds.
    pub wait_p95_s: i64,
    /// Longest wait, in seconds.
    pub wait_max_s: i64,
    /// The job that waited longest; empty where none waited.
    pub wait_max_job: String,
    /// Most jobs that waited at a time.
    pub queue_max: usize,
    /// Most bytes in use.
    pub used_max_bytes: u64,
    /// Mean use of the pool, in percent.
    pub used_percent: f64,
    /// Buffers whose slices are of different sizes, because the pool was fragmented.
    pub uneven: u64,
    /// Jobs whose buffers are larger than the pool.
    pub too_large: Vec<String>,
}

impl SimulatedPoolView {
    /// Of a pool and what became of the jobs.
    pub fn new(pool: &Pool, outcome: &Outcome) -> SimulatedPoolView {
        let bytes = pool.granules() * pool.granule_bytes;
        let used = if bytes == 0 { 0.0 } else { outcome.used_mean_bytes * 100.0 / bytes as f64 };
        SimulatedPoolView {
            name: pool.name.clone(),
            bytes,
            bricks: pool.bricks.len(),
            served: outcome.served,
            waited: outcome.waited,
            wait_mean_s: outcome.wait_mean_s,
            wait_p95_s: outcome.wait_p95_s,
            wait_max_s: outcome.wait_max_s,
            wait_max_job: outcome.wait_max_job.clone(),
            queue_max: outcome.queue_max,
            used_max_bytes: outcome.used_max_bytes,
            used_percent: used,
            uneven: outcome.uneven,
            too_large: outcome.too_large.clone(),
        }
    }
}
