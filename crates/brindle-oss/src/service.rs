//! The OST on the network: requests in, replies out.
//!
//! Every request passes the gate (`brindle_targets::gate`), then its session's epoch is checked; a change goes through its slot
//! besides (`ops::once`). The epoch of an MDT's session is its term: the first request of a later term shuts out the earlier ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_config::Superblock;
use brindle_net::latch::Latch;
use brindle_net::{ServerConn, Service, Transport};
use brindle_objects::ObjectStore;
use brindle_stdx::cast::len_u32;
use brindle_stdx::{BoxFuture, Seams};
use brindle_targets::durability::TargetMode;
use brindle_targets::{Directory, Gate};
use brindle_types::Result;
use brindle_wire::Op;
use brindle_wire::frame::Frame;
use brindle_wire::principal::PrincipalKind;
use parking_lot::Mutex;

use crate::collect::Confirmed;
use crate::dispatch::{Answer, Call, dispatch};
use crate::fences;
use crate::health::DiskHealth;
use crate::marks::MarkTable;
use crate::ops;
use crate::replica::Replica;
use crate::rights::{self, Rights};
use crate::scrub::Scrub;
use crate::stats::{OssStats, add};

/// Surroundings of an OST.
pub struct Around {
    /// Directory of the OST.
    pub dir: String,
    /// Connections to others.
    pub transport: Arc<dyn Transport>,
    /// Whether other files lie on the OST's file system.
    pub shares_its_disk: bool,
    /// Member of a replica set, if the OST is one.
    pub replica: Option<Arc<Replica>>,
    /// The moment at which changes are answered.
    pub mode: Arc<TargetMode>,
}

/// An OST behind its connections.
pub struct Oss {
    /// The objects.
    pub store: Arc<ObjectStore>,
    /// Marks: sessions that may hold pages of objects.
    pub marks: MarkTable,
    /// Rights of sessions of hosts that are not trusted fully.
    pub rights: Rights,
    /// Objects that the MDT has called its own.
    pub confirmed: Confirmed,
    /// The MDTs and the other OSTs.
    pub targets: Arc<Directory>,
    /// The gate in front of the service.
    pub gate: Arc<Gate>,
    /// The superblock as it was at start.
    pub identity: Superblock,
    /// Time, chance, tasks, disk.
    pub seams: Seams,
    /// Connections of mounts; those of servers and commands are not counted.
    clients: Mutex<BTreeSet<u64>>,
    /// Whether its disk returned errors lately.
    pub disk: DiskHealth,
    /// Counters.
    pub stats: OssStats,
    /// Looks at all objects, slowly.
    pub scrub: Scrub,
    /// Set once the sessions are known that the MDT ended while this OST was away. Changes wait for it.
    pub fences_known: Latch,
    /// Set when the OST stops, which ends waits for other servers.
    pub stopped: Latch,
    /// Whether other files lie on the OST's file system and take its room.
    pub shares_its_disk: bool,
    /// Directory of the OST.
    pub dir: String,
    /// Connections to other members.
    pub transport: Arc<dyn Transport>,
    /// Member of a replica set, if the OST is one.
    pub replica: Option<Arc<Replica>>,
    /// The moment at which changes are answered.
    pub mode: Arc<TargetMode>,
    /// Held by the task that asks the MDT for the table of fences.
    pub learning: tokio::sync::Mutex<()>,
}

impl Oss {
    /// A service that is not registered yet.
    pub fn new(
        store: Arc<ObjectStore>,
        targets: Arc<Directory>,
        gate: Arc<Gate>,
        identity: Superblock,
        seams: Seams,
        around: Around,
    ) -> Arc<Oss> {
        let Around { dir, transport, shares_its_disk, replica, mode } = around;
        Arc::new(Oss {
            disk: DiskHealth::new(seams.clock.clone()),
            store,
            marks: MarkTable::new(seams.rng.next_u64()),
            rights: Rights::default(),
            confirmed: Confirmed::default(),
            targets,
            gate,
            identity,
            seams,
            clients: Mutex::default(),
            stats: OssStats::default(),
            scrub: Scrub::default(),
            fences_known: Latch::default(),
            stopped: Latch::default(),
            shares_its_disk,
            dir,
            transport,
            replica,
            mode,
            learning: tokio::sync::Mutex::default(),
        })
    }

    /// Mounts that are connected.
    pub fn clients(&self) -> u32 {
        len_u32(self.clients.lock().len())
    }

    async fn answer(self: &Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> Result<Answer> {
        let header = &frame.header;
        let op = self.gate.admit(&conn, header).await?;
        self.stats.count(op);
        if let Some(replica) = &self.replica {
            replica.check(op)?;
        }
        if conn.principal().kind == PrincipalKind::Mdt {
            ops::fence::admit_mdt(self, header.session, header.session_epoch).await?;
        } else if header.session.0 != 0 {
            fences::at_least(self, header.fences_version).await?;
            self.store.check_session(header.session, header.session_epoch)?;
        }
        if self.gate.limits(&conn).is_some() {
            // Boxed: requests of other hosts carry nothing of it.
            Box::pin(rights::admit(self, &self.gate, &conn, op, &frame)).await?;
        }
        dispatch(self, op, &Call { frame, conn }).await
    }
}

/// Whether a fault of the disk that ends a request is one of this OST's disk, and not of one that it has asked.
fn is_of_own_disk(op: u16) -> bool {
    use Op::{Allocate, DestroyObjects, FenceLayout, Punch, Read, SyncObjects, TruncateObject, Write};
    [Read, Write, SyncObjects, TruncateObject, Punch, Allocate, DestroyObjects, FenceLayout]
        .iter()
        .any(|own| *own as u16 == op)
}

/// [`Oss`] as the network sees it.
pub struct OssService(pub Arc<Oss>);

impl Service for OssService {
    fn hello(&self, conn: &Arc<ServerConn>) -> Result<u64> {
        let fs_id = self.0.gate.hello(conn)?;
        if conn.principal().kind == PrincipalKind::Client {
            self.0.clients.lock().insert(conn.id());
        }
        Ok(fs_id)
    }

    fn request(self: Arc<Self>, conn: Arc<ServerConn>, frame: Frame) -> BoxFuture<'static, Frame> {
        let oss = self.0.clone();
        Box::pin(async move {
            let header = frame.header.clone();
            let answered = oss.answer(conn.clone(), frame).await;
            if answered.is_ok() && [Op::Write as u16, Op::SyncObjects as u16].contains(&header.op) {
                oss.disk.succeeded();
            }
            let reply = match answered {
                Ok(answer) if answer.bulk.is_empty() => Frame::reply_to(&header, answer.body),
                Ok(answer) => {
                    Frame::reply_to(&header, answer.body).with_bulk_crc(vec![answer.bulk], answer.bulk_crc)
                }
                Err(fault) => {
                    add(&oss.stats.faults, 1);
                    if let Some(replica) = oss.replica.as_ref().filter(|_| is_of_own_disk(header.op)) {
                        replica.gives_way(&oss.store, &fault);
                    }
                    if oss.store.has_ended() {
                        // Without an answer the client asks the next server of the target.
                        conn.close();
                    }
                    oss.disk.failed(&oss.identity.name(), &fault);
                    Frame::fault_reply_to(&header, &fault)
                }
            };
            oss.gate.reply(&header, reply)
        })
    }

    fn closed(&self, conn_id: u64) {
        self.0.clients.lock().remove(&conn_id);
    }
}
