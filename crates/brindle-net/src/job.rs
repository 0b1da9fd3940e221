//! The job that a task works for, with which its requests to servers are tagged; and at a server the times of the request that it serves.
//!
//! Both are stored with the task rather than passed as arguments: a system call passes a hundred functions on its way to a request, and
//! most of them have nothing to do with jobs. A task that starts another one passes its job on with [`carry`].

use std::sync::Arc;

use brindle_wire::job::JobTag;

use crate::trace::Spans;

/// What a task works for.
#[derive(Clone, Default)]
struct Work {
    job: Option<JobTag>,
    /// Times of the request, if it is traced.
    spans: Option<Arc<Spans>>,
}

tokio::task_local! {
    static WORK: Work;
}

/// The job of the task that asks; `None` where it works for none.
pub fn current() -> Option<JobTag> {
    WORK.try_with(|work| work.job).ok().flatten()
}

/// Times of the request of this task; `None` where it is not traced.
pub(crate) fn spans() -> Option<Arc<Spans>> {
    WORK.try_with(|work| work.spans.clone()).ok().flatten()
}

/// Runs `work` for a job.
pub fn with<F: Future>(job: Option<JobTag>, work: F) -> impl Future<Output = F::Output> {
    with_spans(job, None, work)
}

/// Runs the work of a request, for a job; `spans`: its times, if it is traced.
pub(crate) fn with_spans<F: Future>(
    job: Option<JobTag>,
    spans: Option<Arc<Spans>>,
    work: F,
) -> impl Future<Output = F::Output> {
    WORK.scope(Work { job, spans }, work)
}

/// `work` for the job of the task that calls this, wherever it runs.
pub fn carry<F: Future>(work: F) -> impl Future<Output = F::Output> {
    with(current(), work)
}
