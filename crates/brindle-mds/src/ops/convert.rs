//! convert: inline data moves to objects, once, and parts of a file that are to be written get OSTs; and layout_get.

use std::ops::Range;

use brindle_types::layout::{Component, HOLE_BYTES};
use brindle_types::{ChangeKind, Code, Fault, ObjectId, Result, SessionId};
use brindle_wire::mds::convert::{ConvertReq, LayoutGetReq};
use brindle_wire::mds::open::OpenGrant;
use brindle_wire::notify::LayoutNotice;
use brindle_wire::oss::write::WriteReq;
use brindle_wire::oss::{ChangeResp, Ticket};
use bytes::Bytes;

use crate::ask::Notice;
use crate::mdt::{Busy, Call, Mdt, Step, Txn};
use crate::ops::spill::{ROOM_WAIT_MS, TRIES_PER_OST, wait_for_room};
use crate::store::{Inode, inline, inode};
use crate::{changelog, grant, namespace};

/// Longest time that a file waits for the first OST to be heard of, and how often that is looked at.
const OST_WAIT_MAX_MS: u64 = 60_000;
const OST_LOOK_MS: u64 = 50;
/// Silence of the first OST after which another one is chosen. The search for space takes up to half of that
/// time.
const SILENT_FOR_MS: u64 = 4_000;

/// Moves a file's bytes from the MDT to its first object, and chooses OSTs for the components that the range meets. If
/// nothing is left to do, answers with the present layout.
pub async fn handle(mdt: &Mdt, call: &Call, req: ConvertReq) -> Result<OpenGrant> {
    wait_for_ost(mdt).await;
    let busy = Busy::new(mdt, req.ino);
    let mut wait_ms = ROOM_WAIT_MS;
    let mut tries = TRIES_PER_OST * mdt.osts().all().await.len();
    let (begun, written) = loop {
        let begun = mdt.step(call, |t| begin(t, &busy, &req, call.session)).await?;
        let begun_data = begun.as_ref().map(|(file, data)| (file, without_holes(data)));
        let Some((file, data)) = begun_data.filter(|(_, (_, data))| !data.is_empty()) else {
            break (begun, None);
        };
        match write_or_leave(mdt, file, &data).await {
            Ok(Some(written)) => break (begun, Some(written)),
            // The OST is silent: the next round chooses another. Bytes that may have been written there
            // belong to a generation that is over.
            Ok(None) if !req.promised && tries > 0 => {
                tries -= 1;
                give_back(mdt, call, &busy).await?;
            }
            Ok(None) => return Err(Fault::new(Code::OstFull).subject(req.ino.fid().to_string())),
            // Each OST that says so is not chosen again before it reports room.
            Err(fault)
                if fault.code == Code::OstFull
                    && !req.promised
                    && tries > 0
                    && room_elsewhere(mdt, file, &data.1, &mut wait_ms).await =>
            {
                tries -= 1;
                give_back(mdt, call, &busy).await?;
            }
            Err(fault) => return Err(fault),
        }
    };
    mdt.complete(call, |t| {
        t.frees_space();
        if begun.is_none() {
            t.idle(req.ino)?;
        }
        let mut file = inode::get(t, req.ino)?;
        if begun.is_some() {
            finish(t, &mut file, written.as_ref())?;
            busy.clear(t);
        }
        let range = req.offset..req.offset.saturating_add(req.len_bytes);
        let placed = !file.is_inline() && place(t, &mut file, range)?;
        if placed || begun.is_some() {
            changed(t, call, &mut file)?;
            inode::put(t, &file)?;
        }
        Ok(grant::grant_now(t, &file, call.session)?)
    })
    .await
}

/// Others may touch the bytes again.
async fn give_back(mdt: &Mdt, call: &Call, busy: &Busy<'_>) -> Result<()> {
    mdt.step(call, |t| {
        busy.clear(t);
        Ok(())
    })
    .await
}

/// Like [`write`]; nothing if the OST has been silent for so long that another is to be chosen.
async fn write_or_leave(mdt: &Mdt, file: &Inode, data: &(u64, Bytes)) -> Result<Option<ChangeResp>> {
    let first = file.file()?.layout.components.first();
    let Some((first, ost)) = first.and_then(|c| Some((c, *c.osts.first()?))) else { return Err(no_ost()) };
    let left = async {
        loop {
            mdt.seams().sleep_ms(SILENT_FOR_MS).await;
            if mdt.osts().has_another(&first.asked, ost) {
                break;
            }
        }
    };
    tokio::select! {
        biased;
        written = write(mdt, file, data) => written.map(Some),
        () = left => Ok(None),
    }
}

/// The first OST of the file has no room for its bytes. Whether another may have.
async fn room_elsewhere(mdt: &Mdt, file: &Inode, data: &Bytes, left_ms: &mut u64) -> bool {
    let first = file.file.as_ref().and_then(|body| body.layout.components.first());
    let Some((first, ost)) = first.and_then(|c| Some((c, *c.osts.first()?))) else { return false };
    let len_bytes = data.len() as u64;
    mdt.osts().note_full(ost, len_bytes);
    wait_for_room(mdt, &first.asked, &[], len_bytes, left_ms).await;
    mdt.osts().has_room_elsewhere(&first.asked, &[], len_bytes)
}

/// After a restart of everything the OSTs are heard of one by one; until the first one is, nothing can leave the MDT.
pub async fn wait_for_ost(mdt: &Mdt) {
    let started = mdt.seams().now();
    while mdt.osts().candidates().is_empty() && mdt.seams().now().ms_since(started) < OST_WAIT_MAX_MS {
        mdt.seams().sleep_ms(OST_LOOK_MS).await;
    }
}

/// Layout and epochs as they are now; waits while they change.
pub async fn handle_layout_get(mdt: &Mdt, call: &Call, req: LayoutGetReq) -> Result<OpenGrant> {
    mdt.step(call, |t| {
        t.idle(req.ino)?;
        let file = inode::get(t, req.ino)?;
        file.file()?;
        Ok(grant::grant_now(t, &file, call.session)?)
    })
    .await
}

/// The first batch: nobody else touches the bytes from now on, and a new generation counts as used. `None` if the bytes
/// lie in objects already.
fn begin(
    t: &mut Txn<'_>,
    busy: &Busy<'_>,
    req: &ConvertReq,
    session: SessionId,
) -> Step<Option<(Inode, Bytes)>> {
    let ino = req.ino;
    t.idle(ino)?;
    t.settled(ino, session)?;
    let mut file = inode::get(t, ino)?;
    if !file.file()?.layout.inline {
        return Ok(None);
    }
    busy.set(t)?;
    if file.may_have_objects() {
        // A convert that was cut short has left objects.
        namespace::destroy_objects(t, &file);
    }
    // Always a new one: a convert that a power cut took from the log may have left objects of the old.
    let generation = t.pair();
    let data = inline::get(t, ino)?;
    let first = first(&mut file)?;
    first.generation = generation;
    let osts = t.mdt().osts();
    if first.osts.first().is_some_and(|ost| osts.is_avoided(*ost, data.len() as u64)) {
        if req.promised {
            return Err(Fault::new(Code::OstFull).subject(ino.fid().to_string()).into());
        }
        first.osts = osts.place_elsewhere(&first.asked, &[], data.len() as u64)?;
    }
    let is_silent = first.osts.iter().any(|ost| osts.has_another(&first.asked, *ost));
    if is_silent && req.promised {
        // The promise of space came from this OST; no other has promised any.
        return Err(Fault::new(Code::OstFull).subject(ino.fid().to_string()).into());
    }
    if first.osts.is_empty() || is_silent {
        first.osts = t.choose_osts(&first.asked)?;
        if first.osts.is_empty() {
            return Err(no_ost().into());
        }
    }
    file.file_mut()?.convert_begun = true;
    inode::put(t, &file)?;
    Ok(Some((file, data)))
}

/// The bytes without blocks of zeros in front and behind, and where they begin: a hole stays one.
fn without_holes(data: &Bytes) -> (u64, Bytes) {
    let is_hole = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let front = data.chunks(HOLE_BYTES).take_while(|block| is_hole(block)).count() * HOLE_BYTES;
    let rest = data.slice(front.min(data.len())..);
    let behind =
        rest.chunks(HOLE_BYTES).rev().take_while(|block| is_hole(block)).map(<[u8]>::len).sum::<usize>();
    (front as u64, rest.slice(..rest.len() - behind))
}

/// Inline bytes are fewer than a stripe, so they lie in the first object. Durable, and written under the generation
/// that the first batch recorded.
async fn write(mdt: &Mdt, file: &Inode, (offset, data): &(u64, Bytes)) -> Result<ChangeResp> {
    let layout = &file.file()?.layout;
    let (stripe, ost) = layout.stripes().next().ok_or_else(no_ost)?;
    let ticket = Ticket {
        layout_epoch: layout.epoch,
        truncate_epoch: file.truncate_epoch,
        attr_epoch: file.attr_epoch,
        must_exist: false,
    };
    let object = ObjectId::of(file.ino, stripe);
    let request = WriteReq { object, offset: *offset, ticket, sync: true, told: Vec::new(), claim: None };
    mdt.osts().write(ost, &request, data.clone()).await
}

/// The bytes lie in objects.
fn finish(t: &mut Txn<'_>, file: &mut Inode, written: Option<&ChangeResp>) -> Result<()> {
    let ino = file.ino;
    inline::delete(t, ino);
    let (body_id, changed) = (t.pair(), t.pair());
    let body = file.file_mut()?;
    body.changed = changed;
    body.layout.inline = false;
    body.layout.body = body_id;
    body.convert_begun = false;
    if written.is_some() {
        first(file)?.set_object_known(0);
    }
    file.allocated_bytes = written.map_or(0, |w| w.allocated_bytes);
    t.after(move |live| drop(live.inline_readers.remove(&ino)));
    Ok(())
}

/// Chooses OSTs for every component that the range meets and that has none; whether there was one. A new generation
/// each: one that a power cut took from the log may have left objects of its own.
fn place(t: &Txn<'_>, file: &mut Inode, range: Range<u64>) -> Result<bool> {
    let layout = &mut file.file_mut()?.layout;
    let mut placed = false;
    let without = layout.components.iter_mut().filter(|c| !c.is_placed());
    for component in without.filter(|c| c.start < range.end && range.start < c.end) {
        component.generation = t.pair();
        component.origin = component.start;
        component.osts = t.choose_osts(&component.asked)?;
        if component.osts.is_empty() {
            return Err(no_ost());
        }
        placed = true;
    }
    Ok(placed)
}

/// Sets a new layout epoch. Other clients that have the file open fetch the layout before the answer is sent, so that
/// none reads zeros where the caller is about to write.
fn changed(t: &mut Txn<'_>, call: &Call, file: &mut Inode) -> Result<()> {
    let (ino, epoch, truncate_epoch) = (file.ino, t.pair(), file.truncate_epoch);
    let body = file.file_mut()?;
    body.layout.epoch = epoch;
    body.layout_gen += 1;
    changelog::about(t, ChangeKind::Layout, ino, None);
    for other in t.live().opens.others(ino, call.session) {
        t.notify(other, Notice::Layout(LayoutNotice { ino, drop_from: u64::MAX, truncate_epoch }));
    }
    Ok(())
}

/// Component that takes the inline bytes.
fn first(file: &mut Inode) -> Result<&mut Component> {
    file.file_mut()?
        .layout
        .components
        .first_mut()
        .ok_or_else(|| Fault::new(Code::Bug).why("a file without components"))
}

fn no_ost() -> Fault {
    Fault::new(Code::OstFull)
        .what("cannot write more than fits in the MDT")
        .why("no OST is known yet")
        .next("look whether the OSSes run: brindle status")
}
