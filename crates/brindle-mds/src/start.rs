//! Serves a formatted MDT: opens it, listens, registers, runs its background work.

use std::sync::Arc;

use brindle_config::Superblock;
use brindle_kv::DurabilityMode;
use brindle_net::Transport;
use brindle_stdx::Seams;
use brindle_targets::durability::TargetMode;
use brindle_targets::{Gate, Member, OwnerLease, ServedTarget, member};
use brindle_types::{Fault, Nid, Result, Role};
use brindle_wire::Op;
use brindle_wire::mgs::durability::Mode;

use crate::cluster::{self, OstTargets};
use crate::config::{Config, Identity};
use crate::connections::Connections;
use crate::mdt::Mdt;
use crate::osts::Osts;
use crate::replica::leading::{self, Led};
use crate::scrub::{self, Around};
use crate::service::MdsService;
use crate::store::Engine;
use crate::{background, changelog, expire, hsm, recovery, replica};

/// A running MDT; stops when dropped.
pub struct Handle {
    member: Member,
    service: Arc<MdsService>,
    /// Primary's part, if the MDT is the primary of a replica set.
    led: Option<Led>,
}

/// An orderly end waits this long for the other members of the replica set.
const CLOSE_LIMIT_MS: u64 = 5_000;

impl Handle {
    /// The address, with the port that was chosen.
    pub fn local_nid(&self) -> &Nid {
        self.member.local_nid()
    }

    /// Name of the target: `scratch-MDT0000`.
    pub fn name(&self) -> String {
        self.service.mdt().identity().name()
    }

    /// The MDT, for status, metrics and tests.
    pub fn mdt(&self) -> &Arc<Mdt> {
        self.service.mdt()
    }

    /// The gate in front of the service.
    pub fn gate(&self) -> &Arc<Gate> {
        self.service.gate()
    }

    /// The right to answer of the primary of a replica set; `None` for the only copy.
    pub fn lease(&self) -> Option<Arc<OwnerLease>> {
        self.led.as_ref().map(|led| led.0.lease())
    }

    /// Counters of its connections.
    pub fn server_stats(&self) -> brindle_net::ServerStats {
        self.member.server_stats()
    }

    /// Requests by client, user and job.
    pub fn usage(&self) -> &Arc<brindle_net::usage::Usage> {
        self.member.usage()
    }

    /// Sharing between jobs, and limits.
    pub fn fair(&self) -> Option<&Arc<brindle_net::Fair>> {
        self.member.fair()
    }

    /// Completes when the MDT can no longer serve (its log failed, the MGS refuses it, there is one of a later term), with the reason.
    pub async fn until_failed(&self) -> Fault {
        self.member.until_failed().await
    }

    /// Completes when the MGS knows the MDT under its address.
    pub async fn until_registered(&self) {
        self.member.until_registered().await;
    }

    /// Stops in order: connections first, then the store is synced and closed.
    pub async fn close(&self) -> Result<()> {
        self.stop();
        let engine = self.service.mdt().engine();
        let Some(Led(leader)) = &self.led else { return engine.close().await };
        // With a new primary elsewhere nobody takes the rest, and nothing of it was answered.
        let seams = self.service.mdt().seams();
        let reached = match leader.is_deposed() {
            true => None,
            false => seams.timeout_ms(CLOSE_LIMIT_MS, engine.wait_synced(engine.last_pos())).await,
        };
        if !matches!(reached, Some(Ok(()))) {
            engine.abandon();
        }
        let closed = engine.close().await;
        leader.stop();
        if reached.is_none() { Ok(()) } else { closed }
    }

    /// Closes its connections and ends its background work, as a kill would.
    pub fn stop(&self) {
        // In this order: no request goes on, and nobody hears of one, once the way to other servers is closed.
        self.member.stop_serving();
        self.mdt().stop();
        self.member.stop();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Parts that a starting MDT is made of.
struct Starting {
    config: Config,
    seams: Seams,
    transport: Arc<dyn Transport>,
    superblock: Superblock,
    targets: Arc<OstTargets>,
    mode: Arc<TargetMode>,
}

/// The store's durability mode for a target's mode.
pub(crate) fn stored(mode: Mode) -> DurabilityMode {
    match mode {
        Mode::Relaxed => DurabilityMode::Relaxed,
        Mode::Sync => DurabilityMode::Sync,
        Mode::Scratch => DurabilityMode::Scratch,
    }
}

/// Serves the MDT in `config.dir`. Returns when the MDT listens; at the first start, while the file system's id is not
/// known, when the MGS has answered. After an error no task of the MDT touches the store any more.
pub async fn start(config: Config, seams: Seams, transport: Arc<dyn Transport>) -> Result<Handle> {
    let superblock = member::load(&seams, &config.dir, Role::Mdt)?;
    let targets = OstTargets::new(&seams, transport.clone(), &config.host, &superblock);
    let (target, mut config) = (superblock.target, config);
    let mode = Arc::new(match &config.lease {
        // The next owner of the device finds only what is on it.
        Some(_) => TargetMode::fixed(target, Mode::Sync),
        None => TargetMode::begin(&seams, targets.directory(), target, &config.dir).await,
    });
    config.durability = stored(mode.now());
    let starting = Starting { config, seams, transport, superblock, targets, mode };
    if starting.config.seat.is_some() {
        return start_as_primary(starting).await;
    }
    let Starting { config, seams, superblock, .. } = &starting;
    replica::refuse_alone(seams, &config.dir, superblock)?;
    let options = config.kv_options(&Identity::of(superblock));
    let engine = Engine::open(seams, &config.store_dir(), options)?;
    starting.serve(engine, None).await
}

/// Serves the primary of a replica set, unless another member becomes that meanwhile.
async fn start_as_primary(starting: Starting) -> Result<Handle> {
    let Starting { config, seams, transport, superblock, targets, .. } = &starting;
    let identity = Identity::of(superblock);
    let around = (superblock.fs_id, transport.clone(), targets.directory().clone());
    let (led, report) = leading::take_over(config, &identity, seams, around).await?;
    let leader = led.0.clone();
    let ended = leader.clone().until_ended(identity.name());
    let served = async {
        let engine = Engine::of(leader.kv().clone(), report, identity.name())?;
        starting.serve(engine, Some(led)).await
    };
    let started = tokio::select! {
        biased;
        fault = ended => Err(fault),
        started = served => started,
    };
    if started.is_err() {
        leader.end().await;
    }
    started
}

/// Whether a program waits for an operation: names and attributes, not what keeps sessions alive.
fn of_users(op: Op) -> bool {
    (100..220).contains(&(op as u16))
}

impl Starting {
    async fn serve(self, engine: Engine, led: Option<Led>) -> Result<Handle> {
        let Starting { config, seams, transport, superblock, targets, mode } = self;
        let identity = Identity::of(&superblock);
        let place = ServedTarget {
            dir: config.dir.clone(),
            listen: config.listen.clone(),
            rails: config.rails.clone(),
            advertise: config.advertise.clone(),
            host: config.host.clone(),
            places: config.places,
        };
        let connections = Connections::new(identity.target());
        let osts = Osts::new(seams.clone(), targets.clone())
            .with_high_water(config.high_water_percent)
            .with_room_wait(config.room_wait_ms);
        let lease = led.as_ref().map_or_else(|| config.lease.clone(), |led| Some(led.0.lease()));
        let mdt = Mdt::on(engine, &seams, identity, (config, connections.clone(), osts)).await?;
        recovery::begin(&mdt).await?;
        let fs_is_known = superblock.fs_id != 0;
        let gate = Arc::new(Gate::new(superblock.target, superblock.name(), superblock.fs_id));
        if let Some(lease) = lease {
            gate.owned_under(lease);
        }
        let service = MdsService::new(mdt.clone(), connections, gate.clone());
        let serving = (gate, targets.directory().clone());
        let member = Member::serve(&seams, transport, (superblock, place), serving, service.clone()).await?;
        let mdt_seams = seams.clone();
        let handle = Handle { member, service, led };
        handle.run_background(&targets);
        let (mdt, followed) = (handle.mdt().clone(), targets.directory().clone());
        let told = move |mode| mdt.engine().set_mode(stored(mode));
        handle.member.spawn("mds.durability", mode.follow(mdt_seams, followed, told));
        if fs_is_known {
            handle.member.join_later();
        } else {
            handle.member.join().await?;
        }
        Ok(handle)
    }
}

impl Handle {
    fn run_background(&self, targets: &Arc<OstTargets>) {
        let (mdt, member) = (|| self.mdt().clone(), &self.member);
        if let Some(Led(leader)) = &self.led {
            leader.serves();
            let learners = leading::fill_learners(Arc::downgrade(leader), Arc::downgrade(&mdt()));
            member.spawn("mds.learners", learners);
            member.fails_with("mds.leader", leader.clone().until_ended(self.name()));
        }
        if let Some(Led(leader)) = &self.led {
            mdt().scrub().leads(leader);
        }
        let around =
            Around { targets: targets.directory().clone(), requests: member.counts_requests(of_users) };
        member.spawn("mds.scrub", scrub::run(mdt(), around));
        member.spawn("mds.map", cluster::follow_map(mdt(), targets.directory().clone()));
        member.spawn("mds.recovery", recovery::run(mdt()));
        member.spawn("mds.leases", expire::watch_leases(mdt()));
        member.spawn("mds.inodes", background::reserve_inodes(mdt()));
        member.spawn("mds.replaced", background::purge_replaced(mdt()));
        member.spawn("mds.recount", background::recount(mdt()));
        member.spawn("mds.changelog", changelog::keep_small(mdt()));
        member.spawn("mds.hsm", hsm::watch_agents(mdt()));
        member.spawn("mds.destroy", background::destroy_objects(mdt()));
        member.spawn("mds.space", cluster::poll_space(mdt()));
        let (noting, directory, registered) = (mdt(), targets.directory().clone(), self.member.registered());
        member.fails_with("mds.term", async move {
            registered.wait().await;
            cluster::note_term(noting, directory).await
        });
        let (mdt, targets) = (mdt(), targets.clone());
        member.fails_with("mds.failed", async move { mdt.engine().until_failed().await });
        member.fails_with("mds.deposed", async move { targets.until_deposed().await });
    }
}
