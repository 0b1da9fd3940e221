//! The local store keeps its promises over restarts, damage and races.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

struct Fixture {
    _dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    disk: Arc<dyn Disk>,
    path: String,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(brindle_stdx::real_disk::RealDisk::new(runtime.handle().clone()));
    let path = dir.path().join("config").to_str().unwrap().to_owned();
    Fixture { _dir: dir, runtime, disk, path }
}

#[test]
fn only_the_first_of_two_swaps_wins() {
    let f = fixture();
    let store = LocalStore::create(f.disk.clone(), &f.path).unwrap();
    f.runtime.block_on(async {
        assert_eq!(store.compare_and_swap("a", 0, Some(b"1")).await.unwrap(), Swap::Done(1));
        assert_eq!(store.compare_and_swap("a", 0, Some(b"2")).await.unwrap(), Swap::Lost(1));
        assert_eq!(store.compare_and_swap("a", 1, Some(b"3")).await.unwrap(), Swap::Done(2));
        assert_eq!(store.get("a").await.unwrap().unwrap().value, b"3");
        assert_eq!(store.compare_and_swap("a", 2, None).await.unwrap(), Swap::Done(3));
        assert_eq!(store.get("a").await.unwrap(), None);
        assert_eq!(store.compare_and_swap("a", 2, None).await.unwrap(), Swap::Lost(0));
    });
}

#[test]
fn watches_tell_of_their_prefix_only() {
    let f = fixture();
    let store = LocalStore::create(f.disk.clone(), &f.path).unwrap();
    let mut watch = store.watch("fs/");
    f.runtime.block_on(async {
        store.compare_and_swap("other", 0, Some(b"")).await.unwrap();
        {
            let changed = std::pin::pin!(watch.changed());
            assert!(poll_once(changed).is_none(), "another prefix is not told");
        }
        store.compare_and_swap("fs/a", 0, Some(b"")).await.unwrap();
        assert!(watch.changed().await);
        drop(store);
        assert!(!watch.changed().await, "the end of the store is told");
    });
}

fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(out) => Some(out),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn a_damaged_file_is_named_and_never_read() {
    let f = fixture();
    drop(LocalStore::create(f.disk.clone(), &f.path).unwrap());
    let good = std::fs::read(&f.path).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    std::fs::write(&f.path, &bad).unwrap();
    let fault = LocalStore::open(f.disk.clone(), &f.path).err().unwrap();
    assert_eq!(fault.code, Code::StoreDamaged);
    assert!(fault.to_string().contains("checksum"), "{fault}");
    std::fs::write(&f.path, envelope::seal(MAGIC, 2, b"")).unwrap();
    assert_eq!(LocalStore::open(f.disk.clone(), &f.path).err().unwrap().code, Code::NewerFormat);
}

#[test]
fn bytes_on_disk_never_change() {
    let mut contents = Contents { revision: 7, ..Contents::default() };
    contents.entries.insert("fs/scratch/map".into(), (6, vec![1, 2, 3]));
    let bytes = envelope::seal(MAGIC, FORMAT_VERSION, &postcard::to_stdvec(&contents).unwrap());
    crate::superblock::tests::check_golden("store", &bytes);
    assert_eq!(decode("x", &bytes).unwrap(), contents);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn keeps_the_promises_of_every_store(steps in crate::properties::steps()) {
        let f = fixture();
        let store = LocalStore::create(f.disk.clone(), &f.path).unwrap();
        f.runtime.block_on(crate::properties::check(&store, "k/", steps))?;
    }

    #[test]
    fn a_restart_changes_nothing(steps in prop::collection::vec((0..4u8, 0..3u64, prop::option::of(0..9u8)), 1..20)) {
        let f = fixture();
        let mut model: BTreeMap<String, (u64, Vec<u8>)> = BTreeMap::new();
        let mut store = LocalStore::create(f.disk.clone(), &f.path).unwrap();
        for (key, back, value) in steps {
            let key = format!("k/{key}");
            let have = model.get(&key).map_or(0, |(v, _)| *v);
            let value = value.map(|v| vec![v]);
            let swap = f.runtime.block_on(store.compare_and_swap(&key, have.saturating_sub(back), value.as_deref())).unwrap();
            match swap {
                Swap::Done(version) => {
                    prop_assert!(have.saturating_sub(back) == have);
                    match value { Some(v) => { model.insert(key, (version, v)); } None => { model.remove(&key); } }
                }
                Swap::Lost(now) => prop_assert!(now == have && back > 0),
            }
            drop(store);
            store = LocalStore::open(f.disk.clone(), &f.path).unwrap();
            let listed = f.runtime.block_on(store.list("k/")).unwrap();
            let listed: BTreeMap<_, _> = listed.into_iter().map(|e| (e.key, (e.version, e.value))).collect();
            prop_assert_eq!(&listed, &model);
        }
    }
}
