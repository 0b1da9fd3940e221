//! Connections and remote calls: the seam [`Transport`], its TCP implementation, and the two ends of a connection,
//! [`Peer`] (who asks) and [`RpcServer`] (who answers and sends notifies).
//!
//! Called by every service and client; knows nothing of the meaning of messages. Requests are pipelined and paired
//! with their answers by xid. Overload is back-pressure, never an error: both ends count requests **and bytes**
//! against credits that the server grants in its hello.
//!
//! Invariants: everything here is bounded; a bad peer loses its own connection and nothing else; a request is sent
//! at most once (sending again, under the same slot and sequence, is the session layer's decision).
#![cfg_attr(
    test,
    allow(
        clippy::cast_lossless,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "tests choose their numbers"
    )
)]

pub mod access;
pub mod error;
pub mod fair;
mod ids;
pub mod job;
pub mod latch;
pub mod nodemaps;
mod outbox;
pub mod peer;
mod releases;
pub mod server;
pub mod tcp;
pub mod trace;
pub mod transport;
pub mod usage;

#[cfg(test)]
mod tests;

pub use access::RemovedKeys;
pub use error::NetError;
pub use fair::{Fair, FairConfig};
pub use nodemaps::{Limits, Nodemaps};
pub use peer::{LinkInfo, NotifyHandler, Peer, PeerConfig, PeerState};
pub use server::{RpcServer, ServerConfig, ServerConn, ServerHandle, ServerStats, Service};
pub use tcp::{CredentialSource, Proving, Security, TcpTransport};
pub use trace::Tracer;
pub use transport::{Caller, Connection, FrameRx, FrameTx, Listener, Transport};

/// Release of this software as hellos tell it.
pub const SOFTWARE: &str = concat!("brindle ", env!("CARGO_PKG_VERSION"));
