//! [`SimHost`]: the daemon of a simulated host that has a member of a replica set. It does what `brindle-host` does for a real one
//! (`replica.rs` there): reports to the MGS a few times a second, formats a new member once, opens it, makes it the primary or a follower as the
//! set says, and watches its disk.

use std::sync::{Arc, Weak};

use brindle_config::Superblock;
use brindle_mds::replica::following::FollowerService;
use brindle_mds::replica::{Follower, check_disk, follow, leads};
use brindle_stdx::disk::OpenHow;
use brindle_stdx::{Seams, watch};
use brindle_targets::replica::Seat;
use brindle_targets::{Directory, Introduction, OwnerLease, Plain};
use brindle_types::{Code, Fault, Role};
use brindle_wire::mgs::replica::{KeepReplicasReq, MemberPhase, MemberReport, ReplicaSetState};
use parking_lot::Mutex;

use crate::cluster::{TARGET_DIR, fs_name, nid};
use crate::sim::NodeSeams;

/// Longest time that the MGS holds a request of a host with members.
const KEEP_MS: u32 = 300;
/// Time beyond that after which the MGS counts as silent, and the pause after an error of it.
const GRACE_MS: u64 = 2_000;
const PAUSE_MS: u64 = 250;
/// Pauses before a member that failed is tried again: the first, and the longest.
const RETRY_MS: (u64, u64) = (500, 10_000);
/// Interval of looks at what is left of a service.
const GONE_LOOK_MS: u64 = 10;
/// The watch of the disk: its interval, and the time after which a disk hangs.
const WATCH_EVERY_MS: u64 = 1_000;
const HANGS_MS: u64 = 5_000;

/// An opening of the member as the primary.
#[derive(Clone)]
pub struct Opening {
    /// Its term, where the target has one for each opening.
    pub term: Option<u32>,
    /// Its right to answer.
    pub lease: Arc<OwnerLease>,
}

struct State {
    seat: Option<Arc<Seat>>,
    is_formatted: bool,
    is_open: bool,
    failed: Option<Box<Fault>>,
    /// Openings as the primary since the last look.
    openings: Vec<Opening>,
}

/// See the module.
pub struct SimHost {
    node: NodeSeams,
    mgs: Arc<Directory>,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

/// A member that is open.
enum Service {
    Primary(Box<brindle_mds::Handle>),
    Follower(Box<Follower>),
    /// An OST, whatever its part.
    Ost(Box<brindle_oss::Handle>),
}

/// Parts of a stopped member that still exist.
enum Remains {
    Primary(Weak<brindle_mds::mdt::Mdt>),
    Follower(Weak<FollowerService>),
    Ost(Weak<brindle_oss::Oss>),
}

impl Service {
    async fn until_failed(&self) -> Fault {
        match self {
            Service::Primary(handle) => handle.until_failed().await,
            Service::Follower(follower) => follower.until_failed().await,
            Service::Ost(handle) => handle.until_failed().await,
        }
    }

    /// Stops it, and waits until nothing of it is left.
    async fn stop(self, seams: &Seams) {
        let remains = match &self {
            Service::Primary(handle) => Remains::Primary(Arc::downgrade(handle.mdt())),
            Service::Follower(follower) => Remains::Follower(Arc::downgrade(follower.service())),
            Service::Ost(handle) => Remains::Ost(Arc::downgrade(handle.oss())),
        };
        let stopped = match self {
            Service::Primary(handle) => handle.close().await,
            Service::Follower(follower) => follower.stop().await,
            Service::Ost(handle) => handle.close().await,
        };
        if let Err(fault) = stopped {
            tracing::warn!(code = %fault.code, "stopped with an error: {fault}");
        }
        loop {
            let count = match &remains {
                Remains::Primary(mdt) => mdt.strong_count(),
                Remains::Follower(service) => service.strong_count(),
                Remains::Ost(oss) => oss.strong_count(),
            };
            if count == 0 {
                return;
            }
            seams.sleep_ms(GONE_LOOK_MS).await;
        }
    }
}

impl SimHost {
    /// Starts the daemon on an incarnation of a node.
    pub fn start(node: &NodeSeams) -> Arc<SimHost> {
        let mgs = Directory::new(
            &node.seams,
            node.transport.clone(),
            Introduction::agent(&node.name),
            Arc::new(Plain),
            vec![nid("mgs")],
            fs_name(),
            0,
        );
        let state =
            State { seat: None, is_formatted: false, is_open: false, failed: None, openings: Vec::new() };
        let host = Arc::new(SimHost {
            node: node.clone(),
            mgs,
            state: Mutex::new(state),
            changes: watch::Sender::new(0),
        });
        let own = host.clone();
        node.seams.spawn("daemon.keep", async move { own.keep().await });
        host
    }

    /// The set as this host knows it.
    pub fn set(&self) -> Option<ReplicaSetState> {
        self.state.lock().seat.as_ref().map(|seat| seat.set())
    }

    /// Openings as the primary since the last call.
    pub fn take_openings(&self) -> Vec<Opening> {
        std::mem::take(&mut self.state.lock().openings)
    }

    /// Phase of the member, and why it cannot be served.
    pub fn phase(&self) -> String {
        let state = self.state.lock();
        match (&state.failed, &state.seat) {
            (Some(fault), _) => format!("failed: {fault}"),
            (None, Some(seat)) if state.is_open => format!("{:?}", seat.told().phase),
            _ => "not open".to_owned(),
        }
    }

    fn reports(&self) -> Vec<MemberReport> {
        let state = self.state.lock();
        let Some(seat) = &state.seat else { return Vec::new() };
        let (set, told) = (seat.set(), seat.told());
        vec![MemberReport {
            target: set.target,
            uuid: set.uuid,
            epoch: set.epoch,
            is_formatted: state.is_formatted,
            boot_term: if state.is_open { told.boot_term } else { 0 },
            recorded_epoch: told.recorded_epoch,
            nids: vec![nid(&self.node.name)],
            phase: match &state.failed {
                Some(fault) => MemberPhase::Failed(fault.clone()),
                None if state.is_open => told.phase,
                None => MemberPhase::Starting,
            },
            resyncs: if state.is_open { told.resyncs } else { Vec::new() },
            mended_blocks: 0,
        }]
    }

    async fn keep(self: Arc<Self>) {
        let (seams, mut changes, mut known_version) = (&self.node.seams, self.changes.subscribe(), 0);
        loop {
            changes.borrow_and_update();
            let request = KeepReplicasReq { known_version, wait_ms: KEEP_MS, members: self.reports() };
            let asked = seams.timeout_ms(u64::from(KEEP_MS) + GRACE_MS, self.mgs.mgs().probe(&request));
            let answer = tokio::select! {
                biased;
                answer = asked => answer,
                _ = changes.changed() => continue,
            };
            match answer {
                Some(Ok(answer)) => {
                    known_version = answer.version;
                    answer.sets.into_iter().flatten().for_each(|set| self.take(set));
                }
                Some(Err(fault)) => {
                    tracing::debug!(node = %self.node.name, "the MGS does not answer: {fault}");
                    seams.sleep_ms(PAUSE_MS).await;
                }
                None => self.mgs.map().mgs_is_silent(),
            }
        }
    }

    fn take(self: &Arc<Self>, set: ReplicaSetState) {
        if let Some(seat) = &self.state.lock().seat {
            return seat.offer(set);
        }
        let seat = Arc::new(Seat::new(&self.node.name, set, self.node.seams.now()));
        self.state.lock().seat = Some(seat.clone());
        let own = self.clone();
        self.node.seams.spawn("daemon.member", async move { own.host(&seat).await });
    }

    fn set_state(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changes.send_modify(|n| *n += 1);
    }

    async fn host(&self, seat: &Arc<Seat>) {
        let mut pause_ms = RETRY_MS.0;
        loop {
            match self.serve(seat).await {
                Ok(()) => pause_ms = RETRY_MS.0,
                Err(fault) if matches!(fault.code, Code::NotPrimary | Code::NotOwner) => {
                    self.set_state(|state| state.is_open = false);
                }
                Err(fault) => {
                    tracing::warn!(node = %self.node.name, code = %fault.code, "{fault}");
                    self.set_state(|state| {
                        state.failed = Some(Box::new(fault));
                        state.is_open = false;
                    });
                    let set = seat.set();
                    let mut orders = seat.subscribe();
                    let other = orders.wait_for(|now| *now != set);
                    // A new order, or the end of the pause: both mean to try again.
                    let _ = self.node.seams.timeout_ms(pause_ms, other).await;
                    pause_ms = (pause_ms * 2).min(RETRY_MS.1);
                }
            }
        }
    }

    /// Formats the member if it is new.
    async fn prepare(&self, set: &ReplicaSetState, is_formatted: bool) -> Result<(), Fault> {
        let seams = &self.node.seams;
        if Superblock::exists(&*seams.disk, TARGET_DIR)? {
            return Ok(());
        }
        if is_formatted {
            return Err(Fault::new(Code::NotATarget).subject(TARGET_DIR));
        }
        let cannot = |e| Fault::io(Code::NotWritable, "cannot make", TARGET_DIR, &e);
        seams.disk.create_dir_all(TARGET_DIR).map_err(cannot)?;
        seams.disk.sync_dir("/").map_err(cannot)?;
        let mut superblock =
            Superblock::new(fs_name(), set.target, vec![nid("mgs")], seams.wall(), &*seams.rng);
        superblock.uuid = set.uuid;
        match set.target.role {
            Role::Ost => superblock.save(&*seams.disk, TARGET_DIR),
            Role::Mdt | Role::Mgt => brindle_mds::format_as(seams, TARGET_DIR, superblock).await.map(drop),
        }
    }

    /// Opens the member in the part that the set gives it.
    async fn open(&self, seat: &Arc<Seat>) -> Result<Service, Fault> {
        let (seams, transport, name) = (&self.node.seams, self.node.transport.clone(), &self.node.name);
        if seat.set().target.role == Role::Ost {
            let mut config = brindle_oss::Config::new(TARGET_DIR, nid(name), name.clone());
            config.seat = Some(seat.clone());
            let handle = brindle_oss::start(config, seams.clone(), transport).await?;
            let opening = handle.lease().map(|lease| Opening { term: None, lease });
            self.state.lock().openings.extend(opening);
            return Ok(Service::Ost(Box::new(handle)));
        }
        let mut config = brindle_mds::Config::new(TARGET_DIR, nid(name), name.clone());
        config.seat = Some(seat.clone());
        check_disk(seams, TARGET_DIR, seat)?;
        if !leads(seat) {
            return Ok(Service::Follower(Box::new(follow(config, seams.clone(), transport).await?)));
        }
        let handle = brindle_mds::start(config, seams.clone(), transport).await?;
        let (term, lease) = (Some(handle.mdt().numbers().term()), handle.lease());
        self.state.lock().openings.extend(lease.map(|lease| Opening { term, lease }));
        Ok(Service::Primary(Box::new(handle)))
    }

    /// Opens the member until it is to be something else; fails when it cannot.
    async fn serve(&self, seat: &Arc<Seat>) -> Result<(), Fault> {
        let (seams, set) = (&self.node.seams, seat.set());
        let Some(member) = set.member(&self.node.name).cloned() else {
            return Err(Fault::new(Code::UnknownTarget));
        };
        self.prepare(&set, member.is_formatted).await?;
        self.set_state(|state| state.is_formatted = true);
        if !member.is_formatted {
            let mut orders = seat.subscribe();
            let host = self.node.name.clone();
            // The sender lives as long as the seat.
            let _ = orders.wait_for(|now| now.member(&host).is_none_or(|m| m.is_formatted)).await;
            return Ok(());
        }
        let service = self.open(seat).await?;
        self.set_state(|state| {
            state.failed = None;
            state.is_open = true;
        });
        let failed = tokio::select! {
            biased;
            fault = service.until_failed() => fault,
            fault = self.until_disk_hangs(seat) => fault,
        };
        let broken = !matches!(failed.code, Code::NotPrimary | Code::NotOwner);
        self.set_state(|state| {
            state.is_open = false;
            state.failed = broken.then(|| Box::new(failed.clone()));
        });
        service.stop(seams).await;
        Err(failed)
    }

    /// Completes when the disk hangs or fails while another member can go on.
    async fn until_disk_hangs(&self, seat: &Seat) -> Fault {
        let seams = &self.node.seams;
        let can_another_go_on = || {
            let set = seat.set();
            set.primary != seat.host || set.in_sync().any(|member| member.host != seat.host)
        };
        let path = format!("{TARGET_DIR}/disk-watch");
        loop {
            let mut writing = std::pin::pin!(async {
                let file = seams.disk.open(&path, OpenHow::OpenOrCreate)?;
                file.write_at(&[0; 512], 0)?;
                file.sync_data_async().await
            });
            loop {
                match seams.timeout_ms(HANGS_MS, &mut writing).await {
                    Some(Ok(())) => break,
                    Some(Err(e)) if can_another_go_on() => {
                        return Fault::io(Code::OstIo, "cannot write to the disk of", TARGET_DIR, &e);
                    }
                    Some(Err(_)) => break,
                    None if can_another_go_on() => return Fault::new(Code::DiskHangs).subject(TARGET_DIR),
                    None => {}
                }
            }
            seams.sleep_ms(WATCH_EVERY_MS).await;
        }
    }
}
