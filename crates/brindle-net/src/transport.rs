//! The seam between remote calls and the network: frames in order over connections that may break.
//!
//! Implemented over TCP here and simulated in the testkit. A connection delivers frames in order, each at most once
//! and whole, until it breaks. Frames in flight at that moment may or may not arrive.

use std::sync::Arc;

use brindle_auth::{HostRole, Mode, Proof};
use brindle_stdx::BoxFuture;
use brindle_types::{Code, Fault, Nid, TargetId};
use brindle_wire::earlier::Protocols;
use brindle_wire::frame::Frame;
use brindle_wire::principal::{Principal, PrincipalKind};
use brindle_wire::version::Hello;

use crate::{NetError, RemovedKeys};

/// Makes and accepts connections.
pub trait Transport: Send + Sync {
    /// Connects to a listener; bounded in time.
    fn connect(&self, nid: &Nid) -> BoxFuture<'static, Result<Connection, NetError>>;
    /// Listens at an address; port 0 chooses a free one ([`Listener::local_nid`] tells it).
    fn listen(&self, nid: &Nid) -> BoxFuture<'static, Result<Box<dyn Listener>, NetError>>;
    /// The hosts that this process lets in no more; `None` where hosts prove nothing.
    fn removed_keys(&self) -> Option<Arc<RemovedKeys>> {
        None
    }
    /// Versions of the protocol that both ends of its connections may speak.
    fn protocols(&self) -> Protocols {
        Protocols::OURS
    }
    /// Whether connections are accepted over the network that prove nothing (mode `none`).
    fn accepts_anybody(&self) -> bool {
        false
    }
}

/// An address that connections arrive at; closed when dropped.
pub trait Listener: Send {
    /// The address, with the port that was chosen.
    fn local_nid(&self) -> Nid;
    /// The next connection. An error concerns one attempt only, and the caller may go on.
    fn accept(&mut self) -> BoxFuture<'_, Result<Connection, NetError>>;
}

/// The process at the other end, as far as this side knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process of this machine that runs as this user.
    User {
        /// The user.
        uid: u32,
        /// Whether this server runs as the same user.
        is_own: bool,
    },
    /// A process of a host, over TCP.
    Host {
        /// The port that the process calls from. Only root may use ports below [`RESERVED_PORTS`] there.
        port: u16,
        /// Host that has proven itself; `None` where the network asks for no proof.
        proof: Option<Arc<Proof>>,
    },
    /// A process of a host that has no certificate yet, inside TLS: it may join, and nothing else.
    Stranger,
    /// A process whose requests are all answered with this fault.
    Refused(Box<Fault>),
    /// The own side has made the connection, and knows whom to; or the connection is simulated.
    Known,
}

/// Ports below this are root's, on every Linux whose `net.ipv4.ip_unprivileged_port_start` was left alone.
pub const RESERVED_PORTS: u16 = 1024;

impl Caller {
    /// Reason why the caller may not send requests that are for administrators; `None` if it may. The
    /// server's own user may: the server's files are his.
    pub fn is_no_administrator(&self) -> Option<String> {
        match self {
            Caller::User { uid: 0, .. } | Caller::User { is_own: true, .. } | Caller::Known => None,
            Caller::User { uid, .. } => Some(format!("user {uid} is not root")),
            Caller::Host { proof: Some(proof), .. } if proof.roles.has(HostRole::Admin) => None,
            Caller::Host { proof: Some(proof), .. } => {
                Some(format!("host {} has joined as {}, not as admin", proof.host, proof.roles))
            }
            Caller::Host { port, .. } if *port < RESERVED_PORTS => None,
            Caller::Host { port, .. } => Some(format!(
                "the request came from port {port}; root's commands come from one below {RESERVED_PORTS}"
            )),
            Caller::Stranger | Caller::Refused(_) => Some("the caller has proven nothing".to_owned()),
        }
    }

    /// The principal that a hello claims, as far as the caller may be it; a server names its target in the header of the hello.
    pub fn principal(&self, hello: &Hello, target: Option<TargetId>) -> Result<Principal, Fault> {
        let claimed = Principal::claimed(hello, target, self.is_no_administrator().is_none());
        match self {
            Caller::Known | Caller::Host { proof: None, .. } => Ok(claimed),
            Caller::User { uid: 0, .. } | Caller::User { is_own: true, .. } => Ok(claimed),
            Caller::User { uid, .. } if claimed.kind != PrincipalKind::User => Err(not_this(
                &claimed,
                format!("it runs as user {uid}; daemons run as root, or as the servers' user"),
            )),
            Caller::User { .. } => Ok(claimed),
            Caller::Stranger => {
                Ok(Principal { kind: PrincipalKind::Stranger, host: hello.host.clone(), target: None })
            }
            Caller::Refused(fault) => Err((**fault).clone()),
            Caller::Host { proof: Some(proof), .. } => proven(proof, claimed),
        }
    }
}

/// The principal that a host with this proof may be, or a refusal.
fn proven(proof: &Proof, claimed: Principal) -> Result<Principal, Fault> {
    use HostRole::{Admin, Agent, Client, Server};
    let may = match claimed.kind {
        PrincipalKind::Client => [Client, Server, Admin].iter().any(|role| proof.roles.has(*role)),
        PrincipalKind::Mdt | PrincipalKind::Ost | PrincipalKind::Mgs => proof.roles.has(Server),
        // The daemon of a server host is an agent, too: it asks what the host is to serve.
        PrincipalKind::Agent => [Agent, Server].iter().any(|role| proof.roles.has(*role)),
        PrincipalKind::Administrator | PrincipalKind::User | PrincipalKind::Stranger => true,
    };
    let claimed = Principal { host: proof.host.clone(), ..claimed };
    if !may {
        return Err(not_this(&claimed, format!("the host has joined as {}", proof.roles)));
    }
    let is_a_mount = claimed.kind == PrincipalKind::Client;
    if !is_a_mount && proof.mode != Mode::Privacy {
        return Err(Fault::new(Code::Insecure)
            .subject(claimed.to_string())
            .why(format!("the connection is in mode {}", proof.mode))
            .why("servers and administrators talk inside TLS only"));
    }
    Ok(claimed)
}

fn not_this(claimed: &Principal, why: String) -> Fault {
    Fault::new(Code::NotForCaller)
        .what("refused: the caller is not")
        .subject(claimed.to_string())
        .why(why)
        .data("nothing was changed")
}

/// One connection as two independent halves. Dropping `tx` tells the other side, after the frames that were sent,
/// that no more come; dropping both closes the connection.
pub struct Connection {
    /// Address of the other side, for messages.
    pub peer: Nid,
    /// The process at the other end.
    pub caller: Caller,
    /// Sends.
    pub tx: Box<dyn FrameTx>,
    /// Receives.
    pub rx: Box<dyn FrameRx>,
    /// State of the delivery of frames; `None` where a lost host is noticed in another way.
    pub delivery: Option<Box<dyn Delivery>>,
}

/// State of delivery, from the network layers below a connection.
pub trait Delivery: Send {
    /// Time for which the kernel of the other host has acknowledged nothing that was sent, in milliseconds; 0
    /// while nothing is under way.
    fn unacknowledged_ms(&self) -> u64;
}

/// The sending half.
pub trait FrameTx: Send {
    /// Hands frames to the network in order; waits while the other side does not read. After an error, or when the
    /// future was dropped before it completed, the connection is of no more use.
    fn send(&mut self, frames: Vec<Frame>) -> BoxFuture<'_, Result<(), NetError>>;

    /// Whether [`FrameTx::try_send`] may be used.
    fn is_direct(&self) -> bool {
        false
    }

    /// Takes frames without waiting, and hands as much to the network as it takes at this moment; whether that was
    /// everything. The rest is sent by the next call, before its own frames: [`FrameTx::send`], with none, waits for it.
    fn try_send(&mut self, frames: Vec<Frame>) -> Result<bool, NetError> {
        drop(frames);
        Err(NetError::Closed)
    }
}

/// The receiving half.
pub trait FrameRx: Send {
    /// The next frame, with its lengths and checksums verified and bulk in one aligned piece. When the future is
    /// dropped before it completes, the connection is of no more use.
    fn recv(&mut self) -> BoxFuture<'_, Result<Frame, NetError>>;
}
