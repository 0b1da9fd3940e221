//! Renames hosts: plain functions from all rows and a request to the changes to store, all of them at once.
//!
//! A host is its key; the name stands in its certificate, in the rows and in the map. A rename takes two steps:
//!
//! | step | rows | host |
//! |---|---|---|
//! | an administrator asks: [`begin`] | everything has the new name; nodemaps have both; a [`RenamedRow`] | its daemon is told so (`HostRenamed`), stops all in order, has its certificate renewed (the MGS goes by the key), and starts anew. A host without a daemon does so by `brindle node take-name`, or when its mounts renew its certificate |
//! | the host shows the new name: [`complete`] | the former name of this key is refused everywhere; nodemaps have the new name alone | |
//!
//! Invariants: a nodemap that limits the host limits it under both names while either is let in; the former name is free for other hosts
//! only once it is refused for this one. The primary of a replica set knows members by their names. Therefore a member of another host's
//! set keeps its seat, but is out of sync under its new name until it has been compared.

use brindle_auth::{HostRole, KeyId, Roles, check_host_name};
use brindle_config::WRITES_MAX;
use brindle_net::ServerConn;
use brindle_types::{Code, Fault, Result};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mgs::nodemap::Nodemap;
use brindle_wire::mgs::replica::{MemberRole, ReplicaSetState};
use brindle_wire::mgs::shared::{SharedHost, SharedPhase, SharedTarget};

use super::decide::{certificate_ends_s, known};
use super::rows::{
    Change, HostRow, MgsRow, MoveRow, RemovedRow, RenamedRow, ReplicaRow, Rows, SharedRow, SpareRow,
};

/// A daemon that was not heard of for this long cannot take another name now, milliseconds.
pub(crate) const HEARD_WITHIN_MS: u64 = 15_000;
/// The name of a certificate is refused for this long after its end, seconds.
const KEPT_S: i64 = 24 * 3600;

fn refuse(code: Code, host: &str) -> Fault {
    Fault::new(code).what("cannot rename the host").subject(host.to_owned()).data("nothing was changed")
}

/// A host gets another name. `heard_ms_ago`: since its daemon was heard of, if it was.
pub(crate) fn begin(
    rows: &Rows,
    map: &Map,
    (from, to): (&str, &str),
    heard_ms_ago: Option<u64>,
) -> Result<Vec<Change>> {
    check_host_name(to)?;
    let row = known(rows, from)?;
    if from == to {
        return Ok(Vec::new());
    }
    check_free(rows, map, (from, to))?;
    check_ready(rows, map, row, heard_ms_ago)?;
    let named = |host: &String| if host == from { to.to_owned() } else { host.clone() };
    let mut changes = vec![
        Change::NoHost(from.to_owned()),
        Change::Host(HostRow { name: to.to_owned(), ..row.clone() }),
        Change::Renamed(RenamedRow { key: row.key, from: from.to_owned(), to: to.to_owned() }),
    ];
    // The host may have had this name before.
    let former = KeyId(row.key).under_name(to).0;
    changes.extend(rows.is_removed(&former).then_some(Change::NotRemoved(former)));
    changes.extend(rows.mgs().filter(|mgs| mgs.host == from).flat_map(|mgs| {
        [Change::NoMgs(from.to_owned()), Change::Mgs(MgsRow { host: to.to_owned(), ..mgs.clone() })]
    }));
    changes.extend(rows.spare(from).into_iter().flat_map(|spare| {
        [Change::NoSpare(from.to_owned()), Change::Spare(SpareRow { host: to.to_owned(), ..spare.clone() })]
    }));
    // A token for the former name would let a stranger have it.
    let tokens = rows.tokens().filter(|token| token.host == from && token.used_by.is_none());
    changes.extend(tokens.map(|token| Change::NoToken(token.id)));
    let moves = rows.moves().filter(|row| row.from == from || row.to == from);
    changes.extend(
        moves.map(|row| Change::Move(MoveRow { from: named(&row.from), to: named(&row.to), ..row.clone() })),
    );
    let shared = rows.shared().filter(|row| row.target.hosts.iter().any(|host| host.host == from));
    changes.extend(shared.map(|row| Change::Shared(Box::new(shared_of(row, from, to)))));
    let sets = rows.replicas().filter(|row| row.set.member(from).is_some());
    changes
        .extend(sets.map(|row| Change::Replicas(Box::new(ReplicaRow { set: set_of(&row.set, from, to) }))));
    changes.extend(rows.nodemaps().filter(|nodemap| nodemap.hosts.iter().any(|host| host == from)).map(
        |nodemap| {
            let mut nodemap = nodemap.clone();
            nodemap.hosts.push(to.to_owned());
            nodemap.hosts.sort();
            Change::Nodemap(Box::new(nodemap))
        },
    ));
    if changes.len() > WRITES_MAX {
        return Err(refuse(Code::BadArgument, from).why(format!(
            "{} rows of the configuration name it, and {WRITES_MAX} are changed at once at most",
            changes.len()
        )));
    }
    Ok(changes)
}

fn check_free(rows: &Rows, map: &Map, (from, to): (&str, &str)) -> Result<()> {
    let taken = |why: String| Err(refuse(Code::HostNameInUse, from).why(why).next("choose another name"));
    if rows.host(to).is_some() {
        return taken(format!("a host has joined as {to}"));
    }
    if let Some(row) = rows.renamed().find(|row| row.from == to && row.to != from) {
        return taken(format!("{} still shows a certificate for the name {to}", row.to));
    }
    let has = |nodemap: &Nodemap, name: &str| nodemap.hosts.iter().any(|host| host == name);
    let limits = |nodemap: &&Nodemap| has(nodemap, to) && !has(nodemap, from);
    if let Some(nodemap) = rows.nodemaps().find(limits) {
        return taken(format!("the nodemap {} limits a host of the name {to}", nodemap.name));
    }
    let names = |entry: &&TargetEntry| {
        let set = &entry.replicas;
        let others = set.in_sync.iter().chain(&set.learners).chain(&set.standby);
        others.chain(std::iter::once(&set.primary)).any(|host| host == to)
    };
    match map.targets.iter().find(names) {
        Some(entry) => taken(format!("{} is served by a host of the name {to}", map.fs.target(entry.id))),
        None => Ok(()),
    }
}

/// Whether a daemon of the host takes a certificate for another name. A host without one takes it by `brindle node take-name`.
pub(crate) fn has_daemon(row: &HostRow) -> bool {
    row.roles.parse::<Roles>().is_ok_and(|roles| roles.has(HostRole::Server))
}

/// Whether a host has this name because it was renamed from the other one, and nobody has that since.
pub(crate) fn was_begun(rows: &Rows, (from, to): (&str, &str)) -> bool {
    let is_pending = |row: &RenamedRow| row.from == from && row.to == to;
    let has_shown = |row: &HostRow| rows.is_removed(&KeyId(row.key).under_name(from).0);
    rows.host(from).is_none() && (rows.renamed().any(is_pending) || rows.host(to).is_some_and(has_shown))
}

/// Name that the rows have for a host which shows this one.
pub(crate) fn name_in_rows(rows: &Rows, shown: &str) -> String {
    rows.renamed().find(|row| row.from == shown).map_or_else(|| shown.to_owned(), |row| row.to.clone())
}

/// The host must be able to take the name now.
fn check_ready(rows: &Rows, map: &Map, row: &HostRow, heard_ms_ago: Option<u64>) -> Result<()> {
    let host = row.name.as_str();
    if let Some(pending) = rows.renamed().find(|pending| pending.key == row.key) {
        let next = match has_daemon(row) {
            true => format!("wait until it has: brindle node show {host}"),
            false => "on that host, as root: brindle node take-name".to_owned(),
        };
        return Err(refuse(Code::BadArgument, host)
            .why(format!("it has not taken this name yet; it still shows {}", pending.from))
            .next(next));
    }
    if has_daemon(row) && heard_ms_ago.is_none_or(|ms| ms > HEARD_WITHIN_MS) {
        let since = match heard_ms_ago {
            Some(ms) => format!("its daemon was not heard of for {} s", ms / 1000),
            None => "its daemon was not heard of since this MGS began".to_owned(),
        };
        return Err(refuse(Code::HostSilent, host)
            .why(since)
            .why("it has to take a certificate for the new name"));
    }
    let reaches = |row: &&SharedRow| row.target.hosts.iter().any(|other| other.host == host);
    for row in rows.shared().filter(reaches) {
        if row.target.phase != SharedPhase::Owned {
            let target = map.fs.target(row.target.target);
            return Err(
                refuse(Code::BadArgument, host).why(format!("{target} is on its way to another host"))
            );
        }
    }
    let shared = rows.shared().filter(reaches).map(|row| row.target.target);
    let sets = rows.replicas().filter(|row| row.set.member(host).is_some()).map(|row| row.set.target);
    match shared.chain(sets).find(|target| rows.is_restored(*target)) {
        Some(target) => Err(refuse(Code::RestoredTarget, host)
            .why(format!("it is not known yet how {} stands", map.fs.target(target)))),
        None => Ok(()),
    }
}

/// The owner under its new name counts as the next owner: it waits for the lease of the former one, or for the block that it has released.
fn shared_of(row: &SharedRow, from: &str, to: &str) -> SharedRow {
    let mut target: SharedTarget = row.target.clone();
    for host in target.hosts.iter_mut().filter(|host| host.host == from) {
        *host = SharedHost { host: to.to_owned(), ..host.clone() };
    }
    if target.owner == from {
        target.owner = to.to_owned();
        target.turn += 1;
    }
    SharedRow { target, ..row.clone() }
}

fn set_of(set: &ReplicaSetState, from: &str, to: &str) -> ReplicaSetState {
    let mut next = set.clone();
    next.epoch += 1;
    let serves = set.primary == from;
    for member in next.members.iter_mut().filter(|member| member.host == from) {
        member.host = to.to_owned();
        if !serves {
            member.role = MemberRole::Learner;
        }
    }
    if serves {
        next.primary = to.to_owned();
    }
    next
}

/// Name that a process shows: with its key, or as root of the host of this MGS, over a local socket.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) host: String,
    pub(crate) key: Option<[u8; 32]>,
}

impl Shown {
    /// Name that is behind a connection; `None` where nothing vouches for it.
    pub(crate) fn by(conn: &ServerConn) -> Option<Shown> {
        if let Some(proof) = conn.proof() {
            return Some(Shown { host: proof.host.clone(), key: Some(proof.key.0) });
        }
        let is_own = conn.is_of_this_machine();
        is_own.then(|| Shown { host: conn.principal().host.clone(), key: None })
    }

    fn is_of(&self, row: &RenamedRow) -> bool {
        self.key.is_none_or(|key| key == row.key)
    }
}

fn pending<'a>(rows: &'a Rows, shown: &Shown) -> Option<&'a RenamedRow> {
    rows.renamed().find(|row| row.to == shown.host && shown.is_of(row))
}

/// The name that a daemon which shows its new one went by, while that is let in.
pub(crate) fn former_name(rows: &Rows, shown: &Shown) -> Option<String> {
    pending(rows, shown).map(|row| row.from.clone())
}

/// A daemon has shown that it goes by its new name: the former one is refused from now on.
pub(crate) fn complete(rows: &Rows, shown: &Shown, now_s: i64) -> Vec<Change> {
    let Some(row) = pending(rows, shown) else { return Vec::new() };
    let ends_s = rows.host(&row.to).map_or(0, |host| host.certificate_ends_s);
    let former = RemovedRow {
        key: KeyId(row.key).under_name(&row.from).0,
        host: row.from.clone(),
        until_s: ends_s.max(certificate_ends_s(now_s)) + KEPT_S,
    };
    [Change::Removed(former), Change::NoRenamed(row.key)]
        .into_iter()
        .chain(with_new_name(rows, row))
        .collect()
}

/// Ends the rename of a host that was installed anew on its way to the name `to`: its key is refused, so the former name cannot be
/// shown any more.
pub(crate) fn abandoned(rows: &Rows, to: &str) -> Vec<Change> {
    let pending: Vec<&RenamedRow> = rows.renamed().filter(|row| row.to == to).collect();
    let changes = |row: &RenamedRow| -> Vec<Change> {
        std::iter::once(Change::NoRenamed(row.key)).chain(with_new_name(rows, row)).collect()
    };
    pending.into_iter().flat_map(changes).collect()
}

/// Nodemaps that have a host under both names, with the new one alone.
fn with_new_name(rows: &Rows, row: &RenamedRow) -> Vec<Change> {
    let has_both = |nodemap: &&Nodemap| nodemap.hosts.contains(&row.from) && nodemap.hosts.contains(&row.to);
    let nodemaps = rows.nodemaps().filter(has_both).map(|nodemap| {
        let mut nodemap = nodemap.clone();
        nodemap.hosts.retain(|host| *host != row.from);
        Change::Nodemap(Box::new(nodemap))
    });
    nodemaps.collect()
}

/// Refuses a host that shows a name which it has no more: its daemon renews the certificate then.
pub(crate) fn check_name(rows: &Rows, shown: Option<&Shown>) -> Result<()> {
    let Some(shown) = shown else { return Ok(()) };
    let other = match shown.key {
        Some(key) => rows.host_of_key(&key).map(|row| &row.name).filter(|name| **name != shown.host),
        None if rows.host(&shown.host).is_some() => None,
        None => rows.renamed().find(|row| row.from == shown.host).map(|row| &row.to),
    };
    let Some(name) = other else { return Ok(()) };
    Err(Fault::new(Code::HostRenamed).subject(shown.host.clone()).why(format!("its name is {name} now")))
}

/// The map with the new name in the place of the former one; `None` if it does not name that.
pub(crate) fn in_map(map: &Map, from: &str, to: &str) -> Option<Map> {
    let mut next = map.clone();
    next.version += 1;
    for entry in &mut next.targets {
        let set = &mut entry.replicas;
        let lists = [&mut set.in_sync, &mut set.learners, &mut set.standby];
        let others = lists.into_iter().flat_map(|list| list.iter_mut());
        for host in others.chain(std::iter::once(&mut set.primary)).filter(|host| *host == from) {
            *host = to.to_owned();
        }
    }
    if let Some(at) = next.hosts.iter().position(|host| host.name == from) {
        let mut entry = next.hosts.remove(at);
        entry.name = to.to_owned();
        next.hosts.retain(|host| host.name != to);
        next.hosts.push(entry);
        next.hosts.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let is_same = next.targets == map.targets && next.hosts == map.hosts;
    (!is_same).then_some(next)
}

#[cfg(test)]
mod tests;
