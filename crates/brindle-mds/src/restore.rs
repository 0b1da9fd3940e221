//! Makes an MDT out of the rows of a backup.
//!
//! Rows that went back in time must never be taken for rows that came later.
//!
//! | the restored MDT | because |
//! |---|---|
//! | begins above every term, inode number and session id that the lost one can have given out | no number is given out twice |
//! | knows no client | clients know what came later |
//! | gives every file epochs above all that its objects have seen | fences of a later cut or move would refuse all writes to it |
//! | takes the contents of a file for newer than its copy in an archive | the bytes may have changed; they are released only once archived anew |
//! | forgets objects of moves that were under way | the move may have ended, so that these objects hold the only bytes |
//!
//! Objects that it does not know are set aside by their OSTs, not destroyed ([`crate::ops::owner`]).

use std::sync::Arc;

use brindle_kv::{Batch, CHANGE_OVERHEAD_BYTES, Kv};
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Pair, Result};
use bytes::Bytes;

use crate::config::{self, Identity};
use crate::store::row::{self, FormatLevel};
use crate::store::{Changes, Inode, Rows, engine, hot, keys, meta};

/// Inode numbers that are left out: more than an MDT gives out between a backup and its loss.
const INODES_SKIPPED: u64 = 1 << 40;
/// Ids of sessions that are left out.
const SESSIONS_SKIPPED: u64 = 1 << 32;
/// Bytes of a batch.
const BATCH_BYTES: usize = 512 << 10;

/// Inodes that are looked at together.
const PAGE_ROWS: usize = 512;

/// Gives a file epochs that nothing has seen; whether it is a file.
fn renew(inode: &mut Inode, newest: Pair) -> bool {
    let has_objects = inode.may_have_objects();
    let Some(file) = inode.file.as_mut().map(Arc::make_mut) else { return false };
    file.layout.epoch = newest;
    file.aside.clear();
    file.convert_begun = false;
    inode.truncate_epoch = newest;
    inode.attr_epoch = newest;
    if has_objects {
        inode.data_version = newest;
    }
    true
}

/// An MDT in the making. Dropped before [`Restoring::finish`] it leaves a store without superblock, which is no target.
pub struct Restoring {
    kv: Kv,
    identity: Identity,
    batch: Batch,
    batch_bytes: usize,
    rows: u64,
}

impl Restoring {
    /// Makes the store. Its terms begin above `term`, the highest known term of the lost MDT. Refuses a directory that holds a
    /// store.
    pub fn begin(seams: &Seams, dir: &str, identity: Identity, term: u32) -> Result<Restoring> {
        let store_dir = config::store_dir(dir);
        seams.disk.create_dir_all(dir).map_err(|e| {
            Fault::io(Code::NotWritable, "cannot make the directory of the MDT", dir.to_owned(), &e)
        })?;
        let options = engine::sized(seams, &store_dir, config::kv_identity(&identity))?;
        Kv::create_above(&*seams.disk, &store_dir, &options, term)?;
        let (kv, _) = Kv::open(seams.clone(), &store_dir, options)?;
        Ok(Restoring { kv, identity, batch: Batch::new(), batch_bytes: 0, rows: 0 })
    }

    /// Takes in rows. Rows of sessions and their answers are left out: their clients know later states.
    pub async fn put(&mut self, rows: Vec<(Bytes, Bytes)>) -> Result<()> {
        let kept = |key: &Bytes| !matches!(key.first(), Some(&keys::SESSION | &keys::REPLY));
        for (key, value) in rows.into_iter().filter(|(key, _)| kept(key)) {
            self.add(key, value).await?;
            self.rows += 1;
        }
        Ok(())
    }

    async fn add(&mut self, key: Bytes, value: Bytes) -> Result<()> {
        let row_bytes = CHANGE_OVERHEAD_BYTES + key.len() + value.len();
        if self.batch_bytes + row_bytes > BATCH_BYTES {
            self.flush().await?;
        }
        self.batch_bytes += row_bytes;
        self.batch.put(key, value);
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if !batch.is_empty() {
            self.kv.admit().await?;
            self.kv.append(batch)?;
        }
        Ok(())
    }

    /// Rewrites the inode of every file.
    async fn renew_files(&mut self, level: FormatLevel) -> Result<()> {
        // The number belongs to this opening, which gives out no other one.
        let newest = Pair { term: self.kv.term(), counter: 1 };
        let mut after: Option<Bytes> = None;
        loop {
            let page = self.kv.rows(&[keys::INODE], after.as_deref(), PAGE_ROWS)?;
            let Some((last, _)) = page.last() else { return self.flush().await };
            after = Some(last.clone());
            for (key, value) in page {
                let mut inode: Inode = row::decode("inode", &key, &value)?;
                if renew(&mut inode, newest) {
                    let value = row::encode(level, &inode)?;
                    self.add(key, value).await?;
                }
            }
        }
    }

    /// Ends the work: `backup_term` is the term in which the backup was made. Everything is durable then; the number of rows.
    pub async fn finish(mut self, backup_term: u32) -> Result<u64> {
        self.flush().await?;
        let format = meta::format(&self.kv)?;
        if format.is_none_or(|format| format.uuid != self.identity.uuid) {
            let why = "its rows are not those of the MDT that its header names";
            return Err(Fault::new(Code::BadBackup).why(why));
        }
        let level = meta::format_level(&self.kv)?;
        self.renew_files(level).await?;
        let hot = hot::Hot::default();
        let mut changes = Changes::new(&self.kv, &hot, level);
        let mut lost = meta::lost_terms(&self.kv)?;
        lost.ranges.push(backup_term..self.kv.term());
        meta::put_lost_terms(&mut changes, &lost);
        meta::put_inodes_reserved(&mut changes, meta::inodes_reserved(&self.kv)? + INODES_SKIPPED);
        meta::put_last_session(&mut changes, meta::last_session(&self.kv)? + SESSIONS_SKIPPED);
        self.kv.append(changes.into_batch()?)?;
        self.kv.checkpoint().await?;
        self.kv.close().await?;
        Ok(self.rows)
    }
}
