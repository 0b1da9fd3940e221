//! The short way to a server of the same machine: a Unix stream socket beside each TCP listener. The socket carries the same
//! frames without the cost of TCP over the loopback device (design note 011). Long bulk stays in shared memory
//! ([`shared_memory`]).
//!
//! The name of the socket is the address that the server listens at, in the abstract name space, which belongs to a network
//! namespace as addresses do. Any user may bind such a name. Therefore a client uses the socket only for addresses of this
//! machine, and only if its holder runs as root or as the client's own user; otherwise it uses TCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;
use std::sync::Arc;

use brindle_stdx::Seams;
use brindle_types::Nid;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

use super::{halves, read, shared_memory, write};
use crate::NetError;
use crate::transport::{Caller, Connection};

/// Bytes that a socket holds for a peer that does not read yet: a few of the largest transfers. (A process without the right to
/// exceed the machine's `net.core.wmem_max` gets that.)
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Users that are not known in a user namespace all have this number.
const OVERFLOW_UID: u32 = 65_534;

/// The names under which a server at `address` may be found: its own, and that of a server that listens at all addresses. (The
/// number is the version of the opening bytes of connections: servers and clients of another version use TCP.)
fn names(address: SocketAddr) -> [String; 2] {
    let wildcard = match address.ip() {
        IpAddr::V4(_) => "0.0.0.0",
        IpAddr::V6(_) => "::",
    };
    [format!("brindle-2/{address}"), format!("brindle-2/{}", join(wildcard, address.port()))]
}

fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Listens beside a TCP listener that has the address. Without it clients of this machine use TCP.
pub(super) fn listen(address: SocketAddr) -> Option<UnixListener> {
    let [name, _] = names(address);
    let bound = net::SocketAddr::from_abstract_name(name).and_then(|at| net::UnixListener::bind_addr(&at));
    let listening = bound.and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    listening.inspect_err(|error| tracing::info!(%address, %error, "local clients use TCP")).ok()
}

/// Connects to a server of this machine; `None` where there is none that is to be trusted, or where it is not this machine.
pub(super) fn connect(address: SocketAddr) -> Option<UnixStream> {
    if shared_memory::cannot_look() || !is_own(address) {
        return None;
    }
    let to = |name: String| -> std::io::Result<UnixStream> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        // Completes at once, or is refused: also by a server that does not accept.
        socket.connect(&SockAddr::unix(format!("\0{name}"))?)?;
        UnixStream::from_std(OwnedFd::from(socket).into())
    };
    names(address).into_iter().find_map(|name| to(name).ok().filter(is_trusted))
}

/// The address of a local client of a server at `address`: the server's own, which would be the client's over TCP, too.
pub(super) fn client_of(address: SocketAddr) -> SocketAddr {
    let loopback = if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    SocketAddr::new(if address.ip().is_unspecified() { loopback } else { address.ip() }, 0)
}

/// Whether an address is one of this machine: it is the one from which it would be reached.
fn is_own(address: SocketAddr) -> bool {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let from = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Sends nothing.
        socket.connect(address)?;
        socket.local_addr()
    };
    address.ip().is_loopback() || from().is_ok_and(|from| from.ip() == address.ip())
}

/// Whether the other side runs as root or as we do.
fn is_trusted(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0) || is_same_user(stream)
}

/// Whether the other side runs as we do; it comes to the same answer.
fn is_same_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    own != OVERFLOW_UID && stream.peer_cred().is_ok_and(|peer| peer.uid() == own)
}

/// A connection over the socket, with the machine's own address as that of the peer.
pub(super) fn connection(stream: UnixStream, peer: Nid, seams: &Seams) -> Result<Connection, NetError> {
    set_send_buffer(&stream);
    let may_lend = is_same_user(&stream);
    let caller = match stream.peer_cred() {
        Ok(peer) => Caller::User { uid: peer.uid(), is_own: may_lend },
        Err(_) => Caller::User { uid: OVERFLOW_UID, is_own: false },
    };
    let stream = stream.into_std()?;
    let lender = shared_memory::offer(&stream, may_lend)?;
    let borrows = Arc::new(shared_memory::Borrows::of(may_lend));
    let (read_half, write_half) = halves::split(stream, borrows.clone())?;
    let tx = Box::new(write::TcpTx::new(write_half, Some(seams.clone()), lender));
    let rx = Box::new(read::TcpRx::new(read_half, seams.clone(), borrows));
    Ok(Connection { peer, caller, tx, rx, delivery: None })
}

/// Best effort: with less, large transfers take more turns.
fn set_send_buffer(stream: &UnixStream) {
    let forced = rustix::net::sockopt::set_socket_send_buffer_size_force(stream, SEND_BUFFER_BYTES);
    if forced.is_err() {
        let _ = SockRef::from(stream).set_send_buffer_size(SEND_BUFFER_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime")
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn servers_are_found_by_their_address_or_at_all_addresses_and_only_on_this_machine() {
        runtime().block_on(async {
            let _own = listen(at("127.0.0.1:64001")).expect("listens");
            let _all = listen(at("0.0.0.0:64002")).expect("listens");
            assert!(connect(at("127.0.0.1:64001")).is_some());
            assert!(connect(at("127.0.0.2:64001")).is_none(), "another address");
            assert!(connect(at("127.0.0.1:64003")).is_none(), "nobody listens");
            assert!(connect(at("127.0.0.2:64002")).is_some());
            assert!(connect(at("[::1]:64002")).is_none(), "of another kind");
            // TEST-NET-1: no machine has it.
            let _far = listen(at("192.0.2.1:64001")).expect("a name is only a name");
            assert!(
                connect(at("192.0.2.1:64001")).is_none(),
                "somebody has taken the name of another machine's server"
            );
            assert!(listen(at("127.0.0.1:64001")).is_none(), "two cannot have it");
        });
    }

    #[test]
    fn what_another_user_holds_is_not_used() {
        const NOBODY: u32 = 65_534;
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let runtime = runtime();
        let listening = std::thread::spawn(|| {
            let nobody = rustix::process::Uid::from_raw(NOBODY);
            // The user id changes for this thread alone.
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("as root");
            let at = net::SocketAddr::from_abstract_name("brindle-2/127.0.0.1:64004").expect("a name");
            net::UnixListener::bind_addr(&at).expect("listens")
        });
        let _listener = listening.join().expect("it ends");
        assert!(runtime.block_on(async { connect(at("127.0.0.1:64004")) }).is_none());
    }

    #[test]
    fn clients_have_an_address_of_the_machine() {
        assert_eq!(client_of(at("10.1.2.3:99")), at("10.1.2.3:0"));
        assert_eq!(client_of(at("0.0.0.0:99")), at("127.0.0.1:0"));
        assert_eq!(client_of(at("[::]:99")), at("[::1]:0"));
    }
}
