//! A store that is made out of the rows of another one at a moment, to go on with its records from there ([`crate::Replica`]).

use std::collections::BTreeMap;

use brindle_stdx::Seams;
use brindle_types::Result;
use bytes::Bytes;

use crate::batch::{Batch, LogPos};
use crate::fault::store_io;
use crate::format::SegmentHeader;
use crate::open::identity_of;
use crate::options::KvOptions;
use crate::segment::make_segment;
use crate::store::{Meta, Store};

/// Rows that are put into the file together.
const ROWS_BYTES: usize = 8 << 20;

/// A store in the making. Until [`Filling::finish`] the directory holds no log, and is no store.
pub struct Filling {
    seams: Seams,
    dir: String,
    opts: KvOptions,
    at: LogPos,
    store: Store,
    rows: BTreeMap<Bytes, Option<Bytes>>,
    bytes: usize,
}

impl Filling {
    /// Begins in an empty directory, which is made if it is missing. `at` is the last record whose rows are given.
    pub fn begin(seams: Seams, dir: &str, opts: KvOptions, at: LogPos) -> Result<Filling> {
        let io = |e| store_io("cannot create the metadata store", dir, &e);
        seams.disk.create_dir_all(dir).map_err(io)?;
        Store::create(&*seams.disk, dir, identity_of(&opts))?;
        seams.disk.sync_dir(dir).map_err(io)?;
        let (store, _, _) = Store::open(seams.disk.clone(), dir, opts.cache_bytes_max)?;
        Ok(Filling { seams, dir: dir.to_owned(), opts, at, store, rows: BTreeMap::new(), bytes: 0 })
    }

    /// Takes in the rows of a batch.
    pub fn put(&mut self, batch: Batch) -> Result<()> {
        batch.check()?;
        self.bytes += batch.len_bytes();
        self.rows.extend(batch.changes.into_iter().map(|change| (change.key, change.value)));
        if self.bytes >= ROWS_BYTES { self.flush(LogPos::default()) } else { Ok(()) }
    }

    fn flush(&mut self, applied: LogPos) -> Result<()> {
        let meta = Meta { identity: identity_of(&self.opts), applied };
        self.store.checkpoint(&self.rows, &meta, drop)?;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    /// The last row was given. The store is complete and durable on return; [`crate::Replica::open`] opens it.
    pub fn finish(mut self) -> Result<()> {
        self.flush(self.at)?;
        let header = SegmentHeader {
            identity: identity_of(&self.opts),
            term: self.at.term,
            first_index: self.at.index + 1,
            previous_term: 0,
            previous_last_index: self.at.index,
            salt: self.seams.rng.next_u64(),
        };
        make_segment(&*self.seams.disk, &self.dir, header, self.opts.segment_bytes)?;
        self.seams
            .disk
            .sync_dir(brindle_stdx::disk::parent(&self.dir))
            .map_err(|e| store_io("cannot create the metadata store", &self.dir, &e))
    }
}
