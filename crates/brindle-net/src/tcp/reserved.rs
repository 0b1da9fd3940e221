//! Connections from ports that only root may use, as rsh and NFS have them: the server sees that root made them.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;

use tokio::net::{TcpSocket, TcpStream};

use crate::transport::RESERVED_PORTS;

/// The ports that are tried, from the last: lower ones belong to services (bindresvport(3)).
const PORTS: Range<u16> = 600..RESERVED_PORTS;

/// Connects from a reserved port; from any where this process may use none, or all are in use.
pub(super) async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match connect_to(*address).await {
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    for port in PORTS.rev() {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // An address that was used by a connection just ended is no hindrance.
        socket.set_reuseaddr(true)?;
        let any = if address.is_ipv4() { "0.0.0.0" } else { "::" };
        let from = SocketAddr::new(any.parse().map_err(io::Error::other)?, port);
        let connected = match socket.bind(from) {
            Ok(()) => socket.connect(address).await,
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => continue,
            Err(_) => break,
        };
        match connected {
            // (The same four numbers are in use, or were just now.)
            Err(e) if matches!(e.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {}
            connected => return connected,
        }
    }
    TcpStream::connect(address).await
}
