//! Decisions about hosts: plain functions from all rows and a request to the changes to store, in order. Of each list of changes every
//! beginning is sound too: the MGS may die between two of them.

use brindle_auth::{CERTIFICATE_DAYS, HostRole, KeyId, Roles, check_host_name, is_proof};
use brindle_types::ids::DEFAULT_PORT;
use brindle_types::{Code, Fault, Nid, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::hosts::{Assignment, CreateTokenReq, HostedTarget, JoinReq};

use super::rename;
use super::rows::{Change, HostRow, MgsRow, RemovedRow, ReplicaRow, Rows, TokenRow};

/// Most hosts of a cluster.
pub(crate) const HOSTS_MAX: usize = 4096;
/// Most tokens that may be outstanding.
pub(crate) const TOKENS_MAX: usize = 1024;
/// Most targets that may be assigned to one host.
pub(crate) const ASSIGNMENTS_MAX: usize = 256;
/// Longest time that a token may hold, seconds.
pub(crate) const TOKEN_LIFETIME_MAX_S: u64 = 30 * 24 * 3600;
/// Most hosts that run the MGS.
pub(crate) const MGS_MAX: usize = 7;
/// Most addresses of the MGS of one host.
const MGS_NIDS_MAX: usize = brindle_net::peer::RAILS_MAX;
/// Longest directory of a target, bytes.
const DIR_MAX_BYTES: usize = 4096;
const DAY_S: i64 = 24 * 3600;
/// Age of the list's entry of a certificate below which it is not written anew, in seconds.
const RENEWED_S: i64 = DAY_S;
/// Removed keys are kept for this long after the end of their last certificate: the clock of the MGS may have been
/// wrong.
const REMOVED_KEPT_S: i64 = 365 * DAY_S;

/// End of a certificate that is issued now.
pub fn certificate_ends_s(now_s: i64) -> i64 {
    now_s + CERTIFICATE_DAYS * DAY_S
}

/// A host joins. The answer is its row as it is then.
pub(crate) fn join(rows: &Rows, req: &JoinReq, now_s: i64) -> Result<(Vec<Change>, HostRow)> {
    let refuse = |why: String| {
        Fault::new(Code::BadToken)
            .what("cannot let the host join:")
            .subject(req.host.chars().take(64).collect::<String>())
            .why(why)
            .data("nothing was changed")
    };
    check_host_name(&req.host)?;
    let key = KeyId::of_public(&req.public_key).0;
    let unknown = || refuse("the token is not one of this cluster, or it ended long ago".to_owned());
    let token = rows.token(&req.token).ok_or_else(unknown)?;
    if !is_proof(&token.secret_hash, &req.host, &req.public_key, &req.proof) {
        return Err(unknown());
    }
    if token.expires_s <= now_s {
        return Err(refuse(format!("the token has ended {} ago", duration(now_s - token.expires_s))));
    }
    if !token.host.is_empty() && token.host != req.host {
        return Err(refuse(format!("the token is for the host {}", token.host)));
    }
    let used = Some((req.host.clone(), key));
    if let Some((host, _)) = token.used_by.as_ref().filter(|_| token.used_by != used) {
        return Err(refuse(format!("the token was used already, by the host {host}")));
    }
    check_key(rows, &req.host, key)?;
    if let Some(row) = rows.host(&req.host) {
        if row.key != key && token.host == req.host {
            // An administrator has made the token for this very host: it was installed anew, and the old key is out.
            let old = removed(row, now_s);
            let certificate_ends_s = certificate_ends_s(now_s);
            let row = HostRow {
                key,
                roles: token.roles.clone(),
                joined_s: now_s,
                certificate_ends_s,
                ..row.clone()
            };
            let mut changes = vec![used_token(token, used), Change::Removed(old)];
            changes.extend(rename::abandoned(rows, &row.name));
            changes.push(Change::Host(row.clone()));
            return Ok((changes, row));
        }
        if row.key != key {
            return Err(name_in_use(row, KeyId(key)));
        }
        check_keeps_roles(row, &token.roles, now_s)?;
        // The answer was lost, or it joins again to have more roles.
        let row = HostRow {
            roles: token.roles.clone(),
            certificate_ends_s: certificate_ends_s(now_s).max(row.certificate_ends_s),
            ..row.clone()
        };
        return Ok((vec![used_token(token, used), Change::Host(row.clone())], row));
    }
    if rows.hosts().len() >= HOSTS_MAX {
        return Err(refuse(format!("a cluster has at most {HOSTS_MAX} hosts")));
    }
    let row = HostRow {
        name: req.host.clone(),
        key,
        roles: token.roles.clone(),
        joined_s: now_s,
        certificate_ends_s: certificate_ends_s(now_s),
        assignments: Vec::new(),
    };
    Ok((vec![used_token(token, used), Change::Host(row.clone())], row))
}

fn name_in_use(row: &HostRow, key: KeyId) -> Fault {
    Fault::new(Code::HostNameInUse)
        .what("cannot let the host join:")
        .subject(row.name.clone())
        .why(format!("a host of this name has joined with the key {}, this one has {key}", KeyId(row.key)))
        .data("nothing was changed")
}

/// Refuses to take roles from a host that keeps its key. Until its certificate ends, the host could still use the roles in it. Removing the
/// key works at once, because every server knows the removed keys.
fn check_keeps_roles(row: &HostRow, roles: &str, now_s: i64) -> Result<()> {
    let lost: Vec<&str> =
        row.roles.split(',').filter(|role| roles.split(',').all(|kept| kept != *role)).collect();
    if lost.is_empty() || row.certificate_ends_s.saturating_add(DAY_S) < now_s {
        return Ok(());
    }
    let host = &row.name;
    Err(Fault::new(Code::BadToken)
        .what("cannot let the host join again:")
        .subject(host.clone())
        .why(format!(
            "the token is for {roles}, and the host has joined as {}: its certificate would let it go on as {}",
            row.roles,
            lost.join(", ")
        ))
        .data("nothing was changed")
        .next(format!(
            "take the host out first (brindle node remove {host}; on it, remove identity.pem), then brindle join with a new token; \
             or make a token with all its roles"
        )))
}

/// A key that was removed is not let in. A key has one name, and a name that a host is giving up is nobody else's before it is refused.
fn check_key(rows: &Rows, host: &str, key: [u8; 32]) -> Result<()> {
    if rows.is_removed(&key) {
        return Err(Fault::new(Code::HostRemoved).subject(host.to_owned()).why("its key was removed"));
    }
    let refuse = |why: String| {
        Err(Fault::new(Code::HostNameInUse)
            .what("cannot let the host join:")
            .subject(host.to_owned())
            .why(why)
            .data("nothing was changed"))
    };
    if let Some(row) = rows.host_of_key(&key).filter(|row| row.name != host) {
        return refuse(format!("its key is that of the host {}", row.name));
    }
    match rows.renamed().find(|row| row.from == host) {
        Some(row) => refuse(format!("{} still shows a certificate for this name", row.to)),
        None => Ok(()),
    }
}

fn used_token(token: &TokenRow, used_by: Option<(String, [u8; 32])>) -> Change {
    Change::Token(TokenRow { used_by, ..token.clone() })
}

/// A host gets a new certificate. The answer is its row.
pub(crate) fn renew(
    rows: &Rows,
    host: &str,
    key: [u8; 32],
    now_s: i64,
) -> Result<(Vec<Change>, Option<HostRow>)> {
    if rows.is_removed(&key) {
        // The connection of the host ends at this moment.
        return Err(Fault::new(Code::HostRemoved).subject(host.to_owned()).why("its key was removed"));
    }
    // Hosts whose identity was made by hand are not in the list; they are known by their certificate only.
    let Some(row) = rows.host(host) else { return Ok((Vec::new(), None)) };
    if row.key != key {
        return Err(Fault::new(Code::HostNameInUse)
            .what("cannot renew the certificate of")
            .subject(host.to_owned())
            .why("another host has joined under this name"));
    }
    let ends_s = certificate_ends_s(now_s);
    if (row.certificate_ends_s..row.certificate_ends_s + RENEWED_S).contains(&ends_s) {
        // The rows need not change for that; a removal counts a day more than they say.
        return Ok((Vec::new(), Some(row.clone())));
    }
    let row = HostRow { certificate_ends_s: ends_s.max(row.certificate_ends_s), ..row.clone() };
    Ok((vec![Change::Host(row.clone())], Some(row)))
}

/// A new token. Tokens that have ended are forgotten on this occasion; so are removed keys that have no
/// certificate any more.
pub(crate) fn create_token(
    rows: &Rows,
    req: &CreateTokenReq,
    (id, secret_hash): ([u8; 8], [u8; 32]),
    now_s: i64,
) -> Result<(Vec<Change>, TokenRow)> {
    let refuse = |why: String| {
        Fault::new(Code::BadArgument).what("cannot make a token").why(why).data("nothing was changed")
    };
    let roles: Roles = req.roles.parse().map_err(refuse)?;
    if !req.host.is_empty() {
        check_host_name(&req.host)?;
    }
    if req.lifetime_s == 0 || req.lifetime_s > TOKEN_LIFETIME_MAX_S {
        let days = TOKEN_LIFETIME_MAX_S / (24 * 3600);
        return Err(refuse(format!("it may hold for 1 second to {days} days")));
    }
    let ended = rows.tokens().filter(|token| token.expires_s + DAY_S < now_s);
    let mut changes: Vec<Change> = ended.map(|token| Change::NoToken(token.id)).collect();
    if rows.tokens().filter(|token| token.used_by.is_none() && token.expires_s > now_s).count() >= TOKENS_MAX
    {
        return Err(refuse(format!("{TOKENS_MAX} tokens are outstanding, which is the most")));
    }
    let harmless = rows.removed().filter(|row| row.until_s + REMOVED_KEPT_S < now_s);
    changes.extend(harmless.map(|row| Change::NotRemoved(row.key)));
    let expires_s = now_s.saturating_add_unsigned(req.lifetime_s);
    let (roles, host) = (roles.to_string(), req.host.clone());
    let row = TokenRow { id, secret_hash, roles, host, expires_s, used_by: None };
    changes.push(Change::Token(row.clone()));
    Ok((changes, row))
}

/// The host of a name, or a refusal.
pub(crate) fn known<'a>(rows: &'a Rows, host: &str) -> Result<&'a HostRow> {
    rows.host(host).ok_or_else(|| {
        let names: Vec<&str> = rows.hosts().map(|row| row.name.as_str()).take(8).collect();
        Fault::new(Code::UnknownHost)
            .what("no host has joined as")
            .subject(host.to_owned())
            .why(format!("hosts that have joined: {}", names.join(", ")))
            .data("nothing was changed")
    })
}

/// A host is let in no more.
pub(crate) fn remove(
    rows: &Rows,
    map: &Map,
    host: &str,
    with_targets: bool,
    now_s: i64,
) -> Result<Vec<Change>> {
    let row = known(rows, host)?;
    let serves: Vec<String> = map
        .targets
        .iter()
        .filter(|t| t.host() == host)
        .map(|t| t.id)
        .collect::<Vec<_>>()
        .into_iter()
        .chain(row.assignments.iter().map(|a| a.target))
        .chain(reached(rows, host))
        // An MGS that stands by holds nothing that others do not have.
        .filter(|target| target.role != Role::Mgt)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .map(|target| map.fs.target(target))
        .collect();
    let refuse = |why: String| {
        Fault::new(Code::TargetInUse)
            .what("cannot remove the host")
            .subject(host.to_owned())
            .why(why)
            .data("nothing was changed")
    };
    if map.targets.iter().any(|t| t.id == TargetId::MGT && t.host() == host) {
        return Err(refuse(
            "it serves the MGT, with the authority and the configuration of the cluster".to_owned(),
        )
        .next(match rows.mgs().len() {
            ..=1 => "a cluster keeps its MGS host",
            _ => "stop brindle-serve on it: another MGS becomes active; then remove it",
        }));
    }
    if !serves.is_empty() && !with_targets {
        return Err(refuse(format!("it serves {}", serves.join(", "))).next(
            "empty its OSTs and remove them: brindle target drain, brindle target remove; if the host is lost with all it had, add --with-targets",
        ));
    }
    let mut changes = vec![Change::Removed(removed(row, now_s)), Change::NoHost(host.to_owned())];
    changes.extend(rows.mgs().filter(|row| row.host == host).map(|row| Change::NoMgs(row.host.clone())));
    changes.extend(rows.spare(host).map(|row| Change::NoSpare(row.host.clone())));
    changes.extend(
        rows.renamed().filter(|renamed| renamed.key == row.key).map(|row| Change::NoRenamed(row.key)),
    );
    for shared in rows.shared().filter(|row| row.target.hosts.iter().any(|other| other.host == host)) {
        let mut shared = shared.clone();
        if shared.target.owner == host {
            let target = shared.target.target;
            return Err(refuse(format!("it owns {target}, and another host reaches its device"))
                .next(format!("have the other host serve it: brindle target failover {target}")));
        }
        shared.target.hosts.retain(|other| other.host != host);
        changes.push(Change::Shared(Box::new(shared)));
    }
    for row in rows.replicas().filter(|row| row.set.member(host).is_some()) {
        let target = row.set.target;
        if row.set.members.len() > 1 {
            return Err(refuse(format!("it has a copy of {target}")).next(format!(
                "if it serves it, stop its brindle-serve first; then: brindle target replica remove {target} --node {host}"
            )));
        }
        changes.push(Change::NoReplicas(target));
    }
    Ok(changes)
}

/// Shared targets that a host reaches.
fn reached<'a>(rows: &'a Rows, host: &'a str) -> impl Iterator<Item = TargetId> + 'a {
    let shared = rows.shared().map(|row| &row.target);
    let shared = shared.filter(move |t| t.hosts.iter().any(|other| other.host == host)).map(|t| t.target);
    let sets = rows.replicas().filter(move |row| row.set.member(host).is_some());
    shared.chain(sets.map(|row| row.set.target))
}

/// The key of a host as one that is let in no more.
fn removed(row: &HostRow, now_s: i64) -> RemovedRow {
    // Every certificate that the host was given ends by then.
    let until_s = row.certificate_ends_s.max(now_s) + DAY_S;
    RemovedRow { key: row.key, host: row.name.clone(), until_s }
}

/// A host is to serve one more target.
pub(crate) fn add_target(
    rows: &Rows,
    map: &Map,
    (host, dir): (&str, &str),
    (role, index): (Role, Option<u16>),
    uuid: [u8; 16],
) -> Result<(Vec<Change>, Assignment)> {
    let row = known(rows, host)?;
    let refuse = |why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot add a target to the host")
            .subject(host.to_owned())
            .why(why)
            .data("nothing was changed")
    };
    check_is_server(row)?;
    check_dir(rows, row, dir).map_err(|why| refuse(why).next("give another directory: --dir /data/ost0"))?;
    if row.assignments.len() >= ASSIGNMENTS_MAX {
        return Err(refuse(format!("a host serves at most {ASSIGNMENTS_MAX} targets")));
    }
    let target = free_target(rows, map, role, index)?;
    let port = free_port(rows, map, &[host]).ok_or_else(|| refuse("all its ports are taken".to_owned()))?;
    let assignment =
        Assignment { target, uuid, dir: dir.to_owned(), port, is_formatted: false, is_wanted: true };
    let mut row = row.clone();
    row.assignments.push(assignment.clone());
    row.assignments.sort_by_key(|a| a.target);
    Ok((vec![Change::Host(row)], assignment))
}

/// A host is to run the MGS too. `uuid` is the identity of the MGT, which is the same on all of them.
pub(crate) fn add_mgs(
    rows: &Rows,
    map: &Map,
    (host, dir): (&str, &str),
    uuid: [u8; 16],
) -> Result<(Vec<Change>, Assignment)> {
    let row = known(rows, host)?;
    let refuse = |why: String| {
        Fault::new(Code::BadArgument)
            .what("cannot have the host run the MGS")
            .subject(host.to_owned())
            .why(why)
            .data("nothing was changed")
    };
    check_is_server(row)?;
    let runs_it = rows.mgs().any(|row| row.host == host)
        || row.assignments.iter().any(|a| a.target == TargetId::MGT)
        || map.target(TargetId::MGT).is_some_and(|mgs| mgs.host() == host);
    if runs_it {
        return Err(
            refuse("it runs it already".to_owned()).next(format!("see how it is: brindle node show {host}"))
        );
    }
    if rows.mgs().len() >= MGS_MAX {
        return Err(refuse(format!("{MGS_MAX} hosts run it, which is the most")));
    }
    check_dir(rows, row, dir).map_err(|why| refuse(why).next("give another directory: --dir /data/mgt"))?;
    if row.assignments.len() >= ASSIGNMENTS_MAX {
        return Err(refuse(format!("a host serves at most {ASSIGNMENTS_MAX} targets")));
    }
    let is_taken = row.assignments.iter().any(|a| a.port == DEFAULT_PORT)
        || map.targets.iter().any(|t| t.host() == host && t.nids.iter().any(|nid| nid.port == DEFAULT_PORT));
    let port = if is_taken { free_port(rows, map, &[host]) } else { Some(DEFAULT_PORT) };
    let port = port.ok_or_else(|| refuse("all its ports are taken".to_owned()))?;
    let (target, dir) = (TargetId::MGT, dir.to_owned());
    let assignment = Assignment { target, uuid, dir, port, is_formatted: false, is_wanted: true };
    let mut row = row.clone();
    row.assignments.push(assignment.clone());
    row.assignments.sort_by_key(|a| a.target);
    Ok((vec![Change::Host(row)], assignment))
}

/// Notes where the MGS of a host is reached.
pub(crate) fn mgs_at(host: &str, nids: &[Nid]) -> Result<Vec<Change>> {
    if nids.is_empty() || nids.len() > MGS_NIDS_MAX {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot note where the MGS is reached on")
            .subject(host.to_owned())
            .why(format!("it names {} addresses; 1 to {MGS_NIDS_MAX} are possible", nids.len())));
    }
    Ok(vec![Change::Mgs(MgsRow { host: host.to_owned(), nids: nids.to_vec() })])
}

/// Refuses a host that is not to have the contents of an MGT.
pub(crate) fn check_runs_mgs(rows: &Rows, host: &str) -> Result<()> {
    if known(rows, host)?.assignments.iter().any(|a| a.target == TargetId::MGT) {
        return Ok(());
    }
    Err(Fault::new(Code::NotForCaller)
        .what("will not give the authority of the cluster to the host")
        .subject(host.to_owned())
        .why("it was not told to run the MGS")
        .next(format!("brindle target add --mgt --node {host} --dir DIR")))
}

/// Refuses a host that may not serve targets.
pub(crate) fn check_is_server(row: &HostRow) -> Result<()> {
    if row.roles.parse::<Roles>().is_ok_and(|roles| roles.has(HostRole::Server)) {
        return Ok(());
    }
    Err(Fault::new(Code::BadArgument)
        .what("cannot add a target to the host")
        .subject(row.name.clone())
        .why(format!("it has joined as {}, not as server", row.roles))
        .data("nothing was changed")
        .next("give it the role: brindle cluster token --role server, and on the host: brindle join --again"))
}

/// The target that is asked for, or the lowest free one.
pub(crate) fn free_target(rows: &Rows, map: &Map, role: Role, index: Option<u16>) -> Result<TargetId> {
    let is_taken = |target: TargetId| {
        map.target(target).is_some()
            || rows.shared_target(target).is_some()
            || rows.replica_set(target).is_some()
            || rows.hosts().any(|row| row.assignments.iter().any(|a| a.target == target))
    };
    let indices = if role == Role::Mdt { 0..=0 } else { 0..=u16::MAX };
    let target = match index {
        Some(index) if indices.contains(&index) => TargetId { role, index },
        Some(index) => {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot add")
                .subject(map.fs.target(TargetId { role, index }))
                .why("this release has one MDT, with index 0")
                .data("nothing was changed"));
        }
        None => {
            let free = indices.map(|index| TargetId { role, index }).find(|target| !is_taken(*target));
            free.unwrap_or(TargetId { role, index: 0 })
        }
    };
    if is_taken(target) {
        return Err(Fault::new(Code::IndexInUse)
            .what("cannot add")
            .subject(map.fs.target(target))
            .why("there is such a target")
            .data("nothing was changed"));
    }
    Ok(target)
}

/// Checks that a directory is a plain path, and that no other target of the host lies there.
pub(crate) fn check_dir(rows: &Rows, row: &HostRow, dir: &str) -> std::result::Result<(), String> {
    check_path(dir)?;
    let within = |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
    let shared = rows.shared().map(|row| &row.target);
    let shared = shared.filter(|t| t.hosts.iter().any(|host| host.host == row.name));
    let replicas = rows.replicas().flat_map(|r| r.set.members.iter().map(|m| (r.set.target, m)));
    let replicas = replicas.filter(|(_, m)| m.host == row.name).map(|(target, m)| (target, &m.dir));
    let mut others = shared
        .map(|t| (t.target, &t.dir))
        .chain(replicas)
        .chain(row.assignments.iter().map(|assignment| (assignment.target, &assignment.dir)));
    match others.find(|(_, other)| within(other, dir) || within(dir, other)) {
        Some((target, other)) => Err(format!("{target} has the directory {other} there")),
        None => Ok(()),
    }
}

/// Checks that a path is that of a directory in which targets may lie; `Err` has the reason why not.
pub(crate) fn check_path(dir: &str) -> std::result::Result<(), String> {
    let is_plain = dir.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    if !dir.starts_with('/') || !is_plain || dir.len() > DIR_MAX_BYTES || dir.contains('\0') {
        return Err(format!("'{dir}' is not the absolute path of a directory"));
    }
    Ok(())
}

/// The lowest port behind the default one that no target of these hosts has.
pub(crate) fn free_port(rows: &Rows, map: &Map, hosts: &[&str]) -> Option<u16> {
    let of_map = map.targets.iter().filter(|t| hosts.contains(&t.host()));
    let assigned = rows.hosts().filter(|row| hosts.contains(&row.name.as_str()));
    let shared = rows.shared().map(|row| &row.target);
    let shared = shared.filter(|t| t.hosts.iter().any(|host| hosts.contains(&host.host.as_str())));
    let of_set = |row: &ReplicaRow| row.set.members.iter().any(|m| hosts.contains(&m.host.as_str()));
    let taken: Vec<u16> = of_map
        .flat_map(|t| t.nids.iter().map(|nid| nid.port))
        .chain(assigned.flat_map(|row| row.assignments.iter().map(|a| a.port)))
        .chain(shared.map(|t| t.port))
        .chain(rows.replicas().filter(|row| of_set(row)).map(|row| row.set.port))
        .collect();
    (DEFAULT_PORT..u16::MAX).skip(1).find(|port| !taken.contains(port))
}

/// A target of a host is to be served, or not.
pub(crate) fn want(
    rows: &Rows,
    host: &str,
    target: TargetId,
    is_wanted: bool,
) -> Result<(Vec<Change>, Assignment)> {
    let mut row = known(rows, host)?.clone();
    let Some(assignment) = row.assignments.iter_mut().find(|a| a.target == target) else {
        return Err(Fault::new(Code::UnknownTarget)
            .subject(target.to_string())
            .why(format!("{host} was not told to serve it; where 'brindle serve --dir' names it, that process serves it"))
            .data("nothing was changed"));
    };
    let changed = assignment.is_wanted != is_wanted;
    assignment.is_wanted = is_wanted;
    let assignment = assignment.clone();
    Ok((if changed { vec![Change::Host(row)] } else { Vec::new() }, assignment))
}

/// A host is not to make a target after all, because it cannot: the wrong directory, say.
pub(crate) fn forget_unmade(
    rows: &Rows,
    map: &Map,
    host: &str,
    target: TargetId,
) -> Result<(Vec<Change>, Assignment)> {
    let (_, assignment) = want(rows, host, target, true)?;
    check_unmade(map, target, assignment.is_formatted)?;
    Ok((forget_target(rows, target), assignment))
}

/// Refuses to forget a target that may hold files.
pub(crate) fn check_unmade(map: &Map, target: TargetId, is_formatted: bool) -> Result<()> {
    if !is_formatted && map.target(target).is_none() {
        return Ok(());
    }
    Err(Fault::new(Code::TargetInUse)
        .what("cannot remove")
        .subject(map.fs.target(target))
        .why("it was formatted, and may hold files")
        .data("nothing was changed")
        .next(format!("empty it first: brindle target drain {target} MOUNT")))
}

/// A target has left the file system: no host is to serve it.
pub(crate) fn forget_target(rows: &Rows, target: TargetId) -> Vec<Change> {
    let has = |row: &&HostRow| row.assignments.iter().any(|a| a.target == target);
    let shared = rows.shared_target(target).map(|_| Change::NoShared(target));
    let replicas = rows.replica_set(target).map(|_| Change::NoReplicas(target));
    let mut rows: Vec<HostRow> = rows.hosts().filter(has).cloned().collect();
    rows.iter_mut().for_each(|row| row.assignments.retain(|a| a.target != target));
    rows.into_iter().map(Change::Host).chain(shared).chain(replicas).collect()
}

/// A host's daemon tells of targets that it has formatted: that is kept, so that it never formats one twice.
pub(crate) fn formatted(rows: &Rows, host: &str, told: &[HostedTarget]) -> Result<Vec<Change>> {
    let mut row = known(rows, host)?.clone();
    let mut changed = false;
    for assignment in row.assignments.iter_mut().filter(|a| !a.is_formatted) {
        let is_it = |t: &&HostedTarget| t.target == assignment.target && t.uuid == assignment.uuid;
        assignment.is_formatted = told.iter().find(is_it).is_some_and(|t| t.is_formatted);
        changed |= assignment.is_formatted;
    }
    Ok(if changed { vec![Change::Host(row)] } else { Vec::new() })
}

/// Seconds in words, rounded down.
fn duration(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / DAY_S),
    }
}
