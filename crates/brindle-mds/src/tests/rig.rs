//! One MDT with simulated clients and OSTs around it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_layout::Candidate;
use brindle_sim::{DiskModel, SimDisk, Survival};
use brindle_stdx::real::{RealClock, RealRng, TokioSpawn};
use brindle_stdx::{BoxFuture, Seams};
use brindle_types::attr::Time;
use brindle_types::{Attr, Code, Fault, Ino, ObjectId, Pair, Result, SessionId};
use brindle_wire::frame::{Frame, Header, decode_body, decode_reply, encode_body};
use brindle_wire::log_level::{LogLevelNotice, LogLevelResp};
use brindle_wire::log_lines::{LogLine, LogLinesNotice, LogLinesResp};
use brindle_wire::mds::Empty;
use brindle_wire::mds::create::{CreateReq, CreateResp};
use brindle_wire::mds::open::Access;
use brindle_wire::mds::setattr::SetattrReq;
use brindle_wire::notify::*;
use brindle_wire::oss::destroy::{DestroyObjectsReq, DestroyObjectsResp};
use brindle_wire::oss::fence::{FenceLayoutReq, FenceSessionReq};
use brindle_wire::oss::stat::{ObjectStat, StatObjectsReq, StatObjectsResp};
use brindle_wire::oss::statfs::{OstStatfsReq, OstStatfsResp};
use brindle_wire::oss::sync::{SyncObjectsReq, SyncObjectsResp};
use brindle_wire::oss::truncate::TruncateObjectReq;
use brindle_wire::oss::write::{CopyRangeReq, WriteReq, WriteResp};
use brindle_wire::oss::{ChangeResp, Marks};
use brindle_wire::{Cred, Message, Op};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::ask::{Notifier, not_connected};
use crate::config::{Config, Identity};
use crate::dispatch::dispatch;
use crate::mdt::{Call, LiveSession, Mdt};
use crate::osts::{OstCalls, Osts};
use crate::store::row::FormatLevel;
use crate::store::{inode, meta, session};

pub const RW: Access = Access { read: true, write: true, truncate: false, execute: false };
pub const RO: Access = Access { read: true, write: false, truncate: false, execute: false };
pub const WO: Access = Access { read: false, write: true, truncate: false, execute: false };

/// Longer files are divided over agents.
pub const DIVIDE_ABOVE_BYTES: u64 = 12 << 20;

/// Clients that answer from a list; everything they are asked is written down.
#[derive(Default)]
pub struct Clients {
    pub asked: Mutex<Vec<(SessionId, Op, Ino)>>,
    /// Report that a session answers with for a file, once.
    pub reports: Mutex<BTreeMap<(SessionId, Ino), brindle_wire::mds::report::WriteReport>>,
    pub silent: Mutex<Vec<SessionId>>,
    /// Sessions whose connection has ended unnoticed by the MDT: requests to them are never answered.
    pub cut_off: Mutex<Vec<SessionId>>,
    /// Sessions with writes under way that do not end.
    pub unsettled: Mutex<Vec<SessionId>>,
    /// Action to run once when a session is told of a new layout or a cut, before it answers.
    pub when_told: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clients {
    pub fn take_asked(&self) -> Vec<(SessionId, Op, Ino)> {
        std::mem::take(&mut *self.asked.lock())
    }
}

impl Notifier for Clients {
    fn ask(&self, session: SessionId, op: Op, body: Bytes) -> BoxFuture<'static, Result<Bytes>> {
        if self.silent.lock().contains(&session) {
            return Box::pin(std::future::ready(Err(not_connected(session))));
        }
        if self.cut_off.lock().contains(&session) {
            return Box::pin(std::future::pending());
        }
        let ino = match op {
            Op::RecallNotice => decode_body::<RecallNotice>(&body).expect("decodes").ino,
            Op::LayoutNotice => decode_body::<LayoutNotice>(&body).expect("decodes").ino,
            Op::ReportNotice => decode_body::<ReportNotice>(&body).expect("decodes").ino,
            Op::SettleNotice => decode_body::<SettleNotice>(&body).expect("decodes").ino,
            Op::InvalidateNotice => decode_body::<InvalidateNotice>(&body).expect("decodes").ino,
            Op::LeaseNotice => {
                let notice = decode_body::<LeaseNotice>(&body).expect("decodes");
                let asked = notice.dirs.iter().map(|dir| (session, op, *dir));
                self.asked.lock().extend(asked);
                return Box::pin(std::future::ready(Ok(encode_body(&Ok::<_, Fault>(LeaseAck {})))));
            }
            Op::ClosedNotice => {
                let ino = decode_body::<ClosedNotice>(&body).expect("decodes").ino;
                self.asked.lock().push((session, op, ino));
                return Box::pin(std::future::ready(Ok(encode_body(&Ok::<_, Fault>(ClosedAck {})))));
            }
            Op::LogLinesNotice => {
                let LogLinesNotice(request) = decode_body(&body).expect("decodes");
                self.asked.lock().push((session, op, Ino(request.after)));
                let line = LogLine { number: request.after + 1, text: format!("a line of {session}") };
                let answer = LogLinesResp {
                    process: 7,
                    first: 1,
                    next: request.after + 2,
                    left_out: 0,
                    lines: vec![line],
                };
                return Box::pin(std::future::ready(Ok(encode_body(&Ok::<_, Fault>(answer)))));
            }
            Op::LogLevelNotice => {
                let LogLevelNotice { level, by } = decode_body(&body).expect("decodes");
                let answer = LogLevelResp { level: level.level.unwrap_or(by), before: session.to_string() };
                return Box::pin(std::future::ready(Ok(encode_body(&Ok::<_, Fault>(answer)))));
            }
            other => panic!("{other:?} is no notice"),
        };
        self.asked.lock().push((session, op, ino));
        let happens = self.when_told.lock().take_if(|_| op == Op::LayoutNotice);
        happens.into_iter().for_each(|happens| happens());
        let report = self.reports.lock().remove(&(session, ino));
        let answer = match op {
            Op::RecallNotice => encode_body(&Ok::<_, Fault>(RecallAck { report, later: false })),
            Op::LayoutNotice => encode_body(&Ok::<_, Fault>(LayoutAck { report, later: false })),
            Op::ReportNotice => encode_body(&Ok::<_, Fault>(ReportAck { report })),
            Op::SettleNotice => {
                let settled = !self.unsettled.lock().contains(&session);
                encode_body(&Ok::<_, Fault>(SettleAck { settled }))
            }
            _ => encode_body(&Ok::<_, Fault>(InvalidateAck { later: false })),
        };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// OSTs as a map of objects to bytes.
#[derive(Default)]
pub struct FakeOsts {
    pub objects: Mutex<BTreeMap<(u16, ObjectId), Vec<u8>>>,
    pub destroyed: Mutex<Vec<ObjectId>>,
    pub calls: Mutex<Vec<(u16, Op)>>,
    pub down: Mutex<Vec<u16>>,
    /// OSTs whose disk returns errors: they answer, and do nothing.
    pub broken: Mutex<Vec<u16>>,
    /// Operations that the disks of all OSTs refuse at present.
    pub refused: Mutex<Vec<Op>>,
    /// Objects that their disks do not let go.
    pub stuck: Mutex<Vec<ObjectId>>,
    pub last_write: Mutex<Option<(Pair, Time)>>,
    /// Bytes that each OST has left; plenty where nothing is said.
    pub room: Mutex<BTreeMap<u16, u64>>,
    /// Lowest layout epoch of each object.
    pub fences: Mutex<BTreeMap<(u16, ObjectId), Pair>>,
}

fn answer<M: Message>(frame: &Frame, respond: impl FnOnce(M) -> M::Resp) -> Frame {
    let request = decode_body::<M>(&frame.body).expect("decodes");
    Frame::reply_to(&frame.header, encode_body(&Ok::<_, Fault>(respond(request))))
}

fn change(data: &[u8]) -> ChangeResp {
    ChangeResp { boot_term: 1, marks: Marks::None, takings: Vec::new(), allocated_bytes: data.len() as u64 }
}

/// Cuts as an OST does: only the object with the last byte is made or extended.
fn cut(objects: &mut BTreeMap<(u16, ObjectId), Vec<u8>>, ost: u16, req: &TruncateObjectReq) -> ChangeResp {
    let key = (ost, req.object);
    if req.make {
        objects.entry(key).or_default();
    }
    let Some(data) = objects.get_mut(&key) else { return change(&[]) };
    if req.make || data.len() as u64 > req.len_bytes {
        data.resize(req.len_bytes as usize, 0);
    }
    change(data)
}

/// Copies as an OST does: holes stay holes, and no object is made for them.
fn copy(objects: &mut BTreeMap<(u16, ObjectId), Vec<u8>>, ost: u16, req: &CopyRangeReq) -> ChangeResp {
    let from = objects.get(&(req.source_ost, req.source)).cloned().unwrap_or_default();
    let from = from.into_iter().skip(req.source_offset as usize).take(req.len_bytes as usize);
    let bytes: Vec<u8> = from.collect();
    if bytes.iter().all(|byte| *byte == 0) {
        return change(&[]);
    }
    let data = objects.entry((ost, req.object)).or_default();
    let (at, end) = (req.offset as usize, req.offset as usize + bytes.len());
    data.resize(data.len().max(end), 0);
    data[at..end].copy_from_slice(&bytes);
    change(data)
}

impl FakeOsts {
    fn space(&self, ost: u16) -> OstStatfsResp {
        OstStatfsResp {
            available_bytes: self.room.lock().get(&ost).copied().unwrap_or(1 << 40),
            total_bytes: 1 << 41,
            total_inodes: 1 << 30,
            free_inodes: 1 << 30,
            device_id: ost.into(),
            boot_term: 1,
            degraded: false,
        }
    }
}

/// Interval at which a call checks whether its OST is there again.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(1);

impl OstCalls for Arc<FakeOsts> {
    fn call(&self, ost: u16, op: Op, body: Bytes, bulk: Vec<Bytes>) -> BoxFuture<'static, Result<Frame>> {
        let this = self.clone();
        Box::pin(async move {
            while this.down.lock().contains(&ost) {
                tokio::time::sleep(AGAIN).await;
            }
            this.answer(ost, op, body, bulk)
        })
    }

    fn probe(&self, ost: u16, op: Op, body: Bytes) -> BoxFuture<'static, Result<Frame>> {
        let answer = match self.down.lock().contains(&ost) {
            true => Err(Fault::new(Code::Disconnected)),
            false => self.answer(ost, op, body, Vec::new()),
        };
        Box::pin(std::future::ready(answer))
    }

    fn all(&self) -> BoxFuture<'_, Vec<u16>> {
        Box::pin(std::future::ready((0..OSTS).collect()))
    }

    fn set_term(&self, _: u32) {}

    fn waits(&self) -> Vec<(String, String, u64)> {
        Vec::new()
    }
}

/// Longest object that is kept here, in bytes.
const OBJECT_MAX_BYTES: u64 = 64 << 20;

/// Whether a request is about more bytes than are kept here.
fn is_too_large(op: Op, body: &Bytes) -> bool {
    let end = match op {
        Op::TruncateObject => decode_body::<TruncateObjectReq>(body).expect("decodes").len_bytes,
        Op::Write => decode_body::<WriteReq>(body).expect("decodes").offset,
        Op::CopyRange => {
            let req = decode_body::<CopyRangeReq>(body).expect("decodes");
            req.offset.saturating_add(req.len_bytes)
        }
        _ => 0,
    };
    end > OBJECT_MAX_BYTES
}

impl FakeOsts {
    fn answer(&self, ost: u16, op: Op, body: Bytes, bulk: Vec<Bytes>) -> Result<Frame> {
        let frame = Frame::new(Header { op: op as u16, ..Header::default() }, body).with_bulk(bulk);
        self.calls.lock().push((ost, op));
        if self.broken.lock().contains(&ost) || self.refused.lock().contains(&op) {
            let refused = encode_body(&Err::<(), _>(Fault::new(Code::OstIo)));
            return Ok(Frame::reply_to(&frame.header, refused));
        }
        if is_too_large(op, &frame.body) {
            let refused = encode_body(&Err::<(), _>(Fault::new(Code::TooLarge)));
            return Ok(Frame::reply_to(&frame.header, refused));
        }
        let mut objects = self.objects.lock();
        let reply = match op {
            Op::StatObjects => answer(&frame, |req: StatObjectsReq| {
                let stat = |id: &ObjectId| match objects.get(&(ost, *id)) {
                    None => ObjectStat::default(),
                    Some(data) => ObjectStat {
                        exists: true,
                        len_bytes: data.len() as u64,
                        allocated_bytes: data.len() as u64,
                        last_write: *self.last_write.lock(),
                        is_cut_short: false,
                        truncate_epoch: Pair::ZERO,
                    },
                };
                StatObjectsResp { objects: req.objects.iter().map(stat).collect(), boot_term: 1 }
            }),
            Op::TruncateObject => answer(&frame, |req: TruncateObjectReq| cut(&mut objects, ost, &req)),
            Op::Write => answer(&frame, |req: WriteReq| {
                let data = objects.entry((ost, req.object)).or_default();
                let bytes = frame.bulk_bytes();
                let end = req.offset as usize + bytes.len();
                if data.len() < end {
                    data.resize(end, 0);
                }
                data[req.offset as usize..end].copy_from_slice(&bytes);
                WriteResp { change: change(data), grant: None }
            }),
            Op::DestroyObjects => answer(&frame, |req: DestroyObjectsReq| {
                let kept = self.stuck.lock();
                let (stuck, gone): (Vec<_>, Vec<_>) = req.objects.into_iter().partition(|o| kept.contains(o));
                let removed = gone.iter().filter(|o| objects.remove(&(ost, **o)).is_some()).count();
                self.destroyed.lock().extend(gone);
                DestroyObjectsResp { removed: removed as u32, stuck }
            }),
            Op::FenceLayout => answer(&frame, |req: FenceLayoutReq| {
                self.fences.lock().extend(req.objects.iter().map(|o| ((ost, *o), req.layout_epoch)));
                Empty {}
            }),
            Op::CopyRange => {
                let len_bytes = decode_body::<CopyRangeReq>(&frame.body).expect("decodes").len_bytes;
                if self.room.lock().get(&ost).is_some_and(|room| *room < len_bytes) {
                    let full = encode_body(&Err::<(), _>(Fault::new(Code::OstFull)));
                    Frame::reply_to(&frame.header, full)
                } else {
                    answer(&frame, |req: CopyRangeReq| copy(&mut objects, ost, &req))
                }
            }
            Op::OstStatfs => answer(&frame, |_: OstStatfsReq| self.space(ost)),
            Op::SyncObjects => answer(&frame, |req: SyncObjectsReq| {
                let exists = req.objects.iter().map(|o| objects.contains_key(&(ost, *o))).collect();
                SyncObjectsResp { boot_term: 1, exists, allocated_bytes: 0 }
            }),
            Op::FenceSession => answer(&frame, |_: FenceSessionReq| Empty {}),
            other => panic!("{other:?} is not asked here"),
        };
        Ok(reply)
    }
}

/// A disk whose power cuts take everything that was not synced, with the directory of the MDT on it.
pub fn new_disk() -> SimDisk {
    let model = DiskModel { survival: Survival::Nothing, block_bytes: 4096, ..DiskModel::default() };
    let disk = SimDisk::new(1, model);
    disk.put_dir(DIR);
    disk
}

/// One MDT with its surroundings.
pub struct Rig {
    pub disk: SimDisk,
    pub clients: Arc<Clients>,
    pub osts: Arc<FakeOsts>,
    pub mdt: Arc<Mdt>,
    sequence: AtomicU64,
    pub seams: Seams,
}

pub const A: SessionId = SessionId(1);
pub const B: SessionId = SessionId(2);
pub const EPOCH: Pair = Pair { term: 1, counter: 1 };
pub const DIR: &str = "/mdt";
pub const OSTS: u16 = 4;
/// Room for some hundred records.
pub const CHANGELOG_BYTES_MAX: u64 = 64 << 10;

pub fn identity() -> Identity {
    Identity { fs: "scratch".parse().expect("name"), index: 0, uuid: [7; 16] }
}

/// Runs a test on one thread.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("runtime");
    runtime.block_on(test)
}

impl Rig {
    /// A new MDT with two sessions.
    pub async fn new() -> Rig {
        let disk = new_disk();
        let seams = Seams {
            clock: Arc::new(RealClock),
            rng: Arc::new(RealRng),
            tasks: Arc::new(TokioSpawn(tokio::runtime::Handle::current())),
            disk: Arc::new(disk.clone()),
        };
        crate::format::make_store(&seams, DIR, &identity()).await.expect("formatted");
        let (clients, osts) = (Arc::new(Clients::default()), Arc::new(FakeOsts::default()));
        let mdt = open(&seams, &clients, &osts).await.expect("opened");
        let rig = Rig { disk, clients, osts, mdt, sequence: AtomicU64::new(1), seams };
        rig.join(A).await;
        rig.join(B).await;
        rig
    }

    /// Opens a session.
    pub async fn join(&self, id: SessionId) {
        let row = session::Session {
            client_uuid: [id.0 as u8; 16],
            epoch: EPOCH,
            ended: false,
            fenced: true,
            host: "cn1".into(),
            mount: "/mnt".into(),
        };
        let call = Call::internal(Op::SessionOpen);
        let made = self.mdt.step(&call, |t| {
            session::put(t, id, &row);
            let (row, now) = (row.clone(), t.mdt().seams().now());
            t.after(move |live| {
                live.sessions
                    .insert(id, LiveSession { row, renewed: now, must_reclaim: false, limits: None });
            });
            Ok(())
        });
        made.await.expect("session made");
    }

    /// Rows are written in the newest forms from now on.
    pub async fn raise_level(&self) {
        let call = Call::internal(Op::RaiseLevel);
        let raised = self.mdt.step(&call, |t| {
            meta::put_format_level(t, FormatLevel::NEWEST);
            Ok(())
        });
        raised.await.expect("raised");
        self.mdt.engine().set_level(FormatLevel::NEWEST);
    }

    /// Puts an empty disk in place of the MDT's.
    pub fn new_disk(&mut self) {
        self.disk = new_disk();
        self.seams.disk = Arc::new(self.disk.clone());
    }

    /// Starts the MDT from the disk.
    pub async fn open_again(&mut self) {
        self.mdt = open(&self.seams, &self.clients, &self.osts).await.expect("opened again");
    }

    /// Kills the MDT and starts it again.
    pub async fn restart(&mut self) {
        let (clients, osts) = (self.clients.clone(), self.osts.clone());
        // Opening a second time over the same files is what a start after kill -9 does.
        self.mdt.engine().close().await.expect("closed");
        self.mdt = open(&self.seams, &clients, &osts).await.expect("opened again");
    }

    /// Checks that nothing is wrong with the rows.
    pub fn verify(&self) {
        for hot in self.mdt.engine().hot().all() {
            let row = inode::find(self.mdt.engine(), hot.ino);
            assert_eq!(row, Ok(Some(hot)), "an inode that is kept decoded is what its row says");
        }
        let findings = crate::check::verify(self.mdt.engine()).expect("rows can be read");
        assert!(findings.is_empty(), "{findings:#?}");
    }

    /// Loses unsynced bytes and starts the MDT again.
    pub async fn power_cut(&mut self) {
        self.disk = self.disk.power_cut();
        self.seams.disk = Arc::new(self.disk.clone());
        self.mdt = open(&self.seams, &self.clients, &self.osts).await.expect("opened again");
    }

    pub fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    pub fn call<M: Message>(&self, session: SessionId) -> Call {
        self.call_at::<M>(session, 0, self.next_sequence())
    }

    pub fn call_at<M: Message>(&self, session: SessionId, slot: u16, sequence: u64) -> Call {
        let header = brindle_wire::frame::Header {
            op: M::OP as u16,
            session,
            session_epoch: EPOCH,
            slot,
            sequence,
            ..Default::default()
        };
        Call::new(&header, M::OP)
    }

    /// Sends one request through dispatch.
    pub async fn ask<M: Message>(&self, session: SessionId, req: M) -> Result<M::Resp> {
        self.send(&self.call::<M>(session), &req).await
    }

    pub async fn send<M: Message>(&self, call: &Call, req: &M) -> Result<M::Resp> {
        let body = dispatch(&self.mdt, call, &encode_body(req)).await;
        decode_reply(&Frame::new(Default::default(), body))
    }

    pub async fn create(
        &self,
        session: SessionId,
        parent: Ino,
        name: &str,
        access: Access,
    ) -> Result<CreateResp> {
        self.ask(session, create_req(parent, name, access)).await
    }

    pub async fn mkdir(&self, parent: Ino, name: &str) -> Result<Attr> {
        let req = brindle_wire::mds::mkdir::MkdirReq {
            parent,
            name: name.into(),
            mode: 0o755,
            umask: 0,
            cred: root(),
        };
        Ok(self.ask(A, req).await?.attr)
    }

    pub async fn lookup(&self, parent: Ino, name: &str) -> Result<Attr> {
        let req = brindle_wire::mds::lookup::LookupReq { parent, name: name.into() };
        Ok(self.ask(A, req).await?.attr)
    }

    pub async fn stat(&self, session: SessionId, ino: Ino) -> Result<Attr> {
        let req = brindle_wire::mds::getattr::GetattrReq { ino, report: None };
        Ok(self.ask(session, req).await?.attr)
    }

    pub async fn unlink(&self, parent: Ino, name: &str) -> Result<()> {
        let req = brindle_wire::mds::unlink::UnlinkReq { parent, name: name.into(), cred: root() };
        self.ask(A, req).await.map(drop)
    }

    pub async fn close(&self, session: SessionId, ino: Ino, handle: u64) -> Result<()> {
        self.ask(session, brindle_wire::mds::close::CloseReq::one(ino, handle, None)).await.map(drop)
    }
}

async fn open(seams: &Seams, clients: &Arc<Clients>, calls: &Arc<FakeOsts>) -> Result<Arc<Mdt>> {
    let nid = "127.0.0.1:0".parse().expect("address");
    let config = Config {
        lease_ms: 200,
        changelog_bytes_max: CHANGELOG_BYTES_MAX,
        divide_above_bytes: DIVIDE_ABOVE_BYTES,
        ..Config::new(DIR, nid, "mds1")
    };
    let osts = Osts::new(seams.clone(), Arc::new(calls.clone()));
    for index in 0..OSTS {
        let candidate =
            Candidate { index, free_bytes: 1 << 30, total_bytes: 1 << 31, up: true, ..Candidate::default() };
        osts.set_candidate(candidate);
    }
    let mdt = Mdt::open(seams, identity(), config, clients.clone(), osts).await?;
    for session in mdt.live_mut().sessions.values_mut() {
        session.must_reclaim = false;
    }
    Ok(mdt)
}

pub fn root() -> Cred {
    Cred::default()
}

pub fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Vec::new() }
}

pub fn create_req(parent: Ino, name: &str, access: Access) -> CreateReq {
    static HANDLES: AtomicU64 = AtomicU64::new(100);
    CreateReq {
        parent,
        name: name.into(),
        mode: 0o644,
        umask: 0o022,
        exclusive: true,
        access,
        handle: HANDLES.fetch_add(1, Ordering::Relaxed),
        cred: root(),
    }
}

/// Changes nothing yet.
pub fn setattr_req(ino: Ino, cred: Cred) -> SetattrReq {
    SetattrReq {
        ino,
        cred,
        mode: None,
        uid: None,
        gid: None,
        size_bytes: None,
        atime: None,
        mtime: None,
        kill_suidgid: false,
        handle: 0,
        report: None,
    }
}

pub fn code<T>(outcome: Result<T>) -> Option<Code> {
    outcome.err().map(|fault| fault.code)
}
