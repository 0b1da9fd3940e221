//! The map in the config store, and the newest map in memory: the only code of the MGS that touches the store.
//!
//! Key `fs/<name>/map`. Invariant: the map in memory is the one in the store; it is replaced only after the store has
//! made the new one durable.

use std::sync::Arc;

use brindle_config::{ConfigStore, LocalStore, Superblock, Swap};
use brindle_stdx::watch;
use brindle_types::{Code, Fault, FsName, Result};
use brindle_wire::map::Map;
use tokio::sync::Mutex;

/// Format of the stored map that this release writes.
const MAP_FORMAT: u8 = 3;
/// The format before, which had no pools.
const MAP_FORMAT_WITHOUT_POOLS: u8 = 1;
/// The one after it, which had neither OSTs that are drained nor removed ones.
const MAP_FORMAT_WITHOUT_DRAINING: u8 = 2;
/// An empty list, as it is stored.
const NO_LIST: &[u8] = &[0];
/// Attempts to store a change while others store theirs.
const ATTEMPTS_MAX: usize = 16;

/// The map and its place in the store.
pub(crate) struct MapStore {
    store: Arc<dyn ConfigStore>,
    key: String,
    /// Version of the store's entry; also makes changes of this process one after the other.
    entry_version: Mutex<u64>,
    current: watch::Sender<Arc<Map>>,
}

fn key(fs: &FsName) -> String {
    format!("fs/{fs}/map")
}

fn encode(map: &Map) -> Vec<u8> {
    let mut bytes = vec![MAP_FORMAT];
    bytes.extend(postcard::to_stdvec(map).expect("maps are made of types with known lengths"));
    bytes
}

fn decode(key: &str, bytes: &[u8]) -> Result<Map> {
    let damaged = |why: String| Fault::new(Code::StoreDamaged).subject(key.to_owned()).why(why);
    let map = |bytes: &[u8]| {
        postcard::from_bytes(bytes).map_err(|e| damaged(format!("the map does not decode: {e}")))
    };
    match bytes.split_first() {
        Some((&MAP_FORMAT, rest)) => map(rest),
        Some((&MAP_FORMAT_WITHOUT_POOLS, rest)) => map(&[rest, NO_LIST, NO_LIST, NO_LIST].concat()),
        Some((&MAP_FORMAT_WITHOUT_DRAINING, rest)) => map(&[rest, NO_LIST, NO_LIST].concat()),
        Some((other, _)) => Err(Fault::new(Code::NewerFormat)
            .what("cannot read the map of targets")
            .subject(key.to_owned())
            .why(format!("it has format {other}; this release knows {MAP_FORMAT}"))),
        None => Err(damaged("the map is empty".to_owned())),
    }
}

impl MapStore {
    /// Writes the first map of a new file system.
    pub(crate) fn format(store: &LocalStore, superblock: &Superblock) -> Result<()> {
        let fs = superblock.fs.clone();
        let key = key(&fs);
        let map = Map::new(fs, superblock.fs_id);
        store.create_entry(&key, &encode(&map))
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
        Ok(MapStore { store, key, entry_version: Mutex::new(entry.version), current })
    }

    /// The newest map.
    pub(crate) fn current(&self) -> Arc<Map> {
        self.current.borrow().clone()
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
            let Some(next) = change(&self.current())? else { return Ok(false) };
            match self.store.compare_and_swap(&self.key, *entry_version, Some(&encode(&next))).await? {
                Swap::Done(version) => {
                    *entry_version = version;
                    self.current.send_replace(Arc::new(next));
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
        self.current.send_replace(Arc::new(decode(&self.key, &entry.value)?));
        Ok(entry.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_the_store_never_change() {
        use brindle_types::TargetId;
        use brindle_wire::map::{Pool, RemovedTarget, TargetEntry, TargetState};
        let entry = TargetEntry {
            id: TargetId::ost(10),
            uuid: *b"0123456789abcdef",
            nids: vec!["10.0.0.1:9880@tcp1".parse().unwrap()],
            epoch: 3,
            state: TargetState::Up,
            host: "oss1".into(),
        };
        let mut map = Map { version: 6, targets: vec![entry], ..Map::new("scratch".parse().unwrap(), 5) };
        let before = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1/map.bin")).unwrap();
        assert_eq!(decode("k", &before), Ok(map.clone()), "the format without pools is still read");
        map.pools.push(Pool { name: "flash".parse().unwrap(), osts: vec![3, 10] });
        let before = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v2/map.bin")).unwrap();
        assert_eq!(decode("k", &before), Ok(map.clone()), "so is the one without OSTs that are drained");
        map.draining.push(10);
        map.removed.push(RemovedTarget { id: TargetId::ost(4), uuid: [8; 16] });
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v3/map.bin");
        if std::env::var_os("BRINDLE_GOLDEN").is_some() && !std::path::Path::new(path).exists() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v3")).unwrap();
            std::fs::write(path, encode(&map)).unwrap();
        }
        let golden = std::fs::read(path).expect("golden file exists");
        assert_eq!(golden, encode(&map), "bytes on disk changed; that needs a new format version");
        assert_eq!(decode("k", &golden), Ok(map));
        assert_eq!(decode("k", &[9, 9]).unwrap_err().code, Code::NewerFormat);
        assert_eq!(decode("k", &golden[..5]).unwrap_err().code, Code::StoreDamaged);
    }
}
