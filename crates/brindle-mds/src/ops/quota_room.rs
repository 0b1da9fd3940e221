//! quota_room and quota_file_room: room for bytes under the limits of a file's user, group and project ([`crate::quota`]).

use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::mds::quota::{
    QuotaFileRoom, QuotaFileRoomReq, QuotaFileRoomResp, QuotaRoomReq, QuotaRoomResp, RoomUse,
};
use futures_util::future::join_all;

use crate::attrs::{self, Asking};
use crate::mdt::{Call, Live, Mdt, Txn};
use crate::quota::{self, Ask, Counting, Doubts, Outcome, Owner};
use crate::recovery;
use crate::store::usage::{self, Kind};
use crate::store::{Inode, inode};

/// Longest time, in milliseconds, to ask the OSTs for the allocated bytes of the files of owners.
const COUNT_MS: u64 = 4_000;
/// Files that are asked for at once, and whose owners are looked at in one go.
const COUNTED_AT_ONCE: usize = 16;
const READ_AT_ONCE: usize = 256;
/// A mount that is given less than this is also told below which byte the file is fully allocated. Otherwise a program that
/// overwrites its file near the quota would cause a request for every few blocks.
const PLENTY_BYTES: u64 = 1 << 20;

/// Gives a mount quota reservations for bytes. If too little seems left, the MDT first asks the OSTs for the allocation of files
/// that no client reports.
pub async fn handle(mdt: &Mdt, call: &Call, req: QuotaRoomReq) -> Result<QuotaRoomResp> {
    let file = mdt.read(|t| inode::find(t, req.ino)).await?;
    let (uid, gid) = owners_that_count(call, file.as_ref(), (req.uid, req.gid));
    let owners = [((Kind::User, uid), req.user), ((Kind::Group, gid), req.group)];
    let ask = AskOf { ino: req.ino, wanted_bytes: req.wanted_bytes, owners };
    let Room { given: [user_bytes, group_bytes], allocated_end } = ask.room(mdt, call).await?;
    Ok(QuotaRoomResp { user_bytes, group_bytes, allocated_end })
}

/// Handles a request for room as [`handle`] does, and charges the project of the file, too. A mount that
/// assumes another project, or none, is told the right one, and asks again.
pub async fn handle_file(mdt: &Mdt, call: &Call, req: QuotaFileRoomReq) -> Result<QuotaFileRoomResp> {
    let file = mdt.read(|t| inode::find(t, req.ino)).await?;
    let project = file.as_ref().map_or(0, |file| file.project);
    if req.project != Some(project) {
        return Ok(QuotaFileRoomResp { project, room: None });
    }
    let (uid, gid) = owners_that_count(call, file.as_ref(), (req.uid, req.gid));
    let owners = [
        ((Kind::User, uid), req.user),
        ((Kind::Group, gid), req.group),
        ((Kind::Project, project), req.in_project),
    ];
    let ask = AskOf { ino: req.ino, wanted_bytes: req.wanted_bytes, owners };
    let Room { given: [user_bytes, group_bytes, project_bytes], allocated_end } = ask.room(mdt, call).await?;
    let room = QuotaFileRoom { user_bytes, group_bytes, project_bytes, allocated_end };
    Ok(QuotaFileRoomResp { project, room: Some(room) })
}

/// User and group of whom room is given: the file's, where the host has user numbers of its own and may not know them.
fn owners_that_count(call: &Call, file: Option<&Inode>, said: (u32, u32)) -> (u32, u32) {
    let has_own_numbers = call.admission().is_some_and(|admitted| admitted.limits().ids.maps());
    file.filter(|_| has_own_numbers).map_or(said, |file| (file.uid, file.gid))
}

/// A question for room of several owners at once.
struct AskOf<const OWNERS: usize> {
    ino: Ino,
    wanted_bytes: u64,
    owners: [(Owner, RoomUse); OWNERS],
}

/// Room of each of them, and where the file has its blocks.
struct Room<const OWNERS: usize> {
    given: [Option<u64>; OWNERS],
    allocated_end: Option<u64>,
}

impl<const OWNERS: usize> AskOf<OWNERS> {
    async fn room(mut self, mdt: &Mdt, call: &Call) -> Result<Room<OWNERS>> {
        {
            let mut live = mdt.live_mut();
            check_session(&live, call)?;
            if call.admission().is_some() {
                let believed = |(owner, told)| (owner, live.limits.believed(owner, call.session, told));
                self.owners = self.owners.map(believed);
            }
            let add =
                |(owner, room): &(Owner, RoomUse)| live.limits.add_uncounted(*owner, room.uncounted_bytes);
            self.owners.iter().for_each(add);
        }
        let is_short = |given: &Option<u64>| given.is_some_and(|bytes| bytes < self.wanted_bytes);
        let mut given = self.give(mdt, call, Doubts::Count)?;
        if given.iter().any(is_short) {
            let short = self.owners.iter().zip(given).filter(|(_, given)| is_short(given));
            count(mdt, &short.map(|((owner, _), _)| *owner).collect::<Vec<_>>()).await;
            // Bytes that have come into doubt meanwhile are counted before the next request is answered.
            given = self.give(mdt, call, Doubts::Pass)?;
        }
        let is_little = |given: &Option<u64>| given.is_some_and(|bytes| bytes < PLENTY_BYTES);
        let allocated_end = if given.iter().any(is_short) {
            allocated_end(mdt, call, self.ino, Asking::Osts).await
        } else if given.iter().any(is_little) {
            allocated_end(mdt, call, self.ino, Asking::Nobody).await
        } else {
            Some(0)
        };
        Ok(Room { given, allocated_end })
    }

    fn give(&self, mdt: &Mdt, call: &Call, doubts: Doubts) -> Result<[Option<u64>; OWNERS]> {
        let now = (mdt.seams().now(), mdt.time());
        // Usage changes only under this lock, and sessions end.
        let mut live = mdt.live_mut();
        check_session(&live, call)?;
        let mut given = [None; OWNERS];
        for ((owner, room), given) in self.owners.iter().zip(&mut given) {
            if !live.limits.of(*owner).limits_bytes() {
                continue;
            }
            let used = usage::get(&mdt.engine().changes(), *owner)?;
            let ask = Ask { room: *room, wanted_bytes: self.wanted_bytes, doubts };
            *given = live.limits.give((*owner, used.bytes), call.session, ask, now);
        }
        Ok(given)
    }
}

fn check_session(live: &Live, call: &Call) -> Result<()> {
    let is_alive = live.session(call.session, call.epoch).is_some();
    if is_alive { Ok(()) } else { Err(Fault::new(Code::StaleSession).subject(call.session.to_string())) }
}

/// Asks the OSTs for the allocation of files that no client can report.
async fn count(mdt: &Mdt, owners: &[Owner]) {
    // Before the end of recovery it is not known which files are being written.
    recovery::over(mdt).await;
    let now = mdt.seams().now();
    let countings: Vec<(Owner, Counting)> = {
        let live = mdt.live();
        owners.iter().filter_map(|owner| Some((*owner, live.limits.counting(*owner, now)?))).collect()
    };
    if countings.is_empty() {
        return;
    }
    let silent = attrs::Silent::default();
    let done = mdt.seams().timeout_ms(COUNT_MS, count_files(mdt, &countings, &silent)).await;
    let silent = silent.into_inner();
    let outcome = match done {
        None => Outcome::TooSlow,
        Some(()) if silent.is_empty() => Outcome::All,
        Some(()) => Outcome::SomeSilent,
    };
    let now = mdt.seams().now();
    let mut live = mdt.live_mut();
    for (owner, counting) in countings {
        live.limits.counted(owner, counting, outcome, now);
        if outcome != Outcome::All {
            let owner = quota::name(owner);
            tracing::warn!(owner, ?outcome, ?silent, "what an owner uses is not known of all files");
        }
    }
}

async fn count_files(mdt: &Mdt, owners: &[(Owner, Counting)], silent: &attrs::Silent) {
    let is_meant = |file: Inode| file.owners().each().any(|of| owners.iter().any(|(owner, _)| *owner == of));
    let uncounted: Vec<Ino> = mdt.live().all_uncounted().into_iter().collect();
    let mut outcomes = Vec::new();
    for inos in uncounted.chunks(READ_AT_ONCE) {
        // Most may be others'.
        let look = |t: &Txn<'_>| {
            let meant = inos.iter().map(|ino| Ok((*ino, inode::find(t, *ino)?.is_some_and(is_meant))));
            meant.collect::<Result<Vec<_>>>()
        };
        let meant = match mdt.read(look).await {
            Ok(looked) => looked.into_iter().filter(|(_, is_meant)| *is_meant).map(|(ino, _)| ino).collect(),
            Err(fault) => {
                outcomes.push(Err(fault));
                Vec::new()
            }
        };
        for inos in meant.chunks(COUNTED_AT_ONCE) {
            outcomes.extend(join_all(inos.iter().map(|ino| attrs::count(mdt, *ino, silent))).await);
        }
    }
    if let Some(fault) = outcomes.into_iter().find_map(Result::err) {
        tracing::warn!(%fault, "a file cannot be counted");
    }
}

async fn allocated_end(mdt: &Mdt, call: &Call, ino: Ino, asking: Asking) -> Option<u64> {
    attrs::allocated_end(mdt, call.session, ino, asking).await.unwrap_or_else(|fault| {
        tracing::debug!(ino = ino.0, %fault, "cannot ask for the blocks of a file");
        Some(0)
    })
}
