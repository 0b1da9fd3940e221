//! Truncating objects, and raising their fences. On disk before the answer.
//!
//! A cut is written into the header and synced before it is made, so that it is finished after any crash, exactly
//! once: the header that carries its end is older than every synced byte behind it.

use std::sync::Arc;

use brindle_types::{Code, Fault, ObjectId, Pair};

use crate::format::{BLOCK, OBJECT_LEN_MAX};
use crate::object::Object;
use crate::ranges::ALL;
use crate::stats::add;
use crate::store::{Changed, ObjectStore, write_fault};

impl ObjectStore {
    /// Cuts or extends an object to `len` and refuses older truncate epochs from now on. A cut of an older or equal
    /// epoch than the object has does nothing.
    pub async fn truncate(&self, id: ObjectId, len: u64, epoch: Pair, make: bool) -> Result<Changed, Fault> {
        if len > OBJECT_LEN_MAX {
            return Err(Fault::new(Code::TooLarge).subject(format!("object {id}")));
        }
        loop {
            let boot_term = self.boot_term();
            let object = self.ready(id).await?;
            let _syncing = object.syncing.lock().await;
            let _all = object.locks.write(ALL).await;
            if !self.still_ready(&object) {
                continue;
            }
            if epoch > object.state.lock().header.truncate_epoch {
                self.raise_and_cut(&object, len, epoch, make, boot_term).await?;
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
        if !object.state.lock().exists() && !make {
            return self.fence_only(object, |h| h.truncate_epoch = epoch).await;
        }
        self.make(object)?;
        let (old, old_len) = {
            let s = object.state.lock();
            (s.header.clone(), s.len)
        };
        let file = {
            let mut s = object.state.lock();
            s.header.truncate_epoch = epoch;
            s.header.pending_cut = Some(len);
            s.header.synced_blocks = s.header.synced_blocks.min(len / BLOCK);
            s.header.dirty = true;
            s.header.dirty_term = term;
            s.changes += 1;
            if let Err(e) = s.put_header() {
                s.header = old;
                return Err(write_fault(object.id, &e));
            }
            s.file.clone().expect("it was just made")
        };
        self.note_dirty(object);
        add(&self.stats.fdatasyncs, 1);
        let synced = file.sync_data_async().await;
        synced.map_err(|e| self.sync_failed(term, format!("object {}", object.id), &e))?;
        if let Err(fault) = self.finish_cut(object, len) {
            let mut s = object.state.lock();
            if s.len == old_len {
                // Too large for the file system below: the object stays as it was, and so does its epoch.
                s.header = old;
                s.put_header().map_err(|e| write_fault(object.id, &e))?;
            } else {
                // The cut is finished before the object is used again.
                s.settled_term = 0;
            }
            return Err(fault);
        }
        self.space.forget();
        self.sync_held(object).await
    }

    /// Raises a fence of an object that does not exist (or does), durably.
    async fn fence_only(
        &self,
        object: &Arc<Object>,
        raise: impl FnOnce(&mut crate::format::Header),
    ) -> Result<(), Fault> {
        let missing = object.state.lock().file.is_none();
        let old = object.state.lock().header.clone();
        raise(&mut object.state.lock().header);
        let put = if missing {
            self.make_file(object, true)
        } else {
            let mut s = object.state.lock();
            s.changes += 1;
            s.put_header().map_err(|e| write_fault(object.id, &e))
        };
        if let Err(fault) = put {
            object.state.lock().header = old;
            return Err(fault);
        }
        self.note_dirty(object);
        self.sync_held(object).await
    }

    /// Refuses everything of an older layout epoch on an object, existing or not. Durable on return.
    pub async fn fence_layout(&self, id: ObjectId, epoch: Pair) -> Result<(), Fault> {
        loop {
            let object = self.ready(id).await?;
            let _syncing = object.syncing.lock().await;
            let _all = object.locks.write(ALL).await;
            if !self.still_ready(&object) {
                continue;
            }
            if epoch <= object.state.lock().header.layout_epoch {
                return Ok(());
            }
            return self.fence_only(&object, |h| h.layout_epoch = epoch).await;
        }
    }
}
