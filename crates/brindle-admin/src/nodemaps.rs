//! Nodemaps: the rights of hosts that are not trusted fully.

use brindle_types::{Code, Fault, Result};
use brindle_wire::mgs::id_map::{
    ChangeMappedNodemapReq, ChangeMappedNodemapResp, IdMapEdit, IdRange, ListMappedNodemapsReq, MappedNodemap,
};
use brindle_wire::mgs::nodemap::{
    ChangeNodemapReq, ChangeNodemapResp, DEFAULT_NODEMAP, ListNodemapsReq, Nodemap, NodemapChange,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::nearest::nearest;
use crate::place::FsLocation;
use crate::servers::Servers;

/// All nodemaps.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodemapsView {
    /// By name, the default one first.
    pub nodemaps: Vec<NodemapView>,
}
document!(NodemapsView, "brindle.nodemap.list", 1);

/// A nodemap.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NodemapView {
    /// Name of the nodemap; `default` applies to all hosts that no other nodemap names.
    pub name: String,
    /// Names of its hosts, as in their certificates.
    pub hosts: Vec<String>,
    /// Ranges of addresses, for connections in mode `none`.
    pub addresses: Vec<String>,
    /// Whether its hosts are trusted fully: the nodemap takes nothing away.
    pub trusted: bool,
    /// Whether its hosts change nothing.
    pub read_only: bool,
    /// The tree that its hosts see; empty for the whole file system.
    pub subtree: String,
    /// Users that become nobody: `none`, `root` or `all`.
    pub squash: &'static str,
    /// The user that they become.
    pub squash_uid: u32,
    /// The group that they become.
    pub squash_gid: u32,
    /// Users of the hosts with other numbers in the file system: `1000-1999:5000`.
    pub map_uid: Vec<String>,
    /// Groups likewise.
    pub map_gid: Vec<String>,
    /// Whether users and groups without a mapping are refused; otherwise they become nobody.
    pub deny_unknown: bool,
}
document!(NodemapView, "brindle.nodemap.show", 1);

/// A change of a nodemap.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NodemapChanged {
    /// Name of the nodemap.
    pub name: String,
    /// Whether anything was changed, or would be.
    pub changed: bool,
    /// Only told, and not done.
    pub dry_run: bool,
    /// The nodemap as it is then; none if it was removed.
    pub nodemap: Option<NodemapView>,
}
document!(NodemapChanged, "brindle.nodemap.change", 1);

/// A nodemap, for people and programs.
pub fn view(mapped: &MappedNodemap) -> NodemapView {
    let MappedNodemap { nodemap, ids } = mapped;
    let Nodemap { name, hosts, addresses, read_only, squash, squash_uid, squash_gid, subtree } =
        nodemap.clone();
    let texts = |ranges: &[IdRange]| ranges.iter().map(IdRange::to_string).collect();
    NodemapView {
        trusted: brindle_net::Limits::mapped(nodemap, ids).is_none(),
        name,
        hosts,
        addresses,
        read_only,
        subtree,
        squash: squash.name(),
        squash_uid,
        squash_gid,
        map_uid: texts(&ids.uids),
        map_gid: texts(&ids.gids),
        deny_unknown: ids.deny_unknown,
    }
}

/// All nodemaps; the default one is there, also if nothing was said of it.
pub fn list(nodemaps: &[MappedNodemap]) -> NodemapsView {
    let is_default = |mapped: &&MappedNodemap| mapped.nodemap.name == DEFAULT_NODEMAP;
    let unsaid = Nodemap::new(DEFAULT_NODEMAP).into();
    let default = nodemaps.iter().find(is_default).unwrap_or(&unsaid);
    let others = nodemaps.iter().filter(|nodemap| !is_default(nodemap));
    NodemapsView { nodemaps: std::iter::once(default).chain(others).map(view).collect() }
}

/// The nodemap of a name, or a refusal with the nearest.
pub fn one(all: NodemapsView, name: &str) -> Result<NodemapView> {
    let names: Vec<String> = all.nodemaps.iter().map(|nodemap| nodemap.name.clone()).collect();
    all.nodemaps.into_iter().find(|nodemap| nodemap.name == name).ok_or_else(|| {
        let fault = Fault::new(Code::UnknownNodemap).subject(name.to_owned());
        match nearest(name, names.iter().map(String::as_str)) {
            Some(near) => fault.next(format!("did you mean '{near}'?")),
            None => fault,
        }
    })
}

impl Servers {
    /// All nodemaps, as the MGS has them. An MGS of the last release maps no numbers.
    pub async fn nodemaps(&self, place: &FsLocation) -> Result<NodemapsView> {
        let nodemaps = match self.ask_the_mgs(place, &ListMappedNodemapsReq {}).await {
            Ok(answer) => answer.nodemaps,
            Err(fault) if fault.code == Code::UnknownOp => {
                let answer = self.ask_the_mgs(place, &ListNodemapsReq {}).await?;
                answer.nodemaps.into_iter().map(MappedNodemap::from).collect()
            }
            Err(fault) => return Err(fault),
        };
        Ok(list(&nodemaps))
    }

    /// Changes a nodemap and its mapping.
    pub async fn change_nodemap(
        &self,
        place: &FsLocation,
        name: &str,
        (change, ids): (NodemapChange, IdMapEdit),
        is_dry_run: bool,
    ) -> Result<NodemapChanged> {
        let name = name.to_owned();
        let maps = ids != IdMapEdit::default();
        let request = ChangeMappedNodemapReq { name: name.clone(), change: change.clone(), ids, is_dry_run };
        let (changed, nodemap) = match self.ask_the_mgs(place, &request).await {
            Ok(ChangeMappedNodemapResp { changed, nodemap }) => (changed, nodemap),
            // An MGS of the last release maps no numbers.
            Err(fault) if fault.code == Code::UnknownOp && !maps => {
                let request = ChangeNodemapReq { name: name.clone(), change, is_dry_run };
                let ChangeNodemapResp { changed, nodemap } = self.ask_the_mgs(place, &request).await?;
                (changed, nodemap.map(MappedNodemap::from))
            }
            Err(fault) => return Err(fault),
        };
        Ok(NodemapChanged { name, changed, dry_run: is_dry_run, nodemap: nodemap.as_ref().map(view) })
    }
}
