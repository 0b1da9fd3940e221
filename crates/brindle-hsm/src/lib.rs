//! Tiering outside of the servers: archives, and the agent that moves files between them and the file system (design note 028).
//!
//! [`archive`] is an archive in a directory, in the layout of Lustre's `lhsmtool_posix`. [`agent`] takes work from the MDT and carries it
//! out with a client of its own; no mount is needed. `brindle agent` runs it.

pub mod agent;
pub mod archive;
mod attempts;
mod copy;
mod pace;

pub use agent::{Agent, Settings};
pub use archive::{Archive, Layout};
