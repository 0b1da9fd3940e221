//! Decisions about hosts: who may join, with which token; what is assigned; what a crash between two changes leaves.

use brindle_auth::{HostKey, Secret};
use brindle_types::{Code, Result, Role, TargetId};
use brindle_wire::map::{Map, ReplicaSet, TargetEntry, TargetState};
use brindle_wire::mgs::hosts::{Assignment, CreateTokenReq, HostedState, HostedTarget, JoinReq};

use super::decide;
use super::rows::{Change, HostRow, MgsRow, RemovedRow, Rows, TokenRow};

const NOW_S: i64 = 1_800_000_000;

/// Rows with what was decided applied.
#[derive(Default)]
struct World {
    rows: Rows,
}

impl World {
    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            let version = self.rows.version() + 1;
            self.rows.apply(change, version);
        }
    }

    fn token(&mut self, roles: &str, host: &str) -> Secret {
        let secret = Secret::generate().unwrap();
        let req = CreateTokenReq { roles: roles.into(), host: host.into(), lifetime_s: 3600 };
        let id = (secret.id(), secret.hash());
        let (changes, _) = decide::create_token(&self.rows, &req, id, NOW_S).unwrap();
        self.apply(changes);
        secret
    }

    fn join(&mut self, secret: &Secret, host: &str, key: &HostKey, now_s: i64) -> Result<HostRow> {
        let (changes, row) = decide::join(&self.rows, &request(secret, host, key), now_s)?;
        self.apply(changes);
        Ok(row)
    }

    fn joined(&mut self, host: &str, roles: &str) -> HostKey {
        let (secret, key) = (self.token(roles, ""), HostKey::generate().unwrap());
        self.join(&secret, host, &key, NOW_S).unwrap();
        key
    }

    fn add(&mut self, host: &str, dir: &str, role: Role, index: Option<u16>) -> Result<Assignment> {
        let (changes, assignment) =
            decide::add_target(&self.rows, &map(), (host, dir), (role, index), [7; 16])?;
        self.apply(changes);
        Ok(assignment)
    }
}

fn request(secret: &Secret, host: &str, key: &HostKey) -> JoinReq {
    let public_key = key.public();
    let proof = secret.proof(host, &public_key);
    JoinReq { token: secret.id(), host: host.into(), public_key, proof }
}

fn map() -> Map {
    let entry = |id, host: &str| TargetEntry {
        id,
        uuid: [1; 16],
        nids: vec!["10.0.0.1:9881".parse().unwrap()],
        epoch: 1,
        state: TargetState::Up,
        replicas: ReplicaSet::of(host),
        format_level_max: brindle_wire::form::FormatLevel::FIRST,
    };
    let targets = vec![entry(TargetId::MGT, "mgs1"), entry(TargetId::ost(0), "old")];
    Map { targets, ..Map::new("scratch".parse().unwrap(), 1) }
}

fn code<T: std::fmt::Debug>(outcome: Result<T>) -> Code {
    outcome.unwrap_err().code
}

#[test]
fn a_token_lets_one_key_in_and_answers_that_key_again() {
    let mut world = World::default();
    let (secret, key, other) =
        (world.token("server", ""), HostKey::generate().unwrap(), HostKey::generate().unwrap());
    assert_eq!(world.join(&secret, "oss1", &key, NOW_S).unwrap().roles, "server");
    let before = world.rows.hosts().cloned().collect::<Vec<_>>();
    world.join(&secret, "oss1", &key, NOW_S).expect("the answer was lost");
    assert_eq!(world.rows.hosts().cloned().collect::<Vec<_>>(), before);
    assert_eq!(code(world.join(&secret, "oss1", &other, NOW_S)), Code::BadToken, "another key");
    assert_eq!(code(world.join(&secret, "oss2", &key, NOW_S)), Code::BadToken, "another name");
    let second = world.token("server", "");
    assert_eq!(code(world.join(&second, "oss1", &other, NOW_S)), Code::HostNameInUse, "a name is one host's");
    world.join(&second, "oss2", &other, NOW_S).expect("nothing of the token was used up by the refusal");
}

#[test]
fn tokens_end_and_are_for_one_host_if_so_made_and_cannot_be_guessed() {
    let mut world = World::default();
    let key = HostKey::generate().unwrap();
    let (named, late) = (world.token("client", "c1"), world.token("client", ""));
    assert_eq!(code(world.join(&named, "c2", &key, NOW_S)), Code::BadToken);
    assert_eq!(code(world.join(&late, "c2", &key, NOW_S + 3600)), Code::BadToken, "it has ended");
    let mut stolen = request(&late, "c2", &key);
    stolen.public_key = HostKey::generate().unwrap().public();
    assert_eq!(
        code(decide::join(&world.rows, &stolen, NOW_S)),
        Code::BadToken,
        "a proof is of no use for another key"
    );
    let made_up = Secret::generate().unwrap();
    assert_eq!(code(world.join(&made_up, "c2", &key, NOW_S)), Code::BadToken);
    let bad = CreateTokenReq { roles: "root".into(), host: String::new(), lifetime_s: 60 };
    assert_eq!(code(decide::create_token(&world.rows, &bad, ([0; 8], [0; 32]), NOW_S)), Code::BadArgument);
    for host in ["", "a/b", "a b", "..", &"x".repeat(65)] {
        assert_eq!(code(world.join(&late, host, &key, NOW_S)), Code::BadArgument, "{host}");
    }
    // Ended ones are forgotten when the next one is made.
    let req = CreateTokenReq { roles: "client".into(), host: String::new(), lifetime_s: 60 };
    let (changes, _) =
        decide::create_token(&world.rows, &req, ([9; 8], [0; 32]), NOW_S + 30 * 24 * 3600).unwrap();
    world.apply(changes);
    assert_eq!(world.rows.tokens().len(), 1);
}

#[test]
fn a_host_that_keeps_its_key_keeps_its_roles() {
    let mut world = World::default();
    let key = world.joined("n1", "client,admin");
    let less = world.token("client", "n1");
    let fault = world.join(&less, "n1", &key, NOW_S).unwrap_err();
    assert_eq!((fault.code, world.rows.host("n1").unwrap().roles.as_str()), (Code::BadToken, "client,admin"));
    assert!(fault.why[0].contains("go on as admin"), "{fault}");
    let more = world.token("client,agent,admin", "n1");
    assert_eq!(world.join(&more, "n1", &key, NOW_S).unwrap().roles, "client,agent,admin");
    world.join(&more, "n1", &key, NOW_S).expect("the answer was lost");
    // A certificate that has ended gives nothing, and a host that was removed joins as whatever it is to be.
    let ends_s = world.rows.host("n1").unwrap().certificate_ends_s;
    let late = CreateTokenReq { roles: "client".into(), host: "n1".into(), lifetime_s: 3600 };
    let (secret, late_s) = (Secret::generate().unwrap(), ends_s + 3 * 24 * 3600);
    let made = decide::create_token(&world.rows, &late, (secret.id(), secret.hash()), late_s);
    world.apply(made.unwrap().0);
    assert_eq!(world.join(&secret, "n1", &key, late_s).unwrap().roles, "client");
    // With another key, made for this very host, it takes the name over, and the old key is out.
    let (again, other) = (world.token("client", "n2"), HostKey::generate().unwrap());
    world.joined("n2", "client,server");
    assert_eq!(world.join(&again, "n2", &other, NOW_S).unwrap().roles, "client");
}

#[test]
fn a_removed_key_stays_out_and_its_name_is_free() {
    let mut world = World::default();
    let key = world.joined("c1", "client");
    let changes = decide::remove(&world.rows, &map(), "c1", false, NOW_S).unwrap();
    // The MGS may die behind the first change: then the host is out already.
    assert!(matches!(changes[0], Change::Removed(_)), "{changes:?}");
    world.apply(changes);
    let id = brindle_auth::KeyId::of_public(&key.public()).0;
    assert_eq!(
        code(decide::renew(&world.rows, "c1", id, NOW_S)),
        Code::HostRemoved,
        "on its last connection"
    );
    let again = world.token("client", "");
    assert_eq!(code(world.join(&again, "c1", &key, NOW_S)), Code::HostRemoved);
    world.join(&again, "c1", &HostKey::generate().unwrap(), NOW_S).expect("a host of the same name");
    // Once no certificate of the key can hold any more, it is forgotten.
    assert_eq!(world.rows.removed_keys().count(), 1);
    let req = CreateTokenReq { roles: "client".into(), host: String::new(), lifetime_s: 60 };
    let later_s = NOW_S + (92 + 366) * 24 * 3600;
    world.apply(decide::create_token(&world.rows, &req, ([9; 8], [0; 32]), later_s).unwrap().0);
    assert_eq!(world.rows.removed_keys().count(), 0);
}

#[test]
fn a_host_with_targets_is_not_removed_by_mistake() {
    let mut world = World::default();
    world.joined("mgs1", "server,admin");
    world.joined("old", "server");
    world.joined("oss1", "server");
    world.add("oss1", "/data/ost1", Role::Ost, None).unwrap();
    for host in ["old", "oss1"] {
        assert_eq!(
            code(decide::remove(&world.rows, &map(), host, false, NOW_S)),
            Code::TargetInUse,
            "{host}"
        );
        assert_eq!(decide::remove(&world.rows, &map(), host, true, NOW_S).unwrap().len(), 2);
    }
    assert_eq!(
        code(decide::remove(&world.rows, &map(), "mgs1", true, NOW_S)),
        Code::TargetInUse,
        "the MGS host has the authority"
    );
    assert_eq!(code(decide::remove(&world.rows, &map(), "oss9", false, NOW_S)), Code::UnknownHost);
}

#[test]
fn targets_get_free_indices_ports_and_directories() {
    let mut world = World::default();
    world.joined("old", "server");
    world.joined("oss1", "server");
    world.joined("c1", "client");
    let first = world.add("oss1", "/data/a", Role::Ost, None).unwrap();
    assert_eq!(
        (first.target, first.port, first.is_formatted),
        (TargetId::ost(1), 9881, false),
        "0 is in the map"
    );
    let second = world.add("oss1", "/data/b", Role::Ost, None).unwrap();
    assert_eq!((second.target, second.port), (TargetId::ost(2), 9882));
    let beside = world.add("old", "/data/a", Role::Ost, Some(7)).unwrap();
    assert_eq!((beside.target, beside.port), (TargetId::ost(7), 9882), "9881 is that of its OST in the map");
    assert_eq!(world.add("old", "/data/mdt", Role::Mdt, None).unwrap().target, TargetId::mdt(0));
    assert_eq!(code(world.add("oss1", "/data/m", Role::Mdt, None)), Code::IndexInUse, "there is one MDT");
    assert_eq!(code(world.add("oss1", "/data/c", Role::Ost, Some(7))), Code::IndexInUse);
    assert_eq!(
        code(world.add("c1", "/data/c", Role::Ost, None)),
        Code::BadArgument,
        "a client serves nothing"
    );
    assert_eq!(code(world.add("oss9", "/data/c", Role::Ost, None)), Code::UnknownHost);
    for dir in ["data", "/data/a", "/data/a/sub", "/data", "/data/../x", "/data//x", "/", "", "/x\0"] {
        assert_eq!(code(world.add("oss1", dir, Role::Ost, None)), Code::BadArgument, "{dir:?}");
    }
    world.add("oss1", "/data/ab", Role::Ost, None).expect("only the beginning of its name is the same");
}

#[test]
fn what_was_formatted_is_noted_once_and_only_for_its_identity() {
    let mut world = World::default();
    world.joined("oss1", "server");
    let made = world.add("oss1", "/data/a", Role::Ost, None).unwrap();
    let told = |uuid| {
        vec![HostedTarget { target: made.target, uuid, is_formatted: true, state: HostedState::Starting }]
    };
    assert_eq!(decide::formatted(&world.rows, "oss1", &told([8; 16])).unwrap(), [], "another target");
    let taken_back = decide::forget_unmade(&world.rows, &map(), "oss1", made.target).unwrap().0;
    assert_eq!(taken_back.len(), 1, "an order that was not carried out can be taken back");
    let noted = decide::formatted(&world.rows, "oss1", &told(made.uuid)).unwrap();
    assert_eq!(noted.len(), 1);
    world.apply(noted);
    assert_eq!(decide::formatted(&world.rows, "oss1", &told(made.uuid)).unwrap(), [], "it is noted");
    assert_eq!(
        code(decide::forget_unmade(&world.rows, &map(), "oss1", made.target)),
        Code::TargetInUse,
        "it may hold files"
    );
    let (changes, stopped) = decide::want(&world.rows, "oss1", made.target, false).unwrap();
    assert!(changes.len() == 1 && !stopped.is_wanted);
    world.apply(changes);
    assert!(decide::want(&world.rows, "oss1", made.target, false).unwrap().0.is_empty(), "it is so");
    assert_eq!(code(decide::want(&world.rows, "oss1", TargetId::ost(9), true)), Code::UnknownTarget);
    world.apply(decide::forget_target(&world.rows, made.target));
    assert!(world.rows.host("oss1").unwrap().assignments.is_empty());
}

#[test]
fn bytes_in_the_store_never_change() {
    let assignment = Assignment {
        target: TargetId::ost(10),
        uuid: *b"0123456789abcdef",
        dir: "/data/ost10".into(),
        port: 9883,
        is_formatted: true,
        is_wanted: false,
    };
    let host = HostRow {
        name: "oss1".into(),
        key: [1; 32],
        roles: "server,admin".into(),
        joined_s: NOW_S,
        certificate_ends_s: NOW_S + 90,
        assignments: vec![assignment],
    };
    let token = TokenRow {
        id: [2; 8],
        secret_hash: [3; 32],
        roles: "client".into(),
        host: String::new(),
        expires_s: NOW_S,
        used_by: Some(("c1".into(), [4; 32])),
    };
    let removed = RemovedRow { key: [5; 32], host: "c2".into(), until_s: NOW_S };
    let changes = [Change::Host(host), Change::Token(token), Change::Removed(removed)];
    let written: Vec<u8> = changes
        .iter()
        .flat_map(|change| {
            let (key, _, value) = change.entry(&Rows::default()).unwrap();
            [key.into_bytes(), value.unwrap()].concat()
        })
        .collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/hosts-v1.bin");
    if std::env::var_os("BRINDLE_GOLDEN").is_some() {
        std::fs::write(path, &written).unwrap();
    }
    let golden = std::fs::read(path).expect("golden file exists");
    assert_eq!(written, golden, "bytes in the store changed; that needs a new form");
}

#[test]
fn a_host_gets_the_authority_only_when_it_was_told_to_run_the_mgs() {
    let mut world = World::default();
    world.joined("mgs2", "server");
    world.joined("c1", "client");
    let add = |rows: &Rows, host: &str, dir: &str| decide::add_mgs(rows, &map(), (host, dir), [9; 16]);
    assert_eq!(code(decide::check_runs_mgs(&world.rows, "mgs2")), Code::NotForCaller);
    assert_eq!(code(add(&world.rows, "c1", "/mgt")), Code::BadArgument, "no server");
    assert_eq!(code(add(&world.rows, "mgs9", "/mgt")), Code::UnknownHost);
    assert_eq!(code(add(&world.rows, "mgs2", "mgt")), Code::BadArgument, "no absolute path");
    let (changes, made) = add(&world.rows, "mgs2", "/mgt").unwrap();
    world.apply(changes);
    assert_eq!((made.target, made.uuid, made.is_formatted), (TargetId::MGT, [9; 16], false));
    assert_eq!(decide::check_runs_mgs(&world.rows, "mgs2"), Ok(()));
    assert_eq!(code(add(&world.rows, "mgs2", "/mgt2")), Code::BadArgument, "it runs it already");
    assert!(decide::mgs_at("mgs2", &[]).is_err(), "nobody would find it");
    world.apply(decide::mgs_at("mgs2", &["10.0.0.2:9880".parse().unwrap()]).unwrap());
    assert_eq!(world.rows.mgs().len(), 1);
    // Other hosts hold all that this host has: it can leave, and its addresses with it.
    world.apply(decide::remove(&world.rows, &map(), "mgs2", false, NOW_S).unwrap());
    assert_eq!(world.rows.mgs().len(), 0);
    assert_eq!(code(decide::check_runs_mgs(&world.rows, "mgs2")), Code::UnknownHost);
}

#[test]
fn bytes_of_a_host_that_runs_the_mgs_never_change() {
    let row = MgsRow { host: "mgs1".into(), nids: vec!["10.0.0.1:9880@tcp1".parse().unwrap()] };
    let (key, _, value) = Change::Mgs(row).entry(&Rows::default()).unwrap();
    assert_eq!(key, "cluster/mgs/mgs1");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/mgs-v1.bin");
    if std::env::var_os("BRINDLE_GOLDEN").is_some() {
        std::fs::write(path, value.as_ref().unwrap()).unwrap();
    }
    assert_eq!(value.unwrap(), std::fs::read(path).expect("golden file exists"));
}
