//! Drain of an OST: the OST gets no new files, and its files move to other OSTs while programs use them.
//!
//! The MGS notes that the OST is drained, the MDT finds the files, and each file is moved piece by piece. A job that was cut short
//! leaves whole files; a repeated request continues it.

use brindle_types::{Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mds::scan::{Term, Test};
use schemars::JsonSchema;
use serde::Serialize;

use crate::job::Job;
use crate::migrate::Plan;
use crate::moving::{Mover, WholeMount, Work};
use crate::servers::Servers;

/// Times that all files are looked for; files that come in between were laid out before the MDT knew.
const ROUNDS_MAX: usize = 8;

/// Request to empty an OST that the map has as drained.
#[derive(Clone)]
pub struct Drain {
    /// The map.
    pub map: Map,
    /// The OST.
    pub ost: u16,
    /// A mount of all of the file system.
    pub whole: WholeMount,
    /// Most bytes a second.
    pub bandwidth_bytes: Option<u64>,
}

/// Outcome of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Drained {
    /// The OST, by its full name.
    pub target: String,
    /// Files that were moved.
    pub files: u64,
    /// Bytes that were copied for it.
    pub copied_bytes: u64,
    /// Files that could not be moved.
    pub failed: u64,
    /// Files on it that have no name any more, and that programs have open.
    pub nameless: u64,
    /// Whether no file is left on it.
    pub empty: bool,
}
document!(Drained, "brindle.target.drain", 1);

impl Drain {
    /// Moves everything off the OST.
    pub async fn run(self, servers: Servers, job: Job) -> Result<Drained> {
        let mut mover = Mover::new(&job, &self.whole, self.bandwidth_bytes);
        let plan = Plan { policy: None, avoid: vec![self.ost] };
        let mut empty = false;
        for _ in 0..ROUNDS_MAX {
            let files = mover.files(vec![Term::Test(Test::Ost(vec![self.ost]))]).await?;
            empty = files.is_empty();
            mover.work.failed = 0;
            for file in &files {
                mover.move_file(file, &plan).await?;
            }
            if empty || mover.work.failed > 0 {
                break;
            }
        }
        let Work { files, copied_bytes, failed } = mover.work.clone();
        let target = self.map.fs.target(TargetId::ost(self.ost));
        let mut drained = Drained { target, files, copied_bytes, failed, nameless: 0, empty };
        if empty {
            let left = servers.ost_use(&self.map, self.ost).await?;
            drained.nameless = left.nameless;
            drained.empty = left.files == 0;
        }
        Ok(drained)
    }
}
