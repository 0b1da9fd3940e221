//! Changes of replica sets that administrators, daemons and primaries ask for: plain functions from all rows and the request.

use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mgs::hosts::Assignment;
use brindle_wire::mgs::replica::{
    InSyncChange, MemberPlace, MemberReport, MemberRole, REPLICAS_MAX, ReplicaMember, ReplicaSetState,
};

use crate::hosts::decide::{ASSIGNMENTS_MAX, check_dir, check_is_server, free_port, free_target, known};
use crate::hosts::rows::{Change, HostRow, ReplicaRow, Rows, SharedRow};
use crate::restored;

use super::racks::check_apart;

pub(crate) type Changed = (Vec<Change>, ReplicaSetState);

fn refuse(what: &'static str, subject: impl Into<String>) -> Fault {
    Fault::new(Code::BadArgument).what(what).subject(subject.into()).data("nothing was changed")
}

pub(super) fn stored(set: &ReplicaSetState) -> Change {
    Change::Replicas(Box::new(ReplicaRow { set: set.clone() }))
}

pub(super) fn new_member(place: &MemberPlace, role: MemberRole) -> ReplicaMember {
    ReplicaMember {
        host: place.host.clone(),
        dir: place.dir.clone(),
        is_formatted: false,
        role,
        boot_term: 0,
        recorded_epoch: 0,
        nids: Vec::new(),
    }
}

/// The set of a target, or a refusal.
pub(crate) fn row_of<'a>(rows: &'a Rows, map: &Map, target: TargetId) -> Result<&'a ReplicaRow> {
    rows.replica_set(target).ok_or_else(|| {
        Fault::new(Code::UnknownTarget)
            .subject(map.fs.target(target))
            .why("it has one copy only")
            .data("nothing was changed")
            .next(format!("give it another one: brindle target replica add {target} --node HOST"))
    })
}

/// Refuses changes of a set of which it is not known yet how it stands.
pub(crate) fn check_settled(rows: &Rows, map: &Map, target: TargetId) -> Result<()> {
    if !rows.is_restored(target) {
        return Ok(());
    }
    Err(Fault::new(Code::RestoredTarget)
        .subject(map.fs.target(target))
        .data("nothing was changed")
        .next("see what it waits for: brindle target replica list"))
}

pub(super) fn check_place(rows: &Rows, place: &MemberPlace) -> Result<()> {
    let refuse = |why: String| refuse("cannot put a copy of the target on", place.host.clone()).why(why);
    let row = known(rows, &place.host)?;
    check_is_server(row)?;
    check_dir(rows, row, &place.dir).map_err(|why| refuse(why).next("give another directory: --dir"))?;
    let here = rows.replicas().filter(|row| row.set.member(&place.host).is_some()).count();
    if row.assignments.len() + here >= ASSIGNMENTS_MAX {
        return Err(refuse(format!("a host has at most {ASSIGNMENTS_MAX} targets")));
    }
    Ok(())
}

/// A new target with several members, which may be in one rack if that is asked for.
pub(crate) fn create(
    rows: &Rows,
    map: &Map,
    (role, index): (Role, Option<u16>),
    (places, is_same_rack): (&[MemberPlace], bool),
    uuid: [u8; 16],
) -> Result<Changed> {
    let names: Vec<&str> = places.iter().map(|place| place.host.as_str()).collect();
    let refuse = |why: String| refuse("cannot add a target with copies on", names.join(", ")).why(why);
    if places.len() < 2 || places.len() > REPLICAS_MAX {
        return Err(refuse(format!("a replica set has 2 to {REPLICAS_MAX} members")));
    }
    if (1..names.len()).any(|n| names[..n].contains(&names[n])) {
        return Err(refuse(
            "each copy needs a host of its own: with that host all of them would be lost".to_owned(),
        ));
    }
    for (n, place) in places.iter().enumerate() {
        check_place(rows, place)?;
        check_apart(rows, map, &names[..n], &place.host, is_same_rack)?;
    }
    let target = free_target(rows, map, role, index)?;
    let port = free_port(rows, map, &names).ok_or_else(|| refuse("all ports are taken".to_owned()))?;
    let role = |n: usize| if n == 0 { MemberRole::InSync } else { MemberRole::Learner };
    let members = places.iter().enumerate().map(|(n, place)| new_member(place, role(n))).collect();
    let primary = places[0].host.clone();
    let set = ReplicaSetState { target, uuid, epoch: 1, term: 0, port, primary, members };
    Ok((vec![stored(&set)], set))
}

/// Whether another target on a host listens at the port of a set.
pub(super) fn port_is_taken(rows: &Rows, map: &Map, set: &ReplicaSetState, host: &str) -> bool {
    let of_set = |row: &ReplicaRow| {
        row.set.target != set.target && row.set.port == set.port && row.set.member(host).is_some()
    };
    let of_pair =
        |row: &SharedRow| row.target.port == set.port && row.target.hosts.iter().any(|one| one.host == host);
    let of_map = |entry: &TargetEntry| {
        entry.id != set.target && entry.host() == host && entry.nids.iter().any(|nid| nid.port == set.port)
    };
    rows.host(host).is_some_and(|row| row.assignments.iter().any(|a| a.port == set.port))
        || rows.replicas().any(of_set)
        || rows.shared().any(of_pair)
        || map.targets.iter().any(of_map)
}

/// A target gets one more member; one that a host was told to serve alone becomes a set.
pub(crate) fn add(
    rows: &Rows,
    map: &Map,
    target: TargetId,
    (place, is_same_rack): (&MemberPlace, bool),
) -> Result<Changed> {
    let name = map.fs.target(target);
    let refuse = |why: String| refuse("cannot add a copy of", name.clone()).why(why);
    if target.role == Role::Mgt {
        return Err(refuse("an MGT has none; give the MGS more hosts instead".to_owned())
            .next("brindle target add --mgt --node HOST --dir DIR"));
    }
    let (mut set, host) = set_to_be(rows, map, target)?;
    if set.member(&place.host).is_some() {
        return Err(refuse(format!("{} has one already: with that host both would be lost", place.host)));
    }
    if set.members.len() >= REPLICAS_MAX {
        return Err(refuse(format!("it has {REPLICAS_MAX}, which is the most")));
    }
    check_place(rows, place)?;
    let others: Vec<&str> = set.members.iter().map(|m| m.host.as_str()).collect();
    check_apart(rows, map, &others, &place.host, is_same_rack)?;
    if port_is_taken(rows, map, &set, &place.host) {
        return Err(refuse(format!("port {} is taken on {} by another target", set.port, place.host))
            .next("choose another host"));
    }
    set.members.push(new_member(place, MemberRole::Learner));
    // The set first: a target that is in both is served as a set.
    Ok((std::iter::once(stored(&set)).chain(host.map(Change::Host)).collect(), set))
}

/// The set of a target. A target that a host serves alone becomes a set; the second result is then the row of that
/// host without the target.
pub(super) fn set_to_be(
    rows: &Rows,
    map: &Map,
    target: TargetId,
) -> Result<(ReplicaSetState, Option<HostRow>)> {
    if rows.shared_target(target).is_some() {
        return Err(refuse("cannot add a copy of", map.fs.target(target)).why(
            "it lies on a device that two hosts reach; a target has copies or a standby host, not both",
        ));
    }
    match rows.replica_set(target) {
        Some(row) => Ok((row.set.clone(), None)),
        None => converted(rows, map, target).map(|(set, host)| (set, Some(host))),
    }
}

/// The set of a target that one host was told to serve, and that host without it.
fn converted(rows: &Rows, map: &Map, target: TargetId) -> Result<(ReplicaSetState, HostRow)> {
    let has = |row: &&HostRow| row.assignments.iter().any(|a| a.target == target);
    let Some(row) = rows.hosts().find(has) else {
        return Err(Fault::new(Code::UnknownTarget)
            .subject(map.fs.target(target))
            .why("no host was told to serve it; one that 'brindle serve --dir' names cannot get copies")
            .data("nothing was changed"));
    };
    let mut host = row.clone();
    let assignment = row.assignments.iter().find(|a| a.target == target).cloned();
    host.assignments.retain(|a| a.target != target);
    let unknown = || Fault::new(Code::UnknownTarget).subject(map.fs.target(target));
    let Assignment { uuid, dir, port, is_formatted, is_wanted, .. } = assignment.ok_or_else(unknown)?;
    if !is_formatted || !is_wanted {
        return Err(refuse("cannot add a copy of", map.fs.target(target))
            .why("it is not served now")
            .next(format!("brindle target start {target}")));
    }
    let place = MemberPlace { host: row.name.clone(), dir };
    let first = ReplicaMember { is_formatted: true, ..new_member(&place, MemberRole::InSync) };
    let primary = row.name.clone();
    Ok((ReplicaSetState { target, uuid, epoch: 1, term: 0, port, primary, members: vec![first] }, host))
}

/// A target loses a member.
pub(crate) fn remove(rows: &Rows, map: &Map, target: TargetId, host: &str) -> Result<Changed> {
    let mut set = row_of(rows, map, target)?.set.clone();
    let refuse = |why: String| refuse("cannot take a copy away from", map.fs.target(target)).why(why);
    if set.member(host).is_none() {
        let hosts: Vec<&str> = set.members.iter().map(|m| m.host.as_str()).collect();
        return Err(refuse(format!("{host} has none; these hosts do: {}", hosts.join(", "))));
    }
    if set.primary == host {
        return Err(refuse(format!("{host} serves it")).next(format!(
            "have another member serve it first: brindle target replica promote {target} --node HOST"
        )));
    }
    set.epoch += u64::from(set.is_in_sync(host));
    set.members.retain(|m| m.host != host);
    Ok((vec![stored(&set)], set))
}

/// Makes another member in sync the primary.
pub(crate) fn promote(
    rows: &Rows,
    map: &Map,
    (target, host): (TargetId, &str),
    is_well: impl Fn(&ReplicaSetState) -> bool,
) -> Result<Changed> {
    let mut set = row_of(rows, map, target)?.set.clone();
    let refuse = |why: String| refuse("cannot have another host serve", map.fs.target(target)).why(why);
    if set.primary == host {
        return Ok((Vec::new(), set));
    }
    if !set.is_in_sync(host) {
        let why = match set.member(host) {
            Some(_) => format!("the copy on {host} is not complete"),
            None => format!("{host} has no copy of it"),
        };
        return Err(refuse(why).next("see which copies are complete: brindle target replica list"));
    }
    if !is_well(&set) {
        return Err(refuse(format!("{host} was not heard of lately, or has just started")));
    }
    set.epoch += 1;
    set.primary = host.to_owned();
    Ok((vec![stored(&set)], set))
}

/// Lets a member serve that may lack acknowledged changes. Allowed only if no complete member can serve.
pub(crate) fn accept_loss(
    rows: &Rows,
    map: &Map,
    (target, host): (TargetId, &str),
    hindrance: Option<&Fault>,
    (newest, now_s): (impl Fn(&ReplicaSetState) -> u64, i64),
) -> Result<Changed> {
    let mut set = row_of(rows, map, target)?.set.clone();
    let refuse =
        |why: String| refuse("will not give up acknowledged changes of", map.fs.target(target)).why(why);
    if set.member(host).is_none_or(|m| !m.is_formatted) {
        return Err(refuse(format!("{host} has no copy of it")));
    }
    let is_restored = rows.is_restored(target);
    let may_be = |fault: &&Fault| fault.code == Code::LastReplicaLost || is_restored;
    let Some(_) = hindrance.filter(may_be) else {
        return Err(refuse("a member that has everything serves it, or may do so in a moment".to_owned()));
    };
    set.epoch += 1;
    set.term += 1;
    if is_restored {
        set.epoch = restored::above(newest(&set), now_s);
        set.term = restored::new_term(set.term, now_s);
    }
    for m in &mut set.members {
        m.role = if m.host == host { MemberRole::InSync } else { MemberRole::Learner };
        if m.host == host {
            m.boot_term = 0;
            // The disk of the host may be an older one, or a restored one: its contents count from now on.
            m.recorded_epoch = 0;
        }
    }
    set.primary = host.to_owned();
    let settled = is_restored.then_some(Change::NotRestored(target));
    Ok((std::iter::once(stored(&set)).chain(settled).collect(), set))
}

/// The primary changes who is in sync: only under the epoch that it knows.
pub(crate) fn in_sync(
    rows: &Rows,
    map: &Map,
    (target, from): (TargetId, &str),
    epoch: u64,
    change: &InSyncChange,
) -> Result<Changed> {
    let set = row_of(rows, map, target)?.set.clone();
    Ok(match swapped(&set, from, epoch, change) {
        Some(next) => (vec![stored(&next)], next),
        // The answer tells the present set.
        None => (Vec::new(), set),
    })
}

/// The set after a change by its primary; `None` if that is not the primary, or does not know the epoch.
pub(crate) fn swapped(
    set: &ReplicaSetState,
    from: &str,
    epoch: u64,
    change: &InSyncChange,
) -> Option<ReplicaSetState> {
    if set.primary != from || set.epoch != epoch {
        return None;
    }
    let mut set = set.clone();
    let (host, role, boot_term) = match change {
        InSyncChange::Drop { host } => (host, MemberRole::Learner, None),
        InSyncChange::Join { host, boot_term } => (host, MemberRole::InSync, Some(*boot_term)),
    };
    let member = set.members.iter_mut().find(|m| m.host == *host && m.host != from)?;
    if member.role == role {
        return None;
    }
    member.role = role;
    member.boot_term = boot_term.unwrap_or(member.boot_term);
    set.epoch += 1;
    Some(set)
}

/// The primary has opened its store anew: only while nobody else is in sync, and under the epoch that it knows.
pub(crate) fn opened(
    rows: &Rows,
    map: &Map,
    (target, from): (TargetId, &str),
    epoch: u64,
) -> Result<Changed> {
    let mut set = row_of(rows, map, target)?.set.clone();
    let is_alone = set.in_sync().all(|m| m.host == from);
    if set.primary != from || set.epoch != epoch || !is_alone {
        // The answer tells the present set.
        return Ok((Vec::new(), set));
    }
    set.epoch += 1;
    Ok((vec![stored(&set)], set))
}

/// Changes from the daemons' reports about their members: whether they are formatted, where they listen,
/// which epoch they have recorded.
pub(crate) fn told(rows: &Rows, host: &str, reports: &[MemberReport]) -> Vec<Change> {
    let mut changes = Vec::new();
    for report in reports {
        let Some(row) = rows.replica_set(report.target).filter(|row| row.set.uuid == report.uuid) else {
            continue;
        };
        let mut set = row.set.clone();
        let Some(member) = set.members.iter_mut().find(|m| m.host == host) else { continue };
        member.is_formatted |= report.is_formatted;
        member.recorded_epoch = member.recorded_epoch.max(report.recorded_epoch.min(row.set.epoch));
        if !report.nids.is_empty() {
            member.nids.clone_from(&report.nids);
        }
        if set != row.set {
            changes.push(stored(&set));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of epoch 5, which `a` serves; `b` is a member, too.
    fn rows(b: MemberRole) -> Rows {
        let place = |host: &str| MemberPlace { host: host.to_owned(), dir: "/data/ost3".to_owned() };
        let members = vec![new_member(&place("a"), MemberRole::InSync), new_member(&place("b"), b)];
        let (target, primary) = (TargetId::ost(3), "a".to_owned());
        let set = ReplicaSetState { target, uuid: [7; 16], epoch: 5, term: 2, port: 9884, primary, members };
        let mut rows = Rows::default();
        rows.apply(stored(&set), 1);
        rows
    }

    #[test]
    fn an_opening_raises_the_epoch_only_for_the_only_copy_in_sync() {
        let map = Map::new("scratch".parse().expect("a name"), 1);
        let epoch = |b, from: &str, epoch| {
            let (changes, set) = opened(&rows(b), &map, (TargetId::ost(3), from), epoch).expect("a set");
            assert_eq!(changes.len(), usize::from(set.epoch != 5));
            assert_eq!((set.term, set.primary.as_str(), set.is_in_sync("a")), (2, "a", true));
            set.epoch
        };
        assert_eq!(epoch(MemberRole::Learner, "a", 5), 6);
        assert_eq!(epoch(MemberRole::Learner, "a", 4), 5, "the answer of an earlier question was lost");
        assert_eq!(epoch(MemberRole::Learner, "b", 5), 5, "another member serves");
        assert_eq!(epoch(MemberRole::InSync, "a", 5), 5, "another copy tells an older one apart");
        assert!(opened(&rows(MemberRole::Learner), &map, (TargetId::ost(4), "a"), 5).is_err());
    }
}
