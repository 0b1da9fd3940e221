//! The frame: a fixed, checksummed header, a small body, and bulk data last.
//!
//! Called by `brindle-net` for every message in both directions, and by the services to build requests and replies.
//! The header has 128 bytes, big-endian, and its layout never changes (`golden/v1/header.bin`). Bulk comes last, so
//! that a receiver reads it straight into its aligned buffer and a sender writes it from where it lies.
//!
//! Invariant: bytes from the network are used only after their checksum and their limits have been checked here.

use std::borrow::Cow;

use brindle_stdx::cast::len_u32;
use brindle_stdx::{crc, crc_append};
use brindle_types::{Code, Fault, Pair, Role, SessionId, TargetId};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::cache_updates::CacheUpdates;
use crate::job::{JobTag, TAG_BYTES_MAX};
use crate::version::{MIN_PROTOCOL_VERSION, PROTOCOL_VERSION, Versions};

/// Length of an encoded header in bytes.
pub const HEADER_LEN: usize = 128;
/// First four bytes of every frame: `BRDL`.
pub const MAGIC: u32 = 0x4252_444c;
/// Largest body in bytes.
pub const BODY_MAX: usize = 1 << 20;
/// Largest bulk in bytes: 16 MiB of data and a page of checksums.
pub const BULK_MAX: usize = (16 << 20) + (4 << 10);

/// The request was sent before over another connection, under the same slot and sequence.
pub const FLAG_RESENT: u8 = 1;
/// The body of this reply is `Err(Fault)`; set by [`Frame::fault_reply_to`], for counters only.
pub const FLAG_FAULT: u8 = 2;
/// The bulk lies in memory of the sender that the receiver can see, and what comes in its place says where. Set and cleared by
/// connections within a machine (`brindle-net`, `tcp/shared_memory.rs`).
pub const FLAG_LENT: u8 = 4;

/// The server makes traces, and the reply says how long the request was there: the caller measures its next one.
pub const FLAG_TRACED: u8 = 8;

/// Purpose of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Asks a target to do something; answered by one reply with the same xid.
    #[default]
    Request = 1,
    /// Answers a request.
    Reply = 2,
    /// Asks the client that made the connection for something (a recall); answered with the same xid.
    Notify = 3,
    /// Answers a notify.
    NotifyReply = 4,
    /// First frame of a connection; its body is [`crate::version::Hello`] in every version.
    Hello = 5,
    /// Answers a hello.
    HelloReply = 6,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Request,
            2 => Kind::Reply,
            3 => Kind::Notify,
            4 => Kind::NotifyReply,
            5 => Kind::Hello,
            6 => Kind::HelloReply,
            _ => return None,
        })
    }
}

/// Class of a request, so that background work never starves users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Needed by others to go on (lease renewals and returns, flushes asked for by a recall). Never waits behind
    /// ordinary requests for credits, and its handler never waits for another client.
    High = 0,
    /// A program waits for it.
    #[default]
    Normal = 1,
    /// Background work: no user waits for it.
    Background = 2,
}

impl Priority {
    fn from_byte(byte: u8) -> Option<Priority> {
        Some(match byte {
            0 => Priority::High,
            1 => Priority::Normal,
            2 => Priority::Background,
            _ => return None,
        })
    }
}

/// Fields of a frame other than its body and bulk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protocol version that the body is written in; set by the connection.
    pub version: u16,
    /// Operation number; 0 for hellos.
    pub op: u16,
    /// Purpose of the frame.
    pub kind: Kind,
    /// `FLAG_*` bits.
    pub flags: u8,
    /// Class of the request.
    pub priority: Priority,
    /// The file system; 0 only before the first contact with its MGS.
    pub fs_id: u64,
    /// Pairs an answer with its question on one connection; set by the connection.
    pub xid: u64,
    /// Session of the sender; 0 without one.
    pub session: SessionId,
    /// The session's slot.
    pub slot: u16,
    /// Sequence within the slot; 0 for operations without one.
    pub sequence: u64,
    /// The target asked, or that answers. In a hello: the target that the sender serves, if it is a server.
    pub target: Option<TargetId>,
    /// Version of the sender's map.
    pub map_version: u64,
    /// Epoch of the target as the sender knows it.
    pub target_epoch: u32,
    /// Fencing epoch of the session.
    pub session_epoch: Pair,
    /// Milliseconds after which the sender stops waiting; 0 for never.
    pub deadline_ms: u32,
    /// Request: hash of the job that the work is done for; 0 for none. Reply: wall clock of the answering side, in nanoseconds since 1970
    /// ([`Header::answered_at_ns`]).
    pub job_key: u64,
    /// Largest bulk that the reply may carry; counted against the connection's credits.
    pub reply_bulk_max: u32,
    /// Length of the body in bytes.
    pub body_len: u32,
    /// CRC32C of the body.
    pub body_crc: u32,
    /// Length of the bulk in bytes.
    pub bulk_len: u32,
    /// CRC32C of the bulk.
    pub bulk_crc: u32,
    /// Length in bytes of what stands at the end of the body: the [`crate::cache_updates::CacheUpdates`] of a reply, the [`JobTag`] of a request;
    /// 0 for none.
    pub cache_updates_len: u32,
    /// Reply of an MDT: the version of its table of fenced sessions. Request of a client: the highest version that an MDT has told it. An
    /// OST that knows an older table fetches the new one first. So data given to others after the end of a session never meets late writes
    /// of that session.
    pub fences_version: u64,
    /// Request: microseconds for which it waited at the sender, for a connection and for credits. Reply with [`FLAG_TRACED`]: microseconds
    /// from the arrival of the request to this answer.
    pub queued_us: u32,
    /// Request: microseconds on the network, there and back, of the request before over the same connection; 0 if they are not known.
    pub network_us: u32,
}

impl Default for Header {
    fn default() -> Header {
        Header {
            version: PROTOCOL_VERSION,
            op: 0,
            kind: Kind::default(),
            flags: 0,
            priority: Priority::default(),
            fs_id: 0,
            xid: 0,
            session: SessionId(0),
            slot: 0,
            sequence: 0,
            target: None,
            map_version: 0,
            target_epoch: 0,
            session_epoch: Pair::ZERO,
            deadline_ms: 0,
            job_key: 0,
            reply_bulk_max: 0,
            body_len: 0,
            body_crc: 0,
            bulk_len: 0,
            bulk_crc: 0,
            cache_updates_len: 0,
            fences_version: 0,
            queued_us: 0,
            network_us: 0,
        }
    }
}

/// The header's bytes. Fields keep their places in every version.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Default)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    header_crc: U32,
    version: U16,
    op: U16,
    kind: u8,
    flags: u8,
    priority: u8,
    target_role: u8,
    fs_id: U64,
    xid: U64,
    session: U64,
    sequence: U64,
    map_version: U64,
    job_key: U64,
    session_epoch_counter: U64,
    session_epoch_term: U32,
    target_epoch: U32,
    deadline_ms: U32,
    slot: U16,
    target_index: U16,
    body_len: U32,
    body_crc: U32,
    bulk_len: U32,
    bulk_crc: U32,
    reply_bulk_max: U32,
    cache_updates_len: U32,
    fences_version: U64,
    /// This and the next field are zero in frames of protocol 2, whose readers skip them.
    queued_us: U32,
    network_us: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN);
/// Position of the header's own checksum.
const CRC_AT: std::ops::Range<usize> = 4..8;

fn role_byte(target: Option<TargetId>) -> u8 {
    match target.map(|t| t.role) {
        None => 0,
        Some(Role::Mgt) => 1,
        Some(Role::Mdt) => 2,
        Some(Role::Ost) => 3,
    }
}

fn target_from(role: u8, index: u16) -> Result<Option<TargetId>, Fault> {
    let role = match role {
        0 => return Ok(None),
        1 => Role::Mgt,
        2 => Role::Mdt,
        3 => Role::Ost,
        other => return Err(bad_frame(format!("target role {other} is unknown"))),
    };
    Ok(Some(TargetId { role, index }))
}

fn bad_frame(why: impl Into<Cow<'static, str>>) -> Fault {
    Fault::new(Code::BadFrame).why(why)
}

impl Header {
    /// When the reply was made, by the clock of whoever made it, in nanoseconds since 1970; `None` of a request, and where it is not said.
    pub fn answered_at_ns(&self) -> Option<i64> {
        let ns = i64::try_from(self.job_key).ok().filter(|ns| *ns > 0);
        ns.filter(|_| self.kind == Kind::Reply)
    }

    /// The header's bytes, checksum included.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let raw = RawHeader {
            magic: MAGIC.into(),
            header_crc: 0.into(),
            version: self.version.into(),
            op: self.op.into(),
            kind: self.kind as u8,
            flags: self.flags,
            priority: self.priority as u8,
            target_role: role_byte(self.target),
            fs_id: self.fs_id.into(),
            xid: self.xid.into(),
            session: self.session.0.into(),
            sequence: self.sequence.into(),
            map_version: self.map_version.into(),
            job_key: self.job_key.into(),
            session_epoch_counter: self.session_epoch.counter.into(),
            session_epoch_term: self.session_epoch.term.into(),
            target_epoch: self.target_epoch.into(),
            deadline_ms: self.deadline_ms.into(),
            slot: self.slot.into(),
            target_index: self.target.map_or(0, |t| t.index).into(),
            body_len: self.body_len.into(),
            body_crc: self.body_crc.into(),
            bulk_len: self.bulk_len.into(),
            bulk_crc: self.bulk_crc.into(),
            reply_bulk_max: self.reply_bulk_max.into(),
            cache_updates_len: self.cache_updates_len.into(),
            fences_version: self.fences_version.into(),
            queued_us: self.queued_us.into(),
            network_us: self.network_us.into(),
        };
        let mut bytes: [u8; HEADER_LEN] = zerocopy::transmute!(raw);
        let sum = crc(&bytes);
        bytes[CRC_AT].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Reads a header. `BadMagic` for what is not Brindle, `BadFrame` for damage and impossible values,
    /// `VersionMismatch` for another version's frame (except hellos, which every version can read).
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Header, Fault> {
        let header = Header::decode_fields(bytes)?;
        check_version(header.kind, header.version)?;
        header.check_lengths()?;
        Ok(header)
    }

    /// Reads an undamaged header of any version, to answer a frame that [`Header::decode`] refused.
    pub fn decode_any_version(bytes: &[u8; HEADER_LEN]) -> Option<Header> {
        Header::decode_fields(bytes).ok()
    }

    fn decode_fields(bytes: &[u8; HEADER_LEN]) -> Result<Header, Fault> {
        let raw: RawHeader = zerocopy::transmute!(*bytes);
        if raw.magic.get() != MAGIC {
            return Err(Fault::new(Code::BadMagic).why(format!("it begins with {:#010x}", raw.magic.get())));
        }
        let mut zeroed = *bytes;
        zeroed[CRC_AT].fill(0);
        let sum = crc(&zeroed);
        if sum != raw.header_crc.get() {
            let (want, have) = (raw.header_crc.get(), sum);
            return Err(bad_frame(format!("the header's checksum is {have:08x}, it should be {want:08x}")));
        }
        let kind =
            Kind::from_byte(raw.kind).ok_or_else(|| bad_frame(format!("kind {} is unknown", raw.kind)))?;
        let priority = Priority::from_byte(raw.priority)
            .ok_or_else(|| bad_frame(format!("priority {} is unknown", raw.priority)))?;
        Ok(Header {
            version: raw.version.get(),
            op: raw.op.get(),
            kind,
            flags: raw.flags,
            priority,
            fs_id: raw.fs_id.get(),
            xid: raw.xid.get(),
            session: SessionId(raw.session.get()),
            slot: raw.slot.get(),
            sequence: raw.sequence.get(),
            target: target_from(raw.target_role, raw.target_index.get())?,
            map_version: raw.map_version.get(),
            target_epoch: raw.target_epoch.get(),
            session_epoch: Pair {
                term: raw.session_epoch_term.get(),
                counter: raw.session_epoch_counter.get(),
            },
            deadline_ms: raw.deadline_ms.get(),
            job_key: raw.job_key.get(),
            reply_bulk_max: raw.reply_bulk_max.get(),
            body_len: raw.body_len.get(),
            body_crc: raw.body_crc.get(),
            bulk_len: raw.bulk_len.get(),
            bulk_crc: raw.bulk_crc.get(),
            cache_updates_len: raw.cache_updates_len.get(),
            fences_version: raw.fences_version.get(),
            queued_us: raw.queued_us.get(),
            network_us: raw.network_us.get(),
        })
    }

    /// Refuses lengths beyond the limits.
    pub fn check_lengths(&self) -> Result<(), Fault> {
        if self.body_len as usize > BODY_MAX {
            return Err(bad_frame(format!(
                "a body of {} bytes; at most {BODY_MAX} are allowed",
                self.body_len
            )));
        }
        if self.cache_updates_len > self.body_len {
            return Err(bad_frame(format!(
                "news of {} bytes in a body of {}",
                self.cache_updates_len, self.body_len
            )));
        }
        if self.bulk_len.max(self.reply_bulk_max) as usize > BULK_MAX {
            let len = self.bulk_len.max(self.reply_bulk_max);
            return Err(bad_frame(format!("bulk of {len} bytes; at most {BULK_MAX} are allowed")));
        }
        Ok(())
    }

    /// Header of the answer to `self`: same xid, op, session, slot, sequence and target; lengths are 0.
    pub fn answer(&self) -> Header {
        let kind = match self.kind {
            Kind::Hello | Kind::HelloReply => Kind::HelloReply,
            Kind::Notify | Kind::NotifyReply => Kind::NotifyReply,
            Kind::Request | Kind::Reply => Kind::Reply,
        };
        Header {
            version: self.version.clamp(MIN_PROTOCOL_VERSION, PROTOCOL_VERSION),
            kind,
            flags: 0,
            reply_bulk_max: 0,
            body_len: 0,
            body_crc: 0,
            bulk_len: 0,
            bulk_crc: 0,
            cache_updates_len: 0,
            fences_version: 0,
            queued_us: 0,
            network_us: 0,
            ..self.clone()
        }
    }
}

fn check_version(kind: Kind, version: u16) -> Result<(), Fault> {
    let every_version_reads_it = matches!(kind, Kind::Hello | Kind::HelloReply);
    if every_version_reads_it || (MIN_PROTOCOL_VERSION..=PROTOCOL_VERSION).contains(&version) {
        return Ok(());
    }
    Err(Fault::new(Code::VersionMismatch)
        .why(format!("the message is of protocol {version}, this side speaks {}", Versions::OURS)))
}

/// A whole message. The header's lengths and checksums always describe the parts, because only the constructors
/// here and the receivers in `brindle-net` set them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Frame {
    /// Fields of the frame other than its body and bulk.
    pub header: Header,
    /// The message, as [`encode_body`] wrote it.
    pub body: Bytes,
    /// Data, in pieces that are sent one after the other from where they lie. A received frame has at most one.
    pub bulk: Vec<Bytes>,
}

impl Frame {
    /// A frame without bulk.
    pub fn new(mut header: Header, body: Bytes) -> Frame {
        header.body_len = len_u32(body.len());
        header.body_crc = crc(&body);
        header.bulk_len = 0;
        header.bulk_crc = 0;
        Frame { header, body, bulk: Vec::new() }
    }

    /// Adds bulk and computes its checksum.
    pub fn with_bulk(self, bulk: Vec<Bytes>) -> Frame {
        let sum = bulk.iter().fold(0, |sum, part| crc_append(sum, part));
        self.with_bulk_crc(bulk, sum)
    }

    /// Adds bulk whose CRC32C over all parts is known already (combined from the checksums of its blocks).
    pub fn with_bulk_crc(mut self, bulk: Vec<Bytes>, sum: u32) -> Frame {
        self.header.bulk_len = len_u32(bulk.iter().map(Bytes::len).sum());
        self.header.bulk_crc = sum;
        self.bulk = bulk;
        self
    }

    /// The answer to a frame with `header`.
    pub fn reply_to(header: &Header, body: Bytes) -> Frame {
        Frame::new(header.answer(), body)
    }

    /// The answer `Err(fault)`, which decodes as a `Result<T, Fault>` of any `T`.
    pub fn fault_reply_to(header: &Header, fault: &Fault) -> Frame {
        let outcome: Result<(), &Fault> = Err(fault);
        let mut frame = Frame::reply_to(header, encode_body(&outcome));
        frame.header.flags |= FLAG_FAULT;
        frame
    }

    /// Adds news behind the body, if there are any and there is room for them.
    pub fn with_cache_updates(mut self, news: &CacheUpdates) -> Frame {
        if news.is_empty() {
            return self;
        }
        let tail = encode_body(news);
        if self.body.len() + tail.len() > BODY_MAX {
            return self;
        }
        self.body = [&self.body[..], &tail[..]].concat().into();
        self.header.body_len = len_u32(self.body.len());
        self.header.body_crc = crc(&self.body);
        self.header.cache_updates_len = len_u32(tail.len());
        self
    }

    /// Adds the job behind the body, for a peer that has [`crate::version::FEATURE_JOB`], if there is room for it.
    pub fn with_job(mut self, job: &JobTag) -> Frame {
        let (at, len) = (self.body.len(), self.body.len() + job.encoded_len());
        if len > BODY_MAX {
            return self;
        }
        let mut body = Vec::with_capacity(len);
        body.extend_from_slice(&self.body);
        job.append_to(&mut body);
        self.header.body_len = len_u32(len);
        self.header.body_crc = crc_append(self.header.body_crc, &body[at..]);
        self.header.cache_updates_len = len_u32(len - at);
        self.body = body.into();
        self
    }

    /// Takes the job off the body of a request, which is then as it was made. `BadFrame` for what is none.
    pub fn take_job(&mut self) -> Result<Option<JobTag>, Fault> {
        let len = self.header.cache_updates_len as usize;
        if len == 0 {
            return Ok(None);
        }
        let Some(at) = self.body.len().checked_sub(len).filter(|_| len <= TAG_BYTES_MAX) else {
            return Err(bad_frame(format!("a job of {len} bytes; at most {TAG_BYTES_MAX} are allowed")));
        };
        let job = JobTag::decode(&self.body[at..])?;
        self.body.truncate(at);
        self.header.body_len = len_u32(at);
        self.header.body_crc = crc(&self.body);
        self.header.cache_updates_len = 0;
        Ok(Some(job))
    }

    /// The frame with another body: an outcome, and what stands behind it.
    pub fn with_parts(mut self, outcome: Bytes, behind: &[u8]) -> Frame {
        self.body = if behind.is_empty() { outcome } else { [&outcome[..], behind].concat().into() };
        self.header.body_len = len_u32(self.body.len());
        self.header.body_crc = crc(&self.body);
        self.header.cache_updates_len = len_u32(behind.len());
        self
    }

    /// The body without the news behind it.
    pub fn outcome(&self) -> &[u8] {
        &self.body[..self.body.len().saturating_sub(self.header.cache_updates_len as usize)]
    }

    /// The news behind the outcome of a reply.
    pub fn cache_updates(&self) -> Result<CacheUpdates, Fault> {
        match &self.body[self.outcome().len()..] {
            [] => Ok(CacheUpdates::default()),
            tail => decode_body(tail),
        }
    }

    /// The bulk as one piece: free for a received frame, a copy if it has several parts.
    pub fn bulk_bytes(&self) -> Bytes {
        match self.bulk.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => many.concat().into(),
        }
    }

    /// Bytes on the wire.
    pub fn wire_len(&self) -> usize {
        HEADER_LEN + self.header.body_len as usize + self.header.bulk_len as usize
    }

    /// Checks that the parts have the lengths, and the checksums, that the header says.
    pub fn verify(&self) -> Result<(), Fault> {
        self.header.check_lengths()?;
        let bulk_len: usize = self.bulk.iter().map(Bytes::len).sum();
        if self.body.len() != self.header.body_len as usize || bulk_len != self.header.bulk_len as usize {
            return Err(bad_frame("the lengths in the header are not those of the message"));
        }
        if crc(&self.body) != self.header.body_crc {
            return Err(bad_frame("the body's checksum is wrong"));
        }
        let sum = self.bulk.iter().fold(0, |sum, part| crc_append(sum, part));
        if sum != self.header.bulk_crc {
            return Err(Fault::new(Code::BadChecksum).why(format!("{bulk_len} bytes of bulk data")));
        }
        Ok(())
    }
}

/// The bytes of a message: postcard.
pub fn encode_body<T: Serialize + ?Sized>(message: &T) -> Bytes {
    encode_behind([], message)
}

/// Room in which most messages and rows are written, to be copied once: a vector that grows step by step is moved five
/// times until it has this size.
const ROOM_BYTES: usize = 512;

/// `first`, followed by the postcard form of a message or of any other value.
pub fn encode_behind<T: Serialize + ?Sized, const N: usize>(first: [u8; N], value: &T) -> Bytes {
    let mut room = [0; ROOM_BYTES];
    room[..N].copy_from_slice(&first);
    if let Ok(written) = postcard::to_slice(value, &mut room[N..]) {
        let len = N + written.len();
        return Bytes::copy_from_slice(&room[..len]);
    }
    // The body is longer, or cannot be written at all.
    let mut bytes = Vec::with_capacity(2 * ROOM_BYTES);
    bytes.extend(first);
    postcard::to_extend(value, bytes).expect("values are made of types with known lengths").into()
}

/// Reads a message; `BadFrame` when the bytes are not one, or when bytes are left over.
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    match postcard::take_from_bytes::<T>(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => {
            Err(bad_frame(format!("{} bytes are left over behind the message in its body", rest.len())))
        }
        Err(e) => Err(bad_frame(format!("the body does not decode: {e}"))),
    }
}

/// Reads the outcome of a request from its reply.
pub fn decode_reply<T: DeserializeOwned>(reply: &Frame) -> Result<T, Fault> {
    decode_body::<Result<T, Fault>>(reply.outcome())?
}

#[cfg(test)]
mod tests;
