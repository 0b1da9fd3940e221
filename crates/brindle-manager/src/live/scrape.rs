//! Asks daemons for their numbers over HTTP.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long a daemon may take to tell.
const LIMIT: Duration = Duration::from_millis(800);
/// Most bytes that one tells.
const TEXT_MAX_BYTES: usize = 4 << 20;
/// How many are asked at once.
const AT_ONCE: usize = 32;

/// Metrics of each daemon, with its address; daemons that do not answer in time are left out.
pub async fn all(urls: Vec<String>) -> Vec<(String, String)> {
    let asking = stream::iter(urls).map(|url| async {
        let text = tokio::time::timeout(LIMIT, one(&url)).await.ok()?;
        match text {
            Ok(text) => Some((url, text)),
            Err(why) => {
                tracing::debug!(url, why, "a daemon does not tell its numbers");
                None
            }
        }
    });
    asking.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// Page of a daemon at another path than that of its metrics, or the reason why there is none.
pub async fn page(url: &str, path: &str) -> Result<String, String> {
    let authority = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let asked = tokio::time::timeout(LIMIT, one(&format!("http://{authority}{path}"))).await;
    asked.unwrap_or_else(|_| Err(format!("it has not answered within {} ms", LIMIT.as_millis())))
}

async fn one(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("http://").ok_or("the address does not begin with http://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/metrics" } else { path };
    let stream = TcpStream::connect(authority).await.map_err(|e| e.to_string())?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|e| e.to_string())?;
    let request = Request::get(path)
        .header("host", authority)
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let driver = tokio::spawn(connection);
    let text = text(&mut sender, request).await;
    driver.abort();
    text
}

async fn text(
    sender: &mut SendRequest<Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
) -> Result<String, String> {
    let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
    if !answer.status().is_success() {
        return Err(format!("it answers {}", answer.status()));
    }
    let body = Limited::new(answer.into_body(), TEXT_MAX_BYTES).collect().await;
    let bytes = body.map_err(|e| e.to_string())?.to_bytes();
    String::from_utf8(bytes.to_vec()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    async fn answering(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            // Silence, or the end: as the answer has it.
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
        });
        url
    }

    #[tokio::test]
    async fn whoever_is_silent_or_talks_nonsense_is_left_out() {
        let good = answering("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\na 1\n").await;
        let urls = vec![
            answering("").await,
            answering("nonsense\r\n\r\n").await,
            answering("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n").await,
            good.clone(),
            "ftp://x".to_owned(),
            "http://127.0.0.1:1/metrics".to_owned(),
        ];
        assert_eq!(all(urls).await, [(good, "a 1\n".to_owned())]);
    }
}
