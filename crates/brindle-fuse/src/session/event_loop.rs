//! The event loop: one thread that reads the device and takes the answers of the MDT.
//!
//! An operation on names is a request of the kernel, a question to the MDT, its answer, and an answer to the kernel. With a thread for each
//! of the two ends every operation wakes both threads. With one thread for both ends a busy mount finds the next thing to do without going
//! to sleep (note 013). The thread therefore runs a loop of its own: it waits for the device and for the connections that were given to
//! [`EventLoop::tasks`], and operations that such a connection wakes go on there.
//!
//! Operations that move data go to the task runner of the mount. Operations that another thread wakes go there, too. If there are few
//! answers, or the event loop cannot keep up, it leaves the device to the other readers ([`super::reader_pool`]) and only takes answers.
//!
//! Invariant: code that runs here never blocks. If some code does all the same, the reader pool's watch has the device read by others.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use brindle_stdx::{BoxFuture, Spawn, Task};
use brindle_types::{Code, Fault};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::channel::{Channel, Ended};
use super::reader_pool::{Beat, Window};
use super::serve::Shared;
use crate::Filesystem;
use crate::buffer::{COPIED_BYTES_MAX, Slot};

/// The event loop's number among the readers.
const LEADS: usize = 0;
/// Messages after which everything else gets a turn.
const TURN: usize = 8;
/// A message, or the end of the connection, which the kernel shows as an error.
const NEWS: Interest = Interest::READABLE.add(Interest::ERROR);

thread_local! {
    /// Number of the event loop that runs on this thread; 0 for none.
    static LEAD: Cell<u64> = const { Cell::new(0) };
}

/// The thread of the loop. The thread ends when the last clone is dropped, and the last of [`EventLoop::tasks`].
#[derive(Clone)]
pub struct EventLoop(Arc<Inner>);

struct Inner {
    id: u64,
    runtime: tokio::runtime::Handle,
    beat: Arc<Beat>,
    // Dropped, it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl std::fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EventLoop {}", self.0.id)
    }
}

impl EventLoop {
    /// Starts the thread.
    pub fn start() -> Result<EventLoop, Fault> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let beat = Arc::new(Beat::default());
        let (starting, park, unpark) = (beat.clone(), beat.clone(), beat.clone());
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        // The runtime lives and dies there: where this is called from within one it must not be dropped.
        let body = move || {
            LEAD.set(id);
            let built = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .on_thread_park(move || park.sleeps())
                .on_thread_unpark(move || unpark.wakes())
                .build();
            let runtime = match built {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            drop(tell.send(Ok(runtime.handle().clone())));
            starting.wakes();
            // An error says that the sender is gone, which is the signal.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        };
        let failed = |e: std::io::Error| Fault::io(Code::Bug, "cannot start threads", "", &e);
        std::thread::Builder::new().name("fuse-loop".into()).spawn(body).map_err(failed)?;
        let ended = |_| Err(std::io::Error::other("the thread has ended"));
        let runtime = told.recv().unwrap_or_else(ended).map_err(failed)?;
        Ok(EventLoop(Arc::new(Inner { id, runtime, beat, _stop: stop })))
    }

    /// Runs tasks on this thread: for connections whose answers operations wait for, one message at a time. A task must not block, nor
    /// compute for long.
    pub fn tasks(&self) -> Arc<dyn Spawn> {
        Arc::new(OnEventLoop(self.clone()))
    }

    /// Counters for the reader pool.
    pub(super) fn beat(&self) -> Arc<Beat> {
        self.0.beat.clone()
    }

    /// Runs tasks here that are started here, and others where `elsewhere` does.
    pub(super) fn where_woken(&self, elsewhere: Arc<dyn Spawn>) -> Arc<dyn Spawn> {
        let Inner { id, runtime, beat, .. } = &*self.0;
        Arc::new(WhereWoken { id: *id, runtime: runtime.clone(), beat: beat.clone(), elsewhere })
    }
}

struct OnEventLoop(EventLoop);

impl Spawn for OnEventLoop {
    fn spawn(&self, _name: &'static str, task: Task) {
        drop(self.0.0.runtime.spawn(task));
    }

    fn run_blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let job = self.0.0.runtime.spawn_blocking(job);
        Box::pin(async move {
            // A panic in the job is seen by its owner, who waits for a result that never comes.
            let _ = job.await;
        })
    }
}

struct WhereWoken {
    id: u64,
    runtime: tokio::runtime::Handle,
    beat: Arc<Beat>,
    elsewhere: Arc<dyn Spawn>,
}

impl Spawn for WhereWoken {
    fn spawn(&self, name: &'static str, task: Task) {
        if LEAD.get() == self.id {
            self.beat.goes_on();
            drop(self.runtime.spawn(task));
        } else {
            self.elsewhere.spawn(name, task);
        }
    }

    fn run_blocking(&self, job: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        self.elsewhere.run_blocking(job)
    }
}

/// Has the device tell the event loop that this is called in.
fn register(channel: Arc<Channel>) -> std::io::Result<AsyncFd<Arc<Channel>>> {
    channel.do_not_wait()?;
    // SAFETY: the descriptor is the channel's, which stays open as long as the registration holds it.
    let registered = unsafe { AsyncFd::register_with_interest(channel, NEWS) };
    registered.map_err(|refused| refused.into_parts().1)
}

impl<F: Filesystem> Shared<F> {
    /// Reads and handles messages until the connection ends, or rests. `None`: another reader saw that.
    pub async fn lead_loop(&self) -> Option<Ended> {
        while self.reader_pool.lead_rests().await {
            if let Err(ended) = self.event_loop().await {
                self.reader_pool.end();
                return Some(ended);
            }
        }
        None
    }

    /// Reads the device until it leaves that to others.
    async fn event_loop(&self) -> Result<(), Ended> {
        let (channel, beat) = (&self.channels[0], self.reader_pool.event_loop());
        let failed = |e: std::io::Error| Ended::Failed(e.raw_os_error().unwrap_or(libc::EIO));
        let device = match register(channel.clone()) {
            Ok(device) => device,
            // Memory is short, or there are too many such registrations: the others need none.
            Err(error) => {
                tracing::debug!(%error, "the device cannot be read by an event loop");
                self.reader_pool.lead_gives_up();
                return Ok(());
            }
        };
        let mut slot = Slot::new(self.max_write_bytes);
        let mut window = Window::starting(beat.woken());
        let (mut waited, mut turn) = (false, 0);
        self.readers.begins(LEADS);
        loop {
            self.readers.reads(LEADS);
            let Some(len) = channel.try_read(slot.room())? else {
                self.readers.is_done(LEADS);
                (waited, turn) = (true, 0);
                // Messages that come after this are announced again; messages that came before are read now.
                device.ready(NEWS).await.map_err(failed)?.clear_ready();
                continue;
            };
            self.readers.took(LEADS);
            beat.takes();
            let (message, kept) = slot.message(len);
            slot = kept.unwrap_or_else(|| Slot::new(self.max_write_bytes));
            self.handle(channel, message);
            self.readers.is_done(LEADS);
            if window.count(waited, beat.woken()).is_some_and(|seen| self.reader_pool.lead_leaves(seen)) {
                return Ok(());
            }
            (waited, turn) = (false, turn + 1);
            if turn >= TURN || len > COPIED_BYTES_MAX {
                turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}
