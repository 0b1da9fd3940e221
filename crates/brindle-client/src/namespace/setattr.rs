//! setattr: mode, owner, times, size (truncate).

use brindle_targets::Options;
use brindle_types::{Attr, Code, Fault, Ino};
use brindle_wire::mds::setattr::{SetTime, SetattrReq};

use crate::inodes::Carry;
use crate::quota::Owners;
use crate::{Client, Ctx};

/// Attributes to change; `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits with set-id and sticky bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Whether set-id bits are cleared.
    pub kill_suidgid: bool,
    /// The handle of an ftruncate, 0 for none.
    pub handle: u64,
}

impl Client {
    /// Changes attributes, all of them or none.
    pub async fn setattr(&self, ctx: &Ctx, ino: Ino, set: SetAttr) -> Result<Attr, Fault> {
        if set.handle == 0 {
            return self.setattr_by_name(ctx, ino, set).await;
        }
        let handle = self.handles.get(set.handle)?;
        handle.alive()?;
        let done = self.setattr_as(ctx, ino, set, handle.options()).await;
        handle.changed(done)
    }

    /// A released file that is truncated to a length other than 0 must be restored first.
    async fn setattr_by_name(&self, ctx: &Ctx, ino: Ino, set: SetAttr) -> Result<Attr, Fault> {
        loop {
            match self.setattr_as(ctx, ino, set, Options::default()).await {
                Err(fault) if fault.code == Code::Released => self.recall(ctx, ino).await?,
                done => return done,
            }
        }
    }

    async fn setattr_as(&self, ctx: &Ctx, ino: Ino, set: SetAttr, options: Options) -> Result<Attr, Fault> {
        // The inode is kept in the table, so that no notice is missed meanwhile.
        let inode = self.inodes.hold(ino);
        // Bytes buffered for an offset come before the truncate.
        let _unbuffered = set.size_bytes.map(|_| inode.unbuffered());
        self.flush_behind(&inode).await;
        if set.size_bytes.is_some_and(|size_bytes| size_bytes > 0) {
            // The MDT waits for the OSTs of a file that it truncates.
            self.check_failout(&inode).await?;
        }
        let cutting = set.size_bytes.map(|_| inode.cutting());
        let asked = inode.asked();
        let due = inode.due(Carry::Changes);
        let request = SetattrReq {
            ino,
            cred: ctx.cred.clone(),
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size_bytes: set.size_bytes,
            atime: set.atime,
            mtime: set.mtime,
            kill_suidgid: set.kill_suidgid,
            handle: set.handle,
            report: due.report.clone(),
        };
        let forgotten = set.atime.and_then(|_| self.forget_access(ino));
        let asked_mdt = self.mds.call_with(&request, Vec::new(), options).await;
        if asked_mdt.is_err()
            && let Some(read) = forgotten
        {
            // If the time was set after all, the MDT knows that the read was earlier.
            self.remember_access(ino, read);
        }
        let (answer, _) = asked_mdt?;
        tracing::trace!(ino = ino.0, ?set, size_bytes = answer.attr.size_bytes, grant = ?answer.grant, "attributes set");
        due.delivered();
        self.access_is_due_by(&inode, &answer.attr);
        let mut state = inode.lock();
        if set.uid.is_some() || set.gid.is_some() {
            state.owners = Some(Owners::of(&answer.attr));
        }
        if let Some(cutting) = cutting {
            cutting.end(&mut state);
        }
        if let Some(size_bytes) = set.size_bytes {
            state.take_cut(asked, answer.grant.as_ref(), size_bytes);
        } else if let Some(grant) = &answer.grant {
            state.take_grant(asked, grant, None);
        }
        // Epochs and layout have changed.
        state.stale |= answer.grant.is_none()
            && (set.atime.is_some() || set.mtime.is_some() || set.size_bytes.is_some());
        if set.atime.is_some() || set.mtime.is_some() {
            state.pending.times_set();
        }
        if let Some(size_bytes) = set.size_bytes {
            state.changed = state.changed.max(answer.grant.as_ref().map(|grant| grant.changed));
            state.overtaken();
            drop(state);
            self.kept_versions.forget(ino);
            if size_bytes == 0 {
                self.closed_unsynced.forget_file(ino);
            }
        }
        Ok(answer.attr)
    }
}
