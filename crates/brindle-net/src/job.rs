//! The job that a task works for, with which its requests to servers are tagged.
//!
//! The job is stored with the task rather than passed as an argument: a system call passes a hundred functions on its way to a request, and
//! most of them have nothing to do with jobs. A task that starts another one passes its job on with [`carry`].

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
