//! migrate: one piece of a file moves. The caller asks for piece after piece.
//!
//! Each piece begins at the end of the former one, and goes into the objects that the former one has made. In the end the file
//! has as few components as a new file with this layout.

use std::ops::Range;

use brindle_layout::{inherit_layout, plan};
use brindle_types::layout::{COMPONENTS_MAX, Component, EOF};
use brindle_types::{ChangeKind, Code, Fault, LayoutPolicy, Pair, Result, StripePolicy};
use brindle_wire::mds::migrate::{AVOID_MAX, MigrateReq, MigrateResp, PIECE_BYTES_MAX};
use brindle_wire::notify::LayoutNotice;

use crate::ask::Notice;
use crate::changelog;
use crate::mdt::{Busy, Call, Mdt, Txn};
use crate::ops::convert::wait_for_ost;
use crate::relocate::{Into, Moving, begin, not_now, round_down, round_up};
use crate::store::{Inode, inode};

/// Wanted shape of a part of the file.
#[derive(Clone, Debug)]
struct Shape {
    /// End of the part.
    end: u64,
    stripe_size_bytes: u32,
    asked: StripePolicy,
}

/// Fate of a piece.
enum Step {
    /// Nothing moves; the next piece begins at this offset.
    Skip(u64),
    /// A part without objects is asked for otherwise.
    Ask(Component),
    /// Bytes move.
    Move { file: Box<Inode>, end: u64, into: Into },
}

/// Moves the piece that begins at `req.offset`, if it is not where it belongs.
pub async fn handle(mdt: &Mdt, call: &Call, req: MigrateReq) -> Result<MigrateResp> {
    check(mdt, &req).await?;
    let shapes = shapes(mdt, &req)?;
    let busy = Busy::new(mdt, req.ino);
    let step = mdt.step(call, |t| {
        t.idle(req.ino)?;
        let mut file = inode::get(t, req.ino)?;
        if req.cred.uid != 0 && req.cred.uid != file.uid {
            return Err(Fault::new(Code::NotPermitted).into());
        }
        let step = decide(t, &file, &req, shapes.as_deref())?;
        match &step {
            Step::Skip(_) => {}
            Step::Ask(component) => ask_for(t, &mut file, component)?,
            Step::Move { .. } => begin(t, &busy, &mut file)?,
        }
        Ok(match step {
            Step::Move { end, into, .. } => Step::Move { file: Box::new(file), end, into },
            other => other,
        })
    });
    let (end, copied_bytes) = match step.await? {
        Step::Skip(end) => (end, 0),
        Step::Ask(component) => (component.end, 0),
        Step::Move { file, end, into } => {
            let moving = Moving { mdt, call, busy, file: *file };
            let range = piece(&moving, &req, end).await?;
            let end = range.end;
            let copied_bytes = moving.relocate(range, into, u64::MAX).await?;
            (end, copied_bytes.ok_or_else(|| not_now("an OST has no room for the piece"))?)
        }
    };
    mdt.complete(call, |t| {
        let size_bytes = inode::get(t, req.ino)?.size_bytes;
        if end == EOF {
            changelog::about(t, ChangeKind::Migrate, req.ino, Some(&req.cred));
        }
        Ok(MigrateResp { next: (end < EOF).then_some(end), copied_bytes, size_bytes })
    })
    .await
}

async fn check(mdt: &Mdt, req: &MigrateReq) -> Result<()> {
    let refuse = |why: String| Err(Fault::new(Code::InvalidArgument).why(why));
    if req.avoid.len() > AVOID_MAX {
        return refuse(format!("{} OSTs are to be avoided, {AVOID_MAX} can be named", req.avoid.len()));
    }
    let piece = req.copy_max_bytes;
    if piece == 0
        || piece > PIECE_BYTES_MAX
        || round_down(piece) != piece
        || round_down(req.offset) != req.offset
    {
        return refuse(format!("a piece of {piece} bytes from {} on", req.offset));
    }
    wait_for_ost(mdt).await;
    req.policy.as_ref().map_or(Ok(()), |policy| mdt.osts().check_policy(policy))
}

/// The parts that the file is to have, if that was said.
fn shapes(mdt: &Mdt, req: &MigrateReq) -> Result<Option<Vec<Shape>>> {
    let Some(policy) = &req.policy else { return Ok(None) };
    let policy: LayoutPolicy = inherit_layout(policy, &mdt.config().layout_default);
    let shape = |p: brindle_layout::Planned| Shape {
        end: p.end,
        stripe_size_bytes: p.stripe_size_bytes,
        asked: p.asked,
    };
    Ok(Some(plan(&policy)?.into_iter().map(shape).collect()))
}

fn decide(t: &Txn<'_>, file: &Inode, req: &MigrateReq, shapes: Option<&[Shape]>) -> Result<Step> {
    let layout = &file.file()?.layout;
    let here =
        layout.at(req.offset).ok_or_else(|| Fault::new(Code::InvalidArgument).why("no such offset"))?;
    let as_it_is = Shape { end: EOF, stripe_size_bytes: here.stripe_size_bytes, asked: here.asked.clone() };
    let wanted = match shapes {
        None => &as_it_is,
        Some(shapes) => shapes.iter().find(|s| req.offset < s.end).unwrap_or(&as_it_is),
    };
    let end = here.end.min(wanted.end);
    let alike = |c: &Component| c.asked == wanted.asked && c.stripe_size_bytes == wanted.stripe_size_bytes;
    let avoided = |c: &Component| c.osts.iter().any(|ost| req.avoid.contains(ost));
    let everything = shapes.is_none() && req.avoid.is_empty();
    if layout.inline || !here.is_placed() {
        let part = Component {
            start: req.offset,
            end,
            origin: req.offset,
            asked: wanted.asked.clone(),
            stripe_size_bytes: wanted.stripe_size_bytes,
            ..here.clone()
        };
        return if alike(here) && !avoided(here) { Ok(Step::Skip(end)) } else { Ok(Step::Ask(part)) };
    }
    if alike(here) && !avoided(here) && !everything {
        return Ok(Step::Skip(end));
    }
    let before = layout.components.iter().find(|c| c.end == req.offset && c.is_placed());
    let full = |c: &Component| c.osts.iter().any(|ost| t.mdt().osts().is_full(*ost, req.copy_max_bytes));
    let before = before.filter(|c| alike(c) && !avoided(c) && !full(c) && c.generation > here.generation);
    let into = match before {
        Some(before) => Into::Behind(before.clone()),
        None => {
            let osts = t.mdt().osts().place_elsewhere(&wanted.asked, &req.avoid, req.copy_max_bytes)?;
            if osts.is_empty() {
                let why = "every other OST is full, or does not answer";
                return Err(Fault::new(Code::OstFull).what("nowhere to move to").why(why));
            }
            Into::New(Component {
                start: req.offset,
                end,
                origin: req.offset,
                generation: t.pair(),
                stripe_size_bytes: wanted.stripe_size_bytes,
                asked: wanted.asked.clone(),
                osts,
                objects: Vec::new(),
            })
        }
    };
    Ok(Step::Move { file: Box::new(file.clone()), end, into })
}

/// Piece to copy: as many bytes as may be copied at once, or all up to `end` if no more bytes lie behind it.
async fn piece(moving: &Moving<'_>, req: &MigrateReq, end: u64) -> Result<Range<u64>> {
    let layout = &moving.file.file()?.layout;
    let here = layout.at(req.offset).ok_or_else(|| Fault::new(Code::Bug))?;
    let until = req.offset.saturating_add(req.copy_max_bytes);
    let data_end = round_up(moving.extent_of(here).await?.end);
    Ok(req.offset..if data_end <= until { end } else { until.min(end) })
}

/// A part that nothing lies in is asked for otherwise. In a file whose bytes lie in the MDT the first part keeps an OST.
fn ask_for(t: &mut Txn<'_>, file: &mut Inode, part: &Component) -> Result<()> {
    let ino = file.ino;
    let (epoch, generation): (Pair, Pair) = (t.pair(), t.pair());
    let mut part = Component { generation, osts: Vec::new(), objects: Vec::new(), ..part.clone() };
    let body = file.file_mut()?;
    if body.layout.inline && body.convert_begun {
        return Err(Fault::new(Code::LayoutFixed)
            .subject(ino.fid().to_string())
            .why("its bytes are leaving the MDT"));
    }
    if part.start == 0 {
        part.osts = t.choose_osts(&part.asked)?;
    }
    let components = brindle_layout::relocated(&body.layout.components, &part);
    if components.len() > COMPONENTS_MAX {
        return Err(Fault::new(Code::BadStripe)
            .subject(ino.fid().to_string())
            .why(format!("its layout would have more than {COMPONENTS_MAX} components"))
            .data("nothing was changed")
            .next("make it one again: lfs migrate"));
    }
    body.layout.components = components;
    body.layout.epoch = epoch;
    body.layout_gen += 1;
    inode::put(t, file)?;
    changelog::about(t, ChangeKind::Layout, ino, None);
    let truncate_epoch = file.truncate_epoch;
    for other in t.live().opens.others(ino, brindle_types::SessionId(0)) {
        t.notify(other, Notice::Layout(LayoutNotice { ino, drop_from: u64::MAX, truncate_epoch }));
    }
    Ok(())
}
