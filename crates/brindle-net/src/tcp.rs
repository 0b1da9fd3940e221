//! [`Transport`] over TCP, with tokio, and over local sockets within a machine ([`local`]). [`security`] says who is at the other end.
//! Frames are read through a small buffer. Bulk goes from the socket straight into an aligned buffer, and from its memory to the socket
//! with `writev`.
//!
//! Chosen by the binary only. Invariant: a peer that vanished, or stopped in the middle of a frame, loses its
//! connection within a bounded time, and never holds more memory than one frame.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use brindle_stdx::{BoxFuture, Seams};
use brindle_types::Nid;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::transport::{Connection, Listener, Transport};
use crate::{NetError, RemovedKeys};
use brindle_auth::Mode;

mod delivery;
mod halves;
mod keyed;
mod local;
mod read;
mod reserved;
pub mod security;
mod shared_memory;
#[cfg(test)]
mod tests;
mod tls;
mod write;

pub use security::{CredentialSource, Proving, Security};

/// Longest time to establish a connection.
pub const CONNECT_TIMEOUT_MS: u64 = 3_000;
/// Longest time that a peer may stop in the middle of a frame.
pub const FRAME_STALL_MS: u64 = 30_000;
/// A silent connection is probed after this.
const KEEPALIVE_IDLE_S: u64 = 4;
/// Time between two probes.
const KEEPALIVE_INTERVAL_S: u64 = 2;
/// Probes without an answer after which the connection is dead.
const KEEPALIVE_PROBES: u32 = 3;
/// A connection whose data nobody acknowledges, or reads, is dead after this.
const USER_TIMEOUT_S: u64 = 15;

/// Handshakes that may be under way at one listener; further connections wait in the kernel.
const HANDSHAKES_MAX: usize = 256;

/// Real connections.
pub struct TcpTransport {
    seams: Seams,
    local: bool,
    reserved_port: bool,
    security: Security,
}

impl TcpTransport {
    /// Must be used on a tokio runtime with I/O and time. Proves nothing and asks for nothing over TCP ([`Security::none`]).
    pub fn new(seams: Seams) -> TcpTransport {
        TcpTransport { seams, local: true, reserved_port: false, security: Security::none() }
    }

    /// Proofs that connections over TCP give and ask for. Local sockets tell by themselves who is at the other end.
    pub fn secured(self, security: Security) -> TcpTransport {
        TcpTransport { security, ..self }
    }

    /// Uses TCP also within a machine.
    pub fn over_tcp_only(self) -> TcpTransport {
        TcpTransport { local: false, ..self }
    }

    /// Calls from a port that only root may use, where this process may: so a server knows an administrator's command.
    pub fn from_reserved_port(self) -> TcpTransport {
        TcpTransport { reserved_port: true, ..self }
    }
}

impl Transport for TcpTransport {
    fn connect(&self, nid: &Nid) -> BoxFuture<'static, Result<Connection, NetError>> {
        let (seams, nid, local) = (self.seams.clone(), nid.clone(), self.local);
        let (reserved_port, security) = (self.reserved_port, self.security.clone());
        Box::pin(async move {
            let connecting = async {
                let found = tokio::net::lookup_host((nid.host.as_str(), nid.port)).await?;
                let addresses: Vec<SocketAddr> = found.collect();
                let mut near = addresses.iter().filter(|_| local);
                if let Some(stream) = near.find_map(|address| local::connect(*address)) {
                    return Ok(Reached::Local(stream));
                }
                let stream = match reserved_port {
                    true => reserved::connect(&addresses).await?,
                    false => TcpStream::connect(&addresses[..]).await?,
                };
                Ok(Reached::Tcp(stream))
            };
            match seams.timeout_ms(CONNECT_TIMEOUT_MS, connecting).await.ok_or(NetError::TimedOut)? {
                Ok(Reached::Local(stream)) => local::connection(stream, nid, &seams),
                Ok(Reached::Tcp(stream)) => {
                    let delivery = delivery::of(&stream);
                    Ok(Connection { delivery, ..security.connect(stream, nid, &seams).await? })
                }
                Err(e) => Err(e),
            }
        })
    }

    fn removed_keys(&self) -> Option<Arc<RemovedKeys>> {
        Some(self.security.removed.clone())
    }

    fn accepts_anybody(&self) -> bool {
        self.security.accepts.weakest() == Mode::None
    }

    fn listen(&self, nid: &Nid) -> BoxFuture<'static, Result<Box<dyn Listener>, NetError>> {
        let (seams, nid, local) = (self.seams.clone(), nid.clone(), self.local);
        let security = self.security.clone();
        Box::pin(async move {
            let listener = TcpListener::bind((nid.host.as_str(), nid.port)).await?;
            let address = listener.local_addr()?;
            let beside = if local { local::listen(address) } else { None };
            let local = Nid { port: address.port(), ..nid };
            let shaken = mpsc::channel(HANDSHAKES_MAX);
            let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
            let acceptor =
                TcpAcceptor { listener, beside, address, local, seams, security, handshakes, shaken };
            Ok(Box::new(acceptor) as Box<dyn Listener>)
        })
    }
}

/// A stream to a server.
enum Reached {
    Local(UnixStream),
    Tcp(TcpStream),
}

type Shaken = Result<Connection, NetError>;

struct TcpAcceptor {
    listener: TcpListener,
    /// Listener for clients of this machine.
    beside: Option<UnixListener>,
    address: SocketAddr,
    local: Nid,
    seams: Seams,
    security: Security,
    /// Room for handshakes that are under way.
    handshakes: Arc<Semaphore>,
    /// Channel for finished handshakes.
    shaken: (mpsc::Sender<Shaken>, mpsc::Receiver<Shaken>),
}

impl Listener for TcpAcceptor {
    fn local_nid(&self) -> Nid {
        self.local.clone()
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Connection, NetError>> {
        Box::pin(async move {
            loop {
                if shared_memory::cannot_look() {
                    // Close the local socket: local clients then come over TCP.
                    self.beside = None;
                }
                let beside = async {
                    match &self.beside {
                        Some(listener) => listener.accept().await,
                        None => std::future::pending().await,
                    }
                };
                let accepted = async {
                    let room = self.handshakes.clone().acquire_owned().await.expect("it is never closed");
                    self.listener.accept().await.map(|accepted| (accepted, room))
                };
                let made = tokio::select! {
                    accepted = accepted => {
                        let (accepted, room) = accepted?;
                        match self.begin(accepted, room).await {
                            Some(made) => made,
                            None => continue,
                        }
                    }
                    accepted = beside => {
                        if shared_memory::cannot_look() {
                            continue;
                        }
                        let peer = nid_of(local::client_of(self.address), self.local.rail);
                        local::connection(accepted?.0, peer, &self.seams)
                    }
                    // The channel always has a sender: this side keeps one.
                    Some(made) = self.shaken.1.recv() => made,
                };
                // A connection that is gone before it is one is nobody's error; one that is refused is told of.
                if let Ok(_) | Err(NetError::Bad { .. }) = made {
                    return made;
                }
            }
        })
    }
}

impl TcpAcceptor {
    /// The connection, or nothing while its handshake goes on.
    async fn begin(&self, accepted: (TcpStream, SocketAddr), room: OwnedSemaphorePermit) -> Option<Shaken> {
        let (stream, address) = accepted;
        let peer = (nid_of(address, self.local.rail), address.port());
        let (security, seams, ended) = (self.security.clone(), self.seams.clone(), self.shaken.0.clone());
        let is_loopback = address.ip().to_canonical().is_loopback();
        if !security.takes_time() {
            return Some(security.accept(stream, peer, is_loopback, &seams).await);
        }
        self.seams.spawn("tcp.handshake", async move {
            let made = security.accept(stream, peer, is_loopback, &seams).await;
            // The acceptor may have gone.
            drop(ended.send(made).await);
            drop(room);
        });
        None
    }
}

fn nid_of(address: SocketAddr, rail: u8) -> Nid {
    Nid { host: address.ip().to_string(), port: address.port(), rail }
}

/// Sets the options of a new connection. Buffer sizes are left to the kernel, whose automatic sizes reach further
/// than what a process may set.
fn set_options(stream: &TcpStream) -> Result<(), NetError> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(KEEPALIVE_IDLE_S))
        .with_interval(Duration::from_secs(KEEPALIVE_INTERVAL_S))
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(USER_TIMEOUT_S)))?;
    Ok(())
}
