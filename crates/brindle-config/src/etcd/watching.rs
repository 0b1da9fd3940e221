//! Watches: one task each, which asks one member after the other.

use std::sync::Arc;

use brindle_stdx::watch;
use serde_json::{Value, json};

use super::gateway::{Gateway, encode, number, range_end};
use super::http;
use crate::store::Watch;

/// A member that sends nothing for this long is left for the next one: it may be cut off from the others, and would
/// then be silent for ever.
const SILENT_MAX_MS: u64 = 10_000;
/// Pause after a member that does not answer.
const PAUSE_MS: u64 = 200;

/// A watch of the keys that begin with `prefix`. It also reports a change when it begins, and whenever it may have
/// missed one.
pub(super) fn start(gateway: Arc<Gateway>, prefix: String, alive: watch::Receiver<()>) -> Watch {
    let (sender, receiver) = watch::channel(0);
    let seams = gateway.seams.clone();
    seams.spawn("watch of etcd", follow(gateway, prefix, sender, alive));
    Watch::new(receiver)
}

async fn follow(
    gateway: Arc<Gateway>,
    prefix: String,
    sender: watch::Sender<u64>,
    mut alive: watch::Receiver<()>,
) {
    let mut next = 0;
    for turn in 0.. {
        if sender.is_closed() {
            return;
        }
        let (_, member) = gateway.member(turn);
        let request = create(&prefix, next);
        let bound = || gateway.seams.sleep_ms(SILENT_MAX_MS);
        let call = ("/v3/watch", &request);
        let lines =
            http::lines(member, gateway.tls.as_ref(), call, bound, |line| tell(&line, &sender, &mut next));
        let ended = tokio::select! {
            ended = lines => ended,
            _ = alive.changed() => return,
        };
        if let Err(failure) = ended {
            tracing::debug!("a watch at {member} ended: {failure:?}");
        }
        gateway.seams.sleep_ms(PAUSE_MS).await;
    }
}

fn create(prefix: &str, next: u64) -> Value {
    let mut create = json!({ "key": encode(prefix), "range_end": encode(range_end(prefix)) });
    if next != 0 {
        create["start_revision"] = json!(next.to_string());
    }
    json!({ "create_request": create })
}

/// Takes one message; `false` when the watch must begin again.
fn tell(line: &Value, sender: &watch::Sender<u64>, next: &mut u64) -> bool {
    let result = &line["result"];
    let Ok(revision) = number(&result["header"]["revision"]) else { return false };
    if result["canceled"].as_bool() == Some(true) || !line["error"].is_null() {
        *next = 0;
        return false;
    }
    let begins = result["created"].as_bool() == Some(true) && *next == 0;
    if begins || result["events"].as_array().is_some_and(|events| !events.is_empty()) {
        *next = revision + 1;
        sender.send_replace(revision);
    }
    !sender.is_closed()
}
