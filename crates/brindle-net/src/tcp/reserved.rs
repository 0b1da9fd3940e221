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

#[cfg(test)]
mod tests {
    use brindle_types::Nid;

    use super::super::TcpTransport;
    use crate::transport::{Caller, Transport};

    /// Caller as a server sees it; `choose` makes the transports of both sides.
    fn caller_of(choose: fn(TcpTransport) -> TcpTransport) -> Caller {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.expect("runtime").block_on(async {
            let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
            let (server, client) =
                (choose(TcpTransport::new(seams.clone())), choose(TcpTransport::new(seams)));
            let any = Nid { host: "127.0.0.1".to_owned(), port: 0, rail: 0 };
            let mut listener = server.listen(&any).await.expect("listens");
            let at = listener.local_nid();
            let (accepted, connected) = tokio::join!(listener.accept(), client.connect(&at));
            drop(connected.expect("connects"));
            accepted.expect("accepts").caller
        })
    }

    #[test]
    fn servers_tell_administrators_by_user_and_by_port() {
        let ordinary = caller_of(TcpTransport::over_tcp_only);
        assert!(matches!(ordinary, Caller::Host { port, .. } if port >= 1024), "{ordinary:?}");
        let why = ordinary.is_no_administrator().expect("refused");
        assert!(why.ends_with("root's commands come from one below 1024"), "{why}");
        let is_root = rustix::process::geteuid().is_root();
        let reserved = caller_of(|transport| transport.over_tcp_only().from_reserved_port());
        assert_eq!(reserved.is_no_administrator().is_none(), is_root, "{reserved:?}");
        let local = caller_of(|transport| transport);
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(local, Caller::User { uid, is_own: true });
        assert_eq!(
            Caller::User { uid: 1234, is_own: false }.is_no_administrator().as_deref(),
            Some("user 1234 is not root")
        );
        assert_eq!(Caller::User { uid: 0, is_own: false }.is_no_administrator(), None);
    }
}
