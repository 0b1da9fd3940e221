//! Streams of an agent for spans of divided files: of its own attempt, or of attempts of other agents, which it helps (design note 058).

use std::collections::BTreeSet;
use std::sync::Arc;

use brindle_client::Client;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::hsm::HsmAttempt;
use brindle_wire::mds::hsm_span::{HsmClaim, HsmSpan, HsmSpanDoneReq, HsmSpanTakeReq};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turns, oneshot};

use crate::agent::{Settings, root};
use crate::pace::Pace;
use crate::span::SpanWork;

/// Most spans of one file, or of files of other agents, that an agent copies at once.
const SPANS_AT_ONCE: usize = 4;
/// Most bytes of spans that are copied at once: an upload has each part in memory.
const SPANS_BYTES_MAX: u64 = 128 << 20;
/// Pause of a stream while there is no span for it.
const LOOK_MS: u64 = 200;
/// Pause after the MDT has refused something.
const PAUSE_MS: u64 = 1_000;
/// Pause where the MDT is of an earlier release and knows no divided files.
const EARLIER_MS: u64 = 60_000;

/// An agent's streams for spans.
pub struct Streams {
    /// Number of the agent.
    pub agent: [u8; 16],
    /// Client of the agent.
    pub client: Arc<Client>,
    /// Settings of the agent.
    pub settings: Settings,
    /// Pace of the agent, over all that it copies.
    pub pace: Arc<Pace>,
    /// The copying.
    pub work: Arc<SpanWork>,
}

/// The spans that the streams of one attempt, or of the help for others, work on.
struct Taking<'a> {
    streams: &'a Streams,
    of: Option<HsmAttempt>,
    holds: Mutex<BTreeSet<HsmClaim>>,
    /// One stream asks at a time: so `holds` tells all that the agent has heard of.
    turns: Turns<()>,
}

impl Streams {
    /// Copies spans of the files of other agents for as long as the agent runs.
    pub async fn help(&self) {
        let taking = Taking { streams: self, of: None, holds: Mutex::default(), turns: Turns::default() };
        let streams = (0..SPANS_AT_ONCE).map(|_| Box::pin(taking.help()));
        futures_util::future::join_all(streams).await;
    }

    /// Copies spans of an attempt of this agent, until one fails.
    pub async fn copy(&self, of: HsmAttempt, span_bytes: u64) -> Result<()> {
        let taking = Taking { streams: self, of: Some(of), holds: Mutex::default(), turns: Turns::default() };
        let fitting = usize::try_from(SPANS_BYTES_MAX / span_bytes.max(1)).unwrap_or(SPANS_AT_ONCE);
        let count = fitting.clamp(1, SPANS_AT_ONCE);
        try_join_all((0..count).map(|_| Box::pin(taking.copy()))).await.map(drop)
    }
}

impl Taking<'_> {
    /// A stream for files of other agents.
    async fn help(&self) {
        let seams = self.streams.client.seams();
        loop {
            match self.take().await {
                Ok(Some(span)) => self.help_with(&span).await,
                // The MDT has waited.
                Ok(None) => {}
                Err(fault) if fault.code == Code::UnknownOp => seams.sleep_ms(EARLIER_MS).await,
                Err(fault) => {
                    tracing::warn!(%fault, "the MDT gives no parts of long files");
                    seams.sleep_ms(PAUSE_MS).await;
                }
            }
        }
    }

    async fn help_with(&self, span: &HsmSpan) {
        let fid = span.claim.attempt.ino.fid();
        let number = span.claim.span;
        match self.carry_out(span).await {
            Ok(()) => {
                tracing::info!(file = %fid, kind = %span.kind, span = number, "a part of a file is done")
            }
            Err(fault) if fault.code == Code::StaleAttempt => {
                tracing::info!(file = %fid, kind = %span.kind, span = number, "given up: {fault}");
            }
            Err(fault) => {
                tracing::warn!(file = %fid, kind = %span.kind, span = number, "failed: {fault}");
                self.streams.client.seams().sleep_ms(PAUSE_MS).await;
            }
        }
    }

    /// A stream for the attempt of this agent.
    async fn copy(&self) -> Result<()> {
        loop {
            match self.take().await {
                Ok(Some(span)) => match self.carry_out(&span).await {
                    // Another agent has it: this one was silent for a while.
                    Err(fault) if fault.code == Code::StaleAttempt => {
                        tracing::info!(file = %span.claim.attempt.ino.fid(), "given up: {fault}");
                    }
                    done => done?,
                },
                Ok(None) => self.streams.client.seams().sleep_ms(LOOK_MS).await,
                Err(fault) if fault.code == Code::StaleAttempt => return Err(fault),
                Err(fault) => {
                    tracing::warn!(%fault, "the MDT gives no parts of a file of this agent");
                    self.streams.client.seams().sleep_ms(PAUSE_MS).await;
                }
            }
        }
    }

    /// Takes a span, when the pace allows the next one: so a span that a reader waits for is not behind others that were taken early.
    async fn take(&self) -> Result<Option<HsmSpan>> {
        let Streams { agent, client, settings, pace, .. } = self.streams;
        let _turn = self.turns.lock().await;
        pace.ready(client.seams()).await;
        let request = HsmSpanTakeReq {
            agent: *agent,
            host: settings.host.clone(),
            archives: settings.archives.clone(),
            of: self.of,
            holds: self.holds.lock().iter().copied().collect(),
            cred: root(),
        };
        let Some(span) = client.ask_as_agent(&request).await?.span else { return Ok(None) };
        self.holds.lock().insert(span.claim);
        pace.wait(client.seams(), span.span_bytes.min(span.size_bytes)).await;
        Ok(Some(span))
    }

    /// Copies a span, and tells the MDT.
    async fn carry_out(&self, span: &HsmSpan) -> Result<()> {
        // In a task of its own: where the attempt ends meanwhile, the copying still closes what it has opened.
        let (tell, told) = oneshot::channel();
        let (work, task) = (self.streams.work.clone(), span.clone());
        self.streams.client.seams().spawn("agent.span", async move {
            // Nobody may want to hear of it any more.
            let _ = tell.send(work.copy(&task).await);
        });
        let copied =
            told.await.unwrap_or_else(|_| Err(Fault::new(Code::Bug).why("the copying of a span has ended")));
        let failed = copied.as_ref().err().cloned();
        let request =
            HsmSpanDoneReq { agent: self.streams.agent, claim: span.claim, outcome: copied, cred: root() };
        let told = self.streams.client.ask_as_agent(&request).await;
        self.holds.lock().remove(&span.claim);
        told?;
        failed.map_or(Ok(()), Err::<(), Fault>)
    }
}
