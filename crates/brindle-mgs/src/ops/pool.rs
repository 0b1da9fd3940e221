//! change_pool: pools of OSTs come, change and go.
//!
//! The decision ([`decide`]) is a pure function from the map and the request to the next map, as for `register`.

use brindle_types::{Code, Fault, PoolName, Result, Role, TargetId};
use brindle_wire::map::{Map, POOLS_MAX, Pool};
use brindle_wire::mgs::{ChangePoolReq, ChangePoolResp, PoolChange};

use crate::Mgs;

/// Stores the changed map, then answers with it.
pub(crate) async fn handle(mgs: &Mgs, req: ChangePoolReq) -> Result<ChangePoolResp> {
    mgs.check_fs(&req.fs)?;
    let changed = mgs.store.modify(|map| decide(map, &req)).await?;
    let map = mgs.map_now();
    if changed {
        tracing::info!(pool = %req.pool, change = ?req.change, map_version = map.version, "pool changed");
    }
    Ok(ChangePoolResp { map, changed })
}

/// The map with the change; `None` when it is so already.
fn decide(map: &Map, req: &ChangePoolReq) -> Result<Option<Map>> {
    let name = &req.pool;
    let mut next = map.clone();
    next.version += 1;
    let found = next.pools.binary_search_by(|p| p.name.cmp(name));
    match (&req.change, found) {
        (PoolChange::Create, Ok(_)) => {
            return Err(Fault::new(Code::PoolExists)
                .what("cannot make the pool")
                .subject(full(map, name))
                .why("there is a pool of this name")
                .next(format!("add OSTs to it: brindle pool add {name} OST...")));
        }
        (PoolChange::Create, Err(_)) if next.pools.len() >= POOLS_MAX => {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot make the pool")
                .subject(full(map, name))
                .why(format!("a file system has at most {POOLS_MAX} pools"))
                .next("destroy one that is not used: brindle pool destroy"));
        }
        (PoolChange::Create, Err(at)) => {
            next.pools.insert(at, Pool { name: name.clone(), osts: Vec::new() });
        }
        (_, Err(_)) => {
            return Err(Fault::new(Code::NoSuchPool)
                .subject(full(map, name))
                .why(format!("the pools of {} are: {}", map.fs, map.pool_names()))
                .next(format!("make it first: brindle pool create {name}")));
        }
        (PoolChange::Add(osts), Ok(at)) => {
            osts.iter().try_for_each(|ost| known(map, name, *ost))?;
            let members = &mut next.pools[at].osts;
            members.extend(osts);
            members.sort_unstable();
            members.dedup();
        }
        (PoolChange::Remove(osts), Ok(at)) => {
            osts.iter().try_for_each(|ost| member(map, &map.pools[at], *ost))?;
            next.pools[at].osts.retain(|member| !osts.contains(member));
        }
        (PoolChange::Destroy { with_osts }, Ok(at)) => {
            let count = next.pools[at].osts.len();
            if count > 0 && !with_osts {
                return Err(Fault::new(Code::PoolNotEmpty)
                    .what("will not destroy the pool")
                    .subject(full(map, name))
                    .why(format!("it has {count} OSTs, and directories may have it as their default"))
                    .data("nothing was changed")
                    .next("remove its OSTs first, or: brindle pool destroy --yes"));
            }
            next.pools.remove(at);
        }
    }
    Ok((next.pools != map.pools).then_some(next))
}

/// Full name of a pool, as people write it: `scratch.flash`.
fn full(map: &Map, name: &PoolName) -> String {
    format!("{}.{name}", map.fs)
}

/// An OST that comes into a pool is one of the file system.
fn known(map: &Map, name: &PoolName, ost: u16) -> Result<()> {
    if map.target(TargetId::ost(ost)).is_some() {
        return Ok(());
    }
    let osts = map.targets.iter().filter(|t| t.id.role == Role::Ost).map(|t| t.id.index);
    let fault = Fault::new(Code::UnknownTarget)
        .what("cannot add to the pool")
        .subject(format!("{}: {}", full(map, name), map.fs.target(TargetId::ost(ost))))
        .why("the file system has no such OST")
        .data("nothing was changed");
    Err(match osts.min_by_key(|index| index.abs_diff(ost)) {
        Some(near) => fault.next(format!("the nearest one is {}", map.fs.target(TargetId::ost(near)))),
        None => fault.next("it has no OST at all: format and serve one: brindle format --ost"),
    })
}

/// An OST that goes from a pool is in it.
fn member(map: &Map, pool: &Pool, ost: u16) -> Result<()> {
    if pool.osts.contains(&ost) {
        return Ok(());
    }
    let members: Vec<String> = pool.osts.iter().map(|i| TargetId::ost(*i).to_string()).collect();
    Err(Fault::new(Code::UnknownTarget)
        .what("cannot remove from the pool")
        .subject(format!("{}: {}", full(map, &pool.name), map.fs.target(TargetId::ost(ost))))
        .why(if members.is_empty() {
            "the pool has no OST".to_owned()
        } else {
            format!("the pool has {}", members.join(", "))
        })
        .data("nothing was changed")
        .next("list the pool: brindle pool list"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_wire::map::{TargetEntry, TargetState};

    fn map(osts: &[u16]) -> Map {
        let entry = |index: &u16| TargetEntry {
            id: TargetId::ost(*index),
            uuid: [0; 16],
            nids: Vec::new(),
            epoch: 1,
            state: TargetState::Up,
            replicas: brindle_wire::map::ReplicaSet::of(String::new()),
            format_level_max: brindle_wire::form::FormatLevel::FIRST,
        };
        let targets = osts.iter().map(entry).collect();
        Map { version: 7, targets, ..Map::new("scratch".parse().unwrap(), 1) }
    }

    fn change(map: &Map, pool: &str, change: PoolChange) -> Result<Option<Map>> {
        decide(map, &ChangePoolReq { fs: map.fs.clone(), pool: pool.parse().unwrap(), change })
    }

    fn changed(map: &Map, pool: &str, what: PoolChange) -> Map {
        change(map, pool, what).unwrap().expect("changed")
    }

    #[test]
    fn pools_are_sorted_and_versions_rise() {
        let mut m = map(&[0, 1, 2, 10]);
        m = changed(&m, "slow", PoolChange::Create);
        m = changed(&m, "flash", PoolChange::Create);
        m = changed(&m, "flash", PoolChange::Add(vec![10, 1, 10]));
        assert_eq!(m.pool_names(), "flash, slow");
        assert_eq!((m.pools[0].osts.as_slice(), m.version), ([1, 10].as_slice(), 10));
        assert_eq!(change(&m, "flash", PoolChange::Add(vec![1])), Ok(None), "it is in it already");
        m = changed(&m, "flash", PoolChange::Remove(vec![1]));
        assert_eq!(m.pools[0].osts, [10]);
        m = changed(&m, "flash", PoolChange::Destroy { with_osts: true });
        m = changed(&m, "slow", PoolChange::Destroy { with_osts: false });
        assert_eq!((m.pools.len(), m.version), (0, 13));
    }

    #[test]
    fn what_cannot_be_is_refused_and_named() {
        let m = changed(&map(&[0, 1, 10]), "flash", PoolChange::Create);
        let code = |pool, what| change(&m, pool, what).unwrap_err().code;
        assert_eq!(code("flash", PoolChange::Create), Code::PoolExists);
        assert_eq!(code("disk", PoolChange::Add(vec![0])), Code::NoSuchPool);
        assert_eq!(code("disk", PoolChange::Destroy { with_osts: true }), Code::NoSuchPool);
        assert_eq!(code("flash", PoolChange::Remove(vec![0])), Code::UnknownTarget);
        assert_eq!(
            change(&m, "flash", PoolChange::Add(vec![0, 9])).unwrap_err().to_string(),
            "cannot add to the pool scratch.flash: scratch-OST0009\
             \n  why:  the file system has no such OST\
             \n  data: nothing was changed\
             \n  next: the nearest one is scratch-OST000a\
             \n  code: E5004 (brindle explain E5004)"
        );
        let full = changed(&m, "flash", PoolChange::Add(vec![0]));
        let kept = change(&full, "flash", PoolChange::Destroy { with_osts: false }).unwrap_err();
        assert_eq!(kept.code, Code::PoolNotEmpty);
        let mut many = map(&[]);
        many.pools = (0..POOLS_MAX)
            .map(|n| Pool { name: format!("p{n:04}").parse().unwrap(), osts: Vec::new() })
            .collect();
        assert_eq!(change(&many, "flash", PoolChange::Create).unwrap_err().code, Code::BadArgument);
    }
}
