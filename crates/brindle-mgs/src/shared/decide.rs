//! Changes of shared targets that administrators ask for: plain functions from all rows, what was heard, and the request.

use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::map::Map;
use brindle_wire::mgs::shared::{SharedHost, SharedPhase, SharedReport, SharedTarget};

use super::failover::{Situation, taken_by};
use crate::hosts::decide::{
    ASSIGNMENTS_MAX, check_dir, check_is_server, check_unmade, forget_target, free_port, free_target, known,
};
use crate::hosts::rows::{Change, Rows, SharedRow};
use crate::restored;

/// Most hosts that reach one device.
pub(crate) const SHARED_HOSTS_MAX: usize = 2;
/// Longest name of a device, bytes.
const DEVICE_MAX_BYTES: usize = 4096;

type Changed = (Vec<Change>, SharedTarget);

fn refuse(what: &'static str, subject: impl Into<String>) -> Fault {
    Fault::new(Code::BadArgument).what(what).subject(subject.into()).data("nothing was changed")
}

/// The shared target, or a refusal.
pub(crate) fn row_of<'a>(rows: &'a Rows, map: &Map, target: TargetId) -> Result<&'a SharedRow> {
    rows.shared_target(target).ok_or_else(|| {
        Fault::new(Code::UnknownTarget)
            .subject(map.fs.target(target))
            .why("it is not on a device that two hosts reach")
            .data("nothing was changed")
            .next("list targets and their hosts: brindle node list")
    })
}

/// A new shared target.
pub(crate) fn add(
    rows: &Rows,
    map: &Map,
    (role, index): (Role, Option<u16>),
    hosts: &[SharedHost],
    dir: &str,
    uuid: [u8; 16],
) -> Result<Changed> {
    let names: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
    let refuse = |why: String| refuse("cannot add a target to the hosts", names.join(", ")).why(why);
    if hosts.len() != SHARED_HOSTS_MAX || names.first() == names.last() {
        return Err(refuse(format!("a shared target has {SHARED_HOSTS_MAX} different hosts")));
    }
    for host in hosts {
        let row = known(rows, &host.host)?;
        check_is_server(row)?;
        check_dir(rows, row, dir)
            .map_err(|why| refuse(format!("{}: {why}", row.name)).next("give another directory: --dir"))?;
        check_device(rows, host).map_err(refuse)?;
        let reached =
            rows.shared().filter(|row| row.target.hosts.iter().any(|other| other.host == host.host));
        if row.assignments.len() + reached.count() >= ASSIGNMENTS_MAX {
            return Err(refuse(format!("a host has at most {ASSIGNMENTS_MAX} targets")));
        }
    }
    let target = free_target(rows, map, role, index)?;
    let port = free_port(rows, map, &names).ok_or_else(|| refuse("all ports are taken".to_owned()))?;
    let target = SharedTarget {
        target,
        uuid,
        hosts: hosts.to_vec(),
        dir: dir.to_owned(),
        port,
        is_formatted: false,
        is_wanted: true,
        owner: hosts[0].host.clone(),
        turn: 1,
        phase: SharedPhase::Owned,
    };
    let row = SharedRow { target: target.clone(), moved_for_failure_s: 0 };
    Ok((vec![Change::Shared(Box::new(row))], target))
}

fn check_device(rows: &Rows, host: &SharedHost) -> std::result::Result<(), String> {
    let device = &host.device;
    if !device.starts_with('/') || device.len() > DEVICE_MAX_BYTES || device.contains('\0') {
        return Err(format!("'{device}' is not the absolute path of a device"));
    }
    let taken = rows.shared().find(|row| row.target.hosts.contains(host));
    match taken {
        Some(row) => Err(format!("{} has the device {device} of {}", row.target.target, host.host)),
        None => Ok(()),
    }
}

/// Makes another host serve the target.
pub(crate) fn shift(
    rows: &Rows,
    map: &Map,
    target: TargetId,
    to: Option<&str>,
    is_owner_off: bool,
    s: &Situation,
) -> Result<Changed> {
    let row = row_of(rows, map, target)?;
    let t = &row.target;
    let refuse = |why: String| refuse("cannot move", map.fs.target(target)).why(why);
    let other = t.hosts.iter().find(|host| host.host != t.owner).map(|host| host.host.as_str());
    if rows.is_restored(target) {
        return shift_restored(row, to, is_owner_off, s).map_err(refuse);
    }
    let Some(to) = to.or(other) else { return Err(refuse("only one host reaches its device".to_owned())) };
    if t.hosts.iter().all(|host| host.host != to) {
        let names: Vec<&str> = t.hosts.iter().map(|host| host.host.as_str()).collect();
        return Err(refuse(format!("{to} does not reach its device; these hosts do: {}", names.join(", "))));
    }
    if to == t.owner && t.phase == SharedPhase::Owned {
        return Ok((Vec::new(), t.clone()));
    }
    if !t.is_formatted {
        return Err(refuse("its first host has not formatted it yet".to_owned()));
    }
    if is_owner_off && s.is_alive(&t.owner) {
        return Err(refuse(format!("{} is not off: it was heard of a moment ago", t.owner))
            .next("leave out --owner-is-off: the target is handed over"));
    }
    if to == t.owner {
        return Err(refuse(format!("it is on its way away from {to}")).next("wait until that is done"));
    }
    if !s.can_take(t, to) {
        return Err(refuse(format!("{to} is silent, or does not reach the device"))
            .next(format!("brindle node show {to}")));
    }
    let row = if is_owner_off {
        taken_by(row, to)
    } else if s.is_dead(&t.owner) {
        if !s.has_fence {
            return Err(refuse(format!("{} is silent, and may still write", t.owner)).next(format!(
                "start {0} again; or make sure that {0} is off, and add --owner-is-off",
                t.owner
            )));
        }
        phase(row, SharedPhase::Fencing { to: to.to_owned() })
    } else {
        phase(row, SharedPhase::Handing { to: to.to_owned() })
    };
    let target = row.target.clone();
    Ok((vec![Change::Shared(Box::new(row))], target))
}

/// Makes another host serve a restored target whose state is not known yet. Requires the administrator's word that the silent
/// host is off.
fn shift_restored(
    row: &SharedRow,
    to: Option<&str>,
    is_owner_off: bool,
    s: &Situation,
) -> std::result::Result<Changed, String> {
    if !is_owner_off {
        return Err(
            "the configuration was restored, and not all its hosts have told what lies there".to_owned()
        );
    }
    let hosts = &row.target.hosts;
    let alive = hosts.iter().find(|host| s.is_alive(&host.host)).map(|host| host.host.as_str());
    let to = to.or(alive).ok_or("none of its hosts was heard of")?;
    if hosts.iter().all(|host| host.host != to) {
        return Err(format!("{to} does not reach its device"));
    }
    let row = restored::shared_by_word(row, to, s)?;
    let target = row.target.clone();
    let settled = Change::NotRestored(target.target);
    Ok((vec![Change::Shared(Box::new(row)), settled], target))
}

fn phase(row: &SharedRow, phase: SharedPhase) -> SharedRow {
    SharedRow { target: SharedTarget { phase, ..row.target.clone() }, ..row.clone() }
}

/// The target is to be served, or not.
pub(crate) fn want(rows: &Rows, map: &Map, target: TargetId, is_wanted: bool) -> Result<Changed> {
    let row = row_of(rows, map, target)?;
    if row.target.is_wanted == is_wanted {
        return Ok((Vec::new(), row.target.clone()));
    }
    let target = SharedTarget { is_wanted, ..row.target.clone() };
    let row = SharedRow { target: target.clone(), ..row.clone() };
    Ok((vec![Change::Shared(Box::new(row))], target))
}

/// The target is not to be made after all.
pub(crate) fn forget(rows: &Rows, map: &Map, target: TargetId) -> Result<Changed> {
    let row = row_of(rows, map, target)?;
    check_unmade(map, target, row.target.is_formatted)?;
    Ok((forget_target(rows, target), row.target.clone()))
}

/// The owner tells of a target that it has formatted: that is kept, so that it never formats one twice.
pub(crate) fn formatted(rows: &Rows, host: &str, told: &[SharedReport]) -> Vec<Change> {
    let mut changes = Vec::new();
    for report in told.iter().filter(|report| report.is_formatted) {
        let row = rows.shared_target(report.target).filter(|row| {
            let t = &row.target;
            t.owner == host && t.uuid == report.uuid && t.turn == report.turn && !t.is_formatted
        });
        if let Some(row) = row {
            let target = SharedTarget { is_formatted: true, ..row.target.clone() };
            changes.push(Change::Shared(Box::new(SharedRow { target, ..row.clone() })));
        }
    }
    changes
}
