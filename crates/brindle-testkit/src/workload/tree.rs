//! Random POSIX operations of one client in a subtree of its own, against the exact model.
//!
//! A known answer must be the model's. After an unknown outcome, the death of the client or a power cut the tree is read:
//! it must be one of the states that the contract allows, and the model goes on from there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use brindle_types::{Code, Ino};
use tokio::sync::Mutex;

use super::Life;
use crate::fs::{ClientFs, InodeMap};
use crate::history::End;
use crate::model::{Content, Generator, Model, Node, Op, Outcome};

/// Largest file.
const SIZE_MAX: u64 = 400_000;
/// Longest pause between two operations.
const PAUSE_MS: u64 = 160;
/// Longest span of changes of names that a power cut may take, in nanoseconds.
const NAMES_LOST_MAX_NS: u64 = 1_000_000_000;
/// States older than this are not needed to explain a power cut.
const STATES_KEPT_NS: u64 = 3_000_000_000;
/// Longest time for which a dead client's requests can still be carried out: its lease, and some time to end
/// the session.
const LAST_EFFECT_MS: u64 = 8_000;

/// A state of the tree and when the operation that led to it was answered.
struct State {
    model: Model,
    since_ns: u64,
}

/// The states of the last seconds, the latest last.
#[derive(Default)]
struct States(VecDeque<State>);

impl States {
    /// The tree is in this state, at the latest since `since_ns`.
    fn reached(&mut self, model: &Model, since_ns: u64) {
        self.0.push_back(State { model: model.clone(), since_ns });
        while self.0.len() > 1 && self.0[1].since_ns + STATES_KEPT_NS < since_ns {
            self.0.pop_front();
        }
    }

    /// States that a power cut of the MDT may leave if it took nothing older than `safe_ns`, the latest
    /// first.
    fn left_by_cut(&self, safe_ns: u64) -> impl Iterator<Item = &Model> {
        let surely = self.0.iter().rposition(|s| s.since_ns < safe_ns).unwrap_or(0);
        self.0.iter().skip(surely).rev().map(|s| &s.model)
    }

    /// Notes that all changes up to now survive a power cut.
    fn durable(&mut self) {
        self.0.clear();
    }
}

/// A state that the tree may be in, and the one before an operation of unknown outcome that led to it.
struct Candidate {
    before: Model,
    model: Model,
}

/// Knowledge about one client's subtree; outlives the client.
pub struct Tree {
    model: Model,
    generator: Generator,
    inodes: InodeMap,
    /// States of the last seconds, of which a power cut of the MDT may leave any.
    states: States,
    pending: Option<Op>,
    /// Files with unsynced contents, and the handles (0: closed) through which they were written.
    dirty: BTreeMap<Ino, BTreeSet<u64>>,
    /// Files of which a client may have had bytes in its buffer when it died or lost its session.
    unsent: BTreeSet<Ino>,
    /// Time of the last look at the tree.
    resolved_ns: u64,
    cuts_seen: usize,
    mdt_cuts_seen: usize,
    broken: bool,
}

/// Difference between a tree and its model.
enum Differs {
    /// Names, links, modes, attributes.
    Names(String),
    /// Only contents of files: path, inode as seen, inode of the model.
    Contents(Vec<(String, u64, u64)>),
}

type Snapshot = BTreeMap<String, Node>;

impl Tree {
    /// An empty subtree; operations are drawn from `seed`.
    pub fn new(seed: u64) -> Arc<Mutex<Tree>> {
        let tree = Tree {
            model: Model::default(),
            generator: Generator::new(seed, SIZE_MAX),
            inodes: InodeMap::default(),
            states: States::default(),
            pending: None,
            dirty: BTreeMap::new(),
            unsent: BTreeSet::new(),
            resolved_ns: 0,
            cuts_seen: 0,
            mdt_cuts_seen: 0,
            broken: false,
        };
        Arc::new(Mutex::new(tree))
    }

    /// Works until it is told to stop, then looks a last time.
    pub async fn run(tree: Arc<Mutex<Tree>>, life: Life) {
        let mut tree = tree.lock().await;
        let base = life.find(&format!("t{}", life.index)).await;
        let fs = ClientFs::new(life.client.clone(), base);
        if life.number > 1 {
            if tree.pending.is_some() {
                life.node.seams.sleep_ms(LAST_EFFECT_MS).await;
            }
            tree.note_unsent();
            tree.forget_handles();
            tree.resolve(&life, &fs).await;
        }
        while !life.stopping() && !tree.broken {
            life.pause(PAUSE_MS).await;
            if tree.cuts_seen != life.history.cut_count() {
                tree.resolve(&life, &fs).await;
            }
            tree.step(&life, &fs).await;
        }
        if !tree.broken {
            tree.resolve(&life, &fs).await;
        }
    }

    async fn step(&mut self, life: &Life, fs: &ClientFs) {
        if self.states.0.is_empty() {
            self.states.reached(&self.model, life.history.now_ns());
        }
        let op = self.generator.next_op(&self.model, 0);
        let mut after = self.model.clone();
        let expected = after.apply(&op);
        self.pending = Some(op.clone());
        let id = life.history.begin(&life.node.name, life.number, format!("{op:?}"));
        let done = fs.apply(&op).await;
        life.history.end(
            id,
            match &done {
                Ok(Outcome::Errno(_)) => End::Fail,
                Ok(_) => End::Ok,
                Err(_) => End::Unknown,
            },
        );
        for (ino, handle) in fs.touched() {
            self.dirty.entry(ino).or_default().insert(handle);
        }
        match done {
            // A power cut meanwhile may have taken the change, whatever the answer was.
            Ok(_) if self.cuts_seen != life.history.cut_count() => self.resolve(life, fs).await,
            Ok(got) if self.inodes.same(&expected, &got) => self.accept(life, fs, op, after),
            // A handle knows that its OST has refused what was in the buffer; its program is told when it syncs or closes.
            Ok(_) if fs.has_lost().await => self.resolve(life, fs).await,
            Ok(got) => {
                self.broken = true;
                life.history.violation(format!(
                    "I3: {} {op:?} answered {} instead of {}",
                    life.node.name,
                    short(&got),
                    short(&expected)
                ));
            }
            Err(fault) => {
                life.history.check_excuse(id, &fault);
                life.history.failed(&life.node.name, life.number, &fault);
                self.resolve(life, fs).await;
            }
        }
    }

    fn accept(&mut self, life: &Life, fs: &ClientFs, op: Op, after: Model) {
        let now_ns = life.history.now_ns();
        self.pending = None;
        self.model = after;
        match op {
            Op::Fsync { slot } => {
                if let Some((ino, _)) = fs.slot_file(slot) {
                    self.dirty.remove(&ino);
                    self.states.durable();
                }
            }
            Op::Close { .. } | Op::Open { .. } | Op::Tmpfile { .. } => self.forget_closed(fs),
            _ => {}
        }
        self.states.reached(&self.model, now_ns);
    }

    /// Forgets handles that are closed now: their writes can be lost without a message.
    fn forget_closed(&mut self, fs: &ClientFs) {
        let open: BTreeSet<u64> = (0..crate::model::SLOTS)
            .filter_map(|slot| fs.slot_file(slot))
            .map(|(_, handle)| handle)
            .collect();
        for handles in self.dirty.values_mut() {
            *handles = handles.iter().map(|h| if open.contains(h) { *h } else { 0 }).collect();
        }
    }

    /// Notes that writes through open handles may not have left the client.
    fn note_unsent(&mut self) {
        let open = self.dirty.iter().filter(|(_, handles)| handles.iter().any(|h| *h != 0));
        self.unsent.extend(open.map(|(ino, _)| *ino));
    }

    fn forget_handles(&mut self) {
        for handles in self.dirty.values_mut() {
            *handles = BTreeSet::from([0]);
        }
    }

    /// Looks at the tree, finds the allowed state that it is in, and goes on from there.
    async fn resolve(&mut self, life: &Life, fs: &ClientFs) {
        let id = life.history.begin(&life.node.name, life.number, "sync and close everything".into());
        let (synced, faults) = fs.sync_all().await;
        for (ino, handle) in synced {
            if let Some(handles) = self.dirty.get_mut(&ino) {
                handles.remove(&handle);
            }
        }
        self.dirty.retain(|_, handles| !handles.is_empty());
        if !faults.is_empty() {
            life.history.unsent(&life.node.name, life.number);
        }
        if life.history.buffer_lost(&life.node.name, life.number, self.resolved_ns) {
            // Files that could not be synced.
            self.note_unsent();
        }
        self.resolved_ns = life.history.now_ns();
        fs.close_all().await;
        life.history.end(id, End::Ok);
        loop {
            let cuts = life.history.cut_count();
            let mdt_cuts = life.history.cuts().of("mdt0");
            let id = life.history.begin(&life.node.name, life.number, "look at the tree".into());
            let seen = fs.snapshot().await;
            life.history.end(id, if seen.is_ok() { End::Ok } else { End::Unknown });
            match seen {
                Ok(seen) if cuts == life.history.cut_count() => {
                    self.settle(life, &seen, mdt_cuts);
                    self.cuts_seen = cuts;
                    self.mdt_cuts_seen = mdt_cuts;
                    return;
                }
                Ok(_) => {}
                Err(fault) => {
                    tracing::info!(client = %life.node.name, "cannot look at the tree: {fault:?}");
                    life.history.check_excuse(id, &fault);
                    self.broken |= fault.code == Code::Shutdown;
                }
            }
            if self.broken {
                return;
            }
            life.node.seams.sleep_ms(100).await;
        }
    }

    fn settle(&mut self, life: &Life, seen: &Snapshot, mdt_cuts: usize) {
        let candidates = self.candidates(life, mdt_cuts);
        let cut = self.cuts_seen != life.history.cut_count();
        let mut reasons: Vec<String> = Vec::new();
        for Candidate { before, mut model } in candidates {
            let expected = model.snapshot();
            match differs(&expected, seen) {
                Some(Differs::Names(text)) => reasons.push(text),
                Some(Differs::Contents(files)) => {
                    let bad = files
                        .iter()
                        .find(|(path, real, _)| !self.may_differ(cut, path, *real, &expected, seen));
                    if let Some((path, ..)) = bad {
                        let difference = first_difference(&expected[path], &seen[path]);
                        reasons.push(format!("contents of {path}: {difference}"));
                        continue;
                    }
                    for (path, _, ino) in files {
                        if let Content::File(bytes) = &seen[&path].content {
                            model.set_content(ino, bytes.clone());
                        }
                    }
                    return self.go_on_from(life, &before, model, seen, mdt_cuts);
                }
                None => return self.go_on_from(life, &before, model, seen, mdt_cuts),
            }
        }
        self.broken = true;
        let what = if self.pending.is_some() { " (one operation of unknown outcome)" } else { "" };
        // From the latest state to the oldest; states that differ from what is seen in the same way count as one.
        reasons.dedup();
        let why = reasons.join("; or ");
        life.history.violation(format!("I3: tree of c{} is in no allowed state{what}: {why}", life.index));
    }

    /// The states that the tree may be in, the latest first. No state has open files.
    fn candidates(&self, life: &Life, mdt_cuts: usize) -> Vec<Candidate> {
        let mut states = vec![self.model.clone()];
        if mdt_cuts != self.mdt_cuts_seen {
            let cuts = life.history.cuts();
            let first_ns = cuts.by_node["mdt0"][self.mdt_cuts_seen..].iter().map(|(first, _)| *first).min();
            let safe_ns = first_ns.unwrap_or(0).saturating_sub(NAMES_LOST_MAX_NS);
            states.extend(self.states.left_by_cut(safe_ns).cloned());
        }
        let mut candidates = Vec::new();
        for model in states {
            if let Some(op) = &self.pending {
                let mut after = model.clone();
                after.apply(op);
                candidates.push(Candidate { before: model.clone(), model: after });
            }
            candidates.push(Candidate { before: model.clone(), model });
        }
        for candidate in &mut candidates {
            candidate.before.close_all();
            candidate.model.close_all();
        }
        candidates
    }

    /// Whether a file may have other contents than in the state: unsynced ones after a power cut, the latest ones although
    /// names were lost (DESIGN section 6: a power cut of the MDT takes changes of names; the OSTs have kept the bytes, and
    /// an fsync since has made them durable), or a part of an operation whose outcome is not known.
    fn may_differ(&self, cut: bool, path: &str, real: u64, expected: &Snapshot, seen: &Snapshot) -> bool {
        if cut && self.dirty.contains_key(&Ino(real)) || self.unsent.contains(&Ino(real)) {
            return true;
        }
        if cut && self.is_latest(&expected[path], &seen[path]) {
            return true;
        }
        let Some(op) = &self.pending else { return false };
        let (mut before, mut after) = (self.model.clone(), self.model.clone());
        after.apply(op);
        before.close_all();
        after.close_all();
        let (before, after) = (before.snapshot(), after.snapshot());
        let same_file = |n: &&Node| n.ino == expected[path].ino;
        let (Some(before), Some(after)) = (before.values().find(same_file), after.values().find(same_file))
        else {
            return false;
        };
        is_between(before, after, &seen[path])
    }

    /// Whether a file has the contents that it had last: also one that had lost its name, and was written until it was
    /// closed. Where the cut took the loss of the name, the file is there again with all that its OSTs hold.
    fn is_latest(&self, expected: &Node, seen: &Node) -> bool {
        let states = std::iter::once(&self.model).chain(self.states.0.iter().rev().map(|s| &s.model));
        states.flat_map(|model| model.content(expected.ino)).next().is_some_and(|last| last == seen.content)
    }

    /// The tree is in a state that was found to be allowed. A state left by a power cut of the MDT is
    /// durable. A look makes nothing durable: without a cut, the next one may still take what was changed in
    /// the second before it (statement 13 of `docs/semantics.md`), an operation included that was only now
    /// found to have been done.
    fn go_on_from(&mut self, life: &Life, before: &Model, model: Model, seen: &Snapshot, mdt_cuts: usize) {
        self.inodes = InodeMap::of(&model.snapshot(), seen);
        let now_ns = life.history.now_ns();
        if mdt_cuts != self.mdt_cuts_seen {
            self.states.durable();
        }
        self.states.reached(before, now_ns);
        self.states.reached(&model, now_ns);
        self.model = model;
        self.pending = None;
        self.unsent.clear();
        self.forget_handles();
    }
}

/// Difference between a tree as seen and a state; inode numbers must map one to one.
fn differs(expected: &Snapshot, seen: &Snapshot) -> Option<Differs> {
    if let Some(path) = expected.keys().find(|p| !seen.contains_key(*p)) {
        return Some(Differs::Names(format!("{path} is missing")));
    }
    if let Some(path) = seen.keys().find(|p| !expected.contains_key(*p)) {
        return Some(Differs::Names(format!("{path} should not be there")));
    }
    let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
    let mut contents = Vec::new();
    for (path, e) in expected {
        let s = &seen[path];
        let linked =
            *there.entry(e.ino).or_insert(s.ino) == s.ino && *back.entry(s.ino).or_insert(e.ino) == e.ino;
        if !linked || (e.mode, e.nlink, &e.xattrs) != (s.mode, s.nlink, &s.xattrs) {
            let of =
                |n: &Node| format!("mode {:o}, {} links, attributes {:?}", n.mode, n.nlink, n.xattrs.keys());
            return Some(Differs::Names(format!("{path}: {} instead of {}", of(s), of(e))));
        }
        match (&e.content, &s.content) {
            (a, b) if a == b => {}
            (Content::File(_), Content::File(_)) => contents.push((path.clone(), s.ino, e.ino)),
            _ => return Some(Differs::Names(format!("{path}: another target"))),
        }
    }
    (!contents.is_empty()).then_some(Differs::Contents(contents))
}

/// Whether each byte is of one of two states, and the length between theirs.
fn is_between(before: &Node, after: &Node, seen: &Node) -> bool {
    let (Content::File(a), Content::File(b), Content::File(s)) =
        (&before.content, &after.content, &seen.content)
    else {
        return false;
    };
    let byte = |bytes: &[u8], i: usize| bytes.get(i).copied().unwrap_or(0);
    let length = a.len().min(b.len())..=a.len().max(b.len());
    length.contains(&s.len()) && (0..s.len()).all(|i| s[i] == byte(a, i) || s[i] == byte(b, i))
}

fn first_difference(expected: &Node, seen: &Node) -> String {
    let (Content::File(e), Content::File(s)) = (&expected.content, &seen.content) else {
        return String::new();
    };
    let at = (0..e.len().max(s.len())).find(|i| e.get(*i) != s.get(*i)).unwrap_or(0);
    let (e_at, s_at) = (e.get(at), s.get(at));
    format!("{} bytes instead of {}; first at {at}: {s_at:?} instead of {e_at:?}", s.len(), e.len())
}

/// An outcome without its bulk.
fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Bytes(bytes) => format!("{} bytes with crc {:08x}", bytes.len(), brindle_stdx::crc(bytes)),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::How;

    const SECOND: u64 = NAMES_LOST_MAX_NS;

    fn made(names: &[&str]) -> Model {
        let mut model = Model::default();
        for name in names {
            model.apply(&Op::Mkdir { path: (*name).to_owned(), mode: 0o755 });
        }
        model
    }

    fn left(states: &States, cut_ns: u64) -> Vec<usize> {
        states.left_by_cut(cut_ns - SECOND).map(|model| model.clone().snapshot().len()).collect()
    }

    #[test]
    fn a_cut_takes_what_was_changed_in_the_second_before_it_and_nothing_else() {
        let mut states = States::default();
        states.reached(&made(&[]), 10 * SECOND);
        states.reached(&made(&["a"]), 11 * SECOND);
        states.reached(&made(&["a", "b"]), 12 * SECOND);
        // A look.
        states.reached(&made(&["a", "b"]), 12 * SECOND + SECOND / 2);
        assert_eq!(left(&states, 12 * SECOND + SECOND / 2 + 1), [3, 3, 2], "b is not a second old");
        assert_eq!(left(&states, 13 * SECOND + 1), [3, 3]);
        states.durable();
        states.reached(&made(&["a"]), 14 * SECOND);
        assert_eq!(left(&states, 14 * SECOND + 1), [2]);
    }

    #[test]
    fn a_file_whose_name_came_back_may_hold_what_was_written_after_its_name_was_taken() {
        let shared = Tree::new(1);
        let mut tree = shared.try_lock().expect("nobody else has it");
        let how =
            How { read: true, write: true, append: false, truncate: false, create: true, exclusive: false };
        let write = |fill| Op::Write { slot: 0, offset: 0, len: 10, fill };
        let ops = [
            Op::Open { slot: 0, path: "f".into(), how },
            write(1),
            Op::Unlink { path: "f".into() },
            write(2),
        ];
        let mut states = vec![tree.model.clone()];
        for op in ops.into_iter().chain([Op::Close { slot: 0 }]) {
            tree.model.apply(&op);
            let state = tree.model.clone();
            tree.states.reached(&state, SECOND);
            states.push(state);
        }
        let named = states[2].snapshot()["f"].clone();
        assert!(
            !tree.is_latest(&named, &named),
            "what was written later has not been lost by a cut of the MDT"
        );
        let content = states[4].content(named.ino).expect("it is still open");
        assert!(tree.is_latest(&named, &Node { content, ..named.clone() }));
    }
}
