//! hsm_divide, hsm_span_take, hsm_span_done and hsm_shares: agents of an archive carry out an action on a large file together (design
//! note 058).

use brindle_types::hsm::{DIVIDED_BYTES_MAX, Spans};
use brindle_types::{Code, Fault, HsmKind, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::hsm_span::{
    ARCHIVE_NAME_BYTES_MAX, HsmDivideReq, HsmDivideResp, HsmPlace, HsmSharesReq, HsmSharesResp,
    HsmSpanDoneReq, HsmSpanTakeReq, HsmSpanTakeResp, SPAN_SUMS_MAX, SPANS_HELD_MAX,
};

use super::hsm_agent::is_bounded;
use crate::hsm;
use crate::hsm::divided::{Plan, spans_of};
use crate::mdt::{Call, Event, Mdt, Stop, Txn};
use crate::store::inode;

/// Longest wait of a request for a span.
const SPAN_WAIT_MS: u64 = 3_000;

fn wrong(why: &'static str) -> Fault {
    Fault::new(Code::InvalidArgument).why(why)
}

/// Divides a file over the agents of its archive, and tells its agent what they have finished.
pub async fn handle_divide(mdt: &Mdt, _call: &Call, req: HsmDivideReq) -> Result<HsmDivideResp> {
    hsm::root_only(&req.cred, "cannot serve an archive")?;
    let now = mdt.hearing().now();
    mdt.live_mut().hsm.keeps(req.agent, now);
    let Some((plan, known)) = mdt.read(|t| plan(t, &req)).await? else {
        return Ok(HsmDivideResp { is_divided: false, finished: Vec::new() });
    };
    let Some(plan) = plan else { return Ok(HsmDivideResp { is_divided: true, finished: Vec::new() }) };
    let mut live = mdt.live_mut();
    let finished = live.hsm.divide(plan, &known)?;
    live.events.fire(Event::HsmWork);
    Ok(HsmDivideResp { is_divided: true, finished })
}

/// The plan in a request, and the spans that its agent knows to be finished. `None` if the file is not to be divided; no plan if the request only
/// asks whether it is.
fn plan(t: &Txn<'_>, req: &HsmDivideReq) -> Result<Option<(Option<Plan>, Spans)>> {
    let action = hsm::attempt(t, &req.attempt)?;
    let Some(running) = action.running.filter(|running| running.agent == req.agent) else {
        return Err(hsm::stale_attempt(req.attempt.ino));
    };
    let file = inode::get(t, req.attempt.ino)?;
    file.file()?;
    let size_bytes = file.size_bytes;
    let is_long = size_bytes > t.mdt().config().divide_above_bytes && size_bytes <= DIVIDED_BYTES_MAX;
    let Some(count) = spans_of(req.span_bytes, size_bytes).filter(|_| is_long) else { return Ok(None) };
    if action.kind == HsmKind::Remove || !t.live().hsm.may_divide(req.attempt.ino) {
        return Ok(None);
    }
    let known = Spans::of_bits(count, &req.known).ok_or_else(|| wrong("the file has other spans"))?;
    let Some(place) = &req.place else { return Ok(Some((None, known))) };
    match (action.kind, place) {
        (HsmKind::Archive, HsmPlace::Copy(upload)) => {
            if upload.as_ref().is_some_and(|name| name.len() > ARCHIVE_NAME_BYTES_MAX) {
                return Err(wrong("the name of the upload is too long"));
            }
        }
        (HsmKind::Restore, HsmPlace::File(from)) => {
            let source = inode::get(t, *from)?;
            source.file()?;
            if source.nlink > 0 || *from == req.attempt.ino {
                return Err(wrong("only a file without a name has the bytes of a restore"));
            }
        }
        _ => return Err(wrong("an action of another kind has that place")),
    }
    let plan = Plan {
        attempt: req.attempt,
        owner: req.agent,
        kind: action.kind,
        archive: action.archive,
        place: place.clone(),
        span_bytes: req.span_bytes,
        count,
        size_bytes,
        data_version: running.data_version,
        copy: hsm::state_of(t, req.attempt.ino)?.copy,
    };
    Ok(Some((Some(plan), known)))
}

/// Gives out a span.
pub async fn handle_span_take(mdt: &Mdt, call: &Call, req: HsmSpanTakeReq) -> Result<HsmSpanTakeResp> {
    hsm::root_only(&req.cred, "cannot serve an archive")?;
    if !is_bounded(&req.host, &req.archives) || req.holds.len() > SPANS_HELD_MAX {
        return Err(wrong("more spans, archives or letters than can be"));
    }
    {
        let mut live = mdt.live_mut();
        let now = mdt.hearing().now();
        live.hsm.heard(req.agent, &req.host, &req.archives, now)?;
        if live.hsm.free_unheard_of(req.agent, req.of, &req.holds) {
            live.events.fire(Event::HsmWork);
        }
    }
    if req.of.is_none() {
        let waiting = mdt.step(call, |t| match t.live().hsm.has_span(&req.agent, &req.archives) {
            true => Ok(()),
            false => Err(Stop::RetryAfter(Event::HsmWork)),
        });
        // The wait changes nothing, so a timeout loses nothing.
        match mdt.seams().timeout_ms(SPAN_WAIT_MS, waiting).await {
            None => return Ok(HsmSpanTakeResp { span: None }),
            Some(waited) => waited?,
        }
    }
    let claim = mdt.numbers().pair();
    let mut live = mdt.live_mut();
    if !live.hsm.agents.contains_key(&req.agent) {
        // The agent has left, or was silent, while its request waited.
        return Ok(HsmSpanTakeResp { span: None });
    }
    let span = live.hsm.give_span(req.agent, &req.archives, req.of, claim)?;
    Ok(HsmSpanTakeResp { span })
}

/// Takes in what an agent has made of a span.
pub async fn handle_span_done(mdt: &Mdt, _call: &Call, req: HsmSpanDoneReq) -> Result<Empty> {
    hsm::root_only(&req.cred, "cannot serve an archive")?;
    let now = mdt.hearing().now();
    let mut live = mdt.live_mut();
    live.hsm.keeps(req.agent, now);
    match req.outcome {
        Ok(made) => {
            let name = made.part.as_ref().map_or(0, String::len);
            if made.sums.len() > SPAN_SUMS_MAX || name > ARCHIVE_NAME_BYTES_MAX {
                return Err(wrong("more checksums or letters than can be"));
            }
            if live.hsm.span_done(req.agent, &req.claim, made)? {
                live.events.fire(Event::HsmExtents(req.claim.attempt.ino));
            }
        }
        Err(fault) => {
            if live.hsm.span_failed(req.agent, &req.claim) {
                tracing::warn!(file = %req.claim.attempt.ino.fid(), span = req.claim.span, "an agent could not do its part, others do it: {fault}");
                live.events.fire(Event::HsmWork);
            }
        }
    }
    Ok(Empty {})
}

/// Tells how agents share divided files.
pub async fn handle_shares(mdt: &Mdt, _call: &Call, req: HsmSharesReq) -> Result<HsmSharesResp> {
    hsm::root_only(&req.cred, "cannot list the actions of tiering")?;
    Ok(HsmSharesResp { divided: mdt.live().hsm.shown_divided() })
}
