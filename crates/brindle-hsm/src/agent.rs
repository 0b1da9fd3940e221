//! The agent: takes work from the MDT under a lease, carries it out, tells what came of it.
//!
//! The agent keeps no state: when it is killed, its work is given to another agent, under a new attempt, once the lease is over.

use std::sync::Arc;

use brindle_client::Client;
use brindle_stdx::cast::len_u16;
use brindle_types::{Code, Fault, HsmKind, Result};
use brindle_wire::Cred;
use brindle_wire::mds::hsm::{
    HsmAttempt, HsmDoneReq, HsmOutcome, HsmProgressReq, HsmTakeReq, HsmWork, PROGRESS_MAX,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::archive::{Archive, CopyName};
use crate::attempts::{Attempts, Entered};
use crate::copy::Copier;
use crate::pace::Pace;
use crate::span::SpanWork;
use crate::streams::Streams;

/// Interval at which the agent reports its progress; a part of its lease.
const TELL_MS: u64 = 1_000;
/// Pause after the MDT has refused something.
const PAUSE_MS: u64 = 1_000;
/// Longest time for the goodbye to the MDT.
const LEAVE_MS: u64 = 500;
/// Number of tries to report the end of an attempt that the MDT cannot record at the moment.
const DONE_TRIES: usize = 5;
/// Most files at once.
pub const STREAMS_MAX: u16 = 64;

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of its host, for people.
    pub host: String,
    /// Archives that it serves, by number; none for any.
    pub archives: Vec<u32>,
    /// Files at once.
    pub streams: u16,
    /// Most bytes a second, over all files.
    pub bytes_per_sec: Option<u64>,
}

/// An agent.
pub struct Agent {
    client: Arc<Client>,
    archive: Archive,
    settings: Settings,
    number: [u8; 16],
    pace: Arc<Pace>,
    attempts: Arc<Attempts>,
    streams: Streams,
}

/// Whether the MDT has said that it does not take a copy. After any other fault it may have taken it.
fn is_refusal(fault: &Fault) -> bool {
    matches!(fault.code, Code::StaleAttempt | Code::ChangedMeanwhile | Code::InvalidArgument)
}

/// Credentials of an agent.
pub(crate) fn root() -> Cred {
    Cred::default()
}

impl Agent {
    /// An agent between a file system and an archive.
    pub fn new(client: Arc<Client>, archive: Archive, settings: Settings) -> Arc<Agent> {
        let number = client.uuid();
        let pace = Arc::new(Pace::new(settings.bytes_per_sec));
        let streams = Streams {
            agent: number,
            client: client.clone(),
            settings: settings.clone(),
            pace: pace.clone(),
            work: Arc::new(SpanWork::new(client.clone(), archive.clone())),
        };
        Arc::new(Agent { client, archive, settings, number, pace, attempts: Arc::default(), streams })
    }

    /// Works until `stop`; then its work is given to others at once.
    pub async fn run(self: Arc<Self>, stop: impl Future<Output = ()>) {
        let (taking, telling) = (self.clone().take(), self.clone().tell());
        tokio::select! {
            biased;
            () = stop => {}
            () = taking => {}
            () = telling => {}
            () = self.streams.help() => {}
        }
        let request =
            HsmProgressReq { agent: self.number, moved_bytes: Vec::new(), leaves: true, cred: root() };
        let leaving = self.client.ask_as_agent(&request);
        if !matches!(self.client.seams().timeout_ms(LEAVE_MS, leaving).await, Some(Ok(_))) {
            tracing::info!(
                "the MDT did not hear the goodbye; what was under way goes to others when the lease is over"
            );
        }
    }

    async fn take(self: Arc<Self>) {
        let free = Arc::new(Semaphore::new(self.settings.streams.clamp(1, STREAMS_MAX).into()));
        loop {
            // The request asks for as many actions as there are free streams, and at least one.
            let Ok(first) = free.clone().acquire_owned().await else { return };
            let mut hands: Vec<OwnedSemaphorePermit> = vec![first];
            while let Ok(hand) = free.clone().try_acquire_owned() {
                hands.push(hand);
            }
            let request = HsmTakeReq {
                agent: self.number,
                host: self.settings.host.clone(),
                archives: self.settings.archives.clone(),
                max: len_u16(hands.len()),
                cred: root(),
            };
            match self.client.ask_as_agent(&request).await {
                Ok(answer) => {
                    for (work, hand) in answer.work.into_iter().zip(hands) {
                        let this = self.clone();
                        self.client.seams().spawn("agent.work", async move {
                            this.work(&work).await;
                            drop(hand);
                        });
                    }
                }
                Err(fault) => {
                    tracing::warn!(%fault, "the MDT gives no work");
                    self.client.seams().sleep_ms(PAUSE_MS).await;
                }
            }
        }
    }

    async fn tell(self: Arc<Self>) {
        loop {
            self.client.seams().sleep_ms(TELL_MS).await;
            let mut moved_bytes = self.attempts.moved_bytes();
            moved_bytes.truncate(PROGRESS_MAX);
            let request = HsmProgressReq { agent: self.number, moved_bytes, leaves: false, cred: root() };
            match self.client.ask_as_agent(&request).await {
                Ok(answer) => self.attempts.give_up(&answer.gone),
                Err(fault) => tracing::warn!(%fault, "the MDT does not hear how far this agent is"),
            }
        }
    }

    async fn work(&self, work: &HsmWork) {
        let entered = self.attempts.enter(HsmAttempt { ino: work.ino, attempt: work.attempt });
        let done = match work.kind {
            // In boxes of their own: each is large, and one at a time goes on.
            HsmKind::Archive => Box::pin(self.archive(work, &entered)).await,
            HsmKind::Restore => Box::pin(self.restore(work, &entered)).await,
            HsmKind::Remove => Box::pin(self.remove(work)).await,
        };
        let fid = work.ino.fid();
        match done {
            Ok(()) => tracing::info!(file = %fid, kind = %work.kind, bytes = work.size_bytes, "done"),
            Err(fault) if fault.code == Code::StaleAttempt => {
                tracing::info!(file = %fid, kind = %work.kind, "given up: {fault}");
            }
            Err(fault) => {
                tracing::warn!(file = %fid, kind = %work.kind, "failed: {fault}");
                if let Err(second) = self.done(work, HsmOutcome::Failed(fault)).await {
                    tracing::info!(file = %fid, "the MDT did not take that: {second}");
                }
            }
        }
    }

    fn copier<'a>(&'a self, entered: &'a Entered) -> Copier<'a> {
        Copier {
            client: &self.client,
            archive: &self.archive,
            pace: &self.pace,
            attempt: &entered.attempt,
            agent: self.number,
            streams: &self.streams,
        }
    }

    async fn archive(&self, work: &HsmWork, entered: &Entered) -> Result<()> {
        let (copy, incoming) = self.copier(entered).archive(work).await?;
        if let Err(fault) = self.done(work, HsmOutcome::Archived(copy)).await {
            if is_refusal(&fault) {
                incoming.discard().await?;
            } else {
                // The MDT may have taken the copy, and only its answer is missing: then these are the file's bytes. If not, the next copy removes it.
                tracing::warn!(file = %work.ino.fid(), code = %fault.code, "whether the copy counts is not known, so it stays: {fault}");
            }
            return match fault.code {
                // The MDT has ended the action with this outcome already.
                Code::ChangedMeanwhile => Err(Fault { code: Code::StaleAttempt, ..fault }),
                _ => Err(fault),
            };
        }
        // The copy counts by its own name; the name that other tools know follows, and older copies go.
        let made = self.archive.make_current(CopyName::of(work.ino, &copy), work.path.clone());
        if let Err(fault) = made.await {
            tracing::warn!(file = %work.ino.fid(), %fault, "the copy is complete, but not tidied up after; the next one of the file does that");
        }
        Ok(())
    }

    async fn restore(&self, work: &HsmWork, entered: &Entered) -> Result<()> {
        let (from, handle) = self.copier(entered).restore(work).await?;
        let done = self.done(work, HsmOutcome::Restored(from)).await;
        // The file has no name: closing the handle removes it.
        let closed = self.client.close(handle).await;
        done.and(closed)
    }

    async fn remove(&self, work: &HsmWork) -> Result<()> {
        self.archive.remove(work.ino, work.attempt, work.path.clone()).await?;
        self.done(work, HsmOutcome::Removed).await
    }

    /// Tells the end of an attempt; again where the MDT could not take it at that moment.
    async fn done(&self, work: &HsmWork, outcome: HsmOutcome) -> Result<()> {
        let attempt = HsmAttempt { ino: work.ino, attempt: work.attempt };
        let request = HsmDoneReq { attempt, outcome, cred: root() };
        let mut tries = 0;
        loop {
            match self.client.ask_as_agent(&request).await {
                Err(fault) if fault.code == Code::StaleLayout && tries < DONE_TRIES => {
                    tries += 1;
                    self.client.seams().sleep_ms(PAUSE_MS).await;
                }
                done => return done.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_unless_the_mdt_has_refused_it() {
        let refusals = [Code::StaleAttempt, Code::ChangedMeanwhile, Code::InvalidArgument];
        assert!(refusals.iter().all(|code| is_refusal(&Fault::new(*code))));
        // The answer of an MDT that has taken the copy may be lost in each of these ways.
        let lost = [Code::Disconnected, Code::TargetDown, Code::NotLeading];
        assert!(!lost.iter().any(|code| is_refusal(&Fault::new(*code))));
    }
}
