//! Jobs: work that takes long, tells how far it is, and can be cancelled.
//!
//! [`start`] gives the work a [`Job`] to report to, and the caller a [`Running`] to listen to. All jobs of this crate can be
//! repeated after they were cancelled, or after their process died, and continue where they were: the results of their work are in
//! the file system, not here.
//!
//! Invariant: a cancelled job ends between two steps, never within one, with [`Code::Interrupted`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Result};
use tokio::sync::{Notify, mpsc, oneshot};

/// Events that wait to be listened to. Beyond them progress is dropped, and warnings make the job wait.
const EVENTS_MAX: usize = 64;

/// Progress of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The file or target that is worked on; empty for the whole job.
    pub subject: String,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all, as far as that is known.
    pub total_bytes: u64,
    /// Bytes that were copied since the job began.
    pub copied_bytes: u64,
}

/// A message of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Progress of the job.
    Progress(Progress),
    /// A piece of the work failed, and the job goes on.
    Warning(Fault),
}

#[derive(Default)]
struct Cancelled {
    is: AtomicBool,
    told: Notify,
}

/// The way to cancel a job.
#[derive(Clone)]
pub struct Cancel(Arc<Cancelled>);

impl Cancel {
    /// Ends the job after its present step.
    pub fn cancel(&self) {
        self.0.is.store(true, Ordering::SeqCst);
        self.0.told.notify_waiters();
    }
}

/// The job as its work sees it.
pub struct Job {
    seams: Seams,
    cancelled: Arc<Cancelled>,
    events: mpsc::Sender<Event>,
}

impl Job {
    /// Time, tasks, chance.
    pub fn seams(&self) -> &Seams {
        &self.seams
    }

    /// Tells how far it is.
    pub fn progress(&self, progress: Progress) {
        // The next one says more; nobody may listen.
        let _ = self.events.try_send(Event::Progress(progress));
    }

    /// Tells of something that was not done.
    pub async fn warn(&self, fault: Fault) {
        // The listener may have gone; the result still counts the work that was not done.
        let _ = self.events.send(Event::Warning(fault)).await;
    }

    /// A refusal to go on when the job was cancelled.
    pub fn check(&self) -> Result<()> {
        match self.cancelled.is.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(Fault::new(Code::Interrupted)
                .what("cancelled")
                .data("every file is whole")
                .next("the same request goes on where this one ended")),
        }
    }

    /// Waits so long, or until the job is cancelled.
    pub async fn pause_ms(&self, ms: u64) -> Result<()> {
        let told = self.cancelled.told.notified();
        self.check()?;
        // In both cases `check` says whether the job was cancelled.
        let _ = self.seams.timeout_ms(ms, told).await;
        self.check()
    }
}

/// A job from the caller's side.
pub struct Running<T> {
    events: mpsc::Receiver<Event>,
    result: oneshot::Receiver<Result<T>>,
    cancel: Cancel,
}

impl<T> Running<T> {
    /// The way to cancel it.
    pub fn canceller(&self) -> Cancel {
        self.cancel.clone()
    }

    /// The next event; `None` when it has ended.
    pub async fn event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Waits for its end.
    pub async fn result(mut self) -> Result<T> {
        while self.events.recv().await.is_some() {}
        let lost = || Fault::new(Code::Bug).what("a job ended without a result");
        self.result.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// Starts a job; it ends by itself when nobody listens any more only if its work asks whether it was cancelled.
pub fn start<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
    seams: &Seams,
    name: &'static str,
    work: impl FnOnce(Job) -> F,
) -> Running<T> {
    let (tell_events, events) = mpsc::channel(EVENTS_MAX);
    let (tell_result, result) = oneshot::channel();
    let cancelled: Arc<Cancelled> = Arc::default();
    let job = Job { seams: seams.clone(), cancelled: cancelled.clone(), events: tell_events };
    let work = work(job);
    seams.spawn(name, async move {
        // The caller may have gone.
        let _ = tell_result.send(work.await);
    });
    Running { events, result, cancel: Cancel(cancelled) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seams() -> Seams {
        brindle_stdx::real::seams(tokio::runtime::Handle::current())
    }

    #[tokio::test]
    async fn a_job_tells_and_ends() {
        let mut running = start(&seams(), "job", |job| async move {
            job.warn(Fault::new(Code::NotFound)).await;
            job.check()?;
            Ok(7)
        });
        assert_eq!(running.event().await, Some(Event::Warning(Fault::new(Code::NotFound))));
        assert_eq!(running.event().await, None);
        assert_eq!(running.result().await, Ok(7));
    }

    #[tokio::test]
    async fn a_cancelled_job_ends_also_while_it_waits() {
        const DAY_MS: u64 = 86_400_000;
        let running = start(&seams(), "job", |job| async move { job.pause_ms(DAY_MS).await });
        running.canceller().cancel();
        let fault = running.result().await.expect_err("cancelled");
        assert_eq!(fault.code, Code::Interrupted);
    }

    #[tokio::test]
    async fn who_does_not_listen_to_progress_keeps_no_job_from_its_end() {
        let running = start(&seams(), "job", |job| async move {
            (0..10 * EVENTS_MAX as u64).for_each(|n| {
                job.progress(Progress {
                    subject: String::new(),
                    done_bytes: n,
                    total_bytes: 0,
                    copied_bytes: n,
                });
            });
            Ok(())
        });
        running.result().await.expect("it ends");
    }
}
