//! Bulk in shared memory: within a machine the receiver of a frame reads the bulk in the sender's memory, which saves two copies through
//! the socket (design note 015).
//!
//! Each end of a local connection begins with one byte. [`LENDS`] comes with three descriptors: the file of the sender's blocks, for
//! reading ([`brindle_stdx::arena`]); the *loan table*, a word for each slot, which the sender sets when it lends a block and the receiver
//! clears when it has finished with the block; and one end of a pipe, which closes when the other side has released everything of this
//! connection, also by kill -9. A frame with [`FLAG_LENT`](brindle_wire::frame::FLAG_LENT) has a [`LentLocation`] where its bulk would be.
//!
//! Only processes of the same user lend to each other: a borrower sees all blocks, and a lender could change them after they were checked,
//! or have memory that cannot be had when it is looked at. A receiver checks checksums as always. Invariants: a lent block is used again
//! only after its word is clear or the pipe is closed, even if the connection has ended; loans are bounded for each connection and for the
//! process; bulk that cannot be lent is sent.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock, Weak};
use std::time::Duration;

use brindle_stdx::arena::{self, ARENA_BYTES, Mapping};
use brindle_stdx::buffers::POOLED_BYTES_MIN;
use brindle_stdx::cast::len_u32;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec};
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
/// Bytes of the loan table: a word for each slot.
const LOAN_TABLE_BYTES: usize = SLOTS * 4;
/// Bytes that one connection may have lent.
const LENT_BYTES_MAX: usize = 64 << 20;
/// Bytes that all connections of a process may have lent, those that have ended among them.
const ALL_BYTES_MAX: usize = 128 << 20;
/// Shorter bulk is sent: it would keep a block of which it is a small part.
const LENT_BYTES_MIN: usize = POOLED_BYTES_MIN;
/// A loan counts for at least this much: the usual block.
const BLOCK_BYTES: usize = 1 << 20;
/// Interval of the search for returned loans, while nothing is sent.
const SETTLE_EVERY: Duration = Duration::from_secs(1);

/// Location of lent bulk, sent in place of the bulk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct LentLocation {
    /// Offset in the sender's file.
    offset: U64,
    /// The word of the loan table that is cleared when it is needed no more.
    slot: U32,
}

impl LentLocation {
    /// Encoded bytes of a place.
    pub const LEN: usize = size_of::<LentLocation>();
}

/// Loans of an end.
struct Loans {
    loan_table: Mapping,
    /// Pipe whose other end the peer closes when no process there needs the memory any more.
    alive: OwnedFd,
    blocks: Vec<Option<Bytes>>,
    /// Bytes of the lent blocks, as [`counted`].
    bytes: usize,
    /// The connection has ended.
    is_over: bool,
}

/// All loans of a process, by connection. Loans of connections that have ended stay until they are settled.
struct Book {
    ends: Mutex<Vec<Arc<Mutex<Loans>>>>,
    /// Bytes of all loans.
    bytes: AtomicUsize,
    /// Signalled when a loan begins.
    begun: Condvar,
    settler: Once,
}

impl Loans {
    /// Takes back what is needed no more; how many bytes that was.
    fn settle(&mut self) -> usize {
        let before = self.bytes;
        for (slot, block) in self.blocks.iter_mut().enumerate() {
            if let Some(len) = block.as_ref().map(Bytes::len)
                && self.loan_table.word(slot).load(Ordering::Acquire) == 0
            {
                *block = None;
                self.bytes -= counted(len);
            }
        }
        if self.is_over && self.bytes > 0 && self.is_alone() {
            self.blocks.clear();
            self.bytes = 0;
        }
        before - self.bytes
    }

    fn is_alone(&self) -> bool {
        let mut ends = [PollFd::new(&self.alive, PollFlags::empty())];
        let polled = rustix::event::poll(&mut ends, Some(&Timespec::default()));
        polled.is_ok() && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

impl Book {
    const fn new() -> Book {
        Book {
            ends: Mutex::new(Vec::new()),
            bytes: AtomicUsize::new(0),
            begun: Condvar::new(),
            settler: Once::new(),
        }
    }

    fn open(&'static self, loans: Loans) -> Lender {
        // While nothing is sent, no other thread would look for returned loans.
        self.settler.call_once(|| {
            let thread = std::thread::Builder::new().name("lend-settle".into());
            if let Err(error) = thread.spawn(|| self.keep_settled()) {
                tracing::warn!(%error, "what was lent to others of this machine is taken back late");
            }
        });
        let loans = Arc::new(Mutex::new(loans));
        self.ends.lock().push(loans.clone());
        Lender { loans, book: self }
    }

    fn keep_settled(&self) {
        loop {
            let mut ends = self.ends.lock();
            self.begun.wait_while(&mut ends, |_| self.bytes.load(Ordering::Acquire) == 0);
            drop(ends);
            // Poll: a return shows only in the loan table.
            std::thread::sleep(SETTLE_EVERY);
            self.settle_all(&mut self.ends.lock());
        }
    }

    fn settle_all(&self, ends: &mut Vec<Arc<Mutex<Loans>>>) {
        ends.retain(|loans| {
            let mut loans = loans.lock();
            self.settle(&mut loans);
            !loans.is_over || loans.bytes > 0
        });
    }

    fn settle(&self, loans: &mut Loans) {
        if loans.bytes > 0 {
            self.bytes.fetch_sub(loans.settle(), Ordering::AcqRel);
        }
    }
}

/// Bytes that a loan counts for: a piece of a block keeps all of it.
fn counted(len: usize) -> usize {
    len.max(BLOCK_BYTES)
}

/// The sending half's side: lends.
pub(super) struct Lender {
    loans: Arc<Mutex<Loans>>,
    book: &'static Book,
}

impl Lender {
    /// Frees loans that are needed no more.
    pub fn settle(&mut self) {
        self.book.settle(&mut self.loans.lock());
    }

    /// Lends bulk; `None` if it is to be sent.
    pub fn lend(&mut self, bulk: &[Bytes]) -> Option<LentLocation> {
        let [block] = bulk else { return None };
        if block.len() < LENT_BYTES_MIN {
            return None;
        }
        let offset = arena::locate(block)?;
        let mut loans = self.loans.lock();
        let bytes = counted(block.len());
        if loans.bytes + bytes > LENT_BYTES_MAX {
            return None;
        }
        let slot = loans.blocks.iter().position(Option::is_none)?;
        let fits = |all: usize| all.checked_add(bytes).filter(|all| *all <= ALL_BYTES_MAX);
        let before = self.book.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        loans.loan_table.word(slot).store(1, Ordering::Release);
        loans.blocks[slot] = Some(block.clone());
        loans.bytes += bytes;
        drop(loans);
        if before == 0 {
            // The lock: not between its look at the bytes and its sleep.
            drop(self.book.ends.lock());
            self.book.begun.notify_one();
        }
        Some(LentLocation { offset: U64::new(offset), slot: U32::new(len_u32(slot)) })
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.loans.lock().is_over = true;
        self.book.settle_all(&mut self.book.ends.lock());
    }
}

/// Sends the first byte of a connection; the socket is new and has room for it. `None` if nothing will be lent.
pub(super) fn offer(stream: &UnixStream, is_trusted: bool) -> io::Result<Option<Lender>> {
    static BOOK: Book = Book::new();
    offer_with(stream, is_trusted, &BOOK)
}

fn offer_with(stream: &UnixStream, is_trusted: bool, book: &'static Book) -> io::Result<Option<Lender>> {
    let Some(blocks) = arena::descriptor().filter(|_| is_trusted) else {
        return say_nothing_is_lent(stream);
    };
    match show(stream, blocks) {
        Ok(loans) => Ok(Some(book.open(loans))),
        Err(error) => {
            tracing::info!(%error, "nothing is lent to a process of this machine");
            say_nothing_is_lent(stream)
        }
    }
}

fn say_nothing_is_lent(stream: &UnixStream) -> io::Result<Option<Lender>> {
    rustix::net::send(stream, &[LENDS_NOTHING], SendFlags::NOSIGNAL)?;
    Ok(None)
}

/// Hands the descriptors over; after an error nothing was sent.
fn show(stream: &UnixStream, blocks: BorrowedFd<'_>) -> io::Result<Loans> {
    let loan_table = arena::file("brindle-loan_table", LOAN_TABLE_BYTES)?;
    let (alive, end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let loans = Loans {
        loan_table: Mapping::writable(loan_table.as_fd(), LOAN_TABLE_BYTES)?,
        alive,
        blocks: vec![None; SLOTS],
        bytes: 0,
        is_over: false,
    };
    let descriptors = [blocks, loan_table.as_fd(), end.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(stream, &[IoSlice::new(&[LENDS])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(loans)
}

/// Whether this process has failed to map memory that others lend. From then on it uses TCP, which needs no memory of
/// theirs.
pub(super) fn cannot_look() -> bool {
    CANNOT_LOOK.load(Ordering::Acquire)
}

static CANNOT_LOOK: AtomicBool = AtomicBool::new(false);

/// The receiving half's side: memory that the other end may lend. Empty for connections that carry all bulk.
#[derive(Default)]
pub(super) struct Borrows {
    /// Whether the other end runs as the same user: only such an end may lend.
    is_trusted: bool,
    /// The announcement in the first byte of the stream.
    said: OnceLock<Option<Arc<LenderMemory>>>,
}

/// Memory of the other end. A user of one block keeps the whole memory.
struct LenderMemory {
    blocks: Arc<Mapping>,
    loan_table: Mapping,
    _end: OwnedFd,
}

/// A block of the other end.
struct Borrowed {
    shown: Arc<LenderMemory>,
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
        self.shown.loan_table.word(self.slot).store(0, Ordering::Release);
    }
}

/// The blocks of a process, mapped once for all connections with it.
fn blocks_of(file: &OwnedFd) -> io::Result<Arc<Mapping>> {
    static KNOWN: Mutex<BTreeMap<(u64, u64), Weak<Mapping>>> = Mutex::new(BTreeMap::new());
    let stat = rustix::fs::fstat(file)?;
    let mut known = KNOWN.lock();
    known.retain(|_, mapping| mapping.strong_count() > 0);
    let which = (stat.st_dev, stat.st_ino);
    if let Some(mapping) = known.get(&which).and_then(Weak::upgrade) {
        return Ok(mapping);
    }
    let mapping = Arc::new(Mapping::of_another(file.as_fd(), ARENA_BYTES, false)?);
    known.insert(which, Arc::downgrade(&mapping));
    Ok(mapping)
}

impl LenderMemory {
    fn new(descriptors: Vec<OwnedFd>) -> io::Result<LenderMemory> {
        let lost = |_| io::Error::new(io::ErrorKind::InvalidData, "descriptors were lost on their way");
        let [blocks, loan_table, end] = <[OwnedFd; 3]>::try_from(descriptors).map_err(lost)?;
        let loan_table = Mapping::of_another(loan_table.as_fd(), LOAN_TABLE_BYTES, true)?;
        Ok(LenderMemory { blocks: blocks_of(&blocks)?, loan_table, _end: end })
    }
}

impl Borrows {
    /// Receiving side of a connection with a process that may lend, or may not.
    pub fn of(is_trusted: bool) -> Borrows {
        Borrows { is_trusted, said: OnceLock::new() }
    }

    /// Whether the first byte has come.
    pub fn is_said(&self) -> bool {
        self.said.get().is_some()
    }

    /// Reads the first byte; `false` if the connection ends before.
    pub fn hear(&self, stream: &UnixStream) -> io::Result<bool> {
        let mut byte = [0];
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        let read = if self.is_trusted {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(&mut byte)];
            let read = rustix::net::recvmsg(stream, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    descriptors.extend(received);
                }
            }
            read
        } else {
            // Take no descriptors from an untrusted peer: to close one can take as long as its file system likes.
            rustix::net::recv(stream, &mut byte, RecvFlags::empty())?.0
        };
        if read == 0 {
            return Ok(false);
        }
        let shown = match byte[0] {
            LENDS_NOTHING => None,
            LENDS if self.is_trusted => {
                let shown = LenderMemory::new(descriptors).inspect_err(|error| {
                    tracing::warn!(%error, "cannot look at the memory of a process of this machine: TCP is used from now on");
                    CANNOT_LOOK.store(true, Ordering::Release);
                })?;
                Some(Arc::new(shown))
            }
            LENDS => {
                let why = "a process of another user offers its memory";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            other => {
                let why = format!("a local connection begins with {other:#04x}");
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
        let place = LentLocation::read_from_bytes(place).ok()?;
        let (offset, slot) = (usize::try_from(place.offset.get()).ok()?, place.slot.get() as usize);
        let is_there = slot < SLOTS && shown.blocks.at(offset, len).is_some();
        let has_word = is_there && (slot + 1) * 4 <= shown.loan_table.len_bytes();
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

    fn book() -> &'static Book {
        Box::leak(Box::new(Book::new()))
    }

    /// Bytes of all loans of a book, counted anew.
    fn lent_by_all(book: &Book) -> usize {
        book.settle_all(&mut book.ends.lock());
        book.bytes.load(Ordering::Acquire)
    }

    /// A lending end, and a borrowing end that has read its announcement.
    fn pair(book: &'static Book) -> (Lender, Borrows) {
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        let lender = offer_with(&a, true, book).expect("sent").expect("it lends");
        let borrows = Borrows::of(true);
        assert!(!borrows.is_said() && borrows.hear(&b).expect("heard") && borrows.is_said());
        (lender, borrows)
    }

    fn lent(lender: &Lender) -> usize {
        lender.loans.lock().bytes
    }

    #[test]
    fn a_block_is_seen_where_it_lies_and_kept_until_it_is_given_back() {
        let (mut lender, borrows) = pair(book());
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
        let book = book();
        let (mut lender, borrows) = pair(book);
        let sent = block(7);
        let at = arena::locate(&sent);
        let place = lender.lend(&[sent]).expect("lent");
        let seen = borrows.take(place.as_bytes(), MIB).expect("seen");
        drop((lender, borrows));
        assert_eq!(lent_by_all(book), MIB);
        assert!((0..20).all(|_| arena::locate(&block(8)) != at));
        assert!(seen.iter().all(|byte| *byte == 7));
        drop(seen);
        assert_eq!(lent_by_all(book), 0);
    }

    #[test]
    fn a_receiver_that_dies_gives_everything_back() {
        let book = book();
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        let mut lender = offer_with(&a, true, book).expect("sent").expect("it lends");
        lender.lend(&[block(7)]).expect("lent");
        drop(lender);
        assert_eq!(lent_by_all(book), MIB, "it may still look");
        // The connection takes the descriptors with it that the receiver has not even taken.
        drop((a, b));
        assert_eq!(lent_by_all(book), 0);
    }

    #[test]
    fn what_is_lent_is_bounded_and_the_rest_is_sent() {
        let book = book();
        let (mut lender, borrows) = pair(book);
        let lend = |lender: &mut Lender| lender.lend(&[block(1)]);
        let places: Vec<LentLocation> = std::iter::from_fn(|| lend(&mut lender)).collect();
        assert_eq!((places.len(), lent(&lender)), (LENT_BYTES_MAX / MIB, LENT_BYTES_MAX));
        let seen = borrows.take(places[9].as_bytes(), MIB);
        drop(seen);
        lender.settle();
        assert!(lend(&mut lender).is_some() && lend(&mut lender).is_none());
        assert!(lender.lend(&[block(1).slice(..LENT_BYTES_MIN - 1)]).is_none(), "short");
        assert!(lender.lend(&[vec![0; MIB].into()]).is_none(), "it lies elsewhere");
        assert!(lender.lend(&[]).is_none());
        // The bound holds for all connections of a process together, ended ones too.
        let (mut other, other_borrows) = pair(book);
        while lend(&mut other).is_some() {}
        let (mut last, _last) = pair(book);
        assert!(lend(&mut last).is_none());
        drop(lender);
        assert!(lend(&mut last).is_none(), "its receiver may still look");
        drop(borrows);
        assert_eq!(lent_by_all(book), ALL_BYTES_MAX - LENT_BYTES_MAX);
        assert!(lend(&mut last).is_some());
        drop((other, other_borrows));
    }

    #[test]
    fn what_is_given_back_is_free_where_nothing_is_sent_any_more() {
        let book = book();
        let (mut lender, borrows) = pair(book);
        let place = lender.lend(&[block(7)]).expect("lent");
        drop(borrows.take(place.as_bytes(), MIB).expect("seen"));
        let begun = std::time::Instant::now();
        while book.bytes.load(Ordering::Acquire) > 0 {
            assert!(begun.elapsed() < 30 * SETTLE_EVERY, "nobody takes it back");
            std::thread::sleep(SETTLE_EVERY / 20);
        }
        assert_eq!(lent(&lender), 0);
    }

    #[test]
    fn a_process_of_another_user_lends_nothing() {
        let (a, b) = UnixStream::pair().expect("a pair of sockets");
        let _lender = offer_with(&a, true, book()).expect("sent").expect("it lends");
        let refused = Borrows::of(false).hear(&b).expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn places_that_are_none_are_refused() {
        let (_lender, borrows) = pair(book());
        let place = |offset: u64, slot: u32| LentLocation { offset: U64::new(offset), slot: U32::new(slot) };
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
        for (bytes, what) in [(&b"BRDL"[..], "another protocol"), (&[7][..], "no byte of this one")] {
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
