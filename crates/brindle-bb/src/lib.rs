//! Burst buffers without I/O: the requests of jobs, the placement of buffers, and the life of a buffer.
//!
//! [`directive`] reads `#DW` and `#BB` lines of job scripts, [`pool`] divides bricks into slices, [`life`] is the life cycle of a buffer
//! as a state machine, [`simulate`] replays a trace of jobs against pools, [`answer`] is the JSON that Slurm's plug-in
//! `burst_buffer/datawarp` reads. The orchestrator in `brindle-host` runs
//! processes, mounts and copies as they say.
//!
//! Invariant: nothing here touches a disk, a clock or a process.

pub mod answer;
pub mod directive;
pub mod life;
pub mod pool;
pub mod simulate;
pub mod staging;

pub use directive::{Access, CopyEnd, CreateRequest, Entry, JobRequest, Transfer};
pub use life::{Action, Buffer, Goal, Passed, PersistentUse, Phase, Swap};
pub use pool::{Pool, Slice};
pub use staging::{Staging, StagingHost};
