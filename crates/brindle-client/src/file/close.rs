//! close and flush: giving a handle back, with the last report; telling of lost data.
//!
//! No program waits until its handle is given back: flush and fsync have already reported what is to be told of data. Handles are
//! therefore gathered for a moment and given back many at once. A recall does not wait for that moment: whoever else wants the file
//! finds it closed.
//!
//! Invariant: [`crate::inodes::State::closing`] counts the handles of an inode that are closed here and that the MDT is
//! not known to have taken back.

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_net::job;
use brindle_types::{Code, Fault, Ino};
use brindle_wire::job::JobTag;
use brindle_wire::mds::close::{CLOSES_MAX, Close, CloseReq};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::Client;
use crate::handles::Handle;
use crate::inodes::{Carry, Due, State};

/// Time for which closed handles are gathered.
const GATHER_MS: u64 = 5;

/// Handles that are closed here and not at the MDT. Bounded by the handles that a session may have.
#[derive(Default)]
pub(crate) struct Closes {
    queue: Mutex<Vec<Closing>>,
    /// Wakes the worker: the queue is not empty.
    work: Notify,
    /// Wakes the worker at once: a caller waits.
    hurry: Notify,
}

struct Closing {
    handle: Arc<Handle>,
    carry: Carry,
    done: oneshot::Sender<Result<(), Fault>>,
}

impl Closing {
    /// Whether the close ends the write session of a file while bytes of it are under way to an OST: old bytes that are written
    /// again, bytes of a killed program, or bytes for which nobody waits because the OST is away. (No such write begins later.)
    fn is_early(&self) -> bool {
        self.carry == Carry::Last && has_bytes_under_way(&self.handle.inode.lock())
    }
}

fn has_bytes_under_way(state: &State) -> bool {
    state.rewriting || state.abandoned > 0 || !state.behind.is_empty()
}

impl Closes {
    /// Handles for one request: the oldest, one of each inode.
    fn take(&self) -> Vec<Closing> {
        let mut queue = self.queue.lock();
        let mut inodes: BTreeSet<Ino> = BTreeSet::new();
        let taken = queue
            .extract_if(.., |closing| inodes.len() < CLOSES_MAX && inodes.insert(closing.handle.inode.ino));
        taken.collect()
    }

    /// Sends the gathered closes now.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// The client has ended: no caller is told any more.
    pub fn end(&self) {
        self.work.notify_one();
        self.hurry.notify_one();
        self.queue.lock().clear();
    }
}

impl Client {
    /// Gives a handle back, and waits until the MDT has taken it.
    pub async fn close(&self, number: u64) -> Result<(), Fault> {
        self.finish_writes(number).await;
        let taken = self.close_later(number)?;
        self.closes.hurry();
        // Dropped unsent when this client ends.
        taken.await.unwrap_or_else(|_| Err(Fault::new(Code::Shutdown)))
    }

    /// Sends bytes that were written through a handle. Must be done before the handle is given back.
    pub async fn finish_writes(&self, number: u64) {
        if let Ok(handle) = self.handles.get(number)
            && handle.access.write
        {
            self.flush_behind(&handle.inode).await;
        }
    }

    /// Whether a handle is open.
    pub fn is_open(&self, number: u64) -> bool {
        self.handles.get(number).is_ok()
    }

    /// Job that a handle was opened for.
    pub fn job_of(&self, number: u64) -> Option<JobTag> {
        self.handles.get(number).ok()?.job
    }

    /// Whether bytes that were written through a handle have not left the buffer.
    pub fn is_behind(&self, number: u64) -> bool {
        let handle = self.handles.get(number);
        handle.is_ok_and(|handle| handle.access.write && !handle.inode.lock().behind.is_empty())
    }

    /// End of the file of an open handle, if this client alone writes it.
    pub fn own_end(&self, number: u64) -> Option<u64> {
        let handle = self.handles.get(number).ok()?;
        let state = handle.inode.lock();
        (state.exclusive && state.size_exact()).then_some(state.size_bytes)
    }

    /// Whether [`Client::flush`] for `process` would do nothing but succeed.
    pub fn has_nothing_to_flush(&self, number: u64, process: u64) -> bool {
        let Ok(handle) = self.handles.get(number) else { return false };
        let writes = handle.access.write && handle.may_be_written_by(process);
        !writes && handle.intact().is_ok()
    }

    /// Gives a handle back within a moment, after [`Client::finish_writes`]; the returned value tells when the MDT has taken it.
    pub fn close_later(&self, number: u64) -> Result<oneshot::Receiver<Result<(), Fault>>, Fault> {
        let Some(handle) = self.handles.remove(number) else {
            return Err(Fault::new(Code::BadHandle).why(format!("handle {number}")));
        };
        // The kernel may have read its pages until now. (Also pages of a file that is read past them: programs may map the file.)
        self.note_pages(&handle);
        let last_writer = handle.access.write && handle.inode.lock().writers == 0;
        if last_writer && handle.alive().is_ok() {
            self.note_left_unsynced(&handle.inode);
        }
        let carry = if last_writer { Carry::Last } else { Carry::Changes };
        handle.inode.lock().closing += 1;
        let (done, taken) = oneshot::channel();
        let count = {
            let mut queue = self.closes.queue.lock();
            queue.push(Closing { handle, carry, done });
            queue.len()
        };
        self.closes.work.notify_one();
        if count >= CLOSES_MAX {
            self.closes.hurry();
        }
        if self.session.is_ended() {
            self.closes.end();
        }
        Ok(taken)
    }

    /// The task that gives handles back.
    pub(crate) async fn give_back(self: Arc<Self>) {
        loop {
            self.closes.work.notified().await;
            let _ = self.seams.timeout_ms(GATHER_MS, self.closes.hurry.notified()).await;
            loop {
                let batch = self.closes.take();
                if batch.is_empty() {
                    break;
                }
                // A later write of another client must not be overwritten by bytes that were under way before
                // it: those handles are given back when their bytes have arrived.
                let (kept, free): (Vec<_>, Vec<_>) = batch.into_iter().partition(Closing::is_early);
                for closing in kept {
                    let this = self.clone();
                    self.seams.spawn("client.close", async move {
                        closing.handle.inode.wait_until(|state| !has_bytes_under_way(state)).await;
                        this.give_back_batch(vec![closing]).await;
                    });
                }
                // A task of its own for each batch: where the MDT makes one wait, the others go on.
                let this = self.clone();
                self.seams.spawn("client.close", async move { this.give_back_batch(free).await });
            }
            if self.session.is_ended() {
                return;
            }
        }
    }

    async fn give_back_batch(&self, batch: Vec<Closing>) {
        let (mut closes, mut dues): (Vec<Close>, Vec<Due>) = (Vec::new(), Vec::new());
        // The server has given up the handles that are dead.
        for Closing { handle, carry, .. } in batch.iter().filter(|closing| closing.handle.alive().is_ok()) {
            let due = handle.access.write.then(|| handle.inode.due(*carry));
            let report = due.as_ref().and_then(|due| due.report.clone());
            closes.push(Close { ino: handle.inode.ino, handle: handle.number, report });
            dues.extend(due);
        }
        // A request may close files of several jobs; it counts for the job of the first file.
        let job = batch.first().and_then(|closing| closing.handle.job);
        let outcome = match closes.is_empty() {
            true => Ok(()),
            false => job::with(job, self.mds.ask(&CloseReq { closes })).await.map(drop),
        };
        if outcome.is_ok() {
            dues.into_iter().for_each(Due::delivered);
        }
        for Closing { handle, done, .. } in batch {
            handle.inode.lock().closing -= 1;
            handle.inode.quiet.notify_waiters();
            // Most have gone.
            let _ = done.send(outcome.clone());
        }
    }

    /// Handles a close of the handle's descriptor by `process` (`None`: not known). Sends the process's writes, and returns whether
    /// data written through the handle was lost.
    ///
    /// A process that has written nothing does not wait. Most such processes are about to execute another program: exec closes the
    /// descriptors that are not to be inherited, and the kernel locks the process meanwhile. If this call waited for an OST that is
    /// away, ps(1) would hang on all of the machine.
    pub async fn flush(&self, number: u64, process: Option<u64>) -> Result<(), Fault> {
        let handle = self.handles.get(number)?;
        self.tell_lost(&handle.inode);
        handle.intact()?;
        let has_written = process.is_none_or(|process| handle.may_be_written_by(process));
        if !handle.access.write || !has_written {
            return Ok(());
        }
        self.flush_behind(&handle.inode).await;
        let torn = handle.inode.lock().unsynced.values().any(|u| u.torn().is_some());
        if torn {
            // An OST is known to have lost bytes: they are written again, or the loss is reported.
            Box::pin(self.sync_inode(&handle.inode)).await?;
        }
        self.tell_lost(&handle.inode);
        handle.intact()
    }
}
