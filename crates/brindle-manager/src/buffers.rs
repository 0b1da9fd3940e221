//! Burst buffers: state of the orchestrator on this host, and requests to it. The manager reaches the orchestrator over its local socket,
//! as `brindle bb` does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brindle_admin::logs::{LogView, Query};
use brindle_bb::{Buffer, Pool};
use brindle_host::bb::protocol::{self, NodeState, Reply, Request, unexpected};
use brindle_host::bb::view::{BrickPoolView, BufferView};
use brindle_host::bb::{POOL_DEFAULT, logs};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{Mutex, Semaphore};

use crate::plan::{PlanView, capital, quoted};

/// Longest time for the orchestrator to report its state.
const TOLD_LIMIT: Duration = Duration::from_secs(5);

/// Longest time for the orchestrator and its agents to tell their logs.
const LOGS_LIMIT: Duration = Duration::from_secs(30);

/// Requests that wait until something is done.
const DOING_MAX: usize = 16;

/// Pools and buffers.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BurstBuffersView {
    /// Pools with their bricks, as in `brindle bb brick list -o json`.
    pub pools: Vec<BrickPoolView>,
    /// Buffers, as in `brindle bb list -o json`, with the names of their owners.
    pub buffers: Vec<OwnedBufferView>,
}

/// A buffer with the name of its owner.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OwnedBufferView {
    /// The buffer.
    #[serde(flatten)]
    pub buffer: BufferView,
    /// Name of the owner, or the number as text.
    pub user: String,
    /// How commands name this very buffer: `JOB.SERIAL`.
    pub name: String,
}

/// Request for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Copy the files of a kept buffer out.
    Retry,
    /// Give it another size.
    Resize(u64),
    /// Destroy it with all it holds.
    Destroy,
}

impl Ask {
    /// The word for the audit log.
    pub fn word(self) -> &'static str {
        match self {
            Ask::Retry => "retry",
            Ask::Resize(_) => "resize",
            Ask::Destroy => "destroy",
        }
    }

    fn request(self, name: &str) -> Request {
        match self {
            Ask::Retry => Request::Retry(name.to_owned()),
            Ask::Resize(bytes) => Request::Resize { name: name.to_owned(), bytes, only_grow: false },
            Ask::Destroy => Request::Drop(name.to_owned()),
        }
    }
}

/// Answers of the orchestrator about what there is.
struct BufferAnswers {
    buffers: Vec<Buffer>,
    pools: Vec<Pool>,
    nodes: Vec<NodeState>,
}

/// The way to the orchestrator of this host.
#[derive(Clone, Debug)]
pub struct Orchestrator {
    socket: PathBuf,
    /// Held while the orchestrator is asked for its state: an orchestrator that does not answer then keeps one thread, and not one for each
    /// browser.
    telling: Arc<Mutex<()>>,
    /// Permits of the threads that wait until a request is done, also where the task was given up.
    doing: Arc<Semaphore>,
}

/// A buffer by its name, `JOB.SERIAL`.
fn name(buffer: &Buffer) -> String {
    format!("{}.{}", buffer.token, buffer.serial)
}

impl Orchestrator {
    /// The one behind a socket.
    pub fn new(socket: PathBuf) -> Orchestrator {
        Orchestrator { socket, telling: Arc::default(), doing: Arc::new(Semaphore::new(DOING_MAX)) }
    }

    fn silent(&self, limit: Duration) -> Fault {
        Fault::new(Code::NoOrchestrator)
            .what("no answer from the orchestrator of burst buffers at")
            .subject(self.socket.display().to_string())
            .why(format!("it was silent for {} s", limit.as_secs()))
            .next("read its log; what it had begun goes on when it runs again")
    }

    /// Asks the orchestrator on a thread that may wait. If the future is dropped, the thread goes on to the end of its wait.
    async fn told(&self) -> Result<BufferAnswers> {
        let held = self.telling.clone().lock_owned();
        let held = tokio::time::timeout(TOLD_LIMIT, held).await.map_err(|_| self.silent(TOLD_LIMIT))?;
        let socket = self.socket.clone();
        let asking = tokio::task::spawn_blocking(move || {
            let _held = held;
            let buffers = match ask(&socket, &Request::List)? {
                Reply::Buffers(buffers) => buffers,
                other => return Err(unexpected(&other)),
            };
            let pools = match ask(&socket, &Request::Bricks)? {
                Reply::Bricks(pools) => pools,
                other => return Err(unexpected(&other)),
            };
            match ask(&socket, &Request::Nodes)? {
                Reply::Nodes(nodes) => Ok(BufferAnswers { buffers, pools, nodes }),
                other => Err(unexpected(&other)),
            }
        });
        let asked = tokio::time::timeout(TOLD_LIMIT, asking).await.map_err(|_| self.silent(TOLD_LIMIT))?;
        asked.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?
    }

    /// Pools and buffers; `user` tells the name of a user.
    pub async fn view(&self, user: impl Fn(u32) -> String) -> Result<BurstBuffersView> {
        let told = self.told().await?;
        let buffer = |buffer: &Buffer| OwnedBufferView {
            user: user(buffer.uid),
            name: name(buffer),
            buffer: BufferView::from(buffer),
        };
        Ok(BurstBuffersView {
            pools: told.pools.iter().map(|pool| BrickPoolView::from(pool).with_states(&told.nodes)).collect(),
            buffers: told.buffers.iter().map(buffer).collect(),
        })
    }

    /// Plan of an action on a buffer; nothing is changed.
    pub async fn plan(&self, named: &str, asked: Ask) -> Result<PlanView> {
        let BufferAnswers { buffers, pools, .. } = self.told().await?;
        let buffer = buffers.iter().find(|buffer| name(buffer) == named).ok_or_else(|| {
            Fault::new(Code::NoSuchBuffer).subject(named.to_owned()).data("nothing was changed")
        })?;
        let (would, effects, changes) = match asked {
            Ask::Retry => retry(buffer),
            Ask::Resize(bytes) => resize(buffer, bytes, &pools)?,
            Ask::Destroy => destroy(buffer),
        };
        let body = match asked {
            Ask::Resize(bytes) => format!("{{\"bytes\": {bytes}, \"dry_run\": false}}"),
            Ask::Retry | Ask::Destroy => "{\"dry_run\": false}".to_owned(),
        };
        Ok(PlanView {
            target: named.to_owned(),
            action: asked.word().to_owned(),
            would: capital(&would),
            effects,
            changes,
            command: self.command(named, asked),
            request: format!("POST /api/v1/buffers/{named}/{} {body}", asked.word()),
            task: None,
        })
    }

    fn command(&self, named: &str, asked: Ask) -> String {
        let named = quoted(named);
        let command = match asked {
            Ask::Retry => format!("brindle bb stage --retry {named}"),
            Ask::Resize(bytes) => format!("brindle bb resize {named} {}", size_word(bytes)),
            Ask::Destroy => format!("brindle bb destroy --yes {named}"),
        };
        self.with_socket(command)
    }

    fn with_socket(&self, command: String) -> String {
        match self.socket.as_path() == Path::new(protocol::SOCKET_DEFAULT) {
            true => command,
            false => format!("{command} --socket {}", quoted(&self.socket.display().to_string())),
        }
    }

    /// Plan to drain a brick, or to give it buffers again; nothing is changed.
    pub async fn plan_drain(&self, pool: &str, brick: &str, is_draining: bool) -> Result<PlanView> {
        let BufferAnswers { buffers, pools, .. } = self.told().await?;
        let found = pools.iter().find(|found| found.name == pool && found.bricks.contains_key(brick));
        let found = found.ok_or_else(|| {
            Fault::new(Code::BadArgument)
                .what("there is no brick")
                .subject(brick.to_owned())
                .why(format!("in the pool {pool}"))
                .data("nothing was changed")
                .next("list them: brindle bb brick list")
        })?;
        let has_part = |b: &&Buffer| b.pool == pool && b.slices.iter().any(|slice| slice.brick == brick);
        let on_it: Vec<String> = buffers.iter().filter(has_part).map(of).collect();
        let (would, effects) = drain(found, brick, is_draining, &on_it);
        let (verb, option) = if is_draining { ("drain", "") } else { ("undrain", " --stop") };
        let pool_option = match pool == POOL_DEFAULT {
            true => String::new(),
            false => format!(" --pool {}", quoted(pool)),
        };
        Ok(PlanView {
            target: brick.to_owned(),
            action: verb.to_owned(),
            would: capital(&would),
            effects,
            changes: found.draining.contains(brick) != is_draining,
            command: self
                .with_socket(format!("brindle bb brick drain{option}{pool_option} {}", quoted(brick))),
            request: format!("POST /api/v1/bricks/{pool}/{brick}/{verb} {{\"dry_run\": false}}"),
            task: None,
        })
    }

    /// Drains a brick, or gives it buffers again; what the orchestrator says of it.
    pub async fn drain(&self, pool: &str, brick: &str, is_draining: bool) -> Result<String> {
        let (pool, name) = (pool.to_owned(), brick.to_owned());
        self.ask_for(Request::DrainBrick { pool, name, is_draining }).await
    }

    /// Does it; what the orchestrator says of it. Dropped, the orchestrator goes on.
    pub async fn carry_out(&self, named: &str, asked: Ask) -> Result<String> {
        self.ask_for(asked.request(named)).await
    }

    /// Whether an orchestrator has been started on this host.
    pub fn is_here(&self) -> bool {
        self.socket.exists()
    }

    /// Lines of the logs of the orchestrator and its agents; of one host, if that is not empty.
    pub async fn logs(&self, host: &str, query: &Query) -> Result<LogView> {
        let permit = self.doing.clone().try_acquire_owned().map_err(|_| self.too_many())?;
        let (socket, host, query) = (self.socket.clone(), host.to_owned(), query.clone());
        let asking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut processes = logs::processes(&socket)?;
            processes.retain(|process| host.is_empty() || process.host == host);
            Ok(logs::read(&socket, &processes, &query, &mut logs::Read::default()))
        });
        let asked = tokio::time::timeout(LOGS_LIMIT, asking).await.map_err(|_| self.silent(LOGS_LIMIT))?;
        asked.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?
    }

    fn too_many(&self) -> Fault {
        Fault::new(Code::ManagerBusy)
            .what("cannot ask the orchestrator of burst buffers at")
            .subject(self.socket.display().to_string())
            .why(format!("{DOING_MAX} requests wait for it, with those of tasks that were given up"))
            .data("nothing was changed")
    }

    async fn ask_for(&self, request: Request) -> Result<String> {
        let socket = self.socket.clone();
        let permit = self.doing.clone().try_acquire_owned().map_err(|_| self.too_many())?;
        let asking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            ask(&socket, &request)
        });
        match asking.await.map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?? {
            Reply::Done(text) if text.is_empty() => Ok("done".to_owned()),
            Reply::Done(text) => Ok(text),
            other => Err(unexpected(&other)),
        }
    }
}

fn ask(socket: &Path, request: &Request) -> Result<Reply> {
    protocol::ask(socket, request, Duration::ZERO)
}

/// A size as commands take it.
fn size_word(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(shift, word)| format!("{}{word}", bytes >> shift))
}

fn of(buffer: &Buffer) -> String {
    match buffer.persistent {
        true => format!("the persistent buffer {}", buffer.token),
        false => format!("the buffer of job {}", buffer.token),
    }
}

fn drain(pool: &Pool, brick: &str, is_draining: bool, on_it: &[String]) -> (String, Vec<String>) {
    let of_pool = format!("brick {brick} of pool {}", pool.name);
    match (is_draining, pool.draining.contains(brick)) {
        (true, true) => (format!("{of_pool} gets no new buffers already"), Vec::new()),
        (false, false) => (format!("{of_pool} gets new buffers already"), Vec::new()),
        (false, true) => (format!("{of_pool} would get new buffers again"), Vec::new()),
        (true, false) => {
            let mut effects = vec![match on_it.is_empty() {
                true => "Nothing lies on it: it can be removed then.".to_owned(),
                false => format!("A part of it stays with {}, until they end.", on_it.join(", ")),
            }];
            let others = pool.bricks.keys().filter(|name| *name != brick && !pool.draining.contains(*name));
            if others.count() == 0 {
                effects.push("No other brick takes new buffers: jobs wait until one does.".to_owned());
            }
            (format!("{of_pool} would get no new buffers"), effects)
        }
    }
}

fn retry(buffer: &Buffer) -> (String, Vec<String>, bool) {
    if !buffer.is_pending() {
        return (format!("Nothing of {} waits to be staged out", of(buffer)), Vec::new(), false);
    }
    let mut effects: Vec<String> = buffer
        .stage_out
        .iter()
        .map(|transfer| format!("/{} goes to {}", transfer.inside, transfer.outside))
        .collect();
    effects.push(
        "Files that are there already, with the same time and contents, are not copied again.".to_owned(),
    );
    if buffer.torn_down {
        effects.push("When all are out the buffer is destroyed.".to_owned());
    }
    (format!("The files of {} would be staged out again", of(buffer)), effects, true)
}

fn resize(buffer: &Buffer, bytes: u64, pools: &[Pool]) -> Result<(String, Vec<String>, bool)> {
    if bytes == 0 {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot give a buffer the size")
            .subject("0")
            .data("nothing was changed")
            .next("to give it up, destroy it"));
    }
    let granule =
        pools.iter().find(|pool| pool.name == buffer.pool).map_or(1, |pool| pool.granule_bytes.max(1));
    let wanted = bytes.div_ceil(granule).saturating_mul(granule);
    let (before, after) = (format_bytes(buffer.bytes), format_bytes(wanted));
    if wanted == buffer.bytes {
        return Ok((format!("{} has {before} already", of(buffer)), Vec::new(), false));
    }
    let free = pools.iter().find(|pool| pool.name == buffer.pool);
    let free = free.map_or(0, |pool| pool.free_granules() * pool.granule_bytes);
    let mut effects = vec!["Nothing is unmounted, and nothing is copied.".to_owned()];
    effects.push(match wanted > buffer.bytes {
        true => format!("The pool {} has {} free now.", buffer.pool, format_bytes(free)),
        false => "It is refused where more than that is in use; files are never removed for it.".to_owned(),
    });
    Ok((format!("{} would have {after} instead of {before}", of(buffer)), effects, true))
}

fn destroy(buffer: &Buffer) -> (String, Vec<String>, bool) {
    let mut effects = vec![format!(
        "Everything in it is lost, and nobody can bring it back: up to {}.",
        format_bytes(buffer.bytes)
    )];
    if buffer.is_pending() {
        let files: Vec<&str> = buffer.stage_out.iter().map(|transfer| transfer.outside.as_str()).collect();
        effects.push(format!(
            "It holds the only copy of files that were to be staged out to {}. Retry the stage-out first if they are wanted.",
            files.join(", ")
        ));
    }
    if !buffer.nodes.is_empty() {
        effects.push(format!("It is mounted on {}: programs there lose it.", buffer.nodes.join(", ")));
    }
    if !buffer.users.is_empty() {
        effects
            .push(format!("Jobs use it: {}. It is refused until they have ended.", buffer.users.join(", ")));
    }
    (format!("{} would be destroyed", of(buffer)), effects, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_words_of_commands() {
        assert_eq!(size_word(20 << 30), "20GiB");
        assert_eq!(size_word(1 << 40), "1TiB");
        assert_eq!(size_word((1 << 30) + (16 << 20)), "1040MiB");
        assert_eq!(size_word(1), "1");
    }

    #[tokio::test]
    async fn an_orchestrator_that_does_not_run_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let orchestrator = Orchestrator::new(dir.path().join("bb.sock"));
        let fault = orchestrator.view(|uid| uid.to_string()).await.unwrap_err();
        assert_eq!(fault.code, Code::NoOrchestrator);
        let fault = orchestrator.plan("7.1", Ask::Destroy).await.unwrap_err();
        assert_eq!(fault.code, Code::NoOrchestrator);
    }
}
