//! The seam between services and wherever the configuration is kept.

use brindle_stdx::BoxFuture;
use brindle_stdx::watch;
use brindle_types::{Code, Fault, Result};

/// A value with its place in the order of all changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Key of the entry; `/`-separated, such as `fs/scratch/map`.
    pub key: String,
    /// Number of the change that wrote it; never 0, rises over the whole store.
    pub version: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// Outcome of a compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// Written, and durable; the entry's new version.
    Done(u64),
    /// Another writer was first. Holds the present version of the first key that differs (0: the key does not exist).
    Lost(u64),
}

/// Most writes that are made at once: etcd takes 128 operations in a transaction.
pub const WRITES_MAX: usize = 100;

/// A write of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Key of the entry.
    pub key: String,
    /// Version that it must have; 0: there must be no such key.
    pub expected_version: u64,
    /// The new value; `None` removes the key.
    pub value: Option<Vec<u8>>,
}

/// Keys and values that many processes agree on.
pub trait ConfigStore: Send + Sync {
    /// The entry of `key`.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>>>;

    /// Entries whose keys begin with `prefix`, in order of key.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Entry>>>;

    /// Makes all writes if each entry has the version that is expected, or none of them. At most [`WRITES_MAX`], each of another key. Durable when it
    /// returns; all entries get one version.
    fn swap_all(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Swap>>;

    /// Writes `value` (or removes the key with `None`) if its version is `expected_version` still; 0 means that there is
    /// no such key. Durable when it returns.
    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected_version: u64,
        value: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Swap>> {
        let (key, value) = (key.to_owned(), value.map(<[u8]>::to_vec));
        self.swap_all(vec![Write { key, expected_version, value }])
    }

    /// Tells of changes below `prefix` from now on.
    fn watch(&self, prefix: &str) -> Watch;
}

/// Refuses a group of writes that no store can make atomically.
pub(crate) fn check_writes(writes: &[Write]) -> Result<()> {
    let mut keys: Vec<&str> = writes.iter().map(|write| write.key.as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.len() == writes.len() && (1..=WRITES_MAX).contains(&keys.len()) {
        return Ok(());
    }
    Err(Fault::new(Code::BadArgument)
        .what("cannot write the configuration")
        .why(format!(
            "{} writes of {} keys; 1 to {WRITES_MAX} of different keys go together",
            writes.len(),
            keys.len()
        ))
        .data("nothing was changed"))
}

/// Tells that something below a prefix has changed; several changes may be told as one.
pub struct Watch {
    changes: watch::Receiver<u64>,
}

impl Watch {
    /// A watch fed by `changes`, whose value is the number of the last change below the prefix.
    pub fn new(mut changes: watch::Receiver<u64>) -> Watch {
        changes.borrow_and_update();
        Watch { changes }
    }

    /// Completes when something has changed since the last call (or since the watch was made). `false`: the store is
    /// gone, and nothing will change any more.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}
