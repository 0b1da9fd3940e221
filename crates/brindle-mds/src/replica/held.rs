//! The store of a member that follows.
//!
//! ```text
//!   empty --begin--> filling --end--> open        open --begin--> filling (what was there is set aside)
//! ```
//!
//! The former store stays in a directory beside the new one until the new one is complete, and is removed then. A member whose filling was
//! interrupted is empty.
//!
//! A store with damage that the member cannot mend is marked on the disk. It is not opened to follow any more, and counts as having nothing, so that
//! the primary fills the member anew. The marked store stays until the new one is complete.

use brindle_kv::{Checkpointed, Checkpointing, Filling, KvOptions, LogPos, Replica, Snapshot, Verifier};
use brindle_stdx::disk::replace_file;
use brindle_stdx::{DiskFile, Mono, Seams};
use brindle_types::{Code, Fault, Result};
use bytes::Bytes;
use std::sync::Arc;

use crate::store::engine;

/// Records of this age are synced.
const SYNC_AFTER_MS: u64 = 500;
/// Age of an unsynced record at which the member takes in no more records.
const UNSYNCED_AGE_MAX_MS: u64 = 1_000;

enum Store {
    Empty,
    Filling(Box<Filling>, LogPos),
    Open(Box<Replica>),
}

/// See the module.
pub(super) struct Held {
    seams: Seams,
    dir: String,
    options: KvOptions,
    store: Store,
    /// Rises whenever the store becomes another one.
    generation: u64,
    /// Whether the store has damage that only a filling mends.
    is_damaged: bool,
}

/// Progress of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    pub written: u64,
    pub synced: u64,
}

/// Work of one sync.
pub(super) struct ToSync {
    /// The file.
    pub file: Arc<dyn DiskFile>,
    /// Records up to this index survive a power cut then.
    index: u64,
    generation: u64,
    at: Mono,
}

fn not_filled() -> Fault {
    Fault::new(Code::NotPrimary).why("this member has nothing of the MDT yet")
}

impl Held {
    /// Opens what is in the store's directory. `is_new`: the member has never been in the set, so that what is there is not of the set's MDT.
    pub fn open(seams: &Seams, dir: &str, options: KvOptions, is_new: bool) -> Result<Held> {
        let options = engine::sized(seams, dir, options)?;
        let mut held = Held {
            seams: seams.clone(),
            dir: dir.to_owned(),
            options,
            store: Store::Empty,
            generation: 0,
            is_damaged: false,
        };
        held.is_damaged = is_marked_damaged(seams, dir)?;
        if is_new {
            // The first records of a formatted MDT have the same names as those of the set, but other
            // contents.
            held.put_aside(&format!("{dir}.formatted"))?;
        } else if !held.exists(&held.dir)? {
            held.find_complete()?;
        }
        if !held.is_damaged && held.exists(&held.dir)? {
            match Replica::open(held.seams.clone(), &held.dir, held.options.clone()) {
                Ok(replica) => held.store = Store::Open(Box::new(replica)),
                Err(fault) if matches!(fault.code, Code::LogDamaged | Code::KvDamaged) => {
                    held.mark_damaged(&fault.to_string())?;
                    return Ok(held);
                }
                Err(fault) => return Err(fault),
            }
            // Remove remains of interrupted fillings.
            held.remove(&held.making())?;
            held.remove(&held.aside())?;
        }
        Ok(held)
    }

    fn aside(&self) -> String {
        format!("{}.before", self.dir)
    }

    fn making(&self) -> String {
        format!("{}.filling", self.dir)
    }

    fn exists(&self, dir: &str) -> Result<bool> {
        match self.seams.disk.list(dir) {
            Ok(names) => Ok(!names.is_empty()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Fault::io(Code::KvFailed, "cannot list", dir.to_owned(), &e)),
        }
    }

    fn remove(&self, dir: &str) -> Result<()> {
        let io = |e: std::io::Error| Fault::io(Code::KvFailed, "cannot remove", dir.to_owned(), &e);
        let names = match self.seams.disk.list(dir) {
            Ok(names) => names,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(io(e)),
        };
        for name in names {
            self.seams.disk.remove(&format!("{dir}/{name}")).map_err(io)?;
        }
        self.seams.disk.remove_dir(dir).map_err(io)
    }

    /// Moves the contents of the store's directory aside. An earlier copy there is removed, unless there is nothing
    /// else.
    fn put_aside(&mut self, aside: &str) -> Result<()> {
        self.store = Store::Empty;
        if !self.exists(&self.dir)? {
            return Ok(());
        }
        self.remove(aside)?;
        self.rename(&self.dir, aside)
    }

    /// Finds the complete store after a start. A filling that was interrupted at its very end is complete. If it was interrupted
    /// earlier, the former store counts.
    fn find_complete(&self) -> Result<()> {
        for beside in [self.making(), self.aside()] {
            if self.exists(&beside)?
                && Replica::open(self.seams.clone(), &beside, self.options.clone()).is_ok()
            {
                return self.rename(&beside, &self.dir);
            }
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let disk = &*self.seams.disk;
        disk.rename(from, to)
            .and_then(|()| disk.sync_dir(brindle_stdx::disk::parent(to)))
            .map_err(|e| Fault::io(Code::KvFailed, "cannot rename", from.to_owned(), &e))
    }

    /// The last record; `None` for a member that has nothing, or has to be filled anew.
    pub fn last(&self) -> Option<LogPos> {
        match &self.store {
            Store::Open(_) if self.is_damaged => None,
            Store::Open(replica) => Some(replica.last()),
            Store::Empty | Store::Filling(..) => None,
        }
    }

    /// Highest term that the store knows; 0 for a member that has nothing.
    pub fn term(&self) -> u32 {
        match &self.store {
            Store::Open(replica) => replica.next_term() - 1,
            Store::Empty | Store::Filling(..) => 0,
        }
    }

    fn reached(replica: &Replica) -> Reached {
        Reached { written: replica.last().index, synced: replica.synced() }
    }

    /// Takes in records. `by_age`: none of them stays unsynced for long, as in every mode but `scratch`.
    pub fn append(&mut self, bytes: &Bytes, by_age: bool) -> Result<Reached> {
        let Store::Open(replica) = &mut self.store else { return Err(not_filled()) };
        let records = brindle_kv::decode_records(bytes)?;
        let age_ms = replica.unsynced_since().map(|at| self.seams.now().ms_since(at));
        if by_age && age_ms.is_some_and(|ms| ms > UNSYNCED_AGE_MAX_MS) {
            replica.sync()?;
        }
        replica.apply_all(&records)?;
        Ok(Held::reached(replica))
    }

    /// Progress of the member, and the work that the caller has to sync.
    pub fn to_sync(&self) -> Result<(Reached, Option<ToSync>)> {
        let Store::Open(replica) = &self.store else { return Err(not_filled()) };
        let (generation, at) = (self.generation, self.seams.now());
        let to_sync = replica.to_sync().map(|(file, index)| ToSync { file, index, generation, at });
        Ok((Held::reached(replica), to_sync))
    }

    /// Takes in that `done` was synced; returns the progress of the member. A sync of a store that was
    /// replaced meanwhile counts for nothing.
    pub fn was_synced(&mut self, done: &ToSync) -> Result<Reached> {
        let Store::Open(replica) = &mut self.store else { return Err(not_filled()) };
        if done.generation == self.generation {
            replica.was_synced(done.index, done.at);
        }
        Ok(Held::reached(replica))
    }

    /// Whether records are so old that they are to be synced.
    pub fn is_sync_due(&self) -> bool {
        let Store::Open(replica) = &self.store else { return false };
        replica.unsynced_since().is_some_and(|at| self.seams.now().ms_since(at) >= SYNC_AFTER_MS)
    }

    /// Whether another checkpoint would be due while one is being written.
    pub fn is_full(&self) -> bool {
        let Store::Open(replica) = &self.store else { return false };
        replica.is_checkpoint_due() && replica.is_checkpointing()
    }

    /// A checkpoint that is due.
    pub fn due_checkpoint(&mut self) -> Result<Option<Checkpointing>> {
        match &mut self.store {
            Store::Open(replica) if replica.is_checkpoint_due() => replica.begin_checkpoint(),
            _ => Ok(None),
        }
    }

    /// The checkpoint of this store was written.
    pub fn end_checkpoint(&mut self, done: Checkpointed) {
        if let Store::Open(replica) = &mut self.store {
            replica.end_checkpoint(done);
        }
    }

    /// Notes durably that the store has damage that only a filling mends.
    pub fn mark_damaged(&mut self, why: &str) -> Result<()> {
        mark_damaged(&self.seams, &self.dir, why)?;
        self.is_damaged = true;
        Ok(())
    }

    fn replica(&mut self) -> Result<&mut Replica> {
        match &mut self.store {
            Store::Open(replica) => Ok(replica),
            Store::Empty | Store::Filling(..) => Err(not_filled()),
        }
    }

    /// The files as they are now.
    pub fn verifier(&self) -> Result<Verifier> {
        match &self.store {
            Store::Open(replica) => Ok(replica.verifier()),
            Store::Empty | Store::Filling(..) => Err(not_filled()),
        }
    }

    /// Begins a checkpoint that nobody has to wait for; before that a new segment of the log, if `renews_log`.
    pub fn begin_checkpoint(&mut self, renews_log: bool) -> Result<Option<Checkpointing>> {
        let replica = self.replica()?;
        if renews_log {
            replica.renew_log()?;
        }
        replica.begin_checkpoint()
    }

    /// The rows of the last checkpoint.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.replica().map(|replica| replica.snapshot())
    }

    /// Begins to be filled with the rows up to a record.
    pub fn begin_fill(&mut self, at: LogPos) -> Result<()> {
        self.store = Store::Empty;
        self.generation += 1;
        let making = self.making();
        self.remove(&making)?;
        let filling = Filling::begin(self.seams.clone(), &making, self.options.clone(), at)?;
        self.store = Store::Filling(Box::new(filling), at);
        Ok(())
    }

    /// Takes in rows.
    pub fn fill(&mut self, bytes: &Bytes) -> Result<()> {
        let Store::Filling(filling, _) = &mut self.store else { return Err(not_filled()) };
        brindle_kv::decode_records(bytes)?.into_iter().try_for_each(|(_, batch)| filling.put(batch))
    }

    /// The rows are complete: what was there before is removed.
    pub fn end_fill(&mut self) -> Result<()> {
        let Store::Filling(filling, at) = std::mem::replace(&mut self.store, Store::Empty) else {
            return Err(not_filled());
        };
        filling.finish()?;
        let aside = self.aside();
        self.put_aside(&aside)?;
        self.rename(&self.making(), &self.dir)?;
        let replica = Replica::open(self.seams.clone(), &self.dir, self.options.clone())?;
        if replica.last() != at {
            return Err(Fault::new(Code::Bug).why("a store that was filled ends with another record"));
        }
        self.store = Store::Open(Box::new(replica));
        self.unmark_damaged()?;
        self.remove(&self.aside())
    }

    fn unmark_damaged(&mut self) -> Result<()> {
        self.is_damaged = false;
        let (disk, mark) = (&*self.seams.disk, mark(&self.dir));
        match disk.remove(&mark).and_then(|()| disk.sync_dir(brindle_stdx::disk::parent(&mark))) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Fault::io(Code::KvFailed, "cannot remove", mark, &e))
            }
            _ => Ok(()),
        }
    }
}

/// File that marks a store as damaged, beside it.
fn mark(dir: &str) -> String {
    format!("{dir}.damaged")
}

fn is_marked_damaged(seams: &Seams, dir: &str) -> Result<bool> {
    let mark = mark(dir);
    match seams.disk.stat(&mark) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Fault::io(Code::KvFailed, "cannot look at", mark, &e)),
    }
}

/// Notes durably that the store in `dir` has damage that only a filling mends. The text is for people who look at the disk.
pub(super) fn mark_damaged(seams: &Seams, dir: &str, why: &str) -> Result<()> {
    tracing::error!(code = %Code::KvDamaged, dir, why, "the store of this copy is damaged: it is to be filled anew");
    let mark = mark(dir);
    replace_file(&*seams.disk, &mark, why.as_bytes())
        .map_err(|e| Fault::io(Code::NotWritable, "cannot write", mark, &e))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use brindle_kv::{Kv, encode_rows};
    use brindle_stdx::{BoxFuture, Clock, Timestamp};

    use super::*;

    /// A clock that a test sets.
    #[derive(Default)]
    struct Set(AtomicU64);

    impl Clock for Set {
        fn now(&self) -> Mono {
            Mono(self.0.load(Ordering::Acquire))
        }

        fn wall(&self) -> Timestamp {
            Timestamp { secs: 0, nanos: 0 }
        }

        fn sleep_until(&self, _: Mono) -> BoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    /// A member with an empty store, the clock it goes by, and the record after so many.
    fn member(dir: &std::path::Path) -> (Held, Arc<Set>, impl Fn(u64) -> Bytes) {
        let real = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let clock = Arc::new(Set::default());
        let seams = Seams { clock: clock.clone(), ..real };
        let path = dir.join("kv").to_str().unwrap().to_owned();
        let options =
            KvOptions { segment_bytes: 4 << 20, ..KvOptions::new([1; 16], [2; 16], "scratch-MDT0000") };
        Kv::create(&*seams.disk, &path, &options).unwrap();
        let held = Held::open(&seams, &path, options, false).unwrap();
        let first = held.last().unwrap();
        let record = move |n: u64| {
            let at = LogPos { term: first.term + 1, index: first.index + n };
            encode_rows(at, vec![(Bytes::from(format!("k{n}")), Bytes::from_static(b"v"))])
        };
        (held, clock, record)
    }

    #[tokio::test]
    async fn a_member_syncs_by_age_unless_its_target_is_scratch_and_whenever_it_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let (mut held, clock, record) = member(dir.path());
        let is_old = || clock.0.fetch_add((UNSYNCED_AGE_MAX_MS + 1) * 1_000_000, Ordering::AcqRel);
        let before = held.append(&record(1), false).unwrap();
        assert!(before.synced < before.written);
        is_old();
        assert!(held.is_sync_due());
        let scratch = held.append(&record(2), false).unwrap();
        assert_eq!((scratch.written, scratch.synced), (before.written + 1, before.synced), "nobody asked");
        let by_age = held.append(&record(3), true).unwrap();
        assert_eq!((by_age.written, by_age.synced), (scratch.written + 1, scratch.written));
        // Changes that must not be undone are synced in every mode.
        let (_, to_sync) = held.to_sync().unwrap();
        let to_sync = to_sync.expect("a record is not synced");
        to_sync.file.sync_data().unwrap();
        let asked = held.was_synced(&to_sync).unwrap();
        assert_eq!((asked.synced, held.is_sync_due()), (by_age.written, false));
    }
}
