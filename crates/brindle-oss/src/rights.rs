//! Rights of hosts that are not trusted fully (design note 038).
//!
//! An OST knows objects, and neither users nor permissions. For a session of a limited host it asks the MDT what the session has open, file
//! by file, and remembers the answer while the session has the same epoch and its host the same nodemap. The MDT answers from memory
//! without waiting, so an OST may wait for the answer in front of a request. For other hosts the OST does not ask.
//!
//! [`admit`] names every operation: a new one does not compile until somebody has decided what it needs.
//!
//! A right that was learnt once still counts after the file is closed: the host could have kept the file open.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_net::{Limits, ServerConn};
use brindle_targets::Gate;
use brindle_types::{Code, Fault, Ino, Pair, Result, SessionId, TargetId};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, decode_body};
use brindle_wire::mds::rights::{SessionRightsReq, SessionRightsResp};
use brindle_wire::oss::punch::{AllocateReq, PunchReq};
use brindle_wire::oss::read::ReadReq;
use brindle_wire::oss::seek::SeekReq;
use brindle_wire::oss::write::{CopyRangeReq, WriteReq};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::fences;
use crate::service::Oss;

/// Answers that are remembered; beyond them all are asked for again.
const KNOWN_MAX: usize = 1 << 18;
/// Questions that are on their way at once.
const ASKED_MAX: usize = 256;
/// Pause before a session is asked about again that has not declared yet what it has open.
const UNSETTLED_PAUSE_MS: u64 = 100;
/// Number of questions to the MDT before the client is told to come again.
const UNSETTLED_ASKS: usize = 100;

/// Right of a session to the objects of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Right {
    read: bool,
    write: bool,
}

impl Right {
    const READ: Right = Right { read: true, write: false };
    const WRITE: Right = Right { read: false, write: true };

    fn covers(self, wanted: Right) -> bool {
        (self.read || !wanted.read) && (self.write || !wanted.write)
    }
}

/// Rights of a session, as far as they were asked for.
struct Known {
    epoch: Pair,
    limits: Arc<Limits>,
    files: BTreeMap<Ino, Right>,
}

/// Rights of all sessions of limited hosts: by session and host, since an OST cannot know whose a session is.
pub struct Rights {
    known: Mutex<BTreeMap<(SessionId, String), Known>>,
    asking: Semaphore,
}

impl Default for Rights {
    fn default() -> Rights {
        Rights { known: Mutex::default(), asking: Semaphore::new(ASKED_MAX) }
    }
}

impl Rights {
    fn of(&self, asked: &Asked<'_>, ino: Ino) -> Right {
        let mut known = self.known.lock();
        let key = asked.key();
        match known.get(&key) {
            Some(session) if session.epoch == asked.epoch && session.limits == *asked.limits => {
                session.files.get(&ino).copied().unwrap_or_default()
            }
            Some(_) => {
                known.remove(&key);
                Right::default()
            }
            None => Right::default(),
        }
    }

    fn learn(&self, asked: &Asked<'_>, ino: Ino, right: Right) {
        let mut known = self.known.lock();
        if known.values().map(|session| 1 + session.files.len()).sum::<usize>() >= KNOWN_MAX {
            known.clear();
        }
        let new = || Known { epoch: asked.epoch, limits: asked.limits.clone(), files: BTreeMap::new() };
        let session = known.entry(asked.key()).or_insert_with(new);
        if session.epoch != asked.epoch || session.limits != *asked.limits {
            *session = new();
        }
        session.files.insert(ino, right);
    }

    /// Files that something is known of, for tests.
    pub fn known(&self) -> usize {
        self.known.lock().values().map(|session| session.files.len()).sum()
    }
}

/// Caller of a request.
struct Asked<'a> {
    session: SessionId,
    epoch: Pair,
    host: &'a str,
    limits: &'a Arc<Limits>,
}

impl Asked<'_> {
    fn key(&self) -> (SessionId, String) {
        (self.session, self.host.to_owned())
    }
}

/// Rights that an operation needs.
enum Needs {
    /// No right: the operation is about the session, or reveals nothing of files.
    Nothing,
    /// Reading.
    Read(Ino),
    /// Writing.
    Write(Ino),
    /// Reading or writing: where a file has holes.
    Either(Ino),
    /// Writing the one, reading the other.
    Copy { from: Ino, to: Ino },
}

fn needs(op: Op, body: &[u8]) -> Result<Needs> {
    Ok(match op {
        Op::Read => Needs::Read(decode_body::<ReadReq>(body)?.object.ino),
        Op::Seek => Needs::Either(decode_body::<SeekReq>(body)?.object.ino),
        Op::Write => Needs::Write(decode_body::<WriteReq>(body)?.object.ino),
        Op::Punch => Needs::Write(decode_body::<PunchReq>(body)?.object.ino),
        Op::Allocate => Needs::Write(decode_body::<AllocateReq>(body)?.object.ino),
        Op::CopyRange => {
            let copy: CopyRangeReq = decode_body(body)?;
            Needs::Copy { from: copy.source.ino, to: copy.object.ino }
        }
        // A file may be closed when its bytes are synced; that tells whether objects exist, and no more.
        Op::SyncObjects | Op::OstStatfs | Op::TargetInfo => Needs::Nothing,
        // Room that was promised to a session goes with it: whose the session is the OST does not know.
        Op::ReturnGrant => return refused(op),
        // Only servers and administrators may ask this, whatever the host claims to be.
        Op::StatObjects | Op::TruncateObject | Op::DestroyObjects | Op::ListObjects => return refused(op),
        Op::FenceSession | Op::FenceLayout => return refused(op),
        Op::ReplicaAttach | Op::ReplicaLease | Op::ReplicaChange | Op::ReplicaLook => return refused(op),
        Op::ReplicaList | Op::ReplicaRead | Op::ReplicaVerify | Op::ReplicaScrub => return refused(op),
        Op::Scrub | Op::NoteScrub | Op::MdtScrub | Op::NoteOpening => return refused(op),
        Op::MemberVerify | Op::MemberCompare | Op::MemberScrub | Op::ReportSpare => return refused(op),
        // Other servers'.
        Op::SessionOpen | Op::SessionRenew | Op::SessionClose | Op::Reclaim => return refused(op),
        Op::Lookup | Op::Getattr | Op::Setattr | Op::Create | Op::Mkdir | Op::Mknod => return refused(op),
        Op::Symlink | Op::Link | Op::Unlink | Op::Rmdir | Op::Rename | Op::Tmpfile => return refused(op),
        Op::Readlink | Op::Readdir | Op::Getxattr | Op::Listxattr | Op::Setxattr => return refused(op),
        Op::Removexattr | Op::MdtStatfs | Op::OpenAhead | Op::Open | Op::Close | Op::Report => {
            return refused(op);
        }
        Op::Fsync | Op::SyncAll | Op::InlineRead | Op::InlineWrite | Op::Convert | Op::LayoutGet => {
            return refused(op);
        }
        Op::AppendReserve | Op::AppendDone | Op::Invalidate | Op::Spill | Op::GetLock => return refused(op),
        Op::SetLock | Op::CancelLock | Op::SetStripe | Op::GetStripe | Op::PathOf | Op::Scan => {
            return refused(op);
        }
        Op::Migrate | Op::OstUse | Op::OwnerQuery | Op::MdtWaits | Op::FenceTable => return refused(op),
        Op::QuotaSet | Op::QuotaRoom | Op::QuotaUse | Op::SessionRights | Op::BackupRead => {
            return refused(op);
        }
        Op::ProjectGet | Op::ProjectSet | Op::QuotaFileRoom | Op::QuotaShow => return refused(op),
        Op::NoteAccess | Op::QuotaChange | Op::QuotaList | Op::HsmShares => return refused(op),
        Op::ChangelogRegister | Op::ChangelogDeregister | Op::ChangelogClear => return refused(op),
        Op::ChangelogRead | Op::ChangelogInfo | Op::ChangelogMask => return refused(op),
        Op::HsmState | Op::HsmAct | Op::HsmSet | Op::HsmRecall | Op::HsmTake => return refused(op),
        Op::HsmProgress | Op::HsmDone | Op::HsmInfo | Op::HsmSwitch | Op::HsmBacklog => return refused(op),
        Op::PolicyScan | Op::PolicyRemove | Op::HsmImport | Op::HsmSpanDone => return refused(op),
        Op::HsmOpen | Op::HsmRead | Op::HsmExtents | Op::HsmDivide | Op::HsmSpanTake => return refused(op),
        Op::MemberAttach | Op::MemberLease | Op::MemberAppend => return refused(op),
        Op::MemberSync | Op::MemberFill | Op::HsmRemove => return refused(op),
        Op::MdtLogLines | Op::OstLogLines | Op::MgsLogLines | Op::LogLinesNotice => return refused(op),
        Op::ListMounts | Op::MountLogLines | Op::MdtTrace | Op::OstTrace => return refused(op),
        Op::MdtUsage | Op::MdtLogLevel | Op::OstUsage | Op::OstLogLevel | Op::MgsLogLevel => {
            return refused(op);
        }
        Op::Register | Op::GetMap | Op::Heartbeat | Op::Join | Op::RenewCertificate => return refused(op),
        Op::WatchHost | Op::ReportHost | Op::WatchAccess | Op::KeepShared => return refused(op),
        Op::ChangePool | Op::ChangeTarget | Op::RaiseLevel | Op::ListHosts | Op::CreateToken => {
            return refused(op);
        }
        Op::ChangeHost | Op::ListShared | Op::ChangeShared | Op::FetchMgt | Op::NoteTerm => {
            return refused(op);
        }
        Op::Events | Op::KeepReplicas | Op::ListReplicas | Op::ChangeReplicas => return refused(op),
        Op::ChangeInSync | Op::ShowReplica | Op::ListSpares | Op::ChangeSpare => return refused(op),
        Op::WatchNodemaps | Op::ListNodemaps | Op::ChangeNodemap | Op::NodeOffer => return refused(op),
        Op::WatchMappedNodemaps | Op::ListMappedNodemaps | Op::ChangeMappedNodemap => return refused(op),
        Op::MdtShares | Op::OstShares | Op::WatchLimits | Op::ChangeLimit => return refused(op),
        Op::WatchDurability | Op::ChangeDurability | Op::TakeOrders | Op::RestartHost => return refused(op),
        Op::RecallNotice | Op::InvalidateNotice | Op::LayoutNotice | Op::ReportNotice => return refused(op),
        Op::SessionEndNotice | Op::SettleNotice | Op::LeaseNotice | Op::ClosedNotice => return refused(op),
        Op::NodeRegister | Op::NodeOrder | Op::NodeSlices | Op::NodeStage => return refused(op),
        Op::MountLogLevel | Op::LogLevelNotice | Op::NodeLogLines | Op::NodeLogLevel => return refused(op),
    })
}

fn refused(op: Op) -> Result<Needs> {
    Err(Fault::new(Code::NotForNodemap).subject(op.name()).data("nothing was changed"))
}

/// Refuses a request that its host may not make. `gate` knows the host.
pub async fn admit(oss: &Arc<Oss>, gate: &Gate, conn: &ServerConn, op: Op, frame: &Frame) -> Result<()> {
    let Some(limits) = gate.limits(conn) else { return Ok(()) };
    let header = &frame.header;
    let (session, epoch) = (header.session, header.session_epoch);
    let asked = Asked { session, epoch, host: &conn.principal().host, limits: &limits };
    let admitted = match needs(op, &frame.body)? {
        Needs::Nothing => Ok(()),
        Needs::Read(ino) => check(oss, &asked, ino, Right::READ).await,
        Needs::Write(ino) => check(oss, &asked, ino, Right::WRITE).await,
        Needs::Either(ino) => match check(oss, &asked, ino, Right::READ).await {
            Err(fault) if fault.code == Code::PermissionDenied => check(oss, &asked, ino, Right::WRITE).await,
            done => done,
        },
        Needs::Copy { from, to } => match check(oss, &asked, from, Right::READ).await {
            Ok(()) => check(oss, &asked, to, Right::WRITE).await,
            refused => refused,
        },
    };
    admitted.inspect_err(|fault| gate.count(fault))
}

async fn check(oss: &Arc<Oss>, asked: &Asked<'_>, ino: Ino, wanted: Right) -> Result<()> {
    let limits = asked.limits;
    if wanted.write && limits.read_only {
        let why = format!("nodemap '{}' says so", limits.nodemap);
        return Err(Fault::new(Code::ReadOnlyHost).why(why).data("nothing was changed"));
    }
    let reads_all = limits.believes_all_users() && limits.subtree.is_empty();
    if reads_all || oss.rights.of(asked, ino).covers(wanted) {
        return Ok(());
    }
    let right = learn(oss, asked, ino).await?;
    if right.covers(wanted) {
        return Ok(());
    }
    let verb = if wanted.write { "writing" } else { "reading" };
    Err(Fault::new(Code::PermissionDenied)
        .subject(ino.fid().to_string())
        .why(format!(
            "nodemap '{}' limits this host, and {} has not opened the file for {verb}",
            limits.nodemap, asked.session
        ))
        .data("nothing was changed"))
}

/// Asks the MDT what the session has open of a file; waits as long as the MDT is away.
async fn learn(oss: &Arc<Oss>, asked: &Asked<'_>, ino: Ino) -> Result<Right> {
    let Asked { session, epoch, host, .. } = *asked;
    let question = SessionRightsReq { session, epoch, host: host.to_owned(), ino };
    for _ in 0..UNSETTLED_ASKS {
        let answer = {
            let _place = oss.rights.asking.acquire().await;
            oss.targets.caller(TargetId::mdt(fences::MDT)).await?.ask(&question).await?
        };
        let SessionRightsResp { read, write, is_unsettled } = answer;
        if !is_unsettled {
            let right = Right { read, write };
            if right != Right::default() {
                oss.rights.learn(asked, ino, right);
            }
            return Ok(right);
        }
        oss.seams.sleep_ms(UNSETTLED_PAUSE_MS).await;
    }
    Err(Fault::new(Code::Disconnected).why(format!("{session} has not declared yet what it has open")))
}
