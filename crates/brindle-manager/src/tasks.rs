//! Tasks: actions that are being carried out, and those that were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_admin::document::FaultView;
use brindle_stdx::Clock;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::PlanView;

/// Most tasks that are kept.
pub const KEPT_MAX: usize = 64;
/// Most tasks that run at once.
pub const RUNNING_MAX: usize = 8;
/// Most lines of progress that are kept of a task.
const LINES_MAX: usize = 50;

/// A task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskView {
    /// Its number, since the manager was started.
    pub id: u64,
    /// What was asked for: `start`, `failover`, `archive`, `destroy` and so on.
    pub action: String,
    /// The target, buffer, path or policy that it is done to.
    pub target: String,
    /// Who asked for it.
    pub user: String,
    /// `running`, `done` or `failed`.
    pub state: &'static str,
    /// When it began, seconds since 1970.
    pub began_s: i64,
    /// When it ended, seconds since 1970.
    pub ended_s: Option<i64>,
    /// Its progress, the last line last.
    pub lines: Vec<String>,
    /// Why it failed.
    pub fault: Option<FaultView>,
    /// The command that does the same.
    pub command: String,
    /// Whether it can be given up.
    pub can_cancel: bool,
}

/// All tasks.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TasksView {
    /// The newest first.
    pub tasks: Vec<TaskView>,
}

/// The tasks of a manager.
pub struct Tasks {
    clock: Arc<dyn Clock>,
    tasks: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    last: u64,
    tasks: VecDeque<TaskView>,
    /// Those that can be given up and run, by number.
    cancels: BTreeMap<u64, Arc<AtomicBool>>,
}

impl Tasks {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Tasks {
        Tasks { clock, tasks: Mutex::default() }
    }

    /// Begins a task, if nothing else is being done to the same; its number.
    pub fn begin(&self, view: &PlanView, user: &str, can_cancel: bool) -> Result<u64> {
        let mut kept = self.tasks.lock();
        let running = || kept.tasks.iter().filter(|task| task.state == "running");
        let busy = Fault::new(Code::ManagerBusy)
            .what("cannot")
            .subject(format!("{} {}", view.action, view.target))
            .data("nothing was changed");
        if let Some(other) = running().find(|task| task.target == view.target) {
            return Err(busy.why(format!(
                "task {} works on it: {}, asked for by {}",
                other.id, other.action, other.user
            )));
        }
        if running().count() >= RUNNING_MAX {
            return Err(busy.why(format!("{RUNNING_MAX} tasks run")));
        }
        if kept.tasks.len() >= KEPT_MAX
            && let Some(ended) = kept.tasks.iter().position(|task| task.state != "running")
        {
            kept.tasks.remove(ended);
        }
        kept.last += 1;
        let id = kept.last;
        kept.tasks.push_back(TaskView {
            id,
            action: view.action.clone(),
            target: view.target.clone(),
            user: user.to_owned(),
            state: "running",
            began_s: self.clock.wall().secs,
            ended_s: None,
            lines: Vec::new(),
            fault: None,
            command: view.command.clone(),
            can_cancel,
        });
        if can_cancel {
            kept.cancels.insert(id, Arc::default());
        }
        Ok(id)
    }

    /// Adds a line of progress.
    pub fn progress(&self, id: u64, line: String) {
        self.change(id, |task| {
            if task.lines.last() == Some(&line) {
                return;
            }
            if task.lines.len() >= LINES_MAX {
                task.lines.remove(0);
            }
            task.lines.push(line);
        });
    }

    /// Whether a task was given up.
    pub fn is_cancelled(&self, id: u64) -> bool {
        self.tasks.lock().cancels.get(&id).is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    /// Gives a task up; it ends soon.
    pub fn cancel(&self, id: u64) -> Result<()> {
        match self.tasks.lock().cancels.get(&id) {
            Some(cancel) => cancel.store(true, Ordering::Relaxed),
            None => {
                return Err(Fault::new(Code::UnknownResource)
                    .what("cannot give up")
                    .subject(format!("task {id}"))
                    .why("it does not run, or goes on to its end once it has begun")
                    .data("nothing was changed"));
            }
        }
        Ok(())
    }

    /// Ends a task.
    pub fn end(&self, id: u64, outcome: &Result<String>) {
        let now_s = self.clock.wall().secs;
        match outcome {
            Ok(line) => self.progress(id, line.clone()),
            Err(fault) => self.change(id, |task| task.fault = Some(FaultView::from(fault))),
        }
        self.tasks.lock().cancels.remove(&id);
        self.change(id, |task| {
            task.can_cancel = false;
            task.ended_s = Some(now_s);
            task.state = if outcome.is_ok() { "done" } else { "failed" };
        });
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut TaskView)) {
        if let Some(task) = self.tasks.lock().tasks.iter_mut().find(|task| task.id == id) {
            change(task);
        }
    }

    /// All of them, the newest first.
    pub fn view(&self) -> TasksView {
        TasksView { tasks: self.tasks.lock().tasks.iter().rev().cloned().collect() }
    }
}
