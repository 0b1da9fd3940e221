//! Serves a formatted OST: opens it, listens, registers, learns of fences, runs its background work.

use std::sync::{Arc, Weak};

use brindle_config::Superblock;
use brindle_net::Transport;
use brindle_objects::{ObjectStore, StoreConfig};
use brindle_stdx::Seams;
use brindle_targets::durability::TargetMode;
use brindle_targets::{
    Directory, Gate, Introduction, Member, OwnerLease, Plain, ServedTarget, member, replica,
};
use brindle_types::{Code, Fault, Nid, Result, Role};
use brindle_wire::mgs::durability::Mode;
use brindle_wire::mgs::replica::MemberPhase;

use crate::collect;
use crate::config::Config;
use crate::fences;
use crate::replica::{Replica, ReplicaRecord, leading, resync};
use crate::scrub;
use crate::service::{Around, Oss, OssService};

/// A running OST; stops when dropped.
pub struct Handle {
    member: Arc<Member>,
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

    /// The right to answer of a member of a replica set; `None` for the only copy.
    pub fn lease(&self) -> Option<Arc<OwnerLease>> {
        self.oss.replica.as_ref().map(|replica| replica.lease.clone())
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
        if let Some(replica) = &self.oss.replica {
            replica.deposed.set();
        }
        self.member.stop_serving();
        self.oss.stopped.set();
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
    check_member(&seams, &config, &superblock)?;
    let mode = match &config.lease {
        // A store whose replies wait for syncs anyway.
        Some(_) => TargetMode::fixed(superblock.target, Mode::Sync),
        None => TargetMode::begin(&seams, &targets, superblock.target, &config.dir).await,
    };
    let store = ObjectStore::open(seams.clone(), store_config(&config, superblock.fs_id)).await?;
    if let Some(seat) = &config.seat {
        let set = seat.set();
        store.become_member(if set.term == 0 { store.boot_term() } else { set.term })?;
        seat.tell(|told| told.boot_term = store.boot_term());
    }
    // If the file system does not tell, the OST counts as alone on its disk.
    let shares_its_disk = matches!(brindle_config::neighbour(&*seams.disk, &config.dir), Ok(Some(_)));
    let gate = Arc::new(Gate::new(superblock.target, superblock.name(), superblock.fs_id));
    let member_around = || replica::Around {
        fs_id: superblock.fs_id,
        dir: config.dir.clone(),
        transport: transport.clone(),
        targets: targets.clone(),
    };
    let replica = config.seat.clone().map(|seat| Replica::new(seat, &seams, member_around(), &store));
    let around = Around {
        dir: config.dir.clone(),
        transport: transport.clone(),
        shares_its_disk,
        replica,
        mode: Arc::new(mode),
    };
    let oss = Oss::new(store, targets.clone(), gate.clone(), superblock.clone(), seams.clone(), around);
    let service = Arc::new(OssService(oss.clone()));
    let Config { dir, listen, rails, advertise, host, places, lease, .. } = config;
    if let Some(lease) = lease {
        oss.gate.owned_under(lease);
    }
    let place = ServedTarget { dir, listen, rails, advertise, host, places };
    let member = Member::serve(&seams, transport, (superblock, place), (gate, targets), service).await?;
    let handle = Handle { member: Arc::new(member), oss };
    handle.oss.store.start_background();
    let (mode, targets) = (handle.oss.mode.clone(), handle.oss.targets.clone());
    handle.member.spawn("oss.durability", mode.follow(handle.oss.seams.clone(), targets, |_| {}));
    let store = handle.oss.store.clone();
    handle.member.fails_with("oss.failed", async move { store.until_failed().await });
    if handle.oss.replica.is_some() {
        let (oss, member) = (handle.oss.clone(), Arc::downgrade(&handle.member));
        handle.member.fails_with("oss.replica", be_member(oss, member));
    } else {
        serve(&handle.oss, &handle.member);
    }
    Ok(handle)
}

fn store_config(config: &Config, fs_id: u64) -> StoreConfig {
    StoreConfig {
        root: config.dir.clone(),
        fs_id,
        replies: config.replies,
        is_member: config.seat.is_some(),
        read_cache: config.read_cache,
    }
}

/// Refuses the disk of another member, and a member that was to be served alone. Runs before anything is opened.
fn check_member(seams: &Seams, config: &Config, superblock: &Superblock) -> Result<()> {
    if let Some(seat) = &config.seat {
        let record = seat.check_record(&*seams.disk, &config.dir)?;
        seat.tell(|told| told.recorded_epoch = record.epoch);
    } else if ReplicaRecord::load(&*seams.disk, &config.dir)?.epoch > 0 {
        // Other members may have changes that this one lacks.
        return Err(Fault::new(Code::OlderSet)
            .subject(format!("{} in {}", superblock.name(), config.dir))
            .why("it is a member of a replica set, and was to be served as the only copy")
            .data("nothing was changed")
            .next("restore a newer configuration: brindle cluster restore"));
    }
    Ok(())
}

/// Starts the tasks that only the server of a target runs.
fn serve(oss: &Arc<Oss>, member: &Member) {
    member.spawn("oss.fences", fences::follow(oss.clone()));
    member.spawn("oss.collect", collect::run(oss.clone()));
    member.spawn("oss.recheck", collect::recheck(oss.clone()));
    member.spawn("oss.scrub", scrub::run(oss.clone()));
    member.join_later();
}

/// The life of a member of a replica set: it follows until it is the primary, then it leads. Completes when it is to start anew.
async fn be_member(oss: Arc<Oss>, member: Weak<Member>) -> Fault {
    let Some(replica) = oss.replica.clone() else { return Fault::new(Code::Bug).why("no member") };
    let mut orders = replica.seat.subscribe();
    replica.seat.tell(|told| told.phase = MemberPhase::Following);
    loop {
        let set = orders.borrow_and_update().clone();
        let boot_term = oss.store.boot_term();
        if set.primary == replica.seat.host {
            // In the boot term that the MGS knows: otherwise it decides anew.
            if set.member(&set.primary).is_some_and(|m| m.boot_term == boot_term) {
                break;
            }
        } else {
            replica.following.detach_all_but(&set.primary).await;
        }
        if orders.changed().await.is_err() {
            return Fault::new(Code::Shutdown);
        }
    }
    if let Err(fault) = replica.take_over(&oss).await {
        return fault;
    }
    oss.gate.owned_under(replica.lease.clone());
    if let Some(member) = member.upgrade() {
        member.spawn("oss.lease", leading::keep_lease(Arc::downgrade(&oss)));
        member.spawn("oss.unmark", leading::unmark(Arc::downgrade(&oss)));
        member.spawn("oss.learners", resync::fill_learners(Arc::downgrade(&oss)));
        replica.serve();
        serve(&oss, &member);
    }
    replica.seat.tell(|told| told.phase = MemberPhase::Serving);
    loop {
        let set = orders.borrow_and_update().clone();
        if set.primary != replica.seat.host {
            replica.depose(&set);
        }
        if replica.deposed.is_set() {
            return Fault::new(Code::NotPrimary)
                .subject(oss.identity.name())
                .why("another member serves it now");
        }
        if let Err(fault) = replica.apply(&set) {
            return fault;
        }
        tokio::select! {
            biased;
            () = replica.deposed.wait() => {}
            changed = orders.changed() => {
                if changed.is_err() {
                    return Fault::new(Code::Shutdown);
                }
            }
        }
    }
}
