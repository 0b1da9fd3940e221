//! One POST to etcd's JSON gateway: a connection of its own, TLS where the address says so, every wait bounded by the
//! caller.
//!
//! Changes of the configuration are rare, so a connection per call costs nothing that matters, and no dead one is ever
//! reused.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer, ServerName,
};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::{Endpoint, TlsFiles};
use brindle_types::{Code, Fault, Result};

/// Largest answer that is read.
const ANSWER_MAX_BYTES: usize = 64 << 20;

/// Reason why a call brought no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection, no leader, or no answer: another member may do better. Whether a write was done is unknown.
    Elsewhere(String),
    /// etcd refused the request itself: number of the gRPC status, and its words.
    Refused(u64, String),
}

impl Failure {
    fn from_error(e: impl std::error::Error) -> Failure {
        let mut text = e.to_string();
        let mut cause = e.source();
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        Failure::Elsewhere(text)
    }
}

/// The key and certificates of a client, ready for use.
pub(super) fn tls(files: &TlsFiles) -> Result<Arc<ClientConfig>> {
    let bad = |what: &str, why: String| {
        Fault::new(Code::BadConfigValue)
            .subject(what.to_owned())
            .why(why)
            .next("see --etcd-ca, --etcd-cert and --etcd-key")
    };
    let parts =
        |what: &str, text: &[u8]| pem::parse_many(text).map_err(|e| bad(what, format!("it is not PEM: {e}")));
    let certificates = |what: &str, text: &[u8]| -> Result<Vec<CertificateDer<'static>>> {
        let found = parts(what, text)?.into_iter().filter(|part| part.tag() == "CERTIFICATE");
        let found: Vec<_> = found.map(|part| CertificateDer::from(part.into_contents())).collect();
        if found.is_empty() { Err(bad(what, "it holds no certificate".into())) } else { Ok(found) }
    };
    let mut roots = rustls::RootCertStore::empty();
    for root in certificates("etcd's authority", &files.authority)? {
        roots.add(root).map_err(|e| bad("etcd's authority", e.to_string()))?;
    }
    let chain = certificates("the certificate for etcd", &files.certificate)?;
    let key = parts("the key for etcd", &files.key)?.into_iter().find_map(|part| match part.tag() {
        "PRIVATE KEY" => Some(PrivateKeyDer::from(PrivatePkcs8KeyDer::from(part.into_contents()))),
        "EC PRIVATE KEY" => Some(PrivateSec1KeyDer::from(part.into_contents()).into()),
        "RSA PRIVATE KEY" => Some(PrivatePkcs1KeyDer::from(part.into_contents()).into()),
        _ => None,
    });
    let key = key.ok_or_else(|| bad("the key for etcd", "it holds no private key".into()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| Fault::new(Code::Bug).why(e.to_string()))?;
    let config = builder.with_root_certificates(roots).with_client_auth_cert(chain, key);
    config.map(Arc::new).map_err(|e| bad("the certificate for etcd", e.to_string()))
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

async fn connect(
    to: &Endpoint,
    tls: Option<&Arc<ClientConfig>>,
) -> std::result::Result<Box<dyn Stream>, Failure> {
    let plain = TcpStream::connect((to.host.as_str(), to.port)).await.map_err(Failure::from_error)?;
    let Some(tls) = tls else { return Ok(Box::new(plain)) };
    let name = ServerName::try_from(to.host.clone()).map_err(Failure::from_error)?;
    let stream = TlsConnector::from(tls.clone()).connect(name, plain).await.map_err(Failure::from_error)?;
    Ok(Box::new(stream))
}

/// An answer that is still being sent, and the connection that brings it.
struct Answer<'a> {
    body: Incoming,
    driver: std::pin::Pin<&'a mut (dyn Future<Output = ()> + Send)>,
}

impl Answer<'_> {
    /// The next piece; `None` at the end.
    async fn piece(&mut self) -> std::result::Result<Option<Bytes>, Failure> {
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = self.driver.as_mut() => unreachable!("the driver never ends"),
            };
            match frame {
                None => return Ok(None),
                Some(Err(e)) => return Err(Failure::from_error(e)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

fn request(
    to: &Endpoint,
    path: &str,
    body: &Value,
) -> std::result::Result<hyper::Request<Full<Bytes>>, Failure> {
    hyper::Request::post(path)
        .header("host", to.to_string())
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(Failure::from_error)
}

/// Asks `to` and returns its answer.
pub(super) async fn call(
    to: &Endpoint,
    tls: Option<&Arc<ClientConfig>>,
    path: &str,
    body: &Value,
) -> std::result::Result<Value, Failure> {
    let stream = connect(to, tls).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(Failure::from_error)?;
    let request = request(to, path, body)?;
    let work = async {
        let response = sender.send_request(request).await.map_err(Failure::from_error)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX_BYTES).collect().await;
        let body = body.map_err(|e| Failure::Elsewhere(format!("its answer breaks off: {e}")))?.to_bytes();
        understand(status, &body)
    };
    tokio::select! {
        biased;
        answer = work => answer,
        () = drive(connection) => unreachable!("the driver never ends"),
    }
}

/// Moves bytes until it is dropped; what ends the connection is told to the request and to its answer.
async fn drive(connection: http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>) {
    if let Err(e) = connection.await {
        tracing::debug!("a connection to etcd ended: {e}");
    }
    std::future::pending().await
}

/// gRPC's numbers for "try another member": unknown, deadline exceeded, unavailable.
const TRY_ELSEWHERE: [u64; 3] = [2, 4, 14];

fn understand(status: hyper::StatusCode, body: &[u8]) -> std::result::Result<Value, Failure> {
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(e) => return Err(Failure::Elsewhere(format!("its answer ({status}) is not etcd's: {e}"))),
    };
    if status.is_success() {
        return Ok(value);
    }
    let words = value["error"].as_str().or(value["message"].as_str()).unwrap_or("no reason given").to_owned();
    match value["code"].as_u64() {
        Some(code) if !TRY_ELSEWHERE.contains(&code) => Err(Failure::Refused(code, words)),
        _ => Err(Failure::Elsewhere(words)),
    }
}

/// Asks `to` and gives every line of its endless answer to `line` until that says to stop (`false`) or the answer ends.
/// A line must come within what `bound` allows: it wraps each wait.
pub(super) async fn lines<F, B>(
    to: &Endpoint,
    tls: Option<&Arc<ClientConfig>>,
    (path, body): (&str, &Value),
    bound: F,
    mut line: impl FnMut(Value) -> bool,
) -> std::result::Result<(), Failure>
where
    F: Fn() -> B,
    B: Future<Output = ()>,
{
    let opened = async {
        let stream = connect(to, tls).await?;
        http1::handshake(TokioIo::new(stream)).await.map_err(Failure::from_error)
    };
    let silent = || Failure::Elsewhere("it sends nothing".into());
    let (mut sender, connection) = tokio::select! {
        opened = opened => opened?,
        () = bound() => return Err(silent()),
    };
    let mut driver = std::pin::pin!(drive(connection));
    let request = request(to, path, body)?;
    let response = tokio::select! {
        biased;
        response = sender.send_request(request) => response.map_err(Failure::from_error)?,
        () = driver.as_mut() => unreachable!("the driver never ends"),
        () = bound() => return Err(silent()),
    };
    let mut answer = Answer { body: response.into_body(), driver };
    let mut pending = Vec::new();
    loop {
        let piece = tokio::select! {
            piece = answer.piece() => piece?,
            () = bound() => return Err(silent()),
        };
        let Some(piece) = piece else { return Ok(()) };
        pending.extend_from_slice(&piece);
        if pending.len() > ANSWER_MAX_BYTES {
            return Err(Failure::Elsewhere("a line of its answer is too long".into()));
        }
        while let Some(end) = pending.iter().position(|b| *b == b'\n') {
            let whole: Vec<u8> = pending.drain(..=end).collect();
            let value = serde_json::from_slice(&whole)
                .map_err(|e| Failure::Elsewhere(format!("a line of its answer is not etcd's: {e}")))?;
            if !line(value) {
                return Ok(());
            }
        }
    }
}
