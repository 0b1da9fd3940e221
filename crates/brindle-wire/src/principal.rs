//! Principals: the kinds of callers at the other end of a connection, and sets of them.
//!
//! The table of operations ([`crate::Op::askers`]) says which kinds may ask for each operation. A hello claims a principal; `brindle-net` compares
//! the claim with what the connection proves (certificate, user of a local socket).

use std::fmt;

use brindle_types::{Role, TargetId};
use serde::{Deserialize, Serialize};

use crate::version::{Hello, PeerKind};

/// Kind of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum PrincipalKind {
    /// A mount.
    Client,
    /// A server that serves an MDT.
    Mdt,
    /// A server that serves an OST.
    Ost,
    /// A server that serves the MGT.
    Mgs,
    /// A command of root, or of the servers' own user.
    Administrator,
    /// A command of another user.
    User,
    /// A mover or node agent.
    Agent,
    /// A host without a certificate that means to join.
    Stranger,
}

impl PrincipalKind {
    /// Name in messages, with its article.
    pub fn named(self) -> &'static str {
        match self {
            PrincipalKind::Client => "a mount",
            PrincipalKind::Mdt => "an MDT",
            PrincipalKind::Ost => "an OST",
            PrincipalKind::Mgs => "the MGS",
            PrincipalKind::Administrator => "an administrator",
            PrincipalKind::User => "an ordinary user",
            PrincipalKind::Agent => "an agent",
            PrincipalKind::Stranger => "a host that has not joined",
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principals(u8);

impl Principals {
    /// The set of these kinds.
    pub fn of(kinds: &[PrincipalKind]) -> Principals {
        Principals(kinds.iter().fold(0, |bits, kind| bits | 1 << *kind as u8))
    }

    /// Whether a kind is in it.
    pub fn has(self, kind: PrincipalKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// Whether administrators may ask, and ordinary users and mounts may not.
    pub fn is_administrators_only(self) -> bool {
        self == Principals::of(&[PrincipalKind::Administrator])
    }
}

/// The process at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Kind of the principal.
    pub kind: PrincipalKind,
    /// Name of its host. A session belongs to the host that opened it.
    pub host: String,
    /// The target that it serves, if it is a server.
    pub target: Option<TargetId>,
}

impl Principal {
    /// The principal that a hello claims; a server names its target in the header of the hello. `is_administrator` is what the network
    /// tells: whether the peer is root, or the servers' own user.
    pub fn claimed(hello: &Hello, target: Option<TargetId>, is_administrator: bool) -> Principal {
        let kind = match (hello.kind, target.map(|t| t.role)) {
            (PeerKind::Client, _) => PrincipalKind::Client,
            (PeerKind::Server, Some(Role::Mdt)) => PrincipalKind::Mdt,
            (PeerKind::Server, Some(Role::Ost)) => PrincipalKind::Ost,
            (PeerKind::Server, Some(Role::Mgt)) => PrincipalKind::Mgs,
            (PeerKind::Agent, _) => PrincipalKind::Agent,
            (PeerKind::Tool, _) if is_administrator => PrincipalKind::Administrator,
            // A server that does not say what it serves gets no server's rights.
            (PeerKind::Tool | PeerKind::Server, _) => PrincipalKind::User,
        };
        let target = target.filter(|_| hello.kind == PeerKind::Server);
        Principal { kind, host: hello.host.clone(), target }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target {
            Some(target) => write!(f, "{target}")?,
            None => f.write_str(self.kind.named())?,
        }
        if self.host.is_empty() { Ok(()) } else { write!(f, " on host {}", self.host) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use crate::version::Versions;

    fn hello(kind: PeerKind) -> Hello {
        let (software, host) = ("brindle".to_owned(), "n1".to_owned());
        Hello { versions: Versions::OURS, fs_id: 1, kind, software, host, features: 0 }
    }

    #[test]
    fn only_a_server_that_says_what_it_serves_has_a_servers_rights() {
        let kind = |kind, target, root| Principal::claimed(&hello(kind), target, root).kind;
        assert_eq!(kind(PeerKind::Server, Some(TargetId::mdt(0)), true), PrincipalKind::Mdt);
        assert_eq!(kind(PeerKind::Server, Some(TargetId::ost(3)), true), PrincipalKind::Ost);
        assert_eq!(kind(PeerKind::Server, None, true), PrincipalKind::User);
        assert_eq!(kind(PeerKind::Tool, Some(TargetId::mdt(0)), true), PrincipalKind::Administrator);
        assert_eq!(kind(PeerKind::Tool, None, false), PrincipalKind::User);
        let client = Principal::claimed(&hello(PeerKind::Client), Some(TargetId::mdt(0)), true);
        assert_eq!((client.kind, client.target), (PrincipalKind::Client, None));
        assert_eq!(client.to_string(), "a mount on host n1");
    }

    #[test]
    fn mounts_ask_for_nothing_that_destroys_fences_or_administers() {
        for op in [Op::DestroyObjects, Op::TruncateObject, Op::FenceSession, Op::FenceLayout, Op::FenceTable]
        {
            assert!(!op.askers().has(PrincipalKind::Client), "{op:?}");
            assert!(!op.askers().has(PrincipalKind::User), "{op:?}");
        }
        for op in [Op::ChangePool, Op::ChangeTarget, Op::ChangelogRegister, Op::ChangelogRead] {
            assert!(op.askers().is_administrators_only(), "{op:?}");
        }
        let served = |op: &Op, role| op.is_served_by(role);
        let roles = [Role::Mgt, Role::Mdt, Role::Ost];
        for op in Op::ALL.iter().filter(|op| (**op as u16) < 500 && **op != Op::TargetInfo) {
            assert_eq!(roles.iter().filter(|role| served(op, **role)).count(), 1, "{op:?} has one server");
        }
    }
}
