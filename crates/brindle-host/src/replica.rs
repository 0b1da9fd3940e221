//! The part of a host's daemon that serves members of replica sets (design note 032). A few times a second the daemon reports the members'
//! state to the MGS, and follows the answer: it formats a new member once, opens it, and makes it the primary or a follower, as the set
//! says. A former primary is stopped and opened anew.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_net::latch::Latch;

use brindle_stdx::{Mono, Seams, watch};
use brindle_targets::Directory;
use brindle_targets::replica::{ReplicaRecord, Seat};
use brindle_types::{Code, Fault, FsName, Nid, TargetId};
use brindle_wire::mgs::hosts::Assignment;
use brindle_wire::mgs::replica::{
    KeepReplicasReq, KeepReplicasResp, MemberPhase, MemberReport, ReplicaSetState, ShowReplicaReq,
};
use parking_lot::Mutex;

use crate::daemon::Shows;
use crate::disk_watch;
use crate::hosting::{GONE_LOOK_MS, IDLE_MS, Spoiled, Trouble, check_port, end, prepare, tell_and_ask};
use crate::service::{self, How, LockedTarget, Service};
use crate::spare;

/// Longest time that the MGS holds a request while there are members: it hears of this host at least that
/// often.
const KEEP_MS: u32 = 300;
/// Pauses before a member that failed is tried again: the first, and the longest.
const RETRY_MS: (u64, u64) = (500, 10_000);

/// Interval at which the threads that serve targets show that they run, and the time after which they stand still: as long as a host may be silent.
const BEAT_EVERY_MS: u64 = 250;
const STANDSTILL_MS: u64 = 2_500;

/// Number of tries to lock a directory before its lock counts as a failure.
const BUSY_TRIES: u32 = 40;

/// Interval at which members that know more than the MGS are shown to it, and the longest wait for its
/// answer.
const SHOW_EVERY_MS: u64 = 1_000;
const SHOW_MS: u64 = 2_000;
/// Interval at which a spare host tells its room.
const ROOM_EVERY_MS: u64 = 30_000;
/// Pause before the MGS is asked again whether this host is a spare one.
const SPARE_AGAIN_MS: u64 = 5_000;

fn shown(set: &ReplicaSetState) -> ShowReplicaReq {
    let in_sync = set.in_sync().map(|m| m.host.clone()).collect();
    ShowReplicaReq { target: set.target, uuid: set.uuid, epoch: set.epoch, in_sync, term: set.term }
}

/// A member on this host.
struct Hosted {
    seat: Arc<Seat>,
    is_formatted: bool,
    nids: Vec<Nid>,
    /// Reason why the member cannot be served; `None` while the seat tells its phase.
    failed: Option<Box<Fault>>,
    is_open: bool,
    release: Arc<Latch>,
    released: Arc<Latch>,
}

/// Threads and connections that nothing of a target runs on. A disk that hangs stops the threads that write to it; these go on to tell the MGS.
#[derive(Clone)]
pub struct Control {
    /// Tasks on those threads.
    pub seams: Seams,
    /// The way to the MGS over them.
    pub mgs: Arc<Directory>,
}

/// The part of a host's daemon that serves members of replica sets.
pub struct ReplicaDaemon {
    how: How,
    control: Control,
    /// Time at which the threads that serve targets were last seen to run.
    beat: AtomicU64,
    mgs: Arc<Directory>,
    fs: FsName,
    shows: Arc<dyn Shows>,
    hosted: Mutex<BTreeMap<TargetId, Hosted>>,
    /// Members that were taken from this host and are not stopped yet.
    releasing: Mutex<Vec<Arc<Latch>>>,
    changes: watch::Sender<u64>,
    /// Members with a higher epoch than the MGS knows, as they are shown to the MGS.
    ahead: Mutex<BTreeMap<TargetId, ShowReplicaReq>>,
    /// Version of the last rows that the MGS has sent.
    rows_version: watch::Sender<u64>,
    stop: Latch,
}

impl ReplicaDaemon {
    /// Begins to tell the MGS of this host's members, and to serve what it says.
    pub fn start(
        how: How,
        (mgs, control): (Arc<Directory>, Control),
        fs: FsName,
        shows: Arc<dyn Shows>,
    ) -> Arc<ReplicaDaemon> {
        let seams = how.seams.clone();
        let daemon = Arc::new(ReplicaDaemon {
            beat: AtomicU64::new(seams.now().0),
            control,
            how,
            mgs,
            fs,
            shows,
            hosted: Mutex::default(),
            releasing: Mutex::default(),
            changes: watch::Sender::new(0),
            ahead: Mutex::default(),
            rows_version: watch::Sender::new(0),
            stop: Latch::default(),
        });
        let own = daemon.clone();
        seams.spawn("replica.show", async move {
            own.stop.until(own.show()).await;
        });
        let own = daemon.clone();
        seams.spawn("replica.spare", async move {
            own.stop.until(own.mark_spare()).await;
        });
        let own = daemon.clone();
        seams.spawn("replica.beat", async move {
            own.stop.until(own.beat()).await;
        });
        let own = daemon.clone();
        daemon.control.seams.spawn("replica.keep", async move {
            own.stop.until(own.clone().keep()).await;
        });
        daemon
    }

    /// Stops all members; their stores are synced and closed.
    pub async fn stop(&self) {
        self.stop.set();
        let hosted = std::mem::take(&mut *self.hosted.lock());
        hosted.values().for_each(|hosted| hosted.release.set());
        let releasing = std::mem::take(&mut *self.releasing.lock());
        for released in hosted.values().map(|hosted| &hosted.released).chain(&releasing) {
            released.wait().await;
        }
    }

    /// Notes, for ever, that the threads that serve targets run.
    async fn beat(&self) {
        loop {
            self.beat.store(self.how.seams.now().0, Ordering::Release);
            self.how.seams.sleep_ms(BEAT_EVERY_MS).await;
        }
    }

    /// The fault of all members while the threads that serve targets stand still.
    fn standstill(&self) -> Option<Box<Fault>> {
        let ms = self.control.seams.now().ms_since(Mono(self.beat.load(Ordering::Acquire)));
        (ms > STANDSTILL_MS).then(|| {
            let why =
                format!("no thread that serves targets has run for {} s: they wait for a disk", ms / 1_000);
            Box::new(Fault::new(Code::DiskHangs).why(why))
        })
    }

    fn reports(&self) -> Vec<MemberReport> {
        let standstill = self.standstill();
        let report = |hosted: &Hosted| {
            let (set, told) = (hosted.seat.set(), hosted.seat.told());
            MemberReport {
                target: set.target,
                uuid: set.uuid,
                epoch: set.epoch,
                is_formatted: hosted.is_formatted,
                boot_term: if hosted.is_open { told.boot_term } else { 0 },
                recorded_epoch: told.recorded_epoch,
                nids: hosted.nids.clone(),
                phase: match hosted.failed.as_ref().or(standstill.as_ref()) {
                    Some(fault) => MemberPhase::Failed(fault.clone()),
                    None if hosted.is_open => told.phase,
                    None => MemberPhase::Starting,
                },
                resyncs: if hosted.is_open { told.resyncs } else { Vec::new() },
                mended_blocks: told.mended_blocks,
            }
        };
        self.hosted.lock().values().map(report).collect()
    }

    /// Reports and asks, for ever.
    async fn keep(self: Arc<Self>) {
        let ask = |known_version| {
            let members = self.reports();
            let wait_ms = if members.is_empty() { IDLE_MS } else { KEEP_MS };
            (KeepReplicasReq { known_version, wait_ms, members }, wait_ms)
        };
        let take = |answer: KeepReplicasResp| {
            if let Some(sets) = answer.sets {
                self.take(sets);
            }
            self.rows_version
                .send_if_modified(|known| std::mem::replace(known, answer.version) != answer.version);
            answer.version
        };
        tell_and_ask(&self.control.seams, &self.control.mgs, &self.changes, ask, take).await;
    }

    /// Shows the MGS a newer record: its configuration is older than the members here.
    async fn show(&self) {
        loop {
            let ahead: Vec<ShowReplicaReq> = self.ahead.lock().values().cloned().collect();
            for shown in &ahead {
                if let Err(fault) = self.mgs.mgs().probe_within(shown, SHOW_MS).await {
                    tracing::debug!(code = %fault.code, "the MGS was not shown a member: {fault}");
                }
            }
            self.how.seams.sleep_ms(SHOW_EVERY_MS).await;
        }
    }

    /// Marks the directory of this host when it becomes a spare one.
    async fn mark_spare(&self) {
        let (mut heard, mut rows) = (spare::Heard::default(), self.rows_version.subscribe());
        loop {
            let marked = loop {
                match spare::dir_of(&self.mgs, &self.how.host).await {
                    Ok(dir) => break self.became_spare(&mut heard, dir).await,
                    Err(fault) => {
                        tracing::debug!(code = %fault.code, "the MGS does not tell the spare hosts: {fault}");
                        self.how.seams.sleep_ms(SPARE_AGAIN_MS).await;
                    }
                }
            };
            if let Err(fault) = marked {
                tracing::error!(code = %fault.code, "{fault}");
            }
            // A change of the rows, or time to tell the room again.
            let _ = self.how.seams.timeout_ms(ROOM_EVERY_MS, rows.changed()).await;
        }
    }

    /// Marks the directory where the host has become a spare one, and tells its room.
    async fn became_spare(&self, heard: &mut spare::Heard, dir: Option<String>) -> brindle_types::Result<()> {
        heard.became(dir.clone()).map_or(Ok(()), |dir| spare::mark(&dir))?;
        let Some(dir) = dir else { return Ok(()) };
        if let Err(fault) = spare::tell_room(&self.mgs, &*self.how.seams.disk, &dir).await {
            tracing::debug!(code = %fault.code, "the MGS does not hear of the room here: {fault}");
        }
        Ok(())
    }

    /// Starts and stops members as the MGS orders.
    fn take(self: &Arc<Self>, sets: Vec<ReplicaSetState>) {
        let mut hosted = self.hosted.lock();
        if self.stop.is_set() {
            return;
        }
        let wanted: BTreeMap<TargetId, ReplicaSetState> =
            sets.into_iter().map(|set| (set.target, set)).collect();
        let mut releasing = self.releasing.lock();
        releasing.retain(|released| !released.is_set());
        hosted.retain(|target, hosted| {
            let stays = wanted.get(target).is_some_and(|set| set.uuid == hosted.seat.set().uuid);
            if !stays {
                tracing::info!(target_name = %self.fs.target(*target), "this host has no copy of it any more");
                hosted.release.set();
                releasing.push(hosted.released.clone());
            }
            stays
        });
        for (target, set) in wanted {
            match hosted.get(&target) {
                Some(known) => {
                    self.compare(&set, &known.seat.set());
                    known.seat.offer(set);
                }
                None => drop(hosted.insert(target, self.begin(set))),
            }
        }
    }

    /// Notes whether a member knows more of its set than the MGS says.
    fn compare(&self, said: &ReplicaSetState, known: &ReplicaSetState) {
        let mut ahead = self.ahead.lock();
        if known.epoch > said.epoch {
            ahead.insert(known.target, shown(known));
        } else if ahead.get(&said.target).is_some_and(|shown| shown.epoch <= said.epoch) {
            ahead.remove(&said.target);
        }
    }

    /// Notes the record of a member that was refused because of the record.
    fn compare_record(&self, set: &ReplicaSetState, dir: &str) {
        match ReplicaRecord::load(&*self.how.seams.disk, dir) {
            Ok(record) if record.epoch > set.epoch && record.uuid == set.uuid => {
                let ReplicaRecord { uuid, epoch, in_sync } = record;
                let shown = ShowReplicaReq { target: set.target, uuid, epoch, in_sync, term: 0 };
                self.ahead.lock().insert(set.target, shown);
            }
            Ok(_) => {}
            Err(fault) => tracing::warn!(code = %fault.code, "{fault}"),
        }
    }

    fn begin(self: &Arc<Self>, set: ReplicaSetState) -> Hosted {
        let seat = Arc::new(Seat::new(&self.how.host, set, self.how.seams.now()));
        let (release, released) = (Arc::<Latch>::default(), Arc::<Latch>::default());
        let (daemon, own, until, ended) = (self.clone(), seat.clone(), release.clone(), released.clone());
        self.how.seams.spawn("replica.member", async move {
            daemon.host(&own, &until).await;
            ended.set();
        });
        Hosted {
            seat,
            is_formatted: false,
            nids: Vec::new(),
            failed: None,
            is_open: false,
            release,
            released,
        }
    }

    fn set(&self, seat: &Arc<Seat>, change: impl FnOnce(&mut Hosted)) {
        let mut hosted = self.hosted.lock();
        let target = seat.set().target;
        // A released member may have a successor by now.
        if let Some(hosted) = hosted.get_mut(&target).filter(|hosted| Arc::ptr_eq(&hosted.seat, seat)) {
            change(hosted);
        }
        drop(hosted);
        self.changes.send_modify(|n| *n += 1);
    }

    fn fail(&self, seat: &Arc<Seat>, fault: Fault) {
        tracing::error!(code = %fault.code, target_name = %self.fs.target(seat.set().target), "{fault}");
        self.set(seat, |hosted| {
            hosted.failed = Some(Box::new(fault));
            hosted.is_open = false;
        });
    }

    /// Serves one member for as long as this host has it.
    async fn host(self: &Arc<Self>, seat: &Arc<Seat>, release: &Latch) {
        let (mut pause_ms, mut busy) = (RETRY_MS.0, 0);
        while !release.is_set() {
            match self.serve(seat, release).await {
                Ok(()) => pause_ms = RETRY_MS.0,
                Err(Trouble::Again(fault)) if matches!(fault.code, Code::NotPrimary | Code::NotOwner) => {
                    tracing::info!(code = %fault.code, target_name = %self.fs.target(seat.set().target), "{fault}");
                    self.set(seat, |hosted| hosted.is_open = false);
                }
                // If the target has just become a replica set, its single server is still being stopped.
                Err(Trouble::Again(fault)) if fault.code == Code::TargetBusy && busy < BUSY_TRIES => {
                    busy += 1;
                    release.until(self.how.seams.sleep_ms(RETRY_MS.0)).await;
                }
                Err(Trouble::Again(fault)) => {
                    self.fail(seat, fault);
                    let set = seat.set();
                    let mut orders = seat.subscribe();
                    let other = orders.wait_for(|now| *now != set);
                    release.until(self.how.seams.timeout_ms(pause_ms, other)).await;
                    pause_ms = (pause_ms * 2).min(RETRY_MS.1);
                }
                Err(Trouble::Never(fault)) => {
                    self.fail(seat, fault);
                    return release.wait().await;
                }
            }
        }
    }

    /// Formats or opens the member until it is to be something else; fails when it cannot.
    async fn serve(self: &Arc<Self>, seat: &Arc<Seat>, release: &Latch) -> std::result::Result<(), Trouble> {
        let set = seat.set();
        let Some(member) = set.member(&seat.host).cloned() else {
            release.wait().await;
            return Ok(());
        };
        let order = Assignment {
            target: set.target,
            uuid: set.uuid,
            dir: member.dir.clone(),
            port: set.port,
            is_formatted: member.is_formatted,
            is_wanted: true,
        };
        if !order.is_formatted {
            let spare_dir = spare::dir_of(&self.mgs, &self.how.host).await?;
            spare::check(&order.dir, spare_dir.as_deref())?;
        }
        prepare(&self.how, &self.fs, &self.mgs, &order).await?;
        // A member that failed stays failed until it is open again: whoever looks between two tries sees why it is not.
        self.set(seat, |hosted| {
            hosted.is_formatted = true;
            hosted.failed = hosted.failed.take().filter(|_| member.is_formatted);
        });
        if !member.is_formatted {
            // The MGS notes the format, and sends a new set.
            let mut orders = seat.subscribe();
            let host = seat.host.clone();
            let noted = orders.wait_for(|now| now.member(&host).is_none_or(|m| m.is_formatted));
            release.until(noted).await;
            return Ok(());
        }
        let found = LockedTarget::lock(Path::new(&order.dir), &self.how.seams)?;
        check_port(&self.how, order.port)?;
        let mut spoiled = Spoiled(Some(found));
        let Some(found) = spoiled.found() else { return Ok(()) };
        let how = How { seat: Some(seat.clone()), ..self.how.clone() };
        let service = tokio::select! {
            biased;
            () = release.wait() => return Err(Trouble::half_started(order.target)),
            started = service::start(&how, found, order.port) => started.map_err(|fault| match fault.code {
                // No store was opened.
                Code::OlderSet => {
                    self.compare_record(&set, &order.dir);
                    Trouble::Again(fault)
                }
                // A failed start of an MDT or an OST leaves nothing running.
                _ => Trouble::Again(fault),
            }),
        };
        let service = match service {
            Ok(service) => service,
            Err(Trouble::Again(fault)) => {
                spoiled.nothing_is_left();
                return Err(Trouble::Again(fault));
            }
            Err(never) => return Err(never),
        };
        self.served(seat, service, release, &mut spoiled).await
    }

    async fn served(
        self: &Arc<Self>,
        seat: &Arc<Seat>,
        service: Service,
        release: &Latch,
        spoiled: &mut Spoiled,
    ) -> std::result::Result<(), Trouble> {
        let listens = self.how.listens(service.nid().port)?;
        let advertised = self.how.advertised(&listens)?;
        let nids = if advertised.is_empty() { listens } else { advertised };
        self.shows.served(&service);
        self.set(seat, |hosted| {
            hosted.nids = nids;
            hosted.failed = None;
            hosted.is_open = true;
        });
        let name = self.fs.target(seat.set().target);
        tracing::info!(target_name = %name, "a member of a replica set is open");
        let dir = spoiled.found().map(|found| found.dir.clone()).unwrap_or_default();
        let (closed, hung) = (Arc::<Latch>::default(), watch::Sender::new(None));
        let mut hangs = hung.subscribe();
        self.watch_disk(seat, (dir, closed.clone()), hung);
        let failed = tokio::select! {
            biased;
            () = release.wait() => None,
            fault = service.until_failed() => Some(fault),
            Ok(fault) = hangs.wait_for(Option::is_some) => fault.clone(),
        };
        // The MGS hears of the failure before the rest is stopped, which takes long on a failing disk: another member can take over
        // meanwhile.
        let broken = failed.clone().filter(|fault| !matches!(fault.code, Code::NotPrimary | Code::NotOwner));
        self.set(seat, |hosted| {
            hosted.is_open = false;
            hosted.failed = broken.map(Box::new);
        });
        self.shows.ended(&name);
        let ended = match failed {
            Some(fault) if fault.code == Code::DiskHangs => {
                self.outlast(service, fault, release, spoiled).await
            }
            failed => end(&self.how.seams, service, failed, spoiled).await,
        };
        // A member that was deposed because its disk hangs is told as such while it stops.
        closed.set();
        ended
    }

    /// Watches the disk of a member until it is closed. A fault is told to the MGS at once, and to whoever serves the member.
    fn watch_disk(
        self: &Arc<Self>,
        seat: &Arc<Seat>,
        (dir, closed): (String, Arc<Latch>),
        hung: watch::Sender<Option<Fault>>,
    ) {
        let (daemon, seat) = (self.clone(), seat.clone());
        self.control.seams.spawn("replica.disk", async move {
            let can_another_go_on = || {
                let set = seat.set();
                set.primary != seat.host || set.in_sync().any(|member| member.host != seat.host)
            };
            let bad = disk_watch::until_bad(&daemon.control.seams, &dir, can_another_go_on);
            let Some(fault) = closed.until(bad).await else { return };
            daemon.fail(&seat, fault.clone());
            hung.send_replace(Some(fault));
            // Whoever serves the member may see it only when the disk answers again.
            closed.wait().await;
        });
    }

    /// Stops a member whose disk hangs: parts of it wait for the disk, however long that takes. Then the member is opened again.
    async fn outlast(
        &self,
        service: Service,
        fault: Fault,
        release: &Latch,
        spoiled: &mut Spoiled,
    ) -> std::result::Result<(), Trouble> {
        let (seams, remains) = (&self.how.seams, service.remains());
        let stopped = release.until(async {
            let stopped = service.stop().await;
            while !remains.are_gone() {
                seams.sleep_ms(GONE_LOOK_MS).await;
            }
            stopped
        });
        let Some(stopped) = stopped.await else { return Err(Trouble::never(fault)) };
        if let Err(other) = stopped {
            tracing::warn!(code = %other.code, "the disk answers again: {other}");
        }
        spoiled.nothing_is_left();
        Err(Trouble::Again(fault))
    }
}
