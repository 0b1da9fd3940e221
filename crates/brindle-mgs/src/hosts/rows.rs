//! Rows of hosts, tokens and removed keys in the config store.
//!
//! | key | value |
//! |---|---|
//! | `cluster/hosts/NAME` | [`HostRow`] |
//! | `cluster/tokens/NUMBER` | [`TokenRow`] |
//! | `cluster/removed/KEY` | [`RemovedRow`] |
//! | `cluster/shared/TARGET` | [`SharedRow`] |
//! | `cluster/replicas/TARGET` | [`ReplicaRow`] |
//! | `cluster/nodemaps/NAME` | [`Nodemap`] |
//! | `cluster/id-maps/NAME` | [`IdMapRow`], of a nodemap whose hosts have numbers of their own |
//! | `cluster/spares/NAME` | [`SpareRow`] |
//! | `cluster/moves/TARGET` | [`MoveRow`], while a copy of the target moves to another host |
//! | `cluster/mgs/NAME` | [`MgsRow`], where several hosts run the MGS |
//! | `cluster/renamed/KEY` | [`RenamedRow`], until the host of the key goes by its new name |
//! | `cluster/restored/TARGET` | [`RestoredRow`], where the configuration was restored |
//!
//! Invariant: [`Rows::version`] rises with every change, also over a restart: it is that of the store.

use std::collections::BTreeMap;

use brindle_config::ConfigStore;
use brindle_types::{Code, Fault, Nid, Result, TargetId};
use brindle_wire::first_form;
use brindle_wire::form::{self, Form, FormatLevel};
use brindle_wire::mgs::hosts::Assignment;
use brindle_wire::mgs::id_map::{CLOSED_SUBTREE, IdMap, IdMapRow, MappedNodemap};
use brindle_wire::mgs::nodemap::Nodemap;
use brindle_wire::mgs::replica::ReplicaSetState;
use brindle_wire::mgs::shared::SharedTarget;
use serde::{Deserialize, Serialize};

const HOSTS: &str = "cluster/hosts/";
const TOKENS: &str = "cluster/tokens/";
const REMOVED: &str = "cluster/removed/";
const SHARED: &str = "cluster/shared/";
const REPLICAS: &str = "cluster/replicas/";
const MGS: &str = "cluster/mgs/";
const NODEMAPS: &str = "cluster/nodemaps/";
const RESTORED: &str = "cluster/restored/";
const ID_MAPS: &str = "cluster/id-maps/";
const SPARES: &str = "cluster/spares/";
const MOVES: &str = "cluster/moves/";
const RENAMED: &str = "cluster/renamed/";
const PREFIXES: [&str; 12] =
    [HOSTS, TOKENS, REMOVED, SHARED, REPLICAS, MGS, NODEMAPS, RESTORED, ID_MAPS, SPARES, MOVES, RENAMED];

/// A host that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRow {
    /// Name of the host.
    pub name: String,
    /// Key of the host: SHA-256 of the public half.
    pub key: [u8; 32],
    /// Roles of the host, as text.
    pub roles: String,
    /// Time at which the host joined, in seconds since 1970.
    pub joined_s: i64,
    /// End of the last certificate of the host, in seconds since 1970.
    pub certificate_ends_s: i64,
    /// Targets that the host is to serve, sorted by target.
    pub assignments: Vec<Assignment>,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// Number of the token.
    pub id: [u8; 8],
    /// SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// Roles that the token gives, as text.
    pub roles: String,
    /// Name of the host that may use the token; empty for any.
    pub host: String,
    /// End of the token, in seconds since 1970.
    pub expires_s: i64,
    /// Name and key of the host that has used the token.
    pub used_by: Option<(String, [u8; 32])>,
}

/// A key that is not let in any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedRow {
    /// The key.
    pub key: [u8; 32],
    /// Name of the host that had the key.
    pub host: String,
    /// Time from which every certificate of the key has ended, in seconds since 1970.
    pub until_s: i64,
}

/// A target on storage that two hosts reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedRow {
    /// The target, its hosts, and who owns it.
    pub target: SharedTarget,
    /// Time of the last move because the owner could not serve the target, in seconds since 1970; 0 for
    /// never.
    pub moved_for_failure_s: i64,
}

/// A target with members on several hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRow {
    /// The set.
    pub set: ReplicaSetState,
}

/// A host that runs the MGS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MgsRow {
    /// Name of the host.
    pub host: String,
    /// Addresses at which others reach the MGS of the host.
    pub nids: Vec<Nid>,
}

/// Mark of a target whose row is as old as a backup: no host is given the target before all its hosts have
/// told of it (design note 039).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredRow {
    /// The target.
    pub target: TargetId,
    /// Time of the restore, in seconds since 1970.
    pub restored_s: i64,
}

/// A host that gets copies when others are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareRow {
    /// Name of the host.
    pub host: String,
    /// Directory on it, in which each copy gets one of its own.
    pub dir: String,
    /// A copy that has been away for this long is given up, seconds.
    pub after_s: u64,
}

/// A copy of a target that moves to another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRow {
    /// The target.
    pub target: TargetId,
    /// Host of the member that goes once the other one is complete.
    pub from: String,
    /// Host of the new member.
    pub to: String,
}

/// A host that was given another name and still shows a certificate for the former one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenamedRow {
    /// Key of the host.
    pub key: [u8; 32],
    /// Former name of the host.
    pub from: String,
    /// Name of the host.
    pub to: String,
}

first_form!(1 => RenamedRow, HostRow, TokenRow, RemovedRow, SharedRow, ReplicaRow, MgsRow, RestoredRow, SpareRow, MoveRow);

/// A change of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Makes or replaces a host.
    Host(HostRow),
    /// A host is gone.
    NoHost(String),
    /// Makes or replaces a token.
    Token(TokenRow),
    /// A token is gone.
    NoToken([u8; 8]),
    /// A key is removed.
    Removed(RemovedRow),
    /// Certificates of a removed key have all ended.
    NotRemoved([u8; 32]),
    /// Makes or replaces a shared target.
    Shared(Box<SharedRow>),
    /// A shared target is gone.
    NoShared(TargetId),
    /// Makes or replaces a replica set.
    Replicas(Box<ReplicaRow>),
    /// A replica set is gone.
    NoReplicas(TargetId),
    /// Makes or replaces a host that runs the MGS.
    Mgs(MgsRow),
    /// A host runs the MGS no more.
    NoMgs(String),
    /// Makes or replaces a nodemap.
    Nodemap(Box<Nodemap>),
    /// A nodemap is gone.
    NoNodemap(String),
    /// The row of a target is as old as a backup.
    Restored(RestoredRow),
    /// The state of a target is known again.
    NotRestored(TargetId),
    /// Makes or replaces the mapping of a nodemap.
    IdMap(Box<IdMapRow>),
    /// A nodemap maps nothing more.
    NoIdMap(String),
    /// Makes or replaces a spare host.
    Spare(SpareRow),
    /// A host is no spare one any more.
    NoSpare(String),
    /// A copy begins to move.
    Move(MoveRow),
    /// The move of a copy of a target is removed.
    NoMove(TargetId),
    /// A host gets another name.
    Renamed(RenamedRow),
    /// The host of a key goes by its new name.
    NoRenamed([u8; 32]),
}

/// All rows, each with its version in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    version: u64,
    hosts: BTreeMap<String, (u64, HostRow)>,
    tokens: BTreeMap<[u8; 8], (u64, TokenRow)>,
    removed: BTreeMap<[u8; 32], (u64, RemovedRow)>,
    shared: BTreeMap<TargetId, (u64, SharedRow)>,
    replicas: BTreeMap<TargetId, (u64, ReplicaRow)>,
    mgs: BTreeMap<String, (u64, MgsRow)>,
    nodemaps: BTreeMap<String, (u64, Nodemap)>,
    restored: BTreeMap<TargetId, (u64, RestoredRow)>,
    id_maps: BTreeMap<String, (u64, IdMapRow)>,
    spares: BTreeMap<String, (u64, SpareRow)>,
    moves: BTreeMap<TargetId, (u64, MoveRow)>,
    renamed: BTreeMap<[u8; 32], (u64, RenamedRow)>,
}

/// Key, version that it must have, and new value of an entry of the store.
type Entry = (String, u64, Option<Vec<u8>>);

fn version<K: Ord, V>(of: &BTreeMap<K, (u64, V)>, key: &K) -> u64 {
    of.get(key).map_or(0, |(version, _)| *version)
}

fn put<K: Ord, V: Form>(
    prefix: &str,
    shown: &str,
    of: &BTreeMap<K, (u64, V)>,
    key: &K,
    row: &V,
) -> Result<Entry> {
    Ok((format!("{prefix}{shown}"), version(of, key), Some(encode(row)?)))
}

fn gone<K: Ord, V>(prefix: &str, shown: &str, of: &BTreeMap<K, (u64, V)>, key: &K) -> Entry {
    (format!("{prefix}{shown}"), version(of, key), None)
}

impl Change {
    /// Entry to store.
    pub(crate) fn entry(&self, rows: &Rows) -> Result<Entry> {
        Ok(match self {
            Change::Host(row) => put(HOSTS, &row.name, &rows.hosts, &row.name, row)?,
            Change::NoHost(name) => gone(HOSTS, name, &rows.hosts, name),
            Change::Token(row) => put(TOKENS, &hex(&row.id), &rows.tokens, &row.id, row)?,
            Change::NoToken(id) => gone(TOKENS, &hex(id), &rows.tokens, id),
            Change::Removed(row) => put(REMOVED, &hex(&row.key), &rows.removed, &row.key, row)?,
            Change::NotRemoved(key) => gone(REMOVED, &hex(key), &rows.removed, key),
            Change::Shared(row) => {
                let target = &row.target.target;
                put(SHARED, &target.to_string(), &rows.shared, target, &**row)?
            }
            Change::NoShared(target) => gone(SHARED, &target.to_string(), &rows.shared, target),
            Change::Replicas(row) => {
                let target = &row.set.target;
                put(REPLICAS, &target.to_string(), &rows.replicas, target, &**row)?
            }
            Change::NoReplicas(target) => gone(REPLICAS, &target.to_string(), &rows.replicas, target),
            Change::Mgs(row) => put(MGS, &row.host, &rows.mgs, &row.host, row)?,
            Change::NoMgs(host) => gone(MGS, host, &rows.mgs, host),
            Change::Nodemap(row) => put(NODEMAPS, &row.name, &rows.nodemaps, &row.name, &**row)?,
            Change::NoNodemap(name) => gone(NODEMAPS, name, &rows.nodemaps, name),
            Change::Restored(row) => {
                put(RESTORED, &row.target.to_string(), &rows.restored, &row.target, row)?
            }
            Change::NotRestored(target) => gone(RESTORED, &target.to_string(), &rows.restored, target),
            Change::IdMap(row) => put(ID_MAPS, &row.nodemap, &rows.id_maps, &row.nodemap, &**row)?,
            Change::NoIdMap(name) => gone(ID_MAPS, name, &rows.id_maps, name),
            Change::Spare(row) => put(SPARES, &row.host, &rows.spares, &row.host, row)?,
            Change::NoSpare(host) => gone(SPARES, host, &rows.spares, host),
            Change::Move(row) => put(MOVES, &row.target.to_string(), &rows.moves, &row.target, row)?,
            Change::NoMove(target) => gone(MOVES, &target.to_string(), &rows.moves, target),
            Change::Renamed(row) => put(RENAMED, &hex(&row.key), &rows.renamed, &row.key, row)?,
            Change::NoRenamed(key) => gone(RENAMED, &hex(key), &rows.renamed, key),
        })
    }
}

impl Rows {
    /// Rises with every change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Takes in a change that was stored.
    pub(crate) fn apply(&mut self, change: Change, version: u64) {
        assert!(version > self.version, "versions of the config store rise");
        self.take_in(change, version);
    }

    /// Takes in changes that were stored together.
    pub(crate) fn apply_all(&mut self, changes: Vec<Change>, version: u64) {
        assert!(version > self.version, "versions of the config store rise");
        changes.into_iter().for_each(|change| self.take_in(change, version));
    }

    fn take_in(&mut self, change: Change, version: u64) {
        self.version = version;
        match change {
            Change::Host(row) => drop(self.hosts.insert(row.name.clone(), (version, row))),
            Change::NoHost(name) => drop(self.hosts.remove(&name)),
            Change::Token(row) => drop(self.tokens.insert(row.id, (version, row))),
            Change::NoToken(id) => drop(self.tokens.remove(&id)),
            Change::Removed(row) => drop(self.removed.insert(row.key, (version, row))),
            Change::NotRemoved(key) => drop(self.removed.remove(&key)),
            Change::Shared(row) => drop(self.shared.insert(row.target.target, (version, *row))),
            Change::NoShared(target) => drop(self.shared.remove(&target)),
            Change::Replicas(row) => drop(self.replicas.insert(row.set.target, (version, *row))),
            Change::NoReplicas(target) => drop(self.replicas.remove(&target)),
            Change::Mgs(row) => drop(self.mgs.insert(row.host.clone(), (version, row))),
            Change::NoMgs(host) => drop(self.mgs.remove(&host)),
            Change::Nodemap(row) => drop(self.nodemaps.insert(row.name.clone(), (version, *row))),
            Change::NoNodemap(name) => drop(self.nodemaps.remove(&name)),
            Change::Restored(row) => drop(self.restored.insert(row.target, (version, row))),
            Change::NotRestored(target) => drop(self.restored.remove(&target)),
            Change::IdMap(row) => drop(self.id_maps.insert(row.nodemap.clone(), (version, *row))),
            Change::NoIdMap(name) => drop(self.id_maps.remove(&name)),
            Change::Spare(row) => drop(self.spares.insert(row.host.clone(), (version, row))),
            Change::NoSpare(host) => drop(self.spares.remove(&host)),
            Change::Move(row) => drop(self.moves.insert(row.target, (version, row))),
            Change::NoMove(target) => drop(self.moves.remove(&target)),
            Change::Renamed(row) => drop(self.renamed.insert(row.key, (version, row))),
            Change::NoRenamed(key) => drop(self.renamed.remove(&key)),
        }
    }

    /// The host of a name.
    pub(crate) fn host(&self, name: &str) -> Option<&HostRow> {
        self.hosts.get(name).map(|(_, row)| row)
    }

    /// All hosts, by name.
    pub(crate) fn hosts(&self) -> impl ExactSizeIterator<Item = &HostRow> {
        self.hosts.values().map(|(_, row)| row)
    }

    /// The host of a key.
    pub(crate) fn host_of_key(&self, key: &[u8; 32]) -> Option<&HostRow> {
        self.hosts().find(|row| row.key == *key)
    }

    /// Hosts that were given another name and still show the former one.
    pub(crate) fn renamed(&self) -> impl ExactSizeIterator<Item = &RenamedRow> {
        self.renamed.values().map(|(_, row)| row)
    }

    /// Moves of copies.
    pub(crate) fn moves(&self) -> impl ExactSizeIterator<Item = &MoveRow> {
        self.moves.values().map(|(_, row)| row)
    }

    /// The token of a number.
    pub(crate) fn token(&self, id: &[u8; 8]) -> Option<&TokenRow> {
        self.tokens.get(id).map(|(_, row)| row)
    }

    /// All tokens.
    pub(crate) fn tokens(&self) -> impl ExactSizeIterator<Item = &TokenRow> {
        self.tokens.values().map(|(_, row)| row)
    }

    /// All removed keys with their rows.
    pub(crate) fn removed(&self) -> impl ExactSizeIterator<Item = &RemovedRow> {
        self.removed.values().map(|(_, row)| row)
    }

    /// All removed keys.
    pub(crate) fn removed_keys(&self) -> impl Iterator<Item = [u8; 32]> {
        self.removed.keys().copied()
    }

    /// All shared targets.
    pub(crate) fn shared(&self) -> impl ExactSizeIterator<Item = &SharedRow> {
        self.shared.values().map(|(_, row)| row)
    }

    /// Hosts that run the MGS, by name; none where its configuration lies beside it.
    pub(crate) fn mgs(&self) -> impl ExactSizeIterator<Item = &MgsRow> {
        self.mgs.values().map(|(_, row)| row)
    }

    /// All nodemaps, by name.
    pub(crate) fn nodemaps(&self) -> impl ExactSizeIterator<Item = &Nodemap> {
        self.nodemaps.values().map(|(_, row)| row)
    }

    /// The nodemap of a name.
    pub(crate) fn nodemap(&self, name: &str) -> Option<&Nodemap> {
        self.nodemaps.get(name).map(|(_, row)| row)
    }

    /// The mapping of a nodemap, also of one that is gone.
    pub(crate) fn id_map(&self, name: &str) -> Option<&IdMapRow> {
        self.id_maps.get(name).map(|(_, row)| row)
    }

    /// The nodemap of a name with its mapping, as it counts.
    pub(crate) fn mapped_nodemap(&self, name: &str) -> Option<MappedNodemap> {
        self.nodemap(name).map(|nodemap| self.with_ids(nodemap))
    }

    /// All nodemaps with their mappings, by name.
    pub(crate) fn mapped_nodemaps(&self) -> impl Iterator<Item = MappedNodemap> {
        self.nodemaps().map(|nodemap| self.with_ids(nodemap))
    }

    fn with_ids(&self, nodemap: &Nodemap) -> MappedNodemap {
        let mut nodemap = nodemap.clone();
        let row = self.id_map(&nodemap.name);
        if let Some(row) = row.filter(|_| nodemap.subtree == CLOSED_SUBTREE) {
            nodemap.subtree.clone_from(&row.subtree);
        }
        MappedNodemap { nodemap, ids: row.map_or_else(IdMap::default, |row| row.ids.clone()) }
    }

    /// A shared target.
    pub(crate) fn shared_target(&self, target: TargetId) -> Option<&SharedRow> {
        self.shared.get(&target).map(|(_, row)| row)
    }

    /// All replica sets.
    pub(crate) fn replicas(&self) -> impl ExactSizeIterator<Item = &ReplicaRow> {
        self.replicas.values().map(|(_, row)| row)
    }

    /// The replica set of a target.
    pub(crate) fn replica_set(&self, target: TargetId) -> Option<&ReplicaRow> {
        self.replicas.get(&target).map(|(_, row)| row)
    }

    /// All spare hosts, by name.
    pub(crate) fn spares(&self) -> impl ExactSizeIterator<Item = &SpareRow> {
        self.spares.values().map(|(_, row)| row)
    }

    /// The spare host of a name.
    pub(crate) fn spare(&self, host: &str) -> Option<&SpareRow> {
        self.spares.get(host).map(|(_, row)| row)
    }

    /// The move of a copy of a target, while there is one.
    pub(crate) fn move_of(&self, target: TargetId) -> Option<&MoveRow> {
        self.moves.get(&target).map(|(_, row)| row)
    }

    /// Targets of which a copy moves.
    pub(crate) fn moving(&self) -> impl ExactSizeIterator<Item = TargetId> {
        self.moves.keys().copied()
    }

    /// Whether what is known of a target is as old as a backup.
    pub(crate) fn is_restored(&self, target: TargetId) -> bool {
        self.restored.contains_key(&target)
    }

    /// Whether a key was removed.
    pub(crate) fn is_removed(&self, key: &[u8; 32]) -> bool {
        self.removed.contains_key(key)
    }
}

fn encode<T: Form>(row: &T) -> Result<Vec<u8>> {
    form::encode(FormatLevel::FIRST, row).map(Vec::from)
}

fn decode<T: Form>(key: &str, bytes: &[u8]) -> Result<T> {
    let damaged = |why| Fault::new(Code::StoreDamaged).subject(key.to_owned()).why(why);
    form::decode(bytes).map_err(|why| why.fault("the list of hosts", damaged))
}

/// Reads all rows.
pub(crate) async fn load(store: &dyn ConfigStore) -> Result<Rows> {
    let mut rows = Rows::default();
    let mut entries = Vec::new();
    for prefix in PREFIXES {
        entries.extend(store.list(prefix).await?.into_iter().map(|entry| (prefix, entry)));
    }
    // Versions rise while they are taken in; rows that were stored together have the same one.
    entries.sort_by_key(|(_, entry)| entry.version);
    for (prefix, entry) in entries {
        let change = decoded(prefix, &entry.key, &entry.value)?;
        rows.take_in(change, entry.version);
    }
    Ok(rows)
}

/// All rows among the entries of a backup, numbered in their order.
pub(crate) fn decode_all<'a>(entries: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<Rows> {
    let mut rows = Rows::default();
    for (key, value) in entries {
        if let Some(prefix) = PREFIXES.iter().find(|prefix| key.starts_with(**prefix)) {
            let version = rows.version() + 1;
            rows.apply(decoded(prefix, key, value)?, version);
        }
    }
    Ok(rows)
}

fn decoded(prefix: &str, key: &str, value: &[u8]) -> Result<Change> {
    Ok(match prefix {
        HOSTS => Change::Host(decode(key, value)?),
        TOKENS => Change::Token(decode(key, value)?),
        SHARED => Change::Shared(Box::new(decode(key, value)?)),
        REPLICAS => Change::Replicas(Box::new(decode(key, value)?)),
        MGS => Change::Mgs(decode(key, value)?),
        NODEMAPS => Change::Nodemap(Box::new(decode(key, value)?)),
        RESTORED => Change::Restored(decode(key, value)?),
        SPARES => Change::Spare(decode(key, value)?),
        MOVES => Change::Move(decode(key, value)?),
        RENAMED => Change::Renamed(decode(key, value)?),
        ID_MAPS => Change::IdMap(Box::new(decode(key, value)?)),
        _ => Change::Removed(decode(key, value)?),
    })
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
