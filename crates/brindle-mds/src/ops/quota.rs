//! quota_use, quota_set and quota_room: what users and groups use, may use, and get room for.
//!
//! Usage comes from the counters that are kept with every change of an inode (`store/usage.rs`), limits and rooms are those of
//! [`crate::quota`].

use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::Cred;
use brindle_wire::mds::quota::{
    QuotaOwner, QuotaRoomReq, QuotaRoomResp, QuotaSetReq, QuotaUseReq, QuotaUseResp, RoomUse,
};
use futures_util::future::join_all;

use crate::attrs::{self, Asking};
use crate::mdt::{Call, Live, Mdt, Txn};
use crate::quota::{self, Ask, Counting, Doubts, Outcome, Owner};
use crate::recovery;
use crate::store::limit::{self, Limit};
use crate::store::usage::{self, Kind};
use crate::store::{Inode, inode};

/// How long the OSTs are asked at most what the files of owners have allocated.
const COUNT_MS: u64 = 4_000;
/// Files that are asked for at once, and whose owners are looked at in one go.
const COUNTED_AT_ONCE: usize = 16;
const READ_AT_ONCE: usize = 256;
/// A mount that is given less is told how far the file has its blocks: near its limit somebody who writes over what he has would
/// ask for every few of them.
const PLENTY_BYTES: u64 = 1 << 20;

/// Tells root of everybody, others of themselves and their groups. Space of files that somebody writes may be about a second
/// behind, as in a scan.
pub async fn handle_use(mdt: &Mdt, _call: &Call, req: QuotaUseReq) -> Result<QuotaUseResp> {
    let cred = &req.cred;
    let owner = owner(req.owner, req.id, "cannot tell the usage of")?;
    let own = match owner {
        (Kind::User, id) => cred.uid == id,
        (Kind::Group, id) => cred.gid == id || cred.groups.contains(&id),
    };
    if cred.uid != 0 && !own {
        return Err(Fault::new(Code::NotPermitted)
            .what("cannot tell the usage of")
            .subject(quota::name(owner))
            .why(format!("user {} may ask for himself and his groups", cred.uid))
            .next("ask as root"));
    }
    mdt.read(|t| use_of(t, owner, t.live().limits.of(owner))).await
}

/// Sets limits, durably. What is used already stays, however much it is.
pub async fn handle_set(mdt: &Mdt, call: &Call, req: QuotaSetReq) -> Result<QuotaUseResp> {
    let what = "cannot limit the usage of";
    let owner = owner(req.owner, req.id, what)?;
    check_setter(&req.cred, owner, what)?;
    let set = mdt.step(call, |t| {
        // A full MDT is when limits are needed.
        t.frees_space();
        let old = t.live().limits.of(owner);
        let limit = Limit {
            inodes_max: req.inodes_max.unwrap_or(old.inodes_max),
            bytes_max: req.bytes_max.unwrap_or(old.bytes_max),
        };
        if limit != old {
            limit::put(t, owner.0, owner.1, limit);
            t.after(move |live| live.limits.set(owner, limit));
        }
        Ok(use_of(t, owner, limit)?)
    });
    let set = set.await?;
    mdt.synced().await?;
    Ok(set)
}

fn use_of(t: &Txn<'_>, (kind, id): Owner, limit: Limit) -> Result<QuotaUseResp> {
    let used = usage::get(t, kind as u8, id)?;
    let Limit { inodes_max, bytes_max } = limit;
    Ok(QuotaUseResp { inodes: used.inodes, bytes: used.bytes, inodes_max, bytes_max })
}

fn owner(owner: QuotaOwner, id: u32, what: &'static str) -> Result<Owner> {
    match owner {
        QuotaOwner::User => Ok((Kind::User, id)),
        QuotaOwner::Group => Ok((Kind::Group, id)),
        QuotaOwner::Project => Err(Fault::new(Code::NotSupported)
            .what(what)
            .subject(format!("project {id}"))
            .why("files of this version belong to no project")
            .next("name a user (-u) or a group (-g)")),
    }
}

fn check_setter(cred: &Cred, owner: Owner, what: &'static str) -> Result<()> {
    let (code, why) = if cred.uid != 0 {
        (Code::NotPermitted, format!("user {} is not root", cred.uid))
    } else if owner == (Kind::User, 0) {
        (Code::InvalidArgument, "no limit counts for root".into())
    } else {
        return Ok(());
    };
    Err(Fault::new(code).what(what).subject(quota::name(owner)).why(why).data("nothing was changed"))
}

/// Gives a mount room for bytes. Where there seems to be too little, the OSTs are asked first what files have allocated of which
/// nobody else knows it.
pub async fn handle_room(mdt: &Mdt, call: &Call, req: QuotaRoomReq) -> Result<QuotaRoomResp> {
    let req = with_owners_of_the_file(mdt, call, req).await?;
    let owners = [((Kind::User, req.uid), req.user), ((Kind::Group, req.gid), req.group)];
    {
        let mut live = mdt.live_mut();
        check_session(&live, call)?;
        owners.iter().for_each(|(owner, room)| live.limits.add_uncounted(*owner, room.uncounted_bytes));
    }
    let is_short = |given: &Option<u64>| given.is_some_and(|bytes| bytes < req.wanted_bytes);
    let mut given = give(mdt, call, &req, &owners, Doubts::Count)?;
    if given.iter().any(is_short) {
        let short = owners.iter().zip(given).filter(|(_, given)| is_short(given));
        count(mdt, &short.map(|((owner, _), _)| *owner).collect::<Vec<_>>()).await;
        // What has come into doubt meanwhile is counted before the next question is answered.
        given = give(mdt, call, &req, &owners, Doubts::Pass)?;
    }
    let is_little = |given: &Option<u64>| given.is_some_and(|bytes| bytes < PLENTY_BYTES);
    let dense_end = if given.iter().any(is_short) {
        dense_end(mdt, call, req.ino, Asking::Osts).await
    } else if given.iter().any(is_little) {
        dense_end(mdt, call, req.ino, Asking::Nobody).await
    } else {
        Some(0)
    };
    let [user_bytes, group_bytes] = given;
    Ok(QuotaRoomResp { user_bytes, group_bytes, dense_end })
}

/// A host with user numbers of its own may not know those of the file: room is given of the file's owner and group.
async fn with_owners_of_the_file(mdt: &Mdt, call: &Call, req: QuotaRoomReq) -> Result<QuotaRoomReq> {
    if !call.admission().is_some_and(|admitted| admitted.limits().ids.maps()) {
        return Ok(req);
    }
    let file = mdt.read(|t| inode::find(t, req.ino)).await?;
    Ok(file.map_or(req, |file| QuotaRoomReq { uid: file.uid, gid: file.gid, ..req }))
}

fn check_session(live: &Live, call: &Call) -> Result<()> {
    let is_alive = live.session(call.session, call.epoch).is_some();
    if is_alive { Ok(()) } else { Err(Fault::new(Code::StaleSession).subject(call.session.to_string())) }
}

fn give(
    mdt: &Mdt,
    call: &Call,
    req: &QuotaRoomReq,
    owners: &[(Owner, RoomUse); 2],
    doubts: Doubts,
) -> Result<[Option<u64>; 2]> {
    let now = mdt.seams().now();
    // Usage changes only under this lock, and sessions end.
    let mut live = mdt.live_mut();
    check_session(&live, call)?;
    let mut given = [None; 2];
    for ((owner, room), given) in owners.iter().zip(&mut given) {
        let used = usage::get(&mdt.engine().changes(), owner.0 as u8, owner.1)?;
        let ask = Ask { room: *room, wanted_bytes: req.wanted_bytes, doubts };
        *given = live.limits.give((*owner, used.bytes), call.session, ask, now);
    }
    Ok(given)
}

/// Has the objects of files that nobody else can tell of say what they have allocated.
async fn count(mdt: &Mdt, owners: &[Owner]) {
    // Until then it is not known which files somebody writes.
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
    let owns = |file: &Inode, (kind, id): Owner| id == if kind == Kind::User { file.uid } else { file.gid };
    let is_meant = |file: Inode| owners.iter().any(|(owner, _)| owns(&file, *owner));
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

async fn dense_end(mdt: &Mdt, call: &Call, ino: Ino, asking: Asking) -> Option<u64> {
    attrs::dense_end(mdt, call.session, ino, asking).await.unwrap_or_else(|fault| {
        tracing::debug!(ino = ino.0, %fault, "cannot ask for the blocks of a file");
        Some(0)
    })
}
