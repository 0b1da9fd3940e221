//! An MGS dies at each write of a rename. Property: the next one finds the host under one name in all rows and in the map, or under the other one; the
//! rename is completed by the host alone; nobody takes the host for dead meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

use brindle_auth::{ClusterId, KeyId};
use brindle_config::Write;
use brindle_config::store::{Entry, Swap, Watch};
use brindle_net::TcpTransport;
use brindle_stdx::BoxFuture;
use brindle_wire::form::FormatLevel;
use brindle_wire::map::{ReplicaSet, TargetEntry, TargetState};
use brindle_wire::mgs::nodemap::Nodemap;
use brindle_wire::mgs::replica::{MemberRole, ReplicaMember, ReplicaSetState};

use super::*;
use crate::hosts::rename::Shown;
use crate::hosts::rows::{Change, HostRow, ReplicaRow, TokenRow};
use crate::replica::step::Heard;
use crate::testing::run;

/// More writes than a rename has.
const WRITES_MAX: u64 = 20;
const KEY: [u8; 32] = [7; 32];
/// Longer than an MGS waits for hosts that it has not heard of, and shorter than a rename may take.
const SOON_MS: u64 = 18_000;

/// A store whose MGS dies behind a number of writes. Events are no part of a rename.
struct Mortal {
    store: Arc<LocalStore>,
    left: AtomicU64,
}

impl Mortal {
    fn may_write(&self, key: &str) -> Result<()> {
        let none_left = || Fault::new(Code::StoreUnreachable);
        if key.contains("event") {
            return Ok(());
        }
        let less = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).map(drop).map_err(|_| none_left())
    }
}

impl ConfigStore for Mortal {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>>> {
        self.store.get(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Entry>>> {
        self.store.list(prefix)
    }

    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected_version: u64,
        value: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Swap>> {
        Box::pin(async move {
            self.may_write(key)?;
            self.store.compare_and_swap(key, expected_version, value).await
        })
    }

    fn swap_all(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Swap>> {
        Box::pin(async move {
            self.may_write("all")?;
            self.store.swap_all(writes).await
        })
    }

    fn watch(&self, prefix: &str) -> Watch {
        self.store.watch(prefix)
    }
}

/// A cluster in which `oss1` leads a set, is limited by a nodemap, and stands in the map.
struct World {
    _dir: tempfile::TempDir,
    standing: Standing,
    store: Arc<LocalStore>,
}

fn ost() -> TargetId {
    TargetId::ost(3)
}

fn shown(host: &str) -> Shown {
    Shown { host: host.to_owned(), key: Some(KEY) }
}

impl World {
    async fn new(own: &str) -> World {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap().to_owned();
        let fs = "scratch".parse().unwrap();
        let superblock =
            crate::format(seams.disk.clone(), &*seams.rng, seams.wall(), &path, fs).await.unwrap();
        let authority = brindle_auth::Authority::new(ClusterId(1), seams.wall().secs).unwrap();
        std::fs::write(dir.path().join(hosts::AUTHORITY_FILE), authority.to_pem()).unwrap();
        let store = Arc::new(LocalStore::open(seams.disk.clone(), &store_path(&path)).unwrap());
        let transport: Arc<dyn Transport> = Arc::new(TcpTransport::new(seams.clone()));
        let config = Config::new(path, "127.0.0.1:0".parse().unwrap(), own);
        let gate = Arc::new(Gate::new(TargetId::MGT, superblock.name(), superblock.fs_id));
        let standing = Standing {
            config,
            superblock,
            seams,
            transport,
            gate,
            stats: Arc::default(),
            active: Mutex::default(),
            stop: Latch::default(),
            failed: watch::Sender::default(),
        };
        let world = World { _dir: dir, standing, store };
        world.filled().await;
        world
    }

    async fn filled(&self) {
        let row = HostRow {
            name: "oss1".to_owned(),
            key: KEY,
            roles: "server".to_owned(),
            joined_s: 1,
            certificate_ends_s: 2,
            assignments: Vec::new(),
        };
        let token = TokenRow {
            id: [1; 8],
            secret_hash: [2; 32],
            roles: "client".to_owned(),
            host: String::new(),
            expires_s: 3,
            used_by: None,
        };
        hosts::found(&*self.store, row, token).await.unwrap();
        let active = self.mgs(WRITES_MAX).await;
        let member = ReplicaMember {
            host: "oss1".to_owned(),
            dir: "/data/r".to_owned(),
            is_formatted: true,
            role: MemberRole::InSync,
            boot_term: 3,
            recorded_epoch: 9,
            nids: Vec::new(),
        };
        let other = ReplicaMember { host: "oss2".to_owned(), ..member.clone() };
        let members = vec![member, other];
        let set = ReplicaSetState {
            target: ost(),
            uuid: [3; 16],
            epoch: 9,
            term: 4,
            port: 9890,
            primary: "oss1".to_owned(),
            members,
        };
        let lab = Nodemap { hosts: vec!["oss1".to_owned()], read_only: true, ..Nodemap::new("lab") };
        let rows = vec![Change::Replicas(Box::new(ReplicaRow { set })), Change::Nodemap(Box::new(lab))];
        active.mgs.hosts().unwrap().change(|_| Ok((rows.clone(), ()))).await.unwrap();
        let entry = TargetEntry {
            id: ost(),
            uuid: [3; 16],
            nids: vec!["10.0.0.1:9890".parse().unwrap()],
            epoch: 1,
            state: TargetState::Up,
            replicas: ReplicaSet::of("oss1".to_owned()),
            format_level_max: FormatLevel::NEWEST,
        };
        let with_ost = |map: &Map| {
            let mut next = Map { version: map.version + 1, ..map.clone() };
            next.targets.push(entry.clone());
            Ok(Some(next))
        };
        active.mgs.store.modify(with_ost).await.unwrap();
    }

    /// An MGS that dies behind so many writes.
    async fn mgs(&self, writes: u64) -> Active {
        let store = Mortal { store: self.store.clone(), left: AtomicU64::new(WRITES_MAX) };
        let store = Arc::new(store);
        let active = self.standing.serve(store.clone(), None).await.unwrap();
        store.left.store(writes, Ordering::Release);
        active.mgs.hosts().unwrap().heard.lock().asked("oss1", active.mgs.seams.now());
        active
    }
}

/// The name by which all rows and the map know the host. Nodemaps know it by both while it may show either.
fn only_name(active: &Active) -> &'static str {
    let rows = active.mgs.hosts().unwrap().rows();
    let map = active.mgs.map_now();
    let primary = rows.replica_set(ost()).unwrap().set.primary.clone();
    let in_map = map.target(ost()).unwrap().host().to_owned();
    let is_new = rows.host("oss1").is_none();
    let name = if is_new { "new" } else { "oss1" };
    assert_eq!((primary.as_str(), in_map.as_str(), rows.host(name).is_some()), (name, name, true));
    assert_eq!(rows.hosts().len(), 1);
    name
}

/// Whether the host counts as dead some time later, if it is silent until then.
fn would_be_dead(active: &Active) -> bool {
    let rows = active.mgs.hosts().unwrap().rows();
    let set = &rows.replica_set(ost()).unwrap().set;
    let later = active.mgs.seams.now().plus_ms(SOON_MS);
    active.mgs.replicas.heard(set, later)[&set.primary] == Heard::Dead
}

#[test]
fn an_mgs_that_dies_at_any_write_of_a_rename_leaves_nothing_half_done() {
    run(async {
        let (mut names, mut steps) = (Vec::new(), 0);
        for writes in 0..WRITES_MAX {
            let world = World::new("mgs1").await;
            let first = world.mgs(writes).await;
            let outcome = ops::hosts::renamed(&first.mgs, "oss1", "new", false).await;
            drop(first);
            let second = world.mgs(WRITES_MAX).await;
            let name = only_name(&second);
            names.push(name);
            if name == "new" {
                assert!(!would_be_dead(&second), "the host has its time again");
                let again = ops::hosts::renamed(&second.mgs, "oss1", "new", false).await;
                assert_eq!(again, Ok(true), "whoever asked hears that it was done");
                steps += completed_whatever_dies(&world).await;
            } else {
                assert!(would_be_dead(&second), "a host that was not renamed has no more time than others");
            }
            if outcome.is_ok() {
                assert_eq!(name, "new");
                assert!(names.contains(&"oss1"), "it died before the rows, too: {names:?}");
                assert!(names.len() > 2 && steps > 0, "and between the rows and the map: {names:?}");
                return;
            }
        }
        panic!("a rename has fewer writes");
    });
}

/// The host shows its new name to MGSs that die at one write after the other; how often one died.
async fn completed_whatever_dies(world: &World) -> u64 {
    for writes in 0..WRITES_MAX {
        let active = world.mgs(writes).await;
        let outcome = ops::hosts::note_new_name(&active.mgs, Some(&shown("new"))).await;
        drop(active);
        let next = world.mgs(WRITES_MAX).await;
        assert_eq!(only_name(&next), "new");
        let rows = next.mgs.hosts().unwrap().rows();
        let (is_refused, nodemap) =
            (rows.is_removed(&KeyId(KEY).under_name("oss1").0), rows.nodemap("lab").unwrap().hosts.clone());
        match is_refused {
            true => assert_eq!((nodemap, rows.renamed().len()), (vec!["new".to_owned()], 0)),
            false => assert_eq!((nodemap.len(), rows.renamed().len()), (2, 1), "limited by either name"),
        }
        if outcome.is_ok() {
            assert!(is_refused && would_be_dead(&next));
            return writes;
        }
    }
    panic!("the end of a rename has fewer writes");
}

#[test]
fn an_mgs_whose_own_host_is_renamed_registers_it_under_the_new_name_only() {
    run(async {
        let world = World::new("oss1").await;
        let first = world.mgs(WRITES_MAX).await;
        let mgt = |active: &Active| active.mgs.map_now().target(TargetId::MGT).unwrap().host().to_owned();
        assert_eq!(mgt(&first), "oss1");
        assert_eq!(ops::hosts::renamed(&first.mgs, "oss1", "new", false).await, Ok(true));
        assert_eq!((mgt(&first).as_str(), only_name(&first)), ("new", "new"), "by the same process");
        drop(first);
        // Killed before it took the name.
        let again = world.mgs(WRITES_MAX).await;
        assert_eq!((mgt(&again).as_str(), only_name(&again)), ("new", "new"));
        let text = format!("{:?}", again.mgs.map_now());
        assert!(!text.contains("oss1"), "{text}");
    });
}
