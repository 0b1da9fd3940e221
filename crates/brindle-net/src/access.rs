//! Hosts that are refused although the authority has signed their certificates, because they were removed. [`crate::nodemaps`] says what
//! other hosts may do.
//!
//! One [`RemovedKeys`] for each process: the process learns from the MGS who was removed, the transport refuses new connections of those hosts,
//! and [`crate::RpcServer`] ends the connections that they have.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use brindle_auth::{KeyId, Proof};
use brindle_stdx::watch;
use brindle_types::{Code, Fault};

use crate::Nodemaps;

/// Keys of removed hosts. A task can wait until a key becomes one of them.
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
        let keys = self.keys.borrow();
        if keys.contains(&proof.key.under_name(&proof.host)) {
            return Err(Fault::new(Code::HostRenamed)
                .what("the host goes by another name now; the former one is not let in:")
                .subject(proof.host.clone()));
        }
        if !keys.contains(&proof.key) {
            return Ok(());
        }
        Err(Fault::new(Code::HostRemoved)
            .what("the cluster has removed the host")
            .subject(proof.host.clone())
            .why(format!("its key {} is in the list of removed hosts", proof.key)))
    }

    /// Whether the host behind a proof went by this name before it was renamed, and the name is refused now.
    pub fn is_former_name(&self, proof: &Proof, host: &str) -> bool {
        proof.host != host && self.keys.borrow().contains(&proof.key.under_name(host))
    }

    /// Completes when the host is removed, or has to go by another name.
    pub async fn until_removed(&self, proof: &Proof) {
        let former = proof.key.under_name(&proof.host);
        let is_out = |keys: &Arc<BTreeSet<KeyId>>| keys.contains(&proof.key) || keys.contains(&former);
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.keys.subscribe().wait_for(is_out).await;
    }
}

#[cfg(test)]
mod tests {
    use brindle_auth::{HostRole, Mode, Roles};

    use super::*;

    #[test]
    fn a_former_name_of_a_key_is_refused_and_its_present_one_is_not() {
        let key = KeyId([7; 32]);
        let proof = |host: &str, key: KeyId| Proof {
            host: host.to_owned(),
            roles: Roles::of(&[HostRole::Server]),
            key,
            mode: Mode::Auth,
        };
        let removed = RemovedKeys::default();
        removed.replace(BTreeSet::from([key.under_name("oss1")]));
        let code = |proof: Proof| removed.check(&proof).err().map(|fault| fault.code);
        assert_eq!(code(proof("oss1", key)), Some(Code::HostRenamed));
        assert_eq!(code(proof("oss2", key)), None);
        assert_eq!(code(proof("oss1", KeyId([8; 32]))), None, "another host may have the name");
        assert!(removed.is_former_name(&proof("oss2", key), "oss1"));
        let others = [(proof("oss2", key), "oss3"), (proof("oss1", key), "oss1")];
        let stranger = (proof("oss2", KeyId([8; 32])), "oss1");
        assert!(
            others.into_iter().chain([stranger]).all(|(proof, host)| !removed.is_former_name(&proof, host))
        );
        removed.replace(BTreeSet::from([key]));
        assert_eq!(code(proof("oss2", key)), Some(Code::HostRemoved));
    }
}
