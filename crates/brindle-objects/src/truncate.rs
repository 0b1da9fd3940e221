//! Truncates objects and raises their fences. Both are on disk before the answer.
//!
//! The header records a cut, and is synced, before the file is cut. Thus any crash is followed by finishing the cut
//! exactly once: the header that clears the record is older than every synced byte behind the cut.

use std::sync::Arc;

use brindle_types::{Code, Fault, ObjectId, Pair};

use crate::format::{BLOCK, Header, OBJECT_LEN_MAX, file_len};
use crate::object::Object;
use crate::ranges::ALL;
use crate::stats::add;
use crate::store::{Changed, ObjectStore, write_fault};

impl ObjectStore {
    /// Cuts or extends an object to `len` and refuses older truncate epochs from now on. A cut of an older or equal
    /// epoch than the object has does nothing.
    pub async fn truncate(
        &self,
        id: ObjectId,
        len: u64,
        epoch: Pair,
        make: bool,
        must_exist: bool,
    ) -> Result<Changed, Fault> {
        if len > OBJECT_LEN_MAX {
            return Err(Fault::new(Code::TooLarge).subject(format!("object {id}")));
        }
        loop {
            let object = self.ready(id).await?;
            let _syncing = object.syncing.lock().await;
            let _all = object.locks.write(ALL).await;
            let boot_term = self.boot_term();
            if !self.still_ready(&object) {
                continue;
            }
            self.check_present(id, &object.state.lock(), must_exist)?;
            if epoch > object.state.lock().header.truncate_epoch {
                self.raise_and_cut(&object, len, epoch, make, boot_term).await?;
            } else {
                self.sync_raised(&object).await?;
            }
            let allocated_bytes = object.state.lock().allocated_bytes();
            return Ok(Changed { boot_term, allocated_bytes });
        }
    }

    async fn raise_and_cut(
        &self,
        object: &Arc<Object>,
        len: u64,
        epoch: Pair,
        make: bool,
        term: u32,
    ) -> Result<(), Fault> {
        let old_len = {
            let s = object.state.lock();
            s.exists().then_some(s.len)
        };
        // Extend only if needed: if another OST refuses, the file must not have become longer.
        if !make && old_len.is_none_or(|old_len| old_len <= len) {
            return self.fence_only(object, term, |h| h.truncate_epoch = epoch).await;
        }
        self.make(object)?;
        let (old, old_len, file) = {
            let s = object.state.lock();
            (s.header.clone(), s.len, s.file.clone().expect("it was just made"))
        };
        let longer = len > old_len;
        if longer {
            // First of all: the file system below may not hold files of this size, and then nothing has happened.
            file.set_len(file_len(len)).map_err(|e| write_fault(object.id, &e))?;
        }
        let put = {
            let mut s = object.state.lock();
            assert!(
                s.header.truncate_epoch <= epoch,
                "object {}: the truncate epoch never goes back",
                object.id
            );
            s.header.truncate_epoch = epoch;
            s.header.pending_cut = Some(len);
            s.header.synced_blocks = s.header.synced_blocks.min(len / BLOCK);
            s.header.dirty = true;
            s.header.dirty_term = term;
            s.changes += 1;
            s.put_header()
        };
        self.note_dirty(object);
        if let Err(e) = put {
            self.take_back(object, old, longer.then_some(old_len));
            return Err(write_fault(object.id, &e));
        }
        add(&self.stats.fdatasyncs, 1);
        if let Err(e) = file.sync_data_async().await {
            let fault = self.sync_failed(term, format!("object {}", object.id), &e);
            if longer {
                self.take_back(object, old, Some(old_len));
            }
            // A cut may be on the disk, and is finished before the object is used again.
            return Err(fault);
        }
        if let Err(fault) = self.finish_cut(object, len) {
            // A part of the cut may be on the disk; it is finished before the object is used again.
            object.state.lock().settled_term = 0;
            return Err(fault);
        }
        self.space.forget();
        self.sync_held(object).await
    }

    /// A change that the disk has refused: the object is what it was, as far as the disk lets it be. Remains
    /// in the file are put right before the object is used.
    fn take_back(&self, object: &Object, old: Header, old_len: Option<u64>) {
        let mut s = object.state.lock();
        s.header = old;
        let put = s.put_header();
        let file = s.file.clone().zip(old_len);
        let cut = file.map_or(Ok(()), |(file, old_len)| file.set_len(file_len(old_len)));
        if let Err(e) = put.and(cut) {
            tracing::warn!(object = %object.id, error = %e, "cannot take back a truncate that failed");
        }
        s.settled_term = 0;
    }

    /// Raises a fence of an object that does not exist (or does), durably.
    async fn fence_only(
        &self,
        object: &Arc<Object>,
        term: u32,
        raise: impl FnOnce(&mut Header),
    ) -> Result<(), Fault> {
        let missing = object.state.lock().file.is_none();
        let old = object.state.lock().header.clone();
        {
            let header = &mut object.state.lock().header;
            raise(header);
            let is_higher =
                old.layout_epoch <= header.layout_epoch && old.truncate_epoch <= header.truncate_epoch;
            assert!(is_higher, "object {}: a fence never goes back", object.id);
        }
        let put = if missing {
            self.make_file(object, true)
        } else {
            let mut s = object.state.lock();
            s.changes += 1;
            // A process that starts after a kill must know that the change is not on the disk yet.
            (s.header.dirty, s.header.dirty_term) = (true, term);
            s.put_header().map_err(|e| write_fault(object.id, &e))
        };
        if let Err(fault) = put {
            object.state.lock().header = old;
            return Err(fault);
        }
        self.note_dirty(object);
        self.sync_held(object).await
    }

    /// Syncs a fence that was raised before: it may be in the page cache only, if the process that raised it was killed.
    /// The caller holds all of the object.
    async fn sync_raised(&self, object: &Arc<Object>) -> Result<(), Fault> {
        let clean = object.state.lock().clean();
        if clean { Ok(()) } else { self.sync_held(object).await }
    }

    /// Refuses everything of an older layout epoch on an object, existing or not. Durable on return.
    pub async fn fence_layout(&self, id: ObjectId, epoch: Pair) -> Result<(), Fault> {
        loop {
            let object = self.ready(id).await?;
            let _syncing = object.syncing.lock().await;
            let _all = object.locks.write(ALL).await;
            let boot_term = self.boot_term();
            if !self.still_ready(&object) {
                continue;
            }
            if epoch <= object.state.lock().header.layout_epoch {
                return self.sync_raised(&object).await;
            }
            return self.fence_only(&object, boot_term, |h| h.layout_epoch = epoch).await;
        }
    }
}
