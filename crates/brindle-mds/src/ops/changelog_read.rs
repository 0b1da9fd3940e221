//! changelog_read: records in order, those that survive a power cut.

use brindle_types::{Change, ChangeKind, ChangeMask, Result};
use brindle_wire::mds::changelog::{ChangelogReadReq, ChangelogReadResp, RECORDS_MAX};

use super::changelog_readers::{find, root_only};
use crate::mdt::{Call, Mdt, Txn};
use crate::store::changelog::behind;

/// Rows that one part of an answer looks at: writers wait meanwhile.
const LOOKED_AT_MAX: usize = 2 * RECORDS_MAX;

/// Returns the next part. Records that were removed before the reader had cleared them (without a reader: before all
/// had) appear as one record of type GAP, under the index of the last removed one. A reader that meets a GAP scans
/// the tree again.
pub async fn handle(mdt: &Mdt, _call: &Call, req: ChangelogReadReq) -> Result<ChangelogReadResp> {
    root_only(&req.cred, "read")?;
    let page = mdt.read(|t| page(t, &req)).await?;
    // All records of the page were in the log before now.
    if !page.records.is_empty() {
        mdt.synced().await?;
    }
    Ok(page)
}

fn page(t: &Txn<'_>, req: &ChangelogReadReq) -> Result<ChangelogReadResp> {
    let known = &t.live().changelog;
    let state = &known.state;
    let (cleared, own_mask) = match req.reader {
        Some(id) => {
            let reader = &state.readers[find(t, state, id)?];
            (reader.cleared, reader.mask.unwrap_or(state.mask))
        }
        None if state.readers.is_empty() => {
            // Changes are not being recorded; old records are being removed.
            let next = req.start.max(t.mdt().changelog().current() + 1);
            return Ok(ChangelogReadResp { records: Vec::new(), next, is_end: true });
        }
        None => (known.cleared_to(), ChangeMask::ALL),
    };
    let mask = ChangeMask(own_mask.0 & req.mask.unwrap_or(ChangeMask::ALL).0);
    let end = if req.end == 0 { u64::MAX } else { req.end };
    let first = req.start.max(cleared.saturating_add(1));
    let mut records = Vec::new();
    if cleared < state.dropped_to && (first..=end).contains(&state.dropped_to) {
        let mut gap = Change::new(ChangeKind::Gap, t.now);
        gap.name = b"records were dropped: scan again".to_vec();
        records.push((state.dropped_to, gap));
    }
    let after = known.begin().max(first - 1);
    let found = behind(t, after, LOOKED_AT_MAX)?;
    let mut is_end = found.len() < LOOKED_AT_MAX;
    let mut next = after.saturating_add(1);
    for stored in found {
        if stored.index > end {
            is_end = true;
            break;
        }
        if records.len() == RECORDS_MAX {
            is_end = false;
            break;
        }
        next = stored.index + 1;
        if mask.has(stored.change.kind) {
            records.push((stored.index, stored.change));
        }
    }
    if next > end {
        is_end = true;
    }
    Ok(ChangelogReadResp { records, next, is_end })
}
