//! Configuration of an OST.

use std::sync::Arc;

use brindle_objects::Replies;
use brindle_targets::OwnerLease;
use brindle_targets::replica::Seat;
use brindle_types::Nid;

/// How an OST runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the formatted OST.
    pub dir: String,
    /// Where to listen; port 0 chooses a free one.
    pub listen: Nid,
    /// Where to listen too, at the same port: further rails.
    pub rails: Vec<Nid>,
    /// Addresses that others reach it at; empty for the one it listens at.
    pub advertise: Vec<Nid>,
    /// Name of this host, for people.
    pub host: String,
    /// Where the OST lies on a device that two hosts reach: the right to answer for it.
    pub lease: Option<Arc<OwnerLease>>,
    /// When a change is answered: [`Replies::Synced`] for an OST that another host may take over.
    pub replies: Replies,
    /// Where the OST is a member of a replica set: its place there.
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
            seat: None,
        }
    }
}
