//! [`ObjectStore`]: the parts of an object store put together, and the first steps of every operation.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use brindle_stdx::disk::DiskSpace;
use brindle_stdx::{Disk, Seams, planted, watch};
use brindle_types::{Code, Fault, ObjectId, Pair, SessionId};
use brindle_wire::oss::write::Claim;
use brindle_wire::oss::{Grant, Ticket};
use parking_lot::Mutex;

use crate::boot::{self, BootFile};
use crate::fence::{self, SessionFences};
use crate::findings::{Finding, FindingKind, Findings};
use crate::format::blocks;
use crate::grants::Grants;
use crate::intent::Intents;
use crate::names;
use crate::object::{DirtyList, Object, State, Table, damaged};
use crate::others::OtherCopies;
use crate::ranges::ALL;
use crate::recent::{ReadCache, Recent};
use crate::replies::{self, Replies};
use crate::slots::{InFlight, SlotTable};
use crate::space::Space;
use crate::stats::{Stats, add};
use crate::writeback_hint::WritebackHint;

/// Files that every target with objects has.
const PARTS: [&str; 4] = ["boot", "slots", "intents", "fences"];
/// Names of destroyed objects that are remembered, so that a late write does not make one again. The names are in memory
/// and bounded. An object that a late write makes all the same has a generation that the MDT disowns. The pass for
/// garbage, which asks the MDT about every unconfirmed object, finds and destroys it.
const TOMBSTONES_MAX: usize = 1 << 16;

/// Location and identity of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Directory of the target; the store's files are below it.
    pub root: String,
    /// File system that the objects belong to; 0 while the MGS has not told it yet.
    pub fs_id: u64,
    /// Moment at which a change is answered.
    pub replies: Replies,
    /// Whether the store is a member of a replica set. Such a store puts right what a crash left only in [`ObjectStore::settle_left`],
    /// which names the copies that may help.
    pub is_member: bool,
    /// Which long reads go through the page cache.
    pub read_cache: ReadCache,
}

/// The object store of one OST.
pub struct ObjectStore {
    pub(crate) seams: Seams,
    pub(crate) root: String,
    fs_id: AtomicU64,
    pub(crate) table: Table,
    pub(crate) intents: Intents,
    pub(crate) slots: Arc<SlotTable>,
    pub(crate) fences: SessionFences,
    pub(crate) space: Space,
    pub(crate) grants: Grants,
    pub(crate) stats: Stats,
    pub(crate) findings: Findings,
    pub(crate) dirty: DirtyList,
    /// Directories of objects whose own entries are known to be durable.
    pub(crate) durable_dirs: Mutex<BTreeSet<String>>,
    pub(crate) stopped: AtomicBool,
    pub(crate) writeback_hint: WritebackHint,
    pub(crate) recent: Recent,
    pub(crate) read_cache: ReadCache,
    pub(crate) replies: Replies,
    /// Set by a failed sync, where replies wait for syncs.
    pub(crate) ended: watch::Sender<Option<Fault>>,
    term: AtomicU32,
    boot: Mutex<BootFile>,
    pub(crate) failed: Mutex<Option<Fault>>,
    tombstones: Mutex<Tombstones>,
    /// Marks of objects that may differ between members, if the store is a member of a replica set
    /// ([`crate::replica`]).
    pub(crate) marks: OnceLock<Intents>,
    /// Boot term of a member that clients are told; 0 for the own one.
    pub(crate) told: AtomicU32,
    /// Ranges that were in flight when the last process of a member ended; `None` once they are put right.
    pub(crate) left: Mutex<Option<Vec<InFlight>>>,
    /// The way to other copies of the objects ([`crate::others`]).
    pub(crate) others: Mutex<Option<Arc<dyn OtherCopies>>>,
}

#[derive(Default)]
struct Tombstones {
    set: BTreeSet<ObjectId>,
    order: VecDeque<ObjectId>,
}

/// Outcome of a change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Boot term under which the change was made.
    pub boot_term: u32,
    /// Allocated bytes of the object afterwards.
    pub allocated_bytes: u64,
}

impl ObjectStore {
    /// Opens the store, makes it on first use, and puts right what was in flight when the last process ended.
    pub async fn open(seams: Seams, config: StoreConfig) -> Result<Arc<ObjectStore>, Fault> {
        let StoreConfig { root, fs_id, replies, is_member, read_cache } = config;
        let disk = seams.disk.clone();
        let io = |e: io::Error| Fault::io(Code::OstIo, "cannot open the object store", root.clone(), &e);
        check_complete(&*disk, &root)?;
        for dir in ["objects", "quarantine"] {
            disk.create_dir_all(&format!("{root}/{dir}")).map_err(io)?;
        }
        let (boot, new_term) = boot::start(&*disk, &root, &format!("{root}/boot"))?;
        let rows_are_synced = replies::rows_are_synced(&*disk, &root).map_err(io)?;
        let fresh = new_term && !rows_are_synced;
        let (slots, mut in_flight) = SlotTable::open(&*disk, &format!("{root}/slots"), fresh)?;
        if new_term {
            // High-water marks and write intents tell what a power cut may have torn; rows may be older.
            in_flight.clear();
        }
        let was_used = boot.term > boot::FIRST_TERM || slots.was_used();
        let intents = Intents::open(&*disk, &format!("{root}/intents"))?;
        let fences = SessionFences::open(disk.clone(), &format!("{root}/fences"))?;
        let findings = Findings::open(&*disk, &format!("{root}/findings")).map_err(io)?;
        disk.sync_dir(&root).map_err(io)?;
        replies::begin(&*disk, &root, replies, &slots).map_err(io)?;
        let store = Arc::new(ObjectStore {
            table: Table::default(),
            intents,
            fences,
            space: Space::new(disk.clone(), &root)?,
            grants: Grants::new(seams.rng.next_u64(), seams.now(), was_used),
            slots,
            stats: Stats::default(),
            findings,
            dirty: Mutex::default(),
            durable_dirs: Mutex::default(),
            stopped: AtomicBool::new(false),
            writeback_hint: WritebackHint::default(),
            recent: Recent::default(),
            read_cache,
            replies,
            ended: watch::Sender::default(),
            term: AtomicU32::new(boot.term),
            boot: Mutex::new(boot),
            failed: Mutex::new(None),
            tombstones: Mutex::default(),
            marks: OnceLock::new(),
            told: AtomicU32::new(0),
            left: Mutex::new(Some(in_flight)),
            others: Mutex::new(None),
            seams,
            root,
            fs_id: AtomicU64::new(fs_id),
        });
        if !is_member {
            store.settle_left(None, None).await?;
        }
        Ok(store)
    }

    /// The boot term now.
    pub fn boot_term(&self) -> u32 {
        self.term.load(Ordering::Acquire)
    }

    /// The file system has got its id; no object is written before.
    pub fn set_fs_id(&self, fs_id: u64) {
        self.fs_id.store(fs_id, Ordering::Release);
    }

    /// Writes are served from now on.
    pub fn serving(&self) {
        self.grants.serving(self.seams.now());
    }

    /// Whether a write of `room_bytes` by a session, in an epoch of it, may use the room that is kept back.
    pub fn covers(&self, session: (SessionId, Pair), claim: Claim, room_bytes: u64) -> Result<bool, Fault> {
        let now = self.seams.now();
        Ok(self.grants.covers(session, claim, room_bytes, self.space.to_promise(now)?, now))
    }

    /// Grant of a session after a write; `spent_bytes` as in [`Grants::next`].
    pub fn next_grant(&self, session: SessionId, spent_bytes: u64) -> Result<Grant, Fault> {
        let now = self.seams.now();
        self.space.hold(self.grants.sum_bytes(), now)?;
        Ok(self.grants.next(session, spent_bytes, self.space.to_promise(now)?, now))
    }

    /// Takes a session's grant back, which the session does not need any more.
    pub fn take_grant_back(&self, session: SessionId) {
        self.grants.give_back(session);
        // At the latest with the next grant it is as large as it should be.
        drop(self.space.hold(self.grants.sum_bytes(), self.seams.now()));
    }

    /// Bytes that are promised to clients now.
    pub fn granted_bytes(&self) -> u64 {
        self.grants.sum_bytes()
    }

    /// The slot table.
    pub fn slots(&self) -> &Arc<SlotTable> {
        &self.slots
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Findings so far, oldest first.
    pub fn findings(&self) -> Vec<Finding> {
        self.findings.list()
    }

    /// Reason why the store serves no request at present; `None` if it does.
    pub fn failure(&self) -> Option<Fault> {
        self.failed.lock().clone()
    }

    /// Space as users may have it.
    pub fn space(&self) -> Result<DiskSpace, Fault> {
        self.space.users()
    }

    /// Refuses requests of these sessions with epochs below the given ones. On return that is durable, and no write
    /// of an older epoch lands any more.
    pub async fn fence_sessions(self: &Arc<Self>, fences: Vec<(SessionId, Pair)>) -> Result<(), Fault> {
        self.raise_fences(fences.clone()).await?;
        for (session, epoch) in fences {
            self.slots.end_session(session, epoch);
            self.grants.end(session, epoch);
        }
        Ok(())
    }

    /// Takes in the MDT's whole table of fences, in this version. On return that is durable, and no write of an older epoch lands any
    /// more.
    pub async fn learn_fences(
        self: &Arc<Self>,
        fences: Vec<(SessionId, Pair)>,
        version: u64,
    ) -> Result<(), Fault> {
        self.fence_sessions(fences).await?;
        if version > self.fences.version() {
            // Record the version after the sync of the table, so that no power cut keeps a version without its table.
            self.raise_fences(vec![fence::version_record(version)]).await?;
            self.fences.set_version(version);
        }
        Ok(())
    }

    async fn raise_fences(self: &Arc<Self>, fences: Vec<(SessionId, Pair)>) -> Result<(), Fault> {
        let this = self.clone();
        let done = self.seams.run_blocking(move || this.fences.raise(&fences)).await;
        done.unwrap_or_else(|| Err(Fault::new(Code::Bug).what("the job that fences sessions ended early")))
    }

    /// Version of the MDT's table of fences that is known to be here; 0 for none.
    pub fn fences_version(&self) -> u64 {
        self.fences.version()
    }

    /// Refuses a session epoch that was fenced.
    pub fn check_session(&self, session: SessionId, epoch: Pair) -> Result<(), Fault> {
        self.fences.check(session, epoch)
    }

    /// The lowest epoch that is accepted of a session: of an MDT's, its highest term so far.
    pub fn lowest_epoch(&self, session: SessionId) -> Pair {
        self.fences.lowest(session)
    }

    /// Whether an MDT comes with a term that is not known here yet.
    pub fn admits_anew(&self, session: SessionId, epoch: Pair) -> bool {
        self.fences.lowest(session) < epoch
    }

    /// Checks the session of an MDT, whose epoch is the MDT's term. The first request of a later term fences earlier ones: on return the
    /// fence is durable, requests of earlier terms are refused, and none of them is under way any more.
    pub async fn admit_mdt(self: &Arc<Self>, session: SessionId, epoch: Pair) -> Result<(), Fault> {
        if planted("ost_takes_a_deposed_mdt") {
            return Ok(());
        }
        self.fences.check(session, epoch)?;
        if self.fences.lowest(session) == epoch {
            return Ok(());
        }
        self.fence_sessions(vec![(session, epoch)]).await?;
        // A later one may have come meanwhile.
        self.fences.check(session, epoch)
    }

    /// The object, put right after a crash, ready to be locked.
    pub(crate) async fn ready(&self, id: ObjectId) -> Result<Arc<Object>, Fault> {
        if let Some(fault) = self.failure() {
            return Err(fault);
        }
        let mut object = self.look_up(id)?;
        if object.state.lock().is_read_only {
            // The file system may take writes again, so look the object up anew. The lock of all of it waits for
            // tasks that still use the old entry, and `gone` sends tasks that find the old entry later to the new
            // one.
            let all = object.locks.write(ALL).await;
            object.state.lock().gone = true;
            self.table.forget(&object);
            drop(all);
            object = self.look_up(id)?;
        }
        if object.state.lock().settled_term != self.boot_term() {
            self.settle(&object).await?;
        }
        Ok(object)
    }

    /// Like `ready`, for reading. On a failed disk an object is readable if all of it was synced: its bytes
    /// are verified.
    pub(crate) async fn readable(&self, id: ObjectId) -> Result<Arc<Object>, Fault> {
        let Some(fault) = self.failure() else { return self.ready(id).await };
        let object = self.look_up(id)?;
        let term = self.boot_term();
        let is_whole = {
            let mut state = object.state.lock();
            let is_whole = state.clean()
                && !state.gone
                && (state.settled_term == term
                    || blocks(state.len) <= state.header.synced_blocks
                        && state.header.pending_cut.is_none()
                        && self.intents.suspects(id, term).is_empty());
            if is_whole {
                // For as long as this term lasts, in which nothing is written any more.
                state.settled_term = term;
            }
            is_whole
        };
        if is_whole { Ok(object) } else { Err(fault) }
    }

    /// The object as it is, perhaps as a crash has left it.
    pub(crate) fn look_up(&self, id: ObjectId) -> Result<Arc<Object>, Fault> {
        self.table.get(&*self.seams.disk, &self.root, self.fs_id.load(Ordering::Acquire), id)
    }

    /// Whether a locked object may be used as it was found by [`ObjectStore::ready`].
    pub(crate) fn still_ready(&self, object: &Object) -> bool {
        let state = object.state.lock();
        !state.gone && state.settled_term == self.boot_term()
    }

    /// Refuses changes of an older layout or truncate epoch, and of generations that were destroyed.
    pub(crate) fn check_ticket(&self, object: &Object, ticket: &Ticket) -> Result<(), Fault> {
        let id = object.id;
        let state = object.state.lock();
        let stale_layout = ticket.layout_epoch < state.header.layout_epoch;
        let stale_truncate = ticket.truncate_epoch < state.header.truncate_epoch
            && !brindle_stdx::planted("ost_accept_old_truncate_epoch");
        let destroyed = !state.exists() && self.tombstones.lock().set.contains(&id);
        let why = match (stale_layout, stale_truncate, destroyed) {
            (false, false, false) => {
                let present = self.check_present(object.id, &state, ticket.must_exist);
                return present.inspect_err(|_| add(&self.stats.refused_writes, 1));
            }
            (true, _, _) => {
                format!("layout epoch {} is below {}", ticket.layout_epoch, state.header.layout_epoch)
            }
            (_, true, _) => {
                format!("truncate epoch {} is below {}", ticket.truncate_epoch, state.header.truncate_epoch)
            }
            _ => "the object was destroyed".to_owned(),
        };
        add(&self.stats.refused_writes, 1);
        Err(Fault::new(Code::StaleLayout).subject(format!("object {id}")).why(why))
    }

    /// Refuses an object that must exist and is missing, and one that is shorter than its synced part. Zeros must not stand in for
    /// what is lost, and a new object would hide the loss.
    pub(crate) fn check_present(&self, id: ObjectId, state: &State, must_exist: bool) -> Result<(), Fault> {
        if must_exist && !state.exists() && !brindle_stdx::planted("ost_known_objects_may_be_missing") {
            return Err(self.report_missing(id));
        }
        if state.cut_by_others() {
            add(&self.stats.damaged_blocks, 1);
            let why = format!("its file ends at {} bytes, and more were synced", state.len);
            return Err(damaged(id, why));
        }
        Ok(())
    }

    /// Keeps a missing object among the findings; returns the fault to show.
    pub(crate) fn report_missing(&self, id: ObjectId) -> Fault {
        add(&self.stats.missing_objects, 1);
        let boot_term = self.boot_term();
        let kind = FindingKind::Missing;
        self.findings.add(Finding { kind, object: id, offset: 0, stored: 0, computed: 0, boot_term });
        tracing::error!(object = %id, "an object that the MDT knows to exist is missing");
        Fault::new(Code::ObjectMissing)
            .subject(format!("object {id}"))
            .why("the MDT knows that it was on this OST's disk, and its file is not there")
            .data("nothing was returned or changed; the rest of the file is not affected")
    }

    /// An object of this name may be made again: another member has it.
    pub(crate) fn unbury(&self, id: &ObjectId) {
        let mut t = self.tombstones.lock();
        if t.set.remove(id) {
            t.order.retain(|buried| buried != id);
        }
    }

    /// Remembers that an object was destroyed.
    pub(crate) fn bury(&self, id: ObjectId) {
        let mut t = self.tombstones.lock();
        if t.set.insert(id) {
            t.order.push_back(id);
        }
        if t.order.len() > TOMBSTONES_MAX
            && let Some(oldest) = t.order.pop_front()
        {
            t.set.remove(&oldest);
        }
    }

    /// A sync failed in `term`: what was written in it and not synced may be lost, so a new boot term begins. A store whose
    /// replies wait for syncs ends; the new term is for the process that comes after this one.
    pub(crate) fn sync_failed(&self, term: u32, what: String, e: &io::Error) -> Fault {
        let mut boot = self.boot.lock();
        if boot.term == term && !self.has_ended() {
            tracing::error!(what, error = %e, term, "a sync failed: a new boot term begins");
            self.take_next_term(&mut boot);
        }
        match self.replies {
            Replies::Written if !self.is_member() => Fault::io(Code::OstIo, "cannot sync", what, e)
                .data("what was written since the last sync may be lost"),
            // If another member goes on, clients must not be told here of a loss.
            Replies::Written | Replies::Synced => self.end(what, e),
        }
    }

    /// Begins the next boot term. The store serves no request until the term is recorded: otherwise the next process
    /// would not know that changes were lost.
    fn take_next_term(&self, boot: &mut BootFile) {
        let path = format!("{}/boot", self.root);
        let recorded = match boot.after_failed_sync() {
            Some(next) => next.write(&*self.seams.disk, &path).map(|()| next),
            None => Err(io::Error::other("all terms of this boot are used up; mount the directory again")),
        };
        let mut failed = self.failed.lock();
        match recorded {
            Ok(next) => {
                self.term.store(next.term, Ordering::Release);
                *boot = next;
                *failed = None;
                add(&self.stats.boot_terms, 1);
            }
            Err(e) => {
                let fault = Fault::new(Code::OstIo)
                    .what("the disk failed: after a failed sync the new boot term cannot be recorded in")
                    .subject(path)
                    .why(e.to_string())
                    .data("what was synced before is read as far as it matches its checksums; what was written since may be lost")
                    .next("look at the disk: dmesg, and the mount of the target's directory (read-only?); the target goes on by itself when it can write again");
                if failed.is_none() {
                    tracing::error!("{fault}");
                }
                *failed = Some(fault);
            }
        }
    }

    /// Tries again to record a boot term that could not be recorded.
    pub(crate) fn record_owed_term(&self) {
        if self.replies == Replies::Written && !self.is_member() && self.failure().is_some() {
            self.take_next_term(&mut self.boot.lock());
        }
    }

    /// Counts and keeps a block with a wrong checksum; returns the fault to show.
    pub(crate) fn report_damage(&self, id: ObjectId, block: u64, stored: u32, computed: u32) -> Fault {
        add(&self.stats.damaged_blocks, 1);
        let offset = block * crate::format::BLOCK;
        let boot_term = self.boot_term();
        self.findings.add(Finding {
            kind: FindingKind::Damaged,
            object: id,
            offset,
            stored,
            computed,
            boot_term,
        });
        tracing::error!(object = %id, offset, stored, computed, "a block does not match its checksum");
        Fault::new(Code::ObjectDamaged)
            .subject(format!("object {id} at offset {offset} (4096 bytes)"))
            .why(format!("stored checksum {stored:08x}, that of the bytes read is {computed:08x}"))
            .data("the damaged bytes were not returned")
    }

    /// Path of an object's file.
    pub(crate) fn path(&self, id: &ObjectId) -> String {
        names::path(&self.root, id)
    }
}

/// Refuses a target of which a part is gone. A target without objects that never ran has no parts yet.
fn check_complete(disk: &dyn Disk, root: &str) -> Result<(), Fault> {
    let io = |e: io::Error| Fault::io(Code::OstIo, "cannot open the object store", root.to_owned(), &e);
    let list = |dir: &str| match disk.list(dir) {
        Ok(names) => Ok(Some(names)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io(e)),
    };
    let names = list(root)?.unwrap_or_default();
    let has = |name: &str| names.iter().any(|n| n == name);
    let missing: Vec<&str> = match list(&format!("{root}/objects"))? {
        None if has("boot") => vec!["objects"],
        Some(objects) if !objects.is_empty() => PARTS.into_iter().filter(|part| !has(part)).collect(),
        None | Some(_) => Vec::new(),
    };
    if missing.is_empty() {
        return Ok(());
    }
    Err(Fault::new(Code::TargetIncomplete)
        .subject(root.to_owned())
        .why(format!("it was in use before, and has no '{}' now", missing.join("', '")))
        .data("nothing was changed; what is left of the target was not touched"))
}

/// The fault of a failed write to an object.
pub(crate) fn write_fault(id: ObjectId, e: &io::Error) -> Fault {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Fault::new(Code::OstFull).why(e.to_string())
        }
        io::ErrorKind::FileTooLarge => Fault::new(Code::TooLarge)
            .subject(format!("object {id}"))
            .why("the file system below the OST cannot hold files of this size"),
        _ => Fault::io(Code::OstIo, "cannot write", format!("object {id}"), e),
    }
}
