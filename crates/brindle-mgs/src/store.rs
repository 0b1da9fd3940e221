//! The map in the config store, and the newest map in memory: the only code of the MGS that touches the store.
//!
//! Key `fs/<name>/map`; beside it `fs/<name>/term/<MDT>`, the highest term that each MDT has opened under. Invariant: the map in memory is the one in the store; it is replaced only after the store has
//! made the new one durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use brindle_config::{ConfigStore, Superblock, Swap};
use brindle_stdx::watch;
use brindle_types::{Code, Fault, FsName, Result, TargetId};
use brindle_wire::form::{self, FormatLevel};
use brindle_wire::map::Map;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// Earlier versions of the map that are remembered, to tell what changed since.
const VERSIONS_KEPT: usize = 64;
/// Attempts to store a change while others store theirs.
pub(crate) const ATTEMPTS_MAX: usize = 16;

/// The map and its place in the store.
pub(crate) struct MapStore {
    store: Arc<dyn ConfigStore>,
    key: String,
    /// Version of the store's entry; also makes changes of this process one after the other.
    entry_version: Mutex<u64>,
    current: watch::Sender<Arc<Map>>,
    terms: Terms,
    /// Versions that this process has told, the newest last.
    earlier: parking_lot::Mutex<VecDeque<Arc<Map>>>,
}

/// Prefix of the keys of terms, and what they hold, each with its version.
struct Terms {
    prefix: String,
    highest: parking_lot::Mutex<BTreeMap<TargetId, (u64, TermRow)>>,
}

/// The highest term of an MDT, and the opening that has told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TermRow {
    /// The term.
    pub term: u32,
    /// The number of the opening.
    pub opening: u64,
}

brindle_wire::first_form!(1 => TermRow);

impl Terms {
    async fn load(store: &dyn ConfigStore, fs: &FsName) -> Result<Terms> {
        let prefix = format!("fs/{fs}/term/");
        let mut highest = BTreeMap::new();
        for entry in store.list(&prefix).await? {
            let damaged = |why: String| Fault::new(Code::StoreDamaged).subject(entry.key.clone()).why(why);
            let target: TargetId = entry.key[prefix.len()..].parse().map_err(damaged)?;
            let row = decode_term(&entry.key, &entry.value)?;
            highest.insert(target, (entry.version, row));
        }
        Ok(Terms { prefix, highest: highest.into() })
    }
}

fn decode_term(key: &str, bytes: &[u8]) -> Result<TermRow> {
    let damaged = |why| Fault::new(Code::StoreDamaged).subject(key.to_owned()).why(why);
    form::decode(bytes).map_err(|why| why.fault("the term of an MDT", damaged))
}

pub(crate) fn key(fs: &FsName) -> String {
    format!("fs/{fs}/map")
}

/// Writes the first value of a key that must not be there yet.
pub(crate) async fn create(store: &dyn ConfigStore, key: &str, value: &[u8]) -> Result<()> {
    match store.compare_and_swap(key, 0, Some(value)).await? {
        Swap::Done(_) => Ok(()),
        Swap::Lost(_) => {
            Err(Fault::new(Code::StoreInUse).subject(key.to_owned()).data("nothing was changed"))
        }
    }
}

fn encode(map: &Map) -> Result<Vec<u8>> {
    form::encode(FormatLevel::NEWEST, map).map(Vec::from)
}

pub(crate) fn decode(key: &str, bytes: &[u8]) -> Result<Map> {
    let damaged = |why| Fault::new(Code::StoreDamaged).subject(key.to_owned()).why(why);
    form::decode(bytes).map_err(|why| why.fault("the map of targets", damaged))
}

impl MapStore {
    /// Writes the first map of a new file system.
    pub(crate) async fn format(store: &dyn ConfigStore, superblock: &Superblock) -> Result<()> {
        let fs = superblock.fs.clone();
        let key = key(&fs);
        let map = Map::new(fs, superblock.fs_id);
        create(store, &key, &encode(&map)?).await
    }

    /// Reads the map.
    pub(crate) async fn open(store: Arc<dyn ConfigStore>, superblock: &Superblock) -> Result<MapStore> {
        let key = key(&superblock.fs);
        let entry = store.get(&key).await?.ok_or_else(|| {
            Fault::new(Code::StoreDamaged)
                .subject(key.clone())
                .why("the store holds no map of this file system")
        })?;
        let map = decode(&key, &entry.value)?;
        if map.fs_id != superblock.fs_id {
            return Err(Fault::new(Code::ForeignTarget)
                .what("cannot serve")
                .subject(superblock.name())
                .why(format!("its superblock is of file system {:016x}", superblock.fs_id))
                .why(format!("its configuration store is of file system {:016x}", map.fs_id)));
        }
        let current = watch::Sender::new(Arc::new(map));
        let earlier = parking_lot::Mutex::default();
        let terms = Terms::load(&*store, &superblock.fs).await?;
        Ok(MapStore { store, key, entry_version: Mutex::new(entry.version), current, terms, earlier })
    }

    /// Keeps the highest term of an MDT; that term. Of two openings under one term the first counts.
    pub(crate) async fn note_term(&self, mdt: TargetId, told: TermRow) -> Result<TermRow> {
        // Serialises changes of the store.
        let _turn = self.entry_version.lock().await;
        let key = format!("{}{mdt}", self.terms.prefix);
        for _ in 0..ATTEMPTS_MAX {
            let (version, highest) = self.terms.highest.lock().get(&mdt).copied().unwrap_or_default();
            if highest.term >= told.term {
                return Ok(highest);
            }
            let value = form::encode(FormatLevel::NEWEST, &told)?;
            match self.store.compare_and_swap(&key, version, Some(&value)).await? {
                Swap::Done(version) => {
                    self.terms.highest.lock().insert(mdt, (version, told));
                    return Ok(told);
                }
                // Another MGS wrote first, or an earlier write of this one was done although no answer came.
                Swap::Lost(_) => {
                    let entry = self.store.get(&key).await?;
                    let known =
                        entry.map(|entry| Ok((entry.version, decode_term(&entry.key, &entry.value)?)));
                    let known: (u64, TermRow) = known.transpose()?.unwrap_or_default();
                    self.terms.highest.lock().insert(mdt, known);
                }
            }
        }
        Err(Fault::new(Code::Overloaded)
            .what("cannot keep the term of")
            .subject(mdt.to_string())
            .why(format!("others changed it {ATTEMPTS_MAX} times meanwhile")))
    }

    /// The highest terms that MDTs have told.
    pub(crate) fn terms(&self) -> Vec<(TargetId, u32)> {
        self.terms.highest.lock().iter().map(|(mdt, (_, row))| (*mdt, row.term)).collect()
    }

    /// The newest map.
    pub(crate) fn current(&self) -> Arc<Map> {
        self.current.borrow().clone()
    }

    /// An earlier version, if it is remembered.
    pub(crate) fn earlier(&self, version: u64) -> Option<Arc<Map>> {
        self.earlier.lock().iter().find(|map| map.version == version).cloned()
    }

    fn replace(&self, next: Map) {
        let before = self.current.send_replace(Arc::new(next));
        let mut earlier = self.earlier.lock();
        earlier.push_back(before);
        if earlier.len() > VERSIONS_KEPT {
            earlier.pop_front();
        }
    }

    /// Completes when the map is newer than `version`.
    pub(crate) async fn newer_than(&self, version: u64) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.current.subscribe().wait_for(|map| map.version > version).await;
    }

    /// Stores what `change` makes of the map (`None`: nothing to do) and says whether it changed.
    pub(crate) async fn modify(&self, change: impl Fn(&Map) -> Result<Option<Map>>) -> Result<bool> {
        let mut entry_version = self.entry_version.lock().await;
        for _ in 0..ATTEMPTS_MAX {
            let before = self.current();
            let Some(next) = change(&before)? else { return Ok(false) };
            assert_follows(&before, &next);
            match self.store.compare_and_swap(&self.key, *entry_version, Some(&encode(&next)?)).await? {
                Swap::Done(version) => {
                    *entry_version = version;
                    self.replace(next);
                    return Ok(true);
                }
                Swap::Lost(_) => *entry_version = self.reload().await?,
            }
        }
        Err(Fault::new(Code::Overloaded)
            .what("cannot change the map of targets")
            .why(format!("others changed it {ATTEMPTS_MAX} times meanwhile")))
    }

    async fn reload(&self) -> Result<u64> {
        let entry = self.store.get(&self.key).await?;
        let entry = entry.ok_or_else(|| Fault::new(Code::StoreDamaged).subject(self.key.clone()))?;
        self.replace(decode(&self.key, &entry.value)?);
        Ok(entry.version)
    }
}

/// Panics before a map is stored that only a mistake of this MGS can have made.
fn assert_follows(before: &Map, next: &Map) {
    assert_eq!((&before.fs, before.fs_id), (&next.fs, next.fs_id), "a map keeps its file system");
    assert!(before.version < next.version, "map {} behind map {}", next.version, before.version);
    assert!(before.format_level <= next.format_level, "the format level never goes back");
    for target in &next.targets {
        let epoch = before.target(target.id).filter(|old| old.uuid == target.uuid).map_or(0, |old| old.epoch);
        assert!(epoch <= target.epoch, "{}: epoch {} behind {epoch}", target.id, target.epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_whose_answer_was_lost_is_told_again() {
        crate::testing::run(async {
            let (store, _dir) = crate::testing::Forgetful::new();
            let superblock = crate::testing::superblock();
            MapStore::format(&*store, &superblock).await.unwrap();
            let maps = MapStore::open(store.clone(), &superblock).await.unwrap();
            let (mdt, first) = (TargetId::mdt(0), TermRow { term: 4, opening: 1 });
            store.lose_next_answer();
            assert_eq!(maps.note_term(mdt, first).await.unwrap_err().code, Code::StoreUnreachable);
            assert_eq!(maps.note_term(mdt, first).await, Ok(first), "it was kept after all");
            let second = TermRow { term: 5, opening: 2 };
            store.lose_next_answer();
            maps.note_term(mdt, second).await.unwrap_err();
            let third = TermRow { term: 6, opening: 3 };
            assert_eq!(maps.note_term(mdt, third).await, Ok(third));
            assert_eq!(maps.terms(), [(mdt, 6)]);
        });
    }

    #[test]
    fn bytes_in_the_store_never_change() {
        use brindle_types::TargetId;
        use brindle_wire::map::{Network, Pool, RemovedTarget, ReplicaSet, TargetEntry, TargetState};
        let golden = |version: &str| {
            let path = format!("{}/golden/{version}/map.bin", env!("CARGO_MANIFEST_DIR"));
            std::fs::read(path).expect("golden file exists")
        };
        let entry = TargetEntry {
            id: TargetId::ost(10),
            uuid: *b"0123456789abcdef",
            nids: vec!["10.0.0.1:9880@tcp1".parse().unwrap()],
            epoch: 3,
            state: TargetState::Up,
            replicas: ReplicaSet::of("oss1"),
            format_level_max: FormatLevel::FIRST,
        };
        let format_level = FormatLevel::FIRST;
        let new = Map::new("scratch".parse().unwrap(), 5);
        let mut map = Map { version: 6, targets: vec![entry], format_level, ..new };
        map.note_host("oss1");
        assert_eq!(decode("k", &golden("v1")), Ok(map.clone()), "the format without pools is still read");
        map.pools.push(Pool { name: "flash".parse().unwrap(), osts: vec![3, 10] });
        assert_eq!(
            decode("k", &golden("v2")),
            Ok(map.clone()),
            "so is the one without OSTs that are drained"
        );
        map.draining.push(10);
        map.removed.push(RemovedTarget { id: TargetId::ost(4), uuid: [8; 16] });
        assert_eq!(decode("k", &golden("v3")), Ok(map.clone()), "and that of release 0.1.0");
        map.targets[0].replicas.standby.push("oss2".into());
        map.note_host("oss2");
        map.networks.push(Network { rail: 1, name: "ib0".into() });
        if std::env::var_os("BRINDLE_GOLDEN").is_some() {
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v4");
            std::fs::create_dir_all(dir).unwrap();
            std::fs::write(format!("{dir}/map.bin"), encode(&map).unwrap()).unwrap();
        }
        let golden = golden("v4");
        assert_eq!(golden, encode(&map).unwrap(), "bytes on disk changed; that needs a new format version");
        assert_eq!(decode("k", &golden), Ok(map));
        assert_eq!(decode("k", &[9, 9]).unwrap_err().code, Code::NewerFormat);
        assert_eq!(decode("k", &golden[..5]).unwrap_err().code, Code::StoreDamaged);
    }
}
