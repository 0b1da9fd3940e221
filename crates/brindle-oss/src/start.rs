//! Serves a formatted OST: opens it, listens, registers, learns of fences, runs its background work.

use std::sync::Arc;

use brindle_net::Transport;
use brindle_objects::{ObjectStore, StoreConfig};
use brindle_stdx::Seams;
use brindle_targets::{Directory, Gate, Introduction, Member, Place, Plain, member};
use brindle_types::{Fault, Nid, Result, Role};

use crate::collect;
use crate::config::Config;
use crate::fences;
use crate::service::{Oss, OssService};

/// A running OST; stops when dropped.
pub struct Handle {
    member: Member,
    oss: Arc<Oss>,
}

impl Handle {
    /// The address, with the port that was chosen.
    pub fn local_nid(&self) -> &Nid {
        self.member.local_nid()
    }

    /// Name of the target: `scratch-OST0003`.
    pub fn name(&self) -> String {
        self.oss.identity.name()
    }

    /// The OST, for status, metrics and tests.
    pub fn oss(&self) -> &Arc<Oss> {
        &self.oss
    }

    /// Counters of its connections.
    pub fn server_stats(&self) -> brindle_net::ServerStats {
        self.member.server_stats()
    }

    /// Completes when the OST can no longer serve, with the reason.
    pub async fn until_failed(&self) -> Fault {
        self.member.until_failed().await
    }

    /// Completes when the MGS knows the OST under its address.
    pub async fn until_registered(&self) {
        self.member.until_registered().await;
    }

    /// Stops in order: connections first, then everything is synced.
    pub async fn close(self) -> Result<()> {
        self.stop();
        self.oss.store.close().await
    }

    /// Closes its connections and ends its background work, as a kill would.
    pub fn stop(&self) {
        self.member.stop();
    }
}

/// Serves the OST in `config.dir`. Returns when it listens; the first start waits for the MGS, which tells the id of the
/// file system. Reads are answered at once; changes wait until the MDT has told which sessions it ended while this OST
/// was away, because those are refused.
pub async fn start(config: Config, seams: Seams, transport: Arc<dyn Transport>) -> Result<Handle> {
    let mut superblock = member::load(&seams, &config.dir, Role::Ost)?;
    let targets = Directory::new(
        &seams,
        transport.clone(),
        Introduction::server(&config.host, superblock.target),
        Arc::new(Plain),
        superblock.mgs.clone(),
        superblock.fs.clone(),
        superblock.fs_id,
    );
    if superblock.fs_id == 0 {
        superblock.fs_id = targets.map().fetch().await?.fs_id;
        superblock.save(&*seams.disk, &config.dir)?;
    }
    let store_config =
        StoreConfig { root: config.dir.clone(), fs_id: superblock.fs_id, replies: config.replies };
    let store = ObjectStore::open(seams.clone(), store_config).await?;
    // Where it cannot be told nothing is said of it.
    let shares_its_disk = matches!(brindle_config::neighbour(&*seams.disk, &config.dir), Ok(Some(_)));
    let gate = Arc::new(Gate::new(superblock.target, superblock.name(), superblock.fs_id));
    let oss =
        Oss::new(store, targets.clone(), gate.clone(), superblock.clone(), seams.clone(), shares_its_disk);
    let service = Arc::new(OssService(oss.clone()));
    let Config { dir, listen, advertise, host, lease, .. } = config;
    if let Some(lease) = lease {
        oss.gate.owned_under(lease);
    }
    let place = Place { dir, listen, advertise, host };
    let member = Member::serve(&seams, transport, (superblock, place), (gate, targets), service).await?;
    let handle = Handle { member, oss };
    let (oss, member) = (|| handle.oss.clone(), &handle.member);
    handle.oss.store.start_background();
    member.spawn("oss.fences", fences::follow(oss()));
    member.spawn("oss.collect", collect::run(oss()));
    member.spawn("oss.recheck", collect::recheck(oss()));
    let store = handle.oss.store.clone();
    member.fails_with("oss.failed", async move { store.until_failed().await });
    member.join_later();
    Ok(handle)
}
