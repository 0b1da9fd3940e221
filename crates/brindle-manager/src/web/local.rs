//! The manager for commands on its own host: the same interface over a local socket that root alone may open. A caller who can
//! open it is an administrator, and called `root` in the audit log.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::http::{Method, StatusCode};
use brindle_types::{Code, Fault, Result};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};

use super::Peer;
use super::serve::{PAUSE, requests};
use crate::alerts::store::AlertsView;
use crate::api::BASE;

/// Name of the socket in the manager's directory.
pub const SOCKET: &str = "control.sock";
/// How long a command waits for an answer.
const LIMIT: Duration = Duration::from_secs(35);
/// Most bytes of an answer.
const ANSWER_MAX_BYTES: usize = 64 << 20;
/// Connections at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 32;

/// Marks a request that came over the local socket.
#[derive(Clone, Copy, Debug)]
pub struct Local;

/// Listens at the local socket.
pub fn bind(dir: &Path) -> Result<UnixListener> {
    let path = dir.join(SOCKET);
    let cannot = |e: &std::io::Error| {
        Fault::io(Code::NotWritable, "cannot listen for commands at", path.display().to_string(), e)
    };
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(&e)),
        _ => {}
    }
    // The directory is root's alone, so nobody comes in before the permissions are set.
    let listener = UnixListener::bind(&path).map_err(|e| cannot(&e))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(|e| cannot(&e))?;
    Ok(listener)
}

/// Serves until the future is dropped.
pub async fn run(listener: UnixListener, router: Router) {
    let room = std::sync::Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    let here = Peer(SocketAddr::from(([127, 0, 0, 1], 0)));
    loop {
        let permit = room.clone().acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    requests(stream, here, true, router).await;
                    drop(permit);
                });
            }
            Err(e) => {
                tracing::debug!(error = %e, "cannot accept a command");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Asks the manager in a directory; its answer, or its refusal.
pub async fn ask<A: DeserializeOwned>(
    dir: &Path,
    method: Method,
    path: &str,
    body: &impl Serialize,
) -> Result<A> {
    let socket = dir.join(SOCKET);
    let stream = UnixStream::connect(&socket).await.map_err(|e| {
        Fault::io(Code::NotMounted, "no manager answers at", socket.display().to_string(), &e)
            .next("start it: brindle manager; or name its directory: --manager DIR")
    })?;
    let failed = |why: String| {
        Fault::new(Code::ManagerBusy)
            .what("the manager did not answer at")
            .subject(socket.display().to_string())
            .why(why)
    };
    let asking = async {
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|e| failed(e.to_string()))?;
        let driver = tokio::spawn(connection);
        let text = serde_json::to_string(body).map_err(|e| failed(e.to_string()))?;
        let request = Request::builder()
            .method(method)
            .uri(format!("{BASE}{path}"))
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(text)))
            .map_err(|e| failed(e.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|e| failed(e.to_string()))?;
        let status = answer.status();
        let bytes = Limited::new(answer.into_body(), ANSWER_MAX_BYTES).collect().await;
        driver.abort();
        Ok((status, bytes.map_err(|e| failed(e.to_string()))?.to_bytes()))
    };
    let (status, bytes) =
        tokio::time::timeout(LIMIT, asking).await.map_err(|_| failed("it took too long".to_owned()))??;
    if status == StatusCode::OK {
        return serde_json::from_slice(&bytes).map_err(|e| failed(e.to_string()));
    }
    let told: Value = serde_json::from_slice(&bytes).map_err(|e| failed(format!("status {status}: {e}")))?;
    Err(refusal(&told))
}

/// The alerts of the manager in a directory.
pub async fn alerts(dir: &Path) -> Result<AlertsView> {
    ask(dir, Method::GET, "/alerts", &serde_json::json!({})).await
}

/// The fault that the manager told.
fn refusal(told: &Value) -> Fault {
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    let code = text("code").parse().unwrap_or(Code::Bug);
    let why = told["why"].as_array().cloned().unwrap_or_default();
    let why = why.iter().filter_map(Value::as_str).map(str::to_owned);
    let fault =
        Fault::new(code).what(text("what")).subject(text("subject")).data(text("data")).next(text("next"));
    why.fold(fault, |fault, why| fault.why(why))
}
