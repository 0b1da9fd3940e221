//! Names in certificates: cluster, host, roles; and names of keys.

use std::fmt;
use std::str::FromStr;

use brindle_types::{Code, Fault, Result};
use serde::{Deserialize, Serialize};

/// Longest name of a host, bytes.
pub const HOST_NAME_MAX: usize = 64;

/// Identity of a cluster, chosen when its authority is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u64);

impl ClusterId {
    /// The DNS name that every server of the cluster has in its certificate.
    pub fn server_name(self) -> String {
        format!("server.{self}.brindle")
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A role of a host: the right to act as one kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum HostRole {
    /// Serves targets. Servers may mount, too.
    Server,
    /// Mounts the file system.
    Client,
    /// Moves data for the archive or for burst buffers.
    Agent,
    /// Root of the host administers the cluster. Such hosts may mount, too.
    Admin,
}

impl HostRole {
    const ALL: [HostRole; 4] = [HostRole::Server, HostRole::Client, HostRole::Agent, HostRole::Admin];

    /// Name, as commands have it.
    pub fn name(self) -> &'static str {
        match self {
            HostRole::Server => "server",
            HostRole::Client => "client",
            HostRole::Agent => "agent",
            HostRole::Admin => "admin",
        }
    }
}

impl FromStr for HostRole {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<HostRole, String> {
        let found = HostRole::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| format!("'{text}' is no role: those are server, client, agent and admin"))
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles(u8);

impl Roles {
    /// The set of these roles.
    pub fn of(roles: &[HostRole]) -> Roles {
        Roles(roles.iter().fold(0, |bits, role| bits | 1 << *role as u8))
    }

    /// Whether a role is in the set.
    pub fn has(self, role: HostRole) -> bool {
        self.0 & 1 << role as u8 != 0
    }

    /// Whether no role is in the set.
    pub fn is_empty(self) -> bool {
        HostRole::ALL.iter().all(|role| !self.has(*role))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = HostRole::ALL.iter().filter(|r| self.has(**r)).map(|r| r.name()).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Roles, String> {
        let roles =
            text.split(',').map(str::parse).collect::<std::result::Result<Vec<HostRole>, String>>()?;
        Ok(Roles::of(&roles))
    }
}

/// Name of a host's key: the SHA-256 of its public half, as it stands in certificates. Stays the same when the certificate is renewed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyId(pub [u8; 32]);

impl KeyId {
    /// The name of a public key in its DER form (SubjectPublicKeyInfo).
    pub fn of(subject_public_key_info: &[u8]) -> KeyId {
        KeyId(sha256(subject_public_key_info))
    }

    /// The right of this key to go by a name: what is revoked when the host of the key gets another name.
    pub fn under_name(&self, host: &str) -> KeyId {
        KeyId(sha256(&[b"brindle host name\0", self.0.as_slice(), host.as_bytes()].concat()))
    }

    /// The name of an Ed25519 public key.
    pub fn of_public(public_key: &[u8; 32]) -> KeyId {
        KeyId::of(&crate::identity::subject_public_key_info(public_key))
    }
}

/// Shows the first eight bytes of the key: enough for people to tell keys apart.
impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Checks a host's name: letters, digits, `.`, `-`, `_`; at most [`HOST_NAME_MAX`] bytes; it begins with a letter or digit.
pub fn check_host_name(name: &str) -> Result<()> {
    let is_good = |c: u8| c.is_ascii_alphanumeric() || b".-_".contains(&c);
    let begins = name.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if begins && name.len() <= HOST_NAME_MAX && name.bytes().all(is_good) {
        return Ok(());
    }
    Err(Fault::new(Code::BadArgument)
        .what("cannot use the host name")
        .subject(name.chars().take(HOST_NAME_MAX).collect::<String>())
        .why(format!(
            "a name has letters, digits, '.', '-' and '_', begins with a letter or digit, and is at most {HOST_NAME_MAX} long"
        ))
        .data("nothing was changed"))
}

/// Cluster, name and roles of a host, as its certificate has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The cluster.
    pub cluster: ClusterId,
    /// The host.
    pub host: String,
    /// Roles of the host.
    pub roles: Roles,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "brindle://{}/{}?roles={}", self.cluster, self.host, self.roles)
    }
}

impl FromStr for Name {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Name> {
        let parsed = || {
            let (cluster, rest) = text.strip_prefix("brindle://")?.split_once('/')?;
            let (host, roles) = rest.split_once("?roles=")?;
            check_host_name(host).ok()?;
            let is_hex = cluster.len() == 16 && cluster.bytes().all(|c| c.is_ascii_hexdigit());
            let cluster = is_hex.then(|| u64::from_str_radix(cluster, 16).ok()).flatten()?;
            Some(Name { cluster: ClusterId(cluster), host: host.to_owned(), roles: roles.parse().ok()? })
        };
        parsed().ok_or_else(|| {
            Fault::new(Code::BadIdentity)
                .what("cannot use the name in the certificate")
                .subject(text.to_owned())
                .why("it is not of the form brindle://CLUSTER/HOST?roles=ROLES")
        })
    }
}
