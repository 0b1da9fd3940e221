//! Authentication of hosts: who a host is, who says so, and how both sides of a connection prove it.
//!
//! | piece | what it is | where it lies |
//! |---|---|---|
//! | [`Authority`] | the cluster's certificate authority: a key, and a certificate signed by itself | with the MGS only |
//! | [`Identity`] | a host's key and certificate, with the certificate of the authority | a file of each host, readable by root |
//! | [`Token`] | the right to join once, until it expires | typed by an administrator |
//! | [`Mode`] | how frames are protected behind the handshake | configured for each network |
//! | [`Credentials`] | an identity as `rustls` needs it | in memory |
//!
//! The handshake is TLS 1.3 with certificates on both sides. A certificate names the cluster, the host and its roles in one URI
//! (`brindle://CLUSTER/HOST?roles=server,admin`, [`Name`]). A server's certificate also has the DNS name `server.CLUSTER.brindle`, under which
//! others look for servers of the cluster.
//!
//! Only `brindle-net` opens connections; nothing here touches a file or a socket.
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

mod authority;
mod credentials;
mod identity;
mod mode;
mod name;
mod token;

pub use authority::{Authority, CERTIFICATE_DAYS};
pub use credentials::{Credentials, Pinned, Proof, proof_of, refusal};
pub use identity::{HostKey, Identity};
pub use mode::{Mode, Modes, NETWORKS_MAX};
pub use name::{ClusterId, HOST_NAME_MAX, HostRole, KeyId, Name, Roles, check_host_name, sha256};
pub use token::{Secret, Token, is_proof};

#[cfg(test)]
mod tests;
