//! The HTTP endpoint of a daemon: `/metrics` and `/healthz`, and what else it has to tell as JSON; by default on loopback only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use brindle_types::{Code, Fault, Result};
use tokio::net::TcpListener;

use crate::bounded::Bounded;
use crate::metrics::Registry;

/// Longest life of a connection: longer than any scrape takes.
const CONNECTION_LIFE: Duration = Duration::from_secs(30);
/// Content type of OpenMetrics text in HTTP.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Reports whether the process is healthy; if not, the text goes to the caller.
pub type Health = Arc<dyn Fn() -> std::result::Result<(), String> + Send + Sync>;

/// JSON that goes to whoever asks.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// A bound, not yet served endpoint.
pub struct Endpoint {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    life: Duration,
}

#[derive(Clone)]
struct Shown {
    registry: Registry,
    health: Health,
}

impl Endpoint {
    /// Listens at `address` (port 0 chooses a free one).
    pub async fn bind(address: SocketAddr, registry: Registry, health: Health) -> Result<Endpoint> {
        let listener = TcpListener::bind(address).await.map_err(|e| bind_fault(address, &e))?;
        let address = listener.local_addr().map_err(|e| bind_fault(address, &e))?;
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(healthz))
            .with_state(Shown { registry, health });
        Ok(Endpoint { listener, address, router, life: CONNECTION_LIFE })
    }

    /// Also answers with JSON, at another path.
    pub fn with_json(mut self, path: &str, page: Page) -> Endpoint {
        let answer = move || {
            let text = page();
            async move { ([(header::CONTENT_TYPE, "application/json")], text) }
        };
        self.router = self.router.route(path, get(answer));
        self
    }

    /// URL of the metrics: `http://127.0.0.1:9881/metrics`.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Answers until the future is dropped.
    pub async fn run(self) {
        if let Err(e) = axum::serve(Bounded::new(self.listener, self.life), self.router).await {
            tracing::error!(address = %self.address, error = %e, "the metrics endpoint ended");
        }
    }
}

fn bind_fault(address: SocketAddr, e: &std::io::Error) -> Fault {
    let code = match e.kind() {
        std::io::ErrorKind::AddrInUse => Code::AddressInUse,
        _ => Code::BadArgument,
    };
    Fault::io(code, "cannot listen for metrics at", address.to_string(), e)
}

async fn metrics(State(shown): State<Shown>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], shown.registry.encode())
}

async fn healthz(State(shown): State<Shown>) -> (StatusCode, String) {
    match (shown.health)() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[test]
    fn a_connection_that_says_nothing_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let mut endpoint = Endpoint::bind(any, Registry::new("mgs"), Arc::new(|| Ok(()))).await.unwrap();
            endpoint.life = Duration::from_millis(300);
            let address = endpoint.address;
            tokio::spawn(endpoint.run());
            // More than are served at once: they go, and then others are served.
            let mut held = Vec::new();
            for _ in 0..100 {
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                stream.write_all(b"GET /").await.unwrap();
                held.push(stream);
            }
            assert!(ask(address, "/healthz").await.ends_with("ok\n"));
            let mut rest = Vec::new();
            // An answer, an end or a reset: anything but silence.
            let _ = held[0].read_to_end(&mut rest).await;
        });
    }

    #[test]
    fn metrics_and_health_are_served_and_a_taken_port_is_named() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let registry = Registry::new("mgs");
            registry.counter("maps", "Maps given out").inc();
            let sick: Health = Arc::new(|| Err("the log stopped".to_owned()));
            let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let endpoint = Endpoint::bind(any, registry.clone(), sick.clone()).await.unwrap();
            let address = endpoint.address;
            assert_eq!(endpoint.url(), format!("http://{address}/metrics"));
            let second = Endpoint::bind(address, registry, sick).await.err().unwrap();
            assert_eq!(second.code, Code::AddressInUse);
            tokio::spawn(endpoint.with_json("/more", Arc::new(|| "{}".to_owned())).run());
            assert!(ask(address, "/more").await.ends_with("\r\n\r\n{}"));
            let metrics = ask(address, "/metrics").await;
            assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("brindle_mgs_maps_total 1\n"));
            assert!(metrics.contains("content-type: application/openmetrics-text"), "{metrics}");
            let health = ask(address, "/healthz").await;
            assert!(health.starts_with("HTTP/1.1 503") && health.ends_with("the log stopped\n"), "{health}");
        });
    }
}
