//! quota_use, quota_set and quota_room: what users and groups use, may use, and get room for.
//!
//! Usage comes from the counters that are kept with every change of an inode (`store/usage.rs`), limits and rooms are those of
//! [`crate::limits`].

use brindle_types::{Code, Fault, Ino, Result};
use brindle_wire::Cred;
use brindle_wire::mds::quota::{
    QuotaOwner, QuotaRoomReq, QuotaRoomResp, QuotaSetReq, QuotaUseReq, QuotaUseResp, RoomUse,
};
use futures_util::future::join_all;

use crate::limits::{self, Owner};
use crate::mdt::{Call, Mdt, Txn};
use crate::store::limit::{self, Limit};
use crate::store::usage::{self, Kind};
use crate::store::{Inode, inode};
use crate::{attrs, recovery};

/// How long the OSTs are asked at most what the files of an owner have allocated, and one file.
const COUNT_MS: u64 = 4_000;
const COUNT_FILE_MS: u64 = 1_000;
/// An object may have so much more than it tells, on a local file system whose blocks are smaller than a block of sums.
const UNTOLD_BYTES: u64 = 3 << 10;
/// Files that are asked for at once.
const COUNTED_AT_ONCE: usize = 16;

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
            .subject(limits::name(owner))
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
    let refused = |code, why: String| Err(Fault::new(code).what(what).subject(limits::name(owner)).why(why));
    if cred.uid != 0 {
        let why = format!("user {} is not root", cred.uid);
        return refused(Code::NotPermitted, why).map_err(|fault| fault.data("nothing was changed"));
    }
    if owner == (Kind::User, 0) {
        return refused(Code::InvalidArgument, "no limit counts for root".into());
    }
    Ok(())
}

/// Gives a mount room for bytes. Where there seems to be too little, the OSTs are asked first what files have allocated of which
/// nobody else knows it.
pub async fn handle_room(mdt: &Mdt, call: &Call, req: QuotaRoomReq) -> Result<QuotaRoomResp> {
    let owners = [((Kind::User, req.uid), req.user), ((Kind::Group, req.gid), req.group)];
    {
        let mut live = mdt.live_mut();
        if live.session(call.session, call.epoch).is_none() {
            return Err(Fault::new(Code::StaleSession).subject(call.session.to_string()));
        }
        owners.iter().for_each(|(owner, room)| live.limits.uncounted(*owner, room.uncounted_bytes));
    }
    let is_short = |given: &Option<u64>| given.is_some_and(|bytes| bytes < req.wanted_bytes);
    let mut given = give(mdt, call, &req, &owners)?;
    if given.iter().any(is_short) {
        for ((owner, _), _) in owners.iter().zip(given).filter(|(_, given)| is_short(given)) {
            count(mdt, *owner).await;
        }
        given = give(mdt, call, &req, &owners)?;
    }
    let dense_end = if given.iter().any(is_short) { dense_end(mdt, call, req.ino).await } else { 0 };
    let [user_bytes, group_bytes] = given;
    Ok(QuotaRoomResp { user_bytes, group_bytes, dense_end })
}

fn give(
    mdt: &Mdt,
    call: &Call,
    req: &QuotaRoomReq,
    owners: &[(Owner, RoomUse); 2],
) -> Result<[Option<u64>; 2]> {
    let now = mdt.seams().now();
    // Usage changes only under this lock.
    let mut live = mdt.live_mut();
    let mut given = [None; 2];
    for ((owner, room), given) in owners.iter().zip(&mut given) {
        let used = usage::get(&mdt.engine().changes(), owner.0 as u8, owner.1)?;
        *given = live.limits.give((*owner, used.bytes), call.session, *room, req.wanted_bytes, now);
    }
    Ok(given)
}

/// Has the objects of files that nobody else can tell of say what they have allocated. Where one does not answer the counters are
/// believed as they are: nobody writes to an OST that is away.
async fn count(mdt: &Mdt, owner: Owner) {
    // Until then it is not known which files somebody writes.
    recovery::over(mdt).await;
    let Some(counting) = mdt.live().limits.counting(owner) else { return };
    match mdt.seams().timeout_ms(COUNT_MS, count_files(mdt, owner)).await {
        Some(0) => {}
        Some(failed) => {
            tracing::warn!(owner = limits::name(owner), failed, "files whose OSTs cannot say what they take");
        }
        None => tracing::warn!(owner = limits::name(owner), "it takes too long to count what is used"),
    }
    mdt.live_mut().limits.counted(owner, counting);
}

/// How many could not be asked.
async fn count_files(mdt: &Mdt, (kind, id): Owner) -> usize {
    let is_meant = |file: Inode| id == if kind == Kind::User { file.uid } else { file.gid };
    let uncounted: Vec<Ino> = mdt.live().all_uncounted().into_iter().collect();
    let mut failed = 0;
    for inos in uncounted.chunks(COUNTED_AT_ONCE) {
        let counting = inos.iter().map(async |ino| {
            if !mdt.read(|t| inode::find(t, *ino)).await?.is_some_and(is_meant) {
                return Ok(());
            }
            let counted = mdt.seams().timeout_ms(COUNT_FILE_MS, attrs::count(mdt, *ino)).await;
            counted.unwrap_or_else(|| Err(Fault::new(Code::TargetDown)))
        });
        let counted: Vec<Result<()>> = join_all(counting).await;
        failed += counted.iter().filter(|counted| counted.is_err()).count();
    }
    failed
}

/// Below which byte a file has all its blocks: none, if it may have holes.
async fn dense_end(mdt: &Mdt, call: &Call, ino: Ino) -> u64 {
    let look = async || -> Result<u64> {
        // The sole writer may have made a hole of which the row does not tell.
        attrs::count(mdt, ino).await?;
        let attr = attrs::fresh(mdt, call.session, ino).await?;
        let objects = mdt.read(|t| Ok(attrs::objects(&inode::get(t, ino)?).len())).await?;
        let untold = if attr.allocated_bytes == 0 { 0 } else { objects as u64 * UNTOLD_BYTES };
        Ok(if attr.allocated_bytes + untold >= attr.size_bytes { attr.size_bytes } else { 0 })
    };
    match mdt.seams().timeout_ms(COUNT_FILE_MS, look()).await {
        Some(Ok(dense_end)) => dense_end,
        failed => {
            tracing::debug!(ino = ino.0, ?failed, "cannot ask for the blocks of a file");
            0
        }
    }
}
