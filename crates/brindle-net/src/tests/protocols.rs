//! Two ends of different releases: what one of them says is what the other one hears.

use std::sync::Arc;

use brindle_stdx::BoxFuture;
use brindle_types::{Code, Nid};
use brindle_wire::earlier::{Protocols, trial};
use brindle_wire::frame::decode_reply;
use brindle_wire::mds::session::ReleaseCount;
use brindle_wire::version::{PROTOCOL_VERSION, PeerKind};

use super::{ECHO, FS_ID, Mirror, RECALL, Setup, eventually, request, run};
use crate::transport::{Connection, Listener};
use crate::{NetError, NotifyHandler, Peer, PeerConfig, SOFTWARE, ServerConfig, Transport};

/// A transport whose ends speak something else than this release.
struct Speaking {
    below: Arc<dyn Transport>,
    protocols: Protocols,
}

impl Transport for Speaking {
    fn connect(&self, nid: &Nid) -> BoxFuture<'static, Result<Connection, NetError>> {
        self.below.connect(nid)
    }

    fn listen(&self, nid: &Nid) -> BoxFuture<'static, Result<Box<dyn Listener>, NetError>> {
        self.below.listen(nid)
    }

    fn protocols(&self) -> Protocols {
        self.protocols
    }
}

fn peer(setup: &Setup, protocols: Protocols, handler: Arc<dyn NotifyHandler>) -> Arc<Peer> {
    let transport = Arc::new(Speaking { below: setup.transport.clone(), protocols });
    let nids = vec![setup.server.local_nid().clone()];
    let config = PeerConfig::new(FS_ID, PeerKind::Client, "test");
    Peer::new(transport, setup.seams.clone(), nids, config, handler)
}

async fn start(protocols: Protocols) -> Setup {
    Setup::start_speaking(ServerConfig::default(), "127.0.0.1:0".parse().expect("nid"), Some(protocols)).await
}

impl Setup {
    /// A server that speaks these versions; those of this release for `None`.
    pub(super) fn speaking(below: Arc<dyn Transport>, protocols: Option<Protocols>) -> Arc<dyn Transport> {
        match protocols {
            Some(protocols) => Arc::new(Speaking { below, protocols }),
            None => below,
        }
    }
}

#[test]
fn requests_answers_and_notices_are_understood_between_any_two_versions() {
    run(async || {
        for (asking, answering) in [(false, false), (false, true), (true, false), (true, true)] {
            let setup = start(trial::protocols(answering)).await;
            let peer = peer(&setup, trial::protocols(asking), Arc::new(Mirror));
            for op in [ECHO, RECALL] {
                let reply = peer.call(request(op, "words")).await.expect("answered");
                assert_eq!(&reply.body[..], b"words", "operation {op}, {asking} {answering}");
                reply.verify().expect("lengths and sums are right");
            }
            let both_new = !asking && !answering;
            let protocol = if both_new { PROTOCOL_VERSION } else { PROTOCOL_VERSION - 1 };
            let link = peer.wait_connected().await.expect("connected");
            assert_eq!(link.hello.version, protocol);
            let release = ReleaseCount { software: SOFTWARE.to_owned(), protocol, connections: 1 };
            assert_eq!(setup.server.releases(), [release]);
            peer.stop();
            eventually(|| setup.server.releases().is_empty()).await;
        }
    });
}

#[test]
fn bodies_of_the_earlier_version_are_written_in_its_form() {
    run(async || {
        // One end translates; the other one has no changes to translate in this version.
        let plain = Protocols { changes: &[], ..trial::protocols(true) };
        let setup = start(trial::protocols(false)).await;
        let not_marked = peer(&setup, plain, Arc::new(Mirror));
        let refused = not_marked.call(request(ECHO, "words")).await.expect("an answer");
        assert_eq!(decode_reply::<()>(&refused).expect_err("refused").code, Code::BadFrame);
        let setup = start(plain).await;
        let marked = peer(&setup, trial::protocols(true), Arc::new(Mirror));
        let refused = marked.call(request(ECHO, "words")).await.expect("an answer");
        assert_eq!(&refused.body[..], b"words", "the mark is on it both ways");
        let link = marked.wait_connected().await.expect("connected");
        assert_eq!(link.hello.version, PROTOCOL_VERSION - 1);
    });
}

#[test]
fn what_the_earlier_version_cannot_say_is_refused_and_never_sent() {
    use brindle_wire::earlier::{Change, Part};
    const SPEECHLESS: &[Change] = &[Change {
        since: PROTOCOL_VERSION,
        op: None,
        part: Part::Request,
        down: |_| Ok(None),
        up: |_| Ok(None),
        samples: Vec::new,
    }];
    run(async || {
        let setup = start(trial::protocols(true)).await;
        let speechless = Protocols { changes: SPEECHLESS, ..trial::protocols(false) };
        let peer = peer(&setup, speechless, Arc::new(Mirror));
        let refused = peer.call(request(ECHO, "words")).await.expect("an answer of its own");
        let fault = decode_reply::<()>(&refused).expect_err("refused");
        assert_eq!(fault.code, Code::VersionMismatch);
        assert!(fault.to_string().contains("nothing was changed"), "{fault}");
        assert_eq!(setup.server.stats().requests, 0);
    });
}
