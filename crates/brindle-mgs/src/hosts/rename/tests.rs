//! A host with another name keeps all that it has; what cannot be is refused by name.

use brindle_types::TargetId;
use brindle_wire::form::FormatLevel;
use brindle_wire::map::{HostEntry, ReplicaSet, TargetState};
use brindle_wire::mgs::hosts::Assignment;
use brindle_wire::mgs::replica::ReplicaMember;

use super::*;

const NOW_S: i64 = 1_800_000_000;
const HEARD: Option<u64> = Some(100);

fn host(name: &str, key: u8, roles: &str) -> Change {
    let assignment = Assignment {
        target: TargetId::ost(u16::from(key)),
        uuid: [key; 16],
        dir: format!("/data/{name}"),
        port: 9881,
        is_formatted: true,
        is_wanted: true,
    };
    Change::Host(HostRow {
        name: name.to_owned(),
        key: [key; 32],
        roles: roles.to_owned(),
        joined_s: 5,
        certificate_ends_s: 7,
        assignments: vec![assignment],
    })
}

fn set(index: u16, primary: &str, other: &str) -> ReplicaSetState {
    let member = |host: &str| ReplicaMember {
        host: host.to_owned(),
        dir: "/data/r".to_owned(),
        is_formatted: true,
        role: MemberRole::InSync,
        boot_term: 3,
        recorded_epoch: 9,
        nids: Vec::new(),
    };
    ReplicaSetState {
        target: TargetId::ost(index),
        uuid: [index as u8; 16],
        epoch: 9,
        term: 4,
        port: 9890,
        primary: primary.to_owned(),
        members: vec![member(primary), member(other)],
    }
}

fn shared(index: u16, owner: &str, other: &str, phase: SharedPhase) -> SharedRow {
    let reach = |host: &str| SharedHost { host: host.to_owned(), device: "/dev/lun7".to_owned() };
    let target = SharedTarget {
        target: TargetId::ost(index),
        uuid: [8; 16],
        hosts: vec![reach(owner), reach(other)],
        dir: "/srv/x".to_owned(),
        port: 9899,
        is_formatted: true,
        is_wanted: true,
        owner: owner.to_owned(),
        turn: 6,
        phase,
    };
    SharedRow { target, moved_for_failure_s: 0 }
}

/// `a` has a target of its own, serves one set and follows in another, owns a device, is a spare host, and a nodemap names it.
fn rows() -> Rows {
    let mut rows = Rows::default();
    let lab = Nodemap { hosts: vec!["a".to_owned()], read_only: true, ..Nodemap::new("lab") };
    let sets =
        [set(20, "a", "b"), set(21, "b", "a")].map(|set| Change::Replicas(Box::new(ReplicaRow { set })));
    let spare = SpareRow { host: "a".to_owned(), dir: "/spare".to_owned(), after_s: 60 };
    let moves = MoveRow { target: TargetId::ost(21), from: "a".to_owned(), to: "c".to_owned() };
    let mgs = MgsRow { host: "a".to_owned(), nids: vec!["10.0.0.1:9880".parse().unwrap()] };
    let others = [
        Change::Shared(Box::new(shared(30, "a", "b", SharedPhase::Owned))),
        Change::Nodemap(Box::new(lab)),
        Change::Spare(spare),
        Change::Move(moves),
        Change::Mgs(mgs),
    ];
    let hosts = [host("a", 1, "server"), host("b", 2, "server"), host("c", 3, "client")];
    rows.apply_all(hosts.into_iter().chain(sets).chain(others).collect(), 1);
    rows
}

fn map() -> Map {
    let entry = |id, host: &str| TargetEntry {
        id,
        uuid: [1; 16],
        nids: Vec::new(),
        epoch: 3,
        state: TargetState::Up,
        replicas: ReplicaSet { standby: vec!["a".to_owned()], ..ReplicaSet::of(host) },
        format_level_max: FormatLevel::FIRST,
    };
    let targets = vec![entry(TargetId::MGT, "m"), entry(TargetId::ost(1), "a")];
    let domain = HostEntry { name: "a".to_owned(), nids: Vec::new(), failure_domain: "R1".to_owned() };
    Map { targets, hosts: vec![domain], ..Map::new("scratch".parse().unwrap(), 1) }
}

fn shown(host: &str, key: u8) -> Shown {
    Shown { host: host.to_owned(), key: Some([key; 32]) }
}

fn renamed(rows: &mut Rows, from: &str, to: &str) {
    // The map has followed an earlier rename.
    let map = if from == "a" { map() } else { in_map(&map(), "a", from).unwrap() };
    let changes = begin(rows, &map, (from, to), HEARD).unwrap();
    let version = rows.version() + 1;
    rows.apply_all(changes, version);
}

#[test]
fn everything_goes_with_the_host_at_once() {
    let mut rows = rows();
    let before = rows.host("a").unwrap().clone();
    renamed(&mut rows, "a", "z");
    assert!(rows.host("a").is_none());
    assert_eq!(*rows.host("z").unwrap(), HostRow { name: "z".to_owned(), ..before });
    let led = &rows.replica_set(TargetId::ost(20)).unwrap().set;
    assert_eq!(
        (led.primary.as_str(), led.epoch, led.is_in_sync("z"), led.is_in_sync("b")),
        ("z", 10, true, true)
    );
    let followed = &rows.replica_set(TargetId::ost(21)).unwrap().set;
    assert_eq!((followed.primary.as_str(), followed.epoch), ("b", 10));
    let seat = followed.member("z").expect("it keeps its seat");
    assert_eq!((seat.role, seat.boot_term, seat.is_formatted), (MemberRole::Learner, 3, true));
    let device = &rows.shared_target(TargetId::ost(30)).unwrap().target;
    assert_eq!((device.owner.as_str(), device.turn, device.hosts[0].host.as_str()), ("z", 7, "z"));
    assert_eq!(rows.spares().map(|spare| spare.host.as_str()).collect::<Vec<_>>(), ["z"]);
    assert_eq!(
        rows.moves().map(|row| (row.from.as_str(), row.to.as_str())).collect::<Vec<_>>(),
        [("z", "c")]
    );
    assert_eq!(rows.mgs().map(|row| row.host.as_str()).collect::<Vec<_>>(), ["z"]);
    assert_eq!(rows.nodemap("lab").unwrap().hosts, ["a", "z"], "it is limited under either name");
    let text = format!("{rows:?}");
    assert_eq!(text.matches("\"a\"").count(), 2, "only the nodemap and the row of the rename: {text}");
    let map = in_map(&map(), "a", "z").unwrap();
    assert!(!format!("{map:?}").contains("\"a\""), "{map:?}");
    assert_eq!((map.host("z").unwrap().failure_domain.as_str(), map.version), ("R1", 2));
    assert_eq!(in_map(&map, "a", "z"), None, "once is enough");
}

#[test]
fn the_former_name_is_refused_once_the_new_one_was_shown() {
    let mut rows = rows();
    renamed(&mut rows, "a", "z");
    assert_eq!(check_name(&rows, Some(&shown("a", 1))).unwrap_err().code, Code::HostRenamed);
    assert_eq!(check_name(&rows, Some(&shown("z", 1))), Ok(()));
    assert!(
        complete(&rows, &shown("a", 1), NOW_S).is_empty()
            && complete(&rows, &shown("z", 9), NOW_S).is_empty()
    );
    assert!(!rows.is_removed(&KeyId([1; 32]).under_name("a").0));
    let changes = complete(&rows, &shown("z", 1), NOW_S);
    rows.apply_all(changes, 9);
    assert!(rows.is_removed(&KeyId([1; 32]).under_name("a").0) && !rows.is_removed(&[1; 32]));
    assert_eq!(rows.nodemap("lab").unwrap().hosts, ["z"]);
    assert_eq!(rows.renamed().len(), 0);
    assert!(complete(&rows, &shown("z", 1), NOW_S).is_empty());
    // And back again.
    renamed(&mut rows, "z", "a");
    assert!(!rows.is_removed(&KeyId([1; 32]).under_name("a").0), "it may have its former name again");
}

#[test]
fn what_cannot_be_is_refused_and_says_why() {
    let rows = rows();
    let why = |rows: &Rows, map: &Map, from: &str, to: &str, heard| {
        let fault = begin(rows, map, (from, to), heard).unwrap_err();
        (fault.code, fault.why.join("; "))
    };
    assert_eq!(begin(&rows, &map(), ("a", "a"), HEARD), Ok(Vec::new()));
    let (code, text) = why(&rows, &map(), "a", "b", HEARD);
    assert!(code == Code::HostNameInUse && text == "a host has joined as b", "{text}");
    assert_eq!(why(&rows, &map(), "a", "m", HEARD).0, Code::HostNameInUse, "the map names it");
    assert_eq!(why(&rows, &map(), "x", "z", HEARD).0, Code::UnknownHost);
    assert_eq!(why(&rows, &map(), "a", "z", None).0, Code::HostSilent);
    assert_eq!(why(&rows, &map(), "a", "z", Some(HEARD_WITHIN_MS + 1)).0, Code::HostSilent);
    assert!(begin(&rows, &map(), ("c", "z"), None).is_ok(), "a client has no daemon that could be heard");
    assert!(begin(&rows, &map(), ("a", "a/b"), HEARD).is_err());
    let mut moving = rows.clone();
    let phase = SharedPhase::Handing { to: "b".to_owned() };
    moving.apply(Change::Shared(Box::new(shared(30, "a", "b", phase))), 2);
    assert!(why(&moving, &map(), "a", "z", HEARD).1.contains("on its way"));
    let mut pending = rows.clone();
    renamed(&mut pending, "a", "z");
    assert!(why(&pending, &map(), "z", "y", HEARD).1.contains("it has not taken this name yet"));
    assert_eq!(
        why(&pending, &Map { targets: Vec::new(), ..map() }, "b", "a", HEARD).0,
        Code::HostNameInUse,
        "z still shows it"
    );
}

#[test]
fn root_of_the_mgs_host_needs_no_certificate_to_take_its_new_name() {
    let own = |host: &str| Shown { host: host.to_owned(), key: None };
    let mut rows = rows();
    assert_eq!(check_name(&rows, Some(&own("a"))), Ok(()));
    renamed(&mut rows, "a", "z");
    assert_eq!(check_name(&rows, Some(&own("a"))).unwrap_err().code, Code::HostRenamed);
    assert_eq!((check_name(&rows, Some(&own("z"))), check_name(&rows, None)), (Ok(()), Ok(())));
    assert!(complete(&rows, &own("a"), NOW_S).is_empty());
    let changes = complete(&rows, &own("z"), NOW_S);
    rows.apply_all(changes, 9);
    assert!(rows.is_removed(&KeyId([1; 32]).under_name("a").0));
}
