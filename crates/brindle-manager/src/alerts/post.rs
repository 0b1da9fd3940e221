//! POST of JSON to a webhook, over HTTP or TLS.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a webhook may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of the answer that are read.
const ANSWER_MAX_BYTES: usize = 64 << 10;
/// Authorities that Debian's machines trust.
pub const AUTHORITIES_DEFAULT: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A webhook.
#[derive(Clone, Debug)]
pub struct Webhook {
    authority: String,
    host: String,
    path: String,
    tls: Option<Arc<ClientConfig>>,
}

impl Webhook {
    /// The webhook at an address; `authorities` is the PEM file with those that may have signed its certificate.
    pub fn new(url: &str, authorities: &str) -> Result<Webhook, String> {
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err("it begins with neither https:// nor http://".to_owned()),
        };
        if !url.chars().all(|c| c.is_ascii_graphic()) || rest.contains('@') || rest.contains('#') {
            return Err("it has characters that an address has not".to_owned());
        }
        let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match name.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && !port.contains(']') => {
                (host, port.parse::<u16>().map_err(|_| format!("{port} is no port"))?)
            }
            _ => (name, if is_tls { 443 } else { 80 }),
        };
        if host.is_empty() {
            return Err("it names no host".to_owned());
        }
        Ok(Webhook {
            authority: format!("{host}:{port}"),
            host: host.trim_matches(['[', ']']).to_owned(),
            path: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
            tls: if is_tls { Some(Arc::new(client_config(authorities)?)) } else { None },
        })
    }
}

fn client_config(authorities: &str) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let found: Vec<CertificateDer> =
        CertificateDer::pem_file_iter(authorities)
            .and_then(Iterator::collect)
            .map_err(|e| format!("cannot read the authorities in {authorities}: {e}"))?;
    let (taken, _) = roots.add_parsable_certificates(found);
    if taken == 0 {
        return Err(format!("{authorities} holds no authority"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(|e| e.to_string())?.with_root_certificates(roots).with_no_client_auth())
}

/// Sends a body; why not. The path of an address may be a secret, so only its host is named.
pub async fn send(webhook: &Webhook, body: &str) -> Result<(), String> {
    match tokio::time::timeout(LIMIT, try_send(webhook, body)).await {
        Ok(sent) => sent.map_err(|why| format!("{}: {why}", webhook.authority)),
        Err(_) => Err(format!("{}: no answer within {} s", webhook.authority, LIMIT.as_secs())),
    }
}

async fn try_send(webhook: &Webhook, body: &str) -> Result<(), String> {
    let stream = TcpStream::connect(&webhook.authority).await.map_err(|e| e.to_string())?;
    match &webhook.tls {
        None => exchange(stream, webhook, body).await,
        Some(config) => {
            let name = ServerName::try_from(webhook.host.clone()).map_err(|e| e.to_string())?;
            let stream = TlsConnector::from(config.clone()).connect(name, stream).await;
            exchange(stream.map_err(|e| e.to_string())?, webhook, body).await
        }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    webhook: &Webhook,
    body: &str,
) -> Result<(), String> {
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|e| e.to_string())?;
    let driver = tokio::spawn(connection);
    let request = Request::post(&webhook.path)
        .header("host", &webhook.authority)
        .header("content-type", "application/json")
        .header("user-agent", "brindle-manager")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .map_err(|e| e.to_string())?;
    let answer = sender.send_request(request).await.map_err(|e| e.to_string());
    let status = match answer {
        Ok(answer) => {
            let status = answer.status();
            // Read to its end, so that the other side sees no reset; the contents do not matter.
            let _ = Limited::new(answer.into_body(), ANSWER_MAX_BYTES).collect().await;
            Ok(status)
        }
        Err(e) => Err(e),
    };
    driver.abort();
    let status = status?;
    if status.is_success() { Ok(()) } else { Err(format!("it answers {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[test]
    fn addresses_are_checked() {
        let plain = Webhook::new("http://hooks.example.org/a?b=c", "").unwrap();
        assert_eq!((plain.authority.as_str(), plain.path.as_str()), ("hooks.example.org:80", "/a?b=c"));
        let six = Webhook::new("http://[::1]:9", "").unwrap();
        assert_eq!((six.authority.as_str(), six.host.as_str(), six.path.as_str()), ("[::1]:9", "::1", "/"));
        for bad in
            ["ftp://a", "a", "http://", "http://a:x/", "http://a b/", "http://u:p@a/", "http://a/\r\nX: y"]
        {
            assert!(Webhook::new(bad, "").is_err(), "{bad}");
        }
        assert!(Webhook::new("https://a", "/nowhere").unwrap_err().contains("/nowhere"));
    }

    #[tokio::test]
    async fn a_refusal_is_told_and_an_acceptance_too() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let mut bodies = Vec::new();
            for status in ["204 No Content", "500 Broken"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let mut length = 0;
                while !String::from_utf8_lossy(&request[..length]).ends_with("{\"a\":1}") {
                    length += stream.read(&mut request[length..]).await.unwrap();
                }
                bodies.push(String::from_utf8_lossy(&request[..length]).into_owned());
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            bodies
        });
        let webhook = Webhook::new(&format!("http://{address}/hook"), "").unwrap();
        send(&webhook, "{\"a\":1}").await.unwrap();
        assert!(send(&webhook, "{\"a\":1}").await.unwrap_err().contains("500"));
        let bodies = serving.await.unwrap();
        assert!(bodies[0].starts_with("POST /hook HTTP/1.1\r\n"), "{}", bodies[0]);
        assert!(send(&webhook, "{}").await.is_err(), "nobody listens any more");
    }
}
