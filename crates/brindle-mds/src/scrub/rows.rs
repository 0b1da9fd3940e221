//! Rows of all members at one record of the log, compared by digests of ranges of keys.
//!
//! The primary keeps its rows as they are after a checkpoint, at record X. Each member keeps its rows at a record Y of its own, not before X. The
//! primary has the records from X to Y in memory and puts them on top of its rows, so that both sides show the same moment. No change of a row
//! waits for that. The moment is taken anew every half minute, because pages of the checkpoint that it shows cannot be used again before.

use std::sync::Arc;

use brindle_kv::{Digest, Snapshot, row_name};
use brindle_targets::replica::{CHANGE_LIMIT_MS, Link, NO_BULK};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::replica::{CompareStep, LogPlace, MemberCompareReq, MemberCompareResp};
use brindle_wire::mds::scrub::MdtDamage;
use bytes::Bytes;

use super::{Flow, Pass, panicked};
use crate::replica::leading::Leader;

/// Bytes of rows in a digest, about.
const PIECE_BYTES: u64 = 1 << 20;
/// Time for which a moment is read.
const MOMENT_MS: u64 = 30_000;
/// Longest time in which a member writes its checkpoint.
const BEGIN_LIMIT_MS: u64 = 60_000;
/// Number of times that a member is asked for a moment that is not before the primary's, and the pause between.
const BEGIN_TRIES: u32 = 50;
const BEGIN_AGAIN_MS: u64 = 100;
/// Most bytes of records on top of the primary's rows.
const RECORDS_BYTES_MAX: usize = 64 << 20;
/// Bytes of records that are taken out of the log's memory at a time.
const RECORDS_STEP_BYTES: usize = 1 << 20;
/// Rows that a member may have in a range beyond those of the primary, before it stops reading.
const MORE_ROWS: u64 = 1_000;
/// Halvings until a range has one row, at most.
const HALVINGS_MAX: u32 = 64;

/// A member, and the primary's rows at the member's moment.
struct Other {
    link: Arc<Link>,
    rows: Arc<Snapshot>,
    /// Whether these are the rows of the moment itself.
    is_same: bool,
}

/// A moment of all members.
struct Moment {
    own: Arc<Snapshot>,
    others: Vec<Other>,
}

/// A range of keys: behind the first, up to the last where there is one.
#[derive(Clone)]
struct Range {
    after: Bytes,
    to: Option<Bytes>,
}

impl Pass<'_> {
    /// Reads all rows, and compares those of members in sync.
    pub(super) async fn compare_rows(&self) -> Result<Flow> {
        while !self.scrub().places().rows_done {
            let moment = self.moment().await?;
            let compared = self.compare_at(&moment).await;
            for other in &moment.others {
                if let Err(fault) = self.ask(&other.link, CompareStep::End, CHANGE_LIMIT_MS).await {
                    tracing::debug!(code = %fault.code, member = %other.link.host, "{fault}");
                }
            }
            if compared? == Flow::Pauses {
                return Ok(Flow::Pauses);
            }
        }
        Ok(Flow::GoesOn)
    }

    async fn ask(&self, link: &Link, step: CompareStep, limit_ms: u64) -> Result<MemberCompareResp> {
        let request = MemberCompareReq { attachment: link.attachment, step };
        link.call(&request, NO_BULK, 0, limit_ms).await.map(|(answer, _)| answer)
    }

    async fn moment(&self) -> Result<Moment> {
        let own = Arc::new(self.mdt.engine().snapshot().await?);
        let mut others = Vec::new();
        let Some(leader) = self.scrub().leader() else { return Ok(Moment { own, others }) };
        for link in leader.members() {
            match self.moment_on(&leader, &link, &own).await {
                Ok(other) => others.push(other),
                // Its checkpoint met the damage.
                Err(fault) if fault.code == Code::KvDamaged => {
                    self.member_is_damaged(&link, 1, &fault).await?;
                }
                Err(fault) => self.not_compared(&link, &fault),
            }
        }
        Ok(Moment { own, others })
    }

    fn not_compared(&self, link: &Link, fault: &Fault) {
        tracing::debug!(code = %fault.code, member = %link.host, "not compared: {fault}");
        let why = format!("{} did not answer; some rows were not compared with it", link.host);
        self.scrub().pace.set_trouble(why);
    }

    async fn moment_on(&self, leader: &Leader, link: &Arc<Link>, own: &Arc<Snapshot>) -> Result<Other> {
        let from = LogPlace { term: own.at().term, index: own.at().index };
        let mut tries = 0;
        let answer = loop {
            match self.ask(link, CompareStep::Begin { from }, BEGIN_LIMIT_MS).await {
                Err(fault) if fault.code == Code::TryAgain && tries < BEGIN_TRIES => {
                    tries += 1;
                    self.mdt.seams().sleep_ms(BEGIN_AGAIN_MS).await;
                }
                other => break other?,
            }
        };
        let (mut at, mut bytes, mut records) = (own.at(), 0, Vec::new());
        while at.index < answer.at.index {
            let more = leader.kv().records_after(at, RECORDS_STEP_BYTES);
            let more = more.filter(|more| !more.is_empty()).ok_or_else(|| {
                Fault::new(Code::TryAgain).why(format!("the records behind {at} are not in memory any more"))
            })?;
            for (pos, record) in more.into_iter().filter(|(pos, _)| pos.index <= answer.at.index) {
                at = pos;
                bytes += record.len();
                records.push((pos, record));
            }
            if bytes > RECORDS_BYTES_MAX {
                return Err(Fault::new(Code::TryAgain).why("too much has changed between the two moments"));
            }
        }
        if at.index != answer.at.index || at.term != answer.at.term {
            let why =
                format!("its rows are at {}.{}, and those here at {at}", answer.at.term, answer.at.index);
            return Err(Fault::new(Code::TryAgain).why(why));
        }
        let is_same = records.is_empty();
        let rows = if is_same { own.clone() } else { Arc::new(own.with_records(&records)?) };
        Ok(Other { link: link.clone(), rows, is_same })
    }

    /// Digest of rows here.
    async fn digest(
        &self,
        rows: &Arc<Snapshot>,
        range: &Range,
        rows_max: u64,
        bytes_max: u64,
    ) -> Result<Digest> {
        let (rows, range) = (rows.clone(), range.clone());
        let _turn = self.mdt.scans().acquire().await;
        let read = move || rows.digest(&range.after, range.to.as_deref(), rows_max, bytes_max);
        self.mdt.seams().run_blocking(read).await.unwrap_or_else(|| Err(panicked()))
    }

    /// Compares rows until the moment is old, or all rows were read.
    async fn compare_at(&self, moment: &Moment) -> Result<Flow> {
        let (scrub, seams) = (self.scrub(), self.mdt.seams());
        let taken = seams.now();
        let mut gone: Vec<String> = Vec::new();
        while seams.now().ms_since(taken) < MOMENT_MS {
            let began = seams.now();
            let rest = Range { after: scrub.places().rows_after, to: None };
            let own = match self.digest(&moment.own, &rest, u64::MAX, PIECE_BYTES).await {
                Err(fault) if fault.code == Code::KvDamaged => {
                    self.own_row_damaged(&fault);
                    return Ok(Flow::GoesOn);
                }
                other => other?,
            };
            let range = Range { to: (!own.is_end).then(|| own.last.clone()), ..rest };
            for other in &moment.others {
                if gone.contains(&other.link.host) {
                    continue;
                }
                match self.compare_on(other, &range, &own).await {
                    Ok(()) => {}
                    Err(fault) if fault.code == Code::KvDamaged => {
                        gone.push(other.link.host.clone());
                        self.member_is_damaged(&other.link, 1, &fault).await?;
                    }
                    Err(fault) => {
                        gone.push(other.link.host.clone());
                        self.not_compared(&other.link, &fault);
                    }
                }
            }
            scrub.change(|places| {
                places.rows_after = own.last.clone();
                places.rows_done = own.is_end;
            });
            scrub.pace.change(|record| record.pass.iter_mut().for_each(|pass| pass.objects += own.rows));
            if self.pause(own.bytes, began).await? == Flow::Pauses {
                return Ok(Flow::Pauses);
            }
            if own.is_end {
                break;
            }
        }
        Ok(Flow::GoesOn)
    }

    async fn compare_on(&self, other: &Other, range: &Range, own: &Digest) -> Result<()> {
        let mine = match other.is_same {
            true => own.clone(),
            false => self.digest(&other.rows, range, u64::MAX, u64::MAX).await?,
        };
        if self.is_same_there(other, range, &mine).await? {
            return Ok(());
        }
        let row = self.first_difference(other, range.clone(), mine).await?;
        let LogPlace { term, index } = LogPlace { term: other.rows.at().term, index: other.rows.at().index };
        let why =
            format!("the rows here and there differ at record {term}.{index}: {row}; no checksum is wrong");
        self.scrub().unmended(1, MdtDamage { differs: true, ..MdtDamage::of(&other.link.host, why) });
        Ok(())
    }

    async fn is_same_there(&self, other: &Other, range: &Range, mine: &Digest) -> Result<bool> {
        let rows_max = mine.rows.saturating_mul(2).saturating_add(MORE_ROWS);
        let step = CompareStep::Rows { after: range.after.clone(), to: range.to.clone(), rows_max };
        let theirs = self.ask(&other.link, step, BEGIN_LIMIT_MS).await?;
        Ok((theirs.rows, theirs.bytes, theirs.sum) == (mine.rows, mine.bytes, mine.sum))
    }

    /// Name of the first row that differs in a range, found by halving it.
    async fn first_difference(&self, other: &Other, mut range: Range, mut mine: Digest) -> Result<String> {
        for _ in 0..HALVINGS_MAX {
            if mine.rows <= 1 {
                break;
            }
            let half = self.digest(&other.rows, &range, mine.rows / 2, u64::MAX).await?;
            let first = Range { after: range.after.clone(), to: Some(half.last.clone()) };
            if self.is_same_there(other, &first, &half).await? {
                range.after = half.last;
                mine = self.digest(&other.rows, &range, u64::MAX, u64::MAX).await?;
            } else {
                (range, mine) = (first, half);
            }
        }
        let behind = if range.after.is_empty() { "the beginning".to_owned() } else { row_name(&range.after) };
        Ok(match range.to {
            Some(to) => format!("behind {behind}, up to {}", row_name(&to)),
            None => format!("behind {behind}"),
        })
    }
}
