//! Moves of copies: a member is added on another host, and once it is complete the former member goes (design note 032).
//!
//! Plain functions of all rows and of what was heard. The order lies in a row of its own beside the set, so the MGS goes on with it by itself,
//! whatever becomes of the command that gave it. Each step is one change of the set. Invariant: the set never has fewer members in sync than
//! before, because the former member goes only after the new one is in sync and the target is served.
//!
//! | the set is | next step |
//! |---|---|
//! | the new member is not in sync | none: the primary fills it |
//! | the member that goes serves | the new member serves in its place |
//! | another member serves | the member that goes is taken out, and the move ends |
//! | either member was taken away by others | the move ends |

use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::replica::{MEMBERS_MAX, MemberPlace, MemberRole, ReplicaSetState};

use super::decide::{Changed, check_place, new_member, port_is_taken, set_to_be, stored};
use super::racks::check_apart;
use crate::hosts::decide::known;
use crate::hosts::rows::{Change, MoveRow, Rows};

/// State of members and targets.
pub(crate) struct Seen<'a> {
    /// Whether the primary of a set serves.
    pub(crate) is_served: &'a dyn Fn(&ReplicaSetState) -> bool,
    /// Whether a member can become the primary.
    pub(crate) is_well: &'a dyn Fn(&ReplicaSetState, &str) -> bool,
}

/// Begins a move. A repeated order changes nothing, whether the move is under way or done.
pub(crate) fn begin(
    rows: &Rows,
    map: &Map,
    target: TargetId,
    from: &str,
    (place, is_same_rack): (&MemberPlace, bool),
) -> Result<Changed> {
    let to = place.host.as_str();
    let refuse = |why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot move a copy of")
            .subject(map.fs.target(target))
            .why(why)
            .data("nothing was changed")
    };
    if from == to {
        return Err(refuse(format!("{to} is both the host that it leaves and the host that it moves to")));
    }
    if target.role == Role::Mgt {
        return Err(refuse("an MGT has no copies of this kind".to_owned()));
    }
    known(rows, to)?;
    let (mut set, host) = set_to_be(rows, map, target)?;
    if let Some(row) = rows.move_of(target) {
        if row.from == from && row.to == to {
            return Ok((Vec::new(), set));
        }
        return Err(refuse(format!("its copy on {} moves to {} now", row.from, row.to)).next(format!(
            "wait for that, or take it back: brindle target replica remove {target} --node {}",
            row.to
        )));
    }
    if set.member(from).is_none() {
        if set.is_in_sync(to) && rows.host(from).is_some() {
            return Ok((Vec::new(), set));
        }
        known(rows, from)?;
        let hosts: Vec<&str> = set.members.iter().map(|m| m.host.as_str()).collect();
        return Err(refuse(format!("{from} has no copy of it; these hosts do: {}", hosts.join(", "))));
    }
    if set.member(to).is_some() {
        return Err(refuse(format!("{to} has a copy of it already")).next(format!(
            "choose another host, or have one copy less: brindle target replica remove {target} --node {from}"
        )));
    }
    if set.members.len() >= MEMBERS_MAX {
        return Err(refuse(format!("it has {} copies, one more is not possible", set.members.len())));
    }
    check_place(rows, place)?;
    let others: Vec<&str> =
        set.members.iter().map(|m| m.host.as_str()).filter(|host| *host != from).collect();
    check_apart(rows, map, &others, to, is_same_rack)?;
    if port_is_taken(rows, map, &set, to) {
        return Err(refuse(format!("port {} is taken on {to} by another target", set.port))
            .next("choose another host"));
    }
    set.members.push(new_member(place, MemberRole::Learner));
    let row = MoveRow { target, from: from.to_owned(), to: to.to_owned() };
    // The move first: without the new member it ends by itself, and a new member without it would stay for ever.
    Ok(([Change::Move(row), stored(&set)].into_iter().chain(host.map(Change::Host)).collect(), set))
}

/// Next step of the move of a copy of a target, in words and as changes; `None` while there is nothing to do.
pub(crate) fn next(rows: &Rows, target: TargetId, seen: &Seen<'_>) -> Option<(String, Vec<Change>)> {
    let MoveRow { from, to, .. } = rows.move_of(target)?;
    let ends = Change::NoMove(target);
    let set = rows.replica_set(target).map(|row| &row.set);
    let Some(set) = set.filter(|set| set.member(to).is_some()) else {
        return Some((format!("{to} has no copy any more, the one on {from} stays"), vec![ends]));
    };
    if set.member(from).is_none() {
        return Some((format!("{from} has no copy any more"), vec![ends]));
    }
    if !set.is_in_sync(to) || !(seen.is_served)(set) {
        return None;
    }
    let mut set = set.clone();
    if set.primary == *from {
        if !(seen.is_well)(&set, to) {
            return None;
        }
        set.epoch += 1;
        set.primary.clone_from(to);
        return Some((format!("{to} serves in the place of {from}"), vec![stored(&set)]));
    }
    set.epoch += u64::from(set.is_in_sync(from));
    set.members.retain(|m| m.host != *from);
    Some((format!("{to} has everything, {from} has no copy any more"), vec![stored(&set), ends]))
}

#[cfg(test)]
mod tests {
    use brindle_wire::form::{self, FormatLevel};
    use brindle_wire::mgs::hosts::Assignment;
    use brindle_wire::mgs::replica::ReplicaMember;

    use super::*;
    use crate::hosts::rows::{HostRow, ReplicaRow};

    fn target() -> TargetId {
        TargetId::ost(3)
    }

    fn member(host: &str, role: MemberRole) -> ReplicaMember {
        let place = MemberPlace { host: host.to_owned(), dir: format!("/data/{host}") };
        ReplicaMember { is_formatted: true, boot_term: 1, ..new_member(&place, role) }
    }

    fn host(name: &str, assignments: Vec<Assignment>) -> Change {
        Change::Host(HostRow {
            name: name.to_owned(),
            key: [1; 32],
            roles: "server".to_owned(),
            joined_s: 0,
            certificate_ends_s: 0,
            assignments,
        })
    }

    fn apply(rows: &mut Rows, changes: Vec<Change>) {
        for change in changes {
            let version = rows.version() + 1;
            rows.apply(change, version);
        }
    }

    /// Hosts a to e; the set has these members in sync, of which the first one serves.
    fn rows(members: &[&str]) -> Rows {
        let mut rows = Rows::default();
        apply(&mut rows, ["a", "b", "c", "d", "e"].map(|name| host(name, Vec::new())).to_vec());
        let set = ReplicaSetState {
            target: target(),
            uuid: [7; 16],
            epoch: 5,
            term: 1,
            port: 9884,
            primary: members[0].to_owned(),
            members: members.iter().map(|host| member(host, MemberRole::InSync)).collect(),
        };
        apply(&mut rows, vec![Change::Replicas(Box::new(ReplicaRow { set }))]);
        rows
    }

    fn map() -> Map {
        Map::new("scratch".parse().expect("a name"), 1)
    }

    fn place(host: &str) -> MemberPlace {
        MemberPlace { host: host.to_owned(), dir: "/data/new".to_owned() }
    }

    fn asked(rows: &Rows, from: &str, to: &str) -> Result<usize> {
        begin(rows, &map(), target(), from, (&place(to), false)).map(|(changes, _)| changes.len())
    }

    fn set(rows: &Rows) -> &ReplicaSetState {
        &rows.replica_set(target()).expect("a set").set
    }

    fn in_sync(rows: &Rows) -> Vec<&str> {
        set(rows).in_sync().map(|m| m.host.as_str()).collect()
    }

    /// The primary has filled the member on a host.
    fn filled(rows: &mut Rows, host: &str) {
        let mut set = set(rows).clone();
        set.epoch += 1;
        set.members.iter_mut().filter(|m| m.host == host).for_each(|m| m.role = MemberRole::InSync);
        apply(rows, vec![stored(&set)]);
    }

    fn step(rows: &mut Rows, is_served: bool, is_well: bool) -> bool {
        let seen = Seen { is_served: &|_| is_served, is_well: &|_, _| is_well };
        let Some((_, changes)) = next(rows, target(), &seen) else { return false };
        apply(rows, changes);
        true
    }

    #[test]
    fn no_step_of_a_move_leaves_fewer_members_in_sync() {
        for members in [&["a"][..], &["a", "b"], &["b", "a"], &["a", "b", "c"]] {
            let mut rows = rows(members);
            let (changes, _) =
                begin(&rows, &map(), target(), "a", (&place("d"), false)).expect("it can move");
            // A crash between any two changes leaves what the next step or the next order goes on from.
            for cut in 0..=changes.len() {
                let mut cut_rows = rows.clone();
                apply(&mut cut_rows, changes[..cut].to_vec());
                assert_eq!(in_sync(&cut_rows).len(), members.len());
                while step(&mut cut_rows, true, true) {}
                assert!(asked(&cut_rows, "a", "d").is_ok(), "{cut} of {members:?}");
            }
            apply(&mut rows, changes);
            assert_eq!(asked(&rows, "a", "d"), Ok(0), "the order stands");
            assert!(!step(&mut rows, true, true), "it is being filled");
            filled(&mut rows, "d");
            assert!(!step(&mut rows, false, true), "nobody serves");
            let serves = set(&rows).primary == "a";
            if serves {
                assert!(!step(&mut rows, true, false), "the new member cannot serve");
                assert!(step(&mut rows, true, true));
                assert_eq!((set(&rows).primary.as_str(), in_sync(&rows).len()), ("d", members.len() + 1));
            }
            assert!(step(&mut rows, true, true));
            assert_eq!(in_sync(&rows).len(), members.len());
            assert!(set(&rows).member("a").is_none() && set(&rows).is_in_sync("d"));
            assert!(rows.move_of(target()).is_none() && !step(&mut rows, true, true));
            assert_eq!(asked(&rows, "a", "d"), Ok(0), "it was carried out");
        }
    }

    #[test]
    fn a_target_with_one_copy_only_moves_too() {
        let mut rows = rows(&["b"]);
        let assignment = Assignment {
            target: TargetId::ost(4),
            uuid: [8; 16],
            dir: "/data/ost4".to_owned(),
            port: 9990,
            is_formatted: true,
            is_wanted: true,
        };
        apply(&mut rows, vec![host("a", vec![assignment])]);
        let target = TargetId::ost(4);
        let (changes, set) = begin(&rows, &map(), target, "a", (&place("d"), false)).expect("it can move");
        apply(&mut rows, changes);
        assert!(rows.host("a").is_some_and(|row| row.assignments.is_empty()));
        assert_eq!((set.primary.as_str(), set.members.len()), ("a", 2));
    }

    #[test]
    fn a_move_that_cannot_be_is_refused_and_one_that_was_taken_back_ends() {
        let mut rows = rows(&["a", "b", "c"]);
        assert!(asked(&rows, "a", "a").is_err(), "one host");
        assert!(asked(&rows, "a", "nobody").is_err() && asked(&rows, "nobody", "b").is_err());
        assert!(asked(&rows, "a", "b").is_err(), "it has one");
        assert!(asked(&rows, "d", "e").is_err(), "it has none");
        let (changes, _) =
            begin(&rows, &map(), target(), "b", (&place("d"), false)).expect("a fourth member for a time");
        apply(&mut rows, changes);
        assert!(asked(&rows, "a", "e").is_err() && asked(&rows, "b", "e").is_err(), "one at a time");
        let mut taken_back = set(&rows).clone();
        taken_back.members.retain(|m| m.host != "d");
        apply(&mut rows, vec![stored(&taken_back)]);
        assert!(step(&mut rows, true, true));
        assert!(rows.move_of(target()).is_none());
        assert_eq!(in_sync(&rows), ["a", "b", "c"]);
    }

    #[test]
    fn bytes_in_the_store_never_change() {
        let row = MoveRow { target: target(), from: "a".to_owned(), to: "b".to_owned() };
        let body = form::encode(FormatLevel::FIRST, &row).expect("encoded");
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "01020301610162");
    }
}
