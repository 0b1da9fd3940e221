//! Requests to the servers of a file system, in bounded time; a fault says which server did not answer and why.

use std::sync::Arc;

use brindle_net::peer::NoNotifies;
use brindle_net::{Peer, PeerConfig, Transport};
use brindle_stdx::{BoxFuture, Seams};
use brindle_targets::{Directory, Introduction, Plain};
use brindle_types::{Code, Fault, FsName, Nid, PoolName, Result, Role, TargetId};
use brindle_wire::Message;
use brindle_wire::form::FormatLevel;
use brindle_wire::map::delta::MapUpdate;
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mds::ost_use::OstUseReq;
use brindle_wire::mds::session::{TargetInfoReq, TargetInfoResp};
use brindle_wire::mgs::{
    ChangePoolReq, ChangePoolResp, ChangeTargetReq, ChangeTargetResp, GetMapReq, PoolChange, RaiseLevelReq,
    RaiseLevelResp, TargetChange,
};
use brindle_wire::version::PeerKind;
use futures_util::future::select_all;
use parking_lot::Mutex;

use crate::place::FsLocation;

/// Longest wait for the answer of a server.
const PATIENCE_MS: u64 = 3_000;
/// Longest wait for the answer of a server on one of its rails.
const RAIL_MS: u64 = 1_500;
/// Longest wait for a newer map from the MGS, after the current map did not name the target.
const REFETCH_MS: u64 = 1_000;
/// The file system that was asked last: addresses of its MGS, and its targets.
type Asked = (Vec<Nid>, Arc<Directory>);

/// A further source of the map, for when no MGS answers: a mount on this host, say.
pub trait OtherSource: Send + Sync {
    /// The map of a file system, if this source has it.
    fn map<'a>(&'a self, place: &'a FsLocation) -> BoxFuture<'a, Option<Map>>;
    /// Further addresses of its MGS that this host knows.
    fn mgs(&self, place: &FsLocation) -> Vec<Nid> {
        let _ = place;
        Vec::new()
    }
}

/// No other source.
pub struct OnlyTheMgs;

impl OtherSource for OnlyTheMgs {
    fn map<'a>(&'a self, _: &'a FsLocation) -> BoxFuture<'a, Option<Map>> {
        Box::pin(std::future::ready(None))
    }
}

/// An administrator's way to the servers of file systems.
#[derive(Clone)]
pub struct Servers {
    seams: Seams,
    transport: Arc<dyn Transport>,
    other: Arc<dyn OtherSource>,
    host_name: Arc<str>,
    last: Arc<Mutex<Option<Asked>>>,
}

/// Files with a part on an OST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// All of them.
    pub files: u64,
    /// Number of these files that have no name: programs have them open.
    pub nameless: u64,
}

impl Servers {
    /// A way through `transport`; servers are told the name of this host.
    pub fn new(
        seams: Seams,
        transport: Arc<dyn Transport>,
        other: Arc<dyn OtherSource>,
        host_name: &str,
    ) -> Servers {
        Servers { seams, transport, other, host_name: host_name.into(), last: Arc::default() }
    }

    /// Time, tasks, chance.
    pub fn seams(&self) -> &Seams {
        &self.seams
    }

    /// The targets of a file system, by this map.
    fn targets(&self, mgs: &[Nid], map: Map) -> Arc<Directory> {
        let mut last = self.last.lock();
        if let Some((nids, directory)) = &*last
            && nids == mgs
            && directory.map().current().fs_id == map.fs_id
        {
            directory.map().offer(map);
            return directory.clone();
        }
        let introduction = Introduction::command(&self.host_name);
        let (transport, plain) = (self.transport.clone(), Arc::new(Plain));
        let made = Directory::with_map(&self.seams, transport, introduction, plain, mgs.to_vec(), map);
        *last = Some((mgs.to_vec(), made.clone()));
        made
    }

    /// A question to a target of a map.
    pub async fn ask<M: Message>(&self, map: &Map, target: TargetId, request: &M) -> Result<M::Resp> {
        self.ask_within(map, target, request, PATIENCE_MS).await
    }

    /// Asks a target of a map something that may take longer than usual: `patience_ms` at most.
    pub async fn ask_within<M: Message>(
        &self,
        map: &Map,
        target: TargetId,
        request: &M,
        patience_ms: u64,
    ) -> Result<M::Resp> {
        let mgs = map.target(TargetId::MGT).map_or(&[][..], |mgs| &mgs.nids);
        let targets = self.targets(mgs, map.clone());
        let unknown = || Fault::new(Code::UnknownTarget).subject(map.fs.target(target));
        let caller = targets.known(target).ok_or_else(unknown)?;
        let answer = caller.probe_within(request, patience_ms).await;
        let may_have_moved = |fault: &Fault| {
            matches!(
                fault.code,
                Code::StaleEpoch | Code::WrongTarget | Code::TargetDown | Code::TargetRemoved
            )
        };
        match answer {
            Err(fault) if may_have_moved(&fault) && targets.refetch(REFETCH_MS).await => {
                let caller = targets.known(target).ok_or_else(unknown)?;
                caller.probe_within(request, patience_ms).await
            }
            answer => answer,
        }
    }

    /// A question to an MGS, whatever file system it has.
    async fn ask_mgs<M: Message>(&self, place: &FsLocation, request: &M) -> Result<M::Resp> {
        let nid = self.active_mgs(place).await?;
        self.ask_one_mgs(&nid, request, PATIENCE_MS).await
    }

    /// Chooses, of several addresses, the one at which an MGS answers. All are asked at once, since a host
    /// that is dead is silent for a while; two of them may be names of one host, so only this question goes
    /// to all.
    async fn active_mgs(&self, place: &FsLocation) -> Result<Nid> {
        let mut nids = place.mgs.clone();
        nids.extend(self.other.mgs(place).into_iter().filter(|nid| !place.mgs.contains(nid)));
        if let [nid] = &nids[..] {
            return Ok(nid.clone());
        }
        let ask = async |nid: &Nid| {
            self.ask_one_mgs(nid, &TargetInfoReq {}, PATIENCE_MS).await.map(|_| nid.clone())
        };
        let mut asked: Vec<_> = nids.iter().map(|nid| Box::pin(ask(nid))).collect();
        let mut silent = Fault::new(Code::TargetDown);
        while !asked.is_empty() {
            let (answer, _, others) = select_all(asked).await;
            asked = others;
            match answer {
                Err(fault) if matches!(fault.code, Code::TargetDown | Code::NotLeading) => {
                    let shown = fault.subject.clone();
                    let whys = fault.why.into_iter().map(|why| format!("{shown}: {why}"));
                    silent = whys.fold(silent, Fault::why);
                }
                answer => return answer,
            }
        }
        let shown: Vec<String> = nids.iter().map(ToString::to_string).collect();
        Err(silent.what("no answer from").subject(shown.join(", ")))
    }

    async fn ask_one_mgs<M: Message>(&self, nid: &Nid, request: &M, patience_ms: u64) -> Result<M::Resp> {
        let introduction = Introduction::command(&self.host_name);
        let (transport, plain) = (self.transport.clone(), Arc::new(Plain));
        let any = "any".parse().map_err(|why: String| Fault::new(Code::Bug).why(why))?;
        let asked = Directory::new(&self.seams, transport, introduction, plain, vec![nid.clone()], any, 0);
        asked.mgs().probe_within(request, patience_ms).await
    }

    /// A question to the MGS of a file system.
    pub(crate) async fn ask_the_mgs<M: Message>(&self, place: &FsLocation, request: &M) -> Result<M::Resp> {
        self.ask_mgs(place, request).await.map_err(|f| no_mgs(place, f))
    }

    /// Asks the MGS something that may take longer than usual: `patience_ms` at most.
    pub(crate) async fn ask_the_mgs_within<M: Message>(
        &self,
        place: &FsLocation,
        request: &M,
        patience_ms: u64,
    ) -> Result<M::Resp> {
        let nid = self.active_mgs(place).await.map_err(|f| no_mgs(place, f))?;
        self.ask_one_mgs(&nid, request, patience_ms).await.map_err(|f| no_mgs(place, f))
    }

    /// The map of the file system: from its MGS or, when that does not answer, from the other source; then with the reason.
    pub async fn map(&self, place: &FsLocation) -> Result<(Map, Option<Fault>)> {
        match self.mgs_map(place).await {
            Ok(map) => Ok((map, None)),
            Err(fault) if fault.code == Code::NoMgs => match self.other_map(place).await {
                Some(map) => Ok((map, Some(fault))),
                None => Err(fault),
            },
            Err(fault) => Err(fault),
        }
    }

    /// The map of the file system, as the other source has it.
    pub async fn other_map(&self, place: &FsLocation) -> Option<Map> {
        self.other.map(place).await
    }

    /// The map of the file system, as its MGS has it.
    pub async fn mgs_map(&self, place: &FsLocation) -> Result<Map> {
        let fs = match &place.fs {
            Some(fs) => fs.clone(),
            None => self.only_fs(&place.mgs).await?,
        };
        let request = GetMapReq { fs, known_version: 0, wait_ms: 0 };
        let answer = self.ask_mgs(place, &request).await.map_err(|f| no_mgs(place, f))?;
        match answer.update {
            Some(MapUpdate::Whole(map)) => Ok(map),
            _ => Err(Fault::new(Code::NoSuchFs).subject(request.fs.to_string())),
        }
    }

    /// The name of the file system that an MGS keeps.
    async fn only_fs(&self, mgs: &[Nid]) -> Result<FsName> {
        let place = FsLocation { mgs: mgs.to_vec(), fs: None, dev: None };
        let info = self.ask_mgs(&place, &TargetInfoReq {}).await.map_err(|f| no_mgs(&place, f))?;
        let name = info.name.strip_suffix("-MGT0000").unwrap_or(&info.name).to_owned();
        name.parse().map_err(|why: String| Fault::new(Code::NoSuchFs).why(why))
    }

    /// Waits until the MDTs know a map, which they do at once unless they have lost the MGS; full names of those that do not.
    pub async fn until_known(&self, map: &Map) -> Vec<String> {
        let mut behind = Vec::new();
        for entry in map.targets.iter().filter(|t| t.id.role == Role::Mdt) {
            let info = self.info(map, entry).await;
            let known = info.map_or(0, |info| {
                info.counters
                    .iter()
                    .find(|(name, _)| name == "map_version")
                    .map_or(0, |(_, version)| *version)
            });
            if known < map.version {
                behind.push(map.fs.target(entry.id));
            }
        }
        behind
    }

    /// Changes a pool; returns the new map, and whether anything was changed.
    pub async fn change_pool(
        &self,
        place: &FsLocation,
        pool: &PoolName,
        change: PoolChange,
    ) -> Result<ChangePoolResp> {
        let fs = match &place.fs {
            Some(fs) => fs.clone(),
            None => self.only_fs(&place.mgs).await?,
        };
        let request = ChangePoolReq { fs, pool: pool.clone(), change };
        self.ask_mgs(place, &request).await.map_err(|f| no_mgs(place, f))
    }

    /// Raises the format level.
    pub async fn raise_level(&self, place: &FsLocation, level: FormatLevel) -> Result<RaiseLevelResp> {
        let fs = match &place.fs {
            Some(fs) => fs.clone(),
            None => self.only_fs(&place.mgs).await?,
        };
        self.ask_mgs(place, &RaiseLevelReq { fs, level }).await.map_err(|f| no_mgs(place, f))
    }

    /// Changes what an OST is used for.
    pub async fn change_target(
        &self,
        place: &FsLocation,
        ost: u16,
        change: TargetChange,
    ) -> Result<ChangeTargetResp> {
        let fs = match &place.fs {
            Some(fs) => fs.clone(),
            None => self.only_fs(&place.mgs).await?,
        };
        let request = ChangeTargetReq { fs, ost, change };
        self.ask_mgs(place, &request).await.map_err(|f| no_mgs(place, f))
    }

    /// Files that all MDTs have on an OST.
    pub async fn ost_use(&self, map: &Map, ost: u16) -> Result<Use> {
        let mut used = Use::default();
        for entry in map.targets.iter().filter(|t| t.id.role == Role::Mdt) {
            let mut after = None;
            loop {
                let page = self.ask(map, entry.id, &OstUseReq { ost, after }).await?;
                used.files += page.files;
                used.nameless += page.nameless;
                match page.next {
                    Some(_) if page.next > after => after = page.next,
                    _ => break,
                }
            }
        }
        Ok(used)
    }

    /// Whether a server answers at this address.
    pub(crate) async fn is_reached(&self, fs_id: u64, nid: &Nid) -> bool {
        let config = PeerConfig::new(fs_id, PeerKind::Tool, self.host_name.to_string());
        let (transport, seams) = (self.transport.clone(), self.seams.clone());
        let peer = Peer::new(transport, seams, vec![nid.clone()], config, Arc::new(NoNotifies));
        // A server that does not want us is reached, too.
        self.seams.timeout_ms(RAIL_MS, peer.wait_connected()).await.is_some()
    }

    /// Asks a target for its state and counters.
    pub async fn info(&self, map: &Map, entry: &TargetEntry) -> Result<TargetInfoResp> {
        self.ask(map, entry.id, &TargetInfoReq {}).await
    }
}

fn no_mgs(place: &FsLocation, fault: Fault) -> Fault {
    if fault.code != Code::TargetDown {
        return fault;
    }
    let next = match &place.dev {
        Some(dev) if dev.of_hosts => {
            format!("start it: brindle dev host start --dir {} mds1", dev.dir.display())
        }
        Some(dev) => format!("start it: brindle dev start --dir {} mgs", dev.dir.display()),
        None => "check that the MGS runs: systemctl status brindle-serve".to_owned(),
    };
    let subject = fault.subject.clone();
    let named = Fault::new(Code::NoMgs).what("no answer from the MGS at").subject(subject).next(next);
    fault.why.into_iter().fold(named, Fault::why)
}
