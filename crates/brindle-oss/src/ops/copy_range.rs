//! copy_range: bytes of another object into this one, read where they lie: here, or from another OST.

use std::ops::Range;
use std::sync::Arc;

use brindle_objects::slots::Turn;
use brindle_objects::{ALL, Changed, ObjectStore, PunchOp, WriteOp};
use brindle_stdx::cast::bounded_u32;
use brindle_targets::Options;
use brindle_types::layout::FILE_SIZE_MAX_BYTES;
use brindle_types::{Code, Fault, Pair, Result, TargetId};
use brindle_wire::frame::{decode_reply, encode_body};
use brindle_wire::oss::Ticket;
use brindle_wire::oss::read::ReadReq;
use brindle_wire::oss::write::CopyRangeReq;
use brindle_wire::{Message, Op};
use bytes::Bytes;

use super::{Copies, Outcome, once, plain_body};
use crate::dispatch::{Answer, Call};
use crate::service::Oss;

/// Most bytes copied by one request.
pub const COPY_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are on their way at once.
const PIECE_BYTES: u64 = 4 << 20;
/// Longest wait for another OST to answer a read. The request that needs the bytes holds its slot meanwhile.
const READ_WAIT_MS: u64 = 10_000;
/// Zeros that are at least as many become a hole.
const HOLE_BYTES: usize = 64 << 10;
/// Newer than every epoch: the client had the right to read before it asked a server to do it.
const ANY_EPOCH: Pair = Pair { term: u32::MAX, counter: u64::MAX };

/// The right to read the source.
fn source_ticket(must_exist: bool) -> Ticket {
    Ticket { layout_epoch: ANY_EPOCH, truncate_epoch: ANY_EPOCH, attr_epoch: ANY_EPOCH, must_exist }
}

/// Copies piece by piece. Bytes behind the source's end, or of a missing source, become a hole.
pub async fn handle(oss: &Arc<Oss>, call: &Call, req: CopyRangeReq) -> Result<Answer> {
    if req.len_bytes > COPY_BYTES_MAX {
        let why = format!("{} bytes are asked for, {COPY_BYTES_MAX} are possible", req.len_bytes);
        return Err(Fault::new(Code::InvalidArgument).why(why));
    }
    if req.offset.checked_add(req.len_bytes).is_none_or(|end| end > FILE_SIZE_MAX_BYTES) {
        return Err(Fault::new(Code::TooLarge));
    }
    let range = req.offset..req.offset.saturating_add(req.len_bytes);
    // Many changes of many ranges: the object is compared afterwards.
    let copies = Copies { order: ALL, in_steps: true, forward: || None };
    let copied = once(oss, call, req.object, range, plain_body, copies, async |store, turn| {
        copy(oss, store, &req, turn).await
    })
    .await;
    if !brindle_stdx::planted("ost_copy_keeps_marks") {
        // The OST of the source knows which clients hold pages of it. This OST does not know: the first change of the
        // copy tells all clients.
        oss.marks.forget(req.object);
    }
    copied.map(Outcome::plain)
}

async fn copy(oss: &Oss, store: &ObjectStore, req: &CopyRangeReq, turn: &mut Turn) -> Result<Changed> {
    let mut done = 0;
    let mut changed = Changed { boot_term: store.boot_term(), allocated_bytes: 0 };
    while done < req.len_bytes {
        let wanted = PIECE_BYTES.min(req.len_bytes - done);
        let (data, crc) = source(oss, req, req.source_offset.saturating_add(done), wanted).await?;
        let read = data.len() as u64;
        let mut step = changed;
        for (part, zeros) in runs(&data) {
            let offset = req.offset + done + part.start as u64;
            let (object, ticket, len_bytes) = (req.object, req.ticket, part.len() as u64);
            step = if zeros {
                store.punch(&PunchOp { object, offset, len_bytes, ticket }, false, turn).await?
            } else {
                let crc = if part.len() == data.len() { crc } else { brindle_stdx::crc(&data[part.clone()]) };
                let data = data.slice(part);
                let op = WriteOp { object, offset, data, crc, ticket, sync: false, covered: false };
                store.write(&op, turn).await?
            };
        }
        if read < wanted {
            let (offset, len_bytes) = (req.offset + done + read, req.len_bytes - done - read);
            let op = PunchOp { object: req.object, offset, len_bytes, ticket: req.ticket };
            step = store.punch(&op, false, turn).await?;
            done = req.len_bytes;
        }
        done += read;
        // The oldest term counts: what was written under it may be lost.
        let boot_term = changed.boot_term.min(step.boot_term);
        changed = Changed { boot_term, allocated_bytes: step.allocated_bytes };
    }
    Ok(changed)
}

/// The bytes in runs that are all zeros, and such that are not: a hole stays one.
fn runs(data: &Bytes) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    for (n, block) in data.chunks(HOLE_BYTES).enumerate() {
        let range = n * HOLE_BYTES..n * HOLE_BYTES + block.len();
        let zeros = block.iter().all(|byte| *byte == 0);
        match runs.last_mut() {
            Some((last, kind)) if *kind == zeros => last.end = range.end,
            _ => runs.push((range, zeros)),
        }
    }
    runs
}

/// Bytes of the source, fewer where it ends, and their checksum.
async fn source(oss: &Oss, req: &CopyRangeReq, offset: u64, len_bytes: u64) -> Result<(Bytes, u32)> {
    let ticket = source_ticket(req.source_must_exist);
    if req.source_ost == oss.identity.target.index {
        let read = oss.store.read(req.source, offset, len_bytes, &ticket).await?;
        return Ok((read.data, read.crc));
    }
    let question =
        ReadReq { object: req.source, offset, len_bytes: bounded_u32(len_bytes), may_cache: false, ticket };
    read_from(oss, req.source_ost, &question).await
}

/// Reads from an object of another OST: the bytes and their checksum. `TargetDown` if it does not answer soon enough: the caller may
/// ask again.
async fn read_from(oss: &Oss, ost: u16, question: &ReadReq) -> Result<(Bytes, u32)> {
    let target = TargetId::ost(ost);
    let unknown = || Fault::new(Code::UnknownTarget).subject(target.to_string());
    let caller = oss.targets.known(target).ok_or_else(unknown)?;
    let options = Options { reply_bulk_max: question.len_bytes, ..Options::default() };
    let asking = caller.call_encoded(Op::Read, encode_body(question), Vec::new(), options);
    let silent = || Err(Fault::new(Code::TargetDown).subject(target.to_string()));
    let reply = oss.seams.timeout_ms(READ_WAIT_MS, asking).await.unwrap_or_else(silent)?;
    decode_reply::<<ReadReq as Message>::Resp>(&reply)?;
    Ok((reply.bulk_bytes(), reply.header.bulk_crc))
}
