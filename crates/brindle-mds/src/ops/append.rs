//! append by several clients: a logged reservation of a range, so that a retry and a restart return the same range.
//!
//! `A|ino|offset` rows are the reservations. The size that others see never passes the first that is not done
//! ([`shown_end`]), so that readers do not see the hole where a slow writer's bytes will be; an append returns when the
//! shown end has passed it. A reservation of a session that ended is taken away and stays a hole.

use brindle_types::layout::FILE_SIZE_MAX_BYTES;
use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::mds::Empty;
use brindle_wire::mds::append::{AppendDoneReq, AppendReserveReq, AppendReserveResp};
use brindle_wire::mds::session::ReclaimAppend;

use crate::ask::apply_reports;
use crate::attrs;
use crate::mdt::{Call, Event, Mdt, Step, Stop, Txn};
use crate::store::{Inode, Rows, append, inode};

/// Reservations of one file that may be open at once.
const RESERVATIONS_MAX: usize = 4096;

/// Reserves the next bytes behind the end.
pub async fn handle_reserve(mdt: &Mdt, call: &Call, req: AppendReserveReq) -> Result<AppendReserveResp> {
    let own = |open: &[(u64, append::Reservation)]| {
        open.iter().find(|(_, r)| is_of(r, call, req.number)).map(|(offset, _)| *offset)
    };
    // A client that has a reservation must be told its place. Otherwise the client could not give the place up, and
    // all others would wait for bytes there.
    let known = match mdt.read(|t| Ok(own(&append::list(t, req.ino)?))).await? {
        Some(_) => None,
        // Bytes of other writers are known to the objects only.
        None => Some(attrs::true_size(mdt, call.session, req.ino).await?),
    };
    mdt.modify(call, |t| {
        t.idle(req.ino)?;
        if t.live().recovering {
            // Others may still declare places that a power cut made this MDT forget.
            return Err(Stop::RetryAfter(Event::Recovered));
        }
        let file = inode::get(t, req.ino)?;
        if file.file()?.layout.inline {
            return Err(Fault::new(Code::StaleLayout).into());
        }
        let truncate_epoch = file.truncate_epoch;
        let open = append::list(t, req.ino)?;
        if let Some(offset) = own(&open) {
            t.frees_space();
            return Ok(AppendReserveResp { offset, truncate_epoch });
        }
        let Some(known) = known.as_ref().and_then(|known| known.of(&file)) else {
            return Err(Fault::new(Code::StaleLayout).why("the file was cut meanwhile").into());
        };
        if open.len() >= RESERVATIONS_MAX {
            return Err(Stop::RetryAfter(Event::Append(req.ino)));
        }
        let behind = open.iter().map(|(offset, r)| offset + r.len_bytes).max().unwrap_or(0);
        let offset = file.size_bytes.max(behind).max(known);
        if offset.checked_add(req.len_bytes).is_none_or(|end| end > FILE_SIZE_MAX_BYTES) {
            return Err(Fault::new(Code::TooLarge).into());
        }
        let row = append::Reservation {
            session: call.session,
            number: req.number,
            len_bytes: req.len_bytes,
            done: false,
        };
        append::put(t, req.ino, offset, &row);
        Ok(AppendReserveResp { offset, truncate_epoch })
    })
    .await
}

/// The reserved bytes are written, or given up. Answers when the end shown to others has passed them.
pub async fn handle_done(mdt: &Mdt, call: &Call, req: AppendDoneReq) -> Result<Empty> {
    let report: Vec<_> = req.report.into_iter().map(|r| (call.session, r)).collect();
    mdt.step(call, |t| {
        t.frees_space();
        apply_reports(t, req.ino, &report)?;
        let open = append::list(t, req.ino)?;
        if let Some((offset, mine)) = open.iter().find(|(_, r)| is_of(r, call, req.number)) {
            append::put(t, req.ino, *offset, &append::Reservation { done: true, ..*mine });
        }
        drop_done(t, req.ino)
    })
    .await?;
    mdt.modify(call, |t| match append::list(t, req.ino)?.iter().any(|(_, r)| is_of(r, call, req.number)) {
        true => Err(Stop::RetryAfter(Event::Append(req.ino))),
        false => Ok(Empty {}),
    })
    .await
}

fn is_of(reservation: &append::Reservation, call: &Call, number: u64) -> bool {
    (reservation.session, reservation.number) == (call.session, number)
}

/// Makes the reservations of a client after a restart equal to its declaration: a power cut may have taken a reservation,
/// or the report that one is finished.
pub async fn reclaim(mdt: &Mdt, call: &Call, declared: &[ReclaimAppend]) -> Result<()> {
    mdt.step(call, |t| {
        t.frees_space();
        for (ino, offset, row) in append::all(t)? {
            let under_way = declared.iter().any(|a| (a.ino, a.number) == (ino, row.number));
            if row.session == call.session && !row.done && !under_way {
                append::put(t, ino, offset, &append::Reservation { done: true, ..row });
                drop_done(t, ino)?;
            }
        }
        for (a, (offset, epoch)) in declared.iter().filter_map(|a| Some((a, a.writing_at?))) {
            let known =
                append::list(t, a.ino)?.iter().any(|(at, r)| *at == offset || is_of(r, call, a.number));
            // A cut has taken the reservation, and its writer learns of the cut.
            let is_cut = |file: Inode| file.truncate_epoch != epoch;
            if offset.checked_add(a.len_bytes).is_none_or(|end| end > FILE_SIZE_MAX_BYTES) {
                return Err(Fault::new(Code::TooLarge).into());
            }
            if !known && !inode::find(t, a.ino)?.is_none_or(is_cut) {
                let (session, number, len_bytes) = (call.session, a.number, a.len_bytes);
                append::put(
                    t,
                    a.ino,
                    offset,
                    &append::Reservation { session, number, len_bytes, done: false },
                );
            }
        }
        Ok(())
    })
    .await
}

/// Removes finished reservations at the front, and wakes operations that wait for that.
pub fn drop_done(t: &mut Txn<'_>, ino: Ino) -> Step<()> {
    let open = append::list(t, ino)?;
    for (offset, _) in open.iter().take_while(|(_, r)| r.done) {
        append::delete(t, ino, *offset);
    }
    t.after(move |live| live.events.fire(Event::Append(ino)));
    Ok(())
}

/// The file was cut or extended: nothing is written any more at places that reach beyond `end_bytes`, since
/// OSTs refuse what was begun before. A client with such a place asks again, and is given another.
pub fn drop_behind(t: &mut Txn<'_>, ino: Ino, end_bytes: u64) -> Result<()> {
    let open = append::list(t, ino)?;
    let gone: Vec<u64> =
        open.iter().filter(|(at, r)| at + r.len_bytes > end_bytes).map(|(at, _)| *at).collect();
    if !gone.is_empty() {
        gone.into_iter().for_each(|at| append::delete(t, ino, at));
        t.after(move |live| live.events.fire(Event::Append(ino)));
    }
    Ok(())
}

/// The end that others may see of a file whose true size is `size_bytes`.
pub fn shown_end(rows: &(impl Rows + ?Sized), ino: Ino, size_bytes: u64) -> Result<u64> {
    let open = append::list(rows, ino)?;
    let first = open.iter().find(|(_, r)| !r.done);
    Ok(first.map_or(size_bytes, |(offset, _)| size_bytes.min(*offset)))
}
