//! Messages as earlier versions of the protocol had them.
//!
//! Callers, handlers and caches know only the newest form of every message. A connection that speaks an earlier version translates at
//! its two ends (`brindle-net`): outgoing messages are written in the form of that version, incoming ones are read from it. A connection
//! of the newest version, and a message that never changed, cost one look into a short table.
//!
//! A message that changes keeps its earlier form as [`Changed::Previous`] and gets a line in [`CHANGES`]; CONTRIBUTING.md has the steps.
//! Golden bytes of each version are in `golden/`.

use brindle_types::{Code, Fault};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::form::FormatLevel;
use crate::frame::{Frame, decode_body, encode_body};
use crate::mds::session::TargetInfoReq;
use crate::version::{PROTOCOL_VERSION, Versions};
use crate::{Message, Op, extremes};

/// A request, an answer or the cache updates, in a form that is newer than its first.
pub trait Changed: Serialize + DeserializeOwned {
    /// First version of the protocol that has this form.
    const SINCE: u16;
    /// The form before.
    type Previous: Serialize + DeserializeOwned;

    /// The message of the form before, in this form.
    fn from_previous(previous: Self::Previous) -> Self;

    /// The message in the form before; `None` if that form cannot say it.
    fn to_previous(&self) -> Option<Self::Previous>;
}

/// Part of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The request, or the notice of a server.
    Request,
    /// The outcome in the answer.
    Reply,
    /// Cache updates behind the outcome ([`crate::cache_updates`]), of every operation.
    CacheUpdates,
}

type Translation = fn(&[u8]) -> Result<Option<Bytes>, Fault>;
/// [`Protocols::down`] or [`Protocols::up`].
type Step = fn(&Protocols, Option<Op>, Part, u16, Bytes) -> Result<Bytes, Fault>;

/// A change of a message: a line of the table.
#[derive(Clone, Copy)]
pub struct Change {
    /// First version of the protocol with the later form.
    pub since: u16,
    /// Operation of the message; `None` for any.
    pub op: Option<Op>,
    /// Part of the exchange that changed.
    pub part: Part,
    /// From the later form to the earlier one; `None` if that cannot say it.
    pub down: Translation,
    /// From the earlier form to the later one.
    pub up: Translation,
    /// Bodies in the earlier form, for tests.
    pub samples: fn() -> Vec<Bytes>,
}

fn request_down<M: Changed>(body: &[u8]) -> Result<Option<Bytes>, Fault> {
    Ok(decode_body::<M>(body)?.to_previous().as_ref().map(encode_body))
}

fn request_up<M: Changed>(body: &[u8]) -> Result<Option<Bytes>, Fault> {
    Ok(Some(encode_body(&M::from_previous(decode_body(body)?))))
}

fn reply_down<R: Changed>(body: &[u8]) -> Result<Option<Bytes>, Fault> {
    match decode_body::<Result<R, Fault>>(body)? {
        Ok(answer) => Ok(answer.to_previous().map(|previous| encode_body(&Ok::<_, Fault>(previous)))),
        Err(_) => Ok(Some(Bytes::copy_from_slice(body))),
    }
}

fn reply_up<R: Changed>(body: &[u8]) -> Result<Option<Bytes>, Fault> {
    let outcome: Result<R::Previous, Fault> = decode_body(body)?;
    Ok(Some(encode_body(&outcome.map(R::from_previous))))
}

fn request_samples<M: Changed>() -> Vec<Bytes> {
    extremes::shapes::<M::Previous>(&|_| None).iter().map(encode_body).collect()
}

fn reply_samples<R: Changed>() -> Vec<Bytes> {
    extremes::shapes::<Result<R::Previous, Fault>>(&|_| None).iter().map(encode_body).collect()
}

impl Change {
    /// The request `M` has changed.
    pub const fn of_request<M: Message + Changed>() -> Change {
        Change {
            since: M::SINCE,
            op: Some(M::OP),
            part: Part::Request,
            down: request_down::<M>,
            up: request_up::<M>,
            samples: request_samples::<M>,
        }
    }

    /// The answer to `M` has changed.
    pub const fn of_reply<M: Message<Resp: Changed>>() -> Change {
        Change {
            since: <M::Resp as Changed>::SINCE,
            op: Some(M::OP),
            part: Part::Reply,
            down: reply_down::<M::Resp>,
            up: reply_up::<M::Resp>,
            samples: reply_samples::<M::Resp>,
        }
    }

    /// The cache updates behind outcomes have changed; `U` is [`CacheUpdates`](crate::cache_updates::CacheUpdates).
    pub const fn of_cache_updates<U: Changed>() -> Change {
        Change {
            since: U::SINCE,
            op: None,
            part: Part::CacheUpdates,
            down: request_down::<U>,
            up: request_up::<U>,
            samples: request_samples::<U>,
        }
    }

    fn is_of(&self, op: Option<Op>, part: Part, spoken: u16) -> bool {
        self.part == part && self.since > spoken && (self.op.is_none() || self.op == op)
    }
}

/// Every change of a message since the oldest version that is spoken, later ones last.
pub const CHANGES: &[Change] = &[Change::of_reply::<TargetInfoReq>()];

/// Versions that one side speaks, and the forms of their messages.
#[derive(Clone, Copy)]
pub struct Protocols {
    /// The versions.
    pub versions: Versions,
    /// Changes of messages, later ones last.
    pub changes: &'static [Change],
}

impl Protocols {
    /// The versions of this release.
    pub const OURS: Protocols = Protocols { versions: Versions::OURS, changes: CHANGES };

    /// Whether messages of a connection that speaks this version are not all in their newest form.
    pub fn translates(&self, spoken: u16) -> bool {
        self.changes.iter().any(|change| change.since > spoken)
    }

    /// A body in the form of version `spoken`, from its newest one.
    pub fn down(&self, op: Option<Op>, part: Part, spoken: u16, body: Bytes) -> Result<Bytes, Fault> {
        let steps = self.changes.iter().rev().filter(|change| change.is_of(op, part, spoken));
        steps
            .clone()
            .try_fold(body, |body, change| (change.down)(&body)?.ok_or_else(|| cannot_say(op, part, spoken)))
    }

    /// A body in its newest form, from that of version `spoken`.
    pub fn up(&self, op: Option<Op>, part: Part, spoken: u16, body: Bytes) -> Result<Bytes, Fault> {
        let mut steps = self.changes.iter().filter(|change| change.is_of(op, part, spoken));
        steps.try_fold(body, |body, change| (change.up)(&body)?.ok_or_else(|| cannot_say(op, part, spoken)))
    }

    /// A frame as a connection of version `spoken` carries it, from its newest form. Of a request, before its job is added.
    pub fn frame_down(&self, spoken: u16, part: Part, frame: Frame) -> Result<Frame, Fault> {
        self.translate(spoken, part, frame, Protocols::down)
    }

    /// A frame in its newest form, as it came over a connection of version `spoken`. Of a request, after its job is taken off.
    pub fn frame_up(&self, spoken: u16, part: Part, frame: Frame) -> Result<Frame, Fault> {
        self.translate(spoken, part, frame, Protocols::up)
    }

    fn translate(&self, spoken: u16, part: Part, frame: Frame, step: Step) -> Result<Frame, Fault> {
        let op = Op::from_number(frame.header.op);
        let changes = |part| self.changes.iter().any(|change| change.is_of(op, part, spoken));
        let has_updates = frame.header.cache_updates_len > 0;
        if !(changes(part) || has_updates && changes(Part::CacheUpdates)) {
            return Ok(frame);
        }
        let at = frame.outcome().len();
        let outcome = step(self, op, part, spoken, frame.body.slice(..at))?;
        let updates = match has_updates {
            true => step(self, None, Part::CacheUpdates, spoken, frame.body.slice(at..))?,
            false => Bytes::new(),
        };
        Ok(frame.with_parts(outcome, &updates))
    }
}

/// Answers that are stored without a version are of this one.
const STORED_WITHOUT_VERSION: u16 = 2;

/// An answer as servers store it, to give it again: a byte with the version of the protocol, then the body in the form of that version.
/// The version is that of the file system's level, so that a host of an earlier release can take over.
/// Without the byte, an answer is of protocol 2: its first byte is 0 or 1 (the variant of its `Result`).
pub fn store(level: FormatLevel, op: Op, body: &Bytes) -> Result<Bytes, Fault> {
    let version = level.protocol();
    let body = Protocols::OURS.down(Some(op), Part::Reply, version, body.clone())?;
    if version == STORED_WITHOUT_VERSION {
        return Ok(body);
    }
    let version = u8::try_from(version).expect("versions are counted by hand");
    Ok([&[version], &body[..]].concat().into())
}

/// A stored answer in its newest form.
pub fn unstore(op: Op, stored: &Bytes) -> Result<Bytes, Fault> {
    let (version, body) = match stored.first() {
        Some(version) if u16::from(*version) > STORED_WITHOUT_VERSION => {
            (u16::from(*version), stored.slice(1..))
        }
        _ => (STORED_WITHOUT_VERSION, stored.clone()),
    };
    if version > PROTOCOL_VERSION {
        return Err(Fault::new(Code::NewerFormat)
            .what("cannot read a stored answer to")
            .subject(op.name())
            .why(format!("it is of protocol {version}, this release speaks {}", Versions::OURS)));
    }
    Protocols::OURS.up(Some(op), Part::Reply, version, body)
}

/// The refusal of a message that an earlier version has no words for.
fn cannot_say(op: Option<Op>, part: Part, spoken: u16) -> Fault {
    let subject = op.map_or("cache updates", Op::name);
    let fault = Fault::new(Code::VersionMismatch)
        .what("the other side does not understand")
        .subject(subject)
        .why(format!("the connection speaks protocol {spoken}, this side {PROTOCOL_VERSION}"))
        .next("upgrade the host at the other end");
    match part {
        Part::Request => fault.data("nothing was changed"),
        // The request has been carried out.
        Part::Reply | Part::CacheUpdates => fault,
    }
}

pub mod trial;

#[cfg(test)]
mod tests;
