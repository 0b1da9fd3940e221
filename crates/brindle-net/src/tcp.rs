//! [`Transport`] over TCP, with tokio, and over local sockets within a machine ([`local`]). Frames are read through a small buffer; bulk goes from the socket straight
//! into an aligned buffer, and from where it lies to the socket with `writev`.
//!
//! Chosen by the binary only. Invariant: a peer that vanished, or stopped in the middle of a frame, loses its
//! connection within a bounded time, and never holds more memory than one frame.

use std::net::SocketAddr;
use std::time::Duration;

use brindle_stdx::{BoxFuture, Seams};
use brindle_types::Nid;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::NetError;
use crate::transport::{Caller, Connection, Listener, Transport};

mod halves;
mod local;
mod read;
mod reserved;
mod shared_memory;
mod write;

/// How long making a connection may take.
pub const CONNECT_TIMEOUT_MS: u64 = 3_000;
/// How long a peer may stop in the middle of a frame.
pub const FRAME_STALL_MS: u64 = 30_000;
/// A silent connection is probed after this.
const KEEPALIVE_IDLE_S: u64 = 4;
/// Time between two probes.
const KEEPALIVE_INTERVAL_S: u64 = 2;
/// Probes without an answer after which the connection is dead.
const KEEPALIVE_PROBES: u32 = 3;
/// A connection whose data nobody acknowledges, or reads, is dead after this.
const USER_TIMEOUT_S: u64 = 15;

/// Real connections.
pub struct TcpTransport {
    seams: Seams,
    local: bool,
    reserved_port: bool,
}

impl TcpTransport {
    /// Must be used on a tokio runtime with I/O and time.
    pub fn new(seams: Seams) -> TcpTransport {
        TcpTransport { seams, local: true, reserved_port: false }
    }

    /// Also within a machine.
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
        let reserved_port = self.reserved_port;
        Box::pin(async move {
            let connecting = async {
                let found = tokio::net::lookup_host((nid.host.as_str(), nid.port)).await?;
                let addresses: Vec<SocketAddr> = found.collect();
                let mut near = addresses.iter().filter(|_| local);
                if let Some(stream) = near.find_map(|address| local::connect(*address)) {
                    return local::connection(stream, nid.clone(), &seams);
                }
                let stream = match reserved_port {
                    true => reserved::connect(&addresses).await?,
                    false => TcpStream::connect(&addresses[..]).await?,
                };
                connection(stream, nid.clone(), Caller::Known, &seams)
            };
            seams.timeout_ms(CONNECT_TIMEOUT_MS, connecting).await.ok_or(NetError::TimedOut)?
        })
    }

    fn listen(&self, nid: &Nid) -> BoxFuture<'static, Result<Box<dyn Listener>, NetError>> {
        let (seams, nid, local) = (self.seams.clone(), nid.clone(), self.local);
        Box::pin(async move {
            let listener = TcpListener::bind((nid.host.as_str(), nid.port)).await?;
            let address = listener.local_addr()?;
            let beside = if local { local::listen(address) } else { None };
            let local = Nid { port: address.port(), ..nid };
            Ok(Box::new(TcpAcceptor { listener, beside, address, local, seams }) as Box<dyn Listener>)
        })
    }
}

struct TcpAcceptor {
    listener: TcpListener,
    /// For clients of this machine.
    beside: Option<UnixListener>,
    address: SocketAddr,
    local: Nid,
    seams: Seams,
}

impl Listener for TcpAcceptor {
    fn local_nid(&self) -> Nid {
        self.local.clone()
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Connection, NetError>> {
        Box::pin(async move {
            loop {
                if shared_memory::cannot_look() {
                    // Local clients find nobody there, and come over TCP.
                    self.beside = None;
                }
                let beside = async {
                    match &self.beside {
                        Some(listener) => listener.accept().await,
                        None => std::future::pending().await,
                    }
                };
                let made = tokio::select! {
                    accepted = self.listener.accept() => {
                        let (stream, address) = accepted?;
                        let caller = Caller::Host { port: address.port() };
                        connection(stream, nid_of(address, self.local.rail), caller, &self.seams)
                    }
                    accepted = beside => {
                        if shared_memory::cannot_look() {
                            continue;
                        }
                        let peer = nid_of(local::client_of(self.address), self.local.rail);
                        local::connection(accepted?.0, peer, &self.seams)
                    }
                };
                // A connection that is gone before its options are set is nobody's error.
                if let Ok(made) = made {
                    return Ok(made);
                }
            }
        })
    }
}

fn nid_of(address: SocketAddr, rail: u8) -> Nid {
    Nid { host: address.ip().to_string(), port: address.port(), rail }
}

/// Sets the options of a new connection. Buffer sizes are left to the kernel, whose automatic sizes reach further
/// than what a process may set.
fn connection(stream: TcpStream, peer: Nid, caller: Caller, seams: &Seams) -> Result<Connection, NetError> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(KEEPALIVE_IDLE_S))
        .with_interval(Duration::from_secs(KEEPALIVE_INTERVAL_S))
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(USER_TIMEOUT_S)))?;
    let (read_half, write_half) = stream.into_split();
    let tx = Box::new(write::TcpTx::new(write_half, None, None));
    let rx = Box::new(read::TcpRx::new(read_half, seams.clone(), Default::default()));
    Ok(Connection { peer, caller, tx, rx })
}
