//! The daemon of a host: serves the targets that the cluster assigns to it.
//!
//! The daemon asks the MGS what to serve, with a long poll, and reports the state of its targets. Each target has a task of its own:
//!
//! ```text
//! starting -> serving -> failed -> (pause) -> starting
//!    |  ^                   ^
//!    |  `- wanted           `- cannot be formatted or started
//!    `---- not wanted -> stopped
//! ```
//!
//! Formatting is a step by itself. The MGS chooses the identity; the daemon makes the target and reports it. The target is served only when
//! the MGS has noted that it exists. From then on an empty directory is a disk that is not mounted, and never formatted again.
//!
//! A daemon that loses the MGS goes on serving what it serves.
//!
//! A daemon also asks whether it is to start anew ([`Daemon::until_restart`]). If so, whoever runs the daemon stops everything in order and
//! begins again, with the program that is installed by then.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use brindle_net::SOFTWARE;
use brindle_net::latch::Latch;
use brindle_stdx::watch;
use brindle_targets::Directory;
use brindle_types::{Code, Fault, FsName, Role, TargetId};
use brindle_wire::mgs::hosts::{
    Assignment, HostedState, HostedTarget, ReportHostReq, TakeOrdersReq, WatchHostReq,
};
use parking_lot::Mutex;

use crate::hosting::{Spoiled, Trouble, check_port, end, prepare};
use crate::replica::{Control, ReplicaDaemon};
use crate::service::{self, How, LockedTarget, Service};
use crate::shared::daemon::SharedDaemon;

/// Longest time that the MGS holds a request.
const POLL_MS: u32 = 5_000;
/// Additional time for the answer.
const GRACE_MS: u64 = 5_000;
/// Pause after a question that was not answered.
const PAUSE_MS: u64 = 1_000;
/// Pause after an MGS has said that it knows of no orders: it is of an earlier release.
const NO_ORDERS_PAUSE_MS: u64 = 60_000;
/// Longest time between two reports.
const REPORT_EVERY_MS: u64 = 5_000;
/// Pauses before a target that failed is tried again: the first, and the longest.
const RETRY_MS: (u64, u64) = (500, 30_000);
/// A target that was served for this long starts again with the first pause.
const STEADY_MS: u64 = 60_000;

/// Publisher of the metrics of targets.
pub trait Shows: Send + Sync {
    /// A target is served.
    fn served(&self, service: &Service);
    /// A target is served no more; its full name.
    fn ended(&self, name: &str);
}

/// The daemon.
pub struct Daemon {
    how: How,
    mgs: Arc<Directory>,
    fs: FsName,
    shows: Arc<dyn Shows>,
    hosted: Mutex<BTreeMap<TargetId, Hosted>>,
    /// Targets that are no longer this host's, and are not stopped yet.
    releasing: Mutex<Vec<Arc<Latch>>>,
    /// Rises with every change of a state.
    changes: watch::Sender<u64>,
    stop: Latch,
    failed: watch::Sender<Option<Fault>>,
    /// Set when this daemon is to start anew.
    restart: Latch,
    /// Set when an administrator has given this host another name.
    renamed: Latch,
    shared: Arc<SharedDaemon>,
    replicas: Arc<ReplicaDaemon>,
}

/// A target of this host.
struct Hosted {
    order: watch::Sender<Assignment>,
    state: HostedTarget,
    /// Set when the target is no longer assigned to this host, or the daemon ends.
    release: Arc<Latch>,
    /// Set when no part of the target runs any more.
    released: Arc<Latch>,
}

impl Daemon {
    /// Begins to serve what the MGS says.
    pub fn start(
        how: How,
        (mgs, control): (Arc<Directory>, Control),
        fs: FsName,
        shows: Arc<dyn Shows>,
    ) -> Arc<Daemon> {
        let seams = how.seams.clone();
        let shared = SharedDaemon::start(how.clone(), mgs.clone(), fs.clone(), shows.clone());
        let replicas = ReplicaDaemon::start(how.clone(), (mgs.clone(), control), fs.clone(), shows.clone());
        let daemon = Arc::new(Daemon {
            shared,
            replicas,
            how,
            mgs,
            fs,
            shows,
            hosted: Mutex::default(),
            releasing: Mutex::default(),
            changes: watch::Sender::new(0),
            stop: Latch::default(),
            failed: watch::Sender::default(),
            restart: Latch::default(),
            renamed: Latch::default(),
        });
        let (asking, telling, taking) = (daemon.clone(), daemon.clone(), daemon.clone());
        seams.spawn("daemon.ask", async move {
            asking.stop.until(asking.clone().ask()).await;
        });
        seams.spawn("daemon.tell", async move {
            telling.stop.until(telling.tell()).await;
        });
        seams.spawn("daemon.orders", async move {
            taking.stop.until(taking.take_orders()).await;
        });
        daemon
    }

    /// Completes when this host is no longer in the cluster; returns the reason.
    pub async fn until_failed(&self) -> Fault {
        let mut failed = self.failed.subscribe();
        // `wait_for` only fails when the sender is gone, which `self` holds.
        let fault = failed.wait_for(Option::is_some).await.ok().and_then(|fault| fault.clone());
        fault.unwrap_or_else(|| Fault::new(Code::Shutdown))
    }

    /// Completes when an administrator wants this daemon to start anew.
    pub async fn until_restart(&self) {
        self.restart.wait().await;
    }

    /// Completes when an administrator has given this host another name, which its certificate does not have yet.
    pub async fn until_renamed(&self) {
        self.renamed.wait().await;
    }

    /// Asks for orders until an order has come.
    async fn take_orders(&self) {
        let request = TakeOrdersReq { start: self.how.seams.rng.next_u64(), wait_ms: POLL_MS };
        loop {
            let asked = self.mgs.mgs().probe(&request);
            let since = self.how.seams.now();
            match self.how.seams.timeout_ms(u64::from(POLL_MS) + GRACE_MS, asked).await {
                Some(Ok(answer)) if answer.restart => return self.restart.set(),
                Some(Ok(_)) if self.how.seams.now().ms_since(since) >= PAUSE_MS => {}
                Some(Err(fault)) if fault.code == Code::UnknownOp => {
                    self.how.seams.sleep_ms(NO_ORDERS_PAUSE_MS).await;
                }
                // The task that asks for targets finds another MGS if this one is silent.
                _ => self.how.seams.sleep_ms(PAUSE_MS).await,
            }
        }
    }

    /// Stops all targets; their stores are synced and closed.
    pub async fn stop(&self) {
        self.stop.set();
        tokio::join!(self.shared.stop(), self.replicas.stop(), self.stop_own());
    }

    async fn stop_own(&self) {
        let hosted = std::mem::take(&mut *self.hosted.lock());
        hosted.values().for_each(|hosted| hosted.release.set());
        let released = std::mem::take(&mut *self.releasing.lock());
        for released in hosted.values().map(|hosted| &hosted.released).chain(&released) {
            released.wait().await;
        }
    }

    /// States of all targets.
    fn states(&self) -> Vec<HostedTarget> {
        self.hosted.lock().values().map(|hosted| hosted.state.clone()).collect()
    }

    async fn ask(self: Arc<Self>) {
        let mut known_version = 0;
        loop {
            let request = WatchHostReq { known_version, wait_ms: POLL_MS };
            let asked = self.mgs.mgs().probe(&request);
            let patience_ms = u64::from(POLL_MS) + GRACE_MS;
            let since = self.how.seams.now();
            match self.how.seams.timeout_ms(patience_ms, asked).await {
                Some(Ok(answer)) => {
                    if answer.version == known_version && self.how.seams.now().ms_since(since) < PAUSE_MS {
                        // Too many hosts wait at the MGS.
                        self.how.seams.sleep_ms(PAUSE_MS).await;
                    }
                    known_version = answer.version;
                    if let Some(assignments) = answer.assignments {
                        self.take(assignments);
                    }
                }
                Some(Err(fault)) => self.unanswered(fault).await,
                None => {
                    self.look_at_refusal();
                    self.mgs.map().mgs_is_silent();
                }
            }
        }
    }

    async fn unanswered(&self, fault: Fault) {
        if fault.code == Code::HostRemoved {
            self.failed.send_replace(Some(fault));
        } else if fault.code == Code::HostRenamed {
            self.renamed.set();
        } else {
            // A short absence of the MGS is no trouble; an MGS that does not know this host is.
            match fault.code {
                Code::Disconnected => tracing::debug!("cannot ask the MGS what to serve: {fault}"),
                code => tracing::warn!(%code, "cannot ask the MGS what to serve: {fault}"),
            }
            self.look_at_refusal();
        }
        self.how.seams.sleep_ms(PAUSE_MS).await;
    }

    /// A removed host does not get as far as an answer: its hello is refused.
    fn look_at_refusal(&self) {
        let last = self.mgs.mgs().peer().state().last_error;
        if let Some(fault) = last.filter(|fault| fault.code == Code::HostRemoved) {
            self.failed.send_replace(Some(fault));
        }
    }

    /// Reports all targets to the MGS, after each change and from time to time.
    async fn tell(&self) {
        let mut changes = self.changes.subscribe();
        loop {
            let seen = *changes.borrow_and_update();
            let report = ReportHostReq { software: SOFTWARE.to_owned(), targets: self.states() };
            let told = self.how.seams.timeout_ms(GRACE_MS, self.mgs.mgs().probe(&report)).await;
            let pause_ms = if matches!(told, Some(Ok(_))) { REPORT_EVERY_MS } else { PAUSE_MS };
            let newer = changes.wait_for(|now| *now > seen);
            // When the time is over, the daemon reports again.
            let _ = self.how.seams.timeout_ms(pause_ms, newer).await;
        }
    }

    /// Starts and stops targets as the MGS orders.
    fn take(self: &Arc<Self>, assignments: Vec<Assignment>) {
        let mut hosted = self.hosted.lock();
        if self.stop.is_set() {
            return;
        }
        let mut releasing = self.releasing.lock();
        releasing.retain(|released| !released.is_set());
        let wanted: BTreeMap<TargetId, Assignment> = assignments.into_iter().map(|a| (a.target, a)).collect();
        hosted.retain(|target, hosted| {
            let stays = wanted.get(target).is_some_and(|a| a.uuid == hosted.state.uuid);
            if !stays {
                tracing::info!(target_name = %self.fs.target(*target), "is not assigned to this host any more");
                hosted.release.set();
                releasing.push(hosted.released.clone());
            }
            stays
        });
        for (target, assignment) in wanted {
            match hosted.get(&target) {
                Some(known) => {
                    known.order.send_if_modified(|order| {
                        let differs = *order != assignment;
                        *order = assignment;
                        differs
                    });
                }
                None => drop(hosted.insert(target, self.begin(assignment))),
            }
        }
        drop(hosted);
        self.changed();
    }

    fn changed(&self) {
        self.changes.send_modify(|n| *n += 1);
    }

    fn begin(self: &Arc<Self>, assignment: Assignment) -> Hosted {
        let Assignment { target, uuid, is_formatted, .. } = assignment;
        let state = HostedTarget { target, uuid, is_formatted, state: HostedState::Starting };
        let (order, orders) = watch::channel(assignment);
        let (release, released) = (Arc::<Latch>::default(), Arc::<Latch>::default());
        let (daemon, until, ended) = (self.clone(), release.clone(), released.clone());
        self.how.seams.spawn("daemon.target", async move {
            daemon.host(orders, until).await;
            ended.set();
        });
        Hosted { order, state, release, released }
    }

    fn set(&self, order: &Assignment, is_formatted: Option<bool>, state: HostedState) {
        if let HostedState::Failed(fault) = &state {
            tracing::error!(code = %fault.code, target_name = %self.fs.target(order.target), "{fault}");
        }
        let mut hosted = self.hosted.lock();
        // A released target may have a successor by now.
        if let Some(hosted) = hosted.get_mut(&order.target).filter(|hosted| hosted.state.uuid == order.uuid) {
            hosted.state.state = state;
            hosted.state.is_formatted = is_formatted.unwrap_or(hosted.state.is_formatted);
        }
        drop(hosted);
        self.changed();
    }

    /// Serves one target for as long as it is assigned to this host.
    async fn host(&self, mut orders: watch::Receiver<Assignment>, release: Arc<Latch>) {
        let mut pause_ms = RETRY_MS.0;
        while !release.is_set() {
            let order = orders.borrow_and_update().clone();
            if !order.is_wanted {
                self.set(&order, None, HostedState::Stopped);
                release.until(orders.changed()).await;
                continue;
            }
            let since = self.how.seams.now();
            let failure = match self.serve(&order, &mut orders, &release).await {
                Ok(()) => {
                    pause_ms = RETRY_MS.0;
                    continue;
                }
                Err(Trouble::Again(fault)) => fault,
                Err(Trouble::Never(fault)) => {
                    self.set(&order, None, HostedState::Failed(Box::new(fault)));
                    return release.wait().await;
                }
            };
            self.set(&order, None, HostedState::Failed(Box::new(failure)));
            if self.how.seams.now().ms_since(since) > STEADY_MS {
                pause_ms = RETRY_MS.0;
            }
            // A changed order is tried at once.
            let other = orders.wait_for(|now| *now != order);
            release.until(self.how.seams.timeout_ms(pause_ms, other)).await;
            pause_ms = (pause_ms * 2).min(RETRY_MS.1);
        }
    }

    /// Formats or serves the target until the order changes; fails when it cannot.
    async fn serve(
        &self,
        order: &Assignment,
        orders: &mut watch::Receiver<Assignment>,
        release: &Latch,
    ) -> std::result::Result<(), Trouble> {
        self.set(order, None, HostedState::Starting);
        prepare(&self.how, &self.fs, &self.mgs, order).await?;
        if !order.is_formatted {
            self.set(order, Some(true), HostedState::Starting);
            // The MGS notes the format, and sends a new order.
            let noted = orders.wait_for(|now| now != order);
            release.until(noted).await;
            return Ok(());
        }
        let found = LockedTarget::lock(Path::new(&order.dir), &self.how.seams)?;
        check_port(&self.how, order.port)?;
        // From here on parts of the target may go on in this process: no other process may have the directory
        // before they are gone.
        let mut spoiled = Spoiled(Some(found));
        let Some(found) = spoiled.found() else { return Ok(()) };
        let starting = service::start(&self.how, found, order.port);
        let other = async {
            // The sender lives as long as the target is assigned to this host.
            let _ = orders.wait_for(|now| !now.is_wanted || now.port != order.port).await;
        };
        let mut other = std::pin::pin!(other);
        let service = tokio::select! {
            biased;
            () = release.wait() => return Err(Trouble::half_started(order.target)),
            () = &mut other => return Err(Trouble::half_started(order.target)),
            started = starting => started,
        };
        let service = match service {
            Ok(service) => service,
            // A failed start of an MDT or an OST leaves nothing running.
            Err(fault) if order.target.role != Role::Mgt => {
                spoiled.nothing_is_left();
                return Err(Trouble::Again(fault));
            }
            Err(fault) => return Err(Trouble::never(fault)),
        };
        self.shows.served(&service);
        let name = found.superblock.name();
        tracing::info!(target_name = %name, nid = %service.nid(), dir = %found.dir, "serving");
        self.set(order, None, HostedState::Serving);
        let failed = tokio::select! {
            biased;
            () = release.wait() => None,
            () = other => None,
            fault = service.until_failed() => Some(fault),
        };
        self.shows.ended(&name);
        end(&self.how.seams, service, failed, &mut spoiled).await
    }
}
