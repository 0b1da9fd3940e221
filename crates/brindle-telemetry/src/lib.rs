//! Telemetry of a running process: metrics over HTTP, structured logs, last words.
//!
//! [`Registry`] collects numbers of every service in the process; [`Endpoint`] serves them as OpenMetrics at `/metrics`,
//! with `/healthz` beside it. [`log`] writes one `key=value` line an event; [`Limiter`] keeps the same text about the same
//! subject to once a minute; [`panic`] turns a panic into a message that a person understands.
//!
//! Called by the binary, and by services of layer 3 and above. Invariant: nothing here is needed for files to be
//! served; a full log disk or a slow scraper delays nobody.

mod bounded;
pub mod http;
pub mod limit;
pub mod log;
pub mod metrics;
pub mod panic;
pub mod recent;
mod sink;

pub use http::Endpoint;
pub use limit::Limiter;
pub use metrics::{Counter, Gauge, Histogram, Kind, Registry};
