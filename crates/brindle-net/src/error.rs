//! Reasons why a connection, or an attempt to make one, ended.

use std::fmt;
use std::io;

use brindle_types::{Code, Fault, Nid};
use brindle_wire::frame::Header;

/// Reason why a transport could not go on. The connection cannot be used after any of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetError {
    /// Either side has closed the connection.
    Closed,
    /// No process listens at the address.
    Refused,
    /// No answer in time.
    TimedOut,
    /// The address is taken by another process.
    AddressInUse,
    /// The system's reason for anything else.
    Io(String),
    /// The peer sent bytes that cannot be a frame.
    Bad {
        /// The fault of the message.
        fault: Box<Fault>,
        /// The frame's header, where that much was readable.
        header: Option<Box<Header>>,
    },
}

impl NetError {
    /// A bad frame whose header was not readable.
    pub fn bad(fault: Fault) -> NetError {
        NetError::Bad { fault: Box::new(fault), header: None }
    }

    /// A bad frame with a good header.
    pub fn bad_with(fault: Fault, header: Header) -> NetError {
        NetError::Bad { fault: Box::new(fault), header: Some(Box::new(header)) }
    }

    /// Whether one side does not accept what the other proves: trying again changes nothing until somebody does something.
    pub fn is_refusal(&self) -> bool {
        use Code::{BadIdentity, CertificateExpired, ForeignCertificate, Insecure, NotEnrolled};
        let refusals = [BadIdentity, CertificateExpired, ForeignCertificate, Insecure, NotEnrolled];
        matches!(self, NetError::Bad { fault, .. } if refusals.contains(&fault.code))
    }

    /// Fault about the peer at `nid`.
    pub fn fault(&self, nid: &Nid) -> Fault {
        match self {
            NetError::Bad { fault, .. } if fault.subject.is_empty() => {
                (**fault).clone().subject(nid.to_string())
            }
            // The fault is about something of this side, such as the file of its identity.
            NetError::Bad { fault, .. } => (**fault).clone(),
            NetError::AddressInUse => Fault::new(Code::AddressInUse).subject(nid.to_string()),
            other => Fault::new(Code::Disconnected).subject(nid.to_string()).why(other.to_string()),
        }
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetError::Closed => f.write_str("the connection was closed"),
            NetError::Refused => f.write_str("connection refused (the host is up, the service is not)"),
            NetError::TimedOut => f.write_str("no answer in time"),
            NetError::AddressInUse => f.write_str("the address is in use"),
            NetError::Io(why) => f.write_str(why),
            NetError::Bad { fault, .. } => {
                write!(f, "{}", fault.what)?;
                fault.why.iter().try_for_each(|why| write!(f, ": {why}"))
            }
        }
    }
}

impl std::error::Error for NetError {}

impl From<io::Error> for NetError {
    fn from(e: io::Error) -> NetError {
        match e.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                NetError::Closed
            }
            io::ErrorKind::ConnectionRefused => NetError::Refused,
            io::ErrorKind::TimedOut => NetError::TimedOut,
            io::ErrorKind::AddrInUse => NetError::AddressInUse,
            // The received bytes do not decrypt (`tcp/tls.rs`).
            io::ErrorKind::InvalidData => NetError::bad(Fault::new(Code::BadFrame).why(e.to_string())),
            _ => NetError::Io(e.to_string()),
        }
    }
}
