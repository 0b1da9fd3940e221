//! Counters of an object store, with the names under which they are shown.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($name:ident $doc:literal;)*) => {
        /// Counters since the start of the process.
        #[derive(Default)]
        pub struct Stats { $(#[doc = $doc] pub $name: AtomicU64,)* }

        impl Stats {
            /// Every counter: name, explanation, value.
            pub fn list(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), $doc, self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

stats! {
    read_bytes "Bytes read from objects.";
    direct_read_bytes "Those of them that went past the page cache.";
    written_bytes "Bytes written to objects.";
    direct_bytes "Those of them that went past the page cache.";
    reads "Reads of objects.";
    writes "Writes to objects.";
    objects_made "Objects made by a first write.";
    objects_destroyed "Objects removed.";
    objects_quarantined "Objects of unknown owners set aside.";
    object_syncs "Syncs of single objects that reached the disk.";
    early_syncs "Syncs of the device in the midst of a stream.";
    fdatasyncs "Calls of fdatasync.";
    dir_syncs "Syncs of directories.";
    intent_syncs "Syncs of the write-intent table.";
    resummed_blocks "Blocks whose checksum was computed anew after a crash.";
    damaged_blocks "Times that a wrong checksum was met and reported.";
    missing_objects "Times that an object was used which must exist, and was missing.";
    refused_writes "Writes refused as late duplicates or for an old epoch.";
    full_refusals "Writes refused because the target is full.";
    boot_terms "Boot terms taken while running, because a sync failed.";
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
