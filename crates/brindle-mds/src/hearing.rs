//! Clock of leases: the time for which the MDT has been able to hear its clients.
//!
//! A process that was stopped, a virtual machine that was paused, a host without processor time: all of them look, by the clock alone, as
//! if every client had been silent. Therefore leases run by [`Hearing::now`], a clock that advances only while a task of this very
//! process gets to run. All leases grow by the pause, and by no more, so that a dead client ends after one lease of real listening.
//!
//! The clock does not show a network that was down at this host's side. Such a fault shows in what the MDT hears: if more clients are
//! silent than heard, although the connections of the silent ones have not ended, this side is more likely at fault than all of them
//! ([`Doubt`]). The silent clients are kept for [`DOUBT_MS`] at most. Once enough of them are heard again, the rest have a full lease
//! from then on.

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_stdx::{Mono, Seams};
use brindle_types::SessionId;
use futures_util::future::{Either, select};
use parking_lot::Mutex;

use crate::mdt::Mdt;

/// Interval at which the process shows that it runs.
const TICK_MS: u64 = 100;
/// Most time that counts between two ticks.
const TICK_MAX_MS: u64 = 500;
/// A pause that is told.
const PAUSE_TOLD_MS: u64 = 2_000;
/// Longest time for which clients are kept that are all silent at once.
pub const DOUBT_MS: u64 = 60_000;

/// The clock of leases.
pub struct Hearing {
    seams: Seams,
    state: Mutex<State>,
}

struct State {
    /// Time at which the process last showed that it runs.
    ticked: Mono,
    /// The time of this clock at that moment.
    heard: Mono,
}

impl Hearing {
    /// A clock that begins now, and goes on once it is run.
    pub fn new(seams: &Seams) -> Hearing {
        let now = seams.now();
        Hearing { seams: seams.clone(), state: Mutex::new(State { ticked: now, heard: now }) }
    }

    /// Advances the clock of an MDT for as long as the MDT exists.
    pub fn run(mdt: &Arc<Mdt>) {
        let (clock, weak) = (mdt.seams().clock.clone(), Arc::downgrade(mdt));
        mdt.seams().spawn("mds.hearing", async move {
            loop {
                clock.sleep_until(clock.now().plus_ms(TICK_MS)).await;
                let Some(mdt) = weak.upgrade() else { return };
                // Renewals need this lock. While a disk that hangs keeps the lock taken, no client is heard, so this clock must stand
                // still, too.
                drop(mdt.live_mut());
                mdt.hearing().tick();
            }
        });
    }

    /// The time of this clock, which stands still while the process does.
    pub fn now(&self) -> Mono {
        if brindle_stdx::planted("mds_leases_run_while_it_stands_still") {
            return self.seams.now();
        }
        let state = self.state.lock();
        state.at(self.seams.now())
    }

    fn tick(&self) {
        let now = self.seams.now();
        let mut state = self.state.lock();
        let since_ms = now.ms_since(state.ticked);
        (state.heard, state.ticked) = (state.at(now), now);
        drop(state);
        if since_ms > PAUSE_TOLD_MS {
            tracing::warn!(
                pause_ms = since_ms,
                "this process stood still (stopped, starved, or its machine paused): leases of clients are longer by that"
            );
        }
    }

    /// Waits for `work` until this clock shows `until`.
    pub async fn wait_until<T>(&self, until: Mono, work: impl Future<Output = T> + Send) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let left_ms = until.ms_since(self.now());
            if left_ms == 0 {
                return None;
            }
            let sleep = self.seams.clock.sleep_until(self.seams.now().plus_ms(left_ms));
            if let Either::Left((out, _)) = select(&mut work, sleep).await {
                return Some(out);
            }
        }
    }
}

impl State {
    fn at(&self, now: Mono) -> Mono {
        self.heard.plus_ms(now.ms_since(self.ticked).min(TICK_MAX_MS))
    }
}

/// Whether the silence of clients is this side's own fault.
#[derive(Default)]
pub struct Doubt {
    since: Option<Mono>,
    /// Sessions that have been silent since then, or fell silent meanwhile, without the end of a connection.
    silent: BTreeSet<SessionId>,
}

impl Doubt {
    /// The sessions that are to be ended now, of those that were not renewed for a lease.
    pub fn due(&mut self, mdt: &Mdt) -> Vec<SessionId> {
        let now = mdt.hearing().now();
        let lease_ms = u64::from(mdt.config().lease_ms);
        let mut live = mdt.live_mut();
        // `recovery` waits for sessions that have not come back since a restart.
        let alive = live.sessions.iter().filter(|(id, s)| live.may_renew(**id) && !s.must_reclaim);
        let (silent, heard): (Vec<_>, Vec<_>) = alive.partition(|(_, s)| now.ms_since(s.renewed) > lease_ms);
        // A session whose connection has ended counts as gone: a living client would have reconnected.
        let is_there = |id: &SessionId| self.silent.contains(id) || mdt.notifier().is_connected(*id);
        let silent = silent.into_iter().map(|(id, _)| *id);
        let (unheard, mut due): (BTreeSet<SessionId>, Vec<SessionId>) = {
            let (unheard, gone): (Vec<_>, Vec<_>) = silent.partition(is_there);
            (unheard.into_iter().collect(), gone)
        };
        let (unheard_count, heard_count) = (unheard.len(), heard.len());
        let is_doubtful = unheard_count > heard_count;
        match self.since {
            None if !is_doubtful => due.extend(unheard),
            None => {
                tracing::warn!(
                    silent = unheard_count,
                    heard = heard_count,
                    wait_s = DOUBT_MS / 1_000,
                    "most clients are silent at once: is this host's network down? Their sessions are kept for a while"
                );
                (self.since, self.silent) = (Some(now), unheard);
            }
            Some(since) if is_doubtful && now.ms_since(since) <= DOUBT_MS => self.silent.extend(unheard),
            Some(_) if is_doubtful => {
                tracing::warn!(silent = unheard_count, "clients stayed silent: their sessions end");
                due.extend(unheard);
            }
            Some(_) => {
                for id in &unheard {
                    if let Some(session) = live.sessions.get_mut(id) {
                        session.renewed = now;
                    }
                }
                tracing::info!(
                    heard = heard_count,
                    silent = unheard_count,
                    "clients are heard again: those that are still silent have a lease from now on"
                );
                *self = Doubt::default();
            }
        }
        live.hears_few = self.since.is_some();
        due
    }
}
