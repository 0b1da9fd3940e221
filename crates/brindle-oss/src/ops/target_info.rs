//! target_info: which target this is, and how it does.

use brindle_objects::findings::FindingKind;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::session::{TargetInfoReq, TargetInfoResp};

use crate::service::Oss;

/// An OST with less space than this for users counts as full, in bytes.
const FULL_BELOW_BYTES: u64 = 4 << 20;

/// One line of status.
pub async fn handle(oss: &Oss, _req: TargetInfoReq) -> Result<TargetInfoResp> {
    let space = oss.store.space()?;
    let failure = failure(oss);
    let state = match &failure {
        Some(_) => "failed",
        None if !oss.fences_known.is_set() => "recovering",
        None if space.available_bytes < FULL_BELOW_BYTES => "full",
        None => "active",
    };
    let counters = oss.store.stats().list().into_iter().chain(oss.stats.list());
    let counters = counters.map(|(name, _, n)| (name.to_owned(), n));
    let objects = [("total_inodes", space.total_inodes), ("free_inodes", space.free_inodes)];
    let counters = counters.chain(objects.map(|(name, n)| (name.to_owned(), n))).collect();
    Ok(TargetInfoResp {
        name: oss.identity.name(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        term: oss.store.boot_term(),
        state: state.to_owned(),
        problems: failure.into_iter().chain(damage(oss)).collect(),
        clients: oss.connections(),
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
        counters,
    })
}

/// Why its disk cannot be trusted with anything new.
pub fn failure(oss: &Oss) -> Option<Fault> {
    oss.store.failure().or_else(|| oss.disk.problem(&oss.identity.name()))
}

/// What the store found damaged, as one fault.
fn damage(oss: &Oss) -> Option<Fault> {
    let found = oss.store.findings();
    let mut damaged = found.iter().filter(|f| f.kind == FindingKind::Damaged);
    let count = damaged.clone().count();
    let last = damaged.next_back()?;
    let fault = Fault::new(Code::ObjectDamaged)
        .what("blocks with wrong checksums were found on")
        .subject(oss.identity.name())
        .why(format!("{count} in all; the last in object {} at offset {}", last.object, last.offset))
        .data("they are not returned as data");
    Some(fault)
}
