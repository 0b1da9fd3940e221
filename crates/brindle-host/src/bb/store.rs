//! The rows of pools and buffers, in the embedded configuration store.
//!
//! `bb/pool/NAME` and `bb/buffer/SERIAL`, as JSON. Each change is a compare-and-swap, and durable when it returns.

use std::path::Path;

use brindle_bb::{Buffer, Pool};
use brindle_config::{ConfigStore, Entry, LocalStore, Swap};
use brindle_types::{Code, Fault, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Host, text};

/// Where pools are.
const POOLS: &str = "bb/pool/";
/// Where buffers are.
const BUFFERS: &str = "bb/buffer/";
/// How often a change that lost against another one is tried.
const TRIES_MAX: usize = 100;

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
        Ok(Store { host, store })
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
        // One that is there stays as it is.
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
        // Who uses it is in the rows of the users.
        let row = Buffer { users: Vec::new(), ..buffer.clone() };
        self.swap(buffer.serial, version, Some(&encode(&row)))
    }

    /// Removes the row of a buffer.
    pub fn remove(&self, version: u64, buffer: &Buffer) -> Result<()> {
        self.swap(buffer.serial, version, None).map(|_| ())
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
