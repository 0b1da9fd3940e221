//! Makes an MDT out of the rows of a backup.
//!
//! What went back in time must never be taken for what came later. So a restored MDT begins above every term, inode number and
//! session id that the lost one can have given out, knows no client, and keeps what was made after the backup: objects of
//! files that it does not know are set aside by their OSTs, not destroyed ([`crate::ops::owner`]).

use brindle_kv::{Batch, CHANGE_OVERHEAD_BYTES, Kv};
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;

use crate::config::{self, Identity};
use crate::store::{Changes, engine, hot, keys, meta};

/// Inode numbers that are left out: more than an MDT gives out between a backup and its loss.
const INODES_SKIPPED: u64 = 1 << 40;
/// Ids of sessions that are left out.
const SESSIONS_SKIPPED: u64 = 1 << 32;
/// Bytes of a batch.
const BATCH_BYTES: usize = 512 << 10;

/// An MDT in the making. Dropped before [`Restoring::finish`] it leaves a store without superblock, which is no target.
pub struct Restoring {
    kv: Kv,
    identity: Identity,
    batch: Batch,
    rows: u64,
}

impl Restoring {
    /// Makes the store. Its terms begin above `term`, the highest that anybody knows of the lost MDT. Refuses a directory that
    /// holds a store.
    pub fn begin(seams: &Seams, dir: &str, identity: Identity, term: u32) -> Result<Restoring> {
        let store_dir = config::store_dir(dir);
        seams.disk.create_dir_all(dir).map_err(|e| {
            Fault::io(Code::NotWritable, "cannot make the directory of the MDT", dir.to_owned(), &e)
        })?;
        let options = engine::sized(seams, &store_dir, config::kv_identity(&identity))?;
        Kv::create_above(&*seams.disk, &store_dir, &options, term)?;
        let (kv, _) = Kv::open(seams.clone(), &store_dir, options)?;
        Ok(Restoring { kv, identity, batch: Batch::new(), rows: 0 })
    }

    /// Takes in rows. Those of sessions and their answers are left out: the clients that they are of know what came later.
    pub async fn put(&mut self, rows: Vec<(Bytes, Bytes)>) -> Result<()> {
        let kept = |key: &Bytes| !matches!(key.first(), Some(&keys::SESSION | &keys::REPLY));
        for (key, value) in rows.into_iter().filter(|(key, _)| kept(key)) {
            let row_bytes = CHANGE_OVERHEAD_BYTES + key.len() + value.len();
            if self.batch.len_bytes() + row_bytes > BATCH_BYTES {
                self.flush().await?;
            }
            self.batch.put(key, value);
            self.rows += 1;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            self.kv.admit().await?;
            self.kv.append(batch)?;
        }
        Ok(())
    }

    /// Ends the work: `backup_term` is the term in which the backup was made. Everything is durable then; the number of rows.
    pub async fn finish(mut self, backup_term: u32) -> Result<u64> {
        self.flush().await?;
        let format = meta::format(&self.kv)?;
        if format.is_none_or(|format| format.uuid != self.identity.uuid) {
            let why = "its rows are not those of the MDT that its header names";
            return Err(Fault::new(Code::BadBackup).why(why));
        }
        let hot = hot::Hot::default();
        let mut changes = Changes::new(&self.kv, &hot, meta::format_level(&self.kv)?);
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
