//! Requests of `dacctl` and `brindle bb` to the orchestrator: one line of JSON there, one back, over a local socket.
//!
//! Every request can be repeated. If the orchestrator ended in between, the caller therefore asks again until its patience is over.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brindle_bb::answer::{Instances, Pools, RealSize, Sessions};
use brindle_bb::{Buffer, CreateRequest, JobRequest, Pool, Swap};
use brindle_types::{Code, Fault, Result};
use brindle_wire::log_level::{LogLevelReq, LogLevelResp};
use brindle_wire::log_lines::{LogLinesReq, LogLinesResp};
use serde::{Deserialize, Serialize};

/// Where the orchestrator listens unless told otherwise.
pub const SOCKET_DEFAULT: &str = "/run/brindle/bb.sock";
/// Environment variable that says where it listens.
pub const SOCKET_VARIABLE: &str = "BRINDLE_BB_SOCKET";
/// Longest line.
pub const LINE_MAX_BYTES: u64 = 8 << 20;
/// Time between two tries to reach it.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// A question to the orchestrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The pools, for Slurm.
    Pools,
    /// The buffers, for Slurm.
    Instances,
    /// The owners of the buffers, for Slurm.
    Sessions,
    /// Whether a job could ever get what it asks for.
    Check(JobRequest),
    /// A buffer for a job.
    Setup(Setup),
    /// Copies the files of a job in.
    DataIn(String),
    /// Size of the buffer of a job.
    RealSize(String),
    /// Where the job sees its buffer.
    Paths(String),
    /// Mounts the buffer of a job on nodes.
    PreRun(String, Vec<String>),
    /// Unmounts it.
    PostRun(String),
    /// Copies the files of a job out.
    DataOut(String),
    /// Destroys the buffer of a job.
    Teardown {
        /// The job.
        token: String,
        /// Without waiting for files to be copied out.
        hurry: bool,
    },
    /// All buffers; of ordinary users, their own.
    List,
    /// Copies the files of a kept buffer out.
    Retry(String),
    /// Destroys a buffer with all it holds.
    Drop(String),
    /// Changes the size of a buffer.
    Resize {
        /// Job or name of the buffer, or the path at which a job finds the buffer.
        name: String,
        /// The size.
        bytes: u64,
        /// If set, a larger buffer stays as it is.
        only_grow: bool,
    },
    /// A persistent buffer.
    CreatePersistent(Create),
    /// The pools with their bricks.
    Bricks,
    /// Adds a brick to a pool.
    AddBrick {
        /// The pool.
        pool: String,
        /// Name of the brick.
        name: String,
        /// Directory of the brick.
        dir: String,
        /// Capacity of the brick.
        bytes: u64,
        /// Host of the brick; `None`: the orchestrator's own.
        #[serde(default)]
        node: Option<String>,
    },
    /// Removes a brick from a pool.
    RemoveBrick {
        /// The pool.
        pool: String,
        /// Name of the brick.
        name: String,
        /// The brick's disk is gone: nobody confirms any more that the brick is empty.
        lost: bool,
    },
    /// Keeps new slices out of a brick, or lets them in again.
    DrainBrick {
        /// The pool.
        pool: String,
        /// Name of the brick.
        name: String,
        /// Keep them out.
        is_draining: bool,
    },
    /// The compute nodes.
    Nodes,
    /// A compute node is dead: nothing waits for it any longer.
    ForgetNode(String),
    /// Lines of the log of the orchestrator, or of an agent.
    LogLines {
        /// Node of the agent; `None`: the orchestrator.
        node: Option<String>,
        /// The lines.
        lines: LogLinesReq,
    },
    /// The level of the log of the orchestrator, or of an agent.
    LogLevel {
        /// Node of the agent; `None`: the orchestrator.
        node: Option<String>,
        /// The level.
        level: LogLevelReq,
    },
}

/// A request for a buffer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The job.
    pub token: String,
    /// Owner.
    pub uid: u32,
    /// Group of the owner.
    pub gid: u32,
    /// The pool.
    pub pool: String,
    /// Size of the buffer.
    pub bytes: u64,
    /// The job script's directives.
    pub request: JobRequest,
    /// Whether the orchestrator makes and destroys the persistent buffers that the script names: Slurm's plug-in `burst_buffer/lua` does
    /// not ask for them by itself, and counts their capacity as the job's.
    #[serde(default)]
    pub makes_persistent: bool,
    /// Nodes that the job will have, as far as it is known.
    #[serde(default)]
    pub nodes: Option<u64>,
}

impl Setup {
    /// Swap of the job.
    pub fn swap(&self) -> Option<Swap> {
        let bytes = self.request.swap.as_ref()?.bytes;
        Some(Swap { bytes, nodes: self.nodes.unwrap_or(1).max(1), beside_bytes: self.beside_bytes() })
    }

    /// Bytes for the files of the job.
    fn beside_bytes(&self) -> u64 {
        let written = self.request.bytes.unwrap_or(0);
        // Slurm adds the number in the line of swap, without its unit.
        let is_written = self.makes_persistent || self.request.swap.is_some();
        if is_written { written } else { self.bytes.max(written) }
    }

    /// Bytes of the job's own buffer.
    pub fn wanted_bytes(&self) -> u64 {
        self.beside_bytes().saturating_add(self.swap().map_or(0, |swap| swap.all_bytes()))
    }

    /// The pool that the buffer lies in.
    pub fn pool(&self) -> &str {
        match self.wanted_bytes() {
            0 => super::POOL_DEFAULT,
            _ if self.makes_persistent => self.request.pool.as_deref().unwrap_or(super::POOL_DEFAULT),
            _ => &self.pool,
        }
    }

    /// A persistent buffer of the user of this job.
    pub fn create(&self, create: &CreateRequest) -> Create {
        Create {
            name: create.name.clone(),
            uid: self.uid,
            gid: self.gid,
            pool: create.pool.clone().unwrap_or_else(|| super::POOL_DEFAULT.to_owned()),
            bytes: create.bytes,
            group: create.group.clone(),
        }
    }
}

/// A request for a persistent buffer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Create {
    /// Name of the buffer.
    pub name: String,
    /// Owner.
    pub uid: u32,
    /// Group of the owner.
    pub gid: u32,
    /// The pool.
    pub pool: String,
    /// Size of the buffer.
    pub bytes: u64,
    /// Group whose members may use it, too: a name or a number.
    pub group: Option<String>,
}

/// An answer of the orchestrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The request is done. The text, which may be empty, is for people.
    Done(String),
    /// Answer to `Pools`.
    Pools(Pools),
    /// Answer to `Instances`.
    Instances(Instances),
    /// Answer to `Sessions`.
    Sessions(Sessions),
    /// Answer to `RealSize`.
    RealSize(RealSize),
    /// Answer to `Paths`, of an orchestrator of the release before.
    Path(String),
    /// Answer to `Paths`: names and values of the job's variables.
    Variables(Vec<(String, String)>),
    /// Answer to `List`.
    Buffers(Vec<Buffer>),
    /// Answer to `Bricks`.
    Bricks(Vec<Pool>),
    /// Answer to `Nodes`.
    Nodes(Vec<NodeState>),
    /// Answer to `LogLines`.
    LogLines(LogLinesResp),
    /// Answer to `LogLevel`.
    LogLevel(LogLevelResp),
}

/// A compute node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeState {
    /// Name of the node.
    pub name: String,
    /// The address that its agent called from last; empty of the orchestrator's own host.
    pub address: String,
    /// `local`, `up`, `silent`, `away` or `forgotten`.
    pub state: String,
    /// Jobs that may have something mounted there.
    pub buffers: Vec<String>,
    /// Why its agent takes no orders; empty where it does.
    #[serde(default)]
    pub reason: String,
}

/// The socket that was asked for, or the usual one.
pub fn socket(given: Option<&Path>) -> PathBuf {
    given.map_or_else(|| PathBuf::from(SOCKET_DEFAULT), Path::to_owned)
}

/// Asks the orchestrator; where it ends meanwhile, or does not run, tries again for as long as `patience`.
pub fn ask(socket: &Path, request: &Request, patience: Duration) -> Result<Reply> {
    let deadline = Instant::now() + patience;
    loop {
        match ask_once(socket, request) {
            Ok(outcome) => return outcome,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied || Instant::now() >= deadline => {
                return Err(Fault::io(
                    Code::NoOrchestrator,
                    "no answer from the orchestrator of burst buffers at",
                    socket.display().to_string(),
                    &e,
                )
                .data("what it had begun goes on when it runs again"));
            }
            // No event tells when an orchestrator listens again; the deadline ends the loop.
            Err(_) => std::thread::sleep(TRY_AGAIN),
        }
    }
}

fn ask_once(socket: &Path, request: &Request) -> std::io::Result<Result<Reply>> {
    let mut stream = UnixStream::connect(socket)?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream.take(LINE_MAX_BYTES)).read_line(&mut answer)?;
    if !answer.ends_with('\n') {
        return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "it ended before it answered"));
    }
    Ok(serde_json::from_str(&answer)?)
}

/// An answer that does not belong to the question.
pub fn unexpected(reply: &Reply) -> Fault {
    Fault::new(Code::Bug)
        .what("the orchestrator answers something else than was asked:")
        .subject(format!("{reply:?}"))
}
