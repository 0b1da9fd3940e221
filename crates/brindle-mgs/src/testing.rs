//! A store for tests whose answers are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brindle_config::store::{Entry, Swap, Watch};
use brindle_config::{ConfigStore, LocalStore, Superblock, Write};
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Result, TargetId};

/// A local store that carries a write out, and says that it could not be reached.
pub(crate) struct Forgetful {
    store: LocalStore,
    loses: AtomicBool,
}

impl Forgetful {
    /// An empty store, and its directory.
    pub(crate) fn new() -> (Arc<Forgetful>, tempfile::TempDir) {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store").to_str().unwrap().to_owned();
        let store = LocalStore::create(seams.disk, &path).unwrap();
        (Arc::new(Forgetful { store, loses: AtomicBool::new(false) }), dir)
    }

    /// The answer to the next write is lost.
    pub(crate) fn lose_next_answer(&self) {
        self.loses.store(true, Ordering::Release);
    }

    fn answered(&self, swap: Swap) -> Result<Swap> {
        match self.loses.swap(false, Ordering::AcqRel) {
            true => Err(Fault::new(Code::StoreUnreachable)),
            false => Ok(swap),
        }
    }
}

impl ConfigStore for Forgetful {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>>> {
        self.store.get(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Entry>>> {
        self.store.list(prefix)
    }

    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected_version: u64,
        value: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Swap>> {
        Box::pin(async move {
            let swap = self.store.compare_and_swap(key, expected_version, value).await?;
            self.answered(swap)
        })
    }

    fn swap_all(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Swap>> {
        Box::pin(async move {
            let swap = self.store.swap_all(writes).await?;
            self.answered(swap)
        })
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.store.watch(prefix)
    }
}

/// Superblock of an MGT.
pub(crate) fn superblock() -> Superblock {
    let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
    let fs = "scratch".parse().unwrap();
    Superblock::new(fs, TargetId::MGT, Vec::new(), seams.wall(), &*seams.rng)
}

/// Runs a test.
pub(crate) fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}
