//! Files that several agents of an archive archive or restore together: which agent has which span (design note 058).
//!
//! | promise | by |
//! |---|---|
//! | a span counts once, for the attempt that goes on | it is finished under the claim that it was given out under, and each claim is new |
//! | a span of an agent that died is not lost | it is free again when the agent is silent, leaves, fails, or does not know of it |
//! | the action has one end | only the agent that has the attempt ends it, by the same compare as for a file that is not divided |
//!
//! All of it is in memory. After a restart of the MDT the agent that has the attempt tells which spans it knows to be finished; spans that
//! were given out before, and their claims, count no more.

use std::collections::{BTreeMap, BTreeSet};

use brindle_stdx::cast::{len_u32, to_usize};
use brindle_types::hsm::{Spans, extent_bytes};
use brindle_types::{ArchivedCopy, Code, Fault, HsmControl, HsmKind, Ino, Pair, Result};
use brindle_wire::mds::hsm::HsmAttempt;
use brindle_wire::mds::hsm_span::{
    HsmClaim, HsmDivided, HsmPlace, HsmShare, HsmSpan, HsmSpanFinished, HsmSpanMade, SHARES_MAX,
    SPANS_TOLD_MAX,
};

use super::queue::Queue;

/// Most files that are divided at once.
pub const DIVIDED_MAX: usize = 256;
/// Spans that a helper may fail to copy, before it gets no more of the attempt.
const FAILURES_MAX: u32 = 3;
/// Divided files that have ended and can still be looked at.
const ENDED_MAX: usize = SHARES_MAX / 2;

/// A file to be divided, as the agent with the attempt describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The attempt.
    pub attempt: HsmAttempt,
    /// The agent that has the attempt.
    pub owner: [u8; 16],
    /// Kind of the action.
    pub kind: HsmKind,
    /// The archive.
    pub archive: u32,
    /// The place that the bytes go to.
    pub place: HsmPlace,
    /// Length of a span.
    pub span_bytes: u64,
    /// Number of spans.
    pub count: u32,
    /// Length of the file.
    pub size_bytes: u64,
    /// Contents of the file when the attempt was given out.
    pub data_version: Pair,
    /// The copy that is restored.
    pub copy: Option<ArchivedCopy>,
}

/// A span that an agent works on.
#[derive(Clone, Copy)]
struct Given {
    agent: [u8; 16],
    claim: Pair,
}

/// A finished span.
struct Finished {
    /// The agent and the claim under which it was finished; `None` if the agent with the attempt has told of it.
    by: Option<Given>,
    /// `None` once the agent with the attempt has it.
    made: Option<HsmSpanMade>,
}

/// A file that is divided.
pub struct Divided {
    plan: Plan,
    free: BTreeSet<u32>,
    given: BTreeMap<u32, Given>,
    finished: BTreeMap<u32, Finished>,
    /// Span that comes next if no reader waits for another one.
    next: u32,
    /// Spans that each agent could not copy. After [`FAILURES_MAX`] it gets no more of this attempt.
    failures: BTreeMap<[u8; 16], u32>,
    shares: BTreeMap<[u8; 16], HsmShare>,
}

impl Divided {
    fn new(plan: Plan) -> Divided {
        let free = (0..plan.count).collect();
        let (given, finished, failures, shares) = Default::default();
        Divided { plan, free, given, finished, next: 0, failures, shares }
    }

    /// Takes in what the agent with the attempt knows.
    fn knows(&mut self, known: &Spans) {
        for span in (0..self.plan.count).filter(|span| known.has(*span)) {
            self.free.remove(&span);
            self.given.remove(&span);
            self.finished.entry(span).or_insert(Finished { by: None, made: None }).made = None;
        }
    }

    fn may_take(&self, agent: &[u8; 16]) -> bool {
        !self.free.is_empty() && self.failures.get(agent).is_none_or(|failures| *failures < FAILURES_MAX)
    }

    /// The next span: the first of these that is free, then the one behind the last.
    fn next_of(&self, wanted: impl Iterator<Item = u32>) -> Option<u32> {
        let mut wanted = wanted;
        wanted
            .find(|span| self.free.contains(span))
            .or_else(|| self.free.range(self.next..).next().copied())
            .or_else(|| self.free.first().copied())
    }

    fn give(&mut self, span: u32, agent: [u8; 16], claim: Pair) -> HsmSpan {
        self.free.remove(&span);
        self.given.insert(span, Given { agent, claim });
        self.next = span + 1;
        let Plan { attempt, kind, span_bytes, data_version, size_bytes, copy, .. } = self.plan;
        let claim = HsmClaim { attempt, span, claim };
        HsmSpan { claim, span_bytes, kind, place: self.plan.place.clone(), data_version, size_bytes, copy }
    }

    fn free_if(&mut self, goes: impl Fn(u32, &Given) -> bool) -> bool {
        let freed: Vec<u32> =
            self.given.iter().filter(|(span, given)| goes(**span, given)).map(|(span, _)| *span).collect();
        for span in &freed {
            self.given.remove(span);
            self.free.insert(*span);
        }
        !freed.is_empty()
    }

    /// Bytes of a span.
    fn len_bytes(&self, span: u32) -> u64 {
        let start = u64::from(span) * self.plan.span_bytes;
        self.plan.span_bytes.min(self.plan.size_bytes.saturating_sub(start))
    }

    /// Extents of a span.
    fn extents(&self, span: u32) -> std::ops::Range<u64> {
        let (extent, start) = (extent_bytes(self.plan.size_bytes), u64::from(span) * self.plan.span_bytes);
        start / extent..(start + self.len_bytes(span)).div_ceil(extent)
    }

    fn shown(&self, is_running: bool) -> HsmDivided {
        let Plan { attempt, kind, size_bytes, .. } = self.plan;
        let shares = self.shares.values().cloned().collect();
        HsmDivided { ino: attempt.ino, kind, is_running, size_bytes, shares }
    }
}

/// The refusal of a span that counts no more.
fn stale_claim(claim: &HsmClaim) -> Fault {
    let why = format!("span {} was given to another agent, or its action is over", claim.span);
    Fault::new(Code::StaleAttempt).subject(claim.attempt.ino.fid().to_string()).why(why)
}

impl Queue {
    /// Whether one more file may be divided.
    pub fn may_divide(&self, ino: Ino) -> bool {
        self.divided.len() < DIVIDED_MAX || self.divided.contains_key(&ino)
    }

    /// Divides a file, or goes on where it is. Returns finished spans that its agent does not know.
    pub fn divide(&mut self, plan: Plan, known: &Spans) -> Result<Vec<HsmSpanFinished>> {
        if !self.is_running(&plan.attempt) {
            return Err(super::stale_attempt(plan.attempt.ino));
        }
        let ino = plan.attempt.ino;
        if self.divided.get(&ino).is_some_and(|divided| divided.plan != plan) {
            self.divided.remove(&ino);
        }
        let divided = self.divided.entry(ino).or_insert_with(|| Divided::new(plan));
        divided.knows(known);
        let new = divided.finished.iter().filter_map(|(span, finished)| {
            let made = finished.made.clone()?;
            Some(HsmSpanFinished { span: *span, made })
        });
        Ok(new.take(SPANS_TOLD_MAX).collect())
    }

    /// Whether a helper that serves these archives would be given a span.
    pub fn has_span(&self, agent: &[u8; 16], archives: &[u32]) -> bool {
        self.file_to_help(agent, archives).is_some()
    }

    /// The file that a helper gets a span of: restores first, then the file with the fewest agents, then the oldest action.
    fn file_to_help(&self, agent: &[u8; 16], archives: &[u32]) -> Option<Ino> {
        if self.control != HsmControl::Enabled {
            return None;
        }
        let may_help = |divided: &&Divided| {
            let is_served = archives.is_empty() || archives.contains(&divided.plan.archive);
            is_served && divided.plan.owner != *agent && divided.may_take(agent)
        };
        let order = |divided: &&Divided| {
            let agents: BTreeSet<_> = divided.given.values().map(|given| given.agent).collect();
            let cookie = self.actions.get(&divided.plan.attempt.ino).map(|action| action.cookie);
            (divided.plan.kind, agents.len(), cookie)
        };
        let found = self.divided.values().filter(may_help).min_by_key(order);
        found.map(|divided| divided.plan.attempt.ino)
    }

    /// Gives a span to an agent: of its own attempt, or of one of another agent.
    pub fn give_span(
        &mut self,
        agent: [u8; 16],
        archives: &[u32],
        of: Option<HsmAttempt>,
        claim: Pair,
    ) -> Result<Option<HsmSpan>> {
        let ino = match of {
            None => match self.file_to_help(&agent, archives) {
                Some(ino) => ino,
                None => return Ok(None),
            },
            Some(at) if !self.is_running(&at) => return Err(super::stale_attempt(at.ino)),
            Some(at) => at.ino,
        };
        let Some(divided) = self.divided.get_mut(&ino).filter(|divided| divided.may_take(&agent)) else {
            return Ok(None);
        };
        let per_span = divided.plan.span_bytes / extent_bytes(divided.plan.size_bytes);
        let wanted = self.restoring.get(&ino).into_iter().flat_map(|restoring| restoring.wanted());
        let wanted = wanted.filter_map(|extent| u32::try_from(extent.checked_div(per_span)?).ok());
        let found = divided.next_of(wanted);
        Ok(found.map(|span| divided.give(span, agent, claim)))
    }

    /// Takes in what an agent has made of a span. Returns whether anybody may wait for that.
    pub fn span_done(&mut self, agent: [u8; 16], claim: &HsmClaim, made: HsmSpanMade) -> Result<bool> {
        let (ino, span) = (claim.attempt.ino, claim.span);
        let host = self.agents.get(&agent).map(|known| known.host.clone()).unwrap_or_default();
        let found = self.divided.get_mut(&ino).filter(|divided| divided.plan.attempt == claim.attempt);
        let divided = found.ok_or_else(|| stale_claim(claim))?;
        let is_its = |given: &Given| given.agent == agent && given.claim == claim.claim;
        if divided.finished.get(&span).and_then(|finished| finished.by.as_ref()).is_some_and(is_its) {
            // The answer was lost.
            return Ok(false);
        }
        if !divided.given.get(&span).is_some_and(is_its) {
            return Err(stale_claim(claim));
        }
        let extents = to_usize(divided.extents(span).end - divided.extents(span).start);
        let expected = if divided.plan.kind == HsmKind::Archive { extents } else { 0 };
        if made.sums.len() != expected {
            let why = format!("span {span} has {} checksums, not {expected}", made.sums.len());
            return Err(Fault::new(Code::InvalidArgument).subject(ino.fid().to_string()).why(why));
        }
        let by = divided.given.remove(&span);
        divided.finished.insert(span, Finished { by, made: Some(made) });
        let moved_bytes = divided.len_bytes(span);
        let share = HsmShare { agent, host, spans: 0, moved_bytes: 0 };
        let share = divided.shares.entry(agent).or_insert(share);
        share.spans += 1;
        share.moved_bytes += moved_bytes;
        let extents = divided.extents(span);
        if let Some(restoring) = self.restoring.get_mut(&ino) {
            restoring.add(&claim.attempt, extents);
        }
        Ok(true)
    }

    /// An agent could not do its part: others do it. `false`: that was none of its spans.
    pub fn span_failed(&mut self, agent: [u8; 16], claim: &HsmClaim) -> bool {
        let found = self.divided.get_mut(&claim.attempt.ino);
        let Some(divided) = found.filter(|divided| divided.plan.attempt == claim.attempt) else {
            return false;
        };
        let is_its = divided
            .free_if(|span, given| span == claim.span && given.agent == agent && given.claim == claim.claim);
        if is_its && divided.plan.owner != agent {
            *divided.failures.entry(agent).or_default() += 1;
        }
        is_its
    }

    /// Frees spans that an agent should have and does not work on, of its own attempt or of those of others. Returns whether any is free
    /// now.
    pub fn free_unheard_of(&mut self, agent: [u8; 16], of: Option<HsmAttempt>, holds: &[HsmClaim]) -> bool {
        let holds: BTreeSet<&HsmClaim> = holds.iter().collect();
        let mut is_any = false;
        for divided in self.divided.values_mut() {
            let attempt = divided.plan.attempt;
            let is_meant = of.map_or(divided.plan.owner != agent, |of| of == attempt);
            is_any |= is_meant
                && divided.free_if(|span, given| {
                    given.agent == agent && !holds.contains(&HsmClaim { attempt, span, claim: given.claim })
                });
        }
        is_any
    }

    /// Frees the spans of an agent that is silent or has left. Returns whether any is free now.
    pub fn free_spans_of(&mut self, agent: [u8; 16]) -> bool {
        let mut is_any = false;
        for divided in self.divided.values_mut() {
            is_any |= divided.free_if(|_, given| given.agent == agent);
        }
        is_any
    }

    /// Extents of the finished spans of a file that is being restored.
    pub(super) fn restored_spans(&self, at: &HsmAttempt) -> Vec<std::ops::Range<u64>> {
        let divided = self.divided.get(&at.ino).filter(|divided| divided.plan.attempt == *at);
        let ranges =
            divided.map(|divided| divided.finished.keys().map(|span| divided.extents(*span)).collect());
        ranges.unwrap_or_default()
    }

    /// The action on a file has ended, or its attempt has.
    pub(super) fn end_divided(&mut self, ino: Ino, has_ended: bool) {
        let Some(divided) = self.divided.remove(&ino) else { return };
        if has_ended {
            if self.ended_divided.len() >= ENDED_MAX {
                self.ended_divided.pop_front();
            }
            self.ended_divided.push_back(divided.shown(false));
        }
    }

    /// Divided files, for people.
    pub fn shown_divided(&self) -> Vec<HsmDivided> {
        let running = self.divided.values().map(|divided| divided.shown(true));
        running.take(SHARES_MAX - ENDED_MAX).chain(self.ended_divided.iter().cloned()).collect()
    }
}

/// The number of spans of a file, if they can be spans of it at all.
pub fn spans_of(span_bytes: u64, size_bytes: u64) -> Option<u32> {
    let is_whole = span_bytes.is_power_of_two() && span_bytes >= extent_bytes(size_bytes);
    let count = size_bytes.checked_div(span_bytes)? + u64::from(!size_bytes.is_multiple_of(span_bytes));
    (is_whole && (2..=brindle_types::hsm::SPANS_MAX).contains(&count)).then(|| len_u32(to_usize(count)))
}
