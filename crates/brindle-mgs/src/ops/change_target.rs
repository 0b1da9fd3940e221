//! change_target: an OST gets no new objects, because it is to be emptied, gets them again, or is taken out.

use brindle_types::{Code, Fault, Result, Role, TargetId};
use brindle_wire::map::{Map, REMOVED_MAX, RemovedTarget};
use brindle_wire::mgs::durability::Mode;
use brindle_wire::mgs::{ChangeTargetReq, ChangeTargetResp, TargetChange};

use crate::Mgs;

/// Stores the changed map, then answers with it.
pub(crate) async fn handle(mgs: &Mgs, req: ChangeTargetReq) -> Result<ChangeTargetResp> {
    mgs.check_fs(&req.fs)?;
    let target = TargetId::ost(req.ost);
    let is_removed = req.change == TargetChange::Remove && decide(&mgs.store.current(), &req)?.is_some();
    // A later target with this index must begin with the default durability. Reset a weaker mode before the map changes, because the index
    // is free at once. A stronger mode stays until the target has left.
    if is_removed && mgs.durability.now().1.of(target) == Mode::Scratch {
        mgs.durability.change(target, Mode::default(), false).await?;
    }
    let changed = mgs.store.modify(|map| decide(map, &req)).await?;
    if changed && req.change == TargetChange::Remove {
        super::hosts::forget_target(mgs, target).await?;
        mgs.durability.change(target, Mode::default(), false).await?;
    }
    let map = mgs.map_now();
    if changed {
        tracing::info!(ost = req.ost, change = ?req.change, map_version = map.version, "target changed");
    }
    Ok(ChangeTargetResp { map, changed })
}

/// The map with the change; `None` when it is so already.
fn decide(map: &Map, req: &ChangeTargetReq) -> Result<Option<Map>> {
    let name = map.fs.target(TargetId::ost(req.ost));
    let osts: Vec<u16> = map.targets.iter().filter(|t| t.id.role == Role::Ost).map(|t| t.id.index).collect();
    if !osts.contains(&req.ost) {
        let near = osts.iter().min_by_key(|index| index.abs_diff(req.ost));
        let fault = Fault::new(Code::UnknownTarget).subject(name).why("the file system has no such OST");
        return Err(match near {
            Some(near) => fault.next(format!("the nearest one is {}", map.fs.target(TargetId::ost(*near)))),
            None => fault,
        });
    }
    let mut next = map.clone();
    next.version += 1;
    match (req.change, map.draining.binary_search(&req.ost)) {
        (TargetChange::Drain, Err(at)) => {
            if osts.iter().all(|ost| *ost == req.ost || map.draining.contains(ost)) {
                return Err(Fault::new(Code::BadArgument)
                    .what("cannot drain")
                    .subject(name)
                    .why("no other OST would take new files")
                    .data("nothing was changed")
                    .next("add an OST first: brindle target add"));
            }
            next.draining.insert(at, req.ost);
        }
        (TargetChange::Undrain, Ok(at)) => drop(next.draining.remove(at)),
        (TargetChange::Remove, Ok(at)) => {
            next.draining.remove(at);
            remove(&mut next, TargetId::ost(req.ost));
        }
        (TargetChange::Remove, Err(_)) => {
            return Err(Fault::new(Code::TargetInUse)
                .what("cannot remove")
                .subject(name)
                .why("it gets new files")
                .data("nothing was changed")
                .next(format!("empty it first: brindle target drain {} MOUNT", req.ost)));
        }
        (TargetChange::Drain, Ok(_)) | (TargetChange::Undrain, Err(_)) => return Ok(None),
    }
    Ok(Some(next))
}

fn remove(map: &mut Map, id: TargetId) {
    for target in map.targets.extract_if(.., |t| t.id == id) {
        map.removed.push(RemovedTarget { id, uuid: target.uuid });
    }
    let forgotten = map.removed.len().saturating_sub(REMOVED_MAX);
    map.removed.drain(..forgotten);
    for pool in &mut map.pools {
        pool.osts.retain(|ost| *ost != id.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_wire::map::{Pool, TargetEntry, TargetState};

    fn map(osts: u16) -> Map {
        let entry = |index| TargetEntry {
            id: TargetId::ost(index),
            uuid: [1; 16],
            nids: Vec::new(),
            epoch: 1,
            state: TargetState::Up,
            replicas: brindle_wire::map::ReplicaSet::of("oss1"),
            format_level_max: brindle_wire::form::FormatLevel::FIRST,
        };
        let targets = (0..osts).map(entry).collect();
        Map { version: 7, targets, ..Map::new("scratch".parse().unwrap(), 1) }
    }

    fn change(map: &Map, ost: u16, change: TargetChange) -> Result<Option<Map>> {
        decide(map, &ChangeTargetReq { fs: map.fs.clone(), ost, change })
    }

    #[test]
    fn osts_are_drained_one_by_one_and_never_all() {
        let map = map(3);
        let two = change(&map, 2, TargetChange::Drain).unwrap().expect("changed");
        assert_eq!((&two.draining[..], two.version), (&[2][..], 8));
        assert_eq!(change(&two, 2, TargetChange::Drain), Ok(None), "it is");
        let both = change(&two, 0, TargetChange::Drain).unwrap().expect("changed");
        assert_eq!(both.draining, [0, 2]);
        let fault = change(&both, 1, TargetChange::Drain).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "cannot drain scratch-OST0001\
             \n  why:  no other OST would take new files\
             \n  data: nothing was changed\
             \n  next: add an OST first: brindle target add\
             \n  code: E1001 (brindle explain E1001)"
        );
        let back = change(&both, 0, TargetChange::Undrain).unwrap().expect("changed");
        assert_eq!(back.draining, [2]);
        assert_eq!(change(&back, 0, TargetChange::Undrain), Ok(None));
    }

    #[test]
    fn a_drained_ost_leaves_the_map_and_its_pools_and_does_not_come_back() {
        let mut map = map(3);
        map.pools.push(Pool { name: "flash".parse().unwrap(), osts: vec![1, 2] });
        map.targets[2].uuid = [9; 16];
        let fault = change(&map, 2, TargetChange::Remove).unwrap_err();
        assert_eq!((fault.code, fault.data.as_ref()), (Code::TargetInUse, "nothing was changed"));
        let drained = change(&map, 2, TargetChange::Drain).unwrap().expect("changed");
        assert!(!drained.is_removed(TargetId::ost(2)));
        let gone = change(&drained, 2, TargetChange::Remove).unwrap().expect("changed");
        assert!(gone.is_removed(TargetId::ost(2)));
        assert_eq!((gone.targets.len(), &gone.pools[0].osts[..], gone.draining.len()), (2, &[1][..], 0));
        assert_eq!(gone.removed, [RemovedTarget { id: TargetId::ost(2), uuid: [9; 16] }]);
        assert_eq!(change(&gone, 2, TargetChange::Remove).unwrap_err().code, Code::UnknownTarget);
    }

    #[test]
    fn an_unknown_ost_is_named_with_the_nearest() {
        let fault = change(&map(2), 9, TargetChange::Drain).unwrap_err();
        assert_eq!(
            (fault.code, fault.next.as_ref()),
            (Code::UnknownTarget, "the nearest one is scratch-OST0001")
        );
    }
}
