//! The config store in etcd, over its JSON gateway: the configuration of a cluster that survives the death of any
//! host.
//!
//! Keys lie below a root: `<root>c/` holds the configuration, `<root>leader` names the active MGS, `<root>w/<writer>`
//! notes the last write of each writer. The note makes a write exact: a call that was not answered is repeated at
//! another member, and the note tells whether the first one was done. A note goes with its writer's lease.
//!
//! Invariants: a read sees every write that ended before it (etcd asks its majority); a write of a store that leads is
//! done only while its leadership key exists ([`Leadership`]), whatever this process believes.

mod address;
mod gateway;
mod http;
mod leader;
pub mod settings;
mod watching;

use std::sync::Arc;

use brindle_stdx::{BoxFuture, Seams, watch};
use brindle_types::{Code, Fault, Result};
use serde_json::{Value, json};
use tokio::sync::Mutex;

pub use address::{Address, ENDPOINTS_MAX, Endpoint, PORT_DEFAULT, TlsFiles};
pub use gateway::MEMBER_ANSWERS_MS;
pub use leader::{LEASE_SECONDS, Lead, Leadership};

use crate::store::{ConfigStore, Entry, Swap, Watch, Write, check_writes};
use gateway::{Answer, Gateway, Kv, encode, kvs, number, range_end};

/// Most bytes that are written at once: etcd takes 1.5 MiB in one transaction.
pub const VALUE_MAX_BYTES: usize = 1 << 20;
/// Time for which a store that does not lead keeps the note of a write, in seconds.
const NOTE_SECONDS: u64 = 120;
/// Attempts at one write while earlier writes of the same store, thought lost, still arrive.
const ATTEMPTS_MAX: usize = 8;

/// The store; see the module.
pub struct EtcdStore {
    gateway: Arc<Gateway>,
    root: String,
    /// Name of this writer among all.
    writer: String,
    note: Mutex<Note>,
    leadership: Option<Arc<Leadership>>,
    /// Ends the watches when the store is dropped.
    alive: watch::Sender<()>,
}

/// The writer's note, as far as its writer knows it.
#[derive(Default)]
struct Note {
    /// Revision that wrote the note, 0 if there is no note; `None` after a write whose end is unknown.
    revision: Option<u64>,
    /// Writes so far.
    count: u64,
}

/// Outcome of a transaction.
enum Outcome {
    Swapped(Swap),
    /// An earlier write of this store was done after all; the note's revision.
    Overtaken(u64),
}

impl EtcdStore {
    /// The store below `root` (such as `brindle/`) in the etcd at `address`. Asks nothing yet.
    pub fn new(seams: Seams, address: Address, tls: Option<&TlsFiles>, root: &str) -> Result<EtcdStore> {
        if root.is_empty() || !root.is_ascii() {
            return Err(Fault::new(Code::BadArgument).subject(root.to_owned()).why("it is no root of keys"));
        }
        let gateway = Arc::new(Gateway::new(seams, address, tls)?);
        Ok(EtcdStore::over(gateway, root.to_owned(), None))
    }

    fn over(gateway: Arc<Gateway>, root: String, leadership: Option<Arc<Leadership>>) -> EtcdStore {
        let rng = &gateway.seams.rng;
        let writer = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let alive = watch::Sender::new(());
        EtcdStore { gateway, root, writer, note: Mutex::default(), leadership, alive }
    }

    fn key(&self, key: &str) -> String {
        format!("{}c/{key}", self.root)
    }

    fn note_key(&self) -> String {
        format!("{}w/{}", self.root, self.writer)
    }

    fn leader_key(&self) -> String {
        format!("{}leader", self.root)
    }

    fn entry(&self, kv: Kv) -> Entry {
        let prefix = self.key("").len();
        Entry { key: kv.key[prefix..].to_owned(), version: kv.modified, value: kv.value }
    }

    async fn one(&self, key: &str) -> Result<Option<Kv>> {
        Ok(self.gateway.range(&json!({ "key": encode(key) })).await?.pop())
    }

    async fn below(&self, prefix: &str) -> Result<Vec<Entry>> {
        let prefix = self.key(prefix);
        let range = json!({ "key": encode(&prefix), "range_end": encode(range_end(&prefix)) });
        let found = self.gateway.range(&range).await?;
        Ok(found.into_iter().map(|kv| self.entry(kv)).collect())
    }

    async fn make(&self, writes: Vec<Write>) -> Result<Swap> {
        check_writes(&writes)?;
        let subject = writes.first().map(|write| write.key.clone()).unwrap_or_default();
        let bytes: usize = writes.iter().map(|write| write.value.as_ref().map_or(0, Vec::len)).sum();
        if bytes > VALUE_MAX_BYTES {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot write the configuration")
                .subject(subject)
                .why(format!("it has {bytes} bytes, {VALUE_MAX_BYTES} are possible")));
        }
        let mut note = self.note.lock().await;
        let lease = match &self.leadership {
            Some(leadership) => {
                leadership.check()?;
                leadership.lease().to_owned()
            }
            None => self.gateway.grant(NOTE_SECONDS).await?.0,
        };
        note.count += 1;
        let nonce = note.count.to_string();
        for _ in 0..ATTEMPTS_MAX {
            let known = match note.revision.take() {
                Some(revision) => revision,
                None => self.one(&self.note_key()).await?.map_or(0, |kv| kv.modified),
            };
            let transaction = self.transaction(&writes, known, (&nonce, &lease));
            match self.commit(&transaction, &writes, (known, &nonce)).await? {
                Outcome::Swapped(swap) => {
                    note.revision = Some(if let Swap::Done(revision) = swap { revision } else { known });
                    return Ok(swap);
                }
                Outcome::Overtaken(revision) => note.revision = Some(revision),
            }
        }
        Err(Fault::new(Code::Overloaded)
            .what("cannot write the configuration")
            .subject(subject)
            .why(format!("{ATTEMPTS_MAX} earlier writes arrived meanwhile")))
    }

    fn transaction(&self, writes: &[Write], known: u64, (nonce, lease): (&str, &str)) -> Value {
        let note = encode(self.note_key());
        let at = |key: &str, revision: u64| json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() });
        let mut compare = vec![at(&note, known)];
        let (mut success, read) = (Vec::new(), |key: &str| json!({ "request_range": { "key": key } }));
        let mut failure = vec![read(&note), read(&encode(self.leader_key()))];
        for Write { key, expected_version, value } in writes {
            let key = encode(self.key(key));
            compare.push(at(&key, *expected_version));
            failure.push(read(&key));
            success.push(match value {
                Some(value) => json!({ "request_put": { "key": key, "value": encode(value) } }),
                None => json!({ "request_delete_range": { "key": key } }),
            });
        }
        success.push(json!({ "request_put": { "key": note, "value": encode(nonce), "lease": lease } }));
        compare.extend(self.leadership.as_ref().map(|leadership| leadership.condition()));
        json!({ "compare": compare, "success": success, "failure": failure })
    }

    async fn commit(
        &self,
        transaction: &Value,
        writes: &[Write],
        (known, nonce): (u64, &str),
    ) -> Result<Outcome> {
        let answer = match self.gateway.ask("/v3/kv/txn", transaction).await? {
            Answer::Done(answer) => answer,
            Answer::Refused(gateway::NOT_FOUND, _) if self.leadership.is_some() => {
                return Err(self.deposed(None));
            }
            Answer::Refused(code, words) => return Err(self.gateway.refused(code, &words)),
        };
        if answer["succeeded"].as_bool() == Some(true) {
            return Ok(Outcome::Swapped(Swap::Done(number(&answer["header"]["revision"])?)));
        }
        let read = |index: usize| -> Result<Option<Kv>> {
            Ok(kvs(&answer["responses"][index]["response_range"])?.pop())
        };
        let (note, leader) = (read(0)?, read(1)?);
        let noted = note.as_ref().map_or(0, |note| note.modified);
        if let Some(note) = note.filter(|note| note.modified != known && note.value == nonce.as_bytes()) {
            // An attempt whose answer was lost has written the value.
            return Ok(Outcome::Swapped(Swap::Done(note.modified)));
        }
        if let Some(leadership) = &self.leadership
            && !leadership.is_of(leader.as_ref())
        {
            return Err(self.deposed(leader.as_ref()));
        }
        if noted != known {
            return Ok(Outcome::Overtaken(noted));
        }
        for (index, write) in writes.iter().enumerate() {
            let now = read(index + 2)?.map_or(0, |kv| kv.modified);
            if now != write.expected_version {
                return Ok(Outcome::Swapped(Swap::Lost(now)));
            }
        }
        Err(Fault::new(Code::Bug).why("etcd refused a write whose conditions hold"))
    }

    /// Notes that this MGS does not lead any more. Returns the fault that says so.
    fn deposed(&self, leader: Option<&Kv>) -> Fault {
        if let Some(leadership) = &self.leadership {
            leadership.end();
        }
        leader::not_leading(leader.map(|kv| String::from_utf8_lossy(&kv.value).into_owned()))
    }
}

impl ConfigStore for EtcdStore {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(async move { Ok(self.one(&self.key(key)).await?.map(|kv| self.entry(kv))) })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(self.below(prefix))
    }

    fn swap_all(&self, writes: Vec<Write>) -> BoxFuture<'_, Result<Swap>> {
        Box::pin(self.make(writes))
    }

    fn watch(&self, prefix: &str) -> Watch {
        watching::start(self.gateway.clone(), self.key(prefix), self.alive.subscribe())
    }
}

#[cfg(test)]
mod tests;
