//! Spare hosts: a member of a replica set that has been away for too long is given up, and a copy is made on a spare host (design note 042).
//!
//! Targets of a lost host are made anew on several spare hosts at the same time: each set is decided about alone, those with the fewest complete copies
//! first, and each spare host that has got a copy counts with it in the next decision.
//!
//! Plain functions of all rows and of what was heard. Invariants: only a set that is served is changed; only a member out of sync is given
//! up, because nothing depends on it; a set has one member on a host, and one in a rack as long as another rack has a spare host; each copy
//! gets a new directory.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use brindle_types::{Code, Fault, Result, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::replica::{MemberPlace, MemberRole, ReplicaSetState};
use brindle_wire::mgs::spare::SpareHost;

use super::decide::{check_place, new_member, port_is_taken, stored};
use super::racks::neighbour;
use crate::hosts::decide::{check_is_server, check_path, known};
use crate::hosts::rows::{Change, Rows, SpareRow};

/// A member may be away for less than this because its host boots.
pub(crate) const AFTER_MIN_S: u64 = 10;
/// Longest time, in seconds, for which a set may be told to wait for an absent member.
pub(crate) const AFTER_MAX_S: u64 = 30 * 24 * 3600;

/// A host becomes a spare one, or is none any more.
pub(crate) fn change(rows: &Rows, host: &str, spare: Option<&SpareHost>) -> Result<Vec<Change>> {
    let row = known(rows, host)?;
    let Some(spare) = spare else {
        let is_one = rows.spare(host).is_some();
        return Ok(is_one.then(|| Change::NoSpare(host.to_owned())).into_iter().collect());
    };
    let refuse = |why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot make a spare host of")
            .subject(host.to_owned())
            .why(why)
            .data("nothing was changed")
    };
    check_is_server(row)?;
    if spare.host != host {
        return Err(refuse(format!("the request names {} and {host}", spare.host)));
    }
    check_path(&spare.dir).map_err(|why| refuse(why).next("give another directory: --spare-dir"))?;
    if !(AFTER_MIN_S..=AFTER_MAX_S).contains(&spare.after_s) {
        let why = format!("{} s are not from {AFTER_MIN_S} s to 30 days", spare.after_s);
        return Err(refuse(why).next("give another time: --after SECONDS"));
    }
    let made = SpareRow { host: host.to_owned(), dir: spare.dir.clone(), after_s: spare.after_s };
    let is_so = rows.spare(host) == Some(&made);
    Ok((!is_so).then_some(Change::Spare(made)).into_iter().collect())
}

/// State of hosts and members.
pub(crate) struct Seen<'a> {
    /// Time for which members of the set have been away or failed, in milliseconds.
    pub(crate) away_ms: &'a BTreeMap<String, u64>,
    /// Whether a host can be given something.
    pub(crate) is_alive: &'a dyn Fn(&str) -> bool,
    /// Free bytes of a spare host; 0 where it has not told.
    pub(crate) room: &'a dyn Fn(&str) -> u64,
}

/// A member that is given up, and where its copy is made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// Host of the lost member.
    pub(crate) lost: String,
    /// The place of the new one.
    pub(crate) place: MemberPlace,
}

/// All sets, those with the fewest members in sync first: where spare hosts are short, they get the copies.
pub(crate) fn by_risk(rows: &Rows) -> Vec<TargetId> {
    let mut found: Vec<(usize, TargetId)> =
        rows.replicas().map(|row| (row.set.in_sync().count(), row.set.target)).collect();
    found.sort_unstable();
    found.into_iter().map(|(_, target)| target).collect()
}

/// Whether a member of the set is to be replaced now, by whom. The set is served.
pub(crate) fn replaced(
    rows: &Rows,
    map: &Map,
    set: &ReplicaSetState,
    seen: &Seen<'_>,
) -> Option<(Replacement, Change)> {
    let away = set.members.iter().filter(|m| m.host != set.primary && m.role == MemberRole::Learner);
    let (lost, away_ms) =
        away.filter_map(|m| Some((m, *seen.away_ms.get(&m.host)?))).max_by_key(|(_, ms)| *ms)?;
    let copies = |host: &str| rows.replicas().filter(|row| row.set.member(host).is_some()).count();
    let mut fit: Vec<&SpareRow> = rows
        .spares()
        .filter(|spare| spare.after_s.saturating_mul(1000) <= away_ms)
        .filter(|spare| set.member(&spare.host).is_none() && (seen.is_alive)(&spare.host))
        .filter(|spare| !port_is_taken(rows, map, set, &spare.host))
        .collect();
    // Prefer a spare host in a rack without another member, then the one with the fewest copies, then the one with the most room, then the first by name.
    let others: Vec<&str> =
        set.members.iter().map(|m| m.host.as_str()).filter(|host| *host != lost.host).collect();
    let is_beside = |host: &str| neighbour(map, &others, host).is_some();
    let order = |spare: &&SpareRow| {
        let host = &spare.host;
        (is_beside(host), copies(host), Reverse((seen.room)(host)), host.clone())
    };
    fit.sort_by_key(order);
    let place = fit.into_iter().map(|spare| place_on(rows, spare, set.target));
    let place = place.into_iter().find(|place| check_place(rows, place).is_ok())?;
    let mut next = set.clone();
    next.members.retain(|m| m.host != lost.host);
    next.members.push(new_member(&place, MemberRole::Learner));
    Some((Replacement { lost: lost.host.clone(), place }, stored(&next)))
}

/// Versions of rows rise: no directory is named twice.
fn place_on(rows: &Rows, spare: &SpareRow, target: TargetId) -> MemberPlace {
    let name = target.to_string().to_lowercase();
    let dir = format!("{}/{name}-{}", spare.dir.trim_end_matches('/'), rows.version());
    MemberPlace { host: spare.host.clone(), dir }
}

#[cfg(test)]
mod tests {
    use brindle_wire::form::FormatLevel;
    use brindle_wire::map::{ReplicaSet, TargetEntry, TargetState};
    use brindle_wire::mgs::replica::ReplicaMember;

    use super::super::racks::labelled;
    use super::*;
    use crate::hosts::rows::{HostRow, ReplicaRow};

    fn host(name: &str) -> HostRow {
        HostRow {
            name: name.to_owned(),
            key: [1; 32],
            roles: "server".to_owned(),
            joined_s: 0,
            certificate_ends_s: 0,
            assignments: Vec::new(),
        }
    }

    fn member(host: &str, role: MemberRole) -> ReplicaMember {
        let place = MemberPlace { host: host.to_owned(), dir: format!("/data/{host}") };
        ReplicaMember { is_formatted: true, boot_term: 1, ..new_member(&place, role) }
    }

    /// A set of a, which serves, and b, which has been taken out; s1 and s2 are spare hosts.
    fn rows(role: MemberRole) -> (Rows, ReplicaSetState) {
        let (target, primary) = (TargetId::ost(3), "a".to_owned());
        let members = vec![member("a", MemberRole::InSync), member("b", role)];
        let set = ReplicaSetState { target, uuid: [7; 16], epoch: 5, term: 1, port: 9884, primary, members };
        let mut rows = Rows::default();
        let spare = |host: &str, after_s| {
            Change::Spare(SpareRow { host: host.to_owned(), dir: "/spare".to_owned(), after_s })
        };
        let hosts = ["a", "b", "s1", "s2"].map(|name| Change::Host(host(name)));
        let others =
            [Change::Replicas(Box::new(ReplicaRow { set: set.clone() })), spare("s1", 600), spare("s2", 60)];
        for (n, change) in hosts.into_iter().chain(others).enumerate() {
            rows.apply(change, n as u64 + 1);
        }
        (rows, set)
    }

    fn map() -> Map {
        Map::new("scratch".parse().expect("a name"), 1)
    }

    fn found(
        rows: &Rows,
        set: &ReplicaSetState,
        away_s: u64,
        alive: &[&str],
    ) -> Option<(String, MemberPlace)> {
        let away_ms = BTreeMap::from([("b".to_owned(), away_s * 1000)]);
        let seen = Seen { away_ms: &away_ms, is_alive: &|host| alive.contains(&host), room: &|_| 0 };
        replaced(rows, &map(), set, &seen).map(|(replacement, _)| (replacement.lost, replacement.place))
    }

    #[test]
    fn a_copy_that_is_away_for_too_long_is_made_anew_on_a_spare_host() {
        let (rows, set) = rows(MemberRole::Learner);
        assert_eq!(found(&rows, &set, 59, &["s1", "s2"]), None, "it may come back");
        let place = MemberPlace { host: "s2".to_owned(), dir: "/spare/ost0003-7".to_owned() };
        assert_eq!(found(&rows, &set, 60, &["s1", "s2"]), Some(("b".to_owned(), place)));
        assert_eq!(found(&rows, &set, 60, &["s1"]), None, "that one waits longer");
        let (_, place) = found(&rows, &set, 600, &["s1"]).expect("the other one");
        assert_eq!(place.host, "s1");
        let away_ms = BTreeMap::from([("b".to_owned(), 60_000)]);
        let seen = Seen { away_ms: &away_ms, is_alive: &|_| true, room: &|_| 0 };
        let Some((_, Change::Replicas(row))) = replaced(&rows, &map(), &set, &seen) else {
            panic!("a change of the set")
        };
        let members: Vec<(&str, MemberRole)> =
            row.set.members.iter().map(|m| (m.host.as_str(), m.role)).collect();
        assert_eq!(members, [("a", MemberRole::InSync), ("s2", MemberRole::Learner)]);
        assert_eq!((row.set.epoch, row.set.primary.as_str()), (5, "a"), "nothing depended on it");
    }

    #[test]
    fn a_spare_host_of_another_rack_comes_first_and_one_of_the_same_rack_is_better_than_none() {
        let (rows, set) = rows(MemberRole::Learner);
        let mut map = map();
        for (host, rack) in [("a", "R1"), ("b", "R2"), ("s1", "R1"), ("s2", "R2")] {
            map = labelled(&rows, &map, host, rack).expect("a label").expect("a new one");
        }
        let away_ms = BTreeMap::from([("b".to_owned(), 600_000)]);
        let found = |map: &Map, alive: &[&str]| {
            let seen = Seen { away_ms: &away_ms, is_alive: &|host| alive.contains(&host), room: &|_| 0 };
            replaced(&rows, map, &set, &seen).map(|(replacement, _)| replacement.place.host)
        };
        assert_eq!(found(&map, &["s1", "s2"]).as_deref(), Some("s2"), "b, which was there, is given up");
        assert_eq!(found(&map, &["s1"]).as_deref(), Some("s1"));
        map = labelled(&rows, &map, "s2", "R1").expect("a label").expect("a new one");
        map = labelled(&rows, &map, "s1", "R3").expect("a label").expect("a new one");
        assert_eq!(found(&map, &["s1", "s2"]).as_deref(), Some("s1"));
    }

    /// Sets of OSTs, each with a member on the lost host b; `in_sync` of the others. s1 to sN are spare hosts.
    fn lost_host(in_sync: &[usize], spares: usize) -> Rows {
        let mut rows = Rows::default();
        let mut changes: Vec<Change> = ["b", "a0", "a1"].map(|name| Change::Host(host(name))).into();
        for n in 1..=spares {
            let name = format!("s{n}");
            changes.push(Change::Host(host(&name)));
            changes.push(Change::Spare(SpareRow { host: name, dir: "/spare".to_owned(), after_s: 60 }));
        }
        for (n, complete) in in_sync.iter().enumerate() {
            let n = u16::try_from(n).expect("few");
            let mut members = vec![member("b", MemberRole::Learner)];
            members.extend((0..*complete).map(|m| member(&format!("a{m}"), MemberRole::InSync)));
            let (target, primary, port) = (TargetId::ost(n), "a0".to_owned(), 9000 + n);
            let set = ReplicaSetState { target, uuid: [7; 16], epoch: 5, term: 1, port, primary, members };
            changes.push(Change::Replicas(Box::new(ReplicaRow { set })));
        }
        for (n, change) in changes.into_iter().enumerate() {
            rows.apply(change, n as u64 + 1);
        }
        rows
    }

    /// Makes all lost copies anew, as one look of the MGS does; the hosts that get them, in order.
    fn made_anew(rows: &mut Rows) -> Vec<(TargetId, String)> {
        let away_ms = BTreeMap::from([("b".to_owned(), 60_000)]);
        let mut places = Vec::new();
        for target in by_risk(rows) {
            let set = rows.replica_set(target).expect("a set").set.clone();
            let seen = Seen { away_ms: &away_ms, is_alive: &|_| true, room: &|_| 0 };
            let Some((replacement, change)) = replaced(rows, &map(), &set, &seen) else { continue };
            assert_eq!(replacement.lost, "b");
            let version = rows.version() + 1;
            rows.apply(change, version);
            places.push((target, replacement.place.host));
        }
        places
    }

    #[test]
    fn the_copies_of_a_lost_host_are_made_anew_on_all_spare_hosts_at_the_same_time() {
        for (sets, spares) in [(3, 3), (7, 3), (2, 4), (12, 5)] {
            let mut rows = lost_host(&vec![1; sets], spares);
            let places = made_anew(&mut rows);
            assert_eq!(places.len(), sets, "all of them in one look");
            let count = |n: usize| places.iter().filter(|(_, host)| *host == format!("s{n}")).count();
            let counts: Vec<usize> = (1..=spares).map(count).collect();
            let (least, most) = (counts.iter().min(), counts.iter().max());
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{counts:?}");
            assert!(made_anew(&mut rows).is_empty(), "b has none of them any more");
        }
    }

    #[test]
    fn of_spare_hosts_with_equally_many_copies_the_one_with_the_most_room_comes_first() {
        let rows = lost_host(&[1], 3);
        let away_ms = BTreeMap::from([("b".to_owned(), 60_000)]);
        let room = |host: &str| if host == "s2" { 2 << 40 } else { 1 << 40 };
        let seen = Seen { away_ms: &away_ms, is_alive: &|_| true, room: &room };
        let set = rows.replica_set(TargetId::ost(0)).expect("a set").set.clone();
        let found = replaced(&rows, &map(), &set, &seen).map(|(replacement, _)| replacement.place.host);
        assert_eq!(found.as_deref(), Some("s2"));
    }

    #[test]
    fn sets_with_one_complete_copy_left_come_first() {
        let mut rows = lost_host(&[2, 1, 2, 1], 1);
        let order: Vec<u16> = made_anew(&mut rows).iter().map(|(target, _)| target.index).collect();
        assert_eq!(order, [1, 3, 0, 2]);
    }

    #[test]
    fn a_spare_host_whose_port_another_target_has_gets_nothing() {
        let (rows, set) = rows(MemberRole::Learner);
        let served = TargetEntry {
            id: TargetId::ost(9),
            uuid: [1; 16],
            nids: vec!["10.0.0.2:9884".parse().expect("an address")],
            epoch: 1,
            state: TargetState::Up,
            replicas: ReplicaSet::of("s2"),
            format_level_max: FormatLevel::FIRST,
        };
        let map = Map { targets: vec![served], ..map() };
        let away_ms = BTreeMap::from([("b".to_owned(), 600_000)]);
        let seen = Seen { away_ms: &away_ms, is_alive: &|_| true, room: &|_| 0 };
        let found = replaced(&rows, &map, &set, &seen).map(|(replacement, _)| replacement.place.host);
        assert_eq!(found.as_deref(), Some("s1"));
    }

    #[test]
    fn what_is_in_sync_or_serves_is_not_given_up() {
        let (rows, set) = rows(MemberRole::InSync);
        assert_eq!(found(&rows, &set, 9999, &["s1", "s2"]), None);
        let away_ms = BTreeMap::from([("a".to_owned(), 9_999_000)]);
        let seen = Seen { away_ms: &away_ms, is_alive: &|_| true, room: &|_| 0 };
        assert!(replaced(&rows, &map(), &set, &seen).is_none());
    }

    #[test]
    fn bad_requests_change_nothing() {
        let (rows, _) = rows(MemberRole::Learner);
        let asked = |host: &str, dir: &str, after_s| {
            let spare = SpareHost { host: host.to_owned(), dir: dir.to_owned(), after_s };
            change(&rows, host, Some(&spare)).map(|changes| changes.len())
        };
        assert_eq!(asked("b", "/spare", 600), Ok(1));
        assert_eq!(asked("s1", "/spare", 600), Ok(0), "it is so already");
        assert!(asked("nobody", "/spare", 600).is_err());
        assert!(asked("b", "spare", 600).is_err() && asked("b", "/data/../etc", 600).is_err());
        assert!(asked("b", "/spare", 9).is_err() && asked("b", "/spare", u64::MAX).is_err());
        assert_eq!(change(&rows, "s1", None).map(|changes| changes.len()), Ok(1));
        assert_eq!(change(&rows, "b", None).map(|changes| changes.len()), Ok(0));
    }
}
