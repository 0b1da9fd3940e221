//! A mount from INIT to its end: the connection, its readers and its notifier.
//!
//! [`Connected::mount`] mounts and negotiates, [`Connected::serve`] starts the readers and gives the [`Session`]. A
//! connection that another process negotiated is taken over with [`Connected::attach`].
//!
//! Invariant: a session that is dropped leaves no mount behind.

pub mod channel;
pub mod counts;
pub mod event_loop;
pub mod init;
pub mod mount;
mod reader_pool;
pub(crate) mod readers;
mod serve;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use brindle_stdx::Spawn;
use brindle_types::{Code, Fault};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::Filesystem;
use crate::abi::flags::init::SETXATTR_EXT;
use crate::buffer::Slot;
use crate::interrupt::Interrupts;
use crate::notify::Notifier;
use crate::reply::Reply;
use crate::request::{Message, decode};
use readers::Readers;

pub use channel::{Channel, Ended};
pub use counts::RequestCounts;
pub use event_loop::EventLoop;
pub use init::{Negotiated, PageInvalidation, Wanted};
pub use mount::{MountOptions, Mounted, have_attributes_asked};

/// Fewest readers: where one is stuck another one takes the rest, the INTERRUPT for it above all.
const READERS_MIN: usize = 2;
/// Most readers.
const READERS_MAX: usize = 64;

/// Runs the body of a reader thread inside whatever context its handlers need (a tokio runtime's, for timers).
pub type Around = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// Options of serving a connection.
#[derive(Clone)]
pub struct ServeOptions {
    /// Reader threads besides the event loop; 0 for one per processor. Bounded to 2..=64.
    pub readers: usize,
    /// The kernel's read-ahead for cached files in KiB; 0 leaves its default.
    pub read_ahead_kib: u32,
    /// Context of the reader threads.
    pub around: Around,
    /// The first reader; `None` for one of the session's own.
    pub event_loop: Option<EventLoop>,
    /// Whether it reads the device; otherwise it leaves that to the others at once, and only takes answers.
    pub event_loop_reads: bool,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            readers: 0,
            read_ahead_kib: 16384,
            around: Arc::new(|body| body()),
            event_loop: None,
            event_loop_reads: true,
        }
    }
}

impl ServeOptions {
    /// Lets handlers use timers and sockets of the tokio runtime `handle` when they are polled on a reader.
    pub fn in_runtime(mut self, handle: tokio::runtime::Handle) -> ServeOptions {
        self.around = Arc::new(move |body| {
            let _context = handle.enter();
            body();
        });
        self
    }
}

/// A connection whose INIT is answered and which nobody serves yet.
#[derive(Debug)]
pub struct Connected {
    channel: Channel,
    negotiated: Negotiated,
    mounted: MountGuard,
}

impl Connected {
    /// Mounts and answers INIT. Needs root.
    pub fn mount(options: &MountOptions, wanted: &Wanted) -> Result<Connected, Fault> {
        let (fd, mounted) = mount::mount(options)?;
        let channel = Channel::new(fd);
        match handshake(&channel, wanted) {
            Ok(negotiated) => Ok(Connected { channel, negotiated, mounted: MountGuard(Some(mounted)) }),
            Err(fault) => {
                mount::detach(&options.mountpoint);
                Err(fault)
            }
        }
    }

    /// Takes over a connection that another process mounted and negotiated. Requests that it had read and not
    /// answered come again after [`crate::notify::Notice::Resend`], marked `resent`. `mounted` where this process is
    /// to unmount it in the end.
    pub fn attach(device: OwnedFd, negotiated: Negotiated, mounted: Option<Mounted>) -> Connected {
        Connected { channel: Channel::new(device), negotiated, mounted: MountGuard(mounted) }
    }

    /// The agreement with the kernel.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// Gives the parts away, for a later [`Connected::attach`]; the mount stays.
    pub fn into_parts(mut self) -> (OwnedFd, Negotiated, Option<Mounted>) {
        (self.channel.into_fd(), self.negotiated, self.mounted.0.take())
    }

    /// Starts the readers. `make` gets what the file system needs to know of its session.
    pub fn serve<F: Filesystem>(
        self,
        options: &ServeOptions,
        tasks: Arc<dyn Spawn>,
        make: impl FnOnce(Notifier, Negotiated) -> Arc<F>,
    ) -> Result<Session, Fault> {
        let Connected { channel, negotiated, mounted } = self;
        let channels = clones(channel, 1 + reader_count(options.readers))?;
        let event_loop = options.event_loop.clone().map_or_else(EventLoop::start, Ok)?;
        if let (Some(m), kib @ 1..) = (&mounted.0, options.read_ahead_kib)
            && let Err(error) = m.set_read_ahead(kib)
        {
            tracing::info!(%error, "the kernel's read-ahead stays at its default");
        }
        let at_device = Arc::new(Readers::new(channels.len()));
        let notifier = Notifier::new(channels[0].clone(), at_device.clone());
        let counts = Arc::new(RequestCounts::default());
        let shared = Arc::new(serve::Shared {
            fs: make(notifier.clone(), negotiated),
            where_woken: event_loop.where_woken(tasks.clone()),
            tasks,
            interrupts: Interrupts::new(),
            max_write_bytes: negotiated.max_write_bytes as usize,
            readers: at_device,
            reader_pool: reader_pool::ReaderPool::new(
                event_loop.beat(),
                channels.len() - 1,
                options.event_loop_reads,
            ),
            channels,
            setxattr_ext: negotiated.has(SETXATTR_EXT),
            counts: counts.clone(),
        });
        let watched = Arc::downgrade(&shared);
        event_loop.beat().on_unwatched(Box::new(move || {
            if let Some(shared) = watched.upgrade() {
                shared.reader_pool.rouse();
            }
        }));
        let (ended, watch) = watch::channel(None);
        let mut readers = Vec::new();
        let led = start_lead(&event_loop, shared.clone(), ended.clone(), notifier.clone());
        for me in 1..shared.channels.len() {
            readers.push(start_reader(shared.clone(), me, ended.clone(), notifier.clone(), options)?);
        }
        Ok(Session {
            mounted,
            negotiated,
            notifier,
            ended: watch,
            aborted: AtomicBool::new(false),
            readers: Mutex::new(readers),
            led,
            _lead: event_loop,
            counts,
        })
    }
}

fn reader_count(asked: usize) -> usize {
    let processors = || std::thread::available_parallelism().map_or(READERS_MIN, |n| n.get());
    if asked == 0 { processors() } else { asked }.clamp(READERS_MIN, READERS_MAX)
}

fn cannot_serve(e: &std::io::Error) -> Fault {
    Fault::io(Code::MountFailed, "cannot serve", channel::DEVICE, e)
}

/// The channel and clones of it, `count` in all.
fn clones(first: Channel, count: usize) -> Result<Vec<Arc<Channel>>, Fault> {
    let mut channels = Vec::with_capacity(count);
    for _ in 1..count {
        channels.push(Arc::new(first.try_clone().map_err(|e| cannot_serve(&e))?));
    }
    channels.insert(0, Arc::new(first));
    Ok(channels)
}

/// Reads INIT and answers it.
fn handshake(channel: &Channel, wanted: &Wanted) -> Result<Negotiated, Fault> {
    let failed = |why: String| Fault::new(Code::MountFailed).what("cannot agree with the kernel").why(why);
    let mut slot = Slot::new(wanted.max_write_bytes as usize);
    let (len, _) = channel.read(slot.room()).map_err(|e| failed(format!("the connection ended: {e:?}")))?;
    let (bytes, _) = slot.message(len);
    let decoded = decode::message(bytes, false).map_err(|e| failed(e.to_string()))?;
    let Message::Init(offer) = decoded.message else {
        return Err(failed(format!("{} came before INIT", decode::name_of(decoded.head.opcode))));
    };
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let (answer, agreed) = init::negotiate(&offer, wanted, &release)?;
    let reply = Reply::fixed(&answer);
    channel.reply(decoded.head.unique, &reply).map_err(|e| failed(e.to_string()))?;
    Ok(agreed)
}

/// A reader has left.
fn has_ended(how: Option<Ended>, notifier: &Notifier, ended: &watch::Sender<Option<Ended>>) {
    let Some(how) = how else { return };
    notifier.end();
    ended.send_if_modified(|first| first.is_none() && first.replace(how).is_none());
}

fn start_lead<F: Filesystem>(
    event_loop: &EventLoop,
    shared: Arc<serve::Shared<F>>,
    ended: watch::Sender<Option<Ended>>,
    notifier: Notifier,
) -> mpsc::Receiver<()> {
    let (leaves, led) = mpsc::channel();
    let reading = async move {
        let _leaves = leaves;
        has_ended(shared.lead_loop().await, &notifier, &ended);
    };
    event_loop.tasks().spawn("fuse.event_loop", Box::pin(reading));
    led
}

fn start_reader<F: Filesystem>(
    shared: Arc<serve::Shared<F>>,
    me: usize,
    ended: watch::Sender<Option<Ended>>,
    notifier: Notifier,
    options: &ServeOptions,
) -> Result<std::thread::JoinHandle<()>, Fault> {
    let around = options.around.clone();
    let body = move || around(&mut || has_ended(shared.read_loop(me), &notifier, &ended));
    std::thread::Builder::new().name("fuse-read".into()).spawn(body).map_err(|e| cannot_serve(&e))
}

/// Unmounts and ends the connection when dropped, unless the mount is another process's.
#[derive(Debug)]
struct MountGuard(Option<Mounted>);

impl Drop for MountGuard {
    fn drop(&mut self) {
        if let Some(mounted) = &self.0 {
            mounted.clear();
        }
    }
}

/// A mount that is being served. Dropped, it ends the connection and unmounts.
#[derive(Debug)]
pub struct Session {
    mounted: MountGuard,
    negotiated: Negotiated,
    notifier: Notifier,
    ended: watch::Receiver<Option<Ended>>,
    aborted: AtomicBool,
    readers: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// Ends without a word when the event loop has left.
    led: mpsc::Receiver<()>,
    _lead: EventLoop,
    counts: Arc<RequestCounts>,
}

impl Session {
    /// The agreement with the kernel.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated
    }

    /// Requests of the kernel so far, by operation.
    pub fn counts(&self) -> Arc<RequestCounts> {
        self.counts.clone()
    }

    /// Posts notices to the kernel.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// Number of the connection under `/sys/fs/fuse/connections`, for a mount of this process.
    pub fn connection(&self) -> Option<u32> {
        self.mounted.0.as_ref().map(|m| m.connection)
    }

    /// Unmounts; see [`Mounted::unmount`]. The session goes on until [`Session::ended`] says how it ended.
    pub fn unmount(&self, lazy: bool) -> Result<(), Fault> {
        self.mounted.0.as_ref().map_or(Ok(()), |m| m.unmount(lazy))
    }

    /// Ends the connection at once: callers get an error. See [`Mounted::abort`].
    pub fn abort(&self) -> Result<(), Fault> {
        let Some(m) = &self.mounted.0 else { return Ok(()) };
        self.aborted.store(true, Ordering::Release);
        let failed = |e| Fault::io(Code::MountFailed, "cannot abort", m.path.display().to_string(), &e);
        m.abort().map_err(failed)
    }

    /// Waits until the kernel has ended the connection, and says how.
    pub async fn ended(&self) -> Ended {
        let mut watch = self.ended.clone();
        let how = watch.wait_for(Option::is_some).await.ok().and_then(|how| *how);
        self.told(how)
    }

    /// Blocks until the readers are gone, and says how the connection ended.
    pub fn join(self) -> Ended {
        for reader in self.readers.lock().drain(..) {
            // A reader that panicked has said so already.
            let _ = reader.join();
        }
        // The channel carries no message: `recv` returns when the event loop has ended.
        let _ = self.led.recv();
        let how = *self.ended.borrow();
        self.told(how)
    }

    /// A forced unmount looks like any other to the readers; readers that go without a word have panicked.
    fn told(&self, how: Option<Ended>) -> Ended {
        match how {
            Some(Ended::Unmounted) if self.aborted.load(Ordering::Acquire) => Ended::Aborted,
            how => how.unwrap_or(Ended::Failed(libc::EIO)),
        }
    }
}

impl Drop for Session {
    /// A connection that was unmounted lazily may still have callers. The connection's number is ours until it has
    /// ended.
    fn drop(&mut self) {
        if self.ended.borrow().is_none() && self.abort().is_err() {
            tracing::debug!("the connection ended by itself");
        }
    }
}
