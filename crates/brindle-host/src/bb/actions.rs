//! What is done to processes, mounts and bricks. Every action can be repeated, also after a half of it.
//!
//! Of a buffer there are: `DIR/buffers/SERIAL` (state and logs of its cluster), `DIR/stage/SERIAL` (its mount for staging), and
//! `BRICK/brindle-bb/SERIAL` on each of its bricks (its targets; each OST on an image of the size of the slice, so that no buffer takes
//! more than it was given). [`super::brick`] says which bricks are this orchestrator's.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_bb::{Buffer, Place, Pool, Slice};
use brindle_objects::space::{Space, WITHHELD};
use brindle_types::{Code, Fault, Result, TargetId};
use parking_lot::Mutex;
use rustix::process::{Pid, WaitOptions, waitpid};

use super::beneath::Dir;
use super::brick;
use super::node::hub::{Hub, Refused};
use super::orchestrator::{JobLock, stopped};
use super::{Config, FS, GLOBAL, Network, PRIVATE, SWAP, make_dir, persistent_name};
use super::{staging, swap, swap_name};
use crate::cluster::image::{self, Kind};
use crate::cluster::{Cluster, Event, Image, Mount, On, Reach, Server, Up, alive};
use crate::{Host, loops, mounts, text};

/// Directory in each brick.
pub(super) const BRICK_DIR: &str = "brindle-bb";
/// Smallest image with XFS, which has as many inodes as it has room for.
const XFS_FROM_BYTES: u64 = 512 << 20;
/// What ext4 on an image takes for itself, beside a part of the slice.
const EXT4_EXTRA_BYTES: u64 = 14 << 20;
/// What XFS takes: its log has 64 MiB.
const XFS_EXTRA_BYTES: u64 = 96 << 20;
/// The part of the slice: one of so many.
const IMAGE_EXTRA_PART: u64 = 24;
/// Room beside the usable bytes of a slice, which an OST keeps back: 1/20 up to 16 MiB, 1/64, and its own tables. First the divisor of the slice, then
/// bytes.
const USABLE_EXTRA_PART: u64 = 16;
const USABLE_EXTRA_BYTES: u64 = 4 << 20;
/// How long a write waits for a buffer to grow by itself.
const ROOM_WAIT_S: u64 = 10;
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
    /// The identity of the state, which is the mark of its bricks.
    store_id: String,
    /// The agents of compute nodes, where this host takes any.
    hub: Option<Hub>,
    /// One lock a buffer for starting it again: several jobs may find at once that a persistent one does not run.
    starts: Mutex<BTreeMap<u64, Arc<Mutex<()>>>>,
}

impl<'a> Actions<'a> {
    /// On a host.
    pub fn new(host: &'a Host, config: Config, store_id: String) -> Result<Actions<'a>> {
        let hub = config.network.as_ref().map(|network| Hub::start(host, network)).transpose()?;
        Ok(Actions { host, config, store_id, hub, starts: Mutex::new(BTreeMap::new()) })
    }

    /// The agents of compute nodes.
    pub(super) fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    /// How hosts elsewhere reach the servers of a buffer.
    fn reach(&self, serial: u64) -> Option<Reach> {
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

    /// Does something with the cluster of a buffer.
    pub(super) fn on<T>(&self, serial: u64, work: impl FnOnce(&On) -> Result<T>) -> Result<T> {
        let tell = |event: Event| match event {
            Event::Warning(fault) => tracing::warn!(%fault, serial, "of a buffer"),
            event => tracing::debug!(?event, serial, "of a buffer"),
        };
        work(&On { host: self.host, dir: self.work_dir(serial), tell: &tell })
    }

    /// Formats, serves and mounts it for staging, from scratch: nothing of worth is in it yet.
    pub fn make(&self, buffer: &Buffer, pool: &Pool) -> Result<()> {
        self.claim_bricks(buffer, pool)?;
        self.erase(buffer, pool)?;
        let work = self.work_dir(buffer.serial);
        make_private_dir(&self.config.dir.join("buffers"))?;
        make_dir(&work)?;
        make_dir(&self.config.dir.join("stage"))?;
        if buffer.slices.is_empty() {
            // A job that has no buffer of its own has logs of its mounts.
            return make_dir(&work.join("log"));
        }
        let cluster = self.cluster_of(buffer, pool)?;
        if let Some(reach) = &cluster.reach {
            Refused::open(&reach.refused)?.save()?;
        }
        cluster.save(&work)?;
        self.start(buffer.serial)?;
        self.withhold(buffer.serial, &buffer.slices)?;
        self.give_to_owner(buffer)
    }

    /// Refuses bricks of others. Only root enters those of this orchestrator: images hold the files of users.
    fn claim_bricks(&self, buffer: &Buffer, pool: &Pool) -> Result<()> {
        for slice in &buffer.slices {
            brick::claim(brick_dir(pool, slice)?, &self.store_id, false)?;
        }
        Ok(())
    }

    /// Its cluster, before anything of it runs.
    fn cluster_of(&self, buffer: &Buffer, pool: &Pool) -> Result<Cluster> {
        let fs = FS.parse().map_err(|why: String| Fault::new(Code::Bug).why(why))?;
        let mut cluster = Cluster::new(fs);
        cluster.reach = self.reach(buffer.serial);
        let log = self.work_dir(buffer.serial).join("log");
        let first =
            buffer.slices.first().ok_or_else(|| Fault::new(Code::Bug).what("a buffer has no slices"))?;
        let home = slice_dir(pool, first)?;
        let lock_memory = buffer.swap.is_some();
        let mgs = server(&log, "mgs".to_owned(), TargetId::MGT, home.clone(), None);
        cluster.servers.push(Server { lock_memory, ..mgs });
        let mdt = server(&log, "mdt0".to_owned(), TargetId::mdt(0), home, None);
        let room_wait_s = if buffer.grow_max_bytes.is_some() { ROOM_WAIT_S } else { 0 };
        cluster.servers.push(Server { room_wait_s, lock_memory, ..mdt });
        for (index, slice) in (0u16..).zip(&buffer.slices) {
            cluster.servers.push(Server { lock_memory, ..ost(&log, index, slice, pool)? });
        }
        cluster.mounts.push(Mount {
            name: "client0".to_owned(),
            mount_point: self.stage_mount(buffer.serial),
            made_dir: true,
            log: log.join("client0.log"),
            metrics_port: 0,
            host: None,
            run: None,
        });
        Ok(cluster)
    }

    /// Gives its targets the sizes that its slices say, and serves those that are new. The file system stays mounted.
    pub fn resize(&self, buffer: &Buffer, pool: &Pool) -> Result<()> {
        // Whoever finds a target that has only begun takes the buffer for one that does not run.
        let lock = self.start_lock(buffer.serial);
        let _start = lock.lock();
        self.ensure_runs_locked(buffer.serial)?;
        self.claim_bricks(buffer, pool)?;
        let log = self.work_dir(buffer.serial).join("log");
        for (index, slice) in (0u16..).zip(&buffer.slices) {
            let lock_memory = buffer.swap.is_some();
            let wanted = Server { lock_memory, ..ost(&log, index, slice, pool)? };
            self.on(buffer.serial, |on| on.serve_ost(wanted))?;
        }
        self.withhold(buffer.serial, &buffer.slices)
    }

    /// Takes room away from its targets, as much as `shrink_to` says. What was written there has been given back to the disk before: it is
    /// another buffer's then.
    pub fn shrink(&self, buffer: &Buffer) -> Result<()> {
        self.ensure_runs(buffer.serial)?;
        let slices =
            buffer.shrink_to.as_ref().ok_or_else(|| Fault::new(Code::Bug).what("no smaller size"))?;
        for dir in self.ost_dirs(buffer.serial, slices.len())? {
            image::trim(&dir)?;
        }
        self.withhold(buffer.serial, slices)?;
        match self.available(buffer.serial, slices)?.contains(&0) {
            false => Ok(()),
            true => Err(too_full(buffer).why("files were written meanwhile")),
        }
    }

    /// Directories of its OSTs, which are mounted.
    fn ost_dirs(&self, serial: u64, count: usize) -> Result<Vec<PathBuf>> {
        let cluster = Cluster::load(&self.work_dir(serial))?;
        let of = |index: usize| {
            let name = format!("ost{index}");
            let found = cluster.servers.iter().find(|server| server.name == name);
            let mounted = found.filter(|server| mounts::find(&server.dir).is_some());
            mounted.map(|server| server.dir.clone()).ok_or_else(|| {
                Fault::new(Code::TargetDown).what("a target of the buffer does not run:").subject(name)
            })
        };
        (0..count).map(of).collect()
    }

    /// Keeps each target from using more than its slice.
    fn withhold(&self, serial: u64, slices: &[Slice]) -> Result<()> {
        let disk = &self.host.seams().disk;
        for (dir, slice) in self.ost_dirs(serial, slices.len())?.iter().zip(slices) {
            let file = text(&dir.join(WITHHELD))?;
            let cannot =
                |e: &std::io::Error| Fault::io(Code::NotWritable, "cannot keep room in", file.clone(), e);
            let all = disk.space(&text(dir)?).map_err(|e| cannot(&e))?.total_bytes;
            let bytes =
                if slice.bytes == slice.image_bytes() { 0 } else { all.saturating_sub(usable(slice)) };
            // No file, or one that a crash has left shorter than its blocks: both are made right.
            if bytes == 0 && disk.stat(&file).is_err() {
                continue;
            }
            disk.keep_room(&file, bytes).map_err(|e| match e.kind() {
                std::io::ErrorKind::StorageFull => Fault::new(Code::BufferTooFull)
                    .what("cannot make smaller:")
                    .subject(file.clone())
                    .why("files were written meanwhile"),
                _ => cannot(&e),
            })?;
            // The pool gives the room to others now: no power cut may give it back.
            let synced = std::fs::File::open(&file).and_then(|file| file.sync_all());
            let synced = synced.and_then(|()| std::fs::File::open(dir)).and_then(|dir| dir.sync_all());
            synced.map_err(|e| cannot(&e))?;
        }
        Ok(())
    }

    /// Free bytes in the slice of each OST of a buffer.
    pub fn available(&self, serial: u64, slices: &[Slice]) -> Result<Vec<u64>> {
        let dirs = self.ost_dirs(serial, slices.len())?;
        let free = |(dir, slice): (&PathBuf, &Slice)| {
            let used = Space::new(self.host.seams().disk.clone(), &text(dir)?)?.used_bytes()?;
            Ok(slice.bytes.saturating_sub(used))
        };
        dirs.iter().zip(slices).map(free).collect()
    }

    /// Starts its cluster as it was stored.
    pub(super) fn start(&self, serial: u64) -> Result<()> {
        let up = Up {
            archive: None,
            manager: false,
            osts: None,
            mount_points: vec![self.stage_mount(serial)],
            mounts: true,
            fs: None,
            ost_size_bytes: None,
            mdt_size_bytes: None,
            image_kind: Kind::Ext4,
            hosts: None,
        };
        self.on(serial, |on| on.up(&up)).map(drop)
    }

    /// Its user enters the directory that nodes share, for a persistent buffer with a group also the group; the directories of nodes can
    /// be reached by way of their mounts only.
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

    /// Opens a persistent buffer to its group. It may have to be mounted for staging first: what is below the mount point stays empty.
    pub fn share(&self, buffer: &Buffer) -> Result<()> {
        self.ensure_runs(buffer.serial)?;
        self.give_to_owner(buffer)
    }

    /// Sees to it that the servers of a buffer run and that it is mounted for staging: a host may have been started anew, or a process
    /// killed.
    pub fn ensure_runs(&self, serial: u64) -> Result<()> {
        let lock = self.start_lock(serial);
        let _start = lock.lock();
        self.ensure_runs_locked(serial)
    }

    /// Keeps others from starting and ending servers of a buffer.
    pub(super) fn start_lock(&self, serial: u64) -> Arc<Mutex<()>> {
        let mut starts = self.starts.lock();
        starts.retain(|_, lock| Arc::strong_count(lock) > 1);
        starts.entry(serial).or_default().clone()
    }

    fn ensure_runs_locked(&self, serial: u64) -> Result<()> {
        let cluster = Cluster::load(&self.work_dir(serial))?;
        // A target that never ran is one that the buffer was to grow by: it is no reason to end the others under a job.
        let runs_at_all = cluster.servers.first().is_some_and(|mgs| alive(mgs.run.as_ref()));
        let servers =
            cluster.servers.iter().map(|s| s.run.as_ref()).filter(|run| run.is_some() || !runs_at_all);
        let all = servers.chain(cluster.mounts.iter().map(|m| m.run.as_ref()));
        if all.into_iter().all(alive) && mounts::find(&self.stage_mount(serial)).is_some() {
            return Ok(());
        }
        tracing::warn!(serial, "a part of the buffer does not run, and is started again");
        self.on(serial, |on| on.down(false))?;
        reap(&cluster);
        self.start(serial)
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
                Place::Striped => buffer.serial,
                Place::Persistent(name) => serial_of(buffer, name)?,
            };
            work.push((transfer.clone(), self.stage_mount(serial).join(GLOBAL), serial));
        }
        let mut serials: Vec<u64> = work.iter().map(|(.., serial)| *serial).collect();
        serials.sort_unstable();
        serials.dedup();
        serials.into_iter().try_for_each(|serial| self.ensure_runs(serial))?;
        let work = work.into_iter().map(|(transfer, root, _)| (transfer, root)).collect();
        staging::run(self.host, buffer, work, stages_in, job)
    }

    /// What each node mounts of a job: below which name, from where.
    pub(super) fn sources(&self, buffer: &Buffer) -> Result<Vec<(String, String)>> {
        let own = buffer.has_directory().then(|| (buffer.token.clone(), buffer.serial));
        let used = buffer.uses.iter().map(|used| (persistent_name(&buffer.token, &used.name), used.serial));
        let all = own.into_iter().chain(used);
        all.map(|(name, serial)| Ok((name, self.source_of(serial)?))).collect()
    }

    /// The source that mount(8) takes for a buffer. Its servers run on return.
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
        self.erase(buffer, pool)
    }

    fn erase(&self, buffer: &Buffer, pool: &Pool) -> Result<()> {
        let work = self.work_dir(buffer.serial);
        match Cluster::load(&work) {
            Ok(cluster) => {
                self.on(buffer.serial, |on| on.down(false))?;
                reap(&cluster);
            }
            Err(fault) if fault.code == Code::NoSuchCluster && !work.join("state.json").exists() => {}
            Err(fault) => return Err(fault),
        }
        for slice in &buffer.slices {
            // A brick that has left the pool holds nothing of it any more.
            if let Ok(dir) = slice_dir(pool, slice) {
                if brick::is_foreign(brick_dir(pool, slice)?, &self.store_id)? {
                    tracing::warn!(dir = %dir.display(), "left alone: the brick belongs to another orchestrator");
                    continue;
                }
                // Whoever was killed before it mounted an image has left its device.
                loops::detach_below(&dir)?;
                remove_tree(&dir)?;
            }
        }
        remove_tree(&self.stage_mount(buffer.serial))?;
        // Last, because it says where everything else is.
        remove_tree(&work)
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

/// A server of a buffer, before it runs.
fn server(log: &Path, name: String, target: TargetId, dir: PathBuf, image: Option<Image>) -> Server {
    Server {
        dir: dir.join(&name),
        log: log.join(format!("{name}.log")),
        name,
        target,
        port: 0,
        metrics_port: 0,
        room_wait_s: 0,
        lock_memory: false,
        image,
        host: None,
        run: None,
    }
}

/// Bytes that a target needs for users to have those of its slice: it keeps some for itself.
fn usable(slice: &Slice) -> u64 {
    slice.bytes + slice.bytes / USABLE_EXTRA_PART + USABLE_EXTRA_BYTES
}

/// The OST on a slice.
fn ost(log: &Path, index: u16, slice: &Slice, pool: &Pool) -> Result<Server> {
    let (name, dir, bytes) = (format!("ost{index}"), slice_dir(pool, slice)?, slice.image_bytes());
    let is_large = bytes >= XFS_FROM_BYTES;
    let (kind, extra) = if is_large { (Kind::Xfs, XFS_EXTRA_BYTES) } else { (Kind::Ext4, EXT4_EXTRA_BYTES) };
    let size_bytes = bytes + bytes / IMAGE_EXTRA_PART + extra;
    let image = Image { file: dir.join(format!("{name}.img")), kind, size_bytes };
    Ok(server(log, name, TargetId::ost(index), dir, Some(image)))
}

/// More is in use than a smaller size has room for.
pub fn too_full(buffer: &Buffer) -> Fault {
    Fault::new(Code::BufferTooFull)
        .what("cannot make smaller: the buffer")
        .subject(buffer.token.clone())
        .data("nothing was changed")
}

/// The directory of a buffer in a brick.
fn slice_dir(pool: &Pool, slice: &Slice) -> Result<PathBuf> {
    Ok(brick_dir(pool, slice)?.join(BRICK_DIR).join(slice.serial.to_string()))
}

/// The brick of a slice.
fn brick_dir<'a>(pool: &'a Pool, slice: &Slice) -> Result<&'a Path> {
    let brick = pool.bricks.get(&slice.brick).ok_or_else(|| {
        Fault::new(Code::Bug)
            .what("a slice lies on a brick that is not in the pool:")
            .subject(slice.brick.clone())
    })?;
    Ok(Path::new(&brick.dir))
}

/// Makes a directory that only root enters.
pub(super) fn make_private_dir(dir: &Path) -> Result<()> {
    make_dir(dir)?;
    let mode = std::fs::Permissions::from_mode(OWNER_MODE);
    std::fs::set_permissions(dir, mode)
        .map_err(|e| Fault::io(Code::NotWritable, "cannot close to others", dir.display().to_string(), &e))
}

/// Removes a directory with all it holds, unless something is mounted in it.
fn remove_tree(dir: &Path) -> Result<()> {
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
            // Those that an earlier orchestrator started are not this one's.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}
