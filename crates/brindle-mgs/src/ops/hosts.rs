//! Operations about hosts: join, renew, watch, report, list, change; tokens; who is not let in.

use brindle_auth::{KeyId, Secret, Token};
use brindle_config::etcd::settings::Settings;
use brindle_net::ServerConn;
use brindle_types::{Code, Fault, Nid, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::RegisterReq;
use brindle_wire::mgs::hosts::{
    ChangeHostReq, ChangeHostResp, CreateTokenReq, CreateTokenResp, FetchMgtReq, FetchMgtResp, HostChange,
    HostInfo, HostedState, HostedTarget, JoinReq, JoinResp, ListHostsResp, RenewCertificateReq,
    RenewCertificateResp, ReportHostReq, ReportHostResp, RestartHostReq, RestartHostResp, TakeOrdersReq,
    TakeOrdersResp, TokenInfo, WatchAccessReq, WatchAccessResp, WatchHostReq, WatchHostResp,
};

use crate::hosts::Hosts;
use crate::hosts::decide::{self, ASSIGNMENTS_MAX};
use crate::hosts::rename::{self, Shown};
use crate::hosts::rows::{Change, HostRow, Rows};
use crate::replica::racks;
use crate::{MAP_WAIT_MAX_MS, Mgs};

/// Longest name of a daemon's release that is kept, bytes.
const SOFTWARE_MAX: usize = 64;
/// Longest line of a daemon's fault that is kept, characters, and most reasons of one.
const FAULT_LINE_MAX: usize = 240;
const FAULT_WHYS_MAX: usize = 4;
/// Time in which a host stops everything, gets its certificate for a new name and starts anew, in milliseconds: no silence of it counts before.
const RENAME_MS: u64 = 30_000;
/// Time in which every daemon that runs is heard of by an MGS that has just begun, and the interval between two looks, in milliseconds.
const FIRST_WORD_MS: u64 = 10_000;
const LOOK_MS: u64 = 100;

impl Mgs {
    /// The hosts; `NoAuthority` where hosts cannot join.
    pub(crate) fn hosts(&self) -> Result<&Hosts> {
        self.hosts.as_ref().ok_or_else(|| {
            Fault::new(Code::NoAuthority)
                .subject(self.superblock.name())
                .why(format!("there is no {} in the directory of its MGT", crate::hosts::AUTHORITY_FILE))
                .data("nothing was changed")
        })
    }

    /// Name of the host behind a connection, which must have joined.
    pub(crate) fn proven_host(&self, conn: &ServerConn) -> Result<String> {
        decide::known(&self.hosts()?.rows(), &conn.principal().host).map(|row| row.name.clone())
    }

    /// Name of the host of this MGS in the rows. A process that shows its former name still goes by it elsewhere.
    pub(crate) fn own_host(&self) -> String {
        match &self.hosts {
            Some(hosts) => rename::name_in_rows(&hosts.rows(), &self.config.host),
            None => self.config.host.clone(),
        }
    }

    /// A host takes another name: nobody takes it for dead because it has not been heard of under this one yet.
    fn gives_time_to(&self, host: &str) {
        let until = self.seams.now().plus_ms(RENAME_MS);
        self.shared.listening(|listening| listening.told(host, until, Vec::new()));
        self.replicas.told(host, until, Vec::new());
    }

    /// Hosts that an earlier MGS has renamed, and that may be on their way to their new names, have their time again.
    pub(crate) fn gives_time_to_renamed(&self) {
        let rows = self.hosts.as_ref().map(|hosts| hosts.rows()).unwrap_or_default();
        rows.renamed().for_each(|row| self.gives_time_to(&row.to));
    }

    /// Addresses at which others reach this MGS.
    fn own_nids(&self) -> Vec<Nid> {
        self.store.current().target(TargetId::MGT).map(|mgs| mgs.nids.clone()).unwrap_or_default()
    }
}

/// A line in the log for every change that an administrator makes.
pub(crate) fn audit(conn: &ServerConn, action: &'static str, subject: &str, outcome: &Result<impl Sized>) {
    // Without the port, which is another each time: the same lines are written once a minute only.
    let (by, peer) = (conn.principal(), &conn.peer().host);
    match outcome {
        Ok(_) => tracing::info!(audit = true, %by, %peer, action, subject, "done"),
        Err(fault) => {
            tracing::warn!(audit = true, %by, %peer, action, subject, code = %fault.code, "refused")
        }
    }
}

/// A host joins: it gets a certificate.
pub(crate) async fn join(mgs: &Mgs, conn: &ServerConn, req: JoinReq) -> Result<JoinResp> {
    let outcome = joined(mgs, &req).await;
    match &outcome {
        Ok(_) => audit(conn, "join", &req.host, &outcome),
        // Any process can cause these lines: one subject for each address keeps them few.
        Err(_) => audit(conn, "join", &conn.peer().host, &outcome),
    }
    outcome
}

async fn joined(mgs: &Mgs, req: &JoinReq) -> Result<JoinResp> {
    let hosts = mgs.hosts()?;
    let now_s = mgs.seams.wall().secs;
    let (_, row) = hosts.change(|rows| decide::join(rows, req, now_s)).await?;
    Ok(JoinResp {
        certificate: hosts.issue(&row.name, &row.roles, &req.public_key, now_s)?,
        authority: hosts.authority().certificate().to_vec(),
        fs: mgs.superblock.fs.clone(),
        mgs: mgs.own_nids(),
    })
}

/// A host gets a new certificate for the key that it has proven to have.
pub(crate) async fn renew(
    mgs: &Mgs,
    conn: &ServerConn,
    req: RenewCertificateReq,
) -> Result<RenewCertificateResp> {
    let hosts = mgs.hosts()?;
    let no_proof = || Fault::new(Code::NotEnrolled).why("the connection proves no host");
    let proof = conn.proof().ok_or_else(no_proof)?;
    if KeyId::of_public(&req.public_key) != proof.key {
        return Err(Fault::new(Code::BadIdentity)
            .what("cannot renew the certificate of")
            .subject(proof.host.clone())
            .why("the key is not the one that the host has shown"));
    }
    let now_s = mgs.seams.wall().secs;
    // The key says which host it is: an administrator may have given it another name.
    let rows = hosts.rows();
    let name = rows.host_of_key(&proof.key.0).map_or(proof.host.as_str(), |row| row.name.as_str());
    let (_, row) = hosts.change(|rows| decide::renew(rows, name, proof.key.0, now_s)).await?;
    // Roles may have changed since; a host that was never in the list keeps those of its certificate.
    let roles = row.map_or_else(|| proof.roles.to_string(), |row| row.roles);
    let certificate = hosts.issue(name, &roles, &req.public_key, now_s)?;
    // A host without a daemon shows its new name by this.
    note_new_name(mgs, Shown::by(conn).as_ref()).await?;
    tracing::info!(host = name, "renewed a certificate");
    Ok(RenewCertificateResp { certificate })
}

/// Targets that the caller's host is to serve; answered now, or as soon as there is a newer list.
pub(crate) async fn watch(mgs: &Mgs, conn: &ServerConn, req: WatchHostReq) -> Result<WatchHostResp> {
    let hosts = mgs.hosts()?;
    let host = &conn.principal().host;
    let shown = Shown::by(conn);
    rename::check_name(&hosts.rows(), shown.as_ref())?;
    decide::known(&hosts.rows(), host)?;
    note_new_name(mgs, shown.as_ref()).await?;
    hosts.heard.lock().asked(host, mgs.seams.now());
    wait(mgs, hosts, conn, req.known_version, req.wait_ms).await;
    let rows = hosts.rows();
    rename::check_name(&rows, shown.as_ref())?;
    let assignments = match rows.version() != req.known_version {
        true => {
            // A target that has just become a replica set is served as one.
            let mut assignments = decide::known(&rows, host)?.assignments.clone();
            assignments.retain(|a| rows.replica_set(a.target).is_none());
            Some(assignments)
        }
        false => None,
    };
    Ok(WatchHostResp { version: rows.version(), assignments })
}

/// A host that shows the name which an administrator has given it goes by the former one no more.
pub(crate) async fn note_new_name(mgs: &Mgs, shown: Option<&Shown>) -> Result<()> {
    let (hosts, Some(shown)) = (mgs.hosts()?, shown) else { return Ok(()) };
    let now_s = mgs.seams.wall().secs;
    let Some(from) = rename::former_name(&hosts.rows(), shown) else { return Ok(()) };
    // Whoever began the rename may not have come so far.
    named_in_map(mgs, &from, &shown.host).await?;
    let complete = |rows: &Rows| -> Result<_> { Ok((rename::complete(rows, shown, now_s), ())) };
    if hosts.change_together(complete).await?.0 {
        tracing::info!(
            host = shown.host,
            "a host goes by its new name; its former one is refused from now on"
        );
    }
    Ok(())
}

/// Keys that are not let in, now or as soon as there are others.
pub(crate) async fn watch_access(
    mgs: &Mgs,
    conn: &ServerConn,
    req: WatchAccessReq,
) -> Result<WatchAccessResp> {
    let hosts = mgs.hosts()?;
    wait(mgs, hosts, conn, req.known_version, req.wait_ms).await;
    let rows = hosts.rows();
    let removed_keys = (rows.version() != req.known_version).then(|| rows.removed_keys().collect());
    Ok(WatchAccessResp { version: rows.version(), removed_keys })
}

pub(crate) async fn wait(mgs: &Mgs, hosts: &Hosts, conn: &ServerConn, known_version: u64, wait_ms: u32) {
    // With too many waiting, callers poll: they wait on their own side and ask again.
    let Ok(_place) = mgs.waiters.try_acquire() else { return };
    if wait_ms > 0 && !conn.is_closed() {
        let wait_ms = u64::from(wait_ms.min(MAP_WAIT_MAX_MS));
        mgs.seams.timeout_ms(wait_ms, hosts.other_than(known_version)).await;
    }
}

/// Takes in a daemon's report of the targets that it serves.
pub(crate) async fn report(mgs: &Mgs, conn: &ServerConn, req: ReportHostReq) -> Result<ReportHostResp> {
    let hosts = mgs.hosts()?;
    let host = &conn.principal().host;
    if req.targets.len() > ASSIGNMENTS_MAX || req.software.len() > SOFTWARE_MAX {
        return Err(Fault::new(Code::BadFrame).why("the report of a host is too long"));
    }
    hosts.change(|rows| Ok((decide::formatted(rows, host, &req.targets)?, ()))).await?;
    let rows = hosts.rows();
    let assigned = |told: &HostedTarget| {
        rows.host(host).is_some_and(|row| row.assignments.iter().any(|a| a.target == told.target))
    };
    let targets = req.targets.into_iter().filter(assigned).map(shortened).collect();
    hosts.heard.lock().told(host, mgs.seams.now(), req.software, targets);
    Ok(ReportHostResp {})
}

/// A daemon's words, with a fault that is not longer than people read.
fn shortened(mut told: HostedTarget) -> HostedTarget {
    if let HostedState::Failed(fault) = &mut told.state {
        shortened_fault(fault);
    }
    told
}

/// A fault that is not longer than people read.
pub(crate) fn shortened_fault(fault: &mut Fault) {
    let cut = |text: &str| text.chars().take(FAULT_LINE_MAX).filter(|c| !c.is_control()).collect::<String>();
    fault.what = cut(&fault.what).into();
    fault.subject = cut(&fault.subject).into();
    fault.data = cut(&fault.data).into();
    fault.next = cut(&fault.next).into();
    fault.why.truncate(FAULT_WHYS_MAX);
    fault.why.iter_mut().for_each(|why| *why = cut(why).into());
}

/// An identity for a new target.
pub(crate) fn new_uuid(mgs: &Mgs) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&mgs.seams.rng.next_u64().to_be_bytes());
    uuid[8..].copy_from_slice(&mgs.seams.rng.next_u64().to_be_bytes());
    uuid
}

/// All hosts.
pub(crate) fn list(mgs: &Mgs) -> Result<ListHostsResp> {
    let hosts = mgs.hosts()?;
    let (rows, now_s) = (hosts.rows(), mgs.seams.wall().secs);
    let usable = rows.tokens().filter(|token| token.used_by.is_none() && token.expires_s > now_s);
    let tokens = usable.map(|token| TokenInfo {
        id: token.id,
        roles: token.roles.clone(),
        host: token.host.clone(),
        expires_s: token.expires_s,
    });
    let heard = hosts.heard.lock();
    let info = |row: &HostRow| {
        let (heard_ms_ago, software, hosted) = heard.of(&row.name, mgs.seams.now());
        let HostRow { name, key, roles, joined_s, certificate_ends_s, assignments } = row.clone();
        HostInfo {
            name,
            roles,
            key,
            joined_s,
            certificate_ends_s,
            heard_ms_ago,
            software,
            assignments,
            hosted,
        }
    };
    Ok(ListHostsResp {
        cluster: hosts.authority().cluster().0,
        hosts: rows.hosts().map(info).collect(),
        tokens: tokens.collect(),
    })
}

/// A token for a host that is to join.
pub(crate) async fn create_token(
    mgs: &Mgs,
    conn: &ServerConn,
    req: CreateTokenReq,
) -> Result<CreateTokenResp> {
    let outcome = created(mgs, &req).await;
    audit(conn, "create token", &format!("{} {}", req.roles, req.host), &outcome);
    outcome
}

async fn created(mgs: &Mgs, req: &CreateTokenReq) -> Result<CreateTokenResp> {
    let hosts = mgs.hosts()?;
    let secret = Secret::generate()?;
    let (now_s, id) = (mgs.seams.wall().secs, (secret.id(), secret.hash()));
    let (_, row) = hosts.change(|rows| decide::create_token(rows, req, id, now_s)).await?;
    let token = Token {
        cluster: hosts.authority().cluster(),
        authority: hosts.authority().fingerprint(),
        secret,
        roles: row.roles.parse().map_err(|why: String| Fault::new(Code::Bug).why(why))?,
        mgs: mgs.own_nids(),
        expires_s: row.expires_s,
    };
    Ok(CreateTokenResp { token: token.to_string(), expires_s: row.expires_s })
}

/// Time since a host was heard of, in milliseconds. An MGS that has just begun gives a host that is known some time for its first word.
async fn first_heard(mgs: &Mgs, hosts: &Hosts, host: &str) -> Option<u64> {
    loop {
        let now = mgs.seams.now();
        let (heard_ms_ago, ..) = hosts.heard.lock().of(host, now);
        let listened_ms = mgs.shared.listening(|listening| listening.listened_ms(now));
        let may_speak = hosts.rows().host(host).is_some_and(rename::has_daemon);
        if heard_ms_ago.is_some() || listened_ms >= FIRST_WORD_MS || !may_speak {
            return heard_ms_ago;
        }
        mgs.seams.sleep_ms(LOOK_MS).await;
    }
}

/// A host gets another name.
pub(crate) async fn renamed(mgs: &Mgs, from: &str, to: &str, is_dry_run: bool) -> Result<bool> {
    let hosts = mgs.hosts()?;
    let heard_ms_ago = first_heard(mgs, hosts, from).await;
    let map = mgs.store.current();
    if rename::was_begun(&hosts.rows(), (from, to)) {
        // The MGS that began it had no time to answer.
        named_in_map(mgs, from, to).await?;
        return Ok(true);
    }
    let begin =
        |rows: &Rows| rename::begin(rows, &map, (from, to), heard_ms_ago).map(|changes| (changes, ()));
    if begin(&hosts.rows())?.0.is_empty() {
        return Ok(false);
    }
    check_sets_are_served(mgs, &hosts.rows(), from)?;
    if is_dry_run {
        return Ok(true);
    }
    mgs.gives_time_to(to);
    let outcome = hosts.change_together(begin).await;
    match &outcome {
        Ok(_) => forget(mgs, from),
        // The store may have made the change, and its answer was lost.
        Err(fault) if fault.code == Code::StoreUnreachable => {}
        Err(_) => forget(mgs, to),
    }
    let (changed, ()) = outcome?;
    named_in_map(mgs, from, to).await?;
    Ok(changed)
}

/// The map, and the addresses that clients are told, have the new name of a host.
async fn named_in_map(mgs: &Mgs, from: &str, to: &str) -> Result<()> {
    mgs.store.modify(|map| Ok(rename::in_map(map, from, to))).await?;
    super::register::tell_addresses(mgs).await
}

/// Refuses a rename of a host whose copy of another host's set may be needed: the copy is out of sync for a while under the new name, so
/// the set must be served.
fn check_sets_are_served(mgs: &Mgs, rows: &Rows, host: &str) -> Result<()> {
    let now = mgs.seams.now();
    let of_others =
        rows.replicas().map(|row| &row.set).filter(|set| set.primary != host && set.member(host).is_some());
    match of_others.into_iter().find(|set| !mgs.replicas.is_served(set, now)) {
        Some(set) => {
            let target = mgs.superblock.fs.target(set.target);
            Err(Fault::new(Code::BadArgument)
                .what("cannot rename the host")
                .subject(host.to_owned())
                .why(format!(
                    "{} does not serve {target} now, and the copy on {host} may be needed",
                    set.primary
                ))
                .data("nothing was changed")
                .next("wait until it is served: brindle target replica list"))
        }
        None => Ok(()),
    }
}

/// A host stands in a rack. Whether that is news.
async fn labelled(mgs: &Mgs, host: &str, rack: &str, is_dry_run: bool) -> Result<bool> {
    let rows = mgs.hosts()?.rows();
    let change = |map: &Map| racks::labelled(&rows, map, host, rack);
    match is_dry_run {
        true => Ok(change(&mgs.store.current())?.is_some()),
        false => mgs.store.modify(change).await,
    }
}

/// Forgets what was heard of a host whose name is gone.
fn forget(mgs: &Mgs, host: &str) {
    if let Some(hosts) = &mgs.hosts {
        hosts.heard.lock().forget(host);
        hosts.orders.forget(host);
    }
    mgs.shared.listening(|listening| listening.forget(host));
    mgs.replicas.forget(host);
}

/// Changes what a host does.
pub(crate) async fn change(mgs: &Mgs, conn: &ServerConn, req: ChangeHostReq) -> Result<ChangeHostResp> {
    if let HostChange::Rename { to } = &req.change {
        let outcome = renamed(mgs, &req.host, to, req.is_dry_run).await;
        if !req.is_dry_run {
            audit(conn, "rename host", &format!("{} {to}", req.host), &outcome);
        }
        return Ok(ChangeHostResp { changed: outcome?, target: None });
    }
    let hosts = mgs.hosts()?;
    if let HostChange::Rack { rack } = &req.change {
        let outcome = labelled(mgs, &req.host, rack, req.is_dry_run).await;
        if !req.is_dry_run {
            audit(conn, "label host", &format!("{} rack={rack}", req.host), &outcome);
        }
        return Ok(ChangeHostResp { changed: outcome?, target: None });
    }
    let map = mgs.store.current();
    let now_s = mgs.seams.wall().secs;
    let uuid = new_uuid(mgs);
    if matches!(req.change, HostChange::AddMgs { .. }) && mgs.leadership.is_none() {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot have a second host run the MGS")
            .why("the configuration of this cluster lies on the disk of its MGS host, and not in etcd")
            .data("nothing was changed")
            .next("move it to etcd, with the MGS stopped: brindle cluster move-config --to etcd://A,B,C"));
    }
    let decide = |rows: &Rows| match &req.change {
        HostChange::Remove { with_targets } => {
            decide::remove(rows, &map, &req.host, *with_targets, now_s).map(|changes| (changes, None))
        }
        HostChange::AddTarget { is_mdt, index, dir } => {
            let role = if *is_mdt { Role::Mdt } else { Role::Ost };
            decide::add_target(rows, &map, (&req.host, dir), (role, *index), uuid)
                .map(|(changes, assignment)| (changes, Some(assignment)))
        }
        HostChange::ForgetTarget { target } => {
            decide::forget_unmade(rows, &map, &req.host, *target).map(|(changes, a)| (changes, Some(a)))
        }
        HostChange::AddMgs { dir } => {
            let uuid = mgs.superblock.uuid;
            decide::add_mgs(rows, &map, (&req.host, dir), uuid).map(|(changes, a)| (changes, Some(a)))
        }
        HostChange::WantTarget { target, is_wanted } => decide::want(rows, &req.host, *target, *is_wanted)
            .map(|(changes, assignment)| (changes, Some(assignment))),
        HostChange::Rename { .. } | HostChange::Rack { .. } => Ok((Vec::new(), None)),
    };
    if req.is_dry_run {
        let (changes, target) = decide(&hosts.rows())?;
        return Ok(ChangeHostResp { changed: !changes.is_empty(), target });
    }
    let outcome = hosts.change(decide).await;
    let action = match req.change {
        HostChange::Remove { .. } => "remove host",
        HostChange::AddTarget { .. } => "add target",
        HostChange::ForgetTarget { .. } => "forget target",
        HostChange::AddMgs { .. } => "add MGS",
        HostChange::WantTarget { is_wanted: true, .. } => "start target",
        HostChange::WantTarget { .. } => "stop target",
        HostChange::Rename { .. } | HostChange::Rack { .. } => "change host",
    };
    audit(conn, action, &req.host, &outcome);
    let (changed, target) = outcome?;
    if matches!(req.change, HostChange::Remove { .. }) {
        forget(mgs, &req.host);
        super::register::tell_addresses(mgs).await?;
    }
    Ok(ChangeHostResp { changed, target })
}

/// The daemon of a host that is to run the MGS gets what its MGT is to hold: the authority with its key, among others.
pub(crate) async fn fetch_mgt(mgs: &Mgs, conn: &ServerConn, req: FetchMgtReq) -> Result<FetchMgtResp> {
    let host = conn.principal().host.clone();
    let outcome = fetched(mgs, conn, &req).await;
    audit(conn, "give the MGT", &host, &outcome);
    outcome
}

async fn fetched(mgs: &Mgs, conn: &ServerConn, req: &FetchMgtReq) -> Result<FetchMgtResp> {
    let hosts = mgs.hosts()?;
    let no_proof = || Fault::new(Code::NotEnrolled).why("the connection proves no host");
    let host = &conn.proof().ok_or_else(no_proof)?.host;
    decide::check_runs_mgs(&hosts.rows(), host)?;
    let settings = Settings::read(&*mgs.seams.disk, &mgs.config.dir)?.ok_or_else(|| {
        Fault::new(Code::BadConfigValue)
            .what("cannot give the MGT to another host")
            .why("its configuration lies beside it, and not in etcd")
    })?;
    let noted = |rows: &Rows| {
        decide::check_runs_mgs(rows, host)?;
        Ok((decide::mgs_at(host, &req.nids)?, ()))
    };
    hosts.change(noted).await?;
    super::register::tell_addresses(mgs).await?;
    Ok(FetchMgtResp {
        superblock: mgs.superblock.to_bytes(),
        authority: hosts.authority().to_pem(),
        store: settings.to_toml()?,
    })
}

/// A daemon asks whether it is to start anew.
pub(crate) async fn take_orders(mgs: &Mgs, conn: &ServerConn, req: TakeOrdersReq) -> Result<TakeOrdersResp> {
    let hosts = mgs.hosts()?;
    let host = mgs.proven_host(conn)?;
    hosts.orders.asked(&host, req.start);
    let until = hosts.orders.until_restart(&host, req.start);
    // With too many waiting, callers poll: they wait on their own side and ask again.
    let place = mgs.waiters.try_acquire();
    let wait_ms = if place.is_ok() { u64::from(req.wait_ms.min(MAP_WAIT_MAX_MS)) } else { 0 };
    let restart = mgs.seams.timeout_ms(wait_ms, until).await.is_some();
    Ok(TakeOrdersResp { restart })
}

/// An administrator has the daemon of a host start anew.
pub(crate) fn restart(mgs: &Mgs, conn: &ServerConn, req: &RestartHostReq) -> Result<RestartHostResp> {
    let hosts = mgs.hosts()?;
    decide::known(&hosts.rows(), &req.host)?;
    let (start, is_new) = hosts.orders.restart(&req.host, req.start);
    if is_new {
        audit(conn, "restart host", &req.host, &Ok(()));
    }
    Ok(RestartHostResp { start })
}

/// A host that has proven who it is registers under its own name, and no target that another host was told to serve.
pub(crate) fn check_registers(mgs: &Mgs, conn: &ServerConn, req: &RegisterReq) -> Result<()> {
    let Some(proof) = conn.proof() else { return Ok(()) };
    let refuse = |why: String| {
        Fault::new(Code::NotForCaller)
            .what("cannot register")
            .subject(format!("{} at {}", mgs.superblock.fs.target(req.target), proof.host))
            .why(why)
            .data("nothing was changed")
    };
    if proof.host != req.host {
        return Err(refuse(format!("it says that it is the host {}", req.host)));
    }
    let Some(hosts) = &mgs.hosts else { return Ok(()) };
    let rows = hosts.rows();
    if let Some(row) = rows.shared_target(req.target) {
        let owner = &row.target.owner;
        return match *owner == proof.host {
            true => Ok(()),
            false => Err(refuse(format!("{owner} owns it now"))),
        };
    }
    if let Some(row) = rows.replica_set(req.target) {
        let primary = &row.set.primary;
        return match *primary == proof.host {
            true => Ok(()),
            false => Err(refuse(format!("{primary} serves it now"))),
        };
    }
    let other = rows.hosts().find(|row| row.assignments.iter().any(|a| a.target == req.target));
    match other.filter(|row| row.name != proof.host) {
        Some(row) => Err(refuse(format!("the cluster has told {} to serve it", row.name))),
        None => Ok(()),
    }
}

/// Whether the config store names the host as owner of a shared target or as primary of a replica set. The former owner has released the
/// target or was fenced; a new primary waits until the former one's lease has ended.
pub(crate) fn owns_shared(mgs: &Mgs, target: TargetId, host: &str) -> bool {
    let Some(hosts) = &mgs.hosts else { return false };
    let rows = hosts.rows();
    rows.shared_target(target).is_some_and(|row| row.target.owner == host)
        || rows.replica_set(target).is_some_and(|row| row.set.primary == host)
}

/// A target has left the file system: no host is to serve it any more.
pub(crate) async fn forget_target(mgs: &Mgs, target: TargetId) -> Result<()> {
    let Some(hosts) = &mgs.hosts else { return Ok(()) };
    let forget = |rows: &Rows| -> Result<(Vec<Change>, ())> { Ok((decide::forget_target(rows, target), ())) };
    hosts.change(forget).await.map(drop)
}
