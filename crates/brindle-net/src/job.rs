//! The job that a task works for: what it asks of servers is tagged with it.
//!
//! The job belongs to the task, and is not an argument of every call, because what a program asked for passes a hundred functions on its way to
//! a request, most of which have nothing to do with jobs. A task that is started for another one takes its job along with [`carry`].

use brindle_wire::job::JobTag;

tokio::task_local! {
    static JOB: Option<JobTag>;
}

/// The job of the task that asks; `None` where it works for none.
pub fn current() -> Option<JobTag> {
    JOB.try_with(|job| *job).ok().flatten()
}

/// Runs `work` for a job.
pub fn with<F: Future>(job: Option<JobTag>, work: F) -> impl Future<Output = F::Output> {
    JOB.scope(job, work)
}

/// `work` for the job of the task that calls this, wherever it runs.
pub fn carry<F: Future>(work: F) -> impl Future<Output = F::Output> {
    with(current(), work)
}
