//! Tasks: actions that are being carried out, and past ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use brindle_admin::document::FaultView;
use brindle_stdx::Clock;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::watch;

use crate::plan::PlanView;

/// Most tasks that are kept.
pub const KEPT_MAX: usize = 64;
/// Most tasks that run at once, those on targets apart.
pub const RUNNING_MAX: usize = 8;
/// Most tasks on targets that run at once: tasks that wait for a dead target take none of the room of what mends it.
pub const TARGETS_RUNNING_MAX: usize = 8;
/// Most lines of progress that are kept of a task.
const LINES_MAX: usize = 50;

/// A task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TaskView {
    /// Number, counted since the manager was started.
    pub id: u64,
    /// Name of the action: `start`, `failover`, `archive`, `destroy` and so on.
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
    /// Progress, the last line last.
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

/// With whom a task shares the room for those that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Starts, stops and moves targets.
    Targets,
    /// Everything else.
    Files,
}

impl Room {
    fn most(self) -> usize {
        match self {
            Room::Targets => TARGETS_RUNNING_MAX,
            Room::Files => RUNNING_MAX,
        }
    }
}

/// The tasks of a manager.
pub struct Tasks {
    clock: Arc<dyn Clock>,
    tasks: Mutex<StoredTask>,
}

#[derive(Default)]
struct StoredTask {
    last: u64,
    tasks: VecDeque<TaskView>,
    /// Tasks that run and can be given up, by number.
    cancels: BTreeMap<u64, watch::Sender<bool>>,
    /// Tasks that run, by number.
    running: BTreeMap<u64, Room>,
}

impl Tasks {
    /// An empty table.
    pub fn new(clock: Arc<dyn Clock>) -> Tasks {
        Tasks { clock, tasks: Mutex::default() }
    }

    /// Begins a task, if nothing else is being done to the same; its number.
    pub fn begin(&self, view: &PlanView, user: &str, room: Room, can_cancel: bool) -> Result<u64> {
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
        let most = room.most();
        if kept.running.values().filter(|other| **other == room).count() >= most {
            return Err(busy.why(format!("{most} tasks run")).next("wait for one, or give one up"));
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
            kept.cancels.insert(id, watch::Sender::new(false));
        }
        kept.running.insert(id, room);
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

    /// Ends when a task is given up; never for one that ends before.
    pub async fn cancelled(&self, id: u64) {
        let watched = self.tasks.lock().cancels.get(&id).map(watch::Sender::subscribe);
        if let Some(mut watched) = watched
            && watched.wait_for(|is_cancelled| *is_cancelled).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }

    /// Gives a task up; it ends soon.
    pub fn cancel(&self, id: u64) -> Result<()> {
        match self.tasks.lock().cancels.get(&id) {
            Some(cancel) => drop(cancel.send_replace(true)),
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
        {
            let mut kept = self.tasks.lock();
            kept.cancels.remove(&id);
            kept.running.remove(&id);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_stdx::real;

    fn view(target: &str) -> PlanView {
        PlanView {
            target: target.to_owned(),
            action: "archive".to_owned(),
            would: String::new(),
            effects: Vec::new(),
            changes: true,
            command: String::new(),
            request: String::new(),
            task: None,
        }
    }

    #[tokio::test]
    async fn tasks_that_wait_for_a_target_leave_room_for_what_mends_it() {
        let tasks = Tasks::new(real::seams(tokio::runtime::Handle::current()).clock);
        let begin = |target: String, room| tasks.begin(&view(&target), "ann", room, true);
        let first = begin("0".to_owned(), Room::Files).unwrap();
        for n in 1..RUNNING_MAX {
            begin(n.to_string(), Room::Files).unwrap();
        }
        assert_eq!(begin("more".to_owned(), Room::Files).unwrap_err().code, Code::ManagerBusy);
        begin("x-MDT0000".to_owned(), Room::Targets).unwrap();
        tasks.cancel(first).unwrap();
        tasks.cancelled(first).await;
        tasks.end(first, &Ok("given up".to_owned()));
        assert!(tasks.cancel(first).is_err());
        begin("more".to_owned(), Room::Files).unwrap();
    }
}
