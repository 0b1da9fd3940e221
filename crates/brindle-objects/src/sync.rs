//! Syncing: data and sums, then the directory entry of a new object, then the high-water mark.
//!
//! Callers that want the same object synced share one sync. A background task syncs everything that is dirty for a
//! while, gives write intents back, and makes high-water marks durable that no later sync carried.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use brindle_stdx::{BoxFuture, DiskFile, Mono, planted};
use brindle_types::{Code, Fault, ObjectId};
use futures_util::{StreamExt, stream};

use crate::format::blocks;
use crate::names;
use crate::object::Object;
use crate::ranges::ALL;
use crate::stats::add;
use crate::store::ObjectStore;

/// Age at which the background task syncs an object. With its interval and its rate it stays below 5 s.
const DIRTY_AGE_MS: u64 = 3_000;
/// Age at which a high-water mark that no sync carried is made durable by itself.
const HEADER_AGE_MS: u64 = 1_000;
/// Interval of the background task.
const TICK_MS: u64 = 250;
/// Objects that the background task, or one request, syncs at once.
const SYNC_PARALLEL: usize = 16;
/// Number of tries of a writer while the table of write intents is full.
const INTENT_TRIES: usize = 3;

/// Outcome of a sync of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Boot term.
    pub boot_term: u32,
    /// Whether each object exists, in order.
    pub exists: Vec<bool>,
    /// Allocated bytes of all of them.
    pub allocated_bytes: u64,
}

/// An object as it was when its sync began.
struct Snapshot {
    file: Arc<dyn DiskFile>,
    changes: u64,
    blocks: u64,
    marks: Vec<(u64, u64)>,
    term: u32,
}

impl ObjectStore {
    /// Makes objects durable: contents, checksums, directory entries.
    pub async fn sync(&self, ids: &[ObjectId]) -> Result<Synced, Fault> {
        let work: Vec<BoxFuture<'_, Result<(bool, u64), Fault>>> =
            ids.iter().map(|id| Box::pin(self.sync_one(*id)) as BoxFuture<'_, _>).collect();
        let results: Vec<_> = stream::iter(work).buffered(SYNC_PARALLEL).collect().await;
        let mut synced = Synced { boot_term: 0, exists: Vec::new(), allocated_bytes: 0 };
        for result in results {
            let (exists, allocated) = result?;
            synced.exists.push(exists);
            synced.allocated_bytes += allocated;
        }
        // Taken last: if a sync failed meanwhile, the caller must learn it.
        synced.boot_term = self.boot_term();
        Ok(synced)
    }

    /// Answers as [`ObjectStore::sync`] does, and syncs nothing.
    pub async fn synced_in_words(&self, ids: &[ObjectId]) -> Result<Synced, Fault> {
        let mut synced = Synced { boot_term: 0, exists: Vec::new(), allocated_bytes: 0 };
        for id in ids {
            let object = self.ready(*id).await?;
            let state = object.state.lock();
            synced.exists.push(state.exists());
            synced.allocated_bytes += state.allocated_bytes();
        }
        synced.boot_term = self.boot_term();
        Ok(synced)
    }

    async fn sync_one(&self, id: ObjectId) -> Result<(bool, u64), Fault> {
        let object = self.ready(id).await?;
        self.sync_object(&object).await?;
        let s = object.state.lock();
        Ok((s.exists(), s.allocated_bytes()))
    }

    /// Syncs one object, or waits for a sync that began late enough.
    pub(crate) async fn sync_object(&self, object: &Arc<Object>) -> Result<(), Fault> {
        let wanted = object.state.lock().changes;
        loop {
            let syncing = object.syncing.lock().await;
            if let Some(fault) = self.failure() {
                return Err(fault);
            }
            let (done, settled_term) = {
                let s = object.state.lock();
                // A removed object needs neither a sync nor repair.
                (s.gone || s.synced_changes >= wanted, s.settled_term)
            };
            if done {
                return Ok(());
            }
            if settled_term != self.boot_term() {
                // The sync that this one waited for has failed. From then on the kernel counts the unwritten bytes as clean,
                // and a second sync would succeed without them. Write them again first.
                drop(syncing);
                self.settle(object).await?;
                continue;
            }
            // Wait until no write is half done before counting the marks.
            let all = object.locks.write(ALL).await;
            let Some(snapshot) = self.begin_sync(object) else { return Ok(()) };
            drop(all);
            return self.end_sync(object, snapshot).await;
        }
    }

    /// Refuses changes of a term that a failed sync has ended meanwhile: the kernel may have dropped the bytes before they
    /// were written again.
    pub(crate) fn must_be_of(&self, term: u32, id: ObjectId) -> Result<(), Fault> {
        if self.boot_term() == term {
            return Ok(());
        }
        Err(Fault::new(Code::OstIo)
            .subject(format!("object {id}"))
            .why("a sync of this target failed while the bytes were on their way to its disk")
            .data("what was written since the last sync may be lost"))
    }

    /// Syncs for a caller that holds all of the object already.
    pub(crate) async fn sync_held(&self, object: &Arc<Object>) -> Result<(), Fault> {
        match self.begin_sync(object) {
            Some(snapshot) => self.end_sync(object, snapshot).await,
            None => Ok(()),
        }
    }

    fn begin_sync(&self, object: &Object) -> Option<Snapshot> {
        let mut s = object.state.lock();
        let file = s.file.clone().filter(|_| !s.gone)?;
        // The header makes the time of the last write as durable as the write; the mark follows when the sync
        // has ended.
        if let Err(e) = s.put_header() {
            tracing::warn!(object = %object.id, error = %e, "cannot write the time of the last write");
        }
        let blocks = blocks(s.len);
        s.intent_floor = s.intent_floor.max(blocks);
        let marks = self.intents.snapshot(object.id);
        Some(Snapshot { file, changes: s.changes, blocks, marks, term: self.boot_term() })
    }

    async fn end_sync(&self, object: &Arc<Object>, snapshot: Snapshot) -> Result<(), Fault> {
        let Snapshot { file, changes, blocks, marks, term } = snapshot;
        if !planted("ost_skip_fdatasync")
            && let Err(e) = file.sync_data_async().await
        {
            return Err(self.sync_failed(term, format!("object {}", object.id), &e));
        }
        add(&self.stats.fdatasyncs, 1);
        add(&self.stats.object_syncs, 1);
        let linked = object.state.lock().header.linked;
        if !linked && !planted("ost_skip_dir_sync") {
            let synced = self.sync_entry(&object.id).await;
            synced.map_err(|e| self.sync_failed(term, self.path(&object.id), &e))?;
        }
        let mut s = object.state.lock();
        if !s.cut_by_others() {
            s.header.synced_blocks = blocks;
        }
        s.header.linked = true;
        s.header.pending_cut = None;
        s.header.dirty = s.changes != changes;
        s.synced_changes = changes;
        let put = s.put_header();
        drop(s);
        if let Err(e) = put {
            // The old mark is only more lenient; the next sync writes it again.
            tracing::warn!(object = %object.id, error = %e, "cannot write a high-water mark");
        }
        self.intents.clear(object.id, &marks, self.seams.now());
        self.note_synced(object);
        Ok(())
    }

    /// Makes the directory entry of an object durable, and that of its directory.
    async fn sync_entry(&self, id: &ObjectId) -> io::Result<()> {
        let dir = names::dir(&self.root, id);
        let mut dirs = vec![dir.clone()];
        if !self.durable_dirs.lock().contains(&dir) {
            dirs.push(format!("{}/objects", self.root));
        }
        self.sync_dirs(dirs).await?;
        self.durable_dirs.lock().insert(dir);
        Ok(())
    }

    /// Syncs directories without holding a runtime thread.
    pub(crate) async fn sync_dirs(&self, dirs: Vec<String>) -> io::Result<()> {
        add(&self.stats.dir_syncs, dirs.len() as u64);
        let disk = self.seams.disk.clone();
        let done = self.seams.run_blocking(move || dirs.iter().try_for_each(|d| disk.sync_dir(d))).await;
        done.unwrap_or_else(|| Err(io::Error::other("the job ended early")))
    }

    /// Takes the object off the list of objects to sync, or begins its wait anew.
    fn note_synced(&self, object: &Arc<Object>) {
        let s = object.state.lock();
        let mut dirty = self.dirty.lock();
        if s.gone || s.clean() && !s.header_unsynced {
            dirty.remove(&object.id);
        } else {
            dirty.insert(object.id, (self.seams.now(), object.clone()));
        }
    }

    /// Makes the header durable that the last sync left behind.
    async fn sync_header(&self, object: &Arc<Object>) -> Result<(), Fault> {
        let _syncing = object.syncing.lock().await;
        let (file, term) = {
            let mut s = object.state.lock();
            if !s.clean() || !s.header_unsynced {
                return Ok(());
            }
            s.header_unsynced = false;
            (s.file.clone(), self.boot_term())
        };
        if let Some(file) = file {
            add(&self.stats.fdatasyncs, 1);
            let synced = file.sync_data_async().await;
            synced.map_err(|e| self.sync_failed(term, format!("object {}", object.id), &e))?;
        }
        self.note_synced(object);
        Ok(())
    }

    /// Syncs everything that is dirty.
    pub async fn sync_all(&self) -> Result<(), Fault> {
        self.sync_older(Mono(u64::MAX), true).await
    }

    async fn sync_older(&self, now: Mono, all: bool) -> Result<(), Fault> {
        // An object's state is never locked under the list: changes lock them the other way round.
        let mut listed: Vec<(Mono, Arc<Object>)> = self.dirty.lock().values().cloned().collect();
        listed.retain(|(since, o)| {
            let age = now.ms_since(*since);
            all || age >= DIRTY_AGE_MS || age >= HEADER_AGE_MS && o.state.lock().clean()
        });
        let due: Vec<Arc<Object>> = listed.into_iter().map(|(_, o)| o).collect();
        let work: Vec<BoxFuture<'_, Result<(), Fault>>> =
            due.iter().map(|o| Box::pin(self.sync_due(o, all)) as BoxFuture<'_, _>).collect();
        let results: Vec<_> = stream::iter(work).buffer_unordered(SYNC_PARALLEL).collect().await;
        results.into_iter().collect()
    }

    /// With `all` the high-water mark is made durable at once; otherwise the next sync may carry it.
    async fn sync_due(&self, object: &Arc<Object>, all: bool) -> Result<(), Fault> {
        if object.state.lock().gone {
            self.note_synced(object);
            return Ok(());
        }
        if object.state.lock().settled_term != self.boot_term() {
            self.settle(object).await?;
        }
        let was_clean = object.state.lock().clean();
        self.sync_object(object).await?;
        if all || was_clean { self.sync_header(object).await } else { Ok(()) }
    }

    /// Frees records of the full table of write intents.
    pub(crate) async fn make_room_for_intents(&self) -> Result<(), Fault> {
        for _ in 0..INTENT_TRIES {
            self.sync_all().await?;
            let term = self.boot_term();
            if self.intents.reap(self.seams.now(), true).await.map_err(|e| self.mark_failed(term, e))? {
                return Ok(());
            }
        }
        Err(Fault::new(Code::Overloaded).why("the table of write intents is full"))
    }

    /// A round of the background task.
    pub async fn tick(&self) {
        self.record_owed_term();
        let term = self.boot_term();
        if let Err(fault) = self.sync_older(self.seams.now(), false).await {
            tracing::error!("a background sync failed: {fault}");
        }
        if let Err(e) = self.intents.reap(self.seams.now(), false).await {
            let fault = self.mark_failed(term, e);
            tracing::error!("the write intents cannot be given back: {fault}");
        }
        if let Err(e) = self.findings.sync().await {
            tracing::warn!(error = %e, "cannot sync the list of findings");
        }
    }

    /// Syncs in the background until [`ObjectStore::close`].
    pub fn start_background(self: &Arc<Self>) {
        self.seams.spawn("objects.writeback_hint", self.clone().sync_early());
        let this = self.clone();
        self.seams.spawn("objects.sync", async move {
            while !this.stopped.load(Ordering::Acquire) {
                this.seams.sleep_ms(TICK_MS).await;
                this.tick().await;
            }
        });
    }

    /// Syncs everything and ends the background task.
    pub async fn close(&self) -> Result<(), Fault> {
        self.stopped.store(true, Ordering::Release);
        self.writeback_hint.stop();
        if let Some(fault) = self.failure() {
            // A failed disk has ended the store: no later sync could be believed, and reading dirty blocks may take
            // for ever.
            return Err(fault);
        }
        self.sync_all().await?;
        let term = self.boot_term();
        self.intents.reap(self.seams.now(), true).await.map_err(|e| self.mark_failed(term, e))?;
        Ok(())
    }
}
