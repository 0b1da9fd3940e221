//! Messages of the MDS, one file per operation or per small family.

pub mod append;
pub mod backup;
pub mod changelog;
pub mod close;
pub mod convert;
pub mod create;
pub mod fences;
pub mod fsync;
pub mod getattr;
pub mod hsm;
pub mod hsm_span;
pub mod inline;
pub mod invalidate;
pub mod link;
pub mod lock;
pub mod lookup;
pub mod migrate;
pub mod mkdir;
pub mod mknod;
pub mod note_access;
pub mod open;
pub mod open_ahead;
pub mod ost_use;
pub mod owner;
pub mod path;
pub mod policy;
pub mod project;
pub mod quota;
pub mod readdir;
pub mod readlink;
pub mod rename;
pub mod replica;
pub mod report;
pub mod rights;
pub mod scan;
pub mod scrub;
pub mod session;
pub mod setattr;
pub mod statfs;
pub mod stripe;
pub mod symlink;
pub mod sync_all;
pub mod tmpfile;
pub mod unlink;
pub mod waits;
pub mod xattr;

use brindle_types::Attr;
use serde::{Deserialize, Serialize};

/// The answer of every operation that makes or finds an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryResp {
    /// Attributes of what the name leads to.
    pub attr: Attr,
}

/// The answer of operations that have nothing to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}
