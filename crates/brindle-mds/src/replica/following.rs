//! A member on the network that follows its primary.

use std::sync::Arc;

use brindle_config::Superblock;
use brindle_kv::KvOptions;
use brindle_net::{ServerConn, Service, Transport};
use brindle_stdx::{BoxFuture, Seams, watch};
use brindle_targets::durability::TargetMode;
use brindle_targets::replica::{Around, Follows, Links, Seat, SetMember};
use brindle_targets::scrub::Scrub;
use brindle_targets::{Directory, Gate, Introduction, Member, Plain, ServedTarget, member};
use brindle_types::{Code, Fault, Nid, Result, Role};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, decode_body, encode_body};
use brindle_wire::mds::Empty;
use brindle_wire::mds::replica::*;
use brindle_wire::mgs::durability::Mode;
use brindle_wire::mgs::replica::{MemberPhase, ReplicaSetState};
use brindle_wire::oss::replica::ReplicaLeaseResp;
use bytes::Bytes;
use parking_lot::Mutex;

use super::held::{Held, Reached};
use super::verified::Compared;
use super::{TAIL_BYTES_MAX, check_disk, leads, place, pos, promise};
use crate::config::{Config, Identity};

/// Interval at which the member checks whether records are due to be synced.
const SYNC_LOOK_MS: u64 = 250;

/// A member that follows; stops when dropped.
pub struct Follower {
    member: Member,
    service: Arc<FollowerService>,
}

impl Follower {
    /// The address, with the port that was chosen.
    pub fn local_nid(&self) -> &Nid {
        self.member.local_nid()
    }

    /// Name of the target: `scratch-MDT0000`.
    pub fn name(&self) -> String {
        self.service.superblock.name()
    }

    /// Completes when the member is to lead, or cannot go on, with the reason.
    pub async fn until_failed(&self) -> Fault {
        self.member.until_failed().await
    }

    /// Service, for a caller that must know that nothing of it is left.
    pub fn service(&self) -> &Arc<FollowerService> {
        &self.service
    }

    /// Ends its connections and waits until nothing is under way. Records that it has taken in are synced.
    pub async fn stop(self) -> Result<()> {
        self.member.stop();
        self.service.set.following.detach().await;
        // The sender lives as long as `self`.
        let _ = self.service.checkpointing.subscribe().wait_for(|is_running| !is_running).await;
        self.service.sync().await.map(drop)
    }
}

/// A member, as the network sees it.
pub struct FollowerService {
    pub(super) set: SetMember,
    gate: Arc<Gate>,
    pub(super) seams: Seams,
    superblock: Superblock,
    pub(super) dir: String,
    /// Durability of the target: who is promoted goes by it at once.
    mode: Arc<TargetMode>,
    pub(super) held: Arc<Mutex<Held>>,
    /// Whether a checkpoint is being written.
    pub(super) checkpointing: watch::Sender<bool>,
    /// Rows that the scrub of the primary compares.
    pub(super) compared: Compared,
    /// Writes the record of the primary's scrub.
    pub(super) scrub: Scrub,
    /// Reason why the member cannot go on.
    broken: watch::Sender<Option<Fault>>,
}

/// A member that follows sends nothing.
struct SendsNothing;

impl Follows for SendsNothing {
    fn set_changed(&self, _: &ReplicaSetState) {}
    fn links_changed(&self, _: &Links) {}

    fn can_lead(&self) -> Result<()> {
        Ok(())
    }
}

/// Serves the member in `config.dir` until it is to lead. Returns when it listens.
pub async fn follow(config: Config, seams: Seams, transport: Arc<dyn Transport>) -> Result<Follower> {
    let mut superblock = member::load(&seams, &config.dir, Role::Mdt)?;
    let Some(seat) = config.seat.clone() else { return Err(Fault::new(Code::Bug).why("no seat")) };
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
    let record = check_disk(&seams, &config.dir, &seat)?;
    // A member in sync has the MDT, even if it has recorded no epoch yet.
    let is_new = record.epoch == 0 && !seat.set().is_in_sync(&seat.host);
    let held = open_held(&seams, &config, &superblock, is_new).await?;
    let mode = Arc::new(TargetMode::begin(&seams, &targets, superblock.target, &config.dir).await);
    let gate = Arc::new(Gate::new(superblock.target, superblock.name(), superblock.fs_id));
    let Config { dir, listen, rails, advertise, host, .. } = config;
    let around = Around {
        fs_id: superblock.fs_id,
        dir: dir.clone(),
        transport: transport.clone(),
        targets: targets.clone(),
    };
    let service = Arc::new(FollowerService {
        set: SetMember::new(seat.clone(), &seams, around, Arc::new(SendsNothing)),
        gate: gate.clone(),
        seams: seams.clone(),
        superblock: superblock.clone(),
        dir: dir.clone(),
        mode: mode.clone(),
        held: Arc::new(Mutex::new(held)),
        checkpointing: watch::Sender::new(false),
        compared: Compared::default(),
        scrub: Scrub::default(),
        broken: watch::Sender::new(None),
    });
    let place = ServedTarget { dir, listen, rails, advertise, host, places: None };
    let member =
        Member::serve(&seams, transport, (superblock, place), (gate, targets.clone()), service.clone())
            .await?;
    member.spawn("mds.durability", mode.follow(seams.clone(), targets, |_| {}));
    member.fails_with("mds.member", until_it_leads(service.clone(), seat));
    member.fails_with("mds.sync", keep_synced(service.clone()));
    let mut broken = service.broken.subscribe();
    member.fails_with("mds.broken", async move {
        let broken = broken.wait_for(Option::is_some).await.ok().and_then(|fault| fault.clone());
        broken.unwrap_or_else(|| Fault::new(Code::Shutdown))
    });
    Ok(Follower { member, service })
}

async fn open_held(seams: &Seams, config: &Config, superblock: &Superblock, is_new: bool) -> Result<Held> {
    let options =
        KvOptions { tail_bytes_max: TAIL_BYTES_MAX, ..config.kv_options(&Identity::of(superblock)) };
    let (own, dir) = (seams.clone(), config.store_dir());
    let opened = seams.run_blocking(move || Held::open(&own, &dir, options, is_new)).await;
    opened.unwrap_or_else(|| Err(panicked()))
}

pub(super) fn panicked() -> Fault {
    Fault::new(Code::Bug).why("a job of the metadata log panicked")
}

/// Completes when this member is to be the primary.
async fn until_it_leads(service: Arc<FollowerService>, seat: Arc<Seat>) -> Fault {
    let mut orders = seat.subscribe();
    seat.tell(|told| told.phase = MemberPhase::Following);
    loop {
        let set = orders.borrow_and_update().clone();
        if leads(&seat) {
            return Fault::new(Code::NotPrimary).subject(service.superblock.name()).why("it is to serve now");
        }
        if set.primary != seat.host {
            service.set.following.detach_all_but(&set.primary).await;
        }
        if orders.changed().await.is_err() {
            return Fault::new(Code::Shutdown);
        }
    }
}

/// Syncs what is old enough. Completes when that fails.
async fn keep_synced(service: Arc<FollowerService>) -> Fault {
    loop {
        let is_due = service.held.lock().is_sync_due();
        if is_due
            && service.syncs_by_age()
            && let Err(fault) = service.sync().await
        {
            return fault;
        }
        service.seams.sleep_ms(SYNC_LOOK_MS).await;
    }
}

impl FollowerService {
    /// Whether records are synced when they are so old, and not only when the primary asks for it.
    fn syncs_by_age(&self) -> bool {
        self.mode.now() != Mode::Scratch
    }

    /// Runs something that blocks on the disk.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Held) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let held = self.held.clone();
        self.seams.run_blocking(move || job(&mut held.lock())).await.unwrap_or_else(|| Err(panicked()))
    }

    /// Makes everything that was taken in survive a power cut. Records may come in meanwhile.
    async fn sync(&self) -> Result<Reached> {
        let (reached, to_sync) = match self.held.lock().to_sync() {
            Ok(found) => found,
            // A member that has nothing has nothing to lose.
            Err(_) => return Ok(Reached::default()),
        };
        let Some(to_sync) = to_sync else { return Ok(reached) };
        to_sync.file.sync_data_async().await.map_err(|e| {
            let fault =
                Fault::io(Code::LogFailed, "cannot sync the metadata log of", self.superblock.name(), &e);
            // The next sync would say that all is well.
            self.breaks(&fault);
            fault
        })?;
        self.held.lock().was_synced(&to_sync)
    }

    async fn append(self: &Arc<Self>, bytes: Bytes) -> Result<MemberAppendResp> {
        if self.held.lock().is_full() {
            // A checkpoint that takes too long has the primary go on without this member.
            let _ = self.checkpointing.subscribe().wait_for(|is_running| !is_running).await;
        }
        let by_age = self.syncs_by_age();
        let reached = self.blocking(move |held| held.append(&bytes, by_age)).await.inspect_err(|fault| {
            let is_of_the_disk = !matches!(fault.code, Code::BadFrame | Code::NotPrimary | Code::LogDamaged);
            if is_of_the_disk {
                self.breaks(fault);
            }
        })?;
        self.checkpoint_if_due().inspect_err(|fault| self.breaks(fault))?;
        Ok(MemberAppendResp { written: reached.written, synced: reached.synced })
    }

    /// Stops the member, which starts anew: memory and disk may differ.
    pub(super) fn breaks(&self, fault: &Fault) {
        self.broken.send_if_modified(|broken| {
            let is_first = broken.is_none();
            broken.get_or_insert_with(|| fault.clone());
            is_first
        });
    }

    /// A checkpoint could not be written: the member starts anew. A damaged store is not opened again, and its primary fills the member.
    pub(super) fn checkpoint_failed(&self, fault: &Fault) {
        if fault.code == Code::NotPrimary {
            return;
        }
        if matches!(fault.code, Code::KvDamaged | Code::LogDamaged)
            && let Err(unmarked) = self.held.lock().mark_damaged(&fault.to_string())
        {
            tracing::error!(code = %unmarked.code, "{unmarked}");
        }
        self.breaks(fault);
    }

    /// Whether a checkpoint may begin now; the caller then ends it.
    pub(super) fn claim_checkpoint(&self) -> bool {
        self.checkpointing.send_if_modified(|is_running| !std::mem::replace(is_running, true))
    }

    /// Writes a checkpoint beside everything else, if one is due.
    fn checkpoint_if_due(self: &Arc<Self>) -> Result<()> {
        if !self.claim_checkpoint() {
            return Ok(());
        }
        let due = self.held.lock().due_checkpoint();
        let Ok(Some(checkpoint)) = due else {
            self.checkpointing.send_replace(false);
            return due.map(drop);
        };
        let own = self.clone();
        self.seams.spawn("mds.checkpoint", async move {
            let written = own.seams.run_blocking(move || checkpoint.write()).await;
            match written.unwrap_or_else(|| Err(panicked())) {
                Ok(done) => own.held.lock().end_checkpoint(done),
                Err(fault) => own.checkpoint_failed(&fault),
            }
            own.checkpointing.send_replace(false);
        });
        Ok(())
    }

    async fn attach(&self, conn: &ServerConn, req: MemberAttachReq) -> Result<MemberAttachResp> {
        // Whoever asked for that moment is not the primary any more, or has lost the connection.
        self.compared.lock().take();
        let (disk, dir) = (self.seams.disk.clone(), self.dir.clone());
        let ready = async {
            let kept = move |held: &mut Held| {
                promise::keep(&*disk, &dir, req.term)?;
                Ok((held.last(), held.term()))
            };
            let (last, term_max) = self.blocking(kept).await?;
            if last.is_some() {
                // The records of the member belong to the set. From now on its disk says so, too.
                self.set.record(req.attachment.epoch)?;
            }
            let boot_term = self.set.seat.told().boot_term;
            Ok(MemberAttachResp { boot_term, last: last.map(place), term_max })
        };
        self.set.attach(conn, req.attachment, ready).await
    }

    async fn lease(&self, conn: &ServerConn, req: MemberLeaseReq) -> Result<ReplicaLeaseResp> {
        self.set.until_epoch(req.epoch).await?;
        let _attached = self.set.enter(conn, req.attachment).await?;
        self.set.record(req.epoch)?;
        let space = self.seams.disk.space(&self.dir);
        let space = space
            .map_err(|e| Fault::io(Code::KvFailed, "cannot ask for the space of", self.dir.clone(), &e))?;
        let boot_term = self.set.seat.told().boot_term;
        Ok(ReplicaLeaseResp { boot_term, available_bytes: space.available_bytes })
    }

    async fn fill(&self, req: MemberFillReq, bulk: Bytes) -> Result<Empty> {
        let step = req.step;
        if matches!(step, FillStep::Begin { .. }) && *self.checkpointing.borrow() {
            return Err(Fault::new(Code::Overloaded).why("a checkpoint of what it has is being written"));
        }
        self.blocking(move |held| match step {
            FillStep::Begin { at } => held.begin_fill(pos(at)),
            FillStep::Rows => held.fill(&bulk),
            FillStep::End => held.end_fill(),
        })
        .await?;
        if step == FillStep::End {
            self.set.record(req.attachment.epoch)?;
        }
        Ok(Empty {})
    }

    async fn answer(self: &Arc<Self>, conn: &ServerConn, frame: &Frame) -> Result<Bytes> {
        fn reply<T: serde::Serialize>(answer: T) -> Bytes {
            encode_body(&Ok::<_, Fault>(answer))
        }
        let op = self.gate.admit(conn, &frame.header).await?;
        match op {
            Op::MemberAttach => self.attach(conn, decode_body(&frame.body)?).await.map(reply),
            Op::MemberLease => self.lease(conn, decode_body(&frame.body)?).await.map(reply),
            Op::MemberAppend => {
                let request: MemberAppendReq = decode_body(&frame.body)?;
                let _attached = self.set.enter(conn, request.attachment).await?;
                self.append(frame.bulk_bytes()).await.map(reply)
            }
            Op::MemberSync => {
                let request: MemberSyncReq = decode_body(&frame.body)?;
                let _attached = self.set.enter(conn, request.attachment).await?;
                let reached = self.sync().await?;
                Ok(reply(MemberAppendResp { written: reached.written, synced: reached.synced }))
            }
            Op::MemberFill => {
                let request: MemberFillReq = decode_body(&frame.body)?;
                let _attached = self.set.enter(conn, request.attachment).await?;
                self.fill(request, frame.bulk_bytes()).await.map(reply)
            }
            Op::MemberVerify => self.verify(conn, decode_body(&frame.body)?).await.map(reply),
            Op::MemberCompare => self.compare(conn, decode_body(&frame.body)?).await.map(reply),
            Op::MemberScrub => self.keep_scrub(conn, decode_body(&frame.body)?).await.map(reply),
            // Clients wait for a target that is down.
            _ => Err(Fault::new(Code::TargetDown).why("another member of its replica set is to be asked")),
        }
    }
}

impl Service for FollowerService {
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64> {
        self.gate.hello(conn)
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        Box::pin(async move {
            match self.answer(&conn, &frame).await {
                Ok(body) => Frame::reply_to(&frame.header, body),
                Err(fault) => Frame::fault_reply_to(&frame.header, &fault),
            }
        })
    }

    fn closed(&self, _: u64) {}
}
