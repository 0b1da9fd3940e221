//! Properties of the store, over a disk whose power can be cut and a runtime that orders tasks at random.

mod damage;
mod durability;
mod golden;
mod model;
mod replica;
mod sim;
mod snapshot;
mod space;
mod teeth;
mod verify;

use std::cell::Cell;

use crate::{Batch, DurabilityMode, KvOptions};

thread_local! {
    /// The planted bug of the test that runs on this thread.
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Whether `name` is the planted bug of this test.
pub fn planted(name: &str) -> bool {
    PLANTED.get() == Some(name)
}

/// Directory of the stores in these tests.
pub const DIR: &str = "/mdt/kv";

/// Options small enough that rotations and checkpoints happen all the time.
pub fn small_options() -> KvOptions {
    KvOptions {
        segment_bytes: 64 << 10,
        memtable_bytes_max: 24 << 10,
        cache_bytes_max: 1 << 20,
        reserve_bytes: 256 << 10,
        mode: DurabilityMode::Relaxed,
        ..KvOptions::new([7; 16], [9; 16], "scratch-MDT0000")
    }
}

/// A batch that sets one row.
pub fn put(key: &str, value: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put(key.as_bytes().to_vec(), value.as_bytes().to_vec());
    batch
}
