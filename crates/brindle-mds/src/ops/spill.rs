//! spill: an OST of a file is full, and new bytes for it go to other OSTs.
//!
//! | what is to be written | then |
//! |---|---|
//! | lies behind everything in the component | the component is cut off there, the rest gets other OSTs; nothing is copied |
//! | lies in front of a little | the rest of the component moves, from there on |
//! | lies in a hole far from the end | a part of bounded size around it moves |

use brindle_types::layout::Component;
use brindle_types::{Code, Fault, Result, StripePolicy};
use brindle_wire::mds::convert::SpillReq;
use brindle_wire::mds::open::OpenGrant;
use futures_util::future::join_all;

use crate::cluster::ask_space;
use crate::grant;
use crate::mdt::{Busy, Call, Mdt};
use crate::relocate::{Extent, Into, Moving, begin, not_now, round_down, round_up};
use crate::store::{Inode, inode};

/// Bytes behind a place that move with it; with more of them only a part of the component moves.
const SPILL_COPY_MAX_BYTES: u64 = 64 << 20;
/// Smallest part that moves.
const OVERLAY_BYTES: u64 = 16 << 20;

/// Longest total wait of one request for OSTs that do not answer, and the interval at which they are asked.
pub const ROOM_WAIT_MS: u64 = 15_000;
const ROOM_LOOK_MS: u64 = 50;

/// Tries, for each OST that there is, before the file system counts as full: each finds one that has no room.
pub const TRIES_PER_OST: usize = 4;

/// Size of the part that moves together with the bytes to be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The part of the file behind it, as the table above says.
    Rest,
    /// Only the part that layouts require: no OST has space for the rest.
    Least,
}

/// Gives the place other OSTs. The answer is the layout, also where others were faster.
pub async fn handle(mdt: &Mdt, call: &Call, req: SpillReq) -> Result<OpenGrant> {
    // The layout of the client may be an old one, and its OST full all the same. A limited host is believed only where the file lies.
    let is_believed = match call.admission() {
        None => true,
        Some(_) => {
            let is_placed = |file: Inode| full_component(&file, &req).is_some();
            mdt.read(|t| Ok(inode::find(t, req.ino)?.is_some_and(is_placed))).await?
        }
    };
    if is_believed {
        mdt.osts().note_full(req.ost, req.len_bytes);
    }
    let mut part = Part::Rest;
    // The space that an OST needs: for the bytes to be written, and, once known, for the bytes that move with them.
    let mut room_bytes = req.len_bytes;
    let mut tries = TRIES_PER_OST * mdt.osts().all().await.len();
    let mut wait_ms = ROOM_WAIT_MS;
    let begun = mdt.seams().now();
    loop {
        match attempt(mdt, call, &req, part, room_bytes, &mut wait_ms).await? {
            Attempt::Done => break,
            Attempt::Nowhere if part == Part::Rest && room_bytes > req.len_bytes => {
                (part, room_bytes) = (Part::Least, req.len_bytes);
            }
            Attempt::Nowhere if mdt.seams().now().ms_since(begun) < mdt.osts().room_wait_ms() => {
                // An administrator may add space; every try asks all OSTs again.
                mdt.seams().sleep_ms(ROOM_LOOK_MS).await;
                continue;
            }
            Attempt::Nowhere => return Err(nobody_has_room(mdt)),
            Attempt::Refused { bytes } => room_bytes = bytes,
        }
        if tries == 0 {
            return Err(nobody_has_room(mdt).why("OSTs that report room have refused what was to go there"));
        }
        tries -= 1;
    }
    mdt.complete(call, |t| {
        t.idle(req.ino)?;
        let file = inode::get(t, req.ino)?;
        file.file()?;
        Ok(grant::grant_now(t, &file, call.session)?)
    })
    .await
}

/// Outcome of a try. Only `Done` changes the layout.
enum Attempt {
    /// The place has other OSTs, or had them already.
    Done,
    /// No OST has space for this many bytes.
    Nowhere,
    /// An OST had no space for the bytes to be moved: this many in all.
    Refused { bytes: u64 },
}

async fn attempt(
    mdt: &Mdt,
    call: &Call,
    req: &SpillReq,
    part: Part,
    room_bytes: u64,
    wait_ms: &mut u64,
) -> Result<Attempt> {
    let full = mdt.read(|t| Ok(inode::find(t, req.ino)?.and_then(|file| full_component(&file, req)))).await?;
    let mut nobody_has = false;
    if let Some(full) = full {
        wait_for_room(mdt, &full.asked, &[req.ost], room_bytes, wait_ms).await;
        nobody_has = !mdt.osts().has_room_elsewhere(&full.asked, &[req.ost], room_bytes);
    }
    let busy = Busy::new(mdt, req.ino);
    let begun = mdt
        .step(call, |t| {
            t.idle(req.ino)?;
            let mut file = inode::get(t, req.ino)?;
            let Some(full) = full_component(&file, req) else { return Ok(Err(Attempt::Done)) };
            let before = goes_on(mdt, &file, &full, req, room_bytes);
            let osts = match &before {
                Some(before) => before.osts.clone(),
                None => mdt.osts().place_elsewhere(&full.asked, &[req.ost], room_bytes)?,
            };
            if osts.is_empty() {
                // The step may have waited for another change of the file, so earlier knowledge of the file may be
                // stale.
                if !nobody_has || mdt.osts().has_room_again(req.ost, req.len_bytes) {
                    return Err(not_now("there is room again, or has just been").into());
                }
                return Ok(Err(Attempt::Nowhere));
            }
            begin(t, &busy, &mut file)?;
            Ok(Ok((file, full, osts, before)))
        })
        .await?;
    match begun {
        Ok((file, full, osts, before)) => {
            spill(Moving { mdt, call, busy, file }, &full, osts, before, req, part).await
        }
        Err(attempt) => Ok(attempt),
    }
}

/// Waits until an OST is known to have room. All OSTs are asked, and silent ones are given time: no client is
/// told that the file system is full while it may not be. `left_ms`: rest of [`ROOM_WAIT_MS`] that the
/// request may still wait.
pub async fn wait_for_room(
    mdt: &Mdt,
    asked: &StripePolicy,
    avoid: &[u16],
    len_bytes: u64,
    left_ms: &mut u64,
) {
    let all = mdt.osts().all().await;
    let begun = mdt.seams().now();
    while !mdt.osts().has_room_elsewhere(asked, avoid, len_bytes) {
        let asked_at = mdt.seams().now();
        join_all(all.iter().map(|ost| ask_space(mdt, *ost))).await;
        let heard = mdt.osts().candidates().iter().filter(|c| c.up).count();
        // Answers of different moments are none: one OST may have got room while the last one to answer lost it.
        let is_one_moment = mdt.seams().now().ms_since(asked_at) < ROOM_LOOK_MS;
        if (heard >= all.len() && is_one_moment) || mdt.seams().now().ms_since(begun) >= *left_ms {
            break;
        }
        mdt.seams().sleep_ms(ROOM_LOOK_MS).await;
    }
    *left_ms = left_ms.saturating_sub(mdt.seams().now().ms_since(begun));
}

async fn spill(
    moving: Moving<'_>,
    full: &Component,
    osts: Vec<u16>,
    before: Option<Component>,
    req: &SpillReq,
    part: Part,
) -> Result<Attempt> {
    let Extent { end, allocated_bytes } = moving.extent_of(full).await?;
    if req.offset >= end {
        return moving.cut_off(full, req.offset, osts).await.map(|()| Attempt::Done);
    }
    let start = start_of(full, req);
    let least = round_up(req.offset.saturating_add(req.len_bytes));
    let range = match part {
        Part::Rest if end - start <= SPILL_COPY_MAX_BYTES => start..full.end,
        Part::Rest => start..least.max(start.saturating_add(OVERLAY_BYTES)).min(full.end),
        Part::Least => start..least.min(full.end),
    };
    // Holes take no space, and most of the bytes to be written may lie in the part that moves.
    let written = end.max(req.offset.saturating_add(req.len_bytes));
    let bytes = (range.end.min(written) - start).min(allocated_bytes.saturating_add(req.len_bytes));
    if moving.mdt.osts().any_is_smaller(&osts, bytes.div_ceil(osts.len() as u64)) {
        // The copy would only be refused.
        return Ok(Attempt::Refused { bytes });
    }
    let generation = moving.mdt.numbers().pair();
    let new = Component { origin: start, generation, osts, objects: Vec::new(), ..full.clone() };
    let into = before.map_or(Into::New(new), Into::Behind);
    Ok(match moving.relocate(range, into, bytes).await? {
        Some(_) => Attempt::Done,
        None => Attempt::Refused { bytes },
    })
}

/// The component that the place lies in, if it still has an object on the OST that is full.
fn full_component(file: &Inode, req: &SpillReq) -> Option<Component> {
    let layout = &file.file.as_ref()?.layout;
    let component = layout.at(req.offset).filter(|c| !layout.inline && c.is_placed())?;
    component.osts.contains(&req.ost).then(|| component.clone())
}

/// First byte of the part of the component that moves.
fn start_of(full: &Component, req: &SpillReq) -> u64 {
    round_down(req.offset).max(full.start)
}

/// The component in front, if the part that moves can continue in its objects. Without this, a file that spills piece by piece
/// would get a component for each piece. The component must be newer than `full`: an older one may hold old bytes behind its end,
/// from before that range moved to `full`.
fn goes_on(mdt: &Mdt, file: &Inode, full: &Component, req: &SpillReq, room_bytes: u64) -> Option<Component> {
    let components = &file.file.as_ref()?.layout.components;
    let before = components.iter().find(|c| c.end == start_of(full, req) && c.is_placed())?;
    let alike = before.asked == full.asked && before.stripe_size_bytes == full.stripe_size_bytes;
    let has_room = |ost: &u16| *ost != req.ost && mdt.osts().has_room_again(*ost, room_bytes);
    let goes_on = alike && before.generation > full.generation && before.osts.iter().all(has_room);
    goes_on.then(|| before.clone())
}

fn nobody_has_room(mdt: &Mdt) -> Fault {
    let down = mdt.osts().candidates().iter().filter(|c| !c.up).count();
    let fault = Fault::new(Code::OstFull).what("no storage target has room").next("remove files: lfs df");
    match down {
        0 => fault,
        _ => fault.why(format!("{down} of them do not answer")),
    }
}
