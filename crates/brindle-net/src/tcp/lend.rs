//! Bulk that stays where it is: within a machine the receiver of a frame looks at the bulk in the sender's memory, in place of two
//! copies through the socket (design note 015).
//!
//! Each end of a local connection begins with one byte. [`LENDS`] comes with three descriptors: the file that the sender's blocks lie
//! in, to read ([`brindle_stdx::arena`]); the *ledger*, a word for each slot, which the sender sets when it lends a block and the receiver clears when
//! it needs it no more; and the end of a pipe that is closed when nobody on the other side has anything of this connection any more, by kill -9
//! too. A frame with [`FLAG_LENT`](brindle_wire::frame::FLAG_LENT) has a [`Place`] where its bulk would be.
//!
//! Only processes that run as root, or as the same user, are lent anything: they see all blocks. A receiver checks checksums as always.
//! Invariants: a block that was lent is given to nobody else before its word is clear or the pipe is closed, also when the connection
//! has ended; what is lent is bounded for each connection, and for all that have ended; where it cannot be lent it is sent.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use brindle_stdx::arena::{self, ARENA_BYTES, Mapping};
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use rustix::pipe::PipeFlags;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First byte of an end that lends nothing.
const LENDS_NOTHING: u8 = 0;
/// First byte of an end that comes with descriptors.
const LENDS: u8 = 1;
/// Blocks that one connection may have lent.
const SLOTS: usize = 128;
/// Bytes of the ledger: a word for each slot.
const LEDGER_BYTES: usize = SLOTS * 4;
/// Bytes that one connection may have lent.
const LENT_BYTES_MAX: usize = 64 << 20;
/// While connections that have ended have so much that was not given back, nothing is lent.
const LEFT_BYTES_MAX: usize = 128 << 20;
/// Shorter bulk is sent: that costs no more.
const LENT_BYTES_MIN: usize = 64 << 10;

static LEFT: Left = Left { ends: Mutex::new(Vec::new()), bytes: AtomicUsize::new(0) };

/// Where bulk lies, in place of the bulk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Place {
    /// In the sender's file.
    offset: U64,
    /// The word of the ledger that is cleared when it is needed no more.
    slot: U32,
}

impl Place {
    /// Bytes of it.
    pub const LEN: usize = size_of::<Place>();
}

/// What an end has lent.
struct Loans {
    ledger: Mapping,
    /// The other side has closed its end of the pipe when nobody there needs anything.
    alive: OwnedFd,
    blocks: Vec<Option<Bytes>>,
    bytes: usize,
}

impl Loans {
    /// Takes back what is needed no more.
    fn settle(&mut self) {
        for (slot, block) in self.blocks.iter_mut().enumerate() {
            if let Some(len) = block.as_ref().map(Bytes::len)
                && self.ledger.word(slot).load(Ordering::Acquire) == 0
            {
                *block = None;
                self.bytes -= len;
            }
        }
    }

    /// The same when the connection has ended.
    fn settle_at_the_end(&mut self) {
        self.settle();
        let mut fds = [PollFd::new(&self.alive, PollFlags::empty())];
        let polled = rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default()));
        let is_alone = polled.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        if is_alone {
            self.blocks.clear();
            self.bytes = 0;
        }
    }
}

/// What was lent by connections that have ended, and is still needed.
struct Left {
    ends: Mutex<Vec<Loans>>,
    bytes: AtomicUsize,
}

impl Left {
    fn add(&self, loans: Loans) {
        let mut ends = self.ends.lock();
        ends.push(loans);
        self.settle(&mut ends);
    }

    /// Whether there is not too much.
    fn has_room(&self) -> bool {
        if self.bytes.load(Ordering::Relaxed) > 0 {
            self.settle(&mut self.ends.lock());
        }
        self.bytes.load(Ordering::Relaxed) <= LEFT_BYTES_MAX
    }

    fn settle(&self, ends: &mut Vec<Loans>) {
        ends.iter_mut().for_each(Loans::settle_at_the_end);
        ends.retain(|loans| loans.bytes > 0);
        self.bytes.store(ends.iter().map(|loans| loans.bytes).sum(), Ordering::Relaxed);
    }
}

/// The sending half's side: lends.
pub(super) struct Lender {
    /// `None` once it has ended.
    loans: Option<Loans>,
    left: &'static Left,
}

impl Lender {
    /// What was lent and is needed no more is free again.
    pub fn settle(&mut self) {
        if let Some(loans) = self.loans.as_mut().filter(|loans| loans.bytes > 0) {
            loans.settle();
        }
    }

    /// Lends bulk; `None` if it is to be sent.
    pub fn lend(&mut self, bulk: &[Bytes]) -> Option<Place> {
        let [block] = bulk else { return None };
        let loans = self.loans.as_mut()?;
        if block.len() < LENT_BYTES_MIN || loans.bytes + block.len() > LENT_BYTES_MAX || !self.left.has_room()
        {
            return None;
        }
        let offset = arena::locate(block)?;
        let slot = loans.blocks.iter().position(Option::is_none)?;
        loans.ledger.word(slot).store(1, Ordering::Release);
        loans.bytes += block.len();
        loans.blocks[slot] = Some(block.clone());
        Some(Place { offset: U64::new(offset), slot: U32::new(slot as u32) })
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        if let Some(loans) = self.loans.take().filter(|loans| loans.bytes > 0) {
            self.left.add(loans);
        }
    }
}

/// Sends the first byte of a connection; the socket is new and has room for it. `None` if nothing will be lent.
pub(super) fn offer(stream: &UnixStream, is_trusted: bool) -> io::Result<Option<Lender>> {
    offer_with(stream, is_trusted, &LEFT)
}

fn offer_with(stream: &UnixStream, is_trusted: bool, left: &'static Left) -> io::Result<Option<Lender>> {
    let Some(blocks) = arena::descriptor().filter(|_| is_trusted) else {
        rustix::net::send(stream, &[LENDS_NOTHING], SendFlags::NOSIGNAL)?;
        return Ok(None);
    };
    let ledger = arena::file("brindle-ledger", LEDGER_BYTES)?;
    let (alive, end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let loans = Loans {
        ledger: Mapping::writable(ledger.as_fd(), LEDGER_BYTES)?,
        alive,
        blocks: vec![None; SLOTS],
        bytes: 0,
    };
    let descriptors = [blocks, ledger.as_fd(), end.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(stream, &[IoSlice::new(&[LENDS])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(Some(Lender { loans: Some(loans), left }))
}

/// The receiving half's side: what the other end may lend. Empty for connections that carry all bulk.
#[derive(Default)]
pub(super) struct Borrows {
    /// What the first byte said.
    said: OnceLock<Option<Arc<Shown>>>,
}

/// The other end's memory. Whoever looks at a block keeps all of it.
struct Shown {
    blocks: Mapping,
    ledger: Mapping,
    _end: OwnedFd,
}

/// A block of the other end.
struct Borrowed {
    shown: Arc<Shown>,
    offset: usize,
    len: usize,
    slot: usize,
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        let at = self.shown.blocks.at(self.offset, self.len).unwrap_or(std::ptr::dangling());
        // SAFETY: it lies within the mapping ([`Borrows::take`]), which is kept, and whoever lent it changes it only when the word of
        // its slot is clear.
        unsafe { std::slice::from_raw_parts(at, self.len) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.shown.ledger.word(self.slot).store(0, Ordering::Release);
    }
}

impl Borrows {
    /// Whether the first byte has come.
    pub fn is_said(&self) -> bool {
        self.said.get().is_some()
    }

    /// Reads it; false if the connection ends before.
    pub fn hear(&self, stream: &UnixStream) -> io::Result<bool> {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut byte)];
        if rustix::net::recvmsg(stream, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes == 0 {
            return Ok(false);
        }
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        let shown = match (byte[0], <[OwnedFd; 3]>::try_from(descriptors)) {
            (LENDS_NOTHING, _) => None,
            (LENDS, Ok([blocks, ledger, end])) => Some(Arc::new(Shown {
                blocks: Mapping::of_another(blocks.as_fd(), ARENA_BYTES, false)?,
                ledger: Mapping::of_another(ledger.as_fd(), LEDGER_BYTES, true)?,
                _end: end,
            })),
            (other, _) => {
                let why = format!("a local connection begins with {other:#04x}, or with other descriptors");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        };
        // (Only the one who reads the socket comes here.)
        let _ = self.said.set(shown);
        Ok(true)
    }

    /// Bulk that was lent; `None` where nothing is, or nothing can be.
    pub fn take(&self, place: &[u8], len: usize) -> Option<Bytes> {
        let shown = self.said.get()?.clone()?;
        let place = Place::read_from_bytes(place).ok()?;
        let (offset, slot) = (usize::try_from(place.offset.get()).ok()?, place.slot.get() as usize);
        let is_there = slot < SLOTS && shown.blocks.at(offset, len).is_some();
        let has_word = is_there && (slot + 1) * 4 <= shown.ledger.len();
        has_word.then(|| Bytes::from_owner(Borrowed { shown, offset, len, slot }))
    }
}

#[cfg(test)]
mod tests {
    use brindle_stdx::buffers::Buffer;

    use super::*;

    const MIB: usize = 1 << 20;

    fn block(fill: u8) -> Bytes {
        let mut buffer = Buffer::new(MIB);
        buffer.fill(fill);
        buffer.freeze(MIB)
    }

    fn left() -> &'static Left {
        Box::leak(Box::new(Left { ends: Mutex::default(), bytes: AtomicUsize::new(0) }))
    }

    /// One end that lends and one that has heard of it.
    fn pair(left: &'static Left) -> (Lender, Borrows) {
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        let lender = offer_with(&a, true, left).expect("sent").expect("it lends");
        let borrows = Borrows::default();
        assert!(!borrows.is_said() && borrows.hear(&b).expect("heard") && borrows.is_said());
        (lender, borrows)
    }

    fn lent(lender: &Lender) -> usize {
        lender.loans.as_ref().map_or(0, |loans| loans.bytes)
    }

    #[test]
    fn a_block_is_seen_where_it_lies_and_kept_until_it_is_given_back() {
        let (mut lender, borrows) = pair(left());
        let sent = block(7);
        let place = lender.lend(std::slice::from_ref(&sent)).expect("lent");
        let seen = borrows.take(place.as_bytes(), MIB).expect("seen");
        assert!(seen == sent && seen.as_ptr() != sent.as_ptr());
        let at = arena::locate(&sent);
        drop(sent);
        let slice = seen.slice(1000..2000);
        drop(seen);
        lender.settle();
        assert_eq!(lent(&lender), MIB, "part of it is still needed");
        assert!((0..20).all(|_| arena::locate(&block(8)) != at), "nobody else has it");
        assert!(slice.iter().all(|byte| *byte == 7));
        drop(slice);
        lender.settle();
        assert_eq!(lent(&lender), 0);
    }

    #[test]
    fn what_was_lent_outlives_the_connection_and_its_sender_waits_for_it() {
        let left = left();
        let (mut lender, borrows) = pair(left);
        let sent = block(7);
        let at = arena::locate(&sent);
        let place = lender.lend(&[sent]).expect("lent");
        let seen = borrows.take(place.as_bytes(), MIB).expect("seen");
        drop((lender, borrows));
        assert!(left.has_room());
        assert_eq!(left.bytes.load(Ordering::Relaxed), MIB);
        assert!((0..20).all(|_| arena::locate(&block(8)) != at));
        assert!(seen.iter().all(|byte| *byte == 7));
        drop(seen);
        assert!(left.has_room());
        assert_eq!(left.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_receiver_that_dies_gives_everything_back() {
        let left = left();
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        let mut lender = offer_with(&a, true, left).expect("sent").expect("it lends");
        lender.lend(&[block(7)]).expect("lent");
        drop(lender);
        assert_eq!(left.bytes.load(Ordering::Relaxed), MIB, "it may still look");
        // With it go the descriptors that it has not even taken.
        drop((a, b));
        assert!(left.has_room());
        assert_eq!(left.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_lent_is_bounded_and_the_rest_is_sent() {
        let left = left();
        let (mut lender, borrows) = pair(left);
        let lend = |lender: &mut Lender| lender.lend(&[block(1)]);
        let places: Vec<Place> = std::iter::from_fn(|| lend(&mut lender)).collect();
        assert_eq!((places.len(), lent(&lender)), (LENT_BYTES_MAX / MIB, LENT_BYTES_MAX));
        let seen = borrows.take(places[9].as_bytes(), MIB);
        drop(seen);
        lender.settle();
        assert!(lend(&mut lender).is_some() && lend(&mut lender).is_none());
        assert!(lender.lend(&[block(1).slice(..LENT_BYTES_MIN - 1)]).is_none(), "short");
        assert!(lender.lend(&[vec![0; MIB].into()]).is_none(), "it lies elsewhere");
        assert!(lender.lend(&[]).is_none());
        // Ends that are not settled hold up all others.
        let mut others: Vec<_> = (0..2).map(|_| pair(left)).collect();
        for (other, _) in &mut others {
            while lend(other).is_some() {}
        }
        let (mut last, _last) = pair(left);
        let kept: Vec<Borrows> = others.into_iter().map(|(_, borrows)| borrows).collect();
        drop(lender);
        assert!(lend(&mut last).is_none(), "too much is left");
        drop((kept, borrows));
        assert!(lend(&mut last).is_some());
    }

    #[test]
    fn places_that_are_none_are_refused() {
        let (_lender, borrows) = pair(left());
        let place = |offset: u64, slot: u32| Place { offset: U64::new(offset), slot: U32::new(slot) };
        for wrong in [
            place(0, SLOTS as u32),
            place(0, u32::MAX),
            place(u64::MAX, 0),
            place((ARENA_BYTES - MIB + 1) as u64, 0),
        ] {
            assert!(borrows.take(wrong.as_bytes(), MIB).is_none());
        }
        assert!(borrows.take(place(0, 0).as_bytes(), ARENA_BYTES + 1).is_none());
        assert!(borrows.take(&[0; 5], 1).is_none());
        assert!(Borrows::default().take(place(0, 0).as_bytes(), 1).is_none(), "over TCP nothing is lent");
    }

    #[test]
    fn a_first_byte_that_is_none_ends_the_connection() {
        for (bytes, what) in [(&b"BRDL"[..], "another protocol"), (&[LENDS][..], "without descriptors")] {
            let (a, b) = UnixStream::pair().expect("a pair of sockets");
            rustix::net::send(&a, bytes, SendFlags::NOSIGNAL).expect("sent");
            let refused = Borrows::default().hear(&b).expect_err(what);
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{what}");
        }
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        assert!(offer(&a, false).expect("sent").is_none());
        let borrows = Borrows::default();
        assert!(borrows.hear(&b).expect("heard") && borrows.is_said());
        drop(a);
        assert!(!Borrows::default().hear(&b).expect("the end"));
    }
}
