//! Extreme numbers in every message of an OST: each is answered, and none ends it.
//!
//! The tests of the store feed them to operations that only other members of a replica set may use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brindle_types::Role;
use brindle_wire::extremes::messages;
use brindle_wire::oss::destroy::DestroyObjectsReq;
use brindle_wire::oss::fence::FenceLayoutReq;
use brindle_wire::oss::grant::ReturnGrantReq;
use brindle_wire::oss::list::ListObjectsReq;
use brindle_wire::oss::punch::AllocateReq;
use brindle_wire::oss::replica::*;
use brindle_wire::oss::scrub::ScrubReq;
use brindle_wire::oss::seek::SeekReq;
use brindle_wire::oss::statfs::OstStatfsReq;
use brindle_wire::oss::truncate::TruncateObjectReq;

use super::*;

/// Longest time for an answer: a request whose task has panicked gets none.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Panics of this process.
static PANICS: AtomicUsize = AtomicUsize::new(0);

struct Rig<'a> {
    cluster: &'a Cluster,
    ost: &'a Handle,
    tried: Vec<Op>,
}

impl Rig<'_> {
    /// A peer that may ask for an operation, as far as a program can be one.
    fn asker(&self, client: &Client, op: Op) -> Arc<Peer> {
        let has = |kind| op.askers().has(kind);
        let serves = match () {
            () if has(PrincipalKind::Client) => return client.peer.clone(),
            () if has(PrincipalKind::Mdt) => return client.mdt.clone(),
            () if has(PrincipalKind::Ost) => Some(TargetId::ost(1)),
            () => None,
        };
        let kind = if serves.is_some() { PeerKind::Server } else { PeerKind::Tool };
        let config = PeerConfig { serves, ..PeerConfig::new(FS_ID, kind, "other") };
        let transport = Arc::new(TcpTransport::new(self.cluster.seams.clone()));
        let nids = vec![self.ost.local_nid().clone()];
        Peer::new(transport, self.cluster.seams.clone(), nids, config, Arc::new(NoNotifies))
    }

    /// Sends all messages of a type, from a session and about an object of their own.
    async fn feed<M: Message>(&mut self) {
        let number = M::OP as u64;
        let client = self.cluster.client(self.ost, number);
        let own = object(number, 0);
        client.write(own, 0, &[7; 10_000], (1, 1)).await.expect("an object");
        let peer = self.asker(&client, M::OP);
        let usual = move |names: &[&'static str]| match names {
            [.., "Ino"] => Some(number),
            [.., "ObjectId", "stripe"] => Some(0),
            [.., "source_ost"] => Some(0),
            _ => None,
        };
        let all = messages::<M>(&usual);
        assert!(!all.is_empty(), "{}: no message was made", M::OP.name());
        for (sequence, request) in (1..).zip(&all) {
            let before = PANICS.load(Ordering::SeqCst);
            let asked = peer.call(client.frame(request, (0, sequence), b"xyz"));
            let answer = tokio::time::timeout(ANSWER_LIMIT, asked).await;
            let what = || format!("{}: {:02x?}", M::OP.name(), encode_body(request));
            assert!(answer.is_ok(), "no answer to {}", what());
            assert_eq!(PANICS.load(Ordering::SeqCst), before, "a panic after {}", what());
        }
        self.tried.push(M::OP);
    }
}

macro_rules! feed_all {
    ($rig:ident: $($message:ty),* $(,)?) => {
        $($rig.feed::<$message>().await;)*
    };
}

#[test]
fn no_number_in_a_message_ends_an_ost() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(info);
    }));
    run(async {
        let cluster = Cluster::new().await;
        cluster.format(0).await;
        let ost = cluster.start(0).await;
        let mut rig = Rig { cluster: &cluster, ost: &ost, tried: Vec::new() };
        feed_all!(rig:
            ReadReq, WriteReq, PunchReq, AllocateReq, TruncateObjectReq, SyncObjectsReq, StatObjectsReq,
            DestroyObjectsReq, SeekReq, FenceLayoutReq, OstStatfsReq, CopyRangeReq, ListObjectsReq,
            ReturnGrantReq, ReplicaAttachReq, ReplicaLeaseReq, ReplicaChangeReq, ReplicaLookReq,
            ReplicaListReq, ReplicaReadReq, ReplicaVerifyReq, ReplicaScrubReq, ScrubReq,
            brindle_wire::job::OstUsageReq, brindle_wire::job::OstSharesReq,
            brindle_wire::log_level::OstLogLevelReq, brindle_wire::log_lines::OstLogLinesReq,
            brindle_wire::trace::OstTraceReq,
            // Fences sessions of the operations before.
            FenceSessionReq,
        );
        rig.tried.sort();
        let served = |op: &Op| op.is_served_by(Role::Ost) && *op != Op::TargetInfo;
        let all: Vec<Op> = Op::ALL.iter().copied().filter(served).collect();
        assert_eq!(rig.tried, all, "every operation is tried");
        // The OST still serves clients that were not fenced.
        let client = cluster.client(&ost, 7777);
        client.write(object(9999, 0), 0, b"alive", (0, 1)).await.expect("written");
        assert_eq!(client.read(object(9999, 0), 0, 10).await.expect("read"), &b"alive"[..]);
    });
}
