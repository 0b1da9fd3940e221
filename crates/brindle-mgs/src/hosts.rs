//! Hosts of the cluster: who has joined, with which key and roles; the targets that each is to serve; who was removed.
//!
//! An MGT that `brindle cluster init` made holds the cluster's authority, in [`AUTHORITY_FILE`]; only such a cluster has hosts. Rows in the config store,
//! one for each: [`rows`]. Decisions are plain functions of all rows: [`decide`].
//!
//! Invariants: a name belongs to one key, and a key to one name, until the host is removed; a removed key is refused while any certificate
//! of it may be valid; a target is assigned to one host, and its identity never changes, so that an empty directory is never taken for a
//! target that was formatted before.

pub(crate) mod decide;
mod heard;
pub(crate) mod nodemaps;
mod orders;
pub(crate) mod rename;
pub mod rows;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use brindle_auth::{Authority, KeyId, Name};
use brindle_config::{ConfigStore, Swap, Write};
use brindle_net::RemovedKeys;
use brindle_stdx::disk::read_file;
use brindle_stdx::{Disk, watch};
use brindle_types::{Code, Fault, Result};
use tokio::sync::Mutex;

pub use decide::certificate_ends_s;
pub(crate) use heard::Heard;
pub(crate) use orders::Orders;
use rows::{Change, Rows};

/// The authority, in the directory of the MGT.
pub const AUTHORITY_FILE: &str = "authority.pem";
/// Largest file that is taken for an authority.
const AUTHORITY_MAX_BYTES: usize = 64 << 10;
/// Attempts to store a change while others store theirs.
const ATTEMPTS_MAX: usize = 16;

/// The hosts of a cluster that has an authority.
pub(crate) struct Hosts {
    authority: Authority,
    store: Arc<dyn ConfigStore>,
    rows: watch::Sender<Arc<Rows>>,
    /// Changes of this process come one after the other.
    changing: Mutex<()>,
    /// Removed keys, which follow the rows; the transport of this process refuses them.
    removed: Option<Arc<RemovedKeys>>,
    pub(crate) heard: parking_lot::Mutex<Heard>,
    pub(crate) orders: Orders,
}

/// The authority beside an MGT; `None` where there is none.
pub fn authority(disk: &dyn Disk, dir: &str) -> Result<Option<Authority>> {
    let path = format!("{dir}/{AUTHORITY_FILE}");
    let bytes = match read_file(disk, &path, AUTHORITY_MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Fault::io(Code::BadIdentity, "cannot read", path, &e)),
    };
    let text = String::from_utf8_lossy(&bytes);
    Authority::from_pem(&text).map(Some).map_err(|fault| fault.subject(path))
}

impl Hosts {
    /// Reads all rows.
    pub(crate) async fn open(
        authority: Authority,
        store: Arc<dyn ConfigStore>,
        removed: Option<Arc<RemovedKeys>>,
    ) -> Result<Hosts> {
        let rows = watch::Sender::new(Arc::new(rows::load(&*store).await?));
        let hosts = Hosts {
            authority,
            store,
            rows,
            changing: Mutex::default(),
            removed,
            heard: parking_lot::Mutex::default(),
            orders: Orders::default(),
        };
        hosts.tell_removed();
        Ok(hosts)
    }

    /// The authority.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// All rows, as they are now.
    pub(crate) fn rows(&self) -> Arc<Rows> {
        self.rows.borrow().clone()
    }

    /// Completes when the rows are of another version. An older one counts, too: they may have been restored from a backup.
    pub(crate) async fn other_than(&self, version: u64) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.rows.subscribe().wait_for(|rows| rows.version() != version).await;
    }

    /// Stores what `decide` wants changed, in order, and gives its answer. The rows are durable when it returns.
    pub(crate) async fn change<T>(
        &self,
        decide: impl Fn(&Rows) -> Result<(Vec<Change>, T)>,
    ) -> Result<(bool, T)> {
        self.changed(decide, false).await
    }

    /// Like `change`; all changes are stored, or none of them.
    pub(crate) async fn change_together<T>(
        &self,
        decide: impl Fn(&Rows) -> Result<(Vec<Change>, T)>,
    ) -> Result<(bool, T)> {
        self.changed(decide, true).await
    }

    async fn changed<T>(
        &self,
        decide: impl Fn(&Rows) -> Result<(Vec<Change>, T)>,
        is_together: bool,
    ) -> Result<(bool, T)> {
        let _turn = self.changing.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let (changes, answer) = decide(&self.rows())?;
            let changed = !changes.is_empty();
            let stored = match is_together {
                true => self.store_together(changes).await?,
                false => self.store(&changes).await?,
            };
            if stored {
                return Ok((changed, answer));
            }
            // Another MGS wrote first.
            self.replace(rows::load(&*self.store).await?);
        }
        Err(Fault::new(Code::Overloaded)
            .what("cannot change the hosts of the cluster")
            .why(format!("others changed them {ATTEMPTS_MAX} times meanwhile")))
    }

    /// Whether all of it was stored. Each change by itself leaves rows that are sound: what is behind it may be missing.
    async fn store(&self, changes: &[Change]) -> Result<bool> {
        let mut rows = (*self.rows()).clone();
        for change in changes {
            let (key, expected, value) = change.entry(&rows)?;
            match self.store.compare_and_swap(&key, expected, value.as_deref()).await? {
                Swap::Done(version) => rows.apply(change.clone(), version),
                Swap::Lost(_) => return Ok(false),
            }
            self.replace(rows.clone());
        }
        Ok(true)
    }

    /// Whether they were stored: all, or none.
    async fn store_together(&self, changes: Vec<Change>) -> Result<bool> {
        if changes.is_empty() {
            return Ok(true);
        }
        let mut rows = (*self.rows()).clone();
        let write = |change: &Change| {
            let (key, expected_version, value) = change.entry(&rows)?;
            Ok(Write { key, expected_version, value })
        };
        let writes = changes.iter().map(write).collect::<Result<_>>()?;
        match self.store.swap_all(writes).await? {
            Swap::Done(version) => rows.apply_all(changes, version),
            Swap::Lost(_) => return Ok(false),
        }
        self.replace(rows);
        Ok(true)
    }

    fn replace(&self, rows: Rows) {
        self.rows.send_replace(Arc::new(rows));
        self.tell_removed();
    }

    fn tell_removed(&self) {
        if let Some(removed) = &self.removed {
            removed.replace(self.rows().removed_keys().map(KeyId).collect());
        }
    }

    /// A certificate for a host.
    pub(crate) fn issue(
        &self,
        host: &str,
        roles: &str,
        public_key: &[u8; 32],
        now_s: i64,
    ) -> Result<Vec<u8>> {
        let roles = roles.parse().map_err(|why: String| Fault::new(Code::BadArgument).why(why))?;
        let name = Name { cluster: self.authority.cluster(), host: host.to_owned(), roles };
        self.authority.issue(&name, public_key, now_s)
    }
}

/// The first host of a new cluster, which holds the MGT, and its first token: written while nobody else knows the store (init).
pub async fn found(store: &dyn ConfigStore, host: rows::HostRow, token: rows::TokenRow) -> Result<()> {
    let none = Rows::default();
    for change in [Change::Host(host), Change::Token(token)] {
        let (key, _, value) = change.entry(&none)?;
        let value = value.ok_or_else(|| Fault::new(Code::Bug).subject(key.clone()))?;
        crate::store::create(store, &key, &value).await?;
    }
    Ok(())
}
