//! Leases of directories around a batch: which have to be recalled before it, and which cache updates its caller gets
//! after it.
//!
//! Both follow from the changes in the batch ([`Effects`]), so no operation can forget them.

use std::collections::BTreeSet;

use brindle_stdx::Mono;
use brindle_types::{Ino, SessionId};
use brindle_wire::Op;
use brindle_wire::cache_updates::{Covered, InodeUpdate, Leased, NameUpdate};

use super::stop::{Event, SideTask, Stop};
use super::{Call, Live};
use crate::store::changes::Effects;

/// Directories whose leases cover what a batch changes.
fn changed(effects: &Effects) -> impl Iterator<Item = Ino> {
    let names = effects.names.iter().map(|name| name.dir);
    let rights = effects.inodes.iter().filter_map(|inode| inode.rights_were_covered_by);
    let rights = rights.filter(|_| !brindle_stdx::planted("mds_rights_not_recalled"));
    effects.inodes.iter().filter_map(|inode| inode.was_covered_by).chain(rights).chain(names)
}

/// Recalls before a batch: sessions that hold leases over its changes give them up first.
pub(super) fn before(live: &Live, call: &Call, effects: &Effects) -> Option<Stop> {
    let dirs: BTreeSet<Ino> = changed(effects).collect();
    if dirs.is_empty() || brindle_stdx::planted("mds_leases_not_recalled") {
        return None;
    }
    // The holders of leases from before a restart are not known. A client that has declared itself again has
    // forgotten its leases.
    let waits = live.recovering && call.op != Op::Reclaim && call.session != SessionId(0);
    if waits && !brindle_stdx::planted("mds_leases_lost_in_restart") {
        return Some(Stop::RetryAfter(Event::Recovered));
    }
    let conflicts = live.leases.lock().conflicts(&dirs, call.session);
    (!conflicts.is_empty()).then_some(Stop::First(SideTask::RecallLeases(conflicts)))
}

/// Tells the caller what the batch at place `at` has changed.
pub(super) fn behind(live: &mut Live, call: &Call, effects: Effects, at: u64, now: Mono) {
    let (is_alive, recovering) = (live.is_alive(call.session), live.recovering);
    let leases = live.leases.get_mut();
    for dir in changed(&effects) {
        leases.changed(dir, call.session, now);
    }
    for gone in effects.inodes.iter().filter(|inode| inode.is_gone) {
        leases.forget_dir(gone.ino);
    }
    if !is_alive {
        return;
    }
    call.tell(|news| {
        for inode in effects.inodes {
            let is_new = inode.is_new_dir && !recovering && leases.grant(inode.ino, call.session, now);
            if is_new {
                news.leased.push(Leased { dir: inode.ino, at, is_new });
            }
            // A lease that is being recalled counts, too: until the caller has given it back, it believes its
            // cache.
            let rights_by = inode.rights_covered_by;
            let known = inode.now.and_then(|(attr, by)| {
                let by = [Some(by), rights_by]
                    .into_iter()
                    .flatten()
                    .find(|by| leases.may_use(*by, call.session))?;
                Some(Covered { attr, by })
            });
            news.inodes.push(InodeUpdate { ino: inode.ino, at, known });
        }
        for name in effects.names {
            if leases.may_use(name.dir, call.session) {
                news.names.push(NameUpdate { dir: name.dir, name: name.name, to: name.to, at });
            }
        }
    });
}
