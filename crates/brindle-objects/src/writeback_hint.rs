//! Early syncs: the device makes bytes that bypassed the page cache durable while their stream goes on.
//!
//! A device with a write cache of its own (a disk, a loop device, a volume of a virtual machine) may keep a whole stream until a
//! sync. That sync would wait for all of it, with idle processors. Therefore a background task syncs every [`EARLY_BYTES`]. Only
//! a real sync of the same object waits for an early one. An early sync promises nothing: marks, headers and answers belong to
//! real syncs, which find little left (design note 010).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::object::Object;
use crate::stats::add;
use crate::store::ObjectStore;

/// Bytes past the page cache after which the device is told to write back its cache. One early sync is under way at a time.
pub(crate) const EARLY_BYTES: u64 = 32 << 20;

/// Bytes written since the last hint.
#[derive(Default)]
pub(crate) struct WritebackHint {
    bytes: AtomicU64,
    /// The object that was written last when there was enough: a sync of it has the device write down everything.
    due: Mutex<Option<Arc<Object>>>,
    wake: Notify,
}

impl WritebackHint {
    /// `bytes` of an object went past the page cache.
    pub fn written(&self, object: &Arc<Object>, bytes: u64) {
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= EARLY_BYTES {
            self.bytes.store(0, Ordering::Relaxed);
            *self.due.lock() = Some(object.clone());
            self.wake.notify_one();
        }
    }

    /// Ends the waiting of the background task.
    pub fn stop(&self) {
        self.wake.notify_one();
    }
}

impl ObjectStore {
    /// The background task of early syncs; runs until [`ObjectStore::close`].
    pub(crate) async fn sync_early(self: Arc<Self>) {
        while !self.stopped.load(Ordering::Acquire) {
            if !self.sync_early_once().await {
                self.writeback_hint.wake.notified().await;
            }
        }
    }

    /// Asks the device to write down what it has, if that is due; whether it was.
    pub(crate) async fn sync_early_once(&self) -> bool {
        let Some(object) = self.writeback_hint.due.lock().take() else { return false };
        // The kernel reports bytes that it could not write only once for a file. Hence no other task may sync the file until
        // the result of this sync is known. A sync under way makes this one unnecessary.
        let Ok(_syncing) = object.syncing.try_lock() else { return true };
        let term = self.boot_term();
        // (None: it was removed meanwhile.)
        let Some(file) = object.state.lock().file.clone() else { return true };
        add(&self.stats.early_syncs, 1);
        add(&self.stats.fdatasyncs, 1);
        if let Err(e) = file.sync_data_async().await {
            let fault = self.sync_failed(term, format!("object {}", object.id), &e);
            tracing::error!("an early sync failed: {fault}");
        }
        true
    }
}
