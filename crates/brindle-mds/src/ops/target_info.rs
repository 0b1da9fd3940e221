//! target_info: identity and state of the target.

use brindle_kv::DurabilityMode;
use brindle_stdx::cast::len_u32;
use brindle_types::{Fault, Result};
use brindle_wire::mds::session::TargetInfoResp;
use brindle_wire::mgs::durability::{self, Mode};

use crate::mdt::Mdt;
use crate::ops::policy;
use crate::ops::statfs::BYTES_PER_INODE;
use crate::store::{destroy_queue, orphan, usage};

/// Objects to destroy are counted up to here.
const QUEUE_COUNT_MAX: usize = 100_000;

/// Status of the MDT. Anybody may ask, with or without a session.
pub async fn handle(mdt: &Mdt) -> Result<TargetInfoResp> {
    let space = mdt.engine().space()?;
    let failed = mdt.engine().failed();
    let (recovering, hears_few, clients, opens, unserved) = {
        let live = mdt.live();
        let clients = live.sessions.values().filter(|s| !s.row.ended).count();
        let unserved = policy::unserved(&live.hsm, mdt.seams().wall().secs);
        (live.recovering, live.hears_few, len_u32(clients), live.opens.count() as u64, unserved)
    };
    let (inodes, orphans, queued) = mdt
        .read(|t| {
            let users = usage::list(t, usage::Kind::User)?;
            let inodes: u64 = users.iter().map(|(_, used)| used.inodes).sum();
            let orphans = orphan::list(t)?.len() as u64;
            Ok((inodes, orphans, destroy_queue::count(t, QUEUE_COUNT_MAX)? as u64))
        })
        .await?;
    let (locks, lock_waiters) = mdt.locks().counts();
    let osts = mdt.osts().candidates();
    let usable = osts.iter().filter(|c| brindle_layout::usable(c, mdt.osts().high_water_percent())).count();
    let counters = [
        ("osts_usable", usable as u64),
        ("high_water_percent", mdt.osts().high_water_percent()),
        ("map_version", mdt.osts().map_version()),
        ("inodes", inodes),
        ("orphans", orphans),
        ("objects_to_destroy", queued),
        ("open_handles", opens),
        ("locks", locks as u64),
        ("lock_waiters", lock_waiters as u64),
        ("waits", mdt.waits().list().len() as u64),
        (durability::COUNTER, mode_of(mdt.engine().mode()).number().into()),
    ];
    let scrub = mdt.scrub().pace.counters(mdt.seams().now());
    let counters = counters.map(|(name, n)| (name.to_owned(), n)).into_iter().chain(scrub).collect();
    let name = mdt.identity().name();
    let problems = failed.iter().cloned().chain(unserved).chain(mdt.scrub().problem(&name)).collect();
    Ok(TargetInfoResp {
        name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        term: mdt.numbers().term(),
        state: state(&failed, recovering, hears_few, space.available_bytes).to_owned(),
        problems,
        clients,
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
        counters,
        // The service knows the connections.
        releases: Vec::new(),
    })
}

/// The mode of a store, by the name that people know.
pub fn mode_of(mode: DurabilityMode) -> Mode {
    match mode {
        DurabilityMode::Relaxed => Mode::Relaxed,
        DurabilityMode::Sync => Mode::Sync,
        DurabilityMode::Scratch => Mode::Scratch,
    }
}

fn state(failed: &Option<Fault>, recovering: bool, hears_few: bool, available_bytes: u64) -> &'static str {
    match failed {
        Some(_) => "failed",
        None if recovering => "recovering",
        None if hears_few => "hears few",
        None if available_bytes < BYTES_PER_INODE => "full",
        None => "active",
    }
}
