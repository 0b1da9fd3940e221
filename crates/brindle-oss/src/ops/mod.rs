//! Operations, one file each, named like the message that asks for it.

pub mod copy_range;
pub mod destroy;
pub mod fence;
pub mod grant;
pub mod list;
pub mod punch;
pub mod read;
pub mod scrub;
pub mod seek;
pub mod stat;
pub mod statfs;
pub mod sync;
pub mod target_info;
pub mod truncate;
pub mod write;

use std::ops::Range;
use std::sync::Arc;

use brindle_net::ServerConn;
use brindle_net::trace::{Part, in_part};
use brindle_objects::format::OBJECT_LEN_MAX;
use brindle_objects::slots::{Enter, Line, SlotKey, Turn};
use brindle_objects::{ALL, Changed, ObjectStore};
use brindle_types::{Code, Fault, ObjectId, Result};
use brindle_wire::frame::{Header, encode_body};
use brindle_wire::oss::replica::ReplicaChange;
use brindle_wire::oss::{ChangeResp, Marks};
use brindle_wire::{Op, earlier};
use bytes::Bytes;

use crate::dispatch::{Answer, Call};
use crate::marks::Met;
use crate::replica::leading::Forward;
use crate::service::Oss;
use crate::stats::add;

/// Objects named in one request.
pub const OBJECTS_MAX: usize = 4096;

/// The connection of a request, as the slot table sees it.
struct ConnLine(Arc<ServerConn>);

impl Line for ConnLine {
    fn id(&self) -> u64 {
        self.0.id()
    }

    fn rail(&self) -> u8 {
        self.0.peer().rail
    }

    fn close(&self) {
        self.0.close();
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// Outcome of a change.
enum Outcome {
    /// The change was made.
    Made(ChangeResp),
    /// The change was made before, and this was its answer.
    Stored(Bytes),
}

impl Outcome {
    fn plain(self) -> Answer {
        Answer::plain(match self {
            Outcome::Made(change) => encode_body(&Ok::<_, Fault>(change)),
            Outcome::Stored(body) => body,
        })
    }
}

/// Consequences of a change for other members, if there are any.
struct Copies<F> {
    /// Changes of overlapping ranges have one order everywhere.
    order: Range<u64>,
    /// Whether the change may be refused in the middle.
    in_steps: bool,
    /// Makes the message to the others; `None`: the object is compared and made equal.
    forward: F,
}

/// The answer of a change as it is stored.
fn plain_body(change: &ChangeResp) -> Bytes {
    encode_body(&Ok::<_, Fault>(change))
}

/// A change of a range that goes through a slot: executed once, whatever is sent again. A failed change is not
/// recorded: it had no effect, and a resent request tries it again.
async fn once<F>(
    oss: &Arc<Oss>,
    call: &Call,
    object: ObjectId,
    range: Range<u64>,
    stored: fn(&ChangeResp) -> Bytes,
    copies: Copies<impl FnOnce() -> Option<Forward>>,
    change: F,
) -> Result<Outcome>
where
    F: AsyncFnOnce(&ObjectStore, &mut Turn) -> Result<Changed>,
{
    let header = &call.frame.header;
    if header.session.0 == 0 || header.sequence == 0 {
        return Err(Fault::new(Code::BadFrame).why("a change needs a session and a sequence"));
    }
    oss.stopped.until(oss.fences_known.wait()).await.ok_or_else(|| Fault::new(Code::NotOwner))?;
    let key = SlotKey { session: header.session, slot: header.slot };
    let line = Arc::new(ConnLine(call.conn.clone()));
    let mut turn = match oss.store.slots().enter(key, header.session_epoch, header.sequence, line).await? {
        Enter::Run(turn) => turn,
        Enter::Answered(stored) => {
            add(&oss.stats.answered_again, 1);
            return Ok(Outcome::Stored(earlier::unstore(op_of(header)?, &stored)?));
        }
    };
    // A session that was ended while the request waited for its turn.
    oss.store.check_session(header.session, header.session_epoch)?;
    let made = in_part(Part::Disk, async {
        let changed = change(&oss.store, &mut turn).await?;
        oss.store.sync_before_reply(object, changed.boot_term).await?;
        Ok(changed)
    });
    let made = match &oss.replica {
        None => made.await,
        // Boxed, so that futures of an OST without copies stay small.
        Some(replica) => {
            let how = (copies.order, copies.in_steps);
            Box::pin(replica.change(oss, &[object], how, made, copies.forward)).await
        }
    };
    let changed = made.inspect_err(|_: &Fault| {
        // Some of it may have been done, and nobody is told whose pages that makes old.
        oss.marks.forget(object);
    })?;
    let Met { marks, takings } = oss.marks.change(object, header.session, range);
    if oss.store.check_session(header.session, header.session_epoch).is_err() {
        // The session has ended meanwhile, so the writer will not tell the readers.
        oss.marks.forget(object);
    }
    let Changed { boot_term, allocated_bytes } = changed;
    let boot_term = oss.store.told_term(boot_term);
    let answer = ChangeResp { boot_term, marks, takings, allocated_bytes };
    if let Err(fault) = record(oss, header, turn, &answer, stored).await {
        oss.marks.forget(object);
        return Err(fault);
    }
    Ok(Outcome::Made(answer))
}

/// Records the answer of a slot's turn.
async fn record(
    oss: &Oss,
    header: &Header,
    turn: Turn,
    answer: &ChangeResp,
    stored: fn(&ChangeResp) -> Bytes,
) -> Result<()> {
    let (op, level) = (op_of(header)?, oss.targets.map().current().format_level);
    let whole = earlier::store(level, op, &stored(answer))?;
    // A stored answer must be short: everybody counts instead of many.
    let short = || {
        let short = stored(&ChangeResp { marks: Marks::Unknown, ..answer.clone() });
        earlier::store(level, op, &short).unwrap_or_else(|fault| encode_body(&Err::<(), Fault>(fault)))
    };
    in_part(Part::Disk, oss.store.record_reply(turn, &whole, short)).await
}

/// Operation of a request that was admitted.
fn op_of(header: &Header) -> Result<Op> {
    Op::from_number(header.op).ok_or_else(|| Fault::new(Code::UnknownOp))
}

/// A change that goes through no slot: here, and on all members where there are others.
pub(crate) async fn everywhere<T>(
    oss: &Arc<Oss>,
    objects: &[ObjectId],
    local: impl Future<Output = Result<T>>,
    change: ReplicaChange,
) -> Result<T> {
    match &oss.replica {
        None => local.await,
        Some(replica) => {
            Box::pin(replica.change(oss, objects, (ALL, false), local, || Some(Forward::plain(change)))).await
        }
    }
}

/// Refuses a change that would reach beyond the end of the largest object. Must run before any arithmetic with its
/// numbers.
fn check_end(object: ObjectId, offset: u64, len_bytes: u64) -> Result<()> {
    if offset.checked_add(len_bytes).is_none_or(|end| end > OBJECT_LEN_MAX) {
        let why = format!("{len_bytes} bytes at {offset}; an object has at most {OBJECT_LEN_MAX}");
        return Err(Fault::new(Code::TooLarge)
            .subject(format!("object {object}"))
            .why(why)
            .data("nothing was written"));
    }
    Ok(())
}

fn bounded(objects: &[ObjectId]) -> Result<()> {
    if objects.len() > OBJECTS_MAX {
        let why = format!("{} objects are named, {OBJECTS_MAX} are possible", objects.len());
        return Err(Fault::new(Code::InvalidArgument).why(why));
    }
    Ok(())
}
