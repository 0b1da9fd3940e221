//! spill: an OST of a file is full, and what is to be written there goes to others.
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
use crate::relocate::{Into, Moving, begin, not_now, round_down, round_up};
use crate::store::{Inode, inode};

/// Bytes behind a place that move with it; with more of them only a part of the component moves.
const SPILL_COPY_MAX_BYTES: u64 = 64 << 20;
/// Smallest part that moves.
const OVERLAY_BYTES: u64 = 16 << 20;

/// How long OSTs that do not answer are waited for, and how often they are asked.
const ROOM_WAIT_MS: u64 = 15_000;
const ROOM_LOOK_MS: u64 = 50;

/// Gives the place other OSTs. The answer is the layout, also where others were faster.
pub async fn handle(mdt: &Mdt, call: &Call, req: SpillReq) -> Result<OpenGrant> {
    mdt.osts().note_full(req.ost, req.len_bytes);
    let full =
        mdt.read(|t| Ok(inode::find(t, req.ino)?.and_then(|file| full_component(&file, &req)))).await?;
    if let Some(full) = full {
        wait_for_room(mdt, &full.asked, &[req.ost], req.len_bytes).await;
    }
    let busy = Busy::new(mdt, req.ino);
    let begun = mdt
        .step(call, |t| {
            t.idle(req.ino)?;
            let mut file = inode::get(t, req.ino)?;
            let Some(full) = full_component(&file, &req) else { return Ok(None) };
            let osts = mdt.osts().place_elsewhere(&full.asked, &[req.ost], req.len_bytes)?;
            if osts.is_empty() {
                let again = mdt.osts().has_room_elsewhere(&full.asked, &[], req.len_bytes);
                let fault = if again { not_now("there is room again") } else { nobody_has_room(mdt) };
                return Err(fault.into());
            }
            begin(t, &busy, &mut file)?;
            Ok(Some((file, full, osts)))
        })
        .await?;
    if let Some((file, full, osts)) = begun {
        spill(Moving { mdt, call, busy, file }, &full, osts, &req).await?;
    }
    mdt.complete(call, |t| {
        t.idle(req.ino)?;
        let file = inode::get(t, req.ino)?;
        file.file()?;
        Ok(grant::grant_now(t, &file, call.session)?)
    })
    .await
}

/// Where nobody is known to have room everybody is asked, and who does not answer is given time to: nobody is told that the
/// file system is full as long as it may not be.
pub async fn wait_for_room(mdt: &Mdt, asked: &StripePolicy, avoid: &[u16], len_bytes: u64) {
    let all = mdt.osts().all().await;
    let started = mdt.seams().now();
    while !mdt.osts().has_room_elsewhere(asked, avoid, len_bytes) {
        join_all(all.iter().map(|ost| ask_space(mdt, *ost))).await;
        let heard = mdt.osts().candidates().iter().filter(|c| c.up).count();
        if heard >= all.len() || mdt.seams().now().ms_since(started) >= ROOM_WAIT_MS {
            return;
        }
        mdt.seams().sleep_ms(ROOM_LOOK_MS).await;
    }
}

async fn spill(moving: Moving<'_>, full: &Component, osts: Vec<u16>, req: &SpillReq) -> Result<()> {
    let end = moving.end_of(full).await?;
    if req.offset >= end {
        return moving.cut_off(full, req.offset, osts).await;
    }
    let start = round_down(req.offset).max(full.start);
    let range = if end - start <= SPILL_COPY_MAX_BYTES {
        start..full.end
    } else {
        let least = round_up(req.offset.saturating_add(req.len_bytes)).max(start + OVERLAY_BYTES);
        start..least.min(full.end)
    };
    let generation = moving.mdt.numbers().pair();
    let to = Component { origin: range.start, generation, osts, objects: Vec::new(), ..full.clone() };
    moving.relocate(range, Into::New(to)).await.map(drop)
}

/// The component that the place lies in, if it still has an object on the OST that is full.
fn full_component(file: &Inode, req: &SpillReq) -> Option<Component> {
    let layout = &file.file.as_ref()?.layout;
    let component = layout.at(req.offset).filter(|c| !layout.inline && c.is_placed())?;
    component.osts.contains(&req.ost).then(|| component.clone())
}

fn nobody_has_room(mdt: &Mdt) -> Fault {
    let down = mdt.osts().candidates().iter().filter(|c| !c.up).count();
    let fault = Fault::new(Code::OstFull).what("no storage target has room").next("remove files: lfs df");
    match down {
        0 => fault,
        _ => fault.why(format!("{down} of them do not answer")),
    }
}
