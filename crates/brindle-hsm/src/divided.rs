//! An action on a large file that several agents carry out together (design note 058), as the agent sees it that has the attempt.
//!
//! The agent with the attempt makes the place (a copy in the archive, or a file without a name), has the MDT divide the file, and takes spans like any other
//! agent. It gathers what was made of all spans, and ends the action alone, as it does with a file that is not divided.

use std::collections::BTreeMap;

use brindle_stdx::cast::{len_u32, to_usize};
use brindle_types::hsm::{DIVIDED_BYTES_MAX, Spans, span_bytes};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::hsm::{HsmAttempt, HsmWork};
use brindle_wire::mds::hsm_span::{HsmDivideReq, HsmPlace, HsmSpanMade};
use futures_util::future::{Either, select};

use crate::agent::root;
use crate::copy::Copier;

/// Interval at which the MDT is asked what other agents have finished.
const ASK_MS: u64 = 200;

/// How a file is divided.
#[derive(Clone, Copy, Debug)]
pub struct Division {
    /// The attempt.
    pub attempt: HsmAttempt,
    /// Length of a span.
    pub span_bytes: u64,
    /// Number of spans.
    pub count: u32,
    size_bytes: u64,
}

impl Division {
    /// Bytes of a span.
    pub fn range(&self, span: u32) -> std::ops::Range<u64> {
        let start = u64::from(span) * self.span_bytes;
        start..self.size_bytes.min(start + self.span_bytes)
    }
}

impl Copier<'_> {
    /// Whether the MDT wants this file divided, and how it is then.
    pub async fn division(&self, work: &HsmWork) -> Result<Option<Division>> {
        let span_bytes = span_bytes(work.kind, work.size_bytes);
        let count = work.size_bytes.div_ceil(span_bytes);
        if count < 2 || work.size_bytes > DIVIDED_BYTES_MAX {
            return Ok(None);
        }
        let attempt = HsmAttempt { ino: work.ino, attempt: work.attempt };
        let count = len_u32(to_usize(count));
        let division = Division { attempt, span_bytes, count, size_bytes: work.size_bytes };
        match self.ask(&division, None, &Spans::none(count)).await {
            Ok((is_divided, _)) => Ok(is_divided.then_some(division)),
            // An MDT of an earlier release.
            Err(fault) if fault.code == Code::UnknownOp => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    async fn ask(
        &self,
        division: &Division,
        place: Option<&HsmPlace>,
        known: &Spans,
    ) -> Result<(bool, Vec<(u32, HsmSpanMade)>)> {
        let request = HsmDivideReq {
            agent: self.agent,
            attempt: division.attempt,
            place: place.cloned(),
            span_bytes: division.span_bytes,
            known: known.bits().to_vec(),
            cred: root(),
        };
        let answer = self.client.ask_as_agent(&request).await?;
        let finished = answer.finished.into_iter().map(|finished| (finished.span, finished.made)).collect();
        Ok((answer.is_divided, finished))
    }

    /// Copies a file with all agents of the archive. `finished` is called with each span that is done. Returns what was made of them.
    pub async fn copy_divided(
        &self,
        division: &Division,
        place: &HsmPlace,
        finished: impl Fn(u32),
    ) -> Result<BTreeMap<u32, HsmSpanMade>> {
        let gathering = Box::pin(self.gather(division, place, finished));
        let copying = Box::pin(self.streams.copy(division.attempt, division.span_bytes));
        match select(gathering, copying).await {
            // A span that this agent still works on was finished by another one.
            Either::Left((all, _)) => all,
            Either::Right((ended, _)) => {
                ended?;
                Err(Fault::new(Code::Bug).why("the streams of a file ended before it was whole"))
            }
        }
    }

    /// Gathers what was made of the spans, until all are done.
    async fn gather(
        &self,
        division: &Division,
        place: &HsmPlace,
        finished: impl Fn(u32),
    ) -> Result<BTreeMap<u32, HsmSpanMade>> {
        let mut known = Spans::none(division.count);
        let mut all = BTreeMap::new();
        loop {
            match self.ask(division, Some(place), &known).await {
                Ok((true, new)) => {
                    let is_more = !new.is_empty();
                    for (span, made) in new {
                        if !known.has(span) {
                            known.add(span);
                            let range = division.range(span);
                            self.attempt.moved(range.end.saturating_sub(range.start));
                            finished(span);
                            all.insert(span, made);
                        }
                    }
                    if known.is_full() {
                        return Ok(all);
                    }
                    if is_more {
                        continue;
                    }
                }
                Ok((false, _)) => {
                    let why = "the MDT does not want the file divided any more";
                    return Err(Fault::new(Code::StaleAttempt).why(why));
                }
                Err(fault) if fault.code == Code::StaleAttempt => return Err(fault),
                Err(fault) => {
                    tracing::warn!(file = %division.attempt.ino.fid(), %fault, "the MDT does not tell what other agents have finished");
                }
            }
            self.client.seams().sleep_ms(ASK_MS).await;
        }
    }
}
