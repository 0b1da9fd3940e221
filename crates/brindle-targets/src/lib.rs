//! The road between processes: how a target is found and asked, and who may ask it.
//!
//! On the asking side [`Directory`] knows where each target is served (it follows the map, [`map_watch`]) and has one
//! [`Caller`] for each: slots ([`slots`]), sending again, waits ([`waits`]). On the answering side [`Gate`] stands in front of every
//! dispatch: it checks the caller, the target, the epochs and the session of each request. [`register`] is a server's registration with
//! the MGS. Clients, servers and commands use nothing else to reach each other.
//!
//! No file-system semantics are here: callers give messages, and a [`caller::Host`] that opens sessions.

pub mod caller;
pub mod directory;
pub mod durability;
mod follow;
pub mod gate;
pub mod limits;
pub mod log_level;
pub mod log_lines;
pub mod map_watch;
pub mod member;
pub mod owner_lease;
pub mod register;
pub mod replica;
pub mod scrub;
pub mod slots;
pub mod waits;

pub use caller::{Caller, Guard, Host, Identity, NoSession, Options};
pub use directory::{Directory, Endpoint, Introduction, Plain};
pub use gate::Gate;
pub use map_watch::MapWatch;
pub use member::{Member, ServedTarget};
pub use owner_lease::{OWNER_LEASE_MS, OwnerLease};
pub use register::Registration;
pub use slots::{SLOTS_MAX, Slot, SlotTable};
pub use waits::{Wait, Waits};
