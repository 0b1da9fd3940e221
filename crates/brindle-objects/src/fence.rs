//! Session fences: the lowest epoch that is accepted of each session. An append log, rewritten when it grows.
//!
//! Fences of objects (layout and truncate epochs) are in the objects' headers.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use brindle_stdx::codec::Reader;
use brindle_stdx::disk::{OpenHow, read_file, replace_file};
use brindle_stdx::{Disk, DiskFile, planted};
use brindle_types::{Code, Fault, Pair, SessionId};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::format::{put_pair, seal, take_pair, unseal};

const MAGIC: u32 = 0x4246_4e43; // BFNC
const RECORD: usize = 32;
/// Under this id, which no session has, lies the version of the MDT's table that everything up to here is from.
const VERSION: SessionId = SessionId(0);
/// Most sessions in the table; beyond it the clients' fences of the oldest epochs are forgotten.
const FENCES_MAX: usize = 1 << 18;
/// Records beyond twice the table's size that may gather before the log is rewritten.
const SLACK_RECORDS: usize = 1024;

/// The table of fenced sessions.
pub struct SessionFences {
    disk: Arc<dyn Disk>,
    path: String,
    inner: Mutex<Inner>,
    /// Changes of objects hold a read lock, so that a new fence waits for those that began before it.
    changing: RwLock<()>,
    /// Fences that wait for changes of objects under way.
    raising: AtomicUsize,
    /// Version of the MDT's table that is in force here.
    version: AtomicU64,
}

/// Record of the version of a table, written once the table itself is durable.
pub fn version_record(version: u64) -> (SessionId, Pair) {
    (VERSION, Pair { term: (version >> 32) as u32, counter: version & u64::from(u32::MAX) })
}

struct Inner {
    file: Arc<dyn DiskFile>,
    records: usize,
    lowest: BTreeMap<SessionId, Pair>,
    /// Recording failed, so that `lowest` knows more than the file.
    owed: bool,
}

fn encode(session: SessionId, epoch: Pair) -> [u8; RECORD] {
    let mut body = Vec::with_capacity(RECORD);
    body.extend(MAGIC.to_be_bytes());
    body.extend(session.0.to_be_bytes());
    put_pair(&mut body, epoch);
    seal(&body)
}

fn decode(record: &[u8]) -> Option<(SessionId, Pair)> {
    let mut r = Reader::new(unseal(record)?);
    (r.u32()? == MAGIC).then_some(())?;
    Some((SessionId(r.u64()?), take_pair(&mut r)?))
}

impl SessionFences {
    /// Opens the table, or makes it.
    pub fn open(disk: Arc<dyn Disk>, path: &str) -> Result<SessionFences, Fault> {
        let io = |e: io::Error| Fault::io(Code::OstIo, "cannot open the fences in", path.to_owned(), &e);
        let bytes = match read_file(&*disk, path, FENCES_MAX * 4 * RECORD) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                replace_file(&*disk, path, &[]).map_err(io)?;
                Vec::new()
            }
            other => other.map_err(io)?,
        };
        let mut lowest = BTreeMap::new();
        for record in bytes.chunks(RECORD) {
            match decode(record) {
                Some((session, epoch)) => raise(&mut lowest, session, epoch),
                // Zeros: a power cut took a record that was never acknowledged.
                None if record.iter().all(|b| *b == 0) => {}
                None => return Err(damaged(path)),
            }
        }
        let records = bytes.len().div_ceil(RECORD);
        let recorded = lowest.get(&VERSION).copied().unwrap_or_default();
        let version = u64::from(recorded.term) << 32 | recorded.counter;
        let file = disk.open(path, OpenHow::Existing).map_err(io)?;
        Ok(SessionFences {
            disk,
            path: path.to_owned(),
            inner: Mutex::new(Inner { file, records, lowest, owed: false }),
            changing: RwLock::new(()),
            raising: AtomicUsize::new(0),
            version: AtomicU64::new(version),
        })
    }

    /// Refuses requests of these sessions with an epoch below the given one, from now on. On return the fence is durable, and
    /// no change of an older epoch is under way any more. Blocks for a sync, and until those changes end.
    pub fn raise(&self, fences: &[(SessionId, Pair)]) -> Result<(), Fault> {
        let done = self.record(fences);
        // The wait is needed even if no fence is newer: a repeated request may come while the first one still
        // waits.
        self.raising.fetch_add(1, Ordering::AcqRel);
        drop(self.changing.write());
        self.raising.fetch_sub(1, Ordering::AcqRel);
        done.map_err(|e| Fault::io(Code::OstIo, "cannot record a fence in", self.path.clone(), &e))
    }

    /// Version of the MDT's table that is in force here; 0 for none.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A table of this version was raised.
    pub fn set_version(&self, version: u64) {
        self.version.fetch_max(version, Ordering::AcqRel);
    }

    /// Takes in and records the fences that are newer.
    fn record(&self, fences: &[(SessionId, Pair)]) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let newer = |(s, e): &&(SessionId, Pair)| inner.lowest.get(s).is_none_or(|have| have < e);
        let fences: Vec<(SessionId, Pair)> = fences.iter().filter(newer).copied().collect();
        if fences.is_empty() && !inner.owed {
            return Ok(());
        }
        fences.iter().for_each(|(session, epoch)| raise(&mut inner.lowest, *session, *epoch));
        let done = if inner.owed || inner.records + fences.len() > 2 * inner.lowest.len() + SLACK_RECORDS {
            self.rewrite(&mut inner)
        } else {
            append(&mut inner, &fences)
        };
        inner.owed = done.is_err();
        done
    }

    /// The right to change an object; a fence raised meanwhile waits for it.
    pub fn enter(&self, session: SessionId, epoch: Pair) -> Result<RwLockReadGuard<'_, ()>, Fault> {
        let guard = self.changing.read();
        self.check(session, epoch)?;
        Ok(guard)
    }

    /// Whether [`SessionFences::enter`] may have to wait, for as long as a device takes for the writes that came before a fence.
    pub fn may_wait(&self) -> bool {
        self.raising.load(Ordering::Acquire) > 0
    }

    fn rewrite(&self, inner: &mut Inner) -> io::Result<()> {
        let all: Vec<u8> = inner.lowest.iter().flat_map(|(s, e)| encode(*s, *e)).collect();
        replace_file(&*self.disk, &self.path, &all)?;
        inner.file = self.disk.open(&self.path, OpenHow::Existing)?;
        inner.records = inner.lowest.len();
        Ok(())
    }

    /// Lowest epoch accepted of a session.
    pub fn lowest(&self, session: SessionId) -> Pair {
        self.inner.lock().lowest.get(&session).copied().unwrap_or_default()
    }

    /// Refuses an old epoch.
    pub fn check(&self, session: SessionId, epoch: Pair) -> Result<(), Fault> {
        let lowest = self.lowest(session);
        if epoch >= lowest || planted("ost_accept_old_session_epoch") {
            return Ok(());
        }
        Err(Fault::new(Code::Fenced).why(format!("session epoch {epoch} is below {lowest}")))
    }

    /// The table, for fsck.
    pub fn list(&self) -> Vec<(SessionId, Pair)> {
        self.inner.lock().lowest.iter().map(|(s, e)| (*s, *e)).collect()
    }
}

fn damaged(path: &str) -> Fault {
    Fault::new(Code::BadSuperblock)
        .what("cannot serve: the table of fenced sessions is damaged:")
        .subject(path.to_owned())
        .data("objects are not touched")
        .next("unmount all clients, remove the file, and start again")
}

fn append(inner: &mut Inner, fences: &[(SessionId, Pair)]) -> io::Result<()> {
    let at = inner.records * RECORD;
    let bytes: Vec<u8> = fences.iter().flat_map(|(s, e)| encode(*s, *e)).collect();
    inner.file.write_at(&bytes, at as u64)?;
    inner.file.sync_data()?;
    inner.records += fences.len();
    Ok(())
}

fn raise(lowest: &mut BTreeMap<SessionId, Pair>, session: SessionId, epoch: Pair) {
    let entry = lowest.entry(session).or_default();
    *entry = (*entry).max(epoch);
    let is_of_client = |s: &&SessionId| **s != VERSION && !s.is_of_mdt();
    if lowest.len() > FENCES_MAX
        && let Some(oldest) = lowest.keys().filter(is_of_client).min_by_key(|s| (lowest[s], **s)).copied()
    {
        lowest.remove(&oldest);
    }
}

/// Whether bytes are a record of this table, for tests with garbage.
#[cfg(test)]
pub(crate) fn decodes(record: &[u8]) -> bool {
    decode(record).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::tests::new_disk;
    use brindle_sim::DiskOp;

    #[test]
    fn golden_record() {
        let bytes = encode(SessionId(0x11), Pair { term: 2, counter: 3 });
        assert_eq!(crate::hex(&bytes[..24]), "42464e430000000000000011000000020000000000000003");
        assert_eq!(decode(&bytes), Some((SessionId(0x11), Pair { term: 2, counter: 3 })));
    }

    #[test]
    fn a_fence_that_could_not_be_recorded_is_recorded_by_the_next_attempt() {
        let disk = new_disk(1);
        let epoch = Pair { term: 1, counter: 5 };
        disk.put_dir("/t");
        let fences = SessionFences::open(Arc::new(disk.clone()), "/t/fences").expect("open");
        disk.fail_next(DiskOp::SyncFile, 1);
        fences.raise(&[(SessionId(1), epoch)]).expect_err("the sync failed");
        fences.raise(&[(SessionId(1), epoch)]).expect("recorded");
        let disk = disk.power_cut();
        let fences = SessionFences::open(Arc::new(disk.clone()), "/t/fences").expect("open");
        assert_eq!(fences.lowest(SessionId(1)), epoch);
    }

    /// Runs until `there`; a thread on the way to it needs no other's help.
    fn until(there: impl Fn() -> bool) {
        while !there() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_fence_that_is_raised_again_waits_for_the_changes_that_the_first_waits_for() {
        let disk = new_disk(1);
        let pair = |n| Pair { term: 1, counter: n };
        disk.put_dir("/t");
        let fences = SessionFences::open(Arc::new(disk), "/t/fences").expect("open");
        let change_ended = AtomicBool::new(false);
        let raise = || {
            fences.raise(&[(SessionId(1), pair(2))]).expect("raised");
            change_ended.load(Ordering::SeqCst)
        };
        let change = fences.enter(SessionId(1), pair(1)).expect("not fenced yet");
        std::thread::scope(|threads| {
            let first = threads.spawn(raise);
            until(|| fences.raising.load(Ordering::SeqCst) == 1);
            let again = threads.spawn(raise);
            until(|| fences.raising.load(Ordering::SeqCst) == 2 || again.is_finished());
            change_ended.store(true, Ordering::SeqCst);
            drop(change);
            assert!(first.join().expect("raised"), "the first waits");
            assert!(again.join().expect("raised"), "and so does the second");
        });
    }

    #[test]
    fn fences_survive_power_cuts_and_rewrites_and_never_go_back() {
        let disk = new_disk(1);
        let pair = |n| Pair { term: 1, counter: n };
        disk.put_dir("/t");
        let fences = SessionFences::open(Arc::new(disk.clone()), "/t/fences").expect("open");
        for n in 1..3000 {
            fences.raise(&[(SessionId(n % 7), pair(n))]).expect("raised");
        }
        fences.raise(&[(SessionId(3), pair(1))]).expect("an old one changes nothing");
        let disk = disk.power_cut();
        let fences = SessionFences::open(Arc::new(disk.clone()), "/t/fences").expect("open");
        let newest: Vec<_> = (0..7).map(|s| fences.lowest(SessionId(s)).counter).collect();
        assert_eq!(newest, [2996, 2997, 2998, 2999, 2993, 2994, 2995]);
        assert!(disk.stat("/t/fences").expect("stat").len_bytes < 2000 * RECORD as u64);
        assert_eq!(fences.check(SessionId(3), pair(2998)).expect_err("old").code, Code::Fenced);
        fences.check(SessionId(3), pair(2999)).expect("current");
        fences.check(SessionId(9), Pair::ZERO).expect("never fenced");
    }
}
