//! target_info: how the MGS does.

use std::sync::atomic::Ordering;

use brindle_net::{SOFTWARE, ServerConn};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::session::{TargetInfoResp, term_counter};

use crate::Mgs;

/// Status of the MGS.
pub(crate) fn handle(mgs: &Mgs, conn: &ServerConn) -> Result<TargetInfoResp> {
    let dir = &mgs.config.dir;
    let space = mgs.seams.disk.space(dir);
    let mut problems = Vec::new();
    if let Err(e) = &space {
        problems.push(Fault::io(Code::StoreDamaged, "cannot look at the MGT's directory", dir.clone(), e));
    }
    let space = space.unwrap_or_default();
    let map = mgs.store.current();
    let count = |a: &std::sync::atomic::AtomicU64| a.load(Ordering::Relaxed);
    Ok(TargetInfoResp {
        name: mgs.superblock.name(),
        version: SOFTWARE.to_owned(),
        term: 0,
        state: if problems.is_empty() { "active".to_owned() } else { "failed".to_owned() },
        problems,
        clients: 0,
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
        counters: [
            ("map_version".to_owned(), map.version),
            ("targets".to_owned(), map.targets.len() as u64),
            ("pools".to_owned(), map.pools.len() as u64),
            ("registrations".to_owned(), count(&mgs.stats.registrations)),
            ("heartbeats".to_owned(), count(&mgs.stats.heartbeats)),
            ("refused_callers".to_owned(), mgs.gate.refused_callers()),
            mgs.gate.accepts_anybody(),
        ]
        .into_iter()
        .chain(mgs.store.terms().into_iter().map(|(mdt, term)| (term_counter(mdt), term.into())))
        .collect(),
        releases: conn.releases(),
    })
}
