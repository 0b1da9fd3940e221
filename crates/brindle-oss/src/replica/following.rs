//! A member that is not the primary: takes changes in the name of one attachment, and grants leases.

use std::sync::Arc;

use brindle_net::ServerConn;
use brindle_objects::slots::Turn;
use brindle_objects::{PunchOp, Verified, WriteOp};
use brindle_types::{Code, Fault, Pair, Result};
use brindle_wire::frame::encode_body;
use brindle_wire::mds::Empty;
use brindle_wire::oss::Ticket;
use brindle_wire::oss::replica::*;
use bytes::Bytes;

use super::Replica;
use crate::dispatch::{Answer, Call};
use crate::service::Oss;

/// Most objects of one answer.
const LIST_MAX: usize = 4096;
/// Newer than every epoch: the primary has checked the epochs of its changes.
const ANY_EPOCH: Pair = Pair { term: u32::MAX, counter: u64::MAX };

fn replica(oss: &Oss) -> Result<&Arc<Replica>> {
    oss.replica.as_ref().ok_or_else(|| Fault::new(Code::NotPrimary).why("this OST has no other members"))
}

/// A primary attaches this member.
pub(crate) async fn attach(oss: &Oss, conn: &ServerConn, req: ReplicaAttachReq) -> Result<ReplicaAttachResp> {
    let answer = async {
        // From now on the primary decides which copy is right, by checksums, so the sums of ranges in flight must match their blocks.
        // Objects with marks are put right later: the primary waits for a limited time, and would go on without this copy.
        let rest = oss.store.settle_following().await?;
        oss.seams.spawn("oss.settle", rest);
        Ok(ReplicaAttachResp { boot_term: oss.store.boot_term() })
    };
    replica(oss)?.attach(conn, req.attachment, answer).await
}

/// The primary renews its lease.
pub(crate) async fn lease(oss: &Oss, conn: &ServerConn, req: ReplicaLeaseReq) -> Result<ReplicaLeaseResp> {
    let replica = replica(oss)?;
    replica.until_epoch(req.epoch).await?;
    let _attached = replica.enter(conn, req.attachment).await?;
    replica.record(req.epoch)?;
    let available_bytes = oss.store.space()?.available_bytes;
    Ok(ReplicaLeaseResp { boot_term: oss.store.boot_term(), available_bytes })
}

/// Makes a change of the primary. The change holds its attachment: a later attachment waits for its end.
pub(crate) async fn change(oss: &Oss, call: &Call, req: ReplicaChangeReq) -> Result<Empty> {
    let replica = replica(oss)?;
    let _attached = replica.enter(&call.conn, req.attachment).await?;
    if let Some(objects) = touched(&req.change) {
        oss.store.mark_objects(&objects).await?;
    }
    make(oss, call, req.change).await?;
    Ok(Empty {})
}

/// Objects of a change that may differ between members until all have synced it.
fn touched(change: &ReplicaChange) -> Option<Vec<brindle_types::ObjectId>> {
    use ReplicaChange::*;
    match change {
        Write { object, .. } | Punch { object, .. } | Allocate { object, .. } | Truncate { object, .. } => {
            Some(vec![*object])
        }
        Put { object, .. } | PutHole { object, .. } | PutImage { object, .. } | Forget { object } => {
            Some(vec![*object])
        }
        Destroy { objects } | FenceLayout { objects, .. } => Some(objects.clone()),
        FenceSession { .. } | Sync { .. } | SyncAll | Unmark { .. } => None,
    }
}

/// Ticket without a check of existence: the primary has checked the rights, and its answer about a missing object was
/// true there.
fn rights(ticket: Ticket) -> Ticket {
    Ticket { must_exist: false, ..ticket }
}

async fn make(oss: &Oss, call: &Call, change: ReplicaChange) -> Result<()> {
    let store = &oss.store;
    let turn = || -> Result<Turn> { store.slots().anonymous(None) };
    match change {
        ReplicaChange::Write { object, offset, ticket, sync } => {
            let (data, crc, ticket) = (call.frame.bulk_bytes(), call.frame.header.bulk_crc, rights(ticket));
            let op = WriteOp { object, offset, data, crc, ticket, sync, covered: true };
            store.write(&op, &mut turn()?).await.map(drop)
        }
        ReplicaChange::Punch { object, offset, len_bytes, keep_space, ticket } => {
            let op = PunchOp { object, offset, len_bytes, ticket: rights(ticket) };
            store.punch(&op, keep_space, &mut turn()?).await.map(drop)
        }
        ReplicaChange::Allocate { object, offset, len_bytes, keep_len, ticket } => {
            let op = PunchOp { object, offset, len_bytes, ticket: rights(ticket) };
            store.allocate(&op, keep_len, &mut turn()?).await.map(drop)
        }
        ReplicaChange::Truncate { object, len_bytes, epoch, make } => {
            store.truncate(object, len_bytes, epoch, make, false).await.map(drop)
        }
        ReplicaChange::Destroy { objects } => {
            let destroyed = store.destroy(&objects).await?;
            match destroyed.stuck.first() {
                Some(object) => Err(Fault::new(Code::OstIo)
                    .subject(format!("object {object}"))
                    .why("it cannot be removed")),
                None => Ok(()),
            }
        }
        ReplicaChange::FenceLayout { objects, layout_epoch } => {
            for object in objects {
                store.fence_layout(object, layout_epoch).await?;
            }
            Ok(())
        }
        ReplicaChange::FenceSession { session, epoch } => store.fence_sessions(vec![(session, epoch)]).await,
        ReplicaChange::Sync { objects } => store.sync(&objects).await.map(drop),
        ReplicaChange::SyncAll => store.sync_all().await,
        ReplicaChange::Unmark { objects } => store.unmark_objects(&objects).await,
        ReplicaChange::Put { object, offset } => {
            store.put(object, offset, call.frame.bulk_bytes(), call.frame.header.bulk_crc).await
        }
        ReplicaChange::PutHole { object, offset, len_bytes } => {
            store.put_hole(object, offset, len_bytes).await
        }
        ReplicaChange::PutImage { object, image } => store.put_image(object, &image).await,
        ReplicaChange::Forget { object } => store.forget_object(object).await,
    }
}

/// Answers with the state of an object on this member.
pub(crate) async fn look(oss: &Oss, call: &Call, req: ReplicaLookReq) -> Result<Answer> {
    let replica = replica(oss)?;
    let _attached = replica.enter(&call.conn, req.attachment).await?;
    let is_in_sync = replica.set().is_in_sync(&replica.seat.host);
    let (image, sums) = match oss.store.look(req.object, req.from_block, req.blocks).await {
        // A learner forgets an unreadable object, and the primary puts it anew. A member in sync keeps the object: if the primary died
        // before the object was whole again, it would be missing here, and read as zeros.
        Err(fault) if fault.code == Code::ObjectDamaged && !is_in_sync => {
            oss.store.forget_object(req.object).await?;
            (ObjectImage::default(), Bytes::new())
        }
        other => other?,
    };
    let next_data = match (image.exists, req.blocks) {
        (true, 1..) => oss.store.next_data(req.object, req.from_block.saturating_add(req.blocks)).await?,
        _ => None,
    };
    let body = encode_body(&Ok::<_, Fault>(ReplicaLookResp { image, next_data }));
    let bulk_crc = brindle_stdx::crc(&sums);
    Ok(Answer { body, bulk: sums, bulk_crc })
}

/// Reads blocks from the disk and verifies them, for the scrub of the primary.
pub(crate) async fn verify(oss: &Oss, call: &Call, req: ReplicaVerifyReq) -> Result<Answer> {
    let _attached = replica(oss)?.enter(&call.conn, req.attachment).await?;
    let (seen, is_unreadable) = match oss.store.verify(req.object, req.from_block, req.blocks).await {
        Err(fault) if fault.code == Code::ObjectDamaged => (Verified::default(), true),
        other => (other?, false),
    };
    let answer = ReplicaVerifyResp {
        exists: seen.image.exists,
        is_unreadable,
        damaged_blocks: seen.damaged.iter().map(|damaged| damaged.block).collect(),
        next_data: seen.next_data,
    };
    let body = encode_body(&Ok::<_, Fault>(answer));
    let bulk_crc = brindle_stdx::crc(&seen.sums);
    Ok(Answer { body, bulk: seen.sums, bulk_crc })
}

/// Keeps the record of the scrub of the primary.
pub(crate) async fn keep_scrub(oss: &Oss, conn: &ServerConn, req: ReplicaScrubReq) -> Result<Empty> {
    let _attached = replica(oss)?.enter(conn, req.attachment).await?;
    crate::scrub::keep(oss, &req.record)?;
    Ok(Empty {})
}

/// Objects that are here.
pub(crate) async fn list(oss: &Oss, conn: &ServerConn, req: ReplicaListReq) -> Result<ReplicaListResp> {
    let _attached = replica(oss)?.enter(conn, req.attachment).await?;
    if req.only_marked {
        return Ok(ReplicaListResp { objects: oss.store.marked_objects(), end: true });
    }
    let (listed, end) = oss.store.list(req.after, (req.limit as usize).min(LIST_MAX)).await?;
    Ok(ReplicaListResp { objects: listed.iter().map(|l| l.object).collect(), end })
}

/// Bytes for a block that is damaged on the primary.
pub(crate) async fn read(oss: &Oss, call: &Call, req: ReplicaReadReq) -> Result<Answer> {
    let _attached = replica(oss)?.enter(&call.conn, req.attachment).await?;
    let ticket = Ticket {
        layout_epoch: ANY_EPOCH,
        truncate_epoch: ANY_EPOCH,
        attr_epoch: ANY_EPOCH,
        must_exist: false,
    };
    let out = oss.store.read(req.object, req.offset, req.len_bytes.into(), &ticket).await?;
    let body = encode_body(&Ok::<_, Fault>(ReplicaReadResp { exists: out.exists }));
    Ok(Answer { body, bulk: out.data, bulk_crc: out.crc })
}
