//! HTTP for the store: hyper with the TLS of the whole project. An answer is taken whole, within a limit of time and a limit of bytes: a
//! server that is silent, or sends too much, ends in an error.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use brindle_stdx::Seams;
use brindle_stdx::cast::to_usize;
use brindle_types::{Code, Fault, Result};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::{BucketLocation, RANGE_BYTES};

/// Longest time to establish a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Longest time for an answer, from the first byte sent to the last byte received: enough for 8 MiB at 1
/// Mbit/s.
const ANSWER_LIMIT_MS: u64 = 70_000;
/// Slowest rate of a request, in bytes a millisecond; its bytes extend the time for the answer. Parts of large files are larger.
const SLOWEST_BYTES_PER_MS: u64 = 128;
/// Connections that are kept without use are closed after this.
const IDLE_LIMIT: Duration = Duration::from_secs(20);
/// Largest answer: a range, or a list of 1000 keys.
const ANSWER_BYTES_MAX: usize = to_usize(RANGE_BYTES) + (4 << 20);

/// Makes connections for the store.
#[derive(Clone)]
pub struct Connector {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
    seams: Seams,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

fn tls(place: &BucketLocation) -> Result<ClientConfig> {
    let cannot = |why: String| {
        let path = place.authorities.display().to_string();
        Fault::new(Code::BadArgument).what("cannot check certificates by").subject(path).why(why)
    };
    let mut roots = RootCertStore::empty();
    if place.is_tls() {
        let read = CertificateDer::pem_file_iter(&place.authorities)
            .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
        let read = read.map_err(|e| cannot(format!("it cannot be read: {e}")))?;
        if roots.add_parsable_certificates(read).0 == 0 {
            return Err(cannot("it holds no certificate authority".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| cannot(e.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

impl Connector {
    /// A connector to a place.
    pub fn new(place: &BucketLocation, seams: &Seams) -> Result<Connector> {
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_LIMIT));
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls(place)?);
        let https = if place.is_tls() { builder.https_only() } else { builder.https_or_http() };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_LIMIT)
            .build(https.enable_http1().wrap_connector(tcp));
        Ok(Connector { client, seams: seams.clone() })
    }

    async fn exchange(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let answered = self.client.request(request).await.map_err(failed)?;
        let (head, body) = answered.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|e| HttpError::new(HttpErrorKind::Interrupted, Whole(e)))?;
        Ok(HttpResponse::from_parts(head, HttpResponseBody::from(body.to_bytes())))
    }
}

/// An error with its sources in one line.
#[derive(Debug)]
struct Whole(Box<dyn StdError + Send + Sync>);

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let mut below = self.0.source();
        while let Some(e) = below {
            write!(f, ": {e}")?;
            below = e.source();
        }
        Ok(())
    }
}

impl StdError for Whole {}

fn failed(e: ClientError) -> HttpError {
    let kind = if e.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
    HttpError::new(kind, Whole(Box::new(e)))
}

#[derive(Debug)]
struct Silent {
    limit_ms: u64,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no whole answer within {} s", self.limit_ms / 1000)
    }
}

impl StdError for Silent {}

impl HttpService for Connector {
    fn call<'this, 'call>(
        &'this self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<HttpResponse, HttpError>> + Send + 'call>>
    where
        'this: 'call,
        Self: 'call,
    {
        Box::pin(async move {
            let sent_bytes = request.body().content_length() as u64;
            let limit_ms = ANSWER_LIMIT_MS + sent_bytes / SLOWEST_BYTES_PER_MS;
            let answered = self.seams.timeout_ms(limit_ms, self.exchange(request)).await;
            answered.unwrap_or_else(|| Err(HttpError::new(HttpErrorKind::Timeout, Silent { limit_ms })))
        })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}
