//! Reports of writers: their changes of the inode, and the rules for late reports.
//!
//! A report of an older attribute epoch may raise the size, but never changes times. A report of an older truncate
//! epoch changes neither. mtime is when the writer says that it wrote ([`written_time`]); ctime is the server's.

use std::sync::Arc;

use brindle_types::attr::Time;
use brindle_types::layout::FILE_SIZE_MAX_BYTES;
use brindle_types::{Pair, Result, Stripe};
use brindle_wire::mds::report::WriteReport;

use crate::acl;
use crate::config::LEASE_MS;
use crate::mdt::Txn;
use crate::store::inode::FileBody;
use crate::store::{Inode, xattr};

/// Extended attribute that every change of contents or owner removes.
const CAPABILITY: &[u8] = b"security.capability";
/// Set-user-id bit.
const S_ISUID: u16 = 0o4000;
/// Set-group-id bit.
const S_ISGID: u16 = 0o2000;
/// Execution by the group: without it, set-group-id means something else.
const S_IXGRP: u16 = 0o010;

/// Parts of a report that count.
#[derive(Clone, Copy, Debug)]
pub struct Worth {
    /// The report was not applied before, so its writes move times.
    pub is_news: bool,
    /// The report's allocated bytes count. Without that, the OSTs are asked when nobody writes the file any more.
    pub tells_allocation: bool,
}

/// The size that a report tells: at most that of the largest file, whoever tells it.
pub fn told_size(report: &WriteReport) -> u64 {
    report.end_bytes.min(FILE_SIZE_MAX_BYTES)
}

/// Applies a report to the inode of a regular file (the caller stores it). Others are left alone.
pub fn apply(t: &mut Txn<'_>, inode: &mut Inode, report: &WriteReport, worth: Worth) -> Result<()> {
    let Worth { is_news, tells_allocation } = worth;
    let allocated_bytes = report.allocated_bytes.filter(|_| tells_allocation);
    let now = t.now;
    let Some(file) = &mut inode.file else { return Ok(()) };
    if file.layout.inline {
        // Every change of inline data goes through the MDT. A report about objects then belongs to a layout that a
        // power cut took.
        return Ok(());
    }
    let file = Arc::make_mut(file);
    objects_exist(file, report.body, &report.synced_stripes);
    let layout = &mut file.layout;
    if report.body == layout.body {
        for (stripe, term) in &report.unsynced_stripes {
            if layout.ost_of(*stripe).is_some() && !layout.object_known(*stripe) {
                file.unsynced.retain(|(s, _)| s != stripe);
                file.unsynced.push((*stripe, *term));
            }
        }
        if let Some(allocated) = allocated_bytes.filter(|_| !file.layout.inline) {
            inode.allocated_bytes = allocated.min(FILE_SIZE_MAX_BYTES);
        }
    }
    let ino = inode.ino;
    if is_news && allocated_bytes.is_some() {
        t.after(move |live| _ = live.uncounted.remove(&ino));
    } else if is_news && (report.written || report.allocated_bytes.is_some()) {
        // Others may have written what this writer does not know of, or it is not believed.
        let owners = inode.owners();
        t.after(move |live| live.uncount(ino, owners));
    }
    if report.truncate_epoch < inode.truncate_epoch {
        return Ok(());
    }
    inode.size_bytes = inode.size_bytes.max(told_size(report));
    let written = report.written && is_news;
    if written && report.attr_epoch >= inode.attr_epoch {
        inode.mtime = written_time(inode.mtime, report.written_at, now);
        inode.ctime = now;
    }
    if written {
        contents_changed(t, inode, report.kill_suidgid)?;
    }
    Ok(())
}

/// The mtime of a file after a write at the time that its writer reports: never in the future, and at most one lease in the past, so
/// that no backup misses the change. Of two writers' times the later one counts, in whatever order their reports come. An mtime in the
/// future was set by a user, and is replaced.
pub fn written_time(mtime: Time, written_at: Option<Time>, now: Time) -> Time {
    let at = written_at.unwrap_or(now).min(now).max(now.minus_ms(LEASE_MS.into()));
    if mtime > now { at } else { mtime.max(at) }
}

/// Records that objects of the contents `body` exist on stable storage: from now on a missing one is a fault, not a hole.
pub fn objects_exist(file: &mut FileBody, body: Pair, stripes: &[Stripe]) {
    if file.layout.inline || file.layout.body != body {
        return;
    }
    for stripe in stripes {
        file.layout.set_object_known(*stripe);
        file.unsynced.retain(|(unsynced, _)| unsynced != stripe);
    }
}

/// Contents changed: file capabilities go, and set-id bits if the caller may not keep them.
pub fn contents_changed(t: &mut Txn<'_>, inode: &mut Inode, kill_suidgid: bool) -> Result<()> {
    if kill_suidgid {
        kill_set_id(inode);
    }
    drop_capability(t, inode)
}

/// File capabilities go with every change of contents or owner.
pub fn drop_capability(t: &mut Txn<'_>, inode: &mut Inode) -> Result<()> {
    if inode.has_xattr && xattr::find(t, inode.ino, CAPABILITY)?.is_some() {
        xattr::delete(t, inode.ino, CAPABILITY);
        inode.has_xattr = xattr::list(t, inode.ino)?.iter().any(|(name, _)| !acl::is_acl(name));
    }
    Ok(())
}

/// Clears set-user-id, and set-group-id where the group may execute.
pub fn kill_set_id(inode: &mut Inode) {
    if inode.is_dir() {
        return;
    }
    inode.perm &= !S_ISUID;
    if inode.perm & S_IXGRP != 0 {
        inode.perm &= !S_ISGID;
    }
}
