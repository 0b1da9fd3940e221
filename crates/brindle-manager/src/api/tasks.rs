//! Tasks: requests that take time.

use std::sync::Arc;

use brindle_types::{Code, Fault, Result};

use super::{Call, Nothing};
use crate::Manager;
use crate::plan::PlanView;
use crate::tasks::{Room, TasksView};

/// All tasks.
pub async fn list(call: Arc<Call>, _: Nothing) -> Result<TasksView> {
    Ok(call.manager.tasks.view())
}

/// Gives a task up.
pub async fn cancel(call: Arc<Call>, _: Nothing) -> Result<TasksView> {
    let (manager, text) = (&call.manager, call.param("id"));
    let id: u64 = text.parse().map_err(|_| {
        Fault::new(Code::UnknownResource).what("there is no task with the number").subject(text.to_owned())
    })?;
    manager.audit.note(&call.doer(), "task.cancel", text, "accepted", None)?;
    manager.tasks.cancel(id)?;
    Ok(manager.tasks.view())
}

/// A task that runs, as its work sees it.
#[derive(Clone)]
pub struct Progress {
    manager: Arc<Manager>,
    id: u64,
}

impl Progress {
    /// The manager.
    pub fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// Tells how far it is.
    pub fn tell(&self, line: String) {
        self.manager.tasks.progress(self.id, line);
        self.manager.tell_tasks();
    }

    /// Ends when it is given up.
    pub async fn cancelled(&self) {
        self.manager.tasks.cancelled(self.id).await;
    }
}

/// Begins a task: noted in the audit log before it is begun, and when it has ended. The plan, with the number of the task.
pub fn begin<W, F>(
    call: &Call,
    view: PlanView,
    noted: String,
    room: Room,
    can_cancel: bool,
    work: W,
) -> Result<PlanView>
where
    W: FnOnce(Progress) -> F,
    F: Future<Output = Result<String>> + Send + 'static,
{
    let (manager, doer) = (call.manager.clone(), call.doer());
    let id = manager.tasks.begin(&view, &doer.user, room, can_cancel)?;
    if let Err(fault) = manager.audit.note(&doer, &noted, &view.target, "accepted", None) {
        manager.tasks.end(id, &Err(fault.clone()));
        return Err(fault);
    }
    manager.tell_tasks();
    let working = work(Progress { manager: manager.clone(), id });
    let subject = view.target.clone();
    tokio::spawn(async move {
        // A task that panics has ended, too.
        let outcome = tokio::spawn(working).await;
        let outcome = outcome.unwrap_or_else(|e| Err(Fault::new(Code::Bug).why(e.to_string())));
        let (word, code) = match &outcome {
            Ok(_) => ("done", None),
            Err(fault) => ("failed", Some(fault.code)),
        };
        manager.tasks.end(id, &outcome);
        manager.tell_tasks();
        if let Err(fault) = manager.audit.note(&doer, &noted, &subject, word, code) {
            tracing::error!(code = %fault.code, "{fault}");
        }
    });
    Ok(PlanView { task: Some(id), ..view })
}

/// Does a change that is done when it is answered: noted in the audit log before it, and its outcome after it, also when whoever asked
/// has gone away.
pub async fn at_once<T: Send + 'static>(
    call: &Call,
    noted: &'static str,
    subject: String,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (manager, doer) = (call.manager.clone(), call.doer());
    manager.audit.note(&doer, noted, &subject, "accepted", None)?;
    let doing = tokio::spawn(async move {
        let outcome = work.await;
        let (word, code) = match &outcome {
            Ok(_) => ("done", None),
            Err(fault) => ("failed", Some(fault.code)),
        };
        if let Err(fault) = manager.audit.note(&doer, noted, &subject, word, code) {
            tracing::error!(code = %fault.code, "{fault}");
        }
        outcome
    });
    doing.await.unwrap_or_else(|e| Err(Fault::new(Code::Bug).why(e.to_string())))
}
