//! Tiering outside of the servers: archives, and the agent that moves files between them and the file system (design note 028).
//!
//! [`archive`] is an archive: in a directory, in the layout of Lustre's `lhsmtool_posix`, or in a bucket of an S3 server (note 035).
//! [`agent`] takes work from the MDT and carries it out with a client of its own; no mount is needed. `brindle agent` runs it. [`policy`]
//! scans the MDT by a policy text and requests the actions that follow (design note 033); `brindle policy` runs it. [`import`] makes files
//! again from an archive alone.

pub mod agent;
pub mod archive;
mod attempts;
mod copy;
mod divided;
pub mod import;
mod order;
mod pace;
pub mod policy;
mod restore;
mod span;
mod streams;

pub use agent::{Agent, Settings};
pub use archive::Archive;
pub use archive::posix::{Directory, Layout};
