//! Connections between hosts in each mode, over real sockets: with friends, strangers and somebody on the way.

use std::sync::Arc;

use brindle_auth::{
    Authority, ClusterId, Credentials, HostKey, HostRole, Identity, Mode, Modes, Name, Roles,
};
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Nid, Result as FaultResult};
use brindle_wire::frame::{Frame, Header, Kind};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{CredentialSource, Proving, Security, TcpTransport};
use crate::NetError;
use crate::transport::{Caller, Connection, Transport};

const BULK: usize = 3 << 20;

struct Fixed(Arc<Credentials>);

impl CredentialSource for Fixed {
    fn current(&self) -> FaultResult<Arc<Credentials>> {
        Ok(self.0.clone())
    }
}

fn now_s(seams: &Seams) -> i64 {
    seams.wall().secs
}

fn identity(authority: &Authority, host: &str, role: HostRole, now_s: i64) -> Proving {
    let name = Name { cluster: authority.cluster(), host: host.into(), roles: Roles::of(&[role]) };
    let key = HostKey::generate().expect("random numbers");
    let certificate = authority.issue(&name, &key.public(), now_s).expect("issued");
    let identity = Identity::new(key, certificate, authority.certificate().to_vec()).expect("fits");
    Proving::Identity(Arc::new(Fixed(Arc::new(Credentials::new(identity).expect("prepared")))))
}

/// A network with a cluster of one server and one client.
struct Net {
    seams: Seams,
    authority: Authority,
    server: Proving,
    client: Proving,
}

impl Net {
    fn run<F: Future<Output = ()>>(test: impl FnOnce(Net) -> F) {
        let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        built.expect("runtime").block_on(async {
            let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
            let authority = Authority::new(ClusterId(7), now_s(&seams)).expect("made");
            let server = identity(&authority, "oss1", HostRole::Server, now_s(&seams));
            let client = identity(&authority, "c1", HostRole::Client, now_s(&seams));
            test(Net { seams, authority, server, client }).await;
        });
    }

    fn transport(&self, proving: &Proving, least: impl Into<Modes>) -> TcpTransport {
        let least = least.into();
        let security = Security {
            proving: proving.clone(),
            connects: least,
            accepts: least,
            admits_strangers: false,
            removed: Arc::default(),
        };
        TcpTransport::new(self.seams.clone()).over_tcp_only().secured(security)
    }

    /// Connects both ends. `between` gets the server's address and returns the address for the client.
    async fn connected(
        &self,
        server: TcpTransport,
        client: TcpTransport,
        between: impl AsyncFnOnce(Nid) -> Nid,
    ) -> (Result<Connection, NetError>, Result<Connection, NetError>) {
        let any = Nid { host: "127.0.0.1".to_owned(), port: 0, rail: 0 };
        let mut listener = server.listen(&any).await.expect("listens");
        let at = between(listener.local_nid()).await;
        tokio::join!(listener.accept(), client.connect(&at))
    }
}

fn frame(bulk_len: usize) -> Frame {
    let bulk: Vec<u8> = (0..bulk_len).map(|n| (n % 251) as u8).collect();
    let header = Header { kind: Kind::Request, ..Header::default() };
    Frame::new(header, Bytes::from_static(b"body")).with_bulk(vec![Bytes::from(bulk)])
}

/// Sends small and large frames both ways at once.
async fn talk(a: &mut Connection, b: &mut Connection) -> Result<(), NetError> {
    let sent = || vec![frame(0), frame(BULK), frame(9)];
    let (a_sent, b_sent, a_got, b_got) =
        tokio::join!(a.tx.send(sent()), b.tx.send(sent()), three(&mut a.rx), three(&mut b.rx));
    a_sent.and(b_sent).and(a_got).and(b_got)
}

async fn three(rx: &mut Box<dyn crate::FrameRx>) -> Result<(), NetError> {
    for wanted in [frame(0), frame(BULK), frame(9)] {
        let got = rx.recv().await?;
        assert_eq!(got.body, wanted.body);
        assert_eq!(got.bulk.concat(), wanted.bulk.concat());
    }
    Ok(())
}

fn code(outcome: Result<Connection, NetError>) -> Option<Code> {
    match outcome {
        Err(NetError::Bad { fault, .. }) => Some(fault.code),
        _ => None,
    }
}

#[test]
fn frames_arrive_in_every_mode_and_the_host_is_known() {
    Net::run(|net| async move {
        for mode in Mode::PROVEN {
            let (server, client) = (net.transport(&net.server, mode), net.transport(&net.client, Mode::Auth));
            let (accepted, made) = net.connected(server, client, async |at| at).await;
            let (mut accepted, mut made) = (accepted.expect("accepts"), made.expect("connects"));
            let Caller::Host { proof: Some(proof), .. } = accepted.caller.clone() else { panic!("no proof") };
            assert_eq!((proof.host.as_str(), proof.mode), ("c1", mode));
            talk(&mut accepted, &mut made).await.expect("all arrives");
        }
    });
}

#[test]
fn each_network_has_a_mode_of_its_own_at_both_ends() {
    Net::run(|net| async move {
        let modes = |text: &str| text.parse::<Modes>().expect("modes");
        let server = net.transport(&net.server, modes("privacy:tcp1=auth:tcp2=none"));
        let client = net.transport(&net.client, modes("auth:tcp1=integrity:tcp2=none"));
        let wanted = [Some(Mode::Privacy), Some(Mode::Integrity), None];
        for (rail, wanted) in wanted.into_iter().enumerate() {
            let any = Nid { host: "127.0.0.1".to_owned(), port: 0, rail: rail as u8 };
            let mut listener = server.listen(&any).await.expect("listens");
            let at = listener.local_nid();
            assert_eq!(at.rail, any.rail);
            let made = async {
                let mut made = client.connect(&at).await.expect("connects");
                if wanted.is_none() {
                    // Without a handshake the first frame comes first.
                    made.tx.send(vec![frame(0)]).await.expect("sent");
                }
                made
            };
            let (accepted, mut made) = tokio::join!(listener.accept(), made);
            let mut accepted = accepted.expect("accepts");
            let Caller::Host { proof, .. } = accepted.caller.clone() else { panic!("refused") };
            assert_eq!(proof.map(|proof| proof.mode), wanted);
            if wanted.is_none() {
                assert_eq!(accepted.rx.recv().await.expect("arrives").body, frame(0).body);
            }
            talk(&mut accepted, &mut made).await.expect("all arrives");
        }
    });
}

#[test]
fn whoever_proves_nothing_or_something_else_is_refused() {
    Net::run(|net| async move {
        let here = async |at| at;
        let server = || net.transport(&net.server, Mode::Auth);
        let plain = TcpTransport::new(net.seams.clone()).over_tcp_only();
        let any = Nid { host: "127.0.0.1".to_owned(), port: 0, rail: 0 };
        let mut listener = server().listen(&any).await.expect("listens");
        let mut made = plain.connect(&listener.local_nid()).await.expect("connects");
        made.tx.send(vec![frame(0)]).await.expect("a frame without a handshake");
        let accepted = listener.accept().await;
        let Caller::Refused(fault) = accepted.expect("a frame may come, to be refused").caller else {
            panic!("a stranger was let in")
        };
        assert_eq!(fault.code, Code::NotEnrolled);
        let other = Authority::new(ClusterId(7), now_s(&net.seams)).expect("made");
        let foreign = identity(&other, "c1", HostRole::Client, now_s(&net.seams));
        let (accepted, made) = net.connected(server(), net.transport(&foreign, Mode::Auth), here).await;
        assert_eq!(code(made), Some(Code::ForeignCertificate));
        assert!(code(accepted).is_some(), "and it is told of at the server");
        let posing = net.transport(&net.client, Mode::Auth);
        let (_, made) = net.connected(posing, net.transport(&net.client, Mode::Auth), here).await;
        assert_eq!(code(made), Some(Code::ForeignCertificate), "a client's certificate is no server's");
        let (cluster, authority) = (net.authority.cluster(), net.authority.fingerprint());
        let joining = net.transport(&Proving::Token { cluster, authority }, Mode::Privacy);
        let (accepted, _) = net.connected(server(), joining, here).await;
        assert_eq!(code(accepted), Some(Code::NotEnrolled), "a stranger, where nobody joins");
    });
}

#[test]
fn without_an_identity_root_of_this_machine_alone_is_let_in() {
    Net::run(|net| async move {
        let own = || TcpTransport::new(net.seams.clone()).over_tcp_only().secured(Security::own_host());
        let (accepted, _made) = net.connected(own(), own(), async |at| at).await;
        assert!(matches!(accepted.expect("accepts").caller, Caller::Refused(_)), "any user's port");
        if rustix::process::geteuid().is_root() {
            let (accepted, _made) = net.connected(own(), own().from_reserved_port(), async |at| at).await;
            assert!(matches!(accepted.expect("accepts").caller, Caller::Host { proof: None, .. }));
        }
    });
}

/// A change that somebody on the way makes to the bytes that the client sends.
#[derive(Clone, Copy, PartialEq)]
enum Meddling {
    /// Changes one byte behind the first million.
    Change,
    /// Ends the handshake as it should, and then sends other frames.
    Replace,
}

/// Passes bytes on between a client and the server at `to`, not quite honestly.
async fn meddle(to: Nid, how: Meddling) -> Nid {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.expect("accepts");
        let server = TcpStream::connect((to.host.as_str(), to.port)).await.expect("connects");
        let ((mut from, mut back), (mut answers, mut on)) = (client.into_split(), server.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
        let (mut passed, mut buffer) = (0_usize, vec![0; 64 << 10]);
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            let (before, bytes) = (passed, &mut buffer[..n]);
            passed += n;
            if how == Meddling::Change && before < 1_000_000 && passed >= 1_000_000 {
                bytes[n / 2] ^= 1;
            }
            // A record of TLS has its kind and its version in front; what binds frames to a handshake begins with any byte.
            let is_record = n > 2 && matches!(bytes[0], 20 | 22 | 23) && bytes[1] == 3;
            if how == Meddling::Replace && !is_record {
                bytes.fill(0);
            }
            if on.write_all(bytes).await.is_err() {
                break;
            }
        }
    });
    Nid { host: "127.0.0.1".to_owned(), port, rail: 0 }
}

#[test]
fn who_changes_a_byte_on_the_way_is_found_out() {
    Net::run(|net| async move {
        for mode in [Mode::Integrity, Mode::Privacy] {
            let (server, client) = (net.transport(&net.server, mode), net.transport(&net.client, mode));
            let between = async |at| meddle(at, Meddling::Change).await;
            let (accepted, made) = net.connected(server, client, between).await;
            let (mut accepted, mut made) = (accepted.expect("accepts"), made.expect("connects"));
            let sending = tokio::spawn(async move {
                // Ends with an error when the server hangs up.
                drop(made.tx.send(vec![frame(0), frame(BULK), frame(9)]).await);
                made
            });
            let found = three(&mut accepted.rx).await.expect_err("changed bytes were taken");
            // A byte of a length may have been it, too: then the bytes behind are no frame.
            assert!(matches!(found, NetError::Bad { .. }), "{mode}: {found}");
            drop(accepted);
            drop(sending.await);
        }
    });
}

#[test]
fn frames_that_are_not_those_of_the_handshake_are_refused_in_mode_auth() {
    Net::run(|net| async move {
        let (server, client) =
            (net.transport(&net.server, Mode::Auth), net.transport(&net.client, Mode::Auth));
        let between = async |at| meddle(at, Meddling::Replace).await;
        let (accepted, made) = net.connected(server, client, between).await;
        let (mut accepted, mut made) = (accepted.expect("accepts"), made.expect("connects"));
        made.tx.send(vec![frame(0)]).await.expect("sent");
        let refused = accepted.rx.recv().await.expect_err("refused");
        let is_bound = |fault: &Fault| fault.why[0].contains("has proven itself");
        assert!(matches!(&refused, NetError::Bad { fault, .. } if is_bound(fault)), "{refused}");
    });
}

#[test]
fn a_handshake_that_was_recorded_lets_nobody_in() {
    Net::run(|net| async move {
        let recorded = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = recorded.local_addr().expect("bound").port();
        let client = net.transport(&net.client, Mode::Auth);
        let going = tokio::spawn(async move {
            client.connect(&Nid { host: "127.0.0.1".to_owned(), port, rail: 0 }).await
        });
        let (mut stream, _) = recorded.accept().await.expect("accepts");
        let mut hello = vec![0; 2048];
        let n = stream.read(&mut hello).await.expect("reads");
        drop(stream);
        assert!(going.await.expect("ended").is_err());
        let server = net.transport(&net.server, Mode::Auth);
        let any = Nid { host: "127.0.0.1".to_owned(), port: 0, rail: 0 };
        let mut listener = server.listen(&any).await.expect("listens");
        let at = listener.local_nid();
        let mut replay = TcpStream::connect((at.host.as_str(), at.port)).await.expect("connects");
        replay.write_all(&hello[..n]).await.expect("sent");
        replay.write_all(&[22, 3, 3, 0, 1, 0]).await.expect("sent");
        assert!(
            code(listener.accept().await).is_some(),
            "the server answered a new question, and got an old answer"
        );
    });
}
