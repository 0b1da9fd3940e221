//! Data for a site's own monitoring: the addresses of all daemons ([`discovery`], Prometheus's HTTP service discovery), and the manager's
//! own numbers ([`own`]).
//!
//! Callers show the token of the file `monitoring-token` in the manager's directory. The token opens these two addresses, and nothing
//! else.

pub mod discovery;
pub mod own;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response, header};
use axum::routing::get;
use brindle_types::{Code, Fault, Result};

use crate::access::monitoring_token::FILE;
use crate::{Manager, fault};

/// Where Prometheus asks for the daemons.
pub const DISCOVERY: &str = "/sd/prometheus";
/// Where Prometheus asks for the manager's numbers.
pub const METRICS: &str = "/metrics";
/// Media type of OpenMetrics text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The two addresses.
pub fn router(manager: &Arc<Manager>) -> Router {
    Router::new().route(DISCOVERY, get(daemons)).route(METRICS, get(numbers)).with_state(manager.clone())
}

async fn daemons(State(manager): State<Arc<Manager>>, headers: HeaderMap) -> Response<Body> {
    answer(&manager, &headers, "application/json", |manager| {
        let state = manager.state();
        discovery::text(&discovery::groups(manager.managed.daemons(&state)))
    })
}

async fn numbers(State(manager): State<Arc<Manager>>, headers: HeaderMap) -> Response<Body> {
    answer(&manager, &headers, OPENMETRICS, own::text)
}

fn answer(
    manager: &Manager,
    headers: &HeaderMap,
    media: &'static str,
    text: impl FnOnce(&Manager) -> String,
) -> Response<Body> {
    if let Err(refused) = check(manager, headers) {
        return fault::response(&refused);
    }
    let mut response = Response::new(Body::from(text(manager)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

fn check(manager: &Manager, headers: &HeaderMap) -> Result<()> {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = shown.and_then(|value| value.strip_prefix("Bearer "));
    match token {
        Some(token) if manager.monitoring_token.is(token.trim()) => Ok(()),
        _ => Err(Fault::new(Code::NotLoggedIn)
            .what("monitoring shows no token, or a wrong one,")
            .subject("to the manager")
            .next(format!(
                "set 'credentials_file' of Prometheus to a copy of {FILE} in the manager's directory"
            ))),
    }
}
