//! Notifications: telling the kernel to forget what it has cached.
//!
//! The file system posts a [`Notice`] and gets a future of the kernel's answer. Writing a notice can block for as
//! long as a request of the same mount is unanswered (INVAL_INODE waits for pages that are being read or written
//! back, INVAL_ENTRY for the directory's lock), so it is done on threads that serve no request.
//!
//! Invariant: a posted notice is written to the kernel, or answered [`Outcome::Ended`]. A notice that blocks does not
//! hold up others while fewer than [`THREADS_MAX`] block.

use std::collections::VecDeque;
use std::sync::Arc;

use brindle_stdx::BoxFuture;
use brindle_stdx::cast::len_u32;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use zerocopy::IntoBytes;

use crate::abi::flags::EXPIRE_ONLY;
use crate::abi::opcode::notify as code;
use crate::abi::outputs::{DeleteOut, InvalEntryOut, InvalInodeOut, PruneOut, StoreOut};
use crate::session::channel::Channel;
use crate::session::readers::Readers;

/// Most notices that wait at once; who posts more waits for a place.
pub const QUEUE_MAX: usize = 4096;
/// Most threads, each of which may be blocked in the kernel.
pub const THREADS_MAX: usize = 64;
/// Most inodes in one PRUNE.
pub const PRUNE_MAX: usize = 512;

/// A notice to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Drop the attributes of an inode (and cached ACLs). Never blocks.
    InvalAttr {
        /// The inode.
        ino: u64,
    },
    /// Drop attributes, and pages that hold any byte of the range. Blocks while such a page is being read, or
    /// written back; writes changed pages of mappings back first.
    InvalInode {
        /// The inode.
        ino: u64,
        /// First byte.
        offset: u64,
        /// Number of bytes; 0 means up to the end.
        len: u64,
    },
    /// Drop a name. Takes the directory's lock, which a create or unlink in flight holds.
    InvalEntry {
        /// The directory.
        parent: u64,
        /// The name.
        name: Bytes,
        /// Only let its timeout end.
        expire_only: bool,
    },
    /// A name was removed: like INVAL_ENTRY, but an open file or working directory sees that it is gone.
    Delete {
        /// The directory.
        parent: u64,
        /// The inode that the name must still have.
        child: u64,
        /// The name.
        name: Bytes,
    },
    /// Put data into the page cache.
    Store {
        /// The inode.
        ino: u64,
        /// First byte.
        offset: u64,
        /// The data.
        data: Bytes,
    },
    /// Let all names of the mount be looked up again. Takes no lock.
    IncEpoch,
    /// Drop inodes that nobody uses.
    Prune {
        /// Inode numbers, at most [`PRUNE_MAX`].
        inodes: Vec<u64>,
    },
    /// Deliver again all requests that were read from the device and not answered.
    Resend,
}

/// The kernel's answer to a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// The kernel did not have it (any more), which is as good.
    NotCached,
    /// The kernel refused: the errno. EINVAL or ENOSYS for a notice newer than the kernel, EBUSY or ENOTEMPTY for a
    /// DELETE of a directory in use.
    Refused(i32),
    /// The connection has ended, and its caches with it.
    Ended,
}

impl Outcome {
    /// Whether nothing of what the notice named is cached any more.
    pub fn is_gone(self) -> bool {
        !matches!(self, Outcome::Refused(_))
    }
}

struct Job {
    notice: Notice,
    answer: oneshot::Sender<Outcome>,
    // A place in the queue, given back when the job is taken.
    _place: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    ended: bool,
}

struct Inner {
    channel: Arc<Channel>,
    readers: Arc<Readers>,
    node_ids: Arc<Semaphore>,
    queue: Mutex<Queue>,
    work: Condvar,
}

/// Posts notices of one session. Cheap to clone.
#[derive(Clone)]
pub struct Notifier(Arc<Inner>);

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notifier")
    }
}

impl Notifier {
    /// The readers of the session.
    pub(crate) fn readers(&self) -> &Arc<Readers> {
        &self.0.readers
    }

    /// A notifier that writes to `channel`; threads start when there is work.
    pub(crate) fn new(channel: Arc<Channel>, readers: Arc<Readers>) -> Notifier {
        let node_ids = Arc::new(Semaphore::new(QUEUE_MAX));
        Notifier(Arc::new(Inner {
            channel,
            readers,
            node_ids,
            queue: Mutex::default(),
            work: Condvar::new(),
        }))
    }

    /// Posts a notice, at once if the queue has a place, else when the future is polled. The future gives the
    /// kernel's answer; it need not be awaited.
    ///
    /// Never await it in a handler of a request that the kernel may hold a lock for: see [`Notice`].
    pub fn post(&self, notice: Notice) -> BoxFuture<'static, Outcome> {
        let (answer, receive) = oneshot::channel();
        let ask = async move { receive.await.unwrap_or(Outcome::Ended) };
        match self.0.node_ids.clone().try_acquire_owned() {
            Ok(place) => {
                self.push(Job { notice, answer, _place: place });
                Box::pin(ask)
            }
            Err(_) => {
                let this = self.clone();
                Box::pin(async move {
                    let Ok(place) = this.0.node_ids.clone().acquire_owned().await else {
                        return Outcome::Ended;
                    };
                    this.push(Job { notice, answer, _place: place });
                    ask.await
                })
            }
        }
    }

    /// Drops the attributes of an inode, at once: the kernel takes no lock for it that a request may hold.
    pub fn forget_attr(&self, ino: u64) -> Outcome {
        self.0.write(&Notice::InvalAttr { ino })
    }

    /// Answers everything that waits with [`Outcome::Ended`] and lets the threads go.
    pub(crate) fn end(&self) {
        let mut queue = self.0.queue.lock();
        queue.ended = true;
        queue.jobs.clear();
        self.0.node_ids.close();
        self.0.work.notify_all();
    }

    fn push(&self, job: Job) {
        let mut queue = self.0.queue.lock();
        if queue.ended {
            return;
        }
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() {
            self.0.work.notify_one();
        } else if queue.threads < THREADS_MAX {
            self.start_thread(&mut queue);
        }
    }

    fn start_thread(&self, queue: &mut Queue) {
        let inner = self.0.clone();
        let started = std::thread::Builder::new().name("fuse-notify".into()).spawn(move || inner.run());
        match started {
            Ok(_) => queue.threads += 1,
            // The running threads take the job in their turn. Without any thread the job would wait for ever.
            Err(error) if queue.threads == 0 => {
                tracing::error!(%error, "cannot start a notifier thread");
                queue.jobs.clear();
            }
            Err(error) => {
                tracing::warn!(%error, threads = queue.threads, "cannot start one more notifier thread")
            }
        }
    }
}

impl Inner {
    fn run(&self) {
        while let Some(job) = self.next() {
            let outcome = self.write(&job.notice);
            // The thread that posted the job may have gone.
            let _ = job.answer.send(outcome);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.ended {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            self.work.wait(&mut queue);
            queue.idle -= 1;
        }
    }

    fn write(&self, notice: &Notice) -> Outcome {
        match encode(notice, |code, parts| self.channel.notify(code, parts)) {
            Ok(()) => Outcome::Done,
            Err(Errno::NOENT) => Outcome::NotCached,
            Err(Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN | Errno::PERM) => Outcome::Ended,
            Err(e) => Outcome::Refused(e.raw_os_error()),
        }
    }
}

/// Gives code and parts of a notice to `write`.
fn encode<R>(notice: &Notice, write: impl FnOnce(u32, &[&[u8]]) -> R) -> R {
    match notice {
        Notice::InvalAttr { ino } => {
            write(code::INVAL_INODE, &[InvalInodeOut { ino: *ino, off: -1, len: 0 }.as_bytes()])
        }
        Notice::InvalInode { ino, offset, len } => {
            let off = i64::try_from(*offset).unwrap_or(i64::MAX);
            let len = i64::try_from(*len).unwrap_or(0);
            // The kernel adds both; a sum beyond the largest offset means up to the end.
            let len = if off.checked_add(len).is_some() { len } else { 0 };
            write(code::INVAL_INODE, &[InvalInodeOut { ino: *ino, off, len }.as_bytes()])
        }
        Notice::InvalEntry { parent, name, expire_only } => {
            let flags = if *expire_only { EXPIRE_ONLY } else { 0 };
            let head = InvalEntryOut { parent: *parent, namelen: len_u32(name.len()), flags };
            write(code::INVAL_ENTRY, &[head.as_bytes(), name, &[0]])
        }
        Notice::Delete { parent, child, name } => {
            let head = DeleteOut { parent: *parent, child: *child, namelen: len_u32(name.len()), padding: 0 };
            write(code::DELETE, &[head.as_bytes(), name, &[0]])
        }
        Notice::Store { ino, offset, data } => {
            let head = StoreOut { nodeid: *ino, offset: *offset, size: len_u32(data.len()), padding: 0 };
            write(code::STORE, &[head.as_bytes(), data])
        }
        Notice::IncEpoch => write(code::INC_EPOCH, &[]),
        Notice::Prune { inodes } => {
            let inodes = &inodes[..inodes.len().min(PRUNE_MAX)];
            let head = PruneOut { count: len_u32(inodes.len()), padding: 0, spare: 0 };
            write(code::PRUNE, &[head.as_bytes(), inodes.as_bytes()])
        }
        Notice::Resend => write(code::RESEND, &[]),
    }
}

#[cfg(test)]
mod tests;
