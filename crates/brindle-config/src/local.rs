//! The config store of one node: one file over a `Disk`, replaced atomically at every change.
//!
//! Changes are rare (a target comes, an address changes) and the whole store is small, so it is read into memory at
//! the start and written whole. Invariant: readers see only what is on disk; after a failed write they see the former
//! contents.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use brindle_stdx::disk::{read_file, replace_file};
use brindle_stdx::watch;
use brindle_stdx::{BoxFuture, Disk};
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::envelope::{self, Unreadable};
use crate::store::{ConfigStore, Entry, Swap, Watch, Write, check_writes};

/// First bytes of the file.
const MAGIC: &[u8; 8] = b"BRDLCONF";
/// Format that this release writes.
const FORMAT_VERSION: u32 = 1;
/// Largest file that is believed to be a config store.
const FILE_MAX_BYTES: usize = 64 << 20;
/// Most prefixes that may be watched at once; a watch that nobody holds any more does not count.
const WATCHES_MAX: usize = 4096;

/// Contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    /// Number of the last change.
    revision: u64,
    /// Version and value of each key.
    entries: BTreeMap<String, (u64, Vec<u8>)>,
}

struct State {
    contents: Contents,
    watches: Vec<(String, watch::Sender<u64>)>,
}

/// The store; see the module.
pub struct LocalStore {
    disk: Arc<dyn Disk>,
    path: String,
    state: Mutex<State>,
}

impl LocalStore {
    /// Makes an empty store in a new file.
    pub fn create(disk: Arc<dyn Disk>, path: &str) -> Result<LocalStore> {
        let contents = Contents::default();
        write(&*disk, path, &contents)?;
        Ok(LocalStore::with(disk, path, contents))
    }

    /// Makes a store with these entries in a new file; each gets a version of its own, above `revision`.
    pub fn create_with(
        disk: Arc<dyn Disk>,
        path: &str,
        entries: &[(String, Vec<u8>)],
        revision: u64,
    ) -> Result<LocalStore> {
        let mut contents = Contents { revision, entries: BTreeMap::new() };
        for (key, value) in entries {
            contents.revision += 1;
            contents.entries.insert(key.clone(), (contents.revision, value.clone()));
        }
        write(&*disk, path, &contents)?;
        Ok(LocalStore::with(disk, path, contents))
    }

    /// Opens the store in an existing file.
    pub fn open(disk: Arc<dyn Disk>, path: &str) -> Result<LocalStore> {
        let bytes = read_file(&*disk, path, FILE_MAX_BYTES).map_err(|e| {
            Fault::io(Code::StoreDamaged, "cannot read the configuration store", path.to_owned(), &e)
        })?;
        let contents = decode(path, &bytes)?;
        Ok(LocalStore::with(disk, path, contents))
    }

    /// Reads the store in `path` and says what is wrong with it, changing nothing (fsck).
    pub fn check(disk: Arc<dyn Disk>, path: &str) -> Result<usize> {
        Ok(LocalStore::open(disk, path)?.state.into_inner().contents.entries.len())
    }

    /// Writes the first value of `key`, while nobody else knows the store (format).
    pub fn create_entry(&self, key: &str, value: &[u8]) -> Result<()> {
        match self.swap(key, 0, Some(value))? {
            Swap::Done(_) => Ok(()),
            Swap::Lost(_) => {
                Err(Fault::new(Code::StoreDamaged).subject(key.to_owned()).why("it exists already"))
            }
        }
    }

    fn with(disk: Arc<dyn Disk>, path: &str, contents: Contents) -> LocalStore {
        LocalStore { disk, path: path.to_owned(), state: Mutex::new(State { contents, watches: Vec::new() }) }
    }

    fn swap(&self, key: &str, expected_version: u64, value: Option<&[u8]>) -> Result<Swap> {
        let (key, value) = (key.to_owned(), value.map(<[u8]>::to_vec));
        self.make(vec![Write { key, expected_version, value }])
    }

    fn make(&self, writes: Vec<Write>) -> Result<Swap> {
        check_writes(&writes)?;
        let mut state = self.state.lock();
        let mut next = state.contents.clone();
        next.revision += 1;
        let revision = next.revision;
        let mut keys = Vec::new();
        for Write { key, expected_version, value } in writes {
            let version = next.entries.get(&key).map_or(0, |(version, _)| *version);
            if version != expected_version {
                return Ok(Swap::Lost(version));
            }
            match value {
                Some(value) => next.entries.insert(key.clone(), (revision, value)),
                None => next.entries.remove(&key),
            };
            keys.push(key);
        }
        write(&*self.disk, &self.path, &next)?;
        state.contents = next;
        state.watches.retain(|(_, sender)| !sender.is_closed());
        for (prefix, sender) in &state.watches {
            if keys.iter().any(|key| key.starts_with(prefix.as_str())) {
                sender.send_replace(revision);
            }
        }
        Ok(Swap::Done(revision))
    }
}

fn write(disk: &dyn Disk, path: &str, contents: &Contents) -> Result<()> {
    let body = postcard::to_stdvec(contents).expect("maps of strings and bytes always serialise");
    replace_file(disk, path, &envelope::seal(MAGIC, FORMAT_VERSION, &body)).map_err(|e| write_fault(path, &e))
}

fn write_fault(path: &str, e: &io::Error) -> Fault {
    let full = e.kind() == io::ErrorKind::StorageFull;
    let code = if full { Code::MdtFull } else { Code::StoreDamaged };
    Fault::io(code, "cannot write the configuration store", path.to_owned(), e)
        .data("the configuration is as it was before; files are not concerned")
        .next("free or repair the disk that holds it, then try again")
}

fn decode(path: &str, bytes: &[u8]) -> Result<Contents> {
    let damaged = |why: String| Fault::new(Code::StoreDamaged).subject(path.to_owned()).why(why);
    let (_, body) = envelope::unseal(MAGIC, FORMAT_VERSION, bytes).map_err(|u| match u {
        Unreadable::Damaged(why) => damaged(why),
        Unreadable::Newer { found, known } => Fault::new(Code::NewerFormat)
            .what("cannot read the configuration store")
            .subject(path.to_owned())
            .why(format!("it has format {found}; this release knows up to {known}")),
    })?;
    postcard::from_bytes(body).map_err(|e| damaged(format!("it does not decode: {e}")))
}

impl ConfigStore for LocalStore {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>>> {
        let state = self.state.lock();
        let found = state.contents.entries.get(key);
        let entry = found.map(|(version, value)| Entry {
            key: key.to_owned(),
            version: *version,
            value: value.clone(),
        });
        Box::pin(std::future::ready(Ok(entry)))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Entry>>> {
        let state = self.state.lock();
        let from = state.contents.entries.range(prefix.to_owned()..);
        let below = from.take_while(|(key, _)| key.starts_with(prefix));
        let entries = below.map(|(key, (version, value))| Entry {
            key: key.clone(),
            version: *version,
            value: value.clone(),
        });
        let entries: Vec<Entry> = entries.collect();
        Box::pin(std::future::ready(Ok(entries)))
    }

    fn swap_all(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Swap>> {
        Box::pin(async move { self.make(writes) })
    }

    fn watch(&self, prefix: &str) -> Watch {
        let mut state = self.state.lock();
        state.watches.retain(|(_, sender)| !sender.is_closed());
        assert!(state.watches.len() < WATCHES_MAX, "more than {WATCHES_MAX} watches on the config store");
        let (sender, receiver) = watch::channel(0);
        state.watches.push((prefix.to_owned(), sender));
        Watch::new(receiver)
    }
}

#[cfg(test)]
mod tests;
