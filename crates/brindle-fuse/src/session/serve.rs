//! The readers: from a message on the device to the file system and back.
//!
//! Each reader owns a channel and handles one message at a time; the first one is the [event loop](super::event_loop), whose loop is there.
//! A request whose answer is known already is answered without a future ([`Filesystem::fast_path`]). A handler's future is polled once on
//! the reader itself. If the future is not ready, it goes to the task runner when it can go on ([`Parked`]): where the answer of a server
//! arrives, on the thread that has the answer. A handler therefore never blocks a reader. The [`ReaderPool`] decides how many readers are
//! at work, and that one is there for an INTERRUPT.
//!
//! Invariant: every request that wants an answer gets exactly one, also if its handler panics or is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use brindle_stdx::{BoxFuture, Spawn};
use brindle_types::errno::{EAGAIN, EIO, ENOSYS};
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::channel::{Channel, Ended};
use super::counts::RequestCounts;
use super::reader_pool::{Pace, ReaderPool, Window};
use super::readers::Readers;
use crate::Filesystem;
use crate::abi::UNIQUE_RESEND;
use crate::buffer::Slot;
use crate::interrupt::{Interrupts, Registration};
use crate::reply::Reply;
use crate::request::decode::{self, Decoded, name_of};
use crate::request::{Asked, Message, Op, Request};

/// State that all readers of a session share.
pub struct Shared<F> {
    /// The file system.
    pub fs: Arc<F>,
    /// Runs handlers that were not ready at once and move data.
    pub tasks: Arc<dyn Spawn>,
    /// Runs the others: on the event loop if that has woken them.
    pub where_woken: Arc<dyn Spawn>,
    /// Requests being handled.
    pub interrupts: Arc<Interrupts>,
    /// Most data of one WRITE.
    pub max_write_bytes: usize,
    /// Every channel of the session: one for each reader. The first is the event loop's.
    pub channels: Vec<Arc<Channel>>,
    /// The readers at work.
    pub reader_pool: ReaderPool,
    /// The step of each reader.
    pub readers: Arc<Readers>,
    /// Form of SETXATTR.
    pub setxattr_ext: bool,
    /// The operation that was asked for.
    pub counts: Arc<RequestCounts>,
}

impl<F: Filesystem> Shared<F> {
    /// Reader `me`, which is not the event loop, reads and handles messages, or rests, until the connection ends. `None`: another one saw that.
    pub fn read_loop(&self, me: usize) -> Option<Ended> {
        let channel = &self.channels[me];
        self.readers.begins(me);
        let mut slot = Slot::new(self.max_write_bytes);
        loop {
            if self.reader_pool.is_resting(me) && !self.reader_pool.rest(me) {
                return None;
            }
            let mut window = Window::starting(self.reader_pool.event_loop().woken());
            loop {
                self.readers.reads(me);
                let (len, waited) = match channel.read(slot.room()) {
                    Ok(read) => read,
                    Err(ended) => {
                        self.reader_pool.end();
                        return Some(ended);
                    }
                };
                self.readers.took(me);
                self.reader_pool.takes(me);
                let (message, kept) = slot.message(len);
                slot = kept.unwrap_or_else(|| Slot::new(self.max_write_bytes));
                self.handle(channel, message);
                self.readers.is_done(me);
                self.reader_pool.is_done(me);
                let Some(seen) = window.count(waited, self.reader_pool.event_loop().woken()) else {
                    continue;
                };
                if self.reader_pool.leaves(me, seen) {
                    break;
                }
                if matches!(seen.pace, Pace::Never | Pace::Busy) {
                    self.reader_pool.call();
                }
            }
        }
    }

    /// Deals with one message.
    pub fn handle(&self, channel: &Arc<Channel>, bytes: Bytes) {
        let head = match decode::head(&bytes) {
            Ok(head) => head,
            Err(error) => return tracing::error!(%error, "message without a head from the kernel"),
        };
        let unique = head.unique;
        match decode::message(bytes, self.setxattr_ext) {
            Ok(Decoded { head, groups, message }) => match message {
                Message::Request(op) => self.request(channel, head, groups, op),
                Message::Forget(list) => list.iter().for_each(|(ino, n)| self.fs.forget(*ino, *n)),
                Message::Interrupt(of) => self.interrupt(of),
                Message::Destroy => {
                    self.fs.destroy();
                    settle(channel.answer(unique, 0), "DESTROY");
                }
                Message::NotifyReply => {}
                Message::Init(_) => settle(channel.answer(unique, EIO), "INIT"),
                Message::Unsupported(_) => settle(channel.answer(unique, ENOSYS), name_of(head.opcode)),
            },
            Err(error) => {
                tracing::error!(%error, op = name_of(head.opcode), "request that cannot be decoded");
                settle(channel.answer(unique, EIO), name_of(head.opcode));
            }
        }
    }

    fn request(&self, channel: &Arc<Channel>, head: crate::abi::inputs::InHeader, groups: Vec<u32>, op: Op) {
        brindle_stdx::request_rate::beat();
        self.counts.came(head.opcode, &op);
        let asked = Asked { nodeid: head.nodeid, uid: head.uid, pid: head.pid };
        match catch_unwind(AssertUnwindSafe(|| self.fs.fast_path(asked, &op))) {
            Ok(Some(reply)) => {
                if matches!(op, Op::Read(_)) {
                    self.counts.read(reply.body_len());
                }
                return answered(channel.reply(head.unique, &reply), &reply, name_of(head.opcode));
            }
            Ok(None) => {}
            Err(_) => return settle(channel.answer(head.unique, EIO), name_of(head.opcode)),
        }
        let registration = self.interrupts.register(head.unique);
        let request = Request {
            unique: head.unique,
            nodeid: head.nodeid,
            uid: head.uid,
            gid: head.gid,
            pid: head.pid,
            groups,
            resent: head.unique & UNIQUE_RESEND != 0,
            op,
            cancel: registration.cancel(),
        };
        let name = name_of(head.opcode);
        let tasks = if request.op.moves_data() { &self.tasks } else { &self.where_woken };
        let parked = Arc::new(Parked { state: Mutex::default(), tasks: tasks.clone(), name });
        let responder = Responder {
            channel: channel.clone(),
            unique: head.unique,
            name,
            done: false,
            counts: matches!(request.op, Op::Read(_)).then(|| self.counts.clone()),
            registration,
        };
        let fs = &self.fs;
        let waker = Waker::from(parked.clone());
        let first = catch_unwind(AssertUnwindSafe(|| {
            let mut handler = fs.handle(request);
            let ready = handler.as_mut().poll(&mut Context::from_waker(&waker));
            (handler, ready)
        }));
        match first {
            Ok((_, Poll::Ready(reply))) => responder.send(&reply),
            Ok((handler, Poll::Pending)) => {
                parked.park(Box::pin(async move { responder.send(&handler.await) }));
            }
            Err(_) => drop(responder),
        }
    }

    /// An unknown number: not registered yet, or answered already. Only the channel that the request was read from
    /// knows it, and the others say ENOENT; where it is known, EAGAIN makes the kernel send the INTERRUPT again.
    fn interrupt(&self, of: u64) {
        const INTERRUPT_BIT: u64 = 1;
        if self.interrupts.interrupt(of) {
            return;
        }
        let found = self.channels.iter().any(|c| c.answer(of | INTERRUPT_BIT, EAGAIN).is_ok());
        if found {
            std::thread::yield_now();
        }
    }
}

/// A handler that waits: the first thread that wakes it gives it to the task runner.
struct Parked {
    state: Mutex<Park>,
    tasks: Arc<dyn Spawn>,
    name: &'static str,
}

#[derive(Default)]
enum Park {
    /// The operation is being polled for the first time.
    #[default]
    Polled,
    /// The operation was woken meanwhile.
    Woken,
    /// The operation waits.
    Waits(BoxFuture<'static, ()>),
    /// The task runner has the operation.
    Gone,
}

impl Parked {
    fn park(&self, task: BoxFuture<'static, ()>) {
        let mut state = self.state.lock();
        if matches!(*state, Park::Polled) {
            *state = Park::Waits(task);
        } else {
            *state = Park::Gone;
            drop(state);
            self.tasks.spawn(self.name, task);
        }
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, Park::Gone) {
            Park::Polled | Park::Woken => *state = Park::Woken,
            Park::Gone => {}
            Park::Waits(task) => {
                drop(state);
                self.tasks.spawn(self.name, task);
            }
        }
    }
}

/// The duty to answer one request.
struct Responder {
    channel: Arc<Channel>,
    unique: u64,
    name: &'static str,
    done: bool,
    /// Counters for the bytes of a READ.
    counts: Option<Arc<RequestCounts>>,
    // Dropped with the responder, after the answer was written.
    #[expect(dead_code, reason = "its drop takes the request out of the table")]
    registration: Registration,
}

impl Responder {
    fn send(mut self, reply: &Reply) {
        self.done = true;
        if let Some(counts) = &self.counts {
            counts.read(reply.body_len());
        }
        answered(self.channel.reply(self.unique, reply), reply, self.name);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.done {
            tracing::error!(op = self.name, "a handler ended without an answer");
            settle(self.channel.answer(self.unique, EIO), self.name);
        }
    }
}

/// Outcome of sending an answer.
fn answered(written: Result<(), Errno>, reply: &Reply, op: &'static str) {
    if let Some(given) = &reply.given {
        given.set();
    }
    match written {
        // The kernel refuses an answer of the wrong size and fails the request itself.
        Err(Errno::INVAL) => {
            tracing::error!(op, bytes = reply.body_len(), "the kernel refused an answer");
        }
        other => settle(other, op),
    }
}

/// An answer that nobody waits for is no error: the caller was killed, or the connection ended.
fn settle(written: Result<(), Errno>, op: &'static str) {
    match written {
        Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED | Errno::PERM) => {}
        Err(error) => tracing::warn!(%error, op, "cannot answer the kernel"),
    }
}
