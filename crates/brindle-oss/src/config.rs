//! Configuration of an OST.

use std::sync::Arc;

use brindle_net::fair::OST_PLACES;
use brindle_objects::{ReadCache, Replies};
use brindle_targets::OwnerLease;
use brindle_targets::replica::Seat;
use brindle_types::Nid;

/// Configuration of an OST.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the formatted OST.
    pub dir: String,
    /// Address to listen at; port 0 chooses a free one.
    pub listen: Nid,
    /// Addresses of further rails to listen at, with the same port.
    pub rails: Vec<Nid>,
    /// Addresses that others reach it at; empty for the one it listens at.
    pub advertise: Vec<Nid>,
    /// Name of this host, for people.
    pub host: String,
    /// Right to answer for the OST; `Some` if the OST lies on a device that two hosts reach.
    pub lease: Option<Arc<OwnerLease>>,
    /// Moment at which a change is answered: [`Replies::Synced`] for an OST that another host may take over.
    pub replies: Replies,
    /// Requests of jobs that are served at once, in turns; `None` for all, as they come.
    pub places: Option<usize>,
    /// Which long reads go through the page cache.
    pub read_cache: ReadCache,
    /// Place in the replica set; `Some` if the OST is a member of one.
    pub seat: Option<Arc<Seat>>,
}

impl Config {
    /// The usual values.
    pub fn new(dir: impl Into<String>, listen: Nid, host: impl Into<String>) -> Config {
        Config {
            dir: dir.into(),
            listen,
            rails: Vec::new(),
            advertise: Vec::new(),
            host: host.into(),
            lease: None,
            replies: Replies::default(),
            places: Some(OST_PLACES),
            read_cache: ReadCache::default(),
            seat: None,
        }
    }
}
