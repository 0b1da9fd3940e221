//! Rails: a host with addresses in several networks is reached over each of them (note 040).
//!
//! A peer with [`super::PeerConfig::each_rail`] keeps a connection to each address. A request goes where the fewest bytes are under way. A
//! rail that was cut is silent. It counts as dead when the other kernel has acknowledged nothing for [`DEAD_AFTER_MS`]. While a request
//! waits and nothing arrives, the peer sends a small probe, which that kernel must acknowledge.
//!
//! Invariant: a host whose processes are busy or stopped keeps its rails, because its kernel acknowledges all the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_stdx::{Mono, watch};
use brindle_types::{Code, Fault, Nid, TargetId};
use brindle_wire::Op;
use brindle_wire::frame::{Frame, Header, Kind, Priority, decode_body, encode_body};
use brindle_wire::mds::session::TargetInfoReq;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::{Credits, Inner, Link, LinkState, PeerConfig};
use crate::NetError;
use crate::transport::Delivery;

/// Most rails of a host that are used.
pub const RAILS_MAX: usize = 4;
/// Interval between two looks at a connection with a request under way.
const LOOK_EVERY_MS: u64 = 50;
/// A probe is sent when a request has waited this long and nothing was heard.
const PROBE_AFTER_MS: u64 = 200;
/// After each question that is answered the next one follows after twice the time, up to this: the request only takes long.
const PROBE_PAUSE_MAX_MS: u64 = 2_000;
/// The MGS holds requests until there is something to tell, and is in no data path.
const PROBE_MGS_AFTER_MS: u64 = 2_000;
/// A rail on which nothing was acknowledged for this long is dead. Longer than two retransmissions of a packet that got
/// lost.
const DEAD_AFTER_MS: u64 = 500;
/// An address that leads to another target gets no requests for this long, if there is another address.
const WRONG_MS: u64 = 30_000;
/// Longest pause between attempts to connect over a rail that never was up, while another one is.
const NEVER_UP_BACKOFF_MAX_MS: u64 = 30_000;

/// Addresses that a connection may be made to.
pub(super) fn addresses<'a>(config: &PeerConfig, index: usize, nids: &'a [Nid]) -> &'a [Nid] {
    match config.each_rail {
        true => nids.get(index..=index).unwrap_or_default(),
        false => nids,
    }
}

/// Addresses by host: those that follow each other in different networks are of one.
pub(super) fn hosts<'a, 'n>(order: &'a [&'n Nid]) -> Vec<&'a [&'n Nid]> {
    let mut hosts = Vec::new();
    let mut first = 0;
    for n in 1..=order.len() {
        let ends = order.get(n).is_none_or(|nid| order[first..n].iter().any(|other| other.rail == nid.rail));
        if ends {
            hosts.push(&order[first..n]);
            first = n;
        }
    }
    hosts
}

/// The connection with the fewest bytes under way; waits until there is one. A connection that leads to another target comes
/// last. Fails when there is none and a server refuses this host.
pub(super) async fn least_busy(inner: &Inner) -> Result<Arc<Link>, Fault> {
    let mut changes = inner.changes.subscribe();
    loop {
        changes.borrow_and_update();
        let now = inner.seams.now();
        let rank = |link: &Link| (link.leads_elsewhere(now), link.load());
        let (mut best, mut refusal): (Option<Arc<Link>>, _) = (None, None);
        for state in &inner.links {
            match &*state.borrow() {
                LinkState::Up(link) if !link.down.is_set() => {
                    if best.as_ref().is_none_or(|best| rank(link) < rank(best)) {
                        best = Some(link.clone());
                    }
                }
                LinkState::Refused(fault) => refusal = Some(fault.clone()),
                LinkState::Stopped => return Err(super::stopped()),
                LinkState::Up(_) | LinkState::Connecting => {}
            }
        }
        match (best, refusal) {
            (Some(link), _) => return Ok(link),
            (None, Some(fault)) => return Err(fault),
            (None, None) => changes.changed().await.map_err(|_| super::stopped())?,
        }
    }
}

/// Takes in what an answer says of the connection that it came over.
pub(super) fn note_answer(inner: &Inner, link: &Link, reply: &Frame) {
    if !inner.config.each_rail || reply.body.first() != Some(&1) {
        return;
    }
    let Ok(Err(fault)) = decode_body::<Result<(), Fault>>(reply.outcome()) else { return };
    if fault.code == Code::WrongTarget && link.wrong_since.lock().replace(inner.seams.now()).is_none() {
        tracing::warn!(nid = %link.info.nid, "another target answers here, this address is left out: {fault}");
    }
}

/// Whether another connection exists, over another rail, than that of `generation` (0: than none).
fn is_another_up(inner: &Inner, generation: u64) -> bool {
    let is_other = |state: &watch::Sender<LinkState>| match &*state.borrow() {
        LinkState::Up(link) => !link.down.is_set() && link.info.generation != generation,
        _ => false,
    };
    inner.config.each_rail && inner.links.iter().any(is_other)
}

/// A longer pause before another attempt to connect over a rail that never was up, while another one is.
pub(super) async fn pause_never_up(inner: &Inner, failures: u32) {
    let mut changes = inner.changes.subscribe();
    let ms = (super::BACKOFF_MAX_MS << failures.saturating_sub(1).min(16)).min(NEVER_UP_BACKOFF_MAX_MS);
    let alone = async { while is_another_up(inner, 0) && changes.changed().await.is_ok() {} };
    let _ = inner.seams.timeout_ms(ms, alone).await;
}

impl Link {
    /// Whether another target has answered a request, and no newer map has come since.
    fn leads_elsewhere(&self, now: Mono) -> bool {
        self.wrong_since.lock().is_some_and(|since| now.ms_since(since) < WRONG_MS)
    }

    /// Bytes under way, in units of credit, then requests.
    fn load(&self) -> (usize, usize) {
        let bytes = (self.bytes_units_max as usize).saturating_sub(self.bytes.available_permits());
        (bytes, self.pending.lock().as_ref().map_or(0, std::collections::BTreeMap::len))
    }

    /// Whether requests can go on over another rail. A peer with one connection makes it anew over another rail.
    fn has_elsewhere(&self, inner: &Inner) -> bool {
        !inner.config.each_rail || is_another_up(inner, self.info.generation)
    }

    fn is_idle(&self) -> bool {
        self.pending.lock().as_ref().is_none_or(std::collections::BTreeMap::is_empty)
    }

    /// Asks the target how it is. `None` where as many such questions are under way as the server takes.
    fn probe(&self, inner: &Inner, target: TargetId) -> Option<Probe> {
        let request = self.high.clone().try_acquire_owned().ok()?;
        let credits = Credits { _request: request, _bytes: None };
        let header = Header {
            kind: Kind::Request,
            op: Op::TargetInfo as u16,
            priority: Priority::High,
            target: Some(target),
            ..Header::default()
        };
        let xid = inner.next_xid.fetch_add(1, Ordering::Relaxed);
        self.submit(Frame::new(header, encode_body(&TargetInfoReq {})), None, xid, credits).ok()
    }
}

type Probe = oneshot::Receiver<Result<Frame, Fault>>;

/// Time without an acknowledgement.
#[derive(Default)]
struct Silence {
    since: Option<Mono>,
    looked: Option<Mono>,
}

impl Silence {
    /// Takes in what the kernel says now; for how long it has been so. Bytes sent only now do not count from
    /// the last acknowledgement before them.
    fn look(&mut self, unacknowledged_ms: u64, now: Mono) -> u64 {
        let looked_ms_ago = self.looked.map_or(0, |looked| now.ms_since(looked));
        self.looked = Some(now);
        if unacknowledged_ms == 0 || unacknowledged_ms < looked_ms_ago {
            self.since = None;
            return 0;
        }
        now.ms_since(*self.since.get_or_insert(now))
    }
}

/// Completes when the rail below a connection is dead and there is another.
pub(super) async fn until_silent(
    inner: &Inner,
    link: &Link,
    delivery: Option<Box<dyn Delivery>>,
) -> NetError {
    let (Some(delivery), Some(target)) = (delivery, inner.config.probes) else {
        return std::future::pending().await;
    };
    let probe_after_ms = if target == TargetId::MGT { PROBE_MGS_AFTER_MS } else { PROBE_AFTER_MS };
    let mut nids = inner.nids.subscribe();
    let (mut silence, mut probe): (_, Option<Probe>) = (Silence::default(), None);
    let mut pause_ms = probe_after_ms;
    let (mut received, mut heard) = (0u64, inner.seams.now());
    loop {
        // `inner` holds the sender, so waiting cannot fail.
        let _ = nids.wait_for(|nids| nids.len() > 1).await;
        if link.is_idle() {
            link.busy.notified().await;
            (silence, heard, pause_ms) = (Silence::default(), inner.seams.now(), probe_after_ms);
        }
        inner.seams.sleep_ms(LOOK_EVERY_MS).await;
        let now = inner.seams.now();
        let frames = link.received.load(Ordering::Relaxed);
        let is_answered =
            probe.as_mut().is_some_and(|probe| !matches!(probe.try_recv(), Err(TryRecvError::Empty)));
        if frames - received > u64::from(is_answered) {
            // More than the answer to the probe arrived.
            pause_ms = probe_after_ms;
        } else if is_answered {
            pause_ms = (pause_ms * 2).min(PROBE_PAUSE_MAX_MS);
        }
        if is_answered {
            probe = None;
        }
        if frames != received {
            (received, heard) = (frames, now);
        }
        if probe.is_none() && now.ms_since(heard) >= pause_ms && link.has_elsewhere(inner) {
            (probe, heard) = (link.probe(inner, target), now);
        }
        let silent_ms = silence.look(delivery.unacknowledged_ms(), now);
        if silent_ms >= DEAD_AFTER_MS && link.has_elsewhere(inner) {
            tracing::warn!(nid = %link.info.nid, "nothing was acknowledged for {DEAD_AFTER_MS} ms: going on over another rail");
            return NetError::TimedOut;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    #[test]
    fn silence_begins_when_it_is_seen_and_ends_with_an_acknowledgement() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(0, at(0)), 0);
        assert_eq!(silence.look(10_000, at(50)), 0, "sent only now, after ten quiet seconds");
        assert_eq!(silence.look(10_050, at(100)), 50);
        assert_eq!(silence.look(10_450, at(500)), 450);
        assert_eq!(silence.look(20, at(550)), 0, "something was acknowledged meanwhile");
        assert_eq!(silence.look(70, at(600)), 0, "it begins anew");
        assert_eq!(silence.look(120, at(650)), 50);
        assert_eq!(silence.look(0, at(700)), 0, "all has arrived");
    }

    #[test]
    fn addresses_in_different_networks_are_tried_together() {
        let nids: Vec<Nid> = ["a:1", "b:1@tcp1", "c:1", "d:1", "e:1@tcp1", "f:1@tcp2"]
            .map(|nid| nid.parse().expect("a NID"))
            .into();
        let order: Vec<&Nid> = nids.iter().collect();
        let lengths: Vec<usize> = hosts(&order).iter().map(|host| host.len()).collect();
        assert_eq!(lengths, [2, 1, 3]);
        assert!(hosts(&[]).is_empty());
    }

    #[test]
    fn each_connection_has_its_rail() {
        let nids: Vec<Nid> = ["10.0.0.1:1", "10.1.0.1:1@tcp1"].map(|nid| nid.parse().expect("a NID")).into();
        let config = PeerConfig::new(1, brindle_wire::version::PeerKind::Client, "c");
        assert_eq!(addresses(&config, 0, &nids), nids);
        let config = PeerConfig { each_rail: true, ..config };
        let of = |index| addresses(&config, index, &nids).to_vec();
        assert_eq!((of(0), of(1), of(2)), (vec![nids[0].clone()], vec![nids[1].clone()], vec![]));
    }
}
