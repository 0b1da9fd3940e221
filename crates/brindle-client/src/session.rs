//! The client's session at the MDT: open, renew, resume after a lost connection, reclaim after a restart, begin a new one after
//! the MDT has ended it.
//!
//! The task [`keep`] shakes hands on each new connection; the task [`renew`] keeps the lease and does no I/O.
//! [`MdtHost`] and [`OstHost`] are what callers see of it.
//!
//! Invariants: no ordinary request goes to the MDT on a connection before the handshake is done on it; when the lease
//! may have run out, kept pages are dropped and reads wait until the session is known to live, or to be gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brindle_net::Peer;
use brindle_stdx::watch;
use brindle_stdx::{BoxFuture, Clock, Mono, Seams};
use brindle_targets::{Host, Identity};
use brindle_types::{Code, Fault, Ino};
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::frame::Header;
use brindle_wire::mds::session::{
    RECLAIM_ITEMS_MAX, ReclaimAppend, ReclaimOpen, ReclaimReq, SessionOpenReq, SessionOpenResp,
    SessionRenewReq, SessionRenewResp,
};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::Client;
use crate::cache::Forgetting;
use crate::clock::ServerClock;
use crate::dirs::Dirs;
use crate::handles::Handle;
use crate::inodes::{Asked, Inode, PlacedAppend, Wanted};

/// Pause after a failed handshake.
const PAUSE_MS: u64 = 100;
/// A handshake that takes longer is begun again.
const HANDSHAKE_TIMEOUT_MS: u64 = 10_000;
/// Longest wait of the session for pages to be dropped; after it they are dropped late.
const DROP_WAIT_MS: u64 = 2_000;
/// Number of checks of the lease within its length.
const RENEW_TICKS: u64 = 12;
/// The lease counts as over if it was not renewed for this part of its length.
const LEASE_OVER_PERCENT: u64 = 80;

/// The session as callers see it.
#[derive(Clone, Debug, Default)]
struct View {
    identity: Identity,
    /// Connection on which the last handshake was done.
    generation: u64,
    /// Handshakes begun and done.
    begun: u64,
    done: u64,
    /// A handshake is wanted until `done` is at least this.
    wanted: u64,
    mdt_term: u32,
    era: u64,
    lease_ms: u64,
    /// Whether the lease is known to be held.
    held: bool,
    ended: bool,
}

/// The session's state.
pub(crate) struct Session {
    view: watch::Sender<View>,
    /// Send time of the request that has renewed the lease last.
    renewed: Mutex<Mono>,
    clock: Arc<dyn Clock>,
    /// The highest version of the fence table that an MDT has told; every request to an OST carries it.
    fences_version: AtomicU64,
}

impl Session {
    pub fn new(clock: Arc<dyn Clock>) -> Session {
        let renewed = Mutex::new(clock.now());
        Session { view: watch::Sender::default(), renewed, clock, fences_version: AtomicU64::new(0) }
    }

    /// Our identity now.
    pub fn identity(&self) -> Identity {
        self.view.borrow().identity
    }

    /// Whether the lease is held: facts that were told under it are then the MDT's present state. The check goes by the clock:
    /// a process that was stopped knows the answer at once when it goes on.
    pub fn is_held(&self) -> bool {
        self.left_ms() > 0
    }

    /// Time for which information under the lease still counts if it is not renewed; 0 if it is not held.
    pub fn left_ms(&self) -> u64 {
        let lease_ms = {
            let view = self.view.borrow();
            if view.held && !view.ended { view.lease_ms } else { 0 }
        };
        self.left_of_ms(lease_ms)
    }

    fn left_of_ms(&self, lease_ms: u64) -> u64 {
        let renewed = *self.renewed.lock();
        (lease_ms * LEASE_OVER_PERCENT / 100).saturating_sub(self.clock.now().ms_since(renewed))
    }

    /// The lease was renewed by the request that was sent at `sent`.
    fn set_renewed(&self, sent: Mono) {
        let mut renewed = self.renewed.lock();
        *renewed = (*renewed).max(sent);
    }

    /// Changes whenever the MDT may have lost its earlier grants: the session was ended, or the MDT restarted. A request sent
    /// in one era and answered in another must be repeated.
    pub fn era(&self) -> u64 {
        self.view.borrow().era
    }

    /// Completes while the lease is held: a read from now on is not older than the lease allows.
    pub async fn held(&self) {
        while !self.is_held() && !self.is_ended() {
            // The lease may have run out before a task noticed it. Then only a renewal makes the session good
            // again.
            self.view.send_if_modified(|v| {
                let is_over = v.held && self.left_of_ms(v.lease_ms) == 0;
                v.held &= !is_over;
                is_over
            });
            // Only fails when the sender is gone, which `self` holds.
            let _ = self.view.subscribe().wait_for(|v| v.held || v.ended).await;
        }
    }

    /// Marks that the mount is being stopped.
    pub fn end(&self) {
        self.view.send_modify(|v| v.ended = true);
    }

    /// Whether the mount is being stopped.
    pub fn is_ended(&self) -> bool {
        self.view.borrow().ended
    }

    /// Asks for a handshake and returns the number that [`View::done`] must reach.
    fn want(&self) -> u64 {
        let mut wanted = 0;
        self.view.send_modify(|v| {
            v.wanted = v.wanted.max(v.begun + 1);
            wanted = v.wanted;
        });
        wanted
    }

    async fn wait_done(&self, wanted: u64) -> Result<(), Fault> {
        let mut view = self.view.subscribe();
        let shutdown = || Fault::new(Code::Shutdown);
        let view = view.wait_for(|v| v.done >= wanted || v.ended).await.map_err(|_| shutdown())?;
        if view.ended { Err(shutdown()) } else { Ok(()) }
    }
}

/// The session for callers of the MDT.
pub(crate) struct MdtHost {
    pub session: Arc<Session>,
    pub peer: Arc<Peer>,
    pub dirs: Arc<Dirs>,
    pub clock: Arc<ServerClock>,
    pub seams: Seams,
}

impl Host for MdtHost {
    fn identity(&self) -> Identity {
        self.session.identity()
    }

    fn ready(&self) -> Option<BoxFuture<'_, Result<(), Fault>>> {
        let is_open = |generation| {
            let view = self.session.view.borrow();
            view.generation >= generation || view.ended
        };
        if self.peer.connected_generation().is_some_and(is_open) {
            return None;
        }
        Some(Box::pin(async {
            // A refusal by the server shows up, and is waited out, where the request is sent.
            let Ok(link) = self.peer.wait_connected().await else { return Ok(()) };
            let mut view = self.session.view.subscribe();
            let shutdown = |_| Fault::new(Code::Shutdown);
            view.wait_for(|v| v.generation >= link.generation || v.ended).await.map_err(shutdown)?;
            Ok(())
        }))
    }

    fn refused<'a>(&'a self, seen: Identity, _: &'a Fault) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(refused(&self.session, seen))
    }

    fn asked(&self) -> u64 {
        self.dirs.asked()
    }

    fn answered(&self, header: &Header) {
        if let Some(ns) = header.answered_at_ns() {
            self.clock.answered(self.seams.now(), ns);
        }
        self.session.fences_version.fetch_max(header.fences_version, Ordering::AcqRel);
    }

    fn told(&self, asked: u64, news: Option<&CacheUpdates>) -> Forgetting {
        match news {
            Some(news) => self.dirs.told(asked, news),
            None => self.dirs.clear(),
        }
    }
}

/// The session for callers of OSTs, which go on while the MDT is away.
pub(crate) struct OstHost {
    pub session: Arc<Session>,
    pub failout_ms: Option<u64>,
}

impl Host for OstHost {
    fn identity(&self) -> Identity {
        self.session.identity()
    }

    fn fences_version(&self) -> u64 {
        self.session.fences_version.load(Ordering::Acquire)
    }

    fn ready(&self) -> Option<BoxFuture<'_, Result<(), Fault>>> {
        None
    }

    fn refused<'a>(&'a self, seen: Identity, _: &'a Fault) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(refused(&self.session, seen))
    }

    fn failout_ms(&self) -> Option<u64> {
        self.failout_ms
    }
}

async fn refused(session: &Session, seen: Identity) -> Result<(), Fault> {
    if session.identity() != seen {
        return Ok(());
    }
    session.wait_done(session.want()).await
}

impl Client {
    /// The server says that the session is over: checks that with the MDT.
    pub(crate) fn session_doubtful(&self) {
        self.session.want();
    }

    /// The first handshake. The handshake fails with the MDT's fault, unless the MDT is only not ready yet.
    pub(crate) async fn open_session(&self) -> Result<(), Fault> {
        loop {
            match self.begin_session().await {
                Err(fault) if not_ready(&fault) => self.seams.sleep_ms(PAUSE_MS).await,
                done => return done,
            }
        }
    }

    async fn begin_session(&self) -> Result<(), Fault> {
        let link = self.mds.peer().wait_connected().await?;
        let sent = self.seams.now();
        let answer = self.session_open(false).await?;
        self.mds.slots().limit(answer.slots_max);
        self.adopt(&answer, link.generation, sent);
        Ok(())
    }

    async fn session_open(&self, resume: bool) -> Result<SessionOpenResp, Fault> {
        let request = SessionOpenReq {
            client_uuid: self.uuid,
            host: self.config.host.clone(),
            mount: self.config.mount.clone(),
            resume,
        };
        self.mds.once(&request, self.session.identity()).await
    }

    /// Takes over the session of the answer to the request of `sent`: from then on the lease counts.
    fn adopt(&self, answer: &SessionOpenResp, generation: u64, sent: Mono) {
        self.limits.told(answer.limits_serial);
        self.session.set_renewed(sent);
        self.session.view.send_modify(|v| {
            v.identity = Identity { session: answer.session, epoch: answer.epoch };
            v.generation = generation;
            v.era += u64::from(v.mdt_term != answer.mdt_term);
            v.mdt_term = answer.mdt_term;
            v.lease_ms = u64::from(answer.lease_ms).max(1);
            v.done = v.begun;
            v.held = true;
        });
    }

    /// Makes a handshake on each new connection, and whenever a request was refused.
    pub(crate) async fn keep_session(&self) {
        loop {
            let generation = self.session.view.borrow().generation;
            let mut view = self.session.view.subscribe();
            let wanted = view.wait_for(|v| v.wanted > v.done || v.ended);
            let newer = self.mds.peer().wait_newer(generation);
            tokio::select! {
                biased;
                _ = wanted => {}
                _ = newer => {}
            }
            if self.session.view.borrow().ended {
                return;
            }
            self.session.view.send_modify(|v| v.begun += 1);
            let outcome = self.seams.timeout_ms(HANDSHAKE_TIMEOUT_MS, self.shake_hands()).await;
            match &outcome {
                Some(Err(fault)) if !not_ready(fault) => {
                    tracing::warn!(code = %fault.code, why = ?fault.why, "no session yet: {}", fault.what);
                }
                _ => {}
            }
            if !matches!(outcome, Some(Ok(()))) {
                self.session.view.send_modify(|v| v.wanted = v.wanted.max(v.begun + 1));
                self.seams.sleep_ms(PAUSE_MS).await;
            }
        }
    }

    async fn shake_hands(&self) -> Result<(), Fault> {
        let link = self.mds.peer().wait_connected().await?;
        let before = self.session.view.borrow().clone();
        let sent = self.seams.now();
        // Answers to notices may have been lost with the old connection.
        self.inodes.all().iter().for_each(|inode| inode.lock().pending.connection_lost());
        let answer = match self.session_open(true).await {
            Err(fault) if matches!(fault.code, Code::StaleSession | Code::SessionLost | Code::Fenced) => {
                self.lose_session(&fault).await;
                self.session_open(false).await?
            }
            answer => answer?,
        };
        let identity = Identity { session: answer.session, epoch: answer.epoch };
        if answer.must_reclaim || answer.mdt_term != before.mdt_term {
            // A restarted MDT has no leases. As soon as all clients have declared themselves, it lets others change what the
            // leases covered.
            if let Some(left) = self.dirs.clear() {
                left.await;
            }
            let cache = self.cache.read().clone();
            cache.names_gone(None).await;
        }
        let is_another = identity != before.identity;
        if is_another {
            self.lose_session(&Fault::new(Code::SessionLost)).await;
        }
        if answer.must_reclaim {
            // The MDT also waits for a session that began just before the restart, although there is nothing
            // to declare.
            self.reclaim(identity, answer.mdt_term).await?;
            // An inode without a handle now was not declared: its handle is being closed, or a new one is being opened.
            let undeclared = |inode: &&Arc<Inode>| !self.handles.has_live(inode.ino);
            self.inodes.all().iter().filter(undeclared).for_each(|inode| inode.lock().doubt());
        } else if !is_another && answer.mdt_term != before.mdt_term {
            // The MDT took the reclaim in, and its answer was lost: its contents are asked for when they are needed.
            self.inodes.all().iter().for_each(|inode| inode.lock().doubt());
        }
        self.adopt(&answer, link.generation, sent);
        Ok(())
    }

    /// The session was ended: handles and locks are gone, kept pages may be old.
    async fn lose_session(&self, fault: &Fault) {
        // Only the reason: the new fault has a code and an advice of its own.
        let what = if fault.what.is_empty() { fault.code.title().to_owned() } else { fault.what.to_string() };
        let lost =
            Fault::new(Code::SessionLost).why(format!("{what} {}", fault.subject).trim_end().to_owned());
        let lost = fault.why.iter().cloned().fold(lost, Fault::why);
        let handles = self.handles.all();
        tracing::warn!(handles = handles.len(), "the session was ended by the server");
        self.session.view.send_modify(|v| {
            v.held = false;
            v.era += 1;
        });
        if let Some(left) = self.dirs.clear() {
            left.await;
        }
        for handle in &handles {
            handle.kill(&lost);
        }
        self.locks.clear();
        for inode in self.inodes.all() {
            // The present handles report the loss in any case; the handles of later opens must report it, too.
            self.note_left_unsynced(&inode);
            let mut state = inode.lock();
            state.noticed();
            state.no_longer_cached();
            state.no_longer_exclusive();
            state.stale = true;
            state.size_stale = true;
            state.recheck = true;
            state.unsynced.clear();
            state.forget_calls();
            state.pending.forget();
            let lost_bytes = state.behind.give_up();
            drop(state);
            inode.quiet.notify_waiters();
            if lost_bytes {
                self.lose_behind(&inode, &lost);
            }
        }
        self.grants.forget(self.seams.now());
        self.limits.forget();
        self.drop_pages().await;
        // When a session begins again, the MDT assumes that this client shows no earlier names.
        let cache = self.cache.read().clone();
        cache.names_gone(None).await;
    }

    /// Drops every kept page of open files. Pages with changes for an OST that is away are dropped when they can be.
    async fn drop_pages(&self) {
        self.kept_versions.clear();
        let wanted = |inode: Arc<Inode>| {
            let wanted = self.want_pages_dropped(&inode, 0..u64::MAX);
            (inode, wanted)
        };
        self.wait_dropped(self.inodes.all().into_iter().map(wanted).collect()).await;
    }

    /// Waits, for a moment in all, for the pages that were wanted dropped.
    async fn wait_dropped(&self, dropping: Vec<(Arc<Inode>, Wanted)>) {
        let gone = dropping.iter().map(|(inode, wanted)| inode.wait_until(|s| s.drops.is_over(*wanted)));
        if self.seams.timeout_ms(DROP_WAIT_MS, join_all(gone)).await.is_none() {
            tracing::warn!(
                "pages of before cannot be dropped yet: they hold changes for an OST that does not answer"
            );
        }
    }

    /// Reclaims opens, locks and appends at the MDT of this term.
    async fn reclaim(&self, identity: Identity, mdt_term: u32) -> Result<(), Fault> {
        // Taken before the handles are listed: a handle that a late answer brings is either in the list or opened again.
        self.session.view.send_modify(|v| v.era += 1);
        let handles: Vec<Arc<Handle>> =
            self.handles.all().into_iter().filter(|h| h.alive().is_ok()).collect();
        let locks = self.locks.all();
        tracing::info!(opens = handles.len(), locks = locks.len(), "reclaiming after a restart of the MDT");
        let rounds = handles.len().max(locks.len()).div_ceil(RECLAIM_ITEMS_MAX);
        // The round that says "done" declares no opens. A lost answer to it does no harm, because all grants were looked at by
        // then. Any other lost answer is asked for again, before a request that could hide a loss in a power cut.
        let mut dropping: BTreeMap<Ino, (Arc<Inode>, Wanted)> = BTreeMap::new();
        for round in 0..=rounds {
            if round == rounds {
                self.wait_dropped(std::mem::take(&mut dropping).into_values().collect()).await;
            }
            let first = round * RECLAIM_ITEMS_MAX;
            let handles: Vec<_> = handles.iter().skip(first).take(RECLAIM_ITEMS_MAX).collect();
            let locks = locks.iter().skip(first).take(RECLAIM_ITEMS_MAX).cloned().collect();
            let asked: Vec<Asked> = handles.iter().map(|h| h.inode.asked()).collect();
            let opens = handles.iter().map(|h| reclaim_open(h)).collect();
            let done = round == rounds;
            let appends = if done { self.appends_under_way(identity) } else { Vec::new() };
            let request = ReclaimReq { mdt_term, opens, locks, appends, done };
            let answer = self.mds.once(&request, identity).await?;
            for ((handle, asked), outcome) in handles.iter().zip(asked).zip(answer.opens) {
                let inode: &Arc<Inode> = &handle.inode;
                if !self.reclaimed(handle, asked, outcome) {
                    let entry = dropping.entry(inode.ino);
                    entry.or_insert_with(|| (inode.clone(), self.want_pages_dropped(inode, 0..u64::MAX)));
                }
            }
        }
        Ok(())
    }

    fn appends_under_way(&self, session: Identity) -> Vec<ReclaimAppend> {
        let mut all = Vec::new();
        for inode in self.inodes.all() {
            let declared = |(number, append): (&u64, &PlacedAppend)| ReclaimAppend {
                ino: inode.ino,
                number: *number,
                len_bytes: append.len_bytes,
                writing_at: append.writing_at,
            };
            let state = inode.lock();
            let of_session = state.appends.iter().filter(|(_, append)| append.session == session);
            all.extend(of_session.map(declared));
        }
        all
    }

    /// Takes in the outcome of a reclaimed handle. Returns whether kept pages of its file are still good.
    fn reclaimed(
        &self,
        handle: &Handle,
        asked: Asked,
        outcome: Result<brindle_wire::mds::open::OpenGrant, Fault>,
    ) -> bool {
        match outcome {
            Err(fault) => {
                handle.kill(&Fault::new(Code::HandleStale).why(fault.to_string()));
                true
            }
            Ok(grant) => {
                let (ino, inode) = (handle.inode.ino, &handle.inode);
                let still_cached = inode.lock().reclaimed(asked, &grant);
                let version = grant.data_version.filter(|_| still_cached);
                // A power cut may have taken the contents that the pages were filled from.
                let are_good =
                    !handle.cached || version.is_some_and(|version| self.kept_versions.keep(ino, version));
                if !are_good {
                    self.kept_versions.forget(ino);
                }
                self.tell_lost(inode);
                are_good
            }
        }
    }

    /// Renews the lease every third of it; drops kept pages when it may be over.
    pub(crate) async fn renew_session(&self) {
        // Time of the last renewal before the lease ended, once that end was handled.
        let mut over_since: Option<Mono> = None;
        loop {
            let (lease_ms, identity) = {
                let view = self.session.view.borrow();
                (view.lease_ms, view.identity)
            };
            let tick_ms = (lease_ms / RENEW_TICKS).max(1);
            self.seams.sleep_ms(tick_ms).await;
            let sent = self.seams.now();
            if sent.ms_since(*self.session.renewed.lock()) >= lease_ms / 3 {
                let asking = self.mds.once(&SessionRenewReq {}, identity);
                match self.seams.timeout_ms(tick_ms, asking).await {
                    Some(Ok(answer)) => self.renewed_at(identity, sent, &answer),
                    Some(Err(fault)) if fault.code != Code::Disconnected => drop(self.session.want()),
                    _ => {}
                }
            }
            if self.session.view.borrow().ended {
                return;
            }
            let renewed = *self.session.renewed.lock();
            if self.session.left_of_ms(lease_ms) == 0 && over_since != Some(renewed) {
                over_since = Some(renewed);
                self.session.view.send_modify(|v| v.held = false);
                if let Some(left) = self.dirs.clear() {
                    self.seams.spawn("client.forget", left);
                }
                tracing::warn!("the lease could not be renewed; reads wait for the MDT");
                // The renewal waits for no drop: a page with changes for an OST that is away takes as long as that OST.
                self.kept_versions.clear();
                for inode in self.inodes.all() {
                    self.want_pages_dropped(&inode, 0..u64::MAX);
                }
            }
        }
    }

    fn renewed_at(&self, identity: Identity, sent: Mono, answer: &SessionRenewResp) {
        let view = self.session.view.borrow().clone();
        if view.identity != identity {
            return;
        }
        if view.mdt_term != answer.mdt_term {
            self.session.want();
            return;
        }
        self.limits.told(answer.limits_serial);
        self.session.set_renewed(sent);
        self.session.view.send_if_modified(|v| !std::mem::replace(&mut v.held, true));
    }
}

/// Faults of a starting server, of a server that gives its target to another host, or of a connection: they pass.
fn not_ready(fault: &Fault) -> bool {
    use Code::{Disconnected, NotOwner, Overloaded, StaleEpoch, TargetDown, WrongTarget};
    matches!(fault.code, Disconnected | TargetDown | WrongTarget | Overloaded | NotOwner | StaleEpoch)
}

fn reclaim_open(handle: &Handle) -> ReclaimOpen {
    let state = handle.inode.lock();
    ReclaimOpen {
        ino: handle.inode.ino,
        handle: handle.number,
        access: brindle_wire::mds::open::Access { truncate: false, ..handle.access },
        cached: handle.cached && state.cached,
        // The right counts as held while it is being given back: no other client has one before the buffered
        // bytes are sent.
        exclusive: handle.access.write && (state.exclusive || !state.behind.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use brindle_stdx::Timestamp;
    use futures_util::FutureExt;

    use super::*;

    /// A clock that is set.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Hand {
        fn set_ms(&self, ms: u64) {
            self.0.store(ms, Ordering::Relaxed);
        }
    }

    impl Clock for Hand {
        fn now(&self) -> Mono {
            Mono(0).plus_ms(self.0.load(Ordering::Relaxed))
        }

        fn wall(&self) -> Timestamp {
            Timestamp::new(0, 0)
        }

        fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn a_mount_waits_while_another_host_takes_the_mdt_over() {
        for code in [Code::Disconnected, Code::TargetDown, Code::NotOwner, Code::StaleEpoch] {
            assert!(not_ready(&Fault::new(code)), "{code}");
        }
        assert!(!not_ready(&Fault::new(Code::NoSuchFs)));
    }

    #[test]
    fn a_lease_is_over_by_the_clock_and_not_when_that_is_noticed() {
        let clock = Arc::new(Hand::default());
        let session = Session::new(clock.clone());
        assert!(!session.is_held() && session.held().now_or_never().is_none());
        session.view.send_modify(|v| (v.held, v.lease_ms) = (true, 1_000));
        clock.set_ms(799);
        assert!(session.is_held() && session.held().now_or_never().is_some());
        // The process was stopped: nobody has looked at the time.
        clock.set_ms(900);
        assert!(!session.is_held());
        let mut waiting = Box::pin(session.held());
        assert!(waiting.as_mut().now_or_never().is_none());
        session.set_renewed(Mono(0).plus_ms(850));
        session.view.send_if_modified(|v| !std::mem::replace(&mut v.held, true));
        assert!(session.is_held() && waiting.now_or_never().is_some());
        session.end();
        assert!(!session.is_held() && session.held().now_or_never().is_some(), "nobody waits for ever");
    }
}
