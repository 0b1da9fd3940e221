//! Handshakes of TCP connections, and the protection of frames after them.
//!
//! | mode | behind the handshake |
//! |---|---|
//! | `none` | no handshake; a frame is the first thing on the connection |
//! | `auth` | sixteen bytes in each direction that only the two sides of the handshake know, then plain frames |
//! | `integrity` | frames with a keyed checksum each ([`super::keyed`]) |
//! | `privacy` | frames inside TLS ([`super::tls`]) |
//!
//! The first byte tells a handshake from a frame. The accepting side ends the handshake with one byte inside TLS ([`ACCEPTED`]), so the
//! other side hears of a refused certificate before it sends anything. Neither side sends more inside TLS in modes below `privacy`, and TLS
//! is read record by record, so plain bytes are never taken for TLS.

use std::io::{Read, Write};
use std::sync::Arc;

use brindle_auth::{ClusterId, Credentials, Mode, Modes, Pinned, proof_of, refusal};
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Nid, Result as FaultResult};
use brindle_wire::frame::MAGIC;
use rustls::Connection as Tls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::keyed::{FrameKey, KEY_BYTES};
use super::{read, tls, write};
use crate::transport::{Caller, Connection};
use crate::{NetError, RemovedKeys};

/// Longest time of a handshake.
pub const HANDSHAKE_TIMEOUT_MS: u64 = 5_000;
/// The accepting side's last word of a handshake.
const ACCEPTED: u8 = 1;
/// First byte of a TLS record with a handshake in it.
const HANDSHAKE_RECORD: u8 = 22;
const RECORD_HEADER_BYTES: usize = 5;
/// Longest TLS record (RFC 8446, section 5.2), without its header.
const RECORD_BYTES_MAX: usize = (16 << 10) + 256;
/// Bytes that bind plain frames to the handshake in front of them.
pub(super) const BINDING_BYTES: usize = 16;

/// Labels under which secrets of a handshake are derived (RFC 8446, section 7.5): those of the connecting and of the accepting side.
const LABELS: [&[u8]; 2] = [b"EXPORTER-brindle-connecting", b"EXPORTER-brindle-accepting"];

/// Source of an identity. The identity changes while a process runs: certificates are renewed.
pub trait CredentialSource: Send + Sync {
    /// The identity as it is now.
    fn current(&self) -> FaultResult<Arc<Credentials>>;
}

/// Proof that a process gives of itself.
#[derive(Clone)]
pub enum Proving {
    /// No proof: the process has no identity.
    Nothing,
    /// Proof by key and certificate that the process runs on a certain host.
    Identity(Arc<dyn CredentialSource>),
    /// No proof yet, but the process knows the authority of the cluster that it joins.
    Token {
        /// The cluster.
        cluster: ClusterId,
        /// SHA-256 of the authority's certificate.
        authority: [u8; 32],
    },
}

/// Proof that a process gives to others, and asks of them.
#[derive(Clone)]
pub struct Security {
    /// Proof that the process gives.
    pub proving: Proving,
    /// The weakest mode in which it connects, in each network; without an identity it connects in `none`.
    pub connects: Modes,
    /// The weakest mode that the process accepts, in each network. Without an identity nothing but root of this machine is accepted, unless
    /// this is `none`.
    pub accepts: Modes,
    /// Whether hosts without a certificate may connect, to join.
    pub admits_strangers: bool,
    /// Hosts that are let in no more.
    pub removed: Arc<RemovedKeys>,
}

impl Security {
    /// Asks for nothing and proves nothing.
    pub fn none() -> Security {
        let (connects, accepts) = (Mode::None.into(), Mode::None.into());
        let removed = Arc::default();
        Security { proving: Proving::Nothing, connects, accepts, admits_strangers: false, removed }
    }

    /// Connects from this host alone: no identity, and none asked for, but root's.
    pub fn own_host() -> Security {
        Security { accepts: Mode::Auth.into(), ..Security::none() }
    }

    /// Makes a connection out of a stream that this side has opened.
    pub(super) async fn connect(
        &self,
        mut stream: TcpStream,
        nid: Nid,
        seams: &Seams,
    ) -> Result<Connection, NetError> {
        // Before the handshake: its small records would wait for acknowledgements, 40 ms each.
        super::set_options(&stream)?;
        let least = self.connects.of(nid.rail);
        let session = match &self.proving {
            Proving::Nothing => return plain(stream, nid, Caller::Known, seams),
            Proving::Identity(_) if least == Mode::None => {
                return plain(stream, nid, Caller::Known, seams);
            }
            Proving::Identity(source) => source.current().and_then(|c| c.connecting(least)),
            Proving::Token { cluster, authority } => Pinned::connecting(*cluster, *authority),
        };
        let mut tls = Tls::from(session.map_err(NetError::bad)?);
        let shaking = async {
            shake(&mut stream, &mut tls).await?;
            until_accepted(&mut stream, &mut tls).await
        };
        seams.timeout_ms(HANDSHAKE_TIMEOUT_MS, shaking).await.ok_or(NetError::TimedOut)??;
        if let Some(proof) = proof_of(&tls).map_err(NetError::bad)? {
            self.removed.check(&proof).map_err(NetError::bad)?;
        }
        let mode = tls.alpn_protocol().and_then(Mode::of_protocol).ok_or_else(no_mode)?;
        protected(stream, tls, (mode, 0), (nid, Caller::Known), seams)
    }

    /// Makes a connection out of a stream that somebody else has opened.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        (peer, port): (Nid, u16),
        is_loopback: bool,
        seams: &Seams,
    ) -> Result<Connection, NetError> {
        super::set_options(&stream)?;
        let Proving::Identity(source) = &self.proving else {
            let caller = Caller::Host { port, proof: None };
            let is_own_root = is_loopback && caller.is_no_administrator().is_none();
            let caller = if self.accepts.of(peer.rail) == Mode::None || is_own_root {
                caller
            } else {
                not_proven(&peer, self)
            };
            return plain(stream, peer, caller, seams);
        };
        let accepting = self.shake_hands(source, stream, (peer, port), seams);
        seams.timeout_ms(HANDSHAKE_TIMEOUT_MS, accepting).await.ok_or(NetError::TimedOut)?
    }

    async fn shake_hands(
        &self,
        source: &Arc<dyn CredentialSource>,
        mut stream: TcpStream,
        (peer, port): (Nid, u16),
        seams: &Seams,
    ) -> Result<Connection, NetError> {
        let mut first = [0; 1];
        if stream.peek(&mut first).await? == 0 {
            return Err(NetError::Closed);
        }
        if first[0] != HANDSHAKE_RECORD {
            // The first byte begins a frame: a caller that is refused learns it in the answer.
            let caller = match self.accepts.of(peer.rail) {
                Mode::None => Caller::Host { port, proof: None },
                _ => not_proven(&peer, self),
            };
            return plain(stream, peer, caller, seams);
        }
        let about = |fault: Fault| NetError::bad(fault.subject(peer.to_string()));
        let least = self.accepts.of(peer.rail).max(Mode::Auth);
        let session = source.current().and_then(|c| c.accepting(least, self.admits_strangers));
        let mut tls = Tls::from(session.map_err(about)?);
        shake(&mut stream, &mut tls).await.map_err(|e| named(e, &peer))?;
        let mode = tls.alpn_protocol().and_then(Mode::of_protocol).ok_or_else(no_mode)?;
        let caller = match proof_of(&tls).map_err(about)? {
            // A removed host hears so in the answer to the hello.
            Some(proof) => match self.removed.check(&proof) {
                Ok(()) => Caller::Host { port, proof: Some(Arc::new(proof)) },
                Err(fault) => Caller::Refused(Box::new(fault)),
            },
            None if mode == Mode::Privacy => Caller::Stranger,
            None => return Err(about(Fault::new(Code::NotEnrolled))),
        };
        tls.writer().write_all(&[ACCEPTED])?;
        send(&mut stream, &mut tls).await?;
        protected(stream, tls, (mode, 1), (peer, caller), seams)
    }

    /// Whether accepting takes time: the other side has to say something first.
    pub(super) fn takes_time(&self) -> bool {
        matches!(self.proving, Proving::Identity(_))
    }
}

/// A connection without a handshake from somebody who has to make one.
fn not_proven(peer: &Nid, security: &Security) -> Caller {
    let fault = Fault::new(Code::NotEnrolled)
        .what("refused: nothing proves who is calling from")
        .subject(peer.to_string());
    let fault = match security.proving {
        Proving::Identity(_) => fault
            .why(format!("this server asks for {}, or a stronger mode", security.accepts.of(peer.rail)))
            .next("name the file of an identity: BRINDLE_IDENTITY=FILE, or the option identity"),
        _ => fault
            .why("this server belongs to no cluster: it answers root of its own host only")
            .next("run the command as root of that host"),
    };
    Caller::Refused(Box::new(fault.data("nothing was changed")))
}

fn no_mode() -> NetError {
    NetError::bad(Fault::new(Code::Insecure).why("the other side did not say how frames are protected"))
}

fn named(e: NetError, peer: &Nid) -> NetError {
    match e {
        NetError::Bad { fault, header } => {
            NetError::Bad { fault: Box::new(fault.subject(peer.to_string())), header }
        }
        other => other,
    }
}

/// Exchanges records until this side has nothing more to wait for.
async fn shake(stream: &mut TcpStream, tls: &mut Tls) -> Result<(), NetError> {
    loop {
        send(stream, tls).await?;
        if !tls.is_handshaking() {
            return Ok(());
        }
        receive(stream, tls).await?;
    }
}

async fn until_accepted(stream: &mut TcpStream, tls: &mut Tls) -> Result<(), NetError> {
    let mut word = [0; 1];
    loop {
        match tls.reader().read(&mut word) {
            Ok(1) if word[0] == ACCEPTED => return Ok(()),
            Ok(_) => return Err(NetError::Closed),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => receive(stream, tls).await?,
            Err(e) => return Err(e.into()),
        }
    }
}

async fn send(stream: &mut TcpStream, tls: &mut Tls) -> Result<(), NetError> {
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes)?;
    }
    Ok(stream.write_all(&bytes).await?)
}

/// Reads one record, and nothing behind it.
async fn receive(stream: &mut TcpStream, tls: &mut Tls) -> Result<(), NetError> {
    let mut record = vec![0; RECORD_HEADER_BYTES];
    stream.read_exact(&mut record).await?;
    if record[..4] == MAGIC.to_le_bytes() || record[..4] == MAGIC.to_be_bytes() {
        return Err(NetError::bad(
            Fault::new(Code::Insecure)
                .what("the server does not prove who it is")
                .why("it answers in plain frames: it runs with --security none"),
        ));
    }
    let len = usize::from(u16::from_be_bytes([record[3], record[4]]));
    if len > RECORD_BYTES_MAX {
        return Err(NetError::bad(Fault::new(Code::BadMagic).why("what came is no TLS record")));
    }
    record.resize(RECORD_HEADER_BYTES + len, 0);
    stream.read_exact(&mut record[RECORD_HEADER_BYTES..]).await?;
    let mut rest = &record[..];
    while !rest.is_empty() {
        tls.read_tls(&mut rest)?;
        if let Err(e) = tls.process_new_packets() {
            // An alert tells the other side the reason.
            drop(send(stream, tls).await);
            return Err(NetError::bad(refusal(&e)));
        }
    }
    Ok(())
}

/// The halves of a connection without protection.
pub(super) fn plain(
    stream: TcpStream,
    peer: Nid,
    caller: Caller,
    seams: &Seams,
) -> Result<Connection, NetError> {
    let (read_half, write_half) = stream.into_split();
    let tx = Box::new(write::TcpTx::new(write_half, None, None));
    let rx = Box::new(read::TcpRx::new(read_half, seams.clone(), Default::default()));
    Ok(Connection { peer, caller, tx, rx, delivery: None })
}

/// The halves of a connection behind a handshake; `side` is 0 for the connecting one.
fn protected(
    stream: TcpStream,
    tls: Tls,
    (mode, side): (Mode, usize),
    (peer, caller): (Nid, Caller),
    seams: &Seams,
) -> Result<Connection, NetError> {
    let (read_half, write_half) = stream.into_split();
    if mode == Mode::Privacy {
        let (read_half, write_half) = tls::halves(tls, read_half, write_half);
        let tx = Box::new(write::TcpTx::new(write_half, None, None));
        let rx = Box::new(read::TcpRx::new(read_half, seams.clone(), Default::default()));
        return Ok(Connection { peer, caller, tx, rx, delivery: None });
    }
    let secret = |side: usize| {
        let exported = tls.export_keying_material([0; KEY_BYTES], LABELS[side], Some(mode.name().as_bytes()));
        exported.map_err(|e| NetError::bad(Fault::new(Code::Bug).why(e.to_string())))
    };
    let (own, theirs) = (secret(side)?, secret(1 - side)?);
    let tx = write::TcpTx::new(write_half, None, None);
    let rx = read::TcpRx::new(read_half, seams.clone(), Default::default());
    let (tx, rx) = match mode {
        Mode::Integrity => (tx.keyed(FrameKey::new(own)), rx.keyed(FrameKey::new(theirs))),
        _ => (tx.bound(&own[..BINDING_BYTES]), rx.bound(&theirs[..BINDING_BYTES])),
    };
    Ok(Connection { peer, caller, tx: Box::new(tx), rx: Box::new(rx), delivery: None })
}
