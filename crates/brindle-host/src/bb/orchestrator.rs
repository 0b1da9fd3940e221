//! Requests, locks, and the loop around the state machine.
//!
//! Each job has a lock: phases of a job overlap, because a cancelled job is torn down while another phase runs. A hurried teardown stops
//! the copy that is under way, then waits for the lock like everybody else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brindle_bb::answer::{Capacity, Instance, Instances, Links, Pools, RealSize, Session, Sessions};
use brindle_bb::directive::variable_of;
use brindle_bb::life::{self, Event};
use brindle_bb::pool::{Brick, GRANULE_DEFAULT_BYTES};
use brindle_bb::{Access, Action, Buffer, CreateRequest, Goal, JobRequest, Phase, Pool, Slice, Swap};
use brindle_stdx::cast::millis;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;

use super::actions::Actions;
use super::elsewhere::waits_for_hosts;
use super::job_lock::JobLock;
use super::protocol::{Create, Reply, Request, Setup};
use super::store::Store;
use super::{Config, POOL_DEFAULT, is_plain};
use crate::Host;
use crate::target_dir::DirLock;

/// How long a step waits for the one before it. Shorter than the time after which Slurm kills the caller.
const LOCK_WAIT: Duration = Duration::from_secs(120);
/// Most actions towards one goal.
const ACTIONS_MAX: usize = 16;

/// The orchestrator.
pub struct Orchestrator<'a> {
    pub(super) config: Config,
    pub(super) store: Arc<Store<'a>>,
    pub(super) actions: Actions<'a>,
    /// Held while bricks are added and removed.
    pub(super) bricks: Mutex<()>,
    /// Held while a serial number is given out: serial numbers are counted over all pools.
    serials: Mutex<()>,
    locks: Mutex<BTreeMap<String, Arc<JobLock>>>,
    /// Lock of the orchestrator's directory, held as long as this value lives.
    _dir: DirLock,
}

/// A buffer after steps to a goal.
pub(super) struct Reached {
    pub(super) buffer: Buffer,
}

impl<'a> Orchestrator<'a> {
    /// Opens the state in the directory of `config`, and repairs what a crash has left.
    pub fn open(host: &'a Host, config: Config) -> Result<Orchestrator<'a>> {
        super::make_dir(&config.dir)?;
        // An orchestrator that was killed a moment ago may still hold the lock.
        let lock = DirLock::wait(&config.dir, "another orchestrator of burst buffers", |who| {
            tracing::warn!(%who, "another orchestrator has the directory, and is waited for");
        })?;
        let store = Arc::new(Store::open(host, &config.dir)?);
        store.make_pool(&Pool::new(POOL_DEFAULT, GRANULE_DEFAULT_BYTES))?;
        let actions = Actions::new(host, config.clone(), store.clone())?;
        let (serials, locks) = (Mutex::new(()), Mutex::new(BTreeMap::new()));
        let bricks = Mutex::new(());
        let orchestrator = Orchestrator { config, store, actions, bricks, serials, locks, _dir: lock };
        orchestrator.reconcile()?;
        Ok(orchestrator)
    }

    /// Directories and programs of the orchestrator.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns slices without a buffer to their pool, and goes on destroying buffers that were being destroyed. Every other buffer waits
    /// for its caller, who asks again.
    fn reconcile(&self) -> Result<()> {
        let buffers = self.store.buffers()?;
        for pool in self.store.pools()? {
            self.mark_bricks(&pool);
            let of_pool = buffers.iter().filter(|(_, buffer)| buffer.pool == pool.name);
            let rows: BTreeMap<u64, Vec<Slice>> =
                of_pool.map(|(_, buffer)| (buffer.serial, buffer.slices.clone())).collect();
            let freed = self.store.change_pool(&pool.name, |pool| Ok(pool.reconcile(&rows)))?;
            if freed > 0 {
                tracing::warn!(
                    pool = pool.name,
                    granules = freed,
                    "what was allocated and never recorded is free again"
                );
            }
        }
        // Agents of other hosts connect later: their slices are checked then.
        let is_here = |b: &Buffer| b.slices.iter().all(|slice| slice.node.is_none());
        let destroyed = |b: &Buffer| b.phase == Phase::Destroying && is_here(b);
        for (version, buffer) in buffers.into_iter().filter(|(_, buffer)| destroyed(buffer)) {
            let job = JobLock::default();
            if let Err(fault) = self.pursue(&job, version, buffer, &Goal::Drop) {
                tracing::warn!(%fault, "a buffer is still there; it is destroyed when somebody asks again");
            }
        }
        Ok(())
    }

    /// Answers a request; `only`: for buffers of this user only.
    pub fn answer(&self, only: Option<u32>, request: &Request) -> Result<Reply> {
        match request {
            Request::Pools => {
                let pools = self.store.pools()?;
                let away = self.actions.unusable(&pools, false);
                Ok(Reply::Pools(Pools::of(&pools, &away)))
            }
            Request::Instances => Ok(Reply::Instances(self.instances()?)),
            Request::Sessions => Ok(Reply::Sessions(self.sessions()?)),
            Request::Check(request) => self.check(request),
            Request::Setup(setup) => self.setup(setup),
            Request::DataIn(token) => self.step(token, &Goal::DataIn),
            Request::RealSize(token) => {
                let (_, buffer) = self.live(token)?;
                let (token, units) = (token.clone(), "bytes".to_owned());
                Ok(Reply::RealSize(RealSize { token, capacity: buffer.bytes, units }))
            }
            Request::Paths(token) => Ok(self.paths(&self.live(token)?.1)),
            Request::PreRun(token, nodes) => {
                nodes.iter().try_for_each(|node| self.refuse_foreign_node(node))?;
                self.pre_run(token, nodes)
            }
            Request::PostRun(token) => self.step(token, &Goal::PostRun),
            Request::DataOut(token) => self.step(token, &Goal::DataOut),
            Request::Teardown { token, hurry } => self.teardown(token, *hurry),
            Request::List => Ok(Reply::Buffers(self.list(only)?)),
            Request::Retry(name) => self.on_named(name, only, &Goal::Retry),
            Request::Drop(name) => self.on_named(name, only, &Goal::Drop),
            Request::Resize { name, bytes, only_grow } => self.resize(only, name, *bytes, *only_grow),
            Request::CreatePersistent(create) => self.create(create),
            Request::Bricks => Ok(Reply::Bricks(self.store.pools()?)),
            Request::AddBrick { pool, name, dir, bytes, node } => {
                let (dir, node) = (dir.clone(), node.clone());
                self.add_brick(pool, name, &Brick { dir, bytes: *bytes, node })
            }
            Request::RemoveBrick { pool, name, lost } => self.remove_brick(pool, name, *lost),
            Request::DrainBrick { pool, name, is_draining } => self.drain_brick(pool, name, *is_draining),
            Request::Nodes => Ok(Reply::Nodes(self.nodes()?)),
            Request::ForgetNode(node) => self.forget_node(node),
            Request::LogLines { node, lines } => self.log_lines(node.as_deref(), lines),
            Request::LogLevel { node, level } => self.log_level(node.as_deref(), level),
        }
    }

    fn check(&self, request: &JobRequest) -> Result<Reply> {
        let own = request.bytes.map(|bytes| (request.pool.as_deref(), bytes));
        let made = request.create.iter().map(|create| (create.pool.as_deref(), create.bytes));
        for (pool, bytes) in own.into_iter().chain(made) {
            self.store.pool(pool.unwrap_or(POOL_DEFAULT))?.refuse_impossible(bytes)?;
        }
        if let Some(swap) = &request.swap {
            // The number of nodes of the job is known when it is set up; it has at least one.
            let pool = self.store.pool(request.pool.as_deref().unwrap_or(POOL_DEFAULT))?;
            let wanted = request.bytes.unwrap_or(0).saturating_add(swap.bytes);
            pool.refuse_impossible(wanted).map_err(|fault| {
                let most = format_bytes(pool.granules() * pool.granule_bytes);
                let why = fault.why.join(": ");
                swap.refused(
                    fault.code,
                    format!("pool {}: {why}", pool.name),
                    &format!("ask for less: all nodes and jobs share {most}"),
                )
            })?;
        }
        Ok(Reply::Done(String::new()))
    }

    /// The variables of a job.
    fn paths(&self, buffer: &Buffer) -> Reply {
        let (config, token) = (&self.config, &buffer.token);
        let (own, access) = (buffer.has_directory(), buffer.access);
        let striped = (own && access.is_striped()).then(|| ("DW_JOB_STRIPED", config.striped(token)));
        let private = (own && access.is_private()).then(|| ("DW_JOB_PRIVATE", config.private(token)));
        let named = striped.into_iter().chain(private).map(|(name, path)| (name.to_owned(), path));
        let shared =
            buffer.uses.iter().map(|used| (variable_of(&used.name), config.persistent(token, &used.name)));
        Reply::Variables(named.chain(shared).map(|(name, path)| (name, path.display().to_string())).collect())
    }

    fn list(&self, only: Option<u32>) -> Result<Vec<Buffer>> {
        let all: Vec<Buffer> = self.store.buffers()?.into_iter().map(|(_, buffer)| buffer).collect();
        let users = |serial: u64| {
            let uses = |job: &&Buffer| job.uses.iter().any(|used| used.serial == serial);
            all.iter().filter(uses).map(|job| job.token.clone()).collect()
        };
        let shown = all.iter().filter(|buffer| only.is_none_or(|uid| uid == buffer.uid));
        let with_staging =
            |b: &Buffer| Buffer { staging: self.actions.shown_staging(b.serial), ..self.with_end(b) };
        Ok(shown.map(|b| Buffer { users: users(b.serial), ..with_staging(b) }).collect())
    }

    /// A buffer whose reason says until when it is kept, if that time ends.
    fn with_end(&self, buffer: &Buffer) -> Buffer {
        let mut shown = buffer.clone();
        if let Some(since) = buffer.discarded_s.filter(|_| buffer.phase == Phase::Kept) {
            let left_s = since.saturating_add(self.config.keep_discarded.as_secs()).saturating_sub(now_s());
            let (hours, minutes) = (left_s / 3600, left_s % 3600 / 60);
            shown.reason +=
                &format!("; thrown away with --hurry, it is destroyed in {hours} h {minutes} min");
        }
        if !buffer.lost.is_empty() && !shown.reason.contains(&buffer.lost) {
            let before = if shown.reason.is_empty() { "" } else { "; " };
            shown.reason += &format!("{before}files may be incomplete: {}", buffer.lost);
        }
        if !buffer.resize_failure.is_empty() {
            let before = if shown.reason.is_empty() { "" } else { "; " };
            shown.reason += &format!("{before}its size could not be changed: {}", buffer.resize_failure);
        }
        shown
    }

    /// Buffers that the scheduler knows.
    fn known(&self) -> Result<Vec<Buffer>> {
        Ok(self.list(None)?.into_iter().filter(|buffer| !buffer.torn_down).collect())
    }

    fn instances(&self) -> Result<Instances> {
        let instance = |b: Buffer| Instance {
            id: b.serial,
            capacity: Capacity { bytes: b.bytes, nodes: 0 },
            links: Links { session: b.serial },
        };
        let with_room = self.known()?.into_iter().filter(|b| b.bytes > 0);
        Ok(Instances { instances: with_room.map(instance).collect() })
    }

    fn sessions(&self) -> Result<Sessions> {
        let session =
            |b: Buffer| Session { id: b.serial, created: b.created_s, owner: b.uid, token: b.token };
        Ok(Sessions { sessions: self.known()?.into_iter().map(session).collect() })
    }

    /// The buffer of a job that the scheduler has not forgotten, or a persistent one; with the version of its row.
    pub(super) fn find(&self, token: &str) -> Result<Option<(u64, Buffer)>> {
        let is_it = |b: &Buffer| b.token == token && !b.torn_down;
        Ok(self.store.buffers()?.into_iter().find(|(_, buffer)| is_it(buffer)))
    }

    fn live(&self, token: &str) -> Result<(u64, Buffer)> {
        self.find(token)?.ok_or_else(|| no_buffer(token))
    }

    fn setup(&self, setup: &Setup) -> Result<Reply> {
        if !is_plain(&setup.token) {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot use as the name of a job")
                .subject(setup.token.clone()));
        }
        refuse_root(setup.uid)?;
        let request = &setup.request;
        if setup.makes_persistent {
            request.create.iter().try_for_each(|create| self.create(&setup.create(create)).map(drop))?;
            request.destroy.iter().try_for_each(|name| self.destroy_persistent(name, setup.uid))?;
        }
        for create in &request.create {
            // The scheduler's own call does not know of groups.
            create.group.as_ref().map_or(Ok(()), |group| self.share(&create.name, setup.uid, group))?;
        }
        let lock = self.lock_of(&setup.token);
        let _step = held(&lock, &setup.token)?;
        let (version, buffer) = match self.find(&setup.token)? {
            Some((_, taken)) if taken.persistent => {
                return Err(Fault::new(Code::NameTaken)
                    .what("cannot make the buffer of job")
                    .subject(taken.token)
                    .why("a persistent buffer is called so"));
            }
            Some(found) => found,
            None => self.allocate(setup)?,
        };
        self.make_somewhere(&lock, (version, buffer), &|| self.allocate(setup))?;
        Ok(Reply::Done(String::new()))
    }

    /// Stores the slices first, then the row: slices without a row are free again after a crash.
    fn allocate(&self, setup: &Setup) -> Result<(u64, Buffer)> {
        let mut names = setup.request.persistent.clone();
        // Locks are taken in one order, so that jobs never wait for each other in a circle; no job has the name of a persistent buffer.
        names.sort();
        names.retain(|name| *name != setup.token);
        let locks: Vec<_> = names.iter().map(|name| self.lock_of(name)).collect();
        let _held: Vec<_> =
            locks.iter().zip(&names).map(|(lock, name)| held(lock, name)).collect::<Result<_>>()?;
        let uses = names.iter().map(|name| self.usable(name, setup.uid, setup.gid)).collect::<Result<_>>()?;
        let request = &setup.request;
        let swap = setup.swap();
        let swap_bytes = swap.as_ref().map_or(0, Swap::all_bytes);
        let max_bytes = request.grow_max_bytes.map(|max| max.saturating_add(swap_bytes));
        let (serial, slices) = self.slices(setup.pool(), setup.wanted_bytes(), max_bytes)?;
        self.record(Buffer {
            access: request.access,
            grow_max_bytes: max_bytes.filter(|_| !slices.is_empty()),
            swap,
            uses,
            stage_in: request.stage_in.clone(),
            stage_out: request.stage_out.clone(),
            ..setup
                .create(&CreateRequest {
                    name: setup.token.clone(),
                    bytes: 0,
                    pool: Some(setup.pool().to_owned()),
                    group: None,
                })
                .row(serial, slices)
        })
    }

    /// A serial number, and so many bytes of a pool (may be 0); on targets that can grow to `max_bytes`.
    pub(super) fn slices(&self, pool: &str, bytes: u64, max_bytes: Option<u64>) -> Result<(u64, Vec<Slice>)> {
        let away = self.actions.unusable(&self.store.pools()?, true);
        let _serials = self.serials.lock();
        let next = self.store.pools()?.iter().map(|pool| pool.next_serial).max().unwrap_or(1);
        self.store.change_pool(pool, |pool| {
            pool.next_serial = pool.next_serial.max(next);
            if bytes == 0 {
                return Ok((pool.number(), Vec::new()));
            }
            let (serial, slices) = pool.allocate(bytes, &away)?;
            Ok((serial, max_bytes.map_or(slices, |max| pool.make_growable(serial, max))))
        })
    }

    /// A size in whole granules of a pool.
    pub(super) fn rounded(&self, pool: &str, bytes: u64) -> Result<u64> {
        Ok(self.store.pool(pool)?.rounded(bytes).unwrap_or(bytes))
    }

    /// Writes the row of a new buffer; if that fails, its slices are free again.
    pub(super) fn record(&self, mut buffer: Buffer) -> Result<(u64, Buffer)> {
        buffer.note(now_ms(), "");
        match self.store.put(0, &buffer) {
            Ok(version) => Ok((version, buffer)),
            Err(fault) => {
                self.store.change_pool(&buffer.pool, |pool| {
                    pool.release(buffer.serial);
                    Ok(())
                })?;
                Err(fault)
            }
        }
    }

    /// Mounts the buffer of a job. If the job has swap on more nodes than the buffer was made for, the buffer grows first.
    fn pre_run(&self, token: &str, nodes: &[String]) -> Result<Reply> {
        let lock = self.lock_of(token);
        let _step = held(&lock, token)?;
        let (mut version, mut buffer) = self.live(token)?;
        let mut named: Vec<&String> = buffer.nodes.iter().chain(nodes).collect();
        named.sort();
        named.dedup();
        let count = named.len() as u64;
        if let Some(swap) = buffer.swap.clone().filter(|swap| swap.nodes < count) {
            // The row is written first: it says what is wanted, and is no promise.
            buffer.swap = Some(Swap { nodes: count, ..swap });
            version = self.store.put(version, &buffer)?;
        }
        if let Some(swap) = &buffer.swap {
            let wanted = self.rounded(&buffer.pool, swap.beside_bytes.saturating_add(swap.all_bytes()))?;
            if buffer.bytes < wanted && matches!(buffer.phase, Phase::Ready | Phase::StagedIn) {
                self.grow(&lock, version, buffer, wanted)?;
                (version, buffer) = self.live(token)?;
            }
        }
        self.pursue(&lock, version, buffer, &Goal::PreRun(nodes.to_vec()))?;
        Ok(Reply::Done(String::new()))
    }

    /// Keeps the servers of swap running: processes wait for their pages meanwhile.
    pub(super) fn look_after_swap(&self) {
        let all = match self.store.buffers() {
            Ok(all) => all,
            Err(fault) => return tracing::warn!(%fault, "cannot look after swap"),
        };
        let has_swap = |b: &Buffer| b.swap.is_some() && b.phase == Phase::Mounted;
        for (_, buffer) in all.into_iter().filter(|(_, b)| has_swap(b)) {
            let lock = self.lock_of(&buffer.token);
            // The thread that holds the lock also does this work.
            let Some(_step) = lock.step.try_lock() else { continue };
            let (job, serial) = (buffer.token, buffer.serial);
            let found = self.store.buffer(serial);
            let runs = found.and_then(|found| match found.filter(|(_, b)| b.phase == Phase::Mounted) {
                Some(_) => self.actions.ensure_runs(serial),
                None => Ok(()),
            });
            if let Err(fault) = runs {
                tracing::warn!(%fault, job, serial, "processes may wait for their pages in swap");
            }
        }
    }

    /// Repeats unmounts that failed or were cut off: the missing part of a node may be there now; a node that was away may be back, or
    /// given up.
    pub(super) fn look_after_nodes(&self) {
        let (all, keys) = match self.store.buffers().and_then(|all| Ok((all, self.node_keys()?))) {
            Ok(found) => found,
            Err(fault) => return tracing::warn!(%fault, "cannot look after nodes"),
        };
        for (_, buffer) in all.into_iter().filter(|(_, b)| self.may_go_on(b, &keys)) {
            let lock = self.lock_of(&buffer.token);
            let Some(_step) = lock.step.try_lock() else { continue };
            let (job, serial) = (buffer.token, buffer.serial);
            let done = self.store.buffer(serial).and_then(|found| match found {
                Some((version, b)) if b.phase == Phase::Unmounting && !b.nodes.is_empty() => {
                    self.pursue(&lock, version, b, &Goal::PostRun)?;
                    tracing::info!(job, serial, "it is unmounted from all nodes now");
                    Ok(())
                }
                _ => Ok(()),
            });
            if let Err(fault) = done {
                tracing::warn!(%fault, job, serial, "nodes still have something of the job");
            }
        }
        if let Err(fault) = self.drop_forgotten() {
            tracing::warn!(%fault, "cannot remove nodes that were given up");
        }
    }

    fn step(&self, token: &str, goal: &Goal) -> Result<Reply> {
        let lock = self.lock_of(token);
        let _step = held(&lock, token)?;
        let (version, buffer) = self.live(token)?;
        self.pursue(&lock, version, buffer, goal)?;
        Ok(Reply::Done(String::new()))
    }

    /// Succeeds for a job without a buffer, also if it had one.
    fn teardown(&self, token: &str, hurry: bool) -> Result<Reply> {
        let lock = self.lock_of(token);
        if hurry {
            lock.stop();
        }
        let step = held(&lock, token);
        if hurry {
            lock.go_on();
        }
        let _step = step?;
        let Some((version, buffer)) = self.find(token)? else { return Ok(Reply::Done(String::new())) };
        let reached = self.pursue(&lock, version, buffer, &Goal::Teardown { hurry })?;
        Ok(Reply::Done(match reached.buffer.phase {
            Phase::Kept => format!(
                "the buffer of job {token} is kept: {}; finish it: brindle bb stage --retry {token}",
                reached.buffer.reason
            ),
            _ => String::new(),
        }))
    }

    /// The buffer that an operator or its owner names, with the version of its row.
    pub(super) fn named(&self, name: &str, only: Option<u32>) -> Result<(u64, Buffer)> {
        let named = |b: &Buffer| b.token == name || format!("{}.{}", b.token, b.serial) == name;
        let all = self.store.buffers()?;
        let mut found = all.into_iter().filter(|(_, b)| only.is_none_or(|uid| uid == b.uid) && named(b));
        let first = found.next().ok_or_else(|| no_buffer(name))?;
        let others: Vec<String> = found.map(|(_, b)| format!("{}.{}", b.token, b.serial)).collect();
        if others.is_empty() {
            return Ok(first);
        }
        Err(Fault::new(Code::BadArgument)
            .what("more than one buffer is called")
            .subject(name.to_owned())
            .next(format!("name one of them: {}.{}, {}", first.1.token, first.1.serial, others.join(", "))))
    }

    /// Carries out a request about the buffer that an operator or its owner names: by job, or by `JOB.SERIAL` where a job has several.
    fn on_named(&self, name: &str, only: Option<u32>, goal: &Goal) -> Result<Reply> {
        let find = || self.named(name, only);
        let lock = self.lock_of(&find()?.1.token);
        let _step = held(&lock, name)?;
        let (version, buffer) = find()?;
        let (bytes, pool) = (format_bytes(buffer.bytes), buffer.pool.clone());
        // Slurm repeats hurried teardowns, also of a job that it has forgotten. A teardown stops the copy under the job's lock. A buffer
        // that was torn down is therefore copied under a lock of its own.
        let forgotten = buffer.torn_down.then(JobLock::default);
        let reached = self.pursue(forgotten.as_ref().unwrap_or(&lock), version, buffer, goal)?;
        Ok(Reply::Done(match (reached.buffer.phase, goal) {
            (Phase::Destroying, _) => format!("{name} is being destroyed: {}", reached.buffer.reason),
            _ if reached.buffer.slices.is_empty() => format!("{name}: nothing of it is left"),
            (Phase::Gone, Goal::Drop) => format!("{name} destroyed; {bytes} of pool {pool} are free again"),
            (Phase::Gone, _) => {
                format!("{name}: its files are staged out; {bytes} of pool {pool} are free again")
            }
            _ => format!(
                "{name}: its files are staged out; the buffer goes when the job ends (scancel --hurry {name})"
            ),
        }))
    }

    /// Steps until the goal is reached. The row is stored before each action and after it.
    pub(super) fn pursue(
        &self,
        job: &JobLock,
        mut version: u64,
        mut buffer: Buffer,
        goal: &Goal,
    ) -> Result<Reached> {
        for _ in 0..ACTIONS_MAX {
            if buffer.persistent {
                buffer.users = self.users_of(buffer.serial)?;
            }
            let mut next = life::step(&buffer, &Event::Asked(goal.clone()))?;
            if next.buffer.discarded {
                next.buffer.discarded_s.get_or_insert_with(now_s);
            }
            if next.buffer != buffer {
                next.buffer.note(now_ms(), "");
                version = self.store.put(version, &next.buffer)?;
            }
            buffer = next.buffer;
            let Some(action) = next.action else { return Ok(Reached { buffer }) };
            let mut outcome = self.carry_out(job, action, (version, &mut buffer), goal);
            if action == Action::Mount && job.stops() {
                // The caller was killed before it could be told: the job does not start.
                outcome = outcome.and_then(|()| Err(stopped(&buffer.token)));
            }
            let event = match &outcome {
                Ok(()) => Event::Done(action),
                Err(fault) => Event::Failed(action, short(fault)),
            };
            buffer = life::step(&buffer, &event)?.buffer;
            buffer.note(now_ms(), if let Event::Failed(_, why) = &event { why } else { "" });
            if buffer.phase == Phase::Gone {
                self.store.remove(version, &buffer)?;
                return Ok(Reached { buffer });
            }
            if let Err(fault) = &outcome
                && action == Action::Destroy
                && waits_for_hosts(&buffer, fault)
            {
                // The name is free from now on, and whoever asked need not ask again.
                buffer.torn_down = true;
                self.store.put(version, &buffer)?;
                tracing::warn!(%fault, job = buffer.token, serial = buffer.serial, "it goes when its hosts are back");
                return Ok(Reached { buffer });
            }
            version = self.store.put(version, &buffer)?;
            let goes_on = matches!((goal, action), (Goal::Teardown { .. }, Action::StageOut));
            match outcome {
                Err(fault) if goes_on => tracing::warn!(%fault, job = buffer.token, "the buffer is kept"),
                outcome => outcome?,
            }
        }
        Err(Fault::new(Code::Bug).what("a goal was not reached").subject(format!("{goal:?}")))
    }

    /// Removes nodes from a buffer after it was unmounted there, also while others are awaited. The version is that of the buffer's row.
    fn carry_out(
        &self,
        job: &JobLock,
        action: Action,
        (version, buffer): (u64, &mut Buffer),
        goal: &Goal,
    ) -> Result<()> {
        if job.stops() && !matches!(goal, Goal::Teardown { .. } | Goal::Drop) {
            return Err(stopped(&buffer.token));
        }
        tracing::info!(job = buffer.token, serial = buffer.serial, ?action, "begins");
        match action {
            Action::Make => self.actions.make(buffer, &self.store.pool(&buffer.pool)?),
            Action::StageIn => self.actions.stage(buffer, true, job),
            Action::Mount => self.actions.mount(buffer, version, &self.node_keys()?),
            Action::Unmount => {
                let keys = self.node_keys()?;
                let (ordered, outcome) = self.actions.unmount(buffer, version, &keys, *goal == Goal::Drop);
                // A job that never ran has no files to lose. A node repeats its report until it has left.
                for why in ordered.lost.iter().filter(|_| buffer.ran) {
                    if !buffer.lost.contains(why) {
                        let before = if buffer.lost.is_empty() { "" } else { ", " };
                        buffer.lost = format!("{}{before}{why}", buffer.lost);
                        tracing::warn!(job = buffer.token, why, "files of the job may be incomplete");
                    }
                }
                if outcome.is_err() {
                    *buffer = life::step(buffer, &Event::UnmountedFrom(ordered.done))?.buffer;
                }
                outcome
            }
            // A part of the results must not be taken for all of them.
            Action::StageOut if !buffer.lost.is_empty() && *goal != Goal::Retry => Err(incomplete(buffer)),
            Action::StageOut => self.actions.stage(buffer, false, job),
            Action::Resize => self.actions.resize(buffer, &self.store.pool(&buffer.pool)?),
            Action::Shrink => self.actions.shrink(buffer),
            Action::Destroy => {
                self.actions.destroy(buffer, &self.store.pool(&buffer.pool)?)?;
                self.store.change_pool(&buffer.pool, |pool| {
                    pool.release(buffer.serial);
                    Ok(())
                })
            }
        }
    }

    pub(super) fn lock_of(&self, token: &str) -> Arc<JobLock> {
        let mut locks = self.locks.lock();
        // Locks that nobody holds are not needed.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(token.to_owned()).or_default().clone()
    }

    /// Destroys the buffers that were thrown away and kept for as long as they should be. A buffer that somebody works on is left alone
    /// until the next look.
    pub(super) fn expire(&self) {
        let all = match self.store.buffers() {
            Ok(all) => all,
            Err(fault) => return tracing::warn!(%fault, "cannot look for buffers whose time is over"),
        };
        let kept_s = self.config.keep_discarded.as_secs();
        let is_over = |b: &Buffer| b.discarded_s.is_some_and(|since| since.saturating_add(kept_s) <= now_s());
        for (_, buffer) in all.into_iter().filter(|(_, b)| b.phase == Phase::Kept && is_over(b)) {
            let lock = self.lock_of(&buffer.token);
            let Some(_step) = lock.step.try_lock() else { continue };
            let (job, serial) = (buffer.token, buffer.serial);
            // The row may belong to another buffer now that the lock is held.
            let expired = self.store.buffer(serial).and_then(|found| {
                let found = found.filter(|(_, b)| b.phase == Phase::Kept);
                found.map_or(Ok(()), |(version, b)| self.pursue(&lock, version, b, &Goal::Expire).map(drop))
            });
            match expired {
                Ok(()) => {
                    tracing::warn!(job, serial, "thrown away by a hurried teardown, kept, and now destroyed")
                }
                Err(fault) => {
                    tracing::warn!(%fault, job, serial, "cannot destroy a buffer whose time is over")
                }
            }
        }
    }

    /// Destroys all buffers. Returns the buffers whose files were not staged out, and the persistent ones.
    pub fn destroy_all(&self) -> Result<Vec<Buffer>> {
        let mut lost = Vec::new();
        let mut all = self.store.buffers()?;
        // Persistent buffers come last, when the jobs that use them are gone.
        all.sort_by_key(|(_, buffer)| buffer.persistent);
        for (version, buffer) in all {
            // The job or the staging for which the buffer was mounted has ended.
            let mut idle = Buffer { phase: Phase::Unmounting, ..buffer.clone() };
            idle.note(now_ms(), "");
            let (version, buffer) = match buffer.phase {
                Phase::Mounting | Phase::Mounted => (self.store.put(version, &idle)?, idle),
                _ => (version, buffer),
            };
            let pending = (buffer.is_pending() || buffer.persistent).then(|| buffer.clone());
            self.pursue(&JobLock::default(), version, buffer, &Goal::Drop)?;
            lost.extend(pending);
        }
        Ok(lost)
    }
}

pub(super) fn held<'a>(lock: &'a JobLock, token: &str) -> Result<parking_lot::MutexGuard<'a, ()>> {
    lock.step.try_lock_for(LOCK_WAIT).ok_or_else(|| {
        Fault::new(Code::BufferBusy)
            .what("another step is under way for job")
            .subject(token.to_owned())
            .why(format!("it has not ended within {} s", LOCK_WAIT.as_secs()))
    })
}

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    now_ms() / 1000
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

/// Files are staged as the user of a job, and never as root.
pub(super) fn refuse_root(uid: u32) -> Result<()> {
    if uid != 0 {
        return Ok(());
    }
    Err(Fault::new(Code::PermissionDenied)
        .what("no buffers for root")
        .why("files are staged as the user of the job"))
}

impl Create {
    /// The row of a buffer that has been allocated.
    pub(super) fn row(&self, serial: u64, slices: Vec<Slice>) -> Buffer {
        Buffer {
            serial,
            token: self.name.clone(),
            uid: self.uid,
            gid: self.gid,
            pool: self.pool.clone(),
            bytes: slices.iter().map(|slice| slice.bytes).sum(),
            created_s: now_s(),
            slices,
            stage_in: Vec::new(),
            stage_out: Vec::new(),
            phase: Phase::Allocated,
            nodes: Vec::new(),
            ran: false,
            staged_out: false,
            stage_out_tried: false,
            torn_down: false,
            reason: String::new(),
            persistent: false,
            access: Access::Striped,
            uses: Vec::new(),
            group: None,
            discarded: false,
            discarded_s: None,
            grow_max_bytes: None,
            shrink_to: None,
            unsettled: false,
            resize_failure: String::new(),
            lost: String::new(),
            swap: None,
            passed: Vec::new(),
            users: Vec::new(),
            staging: None,
        }
    }
}

pub(super) fn no_buffer(name: &str) -> Fault {
    Fault::new(Code::NoSuchBuffer)
        .what("no job has a buffer, and no persistent buffer is called")
        .subject(name.to_owned())
}

/// Files that are not staged out by themselves, because the job's last writes may be missing.
fn incomplete(buffer: &Buffer) -> Fault {
    let job = &buffer.token;
    Fault::new(Code::StageFailed)
        .what("not staged out by itself: files may be incomplete of job")
        .subject(job.clone())
        .why(buffer.lost.clone())
        .data("the buffer is kept; what the job had synced is in it")
        .next(format!("copy out what is there: brindle bb stage --retry {job}; or give it up: brindle bb destroy --yes {job}"))
}

/// The fault of a copy that a hurried teardown has stopped.
pub fn stopped(token: &str) -> Fault {
    Fault::new(Code::StageStopped).what("stopped: job").subject(token.to_owned()).why("it was cancelled")
}

/// A fault in one line, as rows and Slurm's reasons have it.
pub fn short(fault: &Fault) -> String {
    let mut text = fault.what.to_string();
    if !fault.subject.is_empty() {
        text = format!("{text} {}", fault.subject);
    }
    fault.why.iter().fold(text, |text, why| format!("{text}: {why}")).replace('\n', " ")
}
