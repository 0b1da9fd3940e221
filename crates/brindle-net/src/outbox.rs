//! Frames on their way out of one connection. A sender hands its frame to the network itself if the network takes it at
//! once, together with frames that others have queued meanwhile. If the other side does not read, a task of the connection
//! waits. Therefore an ordinary frame costs one system call and wakes no task on this side.
//!
//! Invariants: frames go out in the order in which [`Outbox::send`] got them; the task that had the sending half when a
//! frame was queued looks at the queue again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_wire::frame::Frame;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::latch::Latch;
use crate::transport::FrameTx;

/// Frames handed to the network at once.
const BATCH_MAX: usize = 32;

/// A frame on its way out.
pub(crate) struct Outgoing {
    pub frame: Frame,
    /// Credits that are given back once the frame is written.
    pub credits: Vec<OwnedSemaphorePermit>,
    /// The connection ends after this frame.
    pub last: bool,
}

impl From<Frame> for Outgoing {
    fn from(frame: Frame) -> Outgoing {
        Outgoing { frame, credits: Vec::new(), last: false }
    }
}

/// The frames of one connection. Bounded by the credits: each request, reply and notify is in it at most once.
pub(crate) struct Outbox {
    /// `None` once the connection has ended.
    queue: Mutex<Option<VecDeque<Outgoing>>>,
    /// The sending half; `None` before [`Outbox::open`], while the task uses it, and once the connection has ended.
    tx: Mutex<Option<Box<dyn FrameTx>>>,
    /// Credits of frames that the network took in part.
    unwritten: Mutex<Vec<OwnedSemaphorePermit>>,
    /// The last frame has been taken from the queue.
    ends: AtomicBool,
    /// The task is to send what the network did not take at once.
    stalled: Notify,
}

impl Outbox {
    /// An outbox without a connection: frames wait until it is opened.
    pub fn new() -> Outbox {
        Outbox {
            queue: Mutex::new(Some(VecDeque::new())),
            tx: Mutex::new(None),
            unwritten: Mutex::default(),
            ends: AtomicBool::new(false),
            stalled: Notify::new(),
        }
    }

    /// Frames go out from now on; [`Outbox::run`] is to be run beside.
    pub fn open(&self, tx: Box<dyn FrameTx>) {
        *self.tx.lock() = Some(tx);
        self.stalled.notify_one();
    }

    /// Sends a frame, or queues it; one for a connection that has ended is dropped. Sets `down` when the connection is of
    /// no more use.
    pub fn send(&self, outgoing: Outgoing, down: &Latch) {
        match self.queue.lock().as_mut() {
            Some(queue) => queue.push_back(outgoing),
            None => return,
        }
        while !self.is_empty() && !down.is_set() {
            // The task that holds the sender looks at the queue again after giving it back.
            let Some(mut place) = self.tx.try_lock() else { return };
            let Some(tx) = place.as_mut() else { return };
            if !tx.is_direct() {
                return self.stalled.notify_one();
            }
            let (frames, credits) = self.take_batch();
            match tx.try_send(frames) {
                Ok(true) if self.ends.load(Ordering::Acquire) => return down.set(),
                Ok(true) => {}
                Ok(false) => {
                    self.unwritten.lock().extend(credits);
                    return self.stalled.notify_one();
                }
                Err(_) => return down.set(),
            }
        }
    }

    /// The task: sends what could not be sent at once, until the connection ends.
    pub async fn run(&self, down: &Latch) {
        let work = async {
            loop {
                self.stalled.notified().await;
                let Some(mut tx) = self.tx.lock().take() else { continue };
                loop {
                    let (frames, credits) = self.take_batch();
                    let was_last = frames.is_empty();
                    if tx.send(frames).await.is_err() {
                        return;
                    }
                    drop(credits);
                    self.unwritten.lock().clear();
                    if was_last {
                        break;
                    }
                }
                if self.ends.load(Ordering::Acquire) {
                    return;
                }
                *self.tx.lock() = Some(tx);
                if !self.is_empty() {
                    self.stalled.notify_one();
                }
            }
        };
        down.until(work).await;
        down.set();
        // The other side learns, after the frames that were sent, that no more come.
        drop(self.queue.lock().take());
        drop(self.tx.lock().take());
    }

    fn is_empty(&self) -> bool {
        self.queue.lock().as_ref().is_none_or(VecDeque::is_empty)
    }

    /// Frames, in order, and the credits of each.
    fn take_batch(&self) -> (Vec<Frame>, Vec<OwnedSemaphorePermit>) {
        let (mut frames, mut credits) = (Vec::new(), Vec::new());
        let mut queue = self.queue.lock();
        let Some(queue) = queue.as_mut() else { return (frames, credits) };
        let count = queue.len().min(BATCH_MAX);
        frames.reserve_exact(count);
        for outgoing in queue.drain(..count) {
            frames.push(outgoing.frame);
            credits.extend(outgoing.credits);
            if outgoing.last {
                self.ends.store(true, Ordering::Release);
            }
        }
        (frames, credits)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brindle_stdx::BoxFuture;
    use brindle_wire::frame::Header;

    use super::*;
    use crate::NetError;

    /// Records the xids of its frames; takes `room` frames at once.
    struct Slow {
        sent: Arc<Mutex<Vec<u64>>>,
        rest: Vec<Frame>,
        room: Arc<Mutex<usize>>,
    }

    impl FrameTx for Slow {
        fn send(&mut self, frames: Vec<Frame>) -> BoxFuture<'_, Result<(), NetError>> {
            let all = self.rest.drain(..).chain(frames);
            self.sent.lock().extend(all.map(|frame| frame.header.xid));
            Box::pin(tokio::task::yield_now().map_ok())
        }

        fn is_direct(&self) -> bool {
            true
        }

        fn try_send(&mut self, frames: Vec<Frame>) -> Result<bool, NetError> {
            self.rest.extend(frames);
            let mut room = self.room.lock();
            let count = self.rest.len().min(*room);
            *room -= count;
            self.sent.lock().extend(self.rest.drain(..count).map(|frame| frame.header.xid));
            Ok(self.rest.is_empty())
        }
    }

    trait MapOk {
        fn map_ok(self) -> impl Future<Output = Result<(), NetError>> + Send;
    }

    impl<F: Future<Output = ()> + Send> MapOk for F {
        async fn map_ok(self) -> Result<(), NetError> {
            self.await;
            Ok(())
        }
    }

    fn frame(xid: u64) -> Frame {
        Frame::new(Header { xid, ..Header::default() }, bytes::Bytes::new())
    }

    #[test]
    fn frames_go_out_in_order_whoever_sends_them_and_however_much_the_network_takes() {
        const THREADS: u64 = 4;
        const EACH: u64 = 2_000;
        let (sent, room) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::new(Mutex::new(0)));
        let slow = Slow { sent: sent.clone(), rest: Vec::new(), room: room.clone() };
        let (outbox, down) = (Arc::new(Outbox::new()), Arc::new(Latch::default()));
        outbox.send(frame(0).into(), &down);
        outbox.open(Box::new(slow));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let task = {
            let (outbox, down) = (outbox.clone(), down.clone());
            std::thread::spawn(move || runtime.block_on(outbox.run(&down)))
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (outbox, down, room) = (&outbox, &down, &room);
                scope.spawn(move || {
                    for n in u64::from(thread == 0)..EACH {
                        *room.lock() += usize::from(n % 3 == 0);
                        outbox.send(frame(thread * EACH + n).into(), down);
                    }
                });
            }
        });
        outbox.send(Outgoing { last: true, ..frame(u64::MAX).into() }, &down);
        task.join().expect("it ends behind the last frame");
        let sent = sent.lock();
        assert_eq!(sent.len() as u64, THREADS * EACH + 1, "each once");
        assert_eq!(sent.last(), Some(&u64::MAX));
        for thread in 0..THREADS {
            let own: Vec<u64> = sent.iter().copied().filter(|xid| xid / EACH == thread).collect();
            assert!(own.is_sorted(), "in the order in which they were sent");
        }
        assert!(down.is_set());
        outbox.send(frame(1).into(), &down);
    }
}
