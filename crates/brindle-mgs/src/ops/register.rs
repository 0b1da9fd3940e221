//! register: a server announces a target.
//!
//! The decision ([`decide`]) is a pure function from the map and the request to the next map; [`handle`] stores it by
//! compare-and-swap and only then answers.

use std::sync::atomic::Ordering;

use brindle_types::{Code, Fault, Nid, Result, TargetId};
use brindle_wire::form::FormatLevel;
use brindle_wire::map::{Map, ReplicaSet, TargetEntry, TargetState};
use brindle_wire::mgs::{RegisterReq, RegisterResp};

use crate::Mgs;
use crate::hosts::{decide as decide_hosts, rename};

/// Most addresses of one target.
const NIDS_MAX: usize = 16;

/// Heartbeats that the server of a target may miss before another address may take the target over.
const SILENT_HEARTBEATS: u64 = 2;
/// Interval at which a waiting registration looks again.
const LOOK_MS: u64 = 100;

/// Puts the target into the map, if it belongs there.
pub(crate) async fn handle(mgs: &Mgs, req: RegisterReq) -> Result<RegisterResp> {
    let outcome = register(mgs, &req).await;
    match &outcome {
        Ok(resp) => tracing::info!(
            target_name = %req.fs.target(req.target),
            epoch = resp.epoch,
            map_version = resp.map.version,
            host = %req.host,
            nid = %req.nids.first().map(Nid::to_string).unwrap_or_default(),
            "target registered"
        ),
        Err(fault) => {
            mgs.stats.refusals.fetch_add(1, Ordering::Relaxed);
            let why = fault.why.join(": ");
            tracing::warn!(code = %fault.code, subject = %fault.subject, host = %req.host, why, "registration refused");
        }
    }
    outcome
}

async fn register(mgs: &Mgs, req: &RegisterReq) -> Result<RegisterResp> {
    mgs.check_fs(&req.fs)?;
    mgs.gate.check_fs(req.fs_id)?;
    until_owner_is_silent(mgs, req).await?;
    let changed = mgs.store.modify(|map| decide(map, req)).await?;
    if changed {
        mgs.stats.registrations.fetch_add(1, Ordering::Relaxed);
    }
    mgs.liveness.lock().heard(req.target, mgs.seams.now());
    let map = mgs.map_now();
    let epoch = map.target(req.target).map_or(0, |t| t.epoch);
    Ok(RegisterResp { map, epoch, heartbeat_ms: mgs.config.heartbeat_ms })
}

/// Waits until a target may be given to this address. If another address serves it, that server must have been silent
/// for [`SILENT_HEARTBEATS`]. Two servers of one target (of a copy of its directory, or of one disk seen by two hosts)
/// would take it from each other, and writes of clients to one would be missing at the other.
async fn until_owner_is_silent(mgs: &Mgs, req: &RegisterReq) -> Result<()> {
    let asked = mgs.seams.now();
    let silent_ms = u64::from(mgs.config.heartbeat_ms) * SILENT_HEARTBEATS;
    loop {
        let map = mgs.store.current();
        let Some(owner) = map.target(req.target) else { return Ok(()) };
        if owner.uuid != req.uuid || owner.nids == req.nids {
            return Ok(());
        }
        if super::hosts::owns_shared(mgs, req.target, &req.host) {
            return Ok(());
        }
        let last = mgs.liveness.lock().last(req.target);
        if last > asked {
            return Err(served_elsewhere(owner, req));
        }
        if mgs.seams.now().ms_since(last) >= silent_ms {
            return Ok(());
        }
        mgs.seams.sleep_ms(LOOK_MS).await;
    }
}

fn served_elsewhere(owner: &TargetEntry, req: &RegisterReq) -> Fault {
    let shown = |nids: &[Nid]| nids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Fault::new(Code::TargetBusy)
        .what("cannot serve")
        .subject(format!("{} at {} of {}", req.fs.target(req.target), shown(&req.nids), req.host))
        .why(format!("{} of {} serves this very target, and is alive", shown(&owner.nids), owner.host()))
        .data("nothing was changed; clients go on with the other server")
        .next("never serve a copy of a target beside it; to move it, stop the other server first")
}

/// Puts the MGT itself into the map, so that status and clients see it like every other target.
pub(crate) async fn own(mgs: &Mgs, listens_at: &[Nid]) -> Result<()> {
    let advertised = &mgs.config.advertise;
    let nids = if advertised.is_empty() { listens_at.to_vec() } else { advertised.clone() };
    if let (Some(hosts), Some(_)) = (&mgs.hosts, &mgs.leadership) {
        // Written each time: so the rows have a version that no earlier MGS has told.
        hosts.change(|_| Ok((decide_hosts::mgs_at(&mgs.own_host(), &nids)?, ()))).await?;
    }
    // A service has one listener in its life.
    drop(mgs.own_nids.set(nids));
    // An earlier MGS may have died between the rows of a host's new name and the map.
    for row in mgs.hosts.iter().flat_map(|hosts| hosts.rows().renamed().cloned().collect::<Vec<_>>()) {
        mgs.store.modify(|map| Ok(rename::in_map(map, &row.from, &row.to))).await?;
    }
    tell_addresses(mgs).await
}

/// Puts the addresses of the MGS into the map: this one first, then those that stand by.
pub(crate) async fn tell_addresses(mgs: &Mgs) -> Result<()> {
    let Some(own) = mgs.own_nids.get() else { return Ok(()) };
    let rows = mgs.hosts.as_ref().map(|hosts| hosts.rows()).unwrap_or_default();
    let host = mgs.own_host();
    let others: Vec<_> = rows.mgs().filter(|row| row.host != host).collect();
    let mut nids = own.clone();
    nids.extend(others.iter().flat_map(|row| &row.nids).filter(|nid| !own.contains(nid)).cloned());
    nids.truncate(NIDS_MAX);
    let req = RegisterReq {
        fs: mgs.superblock.fs.clone(),
        fs_id: mgs.superblock.fs_id,
        target: TargetId::MGT,
        uuid: mgs.superblock.uuid,
        nids,
        host,
        format_level_max: FormatLevel::NEWEST,
    };
    let standby: Vec<String> = others.iter().map(|row| row.host.clone()).collect();
    mgs.store.modify(|map| with_standby(map, decide(map, &req)?, &standby)).await?;
    Ok(())
}

/// `next`, or the map as it is, with the hosts whose MGS stand by.
fn with_standby(map: &Map, next: Option<Map>, standby: &[String]) -> Result<Option<Map>> {
    let known = map.target(TargetId::MGT).map(|mgs| mgs.replicas.standby.as_slice());
    if known.unwrap_or_default() == standby {
        return Ok(next);
    }
    let mut next = next.unwrap_or_else(|| Map { version: map.version + 1, ..map.clone() });
    standby.iter().for_each(|host| next.note_host(host));
    if let Some(mgs) = next.targets.iter_mut().find(|t| t.id == TargetId::MGT) {
        mgs.replicas.standby = standby.to_vec();
    }
    Ok(Some(next))
}

/// The map with the target in it; `None` when it is in it as it is.
fn decide(map: &Map, req: &RegisterReq) -> Result<Option<Map>> {
    if req.nids.is_empty() || req.nids.len() > NIDS_MAX {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot register")
            .subject(req.fs.target(req.target))
            .why(format!("it names {} addresses; 1 to {NIDS_MAX} are possible", req.nids.len())));
    }
    if req.format_level_max < map.format_level {
        return Err(Fault::new(Code::NewerFormat)
            .what("cannot serve")
            .subject(format!("{} at {}", req.fs.target(req.target), req.host))
            .why(format!("the file system has format level {}", map.format_level.0))
            .why(format!("this server reads up to level {}", req.format_level_max.0))
            .data("nothing was changed"));
    }
    let mut next = map.clone();
    next.version += 1;
    if map.removed.iter().any(|t| t.uuid == req.uuid) {
        return Err(Fault::new(Code::TargetRemoved)
            .what("cannot serve")
            .subject(format!("{} at {}", req.fs.target(req.target), req.host))
            .why("it was taken out of the file system: brindle target remove")
            .data("no file lies on it; its directory was not changed"));
    }
    let at = match next.targets.binary_search_by_key(&req.target, |t| t.id) {
        Ok(at) => at,
        Err(at) => {
            let entry = TargetEntry {
                id: req.target,
                uuid: req.uuid,
                nids: req.nids.clone(),
                epoch: 1,
                state: TargetState::Up,
                replicas: ReplicaSet::of(req.host.clone()),
                format_level_max: req.format_level_max,
            };
            next.note_host(&req.host);
            next.targets.insert(at, entry);
            return Ok(Some(next));
        }
    };
    let entry = &mut next.targets[at];
    if entry.uuid != req.uuid {
        return Err(index_in_use(map, &map.targets[at], req));
    }
    let moved = entry.nids != req.nids;
    let is_same_server = entry.host() == req.host && entry.format_level_max == req.format_level_max;
    if !moved && is_same_server {
        return Ok(None);
    }
    if moved {
        entry.epoch += 1;
    }
    entry.nids.clone_from(&req.nids);
    entry.replicas.primary.clone_from(&req.host);
    entry.format_level_max = req.format_level_max;
    next.note_host(&req.host);
    Ok(Some(next))
}

fn index_in_use(map: &Map, owner: &TargetEntry, req: &RegisterReq) -> Fault {
    let taken = |index: u16| map.target(TargetId { index, ..req.target }).is_some();
    let free = (0..=u16::MAX).find(|index| !taken(*index));
    let next = match free {
        Some(free) => {
            format!("format it with --index {free} (the lowest free one); its data directory was not changed")
        }
        None => "every index is taken".to_owned(),
    };
    Fault::new(Code::IndexInUse)
        .what("cannot add")
        .subject(format!("{} from {}", req.fs.target(req.target), req.host))
        .why(format!(
            "index {} belongs to the target {} of {}",
            req.target.index,
            short(&owner.uuid),
            owner.host()
        ))
        .why(format!("this one is {}", short(&req.uuid)))
        .next(next)
}

/// The beginning of an identity, enough to tell two apart.
fn short(uuid: &[u8; 16]) -> String {
    let hex: String = uuid[..4].iter().map(|b| format!("{b:02x}")).collect();
    format!("{hex}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: TargetId, uuid: u8, port: u16) -> RegisterReq {
        RegisterReq {
            fs: "scratch".parse().unwrap(),
            fs_id: 0,
            target,
            uuid: [uuid; 16],
            nids: vec![format!("10.0.0.1:{port}").parse().unwrap()],
            host: "oss1".into(),
            format_level_max: FormatLevel::NEWEST,
        }
    }

    fn empty() -> Map {
        Map::new("scratch".parse().unwrap(), 1)
    }

    #[test]
    fn targets_are_kept_in_order_and_versions_rise() {
        let mut map = empty();
        for index in [3, 0, 2] {
            map = decide(&map, &request(TargetId::ost(index), index as u8, 1)).unwrap().expect("new");
        }
        map = decide(&map, &request(TargetId::mdt(0), 9, 1)).unwrap().expect("new");
        let order: Vec<String> = map.targets.iter().map(|t| t.id.to_string()).collect();
        assert_eq!(order, ["MDT0000", "OST0000", "OST0002", "OST0003"]);
        assert_eq!(map.version, 5);
    }

    #[test]
    fn the_epoch_rises_with_the_address_and_with_nothing_else() {
        let first = decide(&empty(), &request(TargetId::ost(0), 1, 1)).unwrap().expect("new");
        assert_eq!(decide(&first, &request(TargetId::ost(0), 1, 1)), Ok(None), "the same server again");
        let moved = decide(&first, &request(TargetId::ost(0), 1, 2)).unwrap().expect("moved");
        assert_eq!((moved.targets[0].epoch, moved.version), (2, 3));
        let mut renamed = request(TargetId::ost(0), 1, 2);
        renamed.host = "oss2".into();
        let renamed = decide(&moved, &renamed).unwrap().expect("another host name");
        assert_eq!((renamed.targets[0].epoch, renamed.version), (2, 4));
    }

    #[test]
    fn an_index_belongs_to_one_identity() {
        let mut map = empty();
        for index in [0, 1] {
            map = decide(&map, &request(TargetId::ost(index), index as u8, 1)).unwrap().expect("new");
        }
        let fault = decide(&map, &request(TargetId::ost(1), 7, 1)).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "cannot add scratch-OST0001 from oss1\
             \n  why:  index 1 belongs to the target 01010101... of oss1\
             \n  why:  this one is 07070707...\
             \n  next: format it with --index 2 (the lowest free one); its data directory was not changed\
             \n  code: E5003 (brindle explain E5003)"
        );
    }

    #[test]
    fn addresses_are_bounded() {
        let mut none = request(TargetId::ost(0), 1, 1);
        none.nids.clear();
        assert_eq!(decide(&empty(), &none).unwrap_err().code, Code::BadArgument);
    }
}
