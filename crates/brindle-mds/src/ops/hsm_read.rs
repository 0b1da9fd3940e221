//! hsm_read and hsm_extents: readers of a released file get its parts while the rest is still coming (design note 054).

use brindle_types::hsm::Extents;
use brindle_types::{Code, Fault, HsmKind, Pair, Result};
use brindle_wire::mds::hsm::{
    HsmExtentsReq, HsmExtentsResp, HsmPart, HsmReadReq, HsmReadResp, HsmRecallReq, HsmRecallResp,
};
use brindle_wire::mds::open::OpenMode;

use super::hsm::recalled;
use crate::grant;
use crate::hsm;
use crate::mdt::{Call, Event, Mdt, Step, Stop, Txn};
use crate::store::inode;

/// Longest wait of one request for a range; the caller asks again.
const READ_WAIT_MS: u64 = 5_000;

/// Begins a restore if there is none, and waits for a range of the file for a while.
pub async fn handle_read(mdt: &Mdt, call: &Call, req: HsmReadReq) -> Result<HsmReadResp> {
    let seen = mdt.step(call, |t| look(t, &req, req.waits_for)).await?;
    let HsmReadResp::Waiting(cookie) = seen else { return Ok(seen) };
    if !req.waits {
        return Ok(seen);
    }
    let waiting = mdt.step(call, |t| {
        let found = part(t, &req)?;
        match found.is_none() && t.live().hsm.actions.contains_key(&req.ino) {
            true => Err(Stop::RetryAfter(Event::HsmExtents(req.ino))),
            false => Ok(found),
        }
    });
    // The wait changes nothing, so a timeout loses nothing.
    match mdt.seams().timeout_ms(READ_WAIT_MS, waiting).await {
        Some(Ok(Some(found))) => Ok(HsmReadResp::Part(found)),
        Some(Err(fault)) => Err(fault),
        Some(Ok(None)) | None => mdt.step(call, |t| look(t, &req, Some(cookie))).await,
    }
}

/// The place of the range at this moment. Where it is not here, the agent hears that somebody waits for it.
fn look(t: &mut Txn<'_>, req: &HsmReadReq, waits_for: Option<Pair>) -> Step<HsmReadResp> {
    if let Some(found) = part(t, req)? {
        return Ok(HsmReadResp::Part(found));
    }
    let recall = HsmRecallReq { ino: req.ino, waits_for, cred: req.cred.clone() };
    match recalled(t, &recall, waits_for)? {
        HsmRecallResp::Here => Ok(HsmReadResp::Here),
        HsmRecallResp::Failed(fault) => Ok(HsmReadResp::Failed(fault)),
        HsmRecallResp::Waiting(cookie) => {
            let size_bytes = inode::get(t, req.ino)?.size_bytes;
            let extents = Extents::none(size_bytes).touched(&range(req));
            let ino = req.ino;
            t.after(move |live| live.hsm.want(ino, extents));
            Ok(HsmReadResp::Waiting(cookie))
        }
    }
}

fn range(req: &HsmReadReq) -> std::ops::Range<u64> {
    req.offset..req.offset.saturating_add(req.len_bytes)
}

/// The file with the bytes of the range, if all of them are there and the file is, too.
fn part(t: &Txn<'_>, req: &HsmReadReq) -> Result<Option<HsmPart>> {
    let queue = &t.live().hsm;
    let Some(action) = queue.actions.get(&req.ino).filter(|action| action.kind == HsmKind::Restore) else {
        return Ok(None);
    };
    let Some(known) = queue.part(req.ino).filter(|known| known.has(&range(req))) else { return Ok(None) };
    if !hsm::is_released(t, &inode::get(t, req.ino)?)? {
        return Ok(None);
    }
    let Some(source) = inode::find(t, known.from)? else { return Ok(None) };
    let grant = grant::grant(t, &source, OpenMode::Direct, false)?;
    Ok(Some(HsmPart { cookie: action.cookie, attempt: known.attempt, from: known.from, grant }))
}

/// Takes in which extents an agent has restored, and tells it which ones readers wait for.
pub async fn handle_extents(mdt: &Mdt, _call: &Call, req: HsmExtentsReq) -> Result<HsmExtentsResp> {
    hsm::root_only(&req.cred, "cannot serve an archive")?;
    let now = mdt.hearing().now();
    mdt.live_mut().hsm.keeps(req.agent, now);
    let at = req.attempt;
    let size_bytes = mdt
        .read(|t| {
            let action = hsm::attempt(t, &at)?;
            let source = inode::get(t, req.from)?;
            source.file()?;
            if action.kind != HsmKind::Restore || source.nlink > 0 || req.from == at.ino {
                let why = "only a file without a name has the bytes of a restore";
                return Err(Fault::new(Code::InvalidArgument).why(why));
            }
            Ok(inode::get(t, at.ino)?.size_bytes)
        })
        .await?;
    let here = Extents::of_bits(size_bytes, &req.here);
    let here = here.ok_or_else(|| Fault::new(Code::InvalidArgument).why("the file has other extents"))?;
    let mut live = mdt.live_mut();
    let Some((wanted, is_more)) = live.hsm.take_extents(&at, req.from, here) else {
        return Err(hsm::stale_attempt(at.ino));
    };
    if is_more {
        live.events.fire(Event::HsmExtents(at.ino));
    }
    Ok(HsmExtentsResp { wanted })
}
