//! A backup of the configuration, and how a restore changes it (design note 039).
//!
//! A backup has all entries of the config store, the superblock of the MGT and the authority with its key: its owner controls the cluster.
//!
//! A restored configuration may be older than what servers and clients have heard. [`ConfigBackup::restored`] makes entries of it that are
//! safe to go by: versions and epochs of the map are above all that were told; tokens and unfinished changes are left out; each replica set
//! and shared target is marked, so that no host is given the target before all its hosts have told its state ([`crate::restored`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_auth::KeyId;
use brindle_config::etcd::settings::Settings;
use brindle_config::{ConfigStore, LocalStore, Superblock};
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::form::{self, FormatLevel};
use brindle_wire::map::Map;
use brindle_wire::mgs::shared::{SharedPhase, SharedTarget};
use serde::{Deserialize, Serialize};

use crate::hosts::rows::{self, Change, HostRow, RemovedRow, RestoredRow, Rows, SharedRow};
use crate::hosts::{authority, certificate_ends_s};
use crate::{mgt, store_path};

/// First bytes of the file.
const MAGIC: &[u8; 8] = b"BRDLCFGB";
/// Format that this release writes.
const FORMAT_VERSION: u32 = 1;
/// Largest file that is taken for a backup.
pub const BACKUP_MAX_BYTES: usize = 64 << 20;
/// Part of a version of the map that changes count in: the rest is the second of the restore.
const VERSION_BITS: u32 = 20;

/// A backup of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigBackup {
    /// Time of the backup, in seconds since 1970.
    pub made_s: i64,
    /// Superblock of the MGT.
    pub superblock: Vec<u8>,
    /// The authority with its key, as PEM; empty where the cluster has none.
    pub authority: String,
    /// Keys and values of the config store, in order of key.
    pub entries: Vec<(String, Vec<u8>)>,
}

/// Configuration that may be gone by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Keys and values.
    pub entries: Vec<(String, Vec<u8>)>,
    /// Lowest revision that the store begins with.
    pub revision: u64,
    /// Hosts of the cluster.
    pub hosts: Vec<String>,
    /// Targets whose hosts have to tell how they stand.
    pub waiting: Vec<TargetId>,
    /// Hosts that were removed after the backup.
    pub removed: Vec<String>,
}

/// The host that the configuration is restored on, where it gets a new key.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Name of the host.
    pub host: String,
    /// SHA-256 of the public half.
    pub key: [u8; 32],
    /// Roles of the host.
    pub roles: String,
}

/// Facts that a restore takes into account, beside the backup.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Now, seconds since 1970.
    pub now_s: i64,
    /// Keys that servers know to be removed.
    pub removed: BTreeSet<[u8; 32]>,
    /// New key for this host, if it gets one.
    pub new_key: Option<NewKey>,
}

impl ConfigBackup {
    /// Reads the configuration of the MGT in `dir`, while the MGS runs or not.
    pub async fn read(seams: &Seams, dir: &str) -> Result<ConfigBackup> {
        let disk = &seams.disk;
        let loaded = Superblock::load(&**disk, dir, &mgt()).map_err(|fault| {
            fault
                .what("cannot back up the configuration of the MGT in")
                .data("no backup was made")
                .next("run it on a host that runs the MGS, and give the directory of its MGT: --dir DIR")
        });
        let superblock = loaded?.superblock;
        let authority = authority(&**disk, dir)?.map(|authority| authority.to_pem()).unwrap_or_default();
        let store: Arc<dyn ConfigStore> = match Settings::read(&**disk, dir)? {
            Some(settings) => Arc::new(settings.open(seams.clone())?),
            None => Arc::new(LocalStore::open(disk.clone(), &store_path(dir))?),
        };
        let entries = store.list("").await?.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let backup =
            ConfigBackup { made_s: seams.wall().secs, superblock: superblock.to_bytes(), authority, entries };
        // A backup must be restorable, so the rows are checked here.
        backup.rows().and_then(|_| backup.map(&superblock)).map(|_| backup)
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("strings and bytes always serialise");
        brindle_config::envelope::seal(MAGIC, FORMAT_VERSION, &body)
    }

    /// Reads a file, all of it checked.
    pub fn from_bytes(path: &str, bytes: &[u8]) -> Result<ConfigBackup> {
        use brindle_config::envelope::Unreadable;
        let refuse = |code: Code, why: String| {
            Fault::new(code)
                .what("cannot use the backup")
                .subject(path.to_owned())
                .why(why)
                .data("nothing was changed")
        };
        let unsealed = brindle_config::envelope::unseal(MAGIC, FORMAT_VERSION, bytes);
        let (_, body) = unsealed.map_err(|unreadable| match unreadable {
            Unreadable::Damaged(why) => refuse(Code::BadConfigBackup, why),
            Unreadable::Newer { found, known } => {
                refuse(Code::NewerFormat, format!("it has format {found}; this release knows up to {known}"))
            }
        })?;
        let backup: ConfigBackup = postcard::from_bytes(body)
            .map_err(|e| refuse(Code::BadConfigBackup, format!("it does not decode: {e}")))?;
        let superblock = backup.superblock()?;
        backup.rows().and_then(|_| backup.map(&superblock)).map(|_| backup)
    }

    /// The MGT's.
    pub fn superblock(&self) -> Result<Superblock> {
        Superblock::from_bytes(&self.superblock)
    }

    /// Hosts that had joined.
    pub fn hosts(&self) -> Result<Vec<String>> {
        Ok(self.rows()?.hosts().map(|row| row.name.clone()).collect())
    }

    fn rows(&self) -> Result<Rows> {
        rows::decode_all(self.entries.iter().map(|(key, value)| (key.as_str(), value.as_slice())))
    }

    fn map(&self, superblock: &Superblock) -> Result<(String, Map)> {
        let key = crate::store::key(&superblock.fs);
        let value = self.entries.iter().find(|(found, _)| *found == key).map(|(_, value)| value);
        let value = value
            .ok_or_else(|| Fault::new(Code::BadConfigBackup).subject(key.clone()).why("it has no map"))?;
        let map = crate::store::decode(&key, value)?;
        if map.fs_id == superblock.fs_id {
            Ok((key, map))
        } else {
            Err(Fault::new(Code::BadConfigBackup).subject(key))
        }
    }

    /// Entries that are safe to go by.
    pub fn restored(&self, known: &Known) -> Result<Restored> {
        let superblock = self.superblock()?;
        let (map_key, mut map) = self.map(&superblock)?;
        let second = u64::try_from(known.now_s).unwrap_or(0);
        let floor = second << VERSION_BITS;
        map.version = floor.max(map.version.saturating_add(1));
        for target in &mut map.targets {
            target.epoch = crate::restored::new_term(target.epoch, known.now_s);
        }
        let rows = self.rows()?;
        let (changes, removed) = changed(&rows, known)?;
        let mut entries = self.entries.clone();
        let mut set = |key: String, value: Option<Vec<u8>>| {
            entries.retain(|(found, _)| *found != key);
            entries.extend(value.map(|value| (key, value)));
        };
        set(map_key, Some(form::encode(FormatLevel::NEWEST, &map)?.to_vec()));
        let mut waiting = Vec::new();
        let mut hosts: BTreeSet<String> = rows.hosts().map(|row| row.name.clone()).collect();
        for change in changes {
            match &change {
                Change::Restored(row) => waiting.push(row.target),
                Change::NoHost(name) => drop(hosts.remove(name)),
                _ => {}
            }
            let (key, _, value) = change.entry(&rows)?;
            set(key, value);
        }
        entries.sort();
        Ok(Restored { entries, revision: floor, hosts: hosts.into_iter().collect(), waiting, removed })
    }
}

/// Changes of the rows, and the hosts that were removed since the backup.
fn changed(rows: &Rows, known: &Known) -> Result<(Vec<Change>, Vec<String>)> {
    let mut changes: Vec<Change> = rows.tokens().map(|token| Change::NoToken(token.id)).collect();
    // An MGS that is active writes its own row.
    changes.extend(rows.mgs().map(|row| Change::NoMgs(row.host.clone())));
    for row in rows.shared() {
        let target = SharedTarget { phase: SharedPhase::Owned, ..row.target.clone() };
        let marked = RestoredRow { target: target.target, restored_s: known.now_s };
        changes.push(Change::Shared(Box::new(SharedRow { target, ..row.clone() })));
        changes.push(Change::Restored(marked));
    }
    for row in rows.replicas() {
        changes.push(Change::Restored(RestoredRow { target: row.set.target, restored_s: known.now_s }));
    }
    let mut removed = Vec::new();
    let until_s = certificate_ends_s(known.now_s);
    // A host that was renamed since, and is in the backup under its former name, goes by that again.
    let is_former_name =
        |key: &[u8; 32]| rows.hosts().any(|row| KeyId(row.key).under_name(&row.name).0 == *key);
    let removed_since = |key: &&[u8; 32]| !rows.is_removed(key) && !is_former_name(key);
    for key in known.removed.iter().filter(removed_since) {
        let host = rows.hosts().find(|row| row.key == *key).map(|row| row.name.clone());
        // A host that has targets was installed anew, rather: its row stays, and waits for it.
        let has_targets = |host: &String| {
            rows.host(host).is_some_and(|row| !row.assignments.is_empty())
                || rows.replicas().any(|row| row.set.member(host).is_some())
                || rows.shared().any(|row| row.target.hosts.iter().any(|other| other.host == *host))
        };
        let gone = host.clone().filter(|host| !has_targets(host));
        changes.extend(gone.iter().filter(|host| rows.spare(host).is_some()).cloned().map(Change::NoSpare));
        changes.extend(gone.map(Change::NoHost));
        removed.extend(host.iter().cloned());
        changes.push(Change::Removed(RemovedRow { key: *key, host: host.unwrap_or_default(), until_s }));
    }
    if let Some(new) = &known.new_key {
        let row = rows.host(&new.host).ok_or_else(|| {
            Fault::new(Code::UnknownHost)
                .what("cannot restore the configuration on")
                .subject(new.host.clone())
                .why("the cluster has no host of this name in the backup")
                .data("nothing was changed")
                .next("give this host the name of the one that it replaces: --name HOST")
        })?;
        let former = RemovedRow { key: row.key, host: row.name.clone(), until_s };
        changes.push(Change::Removed(former));
        changes.push(Change::Host(HostRow {
            key: new.key,
            roles: new.roles.clone(),
            joined_s: known.now_s,
            certificate_ends_s: until_s,
            ..row.clone()
        }));
    }
    Ok((changes, removed))
}

/// Makes the MGT of a restored configuration in the empty directory `dir`, with the configuration beside it. The superblock is written last: what
/// was interrupted is no MGT.
pub fn make(seams: &Seams, backup: &ConfigBackup, restored: &Restored, dir: &str) -> Result<()> {
    LocalStore::create_with(seams.disk.clone(), &store_path(dir), &restored.entries, restored.revision)?;
    backup.superblock()?.save(&*seams.disk, dir)
}

#[cfg(test)]
mod tests;
