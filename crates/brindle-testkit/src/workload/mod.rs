//! Work of clients in a simulated cluster, and the checks of it afterwards.
//!
//! | module | does | checks |
//! |---|---|---|
//! | [`tree`] | everything POSIX, in a subtree of its own | exact model; after faults, one of the states allowed |
//! | [`blocks`] | reads and writes of shared files | each block is the last write, or one that may have come later |
//! | [`brief`] | makes, fills and removes files | names, contents and numbers after power cuts |
//! | [`log`] | appends of all clients to one file | each once, in order, none lost |
//! | [`shared`] | races for names in one directory | one winner, renames atomic |
//! | [`stamps`] | changes of a name and a size that all others look at | whoever looks afterwards sees them |
//! | [`shelf`] | small files that all read one after the other, and write now and then | whoever opens one reads what was flushed |
//! | [`locks`] | critical sections under a lock | one at a time, nothing written by who lost the lock |
//!
//! Each module runs as one task a client. State that must survive the death of the client lies outside the node.

pub mod blocks;
pub mod brief;
pub mod locks;
pub mod log;
pub mod shared;
pub mod shelf;
pub mod stamps;
pub mod tree;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_client::{Client, Ctx};
use brindle_types::{Code, Fault, Ino};

use crate::history::{End, History};
use crate::pages::PageCache;
use crate::sim::NodeSeams;

/// An incarnation of a client and what its tasks need.
#[derive(Clone)]
pub struct Life {
    /// Number of the client.
    pub index: usize,
    /// Number of its incarnation, from 1.
    pub number: u64,
    /// Node of the life.
    pub node: NodeSeams,
    /// The caller of everything.
    pub ctx: Ctx,
    /// Mount of the life.
    pub client: Arc<Client>,
    /// Pages that its kernel keeps.
    pub pages: PageCache,
    /// The witness.
    pub history: History,
    /// Set when all clients are to come to an end.
    pub stop: Arc<AtomicBool>,
}

impl Life {
    /// Whether to come to an end.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A random number below `n`.
    pub fn below(&self, n: u64) -> u64 {
        self.node.seams.rng.next_u64() % n
    }

    /// Pauses for up to `ms`.
    pub async fn pause(&self, ms: u64) {
        self.node.seams.sleep_ms(self.below(ms)).await;
    }

    /// Runs an operation that is noted in the history.
    pub async fn note<T>(
        &self,
        what: String,
        op: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        self.history.note(&self.node.name, self.number, what, op).await
    }

    /// Finds a path made by [`crate::run`], however long that takes.
    pub async fn find(&self, path: &str) -> Ino {
        loop {
            let id = self.history.begin(&self.node.name, self.number, format!("find {path}"));
            let found = self.client.lookup_path(path).await;
            self.history.end(id, if found.is_ok() { End::Ok } else { End::Unknown });
            match found {
                Ok(attr) => return attr.ino,
                Err(fault) if fault.code == Code::NotFound => {
                    self.history.violation(format!("I1: {path} was made and synced, and is gone"));
                    std::future::pending::<()>().await;
                }
                Err(_) => self.node.seams.sleep_ms(100).await,
            }
        }
    }
}
