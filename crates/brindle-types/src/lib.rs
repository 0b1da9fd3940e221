//! The nouns of Brindle: ids, units, attributes, layouts, faults. No I/O, no behaviour beyond parsing and printing.
//!
//! Every id is a newtype, so that mixing an inode number with an object offset does not compile.

pub mod attr;
pub mod changelog;
pub mod code;
pub mod errno;
pub mod fault;
pub mod hsm;
pub mod ids;
pub mod layout;
pub mod units;

pub use attr::{Attr, FileType};
pub use changelog::{Change, ChangeKind, ChangeMask, ChangeSource};
pub use code::Code;
pub use fault::Fault;
pub use hsm::{ArchivedCopy, HsmControl, HsmKind};
pub use ids::{Fid, FsName, Gen, Ino, Nid, ObjectId, Pair, PoolName, Role, SessionId, TargetId};
pub use layout::{Layout, LayoutPolicy, PoolChoice, Stripe, StripePolicy};

/// The outcome of most operations: the value, or a fault to show.
pub type Result<T> = std::result::Result<T, Fault>;
