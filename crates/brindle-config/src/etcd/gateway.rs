//! Calls to whichever member of etcd answers, and the forms of its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Result};
use rustls::ClientConfig;
use serde_json::{Value, json};

use super::address::{Address, Endpoint, TlsFiles};
use super::http::{self, Failure};

/// Longest time that one member has to answer before the next one is asked.
pub const MEMBER_ANSWERS_MS: u64 = 1_000;
/// Number of rounds over all members before the store counts as unreachable. A member that has just been
/// elected, or was starting, answers in the second round.
const ROUNDS: usize = 2;
/// Number of gRPC for "no such lease".
pub(super) const NOT_FOUND: u64 = 5;

/// The members, and which of them answered last.
pub(super) struct Gateway {
    pub(super) seams: Seams,
    pub(super) tls: Option<Arc<ClientConfig>>,
    address: Address,
    preferred: AtomicUsize,
}

/// Outcome of a call that some member answered.
pub(super) enum Answer {
    /// Done.
    Done(Value),
    /// etcd refused the call: the status of gRPC, and the reason.
    Refused(u64, String),
}

impl Gateway {
    pub(super) fn new(seams: Seams, address: Address, tls: Option<&TlsFiles>) -> Result<Gateway> {
        let tls = tls.map(http::tls).transpose()?;
        Ok(Gateway { seams, tls, address, preferred: AtomicUsize::new(0) })
    }

    /// The `n`th member, counted on from the one that answered last.
    pub(super) fn member(&self, n: usize) -> (usize, &Endpoint) {
        let index = (self.preferred.load(Ordering::Relaxed) + n) % self.address.endpoints.len();
        (index, &self.address.endpoints[index])
    }

    /// Asks the members in turn until one answers. A call may have been done by a member that did not answer in time,
    /// and be done again by the next.
    pub(super) async fn ask(&self, path: &str, body: &Value) -> Result<Answer> {
        let members = self.address.endpoints.len();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut reasons: Vec<String> = Vec::new();
        for n in 0..members * ROUNDS {
            let index = (first + n) % members;
            let endpoint = &self.address.endpoints[index];
            let call = http::call(endpoint, self.tls.as_ref(), path, body);
            let reason = match self.seams.timeout_ms(MEMBER_ANSWERS_MS, call).await {
                Some(Ok(value)) => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return Ok(Answer::Done(value));
                }
                Some(Err(Failure::Refused(code, words))) => return Ok(Answer::Refused(code, words)),
                Some(Err(Failure::Elsewhere(words))) => words,
                None => format!(
                    "no answer within {MEMBER_ANSWERS_MS} ms; it hangs, or its cluster has lost the majority"
                ),
            };
            if n >= members * (ROUNDS - 1) {
                reasons.push(format!("{endpoint}: {reason}"));
            }
        }
        let fault = Fault::new(Code::StoreUnreachable).subject(self.address.to_string());
        let fault = fault.data("files are read and written as before; the configuration stays as it is");
        Err(reasons.into_iter().fold(fault, Fault::why))
    }

    /// Asks, where a refusal is an error.
    pub(super) async fn call(&self, path: &str, body: &Value) -> Result<Value> {
        match self.ask(path, body).await? {
            Answer::Done(value) => Ok(value),
            Answer::Refused(code, words) => Err(self.refused(code, &words)),
        }
    }

    pub(super) fn refused(&self, code: u64, words: &str) -> Fault {
        Fault::new(Code::StoreUnreachable)
            .what("etcd refuses the request")
            .subject(self.address.to_string())
            .why(format!("{words} (status {code})"))
    }

    /// A new lease of `seconds`: its number, and how long etcd grants it.
    pub(super) async fn grant(&self, seconds: u64) -> Result<(String, u64)> {
        let answer = self.call("/v3/lease/grant", &json!({ "TTL": seconds.to_string() })).await?;
        let id = answer["ID"].as_str().ok_or_else(|| unexpected("a lease without a number"))?;
        Ok((id.to_owned(), number(&answer["TTL"])?))
    }

    /// The pairs of keys and values that `range` asks for.
    pub(super) async fn range(&self, range: &Value) -> Result<Vec<Kv>> {
        kvs(&self.call("/v3/kv/range", range).await?)
    }
}

/// A key with its value and its history.
pub(super) struct Kv {
    pub(super) key: String,
    pub(super) created: u64,
    pub(super) modified: u64,
    pub(super) lease: String,
    pub(super) value: Vec<u8>,
}

pub(super) fn unexpected(what: &str) -> Fault {
    Fault::new(Code::StoreUnreachable)
        .what("etcd gives an answer that is not understood")
        .why(what.to_owned())
        .next("Brindle needs etcd 3.4 or newer")
}

/// A 64-bit number, which the gateway writes as a string and leaves away when it is 0.
pub(super) fn number(value: &Value) -> Result<u64> {
    match value {
        Value::Null => Ok(0),
        Value::String(text) => text.parse().map_err(|_| unexpected(&format!("'{text}' is no number"))),
        other => Err(unexpected(&format!("'{other}' is no number"))),
    }
}

pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

fn decode(value: &Value) -> Result<Vec<u8>> {
    let text = value.as_str().unwrap_or_default();
    STANDARD.decode(text).map_err(|e| unexpected(&format!("a value is not base64: {e}")))
}

/// The pairs in an answer to a range.
pub(super) fn kvs(answer: &Value) -> Result<Vec<Kv>> {
    let Some(found) = answer["kvs"].as_array() else { return Ok(Vec::new()) };
    let read = |kv: &Value| {
        let key = String::from_utf8(decode(&kv["key"])?).map_err(|_| unexpected("a key is not text"))?;
        Ok(Kv {
            key,
            created: number(&kv["create_revision"])?,
            modified: number(&kv["mod_revision"])?,
            lease: kv["lease"].as_str().unwrap_or_default().to_owned(),
            value: decode(&kv["value"])?,
        })
    };
    found.iter().map(read).collect()
}

/// The end of the range of keys that begin with `prefix`, which is ASCII and not empty.
pub(super) fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
