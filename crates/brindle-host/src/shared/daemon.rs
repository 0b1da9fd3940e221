//! The part of a host's daemon that serves shared targets. Every half second the daemon reports their state to the MGS, and follows the
//! answer.
//!
//! Each target has a task of its own:
//!
//! ```text
//!   standing by (reads the owner block)
//!      |  the MGS says that this host owns it
//!      v
//!   starting: waits until the former owner has released the block, or its lease has ended
//!             -> writes the block -> mounts -> starts the target
//!      v
//!   serving  (the keeper rewrites the block every second)
//!      |  the MGS says otherwise, the lease is lost, the target fails
//!      v
//!   stops the target -> unmounts -> writes the block: released
//! ```
//!
//! Invariants: the device is mounted and written only while the block is this host's, under the turn of the MGS's order; a turn that was
//! released is never served again; if some work may still run, the block and the mount are kept.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_net::latch::Latch;
use brindle_stdx::{Mono, watch};
use brindle_targets::{Directory, OWNER_LEASE_MS};
use brindle_types::{Code, Fault, FsName, Result, TargetId};
use brindle_wire::mgs::hosts::Assignment;
use brindle_wire::mgs::shared::{
    KeepSharedReq, KeepSharedResp, SharedPhase, SharedReport, SharedState, SharedTarget,
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::block::OwnerBlock;
use super::device::{self, SharedDevice};
use super::keeper::{self, Keeper, Lost, blocking};
use super::patience::{Waited, wait_for};
use crate::daemon::Shows;
use crate::hosting::{IDLE_MS, Spoiled, Trouble, check_port, prepare, tell_and_ask, until_gone};
use crate::service::{self, How, LockedTarget, Service};

/// Longest time that the MGS holds a request while there are shared targets: it hears of this host at least
/// that often.
const KEEP_MS: u32 = 500;
/// Interval at which a standby host reads the owner block, in milliseconds.
const READ_EVERY_MS: u64 = 500;
/// Longest time that a device may take to answer. The host could not serve from a slower one.
const READ_LIMIT_MS: u64 = 1_000;
/// Margin beyond the owner's lease, for clocks that differ in speed.
const LEASE_MARGIN_MS: u64 = 500;
/// Interval at which a host reads the block while it waits for the owner's lease to end, in milliseconds.
const LOOK_EVERY_MS: u64 = 100;
/// Pauses before a target that failed is tried again: the first, and the longest.
const RETRY_MS: (u64, u64) = (500, 10_000);
/// Longest time for stopping a target whose device is silent, and for the end of a start or a mount once this host is to give the target up.
const STOP_LIMIT_MS: u64 = 20_000;
/// Longest time for mounting a device that answers: a new device is formatted first, on an old one the journal is replayed.
const MOUNT_LIMIT_MS: u64 = 600_000;
/// Longest time for unmounting a device that answers: dirty pages are written.
const UNMOUNT_LIMIT_MS: u64 = 60_000;
/// Longest time for a single write of the owner block that no keeper watches.
const WRITE_LIMIT_MS: u64 = 15_000;
/// Longest time for the start of a target whose device answers: the longest recovery of a log.
const START_LIMIT_MS: u64 = 3_600_000;

/// A shared target of this host.
struct Hosted {
    order: watch::Sender<SharedTarget>,
    report: SharedReport,
    release: Arc<Latch>,
    released: Arc<Latch>,
}

/// An owner block as this host has read it: the end of the first read that found it, and the beginning of the last one. A read that the
/// device has delayed for long proves nothing new.
#[derive(Clone)]
struct Seen {
    block: Option<OwnerBlock>,
    first: Mono,
    last: Mono,
}

/// The part of a host's daemon that serves shared targets.
pub struct SharedDaemon {
    how: How,
    mgs: Arc<Directory>,
    fs: FsName,
    shows: Arc<dyn Shows>,
    /// Tells the processes of one host apart.
    process: u64,
    boot_id: [u8; 16],
    hosted: Mutex<BTreeMap<TargetId, Hosted>>,
    changes: watch::Sender<u64>,
    stop: Latch,
}

impl SharedDaemon {
    /// Begins to report this host's targets to the MGS, and to follow its orders.
    pub fn start(how: How, mgs: Arc<Directory>, fs: FsName, shows: Arc<dyn Shows>) -> Arc<SharedDaemon> {
        let seams = how.seams.clone();
        let daemon = Arc::new(SharedDaemon {
            process: seams.rng.next_u64(),
            boot_id: boot_id(),
            how,
            mgs,
            fs,
            shows,
            hosted: Mutex::default(),
            changes: watch::Sender::new(0),
            stop: Latch::default(),
        });
        let own = daemon.clone();
        seams.spawn("shared.keep", async move {
            own.stop.until(own.clone().keep()).await;
        });
        daemon
    }

    /// Stops all targets and releases their devices.
    pub async fn stop(&self) {
        self.stop.set();
        let hosted = std::mem::take(&mut *self.hosted.lock());
        hosted.values().for_each(|hosted| hosted.release.set());
        for hosted in hosted.values() {
            hosted.released.wait().await;
        }
    }

    fn states(&self) -> Vec<SharedReport> {
        self.hosted.lock().values().map(|hosted| hosted.report.clone()).collect()
    }

    /// Reports and asks, for ever.
    async fn keep(self: Arc<Self>) {
        let ask = |known_version| {
            let states = self.states();
            let wait_ms = if states.is_empty() { IDLE_MS } else { KEEP_MS };
            (KeepSharedReq { known_version, wait_ms, states }, wait_ms)
        };
        let take = |answer: KeepSharedResp| {
            if let Some(targets) = answer.targets {
                self.take(targets);
            }
            answer.version
        };
        tell_and_ask(&self.how.seams, &self.mgs, &self.changes, ask, take).await;
    }

    /// Follows the orders of the MGS.
    fn take(self: &Arc<Self>, targets: Vec<SharedTarget>) {
        let mut hosted = self.hosted.lock();
        if self.stop.is_set() {
            return;
        }
        let wanted: BTreeMap<TargetId, SharedTarget> = targets.into_iter().map(|t| (t.target, t)).collect();
        hosted.retain(|target, hosted| {
            let stays = wanted.get(target).is_some_and(|t| t.uuid == hosted.report.uuid);
            if !stays {
                tracing::info!(target_name = %self.fs.target(*target), "is not shared by this host any more");
                hosted.release.set();
            }
            stays
        });
        for (target, order) in wanted {
            match hosted.get(&target) {
                Some(known) => {
                    known.order.send_if_modified(|now| {
                        // Answers may cross on their way.
                        let is_newer = order.turn >= now.turn && *now != order;
                        if is_newer {
                            *now = order;
                        }
                        is_newer
                    });
                }
                None => drop(hosted.insert(target, self.begin(order))),
            }
        }
    }

    fn begin(self: &Arc<Self>, order: SharedTarget) -> Hosted {
        let SharedTarget { target, uuid, turn, is_formatted, .. } = order;
        let state = SharedState::Starting;
        let report = SharedReport { target, uuid, turn, is_formatted, state };
        let (order, orders) = watch::channel(order);
        let (release, released) = (Arc::<Latch>::default(), Arc::<Latch>::default());
        let (daemon, until, ended) = (self.clone(), release.clone(), released.clone());
        self.how.seams.spawn("shared.target", async move {
            Hosting { daemon: &daemon, seen: None, reading: None }.run(orders, &until).await;
            ended.set();
        });
        Hosted { order, report, release, released }
    }

    fn set(&self, order: &SharedTarget, is_formatted: bool, state: SharedState) {
        let mut hosted = self.hosted.lock();
        let Some(hosted) = hosted.get_mut(&order.target).filter(|h| h.report.uuid == order.uuid) else {
            return;
        };
        let next = SharedReport {
            turn: order.turn,
            is_formatted: is_formatted || hosted.report.is_formatted,
            state,
            ..hosted.report.clone()
        };
        if hosted.report == next {
            return;
        }
        if let SharedState::Failed { fault, .. } = &next.state {
            tracing::error!(code = %fault.code, target_name = %self.fs.target(order.target), "{fault}");
        }
        hosted.report = next;
        self.changes.send_modify(|n| *n += 1);
    }
}

/// A shared target on this host.
struct Hosting<'a> {
    daemon: &'a Arc<SharedDaemon>,
    seen: Option<Seen>,
    /// A read that has not ended, and its beginning. A device may hold a read for ever, and one is enough.
    reading: Option<(Mono, JoinHandle<Result<Option<OwnerBlock>>>)>,
}

impl Hosting<'_> {
    async fn run(mut self, mut orders: watch::Receiver<SharedTarget>, release: &Latch) {
        let mut pause_ms = RETRY_MS.0;
        while !release.is_set() {
            let order = orders.borrow_and_update().clone();
            if !self.may_serve(&order) {
                pause_ms = RETRY_MS.0;
                self.stand_by(&order).await;
                let other = orders.wait_for(|now| *now != order);
                release.until(self.daemon.how.seams.timeout_ms(READ_EVERY_MS, other)).await;
                continue;
            }
            match self.serve(&order, &mut orders, release).await {
                Ok(()) => pause_ms = RETRY_MS.0,
                Err(Trouble::Again(fault)) => {
                    self.fail(&order, fault, false);
                    let other = orders.wait_for(|now| *now != order);
                    release.until(self.daemon.how.seams.timeout_ms(pause_ms, other)).await;
                    pause_ms = (pause_ms * 2).min(RETRY_MS.1);
                }
                Err(Trouble::Never(fault)) => {
                    self.fail(&order, fault, true);
                    return release.wait().await;
                }
            }
        }
    }

    fn may_serve(&self, order: &SharedTarget) -> bool {
        order.owner == self.daemon.how.host && order.is_wanted && order.phase == SharedPhase::Owned
    }

    fn fail(&self, order: &SharedTarget, fault: Fault, is_held: bool) {
        self.daemon.set(order, false, SharedState::Failed { fault: Box::new(fault), is_held });
    }

    fn device_of(&self, order: &SharedTarget) -> Result<Arc<SharedDevice>> {
        let own = order.hosts.iter().find(|host| host.host == self.daemon.how.host);
        let unknown = || Fault::new(Code::UnknownHost).subject(self.daemon.how.host.clone());
        SharedDevice::open(Path::new(&own.ok_or_else(unknown)?.device)).map(Arc::new)
    }

    /// Reads the owner block, and notes since when it is unchanged.
    async fn read(&mut self, device: &Arc<SharedDevice>) -> Result<Option<OwnerBlock>> {
        let (seams, own) = (self.daemon.how.seams.clone(), device.clone());
        let began = seams.now();
        let (began, reading) = self
            .reading
            .get_or_insert_with(|| (began, tokio::task::spawn_blocking(move || own.read_block())));
        let began = *began;
        let Some(read) = seams.timeout_ms(READ_LIMIT_MS, reading).await else {
            return Err(no_answer(device, READ_LIMIT_MS));
        };
        self.reading = None;
        let block = read.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))??;
        match self.seen.as_mut().filter(|seen| seen.block == block) {
            Some(seen) => seen.last = began,
            None => {
                let now = seams.now();
                self.seen = Some(Seen { block: block.clone(), first: now, last: now });
            }
        }
        Ok(block)
    }

    /// Reads the owner block; releases the device if it is this host's and is not to be served here.
    async fn stand_by(&mut self, order: &SharedTarget) {
        let state = match self.looked(order).await {
            Ok(state) => state,
            Err(fault) => SharedState::Failed { fault: Box::new(fault), is_held: false },
        };
        self.daemon.set(order, false, state);
    }

    async fn looked(&mut self, order: &SharedTarget) -> Result<SharedState> {
        let device = self.device_of(order)?;
        let block = match self.read(&device).await? {
            Some(block) => block,
            // A wrong device is found now, before it is needed.
            None if order.is_formatted => return Err(no_block(&device)),
            None => return Ok(SharedState::StandingBy { turn: 0, is_released: true }),
        };
        check_target(&block, order, &device)?;
        let is_handed = matches!(order.phase, SharedPhase::Handing { .. });
        if order.owner != self.daemon.how.host || (order.is_wanted && !is_handed) || block.turn > order.turn {
            return Ok(SharedState::StandingBy { turn: block.turn, is_released: block.is_released });
        }
        if block.host == self.daemon.how.host {
            if block.turn != order.turn || !block.is_released {
                // An earlier process of this host has left the block.
                let dir = order.dir.clone();
                if device::mounted_from(Path::new(&dir))?.is_some() {
                    blocking(move || device::unmount(Path::new(&dir))).await?;
                }
                self.write_released(&device, OwnerBlock { turn: order.turn, ..block }).await?;
            }
            return Ok(SharedState::Released);
        }
        if is_handed && block.turn < order.turn {
            // The host has not owned the target in this turn, and will not.
            return Ok(SharedState::Released);
        }
        Ok(SharedState::StandingBy { turn: block.turn, is_released: block.is_released })
    }

    async fn write_released(&self, device: &Arc<SharedDevice>, block: OwnerBlock) -> Result<()> {
        let released = OwnerBlock { is_released: true, sequence: block.sequence + 1, ..block };
        let written = self.daemon.how.seams.timeout_ms(WRITE_LIMIT_MS, keeper::write(device, &released));
        written.await.unwrap_or_else(|| Err(no_answer(device, WRITE_LIMIT_MS)))
    }

    /// Serves the target until the order changes; fails when it cannot.
    async fn serve(
        &mut self,
        order: &SharedTarget,
        orders: &mut watch::Receiver<SharedTarget>,
        release: &Latch,
    ) -> std::result::Result<(), Trouble> {
        self.daemon.set(order, false, SharedState::Starting);
        let device = self.device_of(order)?;
        let Some(block) = self.until_free(order, &device, orders, release).await? else { return Ok(()) };
        let seams = &self.daemon.how.seams;
        let keeper = Keeper::start(seams, device.clone(), block);
        let Some(keeper) = seams.timeout_ms(WRITE_LIMIT_MS, keeper).await else {
            // The block may still be written.
            return Err(Trouble::never(no_answer(&device, WRITE_LIMIT_MS)));
        };
        let keeper = keeper?;
        let served = self.serve_owned(order, orders, release, (&device, &keeper)).await;
        let block = keeper.stop().await;
        if matches!(served, Err(Trouble::Never(_))) {
            return served;
        }
        // An owner that is to try again keeps the device.
        let order = orders.borrow().clone();
        if release.is_set() || !self.may_serve(&order) {
            self.write_released(&device, block).await?;
            tracing::info!(target_name = %self.daemon.fs.target(order.target), "released");
            if order.owner == self.daemon.how.host {
                self.daemon.set(&order, false, SharedState::Released);
            }
        }
        served
    }

    /// Waits until no other host can write to the device; returns the first block of this owner. `None`: the order has changed.
    async fn until_free(
        &mut self,
        order: &SharedTarget,
        device: &Arc<SharedDevice>,
        orders: &mut watch::Receiver<SharedTarget>,
        release: &Latch,
    ) -> Result<Option<OwnerBlock>> {
        let host = self.daemon.how.host.clone();
        let own = |sequence| OwnerBlock {
            target: order.uuid,
            turn: order.turn,
            host: host.clone(),
            boot_id: self.daemon.boot_id,
            process: self.daemon.process,
            sequence,
            is_released: false,
        };
        loop {
            let Some(block) = self.read(device).await? else {
                if order.is_formatted {
                    return Err(no_block(device));
                }
                let new = device.clone();
                blocking(move || new.must_be_blank()).await?;
                // The block is written first: from then on it guards the contents of the device.
                return Ok(Some(own(1)));
            };
            check_target(&block, order, device)?;
            if block.turn > order.turn || (block.turn == order.turn && block.host != host) {
                return Err(Fault::new(Code::NotOwner).subject(self.daemon.fs.target(order.target)).why(
                    format!(
                        "{} owns it in turn {}, this order is of turn {}",
                        block.host, block.turn, order.turn
                    ),
                ));
            }
            if block.turn == order.turn && block.is_released {
                self.daemon.set(order, false, SharedState::Released);
                let other = orders.wait_for(|now| now != order);
                release.until(other).await;
                return Ok(None);
            }
            let unchanged_ms = self.seen.as_ref().map_or(0, |seen| seen.last.ms_since(seen.first));
            // The lock in the directory guards against remains of this host's own processes.
            if block.is_released || block.host == host || unchanged_ms > OWNER_LEASE_MS + LEASE_MARGIN_MS {
                return Ok(Some(own(block.sequence + 1)));
            }
            let other = orders.wait_for(|now| now != order);
            release.until(self.daemon.how.seams.timeout_ms(LOOK_EVERY_MS, other)).await;
            if release.is_set() || *orders.borrow() != *order {
                return Ok(None);
            }
        }
    }

    /// Mounts, serves, stops, unmounts.
    async fn serve_owned(
        &mut self,
        order: &SharedTarget,
        orders: &mut watch::Receiver<SharedTarget>,
        release: &Latch,
        (device, keeper): (&Arc<SharedDevice>, &Arc<Keeper>),
    ) -> std::result::Result<(), Trouble> {
        let daemon = self.daemon;
        let (mounting, dir, is_formatted) = (device.clone(), order.dir.clone(), order.is_formatted);
        let is_given_up = Arc::new(AtomicBool::new(false));
        let was_given_up = is_given_up.clone();
        let mount = move || {
            let dir = Path::new(&dir);
            if !is_formatted && device::mounted_from(dir)?.is_none() {
                mounting.format()?;
            }
            mounting.mount(dir)?;
            // A mount that comes too late writes nothing.
            if was_given_up.load(Ordering::Acquire) { device::cut_power(dir) } else { Ok(()) }
        };
        let mounted = self.bounded((order, keeper), release, MOUNT_LIMIT_MS, "be mounted", mount).await;
        if matches!(mounted, Err(Trouble::Never(_))) {
            is_given_up.store(true, Ordering::Release);
        }
        mounted?;
        let assignment = Assignment {
            target: order.target,
            uuid: order.uuid,
            dir: order.dir.clone(),
            port: order.port,
            is_formatted: order.is_formatted,
            is_wanted: true,
        };
        let served = match prepare(&daemon.how, &daemon.fs, &daemon.mgs, &assignment).await {
            Ok(()) if order.is_formatted => self.serve_mounted(order, orders, release, keeper).await,
            Ok(()) => {
                daemon.set(order, true, SharedState::Starting);
                // The MGS notes it, and sends the order that says so.
                release.until(orders.wait_for(|now| now != order)).await;
                Ok(())
            }
            Err(fault) => Err(fault.into()),
        };
        if matches!(served, Err(Trouble::Never(_))) {
            return served;
        }
        let dir = order.dir.clone();
        let unmount = move || device::unmount(Path::new(&dir));
        let watched = (order, keeper);
        match self.bounded(watched, release, UNMOUNT_LIMIT_MS, "be unmounted", unmount).await {
            Ok(()) => served,
            Err(Trouble::Again(fault)) => Err(Trouble::never(fault)),
            Err(never) => Err(never),
        }
    }

    /// Runs a call that the device may hold for ever. A call that is given up leaves parts in this process.
    async fn bounded(
        &self,
        (order, keeper): (&SharedTarget, &Arc<Keeper>),
        release: &Latch,
        limit_ms: u64,
        what: &str,
        call: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> std::result::Result<(), Trouble> {
        let limits = (limit_ms, STOP_LIMIT_MS.min(limit_ms));
        let seams = &self.daemon.how.seams;
        let mut call = std::pin::pin!(blocking(call));
        match wait_for(seams, &mut call, keeper.until_lost(), release.wait(), limits).await {
            Waited::Done(done) => Ok(done?),
            Waited::Lost(lost) => match self.tell_held(order, lost) {
                Lost::Taken(fault) => Err(Trouble::never(fault)),
                // A device may answer again.
                Lost::Silent(fault) => match seams.timeout_ms(STOP_LIMIT_MS, call).await {
                    Some(done) => Ok(done?),
                    None => Err(Trouble::never(fault)),
                },
            },
            Waited::TooLong => {
                let fault = Fault::new(Code::TargetBusy).subject(self.daemon.fs.target(order.target));
                Err(Trouble::never(fault.why(format!("it takes too long to {what}"))))
            }
        }
    }

    async fn serve_mounted(
        &mut self,
        order: &SharedTarget,
        orders: &mut watch::Receiver<SharedTarget>,
        release: &Latch,
        keeper: &Arc<Keeper>,
    ) -> std::result::Result<(), Trouble> {
        let daemon = self.daemon;
        let found = LockedTarget::lock(Path::new(&order.dir), &daemon.how.seams)?;
        check_port(&daemon.how, order.port)?;
        let mut spoiled = Spoiled(Some(found));
        let Some(found) = spoiled.found() else { return Ok(()) };
        let how = How { lease: Some(keeper.lease()), ..daemon.how.clone() };
        let (service, lost) = match self.started((order, keeper), release, &how, found).await {
            Ok(started) => started,
            Err(Trouble::Again(fault)) => {
                // A failed start of an MDT or an OST leaves nothing running.
                spoiled.nothing_is_left();
                return Err(Trouble::Again(fault));
            }
            Err(never) => return Err(never),
        };
        let name = found.superblock.name();
        daemon.shows.served(&service);
        let failed = match lost {
            Some(lost) => Some(lost),
            None => {
                tracing::info!(target_name = %name, nid = %service.nid(), dir = %found.dir, turn = order.turn, "serving");
                daemon.set(order, false, SharedState::Serving);
                self.until_over(order, orders, release, (keeper, &service)).await
            }
        };
        daemon.shows.ended(&name);
        let is_taken = matches!(&failed, Some(Lost::Taken(_)));
        if is_taken {
            cut_power(&found.dir).await;
        }
        let remains = service.remains();
        let stopping = daemon.how.seams.timeout_ms(STOP_LIMIT_MS, service.stop());
        let stopped =
            stopping.await.unwrap_or_else(|| Err(Fault::new(Code::TargetBusy).subject(name.clone())));
        let gone = until_gone(&daemon.how.seams, &remains).await;
        let failed = failed.map(|lost| match lost {
            Lost::Taken(fault) | Lost::Silent(fault) => fault,
        });
        if !gone || is_taken {
            let fault =
                failed.or(stopped.err()).unwrap_or_else(|| Fault::new(Code::TargetBusy).subject(name));
            return Err(Trouble::never(fault));
        }
        tracing::info!(target_name = %name, "stopped");
        spoiled.nothing_is_left();
        match failed {
            Some(fault) => Err(fault.into()),
            None => Ok(stopped?),
        }
    }

    /// Starts the target. If the target is to be stopped meanwhile, the start is not dropped half way: the target is stopped once it has
    /// started. If the device was lost, returns the reason too.
    async fn started(
        &self,
        (order, keeper): (&SharedTarget, &Arc<Keeper>),
        release: &Latch,
        how: &How,
        found: &LockedTarget,
    ) -> std::result::Result<(Service, Option<Lost>), Trouble> {
        let seams = &self.daemon.how.seams;
        let mut starting = std::pin::pin!(service::start(how, found, order.port));
        let limits = (START_LIMIT_MS, STOP_LIMIT_MS);
        match wait_for(seams, &mut starting, keeper.until_lost(), release.wait(), limits).await {
            Waited::Done(started) => Ok((started?, None)),
            Waited::TooLong => Err(Trouble::half_started(order.target)),
            Waited::Lost(lost) => {
                let lost = self.tell_held(order, lost);
                if matches!(lost, Lost::Taken(_)) {
                    cut_power(&found.dir).await;
                }
                match seams.timeout_ms(STOP_LIMIT_MS, starting).await {
                    Some(Ok(service)) => Ok((service, Some(lost))),
                    Some(Err(_)) => Err(match lost {
                        Lost::Silent(fault) => Trouble::Again(fault),
                        Lost::Taken(fault) => Trouble::never(fault),
                    }),
                    None => Err(Trouble::half_started(order.target)),
                }
            }
        }
    }

    /// Tells the MGS of a loss before the target is stopped, which takes long where the device hangs.
    fn tell_held(&self, order: &SharedTarget, lost: Lost) -> Lost {
        let (Lost::Taken(fault) | Lost::Silent(fault)) = &lost;
        self.fail(order, fault.clone(), true);
        lost
    }

    /// Completes when the target is to be stopped; returns the reason, if there is no order.
    async fn until_over(
        &mut self,
        order: &SharedTarget,
        orders: &mut watch::Receiver<SharedTarget>,
        release: &Latch,
        (keeper, service): (&Arc<Keeper>, &Service),
    ) -> Option<Lost> {
        let mut order = order.clone();
        loop {
            let changed = orders.wait_for(|now| *now != order);
            tokio::select! {
                biased;
                () = release.wait() => return None,
                // The sender lives as long as the target is shared by this host.
                _ = changed => {}
                lost = keeper.until_lost() => return Some(self.tell_held(&order, lost)),
                fault = service.until_failed() => return Some(self.tell_held(&order, Lost::Silent(fault))),
            }
            let next = orders.borrow_and_update().clone();
            if !self.may_serve(&next) {
                // An owner that is to be fenced goes on: the fencing may yet be called off.
                let goes_on = next.owner == self.daemon.how.host
                    && next.turn == order.turn
                    && matches!(next.phase, SharedPhase::Fencing { .. });
                if !goes_on {
                    return None;
                }
            } else if next.turn != order.turn {
                // The owner is the same: no other host had the target in between.
                keeper.show_turn(next.turn).await;
                self.daemon.set(&next, false, SharedState::Serving);
            }
            order = next;
        }
    }
}

/// Keeps bytes in memory from reaching the device.
async fn cut_power(dir: &str) {
    let dir = dir.to_owned();
    if let Err(fault) = blocking(move || device::cut_power(Path::new(&dir))).await {
        tracing::error!(code = %fault.code, "{fault}");
    }
}

fn check_target(block: &OwnerBlock, order: &SharedTarget, device: &SharedDevice) -> Result<()> {
    if block.target == order.uuid {
        return Ok(());
    }
    Err(Fault::new(Code::ForeignTarget)
        .what("cannot serve")
        .subject(device.path().display().to_string())
        .why("its owner block is of another target")
        .data("nothing was changed"))
}

fn no_answer(device: &SharedDevice, limit_ms: u64) -> Fault {
    Fault::new(Code::BadOwnerBlock)
        .subject(device.path().display().to_string())
        .why(format!("the device has not answered within {limit_ms} ms"))
}

fn no_block(device: &SharedDevice) -> Fault {
    Fault::new(Code::BadOwnerBlock)
        .subject(device.path().display().to_string())
        .why("it has none, although the target was made on it")
}

/// Number of this boot of the host; zeros where the kernel does not tell.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let text = std::str::from_utf8(pair).unwrap_or("0");
        *byte = u8::from_str_radix(text, 16).unwrap_or(0);
    }
    id
}
