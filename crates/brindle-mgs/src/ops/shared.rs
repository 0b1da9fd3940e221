//! Operations about shared targets: reports and orders of daemons, and requests of administrators.

use brindle_net::ServerConn;
use brindle_types::{Code, Fault, Result, Role};
use brindle_wire::mgs::shared::{
    ChangeSharedReq, ChangeSharedResp, KeepSharedReq, KeepSharedResp, ListSharedResp, SharedChange,
    SharedInfo, SharedReport, SharedState, SharedTarget, SharedWord,
};

use super::hosts::{audit, new_uuid, shortened_fault};
use crate::Mgs;
use crate::hosts::decide::ASSIGNMENTS_MAX;
use crate::hosts::rows::Rows;
use crate::shared::decide;

/// Highest turn that is believed: they begin anew at the second of a restore, and rise by one.
const TURN_MAX: u64 = 1 << 40;
/// Longest time that a daemon's question is held: it has to be heard of often.
const WAIT_MAX_MS: u32 = 1_000;

/// A daemon tells of its shared targets, and asks what is to be done with them.
pub(crate) async fn keep(mgs: &Mgs, conn: &ServerConn, req: KeepSharedReq) -> Result<KeepSharedResp> {
    let hosts = mgs.hosts()?;
    let host = mgs.proven_host(conn)?;
    let told_turn = |report: &SharedReport| match report.state {
        SharedState::StandingBy { turn, .. } => turn.max(report.turn),
        _ => report.turn,
    };
    if req.states.iter().any(|report| told_turn(report) > TURN_MAX) {
        return Err(Fault::new(Code::BadFrame).why("it tells of a turn that cannot be"));
    }
    if req.states.len() > ASSIGNMENTS_MAX {
        return Err(Fault::new(Code::BadFrame).why(format!("it tells of {} targets", req.states.len())));
    }
    let states: Vec<SharedReport> = req.states.into_iter().map(shortened).collect();
    let now = mgs.seams.now();
    if !decide::formatted(&hosts.rows(), &host, &states).is_empty() {
        let note = |rows: &Rows| -> Result<_> { Ok((decide::formatted(rows, &host, &states), ())) };
        hosts.change(note).await?;
    }
    hosts.heard.lock().asked(&host, now);
    mgs.shared.listening(|listening| listening.told(&host, now, states));
    if hosts.rows().version() == req.known_version {
        let wait_ms = u64::from(req.wait_ms.min(WAIT_MAX_MS));
        // When the time is over the daemon is told that nothing is new.
        let _ = mgs.seams.timeout_ms(wait_ms, hosts.other_than(req.known_version)).await;
    }
    let rows = hosts.rows();
    let is_news = rows.version() != req.known_version;
    let reaches = |row: &&crate::hosts::rows::SharedRow| row.target.hosts.iter().any(|h| h.host == host);
    let targets = is_news.then(|| rows.shared().filter(reaches).map(|row| told_target(&rows, row)).collect());
    Ok(KeepSharedResp { version: rows.version(), targets })
}

/// The target as its hosts are told. A restored target is never formatted: the backup may be older than the contents of the device.
fn told_target(rows: &Rows, row: &crate::hosts::rows::SharedRow) -> SharedTarget {
    let target = row.target.clone();
    SharedTarget { is_formatted: target.is_formatted || rows.is_restored(target.target), ..target }
}

fn shortened(mut report: SharedReport) -> SharedReport {
    if let SharedState::Failed { fault, .. } = &mut report.state {
        shortened_fault(fault);
    }
    report
}

/// All shared targets.
pub(crate) fn list(mgs: &Mgs) -> Result<ListSharedResp> {
    let has_fence = mgs.config.fence.is_some();
    let Some(hosts) = &mgs.hosts else { return Ok(ListSharedResp { targets: Vec::new(), has_fence }) };
    let now = mgs.seams.now();
    let rows = hosts.rows();
    let info = |row: &crate::hosts::rows::SharedRow| {
        let t = row.target.clone();
        let word = |host: &String| {
            mgs.shared.listening(|listening| SharedWord {
                host: host.clone(),
                heard_ms_ago: listening.heard_ms_ago(host, now),
                report: listening.of(host, t.target).map(|told| told.report.clone()),
            })
        };
        let words = t.hosts.iter().map(|host| word(&host.host)).collect();
        SharedInfo { words, hindrance: mgs.shared.hindrance(t.target), target: t }
    };
    Ok(ListSharedResp { targets: rows.shared().map(info).collect(), has_fence })
}

/// Changes a shared target.
pub(crate) async fn change(mgs: &Mgs, conn: &ServerConn, req: ChangeSharedReq) -> Result<ChangeSharedResp> {
    let hosts = mgs.hosts()?;
    let map = mgs.store.current();
    let uuid = new_uuid(mgs);
    let decide = |rows: &Rows| match &req.change {
        SharedChange::Add { is_mdt, index, hosts, dir } => {
            let role = if *is_mdt { Role::Mdt } else { Role::Ost };
            decide::add(rows, &map, (role, *index), hosts, dir, uuid)
        }
        SharedChange::Move { target, to, is_owner_off } => mgs.with_situation(rows, |situation| {
            decide::shift(rows, &map, *target, to.as_deref(), *is_owner_off, situation)
        }),
        SharedChange::Want { target, is_wanted } => decide::want(rows, &map, *target, *is_wanted),
        SharedChange::Forget { target } => decide::forget(rows, &map, *target),
    };
    if req.is_dry_run {
        let (changes, target) = decide(&hosts.rows())?;
        return Ok(ChangeSharedResp { changed: !changes.is_empty(), target });
    }
    let outcome = hosts.change(decide).await;
    let (action, subject) = match &req.change {
        SharedChange::Add { hosts, .. } => {
            let names: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
            ("add shared target", names.join(","))
        }
        SharedChange::Move { target, is_owner_off: true, .. } => {
            ("move target, owner is off", target.to_string())
        }
        SharedChange::Move { target, .. } => ("move target", target.to_string()),
        SharedChange::Want { target, is_wanted: true } => ("start target", target.to_string()),
        SharedChange::Want { target, .. } => ("stop target", target.to_string()),
        SharedChange::Forget { target } => ("forget target", target.to_string()),
    };
    audit(conn, action, &subject, &outcome);
    let (changed, target) = outcome?;
    Ok(ChangeSharedResp { changed, target })
}
