//! policy_scan, policy_remove and hsm_backlog: requests of the policy engine (design note 033).
//!
//! A policy scan is a page of a scan ([`crate::scan`]) whose matches come with their flags of tiering, their layout
//! and the extended attributes that a policy asks about. The same rules of consistency hold here. The batch of a
//! removal compares the entry with the one that the scan has found, so a file that was written, renamed, replaced or
//! opened meanwhile stays.

use std::collections::BTreeMap;

use brindle_types::attr::Time;
use brindle_types::changelog::FLAG_LAST;
use brindle_types::{ChangeKind, Code, Fault, FileType, HsmControl, HsmKind, Ino, Result, SessionId};
use brindle_wire::mds::Empty;
use brindle_wire::mds::policy::{
    FLAGS_MAX, HsmBacklog, HsmBacklogReq, HsmBacklogResp, OSTS_MAX, PATH_BYTES_MAX, PolicyFound,
    PolicyRemoveReq, PolicyScanReq, PolicyScanResp, XATTR_BYTES_MAX, XATTRS_MAX, XattrFound,
};
use brindle_wire::mds::scan::{DEPTH_MAX, ScanReq, Wanted};

use crate::changelog;
use crate::hsm::{self, queue::Queue};
use crate::mdt::{Call, Event, Mdt, SideTask, Step, Stop, Txn};
use crate::namespace;
use crate::scan::{Limits, Walk};
use crate::store::{Inode, dirent, inode, xattr};

/// A page: as of other scans, with less bytes, since each match has more to tell.
const PAGE: Limits = Limits { rows: 4096, bytes: 32 << 10 };

/// Time in seconds that an action waits for an archive without an agent before that is a problem: agents come
/// back after a restart.
const UNSERVED_SECS: u64 = 10;

fn refused(why: String) -> Fault {
    Fault::new(Code::InvalidArgument).what("cannot scan for policies").why(why)
}

/// Makes one page. Pages of several scans are made one after the other.
pub async fn handle_scan(mdt: &Mdt, _call: &Call, req: PolicyScanReq) -> Result<PolicyScanResp> {
    hsm::root_only(&req.cred, "cannot scan for policies")?;
    if req.xattrs.len() > XATTRS_MAX || req.flags.len() > FLAGS_MAX {
        return Err(refused(format!(
            "{} extended attributes and {} flags; at most {XATTRS_MAX} and {FLAGS_MAX} are allowed",
            req.xattrs.len(),
            req.flags.len()
        )));
    }
    let scan = ScanReq {
        cred: req.cred.clone(),
        start: req.start,
        start_name: Vec::new(),
        predicate: req.predicate.clone(),
        depth_min: 0,
        depth_max: DEPTH_MAX,
        wanted: Wanted::Attrs,
        cursor: req.cursor.clone(),
    };
    let (page, began) = {
        let _turn = mdt.scans().acquire().await;
        let wall = mdt.seams().wall();
        let now = Time { secs: wall.secs, nanos: wall.nanos };
        let page = Walk::page(mdt.engine(), mdt.engine().format().hash_key, &scan, now, PAGE)?;
        (page, req.cursor.as_ref().map_or(now, |cursor| cursor.began))
    };
    let cursor = page.cursor;
    let found = mdt.read(|t| {
        let mut all = Vec::new();
        for entry in &page.found {
            let Some(attr) = &entry.attr else { continue };
            // The inode may be gone since the page was made.
            let Some(inode) = inode::find(t, attr.ino)? else { continue };
            all.extend(told(t, &req, entry.path.clone(), &inode)?);
        }
        Ok(all)
    });
    Ok(PolicyScanResp { found: found.await?, began, cursor })
}

/// Description of an entry; `None` if its flags are not among the wanted ones.
fn told(t: &Txn<'_>, req: &PolicyScanReq, path: Vec<u8>, inode: &Inode) -> Result<Option<PolicyFound>> {
    let is_file = inode.kind == FileType::Regular;
    let state = if is_file { hsm::state_of(t, inode.ino)? } else { Default::default() };
    let flags = if is_file { hsm::flags(inode, &state) } else { 0 };
    let is_asked_for = req.flags.is_empty() || req.flags.iter().any(|m| flags & m.mask == m.value);
    if !is_asked_for {
        return Ok(None);
    }
    let mut found = PolicyFound {
        path,
        attr: inode.attr(),
        flags,
        archive: state.archive,
        under_way: t.live().hsm.actions.get(&inode.ino).map(|action| action.kind),
        pools: Vec::new(),
        osts: Vec::new(),
        is_empty_dir: inode.is_dir() && dirent::is_empty(t, inode.ino)?,
        xattrs: Vec::new(),
    };
    if let Some(layout) = inode.file.as_ref().map(|file| &file.layout) {
        found.pools = layout.components.iter().filter_map(|c| c.asked.pool().cloned()).collect();
        found.pools.dedup();
        if !layout.inline {
            found.osts = layout.stripes().map(|(_, ost)| ost).take(OSTS_MAX).collect();
        }
    }
    for name in &req.xattrs {
        let value = if inode.has_xattr { xattr::find(t, inode.ino, name)? } else { None };
        found.xattrs.push(match value {
            None => XattrFound::None,
            Some(value) if value.len() > XATTR_BYTES_MAX => XattrFound::TooLong,
            Some(value) => XattrFound::Value(value.to_vec()),
        });
    }
    Ok(Some(found))
}

fn changed(why: impl Into<String>) -> Fault {
    Fault::new(Code::EntryChanged).why(why.into()).data("nothing was removed")
}

/// Removes an entry that is as it was found.
pub async fn handle_remove(mdt: &Mdt, call: &Call, req: PolicyRemoveReq) -> Result<Empty> {
    hsm::root_only(&req.cred, "cannot remove for a policy")?;
    let names: Vec<&[u8]> = req.path.split(|b| *b == b'/').collect();
    if req.path.len() > PATH_BYTES_MAX || names.len() > DEPTH_MAX as usize {
        return Err(Fault::new(Code::NameTooLong).why(format!("the path has {} bytes", req.path.len())));
    }
    for name in &names {
        namespace::check_name(name)?;
        if namespace::is_dots(name) {
            return Err(Fault::new(Code::InvalidArgument).why("a path has no '.' and no '..'"));
        }
    }
    let mut has_asked = false;
    mdt.modify(call, |t| remove(t, &req, &names, &mut has_asked)).await
}

fn remove(t: &mut Txn<'_>, req: &PolicyRemoveReq, names: &[&[u8]], has_asked: &mut bool) -> Step<Empty> {
    let Some((name, above)) = names.split_last() else {
        return Err(Fault::new(Code::InvalidArgument).why("the path is empty").into());
    };
    let mut at = Ino::ROOT;
    for part in above {
        let entry = namespace::find(t, at, part)?.ok_or_else(|| changed("its path is another one now"))?;
        at = entry.ino;
    }
    let mut dir =
        inode::find(t, at)?.filter(Inode::is_dir).ok_or_else(|| changed("its path is another one now"))?;
    let entry = namespace::find(t, dir.ino, name)?;
    if entry.is_none_or(|entry| entry.ino != req.ino) {
        return Err(changed("its name leads to something else, or to nothing, now").into());
    }
    if t.live().recovering {
        // Some clients have not declared their open files yet.
        return Err(Stop::RetryAfter(Event::Recovered));
    }
    t.idle(req.ino)?;
    let open_at = t.live().opens.others(req.ino, SessionId(0));
    if !open_at.is_empty() && !std::mem::replace(has_asked, true) {
        // A handle that the program has closed does not count as a use; have clients release such handles first.
        return Err(Stop::First(SideTask::Release { ino: req.ino, from: open_at }));
    }
    let mut child = namespace::get(t, dir.ino, name)?;
    if (child.ctime, child.mtime) != (req.ctime, req.mtime) || child.open_for_write {
        return Err(changed("it was changed since the scan").into());
    }
    if let Some(session) = open_at.first() {
        let host = t.live().sessions.get(session).map(|s| s.row.host.clone()).unwrap_or_default();
        return Err(changed(format!("it is open on {host}")).into());
    }
    let kind = if child.is_dir() { ChangeKind::Rmdir } else { ChangeKind::Unlink };
    if child.is_dir() && !dirent::is_empty(t, child.ino)? {
        return Err(Fault::new(Code::NotEmpty).into());
    }
    t.frees_space();
    namespace::remove_name(t, &mut dir, name, &mut child)?;
    inode::put(t, &dir)?;
    namespace::store_or_drop(t, &child)?;
    let flags = if child.nlink == 0 { FLAG_LAST } else { 0 };
    changelog::named(t, kind, (dir.ino, name), child.ino, &req.cred, flags);
    Ok(Empty {})
}

/// Lists the backlog of each archive, and whether an agent serves it.
pub async fn handle_backlog(mdt: &Mdt, _call: &Call, req: HsmBacklogReq) -> Result<HsmBacklogResp> {
    hsm::root_only(&req.cred, "cannot tell what waits for archives")?;
    let now_secs = mdt.seams().wall().secs;
    mdt.read(|t| Ok(HsmBacklogResp { lines: backlog(&t.live().hsm, now_secs) })).await
}

fn backlog(queue: &Queue, now_secs: i64) -> Vec<HsmBacklog> {
    let mut lines: BTreeMap<(u32, HsmKind), (HsmBacklog, i64)> = BTreeMap::new();
    for (ino, action) in &queue.actions {
        let empty = || HsmBacklog {
            archive: action.archive,
            kind: action.kind,
            waiting: 0,
            running: 0,
            oldest_waits_secs: 0,
            oldest: None,
            is_served: queue.is_served(action.archive),
        };
        let (line, oldest) =
            lines.entry((action.archive, action.kind)).or_insert_with(|| (empty(), i64::MAX));
        if action.running.is_some() {
            line.running += 1;
            continue;
        }
        line.waiting += 1;
        if action.asked.secs < *oldest {
            *oldest = action.asked.secs;
            line.oldest = Some(*ino);
            line.oldest_waits_secs = u64::try_from(now_secs - action.asked.secs).unwrap_or(0);
        }
    }
    lines.into_values().map(|(line, _)| line).collect()
}

/// Archives that files wait for and nobody serves, as problems of this MDT.
pub fn unserved(queue: &Queue, now_secs: i64) -> Vec<Fault> {
    if queue.control != HsmControl::Enabled {
        return Vec::new();
    }
    let mut archives: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for line in backlog(queue, now_secs).iter().filter(|line| line.waiting > 0 && !line.is_served) {
        let (waiting, oldest_secs) = archives.entry(line.archive).or_default();
        *waiting += line.waiting;
        *oldest_secs = line.oldest_waits_secs.max(*oldest_secs);
    }
    let long = archives.into_iter().filter(|(_, (_, oldest_secs))| *oldest_secs >= UNSERVED_SECS);
    long.map(|(archive, (waiting, oldest_secs))| {
        Fault::new(Code::NoAgent)
            .what("nobody serves")
            .subject(format!("archive {archive}"))
            .why(format!("{waiting} actions wait for it, the oldest for {oldest_secs} s"))
            .data("nothing is lost; whoever opens a released file of it waits")
            .next(format!("start an agent: brindle agent --archive {archive} --backend posix:DIR MNT; or give up: lfs hsm_cancel FILE"))
    })
    .collect()
}
