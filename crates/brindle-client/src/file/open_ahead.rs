//! open_ahead: the next small files of a directory are opened before a program asks for them ([`crate::open_prefetch`]).

use std::collections::BTreeSet;

use brindle_net::job;
use brindle_types::{Code, Fault, Ino};
use brindle_wire::mds::open::{Access, OpenMode};
use brindle_wire::mds::open_ahead::{OpenAheadReq, OpenedAhead};

use crate::handles::Handle;
use crate::inodes::{Asked, Hold};
use crate::open_prefetch::Spare;
use crate::{Client, Opened};

/// Access with which files are opened ahead.
const READ: Access = Access { read: true, write: false, truncate: false, execute: false };

impl Client {
    /// The handle on a file that was opened ahead, if it is as good as one that the MDT would give now.
    pub fn take_opened_ahead(&self, ino: Ino) -> Option<Opened> {
        let spare = self.open_prefetch.take(ino)?;
        let handle = &spare.handle;
        let is_right = {
            let state = handle.inode.lock();
            state.cached && !state.stale && state.writers == 0
        };
        let is_ours = handle.alive().is_ok() && handle.session == self.session.identity();
        if !is_right || !is_ours || !self.session.is_held() {
            self.give_back_spare(spare);
            return None;
        }
        self.access_is_due_by(&handle.inode, &spare.attr);
        let keep_cache = spare.version.is_some_and(|version| self.keeps_pages(handle, version));
        let opened = Opened { handle: handle.number, attr: spare.attr, mode: OpenMode::Cached, keep_cache };
        self.open_ahead_in(spare.dir, ino);
        Some(opened)
    }

    /// A file had to be opened at the MDT: whoever reads one small file of a directory will read more.
    pub(crate) fn open_ahead_of(&self, ino: Ino) {
        if let Some(dir) = self.dirs.covered_by(ino) {
            self.open_prefetch.asked(dir);
            self.open_ahead_in(dir, ino);
        }
    }

    /// Opens what follows `ino` in the order in which files were made, in the background and if it seems worth it.
    fn open_ahead_in(&self, dir: Ino, ino: Ino) {
        let count = if self.config.switches.open_prefetch { self.open_prefetch.ahead(dir) } else { 0 };
        if count == 0 {
            return;
        }
        let wanted = |ino: Ino| !self.open_prefetch.has(ino) && self.inodes.get(ino).is_none();
        let inodes = self.dirs.small_files_behind(dir, ino, count, wanted);
        let Some(this) = self.this.upgrade().filter(|_| !inodes.is_empty()) else {
            return self.open_prefetch.is_opened_ahead(dir, 0);
        };
        let looking = async move {
            let count = inodes.len();
            if let Err(fault) = this.open_ahead(dir, inodes).await {
                // A prefetch has no caller to hear of a fault.
                tracing::debug!(dir = dir.0, code = %fault.code, "cannot open ahead: {fault}");
            }
            this.open_prefetch.is_opened_ahead(dir, count);
        };
        self.seams.spawn("client.open_ahead", job::carry(looking));
    }

    async fn open_ahead(&self, dir: Ino, inodes: Vec<Ino>) -> Result<(), Fault> {
        let (session, era) = (self.session.identity(), self.session.era());
        let asked: Vec<(Hold, Asked, u64)> = inodes
            .into_iter()
            .map(|ino| {
                let hold = self.inodes.hold(ino);
                let asked = hold.asked();
                (hold, asked, self.handles.number())
            })
            .collect();
        let opens = asked.iter().map(|(hold, _, number)| (hold.ino, *number)).collect();
        let answer = self.mds.ask(&OpenAheadReq { opens }).await?;
        if answer.opened.len() != asked.len() {
            return Err(Fault::new(Code::BadFrame).why("the answer is about other files"));
        }
        // The set of open files is unknown in two cases: the MDT repeats its answer (see `OpenAheadResp`), or
        // has restarted since.
        let is_known = answer.opened.iter().any(Option::is_some) && self.session.era() == era;
        for ((hold, asked, number), opened) in asked.into_iter().zip(answer.opened) {
            match opened {
                Some(opened) if is_known => {
                    let ino = hold.ino;
                    let spare = self.spare(dir, hold, asked, session, number, opened).await;
                    self.open_prefetch.add(spare).into_iter().for_each(|spare| self.give_back_spare(spare));
                    if self.dirs.covered_by(ino) != Some(dir) {
                        // The lease was taken back meanwhile.
                        self.drop_spare(ino);
                    }
                }
                None if is_known => {}
                _ => {
                    self.handles.insert(Handle::new(number, READ, hold, false, session));
                    drop(self.close_later(number)?);
                }
            }
        }
        Ok(())
    }

    /// Enters a handle that the MDT has opened.
    async fn spare(
        &self,
        dir: Ino,
        hold: Hold,
        asked: Asked,
        session: brindle_targets::Identity,
        number: u64,
        opened: OpenedAhead,
    ) -> Spare {
        let OpenedAhead { attr, grant } = opened;
        let (cached, lost_right) = {
            let mut state = hold.lock();
            let was_cached = state.cached;
            state.take_grant(asked, &grant, None);
            state.take_mode(asked, &grant);
            state.take_size(asked, attr.size_bytes);
            (state.cached, was_cached && !state.cached)
        };
        let handle = self.handles.insert(Handle::new(number, READ, hold, cached, session));
        if lost_right {
            // A later open gave the right that this answer, which a notice has crossed, takes. As in `Client::opened`.
            self.kept_versions.forget(attr.ino);
            self.invalidate(&handle.inode, 0..u64::MAX).await;
        }
        Spare {
            handle,
            attr,
            version: grant.data_version,
            dir,
            bytes: grant.inline.map_or(0, |bytes| bytes.len()),
            since: self.seams.now(),
        }
    }

    fn give_back_spare(&self, spare: Spare) {
        if let Ok(taken) = self.close_later(spare.handle.number) {
            drop(taken);
        }
    }

    /// A file is about to be no longer what it was when it was opened ahead.
    pub(crate) fn drop_spare(&self, ino: Ino) {
        if let Some(spare) = self.open_prefetch.drop_of(ino) {
            self.give_back_spare(spare);
        }
    }

    /// The leases of directories are taken back.
    pub(crate) fn drop_spares_in(&self, dirs: &[Ino]) {
        let dirs: BTreeSet<Ino> = dirs.iter().copied().collect();
        self.open_prefetch.drop_in(&dirs).into_iter().for_each(|spare| self.give_back_spare(spare));
    }

    /// Gives back spares that nobody has used for long.
    pub(crate) fn drop_old_spares(&self) {
        self.open_prefetch
            .drop_old(self.seams.now())
            .into_iter()
            .for_each(|spare| self.give_back_spare(spare));
    }
}
