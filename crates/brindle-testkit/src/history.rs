//! [`History`]: the requests of clients, their times and their answers; kept outside the cluster, as the witness against it.
//!
//! Called by every workload. Times are the world's own. An operation whose client died, or whose answer was a failure
//! of the system, has an unknown outcome. Invariant: an entry is ended at most once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brindle_types::{Code, Fault, Ino, ObjectId};
use parking_lot::Mutex;

use crate::sim::World;

/// Most violations that are kept.
const VIOLATIONS_MAX: usize = 20;

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Done, with the answer that was expected.
    Ok,
    /// Refused by the rules of a file system.
    Fail,
    /// The system failed, or the client died: done or not.
    Unknown,
}

/// An operation.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Node of the client.
    pub client: String,
    /// Incarnation of the client's process.
    pub life: u64,
    /// The operation.
    pub what: String,
    /// Time of the request.
    pub invoke_ns: u64,
    /// Time of the answer; `None` before it.
    pub return_ns: Option<u64>,
    /// Outcome; `None` while the operation runs.
    pub end: Option<End>,
}

/// Times of power cuts, at which unsynced data and names may be gone.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    /// Cuts by node: the earliest and the latest moment at which each can have been.
    pub by_node: BTreeMap<String, Vec<(u64, u64)>>,
}

impl Cuts {
    /// Number of cuts of one node.
    pub fn of(&self, node: &str) -> usize {
        self.by_node.get(node).map_or(0, Vec::len)
    }

    /// Number of cuts of all nodes.
    pub fn all(&self) -> usize {
        self.by_node.values().map(Vec::len).sum()
    }

    /// Whether one of `node` may lie between two moments.
    pub fn between(&self, node: &str, from_ns: u64, until_ns: u64) -> bool {
        let cuts = self.by_node.get(node).into_iter().flatten();
        cuts.clone().any(|(first, last)| *first <= until_ns && *last >= from_ns)
    }
}

/// Faults that make certain failures of operations legitimate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excuses {
    /// Whether a client was cut off from a server for longer than its lease, or may have been.
    pub silence: bool,
    /// Whether an OST lost power or failed to sync.
    pub data_loss: bool,
    /// Whether the MDT lost power.
    pub name_loss: bool,
    /// Bits flipped on some OST's disk.
    pub damage: bool,
}

#[derive(Default)]
struct Inner {
    entries: Vec<Entry>,
    cuts: Cuts,
    excuses: Excuses,
    violations: Vec<String>,
    faults: BTreeMap<&'static str, u64>,
    /// Ids that were given to written values.
    values: u64,
    /// Inode numbers of files that were made, and as what.
    issued: BTreeMap<Ino, String>,
    /// Times at which a life of a client was known to have ended, or to have lost its session.
    ends: BTreeMap<(String, u64), Vec<u64>>,
    /// Blocks of objects in which bits were flipped.
    rotten: BTreeSet<(ObjectId, u64)>,
}

/// The history of one run. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct History {
    world: World,
    inner: Arc<Mutex<Inner>>,
}

/// Place of an entry.
pub type EntryId = usize;

impl History {
    /// An empty one.
    pub fn new(world: World) -> History {
        History { world, inner: Arc::default() }
    }

    /// The world's time.
    pub fn now_ns(&self) -> u64 {
        self.world.now().0
    }

    /// Notes that an operation begins.
    pub fn begin(&self, client: &str, life: u64, what: String) -> EntryId {
        let invoke_ns = self.now_ns();
        let mut inner = self.inner.lock();
        let client = client.to_owned();
        inner.entries.push(Entry { client, life, what, invoke_ns, return_ns: None, end: None });
        inner.entries.len() - 1
    }

    /// Notes how it ended.
    pub fn end(&self, id: EntryId, end: End) {
        let now_ns = self.now_ns();
        let entry = &mut self.inner.lock().entries[id];
        assert!(entry.end.is_none(), "an operation ends once: {entry:?}");
        entry.return_ns = Some(now_ns);
        entry.end = Some(end);
    }

    /// Runs an operation with its two notes, and checks that a failure has a reason.
    pub async fn note<T>(
        &self,
        client: &str,
        life: u64,
        what: String,
        op: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let id = self.begin(client, life, what);
        let done = op.await;
        self.end(
            id,
            match &done {
                Ok(_) => End::Ok,
                Err(fault) if crate::fs::is_posix(fault.code) => End::Fail,
                Err(_) => End::Unknown,
            },
        );
        if let Err(fault) = &done {
            self.check_excuse(id, fault);
            self.failed(client, life, fault);
        }
        done
    }

    /// Notes that acknowledged, unsent bytes of a client may be lost: it was killed, or a flush or an fsync
    /// has said so.
    pub fn unsent(&self, client: &str, life: u64) {
        let now_ns = self.now_ns();
        self.inner.lock().ends.entry((client.to_owned(), life)).or_default().push(now_ns);
    }

    /// An operation failed: if that was for want of its session, or tells that a disk has refused what was buffered, that is lost.
    pub fn failed(&self, client: &str, life: u64, fault: &Fault) {
        if matches!(fault.code, Code::SessionLost | Code::StaleSession | Code::Fenced | Code::OstIo) {
            self.unsent(client, life);
        }
    }

    /// Whether what a client had acknowledged at `since_ns`, and not sent, may be lost with it or with its session.
    pub fn buffer_lost(&self, client: &str, life: u64, since_ns: u64) -> bool {
        let inner = self.inner.lock();
        let ends = inner.ends.get(&(client.to_owned(), life));
        ends.is_some_and(|ends| ends.iter().any(|end_ns| *end_ns >= since_ns))
    }

    /// A failure of the system that no injected fault explains is a violation.
    pub fn check_excuse(&self, id: EntryId, fault: &Fault) {
        if crate::fs::is_posix(fault.code) {
            return;
        }
        let (excuses, entry) = {
            let inner = self.inner.lock();
            (inner.excuses, inner.entries[id].clone())
        };
        let excused = match fault.code {
            Code::SessionLost | Code::OutcomeUnknown | Code::Fenced | Code::StaleSession => excuses.silence,
            // A small file's bytes lie in the MDT.
            Code::DataLost => excuses.data_loss || excuses.name_loss,
            Code::TermChanged | Code::OstIo => excuses.data_loss,
            Code::HandleStale => excuses.name_loss,
            Code::ObjectDamaged => excuses.damage,
            _ => false,
        };
        if !excused {
            self.violation(format!(
                "I9: {} on {} failed without a reason: {fault:?}",
                entry.what, entry.client
            ));
        }
    }

    /// A fresh value to write.
    pub fn value(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.values += 1;
        inner.values
    }

    /// Notes that a new file was given a number, which no other file may ever be given.
    pub fn issued(&self, ino: Ino, name: &str) {
        let before = self.inner.lock().issued.insert(ino, name.to_owned());
        if let Some(before) = before {
            self.violation(format!(
                "I8: {name} was made as {ino:?}, the number that {before} had been given"
            ));
        }
    }

    /// Notes that bits were flipped in a block of an object.
    pub fn rot(&self, object: ObjectId, block: u64) {
        let mut inner = self.inner.lock();
        inner.excuses.damage = true;
        inner.rotten.insert((object, block));
    }

    /// Whether bits were flipped anywhere.
    pub fn has_rot(&self) -> bool {
        self.inner.lock().excuses.damage
    }

    /// Whether bits were flipped in a block of an object.
    pub fn is_rotten(&self, object: ObjectId, block: u64) -> bool {
        self.inner.lock().rotten.contains(&(object, block))
    }

    /// Notes that something is wrong.
    pub fn violation(&self, text: String) {
        let now_ns = self.now_ns();
        let mut inner = self.inner.lock();
        if inner.violations.len() < VIOLATIONS_MAX {
            inner.violations.push(format!("at {:.3} s: {text}", now_ns as f64 / 1e9));
        }
    }

    /// Violations so far.
    pub fn violations(&self) -> Vec<String> {
        self.inner.lock().violations.clone()
    }

    /// Notes a power cut that was between two moments.
    pub fn cut(&self, node: &str, first_ns: u64, last_ns: u64) {
        let mut inner = self.inner.lock();
        inner.cuts.by_node.entry(node.to_owned()).or_default().push((first_ns, last_ns));
        inner.excuses.silence = true;
        if node.starts_with("ost") {
            inner.excuses.data_loss = true;
        } else if node.starts_with("mdt") {
            inner.excuses.name_loss = true;
        }
    }

    /// Changes what excuses failures.
    pub fn excuse(&self, change: impl FnOnce(&mut Excuses)) {
        change(&mut self.inner.lock().excuses);
    }

    /// Power cuts so far.
    pub fn cuts(&self) -> Cuts {
        self.inner.lock().cuts.clone()
    }

    /// Number of power cuts so far.
    pub fn cut_count(&self) -> usize {
        self.inner.lock().cuts.all()
    }

    /// Counts an injected fault.
    pub fn fault(&self, kind: &'static str) {
        *self.inner.lock().faults.entry(kind).or_default() += 1;
    }

    /// Injected faults by kind.
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.inner.lock().faults.clone()
    }

    /// Number of operations so far.
    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    /// Whether nothing was asked yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries that have not ended.
    pub fn pending(&self) -> Vec<Entry> {
        self.inner.lock().entries.iter().filter(|e| e.end.is_none()).cloned().collect()
    }

    /// The last entries as text.
    pub fn tail(&self, count: usize) -> Vec<String> {
        let inner = self.inner.lock();
        let from = inner.entries.len().saturating_sub(count);
        inner.entries[from..].iter().map(Entry::line).collect()
    }
}

impl Entry {
    fn line(&self) -> String {
        let seconds = |ns: u64| format!("{:10.6}", ns as f64 / 1e9);
        let until = self.return_ns.map_or_else(|| "         -".to_owned(), seconds);
        let end = self.end.map_or_else(|| "pending".to_owned(), |end| format!("{end:?}"));
        let text =
            format!("{} {until} {}.{} {}: {end}", seconds(self.invoke_ns), self.client, self.life, self.what);
        text.chars().take(200).collect()
    }
}
