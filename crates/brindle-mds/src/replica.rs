//! A member of a replica set: one MDT of several that have the same log on different hosts (design note 044).
//!
//! | module | holds |
//! |---|---|
//! | [`held`] | the store of a member that follows: none, in the making, or open |
//! | [`following`] | a member on the network that follows: takes records and rows, grants leases |
//! | [`promise`] | terms that others take |
//! | [`shipping`] | the records on their way to the other members, and how far those are |
//! | [`verified`] | what a member that follows does for the scrub |
//! | [`leading`] | the primary: takes over, fills learners, keeps its lease |
//!
//! [`brindle_targets::replica::SetMember`] holds what members of all kinds have in common. Invariants: a member's log is the beginning of
//! its primary's, or the member is filled anew; a reply is sent, and an irreversible step is done, only after every member in sync has its
//! record; no two openings of any members share a term.

pub mod following;
mod held;
pub mod leading;
mod promise;
mod shipping;
pub(crate) mod verified;

use brindle_config::Superblock;
use brindle_kv::LogPos;
use brindle_stdx::Seams;
use brindle_targets::replica::{ReplicaRecord, Seat, boot};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::replica::LogPlace;

pub use following::{Follower, follow};

/// Newest records that are kept in memory for members that lack them. A member that lacks more is filled anew.
pub(crate) const TAIL_BYTES_MAX: usize = 96 << 20;

fn place(pos: LogPos) -> LogPlace {
    LogPlace { term: pos.term, index: pos.index }
}

fn pos(place: LogPlace) -> LogPos {
    LogPos { term: place.term, index: place.index }
}

/// Before anything of a member is opened: what is not the right disk is not touched. Tells what is on the disk.
pub fn check_disk(seams: &Seams, dir: &str, seat: &Seat) -> Result<ReplicaRecord> {
    let record = seat.check_record(&*seams.disk, dir)?;
    let boot_term = boot::term(&*seams.disk, dir)?;
    seat.tell(|told| {
        told.recorded_epoch = record.epoch;
        told.boot_term = boot_term;
    });
    Ok(record)
}

/// Refuses to serve a member of a replica set as the only copy.
pub(crate) fn refuse_alone(seams: &Seams, dir: &str, superblock: &Superblock) -> Result<()> {
    if ReplicaRecord::load(&*seams.disk, dir)?.epoch == 0 {
        return Ok(());
    }
    Err(Fault::new(Code::OlderSet)
        .subject(format!("{} in {dir}", superblock.name()))
        .why("it is a member of a replica set, and was to be served as the only copy")
        .data("nothing was changed")
        .next("restore a newer configuration: brindle cluster restore"))
}

/// Whether the member on this host is to lead now: in the boot term that the MGS knows, since otherwise that decides anew.
pub fn leads(seat: &Seat) -> bool {
    let (set, boot_term) = (seat.set(), seat.told().boot_term);
    set.primary == seat.host
        && boot_term != 0
        && set.member(&set.primary).is_some_and(|member| member.boot_term == boot_term)
}
