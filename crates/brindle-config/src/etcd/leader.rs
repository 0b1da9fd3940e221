//! Leader election between several MGS: the active one holds a key that is bound to a lease.
//!
//! Two checks stand against two leaders. By time: [`Leadership::check`] fails once the lease may have run out, by this
//! host's own clock, counted from before the renewal was sent; an MGS asks it right before each reply. By etcd: every
//! write is a transaction on condition that the key is still the one this leader made.

use std::sync::{Arc, Weak};

use brindle_stdx::{Mono, watch};
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::gateway::{Answer, Gateway, Kv, NOT_FOUND, encode, kvs, number};
use super::{EtcdStore, watching};

/// Lease of the active MGS: after its death another one is active at most this long later.
pub const LEASE_SECONDS: u64 = 4;
/// Interval at which the lease is renewed.
const RENEW_MS: u64 = 1_000;
/// Pause after a renewal that failed.
const RENEW_AGAIN_MS: u64 = 100;
/// Part of the lease that is not used, in thousandths: clocks of two hosts do not run equally fast.
const DRIFT_PER_MILLE: u64 = 50;
/// Longest time between two looks at who leads; a watch tells earlier.
const LOOK_MS: u64 = 1_000;

/// Outcome of an attempt to lead.
pub enum Lead {
    /// The store through which the new leader writes.
    Won(EtcdStore),
    /// Another MGS leads; its name.
    Held(String),
}

/// The right to write and to answer; see the module.
pub struct Leadership {
    gateway: Arc<Gateway>,
    /// Key and the revision that made it.
    key: String,
    created: u64,
    lease: String,
    /// End of the lease by this host's clock; `None` once it has ended, for ever.
    until: Mutex<Option<Mono>>,
    ended: watch::Sender<bool>,
}

pub(super) fn not_leading(leader: Option<String>) -> Fault {
    Fault::new(Code::NotLeading).why(match leader {
        Some(leader) => format!("the active one is {leader}"),
        None => "its lease in the configuration store has ended, or may have".to_owned(),
    })
}

fn end_of_lease(sent: Mono, seconds: u64) -> Mono {
    sent.plus_ms(seconds.saturating_mul(1_000 - DRIFT_PER_MILLE))
}

impl Leadership {
    /// Whether this process leads for certain at this moment.
    pub fn check(&self) -> Result<()> {
        let now = self.gateway.seams.now();
        match *self.until.lock() {
            Some(until) if now < until => Ok(()),
            _ => Err(not_leading(None)),
        }
    }

    /// Completes when the leadership has ended.
    pub async fn ended(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Hands the leadership over at once: for a planned stop.
    pub async fn resign(&self) -> Result<()> {
        self.end();
        match self.gateway.ask("/v3/lease/revoke", &json!({ "ID": self.lease })).await? {
            Answer::Done(_) | Answer::Refused(NOT_FOUND, _) => Ok(()),
            Answer::Refused(code, words) => Err(self.gateway.refused(code, &words)),
        }
    }

    pub(super) fn end(&self) {
        *self.until.lock() = None;
        self.ended.send_replace(true);
    }

    pub(super) fn lease(&self) -> &str {
        &self.lease
    }

    /// Condition of every write.
    pub(super) fn condition(&self) -> Value {
        json!({
            "key": encode(&self.key), "target": "CREATE", "result": "EQUAL",
            "create_revision": self.created.to_string(),
        })
    }

    pub(super) fn is_of(&self, leader: Option<&Kv>) -> bool {
        leader.is_some_and(|leader| leader.created == self.created)
    }

    /// Renews once; `false` when the lease is no more.
    async fn renew(&self) -> Result<bool> {
        let sent = self.gateway.seams.now();
        let answer = self.gateway.ask("/v3/lease/keepalive", &json!({ "ID": self.lease })).await?;
        let seconds = match answer {
            Answer::Done(answer) => number(&answer["result"]["TTL"])?,
            Answer::Refused(NOT_FOUND, _) => 0,
            Answer::Refused(code, words) => return Err(self.gateway.refused(code, &words)),
        };
        if seconds == 0 {
            return Ok(false);
        }
        let mut until = self.until.lock();
        let now = self.gateway.seams.now();
        match &mut *until {
            // A renewal that comes after the end revives nothing: others may have been told that it has ended.
            Some(until) if now < *until => *until = (*until).max(end_of_lease(sent, seconds)),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

async fn keep(leadership: Weak<Leadership>) {
    loop {
        let Some(held) = leadership.upgrade() else { return };
        let seams = held.gateway.seams.clone();
        let left = held.until.lock().map_or(0, |until| until.ms_since(seams.now()));
        let renewed = seams.timeout_ms(left, held.renew()).await;
        let pause = match renewed {
            Some(Ok(true)) => RENEW_MS,
            Some(Err(fault)) if held.check().is_ok() => {
                tracing::warn!(code = %fault.code, "the lease of the active MGS was not renewed: {fault}");
                RENEW_AGAIN_MS
            }
            _ => {
                tracing::warn!(code = %Code::NotLeading, "the lease of the active MGS has ended");
                // Renewals may have arrived whose answers did not: without them the next leader begins sooner.
                if let Err(fault) = held.resign().await {
                    tracing::warn!(code = %fault.code, "the lease is left to run out: {fault}");
                }
                return;
            }
        };
        drop(held);
        seams.sleep_ms(pause).await;
    }
}

impl EtcdStore {
    /// The leadership through which this store writes.
    pub fn leadership(&self) -> Option<&Arc<Leadership>> {
        self.leadership.as_ref()
    }

    /// Name of the active MGS.
    pub async fn leader(&self) -> Result<Option<String>> {
        let found = self.one(&self.leader_key()).await?;
        Ok(found.map(|kv| String::from_utf8_lossy(&kv.value).into_owned()))
    }

    /// Tries to lead under `name`.
    pub async fn try_lead(&self, name: &str) -> Result<Lead> {
        if let Some(leader) = self.leader().await? {
            return Ok(Lead::Held(leader));
        }
        let sent = self.gateway.seams.now();
        let (lease, seconds) = self.gateway.grant(LEASE_SECONDS).await?;
        let key = self.leader_key();
        let encoded = encode(&key);
        let transaction = json!({
            "compare": [{ "key": encoded, "target": "CREATE", "result": "EQUAL", "create_revision": "0" }],
            "success": [{ "request_put": { "key": encoded, "value": encode(name), "lease": lease } }],
            "failure": [{ "request_range": { "key": encoded } }],
        });
        let answer = self.gateway.call("/v3/kv/txn", &transaction).await?;
        let created = if answer["succeeded"].as_bool() == Some(true) {
            number(&answer["header"]["revision"])?
        } else {
            match kvs(&answer["responses"][0]["response_range"])?.pop() {
                // An attempt whose answer was lost has made the key.
                Some(kv) if kv.lease == lease => kv.created,
                found => {
                    self.gateway.ask("/v3/lease/revoke", &json!({ "ID": lease })).await?;
                    let name = found.map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
                    return Ok(Lead::Held(name.unwrap_or_default()));
                }
            }
        };
        let until = Mutex::new(Some(end_of_lease(sent, seconds)));
        let gateway = self.gateway.clone();
        let leadership = Leadership { gateway, key, created, lease, until, ended: watch::Sender::new(false) };
        let leadership = Arc::new(leadership);
        self.gateway.seams.spawn("lease of the MGS", keep(Arc::downgrade(&leadership)));
        Ok(Lead::Won(EtcdStore::over(self.gateway.clone(), self.root.clone(), Some(leadership))))
    }

    /// Waits until this process leads under `name`, through any time in which etcd does not answer.
    pub async fn lead(&self, name: &str) -> EtcdStore {
        let mut changes = watching::start(self.gateway.clone(), self.leader_key(), self.alive.subscribe());
        loop {
            match self.try_lead(name).await {
                Ok(Lead::Won(store)) => return store,
                Ok(Lead::Held(leader)) => tracing::debug!("{leader} is the active MGS"),
                Err(fault) => tracing::warn!(code = %fault.code, "this MGS cannot become active: {fault}"),
            }
            self.gateway.seams.timeout_ms(LOOK_MS, changes.changed()).await;
        }
    }
}
