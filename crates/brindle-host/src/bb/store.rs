//! The rows of pools and buffers, in the embedded configuration store.
//!
//! `bb/pool/NAME`, `bb/buffer/SERIAL` and `bb/node/NAME`, as JSON; `bb/id`. Each change is a compare-and-swap, and durable when it returns.

use std::path::Path;

use brindle_bb::{Buffer, Pool};
use brindle_config::{ConfigStore, Entry, LocalStore, Swap};
use brindle_types::{Code, Fault, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Host, text};

/// Where pools are.
const POOLS: &str = "bb/pool/";
/// Where buffers are.
const BUFFERS: &str = "bb/buffer/";
/// Where compute nodes are.
const NODES: &str = "bb/node/";
/// Where the identity of this store is.
const ID: &str = "bb/id";
/// How often a change that lost against another one is tried.
const TRIES_MAX: usize = 100;

/// A compute node whose agent has registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Name of the node: the host's name in its certificate, and in Slurm.
    pub name: String,
    /// The address that its agent called from last.
    pub address: String,
    /// The key of its host, in hexadecimal digits.
    pub key: String,
    /// Whether an administrator has said that it is dead, and it has not come back since.
    #[serde(default)]
    pub forgotten: bool,
}

/// The rows.
pub struct Store<'a> {
    host: &'a Host,
    store: LocalStore,
}

impl<'a> Store<'a> {
    /// Opens the store in `dir`, or makes it.
    pub fn open(host: &'a Host, dir: &Path) -> Result<Store<'a>> {
        let path = dir.join("state");
        let disk = host.seams().disk.clone();
        let store = match path.exists() {
            true => LocalStore::open(disk, &text(&path)?)?,
            false => LocalStore::create(disk, &text(&path)?)?,
        };
        let store = Store { host, store };
        if store.find_id()?.is_none() {
            let rng = &host.seams().rng;
            let id = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
            host.wait(store.store.compare_and_swap(ID, 0, Some(&encode(&id))))?;
        }
        Ok(store)
    }

    fn find_id(&self) -> Result<Option<String>> {
        self.host.wait(self.store.get(ID))?.as_ref().map(decode).transpose()
    }

    /// The identity of this store: a random word that was written when it was made.
    pub fn id(&self) -> Result<String> {
        self.find_id()?.ok_or_else(|| Fault::new(Code::StoreDamaged).subject(ID).why("it is not there"))
    }

    /// All pools.
    pub fn pools(&self) -> Result<Vec<Pool>> {
        self.host.wait(self.store.list(POOLS))?.iter().map(decode).collect()
    }

    /// A pool.
    pub fn pool(&self, name: &str) -> Result<Pool> {
        let found = self.host.wait(self.store.get(&format!("{POOLS}{name}")))?;
        found.as_ref().map(decode).transpose()?.ok_or_else(|| no_pool(name))
    }

    /// Makes a pool, if it is not there.
    pub fn make_pool(&self, pool: &Pool) -> Result<()> {
        let value = encode(pool);
        let key = format!("{POOLS}{}", pool.name);
        // An existing row stays as it is.
        self.host.wait(self.store.compare_and_swap(&key, 0, Some(&value))).map(|_| ())
    }

    /// Changes a pool.
    pub fn change_pool<T>(&self, name: &str, change: impl Fn(&mut Pool) -> Result<T>) -> Result<T> {
        let key = format!("{POOLS}{name}");
        for _ in 0..TRIES_MAX {
            // The version is that of the pool which is changed: a change in between makes the swap lose.
            let entry = self.host.wait(self.store.get(&key))?.ok_or_else(|| no_pool(name))?;
            let before: Pool = decode(&entry)?;
            let mut pool = before.clone();
            let result = change(&mut pool)?;
            if pool == before {
                return Ok(result);
            }
            let row = encode(&pool);
            if let Swap::Done(_) =
                self.host.wait(self.store.compare_and_swap(&key, entry.version, Some(&row)))?
            {
                return Ok(result);
            }
        }
        Err(Fault::new(Code::BufferBusy)
            .what("cannot change the pool")
            .subject(name.to_owned())
            .why("others change it all the time"))
    }

    /// All buffers, by serial number, with the versions of their rows.
    pub fn buffers(&self) -> Result<Vec<(u64, Buffer)>> {
        let entries = self.host.wait(self.store.list(BUFFERS))?;
        let mut all: Vec<(u64, Buffer)> =
            entries.iter().map(|entry| Ok((entry.version, decode(entry)?))).collect::<Result<_>>()?;
        all.sort_by_key(|(_, buffer)| buffer.serial);
        Ok(all)
    }

    /// A buffer, with the version of its row.
    pub fn buffer(&self, serial: u64) -> Result<Option<(u64, Buffer)>> {
        let found = self.host.wait(self.store.get(&format!("{BUFFERS}{serial}")))?;
        found.map(|entry| Ok((entry.version, decode(&entry)?))).transpose()
    }

    /// Writes a buffer whose row has this version (0: none); the new version.
    pub fn put(&self, version: u64, buffer: &Buffer) -> Result<u64> {
        // The users of a buffer are in the users' rows.
        let row = Buffer { users: Vec::new(), staging: None, ..buffer.clone() };
        self.swap(buffer.serial, version, Some(&encode(&row)))
    }

    /// Removes the row of a buffer.
    pub fn remove(&self, version: u64, buffer: &Buffer) -> Result<()> {
        self.swap(buffer.serial, version, None).map(|_| ())
    }

    /// All compute nodes, by name.
    pub fn nodes(&self) -> Result<Vec<NodeRow>> {
        self.host.wait(self.store.list(NODES))?.iter().map(decode).collect()
    }

    /// A compute node.
    pub fn node(&self, name: &str) -> Result<Option<NodeRow>> {
        self.host.wait(self.store.get(&format!("{NODES}{name}")))?.as_ref().map(decode).transpose()
    }

    /// Writes the row of a node, where it is another one; the row before.
    pub fn set_node(&self, row: &NodeRow) -> Result<Option<NodeRow>> {
        let (key, value) = (format!("{NODES}{}", row.name), encode(row));
        for _ in 0..TRIES_MAX {
            let entry = self.host.wait(self.store.get(&key))?;
            let before: Option<NodeRow> = entry.as_ref().map(decode).transpose()?;
            let version = entry.map_or(0, |entry| entry.version);
            if before.as_ref() == Some(row) {
                return Ok(before);
            }
            if let Swap::Done(_) = self.host.wait(self.store.compare_and_swap(&key, version, Some(&value)))? {
                return Ok(before);
            }
        }
        Err(Fault::new(Code::BufferBusy).what("cannot note the node").subject(row.name.clone()))
    }

    /// Replaces the row of a node, or removes it, unless it has changed meanwhile; whether that was done.
    pub fn replace_node(&self, before: &NodeRow, after: Option<&NodeRow>) -> Result<bool> {
        let key = format!("{NODES}{}", before.name);
        let Some(entry) = self.host.wait(self.store.get(&key))? else { return Ok(false) };
        if decode::<NodeRow>(&entry)? != *before {
            return Ok(false);
        }
        let value = after.map(encode);
        let swap = self.store.compare_and_swap(&key, entry.version, value.as_deref());
        Ok(matches!(self.host.wait(swap)?, Swap::Done(_)))
    }

    fn swap(&self, serial: u64, version: u64, value: Option<&[u8]>) -> Result<u64> {
        let key = format!("{BUFFERS}{serial}");
        match self.host.wait(self.store.compare_and_swap(&key, version, value))? {
            Swap::Done(version) => Ok(version),
            Swap::Lost(_) => Err(Fault::new(Code::BufferBusy)
                .subject(serial.to_string())
                .why("its row was changed meanwhile")),
        }
    }
}

fn no_pool(name: &str) -> Fault {
    Fault::new(Code::NoSuchPool)
        .what("no pool of bricks is called")
        .subject(name.to_owned())
        .next("list them: brindle bb pool")
}

fn encode<T: Serialize>(row: &T) -> Vec<u8> {
    serde_json::to_vec(row).expect("plain fields always serialise")
}

fn decode<T: DeserializeOwned>(entry: &Entry) -> Result<T> {
    serde_json::from_slice(&entry.value).map_err(|e| {
        Fault::new(Code::StoreDamaged).subject(entry.key.clone()).why(format!("it does not decode: {e}"))
    })
}
