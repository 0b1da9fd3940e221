//! Sessions: what makes a request that is sent twice happen once, and the state machines around it.
//!
//! [`caller::Caller`] is the way of every client and server to another server: slots ([`slots`]), sending again, the
//! map ([`map_watch`]), what waits ([`waits`]). [`register`] is a server's registration with the MGS. [`locks`] is the
//! MDT's table of file locks. It knows no file-system semantics: callers give messages, and a [`caller::Host`] that
//! opens sessions.

pub mod caller;
pub mod locks;
pub mod map_watch;
pub mod register;
pub mod slots;
pub mod waits;

pub use caller::{Caller, Host, Identity, NoSession, Options};
pub use map_watch::MapWatch;
pub use register::Registration;
pub use slots::{SLOTS_MAX, Slot, SlotTable};
pub use waits::{Wait, Waits};
