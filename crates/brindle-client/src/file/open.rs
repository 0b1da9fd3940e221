//! open: a handle and the mode that its pages may be kept in.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_types::{Attr, Code, Fault, Ino};
use brindle_wire::mds::hsm::HsmOpenReq;
use brindle_wire::mds::open::{Access, OpenGrant, OpenMode, OpenReq, OpenResp};

use crate::handles::Handle;
use crate::inodes::{Asked, Cutting, Hold};
use crate::quota::Owners;
use crate::{Client, Ctx};

/// An open file.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Number of the handle, for every later call.
    pub handle: u64,
    /// Attributes at the open.
    pub attr: Attr,
    /// With `Cached`, pages may be kept. With any other mode, every read and write goes to the servers.
    pub mode: OpenMode,
    /// Pages kept from an earlier `Cached` open are still good.
    pub keep_cache: bool,
}

/// A file that was made or found by a create.
#[derive(Clone, Debug)]
pub struct Created {
    /// The open file.
    pub opened: Opened,
    /// Whether the call made it.
    pub created: bool,
}

/// Whether an open changes nothing.
fn reads_only(access: Access) -> bool {
    !access.write && !access.truncate
}

impl Client {
    /// Opens a file: for reading at once, for writing once its bytes are here. `kill_suidgid`: with O_TRUNC, set-id bits go.
    pub async fn open(
        &self,
        ctx: &Ctx,
        ino: Ino,
        access: Access,
        kill_suidgid: bool,
    ) -> Result<Opened, Fault> {
        loop {
            match self.open_here(ctx, ino, access, kill_suidgid).await {
                Err(fault) if fault.code == Code::Released => {}
                done => return done,
            }
            if self.config.switches.recall && reads_only(access) {
                match Box::pin(self.open_restoring(ctx, ino, access)).await {
                    // An MDT of an earlier release, which waits for the whole file.
                    Err(fault) if fault.code == Code::UnknownOp => {}
                    done => return done,
                }
            }
            self.recall(ctx, ino).await?;
        }
    }

    /// Opens a released file before its bytes are here. Its restore begins, if there is none.
    async fn open_restoring(&self, ctx: &Ctx, ino: Ino, access: Access) -> Result<Opened, Fault> {
        let era = self.session.era();
        let hold = self.inodes.hold(ino);
        // A restore that has failed is tried again, also for reads through other handles of the file.
        hold.lock().restoring = None;
        let asked = hold.asked();
        let handle = self.handles.number();
        let open = OpenReq { ino, handle, access, cred: ctx.cred.clone(), kill_suidgid: false };
        let answer = self.mds.ask(&HsmOpenReq { open }).await?;
        let opened = self.opened(hold, asked, handle, access, (answer.attr, answer.grant), None).await;
        self.still_open(ctx, opened, access, era).await
    }

    /// Asks for an open again that was granted before, also of a file that is being restored.
    async fn ask_again(&self, request: OpenReq) -> Result<OpenResp, Fault> {
        match self.mds.ask(&request).await {
            Err(fault) if fault.code == Code::Released && reads_only(request.access) => {
                self.mds.ask(&HsmOpenReq { open: request }).await
            }
            answer => answer,
        }
    }

    /// Opens a file whose bytes are here; `Released` if they lie in an archive only.
    pub async fn open_here(
        &self,
        ctx: &Ctx,
        ino: Ino,
        access: Access,
        kill_suidgid: bool,
    ) -> Result<Opened, Fault> {
        let is_read = !access.write && !access.truncate;
        if is_read
            && !access.execute
            && let Some(opened) = self.take_opened_ahead(ino)
        {
            return Ok(opened);
        }
        let hold = self.inodes.hold(ino);
        let emptied = access.truncate.then(|| Arc::clone(&hold));
        // Bytes that are buffered for an offset come before the cut.
        let _unbuffered = emptied.as_ref().map(|inode| inode.unbuffered());
        if access.truncate {
            self.flush_behind(&hold).await;
        }
        if !is_read {
            // Bytes of programs that were killed come before whatever is written through this handle.
            let settled = async {
                hold.wait_until(|state| state.abandoned == 0).await;
                Ok::<(), Fault>(())
            };
            self.unless_failed_out(ino, settled).await?;
            self.drop_spare(ino);
            // Before the answer can come: somebody writes from the moment that the MDT grants it.
            let was_cached = {
                let mut state = hold.lock();
                let was_cached = state.cached;
                state.no_longer_cached();
                // Opens for reading that are under way, prefetches included, must not bring that right back.
                state.overtaken();
                was_cached
            };
            self.kept_versions.forget(ino);
            if was_cached {
                // Pages read so far left no marks at the OSTs, and the MDT recalls them from other sessions only.
                self.invalidate(&hold, 0..u64::MAX).await;
            }
        }
        let era = self.session.era();
        let asked = hold.asked();
        let handle = self.handles.number();
        let request = OpenReq { ino, handle, access, cred: ctx.cred.clone(), kill_suidgid };
        let cutting = emptied.as_ref().map(|inode| inode.cutting());
        let answer = self.mds.ask(&request).await?;
        let granted = (answer.attr, answer.grant);
        let opened = self.opened(hold, asked, handle, access, granted, cutting).await;
        if is_read && opened.mode == OpenMode::Cached {
            self.open_ahead_of(ino);
        }
        self.still_open(ctx, opened, access, era).await
    }

    /// Opens are volatile at the MDT: one that was answered from its reply cache after a restart, or for a session that is
    /// no more, may not exist there, and is made again. `era` is that of the moment before the request.
    pub(crate) async fn still_open(
        &self,
        ctx: &Ctx,
        opened: Opened,
        access: Access,
        era: u64,
    ) -> Result<Opened, Fault> {
        match self.session.era() == era {
            true => Ok(opened),
            false => Box::pin(self.open_again(ctx, opened, access, era)).await,
        }
    }

    async fn open_again(
        &self,
        ctx: &Ctx,
        mut opened: Opened,
        access: Access,
        mut era: u64,
    ) -> Result<Opened, Fault> {
        while self.session.era() != era {
            era = self.session.era();
            let hold = self.inodes.hold(opened.attr.ino);
            let asked = hold.asked();
            let handle = self.handles.number();
            let access = Access { truncate: false, ..access };
            let cred = ctx.cred.clone();
            let request = OpenReq { ino: opened.attr.ino, handle, access, cred, kill_suidgid: false };
            let answer = self.ask_again(request).await;
            // The MDT takes it back without a word if it does not know it.
            self.close(opened.handle).await?;
            let answer = answer?;
            opened = self.opened(hold, asked, handle, access, (answer.attr, answer.grant), None).await;
        }
        Ok(opened)
    }

    /// Changes through a handle are from now on durable when the call returns (O_SYNC, O_DSYNC).
    pub fn make_synchronous(&self, handle: u64) {
        if let Ok(handle) = self.handles.get(handle) {
            handle.is_synchronous.store(true, Ordering::Relaxed);
        }
    }

    /// Enters a granted handle. `cutting`: the cut that the open has made.
    pub(crate) async fn opened(
        &self,
        hold: Hold,
        asked: Asked,
        handle: u64,
        access: Access,
        granted: (Attr, OpenGrant),
        cutting: Option<Cutting<'_>>,
    ) -> Opened {
        let (attr, grant) = granted;
        let (crossed, lost_right) = {
            let mut state = hold.lock();
            tracing::trace!(handle, ?access, ?attr, ?grant, "opened");
            let (crossed, was_cached) = (state.crossed(asked), state.cached);
            if let Some(cutting) = cutting {
                cutting.end(&mut state);
            }
            if access.truncate {
                state.take_cut(asked, Some(&grant), 0);
            } else {
                state.take_grant(asked, &grant, None);
            }
            state.take_mode(asked, &grant);
            if access.write && grant.mode == OpenMode::Direct {
                // A right that an answer from before a restart of the MDT gave.
                state.no_longer_exclusive();
            }
            state.take_size(asked, attr.size_bytes);
            state.owners = Some(Owners::of(&attr));
            state.project = None;
            if !crossed && !access.truncate {
                state.compare_end(&grant, attr.size_bytes);
            }
            if access.truncate {
                state.changed_at_mdt(grant.changed);
            }
            if access.truncate || access.write {
                state.overtaken();
            }
            (crossed, was_cached && !state.cached)
        };
        if access.truncate {
            self.closed_unsynced.forget_file(attr.ino);
        }
        let mode = if crossed { OpenMode::Direct } else { grant.mode };
        let cached = mode == OpenMode::Cached;
        // If the session changed while the request was under way, `still_open` opens the handle again.
        let session = self.session.identity();
        let entered = self.handles.insert(Handle::new(handle, access, hold, cached, session));
        self.access_is_due_by(&entered.inode, &attr);
        let version = grant.data_version.filter(|_| cached);
        let keep_cache = version.is_some_and(|version| self.keeps_pages(&entered, version));
        if lost_right {
            // An answer that was overtaken by this one gave the right. Pages read under it left no marks at the OSTs.
            self.kept_versions.forget(attr.ino);
            self.invalidate(&entered.inode, 0..u64::MAX).await;
        }
        Opened { handle, attr, mode, keep_cache }
    }
}
