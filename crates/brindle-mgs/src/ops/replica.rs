//! Operations about replica sets: what daemons tell and are told, what primaries and administrators ask for.

use brindle_net::ServerConn;
use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::mgs::replica::{
    ChangeInSyncReq, ChangeInSyncResp, ChangeReplicasReq, ChangeReplicasResp, KeepReplicasReq,
    KeepReplicasResp, ListReplicasResp, MEMBERS_MAX, MemberPhase, MemberReport, MemberWord, NoteOpeningReq,
    NoteOpeningResp, ReplicaSetChange, ReplicaSetInfo, ReplicaSetState, ShowReplicaReq, ShowReplicaResp,
};
use brindle_wire::mgs::spare::{
    ChangeSpareReq, ChangeSpareResp, ListSparesResp, ReportSpareReq, ReportSpareResp, SpareHost,
};

use super::hosts::{audit, new_uuid, shortened_fault};
use crate::Mgs;
use crate::hosts::decide::ASSIGNMENTS_MAX;
use crate::hosts::rows::{Change, ReplicaRow, RestoredRow, Rows, SpareRow};
use crate::replica::{decide, moving, spare};
use crate::restored::{self, Shown};

/// Longest time that a daemon's question is held: it has to be heard of often.
const WAIT_MAX_MS: u32 = 1_000;
/// Highest epoch that is believed: they begin anew at the second of a restore, and rise by one.
const EPOCH_MAX: u64 = 1 << 40;
/// Most addresses, and resyncs, that a member tells.
const LIST_MAX: usize = 16;

/// A daemon tells of its members, and asks what they are to be.
pub(crate) async fn keep(mgs: &Mgs, conn: &ServerConn, req: KeepReplicasReq) -> Result<KeepReplicasResp> {
    let hosts = mgs.hosts()?;
    let host = mgs.proven_host(conn)?;
    let too_long = |m: &MemberReport| m.nids.len() > LIST_MAX || m.resyncs.len() > LIST_MAX;
    let too_high = |m: &MemberReport| m.epoch.max(m.recorded_epoch) > EPOCH_MAX;
    if req.members.len() > ASSIGNMENTS_MAX || req.members.iter().any(too_long) {
        return Err(Fault::new(Code::BadFrame).why("the report of a host is too long"));
    }
    if req.members.iter().any(too_high) {
        return Err(Fault::new(Code::BadFrame).why("it tells of an epoch that cannot be"));
    }
    let members: Vec<MemberReport> = req.members.into_iter().map(shortened).collect();
    if !decide::told(&hosts.rows(), &host, &members).is_empty() {
        let note = |rows: &Rows| -> Result<_> { Ok((decide::told(rows, &host, &members), ())) };
        hosts.change(note).await?;
    }
    let now = mgs.seams.now();
    hosts.heard.lock().asked(&host, now);
    mgs.replicas.told(&host, now, members);
    if hosts.rows().version() == req.known_version {
        let wait_ms = u64::from(req.wait_ms.min(WAIT_MAX_MS));
        // When the time is over the daemon is told that nothing is new.
        let _ = mgs.seams.timeout_ms(wait_ms, hosts.other_than(req.known_version)).await;
    }
    let rows = hosts.rows();
    let has = |row: &&ReplicaRow| row.set.member(&host).is_some();
    let is_news = rows.version() != req.known_version;
    let sets = is_news.then(|| rows.replicas().filter(has).map(|row| told_set(&rows, row)).collect());
    Ok(KeepReplicasResp { version: rows.version(), sets })
}

/// The set as its members are told. The boot terms of a restored set do not count: a member that starts anew waits until the state of the
/// set is known.
fn told_set(rows: &Rows, row: &ReplicaRow) -> ReplicaSetState {
    let mut set = row.set.clone();
    if rows.is_restored(set.target) {
        set.members.iter_mut().for_each(|m| m.boot_term = 0);
    }
    set
}

fn shortened(mut report: MemberReport) -> MemberReport {
    if let MemberPhase::Failed(fault) = &mut report.phase {
        shortened_fault(fault);
    }
    report
}

/// Whether the primary of a set serves it in the epoch of its row.
fn is_served_as_known(mgs: &Mgs, rows: &Rows, target: TargetId) -> bool {
    let Some(row) = rows.replica_set(target) else { return false };
    let words = mgs.replicas.words(&row.set, mgs.seams.now());
    let primary = words.get(&row.set.primary).and_then(|word| word.report.as_ref());
    primary.is_some_and(|report| report.phase == MemberPhase::Serving && report.epoch == row.set.epoch)
}

/// A daemon has a member that knows more than the MGS.
pub(crate) async fn show(mgs: &Mgs, conn: &ServerConn, req: ShowReplicaReq) -> Result<ShowReplicaResp> {
    let (hosts, host) = (mgs.hosts()?, mgs.proven_host(conn)?);
    if req.in_sync.len() > MEMBERS_MAX || req.epoch > EPOCH_MAX {
        return Err(Fault::new(Code::BadFrame).why("no replica set has such an epoch or so many members"));
    }
    // Whether the report is new to the MGS. A report of a host that is not in the set does not count.
    let is_news = |rows: &Rows| {
        let row = rows.replica_set(req.target).filter(|row| row.set.uuid == req.uuid);
        row.is_some_and(|row| row.set.member(&host).is_some() && req.epoch > row.set.epoch)
    };
    let rows = hosts.rows();
    let is_served = !rows.is_restored(req.target) && is_served_as_known(mgs, &rows, req.target);
    // If a set is served as its row says, its primary knows best.
    if !is_news(&rows) || is_served {
        return Ok(ShowReplicaResp {});
    }
    let shown = Shown { epoch: req.epoch, in_sync: req.in_sync.clone(), term: req.term };
    mgs.replicas.showed(req.target, &host, shown);
    // The configuration was put back by other means than 'cluster restore': its row is as old.
    let restored_s = mgs.seams.wall().secs;
    let mark = |rows: &Rows| -> Result<_> {
        let is_new = is_news(rows) && !rows.is_restored(req.target);
        let row = RestoredRow { target: req.target, restored_s };
        Ok((is_new.then_some(Change::Restored(row)).into_iter().collect(), ()))
    };
    hosts.change(mark).await?;
    Ok(ShowReplicaResp {})
}

/// All replica sets.
pub(crate) fn list(mgs: &Mgs) -> Result<ListReplicasResp> {
    let Some(hosts) = &mgs.hosts else { return Ok(ListReplicasResp { sets: Vec::new() }) };
    let now = mgs.seams.now();
    let info = |row: &ReplicaRow| {
        let set = row.set.clone();
        let word = |host: &String| {
            let (heard_ms_ago, report) = mgs.replicas.of(host, set.target, now);
            MemberWord { host: host.clone(), heard_ms_ago, report }
        };
        let words = set.members.iter().map(|m| word(&m.host)).collect();
        ReplicaSetInfo { words, hindrance: mgs.replicas.hindrance(set.target), set }
    };
    Ok(ListReplicasResp { sets: hosts.rows().replicas().map(info).collect() })
}

/// An administrator changes a replica set.
pub(crate) async fn change(
    mgs: &Mgs,
    conn: &ServerConn,
    req: ChangeReplicasReq,
) -> Result<ChangeReplicasResp> {
    let hosts = mgs.hosts()?;
    let (map, uuid) = (mgs.store.current(), new_uuid(mgs));
    let (asked, is_same_rack) = req.change.unwrapped();
    let decide = |rows: &Rows| match asked {
        ReplicaSetChange::Create { index, places } => {
            decide::create(rows, &map, (Role::Ost, *index), (places, is_same_rack), uuid)
        }
        ReplicaSetChange::CreateMdt { index, places } => {
            decide::create(rows, &map, (Role::Mdt, *index), (places, is_same_rack), uuid)
        }
        ReplicaSetChange::SameRack(_) => {
            Err(Fault::new(Code::BadFrame).why("the change of a replica set is wrapped twice"))
        }
        ReplicaSetChange::Promote { target, host } => {
            decide::check_settled(rows, &map, *target)?;
            let is_well = |set: &ReplicaSetState| mgs.replicas.is_well(set, host, mgs.seams.now());
            decide::promote(rows, &map, (*target, host), is_well)
        }
        ReplicaSetChange::Move { target, from, place } => {
            decide::check_settled(rows, &map, *target)?;
            moving::begin(rows, &map, *target, from, (place, is_same_rack))
        }
        ReplicaSetChange::Add { target, place } => {
            decide::check_settled(rows, &map, *target)?;
            decide::add(rows, &map, *target, (place, is_same_rack))
        }
        ReplicaSetChange::Remove { target, host } => {
            decide::check_settled(rows, &map, *target)?;
            decide::remove(rows, &map, *target, host)
        }
        ReplicaSetChange::AcceptLoss { target, host } => {
            let hindrance = mgs.replicas.hindrance(*target);
            let newest = |set: &_| restored::newest(set, &mgs.replicas.words(set, mgs.seams.now()));
            let floor = (newest, mgs.seams.wall().secs);
            decide::accept_loss(rows, &map, (*target, host), hindrance.as_ref(), floor)
        }
    };
    if req.is_dry_run {
        let (changes, set) = decide(&hosts.rows())?;
        return Ok(ChangeReplicasResp { changed: !changes.is_empty(), set });
    }
    let outcome = hosts.change(decide).await;
    let (action, subject) = match asked {
        ReplicaSetChange::Create { places, .. } | ReplicaSetChange::CreateMdt { places, .. } => {
            let names: Vec<&str> = places.iter().map(|place| place.host.as_str()).collect();
            ("add target with copies", names.join(","))
        }
        ReplicaSetChange::Add { target, place } => ("add copy", format!("{target} {}", place.host)),
        ReplicaSetChange::Remove { target, host } => ("remove copy", format!("{target} {host}")),
        ReplicaSetChange::AcceptLoss { target, host } => ("accept loss", format!("{target} {host}")),
        ReplicaSetChange::Promote { target, host } => ("promote copy", format!("{target} {host}")),
        ReplicaSetChange::Move { target, from, place } => {
            ("move copy", format!("{target} {from} {}", place.host))
        }
        ReplicaSetChange::SameRack(_) => ("change copies", String::new()),
    };
    audit(conn, action, &subject, &outcome);
    let (changed, set) = outcome?;
    Ok(ChangeReplicasResp { changed, set })
}

/// A primary without others in sync has opened its store anew.
pub(crate) async fn note_opening(
    mgs: &Mgs,
    conn: &ServerConn,
    req: NoteOpeningReq,
) -> Result<NoteOpeningResp> {
    let (hosts, map, host) = (mgs.hosts()?, mgs.store.current(), mgs.proven_host(conn)?);
    decide::check_settled(&hosts.rows(), &map, req.target)?;
    let decide = |rows: &Rows| decide::opened(rows, &map, (req.target, &host), req.epoch);
    let (changed, set) = hosts.change(decide).await?;
    if changed {
        tracing::info!(
            target_name = %mgs.superblock.fs.target(req.target), primary = %set.primary, epoch = set.epoch,
            "the only copy in sync was opened anew"
        );
    }
    Ok(NoteOpeningResp { set })
}

/// All spare hosts.
pub(crate) fn list_spares(mgs: &Mgs) -> Result<ListSparesResp> {
    let rows = mgs.hosts()?.rows();
    let spare =
        |row: &SpareRow| SpareHost { host: row.host.clone(), dir: row.dir.clone(), after_s: row.after_s };
    Ok(ListSparesResp { spares: rows.spares().map(spare).collect() })
}

/// A spare host tells its room: kept in memory, for the choice of spare hosts.
pub(crate) fn report_spare(mgs: &Mgs, conn: &ServerConn, req: ReportSpareReq) -> Result<ReportSpareResp> {
    let host = mgs.proven_host(conn)?;
    if mgs.hosts()?.rows().spare(&host).is_some() {
        mgs.replicas.has_room(&host, req.available_bytes);
    }
    Ok(ReportSpareResp {})
}

/// An administrator makes a host a spare one, or not.
pub(crate) async fn change_spare(
    mgs: &Mgs,
    conn: &ServerConn,
    req: ChangeSpareReq,
) -> Result<ChangeSpareResp> {
    let hosts = mgs.hosts()?;
    let decide = |rows: &Rows| spare::change(rows, &req.host, req.spare.as_ref());
    if req.is_dry_run {
        return Ok(ChangeSpareResp { changed: !decide(&hosts.rows())?.is_empty() });
    }
    let outcome = hosts.change(|rows: &Rows| Ok((decide(rows)?, ()))).await;
    let action = if req.spare.is_some() { "add spare host" } else { "remove spare host" };
    audit(conn, action, &req.host, &outcome);
    Ok(ChangeSpareResp { changed: outcome?.0 })
}

/// A primary changes who is in sync.
pub(crate) async fn change_in_sync(
    mgs: &Mgs,
    conn: &ServerConn,
    req: ChangeInSyncReq,
) -> Result<ChangeInSyncResp> {
    let (hosts, map, host) = (mgs.hosts()?, mgs.store.current(), mgs.proven_host(conn)?);
    decide::check_settled(&hosts.rows(), &map, req.target)?;
    let decide = |rows: &Rows| decide::in_sync(rows, &map, (req.target, &host), req.epoch, &req.change);
    let (changed, set) = hosts.change(decide).await?;
    if changed {
        let in_sync: Vec<&str> = set.in_sync().map(|m| m.host.as_str()).collect();
        tracing::warn!(
            target_name = %mgs.superblock.fs.target(req.target), change = ?req.change, epoch = set.epoch,
            in_sync = in_sync.join(","), "a replica set changes"
        );
    }
    Ok(ChangeInSyncResp { changed, set })
}
