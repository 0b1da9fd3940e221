//! Usage and limits of users, groups and projects: quota_show, quota_change and quota_list. The module also serves quota_use and
//! quota_set of the first release, which know hard limits only.
//!
//! Usage comes from the counters that are kept with every change of an inode (`store/usage.rs`), limits are those of [`crate::quota`].

use std::collections::BTreeSet;

use brindle_types::{Code, Fault, Result};
use brindle_wire::Cred;
use brindle_wire::mds::quota::{
    QUOTA_LIST_MAX, QuotaChange, QuotaChangeReq, QuotaGrace, QuotaLimits, QuotaListReq, QuotaListResp,
    QuotaOwner, QuotaSetReq, QuotaShowReq, QuotaShowResp, QuotaSubject, QuotaUseReq, QuotaUseResp,
};
use bytes::Bytes;

use crate::mdt::{Call, Mdt, Step, Txn};
use crate::quota::{self, Owner};
use crate::store::limit::{self, KindSettings, Limit};
use crate::store::row;
use crate::store::usage::{self, Kind, Usage};

const CANNOT_TELL: &str = "cannot tell the usage of";
const CANNOT_LIMIT: &str = "cannot limit the usage of";

/// Tells root of everybody, others of themselves, their groups and projects. Space of files that somebody writes may be about a second
/// behind, as in a scan.
pub async fn handle_use(mdt: &Mdt, _call: &Call, req: QuotaUseReq) -> Result<QuotaUseResp> {
    let owner = (kind(req.owner), req.id);
    check_asker(&req.cred, owner)?;
    mdt.read(|t| use_of(t, owner)).await
}

/// Sets hard limits, durably. Existing usage stays, however much it is.
pub async fn handle_set(mdt: &Mdt, call: &Call, req: QuotaSetReq) -> Result<QuotaUseResp> {
    let owner = (kind(req.owner), req.id);
    check_setter(&req.cred, Some(owner))?;
    let change =
        QuotaChange { inodes_max: req.inodes_max, bytes_max: req.bytes_max, ..QuotaChange::default() };
    let set = mdt.step(call, |t| {
        // A full MDT is when limits are needed.
        t.frees_space();
        change_owner(t, owner, &change, false)?;
        Ok(use_of(t, owner)?)
    });
    let set = set.await?;
    mdt.synced().await?;
    // (`set` is the state before the change.)
    Ok(QuotaUseResp {
        inodes_max: req.inodes_max.unwrap_or(set.inodes_max),
        bytes_max: req.bytes_max.unwrap_or(set.bytes_max),
        ..set
    })
}

/// Tells usage, limits and grace times; of everybody to root.
pub async fn handle_show(mdt: &Mdt, _call: &Call, req: QuotaShowReq) -> Result<QuotaShowResp> {
    match req.subject {
        QuotaSubject::Owner { owner, id } => {
            let owner = (kind(owner), id);
            check_asker(&req.cred, owner)?;
            mdt.read(|t| show(t, owner, t.live().limits.of(owner))).await
        }
        QuotaSubject::Default(owner) => {
            mdt.read(|t| Ok(show_default(t, t.live().limits.settings().of(kind(owner))))).await
        }
    }
}

/// Changes limits or grace times, durably; or says what would be.
pub async fn handle_change(mdt: &Mdt, call: &Call, req: QuotaChangeReq) -> Result<QuotaShowResp> {
    let owner = match req.subject {
        QuotaSubject::Owner { owner, id } => Some((kind(owner), id)),
        QuotaSubject::Default(_) => None,
    };
    check_setter(&req.cred, owner)?;
    let changed = mdt.step(call, |t| {
        t.frees_space();
        match req.subject {
            QuotaSubject::Owner { owner, id } => {
                let owner = (kind(owner), id);
                let limit = change_owner(t, owner, &req.change, req.dry_run)?;
                Ok(show(t, owner, limit)?)
            }
            QuotaSubject::Default(owner) => change_default(t, kind(owner), &req.change, req.dry_run),
        }
    });
    let changed = changed.await?;
    if !req.dry_run {
        mdt.synced().await?;
    }
    Ok(changed)
}

/// Tells everybody who uses something or has limits of his own, a page at a time.
pub async fn handle_list(mdt: &Mdt, _call: &Call, req: QuotaListReq) -> Result<QuotaListResp> {
    if req.cred.uid != 0 {
        let why = format!("user {} is not root", req.cred.uid);
        return Err(Fault::new(Code::NotPermitted).what(CANNOT_TELL).subject("everybody").why(why));
    }
    let kind = kind(req.owner);
    mdt.read(|t| {
        let limits = &t.live().limits;
        // Fetch one more than fits, to learn whether there are more.
        let used = usage::ids_behind(t, kind, req.behind, QUOTA_LIST_MAX + 1)?;
        let ids: BTreeSet<u32> = used.into_iter().chain(limits.owners_behind(kind, req.behind)).collect();
        let has_more = ids.len() > QUOTA_LIST_MAX;
        let owners = ids.into_iter().take(QUOTA_LIST_MAX).map(|id| {
            let owner = (kind, id);
            Ok((id, show(t, owner, limits.of(owner))?))
        });
        Ok(QuotaListResp { owners: owners.collect::<Result<_>>()?, has_more })
    })
    .await
}

/// Sets the limits of an owner; what they are then.
fn change_owner(t: &mut Txn<'_>, owner: Owner, change: &QuotaChange, dry_run: bool) -> Step<Limit> {
    if change.inodes_grace_secs.is_some() || change.bytes_grace_secs.is_some() {
        let why = "grace times are those of all users, groups or projects";
        return Err(cannot_limit(Code::InvalidArgument, quota::name(owner)).why(why).into());
    }
    let limits = &t.live().limits;
    let (old, settings) = (limits.of(owner), *limits.settings());
    let settings = settings.of(owner.0);
    let has_default = !settings.limit.is_none() && owner.1 != 0;
    let chosen = match change.to_default {
        true => Limit { is_default: true, ..settings.limit },
        false => changed(old, change),
    };
    let timed =
        Limit { inodes_grace_end: old.inodes_grace_end, bytes_grace_end: old.bytes_grace_end, ..chosen };
    let limit = timed.timed(usage::get(t, owner)?, settings, t.now);
    // An owner without limits needs no row, unless there are default limits.
    let row = quota::row_of(limit).filter(|row| has_default || !row.is_none() || row.is_default);
    if let Some(row) = &row {
        check_level(t, row::encode(t.mdt().engine().level(), row), quota::name(owner))?;
    }
    if limit != old && !dry_run {
        limit::put(t, owner, row);
        t.after(move |live| live.limits.set(owner, row));
    }
    Ok(limit)
}

/// A form that not all servers read yet is refused, also where only is asked what would be.
fn check_level(t: &Txn<'_>, encoded: Result<Bytes>, subject: String) -> Result<()> {
    match encoded {
        Err(fault) if fault.code == Code::NewerFormat => {
            Err(quota::needs_level(t, CANNOT_LIMIT, subject, "soft and default limits need"))
        }
        encoded => encoded.map(drop),
    }
}

/// Sets the default limits and the grace times of a kind of owner.
fn change_default(t: &mut Txn<'_>, kind: Kind, change: &QuotaChange, dry_run: bool) -> Step<QuotaShowResp> {
    if change.to_default {
        let why = "those are the default limits";
        return Err(cannot_limit(Code::InvalidArgument, "whoever has no limits of his own".into())
            .why(why)
            .into());
    }
    let old = *t.live().limits.settings();
    let of_kind = old.of(kind);
    let new = KindSettings {
        limit: changed(of_kind.limit, change),
        inodes_grace_secs: change.inodes_grace_secs.unwrap_or(of_kind.inodes_grace_secs),
        bytes_grace_secs: change.bytes_grace_secs.unwrap_or(of_kind.bytes_grace_secs),
    };
    let settings = old.with(kind, new);
    let level = t.mdt().engine().level();
    check_level(t, row::encode(level, &settings), "whoever has no limits of his own".into())?;
    if settings != old && !dry_run {
        retime(t, kind, &of_kind.limit, &new)?;
        limit::put_settings(t, &settings);
        t.after(move |live| live.limits.set_settings(settings));
    }
    Ok(show_default(t, &new))
}

/// Adapts the grace times of all owners with the default limits to new settings: a grace time ends if its soft limit is
/// gone.
fn retime(t: &mut Txn<'_>, kind: Kind, old: &Limit, new: &KindSettings) -> Result<()> {
    let rows: Vec<(Owner, Limit)> = t.live().limits.default_graces(kind).collect();
    for (owner, row) in rows {
        let limit = Limit {
            inodes_grace_end: row.inodes_grace_end.filter(|_| old.inodes_soft > 0),
            bytes_grace_end: row.bytes_grace_end.filter(|_| old.bytes_soft > 0),
            is_default: true,
            ..new.limit
        };
        let timed = quota::row_of(limit.timed(usage::get(t, owner)?, new, t.now));
        if timed != Some(row) {
            limit::put(t, owner, timed);
            t.after(move |live| live.limits.set_graces(owner, timed));
        }
    }
    Ok(())
}

fn changed(old: Limit, change: &QuotaChange) -> Limit {
    Limit {
        inodes_max: change.inodes_max.unwrap_or(old.inodes_max),
        bytes_max: change.bytes_max.unwrap_or(old.bytes_max),
        inodes_soft: change.inodes_soft.unwrap_or(old.inodes_soft),
        bytes_soft: change.bytes_soft.unwrap_or(old.bytes_soft),
        is_default: false,
        ..old
    }
}

fn use_of(t: &Txn<'_>, owner: Owner) -> Result<QuotaUseResp> {
    let (used, limit) = (usage::get(t, owner)?, t.live().limits.of(owner));
    let Limit { inodes_max, bytes_max, .. } = limit;
    Ok(QuotaUseResp { inodes: used.inodes, bytes: used.bytes, inodes_max, bytes_max })
}

fn show(t: &Txn<'_>, owner: Owner, limit: Limit) -> Result<QuotaShowResp> {
    Ok(shown(t, usage::get(t, owner)?, &limit, t.live().limits.settings().of(owner.0)))
}

fn show_default(t: &Txn<'_>, settings: &KindSettings) -> QuotaShowResp {
    QuotaShowResp { is_default: true, ..shown(t, Usage::default(), &settings.limit, settings) }
}

fn shown(t: &Txn<'_>, used: Usage, limit: &Limit, settings: &KindSettings) -> QuotaShowResp {
    let Limit { inodes_max, bytes_max, inodes_soft, bytes_soft, .. } = *limit;
    QuotaShowResp {
        inodes: used.inodes,
        bytes: used.bytes,
        limits: QuotaLimits { inodes_max, bytes_max, inodes_soft, bytes_soft },
        is_default: limit.is_default,
        inodes_grace_end: limit.inodes_grace_end,
        bytes_grace_end: limit.bytes_grace_end,
        grace: QuotaGrace { inodes_secs: settings.inodes_grace_secs, bytes_secs: settings.bytes_grace_secs },
        now_secs: t.now.secs,
    }
}

fn kind(owner: QuotaOwner) -> Kind {
    match owner {
        QuotaOwner::User => Kind::User,
        QuotaOwner::Group => Kind::Group,
        QuotaOwner::Project => Kind::Project,
    }
}

/// Projects belong to nobody, so everybody may ask for them.
fn check_asker(cred: &Cred, owner: Owner) -> Result<()> {
    let own = match owner {
        (Kind::User, id) => cred.uid == id,
        (Kind::Group, id) => cred.gid == id || cred.groups.contains(&id),
        (Kind::Project, _) => true,
    };
    if cred.uid == 0 || own {
        return Ok(());
    }
    Err(Fault::new(Code::NotPermitted)
        .what(CANNOT_TELL)
        .subject(quota::name(owner))
        .why(format!("user {} may ask for himself, his groups, and projects", cred.uid))
        .next("ask as root"))
}

fn check_setter(cred: &Cred, owner: Option<Owner>) -> Result<()> {
    let (code, why) = match owner {
        _ if cred.uid != 0 => (Code::NotPermitted, format!("user {} is not root", cred.uid)),
        Some((Kind::User, 0)) => (Code::InvalidArgument, "no limit counts for root".into()),
        Some((Kind::Project, 0)) => (Code::InvalidArgument, "what has no project has the number 0".into()),
        _ => return Ok(()),
    };
    let subject = owner.map_or_else(|| "whoever has no limits of his own".into(), quota::name);
    Err(cannot_limit(code, subject).why(why))
}

fn cannot_limit(code: Code, subject: String) -> Fault {
    Fault::new(code).what(CANNOT_LIMIT).subject(subject).data("nothing was changed")
}
