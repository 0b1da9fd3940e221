//! The gate for hosts that are not trusted fully: what each operation needs (design note 038).
//!
//! For other hosts the kernel of the caller checks permissions, and this module does nothing. A request of a limited host is decoded, its
//! credentials are replaced by those that the nodemap gives, and a [`Check`] is made of it. The check runs before the operation, and again
//! under the writer lock in every batch of the operation, so that it holds for the files and names that the batch changes.
//!
//! [`admit`] names every operation: a new one does not compile until somebody has decided what it needs. [`numbers`] has the
//! numbers of users and groups in answers.

mod judge;
pub mod numbers;

use std::sync::Arc;

use brindle_net::Limits;
use brindle_types::{Code, Fault, Ino, Result, SessionId};
use brindle_wire::frame::{decode_body, encode_body};
use brindle_wire::mds::hsm::{
    HsmActReq, HsmAsk, HsmOpenReq, HsmReadReq, HsmRecallReq, HsmSetReq, HsmStateReq,
};
use brindle_wire::mds::lock::{CancelLockReq, GetLockReq, LockKind, SetLockReq};
use brindle_wire::mds::project::ProjectGetReq;
use brindle_wire::mds::quota::QuotaSubject;
use brindle_wire::mds::report::WriteReport;
use brindle_wire::mds::scan::{DEPTH_MAX, ScanReq};
use brindle_wire::mds::session::ReclaimOpen;
use brindle_wire::mds::xattr::{GetxattrReq, ListxattrReq, RemovexattrReq, SetxattrReq};
use brindle_wire::mds::{
    append, convert, create, fsync, getattr, inline, invalidate, link, lookup, migrate, mkdir, mknod, open,
    quota, readdir, readlink, rename, setattr, stripe, symlink, tmpfile, unlink,
};
use brindle_wire::{Cred, Message, Op};
use bytes::Bytes;
use serde::Serialize;

use crate::access::{READ, SEARCH, WRITE};
use crate::mdt::{Call, Txn};
use crate::store::{Inode, inode};
pub use judge::Judge;

/// A condition that has to hold when an operation runs.
type Check = Box<dyn Fn(&Judge<'_, '_>) -> Result<()> + Send + Sync>;

/// A request of a limited host, as it may run.
pub struct Admitted {
    limits: Arc<Limits>,
    check: Result<Check>,
}

impl Admitted {
    /// Whether the operation may run at this moment.
    pub fn check(&self, t: &Txn<'_>, session: SessionId) -> Result<()> {
        match &self.check {
            Ok(check) => check(&self.judge(t, session)),
            Err(fault) => Err(fault.clone()),
        }
    }

    /// Limits of the host.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The view of the request.
    pub fn judge<'a, 't>(&'a self, t: &'a Txn<'t>, session: SessionId) -> Judge<'a, 't> {
        Judge::new(t, &self.limits, session)
    }
}

impl std::fmt::Debug for Admitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admitted").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A request that is being looked at.
struct Request<'a> {
    limits: &'a Limits,
    body: &'a Bytes,
}

/// The body to execute, and the rights that it needs.
type Outcome = Result<(Bytes, Check)>;

/// Takes in a request of a limited host: the body that is to be carried out. A refusal comes when the
/// operation begins, so that it is kept as the operation's answer.
pub fn admit(call: &Call, limits: Arc<Limits>, body: &Bytes) -> Bytes {
    let request = Request { limits: &limits, body };
    let (body, check) = match request.look(call.op) {
        Ok((body, check)) => (body, Ok(check)),
        Err(fault) => (body.clone(), Err(fault)),
    };
    call.admitted(Admitted { limits, check });
    body
}

impl Request<'_> {
    /// The table.
    fn look(&self, op: Op) -> Outcome {
        match op {
            // Requests about the session itself, and requests that reveal nothing of files.
            Op::SessionOpen | Op::SessionRenew | Op::SessionClose | Op::TargetInfo => self.as_it_is(),
            Op::MdtStatfs | Op::SyncAll => self.as_it_is(),
            // Each handle is judged by itself, where it is taken in.
            Op::Reclaim | Op::OpenAhead => self.as_it_is(),
            // Each file is judged by itself, too.
            Op::NoteAccess => self.as_it_is(),
            Op::Lookup | Op::Getattr | Op::Readlink | Op::Readdir => self.looks(op),
            Op::Getxattr | Op::Listxattr | Op::Setxattr | Op::Removexattr => self.xattr(op),
            Op::Create | Op::Mkdir | Op::Mknod | Op::Symlink | Op::Tmpfile | Op::Link => self.makes(op),
            Op::Unlink | Op::Rmdir | Op::Rename => self.removes(op),
            Op::Setattr => self.sets(),
            Op::Open => self.opens(),
            Op::Close | Op::Report | Op::Fsync => self.reports(op),
            Op::InlineRead => self.reads(|req: &inline::InlineReadReq, by| by.holds_for_reading(req.ino)),
            Op::InlineWrite | Op::Convert | Op::Spill | Op::Invalidate => self.writes(op),
            Op::AppendReserve | Op::AppendDone | Op::QuotaRoom | Op::QuotaFileRoom => self.writes(op),
            Op::LayoutGet => self.reads(|req: &convert::LayoutGetReq, by| is_open(by, req.ino)),
            Op::GetLock | Op::SetLock | Op::CancelLock => self.locks(op),
            Op::SetStripe | Op::GetStripe | Op::Migrate => self.layout(op),
            Op::Scan => self.scans(),
            Op::QuotaUse | Op::QuotaShow => self.shows_quota(op),
            Op::ProjectGet => self.reads(|req: &ProjectGetReq, by| by.may_see(req.ino)),
            Op::HsmState | Op::HsmAct | Op::HsmSet | Op::HsmRecall | Op::HsmOpen | Op::HsmRead => {
                self.tiering(op)
            }
            // Names of what lies outside, what others do, and the file system as a whole: not from a host that is not trusted with root.
            Op::PathOf | Op::MdtWaits | Op::QuotaSet | Op::HsmBacklog | Op::PolicyScan | Op::PolicyRemove => {
                self.roots_only(op)
            }
            // Linux treats projects in user namespaces alike: the project limits the tree of such a host.
            Op::ProjectSet | Op::QuotaChange | Op::QuotaList => self.roots_only(op),
            Op::HsmTake | Op::HsmProgress | Op::HsmDone | Op::HsmImport | Op::HsmExtents => {
                self.roots_only(op)
            }
            // A removal may be about a file that is gone, which is below no directory.
            Op::HsmDivide | Op::HsmSpanTake | Op::HsmSpanDone | Op::HsmRemove => self.roots_only(op),
            // Only administrators and servers may ask this, whatever the host claims to be.
            Op::OstUse | Op::OwnerQuery | Op::FenceTable | Op::SessionRights | Op::BackupRead => refused(op),
            Op::ChangelogRegister | Op::ChangelogDeregister | Op::ChangelogClear => refused(op),
            Op::ChangelogRead | Op::ChangelogInfo | Op::ChangelogMask => refused(op),
            Op::HsmInfo | Op::HsmSwitch | Op::HsmShares => refused(op),
            Op::MdtUsage | Op::MdtLogLevel | Op::OstUsage | Op::OstLogLevel | Op::MgsLogLevel => refused(op),
            Op::MdtLogLines | Op::OstLogLines | Op::MgsLogLines | Op::LogLinesNotice => refused(op),
            Op::ListMounts | Op::MountLogLines | Op::MdtTrace | Op::OstTrace => refused(op),
            // Other servers'.
            Op::Read | Op::Write | Op::Punch | Op::Allocate | Op::TruncateObject | Op::SyncObjects => {
                refused(op)
            }
            Op::StatObjects | Op::DestroyObjects | Op::Seek | Op::FenceSession | Op::FenceLayout => {
                refused(op)
            }
            Op::OstStatfs | Op::CopyRange | Op::ListObjects | Op::ReturnGrant => refused(op),
            Op::ReplicaAttach | Op::ReplicaLease | Op::ReplicaChange | Op::ReplicaLook => refused(op),
            Op::ReplicaList | Op::ReplicaRead | Op::ReplicaVerify | Op::ReplicaScrub => refused(op),
            Op::Scrub | Op::NoteScrub | Op::MdtScrub | Op::NoteOpening => refused(op),
            Op::MemberVerify | Op::MemberCompare | Op::MemberScrub | Op::ReportSpare => refused(op),
            Op::MemberAttach | Op::MemberLease | Op::MemberAppend | Op::MemberSync | Op::MemberFill => {
                refused(op)
            }
            Op::Register | Op::GetMap | Op::Heartbeat | Op::Join | Op::RenewCertificate => refused(op),
            Op::WatchHost | Op::ReportHost | Op::WatchAccess | Op::KeepShared => refused(op),
            Op::ChangePool | Op::ChangeTarget | Op::RaiseLevel | Op::ListHosts | Op::CreateToken => {
                refused(op)
            }
            Op::ChangeHost | Op::ListShared | Op::ChangeShared | Op::FetchMgt | Op::NoteTerm => refused(op),
            Op::Events | Op::KeepReplicas | Op::ListReplicas | Op::ChangeReplicas => refused(op),
            Op::ChangeInSync | Op::ShowReplica | Op::ListSpares | Op::ChangeSpare => refused(op),
            Op::WatchNodemaps | Op::ListNodemaps | Op::ChangeNodemap | Op::RestartHost => refused(op),
            Op::WatchMappedNodemaps | Op::ListMappedNodemaps | Op::ChangeMappedNodemap => refused(op),
            Op::MdtShares | Op::OstShares | Op::WatchLimits | Op::ChangeLimit => refused(op),
            Op::RecallNotice | Op::InvalidateNotice | Op::LayoutNotice | Op::ReportNotice => refused(op),
            Op::SessionEndNotice | Op::SettleNotice | Op::LeaseNotice | Op::ClosedNotice => refused(op),
            Op::NodeRegister | Op::NodeOrder | Op::NodeSlices | Op::TakeOrders => refused(op),
            Op::MountLogLevel | Op::LogLevelNotice | Op::NodeLogLines | Op::NodeLogLevel => refused(op),
            Op::WatchDurability | Op::ChangeDurability | Op::NodeStage | Op::NodeOffer => refused(op),
        }
    }

    /// Looking at names and attributes.
    fn looks(&self, op: Op) -> Outcome {
        match op {
            Op::Lookup => self.reads(|req: &lookup::LookupReq, by| match &req.name[..] {
                b"." => by.reaches(req.parent),
                // The host sees nothing above its tree.
                b".." if by.is_own_root(req.parent)? => {
                    Err(judge::denied(by.limits, "nothing lies above its tree"))
                }
                name => by.may_look_up(req.parent, name),
            }),
            Op::Getattr => self.reads(|req: &getattr::GetattrReq, by| by.may_see(req.ino)),
            Op::Readdir => self.reads(|req: &readdir::ReaddirReq, by| by.may(req.ino, None, READ)),
            _ => self.reads(|req: &readlink::ReadlinkReq, by| by.reaches(req.ino)),
        }
    }

    fn xattr(&self, op: Op) -> Outcome {
        match op {
            Op::Getxattr => self.reads(|req: &GetxattrReq, by| by.may_get_xattr(req.ino, &req.name)),
            Op::Listxattr => self.reads(|req: &ListxattrReq, by| by.reaches(req.ino)),
            Op::Setxattr => {
                self.check_may_change()?;
                self.with(
                    |req: &mut SetxattrReq| {
                        self.take_cred(&mut req.cred)?;
                        numbers::acl_to_fs(self.limits, req)
                    },
                    |req, by| by.may_set_xattr(req.ino, &req.name, &req.cred),
                )
            }
            _ => self.changes_as(
                |req: &mut RemovexattrReq| &mut req.cred,
                |req, by| by.may_set_xattr(req.ino, &req.name, &req.cred),
            ),
        }
    }

    /// Making names.
    fn makes(&self, op: Op) -> Outcome {
        match op {
            Op::Create => self.changes_as(
                |req: &mut create::CreateReq| &mut req.cred,
                |req, by| {
                    by.may_make(req.parent, &req.name, &req.cred, true)?;
                    by.may_open_existing(req.parent, &req.name, &req.cred, req.access)
                },
            ),
            Op::Mkdir => self.changes_as(
                |req: &mut mkdir::MkdirReq| &mut req.cred,
                |req, by| by.may_make(req.parent, &req.name, &req.cred, false),
            ),
            Op::Mknod => self.changes_as(
                |req: &mut mknod::MknodReq| &mut req.cred,
                |req, by| {
                    by.may_make_kind(req.kind)?;
                    by.may_make(req.parent, &req.name, &req.cred, false)
                },
            ),
            Op::Symlink => self.changes_as(
                |req: &mut symlink::SymlinkReq| &mut req.cred,
                |req, by| by.may_make(req.parent, &req.name, &req.cred, false),
            ),
            Op::Tmpfile => self.changes_as(
                |req: &mut tmpfile::TmpfileReq| &mut req.cred,
                |req, by| by.may(req.parent, Some(&req.cred), WRITE | SEARCH),
            ),
            _ => self.changes_as(
                |req: &mut link::LinkReq| &mut req.cred,
                |req, by| {
                    by.reaches(req.ino)?;
                    by.may_make(req.parent, &req.name, &req.cred, false)
                },
            ),
        }
    }

    /// Taking names away.
    fn removes(&self, op: Op) -> Outcome {
        match op {
            Op::Unlink => self.changes_as(
                |req: &mut unlink::UnlinkReq| &mut req.cred,
                |req, by| by.may_remove(req.parent, &req.name, &req.cred),
            ),
            Op::Rmdir => self.changes_as(
                |req: &mut unlink::RmdirReq| &mut req.cred,
                |req, by| by.may_remove(req.parent, &req.name, &req.cred),
            ),
            _ => self.changes_as(
                |req: &mut rename::RenameReq| &mut req.cred,
                |req, by| {
                    by.may_remove(req.parent, &req.name, &req.cred)?;
                    by.may_remove(req.new_parent, &req.new_name, &req.cred)?;
                    by.may_move(req.parent, &req.name, req.new_parent, &req.cred)?;
                    match req.exchange {
                        true => by.may_move(req.new_parent, &req.new_name, req.parent, &req.cred),
                        false => Ok(()),
                    }
                },
            ),
        }
    }

    fn sets(&self) -> Outcome {
        self.check_may_change()?;
        self.with(
            |req: &mut setattr::SetattrReq| {
                self.take_cred(&mut req.cred)?;
                req.kill_suidgid |= req.size_bytes.is_some() && !self.limits.believes_all_users();
                numbers::owner_to_fs(self.limits, req)
            },
            |req, by| by.may_set(req),
        )
    }

    fn opens(&self) -> Outcome {
        self.with(|req: &mut open::OpenReq| self.open_as_it_may(req), may_open)
    }

    fn open_as_it_may(&self, req: &mut open::OpenReq) -> Result<()> {
        self.take_cred(&mut req.cred)?;
        req.kill_suidgid |= !self.limits.believes_all_users();
        Ok(())
    }

    /// Giving handles back, and telling what was written through them: a report counts from writers only (`ask::apply_reports`).
    fn reports(&self, op: Op) -> Outcome {
        match op {
            Op::Fsync => self.reads(|req: &fsync::FsyncReq, by| by.reaches(req.ino)),
            _ => self.as_it_is(),
        }
    }

    /// Requests that only a writer of the file may make.
    fn writes(&self, op: Op) -> Outcome {
        self.check_may_change()?;
        match op {
            Op::InlineWrite => self.with(
                |req: &mut inline::InlineWriteReq| {
                    // Writes that a mount held back name no user; the handle is the right to write.
                    req.cred = self.limits.map(&req.cred);
                    req.kill_suidgid |= !self.limits.believes_all_users();
                    Ok(())
                },
                |req, by| by.holds_for_writing(req.ino),
            ),
            Op::Convert => self.reads(|req: &convert::ConvertReq, by| by.holds_for_writing(req.ino)),
            Op::Spill => self.reads(|req: &convert::SpillReq, by| by.holds_for_writing(req.ino)),
            Op::Invalidate => self.reads(|req: &invalidate::InvalidateReq, by| by.holds_for_writing(req.ino)),
            Op::AppendReserve => {
                self.reads(|req: &append::AppendReserveReq, by| by.holds_for_writing(req.ino))
            }
            Op::AppendDone => self.reads(|req: &append::AppendDoneReq, by| by.holds_for_writing(req.ino)),
            Op::QuotaFileRoom => {
                self.reads(|req: &quota::QuotaFileRoomReq, by| by.may_reserve(req.ino, (req.uid, req.gid)))
            }
            _ => self.reads(|req: &quota::QuotaRoomReq, by| by.may_reserve(req.ino, (req.uid, req.gid))),
        }
    }

    fn shows_quota(&self, op: Op) -> Outcome {
        let to_fs = |owner, id| numbers::quota_owner_to_fs(self.limits, owner, id);
        match op {
            Op::QuotaShow => self.with(
                |req: &mut quota::QuotaShowReq| {
                    self.take_cred(&mut req.cred)?;
                    if let QuotaSubject::Owner { owner, id } = &mut req.subject {
                        *id = to_fs(*owner, *id)?;
                    }
                    Ok(())
                },
                |_, _| Ok(()),
            ),
            _ => self.with(
                |req: &mut quota::QuotaUseReq| {
                    self.take_cred(&mut req.cred)?;
                    req.id = to_fs(req.owner, req.id)?;
                    Ok(())
                },
                |_, _| Ok(()),
            ),
        }
    }

    fn locks(&self, op: Op) -> Outcome {
        match op {
            Op::GetLock => self.reads(|req: &GetLockReq, by| is_open(by, req.ino)),
            Op::SetLock => self.reads(|req: &SetLockReq, by| match req.lock.kind {
                // A program may give up what it holds after it has closed the file.
                LockKind::Unlock => Ok(()),
                LockKind::Read | LockKind::Write => is_open(by, req.ino),
            }),
            _ => self.reads(|_: &CancelLockReq, _| Ok(())),
        }
    }

    fn layout(&self, op: Op) -> Outcome {
        match op {
            Op::GetStripe => self.reads(|req: &stripe::GetStripeReq, by| by.reaches(req.ino)),
            Op::SetStripe => self.changes_as(
                |req: &mut stripe::SetStripeReq| &mut req.cred,
                |req, by| by.owns(req.ino, &req.cred),
            ),
            _ => self.changes_as(
                |req: &mut migrate::MigrateReq| &mut req.cred,
                |req, by| by.owns(req.ino, &req.cred),
            ),
        }
    }

    /// A scan checks what it comes to by its credentials; where it begins, or goes on, the caller says.
    fn scans(&self) -> Outcome {
        self.reads_as(
            |req: &mut ScanReq| &mut req.cred,
            |req, by| {
                by.reaches(req.start)?;
                if req.cursor.as_ref().is_some_and(|cursor| cursor.levels.len() > DEPTH_MAX as usize) {
                    return Err(judge::denied(by.limits, "its scan is deeper than any tree"));
                }
                let levels = req.cursor.iter().flat_map(|cursor| &cursor.levels);
                levels.map(|level| level.dir).try_for_each(|dir| by.may(dir, Some(&req.cred), READ | SEARCH))
            },
        )
    }

    fn tiering(&self, op: Op) -> Outcome {
        match op {
            Op::HsmState => self.reads(|req: &HsmStateReq, by| by.reaches(req.ino)),
            Op::HsmRecall => self
                .reads_as(|req: &mut HsmRecallReq| &mut req.cred, |req, by| by.may_use(req.ino, &req.cred)),
            Op::HsmOpen => self.with(
                |req: &mut HsmOpenReq| self.open_as_it_may(&mut req.open),
                |req, by| may_open(&req.open, by),
            ),
            Op::HsmRead => {
                self.reads_as(|req: &mut HsmReadReq| &mut req.cred, |req, by| by.holds_for_reading(req.ino))
            }
            Op::HsmAct => self.reads_as(
                |req: &mut HsmActReq| &mut req.cred,
                |req, by| match req.ask {
                    // A restore needs the rights of an open for reading, which restores the bytes, too.
                    HsmAsk::Restore => by.may(req.ino, Some(&req.cred), READ),
                    _ => {
                        check_may_change(by.limits)?;
                        by.owns(req.ino, &req.cred)
                    }
                },
            ),
            _ => self.changes_as(|req: &mut HsmSetReq| &mut req.cred, |req, by| by.owns(req.ino, &req.cred)),
        }
    }

    /// Allowed to hosts that are believed whatever user they name, see everything and may change it: no nodemap is like that.
    fn roots_only(&self, op: Op) -> Outcome {
        let sees_all = self.limits.believes_all_users() && self.limits.subtree.is_empty();
        match op {
            Op::PathOf | Op::MdtWaits if sees_all => self.as_it_is(),
            _ => refused(op),
        }
    }

    fn as_it_is(&self) -> Outcome {
        Ok((self.body.clone(), Box::new(|_| Ok(()))))
    }

    /// Decodes the request, changes it, and makes a check of it.
    fn with<M: Message + Serialize + Send + Sync + 'static>(
        &self,
        change: impl FnOnce(&mut M) -> Result<()>,
        check: impl Fn(&M, &Judge<'_, '_>) -> Result<()> + Send + Sync + 'static,
    ) -> Outcome {
        let mut req: M = decode_body(self.body)?;
        change(&mut req)?;
        let body = encode_body(&req);
        Ok((body, Box::new(move |by| check(&req, by))))
    }

    /// Check of a request without credentials.
    fn reads<M: Message + Serialize + Send + Sync + 'static>(
        &self,
        check: impl Fn(&M, &Judge<'_, '_>) -> Result<()> + Send + Sync + 'static,
    ) -> Outcome {
        self.with(|_| Ok(()), check)
    }

    /// Check of a request with credentials that changes nothing.
    fn reads_as<M: Message + Serialize + Send + Sync + 'static>(
        &self,
        cred: impl Fn(&mut M) -> &mut Cred,
        check: impl Fn(&M, &Judge<'_, '_>) -> Result<()> + Send + Sync + 'static,
    ) -> Outcome {
        self.with(|req: &mut M| self.take_cred(cred(req)), check)
    }

    /// Replaces credentials of the host by those that count here.
    fn take_cred(&self, cred: &mut Cred) -> Result<()> {
        if self.limits.is_unknown(cred) {
            return Err(numbers::unknown_user(self.limits, cred));
        }
        *cred = self.limits.map(cred);
        Ok(())
    }

    /// Check of a request with credentials that changes something.
    fn changes_as<M: Message + Serialize + Send + Sync + 'static>(
        &self,
        cred: impl Fn(&mut M) -> &mut Cred,
        check: impl Fn(&M, &Judge<'_, '_>) -> Result<()> + Send + Sync + 'static,
    ) -> Outcome {
        self.check_may_change()?;
        self.reads_as(cred, check)
    }

    fn check_may_change(&self) -> Result<()> {
        check_may_change(self.limits)
    }
}

fn may_open(req: &open::OpenReq, by: &Judge<'_, '_>) -> Result<()> {
    if req.access.write || req.access.truncate {
        check_may_change(by.limits)?;
    }
    by.may_open(req.ino, &req.cred, req.access)
}

fn is_open(by: &Judge<'_, '_>, ino: Ino) -> Result<()> {
    match by.held(ino) {
        Some(_) => Ok(()),
        None => Err(judge::denied(by.limits, "it does not have the file open")),
    }
}

fn check_may_change(limits: &Limits) -> Result<()> {
    match limits.read_only {
        true => Err(read_only(limits)),
        false => Ok(()),
    }
}

/// The refusal of a change.
pub fn read_only(limits: &Limits) -> Fault {
    Fault::new(Code::ReadOnlyHost)
        .why(format!("nodemap '{}' says so", limits.nodemap))
        .data("nothing was changed")
}

fn refused(op: Op) -> Outcome {
    Err(Fault::new(Code::NotForNodemap).subject(op.name()).data("nothing was changed"))
}

/// Whether a handle that a limited host had before the MDT was restarted is taken in again.
pub fn may_reclaim(t: &Txn<'_>, call: &Call, file: &Inode, open: &ReclaimOpen) -> Result<()> {
    let Some(admitted) = call.admission() else { return Ok(()) };
    let by = admitted.judge(t, call.session);
    if open.access.write {
        check_may_change(by.limits)?;
    }
    by.reaches(file.ino)?;
    by.check_set_id(file, open.access.write)?;
    let wanted = if open.access.read { READ } else { 0 }
        | if open.access.write { WRITE } else { 0 }
        | if open.access.execute && !file.is_dir() { SEARCH } else { 0 };
    let is_sole_writer = !open.exclusive || open.access.write;
    let runs_only = wanted & SEARCH != 0 && !open.access.write && by.allows(file, None, SEARCH)?;
    if is_sole_writer && (wanted != 0 || file.is_dir()) && (runs_only || by.allows(file, None, wanted)?) {
        return Ok(());
    }
    Err(judge::denied(by.limits, "no user of it may open the file now"))
}

/// Whether a limited host may open a file ahead, for whichever user opens it later.
pub fn may_open_ahead(t: &Txn<'_>, call: &Call, file: &Inode) -> Result<bool> {
    let Some(admitted) = call.admission() else { return Ok(true) };
    let by = admitted.judge(t, call.session);
    Ok(by.reaches(file.ino).is_ok() && by.allows_everybody(file, READ)?)
}

/// Whether a read of a file by a limited host changes the access time: some user of the host must be able to read or execute the file.
pub fn may_note_access(t: &Txn<'_>, call: &Call, file: &Inode) -> Result<bool> {
    let Some(admitted) = call.admission() else { return Ok(true) };
    if admitted.limits.read_only {
        return Ok(false);
    }
    let by = admitted.judge(t, call.session);
    let is_held = by.held(file.ino).is_some_and(|handle| handle.read);
    Ok(is_held
        || by.reaches(file.ino).is_ok() && (by.allows(file, None, READ)? || by.allows(file, None, SEARCH)?))
}

/// Whether an answer about a directory may hold attributes of its entries.
pub fn may_show_entries(t: &Txn<'_>, call: &Call, dir: Ino) -> Result<bool> {
    let Some(admitted) = call.admission() else { return Ok(true) };
    let Some(dir) = inode::find(t, dir)? else { return Ok(true) };
    admitted.judge(t, call.session).allows(&dir, None, SEARCH)
}

/// Whether a list of extended attributes may name one.
pub fn may_list_xattr(call: &Call, name: &[u8]) -> bool {
    let is_limited = call.admission().is_some_and(|admitted| !admitted.limits.believes_all_users());
    !(is_limited && name.starts_with(b"trusted."))
}

/// The part of a report that counts: `None` from a session of a limited host that does not have the file open for
/// writing. A write to a program takes its set-id bits away.
pub fn tidied(t: &Txn<'_>, ino: Ino, session: SessionId, report: &WriteReport) -> Option<WriteReport> {
    let live = t.live();
    let Some(limits) = live.limits(session) else { return Some(report.clone()) };
    let kill_suidgid = report.kill_suidgid || report.written && !limits.believes_all_users();
    live.opens.is_written_by(ino, session).then(|| WriteReport { kill_suidgid, ..report.clone() })
}

/// Whether a session is believed what its files have allocated: usage of users, groups and projects is made of it. Of a limited host the OSTs
/// are asked.
pub fn tells_allocation(t: &Txn<'_>, session: SessionId) -> bool {
    t.live().limits(session).is_none()
}
