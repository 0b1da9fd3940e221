//! Pools of OSTs.

use brindle_types::{Code, Fault, PoolName, Result, TargetId};
use brindle_wire::map::{Map, Pool};
use brindle_wire::mgs::PoolChange;
use schemars::JsonSchema;
use serde::Serialize;

use crate::nearest::nearest;
use crate::place::FsLocation;
use crate::servers::Servers;
use crate::target::Changed;

/// Pools of a file system.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PoolsView {
    /// The file system.
    pub fs: String,
    /// Version of its map.
    pub map_version: u64,
    /// The pools.
    pub pools: Vec<PoolView>,
}
document!(PoolsView, "brindle.pool", 1);

/// A pool.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PoolView {
    /// Name of the pool.
    pub name: String,
    /// Indices of its OSTs.
    pub osts: Vec<u16>,
    /// Full names of its OSTs.
    pub targets: Vec<String>,
}

/// Pools of a map.
pub fn view(map: &Map, pools: &[Pool]) -> PoolsView {
    let target = |index: &u16| map.fs.target(TargetId::ost(*index));
    let one = |pool: &Pool| PoolView {
        name: pool.name.to_string(),
        targets: pool.osts.iter().map(target).collect(),
        osts: pool.osts.clone(),
    };
    PoolsView { fs: map.fs.to_string(), map_version: map.version, pools: pools.iter().map(one).collect() }
}

/// Changes a pool, and waits until the MDTs know.
pub async fn change(
    servers: &Servers,
    place: &FsLocation,
    pool: &PoolName,
    change: PoolChange,
) -> Result<Changed> {
    let done = servers.change_pool(place, pool, change).await?;
    let not_told = servers.until_known(&done.map).await;
    Ok(Changed { map: done.map, not_told })
}

/// Refuses OSTs that the file system does not have.
pub fn all_exist(map: &Map, osts: &[u16]) -> Result<()> {
    match osts.iter().find(|ost| map.target(TargetId::ost(**ost)).is_none()) {
        None => Ok(()),
        Some(ost) => Err(Fault::new(Code::UnknownTarget)
            .subject(map.fs.target(TargetId::ost(*ost)))
            .data("nothing was changed")
            .next("list those that there are: brindle target list")),
    }
}

/// The pool of a name, or a refusal with the nearest.
pub fn find<'a>(map: &'a Map, name: &PoolName) -> Result<&'a Pool> {
    map.pool(name).ok_or_else(|| {
        let fault = Fault::new(Code::NoSuchPool).subject(format!("{}.{name}", map.fs)).why(format!(
            "the pools of {} are: {}",
            map.fs,
            map.pool_names()
        ));
        match nearest(name.as_str(), map.pools.iter().map(|p| p.name.as_str())) {
            Some(near) => fault.next(format!("did you mean '{near}'?")),
            None => fault,
        }
    })
}
