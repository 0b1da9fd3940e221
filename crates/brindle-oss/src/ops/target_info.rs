//! target_info: identity and state of the target.

use brindle_net::ServerConn;
use brindle_types::{Code, Fault, Result, Role, SessionId};
use brindle_wire::map::TargetEntry;
use brindle_wire::mds::session::{TargetInfoReq, TargetInfoResp, term_counter};
use brindle_wire::mgs::durability;

use crate::service::Oss;

/// An OST with less space than this for users counts as full, in bytes.
const FULL_BELOW_BYTES: u64 = 4 << 20;

/// Status of the OST.
pub async fn handle(oss: &Oss, conn: &ServerConn, _req: TargetInfoReq) -> Result<TargetInfoResp> {
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
    let known = oss.store.known_damage();
    let known =
        [("known_damaged_blocks", known.damaged_blocks), ("known_missing_objects", known.missing_objects)];
    let shares = ("shares_its_disk".to_owned(), u64::from(oss.shares_its_disk));
    let mode = (durability::COUNTER.to_owned(), oss.mode.now().number().into());
    let refused = ("refused_callers".to_owned(), oss.gate.refused_callers());
    let counters =
        counters.chain([shares, mode, refused, oss.gate.accepts_anybody()]).chain(terms_of_mdts(oss));
    let counters = counters
        .chain(known.map(|(name, n)| (name.to_owned(), n)))
        .chain(oss.scrub.counters(oss.seams.now()));
    let counters = counters.chain(objects.map(|(name, n)| (name.to_owned(), n))).collect();
    Ok(TargetInfoResp {
        name: oss.identity.name(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        term: oss.store.boot_term(),
        state: state.to_owned(),
        problems: failure.into_iter().chain(damage(oss)).collect(),
        clients: oss.clients(),
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
        counters,
        releases: conn.releases(),
    })
}

/// The highest term under which each MDT has asked this OST (`brindle mdt restore` begins above it).
fn terms_of_mdts(oss: &Oss) -> Vec<(String, u64)> {
    let map = oss.targets.map().current();
    let mdts = map.targets.iter().filter(|t| t.id.role == Role::Mdt);
    let term = |mdt: &TargetEntry| oss.store.lowest_epoch(SessionId::of_mdt(mdt.id.index)).term;
    mdts.map(|mdt| (term_counter(mdt.id), term(mdt).into())).collect()
}

/// Reason why the disk of the OST cannot be trusted with new data.
pub fn failure(oss: &Oss) -> Option<Fault> {
    oss.store.failure().or_else(|| oss.disk.problem(&oss.identity.name()))
}

/// Damage and losses that the store found and that are not known to be cured, as one fault. The FID in
/// brackets is that of the last file.
fn damage(oss: &Oss) -> Option<Fault> {
    let known = oss.store.known_damage();
    let last = known.last?;
    let code = if known.damaged_blocks > 0 { Code::ObjectDamaged } else { Code::ObjectMissing };
    let fault = Fault::new(code)
        .what("files have lost bytes on")
        .subject(oss.identity.name())
        .why(format!(
            "{} with wrong checksums, {}",
            plural(known.damaged_blocks, "block of 4096 bytes", "blocks of 4096 bytes"),
            plural(known.missing_objects, "object missing", "objects missing")
        ))
        .why(format!("the last that was found belongs to the file {} (object {last})", last.ino.fid()))
        .data("nothing wrong is returned as data; reading the rest of such a file works")
        .next(
            "remove the file, or write its damaged part anew from a copy; within a minute of that this is not told any more \
             (all files: brindle fsck)",
        );
    Some(fault)
}

fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
