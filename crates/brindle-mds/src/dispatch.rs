//! Operation number -> handler: the only matches over operations.

use brindle_types::{Code, Fault, Result};
use brindle_wire::frame::{decode_body, encode_body};
use brindle_wire::{Message, Op};
use bytes::Bytes;

use crate::mdt::{Call, Mdt};
use crate::ops::*;
use crate::recovery;

/// Answers one request of a session; the body of the reply.
pub async fn dispatch(mdt: &Mdt, call: &Call, body: &[u8]) -> Bytes {
    match call.op {
        Op::SessionRenew => run(mdt, call, body, session::handle_renew).await,
        Op::Reclaim => run(mdt, call, body, recovery::reclaim).await,
        Op::Lookup => run(mdt, call, body, lookup::handle).await,
        Op::Getattr => run(mdt, call, body, getattr::handle).await,
        Op::Setattr => run(mdt, call, body, setattr::handle).await,
        Op::Create => run(mdt, call, body, create::handle).await,
        Op::Mkdir => run(mdt, call, body, mkdir::handle).await,
        Op::Mknod => run(mdt, call, body, mknod::handle).await,
        Op::Symlink => run(mdt, call, body, symlink::handle).await,
        Op::Link => run(mdt, call, body, link::handle).await,
        Op::Unlink => run(mdt, call, body, unlink::handle).await,
        Op::Rmdir => run(mdt, call, body, unlink::handle_rmdir).await,
        Op::Rename => run(mdt, call, body, rename::handle).await,
        Op::Tmpfile => run(mdt, call, body, tmpfile::handle).await,
        Op::Readlink => run(mdt, call, body, readlink::handle).await,
        Op::Readdir => run(mdt, call, body, readdir::handle).await,
        Op::Getxattr => run(mdt, call, body, xattr::handle_get).await,
        Op::Listxattr => run(mdt, call, body, xattr::handle_list).await,
        Op::Setxattr => run(mdt, call, body, xattr::handle_set).await,
        Op::Removexattr => run(mdt, call, body, xattr::handle_remove).await,
        Op::MdtStatfs => run(mdt, call, body, statfs::handle).await,
        Op::Open => run(mdt, call, body, open::handle).await,
        Op::OpenAhead => run(mdt, call, body, open_ahead::handle).await,
        Op::Close => run(mdt, call, body, close::handle).await,
        Op::Report => run(mdt, call, body, report::handle).await,
        Op::Fsync => run(mdt, call, body, fsync::handle).await,
        Op::SyncAll => run(mdt, call, body, sync_all::handle).await,
        Op::InlineRead => run(mdt, call, body, inline::handle_read).await,
        Op::InlineWrite => run(mdt, call, body, inline::handle_write).await,
        Op::Convert => run(mdt, call, body, convert::handle).await,
        Op::Spill => run(mdt, call, body, spill::handle).await,
        Op::Migrate => run(mdt, call, body, migrate::handle).await,
        Op::LayoutGet => run(mdt, call, body, convert::handle_layout_get).await,
        Op::AppendReserve => run(mdt, call, body, append::handle_reserve).await,
        Op::AppendDone => run(mdt, call, body, append::handle_done).await,
        Op::Invalidate => run(mdt, call, body, invalidate::handle).await,
        Op::GetLock => run(mdt, call, body, lock::handle_get).await,
        Op::SetLock => run(mdt, call, body, lock::handle_set).await,
        Op::CancelLock => run(mdt, call, body, lock::handle_cancel).await,
        Op::SetStripe => run(mdt, call, body, stripe::handle_set).await,
        Op::GetStripe => run(mdt, call, body, stripe::handle_get).await,
        Op::PathOf => run(mdt, call, body, path::handle).await,
        Op::NoteAccess => run(mdt, call, body, note_access::handle).await,
        _ => dispatch_others(mdt, call, body).await,
    }
}

/// Operations of servers, administrators, readers of the changelog and agents.
async fn dispatch_others(mdt: &Mdt, call: &Call, body: &[u8]) -> Bytes {
    match call.op {
        Op::Scan => run(mdt, call, body, scan::handle).await,
        Op::BackupRead => run(mdt, call, body, backup::handle).await,
        Op::OstUse => run(mdt, call, body, ost_use::handle).await,
        Op::OwnerQuery => run(mdt, call, body, owner::handle).await,
        Op::SessionRights => run(mdt, call, body, rights::handle).await,
        Op::FenceTable => run(mdt, call, body, fences::handle).await,
        Op::ChangelogRegister => run(mdt, call, body, changelog_readers::handle_register).await,
        Op::ChangelogDeregister => run(mdt, call, body, changelog_readers::handle_deregister).await,
        Op::ChangelogClear => run(mdt, call, body, changelog_readers::handle_clear).await,
        Op::ChangelogMask => run(mdt, call, body, changelog_readers::handle_mask).await,
        Op::ChangelogInfo => run(mdt, call, body, changelog_readers::handle_info).await,
        Op::ChangelogRead => run(mdt, call, body, changelog_read::handle).await,
        Op::MdtWaits => run(mdt, call, body, waits::handle).await,
        _ => dispatch_quotas(mdt, call, body).await,
    }
}

/// Usage, limits and projects.
async fn dispatch_quotas(mdt: &Mdt, call: &Call, body: &[u8]) -> Bytes {
    match call.op {
        Op::QuotaUse => run(mdt, call, body, quota::handle_use).await,
        Op::QuotaSet => run(mdt, call, body, quota::handle_set).await,
        Op::QuotaShow => run(mdt, call, body, quota::handle_show).await,
        Op::QuotaChange => run(mdt, call, body, quota::handle_change).await,
        Op::QuotaList => run(mdt, call, body, quota::handle_list).await,
        Op::QuotaRoom => run(mdt, call, body, quota_room::handle).await,
        Op::QuotaFileRoom => run(mdt, call, body, quota_room::handle_file).await,
        Op::ProjectGet => run(mdt, call, body, project::handle_get).await,
        Op::ProjectSet => run(mdt, call, body, project::handle_set).await,
        _ => dispatch_tiering(mdt, call, body).await,
    }
}

/// The operations of tiering and policies.
async fn dispatch_tiering(mdt: &Mdt, call: &Call, body: &[u8]) -> Bytes {
    match call.op {
        Op::HsmState => run(mdt, call, body, hsm::handle_state).await,
        Op::HsmAct => run(mdt, call, body, hsm::handle_act).await,
        Op::HsmRemove => run(mdt, call, body, hsm::handle_remove).await,
        Op::HsmSet => run(mdt, call, body, hsm::handle_set).await,
        Op::HsmRecall => run(mdt, call, body, hsm::handle_recall).await,
        Op::HsmTake => run(mdt, call, body, hsm_agent::handle_take).await,
        Op::HsmProgress => run(mdt, call, body, hsm_agent::handle_progress).await,
        Op::HsmDone => run(mdt, call, body, hsm_agent::handle_done).await,
        Op::HsmOpen => run(mdt, call, body, open::handle_restoring).await,
        Op::HsmRead => run(mdt, call, body, hsm_read::handle_read).await,
        Op::HsmExtents => run(mdt, call, body, hsm_read::handle_extents).await,
        Op::HsmDivide => run(mdt, call, body, hsm_span::handle_divide).await,
        Op::HsmSpanTake => run(mdt, call, body, hsm_span::handle_span_take).await,
        Op::HsmSpanDone => run(mdt, call, body, hsm_span::handle_span_done).await,
        Op::HsmShares => run(mdt, call, body, hsm_span::handle_shares).await,
        Op::HsmImport => run(mdt, call, body, hsm_import::handle).await,
        Op::HsmInfo => run(mdt, call, body, hsm_info::handle_info).await,
        Op::HsmSwitch => run(mdt, call, body, hsm_info::handle_switch).await,
        Op::PolicyScan => run(mdt, call, body, policy::handle_scan).await,
        Op::PolicyRemove => run(mdt, call, body, policy::handle_remove).await,
        Op::HsmBacklog => run(mdt, call, body, policy::handle_backlog).await,
        _ => encode_body(&Err::<(), Fault>(unknown(call))),
    }
}

/// Decodes the request, runs its handler (once, if it goes through a slot) and encodes the outcome.
async fn run<M, H>(mdt: &Mdt, call: &Call, body: &[u8], handler: H) -> Bytes
where
    M: Message,
    H: AsyncFnOnce(&Mdt, &Call, M) -> Result<M::Resp>,
{
    let request = match decode_body::<M>(body) {
        Ok(request) => request,
        Err(fault) => return encode_body(&Err::<M::Resp, Fault>(fault)),
    };
    // In a box of its own: the future of a request would else have room for that of the largest operation (16 KiB).
    let work = Box::pin(async {
        if call.admission().is_some() {
            mdt.read(|t| call.check(t)).await?;
        }
        handler(mdt, call, request).await
    });
    if M::OP.slotted() {
        return mdt.once(call, work).await;
    }
    encode_body(&work.await)
}

/// The refusal of an operation that this server does not have.
pub fn unknown(call: &Call) -> Fault {
    Fault::new(Code::UnknownOp).why(format!("operation {} ({})", call.op as u16, call.op.name()))
}
