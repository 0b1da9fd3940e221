//! Numbers of users and groups on their way from and to a host that has others than the file system (design note 038).
//!
//! | way | what | where |
//! |---|---|---|
//! | in | credentials of requests | `Request::take_cred` |
//! | in | owner of setattr, ACL of setxattr, owner of quota_use and quota_show | [`owner_to_fs`], [`acl_to_fs`], [`quota_owner_to_fs`] |
//! | in | owner of quota_room and quota_file_room | the file's own, in `ops/quota_room.rs` |
//! | in | owners that a scan looks for | as the host sees them, `scan/predicate.rs` |
//! | out | attributes and ACLs in answers | [`shown`]; the answer of an operation that is not named there is refused |
//! | out | attributes beside answers | [`show_updates`] |
//!
//! Notices to clients have no numbers of users. Nor have messages of OSTs, but for the tag of the job, which is shown as it came.

use brindle_net::Limits;
use brindle_types::{Attr, Code, Fault, Result};
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::frame::{decode_body, encode_body};
use brindle_wire::mds::hsm::HsmOpenReq;
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::quota::QuotaOwner;
use brindle_wire::mds::setattr::SetattrReq;
use brindle_wire::mds::xattr::{GetxattrReq, GetxattrResp, SetxattrReq};
use brindle_wire::mds::{
    EntryResp, create, getattr, inline, lookup, mkdir, mknod, open, open_ahead, readdir, scan, setattr,
    symlink, tmpfile,
};
use brindle_wire::{Cred, Message, Op};
use bytes::Bytes;

use crate::acl::{self, Acl};

/// First byte of an answer that is a fault.
const IS_FAULT: u8 = 1;

fn unmapped(limits: &Limits, why: String) -> Fault {
    Fault::new(Code::NumberNotMapped)
        .why(why)
        .data("nothing was changed")
        .next(format!("ask an administrator: brindle nodemap show {}", limits.nodemap))
}

/// The refusal of a user whom the nodemap does not know.
pub(super) fn unknown_user(limits: &Limits, cred: &Cred) -> Fault {
    let (uid, gid, name) = (cred.uid, cred.gid, &limits.nodemap);
    let why = format!("nodemap '{name}' has no mapping for user {uid} or his group {gid}, and refuses those");
    Fault::new(Code::UserNotMapped).why(why).data("nothing was changed")
}

fn user(limits: &Limits, uid: u32) -> Result<u32> {
    let none = || unmapped(limits, format!("user {uid} of this host has no number there"));
    limits.uid_to_fs(uid).ok_or_else(none)
}

fn group(limits: &Limits, gid: u32) -> Result<u32> {
    let none = || unmapped(limits, format!("group {gid} of this host has no number there"));
    limits.gid_to_fs(gid).ok_or_else(none)
}

/// The owner and the group that a file is to have.
pub(super) fn owner_to_fs(limits: &Limits, req: &mut SetattrReq) -> Result<()> {
    req.uid = req.uid.map(|uid| user(limits, uid)).transpose()?;
    req.gid = req.gid.map(|gid| group(limits, gid)).transpose()?;
    Ok(())
}

/// Maps the users and groups that an ACL names. An ACL that does not decode is left to the operation, which refuses
/// it.
pub(super) fn acl_to_fs(limits: &Limits, req: &mut SetxattrReq) -> Result<()> {
    if !limits.ids.maps() || !acl::is_acl(&req.name) {
        return Ok(());
    }
    let Ok(Some(found)) = Acl::decode(&req.value) else { return Ok(()) };
    let mapped = found.with_numbers(|uid| limits.uid_to_fs(uid), |gid| limits.gid_to_fs(gid));
    let none = || {
        unmapped(limits, "the ACL names a user or a group of this host that has no number there".to_owned())
    };
    req.value = mapped.ok_or_else(none)?.encode();
    Ok(())
}

/// The owner whose usage is asked for.
pub(super) fn quota_owner_to_fs(limits: &Limits, owner: QuotaOwner, id: u32) -> Result<u32> {
    match owner {
        QuotaOwner::User => user(limits, id),
        QuotaOwner::Group => group(limits, id),
        QuotaOwner::Project => Ok(id),
    }
}

fn show(limits: &Limits, attr: &mut Attr) {
    attr.uid = limits.uid_to_host(attr.uid);
    attr.gid = limits.gid_to_host(attr.gid);
}

/// Shows the cache updates of an answer with the host's own user and group numbers.
pub fn show_updates(limits: &Limits, updates: &mut CacheUpdates) {
    updates
        .inodes
        .iter_mut()
        .filter_map(|inode| inode.known.as_mut())
        .for_each(|known| show(limits, &mut known.attr));
}

/// An answer with the numbers of the host. `request` is the body that was carried out.
///
/// An answer that is not named here and may hold numbers ([`holds_no_numbers`]) is refused.
pub fn shown(op: Op, limits: &Limits, request: &Bytes, answer: Bytes) -> Result<Bytes> {
    if answer.first() == Some(&IS_FAULT) {
        return Ok(answer);
    }
    let attr = |attr: &mut Attr| show(limits, attr);
    let entry = |resp: &mut EntryResp| show(limits, &mut resp.attr);
    match op {
        Op::Lookup => changed::<lookup::LookupReq>(&answer, entry),
        Op::Mkdir => changed::<mkdir::MkdirReq>(&answer, entry),
        Op::Mknod => changed::<mknod::MknodReq>(&answer, entry),
        Op::Symlink => changed::<symlink::SymlinkReq>(&answer, entry),
        Op::Link => changed::<LinkReq>(&answer, entry),
        Op::Getattr => changed::<getattr::GetattrReq>(&answer, |resp| attr(&mut resp.attr)),
        Op::Setattr => changed::<setattr::SetattrReq>(&answer, |resp| attr(&mut resp.attr)),
        Op::Create => changed::<create::CreateReq>(&answer, |resp| attr(&mut resp.attr)),
        Op::Tmpfile => changed::<tmpfile::TmpfileReq>(&answer, |resp| attr(&mut resp.attr)),
        Op::Open => changed::<open::OpenReq>(&answer, |resp| attr(&mut resp.attr)),
        Op::HsmOpen => changed::<HsmOpenReq>(&answer, |resp| attr(&mut resp.attr)),
        Op::InlineWrite => changed::<inline::InlineWriteReq>(&answer, |resp| attr(&mut resp.attr)),
        Op::OpenAhead => changed::<open_ahead::OpenAheadReq>(&answer, |resp| {
            resp.opened.iter_mut().flatten().for_each(|opened| attr(&mut opened.attr));
        }),
        Op::Readdir => changed::<readdir::ReaddirReq>(&answer, |resp| {
            resp.entries.iter_mut().filter_map(|entry| entry.attr.as_mut()).for_each(attr);
        }),
        Op::Scan => changed::<scan::ScanReq>(&answer, |resp| {
            resp.found.iter_mut().filter_map(|found| found.attr.as_mut()).for_each(attr);
        }),
        Op::Getxattr => {
            let request: GetxattrReq = decode_body(request)?;
            match acl::is_acl(&request.name) {
                true => changed::<GetxattrReq>(&answer, |resp| show_acl(limits, resp)),
                false => Ok(answer),
            }
        }
        op if holds_no_numbers(op) => Ok(answer),
        _ => Err(Fault::new(Code::NotForNodemap)
            .subject(op.name())
            .why("its answer holds numbers of the file system")),
    }
}

/// Whether the answer of an operation names no user and no group. Usage (`quota_use`, `quota_room`) is told of the one who was asked for.
///
/// The match names every operation: a new one does not compile until somebody has said which numbers its answer holds.
fn holds_no_numbers(op: Op) -> bool {
    match op {
        Op::SessionOpen | Op::SessionRenew | Op::SessionClose | Op::Reclaim | Op::TargetInfo => true,
        Op::Unlink | Op::Rmdir | Op::Rename | Op::Readlink | Op::Listxattr | Op::Setxattr => true,
        Op::Removexattr | Op::MdtStatfs | Op::Close | Op::Report | Op::Fsync | Op::SyncAll => true,
        Op::InlineRead | Op::Convert | Op::Spill | Op::LayoutGet | Op::AppendReserve => true,
        Op::AppendDone | Op::Invalidate | Op::Migrate | Op::GetLock | Op::SetLock | Op::CancelLock => true,
        Op::SetStripe | Op::GetStripe | Op::QuotaUse | Op::QuotaRoom | Op::HsmState | Op::HsmAct => true,
        Op::HsmSet | Op::HsmRecall | Op::HsmRead | Op::NoteAccess => true,
        // A project has one number everywhere.
        Op::ProjectGet | Op::ProjectSet | Op::QuotaFileRoom | Op::QuotaShow => true,
        // Shown with the numbers of the host.
        Op::Lookup | Op::Mkdir | Op::Mknod | Op::Symlink | Op::Link | Op::Getattr | Op::Setattr => false,
        Op::Create | Op::Tmpfile | Op::Open | Op::InlineWrite | Op::OpenAhead | Op::Readdir => false,
        Op::Scan | Op::Getxattr | Op::HsmOpen => false,
        // Refused to such hosts before they run, or none of an MDT.
        Op::PathOf | Op::OstUse | Op::OwnerQuery | Op::MdtWaits | Op::FenceTable | Op::QuotaSet => false,
        Op::ChangelogRegister | Op::ChangelogDeregister | Op::ChangelogClear | Op::ChangelogRead => false,
        Op::ChangelogInfo | Op::ChangelogMask | Op::HsmTake | Op::HsmProgress | Op::HsmDone => false,
        Op::HsmInfo | Op::HsmSwitch | Op::PolicyScan | Op::PolicyRemove | Op::HsmBacklog => false,
        Op::HsmImport | Op::HsmExtents | Op::HsmDivide | Op::HsmSpanTake => false,
        Op::HsmSpanDone | Op::HsmShares | Op::HsmRemove => false,
        Op::BackupRead | Op::MdtUsage | Op::MdtLogLevel | Op::SessionRights | Op::Read | Op::Write => false,
        Op::MemberAttach | Op::MemberLease | Op::MemberAppend | Op::MemberSync | Op::MemberFill => false,
        Op::Punch | Op::Allocate | Op::TruncateObject | Op::SyncObjects | Op::StatObjects => false,
        Op::DestroyObjects | Op::Seek | Op::FenceSession | Op::FenceLayout | Op::OstStatfs => false,
        Op::CopyRange | Op::ListObjects | Op::ReturnGrant | Op::ReplicaAttach | Op::ReplicaLease => false,
        Op::ReplicaChange | Op::ReplicaLook | Op::ReplicaList | Op::ReplicaRead | Op::OstUsage => false,
        Op::ReplicaVerify | Op::ReplicaScrub | Op::Scrub | Op::NoteScrub | Op::MdtScrub => false,
        Op::MemberVerify | Op::MemberCompare | Op::MemberScrub | Op::ReportSpare => false,
        Op::OstLogLevel | Op::Register | Op::GetMap | Op::Heartbeat | Op::Join => false,
        Op::RenewCertificate | Op::WatchHost | Op::ReportHost | Op::WatchAccess | Op::KeepShared => false,
        Op::ChangePool | Op::ChangeTarget | Op::RaiseLevel | Op::ListHosts | Op::CreateToken => false,
        Op::ChangeHost | Op::ListShared | Op::ChangeShared | Op::FetchMgt | Op::NoteTerm => false,
        Op::Events | Op::TakeOrders | Op::RestartHost | Op::KeepReplicas | Op::ListReplicas => false,
        Op::ListSpares | Op::ChangeSpare | Op::NoteOpening => false,
        Op::ChangeReplicas | Op::ChangeInSync | Op::MgsLogLevel | Op::WatchNodemaps => false,
        Op::ListNodemaps | Op::ChangeNodemap | Op::WatchMappedNodemaps | Op::ListMappedNodemaps => false,
        Op::ChangeMappedNodemap | Op::RecallNotice | Op::InvalidateNotice | Op::LayoutNotice => false,
        Op::ReportNotice | Op::SessionEndNotice | Op::SettleNotice | Op::LeaseNotice => false,
        Op::ClosedNotice | Op::ShowReplica | Op::QuotaChange | Op::QuotaList => false,
        Op::MdtShares | Op::OstShares | Op::WatchLimits | Op::ChangeLimit => false,
        Op::NodeRegister | Op::NodeOrder | Op::NodeSlices => false,
        Op::MountLogLevel | Op::LogLevelNotice | Op::NodeLogLines | Op::NodeLogLevel => false,
        Op::NodeStage | Op::NodeOffer => false,
        Op::WatchDurability | Op::ChangeDurability => false,
        Op::MdtLogLines | Op::OstLogLines | Op::MgsLogLines | Op::LogLinesNotice => false,
        Op::ListMounts | Op::MountLogLines | Op::MdtTrace | Op::OstTrace => false,
    }
}

/// An answer after a change.
fn changed<M: Message>(answer: &[u8], change: impl FnOnce(&mut M::Resp)) -> Result<Bytes> {
    let mut outcome: Result<M::Resp> = decode_body(answer)?;
    if let Ok(resp) = &mut outcome {
        change(resp);
    }
    Ok(encode_body(&outcome))
}

/// An ACL as the host sees it. Users and groups without a number there are nobody; such an ACL is not taken back, so their rights are not lost.
fn show_acl(limits: &Limits, resp: &mut GetxattrResp) {
    if let Ok(Some(found)) = Acl::decode(&resp.value) {
        let shown =
            found.with_numbers(|uid| Some(limits.uid_to_host(uid)), |gid| Some(limits.gid_to_host(gid)));
        resp.value = shown.map_or_else(Vec::new, |acl| acl.encode());
    }
}
