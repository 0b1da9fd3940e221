//! Actions on processes, mounts and bricks. Every action can be repeated, also after it was cut off half way.
//!
//! A buffer has `DIR/buffers/SERIAL` (state and logs of its cluster), `DIR/stage/SERIAL` (its mount for staging), and
//! `BRICK/brindle-bb/SERIAL` on each of its bricks (its targets). Each OST lies on an image of the size of the slice, so that no buffer
//! takes more than it was given. [`super::brick`] says which bricks are this orchestrator's, [`super::parts`] on which hosts they are.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use brindle_bb::{Buffer, CopyEnd, Pool, Slice, Staging};
use brindle_types::{Code, Fault, Result};
use brindle_wire::bb::MissingSlice;
use parking_lot::Mutex;
use rustix::process::{Pid, WaitOptions, waitpid};

use super::beneath::Dir;
use super::brick;
use super::job_lock::JobLock;
use super::node::hub::{Hub, Refused};
use super::orchestrator::stopped;
use super::store::Store;
use super::{Config, FS, GLOBAL, Network, PRIVATE, SWAP, make_dir, persistent_name};
use super::{swap, swap_name};
use crate::cluster::{Cluster, Mount, Reach, alive};
use crate::{Host, mounts};

/// Directory in each brick.
pub(super) const BRICK_DIR: &str = "brindle-bb";
/// Beginning of the names of swap files that no node has yet. No node is called so.
const SPARE_SWAP: &str = ".spare-";
/// The swap file that is being written.
const NEW_SWAP: &str = ".new";
/// Permissions of directories for one user only.
pub(super) const OWNER_MODE: u32 = 0o700;
/// Permissions of a directory that a group shares: what is made in it belongs to the group.
const GROUP_MODE: u32 = 0o2770;
/// Permissions of a buffer's root, which belongs to root: users pass through to what is theirs.
const ROOT_MODE: u32 = 0o711;

/// Carries out actions on this host.
pub struct Actions<'a> {
    pub(super) host: &'a Host,
    pub(super) config: Config,
    pub(super) store: Arc<Store<'a>>,
    /// The identity of the state, which is the mark of its bricks.
    pub(super) store_id: String,
    /// Hosts that could not make a slice a moment ago, and why: others are chosen for a while.
    pub(super) troubles: Mutex<BTreeMap<String, (Instant, String)>>,
    /// The copy of each buffer that runs or ran last, and when it began.
    pub(super) staging: Mutex<BTreeMap<u64, (Instant, Staging)>>,
    /// The agents of compute nodes, where this host takes any.
    hub: Option<Hub>,
    /// Locks for starting a buffer again, one for each buffer: several jobs may find at once that a persistent buffer does not run.
    starts: Mutex<BTreeMap<u64, Arc<Mutex<()>>>>,
}

impl<'a> Actions<'a> {
    /// On a host.
    pub fn new(host: &'a Host, config: Config, store: Arc<Store<'a>>) -> Result<Actions<'a>> {
        let hub = config.network.as_ref().map(|network| Hub::start(host, network)).transpose()?;
        let (store_id, troubles) = (store.id()?, Mutex::default());
        let (staging, starts) = (Mutex::default(), Mutex::default());
        Ok(Actions { host, config, store, store_id, troubles, staging, hub, starts })
    }

    /// The agents of compute nodes.
    pub(super) fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    /// How hosts elsewhere reach the servers of a buffer.
    pub(super) fn reach(&self, serial: u64) -> Option<Reach> {
        let Network { address, identity, .. } = self.config.network.clone()?;
        Some(Reach { address, identity, refused: self.refused_file(serial) })
    }

    /// The keys of hosts that the servers of a buffer refuse.
    pub(super) fn refused_file(&self, serial: u64) -> PathBuf {
        self.work_dir(serial).join("refused")
    }

    pub(super) fn work_dir(&self, serial: u64) -> PathBuf {
        self.config.dir.join("buffers").join(serial.to_string())
    }

    /// Where the buffer is mounted for staging.
    pub(super) fn stage_mount(&self, serial: u64) -> PathBuf {
        self.config.dir.join("stage").join(serial.to_string())
    }

    /// Formats, serves and mounts it for staging, from scratch: nothing of worth is in it yet.
    pub fn make(&self, buffer: &Buffer, pool: &Pool) -> Result<()> {
        self.claim_bricks(buffer, pool)?;
        let revision = self.revision(buffer.serial)?;
        self.erase(buffer, pool, revision)?;
        let work = self.work_dir(buffer.serial);
        make_private_dir(&self.config.dir.join("buffers"))?;
        make_dir(&work)?;
        make_dir(&self.config.dir.join("stage"))?;
        make_dir(&work.join("log"))?;
        if buffer.slices.is_empty() {
            // A job that has no buffer of its own has logs of its mounts.
            return Ok(());
        }
        let state = self.state_of(buffer)?;
        if let Some(reach) = &state.reach {
            Refused::open(&reach.refused)?.save()?;
        }
        state.save(&work)?;
        self.start(buffer, pool, revision, MissingSlice::Make)?;
        self.hold(&buffer.slices, pool, revision, false)?;
        self.give_to_owner(buffer)
    }

    /// Refuses bricks of others. Only root enters those of this orchestrator: images hold the files of users.
    fn claim_bricks(&self, buffer: &Buffer, pool: &Pool) -> Result<()> {
        for slice in buffer.slices.iter().filter(|slice| slice.node.is_none()) {
            let brick = pool.bricks.get(&slice.brick).ok_or_else(|| no_brick(slice))?;
            brick::claim(Path::new(&brick.dir), &self.store_id, false)?;
        }
        Ok(())
    }

    /// The part of the orchestrator's own host, before anything runs: the mount for staging. Targets are added when they are served.
    fn state_of(&self, buffer: &Buffer) -> Result<Cluster> {
        let fs = FS.parse().map_err(|why: String| Fault::new(Code::Bug).why(why))?;
        let mut cluster = Cluster::new(fs);
        cluster.reach = self.reach(buffer.serial);
        cluster.mounts.push(Mount {
            name: "client0".to_owned(),
            mount_point: self.stage_mount(buffer.serial),
            made_dir: true,
            log: self.work_dir(buffer.serial).join("log").join("client0.log"),
            metrics_port: 0,
            host: None,
            run: None,
        });
        Ok(cluster)
    }

    /// Gives its targets the sizes that its slices say, and serves those that are new. The file system stays mounted.
    pub fn resize(&self, buffer: &Buffer, pool: &Pool) -> Result<()> {
        // A caller that finds a half-started target takes the buffer for one that does not run: hence the lock.
        let lock = self.start_lock(buffer.serial);
        let _start = lock.lock();
        self.claim_bricks(buffer, pool)?;
        let revision = self.revision(buffer.serial)?;
        self.start(buffer, pool, revision, MissingSlice::Make)?;
        self.here(buffer.serial).on(|on| on.until_known())?;
        self.hold(&buffer.slices, pool, revision, false).map(drop)
    }

    /// Shrinks the slices of the buffer's targets to `shrink_to`. The disk got back what was written beyond that size before: the space is
    /// another buffer's afterwards.
    pub fn shrink(&self, buffer: &Buffer) -> Result<()> {
        self.ensure_runs(buffer.serial)?;
        let slices =
            buffer.shrink_to.as_ref().ok_or_else(|| Fault::new(Code::Bug).what("no smaller size"))?;
        let pool = self.store.pool(&buffer.pool)?;
        match self.hold(slices, &pool, self.revision(buffer.serial)?, true)?.contains(&0) {
            false => Ok(()),
            true => Err(too_full(buffer).why("files were written meanwhile")),
        }
    }

    /// Gives the directory that nodes share to the buffer's user, and to the group of a persistent buffer with a group. The directories of
    /// single nodes can be reached by way of their mounts only.
    fn give_to_owner(&self, buffer: &Buffer) -> Result<()> {
        let root = Dir::root(&self.stage_mount(buffer.serial))?;
        root.set_mode(ROOT_MODE)?;
        if buffer.has_directory() && buffer.access.is_private() {
            root.make(PRIVATE)?.set_mode(OWNER_MODE)?;
        }
        if buffer.swap.is_some() {
            root.make(SWAP)?.set_mode(OWNER_MODE)?;
        }
        if !buffer.has_directory() {
            return Ok(());
        }
        let global = root.make(GLOBAL)?;
        // Closed before it changes hands: a change of the owner takes the bit away that gives new files the group.
        global.set_mode(OWNER_MODE)?;
        global.give(buffer.uid, buffer.group.unwrap_or(buffer.gid))?;
        global.set_mode(if buffer.group.is_some() { GROUP_MODE } else { OWNER_MODE })
    }

    /// Opens a persistent buffer to its group. The buffer may have to be mounted for staging first: the directory below the mount point
    /// stays empty.
    pub fn share(&self, buffer: &Buffer) -> Result<()> {
        self.ensure_runs(buffer.serial)?;
        self.give_to_owner(buffer)
    }

    /// Sees to it that the servers of a buffer run and that it is mounted for staging: a host may have been started anew, or a process
    /// killed.
    pub fn ensure_runs(&self, serial: u64) -> Result<()> {
        let lock = self.start_lock(serial);
        let _start = lock.lock();
        if self.runs_here(serial)? {
            return Ok(());
        }
        self.start_stored(serial)
    }

    /// Keeps others from starting and ending servers of a buffer.
    pub(super) fn start_lock(&self, serial: u64) -> Arc<Mutex<()>> {
        let mut starts = self.starts.lock();
        starts.retain(|_, lock| Arc::strong_count(lock) > 1);
        starts.entry(serial).or_default().clone()
    }

    /// Whether all of a buffer is on this host, and runs.
    fn runs_here(&self, serial: u64) -> Result<bool> {
        let is_elsewhere = self.row(serial)?.1.slices.iter().any(|slice| slice.node.is_some());
        if is_elsewhere {
            return Ok(false);
        }
        let cluster = Cluster::load(&self.work_dir(serial))?;
        // A target that never ran is one that the buffer was to grow by.
        let servers = cluster.servers.iter().map(|s| s.run.as_ref()).filter(Option::is_some);
        let all = servers.chain(cluster.mounts.iter().map(|m| m.run.as_ref()));
        let runs = all.into_iter().all(alive) && mounts::find(&self.stage_mount(serial)).is_some();
        if !runs {
            tracing::warn!(serial, "a part of the buffer does not run, and is started again");
        }
        Ok(runs)
    }

    /// Allocates the swap of the nodes that the job will have, before anything else can take the room.
    fn allocate_swap(&self, buffer: &Buffer, job: &JobLock) -> Result<()> {
        let Some(wanted) = &buffer.swap else { return Ok(()) };
        self.ensure_runs(buffer.serial)?;
        let held = Dir::root(&self.stage_mount(buffer.serial))?.enter(SWAP)?;
        let dir = held.path();
        let stops = || job.stops().then(|| stopped(&buffer.token));
        for number in 0..wanted.nodes {
            let file = dir.join(format!("{SPARE_SWAP}{number}"));
            if !file.exists() {
                make_swap_file(&dir, &file, wanted.bytes, &stops)?;
            }
        }
        Ok(())
    }

    /// Gives each node a swap file of its own, which keeps its name until the buffer is destroyed.
    pub(super) fn assign_swap(&self, buffer: &Buffer) -> Result<()> {
        let Some(wanted) = &buffer.swap else { return Ok(()) };
        self.ensure_runs(buffer.serial)?;
        let held = Dir::root(&self.stage_mount(buffer.serial))?.enter(SWAP)?;
        let dir = held.path();
        for node in &buffer.nodes {
            let file = dir.join(node);
            if file.exists() {
                continue;
            }
            match spare_in(&dir)? {
                Some(spare) => {
                    std::fs::rename(&spare, &file).map_err(|e| cannot_make(&file, &e))?;
                    swap::sync_dir(&dir)?;
                }
                None => make_swap_file(&dir, &file, wanted.bytes, &|| None)?,
            }
        }
        Ok(())
    }

    /// Copies what is to be staged in or out, as the user of the job.
    pub fn stage(&self, buffer: &Buffer, stages_in: bool, job: &JobLock) -> Result<()> {
        if stages_in {
            self.allocate_swap(buffer, job)?;
            if buffer.stage_in.is_empty() {
                return Ok(());
            }
        }
        let transfers = if stages_in { &buffer.stage_in } else { &buffer.stage_out };
        let mut work = Vec::new();
        for transfer in transfers {
            let serial = match &transfer.place {
                CopyEnd::Striped => buffer.serial,
                CopyEnd::Persistent(name) => serial_of(buffer, name)?,
            };
            work.push((transfer.clone(), serial));
        }
        let mut serials: Vec<u64> = work.iter().map(|(_, serial)| *serial).collect();
        serials.sort_unstable();
        serials.dedup();
        serials.into_iter().try_for_each(|serial| self.ensure_runs(serial))?;
        self.copy_files(buffer, work, stages_in, job)
    }

    /// Pairs of the mount point's name and the source: the mounts of a job on each node.
    pub(super) fn sources(&self, buffer: &Buffer) -> Result<Vec<(String, String)>> {
        let own = buffer.has_directory().then(|| (buffer.token.clone(), buffer.serial));
        let used = buffer.uses.iter().map(|used| (persistent_name(&buffer.token, &used.name), used.serial));
        let all = own.into_iter().chain(used);
        all.map(|(name, serial)| Ok((name, self.source_of(serial)?))).collect()
    }

    /// The source that mount(8) takes for a buffer. The buffer's servers run on return.
    pub(super) fn source_of(&self, serial: u64) -> Result<String> {
        self.ensure_runs(serial)?;
        let cluster = Cluster::load(&self.work_dir(serial))?;
        let mgs = cluster.mgs().ok_or_else(|| Fault::new(Code::NoMgs).subject(format!("buffer {serial}")))?;
        Ok(format!("{}:{}:/{}", mgs.host, mgs.port, cluster.fs))
    }

    /// Removes everything of it.
    pub fn destroy(&self, buffer: &Buffer, pool: &Pool) -> Result<()> {
        if let Some(device) = buffer.swap.as_ref().and_then(|_| swap::is_left(&swap_name(&buffer.token))) {
            return Err(Fault::new(Code::SwapFailed)
                .what("will not destroy the buffer of job")
                .subject(buffer.token.clone())
                .why(format!("{device} lies over its swap"))
                .data("nothing was changed"));
        }
        self.erase(buffer, pool, self.revision(buffer.serial)?)
    }

    /// The mount first, while all servers run; then what other hosts have; then what is here, which says where everything else is.
    fn erase(&self, buffer: &Buffer, pool: &Pool, revision: u64) -> Result<()> {
        self.staging.lock().remove(&buffer.serial);
        let here = self.here(buffer.serial);
        if here.dir.join("state.json").exists() {
            let cluster = Cluster::load(&here.dir)?;
            here.on(|on| on.down(false))?;
            reap(&cluster);
        }
        self.destroy_elsewhere(buffer, pool, revision)?;
        remove_tree(&self.stage_mount(buffer.serial))?;
        // A brick that has left the pool holds nothing of it any more.
        let own = buffer.slices.iter().filter(|slice| slice.node.is_none());
        let bricks: Vec<String> =
            own.filter_map(|slice| pool.bricks.get(&slice.brick)).map(|brick| brick.dir.clone()).collect();
        here.destroy(&bricks)
    }
}

/// Writes a swap file under another name first, so that a half of one is never taken for a whole one.
fn make_swap_file(dir: &Path, file: &Path, bytes: u64, stops: &dyn Fn() -> Option<Fault>) -> Result<()> {
    let new = dir.join(NEW_SWAP);
    swap::write_file(&new, bytes, stops)?;
    std::fs::rename(&new, file).map_err(|e| cannot_make(file, &e))?;
    swap::sync_dir(dir)
}

/// A swap file that no node has.
fn spare_in(dir: &Path) -> Result<Option<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|e| cannot_make(dir, &e))?;
    let is_spare = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(SPARE_SWAP))
    };
    Ok(entries.flatten().map(|entry| entry.path()).filter(is_spare).min())
}

fn cannot_make(file: &Path, e: &std::io::Error) -> Fault {
    Fault::io(Code::SwapFailed, "cannot make the swap file", file.display().to_string(), e)
}

/// The persistent buffer that a job uses by this name.
fn serial_of(buffer: &Buffer, name: &str) -> Result<u64> {
    buffer.uses.iter().find(|used| used.name == name).map(|used| used.serial).ok_or_else(|| {
        Fault::new(Code::NoSuchBuffer)
            .what("the job does not use the persistent buffer")
            .subject(name.to_owned())
            .next(format!("add #DW persistentdw name={name}"))
    })
}

/// More is in use than a smaller size has room for.
pub fn too_full(buffer: &Buffer) -> Fault {
    Fault::new(Code::BufferTooFull)
        .what("cannot make smaller: the buffer")
        .subject(buffer.token.clone())
        .data("nothing was changed")
}

/// A slice of a brick that the pool does not know.
pub(super) fn no_brick(slice: &Slice) -> Fault {
    Fault::new(Code::Bug)
        .what("a slice lies on a brick that is not in the pool:")
        .subject(slice.brick.clone())
}

/// Makes a directory that only root enters.
pub(super) fn make_private_dir(dir: &Path) -> Result<()> {
    make_dir(dir)?;
    let mode = std::fs::Permissions::from_mode(OWNER_MODE);
    std::fs::set_permissions(dir, mode)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot close to others", dir.display().to_string(), &e))
}

/// Removes a directory with all it holds, unless something is mounted in it.
pub(super) fn remove_tree(dir: &Path) -> Result<()> {
    if let Some(left) = mounts::all().iter().find(|m| m.mount_point.starts_with(dir)) {
        return Err(Fault::new(Code::TargetBusy)
            .what("will not remove")
            .subject(dir.display().to_string())
            .why(format!("{} is still mounted", left.mount_point.display())));
    }
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Fault::io(Code::NotWritable, "cannot remove", dir.display().to_string(), &e))
        }
        _ => Ok(()),
    }
}

/// Processes that this one has started and that have ended leave nothing behind in the kernel.
pub(super) fn reap(cluster: &Cluster) {
    let servers = cluster.servers.iter().filter_map(|s| s.run.as_ref());
    for run in servers.chain(cluster.mounts.iter().filter_map(|m| m.run.as_ref())) {
        if let Some(pid) = i32::try_from(run.identity.pid).ok().and_then(Pid::from_raw) {
            // Servers that an earlier orchestrator started are not children of this process.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}
