//! Callers that may not do what they ask for: an MDT that was replaced, a mount that makes requests of servers, a host that takes the
//! session of another.
//!
//! [`try_all`] runs once at the end of each seed, before the last checks, so that the checks also find harm that was done. Property:
//! every request is refused, with a code that says that the caller may not.

use std::sync::Arc;

use brindle_client::Client;
use brindle_targets::{Directory, Identity, Introduction, Plain};
use brindle_types::{Code, Fault, ObjectId, Pair, SessionId, TargetId};
use brindle_wire::Message;
use brindle_wire::mds::session::{SessionCloseReq, SessionOpenReq};
use brindle_wire::mgs::{ChangeTargetReq, HeartbeatReq, TargetChange};
use brindle_wire::oss::destroy::DestroyObjectsReq;
use brindle_wire::oss::fence::FenceSessionReq;
use brindle_wire::oss::truncate::TruncateObjectReq;

use crate::cluster::{SimCluster, fs_name, nid};
use crate::history::History;

/// Host that the strangers call from.
const HOST: &str = "stranger";
/// Objects of each OST that they go for.
const OBJECTS: usize = 4;
/// Longest wait for one answer.
const ANSWER_MS: u64 = 20_000;
/// Term before the first one of every MDT.
const OLD_TERM: Pair = Pair { term: 0, counter: 1 };

/// Lets strangers try to do harm to a cluster that is up, with these mounts.
pub async fn try_all(cluster: &SimCluster, clients: &[Arc<Client>], history: &History) {
    let mount = Stranger::new(cluster, history, Introduction::client(HOST)).await;
    let deposed = Stranger::new(cluster, history, Introduction::server(HOST, TargetId::mdt(0))).await;
    let nobody = Identity::default();
    let old = Identity { session: SessionId::of_mdt(0), epoch: OLD_TERM };
    for (index, name) in (0..).zip(cluster.osts()) {
        let ost = TargetId::ost(index);
        let objects = cluster.objects(&name, OBJECTS).await;
        let destroy = DestroyObjectsReq { objects: objects.clone() };
        let fence = FenceSessionReq { session: SessionId(1), epoch: Pair { term: u32::MAX, counter: 1 } };
        deposed.try_to("a replaced MDT destroys objects", ost, &destroy, old).await;
        deposed.try_to("a replaced MDT fences a session", ost, &fence, old).await;
        mount.try_to("a mount destroys objects", ost, &destroy, nobody).await;
        mount.try_to("a mount fences a session", ost, &fence, old).await;
        if let Some(object) = objects.first() {
            mount.try_to("a mount cuts an object", ost, &cut(*object), nobody).await;
        }
    }
    let mdt = TargetId::mdt(0);
    for client in clients {
        for resume in [true, false] {
            let (client_uuid, host, mounted) = (client.uuid(), client.config().host.clone(), "/mnt".into());
            let open = SessionOpenReq { client_uuid, host, mount: mounted, resume };
            mount.try_to("a host opens another one's session", mdt, &open, client.identity()).await;
        }
        mount.try_to("a host ends another one's session", mdt, &SessionCloseReq {}, client.identity()).await;
    }
    let change = ChangeTargetReq { fs: fs_name(), ost: 0, change: TargetChange::Drain };
    mount.try_to("a mount drains an OST", TargetId::MGT, &change, nobody).await;
    let beat = HeartbeatReq { fs: fs_name(), target: TargetId::ost(0), uuid: [0; 16], epoch: 1 };
    deposed.try_to("an MDT speaks for an OST", TargetId::MGT, &beat, nobody).await;
}

fn cut(object: ObjectId) -> TruncateObjectReq {
    let truncate_epoch = Pair { term: u32::MAX, counter: 1 };
    TruncateObjectReq { object, len_bytes: 0, truncate_epoch, make: false, must_exist: false }
}

/// A caller without rights.
struct Stranger {
    targets: Arc<Directory>,
    history: History,
}

impl Stranger {
    async fn new(cluster: &SimCluster, history: &History, introduction: Introduction) -> Stranger {
        let node = cluster.world().node(HOST);
        let (transport, plain) = (node.transport.clone(), Arc::new(Plain));
        let mgs = vec![nid("mgs")];
        let targets = Directory::new(&node.seams, transport, introduction, plain, mgs, fs_name(), 0);
        if let Err(fault) = targets.map().fetch().await {
            history.violation(format!("I6: a stranger is not told the map: {fault:?}"));
        }
        Stranger { targets, history: history.clone() }
    }

    async fn try_to<M: Message>(&self, what: &str, target: TargetId, request: &M, identity: Identity) {
        let asking = async { self.targets.caller(target).await?.once(request, identity).await };
        let refusal = match self.targets.seams().timeout_ms(ANSWER_MS, asking).await {
            Some(Ok(_)) => None,
            Some(Err(fault)) => Some(fault),
            None => Some(Fault::new(Code::Disconnected)),
        };
        let is_refused =
            |fault: &Fault| matches!(fault.code, Code::NotForCaller | Code::NeedsRoot | Code::Fenced);
        if !refusal.as_ref().is_some_and(is_refused) {
            self.history.violation(format!("a stranger was not refused: {what} at {target}: {refusal:?}"));
        }
    }
}
