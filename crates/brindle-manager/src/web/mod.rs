//! HTTP: connections, TLS, security headers, the files of the console.

pub mod assets;
pub mod headers;
pub mod local;
mod patience;
pub mod serve;
pub mod tls;
pub mod validity;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use brindle_types::{Code, Fault};

use crate::{Manager, api, fault, monitoring};

/// How long an answer may take to begin. Longer work is a task.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Address of the caller.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Everything that is served. `is_trusted`: browsers know the authority of the certificate, so they may insist on TLS from now on.
pub fn router(manager: &Arc<Manager>, is_trusted: bool) -> Router {
    api::router(manager)
        .merge(assets::router())
        .merge(monitoring::router(manager))
        .layer(from_fn(in_time))
        .layer(from_fn(move |request: Request, next: Next| headers::add(is_trusted, request, next)))
}

async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_LIMIT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => fault::response(
            &Fault::new(Code::ManagerBusy)
                .why(format!("there was no answer within {} s", ANSWER_LIMIT.as_secs())),
        ),
    }
}
