//! The OST on the network: requests in, replies out.
//!
//! Every request is checked for its target, the target's epoch, and the epoch of its session; a change goes through its
//! slot besides (`ops::once`).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use brindle_config::Superblock;
use brindle_net::latch::Latch;
use brindle_net::{ServerConn, Service};
use brindle_objects::ObjectStore;
use brindle_session::Registration;
use brindle_stdx::{BoxFuture, Seams};
use brindle_types::{Code, Fault, Result};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, Header};
use brindle_wire::version::PeerKind;
use parking_lot::Mutex;

use crate::collect::Confirmed;
use crate::dispatch::{Answer, Call, dispatch};
use crate::fences;
use crate::health::DiskHealth;
use crate::marks::MarkTable;
use crate::peers::Peers;
use crate::stats::{OssStats, add};

/// One OST behind its connections.
pub struct Oss {
    /// The objects.
    pub store: Arc<ObjectStore>,
    /// Who may hold pages of what.
    pub marks: MarkTable,
    /// Objects that the MDT has called its own.
    pub confirmed: Confirmed,
    /// The MDT and the other OSTs.
    pub peers: Arc<Peers>,
    /// The superblock as it was at start.
    pub identity: Superblock,
    /// Time, chance, tasks, disk.
    pub seams: Seams,
    fs_id: AtomicU64,
    /// Connections of mounts; those of servers and commands are not counted.
    clients: Mutex<BTreeSet<u64>>,
    registration: OnceLock<Arc<Registration>>,
    /// Whether its disk returned errors lately.
    pub disk: DiskHealth,
    /// Counters.
    pub stats: OssStats,
    /// Set once the sessions are known that the MDT ended while this OST was away. Changes wait for it.
    pub fences_known: Latch,
    /// Something else lies on its file system and takes its room.
    pub shares_its_disk: bool,
    /// Held by whoever asks the MDT for them.
    pub learning: tokio::sync::Mutex<()>,
}

impl Oss {
    /// A service that is not registered yet.
    pub fn new(
        store: Arc<ObjectStore>,
        peers: Arc<Peers>,
        identity: Superblock,
        seams: Seams,
        shares_its_disk: bool,
    ) -> Arc<Oss> {
        Arc::new(Oss {
            disk: DiskHealth::new(seams.clock.clone()),
            store,
            marks: MarkTable::new(seams.rng.next_u64()),
            confirmed: Confirmed::default(),
            peers,
            fs_id: AtomicU64::new(identity.fs_id),
            identity,
            seams,
            clients: Mutex::default(),
            registration: OnceLock::new(),
            stats: OssStats::default(),
            fences_known: Latch::default(),
            shares_its_disk,
            learning: tokio::sync::Mutex::default(),
        })
    }

    /// The MGS knows the target.
    pub fn registered(&self, registration: Arc<Registration>) {
        self.fs_id.store(registration.map().current().fs_id, Ordering::Release);
        // There is one registration in the life of a service.
        drop(self.registration.set(registration));
    }

    /// The registration, once there is one.
    pub fn registration(&self) -> Option<&Arc<Registration>> {
        self.registration.get()
    }

    /// Mounts that are connected.
    pub fn clients(&self) -> u32 {
        self.clients.lock().len() as u32
    }

    async fn answer(self: &Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> Result<Answer> {
        let header = &frame.header;
        self.check_target(header)?;
        let number = || Fault::new(Code::UnknownOp).why(format!("operation {}", header.op));
        let op = Op::from_number(header.op).ok_or_else(number)?;
        self.stats.count(op);
        if header.session.0 != 0 {
            fences::at_least(self, header.fences_version).await?;
            self.store.check_session(header.session, header.session_epoch)?;
            self.check_epoch(header)?;
        }
        dispatch(self, op, &Call { frame, conn }).await
    }

    fn check_target(&self, header: &Header) -> Result<()> {
        let own = self.identity.target;
        if header.target.is_none_or(|target| target == own) {
            return Ok(());
        }
        let asked = header.target.map_or_else(String::new, |target| target.to_string());
        Err(Fault::new(Code::WrongTarget).subject(asked).why(format!("{own} is served here")))
    }

    /// Refuses clients that know only an earlier server of this target.
    fn check_epoch(&self, header: &Header) -> Result<()> {
        let own = self.registration.get().map_or(0, |r| r.epoch());
        if header.target_epoch == 0 || header.target_epoch >= own {
            return Ok(());
        }
        let why = format!("the target is at epoch {own}, the request has {}", header.target_epoch);
        Err(Fault::new(Code::StaleEpoch).why(why))
    }
}

/// [`Oss`] as the network sees it.
pub struct OssService(pub Arc<Oss>);

impl Service for OssService {
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64> {
        let (own, theirs) = (self.0.fs_id.load(Ordering::Acquire), conn.hello().fs_id);
        if own == 0 {
            return Err(Fault::new(Code::TargetDown).why("the MGS has not told it its file system yet"));
        }
        if theirs == 0 || theirs == own {
            if conn.hello().kind == PeerKind::Client {
                self.0.clients.lock().insert(conn.id());
            }
            return Ok(own);
        }
        Err(Fault::new(Code::WrongFs)
            .subject(self.0.identity.name())
            .why(format!("this is file system {own:016x}"))
            .why(format!("the peer wants file system {theirs:016x}")))
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        let oss = self.0.clone();
        Box::pin(async move {
            let header = frame.header.clone();
            let answered = oss.answer(conn, frame).await;
            if answered.is_ok() && [Op::Write as u16, Op::SyncObjects as u16].contains(&header.op) {
                oss.disk.succeeded();
            }
            match answered {
                Ok(answer) if answer.bulk.is_empty() => Frame::reply_to(&header, answer.body),
                Ok(answer) => {
                    Frame::reply_to(&header, answer.body).with_bulk_crc(vec![answer.bulk], answer.bulk_crc)
                }
                Err(fault) => {
                    add(&oss.stats.faults, 1);
                    oss.disk.failed(&oss.identity.name(), &fault);
                    Frame::fault_reply_to(&header, &fault)
                }
            }
        })
    }

    fn closed(&self, conn_id: u64) {
        self.0.clients.lock().remove(&conn_id);
    }
}
