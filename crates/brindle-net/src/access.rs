//! Hosts that are not let in any more, although the authority has signed their certificates; and what others may do ([`crate::nodemaps`]).
//!
//! One [`RemovedKeys`] for each process: the process learns from the MGS who was removed, the transport refuses new connections of those hosts,
//! and [`crate::RpcServer`] ends the connections that they have.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use brindle_auth::{KeyId, Proof};
use brindle_stdx::watch;
use brindle_types::{Code, Fault};

use crate::Nodemaps;

/// Keys of removed hosts; it can be waited for that a key becomes one of them.
#[derive(Default)]
pub struct RemovedKeys {
    keys: watch::Sender<Arc<BTreeSet<KeyId>>>,
    /// Keys that this process refuses whatever the cluster says.
    refused: OnceLock<BTreeSet<KeyId>>,
    /// Limits of hosts that are let in.
    pub nodemaps: Arc<Nodemaps>,
}

impl RemovedKeys {
    /// Replaces the set of removed keys.
    pub fn replace(&self, keys: BTreeSet<KeyId>) {
        self.keys.send_if_modified(|now| {
            let differs = **now != keys;
            if differs {
                *now = Arc::new(keys);
            }
            differs
        });
    }

    /// Refuses these keys, too, for as long as the process runs. Call it once, before anybody is let in.
    pub fn refuse(&self, keys: BTreeSet<KeyId>) {
        // A second call changes nothing: nobody is let in again.
        let _ = self.refused.set(keys);
    }

    /// Refuses a host that was removed.
    pub fn check(&self, proof: &Proof) -> Result<(), Fault> {
        if self.refused.get().is_some_and(|refused| refused.contains(&proof.key)) {
            return Err(Fault::new(Code::HostRemoved)
                .what("this file system has removed the host")
                .subject(proof.host.clone())
                .why(format!("its key {} is in the list of keys that are refused here", proof.key)));
        }
        if !self.keys.borrow().contains(&proof.key) {
            return Ok(());
        }
        Err(Fault::new(Code::HostRemoved)
            .what("the cluster has removed the host")
            .subject(proof.host.clone())
            .why(format!("its key {} is in the list of removed hosts", proof.key)))
    }

    /// Completes when the host of this key is removed.
    pub async fn until_removed(&self, key: KeyId) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.keys.subscribe().wait_for(|keys| keys.contains(&key)).await;
    }
}
