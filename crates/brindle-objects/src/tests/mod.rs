//! Tests of the whole store.

mod bit_rot;
mod crashes;
mod full;
mod members;
mod model;
mod parallel;
mod rules;
mod streams;
mod synced_replies;
mod verify;

use std::sync::Arc;

use brindle_sim::{DiskModel, ManualClock, SimDisk, Survival};
use brindle_stdx::crc;
use brindle_types::{Fault, Ino, ObjectId, Pair};
use brindle_wire::oss::Ticket;
use bytes::Bytes;

use crate::format::BLOCK;
use crate::{Changed, ObjectStore, PunchOp, ReadCache, ReadOut, Replies, StoreConfig, WriteOp};

/// A disk whose power cuts keep any version of each sector, length and name, with the directory of the OST on it.
pub(crate) fn new_disk(seed: u64) -> SimDisk {
    let model = DiskModel {
        survival: Survival::Any,
        tears_renames: true,
        block_bytes: BLOCK,
        ..DiskModel::default()
    };
    let disk = SimDisk::new(seed, model);
    disk.put_dir("/ost");
    disk
}

/// Runs a future that waits for nothing outside.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(work)
}

/// A store over a disk that loses unsynced bytes, and steps of tests.
pub(crate) struct Bench {
    pub disk: SimDisk,
    pub clock: Arc<ManualClock>,
    pub store: Arc<ObjectStore>,
    pub ticket: Ticket,
    pub replies: Replies,
    /// Whether the store is a member of a replica set, which waits for `settle_left`.
    pub is_member: bool,
}

pub(crate) const O: ObjectId =
    ObjectId { ino: Ino(0x77), generation: Pair { term: 1, counter: 5 }, stripe: 0 };
const FS_ID: u64 = 0xabcd;

pub(crate) fn pair(n: u64) -> Pair {
    Pair { term: 1, counter: n }
}

impl Bench {
    pub fn new(seed: u64) -> Bench {
        let disk = new_disk(seed);
        let clock = Arc::new(ManualClock::default());
        let store = Bench::open(&disk, &clock).expect("a new store opens");
        Bench { disk, clock, store, ticket: Ticket::default(), replies: Replies::Written, is_member: false }
    }

    pub fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Result<Arc<ObjectStore>, Fault> {
        Bench::open_with(disk, clock, (Replies::Written, false))
    }

    pub fn open_with(
        disk: &SimDisk,
        clock: &Arc<ManualClock>,
        (replies, is_member): (Replies, bool),
    ) -> Result<Arc<ObjectStore>, Fault> {
        let read_cache = ReadCache::default();
        let config = StoreConfig { root: "/ost".into(), fs_id: FS_ID, replies, is_member, read_cache };
        block_on(ObjectStore::open(clock.seams(Arc::new(disk.clone())), config))
    }

    /// The process dies and a new one starts.
    pub fn restart(&mut self) {
        self.disk = self.disk.kill();
        let how = (self.replies, self.is_member);
        self.store = Bench::open_with(&self.disk, &self.clock, how).expect("a store opens after a kill");
    }

    /// The power fails.
    pub fn power_cut(&mut self) {
        self.disk = self.disk.power_cut();
        let how = (self.replies, self.is_member);
        self.store = Bench::open_with(&self.disk, &self.clock, how).expect("a store opens after a power cut");
    }

    pub fn write_to(&self, object: ObjectId, offset: u64, data: &[u8]) -> Result<Changed, Fault> {
        let op = WriteOp {
            object,
            offset,
            data: Bytes::copy_from_slice(data),
            crc: crc(data),
            ticket: self.ticket,
            sync: false,
            covered: false,
        };
        let mut turn = self.store.slots().anonymous(None)?;
        block_on(self.store.write(&op, &mut turn))
    }

    pub fn write(&self, offset: u64, data: &[u8]) -> Result<Changed, Fault> {
        self.write_to(O, offset, data)
    }

    pub fn punch(&self, offset: u64, len_bytes: u64, keep_space: bool) -> Result<Changed, Fault> {
        let mut turn = self.store.slots().anonymous(None)?;
        let op = PunchOp { object: O, offset, len_bytes, ticket: self.ticket };
        block_on(self.store.punch(&op, keep_space, &mut turn))
    }

    pub fn allocate(&self, offset: u64, len_bytes: u64, keep_len: bool) -> Result<Changed, Fault> {
        let mut turn = self.store.slots().anonymous(None)?;
        let op = PunchOp { object: O, offset, len_bytes, ticket: self.ticket };
        block_on(self.store.allocate(&op, keep_len, &mut turn))
    }

    /// Cuts under the next truncate epoch, which writers have from then on.
    pub fn truncate(&mut self, len: u64) -> Result<Changed, Fault> {
        self.ticket.truncate_epoch = pair(self.ticket.truncate_epoch.counter + 1);
        let changed = block_on(self.store.truncate(O, len, self.ticket.truncate_epoch, true, false));
        if changed.is_err() {
            self.ticket.truncate_epoch = pair(self.ticket.truncate_epoch.counter - 1);
        }
        changed
    }

    pub fn read_of(&self, object: ObjectId, offset: u64, len: u64) -> Result<ReadOut, Fault> {
        let read = block_on(self.store.read(object, offset, len, &self.ticket))?;
        assert_eq!(read.crc, crc(&read.data), "the checksum sent is that of the bytes");
        Ok(read)
    }

    pub fn read(&self, offset: u64, len: u64) -> Result<Bytes, Fault> {
        Ok(self.read_of(O, offset, len)?.data)
    }

    pub fn sync(&self) -> Result<u32, Fault> {
        Ok(block_on(self.store.sync(&[O]))?.boot_term)
    }

    pub fn len(&self) -> u64 {
        block_on(self.store.stat(O)).expect("stat").len_bytes
    }

    pub fn stat(&self, name: &str) -> u64 {
        self.store.stats().list().into_iter().find(|s| s.0 == name).expect("a counter").2
    }

    /// Some time passes, with the background task at work.
    pub fn pass_ms(&self, ms: u64) {
        for _ in 0..ms.div_ceil(250) {
            self.clock.advance_ms(250);
            block_on(self.store.tick());
        }
    }
}

/// Bytes that differ from call to call and from place to place.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend(x.to_le_bytes());
    }
    out.truncate(len);
    out
}
