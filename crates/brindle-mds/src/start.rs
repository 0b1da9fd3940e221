//! Serves a formatted MDT: opens it, listens, registers, runs its background work.

use std::sync::Arc;

use brindle_net::Transport;
use brindle_stdx::Seams;
use brindle_targets::{Gate, Member, Place, member};
use brindle_types::{Fault, Nid, Result, Role};

use crate::cluster::{self, OstTargets};
use crate::config::{Config, Identity};
use crate::connections::Connections;
use crate::mdt::Mdt;
use crate::osts::Osts;
use crate::service::MdsService;
use crate::{background, changelog, expire, hsm, recovery};

/// A running MDT; stops when dropped.
pub struct Handle {
    member: Member,
    service: Arc<MdsService>,
}

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

    /// The gate in front of it.
    pub fn gate(&self) -> &Arc<Gate> {
        self.service.gate()
    }

    /// Counters of its connections.
    pub fn server_stats(&self) -> brindle_net::ServerStats {
        self.member.server_stats()
    }

    /// Who asks it for what.
    pub fn usage(&self) -> &Arc<brindle_net::usage::Usage> {
        self.member.usage()
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
    pub async fn close(self) -> Result<()> {
        self.stop();
        self.service.mdt().engine().close().await
    }

    /// Closes its connections and ends its background work, as a kill would.
    pub fn stop(&self) {
        self.member.stop();
    }
}

/// Serves the MDT in `config.dir`. Returns when it listens; if the file system's id is not known yet (the first start),
/// when the MGS has answered.
pub async fn start(config: Config, seams: Seams, transport: Arc<dyn Transport>) -> Result<Handle> {
    let superblock = member::load(&seams, &config.dir, Role::Mdt)?;
    let identity = Identity::of(&superblock);
    let place = Place {
        dir: config.dir.clone(),
        listen: config.listen.clone(),
        advertise: config.advertise.clone(),
        host: config.host.clone(),
    };
    let connections = Connections::new(identity.target());
    let targets = OstTargets::new(&seams, transport.clone(), &config.host, &superblock);
    let osts = Osts::new(seams.clone(), targets.clone())
        .with_high_water(config.high_water_percent)
        .with_room_wait(config.room_wait_ms);
    let lease = config.lease.clone();
    let mdt = Mdt::open(&seams, identity, config, connections.clone(), osts).await?;
    recovery::begin(&mdt).await?;
    let fs_is_known = superblock.fs_id != 0;
    let gate = Arc::new(Gate::new(superblock.target, superblock.name(), superblock.fs_id));
    if let Some(lease) = lease {
        gate.owned_under(lease);
    }
    let service = MdsService::new(mdt.clone(), connections, gate.clone());
    let serving = (gate, targets.directory().clone());
    let member = Member::serve(&seams, transport, (superblock, place), serving, service.clone()).await?;
    let handle = Handle { member, service };
    handle.run_background(&targets);
    if fs_is_known {
        handle.member.join_later();
    } else {
        handle.member.join().await?;
    }
    Ok(handle)
}

impl Handle {
    fn run_background(&self, targets: &Arc<OstTargets>) {
        let (mdt, member) = (|| self.mdt().clone(), &self.member);
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
