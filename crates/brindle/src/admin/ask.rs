//! Asking the servers of a cluster, in bounded time, and saying who did not answer and why.

use std::sync::Arc;

use brindle_client::control::{Answer, Request};
use brindle_net::peer::NoNotifies;
use brindle_net::{Peer, PeerConfig, TcpTransport, Transport};
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, FsName, Nid, PoolName, Result, Role, TargetId};
use brindle_wire::Message;
use brindle_wire::frame::{Frame, Header, decode_reply, encode_body};
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mds::ost_use::OstUseReq;
use brindle_wire::mds::session::{TargetInfoReq, TargetInfoResp};
use brindle_wire::mgs::{
    ChangePoolReq, ChangePoolResp, ChangeTargetReq, ChangeTargetResp, GetMapReq, PoolChange, TargetChange,
};
use brindle_wire::version::PeerKind;

use super::place::Place;
use crate::serve::host_name;
use crate::{control, mounts};

/// How long a command waits for a server.
const PATIENCE_MS: u64 = 3_000;
/// How long after the first failed attempt to connect it is taken for an answer.
const REFUSED_MS: u64 = 300;

/// A command's way to servers.
#[derive(Clone)]
pub struct Asker {
    seams: Seams,
    transport: Arc<dyn Transport>,
}

/// Files with a part on an OST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// All of them.
    pub files: u64,
    /// Of those, files without a name, which programs have open.
    pub nameless: u64,
}

impl Asker {
    /// Must be called on a tokio runtime.
    pub fn new() -> Asker {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        Asker { transport: Arc::new(TcpTransport::new(seams.clone()).from_reserved_port()), seams }
    }

    fn peer(&self, nids: &[Nid], fs_id: u64) -> Arc<Peer> {
        let config = PeerConfig::new(fs_id, PeerKind::Tool, host_name());
        Peer::new(self.transport.clone(), self.seams.clone(), nids.to_vec(), config, Arc::new(NoNotifies))
    }

    /// One question to whoever serves `target` at `nids`.
    pub async fn ask<M: Message>(
        &self,
        nids: &[Nid],
        fs_id: u64,
        target: TargetId,
        request: &M,
    ) -> Result<M::Resp> {
        let header = Header { target: Some(target), fs_id, ..Header::default() };
        self.send(nids, header, request).await
    }

    /// One question; the header says to whom.
    async fn send<M: Message>(&self, nids: &[Nid], mut header: Header, request: &M) -> Result<M::Resp> {
        header.op = M::OP as u16;
        let peer = self.peer(nids, header.fs_id);
        let asking = async { decode_reply(&peer.call(Frame::new(header, encode_body(request))).await?) };
        let answered = self.bounded(&peer, asking).await;
        peer.stop();
        answered.unwrap_or_else(|| Err(silent(&peer, nids)))
    }

    /// Runs `work` until the patience is over, or until it is clear that nobody listens.
    async fn bounded<T>(&self, peer: &Peer, work: impl Future<Output = T> + Send) -> Option<T> {
        let refused = async {
            loop {
                self.seams.sleep_ms(REFUSED_MS).await;
                let state = peer.state();
                if !state.connected && state.last_error.is_some() {
                    break;
                }
            }
        };
        let first = async {
            tokio::select! {
                biased;
                out = work => Some(out),
                () = refused => None,
            }
        };
        self.seams.timeout_ms(PATIENCE_MS, first).await.flatten()
    }

    /// The map of the file system: from its MGS or, when that does not answer, from a mount of it on this machine; then
    /// with the reason.
    pub async fn map_or_why(&self, place: &Place) -> Result<(Map, Option<Fault>)> {
        match self.mgs_map(place).await {
            Ok(map) => Ok((map, None)),
            Err(fault) if fault.code == Code::NoMgs => match self.mounted_map(place).await {
                Some(map) => Ok((map, Some(fault))),
                None => Err(fault),
            },
            Err(fault) => Err(fault),
        }
    }

    /// The same; says on standard error where it comes from if not from the MGS.
    pub async fn map(&self, place: &Place) -> Result<Map> {
        let (map, without_mgs) = self.map_or_why(place).await?;
        if let Some(fault) = without_mgs {
            eprintln!(
                "warning: {} {}; the targets are those that a mount here knows",
                fault.what, fault.subject
            );
        }
        Ok(map)
    }

    /// The map by which a mount of the file system goes, if its daemon answers.
    pub async fn mounted_map(&self, place: &Place) -> Option<Map> {
        for line in mounts::all().iter().filter(|m| m.fs_type == mounts::FUSE_TYPE && place.is_mounted_by(m))
        {
            let socket = control::socket(line.minor);
            let asking = brindle_client::control::ask(&socket, &Request::Map);
            if let Some(Ok(Answer::Map(map))) = self.seams.timeout_ms(PATIENCE_MS, asking).await {
                return Some(map);
            }
        }
        None
    }

    /// The map of the file system, as its MGS has it.
    pub async fn mgs_map(&self, place: &Place) -> Result<Map> {
        let fs = match &place.fs {
            Some(fs) => fs.clone(),
            None => self.only_fs(&place.mgs).await?,
        };
        let request = GetMapReq { fs, known_version: 0, wait_ms: 0 };
        let answer = self.ask(&place.mgs, 0, TargetId::MGT, &request).await.map_err(|f| no_mgs(place, f))?;
        answer.map.ok_or_else(|| Fault::new(Code::NoSuchFs).subject(request.fs.to_string()))
    }

    /// The name of the file system that an MGS keeps.
    async fn only_fs(&self, mgs: &[Nid]) -> Result<FsName> {
        let place = Place { mgs: mgs.to_vec(), fs: None, dev_dir: None };
        let info = self.ask(mgs, 0, TargetId::MGT, &TargetInfoReq {}).await.map_err(|f| no_mgs(&place, f))?;
        let name = info.name.strip_suffix("-MGT0000").unwrap_or(&info.name).to_owned();
        name.parse().map_err(|why: String| Fault::new(Code::NoSuchFs).why(why))
    }

    /// Waits until the MDTs know a map, which they do at once unless they have lost the MGS; full names of those that do not.
    pub async fn until_known(&self, map: &Map) -> Vec<String> {
        let mut behind = Vec::new();
        for entry in map.targets.iter().filter(|t| t.id.role == Role::Mdt) {
            let (target, fs_id, map_version) = (Some(entry.id), map.fs_id, map.version);
            let header = Header { target, fs_id, map_version, ..Header::default() };
            let info = self.send(&entry.nids, header, &TargetInfoReq {}).await;
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

    /// Changes a pool; the map as it is then, and whether anything was changed.
    pub async fn change_pool(
        &self,
        place: &Place,
        pool: &PoolName,
        change: PoolChange,
    ) -> Result<ChangePoolResp> {
        let fs = match &place.fs {
            Some(fs) => fs.clone(),
            None => self.only_fs(&place.mgs).await?,
        };
        let request = ChangePoolReq { fs, pool: pool.clone(), change };
        self.ask(&place.mgs, 0, TargetId::MGT, &request).await.map_err(|f| no_mgs(place, f))
    }

    /// Changes what an OST is used for.
    pub async fn change_target(
        &self,
        place: &Place,
        ost: u16,
        change: TargetChange,
    ) -> Result<ChangeTargetResp> {
        let fs = match &place.fs {
            Some(fs) => fs.clone(),
            None => self.only_fs(&place.mgs).await?,
        };
        let request = ChangeTargetReq { fs, ost, change };
        self.ask(&place.mgs, 0, TargetId::MGT, &request).await.map_err(|f| no_mgs(place, f))
    }

    /// What all MDTs have on an OST.
    pub async fn ost_use(&self, map: &Map, ost: u16) -> Result<Use> {
        let mut used = Use::default();
        for entry in map.targets.iter().filter(|t| t.id.role == Role::Mdt) {
            let mut after = None;
            loop {
                let header = Header {
                    target: Some(entry.id),
                    fs_id: map.fs_id,
                    map_version: map.version,
                    ..Header::default()
                };
                let page = self.send(&entry.nids, header, &OstUseReq { ost, after }).await?;
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

    /// How a target does.
    pub async fn info(&self, map: &Map, entry: &TargetEntry) -> Result<TargetInfoResp> {
        self.ask(&entry.nids, map.fs_id, entry.id, &TargetInfoReq {}).await
    }
}

/// Nobody answered: why, as far as the attempts to connect tell.
fn silent(peer: &Peer, nids: &[Nid]) -> Fault {
    let shown: Vec<String> = nids.iter().map(ToString::to_string).collect();
    let fault = Fault::new(Code::TargetDown).what("no answer from").subject(shown.join(", "));
    match peer.state().last_error {
        Some(last) if !last.why.is_empty() => last.why.into_iter().fold(fault, Fault::why),
        Some(last) => fault.why(last.what),
        None => fault.why(format!("it is connected, and does not answer for {} s", PATIENCE_MS / 1000)),
    }
}

fn no_mgs(place: &Place, fault: Fault) -> Fault {
    if fault.code != Code::TargetDown {
        return fault;
    }
    let next = match &place.dev_dir {
        Some(dir) => format!("start it: brindle dev start --dir {} mgs", dir.display()),
        None => "check that the MGS runs: systemctl status brindle-serve".to_owned(),
    };
    let subject = fault.subject.clone();
    let named = Fault::new(Code::NoMgs).what("no answer from the MGS at").subject(subject).next(next);
    fault.why.into_iter().fold(named, Fault::why)
}
