//! Connections: bounded in number, and by address. A client that is slow with a handshake or a request, or does not read its answer, is
//! disconnected.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use brindle_types::{Code, Fault, Result};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::Peer;
use super::local::Local;
use super::patience::{Impatient, SharePermit, Shares};
use super::tls::Tls;

/// Connections at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 512;
/// How long a TLS handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and how long a connection may be without one.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// How long a browser may take none of the bytes that are sent to it.
const UNREAD_LIMIT: Duration = Duration::from_secs(30);
/// Pause after a connection that could not be accepted, because there are no descriptors left, say.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens.
pub struct Listening {
    listener: TcpListener,
    tls: Option<Tls>,
}

/// Listens at an address; port 0 for any free one. Without TLS only on this machine.
pub async fn bind(listen: SocketAddr, tls: Option<Tls>) -> Result<Listening> {
    if tls.is_none() && !listen.ip().is_loopback() {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot use --insecure-http at")
            .subject(listen.to_string())
            .why("passwords would cross the network in clear text; without TLS only 127.0.0.1 and ::1 are possible")
            .data("nothing was started")
            .next("leave --insecure-http out, or listen on 127.0.0.1"));
    }
    let listener = TcpListener::bind(listen).await.map_err(|e| {
        let code = match e.kind() {
            std::io::ErrorKind::AddrInUse => Code::AddressInUse,
            _ => Code::BadArgument,
        };
        Fault::io(code, "cannot listen for browsers at", listen.to_string(), &e)
    })?;
    Ok(Listening { listener, tls })
}

impl Listening {
    /// The address, with the port that was chosen.
    pub fn address(&self) -> Result<SocketAddr> {
        let asked = self.listener.local_addr();
        asked.map_err(|e| Fault::io(Code::Bug, "cannot find out where it listens:", "the manager", &e))
    }

    /// SHA-256 of the certificate; empty without TLS.
    pub fn fingerprint(&self) -> String {
        self.tls.as_ref().map(|tls| tls.fingerprint.clone()).unwrap_or_default()
    }

    /// Serves until the future is dropped.
    pub async fn run(self, router: Router) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let shares = Shares::default();
        let acceptor = self.tls.map(|tls| TlsAcceptor::from(tls.config));
        loop {
            let permit = room.clone().acquire_owned().await.expect("the semaphore is never closed");
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(e) => {
                    tracing::debug!(error = %e, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let Some(place) = shares.take(peer.ip()) else {
                tracing::debug!(%peer, "a connection is closed: its address has too many");
                continue;
            };
            tokio::spawn(connection(stream, peer, acceptor.clone(), router.clone(), (permit, place)));
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    _room: (OwnedSemaphorePermit, SharePermit),
) {
    // Live events are small, and are wanted at once.
    if let Err(e) = stream.set_nodelay(true) {
        tracing::debug!(%peer, error = %e, "cannot switch the delay of small packets off");
    }
    let stream = Impatient::new(stream, UNREAD_LIMIT);
    let Some(acceptor) = acceptor else {
        requests(stream, Peer(peer), false, router).await;
        return;
    };
    match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, Peer(peer), false, router).await,
        Ok(Err(e)) => tracing::debug!(%peer, error = %e, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
    }
}

/// Serves the requests of a connection; `is_local` if it came over the local socket.
pub(super) async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    is_local: bool,
    router: Router,
) {
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        if is_local {
            request.extensions_mut().insert(Local);
        }
        router.clone().oneshot(request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    if let Err(e) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(peer = %peer.0, error = %e, "a connection ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_tls_only_this_machine_is_listened_to() {
        for far in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let fault = bind(far.parse().unwrap(), None).await.err().unwrap();
            assert_eq!(fault.code, Code::BadArgument);
            assert!(fault.why[0].contains("clear text"), "{fault}");
        }
        let near = bind("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let taken = bind(near.address().unwrap(), None).await.err().unwrap();
        assert_eq!(taken.code, Code::AddressInUse);
    }
}
